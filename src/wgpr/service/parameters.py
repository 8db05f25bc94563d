"""Parameters of requests that several routes have."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query

from wgpr.estimators.base import LARGEST
from wgpr.service.definition import NAME
from wgpr.service.errors import ServiceError

Name = Annotated[str, Path(pattern=NAME, description="Name of the map.")]
At = Annotated[list[str], Query(max_length=50, description="NAME=VALUE of inputs that do not vary.")]


def fixed_values(names: Sequence[str], pairs: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Values by column, from NAME=VALUE pairs. names : of all inputs."""
    fixed: dict[int, float] = {}
    for pair in pairs:
        name, _, text = pair.rpartition("=")
        try:
            column, value = list(names).index(name), float(text)
        except ValueError as error:
            raise ServiceError(422, f"at must be NAME=VALUE with one of {', '.join(names)} and a number") from error
        if column in fixed:
            raise ServiceError(422, f"at gives {name} twice; name each input once")
        fixed[column] = value
    if not all(abs(value) <= LARGEST for value in fixed.values()):
        raise ServiceError(422, f"at must have finite numbers below {LARGEST:g}")
    return tuple(sorted(fixed.items()))
