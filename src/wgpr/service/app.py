"""The routes of the service."""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from threading import Event
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field, SkipValidation
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles

from wgpr.estimators.base import LARGEST
from wgpr.io import maps
from wgpr.io.container import MapError
from wgpr.io.coordinates import CrsError, user_bounds
from wgpr.io.grids import (
    GridPlan,
    TooManyNodesError,
    default_region,
    input_names,
    plan_grid,
    predict_plan,
    source_of,
    varying_columns,
)
from wgpr.io.rows import ANSWER, answer, interval_half_width
from wgpr.service import bodies, grids
from wgpr.service.bodies import NOT_CHANGED, At, Name, acceptable, binary, fixed_values
from wgpr.service.catalogue import Catalogue
from wgpr.service.definition import Definition
from wgpr.service.edr import edr_routes, landing_page
from wgpr.service.errors import PROBLEMS, ServiceError
from wgpr.service.guard import Guard, as_response
from wgpr.service.live_routes import PAGE, live_routes, page, plan_routes
from wgpr.service.livemap import LiveMap
from wgpr.service.map_events import Decision, decisions

# Places that are answered at once, in less time than a thread takes to begin.
_FEW = 20
# Bytes of a body that is read at once.
_SMALL = 10_000
# Seconds that are left for the answer when rows are waited for.
_REST = 5.0
_N_DECISIONS = 10
# Numbers of rows with fingerprints of so many first rows.
_STREAM = r"^([0-9]{1,15}:[0-9a-f]{16} ?)*$"

MAP_FILE = "application/vnd.wgpr.map"
DIFFERENCE = "application/vnd.wgpr.diff"


class Offset(BaseModel):
    """A constant by which rows differ from what the map says where it knows the field."""

    amount: float
    std: float = Field(description="Standard deviation of one row.")
    n_rows: int = Field(description="Rows that the map had before the middle one of these.")


class Forecasts(BaseModel):
    """Scores of predictions of rows before these were learned, since the service was started."""

    rows: int
    rmse: float
    nlpd: float | None
    coverage: float | None = Field(description="Fraction inside of the 95 % interval.")
    offset: Offset | None = Field(description="The latest that was found, for rows one after the other.")


class Summary(BaseModel):
    """A map and what it has learned."""

    name: str
    definition: SkipValidation[Definition]  # it was checked when the map was made, which takes milliseconds
    rows_seen: int = Field(description="Rows that were accepted; they are on the disk.")
    rows_learned: int
    rows_saved: int = Field(description="Rows in the snapshot. The journal has the others.")
    models: int = Field(description="Number of local models.")
    extent: dict[str, tuple[float, float]] | None = Field(description="Least and greatest value of each input.")
    axes: list[str] | None = Field(description="Inputs that are drawn: of a map two, west to east first.")
    forecasts: Forecasts | None
    decisions: list[Decision] = Field(description="The last ones, latest first.")
    version: str = Field(description="Of the state; changes with it.")
    failure: str | None = Field(description="Why the map takes no more rows.")


class Accepted(BaseModel):
    """accepted : rows of this request; sequence : rows of the map up to these."""

    accepted: int
    sequence: int
    offset: Offset | None = Field(None, description="As in the scores of forecasts of the map, so far.")


def create_app(catalogue: Catalogue, *, token: str | None = None, origins: Sequence[str] = ()) -> FastAPI:
    """The service for an opened catalogue."""
    app = FastAPI(
        title="WGPR",
        version=metadata.version("wgpr"),
        summary="Maps that learn from a stream and answer with their uncertainty.",
        responses=PROBLEMS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for routes in (_add_maps, _add_rows, _add_grids, _add_files, _add_operations):
        routes(app, catalogue)
    app.include_router(live_routes(catalogue))
    app.include_router(plan_routes(catalogue))
    app.include_router(edr_routes(catalogue))
    app.mount("/page", StaticFiles(directory=str(PAGE)))

    @app.get("/", include_in_schema=False)
    async def front(request: Request, f: str = "", accept: Annotated[str, Header()] = "*/*") -> Response:
        """The page for people; the landing page of the OGC API for programs."""
        kinds = ("application/json", "text/html")
        is_page = f == "html" or (not f and acceptable(accept, kinds) == "text/html")
        return page() if is_page else landing_page(request)

    _add_error_handlers(app)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Content-Encoding", "Idempotency-Key"],
            expose_headers=["ETag", "Retry-After"],
        )
    app.add_middleware(Guard, token=token, origins=tuple(origins), limits=catalogue.limits, metrics=catalogue.metrics)
    return app


# Maps


def _add_maps(app: FastAPI, catalogue: Catalogue) -> None:
    @app.put("/maps/{name}", status_code=201, responses={200: {"model": Summary}})
    async def make_map(name: Name, definition: Definition, response: Response) -> Summary:
        """Make a map. If it exists with the same columns and settings, nothing changes."""
        if not await catalogue.create(name, definition):
            response.status_code = 200
        return summary(catalogue[name])

    @app.get("/maps")
    async def list_maps() -> list[Summary]:
        """All maps."""
        return [summary(live_map) for _, live_map in sorted(catalogue.maps.items())]

    @app.get("/maps/{name}")
    async def show_map(name: Name) -> Summary:
        """One map: its rows, models, extent, scores of forecasts, and last decisions."""
        return summary(catalogue[name])

    @app.delete("/maps/{name}", status_code=204)
    async def delete_map(name: Name) -> Response:
        """Delete a map, its snapshot and its journal."""
        await catalogue.delete(name)
        return Response(status_code=204)


def summary(live_map: LiveMap) -> Summary:
    model, forecasts = live_map.model, live_map.forecasts
    extent = axes = None
    if model is not None:
        axes = [live_map.definition.inputs[column] for column in varying_columns(model)[:2]]
        extent = dict(zip(live_map.definition.inputs, map(tuple, user_bounds(model).T.tolist()), strict=True))
    return Summary(
        name=live_map.name,
        definition=live_map.definition,
        rows_seen=live_map.n_accepted,
        rows_learned=live_map.n_learned,
        rows_saved=live_map.n_saved,
        models=0 if model is None else model.n_models_,
        extent=extent,
        axes=axes,
        forecasts=None if forecasts is None else Forecasts(**forecasts),
        decisions=[] if model is None else decisions(model, 0, _N_DECISIONS),
        version=live_map.version,
        failure=live_map.failure or None,
    )


# Rows and queries


def _table_body(description: str, example: dict[str, Any]) -> dict[str, Any]:
    """How a table is described in the OpenAPI: three formats with the columns of the map."""
    numbers = {"type": "array", "items": {"type": "number"}}
    columns = {"type": "object", "additionalProperties": numbers, "example": example}
    content = {bodies.COLUMNS: {"schema": columns}}
    content |= {kind: {"schema": {"type": "string"}} for kind in (bodies.CSV, bodies.LINES)}
    return {"requestBody": {"required": True, "description": description, "content": content}}


async def _read(
    request: Request, catalogue: Catalogue, columns: Sequence[str], most: int
) -> tuple[Any, list[int], str]:
    """Values (n, k) of a body, the line of each row, and the format."""
    kind = bodies.table_format(request.headers.get("content-type", ""))
    encoding = request.headers.get("content-encoding", "").strip().lower()
    data = await request.body()

    def read() -> tuple[Any, list[int]]:
        return bodies.read_table(bodies.decompressed(data, encoding, catalogue.limits.body), kind, columns, most)

    if len(data) < _SMALL and not encoding:
        return *read(), kind
    return *await asyncio.get_running_loop().run_in_executor(catalogue.reading, read), kind


def _add_rows(app: FastAPI, catalogue: Catalogue) -> None:
    described = _table_body(
        "Inputs and target by name, and weights if the map has them. May be compressed by gzip.",
        {"east": [1.0, 2.0], "north": [5.0, 5.0], "depth": [12.1, 12.4]},
    )

    @app.post(
        "/maps/{name}/rows",
        status_code=202,
        response_model_exclude_none=True,
        responses={200: {"model": Accepted}},
        openapi_extra=described,
    )
    async def add_rows(
        name: Name,
        request: Request,
        response: Response,
        wait: Annotated[Literal["disk", "learned"], Query(description="What the answer waits for.")] = "disk",
        force: Annotated[bool, Query(description="Also take values far outside of what is known.")] = False,
        idempotency_key: Annotated[
            str | None, Header(min_length=1, max_length=200, description="Rows with a key are learned once.")
        ] = None,
        wgpr_stream: Annotated[
            str, Header(max_length=2000, pattern=_STREAM, description="Fingerprints of the stream up to these rows.")
        ] = "",
    ) -> Accepted:
        """Learn rows. The answer is 202 when they are on the disk; with `wait=learned`, 200 when they are learned.

        A bad row refuses the whole request.
        """
        live_map = catalogue[name]
        definition = live_map.definition
        rows, lines, _ = await _read(request, catalogue, definition.columns, catalogue.limits.rows)
        if definition.weight is not None:
            bodies.check_weights(rows[:, -1], lines, definition.weight)
        column, remedy, fault = " and ".join(definition.inputs), "correct it", live_map.first_outside(rows)
        if fault is None and not force and (fault := live_map.first_far(rows)) is not None:
            column, remedy = definition.columns[fault.column], "correct it, or use force=true"
        if fault is not None:
            bodies.refuse(lines[fault.row], column, f"{fault.values} is {fault.text}", remedy)
        receipt = await live_map.accept(rows, idempotency_key, wgpr_stream)
        if wait == "learned":
            try:
                async with asyncio.timeout(max(0.1, catalogue.limits.seconds - _REST)):
                    await live_map.wait_until_learned(receipt.last)
                response.status_code = 200
            except TimeoutError:  # accepted, and not yet learned
                pass
        offset = (live_map.forecasts or {}).get("offset")
        return Accepted(accepted=receipt.n_rows, sequence=receipt.last, offset=offset)

    @app.get("/maps/{name}/learned")
    async def learned(name: Name) -> list[str]:
        """What is known of the files and streams that the map has learned: rows, and fingerprints of the first."""
        return catalogue[name].learned_tables

    @app.post(
        "/maps/{name}/predict",
        responses={200: {"content": {bodies.CSV: {}, bodies.LINES: {}}}},
        openapi_extra=_table_body("Inputs by name.", {"east": [1.5], "north": [5.0]}),
    )
    async def predict(
        name: Name,
        request: Request,
        level: Annotated[float, Query(gt=0.0, lt=1.0, description="Probability of the interval.")] = 0.95,
        latent: Annotated[bool, Query(description="Uncertainty of the field, without noise.")] = False,
    ) -> Response:
        """Mean, std, lower, upper and model at each place, in the format of the request."""
        live_map = catalogue[name]
        live_map.required_model()
        X, _, kind = await _read(request, catalogue, live_map.definition.inputs, catalogue.limits.places)
        model = catalogue.answering_model(live_map)
        half_width = interval_half_width(level)

        def written() -> str:
            return bodies.write_table(kind, ANSWER, answer(model, X, half_width, latent=latent))

        text = written() if len(X) <= _FEW else await catalogue.answered(written)
        return Response(text, media_type=kind)


async def _unless_client_leaves(request: Request, answering: Coroutine[Any, Any, Any]) -> Any:
    """The answer to a request without a body; nobody waits for it when the client has left."""

    async def leaving() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(answering), asyncio.create_task(leaving())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


# Grids


@dataclass
class Nodes:
    """The nodes of a grid."""

    bbox: Annotated[str | None, Query(max_length=200, description="minx,miny,maxx,maxy; min,max for a line.")] = None
    width: Annotated[int | None, Query(ge=2, le=10_000, description="Nodes from west to east.")] = None
    height: Annotated[int | None, Query(ge=2, le=10_000, description="Nodes from south to north.")] = None
    spacing: Annotated[float | None, Query(gt=0.0, description="Distance of nodes; in place of a size.")] = None


def _add_grids(app: FastAPI, catalogue: Catalogue) -> None:
    @app.get("/maps/{name}/grid", response_class=Response, responses=binary(*grids.FORMATS))
    async def grid(
        name: Name,
        request: Request,
        nodes: Annotated[Nodes, Depends()],
        accept: Annotated[str, Header()] = "*/*",
        at: At = [],  # noqa: B006
        layer: Annotated[Literal[*grids.LAYERS], Query(description="Of a picture.")] = "mean",  # type: ignore
    ) -> Response:
        """Mean and standard deviations on a regular grid, as NetCDF, CoverageJSON or PNG (by `Accept`)."""
        live_map = catalogue[name]
        model, source = catalogue.answering_model(live_map), source_of(live_map.required_model())
        kind = bodies.acceptable(accept, grids.FORMATS)
        plan = _plan(model, nodes, dict(fixed_values(input_names(model), at)), catalogue.limits.nodes)
        stopped = Event()

        def show(_: int) -> None:
            if stopped.is_set():
                raise InterruptedError

        def written() -> bytes:
            return grids.FORMATS[kind](predict_plan(model, plan, show).assign_attrs(source=source), layer)

        try:
            data = await _unless_client_leaves(request, catalogue.answered(written))
        finally:
            stopped.set()
        return Response(data, media_type=kind, headers={"Vary": "Accept"})


def _plan(model: Any, nodes: Nodes, fixed: dict[int, float], max_nodes: int) -> GridPlan:
    """The grid that a request describes."""
    sizes = [size for size in (nodes.width, nodes.height) if size is not None]
    if nodes.spacing is not None and sizes:
        raise ServiceError(422, "spacing and size exclude each other; give spacing, or width and height")
    try:
        edges = None if nodes.bbox is None else [float(part) for part in nodes.bbox.split(",")]
    except ValueError as error:
        raise ServiceError(422, "bbox must be numbers separated by commas") from error
    if not all(abs(edge) <= LARGEST for edge in edges or ()):
        raise ServiceError(422, f"bbox must be finite numbers below {LARGEST:g}")
    try:
        if edges is not None and len(edges) % 2:
            raise ValueError("bbox must have two numbers for each input that varies")
        region: Any = None if edges is None else np.reshape(edges, (2, -1)).T.ravel().tolist()
        steps: Any = nodes.spacing
        if sizes:
            region = region or list(default_region(model, at=fixed))
            if len(region) != 2 * len(sizes):
                raise ValueError("give width for a line, and width and height for a map")
            steps = [(region[2 * i + 1] - region[2 * i]) / (size - 1) for i, size in enumerate(sizes)]
        return plan_grid(model, region, steps, at=fixed, max_nodes=max_nodes)
    except TooManyNodesError as error:
        raise ServiceError(413, str(error)) from error
    except ValueError as error:
        raise ServiceError(422, f"the grid makes no sense: {error}") from error


# Files


def _add_files(app: FastAPI, catalogue: Catalogue) -> None:
    @app.get("/maps/{name}/file", response_class=Response, responses=binary(MAP_FILE) | NOT_CHANGED)
    async def map_file(name: Name, if_none_match: Annotated[str, Header()] = "", compact: bool = False) -> Response:
        """The map file, as `wgpr` opens it."""
        version, model = catalogue[name].remember_state()
        headers = {"ETag": f'W/"{version}"'}
        if version in re.findall(r'"([^"]*)"', if_none_match):
            return Response(status_code=304, headers=headers)
        try:
            data = await catalogue.answered(lambda: model.to_bytes(compact=compact))
        except MapError as error:
            raise ServiceError(409, str(error)) from error
        headers["Content-Disposition"] = f'attachment; filename="{name}.map"'
        return Response(data, media_type=MAP_FILE, headers=headers)

    @app.get("/maps/{name}/diff", response_class=Response, responses=binary(DIFFERENCE))
    async def difference(
        name: Name, since: Annotated[str, Query(max_length=100, description="ETag of an earlier file or difference.")]
    ) -> Response:
        """What changed since an earlier state, as `wgpr apply` takes it."""
        live_map = catalogue[name]
        old = live_map.state_of(since.removeprefix("W/").strip('"'))
        version, new = live_map.remember_state()
        try:
            data = await catalogue.answered(maps.diff, old, new)
        except MapError as error:
            raise ServiceError(409, str(error)) from error
        return Response(data, media_type=DIFFERENCE, headers={"ETag": f'W/"{version}"'})


# Operations


def _add_operations(app: FastAPI, catalogue: Catalogue) -> None:
    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(catalogue.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/health/live")
    async def live() -> dict[str, str]:
        """Whether the service runs."""
        return {"status": "live"}

    @app.get("/health/ready")
    async def ready() -> dict[str, str]:
        """Whether all maps have learned what was in their journals when the service began, and take rows."""
        if not all(live_map.is_ready for live_map in catalogue.maps.values()):
            raise ServiceError(503, "a map is still learning its journal, or has failed; see GET /maps")
        return {"status": "ready"}

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def documentation() -> str:
        """The routes as a page, which needs nothing from other hosts."""
        return _page(app)


_STYLE = """
body { font: 16px/1.5 system-ui; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
td, th { text-align: left; padding-right: 1rem }
"""


def _page(app: FastAPI) -> str:
    parts = []
    for path, operations in app.openapi()["paths"].items():
        for method, about in operations.items():
            rows = "".join(
                f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{escape(each.get('description', ''))}"
                for each in about.get("parameters", ())
            )
            table = f"<table><tr><th>parameter<th>in<th>meaning{rows}</table>" if rows else ""
            parts.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about.get('description', ''))}{table}"
            )
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>WGPR</title><style>{_STYLE}</style>"
    return f"{head}<h1>WGPR</h1><p>{app.summary} <a href=/openapi.json>OpenAPI</a>{''.join(parts)}"


# Errors


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: HTTPException) -> Response:
        if isinstance(error, ServiceError):
            return as_response(error)
        return as_response(ServiceError(error.status_code, str(error.detail), headers=dict(error.headers or {})))

    @app.exception_handler(CrsError)
    async def _place(_: Request, error: CrsError) -> Response:
        return as_response(ServiceError(422, str(error)))

    @app.exception_handler(RequestValidationError)
    async def _validation(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = " ".join(str(part) for part in first["loc"])
        return as_response(ServiceError(422, f"{where}: {first['msg']}; correct it"))
