"""The command line `wgpr`."""
