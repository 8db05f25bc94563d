"""Wrong input is refused and changes nothing; unusual input is learned, with finite predictions."""

import pickle
import re
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse

from streams import (
    BATCH,
    ONLINE,
    every_estimator,
    every_online_estimator,
    fitted,
    published,
    queries,
    small,
    streamed,
    travelling,
)

X, y = (part[:50] for part in travelling())
QUERIES = queries()
NAMES_WHAT_IS_WRONG = r"\b[Xy]\b|feature|sample"


def with_one(array, value, dtype=float):
    array = array.astype(dtype)
    array.flat[len(array) // 2] = value
    return array


BAD_INPUTS = {
    "nan": with_one(X, np.nan),
    "inf": with_one(X, np.inf),
    "minus inf": with_one(X, -np.inf),
    "text": with_one(X, "deep", object),
    "all text": np.full(X.shape, "deep"),
    "objects": with_one(X, object(), object),
    "complex": X + 1j,
    "sparse": scipy.sparse.csr_array(X),
    "one dimension": X[:, 0],
    "three dimensions": X[None],
    "a number": 1.0,
    "nothing": None,
    "no columns": X[:, :0],
    "ragged": [[1.0, 2.0], [3.0]],
    "too large": 1e300 * X,
    "too large and negative": with_one(X, -1e300),
}
BAD_TARGETS = {
    "nan": with_one(y, np.nan),
    "inf": with_one(y, np.inf),
    "text": with_one(y, "deep", object),
    "all text": np.full(y.shape, "deep"),
    "objects": with_one(y, object(), object),
    "complex": y + 1j,
    "three dimensions": y[:, None, None],
    "too short": y[:-1],
    "too long": np.append(y, 0.0),
    "a number": 1.0,
    "nothing": None,
    "too large": 1e300 * y,
}
BAD_ROWS = [
    *(pytest.param(bad, y, id=f"X {name}") for name, bad in BAD_INPUTS.items()),
    *(pytest.param(X, bad, id=f"y {name}") for name, bad in BAD_TARGETS.items()),
    pytest.param(X[:0], y[:0], id="no rows"),
]
every_bad_row = pytest.mark.parametrize(("bad_X", "bad_y"), BAD_ROWS)


# Wrong input

# The estimator is as before: not fitted, with pending rows only, or with models.


@every_estimator
@every_bad_row
def test_fit_refuses_and_nothing_changes(regressor, bad_X, bad_y):
    for estimator in (small(regressor), fitted(regressor, 50)):
        assert_refused(estimator, estimator.fit, bad_X, bad_y)


@every_online_estimator
@every_bad_row
def test_partial_fit_refuses_and_nothing_changes(regressor, bad_X, bad_y):
    for estimator in (small(regressor), streamed(regressor, 7), streamed(regressor, 45)):
        assert_refused(estimator, estimator.partial_fit, bad_X, bad_y)


@every_estimator
@pytest.mark.parametrize("bad_X", [*BAD_INPUTS.values(), X[:0]], ids=[*BAD_INPUTS, "no rows"])
def test_predict_refuses_and_nothing_changes(regressor, bad_X):
    estimator = fitted(regressor, 50)
    for ask in (estimator.predict, estimator.model_index):
        assert_refused(estimator, ask, bad_X)


def assert_refused(estimator, method, *rows):
    before = pickle.dumps(estimator)
    with pytest.raises((ValueError, TypeError)):
        method(*rows)
    assert pickle.dumps(estimator) == before


# All estimators share the code of the messages.


@every_bad_row
def test_the_message_names_what_is_wrong(bad_X, bad_y):
    with pytest.raises((ValueError, TypeError), match=NAMES_WHAT_IS_WRONG):
        small(published).partial_fit(bad_X, bad_y)


@pytest.mark.parametrize("bad_X", [*BAD_INPUTS.values(), X[:0]], ids=[*BAD_INPUTS, "no rows"])
def test_the_message_about_a_query_names_what_is_wrong(bad_X):
    with pytest.raises((ValueError, TypeError), match=NAMES_WHAT_IS_WRONG):
        fitted(published, 50).predict(bad_X)


@every_estimator
@pytest.mark.parametrize("n_columns", [1, 3])
def test_another_number_of_columns_is_refused(regressor, n_columns):
    estimator, rows = fitted(regressor, 50), np.ones((5, n_columns))
    before = pickle.dumps(estimator)
    refusal = f"X has {n_columns} features, but {type(estimator).__name__} is expecting 2"
    with pytest.raises(ValueError, match=refusal):
        estimator.predict(rows)
    if regressor in ONLINE:
        with pytest.raises(ValueError, match=refusal):
            estimator.partial_fit(rows, np.ones(5))
    assert pickle.dumps(estimator) == before


@every_online_estimator
def test_learning_goes_on_after_bad_rows(regressor):
    estimator, expected = small(regressor), streamed(regressor, 50)
    for first in range(0, 50, 10):
        rows = slice(first, first + 10)
        with pytest.raises(ValueError, match="Input X contains NaN"):
            estimator.partial_fit(with_one(X[rows], np.nan), y[rows])
        estimator.partial_fit(X[rows], y[rows])
    np.testing.assert_array_equal(estimator.predict(QUERIES), expected.predict(QUERIES))


# Unusual input


def columns(*columns):
    return np.stack(np.broadcast_arrays(*columns), axis=1).astype(float)


line, rng = X[:, 0], np.random.default_rng(0)
UNUSUAL_ROWS = {
    "one row": (X[:1], y[:1]),
    "two rows": (X[:2], y[:2]),
    "one column": (X[:, :1], y),
    "many columns": (rng.normal(size=(50, 60)), y),
    "constant column": (columns(line, 5.0), y),
    "all columns constant": (columns(np.zeros(50), 5.0), y),
    "all zero": (np.zeros((50, 2)), np.zeros(50)),
    "constant targets": (X, np.full(50, 3.0)),
    "constant large targets": (X, np.full(50, 1e9)),
    "targets that hardly vary": (X, 1e9 + 1e-6 * y),
    "the same row": (np.repeat(X[:1], 50, axis=0), y),
    "every row twice": (np.repeat(X[:25], 2, axis=0), y),
    "equal columns": (columns(line, line), y),
    "whole numbers": (np.arange(100).reshape(50, 2), np.arange(50)),
    "yes and no": (X > 1.0, y > 0.0),
    "single precision": (X.astype(np.float32), y.astype(np.float32)),
    "lists": (X.tolist(), y.tolist()),
    "far from the origin": (X + 1e9, y + 1e9),
    "columns of different size": (X * [1e-12, 1e12], y),
    "one outlier in X": (with_one(X, 1e50), y),
    "one outlier in y": (X, with_one(y, 1e50)),
    "inputs that are mostly zero": (X * (rng.random(X.shape) < 0.1), y),
    "targets that are mostly zero": (X, y * (rng.random(50) < 0.1)),
    "targets that are mostly next to zero": (X, y * np.where(rng.random(50) < 0.1, 1.0, 1e-12)),
    "a first batch of zeros": (X * (np.arange(50) >= BATCH)[:, None], y * (np.arange(50) >= BATCH)),
    "a jump in scale": (X * np.where(np.arange(50) < BATCH, 1e-30, 1e30)[:, None], y),
    "a jump in the scale of targets": (X, y * np.where(np.arange(50) < BATCH, 1e-30, 1e30)),
}


@every_estimator
@pytest.mark.parametrize("name", UNUSUAL_ROWS)
def test_unusual_rows_are_learned(regressor, name):
    rows, targets = UNUSUAL_ROWS[name]
    estimator = small(regressor).fit(rows, targets)
    assert_sane(estimator, np.asarray(rows, dtype=float), np.asarray(targets, dtype=float))


def assert_sane(estimator, rows, targets):
    """Answers are finite, with an uncertainty, and in the range of the data."""
    mean, std = estimator.predict(rows, return_std=True)
    _, covariance = estimator.predict(rows[:5], return_cov=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(covariance).all()
    assert (std > 0).all()
    room = 10 * np.ptp(targets) + 1e-6 * np.abs(targets).max()
    assert (mean >= targets.min() - room).all()
    assert (mean <= targets.max() + room).all()


# Units


@every_estimator
@pytest.mark.parametrize("length", [1e-200, 1e-100, 1e-6, 1e6, 1e50, 1e98], ids="{:g}".format)
def test_inputs_in_other_units(regressor, length):
    assert_the_same_in_other_units(regressor, length=length)


@every_estimator
@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e-6, 1e6, 1e50, 1e98], ids="{:g}".format)
def test_targets_in_other_units(regressor, scale):
    assert_the_same_in_other_units(regressor, scale=scale)


@every_estimator
def test_targets_far_from_zero(regressor):
    assert_the_same_in_other_units(regressor, scale=1e6, offset=1e6)


def assert_the_same_in_other_units(regressor, length=1.0, scale=1.0, offset=0.0):
    """The same ensemble, and predictions equal to 1e-4 after undoing the scale; or a clear refusal."""
    expected = fitted(regressor, 50)
    estimator = small(regressor, **({"threshold": expected.threshold * scale**2} if regressor is published else {}))
    with or_refused():
        estimator.fit(X * length, y * scale + offset)
        assert [record.changes for record in estimator.history_] == [record.changes for record in expected.history_]
        mean, std = estimator.predict(QUERIES * length, return_std=True)
        expected_mean, expected_std = expected.predict(QUERIES, return_std=True)
        np.testing.assert_allclose((mean - offset) / scale, expected_mean, atol=1e-4)
        np.testing.assert_allclose(std / scale, expected_std, atol=1e-4)


@pytest.mark.parametrize("spoilt", ["X", "y"])
@pytest.mark.parametrize("value", [1e6, 1e12], ids="{:g}".format)
def test_an_outlier_in_the_first_batch_does_not_spoil_later_models(spoilt, value):
    """A wrong value spoils its own model only."""
    rows, targets = travelling(120)
    (rows if spoilt == "X" else targets).flat[6] = value
    estimator = small(published, splitting="always", optimizer_iterations=20).fit(rows, targets)
    later = slice(BATCH, 60)
    errors = estimator.predict(rows[later]) - targets[later]
    assert np.sqrt(np.mean(errors**2)) < 0.5 * targets[later].std()


@contextmanager
def or_refused():
    """Numbers that are too large or too small may be refused with a message."""
    try:
        yield
    except ValueError as error:
        assert re.match("[Xy] has values", str(error)), error  # noqa: PT017


@every_estimator
@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1.0, 1e6], ids="{:g}".format)
def test_the_furthest_queries_have_finite_answers(regressor, scale):
    with or_refused():
        estimator = small(regressor).fit(X * scale, y)
        mean, std = estimator.predict([[1e100, -1e100], [0.0, 1e100]], return_std=True)
        assert np.isfinite(mean).all()
        assert np.isfinite(std).all()
        assert (std > 0).all()
