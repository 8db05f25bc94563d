"""Which model owns the point nearest to a query: k-d trees that follow a growing, changing ensemble.

A model that changes gets a small tree of its own and its old points go stale; trees that are no larger than what
was added after them are merged, without their stale points. So there are about log J trees for J models, a change
costs O(M log) on average and most of them far less, whatever J is, and the index is a value like everything else: the
old one stays valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from wgpr.gp.linalg import Array, Indices

# A tree is merged with the younger ones once together they hold this part of its points.
_MERGE_AT = 0.25

# All trees are merged once only this part of their points is not stale.
_LEAST_ALIVE = 0.5

# Queries per point from which on it pays to make one tree of all before they are answered.
_WORTH_A_MERGER = 0.1


@dataclass(frozen=True, eq=False)
class _Tree:
    """points : (n, d) in a k-d tree; owners : (n,) model of each; generations : (n,) of that model, back then."""

    points: KDTree
    owners: Indices
    generations: Indices

    def __len__(self) -> int:
        return len(self.owners)

    def __reduce__(self) -> tuple[Any, ...]:
        """As the points that it is made of: a k-d tree would pickle addresses too, and differ every time."""
        return _tree_with, (np.asarray(self.points.data), self.owners, self.generations)


def _tree_with(points: Array, owners: Indices, generations: Indices) -> _Tree:
    return _Tree(_tree_of(points), owners, generations)


def _nothing() -> Indices:
    return np.empty(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class NearestIndex:
    """The pseudo-inputs of all models.

    generations : (J,) how often each model changed; sizes : (J,) how many points it has.
    n_alive : points that all of them have.
    """

    trees: tuple[_Tree, ...] = ()
    generations: Indices = field(default_factory=_nothing)
    sizes: Indices = field(default_factory=_nothing)
    n_alive: int = 0

    @classmethod
    def of(cls, points: Sequence[Array]) -> "NearestIndex":
        """The index of models with these points (M, d) each."""
        sizes = np.array([len(some) for some in points])
        owners = np.repeat(np.arange(len(points)), sizes)
        tree = _tree_with(np.concatenate(points), owners, np.zeros_like(owners))
        return cls((tree,), np.zeros_like(sizes), sizes, len(owners))

    def with_model(self, model: int, points: Array) -> "NearestIndex":
        """The index after model number `model` got these points (M, d), in place of any that it had."""
        n, is_new = len(points), model == len(self.sizes)
        generation, size = (0, 0) if is_new else (int(self.generations[model]) + 1, int(self.sizes[model]))
        generations, sizes = _with_number(self.generations, model, generation), _with_number(self.sizes, model, n)
        n_alive = self.n_alive + n - size
        added = _tree_with(points, np.full(n, model), np.full(n, generation))
        return NearestIndex(_merged((*self.trees, added), generations, n_alive), generations, sizes, n_alive)

    def __getstate__(self) -> dict[str, object]:
        """The same whether it was asked something before or not."""
        return {**vars(self), "trees": self._in_one_tree()}

    def _in_one_tree(self) -> tuple[_Tree, ...]:
        return (_merger(self.trees, self.generations),) if len(self.trees) > 1 else self.trees

    def owners(self, X: Array, n_models: int = 1) -> Indices:
        """The models with the nearest points, as `nearest` finds them."""
        return self.nearest(X, n_models)[0]

    def nearest(self, X: Array, n_models: int) -> tuple[Indices, Array]:
        """The `n_models` different models with the nearest points to each row of `X` (n, d), nearest first.

        Of models that are equally near the oldest comes first, so that the answer does not depend on the trees.

        Returns
        -------
        (n, n_models) model numbers, at most as many as there are models, and the distances of their nearest points.
        """
        if len(self.trees) > 1 and len(X) >= _WORTH_A_MERGER * sum(map(len, self.trees)):
            # The same points in one tree: to ask each of several about what lies in another is the expensive part.
            object.__setattr__(self, "trees", self._in_one_tree())
        distances, owners = np.empty((len(X), 0)), np.empty((len(X), 0), dtype=np.intp)
        for tree in reversed(self.trees):  # the youngest first: they tell how far to look among what is stale
            enough = distances[:, n_models - 1] if distances.shape[1] else np.full(len(X), np.inf)
            more_distances, more_owners = self._search(tree, X, n_models, enough)
            distances = np.concatenate([distances, more_distances], axis=1)
            owners = np.concatenate([owners, more_owners], axis=1)
            order = np.lexsort((owners, distances), axis=1)[:, :n_models]
            distances = np.take_along_axis(distances, order, axis=1)
            owners = np.take_along_axis(owners, order, axis=1)
        return owners, distances

    def _search(self, tree: _Tree, X: Array, n_models: int, enough: Array) -> tuple[Array, Indices]:
        """Distances (n, n_models) to the nearest living models of one tree and their numbers; infinite if fewer.

        enough : (n,) distances beyond which nobody is interesting.
        """
        distances = np.full((len(X), n_models), np.inf)
        owners = np.full((len(X), n_models), -1)
        rows, n_points = np.arange(len(X)), n_models + 1
        while len(rows):
            n_points = min(n_points, len(tree))
            distance, point = tree.points.query(X[rows], k=np.arange(1, n_points + 1))
            owner = tree.owners[point]
            owner = np.where(self.generations[owner] == tree.generations[point], owner, -1)
            order = np.lexsort((owner, distance), axis=1)
            owner = np.take_along_axis(owner, order, axis=1)
            is_first = _is_first_of_its_kind(owner) & (owner >= 0)
            first = np.argsort(~is_first, axis=1, kind="stable")[:, :n_models]
            is_found = np.take_along_axis(is_first, first, axis=1)
            width = first.shape[1]
            distances[rows, :width] = np.where(is_found, np.take_along_axis(distance, first, axis=1), np.inf)
            owners[rows, :width] = np.where(is_found, np.take_along_axis(owner, first, axis=1), -1)
            # Points beyond the last are not closer, but may be equally near: then their owners count too.
            is_done = (np.minimum(distances[rows, -1], enough[rows]) < distance[:, -1]) | (n_points == len(tree))
            rows, n_points = rows[~is_done], 4 * n_points
        return distances, owners


def _is_first_of_its_kind(labels: Indices) -> NDArray[np.bool_]:
    """Of each row (n, k) of labels, which have not occurred before in that row."""
    order = np.argsort(labels, axis=1, kind="stable")
    in_order = np.take_along_axis(labels, order, axis=1)
    is_first_in_order = np.ones(labels.shape, dtype=bool)
    is_first_in_order[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    is_first = np.empty(labels.shape, dtype=bool)
    np.put_along_axis(is_first, order, is_first_in_order, axis=1)
    return is_first


def _with_number(numbers: Indices, place: int, number: int) -> Indices:
    """With this number at `place`, in place of one or behind the last."""
    numbers = np.append(numbers, number) if place == len(numbers) else numbers.copy()
    numbers[place] = number
    return numbers


def _merged(trees: tuple[_Tree, ...], generations: Indices, n_alive: int) -> tuple[_Tree, ...]:
    """Merge from the young end while the younger trees weigh enough against the next older one."""
    if n_alive < _LEAST_ALIVE * sum(map(len, trees)):
        return (_merger(trees, generations),)
    first, weight = len(trees) - 1, len(trees[-1])
    while first > 0 and weight >= _MERGE_AT * len(trees[first - 1]):
        first, weight = first - 1, weight + len(trees[first - 1])
    return trees if first == len(trees) - 1 else (*trees[:first], _merger(trees[first:], generations))


def _merger(trees: tuple[_Tree, ...], generations: Indices) -> _Tree:
    """One tree of all the living points of these."""
    alive = [(tree, generations[tree.owners] == tree.generations) for tree in trees]
    points = np.concatenate([tree.points.data[keep] for tree, keep in alive])
    owners = np.concatenate([tree.owners[keep] for tree, keep in alive])
    return _tree_with(points, owners, generations[owners])


def _tree_of(points: Array) -> KDTree:
    """Sliding midpoints suit clusters better than medians do, and take less time to build."""
    return KDTree(points, leafsize=32, balanced_tree=False)
