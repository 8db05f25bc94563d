"""The studies of the paper: nothing judged by is learned, no result is lost, and the least error is chosen."""

import inspect
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

from reproduction import ablation, learning, running, search, stability, sweep, tables, toy
from reproduction import journal as journal_module
from reproduction.contestants import CONTESTANTS, make_lgpr, make_ovfe, make_wgpr, threshold
from reproduction.jobs import Job, run
from reproduction.journal import Journal, JournalError, commit
from reproduction.learning import judge, learn
from reproduction.plan import BATCH_SIZE, COURSES, FULL, N_CANDIDATES, N_INDUCING, QUICK, TOY
from reproduction.protocol import everything, prepare, validation
from streams import assert_same_learning, queries, travelling
from wgpr import WGPRegressor
from wgpr.datasets import Dataset, load

TINY = replace(QUICK, n_trials=1, max_rows=300, max_test_rows=200, toy_seeds=(0,), toy_search_seeds=(100,))
every_contestant = pytest.mark.parametrize("contestant", CONTESTANTS.values(), ids=CONTESTANTS)


@pytest.fixture(autouse=True)
def _known_commit(monkeypatch):
    """Git would be asked by every journal."""
    monkeypatch.setattr(journal_module, "commit", lambda: "c0ffee")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


@pytest.fixture
def journal(path):
    return Journal(path, TINY.to_json())


def reopened(journal):
    return Journal(journal.path, TINY.to_json())


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


# Protocol


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
    monkeypatch.setattr("reproduction.protocol.load", lambda name, folder, *, fetch: data)
    return data


def numbers(y):
    """Of the rows with these targets; each is there once."""
    found = y.astype(int).tolist()
    assert len(found) == len(set(found))
    return set(found)


def groups_of(data, rows):
    return set(data.groups[sorted(rows)])


def check_course(data, trial, plan):
    course = prepare("course", trial, None, plan)
    stream = course.stream
    learned, test, near = (numbers(y) for y in (stream.y, stream.y_test, course.y_near))
    assert learned
    assert test
    assert not learned & test
    assert not learned & near
    assert not test & near
    X = np.concatenate([data.X, data.X_test])
    for rows, y in ((stream.X, stream.y), (stream.X_test, stream.y_test), (course.X_near, course.y_near)):
        np.testing.assert_array_equal(rows, X[y.astype(int)])
    np.testing.assert_array_equal(stream.groups, data.groups[stream.y.astype(int)])
    assert (np.diff(stream.y) > 0).all() == data.is_stream
    assert bool(near) == data.is_stream
    if data.is_stream:
        assert not groups_of(data, learned | near) & groups_of(data, test)
        assert groups_of(data, near) & groups_of(data, learned)
    if not len(data.y_test):
        assert len(learned | test | near) == min(len(data.y), plan.max_rows or inf)


def check_validation(data, trial, plan):
    stream = prepare("course", trial, None, plan).stream
    part = validation(stream, trial)
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
def test_what_is_learned_validated_and_judged_by_are_different_rows(monkeypatch, data, plan, trial):
    data = numbered(monkeypatch, data)
    check_course(data, trial, plan)
    check_validation(data, trial, plan)


@pytest.mark.parametrize("name", COURSES)
@pytest.mark.parametrize("plan", [QUICK, FULL], ids=["quick", "full"])
def test_the_same_holds_of_every_course(monkeypatch, data_folder, name, plan):
    data = numbered(monkeypatch, load(name, data_folder))
    for trial in range(2):
        check_course(data, trial, plan)
        check_validation(data, trial, plan)


@every_kind
def test_the_trial_decides_the_course(monkeypatch, data):
    numbered(monkeypatch, data)
    first, same, other = (prepare("course", trial, None, TINY) for trial in (0, 0, 1))
    for mine, equal in ((first.stream.y, same.stream.y), (first.stream.y_test, same.stream.y_test)):
        np.testing.assert_array_equal(mine, equal)
    np.testing.assert_array_equal(first.y_near, same.y_near)
    assert first.stream.y.tolist() != other.stream.y.tolist()
    assert first.stream.y_test.tolist() != other.stream.y_test.tolist()


@every_kind
def test_the_trial_decides_what_is_validated(monkeypatch, data):
    numbered(monkeypatch, data)
    stream = prepare("course", 0, None, TINY).stream
    first, same, other = (validation(stream, trial).y_test.tolist() for trial in (0, 0, 1))
    assert first == same
    assert first != other


def test_an_established_split_stays_and_the_trial_decides_the_order(monkeypatch):
    data = numbered(monkeypatch, MADE_UP["established split"])
    streams = [prepare("course", trial, None, FULL).stream for trial in range(3)]
    for stream in streams:
        np.testing.assert_array_equal(stream.y_test, data.y_test)
        np.testing.assert_array_equal(stream.X_test, data.X_test)
        assert numbers(stream.y) == numbers(data.y)
    assert len({tuple(stream.y) for stream in streams}) == 3


def test_the_test_rows_of_kin40k_stay(data_folder):
    data = load("kin40k", data_folder)
    stream = prepare("kin40k", 3, data_folder, FULL).stream
    np.testing.assert_array_equal(stream.X_test, data.X_test)
    np.testing.assert_array_equal(stream.y_test, data.y_test)
    np.testing.assert_array_equal(np.sort(stream.y), np.sort(data.y))


def test_of_a_stream_the_first_rows_are_taken_and_of_others_any(monkeypatch):
    numbered(monkeypatch, MADE_UP["lines"])
    assert numbers(everything("course", False, None, TINY).y) == set(range(300))
    numbered(monkeypatch, MADE_UP["unrelated rows"])
    some = numbers(everything("course", False, None, TINY).y)
    assert len(some) == 300
    assert max(some) > 300


def test_of_established_test_rows_as_many_are_taken_as_the_plan_allows(monkeypatch):
    data = numbered(monkeypatch, MADE_UP["established split"])
    stream = prepare("course", 0, None, TINY).stream
    assert (len(stream.y), len(stream.y_test)) == (300, 200)
    assert numbers(stream.y_test) < numbers(data.y_test)


@pytest.mark.parametrize("kind", ["lines", "unrelated rows"])
def test_of_rows_held_out_as_many_are_taken_as_the_plan_allows(monkeypatch, kind):
    numbered(monkeypatch, MADE_UP[kind])
    course = prepare("course", 0, None, replace(FULL, max_test_rows=20))
    assert len(course.stream.y_test) <= 20
    assert len(course.y_near) <= 20


@every_kind
def test_everything_is_in_its_own_order_or_shuffled(monkeypatch, data):
    data = numbered(monkeypatch, data)
    natural, shuffled = (everything("course", is_shuffled, None, FULL) for is_shuffled in (False, True))
    np.testing.assert_array_equal(natural.y, data.y)
    assert numbers(shuffled.y) == numbers(data.y)
    assert (np.diff(shuffled.y) < 0).any()


def test_every_other_sample_of_the_toy_is_held_out():
    first, same, other = (prepare(TOY, seed, None, FULL).stream for seed in (0, 0, 1))
    assert (len(first.y), len(first.y_test)) == (3000, 3000)
    assert (first.X[:, 0] < 150).sum() == 15 * BATCH_SIZE
    assert len(prepare(TOY, 0, None, TINY).stream.y) == TINY.max_rows
    assert (np.diff(first.X[:, 0]) > 0).all()
    assert not set(first.X[:, 0]) & set(first.X_test[:, 0])
    np.testing.assert_array_equal(first.y, same.y)
    assert not set(first.y) & set(other.y)


# Journal


def test_results_survive(journal):
    journal.add("one", {"course": "lake", "trial": 0}, {"rmse": 0.5, "curve": [(1, 2.0)], "nothing": None})
    journal.add("two", {"course": "lake", "trial": 0}, {"rmse": 0.25})
    again = reopened(journal)
    assert len(again) == 2
    assert [(entry.study, entry.key, entry.result, entry.commit) for entry in again] == [
        (entry.study, entry.key, entry.result, "c0ffee") for entry in journal
    ]
    (entry,) = again.of("one")
    assert (entry["trial"], entry["rmse"], entry["curve"], entry["nothing"]) == (0, 0.5, [[1, 2.0]], None)


def test_a_result_is_in_the_file_at_once(journal):
    for number in range(3):
        journal.add("study", {"number": number}, {})
        assert len(reopened(journal)) == number + 1


def test_the_order_of_the_key_does_not_matter(journal):
    journal.add("study", {"a": 1, "b": 2}, {})
    assert ("study", {"b": 2, "a": 1}) in journal
    assert ("study", {"a": 2, "b": 1}) not in journal
    assert ("other", {"a": 1, "b": 2}) not in journal


def test_a_torn_last_line_is_dropped_and_the_file_goes_on(journal):
    for number in range(3):
        journal.add("study", {"number": number}, {"word": "naïve"})
    content = journal.path.read_bytes()
    *kept, last = content.splitlines(keepends=True)
    for length in range(len(last)):
        journal.path.write_bytes(b"".join(kept) + last[:length])
        torn = reopened(journal)
        assert [entry["number"] for entry in torn] == [0, 1], f"cut after {length} bytes"
        torn.add("study", {"number": 2}, {"word": "naïve"})
        assert journal.path.read_bytes() == content, f"cut after {length} bytes"


@pytest.mark.parametrize("rubbish", ["not JSON", '{"study": "s', "", '{"study": "a"}{"study": "b"}'])
def test_a_line_that_is_no_json_is_named(journal, rubbish):
    for number in range(3):
        journal.add("study", {"number": number}, {})
    header, first, _, last = journal.path.read_text().splitlines()
    journal.path.write_text("\n".join([header, first, rubbish, last, ""]))
    with pytest.raises(JournalError, match=rf"line 3 of {journal.path} is no JSON; remove it, or give --fresh"):
        reopened(journal)


def test_a_line_that_is_no_text_is_named(journal):
    journal.add("study", {"number": 0}, {})
    header, line = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(header + b"\xff\xfe\n" + line)
    with pytest.raises(JournalError, match=r"line 2 of .* is no JSON"):
        reopened(journal)


@pytest.mark.parametrize("rubbish", ["3", "[]", '{"study": "s", "key": {}, "result": {}}'])
def test_a_line_that_is_no_result_is_named(journal, rubbish):
    journal.path.write_text(journal.path.read_text() + rubbish + "\n")
    with pytest.raises(JournalError, match=r"line 2 of .* is no result; remove it, or give --fresh"):
        reopened(journal)


def test_results_of_another_plan_are_refused_and_kept(journal):
    journal.add("study", {"number": 0}, {})
    content = journal.path.read_bytes()
    with pytest.raises(JournalError, match="another plan; give another folder, or --fresh"):
        Journal(journal.path, FULL.to_json())
    assert journal.path.read_bytes() == content


def test_a_file_that_is_no_journal_is_left_alone(path):
    path.write_text("notes without an end of line")
    with pytest.raises(JournalError):
        Journal(path, TINY.to_json())
    assert path.read_text() == "notes without an end of line"


@pytest.mark.parametrize("plan", [TINY, QUICK, FULL], ids=["tiny", "quick", "full"])
def test_every_plan_is_recognised(path, plan):
    assert inf in plan.relative_thresholds
    Journal(path, plan.to_json()).add("study", {"number": 0}, {})
    assert len(Journal(path, plan.to_json())) == 1


def test_infinity_survives(journal):
    key = {"method": "WGPR", "value": inf}
    journal.add("study", key, {"settings": {"relative_threshold": inf}, "scores": [-inf, 1.0]})
    for now in (journal, reopened(journal)):
        assert ("study", key) in now
        assert ("study", {**key, "value": 1.0}) not in now
        (entry,) = now.of("study", value="inf")
        assert entry["settings"] == {"relative_threshold": "inf"}
        assert entry["scores"] == ["-inf", 1.0]


def test_infinity_is_found(journal):
    journal.add("study", {"value": inf}, {})
    assert len(journal.of("study", value=inf)) == 1


def test_numpy_scalars_are_written_as_numbers(journal):
    result = {"f": np.float64(0.1), "g": np.float32(0.5), "n": np.int64(7), "b": np.bool_(True), "inf": np.float32(inf)}
    journal.add("study", {"number": 0}, result)
    line = json.loads(journal.path.read_text().splitlines()[-1])
    assert line["result"] == {"f": 0.1, "g": 0.5, "n": 7, "b": True, "inf": "inf"}
    assert line["result"]["b"] is True


def test_results_are_found_by_parts_of_their_key(journal):
    for study in ("one", "two"):
        for course in ("lake", "arm"):
            for trial in range(3):
                journal.add(study, {"course": course, "trial": trial}, {})
    assert len(journal.of("one")) == 6
    assert len(journal.of("one", course="lake")) == 3
    assert [entry.key for entry in journal.of("two", course="arm", trial=2)] == [{"course": "arm", "trial": 2}]
    assert journal.of("one", course="sea") == []
    assert journal.of("one", colour="blue") == []


def test_the_same_key_again_replaces_the_result(journal):
    for rmse in (1.0, 2.0):
        journal.add("study", {"number": 0}, {"rmse": rmse})
    for now in (journal, reopened(journal)):
        assert [entry["rmse"] for entry in now] == [2.0]


def test_the_header_tells_plan_and_versions(journal):
    header = json.loads(journal.path.read_text())
    assert header["plan"]["name"] == "quick"
    assert header["versions"]["numpy"] == np.__version__


def test_the_commit_of_most_results_comes_first(journal):
    for number, name in enumerate(["a", "b", "b"]):
        journal.commit = name
        journal.add("study", {"number": number}, {})
    assert reopened(journal).commits == ["b", "a"]


def test_the_code_has_a_name():
    assert commit().strip()


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")])
def test_outside_a_checkout_the_code_has_a_version(monkeypatch, error):
    def refuse(*args, **kwargs):
        raise error

    monkeypatch.setattr(journal_module, "check_output", refuse)
    assert commit().startswith("version ")
    assert commit() != "version "


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with the module of the journal in it; its package."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")

    def git(*arguments):
        who = ["-c", "user.name=me", "-c", "user.email=me@here"]
        subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True)

    package = tmp_path / "src" / "wgpr"
    for name in ("paper/journal.py", "paper/jobs.py", "ensemble.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "all")
    monkeypatch.setattr(journal_module, "__file__", str(package / "paper" / "journal.py"))
    return package


def test_changed_code_has_a_plus_sign(checkout):
    name = commit()
    assert len(name) == 10
    (checkout / "paper" / "jobs.py").write_text("changed")
    assert commit() == name + "+"


def test_changed_code_of_the_method_has_a_plus_sign(checkout):
    (checkout / "ensemble.py").write_text("changed")
    assert commit().endswith("+")


# Jobs


def count(number, folder, plan):
    """Leaves a trace in the folder."""
    with (folder / "log").open("a") as file:
        file.write(f"{number}\n")
    if (folder / "broken").exists() and number == 3:
        raise ValueError("3 is broken")
    return {"square": number**2}


def total(total, folder, plan):
    return {"total": total, "plan": plan.name}


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


def contents(journal):
    return sorted((entry.study, json.dumps(entry.key), json.dumps(entry.result)) for entry in journal)


def test_only_what_is_not_done_is_done(journal, folders):
    first, second = folders
    assert run(counting(3), journal, folder=first, plan=TINY, n_jobs=1) == []
    assert counted(first) == [0, 1, 2]
    assert run(counting(5), reopened(journal), folder=second, plan=TINY, n_jobs=1) == []
    assert counted(second) == [3, 4]
    assert {entry["number"]: entry["square"] for entry in reopened(journal)} == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}


def test_the_longest_is_done_first(journal, tmp_path):
    run(counting(5), journal, folder=tmp_path, plan=TINY, n_jobs=1)
    assert (tmp_path / "log").read_text().split() == ["4", "3", "2", "1", "0"]


def test_a_round_is_given_the_results_of_those_before_it(journal, tmp_path):
    def sum_of_squares(journal):
        return {"total": sum(entry["square"] for entry in journal.of("counting"))}

    last = Job("total", {}, total, cost=100.0, given=sum_of_squares, round=1)
    run([last, *counting(5)], journal, folder=tmp_path, plan=TINY, n_jobs=1)
    (entry,) = journal.of("total")
    assert entry.result == {"total": 30, "plan": "quick"}


def test_a_job_that_fails_does_not_stop_the_others_and_is_tried_again(journal, folders):
    first, second = folders
    (first / "broken").touch()
    failures = run(counting(6), journal, folder=first, plan=TINY, n_jobs=1)
    assert [(failure.job.key, failure.reason) for failure in failures] == [({"number": 3}, "ValueError: 3 is broken")]
    assert [entry["number"] for entry in reopened(journal)] == [5, 4, 2, 1, 0]
    assert run(counting(6), journal, folder=second, plan=TINY, n_jobs=1) == []
    assert counted(second) == [3]
    assert ("counting", {"number": 3}) in reopened(journal)


def test_progress_is_told_of_every_job(journal, tmp_path):
    (tmp_path / "broken").touch()
    told = []
    run(counting(5), journal, folder=tmp_path, plan=TINY, n_jobs=1, progress=told.append)
    assert sorted(job.key["number"] for job in told) == [0, 1, 2, 3, 4]


def test_the_number_of_cores_does_not_change_the_results(tmp_path):
    journals = [Journal(tmp_path / f"{n_jobs}.jsonl", TINY.to_json()) for n_jobs in (1, 2)]
    for n_jobs, journal in enumerate(journals, start=1):
        run(counting(8), journal, folder=tmp_path, plan=TINY, n_jobs=n_jobs)
    assert contents(journals[0]) == contents(journals[1])
    assert counted(tmp_path) == sorted([*range(8), *range(8)])


@pytest.mark.filterwarnings("ignore:.*limit unnecessary computation time")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of an aborted task
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupted_run_goes_on_where_it_stopped(journal, folders, n_jobs):
    first, second = folders
    told = []

    def interrupt(job):
        told.append(job)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(counting(10), journal, folder=first, plan=TINY, n_jobs=n_jobs, progress=interrupt)
    rest = reopened(journal)
    assert [entry.key for entry in rest] == [job.key for job in told]
    run(counting(10), rest, folder=second, plan=TINY, n_jobs=1)
    assert counted(second) == sorted(set(range(10)) - {job.key["number"] for job in told})
    assert len(reopened(journal)) == 10


def test_a_job_that_is_given_nothing_does_not_stop_the_others(journal, tmp_path):
    def nothing_there(journal):
        raise ValueError("no fits")

    orphan = Job("total", {}, total, cost=2.5, given=nothing_there)
    failures = run([orphan, *counting(5)], journal, folder=tmp_path, plan=TINY, n_jobs=1)
    assert [failure.reason for failure in failures] == ["ValueError: no fits"]
    assert counted(tmp_path) == [0, 1, 2, 3, 4]


def test_the_journal_is_not_read_while_it_is_written(journal, tmp_path):
    threads = set()

    def remember(journal):
        threads.add(threading.current_thread())
        return {}

    with parallel_config(backend="threading"):
        run(counting(30, given=remember), journal, folder=tmp_path, plan=TINY, n_jobs=2)
    assert threads == {threading.main_thread()}


# Contestants


def test_everybody_has_sixteen_different_fits():
    for contestant in CONTESTANTS.values():
        settings = [tuple(sorted(settings.items())) for settings in contestant.learning]
        assert len(settings) == len(set(settings)) == 16


def test_a_search_that_is_shared_has_all_that_is_chosen_from():
    for contestant in CONTESTANTS.values():
        searched = CONTESTANTS[contestant.searched]
        assert searched.learning == contestant.learning
        assert all(reading in searched.reading for reading in contestant.reading)


@every_contestant
def test_every_setting_makes_an_estimator_that_can_be_read_in_every_way(contestant):
    _, y = travelling()
    for settings in contestant.learning:
        model = contestant.make(settings, y, 5)
        model._check_settings()
        assert model.batch_size == BATCH_SIZE
        assert getattr(model, "n_inducing", N_INDUCING) == N_INDUCING
        assert model.random_state % 1000 == 5
        for reading in contestant.reading:
            model.set_params(**reading)._check_settings()


@every_contestant
def test_settings_are_those_of_the_estimator(contestant):
    for settings in contestant.learning:
        made = contestant.make(settings, np.arange(4.0), 0).get_params()
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


@pytest.mark.parametrize(("relative", "rule", "n_models"), [(0.0, "always", 4), (inf, "never", 1)])
def test_the_ends_of_the_threshold_are_rules_of_their_own(relative, rule, n_models):
    X, y = travelling(350)
    settings = {"kernel": "se", "optimizer_iterations": 10, "relative_threshold": relative}
    cheap = search._cheapest(settings)
    assert cheap == {**settings, "splitting": rule}
    model, same = (make_wgpr(each, y, 3).fit(X, y) for each in (settings, cheap))
    assert model.n_models_ == n_models
    np.testing.assert_array_equal(model.predict(queries(), return_std=True), same.predict(queries(), return_std=True))


def test_other_settings_are_as_cheap_as_they_are():
    for settings in ({"relative_threshold": 0.1}, {"w_gen": 0.1}):
        assert search._cheapest(settings) == settings


# Learning


def stream_of(n_rows, n_test=50, n_features=2):
    X, y = travelling(n_rows + n_test, n_features)
    rows = np.random.default_rng(0).permutation(n_rows + n_test)
    train, test = np.sort(rows[:n_rows]), rows[n_rows:]
    return Dataset("stream", X[train], y[train], X[test], y[test], train // 10, is_stream=True)


@pytest.mark.parametrize("n_rows", [300, 330])
def test_learning_by_batches_is_fitting(n_rows):
    stream = stream_of(n_rows)
    settings = {"kernel": "se", "optimizer_iterations": 10, "relative_threshold": 0.01}
    model = make_wgpr(settings, stream.y, 0)
    answer = learn(model, stream, n_glances=2)
    assert_same_learning(model, make_wgpr(settings, stream.y, 0).fit(stream.X, stream.y))
    assert model.n_pending_ == 0
    assert answer["n_models"] == model.n_models_ > 1
    assert answer["bytes"] == len(model.to_bytes(compact=True))


def test_the_curve_ends_with_the_last_batch():
    stream = stream_of(830)
    model = make_ovfe({"optimizer_iterations": 1}, stream.y, 0)
    answer = learn(model, stream, n_glances=4)
    assert [batch for batch, _ in answer["curve"]] == [3, 5, 7, 9]
    assert answer["curve"][-1][1] == judge(model, stream.X_test, stream.y_test)["rmse"]
    assert answer["seconds"] > 0


@given(st.integers(1, 300), st.integers(1, 50))
def test_there_are_as_many_glances_as_wanted(n_batches, n_glances):
    batches = range(1, n_batches + 1)
    glances = [batch for batch in batches if learning._is_time_for_a_glance(batch, n_batches, n_glances)]
    assert len(glances) == min(n_batches, n_glances)
    assert glances[-1] == n_batches


def test_only_learning_is_timed(monkeypatch):
    clock = [0.0]

    def takes(seconds, method):
        def slow(*args, **kwargs):
            clock[0] += seconds
            return method(*args, **kwargs)

        return slow

    for name, seconds in {"partial_fit": 1.0, "flush": 0.5, "predict": 1000.0, "to_bytes": 1000.0}.items():
        monkeypatch.setattr(WGPRegressor, name, takes(seconds, getattr(WGPRegressor, name)))
    monkeypatch.setattr(learning, "process_time", lambda: clock[0])
    answer = learn(WGPRegressor.published(optimizer_iterations=0, random_state=0), stream_of(250), n_glances=3)
    assert len(answer["curve"]) == 3
    assert answer["seconds"] == 3.5


def test_lgpr_learns_its_hyperparameters_beforehand_from_all_of_the_stream():
    stream = stream_of(250)
    model, same = (make_lgpr({"kernel": "se", "optimizer_iterations": 10}, stream.y, 0) for _ in range(2))
    answer = learn(model, stream, n_glances=3)
    assert [batch for batch, _ in answer["curve"]] == [1, 2, 3]
    expected = same.fit(stream.X, stream.y).hyperparameters_[0]
    np.testing.assert_array_equal(model.hyperparameters.to_vector(), expected.to_vector())


# Search


def tried(journal, method, errors, *, course="lake", trial=0):
    """Write down a search: of every setting, the error of each reading."""
    contestant = CONTESTANTS[method]
    for setting, of_readings in errors.items():
        readings = [
            {"reading": reading, "rmse": rmse} for reading, rmse in zip(contestant.reading, of_readings, strict=True)
        ]
        key = {"course": course, "method": method, "trial": trial, "setting": setting}
        journal.add(search.SEARCH, key, {"settings": contestant.learning[setting], "readings": readings})


def test_the_least_error_is_chosen(journal):
    tried(journal, "SOLAR", {0: [9, 8, 7, 6], 5: [5, 4, 3, 9], 9: [9, 9, 9, 9]})
    tried(journal, "SOLAR", {3: [1, 1, 1, 1]}, course="sea")
    tried(journal, "SOLAR", {3: [1, 1, 1, 1]}, trial=1)
    tried(journal, "OVFE", {2: [0.1]})
    for now in (journal, reopened(journal)):
        assert search.chosen(now, "lake", "SOLAR", 0) == {**CONTESTANTS["SOLAR"].learning[5], "n_best": 5}
        assert search.chosen(now, "lake", "OVFE", 0) == CONTESTANTS["OVFE"].learning[2]


def test_of_equal_errors_the_first_is_chosen(journal):
    tried(journal, "SOLAR", {7: [3, 2, 2, 3], 4: [3, 3, 2, 2], 11: [2, 2, 2, 2]})
    for now in (journal, reopened(journal)):
        assert search.chosen(now, "lake", "SOLAR", 0) == {**CONTESTANTS["SOLAR"].learning[4], "n_best": 5}


def test_wgpr_is_read_by_the_nearest_model(journal):
    tried(journal, "WGPR, any rule", {0: [5, 1, 1, 1], 6: [4, 2, 2, 0.5], 8: [4.5, 3, 3, 3]})
    learning = CONTESTANTS["WGPR"].learning
    assert search.chosen(journal, "lake", "WGPR", 0) == {**learning[6], "prediction": "nearest"}
    assert search.chosen(journal, "lake", "WGPR, any rule", 0) == {**learning[6], "prediction": "best_few"}


def test_an_infinite_threshold_can_be_chosen(journal):
    tried(journal, "WGPR, any rule", {2: [5, 5, 5, 5], 3: [1, 2, 2, 2]})
    for now in (journal, reopened(journal)):
        assert search.chosen(now, "lake", "WGPR", 0)["relative_threshold"] == inf


def test_an_infinite_error_is_not_chosen(journal):
    tried(journal, "OVFE", {0: [inf], 1: [2.0]})
    assert search.chosen(journal, "lake", "OVFE", 0) == CONTESTANTS["OVFE"].learning[1]


def test_the_threshold_of_the_ablation_is_finite_and_of_the_papers_settings(journal):
    contestant = CONTESTANTS["WGPR, any rule"]
    errors = {"se": {10: 0.0, 40: {0.0: 1, 0.01: 5, 0.1: 4, inf: 1}}, "matern32": {10: 0.0, 40: 0.0}}
    every = {}
    for number, settings in enumerate(contestant.learning):
        error = errors[settings["kernel"]][settings["optimizer_iterations"]]
        every[number] = [error[settings["relative_threshold"]] if isinstance(error, dict) else error, 0, 0, 0]
    tried(journal, contestant.name, every)
    for now in (journal, reopened(journal)):
        assert search.chosen_value(now, "lake", "WGPR", 0, "relative_threshold") == 0.1


@pytest.mark.parametrize("method", ["WGPR, any rule", "OVFE"])
@pytest.mark.parametrize("course", ["tzibana", "abalone"])
def test_the_search_does_not_see_what_is_held_out(monkeypatch, small_folder, method, course):
    def without_test(*arguments):
        prepared = prepare(*arguments)
        nowhere = replace(
            prepared.stream, X_test=prepared.stream.X_test * np.nan, y_test=prepared.stream.y_test * np.nan
        )
        return replace(prepared, stream=nowhere, X_near=prepared.X_near * np.nan, y_near=prepared.y_near * np.nan)

    answer = search.try_setting(course, method, 0, 1, small_folder, TINY)
    monkeypatch.setattr(search, "prepare", without_test)
    same = search.try_setting(course, method, 0, 1, small_folder, TINY)
    assert answer["readings"] == same["readings"]
    assert answer["settings"] == CONTESTANTS[method].learning[1]
    assert [reading["reading"] for reading in answer["readings"]] == list(CONTESTANTS[method].reading)
    assert all(isfinite(reading["rmse"]) for reading in answer["readings"])


# Tables


def check_scores(answer):
    for part in ("test", "near"):
        assert (answer[part] is None) == (answer[f"n_{part}"] == 0)
        for score in filter(None, [answer[part]]):
            assert all(isfinite(value) for value in score.values() if value is not None)
    assert answer["seconds"] > 0
    assert answer["bytes"] > 0


@pytest.mark.parametrize("method", CONTESTANTS)
def test_the_final_fit_is_judged_on_lines_and_on_single_rows(small_folder, journal, method):
    settings = {**CONTESTANTS[method].learning[-1], "optimizer_iterations": 5, **CONTESTANTS[method].reading[-1]}
    answer = tables.final("tzibana", method, 0, settings, small_folder, TINY)
    check_scores(answer)
    assert answer["n_rows"] + answer["n_test"] + answer["n_near"] == 300
    assert answer["n_test"] in (27, 28, 54, 55, 56)
    assert answer["n_near"] == round(0.1 * (300 - answer["n_test"]))
    assert answer["curve"][-1] == (3, answer["test"]["rmse"])
    assert answer["settings"] == settings
    journal.add(tables.TABLES, {"method": method}, answer)
    (entry,) = reopened(journal).of(tables.TABLES)
    assert entry["test"] == answer["test"]


def test_the_final_fit_is_that_of_its_settings(small_folder):
    settings = {"kernel": "se", "optimizer_iterations": 5, "relative_threshold": 0.1, "prediction": "barycenter"}
    answer = tables.final("tzibana", "WGPR, any rule", 0, settings, small_folder, TINY)
    course = prepare("tzibana", 0, small_folder, TINY)
    stream = course.stream
    direct = {"kernel": "se", "optimizer_iterations": 5, "prediction": "barycenter", "random_state": 0}
    model = WGPRegressor.published(threshold=0.1 * stream.y.var() * 150, **direct).fit(stream.X, stream.y)
    assert answer["test"] == judge(model, stream.X_test, stream.y_test)
    assert answer["near"] == judge(model, course.X_near, course.y_near)


def test_rows_in_no_order_have_no_neighbours_and_no_curve(small_folder):
    answer = tables.final("abalone", "OVFE", 0, {"optimizer_iterations": 5}, small_folder, TINY)
    check_scores(answer)
    assert (answer["n_rows"], answer["n_test"], answer["n_near"], answer["curve"]) == (240, 60, 0, [])


@pytest.mark.parametrize("course", ["tzibana", "abalone"])
def test_the_exact_process_has_all_rows(small_folder, course):
    answer = tables.with_exact_gp(course, tables.EXACT, 0, small_folder, TINY)
    check_scores(answer)
    assert answer["n_models"] == 1
    assert answer["settings"]["rows"] == answer["n_rows"]
    assert answer["test"]["smse"] < 0.5


def test_the_exact_process_has_no_more_rows_than_fit(monkeypatch):
    monkeypatch.setattr(learning, "EXACT_ROWS", 120)
    model, answer = learning.exact_gp(stream_of(300), 0)
    assert answer["settings"]["rows"] == model.n_samples_seen_ == 120


@pytest.mark.parametrize(("course", "kind"), [("tzibana", "linear"), ("abalone", "nearest neighbour")])
def test_interpolation_has_no_uncertainty(small_folder, course, kind):
    answer = tables.with_interpolation(course, tables.INTERPOLATION, 0, small_folder, TINY)
    check_scores({**answer, "seconds": 1.0})
    assert answer["seconds"] >= 0
    assert answer["settings"] == {"kind": kind}
    assert answer["test"]["nlpd"] is None
    stream = prepare(course, 0, small_folder, TINY).stream
    assert answer["bytes"] == 4 * (stream.X.size + stream.y.size)


# Toy


def toys(journal, method, results, seeds=(100, 101)):
    """Write down errors and numbers of models: of every value, or what they are by default."""
    for value in toy.METHODS[method][1]:
        error, n_models = results.get(value, (2.0, 1))
        for seed in seeds:
            spread = 0.1 if seed % 2 else -0.1
            result = {"test": {"rmse": error + spread}, "n_models": n_models}
            journal.add(TOY, {"method": method, "value": value, "seed": seed}, result)


@pytest.mark.parametrize(
    ("results", "best"),
    [
        ({1.0: (1.0, 9), 2.0: (1.019, 4), 5.0: (1.021, 2)}, 2.0),
        ({1.0: (1.0, 9), 2.0: (1.019, 4), 3.0: (1.01, 4)}, 3.0),
        ({0.0: (1.0, 24), 1.0: (1.015, 20), inf: (1.01, 1)}, inf),
        ({0.0: (1.0, 24)}, 0.0),
    ],
)
def test_of_those_as_good_as_the_best_the_fewest_models_are_chosen(journal, results, best):
    toys(journal, "WGPR", results)
    toys(journal, "WGPR", {10.0: (0.1, 1)}, seeds=(0, 1))
    toys(journal, "SOLAR", {0.3: (0.1, 1)})
    for now in (journal, reopened(journal)):
        assert toy.chosen_value(now, "WGPR", replace(TINY, toy_search_seeds=(100, 101))) == best


def test_a_finite_value_is_neither_end(journal):
    toys(journal, "WGPR", {0.0: (0.1, 1), inf: (0.1, 1), 5.0: (1.0, 3), 10.0: (1.5, 2)})
    assert toy.chosen_value(journal, "WGPR", replace(TINY, toy_search_seeds=(100, 101))) in (0.0, inf)
    assert toy.chosen_value(journal, "WGPR", replace(TINY, toy_search_seeds=(100, 101)), finite=True) == 5.0


@pytest.mark.parametrize(("value", "n_models"), [(0.0, 3), (inf, 1)])
def test_the_toy_is_tried_and_drawn(value, n_models):
    answer = toy.try_value("WGPR", value, 0, None, TINY)
    assert answer["n_models"] == n_models
    assert all(isfinite(score) for score in answer["test"].values())
    picture = toy.draw("WGPR", value, None, TINY)
    assert picture["n_models"] == n_models
    assert {len(picture[name]) for name in ("x", "mean", "std", "model")} == {600}
    assert set(picture["model"]) == set(range(n_models))
    assert len(picture["X"]) == len(picture["y"]) == 100
    json.dumps(picture, allow_nan=True)


# Ablation, sweep, stability


@pytest.mark.parametrize("splitting", ablation.SPLITTING)
def test_every_fit_of_the_ablation_is_read_by_every_rule(journal, splitting):
    answer = ablation.without(TOY, splitting, "frozen", 0, {"threshold": 0.01}, 0.5, None, TINY)
    assert list(answer["rules"]) == list(ablation.RULES)
    assert len(ablation.RULES) == 5
    assert all(isfinite(score) for rule in answer["rules"].values() for score in rule.values())
    assert answer["settings"] == {"kernel": "se", "threshold": 0.01, "w_gen": 0.5}
    assert answer["seconds"] > 0
    assert answer["n_models"] == {"always": 3, "never": 1}.get(splitting, answer["n_models"])
    journal.add(ablation.ABLATION, {"splitting": splitting}, answer)
    assert len(reopened(journal)) == 1


def test_without_nothing_it_is_the_method_itself():
    method = toy.try_value("WGPR", 0.01, 0, None, TINY)
    whole = ablation.without(TOY, "wasserstein", "learned", 0, {"threshold": 0.01}, 0.5, None, TINY)
    as_many = ablation.with_candidates(TOY, N_CANDIDATES, 0, {"threshold": 0.01}, None, TINY)
    for answer in (whole, as_many):
        assert answer["rules"]["nearest"] == method["test"]
        assert answer["n_models"] == method["n_models"]
    assert as_many["settings"]["n_candidates"] == N_CANDIDATES


def test_an_ablation_takes_away():
    frozen, learned = (
        ablation.without(TOY, "never", update, 0, {"threshold": 0.01}, 0.5, None, TINY)["rules"]["nearest"]
        for update in ("frozen", "learned")
    )
    assert frozen != learned


def test_the_distance_of_the_ablation_is_that_of_solar():
    far, near = (
        ablation.without(TOY, "distance", "learned", 0, {"threshold": 0.01}, w_gen, None, TINY) for w_gen in (0.0, 0.5)
    )
    assert far["n_models"] == 1
    assert near["n_models"] > 1


@pytest.mark.parametrize(("method", "value", "n_models"), [("WGPR", 0.0, 3), ("WGPR", inf, 1), ("SOLAR", 0.0, 1)])
def test_the_sweep_goes_from_one_model_for_each_batch_to_one_for_all(small_folder, method, value, n_models):
    answer = sweep.try_value("kin40k", method, value, 0, small_folder, TINY)
    assert answer["n_models"] == n_models
    assert answer["n_rows"] == 300
    assert all(isfinite(score) for score in answer["test"].values())
    assert answer["seconds"] > 0


@pytest.mark.parametrize("method", stability.WHO)
@pytest.mark.parametrize("order", stability.ORDERS)
def test_a_stream_that_is_harmless_is_learned_stably(small_folder, method, order):
    answer = stability.stream_through("motorcycle", method, order, small_folder, TINY)
    assert answer["is_finite"] is True
    assert answer["n_rows"] == 150
    assert answer["rmse"] < 0.5
    assert 0.7 < answer["worst"] < 1.3
    assert 0.7 < answer["worst_around"] < 1.3
    assert answer["seconds"] > 0
    assert answer["dropped"] >= 0


def test_rows_that_are_shuffled_are_learned_in_another_order(small_folder):
    orders = [stability.stream_through("motorcycle", "OVFE", order, small_folder, TINY) for order in stability.ORDERS]
    assert orders[0]["rmse"] != orders[1]["rmse"]


def test_the_worst_is_told_in_halves_of_the_range():
    y = np.array([10.0, 30.0, 14.0])
    assert stability._worst(y, y) == 1.0
    assert stability._worst(np.array([20.0, 15.0]), y) == 0.5
    assert stability._worst(np.array([20.0, -180.0]), y) == 20.0


# All together


def all_names(plan):
    return list(plan.stability_sets)


every_plan = pytest.mark.parametrize("plan", [QUICK, FULL], ids=["quick", "full"])


@every_plan
def test_every_job_has_a_key_of_its_own(plan):
    jobs = running.all_jobs(plan, all_names(plan))
    identities = {journal_module._identity(job.study, job.key) for job in jobs}
    assert len(identities) == len(jobs)
    assert all(job.cost > 0 for job in jobs)


def test_every_job_is_given_what_it_needs(path):
    journal = Journal(path, QUICK.to_json())
    jobs = running.all_jobs(QUICK, all_names(QUICK))
    rng = np.random.default_rng(0)
    for job in jobs:
        if job.study == search.SEARCH:
            errors = rng.uniform(size=len(CONTESTANTS[job.key["method"]].reading))
            setting, method = job.key["setting"], job.key["method"]
            tried(journal, method, {setting: errors}, course=job.key["course"], trial=job.key["trial"])
        elif job.study == TOY:
            journal.add(TOY, job.key, {"test": {"rmse": rng.uniform()}, "n_models": 2})
    assert {job.round for job in jobs} == {0, 1}
    for job in jobs:
        inspect.signature(job.work).bind(**job.key, **job.given(journal), folder=None, plan=QUICK)


def test_search_and_tables_fit_together(monkeypatch, small_folder, journal):
    for name, contestant in CONTESTANTS.items():
        monkeypatch.setitem(CONTESTANTS, name, replace(contestant, learning=contestant.learning[1:3]))
    jobs = [*search.jobs(TINY, ["tzibana"]), *tables.jobs(TINY, ["tzibana"])]
    assert run(jobs, journal, folder=small_folder, plan=TINY, n_jobs=1) == []
    again = reopened(journal)
    assert all((job.study, job.key) in again for job in jobs)
    assert len(again.of(search.SEARCH)) == 4 * 2
    assert {entry["method"] for entry in again.of(tables.TABLES)} == {*CONTESTANTS, "exact GP", "interpolation"}
    for method in CONTESTANTS:
        (final,) = again.of(tables.TABLES, method=method)
        assert search._restored(final["settings"]) == search.chosen(again, "tzibana", method, 0)


def test_data_that_are_missing_are_named(monkeypatch, small_folder):
    def no_network(**arguments):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", no_network)
    found, missing = running.available(QUICK, small_folder)
    assert found == ["tzibana", "kin40k", "abalone", "motorcycle"]
    assert [sentence.split(":")[0] for sentence in missing] == ["opinicon", "sarcos", "pumadyn"]
    assert "name the folder that holds it" in missing[0]
    assert "OpenML cannot be reached" in missing[1]
    jobs = running.all_jobs(QUICK, found)
    assert {job.key["course"] for job in jobs if "course" in job.key} == {TOY, "tzibana", "kin40k", "abalone"}


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole.replace(whole[500:540], bytes(40))])
def test_a_damaged_file_is_missing(small_folder, tmp_path, damage):
    (tmp_path / "motorcycle.npz").write_bytes(damage((small_folder / "motorcycle.npz").read_bytes()))
    found, missing = running.available(replace(QUICK, stability_sets=("motorcycle",)), tmp_path)
    assert not found
    assert missing[0].startswith("motorcycle: ")
