"""Calibration of the uncertainty by the stream itself (docs/joining.md).

Batches are predicted before they are learned. The standard deviation of the field is multiplied by the factor with
which 5 % of their rows fall outside the 95 % interval.
"""

from dataclasses import dataclass, field

import numpy as np

from wgpr.gp.linalg import Array

# The latest rows count, so that a changing field is followed; fewer than _ENOUGH rows leave the factor as it is.
_WINDOW = 2000
_ENOUGH = 200

# Once the window is full, every third batch is predicted: prediction takes as long as learning.
_EVERY = 3

_HALF_WIDTH, _OUTSIDE = 1.959964, 0.05
_LEAST, _MOST = 0.3, 5.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """Forecasts of the latest rows, and the factor for standard deviations of the field that follows from them.

    residuals : (n, 3): error of the forecast, variance of the field, variance of the noise; with several outputs
        (n, 3, k), and all of them count alike.
    initial_factor : the factor as long as there are too few of them.
    """

    residuals: Array = field(default_factory=lambda: np.empty((0, 3)))
    initial_factor: float = 1.0
    factor: float = field(init=False)

    def __post_init__(self) -> None:
        is_enough = len(self.residuals) >= _ENOUGH
        object.__setattr__(self, "factor", _factor(self.residuals) if is_enough else self.initial_factor)

    def is_due(self, n_steps: int) -> bool:
        """Whether the batch after so many steps should be predicted."""
        return len(self.residuals) < _WINDOW or n_steps % _EVERY == 0

    def updated(self, error: Array, variance: Array, noise: Array) -> "Calibration":
        """After these forecasts too, (n,) or (n, k) each."""
        rows = np.stack([error, variance, noise], axis=1)
        before = self.residuals if len(self.residuals) else rows[:0]
        return Calibration(np.concatenate([before, rows])[-_WINDOW:], self.initial_factor)


def _factor(residuals: Array) -> float:
    """The factor `c` with which 5 % of the rows are outside."""
    error, variance, noise = residuals.swapaxes(0, 1)
    # A row is inside, |e| <= w sqrt(c^2 v + s^2), from c = sqrt((e^2 / w^2 - s^2) / v) on.
    excess = np.maximum((error / _HALF_WIDTH) ** 2 - noise, 0.0)
    with np.errstate(over="ignore"):  # infinite where the variance is zero
        needed = np.sqrt(excess / np.maximum(variance, np.finfo(float).tiny))
    return float(np.quantile(needed, 1.0 - _OUTSIDE, method="higher").clip(_LEAST, _MOST))
