"""NMEA 0183: depths of an echo sounder (DPT, DBT, DBS) at the fixes of a receiver (GGA, RMC, GLL).

Each sentence has a checksum. A sentence without one is used only if no sentence of its kind has one. Times are those of
the fixes, in UTC. A depth has no time of its own: it is placed between two fixes by the times of reception, if these
are known (from a serial port, from the network, or from tag blocks in a log). Otherwise the depths between two fixes
are taken as evenly spaced in time.
"""

import re
from calendar import timegm
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, time
from functools import reduce
from operator import xor
from typing import Any, BinaryIO

from wgpr.checks import require_module
from wgpr.io.track import Depth, Fix, Problems, Reason, Row, Track

WRONG_CHECKSUM = Reason("sentence", "with a wrong checksum")
NO_CHECKSUM = Reason("sentence", "without a checksum")
NO_SENTENCE = Reason("line", "other than a NMEA sentence")
NO_SENSE = Reason("sentence", "with fields that make no sense")
VOID = Reason("fix", "called void by the receiver, or empty")
EMPTY_DEPTH = Reason("depth", "without a value")

_FIXES, _DEPTHS = {"GGA", "RMC", "GLL"}, {"DBT": 0, "DPT": 1, "DBS": 2}
_LONGEST_LINE = 4096
_CHUNK_BYTES = 1 << 16
_DAY = 86_400.0
_FEET, _FATHOMS = 0.3048, 1.8288

_LOOKS_LIKE = re.compile(rb"[\s\0]*(?:\\[^\\\r\n]*\\)?[$!][A-Z]{2}[A-Z0-9]{2,5},")
_FIELDS = r"([A-Z][A-Z0-9]{3,7}),([^*\x00-\x1f\x7f\ufffd]*)"
_SENTENCE = re.compile(rf"{_FIELDS}\*([0-9A-Fa-f]{{2}})")
_WITHOUT_CHECKSUM = re.compile(_FIELDS)
_TAG_BLOCK = re.compile(r"\\([^\\]*)\\")
_TAG_TIME = re.compile(r"(?:^|,)c:(\d{9,14})(?:[,*]|$)")
_OF_LOGGER = re.compile(r"[\d\s:.,;TZ/+\-\[\]()|]*")  # times that a logger writes beside a sentence
_WRONG = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


def looks_like_nmea(head: bytes) -> bool:
    """Whether a file that begins so is a log of NMEA sentences."""
    return _LOOKS_LIKE.match(head) is not None


class NmeaDecoder:
    """Makes rows of bytes. problems : what was left out."""

    def __init__(self) -> None:
        self._parse = require_module("pynmea2", "NMEA needs pynmea2", "nmea").parse
        self.problems = Problems()
        self._is_first = self._is_empty = True
        self._has_fixes = self._has_depths = False
        self._splitter = LineSplitter()
        self._track = Track(self.problems)
        self._with_checksum: set[str] = set()  # kinds of sentences
        self._day: int | None = None  # of the last fix, from 1970

    def read(self, file: BinaryIO) -> Iterator[Row]:
        """The rows of a log, as they are complete."""
        while piece := file.read(_CHUNK_BYTES):
            yield from self.feed(piece)
        yield from self.finish()

    def feed(self, piece: bytes, clock: float | None = None) -> list[Row]:
        """Take the next bytes, and give the rows that are complete. clock : seconds when they were received, if known.

        Bytes that were not received at a known time are of a log, whose beginning tells its habits.
        """
        if self._is_first and clock is None:
            self._learn_habits(piece)
        self._is_first = False
        for number, line in self._splitter.split(piece):
            self._read_line(line, number, clock)
        return self._track.take_rows()

    def finish(self) -> list[Row]:
        """The log has ended."""
        for number, line in self._splitter.finish():
            self._read_line(line, number, None)
        self._track.drop_waiting()
        return self._track.take_rows()

    def _learn_habits(self, head: bytes) -> None:
        """Find out from the beginning of a log which kinds of sentences have checksums, and the first date."""
        first = None  # seconds of the day
        for found in _SENTENCE.finditer(head.decode("ascii", errors="replace")):
            kind, fields, checksum = found.groups()
            if int(checksum, 16) != _checksum(f"{kind},{fields}"):
                continue
            self._with_checksum.add(kind[-3:])
            if kind[-3:] in _FIXES and self._day is None:
                with suppress(*_WRONG):
                    fix = self._parse(f"{kind},{fields}")
                    seconds = _seconds_of_day(fix.timestamp)
                    first = seconds if first is None else first
                    if kind.endswith("RMC"):
                        self._day = _days(fix.datestamp) - (first > seconds)  # midnight may be between them

    def lack(self) -> str:
        """What the log so far lacks for rows, as a predicate; empty if it has positions and depths."""
        if self._is_empty:
            return "is empty"
        missing = [] if self._has_fixes else ["position (GGA, RMC or GLL)"]
        missing += [] if self._has_depths else ["depth sentence (DPT, DBT or DBS)"]
        return f"has no {' and no '.join(missing)}" if missing else ""

    def _read_line(self, line: bytes, number: int, clock: float | None) -> None:
        text = line.strip(b" \t\r\n\0").decode("ascii", errors="replace")
        if not text or text.startswith("#"):
            return
        self._is_empty = False
        if tags := _TAG_BLOCK.match(text):
            text = text[tags.end() :]
            if found := _TAG_TIME.search(tags[1]):
                clock = int(found[1]) / (1e3 if len(found[1]) > 10 else 1.0)  # seconds or milliseconds
        before, *sentences = re.split(r"[$!]", text)
        if not _OF_LOGGER.fullmatch(before) or not sentences:
            self.problems.add(NO_SENTENCE, number)
        for sentence in sentences:
            self._read_sentence(sentence, number, clock)

    def _read_sentence(self, text: str, number: int, clock: float | None) -> None:
        name = text.partition(",")[0][-3:]
        self._has_fixes, self._has_depths = self._has_fixes or name in _FIXES, self._has_depths or name in _DEPTHS
        if (found := _SENTENCE.match(text)) and _OF_LOGGER.fullmatch(text, found.end()):
            kind, fields, checksum = found.groups()
            if int(checksum, 16) != _checksum(f"{kind},{fields}"):
                self.problems.add(WRONG_CHECKSUM, number)
                return
            self._with_checksum.add(kind[-3:])
        elif (found := _WITHOUT_CHECKSUM.fullmatch(text)) and found[1][-3:] not in self._with_checksum:
            kind, fields = found.groups()
        else:
            is_cut = _WITHOUT_CHECKSUM.fullmatch(text) is not None
            self.problems.add(NO_CHECKSUM if is_cut else NO_SENTENCE, number)
            return
        try:
            if kind[-3:] in _FIXES:
                self._take_fix(kind[-3:], self._parse(f"{kind},{fields}"), number, clock)
            elif kind[-3:] in _DEPTHS:
                self._take_depth(kind[-3:], self._parse(f"{kind},{fields}"), number, clock)
        except _WRONG:
            self.problems.add(NO_SENSE, number)

    # Fixes

    def _take_fix(self, kind: str, sentence: Any, number: int, clock: float | None) -> None:
        if _is_void(kind, sentence):
            self.problems.add(VOID, number)
            return
        if sentence.lat_dir not in ("N", "S") or sentence.lon_dir not in ("E", "W"):
            raise ValueError("no direction")
        seconds = _seconds_of_day(sentence.timestamp)
        day = _days(sentence.datestamp) if kind == "RMC" else self._day
        last = self._track.last
        if day is not None and self._day is None:
            self._track.shift(_DAY * day)
            self._day, last = day, self._track.last
        moment = _DAY * (day or 0) + seconds
        if kind != "RMC" and last is not None:  # a day ends before the date is written
            moment += _DAY * round((last.time - moment) / _DAY)
        fix = Fix(moment, sentence.longitude, sentence.latitude, clock)
        if self._track.add_fix(fix, number) and self._day is not None:
            self._day = int(moment // _DAY)

    # Depths

    def _take_depth(self, kind: str, sentence: Any, number: int, clock: float | None) -> None:
        depth = _below_surface(sentence) if kind == "DPT" else _in_metres(sentence.data)
        if depth is None:
            self.problems.add(EMPTY_DEPTH, number)
        else:
            self._track.add_depth(Depth(depth, number, clock=clock, rank=_DEPTHS[kind]))


def _checksum(text: str) -> int:
    return reduce(xor, text.encode("ascii", errors="replace"), 0)


def _is_void(kind: str, sentence: Any) -> bool:
    is_empty = not (sentence.lat and sentence.lon and sentence.timestamp)
    if kind == "GGA":
        return is_empty or str(sentence.gps_qual) in ("0", "None", "")
    return is_empty or (sentence.status or "A") != "A"  # old GLL sentences have no status


def _seconds_of_day(clock: Any) -> float:
    if not isinstance(clock, time):
        raise ValueError("no time")
    return 3600.0 * clock.hour + 60.0 * clock.minute + clock.second + 1e-6 * clock.microsecond


def _days(day: Any) -> int:
    if not isinstance(day, date):
        raise ValueError("no date")
    return timegm(day.timetuple()) // int(_DAY)


def _below_surface(sentence: Any) -> float | None:
    """Of a DPT sentence: metres below the transducer, and its depth below the surface if that is given.

    An offset below zero is that of the keel, and is not applied.
    """
    depth, *others = sentence.data
    offset = others[0] if others else ""
    return None if depth == "" else float(depth) + max(0.0, float(offset or 0.0))


def _in_metres(fields: list[str]) -> float | None:
    """Of a DBT or DBS sentence, which has feet, metres and fathoms, each with its letter; None if all are empty."""
    units = {"M": 1.0, "f": _FEET, "F": _FATHOMS}
    values = {unit: value for value, unit in zip(fields[::2], fields[1::2], strict=False) if value != ""}
    for unit, factor in units.items():
        if unit in values:
            return factor * float(values[unit])
    return None


# Lines


class LineSplitter:
    """Splits bytes into lines that end with any mark, and numbers them from 1. A line that is too long is cut."""

    def __init__(self) -> None:
        self._rest, self._n_lines = b"", 0

    def split(self, piece: bytes) -> list[tuple[int, bytes]]:
        """The lines that are complete after another piece."""
        data = self._rest + piece
        held = b"\r" if data.endswith(b"\r") else b""  # a line feed may follow
        data = data[: len(data) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        self._rest = rest[: _LONGEST_LINE + 1] + held
        first, self._n_lines = self._n_lines + 1, self._n_lines + len(lines)
        return [(number, line[: _LONGEST_LINE + 1]) for number, line in enumerate(lines, start=first)]

    def finish(self) -> list[tuple[int, bytes]]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [(self._n_lines + 1, rest)] if rest else []
