"""Rows as a model takes them: with names and weights, forecast before they are learned. Answers as columns."""

from collections.abc import Sequence
from copy import copy
from statistics import NormalDist
from typing import Any, cast

import pandas as pd
from numpy.typing import NDArray

from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.estimators.methods import TerritoryMethod
from wgpr.estimators.regressors import WGPRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import for_model, settle
from wgpr.io.grids import framed, named, predict_one_output, require_one_output
from wgpr.metrics import RunningScores

# Columns of an answer.
ANSWER = ("mean", "std", "lower", "upper", "model")

# Rows that are forecast together by a model that knows each row at once.
_LONGEST_BLOCK = 100


def knows_rows_at_once(model: EnsembleRegressor) -> bool:
    """Whether no row waits for a batch: the default method, which also has weights."""
    return isinstance(model._method(), TerritoryMethod)


def learn_rows(model: OnlineRegressor, rows: Array, weights: Array | None, columns: Sequence[str]) -> None:
    """Learn rows (n, d + 1) with weights (n,), if any."""
    _learn(model, *as_frames(model, rows, columns), weights)


def _learn(model: OnlineRegressor, X: Any, y: Any, weights: Array | None) -> None:
    if weights is None:
        model.partial_fit(X, y)
    else:
        cast(WGPRegressor, model).partial_fit(X, y, sample_weight=weights)


def as_frames(model: EnsembleRegressor, rows: Array, columns: Sequence[str]) -> tuple[Any, Any]:
    """Inputs and target of rows (n, d + 1) of the user, as the model takes them.

    columns : names that the model gets with its first rows, others may follow. Later rows have the names of the model.
    """
    known = settle(model, rows[:, :-1])
    X, y = for_model(model, rows[:, :-1]), rows[:, -1]
    if n_seen(model):
        return framed(model, X), y
    *inputs, target = columns[: rows.shape[1]]
    return pd.DataFrame(X, columns=inputs if known is None else known.model_names), pd.Series(y, name=target)


def n_seen(model: EnsembleRegressor) -> int:
    return model.n_samples_seen_ if hasattr(model, "_state") else 0


def answer(model: EnsembleRegressor, X: Array, half_width: float, *, latent: bool = False) -> list[NDArray[Any]]:
    """The columns of `ANSWER`, (n,) each, at `X` (n, d).

    half_width : of the interval from lower to upper, in standard deviations; latent : without the noise.
    """
    require_one_output(model)
    mean, observed, field, owners = (values.reshape(len(X)) for values in model.predict_with_owners(named(model, X)))
    std = field if latent else observed
    return [mean, std, mean - half_width * std, mean + half_width * std, owners]


def interval_half_width(level: float) -> float:
    """Half the width of the central interval with probability `level`, in standard deviations."""
    return -NormalDist().inv_cdf(0.5 - level / 2.0)  # the other tail would round to 1


class Forecasts:
    """Predicts each row before it is learned. scores : of these predictions.

    Rows until the next step of the model, or up to 100 rows if the model knows each row at once, form a block, which
    is forecast by the model as it was before the block. So the scores do not depend on how many rows come at once.
    """

    def __init__(self) -> None:
        self.scores = RunningScores()
        self._forecaster: OnlineRegressor | None = None
        self._n_left = 0  # rows until the end of the block

    def learn(self, model: OnlineRegressor, rows: Array, weights: Array | None, columns: Sequence[str]) -> None:
        """Predict and learn rows (n, d + 1) with weights (n,), if any."""
        while len(rows):
            if not self._n_left:
                self._forecaster = copy(model) if n_seen(model) else None
                self._n_left = _block_size(model)
            block, rows = rows[: self._n_left], rows[self._n_left :]
            X, y = as_frames(model, block, columns)
            if self._forecaster is not None:
                self.scores.add(y, *predict_one_output(self._forecaster, X))
            _learn(model, X, y, None if weights is None else weights[: len(block)])
            weights = None if weights is None else weights[len(block) :]
            self._n_left -= len(block)


def _block_size(model: OnlineRegressor) -> int:
    if knows_rows_at_once(model):
        return max(1, min(n_seen(model), _LONGEST_BLOCK))
    return model.n_until_step_ if n_seen(model) and model.n_models_ else 1
