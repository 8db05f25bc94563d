"""Priors of hyperparameters: how neighbours inform a model, and how much a batch along one line can change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import hyperparameters
from wgpr.gp.hyperparameters import STD_OF_NEW, STD_OF_STEP, HyperPrior, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, RationalQuadratic, SquaredExponential
from wgpr.gp.model import Neighbour
from wgpr.gp.sparse import AdaptiveSparseLearner

KERNEL, SCALES = SquaredExponential(), Scales(np.array([1.0, 2.0]), 1.5)
stds = st.floats(0.05, 5.0)


def theta_with(**changes):
    values = {"amplitude": 1.0, "lengthscales": np.ones(2), "noise": 0.1} | changes
    return Hyperparameters(**values)


def prior_of_one(mean, std):
    """A prior of one number, in a box without bounds."""
    return HyperPrior(np.array([mean]), np.array([std]), np.array([[-np.inf], [np.inf]]))


# Products


@given(st.floats(-3, 3), stds, st.floats(-3, 3), stds)
def test_combined_priors_are_the_product_of_their_densities(mean, std, other_mean, other_std):
    one, other = prior_of_one(mean, std), prior_of_one(other_mean, other_std)
    both = one.combined(other)
    at = np.linspace(-4, 4, 9)[:, None]

    def log_density(prior):
        return np.array([prior.log_density(x)[0] for x in at])

    product = log_density(one) + log_density(other)
    difference = product - log_density(both)  # a constant
    np.testing.assert_allclose(difference, difference[0], atol=1e-9 * np.abs(product).max())
    assert both.std < min(std, other_std)


@given(st.floats(-3, 3), stds, st.floats(-4, 4))
def test_the_gradient_of_the_log_density(mean, std, at):
    prior, step = prior_of_one(mean, std), 1e-4
    _, gradient = prior.log_density(np.array([at]))
    above, below = (prior.log_density(np.array([at + sign * step]))[0] for sign in (1, -1))
    assert gradient[0] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-6)


def test_the_narrower_of_two_priors_dominates():
    narrow, wide = prior_of_one(0.0, 0.01), prior_of_one(1.0, 1.0)
    assert narrow.combined(wide).mean == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose(wide.combined(narrow).mean, narrow.combined(wide).mean)


def test_a_combined_prior_keeps_the_box_of_the_first():
    other = Scales(10.0 * SCALES.inputs, 10.0 * SCALES.target)
    first, second = (HyperPrior.around(KERNEL, scales, theta_with(), 0.5) for scales in (SCALES, other))
    np.testing.assert_array_equal(first.combined(second).box, first.box)
    assert not np.array_equal(first.box, second.box)


def test_hyperparameters_outside_the_box_are_moved_to_its_bounds():
    prior = HyperPrior.of_new_model(KERNEL, SCALES)
    clipped = prior.clip(theta_with(amplitude=1e9, noise=1e-9))
    assert clipped.amplitude == pytest.approx(3.0 * SCALES.target)
    assert clipped.noise == pytest.approx(1e-3 * SCALES.target)
    np.testing.assert_allclose(clipped.lengthscales, 1.0)


# A new model


@pytest.mark.parametrize("kernel", [KERNEL, RationalQuadratic()], ids=repr)
def test_without_neighbours_the_prior_has_default_values(kernel):
    prior = HyperPrior.of_new_model(kernel, SCALES)
    np.testing.assert_array_equal(prior.mean, default_hyperparameters(kernel, SCALES).to_log())
    np.testing.assert_array_equal(prior.std, np.full(len(prior.mean), STD_OF_NEW))


def test_a_new_model_is_expected_to_be_like_its_neighbours():
    thetas = [theta_with(noise=noise) for noise in (0.1, 0.2, 0.4)]
    prior = HyperPrior.of_new_model(KERNEL, SCALES, thetas)
    np.testing.assert_allclose(prior.mean, np.mean([theta.to_log() for theta in thetas], axis=0))


def test_neighbours_that_differ_make_a_wider_prior():
    alike, unlike = (
        HyperPrior.of_new_model(KERNEL, SCALES, [theta_with(noise=noise) for noise in noises]).std
        for noises in ([0.1, 0.1, 0.1], [0.01, 0.1, 1.0])
    )
    assert unlike[-1] == STD_OF_NEW > alike[-1]
    np.testing.assert_array_equal(unlike[:-1], alike[:-1])


def test_more_neighbours_make_a_narrower_prior_down_to_a_limit():
    stds = [HyperPrior.of_new_model(KERNEL, SCALES, [theta_with()] * n).std[0] for n in (1, 3, 5, 1000)]
    assert stds == sorted(stds, reverse=True)
    assert len(set(stds)) == 4
    assert stds[-1] == 0.2


# From batch to batch


def test_a_model_is_expected_to_stay_close_to_itself_and_near_its_neighbours():
    own, other = theta_with(), theta_with(lengthscales=np.array([1.0, 5.0]))
    prior = HyperPrior.of_next_batch(KERNEL, SCALES, own, 1000, [other, other])
    assert own.to_log()[2] < prior.mean[2] < 0.5 * (own.to_log() + other.to_log())[2]
    np.testing.assert_allclose(prior.mean[1], own.to_log()[1])
    assert (prior.std < STD_OF_STEP).all()


@pytest.mark.parametrize(("n_seen", "std"), [(1, STD_OF_STEP), (50, 0.1), (200, 0.05), (10**6, 0.05)])
def test_the_prior_of_the_noise_is_as_narrow_as_the_rows_determine_it(n_seen, std):
    own = HyperPrior.of_next_batch(KERNEL, SCALES, theta_with(), n_seen, [])
    wide = HyperPrior.of_new_model(KERNEL, SCALES)
    assert own.std[-1] == pytest.approx((std**-2 + wide.std[-1] ** -2) ** -0.5)
    np.testing.assert_allclose(own.std[:-1], (STD_OF_STEP**-2 + STD_OF_NEW**-2) ** -0.5)


# What a model learns with them


def neighbours(*thetas):
    return [Neighbour(theta, Scales(np.ones(2), 1.0)) for theta in thetas]


def test_a_batch_along_one_line_takes_the_scale_across_from_the_neighbours():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.linspace(0.0, 10.0, 60), np.full(60, 3.0)])
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=60)
    learner = AdaptiveSparseLearner(KERNEL, max_iter=20)
    wide, narrow = (
        learner.start(X, y, rng, neighbours(*[theta_with(lengthscales=np.array([1.0, across]))] * 3)).theta.lengthscales
        for across in (4.0, 0.25)
    )
    np.testing.assert_allclose([wide[1], narrow[1]], [4.0, 0.25], rtol=1e-3)
    np.testing.assert_allclose(wide[0], narrow[0], rtol=1e-3)  # the scale along the line comes from the rows


def test_hundreds_of_rows_determine_the_noise_whatever_the_neighbours_have():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=300)
    theirs = hyperparameters(KERNEL, 2, noise=0.5)
    model = AdaptiveSparseLearner(KERNEL, max_iter=20).start(X, y, rng, neighbours(*[theirs] * 5))
    assert model.theta.noise == pytest.approx(0.1, rel=0.3)
