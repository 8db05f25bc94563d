"""A million rows in three ways, whose processes are killed (docs/million.md).

    python benchmarks/million.py --data FOLDER [--only "shards;service;stream"] [--kills 10] [--rows N]
        [--output million.jsonl] [--write]

The rows of `magnetic_britain` but for a tenth of the segments, which are held out, are learned twice, in batches of
1,000: by `wgpr stream`, by `wgpr serve` with `wgpr.client.Map`, and by two shards. A process of each is killed (-9) at
random moments, and started again. Every row that was acknowledged must be there once in the end. Time of a batch
(wall clock), memory and files are measured every 50,000 rows; the rows held out are predicted in the end. A way that
is in the output file is not run again. 40 minutes on 2 cores; `--rows 20000 --kills 3` takes two.
"""

import argparse
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from threading import Event, Lock, Thread
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rich.progress import Progress

from common import ONE_THREAD, ROOT, Record, Results, put_measured
from endless import ROWS_AT_A_TIME, ROWS_OF_A_PART, Rows, errors, survey
from fleet import workers
from killable_service import Service
from serving import resident_megabytes
from wgpr import ShardedRegressor, WGPRegressor, load
from wgpr.cli.saving import journal_of
from wgpr.client import Map
from wgpr.io.grids import named
from wgpr.plots import COLOURS

PAGE, BEGIN, END = ROOT / "docs/million.md", "<!-- measured by benchmarks/million.py -->", "<!-- end of million -->"
PICTURE = ROOT / "docs/million.png"
WGPR = (sys.executable, "-c", "from wgpr.cli.app import main; main()")
INPUTS, TARGET = ["east", "north"], "anomaly"
PASSES, LEAST_PARTS = 2, 20
FIRST_SECONDS = 5.0  # that the first part is expected to take
HOURS_OF_A_WAY = 4  # after which it is given up


# Three ways to learn


class Way:
    """Processes that learn rows, and may be killed. n_sent : rows that were acknowledged; files : folder of its files.

    start : comes first; close : comes last, whatever happens between them, and ends what is left of the processes.
    send : rows (n, 2), (n,). They are acknowledged when it returns, also if a process is killed meanwhile.
    wait_until_learned : returns when all that was sent is learned.
    kill : kills a process, and returns whether one was running. It is called in another thread.
    process_ids : the processes that hold rows or models.
    finish : lets the processes end when all is learned, and returns the file of the map.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.n_sent = folder, folder / "files", 0


class Stream(Way):
    """`wgpr stream`. A query behind each batch is answered when its rows are learned, which acknowledges them."""

    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        self.files.mkdir(exist_ok=True)
        self._map = self.files / "britain.map"
        new = () if self._map.exists() else ("--x", ",".join(INPUTS), "--y", TARGET, "--set", "random_state=0")
        command, pipe = [*WGPR, "stream", str(self._map), "--force", *new], subprocess.PIPE
        with (self.folder / "log").open("ab") as log:
            options = {"stderr": log, "env": {**os.environ, **ONE_THREAD}, "start_new_session": True}
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, **options)

    def send(self, X: np.ndarray, y: np.ndarray) -> None:
        rows, n_taken = np.column_stack([X, y]), 0
        while not self._is_answered(rows[n_taken:], X[:1]):
            n_taken = self._restarted() - self.n_sent
            assert 0 <= n_taken <= len(y), f"{n_taken:,} rows are there beyond the {self.n_sent:,} acknowledged"
        self.n_sent += len(y)

    def _is_answered(self, *blocks: np.ndarray) -> bool:
        text = "".join(pd.DataFrame(block).to_csv(header=False, index=False) for block in blocks)
        try:
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()
            return bool(self._process.stdout.readline())
        except BrokenPipeError:
            return False

    def _restarted(self) -> int:
        """Go on after a kill; returns the rows that the map has, with those of the journal."""
        self.close()
        if journal_of(self._map).exists():
            subprocess.run([*WGPR, "update", self._map], check=True, capture_output=True)
        self.start()
        return load(self._map).n_samples_seen_ if self._map.exists() else 0

    def wait_until_learned(self) -> None:
        if self._process.poll() is not None:
            n_rows = self._restarted()
            assert n_rows == self.n_sent, f"{self.n_sent:,} rows were acknowledged; {n_rows:,} are there"

    def kill(self, chance: random.Random) -> bool:
        process = self._process
        was_running = process.poll() is None
        process.kill()
        process.wait()
        return was_running

    def process_ids(self) -> list[int]:
        return [self._process.pid]

    def finish(self) -> Path:
        self._process.stdin.close()
        assert self._process.wait() == 0, "wgpr stream has failed"
        return self._map

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError), self._process:
                pass  # closes the pipes and waits


class Served(Way):
    """`wgpr serve`. The client sends a batch again until the service, which is started again, acknowledges it."""

    _service: Service | None = None
    _map: Map | None = None
    _port = 0

    def start(self) -> None:
        self._start_service()
        self._map = Map(f"http://127.0.0.1:{self._port}/maps/britain")
        self._map.create(INPUTS, TARGET, settings={"random_state": 0})

    def _start_service(self) -> None:
        """It ends by itself if this program cannot end it."""
        limit = ("timeout", "--signal=KILL", f"{HOURS_OF_A_WAY}h")
        self._service = Service(self.files, self.folder / "log", port=self._port, around=limit)
        with closing(self._service.wait_until_started()) as client:
            self._port = client.base_url.port

    def send(self, X: np.ndarray, y: np.ndarray) -> None:
        self._map.partial_fit(X, y, force=True)
        self.n_sent += len(y)
        assert self._map._n_accepted == self.n_sent, f"row {self.n_sent:,} is acknowledged as {self._map._n_accepted:,}"

    def wait_until_learned(self) -> None:
        self._map.wait_until_learned()

    def kill(self, chance: random.Random) -> bool:
        """Kill the process that answers, or all of them, as a power cut does. Start the service again."""
        chance.choice([self._service.kill_server, self._service.kill])()
        self._start_service()
        return True

    def process_ids(self) -> list[int]:
        return [self._service.server_id(), *self._service.writer_ids()]

    def finish(self) -> Path:
        self._map.download(self.folder / "britain.map")
        assert self._service.stop() == 0, "wgpr serve has failed"
        return self.folder / "britain.map"

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
        if self._service is not None:
            self._service.end()


class Shards(Way):
    """`ShardedRegressor` with two workers. This process sends them rows and starts them again."""

    def start(self) -> None:
        self._fleet = ShardedRegressor(WGPRegressor(random_state=0), n_shards=2, engine="processes", folder=self.files)

    def send(self, X: np.ndarray, y: np.ndarray) -> None:
        self._fleet.partial_fit(X, y)
        self.n_sent += len(y)

    def wait_until_learned(self) -> None:
        if self._fleet._coordinator is not None:
            self._fleet._coordinator.drain()

    def kill(self, chance: random.Random) -> bool:
        found = workers("processes")
        if found:
            os.kill(chance.choice(found), signal.SIGKILL)
        return bool(found)

    def process_ids(self) -> list[int]:
        return [os.getpid(), *workers("processes")]

    def finish(self) -> Path:
        self._fleet.save(self.folder / "britain.map")
        return self.folder / "britain.map"

    def close(self) -> None:
        if hasattr(self, "_fleet"):
            self._fleet.close()


# Shards come first: their memory is also that of this process, which grows when it predicts.
WAYS: dict[str, Callable[[Path], Way]] = {"shards": Shards, "service": Served, "stream": Stream}


# A run


class Kills:
    """So many kills at random moments, spread over the parts of a run. rows : sent before each of them."""

    def __init__(self, way: Way, n_kills: int, n_parts: int) -> None:
        self.way, self.rows, self.lock = way, list[int](), Lock()
        self._chance, self._stop, self._threads = random.Random(0), Event(), list[Thread]()
        self._moments = [(number + self._chance.random()) * n_parts / n_kills for number in range(n_kills)]

    def plan(self, part: int, seconds: float) -> None:
        """Begin to wait for the kills of a part that will take about so many seconds."""
        for moment in self._moments:
            if int(moment) == part:
                self._threads.append(Thread(target=self._kill_later, args=(moment % 1.0 * seconds,)))
                self._threads[-1].start()

    def _kill_later(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            with self.lock:
                n_sent = self.way.n_sent
                if self.way.kill(self._chance):
                    self.rows.append(n_sent)
                    return
            seconds = 0.1

    def wait(self) -> None:
        """Return when all that are planned have happened."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Forget those that have not yet happened."""
        self._stop.set()
        self.wait()


def run(way: Way, rows: Rows, n_kills: int, show: Callable[[], None]) -> Record:
    """Send all rows while processes are killed; returns what was measured after each part."""
    X, y = rows
    n_part, seconds = min(ROWS_OF_A_PART, -(-len(y) // LEAST_PARTS)), FIRST_SECONDS
    record: Record = {name: [] for name in ("rows", "milliseconds", "megabytes", "file_megabytes")}
    with closing(Kills(way, n_kills, -(-len(y) // n_part))) as kills:
        for part, first in enumerate(range(0, len(y), n_part)):
            kills.plan(part, seconds)
            started, end = perf_counter(), min(first + n_part, len(y))
            for start in range(first, end, ROWS_AT_A_TIME):
                batch = slice(start, min(start + ROWS_AT_A_TIME, end))
                way.send(X[batch], y[batch])
                show()
            way.wait_until_learned()
            seconds = perf_counter() - started
            with kills.lock:
                measured = (end, 1e3 * seconds * ROWS_AT_A_TIME / (end - first), *memory_and_files(way))
            for name, value in zip(record, measured, strict=True):
                record[name].append(value)
        kills.wait()
        way.wait_until_learned()
        return record | {"killed_at": kills.rows}


def memory_and_files(way: Way) -> tuple[float, float]:
    """Resident memory of the processes and size of the files of a way, without backups, in MB."""
    megabytes, n_bytes = 0.0, 0
    for process_id in way.process_ids():
        with suppress(OSError, KeyError):  # it was killed just now
            megabytes += resident_megabytes(process_id)
    for path in way.files.rglob("*"):
        with suppress(FileNotFoundError):
            n_bytes += path.stat().st_size if path.is_file() and not path.name.endswith("~") else 0
    return megabytes, n_bytes / 2**20


def results_of(way: Way, rows: Rows, held: Rows, n_kills: int, show: Callable[[], None]) -> Record:
    """What was measured along the run and in the end."""
    started = perf_counter()
    way.start()
    record = run(way, rows, n_kills, show)
    path = way.finish()
    minutes, model = (perf_counter() - started) / 60, load(path)
    X, y = named(model, held[0]), held[1]
    return {
        **record,
        "n_seen": model.n_samples_seen_,
        "models": model.n_models_,
        "map_megabytes": path.stat().st_size / 2**20,
        "minutes": minutes,
        **errors(model, X, y),
        "check_sum": blake2b(model.predict(X[:5000]).tobytes(), digest_size=4).hexdigest(),
    }


# What is told


def table(records: Sequence[Record]) -> str:
    """A column for each way."""
    lines: dict[str, Callable[[Record], str]] = {
        "rows sent; learned": lambda one: f"{one['total']:,}; {one['n_seen']:,}",
        "kills": lambda one: f"{len(one['killed_at'])}",
        "ms a batch of 1,000 rows: first part; last; longest": lambda one: _ends(one["milliseconds"]),
        "resident memory [MB]: first part; last; most": lambda one: _ends(one["megabytes"]),
        "files while it learns [MB]: first part; last; most": lambda one: _ends(one["file_megabytes"], 1),
        "map in the end [MB]": lambda one: f"{one['map_megabytes']:.1f}",
        "models": lambda one: f"{one['models']:,}",
        "RMSE [nT], in the 95 % interval": lambda one: f"{one['rmse']:.2f}, {one['coverage']:.1%}",
        "check sum of predictions": lambda one: f"`{one['check_sum']}`",
        "minutes": lambda one: f"{one['minutes']:.1f}",
    }
    head = [f"| | {' | '.join(one['way'] for one in records)} |", "|---" + "|---:" * len(records) + "|"]
    return "\n".join([*head, *(f"| {what} | {' | '.join(map(told, records))} |" for what, told in lines.items()), ""])


def _ends(values: Sequence[float], n_digits: int = 0) -> str:
    return "; ".join(f"{value:,.{n_digits}f}" for value in (values[0], values[-1], max(values)))


def plot(records: Sequence[Record], path: Path) -> None:
    """Time, memory and files against rows, a line for each way. A cross is a kill."""
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.4), layout="constrained")
    panels = {
        "milliseconds": "a batch of 1,000 rows [ms]", "megabytes": "resident memory [MB]",
        "file_megabytes": "files while it learns [MB]",
    }  # fmt: skip
    for ax, (name, words) in zip(axes, panels.items(), strict=True):
        for colour, one in zip(COLOURS, records, strict=False):
            ax.plot(one["rows"], one[name], "o-", markersize=3, color=colour, label=one["way"])
            ax.plot(one["killed_at"], np.interp(one["killed_at"], one["rows"], one[name]), "x", color=colour)
        ax.set(xlabel="rows [thousand]", ylabel=words, xlim=(0, None), ylim=(0, None))
        ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}")
        ax.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=150)


def give_up(number: int, _: object) -> None:
    """End as after Ctrl-C, so that all processes are ended."""
    raise SystemExit(f"million.py was stopped by {signal.Signals(number).name}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with magnetic_britain.npz")
    parser.add_argument("--rows", type=int, help="rows of each of the two passes, by default all")
    parser.add_argument("--only", default=";".join(WAYS), help="ways, separated by semicolons")
    parser.add_argument("--kills", type=int, default=10, help="kills of each way")
    parser.add_argument("--output", type=Path, help="lines of JSON; a way that is in it is not run again")
    parser.add_argument("--write", action="store_true", help=f"put table and picture into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    arguments.only = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in arguments.only if name not in WAYS]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(WAYS)}")
    return arguments


def main() -> None:
    arguments = parsed()
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, give_up)
    logging.disable(logging.WARNING)  # the client's, that the service does not answer
    (X, y), held = survey(arguments.data, arguments.rows)
    rows = np.concatenate([X] * PASSES), np.concatenate([y] * PASSES)
    facts, results = {"total": len(rows[1]), "kills": arguments.kills}, Results(arguments.output)
    with Progress() as progress:
        for name in [name for name in WAYS if name in arguments.only and not results.matching({"way": name, **facts})]:
            task = progress.add_task(name, total=len(rows[1]))
            signal.alarm(3600 * HOURS_OF_A_WAY)
            with tempfile.TemporaryDirectory() as folder, closing(WAYS[name](Path(folder))) as way:
                show = lambda way=way, task=task: progress.update(task, completed=way.n_sent)  # noqa: E731
                results.add({"way": name, **facts, **results_of(way, rows, held, arguments.kills, show)})
    records = [one for name in WAYS for one in results.matching({"way": name, **facts})]
    print(table(records))
    if len({one["check_sum"] for one in records if one["way"] != "shards"}) > 1:
        raise SystemExit("stream and service have learned different maps")
    if arguments.write:
        plot(records, PICTURE)
        words = "Time of a batch, memory and files against rows, for three ways to learn"
        put_measured(PAGE, BEGIN, END, f"![{words}]({PICTURE.name})\n\n{table(records)}")
    if any(one["n_seen"] != one["total"] for one in records):
        raise SystemExit("rows were lost or learned twice")
    if any(len(one["killed_at"]) != arguments.kills for one in records):
        raise SystemExit("a kill or the start after it has failed; see the traceback above")


if __name__ == "__main__":
    main()
