"""What several benchmarks share: data, results as lines of JSON, memory, one thread for workers."""

import gc
import json
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reproduction.datasets import DATASETS as DATASETS  # noqa: E402
from reproduction.datasets import Dataset as Dataset  # noqa: E402
from reproduction.datasets import load  # noqa: E402

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}

Record = dict[str, Any]


def require_data(parser: ArgumentParser, folder: str | Path, names: Iterable[str]) -> None:
    """End with the error of a missing data set before any work begins."""
    for name in names:
        try:
            load(name, folder)
        except FileNotFoundError as error:
            parser.error(str(error))


def robot_arm(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 8) and targets (n,) of a smooth function: in place of kin40k, where its file is missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    angles = np.cumsum(X[:, :5], axis=1)
    return X, np.sin(angles).sum(axis=1) / 2 + 0.01 * rng.normal(size=n)


class Results:
    """Results as lines of JSON, so that an interrupted run can continue. Without a path they are not written.

    The first line has the commit that they were measured at. A file of another commit is refused: a table would name
    the present one.

    are_dated : there is no such line, and any commit will do, because each record says in `measured` when it was made.
    """

    def __init__(self, path: Path | None, *, are_dated: bool = False) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]
        if are_dated or path is None:
            return
        if not self.records:
            path.write_text(json.dumps({"commit": present_code()}) + "\n")
        elif self.records.pop(0).get("commit") != present_code():
            raise SystemExit(f"{path} has results of another commit than {present_code()}; give another --output")

    def add(self, *records: Record) -> None:
        self.records += records
        if self.path is not None:
            with self.path.open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)

    def matching(self, facts: Record) -> list[Record]:
        """The records that have these values."""
        return [record for record in self.records if facts.items() <= record.items()]


def between(text: str, begin: str, end: str) -> str:
    """What stands between two markers, which the text has once each."""
    return text.split(begin)[1].split(end)[0]


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two markers of a page."""
    before, _, rest = page.read_text().partition(begin)
    _, is_found, after = rest.partition(end)
    if not is_found:
        raise SystemExit(f"{page} has no place for the figures; it must have {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}{end}{after}")


def put_measured(page: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two markers of a page by figures, with the day and the commit of the code."""
    put_between(page, begin, end, f"{text.rstrip()}\n\n{measured_now()}\n")


@cache
def present_code() -> str:
    """The latest commit that changed src when the program began, and whether src differs from it."""
    git = ["git", "-C", str(ROOT)]
    latest = [*git, "log", "-1", "--format=%h", "--", "src"]
    name = subprocess.run(latest, capture_output=True, text=True, check=True).stdout
    is_changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"], check=False).returncode
    return f"{name.strip()}{' with changes' if is_changed else ''}"


def measured_now() -> str:
    """A sentence with the day and the code."""
    return f"Measured on {date.today()} at commit {present_code()}."


present_code()  # commits may follow while a program measures


def when_measured(records: Iterable[Record], key: str) -> str:
    """Sentences that say when records were measured, which have that in `measured`; with their names if that differs.

    A file of results may be older than the checkout that writes a page, so that each record has its commit.
    """
    names: dict[str, list[str]] = {}
    for record in records:
        names.setdefault(record.get("measured", "Measured at a commit that was not noted."), []).append(record[key])
    if len(names) == 1:
        return next(iter(names))
    return " ".join(f"{', '.join(each)}: {sentence[0].lower()}{sentence[1:]}" for sentence, each in names.items())


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def resident_bytes() -> int:
    """Memory of this process now (Linux)."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmRSS"].split()[0])


class LinearInterpolation:
    """Linear interpolation of rows `X` (n, d), `y` (n,); outside, the value of the nearest."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self._linear, self._nearest = (
            method(X, y, rescale=True) for method in (LinearNDInterpolator, NearestNDInterpolator)
        )

    def __call__(self, queries: np.ndarray) -> np.ndarray:
        """Values (m,) at `queries` (m, d)."""
        values = self._linear(queries)
        return np.where(np.isnan(values), self._nearest(queries), values)


def interpolated(X: np.ndarray, y: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Values (m,) at `queries` (m, d) by linear interpolation."""
    return LinearInterpolation(X, y)(queries)


def run_studies(
    description: str,
    studies: dict[str, Callable[[Path], list[tuple[str, str]]]],
    page: str,
    headings: Sequence[str] = ("measured",),
) -> str | None:
    """Print the table of the studies that the command line names; the table if it is to be written into a page.

    headings : of the columns of a result; a study separates them by |.
    """
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .npz files")
    parser.add_argument("--only", default=";".join(studies), help="names of studies, separated by semicolons")
    parser.add_argument("--write", action="store_true", help=f"put the table into {page}")
    arguments = parser.parse_args()
    names = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in names if name not in studies]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(studies)}")
    rows = [row for name in names for row in studies[name](arguments.data)]
    table = markdown_table(["what", *headings], rows)
    print(table)
    return table if arguments.write else None
