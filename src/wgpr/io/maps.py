"""Saved maps: `save` and `load` an estimator; send only what changed with `diff` and `apply`."""

import os
import re
import zlib
from importlib.metadata import version
from typing import Any

from sklearn.utils.validation import check_is_fitted

from wgpr.estimators.base import EnsembleRegressor
from wgpr.io import container
from wgpr.io.codec import decode_estimator, encode_estimator
from wgpr.io.container import MAX_BYTES, MapError
from wgpr.io.differences import difference, updated_state
from wgpr.io.files import write_file

# Values of the wrong kind lead to these errors, `MapError` among them.
_WRONG_CONTENTS = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, MemoryError)


def save(estimator: EnsembleRegressor, path: str | os.PathLike[str], *, compact: bool = False) -> None:
    """Write a fitted estimator to one file, which `load` reads. If writing fails, an old file at `path` stays.

    compact : only what prediction needs, in float32, without history and waiting rows. By default the file holds
        everything to the last bit, and learning continues from it as if it had never stopped.
    """
    write_file(path, to_bytes(estimator, compact=compact))


def to_bytes(estimator: EnsembleRegressor, *, compact: bool = False) -> bytes:
    """The bytes that `save` writes."""
    check_is_fitted(estimator, "_state")
    return container.encode(encode_estimator(estimator, compact=compact))


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """The estimator that was saved at `path`, as if it had never stopped.

    Loading runs no code of the file. A file that is not a complete map raises `MapError`.

    Parameters
    ----------
    max_bytes : larger files are refused, so that a wrong file cannot fill the memory.
    """
    contents = container.read(path, max_bytes)
    try:
        return decode_estimator(contents)
    except _WRONG_CONTENTS as error:
        writer, reader = " ".join(str(contents.header.get("wgpr"))[:20].split()), version("wgpr")
        if _release(writer) > _release(reader):
            raise _map_error(f"{path} was written by wgpr {writer}, this is {reader}", error, "upgrade wgpr") from error
        raise _map_error(f"{path} is damaged", error, "use a backup or fit again") from error


def diff(old: EnsembleRegressor, new: EnsembleRegressor) -> bytes:
    """What changed from `old` to `new`, a later state of the same stream: the models that learned, in float32.

    Send it over a slow link and `apply` it to `old`, or to a copy of `old` that was saved with `compact=True`.
    """
    return zlib.compress(container.encode(difference(old._state, new._state)), level=9)


def apply(old: Any, difference: bytes) -> Any:
    """The estimator that `old` becomes by a difference of `diff`; `old` stays as it was.

    It predicts as the new one does, up to float32, and can learn more. It has the settings of `old`, no waiting rows
    and no history.
    """
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(difference, MAX_BYTES)
    except zlib.error as error:
        raise MapError(f"the difference is damaged ({error}); send it again") from error
    if not decompressor.eof:
        raise MapError("the difference is truncated; send it again")
    contents = container.decode(data, "the difference")
    try:
        return old._with_state(updated_state(old, contents))
    except _WRONG_CONTENTS as error:
        remedy = "send what changed since this map, or the whole map"
        raise _map_error("the difference cannot be applied", error, remedy) from error


def _map_error(fault: str, error: Exception, remedy: str) -> MapError:
    is_plain = isinstance(error, MapError)
    reason = error if is_plain else f"its contents make no sense ({type(error).__name__}: {str(error)[:200]})"
    return MapError(f"{fault}: {reason}; {remedy}")


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
