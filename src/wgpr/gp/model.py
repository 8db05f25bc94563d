"""What every local model and every learner can do: the contract between the mathematics and the ensemble."""

from dataclasses import fields
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from wgpr.gp.gaussian import Gaussian
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array


class LocalModel(Protocol):
    """A Gaussian process that has learned some of the data: an immutable value."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def theta(self) -> Hyperparameters: ...

    @property
    def inputs(self) -> Array:
        """(M, d): pseudo-inputs, or the data that it keeps."""

    @property
    def centre(self) -> Array:
        """(d,): mean of all inputs that it has seen."""

    @property
    def n_seen(self) -> int:
        """Number of rows that it has seen."""

    @property
    def log_evidence(self) -> float:
        """Of the latest rows, given those before them."""

    @property
    def n_evaluations(self) -> int:
        """Number of evaluations of the bound for the latest rows."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and variance (n,) of the field at `X` (n, d); with k outputs the mean is (n, k)."""

    def posterior(self, X: Array) -> Gaussian:
        """The field at `X` (n, d), with its full covariance."""


class PickledByFields:
    """A dataclass whose copies and pickles hold its fields only, without cached properties."""

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(cast(Any, self))}


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


def seen_by_both(model: LocalModel, other: LocalModel) -> tuple[int, Array]:
    """Number of rows that two models have seen together, and the mean (d,) of their inputs."""
    n_seen = model.n_seen + other.n_seen
    return n_seen, model.centre + (other.centre - model.centre) * (other.n_seen / n_seen)
