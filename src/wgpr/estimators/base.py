"""The scikit-learn side of an ensemble: validation, batching and prediction, the same for every method."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from wgpr.checks import require_count
from wgpr.ensemble.absorb import step
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import SplittingRule
from wgpr.ensemble.records import StepRecord
from wgpr.ensemble.workers import Workers
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, Indices, expand_outputs, n_outputs, one_blas_thread
from wgpr.gp.model import Learner, LocalModel
from wgpr.io import container
from wgpr.io.atomic import write_whole
from wgpr.io.grids import Fixed, predict_grid
from wgpr.io.saving import contents_of
from wgpr.rules.batching import Batching, InOrder
from wgpr.rules.calibration import Calibration
from wgpr.rules.prediction import PredictionRule, answering_model, predict, predict_jointly, predict_with_owners

if TYPE_CHECKING:
    import xarray as xr

# Squares of larger numbers, summed over a batch, would leave the range of float64.
LARGEST = 1e100


class EnsembleRegressor(RegressorMixin, BaseEstimator, ABC):
    """What all the regressors share: an ensemble that learns by steps and answers queries.

    Settings are the constructor's arguments, state is `_state`, and `history_` is the record.

    Several outputs, a column of `y` for each, are fields of their own over shared inputs: they have the same
    hyperparameters, each in its own unit, the same local models and the same decisions.
    """

    random_state: Any
    n_candidates = 1
    thorough = True
    n_jobs: int | None = None
    history_size = 10_000

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_settings(self) -> None:
        """Raise an error that names the first setting that makes no sense."""
        require_count("history_size", self.history_size)
        try:
            check_random_state(self.random_state)
        except ValueError as error:
            raise ValueError(f"random_state must be a seed, a RandomState or None: {error}") from error

    def _check_columns(self, n_features: int) -> None:
        """Raise an error if a setting does not fit so many inputs."""

    @abstractmethod
    def _make_learner(self, X: Array, y: Array, units: Units) -> Learner[Any]:
        """The learner, given the first rows, in the ensemble's units, and these."""

    def _make_quick_learner(self, X: Array, y: Array, units: Units) -> Learner[Any]:
        """A learner for a preview; like the real one unless that takes long to make."""
        return self._make_learner(X, y, units)

    @abstractmethod
    def _make_splitting_rule(self) -> SplittingRule: ...

    @abstractmethod
    def _make_prediction_rule(self) -> PredictionRule: ...

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn all rows in their order.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs. Names of a frame's columns and of a series are
            kept, as `feature_names_in_` and `target_name_`.
        """
        self._check_settings()
        X, y = self._validated(X, y, reset=True)
        self._state = self._initial_state(X, y)
        with one_blas_thread():
            self._begin(*self._representative_rows(X, y))
            self._learn(X, y)
            self._flush()
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False, latent: bool = False
    ) -> Array | tuple[Array, Array]:
        """The mean at `X`, and how uncertain it is.

        Parameters
        ----------
        X : (n, d) queries.
        return_std : also return the standard deviation (n,).
        return_cov : also return the covariance (n, n); not together with `return_std`.
        latent : uncertainty of the field itself; by default, of an observation of it, with its noise.

        Returns
        -------
        mean : (n,), or the pair of it and what else was asked for. If `y` had k columns, mean and standard deviation
            are (n, k), and the covariance is (n, n, k).
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True; ask for one of them")
        (ensemble, units), queries = self._answering_ensemble(), self._validated_queries(X)
        rule, queries = self._make_prediction_rule(), units.inputs(queries)
        with one_blas_thread():
            if return_cov:
                (mean, covariance), noise = predict_jointly(ensemble, rule, queries)
                covariance = covariance * self._stretch() ** 2
                uncertainty = covariance if latent else covariance + expand_outputs(np.diag(noise), covariance)
                return units.target_offset + units.target_scale * mean, units.target_scale**2 * uncertainty
            mean, variance, noise = predict(ensemble, rule, queries)
        variance = variance * self._stretch() ** 2
        mean = units.target_offset + units.target_scale * mean
        return (mean, units.target_scale * np.sqrt(variance if latent else variance + noise)) if return_std else mean

    def predict_with_owners(self, X: ArrayLike) -> tuple[Array, Array, Array, Indices]:
        """All that can be told about `X` (n, d) at once: mean, standard deviations of an observation and of the field.

        And which local model answers, as `model_index` tells. Asking once takes a third of the time.
        """
        (ensemble, units), queries = self._answering_ensemble(), self._validated_queries(X)
        with one_blas_thread():
            rule = self._make_prediction_rule()
            mean, variance, noise, owners = predict_with_owners(ensemble, rule, units.inputs(queries))
        variance = variance * self._stretch() ** 2
        observed, field = units.target_scale * np.sqrt(variance + noise), units.target_scale * np.sqrt(variance)
        return units.target_offset + units.target_scale * mean, observed, field, owners

    def predict_grid(
        self, region: ArrayLike | None = None, spacing: ArrayLike | None = None, *, at: Fixed | None = None
    ) -> "xr.Dataset":
        """Predict on a regular grid: an xarray Dataset with `mean`, `std`, `std_latent` and `model`.

        Parameters
        ----------
        region : (west, east, south, north) for a map, (low, high) for a line; by default, where the data are.
        spacing : distance of neighbouring nodes, one for all inputs or one for each.
        at : values of inputs that do not vary, by name or column, where there are more than two.
        """
        return predict_grid(self, region, spacing, at=at)

    def flush(self) -> Self:
        """Learn the rows that wait, as a smaller batch."""
        check_is_fitted(self, "_state")
        with one_blas_thread():
            self._flush()
        return self

    def model_index(self, X: ArrayLike) -> Indices:
        """Which local model answers at each row of `X` (n, d): an index into `models_`.

        With a rule that asks several models, the one that counts most.
        """
        (ensemble, units), queries = self._answering_ensemble(), self._validated_queries(X)
        with one_blas_thread():
            return answering_model(ensemble, self._make_prediction_rule(), units.inputs(queries))

    def save(self, path: str | os.PathLike[str], *, compact: bool = False) -> None:
        """Write all that was learned to one file, which `wgpr.load` reads: the old file or the new one, never half.

        Parameters
        ----------
        compact : only what prediction needs, in float32, for a slow link: no history, no waiting rows. By default
            the file holds everything to the last bit, and learning goes on from it as if it had never stopped.
        """
        write_whole(path, self.to_bytes(compact=compact))

    def to_bytes(self, *, compact: bool = False) -> bytes:
        """What `save` writes, to be sent instead."""
        check_is_fitted(self, "_state")
        return container.to_bytes(contents_of(self, compact=compact))

    @property
    def models_(self) -> tuple[LocalModel, ...]:
        """The local models, oldest first; in units of the ensemble's own, which `units_` tells."""
        check_is_fitted(self, "_state")
        return tuple(self._state.ensemble.models)

    @property
    def units_(self) -> Units:
        """The units that the local models work in: those of the first rows."""
        return self._answering_ensemble()[1]

    @property
    def hyperparameters_(self) -> tuple[Hyperparameters, ...]:
        """What each local model has learned, in the user's units.

        Several outputs share it: amplitude and noise are then relative, and those of output j are `units_.target_scale[j]`
        times as much.
        """
        return tuple(self.units_.for_user(model.theta) for model in self.models_)

    @property
    def pseudo_inputs_(self) -> tuple[Array, ...]:
        """Where each local model keeps its knowledge, in the user's units: (M, d) each."""
        return tuple(self.units_.inputs_for_user(model.inputs) for model in self.models_)

    @property
    def bounds_(self) -> Array:
        """(2, d): the least and the greatest of each input seen so far."""
        check_is_fitted(self, "_state")
        return self._state.bounds

    @property
    def n_models_(self) -> int:
        """How many local models there are."""
        check_is_fitted(self, "_state")
        return len(self._state.ensemble)

    @property
    def n_outputs_(self) -> int:
        """How many outputs there are: columns of `y`, 1 if it has none."""
        check_is_fitted(self, "_state")
        return n_outputs(self._state.pending_y)

    @property
    def n_pending_(self) -> int:
        """How many rows wait for a batch to fill; they count as seen."""
        check_is_fitted(self, "_state")
        return len(self._state.pending_y)

    @property
    def n_samples_seen_(self) -> int:
        """How many rows were given so far, learned or waiting."""
        check_is_fitted(self, "_state")
        return self._state.n_seen

    @property
    def history_(self) -> tuple[StepRecord, ...]:
        """What happened in each step, oldest first; the latest `history_size` of them."""
        check_is_fitted(self, "_state")
        return self._state.records

    def _with_state(self, state: State) -> Self:
        """Another estimator with these settings that knows what `state` tells."""
        other = copy(self)
        other._state = state
        return other

    def _representative_rows(self, X: Array, y: Array) -> tuple[Array, Array]:
        """Of all the rows of `fit`, those to begin with: as in a stream, the first."""
        return X[: self._n_before_learning()], y[: self._n_before_learning()]

    def _initial_state(self, X: Array, y: Array) -> State:
        """Before anything is learned of rows like `X` (n, d), `y` (n,) or (n, k)."""
        n_features = X.shape[1]
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        nowhere = np.stack([np.full(n_features, np.inf), np.full(n_features, -np.inf)])
        return State(Ensemble.empty(n_features), seed, np.empty((0, n_features)), np.empty((0, *y.shape[1:])), nowhere)

    def _learn(self, X: Array, y: Array) -> None:
        """Take in rows; learn those that make full batches."""
        state = self._state
        self._state = replace(
            state,
            pending_X=np.concatenate([state.pending_X, X]),
            pending_y=np.concatenate([state.pending_y, y]),
            bounds=np.stack([np.minimum(state.bounds[0], X.min(axis=0)), np.maximum(state.bounds[1], X.max(axis=0))]),
            n_seen=state.n_seen + len(y),
        )
        self._learn_full_batches()

    def _learn_full_batches(self) -> None:
        n_first = self._n_before_learning()
        if self._state.learner is None and self.n_pending_ >= n_first:
            self._begin(self._state.pending_X[:n_first], self._state.pending_y[:n_first])
        batching = self._make_batching()
        while self._state.learner is not None and self.n_pending_ >= (
            n_ready := batching.n_ready(self._state.n_learned)
        ):
            self._step(batching, n_ready)
        state = self._state  # copies let go of the rows that are learned
        self._state = replace(state, pending_X=state.pending_X.copy(), pending_y=state.pending_y.copy())

    def _flush(self) -> None:
        if self._state.learner is None and self.n_pending_:
            self._begin(self._state.pending_X, self._state.pending_y)
        while self.n_pending_:
            self._step(self._make_batching(), self.n_pending_)

    def _begin(self, X: Array, y: Array) -> None:
        """Choose units and make the learner, by the first rows; these are learned later, like all others."""
        units = Units.of(X, y)
        learner = self._make_learner(units.inputs(X), units.targets(y), units)
        self._state = replace(self._state, units=units, learner=learner)

    def _step(self, batching: Batching, n_ready: int) -> None:
        """Learn a batch of the `n_ready` rows that have waited longest."""
        state = self._state
        assert state.learner is not None
        assert state.units is not None
        waiting = state.units.inputs(state.pending_X[:n_ready])
        rows = batching.choose(waiting, state.ensemble)
        X, y = waiting[rows], state.units.targets(state.pending_y[rows])
        calibration = self._calibrated(state, X, y)
        ensemble, record = step(
            state.ensemble,
            X,
            y,
            learner=state.learner,
            rule=self._make_splitting_rule(),
            n_candidates=self.n_candidates,
            seed=state.seed,
            number=state.n_steps,
            target_unit=state.units.target_unit,
            max_models=self._max_models(),
            is_thorough=self.thorough,
            workers=Workers(self.n_jobs),
        )
        self._state = replace(
            state,
            ensemble=ensemble,
            pending_X=np.delete(state.pending_X, rows, axis=0),
            pending_y=np.delete(state.pending_y, rows, axis=0),
            records=(*state.records, record)[-self.history_size :],
            n_steps=state.n_steps + 1,
            calibration=calibration,
        )

    def _calibrated(self, state: State, X: Array, y: Array) -> Calibration:
        """After the batch `X` (n, d), `y` (n,) or (n, k) was predicted, before it is learned."""
        if not self._is_calibrated() or not len(state.ensemble) or not state.calibration.needs(state.n_steps):
            return state.calibration
        mean, variance, noise = predict(state.ensemble, self._make_calibration_rule(), X)
        return state.calibration.seen(y - mean, variance, noise)

    def _make_calibration_rule(self) -> PredictionRule:
        """The prediction rule, or one that takes less time and is about as uncertain."""
        return self._make_prediction_rule()

    def _max_models(self) -> int | None:
        """How many models there may be."""
        return None

    def _is_calibrated(self) -> bool:
        """Whether the stream tells how uncertain the field is."""
        return False

    def _stretch(self) -> float:
        """Factor of the standard deviation of the field."""
        return self._state.calibration.factor if self._is_calibrated() else 1.0

    def _make_batching(self) -> Batching:
        """Which rows are learned together."""
        return InOrder(self._batch_rows())

    @abstractmethod
    def _batch_rows(self) -> int:
        """Rows that make a batch."""

    def _n_before_learning(self) -> int:
        """Rows to wait for before the first batch."""
        return self._batch_rows()

    def _answering_ensemble(self) -> tuple[Ensemble, Units]:
        """The ensemble and its units; before the first batch, a quick model of the rows that wait."""
        check_is_fitted(self, "_state")
        state = self._state
        if len(state.ensemble) and state.units is not None:
            with one_blas_thread():
                return state.answering, state.units
        units = state.units or Units.of(state.pending_X, state.pending_y)
        X, y = units.inputs(state.pending_X), units.targets(state.pending_y)
        with one_blas_thread():
            learner = state.learner or self._make_quick_learner(X, y, units)
            return state.ensemble.with_model(learner.quick_fit(X, y)), units

    def _validated(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        """Rows as arrays of our own. Nothing about the estimator changes unless all of them are good."""
        rows, targets = _checked_inputs(X, self, copy=True), _checked_targets(y, self)
        check_consistent_length(rows, targets)
        self._check_columns(rows.shape[1])
        if not reset:
            targets = self._like_those_before(targets)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            self.target_name_ = _target_name(y)
        return rows, targets

    def _like_those_before(self, targets: Array) -> Array:
        """Targets (n,) or (n, k) in the shape of the earlier ones; one output may be given in either."""
        if n_outputs(targets) != self.n_outputs_:
            raise ValueError(
                f"y has {n_outputs(targets)} outputs, but {type(self).__name__} has learned {self.n_outputs_}; "
                "give a column for each of these, or use fit to begin anew"
            )
        return targets.reshape(len(targets), *self._state.outputs)

    def _validated_queries(self, X: ArrayLike) -> Array:
        queries = _checked_inputs(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return queries


class OnlineRegressor(EnsembleRegressor):
    """An ensemble regressor that also learns from a stream."""

    batch_size: int

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn more rows, any number of them.

        They are learned in batches of `batch_size`; `n_pending_` rows wait for a batch to fill. `predict` knows them
        too: until the first batch it answers by a quick model of them, later by the local models nearest to them. What
        local models are made of (kernel, number of pseudo-inputs) is settled with the first batch.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs, which are the same in every call.
        """
        self._check_settings()
        is_first = not hasattr(self, "_state")
        X, y = self._validated(X, y, reset=is_first)
        if is_first:
            self._state = self._initial_state(X, y)
        with one_blas_thread():
            self._learn(X, y)
        return self

    @property
    def n_until_step_(self) -> int:
        """How many more rows it takes until some are learned."""
        check_is_fitted(self, "_state")
        n_ready = self._make_batching().n_ready(self._state.n_learned)
        return max(1, n_ready - self.n_pending_)

    def catch_up(self) -> Self:
        """Learn the full batches among the rows that wait: there are some if learning was interrupted."""
        check_is_fitted(self, "_state")
        with one_blas_thread():
            self._learn_full_batches()
        return self

    def _check_settings(self) -> None:
        super()._check_settings()
        require_count("batch_size", self.batch_size)

    def _batch_rows(self) -> int:
        return int(self.batch_size)


def _checked_inputs(X: ArrayLike, estimator: EnsembleRegressor, *, copy: bool = False) -> Array:
    with _errors_that_name("X"):
        inputs: Array = check_array(X, dtype=np.float64, copy=copy, input_name="X", estimator=estimator)
    _check_magnitude("X", inputs)
    return inputs


def _checked_targets(y: ArrayLike, estimator: EnsembleRegressor) -> Array:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    with _errors_that_name("y"):
        targets: Array = check_array(
            y,
            dtype=np.float64,
            order="C",
            copy=True,
            ensure_2d=False,
            allow_nd=True,
            ensure_min_features=0,
            input_name="y",
            estimator=estimator,
        )
    if targets.ndim > 2 or targets.shape[1:] == (0,):
        raise ValueError(f"y has shape {targets.shape}; it must be (n,), or (n, k) with a column for each output")
    _check_magnitude("y", targets)
    return targets


def _target_name(y: Any) -> str | tuple[str, ...] | None:
    """The name of a series, or those of a frame's columns; None unless they are words."""
    name, names = getattr(y, "name", None), tuple(getattr(y, "columns", ()))
    if names and all(isinstance(each, str) for each in names):
        return names
    return name if isinstance(name, str) else None


@contextmanager
def _errors_that_name(argument: str) -> Iterator[None]:
    """Some of scikit-learn's and NumPy's messages do not say which array they are about."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if argument in str(error).split():
            raise
        raise type(error)(f"{argument}: {error}") from error


def _check_magnitude(name: str, array: Array) -> None:
    if np.abs(array).max(initial=0.0) > LARGEST:
        raise ValueError(f"{name} has values beyond {LARGEST:g}; rescale it")
