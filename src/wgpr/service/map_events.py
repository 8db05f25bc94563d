"""What happens in a map, told to the clients: the track, changed ground, decisions and scores, a few times a second."""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

from wgpr.ensemble.evaluation import StepRecord
from wgpr.ensemble.territories import Territories
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array, Indices
from wgpr.io.coordinates import boxes_for_user, user_bounds
from wgpr.io.rows import knows_rows_at_once
from wgpr.service.events import EventHub

# Rows of the track: the latest ones.
_N_TRACK = 2000
# Seconds between two events of a kind, and numbers of the track in one event.
_INTERVAL, _NUMBERS_AT_ONCE = 0.2, 600
_MOST_DECISIONS, _MOST_BOXES = 5, 50
# A change of a model also changes answers near its ground, within this fraction of its size.
_MARGIN = 0.25


class Decision(BaseModel):
    """What was decided about some rows."""

    step: int
    rows: int
    text: str


def decisions(model: EnsembleRegressor, first_step: int, most: int) -> list[Decision]:
    """The latest ones since a step, at most so many, latest first."""
    is_default, found = knows_rows_at_once(model), list[Decision]()
    for record in reversed(model.history_[-1000:]):
        if record.number < first_step or len(found) == most:
            break
        if text := _in_words(record, is_default=is_default):
            found.append(Decision(step=record.number, rows=record.n_samples, text=text))
    return found


def _in_words(record: StepRecord, *, is_default: bool) -> str:
    """What was decided in a step; empty if only models that were there have learned.

    is_default : whether the step is of the default method. Only for that method the record tells why a model is new.
    """
    new = [f"{change.model}" for change in record.changes if change.is_new]
    parts = [
        f"models {first} and {second} merged: there are as many as there may be" for first, second in record.merged
    ]
    if new:
        parts.insert(0, f"new model {', '.join(new)}{f': {_reason(record)}' if is_default else ''}")
    return "; ".join(parts)


def _reason(record: StepRecord) -> str:
    """Why the default method has made a new model."""
    is_regime = record.evidence_new is not None
    return "another kind of ground" if is_regime else f"model {record.changes[0].model} was full and is divided"


@dataclass(frozen=True, eq=False)
class ChangedGround:
    """Which ground each of J models answers for, and when it changed: so that only changed tiles are made again.

    low, high : (J, d), in the user's units; rows : (J,), rows learned at the last change.

    A model that has no borders of its own, as those of the paper's methods, may answer everywhere.
    """

    low: Array
    high: Array
    rows: Indices

    @classmethod
    def of(
        cls, model: EnsembleRegressor, before: "ChangedGround | None", previous: EnsembleRegressor | None
    ) -> "ChangedGround":
        """The ground of a model, given that of the previous one."""
        n_rows, bounds = model.n_samples_seen_, user_bounds(model)
        ensemble = model._state.ensemble
        if not isinstance(ensemble, Territories):
            return cls(bounds[:1], bounds[1:], np.array([n_rows]))
        known = previous._state.ensemble.models if before is not None and previous is not None else ()
        rows = np.full(len(ensemble), n_rows)
        for number, (old, new) in enumerate(zip(known, ensemble.models, strict=False)):
            if old is new and before is not None:
                rows[number] = before.rows[number]
        edges = np.stack([model.units_.inputs_for_user(side) for side in ensemble.overview.grounds.swapaxes(0, 1)])
        low, high = np.clip(edges, model.bounds_[0], model.bounds_[1])
        low, high = boxes_for_user(model, low, high)
        margin = _MARGIN * (high - low)
        return cls(low - margin, high + margin, rows)

    def changed_since(self, n_rows: int) -> list[tuple[list[float], list[float]]]:
        """Low and high corner of each ground that changed after `n_rows` rows were learned."""
        is_new = self.rows > n_rows
        return list(zip(self.low[is_new].tolist(), self.high[is_new].tolist(), strict=True))

    def last_change(self, low: Array, high: Array) -> int:
        """Rows learned at the last change of what the box from `low` to `high` (d,) shows. NaN fits anything."""
        with np.errstate(invalid="ignore"):
            is_apart = ((self.low > high) | (self.high < low)).any(axis=1)
        return int(self.rows[~is_apart].max(initial=0))


class MapEvents:
    """Collects what happens in a map and publishes it.

    track : (n, d + 1) the latest rows that were told, with the target last; ground : of the model that answers.
    """

    def __init__(self, name: str, hub: EventHub) -> None:
        self._name, self._hub = name, hub
        self.track: Array | None = None
        self.ground: ChangedGround | None = None
        self._rows: list[Array] = []
        self._timer: asyncio.TimerHandle | None = None
        self._n_told = self._n_steps = 0
        self._latest: tuple[EnsembleRegressor, dict[str, Any] | None] | None = None
        self._n_seen = 0

    def rows_accepted(self, rows: Array, n_seen: int) -> None:
        """Rows (n, d + 1) are on the disk, which has `n_seen` now."""
        self._rows.append(rows)
        self._n_seen = n_seen
        self._tell_soon()

    def model_changed(
        self, model: EnsembleRegressor, previous: EnsembleRegressor | None, forecasts: dict[str, Any] | None
    ) -> None:
        """Another model answers now."""
        if self.ground is None or previous is None:
            self._n_told, self._n_steps = model.n_samples_seen_, model._state.n_steps
        self.ground = ChangedGround.of(model, self.ground, previous)
        self._latest = model, forecasts
        self._tell_soon()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._tell)

    def _tell(self) -> None:
        self._timer = None
        if self._rows:
            rows, self._rows = np.concatenate(self._rows), []
            before = rows[:0] if self.track is None else self.track
            self.track = np.concatenate([before, rows[-_N_TRACK:]])[-_N_TRACK:]
            points = rows[-max(1, _NUMBERS_AT_ONCE // rows.shape[1]) :].tolist()
            self._hub.publish("rows", self._name, rows_seen=self._n_seen, points=points)
        if self._latest is not None:
            self._tell_learned(*self._latest)
            self._latest = None

    def _tell_learned(self, model: EnsembleRegressor, forecasts: dict[str, Any] | None) -> None:
        assert self.ground is not None
        boxes: Any = self.ground.changed_since(self._n_told)
        decided = decisions(model, self._n_steps, _MOST_DECISIONS)
        self._n_told, self._n_steps = model.n_samples_seen_, model._state.n_steps
        self._hub.publish(
            "learned",
            self._name,
            rows_learned=model.n_samples_seen_,
            models=model.n_models_,
            extent=user_bounds(model).T.tolist(),
            boxes=boxes if len(boxes) <= _MOST_BOXES else None,
            forecasts=forecasts,
        )
        for decision in reversed(decided):
            self._hub.publish("decision", self._name, step=decision.step, text=decision.text)
