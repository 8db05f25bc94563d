"""`wgpr serve`: the live service."""

import os
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from wgpr.cli.console import UsageError, format_count, inform, warn
from wgpr.cli.options import TokenFile, errors_of_usage, read_token
from wgpr.io.files import check_folder


def serve(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Has a folder for each map. Made if missing.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="0 for any that is free.")] = 8000,
    token_file: TokenFile = None,
    allow_origin: Annotated[
        list[str], typer.Option(metavar="URL", help="Web site whose pages may ask. Repeatable.")
    ] = [],  # noqa: B006
    writers: Annotated[
        int, typer.Option(metavar="N", min=0, help="Processes that learn. By default all cores but one.")
    ] = 0,
    demo: Annotated[
        bool, typer.Option("--demo", help="Survey a terrain while you look at the page. FOLDER may be left out.")
    ] = False,
    max_waiting: Annotated[
        int, typer.Option(metavar="ROWS", min=1, help="Most rows of a map that wait to be learned.")
    ] = 200_000,
    log: Annotated[
        bool, typer.Option("--log", help="Also log requests, snapshots and other events, not only errors.")
    ] = False,
) -> None:
    """Serve the maps of a folder over HTTP: they learn and answer at once, and lose nothing.

    Rows are on the disk before they are acknowledged. Ctrl-C learns what was accepted, saves all maps, and stops. Other
    machines can connect only with a token. The routes are described at /docs.

    Example: `wgpr serve surveys`, then `wgpr stream --to http://127.0.0.1:8000/maps/lake --x east,north --y depth`
    """
    if folder is None and not demo:
        raise UsageError("name a FOLDER for the maps, or use --demo")
    if folder is not None and os.path.exists(folder) and not folder.is_dir():
        raise UsageError(
            f"{folder} is a file, and FOLDER must be a folder for the maps; name another one, such as maps"
        )
    if folder is not None:
        check_folder(folder, remedy="name a FOLDER elsewhere, or ask for permission to write there")
    token = read_token(token_file)
    _require_extra()
    from wgpr.service.process import start_process

    with ExitStack() as stack:
        process = start_process()  # it imports what it needs while this process does the same
        stack.callback(process.connection.close)  # it ends then, also if the service does not start
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wgpr-demo-")))
        from wgpr.service import server
        from wgpr.service.limits import Limits
        from wgpr.service.logs import log_to_standard_error

        with errors_of_usage(host="--host"):
            address = server.Address(host, port, token, allow_origin)
        log_to_standard_error("INFO" if log else "WARNING")

        def tell(catalogue: Any, url: str) -> None:
            what = "a simulated survey" if demo else f"{format_count(len(catalogue.maps), 'map')} of {folder}"
            inform(f"serving {what} at {url} (see also {url}/docs); Ctrl-C stops")
            _tell_other_maps(folder)

        limits = Limits(rows_waiting=max_waiting)
        options: Any = {"n_writers": writers or None, "process": process, "is_demo": demo, "started": tell}
        server.serve(folder, address, limits=limits, **options)


def _tell_other_maps(folder: Path) -> None:
    """Say how map files in the folder, which are not served, can be."""
    from wgpr.io.store import SNAPSHOT
    from wgpr.service.definition import is_map_name

    for path in sorted(folder.glob("*.map")):
        own = path.with_suffix("")
        own = own if is_map_name(own.name) and not own.exists() else folder / "NAME"
        command = f"mkdir {quote(str(own))} && cp {quote(str(path))} {quote(str(own / SNAPSHOT))}"
        warn(f"{path} is not served: a map needs a folder of its own; stop, run {command}, and start again")


def _require_extra() -> None:
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(module) is None:
            raise ImportError(f'the service needs {module}; install it with pip install "wgpr[serve]"')
