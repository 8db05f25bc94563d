"""Files that are there whole or not at all, also after a crash."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Another name to write a new file to; when that is done it takes the place of `path`, at once.

    Whoever reads `path`, at whatever moment, finds the old file or the new one. If writing fails the old one stays.
    """
    target = require_place(path)
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        yield temporary
        _sync(temporary, os.O_RDONLY)
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):  # makes the new name last; systems without it do not need it
        _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def require_place(path: str | os.PathLike[str]) -> Path:
    """The path without links, where a file may be written. Ask before long work, not after it."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}; make it, or save {target.name} elsewhere")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"{target} is no ordinary file, and would be replaced by one; name another")
    return target


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
