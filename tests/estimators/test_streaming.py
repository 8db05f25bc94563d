"""Streams: the ensemble does not depend on how rows are divided into calls; pending rows; the first answers."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import (
    BATCH,
    ONLINE,
    assert_same_learning,
    every_estimator_in_batches,
    every_online_estimator,
    queries,
    small,
    streamed,
    travelling,
)
from wgpr import Hyperparameters, LocalGPRegressor, SparseGPRegressor, WGPRegressor

X, y = travelling()
QUERIES = queries()
THETA = Hyperparameters(1.0, np.array([1.0, 2.0]), 0.1)

# LGPR learns its hyperparameters from other rows in `fit` than in `partial_fit`: with given ones it is like the others,
# and without them only its streams can be compared.
STREAMS = [
    *(pytest.param(regressor, {}, id=regressor.__name__) for regressor in ONLINE),
    pytest.param(LocalGPRegressor, {"hyperparameters": THETA}, id="LocalGPRegressor with hyperparameters"),
    pytest.param(LocalGPRegressor, {"n_calibration": 7}, id="LocalGPRegressor with a short calibration"),
]
every_stream = pytest.mark.parametrize(("regressor", "options"), STREAMS)
every_stream_that_fit_equals = pytest.mark.parametrize(
    ("regressor", "options"),
    [case for case in STREAMS if case.values[0] is not LocalGPRegressor or "hyperparameters" in case.values[1]],
)


def in_pieces(estimator, borders, rows=X, targets=y):
    """Learn the pieces between the borders, one after the other."""
    for first, last in zip([0, *borders], [*borders, len(rows)], strict=True):
        estimator.partial_fit(rows[first:last], targets[first:last])
    return estimator


# Rows in pieces


@every_stream
def test_one_row_at_a_time_is_learned_like_all_at_once(regressor, options):
    one_by_one = in_pieces(small(regressor, **options), range(1, len(X)))
    assert_same_learning(one_by_one, small(regressor, **options).partial_fit(X, y))


@every_stream
@settings(max_examples=5)
@given(borders=st.sets(st.integers(1, len(X) - 1), max_size=8).map(sorted))
def test_any_pieces_are_learned_like_all_at_once(regressor, options, borders):
    pieces = in_pieces(small(regressor, **options), borders)
    assert_same_learning(pieces, small(regressor, **options).partial_fit(X, y))


@every_stream_that_fit_equals
@pytest.mark.parametrize("n_rows", [1, BATCH - 1, BATCH, BATCH + 1, 110])
def test_fit_is_partial_fit_and_flush(regressor, options, n_rows):
    streamed = small(regressor, **options).partial_fit(X[:n_rows], y[:n_rows]).flush()
    fitted = small(regressor, **options).fit(X[:n_rows], y[:n_rows])
    if regressor is WGPRegressor and n_rows < BATCH:  # the stream has no units yet, but answers alike
        assert (streamed.n_models_, fitted.n_models_) == (0, 1)
        for answer, expected in zip(streamed.predict(QUERIES, True), fitted.predict(QUERIES, True), strict=True):
            np.testing.assert_array_equal(answer, expected)
        return
    assert_same_learning(fitted, streamed)


@every_estimator_in_batches
def test_fit_goes_on_with_partial_fit(regressor):
    estimator = small(regressor).fit(X[:50], y[:50])
    n_models = estimator.n_models_
    estimator.partial_fit(X[50:], y[50:])
    assert estimator.n_samples_seen_ == 110
    assert [record.n_samples for record in estimator.history_] == [20, 20, 10, 20, 20, 20]
    assert estimator.n_models_ >= n_models


# Pending rows


@every_estimator_in_batches
def test_pending_rows_are_counted(regressor):
    estimator = small(regressor, n_calibration=5) if regressor is LocalGPRegressor else small(regressor)
    for n_seen in range(1, 2 * BATCH + 5):
        estimator.partial_fit(X[n_seen - 1 : n_seen], y[n_seen - 1 : n_seen])
        assert estimator.n_samples_seen_ == n_seen
        assert estimator.n_pending_ == n_seen % BATCH
        assert estimator.n_until_step_ == BATCH - n_seen % BATCH
        assert len(estimator.history_) == n_seen // BATCH
        assert sum(model.n_seen for model in estimator.models_) == n_seen - n_seen % BATCH


@every_estimator_in_batches
def test_flush_learns_the_rest_once(regressor):
    estimator = streamed(regressor)
    n_steps, n_pending = len(estimator.history_), estimator.n_pending_
    assert n_pending > 0
    assert estimator.flush() is estimator
    assert estimator.n_pending_ == 0
    assert sum(record.n_samples for record in estimator.history_[n_steps:]) == n_pending
    flushed = pickle.dumps(estimator)
    assert pickle.dumps(estimator.flush()) == flushed


def test_no_row_of_the_default_waits():
    estimator = small(WGPRegressor)
    for n_seen in range(1, 2 * BATCH + 5):
        estimator.partial_fit(X[n_seen - 1 : n_seen], y[n_seen - 1 : n_seen])
        assert (estimator.n_samples_seen_, estimator.n_pending_) == (n_seen, 0)
        assert sum(model.n_seen for model in estimator.models_) == (n_seen if n_seen >= BATCH else 0)
    state = estimator._state
    assert estimator.flush()._state is state


@every_estimator_in_batches
def test_flush_in_the_middle_is_a_smaller_batch(regressor):
    estimator = small(regressor).partial_fit(X[:30], y[:30]).flush().partial_fit(X[30:], y[30:])
    assert [record.n_samples for record in estimator.history_] == [20, 10, 20, 20, 20, 20]
    assert estimator.n_pending_ == 0


def test_the_batch_regressor_has_no_pending_rows():
    estimator = small(SparseGPRegressor).fit(X, y)
    assert not hasattr(estimator, "partial_fit")
    assert (estimator.n_pending_, estimator.n_samples_seen_, len(estimator.history_)) == (0, 110, 1)
    before = pickle.dumps(estimator)
    assert pickle.dumps(estimator.flush()) == before


# Predictions from the first row on


@every_online_estimator
@pytest.mark.parametrize("n_rows", [1, 2, BATCH - 1, BATCH])
def test_predict_works_from_the_first_row_on(regressor, n_rows):
    estimator = small(regressor).partial_fit(X[:n_rows], y[:n_rows])
    mean, std = estimator.predict(QUERIES, return_std=True)
    _, covariance = estimator.predict(QUERIES, return_cov=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    np.testing.assert_allclose(covariance.diagonal(), std**2)
    assert (estimator.model_index(QUERIES) < max(1, estimator.n_models_)).all()


@every_online_estimator
def test_predictions_before_the_first_batch_use_the_pending_rows(regressor):
    estimator = small(regressor).partial_fit(X[:10], y[:10])
    assert estimator.n_models_ == 0
    residuals = estimator.predict(X[:10]) - y[:10]
    assert residuals.std() < 0.5 * y[:10].std()


@every_online_estimator
def test_predictions_after_the_first_batch_use_the_pending_rows(regressor):
    n_rows = 2 * BATCH  # LGPR begins with two batches
    without, estimator = (small(regressor).partial_fit(X[:n], y[:n]) for n in (n_rows, n_rows + BATCH - 1))
    latest = slice(n_rows, n_rows + BATCH - 1)
    before, now = (np.abs(model.predict(X[latest]) - y[latest]).mean() for model in (without, estimator))
    assert now < 0.8 * before


@every_online_estimator
def test_the_prediction_at_an_only_row_is_its_target(regressor):
    estimator = small(regressor).partial_fit([[3.0, 4.0]], [7.0])
    np.testing.assert_allclose(estimator.predict([[3.0, 4.0]]), 7.0)


# LGPR's calibration


def test_lgpr_waits_for_its_calibration():
    estimator = small(LocalGPRegressor, n_calibration=45)
    estimator.partial_fit(X[:44], y[:44])
    assert (estimator.n_models_, estimator.n_pending_, estimator.history_) == (0, 44, ())
    estimator.partial_fit(X[44:45], y[44:45])
    assert (len(estimator.history_), estimator.n_pending_) == (2, 5)


def test_lgpr_learns_its_hyperparameters_from_the_first_rows_and_keeps_them():
    estimator = streamed(LocalGPRegressor)
    of_the_first = small(LocalGPRegressor).partial_fit(X[: 2 * BATCH], y[: 2 * BATCH])
    thetas = {tuple(model.theta.to_log()) for model in (*estimator.models_, *of_the_first.models_)}
    assert len(thetas) == 1


def test_lgpr_with_hyperparameters_does_not_wait():
    estimator = small(LocalGPRegressor, hyperparameters=THETA).partial_fit(X[:BATCH], y[:BATCH])
    assert estimator.n_pending_ == 0
    for theta in estimator.hyperparameters_:
        np.testing.assert_allclose(theta.to_log(), THETA.to_log())


def test_lgpr_flushed_early_calibrates_on_what_there_is():
    estimator = small(LocalGPRegressor).partial_fit(X[:10], y[:10]).flush()
    assert estimator.n_pending_ == 0
    assert sum(model.n_seen for model in estimator.models_) == 10
