"""Sends rows to the districts of a fleet, each of which one worker learns, and joins what they have learned.

Each district takes its rows in their order and says how many it has. Rows are kept here until the district has them on
the disk, and are sent again if its worker dies. So each row is taken once, whatever happens to a worker.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter, sleep
from typing import Any, cast

import numpy as np

from wgpr.ensemble.cuts import Cuts, Node, all_cuts, grounds, route, with_leaves
from wgpr.ensemble.territories import Territories
from wgpr.estimators.methods import TerritoryMethod
from wgpr.estimators.regressors import WGPRegressor
from wgpr.estimators.state import State
from wgpr.fleet.engines import Engine, WorkerDiedError
from wgpr.fleet.ground import joined, smoothed
from wgpr.gp.linalg import Array
from wgpr.rules.calibration import Calibration

# Rows that are sent to a district together.
_PARCEL = 2000

# Rows that may wait in the journal of a district.
_BACKLOG = 2_000_000

# Seconds between two looks at what the districts have learned.
_INTERVAL = 0.5

# Borders are told when a district has grown by this factor. Bytes of all that is told, for each row that was learned.
_GROWTH, _BYTES_A_ROW = 1.2, 7.0

# A district with so many times the rows of the others in the mean is divided, if it has at least so many.
_TOO_LARGE, _FEWEST_DIVIDED = 3.0, 20_000

_FOLDER = "all workers must see the same folder"

# Deaths of a worker, one after the other without any answer, after which the fleet gives up.
_MOST_DEATHS = 20

# Waits after a death become longer, up to 0.01 s times 2 to this power: the actors of a node that is gone are started
# again elsewhere only after half a minute.
_LONGEST_WAIT = 10


@dataclass(eq=False)
class _District:
    """What the coordinator knows of a district.

    n_rows : sent or about to be sent; n_learned : as it last said. waiting : rows that it has not yet taken.
    state : what it had learned when it was last asked. n_told : n_learned when it last told its borders.
    """

    name: str
    worker: int
    n_rows: int = 0
    n_learned: int = 0
    waiting: list[Array] = field(default_factory=list)
    state: State | None = None
    n_told: int = 0

    @property
    def n_waiting(self) -> int:
        return sum(map(len, self.waiting))


class Coordinator:
    """A fleet at work. cuts : between the districts, in the ensemble's units.

    n_bytes_told : of all borders so far; n_deaths : of workers.
    """

    def __init__(self, engine: Engine, cuts: Node, beginning: WGPRegressor) -> None:
        self._engine, self._cuts, self._beginning = engine, cuts, beginning
        self._n_names = 0
        self._districts = [
            self._new_district(number % engine.n_workers) for number in range(1 + len(list(all_cuts(cuts))))
        ]
        self._seen: dict[tuple[str, str], dict[int, int]] = {}  # what is told, by source and target
        self._looked_at = perf_counter()
        self.n_bytes_told = self.n_deaths = 0

    @property
    def n_districts(self) -> int:
        return len(self._districts)

    @property
    def n_rows(self) -> int:
        """Rows that were given to it."""
        return sum(district.n_rows for district in self._districts)

    @property
    def n_learned(self) -> int:
        """Rows that were learned when it last looked."""
        return sum(district.n_learned for district in self._districts)

    def process_ids(self) -> list[int]:
        return [self._ask(worker, "process_id") for worker in range(self._engine.n_workers)]

    # Rows

    def send(self, places: Array, rows: Array) -> None:
        """Send rows (n, d + k + 1) at `places` (n, d), in the ensemble's units. They are learned in the background."""
        owners = route(self._cuts, places)
        for number in np.unique(owners).tolist():
            district, part = self._districts[number], rows[owners == number]
            district.waiting.append(part)
            district.n_rows += len(part)
        for district in self._districts:  # all rows wait before one is sent: if that fails, none is lost
            if district.n_waiting >= _PARCEL:
                self._dispatch(district)
        if perf_counter() - self._looked_at > _INTERVAL:
            self._look()
            self._divide_if_too_large()
            while max(district.n_rows - district.n_learned for district in self._districts) > _BACKLOG:
                sleep(_INTERVAL)
                self._look()

    def drain(self, show: Callable[[int], None] | None = None) -> None:
        """Wait until all rows are learned. show : is called with their number meanwhile."""
        for district in self._districts:
            self._dispatch(district)
        self._look()
        while self.n_learned < self.n_rows:
            if show is not None:
                show(self.n_learned)
            sleep(0.1 * _INTERVAL)
            self._look()

    def _dispatch(self, district: _District) -> None:
        """Send what waits for a district. Rows wait until they are on its disk; it leaves out what it has already."""
        rows = np.concatenate(district.waiting) if district.waiting else np.zeros((0, 0))
        for n_taken in range(district.n_rows - len(rows), district.n_rows, _PARCEL):
            parcel, rows = rows[:_PARCEL], rows[_PARCEL:]
            n_then = self._ask(district.worker, "take", district.name, n_taken, parcel)
            if n_then != n_taken + len(parcel):
                raise RuntimeError(f"a worker has {n_then:,} rows of a district that had {n_taken:,}; {_FOLDER}")
            district.waiting = [rows]

    def _ask(self, worker: int, method: str, *arguments: Any) -> Any:
        """Call a worker, and call it again if it dies. All calls may be repeated without harm."""
        for number in range(_MOST_DEATHS + 1):
            try:
                return self._engine.call(worker, method, *arguments)
            except WorkerDiedError as error:
                death = error
            self.n_deaths += number == 0
            names = {district.name for district in self._districts if district.worker == worker}
            self._seen = {pair: seen for pair, seen in self._seen.items() if pair[1] not in names}  # it has forgotten
            sleep(0.01 * 2 ** min(_LONGEST_WAIT, number + 1))
        fault = f"a worker died {_MOST_DEATHS} times in a row, perhaps for lack of memory"
        raise RuntimeError(f"{fault}; use fewer shards") from death

    # What districts have learned, and tell each other

    def _look(self) -> None:
        """Ask how many rows the districts have learned. Let those that have grown tell their borders."""
        for worker in range(self._engine.n_workers):
            districts = [each for each in self._districts if each.worker == worker]
            counts = self._ask(worker, "n_learned", [each.name for each in districts])
            for district, n_learned in zip(districts, counts, strict=True):
                district.n_learned = n_learned
        self._tell_borders()
        self._looked_at = perf_counter()

    def _tell_borders(self) -> None:
        due = [each for each in self._districts if each.n_learned > _GROWTH * each.n_told + 100]
        if not due or len(self._districts) == 1:
            return
        n_features = self._beginning.n_features_in_
        ground = dict(zip(self._districts, grounds(self._cuts, self.n_districts, n_features), strict=True))
        for source in due:
            source.n_told = source.n_learned
            for target in self._districts:
                if target is not source and _touch(ground[source], ground[target]):
                    self._tell(source, target, ground[target])

    def _tell(self, source: _District, target: _District, ground: Array) -> None:
        pair, max_bytes = (source.name, target.name), _BYTES_A_ROW * self.n_learned - self.n_bytes_told
        told = self._ask(source.worker, "tell", source.name, ground, self._seen.get(pair, {}), max_bytes)
        if told is not None:
            self._ask(target.worker, "hear", target.name, source.name, told.package)
            self._seen[pair] = told.seen
            self.n_bytes_told += len(told.package)

    # Districts

    def _new_district(self, worker: int) -> _District:
        self._n_names += 1
        return _District(f"district-{self._n_names}", worker)

    def _divide_if_too_large(self) -> None:
        """Divide the largest district if it has far more rows than the others. One half gets the idlest worker."""
        largest = max(self._districts, key=lambda each: each.n_rows)
        mean = (self.n_rows - largest.n_rows) / max(1, self.n_districts - 1)
        if self.n_districts == 1 or largest.n_rows < max(_TOO_LARGE * mean, _FEWEST_DIVIDED):
            return
        self._dispatch(largest)
        while largest.n_learned < largest.n_rows:  # short calls, each of which a worker that often dies can answer
            sleep(0.1 * _INTERVAL)
            self._look()
        load = [sum(each.n_rows for each in self._districts if each.worker == w) for w in range(self._engine.n_workers)]
        parts = self._new_district(largest.worker), self._new_district(int(np.argmin(load)))
        cut = self._ask(largest.worker, "divide", largest.name, (parts[0].name, parts[1].name))
        if cut is None:
            return
        axis, position = cut
        number, last = self._districts.index(largest), len(self._districts)
        leaves: list[Node | None] = list(range(last))
        leaves[number] = Cuts(axis, (position,), (number, last))
        self._cuts = cast(Node, with_leaves(self._cuts, leaves))
        self._districts[number] = parts[0]
        self._districts.append(parts[1])
        for part in parts:
            (part.n_rows,) = self._ask(part.worker, "n_learned", [part.name])
            part.n_learned = part.n_rows
        if parts[0].n_rows + parts[1].n_rows != largest.n_rows:
            raise RuntimeError(f"{largest.n_rows:,} rows of a district are not all in its parts; {_FOLDER}")
        self._seen = {pair: seen for pair, seen in self._seen.items() if largest.name not in pair}
        self._ask(largest.worker, "remove", largest.name)

    # What they have learned together

    def collect(self, show: Callable[[int], None] | None = None) -> State:
        """The state of one ensemble that has learned all rows. It has no records of the districts' steps."""
        self.drain(show)
        states = [self._state(district) for district in self._districts]
        known = [state for state in states if state.n_seen]
        method = self._beginning._method()
        assert isinstance(method, TerritoryMethod)
        ensembles = [cast(Territories, method.begun(state).ensemble) if state.n_seen else None for state in states]
        territories = smoothed(joined(self._cuts, ensembles), self._cuts, method.settings)
        bounds = np.stack([state.bounds for state in known])
        return replace(
            self._beginning._state,
            ensemble=territories,
            bounds=np.stack([bounds[:, 0].min(axis=0), bounds[:, 1].max(axis=0)]),
            n_steps=sum(state.n_steps for state in known),
            n_seen=sum(state.n_seen for state in known),
            calibration=Calibration(np.sum([state.calibration.counts for state in known], axis=0)),
        )

    def _state(self, district: _District) -> State:
        if district.state is None or district.state.n_seen != district.n_rows:
            district.state = self._ask(district.worker, "model", district.name)._state
        if (n_seen := district.state.n_seen) != district.n_rows:
            raise RuntimeError(f"a worker has {n_seen:,} rows of a district with {district.n_rows:,}; {_FOLDER}")
        return district.state

    def close(self) -> None:
        self._engine.close()


def _touch(one: Array, other: Array) -> bool:
    """Whether two grounds (2, d) have a border."""
    return bool(((one[0] <= other[1]) & (one[1] >= other[0])).all())
