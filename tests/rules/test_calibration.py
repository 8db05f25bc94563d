"""Calibration: the factor with which 95 % of known residuals are in the 95 % interval."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import BATCH, queries, small, travelling
from wgpr import WGPRegressor, load
from wgpr.rules.calibration import Calibration

WIDTH = 1.959964


def residuals(n, scale, noise=0.0, seed=0):
    """Errors of forecasts whose true deviation is `scale` times the predicted one; predicted variance and noise."""
    rng = np.random.default_rng(seed)
    variance = rng.uniform(0.5, 2.0, n)
    error = scale * np.sqrt(variance) * rng.normal(size=n) + noise * rng.normal(size=n)
    return error, variance, np.full(n, noise**2)


def share_inside(calibration, error, variance, noise):
    return np.mean(np.abs(error) <= WIDTH * np.sqrt(calibration.factor**2 * variance + noise) * (1 + 1e-12))


def test_too_few_rows_leave_the_factor_as_it_is():
    assert Calibration().factor == 1.0
    assert Calibration().updated(*residuals(199, 3.0)).factor == 1.0
    assert Calibration().updated(*residuals(200, 3.0)).factor > 2.0
    assert Calibration(initial_factor=1.7).updated(*residuals(199, 3.0)).factor == 1.7


@given(scale=st.floats(0.4, 4.0), seed=st.integers(0, 2**32 - 1))
def test_without_noise_the_factor_is_the_true_scale(scale, seed):
    rows = residuals(1000, scale, seed=seed)
    calibration = Calibration().updated(*rows)
    assert calibration.factor == pytest.approx(scale, rel=0.2)
    assert 0.95 <= share_inside(calibration, *rows) <= 0.952


@given(scale=st.floats(0.5, 4.0), noise=st.floats(0.0, 0.5), seed=st.integers(0, 2**32 - 1))
def test_95_percent_are_inside_with_any_noise(scale, noise, seed):
    rows = residuals(1000, scale, noise, seed)
    assert share_inside(Calibration().updated(*rows), *rows) >= 0.95


def test_errors_that_the_noise_explains_give_the_least_factor():
    _, variance, _ = residuals(500, 1.0)
    noise = np.full(500, 4.0)
    assert Calibration().updated(np.random.default_rng(0).normal(size=500), variance, noise).factor == 0.3


def test_the_factor_has_limits():
    assert Calibration().updated(*residuals(500, 1e6)).factor == 5.0
    assert Calibration().updated(*residuals(500, 1e-6)).factor == 0.3
    error, variance, noise = residuals(500, 1.0)
    assert Calibration().updated(error, 0.0 * variance, noise).factor == 5.0
    assert Calibration().updated(0.0 * error, 0.0 * variance, noise).factor == 0.3


def test_only_the_latest_rows_count():
    before = Calibration().updated(*residuals(2000, 4.0))
    assert before.factor == pytest.approx(4.0, rel=0.1)
    after = before.updated(*residuals(2000, 1.0, seed=1))
    assert len(after.residuals) == 2000
    assert after.factor == Calibration().updated(*residuals(2000, 1.0, seed=1)).factor
    assert len(before.residuals) == 2000  # it is immutable


def test_rows_one_by_one_are_rows_at_once():
    rows = residuals(300, 2.0)
    calibration = Calibration()
    for row in np.transpose(rows):
        calibration = calibration.updated(*row[:, None])
    np.testing.assert_array_equal(calibration.residuals, Calibration().updated(*rows).residuals)


# In the estimator


@pytest.fixture(scope="module")
def calibrated():
    return small(WGPRegressor, max_inducing=8).partial_fit(*travelling(300))


def test_every_row_but_those_of_the_first_batch_is_predicted_before_it_is_learned(calibrated):
    n_learned = calibrated.n_samples_seen_ - calibrated.n_pending_
    assert len(calibrated._state.calibration.residuals) == n_learned - BATCH


def test_the_factor_multiplies_the_field_and_not_the_noise(calibrated):
    factor = calibrated._state.calibration.factor
    assert factor != 1.0
    plain = calibrated._with_state(calibrated._state).set_params(calibrated=False)
    (mean, stretched), (plain_mean, std) = (
        e.predict(queries(), return_std=True, latent=True) for e in (calibrated, plain)
    )
    np.testing.assert_array_equal(mean, plain_mean)
    np.testing.assert_allclose(stretched, factor * std, rtol=1e-12)
    of_observation, plain_observation = (
        estimator.predict(queries(), return_std=True)[1] for estimator in (calibrated, plain)
    )
    np.testing.assert_allclose(of_observation**2 - stretched**2, plain_observation**2 - std**2, rtol=1e-6)
    _, covariance = calibrated.predict(queries(), return_cov=True)
    np.testing.assert_allclose(covariance.diagonal(), of_observation**2, rtol=1e-9)


def test_without_calibration_no_residuals_are_kept():
    estimator = small(WGPRegressor, calibrated=False).partial_fit(*travelling(100))
    assert len(estimator._state.calibration.residuals) == 0


def test_residuals_are_saved(calibrated, tmp_path):
    calibrated.save(tmp_path / "a.map")
    loaded = load(tmp_path / "a.map")
    np.testing.assert_array_equal(loaded._state.calibration.residuals, calibrated._state.calibration.residuals)
    assert loaded._state.calibration.factor == calibrated._state.calibration.factor


def test_a_compact_map_keeps_the_factor(calibrated, tmp_path):
    calibrated.save(tmp_path / "a.map", compact=True)
    loaded = load(tmp_path / "a.map")
    assert len(loaded._state.calibration.residuals) == 0
    assert loaded._state.calibration.factor == calibrated._state.calibration.factor
