"""Scores of predictions and of their uncertainty, for all rows at once or in pieces."""

from math import inf, isnan, pi, sqrt
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf

from wgpr.gp.linalg import Array

# Half the width of the central 95 % interval of a Gaussian, in standard deviations.
HALF_WIDTH_95 = 1.959963984540054

# The least standard deviation in the log density, which would be infinite for 0.
_LEAST_STD = 1e-100


class Scores(NamedTuple):
    """Errors are in the unit of the target, and less is better. Scores of the uncertainty are None without it.

    rmse : root mean squared error; mae : mean absolute error.
    nlpd : mean negative log predictive density of the targets, under the predicted Gaussians.
    crps : mean continuous ranked probability score; without uncertainty it would be the absolute error.
    coverage : fraction of the targets in the central 95 % interval; 0.95 is ideal.
    smse : mean squared error over the variance of the targets; 1 is no better than their mean.
    """

    rmse: float
    mae: float
    nlpd: float | None
    crps: float | None
    coverage: float | None
    smse: float


class RunningScores:
    """Scores of predictions that arrive in pieces, in constant memory; equal to `scores` up to rounding."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._sums = np.zeros(7)  # of the losses, and of the targets and their squares
        self._origin = 0.0  # of the targets in these sums: one of them, so that their variance is exact

    def add(self, y: ArrayLike, mean: ArrayLike, std: ArrayLike | None = None) -> Self:
        """Add targets `y` (n,) with the predicted means (n,) and standard deviations (n,)."""
        targets, means = _checked("y", y), _checked("mean", mean)
        stds = np.full(len(targets), np.nan) if std is None else _checked("std", std, least=0.0)
        if not len(targets) == len(means) == len(stds):
            raise ValueError(f"y, mean and std must be equally long, got {len(targets)}, {len(means)} and {len(stds)}")
        if len(targets):
            self._origin = self._origin if self.n_rows else float(targets[0])
            shifted = targets - self._origin
            self._sums += np.vstack([_losses(targets - means, stds), shifted, shifted**2]).sum(axis=1)
            self.n_rows += len(targets)
        return self

    def result(self) -> Scores:
        """The scores of all rows so far."""
        if not self.n_rows:
            raise ValueError("there are no scores before the first row; call add")
        mse, mae, *others, shift, square = (self._sums / self.n_rows).tolist()
        nlpd, crps, coverage = (None if isnan(score) else score for score in others)
        of_constant_targets, variance = inf if mse > 0 else 0.0, square - shift**2
        smse = mse / variance if variance > 0 else of_constant_targets
        return Scores(sqrt(mse), mae, nlpd, crps, coverage, smse)


def scores(y: ArrayLike, mean: ArrayLike, std: ArrayLike | None = None) -> Scores:
    """Scores of predictions.

    y : (n,) targets; mean : (n,) predictions.
    std : (n,) standard deviations: of the field if `y` has no noise, of an observation if it has. 0 is allowed, and
        counts as 1e-100 in the log density, so that no score is NaN or minus infinity.
    """
    return RunningScores().add(y, mean, std).result()


def _checked(name: str, values: ArrayLike, least: float = -inf) -> Array:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got the shape {array.shape}")
    if not (np.isfinite(array).all() and (array >= least).all()):
        raise ValueError(f"{name} must be finite" + (f" and at least {least:g}" if least > -inf else ""))
    return array


def _losses(errors: Array, std: Array) -> Array:
    """(5, n): squared and absolute error, negative log density, CRPS, whether covered; NaN where `std` is."""
    floored = np.maximum(std, _LEAST_STD)
    with np.errstate(over="ignore"):
        z = errors / floored
        density = np.exp(-0.5 * z**2) / sqrt(2 * pi)
        nlpd = 0.5 * np.log(2 * pi) + np.log(floored) + 0.5 * z**2
    crps = errors * erf(z / sqrt(2)) + std * (2 * density - 1 / sqrt(pi))
    covered = np.where(np.isnan(std), np.nan, np.abs(errors) <= HALF_WIDTH_95 * std)
    return np.stack([errors**2, np.abs(errors), nlpd, crps, covered])
