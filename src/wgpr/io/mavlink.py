"""MAVLink telemetry logs (.tlog): depths of `WATER_DEPTH`, or of `DISTANCE_SENSOR` that looks down, with positions.

A log is a sequence of packets, each after its time of reception. pymavlink checks and decodes the packets. After damage
the next packet is searched for byte by byte.
"""

import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

from wgpr.checks import require_module
from wgpr.io.track import Depth, Fix, Problems, Reason, Row, Track

DAMAGED = Reason("part", "other than a packet with a right checksum")
UNKNOWN = Reason("packet", "of an unknown kind, so that its checksum cannot be checked")
UNHEALTHY = Reason("depth", "called wrong by the sensor itself, or out of its range")

_V1, _V2 = 0xFE, 0xFD
_LONGEST_PACKET = 8 + 280
_CHUNK_BYTES = 1 << 16
_DOWN = 25  # MAV_SENSOR_ROTATION_PITCH_270
_RESTART = 10.0  # seconds by which the clock of a vehicle goes back when it is started again
_DIALECT = "pymavlink.dialects.v20.ardupilotmega"  # that of ArduPilot has all messages
_WANTED = {"GLOBAL_POSITION_INT", "WATER_DEPTH", "DISTANCE_SENSOR"}


class _Vehicle:
    """The track of one vehicle. Its clock counts from its start; its first packet tells when that was."""

    def __init__(self, problems: Problems) -> None:
        self.track = Track(problems)
        self.has_positions = False
        self._start = self._last = 0.0

    def time(self, since_start: float, received: float) -> float:
        """Seconds from 1970. since_start : by the vehicle's clock; received : by that of the ground station."""
        if not self._start or since_start < self._last - _RESTART:
            self._start = received - since_start
        self._last = since_start
        return self._start + since_start


class MavlinkDecoder:
    """Makes rows of a log. problems : what was left out."""

    def __init__(self) -> None:
        self._dialect = require_module(_DIALECT, "MAVLink logs need pymavlink", "mavlink")
        self.problems = Problems()
        self._vehicles: dict[int, _Vehicle] = {}

    def read(self, file: BinaryIO) -> Iterator[Row]:
        """The rows of a log, as they are complete."""
        for number, (message, received) in enumerate(self._packets(file), start=1):
            if message.get_type() not in _WANTED:
                continue
            vehicle = self._vehicles.setdefault(message.get_srcSystem(), _Vehicle(self.problems))
            self._take(message, vehicle, vehicle.time(message.time_boot_ms / 1e3, received), number)
            yield from vehicle.track.take_rows()
        for vehicle in self._vehicles.values():
            vehicle.track.drop_waiting()

    def lack(self) -> str:
        """Why the log so far can have no rows, as of `NmeaDecoder`; this is not known."""
        return ""

    def _take(self, message: Any, vehicle: _Vehicle, time: float, number: int) -> None:
        kind = message.get_type()
        if kind == "GLOBAL_POSITION_INT":
            vehicle.has_positions = True
            vehicle.track.add_fix(Fix(time, message.lon / 1e7, message.lat / 1e7), number)
        elif kind == "WATER_DEPTH":
            if not vehicle.has_positions:
                vehicle.track.add_fix(Fix(time, message.lng / 1e7, message.lat / 1e7), number)
            if message.healthy:
                vehicle.track.add_depth(Depth(message.distance, number, time, rank=1))
            else:
                self.problems.add(UNHEALTHY, number)
        elif message.orientation == _DOWN:
            is_inside = message.min_distance <= message.current_distance <= message.max_distance
            if is_inside and message.signal_quality != 1:  # 1 is invalid, 0 is unknown
                vehicle.track.add_depth(Depth(message.current_distance / 100.0, number, time))
            else:
                self.problems.add(UNHEALTHY, number)

    def _packets(self, file: BinaryIO) -> Iterator[tuple[Any, float]]:
        """Messages with their times of reception. Damaged parts between them are counted."""
        parser = self._dialect.MAVLink(None)
        data, number, is_damaged, is_last = b"", 0, False, False
        while not is_last:
            piece = file.read(_CHUNK_BYTES)
            data, start, is_last = data + piece, 0, not piece
            while start < len(data) - (0 if is_last else 2 * _LONGEST_PACKET):
                size = _packet_size(data, start + 8)
                message = _decoded(parser, data[start + 8 : start + 8 + size]) if size else None
                is_unknown = message is not None and message.get_type().startswith("UNKNOWN")
                if message is None or (is_unknown and (is_damaged or not _follows(data, start + size))):
                    if not is_damaged:
                        self.problems.add(DAMAGED, number + 1)
                    is_damaged, start = True, start + 1
                    continue
                if is_unknown:
                    self.problems.add(UNKNOWN, number + 1)
                (microseconds,) = struct.unpack_from(">Q", data, start)
                yield message, microseconds / 1e6
                number, is_damaged, start = number + 1, False, start + 8 + size
            data = data[start:]


def _follows(data: bytes, end: int) -> bool:
    """Whether a packet begins behind one whose kind is unknown, so that its checksum cannot be checked."""
    return end + 16 >= len(data) or data[end + 16] in (_V1, _V2)


def _packet_size(data: bytes, start: int) -> int:
    """Bytes of the packet that begins at `start`; 0 if none does, or if its end is missing."""
    if len(data) < start + 8:
        return 0
    if data[start] == _V2:
        size = 12 + data[start + 1] + (13 if data[start + 2] & 1 else 0)
    else:
        size = 8 + data[start + 1] if data[start] == _V1 else 0
    return size if len(data) >= start + size else 0


def _decoded(parser: Any, packet: bytes) -> Any:
    """The message of a packet; None if its checksum or its contents are wrong."""
    try:
        return parser.decode(bytearray(packet))
    except Exception:  # pymavlink raises errors of many kinds for wrong bytes
        return None
