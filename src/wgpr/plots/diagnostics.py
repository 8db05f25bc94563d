"""How a model learned and how well it predicts: history, calibration and length-scales."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy.special import ndtri

from wgpr.ensemble.evaluation import StepRecord
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.methods import TerritoryMethod
from wgpr.gp.linalg import Array
from wgpr.io.grids import input_names
from wgpr.plots import style

_UPDATE, _NEW = "0.25", "#D55E00"


def plot_history(model: EnsembleRegressor, *, ax: Axes | None = None) -> Axes:
    """Draw what each step was decided by, and which steps started a model.

    For a splitting rule that uses distances: those of the best candidate, and the threshold. For one that uses
    evidences: that of the best candidate, and that of a new model. For the default, if it has found another regime: the
    log evidence of the new rows of a territory, and that of the same rows as another regime. Otherwise, the number of
    models.
    """
    ax, records = ax or plt.gca(), model.history_
    if not records:
        style.write_in_middle(ax, "no history")
    elif any(record.distance is not None for record in records):
        _draw_distances(ax, records, _threshold(model))
    elif any(len(record.candidates) and record.evidence_new is not None for record in records):
        _draw_evidences(ax, records, is_default=isinstance(model._method(), TerritoryMethod))
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
    style.make_logarithmic(ax)
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


def _draw_evidences(ax: Axes, records: Sequence[StepRecord], *, is_default: bool) -> None:
    steps, best, new = np.array([(record.number, *_evidences(record)) for record in records]).T
    name_new = "as another regime" if is_default else "a model of the batch alone"
    ax.plot(steps, new, "_", color=style.COLOURS[2], markeredgewidth=2, label=name_new)
    _draw_decisions(ax, records, best, "new rows: " if is_default else "best candidate: ", "log evidence per row")
    ax.locator_params(axis="y", nbins=8)  # not by the height of the axes, which changes with the width of the labels


def _evidences(record: StepRecord) -> tuple[float, float]:
    """Log evidence per row of the best candidate and of a new model."""
    best = max((evidence for evidence in record.evidence if evidence is not None), default=np.nan)
    new = np.nan if record.evidence_new is None else record.evidence_new
    n_rows = max(1, record.n_samples)
    return best / n_rows, new / n_rows


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


def plot_lengthscales(model: EnsembleRegressor, *, ax: Axes | None = None) -> Axes:
    """Draw the length-scales of all local models along each input, divided by the input's range.

    An input with length-scales far above 1 hardly matters. Bars are medians.
    """
    ax, names = ax or plt.gca(), input_names(model)
    if model.n_models_:
        ranges, shifts = np.ptp(model.bounds_, axis=0), np.linspace(-0.3, 0.3, model.n_models_)
        lengthscales = np.array([theta.lengthscales for theta in model.hyperparameters_])
        style.make_logarithmic(ax)
        for column, strip in enumerate((lengthscales / np.where(ranges > 0.0, ranges, np.nan)).T):
            ax.plot(column + shifts, strip, ".", color=style.COLOURS[0], markersize=4, alpha=0.6)
            ax.plot([column - 0.35, column + 0.35], 2 * [np.median(strip)], color=style.COLOURS[5], linewidth=1.5)
        ax.axhline(1.0, color="0.6", linewidth=1.0, linestyle="--")
    else:
        style.write_in_middle(ax, "no local model yet")
    ax.set_xticks(range(len(names)), names, rotation=90 if len("".join(names)) > 40 else 0)
    ax.set_ylabel("length-scale / range")
    return ax
