"""Several outputs: shared inputs and decisions, one posterior each."""

import pickle
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streams import (
    ALL,
    ONLINE,
    assert_same_learning,
    every_estimator,
    every_online_estimator,
    published,
    queries,
    small,
    travelling,
)
from wgpr import Hyperparameters, WGPRegressor, apply, diff, load
from wgpr.gp.bound import Observations
from wgpr.gp.evidence import Evidence
from wgpr.gp.exact import ExactLearner
from wgpr.gp.gaussian import Gaussian, squared_wasserstein
from wgpr.gp.kernels import RationalQuadratic
from wgpr.gp.sparse import SparseLearner, SparseModel
from wgpr.rules.prediction import Mixture

X, y = travelling()
QUERIES = queries()
SCALES, OFFSETS = np.array([1.0, 1e3, 1e-3]), np.array([0.0, 5e4, -1.0])
RELATIVE = np.stack([y, np.cos(X[:, 0]) + 0.1 * X[:, 1], 0.3 * X[:, 1] * y], axis=1)
Y = OFFSETS + SCALES * RELATIVE
SMOOTH = OFFSETS + SCALES * np.stack([np.sin(0.5 * X[:, 0]), np.cos(0.5 * X[:, 0]), X[:, 1]], axis=1)
RULES = ["nearest", "weighted", "best_few", "barycenter", "robust_bcm"]


def frozen_settings(regressor, **settings):
    """An estimator that does not learn hyperparameters, so that nothing depends on how many outputs there are.

    The default always learns them.
    """
    frozen = {} if regressor is WGPRegressor else {"optimizer_iterations": 0}
    return small(regressor, **frozen, **settings)


def learning_longer(regressor, n_iterations):
    """An estimator with so many iterations for each fit; the default has its own."""
    return small(regressor, **({} if regressor is WGPRegressor else {"optimizer_iterations": n_iterations}))


def of_each(method, targets):
    """Results of `method` for every output alone."""
    return [method(column) for column in targets.T]


def learned(regressor, method="fit"):
    """A small estimator that has learned `Y`; a copy, and quicker than learning again."""
    return pickle.loads(_learned(regressor, method))


@cache
def _learned(regressor, method):
    return pickle.dumps(getattr(small(regressor), method)(X, Y))


# The bound

kernel = RationalQuadratic()
theta = Hyperparameters(1.3, np.array([1.5, 2.0]), 0.4, np.array([0.8]))
Z = X[::9]


def past_and_batch(targets):
    """A summary of some rows, and what a later batch of others adds to it; relative to a mean of zero."""
    past = Observations(kernel, X[:60], targets[:60]).explained_by(theta, Z).summary()
    return Observations(kernel, X[60:], targets[60:], past)


def test_the_bound_is_the_sum_of_those_of_the_outputs():
    together = past_and_batch(RELATIVE).explained_by(theta, Z)
    alone = of_each(lambda column: past_and_batch(column).explained_by(theta, Z), RELATIVE)
    np.testing.assert_allclose(together.value, sum(fit.value for fit in alone))
    np.testing.assert_allclose(together.alpha, np.stack([fit.alpha for fit in alone], axis=1))
    for part, *parts in zip(together.gradient(), *(fit.gradient() for fit in alone), strict=True):
        np.testing.assert_allclose(part, sum(parts), rtol=1e-8, atol=1e-8)


def test_the_gradient_of_the_bound_is_that_of_finite_differences():
    observations = past_and_batch(RELATIVE)
    point = np.concatenate([theta.to_log(), Z.ravel()])

    def value(v):
        return observations.explained_by(Hyperparameters.from_log(v[:5], 2), v[5:].reshape(Z.shape)).value

    by_log_theta, by_Z = observations.explained_by(theta, Z).gradient()
    numeric = [central_difference(value, point, place) for place in range(len(point))]
    np.testing.assert_allclose([*by_log_theta, *by_Z.ravel()], numeric, rtol=1e-5, atol=1e-4)


def test_the_gradient_of_the_evidence_is_that_of_finite_differences():
    evidence = Evidence(kernel, X, RELATIVE, np.ones(len(X)), np.ones(len(X), dtype=bool))

    def value(v):
        return evidence.value_and_gradient(Hyperparameters.from_log(v, 2))[0]

    _, gradient = evidence.value_and_gradient(theta)
    values = [central_difference(value, theta.to_log(), place) for place in range(5)]
    np.testing.assert_allclose(gradient, values, rtol=1e-5, atol=1e-5)


def central_difference(function, point, place, step=1e-5):
    shift = np.zeros_like(point)
    shift[place] = step
    return (function(point + shift) - function(point - shift)) / (2 * step)


# Models


def sparse_model(targets):
    """A model at `Z` that has learned two batches."""
    first = targets[:60] - targets[:60].mean(axis=0)
    fit = Observations(kernel, X[:60], first).explained_by(theta, Z)
    scales = SparseLearner(kernel).quick_fit(X, y).scales
    mean = targets[:60].mean(axis=0)
    model = SparseModel.from_fit(fit, mean, scales, 60, X[:60].mean(axis=0), fit.value)
    return model.updated(model.observations(X[60:], targets[60:]).explained_by(theta, Z), scales)


def exact_model(targets):
    rng = np.random.default_rng(0)
    learner = ExactLearner(kernel, theta, targets.mean(axis=0))
    return learner.update(learner.start(X[:60], targets[:60], rng), X[60:], targets[60:], rng)


def conditioned_model(targets):
    model = sparse_model(targets)
    return SparseLearner(kernel).condition(model, QUERIES, targets[:25])


@pytest.mark.parametrize("make", [sparse_model, exact_model, conditioned_model])
def test_each_output_has_the_posterior_that_it_would_have_alone(make):
    together, alone = make(RELATIVE), of_each(make, RELATIVE)
    mean, variance = together.predict(QUERIES)
    posterior = together.posterior(QUERIES)
    for column, model in enumerate(alone):
        expected_mean, expected_variance = model.predict(QUERIES)
        np.testing.assert_allclose(mean[:, column], expected_mean, atol=1e-8)
        np.testing.assert_allclose(variance, expected_variance, atol=1e-8)
        np.testing.assert_allclose(posterior.mean[:, column], expected_mean, atol=1e-8)
        np.testing.assert_allclose(posterior.covariance, model.posterior(QUERIES).covariance, atol=1e-8)
    np.testing.assert_allclose(together.log_evidence, sum(model.log_evidence for model in alone))


def test_distances_add_up():
    rng = np.random.default_rng(0)
    means, factors = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 6))
    S = [factor @ factor.T for factor in factors]
    together = squared_wasserstein(Gaussian(means[0], S[0]), Gaussian(means[1], S[1]))
    alone = [squared_wasserstein(Gaussian(means[0, :, j], S[0]), Gaussian(means[1, :, j], S[1])) for j in range(3)]
    np.testing.assert_allclose(together, sum(alone))


# Estimators


@every_estimator
def test_one_column_is_one_output_to_the_last_bit(regressor):
    one, column = small(regressor).fit(X, y), small(regressor).fit(X, y[:, None])
    for expected, found in zip(one.predict(QUERIES, True), column.predict(QUERIES, True), strict=True):
        np.testing.assert_array_equal(found, expected[:, None])
    _, covariance = column.predict(QUERIES, return_cov=True)
    np.testing.assert_array_equal(covariance[:, :, 0], one.predict(QUERIES, return_cov=True)[1])
    assert [record.changes for record in column.history_] == [record.changes for record in one.history_]
    assert [theta.amplitude for theta in column.hyperparameters_] == [theta.amplitude for theta in one.hyperparameters_]


@pytest.mark.parametrize(
    "regressor", [each for each in ALL if each is not WGPRegressor], ids=lambda each: each.__name__
)
def test_identical_columns_are_predicted_like_one(regressor):
    never = {"splitting": "never"} if "splitting" in small(regressor).get_params() else {}
    one = frozen_settings(regressor, **never).fit(X, y)
    three = frozen_settings(regressor, **never).fit(X, np.stack([y] * 3, axis=1))
    for found, expected in zip(three.predict(QUERIES, True), one.predict(QUERIES, True), strict=True):
        np.testing.assert_allclose(found, np.stack([expected] * 3, axis=1), rtol=1e-8, atol=1e-10)


@every_estimator
def test_hyperparameters_of_identical_columns_are_about_those_of_one(regressor):
    """The evidence counts three times against the prior, so that they are not quite the same."""
    targets = SMOOTH[:, 0]
    one = learning_longer(regressor, 30).fit(X, targets).predict(X)
    three = learning_longer(regressor, 30).fit(X, np.stack([targets] * 3, axis=1)).predict(X)
    np.testing.assert_allclose(three, three[:, [2, 0, 1]], atol=1e-8)
    assert np.sqrt(np.mean((three[:, 0] - one) ** 2)) < 0.3 * targets.std()


@every_estimator
def test_outputs_are_predicted_in_their_own_units(regressor):
    """Rows are rounded in the ensemble's units, so that other units give the same numbers up to rounding."""
    relative, scaled = (frozen_settings(regressor).fit(X, targets) for targets in (RELATIVE, Y))
    assert [record.changes for record in scaled.history_] == [record.changes for record in relative.history_]
    (mean, std), (expected_mean, expected_std) = (model.predict(QUERIES, True) for model in (scaled, relative))
    np.testing.assert_allclose((mean - OFFSETS) / SCALES, expected_mean, atol=1e-5)
    np.testing.assert_allclose(std / SCALES, expected_std, rtol=1e-5)
    assert scaled.n_outputs_ == 3


@every_estimator
def test_several_outputs_are_learned(regressor):
    model = learning_longer(regressor, 20).fit(X, SMOOTH)
    errors = (model.predict(X) - SMOOTH).std(axis=0) / SMOOTH.std(axis=0)
    assert (errors < 0.5).all()
    assert model.score(X, SMOOTH) > 0.75


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_predicts_several_outputs(rule):
    model = small(published, prediction=rule, splitting="always").fit(X, Y)
    mean, std = model.predict(QUERIES, return_std=True)
    same_mean, covariance = model.predict(QUERIES, return_cov=True)
    assert (mean.shape, std.shape, covariance.shape) == ((25, 3), (25, 3), (25, 25, 3))
    np.testing.assert_allclose(same_mean, mean)
    np.testing.assert_allclose(np.sqrt(np.einsum("iik->ik", covariance)), std)
    latent = model.predict(QUERIES, return_std=True, latent=True)[1]
    assert (latent < std).all()
    assert (np.linalg.eigvalsh(covariance.transpose(2, 0, 1)) > 0).all()


def test_the_variance_of_a_mixture_is_that_of_each_output():
    model = small(published, prediction="weighted", splitting="always").fit(X, Y)
    std = model.predict(QUERIES, return_std=True)[1] / model.units_.target_scale
    assert (np.ptp(std, axis=1) > 1e-3).any()


class MostCertain:
    """The rule of the documentation of wgpr.rules.prediction."""

    def combine(self, query):
        predictions = query.ask(query.nearest(3))
        best = predictions.of(predictions.variances.argmin(axis=1)[:, None])
        return Mixture(best, weights=np.ones_like(best.variances), variance=best.variances[:, 0])


def test_a_rule_of_a_user_predicts_several_outputs():
    model = small(published, prediction=MostCertain(), splitting="always").fit(X, Y)
    mean, std = model.predict(QUERIES, return_std=True)
    assert mean.shape == std.shape == (25, 3)


def test_calibration_uses_all_outputs():
    rows, targets = travelling(400)
    counts = [WGPRegressor().fit(rows, np.stack([targets] * k, 1))._state.calibration.counts.sum() for k in (1, 2)]
    assert counts[1] > 1.5 * counts[0] > 0


@pytest.mark.parametrize(
    ("regressor", "settings"),
    [(published, {"splitting": "always", "max_models": 2}), (WGPRegressor, {"forgetting": 0.01, "max_models": 1})],
)
def test_merging_and_forgetting(regressor, settings):
    rows, targets = travelling(600)
    model = small(regressor, **settings).fit(rows, np.stack([targets, rows[:, 1], targets**2], 1))
    assert any(record.merged for record in model.history_)
    assert model.n_models_ == settings["max_models"]
    assert model.predict(QUERIES).shape == (25, 3)


# Streams


@every_online_estimator
def test_pieces_are_learned_like_one(regressor):
    pieces = small(regressor)
    for first in range(0, len(X), 7):
        pieces.partial_fit(X[first : first + 7], Y[first : first + 7])
        assert pieces.predict(QUERIES).shape == (25, 3)
    assert_same_learning(pieces, learned(regressor, "partial_fit"))


@every_online_estimator
def test_memory_order_and_frames_do_not_matter(regressor):
    expected = learned(regressor, "partial_fit")
    assert_same_learning(small(regressor).partial_fit(X, np.asfortranarray(Y)), expected)
    for library in (pd, pl):
        frame = library.DataFrame(dict(zip("abc", Y.T, strict=True)))
        model = small(regressor).partial_fit(X, frame)
        assert_same_learning(model, expected)
        assert model.target_name_ == ("a", "b", "c")


def test_names_that_are_not_strings_are_not_kept():
    assert small(WGPRegressor).fit(X, pd.DataFrame(Y)).target_name_ is None


def test_one_output_may_be_given_either_way():
    expected = small(WGPRegressor).partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    mixed = small(WGPRegressor).partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:, None])
    assert_same_learning(mixed, expected)


# Maps


@every_estimator
@pytest.mark.parametrize("n_rows", [15, 110])
def test_a_map_is_the_same_to_the_last_bit(regressor, n_rows, tmp_path):
    model = small(regressor)
    learn = model.partial_fit if regressor in ONLINE else model.fit
    learn(X[:n_rows], pd.DataFrame(Y[:n_rows], columns=["a", "b", "c"]))
    model.save(tmp_path / "a.map")
    loaded = load(tmp_path / "a.map")
    assert loaded.to_bytes() == model.to_bytes()
    assert loaded.target_name_ == ("a", "b", "c")
    assert_same_learning(loaded, model)
    if regressor in ONLINE:
        assert_same_learning(loaded.partial_fit(X, Y), model.partial_fit(X, Y))


@every_estimator
@pytest.mark.parametrize("targets", [Y, Y[:, :1]], ids=["three", "one"])
def test_a_compact_map_answers_as_the_model_does(regressor, targets, tmp_path):
    model = small(regressor).fit(X, targets)
    model.save(tmp_path / "a.map", compact=True)
    loaded = load(tmp_path / "a.map")
    for found, expected in zip(loaded.predict(QUERIES, True), model.predict(QUERIES, True), strict=True):
        np.testing.assert_allclose(found / SCALES[: targets.shape[1]], expected / SCALES[: targets.shape[1]], atol=1e-3)
    assert loaded.n_outputs_ == targets.shape[1]


@every_online_estimator
def test_a_difference_makes_the_new_map(regressor):
    old, new = small(regressor).partial_fit(X[:60], Y[:60]), small(regressor).partial_fit(X[:60], Y[:60])
    new.partial_fit(X[60:], Y[60:]).flush()
    found, expected = apply(old, diff(old, new)).predict(QUERIES), new.predict(QUERIES)
    np.testing.assert_allclose((found - OFFSETS) / SCALES, (expected - OFFSETS) / SCALES, atol=1e-3)


def test_a_map_of_one_output_does_not_name_the_number_of_outputs():
    assert b"n_outputs" not in small(WGPRegressor).fit(X, y).to_bytes()
    assert b"n_outputs" in learned(WGPRegressor).to_bytes()


# Errors

BAD_TARGETS = {
    "nan": (np.where(np.arange(3) == 1, np.nan, Y), "y contains NaN"),
    "infinite": (np.where(np.arange(3) == 1, np.inf, Y), "y contains infinity"),
    "three dimensions": (Y[:, :, None], r"y has shape \(110, 3, 1\); it must be"),
    "no columns": (Y[:, :0], r"y has shape \(110, 0\); it must be"),
    "too short": (Y[:-1], "inconsistent numbers of samples"),
    "too large": (Y * 1e300, "y has values beyond"),
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_bad_targets_are_refused_and_nothing_changes(name):
    targets, message = BAD_TARGETS[name]
    for regressor in ALL:
        model = learned(regressor)
        assert_refused(model, model.fit, targets, message)


@every_online_estimator
@pytest.mark.parametrize(("first", "later"), [(Y, y), (Y, Y[:, :2]), (y, Y), (Y[:, :1], Y)])
def test_another_number_of_outputs_is_refused(regressor, first, later):
    for n_rows in (5, 50):
        model = small(regressor).partial_fit(X[:n_rows], first[:n_rows])
        assert_refused(model, model.partial_fit, later, r"y has \d outputs, but \w+ has learned \d; give a column")
    assert model.fit(X[:50], later[:50]).predict(QUERIES).shape == (25, *later.shape[1:])


def assert_refused(model, method, targets, message):
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=message):
        method(X, targets)
    assert pickle.dumps(model) == before


def test_grids_are_for_one_output():
    with pytest.raises(ValueError, match="one output and this model has 3; use predict, or fit"):
        learned(WGPRegressor).predict_grid()
    grid = small(WGPRegressor).fit(X, y[:, None]).predict_grid(spacing=1.0)
    expected = small(WGPRegressor).fit(X, y).predict_grid(spacing=1.0)
    np.testing.assert_array_equal(grid["std"], expected["std"])


def test_hyperparameters_are_relative():
    relative, scaled = (frozen_settings(WGPRegressor).fit(X, targets) for targets in (RELATIVE, Y))
    for found, expected in zip(scaled.hyperparameters_, relative.hyperparameters_, strict=True):
        np.testing.assert_allclose(found.to_vector(), expected.to_vector(), rtol=1e-6)
    np.testing.assert_allclose(scaled.units_.target_scale, SCALES * relative.units_.target_scale, rtol=1e-9)
