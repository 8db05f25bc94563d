"""All maps of a folder, which belongs to one service at a time."""

import asyncio
import errno
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.methods import TerritoryMethod
from wgpr.io.files import locked, sync_folder
from wgpr.io.rows import knows_rows_at_once
from wgpr.service.definition import Definition, is_map_name
from wgpr.service.errors import ServiceError
from wgpr.service.events import EventHub
from wgpr.service.limits import Limits, limit_caches
from wgpr.service.livemap import LiveMap, Opened, create_folder, open_folder
from wgpr.service.logs import log
from wgpr.service.map_events import MapEvents
from wgpr.service.metrics import Metrics
from wgpr.service.process import StartedProcess
from wgpr.service.tiles import TileCache
from wgpr.service.writer import Close, Command, Failed, Reply, Writer

_Answer = TypeVar("_Answer")

# Held in the folder of the maps while a service uses it.
_LOCK = ".lock"

# Seconds between two looks at which maps are to be saved, and at the memory of answers.
_TICK = 1.0

# Seconds of each of them that answers are prepared in.
_PREPARING = 0.25


class Catalogue:
    """The maps by name, the writer's processes, and the threads for journals and answers.

    started : a process that learns, which was started before.
    Open it with `async with`. On entering, all journals and snapshots are checked; damage raises an error.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        n_writers: int | None = None,
        started: StartedProcess | None = None,
    ) -> None:
        self._started = started
        self.folder, self.limits, self.metrics = folder, limits or Limits(), Metrics()
        self.maps: dict[str, LiveMap] = {}
        self.hub, self.tiles = EventHub(), TileCache()
        self._n_writers = n_writers or max(1, (os.cpu_count() or 2) - 1)
        self._writers: list[Writer] = []
        self._opening, self._changes = asyncio.Lock(), set[asyncio.Task[Any]]()
        self._is_closing = False
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="wgpr-io")
        self._answering = ThreadPoolExecutor(max_workers=2, thread_name_prefix="wgpr-answer")
        self.reading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wgpr-read")  # it takes much memory
        self.planning = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wgpr-plan")  # what may take seconds

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Catalogue"]:
        """Hold the folder, and learn, until the end of the block; then finish what was accepted, and save it."""
        message = f"another wgpr serve uses {self.folder}; stop it, or name another folder"
        with ExitStack() as stack:
            missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in missing:
                sync_folder(path.parent)
            stack.enter_context(locked(self.folder / _LOCK, message))
            found = self._checked_folders()
            self._loop = asyncio.get_running_loop()
            self._writers = [self._started_writer(number) for number in range(self._n_writers)]
            for opened in found:
                self._add(opened)
            tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._prepare())]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await self._close()

    def _checked_folders(self) -> list[Opened]:
        found: list[Opened] = []
        try:
            for path in sorted(self.folder.iterdir()):
                if path.name.startswith((".new-", ".deleted-")):  # left by a crash
                    shutil.rmtree(path, ignore_errors=True)
                elif path.is_dir() and is_map_name(path.name):
                    found.append(open_folder(path))
                    if warning := found[-1].store.journal.warning:
                        log("journal", map=path.name, error=warning)
        except BaseException:
            for opened in found:
                opened.store.close()
            raise
        return found

    async def _close(self) -> None:
        await asyncio.gather(*self._changes, return_exceptions=True)
        await asyncio.gather(*(live_map.finish() for live_map in self.maps.values()))
        self._is_closing = True
        for live_map in self.maps.values():
            await live_map.close()
        for writer in self._writers:
            await asyncio.to_thread(writer.close)
        for threads in (self._threads, self._answering, self.reading, self.planning):
            threads.shutdown()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            for live_map in self.maps.values():
                live_map.save_if_due()
            self._limit_caches()

    async def _prepare(self) -> None:
        """Use moments without rows to prepare the answers of maps, so that their pages open soon."""
        while True:
            await asyncio.sleep(_TICK)
            try:
                await self._prepare_answers()
            except Exception as error:  # it would only have made answers sooner
                log("prepare", error=type(error).__name__)

    async def _prepare_answers(self) -> None:
        for live_map in sorted(self.maps.values(), key=lambda each: each.prepared_at):
            if live_map.model is None or live_map.n_waiting or live_map.n_prepared == live_map.model.n_models_:
                continue
            model = self._limited(live_map.model)
            method, n_models = model._method(), model.n_models_
            if isinstance(method, TerritoryMethod):
                prepare = partial(method.prepare, model._state, _PREPARING)
                live_map.prepared_at = time.monotonic()
                is_ready = await self._loop.run_in_executor(self.planning, prepare)
                live_map.n_prepared = n_models if is_ready else 0
                return

    # Maps

    def __getitem__(self, name: str) -> LiveMap:
        if name not in self.maps:
            raise ServiceError(404, f"there is no map {name}; make it with PUT /maps/{name}")
        return self.maps[name]

    async def create(self, name: str, definition: Definition) -> bool:
        """Make a map; returns whether it is new. An error if there is one with another definition."""
        return await self._completed(self._create(name, definition), name)

    async def delete(self, name: str) -> None:
        await self._completed(self._delete(name), name)

    async def _completed(self, change: Coroutine[Any, Any, _Answer], name: str) -> _Answer:
        """What a change returns. It goes on if the client leaves, or its time is up, so that no half map is left."""
        task = asyncio.create_task(change, name=name)
        self._changes.add(task)
        task.add_done_callback(self._end_of_change)
        return await asyncio.shield(task)

    def _end_of_change(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        error = None if task.cancelled() else task.exception()
        cause = error.__cause__ if isinstance(error, ServiceError) else error
        if cause is not None:  # the client, who would be told, may have left
            reason = type(cause).__name__  # the message may have data of the map
            if isinstance(cause, OSError):
                reason = cause.strerror or str(cause)
            log("change", map=task.get_name(), error=reason)

    async def _create(self, name: str, definition: Definition) -> bool:
        async with self._opening:
            if name in self.maps:
                if not definition.agrees_with(self.maps[name].definition):
                    raise ServiceError(409, f"map {name} exists with other columns or settings; choose another name")
                return False
            if len(self.maps) >= self.limits.maps:
                raise ServiceError(507, f"there are {len(self.maps)} maps, and no more are allowed; delete one")
            try:
                opened = await asyncio.to_thread(_created, self.folder / name, definition)
            except BlockingIOError as error:
                raise ServiceError(409, str(error)) from error
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    fault = f"there is a folder {name} already, which was not there when the service started"
                    raise ServiceError(409, f"{fault}; move it away, or start the service again") from error
                reason = error.strerror or str(error)
                raise ServiceError(507, f"map {name} cannot be made ({reason}); make room") from error
            self._add(opened)
            self.hub.publish("made", name)
            return True

    async def _delete(self, name: str) -> None:
        async with self._opening:
            live_map = self[name]
            del self.maps[name]
            self._writer_of(name).send(Close(live_map.handle))
            await live_map.close()
            trash = self.folder / f".deleted-{secrets.token_hex(4)}"
            await asyncio.to_thread(live_map.folder.rename, trash)
            await asyncio.to_thread(shutil.rmtree, trash, ignore_errors=True)
            self.metrics.forget_map(name)
            self.hub.publish("deleted", name)

    def _add(self, opened: Opened) -> None:
        name, metrics = opened.name, self.metrics

        def send(command: Command) -> None:
            self._writer_of(name).send(command)

        events = MapEvents(name, self.hub)
        live_map = LiveMap(opened, send, self._threads, metrics, events, self.limits.rows_waiting)
        self.maps[name] = live_map
        metrics.rows_accepted.labels(name)
        metrics.rows_learned.labels(name)
        metrics.rows_waiting.labels(name).set_function(lambda: live_map.n_waiting)
        metrics.models.labels(name).set_function(lambda: 0 if live_map.model is None else live_map.model.n_models_)
        live_map.open_in_writer()

    def answering_model(self, live_map: LiveMap) -> EnsembleRegressor:
        """The model for a client's question. What the map keeps for answers goes last when there is too much of it."""
        live_map.asked_at = time.monotonic()
        return self._limited(live_map.required_model())

    async def answered(self, function: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """What a function returns; it is called in a thread for answers."""
        return await self._loop.run_in_executor(self._answering, function, *arguments)

    def _limited(self, model: EnsembleRegressor) -> EnsembleRegressor:
        if not knows_rows_at_once(model) or cast(Any, model).max_cache_bytes <= self.limits.cache_bytes:
            return model  # other methods have no cache
        return cast(EnsembleRegressor, copy(model).set_params(max_cache_bytes=self.limits.cache_bytes))

    def _limit_caches(self) -> None:
        """Drop what the maps keep that were asked longest ago, until all together keep at most `limits.cache_bytes`."""
        models = [each.model for each in sorted(self.maps.values(), key=lambda each: each.asked_at)]
        limit_caches((model._state.cache for model in models if model is not None), self.limits.cache_bytes)

    # Writers

    def _writer_of(self, name: str) -> Writer:
        return self._writers[self._writer_number(name)]

    def _writer_number(self, name: str) -> int:
        return sum(name.encode()) % self._n_writers

    def _started_writer(self, number: int) -> Writer:
        self.metrics.writer_starts.inc()

        def receive(reply: Reply | None) -> None:  # in a thread of the writer
            live_map, content = self._map_of(reply), None
            if live_map is not None and reply is not None:
                try:
                    content = live_map.decoded(reply)
                except Exception as error:
                    reply = Failed(reply.name, f"{type(error).__name__}: {error}")
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._receive, number, reply, content)

        started, self._started = self._started, None
        return Writer(receive, started)

    def _map_of(self, reply: Reply | None) -> LiveMap | None:
        """The map that a reply is for; None if it was deleted."""
        handle = None if reply is None else reply.name
        return next((live_map for live_map in list(self.maps.values()) if live_map.handle == handle), None)

    def _receive(self, number: int, reply: Reply | None, content: Any) -> None:
        if reply is None:
            self._restart_writer(number)
        elif (live_map := self._map_of(reply)) is not None:
            live_map.receive(reply, content)

    def _restart_writer(self, number: int) -> None:
        """Start a process again that has died. Its maps are learned again from their snapshots."""
        if self._is_closing:
            return
        log("writer", error="the process that learns has died, and is started again")
        self._writers[number] = self._started_writer(number)
        for name, live_map in self.maps.items():
            if self._writer_number(name) == number:
                live_map.writer_died()
                live_map.open_in_writer()


def _created(folder: Path, definition: Definition) -> Opened:
    """A new map. Nothing is left of it if it cannot be opened."""
    create_folder(folder, definition)
    try:
        return open_folder(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
