"""Rows that `wgpr stream` and `wgpr update` have taken are in a journal beside the map until they are saved."""

import errno
import os
import signal
import sys
import time
from functools import cache
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from command_line import NAMES, SETTINGS, SMALL, child, exit_code, survey, write_survey
from damage import flipped_bit
from journals import no_room
from streams import assert_same_learning
from wgpr import LocalGPRegressor, WGPRegressor, load
from wgpr.cli import console, learn, lines, saving, session
from wgpr.cli.lines import LineParser
from wgpr.cli.saving import journal_of, map_writer
from wgpr.cli.session import StreamSession
from wgpr.cli.stream import run_stream
from wgpr.io import store
from wgpr.io.files import is_locked, locked
from wgpr.io.journal import Journal, JournalError
from wgpr.io.rows import Forecasts
from wgpr.io.store import Store

X, Y = NAMES[:2], "depth"
JOURNAL = Path(".a.map.journal")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def learned_map():
    """An estimator that has learned the first 40 rows of `survey(200)`; tests only save it."""
    return WGPRegressor(**SETTINGS).partial_fit(survey(200)[X][:40], survey(200)[Y][:40])


@pytest.fixture
def saved_map(learned_map):
    """A map of the first 40 rows of `survey(200)`."""
    learned_map.save("a.map")
    return Path("a.map")


def text_of(rows, **options):
    return rows.to_csv(index=False, **options)


def kill_stream(*arguments, rows, header=True):
    """`wgpr stream` is killed after it has answered a query behind the rows: it has acknowledged them."""
    with child("stream", *arguments) as stream:
        stream.stdin.write(text_of(rows, header=header) + "3.0,1.0\n")
        stream.stdin.flush()
        assert stream.stdout.readline()
        stream.kill()
        stream.join()


def assert_learned(path, rows, **settings):
    """The map has learned exactly these rows, as if nothing had been interrupted."""
    found = load(path)
    settings = settings or {"random_state": found.random_state}
    assert_same_learning(found, _learned(type(found), rows[NAMES].to_numpy().tobytes(), tuple(settings.items())))


@cache
def _learned(method, rows, settings):
    """An estimator that has learned rows (n, 3), given as bytes."""
    frame = pd.DataFrame(np.frombuffer(rows).reshape(-1, 3), columns=NAMES)
    return method(**dict(settings)).partial_fit(frame[X], frame[Y])


def files():
    """Names and contents of all files but locks."""
    return {path.name: path.read_bytes() for path in Path().iterdir() if not path.name.endswith(".lock")}


# Killed streams


def test_a_killed_stream_loses_nothing(wgpr, saved_map):
    rows = survey(200)
    before = saved_map.read_bytes()
    kill_stream("a.map", rows=rows[40:110])
    assert saved_map.read_bytes() == before
    code, _, said = wgpr("stream", "a.map", stdin=text_of(rows[110:]))
    assert (code, "70 rows of an interrupted run were learned from its journal\n" in said) == (0, True)
    assert_learned("a.map", rows, **SETTINGS)
    assert Path("a.map~").read_bytes() == before
    assert {path.name for path in Path().iterdir()} == {"a.map", "a.map~"}


@pytest.mark.parametrize("settings", [SMALL, []], ids=["batches", "default"])
def test_a_killed_stream_that_began_a_map_loses_nothing(wgpr, settings):
    rows = survey(150)
    kill_stream("a.map", *settings, rows=rows[:90])
    assert not Path("a.map").exists()
    code, _, said = wgpr("update", "a.map")
    assert (code, "90 rows of an interrupted run were learned" in said) == (0, True)
    rows[90:].to_csv("more.csv", index=False)
    assert wgpr("update", "a.map", "more.csv")[0] == 0
    assert (load("a.map").target_name_, list(load("a.map").feature_names_in_)) == (Y, X)
    assert_learned("a.map", rows, **(SETTINGS if settings else {}))


def test_a_map_that_was_not_yet_saved_keeps_its_method_and_settings(wgpr):
    kill_stream("a.map", "-m", "lgpr", "-s", "w_gen=0.3", "-s", "batch_size=20", rows=survey(50))
    assert wgpr("update", "a.map")[0] == 0
    model = load("a.map")
    assert (type(model), model.w_gen, model.n_samples_seen_) == (LocalGPRegressor, 0.3, 50)
    kill_stream("b.map", *SMALL, "-s", "threshold=inf", rows=survey(30))
    code, _, said = wgpr("stream", "b.map", "-s", "threshold=3", stdin="1,1,1\n")
    assert (code, "leave out --method and --set" in said) == (2, True)
    assert wgpr("stream", "b.map", stdin="1,1,1\n")[0] == 0
    assert (load("b.map").threshold, load("b.map").n_samples_seen_) == (np.inf, 31)


def test_weights_are_in_the_journal(wgpr):
    rows = survey(100)
    rows["quality"] = np.random.default_rng(0).uniform(0.1, 4.0, 100)
    kill_stream("a.map", "--x", "east,north", "--y", Y, "--weight", "quality", rows=rows[:60])
    assert wgpr("stream", "a.map", "--weight", "quality", stdin=text_of(rows[60:]))[0] == 0
    model = load("a.map")
    expected = WGPRegressor(random_state=model.random_state).partial_fit(rows[X], rows[Y], rows["quality"])
    assert_same_learning(model, expected)


def test_a_stream_killed_at_random_moments(wgpr):
    """Acknowledged rows are there, none twice, and the map is that of a run without kills, to the bit."""
    rows, rng, n_seen = survey(400), np.random.default_rng(0), 0
    for _ in range(4):
        n_acknowledged = n_seen
        with child("stream", "a.map", *([] if n_seen else SMALL), "--save-every", "0.1") as stream:
            until = time.monotonic() + rng.uniform(0.05, 0.5)
            for first in range(n_seen, 400, 10):
                if time.monotonic() > until:
                    break
                stream.stdin.write(text_of(rows[first : first + 10], header=first == n_seen) + "3.0,1.0\n")
                stream.stdin.flush()
                assert stream.stdout.readline()
                n_acknowledged = first + 10
            stream.stdin.write(text_of(rows[n_acknowledged : n_acknowledged + 40], header=False))
            stream.stdin.flush()
            time.sleep(rng.uniform(0.0, 0.05))
        wgpr("update", "a.map")
        n_seen = load("a.map").n_samples_seen_
        assert n_acknowledged <= n_seen <= n_acknowledged + 40
    assert wgpr("stream", "a.map", stdin=text_of(rows[n_seen:]))[0] == 0
    assert_learned("a.map", rows, **SETTINGS)


def killing(function):
    """A function that kills its process instead."""

    def kill(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    kill.__name__ = function.__name__
    return kill


@pytest.mark.parametrize(
    ("owner", "name", "n_lacking"),
    [
        (Journal, "describe", 60),
        (store, "write_file", 60),
        (Store, "trim", 0),
        (Store, "close", 0),
        (saving, "learn_rows", 0),  # not reached
    ],
)
def test_a_kill_while_the_map_is_saved(wgpr, saved_map, monkeypatch, owner, name, n_lacking):
    rows = survey(200)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killing(getattr(owner, name)))
        with child("stream", "a.map") as stream:
            stream.stdin.write(text_of(rows[40:100]))
            stream.stdin.close()
            exit_code(stream)
    assert JOURNAL.exists() is (name != "learn_rows")
    code, _, said = wgpr("stream", "a.map", stdin=text_of(rows[100:]))
    assert (code, "60 rows of an interrupted run" in said) == (0, n_lacking == 60)
    assert_learned("a.map", rows, **SETTINGS)
    assert not JOURNAL.exists()


def test_a_kill_while_the_journal_is_learned(wgpr, saved_map, monkeypatch):
    rows = survey(200)
    kill_stream("a.map", rows=rows[40:100])
    for owner, name in ((saving, "learn_rows"), (saving, "note_tables"), (store, "write_file"), (Store, "trim")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killing(getattr(owner, name)))
            with child("update", "a.map") as update:
                assert exit_code(update) == -signal.SIGKILL
    assert wgpr("update", "a.map")[0] == 0
    assert_learned("a.map", rows[:100], **SETTINGS)


def test_a_journal_is_as_private_as_its_map(saved_map):
    saved_map.chmod(0o600)
    kill_stream("a.map", rows=survey(200)[40:70])
    modes = {path.name: path.stat().st_mode & 0o777 for path in Path().glob(".a.map.journal*")}
    assert modes == {".a.map.journal": 0o600, ".a.map.journal-wal": 0o600}


def test_a_stream_that_is_saved_trims_its_journal(wgpr, saved_map):
    rows = survey(200)
    with child("stream", "a.map", "--save-every", "0") as stream:
        for first in (40, 80, 120):
            stream.stdin.write(text_of(rows[first : first + 40], header=first == 40) + "3.0,1.0\n")
            stream.stdin.flush()
            assert stream.stdout.readline()
        deadline = time.monotonic() + 120
        while load("a.map").n_samples_seen_ < 160 and time.monotonic() < deadline:
            time.sleep(0.01)
    said = wgpr("update", "a.map")[2]
    assert "rows of an interrupted run" not in said
    assert not JOURNAL.exists()
    assert_learned("a.map", rows[:160], **SETTINGS)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (WGPRegressor, "partial_fit"),
        (StreamSession, "good_lines"),
        (LineParser, "parse"),
        (StreamSession, "process"),
        (StreamSession, "_arrays"),
    ],
    ids=["learning", "checking", "parsing", "before the journal", "to the journal"],
)
def test_an_interrupted_stream_learns_what_it_has_taken(monkeypatch, owner, name):
    original = getattr(owner, name)

    def slow(*arguments):
        Path("begun").touch()
        time.sleep(0.01 if name == "parse" else 0.1)  # Ctrl-C comes here
        return original(*arguments)

    monkeypatch.setattr(owner, name, slow)
    with child("stream", "a.map", *SMALL) as stream:
        stream.stdin.write(text_of(survey(50)))
        stream.stdin.flush()
        while not Path("begun").exists():
            time.sleep(0.001)
        os.kill(stream.pid, signal.SIGINT)
        said = stream.stderr.read()
        assert exit_code(stream) == 0
    assert ("interrupted" in said, "50 rows learned" in said) == (True, True)
    assert load("a.map").n_samples_seen_ == 50
    assert not JOURNAL.exists()


def test_a_stream_that_is_interrupted_when_it_has_just_read_learns_that(monkeypatch):
    def read(*arguments):
        data = os.read(*arguments)
        signal.raise_signal(signal.SIGINT)
        return data

    monkeypatch.setattr(lines, "os", SimpleNamespace(read=read))
    with child("stream", "a.map", *SMALL) as stream:
        stream.stdin.write(text_of(survey(50)))
        stream.stdin.flush()
        said = stream.stderr.read()
        assert exit_code(stream) == 0
    assert ("interrupted" in said, "50 rows learned" in said) == (True, True)
    assert load("a.map").n_samples_seen_ == 50


def test_a_stream_that_is_interrupted_when_it_has_just_learned_saves_that(monkeypatch):
    def learn(*arguments, original=Forecasts.learn):
        original(*arguments)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Forecasts, "learn", learn)
    with child("stream", "a.map", *SMALL) as stream:
        stream.stdin.write(text_of(survey(50)))
        stream.stdin.flush()
        said = stream.stderr.read()
        assert exit_code(stream) == 0
    assert "50 rows learned" in said
    assert load("a.map").n_samples_seen_ == 50


def test_a_stream_that_is_interrupted_twice_keeps_its_rows_in_the_journal(wgpr, monkeypatch):
    """The first time before the rows are learned, then while the journal is learned."""
    monkeypatch.setattr(console, "_SAME_REQUEST", 0.0)

    def interrupted(original):
        def call(*arguments):
            signal.raise_signal(signal.SIGINT)
            return original(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(StreamSession, "_answers", interrupted(StreamSession._answers))
        patch.setattr(saving, "learn_rows", interrupted(saving.learn_rows))
        with child("stream", "a.map", *SMALL) as stream:
            stream.stdin.write(f"east,north,depth\n2.0,1.0,\n{text_of(survey(50), header=False)}")
            stream.stdin.flush()
            said = stream.stderr.read()
            assert exit_code(stream) != 0
    assert ("interrupted" in said, JOURNAL.exists()) == (True, True), said
    assert said.count("warning: a.map lacks 50 rows, which its journal keeps for the next run") == 1, said
    assert wgpr("update", "a.map")[0] == 0
    assert load("a.map").n_samples_seen_ == 50


def test_a_stream_that_is_asked_to_stop_by_two_signals_at_once_learns_what_it_has_read(monkeypatch):
    """A wrapper passes on a signal that all processes of a terminal have received."""

    def interrupted(self, *arguments, original=StreamSession.good_lines):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        return original(self, *arguments)

    monkeypatch.setattr(StreamSession, "good_lines", interrupted)
    with child("stream", "a.map", *SMALL) as stream:
        stream.stdin.write(text_of(survey(50)))
        stream.stdin.flush()
        said = stream.stderr.read()
        assert exit_code(stream) == 0
    assert (said.count("interrupted"), "50 rows learned" in said) == (1, True), said
    assert load("a.map").n_samples_seen_ == 50


def test_a_stream_without_good_rows_saves_no_map(wgpr):
    for text in ("", "east,north,depth\n1,2,deep\n"):
        said = wgpr("stream", "a.map", stdin=text)[2]
        assert ("no rows were learned: no map is saved" in said, Path("a.map").exists()) == (True, False), said


def test_a_stream_whose_messages_nobody_reads_can_be_stopped(wgpr, monkeypatch):
    """A message then takes for ever. Each further request to stop ends one of them, and the map is saved."""

    def told(text):
        Path("told").touch()
        time.sleep(60.0)

    monkeypatch.setattr(session, "inform", told)
    monkeypatch.setattr(console, "_SAME_REQUEST", 0.0)
    with child("stream", "a.map", *SMALL) as stream:
        stream.stdin.write(text_of(survey(50)) + "2.0,1.0,\n")
        stream.stdin.flush()
        stream.stdout.readline()
        os.kill(stream.pid, signal.SIGINT)
        while not Path("told").exists():
            time.sleep(0.001)
        for _ in range(3):  # while it stops, reports and saves
            if stream.is_alive():
                os.kill(stream.pid, signal.SIGTERM)
                stream.join(2.0)
        assert not stream.is_alive()
    assert load("a.map").n_samples_seen_ == 50


@pytest.mark.parametrize("is_other", [False, True], ids=["main thread", "another thread"])
@pytest.mark.parametrize("options", [[], ["--nmea", "lake.nmea"]], ids=["standard input", "named pipe"])
def test_a_stream_that_waits_for_a_writer_can_be_interrupted(monkeypatch, options, is_other):
    """Also if another thread gets the signal, such as one of BLAS. The system call of the main thread then goes on."""
    if options:
        pytest.importorskip("pynmea2", reason='needs pip install "wgpr[nmea]"')
        os.mkfifo("lake.nmea")

    def run(*arguments):
        if is_other:
            Thread(target=time.sleep, args=[60.0], daemon=True).start()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        Path("begun").touch()
        run_stream(*arguments)

    monkeypatch.setattr("wgpr.cli.stream.run_stream", run)
    with child("stream", "a.map", *options) as waiting:
        while not Path("begun").exists():
            time.sleep(0.001)
        time.sleep(0.5)
        os.kill(waiting.pid, signal.SIGINT)
        waiting.join(15.0)
        assert waiting.exitcode == 0
        said = waiting.stderr.read()
    assert ("interrupted" in said, "no rows were learned: no map is saved" in said) == (True, True), said


# Killed updates


@pytest.fixture
def kill_update(monkeypatch):
    """`wgpr update` is killed when it has learned some pieces of 20 rows, and has taken one more."""

    def run(*arguments, n_pieces):
        count = []

        def learn_rows(*rows, original=learn.learn_rows):
            if len(count) == n_pieces:
                os.kill(os.getpid(), signal.SIGKILL)
            count.append(original(*rows))

        with monkeypatch.context() as patch:
            patch.setattr(learn, "_PIECE", 20)
            patch.setattr(learn, "learn_rows", learn_rows)
            with child("update", *arguments) as update:
                assert exit_code(update) == -signal.SIGKILL, update.stderr.read()

    return run


def test_a_killed_update_loses_nothing_and_learns_nothing_twice(wgpr, saved_map, kill_update):
    rows = survey(200)
    rows[40:].to_csv("more.csv", index=False)
    kill_update("a.map", "more.csv", n_pieces=2)
    assert load("a.map").n_samples_seen_ == 40
    code, _, said = wgpr("update", "a.map", "more.csv")
    assert (code, "60 rows of an interrupted run were learned" in said, "--skip 60" in said) == (1, True, True)
    assert_learned("a.map", rows[:100], **SETTINGS)
    kill_update("a.map", "more.csv", "--skip", 60, n_pieces=0)
    code, _, said = wgpr("update", "a.map", "more.csv", "--skip", 60)
    assert (code, "20 rows of an interrupted run" in said, "--skip 80" in said) == (1, True, True)
    assert wgpr("update", "a.map", "more.csv", "--skip", 80)[0] == 0
    assert_learned("a.map", rows, **SETTINGS)


def test_an_update_killed_in_its_second_file(wgpr, saved_map, kill_update):
    rows = survey(200)
    rows[40:90].to_csv("b.csv", index=False)
    rows[90:].to_csv("c.csv", index=False)
    kill_update("a.map", "b.csv", "c.csv", n_pieces=3)
    code, _, said = wgpr("update", "a.map", "b.csv", "c.csv")
    assert (code, "70 rows of" in said, "b.csv begins with" in said, "--skip 50" in said) == (1, True, True, True)
    code, _, said = wgpr("update", "a.map", "b.csv", "c.csv", "--skip", 50)
    assert (code, "c.csv begins with" in said, "--skip 70" in said) == (1, True, True)
    assert wgpr("update", "a.map", "b.csv", "c.csv", "--skip", 70)[0] == 0
    assert_learned("a.map", rows, **SETTINGS)


def test_a_short_file_is_recognised_after_a_kill(wgpr, saved_map, kill_update):
    survey(200)[40:45].to_csv("short.csv", index=False)
    kill_update("a.map", "short.csv", n_pieces=0)
    code, _, said = wgpr("update", "a.map", "short.csv")
    assert (code, "5 rows of an interrupted run" in said, "--skip 5" in said) == (1, True, True)
    assert load("a.map").n_samples_seen_ == 45


def test_a_pipe_that_was_killed_is_recognised(wgpr, saved_map, monkeypatch):
    rows = survey(200)[40:]

    def learn_rows(*arguments, original=learn.learn_rows):
        original(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(learn, "_PIECE", 20)
        patch.setattr(learn, "learn_rows", learn_rows)
        with child("update", "a.map", "-") as update:
            update.stdin.write(text_of(rows))
            update.stdin.close()
            exit_code(update)
    code, _, said = wgpr("update", "a.map", "-", stdin=text_of(rows))
    assert (code, "20 rows of an interrupted run" in said, "--skip 20" in said) == (1, True, True)


def test_another_output_leaves_the_journal_alone(wgpr, saved_map):
    """Nothing is acknowledged before the other map is there: the command can be repeated."""
    write_survey("more.csv", 50, seed=1)
    kill_stream("a.map", rows=survey(200)[40:70])
    before = files()
    code, _, said = wgpr("update", "a.map", "more.csv", "-o", "b.map")
    assert (code, "warning: a.map may lack rows of an interrupted run" in said) == (0, True)
    assert before.items() <= files().items()
    assert set(files()) - set(before) == {"b.map"}
    assert load("b.map").n_samples_seen_ == 90
    assert wgpr("update", "a.map", "-o", "b.map")[0] == 2


def test_without_data_and_without_a_journal_there_is_nothing_to_learn(wgpr, saved_map):
    code, _, said = wgpr("update", "a.map")
    assert (code, "name DATA" in said) == (2, True)


def test_an_interrupted_update_can_be_continued_exactly(wgpr, saved_map, monkeypatch):
    rows, pieces = survey(200), []
    rows[40:].to_csv("more.csv", index=False)

    def learn_rows(*arguments, original=learn.learn_rows):
        pieces.append(arguments)
        if len(pieces) == 3:
            raise KeyboardInterrupt
        original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(learn, "_PIECE", 20)
        patch.setattr(learn, "learn_rows", learn_rows)
        code, _, said = wgpr("update", "a.map", "more.csv")
    assert (code, "interrupted" in said, "--skip 60" in said) == (1, True, True)
    assert not JOURNAL.exists()
    assert wgpr("update", "a.map", "more.csv", "--skip", 60)[0] == 0
    assert_learned("a.map", rows, **SETTINGS)


# Commands that only read, and commands that replace


READING = [
    ["predict", "a.map", "places.csv"],
    ["evaluate", "a.map", "places.csv"],
    ["grid", "a.map", "--spacing", "1", "-o", "new"],
    ["info", "a.map"],
    ["plot", "a.map", "--spacing", "1", "-o", "new"],
    ["compact", "a.map", "-o", "new"],
    ["diff", "a.map", "a.map", "-o", "new"],
]
SUFFIXES = {"grid": ".nc", "plot": ".png"}


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_commands_that_only_read_say_what_the_map_lacks_and_change_nothing(wgpr, saved_map, command):
    survey(20, seed=1).to_csv("places.csv", index=False)
    kill_stream("a.map", rows=survey(200)[40:70])
    before = files()
    output = f"new{SUFFIXES.get(command[0], '')}"
    code, _, said = wgpr(*[output if word == "new" else word for word in command])
    told = "warning: a.map may lack rows of an interrupted run; wgpr update a.map learns them from its journal\n"
    assert (code, said.count(told)) == (0, 2 if command[0] == "diff" else 1), said
    assert before.items() <= files().items()
    assert set(files()) - set(before) <= {output}


def test_no_warning_while_the_map_is_written(wgpr, saved_map):
    with child("stream", "a.map") as stream:
        stream.stdin.write(text_of(survey(200)[40:70]) + "3.0,1.0\n")
        stream.stdin.flush()
        assert stream.stdout.readline()
        assert JOURNAL.exists()
        code, _, said = wgpr("info", "a.map")
        assert (code, "warning" in said) == (0, False)
        stream.stdin.close()
        assert exit_code(stream) == 0
    assert "warning" not in wgpr("info", "a.map")[2]


def test_a_map_that_was_never_saved_is_told_to_readers(wgpr):
    kill_stream("a.map", *SMALL, rows=survey(50))
    for command in (["info", "a.map"], ["predict", "a.map", "-"]):
        code, _, said = wgpr(*command, stdin="east,north\n1,1\n")
        assert (code, "wgpr update a.map saves it" in said) == (1, True)


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "more.csv", *SMALL, "-o", "a.map"],
        ["update", "b.map", "more.csv", "-o", "a.map"],
        ["compact", "b.map", "-o", "a.map"],
        ["apply", "b.map", "news", "-o", "a.map"],
    ],
    ids=lambda command: command[0],
)
def test_a_map_with_rows_in_a_journal_is_not_replaced(wgpr, saved_map, command):
    write_survey("more.csv", 50, seed=1)
    load("a.map").flush().save("b.map")
    assert wgpr("diff", "b.map", "b.map", "-o", "news")[0] == 0
    kill_stream("a.map", rows=survey(200)[40:70])
    before = files()
    code, _, said = wgpr(*command)
    assert (code, "may lack rows of an interrupted run" in said, "wgpr update a.map" in said) == (1, True, True)
    assert files() == before
    assert wgpr("update", "a.map")[0] == 0
    assert wgpr(*command)[0] == 0


def test_a_new_map_with_rows_in_a_journal_is_not_replaced(wgpr):
    write_survey("more.csv", 50, seed=1)
    kill_stream("a.map", *SMALL, rows=survey(50))
    assert wgpr("fit", "more.csv", *SMALL, "-o", "a.map")[0] == 1
    assert not Path("a.map").exists()


def test_a_journal_whose_rows_are_saved_is_removed(wgpr, saved_map, monkeypatch):
    write_survey("more.csv", 50, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "trim", killing(Store.trim))
        with child("update", "a.map", "more.csv") as update:
            exit_code(update)
    assert JOURNAL.exists()
    saved = saved_map.read_bytes()
    assert wgpr("update", "a.map")[0] == 0
    assert not JOURNAL.exists()
    assert saved_map.read_bytes() == saved


# Damage


def test_a_damaged_journal_is_an_error_with_the_remedy(wgpr, saved_map):
    kill_stream("a.map", rows=survey(200)[40:70])
    JOURNAL.write_bytes(b"x" * 5000)
    before = saved_map.read_bytes()
    for command in (["update", "a.map"], ["stream", "a.map"], ["fit", "more.csv", "-o", "a.map"]):
        write_survey("more.csv", 50, seed=1)
        code, _, said = wgpr(*command)
        assert (code, ".a.map.journal" in said, "move the journal's files away" in said) == (1, True, True)
        assert "Traceback" not in said
    code, _, said = wgpr("info", "a.map")
    assert (code, "warning" in said) == (0, True)
    assert saved_map.read_bytes() == before
    for path in Path().glob(".a.map.journal*"):
        path.rename(f"away{path}")
    assert wgpr("update", "a.map", "more.csv")[0] == 0


def test_bits_that_flip_in_a_journal_never_give_other_rows(wgpr, saved_map):
    rows, rng = survey(200), np.random.default_rng(0)
    kill_stream("a.map", rows=rows[40:70])
    before = files()
    for _ in range(10):
        for name, content in before.items():
            Path(name).write_bytes(content)
        path = rng.choice([path for path in Path().glob(".a.map.journal*") if path.stat().st_size])
        path.write_bytes(flipped_bit(path.read_bytes(), rng))
        code, _, said = wgpr("update", "a.map")
        assert "Traceback" not in said
        assert code == 1 or load("a.map").n_samples_seen_ in (40, 70)
        if code == 0 and load("a.map").n_samples_seen_ == 70:
            assert_learned("a.map", rows[:70], **SETTINGS)


def test_a_map_that_was_changed_meanwhile_does_not_get_the_rows(wgpr, saved_map):
    kill_stream("a.map", rows=survey(200)[40:70])
    original = saved_map.read_bytes()
    more = survey(30, seed=1)
    load("a.map").partial_fit(more[X], more[Y]).save("a.map")  # as many rows as the journal has, and others
    changed = saved_map.read_bytes()
    code, _, said = wgpr("update", "a.map")
    assert (code, "was changed by another program" in said, "move the journal's files away" in said) == (1, True, True)
    assert saved_map.read_bytes() == changed
    saved_map.unlink()
    code, _, said = wgpr("update", "a.map")
    assert (code, "is missing" in said) == (1, True)
    saved_map.write_bytes(original)
    assert wgpr("update", "a.map")[0] == 0
    assert load("a.map").n_samples_seen_ == 70


def test_a_journal_of_something_else_is_refused(wgpr, saved_map):
    good = {"columns": [], "has_weights": False, "tables": []}
    others = [{"tables": None}, {"tables": [1]}, {"tables": ["60 rows"]}, {"has_weights": "no"}, {"columns": [1]}]
    lacking = [{key: good[key] for key in good if key != name} for name in good]
    for about in ({}, *(good | other for other in others), *lacking):
        Journal.create(journal_of("a.map"), about, 40).close()
        code, _, said = wgpr("update", "a.map")
        assert (code, "is not the journal of a map; move its files away" in said) == (1, True)
        JOURNAL.unlink()
    Journal.create(journal_of("a.map"), good | {"maps": True}, 40).close()
    code, _, said = wgpr("update", "a.map")
    assert (code, "move the journal's files away" in said) == (1, True)
    with pytest.raises(JournalError, match="its description is damaged"):
        Journal.create(Path("other.journal"), [])


def test_a_journal_that_is_there_is_not_overwritten(saved_map):
    path = saved_map.resolve()
    store = Store.create(path, journal_of(path), {}, 40)
    with pytest.raises(FileExistsError, match="would be lost"):
        Store.create(path, journal_of(path), {}, 40)
    store.close(remove=True)
    assert not JOURNAL.exists()


def test_rows_that_cannot_be_learned_stay_in_the_journal(wgpr, saved_map, monkeypatch):
    def partial_fit(self, X, y):
        raise FloatingPointError("no number")

    with monkeypatch.context() as patch:
        patch.setattr(WGPRegressor, "partial_fit", partial_fit)
        code, _, said = wgpr("stream", "a.map", stdin=text_of(survey(200)[40:70]))
        assert (code, "no number" in said, JOURNAL.exists()) == (1, True, True)
        code, _, said = wgpr("update", "a.map")
        assert (code, "cannot be learned" in said, "move its files away" in said) == (1, True, True)
    assert wgpr("update", "a.map")[0] == 0
    assert_learned("a.map", survey(200)[:70], **SETTINGS)


# No room, and maps that are saved elsewhere


def test_a_full_disk_stops_a_stream_which_saves_what_it_has_learned(wgpr, saved_map, monkeypatch):
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 500)
    with no_room(150_000):
        code, _, said = wgpr("stream", "a.map", stdin=text_of(survey(200)[40:]))
    assert (code, "there is no room to write .a.map.journal" in said) == (1, True)
    assert 40 < load("a.map").n_samples_seen_ < 200
    assert not JOURNAL.exists()


def test_a_full_disk_stops_an_update_which_saves_what_it_has_learned(wgpr, saved_map, monkeypatch):
    monkeypatch.setattr(learn, "_PIECE", 5)
    rows = survey(200)
    rows[40:].to_csv("more.csv", index=False)
    with no_room(150_000):
        code, _, said = wgpr("update", "a.map", "more.csv")
    n_learned = load("a.map").n_samples_seen_ - 40
    assert (code, "there is no room" in said, f"--skip {n_learned}" in said) == (1, True, True)
    assert 0 < n_learned < 160
    assert wgpr("update", "a.map", "more.csv", "--skip", n_learned)[0] == 0
    assert_learned("a.map", rows, **SETTINGS)


def test_no_room_for_a_journal_at_all(wgpr, saved_map):
    before = files()
    with no_room(10_000):
        code, _, said = wgpr("stream", "a.map", stdin=text_of(survey(200)[40:70]))
    assert (code, "there is no room" in said, "Traceback" in said) == (1, True, False)
    assert files() == before


def test_a_map_that_cannot_be_saved_keeps_its_journal(wgpr, saved_map, monkeypatch):
    def write_file(path, data):
        raise OSError("there is no room")

    rows = survey(200)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_file", write_file)
        for command in ("stream", "update"):
            code, _, said = wgpr(command, "a.map", stdin=text_of(rows[40:70]) if command == "stream" else "")
            assert (code, "there is no room" in said, JOURNAL.exists()) == (1, True, True)
            assert said.count("a.map lacks 30 rows, which its journal keeps for the next run") == 1, said
    assert load("a.map").n_samples_seen_ == 40
    assert wgpr("update", "a.map")[0] == 0
    assert_learned("a.map", rows[:70], **SETTINGS)
    assert not JOURNAL.exists()


def test_a_stream_goes_on_if_the_map_cannot_be_saved_for_a_while(wgpr, saved_map, monkeypatch):
    def write_file(path, data, original=store.write_file, calls=[]):  # noqa: B006
        calls.append(path)
        if len(calls) == 1:
            raise OSError("there is no room")
        original(path, data)

    monkeypatch.setattr(lines, "_CHUNK_BYTES", 500)
    monkeypatch.setattr(store, "write_file", write_file)
    code, _, said = wgpr("stream", "a.map", "--save-every", "0", stdin=text_of(survey(200)[40:]))
    assert (code, said.count("warning: there is no room; the rows are in the journal")) == (0, 1), said
    assert (load("a.map").n_samples_seen_, JOURNAL.exists()) == (200, False)


def test_what_was_fitted_is_saved_elsewhere_if_the_map_cannot_be_written(wgpr, monkeypatch, tmp_path):
    def write_file(path, data, original=saving.write_file):
        if Path(path).parent == tmp_path:
            raise OSError("there is no room")
        original(path, data)

    rows = write_survey("survey.csv", 60)
    monkeypatch.setattr(saving, "write_file", write_file)
    code, _, said = wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")
    assert (code, "there is no room; the map is in " in said, Path("a.map").exists()) == (1, True, False)
    assert_learned(said.split("the map is in ")[1].split(" instead")[0], rows, **SETTINGS)
    monkeypatch.setattr(saving, "write_file", lambda *_: (_ for _ in ()).throw(OSError("there is no room at all")))
    code, _, said = wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")
    assert (code, "there is no room at all" in said, "the map is in" in said) == (1, True, False)


def test_rows_do_not_continue_a_map_that_another_program_puts_there(saved_map, monkeypatch):
    """Also if the command is killed when it is about to save its own map."""
    rows = survey(200)
    with map_writer(saved_map, continues=True) as writer:
        model = writer.load()
        writer.keep(rows[40:70][[*X, Y]].to_numpy(), model, NAMES)
        load("a.map").partial_fit(rows[X][70:], rows[Y][70:]).save("a.map")
        monkeypatch.setattr(saving, "write_file", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            writer.save(model)
    with pytest.raises(JournalError, match="changed by another program"):
        Store.open(saved_map.resolve(), journal_of(saved_map), 40)


def test_a_map_that_another_program_has_replaced_gets_no_journal(wgpr, saved_map, monkeypatch):
    def keep(*arguments, original=saving.MapWriter.keep, **options):
        original(*arguments, **options)
        load("a.map").flush().save("a.map")

    monkeypatch.setattr(saving.MapWriter, "keep", keep)
    code, _, said = wgpr("stream", "a.map", stdin=text_of(survey(200)[40:70]))
    assert (code, "changed by another program" in said, JOURNAL.exists()) == (1, True, False)


# Locks


def test_whether_a_lock_is_held_is_known_without_taking_it(tmp_path):
    lock = tmp_path / "lock"
    assert not is_locked(lock)
    assert not lock.exists()
    with locked(lock, "held"):
        assert is_locked(lock)
        with pytest.raises(BlockingIOError, match="held"), locked(lock, "held"):
            pass
    lock.touch()  # left by a process that was killed
    assert not is_locked(lock)
    assert lock.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other locks")
@pytest.mark.parametrize(("number", "may_be_held"), [(errno.EBADF, True), (errno.ENOLCK, False)])
def test_a_lock_that_nfs_does_not_tell_may_be_held(tmp_path, monkeypatch, number, may_be_held):
    lock = tmp_path / "lock"
    lock.touch()
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(number, os.strerror(number))))
    assert is_locked(lock) == may_be_held


def test_frames_have_the_names_of_the_map(wgpr):
    rows = survey(60)
    kill_stream("a.map", "--x", "1,2", "--y", "3", *SMALL, rows=rows, header=False)
    assert wgpr("update", "a.map")[0] == 0
    places = pd.DataFrame(rows[X].to_numpy(), columns=load("a.map").feature_names_in_)
    assert np.isfinite(load("a.map").predict(places)).all()
