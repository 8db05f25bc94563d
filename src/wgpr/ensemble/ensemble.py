"""The ensemble: local models, and what is needed to find the right ones (docs/method.md, 4)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from wgpr.ensemble.index import NearestIndex
from wgpr.ensemble.joint_cache import JointModelCache
from wgpr.ensemble.shelf import Shelf
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.model import Learner, LocalModel, PickledByFields

# A model is joined with so many others at the most.
_MOST_NEIGHBOURS = 15

# Rows that say which models are close to all of them.
_MOST_VOTERS = 100


@dataclass(frozen=True, eq=False)
class Ensemble(PickledByFields):
    """Local models, and what is needed to find the right ones. An immutable value.

    A change costs the same however many models there are: it copies one board of a shelf, and the indices of
    pseudo-inputs (`index`) and of their means (`index_of_means`) are kept up.

    n_learned : rows that all models have seen.
    """

    n_features: int
    models: Shelf[LocalModel] = field(default_factory=Shelf)
    index: NearestIndex = field(default_factory=NearestIndex)
    index_of_means: NearestIndex = field(default_factory=NearestIndex)
    n_learned: int = 0
    joint_models: JointModelCache = field(default_factory=JointModelCache)

    @classmethod
    def empty(cls, n_features: int) -> "Ensemble":
        return cls(n_features)

    @classmethod
    def of(cls, models: Sequence[LocalModel], n_features: int) -> "Ensemble":
        """The ensemble of these models, at once."""
        if not models:
            return cls.empty(n_features)
        return cls(
            n_features,
            Shelf(models),
            NearestIndex.of([model.inputs for model in models]),
            NearestIndex.of([_mean_input(model) for model in models]),
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
    def input_means(self) -> Array:
        """(J, d), mean of each model's pseudo-inputs."""
        return np.concatenate([_mean_input(model) for model in self.models])

    @cached_property
    def n_seen(self) -> Indices:
        """(J,), rows that each model has seen."""
        return np.array([model.n_seen for model in self.models], dtype=np.intp)

    def with_model(self, model: LocalModel, number: int | None = None) -> "Ensemble":
        """The ensemble with this model in place of one, or joined to the others. The others stay the same objects."""
        place = len(self) if number is None else number
        n_seen_before = 0 if number is None else self.models[number].n_seen
        return Ensemble(
            self.n_features,
            self.models.with_item(place, model),
            self.index.with_model(place, model.inputs),
            self.index_of_means.with_model(place, _mean_input(model)),
            self.n_learned + model.n_seen - n_seen_before,
            self.joint_models,
        )

    def around(self, point: Array, n_models: int) -> list[int]:
        """Numbers of the models whose pseudo-inputs' means are nearest to `point` (d,), nearest first."""
        n_models = min(n_models, len(self))
        return self.index_of_means.owners(point[None], n_models)[0].tolist() if n_models else []

    def closest(self, X: Array, n_models: int) -> list[int]:
        """Numbers of the models whose pseudo-inputs are nearest to the rows `X` (n, d), taken together.

        Rows vote for the models nearest to them, for the nearest most; at most `n_models`, most votes first. Of many
        rows some vote, evenly spread.
        """
        n_models = min(n_models, len(self))
        if not n_models:
            return []
        voters = X[:: -(-len(X) // _MOST_VOTERS)]
        owners = self.index.owners(voters, n_models)
        weights = np.tile(1.0 / np.arange(1, n_models + 1), len(voters))
        numbers, places = np.unique(owners, return_inverse=True)
        votes = np.bincount(places.ravel(), weights)
        return numbers[np.argsort(-votes, kind="stable")[:n_models]].tolist()

    def neighbours(self, number: int, n_models: int) -> list[int]:
        """Numbers of the models closest to the pseudo-inputs of model `number`, without itself."""
        key = number, n_models
        if key not in self._known_neighbours:
            closest = self.closest(self.models[number].inputs, n_models + 1)
            self._known_neighbours[key] = [other for other in closest if other != number][:n_models]
        return self._known_neighbours[key]

    @cached_property
    def _known_neighbours(self) -> dict[tuple[int, int], list[int]]:
        """What was found out about neighbours: to look for them takes longer than to answer a query."""
        return {}

    def merged(self, numbers: tuple[int, int], model: LocalModel) -> "Ensemble":
        """The ensemble with this model in place of two; those after the second have the number before theirs."""
        first, second = sorted(numbers)
        models = [*self.models[:first], model, *self.models[first + 1 : second], *self.models[second + 1 :]]
        return replace(Ensemble.of(models, self.n_features), joint_models=self.joint_models)

    def with_neighbours(self, number: int, n_observations: int) -> LocalModel:
        """Model `number`, joined with its neighbours as far as they agree with it; so many observations in all."""
        others = self.neighbours(number, _MOST_NEIGHBOURS)
        return self.joint_models.of((self.models[number], *(self.models[other] for other in others)), n_observations)

    def answering(self, learner: Learner[Any], X: Array, y: Array) -> "Ensemble":
        """The ensemble that answers as if each row of `X` (n, d), `y` (n,) were learned by the model nearest to it."""
        owners, ensemble = self.index.owners(X)[:, 0], self
        for number in np.unique(owners).tolist():
            own = owners == number
            with suppress(ArithmeticError):  # then without these rows
                ensemble = ensemble.with_model(learner.condition(self.models[number], X[own], y[own]), number)
        return ensemble


def _mean_input(model: LocalModel) -> Array:
    """(1, d), the mean of a model's pseudo-inputs."""
    return model.inputs.mean(axis=0, keepdims=True)


def log_closeness(X: Array, centres: Array, lengthscales: Array) -> Array:
    """`log w = -1/2 |(x - centre) / lengthscales|^2` of rows `X` (n, d) to models (J, d) each: (n, J)."""
    squares = np.zeros((len(X), len(centres)))
    for x, centre, lengthscale in zip(X.T, centres.T, lengthscales.T, strict=True):
        squares += ((x[:, None] - centre) / lengthscale) ** 2
    return -0.5 * squares
