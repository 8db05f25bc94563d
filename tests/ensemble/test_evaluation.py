"""A batch before the decision: sketches that choose whom to ask, what was computed, and work that is shared."""

import os
import sys
import time
import types
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wgpr.ensemble.workers import Workers

import wgpr
from reference import textbook_wasserstein
from streams import (
    BATCH,
    ONLINE,
    assert_same_learning,
    assert_same_models,
    numbers_in,
    published,
    queries,
    scattered_ensemble,
    small,
    travelling,
)
from wgpr import Evidence, KernelDistance, LocalGPRegressor, SquaredExponential, Wasserstein, WGPRegressor
from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation
from wgpr.gp import bound
from wgpr.gp.exact import ExactLearner, ExactModel
from wgpr.gp.gaussian import Gaussian, marginal_squared_wasserstein
from wgpr.gp.linalg import NotFactorizableError
from wgpr.gp.model import NotFiniteError
from wgpr.gp.sparse import AdaptiveSparseLearner, SparseLearner
from wgpr.rules.splitting import Worthwhile

SEED = 7
SPARSE = SparseLearner(SquaredExponential(), n_inducing=10, max_iter=5)
GROWING = AdaptiveSparseLearner(SquaredExponential(), max_inducing=15, max_iter=5)
RULES = {"wasserstein": (Wasserstein(1.0), SPARSE), "evidence": (Evidence(), SPARSE), "auto": (Worthwhile(), GROWING)}
every_rule = pytest.mark.parametrize("name", RULES)


def two_worlds(seed, n_batches=10):
    """Batches of a track over a smooth plain into rugged hills and back again, or the other way round."""
    rng, n = np.random.default_rng(seed), BATCH * n_batches
    there_and_back = 10.0 * np.abs(np.linspace(-1.0, 1.0, n))
    x = 10.0 - there_and_back if seed % 2 else there_and_back
    X = np.stack([x + 0.05 * rng.normal(size=n), rng.uniform(0.0, 2.0, n)], axis=1)
    plain, hills = np.sin(X[:, 0] + rng.uniform(0, 6)), 3.0 * np.sin(4.0 * X[:, 0]) * np.cos(X[:, 1])
    y = np.where(X[:, 0] < 5.0, plain, hills) + 0.1 * rng.normal(size=n)
    return list(zip(np.split(X, n_batches), np.split(y, n_batches), strict=True))


@cache
def tried_both_ways(name):
    """Steps from the same ensembles of two models or more: trials, thorough records and others."""
    rule, learner = RULES[name]
    steps = []
    for seed in range(2):
        ensemble = Ensemble.of([], 2)
        for number, (X, y) in enumerate(two_worlds(seed)):
            settings = {"learner": learner, "n_candidates": 4, "seed": SEED, "number": number}
            after, thorough = absorb(ensemble, X, y, rule=rule, **settings)
            if len(ensemble) > 1:
                _, quick = absorb(ensemble, X, y, rule=rule, is_thorough=False, **settings)
                steps.append((BatchEvaluation(ensemble, X=X, y=y, **settings), thorough, quick))
            ensemble = after
    return steps


# What a sketch tells


def beliefs(seed, *outputs):
    """Two pairs of means (n,) or (n, k) and variances (n,), some of which are zero."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    for _ in range(2):
        yield rng.normal(size=(n, *outputs)) * 10.0 ** rng.integers(-3, 4), rng.choice([0.0, 1e-6, 0.3, 50.0], n)


@given(st.integers(0, 2**32 - 1))
def test_movement_is_that_of_means_and_standard_deviations(seed):
    before, after = beliefs(seed)
    places = zip(*before, *after, strict=True)
    expected = sum((m - mean) ** 2 + (v**0.5 - variance**0.5) ** 2 for mean, variance, m, v in places)
    assert marginal_squared_wasserstein(before, after) == pytest.approx(expected, rel=1e-12)
    assert marginal_squared_wasserstein(after, before) == marginal_squared_wasserstein(before, after)
    assert marginal_squared_wasserstein(before, before) == 0.0


@given(st.integers(0, 2**32 - 1))
def test_movement_of_two_outputs_is_the_sum_of_theirs(seed):
    before, after = beliefs(seed, 2)
    each = [marginal_squared_wasserstein((before[0][:, k], before[1]), (after[0][:, k], after[1])) for k in (0, 1)]
    assert marginal_squared_wasserstein(before, after) == pytest.approx(sum(each), rel=1e-12)


def test_movement_is_the_wasserstein_distance_if_places_have_nothing_to_do_with_each_other():
    rng = np.random.default_rng(0)
    before, after = ((rng.normal(size=4), rng.uniform(0.1, 3.0, 4)) for _ in range(2))
    expected = textbook_wasserstein(*(Gaussian(mean, np.diag(variance)) for mean, variance in (before, after)))
    assert marginal_squared_wasserstein(before, after) == pytest.approx(expected)


LEARNERS = {
    "sparse": SPARSE,
    "growing": GROWING,
    "forgetting": replace(GROWING, forgetting=0.1),
    "exact": ExactLearner(SquaredExponential(), scattered_ensemble(1).models[0].theta, 0.5, max_samples=30),
}


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one output", "two outputs"])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_sketch_is_an_update_without_optimising(learner, outputs):
    """How far it moves, what it says of the rows, and how likely they were."""
    X, y = travelling(2 * BATCH)
    if outputs:
        y = np.stack([y, np.cos(y)], axis=1)
    model = learner.start(X[:BATCH], y[:BATCH], np.random.default_rng(SEED))
    as_it_is = learner if isinstance(learner, ExactLearner) else replace(learner, max_iter=0)
    sketch = learner.closed_form_update(model, X[BATCH:], y[BATCH:], np.random.default_rng(SEED))
    updated = as_it_is.update(model, X[BATCH:], y[BATCH:], np.random.default_rng(SEED))
    moved = marginal_squared_wasserstein(model.predict(model.inputs), updated.predict(model.inputs))
    # one that forgets moves from what it still knows, which is about the same
    assert sketch.moved == pytest.approx(moved, rel=1e-2 if learner is LEARNERS["forgetting"] else 1e-6)
    assert sketch.surprise == pytest.approx(-updated.log_evidence, rel=1e-9)
    for part, expected in zip(sketch.at_rows, updated.predict(X[BATCH:]), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_an_update_that_begins_with_its_sketch_is_the_same(learner):
    """But for what was computed before."""
    X, y = travelling(2 * BATCH)
    model = learner.start(X[:BATCH], y[:BATCH], np.random.default_rng(SEED))
    rows = X[BATCH:], y[BATCH:]
    sketch = learner.closed_form_update(model, *rows, np.random.default_rng(SEED))
    begun = learner.update(model, *rows, np.random.default_rng(SEED), sketch=sketch)
    unbegun = learner.update(model, *rows, np.random.default_rng(SEED))
    assert_same_models([uncounted(begun)], [uncounted(unbegun)])


def uncounted(model):
    """A model that does not tell how often the bound was computed."""
    return model if isinstance(model, ExactModel) else replace(model, n_evaluations=0)


# Quick and thorough


@every_rule
def test_the_quick_way_decides_as_the_thorough_one_most_of_the_time(name):
    """Measured: in all of 15 steps each; of longer streams and other thresholds, in 44 of 47 at the least."""
    steps = tried_both_ways(name)
    is_same = [quick.changes == thorough.changes for _, thorough, quick in steps]
    assert {thorough.decision for _, thorough, _ in steps} == {"new", "update"}
    assert len(steps) >= 12
    assert np.mean(is_same) >= 0.85


@every_rule
def test_the_quick_way_asks_a_part_of_the_candidates(name):
    """Measured: a third of them. What these tell is the same."""
    n_asked = np.zeros(2)
    for trial, thorough, quick in tried_both_ways(name):
        nearest = trial.closest[: trial.n_candidates] if name == "auto" else trial.nearest
        assert set(thorough.candidates) == set(nearest)
        assert set(quick.candidates) <= set(nearest)
        assert quick.candidates
        assert quick.evidence_new == thorough.evidence_new
        for told in ("evidence", "w_old", "w_new"):
            expected = dict(zip(thorough.candidates, getattr(thorough, told), strict=True))
            for number, value in zip(quick.candidates, getattr(quick, told), strict=True):
                assert value == expected[number]
        n_asked += len(thorough.candidates), len(quick.candidates)
    assert n_asked[1] < 0.6 * n_asked[0]


@every_rule
def test_the_quick_way_computes_the_bound_less_often(name):
    """Measured: 69, 66 and 52 % as often."""
    steps = tried_both_ways(name)
    n_quick, n_thorough = (sum(each[way].n_evaluations for each in steps) for way in (2, 1))
    assert 0 < n_quick < 0.8 * n_thorough


# Sketches that fail


@dataclass(frozen=True)
class FailingSketches(SparseLearner):
    """Of models whose centre is on one side; either as an error, or with numbers that are none.

    error : None for such numbers.
    """

    error: type[Exception] | None = NotFactorizableError
    beyond: float = -np.inf

    def sketch(self, model, X, y, rng):
        if model.centre[0] <= self.beyond:
            return super().closed_form_update(model, X, y, rng)
        if self.error is None:
            return super().closed_form_update(model, X, y, rng)._replace(moved=np.nan, surprise=np.nan)
        raise self.error("no")


every_failure = pytest.mark.parametrize("error", [ArithmeticError, NotFactorizableError, NotFiniteError, None], ids=str)
every_rule_that_tries = pytest.mark.parametrize(
    "rule", [Wasserstein(np.inf), Evidence(), Worthwhile()], ids=lambda rule: type(rule).__name__
)


@cache
def in_a_row():
    """An ensemble of four models along a line, and rows that they have not seen, everywhere in the middle."""
    X, y = travelling(5 * BATCH)
    is_new = np.arange(len(y)) % 5 == 2
    ensemble = Ensemble.of([], 2)
    for rows in np.split(np.flatnonzero(~is_new), 4):
        ensemble = ensemble.with_model(SPARSE.start(X[rows], y[rows], np.random.default_rng(SEED)))
    return ensemble, X[is_new], y[is_new]


def quick_step(learner, rule):
    settings = {"learner": learner, "rule": rule, "n_candidates": 4, "seed": SEED, "number": 9}
    return step(*in_a_row(), is_thorough=False, **settings)


@every_failure
@every_rule_that_tries
def test_a_candidate_whose_sketch_fails_is_as_if_it_were_not_there(rule, error):
    """The others are asked, and no row is lost."""
    ensemble, X, _ = in_a_row()
    fails = {number for number, model in enumerate(ensemble.models) if model.centre[0] > 5.0}
    assert len(fails) == 2
    after, record = quick_step(FailingSketches(SquaredExponential(), 10, 5, error=error, beyond=5.0), rule)
    assert record.candidates
    assert not set(record.candidates) & fails
    (change,) = record.changes
    assert change.model not in fails
    assert sum(model.n_seen for model in after.models) == sum(model.n_seen for model in ensemble.models) + len(X)


@every_failure
@every_rule_that_tries
def test_if_all_sketches_fail_there_is_a_new_model(rule, error):
    ensemble, X, _ = in_a_row()
    after, record = quick_step(FailingSketches(SquaredExponential(), 10, 5, error=error), rule)
    assert record.candidates == ()
    assert record.decision == "new"
    assert len(after) == len(ensemble) + 1
    assert after.models[-1].n_seen == len(X)
    for number, model in enumerate(ensemble.models):
        assert after.models[number] is model


@dataclass(frozen=True)
class RefusingLearner(SparseLearner):
    """Sketches, and cannot update."""

    def update(self, model, X, y, rng, neighbours=(), sketch=None):
        raise NotFactorizableError("no")


@every_rule_that_tries
def test_so_there_is_if_the_updates_of_all_that_could_win_fail(rule):
    _, X, _ = in_a_row()
    after, record = quick_step(RefusingLearner(SquaredExponential(), 10, 5), rule)
    assert record.decision == "new"
    assert record.dropped == record.candidates != ()
    assert after.models[-1].n_seen == len(X)


# How often the bound was computed


@pytest.fixture
def counted(monkeypatch):
    """A list that gets an item for every fit that is made in this process."""
    made = []

    class CountedFit(bound.Fit):
        def __init__(self, *arguments):
            made.append(None)
            super().__init__(*arguments)

    monkeypatch.setattr(bound, "Fit", CountedFit)
    return made


@pytest.mark.parametrize("is_thorough", [True, False], ids=["thorough", "quick"])
@pytest.mark.parametrize("name", [*RULES, "distance"])
def test_a_record_counts_how_often_the_bound_was_computed(name, is_thorough, counted):
    """For a new model, for all updates and for all sketches."""
    rule, learner = RULES.get(name) or (KernelDistance(0.2), SPARSE)
    ensemble = Ensemble.of([], 2)
    for number, (X, y) in enumerate(two_worlds(0)[:7]):
        counted.clear()
        settings = {"n_candidates": 3, "seed": SEED, "number": number, "is_thorough": is_thorough}
        ensemble, record = absorb(ensemble, X, y, learner=learner, rule=rule, **settings)
        assert record.n_evaluations == len(counted) > 0
    assert len(ensemble) > 1


@pytest.mark.parametrize("regressor", ONLINE, ids=lambda regressor: regressor.__name__)
def test_a_history_tells_how_often_the_bound_was_computed_unless_there_is_none(regressor, counted):
    history = small(regressor).fit(*travelling()).history_
    assert sum(record.n_evaluations for record in history) == len(counted)
    for record in history:
        assert (record.n_evaluations == 0) == (regressor is LocalGPRegressor)


# Work that is shared


@pytest.fixture
def two_processes(tmp_path_factory, monkeypatch):
    """This one, and another that stands ready: it may take its time to start, less if it finds nothing to import."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "wgpr").mkdir()
    (folder / "wgpr" / "__init__.py").write_text(f"__path__ = {[str(Path(wgpr.__file__).parent)]!r}\n")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    patience = time.monotonic() + 60
    while len(set(Workers(2).run([os.getpid] * 2))) < 2:
        assert time.monotonic() < patience, "it does not start"
        time.sleep(0.02)


def timeless(history):
    return [replace(record, seconds=0.0) for record in history]


def assert_the_same_to_the_bit(shared, alone):
    """Records, models, answers; and how the arrays are stored, which what is computed with them depends on."""
    assert timeless(shared.history_) == timeless(alone.history_)
    assert_same_learning(shared, alone)
    arrays, expected = (numbers_in(tuple(estimator.models_)) for estimator in (shared, alone))
    for path, array in arrays.items():
        if isinstance(array, np.ndarray):
            assert array.flags.f_contiguous == expected[path].flags.f_contiguous, path
            assert array.flags.writeable == expected[path].flags.writeable, path


X, y = travelling(90)
TWO = np.stack([y, np.cos(X[:, 0]) + 0.1 * y], axis=1)
AT_ONCE, IN_PIECES = [slice(None)], [slice(0, 35), slice(35, 36), slice(36, 90)]
LEARNED = {
    "published": (published, {}, y, AT_ONCE),
    "published, quick": (published, {"thorough": False}, y, AT_ONCE),
    "evidence, quick": (published, {"splitting": "evidence", "thorough": False}, y, AT_ONCE),
    "default": (WGPRegressor, {}, y, AT_ONCE),
    "default, thorough": (WGPRegressor, {"thorough": True}, y, AT_ONCE),
    "two outputs": (published, {"thorough": False}, TWO, AT_ONCE),
    "default, two outputs": (WGPRegressor, {}, TWO, AT_ONCE),
    "in pieces": (published, {}, y, IN_PIECES),
    "default, in pieces": (WGPRegressor, {}, y, IN_PIECES),
}


@pytest.mark.parametrize(("regressor", "settings", "targets", "pieces"), LEARNED.values(), ids=LEARNED)
def test_two_processes_learn_the_same_as_one_to_the_bit(regressor, settings, targets, pieces, two_processes, counted):
    learned, n_fits = [], []
    for n_jobs in (1, 2):
        counted.clear()
        estimator = small(regressor, n_jobs=n_jobs, **settings)
        for rows in pieces:
            estimator.partial_fit(X[rows], targets[rows])
        learned.append(estimator.flush())
        n_fits.append(len(counted))
    assert_the_same_to_the_bit(*learned)
    assert n_fits[1] < 0.9 * n_fits[0]  # the others were made elsewhere


def test_as_published_two_processes_learn_the_same_as_one(two_processes):
    """With the numbers of the paper, and matrices of their size."""
    X, y = travelling(300)
    for thorough in (True, False):
        shared, alone = (
            WGPRegressor.published(threshold=3.0, n_jobs=n_jobs, random_state=0, thorough=thorough).fit(X, y)
            for n_jobs in (2, 1)
        )
        assert_the_same_to_the_bit(shared, alone)


def test_by_default_two_processes_learn_the_same_as_one(two_processes):
    X, y = travelling(300)
    shared, alone = (WGPRegressor(n_jobs=n_jobs, random_state=0).fit(X, y) for n_jobs in (2, 1))
    assert_the_same_to_the_bit(shared, alone)
    for answer, expected in zip(shared.predict(queries(), True), alone.predict(queries(), True), strict=True):
        np.testing.assert_array_equal(answer, expected)


def test_a_kernel_that_others_cannot_import_is_told_of_and_learned_with(two_processes, monkeypatch):
    """As one that was written in a notebook."""
    notebook = types.ModuleType("notebook_of_a_user")
    kernel = type("Kernel", (SquaredExponential,), {"__module__": notebook.__name__})
    notebook.Kernel = kernel
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    alone = small(published, kernel=kernel(), n_jobs=1).fit(X, y)
    with pytest.warns(RuntimeWarning, match="n_jobs"):
        shared = small(published, kernel=kernel(), n_jobs=2).fit(X, y)
    assert_the_same_to_the_bit(shared, alone)


# Settings


@pytest.mark.parametrize("n_jobs", [0, "two", True, False, 1.5, 2.0, [2]], ids=repr)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_number_of_jobs_that_makes_no_sense_is_refused(method, n_jobs):
    with pytest.raises((ValueError, TypeError), match="n_jobs"):
        getattr(small(published, n_jobs=n_jobs), method)(X, y)


@pytest.mark.parametrize("n_jobs", [None, 1, np.int64(1), -1000], ids=repr)
def test_others_are_understood(n_jobs):
    assert small(published, n_jobs=n_jobs).fit(X[:40], y[:40]).n_models_ > 0


@pytest.mark.parametrize("thorough", ["yes", None, 1, 0.0], ids=repr)
def test_a_word_for_thorough_is_refused(thorough):
    with pytest.raises((ValueError, TypeError), match="thorough"):
        small(published, thorough=thorough).fit(X, y)
