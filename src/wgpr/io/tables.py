"""Tables in files: numbers for the command line, chunk by chunk, from text, Parquet, NPZ and logs, and back again.

A `Table` is one or more files with the same columns. Its names are known at once, its values come as `Chunk`s, so that
a file may be larger than memory.
"""

import csv
import glob
import os
import re
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from wgpr.gp.linalg import Array
from wgpr.io.coordinates import Coordinates
from wgpr.io.files import cannot_be_written, replace_file
from wgpr.io.sources import (
    LogSource,
    Source,
    TableError,
    TableFormat,
    number,
    numbers,
    open_source,
    require_pyarrow,
    text_source,
)

__all__ = ["Chunk", "Table", "TableError", "TableFormat", "expand", "write_table"]

Columns = Sequence[NDArray[Any]]

_TEXT = (".csv", ".tsv", ".txt", ".xyz", ".csv.gz", ".tsv.gz", ".txt.gz", ".xyz.gz")
_LOGS = (".nmea", ".nmea.gz", ".log", ".tlog")
READABLE = (*_TEXT, ".parquet", ".npz", *_LOGS)
_CONVERSION = (
    "convert it: of GIS with geopandas (g = geopandas.read_file(name); g.assign(x=g.geometry.x, y=g.geometry.y).to_csv("
    '"survey.csv")), others with pandas (a DataFrame of their columns, then to_csv)'
)
_WRITABLE = (".csv", ".tsv", ".parquet")
_DAMAGE = (OSError, EOFError, ValueError, LookupError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a table that follow one another in a file.

    names : k columns; values : (n, k) finite; file : as the user named it.
    lines : (n,) line of each row in a text, or its number in a Parquet or NPZ file, from 1.
    place : of the file among those of the table, from 0; a file may be named twice.
    """

    names: tuple[str, ...]
    values: Array
    file: str
    lines: NDArray[np.int64]
    place: int = 0


class Table:
    """Files with the same columns, in whatever order, as one long table. Standard input can be read only once.

    names : the columns to be used if none are chosen.
    is_pipe : whether standard input is among them; is_log : whether the first is the log of an instrument.
    n_rows : rows given so far by the last call of `chunks`; n_skipped : rows left out so far.
    notes : sentences about what logs of instruments have left out, after the last of their rows.
    crs : coordinate reference system that the first file names, empty if it names none.
    paths : files, "-" is standard input, which is text; format : how they are written, where that is not found out.
    """

    def __init__(self, paths: Sequence[str], format: TableFormat | None = None) -> None:
        if not paths:
            raise TableError("there is no file to read; name at least one")
        self.paths, self._format = tuple(paths), format or TableFormat()
        self.is_pipe = "-" in paths
        self.n_rows = self.n_skipped = 0
        self.notes: list[str] = []
        self._standard_input: Source | None = None
        self._known: Coordinates | None = None  # of the map that logs are converted for
        self._check_columns()

    def chunks(self, columns: Sequence[str | int] | None = None, chunk_rows: int = 10_000) -> Iterator[Chunk]:
        """The values of some columns, from the first row of the first file to the last of the last.

        columns : names, or numbers from 1; a name wins over a number. None for `names`.
        chunk_rows : the most rows in a chunk; there are fewer where rows are skipped or files end.
        """
        chosen = self.names if columns is None else columns
        positions = _positions(self._all_names, chosen, self._first_file)
        if not positions:
            raise TableError(f"{self._first_file}: there is no column to use; choose among {_listed(self._all_names)}")
        return self._chunks(positions, chunk_rows)

    def name_of(self, column: str | int) -> str:
        """The name of a column that is given by name or by number from 1; a name wins over a number."""
        return self._all_names[_positions(self._all_names, [column], self._first_file)[0]]

    def peek(self, names: Sequence[str]) -> dict[str, Array]:
        """Values (n,) of columns in the first rows, NaN for what is no number; `chunks` gives these rows too."""
        with self._opened(self.paths[0]) as source:
            return {name: numbers(source.first_cells(source.names.index(name)), source.decimal) for name in names}

    def convert_logs(self, known: Coordinates) -> list[str]:
        """Give positions of logs in the system of a map, under the names of its inputs; the names of all columns."""
        self._known = known
        self._check_columns()
        return list(self.names)

    def _converted(self, source: Source) -> Source:
        if self._known is not None and isinstance(source, LogSource):
            source.convert(self._known)
        return source

    def _check_columns(self) -> None:
        """Find the names, and that all files have them."""
        with self._opened(self.paths[0]) as first:
            self._first_file, self._all_names, self.crs = first.file, first.names, first.crs
            self.names = first.names[: first.n_default]
            self.is_log = isinstance(first, LogSource)
        for path in self.paths[1:]:
            with self._opened(path) as other:
                if sorted(other.names) != sorted(first.names):
                    differ = f"has the columns {_listed(other.names)}, but {first.file} has {_listed(first.names)}"
                    raise TableError(f"{other.file} {differ}; read only files together that have the same columns")

    @contextmanager
    def _opened(self, path: str) -> Iterator[Source]:
        """A file from its beginning; standard input goes on where it was left.

        Whatever goes wrong while it is opened or decoded is told as one sentence about the file.
        """
        file = "standard input" if path == "-" else path
        try:
            if path == "-":
                self._standard_input = self._standard_input or text_source(file, sys.stdin.buffer, self._format)
                yield self._converted(self._standard_input)
            else:
                _check_file(path)
                with open_source(path, self._format) as source:
                    yield self._converted(source)
        except TableError:
            raise
        except ImportError as error:  # of a module that is in an extra
            raise TableError(str(error)) from error
        except PermissionError as error:
            raise TableError(f"{file} may not be read; ask for permission to read it") from error
        except _DAMAGE as error:
            what = "is damaged, or not of the kind that its name says"
            raise TableError(f"{file} {what}; check how it was made") from error

    def _chunks(self, positions: list[int], chunk_rows: int) -> Iterator[Chunk]:
        self.n_rows = self.n_skipped = 0
        self.notes = []
        for place, path in enumerate(self.paths):
            with self._opened(path) as source:
                places = positions
                if source.names != self._all_names:
                    places = _positions(source.names, [self._all_names[k] for k in positions], source.file)
                yield from self._chunks_of(source, places, chunk_rows, place)
                self.notes += source.notes()
        if self.n_rows == 0:
            why = f"each of the {self.n_skipped} rows lacks a number" if self.n_skipped else "there are no rows"
            files = ", ".join("standard input" if path == "-" else path for path in self.paths)
            wanted = "a log with positions and depths" if self.is_log else "a file with rows of numbers"
            raise TableError(f"{'; '.join([f'{files}: {why}', *self.notes])}; give {wanted}")

    def _chunks_of(self, source: Source, positions: list[int], chunk_rows: int, place: int) -> Iterator[Chunk]:
        names = tuple(source.names[position] for position in positions)
        for lines, columns in source.blocks(positions, chunk_rows):
            values = np.column_stack([numbers(cells, source.decimal) for cells in columns])
            with np.errstate(over="ignore"):  # up to the rounding of a file that stores float32
                is_nodata = np.isclose(values[..., np.newaxis], np.ravel(self._format.nodata), rtol=1e-7, atol=0.0)
            has_nodata = is_nodata.any(axis=(1, 2))
            is_bad = ~np.isfinite(values) & ~has_nodata[:, np.newaxis]
            if self._format.missing == "error" and is_bad.any():
                row, column = np.argwhere(is_bad)[0]
                raise _bad_cell(source, lines[row], positions[column], columns[column][row])
            is_kept = ~(has_nodata | is_bad.any(axis=1))
            self.n_rows += int(is_kept.sum())
            self.n_skipped += int((~is_kept).sum())
            if is_kept.any():
                yield Chunk(names, values[is_kept], source.file, np.asarray(lines, dtype=np.int64)[is_kept], place)


def _bad_cell(source: Source, line: int, position: int, cell: object) -> TableError:
    """What to say about a cell that is no finite number."""
    column = repr(source.names[position]) if source.has_header else position + 1
    value, text, remedy = number(cell, source.decimal), str(cell), "use --missing skip"
    other = "," if source.decimal == "." else "."
    if value is not None:
        what = f"the value is {'missing' if np.isnan(value) else 'infinite'}"
    else:
        what = f"{text if len(text) <= 40 else text[:40] + '...'!r} is not a number"
        remedy = f"choose another column, or {remedy}" if number(cell, other) is None else f"use --decimal {other}"
    return TableError(f"{source.file}, {source.row} {line}, column {column}: {what}; correct it or {remedy}")


def expand(patterns: Iterable[str]) -> list[str]:
    """The files that the patterns stand for, line2 before line10; what exists under its own name is no pattern."""
    found: list[str] = []
    for pattern in patterns:
        is_name = pattern == "-" or os.path.exists(pattern)
        paths = [pattern] if is_name else list(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        if not paths:
            is_word = not set(pattern) & set("./\\*?[")
            remedy = (
                "separate names of columns by commas (--x east,north)" if is_word else "check the name and the folder"
            )
            raise TableError(f"no file matches {pattern}; {remedy}")
        found += sorted(paths, key=lambda path: [int(s) if s.isdecimal() else s for s in re.split(r"(\d+)", path)])
    return found


def write_table(path: str, names: Sequence[str], chunks: Iterable[Columns]) -> None:
    """Write columns as they arrive; the file has its name only when it is complete.

    Floats are written with as many digits as give the same float again, integers as integers.

    path : CSV, TSV or Parquet by its suffix; "-" is standard output, as CSV.
    names : k columns; chunks : of k arrays (n,) each.
    """
    if path == "-":
        _write_csv(sys.stdout, names, chunks)
        return
    if not path.lower().endswith(_WRITABLE):
        raise TableError(f"{path} cannot be written; the name must end with one of {_listed(_WRITABLE)}")
    try:
        with replace_file(path) as temporary:
            if path.lower().endswith(".parquet"):
                _write_parquet(temporary, names, chunks)
            else:
                with open(temporary, "x", encoding="utf-8", newline="") as file:
                    _write_csv(file, names, chunks, "\t" if path.lower().endswith(".tsv") else ",")
    except ImportError as error:
        raise TableError(str(error)) from error
    except OSError as error:
        raise TableError(str(cannot_be_written(path, error))) from error


def _write_csv(file: IO[str], names: Sequence[str], chunks: Iterable[Columns], separator: str = ",") -> None:
    writer, rest = csv.writer(file, delimiter=separator, lineterminator="\n"), iter(chunks)
    first = list(islice(rest, 1))  # if there is an error instead, nothing is written
    writer.writerow(names)
    for columns in chain(first, rest):
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns), strict=True))


def _write_parquet(path: Path, names: Sequence[str], chunks: Iterable[Columns]) -> None:
    arrow, parquet = require_pyarrow("pyarrow"), require_pyarrow("pyarrow.parquet")
    tables = (arrow.Table.from_arrays(list(map(arrow.array, columns)), names=list(names)) for columns in chunks)
    first = next(tables, arrow.table({name: np.empty(0) for name in names}))
    with parquet.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _check_file(path: str) -> None:
    if os.path.isdir(path):
        raise TableError(f"{path} is a folder; name the files in it, such as {os.path.join(path, '*.csv')}")
    if not os.path.exists(path):
        raise TableError(f"{path} does not exist; check the name and the folder")
    if path.lower().endswith(".map"):
        raise TableError(f"{path} is a map and no table; name the map first, and then the tables")
    if not path.lower().endswith(READABLE):
        raise TableError(f"{path} cannot be read here: its name ends with none of {_listed(READABLE)}; {_CONVERSION}")


def _positions(names: Sequence[str], columns: Iterable[str | int], file: str) -> list[int]:
    """Where columns are that are given by name, or by number from 1."""
    counts, places = Counter(names), {name: place for place, name in enumerate(names)}
    found = []
    for name in map(str, columns):
        if counts[name] > 1:
            raise TableError(f"{file} has several columns {name!r}; rename them, or choose columns by number")
        is_number = name not in places and re.fullmatch("[1-9][0-9]{0,9}", name) and int(name) <= len(names)
        if name not in places and not is_number:
            raise TableError(f"{file} has no column {name!r}; choose among {_listed(names)}")
        found.append(int(name) - 1 if is_number else places[name])
    return found


def _listed(names: Sequence[str], n_shown: int = 20) -> str:
    rest = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + rest
