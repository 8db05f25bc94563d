"""Journals for tests: rows, a full disk, files as a kill leaves them, and what may come out of damaged ones."""

import resource
import shutil
from contextlib import contextmanager

import numpy as np

from wgpr.io.container import MapError
from wgpr.io.journal import Entry, Journal, JournalError
from wgpr.service.livemap import open_folder

JOURNAL, LOG = "journal.sqlite", "journal.sqlite-wal"


def random_rows(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3))


def written(path, rows, n_each=5):
    """A new journal with rows (n, 3), `n_each` in a commit, and a key for each commit."""
    journal = Journal.create(path, {"target": "depth"})
    for first in range(0, len(rows), n_each):
        journal.append([Entry(rows[first : first + n_each], f"key {first}")])
    return journal


def contents(journal, after=0):
    """Number of rows before the first record, and the rows (n, 3) of all records, but for the first `after`."""
    records = list(journal.records(after))
    first = records[0].first if records else journal.n_rows
    return first, np.concatenate([np.empty((0, 3)), *(record.rows for record in records)])


def as_killed(folder, copy):
    """A copy of the folder of an open journal: what is there if its process is killed now."""
    shutil.copytree(folder, copy)
    return copy


@contextmanager
def no_room(n_bytes):
    """No file can become longer than `n_bytes` during the block."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def damage(folder, rng, ways):
    """Damage one file of a folder in one way, at a random place. Returns the name of the file and of the way."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)
    path, way = files[rng.integers(len(files))], ways[rng.integers(len(ways))]
    path.write_bytes(way(path.read_bytes(), rng))
    return path.name, way.__name__


def outcome_of_damage(folder, rows, snapshot=None):
    """What comes out of a damaged map folder: "refused", "whole" or "prefix". All else is an AssertionError.

    rows : (n, 3), all that the map was given; snapshot : bytes of its saved map, None without one.
    """
    try:
        opened = open_folder(folder)
    except (JournalError, MapError):
        return "refused"
    journal = opened.store.journal
    try:
        first, found = contents(journal)
        n_saved = 0 if opened.model is None else opened.model.n_samples_seen_
        assert first <= n_saved, "rows are missing between the saved map and the journal"
        assert first + len(found) == journal.n_rows <= len(rows), "rows are missing at the end, or too many"
        assert np.array_equal(found, rows[first : journal.n_rows]), "other rows"
        assert snapshot is None or opened.model.to_bytes() == snapshot, "another saved map"
    finally:
        journal.close()
    return "whole" if journal.n_rows == len(rows) else "prefix"
