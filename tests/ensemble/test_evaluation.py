"""A batch before the decision: the count of evaluations."""

import numpy as np
import pytest

from streams import BATCH, IN_BATCHES, small, travelling
from wgpr import Evidence, KernelDistance, LocalGPRegressor, SquaredExponential, Wasserstein
from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation, StepRecord
from wgpr.gp import bound
from wgpr.gp.sparse import SparseLearner

SEED = 7
SPARSE = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=5)


def two_terrains(seed, n_batches=10):
    """Batches along a track from a smooth plain into rugged hills and back; for odd seeds, the other way round."""
    rng, n = np.random.default_rng(seed), BATCH * n_batches
    there_and_back = 10.0 * np.abs(np.linspace(-1.0, 1.0, n))
    x = 10.0 - there_and_back if seed % 2 else there_and_back
    X = np.stack([x + 0.05 * rng.normal(size=n), rng.uniform(0.0, 2.0, n)], axis=1)
    plain, hills = np.sin(X[:, 0] + rng.uniform(0, 6)), 3.0 * np.sin(4.0 * X[:, 0]) * np.cos(X[:, 1])
    y = np.where(X[:, 0] < 5.0, plain, hills) + 0.1 * rng.normal(size=n)
    return list(zip(np.split(X, n_batches), np.split(y, n_batches), strict=True))


# Evaluations of the bound


@pytest.fixture
def counted(monkeypatch):
    """A list that gets an item for every evaluation of the bound."""
    made = []

    class CountedFit(bound.Fit):
        def __init__(self, *arguments):
            made.append(None)
            super().__init__(*arguments)

    monkeypatch.setattr(bound, "Fit", CountedFit)
    return made


@pytest.mark.parametrize(
    "rule", [Wasserstein(1.0), Evidence(), KernelDistance(0.2)], ids=lambda rule: type(rule).__name__
)
def test_a_record_counts_the_evaluations_of_the_bound(rule, counted):
    """For a new model, and for all updates."""
    ensemble = Ensemble.of([], 2)
    for number, (X, y) in enumerate(two_terrains(0)[:7]):
        counted.clear()
        ensemble, record = absorb(BatchEvaluation(ensemble, SPARSE, X, y, 3, SEED, number), rule)
        assert record.n_evaluations == len(counted) > 0
    assert len(ensemble) > 1


@pytest.mark.parametrize("regressor", IN_BATCHES, ids=lambda regressor: regressor.__name__)
def test_the_records_of_an_estimator_count_all_evaluations_of_the_bound(regressor, counted):
    """Exact models have no bound."""
    history = small(regressor).fit(*travelling()).history_
    assert sum(record.n_evaluations for record in history) == len(counted)
    for record in history:
        assert (record.n_evaluations == 0) == (regressor is LocalGPRegressor)


def test_steps_of_old_maps_count_no_evaluations():
    """Their files have no such number."""
    step = StepRecord(0, 1, (0,), (None,), (None,), (0.0,), None, (), (), seconds=0.0)
    assert (step.n_evaluations, step.merged) == (0, ())
