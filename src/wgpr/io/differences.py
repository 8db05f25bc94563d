"""The difference of two states of one stream: the models that learned something, in the compact form."""

from dataclasses import replace
from hashlib import blake2b

import numpy as np

from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.state import State
from wgpr.io.arrays import pack_models, unpack_models
from wgpr.io.codec import decode_progress, encode_progress
from wgpr.io.container import Contents, MapError, require


def difference(before: State, after: State) -> Contents:
    """The models of `after` that learned something since `before`, an earlier state of the same stream."""
    if not _is_earlier(before, after):
        raise MapError("old is not an earlier state of new (different streams, or old was flushed); send the whole map")
    old, new = _fingerprints(before), _fingerprints(after)
    changed = [number for number, fingerprint in enumerate(new) if old[number : number + 1] != [fingerprint]]
    models = [after.ensemble.models[number] for number in changed]
    arrays = pack_models(models, compact=True) if models else {}
    progress = encode_progress(after, compact=True)
    header = {"base": _state_fingerprint(before), **progress.header}
    return Contents(header, {**arrays, "numbers": np.array(changed, dtype=np.int32)})


def updated_state(estimator: EnsembleRegressor, contents: Contents) -> State:
    """The state of `estimator` after a difference, without history and waiting rows."""
    header, arrays, state = contents.header, contents.arrays, estimator._state
    ensemble, n_features, outputs = state.ensemble, estimator.n_features_in_, state.pending_y.shape[1:]
    if header["base"] != _state_fingerprint(state):
        raise MapError("it was not made for this map")
    numbers = arrays["numbers"].tolist()
    models = unpack_models(arrays, state.learner, n_features, outputs, compact=True) if numbers else []
    for number, model in zip(numbers, models, strict=True):
        require(0 <= number <= len(ensemble), "numbers")
        ensemble = ensemble.with_model(model, number if number < len(ensemble) else None)
    return replace(state, ensemble=ensemble, **decode_progress(contents, n_features, outputs, compact=True))


def _is_earlier(before: State, after: State) -> bool:
    """Whether one stream led from one state to the other, as far as the states show."""
    if _stream(before) != _stream(after) or len(before.ensemble) > len(after.ensemble):
        return False
    pairs = zip(_fingerprints(before), _fingerprints(after), strict=False)
    only_grew = all(old == new or old[0] < new[0] for old, new in pairs)
    # Steps in both histories must agree, and the steps since must account for all rows learned since.
    earlier, later = ({record.number: replace(record, seconds=0.0) for record in s.records} for s in (before, after))
    agree = all(earlier[number] == later[number] for number in earlier.keys() & later.keys())
    n_steps, n_rows = after.n_steps - before.n_steps, after.ensemble.n_learned - before.ensemble.n_learned
    since = [record.n_samples for number, record in later.items() if number >= before.n_steps]
    return n_steps >= 0 and only_grew and agree and (len(since) < n_steps or sum(since) == n_rows)


def _fingerprints(state: State) -> list[tuple[int, bytes]]:
    """Of each model, rows seen and what else tells it from others; the same in the full and the compact form."""
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
