"""The ensemble and its one step (docs/method.md, 4): every method of this package is a choice of rules for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from wgpr.gaussian import squared_wasserstein
from wgpr.linalg import Array, Indices
from wgpr.model import Learner, LocalModel
from wgpr.nearest import NearestIndex

ALL_ROWS = slice(None)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Local models, and what is needed to find the right ones. An immutable value.

    centres : (J, d) mean of the inputs that each model has seen; lengthscales : (J, d); n_seen : (J,).
    input_means : (J, d) mean of each model's pseudo-inputs.
    """

    models: tuple[LocalModel, ...]
    centres: Array
    input_means: Array
    lengthscales: Array
    n_seen: Indices
    index: NearestIndex = field(default_factory=NearestIndex)

    @classmethod
    def empty(cls, n_features: int) -> "Ensemble":
        nothing = np.empty((0, n_features))
        return cls((), nothing, nothing, nothing, np.empty(0, dtype=np.intp))

    @classmethod
    def of(cls, models: Sequence[LocalModel], n_features: int) -> "Ensemble":
        """The ensemble of these models, at once."""
        if not models:
            return cls.empty(n_features)
        return cls(
            tuple(models),
            np.array([model.centre for model in models]),
            np.array([model.inputs.mean(axis=0) for model in models]),
            np.array([model.theta.lengthscales for model in models]),
            np.array([model.n_seen for model in models]),
            NearestIndex.of([model.inputs for model in models]),
        )

    def __len__(self) -> int:
        return len(self.models)

    def with_model(self, model: LocalModel, number: int | None = None) -> "Ensemble":
        """The ensemble with this model in place of one, or joined to the others. The others stay the same objects."""
        place = len(self) if number is None else number
        return Ensemble(
            (*self.models[:place], model, *self.models[place + 1 :]),
            _with_row(self.centres, place, model.centre),
            _with_row(self.input_means, place, model.inputs.mean(axis=0)),
            _with_row(self.lengthscales, place, model.theta.lengthscales),
            _with_row(self.n_seen, place, model.n_seen),
            self.index.with_model(place, model.inputs),
        )

    def around(self, point: Array, n_models: int) -> list[int]:
        """Numbers of the models whose pseudo-inputs' means are nearest to `point` (d,), nearest first."""
        squares = ((self.input_means - point) ** 2).sum(axis=1)
        return np.argsort(squares, kind="stable")[:n_models].tolist()


def _with_row(array: NDArray[Any], place: int, row: Array | int) -> NDArray[Any]:
    if place == len(array):
        return np.concatenate([array, [row]])
    array = array.copy()
    array[place] = row
    return array


def log_closeness(X: Array, centres: Array, lengthscales: Array) -> Array:
    """`log w = -1/2 |(x - centre) / lengthscales|^2` of rows `X` (n, d) to models (J, d) each: (n, J)."""
    squares = np.zeros((len(X), len(centres)))
    for x, centre, lengthscale in zip(X.T, centres.T, lengthscales.T, strict=True):
        squares += ((x[:, None] - centre) / lengthscale) ** 2
    return -0.5 * squares


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

    def assign(self, trial: "Trial") -> Sequence[Assignment]: ...


class Trial:
    """A batch before the decision. A splitting rule asks it what would become of whom, and it remembers the answers.

    Parameters
    ----------
    X : (n, d), y : (n,) the batch.
    number : of the step; with the seed it makes every random choice repeatable.
    target_unit : what distances and evidences are told in, if not in the unit of `y`: one of `y` is so many of those.
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
    ) -> None:
        self.ensemble, self.learner, self.X, self.y = ensemble, learner, X, y
        self.n_candidates, self._seed, self._number = n_candidates, seed, number
        self._target_unit = target_unit
        self._updated: dict[int, LocalModel | None] = {}
        self._evidence: dict[int, float | None] = {}
        self._distances: dict[int, Distances] = {}

    @cached_property
    def nearest(self) -> list[int]:
        """Numbers of the `n_candidates` models nearest to the batch."""
        return self.ensemble.around(self.X.mean(axis=0), self.n_candidates)

    @cached_property
    def candidates(self) -> list[int]:
        """The nearest models that can learn the batch: an update that fails, or is not finite, is no candidate."""
        return [number for number in self.nearest if self.updated(number) is not None]

    @cached_property
    def fresh(self) -> LocalModel:
        """A new model of the batch alone."""
        return self._start(ALL_ROWS)

    def updated(self, number: int) -> LocalModel | None:
        """What model `number` would be if it learned the batch; None if it cannot."""
        if number not in self._updated:
            self._updated[number] = self._update(self.ensemble, number, ALL_ROWS)
        return self._updated[number]

    def distances(self, number: int) -> Distances:
        """How far candidate `number` would move."""
        if number not in self._distances:
            old, updated = self.ensemble.models[number], self.updated(number)
            assert updated is not None, "only candidates have distances"
            w_old = squared_wasserstein(old.posterior(old.inputs), updated.posterior(old.inputs))
            w_new = squared_wasserstein(self.fresh.posterior(self.X), updated.posterior(self.X))
            self._distances[number] = Distances(w_old * self._target_unit**2, w_new * self._target_unit**2)
        return self._distances[number]

    def carry_out(self, assignments: Sequence[Assignment]) -> tuple[Ensemble, tuple["Change", ...]]:
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
        return ensemble, tuple(changes)

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
            evidence_new=self._in_target_unit(self.fresh, len(self.y)) if "fresh" in vars(self) else None,
            dropped=tuple(number for number, evidence in self._evidence.items() if evidence is None),
            changes=changes,
            seconds=seconds,
        )

    def _learned(self, ensemble: Ensemble, number: int, rows: slice | Indices) -> LocalModel | None:
        is_tried = rows is ALL_ROWS and ensemble.models[number] is self.ensemble.models[number]
        return self.updated(number) if is_tried else self._update(ensemble, number, rows)

    def _started(self, rows: slice | Indices) -> LocalModel:
        return self.fresh if rows is ALL_ROWS else self._start(rows)

    def _update(self, ensemble: Ensemble, number: int, rows: slice | Indices) -> LocalModel | None:
        X, y = self.X[rows], self.y[rows]
        try:
            model = self.learner.update(ensemble.models[number], X, y, self._rng())
        except ArithmeticError:
            model = None
        self._evidence[number] = None if model is None else self._in_target_unit(model, len(y))
        return model

    def _in_target_unit(self, model: LocalModel, n_rows: int) -> float:
        """The log evidence of the model's latest rows: a density, per unit of the target for each row."""
        return model.log_evidence - n_rows * float(np.log(self._target_unit))

    def _start(self, rows: slice | Indices) -> LocalModel:
        nearest = self.ensemble.around(self.X[rows].mean(axis=0), 1)
        like = self.ensemble.models[nearest[0]] if nearest else None
        return self.learner.start(self.X[rows], self.y[rows], self._rng(), like)

    def _rng(self) -> np.random.Generator:
        """The same numbers for every model of a step, whatever was asked before."""
        return np.random.default_rng([self._seed, self._number])


class Change(NamedTuple):
    """Model number `model` learned `n_samples` rows, and was new or not."""

    model: int
    n_samples: int
    is_new: bool


@dataclass(frozen=True)
class StepRecord:
    """What happened in one step.

    number : of the step, from 0; n_samples : rows in the batch; seconds : that it took.
    candidates : numbers of the models whose update was tried. For each of them:
    w_old, w_new : squared Wasserstein distances, None where the rule did not ask for them;
    evidence : log evidence of the batch given the model's past, None for an update that failed.
    evidence_new : of the batch as a model of its own, if that was tried.
    dropped : candidates whose update failed or was not finite.
    changes : the models that learned, and how many rows each.
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

    @property
    def distance(self) -> float | None:
        """The smallest `w_old + w_new` of the candidates: what a threshold is compared with. None if not asked for."""
        pairs = zip(self.w_old, self.w_new, strict=True)
        return min((old + new for old, new in pairs if old is not None and new is not None), default=None)

    @property
    def decision(self) -> str:
        """ "new", "update", or "both" when rows of one batch went different ways."""
        is_new = {change.is_new for change in self.changes}
        return "both" if len(is_new) == 2 else "new" if True in is_new else "update"


def step(
    ensemble: Ensemble,
    X: Array,
    y: Array,
    *,
    learner: Learner[Any],
    rule: SplittingRule,
    n_candidates: int,
    seed: int,
    number: int,
    target_unit: float = 1.0,
) -> tuple[Ensemble, StepRecord]:
    """Learn one batch `X` (n, d), `y` (n,): the ensemble after it, and what happened. Parameters as of `Trial`."""
    started = perf_counter()
    trial = Trial(ensemble, learner, X, y, n_candidates=n_candidates, seed=seed, number=number, target_unit=target_unit)
    ensemble, changes = trial.carry_out(rule.assign(trial))
    return ensemble, trial.record(changes, perf_counter() - started)
