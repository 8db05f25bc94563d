"""What is known of the values of a map, and which values are far outside of that."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import LARGEST_DEGREES, Coordinates, coordinates, named_degrees, require_pyproj
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
# A target is a spike by the same measure, if its distance is also larger than the targets in the middle are, and so
# many times that of any row that is none; and if few rows are spikes. The strongest of half a million magnetic
# anomalies is 26 times the size of the middle.
_SPIKE_FACTOR, _APART, _MOST_SPIKES = 50.0, 3.0, 0.001
_HUGE = 1e30
# A place is far from the area of use of its system if it is farther away than the area is large, and more than so many
# degrees.
_LEAST_MARGIN = 1.0
_SWAPPED_DEGREES = "; perhaps longitude and latitude are swapped"
_SWAPPED_METRES = "; perhaps easting and northing are swapped"
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
    names : (k - 1,) of the inputs; coordinates : of a map with a reference system.
    places : columns of x and y if there are coordinates, or of longitude and latitude by their names. They are judged
        together. Otherwise empty.
    name : what low and high are the ends of.
    """

    low: Array
    high: Array
    reach: Array
    names: Sequence[str]
    coordinates: Coordinates | None
    places: tuple[int, ...]
    name: str = "known range"

    @classmethod
    def of_sample(
        cls, rows: Array, names: Sequence[str], known: Coordinates | None, ends: Array | None = None, n_rows: int = 0
    ) -> "KnownRange":
        """The middle half of columns in rows (n, k) that represent a table, which a few wrong values do not change.

        Inputs of the same unit have a common reach. Of a few rows any input is plausible.

        names : (k - 1,) of the inputs; known : their coordinates, if they have a system.
        ends : (m,) the least and the greatest targets of the table, by default those of the rows.
        n_rows : of the table, by default of the sample.
        """
        low, middle, high = np.quantile(_in_metres(rows, known), [0.25, 0.5, 0.75], axis=0)
        size, units = high - low, [Label.parsed(name).unit for name in names]
        largest = [max(s for s, other in zip(size[:-1], units, strict=True) if other == unit) for unit in units]
        target = _TARGET_FACTOR * max(size[-1], abs(middle[-1]))
        if len(rows) >= MIN_KNOWN:
            ends, most = rows[:, -1] if ends is None else ends, max(1.0, _MOST_SPIKES * (n_rows or len(rows)))
            target = min(target, _reach_of_spikes(ends, low[-1], high[-1], most))
        reach = np.append(_MIDDLE_FACTOR * np.array(largest), target)
        made = cls._with_reach(low, high, reach, names, known)
        if len(rows) < MIN_KNOWN:
            made.reach[:-1] = inf
        return replace(made, name="middle half of the rows")

    @classmethod
    def of_bounds(cls, low: Array, high: Array, names: Sequence[str], known: Coordinates | None) -> "KnownRange":
        """By the least and greatest values (k,) of inputs and, last, target; of x and y in metres if these are known.

        The extent of all inputs counts for each, because a survey may begin with a straight line along one of them.
        """
        extent = high - low
        size = np.maximum(extent, np.maximum(np.abs(low), np.abs(high)))
        places = _places(low, high, names, known)
        most, widest = (np.delete(each[:-1], places).max(initial=0.0) for each in (size, extent))
        inputs = np.maximum(_FRACTION * size[:-1], max(_PLACE_FACTOR * widest, _LEAST_INPUT_REACH))
        reach = np.append(np.minimum(inputs, _INPUT_FACTOR * most), _TARGET_FACTOR * size[-1])
        return cls._with_reach(low, high, reach, names, known)

    @classmethod
    def _with_reach(
        cls, low: Array, high: Array, reach: Array, names: Sequence[str], known: Coordinates | None
    ) -> "KnownRange":
        """x and y get their common reach. Where nothing varies, any value is plausible."""
        places = _places(low, high, names, known)
        if places:
            least = _LEAST_DEGREES if known is None else _LEAST_REACH
            reach[places] = max(_PLACE_FACTOR * (high - low)[places].max(), least)
        return cls(low, high, np.where(reach > 0, reach, inf), names, known, tuple(places))

    @classmethod
    def of_rows(cls, rows: Array, known: Coordinates | None, names: Sequence[str]) -> "KnownRange":
        """By the rows (n, k) of a user that a map has seen.

        known : its coordinates, if it has a system; names : (k - 1,) of its inputs.
        """
        values = _in_metres(rows, known)
        return cls.of_bounds(values.min(axis=0), values.max(axis=0), names, known)

    @classmethod
    def of_map(cls, model: EnsembleRegressor) -> "KnownRange":
        """All inputs that a map has seen and, last, its targets: at pseudo-inputs, and of rows that wait."""
        y = np.ravel(model._state.pending_y)
        if model.n_models_:
            X = np.concatenate(model.pseudo_inputs_)
            y = np.append(y, predict_one_output(model, framed(model, X[:: 1 + len(X) // _SAMPLE]))[0])
        low, high = model.bounds_
        bounds = np.append(low, y.min()), np.append(high, y.max())
        return cls.of_bounds(*bounds, input_names(model), coordinates(model))

    def including(self, rows: Array) -> "KnownRange":
        """With more rows (n, k) of the user."""
        values = _in_metres(rows, self.coordinates)
        low, high = np.minimum(self.low, values.min(axis=0)), np.maximum(self.high, values.max(axis=0))
        if (low == self.low).all() and (high == self.high).all():
            return self
        return self.of_bounds(low, high, self.names, self.coordinates)

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
        hint = self.swap_hint(rows[row, :-1]) if column < len(self.names) else ""
        is_no_data = len(columns) == 1 and bool(rows[row, column] in _NO_DATA or abs(rows[row, column]) >= _HUGE)
        text = f"far outside of the {self.name}, {ranges}{hint}"
        return Fault(row, column, _shown(rows[row], columns), text, is_no_data)

    def swap_hint(self, x: Array) -> str:
        """What to add to the fault of a row with inputs `x` (d,) that is plausible if x and y are swapped."""
        places = list(self.places or range(len(self.names)))
        if len(places) != 2:
            return ""
        swapped = np.append(x, self.high[-1])[np.newaxis]
        swapped[:, places] = swapped[:, places[::-1]]
        if self.is_far(swapped)[0, places].any():
            return ""
        if not self.places:
            return f"; perhaps {' and '.join(self.names)} are swapped"
        is_geographic = self.coordinates is None or self.coordinates.is_geographic
        return _SWAPPED_DEGREES if is_geographic else _SWAPPED_METRES

    def _user_bounds(self) -> tuple[Array, Array]:
        """Least and greatest values (k,), as the user gives them."""
        if self.coordinates is None:
            return self.low, self.high
        low, high = self.coordinates.box_to_user(self.low[np.newaxis, :-1], self.high[np.newaxis, :-1])
        return np.append(low[0], self.low[-1]), np.append(high[0], self.high[-1])


def _reach_of_spikes(y: Array, low: float, high: float, most: float) -> float:
    """How far from the middle, low to high, targets `y` (n,) are spikes; infinite if there are none, or too many."""
    distance, reach = np.maximum(low - y, y - high), max(_SPIKE_FACTOR * (high - low), abs(low), abs(high))
    is_spike = distance > reach
    if not 0 < is_spike.sum() <= most:
        return inf
    return reach if distance[is_spike].min() > _APART * distance[~is_spike].max() else inf


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


def first_out_of_area(X: Array, known: Coordinates | None) -> Fault | None:
    """The first row of inputs (n, d) of the user that is far from the area of use of a projected system; None without.

    A place that may be in degrees is one: near the origin of such a system there is no ground that it is used for.

    known : coordinates of a new map, None if it has no system.
    """
    area = None if known is None or known.is_geographic else require_pyproj().CRS(known.user).area_of_use
    if known is None or area is None:
        return None
    west, south, east, north = area.bounds
    size = np.array([(east - west) % 360.0 or 360.0, north - south])
    middle, most = np.array([west, south]) + size / 2.0, size / 2.0 + np.maximum(size, _LEAST_MARGIN)

    def is_out(places: Array) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):  # a place may be infinite
            offset = np.column_stack(known.transformed(*places.T)) - middle
            offset[:, 0] = (offset[:, 0] + 180.0) % 360.0 - 180.0
        return np.asarray(~(np.abs(offset) <= most).all(axis=1))

    places = X[:, list(known.columns)]
    may_be_degrees = np.asarray((np.abs(places) <= LARGEST_DEGREES).all(axis=1))
    if not (is_wrong := may_be_degrees | is_out(places)).any():
        return None
    row = int(np.argmax(is_wrong))
    text = f"far from where {known.name} is used, longitude {west:g} to {east:g} and latitude {south:g} to {north:g}"
    if may_be_degrees[row]:
        text = f"longitude and latitude, it seems, and {known.name} is in other units; use --crs EPSG:4326"
    elif not is_out(places[row : row + 1, ::-1])[0]:
        text += _SWAPPED_METRES
    return Fault(row, known.columns[0], _shown(X[row], known.columns), text)


def _places(low: Array, high: Array, names: Sequence[str], known: Coordinates | None) -> list[int]:
    """The columns of x and y, or of longitude and latitude by their names if the bounds (k,) can be degrees."""
    if known is not None:
        return list(known.columns)
    columns = list(named_degrees(names) or ())
    return columns if (np.maximum(np.abs(low), np.abs(high))[columns] <= LARGEST_DEGREES[: len(columns)]).all() else []


def _shown(row: Array, columns: Sequence[int]) -> str:
    return ", ".join(f"{row[column]:.15g}" for column in columns)


def _in_metres(rows: Array, known: Coordinates | None) -> Array:
    """Rows (n, k) of the user with x and y in metres, infinite where the system has no place."""
    return rows if known is None else np.column_stack([known.places(rows[:, :-1]), rows[:, -1]])
