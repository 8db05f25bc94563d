"""Whole groups are held out or none of them, data are found or it is said where, and OpenML's are like the files'."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import Bunch

from reproduction.datasets import DATASETS, ON_OPENML, Dataset, _stretches, load

N_ROWS = {
    "kin40k": 10_000,
    "sarcos": 4449,
    "abalone": 4177,
    "pumadyn": 8192,
    "opinicon": 20_038,
    "tzibana": 7043,
    "tzibana-raw": 7971,
    "motorcycle": 133,
}
every_dataset = pytest.mark.parametrize("name", DATASETS)
on_openml = pytest.mark.parametrize("name", ON_OPENML)


def numbered(groups, is_stream):
    """Rows whose target is their number, and whose input is twice that."""
    y = np.arange(float(len(groups)))
    return Dataset("numbered", 2 * y[:, None], y, np.empty((0, 1)), np.empty(0), np.asarray(groups), is_stream)


# Whole groups

a_split = given(
    groups=st.lists(st.integers(0, 12), min_size=2, max_size=80).filter(lambda groups: len(set(groups)) > 1),
    test_part=st.floats(0.0, 1.0),
    seed=st.integers(0, 1000),
    is_stream=st.booleans(),
)


@a_split
def test_no_group_is_on_both_sides_and_no_row_is_lost(groups, test_part, seed, is_stream):
    data = numbered(groups, is_stream)
    split = data.split(seed, test_part, whole_groups=True)
    held = data.groups[split.y_test.astype(int)]
    assert sorted([*split.y, *split.y_test]) == data.y.tolist()
    assert not set(held) & set(split.groups)
    assert len(split.y) > 0
    np.testing.assert_array_equal(split.groups, data.groups[split.y.astype(int)])
    np.testing.assert_array_equal(split.X[:, 0], 2 * split.y)
    np.testing.assert_array_equal(split.X_test[:, 0], 2 * split.y_test)


@a_split
def test_what_is_held_out_is_one_group_or_not_too_much(groups, test_part, seed, is_stream):
    data = numbered(groups, is_stream)
    held = data.split(seed, test_part, whole_groups=True).y_test
    n_groups = len(set(data.groups[held.astype(int)]))
    assert n_groups >= 1
    assert n_groups == 1 or len(held) <= test_part * len(groups)


def test_groups_are_held_out_until_the_part_is_full():
    split = numbered(np.repeat(np.arange(20), 5), is_stream=True).split(0, 0.2, whole_groups=True)
    assert len(split.y_test) == 20
    assert len(split.y) == 80


def test_one_group_is_left_to_learn_from():
    split = numbered(np.repeat(np.arange(3), 5), is_stream=True).split(0, 1.0, whole_groups=True)
    assert (len(split.y), len(split.y_test)) == (5, 10)


def test_every_group_is_held_out_sooner_or_later():
    data = numbered(np.repeat([3, 8, 5, 1], [4, 9, 2, 6]), is_stream=True)
    held = [set(data.groups[data.split(seed, 0.3, whole_groups=True).y_test.astype(int)]) for seed in range(40)]
    assert set.union(*held) == {1, 3, 5, 8}


@pytest.mark.parametrize("whole_groups", [False, True])
def test_a_stream_keeps_its_order_and_other_rows_are_shuffled(whole_groups):
    groups = np.repeat(np.arange(10), 6)
    assert (np.diff(numbered(groups, is_stream=True).split(0, whole_groups=whole_groups).y) > 0).all()
    assert (np.diff(numbered(groups, is_stream=False).split(0, whole_groups=whole_groups).y) < 0).any()


@pytest.mark.parametrize("whole_groups", [False, True])
def test_the_seed_decides_the_split(whole_groups):
    data = numbered(np.repeat(np.arange(10), 6), is_stream=False)
    first, same, other = (data.split(seed, whole_groups=whole_groups) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.y, same.y)
    np.testing.assert_array_equal(first.y_test, same.y_test)
    assert set(first.y_test) != set(other.y_test)


def test_one_group_cannot_be_split():
    with pytest.raises(ValueError, match="groups must be at least 2"):
        numbered([7, 7, 7], is_stream=True).split(0, whole_groups=True)


# Stretches

segments = st.lists(st.integers(1, 60), min_size=1, max_size=8).map(
    lambda lengths: np.repeat(np.arange(len(lengths)) * 10 + 3, lengths)
)


@given(segments, st.integers(1, 25))
def test_no_stretch_is_too_long_or_crosses_a_segment(segments, n_rows):
    stretches = _stretches(segments, n_rows)
    assert np.bincount(stretches).max() <= n_rows
    assert all(len(set(segments[stretches == stretch])) == 1 for stretch in stretches)


@given(segments, st.integers(1, 25))
def test_stretches_are_numbered_as_they_come(segments, n_rows):
    stretches = _stretches(segments, n_rows)
    assert stretches[0] == 0
    assert set(np.diff(stretches)) <= {0, 1}


@given(segments, st.integers(1, 25))
def test_a_segment_is_cut_into_as_few_equal_parts_as_possible(segments, n_rows):
    stretches = _stretches(segments, n_rows)
    for segment in set(segments):
        _, lengths = np.unique(stretches[segments == segment], return_counts=True)
        assert len(lengths) == -(-lengths.sum() // n_rows)
        assert np.ptp(lengths) <= 1


# What is not there


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("OpenML was asked")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of kin40k, .*motorcycle, got 'sarkos'"):
        load("sarkos", tmp_path)


@every_dataset
@pytest.mark.usefixtures("_no_network")
def test_a_missing_file_is_named_with_its_folder_and_the_remedy(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert DATASETS[name][0] in message
    assert str(tmp_path) in message
    assert "name the folder that holds it" in message
    assert ("OpenML" in message) == (name in ("abalone", "sarcos"))


@every_dataset
@pytest.mark.usefixtures("_no_network")
def test_without_a_folder_there_are_no_files(name):
    with pytest.raises(FileNotFoundError, match=rf"{DATASETS[name][0]} .*name the folder that holds it"):
        load(name)


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"abalone", "sarcos"}))
@pytest.mark.usefixtures("_no_network")
def test_what_is_not_public_is_not_fetched(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="name the folder that holds it"):
        load(name, tmp_path, fetch=True)


# What is on OpenML


def openml(monkeypatch, data, target):
    """Make OpenML answer this, as `fetch_openml` would; the list of what it was asked."""
    asked = []

    def fetch_openml(*, data_id, as_frame, parser):
        asked.append(data_id)
        assert as_frame
        return Bunch(data=data, target=target, frame=pd.concat([data, target], axis=1), DESCR="")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    return asked


def openml_abalone(sex, measurements, rings):
    names = ["length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight"]
    frame = pd.DataFrame(measurements, columns=names)
    frame.insert(0, "sex", pd.Categorical(sex, categories=["F", "I", "M"]))
    return frame, pd.Series(np.asarray(rings, dtype=int), name="rings")


def openml_sarcos(rows):
    frame = pd.DataFrame(rows, columns=[f"V{number}" for number in range(1, rows.shape[1] + 1)])
    return frame.drop(columns="V22"), frame["V22"]


def test_abalone_of_openml_has_the_sexes_as_numbers(monkeypatch):
    measurements = np.random.default_rng(0).uniform(size=(4, 7))
    asked = openml(monkeypatch, *openml_abalone(["M", "F", "I", "M"], measurements, [15, 7, 9, 10]))
    data = load("abalone", fetch=True)
    assert asked == [44956]
    np.testing.assert_array_equal(data.X, np.column_stack([[1.0, -1.0, 0.0, 1.0], measurements]))
    np.testing.assert_array_equal(data.y, [15.0, 7.0, 9.0, 10.0])
    assert data.X.dtype == data.y.dtype == np.float64
    assert not data.is_stream
    assert len(set(data.groups)) == 4
    assert data.X_test.shape == (0, 8)


@pytest.mark.parametrize("n_torques", [1, 7])
def test_sarcos_of_openml_is_every_tenth_of_the_distinct_rows(monkeypatch, n_torques):
    distinct = np.random.default_rng(0).normal(size=(2345, 21 + n_torques))
    some_again = np.concatenate([distinct[:1500], distinct[300:607], distinct[1500:], distinct[2:1000:7]])
    asked = openml(monkeypatch, *openml_sarcos(some_again))
    data = load("sarcos", fetch=True)
    assert asked == [44976]
    np.testing.assert_array_equal(data.X, distinct[::10, :21])
    np.testing.assert_array_equal(data.y, distinct[::10, 21])
    assert data.is_stream
    assert np.bincount(data.groups).tolist() == [100, 100, 35]
    assert data.y_test.shape == (0,)


@pytest.mark.parametrize("folder", [None, "empty"])
@on_openml
def test_openml_is_asked_only_if_that_is_wanted(monkeypatch, tmp_path, folder, name):
    asked = openml(monkeypatch, pd.DataFrame(), pd.Series())
    with pytest.raises(FileNotFoundError, match="or fetch it from OpenML"):
        load(name, None if folder is None else tmp_path)
    assert asked == []


@pytest.mark.usefixtures("_no_network")
def test_the_file_is_preferred_to_openml(tmp_path):
    np.savez(tmp_path / "abalone.npz", X=np.ones((5, 8)), y=np.arange(5.0))
    np.savez(tmp_path / "sarcos_4449.npz", X=np.ones((5, 21)), y=np.arange(35.0).reshape(5, 7))
    assert load("abalone", tmp_path, fetch=True).y.tolist() == [0, 1, 2, 3, 4]
    assert load("sarcos", tmp_path, fetch=True).y.tolist() == [0, 7, 14, 21, 28]


def test_openml_stands_in_for_a_missing_file(monkeypatch, tmp_path):
    asked = openml(monkeypatch, *openml_abalone(["I"], np.ones((1, 7)), [3]))
    assert load("abalone", tmp_path, fetch=True).y.tolist() == [3.0]
    assert asked == [44956]


# The real files


@every_dataset
def test_every_dataset_loads(data_folder, name):
    data = load(name, str(data_folder))
    assert data.name == name
    assert data.X.shape == (N_ROWS[name], data.X.shape[1])
    assert data.y.shape == data.groups.shape == (N_ROWS[name],)
    assert data.X_test.shape == (len(data.y_test), data.X.shape[1])
    assert len(data.y_test) == (30_000 if name == "kin40k" else 0)
    assert all(np.isfinite(array).all() for array in (data.X, data.y, data.X_test, data.y_test))


@every_dataset
def test_rows_of_a_group_are_neighbours_in_the_order(data_folder, name):
    groups = load(name, data_folder).groups
    assert len(set(groups)) == 1 + np.count_nonzero(np.diff(groups))


@pytest.mark.parametrize("name", ["kin40k", "abalone", "pumadyn", "motorcycle"])
def test_rows_that_are_unrelated_are_groups_of_their_own(data_folder, name):
    assert len(set(load(name, data_folder).groups)) == N_ROWS[name]


def test_sarcos_has_45_blocks_of_time(data_folder):
    assert np.bincount(load("sarcos", data_folder).groups).tolist() == [100] * 44 + [49]


def test_groups_of_tzibana_are_survey_lines(data_folder):
    with np.load(data_folder / "bathymetry_tzibana.npz") as file:
        line, good = file["line"], ~file["suspect"]
    np.testing.assert_array_equal(load("tzibana-raw", data_folder).groups, line)
    np.testing.assert_array_equal(load("tzibana", data_folder).groups, line[good])
    assert 6 not in line[good]


def test_stretches_of_opinicon_do_not_jump(data_folder):
    data = load("opinicon", data_folder)
    assert 200 < np.bincount(data.groups).max() <= 250
    steps = np.hypot(*np.diff(data.X, axis=0).T)
    assert steps[np.diff(data.groups) == 0].max() < 0.06


def test_abalone_of_openml_is_that_of_the_file(monkeypatch, data_folder):
    with np.load(data_folder / "abalone.npz") as file:
        openml(monkeypatch, *openml_abalone(file["sex"], file["X"][:, 1:], file["y"]))
    file, fetched = load("abalone", data_folder), load("abalone", fetch=True)
    for ours, theirs in [(file.X, fetched.X), (file.y, fetched.y), (file.groups, fetched.groups)]:
        np.testing.assert_array_equal(ours, theirs)
    assert file.is_stream == fetched.is_stream


@every_dataset
def test_whole_groups_of_every_dataset_can_be_held_out(data_folder, name):
    data = load(name, data_folder)
    sizes = [len(data.split(seed, 0.2, whole_groups=True).y_test) / len(data.y) for seed in range(5)]
    assert all(0.1 < size <= 0.2 for size in sizes)
