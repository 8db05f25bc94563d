"""A comparison: several methods learn the same survey, and are scored on held-out points."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from wgpr.estimators.base import OnlineRegressor
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.io.grids import predict_one_output
from wgpr.metrics import Scores, scores
from wgpr.survey import Survey

_ROWS_AT_A_TIME = 100
# While a method learns, its error is computed this many times, on this many of the held-out points.
_N_ERRORS, _POINTS_OF_AN_ERROR = 4, 500
_ALL_POINTS = slice(None)


class LinearInterpolation:
    """Linear interpolation between samples, on triangles in two dimensions and on tetrahedra in three.

    The nearest sample answers beyond the outermost samples, for any other number of inputs, and on a straight track.
    """

    def __init__(self) -> None:
        self._X: list[Array] = []
        self._y: list[Array] = []

    def partial_fit(self, X: Any, y: Any) -> None:
        """Keep rows `X` (n, d), `y` (n,)."""
        self._X.append(np.asarray(X, dtype=float))
        self._y.append(np.asarray(y, dtype=float))

    def flush(self) -> None:
        """Triangulate all rows."""
        X, y = np.concatenate(self._X), np.concatenate(self._y)
        self._nearest = self._between = NearestNDInterpolator(X, y, rescale=True)
        if X.shape[1] in (2, 3):
            with suppress(QhullError):  # all samples are on one line
                triangles = LinearNDInterpolator(X, y, rescale=True)
                triangles(X[:1])  # the first query builds the search structure
                self._between = triangles

    def predict(self, X: Any) -> Array:
        """Values (n,) at places `X` (n, d)."""
        places = np.asarray(X, dtype=float)
        values = np.asarray(self._between(places), dtype=float)
        return np.where(np.isnan(values), self._nearest(places), values)

    @property
    def kilobytes(self) -> float:
        """Size of the samples in float32, as in a compact map."""
        return sum(array.size for array in (*self._X, *self._y)) * 4 / 1000


Model = OnlineRegressor | LinearInterpolation


class Status(NamedTuple):
    """The state of a method while it learns.

    n_models : None if the method has no local models; seconds : spent on learning.
    errors : (rows learned, RMSE) pairs so far, on some of the held-out points; empty for interpolation.
    """

    method: str
    n_done: int
    n_rows: int
    n_models: int | None
    seconds: float
    errors: tuple[tuple[int, float], ...] = ()

    @property
    def rows_per_second(self) -> float:
        return self.n_done / max(self.seconds, 1e-9)


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method after the whole survey.

    kilobytes : of what must be kept to predict; end : the last status.
    mean, std : (m,) predictions at the held-out points; std is None for interpolation.
    """

    name: str
    model: Model
    scores: Scores
    kilobytes: float
    end: Status
    mean: Array
    std: Array | None


def compare_methods(
    survey: Survey, models: Mapping[str, Model], *, progress: Callable[[Status], object] = lambda status: None
) -> tuple[MethodResult, ...]:
    """Stream the survey into each model, one after the other, and score it on the held-out points.

    progress : is called with each status.
    """
    with one_blas_thread():
        return tuple(_result(survey, name, model, progress) for name, model in models.items())


def _result(survey: Survey, name: str, model: Model, progress: Callable[[Status], object]) -> MethodResult:
    for status in _learn(survey, name, model):
        progress(status)
    kilobytes = len(model.to_bytes(compact=True)) / 1000 if isinstance(model, OnlineRegressor) else model.kilobytes
    mean, std = _predictions(survey, model)
    return MethodResult(name, model, scores(survey.y_test, mean, std), kilobytes, status, mean, std)


def _learn(survey: Survey, name: str, model: Model) -> Iterator[Status]:
    """Stream the survey into a model; only learning is timed."""
    seconds, n_rows, errors = 0.0, len(survey.y), []
    for first in range(0, n_rows, _ROWS_AT_A_TIME):
        X, y = survey.rows(slice(first, first + _ROWS_AT_A_TIME))
        started, n_done = perf_counter(), first + len(y)
        model.partial_fit(X, y)
        if n_done == n_rows:
            model.flush()
        seconds += perf_counter() - started
        n_models = model.n_models_ if isinstance(model, OnlineRegressor) else None
        if n_models is not None and (first == 0 or first * _N_ERRORS // n_rows < n_done * _N_ERRORS // n_rows):
            some = slice(None, None, max(1, len(survey.y_test) // _POINTS_OF_AN_ERROR))
            errors.append((n_done, scores(survey.y_test[some], *_predictions(survey, model, some)).rmse))
        yield Status(name, n_done, n_rows, n_models, seconds, tuple(errors))


def _predictions(survey: Survey, model: Model, part: slice = _ALL_POINTS) -> tuple[Array, Array | None]:
    """Means and standard deviations at held-out points: of the field if the truth is known, else of an observation."""
    X = survey.named(survey.X_test[part])
    if isinstance(model, OnlineRegressor):
        return predict_one_output(model, X, latent=survey.terrain is not None)
    mean: Any = model.predict(X)
    return mean, None
