"""A new estimator from the name of its method and plain values: of TOML, JSON or the command line."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import METHODS
from wgpr.gp.kernels import Hyperparameters
from wgpr.io.codec import from_json

_EXAMPLES = {
    "hyperparameters": "{amplitude = 1.0, lengthscales = [2.0, 3.0], noise = 0.1}",
    "prediction": '{object = "BestFew", n_models = 2}',
}


def new_estimator(method: str, settings: Mapping[str, Any]) -> EnsembleRegressor:
    """An estimator that has learned nothing. A wrong setting raises an error that names it."""
    known = settings_of(method)
    for name in settings:
        if name not in known:
            raise ValueError(f"{method} has no setting {name!r}; it has {', '.join(known)}")
    estimator = METHODS[method](**{name: _to_object(name, value) for name, value in settings.items()})
    estimator._method()
    return estimator


def settings_of(method: str) -> dict[str, Any]:
    """The settings of a method and their defaults."""
    if method not in METHODS:
        raise ValueError(f"the method must be one of {', '.join(METHODS)}, got {method!r}")
    return {name: parameter.default for name, parameter in signature(METHODS[method]).parameters.items()}


def _to_object(name: str, value: Any) -> Any:
    """A table stands for an object: hyperparameters, or a rule with settings of its own."""
    if not isinstance(value, dict):
        return value
    try:
        return Hyperparameters(**value) if name == "hyperparameters" else from_json(value)
    except (ValueError, TypeError) as error:
        example = _EXAMPLES.get(name, _EXAMPLES["prediction"])
        raise ValueError(f"{name} = {value} is wrong, write for example {example}: {error}") from error
