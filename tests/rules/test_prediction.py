"""Prediction rules: against naive transcriptions, one query at a time, and where the answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import Oracle, answer_of, published, queries, scattered_ensemble, small, travelling
from wgpr import (
    Barycenter,
    BestFew,
    LocalGPRegressor,
    Nearest,
    RobustBCM,
    SolarGPRegressor,
    Weighted,
)
from wgpr.ensemble.ensemble import Ensemble
from wgpr.rules import prediction
from wgpr.rules.prediction import Mixture, Query, joint_covariance

RULES = [
    Nearest(),
    Weighted(),
    Weighted(2),
    BestFew(),
    BestFew(1),
    Barycenter(),
    Barycenter(2),
    RobustBCM(),
    RobustBCM(5),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def predict(ensemble, rule, X):
    """Mean, variance of the field and variance of the noise."""
    return prediction.predict(ensemble, rule, X)[:3]


# Naive transcriptions: mean, variance of the field and variance of the noise at one query


def answers(ensemble, x):
    """What each model says about one query."""
    means, variances = zip(
        *((m[0], v[0]) for m, v in (model.predict(x[None]) for model in ensemble.models)), strict=True
    )
    return np.array(means), np.array(variances), np.array([model.theta.noise**2 for model in ensemble.models])


def by_nearest_pseudo_input(ensemble, x):
    return np.argsort([min(np.linalg.norm(model.inputs - x, axis=1)) for model in ensemble.models])


def closeness(ensemble, x):
    return np.array(
        [np.exp(-0.5 * np.sum(((x - model.centre) / model.theta.lengthscales) ** 2)) for model in ensemble.models]
    )


def mixture(weights, means, variances, noise):
    """Moments of the mixture, the second one uncentred."""
    weights = weights / sum(weights)
    mean = sum(weights * means)
    return mean, sum(weights * (variances + means**2)) - mean**2, sum(weights * noise)


def literal(rule, ensemble, x):
    means, variances, noise = answers(ensemble, x)
    if isinstance(rule, Nearest):
        first = by_nearest_pseudo_input(ensemble, x)[0]
        return means[first], variances[first], noise[first]
    if isinstance(rule, Weighted):
        w = closeness(ensemble, x)
        some = np.argsort(-w)[: rule.n_models]
        return mixture(w[some], means[some], variances[some], noise[some])
    if isinstance(rule, BestFew):
        w = closeness(ensemble, x)
        near = np.argsort(-w)[: 3 * rule.n_models]
        score = w / (variances + noise)
        some = near[np.argsort(-score[near])][: rule.n_models]
        return mixture(score[some], means[some], variances[some], noise[some])
    some = by_nearest_pseudo_input(ensemble, x)[: rule.n_models]
    if isinstance(rule, Barycenter):
        return np.mean(means[some]), np.mean(np.sqrt(variances[some])) ** 2, np.mean(noise[some])
    return literal_committee(means[some], variances[some], noise[some])


def literal_committee(means, variances, noise):
    """Generalised robust committee: member 0 is the one that the others are measured by, and corrected by."""
    shares = [max(0.0, (np.log(variances[0]) - np.log(v)) / 2) for v in variances[1:]]
    if sum(shares) > 1:
        shares = [share / sum(shares) for share in shares]
    shares = np.array([1 - sum(shares), *shares])
    precision = sum(shares / variances)
    weights = shares / variances / precision
    return sum(weights * means), 1 / precision, sum(weights * noise)


@every_rule
@pytest.mark.parametrize("n_models", [1, 2, 6, 20])
def test_rules_are_their_transcriptions(rule, n_models):
    ensemble, X = scattered_ensemble(n_models), queries(40)
    expected = np.array([literal(rule, ensemble, x) for x in X]).T
    for answer, by_hand in zip(predict(ensemble, rule, X), expected, strict=True):
        np.testing.assert_allclose(answer, by_hand, rtol=1e-8, atol=1e-12)


def owners_by(ensemble, rule, X):
    """The model with the largest weight at each query."""
    return prediction.predict(ensemble, rule, X).owners


@given(seed=st.integers(0, 2**32 - 1), n_models=st.integers(1, 8), n_features=st.integers(1, 4))
def test_nearest_is_the_owner_of_the_nearest_pseudo_input(seed, n_models, n_features):
    ensemble = scattered_ensemble(n_models, n_features, seed)
    X = queries(10, n_features, seed)
    points = np.concatenate([model.inputs for model in ensemble.models])
    owners = np.repeat(np.arange(n_models), [len(model.inputs) for model in ensemble.models])
    expected = owners[np.argmin([np.linalg.norm(points - x, axis=1) for x in X], axis=1)]
    np.testing.assert_array_equal(owners_by(ensemble, Nearest(), X), expected)


# All rules


@every_rule
def test_weights_sum_to_one(rule):
    mixture = rule.combine(Query(scattered_ensemble(), queries(40)))
    assert (mixture.weights >= -1e-12).all()
    np.testing.assert_allclose(mixture.weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(mixture.mean, (mixture.weights * mixture.predictions.means).sum(axis=1))


@every_rule
def test_no_model_is_asked_twice(rule):
    members = rule.combine(Query(scattered_ensemble(), queries(40))).predictions.members
    for row in members:
        assert len(set(row)) == len(row)


@every_rule
def test_with_one_model_all_rules_are_that_model(rule):
    ensemble, X = scattered_ensemble(1), queries()
    mean, variance, noise = predict(ensemble, rule, X)
    for answer, expected in zip((mean, variance), ensemble.models[0].predict(X), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-12)
    np.testing.assert_allclose(noise, ensemble.models[0].theta.noise ** 2)
    np.testing.assert_array_equal(owners_by(ensemble, rule, X), 0)


@every_rule
@pytest.mark.parametrize("distance", [1e2, 1e6, 1e100], ids="{:g}".format)
def test_far_away_queries_have_finite_answers(rule, distance):
    """All weights underflow there; the prior is the answer."""
    ensemble = scattered_ensemble()
    X = distance * np.array([[1.0, 1.0], [-1.0, 0.5], [0.0, 1.0]])
    mean, variance, noise = predict(ensemble, rule, X)
    amplitudes = [model.theta.amplitude for model in ensemble.models]
    means = [model.mean for model in ensemble.models]
    assert np.isfinite([mean, variance, noise]).all()
    assert (variance >= min(amplitudes) ** 2 * (1 - 1e-9)).all()
    assert (mean >= min(means)).all()
    assert (mean <= max(means)).all()


@every_rule
def test_an_answer_does_not_depend_on_the_other_queries(rule):
    ensemble, X = scattered_ensemble(), queries(20)
    together = np.array(predict(ensemble, rule, X))
    alone = np.concatenate([np.array(predict(ensemble, rule, x[None])) for x in X], axis=1)
    np.testing.assert_allclose(together, alone, rtol=1e-9)


@every_rule
def test_many_queries_are_answered_in_pieces(rule, monkeypatch):
    ensemble, X = scattered_ensemble(), queries(50)
    whole = np.array(predict(ensemble, rule, X))
    monkeypatch.setattr("wgpr.rules.prediction._PIECE", 7)
    np.testing.assert_allclose(np.array(predict(ensemble, rule, X)), whole, rtol=1e-9)


@every_rule
def test_the_owner_has_the_largest_weight(rule):
    ensemble, X = scattered_ensemble(), queries(40)
    mixture = rule.combine(Query(ensemble, X))
    weights = np.zeros((len(X), len(ensemble)))
    np.put_along_axis(weights, mixture.predictions.members, mixture.weights, axis=1)
    largest = np.take_along_axis(weights, owners_by(ensemble, rule, X)[:, None], axis=1)
    np.testing.assert_array_equal(largest[:, 0], weights.max(axis=1))


# Joint predictions


@every_rule
def test_joint_prediction_has_the_variances_of_the_rule(rule):
    ensemble, X = scattered_ensemble(), queries(40)
    variance = predict(ensemble, rule, X)[1]
    np.testing.assert_allclose(joint_covariance(ensemble, rule, X).diagonal(), variance, rtol=1e-9)


@every_rule
def test_joint_covariance_is_symmetric_and_positive_semidefinite(rule):
    covariance = joint_covariance(scattered_ensemble(), rule, np.repeat(queries(20), 2, axis=0))
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() >= -1e-10 * covariance.trace()


@every_rule
def test_joint_correlations_are_those_of_the_weighted_average(rule):
    """Models are independent: `cov = sum_j diag(w_j) S_j diag(w_j)`, up to the variances, which are the rule's."""
    ensemble, X = scattered_ensemble(), queries(15)
    mixture = rule.combine(Query(ensemble, X))
    covariance = np.zeros((len(X), len(X)))
    for number, model in enumerate(ensemble.models):
        weight = np.where(mixture.predictions.members == number, mixture.weights, 0.0).sum(axis=1)
        covariance += np.diag(weight) @ model.posterior(X).covariance @ np.diag(weight)
    np.testing.assert_allclose(correlations(joint_covariance(ensemble, rule, X)), correlations(covariance))


def correlations(covariance):
    std = np.sqrt(covariance.diagonal())
    return covariance / np.outer(std, std)


def test_with_one_model_the_joint_prediction_is_its_posterior():
    ensemble, X = scattered_ensemble(1), queries(15)
    for rule in RULES:
        mean, covariance = predict(ensemble, rule, X)[0], joint_covariance(ensemble, rule, X)
        expected = ensemble.models[0].posterior(X)
        np.testing.assert_allclose(mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(covariance, expected.covariance, rtol=1e-9, atol=1e-14)


def test_queries_of_different_models_are_independent():
    ensemble, X = scattered_ensemble(), queries(30)
    owners = owners_by(ensemble, Nearest(), X)
    covariance = joint_covariance(ensemble, Nearest(), X)
    assert len(set(owners)) > 1
    assert not covariance[owners[:, None] != owners].any()


# Rules on given answers


def oracles(*means_and_variances):
    """Oracles at 0, 1, 2...: seen from 0, the first is the nearest."""
    ensemble = Ensemble.of([], 1)
    for place, (mean, variance) in enumerate(means_and_variances):
        ensemble = ensemble.with_model(Oracle(mean, variance, float(place)))
    return ensemble


ORIGIN = np.zeros((1, 1))


def test_barycenter_averages_means_and_standard_deviations():
    (mean,), (variance,), _ = predict(
        oracles((1.0, 1.0), (2.0, 9.0), (6.0, 25.0), (100.0, 100.0)), Barycenter(3), ORIGIN
    )
    assert mean == pytest.approx(3.0)
    assert np.sqrt(variance) == pytest.approx(3.0)


def test_a_mixture_is_less_certain_where_models_disagree():
    agree, disagree = (predict(oracles((0.0, 1.0), (other, 1.0)), Weighted(), ORIGIN)[1][0] for other in (0.0, 5.0))
    assert agree == pytest.approx(1.0)
    assert disagree > 2.0


def test_best_few_prefers_the_certain():
    ensemble = oracles((0.0, 1e6), (5.0, 1e-6))
    assert owners_by(ensemble, Nearest(), ORIGIN) == [0]
    assert owners_by(ensemble, BestFew(1), ORIGIN) == [1]


def test_best_few_considers_close_models_only():
    """The fourth closest is not among three times one, however certain it is."""
    ensemble = oracles((0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1e-300))
    assert owners_by(ensemble, BestFew(1), ORIGIN) != [3]


def test_the_committee_is_the_nearest_model_if_its_neighbours_are_less_certain():
    ensemble = oracles((1.0, 0.5), (7.0, 0.5), (9.0, 2.0))
    nearest, committee = (np.ravel(predict(ensemble, rule, ORIGIN)) for rule in (Nearest(), RobustBCM(3)))
    np.testing.assert_array_equal(committee, nearest)


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(1e-12, 1e12)), min_size=1, max_size=6))
def test_the_committee_is_never_more_certain_than_its_most_certain_member(members):
    (mean,), (variance,), _ = predict(oracles(*members), RobustBCM(6), ORIGIN)
    means, variances = np.array(members).T
    assert variances.min() * (1 - 1e-9) <= variance <= variances[0] * (1 + 1e-9)
    assert means.min() - 1e-9 <= mean <= means.max() + 1e-9


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("large", [1.0, 1e6, 1e100], ids="{:g}".format)
@pytest.mark.parametrize("order", [1, -1], ids=["zero first", "zero last"])
def test_a_variance_of_zero_is_allowed(rule, large, order):
    """Rounding may make one of a small variance."""
    mean, variance, noise = predict(oracles(*[(1.0, 0.0), (2.0, large)][::order]), rule, ORIGIN)
    assert np.isfinite([mean, variance, noise]).all()
    assert 1.0 <= mean <= 2.0
    assert 0.0 <= variance <= large + 1.0


# In the estimators


def answer_by(rule, estimator, X):
    """Mean, variance of the field and of the noise, in the user's units."""
    units = estimator.units_
    mean, variance, noise = predict(estimator._state.ensemble, rule, units.inputs(X))
    return (
        units.target_offset + units.target_scale * mean,
        units.target_scale**2 * variance,
        units.target_scale**2 * noise,
    )


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("nearest", Nearest()),
        ("weighted", Weighted()),
        ("best_few", BestFew()),
        ("barycenter", Barycenter()),
        ("robust_bcm", RobustBCM()),
    ],
)
def test_a_rule_by_name_is_the_rule(name, rule):
    X, y = travelling()
    estimator = small(published, threshold=0.0, prediction=name).fit(X, y)
    by_name = estimator.predict(queries(), return_std=True)
    given_rule = estimator.set_params(prediction=rule).predict(queries(), return_std=True)
    for one, other in zip(by_name, given_rule, strict=True):
        np.testing.assert_array_equal(one, other)
    mean, variance, noise = answer_by(rule, estimator, queries())
    np.testing.assert_allclose(by_name, [mean, np.sqrt(variance + noise)], rtol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "rule"),
    [
        (small(published), Nearest()),
        (small(SolarGPRegressor, n_best=2), BestFew(2)),
        (small(LocalGPRegressor, n_models=4), Weighted(4)),
    ],
    ids=["WGPR", "SOLAR", "LGPR"],
)
def test_methods_predict_by_the_rule_of_their_paper(estimator, rule):
    estimator.fit(*travelling())
    mean, variance, _ = answer_by(rule, estimator, queries())
    np.testing.assert_allclose(estimator.predict(queries(), return_std=True, latent=True), [mean, np.sqrt(variance)])


class Oldest:
    """A rule of a user: the first model answers."""

    def combine(self, query):
        predictions = query.ask(np.zeros((len(query.X), 1), dtype=int))
        return Mixture(predictions, np.ones((len(query.X), 1)), predictions.variances[:, 0])


def test_a_rule_of_a_user():
    estimator = small(published, threshold=0.0, prediction=Oldest()).fit(*travelling())
    assert estimator.n_models_ > 1
    mean, std = estimator.predict(queries(), return_std=True, latent=True)
    expected_mean, expected_variance = answer_of(estimator.models_[0], estimator.units_, queries())
    np.testing.assert_allclose(mean, expected_mean)
    np.testing.assert_allclose(std**2, expected_variance)
    np.testing.assert_array_equal(estimator.model_index(queries()), 0)
