"""Saved maps: `to_bytes` and `load` an estimator; send only what changed with `diff` and `apply`."""

import os
import re
import zlib
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from wgpr.ensemble.territories import Territories
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.state import State
from wgpr.io import container
from wgpr.io.arrays import pack_models, unpack_models
from wgpr.io.codec import (
    decode_estimator,
    decode_progress,
    encode_estimator,
    encode_progress,
    learned_tables,
    read_learned_tables,
)
from wgpr.io.container import MAX_BYTES, Contents, MapError, require
from wgpr.io.territories import apply_difference, fingerprints, pack_difference

# A difference is unpacked to so many times its size at most, or to so many bytes if these are more.
_LARGEST_RATIO, _SMALL_BYTES = 100, 1 << 26

# Values of the wrong kind lead to these errors, `MapError` among them.
_WRONG_CONTENTS = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, MemoryError)


def to_bytes(estimator: EnsembleRegressor, *, compact: bool = False) -> bytes:
    """The contents of the file of a map, which `load` reads. compact : as of `EnsembleRegressor.save`."""
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
    difference = _difference(old._state, new._state)
    if tables := [table for table in learned_tables(new) if table not in learned_tables(old)]:
        difference.header["learned_tables"] = tables
    return zlib.compress(container.encode(difference), level=9)


def apply(old: Any, difference: bytes) -> Any:
    """The estimator that `old` becomes by a difference of `diff`; `old` stays as it was.

    It predicts as the new one does, up to float32, and can learn more. It has the settings of `old`, no waiting rows
    and no history.
    """
    contents = container.decode(_unpacked(difference), "the difference")
    try:
        new = old._with_state(_updated_state(old, contents))
        new._learned_tables = (*learned_tables(old), *read_learned_tables(contents.header))
    except _WRONG_CONTENTS as error:
        remedy = "send what changed since this map, or the whole map"
        raise _map_error("the difference cannot be applied", error, remedy) from error
    return new


def _unpacked(difference: bytes) -> bytes:
    most = min(MAX_BYTES, max(_SMALL_BYTES, _LARGEST_RATIO * len(difference)))
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(difference, most)
    except zlib.error as error:
        raise MapError("the difference is damaged; send it again") from error
    if not decompressor.eof:
        fault = f"has more than {most:,} bytes" if len(data) == most else "is truncated"
        raise MapError(f"the difference {fault}; send it again")
    return data


def _map_error(fault: str, error: Exception, remedy: str) -> MapError:
    reason = error if isinstance(error, MapError) else "its contents make no sense"
    return MapError(f"{fault}: {reason}; {remedy}")


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


# The difference of two states of one stream: the models that learned something, in the compact form


def _difference(before: State, after: State) -> Contents:
    """The models of `after` that learned something since `before`, an earlier state of the same stream."""
    if not _is_earlier(before, after):
        raise MapError(
            "old is not an earlier state of new: it has learned other rows, or in other batches; send the whole map"
        )
    header = {"base": _state_fingerprint(before), **encode_progress(after, compact=True).header}
    if isinstance(before.ensemble, Territories) and isinstance(after.ensemble, Territories):
        header["n_models"] = len(after.ensemble)
        return Contents(header, pack_difference(before.ensemble, after.ensemble))
    old, new = _fingerprints(before), _fingerprints(after)
    changed = [number for number, fingerprint in enumerate(new) if old[number : number + 1] != [fingerprint]]
    models = [after.ensemble.models[number] for number in changed]
    arrays = pack_models(models, compact=True) if models else {}
    return Contents(header, {**arrays, "numbers": np.array(changed, dtype=np.int32)})


def _updated_state(estimator: EnsembleRegressor, contents: Contents) -> State:
    """The state of `estimator` after a difference, without history and waiting rows."""
    header, arrays, state = contents.header, contents.arrays, estimator._state
    ensemble, n_features, outputs = state.ensemble, estimator.n_features_in_, state.pending_y.shape[1:]
    if header["base"] != _state_fingerprint(state):
        raise MapError("it was not made for this map")
    progress = decode_progress(contents, n_features, outputs, compact=True)
    if isinstance(ensemble, Territories):
        n_models = header["n_models"]
        require(type(n_models) is int and 0 < n_models <= len(ensemble) + len(arrays["numbers"]), "n_models")
        ensemble = apply_difference(ensemble, arrays, n_features, outputs, n_models, progress["n_seen"])
        return replace(state, ensemble=ensemble, **progress)
    numbers = arrays["numbers"].tolist()
    models = unpack_models(arrays, state.learner, n_features, outputs, compact=True) if numbers else []
    for number, model in zip(numbers, models, strict=True):
        require(0 <= number <= len(ensemble), "numbers")
        ensemble = ensemble.with_model(model, number if number < len(ensemble) else None)
    return replace(state, ensemble=ensemble, **progress)


def _is_earlier(before: State, after: State) -> bool:
    """Whether one stream led from one state to the other, as far as the states show."""
    if _stream(before) != _stream(after):
        return False
    earlier, later = ({record.number: replace(record, seconds=0.0) for record in s.records} for s in (before, after))
    agree = all(earlier[number] == later[number] for number in earlier.keys() & later.keys())
    n_steps, n_rows = after.n_steps - before.n_steps, after.ensemble.n_learned - before.ensemble.n_learned
    if n_steps < 0 or n_rows < 0 or not agree:
        return False
    if isinstance(before.ensemble, Territories):
        return True
    pairs = zip(_fingerprints(before), _fingerprints(after), strict=False)
    only_grew = all(old == new or old[0] < new[0] for old, new in pairs)
    # The steps since must account for all rows learned since.
    since = [record.n_samples for number, record in later.items() if number >= before.n_steps]
    has_all = len(before.ensemble) <= len(after.ensemble)
    return has_all and only_grew and (len(since) < n_steps or sum(since) == n_rows)


def _fingerprints(state: State) -> list[tuple[int, Any]]:
    """Of each model, rows seen and what else tells it from others; the same in the full and the compact form."""
    if isinstance(state.ensemble, Territories):
        return list(fingerprints(state.ensemble))
    numbers = [np.append(model.centre, model.log_evidence).astype(np.float32) for model in state.ensemble.models]
    return [(model.n_seen, mark.tobytes()) for model, mark in zip(state.ensemble.models, numbers, strict=True)]


def _stream(state: State) -> tuple[int, bytes]:
    """Values that stay the same throughout a stream and hardly agree by chance with those of another."""
    if state.units is None or not len(state.ensemble):
        raise MapError("there is no model yet; send the whole map once there is one")
    return state.seed, state.units.origin.tobytes() + state.units.spread.tobytes()


def _state_fingerprint(state: State) -> str:
    """Equal for two maps that have learned the same rows, in the full or the compact form."""
    text = f"{_stream(state)} {state.n_steps} {_fingerprints(state)}"
    return blake2b(text.encode(), digest_size=6).hexdigest()
