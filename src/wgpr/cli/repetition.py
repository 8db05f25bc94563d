"""Tables and streams that a map has learned before, recognised by their first rows.

A map notes of each of them how many rows it has learned, N, and fingerprints of its first K rows, as texts "N K:hash":
of the first row, of 32, 64, 128, ... rows, and of all.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from wgpr.cli.lines import Line
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array

# A table is recognised by its first rows. With fewer rows it may be the same by chance.
MIN_HEAD, MAX_HEAD = 10, 32
_MAX_NOTED = 10_000


class Fingerprints:
    """Of the first rows of a table, which come one after the other. n_rows : so far."""

    def __init__(self) -> None:
        self.n_rows, self._hash, self._marks = 0, blake2b(digest_size=8), list[str]()

    def add(self, rows: Array) -> None:
        """Take the next rows (n, k)."""
        while len(rows):
            n_next = max(MAX_HEAD, 1 << self.n_rows.bit_length()) if self.n_rows else 1
            part, rows = rows[: n_next - self.n_rows], rows[n_next - self.n_rows :]
            self._hash.update(np.ascontiguousarray(part).tobytes())
            self.n_rows += len(part)
            self._marks += [self.last] if self.n_rows == n_next else []

    def add_lines(self, lines: Iterable[Line]) -> None:
        """Take the next lines of a stream. Queries do not count."""
        if rows := [[*line.x, line.y] for line in lines if line.y is not None]:
            self.add(np.array(rows, dtype=float))

    def copy(self) -> "Fingerprints":
        other = Fingerprints()
        other.n_rows, other._hash, other._marks = self.n_rows, self._hash.copy(), [*self._marks]
        return other

    @property
    def last(self) -> str:
        """Of all rows so far, as "K:hash"."""
        return f"{self.n_rows}:{self._hash.hexdigest()}"

    @property
    def marks(self) -> list[str]:
        """Of the first row, of the first 32, 64, ... rows, and of all."""
        return list(dict.fromkeys([*self._marks, self.last]))

    def noted(self, n_learned: int, least: int = MIN_HEAD) -> list[str]:
        """What a map notes that has learned the first `n_learned` rows; nothing if these are fewer than `least`."""
        most = max(n_learned, MAX_HEAD) if n_learned >= least else 0
        return [f"{n_learned} {mark}" for mark in self.marks if int(mark.partition(":")[0]) <= most]


def begins_alike(rows: Array, learned: Iterable[str]) -> int:
    """The number of rows of a table that was learned before and begins as `rows` (n, k) do; 0 without one."""
    for n_rows, size, fingerprint in _parsed(learned):
        if min(n_rows, MIN_HEAD) <= size <= min(len(rows), MAX_HEAD):
            head = Fingerprints()
            head.add(rows[:size])
            if head.last == fingerprint:
                return n_rows
    return 0


def note_tables(model: EnsembleRegressor, noted: Sequence[str], replaced: Sequence[str] = ()) -> None:
    """Note tables in a model that it has learned. replaced : what was noted of them before.

    Of a table that begins as these do, the first fingerprint and the last are enough.
    """
    before = [each for each in getattr(model, "_learned_tables", ()) if each not in replaced]
    marks = {mark for _, _, mark in _parsed(noted)}
    kept = [f"{n_rows} {mark}" for n_rows, size, mark in _parsed(before) if size in (1, n_rows) or mark not in marks]
    model._learned_tables = tuple(dict.fromkeys([*kept, *noted]))[-_MAX_NOTED:]


class Replay:
    """Tells rows of a stream that a map has learned before from new ones.

    Such rows are at the beginning of the stream, as if a file is piped again that has grown; other tables may follow.
    Rows that may be known are held until the fingerprint of all rows up to them says so. A single row that comes again
    is new.

    n_known : rows that were recognised; held : rows that may be; is_amid : whether more were to follow these.
    """

    def __init__(self, learned: Iterable[str]) -> None:
        self._tables: dict[int, dict[int, set[str]]] = {}  # by the number of rows, and by the size of a beginning
        for n_rows, size, fingerprint in _parsed(learned):
            self._tables.setdefault(n_rows, {}).setdefault(size, set()).add(fingerprint)
        self.n_known, self.held = 0, list[Line]()
        self._begin()

    def _begin(self) -> None:
        """A table may begin with the next row."""
        self._rows, self._n_found = Fingerprints(), 0
        self._possible = {n_rows for n_rows, marks in self._tables.items() if n_rows >= MIN_HEAD and 1 in marks}

    @property
    def is_amid(self) -> bool:
        return self._n_found > 1

    def split(self, lines: Iterable[Line]) -> tuple[list[Line], list[Line]]:
        """Lines that are known, and those that are new or queries. Others are held."""
        known: list[Line] = []
        new: list[Line] = []
        for line in lines:
            if line.y is None or not self._possible:
                new.append(line)
                continue
            self.held.append(line)
            self._rows.add_lines([line])
            if self._are_known():
                known += self.held
                self.n_known, self.held = self.n_known + len(self.held), []
                if not self._possible:
                    self._begin()
            elif not self._possible:
                new += self.released()
        return known, new

    def released(self) -> list[Line]:
        """The rows that were held. They are new, and so are all that follow."""
        released, self.held, self._possible = self.held, [], set()
        return released

    def _are_known(self) -> bool:
        """Whether all rows so far are the beginning of a table. Tables that begin otherwise are no longer possible."""
        n_rows = self._rows.n_rows
        marks = {each: self._tables[each].get(n_rows, set()) for each in self._possible}
        last = self._rows.last if any(marks.values()) else ""
        alike = {each for each, found in marks.items() if last in found}
        self._possible = {each for each in marks if each > n_rows and (each in alike or not marks[each])}
        self._n_found += bool(alike)
        return bool(alike) and n_rows >= MIN_HEAD


def _parsed(learned: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Rows that were learned, rows of the fingerprint, and the fingerprint itself, of each that a map has noted."""
    for n_rows, fingerprint in map(str.split, learned):
        yield int(n_rows), int(fingerprint.partition(":")[0]), fingerprint
