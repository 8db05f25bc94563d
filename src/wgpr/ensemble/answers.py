"""Answers of territories: one posterior for each query, of the pseudo-data nearest to it (docs/territories.md, 5).

A query is conditioned on its M nearest pseudo-data, by distances in typical length-scales. The precisions of the last
quarter of them fall to zero, so that a point has no weight when it leaves, and the answer is continuous.
Hyperparameters are averaged over the nearest territories. Territories of another regime take no part: the M nearest
are those of the others. If all pseudo-data are few and of one regime, there is one posterior of all of them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.spatial import KDTree

from wgpr.ensemble.cuts import Node, route
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.pseudodata import Posterior, PseudoData

# Precisions fall to zero from this fraction of the nearest points on.
_FULL_PRECISION = 0.75

# Territories whose hyperparameters are averaged.
_N_TERRITORIES = 8

# Root mean square difference of log hyperparameters at which territories begin to disagree, and disagree wholly.
_AGREE, _DISAGREE = 0.6, 1.0

# Most pseudo-data that are searched for M of the query's own regime.
_MOST_SEARCHED = 1024

# Relative difference of distances that count as equal; and how many times as far a point is that does not exist.
_EQUAL, _NEVER = 1e-9, 1e12

# Numbers in the matrices of one piece of queries.
_PIECE = 2_000_000

# Most pseudo-data of one posterior for several queries.
_MOST_JOINT = 1000


def n_nearest(n_features: int) -> int:
    """M, the pseudo-data that a query is conditioned on."""
    return 32 if n_features < 4 else 128


def agreement(log_theta: Array, other: Array) -> Array:
    """Between 0 for another regime and 1, of log hyperparameters (..., p)."""
    difference = np.sqrt(((log_theta - other) ** 2).mean(axis=-1))
    agreeing: Array = ((_DISAGREE - difference) / (_DISAGREE - _AGREE)).clip(0.0, 1.0)
    return agreeing


class Answers(NamedTuple):
    """mean : (n, k); variance of the field and noise : (n,); owners : (n,) numbers of the territories."""

    mean: Array
    variance: Array
    noise: Array
    owners: Indices


class PseudoDataIndex:
    """All pseudo-data of territories, in trees that find the nearest."""

    def __init__(self, models: Sequence[Any], cuts: Node, centres: Array, log_thetas: Array) -> None:
        self.kernel: Kernel = models[0].kernel
        self._cuts, self._log_thetas = cuts, log_thetas
        n_features = centres.shape[1]
        self._scale = np.exp(np.median(log_thetas[:, 1 : n_features + 1], axis=0))
        parts = [model.distinct for model in models]
        self._data = PseudoData.union(*parts)
        self._of_model = np.repeat(np.arange(len(models)), [len(part) for part in parts])
        self._means = np.array([model.mean for model in models])
        self._points = KDTree(self._data.Z / self._scale)
        self._centres = KDTree(centres / self._scale)
        self._n_nearest = min(n_nearest(n_features), len(self._data))
        self._of_all: Posterior | None = None
        if len(self._data) <= _MOST_JOINT and agreement(log_thetas[:, None], log_thetas).min() == 1.0:
            theta = Hyperparameters.from_log(log_thetas.mean(axis=0), n_features)
            self._of_all = Posterior(self.kernel, theta, self._means.mean(axis=0), self._data)

    def predict(self, X: Array) -> Answers:
        """Answers at `X` (n, d), each from its own posterior."""
        if self._of_all is not None:
            size = max(16, _PIECE // len(self._data))
            parts = [self._of_all.predict(X[first : first + size]) for first in range(0, len(X), size)]
            mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
            noise = np.full(len(X), self._of_all.theta.noise**2)
            return Answers(mean, variance, noise, route(self._cuts, X))
        size = max(16, _PIECE // self._n_nearest**2)
        pieces = [self._piece(X[first : first + size]) for first in range(0, len(X), size)]
        return Answers(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))

    def joint(self, X: Array) -> Array:
        """The covariance (n, n) of the field at `X` (n, d), by the nearest pseudo-data of all queries together."""
        if self._of_all is not None:
            return self._of_all.joint(X).covariance
        n_each = min(self._n_nearest, max(1, _MOST_JOINT // len(X)))
        nearest = np.unique(self._points.query(X / self._scale, k=np.arange(1, n_each + 1))[1])
        log_theta, mean = self._priors(X, route(self._cuts, X))
        theta = Hyperparameters.from_log(log_theta.mean(axis=0), X.shape[1])
        return Posterior(self.kernel, theta, mean.mean(axis=0), self._data[nearest]).joint(X).covariance

    def _piece(self, X: Array) -> Answers:
        owners = route(self._cuts, X)
        log_theta, mean = self._priors(X, owners)
        nearest, precision = self._nearest(X, owners)
        Z, q = self._data.Z[nearest], np.sqrt(precision)
        n_features = X.shape[1]
        lengthscales = np.exp(log_theta[:, None, 1 : n_features + 1])
        shape = np.exp(log_theta[:, n_features + 1 : -1])
        variance = np.exp(2.0 * log_theta[:, 0])
        norms = (((Z - X[:, None]) / lengthscales) ** 2).sum(axis=-1)
        squares = _pairwise_squares((Z - Z[:, :1]) / lengthscales)  # a far query would cost digits
        B = _correlation(self.kernel, squares, shape) * variance[:, None, None]
        B *= q[:, :, None]
        B *= q[:, None]
        B[:, np.arange(B.shape[1]), np.arange(B.shape[1])] += 1.0
        weights = q * variance[:, None] * _correlation(self.kernel, norms, shape)
        targets = q[:, :, None] * (self._data.t[nearest] - mean[:, None])
        solved = np.linalg.solve(B, np.concatenate([weights[:, :, None], targets], axis=-1))
        means = mean + np.einsum("qm,qmk->qk", weights, solved[..., 1:])
        left = variance - np.einsum("qm,qm->q", weights, solved[..., 0])
        return Answers(means, np.maximum(left, 0.0), np.exp(2.0 * log_theta[:, -1]), owners)

    def _nearest(self, X: Array, owners: Indices) -> tuple[Indices, Array]:
        """The nearest pseudo-data (n, M) of each query, and their precisions (n, M), which fall to zero at the last."""
        n, n_data = self._n_nearest, len(self._data)
        distances, nearest, agreeing = self._nearest_agreeing(X, owners, min(n + 1, n_data))
        precision = self._data.precision[nearest[:, :n]] * agreeing[:, :n]
        if n < n_data:
            last, full = distances[:, -1:], distances[:, [int(_FULL_PRECISION * n)]]
            width = np.where(last > 0.0, np.maximum(last - full, _EQUAL * last), 1.0)
            fall = ((last - distances[:, :n]) / width).clip(0.0, 1.0)
            are_equal = last - distances[:, :1] <= _EQUAL * last  # none leaves before the others
            precision *= np.where(are_equal, 1.0, fall)
        return nearest[:, :n], precision

    def _nearest_agreeing(self, X: Array, owners: Indices, n: int) -> tuple[Array, Indices, Array]:
        """Distances, indices and agreement (q, n) of the n nearest pseudo-data that agree with each query's owner.

        If fewer are found, others fill the row: their agreement is 0.
        """
        most = min(len(self._data), max(n, _MOST_SEARCHED))
        found = self._searched(X, owners, n)
        n_searched, rows = n, np.flatnonzero((found[2] == 0.0).any(axis=1))
        while len(rows) and n_searched < most:
            n_searched = min(4 * n_searched, most)
            distances, nearest, agreeing = self._searched(X[rows], owners[rows], n_searched)
            order = np.argsort(agreeing == 0.0, axis=1, kind="stable")[:, :n]
            is_enough = np.take_along_axis(agreeing, order, axis=1).all(axis=1)
            beyond = distances[:, -1:] * (1.0 if n_searched < len(self._data) else _NEVER)
            distances = np.where(agreeing == 0.0, beyond, distances)  # where the next that agrees may be
            for target, values in zip(found, (distances, nearest, agreeing), strict=True):
                target[rows] = np.take_along_axis(values, order, axis=1)
            rows = rows[~is_enough]
        return found

    def _searched(self, X: Array, owners: Indices, n: int) -> tuple[Array, Indices, Array]:
        distances, nearest = self._points.query(X / self._scale, k=np.arange(1, n + 1))
        agreeing = agreement(self._log_thetas[self._of_model[nearest]], self._log_thetas[owners][:, None])
        return distances, nearest, agreeing

    def _priors(self, X: Array, owners: Indices) -> tuple[Array, Array]:
        """Log hyperparameters (n, p) and prior means (n, k): averages over the nearest territories that agree."""
        n_models = len(self._means)
        n = min(_N_TERRITORIES, n_models)
        distances, nearest = self._centres.query(X / self._scale, k=np.arange(1, min(n + 1, n_models) + 1))
        last = distances[:, -1:] * (1.0 if n < n_models else 1.1)
        weights = (1.0 - distances[:, :n] / np.maximum(last, np.finfo(float).tiny)).clip(0.0, 1.0) ** 2
        weights *= agreement(self._log_thetas[nearest[:, :n]], self._log_thetas[owners][:, None])
        total = weights.sum(axis=1, keepdims=True)
        weights = np.where(total > 0, weights / np.maximum(total, np.finfo(float).tiny), 0.0)
        by_owner = (total[:, 0] <= 0)[:, None]
        log_theta = np.einsum("qj,qjp->qp", weights, self._log_thetas[nearest[:, :n]])
        mean = np.einsum("qj,qjk->qk", weights, self._means[nearest[:, :n]])
        return np.where(by_owner, self._log_thetas[owners], log_theta), np.where(by_owner, self._means[owners], mean)


def _pairwise_squares(Z: Array) -> Array:
    """Squared distances (n, m, m) of the points `Z` (n, m, d), which are not far from zero."""
    norms = (Z**2).sum(axis=-1)
    squares: Array = np.maximum(norms[:, :, None] + norms[:, None] - 2.0 * Z @ Z.swapaxes(1, 2), 0.0)
    return squares


def _correlation(kernel: Kernel, squares: Array, shape: Array) -> Array:
    """`h` of squared distances (n, ...), with shape parameters (n, s) of each query."""
    per_query = tuple(column.reshape(-1, *(1,) * (squares.ndim - 1)) for column in shape.T)
    return kernel.correlation(squares.copy(), cast(Any, per_query))
