"""What every local model and every learner can do: the contract between the mathematics and the ensemble."""

from typing import Protocol, TypeVar

import numpy as np

from wgpr.gaussian import Gaussian
from wgpr.kernels import Hyperparameters, Kernel
from wgpr.linalg import Array


class LocalModel(Protocol):
    """A Gaussian process that has learned some of the data: an immutable value."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def theta(self) -> Hyperparameters: ...

    @property
    def inputs(self) -> Array:
        """(M, d): where the model keeps its knowledge; pseudo-inputs, or data."""

    @property
    def centre(self) -> Array:
        """(d,): mean of all the inputs that it has seen."""

    @property
    def n_seen(self) -> int:
        """Number of rows that it has seen."""

    @property
    def log_evidence(self) -> float:
        """Of the latest rows, given those before them."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and variance (n,) of the field at `X` (n, d)."""

    def posterior(self, X: Array) -> Gaussian:
        """The field at `X` (n, d), with its full covariance."""


Model = TypeVar("Model", bound=LocalModel)


class Learner(Protocol[Model]):
    """How a local model comes to be and how it learns."""

    @property
    def theta(self) -> Hyperparameters | None:
        """Hyperparameters that all models share, or None if each learns its own."""

    def start(self, X: Array, y: Array, rng: np.random.Generator, like: Model | None = None) -> Model:
        """A new model of the rows `X` (n, d), `y` (n,); `like` is a neighbour to take a scale from."""

    def update(self, model: Model, X: Array, y: Array, rng: np.random.Generator) -> Model:
        """The model that has learned these rows too; raises ArithmeticError if there is none."""

    def preview(self, X: Array, y: Array) -> Model:
        """A quick model of a few rows, with typical hyperparameters: better than no answer."""


class NotFiniteError(ArithmeticError):
    """Learning led to numbers that are not finite."""


def require_finite(*arrays: Array | float) -> None:
    """Nothing but finite numbers becomes part of a model."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise NotFiniteError("learning led to numbers that are not finite")


def running_mean(mean: Array, n: int, X: Array) -> Array:
    """Mean (d,) of `n` rows with this mean and the rows `X` (m, d)."""
    return mean + (X - mean).sum(axis=0) / (n + len(X))
