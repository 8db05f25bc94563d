"""The index of pseudo-inputs against a search through all of them, after any sequence of changes."""

import pickle

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wgpr.ensemble.index import NearestIndex, _Tree

N_FEATURES = 2
# Coordinates are small whole numbers: distances are exact, and there are many ties and repeated points.
coordinates = st.integers(-6, 6).map(float)


def some_points(max_size=6):
    return st.integers(1, max_size).flatmap(lambda n: arrays(float, (n, N_FEATURES), elements=coordinates))


def distances_by_model(points_of, x):
    """Squared distance of each model's nearest point to one query, by brute force."""
    return np.array([((points - x) ** 2).sum(axis=1).min() for points in points_of])


def owners_in_two_trees(index, X, n_models):
    """Without a tree of all points, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NearestIndex, "_is_worth_one_tree", lambda index, n_queries: False)
        return index.owners(X, n_models)


def assert_owners_are_nearest(index, points_of, X):
    """Of models at the same distance the oldest comes first."""
    nearest = np.array([np.argsort(distances_by_model(points_of, x), kind="stable") for x in X])
    for n_models in range(1, min(4, len(points_of)) + 1):
        np.testing.assert_array_equal(index.owners(X, n_models), nearest[:, :n_models])
        np.testing.assert_array_equal(owners_in_two_trees(index, X, n_models), nearest[:, :n_models])


def test_fewer_models_than_asked_for_leave_infinite_distances():
    tree = _Tree([np.zeros((1, N_FEATURES)), np.ones((1, N_FEATURES))], [0, 1])
    distances, owners = tree.nearest(np.full((1, N_FEATURES), 0.9), 3, np.array([True, False]), np.array([np.inf]))
    assert owners.tolist() == [[0, -1, -1]]
    assert np.isfinite(distances).tolist() == [[True, False, False]]


class ChangingIndex(RuleBasedStateMachine):
    """Models are added and replaced; every older index stays valid."""

    def __init__(self):
        super().__init__()
        self.index, self.points_of = NearestIndex(), []
        self.past = []

    def change(self, model, points):
        self.past.append((self.index, list(self.points_of)))
        self.index = self.index.with_model(model, points)
        self.points_of[model : model + 1] = [points]

    @initialize(points=some_points())
    def begin(self, points):
        self.change(0, points)

    @rule(points=some_points())
    def add(self, points):
        self.change(len(self.points_of), points)

    @rule(number=st.integers(0), points=some_points())
    def replace(self, number, points):
        self.change(number % len(self.points_of), points)

    @rule(points=some_points(1), times=st.integers(2, 12))
    def replace_the_last_again_and_again(self, points, times):
        for shift in range(times):
            self.change(len(self.points_of) - 1, points + shift)

    @rule(number=st.integers(0), seed=st.integers(0, 10**6))
    def replace_by_many_points(self, number, seed):
        """After a few of these, the tree is built again."""
        points = np.random.default_rng(seed).integers(-6, 7, (900, N_FEATURES)).astype(float)
        self.change(number % len(self.points_of), points)

    @precondition(lambda self: self.points_of)
    @rule(X=some_points(4))
    def search(self, X):
        assert_owners_are_nearest(self.index, self.points_of, X)

    @precondition(lambda self: len(self.past) > 1)
    @rule(number=st.integers(0), X=some_points(2))
    def search_in_the_past(self, number, X):
        index, points_of = self.past[1 + number % (len(self.past) - 1)]
        assert_owners_are_nearest(index, points_of, X)

    @invariant()
    def holds_as_many_models(self):
        assert len(self.index.points) == len(self.points_of)


TestChangingIndex = ChangingIndex.TestCase
TestChangingIndex.settings = settings(max_examples=20, stateful_step_count=25)


def grown(n_models, n_points, n_changes, seed=0):
    """An index after additions and replacements in random order, and the points that it should hold."""
    rng = np.random.default_rng(seed)
    index, points_of = NearestIndex(), []
    is_new = rng.permutation(np.repeat([True, False], [n_models, n_changes]))
    for new in is_new:
        number = len(points_of) if new or not points_of else int(rng.integers(len(points_of)))
        points = rng.normal(size=(n_points, 3))
        index = index.with_model(number, points)
        points_of[number : number + 1] = [points]
    return index, points_of


def limit_of_recent_points(index):
    return max(2000.0, 4.0 * len(index.tree.owners) ** 0.5)


@pytest.mark.parametrize("n_changes", [0, 100, 2000])
@pytest.mark.parametrize("n_models", [1, 30, 300])
def test_few_points_are_outside_of_the_large_tree_or_stale_in_it(n_models, n_changes):
    index, points_of = grown(n_models, 40, n_changes)
    n_recent = sum(len(points_of[model]) for model in index.recent)
    n_stale = np.isin(index.tree.owners, list(index.recent)).sum()
    assert n_recent <= limit_of_recent_points(index)
    assert n_stale <= limit_of_recent_points(index)
    assert len(index.tree.owners) + n_recent - n_stale == sum(len(points) for points in points_of)


def test_a_model_that_changes_often_does_not_rebuild_the_large_tree():
    index = grown(100, 40, 0)[0]
    tree, recent = index.tree, index.recent
    for _ in range(500):
        index = index.with_model(7, np.random.default_rng(0).normal(size=(4, 3)))
    assert index.tree is tree
    assert index.recent == recent | {7}


def test_the_large_tree_is_rebuilt_when_many_points_have_changed():
    index = NearestIndex.of([np.random.default_rng(model).normal(size=(100, 3)) for model in range(30)])
    tree = index.tree
    for model in range(20):
        index = index.with_model(model, index.points[model] + 1.0)
    assert index.tree is tree
    index = index.with_model(20, index.points[20] + 1.0)
    assert index.tree is not tree
    assert index.recent == frozenset()


@pytest.mark.parametrize(
    ("n_models", "n_queries", "n_trees"), [(20, 1, 1), (60, 1, 2), (60, 100, 2), (60, 400, 1), (60, 10_000, 1)]
)
def test_many_queries_or_few_points_need_one_tree(monkeypatch, n_models, n_queries, n_trees):
    searched = []
    nearest = _Tree.nearest
    monkeypatch.setattr(_Tree, "nearest", lambda tree, *rest: searched.append(tree) or nearest(tree, *rest))
    index = NearestIndex.of([np.random.default_rng(model).normal(size=(50, 3)) for model in range(n_models)])
    index = index.with_model(7, index.points[7] + 1.0)
    X = np.random.default_rng(1).normal(size=(n_queries, 3))
    owners = index.owners(X)
    assert len(searched) == n_trees
    np.testing.assert_array_equal(owners, owners_in_two_trees(index, X, 1))


@pytest.mark.parametrize("n_changes", [0, 30])
def test_a_pickle_holds_the_points_alone_and_finds_the_same(n_changes):
    index, points_of = grown(30, 40, n_changes)
    X = np.random.default_rng(1).normal(size=(50, 3))
    restored = pickle.loads(pickle.dumps(index))
    assert pickle.dumps(index) == pickle.dumps(NearestIndex.of(points_of))
    np.testing.assert_array_equal(restored.owners(X, 4), index.owners(X, 4))


@pytest.mark.parametrize("n_changes", [0, 500])
def test_the_nearest_models_are_found_among_many(n_changes):
    index, points_of = grown(200, 15, n_changes)
    X = np.random.default_rng(1).normal(size=(50, 3))
    distances = np.array([distances_by_model(points_of, x) for x in X])
    np.testing.assert_array_equal(index.owners(X, 4), np.argsort(distances, axis=1)[:, :4])


def test_a_model_behind_many_points_of_another_is_found():
    """The nearest recent model bounds the search for the nearest one, not that for the third."""
    many = np.array([[2.0 + 0.1 * step, 0.0] for step in range(20)])
    index = NearestIndex.of([many, np.array([[9.0, 0.0]])]).with_model(2, np.array([[1.0, 0.0]]))
    assert_owners_are_nearest(index, index.points, np.zeros((1, 2)))


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_oldest_of_many_equally_near_models_comes_first(side):
    """A search for few points finds some of those at the same distance, which may be others."""
    oldest, others = np.array([[side]]), np.array([[-side]])
    index = NearestIndex.of([oldest, *[others] * 40])
    np.testing.assert_array_equal(index.owners(np.zeros((1, 1)), 2), [[0, 1]])


def test_points_may_be_far_away():
    index = NearestIndex().with_model(0, np.array([[1e100, 0.0]])).with_model(1, np.array([[0.0, 1e-100]]))
    X = np.array([[9e99, 0.0], [0.0, 0.0], [-1e100, 0.0]])
    np.testing.assert_array_equal(index.owners(X), [[0], [1], [1]])
