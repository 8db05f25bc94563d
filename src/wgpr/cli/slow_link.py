"""`wgpr compact`, `wgpr diff` and `wgpr apply`: maps for a slow link."""

from pathlib import Path
from typing import Annotated

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import format_count, format_size, inform
from wgpr.cli.saving import map_writer, read_map
from wgpr.io import maps
from wgpr.io.container import MapError
from wgpr.io.files import write_file

_DEFLATED = b"\x78\xda"  # the first bytes of a difference


def compact(
    map_file: opt.MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SMALL", help="Where to save the compact map.")],
) -> None:
    """Make a small copy of a map for a slow link: float32, only what prediction needs.

    With a method that learns batches, rows that wait for one to fill are not in it. They come with a difference
    (`wgpr diff`) when they are learned. The default method has no such rows.
    """
    opt.check_map_output(output, map_file)
    model = read_map(map_file)
    with map_writer(output) as writer:
        writer.save(model, compact=True)
    if model.n_pending_:
        inform(f"{format_count(model.n_pending_, 'row')} that wait for a batch are not in it")


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The map that the other side has, compact or not.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same map later.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIFF", help="Where to save the difference.")],
) -> None:
    """Save what changed in a map, for a slow link: only the local models that learned something."""
    opt.check_output(output, old, new)
    before, after = read_map(old), read_map(new)
    try:
        difference = maps.diff(before, after)
    except MapError as error:
        raise MapError(f"{old}, {new}: {error}") from error
    write_file(output, difference)
    inform(f"saved: {output} ({format_size(output.stat().st_size)})")


def apply(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The map that is there.")],
    difference: Annotated[Path, typer.Argument(metavar="DIFF", help="What `wgpr diff` saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="NEW", help="Where to save the new map.")],
) -> None:
    """Apply a difference to a map."""
    opt.check_map_output(output, difference)
    model, data = read_map(old), difference.read_bytes()
    if not data.startswith(_DEFLATED):
        raise MapError(f"{difference} is no difference; name a file of wgpr diff as DIFF")
    try:
        model = maps.apply(model, data)
    except MapError as error:
        raise MapError(f"{difference}: {error}") from error
    with map_writer(output) as writer:
        writer.save(model)
