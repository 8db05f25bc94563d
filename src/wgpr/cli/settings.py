"""Which estimator, and with which settings: as words on a command line or in a `wgpr.toml`."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import METHODS
from wgpr.gp.kernels import Hyperparameters
from wgpr.io.codec import from_json
from wgpr.io.tables import TableError, TableFormat

DEFAULT_CONFIG = Path("wgpr.toml")

_EXAMPLES = {"hyperparameters": "write {amplitude = 1.0, lengthscales = [2.0, 3.0], noise = 0.1}"}
_TABLE_SETTINGS = "separator, decimal, header (true or false) and missing ('error' or 'skip')"
_RULE_EXAMPLE = 'write for example {object = "BestFew", n_models = 2}'


class SettingsError(ValueError):
    """A setting that does not exist or makes no sense: wrong use, not a failure."""


@dataclass(frozen=True)
class Configuration:
    """What a configuration file may say; the command line wins over it.

    method : one of `METHODS`; x : names of inputs; y : of the target; table : how tables are written.
    settings : of the estimator; path : of the file, None if there is none.
    """

    method: str | None = None
    x: tuple[str, ...] = ()
    y: str | None = None
    table: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None


def read_configuration(path: Path | None) -> Configuration:
    """The given file or, without one, `wgpr.toml` if it is there."""
    if path is None and not DEFAULT_CONFIG.is_file():
        return Configuration()
    path = path or DEFAULT_CONFIG
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}); name another file with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is no TOML file: {error}") from error
    return _configuration(content, path)


def _configuration(content: dict[str, Any], path: Path) -> Configuration:
    kinds = {"method": str, "x": list, "y": str, "table": dict, "settings": dict}
    for name, value in content.items():
        if name not in kinds:
            raise SettingsError(f"{path} has {name!r}, which means nothing; it may have {', '.join(kinds)}")
        if not isinstance(value, kinds[name]):
            raise SettingsError(f"{path}: {name} must be a {kinds[name].__name__}, got {value!r}")
    _check_table(content.get("table", {}), path)
    return Configuration(**(content | {"x": tuple(map(str, content.get("x", ()))), "path": path}))


def _check_table(table: dict[str, Any], path: Path) -> None:
    try:
        TableFormat(**table)
    except (TypeError, TableError) as error:
        raise SettingsError(f"{path}: [table] makes no sense ({error}); it may have {_TABLE_SETTINGS}") from error


def make_estimator(method: str, settings: Mapping[str, Any]) -> EnsembleRegressor:
    """An estimator with these settings, all of which have been checked."""
    if method not in METHODS:
        raise SettingsError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    known = settings_of(method)
    for name in settings:
        if name not in known:
            raise SettingsError(f"{method} has no setting {name!r}; it has {', '.join(known)}")
    estimator = METHODS[method](**{name: _value(name, value) for name, value in settings.items()})
    try:
        estimator._check_settings()
    except (ValueError, TypeError) as error:
        raise SettingsError(str(error)) from error
    return estimator


def settings_of(method: str) -> dict[str, Any]:
    """The settings of a method and their defaults."""
    return {name: parameter.default for name, parameter in signature(METHODS[method]).parameters.items()}


def parsed_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs; a value that is not a number, a boolean or in brackets is a word."""
    return dict(map(_parsed_pair, pairs))


def _parsed_pair(pair: str) -> tuple[str, Any]:
    name, is_pair, text = pair.partition("=")
    if not is_pair or not name.strip():
        raise SettingsError(f"{pair!r} is no setting; write NAME=VALUE, such as threshold=3")
    return name.strip().replace("-", "_"), _parsed_value(text.strip())


def _parsed_value(text: str) -> Any:
    if text.lower() in ("none", "null", ""):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return {"true": True, "false": False}.get(text.lower(), text)


def _value(name: str, value: Any) -> Any:
    """Tables of a configuration file stand for objects: hyperparameters, or a rule with settings of its own."""
    if not isinstance(value, dict):
        return value
    try:
        return Hyperparameters(**value) if name == "hyperparameters" else from_json(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name} cannot be {value!r}; {_EXAMPLES.get(name, _RULE_EXAMPLE)}") from error
