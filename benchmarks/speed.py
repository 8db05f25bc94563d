"""Speed of the parts as ratios within one run, on one thread: the bound, predictions, and learning by every method.

    python benchmarks/speed.py [--data FOLDER] [--rows 10000]

FOLDER holds kin40k.npz; without it a synthetic stream of eight inputs is learned. How times grow with the ensemble is
measured by `scale.py`, speed over another commit by `ratio.py`. Two minutes; `--rows 1000` takes 20 seconds.
"""

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from common import load, require_data, robot_arm
from synthetic_ensembles import Size, SyntheticEnsemble
from wgpr import LocalGPRegressor, SolarGPRegressor, SquaredExponential, StreamingGPRegressor, WGPRegressor
from wgpr.gp.bound import Observations
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import one_blas_thread
from wgpr.rules.prediction import Nearest, predict

M, N, D = 50, 100, 8  # the paper's settings, and the inputs of kin40k


class Bound:
    """One bound with its gradient, with a summary of the past."""

    def __init__(self) -> None:
        X, y = robot_arm(2 * N)
        kernel = SquaredExponential()
        self.theta = Hyperparameters(1.0, np.full(D, 2.0), 0.3)
        past = Observations(kernel, X[:N], y[:N]).explained_by(self.theta, X[:M]).summary()
        self.observations = Observations(kernel, X[N:], y[N:], past)
        self.Z = X[N : N + M]

    def __call__(self) -> None:
        fit = self.observations.explained_by(self.theta, self.Z)
        _ = fit.value, fit.gradient()


class UnavoidableWork:
    """The dense work in one bound, as bare calls of BLAS and LAPACK."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        A = rng.normal(size=(M, 2 * M))
        self.K = np.asfortranarray(A @ A.T)
        self.L = np.asfortranarray(np.linalg.cholesky(self.K))
        self.wide = np.asfortranarray(rng.normal(size=(M, N + M)))
        self.square = np.asfortranarray(rng.normal(size=(M, M)))
        self.exponents = -rng.random(10_000)

    def __call__(self) -> None:
        for _ in range(2):
            dtrsm(1.0, self.L, self.wide, lower=1)
            dtrsm(1.0, self.L, self.square, lower=1)
            _ = self.square @ self.wide
            dpotrf(self.K, lower=1)
        for _ in range(3):
            _ = self.square @ self.square
        np.exp(self.exponents)


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def bound_table() -> Table:
    """Medians; the two are timed in turn, so that a disturbance of the machine meets both."""
    bound, unavoidable = Bound(), UnavoidableWork()
    times = np.array([(seconds(bound), seconds(unavoidable)) for _ in range(3000)])
    ours, floor = np.median(times, axis=0) * 1e6
    table = Table("one bound with its gradient (M = 50, N = 100, d = 8, with a summary)", "microseconds", "ratio")
    table.add_row("dense work that it cannot avoid", f"{floor:.0f}", "1.00")
    table.add_row("bound and gradient", f"{ours:.0f}", f"{ours / floor:.2f}")
    return table


def prediction_table() -> Table:
    """The best of five, because the first one computes what the others use."""
    rates = {}
    for n_models in track((10, 100, 1000), "predicting"):
        synthetic = SyntheticEnsemble(Size(n_models))
        queries = synthetic.anywhere(10_000, 0)
        times = [seconds(lambda e=synthetic.ensemble, q=queries: predict(e, Nearest(), q)) for _ in range(5)]
        rates[n_models] = len(queries) / min(times)
    table = Table("10,000 predictions with variance, d = 8", "queries per second", "over that at 10 models")
    for n_models, rate in rates.items():
        table.add_row(f"{n_models} models", f"{rate:,.0f}", f"{rate / rates[10]:.2f}")
    return table


def learning_table(X: np.ndarray, y: np.ndarray, name: str) -> Table:
    models = {
        "WGPR, published": WGPRegressor.published(random_state=0),
        "WGPR, published, one model per batch": WGPRegressor.published(splitting="always", random_state=0),
        "SOLAR GP": SolarGPRegressor(random_state=0),
        "LGPR": LocalGPRegressor(random_state=0),
        "one streamed model": StreamingGPRegressor(random_state=0),
    }
    rates = {each: len(y) / seconds(lambda each=each: models[each].fit(X, y)) for each in track(models, "learning")}
    headings = "samples per second", "over WGPR", "models", "bounds a batch"
    table = Table(f"learning {name}, {len(y)} samples", *headings)
    for each, rate in rates.items():
        n_bounds = np.mean([record.n_evaluations for record in models[each].history_])
        over = f"{rate / rates['WGPR, published']:.1f}"
        table.add_row(each, f"{rate:,.0f}", over, str(models[each].n_models_), f"{n_bounds:.0f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with kin40k.npz; without it, a synthetic stream is learned")
    parser.add_argument("--rows", type=int, default=10_000, choices=range(1, 10_001), metavar="N", help="rows to learn")
    arguments = parser.parse_args()
    (X, y), name = robot_arm(arguments.rows), "a synthetic arm"
    if arguments.data is not None:
        require_data(parser, arguments.data, ["kin40k"])
        data, name = load("kin40k", arguments.data), "kin40k"
        X, y = data.X[: arguments.rows], data.y[: arguments.rows]
    console = Console(width=120)
    with one_blas_thread():
        for table in (bound_table(), prediction_table(), learning_table(X, y, name)):
            console.print(table)


if __name__ == "__main__":
    main()
