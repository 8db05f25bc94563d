"""What districts tell each other: the pseudo-data of their territories at the border, in float32.

They are the halo of the other's territories. They are never learned there, so that no row counts twice.
"""

import zlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wgpr.ensemble.territories import Territories
from wgpr.ensemble.territory import Territory
from wgpr.gp.kernels import Kernel
from wgpr.gp.linalg import Array, Indices
from wgpr.io import container
from wgpr.io.container import Contents
from wgpr.io.territories import pack_models, unpack_models

# A territory is told again when it has seen so many times the rows of the last time.
_GROWTH = 1.5

# Pseudo-data of a territory that are told, those nearest to the border.
_N_TOLD = 60

# `visited` of a territory of another district: it has no meaning here, and this number passes every check.
_ANY = 2**53


class Border(NamedTuple):
    """What is told of a district's territories at the border of another.

    package : those that changed since the last time; seen : rows that each told territory has seen, by its number.
    """

    package: bytes
    seen: dict[int, int]


def border(territories: Territories, ground: Array, seen: dict[int, int], max_bytes: float) -> Border | None:
    """What to tell a district with the ground (2, d), in at most `max_bytes`; None if there is nothing new.

    seen : of the last time. Territories of which nothing is told yet come first.
    """
    touching = _touching(territories, ground)
    present = {number: seen[number] for number in touching.tolist() if number in seen}
    due = [number for number in touching.tolist() if _is_due(territories.models[number], seen.get(number))]
    due.sort(key=lambda number: seen.get(number, 0))
    if not due and len(present) == len(seen):
        return None
    told = due
    while True:
        package = _pack(territories, sorted({*present} | {*told}), told, ground)
        if len(package) <= max_bytes or not told:
            break
        told = told[: int(len(told) * min(0.9, max_bytes / len(package)))]
    if not told and len(package) > max_bytes:
        return None
    return Border(package, present | {number: territories.models[number].n_seen for number in told})


def _touching(territories: Territories, ground: Array) -> Indices:
    """Numbers of the territories whose ground touches another (2, d)."""
    grounds = territories.overview.grounds
    return np.flatnonzero(((grounds[:, 0] <= ground[1]) & (grounds[:, 1] >= ground[0])).all(axis=1))


def _is_due(territory: Territory, n_seen: int | None) -> bool:
    """Whether there is something new to tell. Of a territory without plausible data there is nothing."""
    has_grown = n_seen is None or not n_seen <= territory.n_seen < _GROWTH * n_seen
    return has_grown and len(territory.plausible) > 0


def _pack(territories: Territories, present: list[int], told: list[int], ground: Array) -> bytes:
    arrays = {"present": np.array(present, dtype=np.int32), "told": np.array(told, dtype=np.int32)}
    if told:
        models = [_near(territories.models[number], ground) for number in told]
        arrays |= pack_models(models, territories.overview.centres[told], compact=True)
    return zlib.compress(container.encode(Contents({}, arrays)), level=9)


def _near(territory: Territory, ground: Array) -> Territory:
    """The territory with those of its pseudo-data that are nearest to a ground (2, d)."""
    data = territory.plausible.nearest_to_box(ground, territory.theta.lengthscales, _N_TOLD)
    return replace(territory, data=data, n_known=len(data))


def told(
    package: bytes, known: dict[int, Territory], kernel: Kernel, n_features: int, outputs: tuple[int, ...]
) -> dict[int, Territory]:
    """The territories of another district, by their numbers there, after a package. known : those before."""
    arrays = container.decode(zlib.decompress(package), "the border of a district").arrays
    numbers: list[int] = arrays["told"].tolist()
    models: list[Territory] = []
    if numbers:
        models, _ = unpack_models(arrays, kernel, n_features, outputs, _ANY, compact=True)
    everyone = known | dict(zip(numbers, models, strict=True))
    return {number: everyone[number] for number in arrays["present"].tolist() if number in everyone}
