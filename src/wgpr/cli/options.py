"""The arguments and options that several commands have, each explained once."""

from pathlib import Path
from typing import Annotated

import typer

from wgpr.estimators.regressors import METHODS

MapFile = Annotated[Path, typer.Argument(metavar="MAP", help="A saved map.")]
DataFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV, Parquet or NPZ files, read one after the other. "
        "A 'glob*' is read in natural order, - is standard input.",
    ),
]
X = Annotated[
    str, typer.Option("--x", metavar="NAMES", help="Columns of the inputs, by name or number: lon,lat or 1,2.")
]
Y = Annotated[
    str, typer.Option("--y", metavar="NAME", help="Column of the target, by name or number. By default the last.")
]

Separator = Annotated[
    str, typer.Option(metavar="MARK", help="Between cells: ',' ';' 'tab' or ' '. By default it is found out.")
]
Decimal = Annotated[str, typer.Option(metavar="MARK", help="'.' or ','. By default it is found out.")]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line has the names. By default it is found out."),
]
Missing = Annotated[
    str, typer.Option(metavar="WHAT", help="What becomes of a row that lacks a value: 'error' (default) or 'skip'.")
]

Method = Annotated[str, typer.Option("--method", "-m", help=f"{', '.join(METHODS)}. 'wgpr settings' explains them.")]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="A setting of the method, such as threshold=3; any number of times. 'wgpr settings' lists them.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML with method, x, y, and the tables settings and table. By default wgpr.toml, if it is there.",
    ),
]

Region = Annotated[
    str, typer.Option(metavar="W,E,S,N", help="In the units of the data. By default, where the data are.")
]
Spacing = Annotated[str, typer.Option(metavar="S", help="Distance between nodes, S or SX,SY.")]
At = Annotated[
    list[str],
    typer.Option(metavar="NAME=VALUE", help="Value of an input that does not vary, where there are more than two."),
]
Level = Annotated[float, typer.Option(help="Probability of the interval from lower to upper.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
