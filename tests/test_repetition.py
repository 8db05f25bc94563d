"""Rows that a map has learned before are recognised, also if they come again in a stream."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from command_line import NAMES, SMALL, child, exit_code, survey, write_survey
from journals import no_room
from wgpr import load
from wgpr.cli import lines
from wgpr.cli.lines import Line
from wgpr.cli.repetition import Fingerprints, Replay, begins_alike

KNOWN = "were known already, and were left out"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def text_of(rows, **options):
    return rows.to_csv(index=False, **options)


def n_learned():
    return load("a.map").n_samples_seen_


@pytest.mark.parametrize("settings", [SMALL, []], ids=["batches", "default"])
def test_a_stream_that_begins_again_learns_what_is_new(wgpr, settings):
    rows = survey(300)
    for n_before, n_rows in ((0, 100), (100, 101), (101, 300)):
        code, _, said = wgpr("stream", "a.map", *([] if n_before else settings), stdin=text_of(rows[:n_rows]))
        assert (code, n_learned()) == (0, n_rows)
        assert (f"{n_before} rows {KNOWN}" in said) is (n_before > 0)
    assert len(load("a.map")._learned_tables) == 2 + 2 + 6  # of 100, 101 and 300 rows; what they share is noted once
    code, _, said = wgpr("stream", "a.map", stdin=text_of(rows[:100]))
    assert (code, f"100 rows {KNOWN}" in said, n_learned()) == (0, True, 300)
    assert wgpr("stream", "b.map", *settings, stdin=text_of(rows))[0] == 0
    queries = survey(20, seed=5)[NAMES[:2]]
    if settings:  # otherwise the seeds differ
        np.testing.assert_array_equal(load("a.map").predict(queries), load("b.map").predict(queries))
    assert wgpr("stream", "a.map", "--force", stdin=text_of(rows[:40]))[0] == 0
    assert n_learned() == 340


def test_a_stream_knows_rows_of_files_and_files_know_rows_of_a_stream(wgpr):
    monday, tuesday, new = write_survey("monday.csv", 90), write_survey("tuesday.csv", 60, seed=1), survey(50, seed=2)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    assert wgpr("update", "a.map", "tuesday.csv")[0] == 0
    text = text_of(monday) + text_of(tuesday) + text_of(new)
    code, _, said = wgpr("stream", "a.map", stdin=text)
    assert (code, f"150 rows {KNOWN}" in said, n_learned()) == (0, True, 200)
    code, _, said = wgpr("update", "a.map", "monday.csv")
    assert (code, "monday.csv begins with rows that the map has learned before" in said) == (1, True)
    new.to_csv("new.csv", index=False)
    assert wgpr("stream", "b.map", *SMALL, stdin=text_of(new))[0] == 0
    code, _, said = wgpr("update", "b.map", "new.csv")
    assert (code, "--skip 50" in said) == (1, True)


def test_a_killed_stream_that_begins_again_learns_nothing_twice(wgpr):
    rows = survey(200)
    for n_rows in (60, 130):
        with child("stream", "a.map", *(SMALL if n_rows == 60 else [])) as stream:
            stream.stdin.write(text_of(rows[:n_rows]) + "3.0,1.0\n")
            stream.stdin.flush()
            assert stream.stdout.readline()
    code, _, said = wgpr("stream", "a.map", stdin=text_of(rows))
    assert (code, f"130 rows {KNOWN}" in said, n_learned()) == (0, True, 200)


def test_known_rows_are_told_before_others_come(wgpr):
    assert wgpr("stream", "a.map", *SMALL, stdin=text_of(survey(50)))[0] == 0
    with child("stream", "a.map") as stream:
        stream.stdin.write(text_of(survey(50)))
        stream.stdin.flush()
        assert stream.stderr.readline().startswith(f"50 rows {KNOWN}")


def test_rows_that_were_left_out_are_part_of_a_stream(wgpr):
    text = text_of(survey(40)) + "3000,1000,1\n" + text_of(survey(80)[40:], header=False)
    assert wgpr("stream", "a.map", *SMALL, stdin=text)[0] == 0
    code, _, said = wgpr("stream", "a.map", stdin=text + "2,1,1\n")
    assert (code, f"81 rows {KNOWN}" in said, n_learned()) == (0, True, 81)


def test_new_rows_are_never_left_out(wgpr):
    rows = survey(200)
    assert wgpr("stream", "a.map", *SMALL, stdin=text_of(rows[:100]))[0] == 0
    for again in (rows[:1], rows[99:100], rows[50:100], rows[:9]):  # another beginning, or too short to tell
        n_before = n_learned()
        assert wgpr("stream", "a.map", stdin=text_of(again))[0] == 0
        assert n_learned() == n_before + len(again)
    n_before, other = n_learned(), rows[:120].copy()
    other.loc[80, "depth"] += 0.5  # the first 64 rows are the same
    code, _, said = wgpr("stream", "a.map", stdin=text_of(other))
    assert (code, f"64 rows {KNOWN}" in said, "not as before" in said) == (0, True, True)
    assert n_learned() == n_before + 56
    code, _, said = wgpr("stream", "a.map", stdin=text_of(other[:70]))
    assert (code, "6 rows at the end may be known already too" in said) == (1, True)
    assert n_learned() == n_before + 56


def test_rows_that_are_held_back_are_learned_if_a_stream_is_interrupted(wgpr):
    rows = survey(100)
    assert wgpr("stream", "a.map", *SMALL, stdin=text_of(rows))[0] == 0
    with child("stream", "a.map") as stream:
        stream.stdin.write(text_of(rows[:20]) + "3.0,1.0\n")
        stream.stdin.flush()
        assert stream.stdout.readline()
        os.kill(stream.pid, signal.SIGINT)
        assert exit_code(stream) == 0
    assert n_learned() == 120


def test_a_new_stream_is_learned_at_once(wgpr):
    write_survey("monday.csv", 90)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    replay = Replay(load("a.map")._learned_tables)
    first, *_ = (Line(row[:2], row[2]) for row in survey(2, seed=3).to_numpy().tolist())
    assert replay.split([first]) == ([], [first])


def test_fingerprints_do_not_depend_on_how_rows_come():
    rows = np.random.default_rng(0).normal(size=(150, 3))
    whole, single = Fingerprints(), Fingerprints()
    whole.add(rows)
    for row in rows:
        single.add(row[np.newaxis])
    assert whole.noted(150) == single.noted(150)
    assert [note.split(":")[0] for note in whole.noted(150)] == ["150 1", "150 32", "150 64", "150 128", "150 150"]
    assert [note.split(":")[0] for note in whole.noted(100)] == ["100 1", "100 32", "100 64"]
    assert [note.split(":")[0] for note in whole.noted(20)] == ["20 1", "20 32"]
    assert whole.noted(9) == []
    assert begins_alike(rows[:40], whole.noted(150)) == 150
    assert begins_alike(rows[1:], whole.noted(150)) == begins_alike(rows[:20], whole.noted(150)) == 0


def test_a_stream_without_a_line_of_use_fails(wgpr):
    code, _, said = wgpr("stream", "a.map", *SMALL, stdin=text_of(survey(20)) + "1,2,three\n")
    assert code == 0
    code, _, said = wgpr("stream", "a.map", stdin="1,2,three\n1,two,3\n")
    assert (code, "nothing was learned, because 2 lines were left out" in said) == (1, True)
    assert wgpr("stream", "a.map", stdin=text_of(survey(20)) + "1,2,three\n")[0] == 0
    assert wgpr("stream", "a.map", stdin="1,2,three\n1,2\n")[0] == 0
    assert wgpr("stream", "a.map", stdin="")[0] == 0
    Path("bad.nmea").write_text("hello\nworld\n")
    code, _, said = wgpr("stream", "b.map", "--nmea", "bad.nmea")
    assert (code, "bad.nmea has no position" in said, Path("b.map").exists()) == (1, True, False), said


def test_rows_that_no_disk_had_room_for_are_new(wgpr, monkeypatch):
    rows = survey(200)
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 500)
    with no_room(150_000):
        assert wgpr("stream", "a.map", *SMALL, stdin=text_of(rows))[0] == 1
    assert 0 < n_learned() < 200
    n_before = n_learned()
    code, _, said = wgpr("stream", "a.map", stdin=text_of(rows))
    assert (code, f"{n_before} rows {KNOWN}" in said, n_learned()) == (0, True, 200)
