"""Territories of pseudo-data: how the default learns (docs/territories.md).

Each row belongs to one territory, and is known as soon as it is united with the pseudo-data there. A territory is
looked at when it is full, when it has grown, or when a row is out of its reach:

1. Forecast: the new rows are predicted by what was known before them. Rows that everything else contradicts are
   down-weighted.
2. Fit: if the territory has grown, or the rows are surprising, its hyperparameters are fitted again, with its halo.
3. Decide: if the evidence favours another regime, the new rows become a territory of their own. So do new rows that
   make a thinned territory rougher, with what lies around them.
4. Make room: a full territory is thinned, if that loses next to nothing; otherwise it is divided.
5. Merge: while there are too many territories, two neighbours become one: of those visited longest ago, the pair that
   loses least.

All this depends on the rows and their order, not on how many are given at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from time import perf_counter
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from wgpr.ensemble.cuts import Node, adjacent, divided, grounds, median_cut, merged, path_to, renumbered, route
from wgpr.ensemble.evaluation import Change, StepRecord
from wgpr.ensemble.regimes import FEWEST_ROWS, Regime, find_regime, rougher_part, separating_axis
from wgpr.ensemble.territory import (
    ALONE,
    Forecast,
    Surroundings,
    Territory,
    agreement,
    fitted,
    forecast,
    is_dense,
    rougher,
    spread_of,
)
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.model import PickledByFields
from wgpr.gp.pseudodata import LEAST_PRECISION, PseudoData, thin

# Hyperparameters are fitted again after so many times the rows of the latest fit, or fewer if the territory is full.
_GROWTH, _GROWTH_WHEN_FULL = 2.0, 1.5

# A value is out of reach if it deviates so many times as far from the mean as any before.
_OUT_OF_REACH = 3.0

# Neighbours that inform the hyperparameters, and those of them whose pseudo-data may be in the halo.
_N_NEIGHBOURS, _N_IN_HALO = 8, 6

# Most pseudo-data of a halo.
_N_HALO = 100

# Observations of the same place are united when a territory is full, if that makes room for this fraction of it.
_WORTH_UNITING = 0.1

# Rows are dense if nearest neighbours are as far apart, in length-scales, as the rows of a full territory would be at
# random places in a square of one length-scale a side: half as far as on a grid. Rows along one input are on a grid.
_DENSE = 0.5

# The reach of answers beyond borders as a fraction of length-scales, and the quantile of these.
_REACH, _SHORT_LENGTHSCALE = 0.25, 0.1

# Neighbours that may be merged: so many pairs, those visited longest ago, and at most this fraction of the territories.
_N_PAIRS, _OLD = 16, 0.75

# A territory has so many times the room when there are as many as there may be.
_ROOM_WHEN_BOUNDED = 4 / 3

# The first territory keeps so many rows if noise explains most of them: few rows of a rough field look like noise, and
# what is thinned as noise is lost.
_ROOM_FOR_NOISE = 600

# Rows after which `forgetting` has taken its fraction.
_ROWS_OF_FORGETTING = 100

# Rows that are searched for the next look: the search takes time for each look.
_ROWS_AT_ONCE = 2000

# A tree of so many levels is preferably not cut along another axis, so that it does not become deeper.
_DEEP = 50

# Relative difference of numbers that are equal but for rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class TerritorySettings:
    """How territories learn.

    max_models : the most territories, None for no limit.
    forgetting : fraction of its knowledge that a territory forgets with every 100 rows that it learns.
    """

    kernel: Kernel
    max_models: int | None = None
    forgetting: float = 0.0

    @staticmethod
    def sizes(n_features: int) -> tuple[int, int]:
        """Most pseudo-data of a territory, and after thinning: more inputs need more for the same detail."""
        return (150, 100) if n_features < 4 else (400, 200)


@dataclass(frozen=True, eq=False)
class Overview(PickledByFields):
    """What is known of all J territories at a glance, as of when each was looked at.

    centres : (J, d) mean places; log_thetas : (J, p); spreads : (J, d) of the inputs, each given the others.
    grounds : (J, 2, d), the least and the greatest place of each; infinite where no cut is.
    """

    centres: Array
    log_thetas: Array
    spreads: Array
    grounds: Array

    @classmethod
    def of(cls, models: Sequence[Territory], cuts: Node | None) -> "Overview":
        """cuts : None if nobody asks for the grounds; they are infinite then."""
        n_features = len(models[0].centre)
        everywhere = np.array([[[-np.inf], [np.inf]]])
        return cls(
            np.array([model.centre for model in models]),
            np.array([model.theta.to_log() for model in models]),
            np.array([model.spread for model in models]),
            np.broadcast_to(everywhere, (len(models), 2, n_features))
            if cuts is None
            else grounds(cuts, len(models), n_features),
        )

    def with_others(self, others: "Overview | None") -> "Overview":
        """These territories, and others behind them."""
        if others is None:
            return self
        pairs = zip(self._arrays, others._arrays, strict=True)
        return Overview(*(np.concatenate(pair) for pair in pairs))

    @property
    def _arrays(self) -> tuple[Array, Array, Array, Array]:
        return self.centres, self.log_thetas, self.spreads, self.grounds

    def rows(self, numbers: Sequence[int] | Indices) -> "Overview":
        """A copy with these territories."""
        return Overview(*(array[numbers] for array in self._arrays))

    def set(self, number: int, territory: Territory) -> None:
        """Note a territory that was looked at. Only for a copy that nobody else has."""
        self.centres[number], self.spreads[number] = territory.centre, territory.spread
        self.log_thetas[number] = territory.theta.to_log()

    @property
    def _log_lengthscales(self) -> Array:
        return self.log_thetas[:, 1 : self.centres.shape[1] + 1]

    @cached_property
    def typical_lengthscales(self) -> Array:
        """(d,)"""
        typical: Array = np.exp(np.median(self._log_lengthscales, axis=0))
        return typical

    @cached_property
    def reach(self) -> Array:
        """(d,): how far territories answer beyond their borders.

        It is a fraction of short length-scales, and at most one of typical territories. With many inputs nearly all
        places are near some border, so that it must be shorter.
        """
        short = np.exp(np.quantile(self._log_lengthscales, _SHORT_LENGTHSCALE, axis=0))
        width = np.sqrt(12.0) * np.median(self.spreads, axis=0)
        fraction = _REACH * min(1.0, 2.0 / len(short))
        reach: Array = fraction * np.where(width > 0.0, np.minimum(short, width), short)
        return reach


@dataclass(frozen=True, eq=False)
class Territories(PickledByFields):
    """Territories, and the cuts that separate them. An immutable value.

    outside : territories of other ensembles around this one. They are neighbours of its own, and do not learn.
    """

    models: tuple[Territory, ...]
    cuts: Node
    overview: Overview
    n_learned: int
    outside: tuple[Territory, ...] = ()

    @classmethod
    def of(
        cls, models: Sequence[Territory], cuts: Node, *, centres: Array | None = None, n_learned: int | None = None
    ) -> "Territories":
        """centres : (J, d), by default of their data; n_learned : by default the rows that they have seen."""
        overview = Overview.of(models, cuts)
        if centres is not None:
            overview = replace(overview, centres=centres)
        n_rows = sum(model.n_seen for model in models) if n_learned is None else n_learned
        return cls(tuple(models), cuts, overview, n_rows)

    @classmethod
    def begin(cls, kernel: Kernel, X: Array, y: Array, weights: Array) -> "Territories":
        """One territory of the first rows `X` (n, d), `y` (n, k) with weights (n,)."""
        return cls.of([Territory.begin(kernel, X, y, weights)], 0)

    def __len__(self) -> int:
        return len(self.models)

    @property
    def n_features(self) -> int:
        return self.overview.centres.shape[1]

    @property
    def kernel(self) -> Kernel:
        return self.models[0].kernel


class Learned(NamedTuple):
    """Territories after some rows, records of the looks, and the whitened errors of forecasts in them: (n, k)."""

    territories: Territories
    records: list[StepRecord]
    whitened: list[Array]


def learn(
    territories: Territories, settings: TerritorySettings, X: Array, y: Array, weights: Array, n_steps: int
) -> Learned:
    """The territories after rows `X` (n, d), `y` (n, k) with weights (n,); n_steps : looks before."""
    learning = Learning(territories, settings, n_steps)
    learning.learn(X, y, weights)
    return Learned(learning.territories(), learning.records, learning.whitened)


class Learning:
    """Territories while they learn some rows."""

    def __init__(self, before: Territories, settings: TerritorySettings, n_steps: int) -> None:
        self.settings, self.models, self.cuts = settings, list(before.models), before.cuts
        self.overview, self._is_shared = before.overview, True
        self.n_learned, self.n_steps, self.outside = before.n_learned, n_steps, before.outside
        self.size, self.n_thinned = settings.sizes(before.n_features)
        self.records: list[StepRecord] = []
        self.whitened: list[Array] = []

    def territories(self) -> Territories:
        return Territories(tuple(self.models), self.cuts, self.overview, self.n_learned, self.outside)

    def room(self, territory: Territory) -> int:
        """Most pseudo-data of a territory."""
        is_bounded = self.settings.max_models is not None and len(self.models) >= self.settings.max_models
        size = int(_ROOM_WHEN_BOUNDED * self.size) if is_bounded else self.size
        looks_like_noise = territory.theta.noise > territory.theta.amplitude and territory.data.is_row.all()
        return max(size, _ROOM_FOR_NOISE) if looks_like_noise and len(self.models) == 1 else size

    # Rows

    def learn(self, X: Array, y: Array, weights: Array) -> None:
        for first in range(0, len(y), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            self._learn_some(X[some], y[some], weights[some])

    def _learn_some(self, X: Array, y: Array, weights: Array) -> None:
        owners, start = route(self.cuts, X), 0
        while start < len(y):
            stop, number = self._next_look(owners, y, weights, start)
            for owner in set(owners[start:stop].tolist()):
                rows = start + np.flatnonzero(owners[start:stop] == owner)
                visited = self.n_learned + int(rows[-1]) - start + 1
                self.models[owner] = self.models[owner].with_rows(X[rows], y[rows], weights[rows], visited)
            self.n_learned += stop - start
            if number is not None:
                cuts = self.cuts
                self._look(number)
                if self.cuts is not cuts:
                    owners[stop:] = route(self.cuts, X[stop:])
            start = stop

    def _next_look(self, owners: Indices, y: Array, weights: Array, start: int) -> tuple[int, int | None]:
        """The next row at which a territory must be looked at, plus one, and the number of that territory."""
        stop, number = len(owners), None
        for owner in sorted(set(owners[start:].tolist())):
            rows = start + np.flatnonzero(owners[start:stop] == owner)
            place = self._first_due(self.models[owner], y[rows], weights[rows])
            if place is not None:
                stop, number = int(rows[place]) + 1, owner
        return stop, number

    def _first_due(self, territory: Territory, y: Array, weights: Array) -> int | None:
        """Which of the next rows `y` (n, k), with weights (n,), makes a look at a territory due; None if none does."""
        n_until_full = self.room(territory) + 1 - len(territory.data)
        n_until_grown = int(np.ceil(_GROWTH * territory.n_fitted)) - territory.n_seen
        due = max(1, min(n_until_full, n_until_grown)) - 1
        deviation = np.abs(y[: due + 1] - territory.mean).max(axis=1)
        is_trusted = weights[: due + 1] / territory.theta.noise**2 >= territory.least_trusted
        trusted = np.where(is_trusted, deviation, 0.0)
        reach = np.maximum.accumulate(np.concatenate([[territory.largest_deviation], trusted]))[:-1]
        out = np.flatnonzero(deviation > _OUT_OF_REACH * np.maximum(reach, territory.theta.amplitude))
        first = min(due, int(out[0])) if len(out) else due
        return first if first < len(y) else None

    # Looks

    def _look(self, number: int) -> None:
        started, n_before = perf_counter(), len(self.models)
        territory = _without_copies(self.models[number])
        is_full = len(territory.data) > self.room(territory)
        is_due = territory.n_seen >= (_GROWTH_WHEN_FULL if is_full else _GROWTH) * territory.n_fitted
        surroundings, n_new = self._surroundings(number), len(territory.data) - territory.n_known
        is_contradicted = n_new > 0 and _is_contradicted(territory)
        if n_new < FEWEST_ROWS and not (is_full or is_due or is_contradicted):
            # A row is out of reach, or was a copy. So few rows are no regime yet: they stay new, but for outliers.
            self._put(_without_outliers(territory, surroundings)[0] if n_new else territory, number)
            return
        territory, forecasted = self._faded(territory), None
        if is_contradicted:
            forecasted, _ = forecast(territory, surroundings.halo)
        elif n_new:
            territory, forecasted = _without_outliers(territory, surroundings)
        looked, regime, n_evaluations = self._forecast_and_fit(territory, forecasted, surroundings, is_due)
        if regime is not None:
            self._start_regime(number, territory, regime)
        else:
            self._put(looked, number)
            if is_full:
                self._make_room(number)
        merged_pairs = self._merge_down()
        added = [Change(new, len(self.models[new].data), True) for new in range(n_before, len(self.models))]
        changes = (Change(number, n_new, False), *added) if not merged_pairs else (Change(number, n_new, False),)
        self.records.append(
            StepRecord(
                number=self.n_steps + len(self.records),
                n_samples=n_new,
                candidates=(number,),
                w_old=(None,),
                w_new=(None,),
                evidence=(looked.log_evidence,),
                evidence_new=None if regime is None else regime.log_evidence,
                dropped=(),
                changes=changes,
                seconds=perf_counter() - started,
                n_evaluations=n_evaluations,
                merged=merged_pairs,
            )
        )

    def _forecast_and_fit(
        self, territory: Territory, forecasted: Forecast | None, surroundings: Surroundings, is_due: bool
    ) -> tuple[Territory, Regime | None, int]:
        """The territory after a look, another regime if there is one, and the number of evaluations of the evidence."""
        n_known, n_data = territory.n_known, len(territory.data)
        if forecasted is None:
            return (fitted(territory, surroundings) if is_due else territory), None, 0
        self.whitened.append(forecasted.whitened)
        if not (is_due or forecasted.is_surprising):
            looked = replace(territory, n_known=n_data, log_evidence=forecasted.log_density, n_evaluations=0)
            return looked, None, 0
        is_surprised, regime, log_density = forecasted.is_surprising, None, forecasted.log_density
        is_apart = is_surprised and separating_axis(territory) is not None
        updated = fitted(territory, surroundings, is_surprised=is_surprised and not is_apart)
        n_evaluations = updated.n_evaluations
        if is_apart:  # a wide prior would let the update explain what is another regime
            regime = find_regime(territory, replace(updated, n_known=n_known), surroundings.halo)
            if regime is None and territory.n_lost:
                updated = fitted(territory, surroundings, is_surprised=True)
                n_evaluations += updated.n_evaluations
        if is_surprised:
            log_density = forecast(replace(updated, n_known=n_known), surroundings.halo)[0].log_density
            if regime is None and territory.n_lost:
                regime = rougher_part(territory, replace(updated, log_evidence=log_density))
        return replace(updated, log_evidence=log_density), regime, n_evaluations

    def _faded(self, territory: Territory) -> Territory:
        """After forgetting: what was known loses precision with every row that was learned since."""
        n_known, n_new = territory.n_known, len(territory.data) - territory.n_known
        if not self.settings.forgetting or not n_new:
            return territory
        precision = territory.data.precision.copy()
        precision[:n_known] *= (1.0 - self.settings.forgetting) ** (n_new / _ROWS_OF_FORGETTING)
        np.maximum(precision, LEAST_PRECISION, out=precision)
        return replace(territory, data=replace(territory.data, precision=precision))

    def _surroundings(self, number: int, least_agreement: float = 0.5) -> Surroundings:
        """The neighbours of a territory that agree with it, by more than a number between 0 and 1."""
        if len(self.models) + len(self.outside) == 1:
            return ALONE
        theta, everyone = self.models[number].theta, self.overview.with_others(self._overview_of_outside)
        squares = (((everyone.centres - everyone.centres[number]) / theta.lengthscales) ** 2).sum(axis=1)
        squares[number] = np.inf
        n = min(_N_NEIGHBOURS, len(squares) - 1)
        near = np.argpartition(squares, n - 1)[:n]
        near = near[np.argsort(squares[near], kind="stable")]
        near = near[agreement(everyone.log_thetas[near], everyone.log_thetas[number]) > least_agreement]
        if not len(near):
            return ALONE
        around = PseudoData.union(*(self._neighbour(other).plausible for other in near[:_N_IN_HALO].tolist()))
        halo = around.nearest_to_box(self.overview.grounds[number], theta.lengthscales, _N_HALO)
        return Surroundings(halo, everyone.log_thetas[near], everyone.spreads[near])

    def _neighbour(self, number: int) -> Territory:
        """A territory of its own, or one of those outside, which have the numbers behind them."""
        return self.models[number] if number < len(self.models) else self.outside[number - len(self.models)]

    @cached_property
    def _overview_of_outside(self) -> Overview | None:
        """Their grounds are left out, and have no meaning."""
        return Overview.of(self.outside, None) if self.outside else None

    # Changes

    def refit(self, number: int) -> None:
        """Fit the hyperparameters of a territory again, close to the mean of those of all its neighbours.

        Neighbours that disagree count too: they may have been learned without knowing of each other.
        """
        around = self._surroundings(number, least_agreement=-1.0)
        if len(around.log_theta):
            mean = around.log_theta.mean(axis=0)
            around = around._replace(log_theta=np.tile(mean, (len(around.log_theta), 1)))
        self._put(fitted(self.models[number], around), number)

    def _put(self, territory: Territory, number: int) -> None:
        """Put a territory in place of another."""
        if self._is_shared:
            self._choose(range(len(self.models)))
        self.models[number] = territory
        self.overview.set(number, territory)

    def _choose(self, numbers: Sequence[int] | Indices) -> None:
        """Let the overview have these territories; it is a copy then, which may be changed."""
        self.overview, self._is_shared = self.overview.rows(np.asarray(numbers)), False

    def _make_room(self, number: int) -> None:
        """Unite, thin or divide a full territory."""
        territory = self.models[number]
        united = territory.data.united()
        if len(united) < (1.0 - _WORTH_UNITING) * len(territory.data):
            self._put(replace(territory, data=united, n_known=len(united)), number)
            return
        territory, thinned = self._thinned(territory)
        if thinned is not None:
            self._put(replace(territory, data=thinned, n_known=len(thinned)), number)
            return
        self._put(territory, number)
        lengthscales, path = territory.theta.lengthscales.copy(), path_to(self.cuts, number, territory.data.Z[0])
        if len(path) >= _DEEP:
            lengthscales[path[-1][0].axis] *= 1e-9
        cut = median_cut(territory.data.Z, lengthscales)
        if cut is None:  # more than half of the places are the same
            united = territory.data.united()
            thinned = thin(territory.kernel, territory.theta, territory.mean, united, self.n_thinned, at_any_loss=True)
            assert thinned is not None
            self._put(replace(territory, data=thinned, n_known=len(thinned)), number)
            return
        below, above = territory.halves(*cut)
        assert below is not None
        assert above is not None
        self._divide(number, *cut, below, above, is_new_above=True)

    def _thinned(self, territory: Territory) -> tuple[Territory, PseudoData | None]:
        """A territory, and what its data become if they are thinned; None if they may not be.

        What is thinned as noise is lost. The noise may be a rougher field, which is seen only where rows are dense. So
        both are checked before rows are thinned for the first time.
        """
        n_features, are_rows = len(territory.centre), bool(territory.data.is_row.all())
        distance = self.size**-0.5 if n_features == 1 else _DENSE * self.size ** (-1.0 / n_features)
        if are_rows and not is_dense(territory, distance):
            return territory, None
        thinned = thin(territory.kernel, territory.theta, territory.mean, territory.data, self.n_thinned)
        rough = rougher(territory) if are_rows and thinned is not None else None
        return (territory, thinned) if rough is None else (rough, None)

    def _start_regime(self, number: int, territory: Territory, regime: Regime) -> None:
        Z = territory.data.Z[:, regime.axis]
        is_new = regime.position < Z if regime.is_above else regime.position >= Z
        n_new = int(is_new.sum())
        old = territory.part(~is_new, territory.n_seen - n_new, min(territory.n_fitted, territory.n_seen - n_new))
        old = replace(old, mean=territory.mean, n_known=len(old.data))
        data = territory.data[is_new].with_noise(territory.theta.noise, regime.theta.noise)
        spread = spread_of(data.Z)
        new = Territory(
            territory.kernel, regime.theta, regime.mean, data, n_new, n_new, n_new, spread, territory.visited
        )
        below, above = (old, new) if regime.is_above else (new, old)
        self._divide(number, regime.axis, regime.position, below, above, is_new_above=regime.is_above)

    def _divide(
        self, number: int, axis: int, position: float, below: Territory, above: Territory, is_new_above: bool
    ) -> None:
        inside, last = self.models[number].data.Z[0], len(self.models)
        numbers = (number, last) if is_new_above else (last, number)
        self.cuts = divided(self.cuts, inside, axis, position, numbers)
        self._choose([*range(last), number])
        grounds = self.overview.grounds
        grounds[numbers[0], 1, axis] = grounds[numbers[1], 0, axis] = position
        old, new = (below, above) if is_new_above else (above, below)
        self.models.append(new)
        self._put(old, number)
        self._put(new, last)

    def _merge_down(self) -> tuple[tuple[int, int], ...]:
        """Merge neighbours while there are too many territories; the pairs that were merged."""
        pairs: list[tuple[int, int]] = []
        while self.settings.max_models is not None and len(self.models) > max(1, self.settings.max_models):
            n_pairs = min(_N_PAIRS, max(1, int(_OLD * len(self.models))))
            first, second = min(islice(self._oldest_pairs(), n_pairs), key=lambda pair: self._merger(*pair).loss)
            self._merge(first, second)
            pairs.append((min(first, second), max(first, second)))
        return tuple(pairs)

    def _oldest_pairs(self) -> Iterator[tuple[int, int]]:
        """Neighbours that can be merged. First those of which the later visit was longest ago."""
        before: set[int] = set()
        for number in np.argsort([model.visited for model in self.models], kind="stable").tolist():
            before.add(number)
            pairs = adjacent(self.cuts, number, self.models[number].data.Z[0])
            yield from (pair for pair in pairs if before.issuperset(pair))

    def _merger(self, first: int, second: int) -> "_Merger":
        """What two territories would become; old neighbours are compared at every merge, and do not change."""
        one, other = self.models[first], self.models[second]
        known = _MERGERS.setdefault(one, WeakKeyDictionary())
        if other not in known:
            known[other] = _merger(one, other, self.size)
        return known[other]

    def _merge(self, first: int, second: int) -> None:
        low, high = min(first, second), max(first, second)
        both, inside = self._merger(first, second).territory, self.models[first].data.Z[0]
        self.cuts = merged(self.cuts, (first, second), low, inside)
        self._put(both, low)
        grounds = self.overview.grounds
        grounds[low] = grounds[first, 0], grounds[second, 1]  # the first is below the cut between them
        self._remove(high)

    def _remove(self, number: int) -> None:
        """Remove what is no longer in the tree. The last territory takes its number."""
        last, numbers = self.models.pop(), np.arange(len(self.models))
        if number < len(self.models):
            self.cuts = renumbered(self.cuts, len(self.models), number, last.data.Z[0])
            self.models[number], numbers[number] = last, len(self.models)
        self._choose(numbers)


class _Merger(NamedTuple):
    """What two territories become, and how much they lose: nats."""

    territory: Territory
    loss: float


_MERGERS: WeakKeyDictionary[Territory, WeakKeyDictionary[Territory, _Merger]] = WeakKeyDictionary()


def _merger(one: Territory, other: Territory, n_most: int) -> _Merger:
    """Two territories as one of at most `n_most` pseudo-data."""
    n_seen, n_fitted = one.n_seen + other.n_seen, one.n_fitted + other.n_fitted
    share = one.n_seen / max(1, n_seen)
    theta = Hyperparameters.from_log(
        share * one.theta.to_log() + (1.0 - share) * other.theta.to_log(), len(one.theta.lengthscales)
    )
    data = PseudoData.union(one.with_theta(theta).data, other.with_theta(theta).data).united()
    mean = np.average(data.t, axis=0, weights=data.precision)
    if len(data) > n_most:
        thinned = thin(one.kernel, theta, mean, data, n_most, at_any_loss=True)
        assert thinned is not None
        data = thinned
    both = replace(
        one, theta=theta, mean=mean, data=data, n_known=len(data), n_seen=n_seen, n_fitted=n_fitted,
        spread=np.maximum(one.spread, other.spread), visited=max(one.visited, other.visited),
    )  # fmt: skip
    return _Merger(both, _divergence(one, both) + _divergence(other, both))


def _divergence(territory: Territory, both: Territory) -> float:
    """Kullback-Leibler divergence of what a territory says of an observation from what both say, sum of its places."""
    (mean, variance), (mean_now, variance_now) = (each.predict(territory.data.Z) for each in (territory, both))
    noise = territory.theta.noise**2
    ratio, squares = (variance + noise) / (variance_now + noise), (mean - mean_now) ** 2
    spread = mean.shape[1] * (ratio - 1.0 - np.log(ratio))
    return 0.5 * float((squares.sum(axis=1) / (variance_now + noise) + spread).sum())


def _without_copies(territory: Territory) -> Territory:
    """The territory without new rows that are known already, place and value: copies of a row tell nothing more.

    A survey that is given twice would otherwise seem to have half of its noise.
    """
    data, new = territory.data, territory.new_rows
    if len({place.tobytes() for place in data.Z}) == len(data):
        return territory
    is_before = np.arange(len(data)) < np.arange(territory.n_known, len(data))[:, None]
    is_there = (new.Z[:, None] == data.Z).all(axis=-1) & is_before
    precision = is_there @ data.precision
    value = (is_there @ (data.precision[:, None] * data.t)) / np.maximum(precision, LEAST_PRECISION)[:, None]
    is_same = (np.abs(value - new.t) * np.sqrt(new.precision)[:, None] < _ROUNDING).all(axis=1)
    is_copy = is_same & (precision > (1.0 - _ROUNDING) * new.precision)
    kept = np.concatenate([np.ones(territory.n_known, dtype=np.bool_), ~is_copy])
    return replace(territory, data=data[kept], n_fitted=territory.n_fitted + int(is_copy.sum()))


def _without_outliers(territory: Territory, surroundings: Surroundings) -> tuple[Territory, Forecast]:
    """The territory after outliers among its new rows were down-weighted, and the forecast of these rows."""
    forecasted, _ = forecast(territory, surroundings.halo)
    if (forecasted.weights < 1.0).any():
        territory = territory.down_weighted(forecasted.weights)
        forecasted, _ = forecast(territory, surroundings.halo)  # rows behind an outlier, without its influence
    return territory, forecasted


def _is_contradicted(territory: Territory) -> bool:
    """Whether the newest row is out of reach, and half of the latest rows were outliers on the same side of the mean.

    A row out of reach makes a look due at once, which finds no other outlier: those before it have no weight any more.
    So the limits on outliers of one look do not notice that there are many of them, and that the field has changed.
    """
    latest, before = territory.data[-2 * FEWEST_ROWS :], territory.data[:-1]
    is_outlier = latest.is_row & (latest.precision < territory.least_trusted)
    # Rows that came with next to no weight say nothing. They share it, while no two outliers have the same.
    _, places, counts = np.unique(latest.precision, return_inverse=True, return_counts=True)
    is_outlier &= counts[places] == 1
    if is_outlier.sum() < FEWEST_ROWS - 1 or not latest.is_row[-1]:
        return False
    known = replace(territory, data=before, n_known=min(territory.n_known, len(before)))
    reach = _OUT_OF_REACH * max(known.largest_deviation, territory.theta.amplitude)
    deviation = latest.t - territory.mean
    is_out = np.stack([deviation > reach, deviation < -reach])  # (2, n, k): above or below
    n_outliers = (is_out & is_outlier[:, None]).sum(axis=1)
    return bool((is_out[:, -1] & (n_outliers >= FEWEST_ROWS - 1)).any())
