"""Constant offsets between the sensors of several robots, from where their maps overlap (docs/fleet.md).

In a region of overlap the pseudo-data of all robots are one Gaussian process with an unknown mean and an unknown shift
for each robot. With `C = K + diag(1 / lambda)` and the design `H`, a column of ones and one for each robot, generalised
least squares has the information `H^T C^-1 H`. The mean is eliminated in each region; regions are independent.

Regions differ by more than they claim, because no map is exact, and some are far off: a wrong sounding, a steep slope.
Their errors are therefore those of Student's t distribution (Lange, Little and Taylor 1989), whose scale is estimated.
The standard deviation follows from what is found without one region or another (the jackknife), and is never less than
the regions claim: one region may claim too much.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from wgpr.ensemble.territory import Territory
from wgpr.ensemble.unite import Piece, overlap, union
from wgpr.gp.linalg import Array, Indices, cholesky_with_jitter, diagonal, solve_lower

# Degrees of freedom of Student's t distribution, and steps of its iteration.
_DEGREES, _N_STEPS = 3.0, 100


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


def estimated_offsets(leaves: Sequence[Sequence[Piece]], names: Sequence[str], reference: int) -> tuple[Array, Array]:
    """Offsets (r, k) of all maps against one of them, and standard deviations (r,).

    leaves : what the maps know, by the territory on whose ground it lies; names : of the maps, for an error if there is
        no chain of overlaps between them.
    """
    n_maps = len(names)
    regions = list(_regions(leaves, n_maps))
    are_linked = sum((region.information != 0.0 for region in regions), start=np.zeros((n_maps, n_maps)))
    _, chains = connected_components(are_linked)
    if len(apart := np.flatnonzero(chains != chains[reference])):
        fault = f"there is no chain of them from {names[apart[0]]} to {names[reference]}"
        raise ValueError(f"align (--align) needs overlaps, and {fault}; leave it out, or this map")
    if n_maps == 1:  # the others are copies of it
        return np.zeros((1, next(iter(chain(*leaves))).territory.data.t.shape[1])), np.zeros(1)
    weights, scale = np.ones(len(regions)), 1.0
    n_free = np.array([region.n_robots - 1 for region in regions])
    for _ in range(_N_STEPS):
        offsets, covariance = _solved(regions, reference, weights)
        squares = np.array([_squares(region, offsets) for region in regions])
        scale = max(1.0, float((weights * squares).sum() / n_free.sum()))
        weights = (_DEGREES + n_free) / (_DEGREES + squares / scale)
    return offsets, _deviations(regions, reference, offsets, weights, scale * covariance.diagonal())


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


def _solved(regions: Sequence[_Region], reference: int, weights: Array) -> tuple[Array, Array]:
    """Offsets (r, k) with these weights of the regions, and the inverse (r, r) of their weighted information."""
    total = sum(weight * region.information for weight, region in zip(weights, regions, strict=True))
    score = sum(weight * region.score for weight, region in zip(weights, regions, strict=True))
    others = np.ix_(*2 * [np.flatnonzero(np.arange(len(total)) != reference)])
    covariance = np.zeros_like(total)
    covariance[others] = np.linalg.inv(total[others])
    return covariance @ score, covariance


def _squares(region: _Region, offsets: Array) -> float:
    """Squared error of the offsets (r, k) in a region, in the variances that it claims; mean of the outputs."""
    error = region.score - region.information @ offsets
    return float((error * (np.linalg.pinv(region.information) @ error)).sum() / error.shape[1])


def _deviations(regions: Sequence[_Region], reference: int, offsets: Array, weights: Array, claimed: Array) -> Array:
    """Standard deviations (r,) by the jackknife, and no less than the claimed variances (r,)."""
    changes = []
    for place in range(len(regions)):
        without = np.where(np.arange(len(regions)) == place, 1e-6, weights)  # not 0: a chain of overlaps stays one
        changes.append(((_solved(regions, reference, without)[0] - offsets) ** 2).mean(axis=1))
    n = len(regions)
    return np.sqrt(np.maximum(claimed, (n - 1) / n * np.sum(changes, axis=0)))
