"""Does `thorough=False` decide as `thorough=True` does, and what does it do to the error?

    python benchmarks/decisions.py FOLDER [--rows 10000] [--orders 3] [--output decisions.jsonl]

The paper's settings. Every batch of a thorough run is decided a second time, by sketches, from the same ensemble; then
the same rows are learned without being thorough at all. FOLDER holds the data sets. Orders: the file's, and shuffles.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from wgpr import Wasserstein, WGPRegressor
from wgpr.datasets import Dataset, load
from wgpr.ensemble.evaluation import Assignment, BatchEvaluation
from wgpr.metrics import scores
from workloads import require_data

# Data sets and thresholds that make some models of them, neither one nor one for every batch.
STREAMS = {"kin40k": (10.0, 30.0), "sarcos": (100.0, 300.0), "abalone": (50.0,), "pumadyn": (20.0,)}


class Watched:
    """A rule that decides as it should, and counts how often sketches would have decided the same."""

    def __init__(self, rule: Wasserstein) -> None:
        self.rule, self.same = rule, []

    def assign(self, trial: BatchEvaluation) -> Any:
        decision = self.rule.assign(trial)
        if len(trial.candidates) > 1:  # with one there is nothing to sketch
            self.same.append(_models(decision) == _models(self.rule.assign(self._by_sketches(trial))))
        return decision

    def _by_sketches(self, trial: BatchEvaluation) -> BatchEvaluation:
        seed, number = trial._seed
        return BatchEvaluation(
            trial.ensemble,
            trial.learner,
            trial.X,
            trial.y,
            n_candidates=trial.n_candidates,
            seed=seed,
            number=number,
            target_unit=trial._target_unit,
            is_thorough=False,
        )


def _models(decision: list[Assignment]) -> list[int | None]:
    return [assignment.model for assignment in decision]


def compared(data: Dataset, threshold: float) -> dict[str, Any]:
    rule = Watched(Wasserstein(threshold))
    models = {
        "thorough": WGPRegressor.published(splitting=rule, random_state=0),
        "quick": WGPRegressor.published(threshold=threshold, thorough=False, random_state=0),
    }
    result: dict[str, Any] = {}
    for name, model in models.items():
        model.fit(data.X, data.y)
        result[name] = scores(data.y_test, model.predict(data.X_test)).rmse
        result[f"bounds_{name}"] = float(np.mean([record.n_evaluations for record in model.history_]))
        result[f"models_{name}"] = model.n_models_
    return {"decisions": len(rule.same), "same": int(np.sum(rule.same)), **result}


def in_order(name: str, folder: str, order: int, n_rows: int) -> Dataset:
    """The data set's own test rows, or a fifth of all; trained in the file's order (0) or in a random one."""
    data = load(name, folder)
    if not len(data.y_test):
        data = data.split(order)
    rows = np.arange(len(data.y)) if order == 0 else np.random.default_rng(order).permutation(len(data.y))
    return data.rows(rows[:n_rows])


def table_of(results: list[dict[str, Any]]) -> Table:
    headings = (
        "stream",
        "threshold",
        "models",
        "decisions",
        "the same",
        "RMSE thorough",
        "quick",
        "quick over thorough",
    )
    table = Table(*headings, "bounds a batch")
    for name, threshold in dict.fromkeys((result["name"], result["threshold"]) for result in results):
        some = [result for result in results if (result["name"], result["threshold"]) == (name, threshold)]
        total = {key: sum(result[key] for result in some) for key in some[0] if key != "name"}
        table.add_row(
            name,
            f"{threshold:g}",
            f"{total['models_thorough'] / len(some):.0f}; {total['models_quick'] / len(some):.0f}",
            str(total["decisions"]),
            f"{100 * total['same'] / max(1, total['decisions']):.1f} %",
            f"{total['thorough'] / len(some):.4f}",
            f"{total['quick'] / len(some):.4f}",
            f"{total['quick'] / total['thorough']:.3f}",
            f"{total['bounds_thorough'] / len(some):.0f}; {total['bounds_quick'] / len(some):.0f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    require_data(parser, arguments.folder, STREAMS)
    results: list[dict[str, Any]] = []
    cases = [(name, each, order) for name in STREAMS for each in STREAMS[name] for order in range(arguments.orders)]
    for name, threshold, order in track(cases, "streams"):
        data = in_order(name, arguments.folder, order, arguments.rows)
        results.append({"name": name, "threshold": threshold, **compared(data, threshold)})
        if arguments.output is not None:
            with arguments.output.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
    Console(width=140).print(table_of(results))


if __name__ == "__main__":
    main()
