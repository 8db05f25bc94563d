"""Answers of territories (docs/territories.md, 5).

A territory answers by the posterior of its own pseudo-data and a halo: the pseudo-data of other territories that are
nearest to its ground. Hyperparameters and prior mean are averages over the nearest territories that agree with it.
Factorised posteriors are kept, up to a number of bytes, and made anew when something that they are made of changes.

Near a border the answers of all territories within reach are averaged, with weights that fall to zero at the end of the
reach. Two sides of a border share most of their data there, so they hardly differ; the average makes the answer
continuous.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from wgpr.ensemble.cuts import route
from wgpr.ensemble.territories import Territories
from wgpr.ensemble.territory import Territory, agreement
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.pseudodata import Posterior, PseudoData

# Territories whose hyperparameters are averaged.
_N_TERRITORIES = 8

# Numbers in a matrix for one piece of queries.
_PIECE = 2_000_000

# Most pseudo-data of a posterior for the covariance of several queries.
_MOST_JOINT = 1000


def halo_sizes(n_features: int) -> tuple[int, int]:
    """Most pseudo-data of a halo, and territories that they are taken from."""
    return (100, 24) if n_features < 4 else (200, 64)


class Answers(NamedTuple):
    """mean : (n, k); variance of the field and noise : (n,); owners : (n,) numbers of the territories."""

    mean: Array
    variance: Array
    noise: Array
    owners: Indices


@dataclass
class _Kept:
    """The posterior of a territory, what it is made of, and the version of the territories that it was checked with."""

    posterior: Posterior
    sources: tuple[Territory, ...]
    log_theta: Array
    mean: Array
    ground: Array
    version: object


class PosteriorCache:
    """Posteriors of territories by their numbers, those used last; safe for threads, also while another one learns.

    Territories before and after some rows share it.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock, self.n_bytes = Lock(), 0

    def get(self, number: int) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(number)
            if kept is not None:
                self._kept.move_to_end(number)
            return kept

    def put(self, number: int, kept: _Kept, max_bytes: int) -> None:
        """Keep a posterior, and drop those that were used longest ago until `max_bytes` suffice."""
        with self._lock:
            before = self._kept.pop(number, None)
            self.n_bytes += kept.posterior.n_bytes - (before.posterior.n_bytes if before is not None else 0)
            self._kept[number] = kept
            while self.n_bytes > max_bytes and self._kept:
                self.n_bytes -= self._kept.popitem(last=False)[1].posterior.n_bytes


def predict(territories: Territories, X: Array, cache: PosteriorCache, max_bytes: int) -> Answers:
    """Answers at `X` (n, d). max_bytes : of the posteriors that are kept."""
    owners = route(territories.cuts, X)
    answers = Answers(np.zeros((len(X), len(territories.models[0].mean))), np.zeros(len(X)), np.zeros(len(X)), owners)
    for number, rows, weights in _shares(territories, X, owners):
        posterior = _posterior(territories, number, cache, max_bytes)
        size = max(16, _PIECE // posterior.n_data)
        for first in range(0, len(rows), size):
            some, share = rows[first : first + size], weights[first : first + size]
            mean, variance = posterior.predict(X[some])
            answers.mean[some] += share[:, None] * mean
            answers.variance[some] += share * variance
            answers.noise[some] += share * posterior.theta.noise**2
    return answers


def joint_covariance(territories: Territories, X: Array, cache: PosteriorCache, max_bytes: int) -> Array:
    """The covariance (n, n) of the field at `X` (n, d), by pseudo-data that are near to all queries together."""
    numbers = np.unique(route(territories.cuts, X)).tolist()
    posteriors = [_posterior(territories, number, cache, max_bytes) for number in numbers]
    if len(posteriors) == 1:
        return posteriors[0].joint(X).covariance
    data = PseudoData.union(*(territories.models[number].distinct for number in numbers))
    log_theta = np.mean([posterior.theta.to_log() for posterior in posteriors], axis=0)
    theta = Hyperparameters.from_log(log_theta, X.shape[1])
    if len(data) > _MOST_JOINT:
        tree, n_each = KDTree(data.Z / theta.lengthscales), max(1, _MOST_JOINT // len(X))
        data = data[np.unique(tree.query(X / theta.lengthscales, k=np.arange(1, n_each + 1))[1])]
    mean = np.mean([posterior.mean for posterior in posteriors], axis=0)
    return Posterior(territories.kernel, theta, mean, data).joint(X).covariance


# Which territories answer a query


def _shares(territories: Territories, X: Array, owners: Indices) -> Iterator[tuple[int, Indices, Array]]:
    """Of each territory that answers: its number, rows of `X` (n, d) and the weights of its answers."""
    rows_of: dict[int, list[Indices]] = {}
    weights_of: dict[int, list[Array]] = {}
    order = np.argsort(owners, kind="stable")
    numbers, firsts = np.unique(owners[order], return_index=True)
    for owner, rows in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
        near, weights = _weights(territories.grounds, territories.reach, X[rows], owner)
        for place, number in enumerate(near.tolist()):
            has_share = weights[:, place] > 0.0
            if has_share.any():
                rows_of.setdefault(number, []).append(rows[has_share])
                weights_of.setdefault(number, []).append(weights[has_share, place])
    for number, parts in rows_of.items():
        yield number, np.concatenate(parts), np.concatenate(weights_of[number])


def _weights(grounds: Array, reach: Array, X: Array, owner: int) -> tuple[Indices, Array]:
    """Territories (j,) within reach of the ground of one, and their weights (n, j) at the places `X` (n, d) there."""
    below, above = grounds[owner]
    is_near = (grounds[:, 0] <= above + reach).all(axis=1) & (grounds[:, 1] >= below - reach).all(axis=1)
    near = np.flatnonzero(is_near)
    if len(near) == 1:
        return near, np.ones((len(X), 1))
    gaps = np.maximum(grounds[near, 0] - X[:, None], X[:, None] - grounds[near, 1])
    distance = np.sqrt((np.maximum(gaps / reach, 0.0) ** 2).sum(axis=-1))
    weights = np.maximum(1.0 - distance, 0.0)
    weights *= weights * (3.0 - 2.0 * weights)
    weights /= weights.sum(axis=1, keepdims=True)
    return near, weights


# Posteriors of territories


def _posterior(territories: Territories, number: int, cache: PosteriorCache, max_bytes: int) -> Posterior:
    """The posterior that a territory answers by: the kept one, if nothing that it is made of has changed."""
    kept = cache.get(number)
    if kept is not None and kept.version is territories.version:
        return kept.posterior
    log_theta, mean = _prior(territories, number)
    near = _sources(territories, number, log_theta)
    sources = (territories.models[number], *(territories.models[other] for other in near.tolist()))
    ground = territories.grounds[number]
    made_of = log_theta, mean, ground
    if kept is not None:
        is_same = all(map(np.array_equal, made_of, (kept.log_theta, kept.mean, kept.ground)))
        is_same = is_same and len(sources) == len(kept.sources)
        if is_same and all(a is b for a, b in zip(sources, kept.sources, strict=True)):
            kept.version = territories.version
            return kept.posterior
    theta = Hyperparameters.from_log(log_theta, territories.n_features)
    data = PseudoData.union(sources[0].distinct, *_halo(sources, ground, theta))
    posterior = Posterior(territories.kernel, theta, mean, data)
    cache.put(number, _Kept(posterior, sources, *made_of, territories.version), max_bytes)
    return posterior


def _prior(territories: Territories, number: int) -> tuple[Array, Array]:
    """Log hyperparameters (p,) and prior mean (k,): averages over the nearest territories that agree with one."""
    centres, log_thetas = territories.centres, territories.log_thetas
    distances = np.sqrt((((centres - centres[number]) / territories.typical_lengthscales) ** 2).sum(axis=1))
    n = min(_N_TERRITORIES + 1, len(distances))
    near = np.argpartition(distances, n - 1)[:n]
    last = distances[near].max() * (1.0 if n < len(distances) else 1.1)
    weights = (1.0 - distances[near] / last) ** 2 if last > 0.0 else np.ones(n)
    weights *= agreement(log_thetas[near], log_thetas[number])
    weights /= weights.sum()
    means = np.array([territories.models[other].mean for other in near.tolist()])
    return weights @ log_thetas[near], weights @ means


def _sources(territories: Territories, number: int, log_theta: Array) -> Indices:
    """Territories whose pseudo-data may be in the halo of one: the nearest to its ground that agree with it."""
    grounds, n_features = territories.grounds, territories.n_features
    lengthscales = np.exp(log_theta[1 : n_features + 1])
    (below, above), n = grounds[number], halo_sizes(n_features)[1]
    gaps = np.maximum(np.maximum(grounds[:, 0] - above, below - grounds[:, 1]), 0.0) / lengthscales
    apart = (territories.centres - territories.centres[number]) / lengthscales
    order = np.lexsort(((apart**2).sum(axis=1), (gaps**2).sum(axis=1)))
    near = order[order != number][:n]
    agreeing: Indices = near[agreement(territories.log_thetas[near], territories.log_thetas[number]) > 0.0]
    return agreeing


def _halo(sources: tuple[Territory, ...], ground: Array, theta: Hyperparameters) -> list[PseudoData]:
    """The pseudo-data of the territories behind the first that are nearest to the ground (2, d) of the first."""
    if len(sources) == 1:
        return []
    data, n = PseudoData.union(*(source.distinct for source in sources[1:])), halo_sizes(ground.shape[1])[0]
    if len(data) <= n:
        return [data]
    gaps = np.maximum(np.maximum(ground[0] - data.Z, data.Z - ground[1]), 0.0) / theta.lengthscales
    return [data[np.sort(np.argpartition((gaps**2).sum(axis=1), n - 1)[:n])]]
