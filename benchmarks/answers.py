"""Answers of the default: rates, single queries, jumps at borders, grids, maps. The first table of docs/scale.md.

    python benchmarks/answers.py --data FOLDER [--only "jumps;single"] [--write]

The terrain of the demo, `magnetic_rio` without every eighth line, and `kin40k` are learned once. Times are of the
processor, on one thread; commands run as a user runs them, with their imports. With `--write` the table replaces what
is between the markers of the page. Five minutes.
"""

import resource
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from common import ROOT, put_measured, run_studies
from common import load as load_dataset
from wgpr import WGPRegressor, diff, load
from wgpr.gp.linalg import one_blas_thread
from wgpr.survey import fly, jacksboro

PAGE, BEGIN, END = ROOT / "docs/scale.md", "<!-- measured by benchmarks/answers.py -->", "<!-- end of answers -->"
N_QUERIES, N_SINGLE, N_EXACT = 10_000, 200, 5000

Row = tuple[str, str]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y to learn; X_test, y_test


@lru_cache
def rows_of(name: str, folder: Path) -> Rows:
    if name == "terrain":
        survey = fly(jacksboro(), n_test=N_QUERIES, random_state=0)
        return survey.X, survey.y, survey.X_test, survey.y_test
    if name == "kin40k":
        data = load_dataset("kin40k", folder)
        return data.X, data.y, data.X_test[:N_QUERIES], data.y_test[:N_QUERIES]
    with np.load(folder / "magnetic_rio.npz") as file:
        used = ~file["is_tie"]
        X, y, line = file["X"][used].astype(float), file["y"][used].astype(float), file["line"][used]
    held = np.unique(line, return_inverse=True)[1] % 8 == 4
    some = np.random.default_rng(0).choice(np.flatnonzero(~held), N_QUERIES - int(held.sum()), replace=False)
    return X[~held], y[~held], np.concatenate([X[held], X[some]]), np.concatenate([y[held], y[some]])


STREAMS = ("terrain", "magnetic_rio", "kin40k")


@lru_cache
def learned(name: str, folder: Path) -> WGPRegressor:
    X, y, *_ = rows_of(name, folder)
    Console(stderr=True).print(f"learning {len(y):,} rows of {name}")
    return WGPRegressor().fit(X, y)


def seconds_of(action: Callable[[], object]) -> float:
    started = process_time()
    action()
    return process_time() - started


def rates(folder: Path) -> list[Row]:
    """Queries a second with standard deviations, 10,000 at once: with nothing kept, then again; over scikit-learn's."""
    found = []
    for name in STREAMS:
        X, y, queries, truth = rows_of(name, folder)
        model = load_copy(learned(name, folder))
        times = [seconds_of(lambda: model.predict(queries, return_std=True)) for _ in range(3)]  # noqa: B023
        first, again = (len(queries) / seconds for seconds in (times[0], min(times[1:])))
        rmse = float(np.sqrt(np.mean((model.predict(queries) - truth) ** 2)))
        exact = len(queries) / exact_seconds(X, y, queries)
        rates = f"{first:,.0f}; {again:,.0f} ({again / exact:.0f} times)"
        found.append((f"{name}: queries/s at once, first; again (over scikit-learn's exact GP of 5,000 rows)", rates))
        found.append((f"{name}: RMSE of these queries", f"{rmse:.3g}"))
    return found


def load_copy(model: WGPRegressor) -> WGPRegressor:
    """The same map, with nothing kept."""
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "copy.map")
        return load(Path(folder) / "copy.map")


def exact_seconds(X: np.ndarray, y: np.ndarray, queries: np.ndarray) -> float:
    """Seconds of scikit-learn's exact GP, with a standard deviation for each query."""
    some = np.random.default_rng(0).choice(len(y), N_EXACT, replace=False)
    kernel = ConstantKernel(1.0) * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    exact = GaussianProcessRegressor(kernel, optimizer=None)
    with one_blas_thread():
        exact.fit((X[some] - X.mean(axis=0)) / X.std(axis=0), (y[some] - y.mean()) / y.std())
        scaled = (queries - X.mean(axis=0)) / X.std(axis=0)
        return seconds_of(
            lambda: [exact.predict(scaled[i : i + 500], return_std=True) for i in range(0, len(scaled), 500)]
        )


def single(folder: Path) -> list[Row]:
    """One query: in a place asked before, in a new place, right after a new row there. Medians and largest."""
    found = []
    for name in STREAMS:
        _, _, queries, truth = rows_of(name, folder)
        model = load_copy(learned(name, folder))
        order = np.random.default_rng(1).permutation(len(queries))[:N_SINGLE]
        places = [queries[i : i + 1] for i in order]
        new = [1e3 * seconds_of(lambda: model.predict(x, return_std=True)) for x in places]  # noqa: B023
        before = [1e3 * seconds_of(lambda: model.predict(x, return_std=True)) for x in places]  # noqa: B023
        after = []
        for i, x in zip(order, places, strict=True):
            model.partial_fit(x, truth[i : i + 1])
            after.append(1e3 * seconds_of(lambda: model.predict(x, return_std=True)))  # noqa: B023
        cells = [f"{np.median(times):.2g} (95 %: {np.quantile(times, 0.95):.2g})" for times in (before, new, after)]
        found.append(
            (f"{name}: ms of one query where asked before; in a new place; after a new row there", "; ".join(cells))
        )
    return found


def jumps(folder: Path) -> list[Row]:
    """Lines across 1,000 borders; the 40 steepest steps are bisected 22 times. What is left, in standard deviations."""
    found = []
    for name in STREAMS:
        X, *_ = rows_of(name, folder)
        model, rng = learned(name, folder), np.random.default_rng(2)
        ends = X[rng.integers(len(X), size=(4000, 2))]
        fractions = np.linspace(0.0, 1.0, 65)[:, None, None]
        starts, directions = ends[:, 0], (ends[:, 1] - ends[:, 0]) * min(1.0, 8.0 / model.n_models_ ** (1 / X.shape[1]))
        lines = starts + fractions * directions  # (65, lines, d)
        owners = model.model_index(lines.reshape(-1, X.shape[1])).reshape(lines.shape[:2])
        crossing = np.cumsum((np.diff(owners, axis=0) != 0).sum(axis=0))
        n_lines = int(np.searchsorted(crossing, 1000)) + 1
        mean, std = (values.reshape(65, n_lines) for values in model.predict(
            lines[:, :n_lines].reshape(-1, X.shape[1]), return_std=True))  # fmt: skip
        steps = np.abs(np.diff(mean, axis=0)) / std[:-1]
        step, line = np.unravel_index(np.argsort(-steps, axis=None)[:40], steps.shape)
        low, high = lines[step, line], lines[step + 1, line]
        for _ in range(22):
            middle = 0.5 * (low + high)
            values = [model.predict(place) for place in (low, middle, high)]
            is_first = (np.abs(values[1] - values[0]) > np.abs(values[2] - values[1]))[:, None]
            low, high = np.where(is_first, low, middle), np.where(is_first, middle, high)
        (below, std), above = model.predict(low, return_std=True), model.predict(high)
        left = float((np.abs(above - below) / std).max())
        n_borders = min(crossing[n_lines - 1], 1000)
        what = f"{name}: what is left of the 40 steepest steps across {n_borders:,} borders [std]"
        found.append((what, f"{left:.1g}"))
    return found


def maps(folder: Path) -> list[Row]:
    """Sizes of maps, full and compact; of the difference after 100 rows; RMSE of the compact map over the full one."""
    found = []
    with TemporaryDirectory() as parent:
        for name in STREAMS[:2]:
            X, y, queries, truth = rows_of(name, folder)
            model, path = learned(name, folder), Path(parent)
            model.save(path / "full.map")
            model.save(path / "compact.map", compact=True)
            sizes = [(path / file).stat().st_size / 1e3 for file in ("full.map", "compact.map")]
            errors = [
                np.sqrt(np.mean((one.predict(queries) - truth) ** 2)) for one in (load(path / "compact.map"), model)
            ]
            samples = 4e-3 * y.size * (X.shape[1] + 1)
            cells = f"{sizes[0]:,.0f}; {sizes[1]:,.0f} ({samples:,.0f}); {errors[0] / errors[1]:.3f}"
            found.append((f"{name}: map [kB], full; compact (samples in float32); RMSE of compact over full", cells))
            found.append((f"{name}: difference after 100 rows [kB], median and largest of 10", differences(X, y)))
    return found


def differences(X: np.ndarray, y: np.ndarray) -> str:
    n, sizes = len(y) - 1000, []
    model = WGPRegressor().fit(X[:n], y[:n])
    for first in range(n, len(y), 100):
        before = copy(model)
        model.partial_fit(X[first : first + 100], y[first : first + 100])
        sizes.append(len(diff(before, model)) / 1e3)
    return f"{np.median(sizes):.1f}; {max(sizes):.1f}"


def commands(folder: Path) -> list[Row]:
    """Seconds of processor time of commands, with their imports."""
    with TemporaryDirectory() as parent:
        path = Path(parent)
        learned("magnetic_rio", folder).save(path / "rio.map")
        learned("terrain", folder).save(path / "terrain.map")
        X, y, queries, _ = rows_of("terrain", folder)
        pd.DataFrame(rows_of("magnetic_rio", folder)[0][:1]).to_csv(path / "one.csv", index=False, header=["x1", "x2"])
        is_question = np.isin(np.arange(1500), np.random.default_rng(0).choice(1500, 300, replace=False))
        table = pd.DataFrame(
            np.where(is_question[:, None], queries[:1500], X[np.cumsum(~is_question)]), columns=["x1", "x2"]
        )
        table["y"] = np.where(is_question, np.nan, y[np.cumsum(~is_question)])
        spacing = np.ptp(X, axis=0) / 999.0
        grid = ["grid", "terrain.map", "--spacing", ",".join(map(repr, spacing.tolist())), "-o", "grid.nc"]
        stream = run(["stream", "s.map"], path, table.to_csv(index=False))
        demos = [run(["demo", *options], path) for options in (["-o", "d"], ["--quick", "-o", "q"])]
        grid_seconds, grid_memory = run(grid, path)
        return [
            ("`wgpr predict` of one row, magnetic_rio [s]", f"{run(['predict', 'rio.map', 'one.csv'], path)[0]:.2f}"),
            ("`wgpr stream` of 1,200 rows with 300 questions [s]", f"{stream[0]:.2f}"),
            ("`wgpr grid`, 1,000 x 1,000 nodes, with std [s]; memory [MB]", f"{grid_seconds:.1f}; {grid_memory:,.0f}"),
            ("`wgpr demo`; `wgpr demo --quick` [s]", "; ".join(f"{seconds:.1f}" for seconds, _ in demos)),
        ]


def run(arguments: list[str], folder: Path, text: str | None = None) -> tuple[float, float]:
    """Processor time [s] of a command, and the largest memory [MB] of any so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    main = "import sys; from wgpr.cli.app import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, *arguments], cwd=folder, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"wgpr {' '.join(arguments)}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


STUDIES = {study.__name__: study for study in (rates, single, jumps, maps, commands)}


def main() -> None:
    table = run_studies(__doc__, STUDIES, "docs/scale.md")
    if table is not None:
        put_measured(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
