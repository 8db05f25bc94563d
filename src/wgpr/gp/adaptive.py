"""A learner that needs no number of pseudo-inputs, and that listens to the neighbours (docs/joining.md).

Pseudo-inputs are taken from the data, as many as it takes until the bound loses next to nothing by them, and only
the hyperparameters are climbed: where nothing is left unexplained, moving pseudo-inputs gains nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from wgpr.gp import inducing, pooling
from wgpr.gp.bound import Fit, Observations
from wgpr.gp.hyperparameters import LENGTHSCALE_FACTORS, Prior, Scales, default_hyperparameters
from wgpr.gp.joint import JointModel, as_seen_by, evidence, with_rows
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, column_squares
from wgpr.gp.model import ClosedFormUpdate, Neighbour, mean_target
from wgpr.gp.search import fit_hyperparameters, maximize_bound
from wgpr.gp.sparse import SparseModel, explained, knowledge_of_both, of_both, sketched, without_new_rows

# Nats for each row, and each of its outputs, that pseudo-inputs may leave unexplained.
_TOLERANCE = 0.003

# What the neighbourhood knows of hyperparameters is looked for around those of the model, with this freedom.
_STD_OF_NEIGHBOURHOOD = 0.7
_MAX_ITER_OF_NEIGHBOURHOOD = 10


@dataclass(frozen=True)
class AdaptiveSparseLearner:
    """Learns the hyperparameters of each model by maximising the bound, with as many pseudo-inputs as that needs.

    max_inducing : pseudo-inputs a model may have; max_iter : iterations of L-BFGS for each batch.
    learn_hyperparameters : False to learn them from a model's first batch only.
    forgetting : part of what a model knows that it forgets with every batch that it learns.
    """

    kernel: Kernel
    max_inducing: int = 200
    max_iter: int = 40
    learn_hyperparameters: bool = True
    forgetting: float = 0.0

    theta = None  # every model learns its own
    n_neighbours = 5

    def start(self, X: Array, y: Array, rng: np.random.Generator, neighbours: Sequence[Neighbour] = ()) -> SparseModel:
        """From where the neighbours are, or from typical scales: the batch may be from another world."""
        mean = mean_target(y)
        scales = Scales.of(X, y, mean, neighbours[0].scales if neighbours else None)
        if neighbours:
            scales = scales.widened(neighbours[0].scales)
        observations = Observations(self.kernel, X, y - mean)
        tried = [self._tried(observations, *world, scales) for world in self._worlds(scales, neighbours)]
        best, _ = max(tried, key=lambda fit_and_score: fit_and_score[1])
        return explained(best, mean, scales, len(X), X.mean(axis=0), best.value)

    def _worlds(
        self, scales: Scales, neighbours: Sequence[Neighbour]
    ) -> Iterator[tuple[pooling.Belief, Hyperparameters]]:
        """What to believe of a new model, and where to start."""
        if neighbours:
            like_others = pooling.of_new_model(self.kernel, scales, neighbours)
            yield like_others, Hyperparameters.from_log(like_others.mean, len(scales.inputs))
        typically = pooling.of_new_model(self.kernel, scales, ())
        for stretch in LENGTHSCALE_FACTORS[:1] if neighbours else LENGTHSCALE_FACTORS:
            yield typically, default_hyperparameters(self.kernel, scales, stretch)

    def _tried(
        self, observations: Observations, belief: pooling.Belief, theta: Hyperparameters, scales: Scales
    ) -> tuple[Fit, float]:
        """What climbing from `theta` ends at, and how likely it is, with the belief."""
        prior = belief.prior(self.kernel, scales)
        inside = Hyperparameters.from_log(theta.to_log().clip(*prior.box), len(scales.inputs))
        fit = self._climbed(observations, inside, self._enough(observations, inside), scales, prior)
        log_belief, _ = prior.log_density(fit.theta.to_log())
        return fit, fit.value + log_belief - float(np.log(belief.std).sum())

    def update(
        self,
        model: SparseModel,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        neighbours: Sequence[Neighbour] = (),
        sketch: ClosedFormUpdate | None = None,
    ) -> SparseModel:
        """From where the model is."""
        model = self._faded(model)
        scales = model.scales_with(X, y)
        belief = pooling.of_next_batch(self.kernel, scales, model.theta, model.n_seen, neighbours)
        observations = model.observations(X, y)
        Z = self._enough(observations, model.theta) if sketch is None else sketch.start
        if not self.learn_hyperparameters:
            return model.updated(observations.explained_by(model.theta, Z), scales)
        fit = self._climbed(observations, model.theta, Z, scales, belief.prior(self.kernel, scales))
        return model.updated(fit, scales)

    def sketch(self, model: SparseModel, X: Array, y: Array, rng: np.random.Generator) -> ClosedFormUpdate:
        model = self._faded(model)
        return sketched(model, self._explained(model.observations(X, y), model.theta))

    def quick_fit(self, X: Array, y: Array) -> SparseModel:
        mean = mean_target(y)
        scales = Scales.of(X, y, mean)
        theta = default_hyperparameters(self.kernel, scales)
        fit = self._explained(Observations(self.kernel, X, y - mean), theta)
        return explained(fit, mean, scales, len(X), X.mean(axis=0), fit.value)

    def condition(self, model: SparseModel, X: Array, y: Array) -> JointModel:
        return with_rows(model, X, y)

    def refine_with_neighbours(self, model: SparseModel, neighbours: Sequence[SparseModel]) -> SparseModel:
        """The model with the hyperparameters that make its observations and its neighbours' likeliest, together.

        They say how the field goes on from one model to the next, which no model sees alone.
        """
        if not self.learn_hyperparameters or not neighbours:
            return replace(model, neighbourhood=None)
        parts = [part for other in neighbours for part in as_seen_by(model, other)]
        prior = Prior(self.kernel, model.scales, model.theta.to_log(), _STD_OF_NEIGHBOURHOOD)
        together = evidence(self.kernel, (model.summary, *parts))
        theta = fit_hyperparameters(together, model.theta, prior, _MAX_ITER_OF_NEIGHBOURHOOD)
        is_the_same = np.array_equal(theta.to_vector(), model.theta.to_vector())
        return replace(model, neighbourhood=None if is_the_same else theta)

    def merged(self, model: SparseModel, other: SparseModel) -> SparseModel:
        observations = knowledge_of_both(model, other)
        return of_both(model, other, observations, self._enough(observations, model.theta))

    def _faded(self, model: SparseModel) -> SparseModel:
        if not self.forgetting:
            return model
        summary = model.summary.faded(self.forgetting)
        fit = without_new_rows(self.kernel, summary).explained_by(model.theta, model.inputs)
        return explained(fit, model.mean, model.scales, model.n_seen, model.centre, model.log_evidence)

    def _climbed(
        self, observations: Observations, theta: Hyperparameters, Z: Array, scales: Scales, prior: Prior
    ) -> Fit:
        """Twice, because what is enough depends on the hyperparameters; and if it is not enough in the end, more."""
        climb = partial(maximize_bound, max_iter=self.max_iter, learn_inputs=False)
        fit = climb(observations, theta, Z, scales, prior)
        fit = climb(observations, fit.theta, self._enough(observations, fit.theta), scales, prior)
        is_enough = fit.unexplained <= 2.0 * _TOLERANCE * max(1, len(observations.y))
        return fit if is_enough or len(fit.Z) == self.max_inducing else self._explained(observations, fit.theta)

    def _explained(self, observations: Observations, theta: Hyperparameters) -> Fit:
        """With as many pseudo-inputs as these hyperparameters need."""
        return observations.explained_by(theta, self._enough(observations, theta))

    def _enough(self, observations: Observations, theta: Hyperparameters) -> Array:
        """Pseudo-inputs (M, d), of rows and old pseudo-inputs, that explain both.

        The bound loses half the sum of the variances that they leave, each times the precision of what was observed.
        """
        n_rows = len(observations.y)
        precisions = np.concatenate([np.full(n_rows, theta.noise**-2), column_squares(observations.past.R)])
        tolerated = 2.0 * _TOLERANCE * max(1, n_rows)
        chosen = inducing.select_inducing(
            self.kernel, theta, observations.inputs, precisions, self.max_inducing, tolerated
        )
        return observations.inputs[chosen]
