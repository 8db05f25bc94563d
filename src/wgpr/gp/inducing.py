"""Selection of pseudo-inputs by conditional variance (docs/method.md, 2)."""

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist

from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, Indices, pivot_order

# A conditional variance below this fraction of the prior variance counts as zero.
_EXPLAINED = 1e-10

# Pseudo-inputs that are closer together than this, in length-scales, make the factorisation ill-conditioned.
_APART = 0.03

# Up to so many rows LAPACK factorises the whole covariance matrix, which is faster than row by row.
_FEW = 1000


def select_by_variance(kernel: Kernel, theta: Hyperparameters, X: Array, n: int, n_kept: int = 0) -> Indices:
    """Indices of up to `n` rows of `X`, each with the largest conditional variance given those before it.

    Once all variances are zero, the rest are those furthest from the selected ones: later length-scales may be shorter.

    X : (N, d) rows to choose from.
    n_kept : the first so many rows come first (unless they repeat each other).

    Returns
    -------
    Fewer than `n` indices when there are no more rows that are apart from each other.
    """
    chosen = greedy(kernel, theta, X, n, n_kept)
    if not len(chosen):  # the prior variance is zero: any row will do
        chosen = np.zeros(1, dtype=np.intp)
    return _with_furthest(X / theta.lengthscales, chosen, n)


def _with_furthest(scaled: Array, chosen: Indices, n: int) -> Indices:
    """Up to `n` rows of `scaled` (N, d): the chosen ones, and then always the one furthest from those before it."""
    gaps = cdist(scaled[chosen], scaled, "sqeuclidean").min(axis=0)
    indices = chosen.tolist()
    while len(indices) < n and gaps.max() > _APART**2:
        furthest = int(np.argmax(gaps))
        indices.append(furthest)
        gaps = np.minimum(gaps, ((scaled - scaled[furthest]) ** 2).sum(axis=1))
    return np.array(indices, dtype=np.intp)


def greedy(kernel: Kernel, theta: Hyperparameters, X: Array, n: int, n_kept: int = 0) -> Indices:
    """As `select_by_variance`, by pivoted Cholesky, until the rest is explained."""
    if not n_kept and len(X) <= _FEW:
        pivots, rank = pivot_order(kernel(theta, X, X), _EXPLAINED)
        return pivots[: min(n, rank)]
    chosen: list[int] = []
    factor, unexplained = np.empty((min(n, len(X)), len(X))), np.full(len(X), kernel.variance(theta))
    while (k := len(chosen)) < len(factor):
        n_eligible = n_kept if k < n_kept else len(X)
        row = int(np.argmax(unexplained[:n_eligible]))
        if unexplained[row] <= _EXPLAINED * kernel.variance(theta):
            if n_eligible == len(X):
                break
            n_kept = 0  # those that are left to keep repeat others
            continue
        factor[k] = kernel(theta, X[row : row + 1], X)[0] - factor[:k, row] @ factor[:k]
        factor[k] /= np.sqrt(unexplained[row])
        unexplained = np.maximum(unexplained - factor[k] ** 2, 0.0)
        unexplained[row] = 0.0
        chosen.append(row)
    return np.array(chosen, dtype=np.intp)


def candidate_sets(
    kernel: Kernel, theta: Hyperparameters, Z: Array, X: Array, n: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Sets of up to `n` pseudo-inputs from which an update may start.

    The old ones (best when the stream covers the same ground); the least explained of old and new
    (best when it travels); random mixes of half and of four fifths of the old ones.

    Z : (M, d) the model's own, X : (N, d) the batch.
    """
    everything = np.concatenate([Z, X])
    yield everything[select_by_variance(kernel, theta, everything, n, n_kept=len(Z))] if len(Z) < n else Z
    yield everything[select_by_variance(kernel, theta, everything, n)]
    for share in (0.5, 0.8):
        n_old = min(len(Z), round(share * n))
        old = Z[rng.choice(len(Z), n_old, replace=False)]
        new = X[rng.choice(len(X), min(len(X), n - n_old), replace=False)]
        yield np.unique(np.concatenate([old, new]), axis=0)
