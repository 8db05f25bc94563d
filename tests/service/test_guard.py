"""Who comes in, with how much, for how long, and what the log says about it."""

import ast
import gzip
import hmac
import inspect
import json
import logging
import re
import socket
import textwrap
import threading
import time
import traceback
from contextlib import closing, suppress
from http.client import HTTPConnection

import pytest

from running_service import NAMES, as_csv, make_map, new_client, running, send, survey
from wgpr.service import app as routes
from wgpr.service import bodies, guard, logs
from wgpr.service.limits import Limits
from wgpr.service.server import Address

TOKEN = "correct-horse-battery-staple"
SITE = "https://maps.example"
BODY = 20_000
LIMITS = Limits(body=BODY, short_body=BODY // 2, seconds=2.0, header_seconds=0.5, connections=10)


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A service with a token, one allowed site and tight limits."""
    with running(tmp_path_factory.mktemp("strict"), limits=LIMITS, token=TOKEN, origins=[SITE]) as service:
        path = make_map(service.client, "lake", settings={"random_state": 0})
        send(service.client, f"{path}/rows", as_csv(survey(30)))
        wait_until(lambda: service.client.get(path).json()["rows_learned"] == 30)
        yield service


@pytest.fixture(scope="module")
def stranger(strict):
    """A client without the token."""
    with new_client(strict.url) as client:
        yield client


def problem_of(response, status):
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.json()["detail"]


# Tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "boat.example"])
def test_other_machines_need_a_token(host):
    with pytest.raises(ValueError, match="give a token by --token-file or WGPR_TOKEN"):
        Address(host)
    assert Address(host, token=TOKEN).token == TOKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_needs_none(host):
    assert Address(host).token is None


@pytest.mark.parametrize("token", ["", "short", "fifteen letters", "ünicode-letters-here"])
def test_a_token_is_long_and_ascii(token):
    with pytest.raises(ValueError, match="at least 16 ASCII characters"):
        Address(token=token)


@pytest.mark.parametrize(
    "given",
    [
        None, "", "Bearer", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Bearer {TOKEN.upper()}",
        f"bearer {TOKEN}", f"Basic {TOKEN}", TOKEN, f"Bearer  {TOKEN}", f"Bearer {TOKEN}, Bearer {TOKEN}", "Bearer é",
    ],
)  # fmt: skip
def test_without_the_token_nothing_is_told(stranger, given):
    headers = [] if given is None else [("Authorization", given.encode("latin-1"))]
    for method, path in (("GET", "/maps"), ("POST", "/maps/lake/rows"), ("GET", "/metrics"), ("GET", "/no/such")):
        response = stranger.request(method, path, headers=headers)
        assert "Authorization: Bearer TOKEN" in problem_of(response, 401)
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "lake" not in response.text


def test_a_token_in_the_address_is_none(stranger):
    for query in (f"token={TOKEN}", f"access_token={TOKEN}"):
        assert stranger.get(f"/maps?{query}").status_code == 401


def test_the_token_opens(strict):
    assert [each["name"] for each in strict.client.get("/maps").json()] == ["lake"]


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/docs", "/openapi.json"])
def test_what_says_nothing_about_maps_needs_no_token(stranger, path):
    response = stranger.get(path)
    assert response.status_code == 200
    assert "lake" not in response.text


def test_tokens_are_compared_in_constant_time(strict, monkeypatch):
    compared, original = [], hmac.compare_digest

    def compare(first, second):
        compared.append((first, second))
        return original(first, second)

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    strict.client.get("/maps")
    assert compared == [(f"Bearer {TOKEN}".encode(),) * 2]
    tree = ast.parse(textwrap.dedent(inspect.getsource(guard.Guard)))
    others = [node for node in ast.walk(tree) if isinstance(node, ast.Compare) and "_token" in ast.unparse(node)]
    assert [ast.unparse(node) for node in others] == ["self._token is None"]


# Hosts and sites


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil", "10.0.0.1"]
)
def test_another_name_of_this_machine_is_refused(service, host):
    response = service.client.get("/maps", headers={"Host": host})
    assert "the host must be localhost" in problem_of(response, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.2:80", "[::1]", "[::1]:8000"])
def test_names_of_loopback_are_taken(service, host):
    assert service.client.get("/health/live", headers={"Host": host}).status_code == 200


def test_with_a_token_any_name_will_do(strict):
    assert strict.client.get("/maps", headers={"Host": "boat.example"}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost", "http://127.0.0.1:1"])
def test_pages_of_other_sites_are_refused(service, strict, origin):
    for each in (service, strict):
        response = each.client.get("/maps", headers={"Origin": origin})
        assert "--allow-origin" in problem_of(response, 403)
        assert not [name for name in response.headers if name.startswith("access-control")]
    preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert service.client.options("/maps/lake/rows", headers=preflight).status_code == 403


def test_a_page_of_the_service_itself_may_ask(service):
    response = service.client.get("/maps", headers={"Origin": service.url})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


def test_an_allowed_page_may_ask_with_the_token(strict, stranger):
    headers = {
        "Origin": SITE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,idempotency-key,content-type",
    }
    preflight = stranger.options("/maps/lake/rows", headers=headers)  # a browser sends no token with it
    assert preflight.status_code == 200
    assert preflight.headers["Access-Control-Allow-Origin"] == SITE
    assert "authorization" in preflight.headers["Access-Control-Allow-Headers"].lower()
    response = strict.client.get("/maps", headers={"Origin": SITE})
    assert (response.status_code, response.headers["Access-Control-Allow-Origin"]) == (200, SITE)
    refused = stranger.get("/maps", headers={"Origin": SITE})
    assert problem_of(refused, 401)
    assert refused.headers["Access-Control-Allow-Origin"] == SITE  # so that the page can read why


# Sizes


def in_pieces(n_bytes):
    """Sent without a length."""
    for _ in range(n_bytes // 1000):
        yield b" " * 1000


@pytest.mark.parametrize(("method", "most"), [("POST", BODY), ("PUT", BODY // 2)])
def test_a_long_body_is_refused(strict, method, most):
    path = "/maps/lake/rows" if method == "POST" else "/maps/long"
    headers = {"Content-Type": "text/csv" if method == "POST" else "application/json"}
    for content in (b" " * (most + 1), in_pieces(3 * BODY)):
        response = strict.client.request(method, path, content=content, headers=headers)
        assert f"more than {most:,} bytes" in problem_of(response, 413)
    just_right = strict.client.request(method, path, content=b" " * most, headers=headers)
    assert just_right.status_code == 422


def test_a_client_that_sends_all_of_a_long_body_reads_why_it_is_refused(strict):
    connection = HTTPConnection("127.0.0.1", strict.port, timeout=120.0)
    with closing(connection):
        for headers in ({}, {"Transfer-Encoding": "chunked"}):
            body = b" " * 5_000_000
            authorization = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/csv"}
            sent = iter([body]) if headers else body
            connection.request(
                "POST", "/maps/lake/rows", sent, {**authorization, **headers}, encode_chunked=bool(headers)
            )
            response = connection.getresponse()
            assert (response.status, json.loads(response.read())["status"]) == (413, 413)


def test_bodies_of_all_requests_together_have_a_limit(strict, monkeypatch):
    monkeypatch.setitem(vars(LIMITS), "bodies", BODY)
    start = b"POST /maps/lake/rows HTTP/1.1\r\n" + HEADERS + b"Content-Length: 15000\r\n\r\n" + b" " * 14_000
    with closing(socket.create_connection(("127.0.0.1", strict.port), timeout=120.0)) as connection:
        connection.sendall(start)
        wait_until(lambda: send(strict.client, "/maps/lake/rows", b" " * 14_000).status_code == 503)
    wait_until(lambda: send(strict.client, "/maps/lake/rows", b" " * 14_000).status_code == 422)


def test_a_body_of_too_many_values_is_refused(client, lake, monkeypatch):
    monkeypatch.setattr(bodies, "_MOST_VALUES", 100)
    for body, kind in (("[" * 101, "application/json"), ("{" * 101, "application/x-ndjson"), ("," * 101, "text/csv")):
        assert "more than 100 values" in problem_of(send(client, f"{lake}/rows", body, kind), 413)


def test_a_body_that_becomes_long_is_refused(strict):
    bomb = gzip.compress(bytes(50_000_000), compresslevel=9)
    assert len(bomb) > BODY  # refused by its own size
    small_bomb = gzip.compress(b" " * (BODY + 1))
    for body in (bomb, small_bomb):
        response = send(strict.client, "/maps/lake/rows", body, headers={"Content-Encoding": "gzip"})
        assert f"more than {BODY:,} bytes" in problem_of(response, 413)
    nested = gzip.compress(small_bomb)
    response = send(strict.client, "/maps/lake/rows", nested, headers={"Content-Encoding": "gzip, gzip"})
    assert problem_of(response, 415)


# Slow clients


def exchange(service, *parts, seconds=0.0):
    """Send parts of a request with pauses, and read until the service closes the connection."""
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=120.0)) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(seconds)
        except ConnectionError:  # closed meanwhile
            return b""
        received = b""
        try:
            while piece := connection.recv(2**16):
                received += piece
        except ConnectionResetError:
            pass
        return received


HEADERS = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: text/csv\r\n".encode()
GET = b"GET /health/live HTTP/1.1\r\n" + HEADERS + b"\r\n"


def test_a_silent_connection_is_closed(strict):
    assert exchange(strict) == b""


def test_headers_that_do_not_end_are_cut_off(strict):
    start = b"GET /maps HTTP/1.1\r\n" + HEADERS
    assert exchange(strict, start) == b""
    assert exchange(strict, start, *[b"X-More: 1\r\n"] * 30, seconds=0.1) == b""


def test_headers_of_a_second_request_are_cut_off_too(strict):
    received = exchange(strict, GET, b"G", *[b"E"] * 30, seconds=0.1)
    assert received == b"" or received.count(b"HTTP/1.1") == 1


def test_an_idle_connection_is_closed(strict):
    received = exchange(strict, GET)
    assert received.startswith(b"HTTP/1.1 200")


@pytest.fixture
def short(monkeypatch):
    """A time limit that a slow client reaches soon."""
    monkeypatch.setitem(vars(LIMITS), "seconds", 0.5)


def test_a_body_that_does_not_end_is_cut_off(strict, short):
    start = b"POST /maps/lake/rows HTTP/1.1\r\n" + HEADERS + b"Content-Length: 1000\r\n\r\n"
    received = exchange(strict, start, b"east,")
    assert received.startswith(b"HTTP/1.1 408")
    assert b"took longer than 0.5 s" in received


def test_a_body_after_the_answer_is_cut_off(strict):
    """A refused request whose body goes on and on."""
    start = b"POST /maps/lake/rows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    received = exchange(strict, start, *[b"x"] * 30, seconds=0.1)
    assert received == b"" or received.startswith(b"HTTP/1.1 401")


BEGINNING = b"HTTP/1.1 200"


def ask_and_do_not_read(service):
    """A connection with an answer of 4 MB of which nobody reads more than the beginning, and its other end.

    On a busy machine the answer may take longer than the service allows: then it is asked for again.
    """
    accept = b"Accept: application/prs.coverage+json\r\n\r\n"
    for _ in range(20):
        known = set(service.server.server_state.connections)
        connection, received = socket.socket(), b""
        connection.settimeout(120.0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", service.port))
        with suppress(ConnectionError):
            connection.sendall(b"GET /maps/lake/grid?width=300&height=200 HTTP/1.1\r\n" + HEADERS + accept)
            received = connection.recv(len(BEGINNING))
        other_ends = set(service.server.server_state.connections) - known
        if received == BEGINNING and len(other_ends) == 1:
            return connection, *other_ends
        connection.close()
    raise AssertionError("the answer takes too long")


def test_a_client_that_does_not_read_is_cut_off(strict):
    connection, other_end = ask_and_do_not_read(strict)
    with closing(connection):
        wait_until(lambda: other_end not in strict.server.server_state.connections)
    assert strict.client.get("/health/live").status_code == 200


def test_a_client_that_reads_slowly_gets_all(strict):
    connection, _ = ask_and_do_not_read(strict)
    received = BEGINNING
    with closing(connection):
        for _ in range(30):
            time.sleep(0.05)
            received += connection.recv(2**16)
        while piece := connection.recv(2**16):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    assert int(re.search(rb"content-length: (\d+)", head)[1]) == len(body)


def test_answers_that_nobody_reads_do_not_fill_the_memory(strict, monkeypatch):
    for name, value in {"header_seconds": 1000.0, "unsent": 6_000_000, "seconds": 1000.0}.items():
        monkeypatch.setitem(vars(LIMITS), name, value)
    first, other_end = ask_and_do_not_read(strict)
    second, _ = ask_and_do_not_read(strict)
    with closing(first), closing(second):
        wait_until(lambda: other_end not in strict.server.server_state.connections)


def test_many_silent_connections_keep_nobody_out(strict):
    silent = [
        socket.create_connection(("127.0.0.1", strict.port), timeout=120.0) for _ in range(3 * LIMITS.connections)
    ]
    try:
        for _ in range(5):
            assert strict.client.get("/health/live").status_code == 200
    finally:
        for connection in silent:
            connection.close()


def test_too_many_requests_at_once_are_a_503(strict, monkeypatch):
    monkeypatch.setitem(vars(LIMITS), "seconds", 1000.0)  # the first still wait when the last are there
    start = b"POST /maps/lake/rows HTTP/1.1\r\n" + HEADERS + b"Content-Length: 1000\r\n\r\n"
    waiting = [socket.create_connection(("127.0.0.1", strict.port), timeout=120.0) for _ in range(LIMITS.connections)]
    try:
        for connection in waiting:
            connection.sendall(start)
        wait_until(lambda: len(strict.server.server_state.tasks) == LIMITS.connections)
        response = strict.client.get("/health/live")
        assert "too many" in problem_of(response, 503)
        assert response.headers["Retry-After"] == "1"
    finally:
        for connection in waiting:
            connection.close()
    wait_until(lambda: strict.client.get("/health/live").status_code == 200)


def wait_until(condition):
    end = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < end, "this takes too long"
        time.sleep(0.02)


# What is not HTTP


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"GET /maps\r\n\r\n",
        b"GET /maps HTTP/1.1\r\n\r\n",  # no host
        b"GET /maps HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
        b"GET /maps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /maps HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /maps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /maps HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /maps HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_400(service, request_bytes):
    received = exchange(service, request_bytes)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.split()[1] in (b"400", b"431", b"501")
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] in (400, 431, 501)


# Errors and logs


def faults(records):
    """Lines of requests that ended with a 500. A client of an earlier test may end only now."""
    return [record for record in records if record.getMessage() == "request" and record.values["status"] == 500]


def test_a_fault_is_a_500_without_a_traceback(strict, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("secret value 12.345")

    monkeypatch.setattr(routes, "summary", fail)
    with caplog.at_level(logging.INFO, logger="wgpr.service"):
        response = strict.client.get("/maps/lake")
        wait_until(lambda: faults(caplog.records))
    assert problem_of(response, 500) == "the service has a fault; its log says more"
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    (line,) = faults(caplog.records)
    assert line.values["error"].startswith("RuntimeError < fail (")
    assert "secret" not in str(line.values)
    assert strict.client.get("/health/live").status_code == 200


def test_each_request_is_one_line_of_json_without_data(strict, stranger, caplog):
    formatter = logs._JsonLines()
    with caplog.at_level(logging.INFO, logger="wgpr.service"):
        send(strict.client, "/maps/lake/predict", as_csv([[4.321, 6.789]], NAMES[:2]), params={"level": 0.5})
        send(
            strict.client, "/maps/lake/rows", "east,north,depth\n1,2,very-secret\n", headers={"Idempotency-Key": "k-1"}
        )
        stranger.get("/maps?password=hidden")
        strict.client.get("/maps/Not a name")
        wait_until(lambda: sum(json.loads(formatter.format(record))["status"] == 422 for record in caplog.records) == 2)
    lines = [json.loads(formatter.format(record)) for record in caplog.records][-4:]  # one before may come late
    assert [(line["event"], line["status"], line["map"]) for line in lines] == [
        ("request", 200, "lake"), ("request", 422, "lake"), ("request", 401, None), ("request", 422, None),
    ]  # fmt: skip
    assert set(lines[0]) == {
        "time", "level", "event", "client", "method", "route", "map", "status", "ms", "received", "sent",
    }  # fmt: skip
    assert lines[0]["route"] == "/maps/{name}/predict"
    text = json.dumps(lines)
    for secret in ("4.321", "6.789", "secret", "hidden", "k-1", TOKEN, "Not a name"):
        assert secret not in text


def test_a_client_that_goes_away_is_no_fault(strict, caplog):
    start = b"POST /maps/lake/rows HTTP/1.1\r\n" + HEADERS + b"Content-Length: 1000\r\n\r\neast"
    with caplog.at_level(logging.INFO):
        with closing(socket.create_connection(("127.0.0.1", strict.port))) as connection:
            connection.sendall(start)
            wait_until(lambda: strict.server.server_state.tasks)
        wait_until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.values["status"] == 499
    assert "error" not in record.values


def test_a_grid_that_nobody_waits_for_is_given_up(strict, monkeypatch):
    begun, given_up = threading.Event(), threading.Event()

    def predict(model, plan, show):
        begun.set()
        while True:
            time.sleep(0.01)
            try:
                show(1)
            except InterruptedError:
                given_up.set()
                raise

    monkeypatch.setattr(routes, "predict_plan", predict)
    monkeypatch.setitem(vars(LIMITS), "seconds", 1000.0)  # it is not given up for another reason
    with closing(socket.create_connection(("127.0.0.1", strict.port))) as connection:
        connection.sendall(b"GET /maps/lake/grid HTTP/1.1\r\n" + HEADERS + b"\r\n")
        assert begun.wait(120.0)
    assert given_up.wait(120.0)


def test_errors_of_the_server_are_lines_of_json():
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "a %s", ("fault",), None)
    assert json.loads(logs._JsonLines().format(record))["message"] == "a fault"
    try:
        raise ValueError("x")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    assert "\n" not in logs._JsonLines().format(record)
    assert traceback.format_exc()
