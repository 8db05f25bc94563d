"""`wgpr stream --to URL`: a service learns the rows and answers the queries."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import numpy as np

from wgpr.cli.console import UsageError, format_count, inform, warn
from wgpr.cli.georeference import choose_crs
from wgpr.cli.lines import STANDARD_INPUT, Line, LineError, LineParser, format_answer
from wgpr.cli.repetition import MIN_HEAD
from wgpr.cli.session import LineFault, Session, StreamOptions
from wgpr.cli.settings import parse_settings
from wgpr.client import Map, MapServiceError
from wgpr.estimators.regressors import WGPRegressor
from wgpr.io.coordinates import NONE, coordinates, coordinates_of, has_pyproj
from wgpr.io.rows import ANSWER, Offset

# Rows of a request. If one of them is refused, the service takes none of them.
_MOST_ROWS = 5000
# Seconds for each attempt to send the last rows of a stream that is interrupted, and for trying again.
_LAST_PATIENCE = 8.0


@contextmanager
def remote_session(
    url: str, token: str | None, said: StreamOptions, level: float, report_every: int
) -> Iterator["RemoteSession"]:
    """A session with a map of a service. If it does not exist, it is made with the first row."""
    try:
        service_map = Map(url, token)
    except ValueError as error:
        raise UsageError(f"--to: {error}") from error
    with service_map:
        summary = _summary(service_map)
        definition = None if summary is None else summary["definition"]
        if definition is None:
            inform(f"{url} does not exist yet; a new map is started")
            parser, tables = said.parser_of_new_map(), []
        else:
            columns = definition["inputs"], definition["target"], definition["weight"] or ""
            if said.weight and not columns[-1]:
                raise UsageError(f"{url} has no weights; leave out --weight")
            parser, tables = said.parser_of_map(url, *columns), service_map.learned_tables()
        session = RemoteSession(service_map, parser, level, report_every, tables)
        session.n_before = 0 if summary is None else summary["rows_seen"]
        if definition is None or said.method or said.settings:
            said.new_estimator()  # wrong settings are an error now
            crs = None if said.crs.lower() == NONE else said.crs or (definition or {}).get("crs")
            session.new_map = {"method": said.method or "wgpr", "settings": parse_settings(said.settings), "crs": crs}
            session.recognises_degrees = not said.crs
        named = (definition or {}).get("crs") or said.crs
        session.crs = named if has_pyproj() and named.lower() != NONE else ""
        if definition is not None and session.new_map:  # the service says whether it has these settings
            session.create(definition["inputs"], definition["target"], definition["weight"])
        yield session


def _summary(service_map: Map) -> dict[str, Any] | None:
    """What the service says of a map; None if it does not exist."""
    try:
        return service_map.info()
    except MapServiceError as error:
        if error.status == 404:
            return None
        raise


class RemoteSession(Session):
    """Sends rows to a map of a service. n_rows : that the service has on its disk.

    With the rows the service gets fingerprints of the stream so far, so that it knows the stream if it comes again.

    new_map : method, settings and coordinates of a map that is to be made; None if there is one.
    recognises_degrees : whether a new map gets the coordinates that the names of its columns say.
    crs : coordinate reference system of the map, empty if it is not known. n_before : rows of the map before these.
    """

    def __init__(
        self, service_map: Map, parser: LineParser, level: float, report_every: int, tables: Sequence[str]
    ) -> None:
        super().__init__(parser, report_every, tables)
        self._map, self._level = service_map, level
        self._not_passed: list[Line] = []
        self._unsent, self._n_together = list[Line](), _MOST_ROWS
        self._request = list[Line](), ""  # rows and key of the last one
        self._waits = False
        self.new_map: dict[str, Any] | None = None
        self.recognises_degrees, self.crs, self.n_before = False, "", 0

    def create(self, inputs: Sequence[str], target: str, weight: str | None) -> None:
        assert self.new_map is not None
        with self.interruptions.allowed():
            self._map.create(inputs, target, weight=weight, **self.new_map)
        self.new_map = None

    def _checked(self, lines: Sequence[Line]) -> tuple[list[Line], list[LineFault]]:
        """Rows far from where a projected system is used are left out here, before a map is made for them."""
        if self.crs and lines and self._coordinates is None:
            known, self.crs = coordinates_of(self.crs, self.parser.inputs), ""
            self._coordinates = None if known.is_geographic else known
        return super()._checked(lines)

    def _note_rows(self, lines: Sequence[Line]) -> None:
        """They are noted by the service with the next rows that are sent."""
        self._not_passed += [line for line in lines if line.y is not None]

    def process(self, lines: Sequence[Line]) -> Iterator[str]:
        """Send the rows, and yield an answer to each query. An answer knows all rows before it."""
        self._waits = any(line.y is None for line in lines)
        self._unsent = [line for line in lines if line.y is not None]
        yield from super().process(lines)

    def _progress(self) -> str:
        rows, queries = format_count(self.n_rows, "row"), format_count(self.n_answers, "query")
        return f"{rows} sent to {self._map.url}, {queries} answered"

    def _learn(self, rows: list[Line]) -> None:
        if self.new_map is not None:
            if self.recognises_degrees:
                self.new_map["crs"], self.recognises_degrees = _recognised(self.columns[:-1], rows), False
            self.create(self.columns[:-1], self.columns[-1], self.parser.weight or None)
            self._announce()
        last = rows[-1].number
        while part := [row for row in self._unsent[: self._n_together] if row.number <= last]:
            n_before = self.n_rows
            try:
                self._send(part)
            except MapServiceError as error:
                if error.line is None:
                    raise
                refused = self._unsent.pop(error.line - 1)
                self.left_out.add(refused.number, LineError(f"is refused by the service: {_fault(error)}"))
                self._n_together = max(1, error.line - 1)  # those before it are good, and others may be refused too
                continue
            self._n_together = min(2 * self._n_together, _MOST_ROWS)
            if self.n_rows // self._report_every > n_before // self._report_every:
                self.report()

    def _send(self, rows: list[Line]) -> None:
        """Send rows with the fingerprints of the stream up to them, after that of what the service knows of it."""
        lines, last = self._not_passed, rows[-1].number
        passed = self._passed.copy()
        passed.add_lines(line for line in lines if line.number <= last)
        stream = [self._passed.last, *passed.marks] if passed.n_rows >= MIN_HEAD else []
        X, y = np.array([row.x for row in rows]), np.array([row.y for row in rows], dtype=float)
        weights = np.array([row.weight for row in rows]) if self.parser.weight else None
        if rows != self._request[0]:
            self._request = rows, str(uuid4())
        key, waits = self._request[1], self._waits
        with self.interruptions.allowed():
            self._map.partial_fit(X, y, weights, wait=waits, force=self.force, stream=stream, key=key)
        self._passed, self._not_passed = passed, [line for line in lines if line.number > last]
        self._unsent = self._unsent[len(rows) :]
        self.n_rows += len(rows)
        self._tell_offset()

    def _tell_offset(self) -> None:
        """Warn if the service says that rows are off by a constant that came after those before this stream."""
        if (found := self._map.offset) is not None and found["n_rows"] >= self.n_before:
            self.warn_of_offset(Offset(found["amount"], found["std"], int(found["n_rows"])))

    def stop(self) -> None:
        super().stop()
        self._map.hasten(_LAST_PATIENCE)

    def catch_up(self) -> None:
        """Send the rows that were read. The request that was interrupted comes first, with its key."""
        if self._unsent:
            inform(f"still to be sent: {format_count(len(self._unsent), 'row')}; Ctrl-C gives up")
            self._waits, self._n_together = False, len(self._request[0]) or self._n_together
            self._learn(list(self._unsent))

    def finish(self) -> None:
        try:
            super().finish()
            if self.n_rows and not (self._unsent or self.is_stopping or sys.exc_info()[0]):
                self._map.hasten(_LAST_PATIENCE)
                # The rows are on the disk of the service: this is about a warning alone.
                with suppress(MapServiceError, KeyboardInterrupt), self.interruptions.allowed():
                    self._map.wait_until_learned(_LAST_PATIENCE)
                self._tell_offset()
        finally:
            if self._unsent:
                self._warn_of_unsent()

    def _warn_of_unsent(self) -> None:
        may_come_again = self.left_out.place == STANDARD_INPUT and not self.force
        # The service notes a stream with its first request that ends after at least MIN_HEAD rows.
        n_noted = self._passed.n_rows or len(self._request[0])
        remedy = f"; it has {format_count(self.n_rows, 'row')} before these" if self.n_rows else ""
        if may_come_again and n_noted >= MIN_HEAD:
            remedy = "; send the stream again: known rows are left out"
        warn(f"{format_count(len(self._unsent), 'row')} may not be at the service{remedy}")

    def _answers(self, queries: list[Line]) -> Iterator[str]:
        values = self._values(np.array([query.x for query in queries]))
        yield from map(format_answer, queries, values or [()] * len(queries))

    def _values(self, X: Any) -> list[tuple[Any, ...]]:
        """Values of each answer; none if nothing is learned yet."""
        if self.new_map is not None:
            return []
        try:
            with self.interruptions.allowed():
                self._map.wait_until_learned()
                columns = self._map.answer(X, level=self._level)
        except MapServiceError as error:
            if error.status == 409:  # nothing is learned yet
                return []
            raise
        return list(zip(*(columns[name].tolist() for name in ANSWER), strict=True))


def _recognised(inputs: Sequence[str], rows: list[Line]) -> str | None:
    """The coordinates of a new map, as `wgpr fit` chooses them."""
    example = WGPRegressor()
    choose_crs(example, "", "", inputs, np.array([row.x for row in rows]))
    known = coordinates(example)
    return None if known is None else known.name


def _fault(error: MapServiceError) -> str:
    """What is wrong with a value, without its place in the request. The remedy is told if it is --force."""
    fault, _, remedy = error.detail.removeprefix(f"line {error.line}, column {error.column!r}: ").rpartition("; ")
    return f"{error.column}: {fault}{' (--force learns it)' if 'force=true' in remedy else ''}"
