"""Maps that commands read and write. One process writes a map at a time.

The old file is kept, changes of other programs are not overwritten, and rows are in a journal until they are saved.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wgpr.cli.console import (
    exit_unless,
    format_count,
    format_size,
    inform,
    print_error,
    progress_bar,
    uninterrupted,
    warn,
)
from wgpr.cli.plausibility import note_tables
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.gp.linalg import Array
from wgpr.io import maps
from wgpr.io.container import MapError
from wgpr.io.files import check_destination, is_locked, locked, replace_file, write_file
from wgpr.io.journal import SNAPSHOT, JournalError
from wgpr.io.map_journal import MapJournal, Start, count_lacking_rows, journal_of, remove_journal
from wgpr.io.rows import n_seen


def read_map(path: Path) -> Any:
    """The saved map, for a command that does not change it. A warning says if it lacks rows of an interrupted run."""
    target = Path(os.path.realpath(path))
    has_journal = journal_of(target).exists() and not is_locked(_lock_of(target))
    if has_journal and not target.exists():
        raise FileNotFoundError(f"{path} was not yet saved when a run was interrupted; wgpr update {path} saves it")
    model = _load(path)
    if has_journal:
        try:
            if n_rows := count_lacking_rows(target, n_seen(model)):
                lacking = format_count(n_rows, "row")
                warn(f"{path} lacks {lacking} of an interrupted run; wgpr update {path} learns them from its journal")
        except (JournalError, OSError) as error:
            if not is_locked(_lock_of(target)):  # no command has begun to write
                warn(str(error))
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
        raise MapError(without_cause(error).replace("use a backup", remedy)) from error


def without_cause(error: MapError) -> str:
    """The message of an error without that of the library that found the fault."""
    cause = error.__cause__
    text = str(error).replace(f" ({cause})", "")
    return text.replace(f" ({type(cause).__name__}: {str(cause)[:200]})", "")


@contextmanager
def map_writer(path: Path, *, continues: bool = False) -> Iterator["MapWriter"]:
    """Lock a map file until the end of the block. Enter it before the map is read. Raises an error if it is locked.

    The operating system releases the lock when the process ends, in whatever way. The exit code is 1 if the map had to
    be saved elsewhere.

    continues : the block goes on with the map (`MapWriter.load`). Otherwise the map is replaced, and an error is
        raised if rows of an interrupted run would be lost with it.
    """
    target = check_destination(path)
    writer = MapWriter(path, target)
    with locked(_lock_of(target), f"another wgpr is writing {path.name}; wait until it ends, or use another -o"):
        if not continues:
            _remove_journal_of_saved_rows(path, target)
        try:
            yield writer
        finally:
            writer.close()
    exit_unless(not writer.is_elsewhere)


def _lock_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def _remove_journal_of_saved_rows(path: Path, target: Path) -> None:
    """Remove a journal that was left behind. Raises an error if it has rows that the map lacks."""
    if not journal_of(target).exists():
        return
    try:
        n_saved = n_seen(maps.load(path)) if target.exists() else 0
    except MapError:  # then it is not the map that the journal continues, which is an error too
        n_saved = 0
    if n_rows := count_lacking_rows(target, n_saved):
        raise FileExistsError(
            f"{path} lacks {format_count(n_rows, 'row')} of an interrupted run, which would be lost; learn them with "
            f"wgpr update {path}, move the files of {journal_of(target)} away, or use another -o"
        )
    remove_journal(target)


class MapWriter:
    """Saves a map, any number of times. The first time the old file is kept as NAME~.

    If the file cannot be written, or another program has changed it since it was read, this map and later ones are
    saved in a temporary folder.

    path : where the map is saved; is_elsewhere : whether that is a temporary folder.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.is_elsewhere = path, False
        self._target, self._version = target, _version(target)
        self._backup: Path | None = None
        self._map_file, self._is_replaced, self._n_saved = target, False, 0
        self._journal: MapJournal | None = None

    @property
    def has_journal(self) -> bool:
        """Whether an interrupted run has left its journal."""
        return journal_of(self._map_file).exists()

    @property
    def has_map(self) -> bool:
        """Whether there is a map to go on with: its file, or the journal of a map that was not yet saved."""
        return self._map_file.exists() or self.has_journal

    def load(self) -> Any:
        """The saved map. Rows of an interrupted run are learned and saved first."""
        if not self.has_journal:
            return _load(self.path)
        model = _load(self.path) if self._map_file.exists() else None
        self._journal = MapJournal.open(self._map_file)
        model = self._journal.new_estimator() if model is None else model
        if self._journal.warning:
            warn(self._journal.warning)
        self._n_saved = n_seen(model)
        if n_rows := self._journal.count_lacking(model):
            self._learn_journal(model)
            exit_unless(not self.is_elsewhere)
            were = "was" if n_rows == 1 else "were"
            inform(f"{format_count(n_rows, 'row')} of an interrupted run {were} learned from its journal")
        self.close()
        return model

    def _learn_journal(self, model: OnlineRegressor) -> None:
        """Learn what an interrupted run has left, and save it."""
        assert self._journal is not None
        try:
            self.catch_up(model)
        except (ValueError, ArithmeticError) as error:
            fault = f"rows of an interrupted run cannot be learned from {journal_of(self._map_file)} ({error})"
            raise JournalError(f"{fault}; move its files away to go on without them") from error
        note_tables(model, self._journal.tables, self._journal.n_taken, least=1)
        self.save(model, silent=True)

    # Rows, before and after they are learned

    def keep(
        self,
        rows: Array,
        model: EnsembleRegressor,
        columns: Sequence[str],
        *,
        has_weights: bool = False,
        tables: Sequence[Start] = (),
    ) -> None:
        """Write rows to the journal, before a model learns them. It is not interrupted.

        rows : (n, d + 1), or (n, d + 2) with weights; columns : names of inputs and target.
        tables : whose rows these are, so that they are not learned again.
        """
        with uninterrupted():
            if self._journal is None:
                self._journal = MapJournal.create(self._map_file, model, columns, has_weights=has_weights)
            self._journal.append(rows, tables)

    def catch_up(self, model: OnlineRegressor) -> None:
        """Learn the rows of the journal that a model lacks."""
        if self._journal is None:
            return
        n_rows, n_learned = self._journal.n_rows - n_seen(model), 0
        if not n_rows:
            return
        with progress_bar("learning the journal", n_rows) as show:
            for n_more in self._journal.learn(model):
                n_learned += n_more
                show(n_learned, format_count(n_learned, "row"))

    # Files

    def save(self, model: EnsembleRegressor, *, compact: bool = False, silent: bool = False) -> None:
        """Save the map and, unless `silent`, say so. It is not interrupted."""
        with uninterrupted():
            data = model.to_bytes(compact=compact)
            try:
                self._write(data)
            except OSError as error:
                if self.is_elsewhere:
                    raise
                self._write_elsewhere(data, error)
            self._trim_journal(n_seen(model))
            if not silent:
                backup = f"; the old file is {self._backup.name}" if self._backup else ""
                inform(f"saved: {self.path} ({format_size(self._target.stat().st_size)}){backup}")
                self._warn_of_rest(n_seen(model))

    def _write(self, data: bytes) -> None:
        if _version(self._target) != self._version:
            raise FileExistsError(f"{self.path} was changed by another program meanwhile and is not overwritten")
        if self._version and not self._backup and not self.is_elsewhere:
            self._backup = self._target.with_name(f"{self._target.name}~")
            with replace_file(self._backup) as temporary:
                shutil.copy2(self._target, temporary)
        try:
            if self._journal is not None:
                self._journal.expect(data)
        except OSError:
            if not self.is_elsewhere:
                raise
        write_file(self._target, data)
        self._version = _version(self._target)

    def _write_elsewhere(self, data: bytes, error: OSError) -> None:
        self.path = self._target = Path(tempfile.mkdtemp(prefix="wgpr-")) / self._target.name
        self.is_elsewhere, self._version, self._backup = True, None, None
        self._is_replaced = isinstance(error, FileExistsError)
        self._write(data)
        print_error(f"{error}; the map is in {self.path} instead, move it")

    def _trim_journal(self, n_rows: int) -> None:
        """Forget the rows that were saved. If the file could not be written, they stay, and continue the old file."""
        if self._journal is None or (self.is_elsewhere and not self._is_replaced):
            return
        self._n_saved = n_rows
        with suppress(OSError):  # rows that stay are known to be saved by their number
            self._journal.trim(n_rows)

    def _warn_of_rest(self, n_rows: int) -> None:
        """Say that rows were written to the journal and could not be learned."""
        if self._journal is not None and self._journal.n_rows > n_rows:
            rest = format_count(self._journal.n_rows - n_rows, "row")
            warn(f"{rest} were not learned and stay in the journal of {self._map_file.name} for the next run")

    def close(self) -> None:
        """Close the journal, and remove it if all of its rows are saved."""
        if self._journal is not None:
            self._journal.close(remove=self._journal.n_rows <= self._n_saved)
            self._journal = None


def _version(path: Path) -> tuple[int, ...] | None:
    """Changes if a file is replaced or written to; None if there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size
