"""Dense linear algebra, and the only place that knows about jitter, memory order and BLAS threads.

Square factors come from LAPACK in Fortran order; wide (M, n) matrices are in C order, as NumPy makes them, and
are solved from the right as their transposes: OpenBLAS does that almost twice as fast, and nothing is copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dger, dtrsm
from scipy.linalg.lapack import dpotrf, dpstrf, dtrtri
from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Relative to the mean of the diagonal. Jitter loses information (a stream no longer ends where the
# batch does), so it starts far below what is customary and is raised only when a factorisation fails.
JITTERS = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


# A variance of this part of the largest is rounding.
_NOTHING = 1e-16


class NotFactorizableError(ArithmeticError):
    """A matrix that should be positive definite is not, even with the largest jitter."""


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrices of 50 x 50 are too small to share: two OpenBLAS threads are an order slower than one."""
    with _blas().limit(limits=1, user_api="blas"):
        yield


def cholesky(S: Array) -> Array:
    """Lower factor of a symmetric positive definite matrix; raises `NotFactorizableError`.

    Parameters
    ----------
    S : (n, n), only its lower triangle is read.
    """
    L, info = dpotrf(S, lower=1, clean=1)
    if info != 0 or not isfinite(L[-1, -1]):
        raise NotFactorizableError(f"not positive definite ({info} of {len(S)})")
    return L


def cholesky_with_jitter(K: Array) -> tuple[Array, float]:
    """Lower factor of `K + jitter * I` with the smallest jitter that works, and that jitter.

    Parameters
    ----------
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


def cholesky_identity_plus(S: Array) -> Array:
    """Lower factor of `S` (n, n), which is the identity and more, or of `S` with jitter where the more is very much."""
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
    """What belongs to one output (n,), or to several (n, k), as a matrix: one output is one column."""
    return y.reshape(len(y), n_outputs(y))


def n_outputs(y: Array) -> int:
    """1 for (n,), k for (n, k)."""
    return prod(y.shape[1:])


def expand_outputs(shared: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """What all outputs share, to be taken together with what `like` has for each: with its axis of outputs, if any."""
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
    """A factor `H` (n, rank) with `H H^T = S`, by Cholesky with pivots; what is negative counts as zero.

    Parameters
    ----------
    S : (n, n) symmetric, positive semi-definite up to rounding.
    """
    L, pivots, rank, _ = dpstrf(S, tol=_NOTHING * S.diagonal().max(initial=0.0), lower=1)
    H = np.zeros((len(S), rank))
    H[pivots - 1] = np.tril(L)[:, :rank]
    return H


def pivot_order(S: Array, tolerance: float) -> tuple[Indices, int]:
    """Places (n,) in the order in which Cholesky takes them, always the largest of what is left, and the rank.

    tolerance : what is left to count as nothing, as part of the largest of the diagonal.
    """
    _, pivots, rank, _ = dpstrf(S, tol=tolerance * S.diagonal().max(initial=0.0), lower=1)
    return pivots.astype(np.intp) - 1, int(rank)


def read_only(array: Array) -> Array:
    """The same array, read-only: models are values, and nobody may edit a value in place."""
    array.setflags(write=False)
    return array
