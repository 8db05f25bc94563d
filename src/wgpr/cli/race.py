"""A race: the same stream for everybody, timed, and scored on what was held out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from wgpr.ensemble.evaluation import ALL_ROWS
from wgpr.estimators.base import OnlineRegressor
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.metrics import Scores, scores
from wgpr.survey import Survey

# Rows that are given at a time, and held-out points that the error on the way is taken from.
_ROWS_AT_A_TIME = 100
_POINTS_FOR_A_GLANCE = 500

# How often the error is taken on the way: every time, all that was learned is asked.
_GLANCES = 4


class LinearInterpolation:
    """Keeps every sample and joins neighbours by triangles; beyond the outermost ones, the nearest sample answers.

    With more than three inputs there would be too many triangles, and the nearest sample answers everywhere.
    """

    def __init__(self) -> None:
        self._X: list[Array] = []
        self._y: list[Array] = []

    def partial_fit(self, X: Any, y: Any) -> None:
        """Keep rows `X` (n, d), `y` (n,)."""
        self._X.append(np.asarray(X, dtype=float))
        self._y.append(np.asarray(y, dtype=float))

    def flush(self) -> None:
        """Join what has been kept."""
        X, y = np.concatenate(self._X), np.concatenate(self._y)
        self._nearest = NearestNDInterpolator(X, y, rescale=True)
        self._between = self._nearest
        if X.shape[1] in (2, 3):
            with suppress(QhullError):  # all samples are on one line
                triangles = LinearNDInterpolator(X, y, rescale=True)
                triangles(X[:1])  # the first question makes it ready for the others
                self._between = triangles

    def at(self, X: Any) -> Array:
        """Values (n,) at places `X` (n, d)."""
        X = np.asarray(X, dtype=float)
        values = np.asarray(self._between(X), dtype=float)
        return np.where(np.isnan(values), self._nearest(X), values)

    @property
    def kilobytes(self) -> float:
        """Of the samples in float32, as in a compact map."""
        return sum(array.size for array in (*self._X, *self._y)) * 4 / 1000


Contestant = OnlineRegressor | LinearInterpolation


class Moment(NamedTuple):
    """How far a contestant has come.

    n_models, rmse : None if it has no models. The error is that on some of the held-out points.
    seconds : spent on learning.
    """

    name: str
    n_done: int
    n_rows: int
    n_models: int | None
    rmse: float | None
    seconds: float

    @property
    def rows_per_second(self) -> float:
        return self.n_done / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float:
        return (self.n_rows - self.n_done) / self.rows_per_second


@dataclass(frozen=True, eq=False)
class Result:
    """What became of a contestant. kilobytes : of what it must keep; moments : of its learning, the last at its end.

    answers : means and standard deviations at the held-out points.
    """

    name: str
    model: Contestant
    scores: Scores
    kilobytes: float
    moments: tuple[Moment, ...]
    answers: tuple[Array, Array | None]

    @property
    def end(self) -> Moment:
        return self.moments[-1]


def race(
    survey: Survey,
    contestants: Mapping[str, Contestant],
    *,
    size_of: Callable[[OnlineRegressor], float],
    progress: Callable[[Moment], None] = lambda moment: None,
) -> tuple[Result, ...]:
    """Stream the survey into each contestant, one after the other, and score it on what was held out.

    Parameters
    ----------
    size_of : kilobytes of a learned map.
    progress : is told of every moment of the learning.
    """
    with one_blas_thread():
        return tuple(_run(survey, name, model, size_of, progress) for name, model in contestants.items())


def _run(
    survey: Survey,
    name: str,
    model: Contestant,
    size_of: Callable[[OnlineRegressor], float],
    progress: Callable[[Moment], None],
) -> Result:
    moments = []
    for moment in _learning(survey, name, model):
        progress(moment)
        moments.append(moment)
    kilobytes = size_of(model) if isinstance(model, OnlineRegressor) else model.kilobytes
    told = answers(survey, model)
    return Result(name, model, scores(survey.y_test, *told), kilobytes, tuple(moments), told)


def _learning(survey: Survey, name: str, model: Contestant) -> Iterator[Moment]:
    """Stream the survey into a contestant; only its learning is timed. Between glances the error is the last one."""
    seconds, n_rows, error = 0.0, len(survey.y), None
    for first in range(0, n_rows, _ROWS_AT_A_TIME):
        X, y = survey.rows(slice(first, first + _ROWS_AT_A_TIME))
        started = perf_counter()
        model.partial_fit(X, y)
        if first + len(y) == n_rows:
            model.flush()
        seconds += perf_counter() - started
        n_done = first + len(y)
        n_models = model.n_models_ if isinstance(model, OnlineRegressor) else None
        if error is None or n_done == n_rows or first * _GLANCES // n_rows < n_done * _GLANCES // n_rows:
            error = _glance(survey, model)
        yield Moment(name, n_done, n_rows, n_models, error, seconds)


def _glance(survey: Survey, model: Contestant) -> float | None:
    """Error on some of the held-out points; none of interpolation, which would take long."""
    if not isinstance(model, OnlineRegressor):
        return None
    some = slice(None, None, max(1, len(survey.y_test) // _POINTS_FOR_A_GLANCE))
    return scores(survey.y_test[some], *answers(survey, model, some)).rmse


def answers(survey: Survey, model: Contestant, part: slice = ALL_ROWS) -> tuple[Array, Array | None]:
    """Means and standard deviations at the held-out points, or a part of them.

    The deviation is that of the field where the truth is known, and else of an observation.
    """
    X = survey.named(survey.X_test[part])
    if isinstance(model, LinearInterpolation):
        return model.at(X), None
    mean, std = model.predict(X, return_std=True, latent=survey.terrain is not None)
    return mean, std
