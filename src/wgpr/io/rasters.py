"""Grids for GIS: cloud-optimised GeoTIFF and BAG, by rasterio. Windows are predicted one after the other.

Memory does not grow with the grid: windows go to a temporary GeoTIFF beside the output, which GDAL then converts.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from wgpr.checks import require_module
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import coordinates, for_model
from wgpr.io.grids import GridPlan, named, source_of, target_name, varying_columns
from wgpr.labels import Label

MOST_NODES = 2_000_000_000
NAMES = ("mean", "std")
_WINDOW = 512  # nodes along a side, as blocks of the file
_BAG_NODATA = 1e6  # by its specification
_DOWN, _UP = re.compile("depth|sounding", re.IGNORECASE), re.compile("elev|height|altitude|^z$", re.IGNORECASE)
_UPWARDS = 'VERT_CS["UNKNOWN",VERT_DATUM["UNKNOWN",2000],UNIT["METRE",1],AXIS["HEIGHT",UP]]'  # rasterio makes capitals
_COG = {"COMPRESS": "DEFLATE", "PREDICTOR": "YES", "OVERVIEW_RESAMPLING": "AVERAGE", "BIGTIFF": "IF_SAFER"}

_N_NEAREST = 8  # pseudo-inputs that a place may be near to


@dataclass(frozen=True)
class Mask:
    """Which nodes have no data: std : those with a greater standard deviation of an observation.

    distance : those that are farther from what was measured; in metres if the map has a coordinate reference system,
        and in the unit of the inputs otherwise. Where a model has fewer pseudo-inputs than it had rows, each stands for
        the rows within the distance of its second neighbour.
    """

    std: float | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0.0 < value < np.inf:
                raise ValueError(f"--mask-{name} must be a number above 0, got {value:g}")

    def finder(self, model: EnsembleRegressor, plan: GridPlan) -> Callable[[Array, Array], NDArray[np.bool_]]:
        """A function of places (n, d) of the user and standard deviations (n,): which have no data (n,)."""
        columns = plane_of(model, plan)
        is_far = None if self.distance is None else _far_from_data(model, columns, self.distance)

        def is_masked(X: Array, std: Array) -> NDArray[np.bool_]:
            masked = np.zeros(len(X), dtype=bool) if self.std is None else std > self.std
            return masked if is_far is None else masked | is_far(for_model(model, X)[:, columns])

        return is_masked


def plane_of(model: EnsembleRegressor, plan: GridPlan) -> list[int]:
    """The first two inputs that vary in a grid: in their plane distances from data are measured."""
    return [column for column in varying_columns(model) if column in plan.axes][:2]


def _far_from_data(
    model: EnsembleRegressor, columns: list[int], distance: float
) -> Callable[[Array], NDArray[np.bool_]]:
    """A function of places (n, 2) of the model: which of them no row was near."""
    pending = model._state.pending_X[:, columns]
    places, reaches, boxes = [pending], [np.full(len(pending), distance)], [_box(pending, distance)]
    for part, Z in zip(model.models_, model.pseudo_inputs_, strict=True):
        places.append(Z[:, columns])
        reaches.append(np.full(len(Z), distance))
        boxes.append(_box(places[-1], distance))
        if part.n_seen > len(Z) > 2:
            second = cKDTree(places[-1]).query(places[-1], 3)[0][:, 2]
            reaches[-1] = np.maximum(second, distance)
    tree, reach, limits = cKDTree(np.concatenate(places)), np.append(np.concatenate(reaches), 0.0), np.array(boxes)
    owner = np.append(np.repeat(np.arange(len(places)), [len(each) for each in places]), 0)

    def is_far(X: Array) -> NDArray[np.bool_]:
        gaps, nearest = tree.query(X, _N_NEAREST, distance_upper_bound=float(reach.max()))
        low, high = limits[owner[nearest]].transpose(2, 0, 1, 3)
        is_inside = ((low <= X[:, None]) & (X[:, None] <= high)).all(axis=2)
        return np.asarray(((gaps > reach[nearest]) | ~is_inside).all(axis=1))

    return is_far


def _box(Z: Array, margin: float) -> Array:
    """The least and the greatest of places (n, 2), with a margin: (2, 2)."""
    return np.stack([Z.min(axis=0, initial=np.inf) - margin, Z.max(axis=0, initial=-np.inf) + margin])


def require_rasterio() -> Any:
    return require_module("rasterio", "GeoTIFF and BAG need rasterio", "geo")


def check_raster(path: Path, model: EnsembleRegressor, plan: GridPlan) -> None:
    """Raise an error if a grid cannot be written as a raster of this kind."""
    rasterio = require_rasterio()
    if len(plan.axes) != 2:
        raise ValueError(f"a raster has two inputs that vary, and here {len(plan.axes)} do; fix the others with --at")
    if path.suffix.lower() != ".bag":
        return
    if coordinates(model) is None:
        fault = "a BAG needs a coordinate reference system, and the map has none"
        raise ValueError(f"{fault}; say it with wgpr update MAP --crs, or with wgpr fit --crs for degrees")
    up_or_down(model)
    with rasterio.Env() as environment:
        if "BAG" not in environment.drivers():
            remedy = "write .tif, or install rasterio from wheels of PyPI, which have it"
            raise ValueError(f"this build of GDAL {rasterio.__gdal_version__} cannot write BAG; {remedy}")


def up_or_down(model: EnsembleRegressor) -> float:
    """The factor from the target to an elevation: -1 for depths. Raises an error if the name does not tell."""
    name = Label.parsed(target_name(model)).name
    if _DOWN.search(name):
        return -1.0
    if _UP.search(name):
        return 1.0
    raise ValueError(f"a BAG has elevations, and the target is {name}, neither depth nor elevation; write .tif")


def write_raster(
    path: Path,
    destination: Path,
    model: EnsembleRegressor,
    plan: GridPlan,
    mask: Mask,
    show: Callable[[int], None] | None = None,
) -> int:
    """Write mean and standard deviation of an observation. Returns how many nodes have no data.

    path : says the kind, by its ending, .tif or .bag; destination : where the file is written.
    show : is told how many nodes are done.
    """
    rasterio = require_rasterio()
    copy = import_module("rasterio.shutil").copy
    is_bag = path.suffix.lower() == ".bag"
    nodata, factor = (_BAG_NODATA, up_or_down(model)) if is_bag else (np.nan, 1.0)
    known, n_masked, n_done = coordinates(model), 0, 0
    profile = {
        "driver": "GTiff", "count": len(NAMES), "dtype": "float32", "nodata": nodata, "transform": transform(plan),
        "height": plan.shape[0], "width": plan.shape[1], "crs": None if known is None else known.user,
        "tiled": True, "blockxsize": _WINDOW, "blockysize": _WINDOW, "compress": "deflate", "BIGTIFF": "IF_SAFER",
    }  # fmt: skip
    is_masked = mask.finder(model, plan)
    with TemporaryDirectory(dir=destination.parent, prefix=".wgpr-") as folder:
        temporary = Path(folder) / "grid.tif"
        with rasterio.open(temporary, "w", **profile) as file:
            _describe(file, model)
            for window, X in _windows(plan):
                mean, std, _, _ = model.predict_with_owners(named(model, X))
                has_none = is_masked(X, std)
                n_masked, n_done = n_masked + int(has_none.sum()), n_done + len(X)
                for band, values in enumerate((factor * mean, std), start=1):
                    plane = np.where(has_none, nodata, values).astype(np.float32)
                    file.write(plane.reshape(window.height, window.width), band, window=window)
                if show is not None:
                    show(n_done)
        options = {"VAR_VERT_WKT": _UPWARDS} if is_bag else _COG
        copy(str(temporary), str(destination), driver="BAG" if is_bag else "COG", **options)
    return n_masked


def transform(plan: GridPlan) -> Any:
    """From columns and rows of pixels, north up, to the places of their corners. Nodes are in the middle of pixels."""
    y, x = plan.axes.values()
    width, height = x[1] - x[0], y[1] - y[0]
    return require_rasterio().Affine(width, 0.0, x[0] - width / 2, 0.0, -height, y[-1] + height / 2)


def _describe(file: Any, model: EnsembleRegressor) -> None:
    target, unit = Label.parsed(target_name(model))
    told = f"mean of {target}", f"standard deviation of an observation of {target}"
    for band, (name, text) in enumerate(zip(NAMES, told, strict=True), start=1):
        file.set_band_description(band, name)
        file.set_band_unit(band, unit or "")
        file.update_tags(band, long_name=text)
    file.update_tags(TIFFTAG_SOFTWARE=source_of(model), AREA_OR_POINT="Area")


def _windows(plan: GridPlan) -> Iterator[tuple[Any, Array]]:
    """Windows of the raster, and the inputs (n, d) of their nodes, row by row from north to south."""
    make = import_module("rasterio.windows").Window
    (y_column, y), (x_column, x) = plan.axes.items()
    y = y[::-1]
    for first_row in range(0, len(y), _WINDOW):
        for first in range(0, len(x), _WINDOW):
            rows, columns = y[first_row : first_row + _WINDOW], x[first : first + _WINDOW]
            window = replace(plan, axes={y_column: rows, x_column: columns})
            yield make(first, first_row, len(columns), len(rows)), window.inputs(slice(0, window.size))
