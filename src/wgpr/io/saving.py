"""All of a regressor as the contents of a map file, and back."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from wgpr.ensemble.ensemble import Ensemble
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.adaptive import AdaptiveSparseLearner
from wgpr.gp.exact import ExactLearner
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array
from wgpr.gp.sparse import SparseLearner
from wgpr.io.checking import bounds_of, count, damage_as_map_error, require, stretch_of
from wgpr.io.container import Arrays, Contents, MapError
from wgpr.io.history import pack_history, unpack_history
from wgpr.io.models import pack_models, unpack_models
from wgpr.io.values import from_json, to_json
from wgpr.rules.calibration import Calibration


class Regressor(Protocol):
    """What is saved of an estimator."""

    _state: State
    n_features_in_: int
    target_name_: str | tuple[str, ...] | None

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
        **_header_of_targets(regressor),
        "compact": compact,
        "seed": state.seed,
        "n_steps": state.n_steps,
        "n_seen": state.n_learned if compact else state.n_seen,
        "bounds": to_json(state.bounds, "bounds"),
        "units": to_json(state.units, "units"),
        "learner": to_json(state.learner, "kernel"),
        "stretch": state.calibration.factor if compact else state.calibration.before,
    }
    return Contents(header, _arrays_of(state, compact))


def _header_of_targets(regressor: Regressor) -> dict[str, Any]:
    """What the target is called and, if it has an axis for outputs, how many there are."""
    name, outputs = regressor.target_name_, regressor._state.outputs
    header: dict[str, Any] = {"target_name": list(name) if isinstance(name, tuple) else name}
    return header | {"n_outputs": outputs[0]} if outputs else header


def _arrays_of(state: State, compact: bool) -> Arrays:
    models = pack_models(state.ensemble.models, compact=compact) if len(state.ensemble) else {}
    if compact:
        return models
    return {
        **models,
        **pack_history(state.records),
        "waiting_X": state.pending_X,
        "waiting_y": state.pending_y,
        "residuals": state.calibration.residuals,
    }


def restored(contents: Contents, classes: Mapping[str, type[Any]]) -> Any:
    """The regressor that was saved; `classes` are those that it may be of, by name."""
    header = contents.header
    with damage_as_map_error():
        kind = classes[header["estimator"]]
        settings = {name: from_json(value) for name, value in header["settings"].items()}
        # Maps of format 1 were made when the published settings were the defaults.
        make = getattr(kind, "published", kind) if contents.version < 2 else kind
        regressor = make(**settings)
        regressor._check_settings()
        regressor.n_features_in_ = count(header, "n_features", least=1)
        outputs = (count(header, "n_outputs", least=1),) if header.get("n_outputs") is not None else ()
        regressor.target_name_ = _target_name(header["target_name"], outputs)
        _set_feature_names(regressor, header["feature_names"])
        regressor._state = _state(contents, regressor.n_features_in_, outputs)
    return regressor


def _require_own_class(regressor: Regressor) -> None:
    if type(regressor).__module__ != "wgpr.estimators.regressors":
        name = type(regressor).__name__
        raise MapError(f"{name} is no estimator of wgpr's own, so that nobody could load the map; pickle it instead")


def _feature_names(regressor: Any) -> list[str] | None:
    names = getattr(regressor, "feature_names_in_", None)
    return None if names is None else list(map(str, names))


def _set_feature_names(regressor: Any, names: Any) -> None:
    if names is None:
        return
    require(isinstance(names, list) and all(isinstance(name, str) for name in names), "feature_names")
    require(len(names) == regressor.n_features_in_, "feature_names")
    regressor.feature_names_in_ = np.array(names, dtype=object)


def _target_name(name: Any, outputs: tuple[int, ...]) -> str | tuple[str, ...] | None:
    if not isinstance(name, list):
        require(isinstance(name, str | None), "target_name")
        return name
    require((len(name),) == outputs and all(isinstance(each, str) for each in name), "target_name")
    return tuple(name)


def _state(contents: Contents, n_features: int, outputs: tuple[int, ...]) -> State:
    header, arrays = contents.header, contents.arrays
    compact, learner, units = header["compact"], from_json(header["learner"]), from_json(header["units"])
    _check_learner(learner, n_features, outputs)
    _check_units(units, n_features, outputs)
    require((learner is None) == (units is None), "learner")
    has_models = "n_inputs" in arrays
    require(learner is not None or not has_models, "learner")
    models = unpack_models(arrays, learner, n_features, compact=compact, outputs=outputs) if has_models else []
    n_steps = count(header, "n_steps")
    pending_X, pending_y = _waiting(arrays, n_features, outputs, compact)
    return State(
        ensemble=Ensemble.of(models, n_features),
        seed=count(header, "seed"),
        pending_X=pending_X,
        pending_y=pending_y,
        bounds=bounds_of(header, n_features),
        units=units,
        learner=learner,
        records=() if compact else unpack_history(arrays, n_steps),
        n_steps=n_steps,
        n_seen=count(header, "n_seen"),
        calibration=_calibration(contents, outputs),
    )


def _calibration(contents: Contents, outputs: tuple[int, ...]) -> Calibration:
    """None in format 1, the factor alone in a compact map."""
    if contents.version < 2:
        return Calibration()
    stretch = stretch_of(contents.header)
    if contents.header["compact"]:
        return Calibration(before=stretch)
    residuals = contents.arrays["residuals"].copy()
    expected = (3, *outputs) if len(residuals) else (3,)
    require(residuals.dtype == np.float64 and residuals.shape[1:] == expected, "residuals")
    require(bool(np.isfinite(residuals).all() and (residuals[:, 1:] >= 0).all()), "residuals")
    return Calibration(residuals, stretch)


def _waiting(arrays: Arrays, n_features: int, outputs: tuple[int, ...], compact: bool) -> tuple[Array, Array]:
    if compact:
        return np.empty((0, n_features)), np.empty((0, *outputs))
    X, y = arrays["waiting_X"].copy(), arrays["waiting_y"].copy()
    require(X.dtype == y.dtype == np.float64 and X.shape == (len(y), n_features), "waiting_X")
    require(y.shape[1:] == outputs, "waiting_y")
    require(bool(np.isfinite(X).all() and np.isfinite(y).all()), "waiting_X")
    return X, y


def _check_learner(learner: Any, n_features: int, outputs: tuple[int, ...]) -> None:
    require(isinstance(learner, SparseLearner | AdaptiveSparseLearner | ExactLearner | None), "learner")
    if learner is None:
        return
    require(isinstance(learner.kernel, Kernel), "kernel")
    if isinstance(learner, SparseLearner | AdaptiveSparseLearner):
        limit = learner.n_inducing if isinstance(learner, SparseLearner) else learner.max_inducing
        require(type(limit) is int and type(learner.max_iter) is int, "learner")
        require(limit > 0 and isinstance(learner.learn_hyperparameters, bool), "learner")
        if isinstance(learner, AdaptiveSparseLearner):
            require(isinstance(learner.forgetting, float) and 0 <= learner.forgetting < 1, "learner")
    else:
        require(isinstance(learner.theta, Hyperparameters) and _is_of_targets(learner.mean, outputs), "learner")
        theta = learner.theta.to_vector()
        require(len(theta) == n_features + 2 + learner.kernel.n_shape and bool((theta > 0).all()), "learner")
        require(isinstance(learner.max_samples, int | None), "learner")


def _is_of_targets(value: Any, outputs: tuple[int, ...], kind: type[Any] = float) -> bool:
    """Whether it is a number or, if there are `outputs` (k,), an array with one for each."""
    if not outputs:
        return isinstance(value, kind)
    return isinstance(value, np.ndarray) and value.shape == outputs and value.dtype == kind


def _check_units(units: Any, n_features: int, outputs: tuple[int, ...]) -> None:
    require(isinstance(units, Units | None), "units")
    if units is None:
        return
    arrays = (units.origin, units.spread, units.ratio, units.rounds_inputs)
    require(all(isinstance(array, np.ndarray) and array.shape == (n_features,) for array in arrays), "units")
    require(all(_is_of_targets(value, outputs) for value in (units.target_offset, units.target_scale)), "units")
    positive = (units.spread, units.ratio, np.asarray(units.target_scale))
    require(all(bool((array > 0).all()) for array in positive), "units")
    require(units.rounds_inputs.dtype == np.bool_ and _is_of_targets(units.rounds_target, outputs, bool), "units")
