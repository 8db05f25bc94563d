"""The sparse model against the papers' formulas and the exact process; its learner on data of every kind."""

from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reference import (
    ALL_KERNELS,
    SklearnGP,
    bui,
    field_at,
    hyperparameters,
    learned,
    relative_error,
    separated_points,
    titsias,
    unlearned,
    waves,
)
from wgpr.gp import linalg
from wgpr.gp.hyperparameters import Scales
from wgpr.gp.inducing import greedy
from wgpr.gp.kernels import Hyperparameters, SquaredExponential
from wgpr.gp.linalg import NotFactorizableError
from wgpr.gp.sparse import SparseLearner

every_kernel = pytest.mark.parametrize("kernel", ALL_KERNELS, ids=repr)
every_dimension = pytest.mark.parametrize("d", [1, 2, 8])


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = separated_points(n, d, rng)
    return X, waves(X, rng)


def assert_finite(model, X):
    mean, variance = model.predict(X)
    field = model.posterior(X)
    assert all(np.isfinite(part).all() for part in (mean, variance, *field, model.log_evidence))
    assert (variance >= 0).all()


# The posterior


@every_kernel
@every_dimension
def test_with_pseudo_inputs_on_all_the_data_it_is_the_exact_process(kernel, d):
    X, y = rows(30, d)
    theta, queries = hyperparameters(kernel, d, reach=0.5), separated_points(50, d, np.random.default_rng(1))
    model = learned(unlearned(kernel, theta, mean=0.7), X, y, theta, X)
    exact = SklearnGP(kernel, theta, X, y - 0.7)
    mean, std = exact.predict(queries)
    np.testing.assert_allclose(np.sqrt(model.predict(queries)[1]), std, rtol=1e-8)
    assert relative_error(model.predict(queries)[0] - 0.7, mean) < 1e-8
    assert relative_error(model.posterior(queries).covariance, exact.posterior(queries).covariance) < 1e-8
    assert model.log_evidence == pytest.approx(exact.log_evidence, rel=1e-8)


@every_kernel
@every_dimension
def test_conditioning_on_rows_is_exact(kernel, d):
    """And leaves what is known of the stream as it was."""
    X, y = rows(40, d)
    theta, queries = hyperparameters(kernel, d, reach=0.5), separated_points(50, d, np.random.default_rng(1))
    model = learned(unlearned(kernel, theta, mean=0.7), X[:30], y[:30], theta, X[:30])
    conditioned = SparseLearner(kernel, n_inducing=30).condition(model, X[30:], y[30:])
    mean, std = SklearnGP(kernel, theta, X, y - 0.7).predict(queries)
    np.testing.assert_allclose(np.sqrt(conditioned.predict(queries)[1]), std, rtol=1e-7)
    assert relative_error(conditioned.predict(queries)[0] - 0.7, mean) < 1e-7
    assert (conditioned.n_seen, conditioned.log_evidence) == (model.n_seen, model.log_evidence)
    np.testing.assert_array_equal(conditioned.centre, model.centre)


@every_kernel
@every_dimension
def test_first_batch_and_update_are_those_of_titsias_and_bui(kernel, d):
    """With other hyperparameters and other pseudo-inputs after the update than before."""
    X, y = rows(160, d)
    rng = np.random.default_rng(1)
    first, second = slice(0, None, 2), slice(1, None, 2)
    old_theta = hyperparameters(kernel, d, reach=0.6, noise=0.3)
    new_theta = Hyperparameters(1.1, 0.7 * np.sqrt(d) * np.ones(d), 0.2, 1.8 * kernel.initial_shape())
    old_Z, new_Z, queries = (
        separated_points(8, d, rng),
        separated_points(10, d, rng),
        separated_points(40, d, rng),
    )

    model = learned(unlearned(kernel, old_theta), X[first], y[first], old_theta, old_Z)
    expected = titsias(kernel, old_theta, X[first], y[first], old_Z)
    assert_same_posterior(model, kernel, expected, queries)
    model = learned(model, X[second], y[second], new_theta, new_Z)
    expected = bui(kernel, new_theta, X[second], y[second], new_Z, expected)
    assert_same_posterior(model, kernel, expected, queries)


def assert_same_posterior(model, kernel, expected, queries):
    field, expected_field = model.posterior(queries), field_at(kernel, expected, queries)
    assert relative_error(field.mean, expected_field.mean) < 1e-7
    assert relative_error(field.covariance, expected_field.covariance) < 1e-7
    assert model.log_evidence == pytest.approx(expected.evidence, rel=1e-7)


@every_kernel
@every_dimension
def test_a_stream_of_a_hundred_updates_ends_where_the_batch_does(kernel, d):
    X, y = rows(1000, d)
    order = np.random.default_rng(1).permutation(1000)
    X, y = X[order], y[order]
    theta = hyperparameters(kernel, d)
    Z = X[greedy(kernel, theta, X, 30)]
    nothing = unlearned(kernel, theta, mean=0.3)
    stream, log_evidence = nothing, 0.0
    for i in range(0, 1000, 10):
        stream = learned(stream, X[i : i + 10], y[i : i + 10], stream.theta if i else theta, stream.inputs if i else Z)
        log_evidence += stream.log_evidence
    batch = learned(nothing, X, y, theta, Z)

    queries = separated_points(200, d, np.random.default_rng(2))
    (mean, variance), (expected_mean, expected_variance) = stream.predict(queries), batch.predict(queries)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-6 * y.std())
    np.testing.assert_allclose(np.sqrt(variance), np.sqrt(expected_variance), rtol=0, atol=1e-6 * y.std())
    assert log_evidence == pytest.approx(batch.log_evidence, abs=1e-8 * len(y))
    assert stream.n_seen == 1000
    np.testing.assert_allclose(stream.centre, X.mean(axis=0), atol=1e-13)


@every_kernel
def test_predictions_are_the_margins_of_the_posterior(kernel):
    X, y = rows(40, 2)
    model = SparseLearner(kernel, n_inducing=12, max_iter=5).start(X, y, np.random.default_rng(0))
    mean, variance = model.predict(X)
    np.testing.assert_allclose(model.posterior(X).mean, mean, rtol=1e-12)
    np.testing.assert_allclose(model.posterior(X).covariance.diagonal(), variance, rtol=1e-8)


# The learner


@every_kernel
def test_an_update_learns_new_rows_and_keeps_old_ones(kernel):
    """Two halves of a line, one after the other."""
    X = np.linspace(0, 10, 200)[:, None]
    y, rng = np.sin(X[:, 0]), np.random.default_rng(0)
    learner = SparseLearner(kernel, n_inducing=25)
    model = learner.start(X[:100], y[:100], rng)
    model = learner.update(model, X[100:], y[100:], rng)
    assert np.abs(model.predict(X)[0] - y).max() < 0.02


@every_kernel
def test_an_update_does_not_end_below_the_bound_that_it_could_start_from(kernel):
    X, y = rows(120, 2)
    rng = np.random.default_rng(0)
    learner = SparseLearner(kernel, n_inducing=15, max_iter=10)
    model = learner.start(X[:60], y[:60], rng)
    as_it_is = learned(model, X[60:], y[60:], model.theta, model.inputs)
    assert learner.update(model, X[60:], y[60:], rng).log_evidence >= as_it_is.log_evidence - 1e-8


def test_optimisation_raises_the_evidence():
    X, y = rows(80, 2)
    model = SparseLearner(SquaredExponential(), n_inducing=20).start(X, y, np.random.default_rng(0))
    assert model.log_evidence > SparseLearner(SquaredExponential(), n_inducing=20).quick_fit(X, y).log_evidence + 1


def test_without_iterations_nothing_moves():
    X, y = rows(60, 2)
    rng = np.random.default_rng(0)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=0)
    model = learner.start(X[:30], y[:30], rng)
    updated = learner.update(model, X[30:], y[30:], rng)
    np.testing.assert_array_equal(updated.theta.to_log(), model.theta.to_log())
    is_row = (updated.inputs[:, None] == X).all(axis=-1).any(axis=1)
    assert is_row.all()


def test_hyperparameters_can_be_left_as_the_first_batch_made_them():
    X, y = rows(60, 2)
    rng = np.random.default_rng(0)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, learn_hyperparameters=False)
    model = learner.start(X[:30], y[:30], rng)
    updated = learner.update(model, X[30:], y[30:], rng)
    np.testing.assert_allclose(updated.theta.to_log(), model.theta.to_log(), rtol=1e-14)
    assert not np.isin(updated.inputs, X).all()  # the pseudo-inputs were learned


LINE = np.linspace(0, 1, 20)
DEGENERATE = {
    "fewer rows than pseudo-inputs": rows(5, 2),
    "one row": rows(1, 2),
    "one row of zeros": (np.zeros((1, 2)), np.zeros(1)),
    "one row many times": (np.ones((20, 2)), np.sin(9 * LINE)),
    "few rows many times": (np.repeat(rows(4, 2)[0], 6, axis=0), np.arange(24.0)),
    "a constant target": (rows(20, 2)[0], np.full(20, 3.0)),
    "a target of zeros": (rows(20, 2)[0], np.zeros(20)),
    "a constant column": (np.stack([LINE, np.full(20, 7.0)], axis=1), LINE**2),
    "a column of zeros": (np.stack([LINE, np.zeros(20)], axis=1), LINE**2),
    "columns that repeat each other": (np.stack([LINE, LINE], axis=1), LINE**2),
    "rows closer than rounding": (1e6 + 1e-9 * rows(20, 2)[0], LINE),
    "an outlier": (rows(20, 2)[0], np.where(LINE == 1, 1e6, LINE)),
    "huge numbers": (1e50 * rows(20, 2)[0], 1e50 * LINE),
    "tiny numbers": (1e-50 * rows(20, 2)[0], 1e-50 * LINE),
}
every_degenerate = pytest.mark.parametrize(("X", "y"), DEGENERATE.values(), ids=DEGENERATE)


@every_degenerate
@every_kernel
def test_a_model_can_start_and_go_on_with_degenerate_data(kernel, X, y):
    rng = np.random.default_rng(0)
    learner = SparseLearner(kernel, n_inducing=10, max_iter=10)
    model = learner.start(X, y, rng)
    assert 1 <= len(model.inputs) <= min(10, len(X))
    assert_finite(model, X)
    assert_finite(learner.update(model, X, y, rng), X)
    assert_finite(learner.quick_fit(X, y), X)


@every_degenerate
def test_a_model_of_good_data_can_learn_degenerate_data(X, y):
    magnitude = np.abs(X).max() or 1.0
    good_X, good_y = rows(30, 2)
    rng = np.random.default_rng(0)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=10)
    model = learner.start(magnitude * good_X, (np.abs(y).max() or 1.0) * good_y, rng)
    assert_finite(learner.update(model, X, y, rng), np.concatenate([X, magnitude * good_X]))


nasty = st.sampled_from([0.0, 1.0, 1.0 + 1e-12, 1e-9, -1e9, 1e9]) | st.floats(-10, 10).map(lambda x: round(x, 6))


@st.composite
def nasty_rows(draw):
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    return draw(arrays(float, (n, d), elements=nasty)), draw(arrays(float, n, elements=nasty))


@given(nasty_rows(), st.sampled_from(ALL_KERNELS), st.integers(1, 15))
def test_a_model_can_start_with_any_data(rows, kernel, n_inducing):
    X, y = rows
    learner = SparseLearner(kernel, n_inducing, max_iter=3)
    assert_finite(learner.start(X, y, np.random.default_rng(0)), X)
    assert_finite(learner.quick_fit(X, y), X)


# Models are values

ARRAYS = ["summary.Z", "summary.R", "summary.r", "L", "L_B", "alpha", "centre", "inputs"]
ARRAYS += ["theta.lengthscales", "theta.shape", "scales.inputs"]


@pytest.mark.parametrize("name", ARRAYS)
def test_no_array_of_a_model_can_be_edited(name):
    X, y = rows(40, 2)
    rng = np.random.default_rng(0)
    learner = SparseLearner(ALL_KERNELS[-1], n_inducing=10, max_iter=2)
    first = learner.start(X[:20], y[:20], rng)
    for model in (first, learner.update(first, X[20:], y[20:], rng), learner.quick_fit(X, y)):
        assert not attrgetter(name)(model).flags.writeable


def test_an_update_leaves_the_old_model_as_it_was():
    X, y = rows(40, 2)
    rng = np.random.default_rng(0)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=5)
    model = learner.start(X[:20], y[:20], rng)
    before = model.n_seen, model.log_evidence, *model.posterior(X)
    updated = learner.update(model, X[20:], y[20:], rng)
    after = model.n_seen, model.log_evidence, *model.posterior(X)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert relative_error(updated.posterior(X).mean, model.posterior(X).mean) > 1e-3
    assert updated.n_seen == 40


def test_a_model_does_not_share_memory_with_its_rows():
    X, y = rows(20, 2)
    queries = X.copy()
    learner = SparseLearner(SquaredExponential(), n_inducing=30, max_iter=0)
    model = learner.start(X, y, np.random.default_rng(0))
    before = model.posterior(queries)
    X[:], y[:] = 0.0, 0.0
    np.testing.assert_array_equal(model.posterior(queries).covariance, before.covariance)


def test_the_same_seed_gives_the_same_model():
    X, y = rows(60, 2)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=5)
    first, second = (
        learner.update(learner.start(X[:30], y[:30], rng), X[30:], y[30:], rng)
        for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    np.testing.assert_array_equal(first.summary.R, second.summary.R)


def test_scales_of_a_model_grow_with_its_data():
    X, y = rows(40, 2)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=2)
    model = learner.start(X, y, np.random.default_rng(0))
    updated = learner.update(model, 3 * X, 5 * y, np.random.default_rng(0))
    assert model.scales.target == pytest.approx(y.std())
    assert (updated.scales.inputs > model.scales.inputs).all()
    assert updated.scales.target > 4 * Scales.of(X, y, model.mean).target


def test_scales_of_a_merged_model_are_those_of_both():
    X, y = rows(40, 2)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=2)
    narrow = learner.start(X, y, np.random.default_rng(0))
    wide = learner.start(3 * X, 5 * y, np.random.default_rng(0))
    for merged in (learner.merge(narrow, wide), learner.merge(wide, narrow)):
        np.testing.assert_array_equal(merged.scales.inputs, wide.scales.inputs)
        assert merged.scales.target == wide.scales.target


def test_a_model_of_few_rows_has_at_least_the_scales_of_the_nearest():
    X, y = rows(40, 2)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=2)
    nearest = learner.start(X, y, np.random.default_rng(0))
    few = learner.start(X[:5] / 10, y[:5] / 10, np.random.default_rng(0), nearest)
    np.testing.assert_array_equal(few.scales.inputs, nearest.scales.inputs)
    assert few.scales.target == nearest.scales.target


def test_a_model_of_as_many_rows_as_pseudo_inputs_learns_without_the_nearest():
    X, y = rows(40, 2)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=2)
    nearest = learner.start(X, y, np.random.default_rng(0))
    with_nearest, alone = (
        learner.start(X[:10] / 10, y[:10], np.random.default_rng(0), model) for model in (nearest, None)
    )
    np.testing.assert_array_equal(with_nearest.theta.to_vector(), alone.theta.to_vector())


def test_the_evidence_of_an_update_of_equal_outputs_is_that_of_one_times_their_number():
    X, y = rows(40, 2)
    learner = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=0)

    def evidence_of_update(targets):
        model = learner.start(X[:20], targets[:20], np.random.default_rng(0))
        updated = learner.update(model, X[20:], targets[20:], np.random.default_rng(0))
        return np.array([model.log_evidence, updated.log_evidence])

    three = evidence_of_update(np.tile(y[:, None], 3))
    np.testing.assert_allclose(three, 3 * evidence_of_update(y), rtol=1e-9)


def test_a_summary_of_very_precise_observations_still_predicts():
    """The identity is lost to rounding in I + U U^T, whose plain factorisation fails; predictions stay finite."""
    X, y = rows(60, 2)
    model = SparseLearner(SquaredExponential(), n_inducing=20, max_iter=0).start(X, y, np.random.default_rng(0))
    known = model.summary
    exact = replace(model, summary=replace(known, R=1e10 * np.repeat(known.R[:1], len(known), axis=0)))
    U = exact.summary.R @ exact.L
    with pytest.raises(NotFactorizableError):
        linalg.cholesky(linalg.plus_identity(U @ U.T))
    mean, variance = exact.predict(X)
    assert np.isfinite(mean).all()
    assert (variance >= 0).all()
    assert np.isfinite(variance).all()
