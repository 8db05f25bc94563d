"""`wgpr fit` and `wgpr update`. What takes long to import is imported when they run, not for their help.

`wgpr update` writes rows to a journal before it learns them, so that they are not lost if it is killed.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError


@opt.with_table_options
def fit(
    data: opt.DataFiles,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MAP", help="Where to save the map.")],
    x: opt.X = "",
    y: opt.Y = "",
    weight: opt.Weight = "",
    method: opt.Method = "wgpr",
    setting: opt.Settings = [],  # noqa: B006
    skip: opt.Skip = 0,
    shards: opt.Shards = 1,
    engine: opt.EngineName = "processes",
    address: opt.Address = "",
    folder: opt.FleetFolder = None,
    crs: opt.Crs = "",
    force: opt.ForceNew = False,
    *,
    tables: dict[str, Any],
) -> None:
    """Learn a new map from a survey.

    All rows are checked, and then learned in their order, in bounded memory. Places in degrees, or in another
    coordinate reference system, that are far from all others, and files that begin with the rows of another, are errors
    unless --force is given. Ctrl-C saves what is learned. A map that is replaced is kept as MAP~. With --shards,
    several processes learn parts of the ground.

    Example: `wgpr fit survey.csv --x east,north --y depth -o lake.map`
    """
    import numpy as np

    from wgpr.cli.georeference import check_crs_of_log, choose_crs
    from wgpr.cli.learn import (
        choose_columns,
        fleet_of,
        learn_table,
        require_weights,
        saying_that_nothing_is_learned,
    )
    from wgpr.cli.saving import map_writer
    from wgpr.cli.settings import make_estimator, open_table
    from wgpr.io.tables import expand

    model = make_estimator(method, setting)
    require_weights(model, weight)
    opt.check_fleet(engine, address, folder)
    opt.check_map_output(output, *expand(data))
    with map_writer(output) as writer, fleet_of(model, shards, engine, address, folder) as fleet:
        table = open_table(data, tables)
        if table.is_log:
            check_crs_of_log(crs)
        columns = choose_columns(table, opt.split_names(x), y, weight)
        inputs = columns[: -1 - bool(weight)]
        with saying_that_nothing_is_learned():
            first_rows = np.column_stack([*table.peek(inputs).values()])
        choose_crs(model, crs, table.crs, inputs, first_rows)
        checks: Any = {"has_weights": bool(weight), "skip": skip, "force": force, "may_be_degrees": not crs}
        learn_table(model, table, columns, writer, fleet=fleet, **checks)


@opt.with_table_options
def update(
    map_file: opt.MapFile,
    data: opt.DataFilesIfAny = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MAP", help="Save here and leave the old map as it is.")
    ] = None,
    x: opt.X = "",
    y: opt.Y = "",
    weight: opt.Weight = "",
    skip: opt.Skip = 0,
    force: opt.Force = False,
    crs: opt.CrsOfMap = "",
    *,
    tables: dict[str, Any],
) -> None:
    """Learn more rows, exactly as if the map had learned all rows at once.

    The old map is kept as MAP~. Values far outside of what the map knows, and files that it has learned before, are
    errors unless --force is given. If the command is killed, the rows that it has taken are in a journal beside the
    map. The next one learns them first, also without DATA.

    Examples: `wgpr update lake.map tuesday.csv`, `wgpr update lake.map --crs EPSG:32618`
    """
    from wgpr.cli.columns import columns_of_map
    from wgpr.cli.georeference import add_crs
    from wgpr.cli.learn import announce_columns, learn_table, require_online, require_weights
    from wgpr.cli.saving import map_writer, read_map
    from wgpr.cli.settings import open_table
    from wgpr.io.tables import expand

    (opt.check_output if output is None else opt.check_map_output)(output or map_file, *expand(data))
    is_in_place = output is None or os.path.realpath(output) == os.path.realpath(map_file)
    with map_writer(output or map_file, continues=is_in_place) as writer:
        if not data and not crs:
            if not is_in_place or not writer.has_journal:
                raise UsageError(f"there is nothing to learn: no run on {writer.path} was interrupted; name DATA")
            writer.load()
            return
        table = open_table(data, tables) if data else None
        model = writer.load() if is_in_place else read_map(map_file)
        if crs:
            add_crs(model, crs)
        if table is None:
            writer.save(model)
            return
        require_online(model)
        require_weights(model, weight)
        columns = columns_of_map(model, table, opt.split_names(x), y or None, weight)
        announce_columns(columns, columns, columns[-1], has_weights=bool(weight))  # the map names them
        if crs and is_in_place:
            writer.checkpoint(model)  # rows in the journal continue a map that has the system
        checks: Any = {"has_weights": bool(weight), "skip": skip, "force": force}
        learn_table(model, table, columns, writer, has_journal=is_in_place, **checks)
