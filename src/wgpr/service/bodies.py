"""What requests and answers hold: parameters, and tables as CSV, lines of JSON, or JSON columns.

A table is good as a whole or refused.
"""

import csv
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import numpy as np
from fastapi import Path, Query
from numpy.typing import NDArray

from wgpr.estimators.base import LARGEST, LEAST_WEIGHT
from wgpr.gp.linalg import Array
from wgpr.io.grids import fixed_from_pairs
from wgpr.io.sources import number
from wgpr.service.definition import NAME
from wgpr.service.errors import ServiceError

CSV, LINES, COLUMNS = "text/csv", "application/x-ndjson", "application/json"
# Values of a body. In memory, each takes ten times as much as its text.
_MOST_VALUES = 5_000_000
_ALIASES = {"application/ndjson": LINES, "application/jsonl": LINES, "application/csv": CSV}


NOT_CHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "As before."}}

Name = Annotated[str, Path(pattern=NAME, description="Name of the map.")]
At = Annotated[list[str], Query(max_length=50, description="NAME=VALUE of inputs that do not vary.")]


def binary(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """How OpenAPI describes an answer of bytes, of one of these media types."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}}}


def fixed_values(names: Sequence[str], pairs: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Values by column, from NAME=VALUE pairs. names : of all inputs."""
    try:
        fixed = fixed_from_pairs(names, pairs)
    except ValueError as error:
        raise ServiceError(422, str(error)) from error
    if not all(abs(value) <= LARGEST for value in fixed.values()):
        raise ServiceError(422, f"at must have finite numbers below {LARGEST:g}")
    return tuple(sorted(fixed.items()))


def decompressed(data: bytes, encoding: str, most: int) -> bytes:
    """The body without gzip. One that becomes larger than `most` bytes is refused before it is."""
    if encoding in ("", "identity"):
        return data
    if encoding != "gzip":
        raise ServiceError(415, "the body may be compressed by gzip only; leave out other content encodings")
    member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # one member: millions of empty ones take long
    try:
        plain = member.decompress(data, most + 1)
    except zlib.error as error:
        raise _not_gzip() from error
    if len(plain) > most:
        raise ServiceError(413, f"the body has more than {most:,} bytes; send it in parts")
    if not member.eof or member.unused_data:
        raise _not_gzip()
    return plain


def _not_gzip() -> ServiceError:
    return ServiceError(400, "the body is not one whole gzip stream; send it again")


def table_format(content_type: str) -> str:
    """Which of the three formats a content type stands for."""
    kind = content_type.partition(";")[0].strip().lower()
    kind = _ALIASES.get(kind, kind)
    if kind not in _READERS:
        raise ServiceError(415, f"the content type must be {CSV}, {LINES} or {COLUMNS}")
    return kind


def read_table(data: bytes, kind: str, columns: Sequence[str], most: int) -> tuple[Array, list[int]]:
    """Values (n, k) of k `columns`, and the line of each row. Other columns are ignored; `most` rows are allowed."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ServiceError(400, f"byte {error.start} of the body is not UTF-8; send text in UTF-8") from error
    if "\0" in text:
        raise ServiceError(400, "the body has a NUL character; send text in UTF-8")
    if max(text.count(","), text.count("["), text.count("{")) > _MOST_VALUES:
        raise ServiceError(413, f"the body has more than {_MOST_VALUES:,} values; send it in parts")
    if not text.strip():
        raise ServiceError(422, "the body is empty; send at least one row")
    rows: list[list[float]] = []
    lines: list[int] = []
    for line, cells in _READERS[kind](text, columns):
        if len(rows) == most:
            raise ServiceError(413, f"the body has more than {most:,} rows; send it in parts")
        rows.append([_number(cell, line, column) for cell, column in zip(cells, columns, strict=True)])
        lines.append(line)
    if not rows:
        raise ServiceError(422, "the body has no rows; send at least one")
    values = np.array(rows)
    bad = np.argwhere(~(np.abs(values) <= LARGEST))  # true for NaN
    if len(bad):
        row, column = bad[0].tolist()
        refuse(lines[row], columns[column], f"{values[row, column]:g} is not a finite number below {LARGEST:g}")
    return values, lines


def _number(cell: Any, line: int, column: str) -> float:
    """The number of a cell, as a reader gives it."""
    if type(cell) is int:
        with suppress(OverflowError):
            cell = float(cell)
    if type(cell) is not float:
        shown = "the value is missing" if cell in ("", None) else f"{str(cell)[:40]!r} is not a number"
        refuse(line, column, shown)
    return cell


def check_weights(weights: Array, lines: Sequence[int], name: str) -> None:
    bad = np.flatnonzero((weights < LEAST_WEIGHT) | (weights > 1.0 / LEAST_WEIGHT))
    if len(bad):
        allowed = f"between {LEAST_WEIGHT:g} and {1.0 / LEAST_WEIGHT:g}"
        refuse(lines[bad[0]], name, f"{weights[bad[0]]:g} is no weight, which is {allowed}")


def write_table(kind: str, names: Sequence[str], columns: Sequence[NDArray[Any]]) -> str:
    """Columns (n,) in the format of the request."""
    lists = [column.tolist() for column in columns]
    if kind == COLUMNS:
        return json.dumps(dict(zip(names, lists, strict=True)), allow_nan=False)
    rows = zip(*lists, strict=True)
    if kind == LINES:
        return "".join(f"{json.dumps(dict(zip(names, row, strict=True)), allow_nan=False)}\n" for row in rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return file.getvalue()


def refuse(line: int, column: str, fault: str, remedy: str = "correct it and send all rows again") -> NoReturn:
    raise ServiceError(422, f"line {line}, column {column!r}: {fault}; {remedy}", line=line, column=column)


# Readers give the line of each row, and its cells: a number, or what stands in its place.


def _read_csv(text: str, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    """The first line has the names."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        positions = [_position(header, column) for column in columns]
        line = reader.line_num + 1
        for row in reader:
            if row:
                if len(row) != len(header):
                    detail = f"line {line} has {len(row)} cells and the first line {len(header)}; correct it"
                    raise ServiceError(422, detail, line=line)
                yield line, [_from_text(row[position]) for position in positions]
            line = reader.line_num + 1
    except csv.Error as error:
        line = reader.line_num
        raise ServiceError(422, f"line {line} is not CSV ({error}); correct it", line=line) from error


def _from_text(cell: str) -> float | str:
    value = number(cell, ".")
    return cell if value is None or value != value else value


def _position(header: Sequence[str], column: str) -> int:
    if header.count(column) != 1:
        how_often = "twice" if column in header else "not"
        detail = f"column {column!r} is {how_often} in the first line; name each column once there"
        raise ServiceError(422, detail, line=1)
    return header.index(column)


def _read_lines(text: str, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    """Each line is an object of JSON."""
    for line, row in enumerate(text.split("\n"), start=1):
        if not row.strip():
            continue
        content = _json(row, f"line {line}", line=line)
        if not isinstance(content, dict):
            raise ServiceError(422, f"line {line} must be an object such as {{{columns[0]!r}: 1.0}}", line=line)
        yield line, [content.get(column) for column in columns]


def _read_columns(text: str, columns: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
    """An object of JSON with a list of numbers for each column. "Lines" are then places in these lists, from 1."""
    content = _json(text, "the body")
    if not isinstance(content, dict):
        raise ServiceError(422, f"the body must be an object of lists such as {{{columns[0]!r}: [1.0, 2.0]}}")
    for column in columns:
        if not isinstance(content.get(column), list):
            raise ServiceError(422, f"column {column!r} is missing or no list; give a list of numbers for each column")
    lists = [content[column] for column in columns]
    if len({*map(len, lists)}) > 1:
        raise ServiceError(422, "the lists must be equally long; give a number for each row in each column")
    for line, cells in enumerate(zip(*lists, strict=True), start=1):
        yield line, list(cells)


def _json(text: str, what: str, **more: Any) -> Any:
    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ServiceError(422, f"{what} is not JSON ({str(error)[:100]}); correct it", **more) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. If a name is there twice, it is not known which value counts."""
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name is there twice")
    return content


_READERS: dict[str, Callable[[str, Sequence[str]], Iterator[tuple[int, list[Any]]]]] = {
    CSV: _read_csv,
    LINES: _read_lines,
    COLUMNS: _read_columns,
}


def acceptable(accept: str, offered: Iterable[str]) -> str:
    """The offered media type that the client likes best; the first one if it does not care."""
    offered, wishes = list(offered), dict[str, float]()
    for part in (accept or "*/*").split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        text = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        with suppress(ValueError):
            wishes[kind.lower()] = float(text)
    for kind in sorted(wishes, key=lambda kind: -wishes[kind]):
        for each in offered:
            is_meant = kind in ("*/*", each, f"{each.partition('/')[0]}/*")
            if is_meant and wishes[kind] > 0 and wishes.get(each, 1.0) > 0:
                return each
    raise ServiceError(406, f"the answer can be {', '.join(offered)}; name one of them in Accept")
