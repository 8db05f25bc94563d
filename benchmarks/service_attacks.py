"""Attacks on the service, and what each of them got.

    python benchmarks/service_attacks.py [--only names;tokens] [--quick] [--write]

Everything goes to a service on 127.0.0.1 that this program has started, with the limits that `wgpr serve` has. After
each attack an ordinary prediction must be answered, and nothing outside of the folder may have changed. Ends with an
error if that fails, or if anything was answered by a 5xx that is not a refusal. `--write` puts the table into
docs/service_results.md.
"""

import argparse
import gzip
import json
import os
import re
import socket
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from common import ROOT, put_measured
from serving import Served, resident_megabytes, served

PAGE = ROOT / "docs" / "service_results.md"
MARKERS = "<!-- strangers -->", "<!-- end of strangers -->"

TOKEN = "a-token-that-nobody-knows-0123456789"
DEFINITION = {"inputs": ["east", "north"], "target": "depth", "settings": {"random_state": 0}}
ROWS = "east,north,depth\n" + "".join(f"{i % 10},{i // 10},{(i * 7) % 5}\n" for i in range(100))
CSV = {"Content-Type": "text/csv"}
PLACE = {"east": [3.0], "north": [4.0]}


class Attack(NamedTuple):
    """group : for --only; what : is tried; run : gives what it got. needs_token : tried with a service that has one."""

    group: str
    what: str
    run: Callable[[Served], str]
    needs_token: bool = False


ATTACKS: list[Attack] = []


def attack(group: str, what: str, *, needs_token: bool = False) -> Callable[[Any], Any]:
    def add(run: Callable[[Served], str]) -> Callable[[Served], str]:
        ATTACKS.append(Attack(group, what, run, needs_token))
        return run

    return add


# Requests as bytes


def raw(service: Served, data: bytes, *, timeout: float = 15.0, closes: bool = False) -> bytes:
    """What is answered to these bytes, until the service closes the connection or is silent.

    closes : the sending side is closed, as by a client that ends.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", service.port), timeout=timeout) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
            if closes:
                connection.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError, ConnectionError):
            while piece := connection.recv(2**16):
                received += piece
    return received


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", received)]


def request(target: str, method: str = "GET", headers: str = "", body: bytes = b"", *, length: bool = True) -> bytes:
    """A request that ends its connection. headers : lines that end with CR LF."""
    size = f"Content-Length: {len(body)}\r\n" if length and body else ""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{size}{headers}\r\n"
    return head.encode("utf-8") + body


def counted(answers: Iterable[int]) -> str:
    """Such as `3 times 404, 422`. 0 stands for a connection that was closed without an answer."""
    counts = Counter(status or "closed" for status in answers)
    parts = sorted((str(status), n) for status, n in counts.items())
    return ", ".join(f"{n:,} times {status}" if n > 1 else status for status, n in parts)


def all_statuses(service: Served, *requests: bytes, **options: Any) -> str:
    """What each of the requests was answered."""
    answers = [statuses(raw(service, data, **options)) or [0] for data in requests]
    return counted(status for each in answers for status in each)


# Names and paths

NAMES = ["..", ".", "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2f..%2fetc", "..%5c..%5cwindows",
         "%2fetc%2fpasswd", "/etc/passwd",
         "a%00b", "a%0d%0aSet-Cookie:x", "x" * 65, "x" * 5000, "%e2%80%ae", "%c3%a9", "%ff%fe", "%f0%9f%98%80",
         ".lock", ".new-a",
         ".deleted-a", "-rf", "a b", "a%20b", "a;b", "a%3fb", "*",
         "~root", "$HOME", "{name}", "a%2fb", "....//", "%252e%252e"]  # fmt: skip


@attack("names", f"{len(NAMES)} names of maps with `..`, slashes, NUL, line ends, 5,000 characters, other alphabets")
def names(service: Served) -> str:
    body, kind = json.dumps(DEFINITION).encode(), "Content-Type: application/json\r\n"
    before = files_around(service)
    made = all_statuses(service, *(request(f"/maps/{name}", "PUT", kind, body) for name in NAMES))
    read = all_statuses(service, *(request(f"/maps/{name}/file") for name in NAMES))
    deleted = all_statuses(service, *(request(f"/maps/{name}", "DELETE") for name in NAMES))
    assert files_around(service) == before, "a file was made or deleted"
    return f"PUT {made}; file {read}; DELETE {deleted}; no file was made or deleted"


@attack("names", "names that are reserved elsewhere: `CON`, `nul.txt`, `aux`, `a.`, `LAKE` beside `lake`")
def reserved_names(service: Served) -> str:
    reserved = ["CON", "nul.txt", "aux", "a.", "LAKE"]
    answers = [service.ask("PUT", f"/maps/{name}", DEFINITION)[0] for name in reserved]
    answers += [service.ask("DELETE", f"/maps/{name}")[0] for name in reserved]
    return f"{counted(answers)}: folders like others on this system"


@attack(
    "names", "targets that are no path: `http://evil/maps`, `//evil/maps`, `*`, `maps`, `/maps?x`, 20,000 characters"
)
def targets(service: Served) -> str:
    odd = [
        "http://evil.example/maps",
        "//evil.example/maps",
        "*",
        "maps",
        "/maps?" + "x" * 100,
        "/" + "x" * 20_000,
        "/maps/%zz",
    ]
    return all_statuses(service, *(request(target) for target in odd))


@attack("names", "a link in the folder that leads out of it: PUT, file, DELETE")
def link(service: Served) -> str:
    outside = service.folder.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (service.folder / "out").symlink_to(outside)
    answers = [service.ask("PUT", "/maps/out", DEFINITION)[0], service.ask("GET", "/maps/out/file")[0]]
    answers.append(service.ask("DELETE", "/maps/out")[0])
    assert [path.name for path in outside.iterdir()] == ["precious"]
    (service.folder / "out").unlink()
    return f"{counted(answers)}; nothing outside was changed"


def files_around(service: Served) -> set[str]:
    """Paths in the folder above that of the maps, without those of the maps that are in use."""
    found = {str(path) for path in service.folder.parent.rglob("*")}
    return {path for path in found if not path.endswith(("-wal", "snapshot.map", ".sqlite"))}


# HTTP


@attack("http", "methods TRACE, CONNECT, PROPFIND, PATCH, HEAD, `get`, 10,000 letters")
def methods(service: Served) -> str:
    odd = ["TRACE", "CONNECT", "PROPFIND", "PATCH", "HEAD", "get", "X" * 10_000, "\x00"]
    return all_statuses(service, *(request("/maps", method) for method in odd))


@attack("http", "headers of 20 kB, 1 MB and without end; 1,000 headers; names with blanks; folded lines")
def headers(service: Served) -> str:
    odd = [
        f"X: {'x' * 20_000}\r\n",
        f"X: {'x' * 1_000_000}\r\n",
        "X: x\r\n" * 1000,
        "X : x\r\n",
        "X: x\r\n folded\r\n",
        "X\r\n",
        ": x\r\n",
    ]
    return all_statuses(
        service, *(request("/maps", headers=each) for each in odd), b"GET /maps HTTP/1.1\r\nX: " + b"x" * 5_000_000
    )


@attack(
    "http",
    "smuggling: length and chunks together, two lengths, `+5`, `5, 5`, chunked twice, blanks in names, gzip",
)
def smuggling(service: Served) -> str:
    hidden = b"0\r\n\r\nDELETE /maps/lake HTTP/1.1\r\nHost: localhost\r\n\r\n"
    odd = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length: 0\r\nContent-Length: 100\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n", "Content-Length: 5, 6\r\n", "Content-Length: 0x5\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    ]  # fmt: skip
    got = all_statuses(
        service,
        *(
            request("/maps/lake/rows", "POST", each + "Content-Type: text/csv\r\n", hidden, length=False)
            for each in odd
        ),
    )
    assert service.ask("GET", "/maps/lake")[0] == 200, "the hidden request was obeyed"
    return f"{got}; the hidden DELETE was never obeyed"


@attack("http", "100 requests in one packet (pipelining), and 100 of which the first is broken")
def pipelining(service: Served) -> str:
    one = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = request("/health/live")
    good = statuses(raw(service, one * 99 + last))
    bad = statuses(raw(service, b"BROKEN\r\n\r\n" + one * 99))
    return f"{counted(good)}; then {counted(bad)} and closed"


@attack("http", "line ends in a path and `X-Forwarded-For`, to write lines into the log")
def log_lines(service: Served) -> str:
    time.sleep(0.5)
    before = len(service.log.read_text().splitlines())
    fake = 'x\\r\\n{"event": "fake"}'
    data = [request("/maps/a%0a%7b%22event%22:%22fake%22%7d"), request("/maps", headers=f"X-Forwarded-For: {fake}\r\n")]
    got = all_statuses(service, *data)
    time.sleep(0.2)
    lines = service.log.read_text().splitlines()[before:]
    events = {json.loads(line)["event"] for line in lines}
    assert "fake" not in events
    return f"{got}; {len(lines)} lines for {len(data)} requests, all JSON"


# Sizes


@attack("sizes", "lengths that lie: 1 TB announced, less sent than announced, more sent than announced, none")
def lengths(service: Served) -> str:
    kind = "Content-Type: text/csv\r\n"
    data = [
        request("/maps/lake/rows", "POST", kind + "Content-Length: 1000000000000\r\n"),
        request("/maps/lake/rows", "POST", kind + "Content-Length: 100000\r\n", ROWS.encode(), length=False),
        request("/maps/lake/rows", "POST", kind + "Content-Length: 5\r\n", b"east,north,depth\n1,2,3\n", length=False),
        request("/maps/lake/rows", "POST", kind),
    ]
    return all_statuses(service, *data, closes=True)


@attack("sizes", "bodies of 40 MB: announced, in chunks, and a chunk of 2^64 bytes")
def long_bodies(service: Served) -> str:
    kind = "Content-Type: text/csv\r\n"
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    chunked = request("/maps/lake/rows", "POST", kind + "Transfer-Encoding: chunked\r\n")
    data = [
        request("/maps/lake/rows", "POST", kind, b"x" * 40_000_000),
        chunked + chunk * 40,
        chunked + b"FFFFFFFFFFFFFFFF\r\n" + b"x" * 40_000_000,
    ]
    return with_memory(service, lambda: all_statuses(service, *data))


@attack("sizes", "gzip bombs: 1 GB of zeros (1 MB), the same compressed twice, a million empty members (20 MB)")
def bombs(service: Served) -> str:
    bomb = gzip.compress(bytes(2**30), compresslevel=9)
    kind = {**CSV, "Content-Encoding": "gzip"}
    bodies = [bomb, gzip.compress(bomb), gzip.compress(b"") * 1_000_000]
    return with_memory(
        service, lambda: counted(service.ask("POST", "/maps/lake/rows", body, kind)[0] for body in bodies)
    )


@attack("sizes", "30 MB of JSON: nested arrays, one long number, one long text, 10 million empty lists")
def long_json(service: Served) -> str:
    n = 30_000_000
    bodies = ["[" * n, "9" * n, '{"east": "' + "x" * n + '"}', '{"east": [' + "[]," * (n // 3) + "1]}"]
    kind = {"Content-Type": "application/json"}
    got = [service.ask("POST", "/maps/lake/rows", body, kind)[0] for body in bodies]
    got += [service.ask("PUT", "/maps/new", body, kind)[0] for body in bodies]
    return counted(got)


def with_memory(service: Served, run: Callable[[], str]) -> str:
    """What it got, and how far the memory of the server rose above what it was."""
    before, peak, done = resident_megabytes(service.process_id), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, resident_megabytes(service.process_id))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        got = run()
    finally:
        done.set()
        thread.join()
    return f"{got}; memory at most {max(0.0, peak - before):.0f} MB more"


@attack("sizes", "40 bodies of 30 MB at once")
def many_bodies(service: Served) -> str:
    answers: list[int] = []

    def send() -> None:
        try:
            answers.append(service.ask("POST", "/maps/lake/rows", b"x" * 30_000_000, CSV)[0])
        except OSError:  # closed while the body was sent
            answers.append(0)

    def run() -> str:
        threads = [threading.Thread(target=send) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return counted(answers)

    with Ordinary(service) as ordinary:
        got = with_memory(service, run)
    return f"{got}; {ordinary}"


# Slow clients


class Ordinary:
    """Asks for a prediction every 0.2 s while something else happens. answers : status and seconds of each."""

    def __init__(self, service: Served) -> None:
        self._service, self._done = service, threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers: list[tuple[int, float]] = []

    def __enter__(self) -> "Ordinary":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._done.wait(0.2):
            started = time.perf_counter()
            try:
                status = self._service.ask("POST", "/maps/lake/predict", PLACE)[0]
            except OSError:
                status = 0
            self.answers.append((status, time.perf_counter() - started))

    def __str__(self) -> str:
        longest = max(seconds for _, seconds in self.answers)
        got = counted(status for status, _ in self.answers)
        return f"meanwhile predictions got {got}, the longest in {1e3 * longest:.0f} ms"


def opened(stack: ExitStack, service: Served, n: int) -> list[socket.socket]:
    found = [socket.create_connection(("127.0.0.1", service.port), timeout=15.0) for _ in range(n)]
    for connection in found:
        stack.callback(connection.close)
    return found


def sent_slowly(connections: list[socket.socket], piece: bytes, seconds: float) -> int:
    """Send a piece each second; gives how many connections the service has closed in the end."""
    closed: set[socket.socket] = set()
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(closed) < len(connections):
        for connection in connections:
            if connection not in closed and not _sent(connection, piece):
                closed.add(connection)
        time.sleep(1.0)
    return len(closed)


def _sent(connection: socket.socket, piece: bytes) -> bool:
    try:
        connection.sendall(piece)
    except OSError:
        return False
    connection.setblocking(False)
    try:
        return connection.recv(2**16, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(15.0)


@attack("slow", "slow headers (slowloris): 300 connections that send a header each second")
def slow_headers(service: Served) -> str:
    with ExitStack() as stack:
        connections = opened(stack, service, 300)
        for connection in connections:
            _sent(connection, b"GET /maps HTTP/1.1\r\nHost: localhost\r\n")
        with Ordinary(service) as ordinary:
            n_closed = sent_slowly(connections, b"X: x\r\n", 15.0)
    return f"{n_closed} closed within 15 s; {ordinary}"


@attack("slow", "150 bodies of which a byte comes each second")
def slow_bodies(service: Served) -> str:
    with ExitStack() as stack:
        connections = opened(stack, service, 150)
        head = request("/maps/lake/rows", "POST", "Content-Type: text/csv\r\nContent-Length: 1000\r\n")
        for connection in connections:
            _sent(connection, head)
        with Ordinary(service) as ordinary:
            sent_slowly(connections, b"e", 62.0)
            answers = [status for each in connections for status in statuses(_read(each))]
    return f"{counted(answers)} after 60 s; {ordinary}"


def _read(connection: socket.socket) -> bytes:
    received = b""
    with suppress(OSError):
        while piece := connection.recv(2**16):
            received += piece
    return received


@attack("slow", "10 clients that ask for a grid of 300,000 nodes each and do not read it")
def slow_readers(service: Served) -> str:
    with ExitStack() as stack:
        connections = opened(stack, service, 10)
        for connection in connections:
            connection.sendall(
                b"GET /maps/lake/grid?width=600&height=500 HTTP/1.1\r\nHost: localhost\r\n"
                b"Accept: application/prs.coverage+json\r\n\r\n"
            )

        def wait() -> str:
            started = time.monotonic()
            while n_established(service) > 4 and time.monotonic() < started + 180.0:
                time.sleep(0.5)
            return f"closed after {time.monotonic() - started:.0f} s"

        with Ordinary(service) as ordinary:
            got = with_memory(service, wait)
    return f"{got}; {ordinary}"


def n_established(service: Served) -> int:
    """Connections that the server holds open."""
    count = 0
    for path in Path(f"/proc/{service.process_id}/fd").iterdir():
        with suppress(OSError):
            count += os.readlink(path).startswith("socket:")
    return count


@attack("slow", "1,000 connections that say nothing")
def silent(service: Served) -> str:
    with ExitStack() as stack:
        connections = opened(stack, service, 1000)
        with Ordinary(service) as ordinary:
            n_closed = sent_slowly(connections, b"", 15.0)
    return f"{n_closed} closed within 15 s; {ordinary}"


@attack("slow", "requests of 200 large grids at once, whose clients leave after a second")
def leaving(service: Served) -> str:
    with ExitStack() as stack, Ordinary(service) as ordinary:
        connections = opened(stack, service, 195)
        for connection in connections:
            connection.sendall(b"GET /maps/lake/grid?width=1000&height=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1.0)
        for connection in connections:
            connection.close()
        started = time.monotonic()
        status, _ = service.ask("GET", "/maps/lake/grid?width=50&height=50")
        seconds = time.monotonic() - started
    return f"a small grid then got {status} after {seconds:.0f} s; {ordinary}"


# Tokens and sites


@attack(
    "tokens",
    "tokens: none, empty, wrong, a prefix, one more letter, other case, `Basic`, in the query, in a cookie",
    needs_token=True,
)
def tokens(service: Served) -> str:
    given = ["", "Bearer ", "Bearer wrong", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Bearer {TOKEN.upper()}",
             f"Basic {TOKEN}",
             f"bearer {TOKEN}", TOKEN, f"Bearer {TOKEN} {TOKEN}", f"Bearer {'x' * 10_000}"]  # fmt: skip
    answers = [service.ask("GET", "/maps", headers={"Authorization": each})[0] for each in given]
    answers += [service.ask("GET", f"/maps?{name}={TOKEN}")[0] for name in ("token", "access_token", "authorization")]
    answers.append(service.ask("GET", "/maps", headers={"Cookie": f"token={TOKEN}"})[0])
    right = service.ask("GET", "/maps", headers={"Authorization": f"Bearer {TOKEN}"})[0]
    return f"{counted(answers)}; the right one {right}"


@attack(
    "tokens",
    "time of the comparison: 3,000 tries each of a wrong first and a wrong last letter, in turn",
    needs_token=True,
)
def timing(service: Served) -> str:
    connection, guesses = service.connect(), {"first": f"X{TOKEN[1:]}", "last": f"{TOKEN[:-1]}X"}
    times: dict[str, list[float]] = {name: [] for name in guesses}
    for number in range(3000):
        for name in sorted(guesses, reverse=bool(number % 2)):
            started = time.perf_counter()
            connection.request("GET", "/maps", headers={"Authorization": f"Bearer {guesses[name]}"})
            connection.getresponse().read()
            times[name].append(1e6 * (time.perf_counter() - started))
    connection.close()
    first, last = times["first"], times["last"]
    spread = (statistics.quantiles(first, n=4)[2] - statistics.quantiles(first, n=4)[0]) / len(first) ** 0.5
    difference = statistics.median(last) - statistics.median(first)
    return (
        f"medians {statistics.median(first):.0f} and {statistics.median(last):.0f} µs, a difference of "
        f"{difference:+.1f} µs with an uncertainty of about {1.3 * spread:.1f} µs"
    )


@attack("sites", "DNS rebinding: `Host: evil.example`, `localhost.evil.example`, `127.0.0.1.evil.example`, none, two")
def rebinding(service: Served) -> str:
    hosts = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80", "[::2]", ""]
    answers = [service.ask("GET", "/maps", headers={"Host": host})[0] for host in hosts]
    none = statuses(raw(service, b"GET /maps HTTP/1.0\r\n\r\n"))
    two = statuses(raw(service, b"GET /maps HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"))
    return counted([*answers, *none, *two])


@attack("sites", "a page of another site: Origin, `null`, preflight, form post of `text/plain` with and without Origin")
def sites(service: Served) -> str:
    origins = ["https://evil.example", "null", "http://localhost.evil.example", "file://"]
    answers = [service.ask("GET", "/maps", headers={"Origin": origin})[0] for origin in origins]
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers.append(service.ask("OPTIONS", "/maps/lake/rows", headers=preflight)[0])
    form = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    answers.append(service.ask("POST", "/maps/lake/rows", ROWS, form)[0])
    answers.append(service.ask("POST", "/maps/lake/rows", ROWS, {"Content-Type": "text/plain"})[0])
    answers.append(service.ask("PUT", "/maps/csrf", json.dumps(DEFINITION), {"Content-Type": "text/plain"})[0])
    return counted(answers)


# Settings and parameters


@attack(
    "settings",
    "settings: 100,000 characters, `max_models` 10^9, `n_inducing` 10^6, infinite, nested, 51 inputs, code as a rule",
)
def settings(service: Served) -> str:
    nested: Any = 1
    for _ in range(900):
        nested = {"a": nested}
    odd: list[dict[str, Any]] = [
        {"settings": {"kernel": "x" * 100_000}}, {"settings": {"max_models": 10**9}},
        {"settings": {"max_models": 10**400}},
        {"method": "streaming", "settings": {"n_inducing": 10**6}},
        {"method": "solar", "settings": {"optimizer_iterations": 10**9}},
        {"method": "solar", "settings": {"batch_size": 10**9}}, {"settings": {"random_state": -1}},
        {"settings": nested},
        {"inputs": [f"x{i}" for i in range(51)]}, {"inputs": ["x"] * 1_000_000}, {"inputs": ["x" * 1_000_000]},
        {"settings": {"prediction": {"object": "os.system", "command": "true"}}},
        {"settings": {"prediction": {"object": "__import__"}}},
        {"method": "__class__"}, {"weight": "depth"},
    ]  # fmt: skip
    answers = [service.ask("PUT", "/maps/odd", {**DEFINITION, **each})[0] for each in odd]
    text = json.dumps(DEFINITION).replace('"random_state": 0', '"threshold": %s')
    kind = {"Content-Type": "application/json"}
    answers += [
        service.ask("PUT", "/maps/odd", text % value, kind)[0] for value in ("NaN", "Infinity", "1e999", "9" * 5000)
    ]
    return counted(answers)


@attack("settings", "the costliest map that is allowed: 50 inputs, 2,000 rows; memory of the process that learns")
def costly(service: Served) -> str:
    names = [f"x{i}" for i in range(50)]
    assert service.ask("PUT", "/maps/costly", {"inputs": names, "target": "y"})[0] == 201
    table = {name: [((i * (k + 3)) % 97) / 97 for i in range(2000)] for k, name in enumerate([*names, "y"])}
    started, (writer,) = time.monotonic(), service.writer_ids
    with Ordinary(service) as ordinary:
        status, _ = service.ask("POST", "/maps/costly/rows?wait=learned", table)
        summary = service.summary("costly")
    memory = resident_megabytes(writer)
    assert service.ask("DELETE", "/maps/costly")[0] == 204
    seconds = time.monotonic() - started
    return f"{status} and {summary['rows_learned']:,} rows learned after {seconds:.0f} s, {memory:.0f} MB; {ordinary}"


@attack(
    "settings",
    "grids: 10^8 nodes, spacing 1e-300, a line of 2·10^7 nodes, places at 1e300, NaN, 60 `at`, an endless bbox",
)
def grids(service: Served) -> str:
    queries = ["width=10000&height=10000", "spacing=1e-300", "bbox=0,0,2e7,1&spacing=1", "bbox=nan,0,1,1",
               "bbox=0,0,1e300,1&width=5&height=5",
               "at=" + "&at=".join(f"east={i}" for i in range(60)), "bbox=" + "1," * 5000, "width=-1&height=0",
               "spacing=0", "spacing=inf",
               "width=99999999999999999999&height=2", "layer=__class__"]  # fmt: skip
    return with_memory(service, lambda: counted(service.ask("GET", f"/maps/lake/grid?{query}")[0] for query in queries))


@attack(
    "settings",
    "levels and places: NaN, inf, 0, 1, 1 - 10^-16, 10^-320, `1_0`; 1e308, 1e-320, true, null, 200,000 places",
)
def parameters(service: Served) -> str:
    levels = ["nan", "inf", "0", "1", "0.9999999999999999", "1e-320", "1_0", "-1", "", "1e400"]
    answers = [service.ask("POST", f"/maps/lake/predict?level={level}", PLACE)[0] for level in levels]
    for place in (1e308, 1e-320, True, None, "1", [1]):
        answers += [service.ask("POST", "/maps/lake/predict", {"east": [place], "north": [1.0]})[0]]
    answers.append(service.ask("POST", "/maps/lake/predict", {"east": [1.0] * 200_000, "north": [1.0] * 200_000})[0])
    return counted(answers)


@attack(
    "settings",
    "idempotency keys: empty, 201 characters, other alphabets, SQL, control characters; 2,000 different ones",
)
def keys(service: Served) -> str:
    assert service.ask("PUT", "/maps/keys", DEFINITION)[0] == 201
    row, kind = b"east,north,depth\n1,2,3\n", "Content-Type: text/csv\r\n"
    odd = ["", "x" * 201, "x" * 200, "é", "'; DROP TABLE keys; --", "\x01", "a\x00b", "%00", "../../x"]
    got = all_statuses(
        service, *(request("/maps/keys/rows", "POST", f"{kind}Idempotency-Key: {key}\r\n", row) for key in odd)
    )
    connection = service.connect()
    for number in range(2000):
        connection.request("POST", "/maps/keys/rows", row, {**CSV, "Idempotency-Key": f"key-{number}"})
        response = connection.getresponse()
        response.read()
        assert response.status == 202
    summary = service.summary("keys")
    assert service.ask("DELETE", "/maps/keys")[0] == 204
    return f"{got}; then {summary['rows_seen']:,} rows"


@attack("settings", "1,100 maps, with 1,024 open files allowed at first")
def many_maps(service: Served) -> str:
    connection, answers = service.connect(), []
    started = time.monotonic()
    for number in range(QUICK_MAPS if "--quick" in sys.argv else 1100):
        connection.request("PUT", f"/maps/many-{number}", json.dumps(DEFINITION), {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        answers.append(response.status)
    seconds = time.monotonic() - started
    started = time.monotonic()
    n_listed = len(json.loads(service.ask("GET", "/maps")[1]))
    listed = time.monotonic() - started
    memory = resident_megabytes(service.process_id)
    for number in range(len(answers)):
        connection.request("DELETE", f"/maps/many-{number}")
        connection.getresponse().read()
    return (
        f"{counted(answers)} in {seconds:.0f} s; {n_listed:,} listed in {1e3 * listed:.0f} ms; server {memory:.0f} MB"
    )


QUICK_MAPS = 60


# The table


def check_ordinary(service: Served, needs_token: bool) -> float:
    """Seconds of an ordinary prediction, which must be right."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if needs_token else {}
    started = time.perf_counter()
    status, body = service.ask("POST", "/maps/lake/predict", PLACE, headers)
    assert status == 200, (status, body)
    assert len(json.loads(body)["mean"]) == 1
    return time.perf_counter() - started


def run_all(attacks: list[Attack], *, needs_token: bool) -> list[str]:
    """Lines of the table."""
    lines: list[str] = []
    chosen = [each for each in attacks if each.needs_token == needs_token]
    if not chosen:
        return lines
    environment = {"WGPR_TOKEN": TOKEN} if needs_token else {}
    headers = {"Authorization": f"Bearer {TOKEN}"} if needs_token else {}
    with served("--writers", "1", environment=environment, open_files=1024) as service:
        assert service.ask("PUT", "/maps/lake", DEFINITION, headers)[0] == 201
        assert service.ask("POST", "/maps/lake/rows?wait=learned", ROWS, {**CSV, **headers})[0] == 200
        for each in track(chosen, description="attacks with a token" if needs_token else "attacks"):
            got = each.run(service)
            seconds = check_ordinary(service, needs_token)
            lines.append(f"| {each.what} | {got} | {1e3 * seconds:.0f} ms |")
            print(lines[-1])
        _check_log(service)
    return lines


def _check_log(service: Served) -> None:
    """No request may have met a fault, and the process that learns may not have died."""
    for line in service.log.read_text().splitlines():
        if line.startswith("{") and (event := json.loads(line)).get("level") in ("warning", "error"):
            if event["event"] != "uvicorn.error" or "Invalid HTTP" not in event.get("message", ""):
                print("log:", line[:2000])
            assert event.get("status") != 500, line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = sorted({each.group for each in ATTACKS})
    parser.add_argument("--only", default=";".join(groups), help="names of groups, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="without slow clients, and with fewer maps")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    chosen = set(arguments.only.split(";")) - ({"slow"} if arguments.quick else set())
    attacks = [each for each in ATTACKS if each.group in chosen]
    lines = ["| attack | what it got | a prediction afterwards |", "|---|---|---|"]
    for needs_token in (False, True):
        lines += run_all(attacks, needs_token=needs_token)
    table = "\n".join(lines) + "\n"
    print(table, f"load average {os.getloadavg()[0]:.1f}")
    if arguments.write:
        put_measured(PAGE, *MARKERS, table)


if __name__ == "__main__":
    main()
