"""`wgpr contours`: lines of equal mean for GIS."""

from pathlib import Path
from typing import Annotated

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import format_count, inform, progress_bar
from wgpr.cli.lengths import parse_spacing, steps_of
from wgpr.cli.query import learn_waiting_rows, warn_without_system
from wgpr.cli.saving import read_map
from wgpr.io.contours import contours_of, write_geojson, write_geopackage
from wgpr.io.coordinates import coordinates
from wgpr.io.files import replace_file
from wgpr.io.grids import input_names, masked, plan_grid, predict_plan, target_name
from wgpr.io.rasters import Mask
from wgpr.labels import Label


def contours(
    map_file: opt.MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="A .geojson or .gpkg file.")],
    interval: Annotated[float, typer.Option(metavar="STEP", help="Difference of neighbouring levels.")],
    base: Annotated[float, typer.Option(metavar="LEVEL", help="A level from which others are counted.")] = 0.0,
    region: opt.Region = "",
    spacing: opt.Spacing = "",
    at: opt.At = [],  # noqa: B006
    mask_std: opt.MaskStd = None,
    mask_distance: opt.MaskDistance = None,
) -> None:
    """Draw lines of equal mean, as GeoJSON or GeoPackage for GIS.

    GeoJSON is in longitude and latitude (WGS 84), GeoPackage in the coordinates of the map.

    Example: `wgpr contours lake.map --interval 1 -o contours.geojson`
    """
    edges, steps = opt.parse_numbers("--region", region), parse_spacing(spacing)
    opt.check_output(output, map_file, endings=(".geojson", ".gpkg"))
    model = read_map(map_file)
    with opt.errors_of_usage():
        mask = Mask(mask_std, mask_distance)
        fixed = opt.parse_fixed_inputs(at, input_names(model))
        plan = plan_grid(model, edges, steps_of(steps, model, fixed), at=fixed)
        if len(plan.axes) != 2:
            raise ValueError(f"contours have two inputs that vary, and here {len(plan.axes)} do; use --at")
    learn_waiting_rows(model)
    with progress_bar("predicting", plan.size) as show:
        grid = predict_plan(model, plan, lambda n_done: show(n_done, format_count(n_done, "node")))
    grid, n_masked = masked(plan, grid, mask.finder(model))
    with opt.errors_of_usage():
        lines = list(contours_of(grid, interval, base))
    if n_masked == plan.size:
        raise ValueError("there is no line: the mask leaves no data; use a greater --mask-std or --mask-distance")
    if not lines:
        raise ValueError("there is no line: the map has no such level; use a smaller --interval or another --base")
    known, name = coordinates(model), Label.parsed(target_name(model)).name
    warn_without_system(model, map_file, "the lines")
    write = write_geojson if output.suffix.lower() == ".geojson" else write_geopackage
    with replace_file(output) as temporary:
        write(temporary, lines, name, known)
    levels = format_count(len({line.level for line in lines}), "level")
    inform(f"{format_count(len(lines), 'line')} of {levels}: {output}")
