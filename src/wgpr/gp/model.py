"""What every local model and every learner can do: the contract between the mathematics and the ensemble."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from wgpr.gp.gaussian import Gaussian
from wgpr.gp.hyperparameters import Scales
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, read_only


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

    @property
    def n_evaluations(self) -> int:
        """How often the bound was computed to learn the latest rows."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) and variance (n,) of the field at `X` (n, d); of k outputs the mean is (n, k)."""

    def posterior(self, X: Array) -> Gaussian:
        """The field at `X` (n, d), with its full covariance."""


class PickledByFields:
    """A dataclass that is copied and saved without what it made for answers: that can be made again."""

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(cast(Any, self))}


class Neighbour(NamedTuple):
    """What a model tells to those beside it."""

    theta: Hyperparameters
    scales: Scales


class ClosedFormUpdate(NamedTuple):
    """A closed-form update, with nothing optimised: good enough to tell which candidates are worth more.

    moved : how far the model moves at its own inputs, as `movement` tells.
    at_rows : mean (n,) or (n, k) and variance (n,) of the field at the rows, afterwards.
    surprise : minus the log evidence of the rows.
    start : where optimising would begin, for whom it concerns.
    n_evaluations : how often the bound was computed.
    """

    moved: float
    at_rows: tuple[Array, Array]
    surprise: float
    start: Any = None
    n_evaluations: int = 0


Model = TypeVar("Model", bound=LocalModel)


class Learner(Protocol[Model]):
    """How a local model comes to be and how it learns."""

    @property
    def theta(self) -> Hyperparameters | None:
        """Hyperparameters that all models share, or None if each learns its own."""

    @property
    def n_neighbours(self) -> int:
        """How many neighbours it listens to."""

    def start(self, X: Array, y: Array, rng: np.random.Generator, neighbours: Sequence[Neighbour] = ()) -> Model:
        """A new model of the rows `X` (n, d), `y` (n,) or (n, k); `neighbours`, closest first, tell what is usual."""

    def update(
        self,
        model: Model,
        X: Array,
        y: Array,
        rng: np.random.Generator,
        neighbours: Sequence[Neighbour] = (),
        sketch: ClosedFormUpdate | None = None,
    ) -> Model:
        """The model that has learned these rows too; raises ArithmeticError if there is none.

        sketch : of the same update, if it was made.
        """

    def sketch(self, model: Model, X: Array, y: Array, rng: np.random.Generator) -> ClosedFormUpdate:
        """What is known of the update before anything is optimised; raises ArithmeticError if there is none."""

    def quick_fit(self, X: Array, y: Array) -> Model:
        """A quick model of a few rows, with typical hyperparameters: better than no answer."""

    def condition(self, model: Model, X: Array, y: Array) -> LocalModel:
        """A model that answers as if it had learned these rows too: nothing is optimised, nothing is left out."""

    def merged(self, model: Model, other: Model) -> Model:
        """One model that knows what both know, as well as it can."""

    def refine_with_neighbours(self, model: Model, neighbours: Sequence[Model]) -> Model:
        """The model after it has compared itself with its neighbours, closest first."""


class NotFiniteError(ArithmeticError):
    """Learning led to numbers that are not finite."""


def require_finite(*arrays: Array | float) -> None:
    """Nothing but finite numbers becomes part of a model."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise NotFiniteError("learning led to numbers that are not finite")


def mean_target(y: Array) -> float | Array:
    """The mean of targets (n,); of each output, (k,), if they are (n, k)."""
    return float(y.mean()) if y.ndim == 1 else read_only(y.mean(axis=0))


def running_mean(mean: Array, n: int, X: Array) -> Array:
    """Mean (d,) of `n` rows with this mean and the rows `X` (m, d)."""
    return mean + (X - mean).sum(axis=0) / (n + len(X))


def seen_by_both(model: LocalModel, other: LocalModel) -> tuple[int, Array]:
    """How many rows two models have seen together, and the mean (d,) of these."""
    n_seen = model.n_seen + other.n_seen
    return n_seen, model.centre + (other.centre - model.centre) * (other.n_seen / n_seen)
