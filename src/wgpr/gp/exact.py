"""The exact model of LGPR: a small Gaussian process on its own data, hyperparameters shared (docs/method.md, 5)."""

from dataclasses import dataclass, replace

import numpy as np

from wgpr.gp import inducing
from wgpr.gp.evidence import Evidence
from wgpr.gp.gaussian import LOG_2PI
from wgpr.gp.hyperparameters import HyperPrior, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    Indices,
    cholesky_with_jitter,
    columns,
    diagonal,
    inner,
    log_determinant,
    mean_target,
    n_outputs,
    read_only,
    require_finite,
    running_mean,
    solve_lower,
)
from wgpr.gp.model import LocalModel
from wgpr.gp.optimize import fit_hyperparameters


@dataclass(frozen=True, eq=False, repr=False)
class ExactModel(LocalModel):
    """A local model that keeps its rows. Kernel, hyperparameters and mean are shared by all models of an ensemble.

    targets : (n,) of the rows kept; L : (n, n), factor of `K + s^2 I`; alpha : (n,), `L^-1 (y - mean)`.
    Of several outputs targets and alpha are (n, k).
    """

    targets: Array
    L: Array
    alpha: Array

    def __post_init__(self) -> None:
        require_finite(self.L, self.alpha, self.log_evidence)
        for array in (self.inputs, self.targets, self.L, self.alpha, self.centre):
            read_only(array)

    def _explained(self, X: Array) -> tuple[Array, Array]:
        k = solve_lower(self.L, self.kernel(self.theta, self.inputs, X), overwrite=True)
        return k.T @ self.alpha, k

    def __repr__(self) -> str:
        return f"ExactModel({len(self.inputs)} rows kept, {self.n_seen} rows seen, {self.theta})"


@dataclass(frozen=True)
class ExactLearner:
    """Grows exact models with the hyperparameters and the prior mean that it is given.

    max_samples : rows that a model may keep; beyond it, those that the others explain best are dropped.
    """

    kernel: Kernel
    theta: Hyperparameters
    mean: float | Array
    max_samples: int | None = None

    def start(self, X: Array, y: Array, rng: np.random.Generator, nearest: ExactModel | None = None) -> ExactModel:
        n_features = X.shape[1]
        inputs, targets = np.empty((0, n_features)), np.empty((0, *y.shape[1:]))
        nothing = ExactModel(
            self.kernel, self.theta, self.mean, inputs, 0, np.zeros(n_features), 0.0,
            targets, np.empty((0, 0), order="F"), targets,
        )  # fmt: skip
        return self.update(nothing, X, y, rng)

    def update(self, model: ExactModel, X: Array, y: Array, rng: np.random.Generator) -> ExactModel:
        """Extend the factor by the new rows; if these are too many, choose the rows to keep and factor again."""
        inputs, targets = np.concatenate([model.inputs, X]), np.concatenate([model.targets, y])
        L, log_evidence = self._grown(model, X, y)
        if self.max_samples is not None and len(inputs) > self.max_samples:
            kept = self._kept(inputs, self.max_samples)
            inputs, targets = inputs[kept], targets[kept]
            L = factor(self.kernel, self.theta, inputs)
        return ExactModel(
            self.kernel, self.theta, self.mean, inputs, model.n_seen + len(X),
            running_mean(model.centre, model.n_seen, X), log_evidence, targets, L, whitened(L, targets - self.mean),
        )  # fmt: skip

    def _kept(self, inputs: Array, n: int) -> Indices:
        """Which `n` rows to keep: those that the others explain least and, if they are fewer, the newest others."""
        informative = inducing.select_by_variance(self.kernel, self.theta, inputs, n)
        rest = np.setdiff1d(np.arange(len(inputs)), informative)
        return np.sort(np.concatenate([informative, rest[len(rest) - (n - len(informative)) :]]))

    def quick_fit(self, X: Array, y: Array) -> ExactModel:
        return self.start(X, y, np.random.default_rng(0))

    def condition(self, model: ExactModel, X: Array, y: Array) -> ExactModel:
        return replace(self, max_samples=None).update(model, X, y, np.random.default_rng(0))

    def merge(self, model: ExactModel, other: ExactModel) -> ExactModel:
        both = self.update(model, other.inputs, other.targets, np.random.default_rng(0))
        n_seen, centre = model.seen_with(other)
        return replace(both, n_seen=n_seen, centre=centre, log_evidence=model.log_evidence)

    def _grown(self, model: ExactModel, X: Array, y: Array) -> tuple[Array, float]:
        """The Cholesky factor with rows for `X` appended, and the log evidence of `y` given the model.

        [K, k; k^T, c] = [L, 0; V^T, S] [L, 0; V^T, S]^T with V = L^-1 k and S S^T = c - V^T V.
        """
        n_old, n_new = len(model.inputs), len(X)
        V = solve_lower(model.L, self.kernel(self.theta, model.inputs, X)) if n_old else np.empty((0, n_new))
        innovation = self.kernel(self.theta, X, X) - V.T @ V
        diagonal(innovation)[:] += self.theta.noise**2
        S, _ = cholesky_with_jitter(innovation)
        L = np.zeros((n_old + n_new, n_old + n_new), order="F")
        L[:n_old, :n_old], L[n_old:, :n_old], L[n_old:, n_old:] = model.L, V.T, S
        innovations = whitened(S, y - self.mean - V.T @ model.alpha)
        return L, -0.5 * float(inner(innovations, innovations) + n_outputs(y) * log_determinant(S) + y.size * LOG_2PI)


def factor(kernel: Kernel, theta: Hyperparameters, X: Array) -> Array:
    """The lower factor (n, n) of `K + s^2 I` for rows `X` (n, d)."""
    K = kernel(theta, X, X)
    diagonal(K)[:] += theta.noise**2
    return cholesky_with_jitter(K)[0]


def whitened(L: Array, y: Array) -> Array:
    """`L^-1 y`, (n,) or (n, k) as `y`."""
    return solve_lower(L, columns(y)).reshape(y.shape)


def calibrate(kernel: Kernel, X: Array, y: Array, *, max_iter: int) -> Hyperparameters:
    """Hyperparameters that (with the weak prior) make the rows `X` (n, d), `y` (n,) or (n, k) most likely."""
    mean, n_rows = mean_target(y), len(y)
    scales = Scales.of(X, y, mean)
    evidence = Evidence(kernel, X, columns(y - mean), np.ones(n_rows), np.ones(n_rows, dtype=np.bool_))
    start, prior = default_hyperparameters(kernel, scales), HyperPrior.of_new_model(kernel, scales)
    return fit_hyperparameters(evidence.value_and_gradient, start, prior, max_iter)
