"""Every streaming method on every data set, in natural and in shuffled order, with default settings: does any run fail?

    python benchmarks/robustness.py --data FOLDER [--rows 1000] [--only kin40k]

FOLDER holds the data sets; by default all rows are learned, which takes an hour on two cores. With `--rows 300` it
takes two minutes. A run is sound when nothing was raised, every prediction is finite, and no model's mean at its own
inputs is further from the data than 10 times their range.
"""

import argparse
import itertools

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table

from common import DATASETS, Dataset, load, require_data
from wgpr import LocalGPRegressor, SolarGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.estimators.base import OnlineRegressor

METHODS = (WGPRegressor, SolarGPRegressor, LocalGPRegressor, StreamingGPRegressor)
FURTHEST = 10.0
N_CHECKS = 10


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


def run(method: type[OnlineRegressor], name: str, order: str, folder: str, n_rows: int | None) -> tuple[str, ...]:
    data, model = all_rows(name, folder, order, n_rows), method(random_state=0)
    furthest = 0.0
    for piece in np.array_split(np.arange(len(data.y)), N_CHECKS):
        model.partial_fit(data.X[piece], data.y[piece])
        if model.n_models_:
            furthest = max(furthest, furthest_mean(model, data.y))
    mean, std = model.flush().predict(data.X, return_std=True)
    is_sound = np.isfinite(mean).all() and np.isfinite(std).all() and furthest <= FURTHEST
    error = np.sqrt(np.mean((mean - data.y) ** 2)) / data.y.std()
    dropped = sum(len(record.dropped) for record in model.history_)
    seconds = sum(record.seconds for record in model.history_)
    verdict = "sound" if is_sound else "[red]NOT SOUND"
    return (
        name, order, method.__name__, str(len(data.y)), str(model.n_models_), f"{error:.3f}",
        f"{furthest:.2f}", str(dropped), f"{seconds:.0f}", verdict,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the .npz files")
    parser.add_argument("--rows", type=int, help="learn only the first so many of each data set")
    parser.add_argument("--only", choices=DATASETS, help="one of the data sets")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(DATASETS)
    require_data(parser, arguments.data, names)
    jobs = list(itertools.product(METHODS, names, ("natural", "shuffled")))
    results = Parallel(-1, return_as="generator")(delayed(run)(*job, arguments.data, arguments.rows) for job in jobs)
    table = Table("data", "order", "method", "rows", "models", "RMSE / std (seen)", "beyond range", "dropped", "s", "")
    for row in track(results, "streaming", total=len(jobs)):
        table.add_row(*row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
