"""Lines of a stream: CSV or JSON. A row has all inputs and the target; without the target it is a query."""

import csv
import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from math import isnan
from typing import Any, NamedTuple

from wgpr.cli.console import Interruptions, UsageError, inform, warn
from wgpr.estimators.base import LARGEST, LEAST_WEIGHT
from wgpr.io.rows import ANSWER
from wgpr.io.sources import number as parse_number

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20
_MOST_COLUMNS = 20_000
# Seconds after which it is seen that another thread has received a signal.
_PATIENCE = 1.0
# Lines that are left out with a message of their own.
_MOST_TOLD = 5
# A place that lines are read from.
STANDARD_INPUT = "standard input"


def read_piece(descriptor: int, interruptions: Interruptions) -> bytes:
    """The next bytes of a pipe, none at its end. Waiting for them can be interrupted, so that none are lost."""
    with interruptions.allowed():
        if sys.platform != "win32":  # there nothing waits for a pipe without reading it
            while not select.select([descriptor], [], [], _PATIENCE)[0]:
                pass
    return os.read(descriptor, _CHUNK_BYTES)


def read_lines(descriptor: int, interruptions: Interruptions) -> Iterator[list[bytes]]:
    """Lines of a pipe in lists, as soon as they are there. Of a line that is too long only the beginning is kept."""
    rest = b""
    while piece := read_piece(descriptor, interruptions):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[: _LONGEST_LINE + 1]
        if lines:
            yield lines
    if rest:
        yield [rest]


class LineError(ValueError):
    """A line that is neither a row nor a query. The message follows the words "line 3"."""


class HeaderError(LineError):
    """A header without the columns of the map. The rows below it cannot be read, so the stream ends."""


class LeftOut:
    """Tells which lines are left out: the first ones one by one, and the number of all at the end.

    place : what the lines are of, such as standard input. n_lines : left out so far.
    """

    def __init__(self, place: str = STANDARD_INPUT) -> None:
        self.place, self.n_lines = place, 0

    def add(self, number: int, error: LineError) -> None:
        """Leave out a line, and say why."""
        self.n_lines += 1
        if self.n_lines <= _MOST_TOLD:
            inform(f"{self.place}, line {number} {error}; it is left out")
        elif self.n_lines == _MOST_TOLD + 1:
            inform("further such lines are only counted")

    def report(self) -> None:
        """Say how many lines were left out, if not all of them were told."""
        if self.n_lines > _MOST_TOLD:
            inform(f"{self.place}: {self.n_lines:,} lines were left out")


class Line(NamedTuple):
    """x : inputs; y : target, None in a query; is_json : how it was written; id : to be sent back with the answer.

    weight : of a row, one if there is no column of weights; number : of the line, from 1.
    """

    x: list[float]
    y: float | None
    is_json: bool = False
    id: Any = None
    weight: float = 1.0
    number: int = 0


class LineParser:
    """Parses lines of text.

    inputs, target : names of the columns; those that are not given are taken from the first line.
    weight : name of the column of weights, empty if there is none.
    needs_target : whether a header without the target is an error. Otherwise lines below it are queries.
    """

    def __init__(
        self,
        inputs: Sequence[str] | None,
        target: str | None,
        nodata: Sequence[float] = (),
        weight: str = "",
        *,
        needs_target: bool = False,
    ) -> None:
        self.weight, self._needs_target = weight, needs_target
        self.given = list(inputs or ()), target
        self.inputs, self.target = self.given
        self._header: list[str] = []
        self._nodata = frozenset(nodata)
        self._has_warned = self._has_lines = False

    def parse(self, text: str) -> Line | None:
        """A row or a query; None for a header, a comment, a blank line, or a line with a number for no data.

        A line with an error does not change the names.
        """
        text = text.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            return None
        if "\0" in text:
            fault = "has a NUL byte, which is no text"
            if self._has_lines or self._header:
                raise LineError(fault)
            raise HeaderError(f"{fault}; send UTF-8, such as by iconv -f UTF-16 -t UTF-8")
        before = self.inputs, self.target, self._header
        try:
            content = _read_json(text) if text.startswith("{") else self._read_csv(text)
            line = None if content is None else self._line(content, is_json=text.startswith("{"))
        except LineError:
            self.inputs, self.target, self._header = before
            raise
        self._has_lines |= line is not None
        return None if line is None or self._nodata.intersection((*line.x, line.y)) else line

    def _read_csv(self, text: str) -> dict[str, Any] | None:
        """Cells by name; None for a header."""
        cells = _split_cells(text)
        is_text = not any(cell and parse_number(cell, ".") is not None for cell in cells)
        if is_text and (not self._header or self._has_known_name(cells)):  # a second table may follow the first
            self._read_header(cells)
            return None
        names = self._header or self._names_of(len(cells))
        if not len(names) - 1 - bool(self.weight) <= len(cells) <= len(names):  # a query may leave out the last cells
            raise LineError(f"has {len(cells)} cells instead of {len(names)}: {', '.join(names)} (see --x and --y)")
        return dict(zip(names, [*cells, "", ""], strict=False))

    def _read_header(self, names: list[str]) -> None:
        self._choose_columns(names)
        if len(set(names)) < len(names):
            raise LineError("is a header that has a name twice")
        inputs, weight = [_name_of(column, names) for column in self.inputs], _name_of(self.weight, names)
        if missing := [name for name in (*inputs, weight) if name and name not in names]:
            raise self._missing_columns(missing, names)
        self.inputs, self.weight = inputs, weight
        rest = [name for name in names if name not in (*inputs, weight)]
        self.target = _name_of(self.target or "", names) or (rest[0] if len(rest) == 1 else None)
        if self._needs_target and self.target not in names:
            remedy = "correct --y, or leave it out if all lines are queries"
            raise HeaderError(f"is a header without {self.target}: it has {', '.join(names)[:500]}; {remedy}")
        self._header = names
        self._warn_without_target(names)

    def _missing_columns(self, missing: Sequence[str], names: list[str]) -> LineError:
        """The error of a header or, if it is hardly one, of a line of text among others."""
        fault = f"is a header without {', '.join(missing)}"
        if self._has_known_name(names) or (len(names) >= len(self.inputs) and not self._has_lines):
            options = "--x" if self.weight not in missing else "--x and --weight"
            remedy = f"say which columns are which with {options}, by name or number (--x 1,2)"
            return HeaderError(f"{fault}: it has {', '.join(names)[:500]}; {remedy}")
        return LineError(fault)

    def _has_known_name(self, names: Sequence[str]) -> bool:
        return any(name and name in (*self.inputs, self.target, self.weight) for name in names)

    def _names_of(self, n_cells: int) -> list[str]:
        """Names of the cells if there is no header: numbers if the user has given numbers."""
        self._choose_columns([f"x{place + 1}" for place in range(n_cells - bool(self.weight))])
        chosen = [*self.inputs, self.target or "y", *filter(None, [self.weight])]
        if not all(name.isdecimal() for name in chosen):
            return chosen
        if (n_columns := max(n_cells, *map(int, chosen))) > _MOST_COLUMNS:
            raise LineError(f"has no column {n_columns}; at most {_MOST_COLUMNS:,} are read")
        return [str(number) for number in range(1, n_columns + 1)]

    def _choose_columns(self, names: list[str]) -> None:
        """By default the last column is the target, and the others are the inputs."""
        if not self.inputs:
            names = [name for name in names if name != self.weight]
            if len(names) < 2:
                raise LineError("has one cell; a row needs inputs and a target")
            if len(names) > 3:
                there = ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")
                raise UsageError(f"standard input: name inputs and target with --x and --y; there are {there[:500]}")
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


def _name_of(column: str, names: Sequence[str]) -> str:
    """The name of a column that is given by name or by its number, from 1."""
    is_number = column not in names and column.isdecimal() and len(column) < 6 and 0 < int(column) <= len(names)
    return names[int(column) - 1] if is_number else column


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
        is_comma = isinstance(value, str) and parse_number(value, ",") is not None
        hint = " (the decimal mark must be a point here; wgpr fit and update take commas too)" if is_comma else ""
        raise LineError(f"has {str(value)[:40]!r} as {name}, which is not a number{hint}")
    if isnan(number):
        raise LineError(f"has no {name}" + (f": {value} is not a number" if value != "" else ""))
    if abs(number) > LARGEST:
        raise LineError(f"has {str(value)[:20]} as {name}, which is too large")
    return number


def format_answer(query: Line, values: Sequence[Any]) -> str:
    """CSV or JSON, like the query; without values if nothing is learned yet."""
    if not query.is_json:
        return ",".join(map(str, values or [""] * len(ANSWER)))
    content = dict(zip(ANSWER, values, strict=True)) if values else {"error": "nothing is learned yet"}
    return json.dumps(content if query.id is None else {"id": query.id, **content})
