"""One bound for the first batch and for every later one, with its gradient (docs/method.md, 2).

All that a model has seen is summarised as whitened pseudo-observations `r = R f(Z_a) + N(0, I)`. A batch
`(X, y)` and an old summary are then the same kind of thing: `N + M_a` observations `t` of unit noise.

Several outputs are independent fields with the same hyperparameters and pseudo-inputs: `y`, `r`, `t` and `alpha` have a
column for each, everything else is shared, and the bound is the sum of theirs.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag

from wgpr.gp.gaussian import LOG_2PI
from wgpr.gp.kernels import Hyperparameters, Kernel, KernelBlock, WeightedTrace
from wgpr.gp.linalg import (
    Array,
    cholesky,
    cholesky_with_jitter,
    diagonal,
    inner,
    inverse_lower,
    log_determinant,
    n_outputs,
    plus_identity,
    solve_lower_transposed,
    subtract_outer,
)


@dataclass(frozen=True)
class Summary:
    """Observations `r = R f(Z) + N(0, I)` that stand for all the data that a model has seen.

    Z : (M, d) pseudo-inputs, R : (K, M) and r : (K,) with K <= M; K = 0 for a model that has seen nothing.
    Of several outputs r is (K, k).
    """

    Z: Array
    R: Array
    r: Array

    @classmethod
    def empty(cls, n_features: int, *outputs: int) -> "Summary":
        """No observations; `outputs` is k if there are several."""
        return cls(np.empty((0, n_features)), np.empty((0, 0)), np.empty((0, *outputs)))

    @classmethod
    def from_whitened(cls, kernel: Kernel, theta: Hyperparameters, Z: Array, U: Array, r: Array) -> "Summary":
        """Of observations `r = U v + N(0, I)` of `v = L^-1 f(Z)`, (K, M) and (K,) or (K, k): `R = U L^-1`."""
        L, _ = cholesky_with_jitter(kernel(theta, Z, Z))
        return cls(Z, solve_lower_transposed(L, U.T).T, r)

    def __len__(self) -> int:
        return len(self.r)

    def around(self, shift: float | Array) -> "Summary":
        """The same observations of a field that is everywhere `shift` higher, a number for each output."""
        return Summary(self.Z, self.R, self.r + np.multiply.outer(self.R.sum(axis=1), shift))

    def joined(self, other: "Summary") -> "Summary":
        """These and others together, as observations of one field."""
        Z, r = np.concatenate([self.Z, other.Z]), np.concatenate([self.r, other.r])
        return Summary(Z, block_diag(self.R, other.R), r)


class Observations:
    """A batch and the summary of the past: the observations of one field that a model explains.

    X : (N, d) and y : (N,) or (N, k), the batch, relative to the model's prior mean.
    past : the old model's summary, empty for a new model.
    """

    def __init__(self, kernel: Kernel, X: Array, y: Array, past: Summary | None = None) -> None:
        self.kernel, self.X, self.y = kernel, X, y
        self.past = Summary.empty(X.shape[1], *y.shape[1:]) if past is None else past
        self.inputs = np.concatenate([X, self.past.Z])
        # tr(R_a K_aa R_a^T): the only part that depends on the hyperparameters and not on Z
        self.past_trace = WeightedTrace(kernel, self.past.Z, self.past.R.T @ self.past.R)
        self.n_fits = 0

    @classmethod
    def of_summary(cls, kernel: Kernel, summary: Summary) -> "Observations":
        """A summary without new rows."""
        return cls(kernel, np.empty((0, summary.Z.shape[1])), np.empty((0, *summary.r.shape[1:])), summary)

    def explained_by(self, theta: Hyperparameters, Z: Array) -> "Fit":
        """The optimal posterior for these hyperparameters and pseudo-inputs `Z` (M, d)."""
        self.n_fits += 1
        return Fit(self, theta, Z)


class Fit:
    """The posterior of a model with hyperparameters `theta` and pseudo-inputs `Z`, given observations: factored once.

    Bound, gradient, new summary and posterior use the same few matrices. The triangular factors are inverted: a product
    takes a third of the time of a solve, and the gradient needs the inverses.

    Attributes
    ----------
    L : (M, M), `L L^T = K_ZZ` (with the smallest jitter that works); L_inverse : `L^-1`.
    A : (M, N + M_a), `L^-1 [K_ZX / s, K_Za R_a^T]`.
    L_B : (M, M), the Cholesky factor of `B = I + A A^T`.
    t : (N + M_a,), `[y / s; r_a]`.
    alpha : (M,), `B^-1 A t`, the posterior mean of `L^-1 f(Z)`; explained : `|L_B^-1 A t|^2`.
    n_outputs : k; with several, t is (N + M_a, k) and alpha (M, k).
    """

    def __init__(self, observations: Observations, theta: Hyperparameters, Z: Array) -> None:
        self.observations, self.theta, self.Z = observations, theta, Z
        past, n_batch, n_inputs = observations.past, len(observations.y), len(observations.inputs)
        self._block = KernelBlock(observations.kernel, theta, Z, np.concatenate([observations.inputs, Z]))
        K = self._block.K
        self.L, self._jitter = cholesky_with_jitter(K[:, n_inputs:])
        self.L_inverse = inverse_lower(self.L)

        self.A = np.empty((len(Z), n_batch + len(past)))
        np.matmul(self.L_inverse / theta.noise, K[:, :n_batch], out=self.A[:, :n_batch])
        np.matmul(self.L_inverse @ K[:, n_batch:n_inputs], past.R.T, out=self.A[:, n_batch:])
        self.t = np.concatenate([observations.y / theta.noise, past.r])
        self.n_outputs = n_outputs(self.t)

        self._AA = self.A @ self.A.T
        self.L_B = cholesky(plus_identity(self._AA))
        self._L_B_inverse = inverse_lower(self.L_B)
        projected = self._L_B_inverse @ (self.A @ self.t)
        self.explained = inner(projected, projected)
        self.alpha = self._L_B_inverse.T @ projected
        self._prior_trace = n_batch * observations.kernel.variance(theta) / theta.noise**2  # tr(K_XX) / s^2
        self._past_trace, self._past_trace_gradient = observations.past_trace.value_and_gradient(theta)

    @cached_property
    def value(self) -> float:
        """The bound `F` on the log evidence of the batch (given the past, up to a constant of the old model)."""
        # -1/2 [k (N log(2 pi s^2) + log|B|) + |t|^2 - |L_B^-1 A t|^2]
        misfit = self.n_outputs * log_determinant(self.L_B) + inner(self.t, self.t) - self.explained
        noise = len(self.observations.y) * (LOG_2PI + 2.0 * np.log(self.theta.noise))
        return -0.5 * float(self.n_outputs * noise + misfit) - self.n_outputs * self.unexplained

    @cached_property
    def unexplained(self) -> float:
        """The trace term: what the bound loses for each output by the pseudo-inputs."""
        # 1/2 [tr(K_XX) / s^2 + tr(R_a K_aa R_a^T) - |A|_F^2]
        return 0.5 * float(self._prior_trace + self._past_trace - self._AA.trace())

    def gradient(self) -> tuple[Array, Array]:
        """`dF / d log theta` and `dF / dZ` (M, d)."""
        n_batch, n_inputs = len(self.observations.y), len(self.observations.inputs)
        residual = self.t - self.A.T @ self.alpha
        G = self._loss_by_kernel(residual)
        by_jitter = 2.0 * self._jitter * G[:, n_inputs:].trace()
        by_log_theta, by_Z, column_sums = self._block.pull_back(G, slice(n_inputs, None))
        # d / d log s = k N - e_y.t_y - <G_A[:, :N], A[:, :N]> - k tr(K_XX) / s^2, and <G_A, A> = <L^-T G_A, L A>
        prior_trace = self.n_outputs * self._prior_trace
        by_noise = self.n_outputs * n_batch - inner(residual[:n_batch], self.t[:n_batch]) - prior_trace
        by_noise -= column_sums[:n_batch].sum()
        by_log_theta += (0.5 * self.n_outputs) * self._past_trace_gradient
        by_log_theta[0] += prior_trace + by_jitter
        return -np.append(by_log_theta, by_noise), -by_Z

    def _loss_by_kernel(self, residual: Array) -> Array:
        """`-dF / d [K_ZX, K_Za, K_ZZ]`, (M, N + M_a + M)."""
        past, n_batch, n_inputs = self.observations.past, len(self.observations.y), len(self.observations.inputs)
        shrinkage = self._L_B_inverse.T @ self._L_B_inverse  # k (B^-1 - I)
        diagonal(shrinkage)[:] -= 1.0
        if self.n_outputs > 1:
            shrinkage *= self.n_outputs
        P, beta = self.L_inverse.T @ shrinkage, self.L_inverse.T @ self.alpha
        G = np.empty(self._block.K.shape)
        # L^-T G_A = k L^-T (B^-1 - I) A - L^-T alpha e^T;  dK_ZX = [:, :N] / s,  dK_Za = [:, N:] R_a
        by_inputs = subtract_outer(P @ self.A, beta, residual)
        np.multiply(by_inputs[:, :n_batch], 1.0 / self.theta.noise, out=G[:, :n_batch])
        np.matmul(by_inputs[:, n_batch:], past.R, out=G[:, n_batch:n_inputs])
        # dK_ZZ = -1/2 L^-T G_A A^T L^-1, and A e = alpha
        by_Z = subtract_outer(P @ self._AA, beta, self.alpha)
        by_Z *= -0.5
        np.matmul(by_Z, self.L_inverse, out=G[:, n_inputs:])
        return G

    def summary(self) -> Summary:
        """All that has been seen, as pseudo-observations at `Z`: `R = U L^-1`."""
        U, r = self.whitened_summary()
        return Summary(self.Z, (self.L_inverse.T @ U.T).T, r)  # in Fortran order, as it is stored

    def whitened_summary(self) -> tuple[Array, Array]:
        """Observations `r = U v + N(0, I)` of `v = L^-1 f(Z)`, (K, M) and (K,) or (K, k): `A^T = Q U`, `r = Q^T t`."""
        Q, U = np.linalg.qr(self.A.T)
        return U, Q.T @ self.t
