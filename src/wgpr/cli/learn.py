"""Learning of tables. Rows are checked before they are learned; what is learned is saved if interrupted."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from wgpr.cli import options as opt
from wgpr.cli.columns import columns_to_learn
from wgpr.cli.console import (
    Interruptions,
    UsageError,
    format_count,
    inform,
    progress_bar,
    uninterrupted,
    warn,
)
from wgpr.cli.georeference import warn_of_degrees
from wgpr.cli.plausibility import EvenSample, OffsetCheck, TableCheck
from wgpr.cli.repetition import note_tables
from wgpr.cli.saving import MapWriter
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import coordinates
from wgpr.io.journal import JournalFailedError, JournalFullError
from wgpr.io.rows import as_frames, knows_rows_at_once, learn_rows, n_seen
from wgpr.io.tables import Chunk, Table, TableError
from wgpr.io.track import COLUMNS

if TYPE_CHECKING:
    from wgpr.fleet.sharded import ShardedRegressor

# Rows that districts are laid out by, at the most.
_MOST_IN_SAMPLE = 20_000

# Rows below which a map is learned sooner by one process than by several.
_FEW_ROWS = 100_000

# Rows between two updates of the progress bar, and in a commit to the journal. An interrupted `fit` loses no more.
_PIECE = 500


@contextmanager
def fleet_of(
    model: EnsembleRegressor, shards: int, engine: str, address: str, folder: Path | None
) -> Iterator["ShardedRegressor | None"]:
    """The workers that learn a map, if there are to be any."""
    if shards == 1 and engine == "processes" and not address:
        yield None
        return
    from wgpr.fleet.sharded import ShardedRegressor

    if not knows_rows_at_once(model):
        raise UsageError("--shards is for the default method, and this is another; leave out --shards or --method")
    with opt.errors_of_usage(n_shards="--shards"):
        fleet = ShardedRegressor(
            cast(Any, model), n_shards=shards, engine=engine, address=address or None, folder=folder
        )
        fleet.check_settings()
    with fleet:
        yield fleet


def choose_columns(table: Table, x: Sequence[str], y: str | None, weight: str = "") -> list[str]:
    """The inputs, the target and, last, the weights if they have a column, of a new map."""
    columns = columns_to_learn(table, x, y, weight)
    if table.is_log:  # nothing is guessed: the inputs are positions, and the target is the depth
        x, y = x or COLUMNS[:2], y or COLUMNS[2]
    announce_columns(columns, x, y, has_weights=bool(weight))
    return columns


def announce_columns(columns: Sequence[str], x: Sequence[str], y: str | None, *, has_weights: bool) -> None:
    """Say which columns are learned and, if the user has not given all of `x` and `y`, which of them were guessed."""
    *inputs, target = columns[:-1] if has_weights else columns
    inform(f"learning {target} from {', '.join(inputs)}{f', with weights {columns[-1]}' if has_weights else ''}")
    guessed = {} if x else {"--x": f"inputs {', '.join(inputs)}"}
    guessed |= {} if y else {"--y": f"target {target}"}
    if guessed:
        warn(f"guessed: {'; '.join(guessed.values())}; use {' and '.join(guessed)} to choose others")


def require_online(model: EnsembleRegressor) -> None:
    if not isinstance(model, OnlineRegressor):
        raise ValueError("this method learns all rows at once and cannot learn more; use wgpr fit with all data")


def require_weights(model: EnsembleRegressor, weight: str) -> None:
    if weight and not knows_rows_at_once(model):
        raise UsageError(
            "--weight is for the default method, and this is another; leave out --weight, or fit a map without "
            "--method and the settings of the paper's method"
        )


@contextmanager
def saying_that_nothing_is_learned() -> Iterator[None]:
    """Errors of a table that is read before it is learned say so."""
    try:
        yield
    except TableError as error:
        raise TableError(f"{error}; nothing was learned") from error


def learn_table(
    model: EnsembleRegressor,
    table: Table,
    columns: Sequence[str],
    writer: MapWriter,
    *,
    has_weights: bool = False,
    skip: int,
    force: bool = False,
    has_journal: bool = False,
    fleet: "ShardedRegressor | None" = None,
    may_be_degrees: bool = False,
) -> None:
    """Check a table, learn it, save the map, and say what was learned. The command fails unless all rows are learned.

    All rows are checked before any is learned; but a pipe, which can be read only once, is checked chunk by chunk.

    columns : inputs, target and, if it has_weights, last these; skip : rows to leave out at the beginning.
    force : learn rows that are doubtful, with a warning; has_journal : write rows to the journal before.
    fleet : learns the rows in place of the model, which gets the result.
    may_be_degrees : whether places that look like degrees are told.
    """
    started, n_before, stopped_by = time.perf_counter(), n_seen(model), ""
    check, offsets = TableCheck(model, force=force, has_weights=has_weights, skip=skip), OffsetCheck(model)
    interruptions = Interruptions()

    def passing(chunk: Chunk) -> Chunk:
        interruptions.raise_waiting()
        offsets.look(chunk, check.split(chunk)[0])
        return check.passing(chunk)

    def learn_all() -> None:
        with interruptions.allowed():
            sample = None if table.is_pipe else _check_all(check, table, columns, skip)
            if may_be_degrees and sample is not None and coordinates(model) is None:
                warn_of_degrees(columns[: -1 - has_weights], sample[:, : -1 - has_weights])
            if fleet is not None and sample is not None and check.n_rows < _FEW_ROWS:
                inform(f"shards do not pay for fewer than {_FEW_ROWS:,} rows; without --shards they are learned sooner")
            chunks = _chunks_after(skip, table.chunks(columns, _PIECE))
            if table.is_pipe:
                chunks = map(check.add_of_pipe, chunks)
            chunks = map(passing, chunks)
            if fleet is None:
                _learn(model, check, chunks, columns, writer if has_journal else None)
            else:
                _learn_in_shards(model, fleet, check, chunks, columns, sample)

    with interruptions.handled():  # also while what is learned is saved
        try:
            learn_all()
        except KeyboardInterrupt:
            stopped_by = "interrupted"
            if isinstance(model, OnlineRegressor):
                writer.catch_up(model)
        except (TableError, JournalFullError, JournalFailedError) as error:
            stopped_by = str(error)
        n_rows = n_seen(model) - n_before
        if not n_rows:
            reason = stopped_by or f"there are no rows beyond the first {skip:,} (--skip)"
            raise TableError(f"{reason}; nothing was learned")
        note_tables(model, check.learned_tables(n_rows))
        _print_result(model, table, n_rows, time.perf_counter() - started)
        writer.save(model)
        offsets.judge()
        if stopped_by:
            weight = f" --weight {columns[-1]}" if has_weights else ""
            data = shlex.join(table.paths)
            advice = f"to go on: wgpr update {shlex.quote(str(writer.path))} {data} --skip {skip + n_rows}{weight}"
            raise TableError(f"{stopped_by}; what is learned is saved; {advice}")
        interruptions.raise_waiting()  # it came when all was learned


def _check_all(check: TableCheck, table: Table, columns: Sequence[str], skip: int) -> Array | None:
    """Check a table, and return some of its rows (n, k), evenly spaced; None if there are none."""
    sample = EvenSample(len(columns), _MOST_IN_SAMPLE)
    with progress_bar("checking") as show:
        for chunk in _chunks_after(skip, table.chunks(columns)):
            sample.add(check.add(chunk).values)
            show(table.n_rows, format_count(table.n_rows, "row"))
    check.judge(sample.rows)
    return sample.rows if sample.n_rows else None


def _chunks_after(n_rows: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The chunks without their first `n_rows` rows."""
    for chunk in chunks:
        if len(chunk.values) > n_rows:
            yield replace(chunk, values=chunk.values[n_rows:], lines=chunk.lines[n_rows:])
        n_rows = max(0, n_rows - len(chunk.values))


def _learn(
    model: EnsembleRegressor,
    check: TableCheck,
    chunks: Iterator[Chunk],
    columns: Sequence[str],
    journal: MapWriter | None,
) -> None:
    """Learn the chunks of a table. journal : where rows are written before, if anywhere."""
    if not isinstance(model, OnlineRegressor):
        model.fit(*as_frames(model, np.concatenate([chunk.values for chunk in chunks]), columns))
        return
    started, n_learned = time.perf_counter(), 0
    with progress_bar("learning", check.n_rows) as show:
        for chunk in chunks:
            rows, weights = check.split(chunk)
            if journal is not None:
                names, tables = columns[: rows.shape[1]], check.learned_tables(least=1)
                journal.keep(chunk.values, model, names, has_weights=weights is not None, tables=tables)
            learn_rows(model, rows, weights, columns)
            n_learned += len(chunk.values)
            show(n_learned, _progress(n_learned, started, format_count(model.n_models_, "model")))


def _learn_in_shards(
    model: EnsembleRegressor,
    fleet: "ShardedRegressor",
    check: TableCheck,
    chunks: Iterator[Chunk],
    columns: Sequence[str],
    sample: Array | None,
) -> None:
    """Let a fleet learn the chunks of a table; the model becomes what it has learned.

    sample : (n, k) rows, to lay out districts.
    """
    started = time.perf_counter()
    with progress_bar("learning", check.n_rows) as show:

        def show_learned(n_learned: int) -> None:
            show(n_learned, _progress(n_learned, started, format_count(fleet.n_districts_, "district")))

        n_columns, are_sent = len(columns) - check.has_weights, False
        try:
            if sample is not None:
                with uninterrupted():
                    fleet.prepare(*as_frames(model, sample[:, :n_columns], columns))
            for chunk in chunks:
                rows, weights = check.split(chunk)
                with uninterrupted():
                    fleet.partial_fit(*as_frames(model, rows, columns), weights)
                    are_sent = True
                show_learned(fleet.n_samples_learned_)
        except KeyboardInterrupt:
            n_left = fleet.n_samples_seen_ - fleet.n_samples_learned_
            inform(f"interrupted: {format_count(n_left, 'row')} that were sent are still learned; Ctrl-C drops all")
            raise
        finally:
            if are_sent:
                model.__dict__.update(vars(fleet.collect(show_learned)))


def _progress(n_learned: int, started: float, parts: str) -> str:
    rate = n_learned / (time.perf_counter() - started)
    return f"{format_count(n_learned, 'row')}, {parts}, {rate:,.0f} rows/s"


def _print_result(model: EnsembleRegressor, table: Table, n_rows: int, seconds: float) -> None:
    skipped = f", left out {format_count(table.n_skipped, 'row')} without data" if table.n_skipped else ""
    waiting = f"; {format_count(model.n_pending_, 'row')} wait for a batch" if model.n_pending_ else ""
    inform(
        f"learned {format_count(n_rows, 'row')} in {seconds:.1f} s ({n_rows / seconds:,.0f} rows/s){skipped}: "
        f"{format_count(model.n_models_, 'model')}{waiting}"
    )
    for note in table.notes:
        inform(note)
