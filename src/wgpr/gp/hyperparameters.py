"""What "long", "large" and "likely" mean to one model: the scale of its data, and a weak prior in that scale."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, read_only

# A spread below this part of the magnitude is rounding: the column (or the target) is constant.
_CONSTANT = 1e-13

# Box of the hyperparameters, as factors of the data's scale. A length-scale beyond it has no slope left to
# come back by; an amplitude beyond it extrapolates to values that no data ever had; noise above all that the data
# vary would explain them by nothing.
_AMPLITUDE = (1e-1, 3.0)
_LENGTHSCALE = (1e-2, 1e2)
_SHAPE = (1e-2, 1e2)
_NOISE = (1e-3, 1.0)

_TYPICAL_NOISE = 0.3

# A fresh model tries short and long length-scales: the bound has more than one hill.
LENGTHSCALE_FACTORS = (0.5, 2.0)

# Spread of the logarithm: around typical values for a new model, around its own from one batch to the next.
STD_OF_NEW = 0.7
STD_OF_STEP = 0.25


@dataclass(frozen=True)
class Scales:
    """How far the data of one model spread.

    inputs : (d,) standard deviation of each input; target : root mean square around the prior mean, of all outputs.
    """

    inputs: Array
    target: float

    def __post_init__(self) -> None:
        read_only(self.inputs)

    @classmethod
    def of(cls, X: Array, y: Array, mean: float | Array, fallback: "Scales | None" = None) -> "Scales":
        """Scales of inputs `X` (n, d) and targets `y` (n,) or (n, k) around the prior mean.

        What does not vary here is taken from `fallback`. Without one, a constant column spreads as far as
        the others: on a straight survey line one coordinate hardly changes, and has the unit of the other.
        """
        inputs, is_constant = _spread(X), constant_columns(X)
        if is_constant.any():
            inputs[is_constant] = _spread_elsewhere(X, inputs, is_constant, fallback)
        target, level = root_mean_square(y - mean), float(np.abs(mean).max())
        if target <= _CONSTANT * level:
            target = fallback.target if fallback is not None else level or 1.0
        return cls(inputs, target)

    def widened(self, other: "Scales") -> "Scales":
        return Scales(np.maximum(self.inputs, other.inputs), max(self.target, other.target))


def constant_columns(X: Array) -> NDArray[np.bool_]:
    """Which columns of `X` (n, d) do not vary, but for rounding: (d,)."""
    return _spread(X) <= _CONSTANT * np.abs(X).max(axis=0)


def root_mean_square(values: Array) -> float:
    """Of numbers of any size: their squares need not be representable."""
    largest = np.abs(values).max()
    return float(largest * np.sqrt(np.mean((values / largest) ** 2))) if largest > 0 else 0.0


def _spread(X: Array) -> Array:
    """Standard deviation of each column, of numbers of any size."""
    return np.array([root_mean_square(column) for column in (X - X.mean(axis=0)).T])


def _spread_elsewhere(
    X: Array, inputs: Array, is_constant: NDArray[np.bool_], fallback: Scales | None
) -> Array | float:
    if fallback is not None:
        return fallback.inputs[is_constant]
    if not is_constant.all():
        return inputs[~is_constant].mean()
    return float(np.abs(X).max()) or 1.0


def default_hyperparameters(kernel: Kernel, scales: Scales, stretch: float = 1.0) -> Hyperparameters:
    """Hyperparameters before any learning.

    Distances grow with the root of the dimension, and so do length-scales, `stretch` times that.
    """
    lengthscales = stretch * np.sqrt(len(scales.inputs)) * scales.inputs
    return Hyperparameters(scales.target, lengthscales, _TYPICAL_NOISE * scales.target, kernel.initial_shape())


class Prior:
    """What is believed about the hyperparameters before a batch: log-normal, in a box.

    It is a filter: a new model is believed to be typical for its scale, a model that has learned to stay about
    as it is. A few nats, nothing against data that know better; but a batch knows little of an input that it
    hardly varies, and without a prior the first batch switches such an input off for ever (one streamed model on
    kin40k: RMSE 0.69 in place of 0.5).

    Parameters
    ----------
    centre : the most likely hyperparameters; std : of the logarithm of each around it.

    Attributes
    ----------
    box : (2, n) bounds of `Hyperparameters.to_log()`.
    """

    def __init__(self, kernel: Kernel, scales: Scales, centre: Array, std: Array | float) -> None:
        self._mean, self._std = centre, std
        self.box = np.stack([_corner(kernel, scales, side) for side in (0, 1)])

    @classmethod
    def of_new_model(cls, kernel: Kernel, scales: Scales, like: Hyperparameters | None = None) -> "Prior":
        """Around typical values for the scales of the data, or around those of a model that it is like."""
        return cls(kernel, scales, (like or default_hyperparameters(kernel, scales)).to_log(), STD_OF_NEW)

    @classmethod
    def of_next_batch(cls, kernel: Kernel, scales: Scales, theta: Hyperparameters) -> "Prior":
        """Around what the model has learned so far."""
        return cls(kernel, scales, theta.to_log(), STD_OF_STEP)

    def log_density(self, log_theta: Array) -> tuple[float, Array]:
        """Up to a constant, and its gradient."""
        z = (log_theta - self._mean) / self._std
        return -0.5 * float(z @ z), -z / self._std


def _corner(kernel: Kernel, scales: Scales, side: int) -> Array:
    return Hyperparameters(
        _AMPLITUDE[side] * scales.target,
        _LENGTHSCALE[side] * scales.inputs,
        _NOISE[side] * scales.target,
        np.full(kernel.n_shape, _SHAPE[side]),
    ).to_log()
