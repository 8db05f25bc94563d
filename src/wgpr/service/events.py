"""Events of all maps, as one stream of server-sent events that a client can resume."""

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Any, NamedTuple

# Events that a client can have missed and still get.
_N_KEPT = 2000
# Seconds without an event after which a comment shows that the connection lives.
_HEARTBEAT = 15.0


class Event(NamedTuple):
    """number : from 1; name : of the map, empty for all; data : as it is sent."""

    number: int
    name: str
    data: bytes


class EventHub:
    """The latest events, and the streams that wait for the next one. Each event is encoded once."""

    def __init__(self) -> None:
        self._run = secrets.token_hex(4)  # event numbers are those of this run of the service
        self._events: deque[Event] = deque(maxlen=_N_KEPT)
        self._n_events, self._is_closed = 0, False
        self._next = asyncio.Event()  # is set at the next event, and another takes its place

    def publish(self, kind: str, name: str, **values: Any) -> None:
        """Send an event about a map to all streams."""
        self._n_events += 1
        content = json.dumps({"map": name, **values}, allow_nan=False)
        text = f"id: {self._run}-{self._n_events}\nevent: {kind}\ndata: {content}\n\n"
        self._events.append(Event(self._n_events, name, text.encode()))
        self._wake()

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._wake()

    async def stream(self, last_id: str = "", names: Collection[str] = ()) -> AsyncIterator[bytes]:
        """Events after the one with `last_id`, or from now on; of the maps in `names`, or of all.

        If events between were dropped, or are of another run of the service, the first event is `reset`: the client
        should read everything anew.
        """
        seen, is_complete = self._position(last_id)
        kind = "hello" if is_complete else "reset"
        yield f"retry: 1000\nid: {self._run}-{seen}\nevent: {kind}\ndata: {{}}\n\n".encode()
        while not self._is_closed:
            following = self._next
            new = [event for event in self._events if event.number > seen]
            if new:
                seen = new[-1].number
                wanted = [event.data for event in new if not names or event.name in names]
                if wanted:
                    yield b"".join(wanted)
                continue
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await following.wait()
            except TimeoutError:
                yield b": still here\n\n"

    def _position(self, last_id: str) -> tuple[int, bool]:
        """The number of the last event that a client has seen, and whether all later ones are still there."""
        run, _, number = last_id.partition("-")
        if not last_id:
            return self._n_events, True
        oldest = self._events[0].number if self._events else self._n_events + 1
        if run != self._run or not number.isdecimal() or not oldest - 1 <= int(number) <= self._n_events:
            return self._n_events, False
        return int(number), True

    def _wake(self) -> None:
        self._next.set()
        self._next = asyncio.Event()
