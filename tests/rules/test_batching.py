"""Regional batches: every row is learned once, the buffer is bounded, and pending rows inform predictions."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams import BATCH, Oracle, assert_same_learning, small, travelling
from wgpr import WGPRegressor
from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.rules.batching import InOrder, Regional

N = 130
X, y = travelling(N)
BUFFER = 2 * BATCH


def oracles(*places):
    """An ensemble of models with one input each, on a line."""
    return Ensemble.of([Oracle(0.0, 1.0, float(place)) for place in places], 1)


def line(*places):
    return np.array(places, dtype=float)[:, None]


# The choice alone


def test_in_order_takes_the_oldest():
    assert InOrder(3).choose(line(5, 1, 9, 2), oracles(0, 10)).tolist() == [0, 1, 2]
    assert InOrder(3).choose(line(5, 1), oracles(0, 10)).tolist() == [0, 1]
    assert InOrder(3).n_ready(1000) == 3


def test_the_model_with_most_pending_rows_is_next():
    assert Regional(5, 10).choose(line(9, 1, 2, 0), oracles(0, 10)).tolist() == [1, 2, 3]


def test_waiting_times_count_and_not_the_number_of_rows():
    """Two rows each, with waiting times of 4 + 3 and 2 + 1."""
    assert Regional(5, 10).choose(line(9, 8, 1, 2), oracles(0, 10)).tolist() == [0, 1]
    assert Regional(5, 10).choose(line(1, 2, 9, 8), oracles(0, 10)).tolist() == [0, 1]


def test_of_too_many_rows_the_oldest_and_those_nearest_to_it_are_chosen():
    places = line(3, 0, 2.9, 4, 3.3, 9)
    assert Regional(3, 10).choose(places, oracles(0, 100)).tolist() == [0, 2, 4]


def test_without_a_model_the_oldest_row_and_those_nearest_to_it_are_chosen():
    assert Regional(2, 10).choose(line(5, 1, 5.1), Ensemble.of([], 1)).tolist() == [0, 2]
    assert Regional(3, 10).choose(line(5, 1), Ensemble.of([], 1)).tolist() == [0, 1]


def test_the_buffer_grows_with_the_number_of_rows_learned():
    assert [Regional(20, 100).n_ready(n_learned) for n_learned in (0, 20, 50, 80, 10**6)] == [20, 40, 70, 100, 100]


@given(
    places=st.lists(st.floats(-10, 10), min_size=1, max_size=40),
    models=st.lists(st.floats(-10, 10), max_size=4),
    batch_size=st.integers(1, 10),
)
def test_a_batch_has_rows_of_one_model_in_order_and_is_not_too_large(places, models, batch_size):
    rows, ensemble = line(*places), oracles(*models) if models else Ensemble.of([], 1)
    chosen = Regional(batch_size, 100).choose(rows, ensemble)
    assert 1 <= len(chosen) <= batch_size
    assert (np.diff(chosen) > 0).all()
    if models:
        assert len(np.unique(ensemble.index.owners(rows[chosen])[:, 0])) == 1


def test_a_buffer_smaller_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="buffer_size must be a whole number of at least 20"):
        Regional(20, 19)


# The stream


@contextmanager
def watched():
    """The batches that are learned inside: rows and targets, in the ensemble's units."""
    batches = []

    def watching(ensemble, rows, targets, **options):
        batches.append(np.column_stack([rows, targets]))
        return absorb(ensemble, rows, targets, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wgpr.estimators.base.absorb", watching)
        yield batches


def not_optimising(**options):
    return small(WGPRegressor, optimizer_iterations=0, calibrated=False, **options)


def in_order(rows):
    return rows[np.lexsort(rows.T)]


@settings(max_examples=10)
@given(order=st.permutations(range(N)), cuts=st.lists(st.integers(1, N - 1), max_size=5, unique=True).map(sorted))
def test_every_row_is_learned_once_in_any_order_of_rows(order, cuts):
    estimator = not_optimising()
    with watched() as batches:
        for rows in np.split(np.array(order), cuts):
            estimator.partial_fit(X[rows], y[rows])
            assert estimator.n_pending_ <= BUFFER
            assert sum(map(len, batches)) + estimator.n_pending_ == estimator.n_samples_seen_
        estimator.flush()
    assert estimator.n_pending_ == 0
    assert max(map(len, batches)) <= BATCH
    units = estimator.units_
    expected = np.column_stack([units.inputs(X), units.targets(y)])
    np.testing.assert_array_equal(in_order(np.concatenate(batches)), in_order(expected))
    assert sum(model.n_seen for model in estimator.models_) == N


def test_the_first_batch_is_learned_as_soon_as_it_is_full():
    estimator = not_optimising().partial_fit(X[: BATCH - 1], y[: BATCH - 1])
    assert (estimator.n_models_, estimator.n_pending_) == (0, BATCH - 1)
    estimator.partial_fit(X[BATCH - 1 : BATCH], y[BATCH - 1 : BATCH])
    assert (estimator.n_models_, estimator.n_pending_) == (1, 0)


def test_the_buffer_is_full_before_the_next_batch_is_learned():
    estimator = not_optimising()
    for row in range(N):
        n_steps = len(estimator.history_) if row else 0
        estimator.partial_fit(X[row : row + 1], y[row : row + 1])
        n_learned = sum(record.n_samples for record in estimator.history_)
        assert estimator.n_samples_seen_ == row + 1 == n_learned + estimator.n_pending_
        assert estimator.n_pending_ < min(BUFFER, n_learned + BATCH)
        assert len(estimator.history_) <= n_steps + 1


def test_pieces_are_learned_like_all_rows_at_once():
    shuffled = np.random.default_rng(0).permutation(N)
    whole, pieces = (small(WGPRegressor) for _ in range(2))
    for rows in np.split(shuffled, [1, 30, 31, 77]):
        pieces.partial_fit(X[rows], y[rows])
    assert_same_learning(pieces, whole.partial_fit(X[shuffled], y[shuffled]))


def test_batches_are_local_in_a_stream_that_is_not():
    """Rows of two clusters in turns: only the first batch has rows of both."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(160, 1)) + 100.0 * (np.arange(160) % 2)[:, None]
    with watched() as batches:
        estimator = not_optimising(splitting="always", batching=Regional(BATCH, 80)).partial_fit(
            rows, np.sin(rows[:, 0])
        )
    sides = [len(set(estimator.units_.inputs_for_user(batch[:, :1])[:, 0] > 50.0)) for batch in batches]
    assert len(batches) > 4
    assert sides[1:] == [1] * (len(batches) - 1)


def test_a_buffer_as_large_as_a_batch_is_allowed():
    estimator = not_optimising(batching=Regional(BATCH, BATCH)).partial_fit(X, y)
    assert estimator.n_pending_ == N - sum(record.n_samples for record in estimator.history_) < BATCH


# Pending rows


def test_a_pending_row_informs_predictions_near_it():
    estimator = small(WGPRegressor, optimizer_iterations=20).partial_fit(X[:BATCH], y[:BATCH])
    far = np.array([[60.0, 60.0]])
    _, before = estimator.predict(far, return_std=True, latent=True)
    expected = y[:BATCH].mean() + 3.0 * y[:BATCH].std()
    estimator.partial_fit(far, [expected])
    assert estimator.n_pending_ == 1
    mean, std = estimator.predict(far, return_std=True, latent=True)
    assert abs(mean[0] - expected) < 0.2 * 3.0 * y[:BATCH].std()
    assert std < 0.5 * before


def test_learned_rows_no_longer_condition_the_models():
    """Each row counts once."""
    estimator = small(WGPRegressor).partial_fit(X, y)
    assert estimator.n_pending_ > 0
    assert estimator._state.conditioned is not estimator._state.ensemble
    estimator.flush()
    assert estimator._state.conditioned is estimator._state.ensemble
