"""What holds for every estimator: scikit-learn's contract, river's, and our own."""

import copy
import gc
import itertools
import pickle
import tracemalloc
from copy import deepcopy
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river.compat import convert_sklearn_to_river
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streams import (
    ALL,
    BATCH,
    IN_BATCHES,
    ONLINE,
    answer_of,
    assert_same_learning,
    assert_same_models,
    every_estimator,
    every_estimator_in_batches,
    every_online_estimator,
    fitted,
    published,
    queries,
    small,
    streamed,
    travelling,
)
from threads import at_once
from wgpr import (
    Barycenter,
    Hyperparameters,
    LocalGPRegressor,
    Nearest,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)

X, y = travelling()
QUERIES = queries()
NAMES = ["east", "north"]


CHECKS_OF_WEIGHTS = [
    "check_all_zero_sample_weights_error",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_list",
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weight_equivalence_on_dense_data",
]


def expected_failures(estimator):
    if isinstance(estimator, WGPRegressor):
        if estimator.threshold != "auto":
            return dict.fromkeys(CHECKS_OF_WEIGHTS, "the paper's method has no weights and refuses them")
        reason = "rows are learned in their order, each after what was learned of those before"
        return {"check_sample_weight_equivalence_on_dense_data": reason}
    return {}


@parametrize_with_checks([regressor() for regressor in ALL], expected_failed_checks=expected_failures)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)


# Copies


@every_estimator
def test_pickle_predicts_the_same(regressor):
    estimator = small(regressor).fit(X, y)
    assert_same_learning(pickle.loads(pickle.dumps(estimator)), estimator)


@every_online_estimator
def test_pickle_learns_on_the_same(regressor):
    estimator = streamed(regressor, 50)
    restored = pickle.loads(pickle.dumps(estimator))
    assert_same_learning(restored.partial_fit(X[50:], y[50:]), estimator.partial_fit(X[50:], y[50:]))


@every_online_estimator
def test_a_copy_learns_alone(regressor):
    estimator = streamed(regressor, 50)
    before = pickle.dumps(estimator)
    copy.deepcopy(estimator).partial_fit(X[50:], y[50:])
    assert pickle.dumps(estimator) == before


@every_estimator
def test_a_clone_has_the_settings_and_nothing_else(regressor):
    estimator = fitted(regressor)
    cloned = clone(estimator)
    assert cloned.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        cloned.predict(QUERIES)
    assert_same_learning(cloned.fit(X, y), estimator)


def test_hyperparameters_survive_clone_and_repr():
    theta = Hyperparameters(1.0, np.array([1.0, 2.0]), 0.1)
    estimator = LocalGPRegressor(hyperparameters=theta)
    assert clone(estimator).hyperparameters.lengthscales.tolist() == [1.0, 2.0]
    assert "Hyperparameters" in repr(estimator)


# Before fit


@every_estimator
@pytest.mark.parametrize("name", ["models_", "n_models_", "n_pending_", "history_"])
def test_attributes_before_fit_raise_not_fitted(regressor, name):
    with pytest.raises(NotFittedError):
        getattr(small(regressor), name)


@every_estimator
def test_methods_before_fit_raise_not_fitted(regressor):
    for method in ("predict", "model_index"):
        with pytest.raises(NotFittedError):
            getattr(small(regressor), method)(QUERIES)
    with pytest.raises(NotFittedError):
        small(regressor).flush()


# Frames


def frame_of(library, array, names):
    return library.DataFrame(dict(zip(names, array.T, strict=True)))


every_library = pytest.mark.parametrize("library", [pd, pl], ids=lambda library: library.__name__)


@every_estimator
@every_library
def test_frames_are_like_arrays(regressor, library):
    estimator = small(regressor).fit(frame_of(library, X, NAMES), library.Series(y))
    assert estimator.feature_names_in_.tolist() == NAMES
    expected = fitted(regressor)
    assert_same_models(estimator.models_, expected.models_)
    np.testing.assert_array_equal(estimator.predict(frame_of(library, QUERIES, NAMES)), expected.predict(QUERIES))


@every_estimator
@every_library
def test_columns_in_another_order_are_refused(regressor, library):
    estimator = small(regressor).fit(frame_of(library, X, NAMES), y)
    swapped = frame_of(library, X[:, ::-1], NAMES[::-1])
    with pytest.raises(ValueError, match="same order"):
        estimator.predict(swapped)
    if regressor in ONLINE:
        with pytest.raises(ValueError, match="same order"):
            estimator.partial_fit(swapped, y)


@every_online_estimator
@every_library
def test_streams_of_frames_are_like_streams_of_arrays(regressor, library):
    estimator, expected = small(regressor), small(regressor)
    for first in range(0, len(X), 37):
        rows = slice(first, first + 37)
        estimator.partial_fit(frame_of(library, X[rows], NAMES), library.Series(y[rows]))
        expected.partial_fit(X[rows], y[rows])
    assert_same_models(estimator.models_, expected.models_)
    assert estimator.n_pending_ == expected.n_pending_


@every_estimator
def test_memory_order_does_not_matter(regressor):
    expected = fitted(regressor)
    estimator = small(regressor).fit(np.asfortranarray(X), np.repeat(y, 2)[::2])
    assert_same_learning(estimator, expected)
    np.testing.assert_array_equal(estimator.predict(np.asfortranarray(QUERIES)), expected.predict(QUERIES))


# With other libraries


@every_estimator
def test_pipeline_is_scaling_and_then_fit(regressor):
    pipeline = make_pipeline(StandardScaler(), small(regressor)).fit(X, y)
    scaler = StandardScaler().fit(X)
    expected = small(regressor).fit(scaler.transform(X), y)
    answers = pipeline.predict(QUERIES, return_std=True)
    for answer, by_hand in zip(answers, expected.predict(scaler.transform(QUERIES), return_std=True), strict=True):
        np.testing.assert_array_equal(answer, by_hand)


@every_estimator
def test_grid_search_finds_the_better_setting(regressor):
    search = GridSearchCV(small(regressor), {"kernel": ["se", "matern32"]}, cv=2, error_score="raise").fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_score_ == scores.max()
    assert search.best_estimator_.kernel == search.best_params_["kernel"]
    assert_same_learning(search.best_estimator_, small(regressor, **search.best_params_).fit(X, y))


@pytest.mark.parametrize(
    ("regressor", "grid"),
    [
        (published, {"prediction": [Nearest(), Barycenter(2)]}),
        (LocalGPRegressor, {"hyperparameters": [Hyperparameters(1.0, np.full(2, size), 0.1) for size in (0.1, 1.0)]}),
    ],
    ids=["rules", "hyperparameters"],
)
def test_grid_search_over_objects(regressor, grid):
    search = GridSearchCV(small(regressor), grid, cv=3, error_score="raise").fit(X, y)
    (name, choices), best = *grid.items(), search.best_index_
    assert getattr(search.best_estimator_, name) is not None
    assert search.cv_results_["params"][best][name] is choices[best]


@every_online_estimator
def test_river_learns_row_by_row(regressor):
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.0, 3.0, (140, 2))
    targets = np.sin(rows[:, 0]) + rows[:, 1]
    model = convert_sklearn_to_river(small(regressor))
    errors = []
    for row, target in zip(rows, targets, strict=True):
        x = dict(zip(NAMES, row, strict=True))
        errors.append(model.predict_one(x) - target)
        model.learn_one(x, target)
    assert model.estimator.n_samples_seen_ == 140
    assert model.estimator.n_models_ <= 140 // BATCH
    assert np.std(errors[100:]) < 0.2 * targets.std()


@pytest.mark.parametrize("library", [pd], ids=["pandas"])
def test_river_learns_many_rows(library):
    model = convert_sklearn_to_river(small(published))
    model.learn_many(frame_of(library, X, NAMES), library.Series(y))
    answers = model.predict_many(frame_of(library, QUERIES, NAMES))
    np.testing.assert_array_equal(answers.to_numpy(), streamed(published).predict(QUERIES))


# Purity


def ask_everything(estimator):
    return [
        estimator.predict(QUERIES),
        *estimator.predict(QUERIES, return_std=True),
        *estimator.predict(QUERIES, return_cov=True, latent=True),
        estimator.model_index(QUERIES),
    ]


@every_estimator
def test_predict_is_pure(regressor):
    estimator = fitted(regressor)
    before, given = pickle.dumps(estimator), QUERIES.copy()
    first, second = ask_everything(estimator), ask_everything(estimator)
    assert pickle.dumps(estimator) == before
    np.testing.assert_array_equal(QUERIES, given)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


@every_estimator
def test_threads_that_predict_at_once_get_the_same_answers(regressor):
    """From a model that has not predicted yet, so that all threads fill its caches at the same time."""
    alone, asked = (fitted(regressor) if regressor is SparseGPRegressor else streamed(regressor) for _ in range(2))
    parts = np.array_split(queries(200), 8)
    expected = [alone.predict(part, return_std=True) for part in parts]
    found = at_once([partial(asked.predict, part, return_std=True) for part in parts])
    np.testing.assert_array_equal(np.concatenate(found, axis=1), np.concatenate(expected, axis=1))


def test_threads_that_predict_while_another_learns_get_means_of_one_state():
    """Each mean is that of the model before or after a row, and learning is not disturbed."""
    X, y = travelling(140)
    estimator, alone = (small(WGPRegressor).partial_fit(X[:100], y[:100]) for _ in range(2))
    states = [alone.predict(QUERIES)]
    for row, target in zip(X[100:, None], y[100:, None], strict=True):
        states.append(alone.partial_fit(row, target).predict(QUERIES))

    def learn():
        for row, target in zip(X[100:, None], y[100:, None], strict=True):
            estimator.partial_fit(row, target)

    *answers, _ = at_once([*3 * [lambda: [estimator.predict(QUERIES) for _ in range(10)]], learn])
    for answer in itertools.chain(*answers):
        # Factors that rows have extended are equal to others up to rounding.
        assert any(np.allclose(answer, state, rtol=0.0, atol=1e-10) for state in states)
    assert_same_learning(deepcopy(estimator), deepcopy(alone))  # copies have no factors yet


@every_online_estimator
def test_predict_before_the_first_batch_is_pure(regressor):
    estimator = streamed(regressor, 7)
    before = pickle.dumps(estimator)
    ask_everything(estimator)
    assert pickle.dumps(estimator) == before


@every_online_estimator
def test_the_callers_arrays_are_neither_kept_nor_changed(regressor):
    rows, targets = X.copy(), y.copy()
    estimator = small(regressor).partial_fit(rows, targets)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(targets, y)
    rows[:], targets[:] = np.nan, np.nan
    assert_same_learning(estimator.flush(), streamed(regressor).flush())


@every_estimator
def test_answers_are_not_views_of_the_model(regressor):
    estimator = fitted(regressor)
    before = pickle.dumps(estimator)
    for answer in ask_everything(estimator):
        answer[:] = 0
    assert pickle.dumps(estimator) == before


@every_estimator
def test_models_cannot_be_edited(regressor):
    model = small(regressor).fit(X, y).models_[0]
    with pytest.raises(ValueError, match="read-only"):
        model.inputs[:] = 0.0
    with pytest.raises(AttributeError):
        model.n_seen = 0


# Uncertainty


@every_estimator
@pytest.mark.parametrize("latent", [False, True], ids=["observation", "latent"])
def test_standard_deviation_and_covariance_agree(regressor, latent):
    estimator = fitted(regressor)
    mean, std = estimator.predict(QUERIES, return_std=True, latent=latent)
    joint_mean, covariance = estimator.predict(QUERIES, return_cov=True, latent=latent)
    np.testing.assert_allclose(joint_mean, mean, rtol=1e-10)
    np.testing.assert_allclose(mean, estimator.predict(QUERIES), rtol=1e-10)
    np.testing.assert_allclose(covariance.diagonal(), std**2, rtol=1e-10)


@every_estimator
def test_covariance_is_symmetric_and_positive_semidefinite(regressor):
    _, covariance = fitted(regressor).predict(QUERIES, return_cov=True, latent=True)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() >= -1e-10 * covariance.trace()
    assert (covariance - np.diag(covariance.diagonal())).any()


@every_estimator
def test_the_field_is_more_certain_than_an_observation(regressor):
    estimator = fitted(regressor)
    _, of_observation = estimator.predict(QUERIES, return_std=True)
    _, of_field = estimator.predict(QUERIES, return_std=True, latent=True)
    noise = [theta.noise for theta in estimator.hyperparameters_]
    added = np.sqrt(of_observation**2 - of_field**2)
    assert (of_field > 0).all()
    assert (added >= min(noise) * (1 - 1e-6)).all()
    assert (added <= max(noise) * (1 + 1e-6)).all()


@every_estimator
def test_standard_deviation_or_covariance_but_not_both(regressor):
    with pytest.raises(ValueError, match="return_std and return_cov"):
        fitted(regressor).predict(QUERIES, return_std=True, return_cov=True)


@every_estimator
def test_uncertainty_grows_away_from_the_data(regressor):
    estimator = fitted(regressor)
    _, near = estimator.predict(X, return_std=True)
    _, far = estimator.predict([[1e4, -1e4]], return_std=True)
    assert far > np.median(near)


# Repeatability


@every_estimator
def test_the_same_seed_gives_the_same_ensemble(regressor):
    assert_same_learning(small(regressor).fit(X, y), fitted(regressor))


@pytest.mark.parametrize("regressor", [LocalGPRegressor, StreamingGPRegressor, published])
def test_another_seed_gives_another_ensemble(regressor):
    """So that the test above can fail. SOLAR's models are too small to choose here, and batch models do not choose."""
    travelled = travelling(300)
    one, other = (small(regressor, random_state=seed).fit(*travelled).predict(QUERIES) for seed in (0, 1))
    assert not np.array_equal(one, other)


@every_estimator
def test_fit_forgets_what_was_before(regressor):
    estimator = small(regressor).fit(X[:50, :1], y[:50])
    assert_same_learning(estimator.fit(X, y), fitted(regressor))
    assert_same_learning(estimator.fit(X, y), fitted(regressor))


@every_estimator
def test_score_is_the_coefficient_of_determination(regressor):
    estimator = fitted(regressor)
    assert estimator.score(X, y) == r2_score(y, estimator.predict(X))


# Records and models


@pytest.mark.parametrize("regressor", [*IN_BATCHES, SparseGPRegressor], ids=lambda regressor: regressor.__name__)
def test_every_row_is_in_one_record(regressor):
    estimator = fitted(regressor)
    records = estimator.history_
    assert [record.number for record in records] == list(range(len(records)))
    assert sum(record.n_samples for record in records) == len(X)
    for record in records:
        assert sum(change.n_samples for change in record.changes) == record.n_samples
    assert sum(change.is_new for record in records for change in record.changes) == estimator.n_models_
    assert sum(model.n_seen for model in estimator.models_) == estimator.n_samples_seen_ == len(X)


def test_every_row_of_the_default_is_in_one_record_at_the_most():
    """A record is that of a look, with the rows since the one before."""
    estimator = WGPRegressor().fit(*travelling(600))
    records = estimator.history_
    assert [record.number for record in records] == list(range(len(records)))
    assert 300 < sum(record.n_samples for record in records) <= 600
    assert sum(change.is_new for record in records for change in record.changes) == estimator.n_models_ - 1
    assert sum(model.n_seen for model in estimator.models_) == estimator.n_samples_seen_ == 600


def test_records_are_in_the_units_of_the_targets():
    estimator, eightfold = (small(published, threshold=unit**2).fit(X, unit * y) for unit in (1.0, 8.0))
    for record, other in zip(estimator.history_, eightfold.history_, strict=True):
        np.testing.assert_allclose(other.w_old, 64.0 * np.array(record.w_old))
        np.testing.assert_allclose(other.w_new, 64.0 * np.array(record.w_new))
        shift = record.n_samples * np.log(8.0)  # a density per row
        np.testing.assert_allclose(other.evidence, np.array(record.evidence) - shift)
        np.testing.assert_allclose(other.evidence_new, record.evidence_new - shift)


@every_estimator_in_batches
def test_models_that_did_not_learn_are_the_same_objects(regressor):
    estimator, n_kept = small(regressor), 0
    for first in range(0, 100, BATCH):
        before, n_steps = (estimator.models_, len(estimator.history_)) if first else ((), 0)
        estimator.partial_fit(X[first : first + BATCH], y[first : first + BATCH])
        changed = {change.model for record in estimator.history_[n_steps:] for change in record.changes}
        for number, model in enumerate(before):
            assert (estimator.models_[number] is model) == (number not in changed)
            n_kept += number not in changed
    assert n_kept > 0 or regressor is StreamingGPRegressor


def test_territories_that_did_not_learn_are_the_same_objects():
    X, y = travelling(600)
    estimator, n_kept = WGPRegressor().partial_fit(X[:300], y[:300]), 0
    for first in range(300, 600, BATCH):
        before, n_steps = estimator.models_, len(estimator.history_)
        estimator.partial_fit(X[first : first + BATCH], y[first : first + BATCH])
        changed = {change.model for record in estimator.history_[n_steps:] for change in record.changes}
        for number, model in enumerate(before):
            is_same = estimator.models_[number] is model
            assert is_same == (estimator.models_[number].n_seen == model.n_seen and number not in changed)
            n_kept += is_same
    assert n_kept > 0


@every_estimator
def test_model_index_is_the_model_that_answers(regressor):
    estimator = fitted(regressor)
    index = estimator.model_index(QUERIES)
    assert index.shape == (len(QUERIES),)
    assert set(index) <= set(range(estimator.n_models_))
    if isinstance(getattr(estimator._method(), "prediction", None), Nearest):
        means = np.array([answer_of(model, estimator.units_, QUERIES)[0] for model in estimator.models_])
        np.testing.assert_allclose(estimator.predict(QUERIES), means[index, np.arange(len(QUERIES))], rtol=1e-9)


# Bounded memory


@every_online_estimator
def test_history_is_bounded(regressor, monkeypatch):
    whole = streamed(regressor)
    monkeypatch.setattr("wgpr.estimators.methods.HISTORY_SIZE", 1)
    estimator = small(regressor).partial_fit(X, y)
    assert len(estimator.history_) == 1 < len(whole.history_)
    assert [record.number for record in estimator.history_] == [record.number for record in whole.history_[-1:]]


@every_estimator_in_batches
def test_pending_rows_do_not_keep_learned_rows_in_memory(regressor, monkeypatch):
    monkeypatch.setattr("wgpr.estimators.methods.absorb", lambda evaluation, *_: (evaluation.ensemble, None))
    rows, targets = np.random.default_rng(0).normal(size=(100_010, 4)), np.zeros(100_010)
    estimator = small(regressor, batch_size=1000)
    gc.collect()
    tracemalloc.start()
    estimator.partial_fit(rows, targets)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert estimator.n_pending_ == 10
    assert held < 0.1 * rows.nbytes


def test_one_streaming_model_does_not_grow(monkeypatch):
    monkeypatch.setattr("wgpr.estimators.methods.HISTORY_SIZE", 3)
    estimator = small(StreamingGPRegressor)
    rows, targets = travelling(600)
    sizes = []
    for first in range(0, 600, 100):
        estimator.partial_fit(rows[first : first + 100], targets[first : first + 100])
        sizes.append(len(pickle.dumps(estimator)))
    assert max(sizes[1:]) - min(sizes[1:]) < 100


def test_local_models_keep_at_most_max_samples_rows():
    estimator = small(LocalGPRegressor, w_gen=0.0).partial_fit(*travelling(300))
    assert [len(model.inputs) for model in estimator.models_] == [15]
    assert estimator.models_[0].n_seen == 300


# Settings

NOT_COUNTS = [0, -1, 2.5, "5", np.nan]
WRONG = {
    "n_inducing": [*NOT_COUNTS, None],
    "max_models": NOT_COUNTS,
    "max_cache_bytes": [-1, 2.5, "5", None],
    "calibrated": ["no", None],
    "forgetting": [-0.1, 1.0, np.nan, "0.5"],
    "n_candidates": NOT_COUNTS,
    "batch_size": NOT_COUNTS,
    "n_best": NOT_COUNTS,
    "n_models": NOT_COUNTS,
    "n_calibration": NOT_COUNTS,
    "max_samples": NOT_COUNTS,
    "optimizer_iterations": [-1, 2.5, "5"],
    "threshold": [-1.0, np.nan, "30", None],
    "w_gen": [-0.1, 1.1, np.nan, "0.5"],
    "kernel": ["cubic", 3, None],
    "splitting": ["sometimes", None, 3, object()],
    "prediction": ["best", None, 3, Nearest],
    "learn_hyperparameters": ["no", None],
    "hyperparameters": [1.0, {"amplitude": 1.0}],
    "random_state": ["seed", -1],
}


def settings_of(regressors, how_many):
    return pytest.mark.parametrize(
        ("regressor", "name", "value"),
        [
            pytest.param(regressor, name, value, id=f"{regressor.__name__}-{name}-{value!r:.20}")
            for regressor in regressors
            for name in regressor().get_params()
            for value in WRONG[name][:how_many]
        ],
    )


@settings_of(ALL, how_many=None)
def test_a_wrong_setting_is_named(regressor, name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        small(regressor, **{name: value}).fit(X, y)


@settings_of(ONLINE, how_many=1)
def test_a_wrong_setting_leaves_the_model_as_it_was(regressor, name, value):
    """Nothing is learned, no row is taken in, and with the old setting everything is as before."""
    estimator = streamed(regressor, 50)
    before, good = pickle.dumps(estimator), estimator.get_params()[name]
    estimator.set_params(**{name: value})
    for learn in (estimator.partial_fit, estimator.fit):
        with pytest.raises((ValueError, TypeError), match=name):
            learn(X, y)
    assert pickle.dumps(estimator.set_params(**{name: good})) == before


@pytest.mark.parametrize("n_rows", [1, 50])
def test_hyperparameters_for_other_inputs_are_refused_at_once(n_rows):
    estimator = small(LocalGPRegressor, hyperparameters=Hyperparameters(1.0, np.ones(5), 0.1))
    with pytest.raises(ValueError, match="hyperparameters has 5 length-scales and X has 2 columns"):
        estimator.partial_fit(X[:n_rows], y[:n_rows])
    estimator.set_params(hyperparameters=Hyperparameters(1.0, np.ones(2), 0.1)).partial_fit(X, y)
    assert estimator.n_samples_seen_ == len(X)


def test_hyperparameters_for_other_inputs_leave_the_model_as_it_was():
    estimator = fitted(LocalGPRegressor)
    before = estimator.predict(QUERIES)
    with pytest.raises(ValueError, match="hyperparameters"):
        estimator.set_params(hyperparameters=Hyperparameters(1.0, np.ones(5), 0.1)).fit(X, y)
    np.testing.assert_array_equal(estimator.predict(QUERIES), before)


@pytest.mark.parametrize("theta", [(np.nan, [1.0, 1.0], 0.1), (1.0, [1.0, 0.0], 0.1), (1.0, [1.0, 1.0], -0.1)])
def test_hyperparameters_have_to_be_positive_numbers(theta):
    amplitude, lengthscales, noise = theta
    with pytest.raises(ValueError, match=r"amplitude|lengthscales|noise|hyperparameters"):
        small(LocalGPRegressor, hyperparameters=Hyperparameters(amplitude, np.array(lengthscales), noise)).fit(X, y)


def test_hyperparameters_may_be_given_as_lists():
    given = small(LocalGPRegressor, hyperparameters=Hyperparameters(1, [1, 2], 0.1)).fit(X, y)
    expected = small(LocalGPRegressor, hyperparameters=Hyperparameters(1.0, np.array([1.0, 2.0]), 0.1)).fit(X, y)
    np.testing.assert_array_equal(given.predict(QUERIES), expected.predict(QUERIES))


@every_estimator
def test_an_attribute_of_the_user_does_no_harm(regressor):
    estimator = fitted(regressor)
    before = estimator.predict(QUERIES)
    estimator.remark = "learned on Monday"
    np.testing.assert_array_equal(estimator.predict(QUERIES), before)


@every_estimator
def test_fit_does_not_change_settings(regressor):
    estimator = small(regressor)
    before = estimator.get_params()
    assert estimator.fit(X, y).get_params() == before
