"""Which territory a place belongs to: a tree of axis-parallel cuts.

A node cuts its ground along one axis at increasing positions, into one child more than there are positions. A child is
another node, or the number of a territory. Dividing a territory inserts a position into the node above it, if that
cuts along the same axis: a survey that only ever moves on makes one long list of positions, and no deep tree.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Union

import numpy as np

from wgpr.gp.linalg import Array, Indices

Node = Union["Cuts", int]


class Cuts(NamedTuple):
    """The ground is cut along `axis` at `positions`; a place on a position belongs to the child before it."""

    axis: int
    positions: tuple[float, ...]
    children: tuple[Node, ...]


def route(node: Node, X: Array) -> Indices:
    """The number of the territory (n,) of each place `X` (n, d)."""
    owners = np.zeros(len(X), dtype=np.intp)
    stack = [(node, np.arange(len(X)))]
    while stack:
        node, rows = stack.pop()
        if isinstance(node, int):
            owners[rows] = node
            continue
        places = np.searchsorted(node.positions, X[rows, node.axis], side="left")
        stack += [(node.children[place], rows[places == place]) for place in set(places.tolist())]
    return owners


def grounds(node: Node, n_territories: int, n_features: int) -> Array:
    """(J, 2, d): the least and greatest place of each territory, infinite where no cut is."""
    bounds = np.empty((n_territories, 2, n_features))
    everywhere = np.stack([np.full(n_features, -np.inf), np.full(n_features, np.inf)])
    stack = [(node, everywhere)]
    while stack:
        node, ground = stack.pop()
        if isinstance(node, int):
            bounds[node] = ground
            continue
        edges = ground[0, node.axis], *node.positions, ground[1, node.axis]
        for child, edge, next_edge in zip(node.children, edges, edges[1:], strict=False):
            part = ground.copy()
            part[:, node.axis] = edge, next_edge
            stack.append((child, part))
    return bounds


def divided(node: Node, inside: Array, axis: int, position: float, numbers: tuple[int, int]) -> Node:
    """The tree in which the territory of the place `inside` (d,) is cut in two, which have these numbers.

    The smaller number is its own.
    """
    path = path_to(node, min(numbers), inside)
    if path and path[-1][0].axis == axis:
        parent, place = path.pop()
        positions = (*parent.positions[:place], position, *parent.positions[place:])
        children = (*parent.children[:place], *numbers, *parent.children[place + 1 :])
        return _replaced(path, Cuts(axis, positions, children))
    return _replaced(path, Cuts(axis, (position,), numbers))


def adjacent(node: Node, number: int, inside: Array) -> list[tuple[int, int]]:
    """Pairs of a territory and another that one cut separates, and that can be merged by removing it.

    inside : (d,) a place in the territory.
    """
    path = path_to(node, number, inside)
    if not path:
        return []
    parent, place = path[-1]
    around = parent.children[max(0, place - 1) : place + 2]
    return [(one, other) for one, other in pairwise(around) if isinstance(one, int) and isinstance(other, int)]


def merged(node: Node, pair: tuple[int, int], number: int, inside: Array) -> Node:
    """The tree without the cut between two adjacent territories; what they become has this number.

    inside : (d,) a place in the first of them.
    """
    path = path_to(node, pair[0], inside)
    parent, place = path.pop()
    children = (*parent.children[:place], number, *parent.children[place + 2 :])
    positions = parent.positions[:place] + parent.positions[place + 1 :]
    return _replaced(path, Cuts(parent.axis, positions, children) if positions else number)


def renumbered(node: Node, before: int, now: int, inside: Array) -> Node:
    """The tree in which a territory has another number. inside : (d,) a place in it."""
    return _replaced(path_to(node, before, inside), now)


Path = list[tuple[Cuts, int]]


def path_to(node: Node, number: int, inside: Array) -> Path:
    """The nodes above a territory, and which child comes next.

    It is the one of the place `inside` (d,). If the place was rounded, and is in another one, the number decides.
    """
    path, below = [], node
    while not isinstance(below, int):
        path.append((below, bisect_left(below.positions, inside[below.axis])))
        below = below.children[path[-1][1]]
    return path if below == number else _path_to_number(node, number)


def _path_to_number(node: Node, number: int) -> Path:
    """The same without a place: all of the tree is searched."""
    stack: list[tuple[Node, Path]] = [(node, [])]
    while stack:
        node, path = stack.pop()
        if isinstance(node, int):
            if node == number:
                return path
            continue
        stack += [(child, [*path, (node, place)]) for place, child in enumerate(node.children)]
    raise ValueError(f"territory {number} is not in the tree")


def _replaced(path: Path, below: Node) -> Node:
    """The tree in which what is at the end of a path is replaced."""
    for parent, place in reversed(path):
        below = parent._replace(children=(*parent.children[:place], below, *parent.children[place + 1 :]))
    return below


def with_leaves(node: Node, leaves: Sequence[Node | None]) -> Node | None:
    """The tree in which each number n is replaced by `leaves[n]`; where that is None, neighbours take the ground."""
    if isinstance(node, int):
        return leaves[node]
    children = [(place, with_leaves(child, leaves)) for place, child in enumerate(node.children)]
    kept = [(place, child) for place, child in children if child is not None]
    if len(kept) < 2:
        return kept[0][1] if kept else None
    positions = tuple(node.positions[place - 1] for place, _ in kept[1:])
    return Cuts(node.axis, positions, tuple(child for _, child in kept))


def shifted(node: Node, shift: int) -> Node:
    """The tree with numbers that are larger by `shift`."""
    if isinstance(node, int):
        return node + shift
    return node._replace(children=tuple(shifted(child, shift) for child in node.children))


def all_cuts(node: Node) -> Iterator[tuple[int, float]]:
    """Axis and position of all cuts."""
    if isinstance(node, Cuts):
        yield from ((node.axis, position) for position in node.positions)
        for child in node.children:
            yield from all_cuts(child)


def median_cut(Z: Array, lengthscales: Array | float) -> tuple[int, float] | None:
    """Axis and position of a cut that halves the places `Z` (n, d), along the axis of the largest extent.

    Axes along which more than half of the places have the largest value allow no such cut; None if there is no other.
    """
    for axis in np.argsort(-np.ptp(Z, axis=0) / lengthscales, kind="stable").tolist():
        position = float(np.median(Z[:, axis]))
        if (Z[:, axis] > position).any():
            return axis, position
    return None


def built(Z: Array, capacity: int) -> tuple[Node, list[Indices]]:
    """A tree for the places `Z` (n, d), and the places (m,) of each territory, at most `capacity`.

    A part is larger if more than half of its places are equal.
    """
    parts: list[Indices] = []

    def build(rows: Indices) -> Node:
        cut = median_cut(Z[rows], 1.0) if len(rows) > capacity else None
        if cut is None:
            parts.append(rows)
            return len(parts) - 1
        axis, position = cut
        is_below = Z[rows, axis] <= position
        return Cuts(axis, (position,), (build(rows[is_below]), build(rows[~is_below])))

    return build(np.arange(len(Z))), parts
