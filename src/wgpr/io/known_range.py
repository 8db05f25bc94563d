"""What is known of the values of a map, and which values are far outside of that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import LARGEST_DEGREES, Coordinates, coordinates, named_degrees
from wgpr.io.grids import framed, input_names, predict_one_output
from wgpr.labels import Label

# Rows to be seen before a value can be called far outside.
MIN_KNOWN = 20

# A value is far if its distance from the known values is so many times their size: metres in a map of kilometres are
# a factor of 1000. Targets vary more than inputs do.
_INPUT_FACTOR, _TARGET_FACTOR = 100.0, 1000.0
# A number that often stands for no data is far if its distance is so many times the known range.
_NO_DATA = [-999.0, -32768.0, 32767.0, *(sign * (10.0**n - 1) for n in range(4, 9) for sign in (-1, 1))]
_NO_DATA_FACTOR = 10.0
# A place in a coordinate reference system is far if its distance is so many times the extent of the known places, and
# more than so many metres.
_PLACE_FACTOR, _LEAST_REACH = 30.0, 10_000.0
# Longitude and latitude of a map without a system: the same multiple, and so many degrees. At a latitude of 60 these
# are 11 km of longitude.
_LEAST_DEGREES = 0.2
# Other inputs are far by the same multiple of their extent, but never within this fraction of their size, nor within so
# many of the user's units.
_FRACTION, _LEAST_INPUT_REACH = 0.1, 1000.0
# An input of a table is far from the middle half of its column if its distance is so many times the size of that.
_MIDDLE_FACTOR = 100.0
_HUGE = 1e30
# Rows that represent a map.
_SAMPLE = 200


class Fault(NamedTuple):
    """A value or a place that cannot be right.

    row, column : where it is, for a place that of x or y; values : as text, of a place x and y.
    text : what they are; is_no_data : whether it is a number that often stands for no data.
    """

    row: int
    column: int
    values: str
    text: str
    is_no_data: bool = False


@dataclass(frozen=True, eq=False)
class KnownRange:
    """What is known of k columns: inputs and, last, the target.

    low, high : (k,), with x and y in metres, as a map learns them, if there are coordinates.
    reach : (k,), how far outside of these a value is plausible.
    coordinates : of a map with a reference system. Its places are judged by x and y together.
    degrees : columns of longitude and latitude of a map without a system, judged together too; None without.
    """

    low: Array
    high: Array
    reach: Array
    coordinates: Coordinates | None = None
    degrees: tuple[int, int] | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """The columns of x and y if these are judged together, otherwise none."""
        return (self.degrees or ()) if self.coordinates is None else self.coordinates.columns

    @classmethod
    def of_columns(cls, rows: Array) -> "KnownRange":
        """The middle half of each column of `rows` (n, k), which a few wrong values do not change."""
        low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
        size = np.maximum(high - low, np.abs(middle))
        return cls(low, high, np.where(size > 0, _TARGET_FACTOR * size, inf))

    @classmethod
    def of_inputs(cls, rows: Array, names: Sequence[str], known: Coordinates | None) -> "KnownRange":
        """The middle half of inputs in rows (n, k) that represent a table. Inputs of the same unit have a common reach.

        names : (k - 1,) of the inputs; known : their coordinates, if they have a system. Any target is plausible.
        """
        low, high = np.quantile(_in_metres(rows, known), [0.25, 0.75], axis=0)
        size, units = (high - low)[:-1], [Label.parsed(name).unit for name in names]
        largest = [max(s for s, other in zip(size, units, strict=True) if other == unit) for unit in units]
        degrees = _degrees_within(named_degrees(names) if known is None else None, low, high)
        reach = np.append(_MIDDLE_FACTOR * np.array(largest), inf)
        _set_reach_of_places(reach, high - low, known, degrees)
        return cls(low, high, np.where(reach > 0, reach, inf), known, degrees)

    @classmethod
    def of_bounds(
        cls, low: Array, high: Array, known: Coordinates | None = None, degrees: tuple[int, int] | None = None
    ) -> "KnownRange":
        """By the least and greatest values (k,) of inputs and, last, target; of x and y in metres if these are known.

        The extent of all inputs counts for each, because a survey may begin with a straight line along one of them.
        degrees : columns that are named as longitude and latitude, without a system.
        """
        extent, degrees = high - low, _degrees_within(degrees, low, high)
        size = np.maximum(extent, np.maximum(np.abs(low), np.abs(high)))
        places = list((degrees or ()) if known is None else known.columns)
        most, widest = (np.delete(each[:-1], places).max(initial=0.0) for each in (size, extent))
        inputs = np.maximum(_FRACTION * size[:-1], max(_PLACE_FACTOR * widest, _LEAST_INPUT_REACH))
        reach = np.append(np.minimum(inputs, _INPUT_FACTOR * most), _TARGET_FACTOR * size[-1])
        _set_reach_of_places(reach, extent, known, degrees)
        return cls(low, high, np.where(reach > 0, reach, inf), known, degrees)

    @classmethod
    def of_rows(cls, rows: Array, known: Coordinates | None, names: Sequence[str]) -> "KnownRange":
        """By the rows (n, k) of a user that a map has seen.

        known : its coordinates, if it has a system; names : (k - 1,) of its inputs.
        """
        values = _in_metres(rows, known)
        degrees = named_degrees(names) if known is None else None
        return cls.of_bounds(values.min(axis=0), values.max(axis=0), known, degrees)

    @classmethod
    def of_map(cls, model: EnsembleRegressor) -> "KnownRange":
        """All inputs that a map has seen and, last, its targets: at pseudo-inputs, and of rows that wait."""
        y = np.ravel(model._state.pending_y)
        if model.n_models_:
            X = np.concatenate(model.pseudo_inputs_)
            y = np.append(y, predict_one_output(model, framed(model, X[:: 1 + len(X) // _SAMPLE]))[0])
        (low, high), known = model.bounds_, coordinates(model)
        degrees = named_degrees(input_names(model)) if known is None else None
        return cls.of_bounds(np.append(low, y.min()), np.append(high, y.max()), known, degrees)

    def including(self, rows: Array) -> "KnownRange":
        """With more rows (n, k) of the user."""
        values = _in_metres(rows, self.coordinates)
        low, high = np.minimum(self.low, values.min(axis=0)), np.maximum(self.high, values.max(axis=0))
        if (low == self.low).all() and (high == self.high).all():
            return self
        return self.of_bounds(low, high, self.coordinates, self.degrees)

    def is_far(self, rows: Array) -> NDArray[np.bool_]:
        """Which values of `rows` (n, k) of the user are far outside; of a place x or y, which is farther outside."""
        values = _in_metres(rows, self.coordinates)
        distance = np.maximum(self.low - values, values - self.high)
        is_no_data = np.isin(rows, _NO_DATA) & (distance > _NO_DATA_FACTOR * (self.high - self.low))
        is_huge = (np.abs(rows) >= _HUGE) & (np.maximum(np.abs(self.low), np.abs(self.high)) < _HUGE)
        is_far = np.asarray((distance > self.reach) | is_no_data | is_huge)
        if places := list(self.places):
            is_far_place = np.asarray(is_far[:, places].any(axis=1))
            if is_far_place.any():
                low, high = self._user_bounds()
                outside = np.maximum(low - rows, rows - high)[:, places]
                is_far[:, places] = is_far_place[:, np.newaxis] & (np.argmax(outside, axis=1)[:, np.newaxis] == (0, 1))
        return is_far

    def faults(self, rows: Array) -> Iterator[tuple[Fault, int]]:
        """For each column, or place, of `rows` (n, k): the first that is far outside, and how many others are."""
        is_far = self.is_far(rows)
        for columns in dict.fromkeys(self.columns_with(column) for column in range(rows.shape[1])):
            found = np.argwhere(is_far[:, list(columns)])
            if len(found):
                row, place = found[0].tolist()
                yield self.far(rows, row, columns[place]), len(found) - 1

    def first_far(self, rows: Array) -> Fault | None:
        """The first value of `rows` (n, k) of the user that is far outside; None without."""
        found = np.argwhere(self.is_far(rows))
        return self.far(rows, *found[0].tolist()) if len(found) else None

    def columns_with(self, column: int) -> tuple[int, ...]:
        """The columns that are judged together with a column: x and y of a place."""
        return self.places if column in self.places else (column,)

    def far(self, rows: Array, row: int, column: int) -> Fault:
        """What is wrong with a value of `rows` (n, k) that is far outside, in the user's coordinates."""
        columns, (low, high) = self.columns_with(column), self._user_bounds()
        digits = 6 if len(columns) == 1 else 9
        ranges = " and ".join(f"{low[each]:.{digits}g} to {high[each]:.{digits}g}" for each in columns)
        hint = self.swap_hint(rows[row, :-1]) if len(columns) > 1 else ""
        is_no_data = len(columns) == 1 and bool(rows[row, column] in _NO_DATA or abs(rows[row, column]) >= _HUGE)
        text = f"far outside of the known range, {ranges}{hint}"
        return Fault(row, column, _shown(rows[row], columns), text, is_no_data)

    def swap_hint(self, x: Array) -> str:
        """What to add to the fault of a row with inputs `x` (d,) that is plausible if x and y are swapped."""
        if not (places := list(self.places)):
            return ""
        swapped = np.append(x, self.high[-1])[np.newaxis]
        swapped[:, places] = swapped[:, places[::-1]]
        if self.is_far(swapped)[0, places].any():
            return ""
        is_geographic = self.coordinates is None or self.coordinates.is_geographic
        return f"; perhaps {'longitude and latitude' if is_geographic else 'easting and northing'} are swapped"

    def _user_bounds(self) -> tuple[Array, Array]:
        """Least and greatest values (k,), as the user gives them."""
        if self.coordinates is None:
            return self.low, self.high
        low, high = self.coordinates.box_to_user(self.low[np.newaxis, :-1], self.high[np.newaxis, :-1])
        return np.append(low[0], self.low[-1]), np.append(high[0], self.high[-1])


def first_outside(X: Array, known: Coordinates | None, values: KnownRange | None) -> Fault | None:
    """The first row of inputs (n, d) of the user without a place in the system; None without.

    known : coordinates of the map, None if it has no system; values : what is known, None if nothing is.
    """
    if known is None or not (is_outside := known.is_outside(X)).any():
        return None
    row = int(np.argmax(is_outside))
    hint = "" if values is None else values.swap_hint(X[row])
    shown = _shown(X[row], known.columns)
    return Fault(row, known.columns[0], shown, f"no place near the map in {known.name}{hint}")


def _degrees_within(columns: tuple[int, int] | None, low: Array, high: Array) -> tuple[int, int] | None:
    """The columns of longitude and latitude if their bounds (k,) can be degrees, otherwise None."""
    if columns is None:
        return None
    largest = np.maximum(np.abs(low), np.abs(high))[list(columns)]
    return columns if (largest <= LARGEST_DEGREES).all() else None


def _set_reach_of_places(
    reach: Array, extent: Array, known: Coordinates | None, degrees: tuple[int, int] | None
) -> None:
    """Give x and y their common reach, in place. extent : (k,) of what is known."""
    places = list((degrees or ()) if known is None else known.columns)
    if places:
        least = _LEAST_DEGREES if known is None else _LEAST_REACH
        reach[places] = max(_PLACE_FACTOR * extent[places].max(), least)


def _shown(row: Array, columns: Sequence[int]) -> str:
    return ", ".join(f"{row[column]:.15g}" for column in columns)


def _in_metres(rows: Array, known: Coordinates | None) -> Array:
    """Rows (n, k) of the user with x and y in metres, infinite where the system has no place."""
    return rows if known is None else np.column_stack([known.places(rows[:, :-1]), rows[:, -1]])
