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

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.territories import Territories
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.state import State
from wgpr.gp.linalg import Indices
from wgpr.io import container, territories
from wgpr.io.arrays import Shape, pack_models, read_array, unpack_models
from wgpr.io.codec import (
    decode_estimator,
    decode_progress,
    encode_estimator,
    encode_progress,
    learned_tables,
    read_learned_tables,
)
from wgpr.io.container import MAX_BYTES, Arrays, Contents, MapError, require

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
    before, after = old._state, new._state
    if not _is_earlier(before, after):
        raise MapError("old is not an earlier state of new (different streams, or old was flushed); send the whole map")
    numbers = {mark: number for number, mark in enumerate(_fingerprints(before))}
    sources = np.array([numbers.get(mark, -1) for mark in _fingerprints(after)])
    header = {"base": _state_fingerprint(before), **encode_progress(after, compact=True).header}
    if tables := [table for table in learned_tables(new) if table not in learned_tables(old)]:
        header["learned_tables"] = tables
    arrays = {"sources": np.diff(sources, prepend=-1).astype(np.int32)}
    if changed := _packed(after, np.flatnonzero(sources < 0), _cuts(before)):
        compressor = zlib.compressobj(level=9, zdict=_dictionary(before, sources))
        data = compressor.compress(container.encode(Contents({}, changed))) + compressor.flush()
        arrays["changed"] = np.frombuffer(data, dtype=np.uint8)
    return zlib.compress(container.encode(Contents(header, arrays)), level=9)


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


def _unpacked(data: bytes, dictionary: bytes = b"") -> bytes:
    most = min(MAX_BYTES, max(_SMALL_BYTES, _LARGEST_RATIO * len(data)))
    decompressor = zlib.decompressobj(zdict=dictionary)
    try:
        unpacked = decompressor.decompress(data, most)
    except zlib.error as error:
        raise MapError("the difference is damaged; send it again") from error
    if not decompressor.eof:
        fault = f"has more than {most:,} bytes" if len(unpacked) == most else "is truncated"
        raise MapError(f"the difference {fault}; send it again")
    return unpacked


def _map_error(fault: str, error: Exception, remedy: str) -> MapError:
    reason = error if isinstance(error, MapError) else "its contents make no sense"
    return MapError(f"{fault}: {reason}; {remedy}")


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


# The difference of two states of one stream: the models that changed, in the compact form


def _updated_state(estimator: EnsembleRegressor, contents: Contents) -> State:
    """The state of `estimator` after a difference, without history and waiting rows."""
    header, arrays, state = contents.header, contents.arrays, estimator._state
    ensemble, n_features, outputs = state.ensemble, estimator.n_features_in_, state.pending_y.shape[1:]
    if header["base"] != _state_fingerprint(state):
        raise MapError("it was not made for this map")
    progress = decode_progress(contents, n_features, outputs, compact=True)
    sources = np.cumsum(read_array(arrays, "sources", "i", None)) - 1
    require(len(sources) > 0 and bool(((sources >= -1) & (sources < len(ensemble))).all()), "sources")
    if "changed" in arrays:
        data = _unpacked(arrays["changed"].tobytes(), _dictionary(state, sources))
        arrays = container.decode(data, "the difference").arrays
    ensemble = _joined(state, sources, arrays, n_features, outputs, progress["n_seen"])
    return replace(state, ensemble=ensemble, **progress)


def _joined(
    before: State, sources: Indices, arrays: Arrays, n_features: int, outputs: Shape, n_learned: int
) -> Ensemble | Territories:
    """The models with these numbers before, and in the place of each -1 the next one of the arrays."""
    ensemble, is_new, changed = before.ensemble, sources < 0, list[Any]()
    if isinstance(ensemble, Territories):
        centres, cuts = ensemble.overview.centres[sources], ensemble.cuts
        if is_new.any():
            changed, centres[is_new] = territories.unpack_models(
                arrays, ensemble.kernel, n_features, outputs, n_learned, compact=True
            )
        if "cut_nodes" in arrays or len(sources) != len(ensemble):
            cuts = territories.unpack_cuts(arrays, n_features, len(sources))
    elif is_new.any():
        changed = unpack_models(arrays, before.learner, n_features, outputs, compact=True)
    require(len(changed) == int(is_new.sum()), "list of models")
    others = iter(changed)
    models = [next(others) if source < 0 else ensemble.models[source] for source in sources.tolist()]
    if isinstance(ensemble, Territories):
        return Territories.of(models, cuts, centres=centres, n_learned=n_learned)
    return Ensemble.of(models, n_features)


def _packed(state: State, numbers: Indices, known_cuts: Arrays) -> Arrays:
    """Some models in the compact form, and the cuts between territories unless they are known."""
    ensemble, models = state.ensemble, [state.ensemble.models[number] for number in numbers.tolist()]
    if not isinstance(ensemble, Territories):
        return pack_models(models, compact=True) if models else {}
    packed = territories.pack_models(models, ensemble.overview.centres[numbers], compact=True) if models else {}
    cuts = _cuts(state)
    is_known = known_cuts and all(np.array_equal(cuts[name], known_cuts[name]) for name in cuts)
    return packed if is_known else packed | cuts


def _cuts(state: State) -> Arrays:
    return territories.pack_cuts(state.ensemble.cuts, compact=True) if isinstance(state.ensemble, Territories) else {}


def _dictionary(before: State, sources: Indices) -> bytes:
    """What the changed models are compressed with: the territories that they replace, which have many of their points.

    Sparse models have none, because their compact form is computed anew and may differ in the last bit.
    """
    if not isinstance(before.ensemble, Territories):
        return b""
    replaced = np.setdiff1d(np.arange(len(before.ensemble)), sources)
    return container.encode(Contents({}, _packed(before, replaced, {})))


def _is_earlier(before: State, after: State) -> bool:
    """Whether one stream led from one state to the other, as far as the states show."""
    if _stream(before) != _stream(after):
        return False
    earlier, later = ({record.number: replace(record, seconds=0.0) for record in s.records} for s in (before, after))
    agree = all(earlier[number] == later[number] for number in earlier.keys() & later.keys())
    n_steps, n_rows = after.n_steps - before.n_steps, after.ensemble.n_learned - before.ensemble.n_learned
    if n_steps < 0 or n_rows < 0 or not agree:
        return False
    # The batches since must account for all rows learned since.
    since = [record.n_samples for number, record in later.items() if number >= before.n_steps]
    return isinstance(before.ensemble, Territories) or len(since) < n_steps or sum(since) == n_rows


def _fingerprints(state: State) -> list[tuple[int, bytes]]:
    """Of each model, rows seen and what else tells it from others; the same in the full and the compact form."""
    if not isinstance(state.ensemble, Territories):
        numbers = [np.append(model.centre, model.log_evidence).astype(np.float32) for model in state.ensemble.models]
        return [(model.n_seen, mark.tobytes()) for model, mark in zip(state.ensemble.models, numbers, strict=True)]
    marks = []
    for territory, centre in zip(state.ensemble.models, state.ensemble.overview.centres, strict=True):
        arrays = territories.pack_models([territory], centre[np.newaxis], compact=True)
        data = b"".join(arrays[name].tobytes() for name in sorted(arrays))
        marks.append((territory.n_seen, blake2b(data, digest_size=8).digest()))
    return marks


def _stream(state: State) -> tuple[int, bytes]:
    """Values that stay the same throughout a stream and hardly agree by chance with those of another."""
    if state.units is None or not len(state.ensemble):
        raise MapError("there is no model yet; send the whole map once there is one")
    return state.seed, state.units.origin.tobytes() + state.units.spread.tobytes()


def _state_fingerprint(state: State) -> str:
    """Equal for two maps that have learned the same rows, in the full or the compact form."""
    text = f"{_stream(state)} {state.n_steps} {_fingerprints(state)}"
    return blake2b(text.encode(), digest_size=6).hexdigest()
