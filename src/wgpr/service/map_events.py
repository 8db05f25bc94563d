"""What happens in a map, told to the clients: the track, changed ground, decisions and scores, a few times a second."""

import asyncio
from collections import deque
from typing import Any

import numpy as np

from wgpr.ensemble.evaluation import StepRecord
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import user_bounds
from wgpr.io.rows import knows_rows_at_once
from wgpr.metrics import Scores
from wgpr.service.changed_ground import ChangedGround
from wgpr.service.events import EventHub

# Rows of the track: the latest ones.
N_TRACK = 2000
# Seconds between two events of a kind, and points of the track in one event.
_INTERVAL, _POINTS_AT_ONCE = 0.2, 200
_MOST_DECISIONS, _MOST_BOXES = 5, 50


def in_words(record: StepRecord, *, is_default: bool) -> str:
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


class MapEvents:
    """Collects what happens in a map and publishes it.

    track : the latest rows, (d + 1,) each, with the target last; ground : of the model that answers.
    """

    def __init__(self, name: str, hub: EventHub) -> None:
        self._name, self._hub = name, hub
        self.track: deque[list[float]] = deque(maxlen=N_TRACK)
        self.ground: ChangedGround | None = None
        self._rows: list[Array] = []
        self._timer: asyncio.TimerHandle | None = None
        self._n_told = self._n_steps = 0
        self._latest: tuple[EnsembleRegressor, Scores | None, int] | None = None
        self._n_seen = 0

    def rows_accepted(self, rows: Array, n_seen: int) -> None:
        """Rows (n, d + 1) are on the disk, which has `n_seen` now."""
        self.track.extend(rows[-N_TRACK:].tolist())
        self._rows.append(rows)
        self._n_seen = n_seen
        self._tell_soon()

    def model_changed(
        self, model: EnsembleRegressor, previous: EnsembleRegressor | None, scores: Scores | None, n_scored: int
    ) -> None:
        """Another model answers now."""
        if self.ground is None or previous is None:
            self._n_told, self._n_steps = model.n_samples_seen_, model._state.n_steps
        self.ground = ChangedGround.of(model, self.ground, previous)
        self._latest = model, scores, n_scored
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
            self._hub.publish("rows", self._name, rows_seen=self._n_seen, points=rows[-_POINTS_AT_ONCE:].tolist())
        if self._latest is not None:
            self._tell_learned(*self._latest)
            self._latest = None

    def _tell_learned(self, model: EnsembleRegressor, scores: Scores | None, n_scored: int) -> None:
        assert self.ground is not None
        boxes: Any = self.ground.changed_since(self._n_told)
        records = [record for record in model.history_ if record.number >= self._n_steps]
        self._n_told, self._n_steps = model.n_samples_seen_, model._state.n_steps
        self._hub.publish(
            "learned",
            self._name,
            rows_learned=model.n_samples_seen_,
            models=model.n_models_,
            extent=user_bounds(model).T.tolist(),
            boxes=boxes if len(boxes) <= _MOST_BOXES else None,
            forecasts=None
            if scores is None
            else {"rows": n_scored, "rmse": scores.rmse, "nlpd": scores.nlpd, "coverage": scores.coverage},
        )
        is_default = knows_rows_at_once(model)
        decisions = [(record.number, in_words(record, is_default=is_default)) for record in records]
        for number, text in [each for each in decisions if each[1]][-_MOST_DECISIONS:]:
            self._hub.publish("decision", self._name, step=number, text=text)
