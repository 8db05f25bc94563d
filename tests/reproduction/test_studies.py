"""The studies of the paper: no row that is scored is learned, no result is lost, and the least error is chosen."""

import doctest
import inspect
import io
import json
import shutil
import subprocess
import threading
from dataclasses import replace
from math import inf, isfinite

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from paper_jobs import count, total
from rich.console import Console
from sklearn.base import clone

from reproduction import __main__ as command
from reproduction import fitting, methods, studies
from reproduction import results as results_module
from reproduction.data import all_rows, trial_data, validation_split
from reproduction.datasets import Dataset, load
from reproduction.fitting import evaluate, fit_stream
from reproduction.jobs import Job, progress_bar, run
from reproduction.methods import EXACT, INTERPOLATION, METHODS, make_lgpr, make_ovfe, make_wgpr, threshold
from reproduction.plan import BATCH_SIZE, DATASETS, FULL, N_CANDIDATES, N_INDUCING, QUICK, TOY
from reproduction.results import Results, ResultsError, commit
from streams import assert_same_learning, queries, travelling
from wgpr import WGPRegressor
from wgpr.estimators.regressors import PREDICTION_RULES

TINY = replace(QUICK, n_trials=1, max_rows=300, max_test_rows=200, toy_seeds=(0,), toy_search_seeds=(100,))
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@pytest.fixture(autouse=True)
def _known_commit(monkeypatch):
    """Every file of results would ask git."""
    monkeypatch.setattr(results_module, "commit", lambda: "c0ffee")


@pytest.fixture
def _small_models(monkeypatch):
    """For tests that do not depend on the number of pseudo-inputs."""
    monkeypatch.setattr(methods, "N_INDUCING", 15)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


@pytest.fixture
def results(path):
    return Results(path, TINY)


def reopened(results):
    return Results(results.path, TINY)


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory):
    """Files like the real ones, of a few hundred rows that are made up."""
    folder = tmp_path_factory.mktemp("data")
    X, y = travelling(330)
    np.savez(
        folder / "bathymetry_tzibana.npz", X_km=X, y=y, line=np.arange(330) // 30, suspect=np.arange(330) % 11 == 5
    )
    X, y = travelling(570, n_features=4, seed=1)
    np.savez(folder / "abalone.npz", X=X[:350], y=y[:350])
    np.savez(folder / "kin40k.npz", X_train=X[:320], y_train=y[:320], X_test=X[320:], y_test=y[320:])
    x = np.linspace(0.0, 10.0, 150)
    np.savez(folder / "motorcycle.npz", X=x, y=np.sin(x) + 0.1 * np.random.default_rng(2).normal(size=150))
    return folder


# Data


def made_up(is_stream=True, n_test=0):
    """Ten lines of 20 to 80 rows."""
    lengths = np.array([20, 40, 60, 80, 30, 50, 70, 35, 25, 45])
    X, y = np.random.default_rng(0).normal(size=(2, lengths.sum() + n_test, 1))
    n, y = lengths.sum(), y[:, 0]
    groups = np.repeat(np.arange(len(lengths)), lengths) if is_stream else np.arange(n)
    return Dataset("made up", X[:n], y[:n], X[n:], y[n:], groups, is_stream)


MADE_UP = {
    "lines": made_up(is_stream=True),
    "unrelated rows": made_up(is_stream=False),
    "established split": made_up(is_stream=False, n_test=333),
}
every_kind = pytest.mark.parametrize("data", MADE_UP.values(), ids=MADE_UP)


def numbered(monkeypatch, data):
    """What is loaded from now on: the same with the number of each row as its target, test rows last."""
    n = len(data.y)
    data = replace(data, y=np.arange(float(n)), y_test=n + np.arange(float(len(data.y_test))))
    monkeypatch.setattr("reproduction.data.load", lambda name, folder, *, fetch: data)
    return data


def numbers(y):
    """Of the rows with these targets; each is there once."""
    found = y.astype(int).tolist()
    assert len(found) == len(set(found))
    return set(found)


def groups_of(data, rows):
    return set(data.groups[sorted(rows)])


def check_trial(data, trial, plan):
    found = trial_data("name", trial, None, plan)
    stream = found.stream
    learned, test, near = (numbers(y) for y in (stream.y, stream.y_test, found.y_near))
    assert learned
    assert test
    assert not learned & test
    assert not learned & near
    assert not test & near
    X = np.concatenate([data.X, data.X_test])
    for rows, y in ((stream.X, stream.y), (stream.X_test, stream.y_test), (found.X_near, found.y_near)):
        np.testing.assert_array_equal(rows, X[y.astype(int)])
    np.testing.assert_array_equal(stream.groups, data.groups[stream.y.astype(int)])
    assert (np.diff(stream.y) > 0).all() == data.is_stream
    assert bool(near) == data.is_stream
    if data.is_stream:
        assert not groups_of(data, learned | near) & groups_of(data, test)
        assert groups_of(data, near) & groups_of(data, learned)
    if not len(data.y_test):
        assert len(learned | test | near) == min(len(data.y), plan.max_rows or inf)


def check_validation_split(data, trial, plan):
    stream = trial_data("name", trial, None, plan).stream
    part = validation_split(stream, trial)
    learned, held = numbers(part.y), numbers(part.y_test)
    assert held
    assert learned
    assert not learned & held
    assert learned | held == numbers(stream.y)
    assert (np.diff(part.y) > 0).all() == data.is_stream
    if data.is_stream:
        assert not groups_of(data, learned) & groups_of(data, held)


@every_kind
@pytest.mark.parametrize("plan", [TINY, FULL], ids=["tiny", "full"])
@pytest.mark.parametrize("trial", range(4))
def test_rows_to_learn_to_validate_and_to_test_are_different(monkeypatch, data, plan, trial):
    data = numbered(monkeypatch, data)
    check_trial(data, trial, plan)
    check_validation_split(data, trial, plan)


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("plan", [QUICK, FULL], ids=["quick", "full"])
def test_the_same_holds_of_every_data_set(monkeypatch, data_folder, name, plan):
    data = numbered(monkeypatch, load(name, data_folder))
    for trial in range(2):
        check_trial(data, trial, plan)
        check_validation_split(data, trial, plan)


@every_kind
def test_the_trial_decides_the_data(monkeypatch, data):
    numbered(monkeypatch, data)
    first, same, other = (trial_data("name", trial, None, TINY) for trial in (0, 0, 1))
    for mine, equal in ((first.stream.y, same.stream.y), (first.stream.y_test, same.stream.y_test)):
        np.testing.assert_array_equal(mine, equal)
    np.testing.assert_array_equal(first.y_near, same.y_near)
    assert first.stream.y.tolist() != other.stream.y.tolist()
    assert first.stream.y_test.tolist() != other.stream.y_test.tolist()


@every_kind
def test_the_trial_decides_what_is_validated(monkeypatch, data):
    numbered(monkeypatch, data)
    stream = trial_data("name", 0, None, TINY).stream
    first, same, other = (validation_split(stream, trial).y_test.tolist() for trial in (0, 0, 1))
    assert first == same
    assert first != other


def test_an_established_split_stays_and_the_trial_decides_the_order(monkeypatch):
    data = numbered(monkeypatch, MADE_UP["established split"])
    streams = [trial_data("name", trial, None, FULL).stream for trial in range(3)]
    for stream in streams:
        np.testing.assert_array_equal(stream.y_test, data.y_test)
        np.testing.assert_array_equal(stream.X_test, data.X_test)
        assert numbers(stream.y) == numbers(data.y)
    assert len({tuple(stream.y) for stream in streams}) == 3


def test_the_test_rows_of_kin40k_stay(data_folder):
    data = load("kin40k", data_folder)
    stream = trial_data("kin40k", 3, data_folder, FULL).stream
    np.testing.assert_array_equal(stream.X_test, data.X_test)
    np.testing.assert_array_equal(stream.y_test, data.y_test)
    np.testing.assert_array_equal(np.sort(stream.y), np.sort(data.y))


def test_of_a_stream_the_first_rows_are_taken_and_of_others_any(monkeypatch):
    numbered(monkeypatch, MADE_UP["lines"])
    assert numbers(all_rows("name", False, None, TINY).y) == set(range(300))
    numbered(monkeypatch, MADE_UP["unrelated rows"])
    some = numbers(all_rows("name", False, None, TINY).y)
    assert len(some) == 300
    assert max(some) > 300


def test_of_established_test_rows_as_many_are_taken_as_the_plan_allows(monkeypatch):
    data = numbered(monkeypatch, MADE_UP["established split"])
    stream = trial_data("name", 0, None, TINY).stream
    assert (len(stream.y), len(stream.y_test)) == (300, 200)
    assert numbers(stream.y_test) < numbers(data.y_test)


@pytest.mark.parametrize("kind", ["lines", "unrelated rows"])
def test_of_rows_held_out_as_many_are_taken_as_the_plan_allows(monkeypatch, kind):
    numbered(monkeypatch, MADE_UP[kind])
    found = trial_data("name", 0, None, replace(FULL, max_test_rows=20))
    assert len(found.stream.y_test) <= 20
    assert len(found.y_near) <= 20


@every_kind
def test_everything_is_in_its_own_order_or_shuffled(monkeypatch, data):
    data = numbered(monkeypatch, data)
    natural, shuffled = (all_rows("name", is_shuffled, None, FULL) for is_shuffled in (False, True))
    np.testing.assert_array_equal(natural.y, data.y)
    assert numbers(shuffled.y) == numbers(data.y)
    assert (np.diff(shuffled.y) < 0).any()


def test_every_other_sample_of_the_toy_is_held_out():
    first, same, other = (trial_data(TOY, seed, None, FULL).stream for seed in (0, 0, 1))
    assert (len(first.y), len(first.y_test)) == (3000, 3000)
    assert (first.X[:, 0] < 150).sum() == 15 * BATCH_SIZE
    assert len(trial_data(TOY, 0, None, TINY).stream.y) == TINY.max_rows
    assert (np.diff(first.X[:, 0]) > 0).all()
    assert not set(first.X[:, 0]) & set(first.X_test[:, 0])
    np.testing.assert_array_equal(first.y, same.y)
    assert not set(first.y) & set(other.y)


# Results


def test_results_survive(results):
    results.add("one", {"dataset": "lake", "trial": 0}, {"rmse": 0.5, "curve": [(1, 2.0)], "nothing": None})
    results.add("two", {"dataset": "lake", "trial": 0}, {"rmse": 0.25})
    again = reopened(results)
    assert len(again) == 2
    assert list(again) == list(results)
    assert next(iter(again)) == (
        "one",
        {"dataset": "lake", "trial": 0},
        {"rmse": 0.5, "curve": [[1, 2.0]], "nothing": None},
        "c0ffee",
    )


def test_results_are_a_table(results):
    scores = {"test": {"rmse": 0.5, "nlpd": None}, "near": None, "settings": {"kernel": "se"}}
    results.add("study", {"method": "a", "value": inf}, scores)
    results.add("study", {"method": "b", "value": 1.0}, {**scores, "near": {"rmse": 2.0}})
    frame = results.of("study")
    assert frame["test.rmse"].tolist() == [0.5, 0.5]
    assert results_module.column(frame, "near.rmse").tolist() == [2.0]
    assert results_module.column(frame, "test.nlpd").tolist() == results_module.column(frame, "unknown").tolist() == []
    assert frame["settings"].tolist() == [{"kernel": "se"}] * 2
    assert frame["value"].tolist() == [inf, 1.0]
    results.add("study", {"method": "c", "value": 2.0}, scores)
    assert len(results.of("study")) == 3


def test_older_files_go_on(results):
    """They name data sets in other words."""
    old = [
        {"study": "tables", "key": {"course": "lake", "trial": 0}, "result": {"rmse": 1.0}, "commit": "a"},
        {"study": "stability", "key": {"data": "lake", "order": "natural"}, "result": {"rmse": 2.0}, "commit": "a"},
    ]
    results.path.write_text(results.path.read_text() + "".join(json.dumps(line) + "\n" for line in old))
    again = reopened(results)
    assert ("tables", {"dataset": "lake", "trial": 0}) in again
    assert ("stability", {"dataset": "lake", "order": "natural"}) in again
    assert again.of("tables", dataset="lake")["rmse"].tolist() == [1.0]


def test_a_result_is_in_the_file_at_once(results):
    for number in range(3):
        results.add("study", {"number": number}, {})
        assert len(reopened(results)) == number + 1


def test_the_order_of_the_key_does_not_matter(results):
    results.add("study", {"a": 1, "b": 2}, {})
    assert ("study", {"b": 2, "a": 1}) in results
    assert ("study", {"a": 2, "b": 1}) not in results
    assert ("other", {"a": 1, "b": 2}) not in results


def test_a_torn_last_line_is_dropped_and_the_file_goes_on(results):
    for number in range(3):
        results.add("study", {"number": number}, {"word": "naïve"})
    content = results.path.read_bytes()
    *kept, last = content.splitlines(keepends=True)
    for length in range(len(last)):
        results.path.write_bytes(b"".join(kept) + last[:length])
        torn = reopened(results)
        assert torn.of("study")["number"].tolist() == [0, 1], f"cut after {length} bytes"
        torn.add("study", {"number": 2}, {"word": "naïve"})
        assert results.path.read_bytes() == content, f"cut after {length} bytes"


@pytest.mark.parametrize("rubbish", ["not JSON", '{"study": "s', "", '{"study": "a"}{"study": "b"}'])
def test_a_line_that_is_no_json_is_named(results, rubbish):
    for number in range(3):
        results.add("study", {"number": number}, {})
    header, first, _, last = results.path.read_text().splitlines()
    results.path.write_text("\n".join([header, first, rubbish, last, ""]))
    with pytest.raises(ResultsError, match=rf"line 3 of {results.path} is no JSON; remove it, or give --fresh"):
        reopened(results)


def test_a_line_that_is_no_text_is_named(results):
    results.add("study", {"number": 0}, {})
    header, line = results.path.read_bytes().splitlines(keepends=True)
    results.path.write_bytes(header + b"\xff\xfe\n" + line)
    with pytest.raises(ResultsError, match=r"line 2 of .* is no JSON"):
        reopened(results)


@pytest.mark.parametrize("rubbish", ["3", "[]", '{"study": "s", "key": {}, "result": {}}'])
def test_a_line_that_is_no_result_is_named(results, rubbish):
    results.path.write_text(results.path.read_text() + rubbish + "\n")
    with pytest.raises(ResultsError, match=r"line 2 of .* is no result; remove it, or give --fresh"):
        reopened(results)


def test_results_of_another_plan_are_refused_and_kept(results):
    results.add("study", {"number": 0}, {})
    content = results.path.read_bytes()
    with pytest.raises(ResultsError, match="another plan; give another folder, or --fresh"):
        Results(results.path, FULL)
    assert results.path.read_bytes() == content


def test_a_file_that_is_no_journal_is_left_alone(path):
    path.write_text("notes without an end of line")
    with pytest.raises(ResultsError):
        Results(path, TINY)
    assert path.read_text() == "notes without an end of line"


@pytest.mark.parametrize("plan", [TINY, QUICK, FULL], ids=["tiny", "quick", "full"])
def test_every_plan_is_recognised(path, plan):
    assert inf in plan.relative_thresholds
    Results(path, plan).add("study", {"number": 0}, {})
    assert len(Results(path, plan)) == 1


def test_infinity_survives_as_a_word(results):
    key = {"method": "WGPR", "value": inf}
    values = {"settings": {"relative_threshold": inf}, "scores": [-inf, 1.0]}
    results.add("study", key, values)
    line = json.loads(results.path.read_text().splitlines()[-1])
    assert line["key"]["value"] == line["result"]["settings"]["relative_threshold"] == "inf"
    for now in (results, reopened(results)):
        assert ("study", key) in now
        assert ("study", {**key, "value": 1.0}) not in now
        (found,) = now
        assert (found.key, found.values) == (key, values)
        assert len(now.of("study", value=inf)) == 1


def test_numpy_scalars_are_written_as_numbers(results):
    result = {"f": np.float64(0.1), "g": np.float32(0.5), "n": np.int64(7), "b": np.bool_(True), "inf": np.float32(inf)}
    results.add("study", {"number": 0}, result)
    line = json.loads(results.path.read_text().splitlines()[-1])
    assert line["result"] == {"f": 0.1, "g": 0.5, "n": 7, "b": True, "inf": "inf"}
    assert line["result"]["b"] is True


def test_results_are_found_by_parts_of_their_key(results):
    for study in ("one", "two"):
        for dataset in ("lake", "arm"):
            for trial in range(3):
                results.add(study, {"dataset": dataset, "trial": trial}, {})
    assert len(results.of("one")) == 6
    assert len(results.of("one", dataset="lake")) == 3
    assert results.of("two", dataset="arm", trial=2).to_dict("records") == [{"dataset": "arm", "trial": 2}]
    assert results.of("one", dataset="sea").empty
    assert results.of("one", colour="blue").empty
    assert results.of("three", dataset="lake").empty


def test_the_same_key_again_replaces_the_result(results):
    for rmse in (1.0, 2.0):
        results.add("study", {"number": 0}, {"rmse": rmse})
    for now in (results, reopened(results)):
        assert now.of("study")["rmse"].tolist() == [2.0]


def test_the_header_tells_plan_and_versions(results):
    header = json.loads(results.path.read_text())
    assert header["plan"]["name"] == "quick"
    assert header["versions"]["numpy"] == np.__version__


def test_the_commit_of_most_results_comes_first(results):
    for number, name in enumerate(["a", "b", "b"]):
        results.commit = name
        results.add("study", {"number": number}, {})
    assert reopened(results).commits == ["b", "a"]


def test_the_code_has_a_name():
    assert commit().strip()


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")])
def test_outside_a_checkout_the_code_has_a_version(monkeypatch, error):
    def refuse(*args, **kwargs):
        raise error

    monkeypatch.setattr(results_module, "check_output", refuse)
    assert commit().startswith("version ")
    assert commit() != "version "


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with the module of the results in it."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")

    def git(*arguments):
        who = ["-c", "user.name=me", "-c", "user.email=me@here"]
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True)

    for name in ("reproduction/results.py", "reproduction/jobs.py", "src/wgpr/ensemble.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    monkeypatch.setattr(results_module, "__file__", str(tmp_path / "reproduction" / "results.py"))
    return tmp_path


@pytest.mark.parametrize("name", ["reproduction/jobs.py", "src/wgpr/ensemble.py"])
def test_changed_code_has_a_plus_sign(checkout, name):
    unchanged = commit()
    assert len(unchanged) == 10
    (checkout / "look").mkdir()
    (checkout / "look" / "results.jsonl").write_text("not code")
    assert commit() == unchanged
    (checkout / name).write_text("changed")
    assert commit() == unchanged + "+"


def test_numbers_are_written_with_three_digits():
    done = doctest.testmod(results_module)
    assert done.attempted
    assert not done.failed


# Jobs


def counting(n_jobs, **others):
    return [Job("counting", {"number": number}, count, cost=float(number), **others) for number in range(n_jobs)]


def counted(folder):
    return sorted(map(int, (folder / "log").read_text().split())) if (folder / "log").exists() else []


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("first", "second")]
    for folder in made:
        folder.mkdir()
    return made


def contents(results):
    return sorted((found.study, json.dumps(found.key), json.dumps(found.values)) for found in results)


def test_only_what_is_not_done_is_done(results, folders):
    first, second = folders
    assert run(counting(3), results, folder=first, n_jobs=1) == []
    assert counted(first) == [0, 1, 2]
    assert run(counting(5), reopened(results), folder=second, n_jobs=1) == []
    assert counted(second) == [3, 4]
    squares = reopened(results).of("counting").set_index("number")["square"]
    assert squares.to_dict() == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}


def test_the_longest_is_done_first(results, tmp_path):
    run(counting(5), results, folder=tmp_path, n_jobs=1)
    assert (tmp_path / "log").read_text().split() == ["4", "3", "2", "1", "0"]


def test_jobs_that_need_results_come_after_the_others(results, tmp_path):
    def sum_of_squares(results):
        return int(results.of("counting")["square"].sum())

    last = Job("total", {}, total, cost=100.0, from_results={"total": sum_of_squares})
    run([last, *counting(5)], results, folder=tmp_path, n_jobs=1)
    assert results.of("total").to_dict("records") == [{"total": 30, "plan": "quick"}]


def test_a_job_that_fails_does_not_stop_the_others_and_is_tried_again(results, folders):
    first, second = folders
    (first / "broken").touch()
    failures = run(counting(6), results, folder=first, n_jobs=1)
    assert [(failure.job.key, failure.reason) for failure in failures] == [({"number": 3}, "ValueError: 3 is broken")]
    assert reopened(results).of("counting")["number"].tolist() == [5, 4, 2, 1, 0]
    assert run(counting(6), results, folder=second, n_jobs=1) == []
    assert counted(second) == [3]
    assert ("counting", {"number": 3}) in reopened(results)


def test_progress_is_told_of_every_job(results, tmp_path):
    (tmp_path / "broken").touch()
    told = []
    run(counting(5), results, folder=tmp_path, n_jobs=1, progress=told.append)
    assert sorted(job.key["number"] for job in told) == [0, 1, 2, 3, 4]


def test_the_number_of_cores_does_not_change_the_results(tmp_path):
    journals = [Results(tmp_path / f"{n_jobs}.jsonl", TINY) for n_jobs in (1, 2)]
    for n_jobs, results in enumerate(journals, start=1):
        run(counting(8), results, folder=tmp_path, n_jobs=n_jobs)
    assert contents(journals[0]) == contents(journals[1])
    assert counted(tmp_path) == sorted([*range(8), *range(8)])


@pytest.mark.filterwarnings("ignore:.*limit unnecessary computation time")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of an aborted task
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupted_run_goes_on_where_it_stopped(results, folders, n_jobs):
    first, second = folders
    told = []

    def interrupt(job):
        told.append(job)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(counting(10), results, folder=first, n_jobs=n_jobs, progress=interrupt)
    rest = reopened(results)
    assert [found.key for found in rest] == [job.key for job in told]
    run(counting(10), rest, folder=second, n_jobs=1)
    assert counted(second) == sorted(set(range(10)) - {job.key["number"] for job in told})
    assert len(reopened(results)) == 10


def test_a_job_whose_needs_have_failed_does_not_stop_the_others(results, tmp_path):
    def nothing_there(results):
        raise ValueError("no fits")

    orphan = Job("total", {}, total, cost=2.5, from_results={"total": nothing_there})
    failures = run([orphan, *counting(5)], results, folder=tmp_path, n_jobs=1)
    assert [failure.reason for failure in failures] == ["ValueError: no fits"]
    assert counted(tmp_path) == [0, 1, 2, 3, 4]


def test_results_are_not_read_while_they_are_written(results, tmp_path):
    threads = set()

    def remember(results):
        threads.add(threading.current_thread())
        return tmp_path

    jobs = [replace(job, from_results={"folder": remember}) for job in counting(30)]
    with parallel_config(backend="threading"):
        run(jobs, results, folder=tmp_path, n_jobs=2)
    assert len(results) == 30
    assert threads == {threading.main_thread()}


def test_progress_shows_the_time_left_by_the_cost_of_what_is_left(results):
    jobs = [Job("study", {"number": number}, dict, cost=cost) for number, cost in enumerate((50.0, 10.0, 100.0))]
    results.add("study", {"number": 0}, {})
    clock, output = [100.0], io.StringIO()
    console = Console(file=output, width=100, force_terminal=True)
    with progress_bar(jobs, results, console=console, get_time=lambda: clock[0]) as progress:
        clock[0] = 160.0
        progress(jobs[1])
    assert "2/3 fits" in output.getvalue()
    assert "0:10:00" in output.getvalue()  # 60 s for a cost of 10; 100 are left


# Methods


def test_every_method_has_sixteen_different_fits():
    for method in METHODS.values():
        settings = [tuple(sorted(settings.items())) for settings in method.fit_settings]
        assert len(settings) == len(set(settings)) == 16


def test_a_search_that_is_shared_has_all_that_is_chosen_from():
    for method in METHODS.values():
        searched = METHODS[method.searched_as]
        assert searched.fit_settings == method.fit_settings
        assert all(settings in searched.predict_settings for settings in method.predict_settings)


@every_method
def test_every_setting_makes_an_estimator_that_can_predict_in_every_way(method):
    X, y = travelling()
    for settings in method.fit_settings:
        model = method.make(settings, y, 5)
        assert model.batch_size == BATCH_SIZE
        assert getattr(model, "n_inducing", N_INDUCING) == N_INDUCING
        assert model.random_state % 1000 == 5
        for reading in method.predict_settings:
            fresh = clone(model.set_params(**reading)).partial_fit(X[:2], y[:2])
            assert fresh.n_pending_ == 2


@every_method
def test_settings_are_those_of_the_estimator(method):
    for settings in method.fit_settings:
        made = method.make(settings, np.arange(4.0), 0).get_params()
        direct = {name: value for name, value in settings.items() if name in made}
        assert direct.items() <= made.items()
        assert set(settings) - set(made) <= {"relative_threshold", "restart"}


def test_another_attempt_of_ovfe_has_another_seed():
    seeds = {(make_ovfe({"restart": restart}, None, trial).random_state) for restart in (0, 1) for trial in range(5)}
    assert len(seeds) == 10


@given(st.floats(0.0, 10.0), st.floats(1e-3, 1e3))
def test_a_threshold_scales_with_the_square_of_the_unit(relative, unit):
    _, y = travelling()
    assert threshold(relative, unit * y) == pytest.approx(unit**2 * threshold(relative, y), rel=1e-9)


def test_the_ends_of_a_threshold_stay():
    _, y = travelling()
    assert threshold(0.1, 10 * y) == pytest.approx(100 * threshold(0.1, y))
    assert threshold(1.0, y) == pytest.approx(y.var() * 150)
    assert threshold(0.0, y) == 0.0
    assert threshold(inf, y) == threshold(inf, 0 * y) == inf
    assert make_wgpr({"relative_threshold": 0.1}, y, 0).threshold == threshold(0.1, y)


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize(("relative", "rule", "n_models"), [(0.0, "always", 4), (inf, "never", 1)])
def test_the_ends_of_the_threshold_are_rules_of_their_own(relative, rule, n_models):
    X, y = travelling(350)
    settings = {"kernel": "se", "optimizer_iterations": 10, "relative_threshold": relative}
    cheap = studies.cheaper(settings)
    assert cheap == {**settings, "splitting": rule}
    model, same = (make_wgpr(each, y, 3).fit(X, y) for each in (settings, cheap))
    assert model.n_models_ == n_models
    np.testing.assert_array_equal(model.predict(queries(), return_std=True), same.predict(queries(), return_std=True))


def test_other_settings_stay_as_they_are():
    for settings in ({"relative_threshold": 0.1}, {"w_gen": 0.1}):
        assert studies.cheaper(settings) == settings


# Fitting


def stream_of(n_rows, n_test=50, n_features=2):
    X, y = travelling(n_rows + n_test, n_features)
    rows = np.random.default_rng(0).permutation(n_rows + n_test)
    train, test = np.sort(rows[:n_rows]), rows[n_rows:]
    return Dataset("stream", X[train], y[train], X[test], y[test], train // 10, is_stream=True)


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize("n_rows", [300, 330])
def test_learning_by_batches_is_fitting(n_rows):
    stream = stream_of(n_rows)
    settings = {"kernel": "se", "optimizer_iterations": 10, "relative_threshold": 0.01}
    model = make_wgpr(settings, stream.y, 0)
    answer = fit_stream(model, stream, n_curve_points=2)
    assert_same_learning(model, make_wgpr(settings, stream.y, 0).fit(stream.X, stream.y))
    assert model.n_pending_ == 0
    assert answer["n_models"] == model.n_models_ > 1
    assert answer["bytes"] == len(model.to_bytes(compact=True))


def test_the_curve_ends_with_the_last_batch():
    stream = stream_of(830)
    model = make_ovfe({"optimizer_iterations": 1}, stream.y, 0)
    answer = fit_stream(model, stream, n_curve_points=4)
    assert [batch for batch, _ in answer["curve"]] == [3, 5, 7, 9]
    assert answer["curve"][-1][1] == evaluate(model, stream.X_test, stream.y_test)["rmse"]
    assert answer["seconds"] > 0


@given(st.integers(1, 300), st.integers(1, 50))
def test_a_curve_has_as_many_points_as_wanted(n_batches, n_points):
    batches = range(1, n_batches + 1)
    found = [batch for batch in batches if fitting.is_curve_point(batch, n_batches, n_points)]
    assert len(found) == min(n_batches, n_points)
    assert found[-1] == n_batches


def test_only_learning_is_timed(monkeypatch):
    clock = [0.0]

    def takes(seconds, method):
        def slow(*args, **kwargs):
            clock[0] += seconds
            return method(*args, **kwargs)

        return slow

    for name, seconds in {"partial_fit": 1.0, "flush": 0.5, "predict": 1000.0, "to_bytes": 1000.0}.items():
        monkeypatch.setattr(WGPRegressor, name, takes(seconds, getattr(WGPRegressor, name)))
    monkeypatch.setattr(fitting, "process_time", lambda: clock[0])
    model = WGPRegressor.published(optimizer_iterations=0, random_state=0)
    answer = fit_stream(model, stream_of(250), n_curve_points=3)
    assert len(answer["curve"]) == 3
    assert answer["seconds"] == 3.5


def test_lgpr_learns_its_hyperparameters_beforehand_from_all_of_the_stream():
    stream = stream_of(250)
    model, same = (make_lgpr({"kernel": "se", "optimizer_iterations": 10}, stream.y, 0) for _ in range(2))
    answer = fit_stream(model, stream, n_curve_points=3)
    assert [batch for batch, _ in answer["curve"]] == [1, 2, 3]
    expected = same.fit(stream.X, stream.y).hyperparameters_[0]
    np.testing.assert_array_equal(model.hyperparameters.to_vector(), expected.to_vector())


# Search


def tried(results, method, errors, *, dataset="lake", trial=0):
    """Add a search: for every setting of the fit, the errors by the settings of the prediction."""
    for setting, rmses in errors.items():
        readings = zip(METHODS[method].predict_settings, rmses, strict=True)
        values = {
            "settings": METHODS[method].fit_settings[setting],
            "readings": [{"reading": reading, "rmse": rmse} for reading, rmse in readings],
        }
        key = {"dataset": dataset, "method": method, "trial": trial, "setting": setting}
        results.add(studies.SEARCH, key, values)


def test_the_least_error_is_chosen(results):
    tried(results, "SOLAR", {0: [9, 8, 7, 6], 5: [5, 4, 3, 9], 9: [9, 9, 9, 9]})
    tried(results, "SOLAR", {3: [1, 1, 1, 1]}, dataset="sea")
    tried(results, "SOLAR", {3: [1, 1, 1, 1]}, trial=1)
    tried(results, "OVFE", {2: [0.1]})
    for now in (results, reopened(results)):
        assert studies.chosen_settings(now, "lake", "SOLAR", 0) == {**METHODS["SOLAR"].fit_settings[5], "n_best": 5}
        assert studies.chosen_settings(now, "lake", "OVFE", 0) == METHODS["OVFE"].fit_settings[2]


def test_of_equal_errors_the_first_is_chosen(results):
    tried(results, "SOLAR", {7: [3, 2, 2, 3], 4: [3, 3, 2, 2], 11: [2, 2, 2, 2]})
    for now in (results, reopened(results)):
        assert studies.chosen_settings(now, "lake", "SOLAR", 0) == {**METHODS["SOLAR"].fit_settings[4], "n_best": 5}


def test_wgpr_predicts_with_the_nearest_model(results):
    tried(results, "WGPR, any rule", {0: [5, 1, 1, 1], 6: [4, 2, 2, 0.5], 8: [4.5, 3, 3, 3]})
    settings = METHODS["WGPR"].fit_settings[6]
    assert studies.chosen_settings(results, "lake", "WGPR", 0) == {**settings, "prediction": "nearest"}
    assert studies.chosen_settings(results, "lake", "WGPR, any rule", 0) == {**settings, "prediction": "best_few"}


def test_an_infinite_threshold_can_be_chosen(results):
    tried(results, "WGPR, any rule", {2: [5, 5, 5, 5], 3: [1, 2, 2, 2]})
    for now in (results, reopened(results)):
        assert studies.chosen_settings(now, "lake", "WGPR", 0)["relative_threshold"] == inf


def test_an_infinite_error_is_not_chosen(results):
    tried(results, "OVFE", {0: [inf], 1: [2.0]})
    assert studies.chosen_settings(results, "lake", "OVFE", 0) == METHODS["OVFE"].fit_settings[1]


def test_the_threshold_of_the_ablation_is_finite_and_of_the_papers_settings(results):
    name = "WGPR, any rule"
    errors = {"se": {10: 0.0, 40: {0.0: 1, 0.01: 5, 0.1: 4, inf: 1}}, "matern32": {10: 0.0, 40: 0.0}}
    every = {}
    for number, settings in enumerate(METHODS[name].fit_settings):
        error = errors[settings["kernel"]][settings["optimizer_iterations"]]
        every[number] = [error[settings["relative_threshold"]] if isinstance(error, dict) else error, 0, 0, 0]
    tried(results, name, every)
    for now in (results, reopened(results)):
        assert studies.finite_threshold(now, "lake", "WGPR", 0, TINY) == 0.1


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize("method", ["WGPR, any rule", "OVFE"])
@pytest.mark.parametrize("dataset", ["tzibana", "abalone"])
def test_the_search_does_not_see_what_is_held_out(monkeypatch, small_folder, method, dataset):
    def without_test(*arguments):
        data = trial_data(*arguments)
        stream = replace(data.stream, X_test=data.stream.X_test * np.nan, y_test=data.stream.y_test * np.nan)
        return replace(data, stream=stream, X_near=data.X_near * np.nan, y_near=data.y_near * np.nan)

    answer = studies.try_settings(dataset, method, 0, 1, small_folder, TINY)
    monkeypatch.setattr(studies, "trial_data", without_test)
    same = studies.try_settings(dataset, method, 0, 1, small_folder, TINY)
    assert answer["readings"] == same["readings"]
    assert answer["settings"] == METHODS[method].fit_settings[1]
    assert [reading["reading"] for reading in answer["readings"]] == list(METHODS[method].predict_settings)
    assert all(isfinite(reading["rmse"]) for reading in answer["readings"])


# Tables


def check_scores(answer):
    for part in ("test", "near"):
        assert (answer[part] is None) == (answer[f"n_{part}"] == 0)
        for score in filter(None, [answer[part]]):
            assert all(isfinite(value) for value in score.values() if value is not None)
    assert answer["seconds"] > 0
    assert answer["bytes"] > 0


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize("method", METHODS)
def test_the_final_fit_is_scored_on_lines_and_on_single_rows(small_folder, results, method):
    settings = {**METHODS[method].fit_settings[-1], "optimizer_iterations": 5, **METHODS[method].predict_settings[-1]}
    answer = studies.fit_chosen("tzibana", method, 0, settings, small_folder, TINY)
    check_scores(answer)
    assert answer["n_rows"] + answer["n_test"] + answer["n_near"] == 300
    assert answer["n_test"] in (27, 28, 54, 55, 56)
    assert answer["n_near"] == round(0.1 * (300 - answer["n_test"]))
    assert answer["curve"][-1] == (3, answer["test"]["rmse"])
    assert answer["settings"] == settings
    results.add(studies.TABLES, {"method": method}, answer)
    (found,) = reopened(results)
    assert found.values["test"] == answer["test"]


def test_the_final_fit_is_that_of_its_settings(small_folder):
    settings = {"kernel": "se", "optimizer_iterations": 5, "relative_threshold": 0.1, "prediction": "barycenter"}
    answer = studies.fit_chosen("tzibana", "WGPR, any rule", 0, settings, small_folder, TINY)
    data = trial_data("tzibana", 0, small_folder, TINY)
    stream = data.stream
    direct = {"kernel": "se", "optimizer_iterations": 5, "prediction": "barycenter", "random_state": 0}
    model = WGPRegressor.published(threshold=0.1 * stream.y.var() * 150, **direct).fit(stream.X, stream.y)
    assert answer["test"] == evaluate(model, stream.X_test, stream.y_test)
    assert answer["near"] == evaluate(model, data.X_near, data.y_near)


def test_rows_in_no_order_have_no_neighbours_and_no_curve(small_folder):
    answer = studies.fit_chosen("abalone", "OVFE", 0, {"optimizer_iterations": 5}, small_folder, TINY)
    check_scores(answer)
    assert (answer["n_rows"], answer["n_test"], answer["n_near"], answer["curve"]) == (240, 60, 0, [])


@pytest.mark.parametrize("dataset", ["tzibana", "abalone"])
def test_the_exact_process_has_all_rows(small_folder, dataset):
    answer = studies.fit_reference(dataset, EXACT, 0, small_folder, TINY)
    check_scores(answer)
    assert answer["n_models"] == 1
    assert answer["settings"]["rows"] == answer["n_rows"]
    assert answer["test"]["smse"] < 0.5


def test_the_exact_process_has_no_more_rows_than_fit(monkeypatch):
    monkeypatch.setattr(fitting, "EXACT_ROWS", 120)
    model, answer = fitting.fit_exact_gp(stream_of(300), 0)
    assert answer["settings"]["rows"] == model.n_samples_seen_ == 120


@pytest.mark.parametrize(("dataset", "kind"), [("tzibana", "linear"), ("abalone", "nearest neighbour")])
def test_interpolation_has_no_uncertainty(small_folder, dataset, kind):
    answer = studies.fit_reference(dataset, INTERPOLATION, 0, small_folder, TINY)
    check_scores({**answer, "seconds": 1.0})
    assert answer["seconds"] >= 0
    assert answer["settings"] == {"kind": kind}
    assert answer["test"]["nlpd"] is None
    stream = trial_data(dataset, 0, small_folder, TINY).stream
    assert answer["bytes"] == 4 * (stream.X.size + stream.y.size)


# Toy


def toys(results, method, found, seeds=(100, 101)):
    """Add errors and numbers of models of every value; those that are not given are bad."""
    for value in studies.TOY_THRESHOLDS[method][1]:
        error, n_models = found.get(value, (2.0, 1))
        for seed in seeds:
            difference = 0.1 if seed % 2 else -0.1
            values = {"test": {"rmse": error + difference}, "n_models": n_models}
            results.add(TOY, {"method": method, "value": value, "seed": seed}, values)


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ({1.0: (1.0, 9), 2.0: (1.019, 4), 5.0: (1.021, 2)}, 2.0),
        ({1.0: (1.0, 9), 2.0: (1.019, 4), 3.0: (1.01, 4)}, 3.0),
        ({0.0: (1.0, 24), 1.0: (1.015, 20), inf: (1.01, 1)}, inf),
        ({0.0: (1.0, 24)}, 0.0),
        ({1.0: (1.0, 2), 2.0: (1.0 - 1e-15, 2), 3.0: (1.0, 2), 5.0: (1.0, 2), 10.0: (1.0, 2)}, 3.0),
        ({1.0: (1.0, 2), 2.0: (1.0, 2)}, 2.0),
    ],
)
def test_of_equal_errors_the_fewest_models_are_chosen(results, found, best):
    toys(results, "WGPR", found)
    toys(results, "WGPR", {10.0: (0.1, 1)}, seeds=(0, 1))
    toys(results, "SOLAR", {0.3: (0.1, 1)})
    for now in (results, reopened(results)):
        assert studies.chosen_toy_value(now, "WGPR", replace(TINY, toy_search_seeds=(100, 101))) == best


def test_a_finite_value_is_neither_end(results):
    toys(results, "WGPR", {0.0: (0.1, 1), inf: (0.1, 1), 5.0: (1.0, 3), 10.0: (1.5, 2)})
    assert studies.chosen_toy_value(results, "WGPR", replace(TINY, toy_search_seeds=(100, 101))) in (0.0, inf)
    assert studies.chosen_toy_value(results, "WGPR", replace(TINY, toy_search_seeds=(100, 101)), finite=True) == 5.0


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize(("value", "n_models"), [(0.0, 3), (inf, 1)])
def test_the_toy_is_tried_and_drawn(value, n_models):
    answer = studies.fit_toy("WGPR", value, 0, None, TINY)
    assert answer["n_models"] == n_models
    assert all(isfinite(score) for score in answer["test"].values())
    picture = studies.predict_toy("WGPR", value, None, TINY)
    assert picture["n_models"] == n_models
    assert {len(picture[name]) for name in ("x", "mean", "std", "model")} == {600}
    assert set(picture["model"]) == set(range(n_models))
    assert len(picture["X"]) == len(picture["y"]) == 100
    json.dumps(picture, allow_nan=True)


# Ablation, sweep, stability


def variant(**elements):
    return studies.fit_variant(TOY, 0, 0.01, elements.pop("w_gen", 0.5), None, TINY, **elements)


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize("splitting", studies.SPLITTING)
def test_every_fit_of_the_ablation_is_predicted_by_every_rule(results, splitting):
    answer = variant(splitting=splitting, update="frozen")
    assert list(answer["rules"]) == [rule for rule in PREDICTION_RULES if rule != "joined"]
    assert all(isfinite(score) for rule in answer["rules"].values() for score in rule.values())
    assert answer["settings"] == {"kernel": "se", "threshold": 0.01, "w_gen": 0.5, "n_candidates": N_CANDIDATES}
    assert answer["seconds"] > 0
    assert answer["n_models"] == {"always": 3, "never": 1}.get(splitting, answer["n_models"])
    results.add(studies.ABLATION, {"splitting": splitting}, answer)
    assert len(reopened(results)) == 1


@pytest.mark.usefixtures("_small_models")
def test_without_any_exchange_it_is_the_method_itself():
    method, whole = studies.fit_toy("WGPR", 0.01, 0, None, TINY), variant()
    assert whole["rules"]["nearest"] == method["test"]
    assert whole["n_models"] == method["n_models"]
    assert variant(n_candidates=1)["settings"]["n_candidates"] == 1


@pytest.mark.usefixtures("_small_models")
def test_frozen_updates_differ():
    frozen, learned = (variant(splitting="never", update=update) for update in ("frozen", "learned"))
    assert frozen["rules"]["nearest"] != learned["rules"]["nearest"]


@pytest.mark.usefixtures("_small_models")
def test_the_distance_of_the_ablation_is_that_of_solar():
    far, near = (variant(splitting="distance", w_gen=w_gen) for w_gen in (0.0, 0.5))
    assert far["n_models"] == 1
    assert near["n_models"] > 1


@pytest.mark.usefixtures("_small_models")
@pytest.mark.parametrize(("method", "value", "n_models"), [("WGPR", 0.0, 3), ("WGPR", inf, 1), ("SOLAR", 0.0, 1)])
def test_the_sweep_goes_from_one_model_for_each_batch_to_one_for_all(small_folder, method, value, n_models):
    answer = studies.fit_sweep("kin40k", method, value, 0, small_folder, TINY)
    assert answer["n_models"] == n_models
    assert answer["n_rows"] == 300
    assert all(isfinite(score) for score in answer["test"].values())
    assert answer["seconds"] > 0


@pytest.mark.parametrize("method", studies.ESTIMATORS)
@pytest.mark.parametrize("order", studies.ORDERS)
def test_a_stream_that_is_harmless_is_learned_stably(small_folder, method, order):
    answer = studies.fit_default("motorcycle", method, order, small_folder, TINY)
    assert answer["is_finite"] is True
    assert answer["n_rows"] == 150
    assert answer["rmse"] < 0.5
    assert 0.7 < answer["worst"] < 1.3
    assert 0.7 < answer["worst_around"] < 1.3
    assert answer["seconds"] > 0
    assert answer["dropped"] >= 0


def test_rows_that_are_shuffled_are_learned_in_another_order(small_folder):
    orders = [studies.fit_default("motorcycle", "OVFE", order, small_folder, TINY) for order in studies.ORDERS]
    assert orders[0]["rmse"] != orders[1]["rmse"]


def test_the_worst_is_told_in_halves_of_the_range():
    y = np.array([10.0, 30.0, 14.0])
    assert studies.furthest(y, y) == 1.0
    assert studies.furthest(np.array([20.0, 15.0]), y) == 0.5
    assert studies.furthest(np.array([20.0, -180.0]), y) == 20.0


# All together


def all_names(plan):
    return list(plan.stability_sets)


every_plan = pytest.mark.parametrize("plan", [QUICK, FULL], ids=["quick", "full"])


@every_plan
def test_every_job_has_a_key_of_its_own(plan):
    jobs = studies.all_jobs(plan, all_names(plan))
    identities = {results_module._identity(job.study, job.key) for job in jobs}
    assert len(identities) == len(jobs)
    assert all(job.cost > 0 for job in jobs)


def test_every_job_has_the_arguments_of_its_fit(path):
    results = Results(path, QUICK)
    jobs = studies.all_jobs(QUICK, all_names(QUICK))
    rng = np.random.default_rng(0)
    for job in jobs:
        if job.study == studies.SEARCH:
            errors = rng.uniform(size=len(METHODS[job.key["method"]].predict_settings))
            setting, method = job.key["setting"], job.key["method"]
            tried(results, method, {setting: errors}, dataset=job.key["dataset"], trial=job.key["trial"])
        elif job.study == TOY:
            results.add(TOY, job.key, {"test": {"rmse": rng.uniform()}, "n_models": 2})
    assert {bool(job.from_results) for job in jobs} == {False, True}
    for job in jobs:
        more = {name: value(results) for name, value in job.from_results.items()}
        inspect.signature(job.work).bind(**job.key, **more, folder=None, plan=QUICK)


@pytest.mark.usefixtures("_small_models")
def test_search_and_tables_fit_together(monkeypatch, small_folder, results):
    for name, method in METHODS.items():
        monkeypatch.setitem(METHODS, name, replace(method, fit_settings=method.fit_settings[1:3]))
    jobs = studies.table_jobs(TINY, ["tzibana"])
    assert run(jobs, results, folder=small_folder, n_jobs=1) == []
    again = reopened(results)
    assert all((job.study, job.key) in again for job in jobs)
    assert len(again.of(studies.SEARCH)) == 4 * 2
    finals = again.of(studies.TABLES).set_index("method")["settings"]
    assert set(finals.index) == {*METHODS, "exact GP", "interpolation"}
    for method in METHODS:
        assert finals[method] == studies.chosen_settings(again, "tzibana", method, 0)


def test_data_that_are_missing_are_named(monkeypatch, small_folder):
    def no_network(**arguments):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", no_network)
    found, missing = command.available(QUICK, small_folder)
    assert found == ["tzibana", "kin40k", "abalone", "motorcycle"]
    assert [sentence.split(":")[0] for sentence in missing] == ["opinicon", "sarcos", "pumadyn"]
    assert "name the folder that holds it" in missing[0]
    assert "OpenML cannot be reached" in missing[1]
    jobs = studies.all_jobs(QUICK, found)
    assert {job.key["dataset"] for job in jobs if "dataset" in job.key} == {TOY, *found}


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole.replace(whole[500:540], bytes(40))])
def test_a_damaged_file_is_missing(small_folder, tmp_path, damage):
    (tmp_path / "motorcycle.npz").write_bytes(damage((small_folder / "motorcycle.npz").read_bytes()))
    found, missing = command.available(replace(QUICK, stability_sets=("motorcycle",)), tmp_path)
    assert not found
    assert missing[0].startswith("motorcycle: ")
