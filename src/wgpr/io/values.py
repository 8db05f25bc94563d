"""Settings and other small values as JSON, and back: numbers, words, and those objects that serve as settings."""

from typing import Any

import numpy as np

from wgpr.estimators.units import Units
from wgpr.gp.adaptive import AdaptiveSparseLearner
from wgpr.gp.exact import ExactLearner
from wgpr.gp.kernels import Hyperparameters, Matern32, Matern52, RationalQuadratic, SquaredExponential
from wgpr.gp.sparse import SparseLearner
from wgpr.io.container import MapError
from wgpr.rules.batching import InOrder, Regional
from wgpr.rules.prediction import Barycenter, BestFew, Joined, Nearest, RobustBCM, Weighted
from wgpr.rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein, Worthwhile

# Each is made by its constructor from what `vars` tells of it. Nothing else is ever made from a file.
_OBJECTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        SquaredExponential, Matern32, Matern52, RationalQuadratic, Hyperparameters,
        Wasserstein, Worthwhile, Evidence, KernelDistance, Never, Always, InOrder, Regional,
        Nearest, Weighted, BestFew, Barycenter, RobustBCM, Joined,
        SparseLearner, AdaptiveSparseLearner, ExactLearner, Units,
    )
}  # fmt: skip

# Names that older maps have for classes and their fields.
_OLD_CLASSES = {"GrowingLearner": "AdaptiveSparseLearner"}
_OLD_FIELDS = {"Units": {"zero": "target_offset", "height": "target_scale"}}

_NOT_FINITE = {"inf": np.inf, "-inf": -np.inf}


def to_json(value: Any, name: str) -> Any:
    """What JSON can hold in place of `value`; `name` is what an error calls it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.random.RandomState):
        return None  # its draw, the seed, is part of the state
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": str(value)}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if _OBJECTS.get(type(value).__name__) is type(value):
        return {"object": type(value).__name__, **{key: to_json(part, name) for key, part in vars(value).items()}}
    raise MapError(f"{name} is {value!r}, which a map cannot hold; use a {name} of wgpr's own, or pickle the estimator")


def from_json(value: Any) -> Any:
    """The value that `to_json` was given; raises `MapError` for what it never made."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise MapError("a list is no setting")
        return value
    try:
        return _made_from(value)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise MapError(f"{str(value)[:80]} is no setting ({error})") from error


def _made_from(value: dict[str, Any]) -> Any:
    if "number" in value:
        return _NOT_FINITE[value["number"]]
    if "array" in value:
        return _made_array(value["array"])
    name = _OLD_CLASSES.get(value["object"], value["object"])
    fields = _OLD_FIELDS.get(name, {})
    return _OBJECTS[name](**{fields.get(key, key): from_json(part) for key, part in value.items() if key != "object"})


def _made_array(values: list[Any]) -> Any:
    array = np.array(values)
    if array.dtype == np.bool_:
        return array
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError("an array has values that are not finite")
    return array
