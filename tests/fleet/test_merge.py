"""Maps of several robots become one."""

from copy import deepcopy
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from wgpr import LocalGPRegressor, WGPRegressor, apply, diff, load, merge
from wgpr.ensemble.cuts import route
from wgpr.ensemble.territories import Territories, TerritorySettings
from wgpr.ensemble.territory import Territory
from wgpr.ensemble.unite import Piece, Source, _numbered, _Uniting, planned, separating_cut, union, without_copies
from wgpr.gp.kernels import Hyperparameters, RationalQuadratic
from wgpr.gp.pseudodata import PseudoData
from wgpr.metrics import scores

NOISE = 0.1


def field(X):
    return 3.0 * np.sin(0.4 * X[:, 0]) * np.cos(0.3 * X[:, 1]) + 0.5 * X[:, 0]


def rows(low, high, n, seed, offset=0.0, of=field):
    """Noisy rows of a field in a box."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(low, high, (n, len(low)))
    return X, of(X) + offset + NOISE * rng.normal(size=n)


def learned(*arguments, **options):
    return WGPRegressor().fit(*rows(*arguments, **options))


def result(model, X, y):
    return scores(y, *model.predict(X, return_std=True))


WEST, MIDDLE, EAST = ([0, 0], [5, 8], 900, 1), ([4, 0], [9, 8], 800, 2), ([8, 0], [13, 8], 700, 3)
TEST = rows([0, 0], [13, 8], 1500, 9)


@pytest.fixture(scope="module")
def west():
    """Not to be changed, as all maps that tests share; merging changes none, which a test is for."""
    return learned(*WEST)


@pytest.fixture(scope="module")
def boats(west):
    return [west, learned(*MIDDLE), learned(*EAST)]


@pytest.fixture(scope="module")
def fleet(boats):
    return merge(*boats)


@pytest.fixture(scope="module")
def one_boat():
    X, y = (np.concatenate(parts) for parts in zip(*(rows(*each) for each in (WEST, MIDDLE, EAST)), strict=True))
    return WGPRegressor().fit(X, y)


# What a merged map knows


def test_it_is_as_good_as_one_map_of_all_rows(fleet, one_boat):
    merged, single = result(fleet, *TEST), result(one_boat, *TEST)
    assert merged.rmse < 1.05 * single.rmse
    assert 0.93 < merged.coverage < 0.97


def test_the_order_makes_next_to_no_difference(boats, fleet):
    expected = result(fleet, *TEST).rmse
    a, b, c = boats
    orders = [merge(*order) for order in permutations(boats)]
    for other in (*orders, merge(merge(a, b), c), merge(merge(c, a), b)):
        assert result(other, *TEST).rmse == pytest.approx(expected, rel=0.02)


def test_counts_and_bounds_are_those_of_all_maps(boats, fleet):
    assert fleet.n_samples_seen_ == sum(boat.n_samples_seen_ for boat in boats) == 2400
    assert sum(model.n_seen for model in fleet.models_) == pytest.approx(2400, abs=len(fleet.models_))
    assert max(model.visited for model in fleet.models_) <= 2400
    np.testing.assert_array_equal(fleet.bounds_[0], np.min([boat.bounds_[0] for boat in boats], axis=0))
    np.testing.assert_array_equal(fleet.bounds_[1], np.max([boat.bounds_[1] for boat in boats], axis=0))
    counts = np.sum([boat._state.calibration.counts for boat in boats], axis=0)
    np.testing.assert_array_equal(fleet._state.calibration.counts, counts)


def test_the_maps_stay_as_they_were(boats):
    before = [boat.to_bytes() for boat in boats]
    merge(*boats, align=True)
    assert [boat.to_bytes() for boat in boats] == before


def test_territories_know_what_is_on_their_ground(fleet):
    for number, model in enumerate(fleet.models_):
        assert (route(fleet._state.ensemble.cuts, model.data.Z) == number).all()
        assert len(model.data) <= 150


def test_a_merged_map_is_an_ordinary_map(boats, fleet, tmp_path):
    """It is saved, loaded, learns on, and its differences can be sent."""
    fleet.save(tmp_path / "fleet.map")
    loaded = load(tmp_path / "fleet.map")
    np.testing.assert_array_equal(loaded.predict(TEST[0]), fleet.predict(TEST[0]))
    more = rows([0, 8], [5, 12], 400, 7)
    loaded.partial_fit(*more)
    assert loaded.n_samples_seen_ == 2800
    assert result(loaded, *rows([0, 8], [5, 12], 300, 8)).rmse < 1.5 * NOISE
    fleet.save(tmp_path / "small.map", compact=True)
    news = apply(load(tmp_path / "small.map"), diff(fleet, loaded))
    np.testing.assert_allclose(news.predict(TEST[0]), loaded.predict(TEST[0]), atol=1e-3)
    both = merge(loaded, learned([13, 0], [16, 8], 300, 5))
    assert both.n_samples_seen_ == 3100


def test_compact_maps_merge_too(boats, fleet, tmp_path):
    for number, boat in enumerate(boats):
        boat.save(tmp_path / f"{number}.map", compact=True)
    compact = merge(*(load(tmp_path / f"{number}.map") for number in range(3)))
    assert result(compact, *TEST).rmse == pytest.approx(result(fleet, *TEST).rmse, rel=0.02)
    factors = [boat._state.calibration.factor for boat in boats]
    assert min(factors) <= compact._state.calibration.factor <= max(factors)


def test_units_make_no_difference(boats, fleet):
    """Each map has internal units of its own, and those of the user are the same for all."""
    scaled = merge(*(WGPRegressor().fit(1e3 * X, 1e-2 * y) for X, y in (rows(*each) for each in (WEST, MIDDLE, EAST))))
    mean, std = scaled.predict(1e3 * TEST[0], return_std=True)
    expected = fleet.predict(TEST[0], return_std=True)
    np.testing.assert_allclose([1e2 * mean, 1e2 * std], expected, atol=0.05)


@pytest.fixture(scope="module")
def fewer_and_more():
    """Rows, with the map that has learned them."""
    surveys = [rows([0, 0], [3, 3], n, 2) for n in (200, 400)]
    return [(X, WGPRegressor().fit(X, y)) for X, y in surveys]


@pytest.mark.parametrize(("length", "scale"), [(1e98, 1.0), (1e-98, 1.0), (1.0, 1e98), (1.0, 1e-98)])
def test_units_may_be_far_apart(length, scale, fewer_and_more, tmp_path):
    """The map answers, and can be saved and loaded."""
    X, y = rows([0, 0], [3, 3], 300, 1)
    other = WGPRegressor().fit(length * X, scale * y)
    for X, model in fewer_and_more:
        both = merge(model, other)
        both.save(tmp_path / "both.map")
        loaded = load(tmp_path / "both.map")
        for queries in (X, length * X):
            mean, std = loaded.predict(queries, return_std=True)
            assert np.isfinite(mean).all()
            assert np.isfinite(std).all()
            assert (std > 0).all()


def test_a_few_rows_are_a_map(west):
    both = merge(learned([6.0, 4.0], [6.5, 4.5], 7, 3), west)
    assert both.n_samples_seen_ == 907
    assert abs(both.predict([[6.25, 4.25]])[0] - field(np.array([[6.25, 4.25]]))[0]) < 0.3


def test_several_outputs():
    def both_outputs(*box):
        X, y = rows(*box)
        return WGPRegressor().fit(X, np.stack([y, 10.0 + 5.0 * y], axis=1))

    model = merge(both_outputs(*WEST), both_outputs(*MIDDLE), align=True)
    inside = TEST[0][TEST[0][:, 0] < 9]
    np.testing.assert_allclose(model.predict(inside)[:, 1], 10.0 + 5.0 * model.predict(inside)[:, 0], atol=0.2)
    assert np.shape(model.offsets_[1].offset) == np.shape(model.offsets_[1].std) == (2,)


# New ground


def test_new_ground_keeps_the_hyperparameters_of_its_owner():
    """A rough map beyond the outermost territory of a smooth one, which has no end there."""

    def rough(X):
        return field(X) + 2.0 * np.sin(9.0 * X[:, 0]) * np.sin(8.0 * X[:, 1])

    smooth, other = learned([0, 0], [8, 8], 1500, 1), learned([9, 0], [12, 3], 700, 2, of=rough)
    both = merge(smooth, other)
    X, y = rows([9, 0], [12, 3], 400, 3, of=rough)
    assert result(both, X, y).rmse < 1.05 * result(other, X, y).rmse
    X, y = rows([0, 0], [8, 8], 400, 4)
    assert result(both, X, y).rmse < 1.05 * result(smooth, X, y).rmse
    lengths = np.array([theta.lengthscales for theta in both.hyperparameters_])
    numbers = both.model_index([[4.0, 4.0], [10.5, 1.5]])
    assert (lengths[numbers[0]] > 2.0 * lengths[numbers[1]]).all()


def test_two_regimes_in_one_territory_are_cut_apart():
    """Both have few rows: all of them have room in one territory, and the evidence divides it."""

    def rough(X):
        return 3.0 * np.sin(9.0 * X[:, 0])

    west = learned([0.0], [5.0], 60, 1, of=lambda X: 0.3 * X[:, 0])
    east = learned([5.2], [8.0], 60, 2, of=rough)
    assert (west.n_models_, east.n_models_) == (1, 1)
    assert merge(west, east).n_models_ == 2
    again = learned([5.2], [8.0], 60, 3, of=lambda X: 0.3 * X[:, 0])
    assert merge(west, again).n_models_ == 1


# Copies


def test_a_map_merged_with_itself_is_the_same(boats):
    same = merge(boats[0], deepcopy(boats[0]), boats[0])
    answers = [model.predict(TEST[0], return_std=True) for model in (same, boats[0])]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-9)  # but for rounding
    assert same.n_samples_seen_ == boats[0].n_samples_seen_


def test_rows_that_two_maps_have_count_once():
    (X, y), (X_own, y_own) = rows([0, 0], [2, 2], 60, 1), rows([2, 0], [3, 2], 40, 2)
    one = WGPRegressor().fit(X, y)
    other = WGPRegressor().fit(np.concatenate([X_own, X]), np.concatenate([y_own, y]))
    both = merge(one, other)
    assert both.n_samples_seen_ == 100
    assert sum(len(model.data) for model in both.models_) == 100
    queries = rows([0, 0], [2, 2], 200, 3)[0]
    single = WGPRegressor().fit(np.concatenate([X, X_own]), np.concatenate([y, y_own]))
    deviations = [model.predict(queries, return_std=True, latent=True)[1] for model in (both, single)]
    assert np.median(deviations[0] / deviations[1]) > 0.8


def test_maps_that_go_on_from_the_same_map_are_refused(boats):
    earlier, later = deepcopy(boats[0]), deepcopy(boats[0])
    earlier.partial_fit(*rows([0, 0], [2, 2], 300, 11))
    later.partial_fit(*rows([3, 3], [5, 5], 300, 12))
    with pytest.raises(ValueError, match="map 1 and map 3 go on from the same map"):
        merge(earlier, boats[1], later)


# Contradictions


@pytest.mark.parametrize("offset", [0.3, 1.0, 5.0])
def test_contradictory_maps_are_uncertain_where_they_overlap(west, offset):
    both = merge(west, learned([0, 0], [5, 8], 400, 5, offset=offset))
    X = rows([0.5, 0.5], [4.5, 7.5], 400, 6)[0]
    mean, std = both.predict(X, return_std=True, latent=True)
    for truth in (field(X), field(X) + offset):
        assert (np.abs(mean - truth) < 1.96 * std).mean() > 0.85
    assert np.median(std) > 0.25 * offset
    assert np.median(np.abs(mean - field(X) - offset / 2)) < 0.5 * offset  # between the two


@pytest.mark.parametrize("size", [0.4, 3.0])
def test_maps_of_other_fields_are_uncertain_too(size):
    """In the mean of three pairs: one of them may keep rows, which then have more noise instead."""

    def other(X):
        return field(X) + size * np.sin(1.5 * X[:, 0] + X[:, 1])

    X, inside = rows([0.2, 0.2], [1.8, 1.8], 400, 6)[0], []
    for seed in (0, 10, 20):
        both = merge(learned([0, 0], [2, 2], 900, seed + 1), learned([0, 0], [2, 2], 900, seed + 5, of=other))
        mean, std = both.predict(X, return_std=True, latent=True)
        inside.append([(np.abs(mean - truth) < 1.96 * std).mean() for truth in (field(X), other(X))])
    assert (np.mean(inside, axis=0) > 0.8).all()


def test_maps_that_agree_are_more_certain_together(west):
    other = learned([0, 0], [5, 8], 900, 5)
    X = rows([0.5, 0.5], [4.5, 7.5], 400, 6)[0]
    mean, std = merge(west, other).predict(X, return_std=True, latent=True)
    assert np.median(std) < np.median(west.predict(X, return_std=True, latent=True)[1])
    assert (np.abs(mean - field(X)) < 1.96 * std).mean() > 0.85


# Offsets


def test_offsets_are_found_with_their_uncertainty():
    errors, deviations = [], []
    for seed in range(3):
        maps = [
            learned(*each[:2], 300, 10 * seed + place, offset=offset)
            for place, (each, offset) in enumerate(zip((WEST, MIDDLE, EAST), (0.0, 0.3, -0.2), strict=True))
        ]
        offsets = merge(*maps, align=True).offsets_
        assert offsets[0] == (0.0, 0.0)
        errors += [offsets[1].offset - 0.3, offsets[2].offset + 0.2]
        deviations += [each.std for each in offsets[1:]]
    assert np.abs(errors).max() < 0.1
    assert 0.3 < np.sqrt(np.mean((np.array(errors) / deviations) ** 2)) < 1.7


def test_aligned_maps_read_as_the_first_does(boats):
    shifted = [boats[0], *(learned(*each, offset=offset) for each, offset in ((MIDDLE, 2.0), (EAST, -3.0)))]
    aligned = merge(*shifted, align=True)
    assert result(aligned, *TEST).rmse < 1.1 * NOISE
    last = merge(*shifted[::-1], align=True)
    assert last.offsets_[2].offset == pytest.approx(-aligned.offsets_[2].offset, abs=0.02)
    assert result(last, TEST[0], TEST[1] - 3.0).rmse < 1.1 * NOISE


def test_offsets_need_a_chain_of_overlaps(boats):
    a, b, c = boats
    assert len(merge(a, b, c, align=True).offsets_) == 3  # a and c overlap with b alone
    far = learned([50, 50], [55, 55], 100, 4)
    with pytest.raises(ValueError, match="no chain of them from map 3 to map 1"):
        merge(a, b, far, align=True)
    assert merge(a, b, far).n_samples_seen_ == 1800


# Maps that cannot be merged


def test_what_cannot_be_merged_says_why(boats):
    def frame(names, target, outputs=1):
        X, y = rows(*WEST)
        return WGPRegressor().fit(pd.DataFrame(X[:100], columns=names), pd.Series(y[:100], name=target))

    depth, X, y = frame(["east", "north"], "depth"), *rows(*WEST)
    wrong = [
        ((boats[0],), ValueError, "at least 2"),
        ((), ValueError, "at least 2"),
        ((boats,), TypeError, "map 1 is a list"),
        ((boats[0], WGPRegressor()), ValueError, "map 2 has learned nothing"),
        ((boats[0], LocalGPRegressor().fit(X[:50], y[:50])), TypeError, "map 2 is a LocalGPRegressor"),
        ((boats[0], WGPRegressor.published().fit(X[:50], y[:50])), ValueError, "paper's method"),
        ((boats[0], WGPRegressor().fit(X[:50, :1], y[:50])), ValueError, "number of inputs 1 and map 1 has 2"),
        ((boats[0], WGPRegressor().fit(X[:50], np.stack([y[:50]] * 2, axis=1))), ValueError, "number of outputs 2"),
        ((boats[0], WGPRegressor(kernel="se").fit(X[:50], y[:50])), ValueError, "kernel SquaredExponential"),
        ((depth, frame(["north", "east"], "depth")), ValueError, r"inputs \['north', 'east'\]"),
        ((depth, frame(["east", "north"], "height")), ValueError, "target height and map 1 has depth"),
    ]
    for maps, kind, words in wrong:
        with pytest.raises(kind, match=words):
            merge(*maps)
    with pytest.raises(TypeError, match="align must be"):
        merge(*boats, align="yes")


def test_names_are_kept():
    X, y = rows(*WEST)
    named = WGPRegressor().fit(pd.DataFrame(X[:50], columns=["east", "north"]), pd.Series(y[:50], name="depth"))
    plain = WGPRegressor().fit(X[50:100], y[50:100])
    for both in (merge(named, plain), merge(plain, named)):
        assert both.feature_names_in_.tolist() == ["east", "north"]
        assert both.target_name_ == "depth"


def test_the_settings_are_those_of_the_first():
    X, y = rows(*WEST)
    a, b = WGPRegressor(max_models=2).fit(X[:300], y[:300]), WGPRegressor(calibrated=False).fit(X[300:], y[300:])
    assert merge(a, b).max_models == 2
    assert merge(a, b).n_models_ <= 2
    assert merge(b, a).calibrated is False


# Parts


def test_a_cut_separates_places():
    rng = np.random.default_rng(0)
    one, other = rng.uniform(0, 1, (50, 2)), rng.uniform([0, 1.1], [1, 2], (30, 2))
    axis, position = separating_cut(one, other)
    assert axis == 1
    assert one[:, 1].max() <= position <= other[:, 1].min()
    assert separating_cut(other, one) == (axis, position)
    assert separating_cut(one, rng.uniform(0, 1, (30, 2))) is None
    assert separating_cut(one[:1], one[:1]) is None
    assert separating_cut(rng.uniform(0, 1, (5000, 2)), one) is None  # few among many: no cut leaves only some behind


def test_territories_of_the_first_map_keep_their_numbers():
    leaves = [[Piece(0, 1, None)], [Piece(1, 0, None)], [Piece(1, 1, None), Piece(0, 0, None)], [Piece(0, 1, None)]]
    assert _numbered(leaves) == [2, 0, 1, 3]


def test_regimes_are_told_apart_by_the_map_that_knows_most(monkeypatch):
    """The third map agrees with both of the others, which disagree."""
    monkeypatch.setattr(_Uniting, "_are_two_regimes", lambda *_: True)
    kernel, rng, pieces = RationalQuadratic(), np.random.default_rng(0), []
    for source, (low, n, difference) in enumerate([(0.0, 60, 0.0), (5.0, 30, 1.4), (0.0, 20, 0.7)]):
        theta = Hyperparameters.from_log(np.log([1.0, 1.0, 1.0, 0.1]) + difference * np.array([1, -1, 1, -1]), 1)
        Z = rng.uniform(low, low + 4.0, (n, 1))
        data = PseudoData.of_rows(Z, np.sin(Z), np.ones(n), theta.noise)
        pieces.append(Piece(source, 0, Territory(kernel, theta, np.zeros(1), data, n, n, n, Z.std(axis=0), n)))
    together = Territories.of([union([piece.territory for piece in pieces])], 0)
    uniting = _Uniting(together, TerritorySettings(kernel), 0)
    uniting.judge(0, pieces)
    assert [len(model.data) for model in uniting.models] == [80, 30]


def test_a_plan_has_all_pseudo_data_once(boats):
    sources = [Source(boat.models_, boat._state.ensemble.cuts) for boat in boats]
    plan = planned(sources, 150)
    counts = np.zeros(3, dtype=int)
    for number, pieces in enumerate(plan.leaves):
        for piece in pieces:
            counts[piece.source] += len(piece.territory.data)
            assert (route(plan.cuts, piece.territory.data.Z) == number).all()
    assert counts.tolist() == [sum(len(model.data) for model in boat.models_) for boat in boats]


def test_copies_are_told_from_other_readings_of_the_same_place(boats):
    source = Source(boats[0].models_, boats[0]._state.ensemble.cuts)
    moved = [replace(model, data=replace(model.data, t=model.data.t + 0.01)) for model in source.models]
    (_, _), (copy, holder), (other, _) = without_copies([source, source, source._replace(models=moved)])
    assert copy is None
    assert holder == 0
    assert [len(model.data) for model in other.models] == [len(model.data) for model in source.models]


def test_only_what_another_map_has_is_left_out():
    boats = [learned([0.0, 0.0], [20.0, 10.0], 600, 0), learned([0.0, 0.0], [20.0, 10.0], 600, 1)]
    source = Source(boats[0].models_, boats[0]._state.ensemble.cuts)
    assert len(source.models) > 1
    halves = [np.arange(len(model.data)) < len(model.data) // 2 for model in source.models]
    moved = [
        replace(model, data=replace(model.data, t=model.data.t + np.where(half, 0.01, 0.0)[:, None]))
        for model, half in zip(source.models, halves, strict=True)
    ]
    (_, _), (rest, holder) = without_copies([source, source._replace(models=moved)])
    assert holder == 0
    for left, model, half in zip(rest.models, moved, halves, strict=True):
        np.testing.assert_array_equal(left.data.Z, model.data.Z[half])
        np.testing.assert_array_equal(left.data.t, model.data.t[half])


def test_maps_of_degrees_are_merged_where_they_are():
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    from wgpr.io.coordinates import coordinates_of, user_bounds
    from wgpr.io.grids import predict_at
    from wgpr.io.rows import learn_rows

    def surveyed(west, crs="EPSG:4326", seed=0):
        rng = np.random.default_rng(seed)
        X = np.column_stack([rng.uniform(west, west + 0.02, 300), rng.uniform(44.50, 44.52, 300)])
        model = WGPRegressor()
        model.crs_ = coordinates_of(crs, ["lon", "lat"])
        learn_rows(model, np.column_stack([X, 1000.0 * (X[:, 0] + 76.33)]), None, ("lon", "lat", "depth"))
        return model

    one, other = surveyed(-76.33), surveyed(-76.30, seed=1)
    for both in (merge(one, other), merge(other, one)):
        places = np.array([[-76.32, 44.51], [-76.29, 44.51]])
        np.testing.assert_allclose(predict_at(both, places), [10.0, 40.0], atol=0.5)
        assert user_bounds(both)[0, 0] == pytest.approx(-76.33, abs=1e-3)
        assert user_bounds(both)[1, 0] == pytest.approx(-76.28, abs=1e-3)
    with pytest.raises(ValueError, match="coordinate reference system"):
        merge(one, surveyed(-76.30, crs="EPSG:4269"))
    plain = WGPRegressor()
    learn_rows(plain, np.random.default_rng(0).uniform(size=(20, 3)), None, ("lon", "lat", "depth"))
    for maps, without in (((one, plain), "2"), ((plain, one), "1")):
        with pytest.raises(ValueError, match="one map has a coordinate reference system, the other has none") as error:
            merge(*maps)
        assert without in str(error.value)
        assert "origin" not in str(error.value)
