"""Routes of the live page: events, tiles, the track, and the page itself."""

import asyncio
import time
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.coordinates import coordinates
from wgpr.io.grids import input_names
from wgpr.service import tiles
from wgpr.service.bodies import NOT_CHANGED, At, Name, acceptable, binary, fixed_values
from wgpr.service.catalogue import Catalogue
from wgpr.service.errors import ServiceError, too_busy
from wgpr.service.grids import LAYERS
from wgpr.service.livemap import LiveMap

PAGE = files("wgpr.service") / "page"
# Seconds that the latest plan of a map is given to all who ask.
_PLAN_HOLDS = 3.0

FLOATS, PNG, EVENTS = "application/octet-stream", "image/png", "text/event-stream"

Zoom = Annotated[int, Path(ge=-40, le=40)]
Number = Annotated[int, Path(ge=-(2**40), le=2**40)]


def live_routes(catalogue: Catalogue) -> APIRouter:
    router = APIRouter()

    @router.get("/events", response_class=StreamingResponse, responses={200: {"content": {EVENTS: {}}}})
    async def events(
        maps: Annotated[str, Query(max_length=2000, description="Names of maps, by commas; all by default.")] = "",
        last_event_id: Annotated[str, Header(max_length=100)] = "",
    ) -> Response:
        """What happens in the maps, as server-sent events: made, rows, learned, decision, deleted.

        The first event is hello, or reset if events since `Last-Event-ID` are lost: then read everything anew.
        """
        names = frozenset(filter(None, maps.split(",")))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(catalogue.hub.stream(last_event_id, names), media_type=EVENTS, headers=headers)

    @router.get("/maps/{name}/track")
    async def track(name: Name) -> list[list[float]]:
        """The latest 2,000 rows, oldest first: inputs, and the target last."""
        track = catalogue[name].events.track
        return [] if track is None else track.tolist()

    @router.get(
        "/maps/{name}/tiles/{layer}/{z}/{x}/{y}",
        response_class=Response,
        responses=binary(PNG, FLOATS) | NOT_CHANGED,
    )
    async def tile(
        name: Name,
        layer: Literal[*LAYERS, "all"],  # type: ignore
        z: Zoom,
        x: Number,
        y: Number,
        size: Annotated[int, Query(ge=9, le=257, description="Nodes along a side, from edge to edge.")] = 65,
        aspect: Annotated[float, Query(gt=0.0, le=1e12, description="Units of the second axis for one.")] = 1.0,
        at: At = [],  # noqa: B006
        low: Annotated[float | None, Query(ge=-1e30, le=1e30, description="Value of the first colour.")] = None,
        high: Annotated[float | None, Query(ge=-1e30, le=1e30, description="Value of the last colour.")] = None,
        accept: Annotated[str, Header()] = "*/*",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """A square of the map: a PNG or, with `Accept: application/octet-stream`, float32 from north to south.

        `all` has the planes mean, std, std_latent, model and std_prior, and is float32. The ETag changes when a model
        near the tile has changed.
        """
        live_map = catalogue[name]
        model = catalogue.answering_model(live_map)
        kind = FLOATS if layer == "all" else acceptable(accept, (PNG, FLOATS))
        address = tiles.TileAddress(z, x, y, size, aspect, fixed_values(input_names(model), at))
        ground = live_map.events.ground
        change = live_map.n_learned if ground is None else ground.last_change(*tiles.box(model, address))
        version = f"{live_map.token}-{change}"
        headers = {"ETag": f'W/"{version}"', "Cache-Control": "no-cache", "Vary": "Accept"}
        if f'"{version}"' in if_none_match:
            return Response(status_code=304, headers=headers)
        make = partial(catalogue.answered, tiles.predicted, model, address)
        planes = await catalogue.tiles.get(name, address, version, make)
        if kind == FLOATS:
            chosen = planes if layer == "all" else planes[LAYERS.index(layer)]
            return Response(chosen.tobytes(), media_type=FLOATS, headers=headers)
        plane = planes[LAYERS.index(layer)]
        return Response(tiles.png(plane, layer, low, high), media_type=PNG, headers=headers)

    return router


def plan_routes(catalogue: Catalogue) -> APIRouter:
    router, busy = APIRouter(), asyncio.Lock()
    # By map: what was asked, when it was answered, the plan. Those of maps that are gone are forgotten.
    latest: WeakKeyDictionary[LiveMap, tuple[Any, float, dict[str, Any]]] = WeakKeyDictionary()

    @router.get("/maps/{name}/next")
    async def where_next(
        name: Name,
        points: Annotated[int, Query(ge=1, le=100, description="Number of places.")] = 20,
        at: At = [],  # noqa: B006
    ) -> dict[str, Any]:
        """Where to measure next, as GeoJSON: places that take most uncertainty out of the map, the best first.

        Longitude and latitude of WGS 84 if the map has a coordinate reference system. `wgpr` has the uncertainty that
        is expected, and the places in the coordinates of the map.
        """
        live_map = catalogue[name]
        model = catalogue.answering_model(live_map)
        fixed = fixed_values(input_names(model), at)
        asked = points, fixed
        known, answered_at, found = latest.get(live_map, (None, 0.0, {}))
        if known == asked and time.monotonic() < answered_at + _PLAN_HOLDS:
            return found
        if busy.locked():
            raise too_busy(429, "another plan is being made; ask again in a few seconds", 3.0)
        async with busy:
            try:
                found = await asyncio.get_running_loop().run_in_executor(
                    catalogue.planning, partial(_planned, model, points, dict(fixed))
                )
            except ValueError as error:
                raise ServiceError(400, str(error)) from error
            except (ArithmeticError, RuntimeError) as error:
                raise ServiceError(409, "no plan can be made for this map now; send more rows") from error
        latest[live_map] = asked, time.monotonic(), found
        return found

    return router


def _planned(model: EnsembleRegressor, points: int, at: dict[int, float]) -> dict[str, Any]:
    from wgpr.planning.files import geojson  # imported here: it would delay the start by half a second
    from wgpr.planning.plan import plan

    if model.n_features_in_ - len(at) < 2:
        raise ValueError("places to measure next need two inputs that vary")
    made = plan(model, points=points, at=at)
    found = geojson(made, coordinates(model))
    found["wgpr"]["points"] = [track[0, made.columns].tolist() for track in made.tracks]
    return found


def page() -> Response:
    """The page itself. It may ask nobody but this service."""
    policy = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response((PAGE / "index.html").read_bytes(), media_type="text/html", headers=headers)
