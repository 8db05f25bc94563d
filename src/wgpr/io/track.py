"""Depths of one instrument at the positions of another: both come in one log, at times of their own.

A `Track` takes fixes and depths in their order. A depth gets its position when the next fix is there, by linear
interpolation in time. What cannot be right is counted by its reason, and gives no row. Memory is bounded.
"""

from math import cos, hypot, isfinite, radians
from typing import NamedTuple

from wgpr.labels import format_count

COLUMNS = ("longitude", "latitude", "depth", "time")

# Seconds between two fixes beyond which nothing is interpolated.
MAX_GAP = 10.0
# The greatest plausible distance of two fixes: metres for each second between them, and metres of scatter.
_MAX_SPEED, _SCATTER = 60.0, 50.0
# So many fixes in a row that agree with each other are believed, although they do not agree with those before.
_N_BELIEVED = 10
# Depths that wait for the next fix.
_MOST_WAITING = 10_000
_DEEPEST = 12_000.0
_METRES_PER_DEGREE = 111_320.0


class Reason(NamedTuple):
    """Why something is left out: `noun` is counted, `fault` follows it."""

    noun: str
    fault: str


OUT_OF_RANGE = Reason("fix", "at a position that does not exist")
CLOCK_BACK = Reason("fix", "with a clock that goes back")
JUMP = Reason("fix", "with a jump that no vehicle makes")
NO_FIX = Reason("depth", f"without a fix before and after it, at most {MAX_GAP:g} s apart")
NO_BOTTOM = Reason("depth", f"of zero, or beyond {_DEEPEST:,.0f} m")


class Problems:
    """How often something was left out, by reason. counts : number and first line of each."""

    def __init__(self) -> None:
        self.counts: dict[Reason, tuple[int, int]] = {}

    def add(self, reason: Reason, line: int) -> None:
        number, first = self.counts.get(reason, (0, line))
        self.counts[reason] = number + 1, first

    def sentences(self, place: str, row: str) -> list[str]:
        """One for each reason. place : the file; row : what a number counts in it."""
        return [
            f"{place}: left out {format_count(number, reason.noun)} {reason.fault} (first: {row} {first})"
            for reason, (number, first) in self.counts.items()
        ]


class Fix(NamedTuple):
    """A position in degrees at a time in seconds. clock : when it was received, by another clock; None if unknown."""

    time: float
    longitude: float
    latitude: float
    clock: float | None = None


class Depth(NamedTuple):
    """A depth in metres, not yet at a place. time : by the clock of the fixes, None if unknown; clock : as of `Fix`.

    rank : if an instrument writes the same depth in several ways, the highest is used.
    """

    depth: float
    line: int
    time: float | None = None
    clock: float | None = None
    rank: int = 0


class Row(NamedTuple):
    """A depth with its position, in degrees, and its time."""

    longitude: float
    latitude: float
    depth: float
    time: float
    line: int


class Track:
    """Takes fixes and depths in the order of a log; `take_rows` gives depths with positions.

    last : fix that was believed, None before the first.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.last: Fix | None = None
        self._doubtful: Fix | None = None  # the last of those that do not agree with `last`
        self._n_doubtful = 0
        self._waiting: list[Depth] = []
        self._rows: list[Row] = []
        self._rank = 0

    def shift(self, seconds: float) -> None:
        """Add seconds to the time of what came before, once the date is known."""
        if self.last is not None:
            self.last = self.last._replace(time=self.last.time + seconds)

    def add_fix(self, fix: Fix, line: int) -> bool:
        """Take the next fix. Returns whether it is believed."""
        is_place = isfinite(fix.time) and abs(fix.latitude) <= 90.0 and abs(fix.longitude) <= 180.0  # false for NaN
        if not is_place or fix.latitude == fix.longitude == 0.0:  # receivers without a fix write zeros
            self.problems.add(OUT_OF_RANGE, line)
            return False
        if self.last is None or (fault := _fault(self.last, fix)) is None:
            self._believe(fix)
            return True
        self.problems.add(fault, line)
        is_consistent = self._doubtful is not None and _fault(self._doubtful, fix) is None
        if not is_consistent or self._doubtful is None or fix.time > self._doubtful.time:
            self._n_doubtful = self._n_doubtful + 1 if is_consistent else 1
            self._doubtful = fix
        if self._n_doubtful < _N_BELIEVED:
            return False
        self.drop_waiting()
        self.last = None
        self._believe(fix)
        return True

    def add_depth(self, depth: Depth) -> None:
        """Take the next depth."""
        if not 0.0 < depth.depth < _DEEPEST:
            self.problems.add(NO_BOTTOM, depth.line)
            return
        if depth.rank < self._rank:
            return
        if depth.rank > self._rank:
            self._rank = depth.rank
            self._waiting = []  # the same depth, or worse
        self._waiting.append(depth)
        if len(self._waiting) > _MOST_WAITING:
            self.drop_waiting()

    def take_rows(self) -> list[Row]:
        """The rows since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def _believe(self, fix: Fix) -> None:
        before, self._doubtful, self._n_doubtful = self.last, None, 0
        if before is not None and fix.time == before.time:  # the same fix in another sentence
            return
        self.last = fix
        if before is None or fix.time - before.time > MAX_GAP:
            self.drop_waiting()
            return
        waiting, self._waiting = self._waiting, []
        for number, depth in enumerate(waiting):
            part = _fraction(depth, before, fix, (number + 0.5) / len(waiting))
            if part > 1.0:
                self._waiting.append(depth)
            elif part < 0.0:
                self.problems.add(NO_FIX, depth.line)
            else:
                self._rows.append(_interpolated(before, fix, part, depth))

    def drop_waiting(self) -> None:
        """Count the depths that get no position: a new track begins, or no more fixes will come."""
        for depth in self._waiting:
            self.problems.add(NO_FIX, depth.line)
        self._waiting = []


def _fault(before: Fix, fix: Fix) -> Reason | None:
    """Why a fix cannot follow another one; None if it can."""
    seconds = fix.time - before.time
    if seconds < 0.0:
        return CLOCK_BACK
    return JUMP if distance(before, fix) > _MAX_SPEED * seconds + _SCATTER else None


def distance(first: Fix, second: Fix) -> float:
    """Metres between two fixes, to about 1 %. It overestimates long distances."""
    north = second.latitude - first.latitude
    east = _degrees_east(first, second) * cos(radians(0.5 * (first.latitude + second.latitude)))
    return _METRES_PER_DEGREE * hypot(east, north)


def _degrees_east(first: Fix, second: Fix) -> float:
    return (second.longitude - first.longitude + 180.0) % 360.0 - 180.0


def _fraction(depth: Depth, before: Fix, after: Fix, even: float) -> float:
    """Where in time a depth is between two fixes: 0 at the first, 1 at the second.

    even : where it is if the depths between two fixes are evenly spaced, for a log without times of depths.
    """
    if depth.time is not None:
        return (depth.time - before.time) / (after.time - before.time)
    if depth.clock is None or before.clock is None or after.clock is None or not before.clock < after.clock:
        return even
    return min(1.0, max(0.0, (depth.clock - before.clock) / (after.clock - before.clock)))


def _interpolated(before: Fix, after: Fix, part: float, depth: Depth) -> Row:
    longitude = before.longitude + part * _degrees_east(before, after)
    longitude -= 360.0 * round(longitude / 360.0) if abs(longitude) > 180.0 else 0.0
    latitude = before.latitude + part * (after.latitude - before.latitude)
    return Row(longitude, latitude, depth.depth, before.time + part * (after.time - before.time), depth.line)
