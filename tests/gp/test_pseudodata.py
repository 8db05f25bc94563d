"""Pseudo-data: posterior, union, and thinning, against dense formulas and at their limits."""

import numpy as np
import pytest

import dense_reference as dense
from reference import ALL_KERNELS
from wgpr.gp.kernels import Hyperparameters, Matern52, RationalQuadratic, SquaredExponential
from wgpr.gp.pseudodata import Posterior, PseudoData, _match_variances, from_posterior, thin


def theta_of(kernel, d, lengthscale=1.0, noise=0.3):
    return Hyperparameters(1.2, np.full(d, lengthscale), noise, kernel.initial_shape())


def random_data(n=30, d=2, k=1, seed=0, width=4.0):
    rng = np.random.default_rng(seed)
    Z = rng.uniform(0.0, width, (n, d))
    t = np.sin(Z[:, :1] + np.arange(k)) + 0.3 * rng.normal(size=(n, k))
    return PseudoData(Z, t, rng.uniform(1.0, 20.0, n), rng.uniform(size=n) < 0.5)


def rows_of(X, y, noise=0.3):
    return PseudoData.of_rows(X, y, np.ones(len(y)), noise)


def assert_same_posterior(kernel, theta, mean, data, other, atol=1e-8):
    X = np.random.default_rng(9).uniform(-1.0, 5.0, (40, data.Z.shape[1]))
    answers = (Posterior(kernel, theta, mean, each).predict(X) for each in (data, other))
    for one, two in zip(*answers, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=atol)


def test_pseudo_data_are_read_only():
    data = random_data()
    for each in (data, data[:5], PseudoData.union(data, data)):
        assert not any(array.flags.writeable for array in (each.Z, each.t, each.precision, each.is_row))


# Posterior


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=str)
@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 3), (8, 2)])
def test_posterior(kernel, d, k):
    data, theta = random_data(d=d, k=k), theta_of(kernel, d)
    mean, X = np.linspace(-1.0, 1.0, k), np.random.default_rng(1).uniform(-2.0, 6.0, (20, d))
    expected = dense.posterior(kernel, theta, mean, data.Z, data.t, data.precision, X)
    posterior = Posterior(kernel, theta, mean, data)
    means, variance = posterior.predict(X)
    np.testing.assert_allclose(means, expected.mean, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(expected.covariance), atol=1e-10)
    joint = posterior.joint(X)
    np.testing.assert_allclose(joint.mean, means, atol=1e-12)
    np.testing.assert_allclose(joint.covariance, expected.covariance, atol=1e-10)


def test_far_away_it_is_the_prior():
    kernel = SquaredExponential()
    posterior = Posterior(kernel, theta_of(kernel, 2), np.array([7.0]), random_data())
    mean, variance = posterior.predict(np.full((1, 2), 1e6))
    assert mean[0, 0] == 7.0
    assert variance[0] == pytest.approx(1.44)


# Union


def test_union_is_exact():
    kernel, mean, (one, two, three) = Matern52(), np.zeros(2), (random_data(k=2, seed=seed) for seed in range(3))
    theta, X = theta_of(kernel, 2), np.random.default_rng(1).uniform(0.0, 4.0, (20, 2))
    together = PseudoData.union(one, two, three)
    assert len(together) == 90
    expected = dense.posterior(
        kernel, theta, mean, *(np.concatenate([getattr(part, name) for part in (one, two, three)])
                               for name in ("Z", "t", "precision")), X,
    )  # fmt: skip
    means, variance = Posterior(kernel, theta, mean, together).predict(X)
    np.testing.assert_allclose(means, expected.mean, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(expected.covariance), atol=1e-10)


def test_rows_and_their_noise():
    rng = np.random.default_rng(0)
    X, y, weights = rng.normal(size=(10, 2)), rng.normal(size=(10, 1)), rng.uniform(0.1, 10.0, 10)
    rows = PseudoData.of_rows(X, y, weights, 0.5)
    np.testing.assert_allclose(1.0 / rows.precision, 0.25 / weights)
    both = PseudoData.union(rows, random_data(n=5)).with_noise(0.5, 0.2)
    np.testing.assert_allclose(1.0 / both.precision[:10], 0.04 / weights)
    expected = np.where(random_data(n=5).is_row, (0.5 / 0.2) ** 2, 1.0) * random_data(n=5).precision
    np.testing.assert_allclose(both.precision[10:], expected)
    np.testing.assert_array_equal(rows.with_noise(0.5, 0.5).precision, rows.precision)


@pytest.mark.parametrize("k", [1, 3])
def test_uniting_repeated_places_is_exact(k):
    data, kernel = random_data(k=k), RationalQuadratic(0.8)
    repeated = PseudoData(data.Z[np.arange(30) // 3 * 3], data.t, data.precision, data.is_row)
    united = repeated.united()
    assert len(united) == 10
    np.testing.assert_array_equal(united.Z, data.Z[::3])  # in the order of their first observation
    np.testing.assert_allclose(united.precision, data.precision.reshape(10, 3).sum(axis=1))
    np.testing.assert_array_equal(united.is_row, data.is_row.reshape(10, 3).all(axis=1))
    assert_same_posterior(kernel, theta_of(kernel, 2), np.zeros(k), repeated, united)


def test_different_places_are_left_alone():
    data = random_data()
    assert data.united() is data


# Thinning


def spread_out(k=1):
    """Places so far apart that each is needed."""
    Z = np.stack(np.meshgrid(*[np.arange(0.0, 12.0, 3.0)] * 2), axis=-1).reshape(-1, 2)
    rng = np.random.default_rng(0)
    field = rng.normal(size=(len(Z), k))
    return PseudoData(Z, field + 0.3 * rng.normal(size=(len(Z), k)), np.full(len(Z), 1 / 0.09), np.ones(len(Z), bool))


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=str)
def test_thinning_that_keeps_all_points_is_the_identity(kernel):
    data, mean = spread_out(k=2), np.array([0.3, -0.1])
    theta = theta_of(kernel, 2)
    thinned = thin(kernel, theta, mean, data, 100)
    assert len(thinned) == len(data)
    assert not thinned.is_row.any()
    X = np.random.default_rng(9).uniform(-1.0, 10.0, (40, 2))
    (m, v), (m_thin, v_thin) = (Posterior(kernel, theta, mean, each).predict(X) for each in (data, thinned))
    # Variances are matched to one in a thousand, unless they match already.
    np.testing.assert_allclose(v_thin, v, rtol=2e-3)
    np.testing.assert_allclose(m_thin, m, atol=2e-3)


def test_thinning_to_the_same_precisions_changes_nothing():
    """Sites that are matched from the start: the first guess of the precisions is exact when all points are kept."""
    data, kernel = spread_out(), SquaredExponential()
    theta = theta_of(kernel, 2, lengthscale=0.6)
    thinned = thin(kernel, theta, np.zeros(1), data, 100)
    assert_same_posterior(kernel, theta, np.zeros(1), data, thinned)


def dense_rows(d=1, n=400, k=1, seed=0, noise=0.3, width=5.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, width, (n, d))
    field = np.stack([np.sin(X.sum(axis=1) * (1.0 + 0.3 * j)) for j in range(k)], axis=1)
    return rows_of(X, field + noise * rng.normal(size=(n, k)), noise)


@pytest.mark.parametrize("kernel", [RationalQuadratic(2.0), Matern52()], ids=str)
@pytest.mark.parametrize(("d", "k", "n"), [(1, 1, 300), (1, 3, 300), (2, 1, 400)])
def test_mean_and_variance_at_kept_places(kernel, d, k, n):
    data, theta, mean = dense_rows(d, n, k), theta_of(kernel, d, lengthscale=1.0 + d), np.full(k, 0.2)
    thinned = thin(kernel, theta, mean, data, 150)
    assert thinned is not None
    assert len(thinned) <= 150
    expected = dense.posterior(kernel, theta, mean, data.Z, data.t, data.precision, thinned.Z)
    means, variance = Posterior(kernel, theta, mean, thinned).predict(thinned.Z)
    np.testing.assert_allclose(means, expected.mean, atol=1e-6)
    np.testing.assert_allclose(variance, np.diag(expected.covariance), rtol=1.5e-3)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_precisions_match_variances_in_every_unit(scale):
    Z = np.linspace(0.0, 2.0, 4)[:, None]
    K = scale * SquaredExponential().covariance(theta_of(SquaredExponential(), 1), Z)
    expected = np.array([0.5, 2.0, 0.1, 7.0]) / scale
    variance = np.linalg.inv(np.linalg.inv(K) + np.diag(expected)).diagonal()
    found = _match_variances(K, variance, np.full(4, 1.0 / scale), 1e-9)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_extreme_values_are_clipped():
    """The mean is not exact at these places: with a squared exponential, up to 4 standard deviations were seen."""
    kernel, mean = SquaredExponential(), np.full(1, 0.2)
    theta = theta_of(kernel, 2, lengthscale=3.0)
    for seed in range(3):
        data = dense_rows(2, seed=seed)
        thinned = thin(kernel, theta, mean, data, 150)
        expected = dense.posterior(kernel, theta, mean, data.Z, data.t, data.precision, thinned.Z)
        means, _ = Posterior(kernel, theta, mean, thinned).predict(thinned.Z)
        error = np.abs(means - expected.mean)[:, 0] / np.sqrt(np.diag(expected.covariance))
        assert np.median(error) < 1.0
        assert error.max() < 6.0
        deviation = np.abs(thinned.t - expected.mean)[:, 0] * np.sqrt(thinned.precision)
        assert deviation.max() == pytest.approx(4.0)


def test_between_kept_places():
    kernel, data = RationalQuadratic(2.0), dense_rows()
    theta, X = theta_of(kernel, 1), np.linspace(0.0, 5.0, 200)[:, None]
    (mean, variance), (m, v) = (
        Posterior(kernel, theta, np.zeros(1), each).predict(X)
        for each in (data, thin(kernel, theta, np.zeros(1), data, 60))
    )
    assert (np.abs(m - mean)[:, 0] < 0.1 * np.sqrt(variance)).all()
    np.testing.assert_allclose(v, variance, rtol=0.6)  # 1.25 times as large a deviation


def test_none_if_too_much_would_be_lost():
    kernel, data = Matern52(), dense_rows(2, 200, width=20.0)
    theta = theta_of(kernel, 2)
    assert thin(kernel, theta, np.zeros(1), data, 20) is None
    thinned = thin(kernel, theta, np.zeros(1), data, 20, at_any_loss=True)
    assert len(thinned) == 20
    expected = dense.posterior(kernel, theta, np.zeros(1), data.Z, data.t, data.precision, thinned.Z)
    means, variance = Posterior(kernel, theta, np.zeros(1), thinned).predict(thinned.Z)
    error = (means - expected.mean)[:, 0] / np.sqrt(np.diag(expected.covariance))
    assert np.abs(error).max() < 1.0
    np.testing.assert_allclose(variance, np.diag(expected.covariance), rtol=0.01)


@pytest.mark.parametrize("kernel", [RationalQuadratic(2.0), Matern52()], ids=str)
def test_the_loss_that_is_allowed(kernel):
    """A hundredth of the information in the rows, or 0.02 nats for each of them, whichever is more."""
    data, theta, mean = dense_rows(1, 200, width=8.0), theta_of(kernel, 1), np.zeros(1)
    information = dense.information(kernel, theta, data.Z, data.precision)
    allowed, decisions = max(0.01 * information, 0.02 * len(data)), set()
    for n_most in range(8, 40, 2):
        thinned = thin(kernel, theta, mean, data, n_most, at_any_loss=True)
        lost = dense.information_lost(kernel, theta, data.Z, data.precision, thinned.Z, thinned.precision)
        assert (thin(kernel, theta, mean, data, n_most) is None) == (lost > allowed)
        decisions.add(lost > allowed)
    assert decisions == {True, False}


def test_pseudo_data_of_a_given_posterior():
    kernel, mean, data = Matern52(), np.array([5.0, -2.0]), spread_out(k=2)
    theta = theta_of(kernel, 2)
    expected, variance = Posterior(kernel, theta, mean, data).predict(data.Z)
    found = from_posterior(kernel, theta, mean, data.Z, expected, variance)
    assert len(found) == len(data)
    means, variances = Posterior(kernel, theta, mean, found).predict(data.Z)
    np.testing.assert_allclose(means, expected, atol=1e-6)
    np.testing.assert_allclose(variances, variance, rtol=2e-3)


def test_thinning_of_equal_places_and_of_one():
    kernel = SquaredExponential()
    theta = theta_of(kernel, 1)
    equal = rows_of(np.ones((40, 1)), np.linspace(0.0, 1.0, 40)[:, None])
    thinned = thin(kernel, theta, np.zeros(1), equal, 10)
    assert len(thinned) == 1
    assert_same_posterior(kernel, theta, np.zeros(1), equal, thinned, atol=2e-3)
    assert len(thin(kernel, theta, np.zeros(1), equal[:1], 10)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_any_half_of_thinned_pseudo_data_answers_sensibly(seed):
    kernel, data = RationalQuadratic(1.0), dense_rows(2, 400, seed=seed)
    theta = theta_of(kernel, 2, lengthscale=2.0)
    thinned = thin(kernel, theta, np.zeros(1), data, 200)
    rng, X = np.random.default_rng(seed), np.random.default_rng(1).uniform(0.0, 5.0, (300, 2))
    for _ in range(5):
        half = thinned[rng.permutation(len(thinned))[: len(thinned) // 2]]
        mean, variance = Posterior(kernel, theta, np.zeros(1), half).predict(X)
        beyond = np.maximum(data.t.min() - mean[:, 0], mean[:, 0] - data.t.max())
        assert (beyond < 4.0 * np.sqrt(variance)).all()
        error = mean[:, 0] - np.sin(X.sum(axis=1))
        assert np.mean(np.abs(error) < 4.0 * np.sqrt(variance)) > 0.9


def waves(d, lengthscale, seed, n=400):
    """A draw of a field with a squared exponential covariance, by random waves.

    The waves are in single precision, whose cosines take a fifth of the time: the field is the same to 1e-5.
    """
    rng = np.random.default_rng(seed)
    W, phase, a = rng.normal(size=(n, d)) / lengthscale, rng.uniform(0, 2 * np.pi, n), rng.normal(size=n)
    W, phase, a = (each.astype(np.float32) for each in (W, phase, 1.2 * np.sqrt(2 / n) * a))

    def field(X):
        angles = X.astype(np.float32) @ W.T
        angles += phase
        return (np.cos(angles, out=angles) @ a).astype(float)

    return field


@pytest.mark.parametrize(("d", "lengthscale", "nodes", "n_seeds"), [(1, 0.08, 160, 5), (2, 0.35, 15, 1)])
def test_many_rows_in_one_thinned_model(d, lengthscale, nodes, n_seeds):
    """40,000 rows, in the mean of several fields. One field alone may have 1.2 times the error, and 4 points less."""
    results = np.mean([_after_many_rows(d, 40_000, lengthscale, nodes, seed) for seed in range(n_seeds)], axis=0)
    ratio, inside, log_density, z2 = results
    assert ratio <= 1.1
    assert abs(inside) <= 0.02
    assert log_density > -0.2
    assert abs(z2) < 0.4


def _after_many_rows(d, n, lengthscale, nodes, seed, capacity=150):
    """Thinned beside near-exact inference: ratio of errors; differences of coverage, log density, mean squared z."""
    kernel, rng = SquaredExponential(), np.random.default_rng(seed)
    theta, field = theta_of(kernel, d, lengthscale), waves(d, lengthscale, seed)
    X, queries = rng.uniform(size=(n, d)), rng.uniform(size=(2000, d))
    y, truth = field(X) + theta.noise * rng.normal(size=n), field(queries)
    data, start = rows_of(X[:1], y[:1, None]), 1
    while start < n:
        stop = start + max(1, capacity + 1 - len(data))
        data = PseudoData.union(data, rows_of(X[start:stop], y[start:stop, None]))
        start = stop
        if len(data) > capacity:
            data = thin(kernel, theta, np.zeros(1), data, capacity // 2)
            assert data is not None
    grid = np.stack(np.meshgrid(*[np.linspace(-0.05, 1.05, nodes)] * d), axis=-1).reshape(-1, d)
    exact = scores(*dense.inducing_grid(kernel, theta, grid, X, y, queries), truth)
    mean, variance = Posterior(kernel, theta, np.zeros(1), data).predict(queries)
    thinned = scores(mean[:, 0], variance, truth)
    return [thinned[0] / exact[0], *(thinned[1:] - exact[1:])]


def scores(mean, variance, truth):
    """Root mean square error, fraction in the 95 % interval, mean log density, mean squared z."""
    z2 = (mean - truth) ** 2 / variance
    log_density = -0.5 * (z2 + np.log(2 * np.pi * variance))
    return np.array([np.sqrt(np.mean((mean - truth) ** 2)), np.mean(z2 < 1.96**2), log_density.mean(), z2.mean()])
