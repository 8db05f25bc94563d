"""Numbers out of text: comma, tab and blank separated values, a block of lines at a time.

Most blocks are plain: no quotes, no comments, and numbers wherever numbers are wanted. NumPy parses those. Anything
unusual sends a block to a reader that goes record by record and knows the line of each; both give the same values.
"""

import codecs
import csv
import gzip
import io
import re
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from math import inf, nan
from typing import Any, BinaryIO, Literal

import numpy as np

from wgpr.gp.linalg import Array

Decimal = Literal[".", ","]
Rows = tuple[Sequence[int], Array]
_Record = tuple[int, list[str]]

_SEPARATORS = ("\t", ";", ",", "|", " ")
_MISSING = frozenset({"", "na", "n/a", "nan", "+nan", "-nan", "null", "--"})
_INFINITE = frozenset({"inf", "infinity", "+inf", "+infinity", "-inf", "-infinity"})
_NUMBER: dict[Decimal, re.Pattern[str]] = {
    ".": re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"),
    ",": re.compile(r"[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:[eE][+-]?[0-9]+)?"),
}
_ORDINARY = re.compile(r"[-+.0-9eE]*")

_SAMPLE_LINES = 200
_SAMPLE_CHARACTERS = 100_000
_BLOCK_CHARACTERS = 4_000_000
_DAMAGE = (OSError, EOFError, ValueError, LookupError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)


class TableError(ValueError):
    """A table that cannot be used; the message is one sentence that says where, what, and what to do about it."""


@dataclass(frozen=True)
class TableFormat:
    """How a table is written; what is None is found out.

    separator : between cells, " " for any number of blanks.
    decimal : "." or ",".
    header : whether the first row has the names.
    missing : what becomes of a row with an empty cell, NA, N/A, nan, null or --: "error" or "skip".
    """

    separator: str | None = None
    decimal: Decimal | None = None
    header: bool | None = None
    missing: Literal["error", "skip"] = "error"

    def __post_init__(self) -> None:
        if self.header not in (None, True, False):
            raise TableError(f"header must be true or false, got {self.header!r}")
        if self.separator is not None and not re.fullmatch(r'[^"#\r\n]', str(self.separator)):
            raise TableError(f"separator must be one character such as ',' or ';' or a tab, got {self.separator!r}")
        if self.decimal not in (None, ".", ","):
            raise TableError(f"decimal must be '.' or ',', got {self.decimal!r}")
        if self.missing not in ("error", "skip"):
            raise TableError(f"missing must be 'error' or 'skip', got {self.missing!r}")


def name_for_messages(path: str) -> str:
    """What a user calls a file."""
    return "standard input" if path == "-" else path


@contextmanager
def damage_as_table_error(file: str) -> Iterator[None]:
    """Whatever goes wrong while a file is opened or decoded is told as one sentence about the file."""
    try:
        yield
    except TableError:
        raise
    except PermissionError as error:
        raise TableError(f"{file} may not be read; ask for permission to read it") from error
    except _DAMAGE as error:
        raise TableError(f"{file} is damaged, or not of the kind that its name says; check how it was made") from error


@dataclass(frozen=True)
class _Layout:
    """What the first lines of a file tell about the others.

    n_lines : lines before the first row of values; longest_line : of those that were looked at.
    """

    separator: str
    decimal: Decimal
    has_header: bool
    names: tuple[str, ...]
    n_lines: int
    longest_line: int

    @classmethod
    def of(cls, sample: list[str], n_ignored: int, format: TableFormat, file: str) -> "_Layout":
        """The layout of a text that begins with `n_ignored` comments and then `sample`."""
        separator = format.separator or _likely_separator(sample, format.decimal)
        decimal = format.decimal or _likely_decimal(sample, separator)
        lines = _Lines(sample, iter(()), n_ignored, file)
        _, cells = next(_records(lines, separator))
        has_header = _is_header(cells, decimal) if format.header is None else format.header
        names = tuple(cell.strip() if has_header else f"x{k}" for k, cell in enumerate(cells, start=1))
        n_lines = lines.number if has_header else n_ignored
        return cls(separator, decimal, has_header, names, n_lines, max(map(len, sample)))


class CsvTable:
    """A text file that is read once, from its beginning to its end.

    names : of all its columns; n_default : how many of them to use if none are chosen, which is all.
    """

    def __init__(self, path: str, format: TableFormat) -> None:
        self.file = name_for_messages(path)
        with damage_as_table_error(self.file):
            self._raw = _CountedFile(_opened(path), is_shared=path == "-")
            try:
                self._begin(format)
            except BaseException:
                self._raw.close()
                raise
        self.names = self._layout.names
        self.n_default = len(self.names)

    def _begin(self, format: TableFormat) -> None:
        self._stream = _decoded(self._raw)
        n_ignored, sample = _sample(self._stream)
        if not sample:
            raise TableError(f"{self.file} is empty; give a file with at least one row")
        self._layout = _Layout.of(sample, n_ignored, format, self.file)
        self._n_lines = self._layout.n_lines
        self._lines = chain(sample[self._n_lines - n_ignored :], self._stream)

    @property
    def bytes_read(self) -> int:
        """How far the reading is; of a compressed file these are the compressed bytes."""
        return self._raw.n_bytes

    def close(self) -> None:
        """Let go of the file; standard input stays open."""
        self._stream.close()
        self._raw.close()  # which the reader of a compressed file leaves open

    def place(self, line: int, position: int) -> str:
        """Where a cell is, as an editor or a spreadsheet shows it."""
        column = repr(self.names[position]) if self._layout.has_header else position + 1
        return f"{self.file}, line {line}, column {column}"

    def rows(self, positions: Sequence[int], n_rows: int) -> Iterator[Rows]:
        """Lines (n,) and values (n, k) of the columns at `positions`, `n_rows` lines at a time, NaN if missing."""
        # Long lines come in smaller blocks, so that thousands of unused columns need no memory.
        n_lines = min(n_rows, 1 + _BLOCK_CHARACTERS // self._layout.longest_line)
        with damage_as_table_error(self.file):
            while block := list(islice(self._lines, n_lines)):
                yield self._plain_rows(block, positions) or self._unusual_rows(block, positions)

    def _plain_rows(self, block: list[str], positions: Sequence[int]) -> Rows | None:
        """None if there is anything unusual in the block."""
        values = self._plain_values(block, positions) if self._is_plain(block) else None
        if values is None or not np.isfinite(values).all():
            return None
        first_line = self._n_lines + 1
        self._n_lines += len(block)
        return range(first_line, first_line + len(block)), values

    def _plain_values(self, block: list[str], positions: Sequence[int]) -> Array | None:
        lines = block if self._layout.decimal == "." else [line.replace(",", ".") for line in block]
        delimiter = None if self._layout.separator == " " else self._layout.separator
        try:
            return np.loadtxt(lines, delimiter=delimiter, comments=None, usecols=positions, ndmin=2)
        except ValueError:
            return None

    def _is_plain(self, block: list[str]) -> bool:
        text = "\n" + "".join(block)
        return not any(mark in text for mark in self._unusual_marks()) and self._is_rectangular(block)

    def _unusual_marks(self) -> Iterator[str]:
        """What may not be in a block for NumPy to see the same numbers in it; beside commas a point is no mark."""
        yield from ('"', "#", "\0", "\n\n")
        if self._layout.decimal == ",":
            yield from ".," if self._layout.separator == "," else "."

    def _is_rectangular(self, block: list[str]) -> bool:
        separator, width = self._layout.separator, len(self.names)
        if separator == " ":
            return all(len(line.split()) == width for line in block)
        return all(line.count(separator) == width - 1 for line in block)

    def _unusual_rows(self, block: list[str], positions: Sequence[int]) -> Rows:
        """A record that begins in the block and has quoted line breaks may end behind it."""
        lines = _Lines(block, self._lines, self._n_lines, self.file)
        records = list(_records(lines, self._layout.separator))
        self._check_widths(records)
        self._n_lines = lines.number
        return [line for line, _ in records], np.column_stack([self._column(records, k) for k in positions])

    def _check_widths(self, records: list[_Record]) -> None:
        for line, cells in records:
            if len(cells) != len(self.names):
                what = f"the number of cells is {len(cells)}, and {len(self.names)} in the first row"
                raise TableError(f"{self.file}, line {line}: {what}; correct the line or choose another --separator")

    def _column(self, records: list[_Record], position: int) -> Array:
        """(n,): all at once if there are ordinary numbers only, which is the same and faster."""
        cells = [row[position] for _, row in records]
        if self._layout.decimal == "." and _ORDINARY.fullmatch("".join(cells)):
            with suppress(ValueError):
                return np.array([float(cell) for cell in cells])
        return np.array([self._value(row[position], line, position) for line, row in records])

    def _value(self, cell: str, line: int, position: int) -> float:
        try:
            return _number(cell, self._layout.decimal)
        except ValueError as error:
            other: Decimal = "," if self._layout.decimal == "." else "."
            advice = f"use --decimal {other}" if _NUMBER[other].fullmatch(cell.strip()) else "choose another column"
            shown = repr(cell if len(cell) <= 40 else cell[:40] + "...")
            place = self.place(line, position)
            raise TableError(f"{place}: {shown} is not a number; correct it or {advice}") from error


class _CountedFile(io.RawIOBase):
    """The bytes of a file, counted as they are read; a shared file is not ours to close."""

    def __init__(self, file: Any, is_shared: bool) -> None:
        self._file = file
        self._is_shared = is_shared
        self.n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        n_bytes = self._file.readinto1(buffer)
        self.n_bytes += n_bytes
        return n_bytes

    def close(self) -> None:
        if not self._is_shared:
            self._file.close()
        super().close()


class _Lines:
    """The lines of a block, counted, without the comments and blank lines between its records.

    block : lines; more : those behind it, for a record that does not end with the block.
    number : of the last line taken; start : of the line on which the record begins; file : for messages.
    """

    def __init__(self, block: Iterable[str], more: Iterator[str], number: int, file: str) -> None:
        self._block = block
        self._more = more
        self.number = number
        self.file = file
        self.start = number + 1
        self.is_within_record = False

    def __iter__(self) -> Iterator[str]:
        for line in chain(self._block, self._rest_of_record()):
            self.number += 1
            if self._belongs_to_record(line):
                yield line

    def _rest_of_record(self) -> Iterator[str]:
        while self.is_within_record and (line := next(self._more, "")):
            yield line

    def _belongs_to_record(self, line: str) -> bool:
        if "\0" in line:
            advice = "save the table as text in UTF-8"
            raise TableError(f"{self.file}, line {self.number}: a NUL byte does not belong in a text; {advice}")
        if not self.is_within_record and not _is_ignored(line):
            self.start = self.number
            self.is_within_record = True
        return self.is_within_record


def _opened(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    return open(path, "rb")


def _decoded(raw: io.RawIOBase) -> io.TextIOWrapper:
    """Text with line feeds only; gzip and byte order marks are known by their first bytes."""
    buffered = io.BufferedReader(raw)
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        buffered = io.BufferedReader(gzip.GzipFile(fileobj=buffered))  # type: ignore[arg-type]
    if buffered.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return io.TextIOWrapper(buffered, "utf-16")
    return io.TextIOWrapper(buffered, "utf-8-sig", errors=_LATIN_1)


def _latin_1(error: UnicodeError) -> tuple[str, int]:
    """The bytes that are no UTF-8, in the encoding of most texts that are not."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


_LATIN_1 = "wgpr-latin-1"
codecs.register_error(_LATIN_1, _latin_1)


def _is_ignored(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#")


def _sample(stream: Iterator[str]) -> tuple[int, list[str]]:
    """How many comments and blank lines there are at the beginning, and the lines that follow them."""
    n_ignored = 0
    for line in stream:
        if not _is_ignored(line):
            return n_ignored, [line, *islice(stream, min(_SAMPLE_LINES, 1 + _SAMPLE_CHARACTERS // len(line)))]
        n_ignored += 1
    return n_ignored, []


def _reader(lines: Iterable[str], separator: str, strict: bool) -> Iterator[list[str]]:
    if separator == " ":
        lines = (" ".join(line.split()) for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=strict)


def _records(lines: _Lines, separator: str) -> Iterator[_Record]:
    """The line on which a record begins, and its cells."""
    try:
        for cells in _reader(lines, separator, strict=True):
            yield lines.start, cells
            lines.is_within_record = False
    except csv.Error as error:
        advice = "close each quote, and double those inside of quotes"
        raise TableError(f"{lines.file}, line {lines.start}: a quoted cell has no proper end; {advice}") from error


def _number(cell: str, decimal: Decimal) -> float:
    """The value of a cell, NaN if it is missing; digits are those of ASCII, without underscores or hexadecimals."""
    cell = cell.strip()
    if _NUMBER[decimal].fullmatch(cell):
        return float(cell.replace(decimal, "."))
    if cell.lower() in _MISSING:
        return nan
    if cell.lower() in _INFINITE:
        return inf
    raise ValueError(cell)


def _is_numeric(cell: str, decimal: Decimal) -> bool:
    try:
        _number(cell, decimal)
    except ValueError:
        return False
    return True


def _is_header(cells: list[str], decimal: Decimal) -> bool:
    return not all(_is_numeric(cell, decimal) for cell in cells)


def _sample_rows(sample: list[str], separator: str) -> list[list[str]]:
    """As far as they can be told apart; what cannot is an error once the rows are read."""
    lines = (line for line in sample if not _is_ignored(line))
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(_reader(lines, separator, strict=False))
    return rows


def _likely_separator(sample: list[str], decimal: Decimal | None) -> str:
    candidates = [separator for separator in _SEPARATORS if separator != decimal]
    return max(candidates, key=lambda separator: _plausibility(_sample_rows(sample, separator)))


def _plausibility(rows: list[list[str]]) -> tuple[float, float]:
    """The share of cells that are numbers in rows of the usual width, and the share of such rows.

    Counted from the last row, so that a header in several words does not outweigh a single row.
    """
    width, n_rows = next(iter(Counter(map(len, reversed(rows))).most_common(1)), (1, 0))
    if width == 1:
        return 0.0, 0.0
    cells = [cell for row in rows if len(row) == width for cell in row]
    n_numeric = sum(_is_numeric(cell, ".") or _is_numeric(cell, ",") for cell in cells)
    return n_numeric / (width * len(rows)), n_rows / len(rows)


def _likely_decimal(sample: list[str], separator: str) -> Decimal:
    """A comma if it stands in numbers, and a point in none."""
    cells = [cell.strip() for row in _sample_rows(sample, separator) for cell in row]
    seen = [mark for mark in _NUMBER if any(mark in cell and _NUMBER[mark].fullmatch(cell) for cell in cells)]
    return "," if seen == [","] and separator != "," else "."
