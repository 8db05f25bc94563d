"""Lines: a model along one input, or along each of its inputs in turn."""

from math import ceil
from typing import Any, Unpack

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from numpy.typing import ArrayLike, NDArray

from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.coordinates import for_user
from wgpr.io.grids import predict_grid, target_name
from wgpr.metrics import HALF_WIDTH_95
from wgpr.plots.maps import GridArguments, colour_numbers, grid_to_draw
from wgpr.plots.style import COLOURS, draw_ticks, label, legend_above


def plot_1d(
    model: EnsembleRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    ax: Axes | None = None,
    **grid: Unpack[GridArguments],
) -> Axes:
    """Draw the mean in the colour of the model that answers, the 95 % band of observations, and pseudo-inputs.

    X : (n, 1), y : (n,) data to draw too.
    grid : region, spacing and at, as of `predict_grid`. With `at`, pseudo-inputs are not drawn.
    """
    if (X is None) != (y is None):
        raise ValueError("X and y go together: give both or none")
    line, ax = grid_to_draw(model, 1, **grid), ax or plt.gca()
    if X is not None and y is not None:
        ax.plot(np.ravel(X), np.ravel(y), ".", color="0.7", markersize=2, label="data")
    colours = _draw_line(ax, line)
    if not grid.get("at"):
        for number, pseudo_inputs in enumerate(model.pseudo_inputs_):
            draw_ticks(ax, pseudo_inputs[:, 0], colours.get(number, "0.5"))
        ax.plot([], [], "|", color="0.5", label="pseudo-inputs")
    ax.set_ylabel(target_name(model))
    legend_above(ax)
    return ax


def plot_slices(
    model: EnsembleRegressor, *, figure: Figure | SubFigure | None = None, centre: ArrayLike | None = None
) -> NDArray[Any]:
    """Draw mean and 95 % band along each input, while the others stay at `centre`; returns (d,) Axes.

    figure : to draw in, by default the current one of pyplot.
    centre : (d,), by default the median of all pseudo-inputs.
    """
    if centre is None:
        known = np.concatenate(model.pseudo_inputs_) if model.n_models_ else model.bounds_
        centre = for_user(model, np.median(known, axis=0, keepdims=True))
    middle, n_inputs = np.ravel(centre), model.bounds_.shape[1]
    if len(middle) != n_inputs:
        raise ValueError(f"centre must be a number for each of {n_inputs} inputs, got {len(middle)}")
    axes = _panels(figure or plt.gcf(), n_inputs)
    for column, ax in enumerate(axes):
        _draw_line(ax, predict_grid(model, at={other: middle[other] for other in range(n_inputs) if other != column}))
        ax.axvline(middle[column], color="0.5", linewidth=0.8, linestyle=":")
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(target_name(model))
    return axes


def _panels(figure: Figure | SubFigure, n_panels: int) -> NDArray[Any]:
    """(n_panels,) Axes in rows of four, in a layout in which they do not overlap."""
    if isinstance(figure, Figure) and figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    n_columns = min(4, n_panels)
    axes = figure.subplots(ceil(n_panels / n_columns), n_columns, sharey=True, squeeze=False).ravel()
    for spare in axes[n_panels:]:
        spare.remove()
    return axes[:n_panels]


def _draw_line(ax: Axes, grid: xr.Dataset) -> dict[int, str]:
    """Draw mean and band of a grid of one dimension; returns the colour of each model that answers there."""
    (line,) = (grid[name] for name in grid.dims)
    mean, half, owner = grid["mean"].values, HALF_WIDTH_95 * grid["std"].values, grid["model"].values
    numbers = colour_numbers(owner[None], len(COLOURS))
    colours = {number: COLOURS[numbers[number]] for number in np.unique(owner).tolist()}
    ax.plot([], [], color=colours[owner[0]], label="mean (colour: model)")
    ax.fill_between(line, mean - half, mean + half, color="0.85", linewidth=0, label="95 % of observations")
    for number, colour in colours.items():
        is_own = owner == number
        is_shown = is_own | np.append(False, is_own[:-1])  # the next node too, so that the line has no gaps
        ax.plot(line, np.where(is_shown, mean, np.nan), color=colour, linewidth=1.5)
    ax.set(xlabel=label(line), xlim=(float(line[0]), float(line[-1])))
    return colours
