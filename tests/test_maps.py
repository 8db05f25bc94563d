"""Saved maps: to the bit, whatever the estimator; small when asked; and never anything but a map or a clear error."""

import itertools
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import tracemalloc
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wgpr
from damage import FORGED, IN_TRANSIT
from streams import (
    ALL,
    BATCH,
    assert_same_learning,
    assert_same_models,
    every_estimator,
    every_online_estimator,
    fitted,
    published,
    queries,
    small,
    streamed,
    travelling,
)
from wgpr import Barycenter, Hyperparameters, MapError, RationalQuadratic, Wasserstein, WGPRegressor, load
from wgpr.ensemble.cuts import Cuts
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.territories import Learning, TerritorySettings
from wgpr.gp.sparse import SparseLearner
from wgpr.io import container
from wgpr.io.arrays import unpack_models
from wgpr.io.codec import ESTIMATORS, encode_estimator
from wgpr.io.container import Contents
from wgpr.io.territories import apply_difference, pack_difference, unpack_cuts
from wgpr.rules.prediction import Nearest

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "maps"


def saved_and_loaded(estimator, folder, **options):
    """Through a file of the bytes that `save` writes, without its wait for the disk."""
    (folder / "a.map").write_bytes(estimator.to_bytes(**options))
    return load(folder / "a.map")


def test_a_file_holds_the_bytes_of_the_estimator(tmp_path):
    estimator = fitted(published)
    for compact in (False, True):
        estimator.save(tmp_path / "a.map", compact=compact)
        assert (tmp_path / "a.map").read_bytes() == estimator.to_bytes(compact=compact)


@every_estimator
def test_a_loaded_map_is_the_estimator(regressor, tmp_path):
    estimator = fitted(regressor)
    loaded = saved_and_loaded(estimator, tmp_path)
    assert type(loaded) is type(estimator)
    assert loaded.get_params() == estimator.get_params()
    assert loaded.history_ == estimator.history_
    np.testing.assert_array_equal(loaded.bounds_, estimator.bounds_)
    assert_same_learning(loaded, estimator)


@every_estimator
def test_a_loaded_map_can_fit_anew(regressor, tmp_path):
    X, y = travelling()
    assert_same_learning(saved_and_loaded(fitted(regressor), tmp_path).fit(X, y), fitted(regressor))


@every_online_estimator
@settings(max_examples=4)
@given(cuts=st.lists(st.integers(0, 110), min_size=9, max_size=9))
def test_ten_pieces_with_a_file_between_them_equal_one_run(tmp_path_factory, regressor, cuts):
    X, y = travelling()
    edges = [0, *sorted(cuts), len(y)]
    estimator, folder = small(regressor), tmp_path_factory.mktemp("pieces")
    for start, stop in itertools.pairwise(edges):
        if start < stop:
            estimator = saved_and_loaded(estimator.partial_fit(X[start:stop], y[start:stop]), folder)
    assert_same_learning(estimator, streamed(regressor))


@every_online_estimator
@pytest.mark.parametrize("kernel", ["matern32", RationalQuadratic(2.0)], ids=str)
def test_every_kernel_goes_on_as_if_it_had_never_stopped(regressor, kernel, tmp_path):
    X, y = travelling()
    estimator = small(regressor, kernel=kernel).partial_fit(X[:55], y[:55])
    loaded = saved_and_loaded(estimator, tmp_path)
    assert_same_learning(loaded.partial_fit(X[55:], y[55:]), estimator.partial_fit(X[55:], y[55:]))


def test_rules_and_hyperparameters_are_saved(tmp_path):
    X, y = travelling(60)
    theta = Hyperparameters(1.0, np.array([1.0, 2.0]), 0.1)
    wgpr_model = small(published, threshold="auto", splitting=Wasserstein(np.inf), prediction=Barycenter(3))
    lgpr_model = small(wgpr.LocalGPRegressor, hyperparameters=theta).partial_fit(X, y)
    loaded = saved_and_loaded(wgpr_model.partial_fit(X, y), tmp_path)
    assert (loaded.splitting, loaded.prediction) == (Wasserstein(np.inf), Barycenter(3))
    np.testing.assert_array_equal(saved_and_loaded(lgpr_model, tmp_path).hyperparameters.to_vector(), theta.to_vector())


def test_infinite_threshold_and_numpy_numbers_are_saved(tmp_path):
    X, y = travelling(60)
    estimator = small(published, threshold=np.float64(np.inf), n_inducing=np.int64(7)).partial_fit(X, y)
    loaded = saved_and_loaded(estimator, tmp_path)
    assert (loaded.threshold, loaded.n_inducing) == (np.inf, 7)


def test_names_are_saved(tmp_path):
    X, y = travelling()
    frame, series = pd.DataFrame(X, columns=["lon", "lat"]), pd.Series(y, name="depth [m]")
    loaded = saved_and_loaded(small(published).partial_fit(frame, series), tmp_path)
    assert list(loaded.feature_names_in_) == ["lon", "lat"]
    assert loaded.target_name_ == "depth [m]"
    loaded.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"lon": "depth"}))


@every_online_estimator
def test_rows_that_wait_are_saved(regressor, tmp_path):
    estimator = streamed(regressor, 7)
    assert_same_learning(saved_and_loaded(estimator, tmp_path), estimator)
    assert_same_learning(saved_and_loaded(estimator, tmp_path).flush(), estimator.flush())


@pytest.mark.parametrize(("first", "later"), [(1.0, 1e98), (0.0, 1e-70), (0.0, 1e-200)])
def test_extreme_numbers_are_saved(first, later, tmp_path):
    """They follow a first batch whose unit is far from theirs."""
    rng = np.random.default_rng(1)
    scale, X = np.where(np.arange(60) < BATCH, first, later), rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    for rows, targets in ((scale[:, None] * X, y), (X, scale * y)):
        estimator = small(WGPRegressor).partial_fit(rows, targets)
        assert_same_learning(saved_and_loaded(estimator, tmp_path), estimator)


@every_estimator
def test_arrays_of_a_loaded_model_are_read_only(regressor, tmp_path):
    for model in saved_and_loaded(fitted(regressor), tmp_path).models_:
        assert not model.inputs.flags.writeable
        assert regressor is WGPRegressor or not model.L.flags.writeable
        assert regressor is not WGPRegressor or not model.data.precision.flags.writeable


def test_the_same_state_makes_the_same_file():
    assert fitted(published).to_bytes() == fitted(published).to_bytes()


def test_what_cannot_be_saved_is_refused():
    class OwnRule(Nearest):
        pass

    class OwnEstimator(WGPRegressor):
        pass

    X, y = travelling(60)
    with pytest.raises(MapError, match="prediction"):
        small(published, prediction=OwnRule()).partial_fit(X, y).to_bytes()
    with pytest.raises(MapError, match="OwnEstimator"):
        OwnEstimator().partial_fit(X, y).to_bytes()
    with pytest.raises(ValueError, match="threshold"):  # nobody could load it
        fitted(published).set_params(threshold=-1.0).to_bytes()
    with pytest.raises(ValueError, match="not fitted"):
        WGPRegressor().save("never.map")


# Compact maps


@every_estimator
def test_a_compact_map_predicts_almost_the_same_and_is_small(regressor, tmp_path):
    estimator = fitted(regressor)
    compact = saved_and_loaded(estimator, tmp_path, compact=True)
    (mean, std), (expected_mean, expected_std) = (m.predict(queries(), return_std=True) for m in (compact, estimator))
    np.testing.assert_allclose(mean, expected_mean, atol=2e-5 * np.ptp(expected_mean))
    np.testing.assert_allclose(std, expected_std, rtol=1e-4)
    np.testing.assert_array_equal(compact.model_index(queries()), estimator.model_index(queries()))
    assert len(estimator.to_bytes(compact=True)) < 0.6 * len(estimator.to_bytes())
    assert compact.history_ == ()


def test_a_compact_map_of_many_regimes_predicts_almost_the_same(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 20.0, (1800, 2))
    amplitude = np.exp((X[:, 0] - 10.0) / 4.0)
    y = amplitude * (np.sin(X[:, 0] ** 2 / 5.0) * np.cos(2.5 * X[:, 1]) + 0.02 * rng.normal(size=1800))
    estimator, places = WGPRegressor().fit(X, y), rng.uniform(0.0, 20.0, (1000, 2))
    compact = saved_and_loaded(estimator, tmp_path, compact=True)
    assert estimator.n_models_ > 10
    (mean, std), (expected, expected_std) = (each.predict(places, return_std=True) for each in (compact, estimator))
    assert (np.abs(mean - expected) / expected_std).max() < 0.01
    np.testing.assert_allclose(std, expected_std, rtol=0.01)


@every_online_estimator
def test_learning_can_go_on_from_a_compact_map(regressor, tmp_path):
    X, y = travelling(200, seed=2)
    compact = saved_and_loaded(streamed(regressor), tmp_path, compact=True).partial_fit(X, y)
    assert compact.n_samples_seen_ == streamed(regressor).n_samples_seen_ - streamed(regressor).n_pending_ + 200


def test_a_compact_model_takes_as_many_bytes_as_the_docs_say(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    estimator = WGPRegressor.published(kernel="rq", splitting="always", optimizer_iterations=2, random_state=0).fit(
        X, np.sin(9 * X[:, 0])
    )
    two, four = (len(estimator._with_state(state_with(estimator, n)).to_bytes(compact=True)) for n in (2, 4))
    (documented,) = re.findall(r"([\d,]+) bytes for M = 50", (ROOT / "docs" / "format.md").read_text())
    assert (four - two) / 2 == int(documented.replace(",", ""))


def state_with(estimator, n_models):
    """The state with only the first models."""
    ensemble = Ensemble.of(estimator.models_[:n_models], estimator.n_features_in_)
    return replace(estimator._state, ensemble=ensemble)


def test_compact_needs_a_model():
    with pytest.raises(MapError, match="flush"):
        streamed(published, 5).to_bytes(compact=True)


def test_numbers_beyond_float32_are_not_saved_compactly():
    X, y = travelling()
    X = np.concatenate([X, np.full((20, 2), 1e90)])
    estimator = small(published, threshold="auto", splitting="always", optimizer_iterations=0).partial_fit(
        X, np.append(y, np.ones(20))
    )
    estimator.flush()
    with pytest.raises(MapError, match="without compact"):
        estimator.to_bytes(compact=True)


# Differences


def without_waiting_rows(estimator):
    """What the models alone know: a compact map, and a program of format 1, leave out the rows that wait."""
    state = estimator._state
    none = {name: getattr(state, name)[:0] for name in ("pending_X", "pending_y", "pending_weights")}
    return estimator._with_state(replace(state, **none))


@every_online_estimator
def test_a_difference_brings_the_old_map_up_to_date(regressor, tmp_path):
    X, y = travelling(300)
    estimator = small(regressor).partial_fit(X[:150], y[:150])
    ashore = saved_and_loaded(estimator, tmp_path, compact=True)
    for start in range(150, 300, 50):
        before = estimator._with_state(estimator._state)
        estimator.partial_fit(X[start : start + 50], y[start : start + 50])
        ashore = wgpr.apply(ashore, wgpr.diff(before, estimator))
        mean, std = without_waiting_rows(estimator).predict(queries(), return_std=True)
        np.testing.assert_allclose(ashore.predict(queries()), mean, atol=1e-4 * np.ptp(mean))
        np.testing.assert_allclose(ashore.predict(queries(), return_std=True)[1], std, rtol=1e-3)
        assert ashore.n_models_ == estimator.n_models_
        assert ashore.n_samples_seen_ == estimator.n_samples_seen_ - estimator.n_pending_


def test_a_difference_holds_only_what_changed():
    X, y = travelling(400)
    estimator = small(published, threshold="auto", splitting="always").partial_fit(X, y)
    before = estimator._with_state(estimator._state)
    nothing = len(wgpr.diff(before, estimator))
    one = len(wgpr.diff(before, estimator.partial_fit(X[:20], y[:20])))
    assert nothing < 300
    assert one < 1200 < len(estimator.to_bytes(compact=True))


def test_models_that_did_not_change_stay_the_same_objects():
    X, y = travelling(400)
    estimator = small(published, threshold="auto", splitting="always").partial_fit(X, y)
    before = estimator._with_state(estimator._state)
    after = wgpr.apply(before, wgpr.diff(before, estimator.partial_fit(X[:20], y[:20])))
    assert all(old is new for old, new in zip(before.models_, after.models_, strict=False))
    assert after.n_models_ == before.n_models_ + 1


def test_a_difference_fits_only_its_own_map():
    X, y = travelling(200)
    first = small(published).partial_fit(X[:60], y[:60])
    second = first._with_state(first._state).partial_fit(X[60:120], y[60:120])
    third = second._with_state(second._state).partial_fit(X[120:], y[120:])
    other = small(published, random_state=1).partial_fit(X, y)
    with pytest.raises(MapError, match="not made for this map"):
        wgpr.apply(first, wgpr.diff(second, third))
    with pytest.raises(MapError, match="not an earlier state"):
        wgpr.diff(first, other)
    with pytest.raises(MapError, match="earlier"):
        wgpr.diff(third, first)
    with pytest.raises(MapError, match="no model yet"):
        wgpr.diff(streamed(published, 5), first)


def test_a_flushed_map_is_no_earlier_state():
    """It has learned rows as a batch of their own, and the stream goes on to learn them with others."""
    X, y = travelling(200)
    estimator = small(published).partial_fit(X[:90], y[:90])
    flushed = estimator._with_state(estimator._state).flush()
    estimator.partial_fit(X[90:], y[90:])
    with pytest.raises(MapError, match="not an earlier state"):
        wgpr.diff(flushed, estimator)


def test_a_branch_is_no_earlier_state():
    """Two copies that went on with different rows, equally many."""
    X, y = travelling(300)
    base = small(published).partial_fit(X[:100], y[:100])
    one = base._with_state(base._state).partial_fit(X[100:200], y[100:200])
    other = base._with_state(base._state).partial_fit(X[200:], y[200:])
    longer = other._with_state(other._state).partial_fit(X[:100], y[:100])
    for later in (other, longer):
        with pytest.raises(MapError, match="not an earlier state"):
            wgpr.diff(one, later)
    after = wgpr.apply(base, wgpr.diff(base, longer))
    assert after.history_ == ()


def test_a_damaged_difference_is_refused():
    X, y = travelling(200)
    first = small(published).partial_fit(X[:60], y[:60])
    data = wgpr.diff(first, first._with_state(first._state).partial_fit(X[60:], y[60:]))
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = IN_TRANSIT[rng.integers(2)](data, rng)
        with pytest.raises(MapError):
            wgpr.apply(first, damaged)
    with pytest.raises(MapError):
        wgpr.apply(first, b"hello")
    with pytest.raises(MapError, match="the difference has more than 67,108,864 bytes"):
        wgpr.apply(first, zlib.compress(bytes(70_000_000), 1))


# Files

CONVERTED = [f"format2-{name}.map" for name in ("wgpr", "wgpr-compact", "waiting")]


@pytest.mark.parametrize("version", range(1, container.VERSION + 1))
def test_an_old_map_keeps_loading(version):
    """Files of each format as they were first written; what they predict is written beside them."""
    expected = json.loads((FIXTURES / f"format{version}.json").read_text())
    assert expected.keys() == {path.name for path in FIXTURES.glob(f"format{version}-*.map")}
    for name, answers in expected.items():
        estimator = load(FIXTURES / name)
        knew_those_that_wait = version > 1 or not estimator.n_models_
        answering = estimator if knew_those_that_wait else without_waiting_rows(estimator)
        mean, std = answering.predict(queries(), return_std=True)
        assert estimator.n_samples_seen_ == answers["n_seen"]
        if name in CONVERTED:  # most of these queries are far from all rows
            assert np.median(np.abs(mean - answers["mean"]) / answers["std"]) < 0.3
            assert 0.7 < np.median(std / answers["std"]) < 1.3
            assert estimator.n_pending_ == 0
            continue
        np.testing.assert_allclose(mean, answers["mean"], rtol=1e-7)
        np.testing.assert_allclose(std, answers["std"], rtol=1e-6)
        assert estimator.n_pending_ == answers["n_pending"]


@pytest.mark.parametrize("name", ["wgpr", "waiting", "wgpr-compact"])
def test_a_map_of_format_1_means_the_published_settings(name):
    expected = published(threshold=1.0, batch_size=BATCH, n_inducing=10, optimizer_iterations=5, random_state=0)
    assert load(FIXTURES / f"format1-{name}.map").get_params() == expected.get_params()


def with_header(name, path, version=2, settings=(), **header):
    """A fixture with other entries of its header and of the settings there, written to `path`."""
    contents = container.read(FIXTURES / name)
    settings = {**contents.header["settings"], **dict(settings)}
    path.write_bytes(
        container.encode(Contents(contents.header | header | {"settings": settings}, contents.arrays, version))
    )
    return path


def test_the_old_default_becomes_the_new_one(tmp_path):
    """Settings that it no longer has are left out."""
    expected = WGPRegressor(max_models=500, random_state=0).get_params()
    retired = {"n_jobs": 4, "history_size": 7, "thorough": True}
    path = with_header("format2-wgpr.map", tmp_path / "a.map", settings=retired)
    for name in ("wgpr", "wgpr-compact", "waiting"):
        assert load(FIXTURES / f"format2-{name}.map").get_params() == expected
    assert load(path).get_params() == expected
    path = with_header("format2-wgpr.map", tmp_path / "a.map", settings={"forgetting": 0.1, "kernel": "matern32"})
    assert load(path).get_params() == expected | {"forgetting": 0.1, "kernel": "matern32"}


def test_the_calibration_of_format_2_is_kept(tmp_path):
    one, two = (with_header("format2-wgpr.map", tmp_path / f"{n}.map", stretch=n) for n in (1.0, 2.0))
    (mean, std), (same, doubled) = (load(path).predict(queries(), return_std=True) for path in (one, two))
    np.testing.assert_array_equal(same, mean)
    np.testing.assert_allclose(doubled, 2.0 * std)


def test_a_converted_map_goes_on_learning(tmp_path):
    X, y = travelling(600, seed=3)
    for name in ("wgpr", "wgpr-compact", "waiting"):
        estimator = load(FIXTURES / f"format2-{name}.map")
        n_before = estimator.n_samples_seen_
        assert_same_learning(saved_and_loaded(estimator, tmp_path), estimator)
        error = estimator.partial_fit(X, y).predict(X) - y
        assert estimator.n_samples_seen_ == n_before + 600
        assert np.sqrt((error**2).mean()) < 0.5


def test_converted_models_say_the_same_where_they_know_something():
    """The posterior at the pseudo-inputs of each model, which the map of format 2 holds."""
    name = FIXTURES / "format2-wgpr-compact.map"
    arrays, estimator = container.read(name).arrays, load(name)
    learner = SparseLearner(RationalQuadratic(1.0))
    for model in unpack_models(arrays, learner, 2, (), compact=True):
        mean, variance = model.predict(model.inputs)
        Z = estimator.units_.inputs_for_user(model.inputs)
        _, observed, field, _ = estimator.predict_with_owners(Z)
        scale, offset = estimator.units_.target_scale, estimator.units_.target_offset
        error = (estimator.predict(Z) - offset - scale * mean) / observed
        assert np.median(np.abs(error)) < 0.35
        assert 0.7 < np.median(field / (scale * np.sqrt(variance))) < 1.3


@pytest.mark.parametrize(
    ("name", "version", "settings", "expected"),
    [
        ("format1-wgpr.map", 1, {"splitting": "evidence"}, {"splitting": "evidence", "threshold": "auto"}),
        ("format2-published.map", 2, {"splitting": "always"}, {"splitting": "always", "threshold": "auto"}),
        ("format2-published.map", 2, {"forgetting": 0.1, "max_inducing": 9}, {"forgetting": 0.0}),
        ("format2-published.map", 2, {"batching": "regional", "buffer_size": 300}, {"batch_size": 20}),
        ("format2-published.map", 2, {"prediction": "joined"}, {"prediction": "nearest"}),
        ("format2-published.map", 2, {"threshold": "auto"}, {"splitting": "evidence", "threshold": "auto"}),
    ],
)
def test_old_settings_without_effect_are_left_out(name, version, settings, expected, tmp_path):
    estimator = load(with_header(name, tmp_path / "a.map", version, settings))
    assert expected.items() <= estimator.get_params().items()
    np.testing.assert_array_equal(estimator.predict(queries()), load(FIXTURES / name).predict(queries()))


def test_unknown_settings_are_refused(tmp_path):
    for version, name in [(2, "colour"), (container.VERSION, "n_jobs")]:
        path = with_header("format2-sparse.map", tmp_path / "a.map", version, {name: 1})
        with pytest.raises(MapError, match=r"a\.map is damaged") as caught:
            load(path)
        assert name in str(caught.value.__cause__)


def outcome_of(data, path):
    path.write_bytes(data)
    try:
        return load(path)
    except MapError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message
    return None


@pytest.mark.parametrize("compact", [False, True], ids=["full", "compact"])
@pytest.mark.parametrize("damage", IN_TRANSIT, ids=lambda damage: damage.__name__)
@every_estimator
def test_a_damaged_file_is_refused_or_harmless(regressor, damage, compact, tmp_path):
    estimator = fitted(regressor)
    data, rng = estimator.to_bytes(compact=compact), np.random.default_rng(0)
    whole = outcome_of(data, tmp_path / "whole.map")
    for _ in range(20):
        loaded = outcome_of(damage(data, rng), tmp_path / "damaged.map")
        if loaded is not None:
            assert_same_models(loaded.models_, whole.models_)
            assert loaded.get_params() == whole.get_params()


@pytest.mark.parametrize("damage", FORGED, ids=lambda damage: damage.__name__)
@every_estimator
def test_a_forged_file_is_refused_or_answers(regressor, damage, tmp_path):
    data, rng = fitted(regressor).to_bytes(), np.random.default_rng(0)
    for _ in range(30):
        loaded = outcome_of(damage(data, rng), tmp_path / "forged.map")
        if loaded is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # numbers may be forged to 1e300
                assert loaded.predict(queries(n_features=loaded.n_features_in_)).shape[0] == 25
            assert all(record.decision in ("new", "update", "both") for record in loaded.history_)


def assert_refused(contents, name, value, message, path):
    """A map is refused if the first number of an array is another one, or the array is missing."""
    arrays = {key: array.copy() for key, array in contents.arrays.items()}
    if value is None:
        del arrays[name]
    else:
        arrays[name].flat[0] = value
    path.write_bytes(container.encode(contents._replace(arrays=arrays)))
    with pytest.raises(MapError, match=f"a.map is damaged.*{message}"):
        load(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_inputs", 0, "array n_inputs"),
        ("n_inputs", 2**62, "array inputs"),
        ("n_seen", 0, "array n_seen"),
        ("n_summary", 16, "array n_summary"),
        ("inputs", 1e300, "array inputs"),
        ("theta", -1.0, "array theta"),
        ("L", 0.0, "array L"),
        ("L", 1e-300, "array L"),  # a mean would overflow
        ("L_B", -1.0, "array L_B"),
        ("alpha", np.nan, "array alpha"),
        ("R", None, "no array R"),
        ("step_seconds", np.nan, "array step_seconds"),
        ("step_changes", -1, "array changes"),
        ("waiting_X", np.inf, "array waiting_X"),
        ("waiting_weights", 0.0, "array waiting_weights"),
    ],
)
def test_an_array_that_makes_no_sense_is_refused(name, value, message, tmp_path):
    contents = encode_estimator(streamed(published), compact=False)
    assert_refused(contents, name, value, message, tmp_path / "a.map")


@cache
def many_territories():
    """Some territories of 700 rows in 2 dimensions, with a few rows in each that were not looked at yet."""
    X, y = rough(700)
    return WGPRegressor(random_state=0).partial_fit(X, y)


def rough(n, seed=0, n_outputs=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, 2))
    X[:, 0] = np.linspace(0.0, 0.005 * n, n)
    y = np.sin(3.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.01 * rng.normal(size=n)
    return X, y if n_outputs is None else np.stack([y + X[:, 0], 3.0 * y * X[:, 1]], axis=1)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_inputs", None, "list of models"),
        ("n_inputs", 0, "array n_inputs"),
        ("n_inputs", 2**62, "array inputs"),
        ("n_seen", -1, "array n_seen"),
        ("n_known", 10**6, "array n_known"),
        ("visited", 10**6, "array visited"),
        ("inputs", 1e300, "array inputs"),
        ("values", np.nan, "array values"),
        ("precision", 0.0, "array precision"),
        ("precision", 1e200, "array precision"),
        ("is_row", None, "array is_row"),
        ("theta", -1.0, "array theta"),
        ("theta", 1e100, "array theta"),
        ("mean", np.inf, "array mean"),
        ("spread", -1.0, "array spread"),
        ("centre", np.nan, "array centre"),
        ("cut_nodes", None, "no array cut_nodes"),
        ("cut_nodes", -3, "array cut_nodes"),
        ("cut_nodes", 0, "array cut_nodes"),
        ("cut_counts", 0, "array cut_positions"),
        ("cut_positions", np.nan, "array cut_positions"),
        ("error_counts", -1.0, "array error_counts"),
    ],
)
def test_a_territory_that_makes_no_sense_is_refused(name, value, message, tmp_path):
    contents = encode_estimator(many_territories(), compact=False)
    assert_refused(contents, name, value, message, tmp_path / "a.map")


def test_hostile_trees_are_refused():
    def unpacked(nodes, counts, positions, n_models=3):
        arrays = {"cut_nodes": nodes, "cut_counts": counts, "cut_positions": positions}
        kinds = {"cut_nodes": np.int64, "cut_counts": np.int64, "cut_positions": np.float64}
        return unpack_cuts({name: np.array(arrays[name], dtype=kinds[name]) for name in arrays}, 2, n_models)

    assert unpacked([-1, 2, -2, 0, 1], [1, 1], [1.0, 2.0]) == Cuts(0, (1.0,), (2, Cuts(1, (2.0,), (0, 1))))
    for nodes, counts, positions in [
        ([-1, 2, -2, 0, 0], [1, 1], [1.0, 2.0]),  # a territory twice
        ([-1, 2, -2, 0, 3], [1, 1], [1.0, 2.0]),  # one that does not exist
        ([-1, 0, 1], [1], [1.0]),  # one is missing
        ([-1, 2, -3, 0, 1], [1, 1], [1.0, 2.0]),  # no such axis
        ([-1, 0, 1, 2], [2], [2.0, 1.0]),  # decreasing positions
        ([-1, 0, 1, 2], [2], [1.0]),  # too few positions
        ([-1, 0, 1, 2, -2], [1, 1], [1.0, 2.0]),  # a cut behind the end
        ([0, -1, 1, -2, 2], [1, 1], [1.0, 2.0]),  # two trees
        ([], [], []),
    ]:
        with pytest.raises((MapError, ValueError)):
            unpacked(nodes, counts, positions)
    n = 20_000
    deep = [code for number in range(n) for code in (-1, number)] + [n]
    with pytest.raises(MapError):
        unpacked(deep, [1] * n, np.arange(n), n_models=n + 1)


# Territories


@cache
def _merging_and_forgetting(n_outputs, n_rows):
    """A pickled estimator that has learned the first of 600 rows of different weight."""
    X, y = rough(600, n_outputs=n_outputs)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 600)
    estimator = WGPRegressor(max_models=2, forgetting=0.01, random_state=0)
    return pickle.dumps(estimator.partial_fit(X[:n_rows], y[:n_rows], weights[:n_rows]))


@pytest.mark.parametrize(("n_before", "n_outputs"), [(19, None), (20, 2), (333, None), (333, 2)])
def test_territories_go_on_as_if_there_had_been_no_break(n_before, n_outputs, tmp_path):
    X, y = rough(600, n_outputs=n_outputs)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 600)
    whole, parts = (pickle.loads(_merging_and_forgetting(n_outputs, n)) for n in (600, n_before))
    assert any(record.merged for record in whole.history_)
    assert_same_learning(saved_and_loaded(parts, tmp_path), parts)
    parts = load(tmp_path / "a.map")
    parts.partial_fit(X[n_before:], y[n_before:], weights[n_before:])
    assert_same_learning(parts, whole)
    for name in ("centres", "log_thetas", "spreads", "grounds"):
        found, expected = (getattr(each._state.ensemble.overview, name) for each in (parts, whole))
        np.testing.assert_array_equal(found, expected)
    assert parts._state.ensemble.cuts == whole._state.ensemble.cuts
    np.testing.assert_array_equal(parts._state.calibration.counts, whole._state.calibration.counts)


def test_the_kernel_is_that_of_the_territories(tmp_path):
    X, y = rough(100)
    estimator = WGPRegressor(kernel="matern32").fit(X, y)
    assert_same_learning(saved_and_loaded(estimator.set_params(kernel="rq"), tmp_path), estimator)


def test_settings_of_another_method_are_not_saved():
    with pytest.raises(MapError, match="another method"):
        fitted(WGPRegressor).set_params(threshold=3.0).to_bytes()


def test_a_compact_map_of_few_rows_holds_them_all(tmp_path):
    compact = saved_and_loaded(streamed(WGPRegressor, 7), tmp_path, compact=True)
    assert (compact.n_models_, compact.n_samples_seen_) == (1, 7)
    expected = streamed(WGPRegressor, 7).predict(queries())
    np.testing.assert_allclose(compact.predict(queries()), expected, atol=1e-5 * np.ptp(expected))


@pytest.mark.parametrize(("n_outputs", "max_models"), [(None, None), (2, 4)])
def test_differences_after_divisions_and_merges(max_models, n_outputs, tmp_path):
    X, y = rough(1200, n_outputs=n_outputs)
    estimator = WGPRegressor(max_models=max_models, random_state=0).partial_fit(X[:500], y[:500])
    ashore = saved_and_loaded(estimator, tmp_path, compact=True)
    for start, stop in itertools.pairwise((500, 501, 600, 900, 1200)):
        before = estimator._with_state(estimator._state)
        estimator.partial_fit(X[start:stop], y[start:stop])
        ashore = wgpr.apply(ashore, wgpr.diff(before, estimator))
        mean, std = estimator.predict(X[::4], return_std=True)
        ashore_mean, ashore_std = ashore.predict(X[::4], return_std=True)
        np.testing.assert_allclose(ashore_mean, mean, atol=1e-4 * np.ptp(mean))
        np.testing.assert_allclose(ashore_std, std, rtol=5e-3)  # a row on a rounded cut may change its owner
        assert ashore._state.ensemble.n_learned == estimator._state.ensemble.n_learned
    assert max_models is None or any(record.merged for record in estimator.history_)
    again = ashore.partial_fit(*rough(300, seed=5, n_outputs=n_outputs))
    assert again.n_samples_seen_ == 1500


def test_a_difference_after_a_merge_gives_territories_other_numbers():
    before = many_territories()._state.ensemble
    learning = Learning(before, TerritorySettings(before.kernel), 0)
    first, second = next(pair for pair in learning._oldest_pairs() if max(pair) < len(before) - 1)
    low, high = sorted((first, second))
    learning._merge(first, second)
    after = learning.territories()
    applied = apply_difference(before, pack_difference(before, after), 2, (), len(after), before.n_learned)
    assert [number for number, model in enumerate(applied.models) if model is not after.models[number]] == [low]
    assert after.models[high] is before.models[-1]
    both = after.models[low]
    np.testing.assert_allclose(applied.overview.centres, after.overview.centres, rtol=1e-6)
    np.testing.assert_allclose(applied.overview.grounds, after.overview.grounds, rtol=1e-6)
    np.testing.assert_allclose(applied.models[low].data.Z, both.data.Z, rtol=1e-6)


def test_a_compact_map_of_a_spike_with_next_to_no_weight(tmp_path):
    X, y = rough(300)
    y[[40, 250]] += 1e14
    estimator = WGPRegressor().fit(X, y)
    assert min(model.data.precision.min() for model in estimator.models_) < np.finfo(np.float32).tiny
    compact, expected = saved_and_loaded(estimator, tmp_path, compact=True), estimator.predict(X)
    np.testing.assert_allclose(compact.predict(X), expected, atol=1e-3)
    assert np.abs(expected).max() < 2.0


def test_a_difference_of_one_territory_is_small():
    before = many_territories()
    X, y = rough(20, seed=9)
    sizes = [len(wgpr.diff(before, before._with_state(before._state).partial_fit(X[:n], y[:n]))) for n in (1, 20)]
    assert len(wgpr.diff(before, before)) < 300
    assert max(sizes) < 2500


def test_territories_that_did_not_change_stay_the_same_objects():
    before = many_territories()
    after = before._with_state(before._state).partial_fit(*rough(1, seed=9))
    applied = wgpr.apply(before, wgpr.diff(before, after))
    changed = [number for number, model in enumerate(applied.models_) if model is not before.models_[number]]
    assert len(changed) == 1
    assert len(applied.models_) > 2


def test_a_branch_of_territories_is_no_earlier_state():
    X, y = rough(900)
    base = many_territories()
    one = base._with_state(base._state).partial_fit(X, y)
    other = base._with_state(base._state).partial_fit(X[::-1], y[::-1])
    with pytest.raises(MapError, match="not an earlier state"):
        wgpr.diff(one, other)
    with pytest.raises(MapError, match="not an earlier state"):
        wgpr.diff(one, base)
    with pytest.raises(MapError, match="not made for this map"):
        wgpr.apply(one, wgpr.diff(base, other))


def test_a_forged_difference_is_refused_or_answers():
    before, rng = many_territories(), np.random.default_rng(0)
    after = before._with_state(before._state).partial_fit(*rough(300, seed=9))
    data = zlib.decompress(wgpr.diff(before, after))
    for _ in range(100):
        forged = FORGED[rng.integers(2)](data, rng)
        try:
            applied = wgpr.apply(before, zlib.compress(forged))
        except MapError:
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            assert applied.predict(queries()).shape == (25,)


def test_foreign_files_are_told_apart(tmp_path):
    path = tmp_path / "a.map"
    for data, message in [
        (b"", "not a map"),
        (b"lon,lat,depth\n1,2,3\n", "not a map"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00{}", "truncated"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{}", "not a map"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{]", "damaged"),
        (b'\x23\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"wgpr-map":"x y"}}', "damaged"),
        (os.urandom(4096), "not a map|truncated|damaged"),
    ]:
        path.write_bytes(data)
        with pytest.raises(MapError, match=message):
            load(path)
    with pytest.raises(FileNotFoundError, match=r"there is no .*nothing\.map; check the name and the folder"):
        load(tmp_path / "nothing.map")


def test_a_newer_format_asks_for_a_newer_program(tmp_path):
    contents = encode_estimator(fitted(published), compact=False)
    (tmp_path / "new.map").write_bytes(container.encode(contents._replace(version=container.VERSION + 1)))
    with pytest.raises(MapError, match=r"newer wgpr.*upgrade wgpr"):
        load(tmp_path / "new.map")


def test_a_setting_of_a_newer_release_asks_for_that(tmp_path):
    path = with_header("format2-sparse.map", tmp_path / "a.map", container.VERSION, {"colour": 1}, wgpr="99.0.1")
    with pytest.raises(MapError, match=r"written by wgpr 99.0.1, this is \d.*upgrade wgpr"):
        load(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    estimator = fitted(published)
    estimator.save(tmp_path / "a.map")
    with pytest.raises(MapError, match="max_bytes"):
        load(tmp_path / "a.map", max_bytes=1000)
    with open(tmp_path / "huge.map", "wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(MapError, match="max_bytes"):
        load(tmp_path / "huge.map")


def test_a_file_takes_no_more_memory_than_it_has_bytes(tmp_path):
    fitted(published).save(tmp_path / "a.map")
    tracemalloc.start()
    try:
        load(tmp_path / "a.map")
        assert tracemalloc.get_traced_memory()[1] < 1e8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["mean", "std_factor", "target_scale"])
def test_numbers_that_would_overflow_are_refused(name, tmp_path):
    contents = container.decode(fitted(published).to_bytes())
    arrays, header = {**contents.arrays}, {**contents.header}
    if name == "mean":
        arrays["mean"] = np.full_like(arrays["mean"], 1e300)
    elif name == "std_factor":
        header["std_factor"] = 1e300
    else:
        header["units"] = {**header["units"], "target_scale": 1e300}
    (tmp_path / "a.map").write_bytes(container.encode(contents._replace(header=header, arrays=arrays)))
    with pytest.raises(MapError, match=r"a.map is damaged: its .* makes no sense; use a backup"):
        load(tmp_path / "a.map")


def test_a_long_header_is_refused_before_it_is_parsed(tmp_path):
    head = b'{"x":[' + b"[]," * 6_000_000 + b"0]}"
    (tmp_path / "long.map").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(MapError, match=r"long.map is truncated or damaged; use a backup"):
        load(tmp_path / "long.map")


def test_deep_json_is_refused(tmp_path):
    head = b'{"__metadata__":' + b"[" * 100_000
    (tmp_path / "deep.map").write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(MapError, match="damaged"):
        load(tmp_path / "deep.map")


def test_loading_runs_no_code(tmp_path):
    """No module is imported by a name that stands in the file, and nothing is unpickled."""
    fitted(published).save(tmp_path / "a.map")
    program = (
        "import sys, pickle; from wgpr import load; pickle.loads = pickle.load = pickle.Unpickler = None; "
        f"before = set(sys.modules); load({str(tmp_path / 'a.map')!r}); "
        "assert not any('wgpr' not in name for name in set(sys.modules) - before), set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Writing


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.map"
    fitted(published).save(path)
    before = path.read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        fitted(wgpr.StreamingGPRegressor).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_saving_keeps_permissions_and_links(tmp_path):
    path, link = tmp_path / "a.map", tmp_path / "link.map"
    fitted(published).save(path)
    path.chmod(0o640)
    link.symlink_to(path)
    fitted(wgpr.StreamingGPRegressor).save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert type(load(path)) is wgpr.StreamingGPRegressor


def test_only_ordinary_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="name a"):
            fitted(published).save(place)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_saving_into_no_folder_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        fitted(published).save(tmp_path / "nowhere" / "a.map")


def test_all_estimators_can_be_loaded():
    assert {type(kind()).__name__ for kind in ALL} == set(ESTIMATORS)
