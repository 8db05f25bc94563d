"""RMSE of the paper's settings on real data, each with the limit that it must keep.

    python benchmarks/accuracy.py --data FOLDER [--seeds 5] [--only toy] [--write]

FOLDER holds the data sets. Test rows are the established ones of kin40k, and random fifths of the others, one for each
seed. `--write` puts the table into docs/measurements.md. Ten minutes on two cores; the toy alone one minute.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from sklearn.base import RegressorMixin
from sklearn.metrics import root_mean_squared_error

from common import ROOT, load, markdown_table, put_measured, require_data
from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes

PAGE = ROOT / "docs/measurements.md"
MARKERS = "<!-- measured by benchmarks/accuracy.py -->", "<!-- end of accuracy -->"
THRESHOLDS = (10.0, 100.0, 300.0, 1000.0, np.inf)
TOY_THRESHOLD, TOY_MODELS = 3.0, 2


class Row(NamedTuple):
    """What was measured, the result, its limit, and whether it keeps that."""

    what: str
    measured: str
    limit: str = ""
    is_kept: bool = True


def rmse(model: RegressorMixin, name: str, folder: str, seed: int) -> float:
    """Of a model fitted to the training rows of the established split, or of a random one."""
    data = load(name, folder)
    if not len(data.y_test):
        data = data.split(seed)
    model.fit(data.X, data.y)
    return root_mean_squared_error(data.y_test, model.predict(data.X_test))


def all_seeds(model: RegressorMixin, name: str, folder: str, n_seeds: int) -> list[float]:
    """RMSE of each random split."""
    return Parallel(-1)(delayed(rmse)(model, name, folder, seed) for seed in range(n_seeds))


def row(what: str, errors: list[float], limit: float | None = None) -> Row:
    """Mean of the errors, with their range if there are several, next to the limit of the mean, if there is one."""
    mean = np.mean(errors)
    range_ = f" ({min(errors):.4g} to {max(errors):.4g})" if len(errors) > 1 else ""
    return Row(what, f"{mean:.4g}{range_}", "" if limit is None else f"{limit:g}", limit is None or bool(mean <= limit))


def toy(seed: int) -> tuple[int, float]:
    """Number of models and RMSE on the noisy data of the two-regime toy."""
    X, y, _ = two_regimes(random_state=seed)
    model = WGPRegressor.published(threshold=TOY_THRESHOLD, random_state=0).fit(X, y)
    return model.n_models_, root_mean_squared_error(y, model.predict(X))


def toy_rows(folder: str, n_seeds: int) -> Iterator[Row]:
    counts, errors = zip(*Parallel(-1)(delayed(toy)(seed) for seed in range(2 * n_seeds)), strict=True)
    n_right = counts.count(TOY_MODELS)
    least = 0.8 * len(counts)
    yield Row(
        f"toy of two regimes, threshold {TOY_THRESHOLD:g}: seeds that start {TOY_MODELS} models",
        f"{n_right} of {len(counts)}", f"at least {least:g}", n_right >= least,
    )  # fmt: skip
    yield row("toy: median RMSE on the noisy data (noise 0.25)", [float(np.median(errors))], 0.28)


def kin40k_rows(folder: str, n_seeds: int) -> Iterator[Row]:
    streaming, always = StreamingGPRegressor(random_state=0), WGPRegressor.published(splitting="always", random_state=0)
    yield row("kin40k, one streamed model", [rmse(streaming, "kin40k", folder, 0)], 0.52)
    yield row("kin40k, one model per batch, the nearest answers", [rmse(always, "kin40k", folder, 0)], 0.78)


def streamed_rows(folder: str, n_seeds: int, name: str, limit: float) -> Iterator[Row]:
    errors = all_seeds(StreamingGPRegressor(random_state=0), name, folder, n_seeds)
    yield row(f"{name}, one streamed model", errors, limit)


def threshold_rows(folder: str, n_seeds: int, name: str, limit: float) -> Iterator[Row]:
    """The limit is that of the best threshold."""
    errors = {
        threshold: all_seeds(WGPRegressor.published(threshold=threshold, random_state=0), name, folder, n_seeds)
        for threshold in THRESHOLDS
    }
    best = min(errors, key=lambda threshold: np.mean(errors[threshold]))
    for threshold, each in errors.items():
        yield row(f"{name}, WGPR, threshold {threshold:g}", each, limit if threshold == best else None)


SECTIONS: dict[str, Callable[[str, int], Iterator[Row]]] = {
    "toy": toy_rows,
    "kin40k": kin40k_rows,
    "sarcos": partial(streamed_rows, name="sarcos", limit=9.0),
    "tzibana": partial(streamed_rows, name="tzibana", limit=14.0),
    "abalone": partial(threshold_rows, name="abalone", limit=2.4),
    "pumadyn": partial(threshold_rows, name="pumadyn", limit=1.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the .npz files")
    parser.add_argument("--seeds", type=int, default=5, help="random splits of each data set")
    parser.add_argument("--only", choices=SECTIONS, help="one of the data sets")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements.md")
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(SECTIONS)
    require_data(parser, arguments.data, [name for name in names if name != "toy"])
    rows = [
        (each.what, each.limit, f"{each.measured}{'' if each.is_kept else ': missed'}")
        for name in track(names, "measuring", console=Console(stderr=True))
        for each in SECTIONS[name](arguments.data, arguments.seeds)
    ]
    table = markdown_table(["what", "limit", "RMSE"], rows)
    print(table)
    if arguments.write:
        put_measured(PAGE, *MARKERS, table)


if __name__ == "__main__":
    main()
