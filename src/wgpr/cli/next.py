"""`wgpr next`: where to measure next."""

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, format_count, inform, progress_bar
from wgpr.cli.lengths import Length
from wgpr.cli.query import learn_waiting_rows
from wgpr.cli.saving import read_map
from wgpr.estimators.base import EnsembleRegressor
from wgpr.io.coordinates import coordinates
from wgpr.io.grids import input_names, target_name, varying_columns
from wgpr.io.rows import n_seen
from wgpr.labels import Label
from wgpr.planning.files import FORMATS, check_format, read_expectation, read_polygons, write_plan
from wgpr.planning.plan import Plan, mean_std, plan

# What arguments of `plan` are called here.
_OPTIONS = {name: f"--{name}" for name in ("points", "lines", "spacing", "budget", "inside")} | {"start": "--from"}


def next(
    map_file: opt.MapFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help=f"A file: {', '.join(FORMATS)}.")
    ] = None,
    points: Annotated[int | None, typer.Option(metavar="N", min=1, help="Propose so many places.")] = None,
    lines: Annotated[int | None, typer.Option(metavar="N", min=1, help="Propose so many parallel lines.")] = None,
    spacing: Annotated[str, typer.Option(metavar="D", help="Least distance of the lines, such as 50m.")] = "",
    budget: Annotated[str, typer.Option(metavar="D", help="Propose one path of this length, such as 5km.")] = "",
    start: Annotated[str, typer.Option("--from", metavar="X,Y", help="Where the path begins.")] = "",
    returns: Annotated[bool, typer.Option("--return", help="The path ends where it begins.")] = False,
    inside: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Polygons of a GeoJSON file. By default where the data are.")
    ] = None,
    at: opt.At = [],  # noqa: B006
    check: Annotated[
        Path | None,
        typer.Option(metavar="PLAN", help="Say whether the gain of an earlier plan (.geojson) came true in this map."),
    ] = None,
) -> None:
    """Propose where to measure next: places, lines or a path that take out most uncertainty.

    Give one of --points, --lines and --budget. A length is in metres, or with a unit: 500m, 5km, 3nmi; in a map
    without a coordinate reference system it is in the unit of the inputs. Lines and paths measure all along.

    In the file, `gain` is the fraction of the summed variance of the field that a place, line or path takes out, after
    those before it: 0.1 is a tenth. Places have the best first.

    .geojson, .csv, .waypoints (MAVLink) and .plan (QGroundControl) can be written. After the survey, `--check` compares
    the uncertainty that was expected with that of the new map.

    Examples: `wgpr next lake.map --points 20 -o next.geojson`, `wgpr next lake.map --from -76.34,44.56 --budget 5km -o
    next.plan`, `wgpr next lake.map --check next.geojson`
    """
    if sum([points is not None, lines is not None, bool(budget), check is not None]) != 1:
        raise UsageError("give one of --points, --lines, --budget and --check")
    if bool(budget) != bool(start):
        raise UsageError("--budget and --from belong together: a path has a length, and a place where it begins")
    if returns and not budget:
        raise UsageError("--return is for a path: give --budget and --from")
    if spacing and lines is None:
        raise UsageError("--spacing is for --lines")
    if output is not None:
        opt.check_output(output, map_file, endings=FORMATS)
    if check is not None:
        _compare(map_file, check)
        return
    model = read_map(map_file)
    known = coordinates(model)
    with opt.errors_of_usage():
        fixed = opt.parse_fixed_inputs(at, input_names(model))
        columns = varying_columns(model, fixed)
        if output is not None:
            check_format(output, tuple(columns), known)
        region = None if inside is None else read_polygons(inside, known)
        length = Length.parsed("--budget", budget).in_unit_of("--budget", model, columns[0]) if budget else None
        least = Length.parsed("--spacing", spacing).in_unit_of("--spacing", model, columns[0]) if spacing else 0.0
        place = opt.parse_numbers("--from", start)
        if place is not None and (len(place) != 2 or not all(map(isfinite, place))):
            raise UsageError(f"--from must be two numbers, x,y such as -76.34,44.56; got {start!r}")
    if output is None:
        raise UsageError(f"name an output with -o; it may end with {', '.join(FORMATS)}")
    learn_waiting_rows(model)
    with progress_bar("planning", 100 if budget else 0) as bar, opt.errors_of_usage(**_OPTIONS):

        def show(part: float) -> None:
            bar(round(100.0 * part), "")

        made = plan(
            model, points=points, lines=lines, budget=length, start=place, returns=returns, spacing=least,
            inside=region, at=fixed, show=show,
        )  # fmt: skip
    if made.kind == "path" and not made.length:
        raise UsageError(_too_short(budget, made.unit))
    write_plan(output, made, known)
    inform(f"{_what(made)}: {output}")
    if lines is not None and len(made.tracks) < lines:
        inform(f"the ground has room for no more than {format_count(len(made.tracks), 'line')} so far apart")
    _say("expected", made.before, made.after, model)
    if known is None and output.suffix.lower() == ".geojson":
        inform("the map has no coordinate reference system, so the file has the coordinates of the data")


def _compare(map_file: Path, plan_file: Path) -> None:
    """Say what a plan expected, and what came true in a map."""
    model = read_map(map_file)
    with opt.errors_of_usage("--check needs the .geojson that wgpr next wrote: "):
        expectation = read_expectation(plan_file)
    with opt.errors_of_usage("--check: "):
        expectation.check_map(input_names(model), coordinates(model))
        realised = mean_std(model, expectation.places)
    _say("expected", expectation.before, expectation.after, model)
    if n_seen(model) == expectation.n_rows:
        inform("nothing was learned since the plan")
        return
    _say("realised", expectation.before, realised, model)


def _what(made: Plan) -> str:
    if made.kind == "points":
        return format_count(len(made.tracks), "place")
    counted = format_count(len(made.tracks), "line") if made.kind == "lines" else "a path"
    together = " together" if len(made.tracks) > 1 else ""
    return f"{counted} of {made.length:,.4g} {made.unit or 'units'}{together}"


def _too_short(budget: str, unit: str) -> str:
    """What is wrong with a budget as the user gave it. unit : that of a number without one, if it is known."""
    is_number = not Length.parsed("--budget", budget).unit
    taken = f" (in {unit or 'the unit of the inputs'})" if is_number else ""
    other = f", or write {budget}km for kilometres" if is_number and unit == "m" else ""
    return f"--budget {budget}{taken} is too short: the path would have no length; give a longer one{other}"


def _say(word: str, before: float, after: float, model: EnsembleRegressor) -> None:
    label = Label.parsed(target_name(model))
    unit = f" {label.unit}" if label.unit else ""
    inform(f"{word}: standard deviation of {label.name} over the ground {before:.3g}{unit} -> {after:.3g}{unit}")
