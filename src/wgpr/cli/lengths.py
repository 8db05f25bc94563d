"""Lengths with a unit, such as 5km, in the coordinates of a map."""

import re
from collections.abc import Sequence
from math import log10
from typing import NamedTuple, Self

import numpy as np

from wgpr.cli.console import UsageError
from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.coordinates import coordinates, user_bounds
from wgpr.io.grids import (
    MOST_NODES,
    Fixed,
    GridPlan,
    TooManyNodesError,
    default_region,
    input_names,
    plan_grid,
    varying_columns,
)
from wgpr.labels import Label

_METRES = {"m": 1.0, "km": 1000.0, "nmi": 1852.0, "NM": 1852.0, "mi": 1609.344, "ft": 0.3048}
_WORDS = {
    "metre": "m", "metres": "m", "meter": "m", "meters": "m", "mile": "mi", "miles": "mi", "foot": "ft", "feet": "ft",
    "kilometre": "km", "kilometres": "km", "kilometer": "km", "kilometers": "km", "nautical mile": "nmi",
    "nautical miles": "nmi",
}  # fmt: skip
_LARGE = {"trillion": 12.0, "billion": 9.0, "million": 6.0}  # decimal logarithms
_SMALL = 1e-3  # change of a coordinate by which its metres are measured


class Length(NamedTuple):
    """A number with a unit of `_METRES`; without a unit ("") it is in that of a map's inputs."""

    number: float
    unit: str

    @classmethod
    def parsed(cls, option: str, text: str) -> Self:
        found = re.fullmatch(r"\s*(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z ]*?)\s*", text)
        if found is None or found[1].count(".") > 1 or not re.search(r"\d", found[1]):
            raise UsageError(f"{option} must be a length such as 500m or 5km, or a number, got {text!r}")
        unit = _WORDS.get(found[2].lower(), found[2])
        if unit and unit not in _METRES:
            raise UsageError(f"{option}: {unit} is no unit of length; use one of {', '.join(_METRES)}")
        return cls(float(found[1]), unit)

    def in_unit_of(self, option: str, model: EnsembleRegressor, column: int) -> float:
        """In the unit of an input of the model: metres if the map has a reference system."""
        if not self.unit:
            return self.number
        own = "m" if coordinates(model) is not None else Label.parsed(input_names(model)[column]).unit or ""
        own = _WORDS.get(own.lower(), own)
        if own not in _METRES:
            raise UsageError(f"{option}: the unit of the map's inputs is not known; give a number in that unit")
        return self.number * _METRES[self.unit] / _METRES[own]


def parse_spacing(text: str) -> list[Length] | None:
    """Distances between the nodes of a grid, separated by commas; None if there is no text."""
    return [Length.parsed("--spacing", part) for part in text.split(",")] if text else None


def plan_nodes(
    model: EnsembleRegressor,
    region: Sequence[float] | None,
    spacing: list[Length] | None,
    at: Fixed | None = None,
    most: int = MOST_NODES,
) -> GridPlan:
    """The nodes of a grid with a spacing as the user gives it. More nodes than `most` are an error of --spacing."""
    steps = steps_of(spacing, model, at)
    try:
        return plan_grid(model, region, steps, at=at, max_nodes=most)
    except TooManyNodesError as error:
        if spacing is None or steps is None:
            raise
        edges = np.reshape(default_region(model, at=at) if region is None else region, (-1, 2))
        log_nodes = float((np.log10(edges[:, 1] - edges[:, 0]) - np.log10(steps)).sum())  # the number may overflow
        factor = 1.1 * 10.0 ** max(0.0, (log_nodes - log10(most)) / len(edges))
        unit, enough = _coarser(spacing, steps, factor, model, varying_columns(model, at)[0])
        fault = f"--spacing {_joined(spacing)}{unit} makes {_in_words(log_nodes)} nodes, and {most:,} are the most"
        raise UsageError(f"{fault}; use --spacing {enough}") from error


def _coarser(
    spacing: list[Length], steps: list[float], factor: float, model: EnsembleRegressor, column: int
) -> tuple[str, str]:
    """The unit of a spacing if it is plain degrees, and a spacing so many times as large. column : of the first."""
    known, enough = coordinates(model), [Length(factor * each.number, each.unit) for each in spacing]
    if known is None or not known.is_geographic or column not in known.columns or spacing[0].unit:
        return "", _joined(enough)
    metres = Length(factor * steps[0] / _step(Length(1.0, "m"), model, column), "m")
    return " (degrees)", f"{_joined(enough)}, or metres: --spacing {_joined([metres])}"


def _joined(lengths: Sequence[Length]) -> str:
    return ",".join(f"{float(f'{number:.2g}'):g}{unit}" for number, unit in lengths)


def _in_words(log_number: float) -> str:
    """A number of millions or more, by its decimal logarithm."""
    if log_number >= 15.0:
        return "more than a thousand trillion"
    name = next((name for name, least in _LARGE.items() if log_number >= least), "million")
    return f"{float(f'{10.0 ** (log_number - _LARGE[name]):.2g}'):g} {name}"


def steps_of(spacing: list[Length] | None, model: EnsembleRegressor, at: Fixed | None = None) -> list[float] | None:
    """The spacing in the user's coordinates, in which a length may be another number for each input."""
    if spacing is None:
        return None
    numbers, known = [length.number for length in spacing], coordinates(model)
    if not any(length.unit for length in spacing):
        if known is not None and known.is_geographic and (most := max(numbers)) > 1.0:
            raise UsageError(f"--spacing is in degrees here, got {most:g}; write {most:g}m for metres")
        return numbers
    columns = varying_columns(model, at)
    if len(spacing) not in (1, len(columns)):
        raise UsageError(f"--spacing must be one length, or one for each of {len(columns)} inputs; got {len(spacing)}")
    lengths = spacing * len(columns) if len(spacing) == 1 else spacing
    return [_step(length, model, column) for length, column in zip(lengths, columns, strict=True)]


def _step(length: Length, model: EnsembleRegressor, column: int) -> float:
    """A number in the user's unit as it is; a length as the change of the user's input, in the middle of the map."""
    known = coordinates(model)
    if known is None or not length.unit:
        return length.in_unit_of("--spacing", model, column)
    if column not in known.columns:
        raise UsageError(f"--spacing of {known.names[column]} must be a number in its unit")
    middle = user_bounds(model).mean(axis=0, keepdims=True)
    near = middle + _SMALL * (np.arange(middle.shape[1]) == column)
    metres = np.linalg.norm((known.places(near) - known.places(middle))[0, list(known.columns)])
    return length.in_unit_of("--spacing", model, column) * _SMALL / float(metres)
