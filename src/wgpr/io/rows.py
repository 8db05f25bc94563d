"""Rows as a model takes them: with names and weights, forecast before they are learned. Answers as columns."""

from collections.abc import Sequence
from copy import copy
from statistics import NormalDist
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.estimators.methods import TerritoryMethod
from wgpr.estimators.regressors import WGPRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import for_model, settle
from wgpr.io.grids import framed, named, require_one_output
from wgpr.metrics import RunningScores

# Columns of an answer.
ANSWER = ("mean", "std", "lower", "upper", "model")

# Rows that are forecast together by a model that knows each row at once.
_LONGEST_BLOCK = 100

# Rows are off by a constant if their median error exceeds so many standard deviations of one row.
_LARGE_OFFSET = 2.0

# Rows of a stream at known places that are judged together: errors of fewer rows in a row have the same sign by chance.
N_JUDGED = 300


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


class Errors(NamedTuple):
    """Of rows that a model predicted at places where it knows the field better than one observation tells it.

    error : (n,); std : (n,) of an observation there; n_before : (n,) rows of the model before each.
    """

    error: Array
    std: Array
    n_before: Array

    @classmethod
    def at_known_places(cls, y: Array, mean: Array, observed: Array, field: Array, n_before: int) -> "Errors":
        """Of targets `y` (n,), with the predicted means and standard deviations of an observation and of the field.

        n_before : rows that the model had learned before the first.
        """
        is_known = 2.0 * field**2 <= observed**2
        return cls((y - mean)[is_known], observed[is_known], n_before + np.flatnonzero(is_known).astype(float))

    def followed_by(self, others: "Errors") -> "Errors":
        return Errors(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))

    def latest(self) -> "Errors":
        """Those that are judged together in a stream."""
        return Errors(*(values[-N_JUDGED:] for values in self))

    def offset(self, least: int) -> "Offset | None":
        """The constant by which these rows are off; None if it is small, or they are fewer than the least."""
        if len(self.error) < least:
            return None
        n_rows = int(self.n_before[len(self.error) // 2])
        offset = Offset(float(np.median(self.error)), float(np.median(self.std)), n_rows)
        return offset if abs(offset.amount) > _LARGE_OFFSET * offset.std else None


NO_ERRORS = Errors(np.empty(0), np.empty(0), np.empty(0))


class Offset(NamedTuple):
    """A constant by which rows differ from what the map says at known places; std : of one row.

    While rows are learned, the map comes to agree with them, so that the constant may be larger.

    n_rows : that the map had before the middle one of these rows. At least half of them are off. So if rows of two
    streams are judged together, the stream of the middle row is the one that is off.
    """

    amount: float
    std: float
    n_rows: int

    def told(self, target: str, least: str = "") -> str:
        amount = f"{least}{abs(self.amount):.3g} {'more' if self.amount > 0 else 'less'}"
        fault = f"{target} is {amount} than the map says where it knows the field"
        return f"{fault} (median; the standard deviation is {self.std:.2g})"


def errors_at_known_places(model: EnsembleRegressor, rows: Array) -> Errors:
    """Of rows (n, d + 1), predicted by what the model knows."""
    answers = model.predict_with_owners(named(model, rows[:, :-1]))[:3]
    mean, observed, field = (values.reshape(len(rows)) for values in answers)
    return Errors.at_known_places(rows[:, -1], mean, observed, field, n_seen(model))


class Forecasts:
    """Predicts each row before it is learned. scores : of these predictions.

    offset : the constant by which rows were off that came one after the other, the latest that was found.

    Rows until the next step of the model, or up to 100 rows if the model knows each row at once, form a block, which
    is forecast by the model as it was before the block. So the scores do not depend on how many rows come at once.
    """

    def __init__(self) -> None:
        self.scores = RunningScores()
        self.offset: Offset | None = None
        self._latest = NO_ERRORS
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
                self._forecast(self._forecaster, X, block[:, -1], n_seen(model))
            _learn(model, X, y, None if weights is None else weights[: len(block)])
            weights = None if weights is None else weights[len(block) :]
            self._n_left -= len(block)

    def _forecast(self, model: OnlineRegressor, X: Any, y: Array, n_before: int) -> None:
        require_one_output(model)
        mean, observed, field = (values.reshape(len(y)) for values in model.predict_with_owners(X)[:3])
        self.scores.add(y, mean, observed)
        errors = Errors.at_known_places(y, mean, observed, field, n_before)
        self._latest = self._latest.followed_by(errors).latest()
        self.offset = self._latest.offset(N_JUDGED) or self.offset


def _block_size(model: OnlineRegressor) -> int:
    if knows_rows_at_once(model):
        return max(1, min(n_seen(model), _LONGEST_BLOCK))
    return model.n_until_step_ if n_seen(model) and model.n_models_ else 1
