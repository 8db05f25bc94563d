"""How the ground is cut into districts, and how districts become one ensemble."""

import numpy as np
import pytest

from wgpr import WGPRegressor
from wgpr.ensemble.cuts import Cuts, grounds, route, shifted, with_leaves
from wgpr.fleet.ground import balanced_cuts, halved, joined


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (1500, 2))
    return WGPRegressor().fit(X, np.sin(3 * X[:, 0]) + np.cos(2 * X[:, 1]) + 0.01 * rng.normal(size=1500))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_districts_have_equally_many_places(n):
    Z = np.random.default_rng(n).normal(size=(1000, 2)) ** 3
    counts = np.bincount(route(balanced_cuts(Z, n, np.ones(2)), Z))
    assert len(counts) == n
    assert np.ptp(counts) <= n


def test_the_first_cut_is_across_the_longest_extent_in_lengthscales():
    Z = np.random.default_rng(0).uniform(0, 1, (200, 2)) * [10.0, 3.0]
    assert balanced_cuts(Z, 2, np.ones(2)).axis == 0
    assert balanced_cuts(Z, 2, np.array([10.0, 0.1])).axis == 1


def test_equal_places_are_not_cut_apart():
    assert balanced_cuts(np.ones((50, 2)), 4, np.ones(2)) == 0
    Z = np.concatenate([np.zeros((90, 1)), np.ones((10, 1))])
    owners = route(balanced_cuts(Z, 2, np.ones(1)), Z)
    assert set(owners[:90]) == {0}
    assert set(owners[90:]) == {1}


def test_ground_without_rows_goes_to_the_neighbours():
    tree = Cuts(0, (1.0, 2.0, 3.0), (0, 1, 2, 3))
    assert with_leaves(tree, [0, None, 1, None]) == Cuts(0, (2.0,), (0, 1))
    assert with_leaves(tree, [None, None, 0, None]) == 0
    assert with_leaves(tree, [None] * 4) is None
    nested = Cuts(0, (1.0,), (0, Cuts(1, (5.0,), (1, 2))))
    assert with_leaves(nested, [0, None, 1]) == Cuts(0, (1.0,), (0, 1))


def test_numbers_are_shifted():
    assert shifted(Cuts(0, (1.0,), (0, Cuts(1, (5.0,), (1, 2)))), 3) == Cuts(0, (1.0,), (3, Cuts(1, (5.0,), (4, 5))))


def test_halves_have_all_rows_and_stay_on_their_side(model):
    territories = model._state.ensemble
    axis, position, below, above = halved(territories)
    assert below.n_learned + above.n_learned == territories.n_learned
    n_data = [sum(len(each.data) for each in part.models) for part in (territories, below, above)]
    assert n_data[0] == n_data[1] + n_data[2]
    assert abs(n_data[1] - n_data[2]) < 0.1 * n_data[0]
    assert max(each.data.Z[:, axis].max() for each in below.models) <= position
    assert min(each.data.Z[:, axis].min() for each in above.models) > position
    for part in (below, above):
        for number, each in enumerate(part.models):  # the tree leads each point to its own territory
            assert set(route(part.cuts, each.data.Z)) == {number}


def test_halves_joined_answer_as_before(model):
    axis, position, below, above = halved(model._state.ensemble)
    both = joined(Cuts(axis, (position,), (0, 1)), [below, above])
    assert both.n_learned == model._state.ensemble.n_learned
    for number, each in enumerate(both.models):
        assert set(route(both.cuts, each.data.Z)) == {number}
    np.testing.assert_array_equal(both.overview.grounds, grounds(both.cuts, len(both), 2))
    again = model._with_state(model._state.__class__(**{**model._state.__getstate__(), "ensemble": both}))
    X = np.random.default_rng(1).uniform(0, 10, (300, 2))
    (mean, std), (mean_before, _) = again.predict(X, return_std=True), model.predict(X, return_std=True)
    assert np.sqrt(np.mean(((mean - mean_before) / std) ** 2)) < 0.1


def test_a_district_without_rows_is_left_out(model):
    territories = model._state.ensemble
    alone = joined(Cuts(0, (1e9,), (0, 1)), [territories, None])
    assert alone.cuts == territories.cuts
    assert len(alone) == len(territories)


def test_one_place_cannot_be_halved():
    model = WGPRegressor().fit(np.ones((40, 1)), np.arange(40.0))
    assert halved(model._state.ensemble) is None
