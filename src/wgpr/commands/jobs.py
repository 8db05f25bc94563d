"""What the commands do, without the command line: files in, files out, progress and interruption in between."""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from wgpr.base import EnsembleRegressor, OnlineRegressor
from wgpr.commands.console import ReadingProgress, counted, in_bytes, interruptible, say, uninterrupted
from wgpr.commands.live import Answer, Conversation, Line, LineError, Reader, arriving
from wgpr.grids import input_names, target_name
from wgpr.linalg import Array
from wgpr.maps import load
from wgpr.metrics import RunningScores, Scores
from wgpr.storage.atomic import require_folder
from wgpr.tables import Table, TableError

# Rows that are learned between two looks at the live line.
_PIECE = 500

_QUERY_ROWS = 10_000


# Learning


def learn_table(model: EnsembleRegressor, table: Table, columns: Sequence[str], output: Path, *, skip: int) -> bool:
    """Learn a table, save, and say what became of it. Whether it came to its end: it may be interrupted.

    Parameters
    ----------
    columns : the inputs and, last, the target.
    skip : rows at the beginning to leave out, because they are learned already.
    """
    require_folder(output)
    started, n_before = time.perf_counter(), _n_seen(model)
    say(f"learning {columns[-1]} from {', '.join(columns[:-1])}")
    is_whole = True
    with interruptible():
        try:
            _learn(model, _pieces(model, table, columns, skip), table)
        except KeyboardInterrupt:
            is_whole = False
    if _n_seen(model) == n_before:
        raise TableError(_nothing_learned(skip, is_whole))
    save(model, output)
    n_rows = _n_seen(model) - n_before
    _say_what_was_learned(model, table, n_rows, time.perf_counter() - started)
    if not is_whole:
        say(f"interrupted: what is learned is saved; to go on: wgpr update {output} DATA --skip {skip + n_rows}")
    return is_whole


def save(model: EnsembleRegressor, path: Path) -> None:
    """Save a map, whole, and say so. Where that cannot be done it is saved elsewhere: what is learned is not lost."""
    try:
        with uninterrupted():
            model.save(path)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="wgpr-")) / path.name
        model.save(elsewhere)
        raise OSError(f"{path} cannot be written ({error}); the map is in {elsewhere} instead, move it") from error
    say(f"saved: {path} ({in_bytes(path.stat().st_size)})")


def _learn(model: EnsembleRegressor, pieces: Iterator[tuple[pd.DataFrame, "pd.Series[float]"]], table: Table) -> None:
    if not isinstance(model, OnlineRegressor):
        X, y = zip(*pieces, strict=True)
        model.fit(pd.concat(X), pd.concat(y))
        return
    started, n_before = time.perf_counter(), _n_seen(model)
    with ReadingProgress("learning", table.total_bytes) as progress:
        for X, y in pieces:
            model.partial_fit(X, y)
            rate = (model.n_samples_seen_ - n_before) / (time.perf_counter() - started)
            words = f"{counted(model.n_samples_seen_, 'row')}, {counted(model.n_models_, 'model')}, {rate:,.0f} rows/s"
            progress.show(table.bytes_read, words)


def _pieces(
    model: EnsembleRegressor, table: Table, columns: Sequence[str], skip: int
) -> Iterator[tuple[pd.DataFrame, "pd.Series[float]"]]:
    """Inputs and target of the table, a few rows at a time, under the names that the model knows them by."""
    known = [*input_names(model), target_name(model)] if hasattr(model, "_state") else None
    for chunk in table.chunks(columns):
        names = known or chunk.names
        values = chunk.values[skip:]
        skip = max(0, skip - len(chunk.values))
        for start in range(0, len(values), _PIECE):
            rows = values[start : start + _PIECE]
            yield pd.DataFrame(rows[:, :-1], columns=list(names[:-1])), pd.Series(rows[:, -1], name=names[-1])


def _n_seen(model: EnsembleRegressor) -> int:
    return model.n_samples_seen_ if hasattr(model, "_state") else 0


def _nothing_learned(skip: int, is_whole: bool) -> str:
    if not is_whole:
        return "interrupted before anything was learned; no map was written"
    return f"nothing was learned: there are no rows beyond the first {skip:,}, which --skip leaves out"


def _say_what_was_learned(model: EnsembleRegressor, table: Table, n_rows: int, seconds: float) -> None:
    left_out = f", left out {counted(table.n_skipped, 'row')} with missing values" if table.n_skipped else ""
    waiting = f"; {counted(model.n_pending_, 'row')} wait for a batch to fill" if model.n_pending_ else ""
    say(
        f"learned {counted(n_rows, 'row')} in {seconds:.1f} s ({n_rows / seconds:,.0f} rows/s){left_out}: "
        f"{counted(model.n_models_, 'model')}{waiting}"
    )


# Answering


def load_to_answer(path: Path) -> Any:
    """A saved map with the rows that wait learned too: answers use all that is known. The file stays as it is."""
    model = load(path)
    return model.flush() if model.n_pending_ else model


def answers(
    model: EnsembleRegressor, table: Table, columns: Sequence[str], *, half_width: float, latent: bool
) -> Iterator[Sequence[NDArray[Any]]]:
    """For each chunk of the table: its inputs, mean, std, lower, upper and the number of the model that answers."""
    with ReadingProgress("predicting", table.total_bytes) as progress:
        for chunk in table.chunks(columns, _QUERY_ROWS):
            X = _named(model, chunk.values)
            mean, std = model.predict(X, return_std=True, latent=latent)
            reach = half_width * std
            yield [*chunk.values.T, mean, std, mean - reach, mean + reach, model.model_index(X)]
            progress.show(table.bytes_read, counted(table.n_rows, "row"))


def evaluate(model: EnsembleRegressor, table: Table, columns: Sequence[str]) -> tuple[Scores, int]:
    """How good the predictions of the table's last column are, and for how many rows."""
    running = RunningScores()
    with ReadingProgress("predicting", table.total_bytes) as progress:
        for chunk in table.chunks(columns, _QUERY_ROWS):
            running.add(chunk.values[:, -1], *model.predict(_named(model, chunk.values[:, :-1]), return_std=True))
            progress.show(table.bytes_read, counted(table.n_rows, "row"))
    return running.result(), running.n_rows


def _named(model: EnsembleRegressor, X: Array) -> pd.DataFrame | Array:
    return pd.DataFrame(X, columns=input_names(model)) if hasattr(model, "feature_names_in_") else X


def all_rows(table: Table, columns: Sequence[str]) -> Array:
    """The whole table, (n, k); for data that are to be looked at."""
    return np.concatenate([chunk.values for chunk in table.chunks(columns)])


# Columns


def columns_to_learn(table: Table, x: Sequence[str], y: str | None) -> list[str]:
    """Inputs and, last, target: as the user says; by default the last column is the target."""
    target = y if y is not None else table.names[-1]
    inputs = list(x) or [name for name in table.names if name != target]
    if not inputs:
        raise TableError("there is one column, which is the target; name inputs and target with --x and --y")
    return [*inputs, target]


def columns_of_map(model: EnsembleRegressor, table: Table, x: Sequence[str], y: str | None) -> list[str]:
    """Where the inputs and, last, the target of a map are in another table."""
    target = y or target_name(model)
    if not y and target not in table.names and len(table.names) == model.n_features_in_ + 1:
        target = table.names[-1]
    return [*inputs_of_map(model, table, x), target]


def inputs_of_map(model: EnsembleRegressor, table: Table, x: Sequence[str]) -> list[str]:
    """As the user says; otherwise by the map's names or, in a table without names, by place."""
    expected = input_names(model)
    if x and len(x) != len(expected):
        raise TableError(
            f"--x names {counted(len(x), 'column')} and the map has {len(expected)}: {', '.join(expected)}"
        )
    if x or set(expected) <= set(table.names):
        return list(x) or expected
    has_no_header = all(name == f"x{place + 1}" for place, name in enumerate(table.names))
    if has_no_header and len(table.names) >= len(expected):
        return list(table.names[: len(expected)])
    raise TableError(
        f"the data have the columns {', '.join(table.names)} and the map needs {', '.join(expected)}; "
        "say which are which with --x"
    )


# Conversation


def converse(
    conversation: Conversation,
    descriptor: int,
    output: Path,
    *,
    save_every: float,
    report_every: int,
    strict: bool,
) -> None:
    """Learn and answer what arrives until it ends or is interrupted; save to `output` now and then, and at the end.

    Parameters
    ----------
    descriptor : of the pipe that lines come from.
    save_every : seconds between two savings; report_every : rows between two reports.
    strict : stop at the first line that cannot be read; otherwise it is reported and left out.
    """
    require_folder(output)
    n_reported, n_saved, last_saved = 0, 0, time.monotonic()
    with interruptible():
        try:
            for lines in _lines_read(conversation.reader, descriptor, strict):
                _answer_aloud(conversation.hear(lines))
                if conversation.n_rows >= n_reported + report_every:
                    n_reported = conversation.n_rows
                    _report(conversation)
                if conversation.n_rows > n_saved and time.monotonic() > last_saved + save_every:
                    n_saved, last_saved = conversation.n_rows, time.monotonic()
                    conversation.model.save(output)
        except KeyboardInterrupt:
            say("interrupted")
        finally:
            if conversation.n_rows:
                save(conversation.model, output)
    if conversation.n_rows > n_reported or not conversation.n_rows:
        _report(conversation)


def _answer_aloud(answers: Iterable[Answer]) -> None:
    """Whoever asks waits for the answer: it must not stay in a buffer."""
    for answer in answers:
        sys.stdout.write(answer.text() + "\n")
    sys.stdout.flush()


def _lines_read(reader: Reader, descriptor: int, strict: bool) -> Iterator[list[Line]]:
    number = 0
    for texts in arriving(descriptor):
        lines: list[Line] = []
        for text in texts:
            number += 1
            try:
                line = reader.read(text)
            except LineError as error:
                if strict:
                    yield lines
                    raise LineError(f"standard input, line {number} {error}; correct it") from error
                say(f"standard input, line {number} {error}; it is left out")
                continue
            if line is not None:
                lines.append(line)
        yield lines


def _report(conversation: Conversation) -> None:
    words = f"{counted(conversation.n_rows, 'row')} learned, {counted(conversation.n_answers, 'question')} answered"
    if conversation.scores.n_rows:
        scores = conversation.scores.result()
        words += (
            f"; predicted before learned: RMSE {scores.rmse:.4g}, NLPD {scores.nlpd:.4g}, "
            f"{scores.coverage:.1%} within the 95 % interval; {counted(conversation.model.n_models_, 'model')}"
        )
    say(words)
