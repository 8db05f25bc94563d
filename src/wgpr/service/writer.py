"""The process that learns. It has the interpreter lock for itself, so that learning does not delay answers.

The service sends commands for its maps, one after the other, and gets a reply to each. After rows were learned, the
reply holds what changed: parts of the state that the service has already are sent as their numbers. The process
writes no files, and ends when the service does.
"""

import os
import signal
from collections.abc import Callable
from copy import copy
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, cast

from wgpr.ensemble.answers import PosteriorCache
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.gp.linalg import Array
from wgpr.io.maps import load
from wgpr.io.rows import Forecasts, knows_rows_at_once, n_seen
from wgpr.service.changes import StateSender
from wgpr.service.definition import Definition
from wgpr.service.limits import limit_caches
from wgpr.service.process import StartedProcess, start_process

# Memory for the factorised matrices of forecasts, in bytes: at most of one map, and of all maps.
_CACHE_BYTES, _CACHE_BYTES_OF_ALL = 2**24, 2**27


class Open(NamedTuple):
    """Load a saved map or, if `snapshot` is None, begin a new one."""

    name: str
    definition: Definition
    snapshot: Path | None


class Learn(NamedTuple):
    """first : number of rows before these; rows : (n, d + 1), or (n, d + 2) with weights."""

    name: str
    first: int
    rows: Array


class Save(NamedTuple):
    """Give the bytes of the map file."""

    name: str


class Close(NamedTuple):
    name: str


class Learned(NamedTuple):
    """n_rows : that the map has seen; change : for `StateReceiver`; forecasts : their scores, and how many they are."""

    name: str
    n_rows: int
    change: bytes | None
    forecasts: dict[str, Any] | None = None


class Saved(NamedTuple):
    name: str
    n_rows: int
    data: bytes


class Failed(NamedTuple):
    """A command that had no effect."""

    name: str
    reason: str


Command = Open | Learn | Save | Close
Reply = Learned | Saved | Failed


# In the process that learns


class _Learning:
    """A map in the process that learns."""

    def __init__(self, command: Open) -> None:
        self._definition = command.definition
        made = load(command.snapshot) if command.snapshot else command.definition.new_estimator()
        self._model = cast(OnlineRegressor, made)
        self._settings = made.get_params(deep=False)
        if knows_rows_at_once(made):  # other methods have no cache. This process answers hardly anything
            made.set_params(max_cache_bytes=min(_CACHE_BYTES, self._settings["max_cache_bytes"]))
        self._forecasts, self._sender = Forecasts(), StateSender()

    @property
    def cache(self) -> PosteriorCache:
        """What it keeps for forecasts."""
        return self._model._state.cache if n_seen(self._model) else PosteriorCache()

    def learn(self, first: int, rows: Array) -> None:
        if first != n_seen(self._model):  # no row is learned twice or left out
            raise ValueError(f"rows after the first {first:,} came after {n_seen(self._model):,}")
        n_columns = len(self._definition.inputs) + 1
        weights = rows[:, n_columns] if self._definition.weight is not None else None
        self._forecasts.learn(self._model, rows[:, :n_columns], weights, self._definition.columns[:n_columns])

    def changes(self, name: str) -> Learned:
        if not n_seen(self._model):
            return Learned(name, 0, None)
        forecasts, scores = None, self._forecasts.scores
        if scores.n_rows:
            result, offset = scores.result(), self._forecasts.offset
            forecasts = {
                "rows": scores.n_rows,
                "rmse": result.rmse,
                "nlpd": result.nlpd,
                "coverage": result.coverage,
                "offset": None if offset is None else offset._asdict(),
            }
        return Learned(name, n_seen(self._model), self._sender.change(self._with_own_settings()), forecasts)

    def saved(self, name: str) -> Saved:
        return Saved(name, n_seen(self._model), self._with_own_settings().to_bytes())

    def _with_own_settings(self) -> EnsembleRegressor:
        return cast(EnsembleRegressor, copy(self._model).set_params(**self._settings))


def run(connection: Connection) -> None:
    """Carry out commands until None comes or the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service says when to stop
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(5)  # answers come first
    maps: dict[str, _Learning] = {}
    while True:
        try:
            command: Command | None = connection.recv()
        except (EOFError, OSError):
            return
        if command is None:
            return
        try:
            reply = _carried_out(command, maps)
        except Exception as error:
            reply = Failed(command.name, f"{type(error).__name__}: {error}")
        if reply is not None:
            connection.send(reply)


def _carried_out(command: Command, maps: dict[str, _Learning]) -> Reply | None:
    name = command.name
    if isinstance(command, Close):
        maps.pop(name, None)
        return None
    if isinstance(command, Open):
        maps[name] = _Learning(command)
    if isinstance(command, Learn):
        maps[name].learn(command.first, command.rows)
        maps[name] = maps.pop(name)  # those that learned longest ago come first
        limit_caches([each.cache for each in maps.values()], _CACHE_BYTES_OF_ALL)
    return maps[name].saved(name) if isinstance(command, Save) else maps[name].changes(name)


# In the service


class Writer:
    """The process that learns, and two threads that talk with it.

    receive : is called with each reply, in a thread, and with None when the process has ended.
    started : the process; by default it is started now.
    """

    def __init__(self, receive: Callable[[Reply | None], None], started: StartedProcess | None = None) -> None:
        self._process, self._connection = started or start_process()
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._receive = receive
        self._threads = [Thread(target=self._send_all, daemon=True), Thread(target=self._receive_all, daemon=True)]
        for thread in self._threads:
            thread.start()

    @property
    def process_id(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, command: Command) -> None:
        """Give a command and return at once."""
        self._commands.put(command)

    def close(self) -> None:
        """End the process after what it does now."""
        self._commands.put(None)
        self._process.join(timeout=10.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        for thread in self._threads:
            thread.join(timeout=10.0)
        self._connection.close()

    def _send_all(self) -> None:
        while True:
            command = self._commands.get()
            try:
                self._connection.send(command)
            except (OSError, ValueError):  # the process has ended, which the other thread tells
                return
            if command is None:
                return

    def _receive_all(self) -> None:
        while True:
            try:
                reply = self._connection.recv()
            except (EOFError, OSError, TypeError):
                self._receive(None)
                return
            self._receive(reply)
