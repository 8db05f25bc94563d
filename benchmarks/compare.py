"""WGPR and other packages on the same rows: learning, answering, errors, memory. For docs/scale.md.

    python benchmarks/compare.py --data FOLDER [--streams "kin40k 10000;magnetic_britain 100000"]
                                 [--only "WGPR, defaults;linear interpolation"] [--output compare.jsonl] [--write]

Every competitor runs in a process of its own, on one thread: the same rows in the same order, in batches of 100, or all
at once if it does not learn online. FOLDER holds kin40k.npz and magnetic_britain.npz. Of `magnetic_britain` a tenth of
the segments is held out, and the first of the others are learned, in the order of the survey. One model for all has 50
pseudo-inputs for kin40k, as in the paper, and 500 for a survey. Learning and answering may take ten minutes
of processor time, by which rates are, too. Results are lines of JSON; those that are in the file already are not
measured again. `pip install ".[compare]"` installs the competitors. Forty minutes.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from textwrap import shorten

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from common import (
    ONE_THREAD,
    ROOT,
    Record,
    Results,
    between,
    load,
    measured_now,
    put_between,
    require_data,
    when_measured,
)
from peers import BATCH, COMPETITORS, Competitor
from wgpr.metrics import scores

DEFAULTS = "WGPR, defaults"
PAGE, BEGIN, END = ROOT / "docs" / "scale.md", "<!-- measured by benchmarks/compare.py -->", "<!-- end of compare -->"
N_TEST = 10_000
SECONDS, TOO_LONG = 600, "more than 10 minutes"


# The streams


def kin40k(n: int, folder: Path) -> dict[str, np.ndarray]:
    data = load("kin40k", folder)
    return {"X": data.X[:n], "y": data.y[:n], "X_test": data.X_test[:N_TEST], "y_test": data.y_test[:N_TEST]}


def magnetic_britain(n: int, folder: Path) -> dict[str, np.ndarray]:
    """The first n rows of segments that are learned, and up to 10,000 of those between them that are held out."""
    with np.load(folder / "magnetic_britain.npz") as file:
        X, y, line = file["X"].astype(float), file["y"].astype(float), file["line"]
    rng, segments = np.random.default_rng(0), np.unique(line)
    held = np.isin(line, rng.choice(segments, len(segments) // 10, replace=False))
    last = np.flatnonzero(~held)[n - 1]
    tested = np.flatnonzero(held[:last])
    tested = np.sort(rng.permutation(tested)[:N_TEST])
    return {"X": X[~held][:n], "y": y[~held][:n], "X_test": X[tested], "y_test": y[tested]}


STREAMS: dict[str, Callable[[int, Path], dict[str, np.ndarray]]] = {
    "kin40k": kin40k,
    "magnetic_britain": magnetic_britain,
}
DEFAULT_STREAMS = "kin40k 2000;kin40k 10000;magnetic_britain 2000;magnetic_britain 10000;magnetic_britain 100000"


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
    worker = [sys.executable, str(Path(__file__).with_name("peers.py")), name, str(folder)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))

    process = subprocess.run(
        worker, env=os.environ | ONE_THREAD, capture_output=True, text=True, check=False, preexec_fn=limit
    )
    if process.returncode == -signal.SIGXCPU:
        raise CompetitorError(TOO_LONG)
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


def measure_all(
    competitors: dict[str, Competitor], data: dict[str, np.ndarray], facts: Record, store: Results, console: Console
) -> None:
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with tempfile.TemporaryDirectory() as name_of_folder, Progress(*columns, console=console, transient=True) as bar:
        folder = Path(name_of_folder)
        np.savez(folder / "data.npz", **data)
        task = bar.add_task("", total=len(competitors))
        for name, competitor in competitors.items():
            bar.update(task, description=name)
            if not store.matching(facts | {"name": name}):
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
        yield {"name": name, "measured": measured_now(), "failed": str(failure)}
        return
    about = {"is_offline": competitor.first_rows is None, "is_bounded": competitor.is_bounded}
    yield {"name": name, "measured": measured_now(), **about, **result, **evaluated(folder, y_test)}


# The tables

HEADINGS = ("rows/s", "queries/s", "RMSE", "NLPD", "in the 95 % interval", "memory above imports [MB]", "saved [kB]")


def cells(record: Record) -> list[str]:
    """Those of one competitor, without its name."""
    if "failed" in record:
        return [shorten(record["failed"], 80, placeholder=" ..."), *[""] * (len(HEADINGS) - 1)]
    return [
        f"{record['rows_per_second']:,.0f}",
        f"{record['queries_per_second']:,.0f}",
        f"{record['rmse']:.4g}",
        "" if record["nlpd"] is None else f"{record['nlpd']:.2f}",
        "" if record["coverage"] is None else f"{record['coverage']:.1%}",
        f"{record['megabytes_above_import']:,.0f}",
        f"{record['bytes'] / 1000:,.0f}",
    ]


def label(record: Record) -> str:
    """The name; whether it learns online and in bounded memory."""
    facts = {
        "not online": record.get("is_offline"),
        "memory grows": not record.get("is_bounded", True) and not record.get("is_offline"),
    }
    return ", ".join([record["name"], *(f"*{fact}*" for fact, is_true in facts.items() if is_true)])


def table(records: list[Record], title: str, before: str) -> str:
    """Markdown: a competitor a row, and a sentence that says which are ahead of the default.

    before : the table of the same stream on the page, or nothing; competitors that were not measured now are kept.
    """
    rows = dict(row_of(line) for line in before.splitlines()[2:] if line.startswith("|"))
    kept = rows.keys() - {label(record) for record in records}
    rows |= {label(record): cells(record) for record in records}
    lines = [f"| {title} | {' | '.join(HEADINGS)} |", "|---" + "|---:" * len(HEADINGS) + "|"]
    lines += [f"| {name} | {' | '.join(row)} |" for name, row in rows.items()]
    return "\n".join(lines) + f"\n\n{ahead(rows)} {when(records, before if kept else '')}\n"


def row_of(line: str) -> tuple[str, list[str]]:
    """The name and the cells of a row of a table."""
    name, *row = (cell.strip() for cell in line.strip("|").split("|"))
    return name, row


def when(records: list[Record], before: str) -> str:
    """When the competitors were measured; those that are kept from the page are as it says."""
    now, earlier = when_measured(records, "name"), re.findall(r"(?:Measured|Written) on [^.;]*", before)
    if not earlier:
        return now
    names = "" if ":" in now else f"{', '.join(record['name'] for record in records)}: "
    return f"{names}{now} The others: {earlier[-1][0].lower()}{earlier[-1][1:]}."


def tables_of_page() -> dict[str, str]:
    """The tables on the page, by data set and number of rows."""
    before = re.split(r"\n\n(?=\|)", between(PAGE.read_text(), BEGIN, END).strip())
    return {text.split(";")[0]: f"{text.strip()}\n" for text in before if text}


def ahead(rows: dict[str, list[str]]) -> str:
    """Which methods have a smaller error than the default, and by how much."""
    errors = {name: float(row[2]) for name, row in rows.items() if row[2]}
    if DEFAULTS not in errors:
        return ""
    ours = errors[DEFAULTS]
    better = [(name.split(", *")[0], error / ours) for name, error in errors.items() if error < ours]
    if not better:
        return "No other method has a smaller error than the default."
    return (
        "Errors smaller than the default's: " + "; ".join(f"{name} {ratio:.2f} of it" for name, ratio in better) + "."
    )


def parsed() -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kin40k.npz and magnetic_britain.npz")
    parser.add_argument("--streams", default=DEFAULT_STREAMS, help="data sets, each with a number of rows; semicolons")
    parser.add_argument("--only", default="", help="names of competitors, separated by semicolons")
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    arguments = parser.parse_args()
    require_data(parser, arguments.data, ["kin40k"])
    if not (arguments.data / "magnetic_britain.npz").is_file():
        parser.error(f"--data: there is no magnetic_britain.npz in {arguments.data}")
    return arguments, parser


def asked_streams(text: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, int]]:
    """Names and numbers of rows."""
    for part in text.split(";"):
        name, _, n = part.strip().partition(" ")
        if name not in STREAMS or not n.isdecimal() or int(n) < BATCH:
            parser.error(f"--streams has {part!r}; each must be one of {', '.join(STREAMS)}, and rows from {BATCH} on")
        yield name, int(n)


def main() -> None:
    arguments, parser = parsed()
    competitors, streams = chosen(arguments, parser), [*asked_streams(arguments.streams, parser)]
    store, console, tables = Results(arguments.output, are_dated=True), Console(width=150), tables_of_page()
    for name, n in streams:
        data, facts = STREAMS[name](n, arguments.data), {"data": name, "samples": n}
        able = {key: it for key, it in competitors.items() if data["X"].shape[1] <= (it.max_inputs or np.inf)}
        try:
            measure_all(able, data, facts, store, console)
        except KeyboardInterrupt:
            raise SystemExit("interrupted; a run with the same --output goes on there") from None
        records = [record for key in able for record in store.matching(facts | {"name": key})[-1:]]
        key = f"| {name}, {n:,} rows"
        tables[key] = table(records, f"{key[2:]}; {len(data['y_test']):,} held out", tables.get(key, ""))
        console.print(tables[key], markup=False, highlight=False)
    if arguments.write:
        put_between(PAGE, BEGIN, END, "\n".join(tables.values()))


if __name__ == "__main__":
    main()
