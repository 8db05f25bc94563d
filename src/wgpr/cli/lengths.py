"""Lengths with a unit, such as 5km, in the coordinates of a map."""

import re
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wgpr.cli.console import UsageError
from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.coordinates import coordinates, user_bounds
from wgpr.io.grids import Fixed, input_names, varying_columns
from wgpr.labels import Label

_METRES = {"m": 1.0, "km": 1000.0, "nmi": 1852.0}
_SMALL = 1e-3  # change of a coordinate by which its metres are measured


class Length(NamedTuple):
    """A number with a unit of `_METRES`; without a unit ("") it is in that of a map's inputs."""

    number: float
    unit: str

    @classmethod
    def parsed(cls, option: str, text: str) -> Self:
        found = re.fullmatch(rf"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*({'|'.join(_METRES)}|)\s*", text, re.IGNORECASE)
        try:
            return cls(float(found[1] if found else ""), found[2].lower() if found else "")
        except ValueError as error:
            wanted = f"a number above 0, or a length with one of the units {', '.join(_METRES)}, such as 500m"
            raise UsageError(f"{option} must be {wanted}; got {text!r}") from error

    def in_unit_of(self, option: str, model: EnsembleRegressor, column: int) -> float:
        """In the unit of an input of the model: metres if the map has a reference system."""
        if not self.unit:
            return self.number
        own = "m" if coordinates(model) is not None else Label.parsed(input_names(model)[column]).unit
        if own not in _METRES:
            raise UsageError(f"{option}: the unit of the map's inputs is not known; give a number in that unit")
        return self.number * _METRES[self.unit] / _METRES[own]


def length_of(option: str, text: str, model: EnsembleRegressor, columns: Sequence[int]) -> float | None:
    """A distance between places in the unit of these inputs; None if there is no text."""
    if not text:
        return None
    lengths = {Length.parsed(option, text).in_unit_of(option, model, column) for column in columns}
    if len(lengths) > 1:
        raise UsageError(f"{option}: the inputs have different units; give a number without a unit")
    return lengths.pop()


def parse_spacing(text: str) -> list[Length] | None:
    """Distances between the nodes of a grid, separated by commas; None if there is no text."""
    return [Length.parsed("--spacing", part) for part in text.split(",")] if text else None


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
    if known is not None and length.unit and column not in known.columns:
        raise UsageError(f"--spacing of {known.names[column]} must be a number in its unit")
    if known is None or known.is_metric or not length.unit:
        return length.in_unit_of("--spacing", model, column)
    middle = user_bounds(model).mean(axis=0, keepdims=True)
    near = middle + _SMALL * (np.arange(middle.shape[1]) == column)
    metres = np.linalg.norm((known.places(near) - known.places(middle))[0, list(known.columns)])
    return length.in_unit_of("--spacing", model, column) * _SMALL / float(metres)
