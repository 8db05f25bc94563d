"""Every method on every data set, in its own order and shuffled: is there any cell where it does not converge?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.jobs import Job
from reproduction.learning import learn
from reproduction.plan import Plan
from reproduction.protocol import everything
from reproduction.search import guess
from wgpr.estimators.base import OnlineRegressor
from wgpr.estimators.regressors import METHODS
from wgpr.gp.linalg import Array

STABILITY = "stability"
ORDERS = ("natural", "shuffled")
WHO = {"WGPR": "wgpr", "SOLAR": "solar", "OVFE": "streaming", "LGPR": "lgpr"}
_PLACES_AROUND = 2000


def jobs(plan: Plan, names: Sequence[str]) -> list[Job]:
    """All of them, with the settings that a new user has."""
    return [
        Job(STABILITY, {"data": name, "method": method, "order": order}, stream_through, cost=guess(name, method, plan))
        for name in names
        for method in WHO
        for order in ORDERS
    ]


def stream_through(data: str, method: str, order: str, folder: Path | None, plan: Plan) -> dict[str, Any]:
    """Learn everything, and look for the worst prediction: at the rows seen, and at random places in the box around.

    Returns
    -------
    is_finite : whether all means and standard deviations are; rmse : at the rows seen, over the targets' spread.
    worst, worst_around : the largest absolute prediction at the rows seen, and at the random places; from the middle of
        the data's range, in halves of that range: 1 is its end.
    dropped : updates that failed; the batch then started a model.
    """
    rows = everything(data, order == "shuffled", folder, plan)
    model = METHODS[WHO[method]](random_state=0)
    assert isinstance(model, OnlineRegressor)
    learned = learn(model, rows)
    mean, std = model.predict(rows.X, return_std=True)
    around, std_around = model.predict(_places_around(rows.X), return_std=True)
    return {
        **learned,
        "is_finite": bool(np.isfinite([*mean, *std, *around, *std_around]).all()),
        "rmse": float(np.sqrt(np.mean((mean - rows.y) ** 2)) / rows.y.std()),
        "worst": _worst(mean, rows.y),
        "worst_around": _worst(around, rows.y),
        "dropped": sum(len(record.dropped) for record in model.history_),
        "n_rows": len(rows.y),
    }


def _places_around(X: Array) -> Array:
    """Random places in the box around the inputs."""
    return np.random.default_rng(0).uniform(X.min(axis=0), X.max(axis=0), size=(_PLACES_AROUND, X.shape[1]))


def _worst(answers: Array, y: Array) -> float:
    middle, half = 0.5 * (y.min() + y.max()), 0.5 * np.ptp(y)
    return float(np.abs(answers - middle).max() / half)
