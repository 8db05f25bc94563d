"""Predictions on a regular grid, as a labelled array that charting software reads: xarray in memory, NetCDF in files.

An input is called as in the frame that the model was fitted with, or `x1`, `x2` and so on. A unit in its name, as in
"depth [m]" or "depth (m)", becomes an attribute.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from math import ceil, floor, log10, prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wgpr.gp.linalg import Array, Indices

if TYPE_CHECKING:
    import xarray as xr

# Values of inputs, by name or column.
Fixed = Mapping[str, float] | Mapping[int, float] | Mapping[str | int, float]

MOST_NODES = 50_000_000
# Nodes are predicted in pieces, so that memory beyond the result's own does not grow with their number.
_PIECE = 2**18
_DEFAULT_NODES = 40_000
_WEST_TO_EAST = {"lon", "longitude", "east", "easting"}
_GEOGRAPHIC = {
    "lon": ("longitude", "degrees_east"),
    "longitude": ("longitude", "degrees_east"),
    "lat": ("latitude", "degrees_north"),
    "latitude": ("latitude", "degrees_north"),
}


class GridModel(Protocol):
    """What is asked of a model; every estimator of this package will do."""

    @property
    def bounds_(self) -> Array: ...

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, latent: bool = False
    ) -> Array | tuple[Array, Array]: ...

    def predict_with_owners(self, X: Any) -> tuple[Array, Array, Array, Indices]: ...


class Label(NamedTuple):
    """What a quantity is called, and its unit if that is known."""

    name: str
    unit: str | None

    @classmethod
    def parsed(cls, text: str) -> "Label":
        """From "depth", "depth [m]" or "depth (m)".

        >>> Label.parsed("depth [m]")
        Label(name='depth', unit='m')
        """
        match = re.fullmatch(r"(.*\S)\s*(?:\[(.+)\]|\((.+)\))\s*", text)
        return cls(match[1], match[2] or match[3]) if match else cls(text.strip(), None)


class _Slice(NamedTuple):
    """Which inputs vary on a grid, by their columns, those of a map from west to east first; and where the others are.

    names : of all d inputs.
    """

    names: Sequence[str]
    varying: Sequence[int]
    fixed: Mapping[int, float]

    @property
    def varying_names(self) -> list[str]:
        return [self.names[column] for column in self.varying]


def predict_grid(
    model: GridModel,
    region: ArrayLike | None = None,
    spacing: ArrayLike | None = None,
    *,
    at: Fixed | None = None,
) -> "xr.Dataset":
    """Predict on a regular grid.

    Parameters
    ----------
    region : (west, east, south, north) for a map, (low, high) for a line; in general two numbers for each input that
        varies, in the order of the columns, but longitude or easting first. By default, where the data are.
    spacing : distance of neighbouring nodes, one for all inputs that vary or one for each. It is kept exactly: nodes
        begin at west and south, and the last ones may lie short of east and north. By default, 200 x 200 nodes for a
        map, 1000 for a line.
    at : values of the inputs that do not vary, by name or column: `{"depth": 3.0}` is a slice at this depth.

    Returns
    -------
    Dataset with dimensions in the order of maps, (y, x), and variables
    `mean`;
    `std` : standard deviation of an observation, as of `predict(return_std=True)`;
    `std_latent` : that of the field itself;
    `model` : index of the local model that answers.
    Attributes follow the CF conventions. `to_netcdf` needs nothing but SciPy.
    """
    require_one_output(model)
    section = _slice(input_names(model), at)
    edges = _checked_region(default_region(model, at=at) if region is None else region, section)
    steps = _checked_spacing(default_spacing(edges) if spacing is None else spacing, edges, section)
    lines = [_nodes(low, high, step) for (low, high), step in zip(edges, steps, strict=True)]
    axes = dict(reversed([*zip(section.varying, lines, strict=True)]))
    return _as_dataset(model, section, axes, _predict_nodes(model, section, axes))


def input_names(model: GridModel) -> list[str]:
    """What the d inputs are called."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{column + 1}" for column in range(model.bounds_.shape[1])] if names is None else [*map(str, names)]


def target_name(model: GridModel) -> str:
    """What the target is called."""
    name = getattr(model, "target_name_", None) or "y"
    return name if isinstance(name, str) else ", ".join(name)


def predict_one_output(model: GridModel, X: Any, *, latent: bool = False) -> tuple[Array, Array]:
    """Mean (n,) and standard deviation (n,) of a model with one output, whether its targets were (n,) or (n, 1)."""
    require_one_output(model)
    mean, std = model.predict(X, return_std=True, latent=latent)
    return mean.reshape(len(mean)), std.reshape(len(std))


def require_one_output(model: GridModel) -> None:
    """Raise an error for several outputs, which have no map of their own."""
    n_outputs = getattr(model, "n_outputs_", 1)
    if n_outputs != 1:
        raise ValueError(
            f"grids, pictures and the command line are for one output and this model has {n_outputs}; "
            "use predict, or fit a model with one of the columns of y"
        )


def named(model: GridModel, X: Array) -> Any:
    """Inputs (n, d) as a frame under the names that the model has for them, if it was fitted with one."""
    if not hasattr(model, "feature_names_in_"):
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=input_names(model))


def varying_columns(model: GridModel, at: Fixed | None = None) -> Sequence[int]:
    """The inputs that are not in `at`, in the order of a region: that from west to east first."""
    return _slice(input_names(model), at).varying


def default_region(model: GridModel, *, at: Fixed | None = None, margin: float = 0.02) -> tuple[float, ...]:
    """Where the data are: two numbers for each input that is not in `at`.

    margin : on each side, as a part of their range.
    """
    low, high = model.bounds_[:, varying_columns(model, at)]
    around_a_constant = np.maximum(1.0, 0.01 * np.abs(low))
    wider = np.where(high > low, margin * (high - low), around_a_constant)
    return tuple(np.stack([low - wider, high + wider], axis=1).ravel().tolist())


def default_spacing(region: ArrayLike) -> tuple[float, ...]:
    """As many nodes for each input of the `region`, and enough of them to be looked at."""
    edges = np.reshape(region, (-1, 2))
    n_nodes = min(1000, round(_DEFAULT_NODES ** (1.0 / len(edges))))
    return tuple(((edges[:, 1] - edges[:, 0]) / max(1, n_nodes - 1)).tolist())


def _slice(names: Sequence[str], at: Fixed | None) -> _Slice:
    fixed: dict[int, float] = {}
    for key, value in (at or {}).items():
        column = _column(key, names)
        if column in fixed:
            raise ValueError(f"at gives {names[column]} twice")
        (fixed[column],) = _finite_numbers(f"at[{key!r}]", [value])
    if len(fixed) == len(names):
        raise ValueError(f"at fixes every input; leave at least one of {', '.join(names)} to vary")
    varying = [column for column in range(len(names)) if column not in fixed]
    return _Slice(names, sorted(varying, key=lambda column: not _is_west_to_east(names[column])), fixed)


def _column(key: str | int, names: Sequence[str]) -> int:
    if key in names:
        return names.index(str(key))
    if isinstance(key, int) and 0 <= key < len(names):
        return key
    raise ValueError(f"at has no input {key!r}; inputs are {', '.join(names)}, or 0 to {len(names) - 1}")


def _is_west_to_east(name: str) -> bool:
    return Label.parsed(name).name.lower() in _WEST_TO_EAST


def _finite_numbers(argument: str, value: Any) -> Array:
    """`value` as a flat array; text, None and NaN are no numbers."""
    try:
        numbers = np.ravel(value)
    except ValueError:
        numbers = np.array([None])
    if numbers.dtype.kind not in "iuf" or not np.isfinite(numbers).all():
        raise ValueError(f"{argument} must be finite numbers, got {value!r}")
    return numbers.astype(np.float64)


def _checked_region(region: Any, section: _Slice) -> Array:
    """The lower and upper edge of each input that varies: (k, 2)."""
    numbers, names = _finite_numbers("region", region), section.varying_names
    if len(numbers) != 2 * len(names):
        advice = "; inputs that do not vary get their value by at={name: value}" if len(names) > 2 else ""
        wanted = f"2 numbers for each input that varies ({', '.join(names)})"
        raise ValueError(f"region must be {wanted}, got {len(numbers)} numbers{advice}")
    edges = numbers.reshape(-1, 2)
    for name, (low, high) in zip(names, edges.tolist(), strict=True):
        if low >= high:
            raise ValueError(f"region must go from the lower to the higher edge, got {low:g} to {high:g} for {name}")
    return edges


def _checked_spacing(spacing: Any, edges: Array, section: _Slice) -> Array:
    """The spacing of each input that varies: (k,)."""
    numbers = _finite_numbers("spacing", spacing)
    if len(numbers) not in (1, len(edges)):
        raise ValueError(f"spacing must be 1 or {len(edges)} numbers, got {len(numbers)}")
    steps = np.broadcast_to(numbers, len(edges))
    for name, (low, high), step in zip(section.varying_names, edges.tolist(), steps.tolist(), strict=True):
        if not 0.0 < step <= high - low:
            raise ValueError(
                f"spacing must be above 0 and at most the width of the region, {high - low:g}, got {step:g} for {name}"
            )
    _require_affordable(edges, steps)
    return steps


def _require_affordable(edges: Array, steps: Array) -> None:
    log_nodes = float((np.log10(edges[:, 1] - edges[:, 0]) - np.log10(steps)).sum())
    log_excess = log_nodes - log10(MOST_NODES)
    if log_excess > 0:
        enough = [_rounded_up(log10(step) + log_excess / len(steps)) for step in steps.tolist()]
        raise ValueError(
            f"spacing makes 10^{log_nodes:.1f} nodes, and {MOST_NODES:,} are the most; "
            f"a spacing of {', '.join(enough)} would do"
        )


def _rounded_up(log_number: float) -> str:
    """10 to this power, with two digits, and rather more than less."""
    return f"{ceil(10 ** (log_number - floor(log_number) + 1)) / 10:g}e{floor(log_number)}"


def _nodes(low: float, high: float, step: float) -> Array:
    n_steps = floor((high - low) / step * (1.0 + 1e-12) + 1e-9)
    return low + step * np.arange(n_steps + 1, dtype=np.float64)


def _predict_nodes(model: GridModel, section: _Slice, axes: Mapping[int, Array]) -> dict[str, NDArray[Any]]:
    """Each variable of the grid, in the shape of its axes."""
    shape = tuple(len(nodes) for nodes in axes.values())
    mean, std, std_latent = np.empty((3, prod(shape)))
    owner = np.empty(prod(shape), dtype=np.int32)
    for piece in _pieces(prod(shape)):
        places = np.unravel_index(np.arange(piece.start, piece.stop), shape)
        X = named(model, _queries(section, axes, places))
        answers = model.predict_with_owners(X)
        mean[piece], std[piece], std_latent[piece], owner[piece] = (values.reshape(len(X)) for values in answers)
    flat: dict[str, NDArray[Any]] = {"mean": mean, "std": std, "std_latent": std_latent, "model": owner}
    return {name: values.reshape(shape) for name, values in flat.items()}


def _pieces(n_nodes: int) -> Iterator[slice]:
    for first in range(0, n_nodes, _PIECE):
        yield slice(first, min(first + _PIECE, n_nodes))


def _queries(section: _Slice, axes: Mapping[int, Array], places: Sequence[Indices]) -> Array:
    """Inputs (n, d) at `places`: for each axis, the n numbers of its nodes."""
    X = np.empty((len(places[0]), len(section.names)))
    for column, value in section.fixed.items():
        X[:, column] = value
    for (column, nodes), place in zip(axes.items(), places, strict=True):
        X[:, column] = nodes[place]
    return X


def _as_dataset(
    model: GridModel, section: _Slice, axes: Mapping[int, Array], values: Mapping[str, NDArray[Any]]
) -> "xr.Dataset":
    import xarray as xr

    keys, target = _coordinate_keys(section.names, values), Label.parsed(target_name(model))
    attributes = [_coordinate_attributes(section, column) for column in range(len(section.names))]
    lines = {keys[column]: (keys[column], nodes, attributes[column]) for column, nodes in axes.items()}
    points = {keys[column]: ((), value, attributes[column]) for column, value in section.fixed.items()}
    variables = {name: (tuple(lines), array, _variable_attributes(name, target)) for name, array in values.items()}
    grid = xr.Dataset(variables, lines | points, _global_attributes(model, target))
    for coordinate in grid.coords.values():
        coordinate.encoding["_FillValue"] = None  # CF: coordinates have no gaps
    return grid


def _coordinate_keys(names: Sequence[str], taken: Mapping[str, Any]) -> list[str]:
    """Names for variables of a NetCDF file: ASCII letters, without the unit, and each of its own."""
    keys: list[str] = []
    for number, name in enumerate(names, start=1):
        key = re.sub(r"\W+", "_", Label.parsed(name).name, flags=re.ASCII).strip("_") or f"x{number}"
        while key in taken or key in keys:
            key += "_"
        keys.append(key)
    return keys


def _coordinate_attributes(section: _Slice, column: int) -> dict[str, str]:
    label = Label.parsed(section.names[column])
    attributes = {"long_name": label.name, "units": label.unit}
    if label.name.lower() in _GEOGRAPHIC and (label.unit or "deg").startswith(("deg", "°")):
        attributes["standard_name"], attributes["units"] = _GEOGRAPHIC[label.name.lower()]
    if len(section.varying) == 2 and column in section.varying:
        attributes["axis"] = "XY"[section.varying.index(column)]
    return _known(attributes)


def _variable_attributes(name: str, target: Label) -> dict[str, str]:
    meanings = {
        "mean": f"mean of {target.name}",
        "std": f"standard deviation of an observation of {target.name}",
        "std_latent": f"standard deviation of {target.name}",
        "model": "index of the local model that answers",
    }
    attributes = {"long_name": meanings[name], "units": None if name == "model" else target.unit}
    if name == "mean":
        attributes["ancillary_variables"] = "std std_latent model"
    return _known(attributes)


def _global_attributes(model: GridModel, target: Label) -> dict[str, str]:
    """There is no date among them: the same model on the same grid makes the same file."""
    maker = re.sub(r"\s+", " ", repr(model))
    return {
        "Conventions": "CF-1.8",
        "title": f"{target.name} by Gaussian process regression",
        "source": f"wgpr {version('wgpr')}: {maker}",
    }


def _known(attributes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if value is not None}
