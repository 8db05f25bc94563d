"""Internal units of an ensemble: location and scale of its first rows.

Optimisation is chaotic: a change in the last digit of one number can end in another, equally good optimum. Rows are
therefore shifted, scaled and rounded (to 26 binary digits of the spread, far below any noise), so that metres and
kilometres give the same numbers to the last bit, and the same ensemble.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgpr.gp.hyperparameters import Scales, constant_columns, root_mean_square, with_common_scale
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, columns

_STEPS = 2.0**26

# Inputs and targets are clipped to this many units from the origin, so that squares do not overflow. Those that are not
# rounded are at the origin if they are nearer than this, so that inverse squares do not overflow either.
_FAR, _NEAR = 1e60, 1e-50


@dataclass(frozen=True, eq=False)
class Units:
    """Units of length of the inputs, one for all or one for each, and one of the target: for each output.

    origin, spread : (d,) of the inputs; ratio : (d,) of each spread to the unit of length.
    target_offset, target_scale : origin and unit of the target; (k,) if there is a column for each output.
    rounds_inputs : (d,), rounds_target : whether values are rounded; not if the first rows are constant.
    """

    origin: Array
    spread: Array
    ratio: Array
    target_offset: float | Array
    target_scale: float | Array
    rounds_inputs: NDArray[np.bool_]
    rounds_target: bool | NDArray[np.bool_]

    @classmethod
    def of(cls, X: Array, y: Array, *, is_isotropic: bool = True) -> "Units":
        """Units that suit the rows `X` (n, d), `y` (n,) or (n, k).

        is_isotropic : one unit of length for all inputs, so that nearest stays nearest; otherwise one for each. Inputs
            that are functions of each other, as along one survey line, share one.
        """
        targets = columns(y)
        origin, target_offset = np.median(X, axis=0), np.median(targets, axis=0)
        scales = [Scales.of(X, target, middle) for target, middle in zip(targets.T, target_offset, strict=True)]
        spread = _typical_deviation(X, origin, otherwise=scales[0].inputs)
        if not is_isotropic:
            spread = with_common_scale(spread, X)
        target_scale = _typical_deviation(
            targets, target_offset, otherwise=np.array([scale.target for scale in scales])
        )
        ratio = spread / root_mean_square(spread) if is_isotropic else np.ones_like(spread)
        mantissa, exponent = np.frexp(ratio)
        return cls(
            origin,
            spread,
            np.ldexp(_rounded(mantissa), exponent),
            _of_outputs(target_offset, y),
            _of_outputs(target_scale, y),
            ~constant_columns(X),
            _of_outputs(~constant_columns(targets), y),
        )

    @property
    def length(self) -> Array:
        """(d,): one unit of length, in the user's units."""
        return self.spread / self.ratio

    @property
    def target_unit(self) -> float:
        """User units per internal target unit, for amplitudes, noises, distances and evidences.

        Several outputs have a unit each; a number for all of them stays in internal units: this is 1.
        """
        return float(np.ravel(self.target_scale)[0]) if np.size(self.target_scale) == 1 else 1.0

    def inputs(self, X: Array) -> Array:
        """The user's inputs (n, d) in these units."""
        relative = ((X - self.origin) / self.spread).clip(-_FAR, _FAR)
        return np.where(self.rounds_inputs, _rounded(relative), _without_tiny(relative)) * self.ratio

    def targets(self, y: Array) -> Array:
        """The user's targets (n,) or (n, k) in these units."""
        relative = ((y - self.target_offset) / self.target_scale).clip(-_FAR, _FAR)
        return np.where(self.rounds_target, _rounded(relative), _without_tiny(relative))

    def inputs_for_user(self, X: Array) -> Array:
        """Inputs (n, d) of these units in the user's."""
        return self.origin + X * self.length

    def hyperparameters(self, theta: Hyperparameters) -> Hyperparameters:
        """The user's hyperparameters in these units."""
        return theta.scaled(1.0 / self.length, 1.0 / self.target_unit)

    def for_user(self, theta: Hyperparameters) -> Hyperparameters:
        """Hyperparameters of these units in the user's."""
        return theta.scaled(self.length, self.target_unit)


def _of_outputs(values: NDArray[Any], y: Array) -> Any:
    """`values` (k,) of the outputs, or the only one as a number if `y` is (n,)."""
    return values if y.ndim > 1 else values.item()


def _typical_deviation(X: Array, centre: Array | float, otherwise: Array | float) -> Array:
    """Median absolute deviation of each column, which is robust against outliers; `otherwise` where it is zero."""
    median = np.median(np.abs(X - centre), axis=0)
    return np.where(median > 0, median, otherwise)


def _rounded(values: Array) -> Array:
    return np.round(values * _STEPS) / _STEPS


def _without_tiny(values: Array) -> Array:
    return np.where(np.abs(values) < _NEAR, 0.0, values)
