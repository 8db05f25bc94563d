"""How a model learned and how well it predicts: history and calibration."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy.special import ndtri

from wgpr.ensemble.evaluation import StepRecord
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.plots import style

_UPDATE, _NEW = "0.25", "#D55E00"


def plot_history(model: EnsembleRegressor, *, ax: Axes | None = None) -> Axes:
    """Draw which steps started a model, and the number of models.

    For a splitting rule that uses distances: in place of the number, those of the best candidate, and the threshold.
    """
    ax, records = ax or plt.gca(), model.history_
    if not records:
        style.write_in_middle(ax, "no history")
    elif any(record.distance is not None for record in records):
        _draw_distances(ax, records, _threshold(model))
    else:
        _draw_counts(ax, records, model.n_models_)
    ax.set_xlabel("step")
    return ax


def _threshold(model: EnsembleRegressor) -> float | None:
    settings = model.get_params(deep=False)
    rule = settings.get("splitting")
    threshold = settings["threshold"] if rule == "wasserstein" else getattr(rule, "threshold", None)
    return None if isinstance(threshold, str) else threshold


def _draw_distances(ax: Axes, records: Sequence[StepRecord], threshold: float | None) -> None:
    steps, w_old, w_new = np.array([(record.number, *_best_distances(record)) for record in records]).T
    ax.set_yscale("log")
    ax.plot(steps, w_old, "_", color=style.COLOURS[4], markeredgewidth=2, label="w_old")
    ax.plot(steps, w_new, "_", color=style.COLOURS[2], markeredgewidth=2, label="w_new")
    _draw_decisions(ax, records, w_old + w_new, "sum: ", "squared Wasserstein distance")
    if threshold is not None and 0.0 < threshold < np.inf:
        ax.axhline(threshold, color="0.4", linewidth=1.0, linestyle="--", label=f"threshold {threshold:g}")
        style.legend_above(ax)


def _best_distances(record: StepRecord) -> tuple[float, float]:
    """The two distances of the candidate that has the least sum of them."""
    pairs = zip(record.w_old, record.w_new, strict=True)
    known = ((old, new) for old, new in pairs if old is not None and new is not None)
    return min(known, key=sum, default=(np.nan, np.nan))


def _draw_counts(ax: Axes, records: Sequence[StepRecord], n_models: int) -> None:
    gained = np.array([sum(change.is_new for change in record.changes) - len(record.merged) for record in records])
    counts = n_models - gained.sum() + np.cumsum(gained)
    ax.step([record.number for record in records], counts, where="post", color="0.7", linewidth=1.0)
    _draw_decisions(ax, records, counts, "", "local models")
    ax.locator_params(axis="y", integer=True, min_n_ticks=1)


def _draw_decisions(ax: Axes, records: Sequence[StepRecord], heights: Array, prefix: str, quantity: str) -> None:
    """A mark for each step, ticks at the bottom for steps that started a model, a legend and the name of the axis."""
    steps = np.array([record.number for record in records])
    is_new = np.array([record.decision != "update" for record in records])
    ax.plot(steps[~is_new], heights[~is_new], ".", color=_UPDATE, markersize=4, label=f"{prefix}update")
    ax.plot(steps[is_new], heights[is_new], "^", color=_NEW, markersize=4, label=f"{prefix}new model")
    style.draw_ticks(ax, steps[is_new], _NEW)
    ax.locator_params(axis="x", integer=True, min_n_ticks=1)
    ax.set_ylabel(quantity)
    style.legend_above(ax)


def plot_calibration(y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the fraction of observations inside central intervals against the nominal fraction.

    Above the diagonal the intervals are too wide, below it they are too narrow. With a model:
    `plot_calibration(y_test, *model.predict(X_test, return_std=True))`.

    Parameters
    ----------
    y : (n,) observations, mean, std : (n,) predictions of them.
    """
    observed, expected, spread = (np.asarray(part, dtype=np.float64) for part in (y, mean, std))
    if not observed.shape == expected.shape == spread.shape or observed.ndim != 1 or not len(observed):
        raise ValueError(f"y, mean and std must be (n,) each, got {observed.shape}, {expected.shape}, {spread.shape}")
    if not np.isfinite([observed, expected, spread]).all() or spread.min() <= 0.0:
        raise ValueError("y, mean and std must be finite, and std above 0")
    deviations, ax = np.sort(np.abs(observed - expected) / spread), ax or plt.gca()
    nominal = np.linspace(0.0, 1.0, 101)
    inside = np.searchsorted(deviations, ndtri(0.5 + 0.5 * nominal), side="right") / len(deviations)
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=1.0, linestyle="--", label="ideal")
    ax.plot(nominal, inside, color=style.COLOURS[0], label=f"{inside[95]:.1%} inside 95 %")
    ax.set(xlabel="nominal part", ylabel="observed part", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    ax.legend(loc="best", frameon=False)
    return ax
