"""One map of several: `merge` (docs/fleet.md)."""

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from wgpr.ensemble.answers import PosteriorCache
from wgpr.ensemble.cuts import Cuts, Node
from wgpr.ensemble.territories import Territories
from wgpr.ensemble.territory import Territory
from wgpr.ensemble.unite import Piece, Plan, Source, planned, united, without_copies
from wgpr.estimators.methods import TerritoryMethod
from wgpr.estimators.regressors import WGPRegressor
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.fleet.offsets import Offset, estimated_offsets
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.gp.pseudodata import LEAST_PRECISION, PseudoData
from wgpr.io.coordinates import coordinates
from wgpr.rules.calibration import Calibration

# Limits of numbers in the units of another map, as `Units` has them for rows, so that squares do not overflow.
_FAR, _MOST_PRECISION = 1e60, 1e120


def merge(*maps: Any, align: bool = False) -> Any:
    """One map of what several maps know, in any order; they stay as they were.

    Where the maps overlap, their knowledge is united. Rows that several have count once, as long as no map has thinned
    them. Where maps disagree, the evidence decides whether it is another regime; readings that contradict each other
    make the map uncertain there.
    The map has the settings of the first one, and can be saved, learn more and answer as any other.

    Parameters
    ----------
    maps : at least two fitted `WGPRegressor()` of the default method, with the same inputs, target and kernel.
    align : estimate a constant offset of each map's values against those of the first, where the maps overlap, and
        subtract it. `offsets_` of the result has an `Offset` for each map, with its standard deviation.

    Returns
    -------
    The estimator of all rows together.
    """
    return merge_named(maps, [f"map {number}" for number in range(1, len(maps) + 1)], align=align)


def merge_named(maps: Sequence[Any], names: Sequence[str], *, align: bool = False) -> Any:
    """As `merge`. names : of the maps, for errors."""
    _check(maps, names, align)
    result = copy(maps[0])
    with one_blas_thread():
        members, plan, n_rows = _planned(maps, names)
        if align:
            plan, result.offsets_ = _aligned(plan, members)
        try:
            territories = united(plan, maps[0]._method().settings, n_rows, members[0].state.n_steps)
        except ArithmeticError as error:
            fault = f"{' and '.join(names)} cannot be merged: their values are too many powers of ten apart"
            raise ValueError(f"{fault}; fit them again without wrong values") from error
    result._state = _state([member.state for member in members], territories)
    _take_names(result, maps)
    return result


def apparent_offsets(maps: Sequence[Any]) -> tuple[Offset, ...]:
    """The offsets that `align` subtracts, of maps that can be merged; empty if they cannot be estimated."""
    with one_blas_thread(), suppress(ValueError):
        members, plan, _ = _planned(maps, [""] * len(maps))
        return _aligned(plan, members)[1]
    return ()


class _Member(NamedTuple):
    """A map that is merged: its state, territories and units.

    number : its place among the arguments, from 0; source : that of the `Source` that has its knowledge.
    """

    number: int
    name: str
    state: State
    territories: Territories
    units: Units
    source: int = 0


def _planned(maps: Sequence[Any], names: Sequence[str]) -> tuple[list[_Member], Plan, int]:
    """The maps, those with most rows first, the plan of all in the units of the first of these, and their rows."""
    members = [_member(number, name, maps) for number, name in enumerate(names)]
    members.sort(key=lambda member: -member.state.n_seen)
    kept = without_copies([_source(member, members[0].units) for member in members])
    _check_is_no_fork(members, [source is None for source, _ in kept])
    sources: list[Source] = []
    n_learned: list[int] = []
    n_rows = 0
    for place, (source, holder) in enumerate(kept):
        number = members[holder].source if source is None else len(sources)
        members[place] = members[place]._replace(source=number)
        if source is not None:
            sources.append(source)
            n_learned.append(members[place].territories.n_learned)
            # Rows of territories are rounded shares, which may add up to another number than the map has learned.
            both = members[place].territories.models, source.models
            before, after = (sum(model.n_seen for model in models) for models in both)
            n_rows += n_learned[-1] - (before - after)
    sources = [_visited(source, n_rows / n) for source, n in zip(sources, n_learned, strict=True)]
    size = maps[0]._method().settings.sizes(members[0].territories.n_features)[0]
    return members, planned(sources, size), n_rows


def _member(number: int, name: str, maps: Sequence[Any]) -> _Member:
    """Maps with a reference system count metres from their first rows; here all count from that of the first map."""
    estimator = maps[number]
    state, shift = estimator._method().begun(estimator._state), np.zeros(estimator.n_features_in_)
    own, first = coordinates(estimator), coordinates(maps[0])
    if own is not None and first is not None and own.origin is not None and first.origin is not None:
        shift[list(own.columns)] = np.subtract(own.origin, first.origin)
    units = replace(state.units, origin=state.units.origin + shift)
    return _Member(number, name, replace(state, bounds=state.bounds + shift, units=units), state.ensemble, units)


# Maps that can be merged


def _check(maps: Sequence[Any], names: Sequence[str], align: bool) -> None:
    """Raise an error that says why maps cannot be merged."""
    if not isinstance(align, bool | np.bool_):
        raise TypeError(f"align must be True or False, got {align!r}")
    for name, each in zip(names, maps, strict=True):
        if not isinstance(each, WGPRegressor):
            raise TypeError(f"{name} is a {type(each).__name__}; only fitted WGPRegressor() can be merged, one by one")
        if not isinstance(each._method(), TerritoryMethod):
            raise ValueError(f"{name} is of the paper's method, which cannot be merged; learn it with WGPRegressor()")
        check_is_fitted(each, "_state", msg=f"{name} has learned nothing; fit it, or leave it out")
        each._method_that_learned(each._state)
    if len(maps) < 2:
        raise ValueError(f"maps must be at least 2, got {len(maps)}; merge(a, b) makes one map of a and b")
    for name, each in zip(names[1:], maps[1:], strict=True):
        _check_alike(maps[0], each, names[0], name)


def _check_alike(first: Any, other: Any, first_name: str, name: str) -> None:
    def require_same(what: str, ours: Any, theirs: Any, remedy: str) -> None:
        if ours is not None and theirs is not None and ours != theirs:
            raise ValueError(f"{name} has the {what} {theirs} and {first_name} has {ours}; {remedy}")

    inputs, target = (f"only maps of the same {what} can be merged" for what in ("inputs", "target"))
    require_same("number of inputs", first.n_features_in_, other.n_features_in_, inputs)
    crs, other_crs = coordinates(first), coordinates(other)
    if (crs is None) != (other_crs is None):
        fault = "one map has a coordinate reference system, the other has none"
        raise ValueError(f"{fault} ({first_name if crs is None else name}); learn both with the same --crs")
    require_same("inputs", _names(first), _names(other), inputs)
    if crs and other_crs and (crs.user, crs.model) != (other_crs.user, other_crs.model):
        remedy = "learn both with the same --crs, in the same UTM zone"
        require_same("coordinate reference system", str(crs), str(other_crs), remedy)
    require_same("number of outputs", first.n_outputs_, other.n_outputs_, target)
    require_same("target", first.target_name_, other.target_name_, target)
    ours, theirs = (each._method().settings.kernel for each in (first, other))
    require_same("kernel", ours, theirs, "learn both with the same kernel")


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else names.tolist()


def _check_is_no_fork(members: Sequence[_Member], holds_all: Sequence[bool]) -> None:
    """Raise an error if two maps have gone on from the same one, and one does not hold all of the other."""
    beginnings: dict[Any, str] = {}
    for member, is_held in zip(members, holds_all, strict=True):
        units, seed = member.units, member.state.seed
        beginning = seed, units.origin.tobytes(), units.spread.tobytes()
        before = beginnings.setdefault(beginning, member.name)
        if before is not member.name and not is_held:
            raise ValueError(
                f"{before} and {member.name} go on from the same map, and what that knew would count twice; take the "
                "later of two states of one map, and let each robot begin a map of its own"
            )


# One unit for all


def _visited(source: Source, scale: float) -> Source:
    """The map with its visits spread over the rows of all maps."""
    if scale == 1.0:
        return source
    return source._replace(models=[replace(model, visited=int(scale * model.visited)) for model in source.models])


def _source(member: _Member, units: Units) -> Source:
    """A map in the units of another one."""
    if member.units is units:
        return Source(member.territories.models, member.territories.cuts)
    models = [_converted(model, member.units, units) for model in member.territories.models]
    return Source(models, _converted_cuts(member.territories.cuts, member.units, units))


def _converted(model: Territory, own: Units, units: Units) -> Territory:
    """A territory of units of its own in those of another map."""
    data = model.data
    length, factors = own.length / units.length, np.ravel(own.target_scale) / np.ravel(units.target_scale)
    factor = float(np.exp(np.log(factors).mean()).clip(1.0 / _FAR, _FAR))  # outputs share amplitude, noise, precisions
    offset = (np.ravel(own.target_offset) - np.ravel(units.target_offset)) / np.ravel(units.target_scale)
    Z = units.inputs(own.inputs_for_user(data.Z))
    t = (offset + factors * data.t).clip(-_FAR, _FAR)
    precision = (data.precision / factor**2).clip(LEAST_PRECISION, _MOST_PRECISION)
    theta = model.theta.scaled(length, factor).to_vector().clip(1.0 / _FAR, _FAR)
    return replace(
        model,
        theta=Hyperparameters.from_vector(theta, len(length)),
        mean=(offset + factors * model.mean).clip(-_FAR, _FAR),
        data=PseudoData(Z, t, precision, data.is_row),
        spread=np.minimum(model.spread * length, _FAR),
    )


def _converted_cuts(node: Node, own: Units, units: Units) -> Node:
    if isinstance(node, int):
        return node
    axis = node.axis
    places = own.origin[axis] + np.array(node.positions) * own.length[axis]
    positions = (places - units.origin[axis]) / units.length[axis]
    children = tuple(_converted_cuts(child, own, units) for child in node.children)
    return Cuts(axis, tuple(positions.tolist()), children)


# Offsets


def _aligned(plan: Plan, members: Sequence[_Member]) -> tuple[Plan, tuple[Offset, ...]]:
    """The plan with values as the sensor of the first map has them, and the offsets of all maps."""
    in_order, units = sorted(members, key=lambda member: member.number), members[0].units
    names = {member.source: member.name for member in reversed(in_order)}
    offsets, stds = estimated_offsets(plan.leaves, [names[source] for source in sorted(names)], in_order[0].source)
    leaves = [[_shifted(piece, offsets[piece.source]) for piece in pieces] for pieces in plan.leaves]
    of_maps = (_for_user(offsets[member.source], float(stds[member.source]), units) for member in in_order)
    return Plan(plan.cuts, leaves), tuple(of_maps)


def _shifted(piece: Piece, offset: Array) -> Piece:
    if not offset.any():
        return piece
    territory = piece.territory
    data = replace(territory.data, t=territory.data.t - offset)
    return piece._replace(territory=replace(territory, data=data, mean=territory.mean - offset))


def _for_user(offset: Array, std: float, units: Units) -> Offset:
    """An offset (k,) in the user's units."""
    if np.ndim(units.target_scale):
        return Offset(offset * units.target_scale, std * np.asarray(units.target_scale))
    return Offset(float(offset[0] * units.target_scale), float(std * units.target_scale))


# State


def _state(states: Sequence[State], territories: Territories) -> State:
    bounds = np.array([state.bounds for state in states])
    return replace(
        states[0],
        ensemble=territories,
        bounds=np.stack([bounds[:, 0].min(axis=0), bounds[:, 1].max(axis=0)]),
        n_seen=territories.n_learned,
        calibration=_calibration(states),
        cache=PosteriorCache(),
    )


def _calibration(states: Sequence[State]) -> Calibration:
    """Errors of all forecasts together. A compact map has none, but a factor."""
    factors = [state.calibration.initial_factor for state in states]
    factor = np.exp(np.average(np.log(factors), weights=[state.n_seen for state in states]))
    return Calibration(np.sum([state.calibration.counts for state in states], axis=0), float(factor))


def _take_names(result: Any, maps: Sequence[Any]) -> None:
    """Names of columns that the first map lacks, and the tables that any of the maps has learned."""
    for each in maps:
        if _names(result) is None and _names(each) is not None:
            result.feature_names_in_ = each.feature_names_in_
        if result.target_name_ is None:
            result.target_name_ = each.target_name_
    tables = [table for each in maps for table in getattr(each, "_learned_tables", ())]
    result._learned_tables = tuple(dict.fromkeys(tables))
