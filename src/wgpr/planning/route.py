"""One path through the ground with most gain for its length.

Straight pieces of parallel lines are inserted one after the other, always the one with the largest gain for the length
that it adds. Then the order and the directions of the pieces are improved (2-opt), and what is saved is spent again.
Of several directions of the lines the best is taken. Legs that would leave the ground go around, from cell to cell.
Only between parts of the ground that nothing joins are they straight.
"""

from collections.abc import Callable
from copy import copy
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial.distance import cdist

from wgpr.gp.linalg import Array, Indices
from wgpr.planning.choice import Piece, best_by_bounds, cells_along, directions, length_of, rows_of
from wgpr.planning.ground import Ground
from wgpr.planning.uncertainty import Uncertainty

# Directions of the lines, and cells of a piece.
_N_DIRECTIONS, _SIZE = 4, 6

# Times that the order is improved and the rest of the budget spent.
_ROUNDS = 3

# Times that a part of the path is made anew, and the fraction of its pieces.
_N_REPAIRS, _REPAIRED = 12, 0.2


def choose_path(
    uncertainty: Uncertainty,
    start: Array,
    budget: float,
    end: Array | None = None,
    show: Callable[[float], None] = lambda part: None,
) -> Array:
    """Corners (k, 2) of a path from `start` (2,), and to `end` if there is one, of at most the length `budget`.

    show : is called with the part of the work that is done, from 0 to 1.
    """
    ground, best = uncertainty.ground, None
    way_around = WayAround(ground)
    n_steps = _N_DIRECTIONS + _N_REPAIRS
    for step, direction in enumerate(directions(_N_DIRECTIONS)):
        show(step / n_steps)
        if pieces := _pieces(ground, direction):
            route = _Route(uncertainty, start, end, budget, pieces, way_around)
            route.spend()
            if best is None or route.gain > best.gain:
                best = route
    if best is None or not best.gain:
        raise ValueError("the budget is too short to reach ground where a measurement helps; begin nearer to it")
    random = np.random.default_rng(0)
    for step in range(_N_DIRECTIONS, n_steps):
        show(step / n_steps)
        other = best.without_some(random)
        other.spend()
        if other.gain > best.gain:
            best = other
    return best.corners


def _pieces(ground: Ground, direction: Array) -> list[Piece]:
    """All lines in a direction, cut into pieces."""
    pieces = []
    step = float(ground.width.mean())
    for row in rows_of(ground, direction):
        for whole in row:
            n = max(1, round(whole.length / (_SIZE * step)))
            ends = whole.ends[0] + np.linspace(0.0, 1.0, n + 1)[:, None] * (whole.ends[1] - whole.ends[0])
            for pair in pairwise(ends):
                corners = np.array(pair)
                pieces.append(Piece(corners, cells_along(ground, corners)))
    return pieces


class _Route:
    """Pieces in an order, each driven from its first to its second end.

    corners : (k, 2) of the path; gain : what it takes out of the sum of the variances.
    """

    def __init__(
        self,
        uncertainty: Uncertainty,
        start: Array,
        end: Array | None,
        budget: float,
        pieces: list[Piece],
        way_around: "WayAround",
    ) -> None:
        self._before, self._start, self._end, self._budget = uncertainty, start, end, budget
        self._pieces = pieces
        self._ends = np.array([piece.ends for piece in pieces])
        self._lengths = np.array([piece.length for piece in pieces])
        self._first_bounds = np.full(len(pieces), np.inf)
        self._order: list[int] = []
        self._is_reversed: list[bool] = []
        self._way_around = way_around
        self.corners, self.gain = self._corners(), 0.0

    def without_some(self, random: np.random.Generator) -> "_Route":
        """The route without the pieces around a random one of them."""
        other = copy(self)
        other._order, other._is_reversed = [], []
        if self._order:
            middles = self._ends[self._order].mean(axis=1)
            distances = np.linalg.norm(middles - middles[random.integers(len(middles))], axis=1)
            n_left = len(middles) - max(1, round(_REPAIRED * len(middles)))
            left = np.sort(np.argsort(-distances)[:n_left]).tolist()
            other._order = [self._order[place] for place in left]
            other._is_reversed = [self._is_reversed[place] for place in left]
        return other

    def spend(self) -> None:
        """Insert pieces until the budget is spent."""
        self._after = self._before.copy()
        self._after.measure(cells_along(self._before.ground, self._corners()))
        self._bounds = self._first_bounds.copy()
        inserted: list[int] = []
        for _ in range(_ROUNDS):
            added = self._fill()
            inserted += added
            self._improve()
            if not added:
                break
        corners = self._way_around.path(self._corners())
        while length_of(corners) > self._budget and len(self._order):
            self._drop(inserted.pop() if inserted else self._order[-1])
            corners = self._way_around.path(self._corners())
        after = self._before.copy()
        after.measure(cells_along(self._before.ground, corners))
        self.corners, self.gain = corners, float((self._before.variance - after.variance).sum())

    def _corners(self) -> Array:
        sides = [
            self._ends[number][::-1] if is_reversed else self._ends[number]
            for number, is_reversed in zip(self._order, self._is_reversed, strict=True)
        ]
        last = [] if self._end is None else [self._end[None]]
        return np.concatenate([self._start[None], *sides, *last])

    def _drop(self, number: int) -> None:
        place = self._order.index(number)
        del self._order[place], self._is_reversed[place]

    def _fill(self) -> list[int]:
        """Insert pieces until none fits into the budget, and tell which."""
        found, length = list[int](), length_of(self._corners())
        while True:
            added, places, are_reversed = self._insertions()
            allowed = length + added <= self._budget
            allowed[self._order] = False
            bounds = np.where(allowed, self._bounds, 0.0)
            number = best_by_bounds(bounds, np.maximum(added, 1e-9), self._gain_of)
            self._bounds = np.where(allowed, bounds, self._bounds)
            if bounds[number] <= 0.0:
                return found
            self._order.insert(int(places[number]), number)
            self._is_reversed.insert(int(places[number]), bool(are_reversed[number]))
            self._after.measure(self._pieces[number].cells)
            found.append(number)
            length += float(added[number])

    def _gain_of(self, number: int) -> float:
        if np.isinf(self._first_bounds[number]):
            self._first_bounds[number] = self._before.gain(self._pieces[number].cells)
        return self._after.gain(self._pieces[number].cells)

    def _insertions(self) -> tuple[Array, Indices, Array]:
        """For each piece the least length that it adds, where that is, and whether it is reversed there."""
        corners = self._corners()
        before = corners[0 : 2 * len(self._order) + 1 : 2]  # ends of legs: (legs, 2)
        after = corners[1::2]
        first, second = self._ends[:, 0], self._ends[:, 1]
        to_first, to_second = cdist(before, first), cdist(before, second)  # (legs, pieces)
        from_first, from_second = np.zeros((2, *to_first.shape))
        legs = np.zeros(len(before))
        n = len(after)
        from_first[:n], from_second[:n] = cdist(after, first), cdist(after, second)
        legs[:n] = np.linalg.norm(after - before[:n], axis=1)
        forwards = to_first + from_second - legs[:, None]
        backwards = to_second + from_first - legs[:, None]
        shorter = np.minimum(forwards, backwards)
        places = shorter.argmin(axis=0)
        columns = np.arange(len(first))
        are_reversed = backwards[places, columns] < forwards[places, columns]
        return self._lengths + shorter[places, columns], places, are_reversed

    def _improve(self) -> None:
        """Reverse parts of the order as long as that makes the path shorter."""
        improved = True
        while improved:
            improved = False
            for first in range(len(self._order)):
                corners = self._corners()
                before, inner = corners[2 * first], corners[2 * first + 1]
                lasts = corners[2 * first + 2 : 2 * len(self._order) + 1 : 2]  # last ends of the part
                nexts = corners[2 * first + 3 :: 2]  # first ends behind it
                saved = np.linalg.norm(inner - before) - np.linalg.norm(lasts - before, axis=1)
                n = len(nexts)
                saved[:n] += np.linalg.norm(nexts - lasts[:n], axis=1) - np.linalg.norm(nexts - inner, axis=1)
                last = int(np.argmax(saved))
                if saved[last] > 1e-9 * self._budget:
                    part = slice(first, first + last + 1)
                    self._order[part] = self._order[part][::-1]
                    self._is_reversed[part] = [not each for each in self._is_reversed[part][::-1]]
                    improved = True


class WayAround:
    """Legs between places of a ground that stay in it."""

    def __init__(self, ground: Ground) -> None:
        self._ground, self._graph = ground, None

    def path(self, corners: Array) -> Array:
        """The corners (k, 2) with others between them where a leg would leave the ground; without needless ones."""
        parts = [corners[:1]]
        for start, end in pairwise(corners):
            parts += [self._around(start, end), end[None]]
        return _without_needless(np.concatenate(parts))

    def _around(self, start: Array, end: Array) -> Array:
        if self._is_clear(start, end):
            return np.zeros((0, 2))
        first, last = self._nearest(start), self._nearest(end)
        _, before = dijkstra(self._distances(), indices=first, return_predecessors=True)
        cells = [last]
        while cells[-1] != first and before[cells[-1]] >= 0:
            cells.append(int(before[cells[-1]]))
        if cells[-1] != first:  # two grounds without a way between them
            return np.zeros((0, 2))
        places = [start, *self._ground.nodes[cells[::-1]], end]
        kept = [0]
        while kept[-1] < len(places) - 1:  # as far as can be seen
            following = range(len(places) - 1, kept[-1], -1)
            kept.append(next((i for i in following if self._is_clear(places[kept[-1]], places[i])), kept[-1] + 1))
        return np.array([places[i] for i in kept[1:-1]]).reshape(-1, 2)

    def _is_clear(self, start: Array, end: Array) -> bool:
        n = max(2, int(np.ceil(2.0 * np.linalg.norm((end - start) / self._ground.width))))
        places = start + np.linspace(0.0, 1.0, n + 1)[1:-1, None] * (end - start)
        return bool((self._ground.cell_at(places) >= 0).all())

    def _nearest(self, place: Array) -> int:
        return int(((self._ground.nodes - place) ** 2).sum(axis=1).argmin())

    def _distances(self) -> coo_array:
        """Distances of neighbouring cells."""
        if self._graph is None:
            near = self._ground.neighbours(1)
            rows, columns = np.nonzero(near >= 0)
            others = near[rows, columns]
            apart = np.linalg.norm(self._ground.nodes[rows] - self._ground.nodes[others], axis=1)
            self._graph = coo_array((apart, (rows, others)), shape=(len(self._ground),) * 2).tocsr()
        return self._graph


def _without_needless(corners: Array) -> Array:
    """The corners (k, 2) without repeated ones and those on a straight line between their neighbours."""
    legs = np.diff(corners, axis=0)
    is_leg = legs.any(axis=1)
    corners, legs = corners[np.append(True, is_leg)], legs[is_leg]
    there, on = legs[:-1], legs[1:]
    cross = there[:, 0] * on[:, 1] - there[:, 1] * on[:, 0]
    limit = 1e-9 * np.linalg.norm(there, axis=1) * np.linalg.norm(on, axis=1)
    is_straight = (np.abs(cross) <= limit) & ((there * on).sum(axis=1) >= 0.0)
    return np.concatenate([corners[:1], corners[1:-1][~is_straight], corners[1:][-1:]])
