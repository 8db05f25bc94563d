"""Where to put pseudo-inputs before the optimiser moves them. Nothing matters more (DESIGN 2.2)."""

from collections.abc import Iterator

import numpy as np

from wgpr.kernels import Hyperparameters, Kernel
from wgpr.linalg import Array

# Points that the chosen ones explain to this part of the prior variance add nothing but bad conditioning.
_EXPLAINED = 1e-10


def greedy(kernel: Kernel, theta: Hyperparameters, X: Array, n: int, n_kept: int = 0) -> Array:
    """Indices of up to `n` rows of `X`, each the least known given those before it (pivoted Cholesky).

    Parameters
    ----------
    X : (N, d) rows to choose from.
    n_kept : the first so many rows are chosen in any case (unless they repeat each other).

    Returns
    -------
    Fewer than `n` indices when the rest is explained already, as repeated rows are.
    """
    prior = kernel.variance(theta)
    unexplained = np.full(len(X), prior)
    factor = np.empty((len(X), min(n, len(X))))
    chosen: list[int] = []
    while len(chosen) < factor.shape[1]:
        is_kept = len(chosen) < n_kept
        pivot = int(np.argmax(unexplained[:n_kept] if is_kept else unexplained))
        if unexplained[pivot] <= _EXPLAINED * prior:
            if not is_kept:
                break
            n_kept = len(chosen)
            continue
        k = len(chosen)
        column = kernel(theta, X[pivot : pivot + 1], X)[0] - factor[:, :k] @ factor[pivot, :k]
        factor[:, k] = column / np.sqrt(unexplained[pivot])
        unexplained -= factor[:, k] ** 2
        unexplained[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=int)


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
    yield everything[greedy(kernel, theta, everything, n, n_kept=len(Z))] if len(Z) < n else Z
    yield everything[greedy(kernel, theta, everything, n)]
    for share in (0.5, 0.8):
        n_old = min(len(Z), round(share * n))
        old = Z[rng.choice(len(Z), n_old, replace=False)]
        new = X[rng.choice(len(X), min(len(X), n - n_old), replace=False)]
        yield np.unique(np.concatenate([old, new]), axis=0)
