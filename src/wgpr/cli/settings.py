"""The method and its settings from the command line, and tables as its options say."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from inspect import getdoc
from typing import Annotated, Any

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, stdout
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.regressors import METHODS, settings_without_effect
from wgpr.io.settings import new_estimator, settings_of
from wgpr.io.tables import Table, TableFormat, expand


def open_table(files: Sequence[str], options: Mapping[str, Any]) -> Table:
    """Open files as one table. options : arguments of `TableFormat`."""
    with opt.errors_of_usage(**{name: f"--{name}" for name in options}):
        table_format = TableFormat(**options)
    return Table(expand(files), table_format)


def make_estimator(method: str, pairs: Iterable[str]) -> EnsembleRegressor:
    """A new estimator, by `NAME=VALUE` pairs of the command line. All settings are checked."""
    given = parse_settings(pairs)
    with opt.errors_of_usage(**{name: f"--set {name}" for name in given}):
        return new_estimator(method, given)


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings by name, from `NAME=VALUE` pairs of the command line."""
    return dict(map(_parse_pair, pairs))


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
