"""Maps: mean, uncertainty, and which local model answers where."""

from collections import Counter
from collections.abc import Sequence
from math import cos, radians, sqrt
from typing import Any, TypedDict, Unpack

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from numpy.typing import ArrayLike, NDArray

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import for_user
from wgpr.io.grids import Fixed, Numbers, plan_grid, predict_grid, varying_columns
from wgpr.labels import format_count
from wgpr.planning.ground import Covered
from wgpr.plots import style

# Colours of models: ColorBrewer's Set3, without those that are much like another of them.
_PALE = [colormaps["Set3"](number) for number in (0, 1, 2, 3, 4, 5, 6, 8)]
# The largest ratio of height and width for which a map is drawn to scale: with the same unit, and without units.
_LARGEST_RATIO, _LARGEST_RATIO_WITHOUT_UNITS = 20.0, 8.0
# The least or the largest 0.5 % of the values are outliers if they reach so far beyond the others, over their range.
_OUTLIERS = 0.5

Integers = NDArray[np.integer[Any]]
Source = EnsembleRegressor | xr.Dataset


class GridArguments(TypedDict, total=False):
    """Arguments of `predict_grid`."""

    region: Numbers
    spacing: Numbers
    at: Fixed | None


def plot_map(
    source: Source,
    *,
    ax: Axes | None = None,
    samples: ArrayLike | None = None,
    cmap: str = "viridis",
    vmin: float | None = None,
    vmax: float | None = None,
    **grid: Unpack[GridArguments],
) -> Axes:
    """Draw the mean as a map.

    Parameters
    ----------
    source : a model, or a grid that `predict_grid` made.
    samples : (n, d) places to mark: rows of the model's inputs, or (n, 2) horizontal and vertical positions on a grid.
    vmin, vmax : ends of the colour scale; by default those of the values without outliers.
    grid : region, spacing and at, as of `predict_grid`; only with a model. A model of more than two inputs needs `at`.
    """
    mean = grid_to_draw(source, 2, **grid)["mean"]
    ax = _draw_field(mean, style.label(mean), ax, cmap, vmin, vmax)
    if samples is not None:
        _mark(ax, map_positions(source, samples, grid.get("at")), color="black", alpha=0.5)
    return ax


def plot_uncertainty(
    source: Source,
    *,
    ax: Axes | None = None,
    samples: ArrayLike | None = None,
    latent: bool = False,
    cmap: str = "cividis",
    vmin: float | None = None,
    vmax: float | None = None,
    **grid: Unpack[GridArguments],
) -> Axes:
    """Draw the standard deviation as a map; parameters as of `plot_map`.

    latent : draw that of the field without noise; by default, that of an observation.
    vmin, vmax : by default the colour scale is that of the ground between the data of a model: the standard deviation
        outside of a survey would hide the differences inside.
    """
    std = grid_to_draw(source, 2, **grid)["std_latent" if latent else "std"]
    if vmax is None and isinstance(source, EnsembleRegressor):
        vmax = largest_between_data(std, source, grid.get("at"))
    ax = _draw_field(std, style.label(std, "standard deviation"), ax, cmap, vmin, vmax)
    if samples is not None:
        _mark(ax, map_positions(source, samples, grid.get("at")), color="white", alpha=0.7)
    return ax


def plot_models(source: Source, *, ax: Axes | None = None, **grid: Unpack[GridArguments]) -> Axes:
    """Draw which local model answers where, as a map; parameters as of `plot_map`.

    Neighbouring models differ in colour; colours repeat. Dots are pseudo-inputs, if `source` is a model of two inputs.
    """
    models, ax = grid_to_draw(source, 2, **grid)["model"], ax or plt.gca()
    owner, (x, y) = models.values, horizontal_and_vertical(models)
    colours = colour_numbers(owner, len(_PALE))[owner]
    ax.pcolormesh(x, y, colours, cmap=ListedColormap(_PALE), vmin=0, vmax=len(_PALE) - 1, rasterized=True)
    ax.add_collection(LineCollection([*borders(owner, x.values, y.values)], colors="0.2", linewidths=0.4))
    _frame(ax, x, y)
    if isinstance(source, EnsembleRegressor) and not grid.get("at"):
        mark_pseudo_inputs(ax, source)
    ax.set_title(format_count(len(np.unique(owner)), "model"), loc="left", fontsize="medium")
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
    """Draw any field on a regular grid, such as the truth on the colour scale of a prediction.

    Parameters
    ----------
    values : (n_y, n_x), from south to north and from west to east.
    region : (west, east, south, north), the positions of the outermost nodes.
    label : of the colour bar.
    vmin, vmax : ends of the colour scale; by default those of the values without outliers.
    """
    field = xr.DataArray(np.asarray(values, dtype=np.float64), dims=("y", "x"))
    for name, (low, high) in {"x": region[:2], "y": region[2:]}.items():
        field[name] = name, np.linspace(low, high, field.sizes[name]), {"long_name": ""}
    return _draw_field(field, label, ax, cmap, vmin, vmax)


def grid_to_draw(source: Source, n_inputs: int, **grid: Unpack[GridArguments]) -> xr.Dataset:
    """The grid that was given, or that the given model predicts; arguments are checked before anything is predicted."""
    if isinstance(source, xr.Dataset):
        if any(argument is not None for argument in grid.values()):
            raise ValueError("region, spacing and at go with a model; a grid has its own")
        names = [str(name) for name in source.dims]
    else:
        plan = plan_grid(source, **grid)
        names = [plan.names[column] for column in plan.axes]
    if len(names) != n_inputs:
        raise ValueError(
            f"this picture is of {format_count(n_inputs, 'input')}, and here {len(names)} vary: {', '.join(names)}; "
            "use plot_1d for 1, plot_map for 2 and plot_slices for more, or fix inputs by at={name: value}"
        )
    return source if isinstance(source, xr.Dataset) else predict_grid(source, **grid)


def horizontal_and_vertical(variable: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The two coordinates of a variable of a map."""
    vertical, horizontal = variable.dims
    return variable[horizontal], variable[vertical]


def height_over_width(x: xr.DataArray, y: xr.DataArray) -> float | None:
    """Of a map that is drawn to scale; None if the units differ, or if the map would be very narrow."""
    ratio, unit = float(np.ptp(y.values) / np.ptp(x.values)), y.attrs.get("units")
    if y.attrs.get("standard_name") == "latitude":
        ratio /= max(0.01, cos(radians(float(y.mean()))))
    elif x.attrs.get("units") != unit:
        return None
    limit = _LARGEST_RATIO if unit else _LARGEST_RATIO_WITHOUT_UNITS
    return ratio if 1.0 / limit <= ratio <= limit else None


def largest_between_data(field: xr.DataArray, model: EnsembleRegressor, at: Fixed | None = None) -> float | None:
    """The largest value of a map on the ground that the pseudo-inputs cover, but for outliers; None without any."""
    if not model.n_models_:
        return None
    data = map_positions(model, for_user(model, np.concatenate(model.pseudo_inputs_)), at)
    x, y = (coordinate.values for coordinate in horizontal_and_vertical(field))
    size = np.array([np.ptp(x), np.ptp(y)])
    nodes = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    inside = field.values.ravel()[Covered(data / size).contains(nodes / size)]
    return None if np.isnan(inside).all() else _limits(inside)[1]


def map_positions(source: Source, places: ArrayLike, at: Fixed | None = None) -> Array:
    """Places (n, d) as (n, 2) with the horizontal position first."""
    points = np.asarray(places, dtype=np.float64)
    return points if isinstance(source, xr.Dataset) else points[:, varying_columns(source, at)]


def mark_pseudo_inputs(ax: Axes, model: EnsembleRegressor) -> None:
    """Dots on a map at the pseudo-inputs of all local models."""
    if model.n_models_:
        places = for_user(model, np.concatenate(model.pseudo_inputs_))
        _mark(ax, map_positions(model, places), color="0.25", alpha=0.7)


def _draw_field(
    field: xr.DataArray, label: str, ax: Axes | None, cmap: str, vmin: float | None, vmax: float | None
) -> Axes:
    """A field with its two coordinates, and a colour bar with a label."""
    ax, values, (x, y) = ax or plt.gca(), field.values, horizontal_and_vertical(field)
    low, high = _limits(values)
    low, high = low if vmin is None else vmin, high if vmax is None else vmax
    mesh = ax.pcolormesh(x, y, values, shading="nearest", cmap=cmap, vmin=low, vmax=high, rasterized=True)
    _frame(ax, x, y)
    wide = 0.04 * sqrt(height_over_width(x, y) or 0.75)  # as many inches beside a tall map as beside a wide one
    ends = ("neither", "min", "max", "both")[int((values < low).any()) + 2 * int((values > high).any())]
    ax.figure.colorbar(mesh, cax=ax.inset_axes((1.0 + wide, 0.0, wide, 1.0)), label=label, extend=ends)
    return ax


def _limits(values: Array) -> tuple[float, float]:
    """The least and the largest of some values without outliers."""
    least, low, high, most = np.nanpercentile(values, (0.0, 0.5, 99.5, 100.0)).tolist()
    margin = _OUTLIERS * (high - low) or np.inf
    return least if low - least <= margin else low, most if most - high <= margin else high


def _frame(ax: Axes, x: xr.DataArray, y: xr.DataArray) -> None:
    """Names of the axes, limits at the edges of the cells, the scale, and coordinates that are written in full."""
    ax.set(xlabel=style.label(x), xlim=cell_edges(x.values)[[0, -1]])
    ax.set(ylabel=style.label(y), ylim=cell_edges(y.values)[[0, -1]])
    ratio = height_over_width(x, y)
    ax.set_aspect("auto" if ratio is None else ratio * float(np.ptp(x.values) / np.ptp(y.values)))
    ax.xaxis.set_major_locator(style.CoordinateLocator())
    ax.ticklabel_format(useOffset=False, scilimits=(-4, 8))


def _mark(ax: Axes, positions: Array, **how: Any) -> None:
    size = float(np.clip(90.0 / np.sqrt(len(positions) + 1.0), 1.2, 4.0))
    ax.plot(*positions.T, ".", markersize=size, markeredgewidth=0, scalex=False, scaley=False, **how)


# Which local model answers where on a grid


def colour_numbers(owner: Integers, n_colours: int) -> Integers:
    """For each model the number of a colour; models that border on each other on the grid `owner` (n_y, n_x) differ.

    Those with most neighbours choose first, of the colours that are left the one that was used least.
    """
    bordering, used = neighbours(owner), Counter[int]()
    chosen = np.full(int(owner.max()) + 1, -1)
    for model in sorted(bordering, key=lambda model: -len(bordering[model])):
        taken = chosen[list(bordering[model])]
        free = [number for number in range(n_colours) if number not in taken] or range(n_colours)
        chosen[model] = min(free, key=lambda number: used[number])
        used[int(chosen[model])] += 1
    return chosen


def neighbours(owner: Integers) -> dict[int, set[int]]:
    """Which models border on which, also at a corner."""
    beside, above = (owner[:, 1:], owner[:, :-1]), (owner[1:], owner[:-1])
    corners = (owner[1:, 1:], owner[:-1, :-1]), (owner[1:, :-1], owner[:-1, 1:])
    touching = [np.stack([one.ravel(), other.ravel()]) for one, other in (beside, above, *corners)]
    pairs = np.unique(np.concatenate(touching, axis=1), axis=1)
    bordering: dict[int, set[int]] = {int(number): set() for number in np.unique(owner)}
    for first, second in pairs[:, pairs[0] != pairs[1]].T.tolist():
        bordering[first].add(second)
        bordering[second].add(first)
    return bordering


def borders(owner: Integers, x: Array, y: Array) -> Array:
    """Edges (n, 2, 2) of cells that have different owners on their two sides."""
    x_edges, y_edges = cell_edges(x), cell_edges(y)
    row, column = np.nonzero(owner[:, 1:] != owner[:, :-1])
    upright = [[x_edges[column + 1], y_edges[row]], [x_edges[column + 1], y_edges[row + 1]]]
    row, column = np.nonzero(owner[1:] != owner[:-1])
    level = [[x_edges[column], y_edges[row + 1]], [x_edges[column + 1], y_edges[row + 1]]]
    return np.concatenate([np.array(upright), np.array(level)], axis=2).transpose(2, 0, 1)


def cell_edges(nodes: Array) -> Array:
    """Where the cells around equally spaced nodes (n,) begin and end: (n + 1,)."""
    half = 0.5 * (nodes[1] - nodes[0])
    return np.linspace(nodes[0] - half, nodes[-1] + half, len(nodes) + 1)
