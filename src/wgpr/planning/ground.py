"""The ground that a plan is made for: square cells, each with a node to measure at and a place to be certain of.

Without a polygon it is the ground that the data cover: triangles of their places, without those that are much larger
than the others; gaps that data surround are part of it. Pseudo-data of smooth ground are far apart, and stand for the
rows that were between them.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from matplotlib.path import Path as Outline
from numpy.typing import NDArray
from scipy.ndimage import binary_fill_holes
from scipy.spatial import Delaunay, KDTree, QhullError

from wgpr.gp.linalg import Array, Indices

# Triangles are covered ground up to so many times the median radius of their circumcircles, by area.
_LARGEST_RADIUS = 2.0
_MOST_TRIANGULATED = 20_000

# Cells are this fraction of the distance of the data, unless they would be too few or too many.
_CELL = 0.67
_CELLS, _CELLS_OF_LINE = (400, 2_500), (200, 1_000)

# Covariances are known so many times as far, and over so many cells at most.
_FARTHEST, _MOST_AROUND = 5.0, 8
_NARROWEST = 1e-4  # width of a ground over its length
_N_SAMPLED = 64  # cells along a side, to measure the ground
_MOST_ON_GRID = 4_000_000  # cells of the grid, most of them outside of a winding polygon

# Places in cells follow this sequence (Roberts 2018), which fills a square evenly.
_SEQUENCE = np.array([0.7548776662466927, 0.5698402909980532])

Mask = NDArray[np.bool_]


class Polygons(NamedTuple):
    """Polygons, each of rings (n, 2) of corners: the first is the outline, others are holes."""

    polygons: tuple[tuple[Array, ...], ...]

    @property
    def area(self) -> float:
        """Of all of them, without their holes."""
        return sum(_area(outline) - sum(map(_area, holes)) for outline, *holes in self.polygons)

    @property
    def corners(self) -> Array:
        """(n, 2) of all outlines."""
        return np.concatenate([outline for outline, *_ in self.polygons])

    def contains(self, places: Array) -> Mask:
        """Which of the places (n, 2) are inside."""
        are_inside = np.zeros(len(places), dtype=bool)
        for outline, *holes in self.polygons:
            is_inside = Outline(outline).contains_points(places)
            for hole in holes:
                is_inside &= ~Outline(hole).contains_points(places)
            are_inside |= is_inside
        return are_inside


def _area(ring: Array) -> float:
    """Of a polygon with these corners (n, 2)."""
    (x, y), (u, v) = (ring - ring[0]).T, (np.roll(ring, 1, axis=0) - ring[0]).T
    return 0.5 * abs(float((x * v - y * u).sum()))


class Covered:
    """The ground that places (n, 2) of data cover.

    thinned : (n,) number of the model whose rows a place stands for, -1 if it is a row itself; None if all are rows.
    """

    def __init__(self, data: Array, thinned: Indices | None = None) -> None:
        data, first = np.unique(data, axis=0, return_index=True)
        owners = np.full(len(data), -1) if thinned is None else thinned[first]
        if len(data) > _MOST_TRIANGULATED:
            chosen = np.linspace(0, len(data) - 1, _MOST_TRIANGULATED).astype(np.intp)
            data, owners = data[chosen], owners[chosen]
        self._low, self._high = data.min(axis=0), data.max(axis=0)
        try:
            self._triangles: Delaunay | None = Delaunay(data)
        except (QhullError, ValueError):  # on a line, or too few
            self._triangles = None
            return
        corners = data[self._triangles.simplices]
        a, b, c = (np.linalg.norm(corners[:, i] - corners[:, j], axis=1) for i, j in ((0, 1), (1, 2), (2, 0)))
        (x, y), (u, v) = (corners[:, 1] - corners[:, 0]).T, (corners[:, 2] - corners[:, 0]).T
        area = 0.5 * np.abs(x * v - y * u)
        radius = a * b * c / np.maximum(4.0 * area, 1e-12 * a * b * c)
        middle = _middle(radius, area)
        usual = np.full(len(radius), middle)
        owner = owners[self._triangles.simplices]
        is_own = (owner == owner[:, :1]).all(axis=1)
        for each in np.unique(owner[is_own & (owner[:, 0] >= 0)]):
            own, is_at = is_own & (owner[:, 0] == each), (owner == each).any(axis=1)
            usual[is_at] = np.maximum(usual[is_at], _middle(radius[own], area[own]))
        self._is_covered = radius <= _LARGEST_RADIUS * usual

    def contains(self, places: Array) -> Mask:
        """Which of the places (n, 2) are inside."""
        if self._triangles is None:
            return ((places >= self._low) & (places <= self._high)).all(axis=1)
        found = self._triangles.find_simplex(places)
        return (found >= 0) & self._is_covered[found]


def _middle(radius: Array, area: Array) -> float:
    """The median of the radii (n,) of triangles by their areas (n,)."""
    order = np.argsort(radius)
    return float(radius[order][np.searchsorted(np.cumsum(area[order]), 0.5 * area.sum())])


@dataclass(frozen=True, eq=False)
class Ground:
    """N cells of a regular grid, x first. With one input the grid is one cell high.

    low : (2,) the corner of the first cell; width : (2,) of the cells; numbers : (nx, ny) of the cells, -1 outside.
    cells : (N, 2) columns and rows; nodes : (N, 2) their centres; targets : (N, 2) a place in each.
    apart : how far places are from the nearest data, typically.
    """

    low: Array
    width: Array
    numbers: Indices
    cells: Indices
    nodes: Array
    targets: Array
    apart: float = 0.0

    def __len__(self) -> int:
        return len(self.cells)

    @classmethod
    def of(cls, low: Array, high: Array, side: float, region: Polygons | Covered | None) -> "Ground":
        """Cells between two corners (2,) whose centres are in a region; all of them without one."""
        shape = np.maximum(1, np.round((high - low) / side)).astype(np.intp)
        width = np.where(high > low, (high - low) / shape, 1.0)
        cells = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2)
        nodes = low + (cells + 0.5) * width
        if region is not None:
            is_inside = region.contains(nodes)
            if isinstance(region, Covered):  # a gap that data surround is part of the ground
                is_inside = binary_fill_holes(is_inside.reshape(shape)).ravel()
            cells, nodes = cells[is_inside], nodes[is_inside]
        numbers = np.full(shape, -1, dtype=np.intp)
        numbers[tuple(cells.T)] = np.arange(len(cells))
        inside = (np.arange(1, len(cells) + 1)[:, None] * _SEQUENCE) % 1.0
        return cls(low, width, numbers, cells, nodes, low + (cells + inside) * width)

    def along_tracks(self) -> Array:
        """Places (N, 4, 2) in each cell that stand for a track through it."""
        quarter = 0.25 * self.width * np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
        return self.nodes[:, None] + quarter

    @property
    def radius(self) -> int:
        """Cells on each side of one over which errors of the map may be alike."""
        cells = _FARTHEST * self.apart / float(self.width[0])
        return int(np.clip(np.ceil(cells), 1, _MOST_AROUND))

    def closeness(self, cells: Indices, others: Indices) -> Array:
        """A correlation (n, m) of cells (n,) with others (m,), which is one for the same and zero beyond the radius."""
        apart = self.cells[cells, None] - self.cells[others]
        distance = np.minimum(np.sqrt((apart**2).sum(axis=-1)) / (self.radius + 1), 1.0)
        return (1.0 - distance) ** 4 * (4.0 * distance + 1.0)

    def cell_at(self, places: Array) -> Indices:
        """Numbers (n,) of the cells of places (n, 2); -1 outside."""
        found = np.floor((places - self.low) / self.width).astype(np.intp)
        limited = found.clip(0, np.array(self.numbers.shape) - 1)
        return np.where((found == limited).all(axis=1), self.numbers[tuple(limited.T)], -1)

    def distance(self, place: Array) -> float:
        """From a place (2,) to the nearest cell; 0 inside."""
        outside = np.maximum(np.abs(self.nodes - place) - 0.5 * self.width, 0.0)
        return float(np.linalg.norm(outside, axis=1).min())

    def neighbours(self, radius: int) -> Indices:
        """Numbers (N, w) of the cells in the square window around each, -1 outside of the ground."""
        padded = np.full(np.add(self.numbers.shape, 2 * radius), -1, dtype=np.intp)
        padded[radius:-radius, radius:-radius] = self.numbers
        side = 2 * radius + 1
        windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side))
        return windows[tuple(self.cells.T)].reshape(len(self), -1)


def cells_of(data: Array, n_axes: int, region: Polygons | None, thinned: Indices | None = None) -> Ground:
    """The ground of a polygon, or that which places (n, 2) of data cover.

    Errors of the map are alike over about the distance of the data, which is what the size of the cells follows.
    n_axes : 1 if only the first column of the places has a meaning; thinned : as of `Covered`.
    """
    corners = data if region is None else region.corners
    low, high = corners.min(axis=0), corners.max(axis=0)
    if n_axes == 1:
        apart = float(np.quantile(0.5 * np.diff(np.unique(data[:, 0])), 0.9))
        n_cells = float(np.clip((high[0] - low[0]) / (_CELL * apart), *_CELLS_OF_LINE))
        return replace(Ground.of(low, high, (high[0] - low[0]) / n_cells, None), apart=apart)
    extent = high - low
    if extent.min() <= _NARROWEST * extent.max():
        if region is not None:
            raise ValueError("inside is too narrow for its length; give a wider polygon")
        raise ValueError("the data lie on one line, so that no ground is known; give inside, a polygon")
    inside = region or Covered(data, thinned)
    coarse = Ground.of(low, high, float(np.sqrt(extent[0]) * np.sqrt(extent[1])) / _N_SAMPLED, inside)
    distances, _ = KDTree(data).query(coarse.nodes if len(coarse) else corners)
    apart = float(np.quantile(distances, 0.75))
    area = len(coarse) * float(np.prod(coarse.width)) if region is None else region.area
    fewest, most = _CELLS
    side = float(np.sqrt(area / np.clip(area / (_CELL * max(apart, 1e-150)) ** 2, fewest, most)))
    while True:
        if float(np.prod(extent / side)) > _MOST_ON_GRID:
            raise ValueError("inside is too narrow for its extent; divide the polygon")
        ground = Ground.of(low, high, side, inside)
        if len(ground) <= 1.2 * most:
            break
        side *= 1.2
    if not len(ground):
        raise ValueError("there is no ground: the polygon, or what the data cover, has no area")
    return replace(ground, apart=apart)
