"""Sparse models: Gaussian processes that learn a stream and keep M pseudo-inputs (docs/method.md, 2)."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from wgpr.gp import inducing
from wgpr.gp.bound import Fit, Observations, Summary
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, STD_OF_NEW, STD_OF_STEP, HyperPrior, Scales
from wgpr.gp.hyperparameters import default_hyperparameters as default_theta
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    cholesky_jittered_if_needed,
    columns,
    inner,
    log_determinant,
    mean_target,
    plus_identity,
    read_only,
    require_finite,
    running_mean,
    solve_lower,
    solve_lower_transposed,
)
from wgpr.gp.model import LocalModel
from wgpr.gp.optimize import maximize_bound

# The hyperparameters of a first stage need not be optimal to the last nat.
_MIN_GAIN_OF_FIRST_STAGE = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class SparseModel(LocalModel):
    """A local model with pseudo-inputs. The constant mean of its prior is that of its first batch.

    summary : all that has been seen, as whitened pseudo-observations at the pseudo-inputs.
    L, L_B : (M, M) factors of `K_ZZ` and of `B`; alpha : (M,), `B^-1 U^T r`. Prediction needs these.
    log_normaliser : `log Z_a`, which the evidence of an update, a lower bound, subtracts from its bound.
    scales : spread of the data seen. Of several outputs alpha is (M, k), and log_normaliser a sum.
    """

    summary: Summary
    L: Array
    L_B: Array
    alpha: Array
    log_normaliser: float
    scales: Scales

    @classmethod
    def from_fit(
        cls, fit: Fit, mean: float | Array, scales: Scales, n_seen: int, centre: Array, log_evidence: float
    ) -> "SparseModel":
        """The model whose posterior is that of `fit`."""
        summary = fit.summary()
        # log Z_a = -1/2 [k log|B| + |r|^2 - |L_B^-1 U^T r|^2], with U^T r = A t
        misfit = fit.n_outputs * log_determinant(fit.L_B) + inner(summary.r, summary.r) - fit.explained
        require_finite(fit.theta.to_log(), summary.Z, summary.R, summary.r, fit.L, fit.L_B, fit.alpha, log_evidence)
        for array in (summary.Z, summary.R, summary.r, fit.L, fit.L_B, fit.alpha, centre):
            read_only(array)
        return cls(
            fit.observations.kernel, fit.theta, mean, fit.Z, n_seen, centre, float(log_evidence),
            summary, fit.L, fit.L_B, fit.alpha, -0.5 * float(misfit), scales, n_evaluations=fit.observations.n_fits,
        )  # fmt: skip

    def observations(self, X: Array, y: Array) -> Observations:
        """New rows `X` (n, d), `y` (n,) together with the summary of the past."""
        return Observations(self.kernel, X, y - self.mean, self.summary)

    def updated(self, fit: Fit, scales: Scales) -> "SparseModel":
        """The model after it has learned the rows of `fit`, a fit of `self.observations(X, y)`."""
        X = fit.observations.X
        centre = running_mean(self.centre, self.n_seen, X)
        log_evidence = fit.value - self.log_normaliser
        return SparseModel.from_fit(fit, self.mean, scales, self.n_seen + len(X), centre, log_evidence)

    def whitened_summary(self, theta: Hyperparameters, Z: Array) -> tuple[Array, Array]:
        """The summary as observations `r = U v + N(0, I)` of `v = L^-1 f(Z)`, (K, M) and (K,).

        theta, Z : hyperparameters and pseudo-inputs (M, d) to express it with; the model's own but for rounding.
        """
        return Observations.of_summary(self.kernel, self.summary).explained_by(theta, Z).whitened_summary()

    @cached_property
    def _answering(self) -> tuple[Array, Array]:
        """`H` (K, M) and `beta` (M,) or (M, k): the posterior mean is `beta^T k`, the variance falls by `|H k|^2`.

        `L^-T (I - B^-1) L^-1 = R^T (I + U U^T)^-1 R`, with `U = R L`: one product a query in place of two solves.
        """
        U = self.summary.R @ self.L
        H = solve_lower(cholesky_jittered_if_needed(plus_identity(U @ U.T)), self.summary.R)
        beta = solve_lower_transposed(self.L, columns(self.alpha))
        return H, beta.reshape(self.alpha.shape)

    def _explained(self, X: Array) -> tuple[Array, Array]:
        H, beta = self._answering
        K = self.kernel(self.theta, self.inputs, X)
        return K.T @ beta, H @ K

    def __repr__(self) -> str:
        return f"SparseModel({len(self.inputs)} pseudo-inputs, {self.n_seen} rows seen, {self.theta})"


@dataclass(frozen=True)
class SparseLearner:
    """Maximises the bound over the hyperparameters and the M pseudo-inputs of each model (the paper's learner).

    n_inducing : M, the most pseudo-inputs of a model; max_iter : iterations of L-BFGS for each batch.
    learn_hyperparameters : False to learn them from a model's first batch only.
    """

    kernel: Kernel
    n_inducing: int = 50
    max_iter: int = 40
    learn_hyperparameters: bool = True

    theta = None  # every model learns its own

    def start(self, X: Array, y: Array, rng: np.random.Generator, nearest: SparseModel | None = None) -> SparseModel:
        """Hyperparameters first, with pseudo-inputs held, from short and from long scales; then both.

        Fewer rows than pseudo-inputs say little about scales: then the nearest model's hyperparameters are the start
        and the centre of the prior.
        """
        mean = mean_target(y)
        scales = Scales.of(X, y, mean, None if nearest is None else nearest.scales)
        if nearest is not None and len(X) < self.n_inducing:
            scales, thetas = scales.widened(nearest.scales), [nearest.theta]
            prior = HyperPrior.around(self.kernel, scales, nearest.theta, STD_OF_NEW)
        else:
            thetas = [default_theta(self.kernel, scales, factor) for factor in LENGTHSCALE_FACTORS]
            prior = HyperPrior.of_new_model(self.kernel, scales)
        observations = Observations(self.kernel, X, y - mean)
        first_stage = partial(
            maximize_bound, max_iter=self.max_iter, learn_inputs=False, min_gain=_MIN_GAIN_OF_FIRST_STAGE
        )
        fits = [
            first_stage(observations, theta, self._inducing(observations, theta), scales, prior) for theta in thetas
        ]
        best = max(fits, key=_bound)
        best = maximize_bound(observations, best.theta, best.Z, scales, prior, max_iter=self.max_iter)
        return SparseModel.from_fit(best, mean, scales, len(X), X.mean(axis=0), best.value)

    def update(self, model: SparseModel, X: Array, y: Array, rng: np.random.Generator) -> SparseModel:
        """Maximise the bound from the best of several sets of pseudo-inputs."""
        seen = Scales.of(np.concatenate([model.inputs, X]), y, model.mean, fallback=model.scales)
        scales = model.scales.widened(seen)
        observations = model.observations(X, y)
        starts = inducing.candidate_sets(self.kernel, model.theta, model.inputs, X, self.n_inducing, rng)
        start = max((observations.explained_by(model.theta, Z) for Z in starts), key=_bound)
        best = maximize_bound(
            observations,
            model.theta,
            start.Z,
            scales,
            HyperPrior.around(self.kernel, scales, model.theta, STD_OF_STEP),
            max_iter=self.max_iter,
            learn_hyperparameters=self.learn_hyperparameters,
        )
        return model.updated(best, scales)

    def quick_fit(self, X: Array, y: Array) -> SparseModel:
        mean = mean_target(y)
        scales = Scales.of(X, y, mean)
        fit = self._explained(Observations(self.kernel, X, y - mean), default_theta(self.kernel, scales))
        return SparseModel.from_fit(fit, mean, scales, len(X), X.mean(axis=0), fit.value)

    def condition(self, model: SparseModel, X: Array, y: Array) -> SparseModel:
        """The rows become pseudo-inputs too, so that nothing is compressed."""
        fit = model.observations(X, y).explained_by(model.theta, np.concatenate([model.inputs, X]))
        return SparseModel.from_fit(fit, model.mean, model.scales, model.n_seen, model.centre, model.log_evidence)

    def merge(self, model: SparseModel, other: SparseModel) -> SparseModel:
        both = model.summary.joined(other.summary.around(other.mean - model.mean))
        fit = self._explained(Observations.of_summary(self.kernel, both), model.theta)
        n_seen, centre = model.seen_with(other)
        scales = model.scales.widened(other.scales)
        return SparseModel.from_fit(fit, model.mean, scales, n_seen, centre, model.log_evidence)

    def _explained(self, observations: Observations, theta: Hyperparameters) -> Fit:
        return observations.explained_by(theta, self._inducing(observations, theta))

    def _inducing(self, observations: Observations, theta: Hyperparameters) -> Array:
        """Pseudo-inputs (M, d) for these observations."""
        X = observations.inputs
        return X[inducing.select_by_variance(self.kernel, theta, X, self.n_inducing)]


def _bound(fit: Fit) -> float:
    return fit.value
