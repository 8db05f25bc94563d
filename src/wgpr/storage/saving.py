"""All of a regressor as the contents of a map file, and back; and what changed from one map to the next."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from wgpr.ensemble import Ensemble
from wgpr.exact import ExactLearner
from wgpr.kernels import Hyperparameters, Kernel
from wgpr.linalg import Array
from wgpr.sparse import SparseLearner
from wgpr.state import State
from wgpr.storage.container import Arrays, Contents, MapError
from wgpr.storage.history import pack_history, unpack_history
from wgpr.storage.models import pack_models, unpack_models
from wgpr.storage.values import from_json, to_json
from wgpr.units import Units

_COUNTS = ("seed", "n_steps", "n_seen")


class Regressor(Protocol):
    """What is saved of an estimator."""

    _state: State
    n_features_in_: int
    target_name_: str | None

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _check_settings(self) -> None: ...


def contents_of(regressor: Regressor, *, compact: bool) -> Contents:
    """What goes into the map file of a fitted regressor; `compact` for what prediction needs, in float32."""
    _require_own_class(regressor)
    state = regressor._state
    if compact and not len(state.ensemble):
        raise MapError("there is no model yet to save compactly; learn the waiting rows with flush() first")
    header = {
        "wgpr": version("wgpr"),
        "estimator": type(regressor).__name__,
        "settings": {name: to_json(value, name) for name, value in regressor.get_params(deep=False).items()},
        "n_features": int(regressor.n_features_in_),
        "feature_names": _feature_names(regressor),
        "target_name": regressor.target_name_,
        "compact": compact,
        **{name: int(getattr(state, name)) for name in _COUNTS},
        "bounds": to_json(state.bounds, "bounds"),
        "units": to_json(state.units, "units"),
        "learner": to_json(state.learner, "kernel"),
    }
    return Contents(header, _arrays_of(state, compact))


def _arrays_of(state: State, compact: bool) -> Arrays:
    models = pack_models(state.ensemble.models, compact=compact) if len(state.ensemble) else {}
    if compact:
        return models
    return {**models, **pack_history(state.records), "waiting_X": state.waiting_X, "waiting_y": state.waiting_y}


def restored(contents: Contents, classes: Mapping[str, type[Any]]) -> Any:
    """The regressor that was saved; `classes` are those that it may be of, by name."""
    header = contents.header
    with _damage_as_map_error():
        regressor = classes[header["estimator"]](
            **{name: from_json(value) for name, value in header["settings"].items()}
        )
        regressor._check_settings()
        regressor.n_features_in_ = _count(header, "n_features", least=1)
        regressor.target_name_ = header["target_name"]
        _require(isinstance(header["target_name"], str | None), "target_name")
        _set_feature_names(regressor, header["feature_names"])
        regressor._state = _state(contents, regressor.n_features_in_)
    return regressor


def difference(old: Regressor, new: Regressor) -> Contents:
    """The models of `new` that learned something since `old`, compactly; `new` is a later state of the same stream."""
    before, after = old._state, new._state
    if not _is_earlier(before, after):
        raise MapError(
            "old is no earlier state of new: they come from different streams, or old was flushed; send the whole map"
        )
    known = dict(enumerate(before.ensemble.n_seen.tolist()))
    changed = [number for number, n_seen in enumerate(after.ensemble.n_seen.tolist()) if known.get(number) != n_seen]
    header = {
        "base": _fingerprint(before),
        **{name: int(getattr(after, name)) for name in ("n_steps", "n_seen")},
        "bounds": to_json(after.bounds, "bounds"),
    }
    models = [after.ensemble.models[number] for number in changed]
    arrays = pack_models(models, compact=True) if models else {}
    return Contents(header, {**arrays, "numbers": np.array(changed, dtype=np.int32)})


def with_difference(old: Regressor, contents: Contents) -> State:
    """The state that `old` has after what changed; its history and the rows that waited are those of `old` no more."""
    header, arrays = contents.header, contents.arrays
    state, n_features = old._state, old.n_features_in_
    with _damage_as_map_error():
        if header["base"] != _fingerprint(state):
            raise MapError("it was not made for this map; send what changed since this one, or the whole map")
        numbers = arrays["numbers"].tolist()
        models = unpack_models(arrays, state.learner, n_features, compact=True) if numbers else []
        ensemble = state.ensemble
        for number, model in zip(numbers, models, strict=True):
            _require(0 <= number <= len(ensemble), "numbers")
            ensemble = ensemble.with_model(model, number if number < len(ensemble) else None)
        return replace(
            state,
            ensemble=ensemble,
            waiting_X=np.empty((0, n_features)),
            waiting_y=np.empty(0),
            bounds=_bounds(header, n_features),
            n_steps=_count(header, "n_steps"),
            n_seen=_count(header, "n_seen"),
        )


def _is_earlier(before: State, after: State) -> bool:
    """Whether one stream led from one state to the other."""
    n_common = min(len(before.ensemble), len(after.ensemble))
    has_forgotten = (after.ensemble.n_seen[:n_common] < before.ensemble.n_seen[:n_common]).any()
    if _stream(before) != _stream(after) or n_common < len(before.ensemble) or has_forgotten:
        return False
    records = [record for record in after.records if record.number >= before.n_steps]
    if len(records) < after.n_steps - before.n_steps:
        return after.n_steps >= before.n_steps  # the history is too short to tell more
    n_learned = after.ensemble.n_seen.sum() - before.ensemble.n_seen.sum()
    return bool(n_learned == sum(record.n_samples for record in records))


def _stream(state: State) -> tuple[int, bytes]:
    """What two states of one stream have in common, and hardly any others."""
    if state.units is None or not len(state.ensemble):
        raise MapError("there is no model yet; send the whole map once there is one")
    return state.seed, state.units.origin.tobytes() + state.units.spread.tobytes()


def _fingerprint(state: State) -> str:
    """Tells whether two maps have learned the same rows, however precisely they are stored."""
    text = f"{_stream(state)} {state.n_steps} {state.ensemble.n_seen.tolist()}"
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _require_own_class(regressor: Regressor) -> None:
    if type(regressor).__module__ != "wgpr.estimators":
        name = type(regressor).__name__
        raise MapError(f"{name} is no estimator of wgpr's own, so that nobody could load the map; pickle it instead")


def _feature_names(regressor: Any) -> list[str] | None:
    names = getattr(regressor, "feature_names_in_", None)
    return None if names is None else list(map(str, names))


def _set_feature_names(regressor: Any, names: Any) -> None:
    if names is None:
        return
    _require(isinstance(names, list) and all(isinstance(name, str) for name in names), "feature_names")
    _require(len(names) == regressor.n_features_in_, "feature_names")
    regressor.feature_names_in_ = np.array(names, dtype=object)


def _state(contents: Contents, n_features: int) -> State:
    header, arrays = contents.header, contents.arrays
    compact, learner, units = header["compact"], from_json(header["learner"]), from_json(header["units"])
    _check_learner(learner, n_features)
    _check_units(units, n_features)
    _require((learner is None) == (units is None), "learner")
    has_models = "n_inputs" in arrays
    _require(learner is not None or not has_models, "learner")
    models = unpack_models(arrays, learner, n_features, compact=compact) if has_models else []
    n_steps = _count(header, "n_steps")
    waiting_X, waiting_y = _waiting(arrays, n_features, compact)
    return State(
        ensemble=Ensemble.of(models, n_features),
        seed=_count(header, "seed"),
        waiting_X=waiting_X,
        waiting_y=waiting_y,
        bounds=_bounds(header, n_features),
        units=units,
        learner=learner,
        records=() if compact else unpack_history(arrays, n_steps),
        n_steps=n_steps,
        n_seen=_count(header, "n_seen"),
    )


def _waiting(arrays: Arrays, n_features: int, compact: bool) -> tuple[Array, Array]:
    if compact:
        return np.empty((0, n_features)), np.empty(0)
    X, y = arrays["waiting_X"].copy(), arrays["waiting_y"].copy()
    _require(X.dtype == y.dtype == np.float64 and X.shape == (len(y), n_features) and y.ndim == 1, "waiting_X")
    _require(bool(np.isfinite(X).all() and np.isfinite(y).all()), "waiting_X")
    return X, y


def _bounds(header: Mapping[str, Any], n_features: int) -> Array:
    bounds = from_json(header["bounds"])
    _require(isinstance(bounds, np.ndarray) and bounds.shape == (2, n_features), "bounds")
    return bounds


def _count(header: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = header[name]
    _require(type(value) is int and least <= value < 2**63, name)
    return int(value)


def _check_learner(learner: Any, n_features: int) -> None:
    _require(isinstance(learner, SparseLearner | ExactLearner | None), "learner")
    if learner is None:
        return
    _require(isinstance(learner.kernel, Kernel), "kernel")
    if isinstance(learner, SparseLearner):
        _require(type(learner.n_inducing) is int and type(learner.max_iter) is int, "learner")
        _require(learner.n_inducing > 0 and isinstance(learner.learn_hyperparameters, bool), "learner")
    else:
        _require(isinstance(learner.theta, Hyperparameters) and isinstance(learner.mean, float), "learner")
        theta = learner.theta.to_vector()
        _require(len(theta) == n_features + 2 + learner.kernel.n_shape and bool((theta > 0).all()), "learner")
        _require(isinstance(learner.max_samples, int | None), "learner")


def _check_units(units: Any, n_features: int) -> None:
    _require(isinstance(units, Units | None), "units")
    if units is None:
        return
    arrays = (units.origin, units.spread, units.ratio, units.rounds_inputs)
    _require(all(isinstance(array, np.ndarray) and array.shape == (n_features,) for array in arrays), "units")
    _require(bool((units.spread > 0).all() and (units.ratio > 0).all() and units.height > 0), "units")
    _require(units.rounds_inputs.dtype == np.bool_ and isinstance(units.rounds_target, bool), "units")
    _require(isinstance(units.zero, float) and isinstance(units.height, float), "units")


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise MapError(f"its {what} makes no sense")


@contextmanager
def _damage_as_map_error() -> Iterator[None]:
    """A file may hold anything under the names that are looked for."""
    try:
        yield
    except MapError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, MemoryError) as error:
        raise MapError(f"its contents make no sense ({type(error).__name__}: {str(error)[:200]})") from error
