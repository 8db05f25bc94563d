"""`wgpr predict`, `grid`, `contours` and `evaluate`: answers of a saved map. The map file stays as it is."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table as TextTable

from wgpr.cli import options as opt
from wgpr.cli.columns import columns_of_map, inputs_of_map
from wgpr.cli.console import format_count, format_size, inform, print_json, progress_bar, stderr, stdout, warn
from wgpr.cli.lengths import length_of, parse_spacing, steps_of
from wgpr.cli.plausibility import check_size, told
from wgpr.cli.repetition import begins_alike
from wgpr.cli.saving import read_map
from wgpr.cli.settings import open_table
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.codec import learned_tables
from wgpr.io.contours import contours_of, write_geojson, write_geopackage
from wgpr.io.coordinates import coordinates, for_model, user_bounds
from wgpr.io.files import replace_file
from wgpr.io.grids import (
    MOST_NODES,
    input_names,
    masked,
    named,
    plan_grid,
    predict_one_output,
    predict_plan,
    target_name,
)
from wgpr.io.known_range import KnownRange, first_outside
from wgpr.io.rasters import MOST_NODES as MOST_RASTER_NODES
from wgpr.io.rasters import Mask, check_raster, plane_of, write_raster
from wgpr.io.rows import ANSWER, answer
from wgpr.io.tables import Chunk, Table, TableError, expand, write_table
from wgpr.labels import Label
from wgpr.metrics import RunningScores, Scores

_REMEDY = "check the units, and name the columns of the inputs in the order of the map with --x"


@opt.with_table_options
def predict(
    map_file: opt.MapFile,
    queries: opt.DataFiles,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="A CSV, TSV or Parquet file; - is standard output.")
    ] = "-",
    x: opt.X = "",
    level: opt.Level = 0.95,
    latent: Annotated[
        bool, typer.Option("--latent", help="Uncertainty of the field itself, without the noise of an observation.")
    ] = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Predict at the places of a table.

    The result has the inputs, mean, std, lower, upper, and the number of the local model that answers.

    Example: `wgpr predict lake.map places.csv -o depths.csv`
    """
    half_width = opt.interval_half_width(level)
    if output != "-":
        opt.check_output(Path(output), map_file, *expand(queries), endings=(".csv", ".tsv", ".parquet"))
    table, model = open_table(queries, tables), read_map(map_file)
    columns = inputs_of_map(model, table, opt.split_names(x))
    learn_waiting_rows(model)
    names = [f"{name}_" if name in ANSWER else name for name in input_names(model)]
    chunks = (
        [*chunk.values.T, *answer(model, chunk.values, half_width, latent=latent)]
        for chunk in _chunks(model, table, columns, KnownRange.of_map(model))
    )
    write_table(output, [*names, *ANSWER], chunks)
    if output != "-":
        inform(f"predicted {format_count(table.n_rows, 'row')}: {output}")


def grid(
    map_file: opt.MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A .tif, .bag or .nc file.")],
    region: opt.Region = "",
    spacing: opt.Spacing = "",
    at: opt.At = [],  # noqa: B006
    mask_std: opt.MaskStd = None,
    mask_distance: opt.MaskDistance = "",
) -> None:
    """Predict on a regular grid: a GeoTIFF, a BAG, or NetCDF with CF attributes.

    A GeoTIFF (cloud-optimised) has the bands mean and std, a BAG elevation and uncertainty; both may be larger than
    memory, and need wgpr[geo]. NetCDF also has the uncertainty of the field and the local models.

    Example: `wgpr grid lake.map --spacing 5m --mask-distance 50 -o lake.tif`
    """
    edges, steps = opt.parse_numbers("--region", region), parse_spacing(spacing)
    opt.check_output(output, map_file, endings=(".tif", ".tiff", ".bag", ".nc"))
    is_raster, model = output.suffix.lower() != ".nc", read_map(map_file)
    with opt.errors_of_usage(region="--region", spacing="--spacing"):
        fixed = opt.parse_fixed_inputs(at, input_names(model))
        most = MOST_RASTER_NODES if is_raster else MOST_NODES
        plan = plan_grid(model, edges, steps_of(steps, model, fixed), at=fixed, max_nodes=most)
        mask = Mask(mask_std, length_of("--mask-distance", mask_distance, model, plane_of(model, plan)))
        if is_raster:
            check_raster(output, model, plan)
    learn_waiting_rows(model)
    with progress_bar("predicting", plan.size) as bar, replace_file(output) as temporary:

        def show(n_done: int) -> None:
            bar(n_done, format_count(n_done, "node"))

        if is_raster:
            n_masked = write_raster(output, temporary, model, plan, mask, show)
        else:
            dataset, n_masked = masked(plan, predict_plan(model, plan, show), mask.finder(model, plan))
            dataset.to_netcdf(temporary, engine="scipy")
    without = f", {n_masked / plan.size:.0%} without data" if n_masked else ""
    inform(f"{' x '.join(map(str, plan.shape))} nodes{without}: {output} ({format_size(output.stat().st_size)})")
    if is_raster:
        _warn_without_system(model, map_file, "the grid")
    if region:  # that by default has a margin of its own
        _inform_outside(plan.n_outside(user_bounds(model)), plan.size)


def contours(
    map_file: opt.MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A .geojson or .gpkg file.")],
    interval: Annotated[float, typer.Option(metavar="STEP", help="Difference of neighbouring levels.")],
    base: Annotated[float, typer.Option(metavar="LEVEL", help="A level from which others are counted.")] = 0.0,
    region: opt.Region = "",
    spacing: opt.Spacing = "",
    at: opt.At = [],  # noqa: B006
    mask_std: opt.MaskStd = None,
    mask_distance: opt.MaskDistance = "",
) -> None:
    """Draw lines of equal mean, as GeoJSON or GeoPackage for GIS.

    GeoJSON is in longitude and latitude (WGS 84), GeoPackage in the coordinates of the map.

    Example: `wgpr contours lake.map --interval 1 -o contours.geojson`
    """
    edges, steps = opt.parse_numbers("--region", region), parse_spacing(spacing)
    opt.check_output(output, map_file, endings=(".geojson", ".gpkg"))
    model = read_map(map_file)
    with opt.errors_of_usage(region="--region", spacing="--spacing"):
        fixed = opt.parse_fixed_inputs(at, input_names(model))
        plan = plan_grid(model, edges, steps_of(steps, model, fixed), at=fixed)
        mask = Mask(mask_std, length_of("--mask-distance", mask_distance, model, plane_of(model, plan)))
        if len(plan.axes) != 2:
            raise ValueError(f"contours have two inputs that vary, and here {len(plan.axes)} do; use --at")
    learn_waiting_rows(model)
    with progress_bar("predicting", plan.size) as show:
        grid = predict_plan(model, plan, lambda n_done: show(n_done, format_count(n_done, "node")))
    grid, n_masked = masked(plan, grid, mask.finder(model, plan))
    with opt.errors_of_usage():
        lines = list(contours_of(grid, interval, base))
    if n_masked == plan.size:
        raise ValueError("there is no line: the mask leaves no data; use a greater --mask-std or --mask-distance")
    if not lines:
        raise ValueError("there is no line: the map has no such level; use a smaller --interval or another --base")
    known, name = coordinates(model), Label.parsed(target_name(model)).name
    _warn_without_system(model, map_file, "the lines")
    write = write_geojson if output.suffix.lower() == ".geojson" else write_geopackage
    with replace_file(output) as temporary:
        write(temporary, lines, name, known)
    levels = format_count(len({line.level for line in lines}), "level")
    inform(f"{format_count(len(lines), 'line')} of {levels}: {output}")


@opt.with_table_options
def evaluate(
    map_file: opt.MapFile,
    data: opt.DataFiles,
    x: opt.X = "",
    y: opt.Y = "",
    as_json: opt.AsJson = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Score the predictions of other data, and their uncertainty.

    Use whole survey lines that were not learned: rows next to learned ones are too easy to predict. A file that begins
    with learned rows is told; rows that come in another order are not recognised.

    Example: `wgpr evaluate lake.map thursday.csv`
    """
    table, model = open_table(data, tables), read_map(map_file)
    columns = columns_of_map(model, table, opt.split_names(x), y or None)
    learn_waiting_rows(model)
    running, files, sum_of_errors, is_target_told = RunningScores(), set[str](), 0.0, False
    known = KnownRange.of_map(model)
    for chunk in _chunks(model, table, columns, known):
        if chunk.file not in files and begins_alike(chunk.values, learned_tables(model)):
            warn(f"{chunk.file} begins with rows that the map has learned, so the scores are too good; use other rows")
        files.add(chunk.file)
        is_target_told = is_target_told or _warn_of_far_target(chunk, known)
        mean, std = predict_one_output(model, named(model, chunk.values[:, :-1]))
        running.add(chunk.values[:, -1], mean, std)
        sum_of_errors += float((chunk.values[:, -1] - mean).sum())
    result, mean_error = running.result(), sum_of_errors / running.n_rows
    if as_json:
        print_json({"rows": running.n_rows, **result._asdict(), "mean_error": mean_error})
    else:
        stdout.print(_scores_table(result, mean_error, running.n_rows))


def _warn_of_far_target(chunk: Chunk, known: KnownRange) -> bool:
    """Warn of the first target of a chunk that is far outside of what the map knows. Returns whether there is one."""
    column = chunk.values.shape[1] - 1
    fault = next((fault for fault, _ in known.faults(chunk.values) if fault.column == column), None)
    if fault is not None:
        place = f"{chunk.file}, line {chunk.lines[fault.row]}, column {chunk.names[column]!r}"
        remedy = f"if it stands for no data, leave it out (--nodata {fault.values}), otherwise check the units"
        warn(f"{place}: {fault.values} is {fault.text}, and the scores count it; {remedy}")
    return fault is not None


def _scores_table(scores: Scores, mean_error: float, n_rows: int) -> TextTable:
    """Scores, each with its meaning."""
    table = TextTable("score", "value", "meaning", title=f"{n_rows:,} rows")
    table.columns[1].justify = "right"
    table.add_row("RMSE", f"{scores.rmse:#.5g}", "root of the mean squared error, in the unit of the target")
    table.add_row("MAE", f"{scores.mae:#.5g}", "mean absolute error")
    table.add_row(
        "mean error", f"{mean_error:#.5g}", "mean of observed minus predicted; a tide or another datum shows here"
    )
    table.add_row("SMSE", f"{scores.smse:#.5g}", "mean squared error over the variance of the target; 1 for its mean")
    table.add_row("NLPD", f"{scores.nlpd:#.5g}", "mean negative log predictive density")
    table.add_row("CRPS", f"{scores.crps:#.5g}", "continuous ranked probability score: MAE of the whole distribution")
    table.add_row("coverage", f"{scores.coverage:.1%}", "of the 95 % interval; 95 % is right")
    return table


def _warn_without_system(model: EnsembleRegressor, map_file: Path, what: str) -> None:
    if coordinates(model) is None:
        fault = f"the map has no coordinate reference system, so a GIS cannot place {what}"
        warn(f"{fault}; say it with wgpr update {map_file} --crs, or with wgpr fit --crs for degrees")


def learn_waiting_rows(model: EnsembleRegressor) -> None:
    """Learn the rows that wait for a batch, so that answers use all rows. Check all arguments before."""
    if model.n_pending_:
        with stderr.status(f"learning {format_count(model.n_pending_, 'row')} that wait for a batch"):
            model.flush()


def read_all(table: Table, columns: Sequence[str]) -> Array:
    """All rows of a table, (n, k)."""
    return np.concatenate([chunk.values for chunk in table.chunks(columns)])


def _chunks(model: EnsembleRegressor, table: Table, columns: Sequence[str], known: KnownRange) -> Iterator[Chunk]:
    """The chunks of a table, with a progress bar. Places that cannot be right, or are outside of the data, are told."""
    n_outside, is_told, (low, high) = 0, False, model.bounds_
    with progress_bar("predicting") as show:
        for chunk in table.chunks(columns):
            check_size(chunk)
            places = chunk.values[:, : len(low)]
            if (fault := first_outside(places, known.coordinates, known)) is not None:
                raise TableError(f"{told(chunk, fault)}; correct it, or {_REMEDY}")
            X = for_model(model, places)
            if not is_told and (fault := known.first_far(np.insert(places, len(low), known.high[-1], axis=1))):
                is_told = True
                warn(f"{told(chunk, fault)}; {_REMEDY}")
            n_outside += int(((low > X) | (high < X)).any(axis=1).sum())
            yield chunk
            show(table.n_rows, format_count(table.n_rows, "row"))
    _inform_outside(n_outside, table.n_rows)
    for note in table.notes:
        inform(note)


def _inform_outside(n_outside: int, n_places: int) -> None:
    if n_outside:
        fraction = n_outside / n_places
        part = "all" if fraction == 1.0 else f"{fraction:.0%}" if fraction >= 0.01 else "less than 1%"
        inform(f"{part} of the places are outside of the range of the data, where little is known")
