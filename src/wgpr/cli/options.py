"""Arguments and options that several commands have, and functions that parse them.

It imports nothing that takes long: `wgpr serve` needs neither NumPy nor scikit-learn to read its arguments.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from wgpr.cli.console import UsageError
from wgpr.io.files import check_destination

# Names of Python in messages of estimators, and what a user of the command line can do.
_IN_PYTHON = {"use WGPRegressor.published(...)": "set a threshold (-s threshold=1)", " or a Kernel instance": ""}

METHOD_NAMES = "wgpr, solar, lgpr, streaming, sparse"  # of `wgpr.estimators.regressors.METHODS`

MapFile = Annotated[Path, typer.Argument(metavar="MAP", help="A saved map.")]
_FILES = (
    "CSV, TSV, Parquet or NPZ files, or logs of NMEA 0183 (.nmea) or MAVLink (.tlog), read one after the other. Files "
    "of a pattern such as 'line*.csv' are read in natural order (line2 before line10); - is standard input."
)
DataFiles = Annotated[list[str], typer.Argument(metavar="DATA", help=_FILES)]
DataFilesIfAny = Annotated[
    list[str], typer.Argument(metavar="DATA", help=f"{_FILES} Leave it out to learn what an interrupted run has left.")
]
X = Annotated[
    str, typer.Option("--x", metavar="NAMES", help="Columns of the inputs, by name or number: lon,lat or 1,2.")
]
Y = Annotated[str, typer.Option("--y", metavar="NAME", help="Column of the target, by name or number.")]
Weight = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Column of weights, by name or number: the variance of a row's noise is divided by its weight. A row with "
        "twice the standard deviation has the weight 1/4. Only for the default method.",
    ),
]
Skip = Annotated[int, typer.Option(metavar="ROWS", min=0, help="Leave out so many rows at the beginning.")]
Force = Annotated[
    bool, typer.Option("--force", help="Also learn rows far outside of what is known, or learned before.")
]
ForceNew = Annotated[bool, typer.Option("--force", help="Also learn places far from all others, and files twice.")]
Shards = Annotated[int, typer.Option(metavar="N", min=1, help="Cut the ground into so many parts, learned at once.")]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="processes|ray", help="Where parts are learned: here, or on a Ray cluster.")
]
FleetFolder = Annotated[
    Path | None, typer.Option("--folder", help="Of the workers' journals; all nodes of a cluster must see it.")
]
Address = Annotated[str, typer.Option(metavar="ADDRESS", help="Of the Ray cluster, such as auto.")]
Method = Annotated[str, typer.Option("--method", "-m", metavar="NAME", help=f"{METHOD_NAMES}. By default wgpr.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting of the method, see 'wgpr settings'. Repeatable."),
]
Crs = Annotated[
    str,
    typer.Option(
        "--crs",
        metavar="SYSTEM",
        help="Coordinate reference system of x and y: EPSG:4326, WKT, or a .prj file. Degrees are learned in metres. "
        "By default that of the file, or EPSG:4326 for columns with names such as lon and lat; 'none' learns them as "
        "they are. Needs wgpr[geo].",
    ),
]
CrsOfMap = Annotated[
    str,
    typer.Option(
        "--crs",
        metavar="SYSTEM",
        help="Say in which projected system the inputs of the map are, if it was learned without one: EPSG:32618, WKT, "
        "or a .prj file. The unit must be the metre. DATA may be left out. Needs wgpr[geo].",
    ),
]
Region = Annotated[
    str,
    typer.Option(
        metavar="W,E,S,N", help="In the units of the data. By default their range and 2 % of it on each side."
    ),
]
Spacing = Annotated[str, typer.Option(metavar="S", help="Distance between grid nodes: S, or SX,SY; or lengths: 5m.")]
MaskStd = Annotated[
    float | None, typer.Option(metavar="S", help="No data where the standard deviation of an observation is above S.")
]
MaskDistance = Annotated[
    str,
    typer.Option(
        metavar="D",
        help="No data farther than D, such as 50m, from the nearest pseudo-input, which stands for the data near it. A "
        "number is in the unit of the inputs, in metres if the map has a coordinate reference system.",
    ),
]
At = Annotated[
    list[str], typer.Option(metavar="NAME=VALUE", help="Fix an input, if there are more than two. Repeatable.")
]
Level = Annotated[float, typer.Option(metavar="P", help="Probability of the interval from lower to upper.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TOKEN_VARIABLE = "WGPR_TOKEN"
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"Has the token that clients of a service send; or set {TOKEN_VARIABLE}."),
]

_table_option = partial(typer.Option, rich_help_panel="How tables are read")
NoData = Annotated[
    list[float], _table_option(metavar="VALUE", help="Leave out rows with this value, such as -99999. Repeatable.")
]


def table_options(
    separator: Annotated[str, _table_option(metavar="MARK", help="',' ';' 'tab' or ' '. By default detected.")] = "",
    decimal: Annotated[str, _table_option(metavar="MARK", help="'.' or ','. By default detected.")] = "",
    header: Annotated[
        bool | None, _table_option("--header/--no-header", help="Is the first line one of names? By default detected.")
    ] = None,
    missing: Annotated[str, _table_option(metavar="error|skip", help="What to do with rows that lack a number.")] = "",
    nodata: NoData = [],  # noqa: B006 (typer copies it)
) -> dict[str, Any]:
    """Arguments of `TableFormat`: those that were given."""
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    given = {"separator": separator, "decimal": decimal, "header": header, "missing": missing, "nodata": nodata}
    return {name: value for name, value in given.items() if value not in ("", None, [])}


def with_table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the parameters of `table_options` to a command, which gets their dictionary as its argument `tables`."""
    own = [each for each in signature(command).parameters.values() if each.name != "tables"]
    added = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in signature(table_options).parameters.values()]

    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        given = {each.name: arguments.pop(each.name) for each in added}
        command(**arguments, tables=table_options(**given))

    wrapper.__signature__ = signature(command).replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return wrapper


def read_token(path: Path | None) -> str | None:
    """The token of a service: in a file or, without one, in the environment; None if there is none."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {path} cannot be read; check the name and its contents") from error


def split_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_numbers(option: str, text: str) -> list[float] | None:
    """Numbers separated by commas; None if there is no text."""
    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError as error:
        raise UsageError(f"{option} must be numbers separated by commas, got {text!r}") from error


def parse_fixed_inputs(pairs: Sequence[str], inputs: Sequence[str]) -> dict[int, float] | None:
    """Values by column, from `NAME=VALUE` pairs; a name may also be a number from 1. None if there are no pairs."""
    from wgpr.io.grids import fixed_from_pairs

    with errors_of_usage("--"):
        return fixed_from_pairs(inputs, pairs) or None


def interval_half_width(level: float) -> float:
    """Half the width of the central interval with probability `level`, in standard deviations."""
    if not 0.0 < level < 1.0:
        raise UsageError(f"--level must be between 0 and 1, such as 0.95; got {level}")
    from wgpr.io import rows

    return rows.interval_half_width(level)


def check_fleet(engine: str, address: str, folder: Path | None) -> None:
    """Raise an error unless the options of a fleet belong together, and its folder can be made."""
    if engine not in ("processes", "ray"):
        raise UsageError(f"--engine must be processes or ray, got {engine!r}")
    if address and engine != "ray":
        raise UsageError("--address is for --engine ray; leave it out, or use that engine")
    if folder is not None and not address and not (parent := folder.absolute().parent).is_dir():
        raise UsageError(f"--folder: there is no folder {parent}; make it, or name another")


def check_map_output(output: Path, *inputs: Path | str) -> None:
    """Raise an error unless a map can be written there: it must not be named like a table, nor be an input file."""
    from wgpr.io.tables import READABLE

    if output.name.lower().endswith(READABLE):
        raise UsageError(f"{output} would be a map with the name of a table; name it {output.with_suffix('.map')}")
    check_output(output, *inputs)


def check_output(output: Path, *inputs: Path | str, endings: Sequence[str] = ()) -> None:
    """Raise an error unless the output can be written, has one of the `endings`, and is none of the input files."""
    check_destination(output, option="-o")
    if endings and output.suffix.lower() not in endings:
        raise UsageError(f"{output} cannot be written; its name must end with {' or '.join(endings)}")
    for path in inputs:
        if output.exists() and os.path.exists(path) and os.path.samefile(output, path):
            raise UsageError(f"{output} is read and would be overwritten; name another output")


@contextmanager
def errors_of_usage(prefix: str = "", /, **options: str) -> Iterator[None]:
    """Errors about the arguments of a function are about options here.

    options : what an argument is called here, if a message may begin with its name.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        text = re.sub(r"at=\{'(.+?)': (\S+?)\}", r"--at '\1=\2'", str(error))
        for in_python, here in _IN_PYTHON.items():
            text = text.replace(in_python, here)
        for name, option in options.items():
            if re.match(rf"{re.escape(name)}\b", text):
                text = option + text[len(name) :]
                break
        raise UsageError(f"{prefix}{text}") from error
