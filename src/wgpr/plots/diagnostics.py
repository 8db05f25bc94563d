"""Calibration of the predictions, and length-scales of the local models."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy.special import ndtri

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.grids import input_names
from wgpr.plots.style import COLOURS, axes_or_current, make_logarithmic, write_in_middle


def plot_calibration(y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the fraction of observations inside central intervals against the nominal fraction.

    Above the diagonal the intervals are too wide, below it they are too narrow. With a model:
    `plot_calibration(y_test, *model.predict(X_test, return_std=True))`.

    Parameters
    ----------
    y : (n,) observations, mean, std : (n,) predictions of them.
    """
    deviations, ax = np.sort(_standardised(y, mean, std)), axes_or_current(ax)
    nominal = np.linspace(0.0, 1.0, 101)
    inside = np.searchsorted(deviations, ndtri(0.5 + 0.5 * nominal), side="right") / len(deviations)
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1.0, linestyle="--", label="ideal")
    ax.plot(nominal, inside, color=COLOURS[0], label=f"{inside[95]:.1%} inside 95 %")
    ax.set(xlabel="nominal part", ylabel="observed part", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="best", frameon=False)
    return ax


def _standardised(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Array:
    """`|y - mean| / std`: (n,)."""
    observed, expected, spread = (np.asarray(part, dtype=np.float64) for part in (y, mean, std))
    if not observed.shape == expected.shape == spread.shape or observed.ndim != 1 or not len(observed):
        raise ValueError(f"y, mean and std must be (n,) each, got {observed.shape}, {expected.shape}, {spread.shape}")
    if not np.isfinite([observed, expected, spread]).all() or spread.min() <= 0.0:
        raise ValueError("y, mean and std must be finite, and std above 0")
    return np.abs(observed - expected) / spread


def plot_lengthscales(model: EnsembleRegressor, *, ax: Axes | None = None) -> Axes:
    """Draw the length-scales of all local models along each input, divided by the input's range.

    An input with length-scales far above 1 hardly matters. Bars are medians.
    """
    ax, names = axes_or_current(ax), input_names(model)
    if model.n_models_:
        ranges = np.ptp(model.bounds_, axis=0)
        lengthscales = np.array([theta.lengthscales for theta in model.hyperparameters_])
        _draw_strips(ax, lengthscales / np.where(ranges > 0.0, ranges, np.nan))
    else:
        write_in_middle(ax, "no local model yet")
    ax.set_xticks(range(len(names)), names, rotation=90 if len("".join(names)) > 40 else 0)
    ax.set_ylabel("length-scale / range")
    return ax


def _draw_strips(ax: Axes, values: Array) -> None:
    """The columns of `values` (J, d) side by side, each with its median; models are spread in their order."""
    spread = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else np.zeros(1)
    make_logarithmic(ax)
    for column, strip in enumerate(values.T):
        ax.plot(column + spread, strip, ".", color=COLOURS[0], markersize=4, alpha=0.6)
        ax.plot([column - 0.35, column + 0.35], 2 * [np.median(strip)], color=COLOURS[5], linewidth=1.5)
    ax.axhline(1.0, color="0.6", linewidth=1.0, linestyle="--")
