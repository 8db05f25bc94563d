"""The rule Worthwhile: one model of a stationary stream, two of two regimes, more where there is no room."""

import numpy as np
import pytest

from reference import hyperparameters, learned, unlearned
from streams import small
from wgpr import Regional, SquaredExponential, WGPRegressor
from wgpr.datasets import two_regimes
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation
from wgpr.gp.exact import ExactLearner
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.sparse import AdaptiveSparseLearner
from wgpr.rules.splitting import Worthwhile

KERNEL = SquaredExponential()


def stationary(n, d, seed, noise=0.2):
    """A draw of a Gaussian process, in random order, with its noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 6.0, (n, d))
    K = KERNEL(Hyperparameters(1.0, np.full(d, 1.5), noise), X, X) + 1e-8 * np.eye(n)
    return X, np.linalg.cholesky(K) @ rng.normal(size=n) + noise * rng.normal(size=n)


def grown(X, y, **options):
    settings = {
        "batch_size": 50,
        "batching": Regional(50, 100),
        "optimizer_iterations": 20,
        "random_state": 0,
    } | options
    return WGPRegressor(**settings).fit(X, y)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("d", [1, 2])
def test_a_stationary_stream_is_one_model(d, seed):
    assert grown(*stationary(300, d, seed)).n_models_ == 1


@pytest.mark.parametrize("d", [1, 2])
def test_a_stationary_stream_is_one_model_if_models_forget(d):
    """Updates and uncompressed evidence are both those of the model that has forgotten."""
    assert grown(*stationary(300 if d == 2 else 600, d, 1), forgetting=0.9).n_models_ == 1


def test_two_regimes_are_two_models():
    """More lines in `tests/estimators/test_accuracy.py`."""
    X, y, _ = two_regimes(random_state=0)
    assert WGPRegressor(random_state=0).fit(X, y).n_models_ == 2


def test_a_field_with_too_much_detail_for_one_model_is_several():
    X, y = stationary(300, 2, 0, noise=0.05)
    assert grown(X, y, max_inducing=8).n_models_ > 1
    assert grown(X, y, max_inducing=100).n_models_ == 1


def test_with_an_infinite_price_there_are_fewer_models():
    X, y = stationary(300, 2, 0, noise=0.05)
    free, dear = (grown(X, y, max_inducing=8, splitting=Worthwhile(price)).n_models_ for price in (0.0, np.inf))
    assert free > dear


def test_auto_is_the_rule():
    X, y = stationary(150, 1, 0)
    named, given = (small(WGPRegressor, splitting=rule).fit(X, y) for rule in ("wasserstein", Worthwhile()))
    assert [record.changes for record in named.history_] == [record.changes for record in given.history_]


@pytest.mark.parametrize("price", [-0.1, np.nan, "1", None])
def test_a_price_that_makes_no_sense_is_refused(price):
    with pytest.raises((ValueError, TypeError), match="price"):
        Worthwhile(price)


# The decision


def evaluation_of(model, X, y, max_inducing=200):
    learner = AdaptiveSparseLearner(KERNEL, max_inducing, max_iter=20)
    ensemble = Ensemble.of([model], X.shape[1])
    return BatchEvaluation(ensemble, learner, X, y, n_candidates=2, seed=0, number=1)


def test_the_first_batch_is_a_new_model():
    X, y = stationary(50, 1, 0)
    evaluation = BatchEvaluation(
        Ensemble.of([], 1), AdaptiveSparseLearner(KERNEL), X, y, n_candidates=2, seed=0, number=0
    )
    ((_, number),) = Worthwhile().assign(evaluation)
    assert number is None


def test_another_regime_is_a_new_model_if_the_evidence_exceeds_the_penalty():
    X, y = stationary(120, 1, 0)
    theta = hyperparameters(KERNEL, 1)
    model = learned(unlearned(KERNEL, theta), X[:60], y[:60], theta, X[:60:3])
    of_the_same, of_another = (
        evaluation_of(model, X[60:], targets) for targets in (y[60:], 8.0 + np.sin(40.0 * X[60:, 0]))
    )
    assert Worthwhile().assign(of_the_same)[0].model == 0
    assert Worthwhile().assign(of_another)[0].model is None
    price = 0.5 * 3 * np.log1p(60)  # amplitude, length-scale and noise
    assert of_another.new_model.log_evidence - price > of_another.updated(0).log_evidence
    assert of_the_same.new_model.log_evidence - price < of_the_same.updated(0).log_evidence


def test_too_few_pseudo_inputs_lose_evidence_and_lead_to_a_new_model():
    """With enough of them an update loses hardly any evidence."""
    X, y = stationary(120, 2, 0, noise=0.05)
    learner = AdaptiveSparseLearner(KERNEL, 200, max_iter=20)
    model = learner.start(X[:60], y[:60], np.random.default_rng(0))
    roomy, cramped = (evaluation_of(model, X[60:], y[60:], limit) for limit in (200, 5))
    lost = [
        (evaluation.uncompressed_evidence(0) - evaluation.updated(0).log_evidence) / 60
        for evaluation in (roomy, cramped)
    ]
    assert lost[0] < 0.05 < lost[1]
    assert Worthwhile().assign(cramped)[0].model is None
    assert Worthwhile(price=2 * lost[1]).assign(roomy)[0].model == 0


def test_at_the_limit_of_models_lack_of_room_is_no_reason_for_a_new_one():
    X = np.linspace(0.0, 20.0, 400)[:, None]
    y = np.sin(3.0 * X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(400)
    learner, ensemble = AdaptiveSparseLearner(SquaredExponential(), max_inducing=12, max_iter=10), Ensemble.of([], 1)
    decisions = []
    for number, batch in enumerate(np.split(np.arange(400), 10)):
        evaluations = [
            BatchEvaluation(
                ensemble, learner, X[batch], y[batch], n_candidates=1, seed=0, number=number, is_full=is_full
            )
            for is_full in (False, True)
        ]
        free, full = (Worthwhile().assign(evaluation) for evaluation in evaluations)
        decisions.append((free[0].model, full[0].model))
        ensemble, _ = evaluations[1].apply(full)
    assert any(free is None and full is not None for free, full in decisions)  # want of room was the only reason
    assert all(free is None or full == free for free, full in decisions)


def test_exact_models_are_compared_with_a_new_one():
    """An exact update is not compressed, so that only another regime is a reason for a new model."""
    X, y = stationary(120, 1, 0)
    learner = ExactLearner(KERNEL, hyperparameters(KERNEL, 1), 0.0)
    model = learner.start(X[:60], y[:60], np.random.default_rng(0))
    of_the_same, of_another = (
        BatchEvaluation(Ensemble.of([model], 1), learner, X[60:], targets, n_candidates=2, seed=0, number=1)
        for targets in (y[60:], 30.0 + y[60:])
    )
    assert of_the_same.uncompressed_evidence(0) == of_the_same.updated(0).log_evidence
    assert Worthwhile().assign(of_the_same)[0].model == 0
    assert Worthwhile().assign(of_another)[0].model is None
