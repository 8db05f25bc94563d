"""The accuracy that the method must show on real data: prints every figure with its limit.

python benchmarks/accuracy.py --data ../shared/data
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.base import RegressorMixin
from sklearn.metrics import root_mean_squared_error

from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.datasets import load, two_regimes
from workloads import require_data

SEEDS = range(5)
THRESHOLDS = {"abalone": (10.0, 100.0, 300.0, 1000.0, np.inf), "pumadyn": (10.0, 100.0, 300.0, 1000.0, np.inf)}
TOY_THRESHOLD = 3.0


def rmse(model: RegressorMixin, name: str, folder: str, seed: int) -> float:
    """Of a model streamed through the established split, or through a random 80/20 one."""
    data = load(name, folder)
    if not len(data.y_test):
        data = data.split(seed)
    model.fit(data.X, data.y)
    return root_mean_squared_error(data.y_test, model.predict(data.X_test))


def toy(seed: int) -> tuple[int, float]:
    """Number of models and RMSE on the noisy data of the two-regime toy."""
    X, y, _ = two_regimes(random_state=seed)
    model = WGPRegressor.published(threshold=TOY_THRESHOLD, random_state=0).fit(X, y)
    return model.n_models_, root_mean_squared_error(y, model.predict(X))


Row = tuple[str, str, str]


def streamed_rows(folder: str) -> Iterator[Row]:
    streaming, always = StreamingGPRegressor(random_state=0), WGPRegressor.published(splitting="always", random_state=0)
    yield "kin40k, one streamed model", f"{rmse(streaming, 'kin40k', folder, 0):.3f}", "0.52"
    yield "kin40k, one model per batch", f"{rmse(always, 'kin40k', folder, 0):.3f}", "0.78"
    for name, limit in (("sarcos", "9"), ("tzibana", "14")):
        errors = Parallel(-1)(delayed(rmse)(streaming, name, folder, seed) for seed in SEEDS)
        yield f"{name}, one streamed model, splits {list(SEEDS)}", _spread(errors), limit


def threshold_rows(folder: str) -> Iterator[Row]:
    for name, limit in (("abalone", "2.40"), ("pumadyn", "1.05")):
        for threshold in THRESHOLDS[name]:
            model = WGPRegressor.published(threshold=threshold, random_state=0)
            errors = Parallel(-1)(delayed(rmse)(model, name, folder, seed) for seed in SEEDS)
            yield f"{name}, WGPR, threshold {threshold:g}", _spread(errors), f"{limit} (mean, best threshold)"


def toy_rows(folder: str) -> Iterator[Row]:
    counts, errors = zip(*Parallel(-1)(delayed(toy)(seed) for seed in range(10)), strict=True)
    yield f"toy, threshold {TOY_THRESHOLD:g}: models", str(list(counts)), "2 in 8 of 10"
    yield "toy: median RMSE on the noisy data", f"{np.median(errors):.3f}", "0.28"


def _spread(errors: list[float]) -> str:
    return f"{np.mean(errors):.3f}  ({min(errors):.3f} to {max(errors):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the .npz files")
    folder = parser.parse_args().data
    require_data(parser, folder, ("kin40k", "sarcos", "tzibana", "abalone", "pumadyn"))
    table = Table("what", "RMSE", "at most")
    sections: tuple[Callable[[str], Iterator[Row]], ...] = (toy_rows, streamed_rows, threshold_rows)
    for section in track(sections, "measuring"):
        for row in section(folder):
            table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
