"""Checks of settings and of installed modules: an error names what is wrong, and what it must be or how to get it."""

from importlib import import_module
from math import inf
from numbers import Integral, Real
from typing import Any


def require_number(name: str, value: object, least: float, most: float = inf, otherwise: str = "") -> None:
    """Raise unless `value` is a number from `least` to `most`; `otherwise` is what else it may be, for the message."""
    needed = f"{name} must be a number " + (f"of at least {least:g}" if most == inf else f"from {least:g} to {most:g}")
    needed += f" or {otherwise}" if otherwise else ""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{needed}, got {value!r}")
    if not least <= float(value) <= most:
        raise ValueError(f"{needed}, got {value!r}")


def require_count(name: str, value: object, least: int = 1, otherwise: str = "") -> None:
    """Raise unless `value` is a whole number of at least `least`; `otherwise` is what else it may be."""
    needed = f"{name} must be a whole number of at least {least}" + (f" or {otherwise}" if otherwise else "")
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{needed}, got {value!r}")
    if value < least:
        raise ValueError(f"{needed}, got {value!r}")


def require_module(module: str, need: str, extra: str) -> Any:
    """The module. An ImportError says its `need`, such as "BAG needs rasterio", and the `extra` of wgpr that has it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'{need}; install it with pip install "wgpr[{extra}]"') from error
