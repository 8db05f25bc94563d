"""`wgpr serve` as a child process, and clients that send rows until each is acknowledged: for service_*.py."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import httpx
import numpy as np

from common import ONE_THREAD
from wgpr.gp.linalg import Array
from wgpr.survey import fly, jacksboro

CHILD = Path(__file__).with_name("service_child.py")
INPUTS, TARGET = ["east", "north"], "elevation"
DEFINITION = {"inputs": INPUTS, "target": TARGET, "settings": {"random_state": 0}}
SNAPSHOT_SECONDS = 60.0  # of the service by default


def flight_rows(n: int) -> Array:
    """(n, 3): east, north and elevation of flights over real terrain, one after the other. No two rows are equal."""
    flights, n_rows = [], 0
    while n_rows < n:
        survey = fly(jacksboro(), random_state=len(flights))
        flights.append(np.column_stack([survey.X, survey.y]))
        n_rows += len(survey.y)
    return np.concatenate(flights)[:n]


class Service:
    """A running service in a process group of its own, at a port of this machine, by default any that is free.

    around : a command that runs it, such as strace; prepare : is called in the child before it begins.
    """

    def __init__(
        self,
        folder: Path,
        log: Path,
        *,
        port: int = 0,
        snapshot_seconds: float = SNAPSHOT_SECONDS,
        around: Sequence[str] = (),
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.folder, self.log = folder, log
        command = [*around, sys.executable, CHILD, snapshot_seconds, folder, "--port", port, "--writers", 1, "--log"]
        self.process = subprocess.Popen(
            list(map(str, command)),
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,
            preexec_fn=prepare,
        )
        Thread(target=self._copy_log, daemon=True).start()

    def _copy_log(self) -> None:
        """By this process, so that limits of the child do not hold for its log."""
        with self.log.open("wb", buffering=0) as file, self.process.stderr as pipe:  # type: ignore
            shutil.copyfileobj(pipe, file)

    def wait_until_started(self, seconds: float = 120.0) -> httpx.Client:
        """A client, as soon as the service answers."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if starts := self.events("start"):
                client = httpx.Client(base_url=f"http://127.0.0.1:{starts[0]['port']}", timeout=60.0)
                try:
                    client.get("/health/live").raise_for_status()
                    return client
                except httpx.TransportError:
                    client.close()
            time.sleep(0.01)
        raise RuntimeError(f"the service did not start:\n{self.log.read_text()[-2000:]}")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of its log about an event."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines if f'"event": "{name}"' in line and line.endswith("}")]

    def server_id(self) -> int:
        """The process that answers, which another command may have started."""
        children = [pid for pid in _children(self.process.pid) if CHILD.name in _command(pid)]
        return children[0] if children else self.process.pid

    def writer_ids(self) -> list[int]:
        """The processes that learn."""
        return [pid for pid in _children(self.server_id()) if "spawn_main" in _command(pid)]

    def kill(self) -> None:
        """End all its processes, as a power cut does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_server(self) -> None:
        """End the process that answers. Those that learn must then end by themselves."""
        writers = self.writer_ids()
        os.kill(self.server_id(), signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 30.0
        while any(map(_is_alive, writers)):
            if time.monotonic() > deadline:
                raise AssertionError("a process that learns has outlived the service")
            time.sleep(0.01)

    def kill_writer(self) -> None:
        for pid in self.writer_ids():
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> int:
        """Let it finish what it has accepted, and save it. Returns the exit code."""
        os.kill(self.server_id(), signal.SIGTERM)
        return self.process.wait(timeout=300)

    def end(self) -> None:
        """End what is left of it."""
        if self.process.poll() is None:
            self.kill()


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Stream:
    """Rows (n, 3) in requests of random size, each with a key. They are sent until each was acknowledged.

    parts : slice of the rows of each request; sequences : by the number of the request, of those acknowledged.
    """

    def __init__(self, rows: Array, rng: np.random.Generator, most: int = 20) -> None:
        self.rows, self.parts, self.sequences = rows, [], dict[int, int]()
        first = 0
        while first < len(rows):
            n = int(rng.integers(1, most + 1))
            self.parts.append(slice(first, min(first + n, len(rows))))
            first += n
        self._next, self._again, self._lock = 0, list[int](), Lock()

    @property
    def n_acknowledged(self) -> int:
        return sum(self.size(number) for number in self.sequences)

    @property
    def in_doubt(self) -> list[int]:
        """Requests that were sent, and whose answers did not come."""
        return list(self._again)

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self.parts) and not self._again

    def size(self, number: int) -> int:
        return len(self.rows[self.parts[number]])

    def in_order(self) -> list[int]:
        """The acknowledged requests as they follow each other in the map; an error if there are gaps."""
        order = sorted(self.sequences, key=self.sequences.__getitem__)
        last = 0
        for number in order:
            last += self.size(number)
            assert self.sequences[number] == last, "acknowledged requests do not follow each other"
        return order

    def send_next(self, client: httpx.Client, name: str, *, only_again: bool = False) -> int | None:
        """The status of the next request, 0 without an answer; None if there are no more.

        Requests that were not acknowledged come first.
        """
        number = self._take(only_again)
        return None if number is None else self._sent(client, name, number)

    def send(
        self, client: httpx.Client, name: str, stop: Event, *, pause: float = 0.0, only_again: bool = False
    ) -> None:
        """Send requests until there are no more, `stop` is set, or the service is gone."""
        while not stop.is_set() and (status := self.send_next(client, name, only_again=only_again)):
            if pause or status not in (200, 202):
                stop.wait(pause or 0.05)

    def send_with(self, client: httpx.Client, name: str, n_clients: int, **options: Any) -> tuple[Event, list[Thread]]:
        """Threads that send at the same time, and the event that stops them."""
        stop = Event()
        threads = [Thread(target=self.send, args=(client, name, stop), kwargs=options) for _ in range(n_clients)]
        for thread in threads:
            thread.start()
        return stop, threads

    def _take(self, only_again: bool) -> int | None:
        with self._lock:
            if self._again:
                return self._again.pop(0)
            if only_again or self._next == len(self.parts):
                return None
            self._next += 1
            return self._next - 1

    def _sent(self, client: httpx.Client, name: str, number: int) -> int:
        """The status of the answer, 0 without one."""
        part = self.rows[self.parts[number]]
        body = dict(zip([*INPUTS, TARGET], part.T.tolist(), strict=True))
        try:
            answer = client.post(f"/maps/{name}/rows", json=body, headers={"Idempotency-Key": f"request {number}"})
        except httpx.TransportError:
            answer = None
        with self._lock:
            if answer is not None and answer.status_code in (200, 202):
                assert answer.json()["accepted"] == len(part), "other rows were acknowledged than sent"
                self.sequences[number] = answer.json()["sequence"]
            else:
                self._again.append(number)
        return 0 if answer is None else answer.status_code
