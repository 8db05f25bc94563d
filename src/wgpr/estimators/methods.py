"""How a regressor learns and answers: the description of a method, which each estimator builds from its settings."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.answers import Answers, joint_covariance, predict, prepare
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation, SplittingRule, StepRecord
from wgpr.ensemble.territories import Territories, TerritorySettings, learn
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.linalg import Array, Indices, columns, expand_outputs, one_blas_thread
from wgpr.gp.model import Learner
from wgpr.rules import prediction as rules

# Steps that `history_` keeps.
HISTORY_SIZE = 10_000

# Rows that units and the first territory are made of.
N_FIRST_ROWS = 20

LearnerFactory = Callable[[Array, Array, Units], Learner[Any]]
AnyEnsemble = Ensemble | Territories


class Method(ABC):
    """A method of online regression. Unless it says otherwise, no row waits."""

    n_features: int | None  # number of inputs that the settings are made for, None for any
    uses_weights = False  # whether rows may have weights

    @abstractmethod
    def fitted(self, state: State, X: Array, y: Array, weights: Array) -> State:
        """The state after all rows of a data set, `X` (n, d), `y` (n,) or (n, k), with weights (n,)."""

    @abstractmethod
    def learned(self, state: State, X: Array, y: Array, weights: Array) -> State:
        """The state after more rows of a stream."""

    def flushed(self, state: State) -> State:
        """The state after all rows that wait were learned."""
        return state

    def n_until_step(self, state: State) -> int:
        """Number of further rows until some are learned, at least 1."""
        return 1

    def n_pending(self, state: State) -> int:
        """Number of rows that wait to be learned."""
        return 0

    @abstractmethod
    def answering(self, state: State) -> tuple[AnyEnsemble, Units]:
        """The ensemble that answers queries, and its units."""

    @abstractmethod
    def answers(self, state: State, ensemble: Any, queries: Array) -> Answers:
        """Answers at `queries` (n, d), in the units of the ensemble: (n,) or (n, k) each, but for the owners."""

    @abstractmethod
    def covariance(self, state: State, ensemble: Any, queries: Array) -> Array:
        """Covariance of the field at the queries, (n, n) or, with several outputs, (n, n, k)."""


def with_pending(state: State, X: Array, y: Array, weights: Array) -> State:
    """The state with more pending rows, and the bounds of the inputs that include them."""
    return replace(
        state,
        pending_X=np.concatenate([state.pending_X, X]),
        pending_y=np.concatenate([state.pending_y, y]),
        pending_weights=np.concatenate([state.pending_weights, weights]),
        bounds=np.stack([np.minimum(state.bounds[0], X.min(axis=0)), np.maximum(state.bounds[1], X.max(axis=0))]),
        n_seen=state.n_seen + len(y),
    )


# Batches: the methods of the paper


@dataclass(frozen=True)
class BatchMethod(Method):
    """Local models learn batches: a learner, rules, and limits.

    learner : makes the learner from the first rows (n, d), (n,), in the ensemble's units, and these.
    splitting, prediction : the rules. batch_size : rows of a batch.
    n_first : rows to wait for before anything is learned.
    quick_learner : makes a learner for predictions before that; None for `learner`.
    rows_to_begin : of the n rows of `fit`, those that units and learner are made from; None for the first `n_first`.
    n_candidates : models that a batch is tried on.
    max_models : limit on the number of models, None for no limit.
    """

    learner: LearnerFactory
    splitting: SplittingRule
    prediction: rules.PredictionRule
    batch_size: int
    n_first: int
    quick_learner: LearnerFactory | None = None
    rows_to_begin: Callable[[int], slice | Indices] | None = None
    n_candidates: int = 1
    max_models: int | None = None
    n_features: int | None = None

    def fitted(self, state: State, X: Array, y: Array, weights: Array) -> State:
        rows = slice(self.n_first) if self.rows_to_begin is None else self.rows_to_begin(len(y))
        return self.flushed(self.learned(self._begun(state, X[rows], y[rows]), X, y, weights))

    def learned(self, state: State, X: Array, y: Array, weights: Array) -> State:
        state = with_pending(state, X, y, weights)
        if state.learner is None and len(state.pending_y) >= self.n_first:
            state = self._begun(state, state.pending_X[: self.n_first], state.pending_y[: self.n_first])
        if state.learner is None or len(state.pending_y) < self.batch_size:
            return state
        while len(state.pending_y) >= self.batch_size:
            state = self._stepped(state)
        # Copies, so that learned rows are not kept in memory.
        X, y, weights = state.pending_X.copy(), state.pending_y.copy(), state.pending_weights.copy()
        return replace(state, pending_X=X, pending_y=y, pending_weights=weights)

    def flushed(self, state: State) -> State:
        if state.learner is None and len(state.pending_y):
            state = self._begun(state, state.pending_X, state.pending_y)
        while len(state.pending_y):
            state = self._stepped(state)
        return state

    def n_until_step(self, state: State) -> int:
        return max(1, self.batch_size - len(state.pending_y))

    def n_pending(self, state: State) -> int:
        return len(state.pending_y)

    def answering(self, state: State) -> tuple[AnyEnsemble, Units]:
        """Before the first batch, a quick model of the pending rows."""
        if len(state.ensemble) and state.units is not None:
            return state.conditioned, state.units
        units = state.units or Units.of(state.pending_X, state.pending_y)
        X, y = units.inputs(state.pending_X), units.targets(state.pending_y)
        learner = state.learner or (self.quick_learner or self.learner)(X, y, units)
        assert isinstance(state.ensemble, Ensemble)
        return state.ensemble.with_model(learner.quick_fit(X, y)), units

    def answers(self, state: State, ensemble: Any, queries: Array) -> Answers:
        return rules.predict(ensemble, self.prediction, queries)

    def covariance(self, state: State, ensemble: Any, queries: Array) -> Array:
        return rules.joint_covariance(ensemble, self.prediction, queries)

    def _begun(self, state: State, X: Array, y: Array) -> State:
        """The state with units and learner made from the first rows; these are learned later, like all others."""
        units = Units.of(X, y)
        return replace(state, units=units, learner=self.learner(units.inputs(X), units.targets(y), units))

    def _stepped(self, state: State) -> State:
        """The state after a batch of the oldest pending rows was learned."""
        assert state.learner is not None
        assert state.units is not None
        assert isinstance(state.ensemble, Ensemble)
        rows = slice(self.batch_size)
        evaluation = BatchEvaluation(
            state.ensemble,
            state.learner,
            state.units.inputs(state.pending_X[rows]),
            state.units.targets(state.pending_y[rows]),
            n_candidates=self.n_candidates,
            seed=state.seed,
            number=state.n_steps,
            target_unit=state.units.target_unit,
        )
        ensemble, record = absorb(evaluation, self.splitting, self.max_models)
        return replace(
            state,
            ensemble=ensemble,
            pending_X=state.pending_X[self.batch_size :],
            pending_y=state.pending_y[self.batch_size :],
            pending_weights=state.pending_weights[self.batch_size :],
            records=(*state.records, record)[-HISTORY_SIZE:],
            n_steps=state.n_steps + 1,
        )


# Territories: the default


@dataclass(frozen=True)
class TerritoryMethod(Method):
    """Territories of pseudo-data, which know a row at once.

    Until there are enough rows for units, all of them are kept, and queries are answered as if there were no more.

    calibrated : whether standard deviations are multiplied by the factor that suits the forecasts.
    max_cache_bytes : of factorised posteriors that are kept for answers.
    """

    settings: TerritorySettings
    calibrated: bool = True
    max_cache_bytes: int = 2**28
    n_features: int | None = None
    uses_weights = True

    def fitted(self, state: State, X: Array, y: Array, weights: Array) -> State:
        state = self.learned(state, X, y, weights)
        return self.begun(state)

    def learned(self, state: State, X: Array, y: Array, weights: Array) -> State:
        if not len(state.ensemble):
            n_missing = N_FIRST_ROWS - len(state.pending_y)
            state = with_pending(state, X[:n_missing], y[:n_missing], weights[:n_missing])
            X, y, weights = X[n_missing:], y[n_missing:], weights[n_missing:]
            if len(state.pending_y) < N_FIRST_ROWS:
                return state
            state = self.begun(state)
        if not len(y):
            return state
        assert state.units is not None
        assert isinstance(state.ensemble, Territories)
        inputs, targets = state.units.inputs(X), columns(state.units.targets(y))
        territories, records, whitened = learn(state.ensemble, self.settings, inputs, targets, weights, state.n_steps)
        records = [_in_user_units(record, columns(y).shape[1], state.units.target_unit) for record in records]
        calibration = state.calibration
        for errors in whitened:
            calibration = calibration.updated(errors)
        return replace(
            state,
            ensemble=territories,
            bounds=np.stack([np.minimum(state.bounds[0], X.min(axis=0)), np.maximum(state.bounds[1], X.max(axis=0))]),
            n_seen=state.n_seen + len(y),
            records=(*state.records, *records)[-HISTORY_SIZE:] if records else state.records,
            n_steps=state.n_steps + len(records),
            calibration=calibration,
        )

    def answering(self, state: State) -> tuple[AnyEnsemble, Units]:
        state = self.begun(state)
        assert state.units is not None
        return state.ensemble, state.units

    def answers(self, state: State, ensemble: Any, queries: Array) -> Answers:
        mean, variance, noise, owners = predict(ensemble, queries, state.cache, self.max_cache_bytes)
        mean = mean.reshape(len(queries), *state.pending_y.shape[1:])
        squared = self._factor(state) ** 2
        variance, noise = (
            np.broadcast_to(squared * expand_outputs(each, mean), mean.shape) for each in (variance, noise)
        )
        return Answers(mean, variance, noise, owners)

    def prepare(self, state: State, seconds: float) -> bool:
        """Make ready for answers, for about so many seconds. Whether nothing is left to do."""
        if not isinstance(state.ensemble, Territories):
            return True
        with one_blas_thread():
            return prepare(state.ensemble, state.cache, self.max_cache_bytes, seconds)

    def covariance(self, state: State, ensemble: Any, queries: Array) -> Array:
        """Correlations of one posterior of all queries, variances of the answers to each."""
        joint = joint_covariance(ensemble, queries, state.cache, self.max_cache_bytes)
        return rules.with_variances(joint, self.answers(state, ensemble, queries).variance)

    def _factor(self, state: State) -> float:
        return state.calibration.factor if self.calibrated else 1.0

    def begun(self, state: State) -> State:
        """The state with units and at least one territory, made of the pending rows if there is none yet."""
        if len(state.ensemble):
            return state
        X, y, weights = state.pending_X, state.pending_y, state.pending_weights
        units = state.units or Units.of(X, y, is_isotropic=False)
        territories = Territories.begin(self.settings.kernel, units.inputs(X), columns(units.targets(y)), weights)
        return replace(
            state, ensemble=territories, units=units, pending_X=X[:0], pending_y=y[:0], pending_weights=weights[:0]
        )


def _in_user_units(record: StepRecord, n_outputs: int, target_unit: float) -> StepRecord:
    """The record with log evidences of targets in the user's units."""
    shift = record.n_samples * n_outputs * float(np.log(target_unit))
    evidence = tuple(None if each is None else each - shift for each in record.evidence)
    new = None if record.evidence_new is None else record.evidence_new - shift
    return replace(record, evidence=evidence, evidence_new=new)
