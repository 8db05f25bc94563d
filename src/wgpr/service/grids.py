"""Grids as NetCDF, CoverageJSON or PNG."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

NETCDF, COVERAGE_JSON, PNG = "application/x-netcdf", "application/prs.coverage+json", "image/png"

COLOUR_MAPS = {"mean": "viridis", "std": "magma_r", "std_latent": "magma_r", "model": "tab20"}
LAYERS = tuple(COLOUR_MAPS)

# Numbers that are written at once.
_PIECE = 2000


def netcdf(grid: xr.Dataset, layer: str) -> bytes:
    """All layers, with CF attributes."""
    return bytes(grid.to_netcdf(engine="scipy"))


def coverage(grid: xr.Dataset, layer: str) -> bytes:
    """All layers as a coverage of a grid."""
    axes = {str(name): {"values": np.atleast_1d(values).tolist()} for name, values in grid.coords.items()}
    parameters = {str(name): _parameter(values) for name, values in grid.data_vars.items()}
    domain = {"type": "Domain", "domainType": "Grid", "axes": axes, "referencing": []}
    values = {str(name): array.to_numpy() for name, array in grid.data_vars.items()}
    return coverage_json(domain, parameters, values, [str(name) for name in grid["mean"].dims])


def coverage_json(
    domain: dict[str, Any], parameters: dict[str, Any], values: Mapping[str, NDArray[Any]], axes: Sequence[str]
) -> bytes:
    """A coverage (OGC CoverageJSON). values : by parameter, with a dimension for each axis; None for no value."""
    head = json.dumps({"type": "Coverage", "domain": domain, "parameters": parameters}, allow_nan=False)
    ranges = ", ".join(f"{json.dumps(name)}: {_range(array, axes)}" for name, array in values.items())
    return f'{head[:-1]}, "ranges": {{{ranges}}}}}'.encode()


def _range(values: NDArray[Any], axes: Sequence[str]) -> str:
    """Values as JSON. They are written in pieces: other threads wait while one is written."""
    kind = "integer" if values.dtype.kind == "i" else "float"
    about = {"type": "NdArray", "dataType": kind, "axisNames": list(axes), "shape": list(values.shape)}
    flat = values.ravel()
    pieces = [json.dumps(flat[i : i + _PIECE].tolist(), allow_nan=False)[1:-1] for i in range(0, len(flat), _PIECE)]
    return f'{json.dumps(about)[:-1]}, "values": [{", ".join(pieces)}]}}'


def _parameter(values: xr.DataArray) -> dict[str, Any]:
    described = {"en": values.attrs.get("long_name", str(values.name))}
    unit = {"unit": {"symbol": values.attrs["units"]}} if "units" in values.attrs else {}
    return {"type": "Parameter", "observedProperty": {"label": described}, **unit}


def png(grid: xr.Dataset, layer: str) -> bytes:
    """One layer as a picture, a pixel for each node, north up."""
    return picture(np.atleast_2d(grid[layer].to_numpy())[::-1], layer)


def picture(values: NDArray[Any], layer: str, low: float | None = None, high: float | None = None) -> bytes:
    """Values (n_y, n_x) of a layer as a PNG, in colours from `low` to `high`, or of their range."""
    from matplotlib import colormaps
    from matplotlib.image import imsave

    if layer == "model":
        values, low, high = values % 20, 0.0, 19.0
    file = io.BytesIO()
    imsave(file, values, vmin=low, vmax=high, cmap=colormaps[COLOUR_MAPS[layer]])
    return file.getvalue()


FORMATS: dict[str, Callable[[xr.Dataset, str], bytes]] = {NETCDF: netcdf, COVERAGE_JSON: coverage, PNG: png}
