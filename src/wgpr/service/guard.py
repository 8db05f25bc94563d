"""Who may come in, with how much, and for how long. Each request is counted and gets a line in the log."""

import asyncio
import hmac
import re
import time
import traceback
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wgpr.service.definition import is_map_name
from wgpr.service.errors import ServiceError, too_busy
from wgpr.service.limits import ENDLESS, Limits
from wgpr.service.logs import log
from wgpr.service.metrics import Metrics

_HEADER_BYTES = 2**14

# Anybody may see these: they say nothing about the maps.
_OPEN = {"/", "/health/live", "/health/ready", "/docs", "/openapi.json"}
_OPEN_FOLDER = "/page/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def as_response(problem: ServiceError) -> Response:
    return JSONResponse(problem.content(), problem.status_code, problem.headers, media_type="application/problem+json")


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
        self._n_requests = self._n_held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, self._most(scope), self._hold)
        started = time.perf_counter()
        fault: dict[str, Any] = {}
        self._n_requests += 1
        try:
            async with asyncio.timeout(None if scope["path"] in ENDLESS else self._limits.seconds):
                self._check(scope, Headers(scope=scope))
                await self._app(scope, exchange.receive, exchange.send)
        except ServiceError as problem:
            await self._answer(scope, exchange, problem)
        except TimeoutError:
            detail = f"the request took longer than {self._limits.seconds:g} s; send less at once"
            await self._answer(scope, exchange, ServiceError(408, detail, headers={"Connection": "close"}))
        except ClientDisconnect:
            pass
        except Exception as error:
            fault["error"] = _described(error)
            await self._answer(scope, exchange, ServiceError(500, "the service has a fault; its log says more"))
        finally:
            self._n_requests -= 1
            self._n_held -= exchange.n_received
            self._note(scope, exchange, time.perf_counter() - started, fault)

    async def _answer(self, scope: Scope, exchange: "_Exchange", problem: ServiceError) -> None:
        if exchange.status is not None:
            return
        response, origin = as_response(problem), Headers(scope=scope).get("origin")
        if origin in self._origins:
            response.headers["Access-Control-Allow-Origin"] = origin
        await response(scope, exchange.receive, exchange.send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if self._n_requests > self._limits.connections:
            raise too_busy(503, f"{self._n_requests} requests at once are too many; send it again", 1.0)
        path, host, origin = scope["path"], headers.get("host", ""), headers.get("origin")
        if origin is not None and origin not in {*self._origins, f"{scope['scheme']}://{host}"}:
            raise ServiceError(403, "a page of another site may not ask; allow it with --allow-origin")
        if self._token is None:
            # By DNS rebinding, a page of another site reaches the service under the name of that site.
            if not is_loopback(re.sub(r":\d*$", "", host).lower().removeprefix("[").removesuffix("]")):
                raise ServiceError(403, "the host must be localhost; start the service with a token to use other names")
        elif not (path in _OPEN or path.startswith(_OPEN_FOLDER)) and not self._is_preflight(scope, headers):
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, self._token):
                detail = "a token is needed; send it as Authorization: Bearer TOKEN"
                raise ServiceError(401, detail, headers={"WWW-Authenticate": "Bearer"})
        if sum(len(name) + len(value) for name, value in headers.raw) > _HEADER_BYTES:
            raise ServiceError(431, f"the headers have more than {_HEADER_BYTES:,} bytes; leave some out")
        if "content-length" in headers and "transfer-encoding" in headers:  # others may read such a request differently
            close = {"Connection": "close"}
            raise ServiceError(400, "the body has a length and chunks; send one of these headers", headers=close)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._most(scope):
            raise _too_large(self._most(scope))

    def _most(self, scope: Scope) -> int:
        """Bytes that the body of a request may have."""
        return self._limits.body if scope["path"].endswith(("/rows", "/predict")) else self._limits.short_body

    def _hold(self, n_bytes: int) -> None:
        """Count the bytes of all requests."""
        self._n_held += n_bytes
        if self._n_held > self._limits.bodies:
            raise too_busy(503, "the bodies of all requests at once are too large; send it again", 1.0)

    def _is_preflight(self, scope: Scope, headers: Headers) -> bool:
        """Whether a browser asks if a page of an allowed site may ask. It sends no token with that."""
        is_allowed = headers.get("origin") in self._origins
        return is_allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers

    def _note(self, scope: Scope, exchange: "_Exchange", seconds: float, fault: dict[str, Any]) -> None:
        route = getattr(scope.get("route"), "path", "none")
        status = exchange.status or 499  # the client has gone
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._metrics.requests.labels(route, method, status).observe(seconds)
        client = (scope.get("client") or ("",))[0]
        name = scope.get("path_params", {}).get("name", "")
        log(
            "request",
            client=client,
            method=method,
            route=route,
            map=name if is_map_name(name) else None,
            status=status,
            ms=round(1e3 * seconds, 1),
            received=exchange.n_received,
            sent=exchange.n_sent,
            **fault,
        )


_METHODS = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"}


def _described(fault: BaseException) -> str:
    """Where a fault is. Its message may have data in it, and is left out."""
    frames = reversed(traceback.extract_tb(fault.__traceback__))
    return " < ".join([type(fault).__name__, *(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames)])


# The connection stays open after this, and the rest of the body is thrown away, so that the client reads the answer.


def _too_large(most: int) -> ServiceError:
    return ServiceError(413, f"the body has more than {most:,} bytes; send it in parts")


class _Exchange:
    """A request and its answer, whose bytes are counted. status : of the answer, None before it begins.

    most : bytes of the request; hold : is told how many more have come.
    """

    def __init__(self, receive: Receive, send: Send, most: int, hold: Callable[[int], None]) -> None:
        self._receive, self._send, self._most, self._hold = receive, send, most, hold
        self.n_received = self.n_sent = 0
        self.status: int | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        n_bytes = len(message.get("body", b""))
        self.n_received += n_bytes
        self._hold(n_bytes)
        if self.n_received > self._most:
            raise _too_large(self._most)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.n_sent += len(message.get("body", b""))
        await self._send(message)
