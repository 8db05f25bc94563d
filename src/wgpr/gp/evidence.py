"""Log evidence of pseudo-data and rows under one Gaussian process, with its gradient (docs/territories.md, 2).

The covariance of the observations is `C = K + D`: `D_i = 1 / lambda_i` for pseudo-data, `s^2 / w_i` for rows. With
`A = C^-1 t` and `k` outputs,

    E = -1/2 sum(t * A) - k/2 log|C| - n k / 2 log(2 pi),      dE / dC = 1/2 (A A^T - k C^-1).

Places are fixed while hyperparameters change. Squared differences of each pair are therefore computed once, and each
pair is evaluated once: the lower triangle of a matrix in Fortran order, column after column, is the order of the pairs.
"""

from functools import lru_cache
from math import log, pi

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, Indices, NotFactorizableError


@lru_cache(maxsize=16)
def _pairs(n: int) -> tuple[Indices, Indices, Indices]:
    """First and second index of each pair of n points, and its position in an (n, n) matrix in Fortran order."""
    first, second = np.triu_indices(n, 1)
    return first, second, first * n + second


class Evidence:
    """Log evidence of observations at fixed places, as the hyperparameters change.

    Z : (n, d) places; t : (n, k) values minus the prior mean.
    variance : (n,) of pseudo-data `1 / lambda`, of rows `1 / w`, which the noise's variance multiplies.
    is_row : (n,) which are rows.
    """

    def __init__(self, kernel: Kernel, Z: Array, t: Array, variance: Array, is_row: NDArray[np.bool_]) -> None:
        self.kernel, self.t, self._variance, self._is_row = kernel, t, variance, is_row
        first, second, self._positions = _pairs(len(Z))
        self._squares = np.empty((Z.shape[1], len(first)))
        for squares, z in zip(self._squares, Z.T, strict=True):
            np.subtract(z[first], z[second], out=squares)
            squares *= squares
        self.n_evaluations = 0

    @np.errstate(over="ignore", invalid="ignore")
    def value_and_gradient(self, theta: Hyperparameters) -> tuple[float, Array]:
        """`E`, and its gradient by the logarithms of the hyperparameters. Both may be infinite for extreme numbers."""
        n, k = self.t.shape
        self.n_evaluations += 1
        inverse_squares, variance = 1.0 / theta.lengthscales**2, self.kernel.variance(theta)
        profile = self.kernel.profile(inverse_squares @ self._squares, theta.shape)
        K = profile.h
        K *= variance
        noise = np.where(self._is_row, theta.noise**2, 1.0) * self._variance
        C = np.zeros((n, n), order="F")
        flat = C.ravel(order="K")
        flat[self._positions] = K
        flat[:: n + 1] = variance + noise
        L, info = dpotrf(C, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            raise NotFactorizableError(f"not positive definite ({info} of {n})")
        A = dpotrs(L, self.t, lower=1)[0]
        log_determinant = 2.0 * float(np.log(L.diagonal()).sum())
        inverse, _ = dpotri(L, lower=1, overwrite_c=1)
        M = dsyrk(1.0, A, beta=-float(k), c=inverse, lower=1, overwrite_c=1)  # 2 dE / dC
        value = -0.5 * (float(np.vdot(self.t, A)) + k * log_determinant + n * k * log(2.0 * pi))
        diagonal = M.diagonal()
        MK = M.ravel(order="K")[self._positions]
        MK *= K
        by_lengthscales = (self._squares @ (MK * profile.log_slope)) * (-2.0 * inverse_squares)
        by_shape = [MK @ derivative for derivative in profile.by_log_shape]
        by_amplitude = 2.0 * MK.sum() + variance * diagonal.sum()
        by_noise = diagonal[self._is_row] @ noise[self._is_row]
        return value, np.concatenate([[by_amplitude], by_lengthscales, by_shape, [by_noise]])
