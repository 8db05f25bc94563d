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
    X1, X2, G = pair
    theta = hyperparameters(kernel, d)
    pulled = KernelBlock(kernel, theta, X1, X2).pull_back(G.copy())
    by_theta = central_differences(
        lambda v: weighted_sum(G, kernel, at_log(v, theta), X1, X2), theta.to_log()[:-1], step=1e-4
    )
    np.testing.assert_allclose(pulled.log_hyperparameters(), by_theta, rtol=1e-6)
    by_X1 = central_differences(lambda X: weighted_sum(G, kernel, theta, X, X2), X1)
    by_X2 = central_differences(partial(weighted_sum, G, kernel, theta, X1), X2)
    assert relative_error(pulled.first_inputs(), by_X1) < 1e-8
    assert relative_error(pulled.second_inputs(), by_X2) < 1e-8


@every_kernel
@every_dimension
def test_a_gradient_by_inputs_that_are_on_both_sides(kernel, d, pair):
    X1, X2, G = pair
    G = np.concatenate([G, G[:, : len(X1)]], axis=1)[:, : len(X2) + len(X1)]
    others = np.concatenate([X2, X1])[: G.shape[1]]
    n_shared = G.shape[1] - len(X2)
    pulled = KernelBlock(kernel, hyperparameters(kernel, d), X1[:n_shared], others).pull_back(G[:n_shared].copy())
    expected = pulled.first_inputs() + pulled.second_inputs()[len(X2) :]
    np.testing.assert_allclose(pulled.shared_inputs(slice(len(X2), None)), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("d", [2])
def test_a_gradient_does_not_depend_on_the_origin(d, pair):
    """As in UTM coordinates, whose squares have more digits than fit."""
    X1, X2, G = pair
    kernel = SquaredExponential()
    theta = hyperparameters(kernel, d)
    expected = KernelBlock(kernel, theta, X1, X2).pull_back(G.copy()).log_hyperparameters()
    northing = 2.0**22
    actual = KernelBlock(kernel, theta, X1 + northing, X2 + northing).pull_back(G.copy()).log_hyperparameters()
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
