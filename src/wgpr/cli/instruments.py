"""`wgpr stream --nmea`: rows of an echo sounder, from a serial port, from the network, from a file or from a pipe."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from queue import Empty, Queue
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from wgpr.checks import require_module
from wgpr.cli.columns import column_of_log
from wgpr.cli.console import UsageError, inform
from wgpr.cli.lines import Line, read_piece
from wgpr.cli.session import Session
from wgpr.io.nmea import NmeaDecoder
from wgpr.io.tables import TableError
from wgpr.io.track import COLUMNS, Row

# Bytes of a piece, and when it was received if that is known.
Piece = tuple[bytes, float | None]

_CHUNK_BYTES = 1 << 16
_PATIENCE = 1.0  # seconds without data, after which the map may be saved
_BAUD = 4800  # of NMEA 0183
_MOST_WAITING, _MOST_TOGETHER = 100_000, 1000  # pieces
_LOCAL = "127.0.0.1"


def nmea_lines(session: Session, address: str) -> Iterator[list[Line]]:
    """Rows of an instrument as lines of a stream, in lists as they arrive; an empty list if nothing does.

    What is left out is counted, and told at the end.
    """
    positions = _positions(session)
    decoder = NmeaDecoder()
    try:
        with _opened(address, session) as arrivals:
            for pieces in chain(arrivals, [None]):
                rows = _rows(decoder, pieces)
                yield session.good_lines(
                    [Line([row[k] for k in positions], row.depth, number=row.line) for row in rows]
                )
        if not session.is_stopping and (lack := decoder.lack()):
            raise TableError(f"{session.left_out.place} {lack}; give a log with positions and depths")
    finally:
        for sentence in decoder.problems.sentences(session.left_out.place, "line"):
            inform(sentence)


def _positions(session: Session) -> list[int]:
    """For each input of a map its place in the columns of a log."""
    *inputs, target = session.columns
    found = [column_of_log(name) for name in inputs]
    if None in found or len(set(found)) < len(found):
        known = ", ".join(COLUMNS)
        raise UsageError(f"an NMEA log has {known}, and the map needs {', '.join(inputs)}; say which with --x")
    if column_of_log(target) != "depth":
        raise UsageError(f"an NMEA log has depths, and the map learns {target}; say --y depth if that is right")
    return [COLUMNS.index(str(name)) for name in found]


def _rows(decoder: NmeaDecoder, pieces: list[Piece] | None) -> list[Row]:
    """The rows of pieces that have arrived together; without pieces, at the end, those that waited for others."""
    if pieces is None:
        return decoder.finish()
    return [row for data, clock in pieces for row in decoder.feed(data, clock)]


@contextmanager
def _opened(address: str, session: Session) -> Iterator[Iterator[list[Piece]]]:
    """What comes from an address: `udp://HOST:PORT`, `serial:PORT?baud=4800`, a file, or - for standard input."""
    if address == "-":
        yield _of_file(sys.stdin.fileno(), session)
    elif address.startswith("udp:"):
        with _bound(address) as receiver:
            yield _received(lambda: _datagram(receiver), session)
    elif address.startswith("serial:"):
        with _serial_port(address) as port:
            inform(f"reading {address}; Ctrl-C ends it and saves the map")
            yield _received(lambda: port.read(max(1, port.in_waiting)), session)
    else:
        with open(address, "rb", opener=_open_at_once) as file:
            yield _of_file(file.fileno(), session)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file, also a named pipe that nobody writes to. It is `read_piece` that waits for the writer."""
    if sys.platform == "win32":
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _of_file(descriptor: int, session: Session) -> Iterator[list[Piece]]:
    while not session.is_stopping:
        try:
            piece = read_piece(descriptor, session.interruptions)
        except KeyboardInterrupt:  # what has arrived is still taken
            session.stop()
            return
        if not piece:
            return
        yield [(piece, None)]


def _received(read: Callable[[], bytes], session: Session) -> Iterator[list[Piece]]:
    """What arrives, with its times. A thread receives it, so that nothing is lost while rows are learned.

    When the session stops, what was received until then is the last.

    read : waits for the next piece; no bytes if none came for a while.
    """
    waiting: Queue[Piece | OSError] = Queue(_MOST_WAITING)

    def receive() -> None:
        try:
            while True:
                if data := read():
                    waiting.put((data, time.monotonic()))
        except (OSError, TypeError) as error:  # pyserial raises a TypeError once a port is closed
            waiting.put(OSError(str(error)))

    Thread(target=receive, daemon=True).start()
    while not session.is_stopping:
        arrived: list[Piece | OSError] = []
        with suppress(Empty):
            arrived.append(waiting.get(timeout=_PATIENCE))
            while len(arrived) < _MOST_TOGETHER:
                arrived.append(waiting.get_nowait())
        yield _pieces(arrived)
        if arrived and isinstance(arrived[-1], OSError):
            raise arrived[-1]
    yield _pieces([waiting.get_nowait() for _ in range(waiting.qsize())])


def _pieces(arrived: Iterable[Piece | OSError]) -> list[Piece]:
    return [piece for piece in arrived if not isinstance(piece, OSError)]


@contextmanager
def _bound(address: str) -> Iterator[socket.socket]:
    """A socket for datagrams. Without a host it takes only those of this computer."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or _LOCAL, parts.port
        if port is None:
            raise ValueError("no port")
    except ValueError as error:
        wanted = "--nmea udp://HOST:PORT needs a port, such as udp://:10110 for this computer"
        raise UsageError(f"{wanted} or udp://0.0.0.0:10110 for all; got {address!r}") from error
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        try:
            receiver.bind((host, port))
        except OSError as error:
            fault = f"--nmea cannot listen on {address} ({error.strerror or error})"
            raise UsageError(f"{fault}; choose another") from error
        receiver.settimeout(_PATIENCE)
        inform(f"listening on udp://{host}:{receiver.getsockname()[1]}; Ctrl-C ends it and saves the map")
        yield receiver


def _datagram(receiver: socket.socket) -> bytes:
    """The next datagram as whole lines."""
    with suppress(TimeoutError):
        return receiver.recv(_CHUNK_BYTES) + b"\n"
    return b""


def _serial_port(address: str) -> Any:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    baud = options.pop("baud", str(_BAUD))
    if not parts.path or options or not baud.isdecimal() or int(baud) == 0:
        raise UsageError(f"--nmea must be serial:PORT?baud=4800, such as serial:/dev/ttyUSB0; got {address!r}")
    serial = require_module("serial", "serial ports need pyserial", "nmea")
    try:
        return serial.Serial(parts.path, int(baud), timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise UsageError(f"--nmea cannot open {address} ({error}); check the name and the permission") from error
