"""What every local model and every learner can do: the contract between the mathematics and the ensemble."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from wgpr.gp.gaussian import Gaussian
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, column_squares


class PickledByFields:
    """A dataclass whose copies and pickles hold its fields only, without cached properties."""

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(cast(Any, self))}


@dataclass(frozen=True, eq=False, repr=False)
class LocalModel(PickledByFields, ABC):
    """A Gaussian process that has learned some of the data: an immutable value. Learning more returns another one.

    kernel, theta, mean : the prior. inputs : (M, d) pseudo-inputs, or the rows that it keeps.
    n_seen, centre : number of rows seen, kept or not, and their mean (d,).
    log_evidence : of the latest rows given those before them; n_evaluations : of the bound, for these rows.
    Of several outputs mean is (k,), and log_evidence a sum.
    """

    kernel: Kernel
    theta: Hyperparameters
    mean: float | Array
    inputs: Array
    n_seen: int
    centre: Array
    log_evidence: float
    n_evaluations: int = field(default=0, kw_only=True)

    @abstractmethod
    def _explained(self, X: Array) -> tuple[Array, Array]:
        """At `X` (n, d): the mean beyond the prior mean, (n,) or (n, k), and `V`: the covariance falls by `V^T V`."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and variance (n,) of the field at `X` (n, d); with k outputs the mean is (n, k)."""
        shift, V = self._explained(X)
        return self.mean + shift, np.maximum(self.kernel.variance(self.theta) - column_squares(V), 0.0)

    def posterior(self, X: Array) -> Gaussian:
        """The field at `X` (n, d), with its full covariance."""
        shift, V = self._explained(X)
        return Gaussian(self.mean + shift, self.kernel(self.theta, X, X) - V.T @ V)

    def seen_with(self, other: "LocalModel") -> tuple[int, Array]:
        """Number of rows that this and another model have seen together, and the mean (d,) of their inputs."""
        n_seen = self.n_seen + other.n_seen
        return n_seen, self.centre + (other.centre - self.centre) * (other.n_seen / n_seen)


Model = TypeVar("Model", bound=LocalModel)


class Learner(Protocol[Model]):
    """How local models start, learn and merge."""

    @property
    def theta(self) -> Hyperparameters | None:
        """Hyperparameters that all models share, or None if each learns its own."""

    def start(self, X: Array, y: Array, rng: np.random.Generator, nearest: Model | None = None) -> Model:
        """A new model of the rows `X` (n, d), `y` (n,) or (n, k); the nearest model informs its prior."""

    def update(self, model: Model, X: Array, y: Array, rng: np.random.Generator) -> Model:
        """The model that has learned these rows too; raises ArithmeticError if there is none."""

    def quick_fit(self, X: Array, y: Array) -> Model:
        """A model of a few rows with default hyperparameters, to answer before the first batch is full."""

    def condition(self, model: Model, X: Array, y: Array) -> Model:
        """The model conditioned on more rows, exactly and with the same hyperparameters."""

    def merge(self, model: Model, other: Model) -> Model:
        """One model of all that both have seen, with the hyperparameters of the first."""
