"""A batch before the decision: what would become of whom if it were learned (docs/method.md, 4)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.records import Change, StepRecord
from wgpr.ensemble.workers import Workers
from wgpr.gp.gaussian import marginal_squared_wasserstein, squared_wasserstein
from wgpr.gp.joint import Summarised, log_evidence_of_rows
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.model import ClosedFormUpdate, Learner, LocalModel, Neighbour

ALL_ROWS = slice(None)

# Candidates that can still win after a sketch: so many times the movement of the best, so many nats more surprised.
_TIMES_THE_MOVEMENT = 1.5
_NATS_BEHIND = 10.0

# Observations that a model compares with those of its neighbours, with its own.
_MOST_TO_SETTLE = 400


class Assignment(NamedTuple):
    """Rows of a batch (a slice or an index array) and the number of the model that learns them, None for a new one."""

    rows: slice | Indices
    model: int | None


class Distances(NamedTuple):
    """How far a model would move by learning the batch: on what it knew, and on what is new (squared Wasserstein)."""

    w_old: float
    w_new: float

    @property
    def total(self) -> float:
        return self.w_old + self.w_new


class SplittingRule(Protocol):
    """Decides which model learns what of a batch."""

    def assign(self, trial: "BatchEvaluation") -> Sequence[Assignment]: ...


_Candidates = Mapping[int, tuple[LocalModel, Sequence[Neighbour]]]


@dataclass(frozen=True)
class _Lesson:
    """Rows that someone may learn: all that it takes to learn them, here or in another process.

    seed : the same numbers for every model of a step, whatever was asked before.
    """

    learner: Learner[Any]
    X: Array
    y: Array
    seed: tuple[int, int]

    def start(self, neighbours: Sequence[Neighbour]) -> LocalModel:
        """A new model of these rows."""
        return self.learner.start(self.X, self.y, self._rng(), neighbours)

    def update(
        self, model: LocalModel, neighbours: Sequence[Neighbour], sketch: ClosedFormUpdate | None = None
    ) -> LocalModel | None:
        """The model that has learned these rows too; None if that cannot be."""
        begun = {} if sketch is None else {"sketch": sketch}
        try:
            return self.learner.update(model, self.X, self.y, self._rng(), neighbours, **begun)
        except ArithmeticError:
            return None

    def sketches(self, candidates: _Candidates) -> dict[int, ClosedFormUpdate]:
        """Of those that can be sketched; what is not finite is no sketch."""
        found: dict[int, ClosedFormUpdate] = {}
        for number, (model, _) in candidates.items():
            with suppress(ArithmeticError):
                found[number] = self.learner.sketch(model, self.X, self.y, self._rng())
        return {number: each for number, each in found.items() if np.isfinite([each.moved, each.surprise]).all()}

    def updates_of_likeliest(
        self, candidates: _Candidates
    ) -> tuple[dict[int, ClosedFormUpdate], dict[int, LocalModel | None]]:
        """All sketches, and the updates of the candidates that the rows surprise least."""
        sketches = self.sketches(candidates)
        least = min((sketch.surprise for sketch in sketches.values()), default=0.0)
        best = [number for number, sketch in sketches.items() if sketch.surprise <= least + _NATS_BEHIND]
        return sketches, {number: self.update(*candidates[number], sketches[number]) for number in best}

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


class BatchEvaluation:
    """A batch before the decision. A splitting rule asks it what would become of whom, and it remembers the answers.

    Parameters
    ----------
    X : (n, d), y : (n,) the batch.
    number : of the step; with the seed it makes every random choice repeatable.
    target_unit : what distances and evidences are told in, if not in the unit of `y`: one of `y` is so many of those.
    is_full : whether a new model would have to take the place of another.
    is_thorough : whether every candidate learns the batch in full, or only those that can win by their sketches.
    workers : who share the work.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        learner: Learner[Any],
        X: Array,
        y: Array,
        *,
        n_candidates: int,
        seed: int,
        number: int,
        target_unit: float = 1.0,
        is_full: bool = False,
        is_thorough: bool = True,
        workers: Workers | None = None,
    ) -> None:
        self.is_full = is_full
        self.ensemble, self.learner, self.X, self.y = ensemble, learner, X, y
        self.n_candidates, self._is_thorough = n_candidates, is_thorough
        self._number, self._seed = number, (seed, number)
        self._target_unit, self._run = target_unit, (workers or Workers()).run
        self._fresh: LocalModel | None = None
        self._updated: dict[int, LocalModel | None] = {}
        self._evidence: dict[int, float | None] = {}
        self._distances: dict[int, Distances] = {}
        self._n_evaluations = 0

    @cached_property
    def nearest(self) -> list[int]:
        """Numbers of the `n_candidates` models nearest to the batch."""
        return self.ensemble.around(self.X.mean(axis=0), self.n_candidates)

    @cached_property
    def candidates(self) -> list[int]:
        """The nearest models that can learn the batch: an update that fails, or is not finite, is no candidate.

        Unless the trial is thorough, only those that can win.
        """
        return self.screen(self.nearest, by="movement")

    @cached_property
    def closest(self) -> list[int]:
        """Numbers of the models that are closest to the batch, row by row: first the candidates, then more."""
        return self.ensemble.closest(self.X, max(self.n_candidates, self.learner.n_neighbours + 1))

    def screen(self, numbers: Sequence[int], by: str) -> list[int]:
        """Those of the models `numbers` that can learn the batch and, unless the trial is thorough, can win.

        All of them, and a new model beside them, are learned at once, by all the workers.

        by : what is to be small, the "movement" of the model or the "surprise" that the rows are.
        """
        if numbers:
            self._learn_at_once(
                {number: (self.ensemble.models[number], self._neighbours(number)) for number in numbers}, by
            )
        return [number for number in numbers if self._updated.get(number) is not None]

    def _learn_at_once(self, candidates: _Candidates, by: str) -> None:
        """What movement is depends on the new model, which comes first then; surprise does not."""
        lesson, sketches = self._lesson(ALL_ROWS), {}
        start = partial(lesson.start, self._neighbours())
        if self._is_thorough or len(candidates) == 1:
            fresh, *updates = self._run([start, *(partial(lesson.update, *each) for each in candidates.values())])
            updated = dict(zip(candidates, updates, strict=True))
        elif by == "surprise":
            fresh, (sketches, updated) = self._run([start, partial(lesson.updates_of_likeliest, candidates)])
        else:
            fresh, sketches = self._run([start, partial(lesson.sketches, candidates)])
            best = self._least_moved(fresh, sketches)
            updates = self._run([partial(lesson.update, *candidates[number], sketches[number]) for number in best])
            updated = dict(zip(best, updates, strict=True))
        self._note_fresh(fresh)
        self._n_evaluations += sum(sketch.n_evaluations for sketch in sketches.values())
        for number, model in updated.items():
            self._note_update(number, model, len(self.y))

    def _least_moved(self, fresh: LocalModel, sketches: Mapping[int, ClosedFormUpdate]) -> list[int]:
        """Those that move least: at their own inputs, and at the batch from what a fresh model says of it."""
        at_rows = fresh.predict(self.X)
        moved = {
            number: sketch.moved + marginal_squared_wasserstein(at_rows, sketch.at_rows)
            for number, sketch in sketches.items()
        }
        least = min(moved.values(), default=0.0)
        return [number for number, each in moved.items() if each <= _TIMES_THE_MOVEMENT * least]

    @property
    def new_model(self) -> LocalModel:
        """A new model of the batch alone."""
        if self._fresh is None:
            self._note_fresh(self._lesson(ALL_ROWS).start(self._neighbours()))
        assert self._fresh is not None
        return self._fresh

    def updated(self, number: int) -> LocalModel | None:
        """What model `number` would be if it learned the batch; None if it cannot."""
        if number not in self._updated:
            self._update(self.ensemble, number, ALL_ROWS)
        return self._updated[number]

    def distances(self, number: int) -> Distances:
        """How far candidate `number` would move."""
        if number not in self._distances:
            old, updated = self.ensemble.models[number], self.updated(number)
            assert updated is not None, "only candidates have distances"
            w_old = squared_wasserstein(old.posterior(old.inputs), updated.posterior(old.inputs))
            w_new = squared_wasserstein(self.new_model.posterior(self.X), updated.posterior(self.X))
            self._distances[number] = Distances(w_old * self._target_unit**2, w_new * self._target_unit**2)
        return self._distances[number]

    def uncompressed_evidence(self, number: int) -> float:
        """The log evidence of the batch if model `number` could learn it without leaving anything out.

        With the hyperparameters before and after the update, whichever are better.
        """
        old, updated = cast(Summarised, self.ensemble.models[number]), self.updated(number)
        assert updated is not None, "only candidates have evidence"
        evidences = [-np.inf]
        for theta in (old.theta, updated.theta):
            with suppress(ArithmeticError):  # then it is no reason for anything
                evidences.append(log_evidence_of_rows(old, self.X, self.y, theta))
        return max(evidences)

    def apply(self, assignments: Sequence[Assignment]) -> tuple[Ensemble, tuple["Change", ...]]:
        """The ensemble after the decision, and what changed in it."""
        self._require_each_row_once(assignments)
        ensemble, changes = self.ensemble, []
        for rows, number in assignments:
            model = None if number is None else self._learned(ensemble, number, rows)
            if model is None:  # a new model, or one in place of an update that failed: no row is lost
                model, number = self._started(rows), None
            ensemble = ensemble.with_model(model, number)
            place = len(ensemble) - 1 if number is None else number
            changes.append(Change(place, len(self.y[rows]), number is None))
        return self._settled(ensemble, {change.model for change in changes}), tuple(changes)

    def _settled(self, ensemble: Ensemble, numbers: set[int]) -> Ensemble:
        """The ensemble after those that learned have compared themselves with their neighbours."""
        if self.learner.n_neighbours < 2:
            return ensemble
        for number in sorted(numbers):
            others = [ensemble.models[other] for other in ensemble.neighbours(number, self.learner.n_neighbours)]
            agreeing = ensemble.joint_models.agreeing(ensemble.models[number], others, _MOST_TO_SETTLE)
            ensemble = ensemble.with_model(
                self.learner.refine_with_neighbours(ensemble.models[number], agreeing), number
            )
        return ensemble

    def _require_each_row_once(self, assignments: Sequence[Assignment]) -> None:
        counts = np.zeros(len(self.y), dtype=np.intp)
        for rows, _ in assignments:
            np.add.at(counts, np.arange(len(self.y))[rows], 1)
        if (counts != 1).any():
            raise ValueError(
                f"the splitting rule assigned {(counts == 0).sum()} rows to no model and {(counts > 1).sum()} rows "
                "twice; its method assign must return an Assignment for every row, once"
            )

    def record(self, changes: tuple["Change", ...], seconds: float) -> "StepRecord":
        """What the trial was asked, and what came of it."""
        distances = [self._distances.get(number) for number in self._evidence]
        return StepRecord(
            number=self._number,
            n_samples=len(self.y),
            candidates=tuple(self._evidence),
            w_old=tuple(None if d is None else d.w_old for d in distances),
            w_new=tuple(None if d is None else d.w_new for d in distances),
            evidence=tuple(self._evidence.values()),
            evidence_new=None if self._fresh is None else self._in_target_unit(self._fresh, len(self.y)),
            dropped=tuple(number for number, evidence in self._evidence.items() if evidence is None),
            changes=changes,
            seconds=seconds,
            n_evaluations=self._n_evaluations,
        )

    def _learned(self, ensemble: Ensemble, number: int, rows: slice | Indices) -> LocalModel | None:
        is_tried = rows is ALL_ROWS and ensemble.models[number] is self.ensemble.models[number]
        return self.updated(number) if is_tried else self._update(ensemble, number, rows)

    def _started(self, rows: slice | Indices) -> LocalModel:
        if rows is ALL_ROWS:
            return self.new_model
        return self._counted(self._lesson(rows).start(self._neighbours(rows=rows)))

    def _update(self, ensemble: Ensemble, number: int, rows: slice | Indices) -> LocalModel | None:
        lesson = self._lesson(rows)
        model = lesson.update(ensemble.models[number], self._neighbours(number, ensemble, rows))
        self._note_update(number, model, len(lesson.y))
        return model

    def _lesson(self, rows: slice | Indices) -> _Lesson:
        return _Lesson(self.learner, self.X[rows], self.y[rows], self._seed)

    def _note_fresh(self, model: LocalModel) -> None:
        self._fresh = self._counted(model)

    def _note_update(self, number: int, model: LocalModel | None, n_rows: int) -> None:
        self._updated[number] = model
        self._evidence[number] = None if model is None else self._in_target_unit(self._counted(model), n_rows)

    def _counted(self, model: LocalModel) -> LocalModel:
        self._n_evaluations += model.n_evaluations
        return model

    def _in_target_unit(self, model: LocalModel, n_rows: int) -> float:
        """The log evidence of the model's latest rows: a density, per unit of the target for each row."""
        return model.log_evidence - n_rows * float(np.log(self._target_unit))

    def _neighbours(
        self, without: int | None = None, ensemble: Ensemble | None = None, rows: slice | Indices = ALL_ROWS
    ) -> list[Neighbour]:
        """Models that the learner listens to when a model learns these rows; one of them is the nearest by its mean."""
        ensemble, n_neighbours = ensemble or self.ensemble, self.learner.n_neighbours
        is_the_batch = rows is ALL_ROWS and ensemble is self.ensemble
        if n_neighbours <= 1:
            nearest = self.nearest if is_the_batch else ensemble.around(self.X[rows].mean(axis=0), 1)
            numbers = nearest[:n_neighbours]
        elif is_the_batch:
            numbers = self.closest
        else:
            numbers = ensemble.closest(self.X[rows], n_neighbours + 1)
        models = [cast(Any, ensemble.models[number]) for number in numbers if number != without]
        return [Neighbour(model.theta, model.scales) for model in models[:n_neighbours]]
