"""Answers by the nearest pseudo-data, against a literal transcription."""

from dataclasses import replace

import numpy as np
import pytest

import dense_reference as dense
from streams_of_rows import wavy
from threads import at_once
from wgpr.ensemble import answers
from wgpr.ensemble.answers import PseudoDataIndex, agreement, n_nearest
from wgpr.ensemble.cuts import Cuts, route
from wgpr.ensemble.territories import Territories, TerritorySettings, learn
from wgpr.ensemble.territory import Territory
from wgpr.gp.kernels import Hyperparameters, Matern32, RationalQuadratic, SquaredExponential
from wgpr.gp.pseudodata import Posterior, PseudoData


@pytest.fixture(autouse=True)
def _never_all_at_once(monkeypatch):
    """So that few pseudo-data too are answered by the nearest of them."""
    monkeypatch.setattr(answers, "_MOST_JOINT", 0)


def territory(kernel, theta, Z, t, mean=None):
    data = PseudoData.of_rows(Z, t, np.ones(len(t)), theta.noise)
    mean = t.mean(axis=0) if mean is None else mean
    return Territory(kernel, theta, mean, data, len(t), len(t), len(t), Z.std(axis=0), len(t))


def row_of_territories(n=12, m=15, d=2, k=1, kernel=None, seed=0, jump=None):
    """Territories side by side along the first axis, hyperparameters a little different; `jump` : of another regime."""
    kernel, rng = kernel or RationalQuadratic(), np.random.default_rng(seed)
    models = []
    for i in range(n):
        log_theta = np.log(np.r_[1.0, np.full(d, 0.8), kernel.initial_shape(), 0.2]) + 0.1 * rng.normal(
            size=2 + d + kernel.n_shape
        )
        if jump is not None and i >= jump:
            log_theta += 2.0 * (-1.0) ** np.arange(len(log_theta))
        Z = rng.uniform(0.0, 1.0, (m, d)) + np.r_[i, np.zeros(d - 1)]
        t = np.sin(Z[:, :1] + np.arange(k)) + 0.2 * rng.normal(size=(m, k))
        models.append(territory(kernel, Hyperparameters.from_log(log_theta, d), Z, t))
    cuts = 0 if n == 1 else Cuts(0, tuple(float(i) for i in range(1, n)), tuple(range(n)))
    return Territories.of(models, cuts)


def index_of(territories):
    return PseudoDataIndex(territories.models, territories.cuts, territories.centres, territories.log_thetas)


CASES = [
    {},
    {"k": 3},
    {"kernel": SquaredExponential()},
    {"kernel": Matern32(), "d": 1},
    {"jump": 6},
    {"jump": 6, "n": 8},
    {"d": 5, "m": 40},
    {"n": 3, "m": 8},
    {"n": 1, "m": 40},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_a_literal_transcription(case):
    territories = row_of_territories(**case)
    d, index = territories.n_features, index_of(territories)
    X = np.random.default_rng(1).uniform(-1.0, 13.0, (25, d)) * np.r_[1.0, np.full(d - 1, 0.1)]
    found, owners = index.predict(X), route(territories.cuts, X)
    np.testing.assert_array_equal(found.owners, owners)
    for i, x in enumerate(X):
        mean, variance, noise = dense.answer(territories, owners[i], x, n_nearest(d))
        np.testing.assert_allclose(found.mean[i], mean, atol=1e-8)
        assert found.variance[i] == pytest.approx(variance, abs=1e-8)
        assert found.noise[i] == pytest.approx(noise, rel=1e-10)


def test_one_by_one_and_many_at_once():
    territories = row_of_territories(jump=8)
    X = np.random.default_rng(1).uniform(-1.0, 13.0, (300, 2))
    index = index_of(territories)
    together = index.predict(X)
    for i in range(0, 300, 7):
        for one, many in zip(index.predict(X[i : i + 1]), together, strict=True):
            np.testing.assert_allclose(one[0], many[i], rtol=1e-10, atol=1e-10)


def test_continuity_inside_one_regime():
    index = index_of(row_of_territories(n=20))
    path = np.column_stack([np.linspace(2.0, 17.0, 6001), np.full(6001, 0.4)])
    for values in index.predict(path)[:2]:
        steps = np.abs(np.diff(values.ravel()))
        largest = int(steps.argmax())
        low, high = path[largest], path[largest + 1]
        for _ in range(20):  # bisect towards the steepest part: a jump would stay
            middle = 0.5 * (low + high)
            ends = [np.ravel(each) for each in index.predict(np.array([low, middle, high]))[:2]]
            value = ends[0] if values.ndim > 1 else ends[1]
            low, high = (low, middle) if abs(value[1] - value[0]) > abs(value[2] - value[1]) else (middle, high)
        assert abs(value[2] - value[0]) < 1e-3 * steps.max() + 1e-9
        assert steps.max() < 20.0 * np.median(steps) + 1e-6


@pytest.mark.parametrize("kernel", [SquaredExponential(), RationalQuadratic(0.05)], ids=str)
@pytest.mark.parametrize("far", [1e3, 1e6])
def test_far_away_it_returns_to_the_prior(kernel, far):
    """A rational quadratic covariance falls slowly: numbers of far queries must still be right."""
    territories = row_of_territories(kernel=kernel)
    found = index_of(territories).predict(np.array([[far, 0.3]]))
    mean, variance, _ = dense.answer(territories, 11, np.array([far, 0.3]), 32)
    np.testing.assert_allclose(found.mean[0], mean, atol=1e-6)
    assert found.variance[0] == pytest.approx(variance, rel=1e-6)
    if isinstance(kernel, SquaredExponential):
        assert abs(found.mean[0, 0]) < 1.5
        assert found.variance[0] == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize("far", [1e30, 1e60])
def test_very_far_away(far):
    found = index_of(row_of_territories()).predict(np.array([[far, 0.3]]))
    assert abs(found.mean[0, 0]) < 1.5
    assert found.variance[0] == pytest.approx(1.0, rel=0.5)


def test_one_point():
    theta = Hyperparameters(1.0, np.ones(2), 0.1, np.ones(1))
    one = Territories.of([territory(RationalQuadratic(), theta, np.zeros((1, 2)), np.ones((1, 1)))], 0)
    found = index_of(one).predict(np.array([[0.0, 0.0], [50.0, 0.0]]))
    np.testing.assert_allclose(found.mean, 1.0)
    assert found.variance[0] == pytest.approx(1.0 - 1.0 / 1.01)
    assert found.variance[1] > 0.9


def test_many_rows_of_one_place():
    """They are one observation, and leave room for others among the nearest."""
    theta, rng = Hyperparameters(1.0, np.ones(1), 0.5, np.ones(1)), np.random.default_rng(0)
    Z = np.repeat(np.array([[0.0], [0.3], [5.0]]), 50, axis=0)
    t = np.sin(Z) + 3.0 + 0.5 * rng.normal(size=Z.shape)
    found = index_of(Territories.of([territory(RationalQuadratic(), theta, Z, t, np.zeros(1))], 0)).predict(Z[::50])
    exact = dense.posterior(
        RationalQuadratic(), theta, np.zeros(1), Z, t, np.full(150, 4.0), Z[::50]
    )  # fmt: skip
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, np.diag(exact.covariance), atol=1e-8)


def test_places_that_are_all_equally_far():
    theta, angle = Hyperparameters(1.0, np.ones(2), 0.1, np.ones(1)), np.arange(64) * np.pi / 32
    ring = np.round(np.column_stack([np.cos(angle), np.sin(angle)]), 12)
    found = index_of(
        Territories.of([territory(RationalQuadratic(), theta, ring, np.full((64, 1), 5.0), np.zeros(1))], 0)
    ).predict(np.zeros((1, 2)))
    assert found.mean[0, 0] > 3.0


def test_a_dense_regime_beside_a_sparse_one():
    """Near the border, all of the nearest are of the other regime; the answer is by those of its own."""
    rng = np.random.default_rng(0)
    smooth, rough = Hyperparameters(1.0, np.array([4.0]), 0.1), Hyperparameters(3.0, np.array([0.05]), 0.1)
    left, right = np.linspace(-10.0, 0.0, 12)[:, None], np.linspace(0.0, 1.0, 101)[1:, None]
    models = [
        territory(SquaredExponential(), smooth, left, np.sin(0.5 * left)),
        territory(SquaredExponential(), rough, right, rng.normal(size=(100, 1))),
    ]
    territories = Territories.of(models, Cuts(0, (0.0,), (0, 1)))
    X = np.linspace(-1.5, 0.0, 20)[:, None]
    found = index_of(territories).predict(X)
    np.testing.assert_allclose(found.mean, np.sin(0.5 * X), atol=0.15)
    assert np.sqrt(found.variance).max() < 0.15


def test_agreement():
    zero = np.zeros((3, 4))
    np.testing.assert_array_equal(agreement(zero, zero + 0.6), 1.0)
    np.testing.assert_array_equal(agreement(zero, zero + 1.0), 0.0)
    np.testing.assert_allclose(agreement(zero, zero + 0.8), 0.5)


def test_few_pseudo_data_have_one_posterior(monkeypatch):
    monkeypatch.setattr(answers, "_MOST_JOINT", 1000)
    territories = row_of_territories(n=4)
    X = np.random.default_rng(1).uniform(0.0, 4.0, (20, 2))
    theta = Hyperparameters.from_log(territories.log_thetas.mean(axis=0), 2)
    mean = np.mean([model.mean for model in territories.models], axis=0)
    data = PseudoData.union(*(model.data for model in territories.models))
    expected = dense.posterior(RationalQuadratic(), theta, mean, data.Z, data.t, data.precision, X)
    index = index_of(territories)
    np.testing.assert_allclose(index.predict(X).mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(index.predict(X).variance, np.diag(expected.covariance), atol=1e-9)
    np.testing.assert_allclose(index.joint(X), expected.covariance, atol=1e-9)


@pytest.mark.parametrize("jump", [None, 6])
@pytest.mark.parametrize("n", [1, 5, 60])
def test_covariance(monkeypatch, jump, n):
    monkeypatch.setattr(answers, "_MOST_JOINT", 100)
    X = np.random.default_rng(1).uniform(0.0, 12.0, (n, 2)) * [1.0, 0.1]
    covariance = index_of(row_of_territories(jump=jump)).joint(X)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_threads_ask_while_another_learns():
    X, y = wavy(600)
    kernel = RationalQuadratic()
    first = Territories.begin(kernel, X[:20], y[:20], np.ones(20))
    states = [first]

    def learning():
        for start in range(20, 600, 58):
            rows = slice(start, start + 58)
            states.append(learn(states[-1], TerritorySettings(kernel), X[rows], y[rows], np.ones(58), 0).territories)

    def asking():
        return [np.isfinite(states[-1].index.predict(X[i : i + 5]).mean).all() for i in range(40)]

    results = at_once([learning, asking, asking])
    assert all(results[1] + results[2])
    again = replace(states[3])
    np.testing.assert_array_equal(again.index.predict(X[:9]).mean, states[3].index.predict(X[:9]).mean)


def test_a_territory_alone_is_its_posterior():
    territories = row_of_territories(n=1, m=20)
    (model,) = territories.models
    X = np.random.default_rng(1).uniform(0.0, 1.0, (9, 2))
    expected = Posterior(model.kernel, model.theta, model.mean, model.data).predict(X)
    found = index_of(territories).predict(X)
    np.testing.assert_allclose(found.mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(found.variance, expected[1], atol=1e-9)
