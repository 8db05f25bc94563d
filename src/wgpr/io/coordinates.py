"""Coordinate reference systems: what the user speaks, and what a map is learned in.

Degrees of longitude and latitude are no distances, so a map of such inputs is learned in metres of the UTM zone of its
first row (near the poles, of the polar stereographic projection UPS). These projections keep angles, are known to every
GIS by name, and depend on nothing but the first row: how a stream is divided does not matter. Inputs that are projected
already are only converted to metres. Metres are counted from the first row, in steps of 0.1 mm, so that the same survey
in degrees, metres or kilometres is the same map to the last bit. Estimators know nothing of this: rows and queries are
converted in `wgpr.io.rows` and by `wgpr.io.grids.named`. x is always the first axis: longitude or easting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wgpr.checks import require_module
from wgpr.gp.linalg import Array
from wgpr.labels import EASTING, LATITUDE, LONGITUDE, NORTHING, Label

if TYPE_CHECKING:
    from wgpr.estimators.base import EnsembleRegressor

WGS84 = "EPSG:4326"
NONE = "none"  # learn coordinates as they are
LARGEST_DEGREES = (360.0, 90.0)  # of longitude and latitude, in either direction

_X, _Y = f"x|{LONGITUDE}|{EASTING}", f"y|{LATITUDE}|{NORTHING}"
_MODEL_NAMES = ("east_of_origin", "north_of_origin")
_UTM_NORTH, _UTM_SOUTH = 84.0, -80.0
_DIGITS = 4  # of inputs in metres
# Points on each side of a box that is converted.
_SIDE = 9


class CrsError(ValueError):
    """A coordinate reference system that cannot be used, or coordinates outside of it."""


@dataclass(frozen=True)
class Coordinates:
    """How inputs of a user become inputs of a model.

    user : WKT of the user's system; names : of the user's d inputs; columns : which of them are x and y.
    model : WKT of the metric system, empty if the user's system is projected, or if no row is known yet.
    origin : place of the first row in metres, from which a model counts; None until that is known.
    centre : longitude in the middle of those that `to_user` gives; NaN if they are not longitudes.
    """

    user: str
    names: tuple[str, ...]
    columns: tuple[int, int]
    model: str = ""
    origin: tuple[float, float] | None = None
    centre: float = np.nan

    def __str__(self) -> str:
        return self.name + (f", learned in metres of {_crs(self.model).name}" if self.model else "")

    @property
    def name(self) -> str:
        """As short as the system can be named: EPSG:4326, or its name in words."""
        return short_name(self.user)

    @cached_property
    def is_geographic(self) -> bool:
        """Whether the user speaks degrees."""
        return bool(_crs(self.user).is_geographic)

    @property
    def is_metric(self) -> bool:
        """Whether the user speaks metres."""
        return not self.is_geographic and self._metres == 1.0

    @cached_property
    def _metres(self) -> float:
        """Metres of one unit of the system that places are projected to."""
        return float(_crs(self.model or self.user).axis_info[0].unit_conversion_factor)

    @property
    def model_names(self) -> list[str]:
        """Names of the inputs of the model, which differ from the user's so that none is taken for the other."""
        names = list(self.names)
        for column, name in zip(self.columns, _MODEL_NAMES, strict=True):
            while name in names:
                name += "_"
            names[column] = name
        return names

    def settled(self, x: ArrayLike) -> "Coordinates":
        """With the metric system and the origin of a map whose first row is `x` (d,)."""
        if self.origin is not None:
            return self
        first = np.reshape(np.asarray(x, dtype=np.float64), (1, -1))
        longitude, latitude = first[0, list(self.columns)].tolist()
        if self.is_outside(first)[0]:
            place = f"{longitude:g}, {latitude:g}"
            raise CrsError(f"the first row is at {place}, which is not in {self.name}; correct --crs")
        known = self
        if self.is_geographic:
            wkt, centre = _metric_system(self.user, longitude, latitude)
            known = replace(self, model=wkt, centre=centre + 360.0 * round((longitude - centre) / 360.0))
        east, north = np.round(known.places(first)[0, list(self.columns)], _DIGITS).tolist()
        return replace(known, origin=(east, north))

    def to_model(self, X: Array) -> Array:
        """Inputs (n, d) of the user as inputs of the model. Places that cannot be projected raise an error."""
        converted, columns = self.places(X), list(self.columns)
        if not np.isfinite(converted).all():
            row = X[int(np.argmax(~np.isfinite(converted).all(axis=1)))]
            place = ", ".join(f"{row[column]:.10g}" for column in columns)
            raise CrsError(f"{place} is no place near the map in {self.name}; correct the coordinates")
        converted[:, columns] = np.round(converted[:, columns], _DIGITS)
        return converted

    def to_user(self, X: Array) -> Array:
        """Inputs (n, d) of the model as inputs of the user."""
        converted, (x, y) = np.array(X, dtype=np.float64), self.columns
        converted[:, [x, y]] = (converted[:, [x, y]] + (self.origin or 0.0)) / self._metres
        if self.model:
            transformer = _transformer(self.model, self.user, get_ident())
            converted[:, x], converted[:, y] = transformer.transform(converted[:, x], converted[:, y])
        if np.isfinite(self.centre):
            converted[:, x] = self.centre + (converted[:, x] - self.centre + 180.0) % 360.0 - 180.0
        return converted

    def is_outside(self, X: Array) -> NDArray[np.bool_]:
        """Which rows (n, d) of the user have no place in the system."""
        if not self.is_geographic:
            return np.zeros(len(X), dtype=bool)
        return np.asarray(~np.isfinite(self.places(X)).all(axis=1))

    def places(self, X: Array) -> Array:
        """As `to_model`, but not rounded, and infinite where the system has no place."""
        converted, (x, y) = np.array(X, dtype=np.float64), self.columns
        if self.model:
            transformer = _transformer(self.user, self.model, get_ident())
            converted[:, x], converted[:, y] = transformer.transform(converted[:, x], converted[:, y])
        if self.model or not self.is_geographic:
            converted[:, [x, y]] *= self._metres
        if self.is_geographic:
            is_outside = (np.abs(X[:, [x, y]]) > LARGEST_DEGREES).any(axis=1)
            converted[is_outside, x] = converted[is_outside, y] = np.inf
        converted[:, [x, y]] -= self.origin or 0.0
        return converted

    def box_to_user(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Corners (J, d) of J boxes of the user that hold those of the model."""
        columns, parts = list(self.columns), np.linspace(0.0, 1.0, _SIDE)
        sides = np.array([(x, y) for x in parts for y in parts if x in (0.0, 1.0) or y in (0.0, 1.0)])
        places = np.repeat(low[np.newaxis], len(sides), axis=0)
        places[..., columns] += sides[:, np.newaxis] * (high - low)[:, columns]
        users = self.to_user(places.reshape(-1, places.shape[-1])).reshape(places.shape)[..., columns]
        least, most = low.copy(), high.copy()
        least[:, columns], most[:, columns] = users.min(axis=0), users.max(axis=0)
        return least, most

    def cf_attributes(self) -> dict[str, Any]:
        """Of the variable that describes the user's system in NetCDF files, by the CF conventions."""
        return {name: value for name, value in _crs(self.user).to_cf().items() if isinstance(value, str | float)}

    def cf_axis(self, column: int) -> tuple[str, str]:
        """Standard name and unit of x or y."""
        place = self.columns.index(column)
        if self.is_geographic:
            return (("longitude", "degrees_east"), ("latitude", "degrees_north"))[place]
        unit = str(_crs(self.user).axis_info[0].unit_name)
        return f"projection_{'xy'[place]}_coordinate", {"metre": "m", "kilometre": "km"}.get(unit, unit)

    def transformed(self, x: ArrayLike, y: ArrayLike, target: str = WGS84) -> tuple[Array, Array]:
        """Places of the user in another system."""
        return _transformer(self.user, target, get_ident()).transform(x, y)

    def from_system(self, x: ArrayLike, y: ArrayLike, source: str) -> tuple[Array, Array]:
        """Places of another system as those of the user."""
        return _transformer(source, self.user, get_ident()).transform(x, y)


def coordinates_of(crs: str, names: Sequence[str]) -> Coordinates:
    """Coordinates with a system that the user names, as EPSG code, WKT or PROJ string, or as a file with WKT.

    names : of the inputs. Those of a longitude or an easting and of a latitude or a northing are x and y; without such
        names these are the first two.
    """
    if len(names) < 2:
        raise CrsError(
            f"a coordinate reference system needs two inputs, and there is {', '.join(names)}; use --crs none"
        )
    text = Path(crs).read_text(encoding="utf-8") if crs.lower().endswith((".prj", ".wkt")) else crs
    system = _crs(text)
    if system.is_geocentric or not (system.is_geographic or system.is_projected or system.is_engineering):
        raise CrsError(f"{crs} has no x and y of a map; name a geographic or a projected system, such as EPSG:4326")
    return Coordinates(system.to_2d().to_wkt(), tuple(names), _columns(names, _X, _Y) or (0, 1))


def recognised(names: Sequence[str], rows: Array) -> bool:
    """Whether inputs are longitude and latitude, by their names and the values (n, d) of the first rows."""
    found = named_degrees(names)
    if found is None:
        return False
    places = rows[np.isfinite(rows).all(axis=1)][:, list(found)]
    are_inside = (np.abs(places) <= LARGEST_DEGREES).all(axis=1)
    return len(places) > 0 and bool(are_inside.mean() > 0.5)  # a wrong row is an error later


def named_degrees(names: Sequence[str]) -> tuple[int, int] | None:
    """The columns of longitude and latitude, by their names; None without, or if they have another unit."""
    found = _columns(names, LONGITUDE, LATITUDE)
    units = [Label.parsed(names[column]).unit for column in found or ()]
    return found if all(unit is None or unit.lower().startswith(("deg", "°")) for unit in units) else None


def _columns(names: Sequence[str], x: str, y: str) -> tuple[int, int] | None:
    """The one column whose name matches the pattern `x`, and the one that matches `y`."""
    labels = [Label.parsed(name) for name in names]
    found = [[column for column, label in enumerate(labels) if label.is_one_of(side)] for side in (x, y)]
    return (found[0][0], found[1][0]) if len(found[0]) == len(found[1]) == 1 else None


def has_pyproj() -> bool:
    return find_spec("pyproj") is not None


def require_pyproj() -> Any:
    return require_module("pyproj", "coordinate reference systems need pyproj", "geo")


@lru_cache(maxsize=64)
def _crs(text: str) -> Any:
    pyproj = require_pyproj()
    try:
        return pyproj.CRS.from_user_input(text)
    except pyproj.exceptions.CRSError as error:
        shown = f"{text[:60]}..." if len(text) > 60 else text
        raise CrsError(
            f"{shown} is no coordinate reference system; use an EPSG code such as EPSG:4326, or WKT"
        ) from error


def short_name(text: str) -> str:
    """The EPSG code of a system, or its name."""
    system = _crs(text)
    authority = system.to_authority(min_confidence=70)
    return ":".join(authority) if authority else str(system.name)


@lru_cache(maxsize=256)
def _transformer(source: str, target: str, thread: int) -> Any:
    """A transformer of one thread: they may not be shared."""
    return require_pyproj().Transformer.from_crs(_crs(source), _crs(target), always_xy=True)


@lru_cache(maxsize=256)
def _metric_system(geographic: str, longitude: float, latitude: float) -> tuple[str, float]:
    """WKT of the metric system about a place, and its middle longitude."""
    crs = import_module("pyproj.crs")
    conversions = import_module("pyproj.crs.coordinate_operation")
    system = _crs(geographic)
    if not _UTM_SOUTH <= latitude <= _UTM_NORTH:
        pole, name = (90.0, "North") if latitude > 0 else (-90.0, "South")
        conversion = conversions.PolarStereographicAConversion(
            pole, false_easting=2e6, false_northing=2e6, scale_factor_natural_origin=0.994
        )
        return crs.ProjectedCRS(conversion, f"{system.name} / UPS {name}", geodetic_crs=system).to_wkt(), longitude
    zone, half = int((longitude + 180.0) // 6.0) % 60 + 1, "N" if latitude >= 0 else "S"
    name = f"{system.name} / UTM zone {zone}{half}"
    made = crs.ProjectedCRS(conversions.UTMConversion(zone, half), name, geodetic_crs=system)
    return made.to_wkt(), 6.0 * zone - 183.0


# Coordinates of maps


def coordinates(model: "EnsembleRegressor") -> Coordinates | None:
    """The coordinates of a model; None if it has no reference system."""
    return getattr(model, "crs_", None)


def settle(model: "EnsembleRegressor", X: Array) -> Coordinates | None:
    """The coordinates of a model, with the metric system that its first rows `X` (n, d) need if it has none yet."""
    known = coordinates(model)
    if known is not None and known.origin is None:
        model.crs_ = known = known.settled(X[0])
    return known


def for_model(model: "EnsembleRegressor", X: Array) -> Array:
    """Inputs (n, d) of the user as those of the model."""
    known = coordinates(model)
    return X if known is None else known.to_model(X)


def for_user(model: "EnsembleRegressor", X: Array) -> Array:
    """Inputs (n, d) of the model as those of the user."""
    known = coordinates(model)
    return X if known is None else known.to_user(X)


def boxes_for_user(model: "EnsembleRegressor", low: Array, high: Array) -> tuple[Array, Array]:
    """Corners (J, d) of boxes that hold those of the model."""
    known = coordinates(model)
    return (low, high) if known is None else known.box_to_user(low, high)


def user_bounds(model: "EnsembleRegressor") -> Array:
    """Least and greatest inputs (2, d), as the user gives them."""
    low, high = boxes_for_user(model, model.bounds_[:1], model.bounds_[1:])
    return np.concatenate([low, high])
