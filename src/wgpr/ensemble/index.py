"""Which models own the points nearest to a query: a k-d tree that follows a changing ensemble.

Models that joined or changed since the tree was built are in a small tree of their own. The large tree is built again
when the small one has become too large, or when there are many queries. An index is an immutable value: an older one
stays valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from wgpr.gp.linalg import Array, Indices

# To search in two trees takes longer than to build one of this many points, and more for each query (measured).
_POINTS_FOR_A_SEARCH, _POINTS_FOR_A_QUERY = 1000, 6


class _Tree:
    """A k-d tree of the points (M, d) of some models, and the model that each point belongs to."""

    def __init__(self, points: Sequence[Array], models: Sequence[int]) -> None:
        # Sliding midpoints suit clusters better than medians, and take less time to build.
        self.tree = KDTree(np.concatenate(points), leafsize=32, balanced_tree=False)
        self.owners = np.repeat(models, [len(some) for some in points])

    def nearest(
        self, X: Array, n_models: int, is_current: NDArray[np.bool_], upper_bound: Array
    ) -> tuple[Array, Indices]:
        """Distances (n, n_models) to the nearest models that are current, and their numbers; infinite, -1 if fewer.

        upper_bound : (n,) on useful distances.
        """
        distances, owners = np.full((len(X), n_models), np.inf), np.full((len(X), n_models), -1)
        rows, n_points = np.arange(len(X)), n_models + 1
        while len(rows):
            n_points = min(n_points, len(self.owners))
            distance, point = self.tree.query(X[rows], k=np.arange(1, n_points + 1))
            owner = self.owners[point]
            owner = np.where(is_current[owner], owner, -1)
            order = np.lexsort((owner, distance), axis=1)
            owner = np.take_along_axis(owner, order, axis=1)
            is_first = _is_first_of_its_kind(owner) & (owner >= 0)
            first = np.argsort(~is_first, axis=1, kind="stable")[:, :n_models]
            is_found = np.take_along_axis(is_first, first, axis=1)
            width = first.shape[1]
            distances[rows, :width] = np.where(is_found, np.take_along_axis(distance, first, axis=1), np.inf)
            owners[rows, :width] = np.where(is_found, np.take_along_axis(owner, first, axis=1), -1)
            # Points beyond the last are not closer, but may be equally near: then their owners count too.
            is_done = (np.minimum(distances[rows, -1], upper_bound[rows]) < distance[:, -1]) | (
                n_points == len(self.owners)
            )
            rows, n_points = rows[~is_done], 4 * n_points
        return distances, owners


@dataclass(frozen=True, eq=False)
class NearestIndex:
    """The points of all models.

    points : (M, d) of each model; tree : of the models as they were when it was built;
    recent : numbers of the models that joined or changed since then.
    """

    points: tuple[Array, ...] = ()
    tree: _Tree | None = None
    recent: frozenset[int] = frozenset()

    @classmethod
    def of(cls, points: Sequence[Array]) -> "NearestIndex":
        """The index of models with these points (M, d) each."""
        return cls(tuple(points), _Tree(points, range(len(points))) if points else None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the points alone: the pickle does not depend on the history of the trees."""
        return NearestIndex.of, (self.points,)

    def with_model(self, model: int, points: Array) -> "NearestIndex":
        """The index after model number `model` got these points (M, d), in place of any that it had."""
        changed = (*self.points[:model], points, *self.points[model + 1 :])
        recent = self.recent | {model}
        n_recent = sum(len(changed[number]) for number in recent)
        if self.tree is None or n_recent > max(2000.0, 4.0 * len(self.tree.owners) ** 0.5):
            return NearestIndex.of(changed)
        return NearestIndex(changed, self.tree, recent)

    @cached_property
    def _recent_tree(self) -> _Tree | None:
        numbers = sorted(self.recent)
        return _Tree([self.points[number] for number in numbers], numbers) if numbers else None

    @cached_property
    def _in_one_tree(self) -> "NearestIndex":
        return NearestIndex.of(self.points)

    def _is_worth_one_tree(self, n_queries: int) -> bool:
        if self.tree is None or not self.recent:
            return False
        return len(self.tree.owners) <= _POINTS_FOR_A_SEARCH + _POINTS_FOR_A_QUERY * n_queries

    def owners(self, X: Array, n_models: int = 1) -> Indices:
        """The `n_models` different models with the nearest points to each row of `X` (n, d), nearest first.

        Of models that are equally near the oldest comes first.

        Returns
        -------
        (n, n_models) model numbers, at most as many as there are models.
        """
        if self._is_worth_one_tree(len(X)):
            return self._in_one_tree.owners(X, n_models)
        is_recent = np.zeros(len(self.points), dtype=bool)
        is_recent[list(self.recent)] = True
        distances, owners = np.empty((len(X), 0)), np.empty((len(X), 0), dtype=np.intp)
        upper_bound = np.full(len(X), np.inf)
        for tree, is_current in ((self._recent_tree, is_recent), (self.tree, ~is_recent)):
            if tree is None:
                continue
            more_distances, more_owners = tree.nearest(X, n_models, is_current, upper_bound)
            distances = np.concatenate([distances, more_distances], axis=1)
            owners = np.concatenate([owners, more_owners], axis=1)
            order = np.lexsort((owners, distances), axis=1)[:, :n_models]
            distances = np.take_along_axis(distances, order, axis=1)
            owners = np.take_along_axis(owners, order, axis=1)
            upper_bound = distances[:, -1]
        return owners


def _is_first_of_its_kind(labels: Indices) -> NDArray[np.bool_]:
    """Of each row (n, k) of labels, which have not occurred before in that row."""
    order = np.argsort(labels, axis=1, kind="stable")
    in_order = np.take_along_axis(labels, order, axis=1)
    is_first_in_order = np.ones(labels.shape, dtype=bool)
    is_first_in_order[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    is_first = np.empty(labels.shape, dtype=bool)
    np.put_along_axis(is_first, order, is_first_in_order, axis=1)
    return is_first
