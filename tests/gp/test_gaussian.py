"""The Wasserstein distance against POT, the textbook and closed forms; log densities against SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import multivariate_normal

from reference import textbook_wasserstein
from wgpr.gp.gaussian import Gaussian, log_density, squared_wasserstein

# Squares of distances: their roots, and so their sums, are known to the root of the rounding of traces only.
ROUNDING = 1e-12


def gaussian(n, seed, rank=None):
    """Random; singular if its rank is below n."""
    rng = np.random.default_rng(seed)
    H = rng.normal(size=(n, n if rank is None else rank))
    return Gaussian(rng.normal(size=n), H @ H.T)


def spread(*gaussians):
    """The size of the terms that a squared distance is a sum of."""
    return sum(g.mean @ g.mean + g.covariance.trace() for g in gaussians)


@st.composite
def several(draw, count):
    """Gaussians of one dimension and any rank, a point mass included."""
    n = draw(st.integers(1, 6))
    return [gaussian(n, draw(st.integers(0, 10**6)), draw(st.integers(0, n))) for _ in range(count)]


# `ot.gaussian.bures_wasserstein_distance(p.mean, q.mean, p.covariance, q.covariance) ** 2` of POT 0.9.7 for the pairs
# of the next test, by dimension. POT itself is not installed for the tests: it is large.
OF_POT = {
    1: [0.907443965618, 2.07023648216, 5.74711474208, 3.70336713322, 3.51299291997],
    2: [10.5500221362, 3.05768854851, 6.2650429862, 6.18031691721, 8.46098554556],
    10: [65.5313526527, 79.1590347447, 69.5456906393, 50.8542894467, 73.1741781097],
    50: [1390.43047401, 1340.99942819, 1344.79912186, 1257.37810958, 1359.77076708],
}


@pytest.mark.parametrize("n", OF_POT)
@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_distance_of_pot_and_of_the_textbook(n, seed):
    p, q = gaussian(n, seed, n + 3), gaussian(n, seed + 100, n + 3)
    distance = squared_wasserstein(p, q)
    assert distance == pytest.approx(OF_POT[n][seed], rel=1e-8)
    assert distance == pytest.approx(textbook_wasserstein(p, q), rel=1e-8)


@given(several(2))
def test_it_is_symmetric_and_never_negative(pair):
    p, q = pair
    assert squared_wasserstein(p, q) >= 0
    assert squared_wasserstein(p, q) == pytest.approx(squared_wasserstein(q, p), rel=1e-10, abs=ROUNDING * spread(p, q))


@given(several(1))
def test_it_is_zero_on_itself(one):
    (p,) = one
    assert 0 <= squared_wasserstein(p, p) <= ROUNDING * spread(p)


@given(several(3))
def test_its_root_obeys_the_triangle_inequality(three):
    p, q, r = three
    direct = np.sqrt(squared_wasserstein(p, r))
    detour = np.sqrt(squared_wasserstein(p, q)) + np.sqrt(squared_wasserstein(q, r))
    assert direct <= detour + np.sqrt(ROUNDING * spread(p, q, r))


@given(st.integers(1, 6).flatmap(lambda n: arrays(float, (4, n), elements=st.sampled_from([0.0, 1e-9, 0.3, 1.0, 1e4]))))
def test_covariances_that_commute_have_a_closed_form_even_if_singular(rows):
    m1, m2, s1, s2 = rows
    V, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(len(m1), len(m1))))
    p, q = Gaussian(m1, (V * s1**2) @ V.T), Gaussian(m2, (V * s2**2) @ V.T)
    expected = ((m1 - m2) ** 2).sum() + ((s1 - s2) ** 2).sum()
    assert squared_wasserstein(p, q) == pytest.approx(expected, rel=1e-8, abs=1e-7 * spread(p, q))


def test_between_point_masses_it_is_the_distance_of_the_means():
    p, q = gaussian(3, 0, rank=0), gaussian(3, 1, rank=0)
    assert squared_wasserstein(p, q) == pytest.approx(((p.mean - q.mean) ** 2).sum(), rel=1e-14)


def test_from_a_point_mass_it_is_shift_and_trace():
    p, q = gaussian(3, 0, rank=0), gaussian(3, 1)
    expected = ((p.mean - q.mean) ** 2).sum() + q.covariance.trace()
    assert squared_wasserstein(p, q) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("length", [0.1, 10.0])
def test_covariances_that_rounding_made_indefinite_are_harmless(length):
    """As of a smooth field at many close points."""
    x = np.linspace(0, 1, 40)
    S = np.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
    S -= 1e-13 * np.eye(40)
    p, q = Gaussian(np.zeros(40), S), Gaussian(np.zeros(40), 4 * S)
    # tr(S + 4 S - 2 * 2 S)
    assert squared_wasserstein(p, q) == pytest.approx(S.trace(), rel=1e-6)
    assert squared_wasserstein(p, p) <= 1e-6


@pytest.mark.parametrize("n", [1, 2, 20])
def test_log_densities_of_several_outputs_add_up(n):
    covariance, errors = gaussian(n, 3).covariance + np.eye(n), np.random.default_rng(4).normal(size=(n, 3))
    expected = multivariate_normal(cov=covariance).logpdf(errors.T).sum()
    assert log_density(errors, covariance) == pytest.approx(expected, rel=1e-12)


def test_a_singular_covariance_has_a_log_density():
    """As that of rows of very large weight at one place."""
    errors = np.full((3, 1), 0.5)
    almost = log_density(errors, np.ones((3, 3)) + 1e-9 * np.eye(3))
    assert np.isfinite(almost)
    assert log_density(errors, np.ones((3, 3))) > almost
