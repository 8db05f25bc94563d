"""A model leans on its neighbours: beliefs about log hyperparameters, and what they make of a batch on one line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wgpr.gp.pooling import Belief, of_new_model, of_next_batch

from reference import hyperparameters, unlearned
from wgpr.gp.hyperparameters import STD_OF_NEW, STD_OF_STEP, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, RationalQuadratic, SquaredExponential
from wgpr.gp.sparse import AdaptiveSparseLearner

KERNEL, SCALES = SquaredExponential(), Scales(np.array([1.0, 2.0]), 1.5)
stds = st.floats(0.05, 5.0)


def neighbours(*thetas):
    return [unlearned(KERNEL, theta) for theta in thetas]


def theta_with(**changes):
    values = {"amplitude": 1.0, "lengthscales": np.ones(2), "noise": 0.1} | changes
    return Hyperparameters(**values)


# Beliefs


@given(st.floats(-3, 3), stds, st.floats(-3, 3), stds)
def test_two_beliefs_are_the_product_of_their_densities(mean, std, other_mean, other_std):
    one, other = Belief(np.array([mean]), np.array([std])), Belief(np.array([other_mean]), np.array([other_std]))
    both = one.combined(other)
    at = np.linspace(-4, 4, 9)

    def log_density(belief):
        return -0.5 * ((at - belief.mean) / belief.std) ** 2

    product = log_density(one) + log_density(other)
    difference = product - log_density(both)  # a constant
    np.testing.assert_allclose(difference, difference[0], atol=1e-9 * np.abs(product).max())
    assert both.std < min(std, other_std)


def test_who_is_sure_is_believed():
    sure, vague = Belief(np.zeros(1), np.array([0.01])), Belief(np.ones(1), np.array([1.0]))
    assert sure.combined(vague).mean == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose(vague.combined(sure).mean, sure.combined(vague).mean)


@pytest.mark.parametrize("kernel", [KERNEL, RationalQuadratic()], ids=repr)
def test_without_neighbours_a_new_model_is_typical(kernel):
    belief = of_new_model(kernel, SCALES, [])
    np.testing.assert_array_equal(belief.mean, default_hyperparameters(kernel, SCALES).to_log())
    np.testing.assert_array_equal(belief.std, np.full(len(belief.mean), STD_OF_NEW))


def test_a_new_model_is_like_its_neighbours():
    thetas = [theta_with(noise=noise) for noise in (0.1, 0.2, 0.4)]
    belief = of_new_model(KERNEL, SCALES, neighbours(*thetas))
    np.testing.assert_allclose(belief.mean, np.mean([theta.to_log() for theta in thetas], axis=0))


def test_neighbours_that_differ_say_less():
    alike, unlike = (
        of_new_model(KERNEL, SCALES, neighbours(*(theta_with(noise=noise) for noise in noises))).std
        for noises in ([0.1, 0.1, 0.1], [0.01, 0.1, 1.0])
    )
    assert unlike[-1] == STD_OF_NEW > alike[-1]
    np.testing.assert_array_equal(unlike[:-1], alike[:-1])


def test_many_neighbours_say_more_but_never_all():
    stds = [of_new_model(KERNEL, SCALES, neighbours(*[theta_with()] * n)).std[0] for n in (1, 3, 5, 1000)]
    assert stds == sorted(stds, reverse=True)
    assert len(set(stds)) == 4
    assert stds[-1] == 0.2


# From batch to batch


def test_a_model_stays_about_as_it_is_and_near_its_neighbours():
    own, other = theta_with(), theta_with(lengthscales=np.array([1.0, 5.0]))
    belief = of_next_batch(KERNEL, SCALES, own, 1000, neighbours(other, other))
    assert own.to_log()[2] < belief.mean[2] < 0.5 * (own.to_log() + other.to_log())[2]
    np.testing.assert_allclose(belief.mean[1], own.to_log()[1])
    assert (belief.std < STD_OF_STEP).all()


@pytest.mark.parametrize(("n_seen", "std"), [(1, STD_OF_STEP), (50, 0.1), (200, 0.05), (10**6, 0.05)])
def test_the_noise_is_believed_as_firmly_as_rows_can_tell_it(n_seen, std):
    own = of_next_batch(KERNEL, SCALES, theta_with(), n_seen, [])
    vague = of_new_model(KERNEL, SCALES, [])
    assert own.std[-1] == pytest.approx((std**-2 + vague.std[-1] ** -2) ** -0.5)
    np.testing.assert_allclose(own.std[:-1], (STD_OF_STEP**-2 + STD_OF_NEW**-2) ** -0.5)


# What comes of it


def test_on_one_line_the_scale_across_is_that_of_the_neighbours():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.linspace(0.0, 10.0, 60), np.full(60, 3.0)])
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=60)
    learner = AdaptiveSparseLearner(KERNEL, max_iter=20)
    wide, narrow = (
        learner.start(X, y, rng, neighbours(*[theta_with(lengthscales=np.array([1.0, across]))] * 3)).theta.lengthscales
        for across in (4.0, 0.25)
    )
    np.testing.assert_allclose([wide[1], narrow[1]], [4.0, 0.25], rtol=1e-3)
    np.testing.assert_allclose(wide[0], narrow[0], rtol=1e-3)  # of what the line does tell


def test_neighbours_do_not_talk_a_model_out_of_what_it_sees():
    """A few hundred rows know better than the neighbours' noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 2))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=300)
    theirs = hyperparameters(KERNEL, 2, noise=0.5)
    model = AdaptiveSparseLearner(KERNEL, max_iter=20).start(X, y, rng, neighbours(*[theirs] * 5))
    assert model.theta.noise == pytest.approx(0.1, rel=0.3)
