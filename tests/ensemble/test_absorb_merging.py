"""A bounded ensemble: never more models than allowed, no row lost, and those that agree become one."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from streams import BATCH, published, small, travelling
from wgpr import Always, Evidence, Hyperparameters, KernelDistance, SquaredExponential, Wasserstein
from wgpr.ensemble.absorb import _close_pairs, absorb, merge_down
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation
from wgpr.gp.exact import ExactLearner
from wgpr.gp.linalg import NotFactorizableError
from wgpr.gp.sparse import SparseLearner

KERNEL = SquaredExponential()
THETA = Hyperparameters(1.0, np.array([1.0, 2.0]), 0.1)
X, y = travelling(160)
LEARNERS = {
    "sparse": SparseLearner(KERNEL, n_inducing=10, max_iter=3),
    "exact": ExactLearner(KERNEL, THETA, 0.0),
    "exact with a limit": ExactLearner(KERNEL, THETA, 0.0, max_samples=8),
}
every_learner = pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)


def run(learner, rule, max_models):
    """Ensembles after each step, and the records."""
    ensembles, records = [Ensemble.of([], 2)], []
    for number, first in enumerate(range(0, len(X), BATCH)):
        rows = slice(first, first + BATCH)
        evaluation = BatchEvaluation(ensembles[-1], learner, X[rows], y[rows], n_candidates=2, seed=0, number=number)
        ensemble, record = absorb(evaluation, rule, max_models)
        ensembles.append(ensemble)
        records.append(record)
    return ensembles[1:], records


@every_learner
@pytest.mark.parametrize("rule", [Always(), KernelDistance(0.5)], ids=repr)
@pytest.mark.parametrize("max_models", [1, 3])
def test_there_are_never_too_many_and_no_row_is_lost(learner, rule, max_models):
    ensembles, records = run(learner, rule, max_models)
    n_seen = np.cumsum([record.n_samples for record in records])
    assert max(map(len, ensembles)) == max_models
    assert [ensemble.n_seen.sum() for ensemble in ensembles] == n_seen.tolist()
    for ensemble, n in zip(ensembles, n_seen, strict=True):
        centre = ensemble.n_seen @ ensemble.centres / n
        np.testing.assert_allclose(centre, X[:n].mean(axis=0), atol=1e-10)


@pytest.mark.parametrize("rule", [Wasserstein(0.0), Evidence()], ids=repr)
def test_every_rule_of_wgpr_keeps_the_limit(rule):
    ensembles, _ = run(LEARNERS["sparse"], rule, 2)
    assert max(map(len, ensembles)) <= 2
    assert ensembles[-1].n_seen.sum() == len(X)


def test_without_a_limit_nothing_is_merged():
    ensembles, records = run(LEARNERS["sparse"], Always(), None)
    assert len(ensembles[-1]) == len(X) // BATCH
    assert {record.merged for record in records} == {()}


@every_learner
def test_the_record_tells_the_numbers(learner):
    """Of that moment: replayed on the changes, they give the ensemble."""
    ensembles, records = run(learner, Always(), 3)
    assert [len(record.merged) for record in records] == [0, 0, 0, 1, 1, 1, 1, 1]
    counts = []
    for ensemble, record in zip(ensembles, records, strict=True):
        for change in record.changes:
            assert change.model == len(counts)
            counts.append(change.n_samples)
        for first, second in record.merged:
            assert 0 <= first < second < len(counts)
            counts[first] += counts.pop(second)
        assert ensemble.n_seen.tolist() == counts


def test_those_that_were_not_merged_stay_the_same_objects():
    ensembles, _ = run(LEARNERS["sparse"], Always(), None)
    ensemble = ensembles[3]
    after, ((first, second),) = merge_down(ensemble, LEARNERS["sparse"], 3)
    kept = [model for number, model in enumerate(ensemble.models) if number not in (first, second)]
    assert [model for number, model in enumerate(after.models) if number != first] == kept
    np.testing.assert_array_equal(after.index.owners(X), Ensemble.of(after.models, 2).index.owners(X))
    assert len(ensemble) == 4


# Who is merged


def on_a_line(*fields):
    """Models of fields one after the other, a unit apart; each is told as a function of the place."""
    learner, ensemble = SparseLearner(KERNEL, max_iter=20), Ensemble.of([], 1)
    for number, field in enumerate(fields):
        rng = np.random.default_rng(number)
        rows = rng.uniform(number, number + 1, (60, 1))
        targets = field(rows[:, 0]) + 0.05 * rng.normal(size=60)
        ensemble = ensemble.with_model(learner.start(rows, targets, rng))
    return learner, ensemble


def test_the_pair_that_agrees_is_merged():
    learner, ensemble = on_a_line(np.sin, lambda x: 3.0 + np.sin(30.0 * x), np.cos, np.cos)
    merged, pairs = merge_down(ensemble, learner, 3)
    assert pairs == ((2, 3),)
    assert merged.models[:2] == ensemble.models[:2]
    assert merged.models[2].n_seen == 120


def test_a_merger_is_judged_by_both_models(monkeypatch):
    """The first of a pair may hardly notice a merger that changes the second."""
    learner, ensemble = on_a_line(np.sin, np.sin, np.sin, np.sin)
    means = [model.posterior(model.inputs).mean.tobytes() for model in ensemble.models]
    costs = dict(zip(means, [0.0, 10.0, 1.0, 1.0], strict=True))
    monkeypatch.setattr("wgpr.ensemble.absorb.squared_wasserstein", lambda old, new: costs[old.mean.tobytes()])
    assert merge_down(ensemble, learner, 3)[1] == ((2, 3),)


def test_predictions_of_those_that_agree_move_little():
    learner, ensemble = on_a_line(np.sin, np.sin)
    (model,) = merge_down(ensemble, learner, 1)[0].models
    for number, old in enumerate(ensemble.models):
        rows = np.linspace(number, number + 1, 30)[:, None]
        np.testing.assert_allclose(model.predict(rows)[0], old.predict(rows)[0], atol=0.05)


@pytest.mark.parametrize("larger", [0, 1])
def test_hyperparameters_are_those_of_the_model_that_has_seen_more(larger):
    learner, ensemble = on_a_line(np.sin, np.cos)
    models = [replace(model, n_seen=100 if number == larger else 60) for number, model in enumerate(ensemble.models)]
    (merged,) = merge_down(Ensemble.of(models, 1), learner, 1)[0].models
    np.testing.assert_array_equal(merged.theta.to_log(), models[larger].theta.to_log())


class Failing(SparseLearner):
    """Merges no model that has seen 60 rows."""

    def merge(self, model, other):
        if model.n_seen == 60:
            raise NotFactorizableError
        return super().merge(model, other)


def test_pairs_that_cannot_be_merged_are_left_out():
    _, ensemble = on_a_line(np.sin, np.sin, lambda x: 3.0 + np.sin(30.0 * x), np.cos)
    learner = Failing(KERNEL, max_iter=20)
    assert merge_down(ensemble, learner, 3) == (ensemble, ())
    models = [replace(model, n_seen=60 if number < 3 else 70) for number, model in enumerate(ensemble.models)]
    assert merge_down(Ensemble.of(models, 1), learner, 3)[1] == ((2, 3),)


def test_close_pairs_are_close_in_length_scales():
    places, lengthscales = (
        np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 3.0], [103.0, 30.0]]),
        np.tile([1000.0, 1.0], (4, 1)),
    )
    pairs = _close_pairs(SimpleNamespace(input_means=places, lengthscales=lengthscales))
    assert pairs == [(0, 1), (0, 2), (2, 3)]


def test_the_six_closest_pairs_are_tried():
    """Fitting a merger takes long: their number must not grow with that of the models."""
    pairs_of_places = [(100.0 * i, 100.0 * i + 10.0 - i) for i in range(10)]
    places = np.array(pairs_of_places).reshape(-1, 1)
    pairs = _close_pairs(SimpleNamespace(input_means=places, lengthscales=np.ones((20, 1))))
    assert pairs == [(2 * i, 2 * i + 1) for i in (9, 8, 7, 6, 5, 4)]


def test_models_at_the_same_place_can_be_merged():
    _, ensemble = on_a_line(np.sin)
    learner = SparseLearner(KERNEL)
    (model,) = ensemble.models
    three = Ensemble.of([model, model, model], 1)
    merged, pairs = merge_down(three, learner, 1)
    assert len(pairs) == 2
    assert merged.n_seen.tolist() == [180]


# In the estimator


def test_an_endless_stream_keeps_to_its_models():
    estimator = small(published, splitting="always", max_models=3).partial_fit(*travelling(300))
    assert estimator.n_models_ == 3
    assert sum(model.n_seen for model in estimator.models_) == 300 - estimator.n_pending_
    assert np.isfinite(estimator.predict(X, return_std=True)).all()
