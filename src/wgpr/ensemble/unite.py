"""Territories of several maps become those of one (docs/fleet.md, "Merging maps").

1. Cut: the ground is cut by the tree of the map that knows most there. Where another map knows twice as much, its tree
   goes on. New ground so keeps the territories of its owner.
2. Unite: what several maps know on the ground of one territory is the union of their pseudo-data. Hyperparameters are
   averages, by rows, of those that agree.
3. Judge: where maps overlap, the evidence decides between one field, another regime on the other side of a cut, and
   readings that contradict each other.
4. Make room: full territories are united, thinned or divided, as in learning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from wgpr.ensemble.cuts import Cuts, Node, with_leaves
from wgpr.ensemble.regimes import FEWEST_ROWS
from wgpr.ensemble.territories import Learning, Territories, TerritorySettings
from wgpr.ensemble.territory import Territory, agreement, fitted
from wgpr.gp.gaussian import log_density
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import (
    Array,
    Indices,
    cholesky_with_jitter,
    column_squares,
    diagonal,
    pivot_order,
    solve_lower,
    solve_lower_transposed,
)
from wgpr.gp.pseudodata import Mask, Posterior, PseudoData, from_posterior, thin

# A map's tree goes on cutting the ground until another map knows so many times as much there.
_LEAD = 2.0

# Pseudo-data of several maps overlap where the field has at least this correlation.
_NEAR = 0.5

# Most pseudo-data of an overlap that are compared.
_N_COMPARED = 200

# Fewest pseudo-data of a map in an overlap that say whether it contradicts the others.
_FEWEST_COMPARED = 5

# Nats, beyond the penalty for its parameter, by which another explanation must be better.
_CLEARLY = 10.0

# Places of contradictory maps are kept until the prior variance that remains is this fraction of the posterior
# variance. All of these are tried, and the best is kept.
_RESOLUTIONS = (0.03, 0.1, 0.3, 1.0)

# Misplaced pseudo-data that a cut between two maps may have, as a fraction of those of the smaller one.
_MOST_MISPLACED = 0.05

# Places and values that differ by less than this, in internal units, are copies: float32 has rounded some.
_SAME = 1e-5


class Source(NamedTuple):
    """The territories of one map, in the units of all, and the cuts that separate them."""

    models: Sequence[Territory]
    cuts: Node


class Piece(NamedTuple):
    """A part of a territory that is on the ground of another: the number of its map, its own number, and what it is."""

    source: int
    number: int
    territory: Territory


@dataclass(frozen=True, eq=False)
class Plan:
    """Which territory the pseudo-data of several maps will belong to: a tree, and the pieces of each leaf."""

    cuts: Node
    leaves: list[list[Piece]]


def without_copies(sources: Sequence[Source]) -> list[tuple[Source | None, int]]:
    """The maps without pseudo-data that a map before them has too, and which map before has most of what is left out.

    A place with the same value is the same row: it tells nothing more. A map of which nothing is left is None.
    """
    kept: list[tuple[Source | None, int]] = [(sources[0], 0)]
    known, owners = _table(sources[0]), np.zeros(len(_table(sources[0])), dtype=np.intp)
    for number, source in enumerate(sources[1:], start=1):
        table = _table(source)
        distances, places = KDTree(known).query(table, distance_upper_bound=_SAME)
        is_copy = np.isfinite(distances)
        holder = int(np.bincount(owners[places[is_copy]], minlength=1).argmax())
        kept.append((_without(source, is_copy) if is_copy.any() else source, holder))
        known, owners = np.concatenate([known, table]), np.concatenate([owners, np.full(len(table), number)])
    return kept


def _table(source: Source) -> Array:
    data = PseudoData.union(*(model.data for model in source.models))
    return np.concatenate([data.Z, data.t], axis=1)


def _without(source: Source, is_copy: Mask) -> Source | None:
    """The map without some of its pseudo-data (m,), those of all territories one after the other."""
    if is_copy.all():
        return None
    ends = np.cumsum([len(model.data) for model in source.models])
    models = [
        _restricted(model, ~copies) if copies.any() else model
        for model, copies in zip(source.models, np.split(is_copy, ends[:-1]), strict=True)
    ]
    return source._replace(models=models)


def _restricted(territory: Territory, rows: Mask) -> Territory:
    """The part of a territory with some of its pseudo-data (m,), which may be none; it keeps its prior mean."""
    share = float(rows.mean())
    n_seen, n_fitted = round(share * territory.n_seen), round(share * territory.n_fitted)
    return replace(
        territory,
        data=territory.data[rows],
        n_seen=n_seen,
        n_fitted=n_fitted,
        n_known=int(rows[: territory.n_known].sum()),
    )


# 1. Cut


def planned(sources: Sequence[Source], size: int) -> Plan:
    """The cuts for all maps together. size : most pseudo-data of a territory."""
    planner = _Planner(sources, size)
    return Plan(planner.cut([np.arange(len(Z)) for Z in planner.Z], 0), planner.leaves)


class _Planner:
    """Cuts the ground by the trees of several maps."""

    def __init__(self, sources: Sequence[Source], size: int) -> None:
        self.sources, self.size = sources, size
        self.Z = [np.concatenate([model.data.Z for model in source.models]) for source in sources]
        self.numbers = [
            np.repeat(np.arange(len(source.models)), [len(model.data) for model in source.models]) for source in sources
        ]
        self.starts = [np.cumsum([0, *(len(model.data) for model in source.models)])[:-1] for source in sources]
        self.leaves: list[list[Piece]] = []

    def cut(self, rows: list[Indices], leader: int) -> Node:
        """The tree for a ground. rows : (m,) for each map, which of its pseudo-data lie there."""
        counts = [len(some) for some in rows]
        largest = int(np.argmax(counts))
        if counts[largest] > _LEAD * counts[leader]:
            leader = largest
        found = self._cut_between(rows) or self._cut_of(leader, rows[leader])
        if found is None and sum(counts) > 2 * self.size:
            others = (each for each in np.argsort(counts)[::-1].tolist() if each != leader)
            found = next((cut for cut in (self._cut_of(each, rows[each]) for each in others) if cut is not None), None)
        if found is None:
            self.leaves.append(list(self._pieces(rows)))
            return len(self.leaves) - 1
        axis, position = found
        is_below = [Z[some, axis] <= position for Z, some in zip(self.Z, rows, strict=True)]
        below = [some[mask] for some, mask in zip(rows, is_below, strict=True)]
        above = [some[~mask] for some, mask in zip(rows, is_below, strict=True)]
        return Cuts(axis, (position,), (self.cut(below, leader), self.cut(above, leader)))

    def _cut_between(self, rows: list[Indices]) -> tuple[int, float] | None:
        """A cut with one map on one side and all others on the other side; None if there is none, or too little."""
        present = [source for source, some in enumerate(rows) if len(some) > self.size]
        for source in present[: -1 if len(present) == 2 else None] if len(present) > 1 else []:
            others = [self.Z[other][some] for other, some in enumerate(rows) if other != source]
            cut = separating_cut(self.Z[source][rows[source]], np.concatenate(others))
            if cut is not None:
                return cut
        return None

    def _cut_of(self, number: int, rows: Indices) -> tuple[int, float] | None:
        """Axis and position of the cut of a map's tree that halves its pseudo-data best; None if it has none here."""
        node, Z = self.sources[number].cuts, self.Z[number][rows]
        if not len(rows):
            return None
        while isinstance(node, Cuts):
            places = np.searchsorted(node.positions, Z[:, node.axis], side="left")
            first, last = int(places.min()), int(places.max())
            if first < last:
                below = np.cumsum(np.bincount(places, minlength=last + 1))[first:last]
                best = first + int(np.argmin(np.abs(2 * below - len(rows))))
                return node.axis, node.positions[best]
            node = node.children[first]
        return None

    def _pieces(self, rows: list[Indices]) -> Iterator[Piece]:
        for source, some in enumerate(rows):
            for number in np.unique(self.numbers[source][some]).tolist():
                own = some[self.numbers[source][some] == number] - self.starts[source][number]
                territory = self.sources[source].models[number]
                if len(own) < len(territory.data):
                    is_here = np.zeros(len(territory.data), dtype=np.bool_)
                    is_here[own] = True
                    territory = _restricted(territory, is_here)
                yield Piece(source, number, territory)


# 2. Unite


def united(plan: Plan, settings: TerritorySettings, n_learned: int, n_steps: int) -> Territories:
    """The territories of a plan. n_learned, n_steps : rows and looks of the maps together."""
    order = _numbered(plan.leaves)
    leaves = [plan.leaves[place] for place in order]
    cuts = with_leaves(plan.cuts, np.argsort(order).tolist())
    assert cuts is not None
    models = [union([piece.territory for piece in pieces]) for pieces in leaves]
    uniting = _Uniting(Territories.of(models, cuts, n_learned=n_learned), settings, n_steps)
    for number, pieces in enumerate(leaves):
        if len({piece.source for piece in pieces}) > 1:
            uniting.judge(number, pieces)
    uniting.make_room()
    return uniting.territories()


def _numbered(leaves: Sequence[Sequence[Piece]]) -> list[int]:
    """The leaves in the order of their numbers: territories of the first map keep theirs, if possible."""
    numbers: dict[int, int] = {}
    for place, pieces in enumerate(leaves):
        own = [piece.number for piece in pieces if piece.source == 0 and piece.number < len(leaves)]
        wanted = next((number for number in own if number not in numbers), None)
        if wanted is not None:
            numbers[wanted] = place
    rest = iter(sorted(set(range(len(leaves))) - set(numbers.values())))
    return [numbers[number] if number in numbers else next(rest) for number in range(len(leaves))]


def union(parts: Sequence[Territory]) -> Territory:
    """One territory of several: hyperparameters are averages, by rows, over those that agree with the largest."""
    if len(parts) == 1:
        return parts[0]
    largest = max(parts, key=lambda part: part.n_seen)
    data = PseudoData.union(*(part.data for part in parts))
    return replace(
        largest,
        theta=_average(parts, largest),
        mean=np.average(data.t, axis=0, weights=data.precision),
        data=data,
        n_seen=sum(part.n_seen for part in parts),
        n_fitted=sum(part.n_fitted for part in parts),
        n_known=len(data),
        spread=np.max([part.spread for part in parts], axis=0),
        visited=max(part.visited for part in parts),
    )


def _average(parts: Sequence[Territory], largest: Territory) -> Hyperparameters:
    log_thetas = np.array([part.theta.to_log() for part in parts])
    weights = np.array([max(1, part.n_seen) for part in parts]) * agreement(log_thetas, largest.theta.to_log())
    return Hyperparameters.from_log(np.average(log_thetas, axis=0, weights=weights), len(largest.centre))


# 3. Judge


class _Uniting(Learning):
    """Territories while those of several maps become one."""

    def judge(self, number: int, pieces: Sequence[Piece]) -> None:
        """Compare explanations of what several maps know on the ground of a territory, and put the best."""
        territory = self.models[number]
        sources = np.repeat([piece.source for piece in pieces], [len(piece.territory.data) for piece in pieces])
        if self._divide_regimes(number, pieces):
            return
        compared = overlap(territory, sources)
        if not len(compared):
            return
        best = explained(territory, sources, compared)
        if best.shift or self._is_doubtful(pieces):
            updated = fitted(territory, self._surroundings(number), is_surprised=best.shift > 0.0)
            best = max(best, explained(updated, sources, compared), key=lambda each: each.log_evidence)
        if best.shift:
            self._put(contradictory(best, sources, 2 * self.size), number)
        else:
            self._put(best.territory, number)

    def _is_doubtful(self, pieces: Sequence[Piece]) -> bool:
        """Whether hyperparameters differ so much that their average needs a fit."""
        largest = max(pieces, key=lambda piece: piece.territory.n_seen).territory.theta.to_log()
        return any(float(agreement(piece.territory.theta.to_log(), largest)) <= 0.5 for piece in pieces)

    def _divide_regimes(self, number: int, pieces: Sequence[Piece]) -> bool:
        """Cut the ground if maps with other hyperparameters lie on both sides of a cut, and evidence favours that."""
        territory = self.models[number]
        largest = max(pieces, key=lambda piece: piece.territory.n_seen)
        main = largest.territory.theta.to_log()
        is_other = np.concatenate(
            [
                np.full(len(piece.territory.data), float(agreement(piece.territory.theta.to_log(), main)) <= 0.5)
                for piece in pieces
            ]
        )
        if min(is_other.sum(), (~is_other).sum()) < FEWEST_ROWS:
            return False
        cut = separating_cut(territory.data.Z[~is_other], territory.data.Z[is_other])
        if cut is None:
            return False
        axis, position = cut
        is_below = territory.data.Z[:, axis] <= position
        sides = [self._side(pieces, mask) for mask in (is_below, ~is_below)]
        if not self._are_two_regimes(number, territory, sides):
            return False
        self._divide(number, axis, position, sides[0], sides[1], is_new_above=True)
        return True

    def _side(self, pieces: Sequence[Piece], rows: Mask) -> Territory:
        """What the maps know on one side of a cut: (m,) which of the pseudo-data of all pieces."""
        ends = np.cumsum([len(piece.territory.data) for piece in pieces])
        masks = np.split(rows, ends[:-1])
        return union(
            [_restricted(piece.territory, mask) for piece, mask in zip(pieces, masks, strict=True) if mask.any()]
        )

    def _are_two_regimes(self, number: int, territory: Territory, sides: Sequence[Territory]) -> bool:
        """Whether two sets of hyperparameters explain the two sides better, by more than the penalty of the second."""
        updated = fitted(territory, self._surroundings(number), is_surprised=True)
        as_one = updated.log_evidence_of(updated.data)
        as_two = sum(side.log_evidence_of(side.data) for side in sides)
        n = min(side.data.t.size for side in sides)
        return as_two - 0.5 * (len(updated.theta.to_log()) + 1) * float(np.log1p(n)) > as_one

    # 4. Make room

    def make_room(self) -> None:
        """Unite, thin or divide full territories until none is."""
        number = 0
        while number < len(self.models):
            territory = self.models[number]
            if len(territory.data) <= self.room(territory):
                number += 1
                continue
            united = territory.data.united()
            # What one map tells another is new, as rows are: so much of it may be lost.
            as_rows = replace(united, is_row=np.ones(len(united), dtype=np.bool_))
            thinned = thin(territory.kernel, territory.theta, territory.mean, as_rows, self.n_thinned)
            if thinned is None:
                self._make_room(number)
            else:
                self._put(replace(territory, data=thinned, n_known=len(thinned)), number)
        self._merge_down()


def overlap(territory: Territory, sources: Indices) -> Indices:
    """Which pseudo-data (m,) lie near some of another map; none unless at least two maps have a few there.

    sources : (n,) the map of each of the territory's pseudo-data.
    """
    Z, distances = territory.data.Z / territory.theta.lengthscales, np.full(len(sources), np.inf)
    present, near = np.unique(sources).tolist(), _near(territory)
    for source in present:
        own = sources == source
        if not own.all():
            distances[own] = KDTree(Z[~own]).query(Z[own], distance_upper_bound=near)[0]
    compared = np.argsort(distances, kind="stable")[: min(_N_COMPARED, int(np.isfinite(distances).sum()))]
    if sum(int((sources[compared] == source).sum()) >= _FEWEST_COMPARED for source in present) < 2:
        return compared[:0]
    return np.sort(compared)


def _near(territory: Territory) -> float:
    """The distance, in length-scales, of places that overlap."""
    near = np.geomspace(0.1, 100.0, 61)
    correlation = territory.kernel.correlation(near**2, territory.theta.shape)
    return float(near[max(0, int((correlation >= _NEAR).sum()) - 1)])


def separating_cut(one: Array, other: Array) -> tuple[int, float] | None:
    """Axis and position of a cut with the places `one` (n, d) on one side and `other` (m, d) on the other side.

    A few may be on the wrong side; None if there is no such cut.
    """
    Z, is_other = np.concatenate([one, other]), np.arange(len(one) + len(other)) >= len(one)
    best: tuple[float, int, float] | None = None
    for axis in range(Z.shape[1]):
        order = np.argsort(Z[:, axis], kind="stable")
        values, n_other = Z[order, axis], np.cumsum(is_other[order])
        wrong = np.arange(1, len(Z) + 1) - n_other + (len(other) - n_other)  # with the others below the cut
        wrong = np.minimum(wrong, len(Z) - wrong)[:-1].astype(np.float64)
        wrong[values[:-1] == values[1:]] = np.inf
        place = int(np.argmin(wrong))
        if best is None or wrong[place] < best[0]:
            best = float(wrong[place]), axis, 0.5 * float(values[place] + values[place + 1])
    if best is None or best[0] > _MOST_MISPLACED * min(len(one), len(other)):
        return None
    return best[1:]


class Explanation(NamedTuple):
    """A territory of several maps, the standard deviation of constants that they add, 0 for none, and its evidence."""

    territory: Territory
    shift: float
    log_evidence: float


def explained(territory: Territory, sources: Indices, compared: Indices) -> Explanation:
    """Whether the maps of a territory contradict each other.

    What map s reads is `f + b_s`, with a constant `b_s` of the standard deviation `beta`. The log evidence of the best
    `beta`, minus a penalty for it, is compared with that of none.

    sources : (n,) the map of each of its pseudo-data; compared : (m,) those of the overlap.
    """
    theta, data, sources = territory.theta, territory.data[compared], sources[compared]
    C, errors = territory.kernel.covariance(theta, data.Z), data.t - territory.mean
    diagonal(C)[:] += 1.0 / data.precision
    is_same = sources[:, None] == sources
    before = log_density(errors, C)
    best, penalty = Explanation(territory, 0.0, before), _CLEARLY + 0.5 * float(np.log(errors.size))
    n_shifts = 2 + int(np.log2(max(1.0, np.abs(errors).max() / theta.noise)))
    for shift in (theta.noise * 2.0 ** np.arange(-1.0, n_shifts)).tolist():
        log_evidence = log_density(errors, C + shift**2 * is_same)
        if log_evidence < before:
            break
        before = log_evidence
        if log_evidence - penalty > best.log_evidence:
            best = Explanation(territory, shift, log_evidence - penalty)
    return best


def contradictory(explanation: Explanation, sources: Indices, n_most: int) -> Territory:
    """The territory if its maps differ as explained.

    Its pseudo-data say what is known of a field `f + b`, with an offset `b` of its own that is as large as a map's: the
    field is as far from each map as the maps are from each other.

    sources : (n,) the map of each of its pseudo-data; n_most : most pseudo-data that it keeps.
    """
    territory, shift, _ = explanation
    kernel, theta, data = territory.kernel, territory.theta, territory.data
    prior_mean = np.mean([data.t[sources == source].mean(axis=0) for source in np.unique(sources)], axis=0)
    K, total = kernel.covariance(theta, data.Z), kernel.variance(theta) + shift**2
    C = np.where(sources[:, None] == sources, K + shift**2, K)
    diagonal(C)[:] += 1.0 / data.precision
    L, _ = cholesky_with_jitter(C)
    mean = prior_mean + K @ solve_lower_transposed(L, solve_lower(L, data.t - prior_mean))
    variance = total - column_squares(solve_lower(L, K))
    theta = replace(theta, amplitude=float(np.sqrt(total)))

    def represented(resolution: float) -> tuple[float, PseudoData]:
        """Pseudo-data with this posterior at some of the places, and their largest typical error at all of them."""
        order, rank = pivot_order(K, min(0.99, resolution * max(1e-6, float(np.median(variance)) / total)))
        kept = order[: max(1, min(n_most, rank))]
        said = from_posterior(kernel, theta, prior_mean, data.Z[kept], mean[kept], variance[kept])
        error = Posterior(kernel, theta, prior_mean, said).predict(data.Z)[0] - mean
        return float(np.sqrt((error**2).mean(axis=1) / variance).mean()), said

    # Places that are closer than what is known of the field tell nothing, and their values would be extreme.
    _, said = min((represented(resolution) for resolution in _RESOLUTIONS), key=lambda each: each[0])
    return replace(territory, theta=theta, mean=prior_mean, data=said, n_known=len(said))
