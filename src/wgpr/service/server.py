"""Run the service until it is told to stop."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import uvicorn

from wgpr.service.app import create_app
from wgpr.service.catalogue import Catalogue
from wgpr.service.connections import protocol_with_limits
from wgpr.service.definition import Definition
from wgpr.service.guard import is_loopback
from wgpr.service.limits import Limits
from wgpr.service.logs import log
from wgpr.service.process import StartedProcess
from wgpr.survey import fly, jacksboro

_LEAST_TOKEN = 16
# Of the demo: name of its map, seconds of the whole survey, and seconds between two requests.
_DEMO, _SECONDS, _PAUSE = "terrain", 60.0, 0.25
_STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name)]


@dataclass(frozen=True)
class Address:
    """Where the service listens, and who may ask. token : None only on a loopback address."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from other machines; give a token by --token-file or WGPR_TOKEN, "
                "or use 127.0.0.1"
            )
        if self.token is not None and (len(self.token) < _LEAST_TOKEN or not self.token.isascii()):
            raise ValueError(f"the token must have at least {_LEAST_TOKEN} ASCII characters")


def serve(
    folder: Path,
    address: Address,
    *,
    limits: Limits | None = None,
    n_writers: int | None = None,
    process: StartedProcess | None = None,
    is_demo: bool = False,
    started: Callable[[Catalogue, str], None] = lambda catalogue, url: None,
) -> None:
    """Serve the maps of a folder until SIGTERM or Ctrl-C; then finish what was accepted, and save it.

    process : that learns, if it was started before. is_demo : also survey the demo's terrain.
    started : is called when the service listens, with its address.
    """

    stopping = _Stopping()

    async def run() -> None:
        with bound(address) as listening:
            async with Catalogue(folder, limits, n_writers, process).opened() as catalogue:
                server = new_server(catalogue, address)
                stopping.begin(server, catalogue)
                host, port = listening.getsockname()[:2]
                listening.listen()  # so that a client that is told the address can connect
                started(catalogue, f"http://{f'[{host}]' if ':' in host else host}:{port}")
                log("start", maps=len(catalogue.maps), port=port)
                demo = asyncio.create_task(_survey(catalogue)) if is_demo else None
                if not server.should_exit:
                    await server.serve(sockets=[listening])
                if demo is not None:
                    demo.cancel()
                log("stop")

    _allow_open_files()
    with stopping.handled():
        asyncio.run(run())


async def _survey(catalogue: Catalogue) -> None:
    """The demo: a terrain is surveyed in a minute, from where an earlier demo has ended."""
    track = await asyncio.to_thread(lambda: fly(jacksboro(), random_state=0))
    definition = Definition.model_validate({"inputs": track.input_names, "target": track.target_name})
    await catalogue.create(_DEMO, definition)
    live_map, rows = catalogue[_DEMO], np.column_stack([track.X, track.y])
    piece = ceil(len(rows) * _PAUSE / _SECONDS)
    for start in range(live_map.n_accepted, len(rows), piece):
        await live_map.accept(rows[start : start + piece], key=None)
        await asyncio.sleep(_PAUSE)


def _allow_open_files() -> None:
    """As many open files as the system allows: each map has two, and each connection one."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by `_Stopping`, also before the server has begun and after it has ended."""
        yield


def new_server(catalogue: Catalogue, address: Address) -> uvicorn.Server:
    """The HTTP server for an opened catalogue. Set its `should_exit` to stop it."""
    limits = catalogue.limits
    app = create_app(catalogue, token=address.token, origins=address.origins)
    config = uvicorn.Config(
        app,
        http=protocol_with_limits(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=ceil(limits.header_seconds),
        timeout_graceful_shutdown=ceil(limits.seconds),
    )
    return _Server(config)


def bound(address: Address) -> socket.socket:
    """A socket at the address. Port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY for these
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        where = f"{address.host}, port {address.port}"
        raise OSError(f"the service cannot listen at {where} ({error.strerror}); choose another --port") from error
    return listening


class _Stopping:
    """The first signal stops the server; a third one ends the program at once, and the journals have the rest.

    A signal that comes while the maps are opened stops it as soon as they are.
    """

    def __init__(self) -> None:
        self._n_signals = 0
        self._stop: Callable[[], None] = lambda: None

    def begin(self, server: uvicorn.Server, catalogue: Catalogue) -> None:
        """Stop this server from now on."""

        def stop() -> None:
            server.should_exit, server.force_exit = True, self._n_signals > 1
            catalogue.hub.close()

        self._stop = stop
        if self._n_signals:
            stop()

    def _receive(self, number: int, _: object) -> None:
        self._n_signals += 1
        self._stop()
        if self._n_signals > 2:
            os._exit(128 + number)

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals. asyncio leaves them alone then."""
        before = {each: signal.signal(each, self._receive) for each in _STOP}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
