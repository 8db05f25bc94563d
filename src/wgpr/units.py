"""The units that an ensemble works in: those of its first rows, whatever units the user has.

Optimisation is chaotic: a change in the last digit of one number can end in another, equally good optimum. Rows are
therefore shifted, scaled and rounded (to 26 binary digits of the spread, far below any noise), so that metres and
kilometres give the same numbers to the last bit, and with them the same ensemble.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wgpr.kernels import Hyperparameters
from wgpr.linalg import Array
from wgpr.scales import Scales, constant_columns, root_mean_square

_STEPS = 2.0**26

# Further away than this all queries are the same: nothing is known there, and squares must be representable.
_FAR = 1e60


@dataclass(frozen=True, eq=False)
class Units:
    """One unit of length for all inputs, so that nearest stays nearest, and one for the target.

    origin, spread : (d,) of the inputs; ratio : (d,) of each spread to the unit of length.
    zero, height : origin and unit of the target.
    rounds_inputs : (d,), rounds_target : whether the spread is known, and so what is too small to matter.
    """

    origin: Array
    spread: Array
    ratio: Array
    zero: float
    height: float
    rounds_inputs: NDArray[np.bool_]
    rounds_target: bool

    @classmethod
    def of(cls, X: Array, y: Array) -> "Units":
        """Units that suit the rows `X` (n, d), `y` (n,)."""
        origin, zero = np.median(X, axis=0), float(np.median(y))
        scales = Scales.of(X, y, zero)
        spread = _typical_deviation(X, origin, otherwise=scales.inputs)
        height = _typical_deviation(y[:, None], zero, otherwise=scales.target)
        ratio = spread / root_mean_square(spread)
        mantissa, exponent = np.frexp(ratio)
        return cls(
            origin,
            spread,
            np.ldexp(_rounded(mantissa), exponent),
            zero,
            float(height[0]),
            ~constant_columns(X),
            not constant_columns(y[:, None])[0],
        )

    @property
    def length(self) -> Array:
        """(d,): one unit of length, in the user's units."""
        return self.spread / self.ratio

    def inputs(self, X: Array) -> Array:
        """The user's inputs (n, d) in these units."""
        relative = ((X - self.origin) / self.spread).clip(-_FAR, _FAR)
        return np.where(self.rounds_inputs, _rounded(relative), relative) * self.ratio

    def targets(self, y: Array) -> Array:
        """The user's targets (n,) in these units."""
        relative = (y - self.zero) / self.height
        return _rounded(relative) if self.rounds_target else relative

    def inputs_for_user(self, X: Array) -> Array:
        """Inputs (n, d) of these units in the user's."""
        return self.origin + X * self.length

    def hyperparameters(self, theta: Hyperparameters) -> Hyperparameters:
        """The user's hyperparameters in these units."""
        return theta.scaled(1.0 / self.length, 1.0 / self.height)

    def for_user(self, theta: Hyperparameters) -> Hyperparameters:
        """Hyperparameters of these units in the user's."""
        return theta.scaled(self.length, self.height)


def _typical_deviation(X: Array, centre: Array | float, otherwise: Array | float) -> Array:
    """Of each column: the median, because one outlier must not make everything else too small to matter."""
    median = np.median(np.abs(X - centre), axis=0)
    return np.where(median > 0, median, otherwise)


def _rounded(values: Array) -> Array:
    return np.round(values * _STEPS) / _STEPS
