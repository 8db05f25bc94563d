"""What changed from one state of a stream to a later one: only the models that learned something."""

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from wgpr.estimators.state import State
from wgpr.io.checking import bounds_of, count, damage_as_map_error, require, stretch_of
from wgpr.io.container import Contents, MapError
from wgpr.io.models import pack_models, unpack_models
from wgpr.io.saving import Regressor
from wgpr.io.values import to_json
from wgpr.rules.calibration import Calibration


def difference(old: Regressor, new: Regressor) -> Contents:
    """The models of `new` that learned something since `old`, compactly; `new` is a later state of the same stream."""
    before, after = old._state, new._state
    if not _is_earlier(before, after):
        raise MapError(
            "old is no earlier state of new: they come from different streams, or old was flushed; send the whole map"
        )
    known = _model_marks(before)
    changed = [number for number, mark in enumerate(_model_marks(after)) if known[number : number + 1] != [mark]]
    header = {
        "base": _fingerprint(before),
        "n_steps": after.n_steps,
        "n_seen": after.n_learned,
        "bounds": to_json(after.bounds, "bounds"),
        "stretch": after.calibration.factor,
    }
    models = [after.ensemble.models[number] for number in changed]
    arrays = pack_models(models, compact=True) if models else {}
    return Contents(header, {**arrays, "numbers": np.array(changed, dtype=np.int32)})


def with_difference(old: Regressor, contents: Contents) -> State:
    """The state of `old` after what changed. It remembers no steps, and no rows wait: the other side has those."""
    header, arrays = contents.header, contents.arrays
    state, n_features = old._state, old.n_features_in_
    with damage_as_map_error():
        if header["base"] != _fingerprint(state):
            raise MapError("it was not made for this map; send what changed since this one, or the whole map")
        numbers = arrays["numbers"].tolist()
        models = _unpacked(contents, state, n_features) if numbers else []
        ensemble = state.ensemble
        for number, model in zip(numbers, models, strict=True):
            require(0 <= number <= len(ensemble), "numbers")
            ensemble = ensemble.with_model(model, number if number < len(ensemble) else None)
        return replace(
            state,
            ensemble=ensemble,
            pending_X=np.empty((0, n_features)),
            pending_y=np.empty((0, *state.outputs)),
            records=(),
            bounds=bounds_of(header, n_features),
            n_steps=count(header, "n_steps"),
            n_seen=count(header, "n_seen"),
            calibration=Calibration(before=stretch_of(header)),
        )


def _unpacked(contents: Contents, state: State, n_features: int) -> list[Any]:
    return unpack_models(contents.arrays, state.learner, n_features, compact=True, outputs=state.outputs)


def _is_earlier(before: State, after: State) -> bool:
    """Whether one stream led from one state to the other, as far as that can be told."""
    is_shorter = len(before.ensemble) <= len(after.ensemble) and before.n_steps <= after.n_steps
    tests = (_models_only_grew, _rows_add_up, _histories_agree)
    return _stream(before) == _stream(after) and is_shorter and all(test(before, after) for test in tests)


def _models_only_grew(before: State, after: State) -> bool:
    """A model that is another one has learned rows."""
    pairs = zip(_model_marks(before), _model_marks(after), strict=False)
    return all(old == new or old[0] < new[0] for old, new in pairs)


def _rows_add_up(before: State, after: State) -> bool:
    """All rows that were learned since, and no others, are in the models; if the history goes back so far."""
    records = [record for record in after.records if record.number >= before.n_steps]
    is_complete = len(records) == after.n_steps - before.n_steps
    return not is_complete or sum(record.n_samples for record in records) == after.n_learned - before.n_learned


def _histories_agree(before: State, after: State) -> bool:
    """Steps that both remember are the same steps."""
    known = {record.number: record for record in before.records}
    return all(
        replace(known[record.number], seconds=0.0) == replace(record, seconds=0.0)
        for record in after.records
        if record.number in known
    )


def _model_marks(state: State) -> list[tuple[int, bytes]]:
    """What tells a model from an earlier state of it, or from another, however precisely it is stored."""
    numbers = [np.append(model.centre, model.log_evidence).astype(np.float32) for model in state.ensemble.models]
    return [(model.n_seen, mark.tobytes()) for model, mark in zip(state.ensemble.models, numbers, strict=True)]


def _stream(state: State) -> tuple[int, bytes]:
    """What two states of one stream have in common, and hardly any others."""
    if state.units is None or not len(state.ensemble):
        raise MapError("there is no model yet; send the whole map once there is one")
    return state.seed, state.units.origin.tobytes() + state.units.spread.tobytes()


def _fingerprint(state: State) -> str:
    """Tells whether two maps have learned the same rows, however precisely they are stored."""
    text = f"{_stream(state)} {state.n_steps} {_model_marks(state)}"
    return blake2b(text.encode(), digest_size=6).hexdigest()
