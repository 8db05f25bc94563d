"""The container of a map file: arrays and a versioned JSON header in the safetensors format, with a check sum.

Reading runs no code of the file. The result is the header and the arrays that were written; any other bytes raise a
`MapError` that names the file, the fault and the remedy.
"""

import json
import os
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

FORMAT = "wgpr-map"
VERSION = 3

# Largest file that is read unless the caller allows more: a wrong file must not fill the memory.
MAX_BYTES = 1 << 30

# Longest head of a file. JSON takes up to 25 times as much memory as its text.
_LONGEST_HEAD = 1 << 24

Arrays = dict[str, NDArray[Any]]


class MapError(ValueError):
    """A file is not a complete map, or something cannot be saved in one."""


class Contents(NamedTuple):
    """What a map file holds. header : JSON values; arrays : by name; version : of the format."""

    header: dict[str, Any]
    arrays: Arrays
    version: int = VERSION


def require(condition: bool, what: str) -> None:
    """Raise `MapError` unless the part of a file called `what` is as it must be."""
    if not condition:
        raise MapError(f"its {what} makes no sense")


def encode(contents: Contents) -> bytes:
    """The bytes of the file. The same contents give the same bytes."""
    header = json.dumps(contents.header, allow_nan=False, separators=(",", ":"))
    arrays = {name: np.ascontiguousarray(array) for name, array in contents.arrays.items()}
    return save_tensors(arrays, {FORMAT: f"{contents.version} {_digest(contents.version, header, arrays)} {header}"})


def decode(data: bytes, name: str = "the map") -> Contents:
    """The contents of a file; errors call it `name`."""
    version, digest, header = _metadata(data, name)
    try:
        arrays = load_tensors(data)
    except (SafetensorError, KeyError, ValueError, OverflowError) as error:
        raise _damaged(name) from error
    if digest != _digest(version, header, arrays):
        raise _damaged(name)
    return Contents(_parse(header, name), arrays, version)


def read(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Contents:
    """The contents of the file at `path`; a file of more than `max_bytes` is refused."""
    try:
        file = open(path, "rb")  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"there is no {os.fspath(path)}; check the name and the folder") from error
    with file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise MapError(
                f"{os.fspath(path)} has {size:,} bytes and a map of at most {max_bytes:,} was expected; "
                "if it is right, allow it with max_bytes"
            )
        # A read allocates as many bytes as it is asked for. A pipe has no size.
        return decode(file.read(size or max_bytes), os.fspath(path))


def _metadata(data: bytes, name: str) -> tuple[int, str, str]:
    """Version of the format, check sum and header, after the length of the head was checked."""
    n_head = int.from_bytes(data[:8], "little")
    is_table = data[8:9] == b"{"
    if is_table and n_head > min(len(data) - 8, _LONGEST_HEAD):
        raise _damaged(name)
    metadata = _parse(data[8 : 8 + n_head], name).get("__metadata__") if is_table else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get(FORMAT), str):
        raise MapError(f"{name} is not a map that wgpr saved; make one with `wgpr fit` or with the method save")
    version, digest, header = (*metadata[FORMAT].split(" ", 2), "", "")[:3]
    if not (version.isdecimal() and 0 < len(version) < 9):
        raise _damaged(name)
    if int(version) > VERSION:
        raise MapError(f"{name} was written by a newer wgpr: it has format {version}, not {VERSION}; upgrade wgpr")
    return int(version), digest, header


def _parse(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(name) from error
    if not isinstance(parsed, dict):
        raise _damaged(name)
    return parsed


def _damaged(name: str) -> MapError:
    return MapError(f"{name} is truncated or damaged; use a backup or fit again")


def _digest(version: int, header: str, arrays: Arrays) -> str:
    digest = blake2b(f"{version}\n{header}\n".encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
