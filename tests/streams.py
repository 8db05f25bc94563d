"""Small synthetic streams, the estimators that every contract is checked on, and what it means to be the same."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache

import numpy as np
import pandas as pd
import pytest

from wgpr import (
    Hyperparameters,
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    SquaredExponential,
    StreamingGPRegressor,
    WGPRegressor,
)
from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.exact import ExactLearner
from wgpr.gp.gaussian import Gaussian
from wgpr.io import container


def published(**settings):
    """`WGPRegressor` as its paper has it; the class itself stands for its defaults."""
    return WGPRegressor.published(**settings)


BATCH = 20
_SPARSE = {"n_inducing": 10, "optimizer_iterations": 5, "random_state": 0}
_ONLINE = {
    published: {"threshold": 1.0, "batch_size": BATCH, **_SPARSE},
    SolarGPRegressor: {"w_gen": 0.2, "batch_size": BATCH, **_SPARSE},
    LocalGPRegressor: {
        "n_calibration": 2 * BATCH,
        "max_samples": 15,
        "batch_size": BATCH,
        "optimizer_iterations": 5,
        "random_state": 0,
    },
    StreamingGPRegressor: {"batch_size": BATCH, **_SPARSE},
    WGPRegressor: {"random_state": 0},
}
_SETTINGS = {**_ONLINE, SparseGPRegressor: _SPARSE}

ONLINE, ALL = list(_ONLINE), list(_SETTINGS)
IN_BATCHES = [regressor for regressor in ONLINE if regressor is not WGPRegressor]


def small(regressor, **settings):
    """An estimator of this class (or `published`) that learns in milliseconds.

    Its threshold is left out with a splitting rule that has none.
    """
    has_threshold = settings.get("splitting", "wasserstein") == "wasserstein"
    defaults = {name: value for name, value in _SETTINGS[regressor].items() if has_threshold or name != "threshold"}
    return regressor(**defaults | settings)


def _name(regressor):
    return regressor.__name__


every_estimator = pytest.mark.parametrize("regressor", ALL, ids=_name)
every_online_estimator = pytest.mark.parametrize("regressor", ONLINE, ids=_name)
every_estimator_in_batches = pytest.mark.parametrize("regressor", IN_BATCHES, ids=_name)


def travelling(n=110, n_features=2, seed=0):
    """A stream whose first input travels from 0 to 10 while the field turns from smooth to rough: (n, d) and (n,).

    The default is no whole number of batches, so that some rows have to wait.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 3.0, (n, n_features))
    X[:, 0] = np.linspace(0.0, 10.0, n)
    x = X[:, 0]
    field = np.where(x < 5.0, np.sin(x), 3.0 * np.sin(4.0 * x)) + 0.3 * X[:, -1]
    return X, field + 0.1 * rng.normal(size=n)


def queries(n=25, n_features=2, seed=1):
    """Places (n, d) in and somewhat around the ground of `travelling`."""
    return np.random.default_rng(seed).uniform(-1.0, 11.0, (n, n_features))


def fitted(regressor, n_rows=None):
    """A small estimator that has fitted the first rows of `travelling()`; a copy, and quicker than learning again."""
    return pickle.loads(_learned(regressor, "fit", n_rows))


def streamed(regressor, n_rows=None):
    """The same, by `partial_fit`."""
    return pickle.loads(_learned(regressor, "partial_fit", n_rows))


@cache
def _learned(regressor, method, n_rows):
    X, y = travelling()
    return pickle.dumps(getattr(small(regressor), method)(X[:n_rows], y[:n_rows]))


def scattered_ensemble(n_models=6, n_features=2, seed=0):
    """Exact models that differ in everything that a prediction rule looks at."""
    rng = np.random.default_rng(seed)
    ensemble = Ensemble.of([], n_features)
    for _ in range(n_models):
        theta = Hyperparameters(rng.uniform(0.5, 2.0), rng.uniform(0.5, 3.0, n_features), rng.uniform(0.05, 0.5))
        X = rng.uniform(0.0, 10.0, n_features) + rng.normal(size=(8, n_features))
        learner = ExactLearner(SquaredExponential(), theta, rng.normal(), max_samples=5)
        ensemble = ensemble.with_model(learner.start(X, rng.normal(size=8), rng))
    return ensemble


@dataclass(frozen=True, eq=False)
class Oracle:
    """A local model on a line that gives the same answer everywhere; its only input is at `place`."""

    mean: float
    variance: float
    place: float
    noise: float = 0.1

    kernel = SquaredExponential()
    n_seen = 1
    log_evidence = 0.0

    @property
    def inputs(self):
        return np.array([[self.place]])

    @property
    def centre(self):
        return np.array([self.place])

    @property
    def theta(self):
        return Hyperparameters(1.0, np.ones(1), self.noise)

    def predict(self, X):
        return np.full(len(X), self.mean), np.full(len(X), self.variance)

    def posterior(self, X):
        return Gaussian(np.full(len(X), self.mean), np.full((len(X), len(X)), self.variance))


def answer_of(model, units, X):
    """Mean and variance (n,) of the field at `X` (n, d) by one local model, in the user's units."""
    mean, variance = model.predict(units.inputs(X))
    return units.target_offset + units.target_scale * mean, units.target_scale**2 * variance


def numbers_in(value, path=""):
    """Every number of nested dataclasses and sequences, by its path: two values are the same if all of them are.

    But for `n_evaluations`, which is no knowledge, and which a model forgets when it is saved.
    """
    if is_dataclass(value):
        parts = [(each.name, getattr(value, each.name)) for each in fields(value) if each.name != "n_evaluations"]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts = enumerate(value)
    else:
        return {path: value} if isinstance(value, int | float | np.ndarray) else {}
    return {name: number for key, part in parts for name, number in numbers_in(part, f"{path}.{key}").items()}


def assert_same_models(models, others):
    """Bit by bit."""
    numbers, expected = numbers_in(tuple(models)), numbers_in(tuple(others))
    assert numbers.keys() == expected.keys(), "other models"
    different = [path for path in numbers if not np.array_equal(numbers[path], expected[path])]
    assert not different, f"these differ: {different}"


def assert_same_learning(estimator, other):
    """They have seen the same, and learned the same of it."""
    assert estimator.n_samples_seen_ == other.n_samples_seen_
    assert estimator.n_pending_ == other.n_pending_
    assert [record.changes for record in estimator.history_] == [record.changes for record in other.history_]
    assert_same_models(estimator.models_, other.models_)
    for answer, expected in zip(_answers(estimator), _answers(other), strict=True):
        np.testing.assert_array_equal(answer, expected)


def _answers(estimator):
    """Mean and standard deviation at `queries()`, with the names of the features if there are any."""
    X, names = queries(n_features=estimator.n_features_in_), getattr(estimator, "feature_names_in_", None)
    return estimator.predict(X if names is None else pd.DataFrame(X, columns=names), return_std=True)


def assert_same_map_files(data, other):
    """Two map files hold the same bits, but for the durations of steps."""
    first, second = container.decode(data), container.decode(other)
    assert first.header == second.header
    assert first.arrays.keys() == second.arrays.keys()
    different = [name for name in first.arrays if first.arrays[name].tobytes() != second.arrays[name].tobytes()]
    assert set(different) <= {"step_seconds"}, f"these differ: {different}"
