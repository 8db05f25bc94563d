"""NMEA logs: sentences, damage, positions between fixes; from files, pipes, datagrams and serial ports."""

import gzip
import io
import os
import queue
import re
import signal
import socket
import threading
import time
import tty
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nmea_logs as logs
from command_line import child, exit_code
from nmea_logs import dbt, dpt, gga, gll, rmc, sentence
from wgpr import load
from wgpr.cli import lines
from wgpr.cli.console import Interruptions
from wgpr.cli.instruments import _received
from wgpr.cli.session import Session, StreamSession
from wgpr.io.nmea import (
    EMPTY_DEPTH,
    NO_CHECKSUM,
    NO_SENTENCE,
    VOID,
    WRONG_CHECKSUM,
    LineSplitter,
    NmeaDecoder,
    looks_like_nmea,
)
from wgpr.io.tables import Table, TableError
from wgpr.io.track import CLOCK_BACK, JUMP, NO_BOTTOM, NO_FIX, OUT_OF_RANGE

pytest.importorskip("pynmea2", reason='needs pip install "wgpr[nmea]"')

QUICK = ["-s", "random_state=0"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def decoded(*texts):
    """Rows of sentences, and what was left out."""
    log = b"".join(text if isinstance(text, bytes) else sentence(text) for text in texts)
    decoder = NmeaDecoder()
    rows = list(decoder.read(io.BytesIO(log)))
    return rows, {reason: number for reason, (number, _) in decoder.problems.counts.items()}


def test_a_depth_between_two_fixes_is_interpolated_in_time():
    rows, left_out = decoded(gga(0), rmc(0), dpt(5.0), dpt(7.0), gga(1), rmc(1))
    assert left_out == {}
    assert [row.depth for row in rows] == [5.0, 7.0]
    np.testing.assert_allclose([row.time for row in rows], logs.START + np.array([0.25, 0.75]))
    for row in rows:
        np.testing.assert_allclose(row[:2], logs.position(row.time - logs.START), rtol=0, atol=2e-8)


@pytest.mark.parametrize(
    ("texts", "depth"),
    [
        (["SDDPT,5.0,"], 5.0),
        (["SDDPT,5.0,0.5,100"], 5.5),  # the transducer is half a metre below the surface
        (["SDDPT,5.0,-0.8"], 5.0),  # a negative offset is that of the keel
        (["SDDBT,16.4,f,5.0,M,2.7,F"], 5.0),
        (["SDDBT,16.4,f,,M,2.7,F"], 16.4 * 0.3048),
        (["SDDBT,,f,,M,2.7,F"], 2.7 * 1.8288),
        (["SDDBS,17.4,f,5.3,M,2.9,F"], 5.3),
        (["SDDBT,16.4,f,5.0,M,2.7,F", "SDDPT,5.0,0.5"], 5.5),  # the same depth, once
        (["SDDPT,5.0,0.5", "SDDBT,16.4,f,5.0,M,2.7,F"], 5.5),
    ],
)
def test_each_kind_of_depth(texts, depth):
    rows, left_out = decoded(gga(0), *texts, gga(1))
    assert [row.depth for row in rows] == [pytest.approx(depth)]
    assert left_out == {}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (b"$SDDPT,4.0,0.0*00\r\n", WRONG_CHECKSUM),
        (b"$SDDPT,4.0,0.0\r\n", NO_CHECKSUM),
        (b"SDDPT,4.0,0.0*5D\r\n", NO_SENTENCE),
        (b"\xff\xfe\x00garbage\r\n", NO_SENTENCE),
        ("SDDPT,,", EMPTY_DEPTH),
        (dbt(0.0), NO_BOTTOM),
        (dpt(-3.0), NO_BOTTOM),
        (dpt(99_999), NO_BOTTOM),
        (rmc(1, status="V"), VOID),
        (gga(1, quality=0), VOID),
        (gll(1, status="V"), VOID),
        ("GPGGA,,,,,,0,00,,,M,,M,,", VOID),
        (gga(-3600), CLOCK_BACK),
        (rmc(-86_400, at=logs.position(0)), CLOCK_BACK),
        (gga(1, at=(logs.LONGITUDE, logs.LATITUDE + 0.9)), JUMP),
        (gga(0, at=(logs.LONGITUDE + 0.5, logs.LATITUDE)), JUMP),
        (gga(1, at=(0.0, 0.0)), OUT_OF_RANGE),
    ],
)
def test_what_is_wrong_is_counted_and_not_learned(wrong, reason):
    rows, left_out = decoded(rmc(0), dpt(5.0), wrong, rmc(2), dpt(6.0), rmc(3))
    assert left_out == {reason: 1}
    assert [row.depth for row in rows] == [5.0, 6.0]
    assert logs.distance_from_floor([row._replace(depth=float(logs.floor(*row[:2]))) for row in rows]).max() < 1e-9


def test_depths_need_fixes_on_both_sides():
    rows, left_out = decoded(dpt(1.0), gga(0), dpt(2.0), gga(11), dpt(3.0), gga(12), dpt(4.0))
    assert [row.depth for row in rows] == [3.0]
    assert left_out == {NO_FIX: 3}


def test_a_new_track_is_believed_once_ten_fixes_agree():
    elsewhere = [gga(3 + k, at=(10.0 + 1e-5 * k, 50.0)) for k in range(12)]
    rows, left_out = decoded(gga(0), gga(1), *[text for fix in elsewhere for text in (fix, dpt(8.0))])
    assert left_out[JUMP] == 10
    assert [round(row.latitude) for row in rows] == [50, 50]


def test_a_clock_that_was_set_back_is_believed_once_ten_fixes_agree():
    log = [text for k in range(12) for text in (gga(k - 3600, at=logs.position(k)), dpt(8.0))]
    rows, left_out = decoded(gga(0), *log)
    assert left_out[CLOCK_BACK] == 10
    assert len(rows) == 2


def test_midnight_and_a_date_that_comes_late():
    midnight = 86_400 - logs.START % 86_400
    rows, left_out = decoded(
        gga(midnight - 2), dpt(1.0), gga(midnight - 1), dpt(2.0), gga(midnight), dpt(3.0), rmc(midnight + 1)
    )
    assert left_out == {}
    np.testing.assert_allclose([row.time - logs.START - midnight for row in rows], [-1.5, -0.5, 0.5], rtol=0, atol=1e-6)


def test_the_antimeridian_is_crossed():
    rows, _ = decoded(gga(0, at=(179.9999, 10.0)), dpt(5.0), dpt(5.0), gga(1, at=(-179.9997, 10.0)))
    assert [row.longitude for row in rows] == [pytest.approx(180.0), pytest.approx(-179.9998)]


def test_times_of_reception_place_depths_between_fixes():
    decoder, rows = NmeaDecoder(), []
    for text, clock in ((gga(0), 10.0), (dpt(5.0), 10.9), (gga(1), 11.0)):
        rows += decoder.feed(sentence(text), clock)
    assert rows[0].time % 1 == pytest.approx(0.9)
    tagged = [b"\\c:1718000000*5F\\", b"\\s:x,c:1718000003*5F\\", b"\\c:1718000004*5F\\"]
    rows, left_out = decoded(
        *[tag + sentence(text) for tag, text in zip(tagged, (gga(0), dpt(5.0), gga(1)), strict=True)]
    )
    assert rows[0].time % 1 == pytest.approx(0.75)
    assert left_out == {}


def test_lines_of_a_logger_and_merged_sentences():
    rows, left_out = decoded(
        b"# a comment\n\n2024-06-10T06:13:20.120Z," + sentence(gga(0)),
        sentence(dpt(5.0)).strip() + sentence(gga(1)),
        b"!AIVDM,1,1,,A,13u?etPv2;0n:dDPwUM1U1Cb069D,0*24\r\n",
    )
    assert len(rows) == 1
    assert left_out == {}


def test_instruments_without_checksums_are_read():
    log = b"".join(f"${text}\r\n".encode() for text in (gga(0), dpt(5.0), gga(1)))
    rows, left_out = decoded(log)
    assert len(rows) == 1
    assert left_out == {}


def test_every_damaged_sentence_of_a_log_is_counted_and_none_is_learned():
    log, reasons, n_depths = logs.damaged_log(8000, share=0.05)
    decoder = NmeaDecoder()
    rows = list(decoder.read(io.BytesIO(log)))
    counted = Counter({reason: number for reason, (number, _) in decoder.problems.counts.items()})
    n_without_fix = counted.pop(NO_FIX)
    assert counted == reasons
    assert len(reasons) == 10
    assert len(rows) + n_without_fix == n_depths
    assert n_without_fix <= 2  # those behind the last fix
    assert logs.distance_from_floor(rows).max() < 0.05


@given(st.binary(max_size=2000), st.integers(0, 2000))
@settings(max_examples=50)
def test_no_bytes_raise_an_error(noise, place):
    log = b"".join(sentence(text) for _, _, text in logs.whole_log(60))
    damaged = log[:place] + noise + log[place + len(noise) :]
    decoder = NmeaDecoder()
    assert logs.distance_from_floor([*decoder.read(io.BytesIO(damaged)), (0, 0, logs.floor(0, 0))]).max() < 1.0


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lines_are_split_alike_however_the_bytes_arrive(end, size):
    data, splitter = end.join([b"one", b"two", b"", b"three"]), LineSplitter()
    found = [line for k in range(0, len(data), size) for line in splitter.split(data[k : k + size])]
    assert [*found, *splitter.finish()] == [(1, b"one"), (2, b"two"), (3, b""), (4, b"three")]


def test_a_line_without_end_needs_little_memory():
    splitter = LineSplitter()
    for _ in range(100):
        assert splitter.split(b"x" * 100_000) == []
    assert len(splitter.finish()[0][1]) < 5000


# Tables


def write_log(path, n_sentences=2000, share=0.0):
    data, reasons, n_depths = logs.damaged_log(n_sentences, share)
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "wb") as file:
        file.write(data)
    return reasons, n_depths


@pytest.mark.parametrize("name", ["a.nmea", "a.nmea.gz", "a.txt", "a.log", "a.txt.gz"])
def test_a_log_is_a_table(name):
    _, n_depths = write_log(name)
    table = Table([name])
    assert table.names == ("longitude", "latitude", "depth")
    assert table.crs == "EPSG:4326"
    assert len(table.peek(["depth"])["depth"]) == 200
    for _ in range(2):
        chunks = list(table.chunks(["longitude", "latitude", "depth", "time"], 100))
        values = np.concatenate([chunk.values for chunk in chunks])
        assert abs(len(values) - n_depths) <= 2
        assert (np.diff(values[:, 3]) > 0).all()
        assert logs.distance_from_floor(values).max() < 0.05


def test_a_table_is_no_log():
    assert looks_like_nmea(b"\r\n$GPGGA,1")
    assert not looks_like_nmea(b"lon,lat,depth\n1,2,3\n")
    assert not looks_like_nmea(b"$price,1\n")


def test_a_log_without_rows_says_why():
    with open("a.nmea", "wb") as file:
        file.write(sentence(gga(0)) + b"$SDDPT,3.0,0.0*00\r\n")
    with pytest.raises(TableError, match=r"there are no rows; a\.nmea: left out 1 sentence with a wrong checksum"):
        list(Table(["a.nmea"]).chunks())


@pytest.mark.parametrize("name", ["a.shp", "a.gpkg", "a.xlsx", "a.tif", "a.sl2"])
def test_other_formats_say_how_to_convert_them(name):
    with open(name, "wb"):
        pass
    with pytest.raises(TableError, match=f"{name} cannot be read here.*geopandas.read_file.*pandas.*to_csv"):
        Table([name])


# Commands


FIXES = [text for second in range(5) for text in (gga(second), rmc(second))]
DEPTHS = [dpt(5.0 + second) for second in range(5)]
NO_POSITION, NO_DEPTH = "has no position (GGA, RMC or GLL)", "has no depth sentence (DPT, DBT or DBS)"


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ([], "is empty"),
        (FIXES, NO_DEPTH),
        (DEPTHS, NO_POSITION),
        (["GPVTG,90.0,T,,M,3.9,N,7.2,K,A"], f"{NO_POSITION} and no{NO_DEPTH.removeprefix('has no')}"),
    ],
    ids=["empty", "no depths", "no positions", "neither"],
)
def test_a_log_says_what_it_lacks(wgpr, texts, fault):
    with open("a.nmea", "wb") as file:
        file.write(b"".join(map(sentence, texts)))
    code, _, told = wgpr("fit", "a.nmea", "-o", "lake.map")
    assert (code, f"a.nmea {fault}; " in told, "guessed" in told) == (1, True, False)
    assert "; give a log with positions and depths; nothing was learned" in told


def test_a_log_that_lacks_depths_is_told_beside_others(wgpr):
    whole = b"".join(sentence(text) for _, _, text in logs.whole_log(200))
    for name, content in (("a.nmea", whole), ("b.nmea", b"".join(map(sentence, FIXES)))):
        with open(name, "wb") as file:
            file.write(content)
    code, _, told = wgpr("fit", "a.nmea", "b.nmea", "-o", "lake.map", *QUICK)
    assert (code, f"b.nmea {NO_DEPTH}\n" in told, "guessed" in told) == (0, True, False)


def test_fit_learns_a_log_and_tells_what_it_left_out(wgpr):
    reasons, n_depths = write_log("a.nmea", 3000, share=0.05)
    code, _, told = wgpr("fit", "a.nmea", "-o", "lake.map", *QUICK)
    assert code == 0
    assert "learning depth from longitude, latitude" in told
    for reason, number in reasons.items():
        assert re.search(rf"a\.nmea: left out {number} \w+ {re.escape(reason.fault)} \(first: line \d+\)", told)
    assert abs(load("lake.map").n_samples_seen_ - n_depths) <= 2


def test_positions_of_a_log_have_one_system(wgpr):
    write_log("a.nmea", 1000)
    code, _, told = wgpr("fit", "a.nmea", "--crs", "EPSG:32618", "-o", "lake.map", *QUICK)
    assert (code, "--crs EPSG:32618: positions of a log are in EPSG:4326" in told) == (2, True), told
    assert not Path("lake.map").exists()
    for number, crs in enumerate(("epsg:4326", "WGS 84", "OGC:CRS84", "none")):
        assert wgpr("fit", "a.nmea", "--crs", crs, "-o", f"{number}.map", *QUICK)[0] == 0


@pytest.mark.parametrize("is_pipe", [False, True])
def test_a_log_is_converted_for_a_map_in_another_system(wgpr, is_pipe):
    pyproj = pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    text = b"".join(sentence(text) for _, _, text in logs.whole_log(1400))
    Path("b.nmea").write_bytes(text)
    (rows,) = [chunk.values for chunk in Table(["b.nmea"]).chunks()]
    east, north = pyproj.Transformer.from_crs(4326, 32618, always_xy=True).transform(rows[:, 0], rows[:, 1])
    frame = pd.DataFrame({"north": north, "east": east, "depth": rows[:, 2]})
    frame[:200].to_csv("a.csv", index=False)
    frame[200:].to_csv("b.csv", index=False)
    columns = ["--x", "north,east", "--y", "depth"]
    assert wgpr("fit", "a.csv", *columns, "--crs", "EPSG:32618", "-o", "a.map", *QUICK)[0] == 0
    assert wgpr("update", "a.map", "b.csv", "-o", "b.map")[0] == 0
    log, stdin = ("-", text.decode()) if is_pipe else ("b.nmea", "")
    code, _, told = wgpr("update", "a.map", log, "--skip", 200, "-o", "log.map", stdin=stdin)
    assert (code, "converted from EPSG:4326 to EPSG:32618" in told) == (0, True), told
    expected, found = load("b.map"), load("log.map")
    assert found.n_samples_seen_ == len(rows)
    X = expected.pseudo_inputs_[0]
    places = pd.DataFrame(X, columns=expected.feature_names_in_)
    assert found.predict(places) == pytest.approx(expected.predict(places), abs=0.01)
    assert wgpr("evaluate", "a.map", log, stdin=stdin)[0] == 0


def test_a_log_is_read_from_a_pipe(wgpr, monkeypatch):
    text = b"".join(sentence(text) for _, _, text in logs.whole_log(700)).decode()
    assert wgpr("fit", "-", "-o", "lake.map", *QUICK, stdin=text)[0] == 0
    assert load("lake.map").n_samples_seen_ == 200 - 2


def test_stream_takes_a_file_and_standard_input(wgpr):
    write_log("a.nmea", 700, share=0.02)
    code, _, told = wgpr("stream", "lake.map", "--nmea", "a.nmea", *QUICK)
    assert code == 0
    assert "a.nmea: left out" in told
    n_rows = load("lake.map").n_samples_seen_
    text = b"".join(sentence(text) for _, _, text in logs.whole_log(700)).decode()
    code, _, told = wgpr("stream", "lake.map", "--nmea", "-", "--force", stdin=text)  # it begins as the other
    assert code == 0
    assert load("lake.map").n_samples_seen_ == n_rows + 198


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nmea", "udp://:x"], "needs a port"),
        (["--nmea", "udp://"], "needs a port"),
        (["--nmea", "serial:"], "must be serial:PORT"),
        (["--nmea", "serial:/dev/x?speed=3"], "must be serial:PORT"),
        (["--nmea", "serial:/dev/none"], "cannot open serial:/dev/none"),
        (["--nmea", "udp://:10110", "--weight", "w"], "leave it out"),
        (["--nmea", "-", "--x", "east,north"], "the map needs east, north"),
        (["--nmea", "-", "--y", "salinity"], "the map learns salinity"),
        (["--nmea", "-", "--crs", "EPSG:32618"], "positions of a log are in EPSG:4326; leave --crs out"),
    ],
)
def test_wrong_use_of_instruments(wgpr, arguments, message):
    code, _, told = wgpr("stream", "lake.map", *arguments)
    assert code == 2
    assert message in told


def whole_sentences(n_sentences):
    return [sentence(text) for _, _, text in logs.whole_log(n_sentences)]


def wait_for(stream, pattern):
    """The first line that matches, of what a process tells."""
    for line in stream:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"no line has {pattern}")


def test_stream_takes_datagrams():
    with child("stream", "lake.map", "--nmea", "udp://:0", "--report-every", "100", *QUICK) as process:
        port = int(wait_for(process.stderr, r"listening on udp://127\.0\.0\.1:(\d+)")[1])
        is_done = threading.Event()

        def send():  # many more than needed: a busy machine loses some
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for line in whole_sentences(10_000):
                    sender.sendto(line.strip(), ("127.0.0.1", port))
                    if is_done.wait(0.0005):
                        return

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        wait_for(process.stderr, "^100 rows learned")
        is_done.set()
        sending.join()
        os.kill(process.pid, 2)
        assert exit_code(process) == 0
    assert load("lake.map").n_samples_seen_ >= 100


def test_stream_waits_for_the_writer_of_a_named_pipe(monkeypatch):
    monkeypatch.setattr(lines, "_PATIENCE", 0.1)
    os.mkfifo("lake.nmea")
    with child("stream", "lake.map", "--nmea", "lake.nmea", *QUICK) as process:
        wait_for(process.stderr, "a new map is started")
        process.join(1.0)
        assert process.is_alive()
        with open("lake.nmea", "wb") as pipe:
            for part in (whole_sentences(300)[:150], whole_sentences(300)[150:]):
                pipe.write(b"".join(part))
                pipe.flush()
                time.sleep(0.3)
        assert exit_code(process) == 0
    assert load("lake.map").n_samples_seen_ > 50


@pytest.mark.parametrize("is_waiting", [True, False], ids=["waiting", "learning"])
def test_what_was_received_before_an_interruption_is_taken(monkeypatch, is_waiting):
    """Ctrl-C comes while the command waits for the instrument, or while it learns."""
    session, pieces, interruptions = Receiving(), queue.SimpleQueue(), Interruptions()
    monkeypatch.setattr("wgpr.cli.instruments._MOST_TOGETHER", 1)
    arrivals = _received(pieces.get, session)
    pieces.put(b"first")
    assert [data for data, _ in next(arrivals)] == [b"first"]

    def interrupt():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)
        for piece in (b"second", b"third", b"fourth"):
            pieces.put(piece)
        while not pieces.empty():
            time.sleep(0.01)
        time.sleep(0.1)

    taken = []
    with interruptions.handled():
        if is_waiting:
            instrument = threading.Thread(target=interrupt)
            instrument.start()
            taken += next(arrivals)
            instrument.join()
        else:
            interrupt()
        with pytest.raises(KeyboardInterrupt):
            interruptions.raise_waiting()
    session.is_stopping = True
    taken += [piece for each in arrivals for piece in each]
    assert [data for data, _ in taken] == [b"second", b"third", b"fourth"]


class Receiving:
    """What the reader of an instrument asks of a session."""

    is_stopping = False


def test_what_was_received_before_a_port_fails_is_taken():
    pieces = queue.SimpleQueue()
    for piece in (b"first", b"second"):
        pieces.put(piece)

    def read():
        if pieces.empty():
            raise OSError("unplugged")
        return pieces.get()

    taken = []
    with pytest.raises(OSError, match="unplugged"):
        taken += [data for each in _received(read, Receiving()) for data, _ in each if not taken.append(data)]
    assert taken == [b"first", b"second"]


@pytest.mark.parametrize(
    ("owner", "name"), [(NmeaDecoder, "feed"), (Session, "good_lines"), (StreamSession, "process")]
)
def test_a_log_that_is_interrupted_before_it_is_learned_is_learned_so_far(wgpr, monkeypatch, owner, name):
    Path("lake.nmea").write_bytes(b"".join(whole_sentences(300)))
    assert wgpr("stream", "a.map", "--nmea", "lake.nmea", *QUICK)[0] == 0
    calls, original = [], getattr(owner, name)

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    with child("stream", "b.map", "--nmea", "lake.nmea", *QUICK) as process:
        told = process.stderr.read()
        assert (exit_code(process), "interrupted" in told) == (0, True), told
    assert load("a.map").n_samples_seen_ == load("b.map").n_samples_seen_ > 50


def test_stream_takes_a_serial_port():
    pytest.importorskip("serial", reason='needs pip install "wgpr[nmea]"')
    leader, follower = os.openpty()
    tty.setraw(follower)
    name = os.ttyname(follower)
    with child("stream", "lake.map", "--nmea", f"serial:{name}?baud=38400", "--report-every", "100", *QUICK) as process:

        def send():
            for line in whole_sentences(500):
                os.write(leader, line)

        wait_for(process.stderr, "^reading serial")
        threading.Thread(target=send, daemon=True).start()
        wait_for(process.stderr, "^100 rows learned")
        os.kill(process.pid, 2)
        assert exit_code(process) == 0
    assert load("lake.map").n_samples_seen_ >= 100
