"""Joint models: the exact process with all observations, and the formulas of docs/joining.md."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from reference import (
    ALL_KERNELS,
    SklearnGP,
    central_differences,
    exact_field_at,
    exact_log_evidence,
    hyperparameters,
    learned,
    relative_error,
    separated_points,
    unlearned,
    waves,
)
from wgpr.gp.joint import (
    JointModel,
    as_seen_by,
    disagreement,
    evidence,
    joined,
    log_evidence_of_rows,
    parts_of,
    with_rows,
)
from wgpr.gp.kernels import Hyperparameters, SquaredExponential

every_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
every_dimension = pytest.mark.parametrize("d", [1, 2, 8])
HALVES = slice(0, None, 2), slice(1, None, 2)


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = separated_points(n, d, rng)
    return X, waves(X, rng)


def knowing(kernel, theta, X, y, Z=None, mean=0.0):
    """A model of these rows; by default with a pseudo-input on each, so that it is exact."""
    return learned(unlearned(kernel, theta, mean), X, y, theta, X if Z is None else Z)


def assert_the_exact_process(model, theta, X, y, mean=0.0):
    queries = separated_points(40, X.shape[1], np.random.default_rng(1))
    expected = exact_field_at(model.kernel, theta, X, y - mean, queries)
    means, variances = model.predict(queries)
    assert relative_error(means - mean, expected.mean) < 1e-8
    np.testing.assert_allclose(variances, expected.covariance.diagonal(), rtol=1e-8)
    field = model.posterior(queries)
    assert relative_error(field.mean - mean, expected.mean) < 1e-8
    assert relative_error(field.covariance, expected.covariance) < 1e-8


# Against the exact process


@every_kernel
@every_dimension
def test_an_empty_model_with_rows_is_the_exact_process(kernel, d):
    X, y = rows(30, d)
    theta = hyperparameters(kernel, d, reach=0.5)
    nothing = unlearned(kernel, theta, mean=0.7)
    assert_the_exact_process(with_rows(nothing, X, y), theta, X, y, mean=0.7)
    expected = SklearnGP(kernel, theta, X, y - 0.7).log_evidence
    assert log_evidence_of_rows(nothing, X, y, theta) == pytest.approx(expected, rel=1e-8)


@every_kernel
@every_dimension
def test_a_model_with_more_rows_is_the_exact_process(kernel, d):
    X, y = rows(40, d)
    theta = hyperparameters(kernel, d, reach=0.5)
    first, second = HALVES
    model = knowing(kernel, theta, X[first], y[first])
    assert_the_exact_process(with_rows(model, X[second], y[second]), theta, X, y)
    before, after = (exact_log_evidence(kernel, theta, X[some], y[some]) for some in (first, slice(None)))
    by_rows = log_evidence_of_rows(model, X[second], y[second], theta)
    assert by_rows == pytest.approx(after - before, rel=1e-8)


@every_kernel
@every_dimension
def test_two_models_joined_are_one_model_of_all_rows(kernel, d):
    """Each around a prior mean of its own; the owner's is kept."""
    X, y = rows(40, d)
    theta = hyperparameters(kernel, d, reach=0.5)
    one, other = (
        knowing(kernel, theta, X[half], y[half], mean=mean) for half, mean in zip(HALVES, (0.7, -1.3), strict=True)
    )
    assert_the_exact_process(joined(one, [other], theta), theta, X, y, mean=0.7)
    assert_the_exact_process(joined(other, [one], theta), theta, X, y, mean=-1.3)


def test_joint_models_can_be_joined_again():
    X, y = rows(45, 2)
    kernel = SquaredExponential()
    theta = hyperparameters(kernel, 2, reach=0.5)
    one, two, three = (
        knowing(kernel, theta, X[some::3], y[some::3], mean=mean) for some, mean in enumerate((0.7, -1.3, 0.2))
    )
    conditioned = with_rows(two, *rows(5, 2, seed=3))
    all_X, all_y = (np.concatenate(part) for part in zip((X, y), rows(5, 2, seed=3), strict=True))
    assert_the_exact_process(joined(one, [conditioned, three], theta), theta, all_X, all_y, mean=0.7)
    assert_the_exact_process(joined(conditioned, [one, three], theta), theta, all_X, all_y, mean=-1.3)


# Against the formulas


def sparse_models(kernel, d):
    """Three models with few pseudo-inputs, each with hyperparameters and a prior mean of its own."""
    X, y = rows(150, d)
    rng = np.random.default_rng(2)
    return [
        knowing(
            kernel, hyperparameters(kernel, d, reach=reach), X[i::3], y[i::3], separated_points(6 + i, d, rng), mean=i
        )
        for i, reach in enumerate((0.5, 0.7, 1.0))
    ]


def dense(parts):
    """All observations at once, with one matrix R."""
    Z, r = np.concatenate([part.Z for part in parts]), np.concatenate([part.r for part in parts])
    return Z, block_diag(*(part.R for part in parts)), r


@every_kernel
@every_dimension
def test_blocks_are_the_dense_formula(kernel, d):
    owner, *others = sparse_models(kernel, d)
    theta, queries = owner.theta, separated_points(30, d, np.random.default_rng(1))
    model = joined(owner, others, theta)
    Z, R, r = dense([*parts_of(owner), *(part for other in others for part in as_seen_by(owner, other))])
    S = np.eye(len(r)) + R @ kernel(theta, Z, Z) @ R.T
    gain = kernel(theta, queries, Z) @ R.T @ np.linalg.inv(S)
    covariance = kernel(theta, queries, queries) - gain @ R @ kernel(theta, Z, queries)
    np.testing.assert_array_equal(model.inputs, Z)
    assert relative_error(model.predict(queries)[0], owner.mean + gain @ r) < 1e-9
    assert relative_error(model.predict(queries)[1], covariance.diagonal()) < 1e-9
    assert relative_error(model.posterior(queries).covariance, covariance) < 1e-9
    log_normaliser = -0.5 * (np.linalg.slogdet(S)[1] + r @ np.linalg.inv(S) @ r)
    assert model.log_normaliser == pytest.approx(log_normaliser, rel=1e-10)


@every_kernel
def test_a_model_alone_is_itself(kernel):
    model, *_ = sparse_models(kernel, 2)
    queries = separated_points(30, 2, np.random.default_rng(1))
    alone = JointModel.of(model, parts_of(model), model.theta)
    np.testing.assert_allclose(alone.predict(queries), model.predict(queries), rtol=1e-8, atol=1e-10)
    assert alone.log_normaliser == pytest.approx(model.log_normaliser, rel=1e-10)


@every_kernel
@every_dimension
def test_the_gradient_of_the_evidence(kernel, d):
    owner, *others = sparse_models(kernel, d)
    parts = (owner.summary, *(part for other in others for part in as_seen_by(owner, other)))
    log_evidence, at = evidence(kernel, parts), others[0].theta.to_log()
    value, gradient = log_evidence(others[0].theta)
    assert value == pytest.approx(JointModel.of(owner, parts, others[0].theta).log_normaliser, rel=1e-10)
    expected = central_differences(lambda log_theta: log_evidence(Hyperparameters.from_log(log_theta, d))[0], at)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    assert np.abs(gradient[:-1]).min() > 1e-3  # all count, but for the noise
    assert gradient[-1] == 0.0


# Disagreement


def halves_of_a_line(field, noise=0.1):
    """Models of the left and of the right part of a line that overlap a little."""
    X, rng = np.linspace(0.0, 10.0, 80)[:, None], np.random.default_rng(0)
    y = field(X[:, 0]) + noise * rng.normal(size=80)
    theta = Hyperparameters(1.0, np.ones(1), noise)
    kernel = SquaredExponential()
    return knowing(kernel, theta, X[:45], y[:45], X[:45:3]), knowing(kernel, theta, X[35:], y[35:], X[35::3])


def test_two_halves_of_one_field_agree():
    left, right = halves_of_a_line(np.sin)
    assert disagreement(left, right) < 0.05
    assert disagreement(right, left) < 0.05


def test_models_of_different_fields_disagree():
    left, right = halves_of_a_line(lambda x: np.where(x < 5.0, np.sin(x), 3.0 + 3.0 * np.sin(9.0 * x)))
    assert disagreement(left, right) > 1.0


def test_the_prior_mean_of_an_owner_with_data_hardly_changes_the_disagreement():
    X, y = rows(60, 1)
    theta = hyperparameters(SquaredExponential(), 1, reach=0.5)
    first, second = (slice(0, None, 2), slice(1, None, 2))
    other = knowing(SquaredExponential(), theta, X[second], y[second])
    near, far = (knowing(SquaredExponential(), theta, X[first], y[first], mean=mean) for mean in (0.0, 0.5))
    assert disagreement(far, other) == pytest.approx(disagreement(near, other), abs=0.05)
    assert disagreement(near, other) < 0.0


def test_rows_of_conditioned_models_count_in_the_disagreement():
    left, right = halves_of_a_line(np.sin)
    X = np.linspace(4.0, 6.0, 9)[:, None]
    at_odds = with_rows(right, X, 5.0 + np.sin(X[:, 0]))
    assert disagreement(left, at_odds) > disagreement(left, right) + 1.0
    assert disagreement(with_rows(left, X, np.sin(X[:, 0])), right) < 0.05
