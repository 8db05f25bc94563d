"""The ensemble: local models, and what is needed to find the right ones (docs/method.md, 4)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wgpr.ensemble.index import NearestIndex
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.model import Learner, LocalModel, PickledByFields


@dataclass(frozen=True, eq=False)
class Ensemble(PickledByFields):
    """Local models, and what is needed to find the right ones. An immutable value.

    index : of the pseudo-inputs of all J models; input_means : (J, d), mean of each model's pseudo-inputs.
    n_learned : rows that all models have seen.
    """

    n_features: int
    models: tuple[LocalModel, ...]
    index: NearestIndex
    input_means: Array
    n_learned: int = 0

    @classmethod
    def of(cls, models: Sequence[LocalModel], n_features: int) -> "Ensemble":
        """The ensemble of these models; it may be empty."""
        return cls(
            n_features,
            tuple(models),
            NearestIndex.of([model.inputs for model in models]),
            np.array([model.inputs.mean(axis=0) for model in models]).reshape(len(models), n_features),
            sum(model.n_seen for model in models),
        )

    def __len__(self) -> int:
        return len(self.models)

    @cached_property
    def centres(self) -> Array:
        """(J, d), mean of the inputs that each model has seen."""
        return np.array([model.centre for model in self.models]).reshape(len(self), self.n_features)

    @cached_property
    def lengthscales(self) -> Array:
        """(J, d), of each model."""
        return np.array([model.theta.lengthscales for model in self.models]).reshape(len(self), self.n_features)

    @cached_property
    def n_seen(self) -> Indices:
        """(J,), rows that each model has seen."""
        return np.array([model.n_seen for model in self.models], dtype=np.intp)

    def with_model(self, model: LocalModel, number: int | None = None) -> "Ensemble":
        """The ensemble with this model in place of model `number`, or added. The others stay the same objects."""
        place = len(self) if number is None else number
        n_seen_before = 0 if number is None else self.models[number].n_seen
        mean = model.inputs.mean(axis=0, keepdims=True)
        return Ensemble(
            self.n_features,
            (*self.models[:place], model, *self.models[place + 1 :]),
            self.index.with_model(place, model.inputs),
            np.concatenate([self.input_means[:place], mean, self.input_means[place + 1 :]]),
            self.n_learned + model.n_seen - n_seen_before,
        )

    def with_merged(self, numbers: tuple[int, int], model: LocalModel) -> "Ensemble":
        """The ensemble with this model in place of two; those after the second have the number before theirs."""
        first, second = sorted(numbers)
        models = [*self.models[:first], model, *self.models[first + 1 : second], *self.models[second + 1 :]]
        return Ensemble.of(models, self.n_features)

    def nearest_by_mean(self, point: Array, n_models: int) -> list[int]:
        """Numbers of the models whose pseudo-inputs' means are nearest to `point` (d,), nearest first."""
        squares = ((self.input_means - point) ** 2).sum(axis=1)
        return np.argsort(squares, kind="stable")[:n_models].tolist()

    def conditioned(self, learner: Learner[Any], X: Array, y: Array) -> "Ensemble":
        """The ensemble in which each row of `X` (n, d), `y` (n,) conditions the model nearest to it, for prediction."""
        owners, ensemble = self.index.owners(X)[:, 0], self
        for number in np.unique(owners).tolist():
            own = owners == number
            with suppress(ArithmeticError):  # then without these rows
                ensemble = ensemble.with_model(learner.condition(self.models[number], X[own], y[own]), number)
        return ensemble


def log_closeness(X: Array, centres: Array, lengthscales: Array) -> Array:
    """`log w = -1/2 |(x - centre) / lengthscales|^2` of rows `X` (n, d) to models (J, d) each: (n, J)."""
    squares = np.zeros((len(X), len(centres)))
    for x, centre, lengthscale in zip(X.T, centres.T, lengthscales.T, strict=True):
        squares += ((x[:, None] - centre) / lengthscale) ** 2
    return -0.5 * squares
