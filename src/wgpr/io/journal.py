"""A journal of rows: what was accepted is on the disk before anybody is told so, and until a saved map holds it.

The journal is an SQLite database in WAL mode with `synchronous=FULL` and one connection. Each record has a CRC. Rows
are counted from the first that its map has ever seen, so a saved map, which knows how many rows it has seen, says
which records are still to be learned.

A commit that a crash cut off is not in the journal, and nobody was told that it is. Any other damage raises a
`JournalError`: rows are those that were accepted, in their order, or there are none.
"""

import json
import re
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wgpr.gp.linalg import Array
from wgpr.io.files import replace_file

# Keys of requests that are remembered, the latest ones.
MAX_KEYS = 100_000

# Bytes of the write-ahead log after which it is copied into the database.
_MAX_WAL = 4 * 2**20
_PAGE = 4096

_SCHEMA = """
CREATE TABLE about (id INTEGER PRIMARY KEY CHECK (id = 0), text TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 0), n_rows INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE records (first INTEGER PRIMARY KEY, n_columns INTEGER NOT NULL, rows BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE keys (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL, last INTEGER NOT NULL,
    n_rows INTEGER NOT NULL, crc INTEGER NOT NULL);
"""

_REMEDY = "restore both from a backup, or move the journal's files away to go on with what the map has"

# Errors of SQLite that leave the journal as it was: there was no room to write.
_NO_ROOM = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_TOOBIG"}


class JournalError(ValueError):
    """A journal that is damaged, or does not fit its map."""


class JournalFullError(OSError):
    """There is no room for more rows. Those before are safe, and more can follow when there is room."""


class JournalFailedError(OSError):
    """The disk has failed. It is not known whether the latest rows are on it, so no more are taken."""


class KeyConflictError(ValueError):
    """A key that was used before with other rows."""


class Entry(NamedTuple):
    """Rows (n, k) to be appended, the key of their request, None without one, and what is known of their stream."""

    rows: Array
    key: str | None = None
    stream: str = ""


class Receipt(NamedTuple):
    """n_rows : accepted with this request; last : number of all rows up to these; is_new : not known before."""

    n_rows: int
    last: int
    is_new: bool = True


class Record(NamedTuple):
    """Rows (n, k) in the journal. first : number of rows before them."""

    first: int
    rows: Array

    @property
    def last(self) -> int:
        return self.first + len(self.rows)


@dataclass(eq=False)
class Journal:
    """An open journal. Use it from one thread at a time.

    about : what the creator has written about it.
    n_rows : number of rows accepted so far, from the first row of the map.
    warning : what was found and mended when it was opened, empty if there was nothing.
    """

    path: Path
    about: dict[str, Any]
    n_rows: int
    warning: str
    _connection: sqlite3.Connection
    _has_failed: bool = False

    @classmethod
    def create(cls, path: Path, about: dict[str, Any], n_rows: int = 0) -> "Journal":
        """A new journal for a map that has seen `n_rows`. It has its name when it is complete."""
        log = log_of(path)
        if _size(log):  # SQLite would take its commits for those of the new journal
            raise JournalError(f"{log} is left of another journal; move it away, or put {path.name} back")
        try:
            with replace_file(path) as temporary, closing(_connect(temporary)) as connection:
                connection.execute("PRAGMA synchronous = OFF")  # `replace_file` waits for the disk
                connection.executescript(_SCHEMA)
                text = json.dumps(about, allow_nan=False)
                connection.execute("INSERT INTO about VALUES (0, ?, ?)", (text, _crc(text)))
                connection.execute("INSERT INTO head VALUES (0, ?, ?)", (n_rows, _crc("head", n_rows)))
                connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise _write_error(path, error) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """Open a journal and check all of it. Raises `JournalError` if it is damaged."""
        if not path.exists():
            raise FileNotFoundError(f"there is no journal {path}")
        warning = _check_write_ahead_log(path)
        with _naming_damage(path):
            connection = _connect(path)
            try:
                about, n_rows = _checked_contents(connection)
            except BaseException:
                connection.close()
                raise
        journal = cls(path, about, n_rows, warning, connection)
        journal._checkpoint()
        return journal

    def check_follows(self, n_saved: int) -> None:
        """Raise `JournalError` unless rows go on where a saved map of `n_saved` rows ends."""
        if n_saved > self.n_rows:
            raise JournalError(f"{self.path} ends at row {self.n_rows:,} and its map has {n_saved:,}; {_REMEDY}")
        first = self._connection.execute("SELECT min(first) FROM records").fetchone()[0]
        if n_saved < self.n_rows and (first is None or first > n_saved):
            raise JournalError(f"{self.path} lacks rows after the first {n_saved:,}, which its map has; {_REMEDY}")

    def append(self, entries: Sequence[Entry], about: dict[str, Any] | None = None) -> list[Receipt | KeyConflictError]:
        """Write rows to the disk, all or none, and return when they are there.

        Rows with a key that was seen are not written again.

        about : what is written about the journal from now on, if that changes.
        """
        if self._has_failed:
            raise JournalFailedError(f"{self.path.name} has failed; repair the disk and start again")
        last = self.n_rows
        with self._transaction():
            receipts: list[Receipt | KeyConflictError] = []
            for entry in entries:
                receipts.append(self._insert(entry, last))
                last = max(last, getattr(receipts[-1], "last", 0))
            if last > self.n_rows:
                self._connection.execute("UPDATE head SET n_rows = ?, crc = ?", (last, _crc("head", last)))
            if about is not None:
                text = json.dumps(about, allow_nan=False)
                self._connection.execute("UPDATE about SET text = ?, crc = ?", (text, _crc(text)))
        self.n_rows, self.about = last, about or self.about
        if _size(log_of(self.path)) > _MAX_WAL:
            self._checkpoint()
        return receipts

    def describe(self, about: dict[str, Any]) -> None:
        """Replace what is written about the journal."""
        if not self._has_failed:
            self._checkpoint()  # makes room if the log has filled the disk
        self.append([], about)

    def records(self, after: int = 0) -> Iterator[Record]:
        """The records with rows beyond the first `after`, in their order."""
        first = self._connection.execute("SELECT max(first) FROM records WHERE first <= ?", (after,)).fetchone()[0]
        query = "SELECT first, n_columns, rows, crc FROM records WHERE first >= ? ORDER BY first"
        for values in self._connection.execute(query, (first or 0,)):
            record = _decoded(*values)
            if record.last > after:
                n_known = max(0, after - record.first)
                yield Record(record.first + n_known, record.rows[n_known:])

    def trim(self, n_saved: int) -> None:
        """Remove the records of the first `n_saved` rows, which a saved map holds. Their keys stay."""
        if self._has_failed:
            return
        with self._transaction():
            # A record ends where the next one begins.
            kept = "SELECT max(first) FROM records WHERE first <= ?"
            (first,) = self._connection.execute(kept, (n_saved,)).fetchone()
            if self.n_rows <= n_saved:
                self._connection.execute("DELETE FROM records")
            elif first is not None:
                self._connection.execute("DELETE FROM records WHERE first < ?", (first,))
            self._connection.execute("DELETE FROM keys WHERE number <= (SELECT max(number) FROM keys) - ?", (MAX_KEYS,))
        self._checkpoint()

    def close(self) -> None:
        """Close it. What was committed stays, also if the disk has failed."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def _insert(self, entry: Entry, last: int) -> Receipt | KeyConflictError:
        rows = np.ascontiguousarray(entry.rows, dtype="<f8")
        data = rows.tobytes()
        if entry.key is not None:
            digest = blake2b(data, digest_size=16).digest()
            found = self._connection.execute("SELECT digest, last, n_rows FROM keys WHERE key = ?", (entry.key,))
            for known, known_last, n_known in found:
                if known != digest:
                    return KeyConflictError("this key was used before with other rows; use a new key for new rows")
                return Receipt(n_known, known_last, is_new=False)
        values = (last, rows.shape[1], data)
        if len(rows):
            self._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (*values, _crc(*values)))
        receipt = Receipt(len(rows), last + len(rows))
        if entry.key is not None:
            about_key = (entry.key, digest, receipt.last, receipt.n_rows)
            command = "INSERT INTO keys (key, digest, last, n_rows, crc) VALUES (?, ?, ?, ?, ?)"
            self._connection.execute(command, (*about_key, _crc(*about_key)))
        return receipt

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what the block does, and wait for the disk. If it fails or is interrupted, nothing is done."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise self._failure(error) from error
            raise

    def _checkpoint(self) -> None:
        """Copy the write-ahead log into the database. Without room this is left for later."""
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            if isinstance(failure := self._failure(error), JournalFailedError):
                raise failure from error

    def _failure(self, error: sqlite3.Error) -> OSError:
        failure = _write_error(self.path, error)
        self._has_failed = self._has_failed or isinstance(failure, JournalFailedError)
        return failure


def _write_error(path: Path, error: sqlite3.Error) -> JournalFullError | JournalFailedError:
    if getattr(error, "sqlite_errorname", "") in _NO_ROOM:
        return JournalFullError(f"there is no room to write {path.name} ({error}); make room and send it again")
    return JournalFailedError(f"{path.name} cannot be written ({error}); repair the disk and start again")


def log_of(path: Path) -> Path:
    """The write-ahead log of a journal."""
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    """Bytes of a file, 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # `_checkpoint` does it and sees whether it fails
    except BaseException:
        connection.close()  # which ends its lock
        raise
    return connection


def _checked_contents(connection: sqlite3.Connection) -> tuple[dict[str, Any], int]:
    """What the journal is about, and its number of rows; raises an error if anything in it is not as it was written."""
    (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    _require(state == "ok", state)
    tables = connection.execute("SELECT sql || ';' FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    _require({text for (text,) in tables} == {*re.findall("CREATE.*?;", _SCHEMA, re.DOTALL)}, "its tables are damaged")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE head SET crc = crc")  # fails if nothing can be written
    connection.execute("ROLLBACK")
    ((text, crc),) = connection.execute("SELECT text, crc FROM about").fetchall()
    _require(crc == _crc(text), "its description is damaged")
    ((n_rows, crc),) = connection.execute("SELECT n_rows, crc FROM head").fetchall()
    _require(crc == _crc("head", n_rows), "its number of rows is damaged")
    last = None
    for values in connection.execute("SELECT first, n_columns, rows, crc FROM records ORDER BY first"):
        record = _decoded(*values)
        _require(last in (None, record.first), f"rows before row {record.first:,} are missing")
        last = record.last
    _require(last in (None, n_rows), f"rows before row {n_rows:,} are missing")
    for *values, crc in connection.execute("SELECT key, digest, last, n_rows, crc FROM keys"):
        _require(crc == _crc(*values), "the key of a request is damaged")
    about = json.loads(text)
    _require(isinstance(about, dict), "its description is damaged")
    json.dumps(about, allow_nan=False)  # raises a ValueError for what could not be written again
    return about, n_rows


def _decoded(first: int, n_columns: int, data: bytes, crc: int) -> Record:
    _require(crc == _crc(first, n_columns, data), f"the record of row {first} is damaged")
    return Record(first, np.frombuffer(data, dtype="<f8").reshape(-1, n_columns).astype(np.float64))


def _crc(*values: Any) -> int:
    """CRC-32 of values and of their order."""
    crc = 0
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        crc = zlib.crc32(data, zlib.crc32(b"%d:" % len(data), crc))
    return crc


def _require(condition: bool, fault: str) -> None:
    if not condition:
        raise JournalError(fault)


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    """Errors of SQLite and of contents say which journal is damaged and what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise BlockingIOError(f"another program uses {path}; wait until it ends") from error
        raise JournalError(f"{path} cannot be opened ({error}); {_REMEDY}") from error
    except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:  # JSON may be nested deeply
        raise JournalError(f"{path} is damaged ({error}); {_REMEDY}") from error


def _check_write_ahead_log(path: Path) -> str:
    """Find out whether commits were cut off at the end of the log, which is said, or damaged before, which is an error.

    SQLite ignores the log from the first damaged frame on. Each commit is on the disk before the next one begins. So
    a crash can damage one commit, the last; if there are two, the damage has another cause.
    """
    log = log_of(path)
    data = log.read_bytes() if log.exists() else b""
    sums = _checksum(data[:24], (0, 0))
    is_intact = data[24:32] == struct.pack(">II", *sums)
    salts = data[16:24] if is_intact else data[40:48]
    n_cut, n_damaged = 0, 0  # frames behind the last whole commit, and damaged commits
    for start in range(32, len(data), 24 + _PAGE):
        header, page = data[start : start + 24], data[start + 24 : start + 24 + _PAGE]
        is_commit = header[4:8] != bytes(4)
        if is_intact:
            sums = _checksum(header[:8] + page, sums)
            is_intact = header[8:16] == salts and header[16:24] == struct.pack(">II", *sums)
        if header[8:16] == salts:  # other frames are left from before the log was begun anew
            n_cut = 0 if is_intact and is_commit else n_cut + 1
            n_damaged += is_commit and not is_intact
    if n_damaged > 1:
        raise JournalError(f"{log} is damaged before its end; {_REMEDY}")
    return f"{path}: the last commit is not complete and was cut off" if n_cut else ""


def _checksum(data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """The check sums of SQLite's write-ahead log, over words of 32 bits."""
    first, second = sums
    for word, next_word in struct.iter_unpack("<II", data[: len(data) // 8 * 8]):
        first = (first + word + second) & 0xFFFFFFFF
        second = (second + next_word + first) & 0xFFFFFFFF
    return first, second
