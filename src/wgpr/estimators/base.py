"""The scikit-learn side of an ensemble: validation, batching and prediction, the same for every method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import SplittingRule
from wgpr.estimators.attributes import FittedAttributes
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.linalg import Array, Indices, expand_outputs, n_outputs, one_blas_thread
from wgpr.gp.model import Learner
from wgpr.rules.batching import Batching
from wgpr.rules.calibration import Calibration
from wgpr.rules.prediction import PredictionRule, predict, predict_jointly, predict_with_owners

# Squares of larger numbers, summed over a batch, would leave the range of float64.
LARGEST = 1e100

# Steps that `history_` keeps.
HISTORY_SIZE = 10_000

LearnerFactory = Callable[[Array, Array, Units], Learner[Any]]


@dataclass(frozen=True)
class Method:
    """A method of online regression: a learner, rules, and limits.

    learner : makes the learner from the first rows (n, d), (n,), in the ensemble's units, and these.
    splitting, prediction, batching : the rules.
    n_first : rows to wait for before anything is learned.
    quick_learner : makes a learner for predictions before that; None for `learner`.
    rows_to_begin : of the n rows of `fit`, those that units and learner are made from; None for the first `n_first`.
    n_candidates : models that a batch is tried on; is_thorough : in full, or after a screen in closed form.
    max_models : limit on the number of models, None for no limit.
    calibration : prediction rule of the forecasts that calibrate the uncertainty; None for no calibration.
    n_features : number of inputs that the settings are made for; None for any.
    """

    learner: LearnerFactory
    splitting: SplittingRule
    prediction: PredictionRule
    batching: Batching
    n_first: int
    quick_learner: LearnerFactory | None = None
    rows_to_begin: Callable[[int], slice | Indices] | None = None
    n_candidates: int = 1
    is_thorough: bool = True
    max_models: int | None = None
    calibration: PredictionRule | None = None
    n_features: int | None = None


class EnsembleRegressor(FittedAttributes, RegressorMixin, BaseEstimator, ABC):
    """What all the regressors share: an ensemble that learns by steps and answers queries.

    Settings are the constructor's arguments, `_make_method` makes the method from them, `_state` is what was learned.

    Several outputs, a column of `y` for each, are fields of their own over shared inputs: they have the same
    hyperparameters, each in its own unit, the same local models and the same decisions.
    """

    random_state: Any

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_known_method"}

    @abstractmethod
    def _make_method(self) -> Method:
        """The method that the settings describe; raises an error that names the first wrong setting."""

    def _method(self) -> Method:
        """The method, made again only if a setting was replaced."""
        attributes = list(vars(self).items())  # at once: another thread may add `_known_method`
        settings = [value for name, value in attributes if not name.startswith("_") and not name.endswith("_")]
        known, method = getattr(self, "_known_method", ([], None))
        if (
            method is None
            or len(known) != len(settings)
            or any(a is not b for a, b in zip(known, settings, strict=True))
        ):
            method = self._make_method()
            self._known_method = settings, method
        return method

    # Learning

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn all rows in their order. If it fails or is interrupted, nothing changes.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs. Names of a frame's columns and of a series are
            kept, as `feature_names_in_` and `target_name_`.
        """
        with self._unchanged_on_failure(), one_blas_thread():
            method = self._method()
            X, y = self._validated(X, y, reset=True)
            rows = slice(method.n_first) if method.rows_to_begin is None else method.rows_to_begin(len(y))
            state = _begun(method, self._initial_state(X, y), X[rows], y[rows])
            self._state = _flushed(method, _with_rows(method, state, X, y))
        return self

    def flush(self) -> Self:
        """Learn the pending rows, as a smaller batch."""
        check_is_fitted(self, "_state")
        with one_blas_thread():
            self._state = _flushed(self._method(), self._state)
        return self

    def _initial_state(self, X: Array, y: Array) -> State:
        """The state before anything is learned of rows like `X` (n, d), `y` (n,) or (n, k)."""
        n_features = X.shape[1]
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        bounds = np.stack([np.full(n_features, np.inf), np.full(n_features, -np.inf)])
        return State(Ensemble.of([], n_features), seed, X[:0].copy(), y[:0].copy(), bounds)

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[None]:
        """An error or an interruption leaves the estimator as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            for name in self.__dict__.keys() - before.keys():
                delattr(self, name)
            self.__dict__.update(before)
            raise

    # Prediction

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False, latent: bool = False
    ) -> Array | tuple[Array, Array]:
        """The mean at `X`, and its uncertainty.

        Parameters
        ----------
        X : (n, d) queries.
        return_std : also return the standard deviation (n,).
        return_cov : also return the covariance (n, n); not together with `return_std`.
        latent : uncertainty of the field itself; by default, of an observation of it, with its noise.

        Returns
        -------
        mean : (n,), or a pair of the mean and the uncertainty. If `y` had k columns, mean and standard deviation
            are (n, k), and the covariance is (n, n, k).
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True; ask for one of them")
        if not return_cov:
            mean, observed, field, _ = self.predict_with_owners(X)
            return (mean, field if latent else observed) if return_std else mean
        ensemble, units, queries = self._prepared(X)
        with one_blas_thread():
            (mean, covariance), noise = predict_jointly(ensemble, self._method().prediction, queries)
        covariance = covariance * self._calibration_factor() ** 2
        uncertainty = covariance if latent else covariance + expand_outputs(np.diag(noise), covariance)
        return units.target_offset + units.target_scale * mean, units.target_scale**2 * uncertainty

    def predict_with_owners(self, X: ArrayLike) -> tuple[Array, Array, Array, Indices]:
        """Everything about the queries `X` (n, d) at once, in a third of the time of single calls.

        Returns
        -------
        Mean (n,), standard deviations of an observation and of the field (n,), and which local model answers (n,), as
        `model_index` has it.
        """
        with one_blas_thread():
            ensemble, units, queries = self._prepared(X)
            mean, variance, noise, owners = predict_with_owners(ensemble, self._method().prediction, queries)
        variance = variance * self._calibration_factor() ** 2
        observed, field = units.target_scale * np.sqrt(variance + noise), units.target_scale * np.sqrt(variance)
        return units.target_offset + units.target_scale * mean, observed, field, owners

    def model_index(self, X: ArrayLike) -> Indices:
        """Which local model answers at each row of `X` (n, d): an index into `models_`.

        With a rule that asks several models, the one with the largest weight.
        """
        return self.predict_with_owners(X)[-1]

    def _prepared(self, X: ArrayLike) -> tuple[Ensemble, Units, Array]:
        """The ensemble that answers, its units, and the queries (n, d) in these."""
        ensemble, units = self._answering()
        return ensemble, units, units.inputs(self._checked_queries(X))

    def _checked_queries(self, X: Any) -> Array:
        """Queries (n, d). A good array of float64 is used as it is: scikit-learn needs long to check a single row."""
        is_plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and len(X) > 0
        has_shape = is_plain and X.shape[1] == self.n_features_in_ and not hasattr(self, "feature_names_in_")
        if has_shape and np.abs(X).max() <= LARGEST:  # false for NaN
            return X
        queries = _checked_inputs(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return queries

    def _answering(self) -> tuple[Ensemble, Units]:
        """The ensemble that answers and its units; before the first batch, a quick model of the pending rows."""
        check_is_fitted(self, "_state")
        state = self._state
        with one_blas_thread():
            if len(state.ensemble) and state.units is not None:
                return state.conditioned, state.units
            units = state.units or Units.of(state.pending_X, state.pending_y)
            X, y = units.inputs(state.pending_X), units.targets(state.pending_y)
            method = self._method()
            learner = state.learner or (method.quick_learner or method.learner)(X, y, units)
            return state.ensemble.with_model(learner.quick_fit(X, y)), units

    def _calibration_factor(self) -> float:
        return 1.0 if self._method().calibration is None else self._state.calibration.factor

    def _with_state(self, state: State) -> Self:
        """Another estimator with these settings and this state."""
        other = copy(self)
        other._state = state
        return other

    # Validation

    def _validated(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        """Rows as arrays of our own. Nothing about the estimator changes unless all of them are good."""
        rows, targets = _checked_inputs(X, self, copy=True), _checked_targets(y, self)
        check_consistent_length(rows, targets)
        n_features = self._method().n_features
        if n_features not in (None, rows.shape[1]):
            raise ValueError(
                f"hyperparameters has {n_features} length-scales and X has {rows.shape[1]} "
                "columns; give one length-scale for each column"
            )
        if not reset:
            targets = self._in_known_shape(targets)
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            self.target_name_ = _target_name(y)
        return rows, targets

    def _in_known_shape(self, targets: Array) -> Array:
        """Targets (n,) or (n, k) in the shape of the earlier ones; one output may be given in either."""
        known = self._state.pending_y
        if n_outputs(targets) != n_outputs(known):
            raise ValueError(
                f"y has {n_outputs(targets)} outputs, but {type(self).__name__} has learned {n_outputs(known)}; "
                "give a column for each of these, or use fit to begin anew"
            )
        return targets.reshape(len(targets), *known.shape[1:])


class OnlineRegressor(EnsembleRegressor):
    """An ensemble regressor that also learns from a stream."""

    batch_size: int

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn more rows, any number of them. If it fails or is interrupted, nothing changes: call it again.

        Rows are learned in batches of `batch_size`; `n_pending_` rows wait for a batch to fill. `predict` uses them
        too: until the first batch it answers by a quick model of them, later by the local models nearest to them. What
        local models are made of (kernel, number of pseudo-inputs) is settled with the first batch.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs, the same number in every call.
        """
        with self._unchanged_on_failure(), one_blas_thread():
            method, is_first = self._method(), not hasattr(self, "_state")
            X, y = self._validated(X, y, reset=is_first)
            state = self._initial_state(X, y) if is_first else self._state
            self._state = _with_rows(method, state, X, y)
        return self

    @property
    def n_until_step_(self) -> int:
        """Number of further rows until some are learned."""
        check_is_fitted(self, "_state")
        n_ready = self._method().batching.n_ready(self._state.ensemble.n_learned)
        return max(1, n_ready - self.n_pending_)


# How the state changes


def _with_rows(method: Method, state: State, X: Array, y: Array) -> State:
    """The state after rows `X` (n, d), `y` (n,) or (n, k) were given; full batches are learned."""
    state = replace(
        state,
        pending_X=np.concatenate([state.pending_X, X]),
        pending_y=np.concatenate([state.pending_y, y]),
        bounds=np.stack([np.minimum(state.bounds[0], X.min(axis=0)), np.maximum(state.bounds[1], X.max(axis=0))]),
        n_seen=state.n_seen + len(y),
    )
    if state.learner is None and len(state.pending_y) >= method.n_first:
        state = _begun(method, state, state.pending_X[: method.n_first], state.pending_y[: method.n_first])
    if state.learner is None:
        return state
    while len(state.pending_y) >= (n_ready := method.batching.n_ready(state.ensemble.n_learned)):
        state = _stepped(method, state, n_ready)
    return state


def _flushed(method: Method, state: State) -> State:
    """The state after all pending rows were learned."""
    if state.learner is None and len(state.pending_y):
        state = _begun(method, state, state.pending_X, state.pending_y)
    while len(state.pending_y):
        state = _stepped(method, state, len(state.pending_y))
    return state


def _begun(method: Method, state: State, X: Array, y: Array) -> State:
    """The state with units and learner made from the first rows; these are learned later, like all others."""
    units = Units.of(X, y)
    return replace(state, units=units, learner=method.learner(units.inputs(X), units.targets(y), units))


def _stepped(method: Method, state: State, n_ready: int) -> State:
    """The state after a batch of the `n_ready` oldest pending rows was learned."""
    assert state.learner is not None
    assert state.units is not None
    pending = state.units.inputs(state.pending_X[:n_ready])
    rows = method.batching.choose(pending, state.ensemble)
    X, y = pending[rows], state.units.targets(state.pending_y[rows])
    calibration = _calibrated(method, state, X, y)
    ensemble, record = absorb(
        state.ensemble,
        X,
        y,
        learner=state.learner,
        rule=method.splitting,
        n_candidates=method.n_candidates,
        seed=state.seed,
        number=state.n_steps,
        target_unit=state.units.target_unit,
        max_models=method.max_models,
        is_thorough=method.is_thorough,
    )
    return replace(
        state,
        ensemble=ensemble,
        pending_X=np.delete(state.pending_X, rows, axis=0),
        pending_y=np.delete(state.pending_y, rows, axis=0),
        records=(*state.records, record)[-HISTORY_SIZE:],
        n_steps=state.n_steps + 1,
        calibration=calibration,
    )


def _calibrated(method: Method, state: State, X: Array, y: Array) -> Calibration:
    """The calibration after a forecast of the batch `X` (n, d), `y` (n,) or (n, k), before that is learned."""
    if method.calibration is None or not len(state.ensemble) or not state.calibration.is_due(state.n_steps):
        return state.calibration
    mean, variance, noise = predict(state.ensemble, method.calibration, X)
    return state.calibration.updated(y - mean, variance, noise)


# Arrays that the user gives


def _checked_inputs(X: ArrayLike, estimator: EnsembleRegressor, *, copy: bool = False) -> Array:
    with _naming("X"):
        inputs: Array = check_array(X, dtype=np.float64, copy=copy, input_name="X", estimator=estimator)
    _check_magnitude("X", inputs)
    return inputs


def _checked_targets(y: ArrayLike, estimator: EnsembleRegressor) -> Array:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    with _naming("y"):
        targets: Array = check_array(
            y, dtype=np.float64, order="C", copy=True, ensure_2d=False, allow_nd=True, ensure_min_features=0,
            input_name="y", estimator=estimator,
        )  # fmt: skip
    if targets.ndim > 2 or targets.shape[1:] == (0,):
        raise ValueError(f"y has shape {targets.shape}; it must be (n,), or (n, k) with a column for each output")
    _check_magnitude("y", targets)
    return targets


def _target_name(y: Any) -> str | tuple[str, ...] | None:
    """The name of a series, or those of a frame's columns; None unless they are strings."""
    name, names = getattr(y, "name", None), tuple(getattr(y, "columns", ()))
    if names and all(isinstance(each, str) for each in names):
        return names
    return name if isinstance(name, str) else None


@contextmanager
def _naming(argument: str) -> Iterator[None]:
    """Make errors of scikit-learn and NumPy name the argument."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if argument in str(error).split():
            raise
        raise type(error)(f"{argument}: {error}") from error


def _check_magnitude(name: str, array: Array) -> None:
    if np.abs(array).max(initial=0.0) > LARGEST:
        raise ValueError(f"{name} has values beyond {LARGEST:g}; rescale it")
