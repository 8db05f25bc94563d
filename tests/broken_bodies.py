"""Bodies of rows that are surely broken, and a strict reader of its own that says so."""

import gzip
import json
import re
import zlib
from typing import NamedTuple

import numpy as np

CSV, LINES, COLUMNS = "text/csv", "application/x-ndjson", "application/json"


class Body(NamedTuple):
    """What is sent. way : how it was broken."""

    data: bytes
    kind: str
    encoding: str = ""
    way: str = ""

    @property
    def headers(self):
        encoding = {"Content-Encoding": self.encoding} if self.encoding else {}
        return {"Content-Type": self.kind, **encoding}


# Good bodies


def good_body(columns, rng):
    """A table of 1 to 20 rows in one of the three formats, half of them compressed."""
    rows = rng.uniform(0.0, 10.0, (rng.integers(1, 21), len(columns))).round(6).tolist()
    kind = str(rng.choice([CSV, LINES, COLUMNS]))
    data = WRITERS[kind](columns, rows).encode()
    return compressed(Body(data, kind)) if rng.random() < 0.5 else Body(data, kind)


def as_csv(columns, rows):
    return "".join(f"{','.join(map(str, row))}\n" for row in [columns, *rows])


def as_lines(columns, rows):
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


def as_columns(columns, rows):
    return json.dumps(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


WRITERS = {CSV: as_csv, LINES: as_lines, COLUMNS: as_columns}


def compressed(body):
    return body._replace(data=gzip.compress(body.data), encoding="gzip")


# Broken ones: each function takes columns and a source of randomness

WORDS = ["x", "nan", "NaN", "NA", "null", "None", "true", "1_000", "1e", "e5", "--1", "+-1", "1.2.3", "0x10", "1 2",
         "1;2", "½", "١٢", "\uff11", "1e999", "-1e999", "inf", "-Infinity", "1e101", "9" * 200, "", " ", "1f",
         "#REF!", "1'000",
         "2024-01-01", "12:30", "-", "+", ".", "1e+", "\u00a01x", "\x1b[0m"]  # fmt: skip
VALUES = ["null", "true", "false", '"1.5"', '""', "[]", "[1]", "{}", '{"x": 1}', "NaN", "Infinity", "-Infinity",
          "1e999",
          "-1e999", "1e101", "9" * 400, "9" * 5000, "01", "+1", "1.", ".5", "0x1", "1_0", "'1'", "undefined",
          "--1", "1e",
          "[" * 500 + "]" * 500, "[" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000, '"\\ud800"', "٣", ""]  # fmt: skip


def _table(columns, rng, n_most=20):
    return rng.uniform(0.0, 10.0, (rng.integers(1, n_most), len(columns))).round(6).tolist()


def bad_cell(columns, rng):
    rows = _table(columns, rng)
    rows[rng.integers(len(rows))][rng.integers(len(columns))] = rng.choice(WORDS)
    return Body(as_csv(columns, rows).encode(), CSV)


def bad_value(columns, rng):
    """A value of JSON lines or columns that is no number, or no JSON."""
    rows, mark = _table(columns, rng), 123456789.125
    rows[rng.integers(len(rows))][rng.integers(len(columns))] = mark
    kind = str(rng.choice([LINES, COLUMNS]))
    text = WRITERS[kind](columns, rows).replace(str(mark), VALUES[rng.integers(len(VALUES))])
    return Body(text.encode(), kind)


def wrong_width(columns, rng):
    rows = _table(columns, rng)
    row = rows[rng.integers(len(rows))]
    if rng.random() < 0.5:
        row.append(1.0)
    else:
        row.pop()
    return Body(as_csv(columns, rows).encode(), CSV)


def wrong_names(columns, rng):
    """A column that is missing, or there twice."""
    names = list(columns)
    place = rng.integers(len(names))
    names[place] = rng.choice([names[place - 1], names[place].upper(), "", "x", f"{names[place]}s", "\u0430"])
    kind = str(rng.choice([CSV, LINES, COLUMNS]))
    rows = _table(columns, rng)
    if kind == CSV:
        text = as_csv(names, rows)
    elif kind == LINES:
        text = "".join(_object(names, row) + "\n" for row in rows)
    else:
        text = _object(names, [list(column) for column in zip(*rows, strict=True)])
    return Body(text.encode(), kind)


def _object(names, values):
    """An object of JSON, which may have a name twice."""
    return f"{{{', '.join(f'{json.dumps(str(n))}: {json.dumps(v)}' for n, v in zip(names, values, strict=True))}}}"


def name_twice(columns, rng):
    """All columns are there, and one is there again."""
    rows, again = _table(columns, rng), str(rng.choice(columns))
    names = [*columns, again]
    rows = [[*row, 1.0] for row in rows]
    kind = str(rng.choice([CSV, LINES, COLUMNS]))
    if kind == CSV:
        text = as_csv(names, rows)
    elif kind == LINES:
        text = "".join(_object(names, row) + "\n" for row in rows)
    else:
        text = _object(names, [list(column) for column in zip(*rows, strict=True)])
    return Body(text.encode(), kind)


def unequal_columns(columns, rng):
    table = dict(zip(columns, map(list, zip(*_table(columns, rng), strict=True)), strict=True))
    column = table[rng.choice(columns)]
    column.extend([1.0] * rng.integers(1, 5))
    return Body(json.dumps(table).encode(), COLUMNS)


def wrong_structure(columns, rng):
    rows = _table(columns, rng, 4)
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    texts = [
        json.dumps(rows), json.dumps(objects), json.dumps({"rows": rows}),
        json.dumps(dict(zip(columns, rows[0], strict=True))),
        "[]", "{}", "null", "1", '"x"', "", "\n\n", "[" * 200_000, "{" * 1000, "]", "\x00", "{]",
        as_columns(columns, rows) * 2,
        as_columns(columns, rows) + ",", "// rows\n" + as_columns(columns, rows),
        as_columns(columns, rows).replace('"', "'"),
        json.dumps(dict.fromkeys(columns)), json.dumps({column: [] for column in columns}),
        json.dumps({column: {"0": 1.0} for column in columns}), as_csv(columns, rows),
    ]  # fmt: skip
    return Body(texts[rng.integers(len(texts))].encode(), COLUMNS)


def wrong_lines(columns, rng):
    rows = _table(columns, rng, 4)
    good = as_lines(columns, rows)
    texts = [
        json.dumps(rows), good.replace("}\n", "\n"), good.replace("\n", ""), good + good[:-3], good + "[]\n",
        good + "1\n", good + "null\n",
        good.replace("}", ",}"), good.replace('"', "'"), "{}\n", good + "{}\n", "", "\n", as_csv(columns, rows),
        as_columns(columns, rows),
        good + "}\n", "\x1e" + good, good.replace("\n", "\r"),
    ]  # fmt: skip
    return Body(texts[rng.integers(len(texts))].encode(), LINES)


def wrong_csv(columns, rng):
    rows = _table(columns, rng, 4)
    good = as_csv(columns, rows)
    texts = [
        "", "\n", ",".join(columns) + "\n", ",".join(columns), good.replace(",", ";"), good.replace(",", "\t"),
        good.replace(",", " "),
        good + '"', good + '1,"2,3\n', good + "1,2,3,4\n", good + "\x00", good.replace("\n", "\n\x00"),
        as_csv(columns, rows).partition("\n")[2],
        good + "a" * 200_000 + "\n", good + "," * 100_000 + "\n", good + '1,"2"x,3\n', as_lines(columns, rows),
        "\ufeff", "<html></html>",
        good + "# 1,2,3\n", good + "1,2,3 # note\n", "sep=,\n" + good,
    ]  # fmt: skip
    return Body(texts[rng.integers(len(texts))].encode(), CSV)


def other_encoding(columns, rng):
    """Text that is not UTF-8."""
    body = good_body(columns, rng)
    text = plain(body).decode()
    encodings = ["utf-16", "utf-16-le", "utf-32", "utf-32-be", "utf-7", "cp500"]
    encoding = str(rng.choice(encodings))
    data = text.replace("1", "é1").encode("latin-1") if encoding == "utf-7" else text.encode(encoding)
    return Body(data, body.kind)


def cut(columns, rng):
    """The end is missing, so that the last row is not whole."""
    body = good_body(columns, rng)
    data = plain(body)
    body = Body(data[: rng.integers(len(data))], body.kind)
    return compressed(body) if rng.random() < 0.3 else body


def flipped(columns, rng):
    """Some bytes are other ones."""
    body = good_body(columns, rng)
    data = bytearray(plain(body))
    for place in rng.integers(len(data), size=rng.integers(1, 4)):
        data[place] ^= 1 << rng.integers(8)
    return Body(bytes(data), body.kind)


def damaged_gzip(columns, rng):
    body = compressed(Body(plain(good := good_body(columns, rng)), good.kind))
    data = bytearray(body.data)
    way = rng.integers(6)
    if way == 0:
        data = data[: rng.integers(len(data))]
    elif way == 1:
        data[rng.integers(len(data) - 8, len(data))] ^= 1 << rng.integers(8)  # check sum and length
    elif way == 2:
        data += rng.bytes(rng.integers(1, 30))
    elif way == 3:
        data = bytearray(gzip.compress(bytes(data)))
    elif way == 4:
        data[rng.integers(10, len(data))] ^= 1 << rng.integers(8)
    else:
        data = bytearray(zlib.compress(plain(good)))
    return body._replace(data=bytes(data))


def wrong_headers(columns, rng):
    """A good body that is called something else."""
    body = good_body(columns, rng)
    way = rng.integers(4)
    if way == 0:
        return Body(plain(body), body.kind, encoding="gzip")
    if way == 1:
        return Body(plain(body), body.kind, encoding=str(rng.choice(["br", "deflate", "gzip, gzip", "x", "zstd"])))
    if way == 2:
        return Body(
            plain(body), str(rng.choice(["text/plain", "application/xml", "x", "", "text/csv2", "multipart/form-data"]))
        )
    return Body(gzip.compress(plain(body)), body.kind)


WAYS = [bad_cell, bad_value, wrong_width, wrong_names, name_twice, unequal_columns, wrong_structure, wrong_lines,
        wrong_csv,
        other_encoding, cut, flipped, damaged_gzip, wrong_headers]  # fmt: skip


def broken_body(columns, rng, way):
    """A body that the strict reader refuses. A change may be harmless by chance, and then another one is tried."""
    while True:
        body = way(columns, rng)
        if strictly_read(body, columns) is None:
            return body._replace(way=way.__name__)


# The strict reader: rows, or None if anything is wrong

_NUMBER = re.compile(r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*", flags=re.ASCII)
_CELL = re.compile(r'("(?:[^"]|"")*"|[^",\r\n]*)(,|\r\n|\n|\r|$)')
_LARGEST = 1e100


def plain(body):
    return gzip.decompress(body.data) if body.encoding == "gzip" else body.data


def strictly_read(body, columns):
    """The rows of a body; None if it is not a table with each of the columns once and only finite numbers."""
    try:
        if body.encoding not in ("", "gzip") or body.kind not in _READERS:
            return None
        data = plain(body)
        if body.encoding == "gzip":
            member = zlib.decompressobj(wbits=31)
            member.decompress(body.data)
            if member.unused_data:
                return None
        text = data.decode("utf-8")
        text = text.removeprefix("\ufeff")
        if "\0" in text:
            return None
        rows = np.array(_READERS[body.kind](text, columns), dtype=np.float64)
    except (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error, RecursionError, OverflowError, IndexError):
        return None
    is_table = rows.ndim == 2 and len(rows) and (np.abs(rows) <= _LARGEST).all()
    return rows if is_table else None


def _strict_csv(text, columns):
    records, cells, place = [], [], 0
    while place < len(text):
        found = _CELL.match(text, place)
        if found is None:
            raise ValueError("no cell")
        cells.append(found[1][1:-1].replace('""', '"') if found[1].startswith('"') else found[1])
        place = found.end()
        if found[2] != ",":
            records.append(cells)
            cells = []
        elif place == len(text):
            cells.append("")
            records.append(cells)
    records = [record for record in records if record != [""]]
    header = [name.strip() for name in records[0]]
    if any(header.count(column) != 1 for column in columns) or any(len(r) != len(header) for r in records):
        raise ValueError("wrong width")
    return [[_strict_number(record[header.index(column)]) for column in columns] for record in records[1:]]


def _strict_number(cell):
    if not _NUMBER.fullmatch(cell):
        raise ValueError("no number")
    return float(cell)


def _strict_lines(text, columns):
    return [_strict_row(_strict_json(line), columns) for line in text.split("\n") if line.strip()]


def _strict_columns(text, columns):
    table = _strict_json(text)
    lists = [table[column] for column in columns]
    if not all(type(each) is list for each in lists):
        raise ValueError("no lists")
    return [_strict_row(dict(zip(columns, row, strict=True)), columns) for row in zip(*lists, strict=True)]


def _strict_row(content, columns):
    row = [content[column] for column in columns]
    if not all(type(value) in (int, float) for value in row):
        raise ValueError("no numbers")
    return [float(value) for value in row]


def _strict_json(text):
    def refuse(name):
        raise ValueError(name)

    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name is there twice")
        return dict(pairs)

    content = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    if type(content) is not dict:
        raise ValueError("no object")
    return content


_READERS = {CSV: _strict_csv, LINES: _strict_lines, COLUMNS: _strict_columns}
