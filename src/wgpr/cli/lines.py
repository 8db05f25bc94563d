"""A conversation over pipes: rows come in and are learned, questions come in and are answered, in the order they come.

A line is CSV or JSON. A row has all inputs and the target; without the target it is a question. Each row is predicted
before it is learned, so that the running scores are those of honest forecasts.
"""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wgpr.cli.query import ANSWER, answer_columns
from wgpr.estimators.base import LARGEST, OnlineRegressor
from wgpr.io.grids import named, predict_one_output
from wgpr.metrics import RunningScores

_CHUNK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 20


class LineError(ValueError):
    """A line that is neither a row nor a question."""


class Line(NamedTuple):
    """x : the inputs; y : the target, None for a question; is_json : how it was written; id : to be sent back."""

    x: list[float]
    y: float | None
    is_json: bool = False
    id: Any = None


class Reader:
    """Makes lines of text into `Line`s.

    inputs, target : names of the columns, None until the first line tells them.
    """

    def __init__(self, inputs: Sequence[str] | None, target: str | None) -> None:
        self.inputs, self.target = None if inputs is None else list(inputs), target
        self._order: list[str] | None = None  # of a CSV's columns, if it has a header

    def read(self, text: str) -> Line | None:
        """What a line says; None if that is nothing: a header, a comment, a blank line.

        A line that cannot be read teaches no names either.
        """
        text = text.strip().lstrip("\ufeff")
        if not text or text.startswith("#"):
            return None
        before = self.inputs, self.target, self._order
        try:
            return self._from_json(text) if text.startswith("{") else self._from_csv(text)
        except LineError:
            self.inputs, self.target, self._order = before
            raise

    def _from_csv(self, text: str) -> Line | None:
        cells = _cells(text)
        if self._order is None and not any(map(_is_number, cells)):
            self._take_header(cells)
            return None
        names = self._order or self._numbers(len(cells)) or self._names_by_place(len(cells))
        if len(cells) == len(names) - 1:
            cells.append("")  # a question may leave its last cell out
        if len(cells) != len(names):
            raise LineError(f"has {len(cells)} cells in place of {len(names)}: {', '.join(names)} (see --x and --y)")
        return self._line(dict(zip(names, cells, strict=True)), is_json=False)

    def _numbers(self, n_cells: int) -> list[str] | None:
        """Columns by number, if that is how the user calls them."""
        known = [*(self.inputs or ()), self.target or ""]
        if not all(name.isdecimal() for name in known):
            return None
        return [str(number) for number in range(1, max(n_cells, *map(int, known)) + 1)]

    def _take_header(self, names: list[str]) -> None:
        if self.inputs is None:
            self._name_columns(names)
        missing = set(self.inputs or ()) - set(names)
        if len(set(names)) < len(names):
            raise LineError("is a header that has a name twice")
        if missing:
            raise LineError(f"is a header without {', '.join(sorted(missing))}")
        self._order = names

    def _names_by_place(self, n_cells: int) -> list[str]:
        if self.inputs is None:
            self._name_columns([f"x{place + 1}" for place in range(n_cells)])
        return [*(self.inputs or ()), self.target or "y"]

    def _name_columns(self, names: list[str]) -> None:
        """By default the last column is the target."""
        if len(names) < 2:
            raise LineError("has one cell; a row needs inputs and a target")
        self.target = self.target or names[-1]
        self.inputs = [name for name in names if name != self.target]

    def _from_json(self, text: str) -> Line:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LineError(f"is no JSON ({error})") from error
        if isinstance(content.get("x"), list) and "x" not in (self.inputs or ()):
            content |= self._unpacked(content["x"], content.get("y"))
        if self.inputs is None:
            self._name_columns([name for name in content if name != "id"])
        return self._line(content, is_json=True)

    def _unpacked(self, x: list[Any], y: Any) -> dict[str, Any]:
        """`{"x": [1, 2], "y": 3}` for who does not care about names."""
        names = self._names_by_place(len(x) + 1)
        if len(x) != len(names) - 1:
            raise LineError(f"has {len(x)} inputs in place of {len(names) - 1}: {', '.join(names[:-1])}")
        return dict(zip(names, [*x, y], strict=True))

    def _line(self, content: dict[str, Any], *, is_json: bool) -> Line:
        assert self.inputs is not None
        x = [_number(name, content.get(name)) for name in self.inputs]
        y = content.get(self.target or "y")
        return Line(x, None if y in (None, "") else _number(self.target or "y", y), is_json, content.get("id"))


def _cells(text: str) -> list[str]:
    if len(text) > _LONGEST_LINE:
        raise LineError(f"is longer than {_LONGEST_LINE:,} characters")
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=_separator(text), strict=True))]
    except csv.Error as error:
        raise LineError(f"cannot be read ({error})") from error


def _separator(text: str) -> str:
    return next((mark for mark in "\t;" if mark in text), ",")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python's own way to write 1_000


def _number(name: str, value: Any) -> float:
    if value is None or value == "":
        raise LineError(f"has no {name}")
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not _is_number(str(value)):
        raise LineError(f"has {str(value)[:40]!r} as {name}, which is no number")
    number = float(str(value))
    if not isfinite(number) or abs(number) > LARGEST:
        raise LineError(f"has {str(value)[:20]} as {name}, which is too large")
    return number


class Answer(NamedTuple):
    """What is said to a question: mean, std, lower, upper and model, or nothing before the first row is known."""

    question: Line
    values: tuple[Any, ...] | None

    def text(self) -> str:
        """In the language of the question."""
        if not self.question.is_json:
            return ",".join(map(str, self.values or ("",) * len(ANSWER)))
        content = dict(zip(ANSWER, self.values, strict=True)) if self.values else {"error": "nothing is learned yet"}
        return json.dumps(content if self.question.id is None else {"id": self.question.id, **content})


class Conversation:
    """An estimator that learns and answers.

    scores : of what was predicted for each row before it was learned; n_answers : questions so far.

    Parameters
    ----------
    half_width : of the interval from lower to upper, in standard deviations.
    """

    def __init__(self, model: OnlineRegressor, reader: Reader, half_width: float) -> None:
        self.model, self.reader, self._half_width = model, reader, half_width
        self.scores = RunningScores()
        self.n_answers = 0
        self._n_before = self._n_seen()

    @property
    def n_rows(self) -> int:
        """Rows that came in this conversation, learned or waiting."""
        return self._n_seen() - self._n_before

    def _n_seen(self) -> int:
        return self.model.n_samples_seen_ if self._knows_something() else 0

    def hear(self, lines: Sequence[Line]) -> Iterator[Answer]:
        """Learn and answer lines that arrived together; the result is as if they had come one by one."""
        start = 0
        while start < len(lines):
            stop = start + self._n_alike(lines[start:])
            if lines[start].y is None:
                yield from self._answer(lines[start:stop])
            else:
                self._learn(lines[start:stop])
            start = stop

    def _n_alike(self, lines: Sequence[Line]) -> int:
        """How many of the first lines can be treated at once: questions, or rows until the model next changes."""
        is_question = lines[0].y is None
        most = len(lines) if is_question else self._n_until_change()
        n_alike = next((place for place, line in enumerate(lines) if (line.y is None) != is_question), len(lines))
        return min(most, n_alike)

    def _n_until_change(self) -> int:
        if not self._knows_something() or not self.model.n_models_:
            return 1
        return self.model.n_until_step_

    def _knows_something(self) -> bool:
        return hasattr(self.model, "_state")

    def _learn(self, rows: Sequence[Line]) -> None:
        X = np.array([row.x for row in rows])
        y = pd.Series([row.y for row in rows], name=self.reader.target, dtype=float)
        if not self._knows_something():
            self.model.partial_fit(pd.DataFrame(X, columns=self.reader.inputs), y)
            return
        self.scores.add(y, *predict_one_output(self.model, named(self.model, X)))
        self.model.partial_fit(named(self.model, X), y)

    def _answer(self, questions: Sequence[Line]) -> Iterator[Answer]:
        self.n_answers += len(questions)
        if not self._knows_something():
            yield from (Answer(question, None) for question in questions)
            return
        columns = answer_columns(self.model, np.array([question.x for question in questions]), self._half_width)
        yield from map(Answer, questions, zip(*(column.tolist() for column in columns), strict=True))


def arriving(descriptor: int) -> Iterator[list[str]]:
    """The lines of a pipe in pieces, each as soon as it is there; the last need not end with a line break.

    Of a line that is too long only the beginning is kept.
    """
    rest = b""
    while piece := os.read(descriptor, _CHUNK_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[: _LONGEST_LINE + 1]
        if lines:
            yield _decoded(lines)
    if rest:
        yield _decoded([rest])


def _decoded(lines: Iterable[bytes]) -> list[str]:
    return [line.decode("utf-8", errors="replace") for line in lines]
