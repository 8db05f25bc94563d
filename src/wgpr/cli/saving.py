"""Saving maps, one process at a time. The old file is kept, and changes of other programs are not overwritten."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import exit_unless, format_count, format_size, inform, print_error, uninterrupted
from wgpr.estimators.base import EnsembleRegressor
from wgpr.io import maps
from wgpr.io.container import MapError
from wgpr.io.files import check_destination, locked, replace_file, write_file


@contextmanager
def map_writer(path: Path) -> Iterator["MapWriter"]:
    """Lock a map file until the end of the block. Enter it before the map is read. Raises an error if it is locked.

    The operating system releases the lock when the process ends, in whatever way. The exit code is 1 if the map had to
    be saved elsewhere.
    """
    target = check_destination(path)
    writer, lock = MapWriter(path, target), target.with_name(f".{target.name}.lock")
    with locked(lock, f"another wgpr is writing {path.name}; wait until it ends, or use another -o"):
        yield writer
    exit_unless(not writer.is_elsewhere)


class MapWriter:
    """Saves a map, any number of times. The first time the old file is kept as NAME~.

    If the file cannot be written, or another program has changed it since it was read, this map and later ones are
    saved in a temporary folder.

    path : where the map is saved; is_elsewhere : whether that is a temporary folder.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.is_elsewhere = path, False
        self._target, self._version = target, _version(target)
        self._backup: Path | None = None

    def save(self, model: EnsembleRegressor, *, compact: bool = False, silent: bool = False) -> None:
        """Save the map and, unless `silent`, say so. It is not interrupted."""
        with uninterrupted():
            try:
                self._write(model, compact)
            except OSError as error:
                if self.is_elsewhere:
                    raise
                self.path = self._target = Path(tempfile.mkdtemp(prefix="wgpr-")) / self._target.name
                self.is_elsewhere, self._version, self._backup = True, None, None
                self._write(model, compact)
                print_error(f"{error}; the map is in {self.path} instead, move it")
            if not silent:
                backup = f"; the old file is {self._backup.name}" if self._backup else ""
                inform(f"saved: {self.path} ({format_size(self._target.stat().st_size)}){backup}")

    def _write(self, model: EnsembleRegressor, compact: bool) -> None:
        if _version(self._target) != self._version:
            raise FileExistsError(f"{self.path} was changed by another program meanwhile and is not overwritten")
        if self._version and not self._backup and not self.is_elsewhere:
            self._backup = self._target.with_name(f"{self._target.name}~")
            with replace_file(self._backup) as temporary:
                shutil.copy2(self._target, temporary)
        model.save(self._target, compact=compact)
        self._version = _version(self._target)


def _version(path: Path) -> tuple[int, ...] | None:
    """Changes if a file is replaced or written to; None if there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_mtime_ns, status.st_ino, status.st_size


# Commands for a slow link


def compact(
    map_file: opt.MapFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="SMALL", help="Where to save the compact map.")],
    flush: Annotated[
        bool, typer.Option("--flush", help="First learn rows that wait for a batch. No difference fits such a map.")
    ] = False,
) -> None:
    """Make a small copy of a map for a slow link: float32, only what prediction needs.

    With a method that learns batches, rows that wait for one to fill are not in it. They come with a difference
    (`wgpr diff`) when they are learned. The default method has no such rows.
    """
    opt.check_output(output, map_file)
    model = maps.load(map_file)
    if flush:
        model.flush()
    with map_writer(output) as writer:
        writer.save(model, compact=True)
    if model.n_pending_:
        inform(f"{format_count(model.n_pending_, 'row')} that wait for a batch are not in it; --flush learns them")


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The map that the other side has, compact or not.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same map later.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIFF", help="Where to save the difference.")],
) -> None:
    """Save what changed in a map, for a slow link: only the local models that learned something."""
    opt.check_output(output, old, new)
    write_file(output, maps.diff(maps.load(old), maps.load(new)))
    inform(f"saved: {output} ({format_size(output.stat().st_size)})")


def apply(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The map that is there.")],
    difference: Annotated[Path, typer.Argument(metavar="DIFF", help="What `wgpr diff` saved.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="NEW", help="Where to save the new map.")],
    compact: Annotated[bool, typer.Option("--compact", help="Save a compact map.")] = False,
) -> None:
    """Apply a difference to a map."""
    opt.check_output(output, difference)
    try:
        model = maps.apply(maps.load(old), difference.read_bytes())
    except MapError as error:
        raise MapError(f"{difference}: {error}") from error
    with map_writer(output) as writer:
        writer.save(model, compact=compact)
