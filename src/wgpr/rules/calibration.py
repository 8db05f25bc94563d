"""Does the 95 % interval hold what it promises? The stream itself tells (docs/joining.md).

Batches are predicted before they are learned. If more than 5 % of their rows fall outside the interval, the field is
less certain than the models believe, and the standard deviation of the field is stretched until 5 % do.
"""

from dataclasses import dataclass, field

import numpy as np

from wgpr.gp.linalg import Array

# The latest rows count, so that a field that changes is followed; fewer than this many say nothing yet.
_WINDOW = 2000
_ENOUGH = 200

# Once the window is full, every so many-th batch is enough: to predict a batch well takes as long as to learn it.
_EVERY = 3

_WIDTH, _MISSED = 1.959964, 0.05
_LEAST, _MOST = 0.3, 5.0


def _nothing() -> Array:
    return np.empty((0, 3))


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the latest rows were like before they were learned.

    residuals : (n, 3): error of the prediction, variance of the field, variance of the noise; of several outputs
        (n, 3, k), and all of them count alike.
    before : the factor as long as there are too few of them.
    """

    residuals: Array = field(default_factory=_nothing)
    before: float = 1.0

    def needs(self, n_steps: int) -> bool:
        """Whether the batch after so many steps should be predicted."""
        return len(self.residuals) < _WINDOW or n_steps % _EVERY == 0

    def seen(self, error: Array, variance: Array, noise: Array) -> "Calibration":
        """After these rows too, (n,) or (n, k) each."""
        rows = np.stack([error, variance, noise], axis=1)
        before = self.residuals if len(self.residuals) else rows[:0]
        return Calibration(np.concatenate([before, rows])[-_WINDOW:], self.before)

    @property
    def factor(self) -> float:
        """By which to stretch standard deviations of the field."""
        if len(self.residuals) < _ENOUGH:
            return self.before
        error, variance, noise = self.residuals.swapaxes(0, 1)
        # A row is inside, |e| <= w sqrt(c^2 v + s^2), from c = sqrt((e^2 / w^2 - s^2) / v) on.
        excess = np.maximum((error / _WIDTH) ** 2 - noise, 0.0)
        with np.errstate(over="ignore"):  # infinity where the field was thought to be known
            needed = np.sqrt(excess / np.maximum(variance, np.finfo(float).tiny))
        return float(np.quantile(needed, 1.0 - _MISSED, method="higher").clip(_LEAST, _MOST))
