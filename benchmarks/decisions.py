"""Whether a screen by closed-form updates decides as full updates of all candidates do, and what that does to the RMSE.

    python benchmarks/decisions.py --data FOLDER [--rows 10000] [--orders 3] [--output decisions.jsonl]

The paper's settings. In a thorough run every batch is decided a second time, by the screen, from the same ensemble.
Then the same rows are learned with the screen alone. FOLDER holds the data sets; orders are that of the file (0) and
shuffles. An hour on one core; `--rows 1000 --orders 1` takes two minutes.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from common import Record, Results, require_data
from wgpr import Wasserstein, WGPRegressor
from wgpr.datasets import Dataset, load
from wgpr.ensemble.evaluation import Assignment, BatchEvaluation
from wgpr.estimators.base import Method
from wgpr.metrics import scores

# Thresholds with which each data set has several models, but not one for every batch.
STREAMS = {"kin40k": (10.0, 30.0), "sarcos": (100.0, 300.0), "abalone": (50.0,), "pumadyn": (20.0,)}


class ScreenedRegressor(WGPRegressor):
    """The method of the paper, but with a screen by closed-form updates."""

    def _make_method(self) -> Method:
        return replace(super()._make_method(), is_thorough=False)


class Watched:
    """The paper's rule, which counts how often the screen would have led to the same decision."""

    def __init__(self, rule: Wasserstein) -> None:
        self.rule = rule
        self.is_same: list[bool] = []

    def assign(self, evaluation: BatchEvaluation) -> Sequence[Assignment]:
        decision = self.rule.assign(evaluation)
        if len(evaluation.candidates) > 1:  # one candidate is not screened
            screened = self.rule.assign(_screened(evaluation))
            self.is_same.append([each.model for each in decision] == [each.model for each in screened])
        return decision


def _screened(evaluation: BatchEvaluation) -> BatchEvaluation:
    """The same batch and ensemble, with a screen."""
    seed, number = evaluation._seed
    return BatchEvaluation(
        evaluation.ensemble,
        evaluation.learner,
        evaluation.X,
        evaluation.y,
        n_candidates=evaluation.n_candidates,
        seed=seed,
        number=number,
        target_unit=evaluation._target_unit,
        is_thorough=False,
    )


def compared(data: Dataset, threshold: float) -> Record:
    """Decisions, and RMSE, models and evaluations of the bound for each batch, thorough and screened."""
    rule = Watched(Wasserstein(threshold))
    models = {
        "thorough": WGPRegressor.published(splitting=rule, random_state=0),
        "screened": ScreenedRegressor.published(threshold=threshold, random_state=0),
    }
    result: Record = {}
    for name, model in models.items():
        model.fit(data.X, data.y)
        result[name] = scores(data.y_test, model.predict(data.X_test)).rmse
        result[f"bounds_{name}"] = float(np.mean([record.n_evaluations for record in model.history_]))
        result[f"models_{name}"] = model.n_models_
    return {"decisions": len(rule.is_same), "same": sum(rule.is_same), **result}


def in_order(name: str, folder: str, order: int, n_rows: int) -> Dataset:
    """The established test rows, or a fifth of all; training rows in the file's order (0) or in a random one."""
    data = load(name, folder)
    if not len(data.y_test):
        data = data.split(order)
    rows = np.arange(len(data.y)) if order == 0 else np.random.default_rng(order).permutation(len(data.y))
    return data.rows(rows[:n_rows])


def table_of(results: list[Record]) -> Table:
    headings = "stream", "threshold", "models", "decisions", "the same", "RMSE thorough", "screened", "ratio"
    table = Table(*headings, "bounds a batch", caption="pairs: thorough; screened")
    for name, threshold in dict.fromkeys((result["name"], result["threshold"]) for result in results):
        some = [result for result in results if (result["name"], result["threshold"]) == (name, threshold)]
        table.add_row(name, f"{threshold:g}", *_cells(some))
    return table


def _cells(some: list[Record]) -> tuple[str, ...]:
    """Sums and means over the orders of one stream."""

    def mean(key: str) -> Any:
        return np.mean([result[key] for result in some])

    n_decisions, n_same = (sum(result[key] for result in some) for key in ("decisions", "same"))
    return (
        f"{mean('models_thorough'):.0f}; {mean('models_screened'):.0f}",
        str(n_decisions),
        f"{100 * n_same / max(1, n_decisions):.1f} %",
        f"{mean('thorough'):.4f}",
        f"{mean('screened'):.4f}",
        f"{mean('screened') / mean('thorough'):.3f}",
        f"{mean('bounds_thorough'):.0f}; {mean('bounds_screened'):.0f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the .npz files")
    parser.add_argument("--rows", type=int, default=10_000, help="rows to learn, at the most")
    parser.add_argument("--orders", type=int, default=3, help="orders of each stream")
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    arguments = parser.parse_args()
    require_data(parser, arguments.data, STREAMS)
    results, facts = Results(arguments.output), {"rows": arguments.rows}
    cases = [(name, each, order) for name in STREAMS for each in STREAMS[name] for order in range(arguments.orders)]
    for name, threshold, order in track(cases, "streams"):
        case = facts | {"name": name, "threshold": threshold, "order": order}
        if not results.matching(case):
            data = in_order(name, arguments.data, order, arguments.rows)
            results.add(case | compared(data, threshold))
    Console(width=140).print(table_of(results.matching(facts)))


if __name__ == "__main__":
    main()
