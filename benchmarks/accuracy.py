"""RMSE of the paper's settings on real data, each with the limit that it must keep.

    python benchmarks/accuracy.py --data FOLDER [--seeds 5] [--only toy]

FOLDER holds the data sets. Test rows are the established ones of kin40k, and random fifths of the others, one for each
seed. 20 minutes on two cores; the toy alone one minute.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.base import RegressorMixin
from sklearn.metrics import root_mean_squared_error

from common import load, require_data
from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes

THRESHOLDS = (10.0, 100.0, 300.0, 1000.0, np.inf)
TOY_THRESHOLD = 3.0

Row = tuple[str, str, str]  # what, its value, its limit


def rmse(model: RegressorMixin, name: str, folder: str, seed: int) -> float:
    """Of a model fitted to the training rows of the established split, or of a random one."""
    data = load(name, folder)
    if not len(data.y_test):
        data = data.split(seed)
    model.fit(data.X, data.y)
    return root_mean_squared_error(data.y_test, model.predict(data.X_test))


def all_seeds(model: RegressorMixin, name: str, folder: str, n_seeds: int) -> str:
    """Mean and range of the RMSE."""
    errors = Parallel(-1)(delayed(rmse)(model, name, folder, seed) for seed in range(n_seeds))
    return f"{np.mean(errors):.3f}  ({min(errors):.3f} to {max(errors):.3f})"


def toy(seed: int) -> tuple[int, float]:
    """Number of models and RMSE on the noisy data of the two-regime toy."""
    X, y, _ = two_regimes(random_state=seed)
    model = WGPRegressor.published(threshold=TOY_THRESHOLD, random_state=0).fit(X, y)
    return model.n_models_, root_mean_squared_error(y, model.predict(X))


def toy_rows(folder: str, n_seeds: int) -> Iterator[Row]:
    counts, errors = zip(*Parallel(-1)(delayed(toy)(seed) for seed in range(2 * n_seeds)), strict=True)
    yield f"toy, threshold {TOY_THRESHOLD:g}: models", str(list(counts)), "2 in 8 of 10"
    yield "toy: median RMSE on the noisy data", f"{np.median(errors):.3f}", "0.28"


def kin40k_rows(folder: str, n_seeds: int) -> Iterator[Row]:
    streaming, always = StreamingGPRegressor(random_state=0), WGPRegressor.published(splitting="always", random_state=0)
    yield "kin40k, one streamed model", f"{rmse(streaming, 'kin40k', folder, 0):.3f}", "0.52"
    yield "kin40k, one model per batch", f"{rmse(always, 'kin40k', folder, 0):.3f}", "0.78"


def streamed_rows(folder: str, n_seeds: int, name: str, limit: str) -> Iterator[Row]:
    errors = all_seeds(StreamingGPRegressor(random_state=0), name, folder, n_seeds)
    yield f"{name}, one streamed model", errors, limit


def threshold_rows(folder: str, n_seeds: int, name: str, limit: str) -> Iterator[Row]:
    for threshold in THRESHOLDS:
        errors = all_seeds(WGPRegressor.published(threshold=threshold, random_state=0), name, folder, n_seeds)
        yield f"{name}, WGPR, threshold {threshold:g}", errors, f"{limit} (mean, best threshold)"


SECTIONS: dict[str, Callable[[str, int], Iterator[Row]]] = {
    "toy": toy_rows,
    "kin40k": kin40k_rows,
    "sarcos": partial(streamed_rows, name="sarcos", limit="9"),
    "tzibana": partial(streamed_rows, name="tzibana", limit="14"),
    "abalone": partial(threshold_rows, name="abalone", limit="2.40"),
    "pumadyn": partial(threshold_rows, name="pumadyn", limit="1.05"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the .npz files")
    parser.add_argument("--seeds", type=int, default=5, help="random splits of each data set")
    parser.add_argument("--only", choices=SECTIONS, help="one of the data sets")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(SECTIONS)
    require_data(parser, arguments.data, [name for name in names if name != "toy"])
    table = Table("what", "RMSE", "at most")
    for name in track(names, "measuring"):
        for row in SECTIONS[name](arguments.data, arguments.seeds):
            table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
