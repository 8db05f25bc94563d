"""Pseudo-data: places, values and precisions that stand for all that a model has seen (docs/territories.md, 1).

What they say is the posterior of ordinary Gaussian process regression with noise variances `1 / lambda_i`:

    Q = diag(sqrt(lambda)),   B = I + Q K Q = L L^T,   beta = B^-1 Q (t - mean)
    mean(x) = mean + k_x^T Q beta,    var(x) = k_xx - |L^-1 Q k_x|^2

A row is a pseudo-observation with `lambda = w / s^2`, so that learning rows is a union and approximates nothing.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri, dpstrf
from scipy.spatial import KDTree

from wgpr.gp.gaussian import Gaussian
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    Indices,
    cholesky_jittered_if_needed,
    cholesky_with_jitter,
    column_squares,
    diagonal,
    log_determinant,
    solve_lower,
    solve_lower_transposed,
)

Mask = NDArray[np.bool_]

# Places are chosen until they miss less than this fraction of the information in the rows.
_MISSED_INFORMATION = 0.003

# Thinning may lose this fraction of the information in the rows, or so many nats for each row.
_LOST_INFORMATION = 0.01
_LOST_PER_ROW = 0.02

# Relative precision to which variances are matched: while places are still dropped, and in the end.
_COARSE, _FINE = 0.3, 1e-3
_MAX_NEWTON_STEPS = 25

# A place is dropped if it holds less than this fraction of its posterior precision: its value would be extreme.
# Values are kept within so many standard deviations.
_LEAST_SHARE = 0.05
_FARTHEST_VALUE = 4.0

# Places of a box, and pseudo-data that are nearest to each, for answers all over it.
_N_PLACES, _N_NEAR_A_PLACE = 16, 12

# Least width of a box, in length-scales.
_LEAST_WIDTH = 1e-6

# Limits of extreme numbers: least ratio of two levels of noise, least and largest precision.
_LEAST_RATIO, LEAST_PRECISION, _MOST_PRECISION = 1e-75, 1e-250, 1e200


@dataclass(frozen=True, eq=False)
class PseudoData:
    """Pseudo-observations: an immutable value.

    Z : (m, d) places; t : (m, k) values, a column for each output; precision : (m,), `lambda`, shared by the outputs.
    is_row : (m,) whether it is a row as it was observed. The precision of a row follows the noise of its model.
    """

    Z: Array
    t: Array
    precision: Array
    is_row: Mask

    def __post_init__(self) -> None:
        for array in (self.Z, self.t, self.precision, self.is_row):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.precision)

    def __getitem__(self, rows: slice | Indices | Mask) -> "PseudoData":
        return PseudoData(self.Z[rows], self.t[rows], self.precision[rows], self.is_row[rows])

    @classmethod
    def of_rows(cls, X: Array, y: Array, weights: Array, noise: float) -> "PseudoData":
        """Rows `X` (n, d), `y` (n, k) with weights (n,): an observation has the variance `noise^2 / weight`."""
        return cls(X, y, weights / noise**2, np.ones(len(y), dtype=np.bool_))

    @classmethod
    def union(cls, *parts: "PseudoData") -> "PseudoData":
        return cls(
            np.concatenate([part.Z for part in parts]),
            np.concatenate([part.t for part in parts]),
            np.concatenate([part.precision for part in parts]),
            np.concatenate([part.is_row for part in parts]),
        )

    def with_noise(self, before: float, now: float) -> "PseudoData":
        """After the noise of the model has changed: that of the rows follows it."""
        factor = min(max(before / now, _LEAST_RATIO), 1.0 / _LEAST_RATIO) ** 2
        with np.errstate(over="ignore"):
            precision = np.where(self.is_row, factor, 1.0) * self.precision
        return replace(self, precision=precision.clip(LEAST_PRECISION, _MOST_PRECISION))

    def united(self) -> "PseudoData":
        """Observations of the same place become one with the sum of their precisions. That is exact."""
        _, places, counts = np.unique(self.Z, axis=0, return_inverse=True, return_counts=True)
        if counts.max(initial=1) == 1:
            return self
        places = places.ravel()
        firsts = np.full(len(counts), len(self))
        np.minimum.at(firsts, places, np.arange(len(self)))
        order = np.argsort(firsts, kind="stable")
        total = np.bincount(places, self.precision).astype(np.float64)
        t = np.stack([np.bincount(places, self.precision * column) / total for column in self.t.T], axis=1)
        are_rows = np.bincount(places, self.is_row) == counts
        return PseudoData(self.Z[firsts[order]], t[order], total[order], are_rows[order])

    def begins_with(self, other: "PseudoData") -> bool:
        """Whether the first of these are the others."""
        n = len(other)
        return n <= len(self) and all(
            np.array_equal(ours[:n], theirs)
            for ours, theirs in ((self.precision, other.precision), (self.Z, other.Z), (self.t, other.t))
        )

    def nearest_to_box(self, box: Array, lengthscales: Array, n: int) -> "PseudoData":
        """The n of these that are nearest to a box (2, d), its least and its greatest place, in length-scales."""
        if len(self) <= n:
            return self
        return self[np.sort(self._nearest_to_box(box, lengthscales, n))]

    def around(self, box: Array, lengthscales: Array, n: int) -> "PseudoData":
        """The n of these that are nearest to a box (2, d), and the nearest to places all over it.

        A box that is long, or empty but for a corner, has more of them: each part of it needs what is nearest there.
        """
        if len(self) <= n:
            return self
        places = _even_places(box.clip(self.Z.min(axis=0), self.Z.max(axis=0)), lengthscales)
        nearest = KDTree(self.Z / lengthscales).query(places / lengthscales, k=min(n, _N_NEAR_A_PLACE))[1]
        return self[np.union1d(self._nearest_to_box(box, lengthscales, n), nearest)]

    def _nearest_to_box(self, box: Array, lengthscales: Array, n: int) -> Indices:
        gaps = np.maximum(np.maximum(box[0] - self.Z, self.Z - box[1]), 0.0) / lengthscales
        return np.argpartition((gaps**2).sum(axis=1), n - 1)[:n]


def _even_places(box: Array, lengthscales: Array) -> Array:
    """The centres (n, d) of at most `_N_PLACES` cells of a box (2, d), about as long as wide in length-scales."""
    widths = np.maximum((box[1] - box[0]) / lengthscales, _LEAST_WIDTH)
    size = (widths.prod() / _N_PLACES) ** (1.0 / len(widths))
    counts = (widths / size).round().clip(1, _N_PLACES).astype(int)
    while counts.prod() > _N_PLACES:
        counts[np.argmax(counts)] -= 1
    fractions = np.meshgrid(*((np.arange(count) + 0.5) / count for count in counts), indexing="ij")
    return box[0] + np.stack([each.ravel() for each in fractions], axis=1) * (box[1] - box[0])


def _scaled_covariance(K: Array, q: Array) -> Array:
    """`I + Q K Q`."""
    B = K * q
    B *= q[:, None]
    diagonal(B)[:] += 1.0
    return B


class Posterior:
    """The field given pseudo-data, under one set of hyperparameters and a prior mean (k,).

    Without a prior mean, it is estimated from the data by generalised least squares, as in ordinary kriging:
    `1^T Q B^-1 Q t / 1^T Q B^-1 Q 1`.
    """

    def __init__(self, kernel: Kernel, theta: Hyperparameters, mean: Array | None, data: PseudoData) -> None:
        self.kernel, self.theta, self._given_mean = kernel, theta, mean
        q = np.sqrt(data.precision)
        self._set(data, q, cholesky_jittered_if_needed(_scaled_covariance(kernel.covariance(theta, data.Z), q)))

    def _set(self, data: PseudoData, q: Array, L: Array) -> None:
        self.data, self._q, self._L = data, q, L
        if self._given_mean is not None:
            self.mean = self._given_mean
        else:
            v = solve_lower(L, q[:, None])
            self.mean = (v.T @ solve_lower(L, q[:, None] * data.t))[0] / np.vdot(v, v)
        self._beta = solve_lower_transposed(L, solve_lower(L, q[:, None] * (data.t - self.mean)))

    def extended(self, more: PseudoData) -> "Posterior":
        """The posterior after more pseudo-data. The factor is extended, in a fraction of the time of another one.

        With `V = L^-1 Q K Q'`, the new rows of the factor are `V^T`, and the factor of `I + Q' K' Q' - V^T V`.
        """
        q = np.sqrt(more.precision)
        V = self._whitened(more.Z)[1] * q
        S = _scaled_covariance(self.kernel.covariance(self.theta, more.Z), q) - V.T @ V
        n, L = len(self.data), np.zeros((len(self.data) + len(more),) * 2, order="F")
        L[:n, :n], L[n:, :n], L[n:, n:] = self._L, V.T, cholesky_jittered_if_needed(S)
        other = copy(self)
        other._set(PseudoData.union(self.data, more), np.concatenate([self._q, q]), L)
        return other

    @property
    def n_bytes(self) -> int:
        """Of its arrays."""
        data = self.data
        return sum(
            array.nbytes for array in (self._L, self._q, self._beta, data.Z, data.t, data.precision, data.is_row)
        )

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n, k) and variance (n,) at `X` (n, d)."""
        weights, V = self._whitened(X)
        variance = self.kernel.variance(self.theta) - column_squares(V)
        return self.mean + weights.T @ self._beta, np.maximum(variance, 0.0)

    def joint(self, X: Array) -> Gaussian:
        """The field at `X` (n, d): its mean (n, k) and its covariance (n, n)."""
        weights, V = self._whitened(X)
        return Gaussian(self.mean + weights.T @ self._beta, self.kernel(self.theta, X, X) - V.T @ V)

    def explained(self, X: Array) -> Array:
        """V (m, n): the prior covariance of the field at `X` (n, d) is reduced by `V^T V`."""
        return self._whitened(X)[1]

    def _whitened(self, X: Array) -> tuple[Array, Array]:
        weights = self._q[:, None] * self.kernel(self.theta, self.data.Z, X)
        return weights, solve_lower(self._L, weights)


def thin(
    kernel: Kernel, theta: Hyperparameters, mean: Array, data: PseudoData, n_most: int, *, at_any_loss: bool = False
) -> PseudoData | None:
    """At most `n_most` pseudo-data with the same mean and variance at their places; None if too much would be lost.

    Places are chosen greedily, the next always where `lambda_i` times the variance that the chosen ones leave is
    largest. That is the order of pivots in a Cholesky factorisation of `Q K Q`. With Z the chosen places, the loss is
    at most the part of the trace of `Q K Q` that they miss, and the covariances at Z: `1/2 (log|C_thinned| - log|C|)`.

    at_any_loss : thin in any case.
    """
    q, K = np.sqrt(data.precision), kernel.covariance(theta, data.Z)
    B = _scaled_covariance(K, q)
    L = cholesky_jittered_if_needed(B)
    information = float(np.log(L.diagonal())[data.is_row].sum())  # of the rows, given what was known before
    max_loss = max(_LOST_INFORMATION * information, _LOST_PER_ROW * float(data.is_row.sum()))
    order, missed = _greedy_order(B)
    n_most = min(n_most, len(order))
    if missed[n_most] > max_loss and not at_any_loss:
        return None
    n_kept = int(np.searchsorted(-missed, -_MISSED_INFORMATION * information))
    beta = solve_lower_transposed(L, solve_lower(L, q[:, None] * (data.t - mean)))
    inverse = _lower_inverse(L)
    variance = np.maximum(1.0 - inverse.diagonal(), 1e-12) / data.precision  # of the field at all places
    kept, precision = _matched(K, order[: min(max(n_kept, 1), n_most)], data.precision, variance)
    K_ZZ = K[np.ix_(kept, kept)]
    L_Z, _ = cholesky_with_jitter(K_ZZ)
    V = solve_lower(L_Z, K[kept])
    if not at_any_loss:
        missed_trace = max(0.0, float(missed[0] - column_squares(V) @ data.precision))
        log_det = _log_det_of_scaled(inverse, kept) - float(np.log(data.precision[kept]).sum())
        if missed_trace + 0.5 * (_log_det_of_sites(K_ZZ, precision) - log_det) > max_loss:
            return None
    by_prior = solve_lower_transposed(L_Z, V @ (q[:, None] * beta))  # K_ZZ^-1 times the posterior mean
    t = data.t[kept] - beta[kept] / q[kept, None] + _limited(by_prior, precision)
    return PseudoData(data.Z[kept], t, precision, np.zeros(len(kept), dtype=np.bool_))


def from_posterior(
    kernel: Kernel, theta: Hyperparameters, mean: Array, Z: Array, posterior_mean: Array, variance: Array
) -> PseudoData:
    """Pseudo-data at `Z` (m, d) with this posterior mean (m, k) and variance (m,) there, under a prior mean (k,).

    Places that have no share of their own in the posterior are left out.
    """
    K = kernel(theta, Z, Z)
    prior = K.diagonal()
    variance = variance.clip(1e-12 * prior, (1.0 - 1e-6) * prior)
    kept, precision = _matched(K, np.arange(len(Z)), 1.0 / variance - 1.0 / prior, variance)
    L, _ = cholesky_with_jitter(K[np.ix_(kept, kept)])
    by_prior = solve_lower_transposed(L, solve_lower(L, posterior_mean[kept] - mean))
    t = posterior_mean[kept] + _limited(by_prior, precision)
    return PseudoData(Z[kept], t, precision, np.zeros(len(kept), dtype=np.bool_))


def _limited(by_prior: Array, precision: Array) -> Array:
    """How far values are from the posterior mean: `K_ZZ^-1` times that (m, k), over the precisions, within limits."""
    limit = _FARTHEST_VALUE / np.sqrt(precision)[:, None]
    return (by_prior / precision[:, None]).clip(-limit, limit)


def _greedy_order(B: Array) -> tuple[Indices, Array]:
    """Places in the order of their choice, and (rank + 1,) the trace of `B - I` that the first i of them miss."""
    QKQ = B.copy()
    diagonal(QKQ)[:] -= 1.0
    factor, pivots, rank, _ = dpstrf(QKQ, tol=1e-12 * float(QKQ.diagonal().max()), lower=1)
    explained = np.cumsum(column_squares(np.tril(factor)[:, :rank]))
    return pivots[:rank].astype(np.intp) - 1, np.maximum(QKQ.trace() - np.concatenate([[0.0], explained]), 0.0)


def _matched(K: Array, kept: Indices, precision: Array, variance: Array) -> tuple[Indices, Array]:
    """Those of the kept places that have a share of their own in the posterior, and their matched precisions.

    precision, variance : (n,) of the pseudo-data and of the posterior at all places.
    """
    L, _ = cholesky_with_jitter(K[np.ix_(kept, kept)])
    interpolation = solve_lower_transposed(L, solve_lower(L, K[kept]))
    matched, tolerance = interpolation**2 @ precision, _COARSE
    while True:
        matched = _match_variances(K[np.ix_(kept, kept)], variance[kept], matched, tolerance)
        share = matched * variance[kept]
        weak = np.flatnonzero(share < _LEAST_SHARE)
        if len(weak) and len(kept) > 1:
            weakest = weak[np.argsort(share[weak], kind="stable")[: -(-len(weak) // 2)]]
            kept, matched = np.delete(kept, weakest), np.delete(matched, weakest)
        elif tolerance == _FINE:
            return kept, matched
        else:
            tolerance = _FINE


def _match_variances(K: Array, variance: Array, start: Array, tolerance: float) -> Array:
    """Precisions (m,) of observations whose posterior has these variances (m,), under the prior covariance `K` (m, m).

    They maximise `1/2 log|I + Q K Q| - 1/2 lambda^T v`, which is concave. With C the posterior covariance, c its
    diagonal and `o` the elementwise product, Newton's equations are `(C o C) step = c - v`.
    """
    prior = K.diagonal()
    least, most = 1e-4 / prior, 1.0 / variance
    precision = start.clip(least, most)
    for _ in range(_MAX_NEWTON_STEPS):
        q = np.sqrt(precision)
        C = _lower_inverse(cholesky_jittered_if_needed(_scaled_covariance(K, q)))
        np.negative(C, out=C)
        diagonal(C)[:] += 1.0
        C /= q
        C /= q[:, None]  # Q^-1 (I - B^-1) Q^-1, its lower triangle
        c = np.maximum(C.diagonal(), 1e-12 * prior)
        if np.abs(np.log(c / variance)).max() < tolerance:
            break
        C *= C
        diagonal(C)[:] *= 1.0 + 1e-8
        L = cholesky_jittered_if_needed(C)
        step = solve_lower_transposed(L, solve_lower(L, (c - variance)[:, None]))[:, 0]
        length = 1.0
        while (precision + length * step <= 0.1 * precision).any() and length > 1e-3:
            length *= 0.5
        precision = (precision + length * step).clip(least, most)
    return precision


def _lower_inverse(L: Array) -> Array:
    """The lower triangle of `(L L^T)^-1`; what stands above it has no meaning."""
    inverse: Array = dpotri(L, lower=1)[0]
    return inverse


def _log_det_of_scaled(inverse: Array, kept: Indices) -> float:
    """`log|I - B^-1|` at the kept places, given the lower triangle of `B^-1`."""
    rows, columns = np.maximum.outer(kept, kept), np.minimum.outer(kept, kept)
    S = -inverse[rows, columns]
    diagonal(S)[:] += 1.0
    return log_determinant(cholesky_jittered_if_needed(S))


def _log_det_of_sites(K: Array, precision: Array) -> float:
    """`log|C|` of the posterior covariance `(K^-1 + diag(precision))^-1`."""
    q = np.sqrt(precision)
    inverse = _lower_inverse(cholesky_jittered_if_needed(_scaled_covariance(K, q)))
    return _log_det_of_scaled(inverse, np.arange(len(K))) - float(np.log(precision).sum())
