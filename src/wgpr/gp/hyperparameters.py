"""Scales of a model's data, and defaults and priors of its hyperparameters (docs/territories.md, 2)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, read_only

# A column (or target) whose spread is below this fraction of its magnitude counts as constant.
_CONSTANT = 1e-13

# A column depends on the others if they explain it linearly but for this fraction of its spread.
_DEPENDENT = 0.1

# Added to the mean squares of columns between -1 and 1 before they are inverted.
_RIDGE = 1e-9

# Box of the hyperparameters, as factors of the data's scale. Beyond it the evidence has no gradient in a length-scale,
# an amplitude extrapolates to values that no data had, and noise explains all of the data.
_AMPLITUDE = (1e-1, 3.0)
_LENGTHSCALE = (1e-2, 1e2)
_SHAPE = (1e-2, 1e2)
_NOISE = (1e-3, 1.0)

_DEFAULT_NOISE = 0.3

# A new model starts from short and from long length-scales: the bound has several local maxima.
LENGTHSCALE_FACTORS = (0.5, 2.0)

# Prior standard deviation of log hyperparameters: of a new model, and of a model from one batch to the next.
STD_OF_NEW = 0.7
STD_OF_STEP = 0.25


@dataclass(frozen=True)
class Scales:
    """Spread of the data of one model.

    inputs : (d,) standard deviation of each input; target : root mean square around the prior mean, of all outputs.
    """

    inputs: Array
    target: float

    def __post_init__(self) -> None:
        read_only(self.inputs)

    @classmethod
    def of(cls, X: Array, y: Array, mean: float | Array, fallback: "Scales | None" = None) -> "Scales":
        """Scales of inputs `X` (n, d) and targets `y` (n,) or (n, k) around the prior mean.

        A column that is constant here has the scale of `fallback`. Without one it has the mean scale of the others: on
        a straight survey line one coordinate hardly changes, and has the unit of the other.
        """
        inputs, is_constant = _spread(X), constant_columns(X)
        if fallback is not None:
            inputs[is_constant] = fallback.inputs[is_constant]
        elif is_constant.all():
            inputs[:] = float(np.abs(X).max()) or 1.0
        elif is_constant.any():
            inputs[is_constant] = inputs[~is_constant].mean()
        target, level = root_mean_square(y - mean), float(np.abs(mean).max())
        if target <= _CONSTANT * level:
            target = fallback.target if fallback is not None else level or 1.0
        return cls(inputs, target)

    @classmethod
    def of_track(cls, X: Array, y: Array, mean: float | Array) -> "Scales":
        """Scales of rows along a track. Columns that are functions of each other there share one scale.

        On one survey line that is not parallel to an axis, the smaller spread says how the line is directed. It says
        nothing of the field across the line.
        """
        scales = cls.of(X, y, mean)
        return replace(scales, inputs=with_common_scale(scales.inputs, X))

    def widened(self, other: "Scales") -> "Scales":
        """The larger of both scales, in each column."""
        return Scales(np.maximum(self.inputs, other.inputs), max(self.target, other.target))


def constant_columns(X: Array) -> NDArray[np.bool_]:
    """Which columns of `X` (n, d) are constant up to rounding: (d,)."""
    return _spread(X) <= _CONSTANT * np.abs(X).max(axis=0)


def with_common_scale(scales: Array, X: Array) -> Array:
    """Scales (d,) of the columns of `X` (n, d); those of columns that a line explains are that of the whole line."""
    is_dependent = _spread(unexplained(X)) < _DEPENDENT * _spread(X)
    return np.where(is_dependent, np.sqrt((scales[is_dependent] ** 2).sum()), scales)


def unexplained(X: Array) -> Array:
    """What linear functions of all other columns do not explain of each column of `X` (n, d): (n, d).

    The residuals of column i are `R P_i / P_ii`, with R the centred columns and `P = (R^T R)^-1`. There are none to
    speak of with fewer than two rows for each column.
    """
    centred = X - X.mean(axis=0)
    n, d = centred.shape
    if d == 1 or n < 2 * d:
        return centred
    largest = np.abs(centred).max(axis=0)
    centred /= np.where(largest > 0.0, largest, 1.0)
    P = np.linalg.inv(centred.T @ centred + _RIDGE * n * np.eye(d))
    return (centred @ (P / P.diagonal())) * largest


def root_mean_square(values: Array) -> float:
    """Root mean square, without overflow of the squares."""
    largest = np.abs(values).max()
    return float(largest * np.sqrt(np.mean((values / largest) ** 2))) if largest > 0 else 0.0


def _spread(X: Array) -> Array:
    """Standard deviation of each column, without overflow."""
    return np.array([root_mean_square(column) for column in (X - X.mean(axis=0)).T])


def default_hyperparameters(kernel: Kernel, scales: Scales, stretch: float = 1.0) -> Hyperparameters:
    """Hyperparameters before any learning.

    Length-scales are `stretch` times the scales, times the square root of the dimension, as distances are.
    """
    lengthscales = stretch * np.sqrt(len(scales.inputs)) * scales.inputs
    return Hyperparameters(scales.target, lengthscales, _DEFAULT_NOISE * scales.target, kernel.initial_shape())


@dataclass(frozen=True, eq=False)
class HyperPrior:
    """Prior of the log hyperparameters of one model: independent normal distributions, truncated to a box.

    A weak prior changes little where the data are informative. A batch says little of an input that it hardly varies,
    and without a prior the first batch switches such an input off for ever (one streamed model on kin40k: RMSE 0.69 in
    place of 0.5).

    mean, std : (p,) of `Hyperparameters.to_log()`; box : (2, p), its lower and upper bounds.
    """

    mean: Array
    std: Array
    box: Array

    @classmethod
    def around(cls, kernel: Kernel, scales: Scales, theta: Hyperparameters, std: float) -> "HyperPrior":
        """Centred on `theta`, in the box that fits the scales of the data."""
        corners = [
            Hyperparameters(amplitude * scales.target, length * scales.inputs, noise * scales.target, shape)
            for amplitude, length, noise, shape in zip(
                _AMPLITUDE, _LENGTHSCALE, _NOISE, np.outer(_SHAPE, np.ones(kernel.n_shape)), strict=True
            )
        ]
        mean = theta.to_log()
        return cls(mean, np.full(len(mean), std), np.stack([corner.to_log() for corner in corners]))

    @classmethod
    def of_new_model(cls, kernel: Kernel, scales: Scales) -> "HyperPrior":
        """Before any learning: around default values."""
        return cls.around(kernel, scales, default_hyperparameters(kernel, scales), STD_OF_NEW)

    def combined(self, other: "HyperPrior") -> "HyperPrior":
        """The product of two priors, in the box of this one."""
        precision, others = self.std**-2, other.std**-2
        total = precision + others
        return HyperPrior((precision * self.mean + others * other.mean) / total, total**-0.5, self.box)

    def clip(self, theta: Hyperparameters) -> Hyperparameters:
        """The nearest hyperparameters inside the box."""
        return Hyperparameters.from_log(theta.to_log().clip(*self.box), len(theta.lengthscales))

    def log_density(self, log_theta: Array) -> tuple[float, Array]:
        """Log density up to a constant, and its gradient (p,)."""
        z = (log_theta - self.mean) / self.std
        return -0.5 * float(z @ z), -z / self.std
