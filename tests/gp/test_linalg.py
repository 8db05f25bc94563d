"""Linear algebra against NumPy, and the one jitter policy."""

from threading import Event

import numpy as np
import pytest

from threads import at_once, n_blas_threads
from wgpr.gp import linalg
from wgpr.gp.linalg import JITTERS, NotFactorizableError, NotFiniteError, cholesky, cholesky_with_jitter

SIZES = pytest.mark.parametrize("n", [1, 2, 17])


@pytest.fixture
def L(n):
    """A well-conditioned lower triangle, in LAPACK's order."""
    rng = np.random.default_rng(n)
    return np.asfortranarray(np.tril(rng.normal(size=(n, n)), -1) / n + np.diag(rng.uniform(1, 2, n)))


@pytest.fixture
def B(n):
    return np.random.default_rng(0).normal(size=(n, 5))


@SIZES
def test_a_factor_reproduces_its_matrix(n, L):
    np.testing.assert_allclose(cholesky(L @ L.T), L, rtol=1e-12, atol=1e-14)


@SIZES
def test_solving_is_multiplying_by_the_inverse(n, L, B):
    np.testing.assert_allclose(linalg.solve_lower(L, B), np.linalg.inv(L) @ B, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(linalg.solve_lower_transposed(L, B), np.linalg.inv(L).T @ B, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(linalg.inverse_lower(L), np.linalg.inv(L), rtol=1e-10, atol=1e-13)


@SIZES
@pytest.mark.parametrize("solve", [linalg.solve_lower, linalg.solve_lower_transposed])
def test_solving_overwrites_only_when_told_to(n, L, B, solve):
    before = B.copy()
    solution = solve(L, B)
    np.testing.assert_array_equal(B, before)
    assert solve(L, B, overwrite=True) is not before
    np.testing.assert_array_equal(B, solution)


@SIZES
def test_small_products(n, L, B):
    x, y = np.arange(1.0, n + 1), np.arange(5.0)
    assert linalg.inner(B, 2 * B) == pytest.approx(2 * (B**2).sum())
    assert linalg.log_determinant(L) == pytest.approx(np.linalg.slogdet(L @ L.T)[1])
    expected = B - np.outer(x, y)
    np.testing.assert_allclose(linalg.subtract_outer(B, x, y), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(B, expected, rtol=1e-13, atol=1e-14)  # in place


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_diagonal_can_be_written_to(order):
    S = np.zeros((3, 3), order=order)
    linalg.diagonal(S)[:] += [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(S, np.diag([1.0, 2.0, 3.0]))


@SIZES
def test_a_square_root_squares_to_its_matrix(n, B):
    S = B @ B.T  # singular when n > 5
    H = linalg.square_root(S)
    np.testing.assert_allclose(H @ H.T, S, atol=1e-12)


def test_negative_eigenvalues_count_as_zero_in_a_square_root():
    np.testing.assert_array_equal(linalg.square_root(np.diag([-1e-17, 4.0])), [[0.0], [2.0]])
    assert linalg.square_root(np.zeros((3, 3))).shape == (3, 0)


@SIZES
def test_a_good_matrix_gets_the_smallest_jitter(n, L):
    K = L @ L.T
    factor, jitter = cholesky_with_jitter(K)
    assert jitter == JITTERS[0] * K.trace() / n
    np.testing.assert_allclose(factor, L, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("lack", [3e-12, 3e-9, 3e-5])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_bad_matrix_gets_the_smallest_jitter_that_works(lack, scale):
    """Its smallest eigenvalues are negative, by a part `lack` of its diagonal."""
    K = scale * (np.ones((6, 6)) - lack * np.eye(6))
    L, jitter = cholesky_with_jitter(K)
    relative = jitter / (K.trace() / 6)
    assert relative / 10 < lack < relative
    np.testing.assert_allclose(L @ L.T, K + jitter * np.eye(6), rtol=1e-13)


def test_factorising_does_not_change_the_matrix():
    K = np.ones((4, 4))
    cholesky_with_jitter(K)
    np.testing.assert_array_equal(K, np.ones((4, 4)))


@pytest.mark.parametrize("indefinite", [-np.eye(3), np.diag([1.0, -1.0, 1.0])])
@pytest.mark.parametrize("factor", [cholesky, cholesky_with_jitter])
def test_an_indefinite_matrix_is_an_error(factor, indefinite):
    with pytest.raises(NotFactorizableError, match="not positive definite"):
        factor(indefinite)


def test_a_matrix_that_is_not_finite_is_an_error():
    with pytest.raises(NotFactorizableError):
        cholesky_with_jitter(np.full((3, 3), np.nan))


def test_a_factor_that_is_not_finite_is_an_error():
    with pytest.raises(NotFactorizableError):
        linalg.cholesky(np.diag([1.0, np.inf]))  # LAPACK factorises it


def test_one_number_that_is_not_finite_is_enough():
    linalg.require_finite(np.ones(3), 1.0)
    for arrays in ([np.ones(3), np.array([1.0, np.nan])], [np.array([np.inf, 1.0]), 1.0], [np.ones(2), np.inf]):
        with pytest.raises(NotFiniteError):
            linalg.require_finite(*arrays)


def test_a_read_only_array_cannot_be_edited():
    array = linalg.read_only(np.zeros(2))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0


# Threads of BLAS


def test_blas_has_one_thread_inside_and_its_own_number_outside(two_blas_threads):
    before = n_blas_threads()
    with linalg.one_blas_thread():
        assert n_blas_threads() == {1}
        with linalg.one_blas_thread():
            assert n_blas_threads() == {1}
        assert n_blas_threads() == {1}
    assert n_blas_threads() == before != {1}


def test_after_an_error_inside_blas_has_its_own_number_of_threads(two_blas_threads):
    before = n_blas_threads()
    with pytest.raises(ZeroDivisionError), linalg.one_blas_thread():
        raise ZeroDivisionError
    assert n_blas_threads() == before


def test_threads_that_overlap_share_one_limit_until_the_last_one_leaves(two_blas_threads):
    """The thread that set the limit leaves first, and is still alive when the other one lifts it."""
    before = n_blas_threads()
    first_entered, second_entered, first_left, second_left = (Event() for _ in range(4))

    def first():
        with linalg.one_blas_thread():
            first_entered.set()
            assert second_entered.wait(60)
        first_left.set()
        assert second_left.wait(60)

    def second():
        assert first_entered.wait(60)
        with linalg.one_blas_thread():
            second_entered.set()
            assert first_left.wait(60)
            inside = n_blas_threads()
        second_left.set()
        return inside

    assert at_once([first, second])[1] == {1}
    assert n_blas_threads() == before
    with linalg.one_blas_thread():
        assert n_blas_threads() == {1}
    assert n_blas_threads() == before
