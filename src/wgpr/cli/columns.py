"""Which columns are the inputs, and which is the target: as the user says, or by their order."""

import re
from collections.abc import Sequence

from wgpr.cli.console import inform
from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.coordinates import coordinates, short_name
from wgpr.io.grids import input_names, target_name
from wgpr.io.tables import Table, TableError
from wgpr.labels import EASTING, LATITUDE, LONGITUDE, NORTHING

# Units and systems in the names of columns.
_UNITS = re.compile(r"\b(?:m|km|cm|mm|ft|nm|deg|degrees?|dd|rad|utm|wgs84)\b")

# Columns of an instrument's log, and the names that they may have in a map.
_OF_LOGS = {
    "longitude": LONGITUDE,
    "latitude": LATITUDE,
    "depth": "depth|sounding",
    "time": "time|timestamp|utc",
}

# Columns of a table whose inputs and target need no names.
_FEW = 3


def columns_to_learn(table: Table, x: Sequence[str], y: str | None, weight: str | None = None) -> list[str]:
    """Names of the inputs, of the target and, last, of the weights if they have a column.

    Of few columns, and of those that an instrument's log has, the last is the target, and the others are the inputs,
    unless the user says otherwise.
    """
    weights = [table.name_of(weight)] if weight else []
    inputs = [table.name_of(column) for column in x]
    rest = [name for name in table.names if name not in (*inputs, *weights)]
    if (not x and len(rest) > _FEW) or (x and not y and len(rest) != 1):
        options = " and ".join(option for option, given in (("--x", x), ("--y", y)) if not given)
        raise TableError(f"the columns are {', '.join(table.names)}; say which to learn with {options}")
    target = table.name_of(y) if y else rest[-1]
    return _distinct([*(inputs or [name for name in rest if name != target]), target, *weights])


def columns_of_map(
    model: EnsembleRegressor, table: Table, x: Sequence[str], y: str | None, weight: str | None = None
) -> list[str]:
    """Names of the columns where the inputs and the target of a map are in another table, and of its weights if any.

    A target of another name must be named by the user. In a table without names it is the one column that is left.
    """
    inputs, weights = inputs_of_map(model, table, x), [table.name_of(weight)] if weight else []
    rest = [name for name in table.names if name not in (*inputs, *weights)]
    target = target_name(model)
    if y:
        target = table.name_of(y)
    elif _has_no_header(table) and len(rest) == 1:
        target = rest[0]
    elif target not in rest:
        others = f"; it may be {' or '.join(rest)}" if rest else ""
        raise TableError(f"the data have no column {target}{others}; name the target with --y")
    return _distinct([*inputs, target, *weights])


def inputs_of_map(model: EnsembleRegressor, table: Table, x: Sequence[str]) -> list[str]:
    """As the user says; otherwise by the map's names or, in a table without names, by place."""
    expected, known = input_names(model), coordinates(model)
    if table.crs and known is not None and short_name(table.crs) != known.name:
        if not table.is_log:
            remedy = "convert them with geopandas (to_crs), or fit a map of their own"
            raise TableError(f"the data are in {short_name(table.crs)}, and the map is in {known.name}; {remedy}")
        inform(f"positions of the log are converted from {short_name(table.crs)} to {known.name}")
        names = dict(zip(table.names, table.convert_logs(known), strict=True))
        x = [names.get(column, column) for column in x]
    if x and len(x) != len(expected):
        raise TableError(f"--x names {len(x)} columns in place of {len(expected)}: {', '.join(expected)}")
    if x or set(expected) <= set(table.names):
        return [table.name_of(column) for column in x or expected]
    if _has_no_header(table) and len(table.names) >= len(expected):
        return list(table.names[: len(expected)])
    raise TableError(
        f"the data have the columns {', '.join(table.names)} and the map needs {', '.join(expected)}; "
        "say which are which with --x"
    )


def are_other_places(names: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the one are longitude and latitude and the others easting and northing, by their names."""
    pairs = ((names, others), (others, names))
    return any(are_named(one, LONGITUDE, LATITUDE) and are_named(other, EASTING, NORTHING) for one, other in pairs)


def are_named(names: Sequence[str], x: str, y: str) -> bool:
    """Whether one of the names matches the pattern `x`, and one the pattern `y`."""
    words = [_words(name) for name in names]
    return all(any(re.fullmatch(pattern, word) for word in words) for pattern in (x, y))


def column_of_log(name: str) -> str | None:
    """The column of an instrument's log that a name stands for: longitude, latitude, depth or time."""
    words = _words(name)
    return next((column for column, pattern in _OF_LOGS.items() if re.fullmatch(pattern, words)), None)


def _has_no_header(table: Table) -> bool:
    return all(name == f"x{place}" for place, name in enumerate(table.names, start=1))


def _words(name: str) -> str:
    """The words of a name without units: "east" for "East [m]", "east_m" and "EastM"."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"[\[(].*", "", name))
    return _UNITS.sub("", re.sub(r"[\W_]+", " ", spaced.lower())).strip()


def _distinct(names: list[str]) -> list[str]:
    if len(names) < 2:
        raise TableError("there is one column, which is the target; name inputs and target with --x and --y")
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"{name} is named twice among inputs, target and weights; correct --x, --y or --weight")
    return names
