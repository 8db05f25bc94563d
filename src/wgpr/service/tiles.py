"""Tiles of a map: squares of 256 pixels in a pyramid, as Leaflet's `CRS.Simple` numbers them.

At zoom z a unit of the inputs has 2^z pixels, so a tile has the width 256 / 2^z. Tile (0, 0) lies to the east and
south of the origin; x grows to the east, y to the south. Zooms and numbers may be negative.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array, Indices
from wgpr.io.grids import GridPlan, input_names, named, varying_columns
from wgpr.service.errors import ServiceError
from wgpr.service.grids import LAYERS, picture

Planes = NDArray[np.float32]
PLANES = (*LAYERS, "std_prior")

_PIXELS = 256
_MOST_BYTES = 2**27


class TileAddress(NamedTuple):
    """zoom, x, y : of the pyramid; size : nodes along a side, from edge to edge.

    aspect : units of the second axis for one of the first;
    fixed : values of the inputs that do not vary, by column.
    """

    zoom: int
    x: int
    y: int
    size: int
    aspect: float
    fixed: tuple[tuple[int, float], ...]


def edges(address: TileAddress) -> tuple[float, float, float, float]:
    """West, south, east and north end of a tile."""
    width = _PIXELS * 2.0**-address.zoom
    west, north = address.x * width, -address.y * width * address.aspect
    return west, north - width * address.aspect, west + width, north


def box(model: EnsembleRegressor, address: TileAddress) -> tuple[Array, Array]:
    """Low and high corner (d,) of a tile among all inputs."""
    first, second = plane_columns(model, address)
    low = np.empty(model.n_features_in_)
    high = np.empty(model.n_features_in_)
    for column, value in address.fixed:
        low[column] = high[column] = value
    low[first], low[second], high[first], high[second] = edges(address)
    return low, high


def plane_columns(model: EnsembleRegressor, address: TileAddress) -> list[int]:
    """The two inputs that vary, west to east first."""
    if model.n_features_in_ - len(address.fixed) != 2:
        raise ServiceError(422, "a tile has two inputs that vary; fix the others with at=NAME=VALUE")
    return varying_columns(model, dict(address.fixed))


def nodes(model: EnsembleRegressor, address: TileAddress) -> Array:
    """Places (size * size, d), row by row from north to south. Nodes at the edges are shared with the next tiles."""
    west, south, east, north = edges(address)
    along = np.linspace(0.0, 1.0, address.size)
    first, second = plane_columns(model, address)
    axes = {second: north - (north - south) * along, first: west + (east - west) * along}
    plan = GridPlan(input_names(model), axes, dict(address.fixed))
    return plan.inputs(slice(0, plan.size))


def predicted(model: EnsembleRegressor, address: TileAddress) -> Planes:
    """The planes of a tile: (5, size, size), in the order of `PLANES`."""
    X = nodes(model, address)
    if not np.isfinite(X).all() or np.abs(X).max() > 1e15:
        raise ServiceError(422, "the tile is too far away")
    *values, owners = model.predict_with_owners(named(model, X))
    planes = np.stack([*values, owners, _prior_std(model, owners)])
    return planes.reshape(len(PLANES), address.size, address.size).astype("<f4")


def _prior_std(model: EnsembleRegressor, owners: Indices) -> Array:
    """Standard deviation of the field without any rows, by the models (n,) that answer."""
    ensemble, units = model._answering()
    numbers, positions = np.unique(owners, return_inverse=True)
    return np.array([units.for_user(ensemble.models[number].theta).amplitude for number in numbers])[positions]


def png(plane: Planes, layer: str, low: float | None, high: float | None) -> bytes:
    """A plane (size, size) as a picture of 256 by 256 pixels, in colours from `low` to `high`, or of its own range."""
    from scipy.ndimage import map_coordinates

    places = (np.arange(_PIXELS) + 0.5) / _PIXELS * (len(plane) - 1)
    pixels = map_coordinates(plane, np.meshgrid(places, places, indexing="ij"), order=0 if layer == "model" else 1)
    first = float(plane.min()) if low is None else low
    last = float(plane.max()) if high is None else high
    return picture(pixels, layer, first, max(first, last))


class TileCache:
    """Tiles that were made, the latest 128 MiB. A tile that several clients want at once is made once."""

    def __init__(self) -> None:
        self._tiles: OrderedDict[tuple[str, TileAddress], tuple[str, asyncio.Task[Planes]]] = OrderedDict()

    async def get(
        self, name: str, address: TileAddress, version: str, make: Callable[[], Coroutine[Any, Any, Planes]]
    ) -> Planes:
        """The tile of this version; `make` is a coroutine function that makes it."""
        key = name, address
        known = self._tiles.get(key)
        if known is None or known[0] != version or (known[1].done() and known[1].exception() is not None):
            known = version, asyncio.create_task(make())
            self._tiles[key] = known
        self._tiles.move_to_end(key)
        while sum(_n_bytes(each) for _, each in self._tiles) > _MOST_BYTES:
            self._tiles.popitem(last=False)
        return await asyncio.shield(known[1])


def _n_bytes(address: TileAddress) -> int:
    return 4 * len(PLANES) * address.size**2
