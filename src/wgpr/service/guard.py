"""Who may come in, with how much, and for how long. Each request is counted and gets a line in the log."""

import asyncio
import hmac
import time
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from wgpr.service.errors import ServiceError
from wgpr.service.limits import Limits
from wgpr.service.logs import log
from wgpr.service.metrics import Metrics

# Anybody may see these: they say nothing about the maps.
_OPEN = {"/", "/health/live", "/health/ready", "/docs", "/openapi.json"}
_OPEN_FOLDER = "/page/"

# Requests that last as long as the client likes.
_ENDLESS = {"/events"}

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def as_response(problem: ServiceError) -> Response:
    return JSONResponse(problem.content(), problem.status, problem.headers, media_type="application/problem+json")


class Guard:
    """Middleware around the whole service.

    token : that clients must send, None if only this machine can connect; origins : of web pages that may ask.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, origins: Sequence[str], limits: Limits, metrics: Metrics
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._token = None if token is None else f"Bearer {token}".encode()
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self._limits.body)
        started = time.perf_counter()
        try:
            async with asyncio.timeout(None if scope["path"] in _ENDLESS else self._limits.seconds):
                self._check(scope, Headers(scope=scope))
                await self._app(scope, exchange.receive, exchange.send)
        except ServiceError as problem:
            await self._answer(scope, exchange, problem)
        except TimeoutError:
            detail = f"the request took longer than {self._limits.seconds:g} s; send less at once"
            await self._answer(scope, exchange, ServiceError(408, detail, headers={"Connection": "close"}))
        finally:
            self._note(scope, exchange, time.perf_counter() - started)

    async def _answer(self, scope: Scope, exchange: "_Exchange", problem: ServiceError) -> None:
        if exchange.status is None:
            await as_response(problem)(scope, exchange.receive, exchange.send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and origin != _own_origin(scope, headers):
            raise ServiceError(403, "a page of another site may not ask; allow it with --allow-origin")
        if self._token is None:
            host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
            if host.lower() not in _LOOPBACK:  # another name for this machine: a page that wants to get in
                raise ServiceError(403, "the host must be localhost; start the service with a token to use other names")
        elif scope["path"] not in _OPEN and not scope["path"].startswith(_OPEN_FOLDER):
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, self._token):
                detail = "a token is needed; send it as Authorization: Bearer TOKEN"
                raise ServiceError(401, detail, headers={"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._limits.body:
            raise _too_large(self._limits.body)

    def _note(self, scope: Scope, exchange: "_Exchange", seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        status = exchange.status or 499  # the client has gone
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.requests.labels(route, method, status).observe(seconds)
        client = (scope.get("client") or ("",))[0]
        log(
            "request",
            client=client,
            method=method,
            route=route,
            map=scope.get("path_params", {}).get("name"),
            status=status,
            ms=round(1e3 * seconds, 1),
            received=exchange.n_received,
            sent=exchange.n_sent,
        )


_METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"}


def _own_origin(scope: Scope, headers: Headers) -> str:
    return f"{scope['scheme']}://{headers.get('host', '')}"


def _too_large(most: int) -> ServiceError:
    detail = f"the body has more than {most:,} bytes; send it in parts"
    return ServiceError(413, detail, headers={"Connection": "close"})


class _Exchange:
    """A request and its answer, whose bytes are counted. status : of the answer, None before it begins."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive, self._send, self._most = receive, send, most
        self.n_received = self.n_sent = 0
        self.status: int | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        self.n_received += len(message.get("body", b""))
        if self.n_received > self._most:
            raise _too_large(self._most)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.n_sent += len(message.get("body", b""))
        await self._send(message)


def protocol_with_timeout(seconds: float) -> type[H11Protocol]:
    """The HTTP protocol of the server, which closes a connection that begins no request within `seconds`."""

    class TimedProtocol(H11Protocol):
        _timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self._close_if_silent)

        def _close_if_silent(self) -> None:
            if getattr(self, "cycle", None) is None:  # no request has begun
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

    return TimedProtocol
