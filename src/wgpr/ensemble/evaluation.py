"""A batch before the decision: what each candidate model would become by learning it (docs/method.md, 4)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.gaussian import squared_wasserstein
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.model import Learner, LocalModel

ALL_ROWS = slice(None)


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
        the new model has the smaller one. Numbers above the larger one count one less from then on; of territories,
        the last one takes the larger number.
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


@dataclass(eq=False, repr=False)
class BatchEvaluation:
    """A batch, and what the models of the ensemble would become by learning it. Results are computed once, on demand.

    X : (n, d), y : (n,) the batch; n_candidates : how many models are tried.
    number : of the step; with the seed it makes every random choice repeatable.
    target_unit : user units per internal target unit; distances and evidences are recorded in user units.
    """

    ensemble: Ensemble
    learner: Learner[Any]
    X: Array
    y: Array
    n_candidates: int
    seed: int
    number: int
    target_unit: float = 1.0

    def __post_init__(self) -> None:
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
    def candidates(self) -> list[int]:
        """The nearest models that can learn the batch: an update that fails, or is not finite, is no candidate."""
        return [number for number in self.nearest if self.updated(number) is not None]

    # What models would become

    @cached_property
    def new_model(self) -> LocalModel:
        """A new model of the batch alone."""
        return self._start(ALL_ROWS)

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
            self._distances[number] = Distances(w_old * self.target_unit**2, w_new * self.target_unit**2)
        return self._distances[number]

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
        new_model = vars(self).get("new_model")  # if the rule asked for it
        return StepRecord(
            number=self.number,
            n_samples=len(self.y),
            candidates=tuple(self._evidence),
            w_old=tuple(None if d is None else d.w_old for d in distances),
            w_new=tuple(None if d is None else d.w_new for d in distances),
            evidence=tuple(self._evidence.values()),
            evidence_new=None if new_model is None else self._in_user_units(new_model, len(self.y)),
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
        nearest = [self.ensemble.models[number] for number in self.ensemble.nearest_by_mean(X.mean(axis=0), 1)]
        model: LocalModel = self.learner.start(X, y, self._rng(), *nearest)
        self._n_evaluations += model.n_evaluations
        return model

    def _update(self, ensemble: Ensemble, number: int, rows: slice | Indices) -> LocalModel | None:
        X, y, model = self.X[rows], self.y[rows], None
        with suppress(ArithmeticError):
            model = self.learner.update(ensemble.models[number], X, y, self._rng())
            self._n_evaluations += model.n_evaluations
        self._updated[number] = model
        self._evidence[number] = None if model is None else self._in_user_units(model, len(y))
        return model

    def _rng(self) -> np.random.Generator:
        """The same random numbers for every model of a step, in whatever order they are evaluated."""
        return np.random.default_rng((self.seed, self.number))

    def _in_user_units(self, model: LocalModel, n_rows: int) -> float:
        """The log evidence of the model's latest rows: a density, per unit of the target for each row."""
        return model.log_evidence - n_rows * float(np.log(self.target_unit))
