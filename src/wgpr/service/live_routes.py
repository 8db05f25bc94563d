"""Routes of the live page: events, tiles, the track, and the page itself."""

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse
from starlette.staticfiles import StaticFiles

from wgpr.io.grids import input_names
from wgpr.service import tiles
from wgpr.service.bodies import acceptable
from wgpr.service.catalogue import Catalogue
from wgpr.service.definition import NAME
from wgpr.service.errors import problems

PAGE = files("wgpr.service") / "page"
FLOATS, PNG, EVENTS = "application/octet-stream", "image/png", "text/event-stream"

Name = Annotated[str, Path(pattern=NAME, description="Name of the map.")]
Zoom = Annotated[int, Path(ge=-40, le=40)]
Number = Annotated[int, Path(ge=-(2**40), le=2**40)]


def live_routes(catalogue: Catalogue) -> APIRouter:
    router = APIRouter()

    @router.get("/events", response_class=StreamingResponse, responses={200: {"content": {EVENTS: {}}}, **problems()})
    async def events(
        maps: Annotated[str, Query(max_length=2000, description="Names of maps, by commas; all by default.")] = "",
        last_event_id: Annotated[str, Header(max_length=100)] = "",
    ) -> Response:
        """What happens in the maps, as server-sent events: rows, learned, decision, deleted."""
        names = frozenset(filter(None, maps.split(",")))

        async def stream() -> AsyncIterator[bytes]:
            async for data in catalogue.hub.stream(last_event_id, names):
                yield data

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type=EVENTS, headers=headers)

    @router.get("/maps/{name}/track", responses=problems(404))
    async def track(name: Name) -> list[list[float]]:
        """The latest places that rows came from, oldest first: inputs, and the target last."""
        return list(catalogue[name].events.track)

    @router.get(
        "/maps/{name}/tiles/{layer}/{z}/{x}/{y}",
        response_class=Response,
        responses={
            200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in (PNG, FLOATS)}},
            304: {"description": "As before."},
            **problems(404, 406, 409),
        },
    )
    async def tile(
        name: Name,
        layer: Literal["mean", "std", "std_latent", "model", "all"],
        z: Zoom,
        x: Number,
        y: Number,
        size: Annotated[int, Query(ge=9, le=257, description="Nodes along a side, from edge to edge.")] = 65,
        aspect: Annotated[float, Query(gt=0.0, le=1e12, description="Units of the second axis for one.")] = 1.0,
        at: Annotated[list[str], Query(max_length=50, description="NAME=VALUE of inputs that do not vary.")] = [],  # noqa: B006
        low: Annotated[float | None, Query(ge=-1e30, le=1e30, description="Value of the first colour.")] = None,
        high: Annotated[float | None, Query(ge=-1e30, le=1e30, description="Value of the last colour.")] = None,
        accept: Annotated[str, Header()] = "*/*",
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """A square of the map: a PNG or, with `Accept: application/octet-stream`, float32 from north to south.

        `all` has the planes mean, std, std_latent and model, and is float32. The ETag changes when a model near the
        tile has changed.
        """
        live_map = catalogue[name]
        model = catalogue.answering_model(live_map)
        kind = FLOATS if layer == "all" else acceptable(accept, (PNG, FLOATS))
        address = tiles.TileAddress(z, x, y, size, aspect, tiles.fixed_values(input_names(model), at))
        ground = live_map.events.ground
        change = live_map.n_learned if ground is None else ground.last_change(*tiles.box(model, address))
        version = f"{live_map.token}-{change}"
        headers = {"ETag": f'W/"{version}"', "Cache-Control": "no-cache", "Vary": "Accept"}
        if f'"{version}"' in if_none_match:
            return Response(status_code=304, headers=headers)

        async def make() -> tiles.Planes:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(catalogue.answering, tiles.predicted, model, address)

        planes = await catalogue.tiles.get(name, address, version, make)
        if kind == FLOATS:
            chosen = planes if layer == "all" else planes[tiles.PLANES.index(layer)]
            return Response(chosen.tobytes(), media_type=FLOATS, headers=headers)
        plane = planes[tiles.PLANES.index(layer)]
        return Response(tiles.png(plane, layer, low, high), media_type=PNG, headers=headers)

    return router


def page_files() -> StaticFiles:
    """The scripts, styles and libraries of the page."""
    return StaticFiles(directory=str(PAGE))


def page() -> Response:
    """The page itself. It may ask nobody but this service."""
    policy = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return Response((PAGE / "index.html").read_bytes(), media_type="text/html", headers=headers)
