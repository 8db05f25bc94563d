"""Priors of hyperparameters: their products, gradients and boxes, and that of a new model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wgpr.gp.hyperparameters import STD_OF_NEW, HyperPrior, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, RationalQuadratic, SquaredExponential

KERNEL, SCALES = SquaredExponential(), Scales(np.array([1.0, 2.0]), 1.5)
stds = st.floats(0.05, 5.0)


def theta_with(**changes):
    values = {"amplitude": 1.0, "lengthscales": np.ones(2), "noise": 0.1} | changes
    return Hyperparameters(**values)


def prior_of_one(mean, std):
    """A prior of one number, in a box without bounds."""
    return HyperPrior(np.array([mean]), np.array([std]), np.array([[-np.inf], [np.inf]]))


# Products


@given(st.floats(-3, 3), stds, st.floats(-3, 3), stds)
def test_combined_priors_are_the_product_of_their_densities(mean, std, other_mean, other_std):
    one, other = prior_of_one(mean, std), prior_of_one(other_mean, other_std)
    both = one.combined(other)
    at = np.linspace(-4, 4, 9)[:, None]

    def log_density(prior):
        return np.array([prior.log_density(x)[0] for x in at])

    product = log_density(one) + log_density(other)
    difference = product - log_density(both)  # a constant
    np.testing.assert_allclose(difference, difference[0], atol=1e-9 * np.abs(product).max())
    assert both.std < min(std, other_std)


@given(st.floats(-3, 3), stds, st.floats(-4, 4))
def test_the_gradient_of_the_log_density(mean, std, at):
    prior, step = prior_of_one(mean, std), 1e-4
    _, gradient = prior.log_density(np.array([at]))
    above, below = (prior.log_density(np.array([at + sign * step]))[0] for sign in (1, -1))
    assert gradient[0] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-6)


def test_the_narrower_of_two_priors_dominates():
    narrow, wide = prior_of_one(0.0, 0.01), prior_of_one(1.0, 1.0)
    assert narrow.combined(wide).mean == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose(wide.combined(narrow).mean, narrow.combined(wide).mean)


def test_a_combined_prior_keeps_the_box_of_the_first():
    other = Scales(10.0 * SCALES.inputs, 10.0 * SCALES.target)
    first, second = (HyperPrior.around(KERNEL, scales, theta_with(), 0.5) for scales in (SCALES, other))
    np.testing.assert_array_equal(first.combined(second).box, first.box)
    assert not np.array_equal(first.box, second.box)


def test_hyperparameters_outside_the_box_are_moved_to_its_bounds():
    prior = HyperPrior.of_new_model(KERNEL, SCALES)
    clipped = prior.clip(theta_with(amplitude=1e9, noise=1e-9))
    assert clipped.amplitude == pytest.approx(3.0 * SCALES.target)
    assert clipped.noise == pytest.approx(1e-3 * SCALES.target)
    np.testing.assert_allclose(clipped.lengthscales, 1.0)


# A new model


@pytest.mark.parametrize("kernel", [KERNEL, RationalQuadratic()], ids=repr)
def test_the_prior_of_a_new_model_has_default_values(kernel):
    prior = HyperPrior.of_new_model(kernel, SCALES)
    np.testing.assert_array_equal(prior.mean, default_hyperparameters(kernel, SCALES).to_log())
    np.testing.assert_array_equal(prior.std, np.full(len(prior.mean), STD_OF_NEW))


@pytest.mark.parametrize("kernel", [SquaredExponential(), RationalQuadratic()])
def test_default_values_have_the_units_of_the_data(kernel):
    theta, scaled = (default_hyperparameters(kernel, Scales(c * SCALES.inputs, 10.0 * c)) for c in (1.0, 7.0))
    assert scaled.amplitude == pytest.approx(7.0 * theta.amplitude)
    assert scaled.noise == pytest.approx(7.0 * theta.noise)
    np.testing.assert_allclose(scaled.lengthscales, 7.0 * theta.lengthscales)
