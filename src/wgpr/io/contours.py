"""Lines of equal mean on a grid, as GeoJSON or as a GeoPackage, which is an SQLite database."""

import json
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.metadata import version
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wgpr.gp.linalg import Array
from wgpr.io.coordinates import WGS84, Coordinates, require_pyproj

if TYPE_CHECKING:
    import xarray as xr

_MOST_LEVELS = 1000


class Contour(NamedTuple):
    """A line of equal mean: places (n, 2), x first."""

    level: float
    places: Array


def contours_of(grid: "xr.Dataset", interval: float, base: float = 0.0) -> Iterator[Contour]:
    """The lines of a grid at `base` and all multiples of `interval` from it. Nodes without data have no lines."""
    from contourpy import LineType, contour_generator

    mean = grid["mean"]
    vertical, horizontal = (grid[name].to_numpy() for name in mean.dims)
    values = np.ma.masked_invalid(mean.to_numpy())
    if values.mask.all():
        return
    made = contour_generator(horizontal, vertical, values, line_type=LineType.Separate)
    for level in levels_between(float(values.min()), float(values.max()), interval, base):
        for line in made.lines(level):
            yield Contour(level, np.asarray(line))


def levels_between(low: float, high: float, interval: float, base: float = 0.0) -> list[float]:
    """`base` and multiples of `interval` from it, in a range."""
    if not 0.0 < interval < np.inf:
        raise ValueError(f"--interval must be a number above 0, got {interval:g}")
    if not np.isfinite(base):
        raise ValueError(f"--base must be finite, got {base:g}")
    if (high - low) / interval > _MOST_LEVELS:
        raise ValueError(f"--interval {interval:g} makes more than {_MOST_LEVELS:,} levels; use a larger one")
    first, last = np.ceil((low - base) / interval), np.floor((high - base) / interval)
    digits = 12 - floor(log10(interval))  # without errors of rounding
    return [round(base + interval * number, digits) for number in np.arange(first, last + 1).tolist()]


def write_geojson(path: Path, contours: Sequence[Contour], name: str, known: Coordinates | None) -> None:
    """GeoJSON (RFC 7946): longitude and latitude of WGS 84, if the coordinates are known."""
    features = []
    for contour in contours:
        places = contour.places
        if known is not None:
            places = np.column_stack(known.transformed(places[:, 0], places[:, 1], WGS84))
        geometry = {"type": "LineString", "coordinates": np.round(places, 9).tolist()}
        features.append({"type": "Feature", "properties": {name: contour.level}, "geometry": geometry})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")


# GeoPackage 1.3: tables of the standard, and one of features


def write_geopackage(path: Path, contours: Sequence[Contour], name: str, known: Coordinates | None) -> None:
    """A GeoPackage with the layer `contours`, in the coordinates of the user."""
    number, row = _reference(known)
    column = name.replace('"', "")
    column += "_" if column.lower() in ("", "fid", "geom") else ""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_TABLES)
        database.executemany("INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, ?)", [*_SYSTEMS, row])
        database.execute(
            f'CREATE TABLE contours (fid INTEGER PRIMARY KEY AUTOINCREMENT, geom LINESTRING, "{column}" DOUBLE)'
        )
        places = np.concatenate([line.places for line in contours])
        corners = [*places.min(axis=0).tolist(), *places.max(axis=0).tolist()]
        about = f"contours by wgpr {version('wgpr')}"
        database.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier, description, min_x, min_y, max_x, max_y, "
            "srs_id) VALUES ('contours', 'features', 'contours', ?, ?, ?, ?, ?, ?)",
            (about, *corners, number),
        )
        database.execute(
            "INSERT INTO gpkg_geometry_columns VALUES ('contours', 'geom', 'LINESTRING', ?, 0, 0)", (number,)
        )
        rows = ((_geometry(line.places, number), line.level) for line in contours)
        database.executemany(f'INSERT INTO contours (geom, "{column}") VALUES (?, ?)', rows)


def _reference(known: Coordinates | None) -> tuple[int, tuple[Any, ...]]:
    """The number of a system in the file, and its row."""
    if known is None:
        return -1, _SYSTEMS[0]
    system = require_pyproj().CRS.from_user_input(known.user)
    code = system.to_epsg(min_confidence=70)
    wkt = system.to_wkt("WKT1_GDAL")
    if code is None:
        return 100_000, (system.name, 100_000, "NONE", 100_000, wkt, "")
    return code, (system.name, code, "EPSG", code, wkt, "")


def _geometry(places: Array, srs: int) -> bytes:
    """A line as binary of GeoPackage, without an envelope: a header and well-known binary."""
    line = struct.pack("<BII", 1, 2, len(places)) + np.ascontiguousarray(places, dtype="<f8").tobytes()
    return b"GP" + struct.pack("<BBi", 0, 1, srs) + line


_SYSTEMS: list[tuple[Any, ...]] = [
    ("Undefined Cartesian", -1, "NONE", -1, "undefined", "undefined Cartesian coordinates"),
    ("Undefined geographic", 0, "NONE", 0, "undefined", "undefined geographic coordinates"),
    (
        "WGS 84", 4326, "EPSG", 4326,
        'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
        'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]', "longitude and latitude",
    ),
]  # fmt: skip

_TABLES = """
PRAGMA application_id = 1196444487;
PRAGMA user_version = 10300;
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY, organization TEXT NOT NULL,
    organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
    description TEXT DEFAULT '', last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')),
    min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
    FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL,
    geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL,
    PRIMARY KEY (table_name, column_name), FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name),
    FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
"""
