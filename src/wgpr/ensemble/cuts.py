"""Which territory a place belongs to: a tree of axis-parallel cuts.

A node cuts its ground along one axis at increasing positions, into one child more than there are positions. A child is
another node, or the number of a territory. Dividing a territory inserts a position into the node above it, if that cuts
along the same axis: a survey that only ever moves on makes one long list of positions and no deep tree.
"""

from bisect import bisect_left
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
    """The territory (n,) of each place `X` (n, d)."""
    owners = np.zeros(len(X), dtype=np.intp)
    if len(X) == 1:
        owners[0] = _find(node, X[0])
        return owners
    stack = [(node, np.arange(len(X)))] if len(X) else []
    while stack:
        node, rows = stack.pop()
        if isinstance(node, int):
            owners[rows] = node
            continue
        places = np.searchsorted(node.positions, X[rows, node.axis], side="left")
        order = np.argsort(places, kind="stable")
        used, starts = np.unique(places[order], return_index=True)
        parts = np.split(order, starts[1:])
        stack += [(node.children[place], rows[part]) for place, part in zip(used.tolist(), parts, strict=True)]
    return owners


def _find(node: Node, x: Array) -> int:
    while not isinstance(node, int):
        node = node.children[bisect_left(node.positions, x[node.axis])]
    return node


def divided(node: Node, inside: Array, axis: int, position: float, numbers: tuple[int, int]) -> Node:
    """The tree in which the territory of the place `inside` (d,) is cut in two, with these numbers."""
    if isinstance(node, int):
        return Cuts(axis, (position,), numbers)
    place = bisect_left(node.positions, inside[node.axis])
    child = node.children[place]
    if isinstance(child, int) and node.axis == axis:
        return Cuts(
            axis,
            (*node.positions[:place], position, *node.positions[place:]),
            (*node.children[:place], *numbers, *node.children[place + 1 :]),
        )
    child = divided(child, inside, axis, position, numbers)
    return node._replace(children=(*node.children[:place], child, *node.children[place + 1 :]))
