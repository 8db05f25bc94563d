"""A saved map, and a journal of the rows that it lacks: of a command, of a service, or of a worker of a fleet.

Rows are in the journal, on the disk, before anybody is told that they are accepted. From time to time the map is saved;
then the journal forgets the rows that the map holds. After a kill the saved map learns the others from the journal.
Learning does not depend on how rows are split into calls, so the map is then the same to the bit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from wgpr.io.files import write_file
from wgpr.io.journal import Journal, JournalError, log_of
from wgpr.io.maps import load
from wgpr.io.rows import n_seen

# Names of the files in the folder of a store.
SNAPSHOT, JOURNAL = "snapshot.map", "journal.sqlite"

# Entry of what a journal is about: fingerprints of the files that its rows may continue.
_MAPS = "maps"


@dataclass(eq=False)
class Store:
    """The file of a map and its open journal. Use the journal from one thread at a time. n_saved : rows of the file."""

    map_file: Path
    journal: Journal
    n_saved: int

    @classmethod
    def create(
        cls, map_file: Path, path: Path, about: dict[str, Any], n_saved: int = 0, *, is_bound: bool = False
    ) -> "Store":
        """A new journal at `path`, for rows after the first `n_saved`, which the map file holds.

        about : what is kept with the rows; is_bound : other programs can change the file, and the rows must not
            continue another one.
        """
        if path.exists():
            raise FileExistsError(f"{path} has rows of an interrupted run, which would be lost; move it away")
        about = about | ({_MAPS: [_fingerprint(map_file)]} if is_bound else {})
        return cls(map_file, Journal.create(path, about, n_saved), n_saved)

    @classmethod
    def open(cls, map_file: Path, path: Path, n_saved: int) -> "Store":
        """Open a journal, and check that it is whole and goes on where the map file ends. Raises `JournalError`."""
        journal = Journal.open(path)
        try:
            maps = journal.about.get(_MAPS)
            if maps is not None and not (isinstance(maps, list) and _fingerprint(map_file) in maps):
                fault = "was changed by another program since" if map_file.exists() else "is missing"
                raise JournalError(
                    f"{path} has rows of an interrupted run, and {map_file.name} {fault}; restore the map that it was, "
                    "or move the journal's files away to go on without its rows"
                )
            journal.check_follows(n_saved)
        except BaseException:
            journal.close()
            raise
        return cls(map_file, journal, n_saved)

    @classmethod
    def in_folder(cls, folder: Path, about: Callable[[Any], dict[str, Any]]) -> tuple["Store", Any]:
        """The store of a folder, and the estimator that was saved there, None without one.

        about : says of this estimator what a journal is about, if there is none yet.
        """
        snapshot, path = folder / SNAPSHOT, folder / JOURNAL
        for name in (SNAPSHOT, JOURNAL):
            for left in folder.glob(f".????????.{name}*"):  # a file that a crash kept from getting its name
                left.unlink()
        model = load(snapshot) if snapshot.exists() else None
        n_saved = 0 if model is None else n_seen(model)
        if path.exists():
            return cls.open(snapshot, path, n_saved), model
        return cls.create(snapshot, path, about(model), n_saved), model

    def write(self, data: bytes, n_rows: int) -> None:
        """Save the map, which holds the first `n_rows` rows. The old file stays if that fails.

        Unless the journal is bound to the file, rows may be appended to it meanwhile.
        """
        if _MAPS in self.journal.about:  # the rows continue the file as it was, or as it will be
            self.journal.describe({**self.journal.about, _MAPS: [_fingerprint(self.map_file), _digest(data)]})
        write_file(self.map_file, data)
        self.n_saved = n_rows

    def trim(self) -> None:
        """Forget the rows that are saved. If that fails, they are known by their numbers."""
        self.journal.trim(self.n_saved)

    def close(self, *, remove: bool = False) -> None:
        """Close the journal. remove : also remove its files."""
        self.journal.close()
        for file in files_of(self.journal.path) if remove else ():
            file.unlink()


def files_of(path: Path) -> list[Path]:
    """The files of a journal that are there: the database and its write-ahead log."""
    return [file for file in (path, log_of(path)) if file.exists()]


def _fingerprint(map_file: Path) -> str | None:
    """Of the bytes of a file; None if there is none."""
    return _digest(map_file.read_bytes()) if map_file.exists() else None


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
