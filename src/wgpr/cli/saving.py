"""Maps that commands read and write. One process writes a map at a time.

The old file is kept, changes of other programs are not overwritten, and rows are in a journal beside the map until they
are saved (`wgpr.io.store`). If a command is killed, the next one that writes the map learns what it lacks.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wgpr.cli.console import (
    format_count,
    format_size,
    inform,
    progress_bar,
    uninterrupted,
    warn,
)
from wgpr.cli.repetition import note_tables
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.gp.linalg import Array
from wgpr.io import maps
from wgpr.io.codec import describe, read_learned_tables, unfitted
from wgpr.io.container import MapError
from wgpr.io.files import check_destination, is_locked, lock_of, locked, replace_file, write_file
from wgpr.io.journal import Entry, JournalError
from wgpr.io.rows import learn_rows, n_seen
from wgpr.io.store import JOURNAL, SNAPSHOT, Store, files_of


def journal_of(map_file: str | os.PathLike[str]) -> Path:
    """Where the journal of a map file is, if it has one: beside the file, links resolved."""
    target = Path(os.path.realpath(map_file))
    return target.with_name(f".{target.name}.journal")


def read_map(path: Path) -> Any:
    """The saved map, for a command that does not change it. A warning says if a run on it was interrupted."""
    has_journal = journal_of(path).exists() and not is_locked(lock_of(path))
    if has_journal and not path.exists():
        raise FileNotFoundError(f"{path} was not yet saved when a run was interrupted; wgpr update {path} saves it")
    model = _load(path)
    if has_journal:
        warn(f"{path} may lack rows of an interrupted run; wgpr update {path} learns them from its journal")
    return model


def _load(path: Path) -> Any:
    """The map of a file; errors name its backup, if there is one."""
    if path.is_dir():
        snapshot = path / SNAPSHOT
        hint = f"; the service keeps the map of this folder in {snapshot}" if snapshot.exists() else ""
        raise IsADirectoryError(f"{path} is a folder, and MAP must be a map file{hint or '; name a file in it'}")
    try:
        return maps.load(path)
    except MapError as error:
        backup = path.with_name(f"{path.name}~")
        remedy = f"the file before it is {backup}; copy it" if backup.exists() else "use a backup"
        raise MapError(str(error).replace("use a backup", remedy)) from error


@contextmanager
def map_writer(path: Path, *, continues: bool = False) -> Iterator["MapWriter"]:
    """Lock a map file until the end of the block. Enter it before the map is read. Raises an error if it is locked.

    The operating system releases the lock when the process ends, in whatever way.

    continues : the block goes on with the map (`MapWriter.load`). Otherwise the map is replaced, and an error is
        raised if rows of an interrupted run might be lost with it.
    """
    writer = MapWriter(path, check_destination(path))
    with locked(lock_of(path), f"another wgpr is writing {path.name}; wait until it ends, or use another -o"):
        if writer.is_served:
            remedy = f"send rows to it (wgpr stream --to .../maps/{path.resolve().parent.name}), or use a copy"
            raise FileExistsError(f"{path} belongs to a wgpr serve, whose journal continues it; {remedy}")
        if not continues and writer.has_journal:
            raise FileExistsError(
                f"{path} may lack rows of an interrupted run, which would be lost; learn them with wgpr update {path}, "
                f"move the journal's files away ({journal_of(path)}), or use another -o"
            )
        try:
            yield writer
        finally:
            writer.close()


class MapWriter:
    """Saves a map at `path`, any number of times. The first time the old file is kept as NAME~.

    target : the file itself, links resolved.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self._target = path, target
        self._version, self._has_written = _version(target), False
        self._backup: Path | None = None
        self._store: Store | None = None

    @property
    def has_journal(self) -> bool:
        """Whether an interrupted run has left its journal."""
        return journal_of(self._target).exists()

    @property
    def is_served(self) -> bool:
        """Whether the journal of a service continues the map as it is."""
        return self._target.name == SNAPSHOT and self._target.with_name(JOURNAL).exists()

    @property
    def has_map(self) -> bool:
        """Whether there is a map to go on with: its file, or the journal of a map that was not yet saved."""
        return self._target.exists() or self.has_journal

    def load(self) -> Any:
        """The saved map. Rows of an interrupted run are learned and saved first."""
        if not self.has_journal:
            return _load(self.path)
        model = _load(self.path) if self._target.exists() else None
        path = journal_of(self._target)
        store = Store.open(self._target, path, 0 if model is None else n_seen(model))
        about = store.journal.about
        try:
            model = unfitted(about) if model is None else model
            tables = read_learned_tables({"learned_tables": about["tables"]})
            if not isinstance(about["has_weights"], bool) or not {*map(type, about["columns"])} <= {str}:
                raise TypeError("columns must be names")
        except (KeyError, TypeError, ValueError) as error:
            store.close()
            raise JournalError(f"{path} is not the journal of a map; move its files away") from error
        self._store = store
        if store.journal.warning:
            warn(store.journal.warning)
        if n_rows := store.journal.n_rows - n_seen(model):
            self._learn_journal(model)
            note_tables(model, tables)
            self.checkpoint(model)
            were = "was" if n_rows == 1 else "were"
            inform(f"{format_count(n_rows, 'row')} of an interrupted run {were} learned from its journal")
        self.close()
        return model

    def _learn_journal(self, model: OnlineRegressor) -> None:
        """Learn what an interrupted run has left."""
        try:
            self.catch_up(model)
        except (ValueError, ArithmeticError) as error:
            fault = f"rows of an interrupted run cannot be learned from {journal_of(self._target)} ({error})"
            raise JournalError(f"{fault}; move its files away to go on without them") from error

    # Rows, before and after they are learned

    def keep(
        self,
        rows: Array,
        model: EnsembleRegressor,
        columns: Sequence[str],
        *,
        has_weights: bool = False,
        tables: Sequence[str] = (),
    ) -> None:
        """Write rows to the journal, before a model learns them. It is not interrupted.

        rows : (n, d + 1), or (n, d + 2) with weights; columns : names of inputs and target.
        tables : what the map will note of the tables whose rows these are, so that they are not learned again.
        """
        with uninterrupted():
            if self._store is None:
                self._store = self._new_store(model, columns, has_weights)
            journal = self._store.journal
            journal.append([Entry(rows)], {**journal.about, "tables": list(tables)})

    def _new_store(self, model: EnsembleRegressor, columns: Sequence[str], has_weights: bool) -> Store:
        """A journal for rows that follow those of a model, which is saved or has seen no row.

        A model that has seen no row gets a seed, so that the same rows give the same map.
        """
        about: dict[str, Any] = {"columns": list(columns), "has_weights": has_weights, "tables": []}
        if not n_seen(model):
            if model.get_params(deep=False).get("random_state", 0) is None:
                model.set_params(random_state=secrets.randbelow(2**31))
            about |= describe(model)
        path = journal_of(self._target)
        store = Store.create(self._target, path, about, n_seen(model), is_bound=True)
        if self._target.exists():
            for file in files_of(path):  # its rows are as private as the map
                shutil.copymode(self._target, file)
        return store

    @property
    def kept_tables(self) -> list[str]:
        """What the map will note of the tables whose rows are in the journal."""
        return [] if self._store is None else self._store.journal.about["tables"]

    def catch_up(self, model: OnlineRegressor) -> None:
        """Learn the rows of the journal that a model lacks."""
        if self._store is None:
            return
        journal, n_before = self._store.journal, n_seen(model)
        columns, has_weights = journal.about["columns"], journal.about["has_weights"]
        with progress_bar("learning the journal", journal.n_rows - n_before) as show:
            for record in journal.records(n_before):
                rows, weights = (record.rows[:, :-1], record.rows[:, -1]) if has_weights else (record.rows, None)
                learn_rows(model, rows, weights, columns)
                show(n_seen(model) - n_before, format_count(n_seen(model) - n_before, "row"))

    # Files

    def checkpoint(self, model: EnsembleRegressor) -> None:
        """Save the map, for now. It is not interrupted."""
        with uninterrupted():
            self._write(model.to_bytes(), n_seen(model))

    def save(self, model: EnsembleRegressor, *, compact: bool = False) -> None:
        """Save the map at last, and say so. It is not interrupted.

        If another program has changed the file since it was read, or it cannot be written and the rows are in no
        journal, the map is saved in a temporary folder, and an error says so.
        """
        saved = ""
        try:
            with uninterrupted():
                data = model.to_bytes(compact=compact)
                self._write_somewhere(data, n_seen(model))
                backup = f"; the old file is {self._backup.name}" if self._backup else ""
                saved = f"saved: {self.path} ({format_size(len(data))}){backup}"
        finally:  # an interruption comes when the file is replaced
            if saved:
                inform(saved)

    def _write_somewhere(self, data: bytes, n_rows: int) -> None:
        """Write the map, or keep it in a temporary folder and raise an error."""
        try:
            self._write(data, n_rows)
        except OSError as error:
            if self._store is not None and not isinstance(error, FileExistsError):
                raise
            other = Path(tempfile.mkdtemp(prefix="wgpr-")) / self._target.name
            write_file(other, data)
            if self._store is not None:
                self._store.n_saved = n_rows
            raise OSError(f"{error}; the map is in {other} instead, move it") from error

    def _write(self, data: bytes, n_rows: int) -> None:
        if _version(self._target) != self._version:
            raise FileExistsError(f"{self.path} was changed by another program meanwhile and is not overwritten")
        if self._version and not self._has_written:
            self._backup = self._target.with_name(f"{self._target.name}~")
            with replace_file(self._backup) as temporary:
                shutil.copy2(self._target, temporary)
        if self._store is None:
            write_file(self._target, data)
        else:
            self._store.write(data, n_rows)
            with suppress(OSError):
                self._store.trim()
        self._version, self._has_written = _version(self._target), True

    def close(self) -> None:
        """Close the journal, and remove it if all of its rows are saved. Otherwise a warning says how many it keeps."""
        if self._store is None:
            return
        store, self._store = self._store, None
        n_left = store.journal.n_rows - store.n_saved
        store.close(remove=n_left <= 0)
        if n_left > 0:
            warn(f"{self.path} lacks {format_count(n_left, 'row')}, which its journal keeps for the next run")


def _version(path: Path) -> tuple[int, ...] | None:
    """Changes if a file is replaced or written to; None if there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size
