"""Splitting rules: which model learns a batch, or whether it starts a new one.

| rule | a batch starts a new model when |
|---|---|
| `Wasserstein(threshold)` | the posterior of every candidate would move too far (WGPR) |
| `Evidence()` | its log evidence is larger as a new model than given any candidate |
| `KernelDistance(w_gen)` | a row is far from all models in input space (LGPR, SOLAR GP) |
| `Never()`, `Always()` | never; always |

Any object with the method `assign` is a rule. It asks the evaluation, and assigns rows to models:

    class OnlyTwo:
        def assign(self, evaluation):
            if len(evaluation.ensemble) < 2:         # evaluation.nearest is empty before the first model
                return [Assignment(ALL_ROWS, None)]  # None: a new model
            return [Assignment(ALL_ROWS, evaluation.nearest[0])]

`evaluation.updated(number)` is a model after it has learned the batch, `evaluation.new_model` a new one of the batch
alone; `evaluation.distances(number)` says how far an update would move a model. `evaluation.X` and `.y` are in
the units of the ensemble (`units_` of an estimator), distances in those of the user.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wgpr.checks import require_number
from wgpr.ensemble.ensemble import log_closeness
from wgpr.ensemble.evaluation import ALL_ROWS, Assignment, BatchEvaluation
from wgpr.gp.linalg import Array, Indices

_NEW_MODEL = (Assignment(ALL_ROWS, None),)


@dataclass(frozen=True)
class Wasserstein:
    """The candidate that moves least learns the batch, unless it would move by more than `threshold`.

    threshold : squared Wasserstein distance, summed over the model's pseudo-inputs and the batch; in the square of
    the target's unit, and the larger the more points there are.
    """

    threshold: float

    def __post_init__(self) -> None:
        require_number("threshold", self.threshold, least=0.0)

    def assign(self, evaluation: BatchEvaluation) -> Sequence[Assignment]:
        best = min(evaluation.candidates, key=lambda number: evaluation.distances(number).total, default=None)
        if best is None or evaluation.distances(best).total > self.threshold:
            return _NEW_MODEL
        return (Assignment(ALL_ROWS, best),)


@dataclass(frozen=True)
class Evidence:
    """The candidate with the largest log evidence learns the batch, unless that of a new model is larger."""

    def assign(self, evaluation: BatchEvaluation) -> Sequence[Assignment]:
        def evidence(number: int) -> float:
            model = evaluation.updated(number)
            return -np.inf if model is None else model.log_evidence

        best = max(evaluation.candidates, key=evidence, default=None)
        if best is None or evaluation.new_model.log_evidence > evidence(best):
            return _NEW_MODEL
        return (Assignment(ALL_ROWS, best),)


@dataclass(frozen=True)
class Never:
    """The nearest model learns everything."""

    def assign(self, evaluation: BatchEvaluation) -> Sequence[Assignment]:
        return (Assignment(ALL_ROWS, evaluation.nearest[0]),) if evaluation.nearest else _NEW_MODEL


@dataclass(frozen=True)
class Always:
    """Every batch becomes a model of its own."""

    def assign(self, evaluation: BatchEvaluation) -> Sequence[Assignment]:
        return _NEW_MODEL


@dataclass(frozen=True)
class KernelDistance:
    """Each row goes to the model that is closest by `w = exp(-1/2 |(x - centre) / lengthscales|^2)`.

    w_gen : a row whose largest `w` is not above it starts a model; between 0 (never) and 1 (always).

    Centres are running means. Models that start within the batch take part at once, with the length-scales that all
    models share or, as long as they have none of their own, with those of the closest model. A first batch without
    any length-scales is one model.
    """

    w_gen: float

    def __post_init__(self) -> None:
        require_number("w_gen", self.w_gen, least=0.0, most=1.0)

    def assign(self, evaluation: BatchEvaluation) -> Sequence[Assignment]:
        shared = evaluation.learner.theta
        if not len(evaluation.ensemble) and shared is None:
            return _NEW_MODEL
        labels = self._route(evaluation, None if shared is None else shared.lengthscales)
        n_models = len(evaluation.ensemble)
        return [
            Assignment(np.flatnonzero(labels == label), int(label) if label < n_models else None)
            for label in np.unique(labels)
        ]

    def _route(self, evaluation: BatchEvaluation, shared: Array | None) -> Indices:
        """For each row the number of its model; numbers beyond the ensemble's are new models, in order."""
        ensemble, n = evaluation.ensemble, len(evaluation.ensemble)
        log_w_gen = np.log(self.w_gen) if self.w_gen > 0 else -np.inf
        labels = np.empty(len(evaluation.X), dtype=np.intp)
        centres = np.concatenate([ensemble.centres, evaluation.X])  # room for every row to start a model
        widths = np.concatenate([ensemble.lengthscales, np.empty_like(evaluation.X)])
        counts = np.concatenate([ensemble.n_seen, np.zeros(len(evaluation.X), dtype=np.intp)])
        for row, x in enumerate(evaluation.X):
            closeness = log_closeness(x[None], centres[:n], widths[:n])[0] if n else np.array([-np.inf])
            label = closest = int(np.argmax(closeness))
            if not closeness[closest] > log_w_gen:
                label, n = n, n + 1
                widths[label] = widths[closest] if shared is None else shared
                centres[label] = x
            counts[label] += 1
            centres[label] += (x - centres[label]) / counts[label]
            labels[row] = label
        return labels
