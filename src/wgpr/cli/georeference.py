"""Which coordinate reference system a new map has: as the user says, as the file says, or as names of columns say."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wgpr.cli import options as opt
from wgpr.cli.columns import are_named
from wgpr.cli.console import UsageError, inform, warn
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import (
    NONE,
    WGS84,
    coordinates,
    coordinates_of,
    has_pyproj,
    named_degrees,
    recognised,
    user_bounds,
)
from wgpr.io.grids import input_names
from wgpr.io.known_range import first_out_of_area
from wgpr.io.track import COLUMNS
from wgpr.labels import EASTING, NORTHING, Label

# Degrees whose names do not tell them: a survey has at most this extent, is so many extents away from 0, 0, and its
# places have more than so many decimals.
_LARGEST_EXTENT, _LEAST_RATIO, _FEW_DECIMALS = 1.0, 20.0, 4


def choose_crs(model: EnsembleRegressor, crs: str, of_file: str, inputs: Sequence[str], rows: Array) -> None:
    """Give a new model its coordinates, and say which these are; without a system, leave it as it is.

    crs : that the user names, or none; of_file : that the file names; rows : (n, d) the first ones, of the inputs.
    """
    if crs.lower() == NONE:
        return
    is_geographic = recognised(inputs, rows)
    rows = rows[np.isfinite(rows).all(axis=1)]
    wanted = crs or (of_file if of_file != WGS84 and len(inputs) > 1 else "") or (WGS84 if is_geographic else "")
    if not wanted and len(rows) and (named := named_degrees(inputs)):
        inform(f"{', '.join(inputs[column] for column in named)} do not look like degrees; learned as they are")
    if not wanted or not len(rows):
        return
    if not crs and not has_pyproj():
        inform(f'learning {", ".join(inputs)} in degrees; pip install "wgpr[geo]" lets maps be learned in metres')
        return
    with opt.errors_of_usage("--crs: " if crs else ""):
        known = coordinates_of(wanted, inputs)
        is_outside = known.is_outside(rows)  # an odd row is told with its line later, and is never learned
        known = known.settled(rows[int(np.argmin(is_outside))] if is_outside.mean() < 0.5 else rows[0])
    model.crs_ = known
    if is_geographic and not known.is_geographic:
        source, columns = f"--crs {crs}" if crs else "the file", ", ".join(inputs[column] for column in known.columns)
        fault = f"{source} says that {columns} are projected ({known.name}), but their names and values are of degrees"
        warn(f"{fault}; use --crs {WGS84} if they are")
    why = "" if crs else "; --crs names another system, --crs none learns them as they are"
    inform(f"coordinates {', '.join(inputs[column] for column in known.columns)}: {known}{why}")


def check_crs_of_log(crs: str) -> None:
    """Refuse another system for the positions of an instrument than that of satellites."""
    if crs.lower() in ("", NONE) or crs.upper() == WGS84:
        return
    with opt.errors_of_usage("--crs: "):
        is_wgs84 = has_pyproj() and coordinates_of(crs, COLUMNS[:2]).name in (WGS84, "OGC:CRS84")
    if not is_wgs84:
        raise UsageError(f"--crs {crs}: positions of a log are in {WGS84}; leave --crs out")


def warn_of_degrees(inputs: Sequence[str], rows: Array) -> None:
    """Warn if x and y look like degrees though their names do not say so. rows : (n, d) that represent a table.

    Places of a local grid have another look: they are near its origin, or far apart, or have few decimals.
    """
    X, names = rows[:, :2], inputs[:2]
    if not are_named(names, f"x|{EASTING}", f"y|{NORTHING}") or any(Label.parsed(name).unit for name in names):
        return
    extent, size = np.ptp(X, axis=0), np.abs(X).max(axis=0)
    has_decimals = (np.round(X, _FEW_DECIMALS) != X).mean() > 0.5
    is_small = (extent < _LARGEST_EXTENT).all() and (size > _LEAST_RATIO * extent).all()
    if is_small and has_decimals and size.max() <= 180.0 and size.min() <= 90.0:
        fault = f"{', '.join(names)} look like degrees, and are learned as they are"
        warn(f"{fault}; if they are degrees, fit again with --crs {WGS84}")


def add_crs(model: EnsembleRegressor, crs: str) -> None:
    """Give a map that was learned as it is the projected system that its inputs are in, and say so.

    A map that has this system stays as it is, so that a command can be repeated.
    """
    inputs = input_names(model)
    with opt.errors_of_usage("--crs: "):
        known = replace(coordinates_of(crs, inputs), origin=(0.0, 0.0))
        if (own := coordinates(model)) is not None:
            if own.name == known.name:
                return
            raise ValueError(f"the map has a system, {own.name}, and keeps it; leave out --crs")
        if not known.is_metric:
            raise ValueError(f"{known.name} is not in metres, in which a map is learned; use wgpr fit --crs {crs}")
        if (fault := first_out_of_area(user_bounds(model), known)) is not None:
            raise ValueError(f"the map has places at {fault.values}, {fault.text}")
    model.crs_, model.feature_names_in_ = known, np.array(known.model_names, dtype=object)
    inform(f"coordinates {', '.join(inputs[column] for column in known.columns)}: {known}")
