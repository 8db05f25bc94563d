"""States of models from one process to another: only what changed is sent."""

import io
import pickle
from dataclasses import replace
from typing import Any

from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.methods import HISTORY_SIZE
from wgpr.estimators.state import State


class _PartPickler(pickle.Pickler):
    """Writes parts of a state as their numbers. numbers : by the identity of the part."""

    def __init__(self, file: io.BytesIO, numbers: dict[int, int]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._numbers = numbers

    def persistent_id(self, part: Any) -> int | None:
        return self._numbers.get(id(part))


class _PartUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: dict[int, Any]) -> None:
        super().__init__(file)
        self._parts = parts

    def persistent_load(self, number: int) -> Any:
        return self._parts[number]


class StateSender:
    """Writes what changed in a model since the last time. Parts of a state are immutable, so identity tells."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[int, Any]] = {}  # number and part, by the part's identity
        self._n_parts = self._n_steps = 0

    def change(self, model: EnsembleRegressor) -> bytes:
        state = model._state
        known, self._parts = self._parts, {}
        new = {}
        for part in _parts(state):
            if id(part) not in known:
                self._n_parts += 1
                new[self._n_parts] = part
                known[id(part)] = self._n_parts, part
            self._parts[id(part)] = known[id(part)]
        numbers = {identity: number for identity, (number, _) in self._parts.items()}
        records = tuple(record for record in state.records if record.number >= self._n_steps)
        self._n_steps = state.n_steps
        attributes = {name: value for name, value in vars(model).items() if name not in ("_state", "_known_method")}
        file = io.BytesIO()
        pickle.dump((new, list(numbers.values())), file, protocol=pickle.HIGHEST_PROTOCOL)
        _PartPickler(file, numbers).dump((type(model), attributes, replace(state, records=()), records))
        return file.getvalue()


class StateReceiver:
    """Makes the models that a `StateSender` has sent."""

    def __init__(self) -> None:
        self._parts: dict[int, Any] = {}
        self._records: tuple[Any, ...] = ()

    def model(self, change: bytes, previous: EnsembleRegressor | None) -> EnsembleRegressor:
        """The model after a change. It shares the cache for answers with the `previous` one."""
        file = io.BytesIO(change)
        new, numbers = pickle.load(file)
        known = self._parts | new
        self._parts = {number: known[number] for number in numbers}
        kind, attributes, state, records = _PartUnpickler(file, self._parts).load()
        self._records = (*self._records, *records)[-HISTORY_SIZE:]
        cache = state.cache if previous is None else previous._state.cache
        model: EnsembleRegressor = kind.__new__(kind)
        model.__dict__.update(attributes, _state=replace(state, records=self._records, cache=cache))
        return model


def _parts(state: State) -> list[Any]:
    """The large parts of a state that may stay the same."""
    others = (getattr(state.ensemble, name, None) for name in ("cuts", "overview"))
    return [*state.ensemble.models, *(part for part in others if part is not None)]
