"""Answers by posteriors of territories with their halo, against a literal transcription."""

import gc
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest

import dense_reference as dense
from streams_of_rows import answers_of, wavy
from threads import at_once
from wgpr.ensemble import answers
from wgpr.ensemble.answers import PosteriorCache, joint_covariance
from wgpr.ensemble.cuts import Cuts, route
from wgpr.ensemble.territories import Territories, TerritorySettings, learn
from wgpr.ensemble.territory import Territory, agreement
from wgpr.gp.kernels import Hyperparameters, Matern32, RationalQuadratic, SquaredExponential
from wgpr.gp.pseudodata import Posterior, PseudoData


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
    d = territories.n_features
    X = np.random.default_rng(1).uniform(-1.0, 13.0, (20, d)) * np.r_[1.0, np.full(d - 1, 0.1)]
    X[:10, 0] = np.round(X[:10, 0]) + 0.1 * (X[:10, 0] % 1.0 - 0.5)  # half of them close to borders
    found = answers_of(territories, X)
    np.testing.assert_array_equal(found.owners, route(territories.cuts, X))
    for i, x in enumerate(X):
        mean, variance, noise = dense.answer(territories, x)
        np.testing.assert_allclose(found.mean[i], mean, atol=1e-8)
        assert found.variance[i] == pytest.approx(variance, abs=1e-8)
        assert found.noise[i] == pytest.approx(noise, rel=1e-8)


def test_the_halo_is_limited(monkeypatch):
    """More pseudo-data than a halo may have: with many inputs, the nearest to the ground are in it."""
    monkeypatch.setattr(answers, "halo_sizes", lambda n_features: (7, 3))
    monkeypatch.setattr(answers, "_FEW_INPUTS", 1)
    territories = row_of_territories(n=6, m=20)
    ground = territories.overview.grounds[2]
    cache = PosteriorCache()
    answers_of(territories, np.array([[2.5, 0.5]]), cache)
    points = cache.get(2).posterior.data.Z
    assert len(points) == 7 + 20
    others = np.concatenate([territories.models[i].data.Z for i in (1, 3)])
    gaps = np.maximum(ground[0, 0] - others[:, 0], others[:, 0] - ground[1, 0])
    np.testing.assert_allclose(np.sort(points[:7, 0]), np.sort(others[np.argsort(gaps)[:7], 0]))


def test_each_part_of_a_long_ground_has_what_is_nearest_to_it():
    """The data of the territory are at one end of its ground, and those of others are along all of it."""
    theta, rng = Hyperparameters(1.0, np.ones(2), 0.01), np.random.default_rng(0)

    def field(Z):
        return 10.0 + np.sin(0.7 * Z[:, :1]) + np.cos(0.5 * Z[:, 1:])

    def places(n, low, high):
        return rng.uniform(low, high, (n, 2))

    grounds = [((0.0, 0.0), (1.0, 3.0)), ((-4.0, 0.0), (0.0, 60.0)), ((1.0, 0.0), (5.0, 60.0))]
    parts = [places(n, *ground) for n, ground in zip((30, 600, 600), grounds, strict=True)]
    models = [territory(SquaredExponential(), theta, Z, field(Z)) for Z in parts]
    territories = Territories.of(models, Cuts(0, (0.0, 1.0), (1, 0, 2)))
    X = np.column_stack([np.full(50, 0.5), np.linspace(0.0, 60.0, 50)])
    found = answers_of(territories, X)
    assert np.abs(found.mean - field(X)).max() < 0.3  # 0.14
    assert found.variance.max() < 0.5  # 0.30; the prior variance is 1


@pytest.mark.parametrize(("d", "is_all_over"), [(2, True), (3, True), (4, False)])
def test_a_ground_of_up_to_three_inputs_has_what_is_nearest_to_each_part(d, is_all_over):
    Z, ground = np.random.default_rng(0).uniform(0.0, 1.0, (400, d)), np.array([np.zeros(d), np.ones(d)])
    others = PseudoData.of_rows(Z, Z[:, :1], np.ones(400), 0.1)
    assert (len(answers._halo(others, ground, np.ones(d), 20)) > 20) == is_all_over


def test_one_by_one_and_many_at_once():
    territories, cache = row_of_territories(jump=8), PosteriorCache()
    X = np.random.default_rng(1).uniform(-1.0, 13.0, (300, 2))
    together = answers_of(territories, X, cache)
    for i in range(0, 300, 7):
        for one, many in zip(answers_of(territories, X[i : i + 1], cache), together, strict=True):
            np.testing.assert_allclose(one[0], many[i], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", [{"n": 20}, {"n": 20, "jump": 9}, {"n": 20, "d": 5}], ids=str)
def test_continuity(case):
    """The steepest step of a line, bisected 30 times: a jump would stay."""
    territories, cache = row_of_territories(**case), PosteriorCache()
    path = np.full((6001, territories.n_features), 0.4)
    path[:, 0] = np.linspace(2.0, 17.0, 6001)
    for part in (0, 1):
        values = answers_of(territories, path, cache)[part].ravel()
        largest = int(np.abs(np.diff(values)).argmax())
        low, high = path[largest], path[largest + 1]
        for _ in range(30):
            middle = 0.5 * (low + high)
            ends = answers_of(territories, np.array([low, middle, high]), cache)[part].ravel()
            low, high = (low, middle) if abs(ends[1] - ends[0]) > abs(ends[2] - ends[1]) else (middle, high)
        assert abs(ends[2] - ends[0]) < 1e-5


@pytest.mark.parametrize("kernel", [SquaredExponential(), RationalQuadratic(0.05)], ids=str)
@pytest.mark.parametrize("far", [1e3, 1e6])
def test_far_away_it_returns_to_the_prior(kernel, far):
    """A rational quadratic covariance falls slowly: numbers of far queries must still be right."""
    territories = row_of_territories(kernel=kernel)
    found = answers_of(territories, np.array([[far, 0.3]]))
    mean, variance, _ = dense.answer(territories, np.array([far, 0.3]))
    np.testing.assert_allclose(found.mean[0], mean, atol=1e-6)
    assert found.variance[0] == pytest.approx(variance, rel=1e-6)
    if isinstance(kernel, SquaredExponential):
        assert abs(found.mean[0, 0]) < 1.5
        assert found.variance[0] == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize("far", [1e30, 1e60])
def test_very_far_away(far):
    found = answers_of(row_of_territories(), np.array([[far, 0.3]]))
    assert abs(found.mean[0, 0]) < 1.5
    assert found.variance[0] == pytest.approx(1.0, rel=0.5)


def test_one_point():
    theta = Hyperparameters(1.0, np.ones(2), 0.1, np.ones(1))
    one = Territories.of([territory(RationalQuadratic(), theta, np.zeros((1, 2)), np.ones((1, 1)))], 0)
    found = answers_of(one, np.array([[0.0, 0.0], [50.0, 0.0]]))
    np.testing.assert_allclose(found.mean, 1.0)
    assert found.variance[0] == pytest.approx(1.0 - 1.0 / 1.01)
    assert found.variance[1] > 0.9


def test_many_rows_of_one_place():
    """They are one observation."""
    theta, rng = Hyperparameters(1.0, np.ones(1), 0.5, np.ones(1)), np.random.default_rng(0)
    Z = np.repeat(np.array([[0.0], [0.3], [5.0]]), 50, axis=0)
    t = np.sin(Z) + 3.0 + 0.5 * rng.normal(size=Z.shape)
    found = answers_of(Territories.of([territory(RationalQuadratic(), theta, Z, t, np.zeros(1))], 0), Z[::50])
    exact = dense.posterior(RationalQuadratic(), theta, None, Z, t, np.full(150, 4.0), Z[::50])
    np.testing.assert_allclose(found.mean, exact.mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, np.diag(exact.covariance), atol=1e-8)


def test_a_dense_regime_beside_a_sparse_one():
    """Near the border, nearly all pseudo-data are of the other regime; the answer is by those of its own."""
    rng = np.random.default_rng(0)
    smooth, rough = Hyperparameters(1.0, np.array([4.0]), 0.1), Hyperparameters(3.0, np.array([0.05]), 0.1)
    left, right = np.linspace(-10.0, 0.0, 12)[:, None], np.linspace(0.0, 1.0, 101)[1:, None]
    models = [
        territory(SquaredExponential(), smooth, left, np.sin(0.5 * left)),
        territory(SquaredExponential(), rough, right, rng.normal(size=(100, 1))),
    ]
    territories = Territories.of(models, Cuts(0, (0.0,), (0, 1)))
    X = np.linspace(-1.5, 0.0, 20)[:, None]
    found = answers_of(territories, X)
    np.testing.assert_allclose(found.mean, np.sin(0.5 * X), atol=0.15)
    assert np.sqrt(found.variance).max() < 0.15


def test_agreement():
    zero = np.zeros((3, 4))
    np.testing.assert_array_equal(agreement(zero, zero + 0.6), 1.0)
    np.testing.assert_array_equal(agreement(zero, zero + 1.0), 0.0)
    np.testing.assert_allclose(agreement(zero, zero + 0.8), 0.5)


@pytest.mark.parametrize("jump", [None, 6])
@pytest.mark.parametrize("n", [1, 5, 60])
def test_covariance(monkeypatch, jump, n):
    monkeypatch.setattr(answers, "_MOST_JOINT", 100)
    X = np.random.default_rng(1).uniform(0.0, 12.0, (n, 2)) * [1.0, 0.1]
    covariance = joint_covariance(row_of_territories(jump=jump), X, PosteriorCache(), 2**28)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-12)
    assert np.linalg.eigvalsh(covariance).min() > -1e-9


def test_covariance_in_one_territory():
    territories = row_of_territories(n=1, m=30)
    (model,) = territories.models
    X = np.random.default_rng(1).uniform(0.0, 1.0, (9, 2))
    expected = dense.posterior(
        model.kernel, model.theta, model.mean, model.data.Z, model.data.t, model.data.precision, X
    )  # fmt: skip
    found = joint_covariance(territories, X, PosteriorCache(), 2**28)
    np.testing.assert_allclose(found, expected.covariance, atol=1e-9)


@pytest.mark.parametrize("n", [2, 4])
def test_covariance_in_several_territories(n):
    """They are few: it is one posterior of all, with the mean of the hyperparameters."""
    territories = row_of_territories(n=n)
    X = np.random.default_rng(1).uniform(0.0, n, (20, 2)) * [1.0, 0.3]
    recipes = [answers._recipe(territories, number) for number in range(n)]
    theta = Hyperparameters.from_log(np.mean([recipe.log_theta for recipe in recipes], axis=0), 2)
    data = PseudoData.union(*(model.data for model in territories.models))
    expected = dense.posterior(RationalQuadratic(), theta, np.zeros(1), data.Z, data.t, data.precision, X)
    found = joint_covariance(territories, X, PosteriorCache(), 2**28)
    np.testing.assert_allclose(found, expected.covariance, atol=1e-9)


def test_covariance_next_to_a_border():
    """A query in the next territory does not change what is known of the others."""
    territories = row_of_territories(n=12)
    X = np.column_stack([np.linspace(4.6, 5.0, 5), np.full(5, 0.5)])
    alone = joint_covariance(territories, X, PosteriorCache(), 2**28)
    more = joint_covariance(territories, np.concatenate([X, [[5.2, 0.5]]]), PosteriorCache(), 2**28)
    np.testing.assert_allclose(np.sqrt(more.diagonal()[:5]), np.sqrt(alone.diagonal()), rtol=0.15)


def test_pieces(monkeypatch):
    """Many queries of one territory are answered in pieces, with the same answers."""
    territories = row_of_territories()
    X = np.random.default_rng(1).uniform(0.0, 12.0, (500, 2)) * [1.0, 0.1]
    expected, sizes = answers_of(territories, X), []
    distances = answers._distances
    monkeypatch.setattr(answers, "_PIECE", 600)
    monkeypatch.setattr(answers, "_distances", lambda *arrays: sizes.append(len(arrays[-1])) or distances(*arrays))
    for one, other in zip(answers_of(territories, X), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert max(sizes) <= 300


class TestCache:
    def test_it_is_bounded(self):
        territories, cache = row_of_territories(n=20), PosteriorCache()
        X = np.random.default_rng(1).uniform(0.0, 20.0, (200, 2)) * [1.0, 0.05]
        expected = answers_of(territories, X)
        size = 300_000
        for one, other in zip(answers_of(territories, X, cache, size), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
        assert 0 < cache.n_bytes <= size
        assert cache.n_bytes == sum(local.posterior.n_bytes for local in cache._kept.values())

    def test_what_is_replaced_no_longer_counts(self):
        X, cache = np.array([[1.5, 0.5]]), PosteriorCache()
        for seed in (0, 1, 2):
            answers_of(row_of_territories(n=3, seed=seed), X, cache)
        assert cache.n_bytes == sum(local.posterior.n_bytes for local in cache._kept.values())

    def test_what_was_used_longest_ago_goes_first(self):
        territories, cache = row_of_territories(n=20), PosteriorCache()

        def ask(number):
            answers_of(territories, np.array([[number + 0.5, 0.5]]), cache, size)

        size = 2**28
        ask(3)
        size = int(2.5 * cache.n_bytes)
        for number in (9, 3, 15):
            ask(number)
        assert list(cache._kept) == [3, 15]

    def test_other_hyperparameters_need_another_posterior(self):
        territories, cache = row_of_territories(n=3), PosteriorCache()
        X = np.random.default_rng(1).uniform(0.0, 3.0, (20, 2)) * [1.0, 0.3]
        answers_of(territories, X, cache)
        models = [
            replace(model, theta=replace(model.theta, amplitude=1.3 * model.theta.amplitude))
            for model in territories.models
        ]
        other = Territories.of(models, territories.cuts)
        for one, two in zip(answers_of(other, X, cache), answers_of(other, X), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-9)

    def test_old_territories_are_not_kept_alive(self):
        territories, cache = row_of_territories(), PosteriorCache()
        answers_of(territories, np.array([[3.0, 0.5]]), cache)
        model = ref(territories.models[4])
        del territories
        gc.collect()
        assert model() is None

    def test_nothing_is_kept_without_memory(self):
        territories, cache = row_of_territories(), PosteriorCache()
        answers_of(territories, np.array([[3.0, 0.5]]), cache, 0)
        assert cache.n_bytes == 0

    def test_posteriors_are_kept_until_something_near_changes(self):
        rng = np.random.default_rng(0)
        X, ones = np.linspace(0.0, 1200.0, 9000)[:, None], np.ones(9000)
        y, kernel = np.sin(3.0 * X) + 0.02 * rng.normal(size=X.shape), RationalQuadratic()
        first = learn(Territories.begin(kernel, X[:20], y[:20], ones[:20]), TerritorySettings(kernel), X[20:], y[20:],
                      ones[20:], 0).territories  # fmt: skip
        cache = PosteriorCache()
        answers_of(first, X, cache)
        before = {number: cache.get(number).posterior for number in range(len(first))}
        corner = np.zeros((1, 1))
        second = learn(first, TerritorySettings(kernel), corner, np.zeros((1, 1)), ones[:1], 0).territories
        found, expected = answers_of(second, X, cache), answers_of(second, X)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8)
        assert len(second) == len(first) > 24  # so that some are not near
        is_kept = [cache.get(number).posterior is before[number] for number in range(len(first))]
        assert any(is_kept)
        assert not is_kept[int(route(second.cuts, corner)[0])]

    def test_rows_extend_what_is_kept(self, monkeypatch):
        """Rows one by one, each asked for afterwards: as if nothing were kept, in few factorisations."""
        X, y = wavy(400)
        kernel, cache, n_made = RationalQuadratic(), PosteriorCache(), []
        made = answers.Posterior.__init__
        monkeypatch.setattr(answers.Posterior, "__init__", lambda self, *args: n_made.append(made(self, *args)))
        states = [Territories.begin(kernel, X[:20], y[:20], np.ones(20))]
        for i in range(20, 140):
            states.append(learn(states[-1], TerritorySettings(kernel), X[i : i + 1], y[i : i + 1], np.ones(1), 0)[0])
            found = answers_of(states[-1], X[i : i + 40], cache)
            for one, other in zip(found, answers_of(states[-1], X[i : i + 40]), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
        n_made.clear()
        answers_of(states[-2], X[:40], cache)
        answers_of(states[-1], X[:40], cache)
        assert len(states[-1]) == 1
        assert len(n_made) == 1  # of the state before; the last row extends it

    def test_two_versions_in_turn(self):
        territories = row_of_territories()
        other = row_of_territories(seed=1)
        X, cache = np.random.default_rng(1).uniform(0.0, 12.0, (50, 2)) * [1.0, 0.1], PosteriorCache()
        for each in (territories, other, territories):
            np.testing.assert_array_equal(answers_of(each, X, cache).mean, answers_of(each, X).mean)


def test_threads_ask_while_another_learns():
    X, y = wavy(600)
    kernel, cache = RationalQuadratic(), PosteriorCache()
    states = [Territories.begin(kernel, X[:20], y[:20], np.ones(20))]
    wrong = []

    def learning():
        for start in range(20, 600, 58):
            rows = slice(start, start + 58)
            states.append(learn(states[-1], TerritorySettings(kernel), X[rows], y[rows], np.ones(58), 0).territories)

    def asking():
        for i in range(40):
            state = states[-1]
            found = answers_of(state, X[i : i + 5], cache, 200_000).mean
            if not np.allclose(found, answers_of(state, X[i : i + 5]).mean, rtol=0.0, atol=1e-9):
                wrong.append(i)
        return True

    results = at_once([learning, asking, asking])
    assert all(results[1:])
    assert not wrong


def test_a_territory_alone_is_its_posterior():
    territories = row_of_territories(n=1, m=20)
    (model,) = territories.models
    X = np.random.default_rng(1).uniform(0.0, 1.0, (9, 2))
    expected = Posterior(model.kernel, model.theta, None, model.data).predict(X)
    found = answers_of(territories, X)
    np.testing.assert_allclose(found.mean, expected[0], atol=1e-9)
    np.testing.assert_allclose(found.variance, expected[1], atol=1e-9)


def test_answers_are_prepared_as_far_as_there_is_time_and_room():
    territories, cache = row_of_territories(n=20), PosteriorCache()
    assert not answers.prepare(territories, cache, 2**28, 0.0)
    assert len(cache._kept) == 1
    assert answers.prepare(territories, cache, 2**28, 60.0)
    kept = dict(cache._kept)
    assert len(kept) == 20
    answers_of(territories, territories.overview.centres, cache)
    assert {number: local.posterior for number, local in cache._kept.items()} == {
        number: local.posterior for number, local in kept.items()
    }
    small, room = PosteriorCache(), cache.n_bytes // 4
    assert answers.prepare(territories, small, room, 60.0)
    assert 0 < small.n_bytes < room
