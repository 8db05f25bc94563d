"""Pseudo-data: places, values and precisions that stand for all that a model has seen (docs/territories.md, 1).

What they say is the posterior of ordinary Gaussian process regression with noise variances `1 / lambda_i`:

    Q = diag(sqrt(lambda)),   B = I + Q K Q = L L^T
    mean(x) = k_x^T Q B^-1 Q t,    var(x) = k_xx - |L^-1 Q k_x|^2

A row is a pseudo-observation with `lambda = w / s^2`. Learning rows is therefore a union, and nothing is approximated.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri, dpstrf

from wgpr.gp.gaussian import Gaussian
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    Indices,
    NotFactorizableError,
    cholesky,
    cholesky_identity_plus,
    cholesky_with_jitter,
    column_squares,
    diagonal,
    log_determinant,
    solve_lower,
    solve_lower_transposed,
)

# Nats that thinning may lose for each row that was not thinned before.
LOSS_PER_ROW = 0.0003

# Moments are matched to this relative precision, in at most so many Newton steps.
_PRECISION = 1e-3
_MAX_NEWTON_STEPS = 25

# A kept point whose precision falls below this fraction of the posterior's says nothing, and is dropped.
_LEAST_PRECISION = 1e-2

# A value is at most so many of its standard deviations from the posterior mean.
import os as _os
_FARTHEST_VALUE = float(_os.environ.get("FAR", 4.0))


@dataclass(frozen=True, eq=False)
class PseudoData:
    """Pseudo-observations.

    Z : (m, d) places; t : (m, k) values, a column for each output; precision : (m,), `lambda`, shared by the outputs.
    is_row : (m,) whether it is a row as it was observed; its precision then follows the noise of the model.
    """

    Z: Array
    t: Array
    precision: Array
    is_row: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.precision)

    @classmethod
    def of_rows(cls, X: Array, y: Array, weights: Array, noise: float) -> "PseudoData":
        """Rows `X` (n, d), `y` (n, k) with weights (n,): the noise's variance is `noise^2 / weight`."""
        return cls(X, y, weights / noise**2, np.ones(len(y), dtype=np.bool_))

    @classmethod
    def union(cls, *parts: "PseudoData") -> "PseudoData":
        return cls(
            np.concatenate([part.Z for part in parts]),
            np.concatenate([part.t for part in parts]),
            np.concatenate([part.precision for part in parts]),
            np.concatenate([part.is_row for part in parts]),
        )

    def __getitem__(self, rows: slice | Indices | NDArray[np.bool_]) -> "PseudoData":
        return PseudoData(self.Z[rows], self.t[rows], self.precision[rows], self.is_row[rows])

    def with_noise(self, before: float, now: float) -> "PseudoData":
        """After the noise has changed: that of the rows follows it."""
        factor = (before / now) ** 2
        return PseudoData(self.Z, self.t, np.where(self.is_row, factor, 1.0) * self.precision, self.is_row)

    def faded(self, factor: float) -> "PseudoData":
        """After forgetting: all precisions are multiplied by the factor, and what are rows stays rows."""
        return PseudoData(self.Z, self.t, factor * self.precision, self.is_row)

    def united(self) -> "PseudoData":
        """Observations of the same place become one with the sum of their precisions. That is exact."""
        _, places, counts = np.unique(self.Z, axis=0, return_inverse=True, return_counts=True)
        if counts.max(initial=1) == 1:
            return self
        places = places.ravel()
        firsts = np.full(len(counts), len(self))
        np.minimum.at(firsts, places, np.arange(len(self)))
        order = np.argsort(firsts, kind="stable")
        total = np.bincount(places, self.precision)
        t = np.stack([np.bincount(places, self.precision * column) / total for column in self.t.T], axis=1)
        rows = np.bincount(places, self.is_row) == counts
        return PseudoData(self.Z[firsts[order]], t[order], total[order], rows[order])


class Posterior:
    """The field given pseudo-data, under one set of hyperparameters.

    mean : (k,) the prior mean.
    """

    def __init__(self, kernel: Kernel, theta: Hyperparameters, mean: Array, data: PseudoData) -> None:
        self.kernel, self.theta, self.mean, self._Z = kernel, theta, mean, data.Z
        self._q = np.sqrt(data.precision)
        B = kernel(theta, data.Z, data.Z)
        B *= self._q[:, None]
        B *= self._q
        diagonal(B)[:] += 1.0
        self._L = cholesky_identity_plus(B)
        self._beta = solve_lower_transposed(self._L, solve_lower(self._L, self._q[:, None] * (data.t - mean)))

    def _whitened(self, X: Array) -> tuple[Array, Array]:
        weights = self._q[:, None] * self.kernel(self.theta, self._Z, X)
        return weights, solve_lower(self._L, weights)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n, k) and variance (n,) at `X` (n, d)."""
        weights, V = self._whitened(X)
        variance = self.kernel.variance(self.theta) - column_squares(V)
        return self.mean + weights.T @ self._beta, np.maximum(variance, 0.0)

    def joint(self, X: Array) -> Gaussian:
        """The field at `X` (n, d) with its covariance (n, n)."""
        weights, V = self._whitened(X)
        return Gaussian(self.mean + weights.T @ self._beta, self.kernel(self.theta, X, X) - V.T @ V)


class Thinned(NamedTuple):
    """Pseudo-data after thinning, and the nats that it lost."""

    data: PseudoData
    loss: float


def thin(
    kernel: Kernel, theta: Hyperparameters, mean: Array, data: PseudoData, n_most: int, loss_fraction: float, price: float = 0.0
) -> Thinned | None:
    """Fewer pseudo-data with the same moments at the places that are kept; None if too much would be lost.

    Places are chosen greedily, the next always where `lambda_i` times the variance that the chosen ones leave is largest:
    that is the order of pivots in the Cholesky factorisation of `Q K Q`.

    Parameters
    ----------
    n_most : the most places to keep; loss_fraction : of the information in the rows that may be lost.
    """
    q, K = np.sqrt(data.precision), kernel(theta, data.Z, data.Z)
    B = K * q
    B *= q[:, None]
    order, left = _greedy_order(B)
    n_most = min(n_most, len(left) - 1)
    diagonal(B)[:] += 1.0
    L = cholesky_identity_plus(B)
    budget = loss_fraction * float(np.log(L.diagonal())[data.is_row].sum())
    most = max(budget, price * float(data.is_row.sum()))
    if left[n_most] > most:
        return None
    kept = order[: max(1, min(n_most, int(np.searchsorted(-left, -0.3 * budget))))]
    beta = solve_lower_transposed(L, solve_lower(L, q[:, None] * (data.t - mean)))
    inverse = _lower_inverse(L)
    variance = np.maximum(1.0 - inverse.diagonal(), 1e-12) / data.precision
    kept, precision = _healthy(K, kept, data.precision, variance)
    L_Z, _ = cholesky_with_jitter(K[np.ix_(kept, kept)])
    V = solve_lower(L_Z, K[kept])
    missed = max(0.0, float(left[0] - ((V * q) ** 2).sum()))
    S = -np.where(np.less.outer(kept, kept), inverse[np.ix_(kept, kept)].T, inverse[np.ix_(kept, kept)])
    diagonal(S)[:] += 1.0
    loss = missed + 0.5 * (_log_det_matched(K[np.ix_(kept, kept)], precision) - _log_det(S, data.precision[kept]))
    if loss > most:
        return None
    natural = solve_lower_transposed(L_Z, V @ (q[:, None] * beta))  # K_ZZ^-1 times the posterior mean
    limit = _FARTHEST_VALUE / np.sqrt(precision)[:, None]
    t = data.t[kept] - beta[kept] / q[kept, None] + (natural / precision[:, None]).clip(-limit, limit)
    return Thinned(PseudoData(data.Z[kept], t, precision, np.zeros(len(kept), dtype=np.bool_)), loss)


def _greedy_order(QKQ: Array) -> tuple[Indices, Array]:
    """Places in the order of their choice, and `left` (rank + 1,): the trace that the first i of them leave."""
    factor, pivots, rank, _ = dpstrf(QKQ, tol=1e-12 * float(QKQ.diagonal().max()), lower=1)
    squares = column_squares(np.tril(factor)[:, :rank])
    left = np.maximum(QKQ.trace() - np.concatenate([[0.0], np.cumsum(squares)]), 0.0)
    return pivots[:rank].astype(np.intp) - 1, left


def _healthy(K: Array, kept: Indices, precision: Array, variance: Array) -> tuple[Indices, Array]:
    """Those of the kept places whose matched precision is not small, and these precisions."""
    matched = _projected(K[np.ix_(kept, kept)], K[kept], precision)
    tolerance = _COARSE
    while True:
        matched = _matched_precisions(K[np.ix_(kept, kept)], variance[kept], matched, tolerance)
        health = matched * variance[kept]
        weak = np.flatnonzero(health < HEALTH)
        if len(weak) and len(kept) > 1:
            worst = weak[np.argsort(health[weak], kind="stable")[: -(-len(weak) // 2)]]
            kept, matched = np.delete(kept, worst), np.delete(matched, worst)
        elif tolerance == _PRECISION:
            return kept, matched
        else:
            tolerance = _PRECISION


_COARSE = 0.3
import os
HEALTH = float(os.environ.get("HEALTH", 0.05))
STAT = []


def _projected(K_ZZ: Array, K_Zx: Array, precision: Array) -> Array:
    """Precisions (n,) of all places, carried over to the kept ones by interpolation weights."""
    L, _ = cholesky_with_jitter(K_ZZ)
    W = solve_lower_transposed(L, solve_lower(L, K_Zx))
    return (W * W) @ precision


def _lower_inverse(L: Array) -> Array:
    """The lower triangle of `(L L^T)^-1`, of a lower factor; above it is anything."""
    return dpotri(L, lower=1)[0]


def _inverse(L: Array) -> Array:
    """`(L L^T)^-1`, symmetric, of a lower factor."""
    inverse = np.tril(_lower_inverse(L))
    inverse += np.tril(inverse, -1).T
    return inverse


NEWTON = [0, 0]


def _matched_precisions(K: Array, variance: Array, start: Array, tolerance: float) -> Array:
    """Precisions (m,) of diagonal sites whose posterior has these variances (m,) under the prior covariance `K` (m, m).

    They maximise `1/2 log|I + Q K Q| - 1/2 lambda^T v`, which is concave; Newton's equations are `(C o C) step = c - v`.
    """
    prior = K.diagonal()
    least, most = 1e-4 / prior, 1.0 / variance
    precision = np.clip(start, least, most)
    NEWTON[0] += 1
    for _ in range(_MAX_NEWTON_STEPS):
        NEWTON[1] += 1
        q = np.sqrt(precision)
        B = K * q
        B *= q[:, None]
        diagonal(B)[:] += 1.0
        C = _lower_inverse(cholesky_identity_plus(B))
        np.negative(C, out=C)
        C.ravel(order="K")[:: len(C) + 1] += 1.0
        C /= q
        C /= q[:, None]
        c = np.maximum(C.diagonal(), 1e-12 * prior)
        if np.abs(np.log(c / variance)).max() < tolerance:
            break
        C *= C
        C.ravel(order="K")[:: len(C) + 1] *= 1.0 + 1e-8
        L = cholesky_identity_plus(C)
        step = solve_lower_transposed(L, solve_lower(L, (c - variance)[:, None]))[:, 0]
        length = 1.0
        while (precision + length * step <= 0.1 * precision).any() and length > 1e-3:
            length *= 0.5
        precision = np.clip(precision + length * step, least, most)
    return precision


def _log_det(S: Array, precision: Array) -> float:
    """Of the covariance `Q^-1 S Q^-1`."""
    return log_determinant(cholesky_identity_plus(S)) - float(np.log(precision).sum())


def _log_det_matched(K: Array, precision: Array) -> float:
    q = np.sqrt(precision)
    B = K * np.outer(q, q)
    diagonal(B)[:] += 1.0
    S = -_inverse(cholesky(B))
    diagonal(S)[:] += 1.0
    return _log_det(S, precision)
