"""Learning from tables: with progress, with interruption, and nothing that was learned is lost."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from wgpr.cli.console import ReadingProgress, counted, in_bytes, interruptible, say, uninterrupted
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.io.files import check_destination
from wgpr.io.grids import input_names, target_name
from wgpr.io.tables import Table, TableError

Stamp = tuple[int, int] | None

# Rows that are learned between two looks at the live line.
_PIECE = 500


class Piece(NamedTuple):
    """Some rows of a table, with the names that the model knows them by; place : where they are, for a message."""

    X: pd.DataFrame
    y: "pd.Series[float]"
    place: str


def learn_table(model: EnsembleRegressor, table: Table, columns: Sequence[str], output: Path, *, skip: int) -> bool:
    """Learn a table, save, and say what became of it. Whether it came to its end: it may be interrupted.

    Parameters
    ----------
    columns : the inputs and, last, the target.
    skip : rows at the beginning to leave out, because they are learned already.
    """
    check_destination(output)
    say(f"learning {columns[-1]} from {', '.join(columns[:-1])}")
    started, n_before, is_unfinished = time.perf_counter(), _n_seen(model), _is_unfinished(model)
    stamp = _stamp(output)
    with interruptible():
        is_whole = _learn(model, _pieces(model, table, columns, skip), table)
    n_rows = _n_seen(model) - n_before
    if not n_rows and not is_unfinished:
        raise TableError(_nothing_learned(skip, is_whole))
    save(model, output, stamp)
    _say_what_was_learned(model, table, n_rows, time.perf_counter() - started)
    if not is_whole:
        say(f"interrupted: what is learned is saved; to go on: wgpr update {output} DATA --skip {skip + n_rows}")
    return is_whole


def save(model: EnsembleRegressor, path: Path, stamp: Stamp = None) -> None:
    """Save a map, whole, and say so. Where that cannot be done it is saved elsewhere: what is learned is not lost.

    Parameters
    ----------
    stamp : of the file when it was read; if it is another one by now, somebody else has learned something too.
    """
    was_there = path.exists()
    try:
        if stamp is not None and _stamp(path) != stamp:
            raise FileExistsError("it was changed by somebody else meanwhile")
        with uninterrupted():
            model.save(path)
    except OSError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="wgpr-")) / path.name
        model.save(elsewhere)
        raise OSError(f"{path} cannot be written ({error}); the map is in {elsewhere} instead, move it") from error
    say(f"saved: {path} ({in_bytes(path.stat().st_size)}){' in place of the old one' if was_there else ''}")


def _stamp(path: Path) -> Stamp:
    """Tells whether a file is still the same; None if there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


def _learn(model: EnsembleRegressor, pieces: Iterator[Piece], table: Table) -> bool:
    """Whether it came to its end."""
    try:
        if isinstance(model, OnlineRegressor):
            _learn_online(model, pieces, table)
        else:
            _learn_at_once(model, list(pieces))
    except KeyboardInterrupt:
        return False
    return True


def _learn_online(model: OnlineRegressor, pieces: Iterator[Piece], table: Table) -> None:
    if _is_unfinished(model):
        model.catch_up()
    started, n_before = time.perf_counter(), _n_seen(model)
    with ReadingProgress("learning", table.total_bytes) as progress:
        for X, y, place in pieces:
            try:
                model.partial_fit(X, y)
            except ValueError as error:
                raise TableError(f"{place}: {error}") from error
            rate = (model.n_samples_seen_ - n_before) / (time.perf_counter() - started)
            words = f"{counted(model.n_samples_seen_, 'row')}, {counted(model.n_models_, 'model')}, {rate:,.0f} rows/s"
            progress.show(table.bytes_read, words)


def _learn_at_once(model: EnsembleRegressor, pieces: Sequence[Piece]) -> None:
    """An interruption leaves nothing: half of a batch method's work is no map."""
    if not pieces:
        return
    try:
        model.fit(pd.concat([piece.X for piece in pieces]), pd.concat([piece.y for piece in pieces]))
    except KeyboardInterrupt:
        if hasattr(model, "_state"):
            del model._state
        raise


def _pieces(model: EnsembleRegressor, table: Table, columns: Sequence[str], skip: int) -> Iterator[Piece]:
    known = [*input_names(model), target_name(model)] if hasattr(model, "_state") else list(columns)
    for chunk in table.chunks(columns):
        values, lines = chunk.values[skip:], chunk.lines[skip:]
        skip = max(0, skip - len(chunk.values))
        for start in range(0, len(values), _PIECE):
            rows = values[start : start + _PIECE]
            place = f"{chunk.file}, lines {lines[start]} to {lines[start + len(rows) - 1]}"
            yield Piece(pd.DataFrame(rows[:, :-1], columns=known[:-1]), pd.Series(rows[:, -1], name=known[-1]), place)


def _n_seen(model: EnsembleRegressor) -> int:
    return model.n_samples_seen_ if hasattr(model, "_state") else 0


def _is_unfinished(model: EnsembleRegressor) -> bool:
    """Whether full batches wait, because learning was interrupted."""
    return hasattr(model, "_state") and isinstance(model, OnlineRegressor) and model.n_pending_ >= int(model.batch_size)


def _nothing_learned(skip: int, is_whole: bool) -> str:
    if not is_whole:
        return "interrupted before anything was learned; no map was written"
    return f"nothing was learned: there are no rows beyond the first {skip:,}, which --skip leaves out"


def _say_what_was_learned(model: EnsembleRegressor, table: Table, n_rows: int, seconds: float) -> None:
    left_out = f", left out {counted(table.n_skipped, 'row')} with missing values" if table.n_skipped else ""
    waiting = f"; {counted(model.n_pending_, 'row')} wait to be learned" if model.n_pending_ else ""
    say(
        f"read {counted(n_rows, 'row')} in {seconds:.1f} s ({n_rows / seconds:,.0f} rows/s){left_out}: "
        f"{counted(model.n_models_, 'model')}{waiting}"
    )
