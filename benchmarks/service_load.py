"""The service under load: rows at full rate while predictions are asked for, one map and 50 maps; memory.

    python benchmarks/service_load.py [--seconds 60] [--only "one;many;long"] [--quick] [--write]

One process sends rows in requests of 100, each as soon as the last one was acknowledged; a second one asks for one
prediction after the other, at random places. Client and service share the machine. A third run takes four times as
long, to see whether memory stays bounded. `--write` puts the table into docs/service_results.md.
"""

import argparse
import multiprocessing
import os
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from rich.progress import track

from common import ROOT, put_measured
from serving import Served, resident_megabytes, served

PAGE = ROOT / "docs" / "service_results.md"
MARKERS = "<!-- load -->", "<!-- end of load -->"

ROWS = 100  # of a request
SIDE = 100.0  # of the surveyed square, in km
HEADERS = {"Content-Type": "text/csv"}


# The survey


def survey(n_rows: int, seed: int = 0) -> np.ndarray:
    """Rows (n, 3) of a survey in lines: east and north in km, and a depth that is smooth in the west and then rough."""
    rng = np.random.default_rng(seed)
    n_lines = max(2, round(np.sqrt(n_rows / 4)))
    per_line = -(-n_rows // n_lines)
    along = np.linspace(0.0, SIDE, per_line)
    east = np.concatenate([along if line % 2 == 0 else along[::-1] for line in range(n_lines)])[:n_rows]
    north = np.repeat(np.linspace(0.0, SIDE, n_lines), per_line)[:n_rows]
    smooth = 50.0 + 20.0 * np.sin(east / 15.0) * np.cos(north / 20.0)
    rough = np.where(east > 0.5 * SIDE, 3.0 * np.sin(1.5 * east) * np.sin(1.2 * north), 0.0)
    return np.column_stack([east, north, smooth + rough + 0.2 * rng.normal(size=n_rows)])


def bodies(rows: np.ndarray) -> list[bytes]:
    """Requests of 100 rows each."""
    lines = [f"{east:.6f},{north:.6f},{depth:.4f}" for east, north, depth in rows.tolist()]
    starts = range(0, len(lines) - ROWS + 1, ROWS)
    return ["\n".join(["east,north,depth", *lines[start : start + ROWS]]).encode() for start in starts]


# Clients, each in a process of its own


@dataclass(frozen=True)
class Sent:
    """n_rows : acknowledged; n_refused : requests that were answered by 429, and sent again later."""

    n_rows: int
    n_refused: int
    seconds: float


def send_rows(port: int, names: list[str], n_rows: int, seconds: float, ready: Any, result: Connection) -> None:
    """Send the rows of a survey to all maps in turn."""
    requests = bodies(survey(n_rows))
    ready.wait()
    connection, started = HTTPConnection("127.0.0.1", port), time.perf_counter()
    n_acknowledged = n_refused = number = 0
    end = started + seconds
    while time.perf_counter() < end:
        name = names[number % len(names)]
        connection.request("POST", f"/maps/{name}/rows", requests[number // len(names) % len(requests)], HEADERS)
        response = connection.getresponse()
        response.read()
        if response.status == 202:
            n_acknowledged, number = n_acknowledged + ROWS, number + 1
        elif response.status == 429:
            n_refused += 1
            time.sleep(min(float(response.headers["Retry-After"]), max(0.0, end - time.perf_counter())))
        else:
            raise RuntimeError(f"the answer is {response.status}")
    result.send(Sent(n_acknowledged, n_refused, time.perf_counter() - started))


def ask(port: int, names: list[str], seconds: float, ready: Any, result: Connection) -> None:
    """Ask for predictions at random places of random maps, one after the other; sends the seconds of each."""
    rng = np.random.default_rng(1)
    connection, latencies = HTTPConnection("127.0.0.1", port), []
    ready.wait()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        name, (east, north) = names[rng.integers(len(names))], rng.uniform(0.0, SIDE, 2)
        body = f'{{"east": [{east}], "north": [{north}]}}'
        started = time.perf_counter()
        connection.request("POST", f"/maps/{name}/predict", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"the answer is {response.status}")
        latencies.append(time.perf_counter() - started)
    result.send(np.array(latencies))


# A run


@dataclass(frozen=True)
class Run:
    """What was measured. memory : (n, 2), MB of server and writer at each second; learned : (n,), rows of all maps."""

    sent: Sent
    latencies: np.ndarray
    memory: np.ndarray
    learned: np.ndarray
    map_megabytes: tuple[float, float]
    models: int
    load: float


def measure(title: str, n_maps: int, seconds: float, n_rows: int) -> Run:
    names = [f"map-{number}" for number in range(n_maps)]
    with served("--writers", "1") as service:
        first = bodies(survey(n_rows))[0]
        definition = {"inputs": ["east", "north"], "target": "depth", "settings": {"random_state": 0}}
        for name in names:
            assert service.ask("PUT", f"/maps/{name}", definition)[0] == 201
            assert service.ask("POST", f"/maps/{name}/rows?wait=learned", first, HEADERS)[0] == 200
        return _measured(title, service, names, seconds, n_rows)


def _measured(title: str, service: Served, names: list[str], seconds: float, n_rows: int) -> Run:
    context = multiprocessing.get_context("fork")
    ready, ends = context.Event(), [context.Pipe() for _ in range(2)]
    clients = [
        context.Process(target=send_rows, args=(service.port, names, n_rows, seconds, ready, ends[0][1])),
        context.Process(target=ask, args=(service.port, names, seconds, ready, ends[1][1])),
    ]
    for client in clients:
        client.start()
    time.sleep(2.0 + n_rows / 200_000)  # the bodies are written
    (writer,) = service.writer_ids
    ready.set()
    memory, learned, sizes = [], [], []
    started = time.perf_counter()
    for second in track(range(round(seconds)), description=title):
        time.sleep(max(0.0, started + second + 1 - time.perf_counter()))
        memory.append([resident_megabytes(service.process_id), resident_megabytes(writer)])
        learned.append(_n_learned(service))
        if second + 1 in (round(seconds / 2), round(seconds)):
            sizes.append(_map_megabytes(service, names))
    sent, latencies = (end.recv() for end, _ in ends)
    for client in clients:
        client.join()
    models = sum(service.summary(name)["models"] for name in names)
    return Run(sent, latencies, np.array(memory), np.array(learned), (sizes[0], sizes[1]), models, os.getloadavg()[0])


def _n_learned(service: Served) -> int:
    """Rows learned by all maps, from the metrics."""
    lines = service.ask("GET", "/metrics")[1].decode().splitlines()
    return round(sum(float(line.split()[-1]) for line in lines if line.startswith("wgpr_rows_learned_total")))


def _map_megabytes(service: Served, names: list[str]) -> float:
    """Size of the map files of a few maps, times the number of all of them."""
    some = names[:3]
    return sum(len(service.ask("GET", f"/maps/{name}/file")[1]) for name in some) / len(some) * len(names) / 1e6


# The table


def rows_of(run: Run) -> list[tuple[str, str]]:
    milliseconds = 1e3 * run.latencies
    quarters = np.linspace(0, len(run.memory) - 1, 5).round().astype(int)
    server, writer = (", ".join(f"{megabytes:.0f}" for megabytes in column) for column in run.memory[quarters].T)
    return [
        ("rows/s acknowledged", f"{run.sent.n_rows / run.sent.seconds:,.0f}"),
        ("requests refused by 429", f"{run.sent.n_refused:,}"),
        ("rows/s learned", f"{(run.learned[-1] - run.learned[0]) / (len(run.learned) - 1):,.0f}"),
        ("rows learned at the end", f"{run.learned[-1]:,}"),
        ("predictions", f"{len(milliseconds):,}"),
        ("latency of a prediction, median", f"{np.median(milliseconds):.1f} ms"),
        ("… 99th percentile", f"{np.quantile(milliseconds, 0.99):.1f} ms"),
        ("… longest", f"{milliseconds.max():.0f} ms"),
        ("local models at the end", f"{run.models:,}"),
        ("memory of the server at the start and after each quarter [MB]", server),
        ("memory of the writer at the start and after each quarter [MB]", writer),
        ("map files at half, end", f"{run.map_megabytes[0]:.1f}, {run.map_megabytes[1]:.1f} MB"),
        ("load average of the machine after the run", f"{run.load:.1f}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="one;many;long", help="names of runs, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="10 seconds and 5 maps")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    seconds, n_maps = (10.0, 5) if arguments.quick else (arguments.seconds, 50)
    long = 4.0 * seconds
    runs = {
        "one": (f"one map, {seconds:g} s", 1, seconds, 1_000_000),
        "many": (f"{n_maps} maps, {seconds:g} s", n_maps, seconds, 20_000),
        "long": (f"{n_maps} maps, {long:g} s", n_maps, long, 20_000),
    }
    results = {}
    for name in arguments.only.split(";"):
        title, *sizes = runs[name]
        results[title] = rows_of(measure(title, *sizes))
    titles = list(results)
    lines = [f"| | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|"]
    for cells in zip(*results.values(), strict=True):
        lines += [f"| {cells[0][0]} | {' | '.join(value for _, value in cells)} |"]
    table = "\n".join(lines) + "\n"
    print(table)
    if arguments.write:
        put_measured(PAGE, *MARKERS, table)


if __name__ == "__main__":
    main()
