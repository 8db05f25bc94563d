"""The ensemble and its one step (docs/method.md, 4): every method of this package is a choice of rules for it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from wgpr.gaussian import squared_wasserstein
from wgpr.joint import Summarised, log_evidence_of_rows
from wgpr.linalg import Array, Indices
from wgpr.model import Learner, LocalModel
from wgpr.nearest import NearestIndex
from wgpr.neighbourhood import Neighbourhoods

ALL_ROWS = slice(None)

# A model is joined with so many others at the most.
_MOST_NEIGHBOURS = 15

# Observations that a model compares with those of its neighbours, with its own.
_MOST_TO_SETTLE = 400


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
    neighbourhoods: Neighbourhoods = field(default_factory=Neighbourhoods)

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
            self.neighbourhoods,
        )

    def around(self, point: Array, n_models: int) -> list[int]:
        """Numbers of the models whose pseudo-inputs' means are nearest to `point` (d,), nearest first."""
        squares = ((self.input_means - point) ** 2).sum(axis=1)
        return np.argsort(squares, kind="stable")[:n_models].tolist()

    def closest(self, X: Array, n_models: int) -> list[int]:
        """Numbers of the models whose pseudo-inputs are nearest to the rows `X` (n, d), taken together.

        Every row votes for the models nearest to it, for the nearest most; at most `n_models`, most votes first.
        """
        n_models = min(n_models, len(self))
        if not n_models:
            return []
        owners = self.index.owners(X, n_models)
        weights = np.tile(1.0 / np.arange(1, n_models + 1), len(X))
        votes = np.bincount(owners.ravel(), weights, minlength=len(self))
        return [number for number in np.argsort(-votes, kind="stable")[:n_models].tolist() if votes[number] > 0]

    def neighbours(self, number: int, n_models: int) -> list[int]:
        """Numbers of the models closest to the pseudo-inputs of model `number`, without itself."""
        inputs = self.models[number].inputs
        return [other for other in self.closest(inputs, n_models + 1) if other != number][:n_models]

    def merged(self, numbers: tuple[int, int], model: LocalModel) -> "Ensemble":
        """The ensemble with this model in place of two; those after the second have the number before theirs."""
        first, second = sorted(numbers)
        models = [*self.models[:first], model, *self.models[first + 1 : second], *self.models[second + 1 :]]
        return replace(Ensemble.of(models, self.centres.shape[1]), neighbourhoods=self.neighbourhoods)

    def with_neighbours(self, number: int, n_observations: int) -> LocalModel:
        """Model `number`, joined with its neighbours as far as they agree with it; so many observations in all."""
        others = self.neighbours(number, _MOST_NEIGHBOURS)
        return self.neighbourhoods.of((self.models[number], *(self.models[other] for other in others)), n_observations)

    def answering(self, learner: Learner[Any], X: Array, y: Array) -> "Ensemble":
        """The ensemble that answers as if each row of `X` (n, d), `y` (n,) were learned by the model nearest to it."""
        owners = self.index.owners(X)[:, 0]
        models = list(self.models)
        for number in np.unique(owners).tolist():
            own = owners == number
            with suppress(ArithmeticError):  # then without these rows
                models[number] = learner.glance(models[number], X[own], y[own])
        return replace(Ensemble.of(models, X.shape[1]), neighbourhoods=self.neighbourhoods)


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
    is_full : whether a new model would have to take the place of another.
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
    ) -> None:
        self.is_full = is_full
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
    def closest(self) -> list[int]:
        """Numbers of the models that are closest to the batch, row by row: first the candidates, then more."""
        return self.ensemble.closest(self.X, max(self.n_candidates, self.learner.n_neighbours + 1))

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

    def unabridged(self, number: int) -> float:
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
        return self._settled(ensemble, {change.model for change in changes}), tuple(changes)

    def _settled(self, ensemble: Ensemble, numbers: set[int]) -> Ensemble:
        """The ensemble after those that learned have compared themselves with their neighbours."""
        if self.learner.n_neighbours < 2:
            return ensemble
        for number in sorted(numbers):
            others = [ensemble.models[other] for other in ensemble.neighbours(number, self.learner.n_neighbours)]
            agreeing = ensemble.neighbourhoods.agreeing(ensemble.models[number], others, _MOST_TO_SETTLE)
            ensemble = ensemble.with_model(self.learner.settled(ensemble.models[number], agreeing), number)
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
            neighbours = self._neighbours(ensemble, rows, without=number)
            model = self.learner.update(ensemble.models[number], X, y, self._rng(), neighbours)
        except ArithmeticError:
            model = None
        self._evidence[number] = None if model is None else self._in_target_unit(model, len(y))
        return model

    def _in_target_unit(self, model: LocalModel, n_rows: int) -> float:
        """The log evidence of the model's latest rows: a density, per unit of the target for each row."""
        return model.log_evidence - n_rows * float(np.log(self._target_unit))

    def _start(self, rows: slice | Indices) -> LocalModel:
        return self.learner.start(self.X[rows], self.y[rows], self._rng(), self._neighbours(self.ensemble, rows))

    def _neighbours(self, ensemble: Ensemble, rows: slice | Indices, without: int | None = None) -> list[LocalModel]:
        """Models that the learner listens to when a model learns these rows; one of them is the nearest by its mean."""
        n_neighbours = self.learner.n_neighbours
        if n_neighbours <= 1:
            numbers = ensemble.around(self.X[rows].mean(axis=0), n_neighbours)
        elif rows is ALL_ROWS and ensemble is self.ensemble:
            numbers = self.closest
        else:
            numbers = ensemble.closest(self.X[rows], n_neighbours + 1)
        return [ensemble.models[number] for number in numbers if number != without][:n_neighbours]

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
    merged : pairs of models that became one afterwards, because there were too many. Numbers are those of that moment;
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
    merged: tuple[tuple[int, int], ...] = ()

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
