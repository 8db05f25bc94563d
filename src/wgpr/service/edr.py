"""OGC API - Environmental Data Retrieval 1.1: maps as collections that QGIS and other clients can ask.

A map of two or more inputs is a collection. Its first two inputs are x and y, west to east first; a third one is z.
Inputs that a query does not name are in the middle of their extent. Answers are CoverageJSON.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import coordinates, user_bounds
from wgpr.io.grids import input_names, named, target_name, varying_columns
from wgpr.labels import LONGITUDE, Label
from wgpr.service.bodies import Name
from wgpr.service.catalogue import Catalogue
from wgpr.service.errors import ServiceError
from wgpr.service.grids import COVERAGE_JSON, coverage_json
from wgpr.service.livemap import LiveMap

CONFORMANCE = (
    "http://www.opengis.net/spec/ogcapi-common-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-common-2/1.0/conf/collections",
    "http://www.opengis.net/spec/ogcapi-edr-1/1.1/conf/core",
    "http://www.opengis.net/spec/ogcapi-edr-1/1.1/conf/covjson",
    "http://www.opengis.net/spec/ogcapi-edr-1/1.1/conf/oas30",
)
PARAMETERS = {"mean": "mean of {}", "std": "standard deviation of an observation of {}"}
QUERIES = ("position", "area", "cube", "trajectory")
_CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_LOCAL = 'ENGCRS["local",EDATUM["unknown"],CS[Cartesian,2],AXIS["x",east],AXIS["y",north],LENGTHUNIT["metre",1]]'
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# Nodes along a side of an area or a cube, and points along a trajectory, unless the client wants others.
_NODES, _POINTS, _MOST_POINTS = 50, 100, 10_000

# Corners of a polygon times nodes.
_MOST_COMPARED = 50_000_000

_ANSWERS: dict[int | str, Any] = {200: {"content": {COVERAGE_JSON: {"schema": {"type": "object"}}}}}

Coordinates = Annotated[str, Query(max_length=100_000, description="Well-known text, such as POINT(1 2).")]
Resolution = Annotated[int, Query(ge=2, le=1000, description="Number of nodes.")]


@dataclass
class Wanted:
    """What any query can name."""

    z: Annotated[float | None, Query(ge=-1e15, le=1e15, description="Value of the third input.")] = None
    names: Annotated[
        str, Query(alias="parameter-name", max_length=200, description="mean, std, or both by a comma.")
    ] = "mean,std"
    f: Annotated[Literal["CoverageJSON"], Query(description="Of the answer.")] = "CoverageJSON"


@dataclass
class Size:
    """Nodes of a grid."""

    x: Annotated[Resolution, Query(alias="resolution-x")] = _NODES
    y: Annotated[Resolution, Query(alias="resolution-y")] = _NODES


class Domain(NamedTuple):
    """Of a coverage: kind and axes as CoverageJSON has them, places (n, 2) or (n, 3), and sizes of the ranges."""

    kind: str
    axes: dict[str, Any]
    places: Array
    sizes: dict[str, int]


def edr_routes(catalogue: Catalogue) -> APIRouter:
    router = APIRouter(tags=["OGC API - Environmental Data Retrieval"])

    @router.get("/conformance")
    async def conformance() -> dict[str, list[str]]:
        """The parts of the standard that hold."""
        return {"conformsTo": list(CONFORMANCE)}

    @router.get("/collections")
    async def collections(request: Request) -> dict[str, Any]:
        """All maps with rows and at least two inputs."""
        base = str(request.base_url)
        found = [_collection(each, base) for _, each in sorted(catalogue.maps.items()) if _is_spatial(each)]
        return {"links": [_link(f"{base}collections", "self")], "collections": found}

    @router.get("/collections/{name}")
    async def collection(name: Name, request: Request) -> dict[str, Any]:
        """One map: extent, parameters and queries."""
        return _collection(_spatial(catalogue[name]), str(request.base_url))

    @router.get("/collections/{name}/position", response_class=Response, responses=_ANSWERS)
    async def position(name: Name, coords: Coordinates, wanted: Annotated[Wanted, Depends()]) -> Response:
        """At a POINT, or at all of a MULTIPOINT."""
        kind, places = parse_wkt(coords, ("POINT", "MULTIPOINT"))
        return await answer(name, _at_points(places, is_one=kind == "POINT"), wanted)

    @router.get("/collections/{name}/trajectory", response_class=Response, responses=_ANSWERS)
    async def trajectory(name: Name, coords: Coordinates, wanted: Annotated[Wanted, Depends()]) -> Response:
        """Along a LINESTRING: at its ends and corners, and at places between them."""
        _, corners = parse_wkt(coords, ("LINESTRING",))
        return await answer(name, _at_points(along(corners)), wanted)

    @router.get("/collections/{name}/area", response_class=Response, responses=_ANSWERS)
    async def area(
        name: Name, coords: Coordinates, wanted: Annotated[Wanted, Depends()], size: Annotated[Size, Depends()]
    ) -> Response:
        """Inside of a POLYGON, on a grid; null outside of it."""
        from matplotlib.path import Path as Polygon

        ring = parse_wkt(coords, ("POLYGON",))[1][:, :2]
        grid = _on_grid(ring.min(axis=0), ring.max(axis=0), size)
        if len(ring) * len(grid.places) > _MOST_COMPARED:
            raise ServiceError(413, "the polygon has too many corners for so many nodes; ask for fewer of one of them")
        is_inside = await catalogue.answered(partial(Polygon(ring).contains_points, grid.places, radius=1e-9))
        return await answer(name, grid, wanted, is_inside)

    @router.get("/collections/{name}/cube", response_class=Response, responses=_ANSWERS)
    async def cube(
        name: Name,
        bbox: Annotated[str, Query(max_length=200, description="minx,miny,maxx,maxy")],
        wanted: Annotated[Wanted, Depends()],
        size: Annotated[Size, Depends()],
    ) -> Response:
        """On a grid in a box."""
        numbers = _numbers(bbox.replace(",", " "))
        if len(numbers) != 4 or bbox.count(",") != 3:
            raise ServiceError(400, "bbox must be minx,miny,maxx,maxy")
        return await answer(name, _on_grid(numbers[:2], numbers[2:], size), wanted)

    async def answer(name: str, domain: Domain, wanted: Wanted, is_shown: Any = True) -> Response:
        """Predict at the places of a domain and write the coverage. is_shown : (n,) others are null."""
        model = catalogue.answering_model(_spatial(catalogue[name]))
        names = [each for each in wanted.names.split(",") if each]
        if not names or not set(names) <= set(PARAMETERS):
            raise ServiceError(400, f"parameter-name must be among {', '.join(PARAMETERS)}")
        X = _all_inputs(model, domain.places, wanted.z)
        mean, std, _, _ = await catalogue.answered(model.predict_with_owners, named(model, X))
        shape, nothing = tuple(domain.sizes.values()), cast(Any, None)
        predicted = {"mean": mean, "std": std}
        values = {each: np.where(is_shown, predicted[each], nothing).reshape(shape) for each in names}
        parameters = {each: _parameter(model, each, lambda text: {"en": text}) for each in names}
        described: dict[str, Any] = {"type": "Domain", "domainType": domain.kind, "axes": domain.axes}
        described["referencing"] = [_reference(model)]
        data = await catalogue.answered(coverage_json, described, parameters, values, list(domain.sizes))
        return Response(data, media_type=COVERAGE_JSON)

    return router


def landing_page(request: Request) -> Response:
    """What can be asked, for programs; people get the page."""
    base = str(request.base_url)
    links = [
        _link(base, "self"),
        _link(f"{base}openapi.json", "service-desc", "application/vnd.oai.openapi+json;version=3.1"),
        _link(f"{base}docs", "service-doc", "text/html"),
        _link(f"{base}conformance", "conformance"),
        _link(f"{base}collections", "data"),
    ]
    return JSONResponse({"title": "WGPR", "description": "Maps that learn from a stream.", "links": links})


# Places


def parse_wkt(text: str, kinds: Sequence[str]) -> tuple[str, Array]:
    """The kind of a geometry of well-known text, and its places (n, 2) or (n, 3). A polygon has no holes."""
    found = re.fullmatch(r"\s*([A-Z]+)\s*(?:Z\s*)?\((.*)\)\s*", text.upper(), flags=re.DOTALL)
    if found is None or found[1] not in kinds:
        raise ServiceError(400, f"coords must be {' or '.join(kinds)} in well-known text, such as POINT(1 2)")
    kind, inner = found[1], found[2].strip()
    if kind == "POLYGON":
        ring = re.fullmatch(r"\(([^()]*)\)", inner)
        if ring is None:
            raise ServiceError(400, "coords must be a POLYGON with one ring and no holes")
        inner = ring[1]
    if kind == "MULTIPOINT":
        inner = re.sub(r"\(([^()]*)\)", r"\1", inner)
    places = [_numbers(part) for part in inner.split(",")]
    if len({len(place) for place in places}) != 1 or len(places[0]) not in (2, 3) or len(places) > _MOST_POINTS:
        raise ServiceError(400, "coords must have two numbers, or three, for each place, and at most 10,000 places")
    least = {"LINESTRING": 2, "POLYGON": 4}.get(kind, 1)
    if len(places) < least or (kind == "POINT" and len(places) > 1):
        raise ServiceError(400, f"coords has {len(places)} places, which is no {kind}")
    return kind, np.array(places)


def _numbers(text: str) -> list[float]:
    parts = text.split()
    if not all(re.fullmatch(_NUMBER, part) for part in parts) or not parts:
        raise ServiceError(400, "coordinates must be numbers")
    numbers = [float(part) for part in parts]
    if not all(abs(number) <= 1e15 for number in numbers):
        raise ServiceError(400, "coordinates must be at most 1e15")
    return numbers


def along(corners: Array) -> Array:
    """Places (m, k) along a line through corners (n, k): these, and others between them."""
    lengths = np.linalg.norm(np.diff(corners[:, :2], axis=0), axis=1)
    step = lengths.sum() / _POINTS or 1.0
    pieces = [
        start + np.linspace(0.0, 1.0, max(1, int(np.ceil(length / step))), endpoint=False)[:, None] * (stop - start)
        for start, stop, length in zip(corners[:-1], corners[1:], lengths, strict=True)
    ]
    return np.concatenate([*pieces, corners[-1:]])


def _at_points(places: Array, is_one: bool = False) -> Domain:
    xy = places[:, :2].tolist()
    if is_one:
        return Domain("Point", {"x": {"values": [xy[0][0]]}, "y": {"values": [xy[0][1]]}}, places, {})
    composite = {"dataType": "tuple", "coordinates": ["x", "y"], "values": xy}
    return Domain("MultiPoint", {"composite": composite}, places, {"composite": len(places)})


def _on_grid(low: Any, high: Any, size: Size) -> Domain:
    if not (low[0] < high[0] and low[1] < high[1]):
        raise ServiceError(400, "the lower corner must be below and left of the upper one")
    sizes = {"y": size.y, "x": size.x}
    x, y = np.linspace(low[0], high[0], size.x), np.linspace(low[1], high[1], size.y)
    axes = {
        name: {"start": float(low[i]), "stop": float(high[i]), "num": sizes[name]} for i, name in enumerate(("x", "y"))
    }
    return Domain("Grid", axes, np.stack([np.tile(x, size.y), np.repeat(y, size.x)], axis=1), sizes)


def _all_inputs(model: EnsembleRegressor, places: Array, z: float | None) -> Array:
    """Inputs (n, d): x and y, z for the third, and the middle of the extent for others."""
    first, second, *others = varying_columns(model)
    X = np.tile(user_bounds(model).mean(axis=0), (len(places), 1))
    X[:, first], X[:, second] = places[:, 0], places[:, 1]
    if z is not None or places.shape[1] == 3:
        if not others:
            raise ServiceError(400, "the map has no third input; leave out z")
        X[:, others[0]] = places[:, 2] if z is None else z
    if not np.isfinite(X).all():
        raise ServiceError(400, "z must be a finite number")
    return X


# Coverages


def _parameter(model: EnsembleRegressor, name: str, text: Callable[[str], Any]) -> dict[str, Any]:
    """text : how a text is written: with its language in a coverage, without in a collection."""
    target, unit = Label.parsed(target_name(model))
    described: dict[str, Any] = {
        "type": "Parameter",
        "id": name,
        "description": text(PARAMETERS[name].format(target)),
        "observedProperty": {"label": text(target)},
    }
    return described | ({"unit": {"symbol": unit}} if unit else {})


def _reference(model: EnsembleRegressor) -> dict[str, Any]:
    system: dict[str, Any] = {"type": "ProjectedCRS"}
    if _is_geographic(model):
        system = {"type": "GeographicCRS", "id": _CRS84}
    elif (known := coordinates(model)) is not None:
        system["id"] = _address(known.name)
    return {"coordinates": ["x", "y"], "system": system}


def _address(name: str) -> str:
    """Of a system in the register of the OGC."""
    return f"http://www.opengis.net/def/crs/{name.replace(':', '/0/')}" if re.fullmatch(r"\w+:\w+", name) else name


def _is_geographic(model: EnsembleRegressor) -> bool:
    if (known := coordinates(model)) is not None:
        return known.is_geographic
    return Label.parsed(input_names(model)[varying_columns(model)[0]]).is_one_of(LONGITUDE)


# Collections


def _is_spatial(live_map: LiveMap) -> bool:
    return live_map.model is not None and len(live_map.definition.inputs) > 1


def _spatial(live_map: LiveMap) -> LiveMap:
    if not _is_spatial(live_map):
        raise ServiceError(404, f"map {live_map.name} has one input or no rows yet, and is no collection")
    return live_map


def _collection(live_map: LiveMap, base: str) -> dict[str, Any]:
    model = live_map.required_model()
    first, second, *others = varying_columns(model)
    bounds, known, is_geographic = user_bounds(model), coordinates(model), _is_geographic(model)
    (west, south), (east, north) = bounds[:, [first, second]].tolist()
    local, wkt = _LOCAL, _LOCAL
    if known is not None:
        local, wkt = known.name if ":" in known.name else known.user, known.user
    crs, wkt = ("CRS84", _CRS84_WKT) if is_geographic else (local, wkt)
    extent: dict[str, Any] = {
        "spatial": {"bbox": [[west, south, east, north]], "crs": _CRS84 if is_geographic else local}
    }
    if others:
        low, high = bounds[:, others[0]].tolist()
        extent["vertical"] = {
            "interval": [[str(low), str(high)]],
            "values": [f"{low}/{high}"],
            "vrs": input_names(model)[others[0]],
        }
    here = f"{base}collections/{live_map.name}"
    return {
        "id": live_map.name,
        "title": live_map.name,
        "description": f"{target_name(model)} by Gaussian process regression, of {live_map.n_learned:,} rows",
        "keywords": ["Gaussian process", target_name(model)],
        "links": [_link(here, "self"), *(_link(f"{here}/{query}", "data", COVERAGE_JSON) for query in QUERIES)],
        "extent": extent,
        "data_queries": {query: _data_query(here, query, crs, wkt) for query in QUERIES},
        "crs": [crs],
        "output_formats": ["CoverageJSON"],
        "parameter_names": {name: _parameter(model, name, str) for name in PARAMETERS},
    }


def _data_query(here: str, query: str, crs: str, wkt: str) -> dict[str, Any]:
    variables = {
        "title": query,
        "query_type": query,
        "output_formats": ["CoverageJSON"],
        "default_output_format": "CoverageJSON",
        "crs_details": [{"crs": crs, "wkt": wkt}],
    }
    return {"link": {**_link(f"{here}/{query}", "data", COVERAGE_JSON), "variables": variables}}


_CRS84_WKT = (
    'GEOGCRS["WGS 84 (CRS84)",DATUM["World Geodetic System 1984",ELLIPSOID["WGS 84",6378137,298.257223563]],'
    'CS[ellipsoidal,2],AXIS["longitude",east],AXIS["latitude",north],ANGLEUNIT["degree",0.0174532925199433]]'
)


def _link(href: str, rel: str, kind: str = "application/json") -> dict[str, str]:
    return {"href": href, "rel": rel, "type": kind, "title": rel}
