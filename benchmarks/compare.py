"""WGPR and other packages that learn online, on one stream: speed, errors, memory.

    python benchmarks/compare.py [--data FOLDER] [--samples 10000] [--only "WGPR;one streamed model"]
                                 [--rounds 3] [--output compare.jsonl]

Every competitor runs in a process of its own, on one thread: the same rows in the same order, in batches of 100, with
50 pseudo-inputs where there are any. FOLDER holds kin40k.npz. Results are lines of JSON; those that are in the file
already are not measured again, unless other processes kept the machine busy. `pip install ".[compare]"` installs the
competitors. Ten minutes for each round; `--samples 200` takes one minute.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from common import ONE_THREAD, Record, Results, require_data, robot_arm
from peers import COMPETITORS, Competitor
from wgpr.datasets import load
from wgpr.metrics import scores

REFERENCE, DEFAULTS = "WGPR", "WGPR, defaults"
N_TEST = 10_000
BUSY = 1.2  # seconds of learning over seconds of the processor: above this the machine was busy


# The stream


def stream(arguments: argparse.Namespace) -> tuple[str, dict[str, np.ndarray]]:
    """Its name, rows to learn in their order, and rows to judge by."""
    n = arguments.samples
    if arguments.data is None:
        X, y = robot_arm(n + N_TEST)
        return "a synthetic arm", {"X": X[:n], "y": y[:n], "X_test": X[n:], "y_test": y[n:]}
    data = load("kin40k", arguments.data)
    return "kin40k", {"X": data.X[:n], "y": data.y[:n], "X_test": data.X_test[:N_TEST], "y_test": data.y_test[:N_TEST]}


# The competitors, one after the other


class CompetitorError(Exception):
    """A competitor did not get to its end."""


def missing_packages(competitor: Competitor) -> list[str]:
    def is_missing(package: str) -> bool:
        try:
            return not distribution(package)
        except PackageNotFoundError:
            return True

    return [package for package in competitor.packages if is_missing(package)]


def run(name: str, folder: Path) -> Record:
    """One competitor in a process of its own."""
    worker = [sys.executable, str(Path(__file__).with_name("peers.py")), name, str(folder), str(time.time())]
    process = subprocess.run(worker, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        raise CompetitorError(lines[-1] if lines else f"it ended with the code {process.returncode}")
    return json.loads((folder / "result.json").read_text())


def evaluated(folder: Path, y_test: np.ndarray) -> Record:
    with np.load(folder / "predictions.npz") as file:
        result = scores(y_test, file["mean"], file.get("std"))
    return {name: getattr(result, name) for name in ("rmse", "nlpd", "coverage")}


def chosen(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> dict[str, Competitor]:
    """By name."""
    names = [name.strip() for name in arguments.only.split(";")] if arguments.only else list(COMPETITORS)
    if unknown := [name for name in names if name not in COMPETITORS]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(COMPETITORS)}")
    return {name: COMPETITORS[name] for name in names}


def best(runs: list[Record]) -> Record:
    """Several runs of one competitor as one: each time and rate from the run that was disturbed least."""
    runs = [run for run in runs if not run["is_disturbed"]] or runs
    shortest = {name: min(run[name] for run in runs) for name in ("import_seconds", "first_seconds")}
    largest = {name: max(run[name] for run in runs) for name in ("rows_per_second", "queries_per_second")}
    return runs[-1] | shortest | largest


def measure_all(
    competitors: dict[str, Competitor],
    data: dict[str, np.ndarray],
    facts: Record,
    n_rounds: int,
    store: Results,
    console: Console,
) -> None:
    """In rounds, so that what disturbs the machine for a while does not disturb all runs of one competitor."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with tempfile.TemporaryDirectory() as name_of_folder, Progress(*columns, console=console, transient=True) as bar:
        folder = Path(name_of_folder)
        np.savez(folder / "data.npz", **data)
        task = bar.add_task("", total=n_rounds * len(competitors))
        for n_done, (name, competitor) in product(range(n_rounds), competitors.items()):
            bar.update(task, description=name)
            if len(store.matching(facts | {"name": name, "is_disturbed": False})) <= n_done:
                for record in attempt(name, competitor, folder, data["y_test"], console):
                    store.add(facts | record)
            bar.advance(task)


def attempt(name: str, competitor: Competitor, folder: Path, y_test: np.ndarray, console: Console) -> Iterator[Record]:
    """The result of one competitor, or a line that says why there is none."""
    if missing := missing_packages(competitor):
        console.print(f"{name}: skipped; pip install {' '.join(missing)}")
        return
    try:
        result = run(name, folder)
    except CompetitorError as failure:
        console.print(f"{name}: [red]failed[/red]: {failure}", highlight=False)
        return
    result["is_disturbed"] = result["seconds"] > BUSY * result["processor_seconds"]
    if result["is_disturbed"]:
        console.print(f"{name}: other processes kept the machine busy; its times are too long, measure again")
    about = {"kind": competitor.kind, "learns_online": competitor.learns_online, "is_bounded": competitor.is_bounded}
    yield {"name": name, **about, **result, **evaluated(folder, y_test)}


# The tables


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def ratio(record: Record, reference: Record | None, quantity: str) -> str:
    return "-" if reference is None else f"{record[quantity] / reference[quantity]:.2f}"


def results_table(records: dict[str, Record], title: str) -> Table:
    reference = records.get(REFERENCE)
    table = Table(title=title, caption=f"x: over {REFERENCE}; above: memory beyond that of the imports; ?: disturbed")
    table.add_column("", overflow="fold")
    for heading in ("import s", "first s", "samples/s", "x", "RMSE", "NLPD", "queries/s", "x", "MB", "above"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("models", "online", "bounded"):
        table.add_column(heading, justify="right")
    for name, record in records.items():
        table.add_row(
            name,
            f"{record['import_seconds']:.2f}",
            f"{record['first_seconds']:.2f}" + ("" if record["first_rows"] == 100 else f" ({record['first_rows']:,})"),
            f"{record['rows_per_second']:,.0f}" + (" ?" if record["is_disturbed"] else ""),
            ratio(record, reference, "rows_per_second"),
            f"{record['rmse']:.3f}",
            shown(record["nlpd"], ".3f"),
            f"{record['queries_per_second']:,.0f}",
            ratio(record, reference, "queries_per_second"),
            f"{record['megabytes']:.0f}",
            f"{record['megabytes_above_import']:.0f}",
            shown(record["models"], ",d"),
            "yes" if record["learns_online"] else "no",
            "yes" if record["is_bounded"] else "no",
        )
    return table


def fastest(records: dict[str, Record], is_meant: Callable[[Record], bool]) -> Record | None:
    return max(filter(is_meant, records.values()), key=lambda record: record["rows_per_second"], default=None)


def figures(records: dict[str, Record]) -> Iterator[tuple[str, str, Record | None, Record | None]]:
    """The question, the quantity, ours and theirs."""
    rows, queries = "rows_per_second", "queries_per_second"
    peer = fastest(records, lambda it: it["kind"] != "ours" and it["learns_online"] and it["is_bounded"])
    yield "WGPR, defaults, over the fastest that learns online in bounded memory", rows, records.get(DEFAULTS), peer
    streamed = records.get("one streamed model")
    learners = [record for record in records.values() if record["kind"] == "torch" and record["learns_online"]]
    peer = min(learners, key=lambda it: it["rmse"], default=None)
    yield "one streamed model over the most accurate of PyTorch that learns online", rows, streamed, peer
    peer = fastest(records, lambda it: it["kind"] == "torch")
    yield "one streamed model over the fastest of PyTorch", rows, streamed, peer
    exact = next((record for name, record in records.items() if name.startswith("scikit-learn")), None)
    yield "many models over an exact GP", queries, records.get("WGPR, one model per batch"), exact


def figures_table(records: dict[str, Record]) -> Table:
    """Ratios that matter; what is missing is left out."""
    table = Table("figure", "of", "ours", "theirs", "ratio", "RMSE, ours", "theirs", title="Figures")
    units = {"rows_per_second": "samples/s", "queries_per_second": "queries/s"}
    for question, quantity, one, other in figures(records):
        if one is not None and other is not None:
            values = [f"{record[quantity]:,.0f} ({described(record)})" for record in (one, other)]
            errors = [f"{record['rmse']:.3f}" for record in (one, other)]
            table.add_row(question, units[quantity], *values, ratio(one, other, quantity), *errors)
    return table


def described(record: Record) -> str:
    """Its name, and how many models it has if there are several."""
    n_models = record["models"] or 1
    return record["name"] if n_models == 1 else f"{record['name']}; {n_models} models"


def parsed() -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with kin40k.npz; without it, a synthetic arm is learned")
    parser.add_argument("--samples", type=int, default=10_000, choices=range(100, 10_001), metavar="N", help="rows")
    parser.add_argument("--only", default="", help="names of competitors, separated by semicolons")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each, of which the fastest counts")
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    arguments = parser.parse_args()
    if arguments.data is not None:
        require_data(parser, arguments.data, ["kin40k"])
    return arguments, parser


def main() -> None:
    arguments, parser = parsed()
    competitors = chosen(arguments, parser)
    name, data = stream(arguments)
    facts, store, console = {"data": name, "samples": arguments.samples}, Results(arguments.output), Console(width=150)
    try:
        measure_all(competitors, data, facts, arguments.rounds, store, console)
    except KeyboardInterrupt:
        console.print("interrupted; these were done:")
    all_runs = {name: store.matching(facts | {"name": name}) for name in competitors}
    records = {name: best(runs) for name, runs in all_runs.items() if runs}
    console.print(results_table(records, f"{name}, {arguments.samples:,} samples, one thread unless it says otherwise"))
    if (table := figures_table(records)).row_count:
        console.print(table)


if __name__ == "__main__":
    main()
