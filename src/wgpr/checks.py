"""Checks of settings: an error names the setting, what it must be, and what it was."""

from math import inf
from numbers import Integral, Real


def require_number(name: str, value: object, least: float, most: float = inf) -> None:
    """Raise unless `value` is a number from `least` to `most`."""
    needed = f"{name} must be a number " + (f"of at least {least:g}" if most == inf else f"from {least:g} to {most:g}")
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{needed}, got {value!r}")
    if not least <= float(value) <= most:
        raise ValueError(f"{needed}, got {value!r}")


def require_count(name: str, value: object, least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    needed = f"{name} must be a whole number of at least {least}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{needed}, got {value!r}")
    if value < least:
        raise ValueError(f"{needed}, got {value!r}")
