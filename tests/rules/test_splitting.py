"""Splitting rules: against naive transcriptions, and at the ends of their ranges."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import answer_of, assert_same_learning, published, scattered_ensemble, small, travelling
from wgpr import (
    Always,
    Evidence,
    Hyperparameters,
    KernelDistance,
    LocalGPRegressor,
    Never,
    SolarGPRegressor,
    Wasserstein,
)
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import ALL_ROWS, Assignment, Distances

NEW = [(ALL_ROWS, None)]


def chosen(model):
    return [(ALL_ROWS, model)]


# Rules for a batch, with given distances and evidences


def evaluation_with(distances=None, evidence=None, evidence_new=0.0):
    """An evaluation whose candidates have these distances and evidences, nearest first."""
    candidates = list(distances or evidence or {})
    return SimpleNamespace(
        candidates=candidates,
        nearest=candidates,
        distances=lambda number: Distances(*distances[number]),
        updated=lambda number: SimpleNamespace(log_evidence=evidence[number]),
        new_model=SimpleNamespace(log_evidence=evidence_new),
    )


@pytest.mark.parametrize(
    ("threshold", "expected"), [(6.0, chosen(4)), (5.0, chosen(4)), (4.999, NEW), (0.0, NEW), (np.inf, chosen(4))]
)
def test_wasserstein_takes_the_candidate_that_moves_least_unless_that_is_too_far(threshold, expected):
    evaluation = evaluation_with(distances={7: (1.0, 9.0), 4: (3.0, 2.0), 2: (0.0, 5.5)})
    assert list(Wasserstein(threshold).assign(evaluation)) == expected


@pytest.mark.parametrize(("evidence_new", "expected"), [(-3.0, chosen(4)), (-1.0, chosen(4)), (-0.999, NEW)])
def test_evidence_takes_the_candidate_that_explains_best_unless_a_new_one_does(evidence_new, expected):
    evaluation = evaluation_with(evidence={7: -2.0, 4: -1.0, 2: -9.0}, evidence_new=evidence_new)
    assert list(Evidence().assign(evaluation)) == expected


def test_never_takes_the_nearest_and_always_takes_none():
    evaluation = evaluation_with(distances={7: (1.0, 9.0), 4: (0.0, 0.0)})
    assert list(Never().assign(evaluation)) == chosen(7)
    assert list(Always().assign(evaluation)) == NEW


@pytest.mark.parametrize("rule", [Wasserstein(np.inf), Evidence(), Never(), Always()], ids=repr)
def test_without_candidates_there_is_a_new_model(rule):
    assert list(rule.assign(evaluation_with())) == NEW


def test_evidence_decides_in_an_estimator():
    estimator = small(published, splitting="evidence").fit(*travelling(120))
    assert {record.decision for record in estimator.history_[1:]} == {"new", "update"}
    for record in estimator.history_[1:]:
        best = max(record.evidence)
        assert record.decision == ("new" if record.evidence_new > best else "update")
        if record.decision == "update":
            assert record.changes[0].model == record.candidates[record.evidence.index(best)]


# Rows by their distance


def routed(rule, X, ensemble=None, shared=None):
    """For each row the number of its model, as the rule assigns it, counting new models on from the ensemble's."""
    ensemble = Ensemble.of([], X.shape[1]) if ensemble is None else ensemble
    theta = None if shared is None else Hyperparameters(1.0, np.asarray(shared), 0.1)
    evaluation = SimpleNamespace(ensemble=ensemble, learner=SimpleNamespace(theta=theta), X=X, y=np.zeros(len(X)))
    labels, n_new = np.full(len(X), -1), 0
    for rows, model in rule.assign(evaluation):
        assert (labels[rows] == -1).all(), "a row went to two models"
        labels[rows] = len(ensemble) + n_new if model is None else model
        n_new += model is None
    assert (labels >= 0).all(), "a row went to no model"
    return labels.tolist()


def literal_routing(w_gen, X, ensemble=None, shared=None):
    """Nguyen-Tuong et al. 2009, algorithm 1, row by row; a new model has the shared widths, or the closest one's."""
    members = [[model.centre] * model.n_seen for model in ensemble.models] if ensemble is not None else []
    widths = [model.theta.lengthscales for model in ensemble.models] if ensemble is not None else []
    labels = []
    for x in X:
        squares = [
            np.sum(((x - np.mean(rows, axis=0)) / width) ** 2) for rows, width in zip(members, widths, strict=True)
        ]
        if squares and np.exp(-0.5 * min(squares)) > w_gen:
            label = int(np.argmin(squares))
            members[label].append(x)
        else:
            label = len(members)
            members.append([x])
            widths.append(shared if shared is not None else widths[int(np.argmin(squares))])
        labels.append(label)
    return labels


rows_and_w_gen = given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(1, 40),
    n_features=st.integers(1, 4),
    w_gen=st.floats(1e-3, 0.999),
)


@rows_and_w_gen
def test_routing_from_nothing_is_that_of_lgpr(seed, n_rows, n_features, w_gen):
    rng = np.random.default_rng(seed)
    X, shared = rng.uniform(0.0, 10.0, (n_rows, n_features)), rng.uniform(0.5, 5.0, n_features)
    assert routed(KernelDistance(w_gen), X, shared=shared) == literal_routing(w_gen, X, shared=shared)


@rows_and_w_gen
def test_routing_to_models_with_widths_of_their_own_is_that_of_solar(seed, n_rows, n_features, w_gen):
    X = np.random.default_rng(seed).uniform(0.0, 10.0, (n_rows, n_features))
    ensemble = scattered_ensemble(4, n_features, seed=seed)
    assert routed(KernelDistance(w_gen), X, ensemble) == literal_routing(w_gen, X, ensemble)


def test_a_centre_moves_by_the_number_of_rows_that_its_model_has_seen():
    """A centre of many rows hardly moves: the second row is too far for it, though near the first."""
    X = np.array([[0.9], [1.8]])
    ensemble = scattered_ensemble(1, 1)
    model = ensemble.models[0]
    X = model.centre + X * model.theta.lengthscales
    assert routed(KernelDistance(0.5), X, ensemble) == [0, 1] == literal_routing(0.5, X, ensemble)


def test_a_first_batch_without_widths_is_one_model():
    X = np.array([[0.0], [1e6], [2e6]])
    assert routed(KernelDistance(0.5), X) == [0, 0, 0]


@pytest.mark.parametrize("distance", [1.0, 10.0, 100.0, 1e6], ids="{:g}".format)
def test_w_gen_0_is_one_model(distance):
    """However far a row is: `w` is never 0, even where `exp` has no number for it."""
    X = np.array([[0.0], [0.1], [distance], [-distance]])
    assert routed(KernelDistance(0.0), X, shared=[1.0]) == [0, 0, 0, 0]


def test_w_gen_1_is_a_model_per_row():
    X = np.array([[0.0], [0.1], [0.0], [0.0]])
    assert routed(KernelDistance(1.0), X, shared=[1.0]) == [0, 1, 2, 3]


def test_routing_does_not_depend_on_where_the_origin_is():
    X = np.random.default_rng(0).uniform(0.0, 10.0, (50, 2))
    expected = routed(KernelDistance(0.4), X, shared=[2.0, 3.0])
    assert len(set(expected)) > 3
    assert routed(KernelDistance(0.4), X + 1e8, shared=[2.0, 3.0]) == expected


def test_a_model_far_away_does_not_disturb_the_routing():
    X = np.random.default_rng(0).uniform(0.0, 10.0, (50, 2))
    expected = [0, *(1 + np.array(routed(KernelDistance(0.4), X, shared=[2.0, 3.0])))]
    far = np.concatenate([[[1e9, 1e9]], X])
    assert routed(KernelDistance(0.4), far, shared=[2.0, 3.0]) == expected


@pytest.mark.parametrize("regressor", [SolarGPRegressor, LocalGPRegressor])
@pytest.mark.parametrize(("w_gen", "n_models"), [(0.0, 1), (1.0, 50)])
def test_w_gen_in_an_estimator(regressor, w_gen, n_models):
    X, y = travelling(50)
    theta = Hyperparameters(1.0, np.ones(2), 0.1)
    shared = {"hyperparameters": theta} if regressor is LocalGPRegressor else {}
    estimator = small(regressor, w_gen=w_gen, **shared).fit(X, y)
    first_batch_is_one = regressor is SolarGPRegressor and n_models > 1
    assert estimator.n_models_ == (n_models - 19 if first_batch_is_one else n_models)


def test_local_models_are_where_the_transcription_puts_them():
    X, y = travelling(100)
    theta = Hyperparameters(1.0, np.array([0.5, 2.0]), 0.1)
    estimator = small(LocalGPRegressor, hyperparameters=theta, max_samples=None, w_gen=0.3).fit(X, y)
    labels = np.array(literal_routing(0.3, X, shared=theta.lengthscales))
    assert estimator.n_models_ == labels.max() + 1 > 3
    for number, model in enumerate(estimator.models_):
        rows = estimator.units_.inputs(X[labels == number])
        np.testing.assert_array_equal(model.inputs, rows)
        np.testing.assert_allclose(model.centre, rows.mean(axis=0), rtol=1e-12)


# Rules of users


class UpperAndLower:
    """A plain class with the one method that a rule needs."""

    def assign(self, evaluation):
        is_upper, is_first = evaluation.y > np.median(evaluation.y), not len(evaluation.ensemble)
        return [
            Assignment(np.flatnonzero(is_upper), None if is_first else 0),
            Assignment(np.flatnonzero(~is_upper), None if is_first else 1),
        ]


def test_a_rule_of_a_user():
    X, y = travelling(120)
    estimator = small(published, splitting=UpperAndLower()).fit(X, y)
    assert [model.n_seen for model in estimator.models_] == [60, 60]
    assert [record.decision for record in estimator.history_] == ["new", *["update"] * 5]
    upper, lower = (answer_of(model, estimator.units_, X)[0] for model in estimator.models_)
    assert upper.mean() > y.mean() > lower.mean()


def test_a_rule_of_a_user_may_use_ours():
    class AtMostTwo:
        """The rule Wasserstein with at most two models."""

        def assign(self, evaluation):
            return Never().assign(evaluation) if len(evaluation.ensemble) == 2 else Wasserstein(1.0).assign(evaluation)

    X, y = travelling(120)
    assert small(published).fit(X, y).n_models_ > 2
    assert small(published, splitting=AtMostTwo()).fit(X, y).n_models_ == 2


def test_solar_is_sparse_models_with_this_rule():
    X, y = travelling(120)
    expected = small(SolarGPRegressor).fit(X, y)
    estimator = small(published, splitting=KernelDistance(0.2), prediction="best_few").fit(X, y)
    assert_same_learning(estimator, expected)
