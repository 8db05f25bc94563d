"""One file for a saved map: arrays and a JSON header in the safetensors format, checked when it is read.

Reading never runs code. Whatever the bytes are, the answer is the header and the arrays that were written, or a
`MapError` that says what is wrong with them.
"""

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save as safetensors_bytes

FORMAT = "wgpr-map"
VERSION = 2

# Larger files are not read unless the caller says so: a wrong file must not fill the memory.
MAX_BYTES = 1 << 30

Arrays = dict[str, NDArray[Any]]

_DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}


class MapError(ValueError):
    """A file is not a saved map, or not a whole one; or something cannot be part of a map."""


class Contents(NamedTuple):
    """What a map file holds. header : what JSON can hold; arrays : by name; version : of the format."""

    header: dict[str, Any]
    arrays: Arrays
    version: int = VERSION


def to_bytes(contents: Contents) -> bytes:
    """The file. The same contents make the same bytes."""
    header = json.dumps(contents.header, allow_nan=False, separators=(",", ":"))
    head = f"{contents.version} {_digest(contents.version, header, contents.arrays)} {header}"
    contiguous = {name: np.ascontiguousarray(array) for name, array in contents.arrays.items()}
    return safetensors_bytes(contiguous, {FORMAT: head})


def from_bytes(data: bytes, name: str = "the map") -> Contents:
    """What is in the file; `name` is what an error calls it."""
    version, digest, header = _head(data, name)
    try:
        arrays = {key: _array(tensor) for key, tensor in deserialize(data)}  # type: ignore[no-untyped-call]
    except (SafetensorError, KeyError, ValueError, OverflowError) as error:
        raise MapError(f"{name} is truncated or damaged ({error}); use a backup or fit again") from error
    if digest != _digest(version, header, arrays):
        raise MapError(f"{name} was altered after it was written: its check sum is wrong; use a backup or fit again")
    return Contents(_parsed(header, name), arrays, version)


def read(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> Contents:
    """What is in the file at `path`, which may have `max_bytes` at the most."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise MapError(
                f"{os.fspath(path)} has {size:,} bytes and a map of at most {max_bytes:,} was expected; "
                "if it is right, allow it with max_bytes"
            )
        return from_bytes(file.read(max_bytes), os.fspath(path))


def _head(data: bytes, name: str) -> tuple[int, str, str]:
    """Version of the format, check sum and header."""
    foreign = MapError(f"{name} is not a map that wgpr saved; make one with `wgpr fit` or with the method save")
    n_head = int.from_bytes(data[:8], "little")
    if data[8:9] != b"{":
        raise foreign
    if n_head > len(data) - 8:
        raise MapError(f"{name} is truncated; use a backup or fit again")
    metadata = _parsed(data[8 : 8 + n_head], name).get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get(FORMAT), str):
        raise foreign
    version, digest, header = (*metadata[FORMAT].split(" ", 2), "", "")[:3]
    return _known_version(version, name), digest, header


def _known_version(version: str, name: str) -> int:
    if version not in {str(known) for known in range(1, VERSION + 1)}:
        raise MapError(f"{name} has format {version[:20]!r} and this wgpr reads up to {VERSION}; update wgpr")
    return int(version)


def _parsed(text: str | bytes, name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MapError(f"{name} is damaged: its header cannot be read; use a backup or fit again") from error
    if not isinstance(parsed, dict):
        raise MapError(f"{name} is damaged: its header is no table; use a backup or fit again")
    return parsed


def _array(tensor: Mapping[str, Any]) -> NDArray[Any]:
    return np.frombuffer(tensor["data"], dtype=_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])


def _digest(version: int, header: str, arrays: Arrays) -> str:
    digest = blake2b(f"{version}\n{header}\n".encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
