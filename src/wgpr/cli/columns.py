"""Which columns of a table are the inputs, and which is the target: as the user says, or as their names say."""

import re
from collections.abc import Sequence

import numpy as np

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import coordinates, short_name
from wgpr.io.grids import input_names, target_name
from wgpr.io.tables import Table, TableError
from wgpr.labels import EASTING, LATITUDE, LONGITUDE, NORTHING

# Words in the names of columns.
_UNITS = re.compile(r"\b(?:m|km|cm|mm|ft|nm|deg|degrees?|rad|utm|wgs84)\b")
_PAIRS = [("x", "y"), (LONGITUDE, LATITUDE), (EASTING, NORTHING)]
_OF_LOGS = {
    "longitude": LONGITUDE,
    "latitude": LATITUDE,
    "depth": "depth|sounding",
    "time": "time|timestamp|utc",
}
_HORIZONTAL = re.compile(rf"\b(?:x|{LONGITUDE}|{LATITUDE}|{EASTING}|{NORTHING})\b")
_VERTICAL = re.compile(r"\b(?:z|depth|elev|elevation|height|altitude)\b")
_MEASURED = re.compile(
    r"\b(?:y|value|target|anomaly|residual|temperature|temp|salinity|conductivity|oxygen|gravity|magnetic|field|"
    r"intensity|amplitude|concentration|density|pressure|velocity|speed|thickness)\b"
)
_AUXILIARY = re.compile(
    r"\b(?:id|fid|uid|oid|index|idx|nr|no|num|number|count|line|row|record|point|ping|shot|seq|sequence|track|station|"
    r"flag|quality|time|date|datetime|timestamp|utc|year|month|day|hour|minute|second|std|sigma|error|uncertainty)\b"
)
_FEW_ROWS = 5


def columns_to_learn(table: Table, x: Sequence[str], y: str | None, weight: str | None = None) -> list[str]:
    """Names of the inputs, of the target and, last, of the weights if they have a column.

    What the user does not name is guessed if it is plain, and asked for otherwise. Inputs are the two columns with
    names of coordinates or, without such names, all columns but the target. The target is the one other column of
    numbers, or the one with the name of a measured quantity, and never an index, a line number or a time.
    """
    target = table.name_of(y) if y else None
    weights = [table.name_of(weight)] if weight else []
    names = [name for name in table.names if name not in weights]
    inputs = [table.name_of(column) for column in x] or _coordinates(names, target)
    target = target or _likely_target(table, names, inputs)
    return _distinct([*(inputs or _all_but(table, names, target)), target, *weights])


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
        remedy = "convert them with geopandas (to_crs), or fit a map of their own"
        raise TableError(f"the data are in {short_name(table.crs)}, and the map is in {known.name}; {remedy}")
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
    kinds = {_kind_of_places(each) for each in (names, others)}
    return len(kinds - {None}) == 2


def column_of_log(name: str) -> str | None:
    """The column of an instrument's log that a name stands for: longitude, latitude, depth or time."""
    words = _words(name)
    return next((column for column, pattern in _OF_LOGS.items() if re.fullmatch(pattern, words)), None)


def _kind_of_places(names: Sequence[str]) -> str | None:
    """The pattern of names of x in `_PAIRS` that two of the names follow, if they tell degrees from lengths."""
    words = [_words(name) for name in names]
    pairs = (pair for pair in _PAIRS[1:] if all(any(re.fullmatch(side, word) for word in words) for side in pair))
    return next((x for x, _ in pairs), None)


def _has_no_header(table: Table) -> bool:
    return all(name == f"x{place}" for place, name in enumerate(table.names, start=1))


def _words(name: str) -> str:
    """The words of a name without units: "east" for "East [m]" and "east_m", "point id" for "PointID"."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", re.sub(r"[\[(].*", "", name))
    return _UNITS.sub("", re.sub(r"[\W_]+", " ", spaced.lower())).strip()


def _coordinates(names: Sequence[str], target: str | None) -> list[str]:
    """The two columns with names of coordinates; none without such names, or if there is no other column."""
    rest = [name for name in names if name != target]
    pairs = [[[name for name in rest if re.fullmatch(side, _words(name))] for side in pair] for pair in _PAIRS]
    found = [name for pair in pairs if all(pair) for side in pair for name in side]
    if not found or len(names) == 2:
        return []
    is_third = target and not _VERTICAL.search(_words(target)) and any(_VERTICAL.search(_words(n)) for n in rest)
    if len(found) > 2 or is_third:
        raise TableError(f"it is not plain which of the columns {', '.join(rest)} are the inputs; name them with --x")
    return found


def _likely_target(table: Table, columns: Sequence[str], inputs: Sequence[str]) -> str:
    """The only column that can be the target, or the only one of those with the name of a measured quantity."""
    names = [name for name in columns if name not in inputs]
    if not inputs and _has_no_header(table) and len(names) <= 3:
        names = names[-1:]
    possible = _possible_targets(table, names)
    measured = [n for n in possible if _MEASURED.search(_words(n)) or _VERTICAL.search(_words(n))]
    for found in (possible, measured, possible[-1:] if len(columns) == 2 else []):
        if len(found) == 1:
            return found[0]
    remedy = "name it with --y" if inputs else "name it with --y, and the inputs with --x"
    raise TableError(f"it is not plain which of the columns {', '.join(columns)} is the target; {remedy}")


def _possible_targets(table: Table, names: Sequence[str]) -> list[str]:
    """Columns of numbers that do not look like coordinates, an index, a line number or a time."""
    named = [name for name in names if not (_HORIZONTAL.search(_words(name)) or _AUXILIARY.search(_words(name)))]
    return [name for name, values in table.peek(named).items() if not (_is_text(values) or _never_falls(values))]


def _all_but(table: Table, columns: Sequence[str], target: str) -> list[str]:
    """All columns but the target. If there are several, none of them may look like text, an index or a time."""
    rows = table.peek([name for name in columns if name != target])
    odd = [
        name
        for name, values in rows.items()
        if _AUXILIARY.search(_words(name))
        or _is_text(values)
        or (_never_falls(values) and np.all(np.diff(values) == 1))
    ]
    if odd and len(rows) > 1:
        raise TableError(f"it is not plain that {', '.join(odd)} should be an input; name the inputs with --x")
    return list(rows)


def _is_text(values: Array) -> bool:
    return len(values) > 0 and not np.isfinite(values).any()


def _never_falls(values: Array) -> bool:
    """Whether values (n,) are whole numbers that never fall, as a line number or a time."""
    whole = values[np.isfinite(values)]
    return len(whole) >= _FEW_ROWS and bool(np.all(whole == np.rint(whole)) and np.all(np.diff(whole) >= 0.0))


def _distinct(names: list[str]) -> list[str]:
    if len(names) < 2:
        raise TableError("there is one column, which is the target; name inputs and target with --x and --y")
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"{name} is named twice among inputs, target and weights; correct --x, --y or --weight")
    return names
