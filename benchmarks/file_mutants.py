"""Ways to make a hostile file of a good one. Each takes bytes and a source of randomness, and returns bytes."""

import gzip
import io
import json
import re
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import cache, reduce
from operator import xor
from pathlib import Path
from typing import Any

import numpy as np

from damage import extended, flipped_bit, forged_array, forged_header, overwritten, truncated
from wgpr.io import container, journal

Random = np.random.Generator
Way = Callable[[bytes, Random], bytes]

_DEEP = [text * n for n in (50, 900, 990, 100_000) for text in ("[", "{")]
NUMBERS = ["1e308", "-1e308", "1e-320", "1e999", "1" + "0" * 400, "9" * 5000, "NaN", "nan", "-Infinity", "inf", "0",
           "-1", "1e100", "2147483648", "1000000000", "9223372036854775808", "0x10", "1_0", "1e", "--1", "1,5",
           ""]  # fmt: skip
WORDS = ["../../etc/passwd", "/dev/zero", "a/b", "..", "\0", "\ufeff", "\x1b[2J", "\u202e", "x" * 100_000, '"', '"' * 3,
         "'", "#", "$", "*", "\\", "%s%n", "{}", "[]", "<html>", "\r", "\n\n", ";", "\t", "Point", "EPSG:0", "é",
         "9" * 100_000 + "x"]  # fmt: skip
VALUES = [*(f'"{word}"' for word in ("", "x", "../../x", "NaN", "\\ud800", "\\u0000", "Polygon", "WGPRegressor")),
          *("null", "true", "[]", "[[]]", "[null]", "{}", '{"object": "eval"}', '{"array": [[1], [2, 3]]}', "[1, 2]"),
          *(number for number in NUMBERS[:16] if number not in ("nan", "inf")), "[" + "0," * 99_999 + "0]",
          *(f"{opened}{opened.translate(str.maketrans('[{', ']}'))}" for opened in _DEEP[::2]), _DEEP[-2]]  # fmt: skip
_BEGINNINGS = [b"\x1f\x8b\x08\0", b"PK\x03\x04", b"PAR1", b"SQLite format 3\0", b"\xff\xfe", b"\xfe\xff",
               b"\xef\xbb\xbf", b"{", b"$GPGGA,", b"\xfd", b"\0" * 100]  # fmt: skip
_ENCODINGS = ["utf-16", "utf-16-le", "utf-32", "utf-32-be", "utf-8-sig", "cp500", "utf-7"]
_ARRAY_KINDS = ["|O", "<U1000000000", "<U9", "|V10", ">f8", "<c16", "<M8[s]", "|b1", "<f2", "<i8", "|S0", "(9,9)<f8"]


def _one(choices: Any, rng: Random) -> Any:
    return choices[rng.integers(len(choices))]


# Any bytes


def extreme_integer(data: bytes, rng: Random) -> bytes:
    """A length or a count is huge or negative."""
    size, start = _one([1, 2, 4, 8], rng), rng.integers(max(1, len(data)))
    number = _one([0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1], rng)
    return data[:start] + number.to_bytes(size, _one(["little", "big"], rng)) + data[start + size :]


def zeros(data: bytes, rng: Random) -> bytes:
    start = rng.integers(len(data) + 1)
    return data[:start] + bytes(int(rng.integers(1, 100))) + data[start:]


def moved_block(data: bytes, rng: Random) -> bytes:
    """A block is there again at another place."""
    start, stop, place = sorted(rng.integers(len(data) + 1, size=3).tolist())
    return data[:place] + data[start:stop] + data[place:]


def other_beginning(data: bytes, rng: Random) -> bytes:
    beginning = _one(_BEGINNINGS, rng)
    return beginning + data[_one([0, len(beginning)], rng) :]


def damaged_end(data: bytes, rng: Random) -> bytes:
    """Bits of the last part are flipped, where Parquet and ZIP have their tables of contents."""
    start = max(0, len(data) - 700)
    return data[:start] + _repeatedly([flipped_bit, extreme_integer], data[start:], rng)


def several(data: bytes, rng: Random) -> bytes:
    return _repeatedly([flipped_bit, overwritten, extreme_integer, zeros, moved_block], data, rng)


def _repeatedly(ways: list[Way], data: bytes, rng: Random) -> bytes:
    for _ in range(rng.integers(1, 5)):
        data = _one(ways, rng)(data, rng) if data else data
    return data


BYTES = [flipped_bit, truncated, extended, overwritten, extreme_integer, zeros, moved_block, other_beginning, several]


# Text


def other_encoding(data: bytes, rng: Random) -> bytes:
    text = data.decode("utf-8", errors="replace")
    encoding = _one([*_ENCODINGS, "latin-1"], rng)
    return text.replace("1", "é", 3).encode(encoding, errors="replace")


def strange_number(data: bytes, rng: Random) -> bytes:
    return _replaced(data, rb"[-+]?\d+(?:\.\d+)?", _one(NUMBERS, rng).encode(), rng)


def strange_word(data: bytes, rng: Random) -> bytes:
    return _replaced(data, rb"[^,;\t\n]+|[,;\t\n]", _one(WORDS, rng).encode(), rng)


def _replaced(data: bytes, pattern: bytes, new: bytes, rng: Random) -> bytes:
    places = [found.span() for found in re.finditer(pattern, data)]
    if not places:
        return data + new
    start, end = _one(places, rng)
    return data[:start] + new + data[end:]


def other_mark(data: bytes, rng: Random) -> bytes:
    """All of one mark become another."""
    marks = [bytes([byte]) for byte in b',;:\t "\n\r{}[]$*.']
    return data.replace(_one(marks, rng), _one([*marks, b"", b"\r\n"], rng))


def long_line(data: bytes, rng: Random) -> bytes:
    start = rng.integers(len(data) + 1)
    return data[:start] + _one([b"x", b"1,", b"9", b'"', b" ", b"\n", b'"\n', b"\\"], rng) * 200_000 + data[start:]


def other_lines(data: bytes, rng: Random) -> bytes:
    """A line is missing, there twice or at another place."""
    lines = data.splitlines(keepends=True)
    line = lines.pop(rng.integers(len(lines)))
    return b"".join(lines[: (k := rng.integers(len(lines) + 1))] + [line] * int(rng.integers(3)) + lines[k:])


TEXT = [*BYTES, other_encoding, strange_number, strange_word, other_mark, long_line, other_lines]


# JSON


def other_json(data: bytes, rng: Random) -> bytes:
    """A value is missing, another one, there twice, or has another name."""
    return altered_json(data.decode(), rng).encode(errors="replace")


def huge_column(data: bytes, rng: Random) -> bytes:
    """Names of columns that are numbers, one of them huge."""
    return b'{"1": 0, "2": 1, "99999999999": 2}\n1,2,3\n' + data


def other_json_line(data: bytes, rng: Random) -> bytes:
    lines = data.splitlines()
    place = rng.integers(len(lines))
    way = other_json if lines[place].startswith(b"{") else strange_word
    lines[place] = way(lines[place], rng)
    return b"\n".join(lines) + b"\n"


def many_lists(data: bytes, rng: Random) -> bytes:
    return b'{"features": [' + b"[]," * 20_000_000 + b"0]}"


def altered_json(text: str, rng: Random) -> str:
    content = json.loads(text)
    mark = "@mark@"
    parent, key = _one(_places(content), rng)
    way = rng.integers(5)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, dict):
        parent[_one([*parent, "x", "..", ""], rng)] = parent.pop(key)
    elif way == 2 and isinstance(parent, dict):
        parent[mark] = _one(list(parent.values()), rng)
        return json.dumps(content).replace(f'"{mark}"', json.dumps(key))
    else:
        parent[key] = mark
    return json.dumps(content).replace(f'"{mark}"', _one(VALUES, rng))


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Each value below the top, as what holds it and its name or number there."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    found = [(content, key) for key, _ in pairs]
    return found + [place for parent, key in found for place in _places(parent[key])]


# Map files


def lying_head(data: bytes, rng: Random) -> bytes:
    """The table of arrays of safetensors has other types, shapes or places."""
    n_head = int.from_bytes(data[:8], "little")
    head = altered_json(data[8 : 8 + n_head].decode(), rng).encode(errors="replace")
    return len(head).to_bytes(8, "little") + head + data[8 + n_head :]


def forged_value(data: bytes, rng: Random) -> bytes:
    """A value of the header is another one, and the check sum is right."""
    contents = container.decode(data)
    return _sealed(contents, altered_json(json.dumps(contents.header), rng))


def forged_numbers(data: bytes, rng: Random) -> bytes:
    """One number of an array, or all, are extreme, and the check sum is right."""
    contents = container.decode(data)
    array = contents.arrays[name := _one(sorted(contents.arrays), rng)].copy()
    known = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
    extremes = [known.max, known.min, 0, 1] + (
        [known.tiny, np.nan, np.inf, -1.0, 1e-30] if array.dtype.kind == "f" else []
    )
    array.flat[slice(None) if rng.random() < 0.3 else rng.integers(array.size) if array.size else slice(0)] = _one(
        extremes, rng
    )
    return container.encode(contents._replace(arrays={**contents.arrays, name: array}))


def _sealed(contents: container.Contents, header: str) -> bytes:
    version = contents.version
    text = f"{version} {container._digest(version, header, contents.arrays)} {header}"
    return container.save_tensors(contents.arrays, {container.FORMAT: text})


def huge_head(data: bytes, rng: Random) -> bytes:
    """60 MB of empty lists in the table of arrays."""
    head = b'{"x":[' + b"[]," * 20_000_000 + b"0]}"
    return len(head).to_bytes(8, "little") + head + data


MAPS = [*BYTES, lying_head, forged_value, forged_numbers, forged_header, forged_array]


# Files in files


def inside_zlib(ways: list[Way]) -> Way:
    return lambda data, rng: zlib.compress(_one(ways, rng)(zlib.decompress(data), rng))


def inside_gzip(ways: list[Way]) -> Way:
    return lambda data, rng: gzip.compress(_one(ways, rng)(data, rng), 1, mtime=0)


@cache
def _deflated(character: bytes, n_megabytes: int) -> tuple[bytes, int]:
    """A raw deflate stream of one character again and again, and its CRC."""
    block, crc = character * 2**20, 0
    packer = zlib.compressobj(wbits=-15)
    first = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    packer = zlib.compressobj(wbits=-15)
    for _ in range(n_megabytes):
        crc = zlib.crc32(block, crc)
    return first * n_megabytes + packer.flush(), crc


def zlib_bomb(data: bytes, rng: Random) -> bytes:
    return b"\x78\x9c" + _deflated(b"\0", 2000)[0]


def gzip_bomb(n_megabytes: int) -> Way:
    """A single line."""

    def bomb(data: bytes, rng: Random) -> bytes:
        stream, crc = _deflated(b"1", n_megabytes)
        return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + stream + struct.pack("<II", crc, n_megabytes * 2**20)

    return bomb


def zip_bomb(data: bytes, rng: Random) -> bytes:
    """An array of 2 GB of zeros."""
    n_numbers = 2000 * 2**17
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (n_numbers,)})
        for _ in range(2000):
            member.write(bytes(2**20))
    return file.getvalue()


# NPZ


def other_member(data: bytes, rng: Random) -> bytes:
    """An array has other bytes or another name; the check sums of the archive are right."""
    file, way = io.BytesIO(), _one([*BYTES, lying_array], rng)
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        content = members.pop(chosen := _one(sorted(members), rng))
        if rng.random() < 0.1:
            members[_one(WORDS, rng)[:60_000].partition("\0")[0] or "-"] = content  # zipfile writes no empty name
        else:
            members[chosen] = way(content, rng)
        for name, content in members.items():
            new.writestr(name, content)
    return file.getvalue()


def lying_array(data: bytes, rng: Random) -> bytes:
    """The header of an array has another shape or type."""
    n_head = int.from_bytes(data[8:10], "little")
    head = data[10 : 10 + n_head].strip()
    if rng.random() < 0.5:
        head = re.sub(rb"'descr': '[^']*'", f"'descr': '{_one(_ARRAY_KINDS, rng)}'".encode(), head)
    else:
        head = _replaced(
            head, rb"\d+(?=[,)])", _one([*NUMBERS, "(" * 90, "-5", "10**9", "2, 10"], rng).encode()[:1000], rng
        )
    return data[:8] + struct.pack("<H", len(head) + 1) + head + b"\n" + data[10 + n_head :]


# Parquet


def odd_columns(data: bytes, rng: Random) -> bytes:
    """A column of another type, a name that is there twice, or hostile metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    n = table.num_rows
    odd = [pa.nulls(n), pa.array([[1.0]] * n), pa.array([{"a": 1}] * n), pa.array(["x"] * n), pa.array([b"\xff"] * n),
           pa.array([2**63 - 1] * n), pa.array([None, True] * (n // 2)), pa.array(np.full(n, "2024-01-01", "M8[D]")),
           pa.array([1.0, np.nan] * (n // 2)), pa.array(["1.5"] * n).dictionary_encode(),
           pa.array([np.inf] * n)]  # fmt: skip
    place = int(rng.integers(table.num_columns))
    table = table.set_column(place, _one([*table.column_names, "", "..", "\0"], rng), _one(odd, rng))
    geo = '{"primary_column": "g", "columns": {"g": {"crs": {"a": @}}}}'.replace("@", _one(VALUES, rng))
    file = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"geo": geo.encode(errors="replace"), "crs": _one(WORDS, rng)}), file)
    return file.getvalue()


# Logs of instruments


def forged_sentence(data: bytes, rng: Random) -> bytes:
    """A field of a sentence is another one, and the check sum is right."""
    lines = data.splitlines()
    place = rng.integers(len(lines))
    fields = lines[place][1:].partition(b"*")[0].split(b",")
    fields[rng.integers(len(fields))] = _one([*NUMBERS, *WORDS, "999999.99", "240000", "9999.99"], rng).encode()
    text = b",".join(fields)
    lines[place] = b"$%b*%02X" % (text, reduce(xor, text, 0))
    return b"\r\n".join(lines)


def forged_packet(data: bytes, rng: Random) -> bytes:
    """A packet with extreme values and a right check sum, after an extreme time."""
    from pymavlink.dialects.v20 import ardupilotmega as mavlink

    kind = _one([mavlink.MAVLink_global_position_int_message, mavlink.MAVLink_water_depth_message], rng)
    ranges = {
        "f": [np.nan, np.inf, 1e38, -1.0, 5.0],
        "I": [0, 2**32 - 1],
        "i": [2**31 - 1, -(2**31), 0],
        "h": [-1],
        "H": [0],
        "B": [1],
    }
    codes = dict(zip(kind.ordered_fieldnames, kind.native_format[1:].decode(), strict=True))
    message = kind(*(_one(ranges[codes[name]], rng) for name in kind.fieldnames))
    moment = struct.pack(">Q", _one([0, 1, 2**63, 2**64 - 1, 1_718_000_000_000_000], rng))
    packet = moment + message.pack(mavlink.MAVLink(None, srcSystem=1))
    place = rng.integers(len(data) + 1)
    return data[:place] + packet * int(rng.integers(1, 20)) + data[place:]


def false_starts(data: bytes, rng: Random) -> bytes:
    """Each byte looks like the beginning of a packet."""
    return data + _one([b"\xfe", b"\xfd", b"\xfe\x09", b"\xfd\xff\0\0\0\1\1\0\0\0"], rng) * 100_000


# Journals


def forged_journal(data: bytes, rng: Random) -> bytes:
    """A value of the database is another one, and the CRC of its record is right."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        Path(file.name).write_bytes(data)
        with closing(sqlite3.connect(file.name)) as connection, connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            _one([_forge_about, _forge_record, _forge_head], rng)(connection, rng)
        return Path(file.name).read_bytes()


def _forge_about(connection: sqlite3.Connection, rng: Random) -> None:
    ((text,),) = connection.execute("SELECT text FROM about").fetchall()
    text = altered_json(text, rng)
    connection.execute("UPDATE about SET text = ?, crc = ?", (text, journal._crc(text)))


def _forge_record(connection: sqlite3.Connection, rng: Random) -> None:
    first, n_columns, rows = _one(connection.execute("SELECT first, n_columns, rows FROM records").fetchall(), rng)
    numbers = np.frombuffer(rows, dtype="<f8").copy()
    numbers[rng.integers(len(numbers))] = _one([np.nan, np.inf, 1e308, 1e-320, -1e100], rng)
    values = _one([(first, n_columns, numbers.tobytes()), (first, _one([0, -1, 1, 2**62, 2, "x", 2.5], rng), rows),
                   (first, n_columns, rows[:-8]), (first, n_columns, b""),
                   (first, n_columns, "text")], rng)  # fmt: skip
    connection.execute(
        "UPDATE records SET n_columns = ?, rows = ?, crc = ? WHERE first = ?",
        (*values[1:], journal._crc(*values), first),
    )


def _forge_head(connection: sqlite3.Connection, rng: Random) -> None:
    n_rows = _one([-1, 0, 10**9, 2**63 - 1, "x", 1.5], rng)
    connection.execute("UPDATE head SET n_rows = ?, crc = ?", (n_rows, journal._crc("head", n_rows)))
    if rng.random() < 0.5:
        connection.execute("DELETE FROM records")
