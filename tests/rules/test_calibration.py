"""Calibration: the factor with which 95 % of known errors are in the 95 % interval."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import queries, travelling
from wgpr import WGPRegressor
from wgpr.rules.calibration import Calibration

WIDTH = 1.959964


def errors(n, scale, seed=0):
    """Whitened errors (n, 1) of forecasts whose true deviation is `scale` times the predicted one."""
    return scale * np.random.default_rng(seed).normal(size=(n, 1))


def test_too_few_rows_leave_the_factor_as_it_is():
    assert Calibration().factor == 1.0
    assert Calibration().updated(errors(199, 3.0)).factor == 1.0
    assert Calibration().updated(errors(210, 3.0)).factor > 2.0
    assert Calibration(initial_factor=1.7).updated(errors(199, 3.0)).factor == 1.7


@given(scale=st.floats(0.4, 4.0), seed=st.integers(0, 2**32 - 1))
def test_95_percent_of_the_errors_are_inside_but_for_the_width_of_a_bin(scale, seed):
    rows = errors(2000, scale, seed)
    factor = Calibration().updated(rows).factor
    assert factor == pytest.approx(scale, rel=0.15)
    assert np.mean(np.abs(rows) <= 1.1 * WIDTH * factor) >= 0.95
    assert np.mean(np.abs(rows) <= WIDTH * factor / 1.1) <= 0.95


def test_the_factor_has_limits():
    assert Calibration().updated(errors(500, 1e6)).factor == 5.0
    assert Calibration().updated(errors(500, 1e-6)).factor == 0.3
    assert Calibration().updated(np.zeros((500, 1))).factor == 0.3


def test_old_errors_are_discounted():
    before = Calibration().updated(errors(10_000, 4.0))
    assert before.factor == pytest.approx(4.0, rel=0.1)
    after = before.updated(errors(100_000, 1.0, seed=1))
    assert after.factor == pytest.approx(1.0, rel=0.1)
    assert before.factor == pytest.approx(4.0, rel=0.1)  # it is immutable


def test_all_outputs_count_alike():
    rows = errors(600, 2.0)
    np.testing.assert_array_equal(
        Calibration().updated(rows.reshape(200, 3)).counts, Calibration().updated(rows).counts
    )


# In the estimator


@pytest.fixture(scope="module")
def calibrated():
    return WGPRegressor().partial_fit(*travelling(400))


def test_the_factor_multiplies_all_standard_deviations(calibrated):
    factor = calibrated._state.calibration.factor
    assert factor != 1.0
    plain = calibrated._with_state(calibrated._state).set_params(calibrated=False)
    for latent in (False, True):
        (mean, stretched), (plain_mean, std) = (
            each.predict(queries(), return_std=True, latent=latent) for each in (calibrated, plain)
        )
        np.testing.assert_array_equal(mean, plain_mean)
        np.testing.assert_allclose(stretched, factor * std, rtol=1e-12)
    _, covariance = calibrated.predict(queries(), return_cov=True)
    _, of_observation = calibrated.predict(queries(), return_std=True)
    np.testing.assert_allclose(covariance.diagonal(), of_observation**2, rtol=1e-9)


def test_without_calibration_learning_is_the_same(calibrated):
    plain = WGPRegressor(calibrated=False).partial_fit(*travelling(400))
    np.testing.assert_array_equal(plain.predict(queries()), calibrated.predict(queries()))
