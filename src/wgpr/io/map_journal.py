"""The journal beside a map file: rows that a command has taken, until the saved map holds them.

A command that learns writes rows to the journal before it learns them. After the map is saved, the journal is trimmed,
and removed at the end. If the command is killed, the next one finds the journal and learns what the map lacks. Learning
does not depend on how rows are split into calls, so the map is then the same to the bit.

The journal belongs to one map: it has the fingerprints of the files that its rows continue.
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.gp.linalg import Array
from wgpr.io.codec import describe, unfitted
from wgpr.io.journal import Entry, Journal, JournalError, log_of
from wgpr.io.rows import learn_rows, n_seen

# Number of rows of a command before a table, and the fingerprint of its first rows.
Start = tuple[int, str]


def journal_of(map_file: str | os.PathLike[str]) -> Path:
    """Where the journal of a map file is, if it has one: beside the file, links resolved."""
    target = Path(os.path.realpath(map_file))
    return target.with_name(f".{target.name}.journal")


class MapJournal:
    """The open journal of a map file. The process that opens it holds the lock of the map."""

    def __init__(self, map_file: Path, journal: Journal) -> None:
        self._map_file, self._journal = map_file, journal
        self._saved = self._expected = _fingerprint(map_file)

    @classmethod
    def create(
        cls, map_file: Path, model: EnsembleRegressor, columns: Sequence[str], *, has_weights: bool
    ) -> "MapJournal":
        """A new journal for rows that follow those of a model, which is saved in `map_file` or has seen no row.

        A model that has seen no row gets a seed, so that the same rows give the same map.

        columns : names of inputs and target; has_weights : whether rows have weights, last.
        """
        about: dict[str, Any] = {
            "maps": [_fingerprint(map_file)],
            "first": n_seen(model),
            "columns": list(columns),
            "has_weights": has_weights,
            "tables": [],
        }
        if not n_seen(model):
            about |= describe(_with_seed(model))
        path = journal_of(map_file)
        if path.exists():
            raise FileExistsError(f"{path} has rows of an interrupted run, which would be lost; move it away")
        journal = Journal.create(path, about, n_seen(model))
        if map_file.exists():
            for file in _files(path):  # its rows are as private as the map
                shutil.copymode(map_file, file)
        return cls(map_file, journal)

    @classmethod
    def open(cls, map_file: Path) -> "MapJournal":
        """Open the journal of a map file and check both. Raises `JournalError` if they do not belong together."""
        journal = Journal.open(journal_of(map_file))
        try:
            _check_belongs(journal, map_file)
        except BaseException:
            journal.close()
            raise
        return cls(map_file, journal)

    @property
    def n_rows(self) -> int:
        """Rows of the map with those of the journal."""
        return self._journal.n_rows

    @property
    def n_taken(self) -> int:
        """Rows that the command has taken since it began."""
        return self.n_rows - self._journal.about["first"]

    @property
    def warning(self) -> str:
        return self._journal.warning

    @property
    def tables(self) -> list[Start]:
        """The tables whose rows these are, as `append` was told."""
        return [(start, fingerprint) for start, fingerprint in self._journal.about["tables"]]

    def append(self, rows: Array, tables: Sequence[Start] = ()) -> None:
        """Write rows (n, k) to the disk: inputs, target and, if it has them, weights.

        tables : that the rows are from.
        """
        if list(tables) != self.tables:
            self._describe(tables=list(tables))
        self._journal.append([Entry(rows)])

    def new_estimator(self) -> OnlineRegressor:
        """The estimator of a map that was not yet saved."""
        estimator: OnlineRegressor = unfitted(self._journal.about)
        return estimator

    def count_lacking(self, model: EnsembleRegressor) -> int:
        """How many rows a model lacks. Raises `JournalError` if some of them are gone."""
        self._journal.check_follows(n_seen(model))
        return self.n_rows - n_seen(model)

    def learn(self, model: OnlineRegressor) -> Iterator[int]:
        """Learn the rows that a model lacks, and yield their numbers as they are learned."""
        about = self._journal.about
        for record in self._journal.records(n_seen(model)):
            rows, weights = record.rows, None
            if about["has_weights"]:
                rows, weights = rows[:, :-1], rows[:, -1]
            learn_rows(model, rows, weights, about["columns"])
            yield len(rows)

    def expect(self, data: bytes) -> None:
        """Note the bytes of a map that is about to be saved. The rows continue the file as it was, or as it will be."""
        self._expected = _digest(data)
        self._describe(maps=[self._saved, self._expected])

    def trim(self, n_saved: int) -> None:
        """Forget the first `n_saved` rows of the map, which are saved as expected."""
        self._saved = self._expected
        self._journal.trim(n_saved)

    def close(self, *, remove: bool) -> None:
        """Close it. remove : also remove its files, if the saved map has all rows."""
        self._journal.close()
        if remove:
            remove_journal(self._map_file)

    def _describe(self, **changes: Any) -> None:
        self._journal.describe({**self._journal.about, **changes})


def remove_journal(map_file: Path) -> None:
    """Remove the journal of a map, which nobody has open."""
    for file in _files(journal_of(map_file)):
        file.unlink()


def count_lacking_rows(map_file: Path, n_saved: int) -> int:
    """How many rows of the journal a map file lacks that has `n_saved` rows. No file is changed.

    Raises `JournalError` if the journal is damaged or belongs to another map.
    """
    path = journal_of(map_file)
    with TemporaryDirectory() as folder:
        for file in _files(path):
            shutil.copy(file, folder)
        try:
            journal = Journal.open(Path(folder) / path.name)
            try:
                _check_belongs(journal, map_file)
                journal.check_follows(n_saved)
                return journal.n_rows - n_saved
            finally:
                journal.close()
        except JournalError as error:
            raise JournalError(str(error).replace(folder, str(path.parent))) from error


def _files(path: Path) -> list[Path]:
    """The files of a journal that are there: the database and its write-ahead log."""
    return [file for file in (path, log_of(path)) if file.exists()]


def _check_belongs(journal: Journal, map_file: Path) -> None:
    try:
        maps, first = journal.about["maps"], journal.about["first"]
        known = {"maps": list, "first": int, "columns": list, "has_weights": bool, "tables": list}
        if any(type(journal.about[name]) is not kind for name, kind in known.items()):
            raise TypeError
        for start, fingerprint in journal.about["tables"]:
            if type(start) is not int or type(fingerprint) is not str:
                raise TypeError
        if first == 0:
            unfitted(journal.about)
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"{journal.path} is not the journal of a map; move its files away") from error
    if _fingerprint(map_file) not in maps:
        fault = "was changed by another program since" if map_file.exists() else "is missing"
        raise JournalError(
            f"{journal.path} has rows of an interrupted run, and {map_file.name} {fault}; restore the map that it was, "
            "or move the journal's files away to go on without its rows"
        )


def _fingerprint(map_file: Path) -> str | None:
    """Of the bytes of a file; None if there is none."""
    return _digest(map_file.read_bytes()) if map_file.exists() else None


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _with_seed(model: EnsembleRegressor) -> EnsembleRegressor:
    if model.get_params(deep=False).get("random_state", 0) is None:
        model.set_params(random_state=secrets.randbelow(2**31))
    return model
