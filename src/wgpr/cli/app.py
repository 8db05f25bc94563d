"""The command line: the list of the commands, which are in the modules beside this one.

A module is imported when one of its commands is used: NumPy, pandas and scikit-learn take seconds to import.
"""

from importlib import import_module
from importlib.metadata import version as installed_version
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from wgpr.cli.console import run_app, stdout

# Module and first sentence of each command.
COMMANDS = {
    "demo": ("demo", "Learn a survey of real terrain, flown in lines with a noisy altimeter."),
    "fit": ("fit", "Learn a new map from a survey."),
    "update": ("fit", "Learn more rows, exactly as if the map had learned all rows at once."),
    "stream": ("stream", "Learn rows of standard input, and answer queries on standard output."),
    "serve": ("serve", "Serve the maps of a folder over HTTP: they learn and answer at once, and lose nothing."),
    "predict": ("query", "Predict at the places of a table."),
    "grid": ("query", "Predict on a regular grid: a GeoTIFF, a BAG, or NetCDF with CF attributes."),
    "contours": ("query", "Draw lines of equal mean, as GeoJSON or GeoPackage for GIS."),
    "next": ("next", "Propose where to measure next: places, lines or a path that take out most uncertainty."),
    "evaluate": ("query", "Score the predictions of other data, and their uncertainty."),
    "info": ("show", "Print what is in a map: settings, models, extents, size, last steps."),
    "plot": ("show", "Draw a map: mean, uncertainty, regions of the local models, and the history of decisions."),
    "settings": ("settings", "List the methods, or explain the settings of one."),
    "compact": ("slow_link", "Make a small copy of a map for a slow link: float32, only what prediction needs."),
    "diff": ("slow_link", "Save what changed in a map, for a slow link: only the local models that learned something."),
    "apply": ("slow_link", "Apply a difference to a map."),
    "merge": ("merge", "Make one map of several, such as those of the robots of a fleet."),
}


class LazyCommand(TyperCommand):
    """A command that is known by its first sentence until it is used."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._module = module

    def imported(self) -> Any:
        """The command with its parameters and its whole help."""
        command = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        command.command(self.name)(getattr(import_module(f"wgpr.cli.{self._module}"), str(self.name)))
        return get_command(command)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.imported().make_context(info_name, args, parent, **extra)


class LazyGroup(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, about in COMMANDS.items():
            self.add_command(LazyCommand(name, *about))


app = typer.Typer(
    name="wgpr",
    cls=LazyGroup,
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
