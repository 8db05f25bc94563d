"""The default estimator: awkward surveys, weights, and what is known at once."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest

from streams_of_rows import wavy
from threads import at_once
from wgpr import WGPRegressor
from wgpr.ensemble import territories


def bumps(n=400, d=2, seed=0, noise=0.1):
    """A smooth map: inputs (n, d) from 0 to 10, targets (n,), and the field."""
    X = np.random.default_rng(seed).uniform(0.0, 10.0, (n, d))
    return X, field_at(X) + noise * np.random.default_rng(seed + 1).normal(size=n), field_at(X)


def field_at(X):
    return np.sin(X[:, 0]) + np.cos(X[:, -1])


@cache
def _fitted_bytes(n):
    X, y, _ = bumps(n)
    return pickle.dumps(WGPRegressor().fit(X, y))


def fitted(n):
    """An estimator that has fitted `bumps(n)`; a copy, and quicker than learning again."""
    return pickle.loads(_fitted_bytes(n))


def rmse(estimator, X, truth):
    return np.sqrt(np.mean((estimator.predict(X) - truth) ** 2))


def assert_same_answers(one, other, X, **tolerance):
    for mine, others in zip(one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(mine, others, **tolerance)


def test_bounds_are_those_of_all_rows():
    X, y, _ = bumps(100)
    order = np.argsort(np.abs(X - 5.0).max(axis=1))  # the outermost come last
    estimator = WGPRegressor()
    for rows in np.array_split(order, 4):
        estimator.partial_fit(X[rows], y[rows])
    np.testing.assert_array_equal(estimator.bounds_, [X.min(axis=0), X.max(axis=0)])


# No row waits


def test_no_row_waits():
    X, y, _ = bumps(60)
    estimator = WGPRegressor()
    for n in range(1, 61):
        estimator.partial_fit(X[n - 1 : n], y[n - 1 : n])
        assert estimator.n_pending_ == 0
        assert estimator.n_samples_seen_ == n
    before = estimator.predict(X, return_std=True)
    state = estimator._state
    estimator.flush()
    assert estimator._state is state
    np.testing.assert_array_equal(estimator.predict(X, return_std=True), before)


@pytest.mark.parametrize("n_learned", [1, 5, 19, 20, 21, 170])
def test_a_row_is_known_at_once(n_learned):
    X, y, _ = bumps(n_learned, noise=0.01)
    estimator = WGPRegressor().partial_fit(X, y)
    place = np.array([[20.0, 20.0]])
    before = copy.deepcopy(estimator).predict(place, return_std=True)
    estimator.partial_fit(place, [y.mean() + 0.5])
    after = estimator.predict(place, return_std=True)
    assert abs(after[0] - y.mean() - 0.5) < max(0.1, abs(before[0] - y.mean() - 0.5))


@pytest.mark.parametrize("k", [1, 2])
def test_one_by_one_and_all_at_once(k):
    X, y = wavy(200, k=k)
    weights = np.random.default_rng(0).uniform(0.2, 5.0, 200)
    at_once_, one_by_one = WGPRegressor().partial_fit(X, y, sample_weight=weights), WGPRegressor()
    for i in range(200):
        one_by_one.partial_fit(X[i : i + 1], y[i : i + 1], sample_weight=weights[i : i + 1])
    assert_same_answers(one_by_one, at_once_, X, rtol=0, atol=0)
    np.testing.assert_array_equal(one_by_one._state.calibration.counts, at_once_._state.calibration.counts)
    fitted = WGPRegressor().fit(X, y, sample_weight=weights)
    assert_same_answers(fitted, at_once_, X, rtol=0, atol=0)


# Awkward surveys


def test_repeated_places_with_different_values():
    P = bumps(40)[0]
    X, rng = np.repeat(P, 60, axis=0), np.random.default_rng(0)
    y = field_at(X) + 0.2 * rng.normal(size=len(X))
    estimator = WGPRegressor().fit(X, y)
    means = y.reshape(40, 60).mean(axis=1)
    mean, std = estimator.predict(P, return_std=True, latent=True)
    np.testing.assert_allclose(mean, means, atol=0.1)
    assert std.max() < 0.1
    assert estimator.predict(P, return_std=True)[1].mean() == pytest.approx(0.2, rel=0.3)


@pytest.mark.parametrize("at", [5, 100, 150, 399])
def test_a_spike(at):
    """The survey is as good as without that row."""
    X, y, _ = bumps()
    near = X[at] + np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))
    others = np.arange(400) != at
    spiked = WGPRegressor().fit(X, np.where(others, y, y + 100.0 * y.std()))
    without = WGPRegressor().fit(X[others], y[others])
    assert rmse(spiked, near, field_at(near)) < 1.2 * rmse(without, near, field_at(near))


@pytest.mark.parametrize("seed", range(3))
def test_a_jump_of_the_field_at_known_places(seed):
    """Each of these rows is an outlier next to what is known; so many of them on one side are not."""
    rng = np.random.default_rng(seed)
    X, known, changed = bumps(1500, seed=seed)[0], slice(1500), slice(1500, 1540)
    X = np.concatenate([X, rng.uniform(3.0, 4.0, (40, 2))])
    y = field_at(X) + 0.1 * rng.normal(size=len(X))
    estimator = WGPRegressor().fit(X[known], y[known]).partial_fit(X[changed], y[changed] + 100.0)
    assert np.median(estimator.predict(X[changed]) - y[changed]) > 20.0  # 0 if they are judged one by one


@pytest.mark.parametrize("n_jumped", [14, 15, 16])
def test_an_instrument_that_jumps_and_then_repeats_its_last_row(n_jumped):
    rng = np.random.default_rng(0)
    X, jumped = rng.uniform(0.0, 4.0, (80, 2)), rng.uniform(1.0, 3.0, (n_jumped, 2))
    y, y_jumped = (np.sin(2.0 * Z[:, 0]) + 0.1 * rng.normal(size=len(Z)) for Z in (X, jumped))
    model = WGPRegressor().fit(X, y).partial_fit(jumped, y_jumped + 100.0)
    model.partial_fit(np.tile(jumped[-1], (300, 1)), np.tile(y_jumped[-1] + 100.0, 300))
    assert model.n_samples_seen_ == 380 + n_jumped
    assert np.isfinite(model.predict(X)).all()


def test_outliers_on_both_sides_are_no_jump_of_the_field():
    X = np.concatenate([bumps(1500)[0], np.random.default_rng(0).uniform(3.0, 4.0, (24, 2))])
    y, known, wild = field_at(X) + 0.1 * np.random.default_rng(1).normal(size=1524), slice(1500), slice(1500, 1524)
    y[wild] += np.tile([100.0, -100.0], 12)
    estimator = WGPRegressor().fit(X[known], y[known])
    for i in range(1500, 1524):
        estimator.partial_fit(X[i : i + 1], y[i : i + 1])
    np.testing.assert_allclose(estimator.predict(X[wild]), field_at(X[wild]), atol=1.0)


def test_rows_of_next_to_no_weight_are_no_jump_of_the_field():
    """The last row is a spike, although half of the rows before it are as far out: they say nothing."""
    rng = np.random.default_rng(0)
    X, places = rng.uniform(0.0, 4.0, (60, 2)), rng.uniform(1.0, 3.0, (31, 2))
    values, weights = field_at(places), np.ones(31)
    values[::2] += 100.0
    weights[:30:2] = 1e-6
    estimator = WGPRegressor().fit(X, field_at(X) + 0.05 * rng.normal(size=60))
    estimator.partial_fit(places, values, sample_weight=weights)
    assert rmse(estimator, places, field_at(places)) < 0.1  # above 5 if the last one is learned as it is


def test_longitude_and_latitude():
    X, y, truth = bumps()
    degrees = np.array([-77.4, 40.1]) + 1e-4 * X
    assert rmse(WGPRegressor().fit(degrees, y), degrees, truth) < 0.07


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("target_unit", [1e-9, 1e9])
def test_units(unit, target_unit):
    X, y, _ = bumps(200)
    mean, std = fitted(200).predict(X, return_std=True)
    other = WGPRegressor().fit(unit * X, target_unit * y).predict(unit * X, return_std=True)
    np.testing.assert_allclose(other[0] / target_unit, mean, atol=1e-6)
    np.testing.assert_allclose(other[1] / target_unit, std, atol=1e-6)


def test_log_evidence_is_of_targets_in_their_unit():
    X, y, _ = bumps(300)
    metres, kilometres = (WGPRegressor().fit(X, unit * y).history_ for unit in (1.0, 0.001))
    assert [record.n_samples for record in metres] == [record.n_samples for record in kilometres]
    for one, other in zip(metres, kilometres, strict=True):
        assert other.evidence[0] - one.evidence[0] == pytest.approx(one.n_samples * np.log(1000.0), abs=1e-3)


def test_columns_of_different_scale():
    X, y, _ = bumps(600, d=3)
    scale = np.array([1e-3, 1.0, 1e3])
    one, other = WGPRegressor().fit(X, y), WGPRegressor().fit(X * scale, y)
    for mine, others in zip(one.predict(X, return_std=True), other.predict(X * scale, return_std=True), strict=True):
        np.testing.assert_allclose(mine, others, atol=1e-6)


def test_a_straight_line():
    x = np.linspace(0.0, 30.0, 900)
    X = np.column_stack([0.6 * x, 0.8 * x])
    y = np.sin(x) + 0.1 * np.random.default_rng(0).normal(size=900)
    estimator = WGPRegressor().fit(X, y)
    assert rmse(estimator, X, np.sin(x)) < 0.06
    beside = estimator.predict([[0.6 * 15 - 8.0, 0.8 * 15 + 6.0]], return_std=True)  # 10 away from the line
    assert abs(beside[0][0]) < 2.0


def test_flat_for_long():
    rng, x = np.random.default_rng(0), np.linspace(0.0, 60.0, 4500)
    truth = np.where(x < 40.0, 0.0, np.sin(2.0 * (x - 40.0)))
    for noise, limit in ((0.0, 0.15), (0.01, 0.01)):  # without noise, some rows behind the border count as flat
        estimator = WGPRegressor().fit(x[:, None], truth + noise * rng.normal(size=4500))
        assert rmse(estimator, x[:, None], truth) < limit
        history = [abs(each.evidence[0]) / each.n_samples for each in estimator.history_ if each.n_samples]
        assert max(history) < 50.0


@pytest.mark.parametrize("level", [0.0, 3.0, -1e6])
def test_a_constant_target(level):
    X, _, _ = bumps(200)
    mean, std = WGPRegressor().fit(X, np.full(200, level)).predict(X, return_std=True)
    np.testing.assert_allclose(mean, level, rtol=1e-6)
    assert (std < 0.01 * max(1.0, abs(level))).all()


def test_constant_columns():
    X, y, truth = bumps()
    wide = np.column_stack([X[:, 0], np.full(400, 7.0), X[:, 1], np.zeros(400)])
    assert rmse(WGPRegressor().fit(wide, y), wide, truth) < 0.08
    constant = WGPRegressor().fit(np.ones((200, 2)), y[:200])
    assert constant.predict([[1.0, 1.0]])[0] == pytest.approx(y[:200].mean(), abs=0.2)


def test_very_few_rows():
    mean, std = WGPRegressor().fit([[3.0, 1.0]], [2.0]).predict([[3.0, 1.0], [100.0, 1.0]], return_std=True)
    assert mean[0] == 2.0
    assert (std > 0.0).all()
    equal = WGPRegressor().fit(np.ones((2, 2)), [2.0, 2.0])
    assert equal.predict([[1.0, 1.0]])[0] == pytest.approx(2.0)
    differing = WGPRegressor().fit(np.ones((2, 2)), [2.0, 5.0])
    assert differing.predict([[1.0, 1.0]])[0] == pytest.approx(3.5)


def test_one_row_and_then_a_far_survey():
    x = np.linspace(100.0, 110.0, 500)
    estimator = WGPRegressor().fit([[3.0]], [2.0]).partial_fit(x[:, None], 50.0 + np.sin(x))
    assert rmse(estimator, x[:, None], 50.0 + np.sin(x)) < 0.05


def test_many_inputs_of_which_few_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 32))
    truth = 2.0 * X[:, 3] + X[:, 7]
    estimator = WGPRegressor().fit(X, truth + 0.1 * rng.normal(size=500))
    queries = rng.normal(size=(200, 32))
    assert rmse(estimator, queries, 2.0 * queries[:, 3] + queries[:, 7]) < 0.5
    lengthscales = estimator.hyperparameters_[0].lengthscales
    assert np.argsort(lengthscales)[0] == 3


# Weights


def test_weights_of_one_are_none():
    X, y, _ = bumps(250)
    assert_same_answers(WGPRegressor().fit(X, y), WGPRegressor().fit(X, y, sample_weight=np.ones(250)), X, rtol=0)


def test_rows_of_tiny_weight_hardly_matter():
    X, y, truth = bumps(400)
    rng = np.random.default_rng(5)
    is_bad = rng.uniform(size=400) < 0.3
    bad = y + is_bad * rng.normal(size=400) * 10.0
    weighted = WGPRegressor().fit(X, bad, sample_weight=np.where(is_bad, 1e-6, 1.0))
    good = WGPRegressor().fit(X[~is_bad], y[~is_bad])
    assert rmse(weighted, X, truth) < 1.3 * rmse(good, X, truth)
    assert rmse(WGPRegressor().fit(X, bad), X, truth) > 3.0 * rmse(weighted, X, truth)


def test_weights_and_repeated_places():
    """A row of weight 4 is four rows."""
    X, y, _ = bumps(15)
    weighted = WGPRegressor(calibrated=False).fit(X, y, sample_weight=np.full(15, 4.0))
    weights = weighted.models_[0].data.precision * weighted.models_[0].theta.noise ** 2
    np.testing.assert_allclose(weights, 4.0)


@pytest.mark.parametrize("seed", range(4))
def test_weights_of_every_size_with_repeated_places(seed):
    rng = np.random.default_rng(seed)
    X = bumps(30, d=1 + seed % 2)[0][rng.integers(30, size=300)]
    estimator = WGPRegressor(kernel="se").fit(X, field_at(X), sample_weight=10 ** rng.uniform(-8, 8, 300))
    assert np.isfinite(estimator.predict(X, return_std=True)).all()


@pytest.mark.parametrize(
    "weights", [np.full(30, np.nan), np.full(30, -1.0), np.zeros(30), np.ones(29), np.ones((30, 1)), "heavy", 2.0]
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_wrong_weights_change_nothing(weights, method):
    (X, y, _), estimator = bumps(50), fitted(50)
    state = estimator._state
    with pytest.raises((ValueError, TypeError), match="sample_weight"):
        getattr(estimator, method)(X[:30], y[:30], sample_weight=weights)
    assert estimator._state is state
    fresh = WGPRegressor()
    with pytest.raises((ValueError, TypeError), match="sample_weight"):
        getattr(fresh, method)(X[:30], y[:30], sample_weight=weights)
    assert not hasattr(fresh, "n_features_in_")


def test_the_papers_method_has_no_weights():
    X, y, _ = bumps(50)
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match="sample_weight has no effect"):
            getattr(WGPRegressor.published(), method)(X, y, sample_weight=np.ones(50))


# State


def test_interrupted_learning_changes_nothing(monkeypatch):
    X, y = wavy(400)
    estimator = WGPRegressor().partial_fit(X[:200], y[:200])
    state, before = estimator._state, estimator.predict(X, return_std=True)
    real, calls = territories.median_cut, []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(territories, "median_cut", interrupted)
    with pytest.raises(KeyboardInterrupt):
        estimator.partial_fit(X[200:], y[200:])
    assert estimator._state is state
    np.testing.assert_array_equal(estimator.predict(X, return_std=True), before)
    monkeypatch.undo()
    assert_same_answers(estimator.partial_fit(X[200:], y[200:]), WGPRegressor().partial_fit(X, y), X, rtol=0, atol=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies(copied):
    X, y = wavy(250)
    estimator = WGPRegressor().partial_fit(X[:200], y[:200])
    other = copied(estimator)
    assert_same_answers(other, estimator, X, rtol=0, atol=0)
    assert_same_answers(other.partial_fit(X[200:], y[200:]), estimator.partial_fit(X[200:], y[200:]), X, rtol=0, atol=0)


def test_covariance():
    X, y = wavy(400, k=2)
    estimator = WGPRegressor().fit(X, y)
    queries = np.random.default_rng(0).uniform(-2.0, 2.0, (30, 2))
    for latent in (True, False):
        mean, covariance = estimator.predict(queries, return_cov=True, latent=latent)
        expected_mean, std = estimator.predict(queries, return_std=True, latent=latent)
        np.testing.assert_allclose(mean, expected_mean)
        for j in range(2):
            np.testing.assert_allclose(covariance[..., j], covariance[..., j].T, atol=1e-12)
            np.testing.assert_allclose(covariance[..., j].diagonal(), std[:, j] ** 2, rtol=1e-8)
            assert np.linalg.eigvalsh(covariance[..., j]).min() > -1e-8


def test_threads_ask_while_another_learns():
    X, y, _ = bumps(500)
    estimator = WGPRegressor().partial_fit(X[:10], y[:10])

    def learning():
        for start in range(10, 500, 49):
            estimator.partial_fit(X[start : start + 49], y[start : start + 49])

    def asking():
        return all(np.isfinite(estimator.predict(X[i : i + 4], return_std=True)).all() for i in range(40))

    _, *results = at_once([learning, asking, asking])
    assert all(results)


@pytest.mark.parametrize("size", [1e-99, 1e-20, 1e20, 1e99])
def test_rows_of_another_order_of_magnitude_are_learned(size):
    X, y, _ = bumps(60)
    model = WGPRegressor().fit(X, 1e-99 * y)
    model.partial_fit(X + 0.5, size * y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0.0).all()
