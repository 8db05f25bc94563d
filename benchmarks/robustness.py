"""Every streaming method on every data set, in natural and in shuffled order, with default settings: does any run fail?

    python benchmarks/robustness.py --data FOLDER [--rows 1000] [--only kin40k] [--write]

FOLDER holds the data sets; by default all rows are learned, which takes five minutes on two cores. A run is sound when
nothing was raised, every prediction is finite, and no model's mean at its own inputs is further from the data than 10
times their range. `--write` puts a table into docs/measurements.md.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table

from common import DATASETS, ROOT, Dataset, load, markdown_table, put_measured, require_data
from wgpr import LocalGPRegressor, SolarGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.estimators.base import OnlineRegressor

PAGE = ROOT / "docs/measurements.md"
MARKERS = "<!-- measured by benchmarks/robustness.py -->", "<!-- end of robustness -->"
METHODS = (WGPRegressor, SolarGPRegressor, LocalGPRegressor, StreamingGPRegressor)
ORDERS = ("natural", "shuffled")
FURTHEST = 10.0
N_CHECKS = 10


class Run(NamedTuple):
    """error : RMSE over the rows seen, in their standard deviation; beyond : furthest local mean, in ranges."""

    data: str
    order: str
    method: str
    rows: int
    models: int
    error: float
    beyond: float
    dropped: int
    seconds: float
    is_sound: bool


def all_rows(name: str, folder: str, order: str, n_rows: int | None) -> Dataset:
    """Training and test rows together, the first `n_rows` of them."""
    data = load(name, folder)
    X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    whole = Dataset(name, X, y, X[:0], y[:0], np.arange(len(y)), data.is_stream)
    return (whole if order == "natural" else whole.shuffled(0)).rows(slice(n_rows))


def furthest_mean(model: OnlineRegressor, y: np.ndarray) -> float:
    """How far the local means leave the range of the data, in ranges (0: they do not)."""
    means = np.concatenate([local.predict(local.inputs)[0] for local in model.models_])
    y = model.units_.targets(y)
    return float(max(y.min() - means.min(), means.max() - y.max(), 0.0) / np.ptp(y))


def run(method: type[OnlineRegressor], name: str, order: str, folder: str, n_rows: int | None) -> Run:
    data, model = all_rows(name, folder, order, n_rows), method(random_state=0)
    furthest = 0.0
    for piece in np.array_split(np.arange(len(data.y)), N_CHECKS):
        model.partial_fit(data.X[piece], data.y[piece])
        if model.n_models_:
            furthest = max(furthest, furthest_mean(model, data.y))
    mean, std = model.flush().predict(data.X, return_std=True)
    is_sound = bool(np.isfinite(mean).all() and np.isfinite(std).all() and furthest <= FURTHEST)
    error = np.sqrt(np.mean((mean - data.y) ** 2)) / data.y.std()
    dropped = sum(len(record.dropped) for record in model.history_)
    seconds = sum(record.seconds for record in model.history_)
    return Run(name, order, method.__name__, len(data.y), model.n_models_, error, furthest, dropped, seconds, is_sound)


def printed(runs: Sequence[Run]) -> Table:
    table = Table("data", "order", "method", "rows", "models", "RMSE / std (seen)", "beyond range", "dropped", "s", "")
    for each in runs:
        *texts, error, beyond, dropped, seconds, is_sound = each
        verdict = "sound" if is_sound else "[red]NOT SOUND"
        table.add_row(*map(str, texts), f"{error:.3f}", f"{beyond:.2f}", str(dropped), f"{seconds:.0f}", verdict)
    return table


def written(runs: Sequence[Run]) -> str:
    """The section of the page: how many are sound, and the errors in natural and in shuffled order."""
    errors = {(each.data, each.method, each.order): f"{each.error:.2f}" for each in runs}
    n_rows = {each.data: f"{each.rows:,}" for each in runs}
    methods = [method.__name__ for method in METHODS]
    rows = [
        [name, n, *("; ".join(errors[name, method, order] for order in ORDERS) for method in methods)]
        for name, n in n_rows.items()
    ]
    return (
        f"{sum(each.is_sound for each in runs)} of {len(runs)} runs are sound. The local mean that is furthest out is "
        f"{max(each.beyond for each in runs):.1f} times the range of the data beyond it (limit {FURTHEST:g}).\n\n"
        + markdown_table(["data", "rows", *(f"`{method}`" for method in methods)], rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the .npz files")
    parser.add_argument("--rows", type=int, help="learn only the first so many of each data set")
    parser.add_argument("--only", choices=DATASETS, help="one of the data sets")
    parser.add_argument("--write", action="store_true", help="put a table into docs/measurements.md")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(DATASETS)
    require_data(parser, arguments.data, names)
    jobs = list(product(METHODS, names, ORDERS))
    results = Parallel(-1, return_as="generator")(delayed(run)(*job, arguments.data, arguments.rows) for job in jobs)
    runs = list(track(results, "streaming", total=len(jobs)))
    Console(width=140).print(printed(runs))
    if arguments.write:
        put_measured(PAGE, *MARKERS, written(runs))


if __name__ == "__main__":
    main()
