"""Sparse models: Gaussian processes that learn a stream and keep M pseudo-inputs (docs/method.md, 2).

Two learners: `SparseLearner` has a fixed M and moves the pseudo-inputs, as in the paper. `AdaptiveSparseLearner`
chooses as many pseudo-inputs from the data as the bound needs, and its hyperparameters lean on those of the neighbours
(docs/joining.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from wgpr.gp import inducing
from wgpr.gp.bound import Fit, Observations, Summary
from wgpr.gp.gaussian import Gaussian
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, STD_OF_NEW, STD_OF_STEP, HyperPrior, Scales
from wgpr.gp.hyperparameters import default_hyperparameters as default_theta
from wgpr.gp.joint import JointModel, as_seen_by, evidence, log_evidence_of_rows, with_rows
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    cholesky_identity_plus,
    cholesky_with_jitter,
    column_squares,
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
from wgpr.gp.model import ClosedFormUpdate, Neighbour, PickledByFields, seen_by_both
from wgpr.gp.optimize import fit_hyperparameters, maximize_bound

# The hyperparameters of a first stage need not be optimal to the last nat.
_MIN_GAIN_OF_FIRST_STAGE = 0.5

# Nats for each row and output that the pseudo-inputs of an adaptive model may leave unexplained.
_TOLERANCE = 0.003

# Prior standard deviation and iterations when hyperparameters are fitted together with the neighbours.
_STD_OF_NEIGHBOURHOOD = 0.7
_MAX_ITER_OF_NEIGHBOURHOOD = 10


@dataclass(frozen=True, eq=False, repr=False)
class SparseModel(PickledByFields):
    """A local model; learning more returns another one.

    kernel, theta, mean : the prior; its constant mean is that of the model's first batch.
    summary : all that has been seen, as whitened pseudo-observations at the pseudo-inputs.
    L, L_B : (M, M) factors of `K_ZZ` and of `B`; alpha : (M,), `B^-1 U^T r`. Prediction needs these.
    log_normaliser : `log Z_a`, which the evidence of an update subtracts from its bound.
    scales : spread of the data seen; n_seen, centre : number of rows seen and their mean (d,).
    log_evidence : of the latest batch given those before it (a lower bound).
    With several outputs mean is (k,), alpha (M, k); log_normaliser and log_evidence are sums.
    neighbourhood : hyperparameters that were fitted together with the neighbours, if any.
    n_evaluations : number of evaluations of the bound for the latest batch.
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
            fit.observations.kernel, fit.theta, mean, summary, fit.L, fit.L_B, fit.alpha,
            -0.5 * float(misfit), scales, n_seen, centre, float(log_evidence), n_evaluations=fit.observations.n_fits,
        )  # fmt: skip

    @classmethod
    def from_whitened_summary(
        cls,
        kernel: Kernel,
        theta: Hyperparameters,
        mean: float | Array,
        Z: Array,
        whitened: tuple[Array, Array],
        scales: Scales,
        n_seen: int,
        centre: Array,
        log_evidence: float,
    ) -> "SparseModel":
        """The model that knows a `whitened_summary` (U, r) at pseudo-inputs `Z` (M, d)."""
        U, r = whitened
        L, _ = cholesky_with_jitter(kernel(theta, Z, Z))
        summary = Summary(Z, solve_lower_transposed(L, U.T).T, r)
        fit = Observations.of_summary(kernel, summary).explained_by(theta, Z)
        return cls.from_fit(fit, mean, scales, n_seen, centre, log_evidence)

    @property
    def inputs(self) -> Array:
        return self.summary.Z

    @property
    def shared(self) -> Hyperparameters:
        """Hyperparameters for use together with the neighbours."""
        return self.neighbourhood or self.theta

    def scales_with(self, X: Array, y: Array) -> Scales:
        """Scales of the data together with new rows `X` (n, d), `y` (n,) or (n, k)."""
        seen = Scales.of(np.concatenate([self.inputs, X]), y, self.mean, fallback=self.scales)
        return self.scales.widened(seen)

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


class _BoundLearner(ABC):
    """What both sparse learners share: steps in closed form."""

    kernel: Kernel
    theta = None  # every model learns its own

    @abstractmethod
    def _inducing(self, observations: Observations, theta: Hyperparameters) -> Array:
        """Pseudo-inputs (M, d) for these observations."""

    def _closed_form_fit(self, model: SparseModel, X: Array, y: Array, rng: np.random.Generator) -> Fit:
        return self._explained(model.observations(X, y), model.theta)

    def _explained(self, observations: Observations, theta: Hyperparameters) -> Fit:
        return observations.explained_by(theta, self._inducing(observations, theta))

    def discounted(self, model: SparseModel) -> SparseModel:
        """The model right before an update: with forgetting, it has forgotten a part."""
        return model

    def closed_form_update(self, model: SparseModel, X: Array, y: Array, rng: np.random.Generator) -> ClosedFormUpdate:
        model = self.discounted(model)
        fit, n = self._closed_form_fit(model, X, y, rng), len(y)
        mean, variance = fit.at_observations()
        mean = model.mean + mean
        at_rows, at_inputs = (mean[:n], variance[:n]), (mean[n:], variance[n:])
        return ClosedFormUpdate(at_rows, at_inputs, fit.value - model.log_normaliser, fit.Z, fit.observations.n_fits)

    def uncompressed_evidence(self, model: SparseModel, updated: SparseModel, X: Array, y: Array) -> float:
        """Log evidence of the rows without pseudo-inputs, by the better of old and new hyperparameters."""
        model, evidences = self.discounted(model), [-np.inf]
        for theta in (model.theta, updated.theta):
            with suppress(ArithmeticError):
                evidences.append(log_evidence_of_rows(model, X, y, theta))
        return max(evidences)

    def quick_fit(self, X: Array, y: Array) -> SparseModel:
        mean = mean_target(y)
        scales = Scales.of(X, y, mean)
        fit = self._explained(Observations(self.kernel, X, y - mean), default_theta(self.kernel, scales))
        return SparseModel.from_fit(fit, mean, scales, len(X), X.mean(axis=0), fit.value)

    def condition(self, model: SparseModel, X: Array, y: Array) -> JointModel:
        return with_rows(model, X, y)

    def merge(self, model: SparseModel, other: SparseModel) -> SparseModel:
        observations = Observations.of_summary(self.kernel, model.summary.joined(*as_seen_by(model, other)))
        fit, (n_seen, centre) = self._explained(observations, model.theta), seen_by_both(model, other)
        scales = model.scales.widened(other.scales)
        return SparseModel.from_fit(fit, model.mean, scales, n_seen, centre, model.log_evidence)


@dataclass(frozen=True)
class SparseLearner(_BoundLearner):
    """Maximises the bound over the hyperparameters and the M pseudo-inputs of each model (the paper's learner).

    n_inducing : M, the most pseudo-inputs of a model; max_iter : iterations of L-BFGS for each batch.
    learn_hyperparameters : False to learn them from a model's first batch only.
    """

    kernel: Kernel
    n_inducing: int = 50
    max_iter: int = 40
    learn_hyperparameters: bool = True

    n_neighbours = 1

    def start(self, X: Array, y: Array, rng: np.random.Generator, neighbours: Sequence[Neighbour] = ()) -> SparseModel:
        """Hyperparameters first, with pseudo-inputs held, from short and from long scales; then both.

        Fewer rows than pseudo-inputs say little about scales: then the nearest model's hyperparameters are the start
        and the centre of the prior.
        """
        nearest = neighbours[0] if neighbours else None
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

    def update(
        self,
        model: SparseModel,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        neighbours: Sequence[Neighbour] = (),
        closed_form: ClosedFormUpdate | None = None,
    ) -> SparseModel:
        """Maximise the bound from the best of several sets of pseudo-inputs."""
        scales = model.scales_with(X, y)
        observations = model.observations(X, y)
        Z = self._best_start(model, observations, rng).Z if closed_form is None else closed_form.warm_start
        best = maximize_bound(
            observations,
            model.theta,
            Z,
            scales,
            HyperPrior.around(self.kernel, scales, model.theta, STD_OF_STEP),
            max_iter=self.max_iter,
            learn_hyperparameters=self.learn_hyperparameters,
        )
        return model.updated(best, scales)

    def _closed_form_fit(self, model: SparseModel, X: Array, y: Array, rng: np.random.Generator) -> Fit:
        return self._best_start(model, model.observations(X, y), rng)

    def _best_start(self, model: SparseModel, observations: Observations, rng: np.random.Generator) -> Fit:
        starts = inducing.candidate_sets(self.kernel, model.theta, model.inputs, observations.X, self.n_inducing, rng)
        return max((observations.explained_by(model.theta, Z) for Z in starts), key=_bound)

    def refine_with_neighbours(self, model: SparseModel, neighbours: Sequence[SparseModel]) -> SparseModel:
        return model

    def _inducing(self, observations: Observations, theta: Hyperparameters) -> Array:
        X = observations.inputs
        return X[inducing.select_by_variance(self.kernel, theta, X, self.n_inducing)]


def _bound(fit: Fit) -> float:
    return fit.value


@dataclass(frozen=True)
class AdaptiveSparseLearner(_BoundLearner):
    """Maximises the bound over the hyperparameters of each model, with as many pseudo-inputs as that needs.

    Pseudo-inputs are taken from the data until the bound loses less than a tolerance by them. They are not optimised:
    where the loss is small, moving them gains nothing.

    max_inducing : the most pseudo-inputs of a model; max_iter : iterations of L-BFGS for each batch.
    learn_hyperparameters : False to learn them from a model's first batch only.
    forgetting : fraction of a model's knowledge that every batch makes it forget.
    """

    kernel: Kernel
    max_inducing: int = 200
    max_iter: int = 40
    learn_hyperparameters: bool = True
    forgetting: float = 0.0

    n_neighbours = 5

    def start(self, X: Array, y: Array, rng: np.random.Generator, neighbours: Sequence[Neighbour] = ()) -> SparseModel:
        """The best of several fits: from the neighbours' hyperparameters, and from default ones."""
        mean = mean_target(y)
        scales = Scales.of(X, y, mean, neighbours[0].scales if neighbours else None)
        if neighbours:
            scales = scales.widened(neighbours[0].scales)
        observations = Observations(self.kernel, X, y - mean)
        fits = [self._fit_and_score(observations, *start, scales) for start in self._starts(scales, neighbours)]
        best, _ = max(fits, key=lambda fit_and_score: fit_and_score[1])
        return SparseModel.from_fit(best, mean, scales, len(X), X.mean(axis=0), best.value)

    def _starts(self, scales: Scales, neighbours: Sequence[Neighbour]) -> Iterator[tuple[HyperPrior, Hyperparameters]]:
        """Priors and initial hyperparameters of a new model."""
        if neighbours:
            prior = HyperPrior.of_new_model(self.kernel, scales, [model.theta for model in neighbours])
            yield prior, Hyperparameters.from_log(prior.mean, len(scales.inputs))
        prior = HyperPrior.of_new_model(self.kernel, scales)
        for factor in LENGTHSCALE_FACTORS[:1] if neighbours else LENGTHSCALE_FACTORS:
            yield prior, default_theta(self.kernel, scales, factor)

    def _fit_and_score(
        self, observations: Observations, prior: HyperPrior, theta: Hyperparameters, scales: Scales
    ) -> tuple[Fit, float]:
        """The fit from `theta`, and its bound plus log prior."""
        start = prior.clip(theta)
        fit = self._maximized(observations, start, self._inducing(observations, start), scales, prior)
        log_prior, _ = prior.log_density(fit.theta.to_log())
        return fit, fit.value + log_prior - float(np.log(prior.std).sum())

    def update(
        self,
        model: SparseModel,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        neighbours: Sequence[Neighbour] = (),
        closed_form: ClosedFormUpdate | None = None,
    ) -> SparseModel:
        """Maximise the bound from the model's hyperparameters."""
        model = self.discounted(model)
        scales = model.scales_with(X, y)
        observations = model.observations(X, y)
        Z = self._inducing(observations, model.theta) if closed_form is None else closed_form.warm_start
        if not self.learn_hyperparameters:
            return model.updated(observations.explained_by(model.theta, Z), scales)
        thetas = [neighbour.theta for neighbour in neighbours]
        prior = HyperPrior.of_next_batch(self.kernel, scales, model.theta, model.n_seen, thetas)
        return model.updated(self._maximized(observations, model.theta, Z, scales, prior), scales)

    def refine_with_neighbours(self, model: SparseModel, neighbours: Sequence[SparseModel]) -> SparseModel:
        """The model with hyperparameters for use with its neighbours: those of the largest joint evidence.

        They say how the field goes on from one model to the next, which no model sees alone.
        """
        if not self.learn_hyperparameters or not neighbours:
            return replace(model, neighbourhood=None)
        parts = [part for other in neighbours for part in as_seen_by(model, other)]
        prior = HyperPrior.around(self.kernel, model.scales, model.theta, _STD_OF_NEIGHBOURHOOD)
        joint_evidence = evidence(self.kernel, (model.summary, *parts))
        theta = fit_hyperparameters(joint_evidence, model.theta, prior, _MAX_ITER_OF_NEIGHBOURHOOD)
        is_the_same = np.array_equal(theta.to_vector(), model.theta.to_vector())
        return replace(model, neighbourhood=None if is_the_same else theta)

    def discounted(self, model: SparseModel) -> SparseModel:
        if not self.forgetting:
            return model
        observations = Observations.of_summary(self.kernel, model.summary.faded(self.forgetting))
        fit = observations.explained_by(model.theta, model.inputs)
        return SparseModel.from_fit(fit, model.mean, model.scales, model.n_seen, model.centre, model.log_evidence)

    def _maximized(
        self, observations: Observations, theta: Hyperparameters, Z: Array, scales: Scales, prior: HyperPrior
    ) -> Fit:
        """Alternate hyperparameters and pseudo-inputs twice; reselect these if the loss exceeds the tolerance."""
        maximize = partial(maximize_bound, max_iter=self.max_iter, learn_inputs=False)
        fit = maximize(observations, theta, Z, scales, prior)
        fit = maximize(observations, fit.theta, self._inducing(observations, fit.theta), scales, prior)
        is_enough = fit.unexplained <= 2.0 * _TOLERANCE * max(1, len(observations.y))
        return fit if is_enough or len(fit.Z) == self.max_inducing else self._explained(observations, fit.theta)

    def _inducing(self, observations: Observations, theta: Hyperparameters) -> Array:
        """Rows and old pseudo-inputs that explain all of them to within the tolerance.

        The bound loses half the sum of the variances that they leave, each times the precision of the observation.
        """
        X, n_rows = observations.inputs, len(observations.y)
        precisions = np.concatenate([np.full(n_rows, theta.noise**-2), column_squares(observations.past.R)])
        tolerance = 2.0 * _TOLERANCE * max(1, n_rows)
        return X[inducing.select_inducing(self.kernel, theta, X, precisions, self.max_inducing, tolerance)]
