"""A file may say anything: what is read from it is checked, and what makes no sense is a `MapError`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from wgpr.gp.linalg import Array
from wgpr.io.container import MapError
from wgpr.io.values import from_json


def bounds_of(header: Mapping[str, Any], n_features: int) -> Array:
    bounds = from_json(header["bounds"])
    require(isinstance(bounds, np.ndarray) and bounds.shape == (2, n_features), "bounds")
    return bounds


def count(header: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = header[name]
    require(type(value) is int and least <= value < 2**63, name)
    return int(value)


def stretch_of(header: Mapping[str, Any]) -> float:
    """The factor of the field's standard deviation; differences of format 1 have none."""
    stretch = header.get("stretch", 1.0)
    require(isinstance(stretch, float) and 0 < stretch < np.inf, "stretch")
    return float(stretch)


def require(condition: bool, what: str) -> None:
    if not condition:
        raise MapError(f"its {what} makes no sense")


@contextmanager
def damage_as_map_error() -> Iterator[None]:
    """A file may hold anything under the names that are looked for."""
    try:
        yield
    except MapError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, MemoryError) as error:
        raise MapError(f"its contents make no sense ({type(error).__name__}: {str(error)[:200]})") from error
