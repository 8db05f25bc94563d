"""`wgpr merge`: one map of several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, format_count, inform, warn
from wgpr.cli.saving import map_writer, read_map
from wgpr.fleet.merge import apparent_offsets, merge_named
from wgpr.fleet.offsets import Offset
from wgpr.io.grids import target_name
from wgpr.io.rows import knows_rows_at_once
from wgpr.labels import Label

# An offset between maps is told if it is so many times its standard deviation.
_N_DEVIATIONS = 5.0


def merge(
    map_files: Annotated[list[Path], typer.Argument(metavar="MAP", help="Saved maps, at least two, in any order.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="NEW", help="Where to save the map of all.")],
    align: Annotated[
        bool,
        typer.Option(
            "--align", help="Where maps overlap, estimate a constant offset of each against the first, and undo it."
        ),
    ] = False,
) -> None:
    """Make one map of several, such as those of the robots of a fleet.

    Where maps overlap, their knowledge is united. Rows that several have count once, as long as no map has thinned
    them. Where maps contradict each other, the new one is uncertain. It has the settings of the first. All maps must be
    of the default method and have the same inputs, target and kernel.

    Example: `wgpr merge monday.map tuesday.map -o both.map --align`
    """
    if len(map_files) < 2:
        raise UsageError("MAP must be given at least twice; name the maps that become one")
    opt.check_map_output(output, *map_files)
    with map_writer(output) as writer:
        maps = [read_map(path) for path in map_files]
        for path, each in zip(map_files, maps, strict=True):
            if not knows_rows_at_once(each):
                raise ValueError(f"{path} is a map of another method; only maps of the default method can be merged")
        model = merge_named(maps, list(map(str, map_files)), align=align)
        if align:
            unit = Label.parsed(target_name(model)).unit or ""
            for path, each in list(zip(map_files, model.offsets_, strict=True))[1:]:
                numbers = zip(np.ravel(each.offset), np.ravel(each.std), strict=True)
                offsets = ", ".join(f"{offset:+.4g} +- {std:.2g} {unit}".rstrip() for offset, std in numbers)
                inform(f"{path} reads {offsets} more than {map_files[0]}")
        rows, models = format_count(model.n_samples_seen_, "row"), format_count(model.n_models_, "model")
        inform(f"merged {format_count(len(maps), 'map')}: {rows}, {models}")
        writer.save(model)
        if not align:
            _warn_of_offsets(map_files, apparent_offsets(maps))


def _warn_of_offsets(map_files: list[Path], offsets: Sequence[Offset]) -> None:
    for path, each in zip(map_files, offsets, strict=False):
        if (np.abs(each.offset) > _N_DEVIATIONS * np.asarray(each.std)).any():
            fault = f"where the maps overlap, {path} and {map_files[0]} differ by a constant offset"
            warn(f"{fault}; --align tells it and undoes it")
