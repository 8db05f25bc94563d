"""Connections with clients: slow and silent ones are closed, so that they do not keep others out."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from wgpr.service.errors import ServiceError
from wgpr.service.limits import ENDLESS, Limits

# Bytes of an answer that the operating system takes at once. It asks for more when a client has read about a third.
_SEND_BUFFER = 2**16


class LimitedProtocol(H11Protocol):
    """The HTTP protocol of a server with limits.

    A client has `header_seconds` to begin a request and to send its headers, from the start of the connection or from
    the end of the last answer. Of an answer it must read a part within `seconds`. When there are too many connections,
    the one that has been without a request for the longest time is closed.
    """

    limits: ClassVar[Limits]
    _timer: asyncio.TimerHandle | None = None
    _waiting_since = 0.0

    # A connection waits until a request begins, and again when the answer is complete.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._wait()
        if len(self.connections) > self.limits.connections:
            self._close_first(key=lambda other: other._waiting_since)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and self.scope["path"] not in ENDLESS:
            # The request has a time limit of its own, and this is the last resort.
            self._set_timer(self.limits.seconds + self.limits.header_seconds, self.transport.abort)
        elif self.cycle is not before:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_waiting:  # else a request has followed at once
            self._wait()
        if self._unsent and sum(other._unsent for other in self._others()) > self.limits.unsent:
            self._close_first(key=lambda other: -other._unsent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _unsent(self) -> int:
        """Bytes of answers that the client has not yet taken."""
        return self.transport.get_write_buffer_size()

    def _wait(self) -> None:
        self._waiting_since = self.loop.time()
        self._wait_for_reader() if self._unsent else self._set_timer(self.limits.header_seconds, self.transport.abort)

    def _wait_for_reader(self) -> None:
        self._set_timer(self.limits.seconds, self._check_reader, self._unsent)

    def _check_reader(self, n_before: int) -> None:
        if not self._unsent:
            self._wait()
        elif self._unsent < n_before:
            self._wait_for_reader()
        else:
            self.transport.abort()

    def _set_timer(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, call, *arguments)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _others(self) -> "list[LimitedProtocol]":
        return [other for other in self.connections if isinstance(other, LimitedProtocol)]

    def _close_first(self, key: Any) -> None:
        waiting = [other for other in self._others() if other._is_waiting and other is not self]
        if waiting:
            min(waiting, key=key).transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, if no answer has begun."""
        problem = ServiceError(400, "this is no HTTP request, or its headers are too long")
        body = json.dumps(problem.content()).encode()
        headers = [("Content-Type", "application/problem+json"), ("Connection", "close")]
        headers.append(("Content-Length", str(len(body))))
        start = h11.Response(status_code=400, headers=headers, reason="Bad Request")
        try:
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass
        self.transport.close()


def protocol_with_limits(limits: Limits) -> type[LimitedProtocol]:
    """The protocol with these limits. It is a class since uvicorn makes its objects, without arguments of ours."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
