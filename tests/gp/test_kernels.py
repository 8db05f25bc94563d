"""Kernels against scikit-learn's, their gradients against central differences."""

from functools import partial

import numpy as np
import pytest

from reference import (
    ALL_KERNELS,
    central_differences,
    hyperparameters,
    relative_error,
    separated_points,
    sklearn_kernel,
)
from wgpr.gp.kernels import (
    KERNELS,
    Hyperparameters,
    KernelBlock,
    Matern32,
    RationalQuadratic,
    SquaredExponential,
    WeightedTrace,
    as_kernel,
)

every_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
every_dimension = pytest.mark.parametrize("d", [1, 2, 8, 21])


def weighted_sum(G, kernel, theta, X1, X2):
    return float((G * kernel(theta, X1, X2)).sum())


def at_log(log_theta, theta):
    """Hyperparameters whose logarithms, all but the noise's, are given."""
    return Hyperparameters.from_log(np.append(log_theta, np.log(theta.noise)), len(theta.lengthscales))


@pytest.fixture
def pair(d):
    """Two sets of points that have two in common, and the gradient of a scalar by their covariance."""
    rng = np.random.default_rng(d)
    X1, X2 = separated_points(7, d, rng), separated_points(11, d, rng)
    X2[:2] = X1[:2]
    return X1, X2, rng.normal(size=(7, 11))


@every_kernel
@every_dimension
def test_values_are_those_of_scikit_learn(kernel, d, pair):
    X1, X2, _ = pair
    theta = hyperparameters(kernel, d)
    expected = sklearn_kernel(kernel, theta)(X1 / theta.lengthscales, X2 / theta.lengthscales)
    np.testing.assert_allclose(kernel(theta, X1, X2), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel(theta, X1, X1).diagonal(), kernel.variance(theta), rtol=1e-15)


@every_kernel
@every_dimension
def test_a_gradient_is_pulled_back_to_hyperparameters_and_inputs(kernel, d, pair):
    """The first inputs are among the second ones too, as pseudo-inputs are."""
    X1, X2, G = pair
    G = np.concatenate([G, G[:, : len(X1)]], axis=1)
    theta = hyperparameters(kernel, d)

    def total(theta, X):
        return weighted_sum(G, kernel, theta, X, np.concatenate([X2, X]))

    block = KernelBlock(kernel, theta, X1, np.concatenate([X2, X1]))
    expected_sums = (G * block.K).sum(axis=0)
    by_log_theta, by_X1, column_sums = block.pull_back(G.copy(), slice(len(X2), None))
    expected = central_differences(lambda v: total(at_log(v, theta), X1), theta.to_log()[:-1], step=1e-4)
    np.testing.assert_allclose(by_log_theta, expected, rtol=1e-6)
    assert relative_error(by_X1, central_differences(partial(total, theta), X1)) < 1e-8
    np.testing.assert_allclose(column_sums, expected_sums, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("d", [2])
def test_a_gradient_does_not_depend_on_the_origin(d, pair):
    """As in UTM coordinates, whose squares have more digits than fit."""
    X1, X2, G = pair
    kernel = SquaredExponential()
    theta = hyperparameters(kernel, d)
    shared = slice(len(X1))
    expected, *_ = KernelBlock(kernel, theta, X1, X2).pull_back(G.copy(), shared)
    northing = 2.0**22
    actual, *_ = KernelBlock(kernel, theta, X1 + northing, X2 + northing).pull_back(G.copy(), shared)
    assert relative_error(actual, expected) < 1e-6


@every_kernel
@every_dimension
def test_a_weighted_trace_is_the_trace_of_the_dense_matrix(kernel, d, pair):
    X, _, G = pair
    C, theta = G @ G.T, hyperparameters(kernel, d)
    value, gradient = WeightedTrace(kernel, X, C).value_and_gradient(theta)
    assert value == pytest.approx(np.trace(C @ kernel(theta, X, X)), rel=1e-12)
    by_theta = central_differences(lambda v: np.trace(C @ kernel(at_log(v, theta), X, X)), theta.to_log()[:-1])
    np.testing.assert_allclose(gradient, by_theta, rtol=1e-6)


def test_a_weighted_trace_of_nothing_is_zero():
    value, gradient = WeightedTrace(Matern32(), np.empty((0, 3)), np.empty((0, 0))).value_and_gradient(
        hyperparameters(Matern32(), 3)
    )
    assert value == 0
    np.testing.assert_array_equal(gradient, np.zeros(4))


@every_kernel
def test_hyperparameters_survive_their_logarithm(kernel):
    theta = hyperparameters(kernel, 3)
    log_theta = theta.to_log()
    assert len(log_theta) == 5 + kernel.n_shape
    np.testing.assert_allclose(Hyperparameters.from_log(log_theta, 3).to_log(), log_theta, rtol=1e-14)
    np.testing.assert_allclose(Hyperparameters.from_log(log_theta, 3).shape, theta.shape, rtol=1e-14)


@pytest.mark.parametrize(("name", "family"), KERNELS.items())
def test_a_kernel_can_be_given_by_name(name, family):
    assert as_kernel(name) == family()
    assert hash(as_kernel(name)) == hash(family())


def test_a_kernel_object_is_used_as_it_is():
    kernel = RationalQuadratic(2.5)
    assert as_kernel(kernel) is kernel
    assert kernel != RationalQuadratic(2.0)
    assert repr(kernel) == "RationalQuadratic(alpha=2.5)"


@pytest.mark.parametrize("wrong", ["rbf", None, Matern32])
def test_an_unknown_kernel_is_refused_with_the_names_that_are_known(wrong):
    with pytest.raises(ValueError, match="'se', 'matern32', 'matern52', 'rq'"):
        as_kernel(wrong)


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf, np.nan])
def test_a_rational_quadratic_needs_a_positive_alpha(alpha):
    with pytest.raises(ValueError, match="alpha must be positive"):
        RationalQuadratic(alpha)
