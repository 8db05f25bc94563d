"""What a stream does with its lines: predict and learn rows, and answer queries."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

import numpy as np

from wgpr.cli.columns import are_other_places
from wgpr.cli.console import Interruptions, UsageError, format_count, inform, warn
from wgpr.cli.georeference import choose_crs
from wgpr.cli.learn import announce_columns, require_online, require_weights
from wgpr.cli.lines import LeftOut, Line, LineError, LineParser, format_answer
from wgpr.cli.repetition import Fingerprints, Replay, note_tables
from wgpr.cli.saving import MapWriter
from wgpr.cli.settings import make_estimator
from wgpr.estimators.base import OnlineRegressor
from wgpr.gp.linalg import Array
from wgpr.io.codec import learned_tables
from wgpr.io.coordinates import Coordinates, coordinates
from wgpr.io.journal import JournalFailedError
from wgpr.io.known_range import MIN_KNOWN, KnownRange, first_out_of_area, first_outside
from wgpr.io.rows import Forecasts, Offset, answer, n_seen
from wgpr.io.tables import TableError
from wgpr.io.track import COLUMNS

# Lines that are checked together.
_MOST_TOGETHER = 128

# The number of a line that is left out, and why.
LineFault = tuple[int, LineError]


@dataclass(frozen=True)
class StreamOptions:
    """What the user says about the columns of a stream and, for a new map, about its settings; empty if nothing.

    is_log : rows come from an instrument, which gives longitude, latitude and depth.
    crs : coordinate reference system of a new map; force : learn what is doubtful.
    """

    inputs: Sequence[str]
    target: str
    weight: str
    nodata: Sequence[float]
    method: str
    settings: Sequence[str]
    is_log: bool = False
    crs: str = ""
    force: bool = False

    def new_estimator(self) -> OnlineRegressor:
        model = make_estimator(self.method or "wgpr", self.settings)
        require_online(model)
        require_weights(model, self.weight)
        return cast(OnlineRegressor, model)

    def parser_of_new_map(self) -> LineParser:
        inputs, target = self.inputs, self.target
        if self.is_log:
            inputs, target = inputs or COLUMNS[:2], target or COLUMNS[2]
        return LineParser(inputs, target, self.nodata, self.weight, needs_target=bool(self.target))

    def parser_of_map(self, name: str, inputs: Sequence[str], target: str, weight: str = "") -> LineParser:
        """A parser for a map with these columns, whose names in the stream may be others."""
        if self.inputs and len(self.inputs) != len(inputs):
            raise UsageError(f"--x must name the {len(inputs)} inputs of {name}; got {','.join(self.inputs)}")
        if self.inputs and list(self.inputs) != list(inputs):
            said, own = ", ".join(self.inputs), ", ".join(inputs)
            is_turned = sorted(self.inputs) == sorted(inputs)
            if (is_turned or are_other_places(self.inputs, inputs)) and not self.force:
                remedy = "name them in this order" if is_turned else "convert the data"
                raise UsageError(f"--x {said}: {name} has {own}; {remedy}, or learn them as they are (--force)")
            inform(f"{said} are learned as {own} of {name}")
        columns, weight = (self.inputs or inputs, self.target or target), self.weight or weight
        return LineParser(*columns, self.nodata, weight, needs_target=bool(self.target))


class Session(ABC):
    """Learns the rows of a stream, here or elsewhere. n_rows : taken so far; n_answers : queries answered.

    n_repeated : rows that were learned before the stream, and are left out. tables : what the map has noted of such.
    left_out : lines that are not learned.
    force : rows that are far outside of what is known, or were learned before, are learned too.
    is_stopping : what has arrived is still taken, and nothing more is waited for. interruptions : requests to do so.
    """

    def __init__(self, parser: LineParser, report_every: int, tables: Sequence[str]) -> None:
        self.parser, self._report_every = parser, report_every
        self.n_rows = self.n_answers = self.n_repeated = 0
        self.left_out, self.force, self.is_stopping = LeftOut(), False, False
        self.interruptions = Interruptions()
        self._known: KnownRange | None = None  # of the values of so many rows
        self._n_known = 0
        self._coordinates: Coordinates | None = None
        self._replay, self._passed, self._told = Replay(tables), Fingerprints(), ""
        self._has_warned = False

    def stop(self) -> None:
        """After an interruption: take what has arrived, and wait for nothing more."""
        self.is_stopping = True
        self.interruptions.accept()
        with self.interruptions.allowed():  # it may be that nobody reads messages
            inform("interrupted")

    def good_lines(self, lines: Sequence[Line], faults: Sequence[LineFault] = ()) -> list[Line]:
        """The lines that are learned or answered. Of the others it is told that they are left out.

        faults : of other lines that came with these.
        """
        lines = lines if self.force else self._new_lines(lines)
        good, far = self._checked(lines)
        for number, error in sorted([*faults, *far], key=lambda fault: fault[0]):
            self.left_out.add(number, error)
        self._note_rows(lines)
        return good

    def _new_lines(self, lines: Sequence[Line]) -> Sequence[Line]:
        """The lines without rows that the map has learned before, which is told when all of these have come."""
        known, new = self._replay.split(lines)
        self._passed.add_lines(known)
        if not self._replay.is_amid:
            self._tell_known()
        elif any(line.y is not None for line in new):
            self._tell_known("; those that follow are not as before")
        return new

    def _tell_known(self, what_follows: str = "") -> None:
        """Say how many rows were known, if that is not told."""
        if self._replay.n_known > self.n_repeated:
            self.n_repeated = self._replay.n_known
            rows = format_count(self.n_repeated, "row")
            inform(f"{rows} were known already, and were left out (--force learns them again){what_follows}")

    def rest(self) -> list[Line]:
        """When the stream ends: rows that are held, because an earlier one begins with them, are new after all."""
        self._tell_known()
        if self._replay.is_amid and (held := self._replay.held):
            fault = f"{format_count(len(held), 'row')} at the end may be known already too, and were left out"
            raise TableError(f"{self.left_out.place}: {fault}; to learn them, send them alone")
        return self.good_lines(self._replay.released())

    def _note_rows(self, lines: Sequence[Line]) -> None:
        """Note which rows of the stream have come so far, so that a map can know them if they come again."""
        self._passed.add_lines(lines)

    def _checked(self, lines: Sequence[Line]) -> tuple[list[Line], list[LineFault]]:
        """The lines at places that the map can have, without rows far outside of what is known; faults of the others.

        What is known depends on the rows before, so a fault among lines that are checked together is one for sure only
        when they are one line.
        """
        good: list[Line] = []
        faults: list[LineFault] = []
        n_together = 1
        while lines:
            part, error = lines[:n_together], self._fault(lines[:n_together])
            if error is not None and len(part) > 1:
                n_together = len(part) // 2
                continue
            if error is None:
                good += part
            else:
                faults.append((part[0].number, error))
            lines = lines[len(part) :]
            # Until the values have a scale, a row is judged after the one before it.
            has_scale = self.force or (self._known is not None and bool(np.isfinite(self._known.reach).all()))
            n_together = min(2 * n_together, _MOST_TOGETHER) if has_scale else 1
        return good, faults

    def _fault(self, lines: Sequence[Line]) -> LineError | None:
        """What is wrong with the first bad line. Without one, the rows extend what is known."""
        outside = first_outside(np.array([line.x for line in lines], dtype=float), self._coordinates, self._known)
        if outside is not None:
            return LineError(f"has {outside.values}, which is {outside.text}")
        rows = np.array([[*line.x, line.y] for line in lines if line.y is not None], dtype=float)
        if self.force or not len(rows):
            return None
        known = self._known or KnownRange.of_rows(rows[:1], self._coordinates, self.parser.inputs)
        n_first = max(0, MIN_KNOWN - self._n_known)
        fault = first_out_of_area(rows[:n_first, :-1], self._coordinates) if n_first else None
        if fault is None and len(rows) > n_first:
            fault = known.first_far(rows[n_first:])
        if fault is not None:
            names = [*self.parser.inputs, self.parser.target]
            name = ", ".join(str(names[column]) for column in known.columns_with(fault.column))
            return LineError(f"has {fault.values} as {name}, {fault.text} (--force learns it)")
        self._known, self._n_known = known.including(rows), self._n_known + len(rows)
        return None

    def process(self, lines: Sequence[Line]) -> Iterator[str]:
        """Learn the rows, and yield an answer to each query."""
        for is_query, group in groupby(lines, key=lambda line: line.y is None):
            if is_query:
                queries = list(group)
                self.n_answers += len(queries)
                yield from self._answers(queries)
            else:
                self._learn(list(group))

    def check_result(self) -> None:
        """Raise an error if a stream has ended and no line of it was of use."""
        if self.left_out.n_lines and not (self.n_rows or self.n_answers or self.n_repeated):
            lines, were = format_count(self.left_out.n_lines, "line"), "was" if self.left_out.n_lines == 1 else "were"
            fault = f"nothing was learned, because {lines} {were} left out"
            raise TableError(f"{self.left_out.place}: {fault}; correct them")

    @abstractmethod
    def _learn(self, rows: list[Line]) -> None: ...

    @abstractmethod
    def _answers(self, queries: list[Line]) -> Iterator[str]: ...

    @abstractmethod
    def _progress(self) -> str:
        """What was done so far."""

    def report(self) -> None:
        """Print what was done so far, unless nothing was since the last report."""
        if (text := self._progress()) != self._told:
            inform(text)
        self._told = text

    def warn_of_offset(self, offset: Offset | None) -> None:
        """Warn, once, that rows at known places are off by a constant."""
        if offset is not None and not self._has_warned:
            self._has_warned = True
            fault = offset.told(self.columns[-1], least="at least ")
            remedy = "if that is a tide, a datum or a sensor, learn them into a map of their own and merge with --align"
            warn(f"{fault}; the rows are learned as they are; {remedy}")

    def save_if_due(self) -> None:  # noqa: B027 (a service does so itself)
        """Save what is learned, from time to time."""

    def catch_up(self) -> None:  # noqa: B027
        """After an interruption: learn the rows that were taken before it."""

    def finish(self) -> None:
        """Report and save what is learned."""
        self.report()

    @property
    def columns(self) -> list[str]:
        """Names of inputs and target."""
        return [*self.parser.inputs, self.parser.target or "y"]

    def _announce(self) -> None:
        """Say which columns a new map learns."""
        weight = self.parser.weight
        announce_columns([*self.columns, *filter(None, [weight])], *self.parser.given, has_weights=bool(weight))


class StreamSession(Session):
    """Learns rows into a model of its own. scores : of the predictions of rows before these were learned.

    The scores do not depend on how many lines arrive at once.

    writer : of the map and its journal; save_every : seconds between two savings.
    crs : coordinate reference system of a new map, as the user says.
    """

    def __init__(
        self,
        model: OnlineRegressor,
        parser: LineParser,
        half_width: float,
        report_every: int,
        writer: MapWriter,
        save_every: float = 60.0,
        crs: str = "",
    ) -> None:
        super().__init__(parser, report_every, learned_tables(model))
        self._known, self._n_known = KnownRange.of_map(model) if n_seen(model) else None, n_seen(model)
        self.model, self._half_width, self._forecasts = model, half_width, Forecasts()
        self.scores = self._forecasts.scores
        self._writer, self._save_every = writer, save_every
        self._n_saved, self._saved_at = 0, time.monotonic()
        self._crs, self._is_begun, self._coordinates = crs, n_seen(model) > 0, coordinates(model)
        self._noted: list[str] = []

    def _checked(self, lines: Sequence[Line]) -> tuple[list[Line], list[LineFault]]:
        """The first row of a new map says which coordinates it has. Queries before it can be anywhere."""
        if self._is_begun:
            return super()._checked(lines)
        first = next((place for place, line in enumerate(lines) if line.y is not None), None)
        if first is None:
            return list(lines), []
        choose_crs(self.model, self._crs, "", self.parser.inputs, np.array([lines[first].x], dtype=float))
        self._is_begun, self._coordinates = True, coordinates(self.model)
        good, faults = super()._checked(lines[first:])
        return [*lines[:first], *good], faults

    def process(self, lines: Sequence[Line]) -> Iterator[str]:
        """Learn the rows, which are written to the journal at once, and yield an answer to each query."""
        rows = [line for line in lines if line.y is not None]
        if rows:
            values, weights = self._arrays(rows)
            kept = values if weights is None else np.column_stack([values, weights])
            tables = self._passed.noted(self._passed.n_rows)
            self._writer.keep(kept, self.model, self.columns, has_weights=weights is not None, tables=tables)
        yield from super().process(lines)

    def _progress(self) -> str:
        text = f"{format_count(self.n_rows, 'row')} learned, {format_count(self.n_answers, 'query')} answered"
        if self.scores.n_rows:
            scores, models = self.scores.result(), format_count(self.model.n_models_, "model")
            text += f"; {models}; forecasts: RMSE {scores.rmse:.4g}, NLPD {scores.nlpd:.4g}, "
            text += f"{scores.coverage:.1%} within the 95 % interval"
        return text

    def save_if_due(self) -> None:
        if self.n_rows > self._n_saved and time.monotonic() > self._saved_at + self._save_every:
            try:
                self._save(is_last=False)
            except OSError as error:
                if isinstance(error, JournalFailedError):
                    raise
                warn(f"{error}; the rows are in the journal, and the map is saved later")
                self._saved_at = time.monotonic()

    def catch_up(self) -> None:
        n_before = n_seen(self.model)
        try:
            with self.interruptions.allowed():  # the rows stay in the journal
                self._writer.catch_up(self.model)
        finally:
            self.n_rows += n_seen(self.model) - n_before

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            if self.n_rows:
                self._save(is_last=True)
            elif not self._writer.has_map:
                inform("no rows were learned: no map is saved")

    def _save(self, *, is_last: bool) -> None:
        before, self._noted = self._noted, self._writer.kept_tables
        note_tables(self.model, self._noted, replaced=before)
        (self._writer.save if is_last else self._writer.checkpoint)(self.model)
        self._n_saved, self._saved_at = self.n_rows, time.monotonic()

    def _learn(self, rows: list[Line]) -> None:
        if not self.n_rows and not n_seen(self.model):
            self._announce()
        while rows:
            n_rows = self._report_every - self.n_rows % self._report_every
            part, rows = rows[:n_rows], rows[n_rows:]
            n_before = n_seen(self.model)
            try:
                with self.interruptions.allowed():  # the journal has the rows
                    self._forecasts.learn(self.model, *self._arrays(part), self.columns)
            finally:  # an interruption may come when they are just learned
                self.n_rows += n_seen(self.model) - n_before
            self.warn_of_offset(self._forecasts.offset)
            if self.n_rows % self._report_every == 0:
                self.report()

    def _arrays(self, rows: Sequence[Line]) -> tuple[Array, Array | None]:
        """Inputs and target (n, d + 1), and weights (n,) if there are any."""
        values = np.array([[*row.x, row.y] for row in rows], dtype=float)
        return values, np.array([row.weight for row in rows]) if self.parser.weight else None

    def _answers(self, queries: list[Line]) -> Iterator[str]:
        if not n_seen(self.model):
            yield from (format_answer(query, ()) for query in queries)
            return
        columns = answer(self.model, np.array([query.x for query in queries]), self._half_width)
        yield from map(format_answer, queries, zip(*(column.tolist() for column in columns), strict=True))
