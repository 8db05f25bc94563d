"""What is known of the values of a map, and which values are far outside of that."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import user_bounds
from wgpr.io.grids import framed, predict_one_output

# Rows to be seen before a value can be called far outside.
MIN_KNOWN = 20

# A value is far if its distance from the known values is so many times their size: metres in a map of kilometres are
# a factor of 1000. Targets vary more than inputs do.
_INPUT_FACTOR, _TARGET_FACTOR = 100.0, 1000.0
# A number that often stands for no data is far if its distance is so many times the known range.
_NO_DATA = [-999.0, -32768.0, 32767.0, *(sign * (10.0**n - 1) for n in range(4, 9) for sign in (-1, 1))]
_NO_DATA_FACTOR = 10.0
_HUGE = 1e30
# Rows that represent a map.
_SAMPLE = 200


@dataclass(frozen=True, eq=False)
class KnownRange:
    """What is known of k columns. low, high : (k,); reach : (k,), how far outside of these a value is plausible."""

    low: Array
    high: Array
    reach: Array

    @classmethod
    def of_columns(cls, rows: Array) -> "KnownRange":
        """The middle half of each column of `rows` (n, k), which a few wrong values do not change."""
        low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
        size = np.maximum(high - low, np.abs(middle))
        return cls(low, high, np.where(size > 0, _TARGET_FACTOR * size, inf))

    @classmethod
    def of_bounds(cls, low: Array, high: Array) -> "KnownRange":
        """By the least and greatest values (k,) of inputs and, last, target.

        Inputs have a common reach, because a survey may begin with a straight line along one of them.
        """
        size = np.maximum(high - low, np.maximum(np.abs(low), np.abs(high)))
        reach = np.append(np.full(len(size) - 1, _INPUT_FACTOR * size[:-1].max()), _TARGET_FACTOR * size[-1])
        return cls(low, high, np.where(reach > 0, reach, inf))

    @classmethod
    def of_map(cls, model: EnsembleRegressor) -> "KnownRange":
        """All inputs that a map has seen and, last, its targets: at pseudo-inputs, and of rows that wait.

        Inputs are those of the user.
        """
        y = np.ravel(model._state.pending_y)
        if model.n_models_:
            X = np.concatenate(model.pseudo_inputs_)
            y = np.append(y, predict_one_output(model, framed(model, X[:: 1 + len(X) // _SAMPLE]))[0])
        low, high = user_bounds(model)
        return cls.of_bounds(np.append(low, y.min()), np.append(high, y.max()))

    def is_far(self, rows: Array) -> NDArray[np.bool_]:
        """Which values of `rows` (n, k) are far outside."""
        distance = np.maximum(self.low - rows, rows - self.high)
        is_no_data = np.isin(rows, _NO_DATA) & (distance > _NO_DATA_FACTOR * (self.high - self.low))
        is_huge = (np.abs(rows) >= _HUGE) & (np.maximum(np.abs(self.low), np.abs(self.high)) < _HUGE)
        return (distance > self.reach) | is_no_data | is_huge

    def describe(self, column: int) -> str:
        return f"far outside of the known range, {self.low[column]:.6g} to {self.high[column]:.6g}"
