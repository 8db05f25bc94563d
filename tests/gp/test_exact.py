"""The exact model against scikit-learn's Gaussian process and the textbook."""

from operator import attrgetter

import numpy as np
import pytest

from reference import (
    ALL_KERNELS,
    SklearnGP,
    exact_field_at,
    exact_log_evidence,
    hyperparameters,
    relative_error,
    separated_points,
    waves,
)
from wgpr.gp.exact import ExactLearner, calibrate
from wgpr.gp.inducing import greedy
from wgpr.gp.kernels import Hyperparameters, SquaredExponential

MEAN = 0.7

every_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
every_dimension = pytest.mark.parametrize("d", [1, 2, 8, 21])
every_cut = pytest.mark.parametrize("cuts", [[20], [1, 2, 3], [39], list(range(1, 40))], ids=len)


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = separated_points(n, d, rng)
    return X, waves(X, rng)


def grown(learner, X, y, cuts=()):
    """The models after each piece of the rows."""
    rng, models = np.random.default_rng(0), []
    for piece_X, piece_y in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        step = learner.update if models else lambda _, *piece: learner.start(*piece)
        models.append(step(models[-1] if models else None, piece_X, piece_y, rng))
    return models


def learner_of(kernel, d, **settings):
    return ExactLearner(kernel, hyperparameters(kernel, d), MEAN, **settings)


@every_kernel
@every_dimension
def test_predictions_are_those_of_scikit_learn_and_of_the_textbook(kernel, d):
    (X, y), (queries, _) = rows(40, d), rows(25, d, seed=1)
    learner = learner_of(kernel, d)
    *_, model = grown(learner, X, y, [15, 22])
    expected_mean, expected_std = SklearnGP(kernel, learner.theta, X, y - MEAN).predict(queries)
    mean, variance = model.predict(queries)
    assert relative_error(mean - MEAN, expected_mean) < 1e-8
    np.testing.assert_allclose(np.sqrt(variance), expected_std, rtol=1e-8)
    textbook, field = exact_field_at(kernel, learner.theta, X, y - MEAN, queries), model.posterior(queries)
    assert relative_error(field.mean - MEAN, textbook.mean) < 1e-8
    assert relative_error(field.covariance, textbook.covariance) < 1e-8


@every_kernel
@every_cut
def test_a_grown_factor_is_the_factor_of_all_rows(kernel, cuts):
    X, y = rows(40, 2)
    *_, model = grown(learner_of(kernel, 2), X, y, cuts)
    K = kernel(model.theta, X, X) + model.theta.noise**2 * np.eye(40)
    np.testing.assert_allclose(model.L, np.linalg.cholesky(K), rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.alpha, grown(learner_of(kernel, 2), X, y)[0].alpha, rtol=0, atol=1e-9)


@every_kernel
@every_cut
def test_evidences_of_the_pieces_add_up_to_that_of_the_whole(kernel, cuts):
    X, y = rows(40, 2)
    models = grown(learner_of(kernel, 2), X, y, cuts)
    expected = exact_log_evidence(kernel, models[0].theta, X, y - MEAN)
    assert sum(model.log_evidence for model in models) == pytest.approx(expected, rel=1e-10)


@every_kernel
def test_a_model_keeps_at_most_max_samples_rows(kernel):
    X, y = rows(60, 2)
    models = grown(learner_of(kernel, 2, max_samples=25), X, y, [20, 30, 31])
    assert [len(model.inputs) for model in models] == [20, 25, 25, 25]
    assert [model.n_seen for model in models] == [20, 30, 31, 60]
    for model, n in zip(models, (20, 30, 31, 60), strict=True):
        np.testing.assert_allclose(model.centre, X[:n].mean(axis=0), atol=1e-14)


@every_kernel
def test_a_full_model_of_a_smooth_field_stays_full(kernel):
    """A few rows explain such a field, but not its noise."""
    theta = hyperparameters(kernel, 1)
    smooth = Hyperparameters(theta.amplitude, [100.0], theta.noise, theta.shape)
    X = np.linspace(0.0, 1.0, 60)[:, None]
    (*_, model) = grown(ExactLearner(kernel, smooth, MEAN, 25), X, np.sin(X[:, 0]), [20, 40])
    assert len(model.inputs) == 25


def test_of_rows_at_one_place_the_newest_are_kept():
    learner = ExactLearner(SquaredExponential(), Hyperparameters(1.0, np.ones(1), 0.1), 0.0, max_samples=4)
    model = learner.start(np.zeros((10, 1)), np.arange(10.0), np.random.default_rng(0))
    assert len(model.targets) == 4
    assert {7.0, 8.0, 9.0} <= set(np.ravel(model.targets).tolist())


@every_kernel
def test_a_full_model_is_the_exact_process_on_the_rows_that_it_kept(kernel):
    X, y = rows(60, 2)
    learner = learner_of(kernel, 2, max_samples=25)
    (model,) = grown(learner, X, y)
    kept = np.sort(greedy(kernel, learner.theta, X, 25))
    np.testing.assert_array_equal(model.inputs, X[kept])
    np.testing.assert_array_equal(model.targets, y[kept])
    expected, _ = SklearnGP(kernel, learner.theta, X[kept], y[kept] - MEAN).predict(X)
    assert relative_error(model.predict(X)[0] - MEAN, expected) < 1e-8
    assert model.log_evidence == pytest.approx(exact_log_evidence(kernel, learner.theta, X, y - MEAN), rel=1e-8)


@pytest.mark.parametrize("X", [np.zeros((1, 2)), np.ones((30, 2)), np.repeat(rows(3, 2)[0], 9, axis=0)])
@pytest.mark.parametrize("max_samples", [None, 2])
@every_kernel
def test_degenerate_rows_are_learned(kernel, X, max_samples):
    y = np.sin(np.arange(len(X)))
    learner = ExactLearner(kernel, hyperparameters(kernel, 2, noise=1e-7), MEAN, max_samples)
    *_, model = grown(learner, np.concatenate([X, X]), np.concatenate([y, y]), [len(X)])
    assert all(np.isfinite(part).all() for part in (*model.predict(X), *model.posterior(X), model.log_evidence))


def test_conditioning_drops_no_row():
    (X, y), kernel = rows(40, 2), SquaredExponential()
    learner = learner_of(kernel, 2, max_samples=20)
    conditioned = learner.condition(learner.quick_fit(X[:20], y[:20]), X[20:], y[20:])
    whole = learner_of(kernel, 2).quick_fit(X, y)
    np.testing.assert_array_equal(conditioned.inputs, X)
    np.testing.assert_allclose(conditioned.predict(X), whole.predict(X), rtol=1e-8)


def test_a_quick_fit_is_the_model_of_the_rows():
    X, y = rows(20, 2)
    learner = learner_of(SquaredExponential(), 2)
    (model,) = grown(learner, X, y)
    np.testing.assert_array_equal(learner.quick_fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("name", ["inputs", "targets", "L", "alpha", "centre"])
@pytest.mark.parametrize("max_samples", [None, 10])
def test_no_array_of_a_model_can_be_edited(name, max_samples):
    for model in grown(learner_of(SquaredExponential(), 2, max_samples=max_samples), *rows(40, 2), [20]):
        assert not attrgetter(name)(model).flags.writeable


def test_an_update_leaves_the_old_model_as_it_was():
    X, y = rows(40, 2)
    learner = learner_of(SquaredExponential(), 2)
    (model,) = grown(learner, X[:20], y[:20])
    before = model.posterior(X)
    updated = learner.update(model, X[20:], y[20:], np.random.default_rng(0))
    np.testing.assert_array_equal(model.posterior(X).mean, before.mean)
    np.testing.assert_array_equal(model.posterior(X).covariance, before.covariance)
    assert relative_error(updated.posterior(X).mean, before.mean) > 1e-3


def test_calibration_finds_the_hyperparameters_of_the_field():
    kernel, rng = SquaredExponential(), np.random.default_rng(0)
    theta = Hyperparameters(2.0, np.array([0.5, 3.0]), 0.1)
    X = rng.uniform(0, 5, (250, 2))
    K = kernel(theta, X, X) + theta.noise**2 * np.eye(250)
    y = 10 + np.linalg.cholesky(K) @ rng.normal(size=250)
    found = calibrate(kernel, X, y, max_iter=100)
    np.testing.assert_allclose(found.to_log(), theta.to_log(), atol=0.4)
