"""Files that hold tables: text, Parquet, NPZ and logs of instruments.

Each kind is a `Source`, which gives blocks of numbered rows.
"""

import codecs
import csv
import gzip
import io
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, product
from math import nan, prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Literal

import numpy as np

from wgpr.checks import require_module
from wgpr.gp.linalg import Array
from wgpr.io.coordinates import WGS84, Coordinates
from wgpr.io.mavlink import MavlinkDecoder
from wgpr.io.nmea import NmeaDecoder, looks_like_nmea
from wgpr.io.track import COLUMNS

Block = tuple[Sequence[int], list[Any]]

# Digits match in one way only, so that a long cell that is no number takes no longer than its length.
_DIGITS = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_NUMBER = re.compile(rf"[+-]?(?:{_DIGITS}(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.IGNORECASE | re.ASCII)
_TO_POINTS = str.maketrans(",.", ".,")
_NOT_PLAIN = re.compile(r"[^0-9.eE+\-\s]", re.ASCII)
_MISSING = re.compile(r"|--|na|n/a|null|none|[+-]?nan", re.IGNORECASE)

_HEAD_LINES = 200
_HEAD_CHARACTERS = 100_000
_HEAD_BYTES = 1000
_LONGEST_LINE = 1 << 20
_MOST_COLUMNS = 20_000
_MOST_CELLS = 200_000
# An archive is unpacked to so many times its size at most, or to so many bytes if these are more.
_LARGEST_RATIO, _LARGE_ARCHIVE = 200, 1 << 28
_PARQUET_BUFFER = 2**20  # without it pyarrow holds a whole group of rows in memory, which may be the whole file


class TableError(ValueError):
    """A table that cannot be used; the message is one sentence with the place, the fault and the remedy."""


@dataclass(frozen=True)
class TableFormat:
    """How a table is written; None means that it is found out from the first lines.

    separator : between cells, " " for any number of blanks.
    decimal : "." or ","; header : whether the first row has the names.
    missing : "error" or "skip" for rows with whatever is no number: empty, NA, NaN, text, infinite.
    nodata : numbers that stand for no value, such as -99999. Rows with one of them are left out.
    """

    separator: str | None = None
    decimal: Literal[".", ","] | None = None
    header: bool | None = None
    missing: Literal["error", "skip"] = "error"
    nodata: float | Sequence[float] = ()

    def __post_init__(self) -> None:
        rules = {
            "separator": (r'[^"#\r\n]', "one character such as ',' or ';' or a tab"),
            "decimal": ("[.,]", "'.' or ','"),
            "missing": ("error|skip", "'error' or 'skip'"),
        }
        for name, (pattern, what) in rules.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, str(value)):
                raise TableError(f"{name} must be {what}, got {value!r}")
        if self.header not in (None, True, False):
            raise TableError(f"header must be true or false, got {self.header!r}")
        nodata = np.asarray(self.nodata)
        if nodata.size and (nodata.ndim > 1 or nodata.dtype.kind not in "iuf" or np.isnan(nodata).any()):
            raise TableError(f"nodata must be a number such as -99999, or several, got {self.nodata!r}")


class Source:
    """One file as a table that is read once.

    file : its name in messages; names : of all columns; n_default : how many of them to use if none are chosen.
    row : what messages call a row; has_header : whether columns have names there.
    decimal : the mark in cells that are text.
    crs : coordinate reference system that the file names, empty if it names none.
    """

    file: str
    names: tuple[str, ...]
    n_default: int
    row = "row"
    has_header = True
    decimal: str = "."
    crs: str = ""

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """The lines or numbers of rows (n,), and k columns (n,) of numbers or of other cells; n is `n_rows` or less."""
        raise NotImplementedError

    def first_cells(self, position: int) -> Iterable[Any]:
        """Cells of a column in the first rows."""
        return next((columns[0] for _, columns in self.blocks([position], _HEAD_LINES)), ())

    def notes(self) -> list[str]:
        """Sentences about what the file lacks, and what was left out of the rows that `blocks` has given so far."""
        return []


@contextmanager
def open_source(path: str, format: TableFormat) -> Iterator[Source]:
    """A file of the kind that its name says."""
    if path.lower().endswith(".npz"):
        yield NpzSource(path)
    elif path.lower().endswith(".parquet"):
        parquet = require_pyarrow("pyarrow.parquet")
        with parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False) as parquet_file:
            yield ParquetSource(path, parquet_file)
    elif path.lower().endswith(".tlog"):
        with open(path, "rb") as file:
            yield LogSource(path, MavlinkDecoder(), file, "packet")
    else:
        with open(path, "rb") as file:
            yield text_source(path, file, format)


def text_source(name: str, file: Any, format: TableFormat) -> Source:
    """A table of text, or a log of NMEA sentences. file : buffered bytes."""
    unpacked = io.BufferedReader(_Unclosed(file))
    if unpacked.peek(2)[:2] == b"\x1f\x8b":
        unpacked = io.BufferedReader(gzip.GzipFile(fileobj=unpacked))  # type: ignore[arg-type]
    is_log = name.lower().endswith((".nmea", ".nmea.gz"))
    if is_log or looks_like_nmea(unpacked.peek(_HEAD_BYTES)[:_HEAD_BYTES]):
        return LogSource(name, NmeaDecoder(), unpacked, "line")
    source = TextSource(name, unpacked, format)
    beside = Path(name).with_suffix(".prj")  # as GIS write it
    if name != "standard input" and beside.is_file():
        source.crs = beside.read_text(encoding="utf-8", errors="replace").strip()
    return source


def number(cell: object, decimal: str) -> float | None:
    """The value of a cell: NaN if it is missing, None if it is text. Digits are those of ASCII."""
    text = str(cell).strip()
    text = text.translate(_TO_POINTS) if decimal == "," else text
    return float(text) if _NUMBER.fullmatch(text) else nan if _MISSING.fullmatch(text) else None


def numbers(cells: Iterable[Any], decimal: str) -> Array:
    """Values (n,) of cells, NaN for what is no number."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    texts = list(map(str, cells))
    if decimal == "." and not _NOT_PLAIN.search("".join(texts)):  # `float` also takes 1_000 and digits of other scripts
        with suppress(ValueError):
            return np.array(list(map(float, texts)))
    return np.array([number(text, decimal) for text in texts], dtype=np.float64)


class RowSource(Source):
    """A file that can be read only once, as a pipe. _rows : number and all cells of each row."""

    _rows: Iterator[tuple[int, Sequence[Any]]]

    @property
    def _most_rows(self) -> int:
        """Rows that may be in memory as text."""
        return max(1, _MOST_CELLS // len(self.names))

    def first_cells(self, position: int) -> Iterable[Any]:
        """Cells of a column in the first rows; `blocks` gives these rows too."""
        head = list(islice(self._rows, min(_HEAD_LINES, self._most_rows)))
        self._rows = chain(head, self._rows)
        return [cells[position] for _, cells in head]

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """The numbers of rows (n,), and columns of their cells."""
        rows = ([number, *[cells[position] for position in positions]] for number, cells in self._rows)
        while block := list(islice(rows, min(n_rows, self._most_rows))):
            lines, *columns = zip(*block, strict=True)
            yield lines, columns


class TextSource(RowSource):
    """Separated values. A record whose quoted cells have newlines has the number of its first line."""

    row = "line"

    def __init__(self, file: str, binary: "io.BufferedReader[Any]", format: TableFormat) -> None:
        self.file = file
        lines = _checked_lines(_decoded(binary), file)
        n_blank, head = _first_lines(lines)
        if not head:
            raise TableError(f"{file} is empty; give a file with at least one row")
        self._separator, self.decimal = _likely_marks(head, format)
        records = self._records(chain(n_blank * ["\n"], head, lines))
        first, names = next(records)
        check_width(file, len(names))
        is_text = [number(name, self.decimal) is None for name in names]
        self.has_header = any(is_text) if format.header is None else format.header
        self.names = tuple(name.strip() if self.has_header else f"x{k}" for k, name in enumerate(names, start=1))
        self.n_default = len(names)
        self._rows = map(self._checked, records if self.has_header else chain([(first, names)], records))

    def _checked(self, record: tuple[int, list[str]]) -> tuple[int, list[str]]:
        """A record that has as many cells as there are columns."""
        line, cells = record
        if len(cells) != len(self.names):
            what = f"the number of cells is {len(cells)}, and {len(self.names)} in the first row"
            raise TableError(f"{self.file}, line {line}: {what}; correct the line or choose another --separator")
        return record

    def _records(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        """First line and cells of each record that is not blank."""
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_LINE))  # `_checked_lines` refuses longer ones
        normalized = _normalized(lines, self._separator)
        reader = csv.reader(normalized, delimiter=self._separator, skipinitialspace=True, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                advice = "close each quote, and double those inside of quotes"
                raise TableError(f"{self.file}, line {line}: a quoted cell has no proper end; {advice}") from error
            if cells is None:
                return
            if cells:
                yield line, cells


class LogSource(RowSource):
    """The log of an instrument: depths with their positions and times, as the log gives them.

    row : what the numbers of rows count.
    """

    names: tuple[str, ...] = COLUMNS
    n_default = 3  # the time only if it is asked for
    crs = WGS84
    _known: Coordinates | None = None  # of the map that positions are converted for

    def __init__(self, file: str, decoder: NmeaDecoder | MavlinkDecoder, log: BinaryIO, row: str) -> None:
        self.file, self._decoder, self.row = file, decoder, row
        self._rows = ((each.line, each) for each in decoder.read(log))

    def convert(self, known: Coordinates) -> None:
        """Give positions in the system of a map, under the names of its inputs."""
        x, y = (known.names[column] for column in known.columns)
        self.names, self.crs, self._known = (x, y, *COLUMNS[2:]), known.user, known

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """Line numbers (n,) and columns, as of `RowSource`."""
        if self._known is None:
            yield from super().blocks(positions, n_rows)
            return
        for lines, cells in super().blocks(range(len(COLUMNS)), n_rows):
            columns = list(np.array(cells, dtype=np.float64))
            columns[:2] = self._known.from_system(columns[0], columns[1], WGS84)
            yield lines, [columns[position] for position in positions]

    def notes(self) -> list[str]:
        """What the log lacks, and each reason for which something was left out."""
        lack = self._decoder.lack()
        return [f"{self.file} {lack}"] * bool(lack) + self._decoder.problems.sentences(self.file, self.row)


class _Unclosed(io.RawIOBase):
    """The bytes of a file, which is closed by whoever opened it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._file.readinto1(buffer)


def _decoded(buffered: "io.BufferedReader[Any]") -> io.TextIOWrapper:
    """Text with line feeds only; byte order marks are known by their first bytes."""
    if buffered.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return io.TextIOWrapper(buffered, "utf-16")
    return io.TextIOWrapper(buffered, "utf-8-sig", errors="wgpr-latin-1")


# Bytes that are no UTF-8 are most often Latin-1.
codecs.register_error("wgpr-latin-1", lambda e: (e.object[e.start : e.end].decode("latin-1"), e.end))  # type: ignore


def _checked_lines(text: io.TextIOWrapper, file: str) -> Iterator[str]:
    """Lines of a text, comments as blank lines. One that is too long is refused before it is read to its end."""
    for number, line in enumerate(iter(partial(text.readline, _LONGEST_LINE + 1), ""), start=1):
        if len(line) > _LONGEST_LINE:
            what = f"the line has more than {_LONGEST_LINE:,} characters"
            raise TableError(f"{file}, line {number}: {what}; give a table with a line for each row")
        if "\0" in line:
            raise TableError(f"{file}, line {number}: a NUL byte is no text; save the table in UTF-8")
        yield "\n" if line.lstrip()[:1] in ("", "#") else line


def check_width(file: str, n_columns: int) -> None:
    if n_columns > _MOST_COLUMNS:
        what = f"has {n_columns:,} columns, and at most {_MOST_COLUMNS:,} are read"
        raise TableError(f"{file} {what}; save the columns that are used")


def _first_lines(lines: Iterator[str]) -> tuple[int, list[str]]:
    """The number of blank lines at the beginning, and the lines that follow them."""
    for n_blank, line in enumerate(lines):
        if line != "\n":
            return n_blank, [line, *islice(lines, min(_HEAD_LINES, 1 + _HEAD_CHARACTERS // len(line)))]
    return 0, []


def _normalized(lines: Iterable[str], separator: str) -> Iterable[str]:
    """The lines with one blank between cells, if blanks are the separator."""
    return (" ".join(line.split()) + "\n" for line in lines) if separator == " " else lines


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    """Cells of the records, as far as they can be told apart; the rest is an error once rows are read."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(filter(None, csv.reader(_normalized(lines, separator), delimiter=separator, skipinitialspace=True)))
    return rows


def _likely_marks(lines: list[str], format: TableFormat) -> tuple[str, str]:
    """The separator and the decimal mark that are given, or else those with which most cells are numbers."""
    rows = {separator: _cells(lines, separator) for separator in format.separator or "\t;,| "}
    pairs = list(product(rows, format.decimal or ".,"))
    distinct = [pair for pair in pairs if pair[0] != pair[1]] or pairs
    return max(distinct, key=lambda pair: _plausibility(rows[pair[0]], pair[1]))


def _plausibility(rows: list[list[str]], decimal: str) -> tuple[float, float, int]:
    """The share of cells that are numbers in rows of the usual width, the share of such rows, and how many numbers.

    Counted from the last row, so that a header in several words does not outweigh a single row.
    """
    width, n_rows = next(iter(Counter(map(len, reversed(rows))).most_common(1)), (1, 0))
    n_numbers = sum(number(cell, decimal) is not None for row in rows if len(row) == width for cell in row)
    return (0.0, 0.0, n_numbers) if width == 1 else (n_numbers / (width * len(rows)), n_rows / len(rows), n_numbers)


class ParquetSource(Source):
    """A Parquet file, batch by batch."""

    def __init__(self, path: str, parquet_file: Any) -> None:
        self.file, self._parquet_file = path, parquet_file
        self.names = tuple(parquet_file.schema_arrow.names)
        check_width(path, len(self.names))
        self.crs = _crs_of_parquet(parquet_file.schema_arrow.metadata or {})
        self.n_default = len(self.names)

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """Numbers of rows (n,), and columns of any type."""
        names, counts = [self.names[position] for position in positions], Counter(self.names)
        if max(counts[name] for name in names) > 1:
            raise TableError(f"{self.file} has several columns with the same name; rename them")
        n_read = 0
        for batch in self._parquet_file.iter_batches(n_rows, columns=list(dict.fromkeys(names))):
            n_read += batch.num_rows
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
            yield range(n_read - batch.num_rows + 1, n_read + 1), columns


def _crs_of_parquet(metadata: dict[bytes, bytes]) -> str:
    """The system that the metadata of GeoParquet name, as PROJJSON; empty if they name none."""
    try:
        geo = json.loads(metadata[b"geo"])
        crs = geo["columns"][geo["primary_column"]]["crs"]
        return json.dumps(crs) if isinstance(crs, dict) else ""
    except (LookupError, TypeError, ValueError, RecursionError):
        return metadata.get(b"crs", b"").decode(errors="replace")


def require_pyarrow(module: str) -> Any:
    return require_module(module, "Parquet files need pyarrow", "parquet")


class NpzSource(Source):
    """The arrays of an NPZ file: `lon` is a column if it is (n,), `Z:1` is the first column of `Z` (n, d).

    If there are `X` and `y`, their columns come first, as X1, X2, ... and y.
    """

    def __init__(self, path: str) -> None:
        self.file = path
        arrays = _npz_arrays(path)
        if "crs" in arrays and arrays["crs"].ndim == 0 and arrays["crs"].dtype.kind == "U":
            self.crs = str(arrays["crs"])
        columns = {name: array for name, array in arrays.items() if array.ndim == 1}
        for name, array in arrays.items():
            if array.ndim == 2:
                columns |= {f"{name}:{k}": column for k, column in enumerate(array.T, start=1)}
        check_width(path, len(columns))
        default = self._inputs_and_target(arrays) or {k: v for k, v in columns.items() if v.dtype.kind in "biuf"}
        self._columns = default | columns
        self.names, self.n_default = tuple(self._columns), len(default)

    def _inputs_and_target(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """The columns of `X` (n, d) and `y` (n,) or (n, 1), if there are such arrays."""
        X, y = arrays.get("X", np.empty(0)), arrays.get("y", np.empty(0))
        if X.ndim != 2 or y.shape not in ((len(X),), (len(X), 1)):
            return {}
        return {f"X{k}": column for k, column in enumerate(X.T, start=1)} | {"y": y.ravel()}

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """Numbers of rows (n,), and columns of any type."""
        columns = [self._columns[self.names[position]] for position in positions]
        n = max(map(len, columns))
        if min(map(len, columns)) < n:
            told = " and ".join(f"{len(self._columns[self.names[k]])} in {self.names[k]}" for k in positions)
            raise TableError(f"{self.file}: the arrays differ in length, {told}; choose arrays that belong together")
        for start in range(0, n, n_rows):
            block = [column[start : start + n_rows] for column in columns]
            yield range(start + 1, start + 1 + len(block[0])), block


def _npz_arrays(path: str) -> dict[str, Any]:
    """The arrays of an archive by name, without those of objects. Other files in it are ignored."""
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(info.file_size for info in archive.infolist())
        if n_bytes > max(_LARGE_ARCHIVE, _LARGEST_RATIO * os.path.getsize(path)):
            remedy = "load it with numpy and save the columns that are used, with np.savez"
            raise TableError(f"{path} would be unpacked to {n_bytes:,} bytes; {remedy}")
        for info in archive.infolist():
            with archive.open(info) as member:
                if (array := _npy_array(member, info.file_size)) is not None:
                    arrays[info.filename.removesuffix(".npy")] = array
    return arrays


def _npy_array(member: Any, n_bytes: int) -> Any:
    """The array in a file of `n_bytes`; None for one of objects, or no array. It is read if its size is as it says."""
    if member.peek(6)[:6] != np.lib.format.MAGIC_PREFIX:
        return None
    try:
        is_first = np.lib.format.read_magic(member) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, kind = read_header(member)
    except (SyntaxError, TokenError, RecursionError, MemoryError, TypeError) as error:  # of the parser of Python
        raise ValueError("the header of an array cannot be read") from error
    if kind.hasobject or not kind.itemsize:
        return None
    if prod(shape) * kind.itemsize != n_bytes - member.tell() or min(shape, default=0) < 0:
        raise ValueError("an array has another size than its header says")
    member.seek(0)
    return np.lib.format.read_array(member, allow_pickle=False)
