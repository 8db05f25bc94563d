"""Which territory a place belongs to: a tree of axis-parallel cuts.

A node cuts its ground along one axis at increasing positions, into one child more than there are positions. A child is
another node, or the number of a territory. Dividing a territory inserts a position into the node above it, if that
cuts along the same axis: a survey that only ever moves on makes one long list of positions, and no deep tree.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
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

    One of them is its own. If the place belongs to another territory, because it was rounded, the number decides.
    """
    path = path_to_place(node, inside)
    if path and path[-1][0].children[path[-1][1]] not in numbers:
        path = _path_to_number(node, min(numbers)) or path
    if not path:
        return Cuts(axis, (position,), numbers)
    parent, place = path.pop()
    if parent.axis == axis:
        positions = (*parent.positions[:place], position, *parent.positions[place:])
        below: Node = Cuts(axis, positions, (*parent.children[:place], *numbers, *parent.children[place + 1 :]))
    else:
        below = _with_child(parent, place, Cuts(axis, (position,), numbers))
    for parent, place in reversed(path):
        below = _with_child(parent, place, below)
    return below


def _with_child(node: Cuts, place: int, child: Node) -> Cuts:
    return node._replace(children=(*node.children[:place], child, *node.children[place + 1 :]))


def path_to_place(node: Node, inside: Array) -> list[tuple[Cuts, int]]:
    """The nodes above the territory of a place (d,), and which child comes next."""
    path: list[tuple[Cuts, int]] = []
    while not isinstance(node, int):
        path.append((node, bisect_left(node.positions, inside[node.axis])))
        node = node.children[path[-1][1]]
    return path


def _path_to_number(node: Node, number: int) -> list[tuple[Cuts, int]]:
    """The nodes above a territory, and which child comes next; none if it is not in the tree."""
    stack: list[tuple[Node, list[tuple[Cuts, int]]]] = [(node, [])]
    while stack:
        node, path = stack.pop()
        if isinstance(node, int):
            if node == number:
                return path
            continue
        stack += [(child, [*path, (node, place)]) for place, child in enumerate(node.children)]
    return []


def adjacent(node: Node) -> Iterator[tuple[int, int]]:
    """Pairs of territories that one cut separates, and that can be merged by removing it."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, int):
            continue
        stack += [child for child in node.children if not isinstance(child, int)]
        for first, second in zip(node.children, node.children[1:], strict=False):
            if isinstance(first, int) and isinstance(second, int):
                yield first, second


def merged(node: Node, pair: tuple[int, int], number: int) -> Node:
    """The tree without the cut between two adjacent territories; what they become has this number."""
    if isinstance(node, int):
        return node
    for place, both in enumerate(zip(node.children, node.children[1:], strict=False)):
        if both == pair:
            children = (*node.children[:place], number, *node.children[place + 2 :])
            return (
                Cuts(node.axis, node.positions[:place] + node.positions[place + 1 :], children)
                if len(children) > 1
                else number
            )
    return node._replace(children=tuple(merged(child, pair, number) for child in node.children))


def renumbered(node: Node, number_of: Callable[[int], int]) -> Node:
    """The tree with other numbers of its territories."""
    if isinstance(node, int):
        return number_of(node)
    return node._replace(children=tuple(renumbered(child, number_of) for child in node.children))


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
