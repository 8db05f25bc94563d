"""Which local model answers where on a grid: the shape of the territories, as arrays, for a picture of them."""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, find_objects

from wgpr.gp.linalg import Array

Integers = NDArray[np.integer[Any]]


def colour_numbers(owner: Integers, n_colours: int) -> Integers:
    """For each model the number of a colour; models that border on each other on the grid `owner` (n_y, n_x) differ.

    Those with most neighbours choose first, of the colours that are left the one that was used least.
    """
    bordering, used = neighbours(owner), Counter[int]()
    chosen = np.full(int(owner.max()) + 1, -1)
    for model in sorted(bordering, key=lambda model: -len(bordering[model])):
        taken = chosen[list(bordering[model])]
        free = [number for number in range(n_colours) if number not in taken] or range(n_colours)
        chosen[model] = min(free, key=lambda number: used[number])
        used[int(chosen[model])] += 1
    return chosen


def neighbours(owner: Integers) -> dict[int, set[int]]:
    """Which models border on which."""
    beside = np.stack([owner[:, 1:].ravel(), owner[:, :-1].ravel()])
    above = np.stack([owner[1:].ravel(), owner[:-1].ravel()])
    pairs = np.unique(np.concatenate([beside, above], axis=1), axis=1)
    bordering: dict[int, set[int]] = {int(number): set() for number in np.unique(owner)}
    for first, second in pairs[:, pairs[0] != pairs[1]].T.tolist():
        bordering[first].add(second)
        bordering[second].add(first)
    return bordering


def borders(owner: Integers, x: Array, y: Array) -> Array:
    """Edges (n, 2, 2) of cells that have different owners on their two sides."""
    x_edges, y_edges = cell_edges(x), cell_edges(y)
    row, column = np.nonzero(owner[:, 1:] != owner[:, :-1])
    upright = [[x_edges[column + 1], y_edges[row]], [x_edges[column + 1], y_edges[row + 1]]]
    row, column = np.nonzero(owner[1:] != owner[:-1])
    level = [[x_edges[column], y_edges[row + 1]], [x_edges[column + 1], y_edges[row + 1]]]
    return np.concatenate([np.array(upright), np.array(level)], axis=2).transpose(2, 0, 1)


def cell_edges(nodes: Array) -> Array:
    """Where the cells around equally spaced nodes (n,) begin and end: (n + 1,)."""
    half = 0.5 * (nodes[1] - nodes[0])
    return np.linspace(nodes[0] - half, nodes[-1] + half, len(nodes) + 1)


def innermost(owner: Integers, model: int) -> tuple[int, int, float]:
    """Row and column of the cell of `model` that is furthest from other territory and from the margin, and how far.

    owner : (n_y, n_x); distances are parts of a map's width and height.
    """
    ((rows, columns),) = find_objects(owner == model, max_label=1)
    territory = np.pad(owner[rows, columns] == model, 1)
    depth = distance_transform_edt(territory, sampling=1.0 / np.array(owner.shape))[1:-1, 1:-1]
    row, column = np.unravel_index(np.argmax(depth), depth.shape)
    return rows.start + int(row), columns.start + int(column), float(depth[row, column])
