"""Checks of rows before they are learned: values far outside of what is known, and tables that were learned before."""

from copy import copy
from dataclasses import replace
from math import ceil

import numpy as np

from wgpr.cli.console import warn
from wgpr.cli.repetition import MAX_HEAD, MIN_HEAD, Fingerprints, begins_alike
from wgpr.estimators.base import LARGEST, LEAST_WEIGHT, EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import coordinates
from wgpr.io.known_range import MIN_KNOWN, Fault, KnownRange, first_out_of_area, first_outside
from wgpr.io.rows import N_JUDGED, NO_ERRORS, Errors, errors_at_known_places, knows_rows_at_once, n_seen
from wgpr.io.tables import Chunk, TableError

_MAX_WARNINGS = 5
# Rows with the least, and with the greatest, values of a column that are kept of a chunk.
_N_EXTREMES = 50
# To see whether a file is off by a constant: most rows of a chunk that are predicted, most of a file that are judged,
# and how many rows it has then at first.
_MOST_FORECASTS, _MOST_JUDGED, _JUDGED_FIRST = 250, 800, 5000


class TableCheck:
    """Checks a table of inputs and target, chunk by chunk, before it is learned. n_rows : checked so far.

    For a new map, a place that is far from the others, or from where its system is used, is an error. So are inputs
    that are all zero and far from the others, as of a receiver without a fix. Other values far outside are warnings.
    For a map that has learned something, all of these are errors. Warnings are printed by `judge`.

    force : errors are warnings, but for values that cannot be learned.
    has_weights : whether the last column has weights; skip : rows that were left out before.
    """

    def __init__(self, model: EnsembleRegressor, *, force: bool, has_weights: bool = False, skip: int = 0) -> None:
        self.has_weights, self._skip, self._force = has_weights, skip, force
        self.n_rows, self._n_judged, self._n_warnings, self._warnings = 0, 0, 0, list[str]()
        self._known = KnownRange.of_map(model) if hasattr(model, "_state") else None
        self._coordinates = coordinates(model)
        self._learned: tuple[str, ...] = getattr(model, "_learned_tables", ())
        self._place, self._file, self._head = -1, "", Fingerprints()  # of the last chunk; the first rows of its file
        self._heads: dict[str, str] = {}  # files before it, by their first rows
        self._n_passed = 0
        self._tables: dict[int, tuple[int, Fingerprints]] = {}  # with the number of rows before each
        self._extremes: list[Chunk] = []  # rows with the least and greatest values of each chunk

    def add(self, chunk: Chunk) -> Chunk:
        """Check the next chunk and return it. Values of a new map are judged later, by `judge`."""
        rows, weights = self.split(chunk)
        if weights is not None:
            _check_weights(chunk, weights)
        check_size(chunk)
        self._check_places(chunk, rows[:, :-1])
        without_weights = replace(chunk, values=rows)
        is_new_file = chunk.place != self._place
        if is_new_file:
            self._begin_file(chunk)
            self._check_repetition(without_weights)
        self._check_copy(without_weights)
        if self._known is not None:
            for fault, n_more in self._known.faults(rows):
                self._tell_far(chunk, fault, f"{n_more:,}", is_place=fault.column in self._known.places, is_error=True)
            if is_new_file:
                self._check_sign(chunk, rows[:, -1], self._known.low[-1], self._known.high[-1])
        X = rows[:, :-1] if self._coordinates is None else self._coordinates.places(rows[:, :-1])
        order = np.argsort(np.column_stack([X, rows[:, -1]]), axis=0)
        ends = np.unique(np.concatenate([order[:_N_EXTREMES], order[-_N_EXTREMES:]]))
        self._extremes.append(replace(without_weights, values=rows[ends], lines=chunk.lines[ends]))
        self.n_rows += len(chunk.values)
        return chunk

    def add_of_pipe(self, chunk: Chunk) -> Chunk:
        """Check the next chunk, whose values are judged by itself, and return it."""
        self.judge(self.add(chunk).values)
        return chunk

    def judge(self, sample: Array) -> None:
        """Check the values of all chunks that were added, by rows (n, k) that represent these; for a map that has
        learned something, only targets, because the others were checked by what it knows.

        A track moves on, so that its first rows say little about the others. Prints the warnings.
        """
        n_rows, self._n_judged = self.n_rows - self._n_judged, self.n_rows
        extremes, self._extremes = [self._doubtful(chunk) for chunk in self._extremes], []
        rows = sample[:, :-1] if self.has_weights else sample
        if extremes and (self._known is None or len(rows) >= MIN_KNOWN):
            names, ends = extremes[0].names[: rows.shape[1] - 1], [chunk.values[:, -1] for chunk in extremes]
            known = KnownRange.of_sample(rows, names, self._coordinates, np.concatenate(ends), n_rows)
            for chunk in extremes:
                if self._known is None:
                    self._check_fix(chunk, known)
                for fault, n_more in known.faults(chunk.values):
                    if self._known is not None and fault.column < len(known.names):
                        continue
                    count = f"at least {n_more}" if n_more + 1 >= _N_EXTREMES else str(n_more)
                    is_place = fault.column in known.places
                    self._tell_far(chunk, fault, count, is_place=is_place, is_error=is_place)
        for chunk in extremes if self._known is None else ():
            if (outside := first_out_of_area(chunk.values[:, :-1], self._coordinates)) is not None:
                self._tell_far(chunk, outside, "0", is_place=True, is_error=True)
                break
        for warning in self._warnings[: max(_MAX_WARNINGS - self._n_warnings, 0)]:
            warn(warning)
        self._n_warnings, self._warnings = self._n_warnings + len(self._warnings), []

    def _doubtful(self, chunk: Chunk) -> Chunk:
        """The rows of a chunk without targets that are within what the map knows, or were told already."""
        if self._known is None:
            return chunk
        y, is_told = chunk.values[:, -1], self._known.is_far(chunk.values)[:, -1]
        is_known = (self._known.low[-1] <= y) & (y <= self._known.high[-1])
        is_left = ~is_known & ~is_told
        return replace(chunk, values=chunk.values[is_left], lines=chunk.lines[is_left])

    def _check_fix(self, chunk: Chunk, known: KnownRange) -> None:
        """Tell the first row whose inputs, two or more, are all zero and far from the others."""
        is_zero = ~chunk.values[:, :-1].any(axis=1) & known.is_far(chunk.values)[:, :-1].any(axis=1)
        if len(known.names) > 1 and not known.places and is_zero.any():
            place = f"{chunk.file}, line {chunk.lines[np.argmax(is_zero)]}"
            fault = "all inputs are 0, far from those of other rows, as of a receiver without a fix"
            remedy = "it is learned" if self._force else "leave it out, or learn it"
            self._tell(f"{place}: {fault}; {remedy} as it is (--force)", is_error=True)

    def _tell_far(self, chunk: Chunk, fault: Fault, n_more: str, *, is_place: bool, is_error: bool) -> None:
        """Tell a value far outside of what is known. n_more : others in the same column."""
        place = f"{chunk.file}, line {chunk.lines[fault.row]}, column {chunk.names[fault.column]!r}"
        more = f" (and {n_more} more)" if n_more != "0" else ""
        remedies = ["correct it", *([f"leave it out (--nodata {fault.values})"] if fault.is_no_data else [])]
        units = "" if is_place else "check the units, "
        if self._force:
            remedy = "it is learned as it is (--force)"
        elif is_error:
            remedy = f"{units}{', '.join(remedies)}, or learn it as it is (--force)"
        else:
            again = "fit again" if self._known is None else "update the map as it was before"
            remedy = f"it is learned as it is; if it is wrong, {units}{' or '.join(remedies)}, and {again}"
        self._tell(f"{place}: {fault.values} is {fault.text}{more}; {remedy}", is_error=is_error)

    def _tell(self, problem: str, *, is_error: bool) -> None:
        if is_error and not self._force:
            raise TableError(problem)
        self._warnings.append(problem)

    def split(self, chunk: Chunk) -> tuple[Array, Array | None]:
        """Inputs and target (n, d + 1) of a chunk, and its weights (n,) if it has any."""
        return (chunk.values[:, :-1], chunk.values[:, -1]) if self.has_weights else (chunk.values, None)

    def _check_repetition(self, chunk: Chunk) -> None:
        """Tell a file that begins with rows that were learned before."""
        if n_rows := begins_alike(chunk.values, self._learned):
            remedy = "leave out this file" if self.n_rows else f"leave these out (--skip {self._skip + n_rows})"
            fault = f"{chunk.file} begins with rows that the map has learned before, {n_rows:,} in all"
            remedy = "they are learned again (--force)" if self._force else f"{remedy} or learn them again (--force)"
            self._tell(f"{fault}; {remedy}", is_error=True)

    def _begin_file(self, chunk: Chunk) -> None:
        """Keep the first rows of the file before that of a chunk, if they are enough to tell it from others."""
        if self._head.n_rows >= MIN_HEAD:
            self._heads.setdefault(self._head.last, self._file)
        self._place, self._file, self._head = chunk.place, chunk.file, Fingerprints()

    def _check_copy(self, chunk: Chunk) -> None:
        """Tell a file that begins with the rows of a file before it. Its own first rows may come in several chunks."""
        for row in chunk.values[: MAX_HEAD - self._head.n_rows]:
            self._head.add(row[np.newaxis])
            if (other := self._heads.get(self._head.last)) is not None:
                again = "is named twice" if other == chunk.file else f"begins with rows that are in {other} too"
                remedy = "the rows are learned" if self._force else "leave out one of the two, or learn the rows"
                self._tell(f"{chunk.file} {again}; {remedy} twice (--force)", is_error=True)

    def _check_sign(self, chunk: Chunk, y: Array, low: float, high: float) -> None:
        """Tell a file whose first targets (n,) are in the known range, from low to high, only with the other sign."""
        if len(y) >= MIN_KNOWN and low * high > 0 and (y * low < 0).all() and low <= -y.mean() <= high:
            name = chunk.names[len(chunk.names) - 1 - self.has_weights]
            fault = f"{chunk.file}: the first values of {name!r} have another sign than those of the map"
            remedy = "they are learned as they are; if that is wrong, correct them and update the map as it was before"
            self._tell(f"{fault}; {remedy}", is_error=False)

    def _check_places(self, chunk: Chunk, X: Array) -> None:
        if (fault := first_outside(X, self._coordinates, self._known)) is not None:
            remedy = "correct it; all rows must be in the system of the map, which is chosen by wgpr fit --crs"
            raise TableError(f"{told(chunk, fault)}; {remedy}")

    def passing(self, chunk: Chunk) -> Chunk:
        """Take the fingerprints of a chunk that is learned next, and return it."""
        _, table = self._tables.setdefault(chunk.place, (self._n_passed, Fingerprints()))
        table.add(self.split(chunk)[0])
        self._n_passed += len(chunk.values)
        return chunk

    def learned_tables(self, n_learned: int | None = None, least: int = MIN_HEAD) -> list[str]:
        """What a map notes that has learned the first `n_learned` rows, by default all that were passed."""
        n_rows = self._n_passed if n_learned is None else n_learned
        tables = self._tables.values()
        return [each for start, table in tables for each in table.noted(min(table.n_rows, n_rows - start), least)]


class EvenSample:
    """Some of the rows (n, k) of a table, evenly spaced, and no more than `most`. n_rows : of the table so far."""

    def __init__(self, n_columns: int, most: int) -> None:
        self._most, self._step, self.n_rows = most, 1, 0
        self.rows: Array = np.empty((0, n_columns))

    def add(self, rows: Array) -> None:
        self.rows = np.concatenate([self.rows, rows[-self.n_rows % self._step :: self._step]])
        self.n_rows += len(rows)
        while len(self.rows) > self._most:
            self.rows, self._step = self.rows[::2], 2 * self._step


class OffsetCheck:
    """Warns of files whose rows are off by a constant, at places that the map knew before it learned the file.

    A file is judged by some of its rows at such places: of all its length, and the latest of them; when it has ended,
    and before that each time that its rows have doubled. A map that begins with these files is young, so that more rows
    are judged together.
    """

    def __init__(self, model: EnsembleRegressor) -> None:
        self._model, self._is_young = model, not n_seen(model)
        self._place, self._file, self._target = -1, "", ""
        self._before: EnsembleRegressor | None = None  # the model before the file; None if the file is not judged
        self._errors, self._n_rows, self._n_judged = EvenSample(0, 0), 0, 0

    def look(self, chunk: Chunk, rows: Array) -> None:
        """Predict some rows (n, d + 1) of a chunk that is learned next, and judge its file if it is long enough."""
        if chunk.place != self._place:
            self.judge()
            self._place, self._file, self._target = chunk.place, chunk.file, chunk.names[rows.shape[1] - 1]
            self._before = copy(self._model) if n_seen(self._model) and knows_rows_at_once(self._model) else None
            self._errors, self._n_rows, self._n_judged = EvenSample(len(NO_ERRORS), _MOST_JUDGED), 0, 0
        if self._before is None:
            return
        self._errors.add(np.stack(errors_at_known_places(self._before, rows[:: ceil(len(rows) / _MOST_FORECASTS)]), 1))
        self._n_rows += len(rows)
        if self._n_rows >= max(_JUDGED_FIRST, 2 * self._n_judged):
            self.judge()

    def judge(self) -> None:
        """Judge the file by the rows that have come so far."""
        if self._before is None or self._n_judged == self._n_rows:
            return
        self._n_judged, errors = self._n_rows, Errors(*self._errors.rows.T)
        least = N_JUDGED if self._is_young else MIN_KNOWN
        offset = errors.offset(least) or errors.latest().offset(least)
        if offset is not None:
            self._before = None
            self._warn(f"{self._file}: {offset.told(self._target)}")

    def _warn(self, told: str) -> None:
        remedy = "correct the rows and update the map as it was before, or fit a map of them"
        if self._is_young:
            remedy = "correct the rows, or fit a map of each file"
        warn(f"{told}; if that is a tide, a datum, a unit or a sensor, {remedy} and merge with --align")


def told(chunk: Chunk, fault: Fault) -> str:
    """Where a place of a chunk is that cannot be right, and what it is."""
    return f"{chunk.file}, line {chunk.lines[fault.row]}: {fault.values} is {fault.text}"


def check_size(chunk: Chunk) -> None:
    """Raise an error for a value that no model can take."""
    is_too_large = np.abs(chunk.values) > LARGEST
    if is_too_large.any():
        row, column = np.argwhere(is_too_large)[0].tolist()
        place, value = f"{chunk.file}, line {chunk.lines[row]}", chunk.values[row, column]
        fault = f"column {chunk.names[column]!r}: {value:.15g} is beyond {LARGEST:g}"
        raise TableError(f"{place}, {fault}; correct it or rescale the column")


def _check_weights(chunk: Chunk, weights: Array) -> None:
    is_wrong = ~((weights >= LEAST_WEIGHT) & (weights <= 1.0 / LEAST_WEIGHT))
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise TableError(
            f"{chunk.file}, line {chunk.lines[row]}, column {chunk.names[-1]!r}: {weights[row]:.15g} is no weight; "
            f"a weight is between {LEAST_WEIGHT:g} and {1.0 / LEAST_WEIGHT:g}; leave out rows of no weight"
        )
