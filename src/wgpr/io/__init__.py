"""Files and what they hold, between the estimators and the commands.

Maps: `maps` loads and compares them; `codec`, `arrays`, `territories` and `conversion` translate estimators to arrays;
`container` writes these; `journal` and `store` keep rows that a map lacks; `changes` sends states between processes.
Tables: `tables` reads them by `sources`; logs of instruments are read by `nmea`, `mavlink` and `track`.
Places: `coordinates` converts them, `known_range` judges them, and `rows` gives rows to an estimator.
Grids: `grids` predicts them and has the names of inputs; `rasters` and `contours` are for GIS.
"""
