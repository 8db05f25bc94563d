"""Which columns of a table are the inputs, and which is the target."""

from collections.abc import Sequence

from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.grids import input_names, target_name
from wgpr.io.tables import Table, TableError


def columns_to_learn(table: Table, x: Sequence[str], y: str | None) -> list[str]:
    """Names of the inputs and, last, of the target: as the user says, by name or number.

    By default the target is the last column that is no input, and the inputs are all but the target.
    """
    inputs = [table.name_of(column) for column in x]
    rest = [name for name in table.names if name not in inputs]
    if not y and not rest:
        raise TableError("all columns are inputs; name the target with --y")
    target = table.name_of(y) if y else rest[-1]
    return _distinct([*(inputs or [name for name in table.names if name != target]), target])


def columns_of_map(model: EnsembleRegressor, table: Table, x: Sequence[str], y: str | None) -> list[str]:
    """Names of the columns where the inputs and, last, the target of a map are in another table."""
    inputs = inputs_of_map(model, table, x)
    rest = [name for name in table.names if name not in inputs]
    target = target_name(model)
    if y:
        target = table.name_of(y)
    elif target not in rest:
        if len(rest) != 1:
            raise TableError(f"the data have no column {target}; name the target with --y")
        target = rest[0]
    return _distinct([*inputs, target])


def inputs_of_map(model: EnsembleRegressor, table: Table, x: Sequence[str]) -> list[str]:
    """As the user says; otherwise by the map's names or, in a table without names, by place."""
    expected = input_names(model)
    if x and len(x) != len(expected):
        raise TableError(f"--x names {len(x)} columns in place of {len(expected)}: {', '.join(expected)}")
    if x or set(expected) <= set(table.names):
        return [table.name_of(column) for column in x or expected]
    has_no_header = all(name == f"x{place + 1}" for place, name in enumerate(table.names))
    if has_no_header and len(table.names) >= len(expected):
        return list(table.names[: len(expected)])
    raise TableError(
        f"the data have the columns {', '.join(table.names)} and the map needs {', '.join(expected)}; "
        "say which are which with --x"
    )


def _distinct(names: list[str]) -> list[str]:
    if len(names) < 2:
        raise TableError("there is one column, which is the target; name inputs and target with --x and --y")
    for name in names:
        if names.count(name) > 1:
            raise TableError(f"{name} is named twice among inputs and target; correct --x or --y")
    return names
