"""The command line: what can be asked for, and how it is explained. What is done is in the modules beside it."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from wgpr.cli.console import FAILURE, WRONG_USE, complain, counted, in_bytes, out, say
from wgpr.cli.options import (
    AsJson,
    At,
    Config,
    DataFiles,
    Decimal,
    Header,
    Level,
    MapFile,
    Method,
    Missing,
    Region,
    Separator,
    Settings,
    Spacing,
    X,
    Y,
)
from wgpr.cli.parsing import half_width, names, numbers, opened_table, places, require_other_file
from wgpr.cli.settings import (
    Configuration,
    SettingsError,
    make_estimator,
    parsed_settings,
    read_configuration,
    settings_of,
)
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import METHODS
from wgpr.io.container import MapError
from wgpr.io.tables import expand, write_table

app = typer.Typer(
    name="wgpr",
    epilog="Begin with `wgpr demo`. Then: `wgpr fit survey.csv --x east,north --y depth -o lake.map`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        out.print(version("wgpr"))
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Say which version this is.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With any command: the traceback of an error.")] = False,
) -> None:
    """Learn a map from a survey, go on with it, ask it, look at it: online Gaussian process regression."""


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the report and its pictures go.")
    ] = Path("wgpr-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller survey, in some 10 seconds.")] = False,
    data: Annotated[
        list[str], typer.Option(metavar="FILE", help="Your own survey in place of the simulated one.")
    ] = [],  # noqa: B006
    x: X = "",
    y: Y = "",
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is random.")] = 0,
) -> None:
    """See it learn: a survey of real terrain, flown in lines with a noisy altimeter.

    WGPR, one streamed Gaussian process and linear interpolation learn the same survey. A table says how good each is at
    points that none has seen; a report in HTML shows the maps, their uncertainty and the history of the decisions.

    Example: `wgpr demo --data survey.csv --x east,north --y depth`
    """
    from wgpr.cli.demo import run_demo
    from wgpr.cli.query import all_rows
    from wgpr.io.columns import columns_to_learn

    if output.is_file():
        raise SettingsError(f"{output} is a file, and the report needs a folder; name another with -o")
    survey = None
    if data:
        configuration = _configuration(None)
        table = opened_table(data, configuration.table)
        columns = columns_to_learn(table, names(x) or configuration.x, y or configuration.y)
        say(f"learning {columns[-1]} from {', '.join(columns[:-1])}")
        rows = all_rows(table, columns)
        survey = rows[:, :-1], rows[:, -1], columns
    run_demo(output, quick=quick, data=survey, seed=seed)


# Learning


@app.command()
def fit(
    data: DataFiles,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MAP", help="Where to save the map.")],
    x: X = "",
    y: Y = "",
    method: Method = "",
    setting: Settings = [],  # noqa: B006 (typer copies it)
    config: Config = None,
    separator: Separator = "",
    decimal: Decimal = "",
    header: Header = None,
    missing: Missing = "",
    skip: Annotated[int, typer.Option(min=0, help="Rows at the beginning to leave out.")] = 0,
) -> None:
    """Learn a new map from a survey.

    The rows are learned in their order, batch by batch, in bounded memory. Ctrl-C saves what is learned.

    Example: `wgpr fit survey.csv --x east,north --y depth -s splitting=evidence -o lake.map`
    """
    from wgpr.cli.learn import learn_table
    from wgpr.io.columns import columns_to_learn

    configuration = _configuration(config)
    model = _new_model(configuration, method, setting)
    table = opened_table(
        data, configuration.table, separator=separator, decimal=decimal, header=header, missing=missing
    )
    columns = columns_to_learn(table, names(x) or configuration.x, y or configuration.y)
    require_other_file(output, *expand(data))
    if not learn_table(model, table, columns, output, skip=skip):
        raise typer.Exit(FAILURE)


@app.command()
def update(
    map_file: MapFile,
    data: DataFiles,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MAP", help="Save here and leave the old map as it is.")
    ] = None,
    x: X = "",
    y: Y = "",
    separator: Separator = "",
    decimal: Decimal = "",
    header: Header = None,
    missing: Missing = "",
    skip: Annotated[
        int, typer.Option(min=0, help="Rows at the beginning to leave out, because they are learned already.")
    ] = 0,
) -> None:
    """Go on with a saved map, exactly as if it had never stopped.

    Example: `wgpr update lake.map tuesday.csv`
    """
    from wgpr.cli.learn import learn_table
    from wgpr.estimators.base import OnlineRegressor
    from wgpr.io.columns import columns_of_map
    from wgpr.io.maps import load

    model = load(map_file)
    if not isinstance(model, OnlineRegressor):
        raise MapError(f"{map_file} was learned by a method that takes all data at once; use wgpr fit with all of them")
    table = opened_table(data, separator=separator, decimal=decimal, header=header, missing=missing)
    columns = columns_of_map(model, table, names(x), y or None)
    require_other_file(output or map_file, *expand(data))
    if not learn_table(model, table, columns, output or map_file, skip=skip):
        raise typer.Exit(FAILURE)


@app.command()
def stream(
    map_file: MapFile,
    x: X = "",
    y: Y = "",
    method: Method = "",
    setting: Settings = [],  # noqa: B006
    config: Config = None,
    level: Level = 0.95,
    save_every: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="How often to save the map.")] = 60.0,
    report_every: Annotated[
        int, typer.Option(min=1, metavar="ROWS", help="How often to report on standard error.")
    ] = 1000,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first line that cannot be read.")] = False,
) -> None:
    """Learn and answer over pipes: rows on standard input, answers on standard output.

    A line is CSV (inputs, then target) or JSON: `{"lon": 1, "lat": 2, "depth": 3}`, or `{"x": [1, 2], "y": 3}`. Without
    the target it is a question, and is answered at once with mean, std, lower, upper and model. Each row is predicted
    before it is learned; the running error is reported on standard error. If there is no MAP yet, a new one is begun
    with the given method and settings. The map is saved now and then, at the end of the input, and on Ctrl-C.

    Example: `tail -f sonar.csv | wgpr stream lake.map`
    """
    from wgpr.cli.lines import Conversation
    from wgpr.cli.stream import converse
    from wgpr.estimators.base import OnlineRegressor

    model, reader = _model_and_reader(map_file, x, y, method, setting, config)
    if not isinstance(model, OnlineRegressor):
        raise MapError("this method takes all data at once and cannot learn a stream; use another method")
    conversation = Conversation(model, reader, half_width(level))
    converse(
        conversation,
        sys.stdin.fileno(),
        map_file,
        save_every=save_every,
        report_every=report_every,
        strict=strict,
    )


def _model_and_reader(
    map_file: Path, x: str, y: str, method: str, setting: list[str], config: Path | None
) -> tuple[Any, Any]:
    """A saved map to go on with, or a new one; and who reads the lines for it."""
    from wgpr.cli.lines import Reader
    from wgpr.io.grids import input_names, target_name
    from wgpr.io.maps import load

    if map_file.exists():
        if method or setting:
            raise SettingsError(f"{map_file} exists and keeps its method and settings; leave out --method and --set")
        model = load(map_file)
        inputs = names(x) or input_names(model)
        if len(inputs) != model.n_features_in_:
            raise SettingsError(f"--x must name {model.n_features_in_} columns, the inputs of {map_file}; got {x}")
        return model, Reader(inputs, y or target_name(model))
    configuration = _configuration(config)
    model = _new_model(configuration, method, setting)
    say(f"there is no {map_file} yet; a new map is begun")
    return model, Reader(names(x) or configuration.x or None, y or configuration.y)


def _configuration(path: Path | None) -> Configuration:
    configuration = read_configuration(path)
    if configuration.path:
        say(f"settings from {configuration.path}")
    return configuration


def _new_model(configuration: Configuration, method: str, setting: list[str]) -> EnsembleRegressor:
    given = parsed_settings(setting)
    settings = {**configuration.settings, **given}
    if "threshold" in given and settings.get("splitting", "wasserstein") != "wasserstein":
        raise SettingsError(f"threshold={given['threshold']} has no effect with splitting={settings['splitting']}")
    return make_estimator(method or configuration.method or "wgpr", settings)


# Answering


@app.command()
def predict(
    map_file: MapFile,
    queries: DataFiles,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="A CSV, TSV or Parquet file; - is standard output.")
    ] = "-",
    x: X = "",
    level: Level = 0.95,
    latent: Annotated[
        bool, typer.Option("--latent", help="Uncertainty of the field itself, not of an observation of it.")
    ] = False,
    separator: Separator = "",
    decimal: Decimal = "",
    header: Header = None,
    missing: Missing = "",
) -> None:
    """Predict at the places of a table: its inputs, mean, std, lower, upper, and the model that answers.

    Example: `wgpr predict lake.map places.csv -o depths.csv`
    """
    from wgpr.cli.query import answer_names, answers, load_to_answer
    from wgpr.io.columns import inputs_of_map

    reach = half_width(level)
    if output != "-":
        require_other_file(Path(output), map_file, *expand(queries))
    model = load_to_answer(map_file)
    table = opened_table(queries, separator=separator, decimal=decimal, header=header, missing=missing)
    columns = inputs_of_map(model, table, names(x))
    chunks = answers(model, table, columns, half_width=reach, latent=latent)
    write_table(output, answer_names(model), chunks)
    if output != "-":
        say(f"predicted {counted(table.n_rows, 'row')}: {output}")


@app.command()
def grid(
    map_file: MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.nc", help="A NetCDF file.")],
    region: Region = "",
    spacing: Spacing = "",
    at: At = [],  # noqa: B006
) -> None:
    """Predict on a regular grid and write it as NetCDF with CF attributes, for xarray, QGIS, GMT and the like.

    Example: `wgpr grid lake.map --region 0,6.3,0,5.8 --spacing 0.02 -o lake.nc`
    """
    from wgpr.cli.query import load_to_answer, say_how_much_is_outside
    from wgpr.io.files import check_destination, replace_file
    from wgpr.io.grids import input_names

    if output.suffix != ".nc":
        raise SettingsError(f"{output} cannot be written; the name must end with .nc")
    check_destination(output)
    model = load_to_answer(map_file)
    fixed = places(at, input_names(model))
    with _wrong_use():
        dataset = model.predict_grid(numbers("--region", region), numbers("--spacing", spacing), at=fixed)
    with replace_file(output) as temporary:
        dataset.to_netcdf(temporary, engine="scipy")
    say(f"{' x '.join(map(str, dataset['mean'].shape))} nodes: {output} ({in_bytes(output.stat().st_size)})")
    say_how_much_is_outside(model, dataset, fixed)


@app.command()
def evaluate(
    map_file: MapFile,
    data: DataFiles,
    x: X = "",
    y: Y = "",
    as_json: AsJson = False,
    separator: Separator = "",
    decimal: Decimal = "",
    header: Header = None,
    missing: Missing = "",
) -> None:
    """Say how good a map's predictions of other data are, and how honest its uncertainty.

    Hold out whole survey lines: rows next to those that were learned flatter any map.

    Example: `wgpr evaluate lake.map thursday.csv`
    """
    from wgpr.cli import query as answering
    from wgpr.cli.show import scores_table
    from wgpr.io.columns import columns_of_map

    model = answering.load_to_answer(map_file)
    table = opened_table(data, separator=separator, decimal=decimal, header=header, missing=missing)
    scores, n_rows = answering.evaluate(model, table, columns_of_map(model, table, names(x), y or None))
    if as_json:
        _print_json({"rows": n_rows, **scores._asdict()})
    else:
        out.print(scores_table(scores, n_rows))


# Looking


@app.command()
def info(map_file: MapFile, as_json: AsJson = False) -> None:
    """Say what is in a map: settings, models, extents, size, last decisions."""
    from wgpr.cli.show import print_summary, summary
    from wgpr.io import container
    from wgpr.io.maps import load

    model = load(map_file)
    content = summary(model, map_file.stat().st_size, compact=container.read(map_file).header["compact"])
    if as_json:
        _print_json(content)
    else:
        print_summary(content, out)


@app.command()
def plot(
    map_file: MapFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PNG|SVG|PDF|HTML", help="The picture, or a page with it.")
    ],
    region: Region = "",
    spacing: Spacing = "",
    data: Annotated[list[str], typer.Option(metavar="FILE", help="Data to show with it.")] = [],  # noqa: B006
) -> None:
    """Draw a map: mean, uncertainty, who owns what, and the history of the decisions.

    Example: `wgpr plot lake.map -o lake.png`
    """
    from wgpr.cli.drawing import draw
    from wgpr.cli.query import all_rows, load_to_answer
    from wgpr.io.columns import columns_of_map

    model, samples = load_to_answer(map_file), None
    if data:
        table = opened_table(data)
        samples = all_rows(table, columns_of_map(model, table, [], None))
    with _wrong_use():
        draw(model, output, data=samples, region=numbers("--region", region), spacing=numbers("--spacing", spacing))
    say(f"drawn: {output}")


@app.command()
def settings(
    method: Annotated[str, typer.Argument(help=f"One of {', '.join(METHODS)}; without one, all are listed.")] = "",
) -> None:
    """List the methods, or explain the settings of one."""
    from inspect import getdoc

    if method and method not in METHODS:
        raise SettingsError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    for name in [method] if method else METHODS:
        text = getdoc(METHODS[name]) or ""
        text = text.replace("Parameters\n----------", "Settings").partition("\nAttributes")[0]
        out.print(f"{name}: {text.splitlines()[0]}" if not method else text, markup=False)
        out.print("  " + ", ".join(f"{key}={value!r}" for key, value in settings_of(name).items()), markup=False)


# Sending


@app.command()
def compact(
    map_file: MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SMALL", help="Where to save the compact map.")],
    flush: Annotated[
        bool, typer.Option("--flush", help="Learn the rows that wait first: the survey is over, no differences follow.")
    ] = False,
) -> None:
    """Make a small copy of a map for a slow link: float32, only what prediction needs.

    Rows that wait for a batch to fill are not in it; once they are learned, they come with a difference (`wgpr diff`).
    """
    from wgpr.io.maps import load

    require_other_file(output, map_file)
    model = load(map_file)
    (model.flush() if flush else model).save(output, compact=True)
    _say_saved(output)
    if model.n_pending_:
        say(f"{counted(model.n_pending_, 'row')} that wait to be learned are not in it; --flush learns them first")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The map that the other side has, compact or not.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="What it has become since.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIFF", help="Where to save what changed.")],
) -> None:
    """Find what changed in a map: only the models that learned something, for a slow link."""
    from wgpr.io import maps
    from wgpr.io.files import write_file

    require_other_file(output, old, new)
    write_file(output, maps.diff(maps.load(old), maps.load(new)))
    _say_saved(output)


@app.command()
def apply(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The map that is there.")],
    difference: Annotated[Path, typer.Argument(metavar="DIFF", help="What was sent.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="NEW", help="Where to save the map as it is now.")],
    compact: Annotated[bool, typer.Option("--compact", help="Save it compactly.")] = False,
) -> None:
    """Bring a map up to date with what changed."""
    from wgpr.io import maps

    require_other_file(output, difference)
    try:
        now = maps.apply(maps.load(old), difference.read_bytes())
    except MapError as error:
        raise MapError(f"{difference}: {error}") from error
    now.save(output, compact=compact)
    _say_saved(output)


def _print_json(content: dict[str, Any]) -> None:
    """JSON has no infinity: what is not finite is null."""
    finite = {
        key: None if isinstance(value, float) and not isfinite(value) else value for key, value in content.items()
    }
    out.print_json(json.dumps(finite, allow_nan=False))


@contextmanager
def _wrong_use() -> Iterator[None]:
    """What a function says about its arguments is, here, about options."""
    try:
        yield
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _say_saved(path: Path) -> None:
    say(f"saved: {path} ({in_bytes(path.stat().st_size)})")


def main() -> NoReturn:
    """The console script."""
    run_app(app)


def run_app(app: typer.Typer) -> NoReturn:
    """Run a command line and exit: 0, 1 for a failure, 2 for wrong use. An error is one sentence."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    verbose = "--verbose" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--verbose"]
    try:
        app(arguments)
    except SettingsError as error:
        complain(error, verbose=verbose)
        sys.exit(WRONG_USE)
    except (ValueError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        complain(error, verbose=verbose)
        sys.exit(FAILURE)
    sys.exit(0)
