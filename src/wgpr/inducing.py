"""Where to put pseudo-inputs before the optimiser moves them. Nothing matters more (docs/method.md, 2)."""

from collections.abc import Iterator

import numpy as np
from scipy.spatial.distance import cdist

from wgpr.kernels import Hyperparameters, Kernel
from wgpr.linalg import Array, Indices

# Points that the chosen ones explain to this part of the prior variance tell nothing that can be computed with.
_EXPLAINED = 1e-10

# Pseudo-inputs closer together than this (in length-scales) would only make the factorisation worse.
_APART = 0.03


def spread_out(kernel: Kernel, theta: Hyperparameters, X: Array, n: int, n_kept: int = 0) -> Indices:
    """Indices of up to `n` rows of `X`, each the least known given those before it.

    Once everything is explained, the rest are those furthest from the chosen ones: a field that looks smooth now
    may turn out to be rugged, and a model with few pseudo-inputs could not follow.

    Parameters
    ----------
    X : (N, d) rows to choose from.
    n_kept : the first so many rows come first (unless they repeat each other).

    Returns
    -------
    Fewer than `n` indices when there are no more rows that are apart from each other.
    """
    chosen = greedy(kernel, theta, X, n, n_kept)
    if not len(chosen):  # a variance so small that it counts as nothing: any row will do
        chosen = np.zeros(1, dtype=np.intp)
    scaled = X / theta.lengthscales
    gaps = cdist(scaled[chosen], scaled, "sqeuclidean").min(axis=0)
    indices = chosen.tolist()
    while len(indices) < n and gaps.max() > _APART**2:
        furthest = int(np.argmax(gaps))
        indices.append(furthest)
        gaps = np.minimum(gaps, ((scaled - scaled[furthest]) ** 2).sum(axis=1))
    return np.array(indices, dtype=np.intp)


def greedy(kernel: Kernel, theta: Hyperparameters, X: Array, n: int, n_kept: int = 0) -> Indices:
    """As `spread_out`, by pivoted Cholesky, until the rest is explained."""
    prior = kernel.variance(theta)
    unexplained = np.full(len(X), prior)
    factor = np.empty((len(X), min(n, len(X))))
    chosen: list[int] = []
    while len(chosen) < factor.shape[1]:
        n_eligible = n_kept if len(chosen) < n_kept else len(X)
        pivot = int(np.argmax(unexplained[:n_eligible]))
        if unexplained[pivot] <= _EXPLAINED * prior:
            if n_eligible == len(X):
                break
            n_kept = 0  # those that are left to keep repeat others
            continue
        k = len(chosen)
        column = kernel(theta, X[pivot : pivot + 1], X)[0] - factor[:, :k] @ factor[pivot, :k]
        factor[:, k] = column / np.sqrt(unexplained[pivot])
        unexplained -= factor[:, k] ** 2
        unexplained[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.intp)


def starts(
    kernel: Kernel, theta: Hyperparameters, Z: Array, X: Array, n: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Sets of up to `n` pseudo-inputs from which an update may start, as different as worlds are.

    The old ones (best when the stream covers the same ground); the least explained of old and new
    (best when it travels); random mixes of half and of four fifths of the old ones.

    Parameters
    ----------
    Z : (M, d) the model's own, X : (N, d) the batch.
    """
    everything = np.concatenate([Z, X])
    yield everything[spread_out(kernel, theta, everything, n, n_kept=len(Z))] if len(Z) < n else Z
    yield everything[spread_out(kernel, theta, everything, n)]
    for share in (0.5, 0.8):
        n_old = min(len(Z), round(share * n))
        old = Z[rng.choice(len(Z), n_old, replace=False)]
        new = X[rng.choice(len(X), min(len(X), n - n_old), replace=False)]
        yield np.unique(np.concatenate([old, new]), axis=0)
