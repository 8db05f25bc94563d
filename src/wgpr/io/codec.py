"""An estimator as the contents of a map file, and back.

Only classes on a fixed list are made from a file, and every value is checked: a file may hold anything.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import numpy as np

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.territories import Territories
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.methods import N_FIRST_ROWS, TerritoryMethod
from wgpr.estimators.regressors import METHODS, PUBLISHED
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.exact import ExactLearner
from wgpr.gp.kernels import Hyperparameters, Kernel, Matern32, Matern52, RationalQuadratic, SquaredExponential
from wgpr.gp.linalg import one_blas_thread
from wgpr.gp.sparse import SparseLearner
from wgpr.io.arrays import LARGEST_OF_MODEL, Shape, pack_history, pack_models, read_array, unpack_history, unpack_models
from wgpr.io.container import VERSION, Arrays, Contents, MapError, require
from wgpr.io.conversion import converted_calibration, converted_header, converted_territories, is_old_default
from wgpr.io.coordinates import Coordinates, coordinates
from wgpr.io.territories import pack_territories, unpack_territories
from wgpr.rules.calibration import Calibration
from wgpr.rules.prediction import Barycenter, BestFew, Nearest, RobustBCM, Weighted
from wgpr.rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein

ESTIMATORS: Mapping[str, type[EnsembleRegressor]] = {kind.__name__: kind for kind in METHODS.values()}

# Classes of values in a header. Each is made by its constructor from what `vars` holds.
_VALUES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        SquaredExponential, Matern32, Matern52, RationalQuadratic, Hyperparameters,
        Wasserstein, Evidence, KernelDistance, Never, Always,
        Nearest, Weighted, BestFew, Barycenter, RobustBCM,
        SparseLearner, ExactLearner, Units,
    )
}  # fmt: skip

# Number of rows, number of rows that are hashed, hash.
_LEARNED_TABLE = r"\d{1,15} \d{1,15}:[0-9a-f]{16}"

# Values of the header


def to_json(value: Any, name: str) -> Any:
    """What stands for `value` in JSON; errors call it `name`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.random.RandomState):
        return None  # the seed that was drawn from it is part of the state
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": str(value)}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if _VALUES.get(type(value).__name__) is type(value):
        return {"object": type(value).__name__, **{key: to_json(part, name) for key, part in vars(value).items()}}
    raise MapError(f"{name} is {value!r}, which a map cannot hold; use a {name} of wgpr's own, or pickle the estimator")


def from_json(value: Any) -> Any:
    """The value that `to_json` was given; raises `MapError` for anything else."""
    if isinstance(value, list):
        raise MapError("a list is not a setting")
    if not isinstance(value, dict):
        return value
    try:
        if "number" in value:
            return {"inf": np.inf, "-inf": -np.inf}[value["number"]]
        if "array" in value:
            array = np.array(value["array"])
            array = array if array.dtype == np.bool_ else array.astype(np.float64)
            require(bool(np.isfinite(array).all()), "array")
            return array
        return _VALUES[value["object"]](**{key: from_json(part) for key, part in value.items() if key != "object"})
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise MapError(f"{str(value)[:80]} is not a setting ({error})") from error


def crs_to_json(estimator: Any) -> dict[str, Any]:
    """The coordinates of an estimator as an entry of a header; no entry if it has none."""
    known = coordinates(estimator)
    if known is None:
        return {}
    return {"crs": {name: value for name, value in asdict(known).items() if value is not None and value == value}}


def read_crs(header: Mapping[str, Any]) -> Coordinates | None:
    """The coordinates of a header; pyproj is not needed to read them."""
    about = header.get("crs")
    if about is None:
        return None
    names, columns, origin = tuple(about["names"]), tuple(about["columns"]), about.get("origin")
    texts, centre = (about["user"], about["model"]), about.get("centre", np.nan)
    require(len(names) > 1 and _are_names(about["names"], len(names)), "crs")
    require(all(isinstance(text, str) and len(text) < 100_000 for text in texts), "crs")
    require(len(columns) == len({*columns}) == 2, "crs")
    require(all(type(each) is int and 0 <= each < len(names) for each in columns), "crs")
    require(isinstance(centre, float) and not abs(centre) > 1000.0, "crs")
    if origin is not None:
        require(len(origin) == 2 and all(isinstance(each, float) and abs(each) < 1e12 for each in origin), "crs")
        origin = tuple(origin)
    return Coordinates(texts[0], names, columns, texts[1], origin, centre)


# Estimator to contents


def learned_tables(estimator: Any) -> list[str]:
    """Number of rows and fingerprint of each table that the command line has noted."""
    return list(getattr(estimator, "_learned_tables", ()))


def read_learned_tables(header: Mapping[str, Any]) -> tuple[str, ...]:
    tables = header.get("learned_tables", [])
    require(isinstance(tables, list) and all(re.fullmatch(_LEARNED_TABLE, table) for table in tables), "learned_tables")
    return tuple(tables)


def describe(estimator: EnsembleRegressor) -> dict[str, Any]:
    """The class, the settings and the coordinates of an estimator as values of JSON."""
    settings = {name: to_json(value, name) for name, value in estimator.get_params(deep=False).items()}
    return {"estimator": type(estimator).__name__, "settings": settings, **crs_to_json(estimator)}


def encode_estimator(estimator: EnsembleRegressor, *, compact: bool) -> Contents:
    """The map of a fitted estimator. compact : only what prediction needs, in float32."""
    kind, state = type(estimator).__name__, estimator._state
    if ESTIMATORS.get(kind) is not type(estimator):
        raise MapError(f"{kind} is not an estimator of wgpr's own, so its map could not be loaded; pickle it instead")
    method = estimator._method()  # raises an error for a wrong setting: such a map could not be loaded
    if len(state.ensemble) and isinstance(method, TerritoryMethod) is not isinstance(state.ensemble, Territories):
        raise MapError("the settings describe another method than the one that learned; fit again, or restore them")
    if compact and isinstance(method, TerritoryMethod):
        state = method.begun(state)
    if compact and not len(state.ensemble):
        raise MapError("there is no model yet to save compactly; learn the waiting rows with flush() first")
    names, target_name = getattr(estimator, "feature_names_in_", None), estimator.target_name_
    header = {
        "wgpr": version("wgpr"),
        **describe(estimator),
        "n_features": int(estimator.n_features_in_),
        "feature_names": None if names is None else list(map(str, names)),
        "target_name": list(target_name) if isinstance(target_name, tuple) else target_name,
        **({"n_outputs": state.pending_y.shape[1]} if state.pending_y.ndim > 1 else {}),
        "compact": compact,
        "seed": state.seed,
        "units": to_json(state.units, "units"),
        "learner": to_json(state.learner, "kernel"),
    }
    if tables := learned_tables(estimator):
        header["learned_tables"] = tables
    models: Arrays = {}
    if isinstance(state.ensemble, Territories):
        header["kernel"] = to_json(state.ensemble.models[0].kernel, "kernel")
        models = pack_territories(state.ensemble, compact=compact)
    elif len(state.ensemble):
        models = pack_models(state.ensemble.models, compact=compact)
    progress = encode_progress(state, compact=compact)
    return Contents(header | progress.header, models | progress.arrays)


def encode_progress(state: State, *, compact: bool) -> Contents:
    """How far a stream has come: the state without models, units and learner."""
    calibration = state.calibration
    header = {
        "n_steps": state.n_steps,
        "n_seen": state.ensemble.n_learned if compact else state.n_seen,
        "bounds": to_json(state.bounds, "bounds"),
        "std_factor": calibration.factor if compact else calibration.initial_factor,
    }
    if compact:
        return Contents(header, {})
    arrays = {"waiting_X": state.pending_X, "waiting_y": state.pending_y, "waiting_weights": state.pending_weights}
    errors = {"error_counts": calibration.counts} if calibration.counts.any() else {}
    return Contents(header, arrays | errors | pack_history(state.records))


# Contents to estimator


def decode_estimator(contents: Contents) -> EnsembleRegressor:
    """The estimator that was saved; any error means that the contents make no sense."""
    is_converted = is_old_default(contents.header, contents.version)
    header = _upgraded(contents.header, contents.version)
    n_features, compact = _count(header, "n_features", least=1), header["compact"]
    outputs = (_count(header, "n_outputs", least=1),) if header.get("n_outputs") is not None else ()
    estimator = _named(header, n_features, outputs)
    method, units, learner = estimator._method(), from_json(header["units"]), from_json(header["learner"])
    progress = decode_progress(contents, n_features, outputs, compact=compact)
    ensemble: Ensemble | Territories = Ensemble.of([], n_features)
    has_models, is_default = "n_inputs" in contents.arrays, isinstance(method, TerritoryMethod)
    require(learner is None or not is_default, "learner")
    if has_models or units is not None or learner is not None:
        _check_units(units, n_features, outputs)
        if not is_default:
            _check_learner(learner, n_features, outputs)
    if has_models and is_default:
        kernel, n_learned = from_json(header["kernel"]), progress["n_seen"] - len(progress["pending_y"])
        require(isinstance(kernel, Kernel) and n_learned >= 0, "kernel")
        unpack = converted_territories if is_converted else unpack_territories
        ensemble = unpack(contents.arrays, kernel, n_features, outputs, n_learned, compact=compact)
    elif has_models:
        models = unpack_models(contents.arrays, learner, n_features, outputs, compact=compact)
        ensemble = Ensemble.of(models, n_features)
    require(len(ensemble) + len(progress["pending_y"]) > 0, "list of models")
    state = State(ensemble, _count(header, "seed"), units=units, learner=learner, **progress)
    estimator._state = _without_waiting_rows(state, method) if isinstance(method, TerritoryMethod) else state
    return estimator


def _without_waiting_rows(state: State, method: TerritoryMethod) -> State:
    """The state of territories. Rows that wait, in a map of format 2, are learned."""
    X, y, weights = state.pending_X, state.pending_y, state.pending_weights
    if not len(state.ensemble):
        require(state.n_seen == len(y), "n_seen")
        state = replace(state, units=None)
        if len(y) < N_FIRST_ROWS:
            return state
    if not len(y):
        return state
    before = replace(state, pending_X=X[:0], pending_y=y[:0], pending_weights=weights[:0], n_seen=state.n_seen - len(y))
    with one_blas_thread():
        return method.learned(before, X, y, weights)


def unfitted(header: Mapping[str, Any]) -> Any:
    """The estimator that `describe` has described."""
    settings = {name: from_json(value) for name, value in header["settings"].items()}
    estimator: Any = ESTIMATORS[header["estimator"]](**settings)
    estimator._method()  # raises an error for a wrong setting
    if (known := read_crs(header)) is not None:
        estimator.crs_ = known
    return estimator


def _named(header: dict[str, Any], n_features: int, outputs: Shape) -> Any:
    """The estimator with its settings and the names of its columns."""
    estimator = unfitted(header)
    require(estimator._method().n_features in (None, n_features), "settings")
    target, features = header["target_name"], header["feature_names"]
    require(isinstance(target, str | None) or _are_names(target, *outputs), "target_name")
    require(features is None or _are_names(features, n_features), "feature_names")
    estimator.n_features_in_, estimator.target_name_ = n_features, tuple(target) if isinstance(target, list) else target
    estimator._learned_tables = read_learned_tables(header)
    known = coordinates(estimator)
    require(known is None or len(known.names) == n_features, "crs")
    if features is not None:
        estimator.feature_names_in_ = np.array(features, dtype=object)
    return estimator


def decode_progress(contents: Contents, n_features: int, outputs: Shape, *, compact: bool) -> dict[str, Any]:
    """The fields of the state that `encode_progress` stored; the compact form has no history and no waiting rows."""
    header, arrays = contents.header, contents.arrays
    bounds, n_steps = from_json(header["bounds"]), _count(header, "n_steps")
    std_factor = header.get("std_factor", header.get("stretch", 1.0))  # "stretch" in format 2, none in format 1
    require(isinstance(bounds, np.ndarray) and bounds.shape == (2, n_features), "bounds")
    require(isinstance(std_factor, float) and 0 < std_factor < LARGEST_OF_MODEL, "std_factor")
    X, y, weights = np.empty((0, n_features)), np.empty((0, *outputs)), np.empty(0)
    calibration = Calibration(initial_factor=std_factor)
    if not compact:
        X = read_array(arrays, "waiting_X", "f", None, n_features)
        y = read_array(arrays, "waiting_y", "f", len(X), *outputs)
        weights = read_array(arrays, "waiting_weights", "f", len(X)) if contents.version > 2 else np.ones(len(X))
        require(bool((weights > 0).all()), "array waiting_weights")
        counts = read_array(
            {"error_counts": calibration.counts, **arrays}, "error_counts", "f", len(calibration.counts)
        )
        require(bool((counts >= 0).all()), "array error_counts")
        calibration = Calibration(counts, std_factor)
    if is_old_default(header, contents.version):
        calibration = converted_calibration(arrays, outputs, std_factor, compact=compact)
    return {
        "pending_X": X,
        "pending_y": y,
        "pending_weights": weights,
        "bounds": bounds,
        "records": () if compact else unpack_history(arrays, n_steps),
        "n_steps": n_steps,
        "n_seen": _count(header, "n_seen"),
        "calibration": calibration,
    }


def _upgraded(header: dict[str, Any], version: int) -> dict[str, Any]:
    """The header of an older format in the names of the current one, without settings that no longer exist."""
    if version == VERSION:
        return header
    if is_old_default(header, version):
        header = converted_header(header)
    settings, units = header["settings"], header["units"]
    if header["estimator"] == "WGPRegressor":
        settings = _upgraded_settings(settings, version)
    settings = {name: value for name, value in settings.items() if name not in _RETIRED}
    if units is not None:
        new_names = {"zero": "target_offset", "height": "target_scale"}
        units = {new_names.get(name, name): value for name, value in units.items()}
    return {**header, "settings": settings, "units": units}


# Settings of older formats that no longer exist.
_RETIRED = {"n_jobs", "history_size", "thorough", "buffer_size", "batching", "max_inducing"}


def _upgraded_settings(settings: dict[str, Any], version: int) -> dict[str, Any]:
    """Settings of a `WGPRegressor`. At that time, settings without effect were allowed."""
    if version == 1:
        settings = {**PUBLISHED, **settings}  # at that time these were the defaults
    if "n_inducing" not in settings:  # territories
        return settings
    dropped = {"forgetting"} | ({"prediction"} if settings.get("prediction") == "joined" else set())
    if settings.get("splitting", "wasserstein") != "wasserstein":
        dropped.add("threshold")
    elif settings["threshold"] == "auto":
        settings = {**settings, "splitting": "evidence"}  # the nearest to the rule of the old default
    return {name: value for name, value in settings.items() if name not in dropped}


def _count(header: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = header[name]
    require(type(value) is int and least <= value < 2**63, name)
    return int(value)


def _are_names(names: Any, n_names: int = 0) -> bool:
    return isinstance(names, list) and len(names) == n_names and all(isinstance(name, str) for name in names)


def _check_learner(learner: Any, n_features: int, outputs: Shape) -> None:
    require(isinstance(learner, SparseLearner | ExactLearner), "learner")
    require(isinstance(learner.kernel, Kernel), "kernel")
    if isinstance(learner, ExactLearner):
        require(isinstance(learner.theta, Hyperparameters) and _is_of_targets(learner.mean, outputs), "learner")
        theta = learner.theta.to_vector()
        is_positive = bool(((theta > 0) & (theta < LARGEST_OF_MODEL)).all())
        require(len(theta) == n_features + 2 + learner.kernel.n_shape and is_positive, "learner")
        require(isinstance(learner.max_samples, int | None), "learner")
        return
    limit = learner.n_inducing
    require(type(limit) is int and limit > 0 and type(learner.max_iter) is int, "learner")
    require(isinstance(learner.learn_hyperparameters, bool), "learner")


def _check_units(units: Any, n_features: int, outputs: Shape) -> None:
    require(isinstance(units, Units), "units")
    arrays = (units.origin, units.spread, units.ratio, units.rounds_inputs)
    require(all(isinstance(array, np.ndarray) and array.shape == (n_features,) for array in arrays), "units")
    require(all(_is_of_targets(value, outputs) for value in (units.target_offset, units.target_scale)), "units")
    require(all(bool((np.abs(array) < LARGEST_OF_MODEL).all()) for array in arrays), "units")
    require(all(bool(np.all(value > 0)) for value in (units.spread, units.ratio, units.target_scale)), "units")
    require(units.rounds_inputs.dtype == np.bool_ and _is_of_targets(units.rounds_target, outputs, bool), "units")


def _is_of_targets(value: Any, outputs: Shape, kind: type[Any] = float) -> bool:
    """Whether it is a number that cannot overflow or, for `outputs` (k,), an array of k of them."""
    is_array = isinstance(value, np.ndarray) and value.shape == outputs and value.dtype == kind
    return (is_array if outputs else isinstance(value, kind)) and bool(np.all(np.abs(value) < LARGEST_OF_MODEL))
