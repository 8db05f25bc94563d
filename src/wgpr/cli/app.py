"""The command line: the list of the commands, which are in the modules beside this one."""

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, run_app, stdout
from wgpr.cli.learn import choose_columns, fit, update
from wgpr.cli.query import evaluate, grid, predict, read_all
from wgpr.cli.saving import apply, compact, diff
from wgpr.cli.settings import open_table, read_configuration, settings
from wgpr.cli.show import info, plot
from wgpr.cli.stream import stream

app = typer.Typer(
    name="wgpr",
    epilog="Start with `wgpr demo`. Then: `wgpr fit survey.csv --x east,north --y depth -o lake.map`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def main() -> NoReturn:
    """The console script."""
    run_app(app)


def _print_version(is_given: bool) -> None:
    if is_given:
        stdout.print(installed_version("wgpr"))
        raise typer.Exit


@app.callback()
def _common_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With any command: print the traceback of an error.")
    ] = False,
) -> None:
    """Online Gaussian process regression: learn a map from a survey, update it, and predict with it."""


@app.command()
@opt.with_table_options
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the report and the map.")
    ] = Path("wgpr-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller survey, in about 10 seconds.")] = False,
    data: Annotated[list[str], typer.Option(metavar="FILE", help="Your own survey.")] = [],  # noqa: B006
    x: opt.X = "",
    y: opt.Y = "",
    seed: Annotated[int, typer.Option(metavar="SEED", min=0, help="Seed of all random numbers.")] = 0,
    *,
    tables: dict[str, Any],
) -> None:
    """Learn a survey of real terrain, flown in lines with a noisy altimeter.

    WGPR, one streamed Gaussian process and linear interpolation learn the same survey. A table shows how accurate each
    is at points that none has seen. A report in HTML shows the maps, their uncertainty, and the history of decisions.

    Example: `wgpr demo --data survey.csv --x east,north --y depth`
    """
    from wgpr.cli.demo import run_demo  # matplotlib takes long to import

    if output.is_file():
        raise UsageError(f"{output} is a file and the report needs a folder; name another with -o")
    survey = None
    if data:
        configuration = read_configuration()
        table = open_table(data, tables, configuration.table)
        columns = choose_columns(table, opt.split_names(x) or configuration.x, y or configuration.y)
        rows = read_all(table, columns)
        survey = rows[:, :-1], rows[:, -1], columns
    run_demo(output, quick=quick, data=survey, seed=seed)


for _command in (fit, update, stream, predict, grid, evaluate, info, plot, settings, compact, diff, apply):
    app.command()(_command)
