"""Constant offsets between the sensors of several robots, from where their maps overlap (docs/fleet.md).

In a region of overlap the pseudo-data of all robots are one Gaussian process with an unknown mean and an unknown shift
for each robot. With `C = K + diag(1 / lambda)` and the design `H`, a column of ones and one for each robot, generalised
least squares has the information `H^T C^-1 H`. The mean is eliminated in each region; regions are independent.

Regions differ by more than they claim, because no map is exact. So each has an error of its own too, with a standard
deviation `tau` for which the regions agree as well as they should (DerSimonian and Laird 1986).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wgpr.ensemble.territory import Territory
from wgpr.ensemble.unite import Piece, overlap, union
from wgpr.gp.linalg import Array, Indices, cholesky_with_jitter, diagonal, solve_lower

# Steps of the search for `tau^2`, and the largest one, in squares of internal units.
_N_STEPS, _LARGEST = 60, 1e6


class Offset(NamedTuple):
    """What a sensor reads more than that of the first map, and the standard deviation of that.

    With several outputs both are arrays (k,).
    """

    offset: float | Array
    std: float | Array


class _Region(NamedTuple):
    """Information (r, r) about the shifts of r robots, without that of the mean, and its product with them (r, k)."""

    information: Array
    score: Array
    n_robots: int


class NoOverlapError(ValueError):
    """Some maps do not overlap: maps holds their numbers."""

    def __init__(self, maps: Sequence[int]) -> None:
        super().__init__(f"maps {list(maps)} do not overlap with the others")
        self.maps = tuple(maps)


def estimated_offsets(leaves: Sequence[Sequence[Piece]], n_maps: int, reference: int) -> tuple[Array, Array]:
    """Offsets (r, k) of all maps against one of them, and standard deviations (r,). Raises `NoOverlapError`.

    leaves : what the maps know, by the territory on whose ground it lies.
    """
    regions = list(_regions(leaves, n_maps))
    if apart := sorted(set(range(n_maps)) - _connected(regions, reference)):
        raise NoOverlapError(apart)
    low, high = 0.0, _LARGEST
    offsets, covariance, excess = _solved(regions, reference, 0.0)
    for _ in range(_N_STEPS if excess > 0.0 else 0):
        variance = 0.5 * (low + high) if low == 0.0 else float(np.sqrt(low * high))
        offsets, covariance, excess = _solved(regions, reference, variance)
        low, high = (variance, high) if excess > 0.0 else (low, variance)
    return offsets, np.sqrt(np.maximum(covariance.diagonal(), 0.0))


def _regions(leaves: Sequence[Sequence[Piece]], n_maps: int) -> Iterator[_Region]:
    for pieces in leaves:
        if len({piece.source for piece in pieces}) < 2:
            continue
        territory = union([piece.territory for piece in pieces])
        sources = np.repeat([piece.source for piece in pieces], [len(piece.territory.data) for piece in pieces])
        compared = overlap(territory, sources)
        if len(compared):
            yield _region(territory, sources[compared], compared, n_maps)


def _region(territory: Territory, sources: Indices, compared: Indices, n_maps: int) -> _Region:
    data = territory.data[compared]
    C = territory.kernel.covariance(territory.theta, data.Z)
    diagonal(C)[:] += 1.0 / data.precision
    L, _ = cholesky_with_jitter(C)
    H = np.concatenate([np.ones((len(data), 1)), sources[:, None] == np.arange(n_maps)], axis=1)
    whitened = solve_lower(L, np.concatenate([H, data.t - territory.mean], axis=1))
    H, t = whitened[:, : n_maps + 1], whitened[:, n_maps + 1 :]
    of_mean = H[:, :1] / np.linalg.norm(H[:, 0])
    H, t = H[:, 1:] - of_mean @ (of_mean.T @ H[:, 1:]), t - of_mean @ (of_mean.T @ t)
    return _Region(H.T @ H, H.T @ t, len(np.unique(sources)))


def _connected(regions: Sequence[_Region], reference: int) -> set[int]:
    """The maps with a chain of overlaps to one of them."""
    found, waiting = {reference}, [reference]
    while waiting:
        number = waiting.pop()
        for region in regions:
            present = np.flatnonzero(region.information.diagonal() > 0.0)
            if number in present:
                waiting += [each for each in present.tolist() if each not in found]
                found |= set(present.tolist())
    return found


def _solved(regions: Sequence[_Region], reference: int, variance: float) -> tuple[Array, Array, float]:
    """Offsets (r, k), their covariance (r, r), and how much more the regions differ than they should.

    variance : `tau^2` of the error that each region has of its own.
    """
    weights = [_with_error(region.information, variance) for region in regions]
    values = [np.linalg.pinv(region.information) @ region.score for region in regions]
    total = np.sum(weights, axis=0)
    by_all = np.sum([weight @ value for weight, value in zip(weights, values, strict=True)], axis=0)
    others = np.ix_(*2 * [np.flatnonzero(np.arange(len(total)) != reference)])
    covariance = np.zeros_like(total)
    covariance[others] = np.linalg.inv(total[others])
    offsets = covariance @ by_all
    n_outputs = offsets.shape[1]
    errors = [value - offsets for value in values]
    squares = sum(float((error * (weight @ error)).sum()) for error, weight in zip(errors, weights, strict=True))
    n_free = n_outputs * (sum(region.n_robots - 1 for region in regions) - (len(total) - 1))
    return offsets, covariance, squares - n_free if n_free else 0.0


def _with_error(information: Array, variance: float) -> Array:
    """The information (r, r) about differences of robots if each robot's shift has another error of this variance."""
    if not variance:
        return information
    values, vectors = np.linalg.eigh(information)
    values = np.where(values > 1e-12 * values.max(), values, 0.0)
    return (vectors * (values / (1.0 + variance * values))) @ vectors.T
