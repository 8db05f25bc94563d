"""Tables in files: numbers for the command line, chunk by chunk, from text, Parquet and NPZ, and back again.

A `Table` is one or more files with the same columns. Its names are known at once, its values come as `Chunk`s, so that
a file may be larger than memory. Each kind of file is a `Source`; rules on missing values are here, and only here.
"""

import csv
import glob
import os
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from wgpr.gp.linalg import Array, Indices
from wgpr.io.atomic import replacing
from wgpr.io.csvtable import CsvTable, Rows, TableError, TableFormat, damage_as_table_error, name_for_messages

__all__ = ["Chunk", "Table", "TableError", "TableFormat", "expand", "kind_of", "write_table"]

Kind = Literal["text", "parquet", "npz"]
_KINDS: dict[str, Kind] = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".xyz": "text",
    ".csv.gz": "text",
    ".tsv.gz": "text",
    ".txt.gz": "text",
    ".xyz.gz": "text",
    ".parquet": "parquet",
    ".npz": "npz",
}
_WRITABLE = (".csv", ".tsv", ".parquet")

# Without it pyarrow has a whole group of rows in memory, which may be the whole file.
_BUFFER_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table that follow one another in a file.

    names : k columns; values : (n, k) finite; file : as the user named it.
    lines : (n,) line of each row in a text, or its number in a Parquet or NPZ file, from 1.
    """

    names: tuple[str, ...]
    values: Array
    file: str
    lines: NDArray[np.int64]

    @property
    def first_line(self) -> int:
        """Where the chunk begins."""
        return int(self.lines[0])


class Source(Protocol):
    """One file as a table that is read once.

    names : of all columns; n_default : how many of them, from the first, to use if none are chosen.
    """

    file: str
    names: tuple[str, ...]
    n_default: int

    @property
    def bytes_read(self) -> int:
        """How far the reading is."""

    def place(self, line: int, position: int) -> str:
        """Where a cell is, for a message."""

    def rows(self, positions: Sequence[int], n_rows: int) -> Iterator[Rows]:
        """Numbers of the rows (n,), and their values (n, k) with NaN for what is missing."""

    def close(self) -> None:
        """Let go of the file."""


class Table:
    """Files with the same columns, in whatever order, as one long table that is read once.

    names : the columns to be used if none are chosen.
    total_bytes : of all files, None if standard input is among them; `bytes_read` tells how many are behind us.
    n_rows : rows given so far; n_skipped : rows left out so far because a value is missing.

    Parameters
    ----------
    paths : files, "-" is standard input, which is text.
    format : how they are written, where that is not to be found out.
    """

    def __init__(self, paths: Sequence[str], format: TableFormat | None = None) -> None:
        if not paths:
            raise TableError("there is no file to read; name at least one")
        self._paths = tuple(paths)
        self._format = format or TableFormat()
        self.total_bytes = _total_bytes(paths)
        self.n_rows = self.n_skipped = self._bytes_behind = 0
        self._source: Source | None = None
        self._standard_input = CsvTable("-", self._format) if "-" in paths else None
        self._all_names, n_default = self._common_columns()
        self.names = self._all_names[:n_default]

    @property
    def bytes_read(self) -> int:
        """Of all files so far; of compressed ones these are the compressed bytes."""
        return self._bytes_behind + (self._source.bytes_read if self._source else 0)

    def chunks(self, columns: Sequence[str | int] | None = None, chunk_rows: int = 10_000) -> Iterator[Chunk]:
        """The values of some columns, from the first row of the first file to the last of the last.

        Parameters
        ----------
        columns : names, or numbers from 1; a name wins over a number. None for `names`.
        chunk_rows : the most rows in a chunk; there are fewer where rows are skipped, lines are long, or files end.
        """
        return self._chunks(self._positions(columns), chunk_rows)

    def name_of(self, column: str | int) -> str:
        """What a column is called that is given by name or by number from 1; a name wins over a number."""
        return self._all_names[_position(self._all_names, str(column), name_for_messages(self._paths[0]))]

    def _common_columns(self) -> tuple[tuple[str, ...], int]:
        """All names, and how many are the default, once all files are known to have the same columns."""
        with self._opened(self._paths[0]) as first:
            names = first.names
        for path in self._paths[1:]:
            with self._opened(path) as other:
                if sorted(other.names) != sorted(names):
                    differ = f"has the columns {_listed(other.names)}, but {first.file} has {_listed(names)}"
                    raise TableError(f"{other.file} {differ}; read only files together that have the same columns")
        return names, first.n_default

    @contextmanager
    def _opened(self, path: str) -> Iterator[Source]:
        """A file from its beginning; standard input has only one, and goes on where it was left."""
        source = _open(path, self._format) if path != "-" else self._standard_input
        assert source is not None
        try:
            yield source
        finally:
            if path != "-":
                source.close()

    def _positions(self, columns: Sequence[str | int] | None) -> list[int]:
        file = name_for_messages(self._paths[0])
        if columns is not None:
            positions = [_position(self._all_names, str(column), file) for column in columns]
        else:
            positions = list(range(len(self.names)))
            _check_distinct(self.names, file)
        if not positions:
            raise TableError(f"{file}: there is no column to use; choose among {_listed(self._all_names)}")
        return positions

    def _chunks(self, positions: list[int], chunk_rows: int) -> Iterator[Chunk]:
        for path in self._paths:
            with self._opened(path) as self._source:
                yield from self._chunks_of(self._source, self._positions_in(self._source, positions), chunk_rows)
                self._bytes_behind += self._source.bytes_read
            self._source = None
        if self.n_rows == 0:
            why = f"all {self.n_skipped} rows have missing values" if self.n_skipped else "there are no rows"
            files = ", ".join(map(name_for_messages, self._paths))
            raise TableError(f"{files}: {why}; give at least one row of numbers")

    def _positions_in(self, source: Source, positions: list[int]) -> list[int]:
        if source.names == self._all_names:
            return positions
        return [_position(source.names, self._all_names[position], source.file) for position in positions]

    def _chunks_of(self, source: Source, positions: list[int], chunk_rows: int) -> Iterator[Chunk]:
        names = tuple(source.names[position] for position in positions)
        for lines, values in source.rows(positions, chunk_rows):
            complete = self._complete_rows(source, positions, lines, values)
            self.n_skipped += len(values) - len(complete)
            self.n_rows += len(complete)
            if len(complete):
                yield Chunk(names, values[complete], source.file, np.asarray(lines, dtype=np.int64)[complete])

    def _complete_rows(self, source: Source, positions: list[int], lines: Sequence[int], values: Array) -> Indices:
        """Which rows to keep; an infinite value is always an error, a missing one is if rows are not to be skipped."""
        if np.isinf(values).any():
            raise _bad_value(source, positions, lines, np.isinf(values), "is infinite; correct it or remove the row")
        is_missing = np.isnan(values)
        if self._format.missing == "error" and is_missing.any():
            raise _bad_value(source, positions, lines, is_missing, "is missing; correct it or use --missing skip")
        return np.flatnonzero(~is_missing.any(axis=1))


def expand(patterns: Iterable[str]) -> list[str]:
    """The files that the patterns stand for, line2 before line10; what exists under its own name is no pattern."""
    return [path for pattern in patterns for path in _matches(pattern)]


def kind_of(path: str) -> Kind:
    """What a file is by the end of its name; standard input and output are text."""
    kinds = [kind for suffix, kind in _KINDS.items() if path.lower().endswith(suffix)]
    if path != "-" and not kinds:
        raise TableError(f"{path} is of no known kind; the name must end with {_either(_KINDS)}")
    return "text" if path == "-" else kinds[0]


def write_table(path: str, names: Sequence[str], chunks: Iterable[Sequence[NDArray[Any]]]) -> None:
    """Write columns as they arrive; the file has its name only when it is complete.

    Floats are written with as many digits as give the same float again, integers as integers.

    Parameters
    ----------
    path : CSV, TSV or Parquet by its suffix; "-" is standard output, as CSV.
    names : k columns; chunks : of k arrays (n,) each.
    """
    if path == "-":
        _write_csv(sys.stdout, names, chunks)
        return
    if not path.lower().endswith(_WRITABLE):
        raise TableError(f"{path} cannot be written; the name must end with {_either(_WRITABLE)}")
    with _renamed_when_complete(Path(path)) as temporary:
        if kind_of(path) == "parquet":
            _write_parquet(temporary, names, chunks)
        else:
            with open(temporary, "x", encoding="utf-8", newline="") as file:
                _write_csv(file, names, chunks, "\t" if path.lower().endswith(".tsv") else ",")


class _ParquetTable:
    """A Parquet file, batch by batch."""

    def __init__(self, path: str) -> None:
        parquet = _pyarrow("pyarrow.parquet")
        self.file = path
        self._n_bytes = os.path.getsize(path)
        self._n_rows_read = 0
        with damage_as_table_error(path):
            self._file = parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        self._schema = self._file.schema_arrow
        self.names = tuple(self._schema.names)
        self.n_default = len(self.names)

    @property
    def bytes_read(self) -> int:
        """As if all rows were of the same size."""
        return self._n_bytes * self._n_rows_read // max(1, self._file.metadata.num_rows)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def place(self, line: int, position: int) -> str:
        """Where a value is."""
        return f"{self.file}, row {line}, column {self.names[position]!r}"

    def rows(self, positions: Sequence[int], n_rows: int) -> Iterator[Rows]:
        """Row numbers (n,) and values (n, k)."""
        names = [self._numeric_column(position) for position in positions]
        with damage_as_table_error(self.file):
            for batch in self._file.iter_batches(n_rows, columns=list(dict.fromkeys(names))):
                first = self._n_rows_read + 1
                self._n_rows_read += batch.num_rows
                yield range(first, first + batch.num_rows), _columns_of_batch(batch, names)

    def _numeric_column(self, position: int) -> str:
        """The name of a column, if that is unique and the column holds numbers."""
        types = _pyarrow("pyarrow").types
        name, type_ = self.names[position], self._schema.field(position).type
        if self.names.count(name) > 1:
            raise TableError(_repeated(name, self.file))
        numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
        if not any(is_type(type_) for is_type in numeric):
            raise TableError(_no_numbers(self.file, name, type_))
        return name


def _columns_of_batch(batch: Any, names: list[str]) -> Array:
    arrays = [batch.column(name).cast("float64", safe=False).to_numpy(zero_copy_only=False) for name in names]
    return np.column_stack(arrays)


class _NpzTable:
    """The arrays of an NPZ file: `lon` is a column if it is (n,), `X:1` is the first column of `X` (n, d).

    If there are `X` and `y`, their columns come first, under the names that are in `feature_names`, or X1, X2, ...
    """

    def __init__(self, path: str) -> None:
        self.file = path
        self._n_bytes = os.path.getsize(path)
        self._share_read = 0.0
        with damage_as_table_error(path):
            self._headers = _npz_headers(path)
            default = self._inputs_and_target() or self._numeric_columns()
            addresses = {name: address for name, address in self._addresses() if name not in default}
        self._columns = default | addresses
        self.names = tuple(self._columns)
        self.n_default = len(default)

    @property
    def bytes_read(self) -> int:
        """As if there were only the arrays in use."""
        return int(self._n_bytes * self._share_read)

    def close(self) -> None:
        """The file is open only while an array is read."""

    def place(self, line: int, position: int) -> str:
        """Where a value is."""
        return f"{self.file}, row {line}, column {self.names[position]!r}"

    def rows(self, positions: Sequence[int], n_rows: int) -> Iterator[Rows]:
        """Row numbers (n,) and values (n, k)."""
        columns = self._loaded([self.names[position] for position in positions])
        n = len(columns[0])
        for start in range(0, n, n_rows):
            stop = min(start + n_rows, n)
            self._share_read = stop / n
            yield range(start + 1, stop + 1), np.column_stack([column[start:stop] for column in columns])

    def _addresses(self) -> Iterator[tuple[str, "_Address"]]:
        for array, (shape, _) in self._headers.items():
            if len(shape) == 1:
                yield array, (array, 0)
            elif len(shape) == 2:
                yield from ((f"{array}:{k + 1}", (array, k)) for k in range(shape[1]))

    def _numeric_columns(self) -> dict[str, "_Address"]:
        return {name: address for name, address in self._addresses() if _is_numeric(self._headers[address[0]][1])}

    def _inputs_and_target(self) -> dict[str, "_Address"]:
        """Empty if there is no pair of `X` (n, d) and `y` (n,) or (n, 1)."""
        X_shape, y_shape = (self._headers.get(name, ((), None))[0] for name in "Xy")
        if len(X_shape) != 2 or y_shape not in (X_shape[:1], (X_shape[0], 1)):
            return {}
        names = [*self._feature_names(X_shape[1]), "y"]
        if len(set(names)) < len(names):
            raise TableError(f"{self.file}: the names {_listed(names)} are not distinct; change feature_names")
        return {name: ("X", k) for k, name in enumerate(names[:-1])} | {"y": ("y", 0)}

    def _feature_names(self, n_features: int) -> list[str]:
        if "feature_names" not in self._headers:
            return [f"X{k}" for k in range(1, n_features + 1)]
        names = [str(name) for name in self._array("feature_names").ravel()]
        if len(names) != n_features:
            raise TableError(f"{self.file}: {len(names)} feature_names for {n_features} columns of X; correct them")
        return names

    def _loaded(self, names: list[str]) -> list[Array]:
        """Columns (n,), each array read once."""
        addresses = [self._columns[name] for name in names]
        arrays = {array: self._numeric_array(array) for array in dict(addresses)}
        lengths = {array: len(values) for array, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            told = " and ".join(f"{length} in {array}" for array, length in lengths.items())
            raise TableError(f"{self.file}: the arrays differ in length, {told}; choose arrays that belong together")
        return [arrays[array][:, k] for array, k in addresses]

    def _numeric_array(self, name: str) -> Array:
        """(n, d), where a vector is one column."""
        shape, dtype = self._headers[name]
        if not _is_numeric(dtype):
            raise TableError(_no_numbers(self.file, name, dtype))
        values = self._array(name).astype(np.float64)
        return values if len(shape) == 2 else values[:, None]

    def _array(self, name: str) -> NDArray[Any]:
        with damage_as_table_error(self.file), np.load(self.file, allow_pickle=False) as arrays:
            return arrays[name]


_Address = tuple[str, int]
_Header = tuple[tuple[int, ...], np.dtype[Any]]


def _npz_headers(path: str) -> dict[str, _Header]:
    """Shape and type of each array, without reading the arrays."""
    with zipfile.ZipFile(path) as archive:
        members = [name for name in archive.namelist() if name.endswith(".npy")]
        return {name.removesuffix(".npy"): _npy_header(archive, name) for name in members}


def _npy_header(archive: zipfile.ZipFile, member: str) -> _Header:
    with archive.open(member) as file:
        is_first_version = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if is_first_version else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    return shape, dtype


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf"


def _open(path: str, format: TableFormat) -> Source:
    match kind_of(path):
        case "text":
            return CsvTable(path, format)
        case "parquet":
            return _ParquetTable(path)
        case "npz":
            return _NpzTable(path)


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise TableError('Parquet files need pyarrow; install it with pip install "wgpr[parquet]"') from error


def _total_bytes(paths: Sequence[str]) -> int | None:
    sizes = [_size(path) for path in paths if path != "-"]
    return None if "-" in paths else sum(sizes)


def _size(path: str) -> int:
    if os.path.isdir(path):
        raise TableError(f"{path} is a folder; name the files in it, such as {os.path.join(path, '*.csv')}")
    if not os.path.exists(path):
        raise TableError(f"{path} does not exist; check the name and the folder")
    return os.path.getsize(path)


def _matches(pattern: str) -> list[str]:
    if pattern == "-" or os.path.exists(pattern):
        return [pattern]
    paths = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
    if not paths:
        raise TableError(f"no file matches {pattern}; check the name and the folder")
    return sorted(paths, key=_natural_order)


def _natural_order(path: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


def _position(names: Sequence[str], column: str, file: str) -> int:
    if names.count(column) > 1:
        raise TableError(_repeated(column, file))
    numbers = [str(number) for number in range(1, len(names) + 1)]
    for known in (names, numbers):
        if column in known:
            return known.index(column)
    raise TableError(f"{file} has no column {column!r}; choose among {_listed(names)}")


def _check_distinct(names: Sequence[str], file: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise TableError(_repeated(name, file))


def _bad_value(
    source: Source, positions: list[int], lines: Sequence[int], is_bad: NDArray[np.bool_], what: str
) -> TableError:
    """About the first of the bad values; `is_bad` is (n, k)."""
    row, column = np.argwhere(is_bad)[0]
    return TableError(f"{source.place(lines[row], positions[column])}: the value {what}")


def _repeated(name: str, file: str) -> str:
    return f"{file} has several columns {name!r}; rename them, or choose columns by number"


def _no_numbers(file: str, name: str, type_: object) -> str:
    return f"{file}, column {name!r}: {type_} is not a type of number; choose another column"


def _listed(names: Sequence[str], n_shown: int = 20) -> str:
    rest = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + rest


def _either(suffixes: Iterable[str]) -> str:
    *others, last = suffixes
    return f"{', '.join(others)} or {last}"


@contextmanager
def _renamed_when_complete(path: Path) -> Iterator[Path]:
    """A name in the same folder to write to; on failure nothing is left there, and an older file stays as it was."""
    if not os.path.isdir(path.parent) or os.path.isdir(path):
        raise TableError(f"{path} cannot be written; name a file in a folder that exists")
    try:
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise TableError(f"{path} cannot be written ({error.strerror}); choose another place") from error


def _write_csv(
    file: IO[str], names: Sequence[str], chunks: Iterable[Sequence[NDArray[Any]]], separator: str = ","
) -> None:
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerow(names)
    for columns in chunks:
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns), strict=True))


def _write_parquet(path: Path, names: Sequence[str], chunks: Iterable[Sequence[NDArray[Any]]]) -> None:
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    tables = (arrow.Table.from_arrays(list(map(arrow.array, columns)), names=list(names)) for columns in chunks)
    first = next(tables, arrow.table({name: np.empty(0) for name in names}))
    with parquet.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
