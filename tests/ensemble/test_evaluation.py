"""A batch before the decision: closed-form updates, the screen by them, and the count of evaluations."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from streams import BATCH, ONLINE, assert_same_models, scattered_ensemble, small, travelling
from wgpr import Evidence, KernelDistance, LocalGPRegressor, SquaredExponential, Wasserstein
from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation
from wgpr.gp import bound
from wgpr.gp.exact import ExactLearner, ExactModel
from wgpr.gp.linalg import NotFactorizableError, NotFiniteError
from wgpr.gp.sparse import AdaptiveSparseLearner, SparseLearner
from wgpr.rules.splitting import Worthwhile

SEED = 7
SPARSE = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=5)
ADAPTIVE = AdaptiveSparseLearner(SquaredExponential(), max_inducing=15, max_iter=5)
RULES = {"wasserstein": (Wasserstein(1.0), SPARSE), "evidence": (Evidence(), SPARSE), "auto": (Worthwhile(), ADAPTIVE)}
every_rule = pytest.mark.parametrize("name", RULES)


def two_terrains(seed, n_batches=10):
    """Batches along a track from a smooth plain into rugged hills and back; for odd seeds, the other way round."""
    rng, n = np.random.default_rng(seed), BATCH * n_batches
    there_and_back = 10.0 * np.abs(np.linspace(-1.0, 1.0, n))
    x = 10.0 - there_and_back if seed % 2 else there_and_back
    X = np.stack([x + 0.05 * rng.normal(size=n), rng.uniform(0.0, 2.0, n)], axis=1)
    plain, hills = np.sin(X[:, 0] + rng.uniform(0, 6)), 3.0 * np.sin(4.0 * X[:, 0]) * np.cos(X[:, 1])
    y = np.where(X[:, 0] < 5.0, plain, hills) + 0.1 * rng.normal(size=n)
    return list(zip(np.split(X, n_batches), np.split(y, n_batches), strict=True))


@cache
def thorough_and_screened(name):
    """Steps from the same ensembles of two models or more: evaluation, thorough record, and record after a screen."""
    rule, learner = RULES[name]
    steps = []
    for seed in range(2):
        ensemble = Ensemble.of([], 2)
        for number, (X, y) in enumerate(two_terrains(seed)):
            settings = {"learner": learner, "n_candidates": 4, "seed": SEED, "number": number}
            after, thorough = absorb(ensemble, X, y, rule=rule, **settings)
            if len(ensemble) > 1:
                _, screened = absorb(ensemble, X, y, rule=rule, is_thorough=False, **settings)
                steps.append((BatchEvaluation(ensemble, X=X, y=y, **settings), thorough, screened))
            ensemble = after
    return steps


# Closed-form updates


LEARNERS = {
    "sparse": SPARSE,
    "adaptive": ADAPTIVE,
    "forgetting": replace(ADAPTIVE, forgetting=0.1),
    "exact": ExactLearner(SquaredExponential(), scattered_ensemble(1).models[0].theta, 0.5, max_samples=30),
}


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one output", "two outputs"])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_closed_form_update_is_an_update_without_optimisation(learner, outputs):
    X, y = travelling(2 * BATCH)
    if outputs:
        y = np.stack([y, np.cos(y)], axis=1)
    model = learner.start(X[:BATCH], y[:BATCH], np.random.default_rng(SEED))
    not_optimising = learner if isinstance(learner, ExactLearner) else replace(learner, max_iter=0)
    closed_form = learner.closed_form_update(model, X[BATCH:], y[BATCH:], np.random.default_rng(SEED))
    updated = not_optimising.update(model, X[BATCH:], y[BATCH:], np.random.default_rng(SEED))
    assert closed_form.log_evidence == pytest.approx(updated.log_evidence, rel=1e-9)
    for answer, at in ((closed_form.at_rows, X[BATCH:]), (closed_form.at_inputs, model.inputs)):
        for part, expected in zip(answer, updated.predict(at), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_an_update_with_a_warm_start_is_the_same(learner):
    """But for the number of evaluations: those of the closed form were made before."""
    X, y = travelling(2 * BATCH)
    model = learner.start(X[:BATCH], y[:BATCH], np.random.default_rng(SEED))
    rows = X[BATCH:], y[BATCH:]
    closed_form = learner.closed_form_update(model, *rows, np.random.default_rng(SEED))
    warm = learner.update(model, *rows, np.random.default_rng(SEED), closed_form=closed_form)
    cold = learner.update(model, *rows, np.random.default_rng(SEED))
    assert_same_models([uncounted(warm)], [uncounted(cold)])


def uncounted(model):
    """The model without its number of evaluations."""
    return model if isinstance(model, ExactModel) else replace(model, n_evaluations=0)


# The screen


@every_rule
def test_after_a_screen_the_decision_is_the_same_most_of_the_time(name):
    """Measured: in all of 15 steps each; of longer streams and other thresholds, in 44 of 47 at the least."""
    steps = thorough_and_screened(name)
    is_same = [screened.changes == thorough.changes for _, thorough, screened in steps]
    assert {thorough.decision for _, thorough, _ in steps} == {"new", "update"}
    assert len(steps) >= 12
    assert np.mean(is_same) >= 0.85


@every_rule
def test_a_screen_leaves_a_part_of_the_candidates(name):
    """Measured: a third of them. Their evidences and distances are the same."""
    n_tried = np.zeros(2)
    for evaluation, thorough, screened in thorough_and_screened(name):
        nearest = evaluation.closest[: evaluation.n_candidates] if name == "auto" else evaluation.nearest
        assert set(thorough.candidates) == set(nearest)
        assert set(screened.candidates) <= set(nearest)
        assert screened.candidates
        assert screened.evidence_new == thorough.evidence_new
        for told in ("evidence", "w_old", "w_new"):
            expected = dict(zip(thorough.candidates, getattr(thorough, told), strict=True))
            for number, value in zip(screened.candidates, getattr(screened, told), strict=True):
                assert value == expected[number]
        n_tried += len(thorough.candidates), len(screened.candidates)
    assert n_tried[1] < 0.6 * n_tried[0]


@every_rule
def test_a_screen_saves_evaluations_of_the_bound(name):
    """Measured: 69, 66 and 52 % as often."""
    steps = thorough_and_screened(name)
    n_screened, n_thorough = (sum(each[way].n_evaluations for each in steps) for way in (2, 1))
    assert 0 < n_screened < 0.8 * n_thorough


# Closed-form updates that fail


@dataclass(frozen=True)
class FailingInClosedForm(SparseLearner):
    """Fails for models whose centre is beyond a place: by an error, or by numbers that are not finite.

    error : None for such numbers.
    """

    error: type[Exception] | None = NotFactorizableError
    beyond: float = -np.inf

    def closed_form_update(self, model, X, y, rng):
        if model.centre[0] > self.beyond and self.error is not None:
            raise self.error("no")
        closed_form = super().closed_form_update(model, X, y, rng)
        if model.centre[0] <= self.beyond:
            return closed_form
        mean, variance = closed_form.at_inputs
        return closed_form._replace(at_inputs=(np.nan * mean, variance), log_evidence=np.nan)


every_failure = pytest.mark.parametrize("error", [ArithmeticError, NotFactorizableError, NotFiniteError, None], ids=str)
every_rule_that_tries = pytest.mark.parametrize(
    "rule", [Wasserstein(np.inf), Evidence(), Worthwhile()], ids=lambda rule: type(rule).__name__
)


@cache
def in_a_row():
    """An ensemble of four models along a line, and rows between theirs that they have not seen."""
    X, y = travelling(5 * BATCH)
    is_new = np.arange(len(y)) % 5 == 2
    ensemble = Ensemble.of([], 2)
    for rows in np.split(np.flatnonzero(~is_new), 4):
        ensemble = ensemble.with_model(SPARSE.start(X[rows], y[rows], np.random.default_rng(SEED)))
    return ensemble, X[is_new], y[is_new]


def absorb_with_a_screen(learner, rule):
    settings = {"learner": learner, "rule": rule, "n_candidates": 4, "seed": SEED, "number": 9}
    return absorb(*in_a_row(), is_thorough=False, **settings)


@every_failure
@every_rule_that_tries
def test_a_candidate_whose_closed_form_update_fails_is_left_out(rule, error):
    """The others are tried, and no row is lost."""
    ensemble, X, _ = in_a_row()
    fails = {number for number, model in enumerate(ensemble.models) if model.centre[0] > 5.0}
    assert len(fails) == 2
    after, record = absorb_with_a_screen(
        FailingInClosedForm(SquaredExponential(), 10, 5, error=error, beyond=5.0), rule
    )
    assert record.candidates
    assert not set(record.candidates) & fails
    (change,) = record.changes
    assert change.model not in fails
    assert sum(model.n_seen for model in after.models) == sum(model.n_seen for model in ensemble.models) + len(X)


@every_failure
@every_rule_that_tries
def test_if_all_closed_form_updates_fail_there_is_a_new_model(rule, error):
    ensemble, X, _ = in_a_row()
    after, record = absorb_with_a_screen(FailingInClosedForm(SquaredExponential(), 10, 5, error=error), rule)
    assert record.candidates == ()
    assert record.decision == "new"
    assert len(after) == len(ensemble) + 1
    assert after.models[-1].n_seen == len(X)
    for number, model in enumerate(ensemble.models):
        assert after.models[number] is model


@dataclass(frozen=True)
class RefusingLearner(SparseLearner):
    """Updates in closed form only."""

    def update(self, model, X, y, rng, neighbours=(), closed_form=None):
        raise NotFactorizableError("no")


@every_rule_that_tries
def test_if_the_updates_of_all_that_pass_the_screen_fail_there_is_a_new_model(rule):
    _, X, _ = in_a_row()
    after, record = absorb_with_a_screen(RefusingLearner(SquaredExponential(), 10, 5), rule)
    assert record.decision == "new"
    assert record.dropped == record.candidates != ()
    assert after.models[-1].n_seen == len(X)


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


@pytest.mark.parametrize("is_thorough", [True, False], ids=["thorough", "screened"])
@pytest.mark.parametrize("name", [*RULES, "distance"])
def test_a_record_counts_the_evaluations_of_the_bound(name, is_thorough, counted):
    """For a new model, for all updates and for all closed-form updates."""
    rule, learner = RULES.get(name) or (KernelDistance(0.2), SPARSE)
    ensemble = Ensemble.of([], 2)
    for number, (X, y) in enumerate(two_terrains(0)[:7]):
        counted.clear()
        settings = {"n_candidates": 3, "seed": SEED, "number": number, "is_thorough": is_thorough}
        ensemble, record = absorb(ensemble, X, y, learner=learner, rule=rule, **settings)
        assert record.n_evaluations == len(counted) > 0
    assert len(ensemble) > 1


@pytest.mark.parametrize("regressor", ONLINE, ids=lambda regressor: regressor.__name__)
def test_the_records_of_an_estimator_count_all_evaluations_of_the_bound(regressor, counted):
    """Exact models have no bound."""
    history = small(regressor).fit(*travelling()).history_
    assert sum(record.n_evaluations for record in history) == len(counted)
    for record in history:
        assert (record.n_evaluations == 0) == (regressor is LocalGPRegressor)
