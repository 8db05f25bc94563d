"""A worker of a fleet: it learns the rows of some districts. It may die at any time and be started again.

Rows are in the journal of their district before the worker says that it has taken them, and a thread learns them from
there. A snapshot is saved from time to time. A worker that is started again finds both, as the service does. Rows have
numbers, so that rows that are sent again are not taken twice.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread
from time import perf_counter

from wgpr.ensemble.territories import Territories
from wgpr.ensemble.territory import Territory
from wgpr.estimators.regressors import WGPRegressor
from wgpr.estimators.state import State
from wgpr.fleet.borders import Border, border, told
from wgpr.fleet.ground import halved
from wgpr.gp.linalg import Array
from wgpr.io.files import write_file
from wgpr.io.journal import Entry
from wgpr.io.rows import n_seen
from wgpr.io.store import SNAPSHOT, Store
from wgpr.rules.calibration import Calibration

# Snapshots take this fraction of the time at the most, and are no more frequent than this: seconds.
_SNAPSHOTS, _LEAST_INTERVAL = 0.05, 1.0

# Rows that are learned before the worker looks whether it is asked for something else.
_PIECE = 1000


class District:
    """The rows of one part of the ground: a folder with a journal and a snapshot, and the model that has learned them.

    beginning : a model that has units and has learned nothing.
    """

    def __init__(self, folder: Path, beginning: WGPRegressor) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._store, saved = Store.in_folder(folder, lambda _: {})
        self.model: WGPRegressor = copy(beginning) if saved is None else saved
        self._outside: dict[str, dict[int, Territory]] = {}
        self._saved_at, self._save_seconds = perf_counter(), 0.0

    @property
    def n_learned(self) -> int:
        return n_seen(self.model)

    @property
    def n_lacking(self) -> int:
        """Rows that are in the journal and not learned."""
        return self._store.journal.n_rows - self.n_learned

    @property
    def territories(self) -> Territories | None:
        """None as long as there are too few rows."""
        ensemble = self.model._state.ensemble
        return ensemble if isinstance(ensemble, Territories) else None

    def take(self, first: int, rows: Array) -> int:
        """Write rows (n, d + k + 1) to the journal: inputs, targets and weight. Returns how many it has taken then.

        first : number of rows before these. Those that it has already are left out. If some before are missing,
        nothing is taken.
        """
        journal = self._store.journal
        n_known = journal.n_rows - first
        if 0 <= n_known < len(rows):
            journal.append([Entry(rows[n_known:])])
        return journal.n_rows

    def next_rows(self) -> Array:
        """Rows that are next to be learned; there must be some."""
        return next(self._store.journal.records(self.n_learned)).rows[:_PIECE]

    def learned(self, rows: Array) -> WGPRegressor:
        """The model after more rows."""
        model, n_features = copy(self.model), self.model.n_features_in_
        _surround(model, tuple(each for others in list(self._outside.values()) for each in others.values()))
        targets = rows[:, n_features:-1].reshape(len(rows), *model._state.pending_y.shape[1:])
        model.partial_fit(rows[:, :n_features], targets, rows[:, -1])
        _surround(model, ())
        return model

    def save_if_due(self) -> None:
        """Save a snapshot, unless the last one was a short time ago."""
        if perf_counter() - self._saved_at > max(_LEAST_INTERVAL, self._save_seconds / _SNAPSHOTS):
            self.save()

    def save(self) -> None:
        started, model = perf_counter(), self.model
        if n_seen(model):
            self._store.write(model.to_bytes(), n_seen(model))
            self._store.trim()
        self._saved_at = perf_counter()
        self._save_seconds = self._saved_at - started

    def hear(self, source: str, package: bytes) -> None:
        """Use what another district tells of its border."""
        outputs, kernel = self.model._state.pending_y.shape[1:], self.model._method().settings.kernel  # type: ignore
        known = self._outside.get(source, {})
        self._outside[source] = told(package, known, kernel, self.model.n_features_in_, outputs)

    def close(self) -> None:
        self._store.close()


class Worker:
    """Learns the rows of districts in a thread, and answers calls meanwhile.

    folder : of the fleet; it has a folder for each district.
    """

    def __init__(self, folder: str, beginning: WGPRegressor) -> None:
        self._folder, self._beginning = Path(folder), beginning
        self._districts: dict[str, District] = {}
        self._changed = Condition()
        self._failure: Exception | None = None
        self._is_stopped = False
        self._thread = Thread(target=self._learn_all, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the journals. What was taken is on the disk."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()
        for district in self._districts.values():
            district.close()

    # Calls

    def take(self, name: str, first: int, rows: Array) -> int:
        """As of `District`."""
        with self._district(name) as district:
            n_taken = district.take(first, rows)
            self._changed.notify_all()
            return n_taken

    def n_learned(self, names: Sequence[str]) -> list[int]:
        """Rows that each of these districts has learned."""
        found = []
        for name in names:
            with self._district(name) as district:
                found.append(district.n_learned)
        return found

    def tell(self, name: str, ground: Array, seen: dict[int, int], max_bytes: float) -> Border | None:
        """What a district has to tell another with this ground (2, d); see `wgpr.fleet.borders`."""
        with self._district(name) as district:
            territories = district.territories
        return None if territories is None else border(territories, ground, seen, max_bytes)

    def hear(self, name: str, source: str, package: bytes) -> None:
        """What another district has told; it takes the place of what it told before."""
        with self._district(name) as district:
            district.hear(source, package)

    def model(self, name: str) -> WGPRegressor:
        """What a district has learned, when it has learned all rows that it has taken."""
        with self._district(name) as district:
            self._wait_until_learned(district)
            return district.model

    def process_id(self) -> int:
        return os.getpid()

    def divide(self, name: str, parts: tuple[str, str]) -> tuple[int, float] | None:
        """Make two districts of one that has learned all of its rows. It stays until it is removed.

        Returns axis and position of the cut between them, in the ensemble's units; None if there is none.
        """
        with self._district(name) as district:
            self._wait_until_learned(district)
            halves = None if district.territories is None else halved(district.territories)
            if halves is None:
                return None
            axis, position, *sides = halves
            for part, side in zip(parts, sides, strict=True):
                folder, model = self._folder / part, copy(district.model)
                folder.mkdir(exist_ok=True)
                model._state = _state_of_half(district.model._state, side)
                write_file(folder / SNAPSHOT, model.to_bytes())
            return axis, position

    def remove(self, name: str) -> None:
        """Forget a district that was divided, and remove its files."""
        with self._changed:
            if name in self._districts:
                self._districts.pop(name).close()
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _wait_until_learned(self, district: District) -> None:
        """Wait for a district that has perhaps been opened again, and learns its journal. The caller has the lock."""
        while district.n_lacking and self._failure is None:
            self._changed.wait(0.1)
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _district(self, name: str) -> Iterator[District]:
        """A district, which nobody else uses during the block."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if name not in self._districts:
                self._districts[name] = District(self._folder / name, self._beginning)
                self._changed.notify_all()
            yield self._districts[name]

    # The thread that learns

    def _learn_all(self) -> None:
        while not self._is_stopped:
            try:
                self._learn_some()
            except Exception as error:
                with self._changed:
                    self._failure = error
                return

    def _learn_some(self) -> None:
        """Learn some rows of the district that lacks most."""
        with self._changed:
            district = max(self._districts.values(), key=lambda each: each.n_lacking, default=None)
            if district is None or not district.n_lacking:
                if not self._is_stopped:
                    self._changed.wait()
                return
            rows = district.next_rows()
        model = district.learned(rows)
        with self._changed:
            district.model = model
            with suppress(OSError):  # without room for a snapshot the journal keeps the rows
                district.save_if_due()


def _surround(model: WGPRegressor, outside: tuple[Territory, ...]) -> None:
    """Let territories of other districts be the neighbours of a model's own."""
    ensemble = model._state.ensemble
    if isinstance(ensemble, Territories):
        model._state = replace(model._state, ensemble=replace(ensemble, outside=outside))


def _state_of_half(state: State, territories: Territories) -> State:
    """The state of a district that has these territories of another."""
    n_rows = territories.n_learned
    calibration = Calibration(0.5 * state.calibration.counts, state.calibration.initial_factor)
    return replace(state, ensemble=territories, n_seen=n_rows, records=(), n_steps=0, calibration=calibration)
