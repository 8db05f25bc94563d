"""Dense linear algebra: the one place for jitter, memory order, BLAS threads and checks for finite numbers.

Square factors come from LAPACK in Fortran order. Wide (M, n) matrices are in C order, as NumPy makes them, and are
solved from the right as their transposes: OpenBLAS does that almost twice as fast, without copies.
"""

from contextlib import AbstractContextManager
from functools import cache
from math import isfinite, prod
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dger, dtrsm
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri
from threadpoolctl import OpenBLASController, ThreadpoolController

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Relative to the mean of the diagonal. Jitter loses information: a stream no longer ends where the batch does. So it
# starts far below the customary 1e-6 and is raised only when a factorisation fails.
JITTERS = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)

# A variance below this fraction of the largest is rounding.
_ROUNDING = 1e-16


class NotFactorizableError(ArithmeticError):
    """A matrix that should be positive definite is not, even with the largest jitter."""


class NotFiniteError(ArithmeticError):
    """Learning led to numbers that are not finite."""


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


# In threadpoolctl 3.8 the thread that set the limit of OpenBLAS owns it while it lives: calls of others do nothing.
_clear_owner = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)


class _BlasLimit:
    """One BLAS thread, for all threads of the process: set by the first that needs it, lifted by the last to leave."""

    def __init__(self) -> None:
        self._lock, self._n_users, self._limiter = Lock(), 0, cast(Any, None)

    def __enter__(self) -> None:
        with self._lock:
            if self._n_users == 0:
                _clear_owner(force=True)
                self._limiter = _blas().limit(limits=1, user_api="blas")
            self._n_users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                _clear_owner(force=True)
                self._limiter.restore_original_limits()
                _clear_owner(force=True)


_blas_limit = _BlasLimit()


def one_blas_thread() -> AbstractContextManager[None]:
    """Limit BLAS to one thread: for matrices of 50 x 50 two OpenBLAS threads are ten times slower than one."""
    return _blas_limit


def cholesky(S: Array) -> Array:
    """Lower factor of a symmetric positive definite matrix; raises `NotFactorizableError`.

    S : (n, n), only its lower triangle is read.
    """
    L, info = dpotrf(S, lower=1, clean=1)
    if info != 0 or not isfinite(L[-1, -1]):
        raise NotFactorizableError(f"not positive definite ({info} of {len(S)})")
    return L


def cholesky_with_jitter(K: Array) -> tuple[Array, float]:
    """Lower factor of `K + jitter * I` with the smallest jitter that works, and that jitter.

    K : (n, n) symmetric and positive semi-definite up to rounding.
    """
    scale = K.trace() / len(K)
    for relative in JITTERS:
        jitter = relative * scale
        regularised = K.copy(order="F")
        diagonal(regularised)[:] += jitter
        L, info = dpotrf(regularised, lower=1, clean=1, overwrite_a=1)
        if info == 0 and isfinite(L[-1, -1]):
            return L, jitter
    raise NotFactorizableError(f"not positive definite with a relative jitter of {JITTERS[-1]:g}")


def cholesky_jittered_if_needed(S: Array) -> Array:
    """Lower factor of `S` (n, n), such as `I + A` with a positive semi-definite A; with jitter if it is needed."""
    try:
        return cholesky(S)
    except NotFactorizableError:
        return cholesky_with_jitter(S)[0]


def solve_lower(L: Array, B: Array, *, overwrite: bool = False) -> Array:
    """`L^-1 B` for lower triangular `L` (n, n) and `B` (n, m) in C order."""
    return dtrsm(1.0, L, B.T, side=1, lower=1, trans_a=1, overwrite_b=overwrite).T


def solve_lower_transposed(L: Array, B: Array, *, overwrite: bool = False) -> Array:
    """`L^-T B` for lower triangular `L` (n, n) and `B` (n, m) in C order."""
    return dtrsm(1.0, L, B.T, side=1, lower=1, overwrite_b=overwrite).T


def columns(y: Array) -> Array:
    """`y` of shape (n,) or (n, k) as a matrix: one output is one column."""
    return y.reshape(len(y), n_outputs(y))


def n_outputs(y: Array) -> int:
    """Number of outputs: 1 for (n,), k for (n, k)."""
    return prod(y.shape[1:])


def expand_outputs(shared: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """`shared` with trailing axes of length one, so that it broadcasts against the outputs of `like`."""
    return shared.reshape(shared.shape + (1,) * (like.ndim - shared.ndim))


def inverse_lower(L: Array) -> Array:
    """`L^-1` of a lower triangular matrix."""
    inverse, _ = dtrtri(L, lower=1)
    return inverse


def diagonal(S: Array) -> Array:
    """The diagonal of a contiguous (n, n) matrix, as a view that can be written to."""
    return S.ravel(order="K")[:: len(S) + 1]


def plus_identity(S: Array) -> Array:
    """`S + I`, (n, n)."""
    S = S.copy(order="F")
    diagonal(S)[:] += 1.0
    return S


def inner(A: Array, B: Array) -> float:
    """`sum_ij A_ij B_ij` of two matrices (or vectors) of one shape."""
    return float(np.vdot(A, B))


def column_squares(A: Array) -> Array:
    """The squared norm of each column of `A` (n, m): (m,)."""
    return np.einsum("ij,ij->j", A, A)


def subtract_outer(A: Array, x: Array, y: Array) -> Array:
    """`A - x y^T`, in place when `A` is in C order; `x` (n,) and `y` (m,), or (n, k) and (m, k)."""
    if n_outputs(x) == 1:
        return dger(-1.0, y.ravel(), x.ravel(), a=A.T, overwrite_a=1).T
    return dgemm(-1.0, y.T, x.T, beta=1.0, c=A.T, trans_a=1, overwrite_c=1).T


def log_determinant(L: Array) -> float:
    """`log |L L^T|` of a Cholesky factor."""
    return 2.0 * float(np.log(L.diagonal()).sum())


def square_root(S: Array) -> Array:
    """A factor `H` (n, rank) with `H H^T = S`, by pivoted Cholesky; negative eigenvalues count as zero.

    S : (n, n) symmetric, positive semi-definite up to rounding.
    """
    L, pivots, rank, _ = dpstrf(S, tol=_ROUNDING * S.diagonal().max(initial=0.0), lower=1)
    H = np.zeros((len(S), rank))
    H[pivots - 1] = np.tril(L)[:, :rank]
    return H


def pivot_order(S: Array, tolerance: float) -> tuple[Indices, int]:
    """Indices (n,) in the order of pivoted Cholesky, always the largest remaining variance first, and the rank.

    tolerance : remaining variance that counts as zero, as a fraction of the largest of the diagonal.
    """
    _, pivots, rank, _ = dpstrf(S, tol=tolerance * S.diagonal().max(initial=0.0), lower=1)
    return pivots.astype(np.intp) - 1, int(rank)


def read_only(array: Array) -> Array:
    """The same array, made read-only: models are immutable values."""
    array.setflags(write=False)
    return array


def require_finite(*arrays: Array | float) -> None:
    """Raise `NotFiniteError` unless all numbers are finite: nothing else becomes part of a model."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise NotFiniteError("learning led to numbers that are not finite")


def mean_target(y: Array) -> float | Array:
    """Mean of targets (n,); of targets (n, k) the mean (k,) of each output."""
    return float(y.mean()) if y.ndim == 1 else read_only(y.mean(axis=0))


def running_mean(mean: Array, n: int, X: Array) -> Array:
    """Mean (d,) of `n` rows with this mean and the rows `X` (m, d)."""
    return mean + (X - mean).sum(axis=0) / (n + len(X))
