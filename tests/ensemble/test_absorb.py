"""The step of docs/method.md, 4: against a literal transcription of it, and in the cases where the result is known."""

from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm

from streams import (
    BATCH,
    assert_same_learning,
    assert_same_models,
    numbers_in,
    published,
    queries,
    small,
    travelling,
)
from wgpr import (
    Always,
    Evidence,
    KernelDistance,
    Never,
    SolarGPRegressor,
    SquaredExponential,
    StreamingGPRegressor,
    Wasserstein,
)
from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import ALL_ROWS, Assignment, BatchEvaluation, Change, StepRecord
from wgpr.gp.linalg import NotFactorizableError, NotFiniteError
from wgpr.gp.sparse import SparseLearner

X, y = travelling(120)
BATCHES = [(X[first : first + BATCH], y[first : first + BATCH]) for first in range(0, len(X), BATCH)]
SEED = 7


def name_of(rule):
    return type(rule).__name__


LEARNER = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=5)


def run(rule, batches=BATCHES, learner=LEARNER, n_candidates=3):
    """The ensembles after each batch, the empty one first, and the records."""
    ensembles, records = [Ensemble.of([], 2)], []
    for number, (rows, targets) in enumerate(batches):
        evaluation = BatchEvaluation(ensembles[-1], learner, rows, targets, n_candidates, SEED, number)
        ensemble, record = absorb(evaluation, rule)
        ensembles.append(ensemble)
        records.append(record)
    return ensembles, records


# Literal transcriptions


def bures(p, q):
    """Squared Wasserstein distance as it is printed, with roots of matrices."""
    root = sqrtm(p.covariance + 1e-14 * np.eye(len(p.mean)))
    cross = sqrtm(root @ q.covariance @ root + 1e-14 * np.eye(len(p.mean)))
    return sum((p.mean - q.mean) ** 2) + np.trace(p.covariance + q.covariance - 2 * np.real(cross))


def literal_step(models, rows, targets, threshold, n_candidates, number):
    """docs/method.md, 4, sentence by sentence: the models after it, and what was computed on the way."""
    distance_to_batch = [np.linalg.norm(model.inputs.mean(axis=0) - rows.mean(axis=0)) for model in models]
    nearest = sorted(range(len(models)), key=distance_to_batch.__getitem__)
    new = LEARNER.start(rows, targets, np.random.default_rng([SEED, number]), models[nearest[0]] if models else None)
    tried = {}
    for j in nearest[:n_candidates]:
        updated = LEARNER.update(models[j], rows, targets, np.random.default_rng([SEED, number]))
        w_old = bures(models[j].posterior(models[j].inputs), updated.posterior(models[j].inputs))
        w_new = bures(new.posterior(rows), updated.posterior(rows))
        tried[j] = (w_old, w_new, updated)
    best = min(tried, key=lambda j: tried[j][0] + tried[j][1], default=None)
    if best is not None and tried[best][0] + tried[best][1] <= threshold:
        return [*models[:best], tried[best][2], *models[best + 1 :]], tried
    return [*models, new], tried


@pytest.mark.parametrize("n_candidates", [1, 3, 100])
@pytest.mark.parametrize("threshold", [0.5, 1.0, 3.0])
def test_step_is_the_one_of_the_paper(threshold, n_candidates):
    ensembles, records = run(Wasserstein(threshold), n_candidates=n_candidates)
    for number, (rows, targets) in enumerate(BATCHES):
        before = list(ensembles[number].models)
        expected, tried = literal_step(before, rows, targets, threshold, n_candidates, number)
        assert_same_models(ensembles[number + 1].models, expected)
        assert records[number].candidates == tuple(tried)
        np.testing.assert_allclose(records[number].w_old, [t[0] for t in tried.values()], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(records[number].w_new, [t[1] for t in tried.values()], rtol=1e-5, atol=1e-5)


def test_the_steps_compared_with_the_transcription_have_both_decisions():
    _, records = run(Wasserstein(1.0))
    assert {record.decision for record in records[1:]} == {"new", "update"}


# Known results


def test_infinite_threshold_is_one_streaming_model():
    settings = {"threshold": np.inf, "n_candidates": 10**6}
    split, single = small(published, **settings).fit(X, y), small(StreamingGPRegressor).fit(X, y)
    assert split.n_models_ == 1
    assert_same_learning(split, single)


@pytest.mark.parametrize("settings", [{"threshold": 0.0}, {"splitting": "always"}], ids=["zero threshold", "always"])
def test_one_model_per_batch(settings):
    estimator = small(published, **settings).fit(X, y)
    assert estimator.n_models_ == len(BATCHES)
    assert [model.n_seen for model in estimator.models_] == [BATCH] * len(BATCHES)
    for model, (rows, _) in zip(estimator.models_, BATCHES, strict=True):
        np.testing.assert_allclose(model.centre, estimator.units_.inputs(rows).mean(axis=0))


def test_always_gives_the_models_of_a_zero_threshold():
    one, other = (small(published, **settings).fit(X, y) for settings in ({"threshold": 0.0}, {"splitting": "always"}))
    assert_same_models(one.models_, other.models_)


@pytest.mark.parametrize(
    ("splitting", "rule"), [("wasserstein", Wasserstein(1.0)), ("evidence", Evidence()), ("never", Never())]
)
def test_a_rule_by_name_is_the_rule(splitting, rule):
    named, given = (small(published, splitting=choice).fit(X, y) for choice in (splitting, rule))
    assert_same_learning(named, given)


@pytest.mark.parametrize("rule", [Wasserstein(1.0), Evidence(), KernelDistance(0.2), Never(), Always()], ids=name_of)
def test_models_that_were_not_chosen_are_the_same_objects(rule):
    ensembles, records = run(rule)
    for (before, after), record in zip(pairwise(ensembles), records, strict=True):
        chosen = {change.model for change in record.changes}
        for number, model in enumerate(before.models):
            assert (after.models[number] is model) == (number not in chosen)


@pytest.mark.parametrize("rule", [Wasserstein(1.0), Evidence(), KernelDistance(0.2), Always()], ids=name_of)
def test_a_step_does_not_change_the_ensemble_before(rule):
    ensembles, _ = run(rule)
    expected = numbers_in(ensembles[3].models)
    answers = ensembles[3].index.owners(queries())
    for ensemble in ensembles[:4]:
        absorb(BatchEvaluation(ensemble, LEARNER, *BATCHES[3], n_candidates=3, seed=SEED, number=3), rule)
    numbers = numbers_in(ensembles[3].models)
    assert all(np.array_equal(numbers[path], expected[path]) for path in expected)
    np.testing.assert_array_equal(ensembles[3].index.owners(queries()), answers)


@dataclass(frozen=True)
class WatchedLearner(SparseLearner):
    """Records the models that inform those that it starts."""

    nearest: list[Any] = field(default_factory=list)

    def start(self, X, y, rng, nearest=None) -> Any:
        self.nearest.append(nearest)
        return super().start(X, y, rng, nearest)


@pytest.mark.parametrize(
    ("rule", "n_started"), [(Always(), 1), (Wasserstein(0.0), 1), (KernelDistance(1.0), 20)], ids=name_of
)
def test_the_nearest_model_informs_a_new_one(rule, n_started):
    (*_, ensemble), _ = run(Always(), BATCHES[:4])
    watched, (X, y) = WatchedLearner(SquaredExponential(), 10, 5), BATCHES[1]
    absorb(BatchEvaluation(ensemble, watched, X, y, n_candidates=1, seed=SEED, number=4), rule)
    places = [rows.mean(axis=0) for rows in np.split(X, n_started)]
    nearest = [ensemble.models[int(np.argmin(((ensemble.input_means - x) ** 2).sum(axis=1)))] for x in places]
    assert watched.nearest == nearest


# Candidates that fail


@dataclass(frozen=True)
class RefusingLearner(SparseLearner):
    """Cannot update models whose centre is on one side."""

    error: type[Exception] = NotFactorizableError
    beyond: float = -np.inf

    def update(self, model, X, y, rng) -> Any:
        if model.centre[0] > self.beyond:
            raise self.error("no")
        return super().update(model, X, y, rng)


every_failure = pytest.mark.parametrize(
    "error", [ArithmeticError, NotFactorizableError, NotFiniteError, FloatingPointError]
)
every_rule_that_updates = pytest.mark.parametrize(
    "rule", [Wasserstein(np.inf), Evidence(), Never(), KernelDistance(1e-9)], ids=name_of
)


@every_failure
@every_rule_that_updates
def test_no_row_is_lost_when_every_update_fails(rule, error):
    ensembles, records = run(rule, learner=RefusingLearner(SquaredExponential(), 10, 5, error=error))
    assert [len(ensemble) for ensemble in ensembles] == list(range(len(BATCHES) + 1))
    assert [model.n_seen for model in ensembles[-1].models] == [BATCH] * len(BATCHES)
    assert {record.decision for record in records} == {"new"}


@every_rule_that_updates
def test_updates_that_fail_are_recorded(rule):
    _, records = run(rule, learner=RefusingLearner(SquaredExponential(), 10, 5))
    for record in records[1:]:
        assert record.dropped
        assert record.dropped == record.candidates
        assert set(record.evidence) == set(record.w_old) == set(record.w_new) == {None}


def test_a_candidate_whose_update_fails_is_left_out():
    everywhere, _ = run(Wasserstein(0.0), BATCHES[:4])
    refusing = RefusingLearner(SquaredExponential(), 10, 5, beyond=4.0)
    evaluation = BatchEvaluation(everywhere[-1], refusing, *BATCHES[1], n_candidates=4, seed=SEED, number=9)
    ensemble, record = absorb(evaluation, Wasserstein(np.inf))
    fails = {number for number, model in enumerate(everywhere[-1].models) if model.centre[0] > 4.0}
    assert 0 < len(fails) < 4
    assert set(record.dropped) == fails
    assert set(record.candidates) == {0, 1, 2, 3}
    for number, w_old, w_new, evidence in zip(
        record.candidates, record.w_old, record.w_new, record.evidence, strict=True
    ):
        assert (w_old is None) == (w_new is None) == (evidence is None) == (number in fails)
    (change,) = record.changes
    assert change.model not in fails
    assert not change.is_new
    assert len(ensemble) == 4


def test_an_estimator_never_raises_for_a_candidate_that_fails(monkeypatch):
    def refuse(*_):
        raise NotFactorizableError("no")

    monkeypatch.setattr(SparseLearner, "update", refuse)
    for regressor in (published, SolarGPRegressor, StreamingGPRegressor):
        estimator = small(regressor).fit(X, y)
        assert sum(model.n_seen for model in estimator.models_) == len(X)
        assert np.isfinite(estimator.predict(queries())).all()


# Records


def test_record_of_an_update():
    started = perf_counter()
    ensembles, records = run(Wasserstein(np.inf), BATCHES[:3])
    took = perf_counter() - started
    for number, record in enumerate(records):
        assert record.number == number
        assert record.n_samples == BATCH
        assert record.dropped == ()
        assert 0.0 < record.seconds < took
    assert sum(record.seconds for record in records) < took
    first, second = records[:2]
    assert first.changes == (Change(model=0, n_samples=BATCH, is_new=True),)
    assert (first.candidates, first.w_old, first.w_new, first.evidence) == ((), (), (), ())
    assert first.evidence_new == ensembles[1].models[0].log_evidence
    assert first.decision == "new"
    assert second.changes == (Change(model=0, n_samples=BATCH, is_new=False),)
    assert second.candidates == (0,)
    assert second.evidence == (ensembles[2].models[0].log_evidence,)
    assert second.decision == "update"


def test_record_of_a_new_model():
    ensembles, records = run(Wasserstein(0.0), BATCHES[:3])
    assert [record.decision for record in records] == ["new"] * 3
    assert [record.changes[0].model for record in records] == [0, 1, 2]
    assert records[2].candidates == (1, 0)
    assert min(records[2].w_old + records[2].w_new) > 0.0
    assert records[2].evidence_new == ensembles[3].models[2].log_evidence


def test_what_a_rule_does_not_ask_for_is_not_recorded():
    _, never = run(Never(), BATCHES[:2])
    _, always = run(Always(), BATCHES[:2])
    assert (never[1].w_old, never[1].w_new, never[1].evidence_new) == ((None,), (None,), None)
    assert (always[1].candidates, always[1].w_old) == ((), ())
    assert always[1].evidence_new is not None


def test_record_of_rows_that_went_to_different_models():
    ensembles, records = run(KernelDistance(0.2))
    for (before, after), record in zip(pairwise(ensembles), records, strict=True):
        for change in record.changes:
            seen_before = 0 if change.is_new else before.models[change.model].n_seen
            assert after.models[change.model].n_seen == seen_before + change.n_samples
            assert change.is_new == (change.model >= len(before))
    both = [record for record in records if record.decision == "both"]
    assert both
    for record in both:
        assert {change.is_new for change in record.changes} == {True, False}


def test_updates_of_some_of_the_rows_are_recorded_too():
    ensembles, records = run(KernelDistance(0.2))
    for after, record in zip(ensembles[1:], records, strict=True):
        updated = [change.model for change in record.changes if not change.is_new]
        assert sorted(record.candidates) == updated
        evidence = dict(zip(record.candidates, record.evidence, strict=True))
        assert evidence == {number: after.models[number].log_evidence for number in updated}


@pytest.mark.parametrize(
    ("ways", "decision"), [([True], "new"), ([False], "update"), ([True, False], "both"), ([False, False], "update")]
)
def test_decision(ways, decision):
    changes = tuple(Change(number, 1, is_new) for number, is_new in enumerate(ways))
    assert StepRecord(0, len(ways), (), (), (), (), None, (), changes, 0.0).decision == decision


# Rules of users


@dataclass(frozen=True)
class Scripted:
    """Returns given assignments."""

    assignments: tuple[Assignment, ...]

    def assign(self, evaluation):
        return self.assignments


def evaluation_after(first):
    return BatchEvaluation(first, LEARNER, *BATCHES[1], n_candidates=1, seed=SEED, number=1)


def test_rows_of_a_batch_may_go_to_several_models():
    (_, first), _ = run(Always(), BATCHES[:1])
    rule = Scripted(
        (Assignment(np.arange(5), 0), Assignment(np.arange(5, 12), None), Assignment(slice(12, None), None))
    )
    after, record = absorb(evaluation_after(first), rule)
    assert [model.n_seen for model in after.models] == [BATCH + 5, 7, 8]
    assert record.changes == (Change(0, 5, False), Change(1, 7, True), Change(2, 8, True))


def test_a_model_may_be_assigned_rows_twice():
    (_, first), _ = run(Always(), BATCHES[:1])
    rule = Scripted((Assignment(slice(0, 8), 0), Assignment(slice(8, None), 0)))
    after, _ = absorb(evaluation_after(first), rule)
    assert [model.n_seen for model in after.models] == [2 * BATCH]


def test_all_rows_may_be_given_by_another_slice():
    (_, first), _ = run(Always(), BATCHES[:1])
    one, _ = absorb(evaluation_after(first), Scripted((Assignment(ALL_ROWS, 0),)))
    other, _ = absorb(evaluation_after(first), Scripted((Assignment(slice(0, BATCH), 0),)))
    assert_same_models(one.models, other.models)
