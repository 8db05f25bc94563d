"""One territory: forecasts of new rows, outliers, and the fit of hyperparameters."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import dense_reference as dense
from wgpr.ensemble.territory import (
    ALONE,
    Forecast,
    Surroundings,
    Territory,
    _evidences,
    _factor,
    _LogPosterior,
    fitted,
    forecast,
    is_dense,
    rougher,
)
from wgpr.gp.kernels import Hyperparameters, RationalQuadratic, SquaredExponential
from wgpr.gp.pseudodata import PseudoData, thin

RQ = RationalQuadratic()


def stream(n=60, d=2, k=1, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 4.0, (n, d))
    return X, np.sin(X[:, :1] + np.arange(k)) + noise * rng.normal(size=(n, k))


def begun(n=40, d=2, k=1, seed=0, **settings):
    X, y = stream(n, d, k, seed, **settings)
    return Territory.begin(RQ, X, y, np.ones(n))


def with_new_rows(n=25, k=1, weights=None, seed=1):
    X, y = stream(n, k=k, seed=seed)
    return begun(k=k).with_rows(X, y, np.ones(n) if weights is None else weights, 65)


# Forecasts


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("has_halo", [False, True])
def test_forecast(k, has_halo):
    territory = with_new_rows(k=k, weights=np.random.default_rng(3).uniform(0.1, 5.0, 25))
    halo = begun(k=k, seed=5).data if has_halo else None
    known, rows = territory.data[:40], territory.data[40:]
    every = known if halo is None else PseudoData.union(known, halo)
    log_density, _ = dense.forecast(
        territory.kernel, territory.theta, territory.mean, (every.Z, every.t, every.precision),
        rows.Z, rows.t, rows.precision,
    )  # fmt: skip
    forecasted, steps = forecast(territory, halo)
    assert forecasted.log_density == pytest.approx(log_density, rel=1e-8)
    assert steps[0] == 0.0
    assert steps[-1] == pytest.approx(log_density, rel=1e-8)
    shorter = replace(territory, data=territory.data[:50])
    assert steps[10] == pytest.approx(forecast(shorter, halo)[0].log_density, rel=1e-8)
    assert (forecasted.weights == 1.0).all()


def test_rows_like_the_others_are_no_surprise():
    assert not forecast(with_new_rows(), None)[0].is_surprising


def test_one_row_alone_is_no_surprise():
    errors = np.ones((25, 1))
    errors[7] = 15.0
    assert not Forecast(0.0, errors, np.ones(25)).is_surprising
    errors[7:10] = 5.0
    assert Forecast(0.0, errors, np.ones(25)).is_surprising


def test_the_order_of_rows_does_not_change_their_density():
    territory = with_new_rows()
    backwards = forecast(territory, None, np.arange(25)[::-1])[0]
    assert backwards.log_density == pytest.approx(forecast(territory, None)[0].log_density, rel=1e-9)


@pytest.mark.parametrize("spikes", [[3], [3, 20]])
def test_only_outliers_are_down_weighted(spikes):
    """Not the rows around them, whose errors are large because of the outlier."""
    territory = with_new_rows()
    t = territory.data.t.copy()
    t[40 + np.array(spikes)] += 200.0
    spiked = replace(territory, data=replace(territory.data, t=t))
    weights = forecast(spiked, None)[0].weights
    np.testing.assert_array_equal(np.flatnonzero(weights < 1.0), spikes)
    known, rows = spiked.data[:40], spiked.data[40:]
    _, error = dense.forecast(
        spiked.kernel, spiked.theta, spiked.mean, (known.Z, known.t, known.precision), rows.Z, rows.t, rows.precision,
    )  # fmt: skip
    worst = np.abs(error[:, 0]).argmax()
    assert worst in spikes
    assert weights[worst] == pytest.approx((16.0 / np.abs(error[worst, 0])) ** 4, rel=1e-6)
    after = forecast(spiked.down_weighted(weights), None)[0]
    assert after.log_density > -10.0 * 25


def test_a_change_of_the_field_is_no_outlier():
    territory = with_new_rows()
    t = territory.data.t.copy()
    t[45:] += 200.0 * np.sin(3.0 * territory.data.Z[45:, :1])
    forecasted, _ = forecast(replace(territory, data=replace(territory.data, t=t)), None)
    assert (forecasted.weights == 1.0).all()
    assert forecasted.is_surprising


def test_repeated_places_of_huge_weight():
    territory = begun()
    X, y = territory.data.Z[[0, 0, 0, 1, 1]], np.array([[1.0], [1.0], [2.0], [0.0], [0.5]])
    territory = territory.with_rows(X, y, np.full(5, 1e8), 45)
    territory = replace(territory.with_rows(X, y, np.full(5, 1e8), 50), n_known=45)
    assert np.isfinite(forecast(territory, None)[0].log_density)


def test_a_singular_covariance_has_a_factor():
    C = np.ones((3, 3))
    L = _factor(C, 1.0)
    np.testing.assert_allclose(L @ L.T, C, atol=1e-7)


# Begin


def test_spikes_among_the_first_rows():
    X, y = stream(20)
    spiked = y.copy()
    spiked[7] += 100.0
    territory = Territory.begin(RQ, X, spiked, np.ones(20))
    assert territory.n_known == territory.n_seen == len(territory.data) == 20
    precision = territory.data.precision * territory.theta.noise**2
    assert (precision < 0.5).sum() == 1
    queries = stream(50, seed=4)[0]
    expected, _ = Territory.begin(RQ, np.delete(X, 7, 0), np.delete(y, 7, 0), np.ones(19)).predict(queries)
    np.testing.assert_allclose(territory.predict(queries)[0], expected, atol=0.05)


def test_a_wide_range_of_first_values_is_no_spike():
    X = np.linspace(0.0, 4.0, 20)[:, None]
    territory = Territory.begin(RQ, X, np.exp(2.0 * X), np.ones(20))
    assert np.ptp(territory.data.precision) == 0.0


# Hyperparameters


def test_rows_of_next_to_no_weight_say_nothing_about_the_scale():
    X, y = stream(100)
    y[50:55] += 1e4
    territory = Territory.begin(RQ, X[:40], y[:40], np.ones(40))
    territory = territory.with_rows(X[40:], y[40:], np.where(y[40:, 0] > 100.0, 1e-8, 1.0), 100)
    theta = fitted(territory, ALONE).theta
    assert theta.noise < 0.5
    assert theta.amplitude < 5.0


def test_the_fit_finds_what_the_data_have():
    territory = fitted(begun(300, seed=2), ALONE)
    assert territory.theta.noise == pytest.approx(0.2, rel=0.25)
    assert territory.n_fitted == 300
    assert territory.theta.lengthscales[1] > 2.0 * territory.theta.lengthscales[0]  # it has no effect


def test_precisions_of_rows_follow_the_noise():
    territory = with_new_rows()
    after = fitted(territory, ALONE)
    np.testing.assert_allclose(after.data.precision, after.theta.noise**-2)
    np.testing.assert_array_equal(after.data.Z, territory.data.Z)


def test_neighbours_inform_the_fit():
    """With few data of its own a territory has the hyperparameters of its neighbours."""
    small, neighbour = begun(15, seed=3), begun(150, seed=4)
    logs = np.repeat(neighbour.theta.to_log()[None] + 0.0, 6, axis=0)
    surroundings = Surroundings(neighbour.data, logs, np.repeat(neighbour.spread[None], 6, axis=0))
    alone, together = (fitted(small, each).theta.to_log() for each in (ALONE, surroundings))
    distance = [np.abs(each - neighbour.theta.to_log()).max() for each in (alone, together)]
    assert distance[1] < 0.5 * distance[0]


def neighbours(territory, n, halo=None):
    """Several neighbours with the hyperparameters of a territory."""
    return Surroundings(halo, np.repeat(territory.theta.to_log()[None], n, 0), np.repeat(territory.spread[None], n, 0))


def deviation(territory, other):
    """Root mean square difference of log hyperparameters."""
    return np.sqrt(np.mean((territory.theta.to_log() - other.theta.to_log()) ** 2))


def test_hyperparameters_of_neighbours_are_the_prior():
    """The more neighbours agree, the closer to them; a single one may be wrong."""
    small, neighbour = begun(15, seed=3), begun(150, seed=4)
    alone, one, eight = (deviation(fitted(small, neighbours(neighbour, n)), neighbour) for n in (0, 1, 8))
    assert eight < 0.75 * one
    assert one < 0.75 * alone


def test_the_halo_takes_part_in_the_fit():
    small, neighbour = begun(15, seed=3), begun(150, seed=4)
    alone, together = (fitted(small, neighbours(neighbour, 0, halo)) for halo in (None, neighbour.data))
    assert deviation(together, neighbour) < 0.5 * deviation(alone, neighbour)
    np.testing.assert_array_equal(together.data.Z, small.data.Z)


def test_the_noise_is_that_of_own_rows():
    """The halo may be more precise than it says."""
    X, y = stream(100, seed=6, noise=0.0)
    halo = PseudoData.of_rows(X, y, np.ones(100), 0.2)
    territory = begun(60)
    alone, together = (fitted(territory, neighbours(territory, 0, each)).theta.noise for each in (None, halo))
    assert together == pytest.approx(alone, rel=0.15)


def test_a_thinned_territory_stays_close_to_its_hyperparameters():
    """Pseudo-data do not say how large the noise is."""
    territory = fitted(begun(300, seed=2), ALONE)
    data = thin(RQ, territory.theta, territory.mean, territory.data, 100)
    thinned = replace(territory, data=data, n_known=len(data))
    far = territory.theta.to_log() + np.array([0.0, 0.0, 0.0, 0.0, 1.5])
    for surroundings in (ALONE, Surroundings(None, far[None], territory.spread[None])):
        assert fitted(thinned, surroundings).theta.noise == pytest.approx(territory.theta.noise, rel=0.1)


def test_a_thinned_territory_that_is_surprised_also_starts_from_short_lengthscales(monkeypatch):
    territory, found = with_new_rows(), []
    monkeypatch.setattr(_LogPosterior, "best", lambda _, starts, max_iter: found.append(starts) or starts[0])
    thinned = replace(territory, n_seen=territory.n_seen + 100)
    for each, is_surprised in ((territory, False), (territory, True), (thinned, False), (thinned, True)):
        fitted(each, neighbours(territory, 1), is_surprised=is_surprised)
    assert [len(starts) for starts in found] == [1, 1, 1, 2]
    np.testing.assert_allclose(found[3][1].lengthscales, 0.3 * found[3][0].lengthscales)


def test_blocks_of_a_fit_are_compact_in_lengthscales(monkeypatch):
    blocks = []
    monkeypatch.setattr("wgpr.ensemble.territory.Evidence", lambda kernel, Z, *_: blocks.append(Z))
    Z, theta = (
        np.random.default_rng(0).uniform(0.0, 1.0, (300, 2)),
        Hyperparameters(1.0, np.array([10.0, 0.1]), 0.1, np.ones(1)),
    )
    data = PseudoData.of_rows(Z, Z[:, :1], np.ones(300), theta.noise)
    _evidences(Territory(RQ, theta, np.zeros(1), data, 300, 300, 300, Z.std(axis=0), 300), None)
    assert [len(block) for block in blocks] == [150, 150]
    for block in blocks:
        assert np.ptp(block, axis=0)[0] > 0.9
        assert np.ptp(block, axis=0)[1] < 0.6
    blocks.clear()
    _evidences(Territory(RQ, theta, np.zeros(1), data[:250], 250, 250, 250, Z.std(axis=0), 250), None)
    assert [len(block) for block in blocks] == [250]


def test_a_part():
    territory = with_new_rows()
    is_in = territory.data.Z[:, 0] < 2.0
    part = territory.part(is_in, 30, 20)
    assert part.n_known == is_in[:40].sum()
    assert part.n_seen == 30
    np.testing.assert_array_equal(part.data.Z, territory.data.Z[is_in])
    np.testing.assert_allclose(part.mean, np.average(part.data.t, axis=0, weights=part.data.precision))


def test_distinct_places():
    X, y = stream(10, seed=7)
    territory = begun().with_rows(np.repeat(X, 3, axis=0), np.repeat(y, 3, axis=0), np.ones(30), 70)
    assert len(territory.distinct) == 50
    assert territory.distinct is territory.distinct


def test_it_is_immutable_and_can_be_pickled():
    territory = begun()
    queries = stream(9, seed=4)[0]
    before = territory.predict(queries)
    territory.with_rows(*stream(5, seed=8), np.ones(5), 45)
    fitted(territory, ALONE)
    for again in (territory, pickle.loads(pickle.dumps(territory))):
        for one, two in zip(again.predict(queries), before, strict=True):
            np.testing.assert_array_equal(one, two)


def test_one_row():
    territory = Territory.begin(SquaredExponential(), np.ones((1, 2)), np.full((1, 1), 3.0), np.ones(1))
    mean, variance = territory.predict(np.ones((1, 2)))
    assert mean[0, 0] == 3.0
    assert variance[0] >= 0.0


# Noise that may be a rougher field


def as_noise(noise, seed=0):
    """A territory of a slope with waves of one unit, or with noise, in hyperparameters that know only the slope."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 3.0, (150, 2))
    waves = np.sin(2.0 * np.pi * X[:, :1]) * np.cos(2.0 * np.pi * X[:, 1:])
    y = X[:, :1] + (noise * rng.normal(size=(150, 1)) if noise else waves + 0.05 * rng.normal(size=(150, 1)))
    theta = Hyperparameters(2.0, np.array([5.0, 5.0]), 0.5, (1.0,))
    data = PseudoData.of_rows(X, y, np.ones(150), theta.noise)
    return Territory(RQ, theta, y.mean(axis=0), data, 150, 150, 150, X.std(axis=0), visited=150)


@pytest.mark.parametrize("seed", range(3))
def test_a_rougher_field_is_told_from_noise(seed):
    rough = rougher(as_noise(0.0, seed))
    assert (rough.theta.lengthscales < 1.0).all()
    assert rough.theta.noise < 0.3
    np.testing.assert_allclose(rough.data.precision, rough.theta.noise**-2)
    assert rougher(as_noise(0.5, seed)) is None


def test_rows_are_dense_in_lengthscales():
    X = np.stack(np.meshgrid(np.arange(10.0), np.arange(10.0)), axis=-1).reshape(-1, 2)
    theta = Hyperparameters(1.0, np.array([10.0, 20.0]), 0.1, (1.0,))
    territory = begun()
    grid = replace(territory, theta=theta, data=PseudoData.of_rows(X, X[:, :1], np.ones(100), theta.noise))
    assert is_dense(grid, 0.051)  # neighbours along the second input are 1 / 20 apart
    assert not is_dense(grid, 0.049)
