"""How the ground is cut into districts, and how the ensembles of districts become one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wgpr.ensemble.cuts import Cuts, Node, all_cuts, median_cut, shifted, with_leaves
from wgpr.ensemble.territories import Learning, Territories, TerritorySettings
from wgpr.ensemble.territory import Territory
from wgpr.gp.linalg import Array

# How often territories at the borders of districts are fitted in the end, so that both sides follow each other.
_N_ROUNDS = 3


def balanced_cuts(Z: Array, n_districts: int, lengthscales: Array) -> Node:
    """A tree of cuts into districts 0, 1, ..., which have equally many of the places `Z` (n, d).

    Each cut is across the largest extent in length-scales (d,), so that borders are short. There are fewer districts
    if too many places are equal.
    """
    n_before = 0

    def build(places: Array, n: int) -> Node:
        nonlocal n_before
        cut = _cut(places, n // 2 / n, lengthscales) if n > 1 and len(places) > 1 else None
        if cut is None:
            n_before += 1
            return n_before - 1
        axis, position = cut
        is_below = places[:, axis] <= position
        return Cuts(axis, (position,), (build(places[is_below], n // 2), build(places[~is_below], n - n // 2)))

    return build(Z, n_districts)


def _cut(Z: Array, fraction: float, lengthscales: Array) -> tuple[int, float] | None:
    """Axis and position of a cut with this fraction of the places `Z` (n, d) below it; None if all are equal."""
    for axis in np.argsort(-np.ptp(Z, axis=0) / lengthscales, kind="stable").tolist():
        ordered = np.sort(Z[:, axis])
        position = float(ordered[max(0, round(fraction * len(ordered)) - 1)])
        if position < ordered[-1]:
            return axis, position
    return None


def joined(cuts: Node, districts: Sequence[Territories | None]) -> Territories:
    """One ensemble of the districts that `cuts` separate; None for one without a row."""
    models: list[Territory] = []
    leaves: list[Node | None] = []
    for district in districts:
        leaves.append(None if district is None else shifted(district.cuts, len(models)))
        models += () if district is None else district.models
    known = [district for district in districts if district is not None]
    tree = with_leaves(cuts, leaves)
    assert tree is not None
    centres = np.concatenate([district.overview.centres for district in known])
    return Territories.of(models, tree, centres=centres, n_learned=sum(district.n_learned for district in known))


def smoothed(territories: Territories, cuts: Node, settings: TerritorySettings) -> Territories:
    """The ensemble after territories at the borders of districts were fitted with their neighbours on both sides.

    Each district began with hyperparameters of its own, and was told less of the other, and earlier. Neighbours across
    a border would so seem to be of different regimes, and the mean would change there within a short distance.
    """
    borders = set(all_cuts(cuts))
    at_borders = [
        number
        for number, ground in enumerate(territories.overview.grounds)
        if any((axis, float(ground[side, axis])) in borders for side, axis in np.ndindex(ground.shape))
    ]
    learning = Learning(territories, settings, 0)
    for number in _N_ROUNDS * at_borders:
        learning.refit(number)
    return learning.territories()


def halved(territories: Territories) -> tuple[int, float, Territories, Territories] | None:
    """Axis and position of a cut that halves all pseudo-data, and the ensembles of both sides; None if there is none.

    Territories on the cut are divided.
    """
    places = np.concatenate([model.data.Z for model in territories.models])
    cut = median_cut(places, territories.overview.typical_lengthscales)
    if cut is None:
        return None
    sides = [_side(territories, *cut, is_above=is_above) for is_above in (False, True)]
    return *cut, sides[0], sides[1]


def _side(territories: Territories, axis: int, position: float, *, is_above: bool) -> Territories:
    """The part of an ensemble on one side of a cut."""
    models: list[Territory] = []
    leaves: list[Node | None] = []
    for model in territories.models:
        halves = model.halves(axis, position)
        half = halves[is_above]
        leaves.append(None if half is None else len(models))
        models += [] if half is None else [half]
    tree = with_leaves(territories.cuts, leaves)
    assert tree is not None
    share = sum(model.n_seen for model in models) / territories.n_learned
    return Territories.of([replace(model, visited=int(share * model.visited)) for model in models], tree)
