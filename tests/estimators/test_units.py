"""Figures that the method must show and that take seconds; those that take minutes are in benchmarks/."""

from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import root_mean_squared_error

from reproduction.datasets import DATASETS, load
from streams import published
from wgpr import (
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)
from wgpr.datasets import two_regimes
from wgpr.estimators.units import Units

STREAMING = [published, WGPRegressor, SolarGPRegressor, LocalGPRegressor, StreamingGPRegressor]
ALL = [*STREAMING, SparseGPRegressor]


def test_two_regimes_are_two_models():
    results = []
    for seed in range(3):
        X, y, _ = two_regimes(random_state=seed)
        model = WGPRegressor.published(threshold=3.0, random_state=0).fit(X, y)
        results.append((model.n_models_, root_mean_squared_error(y, model.predict(X))))
    counts, errors = zip(*results, strict=True)
    assert counts == (2, 2, 2)
    assert np.median(errors) <= 0.28


def test_one_model_cannot_hold_two_regimes():
    X, y, _ = two_regimes(random_state=0)
    assert root_mean_squared_error(y, StreamingGPRegressor(random_state=0).fit(X, y).predict(X)) > 0.3


def test_one_streamed_model_on_kin40k(data_folder):
    data = load("kin40k", data_folder)
    model = StreamingGPRegressor(random_state=0).fit(data.X[:5000], data.y[:5000])
    assert root_mean_squared_error(data.y_test[:5000], model.predict(data.X_test[:5000])) <= 0.52


def test_one_model_per_batch_on_kin40k(data_folder):
    data = load("kin40k", data_folder)
    model = WGPRegressor.published(splitting="always", random_state=0).fit(data.X[:3000], data.y[:3000])
    assert model.n_models_ == 30
    assert root_mean_squared_error(data.y_test[:5000], model.predict(data.X_test[:5000])) <= 0.78


@pytest.mark.parametrize(("name", "limit"), [("sarcos", 9.0), ("tzibana", 14.0)])
def test_one_streamed_model_on_a_recording(data_folder, name, limit):
    """The mean of five splits: rounding decides about a single split of one streamed model."""
    errors = []
    for seed in range(5):
        data = load(name, data_folder).split(seed)
        model = StreamingGPRegressor(random_state=0).fit(data.X, data.y)
        errors.append(root_mean_squared_error(data.y_test, model.predict(data.X_test)))
    assert np.mean(errors) <= limit


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize(
    ("regressor", "order"), [*((each, "natural") for each in STREAMING), (WGPRegressor, "shuffled")]
)
def test_every_method_is_sound_on_every_data_set(data_folder, regressor, name, order):
    """The first rows only; `benchmarks/robustness.py` takes all of them."""
    data = load(name, data_folder)
    data = data if order == "natural" else data.shuffled(0)
    X, y = data.X[:150], data.y[:150]
    model = regressor(random_state=0).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    means = np.concatenate([local.predict(local.inputs)[0] for local in model.models_])
    targets = model.units_.targets(y)
    assert means.max() <= targets.max() + 10 * np.ptp(targets)
    assert means.min() >= targets.min() - 10 * np.ptp(targets)


@cache
def _around_the_border(regressor):
    """Rows of both regimes, with a second input: X (400, 2), y (400,), and an estimator that has fitted them."""
    X, y, _ = two_regimes(random_state=0)
    X, y = np.column_stack([X, np.cos(0.7 * X[:, 0])])[1300:1700], y[1300:1700]
    settings = {"threshold": 3.0} if regressor is published else {}
    return X, y, regressor(random_state=0, **settings).fit(X, y)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
@pytest.mark.parametrize("regressor", ALL)
def test_units_do_not_change_the_ensemble(regressor, factor):
    X, y, model = _around_the_border(regressor)
    mean, std = model.predict(X, return_std=True)
    other = clone(model)
    if regressor is published:
        other.set_params(threshold=3e12)
    other.fit(factor * X, 1e6 * y + 1e6)
    other_mean, other_std = other.predict(factor * X, return_std=True)
    assert other.n_models_ == model.n_models_
    assert [record.changes for record in other.history_] == [record.changes for record in model.history_]
    np.testing.assert_allclose((other_mean - 1e6) / 1e6, mean, atol=1e-4 * y.std(), rtol=0)
    np.testing.assert_allclose(other_std / 1e6, std, atol=1e-4 * y.std(), rtol=0)


@pytest.mark.parametrize("regressor", ALL)
def test_hyperparameters_are_told_in_the_users_units(regressor):
    X, y, _ = two_regimes(random_state=0)
    model = regressor(random_state=0).fit(X[:300], y[:300])
    other = regressor(random_state=0).fit(1e3 * X[:300], 10 * y[:300] - 7)
    for theta, scaled in zip(model.hyperparameters_, other.hyperparameters_, strict=True):
        np.testing.assert_allclose(scaled.lengthscales, 1e3 * theta.lengthscales, rtol=1e-6)
        np.testing.assert_allclose(
            [scaled.amplitude, scaled.noise], [10 * theta.amplitude, 10 * theta.noise], rtol=1e-6
        )


def test_distances_and_evidences_are_told_in_the_users_units():
    X, y, _ = two_regimes(random_state=0)
    (_, one), (_, other) = (
        WGPRegressor.published(threshold=np.inf, random_state=0).fit(X[:200], unit * y[:200]).history_
        for unit in (1.0, 10.0)
    )
    np.testing.assert_allclose([*other.w_old, *other.w_new], 100 * np.array([*one.w_old, *one.w_new]))
    evidences = [np.array([*record.evidence, record.evidence_new]) for record in (one, other)]
    np.testing.assert_allclose(evidences[1], evidences[0] - 100 * np.log(10.0))


def test_a_number_for_several_outputs_has_no_unit():
    X, y = np.linspace(0.0, 1.0, 50)[:, None], 40.0 * np.sin(np.arange(50.0))[:, None]
    one, two = (Units.of(X, np.tile(y, n_outputs), is_isotropic=False) for n_outputs in (1, 2))
    assert one.target_unit == np.ravel(one.target_scale)[0] > 10.0
    assert two.target_unit == 1.0


@pytest.mark.parametrize("is_isotropic", [True, False])
def test_inputs_come_back_to_the_user(is_isotropic):
    X = np.random.default_rng(0).normal([5.0, -300.0], [1.0, 100.0], (50, 2))
    units = Units.of(X, X[:, 0], is_isotropic=is_isotropic)
    np.testing.assert_allclose(units.inputs_for_user(units.inputs(X)), X, rtol=1e-6)


def test_the_scale_of_nearly_constant_targets_is_that_of_the_others():
    y = np.zeros(50)
    y[::10] = 3e5
    units = Units.of(np.linspace(0.0, 1.0, 50)[:, None], y)
    assert units.target_scale == pytest.approx(3e5 * np.sqrt(0.1))
