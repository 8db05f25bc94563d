"""A batch before the decision: what each candidate model would become by learning it (docs/method.md, 4)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np

from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.gaussian import marginal_squared_wasserstein, squared_wasserstein
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.model import ClosedFormUpdate, Learner, LocalModel, Neighbour

ALL_ROWS = slice(None)

# A candidate passes the screen by closed-form updates if it moves at most so many times as far as the one that moves
# least, or if its log evidence is at most so many nats below the best.
_TIMES_THE_LEAST_MOVEMENT = 1.5
_NATS_BELOW_THE_BEST = 10.0


class Assignment(NamedTuple):
    """Rows of a batch (a slice or an index array) and the number of the model that learns them, None for a new one."""

    rows: slice | Indices
    model: int | None


class Distances(NamedTuple):
    """Squared Wasserstein distances by which a model moves: at its old inputs, and at the batch."""

    w_old: float
    w_new: float

    @property
    def total(self) -> float:
        return self.w_old + self.w_new


class SplittingRule(Protocol):
    """Decides which model learns which rows of a batch."""

    def assign(self, evaluation: "BatchEvaluation") -> Sequence[Assignment]: ...


class Change(NamedTuple):
    """Model number `model` learned `n_samples` rows, and was new or not."""

    model: int
    n_samples: int
    is_new: bool


@dataclass(frozen=True)
class StepRecord:
    """What happened in one step.

    number : of the step, from 0; n_samples : rows in the batch; seconds : its duration.
    candidates : numbers of the models whose update was tried. For each of them:
    w_old, w_new : squared Wasserstein distances, None where the rule did not ask for them;
    evidence : log evidence of the batch given the model's past, None for an update that failed.
    evidence_new : of the batch as a new model, if that was tried.
    dropped : candidates whose update failed or was not finite.
    changes : the models that learned, and how many rows each.
    n_evaluations : number of evaluations of the bound, for all models that were tried.
    merged : pairs of models that were merged afterwards, because there were too many. Numbers are those of that moment;
        the new model has the smaller one, and numbers above the larger one count one less from then on.
    """

    number: int
    n_samples: int
    candidates: tuple[int, ...]
    w_old: tuple[float | None, ...]
    w_new: tuple[float | None, ...]
    evidence: tuple[float | None, ...]
    evidence_new: float | None
    dropped: tuple[int, ...]
    changes: tuple[Change, ...]
    seconds: float
    n_evaluations: int = 0
    merged: tuple[tuple[int, int], ...] = ()

    @property
    def distance(self) -> float | None:
        """The smallest `w_old + w_new` of the candidates, which a threshold is compared with. None if not asked for."""
        pairs = zip(self.w_old, self.w_new, strict=True)
        return min((old + new for old, new in pairs if old is not None and new is not None), default=None)

    @property
    def decision(self) -> str:
        """ "new", "update", or "both" when rows of one batch went to old and new models."""
        is_new = {change.is_new for change in self.changes}
        return "both" if len(is_new) == 2 else "new" if True in is_new else "update"


class BatchEvaluation:
    """A batch, and what the models of the ensemble would become by learning it. Results are computed once, on demand.

    Parameters
    ----------
    X : (n, d), y : (n,) the batch.
    number : of the step; with the seed it makes every random choice repeatable.
    target_unit : user units per internal target unit; distances and evidences are recorded in user units.
    is_full : whether the ensemble has as many models as it may have.
    is_thorough : whether every candidate learns the batch in full, or only those that pass a screen by closed form.
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
    ) -> None:
        self.ensemble, self.learner, self.X, self.y = ensemble, learner, X, y
        self.n_candidates, self.is_full, self._is_thorough = n_candidates, is_full, is_thorough
        self._number, self._seed, self._target_unit = number, (seed, number), target_unit
        self._new_model: LocalModel | None = None
        self._updated: dict[int, LocalModel | None] = {}
        self._evidence: dict[int, float | None] = {}
        self._distances: dict[int, Distances] = {}
        self._n_evaluations = 0

    # Candidates

    @cached_property
    def nearest(self) -> list[int]:
        """Numbers of the `n_candidates` models whose means are nearest to the mean of the batch."""
        return self.ensemble.nearest_by_mean(self.X.mean(axis=0), self.n_candidates)

    @cached_property
    def closest(self) -> list[int]:
        """Numbers of the models that are nearest to the rows of the batch: first the candidates, then more."""
        return self.ensemble.nearest_by_votes(self.X, max(self.n_candidates, self.learner.n_neighbours + 1))

    @cached_property
    def candidates(self) -> list[int]:
        """The nearest models that can learn the batch: an update that fails, or is not finite, is no candidate."""
        return self.screen(self.nearest, by="movement")

    def screen(self, numbers: Sequence[int], by: Literal["movement", "evidence"]) -> list[int]:
        """Those of the models `numbers` that can learn the batch and, unless thorough, may be the best of them.

        Closed-form updates show which may be: those that move little, or those with a large log evidence.
        """
        closed_forms: dict[int, ClosedFormUpdate] = {}
        if not self._is_thorough and len(numbers) > 1:
            closed_forms = self._closed_form_updates(numbers)
            numbers = self._with_little_movement(closed_forms) if by == "movement" else _with_evidence(closed_forms)
        for number in numbers:
            if number not in self._updated:
                self._update(self.ensemble, number, ALL_ROWS, closed_forms.get(number))
        return [number for number in numbers if self._updated[number] is not None]

    def _closed_form_updates(self, numbers: Sequence[int]) -> dict[int, ClosedFormUpdate]:
        """Of those models for which it is finite."""
        found: dict[int, ClosedFormUpdate] = {}
        for number in numbers:
            with suppress(ArithmeticError):
                model = self.ensemble.models[number]
                closed_form = self.learner.closed_form_update(model, self.X, self.y, self._rng())
                self._n_evaluations += closed_form.n_evaluations
                if np.isfinite(closed_form.log_evidence):
                    found[number] = closed_form
        return found

    def _with_little_movement(self, closed_forms: dict[int, ClosedFormUpdate]) -> list[int]:
        """By marginal Wasserstein distances: from the old model at its inputs, from the new model at the batch."""
        at_rows, moved = self.new_model.predict(self.X), {}
        for number, closed_form in closed_forms.items():
            model = self.ensemble.models[number]
            w_old = marginal_squared_wasserstein(model.predict(model.inputs), closed_form.at_inputs)
            moved[number] = w_old + marginal_squared_wasserstein(at_rows, closed_form.at_rows)
        least = min(filter(np.isfinite, moved.values()), default=0.0)
        return [number for number, each in moved.items() if each <= _TIMES_THE_LEAST_MOVEMENT * least]

    # What models would become

    @property
    def new_model(self) -> LocalModel:
        """A new model of the batch alone."""
        if self._new_model is None:
            self._new_model = self._start(ALL_ROWS)
        return self._new_model

    def updated(self, number: int) -> LocalModel | None:
        """Model `number` after it has learned the batch; None if it cannot."""
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
        """Log evidence of the batch if model `number` could learn it without compression."""
        updated = self.updated(number)
        assert updated is not None, "only candidates have evidence"
        return self.learner.uncompressed_evidence(self.ensemble.models[number], updated, self.X, self.y)

    # The decision

    def apply(self, assignments: Sequence[Assignment]) -> tuple[Ensemble, tuple[Change, ...]]:
        """The ensemble after the decision, and what changed in it."""
        self._require_each_row_once(assignments)
        ensemble, changes = self.ensemble, []
        for rows, number in assignments:
            model = None if number is None else self._learned(ensemble, number, rows)
            if model is None:  # a new model, or one in place of an update that failed: no row is lost
                model, number = self.new_model if rows is ALL_ROWS else self._start(rows), None
            ensemble = ensemble.with_model(model, number)
            place = len(ensemble) - 1 if number is None else number
            changes.append(Change(place, len(self.y[rows]), number is None))
        return ensemble, tuple(changes)

    def record(self, changes: tuple[Change, ...], seconds: float, merged: tuple[tuple[int, int], ...]) -> StepRecord:
        """What was evaluated, and what was decided."""
        distances = [self._distances.get(number) for number in self._evidence]
        return StepRecord(
            number=self._number,
            n_samples=len(self.y),
            candidates=tuple(self._evidence),
            w_old=tuple(None if d is None else d.w_old for d in distances),
            w_new=tuple(None if d is None else d.w_new for d in distances),
            evidence=tuple(self._evidence.values()),
            evidence_new=None if self._new_model is None else self._in_user_units(self._new_model, len(self.y)),
            dropped=tuple(number for number, evidence in self._evidence.items() if evidence is None),
            changes=changes,
            seconds=seconds,
            n_evaluations=self._n_evaluations,
            merged=merged,
        )

    def _require_each_row_once(self, assignments: Sequence[Assignment]) -> None:
        counts = np.zeros(len(self.y), dtype=np.intp)
        for rows, _ in assignments:
            np.add.at(counts, np.arange(len(self.y))[rows], 1)
        if (counts != 1).any():
            raise ValueError(
                f"the splitting rule assigned {(counts == 0).sum()} rows to no model and {(counts > 1).sum()} rows "
                "twice; its method assign must return an Assignment for every row, once"
            )

    def _learned(self, ensemble: Ensemble, number: int, rows: slice | Indices) -> LocalModel | None:
        is_evaluated = rows is ALL_ROWS and ensemble.models[number] is self.ensemble.models[number]
        return self.updated(number) if is_evaluated else self._update(ensemble, number, rows)

    # Learning

    def _start(self, rows: slice | Indices) -> LocalModel:
        X, y = self.X[rows], self.y[rows]
        model = self.learner.start(X, y, self._rng(), self._neighbours(self.ensemble, rows))
        self._n_evaluations += model.n_evaluations
        return model

    def _update(
        self,
        ensemble: Ensemble,
        number: int,
        rows: slice | Indices,
        closed_form: ClosedFormUpdate | None = None,
    ) -> LocalModel | None:
        X, y, neighbours = self.X[rows], self.y[rows], self._neighbours(ensemble, rows, without=number)
        model = None
        with suppress(ArithmeticError):
            model = self.learner.update(ensemble.models[number], X, y, self._rng(), neighbours, closed_form)
            self._n_evaluations += model.n_evaluations
        self._updated[number] = model
        self._evidence[number] = None if model is None else self._in_user_units(model, len(y))
        return model

    def _neighbours(self, ensemble: Ensemble, rows: slice | Indices, without: int | None = None) -> list[Neighbour]:
        """The models that inform the hyperparameters of one that learns these rows."""
        n_neighbours, is_the_batch = self.learner.n_neighbours, rows is ALL_ROWS and ensemble is self.ensemble
        if n_neighbours <= 1:
            numbers = self.nearest if is_the_batch else ensemble.nearest_by_mean(self.X[rows].mean(axis=0), 1)
            numbers = numbers[:n_neighbours]
        else:
            numbers = self.closest if is_the_batch else ensemble.nearest_by_votes(self.X[rows], n_neighbours + 1)
        models = [cast(Any, ensemble.models[number]) for number in numbers if number != without]
        return [Neighbour(model.theta, model.scales) for model in models[:n_neighbours]]

    def _rng(self) -> np.random.Generator:
        """The same random numbers for every model of a step, in whatever order they are evaluated."""
        return np.random.default_rng(self._seed)

    def _in_user_units(self, model: LocalModel, n_rows: int) -> float:
        """The log evidence of the model's latest rows: a density, per unit of the target for each row."""
        return model.log_evidence - n_rows * float(np.log(self._target_unit))


def _with_evidence(closed_forms: dict[int, ClosedFormUpdate]) -> list[int]:
    best = max((each.log_evidence for each in closed_forms.values()), default=0.0)
    return [number for number, each in closed_forms.items() if each.log_evidence >= best - _NATS_BELOW_THE_BEST]
