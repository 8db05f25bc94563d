"""The two-regime toy: how many models, and how good, over all thresholds; and a picture of both methods."""

from collections.abc import Mapping
from functools import partial
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from reproduction.contestants import CONTESTANTS, Settings
from reproduction.jobs import Job
from reproduction.journal import Entry, Journal
from reproduction.learning import judge, learn
from reproduction.plan import TOY, Plan
from reproduction.protocol import prepare

PICTURE = "toy picture"
METHODS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "WGPR": ("threshold", (0.0, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, inf)),
    "SOLAR": ("w_gen", (0.0, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.8)),
}

# Settings that are as good as the best are those within this part of its error; of them, the fewest models win.
AS_GOOD = 1.02

# The toy of the picture.
_SEED = 0


def jobs(plan: Plan) -> list[Job]:
    """Every setting on every toy; then the picture."""
    return [
        *(
            Job(TOY, {"method": method, "value": value, "seed": seed}, try_value, cost=2.0)
            for method, (_, values) in METHODS.items()
            for value in values
            for seed in (*plan.toy_seeds, *plan.toy_search_seeds)
        ),
        *(
            Job(PICTURE, {"method": method}, draw, cost=2.0, given=partial(_given, method=method, plan=plan), round=1)
            for method in METHODS
        ),
    ]


def try_value(method: str, value: float, seed: int, folder: Path | None, plan: Plan) -> dict[str, Any]:
    """One fit, judged between its samples, with noise."""
    stream = prepare(TOY, seed, folder, plan).stream
    model = CONTESTANTS[method].make(_settings(method, value), stream.y, seed)
    learned = learn(model, stream)
    return {**learned, "test": judge(model, stream.X_test, stream.y_test)}


def draw(method: str, value: float, folder: Path | None, plan: Plan) -> dict[str, Any]:
    """The data, the prediction along the line, and which model answers where."""
    stream = prepare(TOY, _SEED, folder, plan).stream
    model = CONTESTANTS[method].make(_settings(method, value), stream.y, _SEED)
    learn(model, stream)
    x = np.linspace(stream.X.min(), stream.X.max(), 600)
    mean, std = model.predict(x[:, None], return_std=True)
    some = slice(None, None, 3)
    curves = {"x": x, "mean": mean, "std": std, "model": model.model_index(x[:, None])}
    rounded = {name: np.round(values, 4).tolist() for name, values in curves.items()}
    data = {"X": np.round(stream.X[some, 0], 3).tolist(), "y": np.round(stream.y[some], 4).tolist()}
    return {"value": value, "n_models": model.n_models_, **rounded, **data}


def _settings(method: str, value: float) -> Settings:
    return {"kernel": "se", METHODS[method][0]: value}


def _given(journal: Journal, method: str, plan: Plan) -> dict[str, Any]:
    return {"value": chosen_value(journal, method, plan)}


def with_chosen_value(journal: Journal, method: str, plan: Plan) -> list[Entry]:
    """The results on the toys that count, with the setting that was chosen on the others."""
    return of_value(journal, method, chosen_value(journal, method, plan), plan.toy_seeds)


def chosen_value(journal: Journal, method: str, plan: Plan, *, finite: bool = False) -> float:
    """Of the settings that are as good as the best on the toys for the search, the one with the fewest models.

    finite : neither 0 nor infinite.
    """
    values = [value for value in METHODS[method][1] if not finite or 0.0 < value < inf]
    tried = {value: of_value(journal, method, value, plan.toy_search_seeds) for value in values}
    errors = {value: mean(entry["test"]["rmse"] for entry in entries) for value, entries in tried.items()}
    good = [value for value in tried if errors[value] <= AS_GOOD * min(errors.values())]
    return min(good, key=lambda value: (mean(entry["n_models"] for entry in tried[value]), errors[value]))


def of_value(journal: Journal, method: str, value: float, seeds: tuple[int, ...]) -> list[Entry]:
    """The results of one setting on these toys."""
    return [entry for entry in journal.of(TOY, method=method, value=value) if entry["seed"] in seeds]
