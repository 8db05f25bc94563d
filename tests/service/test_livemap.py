"""A live map whose writer is a test: what is accepted, learned, saved and said, in every order of events."""

import asyncio
import os
import sqlite3
import threading

import numpy as np
import pytest

from journals import no_room, random_rows
from live_maps import SURVEY, Hand, direct_bytes, live, survey_rows, until
from streams import assert_same_map_files
from wgpr.io import files, store
from wgpr.io.journal import JournalFullError
from wgpr.io.store import JOURNAL, SNAPSHOT, Store
from wgpr.service import livemap
from wgpr.service.errors import ServiceError
from wgpr.service.livemap import create_folder, open_folder
from wgpr.service.writer import Learn, Open, Save, _carried_out

ROWS = survey_rows()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def hand():
    return Hand()


def kinds(hand):
    return [type(command) for command in hand.commands]


async def saved(live_map, hand):
    """Make a snapshot and wait until it is there and the journal is trimmed."""
    live_map.save_if_changed()
    while hand.commands:
        hand.carry_out(live_map)
    await until(lambda: not live_map._is_saving)


def assert_served(live_map, rows):
    """All these rows were learned, once and in their order."""
    assert (live_map.failure, live_map.n_learned) == ("", len(rows))
    assert_same_map_files(live_map.model.to_bytes(), direct_bytes(rows))


class Gate:
    """Makes a function wait, in its thread, until the gate is opened."""

    def __init__(self, function):
        self._function, self._opened, self.is_reached = function, threading.Event(), threading.Event()

    def __call__(self, *arguments):
        self.is_reached.set()
        assert self._opened.wait(120)
        return self._function(*arguments)

    def open(self):
        self._opened.set()


# Rows


def test_rows_are_on_the_disk_before_they_are_acknowledged(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            live_map._journal.append = gate = Gate(live_map._journal.append)
            request = asyncio.create_task(live_map.accept(ROWS[:5], None))
            await until(gate.is_reached.is_set)
            await asyncio.sleep(0.02)
            assert not request.done()
            assert live_map.n_accepted == 0
            gate.open()
            assert (await request).last == 5

    asyncio.run(scenario())
    assert open_folder(folder).store.journal.n_rows == 5


def test_requests_that_wait_are_written_with_one_commit(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            commits, append = [], live_map._journal.append
            live_map._journal.append = gate = Gate(lambda entries, _: commits.append(len(entries)) or append(entries))
            requests = [asyncio.create_task(live_map.accept(ROWS[:1], None))]
            await until(gate.is_reached.is_set)
            requests += [asyncio.create_task(live_map.accept(ROWS[n : n + 1], None)) for n in range(1, 8)]
            await asyncio.sleep(0.02)
            gate.open()
            receipts = await asyncio.gather(*requests)
            assert commits == [1, 7]
            assert [receipt.last for receipt in receipts] == list(range(1, 9))
            await hand.learn(live_map, 8)
            assert_served(live_map, ROWS[:8])

    asyncio.run(scenario())


def test_the_same_rows_are_learned_whatever_the_pieces(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            rng, first = np.random.default_rng(0), 0
            while first < len(ROWS):
                n = int(rng.integers(1, 20))
                await live_map.accept(ROWS[first : first + n], f"key {first}")
                first += n
                if rng.random() < 0.5 and hand.commands:
                    hand.carry_out(live_map)
            await hand.learn(live_map, len(ROWS))
            assert_served(live_map, ROWS)

    asyncio.run(scenario())


def test_a_key_that_was_seen_is_learned_once(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            first = await live_map.accept(ROWS[:30], "a")
            again = await live_map.accept(ROWS[:30], "a")
            assert (first.last, again.last, again.is_new) == (30, 30, False)
            with pytest.raises(ServiceError, match="used before with other rows") as conflict:
                await live_map.accept(ROWS[30:40], "a")
            assert conflict.value.status_code == 422
            await live_map.accept(ROWS[30:40], "b")
            await hand.learn(live_map, 40)
            assert_served(live_map, ROWS[:40])
            assert not hand.commands

    asyncio.run(scenario())


def test_waiting_for_rows_ends_when_they_are_learned(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            receipt = await live_map.accept(ROWS[:10], None)
            waiting = asyncio.create_task(live_map.wait_until_learned(receipt.last))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await hand.learn(live_map, 10)
            await waiting

    asyncio.run(scenario())


def test_a_queue_that_is_too_long_is_busy(folder, hand):
    async def scenario():
        async with live(folder, hand, max_waiting=50) as live_map:
            await live_map.accept(ROWS[:40], None)
            with pytest.raises(ServiceError, match="40 rows wait to be learned; send these again later") as busy:
                await live_map.accept(ROWS[40:60], None)
            assert busy.value.status_code == 429
            assert int(busy.value.headers["Retry-After"]) >= 1
            await live_map.accept(ROWS[40:50], None)
            await hand.learn(live_map, 50)
            await live_map.accept(ROWS[50:], None)  # more than 50 at once, but nothing waits
            await hand.learn(live_map, len(ROWS))
            assert_served(live_map, ROWS)

    asyncio.run(scenario())


def test_a_large_piece_of_the_journal_is_learned_in_parts(folder, hand, monkeypatch):
    monkeypatch.setattr(livemap, "_PIECE", 25)

    async def scenario():
        async with live(folder, hand) as live_map:
            for first in range(0, 100, 10):
                await live_map.accept(ROWS[first : first + 10], None)
            hand.die(live_map)
            await until(lambda: len(hand.commands) == 2)
            hand.carry_out(live_map)
            assert [(command.first, len(command.rows)) for command in hand.commands] == [(0, 20), (20, 20)]
            await hand.learn(live_map, 100)
            assert_served(live_map, ROWS[:100])

    asyncio.run(scenario())


# Restarts and snapshots


def test_a_restart_gives_the_same_map_to_the_bit(folder):
    async def scenario():
        for first in range(0, len(ROWS), 37):
            hand = Hand()
            async with live(folder, hand) as live_map:
                assert live_map.n_accepted == first
                await live_map.accept(ROWS[first : first + 37], f"key {first}")
                await hand.learn(live_map, live_map.n_accepted)
                if first == 37:
                    await saved(live_map, hand)
                assert_served(live_map, ROWS[: first + 37])

    asyncio.run(scenario())


def test_a_restart_answers_before_it_has_learned(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            await saved(live_map, hand)
            await live_map.accept(ROWS[50:80], None)
        again = Hand()
        async with live(folder, again) as live_map:
            assert (live_map.n_accepted, live_map.n_learned, live_map.is_ready) == (80, 50, False)
            assert live_map.required_model().n_samples_seen_ == 50
            await again.learn(live_map, 80)
            assert live_map.is_ready
            assert_served(live_map, ROWS[:80])

    asyncio.run(scenario())


def test_a_snapshot_trims_the_journal(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            await live_map.accept(ROWS[50:60], None)
            await saved(live_map, hand)  # with these 10 rows, which the writer gets before
            await live_map.accept(ROWS[60:65], None)

    asyncio.run(scenario())
    assert_same_map_files((folder / SNAPSHOT).read_bytes(), direct_bytes(ROWS[:60]))
    opened = open_folder(folder)
    assert [(record.first, record.last) for record in opened.store.journal.records()] == [(60, 65)]
    opened.store.journal.close()


def test_a_snapshot_is_made_after_many_rows_and_after_some_time(folder, hand, monkeypatch):
    monkeypatch.setattr(livemap, "_SNAPSHOT_ROWS", 30)

    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:29], None)
            await hand.learn(live_map, 29)
            assert kinds(hand) == []
            live_map.save_if_due()
            assert kinds(hand) == []
            monkeypatch.setattr(livemap, "_SNAPSHOT_SECONDS", 0.0)
            live_map.save_if_due()
            live_map.save_if_due()
            assert kinds(hand) == [Save]
            hand.carry_out(live_map)
            await until(lambda: not live_map._is_saving)
            live_map.save_if_due()
            assert kinds(hand) == []
            await live_map.accept(ROWS[29:59], None)
            await hand.learn(live_map, 59)
            assert kinds(hand) == [Save]

    asyncio.run(scenario())


def test_a_snapshot_that_cannot_be_written_leaves_the_rows_in_the_journal(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS, None)
            await hand.learn(live_map, len(ROWS))
            with no_room(1000):
                await saved(live_map, hand)
            assert live_map.n_saved == 0
            assert sorted(path.name for path in folder.iterdir()) == [JOURNAL, f"{JOURNAL}-wal"]
            assert live_map.failure == ""
            await saved(live_map, hand)
            assert live_map.n_saved == len(ROWS)

    asyncio.run(scenario())


def test_a_journal_that_cannot_be_trimmed_loses_nothing(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)

            def full(n_saved):
                raise JournalFullError("there is no room")

            trim, live_map._journal.trim = live_map._journal.trim, full
            await saved(live_map, hand)
            assert (live_map.n_saved, live_map.failure) == (50, "")
            live_map._journal.trim = trim
            await live_map.accept(ROWS[50:], None)
        again = Hand()
        async with live(folder, again) as live_map:
            await again.learn(live_map, len(ROWS))
            assert_served(live_map, ROWS)

    asyncio.run(scenario())


def test_finishing_learns_all_and_saves_it(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS, None)
            finishing = asyncio.create_task(live_map.finish())
            await hand.learn(live_map, len(ROWS))
            await until(lambda: kinds(hand) == [Save])
            hand.carry_out(live_map)
            await asyncio.wait_for(finishing, 60)

    asyncio.run(scenario())
    assert_same_map_files((folder / SNAPSHOT).read_bytes(), direct_bytes(ROWS))


def test_finishing_saves_all_although_a_snapshot_of_fewer_rows_is_being_written(folder, hand, monkeypatch):
    write, may_write = Store.write, threading.Event()
    monkeypatch.setattr(Store, "write", lambda *arguments: may_write.wait(60.0) and write(*arguments))

    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            live_map.save_if_changed()
            hand.carry_out(live_map)
            await live_map.accept(ROWS[50:], None)
            await hand.learn(live_map, len(ROWS))
            finishing = asyncio.create_task(live_map.finish())
            await asyncio.sleep(0.01)
            may_write.set()
            await until(lambda: kinds(hand) == [Save])
            hand.carry_out(live_map)
            await asyncio.wait_for(finishing, 60)

    asyncio.run(scenario())
    assert_same_map_files((folder / SNAPSHOT).read_bytes(), direct_bytes(ROWS))


# A writer that dies


def test_rows_that_a_dead_writer_had_are_learned_again_and_once(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            for first in range(0, 60, 10):
                await live_map.accept(ROWS[first : first + 10], None)
            hand.carry_out(live_map)
            hand.carry_out(live_map)
            n_learned = live_map.n_learned
            assert 0 < n_learned < 60
            hand.die(live_map)
            assert live_map.n_learned == n_learned  # it goes on to answer
            await live_map.accept(ROWS[60:70], None)
            await hand.learn(live_map, 70)
            assert_served(live_map, ROWS[:70])

    asyncio.run(scenario())


def test_a_commit_that_ends_after_the_death_is_learned_after_the_others(folder, hand):
    """Rows must not be sent to the new process before the map is opened there."""

    async def scenario():
        async with live(folder, hand) as live_map:
            await until(lambda: hand.commands)
            hand.carry_out(live_map)
            for first in range(0, 60, 10):
                await live_map.accept(ROWS[first : first + 10], None)
            live_map._journal.append = gate = Gate(live_map._journal.append)
            request = asyncio.create_task(live_map.accept(ROWS[60:70], None))
            await until(gate.is_reached.is_set)
            hand.die(live_map)
            gate.open()
            await request
            await until(lambda: len(hand.commands) == 2)
            assert kinds(hand) == [Open, Learn]
            await hand.learn(live_map, 70)
            assert_served(live_map, ROWS[:70])

    asyncio.run(scenario())


def test_a_snapshot_that_is_written_during_the_death_is_not_learned_twice(folder, hand, monkeypatch):
    """The new process reads the snapshot later, so the rows that it gets must be those after that snapshot."""
    gate = Gate(store.write_file)
    monkeypatch.setattr(store, "write_file", gate)

    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            live_map.save_if_changed()
            hand.carry_out(live_map)
            await until(gate.is_reached.is_set)
            hand.die(live_map)
            await asyncio.sleep(0.05)
            gate.open()
            await until(lambda: live_map.n_saved == 50 and hand.commands)
            await live_map.accept(ROWS[50:70], None)
            await hand.learn(live_map, 70)
            assert_served(live_map, ROWS[:70])

    asyncio.run(scenario())


def test_a_writer_that_dies_again_while_the_map_is_opened(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            records, gates = live_map._journal.records, []

            def slow(after):
                gates.append(Gate(records))
                return gates[-1](after)

            live_map._journal.records = slow
            hand.die(live_map)
            await until(lambda: len(gates) == 1)
            hand.die(live_map)
            gates[0].open()
            await until(lambda: len(gates) == 2)
            gates[1].open()
            await live_map.accept(ROWS[50:60], None)
            await hand.learn(live_map, 60)
            assert not hand.commands
            assert_served(live_map, ROWS[:60])

    asyncio.run(scenario())


def test_a_map_is_not_saved_while_it_is_opened_in_a_new_writer(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            live_map._journal.records = gate = Gate(live_map._journal.records)
            hand.die(live_map)
            await until(gate.is_reached.is_set)
            live_map.save_if_changed()
            gate.open()
            await until(lambda: len(hand.commands) == 2)
            while hand.commands:
                hand.carry_out(live_map)
            assert not live_map.failure
            assert_served(live_map, ROWS[:50])

    asyncio.run(scenario())


def test_a_writer_that_always_dies_of_the_same_rows_fails_the_map(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:20], None)
            waiting = asyncio.create_task(live_map.wait_until_learned(20))
            for _ in range(livemap._MOST_FAILURES + 1):
                await until(lambda: hand.commands)
                hand.die(live_map)
            with pytest.raises(ServiceError, match=r"the rows are on the disk, but .* died again and again") as failed:
                await waiting
            assert failed.value.status_code == 503
            with pytest.raises(ServiceError, match="takes no rows") as refused:
                await live_map.accept(ROWS[20:], None)
            assert refused.value.status_code == 503
            assert hand.commands == []  # it is not opened again: other maps of the process would never be learned
            await asyncio.wait_for(live_map.finish(), 60)

    asyncio.run(scenario())
    assert open_folder(folder).store.journal.n_rows == 20


def test_deaths_between_which_rows_are_learned_do_not_add_up(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            for first in range(0, 50, 10):
                await live_map.accept(ROWS[first : first + 10], None)
                hand.die(live_map)
                await hand.learn(live_map, first + 10)
            assert_served(live_map, ROWS[:50])

    asyncio.run(scenario())


def test_rows_that_cannot_be_learned_fail_the_map_and_stay(folder, hand, monkeypatch):
    def fail(self, first, rows):
        raise ArithmeticError("no Cholesky factor")

    monkeypatch.setattr("wgpr.service.writer._Learning.learn", fail)

    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:20], "a")
            await hand.learn(live_map, 20)
            assert "learning has failed" in live_map.failure
            assert "no Cholesky factor" in live_map.failure
            with pytest.raises(ServiceError, match="takes no rows") as refused:
                await live_map.accept(ROWS[20:], None)
            assert refused.value.status_code == 503
            with pytest.raises(ServiceError, match="the rows are on the disk") as waited:
                await live_map.wait_until_learned(20)
            assert waited.value.status_code == 503
            await asyncio.wait_for(live_map.finish(), 60)
        monkeypatch.undo()
        again = Hand()
        async with live(folder, again) as live_map:
            await again.learn(live_map, 20)
            assert_served(live_map, ROWS[:20])

    asyncio.run(scenario())


def test_a_map_that_cannot_be_saved_can_be_closed(folder, hand, monkeypatch):
    def fail(self, name):
        raise MemoryError

    monkeypatch.setattr("wgpr.service.writer._Learning.saved", fail)

    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:20], None)
            await hand.learn(live_map, 20)
            live_map.save_if_changed()
            hand.carry_out(live_map)
            await asyncio.wait_for(live_map.finish(), 60)

    asyncio.run(scenario())
    assert open_folder(folder).store.journal.n_rows == 20


def test_the_writer_refuses_rows_that_do_not_follow():
    maps = {}
    _carried_out(Open("lake", SURVEY, None), maps)
    _carried_out(Learn("lake", 0, ROWS[:10]), maps)
    for first in (0, 5, 11):
        with pytest.raises(ValueError, match=f"rows after the first {first} came after 10"):
            _carried_out(Learn("lake", first, ROWS[10:20]), maps)


# A disk that is full or fails


def test_a_full_disk_is_507_and_loses_nothing(folder, hand):
    large = random_rows(2000)

    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:20], None)
            with no_room(40_000), pytest.raises(ServiceError, match="make room and send it again") as full:
                await live_map.accept(large, "large")
            assert full.value.status_code == 507
            assert live_map.failure == ""
            await live_map.accept(ROWS[20:], None)
            await hand.learn(live_map, len(ROWS))
            assert_served(live_map, ROWS)

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), MemoryError()], ids=str)
def test_after_a_failure_nothing_is_acknowledged(folder, hand, error):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:20], None)
            await hand.learn(live_map, 20)

            def fail(entries):
                raise error

            live_map._journal.append = fail
            for _ in range(2):
                with pytest.raises(ServiceError) as refused:
                    await live_map.accept(ROWS[20:], None)
                assert refused.value.status_code == 503
            assert live_map.required_model().n_samples_seen_ == 20  # and it answers
            assert not live_map.is_ready
            await asyncio.wait_for(live_map.finish(), 60)

    asyncio.run(scenario())
    assert open_folder(folder).store.journal.n_rows == 20


def test_a_journal_that_cannot_be_read_fails_the_map(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:20], None)

            def fail(after):
                raise sqlite3.OperationalError("disk I/O error")

            live_map._journal.records = fail
            hand.die(live_map)
            await until(lambda: live_map.failure)
            assert "its journal cannot be read" in live_map.failure

    asyncio.run(scenario())


def test_a_map_is_closed_after_the_commit_that_is_written(folder, hand):
    """A journal must not be closed while another thread writes to it. Requests that wait are refused."""

    async def scenario():
        async with live(folder, hand) as live_map:
            waiting = asyncio.create_task(live_map.wait_until_learned((await live_map.accept(ROWS[:5], None)).last))
            live_map._journal.append = gate = Gate(live_map._journal.append)
            requests = [asyncio.create_task(live_map.accept(ROWS[5:10], None))]
            await until(gate.is_reached.is_set)
            requests.append(asyncio.create_task(live_map.accept(ROWS[10:15], None)))
            closing = asyncio.create_task(live_map.close())
            await asyncio.sleep(0.05)
            assert live_map._journal._connection.total_changes  # an error if it were closed
            gate.open()
            await closing
        results = await asyncio.gather(*requests, waiting, return_exceptions=True)
        assert [getattr(result, "status_code", 202) for result in results] == [202, 503, 503]

    asyncio.run(scenario())
    assert open_folder(folder).store.journal.n_rows == 10


# Folders


def test_a_new_map_is_on_the_disk_with_its_name(folder, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        files.os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")) or fsync(file)
    )
    create_folder(folder, SURVEY)
    assert synced[-1] == str(folder.parent)
    assert [path.name for path in folder.parent.iterdir()] == ["lake"]


def test_a_map_that_cannot_be_made_leaves_nothing(folder):
    with no_room(1000), pytest.raises(JournalFullError, match="make room"):
        create_folder(folder, SURVEY)
    assert list(folder.parent.iterdir()) == []
    create_folder(folder, SURVEY)


def test_the_seed_is_fixed_when_the_map_is_made(folder):
    create_folder(folder, SURVEY.model_copy(update={"settings": {}}))
    opened = open_folder(folder)
    assert isinstance(opened.definition.settings["random_state"], int)
    opened.store.journal.close()


def test_a_snapshot_that_was_put_there_is_served_and_learns(folder, hand):
    folder.mkdir()
    (folder / SNAPSHOT).write_bytes(direct_bytes(ROWS[:50]))

    async def scenario():
        async with live(folder, hand) as live_map:
            assert (live_map.n_accepted, live_map.n_learned, live_map.n_saved) == (50, 50, 50)
            assert live_map.definition.columns == SURVEY.columns
            await live_map.accept(ROWS[50:], None)
            await hand.learn(live_map, len(ROWS))
            assert_served(live_map, ROWS)

    asyncio.run(scenario())


def test_a_snapshot_without_the_rows_after_it_is_refused(folder, hand):
    async def scenario():
        async with live(folder, hand) as live_map:
            await live_map.accept(ROWS[:50], None)
            await hand.learn(live_map, 50)
            await saved(live_map, hand)
            first = (folder / SNAPSHOT).read_bytes()
            await live_map.accept(ROWS[50:], None)
            await hand.learn(live_map, len(ROWS))
            await saved(live_map, hand)
        return first

    first = asyncio.run(scenario())
    last = (folder / SNAPSHOT).read_bytes()
    (folder / SNAPSHOT).write_bytes(first)
    with pytest.raises(ValueError, match=r"lacks rows after the first 50, which its map has; restore both"):
        open_folder(folder)
    (folder / SNAPSHOT).unlink()
    with pytest.raises(ValueError, match=r"lacks rows after the first 0"):
        open_folder(folder)
    (folder / SNAPSHOT).write_bytes(last)
    open_folder(folder).store.journal.close()


def test_files_that_a_crash_left_unfinished_are_removed(folder, monkeypatch):
    create_folder(folder, SURVEY)

    def crash(*_):
        raise SystemExit

    monkeypatch.setattr(files.os, "replace", crash)
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    with pytest.raises(SystemExit):
        files.write_file(folder / SNAPSHOT, b"half of a snapshot")
    monkeypatch.undo()
    (folder / ".git").write_text("of somebody else")
    assert len(list(folder.iterdir())) == 3
    open_folder(folder).store.journal.close()
    assert sorted(path.name for path in folder.iterdir()) == [".git", JOURNAL]


def test_a_damaged_snapshot_is_refused(folder):
    folder.mkdir()
    (folder / SNAPSHOT).write_bytes(direct_bytes(ROWS[:50])[:-1])
    with pytest.raises(ValueError, match="use a backup or fit again"):
        open_folder(folder)


def test_a_folder_that_is_no_map_is_refused(folder):
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=r"has neither snapshot\.map nor journal\.sqlite; move it"):
        open_folder(folder)
