"""A map of the service: rows are written to its journal, learned by the writer, and saved; queries are answered.

    accept ─> journal (on the disk) ─> queue ─> writer ─> model that answers
                 ^                                │
                 └──── trimmed after ── snapshot ─┘

`accept` returns when the rows are on the disk. All methods are called in the event loop; what takes long is done in
threads and in the writer's process.
"""

import asyncio
import secrets
import shutil
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Executor
from copy import copy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.codec import learned_tables
from wgpr.io.coordinates import Coordinates, coordinates
from wgpr.io.files import lock_of, locked, sync_folder
from wgpr.io.journal import Entry, JournalFailedError, JournalFullError, KeyConflictError, Receipt, Record
from wgpr.io.known_range import MIN_KNOWN, Fault, KnownRange, first_out_of_area, first_outside
from wgpr.io.store import JOURNAL, SNAPSHOT, Store
from wgpr.service.changes import StateReceiver
from wgpr.service.definition import Definition
from wgpr.service.errors import ServiceError, too_busy
from wgpr.service.logs import log
from wgpr.service.map_events import MapEvents
from wgpr.service.metrics import Metrics
from wgpr.service.writer import Command, Failed, Learn, Learned, Open, Reply, Save, Saved

# Rows that the writer learns at once, and how many commands of a map wait in its process.
_PIECE, _N_PIECES = 500, 2
# Rows in the journal that are not in the snapshot, and seconds since the last one, after which a new one is made.
_SNAPSHOT_ROWS, _SNAPSHOT_SECONDS = 50_000, 60.0
# States that differences can begin at.
_N_STATES = 8
# Streams that are remembered, the latest ones.
_MOST_STREAMS = 100
# Times that the writer may die while it learns the same rows of a map.
_MOST_FAILURES = 3
_CLOSED = "it was closed"
# Entry of what a journal is about: the fingerprints of each stream, the last one of all of its rows.
_STREAMS = "streams"

_handles = count()


@dataclass(frozen=True)
class Opened:
    """A map folder whose contents were checked. model : of the snapshot, None without one."""

    name: str
    folder: Path
    definition: Definition
    store: Store
    model: EnsembleRegressor | None


def create_folder(folder: Path, definition: Definition) -> None:
    """Make the folder of a new map. It has its name when it is complete."""
    temporary = folder.with_name(f".new-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        Store.create(temporary / SNAPSHOT, temporary / JOURNAL, definition.with_seed().model_dump()).close()
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(folder.parent)


def open_folder(folder: Path) -> Opened:
    """Open the journal and the snapshot of a map, and check that they are whole and belong together."""

    def about(model: EnsembleRegressor | None) -> dict[str, Any]:
        if model is None:
            raise FileNotFoundError(f"{folder} has neither {SNAPSHOT} nor {JOURNAL}; move it to another place")
        return Definition.of_model(model).model_dump()  # a map that somebody has put there

    # A command that finds the journal leaves the snapshot alone; until there is one, it is locked out.
    with locked(lock_of(folder / SNAPSHOT), f"another wgpr is writing {folder / SNAPSHOT}; wait until it ends"):
        store, model = Store.in_folder(folder, about)
    return Opened(folder.name, folder, Definition.model_construct(**store.journal.about), store, model)


class LiveMap:
    """definition : names and settings; model : that answers, None before the first row.

    handle, token : its name for the writer and in versions. A map that is deleted and made again has others.
    n_accepted, n_learned, n_saved : rows that are on the disk, in the model, and in the snapshot.
    forecasts : scores of those since the service was started, and how many they are; None before the first.
    failure : why no more rows are taken, empty if they are.
    n_prepared : local models when all answers were prepared; prepared_at, asked_at : when that was last tried, and when
    it was last asked.
    """

    def __init__(
        self,
        opened: Opened,
        send: Callable[[Command], None],
        threads: Executor,
        metrics: Metrics,
        events: MapEvents,
        max_waiting: int,
    ) -> None:
        self.name, self.definition, self.model = opened.name, opened.definition, opened.model
        self.handle, self.token = f"{opened.name}/{next(_handles)}", secrets.token_hex(4)
        self.folder, self._store, self._journal = opened.folder, opened.store, opened.store.journal
        self._send, self._threads, self._metrics, self._max_waiting = send, threads, metrics, max_waiting
        self.events = events
        self.n_accepted, self.n_learned = self._journal.n_rows, self.n_saved
        self.forecasts: dict[str, Any] | None = None
        self.failure = ""
        self.n_prepared, self.prepared_at, self.asked_at = 0, 0.0, 0.0
        self._tables = learned_tables(opened.model)
        self._known = KnownRange.of_map(opened.model) if opened.model is not None else None
        self._receiver = StateReceiver()
        self._entries: list[tuple[Entry, asyncio.Future[Receipt]]] = []
        self._queue: deque[Record] = deque()
        self._n_in_writer, self._n_deaths, self._is_saving, self._saved_at = 0, 0, False, time.monotonic()
        self._n_openings, self._is_open = 0, False  # in the writer
        self._lock = asyncio.Lock()  # of the journal
        self._snapshot_lock = asyncio.Lock()  # of the snapshot's file; take it before the other
        self._wake = asyncio.Event()
        self._change = asyncio.Event()  # is set at the next change of what is learned or saved; another takes its place
        self._n_at_start = self.n_accepted
        self._states: OrderedDict[str, EnsembleRegressor] = OrderedDict()
        self._tasks = {asyncio.create_task(self._commit_all())}

    # Rows

    @property
    def n_saved(self) -> int:
        return self._store.n_saved

    @property
    def is_ready(self) -> bool:
        """Whether it has learned what was in the journal when it was opened, and takes rows."""
        return self.n_learned >= self._n_at_start and not self.failure

    @property
    def n_waiting(self) -> int:
        """Rows that are accepted or about to be, and not yet learned."""
        return self.n_accepted - self.n_learned + sum(len(entry.rows) for entry, _ in self._entries)

    @property
    def learned_tables(self) -> list[str]:
        """What is noted of the tables and streams that it has learned, as in a map file."""
        streams = [stream.split() for stream in self._journal.about.get(_STREAMS, [])]
        return [*self._tables, *(f"{marks[-1].partition(':')[0]} {mark}" for marks in streams for mark in marks)]

    async def accept(self, rows: Array, key: str | None, stream: str = "") -> Receipt:
        """Write rows (n, k) to the journal; returns when they are on the disk.

        stream : fingerprints of the stream that the rows are of, up to their end; the last one is of all.
        """
        if self.failure:
            raise ServiceError(503, f"map {self.name} takes no rows: {self.failure}")
        if self.n_waiting and self.n_waiting + len(rows) > self._max_waiting:
            detail = f"{self.n_waiting:,} rows wait to be learned; send these again later"
            raise too_busy(429, detail, self.n_waiting / 2000)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._entries.append((Entry(rows, key, stream), future))
        self._wake.set()
        return await future

    async def wait_until_learned(self, n_rows: int) -> None:
        await self._until(lambda: self.n_learned >= n_rows or bool(self.failure))
        if self.n_learned < n_rows:
            raise ServiceError(503, f"the rows are on the disk, but map {self.name} does not learn: {self.failure}")

    def first_far(self, rows: Array) -> Fault | None:
        """The first value of rows (n, k) that is far outside of what is known, or of where the map's system is used."""
        n_inputs = len(self.definition.inputs)
        if self._known is None or self.n_accepted < MIN_KNOWN:
            fault = first_out_of_area(rows[:, :n_inputs], self._coordinates)
            return None if fault is None else fault._replace(text=fault.text.replace("--crs", "the crs"))
        return self._known.first_far(rows[:, : n_inputs + 1])

    @property
    def _coordinates(self) -> Coordinates | None:
        return coordinates(self.definition.new_estimator() if self.model is None else self.model)

    def first_outside(self, rows: Array) -> Fault | None:
        """The first row of (n, k) whose place the map cannot have, since the writer could not learn it."""
        known = self._coordinates
        if known is None:
            return None
        X = rows[:, : len(self.definition.inputs)]
        return first_outside(X[:1], known, self._known) or first_outside(X, known.settled(X[0]), self._known)

    def _note_range(self, rows: Array) -> None:
        values = rows[:, : len(self.definition.inputs) + 1]
        if self._known is None:
            known = coordinates(self.definition.new_estimator())
            known = None if known is None else known.settled(values[0, :-1])
            self._known = KnownRange.of_rows(values, known, self.definition.inputs)
        else:
            self._known = self._known.including(values)

    async def _commit_all(self) -> None:
        """Write the rows of all requests that wait with one commit, again and again."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self._lock:
                entries, self._entries = self._entries, []
                if not entries:
                    continue
                started = time.perf_counter()
                try:
                    receipts = await self._in_thread(self._append, [entry for entry, _ in entries])
                except Exception as error:
                    self._refuse(entries, error)
                    continue
                self._metrics.commit_seconds.observe(time.perf_counter() - started)
                for (entry, future), receipt in zip(entries, receipts, strict=True):
                    self._acknowledge(entry, future, receipt)
            self._feed()

    def _append(self, entries: list[Entry]) -> list[Receipt | KeyConflictError]:
        """Write rows to the journal. A stream takes the place of one that it continues, whose last mark it has."""
        before: list[str] = self._journal.about.get(_STREAMS, [])
        streams = before
        for stream in filter(None, (entry.stream for entry in entries)):
            streams = [*(each for each in streams if each.split()[-1] not in stream.split()), stream]
        about = {**self._journal.about, _STREAMS: streams[-_MOST_STREAMS:]}
        return self._journal.append(entries, about if streams != before else None)

    def _acknowledge(
        self, entry: Entry, future: "asyncio.Future[Receipt]", receipt: Receipt | KeyConflictError
    ) -> None:
        if isinstance(receipt, Receipt) and receipt.is_new:
            self._queue.append(Record(receipt.last - receipt.n_rows, entry.rows))
            self.n_accepted = receipt.last
            self._note_range(entry.rows)
            self.events.rows_accepted(entry.rows[:, : len(self.definition.inputs) + 1], self.n_accepted)
            self._metrics.rows_accepted.labels(self.name).inc(receipt.n_rows)
        if future.done():  # the client has gone
            return
        if isinstance(receipt, Receipt):
            future.set_result(receipt)
        else:
            future.set_exception(ServiceError(422, str(receipt)))

    def _refuse(self, entries: list[tuple[Entry, "asyncio.Future[Receipt]"]], error: Exception) -> None:
        is_full, reason = isinstance(error, JournalFullError), str(error) or type(error).__name__
        if not is_full:
            self._fail(reason)
        log("journal", map=self.name, error=reason)
        for _, future in entries:
            if not future.done():
                future.set_exception(ServiceError(507 if is_full else 503, reason))

    # Learning

    def open_in_writer(self) -> None:
        """Begin to learn what the snapshot lacks; also after the writer was started anew, unless the map has failed."""
        if self.failure:
            return
        self._receiver, self._n_in_writer = StateReceiver(), 1
        self._n_openings += 1
        self._spawn(self._recover(self._n_openings))

    async def _recover(self, number: int) -> None:
        """Send the snapshot to the writer, then the rows that the snapshot lacks. number : of the opening."""
        async with self._snapshot_lock, self._lock:  # the snapshot stays the one that the writer will read
            try:
                queue = await self._in_thread(lambda: deque(self._journal.records(self.n_saved)))
            except Exception as error:
                self._fail(f"its journal cannot be read ({error}); repair the disk and start again")
                log("journal", map=self.name, error=str(error))
                return
            if number != self._n_openings:  # the writer has died again
                return
            self._send(Open(self.handle, self.definition, self.folder / SNAPSHOT if self.n_saved else None))
            self._queue, self._is_open = queue, True
        for record in queue:
            self._note_range(record.rows)
        if self._queue:
            log("replay", map=self.name, rows=self.n_accepted - self.n_saved)
        self._feed()

    def _feed(self) -> None:
        """Keep the writer busy with pieces of the queue."""
        while self._is_open and self._queue and self._n_in_writer < _N_PIECES and not self.failure:
            first, parts = self._queue[0].first, [self._queue.popleft().rows]
            while self._queue and sum(map(len, parts)) + len(self._queue[0].rows) <= _PIECE:
                parts.append(self._queue.popleft().rows)
            self._n_in_writer += 1
            self._send(Learn(self.handle, first, np.concatenate(parts)))

    def decoded(self, reply: Reply) -> Any:
        """What a reply holds, made in the thread that received it."""
        if isinstance(reply, Learned) and reply.change is not None:
            return self._receiver.model(reply.change, self.model)
        return None

    def receive(self, reply: Reply, model: EnsembleRegressor | None) -> None:
        """Take a reply of the writer, with the model that `decoded` has made of it."""
        if isinstance(reply, Saved):
            self._spawn(self._write_snapshot(reply))
        elif isinstance(reply, Failed):
            self._is_saving = False
            self._fail(f"learning has failed ({reply.reason}); its rows are safe in the journal")
            log("writer", map=self.name, error=reply.reason.partition(":")[0])  # the rest may have data of the map
        else:
            self._take_model(reply, model)

    def _take_model(self, reply: Learned, model: EnsembleRegressor | None) -> None:
        self._n_in_writer -= 1
        if model is not None and reply.n_rows >= self.n_learned:
            self._n_deaths = 0 if reply.n_rows > self.n_learned else self._n_deaths
            self._metrics.rows_learned.labels(self.name).inc(reply.n_rows - self.n_learned)
            self.events.model_changed(model, self.model, reply.forecasts)
            self.model, self.n_learned, self.forecasts = model, reply.n_rows, reply.forecasts
            self._tell_change()
        self._feed()
        if self.n_learned - self.n_saved >= _SNAPSHOT_ROWS:
            self.save_if_changed()

    def _tell_change(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._change.wait()

    def writer_died(self) -> None:
        """The process has ended while it had this map. Rows that it was learning are learned again."""
        if self._n_in_writer:
            self._n_deaths += 1
        self._is_open = self._is_saving = False
        if self._n_deaths > _MOST_FAILURES:
            self._fail("the process that learns it has died again and again; its rows are safe in the journal")
        self._tell_change()

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._tell_change()

    # Snapshots

    def save_if_due(self) -> None:
        if time.monotonic() > self._saved_at + _SNAPSHOT_SECONDS:
            self.save_if_changed()

    def save_if_changed(self) -> None:
        if self._is_open and self.n_learned > self.n_saved and not self._is_saving and not self.failure:
            self._is_saving = True
            self._send(Save(self.handle))

    async def _write_snapshot(self, saved: Saved) -> None:
        try:
            async with self._snapshot_lock:
                await self._in_thread(self._store.write, saved.data, saved.n_rows)
                async with self._lock:
                    await self._in_thread(self._store.trim)
            log("snapshot", map=self.name, rows=saved.n_rows, bytes=len(saved.data))
        except JournalFailedError as error:
            self._fail(str(error))
            log("snapshot", map=self.name, error=str(error))
        except OSError as error:  # the rows stay in the journal
            log("snapshot", map=self.name, error=str(error))
        finally:
            self._is_saving, self._saved_at = False, time.monotonic()
            self._tell_change()

    async def finish(self) -> None:
        """Learn all that was accepted, and save it."""
        await self._until(lambda: self.n_learned >= self.n_accepted or bool(self.failure))
        await self._until(lambda: not self._is_saving)  # a snapshot of fewer rows
        self.save_if_changed()
        await self._until(lambda: not self._is_saving)

    async def close(self) -> None:
        """End what is begun, refuse what waits, and close the journal."""
        self.events.close()
        self._fail(_CLOSED)
        async with self._snapshot_lock, self._lock:  # no thread uses the journal any more
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._entries:
                self._refuse(self._entries, JournalFailedError(_CLOSED))
            await self._in_thread(self._store.close)

    # Files and differences

    @property
    def version(self) -> str:
        """Names the state of the map: a token tells maps apart, and the rows tell states."""
        return "0" if self.model is None else f"{self.token}-{self.n_learned}"

    def remember_state(self) -> tuple[str, EnsembleRegressor]:
        """The model with its version; differences can begin at it later."""
        model = self.required_model()
        self._states[self.version] = copy(model)
        self._states.move_to_end(self.version)
        while len(self._states) > _N_STATES:
            self._states.popitem(last=False)
        return self.version, model

    def state_of(self, version: str) -> EnsembleRegressor:
        if version not in self._states:
            raise ServiceError(410, "the service does not know this state any more; get the whole file")
        return self._states[version]

    def required_model(self) -> EnsembleRegressor:
        if self.model is None:
            remedy = "send rows first"
            if self.n_accepted:
                remedy = "its first rows are being learned; ask again, or send rows with ?wait=learned"
            raise ServiceError(409, f"map {self.name} has learned nothing yet; {remedy}")
        return self.model

    # Tasks

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
