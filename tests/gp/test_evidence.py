"""Log evidence of pseudo-data and rows: value and gradient."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import dense_reference as dense
from reference import ALL_KERNELS, SklearnGP
from wgpr.gp.evidence import Evidence
from wgpr.gp.kernels import Hyperparameters, SquaredExponential


def problem(kernel, d, k, n=25, seed=0):
    rng = np.random.default_rng(seed)
    theta = Hyperparameters(1.3, rng.uniform(0.5, 2.0, d) * np.sqrt(d), 0.4, kernel.initial_shape())
    is_row = rng.uniform(size=n) < 0.6
    variance = rng.uniform(0.3, 3.0, n) * np.where(is_row, 1.0, 0.1)
    return theta, rng.normal(size=(n, d)), rng.normal(size=(n, k)), variance, is_row


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=str)
@pytest.mark.parametrize("d", [1, 2, 8])
@pytest.mark.parametrize("k", [1, 3])
def test_value_and_gradient(kernel, d, k):
    theta, *data = problem(kernel, d, k)
    evidence = Evidence(kernel, *data)
    value, gradient = evidence.value_and_gradient(theta)
    assert value == pytest.approx(dense.log_evidence(kernel, theta, *data), rel=1e-10)
    start, step = theta.to_log(), 1e-4
    assert len(gradient) == len(start)
    for i in range(len(start)):
        moved = [start + j * step * np.eye(len(start))[i] for j in (-2, -1, 1, 2)]
        e = [evidence.value_and_gradient(Hyperparameters.from_log(each, d))[0] for each in moved]
        difference = (e[0] - 8 * e[1] + 8 * e[2] - e[3]) / (12 * step)
        assert gradient[i] == pytest.approx(difference, rel=1e-6, abs=1e-6 * np.abs(gradient).max())


def test_value_is_the_log_density_of_a_multivariate_normal():
    kernel = SquaredExponential()
    theta, Z, t, variance, is_row = problem(kernel, 2, 3)
    C = kernel(theta, Z, Z) + np.diag(np.where(is_row, theta.noise**2, 1.0) * variance)
    expected = multivariate_normal(np.zeros(len(Z)), C).logpdf(t.T).sum()
    assert Evidence(kernel, Z, t, variance, is_row).value_and_gradient(theta)[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=str)
def test_value_of_rows_is_that_of_scikit_learn(kernel):
    theta, X, y, *_ = problem(kernel, 2, 1)
    evidence = Evidence(kernel, X, y, np.ones(len(X)), np.ones(len(X), dtype=bool))
    expected = SklearnGP(kernel, theta, X, y[:, 0]).log_evidence
    assert evidence.value_and_gradient(theta)[0] == pytest.approx(expected, rel=1e-10)


def test_one_observation():
    theta = Hyperparameters(2.0, np.ones(1), 0.5)
    evidence = Evidence(SquaredExponential(), np.zeros((1, 1)), np.array([[1.0]]), np.ones(1), np.ones(1, dtype=bool))
    value, gradient = evidence.value_and_gradient(theta)
    assert value == pytest.approx(-0.5 * (1.0 / 4.25 + np.log(4.25) + np.log(2 * np.pi)))
    assert gradient[1] == 0.0


def test_the_noise_is_that_of_rows_alone():
    kernel = SquaredExponential()
    theta, Z, t, variance, _ = problem(kernel, 2, 1)
    none = Evidence(kernel, Z, t, variance, np.zeros(len(Z), dtype=bool)).value_and_gradient(theta)[1]
    assert none[-1] == 0.0


def test_evaluations_are_counted_and_change_nothing():
    kernel = ALL_KERNELS[3]
    theta, *data = problem(kernel, 2, 1)
    evidence = Evidence(kernel, *data)
    first, second = evidence.value_and_gradient(theta), evidence.value_and_gradient(theta)
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])
    assert evidence.n_evaluations == 2
