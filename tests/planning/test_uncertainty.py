"""Gains of planned measurements, against Gaussian process regression by the page."""

from dataclasses import replace

import numpy as np
import pytest

from wgpr import WGPRegressor
from wgpr.ensemble.answers import posterior_of
from wgpr.gp.linalg import one_blas_thread
from wgpr.gp.pseudodata import PseudoData
from wgpr.planning.ground import Ground
from wgpr.planning.uncertainty import Uncertainty, uncertainty_of


@pytest.fixture(scope="module")
def model():
    """One territory: every pair of cells has one covariance."""
    random = np.random.default_rng(0)
    X = random.uniform(0.0, 10.0, (60, 2))
    return WGPRegressor(calibrated=False).fit(X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.05 * random.normal(size=60))


@pytest.fixture
def ground(monkeypatch):
    """So small that the window of a cell holds all others."""
    monkeypatch.setattr(Ground, "radius", 8)
    monkeypatch.setattr(Ground, "closeness", lambda self, cells, others: np.ones((len(cells), len(others))))
    return Ground.of(np.array([4.0, 4.0]), np.array([6.0, 6.0]), 0.4, None)


@pytest.fixture
def uncertainty(model, ground):
    with one_blas_thread():
        return uncertainty_of(model, ground, ground.nodes[:, None], ground.targets)


def exact(model, ground, cells):
    """Variances (N,) at the targets after measurements at the nodes of these cells."""
    state = model._state
    posterior = posterior_of(state.ensemble, 0, state.cache, 2**28)
    Z = state.units.inputs(ground.nodes[cells])
    planned = PseudoData.of_rows(Z, np.zeros((len(Z), 1)), np.ones(len(Z)), posterior.theta.noise)
    return posterior.extended(planned).predict(state.units.inputs(ground.targets))[1]


def test_variances_are_those_that_the_model_predicts(model, uncertainty):
    _, std = model.predict(uncertainty.ground.targets, return_std=True, latent=True)
    found = np.sqrt(uncertainty.variance) * model._state.units.target_unit
    np.testing.assert_allclose(found, std, rtol=1e-6)


def test_a_measurement_on_a_track_is_the_mean_over_its_places(model, ground):
    nodes, state = ground.along_tracks(), model._state
    with one_blas_thread():
        found = uncertainty_of(model, ground, nodes, ground.targets)
        posterior = posterior_of(state.ensemble, 0, state.cache, 2**28)
        joint = posterior.joint(state.units.inputs(np.concatenate([nodes.reshape(-1, 2), ground.targets])))
    mean, n = np.kron(np.eye(len(nodes)), np.full(4, 0.25)), 4 * len(nodes)
    np.testing.assert_allclose(found._nodes, mean @ joint.covariance[:n, :n] @ mean.T, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found._targets, mean @ joint.covariance[:n, n:], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.shortest_lengthscales, model.hyperparameters_[0].lengthscales, rtol=1e-9)


@pytest.mark.parametrize("cells", [[12], [0, 24], [3, 8, 13, 18, 23]])
def test_a_gain_is_what_planned_rows_take_out_of_the_variance(model, uncertainty, cells):
    before = uncertainty.variance.sum()
    expected = before - exact(model, uncertainty.ground, cells).sum()
    assert uncertainty.gain(np.array(cells)) == pytest.approx(expected, rel=1e-6)
    if len(cells) == 1:
        assert uncertainty.gains[cells[0]] == pytest.approx(expected, rel=1e-6)


def test_measuring_gives_the_variances_after_planned_rows(model, uncertainty):
    cells = np.array([2, 7, 11, 20])
    uncertainty.measure(cells)
    np.testing.assert_allclose(uncertainty.variance, exact(model, uncertainty.ground, cells), rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(
        uncertainty.gains, [uncertainty.gain(np.array([cell])) for cell in range(25)], rtol=1e-6, atol=1e-12
    )


def test_a_copy_is_measured_alone(uncertainty):
    before, gains = uncertainty.variance.copy(), uncertainty.gains.copy()
    uncertainty.copy().measure(np.array([5]))
    np.testing.assert_array_equal(uncertainty.variance, before)
    np.testing.assert_array_equal(uncertainty.gains, gains)


def test_variances_stay_between_zero_and_what_they_were_even_if_covariances_are_none():
    """Two territories may disagree about a pair of cells. Correlations above one are limited."""
    ground = Ground.of(np.zeros(2), np.array([6.0, 1.0]), 1.0, None)
    between, to_targets = np.random.default_rng(0).normal(size=(2, 6, 6))
    np.fill_diagonal(between, 1.0)
    wrong = Uncertainty(ground, between, to_targets, np.ones(6), np.full(6, 0.01))
    last = wrong.variance.copy()
    for cell in [0, 3, 5, 0, 1]:
        assert 0.0 <= wrong.gain(np.array([cell, (cell + 1) % 6])) < np.inf
        wrong.measure(np.array([cell]))
        assert ((wrong.variance >= 0.0) & (wrong.variance <= last)).all()
        last = wrong.variance.copy()


def test_covariances_fall_to_zero_and_stay_covariances():
    """The factor is a correlation: with it a matrix of covariances stays one."""
    ground = Ground.of(np.zeros(2), np.array([20.0, 20.0]), 1.0, None)
    cells = np.arange(len(ground))
    factor = ground.closeness(cells, cells)
    assert factor[0, 0] == 1.0
    assert factor[0, 39] == 0.0
    assert np.linalg.eigvalsh(factor).min() > -1e-10


def test_gains_come_true_where_smooth_and_rough_ground_meet(regimes):
    """Also near the border, where two territories with very different variances meet."""
    ground = replace(Ground.of(np.array([400.0, 0.0]), np.array([600.0, 120.0]), 10.0, None), apart=10.0)
    with one_blas_thread():
        uncertainty = uncertainty_of(regimes, ground, ground.nodes[:, None], ground.targets)
        for _ in range(3):
            gains = np.zeros(len(ground))
            for cell in range(len(ground)):
                after = uncertainty.copy()
                after.measure(np.array([cell]))
                gains[cell] = uncertainty.variance.sum() - after.variance.sum()
            np.testing.assert_allclose(uncertainty.gains, gains, rtol=1e-2, atol=1e-3 * gains.max())
            uncertainty.measure(np.array([np.argmax(gains)]))


def test_gains_come_true_if_a_matrix_of_covariances_has_negative_eigenvalues():
    ground = Ground.of(np.zeros(2), np.array([20.0, 10.0]), 1.0, None)
    apart = np.linalg.norm(ground.nodes[:, None] - ground.nodes, axis=2)
    between = np.where(apart < 5.0, 0.9, 0.0)
    np.fill_diagonal(between, 1.0)
    assert np.linalg.eigvalsh(between).min() < -1.0
    uncertainty = Uncertainty(ground, between, between.copy(), np.ones(200), np.full(200, 1e-4))
    gains = []
    for _ in range(20):
        before, best = uncertainty.variance.sum(), int(np.argmax(uncertainty.gains))
        gains.append(uncertainty.gains[best])
        uncertainty.measure(np.array([best]))
        assert before - uncertainty.variance.sum() == pytest.approx(gains[-1], rel=1e-6, abs=1e-9)
    assert (np.diff(gains) <= 1e-9).all()
