"""Predictions on a regular grid, as an xarray Dataset with CF attributes that can be written as NetCDF.

Inputs have the names of the columns of the frame that the model was fitted with, or `x1`, `x2` and so on. A unit in a
name, as in "depth [m]" or "depth (m)", becomes an attribute.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wgpr.gp.linalg import Array
from wgpr.io.coordinates import Coordinates, coordinates, for_model, named_degrees, user_bounds
from wgpr.labels import EASTING, LATITUDE, LONGITUDE, Label

if TYPE_CHECKING:
    import xarray as xr

    from wgpr.estimators.base import EnsembleRegressor

Numbers = ArrayLike | None
# Values of inputs, by name or column.
Fixed = Mapping[str, float] | Mapping[int, float] | Mapping[str | int, float]

MOST_NODES = 50_000_000
# Nodes are predicted in pieces: a prediction needs far more memory than its result.
_PIECE = 2**16
_DEFAULT_NODES = 40_000
# What a grid has beyond the data on each side, as a fraction of their range.
_MARGIN = 0.02
# The largest ratio of two ranges for which cells are square by default: with the same unit, and without units.
_LARGEST_RATIO, _LARGEST_RATIO_WITHOUT_UNITS = 100.0, 8.0
_CF_AXES = {LONGITUDE: ("longitude", "degrees_east"), LATITUDE: ("latitude", "degrees_north")}
_GRID_MAPPING = "crs"  # the variable of a NetCDF file that describes the coordinates


class TooManyNodesError(ValueError):
    """A grid that would not fit into the memory."""


@dataclass(frozen=True, eq=False)
class GridPlan:
    """The nodes of a grid.

    names : of all d inputs.
    axes : nodes (n_i,) of each input that varies, by column, in the order of the dimensions: west to east is last.
    fixed : values of the other inputs, by column.
    """

    names: Sequence[str]
    axes: Mapping[int, Array]
    fixed: Mapping[int, float]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(nodes) for nodes in self.axes.values())

    @property
    def size(self) -> int:
        return prod(self.shape)

    def n_outside(self, bounds: Array) -> int:
        """The number of nodes outside of `bounds` (2, d)."""
        if any(not bounds[0, column] <= value <= bounds[1, column] for column, value in self.fixed.items()):
            return self.size
        inside = [(bounds[0, column] <= nodes) & (nodes <= bounds[1, column]) for column, nodes in self.axes.items()]
        return self.size - prod(int(along.sum()) for along in inside)

    def inputs(self, piece: slice) -> Array:
        """Inputs (n, d) of the nodes of a piece of the flattened grid."""
        X = np.empty((piece.stop - piece.start, len(self.names)))
        for column, value in self.fixed.items():
            X[:, column] = value
        indices = np.unravel_index(np.arange(piece.start, piece.stop), self.shape)
        for (column, nodes), index in zip(self.axes.items(), indices, strict=True):
            X[:, column] = nodes[index]
        return X


def predict_grid(
    model: "EnsembleRegressor", region: Numbers = None, spacing: Numbers = None, *, at: Fixed | None = None
) -> "xr.Dataset":
    """Predict on a regular grid.

    Parameters
    ----------
    region : (west, east, south, north) for a map, (low, high) for a line; in general two numbers for each input that
        varies, in the order of the columns, but longitude or easting first. By default, where the data are; a model of
        more than two inputs then needs `at`.
    spacing : distance of neighbouring nodes, one for all inputs that vary or one for each. It is kept exactly: nodes
        begin at west and south, and the last ones may lie short of east and north. By default 1000 nodes for a line
        and about 40,000 for a map. Cells of a map are square by default if both inputs have the same unit. Degrees of
        longitude and latitude count as the same unit, as in SRTM and GEBCO grids, since GIS formats expect it.
    at : values of the inputs that do not vary, by name or column: `{"depth": 3.0}` is a slice at this depth.

    Returns
    -------
    Dataset with dimensions in the order of maps, (y, x), and variables
    `mean`;
    `std` : standard deviation of an observation, as of `predict(return_std=True)`;
    `std_latent` : standard deviation of the field without noise;
    `model` : index of the local model that answers.
    Attributes follow the CF conventions. `to_netcdf` needs nothing but SciPy.
    """
    return predict_plan(model, plan_grid(model, region, spacing, at=at))


def predict_plan(model: "EnsembleRegressor", plan: GridPlan, show: Callable[[int], None] | None = None) -> "xr.Dataset":
    """Predict on a planned grid, as `predict_grid` does. show : is told how many nodes are done."""
    return _as_dataset(model, plan, _predict_nodes(model, plan, show))


def masked(
    plan: GridPlan, grid: "xr.Dataset", is_masked: Callable[[Array, Array], NDArray[np.bool_]]
) -> "tuple[xr.Dataset, int]":
    """A grid without data at some nodes, and how many these are. The index of the model stays.

    is_masked : says of places (n, d) and standard deviations (n,) which have no data.
    """
    std, has_none = grid["std"].to_numpy().ravel(), np.zeros(plan.size, dtype=bool)
    for first in range(0, plan.size, _PIECE):
        piece = slice(first, min(first + _PIECE, plan.size))
        has_none[piece] = is_masked(plan.inputs(piece), std[piece])
    if not has_none.any():
        return grid, 0
    shown = {name: grid[name].where(~has_none.reshape(plan.shape)) for name in ("mean", "std", "std_latent")}
    return grid.assign(shown), int(has_none.sum())


def plan_grid(
    model: "EnsembleRegressor",
    region: Numbers = None,
    spacing: Numbers = None,
    *,
    at: Fixed | None = None,
    max_nodes: int | None = None,
) -> GridPlan:
    """Check the arguments of `predict_grid` and place the nodes; predicts nothing and learns nothing.

    More than `max_nodes`, by default `MOST_NODES`, raise an error before they are placed.
    """
    max_nodes = MOST_NODES if max_nodes is None else max_nodes
    require_one_output(model)
    names, varying = input_names(model), varying_columns(model, at)
    labels = [names[column] for column in varying]
    if region is None and len(varying) > 2:  # such a grid is large and rarely wanted
        middle = user_bounds(model).mean(axis=0)
        values = ", ".join(f"{names[column]!r}: {middle[column]:.3g}" for column in varying[2:])
        raise ValueError(
            f"{len(varying)} inputs would vary ({', '.join(labels)}) and a map has 2; "
            f"fix the others by at, for example at={{{values}}}, or give region 2 numbers for each input"
        )
    edges = _checked_region(default_region(model, at=at) if region is None else region, labels)
    if spacing is None:
        spacing = default_spacing(edges, square=have_same_unit(labels, edges))
        if region is None:
            n_steps = np.ceil((edges[:, 1] - edges[:, 0]) / spacing - 1e-9)  # edges move apart to whole steps
            edges = edges.mean(axis=1, keepdims=True) + 0.5 * np.outer(n_steps * spacing, (-1.0, 1.0))
    steps = _checked_spacing(spacing, edges, labels)
    widths = edges[:, 1] - edges[:, 0]
    with np.errstate(over="ignore"):  # of a tiny spacing
        n_nodes = np.floor(widths / steps * (1.0 + 1e-12) + 1e-9) + 1.0
        n_all = float(np.prod(n_nodes))
    if n_all > max_nodes:
        enough = ", ".join(f"{width:.2g}" for width in 1.1 * widths / max_nodes ** (1.0 / len(widths)))
        most = f"the grid has {n_all:,.12g} nodes, and {max_nodes:,} are the most"
        raise TooManyNodesError(f"{most}; a spacing of {enough} would do")
    nodes = [low + step * np.arange(n) for low, step, n in zip(edges[:, 0], steps, n_nodes, strict=True)]
    return GridPlan(names, dict(reversed([*zip(varying, nodes, strict=True)])), fixed_columns(names, at))


def input_names(model: "EnsembleRegressor") -> list[str]:
    """Names of the d inputs, as the user gives them."""
    if (known := coordinates(model)) is not None:
        return list(known.names)
    names = getattr(model, "feature_names_in_", None)
    return [f"x{column + 1}" for column in range(model.bounds_.shape[1])] if names is None else [*map(str, names)]


def target_name(model: "EnsembleRegressor") -> str:
    """The name of the target, or names separated by commas."""
    name = getattr(model, "target_name_", None) or "y"
    return name if isinstance(name, str) else ", ".join(name)


def predict_one_output(model: "EnsembleRegressor", X: Any, *, latent: bool = False) -> tuple[Array, Array]:
    """Mean (n,) and standard deviation (n,) of a model with one output, whether its targets were (n,) or (n, 1)."""
    require_one_output(model)
    mean, std = model.predict(X, return_std=True, latent=latent)
    return mean.reshape(len(mean)), std.reshape(len(std))


def predict_at(
    model: "EnsembleRegressor", places: ArrayLike, return_std: bool = False, latent: bool = False
) -> Array | tuple[Array, Array]:
    """Predict at places in the coordinates of the survey, such as longitude and latitude.

    A map with a coordinate reference system (`model.crs_`) is learned in metres, and its own `predict` takes metres.

    Parameters
    ----------
    places : (n, d), or a frame with the survey's columns.
    return_std, latent : as of `predict`.
    """
    frame: Any = places
    X = np.asarray(frame[input_names(model)] if hasattr(frame, "columns") else places, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != model.n_features_in_ or not np.isfinite(X).all():
        raise ValueError(f"places must be finite numbers (n, {model.n_features_in_}): {', '.join(input_names(model))}")
    return model.predict(named(model, X), return_std=return_std, latent=latent)


def require_one_output(model: "EnsembleRegressor") -> None:
    """Raise an error if the model has several outputs."""
    n_outputs = getattr(model, "n_outputs_", 1)
    if n_outputs != 1:
        raise ValueError(
            f"grids, pictures and the command line are for one output and this model has {n_outputs}; "
            "use predict, or fit a model with one of the columns of y"
        )


def named(model: "EnsembleRegressor", X: Array) -> Any:
    """Inputs (n, d) of the user as the model takes them: in its coordinates, with its names if it has names."""
    return framed(model, for_model(model, X))


def framed(model: "EnsembleRegressor", X: Array) -> Any:
    """Inputs (n, d) in the coordinates of the model, as a frame with its names if it was fitted with a frame."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=_index(*map(str, names)))


@lru_cache(maxsize=64)
def _index(*names: str) -> Any:
    """The columns of a frame, made once: a frame of one row is made in less time than these."""
    import pandas as pd

    return pd.Index(names)


def varying_columns(model: "EnsembleRegressor", at: Fixed | None = None) -> list[int]:
    """The inputs that are not in `at`, in the order of a region: west to east first."""
    names, known = input_names(model), coordinates(model)
    varying = [column for column in range(len(names)) if column not in fixed_columns(names, at)]
    if known is not None:
        return sorted(varying, key=[*known.columns, *varying].index)
    return sorted(varying, key=lambda column: not Label.parsed(names[column]).is_one_of(LONGITUDE, EASTING))


def default_region(model: "EnsembleRegressor", *, at: Fixed | None = None) -> tuple[float, ...]:
    """The range of the data, a little wider: two numbers for each input that is not in `at`."""
    low, high = user_bounds(model)[:, varying_columns(model, at)]
    around_a_constant = np.maximum(1.0, 0.01 * np.abs(low))
    wider = np.where(high > low, _MARGIN * (high - low), around_a_constant)
    return tuple(np.stack([low - wider, high + wider], axis=1).ravel().tolist())


def default_spacing(region: ArrayLike, *, square: bool = False) -> tuple[float, ...]:
    """A spacing for each input of the `region` that makes about 40,000 nodes, or 1000 for one input.

    square : one spacing for both inputs of a map; by default, each input has the same number of nodes.
    """
    edges = np.reshape(region, (-1, 2))
    widths = edges[:, 1] - edges[:, 0]
    if square:
        n_longer = round(sqrt(_DEFAULT_NODES * widths.max() / widths.min()))
        return tuple(np.full(len(widths), widths.max() / (n_longer - 1)).tolist())
    n_nodes = min(1000, round(_DEFAULT_NODES ** (1.0 / len(edges))))
    return tuple((widths / max(1, n_nodes - 1)).tolist())


# Arguments


def fixed_columns(names: Sequence[str], at: Fixed | None) -> dict[int, float]:
    """`at` by column."""
    columns: dict[str | int, int] = dict(enumerate(range(len(names)))) | {name: i for i, name in enumerate(names)}
    fixed: dict[int, float] = {}
    for key, value in (at or {}).items():
        if key not in columns:
            raise ValueError(f"at has no input {key!r}; inputs are {', '.join(names)}, or 0 to {len(names) - 1}")
        if columns[key] in fixed:
            raise ValueError(f"at gives {names[columns[key]]} twice")
        (fixed[columns[key]],) = _finite_numbers(f"at[{key!r}]", [value])
    if len(fixed) == len(names):
        raise ValueError(f"at fixes every input; leave at least one of {', '.join(names)} to vary")
    return fixed


def fixed_from_pairs(names: Sequence[str], pairs: Sequence[str]) -> dict[int, float]:
    """Values by column, from texts NAME=VALUE. names : of all inputs. A name may also be a number from 1."""
    keys, fixed = [*names, *(str(number) for number in range(1, len(names) + 1))], dict[int, float]()
    for pair in pairs:
        name, _, text = map(str.strip, pair.rpartition("="))
        try:
            column, value = keys.index(name) % len(names), float(text)
        except ValueError as error:
            wanted = f"NAME=VALUE with one of the names {', '.join(names)} and one number"
            raise ValueError(f"at must be {wanted}, got {pair[:100]!r}") from error
        if column in fixed:
            raise ValueError(f"at gives {name} twice; name each input once")
        fixed[column] = value
    return fixed


def _finite_numbers(argument: str, value: Any) -> Array:
    """`value` as a flat array of finite numbers; text and None raise an error."""
    try:
        numbers = np.ravel(value)
    except ValueError:
        numbers = np.array([None])
    if numbers.dtype.kind not in "iuf" or not np.isfinite(numbers).all():
        raise ValueError(f"{argument} must be finite numbers, got {value!r}")
    return numbers.astype(np.float64)


def _checked_region(region: Any, names: Sequence[str]) -> Array:
    """The lower and upper edge of each of the k inputs that vary: (k, 2)."""
    numbers = _finite_numbers("region", region)
    if len(numbers) != 2 * len(names):
        advice = "; inputs that do not vary get their value by at={name: value}" if len(names) > 2 else ""
        wanted = f"2 numbers for each input that varies ({', '.join(names)})"
        raise ValueError(f"region must be {wanted}, got {len(numbers)} numbers{advice}")
    edges = numbers.reshape(-1, 2)
    for name, (low, high) in zip(names, edges.tolist(), strict=True):
        if low >= high:
            order = ", ".join(f"{edge} {each}" for each in names for edge in ("least", "greatest"))
            raise ValueError(f"region must be {order}; got {low:g} to {high:g} for {name}")
    return edges


def _checked_spacing(spacing: Any, edges: Array, names: Sequence[str]) -> Array:
    """The spacing of each of the k inputs that vary: (k,)."""
    numbers = _finite_numbers("spacing", spacing)
    if len(numbers) not in (1, len(edges)):
        raise ValueError(f"spacing must be 1 or {len(edges)} numbers, got {len(numbers)}")
    steps = np.broadcast_to(numbers, len(edges))
    for name, (low, high), step in zip(names, edges.tolist(), steps.tolist(), strict=True):
        if not 0.0 < step <= high - low:
            wanted = f"above 0 and at most the width of the region, {high - low:g}"
            raise ValueError(f"spacing must be {wanted}, got {step:g} for {name}")
    return steps


# Nodes


def have_same_unit(names: Sequence[str], edges: Array) -> bool:
    """Whether the inputs of a map have the same unit, in ranges that are comparable."""
    if len(names) != 2:
        return False
    unit, other = (Label.parsed(name).unit for name in names)
    widths = edges[:, 1] - edges[:, 0]
    is_known = unit == other is not None or named_degrees(names) is not None
    limit = _LARGEST_RATIO if is_known else _LARGEST_RATIO_WITHOUT_UNITS
    return (is_known or unit == other) and bool(widths.max() <= limit * widths.min())


def _predict_nodes(
    model: "EnsembleRegressor", plan: GridPlan, show: Callable[[int], None] | None
) -> dict[str, NDArray[Any]]:
    """Each variable of the grid, in the shape of its axes."""
    answers = []
    for first in range(0, plan.size, _PIECE):
        piece = slice(first, min(first + _PIECE, plan.size))
        answers.append(model.predict_with_owners(named(model, plan.inputs(piece))))
        if show is not None:
            show(piece.stop)
    mean, std, std_latent, owner = (np.concatenate(parts).reshape(plan.shape) for parts in zip(*answers, strict=True))
    return {"mean": mean, "std": std, "std_latent": std_latent, "model": owner.astype(np.int32)}


# The dataset and its attributes


def _as_dataset(model: "EnsembleRegressor", plan: GridPlan, values: Mapping[str, NDArray[Any]]) -> "xr.Dataset":
    import xarray as xr

    keys, (target, unit) = _coordinate_keys(plan.names, [*values, _GRID_MAPPING]), Label.parsed(target_name(model))
    places: dict[str, Any] = {}
    for column, place in {**plan.axes, **plan.fixed}.items():
        dimension = keys[column] if column in plan.axes else ()
        places[keys[column]] = dimension, place, _coordinate_attributes(plan, column, coordinates(model))
    described = {
        "mean": _described(f"mean of {target}", unit) | {"ancillary_variables": "std std_latent model"},
        "std": _described(f"standard deviation of an observation of {target}", unit),
        "std_latent": _described(f"standard deviation of {target}", unit),
        "model": _described("index of the local model that answers", None),
    }
    dimensions = [keys[column] for column in plan.axes]
    variables = {name: (dimensions, array, described[name]) for name, array in values.items()}
    attributes = {  # no date, so that the same model on the same grid makes the same file
        "Conventions": "CF-1.8",
        "title": f"{target} by Gaussian process regression",
        "source": source_of(model),
    }
    grid = xr.Dataset(variables, places, attributes)
    if (known := coordinates(model)) is not None and len(plan.axes) == 2:
        for variable in grid.data_vars.values():
            variable.attrs["grid_mapping"] = _GRID_MAPPING
        grid[_GRID_MAPPING] = (), np.int32(0), known.cf_attributes()
    for coordinate in grid.coords.values():
        coordinate.encoding["_FillValue"] = None  # CF: coordinates have no gaps
    return grid


def source_of(model: "EnsembleRegressor") -> str:
    """The attribute `source` of a grid: the version of the package and the settings of the model."""
    return f"wgpr {version('wgpr')}: {' '.join(repr(model).split())}"


def _coordinate_keys(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Distinct names for the variables of a NetCDF file: ASCII letters, without the unit."""
    keys: list[str] = []
    for number, name in enumerate(names, start=1):
        key = re.sub(r"\W+", "_", Label.parsed(name).name, flags=re.ASCII).strip("_") or f"x{number}"
        while key in taken or key in keys:
            key += "_"
        keys.append(key)
    return keys


def _coordinate_attributes(plan: GridPlan, column: int, known: Coordinates | None) -> dict[str, str]:
    label = Label.parsed(plan.names[column])
    attributes = _described(*label)
    for pattern, axis in _CF_AXES.items():
        if label.is_one_of(pattern) and (label.unit or "deg").startswith(("deg", "°")):
            attributes["standard_name"], attributes["units"] = axis
    if known is not None and column in known.columns:
        attributes["standard_name"], attributes["units"] = known.cf_axis(column)
    if len(plan.axes) == 2 and column in plan.axes:
        attributes["axis"] = "YX"[[*plan.axes].index(column)]
    return attributes


def _described(long_name: str, unit: str | None) -> dict[str, str]:
    return {"long_name": long_name} if unit is None else {"long_name": long_name, "units": unit}
