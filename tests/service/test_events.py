"""Server-sent events: all of them, in order, once, also after a pause."""

import asyncio
import json

import pytest

from wgpr.service import events
from wgpr.service.events import EventHub


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60.0))


async def next_events(stream, n=1):
    """The next `n` events of a stream as (kind, data, id)."""
    found = []
    while len(found) < n:
        for text in (await anext(stream)).decode().split("\n\n"):
            fields = dict(
                line.split(": ", 1) for line in text.splitlines() if ": " in line and not line.startswith(":")
            )
            if "event" in fields:
                found.append((fields["event"], json.loads(fields["data"]), fields["id"]))
    return found


def test_a_stream_begins_now_and_gets_what_follows():
    async def check():
        hub = EventHub()
        hub.publish("rows", "lake", rows_seen=1)
        stream = hub.stream()
        assert [kind for kind, *_ in await next_events(stream)] == ["hello"]
        hub.publish("rows", "lake", rows_seen=2)
        assert [data for _, data, _ in await next_events(stream)] == [{"map": "lake", "rows_seen": 2}]

    run(check())


def test_a_client_resumes_after_the_last_event_that_it_has_seen():
    async def check():
        hub = EventHub()
        stream = hub.stream()
        await next_events(stream)
        for number in range(5):
            hub.publish("rows", "lake", rows_seen=number)
        *_, (_, _, last) = await next_events(stream, 5)
        for number in range(5, 8):
            hub.publish("rows", "lake", rows_seen=number)
        again = await next_events(hub.stream(last), 4)
        assert [kind for kind, *_ in again] == ["hello", "rows", "rows", "rows"]
        assert [data["rows_seen"] for _, data, _ in again[1:]] == [5, 6, 7]

    run(check())


@pytest.mark.parametrize("last_id", ["another-3", "nonsense", "-", "9999999999999999999999", "{run}-99", "{run}--1"])
def test_a_client_that_cannot_resume_is_told_to_begin_anew(last_id):
    async def check():
        hub = EventHub()
        hub.publish("rows", "lake")
        return await next_events(hub.stream(last_id.format(run=hub._run)))

    assert run(check())[0][0] == "reset"


def test_a_client_that_has_missed_too_much_is_told_to_begin_anew(monkeypatch):
    monkeypatch.setattr(events, "_N_KEPT", 3)

    async def check():
        hub = EventHub()
        for number in range(10):
            hub.publish("rows", "lake", rows_seen=number)
        kinds = [(await next_events(hub.stream(f"{hub._run}-{seen}")))[0][0] for seen in (6, 7, 10)]
        assert kinds == ["reset", "hello", "hello"]

    run(check())


def test_a_stream_of_some_maps_has_no_others():
    async def check():
        hub = EventHub()
        stream = hub.stream(names={"lake"})
        await next_events(stream)
        for name in ("sea", "lake", "sea"):
            hub.publish("rows", name)
        return await next_events(stream)

    assert run(check())[0][1] == {"map": "lake"}


def test_a_silent_stream_shows_that_it_lives_and_ends_when_the_hub_closes(monkeypatch):
    monkeypatch.setattr(events, "_HEARTBEAT", 0.01)

    async def check():
        hub = EventHub()
        stream = hub.stream()
        await next_events(stream)
        assert (await anext(stream)).startswith(b":")
        hub.close()
        assert [part async for part in stream] == []

    run(check())


def test_all_streams_get_each_event():
    async def check():
        hub = EventHub()
        streams = [hub.stream() for _ in range(20)]
        for stream in streams:
            await next_events(stream)
        waiting = [asyncio.create_task(next_events(stream)) for stream in streams]
        await asyncio.sleep(0)
        hub.publish("rows", "lake", rows_seen=3)
        assert [(await task)[0][1]["rows_seen"] for task in waiting] == 20 * [3]

    run(check())
