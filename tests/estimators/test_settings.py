"""Wrong settings, combinations without effect and wrong rules are refused by name."""

import re

import numpy as np
import pytest

from streams import assert_same_learning, published, queries, small, travelling
from wgpr import Barycenter, BestFew, Evidence, KernelDistance, RobustBCM, Wasserstein, Weighted, WGPRegressor
from wgpr.checks import require_count, require_number
from wgpr.ensemble.evaluation import ALL_ROWS, Assignment
from wgpr.rules.prediction import Mixture

X, y = travelling()


@pytest.mark.parametrize(
    ("value", "error"), [("5", TypeError), (None, TypeError), (True, TypeError), (-1, ValueError), (np.nan, ValueError)]
)
@pytest.mark.parametrize("require", [lambda value: require_number("it", value, least=0.0), Wasserstein])
def test_a_number_out_of_range_is_named(require, value, error):
    with pytest.raises(error, match=r"(it|threshold) must be a number of at least 0, got"):
        require(value)


@pytest.mark.parametrize("value", [0, np.inf, np.float64(2.5), np.int64(3)])
def test_numbers_in_range_pass(value):
    require_number("it", value, least=0.0)


@pytest.mark.parametrize(("value", "error"), [(2.5, TypeError), ("2", TypeError), (True, TypeError), (0, ValueError)])
@pytest.mark.parametrize("require", [lambda value: require_count("n", value), Weighted, BestFew, Barycenter, RobustBCM])
def test_a_count_out_of_range_is_named(require, value, error):
    with pytest.raises(error, match=r"(n|n_models) must be a whole number of at least 1, got"):
        require(value)


@pytest.mark.parametrize("w_gen", [-0.1, 1.1, np.nan])
def test_w_gen_is_from_0_to_1(w_gen):
    with pytest.raises(ValueError, match="w_gen must be a number from 0 to 1"):
        KernelDistance(w_gen)


@pytest.mark.parametrize(
    "assignments",
    [[], [Assignment(slice(5), None)], [Assignment(ALL_ROWS, None), Assignment(np.array([3]), None)]],
    ids=["no rows", "some rows", "a row twice"],
)
def test_a_splitting_rule_has_to_assign_each_row_once(assignments):
    class Careless:
        def assign(self, evaluation):
            return assignments

    with pytest.raises(ValueError, match=r"the splitting rule assigned .* every row, once"):
        small(published, splitting=Careless()).fit(X, y)


@pytest.mark.parametrize(
    ("weights", "variance", "message"),
    [
        (lambda m: 2 * np.ones_like(m), lambda v: v[:, 0], "sum to 1"),
        (lambda m: np.full_like(m, np.nan), lambda v: v[:, 0], "sum to 1"),
        (lambda m: np.ones_like(m), lambda v: -1 - v[:, 0], "must not be negative"),
        (lambda m: np.ones(len(m)), lambda v: v[:, 0], "weights of shape"),
        (lambda m: np.ones_like(m), lambda v: v, "variance of shape"),
    ],
)
def test_the_weights_and_variances_of_a_prediction_rule_are_checked(weights, variance, message):
    class Careless:
        def combine(self, query):
            predictions = query.ask(query.nearest(1))
            return Mixture(predictions, weights(predictions.means), variance(predictions.variances))

    estimator = small(published, prediction=Careless()).fit(X, y)
    with pytest.raises(ValueError, match=message):
        estimator.predict(queries(), return_std=True)


def test_the_distance_of_a_record_is_what_the_threshold_is_compared_with():
    first, *others = small(published, threshold=1.0).fit(X, y).history_
    assert first.distance is None
    for record in others:
        assert record.distance == min(np.add(record.w_old, record.w_new))
        assert (record.distance <= 1.0) == (record.decision == "update")


# Settings without effect


@pytest.mark.parametrize("make", [WGPRegressor, WGPRegressor.published], ids=["default", "published"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"threshold": 3.0, "splitting": "evidence"}, ("threshold=3.0", "splitting='evidence'")),
        ({"threshold": 3.0, "splitting": "never"}, ("threshold=3.0", "splitting='never'")),
        ({"threshold": 3.0, "splitting": Evidence()}, ("threshold=3.0", "splitting=Evidence()")),
    ],
    ids=str,
)
def test_a_setting_without_effect_is_refused_and_both_settings_are_named(make, method, settings, named):
    estimator = make(**settings)
    with pytest.raises(ValueError, match="has no effect with") as error:
        getattr(estimator, method)(X, y)
    for setting in named:
        assert setting in str(error.value)
    assert not hasattr(estimator, "n_features_in_")


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("name", "value"),
    {
        "n_inducing": 10, "n_candidates": 1, "batch_size": 20, "prediction": "weighted", "learn_hyperparameters": False,
        "optimizer_iterations": 2,
    }.items(),
)  # fmt: skip
def test_a_setting_of_the_paper_is_refused_by_the_default(method, name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r} has no effect with the default"):
        getattr(WGPRegressor(**{name: value}), method)(X, y)


def test_forgetting_is_refused_by_the_method_of_the_paper():
    with pytest.raises(ValueError, match=r"forgetting=0.1 has no effect with the paper's method"):
        WGPRegressor.published(forgetting=0.1).fit(X, y)


@pytest.mark.parametrize(
    "settings",
    [
        {"forgetting": 0.1, "max_models": 3, "kernel": "se", "calibrated": False},
        {"n_inducing": 50, "batch_size": np.int64(100), "prediction": "nearest"},
        {"threshold": 3.0, "n_inducing": 10, "batch_size": 20, "optimizer_iterations": 2},
        {"splitting": "evidence", "threshold": "auto", "batch_size": 20, "optimizer_iterations": 2},
    ],
    ids=str,
)
def test_settings_with_an_effect_or_their_default_are_accepted(settings):
    assert WGPRegressor(**settings).fit(X, y).n_models_ >= 1


@pytest.mark.parametrize("splitting", ["evidence", "never", "always", Evidence()], ids=str)
def test_the_published_method_takes_any_splitting_rule(splitting):
    estimator = WGPRegressor.published(splitting=splitting, n_inducing=10, optimizer_iterations=2)
    assert estimator.threshold == "auto"
    assert estimator.fit(X, y).n_models_ >= 1
    assert WGPRegressor.published().threshold == 30.0
    assert WGPRegressor.published(splitting="wasserstein").threshold == 30.0


# Randomness


def test_the_default_method_makes_no_random_choice():
    """Other methods do: `test_another_seed_gives_another_ensemble`."""
    one, *others = (small(WGPRegressor, random_state=seed).fit(X, y) for seed in (0, 1, None))
    for other in others:
        assert_same_learning(other, one)


def test_the_docstring_says_when_the_seed_has_an_effect():
    (about,) = re.findall(r"^    random_state : (.*?)\n\n", WGPRegressor.__doc__, flags=re.DOTALL | re.MULTILINE)
    assert "The default makes no random choice" in " ".join(about.split())
