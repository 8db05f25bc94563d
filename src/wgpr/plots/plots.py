"""Pictures of a model: what it believes, how sure it is, which local model answers where, and how it came to that.

Every function draws into `ax`, by default pyplot's current one, and returns it. Nothing is shown or saved. Colours can
be told apart by the colour-blind.
"""

from collections.abc import Sequence
from math import ceil, cos, radians
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from wgpr.ensemble.records import StepRecord
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.grids import input_names, predict_grid, target_name, varying_columns
from wgpr.metrics import HALF_WIDTH_95
from wgpr.plots.regions import borders, cell_edges, colour_numbers, innermost

# Okabe and Ito's colours, without black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_PALE = [tuple(0.5 + 0.5 * part for part in to_rgb(colour)) for colour in COLOURS]
_UPDATE, _NEW = "0.25", "#D55E00"
_MOST_STRETCHED = 8.0
_FAR_OUT = 1.5  # a whole range that is so many times that of 99 % of the values
_ROOM_FOR_A_NUMBER = 0.02  # around it, as a part of a map's width and height

_SIGNS = {"degrees_east": "°E", "degrees_north": "°N"}

Source = EnsembleRegressor | xr.Dataset


# Maps


def plot_map(
    source: Source,
    *,
    ax: Axes | None = None,
    region: ArrayLike | None = None,
    spacing: ArrayLike | None = None,
    samples: ArrayLike | None = None,
    cmap: str = "viridis",
    vmin: float | None = None,
    vmax: float | None = None,
) -> Axes:
    """The mean, as a map.

    Parameters
    ----------
    source : a model of two inputs, or what `predict_grid` made: with `at`, a slice of a model of more inputs.
    region, spacing : of the grid, as of `predict_grid`; only with a model.
    samples : (n, 2) places to mark: rows of a model's inputs, or horizontal and vertical positions on a grid.
    vmin, vmax : ends of the colour scale; by default those of the values, save for the few that stand far out.
    """
    grid = _map_grid(source, region, spacing)
    ax = _draw_variable(grid, "mean", _label(grid["mean"]), ax, cmap, vmin, vmax)
    if samples is not None:
        _mark(ax, _map_places(source, samples), color="black", alpha=0.5)
    return ax


def plot_uncertainty(
    source: Source,
    *,
    ax: Axes | None = None,
    region: ArrayLike | None = None,
    spacing: ArrayLike | None = None,
    samples: ArrayLike | None = None,
    latent: bool = False,
    cmap: str = "cividis",
    vmin: float | None = None,
    vmax: float | None = None,
) -> Axes:
    """The standard deviation, as a map; parameters as of `plot_map`.

    latent : that of the field itself; by default, of an observation of it, with its noise.
    """
    grid = _map_grid(source, region, spacing)
    label = _with_unit("standard deviation", grid["std"])
    ax = _draw_variable(grid, "std_latent" if latent else "std", label, ax, cmap, vmin, vmax)
    if samples is not None:
        _mark(ax, _map_places(source, samples), color="white", alpha=0.7)
    return ax


def plot_models(
    source: Source,
    *,
    ax: Axes | None = None,
    region: ArrayLike | None = None,
    spacing: ArrayLike | None = None,
) -> Axes:
    """Which local model answers where, as a map; parameters as of `plot_map`.

    Models that border on each other differ in colour; colours repeat. Dots are pseudo-inputs, if `source` is a model.
    A model has its index written on it where there is room.
    """
    grid, ax = _map_grid(source, region, spacing), _axes(ax)
    _draw_territories(ax, grid)
    _frame_map(ax, grid)
    if isinstance(source, EnsembleRegressor):
        _draw_pseudo_inputs(ax, source)
    ax.set_title(_counted(len(np.unique(grid["model"])), "model"), loc="left", fontsize="medium")
    return ax


def plot_field(
    values: ArrayLike,
    region: Sequence[float],
    *,
    ax: Axes | None = None,
    label: str = "",
    cmap: str = "viridis",
    vmin: float | None = None,
    vmax: float | None = None,
) -> Axes:
    """Any field on a regular grid; the truth, say, on the colour scale of a prediction.

    Parameters
    ----------
    values : (n_y, n_x), from south to north and from west to east.
    region : (west, east, south, north), where the outermost nodes are.
    label : of the colour bar; cmap, vmin, vmax : as of `plot_map`.
    """
    ax, field = _axes(ax), np.asarray(values, dtype=np.float64)
    west, east, south, north = region
    x, y = np.linspace(west, east, field.shape[1]), np.linspace(south, north, field.shape[0])
    low, high = _colour_scale(field, vmin, vmax)
    mesh = ax.pcolormesh(x, y, field, shading="nearest", cmap=cmap, vmin=low, vmax=high, rasterized=True)
    ax.set_aspect("equal" if _are_alike(east - west, north - south) else "auto")
    beside = ax.inset_axes((1.03, 0.0, 0.04, 1.0))
    ax.figure.colorbar(mesh, cax=beside, label=label, extend=_open_ends(field, low, high))
    return ax


def _colour_scale(field: Array, vmin: float | None, vmax: float | None) -> tuple[float, float]:
    least, low, high, most = np.nanpercentile(field, (0.0, 0.5, 99.5, 100.0))
    if most - least > _FAR_OUT * (high - low) > 0.0:
        least, most = low, high
    return least if vmin is None else vmin, most if vmax is None else vmax


def _open_ends(field: Array, low: float, high: float) -> Literal["neither", "both", "min", "max"]:
    """At which ends of the colour scale there are values beyond it."""
    is_below, is_above = bool((field < low).any()), bool((field > high).any())
    if is_below and is_above:
        return "both"
    return "min" if is_below else "max" if is_above else "neither"


def _map_grid(source: Source, region: ArrayLike | None, spacing: ArrayLike | None) -> xr.Dataset:
    if isinstance(source, xr.Dataset):
        if region is not None or spacing is not None:
            raise ValueError("region and spacing go with a model; a grid has its own")
        grid = source
    else:
        _require_inputs(source, 2)
        grid = predict_grid(source, region, spacing)
    if len(grid.dims) != 2:
        raise ValueError(f"a map needs a grid of 2 dimensions, got {len(grid.dims)}: {', '.join(map(str, grid.dims))}")
    return grid


def _require_inputs(model: EnsembleRegressor, needed: int) -> None:
    n_inputs = model.bounds_.shape[1]
    if n_inputs != needed:
        raise ValueError(
            f"this picture is of {_counted(needed, 'input')} and the model has {n_inputs}; "
            "see plot_1d for 1, plot_map for 2 or a slice by predict_grid(model, at=...), and plot_slices for more"
        )


def _horizontal_and_vertical(grid: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    vertical, horizontal = grid["mean"].dims
    return grid[horizontal], grid[vertical]


def _draw_variable(
    grid: xr.Dataset, name: str, label: str, ax: Axes | None, cmap: str, vmin: float | None, vmax: float | None
) -> Axes:
    x, y = _horizontal_and_vertical(grid)
    region = [float(edge) for edge in (x[0], x[-1], y[0], y[-1])]
    ax = plot_field(grid[name].values, region, ax=ax, label=label, cmap=cmap, vmin=vmin, vmax=vmax)
    _frame_map(ax, grid)
    return ax


def _frame_map(ax: Axes, grid: xr.Dataset) -> None:
    x, y = _horizontal_and_vertical(grid)
    ax.set(xlabel=_label(x), ylabel=_label(y), aspect=_aspect(x, y))
    ax.locator_params(axis="x", nbins=7)
    ax.set(xlim=cell_edges(x.values)[[0, -1]], ylim=cell_edges(y.values)[[0, -1]])


def _aspect(x: xr.DataArray, y: xr.DataArray) -> float | Literal["auto", "equal"]:
    """As it is on the ground where that can be known."""
    if y.attrs.get("standard_name") == "latitude":
        return 1.0 / max(0.01, cos(radians(float(y.mean()))))
    is_same_unit = x.attrs.get("units") == y.attrs.get("units")
    return "equal" if is_same_unit and _are_alike(np.ptp(x.values), np.ptp(y.values)) else "auto"


def _height_over_width(grid: xr.Dataset) -> float:
    """Of a map on paper; neither very flat nor very high."""
    x, y = _horizontal_and_vertical(grid)
    aspect = _aspect(x, y)
    if aspect == "auto":
        return 0.75
    stretch = 1.0 if aspect == "equal" else aspect
    return float(np.clip(stretch * np.ptp(y.values) / np.ptp(x.values), 0.5, 1.2))


def _are_alike(width: float, height: float) -> bool:
    """A map that is much wider than high is hardly one of lengths both ways."""
    return 1.0 / _MOST_STRETCHED <= width / height <= _MOST_STRETCHED


def _map_places(source: Source, places: ArrayLike) -> Array:
    """Places (n, 2) with the horizontal position first."""
    points = np.asarray(places, dtype=np.float64)
    return points if isinstance(source, xr.Dataset) else points[:, varying_columns(source)]


def _mark(ax: Axes, places: Array, **style: Any) -> None:
    size = float(np.clip(90.0 / np.sqrt(len(places) + 1.0), 1.2, 4.0))
    ax.plot(*places.T, ".", markersize=size, markeredgewidth=0, scalex=False, scaley=False, **style)


# Who answers where


def _draw_territories(ax: Axes, grid: xr.Dataset) -> None:
    owner, (x, y) = grid["model"].values, _horizontal_and_vertical(grid)
    colours = ListedColormap(_PALE)
    ax.pcolormesh(
        x, y, colour_numbers(owner, len(COLOURS))[owner], cmap=colours, vmin=0, vmax=len(_PALE) - 1, rasterized=True
    )
    ax.add_collection(LineCollection([*borders(owner, x.values, y.values)], colors="0.2", linewidths=0.4))
    for number in np.unique(owner).tolist():
        row, column, room = innermost(owner, number)
        if room > _ROOM_FOR_A_NUMBER:
            _write_number(ax, float(x[column]), float(y[row]), number)


def _draw_pseudo_inputs(ax: Axes, model: EnsembleRegressor) -> None:
    if model.n_models_:
        _mark(ax, _map_places(model, np.concatenate(model.pseudo_inputs_)), color="0.25", alpha=0.7)


def _write_number(ax: Axes, x: float, y: float, number: int) -> None:
    outline = withStroke(linewidth=2.5, foreground="white")
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small", "path_effects": [outline]}
    ax.text(x, y, str(number), zorder=3, clip_on=True, **style)


# Lines


def plot_1d(
    model: EnsembleRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    ax: Axes | None = None,
    region: ArrayLike | None = None,
    spacing: ArrayLike | None = None,
) -> Axes:
    """A model of one input: mean in the colour of the model that answers, 95 % band of observations, pseudo-inputs.

    Parameters
    ----------
    X : (n, 1), y : (n,) data to draw along with it.
    region : (low, high), spacing : of the line, as of `predict_grid`.
    """
    _require_inputs(model, 1)
    if (X is None) != (y is None):
        raise ValueError("X and y go together: give both or none")
    grid, ax = predict_grid(model, region, spacing), _axes(ax)
    if X is not None and y is not None:
        ax.plot(np.ravel(X), np.ravel(y), ".", color="0.7", markersize=2, label="data")
    colours = _draw_line(ax, grid)
    for number, pseudo_inputs in enumerate(model.pseudo_inputs_):
        _draw_ticks(ax, pseudo_inputs[:, 0], colours.get(number, "0.5"))
    ax.plot([], [], "|", color="0.5", label="pseudo-inputs")
    ax.set_ylabel(target_name(model))
    _legend_above(ax)
    return ax


def plot_slices(
    model: EnsembleRegressor, *, figure: Figure | SubFigure | None = None, centre: ArrayLike | None = None
) -> NDArray[Any]:
    """Mean and 95 % band along each input, while the others stay at `centre`: one query an input.

    Parameters
    ----------
    figure : to draw in, by default pyplot's current one.
    centre : (d,), by default the median of all pseudo-inputs.

    Returns
    -------
    (d,) Axes.
    """
    middle = _centre(model) if centre is None else np.ravel(centre)
    if len(middle) != model.bounds_.shape[1]:
        raise ValueError(f"centre must be a number for each of {model.bounds_.shape[1]} inputs, got {len(middle)}")
    axes = _panels(_current_figure() if figure is None else figure, len(middle))
    for column, ax in enumerate(axes):
        _draw_line(ax, predict_grid(model, at={other: middle[other] for other in range(len(axes)) if other != column}))
        ax.axvline(middle[column], color="0.5", linewidth=0.8, linestyle=":")
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel(target_name(model))
    return axes


def _centre(model: EnsembleRegressor) -> Array:
    known = np.concatenate(model.pseudo_inputs_) if model.n_models_ else model.bounds_
    return np.median(known, axis=0)


def _panels(figure: Figure | SubFigure, n_panels: int) -> NDArray[Any]:
    n_columns = min(4, n_panels)
    axes = figure.subplots(ceil(n_panels / n_columns), n_columns, sharey=True, squeeze=False).ravel()
    for spare in axes[n_panels:]:
        spare.remove()
    return axes[:n_panels]


def _draw_line(ax: Axes, grid: xr.Dataset) -> dict[int, str]:
    """Draw mean and band of a grid of one dimension; the colours of the models that answer there."""
    (line,) = (grid[name] for name in grid.dims)
    mean, half, owner = grid["mean"].values, HALF_WIDTH_95 * grid["std"].values, grid["model"].values
    numbers = colour_numbers(owner[None], len(COLOURS))
    colours = {number: COLOURS[numbers[number]] for number in np.unique(owner).tolist()}
    ax.plot([], [], color=colours[owner[0]], label="mean (colour: model)")
    ax.fill_between(line, mean - half, mean + half, color="0.85", linewidth=0, label="95 % of observations")
    for number, colour in colours.items():
        ax.plot(line, np.where(_with_next(owner == number), mean, np.nan), color=colour, linewidth=1.5)
    ax.set(xlabel=_label(line), xlim=(float(line[0]), float(line[-1])))
    return colours


def _with_next(is_own: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """And the node after each stretch, so that the line has no gaps."""
    return is_own | np.append(False, is_own[:-1])


def _draw_ticks(ax: Axes, positions: Array, colour: str) -> None:
    at_the_bottom = np.full(len(positions), 0.02)
    ax.plot(positions, at_the_bottom, "|", color=colour, transform=ax.get_xaxis_transform(), scalex=False, scaley=False)


# History


def plot_history(model: EnsembleRegressor, *, ax: Axes | None = None) -> Axes:
    """What every step was decided by, and how.

    For a rule that asks for distances: those of the best candidate, and the threshold. For one that asks for evidences:
    that of the best candidate, and that of a model of the batch's own. Otherwise, how many models there were.
    """
    ax, records = _axes(ax), model.history_
    if not records:
        _say(ax, "no history")
    elif any(record.distance is not None for record in records):
        _draw_distances(ax, records, _threshold(model))
    elif any(len(record.candidates) and record.evidence_new is not None for record in records):
        _draw_evidences(ax, records)
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
    _make_logarithmic(ax)
    ax.plot(steps, w_old, "_", color=COLOURS[4], markeredgewidth=2, label="w_old")
    ax.plot(steps, w_new, "_", color=COLOURS[2], markeredgewidth=2, label="w_new")
    _draw_decisions(ax, records, w_old + w_new, "sum: ")
    if threshold is not None and 0.0 < threshold < np.inf:
        ax.axhline(threshold, color="0.4", linewidth=1.0, linestyle="--", label=f"threshold {threshold:g}")
    ax.set_ylabel("squared Wasserstein distance")
    _legend_above(ax)


def _best_distances(record: StepRecord) -> tuple[float, float]:
    pairs = zip(record.w_old, record.w_new, strict=True)
    known = ((old, new) for old, new in pairs if old is not None and new is not None)
    return min(known, key=sum, default=(np.nan, np.nan))


def _draw_evidences(ax: Axes, records: Sequence[StepRecord]) -> None:
    steps, best, own = np.array([(record.number, *_evidences(record)) for record in records]).T
    ax.plot(steps, own, "_", color=COLOURS[2], markeredgewidth=2, label="as a model of its own")
    _draw_decisions(ax, records, best, "best candidate: ")
    ax.set_ylabel("log evidence per row")
    _legend_above(ax)


def _evidences(record: StepRecord) -> tuple[float, float]:
    """Of the best candidate and of a new model, per row."""
    best = max((evidence for evidence in record.evidence if evidence is not None), default=np.nan)
    own = np.nan if record.evidence_new is None else record.evidence_new
    return best / record.n_samples, own / record.n_samples


def _draw_counts(ax: Axes, records: Sequence[StepRecord], n_models: int) -> None:
    gained = np.array([sum(change.is_new for change in record.changes) - len(record.merged) for record in records])
    counts = n_models - gained.sum() + np.cumsum(gained)
    ax.step([record.number for record in records], counts, where="post", color="0.7", linewidth=1.0)
    _draw_decisions(ax, records, counts, "")
    ax.set_ylabel("local models")
    ax.yaxis.set_major_locator(_whole_numbers())
    _legend_above(ax)


def _draw_decisions(ax: Axes, records: Sequence[StepRecord], heights: Array, prefix: str) -> None:
    """A mark for every step, and ticks at the bottom for those that started a model."""
    steps = np.array([record.number for record in records])
    is_new = np.array([record.decision != "update" for record in records])
    ax.plot(steps[~is_new], heights[~is_new], ".", color=_UPDATE, markersize=4, label=f"{prefix}update")
    ax.plot(steps[is_new], heights[is_new], "^", color=_NEW, markersize=4, label=f"{prefix}new model")
    _draw_ticks(ax, steps[is_new], _NEW)
    ax.xaxis.set_major_locator(_whole_numbers())


# Numbers


def plot_calibration(y: ArrayLike, mean: ArrayLike, std: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """How many of the observations lie in the central interval that should hold so many of them.

    Above the diagonal the model is more careful than it need be, below it is too sure of itself. With a model:
    `plot_calibration(y_test, *model.predict(X_test, return_std=True))`.

    Parameters
    ----------
    y : (n,) observations, mean, std : (n,) predictions of them.
    """
    deviations, ax = np.sort(_standardised(y, mean, std)), _axes(ax)
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
    """How fast the field varies along each input: length-scales of all local models, as parts of the input's range.

    An input with length-scales far above 1 hardly matters.
    """
    ax, names = _axes(ax), input_names(model)
    if model.n_models_:
        lengthscales = np.array([theta.lengthscales for theta in model.hyperparameters_])
        _draw_strips(ax, lengthscales / _positive_or_nan(np.ptp(model.bounds_, axis=0)))
    else:
        _say(ax, "no local model yet")
    ax.set_xticks(range(len(names)), names, rotation=90 if len("".join(names)) > 40 else 0)
    ax.set_ylabel("length-scale / range")
    return ax


def _positive_or_nan(ranges: Array) -> Array:
    return np.where(ranges > 0.0, ranges, np.nan)


def _draw_strips(ax: Axes, values: Array) -> None:
    """The columns of `values` (J, d) side by side, each with its median; models spread in their order."""
    spread = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else np.zeros(1)
    _make_logarithmic(ax)
    for column, strip in enumerate(values.T):
        ax.plot(column + spread, strip, ".", color=COLOURS[0], markersize=4, alpha=0.6)
        ax.plot([column - 0.35, column + 0.35], 2 * [np.median(strip)], color=COLOURS[5], linewidth=1.5)
    ax.axhline(1.0, color="0.6", linewidth=1.0, linestyle="--")


# All in one


def summary_figure(
    model: EnsembleRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    region: ArrayLike | None = None,
    spacing: ArrayLike | None = None,
) -> Figure:
    """The pictures that suit the number of inputs, in a figure that pyplot does not know of.

    One input: the line and the history. Two: mean, uncertainty, models and history. More: slices, length-scales and
    history.

    X : (n, d), y : (n,) data to show with up to two inputs; of a map only where they are.
    region, spacing : as of `predict_grid`, for up to two inputs.
    """
    n_inputs = model.bounds_.shape[1]
    if n_inputs == 1:
        figure = _summary_of_a_line(model, X, y, region, spacing)
    elif n_inputs == 2:
        figure = _summary_of_a_map(model, X, region, spacing)
    elif region is None and spacing is None:
        figure = _summary_of_slices(model)
    else:
        raise ValueError(f"region and spacing are for models of 1 or 2 inputs, and this has {n_inputs}")
    counts = _counted(model.n_models_, "model"), _counted(model.n_samples_seen_, "row")
    figure.suptitle(f"{type(model).__name__}: {counts[0]}, {counts[1]}")
    return figure


def _summary_of_a_line(
    model: EnsembleRegressor,
    X: ArrayLike | None,
    y: ArrayLike | None,
    region: ArrayLike | None,
    spacing: ArrayLike | None,
) -> Figure:
    figure = Figure(figsize=(9.0, 6.5), layout="constrained")
    line, history = figure.subplots(2, height_ratios=(3, 2))
    plot_1d(model, X, y, ax=line, region=region, spacing=spacing)
    plot_history(model, ax=history)
    return figure


def _summary_of_a_map(
    model: EnsembleRegressor, X: ArrayLike | None, region: ArrayLike | None, spacing: ArrayLike | None
) -> Figure:
    grid = predict_grid(model, region, spacing)
    samples = None if X is None else _map_places(model, X)
    figure = Figure(figsize=(12.0, 1.2 + 8.0 * _height_over_width(grid)), layout="constrained")
    mean, uncertainty, models, history = figure.subplots(2, 2).ravel()
    plot_map(grid, ax=mean, samples=samples)
    plot_uncertainty(grid, ax=uncertainty, samples=samples)
    _draw_pseudo_inputs(plot_models(grid, ax=models), model)
    plot_history(model, ax=history)
    return figure


def _summary_of_slices(model: EnsembleRegressor) -> Figure:
    n_rows = ceil(model.bounds_.shape[1] / 4)
    figure = Figure(figsize=(12.0, 3.5 + 2.2 * n_rows), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(2.2 * n_rows, 3.0)).ravel()
    plot_slices(model, figure=above)
    lengthscales, history = below.subplots(1, 2)
    plot_lengthscales(model, ax=lengthscales)
    plot_history(model, ax=history)
    return figure


# Axes and words


def _axes(ax: Axes | None) -> Axes:
    return plt.gca() if ax is None else ax


def _current_figure() -> Figure:
    """Pyplot's, with a layout in which panels do not overlap."""
    figure = plt.gcf()
    if figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained")
    return figure


def _label(quantity: xr.DataArray) -> str:
    return _with_unit(str(quantity.attrs.get("long_name", quantity.name)), quantity)


def _with_unit(words: str, quantity: xr.DataArray) -> str:
    unit = quantity.attrs.get("units")
    return f"{words} [{_SIGNS.get(unit, unit)}]" if unit else words


def _make_logarithmic(ax: Axes) -> None:
    """Powers of ten are written out; on a short axis, where they are few, 2 and 5 times them too."""

    def between_powers(value: float, _: Any) -> str:
        low, high = ax.get_ylim()
        return f"{value:g}" if high < 30.0 * low and f"{value:e}"[0] in "25" else ""

    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(between_powers)


def _whole_numbers() -> MaxNLocator:
    return MaxNLocator("auto", integer=True, min_n_ticks=1)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _legend_above(ax: Axes) -> None:
    spaces = {"borderpad": 0.2, "borderaxespad": 0.2, "columnspacing": 1.0, "handletextpad": 0.4, "handlelength": 1.5}
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, frameon=False, fontsize="small", **spaces)


def _say(ax: Axes, words: str) -> None:
    ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes, color="0.4")
    ax.set(xticks=[], yticks=[])
