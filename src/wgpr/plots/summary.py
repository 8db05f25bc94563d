"""All pictures of a model in one figure."""

from math import ceil
from typing import Any, Unpack

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.grids import Fixed, plan_grid
from wgpr.labels import format_count
from wgpr.plots import maps
from wgpr.plots.diagnostics import plot_history
from wgpr.plots.lines import plot_1d, plot_slices

# Height over width, from which on three maps stand side by side, and below which they stand one above the other.
_TALL, _WIDE = 1.4, 0.45


def summary_figure(
    model: EnsembleRegressor, X: ArrayLike | None = None, y: ArrayLike | None = None, **grid: Unpack[maps.GridArguments]
) -> Figure:
    """Draw the pictures that suit the number of inputs, in a figure that pyplot does not know of.

    One input: the line and the history. Two: mean, uncertainty, models and history. More: slices and
    history; or with `at`, the line or the map of the inputs that it leaves.

    X : (n, d), y : (n,) data to show; on a map, their places.
    grid : region, spacing and at, as of `predict_grid`.
    """
    is_sliced = model.bounds_.shape[1] > 2 and all(argument is None for argument in grid.values())
    plan = None if is_sliced else plan_grid(model, **grid)
    if plan is None:
        figure = _summary_of_slices(model)
    elif len(plan.axes) == 1:
        figure = Figure(figsize=(9.0, 6.5), layout="constrained")
        line, history = figure.subplots(2, height_ratios=(3, 2))
        plot_1d(model, X, y, ax=line, **grid)
        plot_history(model, ax=history)
    else:
        figure = _summary_of_map(model, maps.grid_to_draw(model, 2, **grid), X, grid.get("at"))
    counts = format_count(model.n_models_, "model"), format_count(model.n_samples_seen_, "row")
    values = [f", {plan.names[column]} = {value:g}" for column, value in plan.fixed.items()] if plan else []
    figure.suptitle(f"{type(model).__name__}: {counts[0]}, {counts[1]}{''.join(values)}")
    return figure


def _summary_of_map(model: EnsembleRegressor, grid: xr.Dataset, X: ArrayLike | None, at: Fixed | None) -> Figure:
    samples = None if X is None else maps.map_positions(model, X, at)
    figure, axes = _map_panels(maps.height_over_width(*maps.horizontal_and_vertical(grid["mean"])) or 0.75)
    maps.plot_map(grid, ax=axes["mean"], samples=samples)
    maps.plot_uncertainty(grid, ax=axes["std"], samples=samples, vmax=maps.largest_between_data(grid["std"], model, at))
    maps.plot_models(grid, ax=axes["models"])
    if not at:
        maps.mark_pseudo_inputs(axes["models"], model)
    plot_history(model, ax=axes["history"])
    return figure


def _map_panels(height_over_width: float) -> tuple[Figure, dict[str, Axes]]:
    """A figure with axes for three maps and the history, arranged so that the maps are large."""
    if height_over_width > _TALL:
        height = min(2.6 * height_over_width, 9.0)
        panels, heights = "mean std models; history history history", [height + 0.8, 2.8]
        width = 3 * (height / height_over_width + 2.1)
    elif height_over_width < _WIDE:
        panels, heights = "mean; std; models; history", [*3 * [9.5 * height_over_width + 0.7], 2.8]
        width = 11.0
    else:
        panels, heights = "mean std; models history", 2 * [0.4 + 4.0 * height_over_width]
        width = 12.0
    figure = Figure(figsize=(width, 0.4 + sum(heights)), layout="constrained")
    mosaic: list[Any] = [row.split() for row in panels.split(";")]
    return figure, figure.subplot_mosaic(mosaic, height_ratios=heights)


def _summary_of_slices(model: EnsembleRegressor) -> Figure:
    n_rows = ceil(model.bounds_.shape[1] / 4)
    figure = Figure(figsize=(12.0, 3.5 + 2.2 * n_rows), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(2.2 * n_rows, 3.0)).ravel()
    plot_slices(model, figure=above)
    plot_history(model, ax=below.subplots())
    return figure
