"""What the words on a command line mean."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scipy.stats import norm

from wgpr.cli.settings import SettingsError, read_configuration
from wgpr.io.tables import Table, TableError, TableFormat, expand


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(option: str, text: str) -> list[float] | None:
    """Numbers with commas between them; None if there are none."""
    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError as error:
        raise SettingsError(f"{option} must be numbers with commas between them, got {text!r}") from error


def places(pairs: list[str], inputs: list[str]) -> dict[int, float] | None:
    """`NAME=VALUE` pairs, the name being that of an input or its number from 1: values by column."""
    found: dict[int, float] = {}
    for pair in pairs:
        name, _, value = pair.rpartition("=")
        column = _column(name.strip(), inputs)
        if column in found:
            raise SettingsError(f"--at {name} is given twice")
        found[column] = _number(f"--at {name}", value)
    return found or None


def _number(option: str, text: str) -> float:
    values = numbers(option, text) or []
    if len(values) != 1:
        raise SettingsError(f"{option} must be one number, got {text!r}")
    return values[0]


def _column(name: str, inputs: list[str]) -> int:
    known = [*inputs, *(str(number) for number in range(1, len(inputs) + 1))]
    if name not in known:
        raise SettingsError(f"--at needs NAME=VALUE, the name being one of {', '.join(inputs)}; got {name!r}")
    return known.index(name) % len(inputs)


def half_width(level: float) -> float:
    """Of the central interval with this probability, in standard deviations."""
    if not 0.0 < level < 1.0:
        raise SettingsError(f"--level must be between 0 and 1, got {level}; 0.95 is customary")
    return float(norm.ppf(0.5 + level / 2.0))


def opened_table(
    data: list[str],
    configured: Mapping[str, Any] | None = None,
    *,
    separator: str = "",
    decimal: str = "",
    header: bool | None = None,
    missing: str = "",
) -> Table:
    """The files that are named, read as the options or else the configuration say."""
    given = {
        "separator": {"tab": "\t", "\\t": "\t"}.get(separator, separator) or None,
        "decimal": decimal or None,
        "header": header,
        "missing": missing or None,
    }
    settings = dict(read_configuration(None).table if configured is None else configured)
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        format_ = TableFormat(**settings)
    except TableError as error:
        raise SettingsError(str(error)) from error
    return Table(expand(data), format_)


def require_other_file(output: Path, *others: Path | str) -> None:
    """An output that is also an input would destroy it."""
    for other in others:
        if output.exists() and os.path.exists(other) and os.path.samefile(output, other):
            raise SettingsError(f"{output} is read and would be overwritten; name another output")
