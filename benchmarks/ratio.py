"""Speed of this checkout over that of another commit, measured in one run: learning and answering.

    python benchmarks/ratio.py --against 1a437eb [--data ../shared/data] [--repeats 5] [--only "terrain;two regimes"]
                               [--large] [--wall]

The other commit is checked out by `git worktree` into a temporary folder. Both versions learn the same rows and answer
the same queries in processes of their own, in turn, with one BLAS thread. A ratio is rows (or queries) a second of this
checkout over those of the other: more than 1 is faster. It is that of the shortest times; the range is that of the
pairs of runs. Times are of the processor, because others may use the machine; `--wall` counts what passes on the clock.
Three minutes for 5 repeats on a calm machine, with `--large` half an hour.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import NoReturn

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from common import ONE_THREAD, ROOT, Record, load, require_data, robot_arm
from wgpr.datasets import two_regimes
from wgpr.survey import fly, jacksboro

LIMIT = 0.95
N_QUERIES = 10_000
STAGES = {
    "learning": "learning",
    "between": "queries between batches",
    "first": "queries at once, first",
    "again": "queries at once, again",
    "single": "queries one by one",
}

Results = dict[tuple[str, str], list[Record]]  # of a workload and a version, each repeat
Rows = dict[str, np.ndarray]  # X (n, d), y (n,) to learn; X_test (m, d), y_test (m,) to answer


@dataclass(frozen=True)
class Workload:
    """Rows of a stream, how a regressor is made, and how it is used.

    maker : name in wgpr; rows_at_a_time : of each `partial_fit`; n_between : queries after each.
    n_rows, n_large : rows to learn, by default and with `--large`; n_single : queries that are asked one by one.
    """

    data: str
    maker: str = "WGPRegressor"
    rows_at_a_time: int = 100
    n_between: int = 0
    n_rows: int | None = None
    n_large: int | None = None
    n_single: int = 200


WORKLOADS = {
    "terrain": Workload("terrain"),
    "kin40k": Workload("kin40k", n_rows=1500, n_large=10_000),
    "magnetic_rio": Workload("magnetic_rio", n_rows=3000),
    "pumadyn": Workload("pumadyn", n_rows=2000),
    "abalone": Workload("abalone", n_rows=2000),
    "sarcos": Workload("sarcos", n_rows=1500),
    "tzibana": Workload("tzibana", n_rows=2000),
    "opinicon": Workload("opinicon", n_rows=3000),
    "two regimes": Workload("two regimes"),
    "published": Workload("kin40k", "WGPRegressor.published", n_rows=2000, n_large=10_000),
    "one by one": Workload("terrain", rows_at_a_time=1, n_rows=1000, n_large=4000),
    "alternating": Workload("terrain", rows_at_a_time=50, n_between=20, n_rows=1500),
}


# Rows


def terrain_rows(is_large: bool) -> Rows:
    """The demo's survey, or the middle of it; queries are places between the lines."""
    terrain = jacksboro()
    if not is_large:
        n_rows, n_columns = terrain.elevation.shape
        terrain = terrain.part(slice(n_rows // 4, 3 * n_rows // 4), slice(n_columns // 4, 3 * n_columns // 4))
    survey = fly(terrain, n_test=N_QUERIES, random_state=0)
    return {"X": survey.X, "y": survey.y, "X_test": survey.X_test, "y_test": survey.y_test}


def kin40k_rows(folder: str | None) -> Rows:
    if folder is None:
        X, y = robot_arm(2 * N_QUERIES)
        return {"X": X[N_QUERIES:], "y": y[N_QUERIES:], "X_test": X[:N_QUERIES], "y_test": y[:N_QUERIES]}
    data = load("kin40k", folder)
    return {"X": data.X, "y": data.y, "X_test": data.X_test[:N_QUERIES], "y_test": data.y_test[:N_QUERIES]}


def rio_rows(folder: str) -> Rows:
    """Every eighth line of `magnetic_rio` is asked, with rows that are learned, too, up to the number of queries."""
    with np.load(Path(folder) / "magnetic_rio.npz") as file:
        used = ~file["is_tie"]
        X, y, line = file["X"][used].astype(float), file["y"][used].astype(float), file["line"][used]
    held = np.unique(line, return_inverse=True)[1] % 8 == 4
    asked = np.concatenate([np.flatnonzero(held), np.flatnonzero(~held)])[:N_QUERIES]
    return {"X": X[~held], "y": y[~held], "X_test": X[asked], "y_test": y[asked]}


def split_rows(name: str, folder: str) -> Rows:
    """A stream of docs/streams.md: random rows are asked, of Opinicon whole lines."""
    data = load(name, folder).split(0, 0.2, whole_groups=name == "opinicon")
    return {"X": data.X, "y": data.y, "X_test": data.X_test[:N_QUERIES], "y_test": data.y_test[:N_QUERIES]}


def two_regimes_rows(is_large: bool) -> Rows:
    X, y, truth = two_regimes(10_000 if is_large else 3000, random_state=0)
    some = np.random.default_rng(0).integers(len(y), size=N_QUERIES)
    return {"X": X, "y": y, "X_test": X[some], "y_test": truth[some]}


def prepared(names: Sequence[str], arguments: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Files with the rows of each workload."""
    streams = {
        "terrain": lambda: terrain_rows(arguments.large),
        "kin40k": lambda: kin40k_rows(arguments.data),
        "two regimes": lambda: two_regimes_rows(arguments.large),
        "magnetic_rio": lambda: rio_rows(arguments.data),
    }
    paths = {name: folder / f"{name}.npz" for name in names}
    for name, path in paths.items():
        workload = WORKLOADS[name]
        rows = streams[workload.data]() if workload.data in streams else split_rows(workload.data, arguments.data)
        n_rows = workload.n_large if arguments.large else workload.n_rows
        np.savez(path, **rows | {part: rows[part][:n_rows] for part in ("X", "y")})
    return paths


# Runs


@contextmanager
def both_versions(commit: str) -> Iterator[dict[str, Path]]:
    """Folders with the files of "this" checkout, as they are now, and of the "other" commit; removed in the end."""
    with tempfile.TemporaryDirectory(prefix="wgpr-ratio-") as parent:
        trees = {name: Path(parent).resolve() / name for name in ("this", "other")}
        shutil.copytree(ROOT / "src", trees["this"] / "src", ignore=shutil.ignore_patterns("__pycache__"))
        try:
            _git("worktree", "add", "--detach", "--quiet", str(trees["other"]), commit)
            yield trees
        finally:
            _git("worktree", "remove", "--force", str(trees["other"]), check=False)


def _git(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def run(workload: Workload, path: Path, tree: Path, clock: str) -> Record:
    """One run of the worker with the package in `tree`/src."""
    numbers = workload.rows_at_a_time, workload.n_between, workload.n_single
    worker = [sys.executable, str(Path(__file__).with_name("ratio_worker.py")), str(path), workload.maker]
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(tree / "src")}
    command = [*worker, *map(str, numbers), clock]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the worker failed with {tree}:\n{done.stderr[-2000:]}")
    result: Record = json.loads(done.stdout)
    if not Path(result["file"]).is_relative_to(tree):
        raise SystemExit(f"{result['file']} was imported in place of {tree}/src/wgpr")
    return result


def run_all(paths: dict[str, Path], trees: dict[str, Path], n_repeats: int, clock: str, bar: Progress) -> Results:
    """Results of each workload and version; the version that comes first changes with every repeat."""
    results: Results = {(name, version): [] for name, version in product(paths, trees)}
    task = bar.add_task("", total=n_repeats * len(results))
    for repeat, name in product(range(n_repeats), paths):
        for version in list(trees)[:: 1 if repeat % 2 == 0 else -1]:
            bar.update(task, description=f"{name}, {version} version")
            results[name, version].append(run(WORKLOADS[name], paths[name], trees[version], clock))
            bar.advance(task)
    return results


# Table


@dataclass(frozen=True)
class Ratio:
    """Milliseconds of one stage in this version and in the other, of each repeat; more than 1 is faster."""

    here: list[float]
    there: list[float]

    @property
    def value(self) -> float:
        return min(self.there) / min(self.here)

    def cells(self) -> tuple[str, ...]:
        pairs = [there / here for here, there in zip(self.here, self.there, strict=True)]
        spread = f"{median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
        colour = "red" if self.value < LIMIT else "green"
        return f"[{colour}]{self.value:.2f}", spread, f"{min(self.here):,.0f}", f"{min(self.there):,.0f}"


def ratios(results: Results, name: str) -> dict[str, Ratio]:
    """Of each stage of a workload."""
    ours, theirs = results[name, "this"], results[name, "other"]
    return {
        stage: Ratio(*([1000 * result["seconds"][stage] for result in some] for some in (ours, theirs)))
        for stage in STAGES
        if ours[0]["seconds"][stage] > 0
    }


def ratio_table(names: Sequence[str], results: Results, commit: str) -> Table:
    headings = "workload", "stage", "ratio", "median (range) of pairs", "ms here", "ms there"
    table = Table(title=f"This checkout over {commit}", caption=f"more than 1 is faster; limit {LIMIT}")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in headings[:2] else "right")
    for name in names:
        for stage, ratio in ratios(results, name).items():
            table.add_row(name, STAGES[stage], *ratio.cells())
        ours, theirs = results[name, "this"][0], results[name, "other"][0]
        table.add_row(name, "RMSE", "", "", f"{ours['rmse']:.4g}", f"{theirs['rmse']:.4g}")
        table.add_row(name, "models", "", "", str(ours["models"]), str(theirs["models"]), end_section=True)
    return table


def summary(names: Sequence[str], results: Results) -> str:
    """Geometric means of the ratios of all workloads, and the smallest."""
    stages = [(stage, ratio.value) for name in names for stage, ratio in ratios(results, name).items()]
    learning = [value for stage, value in stages if stage == "learning"]
    answering = [value for stage, value in stages if stage != "learning"]
    return ", ".join(
        f"{words}: {geometric_mean(values):.2f} (smallest {min(values):.2f})"
        for words, values in {"learning": learning, "answering": answering}.items()
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--data", help="folder with kin40k.npz; without it, a synthetic stream of eight inputs")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each workload and version")
    parser.add_argument("--only", default=";".join(WORKLOADS), help="names of workloads, separated by semicolons")
    parser.add_argument("--large", action="store_true", help="workloads of up to 10,000 rows")
    parser.add_argument("--wall", action="store_true", help="count time on the clock, not that of the processor")
    arguments = parser.parse_args()
    arguments.only = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in arguments.only if name not in WORKLOADS]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(WORKLOADS)}")
    if arguments.repeats < 1:
        parser.error(f"--repeats must be 1 or more, got {arguments.repeats}")
    if arguments.data is not None:
        require_data(parser, arguments.data, ["kin40k"])
    return arguments


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    arguments, console = parsed(), Console(width=120)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)  # a background job of a shell ignores SIGINT otherwise
    clock = "perf_counter" if arguments.wall else "process_time"
    commit = _git("rev-parse", "--short", "--verify", f"{arguments.against}^{{commit}}")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    try:
        with both_versions(commit) as trees, tempfile.TemporaryDirectory() as folder:
            paths = prepared(arguments.only, arguments, Path(folder))
            with Progress(*columns, console=console, transient=True) as bar:
                results = run_all(paths, trees, arguments.repeats, clock, bar)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the worktree of the other commit is removed") from None
    console.print(ratio_table(arguments.only, results, commit))
    console.print(summary(arguments.only, results))


if __name__ == "__main__":
    main()
