"""How fast it is, as ratios within one run, on one thread.

python benchmarks/speed.py [--data ../shared/data]
"""

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from wgpr.datasets import load
from wgpr.gp.linalg import one_blas_thread
from wgpr.rules.prediction import Nearest, predict
from workloads import Bound, UnavoidableWork, ensemble_of, learners, require_data, robot_arm


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def bound_table() -> Table:
    """The two are timed in turn, so that both meet the same noise; medians."""
    bound, unavoidable = Bound(), UnavoidableWork()
    times = np.array([(seconds(bound), seconds(unavoidable)) for _ in range(3000)])
    ours, floor = np.median(times, axis=0) * 1e6
    table = Table("one bound with its gradient (M = 50, N = 100, d = 8, with a summary)", "microseconds", "ratio")
    table.add_row("dense work that it cannot avoid", f"{floor:.0f}", "1.00")
    table.add_row("bound and gradient", f"{ours:.0f}", f"{ours / floor:.2f}")
    return table


def learning_table(X: np.ndarray, y: np.ndarray, name: str) -> Table:
    models = learners()
    rates = {
        method: len(y) / seconds(lambda model=model: model.fit(X, y))
        for method, model in track(models.items(), "learning")
    }
    headings = ("samples per second", "over WGPR", "models", "bounds a batch")
    table = Table(f"learning {name}, {len(y)} samples", *headings)
    for method, rate in rates.items():
        n_bounds = np.mean([record.n_evaluations for record in models[method].history_])
        over = f"{rate / rates['WGPR']:.1f}"
        table.add_row(method, f"{rate:,.0f}", over, str(models[method].n_models_), f"{n_bounds:.0f}")
    return table


def prediction_table() -> Table:
    """The best of five, because the first one builds what the others use."""
    table = Table("10,000 predictions with variance, d = 8", "queries per second", "over that at 10 models")
    rates = {}
    for n_models in track((1, 10, 100, 1000), "predicting"):
        ensemble, queries = ensemble_of(n_models)
        times = [seconds(lambda e=ensemble, q=queries: predict(e, Nearest(), q)) for _ in range(5)]
        rates[n_models] = len(queries) / min(times)
    for n_models, rate in rates.items():
        table.add_row("1 model" if n_models == 1 else f"{n_models} models", f"{rate:,.0f}", f"{rate / rates[10]:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with kin40k.npz; without it, a synthetic arm is learned")
    parser.add_argument(
        "--samples", type=int, default=10_000, choices=range(1, 10_001), metavar="N", help="rows to learn"
    )
    settings = parser.parse_args()
    if settings.data is None:
        (X, y), name = robot_arm(settings.samples), "a synthetic arm"
    else:
        require_data(parser, settings.data, ["kin40k"])
        data, name = load("kin40k", settings.data), "kin40k"
        X, y = data.X[: settings.samples], data.y[: settings.samples]
    console = Console(width=120)
    with one_blas_thread():
        for table in (bound_table(), prediction_table(), learning_table(X, y, name)):
            console.print(table)


if __name__ == "__main__":
    main()
