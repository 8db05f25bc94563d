"""MAVLink telemetry logs, made with pymavlink: depths with positions, damage."""

import io
import struct

import numpy as np
import pytest

import nmea_logs as logs
from wgpr import load
from wgpr.io.mavlink import DAMAGED, UNHEALTHY, UNKNOWN, MavlinkDecoder
from wgpr.io.tables import Table
from wgpr.io.track import JUMP, NO_FIX

mavlink = pytest.importorskip("pymavlink.dialects.v20.ardupilotmega", reason='needs pip install "wgpr[mavlink]"')


class Link:
    """Packets of a vehicle with the number 1."""

    def __init__(self):
        self.sender = mavlink.MAVLink(None, srcSystem=1)

    def packed(self, seconds, message):
        return struct.pack(">Q", int(1e6 * (logs.START + seconds))) + message.pack(self.sender)

    def position(self, seconds, at=None):
        longitude, latitude = at or logs.position(seconds)
        fields = int(1000 * (100 + seconds)), round(1e7 * float(latitude)), round(1e7 * float(longitude))
        return self.packed(seconds, mavlink.MAVLink_global_position_int_message(*fields, 0, 0, 0, 0, 0, 0))

    def sonar(self, seconds, metres, orientation=25, quality=0):
        fields = int(1000 * (100 + seconds)), 20, 10_000, round(100 * metres), 2, 0, orientation, 0
        return self.packed(seconds, mavlink.MAVLink_distance_sensor_message(*fields, signal_quality=quality))

    def water_depth(self, seconds, metres, healthy=1, at=(0.0, 0.0)):
        place = round(1e7 * at[1]), round(1e7 * at[0])
        fields = int(1000 * (100 + seconds)), 0, healthy, *place, 0, 0, 0, 0, metres, 15.0
        return self.packed(seconds, mavlink.MAVLink_water_depth_message(*fields))

    def heartbeat(self, seconds):
        return self.packed(seconds, mavlink.MAVLink_heartbeat_message(11, 3, 0, 0, 4, 3))


def whole_log(n_seconds):
    """Packets of a log: each second a heartbeat, a position and two depths."""
    link, found = Link(), []
    for second in range(n_seconds):
        found += [link.heartbeat(second), link.position(second)]
        for part in (0.3, 0.8):
            found.append(link.sonar(second + part, float(logs.floor(*logs.position(second + part)))))
    return found


def decoded(*packets):
    decoder = MavlinkDecoder()
    rows = list(decoder.read(io.BytesIO(b"".join(packets))))
    return rows, {reason: number for reason, (number, _) in decoder.problems.counts.items()}


def test_depths_get_positions_by_the_clock_of_the_vehicle():
    rows, left_out = decoded(*whole_log(60))
    assert len(rows) == 118
    assert left_out == {NO_FIX: 2}
    assert logs.distance_from_floor(rows).max() < 0.02
    np.testing.assert_allclose(rows[0].time, logs.START + 0.3)


def test_water_depth_is_preferred_and_may_bring_its_own_position():
    link = Link()
    both = [link.position(0), link.sonar(0.2, 5.0), link.water_depth(0.2, 6.0), link.sonar(0.4, 5.0), link.position(1)]
    assert [row.depth for row in decoded(*both)[0]] == [6.0]
    alone = [link.water_depth(k, 6.0 + k, at=logs.position(k)) for k in range(3)]
    rows, _ = decoded(*alone)
    assert [row.depth for row in rows] == [6.0, 7.0]
    np.testing.assert_allclose(rows[1][:2], logs.position(1), rtol=0, atol=1e-7)


def test_what_a_sensor_calls_wrong_is_left_out():
    link = Link()
    wrong = [link.water_depth(0.2, 6.0, healthy=0), link.sonar(0.3, 5.0, quality=1), link.sonar(0.3, 0.1)]
    aside = [link.sonar(0.5, 5.0, orientation=0)]  # looks ahead
    rows, left_out = decoded(link.position(0), *wrong, *aside, link.sonar(0.5, 7.0), link.position(1))
    assert [row.depth for row in rows] == [7.0]
    assert left_out == {UNHEALTHY: 3}


def test_a_jump_is_left_out():
    link = Link()
    rows, left_out = decoded(
        link.position(0), link.position(1, at=(-75.0, 45.0)), link.sonar(1.5, 5.0), link.position(2)
    )
    assert len(rows) == 1
    assert left_out == {JUMP: 1}


def test_a_vehicle_that_is_started_again_goes_on():
    link = Link()
    first = [link.position(0), link.sonar(0.5, 5.0), link.position(1)]
    reset = Link()
    again = [
        reset.packed(
            500 + k,
            mavlink.MAVLink_global_position_int_message(
                1000 * k, *(round(1e7 * float(a)) for a in logs.position(1)[::-1]), 0, 0, 0, 0, 0, 0
            ),
        )
        for k in range(2)
    ]
    rows, left_out = decoded(*first, *again)
    assert len(rows) == 1
    assert left_out == {}


def test_damaged_packets_are_counted_and_not_learned():
    rng, packets = np.random.default_rng(0), whole_log(400)
    damaged = sorted(rng.choice(np.arange(40, len(packets), 3), 60, replace=False).tolist())
    for number in damaged:
        packet = bytearray(packets[number])
        packet[rng.integers(8, len(packet))] ^= int(rng.integers(1, 256))
        packets[number] = bytes(packet)
    rows, left_out = decoded(*packets)
    assert left_out[DAMAGED] + left_out[UNKNOWN] == 60
    assert left_out[NO_FIX] == 2
    assert logs.distance_from_floor(rows).max() < 0.02


def test_noise_and_a_cut_end_raise_no_error():
    rng, packets = np.random.default_rng(1), whole_log(60)
    noise = rng.integers(0, 256, size=5000, dtype=np.uint8).tobytes()
    rows, left_out = decoded(*packets[:60], noise, *packets[60:-1], packets[-1][:-3])
    assert 100 < len(rows) <= 118
    assert left_out[DAMAGED] >= 2
    assert logs.distance_from_floor(rows).max() < 0.02
    assert decoded(noise)[0] == []
    assert decoded(b"")[0] == []


def test_fit_learns_a_telemetry_log(wgpr, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packets = whole_log(60)
    packets[100] = packets[100][:-1] + b"\x00"
    (tmp_path / "boat.tlog").write_bytes(b"".join(packets))
    assert Table(["boat.tlog"]).names == ("longitude", "latitude", "depth")
    code, _, told = wgpr("fit", "boat.tlog", "-o", "lake.map", "-s", "random_state=0")
    assert code == 0
    assert "boat.tlog: left out 1 part other than a packet with a right checksum (first: packet 101)" in told
    assert load("lake.map").n_samples_seen_ >= 116
