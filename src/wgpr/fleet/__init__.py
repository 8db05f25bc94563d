"""Many boats, many cores, one map: districts that workers learn, and maps that are merged."""
