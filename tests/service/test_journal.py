"""The journal: what was acknowledged is there, in its order, or the journal is refused."""

import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from damage import flipped_bit, overwritten, truncated
from journals import JOURNAL, LOG, as_killed, contents, damage, no_room, random_rows, written
from wgpr.io import journal as journals
from wgpr.io.journal import (
    Entry,
    Journal,
    JournalError,
    JournalFailedError,
    JournalFullError,
    KeyConflictError,
    Receipt,
    _crc,
)

ROWS = random_rows()
N = len(ROWS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / JOURNAL


@pytest.fixture(scope="module")
def left_by_a_kill(tmp_path_factory):
    """The folder that a kill leaves after all of `ROWS` were written: a database, and a log with all commits."""
    folder = tmp_path_factory.mktemp("journal")
    journal = written(folder / JOURNAL, ROWS)
    copy = as_killed(folder, tmp_path_factory.mktemp("killed") / "copy")
    journal.close()
    return copy


@pytest.fixture
def killed(left_by_a_kill, tmp_path):
    return as_killed(left_by_a_kill, tmp_path / "killed")


@pytest.fixture
def journal(killed, path):
    """With all of `ROWS`, five in a commit."""
    for name in (JOURNAL, LOG):
        shutil.copy(killed / name, path.parent)
    journal = Journal.open(path)
    yield journal
    journal.close()


def assert_has(journal, rows, first=0):
    """Exactly these rows, after `first` others, and as many in all."""
    found = contents(journal)
    assert found[0] == first
    np.testing.assert_array_equal(found[1], rows)
    assert journal.n_rows == first + len(rows)


def reopened(journal):
    journal.close()
    return Journal.open(journal.path)


# Rows


def test_rows_are_there_after_it_was_closed(journal):
    again = reopened(journal)
    assert_has(again, ROWS)
    assert (again.about, again.warning) == ({"target": "depth"}, "")
    again.close()


def test_rows_are_there_after_a_kill(killed):
    assert commit_ends(killed / LOG)
    journal = Journal.open(killed / JOURNAL)
    assert_has(journal, ROWS)
    assert journal.warning == ""
    journal.close()


def test_an_acknowledged_commit_was_synced_to_the_disk(journal):
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_records_after_a_row_begin_at_that_row(journal):
    for after in range(N + 1):
        records = list(journal.records(after))
        np.testing.assert_array_equal(contents(journal, after)[1], ROWS[after:])
        assert [record.first for record in records] == [after, *(record.last for record in records)][: len(records)]


def test_receipts_number_the_rows(path):
    journal = Journal.create(path, {}, n_rows=100)
    receipts = journal.append([Entry(ROWS[:2]), Entry(ROWS[2:5])])
    assert receipts == [Receipt(2, 102), Receipt(3, 105)]
    assert_has(journal, ROWS[:5], first=100)
    journal.close()


def test_special_values_come_back_to_the_bit(path):
    rows = np.array([[0.1 + 0.2, -0.0, 5e-324], [1.7976931348623157e308, np.nextafter(1.0, 2.0), 1e-300]])
    journal = written(path, rows)
    assert contents(journal)[1].tobytes() == rows.tobytes()
    journal.close()


def test_rows_that_are_no_contiguous_array_are_written_as_they_look(path):
    journal = Journal.create(path, {})
    journal.append([Entry(ROWS.T[:, ::2].T)])
    assert_has(journal, ROWS[::2])
    journal.close()


def test_no_rows_are_no_record(journal):
    assert journal.append([Entry(np.empty((0, 3)), "nothing")]) == [Receipt(0, N)]
    assert journal.append([Entry(ROWS[:1])]) == [Receipt(1, N + 1)]
    assert_has(reopened(journal), np.concatenate([ROWS, ROWS[:1]]))


def test_the_log_is_copied_into_the_database_before_it_becomes_large(path, monkeypatch):
    monkeypatch.setattr(journals, "_MAX_WAL", 100_000)
    journal = Journal.create(path, {})
    largest = 0
    for first in range(0, N, 2):
        journal.append([Entry(ROWS[first : first + 2])])
        largest = max(largest, path.with_name(LOG).stat().st_size)
    assert 50_000 < largest < 150_000
    assert_has(journal, ROWS)
    journal.close()


# Trimming


@pytest.mark.parametrize("n_saved", [0, 3, 5, 12, N - 1, N])
def test_trimming_keeps_what_was_not_saved(journal, n_saved):
    journal.trim(n_saved)
    journal.check_follows(n_saved)
    first, _ = contents(journal)
    assert n_saved - 5 < first <= n_saved
    again = reopened(journal)
    assert_has(again, ROWS[first:], first=first)
    np.testing.assert_array_equal(contents(again, after=n_saved)[1], ROWS[n_saved:])
    again.close()


def test_it_goes_on_after_it_was_trimmed(journal):
    journal.trim(N)
    journal.append([Entry(ROWS[:4])])
    assert_has(reopened(journal), ROWS[:4], first=N)


def test_trimmed_rows_leave_no_room_behind(journal):
    sizes = []
    for _ in range(5):
        for first in range(0, N, 5):
            journal.append([Entry(ROWS[first : first + 5])])
        journal.trim(journal.n_rows)
        sizes.append(journal.path.stat().st_size)
    assert len(set(sizes)) == 1


def test_the_log_is_empty_after_trimming(journal):
    journal.trim(10)
    assert journal.path.with_name(LOG).stat().st_size == 0


def test_only_the_latest_keys_are_kept(journal, monkeypatch):
    monkeypatch.setattr(journals, "MAX_KEYS", 2)
    journal.trim(0)
    oldest, latest = journal.append([Entry(ROWS[:5], "key 0"), Entry(ROWS[-5:], f"key {N - 5}")])
    assert oldest.is_new
    assert not latest.is_new


def test_a_saved_map_that_the_journal_follows(journal):
    for n_saved in (0, 1, N):
        journal.check_follows(n_saved)
    journal.trim(20)
    for n_saved in (20, 21, N):
        journal.check_follows(n_saved)


def test_a_saved_map_that_the_journal_does_not_follow(journal):
    with pytest.raises(JournalError, match=f"ends at row {N} and its map has {N + 1}; restore both from a backup"):
        journal.check_follows(N + 1)
    journal.trim(20)
    with pytest.raises(JournalError, match="lacks rows after the first 19, which its map has; restore both"):
        journal.check_follows(19)
    journal.trim(N)
    with pytest.raises(JournalError, match=f"lacks rows after the first {N - 1}"):
        journal.check_follows(N - 1)


# Keys


def test_a_key_that_was_seen_gives_the_first_receipt(journal):
    again = journal.append([Entry(ROWS[5:10], "key 5")])
    assert again == [Receipt(5, 10, is_new=False)]
    assert_has(journal, ROWS)


def test_keys_are_known_after_a_restart_and_after_trimming(journal):
    journal.trim(N)
    again = reopened(journal)
    assert again.append([Entry(ROWS[:5], "key 0")]) == [Receipt(5, 5, is_new=False)]
    assert again.n_rows == N
    again.close()


def test_a_key_with_other_rows_is_refused_and_the_others_are_written(journal):
    new, conflict, other = journal.append([Entry(ROWS[:1]), Entry(ROWS[:5] + 1.0, "key 0"), Entry(ROWS[1:3], "new")])
    assert (new, other) == (Receipt(1, N + 1), Receipt(2, N + 3))
    assert isinstance(conflict, KeyConflictError)
    assert "use a new key" in str(conflict)
    assert_has(reopened(journal), np.concatenate([ROWS, ROWS[:3]]))


def test_rows_of_another_shape_conflict_with_the_key(journal):
    (conflict,) = journal.append([Entry(ROWS[:4], "key 0")])
    assert isinstance(conflict, KeyConflictError)


def test_the_same_key_twice_in_one_commit(path):
    journal = Journal.create(path, {})
    receipts = journal.append([Entry(ROWS[:3], "a"), Entry(ROWS[:3], "a"), Entry(ROWS[3:4], "a"), Entry(ROWS[3:5])])
    assert receipts[:2] == [Receipt(3, 3), Receipt(3, 3, is_new=False)]
    assert isinstance(receipts[2], KeyConflictError)
    assert receipts[3] == Receipt(2, 5)
    assert_has(reopened(journal), ROWS[:5])


def test_rows_without_a_key_are_always_new(journal):
    journal.append([Entry(ROWS[:5]), Entry(ROWS[:5])])
    assert journal.n_rows == N + 10


# Damage


def frame_starts(log):
    return list(range(32, log.stat().st_size, 24 + 4096))


def commit_ends(log):
    """Where commits end in the log; header and page of a frame are 4120 bytes, and only commits have a size."""
    data = log.read_bytes()
    return [start + 4120 for start in frame_starts(log) if data[start + 4 : start + 8] != bytes(4)]


@pytest.mark.parametrize("place", ["one byte", "a page", "within its first frame"])
def test_a_torn_tail_is_cut_with_a_warning(killed, place):
    log = killed / LOG
    before, end = commit_ends(log)[-2:]
    cut = {"one byte": end - 1, "a page": end - 4120, "within its first frame": before + 100}[place]
    assert before < cut < end
    log.write_bytes(log.read_bytes()[:cut])
    journal = Journal.open(killed / JOURNAL)
    assert_has(journal, ROWS[:-5])
    assert "the last commit is not complete and was cut off" in journal.warning
    journal.append([Entry(ROWS[-5:], f"key {N - 5}")])
    again = reopened(journal)
    assert_has(again, ROWS)
    assert again.warning == ""
    again.close()


@pytest.mark.parametrize("tail", [bytes, np.random.default_rng(0).bytes], ids=["zeros", "garbage"])
def test_a_torn_tail_of_other_bytes_is_cut_too(killed, tail):
    log = killed / LOG
    before, end = commit_ends(log)[-2:]
    log.write_bytes(log.read_bytes()[:before] + tail(end - before))
    journal = Journal.open(killed / JOURNAL)
    assert_has(journal, ROWS[:-5])
    journal.close()


def test_damage_in_the_middle_of_the_log_is_refused_with_a_remedy(killed):
    log = killed / LOG
    data = bytearray(log.read_bytes())
    data[commit_ends(log)[3] + 500] ^= 1
    log.write_bytes(data)
    with pytest.raises(JournalError, match=r"wal is damaged before its end; restore both from a backup, or move"):
        Journal.open(killed / JOURNAL)
    assert log.read_bytes() == data, "a refused journal is left as it is"


def test_damage_in_the_database_is_refused_with_a_remedy(journal):
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[data.index(ROWS[30].tobytes())] ^= 1
    journal.path.write_bytes(data)
    with pytest.raises(JournalError, match=r"is damaged \(the record of row 30 is damaged\); restore both"):
        Journal.open(journal.path)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("DELETE FROM records WHERE first = 10", "rows before row 15 are missing"),
        ("DELETE FROM records WHERE first = 55", "rows before row 60 are missing"),
        ("UPDATE head SET n_rows = 55", "its number of rows is damaged"),
        ("UPDATE about SET text = '{}'", "its description is damaged"),
        ("UPDATE keys SET last = 3 WHERE key = 'key 0'", "the key of a request is damaged"),
        ("DELETE FROM head", "is damaged"),
        ("DROP TABLE keys", "its tables are damaged"),
        ("ALTER TABLE keys RENAME COLUMN number TO nunber", "its tables are damaged"),
    ],
)
def test_contents_that_somebody_edited_are_refused(journal, command, fault):
    journal.close()
    connection = sqlite3.connect(journal.path, isolation_level=None)
    connection.execute(command)
    connection.close()
    with pytest.raises(JournalError, match=fault):
        Journal.open(journal.path)


@pytest.mark.parametrize("value", ["NaN", "1e999", "[" * 100_000 + "]" * 100_000])
def test_a_description_that_could_not_have_been_written_is_refused(journal, value):
    journal.close()
    text = f'{{"target": {value}}}'
    connection = sqlite3.connect(journal.path, isolation_level=None)
    connection.execute("UPDATE about SET text = ?, crc = ?", (text, _crc(text)))
    connection.close()
    with pytest.raises(JournalError, match=f"{journal.path.name} is damaged"):
        Journal.open(journal.path)


def test_a_database_that_cannot_be_written_is_refused(journal):
    """Its version says that it is of a later SQLite, which allows reading only."""
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[18] = 3
    journal.path.write_bytes(data)
    with pytest.raises(JournalError, match="readonly"):
        Journal.open(journal.path)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"east,north,depth\n1,2,3\n" * 300])
def test_another_file_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(JournalError, match=str(path)):
        Journal.open(path)


def test_a_file_that_was_refused_is_not_held(killed):
    path = killed / JOURNAL
    path.write_bytes(b"x" * 5000)
    refusals = []  # tracebacks keep what was not closed
    for _ in range(2):
        with pytest.raises(JournalError, match="not a database") as refusal:
            Journal.open(path)
        refusals.append(refusal)


def test_a_missing_journal_is_no_empty_one(path):
    with pytest.raises(FileNotFoundError, match="there is no journal"):
        Journal.open(path)
    assert not path.exists()


def test_a_log_of_another_journal_does_not_get_into_a_new_one(killed):
    (killed / JOURNAL).unlink()
    with pytest.raises(JournalError, match="wal is left of another journal; move it away"):
        Journal.create(killed / JOURNAL, {})


@pytest.mark.parametrize("is_killed", [False, True])
def test_files_damaged_at_random_places_give_a_prefix_or_are_refused(journal, tmp_path, is_killed):
    journal.trim(13)
    for first in (0, 7, 14):
        journal.append([Entry(ROWS[first : first + 7])])
    rows = np.concatenate([ROWS, ROWS[:21]])
    if not is_killed:
        journal.close()
    original = as_killed(journal.path.parent, tmp_path / "original")
    rng, outcomes = np.random.default_rng(0), set()
    for _ in range(75):
        folder = as_killed(original, tmp_path / "damaged")
        damage(folder, rng, [flipped_bit, truncated, overwritten])
        outcomes.add(outcome_of_journal(folder / JOURNAL, rows))
        shutil.rmtree(folder)
    assert outcomes == ({"refused", "whole", "prefix"} if is_killed else {"refused", "whole"})


def outcome_of_journal(path, rows):
    try:
        journal = Journal.open(path)
    except JournalError:
        return "refused"
    first, found = contents(journal)
    journal.close()
    np.testing.assert_array_equal(found, rows[first : journal.n_rows])
    assert first in (10, 13), "other rows were trimmed"
    return "whole" if journal.n_rows == len(rows) else "prefix"


# A disk that is full or fails


def test_a_full_disk_refuses_rows_and_loses_none(journal):
    n_log = journal.path.with_name(LOG).stat().st_size
    with no_room(n_log + 3000):
        for _ in range(3):
            with pytest.raises(JournalFullError, match=r"there is no room to write .*; make room and send it again"):
                journal.append([Entry(ROWS, "large")])
        assert_has(journal, ROWS)
    assert journal.append([Entry(ROWS, "large")]) == [Receipt(N, 2 * N)]
    assert_has(reopened(journal), np.concatenate([ROWS, ROWS]))


def test_a_kill_while_the_disk_is_full_loses_nothing(journal, tmp_path):
    """Some pages of the refused commit are in the log."""
    n_log = journal.path.with_name(LOG).stat().st_size
    with no_room(n_log + 3 * 4120), pytest.raises(JournalFullError):
        journal.append([Entry(random_rows(2000))])
    assert journal.path.with_name(LOG).stat().st_size > n_log
    copy = Journal.open(as_killed(journal.path.parent, tmp_path / "copy") / JOURNAL)
    assert_has(copy, ROWS)
    copy.close()
    journal.append([Entry(ROWS[:1])])
    copy = Journal.open(as_killed(journal.path.parent, tmp_path / "copy again") / JOURNAL)
    assert_has(copy, np.concatenate([ROWS, ROWS[:1]]))
    copy.close()


def test_a_full_disk_does_not_keep_the_journal_from_being_opened(path, tmp_path):
    """The log cannot be copied into the database, which is left for later."""
    rows = random_rows(1000)
    journal = written(path, rows, n_each=500)
    killed = as_killed(path.parent, tmp_path / "killed")
    journal.close()
    with no_room((killed / JOURNAL).stat().st_size):
        journal = Journal.open(killed / JOURNAL)
        assert_has(journal, rows)
        with pytest.raises(JournalFullError):
            journal.append([Entry(ROWS)])
    journal.append([Entry(ROWS)])
    assert_has(reopened(journal), np.concatenate([rows, ROWS]))


def test_a_full_disk_while_trimming_keeps_all_records(journal):
    with no_room(journal.path.with_name(LOG).stat().st_size), pytest.raises(JournalFullError):
        journal.trim(N)
    assert_has(reopened(journal), ROWS)


def test_no_journal_is_made_on_a_full_disk(path):
    with no_room(1000), pytest.raises(JournalFullError, match="make room"):
        Journal.create(path, {})
    assert not path.exists()


class FailingDisk:
    """A connection whose next `command` fails, as SQLite tells that a sync has failed."""

    def __init__(self, connection, command):
        self._connection, self._command = connection, command

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, command, *values):
        if command.startswith(self._command):
            self._command = "nothing any more"
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error
        return self._connection.execute(command, *values)


def test_nothing_is_acknowledged_after_the_disk_has_failed(journal):
    journal._connection = FailingDisk(journal._connection, "COMMIT")
    with pytest.raises(JournalFailedError, match=r"cannot be written .*; repair the disk and start again"):
        journal.append([Entry(ROWS[:5])])
    for entry in (Entry(ROWS[:5]), Entry(ROWS[:5], "key 0")):
        with pytest.raises(JournalFailedError, match="has failed; repair the disk and start again"):
            journal.append([entry])
    journal.trim(N)
    assert_has(reopened(journal), ROWS)


def test_a_disk_that_fails_while_the_log_is_copied(journal, monkeypatch):
    """The commit itself is on the disk, but nobody is told so."""
    monkeypatch.setattr(journals, "_MAX_WAL", 0)
    journal._connection = FailingDisk(journal._connection, "PRAGMA wal_checkpoint")
    with pytest.raises(JournalFailedError):
        journal.append([Entry(ROWS[:5])])
    with pytest.raises(JournalFailedError):
        journal.append([Entry(ROWS[5:10])])
    assert_has(reopened(journal), np.concatenate([ROWS, ROWS[:5]]))


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_commit_is_undone(journal, monkeypatch, interruption):
    def interrupted(entry, last):
        Journal._insert(journal, entry, last)
        raise interruption

    monkeypatch.setattr(journal, "_insert", interrupted)
    with pytest.raises(interruption):
        journal.append([Entry(ROWS[:5])])
    monkeypatch.undo()
    assert journal.append([Entry(ROWS[:5])]) == [Receipt(5, N + 5)]
    assert_has(reopened(journal), np.concatenate([ROWS, ROWS[:5]]))


# Other programs

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("SELECT * FROM head").fetchall()
print("held", flush=True)
input()
"""


def test_a_second_program_is_told(journal):
    journal.close()
    command = [sys.executable, "-c", HOLD, journal.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match=r"another program uses .*; wait until it ends"):
            Journal.open(journal.path)
        other.communicate("\n")
    Journal.open(journal.path).close()


def test_an_open_journal_is_held(journal):
    command = [sys.executable, "-c", HOLD.replace("argv[1]", "argv[1], timeout=0"), journal.path]
    done = subprocess.run(command, capture_output=True, text=True, input="\n")
    assert "database is locked" in done.stderr


# What is written about it


def test_what_is_written_about_it_can_be_replaced(journal, tmp_path):
    about = {"target": "height", "maps": [None, "a"]}
    journal.describe(about)
    assert journal.about == about
    copy = as_killed(journal.path.parent, tmp_path / "after a kill")
    journal.close()
    for path in (journal.path, copy / JOURNAL):
        again = Journal.open(path)
        assert again.about == about
        assert_has(again, ROWS)
        again.close()


def test_nothing_is_written_about_it_on_a_full_or_failed_disk(journal):
    about = journal.about
    with no_room(journal.path.with_name(LOG).stat().st_size), pytest.raises(JournalFullError):
        journal.describe({"target": "x" * 10_000})
    assert journal.about == about
    journal._has_failed = True
    with pytest.raises(JournalFailedError, match="repair the disk"):
        journal.describe({})
