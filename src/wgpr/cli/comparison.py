"""A comparison: several methods learn the same survey, and are scored on held-out points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from wgpr.cli.console import format_count, progress_bar
from wgpr.estimators.base import OnlineRegressor
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.io.grids import predict_one_output
from wgpr.metrics import Scores, scores
from wgpr.survey import Survey

INTERPOLATION = "linear interpolation"
_ROWS_AT_A_TIME = 100


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method after the whole survey.

    model : None for interpolation; seconds : of learning; kilobytes : of what must be kept to predict.
    mean, std : (m,) predictions at the held-out points; std is None for interpolation.
    """

    method: str
    model: OnlineRegressor | None
    scores: Scores
    seconds: float
    kilobytes: float
    mean: Array
    std: Array | None


def compare_methods(survey: Survey, models: Mapping[str, OnlineRegressor]) -> tuple[MethodResult, ...]:
    """Stream the survey into each model and score it on the held-out points. Interpolation of 2 or 3 inputs is last."""
    with one_blas_thread():
        results = [_result(survey, name, model) for name, model in models.items()]
    return (*results, _interpolation_result(survey)) if survey.X.shape[1] in (2, 3) else tuple(results)


def _result(survey: Survey, name: str, model: OnlineRegressor) -> MethodResult:
    """Scores are of the field if the truth is known, else of observations."""
    seconds = _learn(survey, name, model)
    mean, std = predict_one_output(model, survey.named(survey.X_test), latent=survey.terrain is not None)
    kilobytes = len(model.to_bytes(compact=True)) / 1000
    return MethodResult(name, model, scores(survey.y_test, mean, std), seconds, kilobytes, mean, std)


def _learn(survey: Survey, name: str, model: OnlineRegressor) -> float:
    """Stream the survey into a model; returns the seconds that it took."""
    started, n_rows = perf_counter(), len(survey.y)
    with progress_bar(name, n_rows) as show:
        for first in range(0, n_rows, _ROWS_AT_A_TIME):
            model.partial_fit(*survey.rows(slice(first, first + _ROWS_AT_A_TIME)))
            show(first, format_count(model.n_models_, "model"))
        model.flush()
    return perf_counter() - started


def _interpolation_result(survey: Survey) -> MethodResult:
    started = perf_counter()
    interpolate = interpolator(survey.X, survey.y)
    seconds, mean = perf_counter() - started, interpolate(survey.X_test)
    kilobytes = 4 * (survey.X.size + survey.y.size) / 1000  # all samples in float32, as in a compact map
    return MethodResult(INTERPOLATION, None, scores(survey.y_test, mean), seconds, kilobytes, mean, None)


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
