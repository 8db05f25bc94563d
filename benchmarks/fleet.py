"""Shards: rows a second over workers, errors over districts, borders, and workers that are killed. For docs/fleet.md.

    python benchmarks/fleet.py --data FOLDER [--only "speed;districts;kills;node;archive"] [--rows 50000]
                               [--output fleet.jsonl] [--write]

The rows of `magnetic_britain` but for a tenth of the segments, which are held out, are learned by fleets. Speeds are
ratios in one run. Workers are ended with SIGKILL at random, one every ten seconds; a node of a Ray cluster that is
simulated on this machine is removed. Half an hour on 2 cores; needs `pip install ".[ray]"`.
"""

import argparse
import os
import pickle
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from rich.console import Console

from common import ROOT, Results, put_measured
from endless import Rows, survey
from wgpr import ShardedRegressor, WGPRegressor
from wgpr.ensemble.cuts import all_cuts
from wgpr.fleet.engines import Engine
from wgpr.metrics import scores

PAGE, BEGIN, END = ROOT / "docs/fleet.md", "<!-- measured by benchmarks/fleet.py -->", "<!-- end of fleet -->"
DISTRICTS = (1, 2, 4, 8, 16)
ARCHIVE = 1_000_000_000
SECONDS_BETWEEN_KILLS = 10.0
ROWS_AT_A_TIME = 2000

Line = tuple[str, str, str]


class Run:
    """A fleet that has learned rows: its model, what it took, and scores of the rows held out."""

    def __init__(self, rows: Rows, held: Rows, n_shards: int, engine: str, **settings: Any) -> None:
        X, y = rows
        with ShardedRegressor(n_shards=n_shards, engine=engine, **settings) as fleet:
            fleet.prepare(X[::50], y[::50])
            fleet.partial_fit(X[:ROWS_AT_A_TIME], y[:ROWS_AT_A_TIME])
            coordinator = fleet._coordinator
            before = {process: cpu_seconds(process) for process in coordinator.process_ids()}  # when they have begun
            started = perf_counter()
            for first in range(ROWS_AT_A_TIME, len(y), ROWS_AT_A_TIME):
                fleet.partial_fit(X[first : first + ROWS_AT_A_TIME], y[first : first + ROWS_AT_A_TIME])
            self.model = fleet.collect()
            self.rows_per_second = len(y) / (perf_counter() - started)
            used = [cpu_seconds(process) - seconds for process, seconds in before.items() if is_running(process)]
            self.busiest = max(used, default=np.nan)  # processor time of the busiest worker
            self.cuts, self.n_districts = coordinator._cuts, coordinator.n_districts
            self.bytes_per_row, self.n_deaths = coordinator.n_bytes_told / len(y), coordinator.n_deaths
        self.n_twice = self.model.n_samples_seen_ - len(y)
        self.scores = scores(held[1], *self.model.predict(held[0], return_std=True))


_UNDISTURBED: dict[tuple[int, str], Run] = {}


def undisturbed(rows: Rows, held: Rows, n_shards: int, engine: str) -> Run:
    """A run that nobody disturbs. Several parts use the same one."""
    if (n_shards, engine) not in _UNDISTURBED:
        _UNDISTURBED[n_shards, engine] = Run(rows, held, n_shards, engine)
    return _UNDISTURBED[n_shards, engine]


def is_running(process: int) -> bool:
    return Path(f"/proc/{process}/stat").exists()


def cpu_seconds(process: int) -> float:
    """Processor time that a process has used."""
    user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def speed(rows: Rows, held: Rows) -> Iterator[Line]:
    """Two shards over one, with each engine."""
    for engine in ("processes", "ray"):
        one, two = (undisturbed(rows, held, n, engine) for n in (1, 2))
        ratio = two.rows_per_second / one.rows_per_second
        told = f"{ratio:.2f}; {one.rows_per_second:,.0f}, {two.rows_per_second:,.0f} rows/s"
        yield f"2 shards over 1, {engine}: ratio; rows a second of 1 and of 2", "1.7", told
        yield f"the same by processor time of the busiest worker, {engine}", "", f"{one.busiest / two.busiest:.2f}"


def districts(rows: Rows, held: Rows) -> Iterator[Line]:
    """Errors and borders, over the number of districts."""
    model = WGPRegressor()
    for first in range(0, len(rows[1]), ROWS_AT_A_TIME):
        model.partial_fit(rows[0][first : first + ROWS_AT_A_TIME], rows[1][first : first + ROWS_AT_A_TIME])
    alone = scores(held[1], *model.predict(held[0], return_std=True))
    yield (
        "one process without districts: RMSE [nT], in the 95 % interval",
        "",
        f"{alone.rmse:.2f}, {alone.coverage:.1%}",
    )
    for n in DISTRICTS:
        run = undisturbed(rows, held, n, "processes")
        told = f"{run.scores.rmse / alone.rmse:.3f}, {run.scores.coverage:.1%}, {run.n_twice}, {run.bytes_per_row:.1f}"
        what = f"{n} districts: RMSE over that of one process, in the 95 % interval, rows sent to more than one worker"
        yield f"{what}, bytes of borders a row", "0.98 to 1.02, , 0, 8", told
        if n > 1:
            at_borders, inside = jumps(run)
            means, medians = ([statistic(at_borders), statistic(inside)] for statistic in (np.mean, np.median))
            what = (
                f"{n} districts: change of the mean across borders of districts, and of territories inside [std]; ratio"
            )
            yield what, "1.5", f"{means[0]:.4f}, {means[1]:.4f}; {means[0] / means[1]:.2f}"
            yield f"{n} districts: the same, medians over the places", "", f"{medians[0] / medians[1]:.2f}"


def jumps(run: Run) -> tuple[np.ndarray, ...]:
    """Changes (n,) of the mean over a small step across borders: of districts, and of territories inside, in std.

    Places are those of pseudo-data, each moved to the nearest border of its territory.
    """
    territories = run.model._state.ensemble
    reach, of_districts = territories.overview.reach, set(all_cuts(run.cuts))
    at_borders, inside = [], []
    for territory, ground in zip(territories.models, territories.overview.grounds, strict=True):
        for side, axis in np.ndindex(ground.shape):
            position = ground[side, axis]
            near = territory.data.Z[np.abs(territory.data.Z[:, axis] - position) < reach[axis]]
            near = np.column_stack([near, np.full(len(near), axis)])
            near[:, axis] = position
            (at_borders if (axis, position) in of_districts else inside).append(near)
    chance = np.random.default_rng(0)
    return tuple(
        _change(run.model, chance.permutation(np.concatenate(each))[:5000], 0.02 * reach)
        for each in (at_borders, inside)
    )


def _change(model: WGPRegressor, places: np.ndarray, step: np.ndarray) -> np.ndarray:
    """places : (n, d + 1), the last column is the axis of the step."""
    axes = places[:, -1].astype(int)
    shift = np.zeros_like(places[:, :-1])
    shift[np.arange(len(places)), axes] = step[axes]
    units = model._state.units
    below, above = (units.inputs_for_user(places[:, :-1] + sign * shift) for sign in (-1.0, 1.0))
    (low, std), high = model.predict(below, return_std=True, latent=True), model.predict(above)
    return np.abs(high - low) / std


# Workers that die


def workers(engine: str) -> list[int]:
    """Processes that learn, which this benchmark has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = status.read_bytes()
            if engine == "ray" and command.startswith(b"ray::_Actor"):
                found.append(int(status.parent.name))
            elif engine == "processes" and b"loky" in command and b"--process-name" in command:
                parent = (status.parent / "stat").read_text().rsplit(")", 1)[1].split()[1]
                found += [int(status.parent.name)] if int(parent) == os.getpid() else []
        except OSError:
            continue
    return found


@contextmanager
def killing(engine: str) -> Iterator[list[int]]:
    """Kill a worker at random from time to time, during the block. Yields the list of those killed."""
    stop, killed, chance = threading.Event(), [], random.Random(0)

    def kill() -> None:
        while not stop.wait(SECONDS_BETWEEN_KILLS):
            if found := workers(engine):
                killed.append(chance.choice(found))
                os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


def kills(rows: Rows, held: Rows) -> Iterator[Line]:
    """A random worker is killed every ten seconds, with each engine."""
    before = undisturbed(rows, held, 2, "processes")
    for engine in ("processes", "ray"):
        with killing(engine) as killed:
            run = Run(rows, held, 2, engine)
        told = f"{len(killed)}; {run.n_twice}; {run.scores.rmse / before.scores.rmse:.4f}"
        what = f"kill -9 of a random worker every 10 s, {engine}: workers killed; rows too many or too few"
        yield f"{what}; RMSE over that of an undisturbed run", "; 0; 0.99 to 1.01", told


def node(rows: Rows, held: Rows) -> Iterator[Line]:
    """A node of a simulated Ray cluster is removed while it learns."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    timer = threading.Timer(15.0, lambda: cluster.remove_node(nodes[0], allow_graceful=False))
    timer.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(rows, held, 2, "ray", folder=Path(folder) / "fleet")
    finally:
        timer.join()
        ray.shutdown()
        cluster.shutdown()
    before = undisturbed(rows, held, 2, "processes")
    told = f"{run.n_deaths}; {run.n_twice}; {run.scores.rmse / before.scores.rmse:.4f}"
    what = "a node of a Ray cluster removed: actors that died; rows too many or too few; RMSE over that undisturbed"
    yield what, "; 0; 0.99 to 1.01", told


# An archive, on paper


class NoWorkers(Engine):
    """Takes all rows and learns nothing, so that what remains is the work of the coordinator."""

    def __init__(self) -> None:
        super().__init__(16, "", WGPRegressor())
        self._n_taken: dict[str, int] = {}

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        if method == "n_learned":
            return [self._n_taken.get(name, 0) for name in arguments[0]]
        if method == "take":
            name, n_before, rows = arguments
            pickle.dumps(arguments)  # as for a process
            self._n_taken[name] = n_before + len(rows)
            return self._n_taken[name]
        return None

    def close(self) -> None:
        pass


def coordinator_rate(rows: Rows) -> float:
    """Rows a second that the coordinator can check, sort into 16 districts and send."""
    X, y = rows
    with ShardedRegressor(n_shards=16) as fleet:
        fleet._start_engine = lambda template: NoWorkers()  # type: ignore[method-assign]
        fleet.prepare(X[::50], y[::50])
        started = process_time()
        for first in range(0, len(y), ROWS_AT_A_TIME):
            fleet.partial_fit(X[first : first + ROWS_AT_A_TIME], y[first : first + ROWS_AT_A_TIME])
        return len(y) / (process_time() - started)


def archive(rows: Rows, held: Rows) -> Iterator[Line]:
    """What 10^9 rows take, from what some of them take here."""
    run = undisturbed(rows, held, 2, "processes")
    rate, n_rows = run.rows_per_second / 2, len(rows[1])
    territory_rows = n_rows / run.model.n_models_
    memory = len(pickle.dumps(run.model._state.ensemble)) / n_rows
    compact = len(run.model.to_bytes(compact=True)) / n_rows
    sent = coordinator_rate(rows)
    yield "rows a second of one worker; of the coordinator", "", f"{rate:,.0f}; {sent:,.0f}"
    yield (
        "bytes a row: in the memory of workers; of borders; of the saved map, compact",
        "",
        (f"{memory:.0f}; {run.bytes_per_row:.1f}; {compact:.0f}"),
    )
    yield "workers that one coordinator keeps busy", "", f"{sent / rate:,.0f}"
    yield (
        "10^9 rows: hours with 16 workers; with as many as one coordinator keeps busy",
        "",
        (f"{ARCHIVE / rate / 16 / 3600:.1f}; {ARCHIVE / sent / 3600:.1f}"),
    )
    yield (
        "10^9 rows without limit of models: models; memory of all workers; map, compact",
        "",
        (f"{ARCHIVE / territory_rows:,.0f}; {ARCHIVE * memory / 1e9:,.0f} GB; {ARCHIVE * compact / 1e9:,.0f} GB"),
    )


PARTS = {part.__name__: part for part in (speed, districts, kills, node, archive)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with magnetic_britain.npz")
    parser.add_argument("--rows", type=int, help="by default all")
    parser.add_argument("--only", default=";".join(PARTS), help="parts, separated by semicolons")
    parser.add_argument("--output", type=Path, help="lines of JSON; a part that is in it is not measured again")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    results = Results(arguments.output)
    names = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(PARTS)}")
    rows, held = survey(arguments.data, arguments.rows)
    console, lines = Console(), ["| what | to reach | measured |", "|---|---|---|"]
    for name in names:
        if not results.matching({"part": name}):
            with console.status(name):
                results.add(*({"part": name, "line": line} for line in PARTS[name](rows, held)))
        for record in results.matching({"part": name}):
            console.print(*record["line"], sep=" | ", markup=False)
            lines.append(f"| {' | '.join(record['line'])} |")
        if arguments.write:
            put_measured(PAGE, BEGIN, END, "\n".join([f"{len(rows[1]):,} rows.", "", *lines, ""]))


if __name__ == "__main__":
    main()
