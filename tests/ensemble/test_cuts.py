"""Cuts: every place has exactly one territory, whatever is divided and merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wgpr.ensemble.cuts import Cuts, adjacent, built, divided, median_cut, merged, path_to, renumbered, route

BOX = 10.0


def cells(node, d):
    """Number and box (2, d) of each territory. A cell holds its upper faces, not its lower."""

    def walk(node, low, high):
        if isinstance(node, int):
            yield node, low, high
            return
        edges = (low[node.axis], *node.positions, high[node.axis])
        assert list(node.positions) == sorted(node.positions)
        assert len(node.children) == len(node.positions) + 1 > 1
        for child, below, above in zip(node.children, edges, edges[1:], strict=False):
            low, high = low.copy(), high.copy()
            low[node.axis], high[node.axis] = below, above
            yield from walk(child, low, high)

    return list(walk(node, np.full(d, -np.inf), np.full(d, np.inf)))


def brute_force(node, X):
    """(n,): the only cell that holds each place."""
    held = np.array([((low < X) & (high >= X)).all(axis=1) for _, low, high in cells(node, X.shape[1])])
    assert (held.sum(axis=0) == 1).all()
    return np.array([number for number, *_ in cells(node, X.shape[1])])[held.argmax(axis=0)]


def places(node, d):
    """A place (d,) in each territory."""
    return {number: np.minimum(high, BOX + 1.0) for number, _, high in cells(node, d)}


def all_pairs(node, d):
    """All pairs of adjacent territories."""
    return sorted({pair for number, inside in places(node, d).items() for pair in adjacent(node, number, inside)})


def depth(node):
    return 0 if isinstance(node, int) else 1 + max(depth(child) for child in node.children)


def grown(seed, d, n_steps, share_of_merges=0.0):
    """A tree after random divisions and merges, and the number of its territories."""
    rng = np.random.default_rng(seed)
    node, n = 0, 1
    for _ in range(n_steps):
        if n > 1 and rng.uniform() < share_of_merges:
            pairs = all_pairs(node, d)
            first, second = pairs[rng.integers(len(pairs))]
            node = merged(node, (first, second), min(first, second), places(node, d)[first])
            n -= 1
            if max(first, second) < n:
                node = renumbered(node, n, max(first, second), places(node, d)[n])
            continue
        inside = rng.integers(-10, 10, d).astype(float)
        (number,) = route(node, inside[None])
        _, low, high = next(cell for cell in cells(node, d) if cell[0] == number)
        axis = int(rng.integers(d))
        low, high = max(low[axis], -BOX - 1), min(high[axis], BOX + 1)
        node = divided(node, inside, axis, float(rng.uniform(low, high)), (int(number), n))
        n += 1
    return node, n


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 3), n_steps=st.integers(0, 40), share=st.floats(0.0, 0.6))
def test_each_place_has_one_territory(seed, d, n_steps, share):
    node, n = grown(seed, d, n_steps, share)
    X = np.random.default_rng(seed).uniform(-BOX, BOX, (200, d))
    np.testing.assert_array_equal(route(node, X), brute_force(node, X))
    assert sorted(number for number, *_ in cells(node, d)) == list(range(n))


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_division_and_merge_change_no_other_territory(seed):
    rng = np.random.default_rng(seed)
    node, n = grown(seed, 2, 15)
    X = rng.uniform(-BOX, BOX, (300, 2))
    before = route(node, X)
    if n == 1:
        return
    pairs = all_pairs(node, 2)
    assert pairs, "something can always be merged"
    first, second = pairs[rng.integers(len(pairs))]
    after = route(merged(node, (first, second), first, places(node, 2)[first]), X)
    np.testing.assert_array_equal(after, np.where(before == second, first, before))


def test_adjacent_territories_are_those_that_one_cut_separates():
    node = Cuts(0, (1.0, 2.0), (0, Cuts(1, (5.0,), (1, 2)), 3))
    assert all_pairs(node, 2) == [(1, 2)]
    after = merged(node, (1, 2), 1, np.array([1.5, 0.0]))
    assert after == Cuts(0, (1.0, 2.0), (0, 1, 3))
    assert all_pairs(after, 2) == [(0, 1), (1, 3)]
    assert adjacent(after, 1, np.array([1.5, 0.0])) == [(0, 1), (1, 3)]
    assert merged(Cuts(0, (1.0,), (0, 1)), (0, 1), 0, np.zeros(1)) == 0
    assert adjacent(0, 0, np.zeros(1)) == []


def test_a_place_that_was_rounded_is_found_by_its_number():
    node = Cuts(0, (1.0, 2.0), (0, Cuts(1, (5.0,), (1, 2)), 3))
    elsewhere, there = np.array([9.0, 9.0]), np.array([1.5, 9.0])
    assert path_to(node, 2, elsewhere) == path_to(node, 2, there)
    assert path_to(node, 0, elsewhere) == [(node, 0)]
    assert renumbered(node, 2, 4, elsewhere) == Cuts(0, (1.0, 2.0), (0, Cuts(1, (5.0,), (1, 4)), 3))
    assert divided(node, elsewhere, 1, 7.0, (2, 4)) == divided(node, there, 1, 7.0, (2, 4))
    with pytest.raises(ValueError, match="territory 7 is not in the tree"):
        path_to(node, 7, elsewhere)


def test_a_place_on_a_cut_belongs_below_it():
    node = divided(0, np.zeros(1), 0, 1.0, (0, 1))
    np.testing.assert_array_equal(route(node, np.array([[1.0], [np.nextafter(1.0, 2.0)]])), [0, 1])
    again = divided(node, np.array([1.0]), 0, 0.5, (0, 2))  # a place on a cut is found again
    np.testing.assert_array_equal(route(again, np.array([[0.5], [1.0], [1.5]])), [0, 2, 1])


def test_the_number_decides_for_a_place_that_was_rounded():
    node = Cuts(0, (1.0,), (0, Cuts(1, (5.0,), (1, 2))))
    after = divided(node, np.array([1.0, 7.0]), 0, 3.0, (2, 3))  # the place belongs to territory 0
    places = np.array([[0.5, 7.0], [2.0, 4.0], [2.0, 7.0], [4.0, 7.0]])
    np.testing.assert_array_equal(route(after, places), [0, 1, 2, 3])


def test_a_territory_is_cut_where_it_is_longest_in_length_scales():
    Z = np.column_stack([np.linspace(0.0, 10.0, 11), np.linspace(0.0, 4.0, 11)])
    assert median_cut(Z, np.array([1.0, 1.0])) == (0, 5.0)
    assert median_cut(Z, np.array([5.0, 1.0])) == (1, 2.0)


def test_a_long_line_makes_no_deep_tree():
    node = 0
    for number in range(2000):
        node = divided(node, np.array([number + 0.5]), 0, float(number + 1), (number, number + 1))
    assert depth(node) == 1
    np.testing.assert_array_equal(route(node, np.arange(2000)[:, None] + 0.5), np.arange(2000))


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_built_tree_holds_its_places(d):
    Z = np.random.default_rng(d).normal(size=(1000, d))
    node, parts = built(Z, 30)
    assert all(len(rows) <= 30 for rows in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(1000))
    for number, rows in enumerate(parts):
        assert (route(node, Z[rows]) == number).all()
    np.testing.assert_array_equal(route(node, Z), brute_force(node, Z))
    assert depth(node) < 12


def test_a_tree_of_equal_places_is_one_territory():
    node, parts = built(np.ones((100, 2)), 30)
    assert node == 0
    assert len(parts) == 1


def test_half_of_the_places_are_equal():
    """The median along the widest axis is the largest value there: other axes, and values below, still allow a cut."""
    rng = np.random.default_rng(0)
    Z = np.column_stack([np.where(np.arange(100) < 60, 10.0, rng.uniform(0, 5, 100)), rng.uniform(0, 4, 100)])
    node, parts = built(Z, 30)
    assert all(len(rows) <= 30 for rows in parts)
    np.testing.assert_array_equal(route(node, Z), brute_force(node, Z))
