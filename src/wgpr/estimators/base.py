"""The scikit-learn side of an ensemble: validation, batching and prediction, the same for every method."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.territories import Territories
from wgpr.estimators.attributes import FittedAttributes
from wgpr.estimators.methods import AnyEnsemble, Method, TerritoryMethod
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.linalg import Array, Indices, columns, expand_outputs, n_outputs, one_blas_thread

# Squares of larger numbers, summed over a batch, would leave the range of float64.
LARGEST = 1e100

# Weights beyond this, or its inverse, make other rows or their own row meaningless.
LEAST_WEIGHT = 1e-8


class EnsembleRegressor(FittedAttributes, RegressorMixin, BaseEstimator, ABC):
    """What all the regressors share: an ensemble that learns by steps and answers queries.

    Settings are the constructor's arguments, `_make_method` makes the method from them, `_state` is what was learned.

    Several outputs, a column of `y` for each, are fields of their own over shared inputs: they have the same
    hyperparameters, each in its own unit, the same local models and the same decisions.
    """

    random_state: Any
    # How places of a survey become inputs, if its coordinates were projected (wgpr.io.coordinates); else None.
    crs_: Any = None

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

    def _method_that_learned(self, state: State) -> Method:
        """The method; raises an error if settings were replaced by those of another method."""
        method = self._method()
        if len(state.ensemble) and isinstance(method, TerritoryMethod) is not isinstance(state.ensemble, Territories):
            raise ValueError("threshold or splitting describe another method than the one that learned; use fit again")
        return method

    # Learning

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn all rows in their order. If it fails or is interrupted, nothing changes.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs. Names of a frame's columns and of a series are
            kept, as `feature_names_in_` and `target_name_`.
        """
        return self._fit(X, y, None)

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        with self._unchanged_on_failure(), one_blas_thread():
            method = self._method()
            _check_uses_weights(method, sample_weight)
            X, y = self._validated(X, y, reset=True)
            self._state = method.fitted(self._initial_state(X, y), X, y, checked_weights(sample_weight, X))
        return self

    def flush(self) -> Self:
        """Learn the pending rows, as a smaller batch."""
        check_is_fitted(self, "_state")
        with one_blas_thread():
            self._state = self._method_that_learned(self._state).flushed(self._state)
        return self

    def _initial_state(self, X: Array, y: Array) -> State:
        """The state before anything is learned of rows like `X` (n, d), `y` (n,) or (n, k)."""
        n_features = X.shape[1]
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        bounds = np.stack([np.full(n_features, np.inf), np.full(n_features, -np.inf)])
        return State(Ensemble.of([], n_features), seed, X[:0].copy(), y[:0].copy(), np.empty(0), bounds)

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
        with one_blas_thread():
            state, ensemble, units, queries = self._prepared(X)
            mean, _, noise, _ = self._method().answers(state, ensemble, queries)
            covariance = self._method().covariance(state, ensemble, queries)
        observed = covariance + expand_outputs(np.diag(columns(noise)[:, 0]), covariance)
        uncertainty = covariance if latent else observed
        return units.target_offset + units.target_scale * mean, units.target_scale**2 * uncertainty

    def predict_with_owners(self, X: ArrayLike) -> tuple[Array, Array, Array, Indices]:
        """Everything about the queries `X` (n, d) at once, in a third of the time of single calls.

        Returns
        -------
        Mean (n,), standard deviations of an observation and of the field (n,), and which local model answers (n,), as
        `model_index` has it.
        """
        with one_blas_thread():
            state, ensemble, units, queries = self._prepared(X)
            mean, variance, noise, owners = self._method().answers(state, ensemble, queries)
        observed, field = units.target_scale * np.sqrt(variance + noise), units.target_scale * np.sqrt(variance)
        return units.target_offset + units.target_scale * mean, observed, field, owners

    def model_index(self, X: ArrayLike) -> Indices:
        """Which local model answers at each row of `X` (n, d): an index into `models_`.

        With a rule that asks several models, the one with the largest weight.
        """
        return self.predict_with_owners(X)[-1]

    def _prepared(self, X: ArrayLike) -> tuple[State, AnyEnsemble, Units, Array]:
        """The state, the ensemble that answers, its units, and the queries (n, d) in these."""
        check_is_fitted(self, "_state")
        state = self._state  # at once: another thread may learn
        queries = self._checked_queries(X)
        ensemble, units = self._method_that_learned(state).answering(state)
        return state, ensemble, units, units.inputs(queries)

    def _checked_queries(self, X: Any) -> Array:
        """Queries (n, d)."""
        plain = self._plain(X)
        if plain is not None:
            return plain
        self._check_named(X)
        queries = _checked_inputs(X, self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return queries

    def _check_named(self, X: Any) -> None:
        """Refuse inputs without names if the estimator has a coordinate reference system: degrees would be metres."""
        if self.crs_ is not None and not hasattr(X, "columns"):
            raise ValueError(
                f"X has no names of columns, and the map has a coordinate reference system ({self.crs_}). Inputs are "
                f"{', '.join(self.feature_names_in_)}: name the columns so, or ask wgpr.predict_at for other places"
            )

    def _plain(self, X: Any) -> Array | None:
        """The numbers (n, d) of an array or a frame that needs no further check; None if it needs one.

        scikit-learn needs long to check a single row.
        """
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            if not hasattr(X, "to_numpy") or list(getattr(X, "columns", ())) != names.tolist():
                return None
            X = X.to_numpy()
        is_array = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2
        has_shape = is_array and len(X) > 0 and X.shape[1] == self.n_features_in_
        return X if has_shape and np.abs(X).max() <= LARGEST else None  # false for NaN

    def _answering(self) -> tuple[AnyEnsemble, Units]:
        check_is_fitted(self, "_state")
        with one_blas_thread():
            return self._method().answering(self._state)

    def _with_state(self, state: State) -> Self:
        """Another estimator with these settings and this state."""
        other = copy(self)
        other._state = state
        return other

    # Validation

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        """Rows as arrays, which may be the caller's. Nothing about the estimator changes unless all are good."""
        plain = None if reset else self._plain(X)
        plain_targets = None if plain is None else _plain_targets(y, plain)
        if plain is not None and plain_targets is not None:
            return plain, self._in_known_shape(plain_targets)
        if not reset:
            self._check_named(X)
        rows, targets = _checked_inputs(X, self), _checked_targets(y, self)
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

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn more rows, any number of them. If it fails or is interrupted, nothing changes: call it again.

        Rows are learned in batches of `batch_size`; `n_pending_` rows wait for a batch to fill. `predict` uses them
        too: until the first batch it answers by a quick model of them, later by the local models nearest to them. What
        local models are made of (kernel, number of pseudo-inputs) is settled with the first batch.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs, the same number in every call.
        """
        return self._partial_fit(X, y, None)

    def _partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        with self._unchanged_on_failure(), one_blas_thread():
            method, is_first = self._method(), not hasattr(self, "_state")
            _check_uses_weights(method, sample_weight)
            X, y = self._validated(X, y, reset=is_first)
            state = self._initial_state(X, y) if is_first else self._state
            self._state = method.learned(state, X, y, checked_weights(sample_weight, X))
        return self

    @property
    def n_until_step_(self) -> int:
        """Number of further rows until some are learned."""
        check_is_fitted(self, "_state")
        return self._method().n_until_step(self._state)


# Arrays that the user gives


def _checked_inputs(X: ArrayLike, estimator: EnsembleRegressor) -> Array:
    with _naming("X"):
        inputs: Array = check_array(X, dtype=np.float64, input_name="X", estimator=estimator)
    _check_magnitude("X", inputs)
    return inputs


def _checked_targets(y: ArrayLike, estimator: EnsembleRegressor) -> Array:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    with _naming("y"):
        targets: Array = check_array(
            y, dtype=np.float64, order="C", ensure_2d=False, allow_nd=True, ensure_min_features=0,
            input_name="y", estimator=estimator,
        )  # fmt: skip
    if targets.ndim > 2 or targets.shape[1:] == (0,):
        raise ValueError(f"y has shape {targets.shape}; it must be (n,), or (n, k) with a column for each output")
    _check_magnitude("y", targets)
    return targets


def _check_uses_weights(method: Method, sample_weight: ArrayLike | None) -> None:
    if sample_weight is not None and not method.uses_weights:
        raise ValueError("sample_weight has no effect with the paper's method; leave it out, or use WGPRegressor()")


def _plain_targets(y: Any, X: Array) -> Array | None:
    """The numbers (n,) of an array or a series, one for each row, that needs no further check; None if it needs one."""
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    is_plain = type(y) is np.ndarray and y.dtype == np.float64 and y.shape == (len(X),)
    return y if is_plain and np.abs(y).max() <= LARGEST else None


def checked_weights(sample_weight: ArrayLike | None, X: Array) -> Array:
    """Weights (n,) of the rows `X` (n, d), one if none are given."""
    if sample_weight is None:
        return np.ones(len(X))
    with _naming("sample_weight"):
        weights: Array = check_array(
            sample_weight, dtype=np.float64, copy=True, ensure_2d=False, allow_nd=True, input_name="sample_weight"
        )
    if weights.shape != (len(X),):
        raise ValueError(f"sample_weight has shape {weights.shape}; it must be ({len(X)},), a weight for each row of X")
    if not ((weights >= LEAST_WEIGHT) & (weights <= 1.0 / LEAST_WEIGHT)).all():
        limits = f"between {LEAST_WEIGHT:g} and {1.0 / LEAST_WEIGHT:g}"
        raise ValueError(f"sample_weight must be {limits}; leave out rows of zero weight")
    return weights


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
