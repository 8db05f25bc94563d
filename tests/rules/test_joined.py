"""The rule Joined: models that agree predict as one Gaussian process, and all predictions are continuous."""

import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import exact_field_at, learned, relative_error, unlearned
from streams import queries, small, streamed, travelling
from wgpr import Hyperparameters, Nearest, SquaredExponential, WGPRegressor
from wgpr.ensemble.ensemble import Ensemble
from wgpr.rules.prediction import Joined, Query, predict, predict_jointly, predict_with_owners

KERNEL = SquaredExponential()
THETA = Hyperparameters(1.0, np.ones(1), 0.1)


def model_of(X, y, mean=0.0, n_skipped=1):
    return learned(unlearned(KERNEL, THETA, mean), X, y, THETA, X[::n_skipped])


def on_a_line(*fields, n=12, mean=0.0):
    """Models of one field each, one after the other, ten length-scales of line in all."""
    X = np.linspace(0.0, 10.0, n * len(fields))[:, None]
    rng = np.random.default_rng(0)
    models = [
        model_of(rows, field(rows[:, 0]) + 0.1 * rng.normal(size=n), mean * number)
        for number, (field, rows) in enumerate(zip(fields, np.split(X, len(fields)), strict=True))
    ]
    return Ensemble.of(models, 1)


def another_field(x):
    return 4.0 + 2.0 * np.sin(9.0 * x)


FIELDS = (np.sin, another_field, np.sin, another_field, np.cos)
LINE = np.linspace(-0.5, 10.5, 45)[:, None]


# Joint models


def test_models_that_agree_are_one_gaussian_process():
    """Up to the border between them and beyond it: the exact process of all rows."""
    X, rng = np.linspace(0.0, 6.0, 40)[:, None], np.random.default_rng(0)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    ensemble = Ensemble.of([model_of(X[:20], y[:20]), model_of(X[20:], y[20:])], 1)
    at = np.linspace(2.0, 4.0, 31)[:, None]
    mean, variance, noise = predict(ensemble, Joined(), at)
    expected = exact_field_at(KERNEL, THETA, X, y, at)
    assert relative_error(mean, expected.mean) < 1e-6
    np.testing.assert_allclose(variance, expected.covariance.diagonal(), rtol=1e-5)
    np.testing.assert_allclose(noise, THETA.noise**2)
    alone, _, _ = predict(ensemble, Nearest(), at)
    assert relative_error(alone, expected.mean) > 0.01


def test_models_of_different_fields_are_not_joined():
    ensemble = on_a_line(np.sin, another_field)
    for number in (0, 1):
        assert len(ensemble.joint_model(number, 1000).parts) == 1
    assert len(on_a_line(np.sin, np.sin).joint_model(0, 1000).parts) == 2


def test_a_joint_model_has_at_most_so_many_observations():
    ensemble = on_a_line(*[np.sin] * 4)
    for limit, n_parts in [(1, 1), (12, 1), (24, 2), (47, 3), (1000, 4)]:
        assert len(ensemble.joint_model(1, limit).parts) == n_parts


def test_one_model_without_neighbours_is_the_rule_nearest():
    ensemble = on_a_line(*FIELDS)
    for answer, expected in zip(
        predict(ensemble, Joined(1, n_observations=1), LINE), predict(ensemble, Nearest(), LINE), strict=True
    ):
        np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-9)


# Weights


@settings(max_examples=25)
@given(st.lists(st.floats(-5.0, 15.0), min_size=1, max_size=10), st.integers(1, 6), st.integers(1, 5))
def test_weights_are_positive_and_sum_to_one(places, n_models, n_fields):
    mixture = Joined(n_models).combine(Query(_on_a_line(n_fields), np.array(places)[:, None]))
    assert mixture.weights.shape == (len(places), min(n_models, n_fields))
    assert (mixture.weights >= 0).all()
    np.testing.assert_allclose(mixture.weights.sum(axis=1), 1.0)
    assert (mixture.variance >= 0).all()


@cache
def _on_a_line(n):
    return on_a_line(*FIELDS[:n])


def test_at_a_pseudo_input_its_owner_has_all_the_weight():
    ensemble = on_a_line(*FIELDS)
    for number, model in enumerate(ensemble.models):
        mixture = Joined().combine(Query(ensemble, model.inputs))
        np.testing.assert_allclose(mixture.weights[:, 0], 1.0)
        np.testing.assert_array_equal(mixture.predictions.members[:, 0], number)
        np.testing.assert_array_equal(predict_with_owners(ensemble, Joined(), model.inputs)[-1], number)


def test_far_away_all_models_have_equal_weights():
    """They are about equally near there, and equally uncertain."""
    mixture = Joined().combine(Query(on_a_line(*FIELDS[:2]), np.array([[1e6]])))
    np.testing.assert_allclose(mixture.weights, 0.5, rtol=1e-3)
    assert np.isfinite(mixture.variance).all()


@pytest.mark.parametrize("at", [0.0, 0.4, 3.0, 1e9])
def test_two_models_at_the_same_place(at):
    (model,) = on_a_line(np.sin).models
    other = model_of(model.inputs, np.full(len(model.inputs), 5.0))
    ensemble = Ensemble.of([model, other], 1)
    (mean,), (variance,), _ = predict(ensemble, Joined(), np.array([[at]]))
    means = [one.predict(np.array([[at]]))[0][0] for one in ensemble.models]
    assert min(means) - 1e-9 <= mean <= max(means) + 1e-9
    assert variance >= 0.2 * (means[1] - means[0]) ** 2  # they disagree, which adds to the variance


def test_one_model_predicts_alone():
    ensemble = on_a_line(np.sin)
    for answer, expected in zip(predict(ensemble, Joined(), LINE)[:2], ensemble.models[0].predict(LINE), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("options", [{"n_models": 0}, {"n_models": 1.5}, {"n_observations": 0}], ids=str)
def test_wrong_numbers_are_refused(options):
    with pytest.raises((ValueError, TypeError), match=next(iter(options))):
        Joined(**options)


# Continuity


def largest_step(rule, ensemble, n):
    """Largest difference of mean and of standard deviation between neighbouring ones of `n` queries along the line."""
    mean, variance, _ = predict(ensemble, rule, np.linspace(0.0, 10.0, n)[:, None])
    return np.array([np.abs(np.diff(mean)).max(), np.abs(np.diff(np.sqrt(variance))).max()])


@pytest.mark.parametrize("n_models", [1, 2, 3, 8])
def test_the_answer_is_continuous(n_models):
    """With steps 16 times as small the largest difference is much smaller; that of the rule Nearest stays."""
    ensemble = on_a_line(*FIELDS)
    coarse, fine = (largest_step(Joined(n_models), ensemble, n) for n in (1001, 16_001))
    if n_models == 1:
        assert (fine > 0.5 * coarse).any()  # one model alone is not continuous
    else:
        assert (fine < 0.2 * coarse).all()
    nearest, finer = (largest_step(Nearest(), ensemble, n) for n in (1001, 16_001))
    assert finer[0] > 0.9 * nearest[0]


def test_between_models_that_disagree_the_variance_is_large():
    """Half way the mean is between theirs."""
    ensemble = on_a_line(np.sin, another_field)
    left, right = (model.inputs for model in ensemble.models)
    border = 0.5 * (left.max() + right.min())
    (mean,), (variance,), _ = predict(ensemble, Joined(), np.array([[border]]))
    means = [model.predict(np.array([[border]]))[0][0] for model in ensemble.models]
    assert min(means) < mean < max(means)
    assert np.sqrt(variance) > 0.3 * np.ptp(means)


# Joint predictions


def test_covariances_have_the_variances_of_the_rule():
    ensemble = on_a_line(*FIELDS)
    mean, variance, noise = predict(ensemble, Joined(), LINE)
    field, joint_noise = predict_jointly(ensemble, Joined(), LINE)
    np.testing.assert_allclose(field.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(field.covariance.diagonal(), variance, rtol=1e-9)
    np.testing.assert_allclose(joint_noise, noise)
    assert np.linalg.eigvalsh(field.covariance).min() >= -1e-9 * field.covariance.trace()


def test_standard_deviations_and_covariances_of_an_estimator_agree():
    """With pending rows."""
    estimator = streamed(WGPRegressor)
    assert estimator.n_pending_ > 0
    for latent in (False, True):
        mean, std = estimator.predict(queries(), return_std=True, latent=latent)
        joint_mean, covariance = estimator.predict(queries(), return_cov=True, latent=latent)
        np.testing.assert_allclose(joint_mean, mean, rtol=1e-9)
        np.testing.assert_allclose(covariance.diagonal(), std**2, rtol=1e-9)


# The cache


def test_a_joint_model_is_made_once():
    ensemble = on_a_line(np.sin, np.sin, np.sin)
    assert ensemble.joint_model(0, 1000) is ensemble.joint_model(0, 1000)
    assert ensemble.joint_model(0, 1000) is not ensemble.joint_model(0, 20)


def test_a_joint_model_is_made_again_only_if_one_of_its_models_changes():
    ensemble = on_a_line(*[np.sin] * 20, n=3)
    before = [ensemble.joint_model(number, 1000) for number in (0, 19)]
    model = ensemble.models[0]
    changed = ensemble.with_model(model_of(model.inputs, np.sin(model.inputs[:, 0]) + 0.01), 0)
    after = [changed.joint_model(number, 1000) for number in (0, 19)]
    assert after[0] is not before[0]
    assert after[1] is before[1]
    assert changed.joint_model(1, 1000) is not ensemble.joint_model(1, 1000)


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr("wgpr.gp.joint._MAX_NUMBERS", 3000)
    ensemble = on_a_line(*[np.sin] * 6, n=5)
    for number in range(6):
        ensemble.joint_model(number, 1000)
    known = ensemble.joint_models._known.values()
    assert sum(model.L.size for model in known) <= 3000
    assert ensemble.joint_model(5, 1000) in known


def test_a_pickle_holds_no_joint_models_and_predicts_the_same():
    estimator = small(WGPRegressor).partial_fit(*travelling())
    expected = estimator.predict(queries(), return_std=True)
    restored = pickle.loads(pickle.dumps(estimator))
    assert not restored._state.ensemble.joint_models._known
    for answer, by_the_original in zip(restored.predict(queries(), return_std=True), expected, strict=True):
        np.testing.assert_array_equal(answer, by_the_original)
