"""Live maps for tests: with a writer that learns when the test says so, or with the process that learns."""

import asyncio
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from types import SimpleNamespace

import numpy as np

from streams import travelling
from wgpr.io.rows import learn_rows
from wgpr.service import process, writer
from wgpr.service.definition import Definition
from wgpr.service.events import EventHub
from wgpr.service.livemap import LiveMap, create_folder, open_folder
from wgpr.service.map_events import MapEvents
from wgpr.service.metrics import Metrics

SURVEY = Definition(inputs=["east", "north"], target="depth", settings={"random_state": 0})
PAPER = Definition(
    inputs=["east", "north"],
    target="depth",
    method="solar",
    settings={"w_gen": 0.2, "batch_size": 20, "n_inducing": 10, "optimizer_iterations": 5, "random_state": 0},
)


def survey_rows(n=110):
    """(n, 3): east, north and depth."""
    return np.column_stack(travelling(n))


def direct_bytes(rows, definition=SURVEY):
    """The map file of an estimator that has learned the rows (n, 3) at once."""
    return _direct_bytes(rows.tobytes(), definition.model_dump_json())


@cache
def _direct_bytes(rows, definition):
    definition = Definition.model_validate_json(definition)
    model = definition.new_estimator()
    learn_rows(model, np.frombuffer(rows).reshape(-1, len(definition.columns)), None, definition.columns)
    return model.to_bytes()


async def until(condition):
    """Wait until the condition holds; an error if it takes too long."""
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.002)


class Hand:
    """Stands for the process that learns: commands are carried out one by one, when the test says so."""

    def __init__(self):
        self.commands, self._maps = [], {}

    def send(self, command):
        self.commands.append(command)

    def carry_out(self, live_map):
        """Carry out the first command, and give the reply to the map."""
        command = self.commands.pop(0)
        try:
            reply = writer._carried_out(command, self._maps)
        except Exception as error:
            reply = writer.Failed(command.name, str(error))
        live_map.receive(reply, live_map.decoded(reply))

    async def learn(self, live_map, n_rows):
        """Carry out commands until so many rows are learned, or the map has failed."""
        while live_map.n_learned < n_rows and not live_map.failure:
            await until(lambda: self.commands)
            self.carry_out(live_map)

    def die(self, live_map):
        """Lose all that was sent and learned, and begin anew."""
        self.commands, self._maps = [], {}
        live_map.writer_died()
        live_map.open_in_writer()


@asynccontextmanager
async def live(folder, hand, max_waiting=100_000, definition=SURVEY):
    """The map in a folder, which is made if it is missing."""
    if not folder.exists():
        create_folder(folder, definition)
    with ThreadPoolExecutor(4) as threads:
        events = MapEvents(folder.name, EventHub())
        live_map = LiveMap(open_folder(folder), hand.send, threads, Metrics(), events, max_waiting)
        live_map.open_in_writer()
        try:
            yield live_map
        finally:
            await live_map.close()


def quick_processes(monkeypatch):
    """Processes that learn are forked by a process that has all imports, so that they are there at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["wgpr.service.writer"])
    monkeypatch.setattr(process, "multiprocessing", SimpleNamespace(get_context=lambda _: context))
