"""Answers of territories (docs/territories.md, 5).

A territory answers by the posterior of its own pseudo-data and a halo: the pseudo-data of other territories that are
nearest to its ground, and to places all over it. Hyperparameters are averages over the nearest territories that agree
with it; the mean is estimated from the data, as in ordinary kriging.
Factorised posteriors are kept, up to a number of bytes, and made anew when something that they are made of changes.

Near a border the answers of all territories within reach are averaged, which makes the answer continuous. A weight
falls to zero at the end of the reach, and is divided by the variance: a territory that knows nothing of the other side
says little there. Territories of one regime share most of their data near the border, so that they hardly differ.
"""

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from time import perf_counter
from typing import NamedTuple
from weakref import ReferenceType, ref

import numpy as np
from scipy.spatial import KDTree

from wgpr.ensemble.cuts import route
from wgpr.ensemble.territories import Overview, Territories
from wgpr.ensemble.territory import Territory, agreement
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.pseudodata import Posterior, PseudoData

# With more inputs than these, territories and halos are larger.
_FEW_INPUTS = 3

# Territories whose hyperparameters are averaged.
_N_TERRITORIES = 8

# Least variance of an answer, as a fraction of the prior variance: it is what rounding leaves.
_LEAST_VARIANCE = 1e-12

# Least fraction of the reach that a territory answers in.
_LEAST_FRACTION = 0.01

# Numbers in a matrix for one piece of queries.
_PIECE = 2_000_000

# Fraction of the memory that posteriors may take that nobody has asked for yet.
_ROOM_FOR_PREPARED = 0.5

# Most pseudo-data of a posterior for the covariance of several queries.
_MOST_JOINT = 1000


def halo_sizes(n_features: int) -> tuple[int, int]:
    """Most pseudo-data of a halo, and territories that they are taken from."""
    return (100, 24) if n_features <= _FEW_INPUTS else (200, 64)


class Answers(NamedTuple):
    """mean : (n, k); variance of the field and noise : (n,); owners : (n,) numbers of the territories."""

    mean: Array
    variance: Array
    noise: Array
    owners: Indices


class _Recipe(NamedTuple):
    """What the posterior of a territory is made of.

    numbers, sources : the territory, and those that its halo is taken from; they are not kept alive.
    ground : (2, d) of the territory.
    log_theta : (p,) that the posterior has. fraction : of the reach that it answers beyond its borders.
    """

    numbers: tuple[int, ...]
    sources: tuple["ReferenceType[Territory]", ...]
    ground: Array
    log_theta: Array
    fraction: float


class _Local(NamedTuple):
    """What answers in a territory: its posterior, how it was made, and the overview at that time."""

    posterior: Posterior
    recipe: _Recipe
    overview: "ReferenceType[Overview]"


class PosteriorCache:
    """Posteriors of territories by their numbers, those used last; safe for threads, also while another one learns.

    Territories before and after some rows share it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Local] = OrderedDict()
        self._lock, self.n_bytes = Lock(), 0

    def __contains__(self, number: int) -> bool:
        with self._lock:
            return number in self._kept

    def get(self, number: int) -> _Local | None:
        with self._lock:
            kept = self._kept.get(number)
            if kept is not None:
                self._kept.move_to_end(number)
            return kept

    def put(self, number: int, kept: _Local, max_bytes: int) -> None:
        """Keep a posterior, and drop those that were used longest ago until `max_bytes` suffice."""
        with self._lock:
            before = self._kept.pop(number, None)
            self.n_bytes += kept.posterior.n_bytes - (before.posterior.n_bytes if before is not None else 0)
            self._kept[number] = kept
            self._drop(max_bytes)

    def shrink(self, max_bytes: int) -> None:
        """Drop what was used longest ago until `max_bytes` suffice."""
        with self._lock:
            self._drop(max_bytes)

    def _drop(self, max_bytes: int) -> None:
        while self.n_bytes > max_bytes and self._kept:
            self.n_bytes -= self._kept.popitem(last=False)[1].posterior.n_bytes


def predict(territories: Territories, X: Array, cache: PosteriorCache, max_bytes: int) -> Answers:
    """Answers at `X` (n, d). max_bytes : of the posteriors that are kept."""
    owners = route(territories.cuts, X)
    mean, noise = np.zeros((len(X), len(territories.models[0].mean))), np.zeros(len(X))
    total, total_of_weights = np.zeros(len(X)), np.zeros(len(X))
    for number, rows, distances in _within_reach(territories, X, owners):
        local = _local(territories, number, cache, max_bytes)
        for some, weight in _weighted(rows, distances / local.recipe.fraction, len(local.posterior.data)):
            local_mean, variance = local.posterior.predict(X[some])
            least = _LEAST_VARIANCE * territories.kernel.variance(local.posterior.theta)
            by_variance = weight / np.maximum(variance, least)
            mean[some] += by_variance[:, None] * local_mean
            noise[some] += by_variance * local.posterior.theta.noise**2
            total[some] += by_variance
            total_of_weights[some] += weight
    return Answers(mean / total[:, None], total_of_weights / total, noise / total, owners)


def joint_covariance(territories: Territories, X: Array, cache: PosteriorCache, max_bytes: int) -> Array:
    """The covariance (n, n) of the field at `X` (n, d), by one posterior of what all their territories answer by."""
    numbers = np.unique(route(territories.cuts, X)).tolist()
    if len(numbers) == 1:
        return _local(territories, numbers[0], cache, max_bytes).posterior.joint(X).covariance
    recipes = [_recipe(territories, number) for number in numbers]
    sources = sorted({number for recipe in recipes for number in recipe.numbers})
    data = PseudoData.union(*(territories.models[number].distinct for number in sources))
    log_theta = np.mean([recipe.log_theta for recipe in recipes], axis=0)
    theta = Hyperparameters.from_log(log_theta, X.shape[1])
    if len(data) > _MOST_JOINT:
        tree, n_each = KDTree(data.Z / theta.lengthscales), max(1, _MOST_JOINT // len(X))
        data = data[np.unique(tree.query(X / theta.lengthscales, k=np.arange(1, n_each + 1))[1])]
    return Posterior(territories.kernel, theta, None, data).joint(X).covariance


def posterior_of(territories: Territories, number: int, cache: PosteriorCache, max_bytes: int) -> Posterior:
    """The posterior that a territory answers by."""
    return _local(territories, number, cache, max_bytes).posterior


def prepare(territories: Territories, cache: PosteriorCache, max_bytes: int, seconds: float) -> bool:
    """Make posteriors that are not kept, for about so many seconds. True if all are made, or no memory is left."""
    end = perf_counter() + seconds
    for number in range(len(territories)):
        if cache.n_bytes > _ROOM_FOR_PREPARED * max_bytes:
            return True
        if number not in cache:
            _local(territories, number, cache, max_bytes)
            if number not in cache:  # it has no room
                return True
            if perf_counter() > end:
                return False
    return True


# Which territories answer a query


def _within_reach(territories: Territories, X: Array, owners: Indices) -> Iterator[tuple[int, Indices, Array]]:
    """Of each territory: its number, rows of `X` (n, d) within its reach, and their distances (m,) from its ground."""
    found: dict[int, list[tuple[Indices, Array]]] = {}
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        near = _near(territories.overview, int(owners[rows[0]]))
        grounds = territories.overview.grounds[near]
        size = max(16, _PIECE // grounds[:, 0].size)
        for some in (rows[first : first + size] for first in range(0, len(rows), size)):
            distances = _distances(grounds, territories.overview.reach, X[some])
            for number, distance in zip(near.tolist(), distances.T, strict=True):
                is_within = distance < 1.0
                if is_within.any():
                    found.setdefault(number, []).append((some[is_within], distance[is_within]))
    for number, parts in found.items():
        rows_of, distances_of = zip(*parts, strict=True)
        yield number, np.concatenate(rows_of), np.concatenate(distances_of)


def _near(overview: Overview, owner: int) -> Indices:
    """Territories (j,) whose reach meets the ground of one; it is one of them."""
    below, above = overview.grounds[owner, 0] - overview.reach, overview.grounds[owner, 1] + overview.reach
    is_near = (overview.grounds[:, 0] <= above).all(axis=1) & (overview.grounds[:, 1] >= below).all(axis=1)
    return np.flatnonzero(is_near)


def _distances(grounds: Array, reach: Array, X: Array) -> Array:
    """Distances (n, j) of places `X` (n, d) from grounds (j, 2, d), in reaches (d,)."""
    gaps = np.maximum(grounds[:, 0] - X[:, None], X[:, None] - grounds[:, 1])
    return np.sqrt((np.maximum(gaps / reach, 0.0) ** 2).sum(axis=-1))


def _weighted(rows: Indices, distances: Array, n_data: int) -> Iterator[tuple[Indices, Array]]:
    """Pieces of the rows (n,) with their weights, which fall from one to zero at the distance (n,) of one."""
    weights = np.maximum(1.0 - distances, 0.0)
    weights *= weights * (3.0 - 2.0 * weights)
    (places,) = np.nonzero(weights)
    size = max(16, _PIECE // n_data)
    for first in range(0, len(places), size):
        some = places[first : first + size]
        yield rows[some], weights[some]


# Posteriors of territories


def _local(territories: Territories, number: int, cache: PosteriorCache, max_bytes: int) -> _Local:
    """What a territory answers by. What is kept of earlier answers is used, as far as it still holds."""
    kept = cache.get(number)
    if kept is None or kept.overview() is not territories.overview:
        recipe = _recipe(territories, number)
    else:  # at most rows came in
        models = [territories.models[each] for each in kept.recipe.numbers]
        if all(source() is model for source, model in zip(kept.recipe.sources, models, strict=True)):
            return kept
        recipe = kept.recipe._replace(sources=tuple(map(ref, models)))
    local = _Local(_posterior(territories, recipe, kept), recipe, ref(territories.overview))
    cache.put(number, local, max_bytes)
    return local


def _recipe(territories: Territories, number: int) -> _Recipe:
    log_theta = _averaged(territories, number)
    near, fraction = _neighbours(territories, number, log_theta)
    numbers = number, *near.tolist()
    sources = tuple(ref(territories.models[each]) for each in numbers)
    return _Recipe(numbers, sources, territories.overview.grounds[number].copy(), log_theta, fraction)


def _posterior(territories: Territories, recipe: _Recipe, kept: _Local | None) -> Posterior:
    """The posterior of a territory: the kept one if it is made of the same, extended if only rows came in."""
    own, *others = (territories.models[number].distinct for number in recipe.numbers)
    theta, data = Hyperparameters.from_log(recipe.log_theta, own.Z.shape[1]), own
    if others:
        around, n = PseudoData.union(*others), halo_sizes(own.Z.shape[1])[0]
        data = PseudoData.union(_halo(around, recipe.ground, theta.lengthscales, n), own)
    has_same_theta = kept is not None and np.array_equal(recipe.log_theta, kept.recipe.log_theta)
    if kept is not None and has_same_theta and data.begins_with(kept.posterior.data):
        rows = data[len(kept.posterior.data) :]
        return kept.posterior.extended(rows) if len(rows) else kept.posterior
    return Posterior(territories.kernel, theta, None, data)


def _halo(others: PseudoData, ground: Array, lengthscales: Array, n: int) -> PseudoData:
    """What a territory uses of others. With many inputs all places are near a border, whose nearest suffice."""
    if len(lengthscales) > _FEW_INPUTS:
        return others.nearest_to_box(ground, lengthscales, n)
    return others.around(ground, lengthscales, n)


def _averaged(territories: Territories, number: int) -> Array:
    """Log hyperparameters (p,), averaged over the nearest territories that agree with one."""
    centres, log_thetas = territories.overview.centres, territories.overview.log_thetas
    distances = np.sqrt((((centres - centres[number]) / territories.overview.typical_lengthscales) ** 2).sum(axis=1))
    distances[number] = -1.0  # it is one of them, also if others have the same centre
    n = min(_N_TERRITORIES + 1, len(distances))
    near = np.argpartition(distances, n - 1)[:n]
    distances[number] = 0.0
    last = distances[near].max() * (1.0 if n < len(distances) else 1.1)
    weights = (1.0 - distances[near] / last) ** 2 if last > 0.0 else np.ones(n)
    weights *= agreement(log_thetas[near], log_thetas[number])
    weights /= weights.sum()
    averaged: Array = weights @ log_thetas[near]
    return averaged


def _neighbours(territories: Territories, number: int, log_theta: Array) -> tuple[Indices, float]:
    """The nearest territories that agree with one, for its halo; and the fraction of the reach that it answers in.

    The field may jump at the border of another regime, so that the fraction is small if a territory within reach
    disagrees.
    """
    grounds, n_features = territories.overview.grounds, territories.n_features
    lengthscales = np.exp(log_theta[1 : n_features + 1])
    (below, above), n = grounds[number], halo_sizes(n_features)[1]
    gaps = np.maximum(np.maximum(grounds[:, 0] - above, below - grounds[:, 1]), 0.0)
    apart = (territories.overview.centres - territories.overview.centres[number]) / lengthscales
    order = np.lexsort(((apart**2).sum(axis=1), ((gaps / lengthscales) ** 2).sum(axis=1)))
    near = order[order != number][:n]
    agreeing = agreement(territories.overview.log_thetas[near], territories.overview.log_thetas[number])
    is_within_reach = (gaps[near] <= territories.overview.reach).all(axis=1)
    fraction = max(_LEAST_FRACTION, float(agreeing[is_within_reach].min(initial=1.0)))
    return near[agreeing > 0.0], fraction
