"""All maps of a folder, with the processes that learn: made, opened again, deleted, and after deaths."""

import asyncio
import errno
import logging
import os
import shutil
import signal
import time
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import wgpr.service.catalogue as catalogue_module
from journals import JOURNAL, LOG, as_killed, no_room
from live_maps import PAPER, SURVEY, direct_bytes, survey_rows, until
from streams import assert_same_map_files
from wgpr.cli.saving import map_writer
from wgpr.io import store
from wgpr.io.files import lock_of, locked
from wgpr.io.journal import Journal, JournalError
from wgpr.io.store import SNAPSHOT
from wgpr.service.catalogue import Catalogue
from wgpr.service.errors import ServiceError
from wgpr.service.limits import Limits

ROWS = survey_rows()


def opened(folder, **limits):
    return Catalogue(folder, Limits(**limits), n_writers=1).opened()


async def learned(live_map, rows, key=None):
    """Accept rows and wait until they are learned."""
    receipt = await live_map.accept(rows, key)
    await asyncio.wait_for(live_map.wait_until_learned(receipt.last), 120)


def assert_served(live_map, rows, definition=SURVEY):
    """All these rows were learned, once and in their order."""
    assert (live_map.failure, live_map.n_learned, live_map.n_accepted) == ("", len(rows), len(rows))
    assert_same_map_files(live_map.model.to_bytes(), direct_bytes(rows, definition))


@pytest.mark.parametrize("definition", [SURVEY, PAPER], ids=["default", "solar"])
def test_a_restart_gives_the_same_map_to_the_bit(tmp_path, definition):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            assert await catalogue.create("lake", definition)
            await learned(catalogue["lake"], ROWS[:50], "a")
            await catalogue["lake"].accept(ROWS[50:70], "b")
            as_killed(tmp_path / "lake", tmp_path / "killed")  # a map of its own
            assert_same_map_files(catalogue["lake"].model.to_bytes(), direct_bytes(ROWS[:50], definition))
        assert_same_map_files((tmp_path / "lake" / SNAPSHOT).read_bytes(), direct_bytes(ROWS[:70], definition))
        async with opened(tmp_path) as catalogue:
            for name in ("lake", "killed"):
                assert (await catalogue[name].accept(ROWS[50:70], "b")).is_new is False
                await learned(catalogue[name], ROWS[70:])
                assert_served(catalogue[name], ROWS, definition)

    asyncio.run(scenario())


def test_a_killed_writer_is_started_again_and_nothing_is_lost_or_learned_twice(tmp_path):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)
            live_map = catalogue["lake"]
            for first in range(0, len(ROWS), 10):
                await live_map.accept(ROWS[first : first + 10], None)
                if first in (20, 50, 80):
                    writer = catalogue._writers[0]
                    os.kill(writer.process_id, signal.SIGKILL)
                    await until(lambda writer=writer: catalogue._writers[0] is not writer)
            await asyncio.wait_for(live_map.wait_until_learned(len(ROWS)), 120)
            assert_served(live_map, ROWS)

    asyncio.run(scenario())


def test_a_map_that_is_made_again_gets_nothing_of_the_deleted_one(tmp_path):
    """The writer was still learning rows of the deleted map."""

    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("other", SURVEY)
            await catalogue.create("lake", SURVEY)
            await learned(catalogue["lake"], ROWS[:20])
            for first in range(0, 3000, 500):
                await catalogue["lake"].accept(survey_rows(3000)[first : first + 500], None)
            await catalogue.delete("lake")
            assert await catalogue.create("lake", SURVEY)
            assert catalogue["lake"].n_accepted == 0
            await learned(catalogue["lake"], ROWS[:30])
            assert_served(catalogue["lake"], ROWS[:30])
            await learned(catalogue["other"], ROWS)
            assert_served(catalogue["other"], ROWS)

    asyncio.run(scenario())


def test_a_service_does_not_open_a_map_that_a_command_is_writing(tmp_path):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)
        held = locked(lock_of(tmp_path / "lake" / "snapshot.map"), "held")
        with held, pytest.raises(BlockingIOError, match="another wgpr is writing"):
            async with opened(tmp_path):
                pass
        async with opened(tmp_path) as catalogue:
            assert list(catalogue.maps) == ["lake"]

    asyncio.run(scenario())


def test_a_command_does_not_write_a_map_that_a_service_is_opening(tmp_path, monkeypatch):
    """Somebody has put a snapshot there, and the service has read it, but has no journal yet."""
    snapshot = tmp_path / "lake" / SNAPSHOT
    snapshot.parent.mkdir()
    snapshot.write_bytes(direct_bytes(ROWS[:50], SURVEY))

    def load(*arguments, original=store.load, **options):
        model = original(*arguments, **options)
        with pytest.raises(BlockingIOError, match="another wgpr is writing"), map_writer(snapshot, continues=True):
            pass
        return model

    async def scenario():
        with monkeypatch.context() as patch:
            patch.setattr(store, "load", load)
            async with opened(tmp_path) as catalogue:
                assert catalogue["lake"].n_accepted == 50
                with pytest.raises(FileExistsError, match="belongs to a wgpr serve"), map_writer(snapshot):
                    pass
        assert not lock_of(snapshot).exists()

    asyncio.run(scenario())


def test_a_deletion_goes_on_when_its_time_is_up(tmp_path, monkeypatch):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)
            lake, is_free = catalogue["lake"], asyncio.Event()

            async def close(original=lake.close):
                await is_free.wait()
                await original()

            monkeypatch.setattr(lake, "close", close)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await catalogue.delete("lake")
            assert (tmp_path / "lake").exists()
            is_free.set()
            assert await catalogue.create("lake", SURVEY)  # it waits for the deletion
            assert not list(tmp_path.glob(".deleted-*"))

    asyncio.run(scenario())


def test_a_creation_goes_on_when_its_time_is_up(tmp_path, monkeypatch):
    def create(*arguments, original=catalogue_module.create_folder):
        time.sleep(0.3)
        original(*arguments)

    async def scenario():
        async with opened(tmp_path) as catalogue:
            monkeypatch.setattr(catalogue_module, "create_folder", create)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await catalogue.create("lake", SURVEY)
            assert not await catalogue.create("lake", SURVEY)  # it is there
            await learned(catalogue["lake"], ROWS[:30])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (ValueError("44.5, -76.3 is no place"), "ValueError"),  # the log has no data of maps
    ],
)
def test_a_creation_that_fails_when_the_client_has_left_is_logged(tmp_path, monkeypatch, caplog, error, told):
    def create(*_):
        time.sleep(0.3)
        raise error

    async def scenario():
        async with opened(tmp_path) as catalogue:
            monkeypatch.setattr(catalogue_module, "create_folder", create)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await catalogue.create("lake", SURVEY)

    with caplog.at_level(logging.WARNING, logger="wgpr.service"):
        asyncio.run(scenario())
    (values,) = [record.values for record in caplog.records if record.message == "change"]
    assert (values["map"], values["error"]) == ("lake", told)


def test_a_service_that_stops_finishes_its_deletions(tmp_path, monkeypatch):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)

            async def close(original=catalogue["lake"].close):
                await asyncio.sleep(0.3)
                await original()

            monkeypatch.setattr(catalogue["lake"], "close", close)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await catalogue.delete("lake")
        assert not (tmp_path / "lake").exists()

    asyncio.run(scenario())


def test_a_reply_that_cannot_be_read_fails_its_map_alone(tmp_path, caplog):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            for name in ("lake", "other"):
                await catalogue.create(name, SURVEY)
                await learned(catalogue[name], ROWS[:10])
            catalogue["lake"]._receiver = None
            await catalogue["lake"].accept(ROWS[10:20], None)
            await until(lambda: catalogue["lake"].failure)
            await learned(catalogue["other"], ROWS[10:])
            assert_served(catalogue["other"], ROWS)

    with caplog.at_level(logging.WARNING, logger="wgpr.service"):
        asyncio.run(scenario())
    assert Journal.open(tmp_path / "lake" / JOURNAL).n_rows == 20
    assert [record.values["error"] for record in caplog.records if record.message == "writer"] == ["AttributeError"]


def test_maps_are_made_once(tmp_path):
    async def scenario():
        async with opened(tmp_path, maps=2) as catalogue:
            assert await catalogue.create("lake", SURVEY)
            assert not await catalogue.create("lake", SURVEY)
            with pytest.raises(ServiceError, match="map lake exists with other columns or settings") as conflict:
                await catalogue.create("lake", PAPER)
            assert conflict.value.status_code == 409
            await catalogue.create("river", SURVEY)
            with pytest.raises(ServiceError, match="no more are allowed; delete one") as many:
                await catalogue.create("sea", SURVEY)
            assert many.value.status_code == 507
            await catalogue.delete("river")
            assert await catalogue.create("sea", SURVEY)
            with pytest.raises(ServiceError, match="there is no map river") as missing:
                catalogue["river"]
            assert missing.value.status_code == 404

    asyncio.run(scenario())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "sea"]


def test_no_map_is_made_on_a_full_disk(tmp_path):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            with no_room(1000), pytest.raises(ServiceError, match=r"map lake cannot be made .*; make room") as full:
                await catalogue.create("lake", SURVEY)
            assert full.value.status_code == 507
            assert [path.name for path in tmp_path.iterdir()] == [".lock"]
            assert await catalogue.create("lake", SURVEY)
            await learned(catalogue["lake"], ROWS[:10])

    asyncio.run(scenario())


def test_a_map_that_cannot_be_opened_leaves_nothing(tmp_path, monkeypatch):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            with monkeypatch.context() as patch:
                patch.setattr(catalogue_module, "open_folder", Mock(side_effect=BlockingIOError("a wgpr is writing")))
                with pytest.raises(ServiceError, match="a wgpr is writing") as busy:
                    await catalogue.create("lake", SURVEY)
            assert busy.value.status_code == 409
            assert [path.name for path in tmp_path.iterdir()] == [".lock"]
            assert await catalogue.create("lake", SURVEY)

    asyncio.run(scenario())


def test_a_folder_that_is_no_map_stays(tmp_path):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            (tmp_path / "lake").mkdir()
            (tmp_path / "lake" / "notes").touch()
            with pytest.raises(ServiceError, match=r"there is a folder lake already, .*; move it away, or") as conflict:
                await catalogue.create("lake", SURVEY)
            assert conflict.value.status_code == 409
        assert (tmp_path / "lake" / "notes").exists()

    asyncio.run(scenario())


def test_a_folder_belongs_to_one_service(tmp_path):
    async def scenario():
        async with opened(tmp_path):
            with pytest.raises(BlockingIOError, match=r"another wgpr serve uses .*; stop it, or name another folder"):
                async with opened(tmp_path):
                    pass
        async with opened(tmp_path):
            pass

    asyncio.run(scenario())


def test_what_a_crash_left_is_removed(tmp_path):
    for name in (".new-lake", ".deleted-0123abcd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / JOURNAL).write_bytes(b"half of a journal")
    (tmp_path / "notes.txt").write_text("not a map")
    (tmp_path / ".git").mkdir()

    async def scenario():
        async with opened(tmp_path) as catalogue:
            assert not catalogue.maps
            assert await catalogue.create("lake", SURVEY)

    asyncio.run(scenario())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "lake", "notes.txt"]


def make_maps(folder, *names):
    async def scenario():
        async with opened(folder) as catalogue:
            for name in names:
                await catalogue.create(name, SURVEY)
                await learned(catalogue[name], ROWS[:30])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "remedy"),
    [(JOURNAL, "restore both from a backup, or move"), (SNAPSHOT, "use a backup or fit again")],
)
def test_a_damaged_map_refuses_to_start_and_says_what_to_do(tmp_path, name, remedy):
    make_maps(tmp_path, "brook", "lake")
    path = tmp_path / "lake" / name
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])

    async def start():
        async with opened(tmp_path) as catalogue:
            return sorted(catalogue.maps)

    with pytest.raises(ValueError, match=f"{path} .*{remedy}"):
        asyncio.run(start())
    assert path.read_bytes() == good[: len(good) // 2]
    path.write_bytes(good)
    assert asyncio.run(start()) == ["brook", "lake"]


def test_the_remedy_works(tmp_path):
    """Without its journal a map goes on from its snapshot."""
    make_maps(tmp_path, "lake")
    (tmp_path / "lake" / JOURNAL).unlink()

    async def scenario():
        async with opened(tmp_path) as catalogue:
            await learned(catalogue["lake"], ROWS[30:])
            assert_served(catalogue["lake"], ROWS)

    asyncio.run(scenario())


def test_a_torn_tail_gets_a_line_in_the_log(tmp_path, caplog):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)
            for first in range(0, 50, 10):
                await catalogue["lake"].accept(ROWS[first : first + 10], None)
            as_killed(tmp_path / "lake", tmp_path / "killed")
        shutil.rmtree(tmp_path / "lake")
        log = tmp_path / "killed" / LOG
        log.write_bytes(log.read_bytes()[:-1])
        with caplog.at_level(logging.WARNING, logger="wgpr.service"):
            async with opened(tmp_path) as catalogue:
                assert catalogue["killed"].n_accepted == 40
        (values,) = [record.values for record in caplog.records if record.message == "journal"]
        assert values["map"] == "killed"
        assert "the last commit is not complete and was cut off" in values["error"]

    asyncio.run(scenario())


def test_damage_in_the_middle_of_the_log_refuses_to_start(tmp_path):
    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)
            for first in range(0, 50, 10):
                await catalogue["lake"].accept(ROWS[first : first + 10], None)
            as_killed(tmp_path / "lake", tmp_path / "killed")
        log = tmp_path / "killed" / LOG
        data = np.frombuffer(log.read_bytes(), dtype=np.uint8).copy()
        data[len(data) // 2] ^= 1
        log.write_bytes(data.tobytes())
        with pytest.raises(JournalError, match="damaged before its end; restore both from a backup"):
            async with opened(tmp_path):
                pass

    asyncio.run(scenario())


def test_answers_are_prepared_when_no_rows_wait(tmp_path):
    """So that a page opens soon, although nobody has asked yet."""

    async def scenario():
        async with opened(tmp_path) as catalogue:
            await catalogue.create("lake", SURVEY)
            await learned(catalogue["lake"], ROWS)
            lake = catalogue["lake"]
            await until(lambda: lake.n_prepared == lake.model.n_models_ > 0)
            assert lake.model._state.cache.n_bytes > 0

    asyncio.run(scenario())


def test_maps_share_the_memory_for_answers(tmp_path, monkeypatch):
    """What a map keeps that was asked longest ago goes first; preparing answers is no question."""
    monkeypatch.setattr(catalogue_module, "_TICK", 1e6)

    async def scenario():
        async with opened(tmp_path) as catalogue:
            maps = []
            for name in "abc":
                await catalogue.create(name, SURVEY)
                await learned(catalogue[name], ROWS)
                maps.append(catalogue[name])
                places = pd.DataFrame(ROWS[:, :2], columns=SURVEY.inputs)
                catalogue.answering_model(maps[-1]).predict(places)
            await catalogue._prepare_answers()
            a, b, c = (each.model._state.cache for each in maps)
            kept = c.n_bytes
            assert a.n_bytes == b.n_bytes == kept > 0
            catalogue.limits = Limits(cache_bytes=kept)
            catalogue.answering_model(maps[0])
            catalogue._limit_caches()
            assert (a.n_bytes, b.n_bytes, c.n_bytes) == (kept, 0, 0)
            catalogue.limits = Limits(cache_bytes=kept - 1)
            assert catalogue.answering_model(maps[0]).max_cache_bytes == kept - 1
            catalogue._limit_caches()
            assert 0 < a.n_bytes < kept

    asyncio.run(scenario())
