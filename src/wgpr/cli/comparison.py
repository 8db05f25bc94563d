"""A comparison: several methods learn the same survey, and are scored on held-out points."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from wgpr.estimators.base import OnlineRegressor
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.io.grids import predict_one_output
from wgpr.metrics import Scores, scores
from wgpr.survey import Survey

INTERPOLATION = "linear interpolation"
_ROWS_AT_A_TIME = 100
# While a method learns, its error is computed this many times, on this many of the held-out points.
_N_ERRORS, _POINTS_OF_AN_ERROR = 4, 500


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

    model : None for interpolation; kilobytes : of what must be kept to predict; end : the last status.
    mean, std : (m,) predictions at the held-out points; std is None for interpolation.
    """

    model: OnlineRegressor | None
    scores: Scores
    kilobytes: float
    end: Status
    mean: Array
    std: Array | None


def compare_methods(
    survey: Survey, models: Mapping[str, OnlineRegressor], *, progress: Callable[[Status], object] = lambda status: None
) -> tuple[MethodResult, ...]:
    """Stream the survey into each model and score it on the held-out points; last comes interpolation in 2-D and 3-D.

    progress : is called with each status.
    """
    with one_blas_thread():
        results = [_result(survey, name, model, progress) for name, model in models.items()]
    if survey.X.shape[1] in (2, 3):
        results.append(_interpolation_result(survey))
        progress(results[-1].end)
    return tuple(results)


def _result(survey: Survey, name: str, model: OnlineRegressor, progress: Callable[[Status], object]) -> MethodResult:
    for status in _learn(survey, name, model):
        progress(status)
    mean, std = _predictions(survey, model, slice(None))
    kilobytes = len(model.to_bytes(compact=True)) / 1000
    return MethodResult(model, scores(survey.y_test, mean, std), kilobytes, status, mean, std)


def _learn(survey: Survey, name: str, model: OnlineRegressor) -> Iterator[Status]:
    """Stream the survey into a model; only learning is timed."""
    seconds, n_rows, errors = 0.0, len(survey.y), []
    some = slice(None, None, max(1, len(survey.y_test) // _POINTS_OF_AN_ERROR))
    for first in range(0, n_rows, _ROWS_AT_A_TIME):
        X, y = survey.rows(slice(first, first + _ROWS_AT_A_TIME))
        started, n_done = perf_counter(), first + len(y)
        model.partial_fit(X, y)
        if n_done == n_rows:
            model.flush()
        seconds += perf_counter() - started
        if first == 0 or first * _N_ERRORS // n_rows < n_done * _N_ERRORS // n_rows:
            errors.append((n_done, scores(survey.y_test[some], *_predictions(survey, model, some)).rmse))
        yield Status(name, n_done, n_rows, model.n_models_, seconds, tuple(errors))


def _predictions(survey: Survey, model: OnlineRegressor, part: slice) -> tuple[Array, Array]:
    """Means and standard deviations at held-out points: of the field if the truth is known, else of an observation."""
    return predict_one_output(model, survey.named(survey.X_test[part]), latent=survey.terrain is not None)


def _interpolation_result(survey: Survey) -> MethodResult:
    started, n_rows = perf_counter(), len(survey.y)
    interpolate = interpolator(survey.X, survey.y)
    end = Status(INTERPOLATION, n_rows, n_rows, None, perf_counter() - started)
    mean = interpolate(survey.X_test)
    kilobytes = 4 * (survey.X.size + survey.y.size) / 1000  # all samples in float32, as in a compact map
    return MethodResult(None, scores(survey.y_test, mean), kilobytes, end, mean, None)


def interpolator(X: Array, y: Array) -> Callable[[Array], Array]:
    """Linear interpolation between rows `X` (n, d), `y` (n,), with d of 2 or 3: a function of places (m, d).

    The nearest row answers beyond the outermost rows, and everywhere if all rows are on one line.
    """
    nearest = NearestNDInterpolator(X, y, rescale=True)
    try:
        triangles = LinearNDInterpolator(X, y, rescale=True)
    except QhullError:
        return nearest
    triangles(X[:1])  # the first query builds the search structure

    def interpolate(places: Array) -> Array:
        values = triangles(places)
        return np.where(np.isnan(values), nearest(places), values)

    return interpolate
