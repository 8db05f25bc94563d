"""Ctrl-C and errors inside `fit`, `partial_fit` and `flush`: nothing changes, and a retry is exact."""

import pickle
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import wgpr
from streams import (
    BATCH,
    assert_same_learning,
    every_estimator_in_batches,
    every_online_estimator,
    fitted,
    published,
    small,
    streamed,
    travelling,
)
from wgpr import Hyperparameters, LocalGPRegressor, Wasserstein, WGPRegressor
from wgpr.gp import linalg

X, y = travelling(100)
ESTIMATORS = str(Path(wgpr.__file__).parent / "estimators")  # all other code of the package works on immutable values


def frames(rows, names=("east", "north"), target="depth"):
    """Rows of the stream as a frame and a series, with names."""
    return pd.DataFrame(X[rows], columns=list(names)), pd.Series(y[rows], name=target)


def assert_untouched(estimator, before):
    """All attributes, with names of features and target, are the same objects as `before`."""
    assert vars(estimator).keys() == before.keys()
    changed = [name for name, value in vars(estimator).items() if value is not before[name]]
    assert not changed, f"these attributes changed: {changed}"


def assert_same_estimator(estimator, expected):
    assert_same_learning(estimator, expected)
    np.testing.assert_array_equal(estimator.feature_names_in_, expected.feature_names_in_)
    assert estimator.target_name_ == expected.target_name_
    np.testing.assert_array_equal(estimator.bounds_, expected.bounds_)


# At any line

ROWS = slice(10, 60)
SETTINGS = {"hyperparameters": Hyperparameters(1.0, np.array([1.0, 2.0]), 0.1), "w_gen": 0.0}


def before_the_call(is_first):
    """An estimator that learns quickly and without optimisation; unless the call is the first, with names and rows."""
    estimator = small(LocalGPRegressor, **SETTINGS)
    return estimator if is_first else estimator.partial_fit(*frames(slice(0, 10)))


def arguments(method, is_first):
    """A second `fit` has other names than the first rows had."""
    return frames(ROWS, ("x", "y"), "height") if method == "fit" and not is_first else frames(ROWS)


@contextmanager
def traced(interrupt_at=None):
    """The lines of the estimators that run inside, in order; Ctrl-C before line number `interrupt_at` of them."""
    lines, before = [], sys.gettrace()

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(ESTIMATORS):
            return None
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) - 1 == interrupt_at:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield lines
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)


def first_and_last(lines):
    """Places where each different line runs for the first and for the last time."""
    first = {line: place for place, line in reversed(list(enumerate(lines)))}
    last = {line: place for place, line in enumerate(lines)}
    return sorted({*first.values(), *last.values()})


@pytest.mark.parametrize("is_first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_an_interruption_at_any_line_changes_nothing_and_a_retry_is_exact(method, is_first, monkeypatch):
    monkeypatch.setattr(linalg, "_blas_limit", linalg._BlasLimit())  # which a tracer may leave set
    begun, rows = pickle.dumps(before_the_call(is_first)), arguments(method, is_first)
    expected = pickle.loads(begun)
    with traced() as lines:
        getattr(expected, method)(*rows)
    places = first_and_last(lines)
    assert len(places) > 100
    estimator = pickle.loads(begun)
    before = dict(vars(estimator))
    for number, place in enumerate(places[:-1]):  # the last line returns, after all work is done
        with traced(interrupt_at=place) as interrupted:
            getattr(estimator, method)(*rows)
        assert interrupted[-1] == lines[place]
        assert_untouched(estimator, before)
        if number % 40 == 0:
            assert_same_estimator(getattr(pickle.loads(pickle.dumps(estimator)), method)(*rows), expected)
    assert_same_estimator(getattr(estimator, method)(*rows), expected)


# Inside a step


def interrupt_at(monkeypatch, target, call, *, before):
    """Make call number `call` of the function at `target` end in Ctrl-C, before or after its work is done."""
    module, name = target.rsplit(".", 1)
    original = getattr(sys.modules[module], name)
    calls = iter(range(10_000))

    def interrupted(*args, **options):
        number = next(calls)
        if number == call and before:
            raise KeyboardInterrupt
        result = original(*args, **options)
        if number == call:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(target, interrupted)


@cache
def _begun(regressor):
    return pickle.dumps(small(regressor).partial_fit(*frames(slice(0, 10))))


@cache
def _completed(regressor, method, is_first):
    estimator = small(regressor) if is_first else pickle.loads(_begun(regressor))
    return getattr(estimator, method)(*arguments(method, is_first))


def assert_interrupted_and_exact(regressor, method, is_first):
    estimator = small(regressor) if is_first else pickle.loads(_begun(regressor))
    before, rows = dict(vars(estimator)), arguments(method, is_first)
    with pytest.raises(KeyboardInterrupt):
        getattr(estimator, method)(*rows)
    assert_untouched(estimator, before)
    getattr(estimator, method)(*rows)
    assert_same_estimator(estimator, _completed(regressor, method, is_first))


every_call = pytest.mark.parametrize(
    ("method", "is_first"), [("fit", True), ("fit", False), ("partial_fit", True), ("partial_fit", False)]
)


@every_online_estimator
@every_call
def test_an_interruption_between_steps_changes_nothing_and_a_retry_is_exact(regressor, method, is_first, monkeypatch):
    """After the first step is done, when a part of the rows is learned."""
    step = "learn" if regressor is WGPRegressor else "absorb"
    interrupt_at(monkeypatch, f"wgpr.estimators.methods.{step}", 0, before=False)
    assert_interrupted_and_exact(regressor, method, is_first)


@pytest.mark.parametrize(
    ("regressor", "optimiser", "call"),
    [
        (published, "wgpr.gp.sparse.maximize_bound", 0),
        (published, "wgpr.gp.sparse.maximize_bound", 5),
        (WGPRegressor, "wgpr.ensemble.territory.fit_hyperparameters", 0),
        (WGPRegressor, "wgpr.ensemble.territory.fit_hyperparameters", 2),
    ],
)
def test_an_interruption_inside_the_optimiser_changes_nothing_and_a_retry_is_exact(
    regressor, optimiser, call, monkeypatch
):
    interrupt_at(monkeypatch, optimiser, call, before=False)
    assert_interrupted_and_exact(regressor, "partial_fit", is_first=False)


@every_call
def test_an_interrupted_calibration_of_lgpr_changes_nothing_and_a_retry_is_exact(method, is_first, monkeypatch):
    interrupt_at(monkeypatch, "wgpr.estimators.regressors.calibrate", 0, before=False)
    assert_interrupted_and_exact(LocalGPRegressor, method, is_first)


@every_estimator_in_batches
def test_an_interrupted_flush_changes_nothing_and_a_retry_is_exact(regressor, monkeypatch):
    estimator = streamed(regressor)
    before = dict(vars(estimator))
    interrupt_at(monkeypatch, "wgpr.estimators.methods.absorb", 0, before=False)
    with pytest.raises(KeyboardInterrupt):
        estimator.flush()
    assert vars(estimator)["_state"] is before["_state"]
    assert_same_learning(estimator.flush(), streamed(regressor).flush())


@pytest.mark.parametrize(("regressor", "step", "call"), [(published, "absorb", 1), (WGPRegressor, "learn", 0)])
def test_an_interruption_of_a_very_first_fit_leaves_it_unfitted(regressor, step, call, monkeypatch):
    estimator = small(regressor)
    interrupt_at(monkeypatch, f"wgpr.estimators.methods.{step}", call, before=True)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X, y)
    for name in ("n_features_in_", "feature_names_in_", "target_name_", "n_models_"):
        assert not hasattr(estimator, name)


# Errors


class FailsLater:
    """A splitting rule that raises an error when there are two models."""

    def assign(self, evaluation):
        if len(evaluation.ensemble) == 2:
            raise ZeroDivisionError("of the rule")
        return Wasserstein(0.0).assign(evaluation)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_an_error_in_a_later_step_changes_nothing(method):
    estimator = fitted(published, BATCH)
    estimator.set_params(splitting=FailsLater(), threshold="auto")
    before, answers = dict(vars(estimator)), estimator.predict(X)
    with pytest.raises(ZeroDivisionError, match="of the rule"):
        getattr(estimator, method)(X, y)
    before["_known_method"] = vars(estimator)["_known_method"]
    assert_untouched(estimator, before)
    np.testing.assert_array_equal(estimator.predict(X), answers)
