"""The adaptive learner: few pseudo-inputs where a field is smooth, never too many; forgetting; merging."""

import numpy as np
import pytest

from reference import ALL_KERNELS, conditional_variance, relative_error, separated_points, waves
from streams import assert_same_models
from wgpr.gp.joint import as_seen_by, evidence
from wgpr.gp.kernels import Hyperparameters, SquaredExponential
from wgpr.gp.sparse import AdaptiveSparseLearner

every_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
KERNEL = SquaredExponential()
TOLERANCE = 0.003  # nats for each row
RNG = np.random.default_rng(0)


def rows(n, d=2, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = separated_points(n, d, rng)
    return X, waves(X, rng, noise)


def lost_by(model, X):
    """Nats for each row that the pseudo-inputs of a model leave unexplained."""
    everything = np.concatenate([model.inputs, X])
    variances = conditional_variance(model.kernel, model.theta, everything, list(range(len(model.inputs))))
    return 0.5 * variances[len(model.inputs) :].sum() / model.theta.noise**2 / len(X)


# The learner


@every_kernel
def test_a_smooth_field_needs_few_pseudo_inputs(kernel):
    X = np.linspace(0.0, 10.0, 200)[:, None]
    y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=200)
    model = AdaptiveSparseLearner(kernel).start(X, y, RNG)
    assert 4 <= len(model.inputs) <= 60
    assert np.abs(model.predict(X)[0] - np.sin(X[:, 0])).max() < 0.2
    assert lost_by(model, X) < 2 * TOLERANCE  # chosen before the last maximisation


def test_a_field_with_much_detail_needs_as_many_as_it_may_have():
    X, y = rows(120, 8, noise=0.0)
    model = AdaptiveSparseLearner(KERNEL, max_inducing=30, max_iter=5).start(X, y, RNG)
    assert len(model.inputs) == 30
    assert lost_by(model, X) > TOLERANCE


@every_kernel
def test_below_the_limit_the_loss_is_within_the_tolerance(kernel):
    X, y = rows(80)
    model = AdaptiveSparseLearner(kernel, max_iter=0).quick_fit(X, y)
    assert len(model.inputs) < 80
    assert lost_by(model, X) <= TOLERANCE * (1 + 1e-6)


@every_kernel
def test_an_update_keeps_to_the_limit_and_the_pseudo_inputs_are_rows(kernel):
    X, y = rows(120)
    learner = AdaptiveSparseLearner(kernel, max_inducing=12, max_iter=5)
    model = learner.start(X[:60], y[:60], RNG)
    updated = learner.update(model, X[60:], y[60:], RNG)
    assert len(updated.inputs) <= 12
    assert np.abs(updated.inputs[:, None] - X).max(axis=-1).min(axis=1).max() < 1e-12
    assert updated.n_seen == 120
    np.testing.assert_allclose(updated.centre, X.mean(axis=0), atol=1e-12)


def test_a_model_shrinks_when_the_field_turns_out_smooth():
    """Hyperparameters of a rough field at first; then the rows say that it is smooth."""
    X = np.linspace(0.0, 10.0, 400)[:, None]
    y = np.sin(0.5 * X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=400)
    rough = Hyperparameters(1.0, np.array([0.3]), 0.2)
    learner = AdaptiveSparseLearner(KERNEL)
    model = learner.quick_fit(X[::8], y[::8])
    fit = model.observations(X[4::8], y[4::8]).explained_by(rough, X[::8])
    model = before = model.updated(fit, model.scales)
    for first in (1, 2, 3):
        model = learner.update(model, X[first::4], y[first::4], RNG)
    assert len(before.inputs) == 50
    assert len(model.inputs) < 25
    assert model.theta.lengthscales > 1.0


@every_kernel
def test_an_update_learns_new_rows_and_keeps_old_ones(kernel):
    X = np.linspace(0.0, 10.0, 200)[:, None]
    y = np.sin(X[:, 0])
    learner = AdaptiveSparseLearner(kernel)
    model = learner.update(learner.start(X[:100], y[:100], RNG), X[100:], y[100:], RNG)
    assert np.abs(model.predict(X)[0] - y).max() < 0.02


def test_hyperparameters_can_be_left_as_the_first_batch_made_them():
    X, y = rows(90)
    learner = AdaptiveSparseLearner(KERNEL, learn_hyperparameters=False)
    model = learner.start(X[:30], y[:30], RNG)
    updated = learner.refine_with_neighbours(
        learner.update(model, X[30:60], y[30:60], RNG), [learner.start(X[60:], y[60:], RNG)]
    )
    np.testing.assert_array_equal(updated.theta.to_log(), model.theta.to_log())
    assert updated.shared is updated.theta
    learns = AdaptiveSparseLearner(KERNEL).update(model, X[30:60], y[30:60], RNG)
    assert not np.array_equal(learns.theta.to_log(), model.theta.to_log())


# Neighbours


def test_hyperparameters_shared_with_the_neighbours_have_a_larger_joint_evidence():
    X, y = rows(150, 1)
    order = np.argsort(X[:, 0])
    learner = AdaptiveSparseLearner(KERNEL, max_iter=20)
    left, middle, right = (learner.start(X[some], y[some], RNG) for some in np.split(order, 3))
    refined = learner.refine_with_neighbours(middle, [left, right])
    assert refined.theta is middle.theta
    parts = (middle.summary, *(part for other in (left, right) for part in as_seen_by(middle, other)))
    log_evidence = evidence(KERNEL, parts)
    assert log_evidence(refined.shared)[0] > log_evidence(middle.theta)[0]
    assert refined.shared.noise == pytest.approx(middle.theta.noise)
    assert learner.refine_with_neighbours(refined, []).shared is middle.theta


# Forgetting


def test_without_forgetting_an_update_uses_the_summary_as_it_is():
    """To the last bit."""
    X, y = rows(60)
    learner = AdaptiveSparseLearner(KERNEL, learn_hyperparameters=False, forgetting=0.0)
    model = learner.start(X[:30], y[:30], RNG)
    updated = learner.update(model, X[30:], y[30:], RNG)
    fit = model.observations(X[30:], y[30:]).explained_by(model.theta, updated.inputs)
    assert_same_models([updated], [model.updated(fit, updated.scales)])


def error_after_a_change(forgetting, n_batches=12):
    """Largest error on a field that changes its sign half way, after the last batch."""
    X = np.linspace(0.0, 6.0, 40)[:, None]
    learner = AdaptiveSparseLearner(KERNEL, learn_hyperparameters=False, forgetting=forgetting)
    rng = np.random.default_rng(0)
    model = learner.start(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=40), rng)
    for number in range(n_batches):
        sign = 1.0 if number < n_batches // 2 else -1.0
        model = learner.update(model, X, sign * np.sin(X[:, 0]) + 0.1 * rng.normal(size=40), rng)
    return np.abs(model.predict(X)[0] + np.sin(X[:, 0])).max()


def test_a_learner_that_forgets_follows_a_field_that_changes():
    assert error_after_a_change(0.0) > 0.8
    assert error_after_a_change(0.4) < 0.25


def test_the_more_is_forgotten_the_larger_is_the_uncertainty():
    X, y = rows(60)
    model = AdaptiveSparseLearner(KERNEL).start(X, y, RNG)
    elsewhere = X[:5] + 100.0
    stds = [
        np.sqrt(
            AdaptiveSparseLearner(KERNEL, learn_hyperparameters=False, forgetting=rate)
            .update(model, elsewhere, y[:5], RNG)
            .predict(X)[1]
        ).mean()
        for rate in (0.0, 0.3, 0.9)
    ]
    assert stds[0] < stds[1] < stds[2]


# Merging


@every_kernel
def test_a_merged_model_predicts_like_both(kernel):
    X, y = rows(120, 1)
    halves = np.array_split(np.argsort(X[:, 0]), 2)
    learner = AdaptiveSparseLearner(kernel, max_inducing=30)
    left, right = (learner.start(X[half], y[half], RNG) for half in halves)
    merged = learner.merge(left, right)
    for half, model in zip(halves, (left, right), strict=True):
        assert relative_error(merged.predict(X[half])[0], model.predict(X[half])[0]) < 0.1
    assert merged.n_seen == 120
    np.testing.assert_allclose(merged.centre, X.mean(axis=0), atol=1e-12)
    assert len(merged.inputs) <= 30
