"""Files: saved maps, tables and grids."""
