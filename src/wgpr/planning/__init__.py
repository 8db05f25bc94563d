"""Where to measure next: places, lines and paths that take most uncertainty out of a map."""
