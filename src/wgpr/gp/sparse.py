"""The sparse model: a Gaussian process that learns a stream and keeps M pseudo-inputs (docs/method.md, 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wgpr.gp import inducing
from wgpr.gp.bound import Fit, Observations, Summary
from wgpr.gp.gaussian import Gaussian, marginal_squared_wasserstein
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, Prior, Scales, default_hyperparameters
from wgpr.gp.joint import JointModel, as_seen_by, with_rows
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    cholesky_identity_plus,
    cholesky_with_jitter,
    column_squares,
    columns,
    inner,
    log_determinant,
    plus_identity,
    read_only,
    solve_lower,
    solve_lower_transposed,
)
from wgpr.gp.model import (
    ClosedFormUpdate,
    Neighbour,
    PickledByFields,
    mean_target,
    require_finite,
    running_mean,
    seen_by_both,
)
from wgpr.gp.search import maximize_bound

# A first look at hyperparameters need not find the top to the last nat.
_WORTHWHILE_AT_FIRST = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class SparseModel(PickledByFields):
    """A local model; learning more returns another one.

    kernel, theta, mean : the prior; its constant mean is that of the model's first batch.
    summary : all that has been seen, as whitened pseudo-observations at the pseudo-inputs.
    L, L_B : (M, M) factors of `K_ZZ` and of `B`; alpha : (M,), `B^-1 U^T r`. What prediction needs.
    log_normaliser : `log Z_a`, to be taken from the bound of an update to get its evidence.
    scales : spread of the data seen; n_seen, centre : number of rows seen and their mean (d,).
    log_evidence : of the latest batch given those before it (a lower bound).
    Of several outputs mean is (k,), alpha (M, k); log_normaliser and log_evidence are sums.
    neighbourhood : hyperparameters that explain the neighbours too, if they were learned.
    n_evaluations : how often the bound was computed to learn the latest batch.
    """

    kernel: Kernel
    theta: Hyperparameters
    mean: float | Array
    summary: Summary
    L: Array
    L_B: Array
    alpha: Array
    log_normaliser: float
    scales: Scales
    n_seen: int
    centre: Array
    log_evidence: float
    neighbourhood: Hyperparameters | None = None
    n_evaluations: int = 0

    @property
    def inputs(self) -> Array:
        return self.summary.Z

    @property
    def shared(self) -> Hyperparameters:
        """Hyperparameters to use together with the neighbours."""
        return self.neighbourhood or self.theta

    def scales_with(self, X: Array, y: Array) -> Scales:
        """How far the data spread with new rows `X` (n, d), `y` (n,) or (n, k) among them."""
        seen = Scales.of(np.concatenate([self.inputs, X]), y, self.mean, fallback=self.scales)
        return self.scales.widened(seen)

    def observations(self, X: Array, y: Array) -> Observations:
        """New rows `X` (n, d), `y` (n,) together with all that was seen before."""
        return Observations(self.kernel, X, y - self.mean, self.summary)

    def updated(self, fit: Fit, scales: Scales) -> "SparseModel":
        """The model that explains `self.observations(X, y)` by `fit`."""
        X = fit.observations.X
        centre = running_mean(self.centre, self.n_seen, X)
        log_evidence = fit.value - self.log_normaliser
        return explained(fit, self.mean, scales, self.n_seen + len(X), centre, log_evidence)

    def whitened_summary(self, theta: Hyperparameters, Z: Array) -> tuple[Array, Array]:
        """All that the model knows as observations `r = U v + N(0, I)` of `v = L^-1 f(Z)`, (K, M) and (K,).

        theta, Z : hyperparameters and pseudo-inputs (M, d) to say it with; the model's own but for rounding.
        """
        return without_new_rows(self.kernel, self.summary).explained_by(theta, Z).whitened_summary()

    @cached_property
    def _answering(self) -> tuple[Array, Array]:
        """`H` (K, M) and `beta` (M,) or (M, k): the posterior mean is `beta^T k`, the variance falls by `|H k|^2`.

        `L^-T (I - B^-1) L^-1 = R^T (I + U U^T)^-1 R`, with `U = R L`: one product a query in place of two solves.
        """
        U = self.summary.R @ self.L
        H = solve_lower(cholesky_identity_plus(plus_identity(U @ U.T)), self.summary.R)
        beta = solve_lower_transposed(self.L, columns(self.alpha))
        return H, beta.reshape(self.alpha.shape)

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) or (n, k) and variance (n,) of the field at `X` (n, d)."""
        H, beta = self._answering
        K = self.kernel(self.theta, self.inputs, X)
        variance = self.kernel.variance(self.theta) - column_squares(H @ K)
        return self.mean + K.T @ beta, np.maximum(variance, 0.0)

    def posterior(self, X: Array) -> Gaussian:
        """The field at `X` (n, d): mean `beta^T k`, covariance `K_** - (H k)^T (H k)`."""
        H, beta = self._answering
        K = self.kernel(self.theta, self.inputs, X)
        explained = H @ K
        return Gaussian(self.mean + K.T @ beta, self.kernel(self.theta, X, X) - explained.T @ explained)

    def __repr__(self) -> str:
        return f"SparseModel({len(self.inputs)} pseudo-inputs, {self.n_seen} rows seen, {self.theta})"


def explained(
    fit: Fit, mean: float | Array, scales: Scales, n_seen: int, centre: Array, log_evidence: float
) -> SparseModel:
    """The model that explains its observations by `fit`."""
    summary = fit.summary()
    # log Z_a = -1/2 [k log|B| + |r|^2 - |L_B^-1 U^T r|^2], with U^T r = A t
    misfit = fit.n_outputs * log_determinant(fit.L_B) + inner(summary.r, summary.r) - fit.explained
    require_finite(fit.theta.to_log(), summary.Z, summary.R, summary.r, fit.L, fit.L_B, fit.alpha, log_evidence)
    for array in (summary.Z, summary.R, summary.r, fit.L, fit.L_B, fit.alpha, centre):
        read_only(array)
    return SparseModel(
        fit.observations.kernel, fit.theta, mean, summary, fit.L, fit.L_B, fit.alpha,
        -0.5 * float(misfit), scales, n_seen, centre, float(log_evidence), n_evaluations=fit.observations.n_fits,
    )  # fmt: skip


def sketched(model: SparseModel, fit: Fit) -> ClosedFormUpdate:
    """What the update of a model by this fit of `model.observations(X, y)` would tell; it would start from there."""
    mean, variance = fit.at_observations()
    mean, n_rows = model.mean + mean, len(fit.observations.y)
    moved = marginal_squared_wasserstein(model.predict(model.inputs), (mean[n_rows:], variance[n_rows:]))
    at_rows = mean[:n_rows], variance[:n_rows]
    return ClosedFormUpdate(moved, at_rows, model.log_normaliser - fit.value, fit.Z, fit.observations.n_fits)


def remembered(
    kernel: Kernel,
    theta: Hyperparameters,
    mean: float | Array,
    Z: Array,
    whitened: tuple[Array, Array],
    scales: Scales,
    n_seen: int,
    centre: Array,
    log_evidence: float,
) -> SparseModel:
    """The model that knows just a `whitened_summary` at pseudo-inputs `Z` (M, d)."""
    U, r = whitened
    L, _ = cholesky_with_jitter(kernel(theta, Z, Z))
    summary = Summary(Z, solve_lower_transposed(L, U.T).T, r)
    fit = without_new_rows(kernel, summary).explained_by(theta, Z)
    return explained(fit, mean, scales, n_seen, centre, log_evidence)


def without_new_rows(kernel: Kernel, summary: Summary) -> Observations:
    """A summary alone, to be explained."""
    return Observations(kernel, np.empty((0, summary.Z.shape[1])), np.empty((0, *summary.r.shape[1:])), summary)


def knowledge_of_both(model: SparseModel, other: SparseModel) -> Observations:
    """What two models know, relative to the prior mean of the first."""
    return without_new_rows(model.kernel, model.summary.joined(*as_seen_by(model, other)))


def of_both(model: SparseModel, other: SparseModel, observations: Observations, Z: Array) -> SparseModel:
    """The first model, with pseudo-inputs `Z` (M, d), after it has learned what both know."""
    n_seen, centre = seen_by_both(model, other)
    fit = observations.explained_by(model.theta, Z)
    return explained(fit, model.mean, model.scales.widened(other.scales), n_seen, centre, model.log_evidence)


@dataclass(frozen=True)
class SparseLearner:
    """Learns hyperparameters and pseudo-inputs of each model by maximising the bound.

    n_inducing : pseudo-inputs a model may have; max_iter : iterations of L-BFGS for each batch.
    learn_hyperparameters : False to learn them from a model's first batch only.
    """

    kernel: Kernel
    n_inducing: int = 50
    max_iter: int = 40
    learn_hyperparameters: bool = True

    theta = None  # every model learns its own
    n_neighbours = 1

    def start(self, X: Array, y: Array, rng: np.random.Generator, neighbours: Sequence[Neighbour] = ()) -> SparseModel:
        """Hyperparameters first, with pseudo-inputs held, from short and from long scales; then jointly.

        A few rows say little about scales: then a neighbour's hyperparameters are the start, and the belief.
        """
        like = neighbours[0] if neighbours else None
        mean = mean_target(y)
        scales = Scales.of(X, y, mean, None if like is None else like.scales)
        if like is not None and len(X) < self.n_inducing:
            scales, thetas = scales.widened(like.scales), [like.theta]
            prior = Prior.of_new_model(self.kernel, scales, like.theta)
        else:
            thetas = [default_hyperparameters(self.kernel, scales, stretch) for stretch in LENGTHSCALE_FACTORS]
            prior = Prior.of_new_model(self.kernel, scales)
        observations = Observations(self.kernel, X, y - mean)
        fits = [
            maximize_bound(
                observations,
                theta,
                self._spread_out(theta, X),
                scales,
                prior,
                max_iter=self.max_iter,
                learn_inputs=False,
                worthwhile=_WORTHWHILE_AT_FIRST,
            )
            for theta in thetas
        ]
        best = max(fits, key=_bound)
        best = maximize_bound(observations, best.theta, best.Z, scales, prior, max_iter=self.max_iter)
        return explained(best, mean, scales, len(X), X.mean(axis=0), best.value)

    def update(
        self,
        model: SparseModel,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        neighbours: Sequence[Neighbour] = (),
        sketch: ClosedFormUpdate | None = None,
    ) -> SparseModel:
        """From the best of several sets of pseudo-inputs by the bound, climb it jointly."""
        scales = model.scales_with(X, y)
        observations = model.observations(X, y)
        Z = self._best_start(model, observations, rng).Z if sketch is None else sketch.start
        best = maximize_bound(
            observations,
            model.theta,
            Z,
            scales,
            Prior.of_next_batch(self.kernel, scales, model.theta),
            max_iter=self.max_iter,
            learn_hyperparameters=self.learn_hyperparameters,
        )
        return model.updated(best, scales)

    def sketch(self, model: SparseModel, X: Array, y: Array, rng: np.random.Generator) -> ClosedFormUpdate:
        return sketched(model, self._best_start(model, model.observations(X, y), rng))

    def _best_start(self, model: SparseModel, observations: Observations, rng: np.random.Generator) -> Fit:
        starts = inducing.starts(self.kernel, model.theta, model.inputs, observations.X, self.n_inducing, rng)
        return max((observations.explained_by(model.theta, Z) for Z in starts), key=_bound)

    def quick_fit(self, X: Array, y: Array) -> SparseModel:
        mean = mean_target(y)
        scales = Scales.of(X, y, mean)
        theta = default_hyperparameters(self.kernel, scales)
        fit = Observations(self.kernel, X, y - mean).explained_by(theta, self._spread_out(theta, X))
        return explained(fit, mean, scales, len(X), X.mean(axis=0), fit.value)

    def condition(self, model: SparseModel, X: Array, y: Array) -> JointModel:
        return with_rows(model, X, y)

    def merged(self, model: SparseModel, other: SparseModel) -> SparseModel:
        observations = knowledge_of_both(model, other)
        return of_both(model, other, observations, self._spread_out(model.theta, observations.inputs))

    def refine_with_neighbours(self, model: SparseModel, neighbours: Sequence[SparseModel]) -> SparseModel:
        return model

    def _spread_out(self, theta: Hyperparameters, X: Array) -> Array:
        """Pseudo-inputs to start from."""
        return X[inducing.select_by_variance(self.kernel, theta, X, self.n_inducing)]


def _bound(fit: Fit) -> float:
    return fit.value
