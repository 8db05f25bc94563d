"""Calibration: the factor with which 95 % of the errors of forecasts are in the 95 % interval."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wgpr import WGPRegressor
from wgpr.rules.calibration import EDGES, Calibration

WIDTH = 1.959964


def errors(n, scale, k=1, seed=0):
    """Errors in standard deviations, when the true ones are `scale` times the predicted ones."""
    return scale * np.random.default_rng(seed).normal(size=(n, k))


def test_too_few_errors_leave_the_factor_as_it_is():
    assert Calibration().factor == 1.0
    assert Calibration().updated(errors(199, 3.0)).factor == 1.0
    assert Calibration().updated(errors(200, 3.0)).factor > 2.0
    assert Calibration(initial_factor=1.7).updated(errors(100, 3.0)).factor == 1.7


@settings(max_examples=30)
@given(scale=st.floats(0.4, 4.0), seed=st.integers(0, 2**32 - 1))
def test_95_percent_are_inside(scale, seed):
    sizes = errors(2000, scale, seed=seed)
    factor = Calibration().updated(sizes).factor
    assert factor == pytest.approx(scale, rel=0.15)
    assert np.mean(np.abs(sizes) <= factor * WIDTH) == pytest.approx(0.95, abs=0.012)


def test_tails_count_and_not_only_the_spread():
    sizes = errors(5000, 1.0)
    sizes[:500] *= 10.0
    assert np.mean(np.abs(sizes) <= Calibration().updated(sizes).factor * WIDTH) == pytest.approx(0.95, abs=0.01)


def test_the_factor_has_limits():
    assert Calibration().updated(errors(500, 1e6)).factor == 5.0
    assert Calibration().updated(np.zeros((500, 1))).factor == 0.3
    assert Calibration().updated(np.full((500, 1), np.inf)).factor == 5.0


def test_all_outputs_count_alike():
    sizes = errors(400, 2.0, k=3)
    flat = Calibration().updated(sizes.reshape(-1, 1))
    np.testing.assert_array_equal(Calibration().updated(sizes).counts, flat.counts)


def test_old_errors_are_discounted():
    before = Calibration().updated(errors(20_000, 4.0))
    after = before.updated(errors(60_000, 1.0, seed=1))
    assert before.factor == pytest.approx(4.0, rel=0.1)
    assert after.factor == pytest.approx(1.0, rel=0.1)


def test_it_is_immutable_and_bounded():
    before = Calibration()
    after = before.updated(errors(300, 1.0))
    assert before.counts.sum() == 0.0
    assert len(after.counts) == len(EDGES) + 1


# In the estimator


@pytest.fixture(scope="module")
def calibrated():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (800, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2.5, size=800)
    return WGPRegressor().fit(X, y)


def test_the_factor_multiplies_standard_deviations(calibrated):
    factor = calibrated._state.calibration.factor
    assert factor != 1.0
    plain = calibrated._with_state(calibrated._state).set_params(calibrated=False)
    X = np.linspace(0.0, 10.0, 20)[:, None]
    for latent in (True, False):
        (mean, stretched), (plain_mean, std) = (
            each.predict(X, return_std=True, latent=latent) for each in (calibrated, plain)
        )
        np.testing.assert_array_equal(mean, plain_mean)
        np.testing.assert_allclose(stretched, factor * std, rtol=1e-12)
        _, covariance = calibrated.predict(X, return_cov=True, latent=latent)
        np.testing.assert_allclose(covariance.diagonal(), stretched**2, rtol=1e-9)


def test_95_percent_of_new_rows_are_inside(calibrated):
    rng = np.random.default_rng(1)
    X = rng.uniform(0.0, 10.0, (2000, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_t(2.5, size=2000)
    mean, std = calibrated.predict(X, return_std=True)
    assert 0.92 < np.mean(np.abs(y - mean) < 1.96 * std) < 0.98
