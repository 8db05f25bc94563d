"""Grids as NetCDF, CoverageJSON or PNG."""

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

NETCDF, COVERAGE_JSON, PNG = "application/x-netcdf", "application/prs.coverage+json", "image/png"

COLOUR_MAPS = {"mean": "viridis", "std": "magma_r", "std_latent": "magma_r", "model": "tab20"}
LAYERS = tuple(COLOUR_MAPS)


def netcdf(grid: xr.Dataset, layer: str) -> bytes:
    """All layers, with CF attributes."""
    return bytes(grid.to_netcdf(engine="scipy"))


def coverage_json(grid: xr.Dataset, layer: str) -> bytes:
    """All layers as a coverage of a grid (OGC CoverageJSON)."""
    dimensions = [str(name) for name in grid["mean"].dims]
    axes = {str(name): {"values": np.atleast_1d(values).tolist()} for name, values in grid.coords.items()}
    parameters, ranges = {}, {}
    for name, values in grid.data_vars.items():
        parameters[str(name)] = _parameter(values)
        ranges[str(name)] = {
            "type": "NdArray",
            "dataType": "integer" if values.dtype.kind == "i" else "float",
            "axisNames": dimensions,
            "shape": list(values.shape),
            "values": values.to_numpy().ravel().tolist(),
        }
    domain = {"type": "Domain", "domainType": "Grid", "axes": axes, "referencing": []}
    content = {"type": "Coverage", "domain": domain, "parameters": parameters, "ranges": ranges}
    return json.dumps(content, allow_nan=False).encode()


def _parameter(values: xr.DataArray) -> dict[str, Any]:
    described = {"en": values.attrs.get("long_name", str(values.name))}
    unit = {"unit": {"symbol": values.attrs["units"]}} if "units" in values.attrs else {}
    return {"type": "Parameter", "observedProperty": {"label": described}, **unit}


def png(grid: xr.Dataset, layer: str) -> bytes:
    """One layer as a picture, a pixel for each node, north up."""
    from matplotlib import colormaps
    from matplotlib.image import imsave

    values = np.atleast_2d(grid[layer].to_numpy())[::-1]
    file = io.BytesIO()
    if layer == "model":
        imsave(file, values % 20, vmin=0, vmax=19, cmap=colormaps[COLOUR_MAPS[layer]])
    else:
        imsave(file, values, cmap=colormaps[COLOUR_MAPS[layer]])
    return file.getvalue()


FORMATS: dict[str, Callable[[xr.Dataset, str], bytes]] = {NETCDF: netcdf, COVERAGE_JSON: coverage_json, PNG: png}
