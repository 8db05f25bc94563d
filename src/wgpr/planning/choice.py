"""Choice of places and lines: greedy, always what takes most out of the variance that the earlier ones leave.

The gain of a set of measurements has diminishing returns (it is submodular but for rare cases), for which a greedy
choice is good, and for which a gain that was computed before some measurements is an upper bound after them.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wgpr.gp.linalg import Array, Indices
from wgpr.planning.ground import Ground
from wgpr.planning.uncertainty import Uncertainty

# Directions that lines are tried in.
_N_DIRECTIONS = 12


class Piece(NamedTuple):
    """A straight line: its two ends (2, 2), and the cells (n,) that it passes, in their order."""

    ends: Array
    cells: Indices

    @property
    def length(self) -> float:
        return length_of(self.ends)


def length_of(corners: Array) -> float:
    """Of a line through these corners (k, 2)."""
    return float(np.linalg.norm(np.diff(corners, axis=0), axis=1).sum())


def choose_points(uncertainty: Uncertainty, n_points: int) -> Indices:
    """Cells (n,) to measure in, the best first. Fewer points are the first of more.

    A cell comes again only after all others: where noise is large, one place would be proposed many times.
    """
    cells, is_free = np.zeros(n_points, dtype=np.intp), np.ones(len(uncertainty.ground), dtype=bool)
    for number in range(n_points):
        if not is_free.any():
            is_free[:] = True
        cells[number] = int(np.argmax(np.where(is_free, uncertainty.gains, -np.inf)))
        is_free[cells[number]] = False
        uncertainty.measure(cells[number : number + 1])
    return cells


def choose_lines(uncertainty: Uncertainty, n_lines: int, spacing: float) -> list[list[Piece]]:
    """For each of several directions, parallel lines across the ground that take most, at least `spacing` apart.

    In each direction fewer lines are the first of more.
    """
    sets = list[list[Piece]]()
    for direction in directions(_N_DIRECTIONS):
        lines = [max(pieces, key=lambda piece: len(piece.cells)) for pieces in rows_of(uncertainty.ground, direction)]
        if not lines:
            continue
        offsets = np.array([line.ends[0] @ (-direction[1], direction[0]) for line in lines])
        after, chosen = uncertainty.copy(), list[Piece]()
        bounds = np.full(len(lines), np.inf)
        while len(chosen) < n_lines:
            number = best_by_bounds(bounds, np.ones(len(lines)), lambda each: after.gain(lines[each].cells))  # noqa: B023
            if bounds[number] <= 0.0:
                break
            chosen.append(lines[number])
            after.measure(lines[number].cells)
            bounds[np.abs(offsets - offsets[number]) < max(spacing, 1e-9)] = 0.0
        if chosen:
            sets.append(chosen)
    if not sets:
        raise ValueError("the ground is too small for a line")
    return sets


def best_by_bounds(bounds: Array, costs: Array, gain: Callable[[int], float]) -> int:
    """The number with the largest gain over cost. bounds : (n,) of the gains; those that are computed replace them."""
    is_new = np.zeros(len(bounds), dtype=bool)
    while True:
        number = int(np.argmax(bounds / costs))
        if is_new[number] or bounds[number] <= 0.0:
            return number
        bounds[number], is_new[number] = gain(number), True


def directions(n: int) -> Iterator[Array]:
    """So many directions (2,), the first along x."""
    for angle in np.arange(n) * np.pi / n:
        yield np.array([np.cos(angle), np.sin(angle)])


def rows_of(ground: Ground, direction: Array) -> Iterator[list[Piece]]:
    """All parallel lines in a direction (2,), a cell apart, each as pieces without a gap in the ground."""
    step = float(ground.width.mean())
    normal = np.array([-direction[1], direction[0]])
    along, across = ground.nodes @ direction, ground.nodes @ normal
    n_across = max(1, int(np.ceil((across.max() - across.min()) / step)))
    offsets = across.min() + (np.arange(n_across) + 0.5) * (across.max() - across.min()) / n_across
    places_along = np.arange(along.min(), along.max() + step, step)
    for offset in offsets:
        places = places_along[:, None] * direction + offset * normal
        pieces = pieces_between(ground, places)
        if pieces:
            yield pieces


def pieces_between(ground: Ground, places: Array) -> list[Piece]:
    """Of places (n, 2) along a line, the parts in the ground; single places are left out."""
    cells = ground.cell_at(places)
    is_inside = np.concatenate([[False], cells >= 0, [False]])
    changes = np.flatnonzero(np.diff(is_inside.astype(np.int8)))
    return [
        Piece(places[[first, last - 1]], distinct(cells[first:last]))
        for first, last in changes.reshape(-1, 2).tolist()
        if last - first > 1
    ]


def distinct(cells: Indices) -> Indices:
    """Cells (n,) in their order, each once, without those outside."""
    cells = cells[cells >= 0]
    _, firsts = np.unique(cells, return_index=True)
    return cells[np.sort(firsts)]


def cells_along(ground: Ground, corners: Sequence[Array] | Array) -> Indices:
    """Cells that a line through these corners (k, 2) passes, each once: one for each width of a cell along it."""
    corners = np.asarray(corners)
    step = float(ground.width.mean())
    parts = [corners[:1]]
    for start, end in itertools.pairwise(corners):
        n = max(1, int(np.ceil(np.linalg.norm(end - start) / step)))
        parts.append(start + np.arange(1, n + 1)[:, None] / n * (end - start))
    return distinct(ground.cell_at(np.concatenate(parts)))
