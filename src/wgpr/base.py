"""The scikit-learn side of an ensemble: validation, batching and prediction, the same for every method."""

from abc import ABC, abstractmethod
from collections import deque
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state, check_scalar, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data

from wgpr.ensemble import Ensemble, SplittingRule, StepRecord, step
from wgpr.linalg import Array, one_blas_thread
from wgpr.model import Learner, LocalModel
from wgpr.nearest import Indices
from wgpr.prediction import PredictionRule, answering_model, predict, predict_jointly

# Squares of larger numbers, summed over a batch, would leave the range of float64.
_LARGEST = 1e100


class EnsembleRegressor(RegressorMixin, BaseEstimator, ABC):
    """What all the regressors share: an ensemble that learns by steps and answers queries.

    Settings are the constructor's arguments, state is `_ensemble` (replaced at each step, never edited) and the rows
    that wait for a full batch, and `history_` is the record.
    """

    random_state: Any
    n_candidates = 1
    history_size = 10_000

    @abstractmethod
    def _check_settings(self) -> None:
        """Raise an error that names the first setting that makes no sense."""

    @abstractmethod
    def _make_learner(self, X: Array, y: Array) -> Learner[Any]:
        """The learner, given the first rows to learn from."""

    def _make_quick_learner(self, X: Array, y: Array) -> Learner[Any]:
        """A learner for a preview; like the real one unless that takes long to make."""
        return self._make_learner(X, y)

    @abstractmethod
    def _make_splitting_rule(self) -> SplittingRule: ...

    @abstractmethod
    def _make_prediction_rule(self) -> PredictionRule: ...

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn all rows in their order.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets.
        """
        self._check_settings()
        X, y = self._validated(X, y, reset=True)
        self._reset(X)
        with one_blas_thread():
            self._prepare_fit(X, y)
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
        mean : (n,), or the pair of it and what else was asked for.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both True; ask for one of them")
        ensemble, X = self._answering_ensemble(), self._validated_queries(X)
        rule = self._make_prediction_rule()
        with one_blas_thread():
            if return_cov:
                field, noise = predict_jointly(ensemble, rule, X)
                return field.mean, field.covariance + np.diag(np.zeros_like(noise) if latent else noise)
            mean, variance, noise = predict(ensemble, rule, X)
        if not return_std:
            return mean
        return mean, np.sqrt(variance if latent else variance + noise)

    def flush(self) -> Self:
        """Learn the rows that wait, as a smaller batch."""
        check_is_fitted(self, "_ensemble")
        with one_blas_thread():
            self._flush()
        return self

    def model_index(self, X: ArrayLike) -> Indices:
        """Which local model answers at each row of `X` (n, d): an index into `models_`.

        With a rule that asks several models, the one that counts most.
        """
        ensemble, X = self._answering_ensemble(), self._validated_queries(X)
        with one_blas_thread():
            return answering_model(ensemble, self._make_prediction_rule(), X)

    @property
    def models_(self) -> tuple[LocalModel, ...]:
        """The local models, oldest first."""
        check_is_fitted(self, "_ensemble")
        return self._ensemble.models

    @property
    def n_models_(self) -> int:
        """How many local models there are."""
        return len(self.models_)

    @property
    def n_pending_(self) -> int:
        """How many rows wait for a batch to fill; they count as seen."""
        check_is_fitted(self, "_ensemble")
        return len(self._pending_y)

    @property
    def history_(self) -> tuple[StepRecord, ...]:
        """What happened in each step, oldest first; the latest `history_size` of them."""
        check_is_fitted(self, "_ensemble")
        return tuple(self._records)

    def _prepare_fit(self, X: Array, y: Array) -> None:
        """For methods that learn something from all rows of `fit` before the stream begins."""

    def _reset(self, X: Array) -> None:
        self._ensemble = Ensemble.empty(X.shape[1])
        self._learner: Learner[Any] | None = None
        self._records: deque[StepRecord] = deque(maxlen=self.history_size)
        self._n_steps = 0
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self._pending_X, self._pending_y = np.empty((0, X.shape[1])), np.empty(0)
        self.n_samples_seen_ = 0

    def _learn(self, X: Array, y: Array) -> None:
        """Take in rows; learn those that make full batches."""
        self._pending_X = np.concatenate([self._pending_X, X])
        self._pending_y = np.concatenate([self._pending_y, y])
        self.n_samples_seen_ += len(y)
        if self._learner is None and len(self._pending_y) >= self._n_before_learning():
            self._learner = self._make_learner(self._pending_X, self._pending_y)
        while self._learner is not None and len(self._pending_y) >= self._batch_rows():
            self._step(self._batch_rows())

    def _flush(self) -> None:
        while len(self._pending_y):
            if self._learner is None:
                self._learner = self._make_learner(self._pending_X, self._pending_y)
            self._step(min(self._batch_rows(), len(self._pending_y)))

    def _step(self, n_rows: int) -> None:
        """Learn the oldest waiting rows. State changes only at the end: an interrupted step never happened."""
        assert self._learner is not None
        X, y = self._pending_X[:n_rows], self._pending_y[:n_rows]
        ensemble, record = step(
            self._ensemble,
            X,
            y,
            learner=self._learner,
            rule=self._make_splitting_rule(),
            n_candidates=self.n_candidates,
            seed=self._seed,
            number=self._n_steps,
        )
        self._ensemble = ensemble
        self._pending_X, self._pending_y = self._pending_X[n_rows:], self._pending_y[n_rows:]
        self._records.append(record)
        self._n_steps += 1

    @abstractmethod
    def _batch_rows(self) -> int:
        """Rows that make a batch."""

    def _n_before_learning(self) -> int:
        """Rows to wait for before the first batch."""
        return self._batch_rows()

    def _answering_ensemble(self) -> Ensemble:
        """The ensemble; before the first batch, a quick model of the rows that wait."""
        check_is_fitted(self, "_ensemble")
        if len(self._ensemble):
            return self._ensemble
        with one_blas_thread():
            learner = self._learner or self._make_quick_learner(self._pending_X, self._pending_y)
            return self._ensemble.with_model(learner.preview(self._pending_X, self._pending_y))

    def _validated(self, X: ArrayLike, y: ArrayLike, *, reset: bool) -> tuple[Array, Array]:
        """Rows as arrays of our own. Nothing about the estimator changes unless all of them are good."""
        rows, targets = check_X_y(X, y, dtype=np.float64, y_numeric=True, copy=True, estimator=self)
        targets = targets.astype(np.float64)
        _check_magnitude("X", rows)
        _check_magnitude("y", targets)
        validate_data(self, X, y, reset=reset, skip_check_array=True)
        return rows, targets

    def _validated_queries(self, X: ArrayLike) -> Array:
        queries: Array = validate_data(self, X, reset=False, dtype=np.float64)
        _check_magnitude("X", queries)
        return queries


class OnlineRegressor(EnsembleRegressor):
    """An ensemble regressor that also learns from a stream."""

    batch_size: int

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn more rows, any number of them.

        They are learned in batches of `batch_size`; `n_pending_` rows wait for a batch to fill.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets.
        """
        self._check_settings()
        is_first = not hasattr(self, "_ensemble")
        X, y = self._validated(X, y, reset=is_first)
        if is_first:
            self._reset(X)
        with one_blas_thread():
            self._learn(X, y)
        return self

    def _batch_rows(self) -> int:
        return int(self.batch_size)


def _check_magnitude(name: str, array: Array) -> None:
    if np.abs(array).max(initial=0.0) > _LARGEST:
        raise ValueError(f"{name} has values beyond {_LARGEST:g}; rescale it")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise an error that names the setting unless it is a whole number of at least `least`."""
    check_scalar(value, name, Integral, min_val=least)
