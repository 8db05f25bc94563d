"""Territories: how they learn rows, divide, merge and forget."""

import copy
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from streams_of_rows import answers_of, wavy
from wgpr.datasets import two_regimes
from wgpr.ensemble.cuts import Cuts, adjacent, all_cuts, route
from wgpr.ensemble.territories import Learning, Overview, Territories, TerritorySettings, learn
from wgpr.ensemble.territory import Territory, fitted
from wgpr.gp.kernels import Hyperparameters, RationalQuadratic

RQ = RationalQuadratic()


def learned(X, y, weights=None, sizes=None, **settings):
    """Territories after all rows, given in pieces of these sizes."""
    settings = TerritorySettings(RQ, **settings)
    weights = np.ones(len(y)) if weights is None else weights
    territories, records, whitened = Territories.begin(RQ, X[:20], y[:20], weights[:20]), [], []
    start = 20
    for size in sizes or [len(y)]:
        rows = slice(start, start + size)
        result = learn(territories, settings, X[rows], y[rows], weights[rows], len(records))
        territories, records, whitened = result.territories, records + result.records, whitened + result.whitened
        start += size
    assert territories.n_learned == min(start, len(y))
    return territories, records, whitened


def assert_same(one, other):
    """To the bit."""
    assert one.cuts == other.cuts
    assert one.n_learned == other.n_learned
    for first, second in zip(one.models, other.models, strict=True):
        np.testing.assert_array_equal(first.data.Z, second.data.Z)
        np.testing.assert_array_equal(first.data.t, second.data.t)
        np.testing.assert_array_equal(first.data.precision, second.data.precision)
        np.testing.assert_array_equal(first.data.is_row, second.data.is_row)
        np.testing.assert_array_equal(first.theta.to_vector(), second.theta.to_vector())
        np.testing.assert_array_equal(first.mean, second.mean)
        np.testing.assert_array_equal(first.spread, second.spread)
        assert [first.n_seen, first.n_fitted, first.n_known, first.visited] == [
            second.n_seen, second.n_fitted, second.n_known, second.visited
        ]  # fmt: skip


@pytest.fixture(scope="module")
def many():
    """Many territories of a map, and their rows."""
    X, y = wavy(1500)
    return X, y, *learned(X, y)


# Rows one by one, or many at once


@pytest.mark.parametrize(
    ("k", "settings"), [(1, {}), (3, {}), (1, {"max_models": 3}), (1, {"forgetting": 0.3})], ids=str
)
def test_it_makes_no_difference_how_many_rows_are_given(k, settings):
    X, y = wavy(500, k=k)
    weights = np.random.default_rng(0).uniform(0.2, 5.0, 500)
    expected, records, whitened = learned(X, y, weights, **settings)
    assert len(expected) > 1
    for sizes in ([1] * 480, [233, 1, 246]):
        territories, others, errors = learned(X, y, weights, sizes, **settings)
        assert_same(territories, expected)
        assert [(each.number, each.changes, each.evidence, each.merged) for each in others] == [
            (each.number, each.changes, each.evidence, each.merged) for each in records
        ]
        for one, other in zip(errors, whitened, strict=True):
            np.testing.assert_array_equal(one, other)


def test_spikes_make_no_difference_between_one_and_many():
    X, y = wavy(300)
    y[[5, 100, 101, 250]] += 500.0
    assert_same(learned(X, y, sizes=[1] * 280)[0], learned(X, y)[0])


def test_a_jump_makes_no_difference_between_one_and_many():
    X, y = wavy(400)
    X[300:] = np.random.default_rng(0).uniform(X[:300].min(axis=0), X[:300].max(axis=0), (100, X.shape[1]))
    y[300:] += 500.0
    assert_same(learned(X, y, sizes=[1] * 380)[0], learned(X, y)[0])


def test_rows_of_next_to_no_weight_make_no_difference_between_one_and_many():
    """They do not say how far values may deviate, in this call or in an earlier one."""
    rng, weights = np.random.default_rng(1), np.ones(38)
    X = rng.uniform(-2.0, 2.0, (38, 1))
    y = np.sin(2.0 * X) + 0.01 * rng.normal(size=X.shape)
    y[30], weights[30] = 2.9, 1e-6
    y[31] = 4.0  # a spike, out of reach of all but the row before
    assert_same(learned(X, y, weights, sizes=[1] * 18)[0], learned(X, y, weights)[0])


# Number of territories


@cache
def _of_two_regimes(seed):
    X, y, _ = two_regimes(3000, random_state=seed)
    return learned(X / 75.0 - 2.0, y[:, None])


def test_two_regimes():
    """One draw has a cut before the border, and divides the territory that holds both sides of it: 4."""
    numbers = [len(_of_two_regimes(seed)[0]) for seed in range(5)]
    assert numbers.count(2) >= 4
    assert max(numbers) <= 4


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_stream(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (1500, 1))
    territories, _, _ = learned(X, np.sin(2.0 * X) + 0.3 * rng.normal(size=X.shape))
    assert len(territories) <= 2


def test_every_territory_holds_its_ground(many):
    X, _, territories, _, _ = many
    assert len(territories) > 4
    for number, model in enumerate(territories.models):
        assert (route(territories.cuts, model.data.Z) == number).all()
    assert sum(model.n_seen for model in territories.models) == len(X)
    assert max(len(model.data) for model in territories.models) <= TerritorySettings.sizes(2)[0]
    np.testing.assert_array_equal(
        territories.overview.log_thetas, [model.theta.to_log() for model in territories.models]
    )


def test_arrays_of_territories_fit_after_merging():
    X, y = wavy(1500)
    territories, records, _ = learned(X, y, max_models=4)
    assert len(territories) <= 4
    assert any(record.merged for record in records)
    np.testing.assert_array_equal(
        territories.overview.log_thetas, [model.theta.to_log() for model in territories.models]
    )
    for number, model in enumerate(territories.models):
        assert (route(territories.cuts, model.data.Z) == number).all()
    assert sum(model.n_seen for model in territories.models) == 1500


@pytest.mark.parametrize("max_models", [1, 5])
def test_old_ground_is_still_predicted_after_merging(max_models):
    rng = np.random.default_rng(0)
    X = np.linspace(0.0, 60.0, 3000)[:, None]
    truth = np.sin(X) * np.where(X < 30.0, 1.0, 2.0)
    territories, _, _ = learned(X, truth + 0.1 * rng.normal(size=X.shape), max_models=max_models)
    assert len(territories) <= max_models
    old = X[:, 0] < 20.0
    mean, variance, *_ = answers_of(territories, X[old])
    assert np.sqrt(np.mean((mean - truth[old]) ** 2)) < (0.6 if max_models == 1 else 0.1)
    assert np.sqrt(np.mean(variance)) < 1.0


def test_pairs_are_ordered_by_their_latest_visit(many):
    _, _, territories, _, _ = many
    learning = Learning(territories, TerritorySettings(RQ), 0)
    numbers = range(len(territories))
    pairs = {pair for n in numbers for pair in adjacent(territories.cuts, n, territories.models[n].data.Z[0])}
    found = list(learning._oldest_pairs())
    assert len(found) == len(pairs)
    assert set(found) == pairs
    ages = [max(territories.models[number].visited for number in pair) for pair in found]
    assert ages == sorted(ages)


def test_a_revisit_finds_what_was_known():
    """25,000 rows elsewhere, with as many territories as there may be: what was known of the first area stays known."""
    rng = np.random.default_rng(3)

    def rows(low, high, n):
        X = np.sort(rng.uniform(low, high, (n, 1)), axis=0)
        return X, np.sin(X) + 0.5 * np.sin(2.3 * X)

    X, truth = rows(0.0, 100.0, 2000)
    before, _, _ = learned(X, truth + 0.1 * rng.normal(size=truth.shape), max_models=12)
    far, values = rows(200.0, 1200.0, 25_000)
    y = values + 0.1 * rng.normal(size=values.shape)
    after, records, _ = learn(before, TerritorySettings(RQ, max_models=12), far, y, np.ones(len(far)), 0)
    assert sum(len(record.merged) for record in records) > 5
    errors = [np.sqrt(np.mean((answers_of(each, X).mean - truth) ** 2)) for each in (before, after)]
    assert errors[1] < 1.5 * errors[0]


def test_a_survey_that_is_given_twice_tells_nothing_more():
    """As long as it is not thinned."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, (1000, 2))
    truth = np.sin(5.0 * X[:, :1]) * np.cos(6.0 * X[:, 1:])
    y = truth + 0.005 * rng.normal(size=truth.shape)
    once, _, _ = learned(X, y)
    more, _, whitened = learned(np.tile(X, (3, 1)), np.tile(y, (3, 1)))
    assert [sum(model.n_seen for model in each.models) for each in (once, more)] == [1000, 3000]
    assert len(more) <= len(once) + 1
    assert sum(map(len, whitened)) <= len(y)  # no copy is forecast
    np.testing.assert_allclose(
        np.median(more.overview.log_thetas, axis=0), np.median(once.overview.log_thetas, axis=0), atol=0.1
    )
    places = rng.uniform(-2.0, 2.0, (500, 2))
    ours, theirs = answers_of(once, places), answers_of(more, places)
    assert np.mean(theirs.variance) > 0.8 * np.mean(ours.variance)


def test_equal_values_at_a_station_are_no_copies():
    """Values of few digits repeat at a station. Their scatter is noise, and their mean is the value there."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (3000, 1)).astype(float)
    y = np.round(2.0 * np.sin(X) + rng.normal(size=X.shape))
    territories, _, _ = learned(X, y)
    stations = np.arange(5.0)[:, None]
    mean, variance, noise, _ = answers_of(territories, stations)
    np.testing.assert_allclose(mean, [[y[station == X].mean()] for station in range(5)], atol=0.15)
    np.testing.assert_allclose(np.sqrt(noise), 1.04, rtol=0.15)
    assert variance.max() < 0.02


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_another_regime_has_its_side_of_the_cut(sign):
    X, y, _ = two_regimes(3000, random_state=0)
    territories, records, _ = _of_two_regimes(0) if sign == 1.0 else learned(2.0 - X / 75.0, y[:, None])
    assert any(record.evidence_new is not None for record in records)
    for number, model in enumerate(territories.models):
        assert (route(territories.cuts, model.data.Z) == number).all()
    smooth, rugged = (
        territories.models[number] for number in route(territories.cuts, sign * np.array([[-1.9], [1.9]]))
    )
    assert rugged.theta.lengthscales[0] < 0.5 * smooth.theta.lengthscales[0]


def test_rows_of_another_regime_have_its_noise():
    X, y, _ = two_regimes(3000, random_state=0)
    X, y, weights = X / 75.0 - 2.0, y[:, None], np.ones(3000)
    territories, start, records = Territories.begin(RQ, X[:20], y[:20], weights[:20]), 20, []
    while not any(record.evidence_new is not None for record in records):
        rows = slice(start, start + 10)
        territories, records, _ = learn(territories, TerritorySettings(RQ), X[rows], y[rows], weights[rows], 0)
        start += 10
    old, new = territories.models
    assert new.data.is_row.all()
    assert new.theta.noise != old.theta.noise
    np.testing.assert_allclose(new.data.precision, new.theta.noise**-2)


# Merging


def row_of_territories(steps):
    """Territories along a line, the first visited longest ago; steps : of the log noise from each to the next."""
    rng, models = np.random.default_rng(0), []
    for number, log_noise in enumerate(np.cumsum([-1.0, *steps])):
        X = np.linspace(number, number + 1.0, 20, endpoint=False)[:, None] + 0.01
        model = Territory.begin(RQ, X, np.sin(X) + 0.1 * rng.normal(size=X.shape), np.ones(20))
        theta = Hyperparameters(1.0, np.ones(1), np.exp(log_noise), RQ.initial_shape())
        models.append(replace(model.with_theta(theta), visited=20 * (number + 1)))
    n = len(models)
    return Territories.of(models, Cuts(0, tuple(map(float, range(1, n))), tuple(range(n))))


def test_the_pair_that_loses_least_among_the_oldest_is_merged():
    """The pairs (9, 10) and (10, 11) lose least, and were visited lately."""
    before = row_of_territories([0.9, 0.6, -0.9, 0.0, 0.6, -0.9, 0.6, 0.9, 2.2, 0.0, 0.0])
    learning = Learning(before, TerritorySettings(RQ), 0)
    loss = {(number, number + 1): learning._merger(number, number + 1).loss for number in range(11)}
    assert set(sorted(loss, key=loss.get)[:2]) == {(9, 10), (10, 11)}
    low, high = min((pair for pair in loss if max(pair) < 10), key=loss.get)
    X = np.linspace(11.01, 11.99, 20)[:, None]
    after, (record,), _ = learn(before, TerritorySettings(RQ, max_models=11), X, np.sin(X), np.ones(20), 0)
    assert record.merged == ((low, high),)
    assert len(after) == 11
    merged, pair = after.models[low], before.models[low : high + 1]
    log_noise = np.log([model.theta.noise for model in pair])
    assert np.log(merged.theta.noise) == pytest.approx(log_noise.mean())
    np.testing.assert_allclose(merged.data.precision, merged.theta.noise**-2)
    np.testing.assert_array_equal(merged.data.Z, np.concatenate([model.data.Z for model in pair]))
    assert (merged.n_seen, merged.n_fitted, merged.visited) == (40, 40, 20 * (high + 1))
    expected = Overview.of(after.models, after.cuts)
    np.testing.assert_array_equal(after.overview.log_thetas, expected.log_thetas)
    np.testing.assert_array_equal(after.overview.grounds, expected.grounds)
    for number, model in enumerate(after.models):
        assert (route(after.cuts, model.data.Z) == number).all()


def test_territories_of_one_pseudo_datum_are_merged():
    before = row_of_territories([0.0, 0.0])
    models = [replace(model, data=model.data[:1], n_known=1) for model in before.models]
    learning = Learning(Territories.of(models, before.cuts), TerritorySettings(RQ), 0)
    assert list(learning._oldest_pairs()) == [(0, 1), (1, 2)]


# Neighbours


def test_neighbours_are_other_territories(monkeypatch):
    n_halos = 0

    def checked(territory, surroundings, **options):
        nonlocal n_halos
        if surroundings.halo is not None:
            own = {row.tobytes() for row in territory.data.Z}
            assert not own & {row.tobytes() for row in surroundings.halo.Z}
            assert 0 < len(surroundings.halo) <= 100
            assert len(surroundings.log_theta) == len(surroundings.spread) <= 8
            n_halos += 1
        return fitted(territory, surroundings, **options)

    monkeypatch.setattr("wgpr.ensemble.territories.fitted", checked)
    learned(*wavy(700))
    assert n_halos > 3


def test_neighbours_are_the_nearest_territories():
    """One territory, and 400 others outside, each with an amplitude of its own."""
    alone, rng = Territories.begin(RQ, *(rows[:30] for rows in wavy(30)), np.ones(30)), np.random.default_rng(0)
    own = alone.models[0]
    moves, others = rng.normal(0.0, 5.0, (400, 2)), []
    for number, move in enumerate(moves):
        theta = replace(own.theta, amplitude=own.theta.amplitude * (1.0 + 1e-4 * number))
        others.append(replace(own, theta=theta, data=replace(own.data, Z=own.data.Z + move)))
    around = Learning(replace(alone, outside=tuple(others)), TerritorySettings(RQ), 0)._surroundings(0)
    nearest = np.argsort(((moves / own.theta.lengthscales) ** 2).sum(axis=1))[:8]
    np.testing.assert_array_equal(around.log_theta, [others[number].theta.to_log() for number in nearest])


def test_a_deep_path_divides_alike_in_all_units(monkeypatch):
    monkeypatch.setattr("wgpr.ensemble.territories._DEEP", 1)
    X, y = wavy(600)
    cuts = [learned(X * unit, y)[0].cuts for unit in (1.0, 2.0**-40)]
    assert [(axis, position * 2.0**-40) for axis, position in all_cuts(cuts[0])] == list(all_cuts(cuts[1]))


def test_places_of_equal_coordinates_divide():
    """Most places have the largest value along the widest axis; the territory is cut along the other, not thinned."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.where(rng.uniform(size=800) < 0.7, 10.0, rng.uniform(0, 9, 800)), rng.uniform(0, 9, 800)])
    y = np.sin(2.0 * X.sum(axis=1, keepdims=True)) + 0.01 * rng.normal(size=(800, 1))
    territories, _, _ = learned(X, y)
    on_line = X[:, 0] == 10.0
    error = answers_of(territories, X[on_line]).mean - y[on_line]
    assert np.sqrt(np.mean(error**2)) < 0.05


# Spikes


def lake_in_lines(seed):
    """Places and depths of 12 lines, smooth in the west and rugged in the east, with noise of 0.1; the field."""
    rng = np.random.default_rng(seed)
    along = np.linspace(0.0, 600.0, 300)
    X = np.concatenate([np.column_stack([np.full(300, 25.0 * i), along[:: (-1) ** i]]) for i in range(12)])
    waves, phases = rng.normal(size=(2, 40)) / 60.0, rng.uniform(0.0, 2.0 * np.pi, 40)

    def field(places):
        rugged = np.sin(places[:, 1] / 15.0) / (1.0 + np.exp((150.0 - places[:, 0]) / 20.0))
        return (0.8 * np.cos(places @ waves + phases).sum(axis=1) + 1.5 * rugged)[:, None]

    return X, field(X) + 0.1 * rng.normal(size=(len(X), 1)), field


@cache
def _of_lake(seed):
    X, y, _ = lake_in_lines(seed)
    return learned(X / 100.0, y)[0]


@pytest.mark.parametrize(("rows", "seed"), [("apart", 3), ("a burst", 1)])
def test_spikes_do_not_bend_the_map(seed, rows):
    X, y, field = lake_in_lines(seed)
    rng = np.random.default_rng(seed + 100)
    places = np.column_stack([rng.uniform(0.0, 275.0, 500), rng.uniform(0.0, 600.0, 500)])
    spikes = rng.choice(len(y), 8, replace=False) if rows == "apart" else 1600 + 5 * np.arange(8)
    wild = y.copy()
    wild[spikes] += (rng.choice([-1.0, 1.0], 8) * rng.uniform(10.0, 40.0, 8))[:, None]
    scale = 100.0
    errors = [
        np.sqrt(np.mean((answers_of(territories, places / scale).mean - field(places)) ** 2))
        for territories in (_of_lake(seed), learned(X / scale, wild)[0])
    ]
    assert errors[1] < 2.0 * errors[0]  # at most 1.7; 20 and more if a spike is believed


# A field that changes


def test_forgetting_follows_a_field_that_changes():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (1200, 1))
    level = np.where(np.arange(1200) < 600, 0.0, 2.0)[:, None]
    y = np.sin(2.0 * X) + level + 0.1 * rng.normal(size=X.shape)
    queries = np.linspace(-1.8, 1.8, 50)[:, None]
    error = {
        forgetting: np.abs(answers_of(learned(X, y, forgetting=forgetting)[0], queries).mean
                           - np.sin(2.0 * queries) - 2.0).mean()
        for forgetting in (0.0, 0.9)
    }  # fmt: skip
    assert error[0.0] < 0.25  # 2 if the change is taken for noise
    assert error[0.9] < 0.1
    assert error[0.9] < 0.5 * error[0.0]


def test_new_rows_are_not_forgotten():
    X, y = wavy(40)
    territories, (record,), _ = learned(X, y, forgetting=0.5)  # one look, at twice the first rows
    (territory,) = territories.models
    assert record.n_samples == 20
    expected = np.repeat([0.5**0.2, 1.0], 20)
    np.testing.assert_allclose(territory.data.precision * territory.theta.noise**2, expected)


def test_log_evidence_is_moderate():
    for _, records, _ in (learned(*wavy(1000)), _of_flat_then_not()):
        assert max(abs(each.evidence[0]) / each.n_samples for each in records if each.n_samples) < 50.0
    X, y = wavy(400)
    y[[50, 250]] += 1e4
    _, records, _ = learned(X, y)
    assert max(abs(each.evidence[0]) / each.n_samples for each in records if each.n_samples) < 50.0


@cache
def _of_flat_then_not():
    return learned(*flat_then_not())


def flat_then_not(n=2000):
    X = np.linspace(0.0, 20.0, n)[:, None]
    return X, np.where(X < 12.0, 0.0, np.sin(3.0 * (X - 12.0)))


def test_a_field_that_is_flat_at_first():
    X, y = flat_then_not()
    error = np.abs(answers_of(_of_flat_then_not()[0], X).mean - y)
    assert error.max() < 0.2
    assert np.sqrt(np.mean(error**2)) < 0.02


@pytest.mark.parametrize("seed", [6, 7])
def test_lines_that_reach_rough_ground(seed):
    """A territory was thinned on smooth ground: it must not take what is rough for noise."""
    rng = np.random.default_rng(seed)
    waves, phases = rng.normal(scale=12.0, size=(2, 200)), rng.uniform(0.0, 2.0 * np.pi, 200)
    along, lines = np.arange(0.0, 1.5, 0.01), np.arange(0.0, 2.0, 0.05)
    passes = [np.stack(np.broadcast_arrays(line, along[:: (-1) ** n]), axis=1) for n, line in enumerate(lines)]
    X = np.concatenate(passes)
    smooth, is_rough = 3.0 * np.sin(1.5 * X[:, 0]) * np.sin(2.0 * X[:, 1]), 1.0 / (1.0 + np.exp(20.0 * (1.2 - X[:, 0])))
    y = smooth + 0.1 * is_rough * np.cos(X @ waves + phases).sum(axis=1) + 0.15 * rng.normal(size=len(X))
    noise = answers_of(learned(X, y[:, None])[0], X[X[:, 0] > 1.4]).noise
    assert 0.13 < np.sqrt(noise.mean()) < 0.18


def test_territories_are_looked_at_as_often_whatever_the_mean_is():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (400, 2))
    y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(400, 1))
    looks = [len(learned(X, y + mean, sizes=[20] * 19)[1]) for mean in (0.0, 64.0)]
    assert looks[1] <= looks[0] + 2


@pytest.mark.parametrize("seed", [0, 2])
def test_smooth_ground_stays_known_when_rough_ground_follows(seed):
    """The few pseudo-data of smooth ground tell nothing between them by the length-scales of rough ground."""
    rng = np.random.default_rng(seed)
    waves, phases = rng.normal(scale=8.0, size=(2, 200)), rng.uniform(0.0, 2.0 * np.pi, 200)
    along, lines = np.arange(0.0, 1.5, 0.015), np.arange(0.0, 2.0, 0.06)
    X = np.concatenate(
        [np.stack(np.broadcast_arrays(line, along[:: (-1) ** n]), axis=1) for n, line in enumerate(lines)]
    )
    smooth, is_rough = 3.0 * np.sin(1.5 * X[:, 0]) * np.sin(2.0 * X[:, 1]), 1.0 / (1.0 + np.exp(10.0 * (1.2 - X[:, 0])))
    field = smooth + 0.1 * is_rough * np.cos(X @ waves + phases).sum(axis=1)
    y, west = field[:, None] + 0.1 * rng.normal(size=(len(X), 1)), X[:, 0] < 0.8

    def error_and_std(territories):
        answers = answers_of(territories, X[west])
        error = answers.mean[:, 0] - field[west]
        return np.array([np.sqrt(np.mean(error**2)), np.sqrt(np.median(answers.variance))])

    first, after = (error_and_std(learned(X[rows], y[rows])[0]) for rows in (west, slice(None)))
    assert (after < [2.2, 2.0] * first).all()


@pytest.mark.parametrize(("seed", "n_copies"), [(0, 0), (1, 0), (2, 0), (0, 5)])
def test_rough_ground_in_random_order(seed, n_copies):
    """The first rows are too far apart to tell roughness from noise: they must not be thinned as noise."""
    rng = np.random.default_rng(seed)
    X = np.stack(np.meshgrid(np.arange(0.0, 2.0, 0.01), np.arange(0.0, 1.5, 0.05)), axis=-1).reshape(-1, 2)
    X = rng.permutation(X + 0.001 * rng.normal(size=X.shape))
    rough = np.where(X[:, 0] > 1.0, 1.5 * np.sin(X[:, 0] / 0.03) * np.sin(X[:, 1] / 0.04), 0.0)
    field = 5.0 * np.sin(X[:, 0] / 0.3) * np.cos(X[:, 1] / 0.25) + rough
    y = field + 0.1 * rng.normal(size=len(X))
    held_out, is_rough = np.arange(len(y)) % 5 == 0, X[:, 0] > 1.0
    rows = np.insert(np.flatnonzero(~held_out), 60, np.flatnonzero(~held_out)[40 : 40 + n_copies])
    territories, _, _ = learned(X[rows], y[rows, None])
    error = answers_of(territories, X[held_out & is_rough]).mean[:, 0] - field[held_out & is_rough]
    assert np.sqrt(np.mean(error**2)) < 0.4  # 0.75 if what is rough is taken for noise


def test_noise_in_random_order_is_thinned():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 3.0, (6000, 2))
    territories, _, _ = learned(X, np.sin(X[:, :1]) + 0.5 * rng.normal(size=(6000, 1)))
    assert sum(len(model.data) for model in territories.models) < 2500
    error = answers_of(territories, X[:500]).mean - np.sin(X[:500, :1])
    assert np.sqrt(np.mean(error**2)) < 0.08


# Values


def test_earlier_territories_stay_as_they_were(many):
    X, y, *_ = many
    before, _, _ = learned(X[:700], y[:700])
    queries = X[::50]
    expected, frozen = answers_of(before, queries), pickle.dumps(before)
    learn(before, TerritorySettings(RQ, max_models=3), X[700:], y[700:], np.ones(800), 0)
    for one, other in zip(answers_of(before, queries), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_same(before, pickle.loads(frozen))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_answer_and_learn_alike(many, copied):
    X, _, territories, *_ = many
    other = copied(territories)
    for one, two in zip(answers_of(territories, X[::50]), answers_of(other, X[::50]), strict=True):
        np.testing.assert_array_equal(one, two)
    more_X, more_y = wavy(200, seed=5)
    after = [learn(each, TerritorySettings(RQ), more_X, more_y, np.ones(200), 0) for each in (territories, other)]
    assert_same(after[0].territories, after[1].territories)


def test_whitened_errors_of_every_row_but_the_first(many):
    X, _, territories, records, whitened = many
    waiting = sum(len(model.data) - model.n_known for model in territories.models)
    assert sum(len(errors) for errors in whitened) == len(X) - 20 - waiting
    errors = np.concatenate(whitened)
    assert 0.7 < np.sqrt(np.mean(errors**2)) < 1.4
    assert [record.number for record in records] == list(range(len(records)))


def test_a_territory_is_looked_at_as_soon_as_it_has_too_many_data():
    """Not before, and by the first row too many; here no fit is due."""
    X = np.linspace(0.0, 9.0, 147)[:, None]
    model = replace(Territory.begin(RQ, X, np.sin(X), np.ones(147)), n_fitted=10**6)
    learning = Learning(Territories.of([model], 0), TerritorySettings(RQ), 0)
    assert learning.room(model) == 150
    assert learning._first_due(model, np.zeros((9, 1)), np.ones(9)) == 3
    assert learning._first_due(model, np.zeros((3, 1)), np.ones(3)) is None
