"""The bound against the papers' formulas, against the exact evidence, and its gradient against central differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reference import (
    ALL_KERNELS,
    SklearnGP,
    central_differences,
    hyperparameters,
    relative_error,
    separated_points,
    titsias,
    waves,
)
from wgpr.gp import linalg
from wgpr.gp.bound import Observations, Summary
from wgpr.gp.kernels import Hyperparameters

# Of the terms that the bound is a sum of.
ROUNDING = 1e-11

every_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
every_dimension = pytest.mark.parametrize("d", [1, 2, 8, 21])


def observations_of(kernel, d, *, with_past):
    """A batch of 30 rows; the past, if there is one, was learned with other hyperparameters and pseudo-inputs."""
    rng = np.random.default_rng(d)
    X = separated_points(30, d, rng)
    past = None
    if with_past:
        earlier = separated_points(60, d, rng)
        fit = Observations(kernel, earlier, waves(earlier, rng)).explained_by(
            hyperparameters(kernel, d, reach=0.8, noise=0.3), separated_points(9, d, rng)
        )
        past = fit.summary()
    return Observations(kernel, X, waves(X, rng), past), separated_points(8, d, rng)


def assert_gradient_is_that_of_the_value(observations, theta, Z):
    by_log_theta, by_Z = observations.explained_by(theta, Z).gradient()
    expected = central_differences(
        lambda v: observations.explained_by(Hyperparameters.from_log(v, Z.shape[1]), Z).value, theta.to_log()
    )
    np.testing.assert_allclose(by_log_theta, expected, rtol=1e-6)  # each of them
    expected = central_differences(lambda V: observations.explained_by(theta, V).value, Z)
    assert relative_error(by_Z, expected) < 1e-6


@every_kernel
@every_dimension
@pytest.mark.parametrize("with_past", [False, True])
def test_the_gradient_is_that_of_the_value(kernel, d, with_past):
    observations, Z = observations_of(kernel, d, with_past=with_past)
    assert_gradient_is_that_of_the_value(observations, hyperparameters(kernel, d), Z)


@every_kernel
def test_the_gradient_is_that_of_the_value_where_pseudo_inputs_lie_on_the_data(kernel):
    observations, _ = observations_of(kernel, 2, with_past=True)
    Z = np.concatenate([observations.X[:3], observations.past.Z[:3]])
    assert_gradient_is_that_of_the_value(observations, hyperparameters(kernel, 2), Z)


@every_kernel
def test_the_gradient_includes_the_jitter(kernel, monkeypatch):
    monkeypatch.setattr(linalg, "JITTERS", (1e-2,))
    observations, Z = observations_of(kernel, 2, with_past=True)
    assert_gradient_is_that_of_the_value(observations, hyperparameters(kernel, 2), Z)


@every_kernel
@every_dimension
def test_without_a_past_it_is_the_bound_of_titsias(kernel, d):
    observations, Z = observations_of(kernel, d, with_past=False)
    theta = hyperparameters(kernel, d)
    expected = titsias(kernel, theta, observations.X, observations.y, Z).evidence
    assert observations.explained_by(theta, Z).value == pytest.approx(expected, rel=1e-8)


@every_kernel
@pytest.mark.parametrize("d", [1, 2, 8])
def test_with_pseudo_inputs_on_all_the_data_it_is_the_exact_evidence(kernel, d):
    observations, _ = observations_of(kernel, d, with_past=False)
    theta = hyperparameters(kernel, d, reach=0.5)
    exact = SklearnGP(kernel, theta, observations.X, observations.y)
    assert observations.explained_by(theta, observations.X).value == pytest.approx(exact.log_evidence, rel=1e-8)


@pytest.mark.parametrize("n_rows", [4, 50])
def test_a_summary_gives_the_posterior_of_the_rows(n_rows):
    """Pseudo-observations, no more of them than pseudo-inputs, leave `B` and `A t` as the rows made them."""
    kernel, rng = ALL_KERNELS[0], np.random.default_rng(0)
    theta, X, Z = hyperparameters(kernel, 2), separated_points(n_rows, 2, rng), separated_points(9, 2, rng)
    fit = Observations(kernel, X, waves(X, rng)).explained_by(theta, Z)
    summary = fit.summary()
    assert len(summary) == min(n_rows, 9)
    assert summary.R.shape == (len(summary), 9)
    again = Observations(kernel, np.empty((0, 2)), np.empty(0), summary).explained_by(theta, Z)
    assert relative_error(again.L_B, fit.L_B) < 1e-8
    assert relative_error(again.alpha, fit.alpha) < 1e-8


def test_an_empty_summary_is_no_past():
    observations, Z = observations_of(ALL_KERNELS[0], 2, with_past=False)
    theta = hyperparameters(ALL_KERNELS[0], 2)
    explicit = Observations(observations.kernel, observations.X, observations.y, Summary.empty(2))
    assert explicit.explained_by(theta, Z).value == observations.explained_by(theta, Z).value


@st.composite
def problems(draw, coordinates):
    """Observations, hyperparameters and at least two pseudo-inputs, some on the data, some perhaps repeated."""
    kernel, d, n = draw(st.sampled_from(ALL_KERNELS)), draw(st.integers(1, 3)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = np.round(rng.uniform(-3, 3, (n, d)), 1)
    free = draw(arrays(float, (draw(st.integers(1, 12)), d), elements=coordinates))
    on_data = X[draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12))]
    theta = Hyperparameters(
        np.exp(draw(st.floats(-2, 2))),
        np.exp(draw(arrays(float, d, elements=st.floats(-2, 3)))),
        np.exp(draw(st.floats(-5, 1))),
        kernel.initial_shape(),
    )
    return Observations(kernel, X, waves(X, rng)), theta, rng.permutation(np.concatenate([free, on_data]))


anywhere = problems(st.floats(-4, 4))
apart = problems(st.integers(-40, 40).map(lambda i: i / 10))  # or in the very same place


def terms(observations, theta):
    """The size of the terms that the bound is a sum of."""
    past, kernel = observations.past, observations.kernel
    rows = len(observations.y) * theta.amplitude**2 + observations.y @ observations.y
    return rows / theta.noise**2 + past.r @ past.r + np.trace(past.R @ kernel(theta, past.Z, past.Z) @ past.R.T)


def rounding(fit):
    """Relative to the terms: with long length-scales, pseudo-inputs that are apart are ill-conditioned too."""
    return ROUNDING + np.finfo(float).eps * np.linalg.cond(fit.L) ** 2


@given(anywhere)
def test_the_bound_never_exceeds_the_exact_evidence(problem):
    observations, theta, Z = problem
    exact = SklearnGP(observations.kernel, theta, observations.X, observations.y)
    assert observations.explained_by(theta, Z).value <= exact.log_evidence + ROUNDING * terms(observations, theta)


@given(apart)
def test_another_pseudo_input_never_lowers_the_bound(problem):
    observations, theta, Z = problem
    fewer, more = (observations.explained_by(theta, some).value for some in (Z[:-1], Z))
    assert more >= fewer - ROUNDING * terms(observations, theta)


@given(apart, st.integers(1, 6))
def test_another_pseudo_input_never_lowers_the_bound_of_an_update(problem, n_old):
    first, theta, Z = problem
    past = first.explained_by(theta, Z[:n_old]).summary()
    observations = Observations(first.kernel, first.X + 0.5, first.y[::-1], past)
    fewer, fit = observations.explained_by(theta, Z[:-1]).value, observations.explained_by(theta, Z)
    assert fit.value >= fewer - rounding(fit) * terms(observations, theta)


@given(anywhere)
def test_another_pseudo_input_close_to_others_lowers_the_bound_by_no_more_than_rounding(problem):
    observations, theta, Z = problem
    fewer, fit = observations.explained_by(theta, Z[:-1]).value, observations.explained_by(theta, Z)
    assert fit.value >= fewer - rounding(fit) * terms(observations, theta)


# Summaries as observations


def some_summary(seed=0):
    """Of a field at six places, with fewer observations than places."""
    rng = np.random.default_rng(seed)
    return Summary(rng.uniform(-2, 2, (6, 2)), rng.normal(size=(4, 6)), rng.normal(size=4))


@given(st.floats(-1e3, 1e3))
def test_a_shifted_summary_has_the_same_misfit_on_a_shifted_field(shift):
    summary, field = some_summary(), np.linspace(-1, 1, 6)
    misfit = summary.r - summary.R @ field
    shifted = summary.around(shift)
    np.testing.assert_allclose(shifted.r - shifted.R @ (field + shift), misfit, atol=1e-9 * (1 + abs(shift)))


def test_joined_summaries_have_the_misfits_of_both():
    one, other = some_summary(), some_summary(seed=1)
    both, field = one.joined(other), np.linspace(-1, 1, 12)
    alone = [part.r - part.R @ half for part, half in zip((one, other), np.split(field, 2), strict=True)]
    np.testing.assert_allclose(both.r - both.R @ field, np.concatenate(alone))
    np.testing.assert_array_equal(both.Z, np.concatenate([one.Z, other.Z]))
