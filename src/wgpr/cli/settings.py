"""The method, its settings and the way tables are written, from the command line and from `wgpr.toml`."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, inform, stdout
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import METHODS, settings_without_effect
from wgpr.io.settings import new_estimator, settings_of
from wgpr.io.tables import Table, TableFormat, expand

DEFAULT_CONFIG = Path("wgpr.toml")

_KEYS = {"method": str, "x": list, "y": str, "crs": str, "table": dict, "settings": dict}


@dataclass(frozen=True)
class Configuration:
    """Contents of a configuration file; the command line takes precedence. table : arguments of `TableFormat`."""

    method: str = "wgpr"
    x: Sequence[str] = ()
    y: str | None = None
    crs: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def read_configuration(path: Path | None = None, *, silent: bool = False) -> Configuration:
    """Read the given file or, without one, `wgpr.toml` if it exists. Unless `silent`, say which file it is."""
    if path is None and not DEFAULT_CONFIG.is_file():
        return Configuration()
    path = path or DEFAULT_CONFIG
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name another file with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from error
    _check_content(content, path)
    if not silent:
        inform(f"settings from {path}")
    return Configuration(**(content | {"x": [*map(str, content.get("x", ()))]}))


def _check_content(content: Mapping[str, Any], path: Path) -> None:
    for name, value in content.items():
        if name not in _KEYS:
            raise UsageError(f"{path} has the unknown key {name!r}; it may have {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[name]):
            raise UsageError(f"{path}: {name} must be a {_KEYS[name].__name__}, got {value!r}")
    with opt.errors_of_usage(f"{path}, [table]: "):
        TableFormat(**content.get("table", {}))


def open_table(files: Sequence[str], options: Mapping[str, Any], configured: Mapping[str, Any] | None = None) -> Table:
    """Open files as one table, read as the `options` or else the configuration file say.

    configured : [table] of the configuration; by default that of `wgpr.toml`.
    """
    configured = read_configuration(silent=True).table if configured is None else configured
    with opt.errors_of_usage():
        table_format = TableFormat(**{**configured, **options})
    return Table(expand(files), table_format)


def make_estimator(configuration: Configuration, method: str = "", pairs: Iterable[str] = ()) -> EnsembleRegressor:
    """A new estimator, by the configuration and `NAME=VALUE` pairs of the command line. All settings are checked."""
    with opt.errors_of_usage():
        return new_estimator(*chosen_settings(configuration, method, pairs))


def chosen_settings(
    configuration: Configuration, method: str = "", pairs: Iterable[str] = ()
) -> tuple[str, dict[str, Any]]:
    """The method and its settings, by the configuration and `NAME=VALUE` pairs of the command line."""
    return method or configuration.method, {**configuration.settings, **dict(map(_parse_pair, pairs))}


def _parse_pair(pair: str) -> tuple[str, Any]:
    name, is_pair, text = pair.partition("=")
    if not is_pair or not name.strip():
        raise UsageError(f"{pair!r} is not a setting; write NAME=VALUE, such as max_models=50")
    return name.strip().replace("-", "_"), _parse_value(text.strip())


def _parse_value(text: str) -> Any:
    """A TOML value, `none`, or a word without quotes."""
    if text.lower() in ("none", "null", ""):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return {"true": True, "false": False}.get(text.lower(), text)


def settings(
    method: Annotated[str, typer.Argument(metavar="METHOD", help=f"{opt.METHOD_NAMES}. By default all.")] = "",
) -> None:
    """List the methods, or explain the settings of one."""
    for name in [method] if method else METHODS:
        with opt.errors_of_usage():
            defaults = settings_of(name)
        unused = settings_without_effect(METHODS[name]())
        text = (getdoc(METHODS[name]) or "").replace("Parameters\n----------", "Settings").partition("\nAttributes")[0]
        stdout.print(text if method else f"{name}: {text.splitlines()[0]}", markup=False)
        stdout.print(f"  {_listed(defaults, [key for key in defaults if key not in unused])}", markup=False)
        if unused:
            condition = "only for the method of the paper: with a number as threshold, or another splitting"
            stdout.print(f"  {condition}: {_listed(defaults, unused)}", markup=False)


def _listed(values: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name}={values[name]!r}" for name in names)
