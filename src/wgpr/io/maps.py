"""Saved maps: `load` what an estimator's method `save` wrote; send only what changed with `diff` and `apply`."""

import os
import zlib
from typing import Any

from sklearn.utils.validation import check_is_fitted

from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import METHODS
from wgpr.io import container, differences, saving
from wgpr.io.atomic import write_whole
from wgpr.io.container import MAX_BYTES, MapError

ESTIMATORS: dict[str, type[EnsembleRegressor]] = {kind.__name__: kind for kind in METHODS.values()}


def save(estimator: EnsembleRegressor, path: str | os.PathLike[str], *, compact: bool = False) -> None:
    """Write a fitted estimator to one file, which `load` reads. If writing fails, an old file at `path` stays."""
    write_whole(path, to_bytes(estimator, compact=compact))


def to_bytes(estimator: EnsembleRegressor, *, compact: bool = False) -> bytes:
    """The bytes that `save` writes."""
    check_is_fitted(estimator, "_state")
    return container.to_bytes(saving.contents_of(estimator, compact=compact))


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """The estimator that was saved at `path`, as if it had never stopped.

    Loading never runs code of the file. A file that is not a map, or not a whole one, raises `MapError`.

    Parameters
    ----------
    max_bytes : larger files are refused, so that a wrong file cannot fill the memory.
    """
    contents = container.read(path, max_bytes)
    try:
        return saving.restored(contents, ESTIMATORS)
    except MapError as error:
        raise MapError(f"{os.fspath(path)} is damaged: {error}; use a backup or fit again") from error


def diff(old: EnsembleRegressor, new: EnsembleRegressor) -> bytes:
    """What changed from `old` to `new`, a later state of the same stream: only the models that learned, in float32.

    Send it over a slow link and `apply` it to `old`, or to a copy of it that was saved compactly.
    """
    return zlib.compress(container.to_bytes(differences.difference(old, new)), level=9)


def apply(old: Any, difference: bytes) -> Any:
    """The estimator that `old` becomes by what `diff` found; `old` stays as it was.

    It predicts as the new one does, up to float32, and can go on learning. It has the settings of `old`, no waiting
    rows and no history.
    """
    contents = container.from_bytes(_decompressed(difference), "the difference")
    try:
        state = differences.with_difference(old, contents)
    except MapError as error:
        raise MapError(f"the difference cannot be applied: {error}") from error
    return old._with_state(state)


def _decompressed(difference: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(difference, MAX_BYTES)
    except zlib.error as error:
        raise MapError(f"the difference is damaged ({error}); send it again") from error
    if not decompressor.eof:
        raise MapError("the difference is truncated; send it again")
    return data
