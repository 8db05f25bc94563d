"""The client of the service, and `wgpr stream --to`: rows are sent once, whatever happens on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from uuid import uuid4

import httpx
import numpy as np
import pandas as pd
import pytest

from command_line import NAMES, child, survey, write_survey
from nmea_logs import dpt, sentence, whole_log
from service_process import free_port, service_process
from streams import assert_same_learning
from wgpr import WGPRegressor, load
from wgpr import client as clients
from wgpr.cli import remote
from wgpr.cli.remote import RemoteSession
from wgpr.client import Map, MapServiceError

X, Y = NAMES[:2], "depth"
PLACES = survey(12, seed=5)[X]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The address of a service."""
    with service_process(tmp_path_factory.mktemp("service") / "maps") as (address, _):
        yield address()


@pytest.fixture
def url(service):
    """The address of a map of this test, which does not exist yet."""
    return f"{service}/maps/{uuid4().hex}"


@pytest.fixture
def lake(url):
    """A map without rows."""
    with Map(url) as lake:
        yield lake.create(X, Y, settings={"random_state": 0})


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pauses(monkeypatch):
    """Seconds that the client would have slept. Its clock goes on by these."""
    slept = []
    monkeypatch.setattr(clients, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept)))
    return slept


def learned(rows, **settings):
    return WGPRegressor(random_state=0, **settings).partial_fit(rows[X], rows[Y])


class Failing(httpx.BaseTransport):
    """A way to the service on which things go wrong, one after the other: each thing is a function of the request.

    requests : that were sent so far.
    """

    def __init__(self, *events):
        self._events, self._way, self.requests = list(events), httpx.HTTPTransport(), []

    def handle_request(self, request):
        self.requests.append(request)
        event = self._events.pop(0) if self._events else None
        return event(self._way, request) if event else self._way.handle_request(request)

    def close(self):
        self._way.close()

    def keys(self):
        """Of the requests with rows."""
        return [request.headers["Idempotency-Key"] for request in self.requests if request.url.path.endswith("/rows")]


def refused(_, request):
    raise httpx.ConnectError("connection refused", request=request)


def answer_lost(way, request):
    way.handle_request(request).read()
    raise httpx.ReadError("connection reset", request=request)


def answering(status, **headers):
    return lambda *_: httpx.Response(status, headers=headers, json={"detail": f"detail of {status}"})


def failing(lake, *events):
    """Let things go wrong on the way from this client to the service."""
    way = Failing(*events)
    lake.close()
    lake._client = httpx.Client(transport=way)
    return way


# Rows and answers


def test_a_map_learns_and_predicts_as_an_estimator_does(lake):
    rows = survey(120)
    assert lake.partial_fit(rows[X][:50], rows[Y][:50]) is lake
    assert lake.partial_fit(rows[X].to_numpy()[50:], rows[Y].to_list()[50:], wait=True) is lake
    expected = learned(rows)
    for places in (PLACES, PLACES.to_numpy(), PLACES[["north", "east"]].assign(other=1.0)):
        mean, std = lake.predict(places, return_std=True)
        np.testing.assert_array_equal((mean, std), expected.predict(PLACES, return_std=True))
        np.testing.assert_array_equal(lake.predict(places), mean)
    field = lake.predict(PLACES, return_std=True, latent=True)
    np.testing.assert_array_equal(field, expected.predict(PLACES, return_std=True, latent=True))
    answer = lake.answer(PLACES, level=0.5)
    assert list(answer) == ["mean", "std", "lower", "upper", "model"]
    np.testing.assert_allclose(answer["upper"] - answer["lower"], 2 * 0.67448975 * std, rtol=1e-6)
    np.testing.assert_array_equal(answer["model"], expected.model_index(PLACES))


def test_a_map_can_be_downloaded(lake, tmp_path):
    rows = survey(60)
    lake.partial_fit(rows[X], rows[Y], wait=True)
    lake.download("lake.map")
    assert_same_learning(load("lake.map"), learned(rows))


def test_weights(url):
    rows = survey(80)
    weights = np.random.default_rng(0).uniform(0.1, 4.0, 80)
    with Map(url).create(X, Y, weight="quality", settings={"random_state": 0}) as lake:
        lake.partial_fit(rows[X][:40], rows[Y][:40], weights[:40])
        lake.partial_fit(rows[X][40:], rows[Y][40:], wait=True)
        expected = WGPRegressor(random_state=0).partial_fit(rows[X], rows[Y], np.append(weights[:40], np.ones(40)))
        np.testing.assert_array_equal(lake.predict(PLACES), expected.predict(PLACES))


def test_settings_may_be_infinite(url):
    with Map(url) as lake:
        lake.create(X, Y, settings={"threshold": np.inf, "batch_size": 20})
        assert lake.info()["definition"]["settings"]["threshold"] == {"number": "inf"}


def test_many_rows_and_places_are_sent_in_parts(lake, monkeypatch):
    monkeypatch.setattr(clients, "_PART", 25)
    way = failing(lake)
    rows = survey(110)
    lake.partial_fit(rows[X], rows[Y], wait=True)
    assert len(set(way.keys())) == len(way.keys()) == 5
    waits = [request.url.params.get("wait") for request in way.requests if request.method == "POST"]
    assert waits == [None] * 4 + ["learned"]
    expected = learned(rows)
    parts = [expected.predict(rows[X][first : first + 25]) for first in range(0, 110, 25)]
    np.testing.assert_array_equal(lake.predict(rows[X]), np.concatenate(parts))


def test_a_part_of_the_most_columns_is_below_the_limit_of_the_service():
    longest = len(json.dumps({"x" * 100: [-1.2345678901234567e-100] * clients._PART}))
    assert 52 * longest < 32 * 2**20


def test_waiting_goes_on_after_the_service_has_stopped_waiting(lake):
    rows = survey(60)
    failing(lake, lambda way, request: accepted_only(way.handle_request(request)))
    lake.partial_fit(rows[X], rows[Y], wait=True)
    assert lake.info()["rows_learned"] == 60
    assert len(lake.predict(PLACES)) == 12


def test_waiting_ends_if_the_map_is_gone(lake, url):
    rows = survey(30)
    lake.partial_fit(rows[X], rows[Y])
    lake._n_learned = 0
    assert httpx.delete(url).status_code == 204
    with pytest.raises(MapServiceError, match="there is no map"):
        lake.wait_until_learned()
    lake.create(X, Y)
    with pytest.raises(MapServiceError, match="was deleted meanwhile"):
        lake.wait_until_learned()


def accepted_only(response):
    """The answer of a service that was asked to wait, and could not wait longer."""
    return httpx.Response(202, content=response.read())


# What goes wrong on the way


@pytest.mark.parametrize(
    "events",
    [[answer_lost], [refused, refused], [answer_lost, answering(503), refused], [answering(408)], [answering(429)]],
    ids=["lost", "refused", "lost and restarted", "too slow", "too busy"],
)
def test_rows_are_learned_once_whatever_happens_on_the_way(lake, pauses, events):
    rows = survey(60)
    way = failing(lake, *events)
    lake.partial_fit(rows[X], rows[Y])
    assert len(way.requests) == len(events) + 1
    assert len(set(way.keys())) == 1
    assert lake.info()["rows_seen"] == 60
    lake.partial_fit(rows[X], rows[Y])
    assert len(set(way.keys())) == 2
    assert lake.info()["rows_seen"] == 120


def test_attempts_are_paused_as_the_service_says(lake, pauses):
    rows = survey(30)
    failing(lake, answering(429, **{"Retry-After": "7"}), refused, answering(429, **{"Retry-After": "soon"}), refused)
    lake.partial_fit(rows[X], rows[Y])
    assert pauses == [7, 0.2, 0.4, 0.8]


def test_patience_has_an_end(lake, pauses, caplog):
    lake.hasten(10.0)
    way = failing(lake, *[refused] * 100)
    with pytest.raises(MapServiceError, match="does not answer") as error:
        lake.partial_fit(survey(3)[X], survey(3)[Y])
    assert (error.value.status, sum(pauses)) == (None, 10.0)
    assert 6 < len(way.requests) < 20
    assert caplog.text.count("trying again for 10 s") == 1
    failing(lake, *[answering(429, **{"Retry-After": "100"})] * 100)
    pauses.clear()
    with pytest.raises(MapServiceError, match="detail of 429"):
        lake.partial_fit(survey(3)[X], survey(3)[Y])
    assert pauses == [10.0]


def test_a_service_that_has_never_answered_is_given_up_soon(url, pauses):
    with Map(url) as lake:
        failing(lake, *[refused] * 1000)
        with pytest.raises(MapServiceError, match="does not answer"):
            lake.partial_fit(survey(3)[X], survey(3)[Y])
        assert sum(pauses) == 10.0
    with Map(url, patience=20.0) as lake:
        failing(lake, *[refused] * 1000)
        with pytest.raises(MapServiceError, match="does not answer"):
            lake.partial_fit(survey(3)[X], survey(3)[Y])
        assert sum(pauses) == 30.0


def test_a_service_that_is_being_started_has_answered(lake, pauses):
    lake._has_answered = False
    way = failing(lake, refused, *[answering(503)] * 30)
    lake.partial_fit(survey(3)[X], survey(3)[Y])
    assert len(way.requests) == 32
    assert sum(pauses) > 10.0


def test_answers_are_asked_for_again(lake, pauses):
    rows = survey(60)
    lake.partial_fit(rows[X], rows[Y], wait=True)
    failing(lake, refused, answering(503))
    np.testing.assert_array_equal(lake.predict(PLACES), learned(rows).predict(PLACES))


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 500, 507])
def test_what_will_not_succeed_is_not_sent_again(lake, pauses, status):
    way = failing(lake, answering(status))
    with pytest.raises(MapServiceError, match=f"detail of {status}") as error:
        lake.partial_fit(survey(3)[X], survey(3)[Y])
    assert (error.value.status, len(way.requests), pauses) == (status, 1, [])


def test_an_answer_that_is_no_problem_of_the_service(lake):
    failing(lake, lambda *_: httpx.Response(502, text="<html>"), lambda *_: httpx.Response(502, json=["x"]))
    for _ in range(2):
        with pytest.raises(MapServiceError, match="answers 502 Bad Gateway"):
            lake.info()


def test_the_token_is_sent():
    lake = Map("http://127.0.0.1:1/maps/lake", token="a secret of many letters")
    assert lake._client.headers["Authorization"] == "Bearer a secret of many letters"
    lake.close()
    with pytest.raises(ValueError, match="token"):
        Map("http://127.0.0.1:1/maps/lake", token="a\nb")


def test_a_service_that_is_killed_between_rows(tmp_path):
    """Rows go on while the service is killed and started again: each is there once, in its order."""
    folder, again, rows, port = tmp_path / "maps", tmp_path / "again", survey(300), free_port()
    parts = [rows[first : first + 10] for first in range(0, 300, 10)]
    with (
        service_process(folder, port=port) as (address, first),
        service_process(folder, port=port, begins_with=again),
        Map(f"{address()}/maps/lake").create(X, Y, settings={"random_state": 0}) as lake,
    ):
        sender = Thread(target=lambda: [lake.partial_fit(part[X], part[Y]) for part in parts])
        sender.start()
        while lake.info()["rows_seen"] < 50:
            time.sleep(0.001)
        first.kill()
        first.join()
        again.touch()
        sender.join()
        lake.wait_until_learned()
        assert lake.info()["rows_seen"] == 300
        lake.download("lake.map")
    assert_same_learning(load("lake.map"), learned(rows))


# What is wrong with the arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1.0, np.nan]], [1.0]), "X has a value that is not finite"),
        (([[1.0, 2.0]], [np.inf]), "y has a value that is not finite, in row 0"),
        (([[1.0, 2.0, 3.0]], [1.0]), r"X has shape \(1, 3\); it must be \(n, 2\): east, north"),
        (([1.0, 2.0], [1.0]), r"X has shape \(2,\)"),
        (([[1.0, 2.0]], [1.0, 2.0]), r"y has shape \(2,\); it must be \(1,\)"),
        (([[1.0, 2.0]], [[1.0]]), r"y has shape \(1, 1\)"),
        ((np.empty((0, 2)), []), "no rows"),
        (([[1.0, 2.0]], [1.0], [1.0]), "sample_weight is for a map with weights"),
        ((pd.DataFrame({"east": [1.0]}), [1.0]), "X has no column 'north'"),
        ((pd.DataFrame({"east": [1.0], "north": [np.nan]}), [1.0]), "X, column 'north' has a value that is not"),
    ],
)
def test_wrong_rows_are_not_sent(lake, arguments, words):
    way = failing(lake)
    with pytest.raises(ValueError, match=words):
        lake.partial_fit(*arguments)
    assert way.requests == []


@pytest.mark.parametrize(
    "address", ["", "lake", "ftp://a/maps/b", "http://a", "http://a/maps", "http://a/maps/b?c", "a/maps/b"]
)
def test_an_address_that_is_none(address):
    with pytest.raises(ValueError, match="url must be that of a map"):
        Map(address)


NO_MAP = r"there is no map nowhere; make it with Map\.create\(inputs, target\)$"


def test_errors_of_the_service_are_told(service, lake, url):
    with Map(f"{service}/maps/nowhere") as nowhere, pytest.raises(MapServiceError, match=NO_MAP) as error:
        nowhere.predict(PLACES)
    assert error.value.status == 404
    with pytest.raises(MapServiceError, match="learned nothing yet") as error:
        lake.predict(PLACES)
    assert error.value.status == 409
    with Map(url) as same, pytest.raises(MapServiceError, match="other columns or settings"):
        same.create(X, "height")


def test_a_bad_row_is_told_with_its_place(lake, monkeypatch):
    monkeypatch.setattr(clients, "_PART", 30)
    rows = survey(80)
    rows.loc[45, "depth"] = -99999.0
    with pytest.raises(MapServiceError, match=r"line 46, column 'depth'.*the first 30 rows were accepted") as error:
        lake.partial_fit(rows[X], rows[Y])
    assert (error.value.status, error.value.line, error.value.column) == (422, 46, "depth")
    assert lake.info()["rows_seen"] == 30
    lake.partial_fit(rows[X][30:], rows[Y][30:], force=True)
    assert lake.info()["rows_seen"] == 80


# wgpr stream --to


def text_of(rows, **options):
    return rows.to_csv(index=False, **options)


def test_a_stream_makes_the_map_and_is_answered(wgpr, url):
    rows = survey(80)
    lines = f"{text_of(rows)}2.5,1.5\n" + '{"x": [3.0, 1.0], "id": 7}\n'
    code, answers, said = wgpr("stream", "--to", url, "-s", "random_state=0", stdin=lines)
    assert code == 0, said
    assert "a new map is started" in said
    assert "learning depth from east, north" in said
    assert f"80 rows sent to {url}, 2 queries answered" in said
    assert wgpr("stream", "a.map", "-s", "random_state=0", stdin=lines)[1] == answers
    with Map(url) as lake:
        assert lake.info()["rows_seen"] == 80
        np.testing.assert_array_equal(lake.predict(PLACES), learned(rows).predict(PLACES))


def test_a_stream_goes_on_with_a_map_of_the_service(wgpr, lake, url):
    rows = survey(80)
    lake.partial_fit(rows[X][:40], rows[Y][:40])
    other = rows[40:].rename(columns={"east": "x", "north": "y", "depth": "z"})[["z", "y", "x"]]
    code, _, said = wgpr("stream", "--to", url, "--x", "x,y", "--y", "z", "--report-every", 30, stdin=text_of(other))
    assert (code, "new map" in said, said.count("40 rows sent")) == (0, False, 1), said
    lake.partial_fit(rows[X][:1], rows[Y][:1], wait=True)
    np.testing.assert_array_equal(lake.predict(PLACES), learned(pd.concat([rows, rows[:1]])).predict(PLACES))
    code, _, said = wgpr("stream", "--to", url, "--x", "x", stdin="")
    assert (code, "--x must name the 2 inputs" in said) == (2, True)


def test_a_stream_says_if_its_rows_are_off_by_a_constant(wgpr, url):
    """Lines that come later lie between those before, 0.5 higher. Another stream is not told of these."""

    def lines(first, seed, offset):
        east, rng = np.arange(first, 10.0, 0.25), np.random.default_rng(seed)
        rows = pd.DataFrame({X[0]: np.repeat(east, 40), X[1]: np.tile(np.linspace(0.0, 10.0, 40), len(east))})
        rows[Y] = offset + np.sin(0.5 * rows[X[0]]) + np.cos(0.5 * rows[X[1]]) + 0.1 * rng.normal(size=len(rows))
        return text_of(rows) + "1,1\n"  # the answer waits for the rows before it

    told = "more than the map says where it knows the field"
    for rows, is_told in [
        (lines(0.0, 0, 0.0), False),
        (lines(0.1, 1, 0.5), True),
        ("east,north,depth\n3,3,1\n", False),
    ]:
        code, _, said = wgpr("stream", "--to", url, stdin=rows)
        assert (code, said.count(told)) == (0, is_told), said
    with Map(url) as lake:
        offset = lake.info()["forecasts"]["offset"]
    assert offset["amount"] > 2.0 * offset["std"]
    assert 1641 <= offset["n_rows"] < 3281  # a row of the second stream


def test_a_stream_of_other_columns_sends_nothing(wgpr, lake, url):
    for header, options, code, words in [
        ("east,north,depth", ["--x", "east,nrth", "--y", "depth"], 1, "is a header without nrth"),
        ("n,e,depth", [], 1, "is a header without east, north"),
        ("lon,lat,depth", ["--x", "lon,lat"], 2, f"--x lon, lat: {url} has east, north; convert the data"),
        ("east,north,depth", ["--x", "north,east"], 2, "name them in this order"),
    ]:
        exit_code, _, said = wgpr("stream", "--to", url, *options, stdin=f"{header}\n-76,44,3\n")
        assert (exit_code, words in said) == (code, True), said
    assert lake.info()["rows_seen"] == 0
    code, _, said = wgpr("stream", "--to", url, "--x", "lon,lat", "--force", stdin="lon,lat,depth\n-76,44,3\n")
    assert (code, "lon, lat are learned as east, north of" in said, lake.info()["rows_seen"]) == (0, True, 1), said


def test_a_question_before_anything_is_known(wgpr, lake, url):
    told = ',,,,\n{"error": "nothing is learned yet"}\n'
    for address in (url, f"{url}-new"):
        code, answers, _ = wgpr("stream", "--to", address, "--x", "east,north", stdin='1,2\n{"x": [1, 2]}\n')
        assert (code, answers) == (0, told)


def test_lines_that_are_left_out(wgpr, lake, url):
    """By the command, which knows the rows of the stream, or by the service, which knows those before too."""
    rows = survey(60)
    lake.partial_fit(rows[X][:30], rows[Y][:30])
    bad = "1,2,three\n1,1,-99999\n1e38,1,1\n"
    code, _, said = wgpr("stream", "--to", url, stdin=text_of(rows[30:35]) + bad + text_of(rows[35:], header=False))
    assert (code, said.count("it is left out")) == (0, 3), said
    assert "line 7 has 'three' as depth, which is not a number" in said
    assert "line 8 is refused by the service: depth: -99999 is far outside of the known range" in said
    assert "line 9 is refused by the service: east: 1e+38 is far outside of the known range" in said
    assert (lake.info()["rows_seen"], "30 rows sent" in said) == (60, True)
    assert wgpr("stream", "--to", url, "--force", stdin="1,1,-99999\n")[0] == 0
    code, _, said = wgpr("stream", "--to", url, stdin=text_of(survey(25, seed=2)) + "1,1,1e35\n")
    assert (code, said.count("--force learns it")) == (0, 1)


def test_few_rows_are_sent_again_because_others_are_refused(wgpr, lake, url, monkeypatch):
    rows, sent = survey(200), []

    def count(self, X, *arguments, learn=Map.partial_fit, **options):
        sent.append(len(X))
        return learn(self, X, *arguments, **options)

    lake.partial_fit(rows[X][:30], rows[Y][:30], wait=True)
    metres = rows[30:].assign(east=1e6 * rows["east"] + 1e6)
    monkeypatch.setattr(Map, "partial_fit", count)
    code, _, said = wgpr("stream", "--to", url, stdin=text_of(metres) + text_of(rows[30:100], header=False))
    assert (code, "170 lines were left out" in said, "70 rows sent" in said) == (0, True, True), said
    assert sum(sent) < 900


def test_force_is_advised_only_where_the_service_obeys_it(wgpr, url):
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    with Map(url) as lake:
        lake.create(["lon", "lat"], Y, crs="EPSG:4326")
    code, _, said = wgpr("stream", "--to", url, stdin="lon,lat,depth\n-76,44,3\n-76,95,3\n")
    assert (code, "--force" in said) == (0, False), said
    assert "line 3 is refused by the service: lon and lat: -76, 95 is no place near the map" in said


def test_a_line_of_a_log_that_the_service_refuses_has_its_number(wgpr, url):
    pytest.importorskip("pynmea2", reason='needs pip install "wgpr[nmea]"')
    sentences = [sentence(text) for _, _, text in whole_log(210)]
    with open("a.nmea", "wb") as log:
        log.writelines(sentences)
    columns = ["--x", "longitude,latitude", "--y", "depth", "--crs", "none"]
    assert wgpr("stream", "--to", url, *columns, "--nmea", "a.nmea")[0] == 0
    sentences[45] = sentence(dpt(9999))
    with open("a.nmea", "wb") as log:
        log.writelines(sentences)
    code, _, said = wgpr("stream", "--to", url, "--nmea", "a.nmea")
    assert (code, "a.nmea, line 46 is refused by the service: depth: 9999 is far" in said) == (0, True), said


def test_weights_of_a_stream(wgpr, url):
    rows = survey(60).assign(quality=0.5)
    columns = ["--x", "east,north", "--y", "depth", "--weight", "quality"]
    code, _, said = wgpr("stream", "--to", url, *columns, "-s", "random_state=0", stdin=text_of(rows[:30]))
    assert (code, "with weights quality" in said) == (0, True)
    assert wgpr("stream", "--to", url, stdin=text_of(rows[30:]))[0] == 0
    with Map(url) as lake:
        lake.partial_fit(rows[X][:1], rows[Y][:1], [0.5], wait=True)
        again = pd.concat([rows, rows[:1]])
        expected = WGPRegressor(random_state=0).partial_fit(again[X], again[Y], again["quality"])
        np.testing.assert_array_equal(lake.predict(PLACES), expected.predict(PLACES))


def test_settings_of_a_map_that_exists(wgpr, url):
    """The same command can be given again; other settings are an error."""
    options = ["--x", "east,north", "--y", "depth", "-m", "lgpr", "-s", "w_gen=0.3"]
    for _ in range(2):
        assert wgpr("stream", "--to", url, *options, stdin=text_of(survey(5)))[0] == 0
    code, _, said = wgpr("stream", "--to", url, "-s", "w_gen=0.4", "-m", "lgpr", stdin=text_of(survey(5)))
    assert (code, "exists with other columns or settings" in said) == (1, True)
    code, _, said = wgpr("stream", "--to", url, "--weight", "w", stdin=text_of(survey(5)))
    assert (code, "leave out --weight" in said) == (2, True)


def test_a_stream_that_begins_again_is_not_learned_again(wgpr, url):
    rows = survey(300)
    text = text_of(rows[:150]) + "1,1,-99999\n" + text_of(rows[150:], header=False)
    columns = ["--x", "east,north", "--y", "depth"]
    for n_before, n_lines in ((0, 9), (0, 100), (100, 101), (101, 161), (161, 301), (301, 301)):
        sent = "".join(text.splitlines(keepends=True)[: n_lines + 1]) + "2,1\n"
        code, _, said = wgpr("stream", "--to", url, *columns, stdin=sent)
        assert (code, f"{n_before} rows were known already, and were left out" in said) == (0, n_before > 0), said
    with Map(url) as lake:
        assert lake.info()["rows_seen"] == 9 + 300  # 9 rows are too few to tell
        assert len(lake.learned_tables()) < 12
    code, _, said = wgpr("stream", "--to", url, stdin=text_of(rows[:70]))
    assert (code, "64 rows were known" in said, "6 rows at the end may be known" in said) == (1, True, True)
    assert wgpr("stream", "--to", url, "--force", stdin=text_of(rows[:40]))[0] == 0
    assert wgpr("stream", "--to", url, stdin=text_of(rows[50:90]))[0] == 0  # another beginning
    with Map(url) as lake:
        assert lake.info()["rows_seen"] == 309 + 80


def test_a_killed_stream_that_begins_again_sends_each_row_once(wgpr, lake, url):
    """Rows and queries that arrive together are several requests; the kill comes after some of them."""
    rows = survey(80)
    text = "".join(f"{line}2,1\n" for line in text_of(rows, header=False).splitlines(keepends=True))
    with child("stream", "--to", url) as stream:
        stream.stdin.write(text)
        stream.stdin.flush()
        assert [stream.stdout.readline() for _ in range(30)]
    assert lake.info()["rows_seen"] >= 30
    code, _, said = wgpr("stream", "--to", url, stdin=text)
    assert (code, "were known already" in said, lake.info()["rows_seen"]) == (0, True, 80), said


@pytest.mark.parametrize("is_there", [True, False])
def test_an_interrupted_stream_sends_what_it_has_read(wgpr, lake, url, monkeypatch, is_there):
    """The request that is interrupted may have arrived or not; a question comes between the rows."""
    n_sent = count()

    def send(self, *arguments, original=Map._send_part, **options):
        is_first = next(n_sent) == 0
        if is_there or not is_first:
            original(self, *arguments, **options)
        if is_first:
            raise KeyboardInterrupt

    monkeypatch.setattr(Map, "_send_part", send)
    rows = survey(80)
    text = text_of(rows[:30], header=False) + "2,1\n" + text_of(rows[30:], header=False)
    code, _, said = wgpr("stream", "--to", url, stdin=text)
    assert (code, "still to be sent: 80 rows" in said, lake.info()["rows_seen"]) == (0, True, 80), said
    assert (next(n_sent), "may not be at the service" in said) == (3, False)


def test_a_stream_that_is_interrupted_twice_says_what_is_missing(wgpr, lake, url, monkeypatch):
    def send(*_, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Map, "_send_part", send)
    _, _, said = wgpr("stream", "--to", url, stdin=text_of(survey(80)))
    assert "80 rows may not be at the service; send the stream again" in said
    for options, n_rows in (["--force"], 80), ([], 9):  # these would be learned twice
        said = wgpr("stream", "--to", url, *options, stdin=text_of(survey(n_rows)))[2]
        assert (f"{n_rows} rows may not be" in said, "again" in said) == (True, False), said
    monkeypatch.undo()
    assert wgpr("stream", "--to", url, stdin=text_of(survey(80)))[0] == 0
    assert lake.info()["rows_seen"] == 80


def test_what_is_missing_is_told_also_if_the_report_is_interrupted(wgpr, lake, url, monkeypatch):
    def interrupt(*_, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Map, "_send_part", interrupt)
    monkeypatch.setattr(RemoteSession, "report", interrupt)
    _, _, said = wgpr("stream", "--to", url, stdin=text_of(survey(80)))
    assert said.count("80 rows may not be at the service") == 1, said


def test_a_stream_that_is_interrupted_when_its_map_is_made_announces_it_once(wgpr, url, monkeypatch):
    n_made = count()

    def create(*arguments, original=Map.create, **options):
        if not next(n_made):
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(Map, "create", create)
    new, rows = f"{url}_interrupted", survey(80).rename(columns={"east": "lon", "north": "lat"})
    code, _, said = wgpr("stream", "--to", new, stdin=text_of(rows))
    assert (code, said.count("learning depth from"), said.count("coordinates lon, lat")) == (0, 1, 1), said
    with Map(new) as made:
        assert made.info()["rows_seen"] == 80


def test_a_stream_that_the_service_has_not_noted_is_not_to_be_sent_again(wgpr, lake, url, monkeypatch):
    """It has too few rows for that."""
    n_sent = count()

    def send(self, *arguments, original=Map._send_part, **options):
        if next(n_sent):
            raise KeyboardInterrupt
        original(self, *arguments, **options)

    monkeypatch.setattr(Map, "_send_part", send)
    rows = survey(25)
    said = wgpr("stream", "--to", url, stdin=text_of(rows[:5]) + "2,1\n" + text_of(rows[5:], header=False))[2]
    assert "20 rows may not be at the service; it has 5 rows before these" in said
    assert lake.info()["rows_seen"] == 5


def test_the_last_rows_of_a_stream_do_not_wait_long_for_a_service(wgpr, lake, url, monkeypatch):
    patience = []
    monkeypatch.setattr(Map, "hasten", lambda self, seconds: patience.append(seconds))

    def send(self, *_, **options):
        if not patience:
            raise KeyboardInterrupt
        raise MapServiceError(f"given up after {patience[0]:g} s")

    monkeypatch.setattr(Map, "_send_part", send)
    code, _, said = wgpr("stream", "--to", url, stdin=text_of(survey(25)))
    assert (code, "given up after 8 s" in said, "25 rows may not be at the service" in said) == (1, True, True)


class Hanging(BaseHTTPRequestHandler):
    """A service with a map, which takes rows and never answers."""

    n_posts = 0

    def do_GET(self):
        definition = {"inputs": X, "target": Y, "weight": None, "crs": None}
        summary = {"definition": definition, "rows_seen": 0, "rows_learned": 0}
        content = [] if self.path.endswith("/learned") else summary
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        Hanging.n_posts += 1
        time.sleep(60.0)

    def log_message(self, *_):
        pass


def test_a_service_that_hangs_does_not_hold_an_interrupted_stream_for_long(monkeypatch):
    monkeypatch.setattr(remote, "_LAST_PATIENCE", 0.7)
    monkeypatch.setattr(Hanging, "n_posts", 0)
    hanging = ThreadingHTTPServer(("127.0.0.1", 0), Hanging)
    hanging.daemon_threads, hanging.block_on_close = True, False
    Thread(target=hanging.serve_forever, daemon=True).start()
    try:
        with child("stream", "--to", f"http://127.0.0.1:{hanging.server_port}/maps/lake") as stream:
            stream.stdin.write(text_of(survey(25)))
            stream.stdin.flush()
            while stream.is_alive() and not Hanging.n_posts:
                time.sleep(0.01)
            os.kill(stream.pid, signal.SIGINT)
            began = time.monotonic()
            stream.join(15.0)
            assert not stream.is_alive()
            assert time.monotonic() - began < 3 * 0.7 + 2.0
            assert "25 rows may not be at the service" in stream.stderr.read()
            assert stream.exitcode == 1
    finally:
        hanging.shutdown()
        hanging.server_close()


def test_a_call_that_is_repeated_with_its_key_is_learned_once(lake, monkeypatch):
    monkeypatch.setattr("wgpr.client._PART", 30)
    rows = survey(80)
    for _ in range(2):
        lake.partial_fit(rows[X], rows[Y], key="monday")
    assert lake.info()["rows_seen"] == 80
    for key in ("größe", "a\nb", " ", 101 * "a"):
        with pytest.raises(ValueError, match="key must have at most 100 printable ASCII characters"):
            lake.partial_fit(rows[X], rows[Y], key=key)


def test_a_service_that_was_started_again_knows_its_streams_and_files(wgpr, tmp_path):
    rows, folder = write_survey("sonar.csv", 80)[:50], tmp_path / "maps"
    rows.to_csv("monday.csv", index=False)
    (folder / "lake").mkdir(parents=True)
    assert wgpr("fit", "monday.csv", "-o", folder / "lake" / "snapshot.map")[0] == 0
    for n_known in (50, 80):
        with service_process(folder) as (address, _):
            said = wgpr("stream", "--to", f"{address()}/maps/lake", stdin=Path("sonar.csv").read_text())[2]
            assert f"{n_known} rows were known already" in said
    assert load(folder / "lake" / "snapshot.map").n_samples_seen_ == 80


def test_commands_do_not_write_the_map_of_a_service(wgpr, tmp_path):
    """A service that runs would replace it with its own; one that starts again has a journal that continues another."""
    write_survey("monday.csv", 50)
    write_survey("tuesday.csv", 20, seed=2)
    snapshot = tmp_path / "maps" / "lake" / "snapshot.map"
    snapshot.parent.mkdir(parents=True)
    assert wgpr("fit", "monday.csv", "-o", snapshot)[0] == 0
    with service_process(tmp_path / "maps") as (address, _):
        address()
        assert_refuses(wgpr, snapshot)
    assert_refuses(wgpr, snapshot)
    Path("link.map").symlink_to(snapshot)
    assert_refuses(wgpr, "link.map")
    shutil.copy(snapshot, "copy.map")
    assert wgpr("update", "copy.map", "tuesday.csv")[0] == 0
    assert load("copy.map").n_samples_seen_ == 70
    with service_process(tmp_path / "maps") as (address, _), Map(f"{address()}/maps/lake") as lake:
        assert lake.info()["rows_seen"] == 50


def assert_refuses(wgpr, snapshot):
    for command in (["update", snapshot, "tuesday.csv"], ["fit", "tuesday.csv", "-o", snapshot], ["stream", snapshot]):
        code, _, said = wgpr(*command, stdin=text_of(survey(5)))
        assert (code, "belongs to a wgpr serve" in said, "--to" in said) == (1, True, True), said


def test_many_lines_are_few_requests(wgpr, lake, url, monkeypatch):
    sizes = []

    def partial_fit(self, X, y, *arguments, original=Map.partial_fit, **options):
        sizes.append(len(X))
        return original(self, X, y, *arguments, **options)

    monkeypatch.setattr(Map, "partial_fit", partial_fit)
    assert wgpr("stream", "--to", url, stdin=text_of(survey(300)))[0] == 0
    assert (sum(sizes), len(sizes) < 5) == (300, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "name one place for the rows"),
        (["a.map", "--to", "http://127.0.0.1:1/maps/lake"], 2, "name one place for the rows"),
        (["--to", "127.0.0.1:1/lake"], 2, "--to: url must be that of a map"),
        (["--to", "http://127.0.0.1:1/maps/lake"], 1, "does not answer"),
        (["--to", "http://127.0.0.1:1/maps/lake", "--token-file", "none"], 2, "--token-file none cannot be read"),
    ],
)
def test_wrong_places_for_the_rows(wgpr, arguments, code, words):
    exit_code, _, said = wgpr("stream", *arguments)
    assert (exit_code, words in said, "Traceback" in said) == (code, True, False), said


def test_wrong_settings_are_told_before_a_line_is_read(wgpr, url):
    code, _, said = wgpr("stream", "--to", url, "-s", "treshold=3", stdin="east,north,depth\n1,1,1\n")
    assert (code, "treshold" in said) == (2, True)
    assert wgpr("stream", "--to", url, "-m", "sparse", stdin="1,1,1\n")[0] == 1


def test_the_token_of_a_stream(wgpr, url, monkeypatch):
    tokens = []

    class NotedMap(Map):
        def __init__(self, url, token=None):
            tokens.append(token)
            super().__init__(url, token)

    monkeypatch.setattr(remote, "Map", NotedMap)
    Path("token").write_text("a secret of many letters\n")
    for variable, options in (("", []), ("another secret", []), ("another secret", ["--token-file", "token"])):
        monkeypatch.setenv("WGPR_TOKEN", variable)
        assert wgpr("stream", "--to", url, *options, stdin=text_of(survey(5)))[0] == 0
    assert tokens == [None, "another secret", "a secret of many letters"]


# Imports


def test_the_package_does_not_import_the_client():
    code = "import sys, wgpr; print('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_without_httpx_the_client_says_what_to_install(wgpr, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("wgpr.client", "wgpr.cli.remote"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    code, _, said = wgpr("stream", "--to", "http://127.0.0.1:1/maps/lake")
    assert (code, 'pip install "wgpr[serve]"' in said) == (1, True)


@pytest.mark.parametrize(("option", "crs"), [([], "EPSG:4326"), (["--crs", "none"], None)])
def test_a_stream_recognises_degrees_by_their_names(wgpr, url, option, crs):
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    rows = survey(30)
    degrees = pd.DataFrame(
        {"lon": -76.0 + 1e-3 * rows["east"], "lat": 44.0 + 1e-3 * rows["north"], "depth": rows["depth"]}
    )
    code, _, said = wgpr("stream", "--to", url, *option, stdin=text_of(degrees))
    assert (code, "coordinates lon, lat: EPSG:4326, learned in metres" in said) == (0, crs is not None), said
    with Map(url) as lake:
        assert lake.info()["definition"]["crs"] == crs


def test_a_stream_of_places_far_from_where_the_system_is_used(wgpr, url):
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    rows = survey(30)
    rows["east"], rows["north"] = 4_900_000.0 + rows["east"], 450_000.0 + rows["north"]
    code, _, said = wgpr("stream", "--to", f"{url}-utm", "--crs", "EPSG:32618", stdin=text_of(rows))
    assert (code, "standard input: nothing was learned, because 30 lines were left out" in said) == (1, True), said
    assert "line 2 has " in said
    assert "far from where EPSG:32618 is used" in said
    assert "perhaps easting and northing are swapped (--force learns it)" in said
