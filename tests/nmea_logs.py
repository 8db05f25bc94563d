"""NMEA logs of a boat over a known lake floor, whole or damaged in many ways."""

from collections import Counter
from datetime import UTC, datetime
from functools import reduce
from operator import xor

import numpy as np

from wgpr.io.nmea import EMPTY_DEPTH, NO_CHECKSUM, NO_SENSE, NO_SENTENCE, VOID, WRONG_CHECKSUM
from wgpr.io.track import CLOCK_BACK, JUMP, NO_BOTTOM, OUT_OF_RANGE

START = 1_718_000_000  # 2024-06-10 06:13:20 UTC
LONGITUDE, LATITUDE = -76.33, 44.56
DEGREES_NORTH, DEGREES_EAST = 1.0 / 111_132.0, 1.0 / (111_320.0 * np.cos(np.radians(LATITUDE)))
_LINE, _SPACING, _SPEED = 600.0, 30.0, 2.0
_SAFE = 60  # sentences at the beginning that stay as they are


def position(seconds):
    """Longitude and latitude after so many seconds: survey lines from west to east and back."""
    along, line = np.asarray(seconds) * _SPEED % (_LINE + _SPACING), np.asarray(seconds) * _SPEED // (_LINE + _SPACING)
    east = np.minimum(along, _LINE)
    east = np.where(line % 2 == 0, east, _LINE - east)
    north = _SPACING * line + np.maximum(0.0, along - _LINE)
    return LONGITUDE + east * DEGREES_EAST, LATITUDE + north * DEGREES_NORTH


def floor(longitude, latitude):
    """Depth in metres."""
    east, north = (longitude - LONGITUDE) / DEGREES_EAST, (latitude - LATITUDE) / DEGREES_NORTH
    return 12.0 + 4.0 * np.sin(east / 90.0) + 3.0 * np.cos(north / 70.0)


def sentence(text):
    return f"${text}*{reduce(xor, text.encode(), 0):02X}\r\n".encode()


def angle(degrees, n_digits, signs):
    minutes = abs(degrees) * 60.0
    whole = int(minutes // 60)
    return f"{whole:0{n_digits}d}{minutes - 60 * whole:09.6f},{signs[int(degrees < 0)]}"


def place(longitude, latitude):
    return f"{angle(latitude, 2, 'NS')},{angle(longitude, 3, 'EW')}"


def clock(seconds):
    moment = datetime.fromtimestamp(START + seconds, UTC)
    return f"{moment:%H%M%S}.{moment.microsecond // 10_000:02d}", f"{moment:%d%m%y}"


def gga(seconds, *, at=None, quality=1):
    return f"GPGGA,{clock(seconds)[0]},{place(*(at or position(seconds)))},{quality},08,0.9,120.1,M,-34.0,M,,"


def rmc(seconds, *, at=None, status="A"):
    time, date = clock(seconds)
    return f"GPRMC,{time},{status},{place(*(at or position(seconds)))},3.9,090.0,{date},,,A"


def gll(seconds, *, at=None, status="A"):
    return f"GPGLL,{place(*(at or position(seconds)))},{clock(seconds)[0]},{status},A"


def dpt(depth):
    return f"SDDPT,{depth},0.0"


def dbt(depth):
    return f"SDDBT,{3.28084 * depth:.1f},f,{depth:.2f},M,{0.546807 * depth:.1f},F"


def whole_log(n_sentences):
    """Sentences as (kind, seconds, text): each second a fix in several ways, and two depths in two ways."""
    found, second = [], 0
    while len(found) < n_sentences:
        found += [("GGA", second, gga(second)), ("RMC", second, rmc(second))]
        found += (
            [("GLL", second, gll(second))] if second % 5 == 0 else [("VTG", second, "GPVTG,90.0,T,,M,3.9,N,7.2,K,A")]
        )
        for part in (0.25, 0.75):
            depth = round(float(floor(*position(second + part))), 2)
            found += [("DPT", second + part, dpt(depth)), ("DBT", second + part, dbt(depth))]
        second += 1
    return found[:n_sentences]


# Kinds of damage: each makes the bytes of a damaged sentence, and says how it must be counted.


def _flip_digit(text, rng, kind, seconds):
    data = bytearray(sentence(text))
    digits = [place for place, byte in enumerate(data[: data.index(b"*")]) if 48 <= byte < 58 and place > 6]
    place = digits[rng.integers(len(digits))]
    data[place] = 48 + (data[place] - 48 + int(rng.integers(1, 10))) % 10
    return bytes(data), WRONG_CHECKSUM


def _other_checksum(text, rng, kind, seconds):
    data = sentence(text)
    wrong = int(data[-4:-2], 16) ^ int(rng.integers(1, 256))
    return data[:-4] + f"{wrong:02X}\r\n".encode(), WRONG_CHECKSUM


def _cut(text, rng, kind, seconds):
    return f"${text[: rng.integers(7, len(text))]}\r\n".encode(), NO_CHECKSUM


def _cut_with_its_end(text, rng, kind, seconds):
    return f"${text[: rng.integers(7, len(text))]}".encode(), NO_CHECKSUM


def _noise(text, rng, kind, seconds):
    data = bytes(rng.integers(128, 256, size=rng.integers(1, 80), dtype=np.uint8))
    return data + b"\r\n", NO_SENTENCE


def _zeros_inside(text, rng, kind, seconds):
    data, middle = sentence(text), len(text) // 2
    return data[:middle] + b"\0" + data[middle:], NO_SENTENCE


def _without_beginning(text, rng, kind, seconds):
    return sentence(text)[rng.integers(1, 5) :], NO_SENTENCE


def _very_long(text, rng, kind, seconds):
    return b"x" * 20_000 + b"\r\n", NO_SENTENCE


def _void(text, rng, kind, seconds):
    made = {"GGA": gga(seconds, quality=0), "RMC": rmc(seconds, status="V"), "GLL": gll(seconds, status="V")}
    return sentence(made[kind]), VOID


def _empty_position(text, rng, kind, seconds):
    return sentence(text.replace(place(*position(seconds)), ",,,")), VOID


def _clock_back(text, rng, kind, seconds):
    made = {"GGA": gga, "RMC": rmc, "GLL": gll}[kind]
    return sentence(made(seconds - int(rng.integers(60, 7200)), at=position(seconds))), CLOCK_BACK


def _jump(text, rng, kind, seconds):
    longitude, latitude = position(seconds)
    made = {"GGA": gga, "RMC": rmc, "GLL": gll}[kind]
    return sentence(made(seconds, at=(longitude, latitude + rng.choice([-1, 1]) * 1e5 * DEGREES_NORTH))), JUMP


def _beyond_the_pole(text, rng, kind, seconds):
    return sentence(text.replace(place(*position(seconds)), "9912.000000,N,07600.000000,W")), OUT_OF_RANGE


def _letters_as_position(text, rng, kind, seconds):
    return sentence(text.replace(place(*position(seconds)), "ABCD.EF,N,0XYZ.00,W")), NO_SENSE


def _empty_depth(text, rng, kind, seconds):
    return sentence("SDDPT,,0.0" if kind == "DPT" else "SDDBT,,f,,M,,F"), EMPTY_DEPTH


def _zero_depth(text, rng, kind, seconds):
    return sentence(dpt(0.0) if kind == "DPT" else dbt(0.0)), NO_BOTTOM


def _letters_as_depth(text, rng, kind, seconds):
    return sentence("SDDPT,deep,0.0" if kind == "DPT" else "SDDBT,,f,deep,M,,F"), NO_SENSE


DAMAGES = [
    _flip_digit, _other_checksum, _cut, _cut_with_its_end, _noise, _zeros_inside, _without_beginning, _very_long,
]  # fmt: skip
OF_FIXES = [_void, _empty_position, _clock_back, _jump, _beyond_the_pole, _letters_as_position]
OF_DEPTHS = [_empty_depth, _zero_depth, _letters_as_depth]


def damaged_log(n_sentences, share, seed=0):
    """Bytes of a log, how many of its sentences are damaged in a way that is counted for each reason, and the number
    of whole DPT sentences."""
    rng, log, reasons, n_depths = np.random.default_rng(seed), [], Counter(), 0
    whole = whole_log(n_sentences)
    chosen = set((_SAFE + rng.choice(n_sentences - _SAFE, int(share * n_sentences), replace=False)).tolist())
    for number, (kind, seconds, text) in enumerate(whole):
        if number not in chosen:
            log.append(sentence(text))
            n_depths += kind == "DPT"
            continue
        more = OF_FIXES if kind in ("GGA", "RMC", "GLL") else OF_DEPTHS if kind in ("DPT", "DBT") else []
        damages = [*DAMAGES, *more]
        if number + 1 in chosen:  # two damages would become one
            damages.remove(_cut_with_its_end)
        data, reason = damages[rng.integers(len(damages))](text, rng, kind, seconds)
        log.append(data)
        reasons[reason] += 1
    return b"".join(log), reasons, n_depths


def distance_from_floor(rows):
    """Of each row, how far its depth is from the floor at its position, in metres."""
    longitude, latitude, depth = np.array([row[:3] for row in rows]).T
    return np.abs(depth - floor(longitude, latitude))
