"""The selection of pseudo-inputs against a naive one, by explicit conditional variances."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import ALL_KERNELS, conditional_variance, hyperparameters
from wgpr.gp import inducing
from wgpr.gp.inducing import candidate_sets, greedy, select_by_variance
from wgpr.gp.kernels import SquaredExponential

KERNEL = SquaredExponential()
THETA = hyperparameters(KERNEL, 2)


def points(n, d=2, seed=0):
    return np.random.default_rng(seed).uniform(-4, 4, (n, d))


def naive(kernel, theta, X, n, n_kept=0):
    chosen = []
    for i in range(n):
        eligible = X[:n_kept] if i < n_kept else X
        chosen.append(int(np.argmax(conditional_variance(kernel, theta, X, chosen)[: len(eligible)])))
    return chosen


@pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
@pytest.mark.parametrize("d", [1, 2, 8])
@pytest.mark.parametrize("n_kept", [0, 5])
@pytest.mark.parametrize("few", [0, 1000])
def test_each_choice_has_the_largest_conditional_variance_given_those_before(kernel, d, n_kept, few, monkeypatch):
    """Both if the covariance matrix is computed at once and row by row."""
    monkeypatch.setattr(inducing, "_FEW", few)
    X, theta = points(40, d), hyperparameters(kernel, d)
    assert greedy(kernel, theta, X, 8, n_kept).tolist() == naive(kernel, theta, X, 8, n_kept)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 40), st.integers(0, 15))
def test_choices_are_different_rows_and_those_to_keep_come_first(seed, n_rows, n, n_kept):
    n_kept = min(n_kept, n_rows)
    chosen = greedy(KERNEL, THETA, points(n_rows, seed=seed), n, n_kept)
    assert len(set(chosen)) == len(chosen) <= min(n, n_rows)
    assert set(chosen[:n_kept]) <= set(range(n_kept))
    assert len(chosen) >= min(n, n_kept, 5)


def test_all_rows_are_chosen_when_there_are_few():
    assert sorted(greedy(KERNEL, THETA, points(5), 50)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("n_kept", [0, 8])
def test_repeated_rows_are_chosen_once(n_kept):
    X = np.repeat(points(4), 3, axis=0)
    chosen = greedy(KERNEL, THETA, X, 12, n_kept)
    assert len(chosen) == 4
    assert len(np.unique(X[chosen], axis=0)) == 4


def test_repeated_rows_to_keep_leave_their_places_to_others():
    X = np.concatenate([np.repeat(points(1), 5, axis=0), points(10, seed=1)])
    chosen = greedy(KERNEL, THETA, X, 6, n_kept=5)
    assert len(chosen) == 6
    assert (chosen < 5).sum() == 1


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("amplitude", [2.0**-10, 2.0**10])
def test_a_choice_does_not_depend_on_the_unit_of_the_targets(amplitude, few, monkeypatch):
    monkeypatch.setattr(inducing, "_FEW", few)
    X, theta = np.linspace(0, 1e-1, 50)[:, None], hyperparameters(KERNEL, 1)
    scaled = greedy(KERNEL, replace(theta, amplitude=amplitude * theta.amplitude), X, 50)
    assert scaled.tolist() == greedy(KERNEL, theta, X, 50).tolist()
    assert 1 < len(scaled) < 50


def test_a_choice_stops_when_the_rest_is_explained():
    X = np.linspace(0, 1e-3, 50)[:, None]
    chosen = greedy(KERNEL, hyperparameters(KERNEL, 1), X, 50)
    assert len(chosen) < 10
    assert conditional_variance(KERNEL, hyperparameters(KERNEL, 1), X, chosen.tolist()).max() < 1e-8


def test_once_all_is_explained_the_furthest_rows_are_chosen():
    X, theta = np.linspace(0, 1, 101)[:, None], hyperparameters(KERNEL, 1)
    explaining = greedy(KERNEL, theta, X, 15)
    chosen = select_by_variance(KERNEL, theta, X, 15)
    assert len(explaining) < 15 == len(chosen)
    assert chosen[: len(explaining)].tolist() == explaining.tolist()
    for i in range(len(explaining), 15):
        distances = np.abs(X - X[chosen[:i], 0]).min(axis=1)
        assert distances[chosen[i]] == pytest.approx(distances.max())


@pytest.mark.parametrize("choose", [greedy, select_by_variance])
def test_rows_that_are_all_the_same_are_one_choice(choose):
    assert choose(KERNEL, THETA, np.ones((9, 2)), 5).tolist() == [0]


@pytest.mark.parametrize("n_old", [3, 12])
@pytest.mark.parametrize("n_new", [1, 40])
def test_candidate_sets_are_different_sets_of_old_and_new_inputs(n_old, n_new):
    Z, X = points(n_old), points(n_new, seed=1)
    sets = list(candidate_sets(KERNEL, THETA, Z, X, 12, np.random.default_rng(0)))
    assert len(sets) >= 4
    for chosen in sets:
        assert 1 <= len(chosen) <= 12
        assert len(np.unique(chosen, axis=0)) == len(chosen)
        assert (chosen[:, None] == np.concatenate([Z, X])).all(axis=-1).any(axis=1).all()
    assert (Z[:, None] == sets[0]).all(axis=-1).any(axis=1).all()  # the first keeps all the old ones


def test_a_random_set_keeps_its_share_of_the_old_inputs():
    Z, X = points(20), points(40, seed=1)
    sets = list(candidate_sets(KERNEL, THETA, Z, X, 20, np.random.default_rng(0)))
    n_kept = [sum((z == chosen).all(axis=1).any() for z in Z) for chosen in sets[-2:]]
    assert n_kept == [10, 16]


# As many as needed
