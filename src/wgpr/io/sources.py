"""Files that hold tables: text, Parquet and NPZ. Each kind is a `Source`, which gives blocks of numbered rows."""

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice, product
from math import inf, nan
from typing import Any, BinaryIO, Literal

import numpy as np

from wgpr.gp.linalg import Array

Decimal = Literal[".", ","]
_DECIMALS: tuple[Decimal, ...] = (".", ",")
Block = tuple[Sequence[int], list[Any]]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COMMAS_TO_POINTS = str.maketrans(",.", ".,")
_MISSING = re.compile(r"|--|na|n/a|null|none|[+-]?nan", re.IGNORECASE)
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)

_HEAD_LINES = 200
_HEAD_CHARACTERS = 100_000
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
    decimal: Decimal | None = None
    header: bool | None = None
    missing: Literal["error", "skip"] = "error"
    nodata: float | Sequence[float] = ()

    def __post_init__(self) -> None:
        nodata = np.asarray(self.nodata)
        is_number = not nodata.size or (nodata.ndim < 2 and nodata.dtype.kind in "iuf" and not np.isnan(nodata).any())
        is_character = self.separator is None or re.fullmatch(r'[^"#\r\n]', str(self.separator))
        rules = {
            "separator": (is_character, "one character such as ',' or ';' or a tab"),
            "decimal": (self.decimal in (None, ".", ","), "'.' or ','"),
            "header": (self.header in (None, True, False), "true or false"),
            "missing": (self.missing in ("error", "skip"), "'error' or 'skip'"),
            "nodata": (is_number, "a number such as -99999, or several"),
        }
        for name, (is_valid, what) in rules.items():
            if not is_valid:
                raise TableError(f"{name} must be {what}, got {getattr(self, name)!r}")


class Source:
    """One file as a table that is read once.

    file : its name in messages; names : of all columns; n_default : how many of them to use if none are chosen.
    row : what messages call a row; has_header : whether columns have names there.
    decimal : the mark in cells that are text.
    """

    file: str
    names: tuple[str, ...]
    n_default: int
    row = "row"
    has_header = True
    decimal: Decimal = "."

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """The lines or numbers of rows (n,), and k columns (n,) of numbers or of other cells; n is `n_rows` or less."""
        raise NotImplementedError

    def first_cells(self, position: int) -> Iterable[Any]:
        """Cells of a column in the first rows."""
        return next((columns[0] for _, columns in self.blocks([position], _HEAD_LINES)), ())


@contextmanager
def open_source(path: str, format: TableFormat) -> Iterator[Source]:
    """A file of the kind that its name says."""
    if path.lower().endswith(".npz"):
        yield NpzSource(path)
    elif path.lower().endswith(".parquet"):
        parquet = require_pyarrow("pyarrow.parquet")
        with parquet.ParquetFile(path, buffer_size=_PARQUET_BUFFER, pre_buffer=False) as parquet_file:
            yield ParquetSource(path, parquet_file)
    else:
        with open(path, "rb") as file:
            yield TextSource(path, file, format)


def number(cell: object, decimal: Decimal) -> float | None:
    """The value of a cell: NaN if it is missing, None if it is text. Digits are those of ASCII."""
    text = str(cell).strip()
    text = text.translate(_COMMAS_TO_POINTS) if decimal == "," else text
    if _NUMBER.fullmatch(text):
        return float(text)
    return nan if _MISSING.fullmatch(text) else inf if _INFINITE.fullmatch(text) else None


def numbers(cells: Iterable[Any], decimal: Decimal) -> Array:
    """Values (n,) of cells, NaN for what is no number."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    texts = list(map(str, cells))
    joined = "".join(texts)
    if decimal == "." and joined.isascii() and "_" not in joined:
        with suppress(ValueError):
            return np.array(texts, dtype=np.float64)
    return np.array([number(text, decimal) for text in texts], dtype=np.float64)


class TextSource(Source):
    """Separated values. `csv` knows the line of each record; pandas does not, and fills up records that are short."""

    row = "line"

    def __init__(self, file: str, binary: BinaryIO, format: TableFormat) -> None:
        self.file = file
        lines = ("\n" if line.lstrip()[:1] in ("", "#") else line for line in _decoded(_Unclosed(binary)))
        n_blank, head = _first_lines(lines)
        if not head:
            raise TableError(f"{file} is empty; give a file with at least one row")
        separator, self.decimal = _likely_marks(head, format)
        self._head = _cells(head, separator)
        records = self._numbered_records(chain(n_blank * ["\n"], head, lines), separator)
        line, names = next(records)
        is_header = any(number(name, self.decimal) is None for name in names)
        self.has_header = is_header if format.header is None else format.header
        self.names = tuple(name.strip() if self.has_header else f"x{k}" for k, name in enumerate(names, start=1))
        self.n_default = len(names)
        self._records = records if self.has_header else chain([(line, names)], records)

    def first_cells(self, position: int) -> Iterable[Any]:
        """Cells of a column in the first rows; `blocks` gives these rows too."""
        return [row[position] for row in self._head[self.has_header :] if len(row) == len(self.names)]

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """Lines (n,), and columns of text. Of each record only the cells that are used stay in memory."""
        chosen = ((line, *(self._checked(line, cells)[k] for k in positions)) for line, cells in self._records)
        while rows := list(islice(chosen, n_rows)):
            lines, *columns = zip(*rows, strict=True)
            yield lines, columns

    def _checked(self, line: int, cells: list[str]) -> list[str]:
        if len(cells) != len(self.names):
            what = f"the number of cells is {len(cells)}, and {len(self.names)} in the first row"
            raise TableError(f"{self.file}, line {line}: {what}; correct the line or choose another --separator")
        return cells

    def _numbered_records(self, lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
        """The line where each record begins, and its cells."""
        reader, line = _reader(lines, separator, strict=True), 1
        try:
            for cells in reader:
                if cells:
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            advice = "close each quote, and double those inside of quotes"
            raise TableError(f"{self.file}, line {line}: a quoted cell has no proper end; {advice}") from error


class _Unclosed(io.RawIOBase):
    """The bytes of a file, which is closed by whoever opened it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._file.readinto1(buffer)


def _decoded(raw: io.RawIOBase) -> io.TextIOWrapper:
    """Text with line feeds only; gzip and byte order marks are known by their first bytes."""
    buffered = io.BufferedReader(raw)
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        buffered = io.BufferedReader(gzip.GzipFile(fileobj=buffered))  # type: ignore[arg-type]
    if buffered.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return io.TextIOWrapper(buffered, "utf-16")
    return io.TextIOWrapper(buffered, "utf-8-sig", errors="wgpr-latin-1")


def _latin_1(error: Any) -> tuple[str, int]:
    """The bytes that are no UTF-8, in the encoding of most texts that are not."""
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("wgpr-latin-1", _latin_1)


def _first_lines(lines: Iterator[str]) -> tuple[int, list[str]]:
    """The number of blank lines at the beginning, and the lines that follow them."""
    for n_blank, line in enumerate(lines):
        if line != "\n":
            return n_blank, [line, *islice(lines, min(_HEAD_LINES, 1 + _HEAD_CHARACTERS // len(line)))]
    return 0, []


def _reader(lines: Iterable[str], separator: str, *, strict: bool = False) -> Any:
    """A reader of records; a blank line is an empty record. If blanks are the separator, there may be several."""
    if separator == " ":
        lines = (" ".join(line.split()) + "\n" for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=strict)


def _cells(lines: list[str], separator: str) -> list[list[str]]:
    """Cells of the records, as far as they can be told apart; the rest is an error once rows are read."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(filter(None, _reader(lines, separator)))
    return rows


def _likely_marks(lines: list[str], format: TableFormat) -> tuple[str, Decimal]:
    """The separator and the decimal mark that are given, or else those with which most cells are numbers."""
    rows = {separator: _cells(lines, separator) for separator in format.separator or "\t;,| "}
    pairs = list(product(rows, [format.decimal] if format.decimal else _DECIMALS))
    distinct = [pair for pair in pairs if pair[0] != pair[1]] or pairs
    return max(distinct, key=lambda pair: _plausibility(rows[pair[0]], pair[1]))


def _plausibility(rows: list[list[str]], decimal: Decimal) -> tuple[float, float, int]:
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
        self.n_default = len(self.names)

    def blocks(self, positions: Sequence[int], n_rows: int) -> Iterator[Block]:
        """Numbers of rows (n,), and columns of any type."""
        names = [self.names[position] for position in positions]
        if max(map(self.names.count, names)) > 1:
            raise TableError(f"{self.file} has several columns with the same name; rename them")
        n_read = 0
        for batch in self._parquet_file.iter_batches(n_rows, columns=list(dict.fromkeys(names))):
            n_read += batch.num_rows
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
            yield range(n_read - batch.num_rows + 1, n_read + 1), columns


def require_pyarrow(module: str) -> Any:
    """The module, or a sentence that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise TableError('Parquet files need pyarrow; install it with pip install "wgpr[parquet]"') from error


class NpzSource(Source):
    """The arrays of an NPZ file: `lon` is a column if it is (n,), `Z:1` is the first column of `Z` (n, d).

    If there are `X` and `y`, their columns come first, under the names that are in `feature_names`, or X1, X2, ...
    """

    def __init__(self, path: str) -> None:
        self.file = path
        arrays: dict[str, Any] = {}
        with np.lib.npyio.NpzFile(path) as file:  # type: ignore[arg-type]
            for name in file.files:
                with suppress(ValueError):  # an array of objects is no column
                    arrays[name] = np.asarray(file[name])
        columns = {name: array for name, array in arrays.items() if array.ndim == 1}
        for name, array in arrays.items():
            if array.ndim == 2:
                columns |= {f"{name}:{k}": column for k, column in enumerate(array.T, start=1)}
        default = self._inputs_and_target(arrays) or {k: v for k, v in columns.items() if v.dtype.kind in "biuf"}
        self._columns = default | columns
        self.names, self.n_default = tuple(self._columns), len(default)

    def _inputs_and_target(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """The columns of `X` (n, d) and `y` (n,) or (n, 1), if there are such arrays."""
        X, y = arrays.get("X", np.empty(0)), arrays.get("y", np.empty(0))
        if X.ndim != 2 or y.shape not in ((len(X),), (len(X), 1)):
            return {}
        default = np.array([f"X{k}" for k in range(1, X.shape[1] + 1)])
        names = [*map(str, arrays.get("feature_names", default).ravel()), "y"]
        if len(names) != X.shape[1] + 1 or len(set(names)) < len(names):
            told = f"must be {X.shape[1]} distinct names for the columns of X, other than y"
            raise TableError(f"{self.file}: feature_names {told}, got {', '.join(names[:-1])}")
        return dict(zip(names, [*X.T, y.ravel()], strict=True))

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
