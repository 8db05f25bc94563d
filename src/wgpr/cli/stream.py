"""`wgpr stream`: rows of a pipe are learned and queries are answered, in the order in which they come.

A line is CSV or JSON. A row has all inputs and the target; without the target it is a query.
"""

import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from math import isnan
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, format_count, inform, interruptible, warn
from wgpr.cli.learn import announce_columns, require_online, require_weights
from wgpr.cli.saving import MapWriter, map_writer
from wgpr.cli.settings import make_estimator, read_configuration
from wgpr.estimators.base import LARGEST, LEAST_WEIGHT, OnlineRegressor
from wgpr.io.grids import input_names, target_name
from wgpr.io.known_range import MIN_KNOWN, KnownRange
from wgpr.io.maps import load
from wgpr.io.rows import ANSWER, Forecasts, answer, n_seen
from wgpr.io.sources import number as parse_number

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20


def stream(
    map_file: opt.MapFile,
    x: opt.X = "",
    y: opt.Y = "",
    weight: opt.Weight = "",
    method: opt.Method = "",
    setting: opt.Settings = [],  # noqa: B006
    config: opt.Config = None,
    level: opt.Level = 0.95,
    save_every: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Time between two savings.")] = 60.0,
    report_every: Annotated[int, typer.Option(metavar="ROWS", min=1, help="Rows between two reports.")] = 1000,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a line that would be left out.")] = False,
    force: opt.Force = False,
    nodata: opt.NoData = [],  # noqa: B006
) -> None:
    """Learn rows of standard input, and answer queries on standard output.

    A line is CSV (inputs, then target) or JSON: `{"lon": 1, "lat": 2, "depth": 3}`, or `{"x": [1, 2], "y": 3}`. A line
    without target is a query, and is answered at once with mean, std, lower, upper and model. Each row is predicted
    before it is learned; the scores of these forecasts are reported on standard error. Lines that cannot be read, or
    are far outside of what is known, are reported and left out. The map is saved every minute, at the end, and on
    Ctrl-C. If it does not exist, a new one is started.

    Example: `tail -n +1 -f sonar.csv | wgpr stream lake.map --x east,north --y depth`
    """
    half_width, inputs, configuration = opt.interval_half_width(level), opt.split_names(x), read_configuration(config)
    nodata = nodata or np.atleast_1d(configuration.table.get("nodata", [])).tolist()
    with map_writer(map_file) as writer:
        if map_file.exists():
            if method or setting:
                raise UsageError(f"{map_file} exists and keeps its settings; leave out --method and --set")
            model = load(map_file)
            if inputs and len(inputs) != model.n_features_in_:
                raise UsageError(f"--x must name the {model.n_features_in_} inputs of {map_file}; got {x}")
            parser = LineParser(inputs or input_names(model), y or target_name(model), nodata, weight)
        else:
            model = make_estimator(configuration, method, setting)
            inform(f"{map_file} does not exist yet; a new map is started")
            parser = LineParser(inputs or configuration.x, y or configuration.y, nodata, weight)
        require_online(model)
        require_weights(model, weight)
        session = StreamSession(model, parser, half_width, report_every)
        run_stream(session, sys.stdin.fileno(), writer, save_every=save_every, strict=strict, force=force)


def run_stream(
    session: "StreamSession", descriptor: int, writer: MapWriter, *, save_every: float, strict: bool, force: bool
) -> None:
    """Process the lines of a pipe until it ends or is interrupted; save every `save_every` seconds and at the end."""
    n_saved, saved_at = 0, time.monotonic()
    with interruptible():
        try:
            for lines in _parse_lines(session, descriptor, strict, force):
                for text in session.process(lines):
                    sys.stdout.write(text + "\n")
                sys.stdout.flush()
                if session.n_rows > n_saved and time.monotonic() > saved_at + save_every:
                    writer.save(session.model, silent=True)
                    n_saved, saved_at = session.n_rows, time.monotonic()
        except KeyboardInterrupt:
            inform("interrupted")
        finally:
            session.report()
            if session.n_rows:
                writer.save(session.model)


def _parse_lines(session: "StreamSession", descriptor: int, strict: bool, force: bool) -> Iterator[list["Line"]]:
    """The lines of a pipe, in lists as they arrive. Wrong ones are reported, or stop the stream if it is `strict`."""
    numbers = count(1)
    for texts in read_lines(descriptor):
        lines: list[Line] = []
        for text, number in zip(texts, numbers, strict=False):
            try:
                line = session.parser.parse(text)
                if line is not None and line.y is not None and not force:
                    session.check(line)
            except LineError as error:
                if strict:
                    yield lines
                    raise LineError(f"standard input, line {number} {error}; correct it") from error
                inform(f"standard input, line {number} {error}; it is left out")
            else:
                lines += [line] if line is not None else []
        yield lines


def read_lines(descriptor: int) -> Iterator[list[str]]:
    """Lines of a pipe in lists, as soon as they are there. Of a line that is too long only the beginning is kept."""
    rest = b""
    while piece := os.read(descriptor, _CHUNK_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[: _LONGEST_LINE + 1]
        if lines:
            yield [line.decode("utf-8", errors="replace") for line in lines]
    if rest:
        yield [rest.decode("utf-8", errors="replace")]


class LineError(ValueError):
    """A line that is neither a row nor a query. The message follows the words "line 3"."""


class Line(NamedTuple):
    """x : inputs; y : target, None in a query; is_json : how it was written; id : to be sent back with the answer.

    weight : of a row, one if there is no column of weights.
    """

    x: list[float]
    y: float | None
    is_json: bool = False
    id: Any = None
    weight: float = 1.0


class LineParser:
    """Parses lines of text.

    inputs, target : names of the columns; those that are not given are taken from the first line.
    weight : name of the column of weights, empty if there is none.
    """

    def __init__(
        self, inputs: Sequence[str] | None, target: str | None, nodata: Sequence[float] = (), weight: str = ""
    ) -> None:
        self.weight = weight
        self.given = list(inputs or ()), target
        self.inputs, self.target = self.given
        self._header: list[str] = []
        self._nodata = frozenset(nodata)
        self._has_warned = False

    def parse(self, text: str) -> Line | None:
        """A row or a query; None for a header, a comment, a blank line, or a line with a number for no data.

        A line with an error does not change the names.
        """
        text = text.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            return None
        before = self.inputs, self.target, self._header
        try:
            content = _read_json(text) if text.startswith("{") else self._read_csv(text)
            line = None if content is None else self._line(content, is_json=text.startswith("{"))
        except LineError:
            self.inputs, self.target, self._header = before
            raise
        return None if line is None or self._nodata.intersection((*line.x, line.y)) else line

    def _read_csv(self, text: str) -> dict[str, Any] | None:
        """Cells by name; None for a header."""
        cells = _split_cells(text)
        if not self._header and not any(cell and parse_number(cell, ".") is not None for cell in cells):
            self._read_header(cells)
            return None
        names = self._header or self._names_of(len(cells))
        if not len(names) - 1 - bool(self.weight) <= len(cells) <= len(names):  # a query may leave out the last cells
            raise LineError(f"has {len(cells)} cells instead of {len(names)}: {', '.join(names)} (see --x and --y)")
        return dict(zip(names, [*cells, "", ""], strict=False))

    def _read_header(self, names: list[str]) -> None:
        self._choose_columns(names)
        rest = [name for name in names if name not in (*self.inputs, self.weight)]
        self.target = self.target or (rest[0] if len(rest) == 1 else None)
        if len(set(names)) < len(names):
            raise LineError("is a header that has a name twice")
        if missing := {*self.inputs, *filter(None, [self.weight])} - set(names):
            raise LineError(f"is a header without {', '.join(sorted(missing))}")
        self._header = names
        self._warn_without_target(names)

    def _names_of(self, n_cells: int) -> list[str]:
        """Names of the cells if there is no header: numbers if the user has given numbers."""
        self._choose_columns([f"x{place + 1}" for place in range(n_cells - bool(self.weight))])
        chosen = [*self.inputs, self.target or "y", *filter(None, [self.weight])]
        if not all(name.isdecimal() for name in chosen):
            return chosen
        return [str(number) for number in range(1, max(n_cells, *map(int, chosen)) + 1)]

    def _choose_columns(self, names: list[str]) -> None:
        """By default the last column is the target, and the others are the inputs."""
        if not self.inputs:
            names = [name for name in names if name != self.weight]
            if len(names) < 2:
                raise LineError("has one cell; a row needs inputs and a target")
            if len(names) > 3:
                raise UsageError(f"name inputs and target with --x and --y; there are {', '.join(names)}")
            self.target = self.target or names[-1]
            self.inputs = [name for name in names if name != self.target]

    def _warn_without_target(self, names: Iterable[str]) -> None:
        """Say, once, that lines with these names are queries."""
        target = self.target or "y"
        if target in names or self._has_warned:
            return
        self._has_warned = True
        warn(
            f"standard input has no column {target} (it has {', '.join(names)}): lines without it are queries, and "
            "none of them is learned; name the target with --y"
        )

    def _line(self, content: dict[str, Any], *, is_json: bool) -> Line:
        if isinstance(content.get("x"), list) and "x" not in self.inputs:  # {"x": [1, 2], "y": 3}
            n_cells = len(content["x"]) + 1 + bool(self.weight)
            names = [name for name in self._names_of(n_cells) if name != self.weight]
            if len(content["x"]) != len(names) - 1:
                raise LineError(f"has {len(content['x'])} inputs instead of {len(names) - 1}: {', '.join(names[:-1])}")
            content |= dict(zip(names, [*content["x"], content.get("y")], strict=True))
        self._choose_columns([name for name in content if name != "id"])
        if is_json and {*content} - {*self.inputs, self.weight, "id", "x"}:
            self._warn_without_target([*content])
        x, y = [_parse_number(name, content.get(name)) for name in self.inputs], content.get(self.target or "y")
        target = None if y in (None, "") else _parse_number(self.target or "y", y)
        weight = 1.0
        if self.weight and target is not None:
            weight = _parse_number(self.weight, content.get(self.weight))
            if not LEAST_WEIGHT <= weight <= 1.0 / LEAST_WEIGHT:
                raise LineError(f"has {weight:g} as {self.weight}, which is no weight")
        return Line(x, target, is_json, content.get("id"), weight)


def _read_json(text: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"is not JSON ({error})") from error


def _split_cells(text: str) -> list[str]:
    if len(text) > _LONGEST_LINE:
        raise LineError(f"is longer than {_LONGEST_LINE:,} characters")
    separator = next((mark for mark in "\t;" if mark in text), ",")
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator, strict=True))]
    except csv.Error as error:
        raise LineError(f"cannot be read ({error})") from error


def _parse_number(name: str, value: Any) -> float:
    value = "" if value is None else value
    number = parse_number(value, ".") if isinstance(value, int | float | str) else None
    if number is None:
        raise LineError(f"has {str(value)[:40]!r} as {name}, which is not a number")
    if isnan(number):
        raise LineError(f"has no {name}" + (f": {value} is not a number" if value != "" else ""))
    if abs(number) > LARGEST:
        raise LineError(f"has {str(value)[:20]} as {name}, which is too large")
    return number


class StreamSession:
    """Predicts and learns rows, and answers queries. n_rows : learned so far; scores : of the predictions.

    The scores do not depend on how many lines arrive at once.
    """

    def __init__(self, model: OnlineRegressor, parser: LineParser, half_width: float, report_every: int) -> None:
        self.model, self.parser, self._half_width, self._report_every = model, parser, half_width, report_every
        self.n_rows, self.n_answers, self._forecasts = 0, 0, Forecasts()
        self.scores = self._forecasts.scores
        self._n_known = n_seen(model)
        self._known = KnownRange.of_map(model) if self._n_known else None

    def check(self, line: Line) -> None:
        """Raise a LineError for a row far outside of what is known. Other rows extend what is known."""
        row = np.array([*line.x, line.y], dtype=float)
        known = self._known or KnownRange.of_bounds(row, row)
        is_far = known.is_far(row[None])[0]
        if self._n_known >= MIN_KNOWN and is_far.any():
            column = int(np.argmax(is_far))
            name = [*self.parser.inputs, self.parser.target][column]
            raise LineError(f"has {row[column]:.15g} as {name}, {known.describe(column)} (--force learns it)")
        self._known = KnownRange.of_bounds(np.minimum(known.low, row), np.maximum(known.high, row))
        self._n_known += 1

    def process(self, lines: Sequence[Line]) -> Iterator[str]:
        """Learn the rows, and yield an answer to each query."""
        for is_query, group in groupby(lines, key=lambda line: line.y is None):
            if is_query:
                yield from self._answer(list(group))
            else:
                self._learn(list(group))

    def report(self) -> None:
        """Print the scores so far."""
        text = f"{format_count(self.n_rows, 'row')} learned, {format_count(self.n_answers, 'query')} answered"
        if self.scores.n_rows:
            scores, models = self.scores.result(), format_count(self.model.n_models_, "model")
            text += f"; {models}; forecasts: RMSE {scores.rmse:.4g}, NLPD {scores.nlpd:.4g}, "
            text += f"{scores.coverage:.1%} within the 95 % interval"
        inform(text)

    def _learn(self, rows: list[Line]) -> None:
        if not self.n_rows and not n_seen(self.model):
            weight = self.parser.weight
            announce_columns([*self._columns, *filter(None, [weight])], *self.parser.given, has_weights=bool(weight))
        while rows:
            n_rows = self._report_every - self.n_rows % self._report_every
            part, rows = rows[:n_rows], rows[n_rows:]
            values = np.array([[*row.x, row.y] for row in part], dtype=float)
            weights = np.array([row.weight for row in part]) if self.parser.weight else None
            self._forecasts.learn(self.model, values, weights, self._columns)
            self.n_rows += len(part)
            if self.n_rows % self._report_every == 0:
                self.report()

    @property
    def _columns(self) -> list[str]:
        return [*self.parser.inputs, self.parser.target or "y"]

    def _answer(self, queries: list[Line]) -> Iterator[str]:
        self.n_answers += len(queries)
        if not n_seen(self.model):
            yield from (_format_answer(query, ()) for query in queries)
            return
        columns = answer(self.model, np.array([query.x for query in queries]), self._half_width)
        yield from map(_format_answer, queries, zip(*(column.tolist() for column in columns), strict=True))


def _format_answer(query: Line, values: Sequence[Any]) -> str:
    """CSV or JSON, like the query; without values if nothing is learned yet."""
    if not query.is_json:
        return ",".join(map(str, values or [""] * len(ANSWER)))
    content = dict(zip(ANSWER, values, strict=True)) if values else {"error": "nothing is learned yet"}
    return json.dumps(content if query.id is None else {"id": query.id, **content})
