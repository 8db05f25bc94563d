"""Tables: every dialect gives the same numbers, every fault is one sentence that says where and what to do."""

import csv
import errno
import gc
import gzip
import io
import os
import sys
import time
import tracemalloc
import zipfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wgpr.cli.columns import columns_to_learn
from wgpr.io.files import lock_of, locked, replace_file, write_file
from wgpr.io.sources import number, text_source
from wgpr.io.tables import Table, TableError, TableFormat, expand, write_table

SKIP = TableFormat(missing="skip")
VALUES = np.array([[1.5, -2.0, 30.0], [4.25, 5e-3, -6.125]])
TEXT = "is not a number; correct it or choose another column, or use --missing skip"
WIDTH = "in the first row; correct the line or choose another --separator"
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture
def file(tmp_path):
    """Write text or bytes, by default to `survey.csv`."""

    def write(content, name="survey.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def npz(tmp_path):
    def write(name="t.npz", **arrays):
        np.savez_compressed(tmp_path / name, **arrays)
        return str(tmp_path / name)

    return write


@pytest.fixture
def parquet(tmp_path):
    def write(columns, **options):
        pq.write_table(pa.table(columns), tmp_path / "t.parquet", **options)
        return str(tmp_path / "t.parquet")

    return write


@pytest.fixture
def standard_input(monkeypatch):
    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def read(paths, columns=None, format=None, chunk_rows=10_000):
    """All values at once."""
    table = Table([paths] if isinstance(paths, str) else paths, format)
    return np.concatenate([chunk.values for chunk in table.chunks(columns, chunk_rows)])


def message(paths, columns=None, format=None):
    """What the user is told, without the folder, once it is clear that it is one sentence that ends with a remedy."""
    with pytest.raises(TableError) as error:
        read(paths, columns, format)
    text = str(error.value)
    assert "\n" not in text
    assert ";" in text or ", got" in text
    folder = os.path.dirname(paths if isinstance(paths, str) else paths[0])
    return text.replace(folder + os.sep, "") if folder else text


# Dialects of text


DIALECTS = {
    "commas": b"a,b,c\n1.5,-2.0,30\n4.25,5e-3,-6.125\n",
    "no last line feed": b"a,b,c\n1.5,-2.0,30\n4.25,5e-3,-6.125",
    "carriage returns and line feeds": b"a,b,c\r\n1.5,-2.0,30\r\n4.25,5e-3,-6.125\r\n",
    "carriage returns": b"a,b,c\r1.5,-2.0,30\r4.25,5e-3,-6.125\r",
    "semicolons": b"a;b;c\n1.5;-2.0;30\n4.25;5e-3;-6.125\n",
    "semicolons and decimal commas": b"a;b;c\n1,5;-2,0;30\n4,25;5e-3;-6,125\n",
    "tabs": b"a\tb\tc\n1.5\t-2.0\t30\n4.25\t5e-3\t-6.125\n",
    "tabs and decimal commas": b"a\tb\tc\n1,5\t-2,0\t30\n4,25\t5e-3\t-6,125\n",
    "bars": b"a|b|c\n1.5|-2.0|30\n4.25|5e-3|-6.125\n",
    "blanks": b"  a  b   c\n  1.5  -2.0  30\n 4.25  5e-3 -6.125  \n",
    "blanks and tabs": b"a b c\n1.5 \t-2.0\t 30\n4.25 5e-3 -6.125\n",
    "blanks and decimal commas": b"a b c\n1,5 -2,0 30\n4,25 5e-3 -6,125\n",
    "blanks around commas": b"a , b , c\n1.5 , -2.0 , 30\n4.25 , 5e-3,-6.125\n",
    "quotes": b'"a","b","c"\n"1.5","-2.0","30"\n"4.25","5e-3","-6.125"\n',
    "quotes behind blanks": b'"a", "b", "c"\n"1.5", "-2.0", "30"\n4.25, 5e-3, -6.125\n',
    "quotes between blanks": b'"a"  "b"  "c"\n"1.5"  -2.0  30\n4.25  "5e-3"  -6.125\n',
    "comments": b"# made by hand\n\n# a,b\na,b,c\n1.5,-2.0,30\n  # well\n4.25,5e-3,-6.125\n#1,2,3\n",
    "unbalanced quote in a comment": b'a,b,c\n# "so,"called\n1.5,-2.0,30\n4.25,5e-3,-6.125\n',
    "blank lines": b"\n\na,b,c\n\n1.5,-2.0,30\n  \n4.25,5e-3,-6.125\n\n",
    "blank lines of separators": b"a\tb\tc\n1.5\t-2.0\t30\n\t\t\n4.25\t5e-3\t-6.125\n",
    "byte order mark": b"\xef\xbb\xbfa,b,c\n1.5,-2.0,30\n4.25,5e-3,-6.125\n",
    "UTF-16": "a,b,c\r\n1.5,-2.0,30\r\n4.25,5e-3,-6.125\r\n".encode("utf-16"),
    "big-endian UTF-16": b"\xfe\xff" + "a;b;c\n1,5;-2,0;30\n4,25;5e-3;-6,125\n".encode("utf-16-be"),
    "compressed": gzip.compress(b"a,b,c\n1.5,-2.0,30\n4.25,5e-3,-6.125\n", mtime=0),
    "plus signs and bare points": b"a,b,c\n+1.5,-2.,30\n4.25,.005,-6.125E+0\n",
}


@pytest.mark.parametrize("content", DIALECTS.values(), ids=DIALECTS.keys())
def test_every_dialect_gives_the_same_values(file, standard_input, content):
    gc.freeze()  # what was there before need not be looked at
    table = Table([file(content)])
    (chunk,) = table.chunks()
    assert table.names == chunk.names == ("a", "b", "c")
    np.testing.assert_array_equal(chunk.values, VALUES)
    standard_input(content)
    table = Table(["-"])
    (chunk,) = table.chunks(["c", "a"])
    assert (table.is_pipe, chunk.file) == (True, "standard input")
    np.testing.assert_array_equal(chunk.values, VALUES[:, [2, 0]])
    del table
    gc.collect()
    assert not sys.stdin.buffer.closed


@pytest.mark.parametrize(
    ("content", "format", "values"),
    [
        ('a,b\n"1,5","2,5"\n"3,5",4\n', {"separator": ",", "decimal": ","}, [[1.5, 2.5], [3.5, 4.0]]),
        ("a,b\n1,2\n3,4\n", {"separator": ",", "decimal": ","}, [[1, 2], [3, 4]]),
        ("a:b\n1:2\n", {"separator": ":"}, [[1, 2]]),
        ("1,5 2,5\n", {"decimal": ","}, [[1.5, 2.5]]),
        ("a\n1,5\n2,5\n", {"separator": ";"}, [[1.5], [2.5]]),
        ("a\n1.5\n  \n2.5\n", {}, [[1.5], [2.5]]),
    ],
)
def test_separator_and_decimal_can_be_told(file, content, format, values):
    np.testing.assert_array_equal(read(file(content), format=TableFormat(**format)), values)


def test_text_in_unused_columns_is_fine(file):
    path = file(
        b"note,a,b\n"
        b'"one, two; three",1,2\n'
        b'"with a\n# line break\n\nand ""quotes""",3,4\n'
        b'caf\xe9 5" # no comment,5,6\n'
        b"\xc3\xa9\xe9_\xd9\xa1,7,8\n"
    )
    (chunk,) = Table([path]).chunks(["a", "b"])
    np.testing.assert_array_equal(chunk.values, [[1, 2], [3, 4], [5, 6], [7, 8]])
    assert chunk.lines.tolist() == [2, 3, 7, 8]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("Höhe,b\n1,2\n".encode("latin-1"), ("Höhe", "b")),
        ("Höhe,b\n1,2\n", ("Höhe", "b")),
        ('"depth, m","a\nb"\n1,2\n', ("depth, m", "a\nb")),
        ("2019,2020\n1,2\n", ("x1", "x2")),
        ("1,NA,3\n4,5,6\n", ("x1", "x2", "x3")),
        (",a,b\n0,5,6\n", ("", "a", "b")),
        ("time,a,b\n2024-01-01 10:00:00,1.5,2.5\n", ("time", "a", "b")),
        ("time;a;b\n01.02.2024 10:00;1,5;2,5\n", ("time", "a", "b")),
        ('a,b,note\n1,2,"x;y"\n3,4,"u;v"\n', ("a", "b", "note")),
        ("note;a\nx;1,5\ny;2,5\n", ("note", "a")),
        ("a b,c d\n", ("a b", "c d")),
        ("water depth\n1.5\n", ("water depth",)),
        ("a;b;c\n1;;3\n", ("a", "b", "c")),
        ("a\tb c\td\n1\t\t3\n", ("a", "b c", "d")),
        ("a\tb c\n" + "1\t2\n" * 20, ("a", "b c")),
    ],
)
def test_names_and_separator_are_found_out(file, content, names):
    assert Table([file(content)]).names == names


def test_header_can_be_told(file):
    assert Table([file("2019,2020\n1,2\n")], TableFormat(header=True)).names == ("2019", "2020")
    told = message(file("a,b\n1,2\n"), format=TableFormat(header=False))
    assert told == f"survey.csv, line 1, column 1: 'a' {TEXT}"


def test_lines_are_counted_through_quotes_comments_and_blocks(file):
    path = file('# first\n"a\nb",note\n1,"x\ny\nz"\n2,"u\nv"\n\n3,w\n')
    chunks = list(Table([path]).chunks([1], chunk_rows=1))
    assert [(chunk.values.item(), chunk.lines.tolist()) for chunk in chunks] == [(1, [4]), (2, [7]), (3, [10])]
    (chunk,) = Table([file("# a comment\n" * 1000 + "a,b\n1,2\n")]).chunks()
    assert chunk.lines.tolist() == [1002]


@pytest.mark.parametrize(
    "option",
    [
        *({"separator": ",,"}, {"separator": ""}, {"separator": "#"}, {"decimal": ";"}, {"missing": "ignore"}),
        *({"header": "yes"}, {"nodata": "x"}, {"nodata": [1, float("nan")]}, {"nodata": [[1]]}, {"nodata": True}),
    ],
)
def test_options_are_checked(option):
    (name,) = option
    with pytest.raises(TableError, match=f"{name} must be"):
        TableFormat(**option)


def test_a_cell_may_be_as_long_as_a_line(file):
    chunk = next(Table([file(f"a,note\n1,{200_000 * 'x'}\n2,y\n")]).chunks(["a"]))
    assert chunk.values.ravel().tolist() == [1.0, 2.0]


def test_rows_of_many_columns_are_read_in_smaller_blocks():
    names = ",".join(f"c{column}" for column in range(2000))
    text = f"{names}\n" + 300 * f"{','.join(2000 * '1')}\n"
    source = text_source("a.csv", io.BufferedReader(io.BytesIO(text.encode())), TableFormat())
    sizes = [len(lines) for lines, _ in source.blocks(range(2000), 10_000)]
    assert sizes == [100, 100, 100]


# Numbers


@pytest.mark.parametrize(
    "cell", ["1_000", "\u0661", "0x10", "1e", "1d5", "1.2.3", "1 2", "--1", "nan0", "1.5m", "1j", "n.a.", "***", "True"]
)
def test_text_is_an_error_or_skipped(file, cell):
    path = file(f"a,b\n1,2\n3,{cell}\n5,6\n")
    assert message(path) == f"survey.csv, line 3, column 'b': {cell!r} {TEXT}"
    np.testing.assert_array_equal(read(path, format=SKIP), [[1, 2], [5, 6]])


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        *((cell, "missing") for cell in ("", "  ", '""', "NA", "n/a", "nan", "NaN", "-nan", "null", "NULL", "--")),
        *((cell, "infinite") for cell in ("1e400", "-1e400", "inf", "-Infinity")),
    ],
)
def test_rows_without_a_finite_number_are_errors_or_skipped(file, cell, what):
    path = file(f"a,b\n1,2\n3,{cell}\n5,6\n")
    assert message(path) == f"survey.csv, line 3, column 'b': the value is {what}; correct it or use --missing skip"
    table = Table([path], SKIP)
    (chunk,) = table.chunks()
    np.testing.assert_array_equal(chunk.values, [[1, 2], [5, 6]])
    assert chunk.lines.tolist() == [2, 4]
    assert (table.n_rows, table.n_skipped) == (2, 1)
    np.testing.assert_array_equal(read(path, ["a"]), [[1], [3], [5]])


@pytest.mark.parametrize(("nodata", "kept"), [(-99999, [2, 4]), ([-99999, 1e38], [2]), (7.0, [2, 3, 4, 5])])
@pytest.mark.parametrize("format", ["error", "skip"])
def test_declared_values_are_left_out(file, npz, nodata, kept, format):
    table = Table(
        [file("a,b,c\n1,2,7\n3,-99999,7\n4,1e38,7\n-99999.0,6,7\n")], TableFormat(nodata=nodata, missing=format)
    )
    lines = np.concatenate([chunk.lines for chunk in table.chunks(["a", "b"])])
    assert lines.tolist() == kept
    assert (table.n_rows, table.n_skipped) == (len(kept), 4 - len(kept))


def test_declared_values_beside_others(file, npz):
    path = file("a,b\n-9,NA\n-9.000001,5\n1.7e308,NA\n")
    told = "survey.csv, line 4, column 'b': the value is missing; correct it or use --missing skip"
    assert message(path, format=TableFormat(nodata=-9)) == told
    np.testing.assert_array_equal(read(path, ["a"], TableFormat(nodata=[-9, -1.7e308])), [[-9.000001], [1.7e308]])
    stored = npz(a=np.array([1.0, 1e38, 3.4028235e38], np.float32))
    np.testing.assert_array_equal(read(stored, format=TableFormat(nodata=[1e38, 3.4028235e38])), [[1]])


def test_decimal_mark_that_was_not_found_out_is_told(file):
    path = file("a;b\n" + "1;2\n" * 300 + "1,5;2\n")
    assert message(path) == "survey.csv, line 302, column 'a': '1,5' is not a number; correct it or use --decimal ,"
    assert read(path, format=TableFormat(decimal=","))[-1, 0] == 1.5
    path = file("a;b\n1,5;2,5\n" + "1;2\n" * 20_000 + "1.234;2\n")
    assert message(path).startswith(
        "survey.csv, line 20003, column 'a': '1.234' is not a number; correct it or use --d"
    )


@same_folder
@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=30), st.data())
@example([(5e-324, -0.0, 1.7976931348623157e308)], None)
def test_values_survive_to_the_last_bit(tmp_path, rows, data):
    separator = data.draw(st.sampled_from([",", ";", "\t", "|", " "])) if data else ","
    decimal = data.draw(st.sampled_from([".", ","] if separator != "," else ["."])) if data else "."
    ending = data.draw(st.sampled_from(["\n", "\r\n", "\r"])) if data else "\n"
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])) if data else csv.QUOTE_MINIMAL
    encoding = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])) if data else "utf-8"
    path = tmp_path / "survey.csv"
    with path.open("w", newline="", encoding=encoding) as stream:
        writer = csv.writer(stream, delimiter=separator, lineterminator=ending, quoting=quoting)
        writer.writerows([["lon", "lat", "depth"], *([repr(v).replace(".", decimal) for v in row] for row in rows)])
    values = read(str(path), ["depth", "lon", "lat"], chunk_rows=7)
    assert values.tobytes() == np.array(rows)[:, [2, 0, 1]].tobytes()


@same_folder
@given(st.lists(st.tuples(finite, st.text(max_size=8), finite), min_size=1, max_size=20), st.sampled_from(",;\t"))
def test_values_survive_beside_any_text_of_pandas(tmp_path, rows, separator):
    path = tmp_path / "survey.csv"
    rows = [(a, text.replace("\0", ""), b) for a, text, b in rows]
    frame = pd.DataFrame(rows, columns=["a", "note", "b"])
    frame.to_csv(path, index=False, sep=separator, encoding="utf-8", errors="surrogatepass", quoting=2)
    values = read(str(path), ["a", "b"], TableFormat(separator=separator))
    assert values.tobytes() == np.array([(a, b) for a, _, b in rows]).tobytes()


CELLS = st.one_of(
    finite.map(repr),
    st.integers(-99, 99).map(str),
    st.sampled_from(["", " 1", "1 ", "\xa02", "nan", "NA", "inf", "1e400", "1_0", "x", "#", "\u0661", "1,5", "0x1"]),
    st.sampled_from(["1.", ".5", "1e", "1e5", "1d5", "+1", "+-1", "1.2.3", "infinity", "\u0131nf", "True", "1e-400"]),
)


@same_folder
@given(st.lists(CELLS, min_size=1, max_size=5), st.sampled_from("\t|;"), st.sampled_from(".,"))
def test_cells_are_the_same_numbers_alone_and_beside_text(tmp_path, cells, separator, decimal):
    """A block of numbers and a block with text are converted in different ways."""
    path, outcomes = tmp_path / "survey.csv", []
    for last in ("5", "x"):
        rows = [["a", "b"], ["1", "5"], *([cell, "5"] for cell in cells), ["1", last]]
        path.write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
        format = TableFormat(separator, decimal, header=True, missing="skip")
        (chunk,) = Table([str(path)], format).chunks()
        outcomes.append(dict(zip(chunk.lines.tolist(), chunk.values[:, 0].tolist(), strict=True)))
    assert outcomes[0] == outcomes[1] | {len(cells) + 3: 1.0}


def outcome(path, format):
    """Lines and bytes of all chunks, or the message."""
    try:
        return [(chunk.lines.tolist(), chunk.values.tobytes()) for chunk in Table([str(path)], format).chunks()]
    except TableError as error:
        return str(error).replace(str(path), "")


@same_folder
@given(st.binary(max_size=300), st.sampled_from(["csv", "csv.gz", "parquet", "npz"]))
@example(b"\x1f\x8b", "csv")
@example(b"\xff\xfe1", "csv")
@example(b"PK\x05\x06" + bytes(18), "npz")
@example(b"\n", "csv")
def test_garbage_is_an_error_or_a_table_but_never_a_crash(tmp_path, content, suffix):
    path = tmp_path / f"garbage.{suffix}"
    path.write_bytes(content)
    result = outcome(path, SKIP)
    assert isinstance(result, list) or ";" in result


# Faults of text


NUL = "a NUL byte is no text; save the table in UTF-8"
QUOTE = "survey.csv, line 3: a quoted cell has no proper end; close each quote, and double those inside of quotes"
EMPTY = "survey.csv is empty; give a file with at least one row"
FAULTS = [
    ("a,b\n1,2\n\n3,4,5\n", None, f"survey.csv, line 4: the number of cells is 3, and 2 {WIDTH}"),
    ('a,b\n1,"2\n"\n3\n', ["a"], f"survey.csv, line 4: the number of cells is 1, and 2 {WIDTH}"),
    ("1,2\n3,4,x\n", [1, 2], f"survey.csv, line 2: the number of cells is 3, and 2 {WIDTH}"),
    ("a,b,c\n1,2,3\n4,5\n6,7,8,9\n", ["a"], f"survey.csv, line 3: the number of cells is 2, and 3 {WIDTH}"),
    ('lon,depth\n1,"2"\n# so\n"3",deep\n', ["depth"], f"survey.csv, line 4, column 'depth': 'deep' {TEXT}"),
    ('"depth, m","a\nb"\n1,2\n3,x\n', None, f"survey.csv, line 4, column 'a\\nb': 'x' {TEXT}"),
    ("1,2\n3,x\n", None, f"survey.csv, line 2, column 2: 'x' {TEXT}"),
    (f"a,b\n1,{'x' * 10_000}\n", None, f"survey.csv, line 2, column 'b': '{'x' * 40}...' {TEXT}"),
    ("a,b\nx,1\n1,y\n", ["b", "a"], f"survey.csv, line 2, column 'a': 'x' {TEXT}"),
    *(
        ('a,note\n1,"fine"\n' + rest, ["a"], QUOTE)
        for rest in ('3,"x\n5,y\n', '3,"x\n5,"y\n', '3,"x" y\n', '3,"' + "x" * 200_000 + "\n")
    ),
    (b"a,note\n1,x\n2,y\0\n", ["a"], f"survey.csv, line 3: {NUL}"),
    ("a,b\n1,2\n".encode("utf-16-le"), None, f"survey.csv, line 1: {NUL}"),
    ('a,b\n1,"2\n"\n3,x\n', None, f"survey.csv, line 4, column 'b': 'x' {TEXT}"),
    ('a,b\n1,2\n"3" ,4\n', ["b"], QUOTE),
    *((content, None, EMPTY) for content in ("", "\n\n", "# nothing\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0))),
    ("a,b\n", None, "survey.csv: there are no rows; give a file with rows of numbers"),
]


@pytest.mark.parametrize(("content", "columns", "told"), FAULTS, ids=range(len(FAULTS)))
def test_faults_of_text(file, content, columns, told):
    assert message(file(content), columns) == told


def test_tables_without_a_complete_row(file):
    told = "survey.csv: each of the 2 rows lacks a number; give a file with rows of numbers"
    assert message(file("a,b\n1,\n,2\n"), format=SKIP) == told


def test_damaged_files(file):
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (k, k**3) for k in range(20_000)))
    told = "survey.csv.gz is damaged, or not of the kind that its name says; check how it was made"
    for damaged in (whole[: len(whole) // 2], whole[:4], whole[:50] + b"\xff" * 9 + whole[59:]):
        assert message(file(damaged, "survey.csv.gz")) == told
    assert message(file("a,b\n1,2\n".encode("utf-16")[:-1])) == told.replace(".gz", "")


def test_files_that_cannot_be_read(tmp_path, file, monkeypatch):
    assert message(str(tmp_path / "no.csv")) == "no.csv does not exist; check the name and the folder"
    assert "is a folder; name the files in it" in message(str(tmp_path))
    kinds = ".csv, .tsv, .txt, .xyz, .csv.gz, .tsv.gz, .txt.gz, .xyz.gz, .parquet, .npz, .nmea, .nmea.gz, .log, .tlog"
    assert message(file("", "lake.map")) == "lake.map is a map and no table; name the map first, and then the tables"
    assert message(file("", "a.docx")).startswith(f"a.docx cannot be read here: its name ends with none of {kinds}; ")
    path = file(DIALECTS["commas"])
    monkeypatch.setattr("builtins.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert message(path) == "survey.csv may not be read; ask for permission to read it"
    with pytest.raises(TableError, match="there is no file to read"):
        Table([])


# Columns


def test_columns_by_name_and_number(file):
    path = file("a,2,b\n10,20,30\n")
    for columns, values in (["b", "a"], [30, 10]), (["3", 1], [30, 10]), (["2"], [20]), (["a", "a"], [10, 10]):
        np.testing.assert_array_equal(read(path, columns), [values])
    np.testing.assert_array_equal(read(file("3,a\n10,20\n"), [3], TableFormat(header=True)), [[10]])


def test_columns_that_are_not_there(file):
    path = file("lon,lat\n1,2\n")
    for column in ("depth", "0", "3", 3, "-1", "\uff11"):
        assert message(path, [column]) == f"survey.csv has no column {str(column)!r}; choose among lon, lat"
    assert message(path, []) == "survey.csv: there is no column to use; choose among lon, lat"
    with pytest.raises(TableError, match="has no column 'z'"):
        Table([path]).chunks(["z"])  # before anything is read
    assert message(file(",".join(f"c{k}" for k in range(100)) + "\n"), ["x"]).endswith("c18, c19 and 80 more")


def test_names_that_are_there_twice_are_errors_only_if_used(file):
    path = file("a,b,b\n1,2,3\n")
    told = "survey.csv has several columns 'b'; rename them, or choose columns by number"
    assert message(path) == message(path, ["b"]) == told
    np.testing.assert_array_equal(read(path, ["a", 3]), [[1, 3]])


# Columns that are learned


def chosen(path, x=(), y=None):
    """The columns, or "?" if the user is asked for them."""
    table = Table([path])
    try:
        return ",".join(columns_to_learn(table, x, y))
    except TableError as error:
        return "?" if "--x" in str(error) or "--y" in str(error) else str(error)


@pytest.mark.parametrize(
    ("names", "x", "y", "expected"),
    [
        ("lon,lat,depth", [], None, "lon,lat,depth"),
        ("time,temperature", [], None, "time,temperature"),
        ("-", [], None, "x1,x2,x3"),
        ("depth,north,east", [], "depth", "north,east,depth"),
        ("a,b,c,d", [], None, "?"),
        ("a,b,c,d", [], "d", "?"),
        ("a,b,c,d", ["a", "b", "c"], None, "a,b,c,d"),
        ("a,b,c,d", ["1", "2"], None, "?"),
        ("a,b,c,d", ["1", "2"], "4", "a,b,d"),
        ("a,b", ["a", "b"], None, "?"),
        ("a,b,c", ["a", "b"], "b", "?"),
        ("a", [], None, "?"),
    ],
)
def test_few_columns_need_no_names(file, names, x, y, expected):
    n_columns = 3 if names == "-" else names.count(",") + 1
    rows = "".join(",".join(f"{k + column}" for column in range(n_columns)) + "\n" for k in range(5))
    assert chosen(file(("" if names == "-" else names + "\n") + rows), x, y) == expected


def test_weights_are_no_inputs(file):
    table = Table([file("a,b,c,quality\n1,2,3,4\n")])
    assert columns_to_learn(table, [], None, "quality") == ["a", "b", "c", "quality"]


# Several files


def test_files_follow_one_another_with_columns_in_any_order(file):
    paths = [file("a,b\n1,2\n", "1.csv"), file("b;a\n4,5;3,5\n", "2.csv"), file("x\tb\ta\n0\t6\t5\n", "3.tsv")]
    np.testing.assert_array_equal(read(paths[:2]), [[1, 2], [3.5, 4.5]])
    assert message(paths) == (
        "3.tsv has the columns x, b, a, but 1.csv has a, b; read only files together that have the same columns"
    )


def test_files_without_header_have_the_same_width(file):
    paths = [file("1,2\n", "1.csv"), file("3,4\n5,6\n", "2.csv"), file("a,b\n7,8\n", "3.csv"), file("1\n", "4.csv")]
    np.testing.assert_array_equal(read(paths[:2]), [[1, 2], [3, 4], [5, 6]])
    assert "3.csv has the columns a, b, but 1.csv has x1, x2;" in message([paths[0], paths[2]])
    assert "4.csv has the columns x1, but 1.csv has x1, x2;" in message([paths[0], paths[3]])


def test_kinds_can_be_mixed_with_standard_input(file, tmp_path, standard_input):
    standard_input(b"a,b\n5,6\n")
    write_table(str(tmp_path / "t.parquet"), ["b", "a"], [[np.array([4]), np.array([3])]])
    paths = [file("a,b\n1,2\n"), str(tmp_path / "t.parquet"), "-"]
    chunks = list(Table(paths).chunks())
    assert [chunk.values.tolist() for chunk in chunks] == [[[1, 2]], [[3, 4]], [[5, 6]]]
    assert [os.path.basename(chunk.file) for chunk in chunks] == ["survey.csv", "t.parquet", "standard input"]


@pytest.mark.parametrize(
    ("content", "columns", "told"),
    [
        (b"a,b\n1,x\n", ["z"], " has no column 'z'; choose among a, b"),
        (b"a,b\n1,x\n", None, f", line 2, column 'b': 'x' {TEXT}"),
        (b"a,b\n", None, ": there are no rows; give a file with rows of numbers"),
        (b"", None, " is empty; give a file with at least one row"),
        (b"\x1f\x8b", None, " is damaged, or not of the kind that its name says; check how it was made"),
    ],
)
def test_messages_name_standard_input(standard_input, content, columns, told):
    standard_input(content)
    assert message("-", columns) == f"standard input{told}"


def test_expand_sorts_as_people_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("line10.csv", "line2.csv", "line1.csv", "a[1].csv", "b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "line3.csv").mkdir()
    assert expand(["line*.csv"]) == ["line1.csv", "line2.csv", "line10.csv"]
    assert expand(["b.txt", "-", "a[1].csv", "**/b.*"]) == ["b.txt", "-", "a[1].csv", "b.txt"]
    for pattern in ("none*.csv", "nowhere.csv", "surveys/*", "surveys/monday"):
        with pytest.raises(TableError, match=r"no file matches .*; check the name and the folder"):
            expand([pattern])
    with pytest.raises(TableError, match="separate names of columns by commas"):
        expand(["north"])  # wgpr fit a.csv --x east north


# Streaming


def test_chunks_of_several_files_can_be_read_again(file):
    path = file("a,b\n" + "".join(f"{k},{k}\n" for k in range(100_000)))
    table = Table([path, path])
    sizes = []
    for chunk in table.chunks(["b"], chunk_rows=30_000):
        np.testing.assert_array_equal(chunk.values[:, 0], chunk.lines - 2)
        sizes.append(len(chunk.values))
    assert sizes == [30_000, 30_000, 30_000, 10_000] * 2
    assert table.n_rows == 200_000
    assert sum(len(chunk.values) for chunk in table.chunks()) == table.n_rows == 200_000  # again


@pytest.mark.parametrize("line", ["1.5,2.5,-3.5\n", '1.5,"2.5",\n'])
def test_memory_is_flat(tmp_path, line):
    peak_memory(tmp_path, line, 10)  # imports
    assert peak_memory(tmp_path, line, 30_000) < 1.3 * peak_memory(tmp_path, line, 6_000)


def peak_memory(folder, line, n_rows):
    path = folder / "survey.csv"
    with path.open("w") as stream:
        stream.write("lon,lat,depth\n")
        stream.writelines(line for _ in range(n_rows))
    tracemalloc.start()
    try:
        assert sum(len(chunk.values) for chunk in Table([str(path)]).chunks(["lon", "lat"], 2_000)) == n_rows
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_rows_that_are_written_meanwhile_are_read(file):
    path = file("a,b\n" + "1,2\n" * 100_000)
    table = Table([path])
    chunks = table.chunks()
    next(chunks)
    with open(path, "a") as stream:
        stream.write("3,4\n" * 1_000 + "5,6")
    assert [chunk.values[-1].tolist() for chunk in chunks][-1] == [5, 6]
    assert table.n_rows == 101_001


def test_thousands_of_columns_need_no_memory_if_unused(file):
    values = np.arange(3 * 2000.0).reshape(3, 2000)
    header = ",".join(f"c{k}" for k in range(2000)) + "\n"
    path = file(header + pd.DataFrame(values).to_csv(index=False, header=False))
    np.testing.assert_array_equal(read(path), values)
    path = file(header + ("1.5," * 1_999 + "2\n") * 1_000)
    tracemalloc.start()
    try:
        np.testing.assert_array_equal(read(path, ["c1999", "c1"]), [[2, 1.5]] * 1_000)
        assert tracemalloc.get_traced_memory()[1] < 3 * 4e6
    finally:
        tracemalloc.stop()


# Hostile files: refused at once, whatever their size


@pytest.mark.parametrize("cell", ["9" * 200_000 + "x", "1." + "0" * 200_000 + "x"])
def test_a_long_cell_that_is_no_number_takes_no_time(cell):
    started = time.process_time()
    assert number(cell, ".") is None
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("line", ["1\n", '""\n'])
def test_a_quote_that_is_never_closed_takes_no_time(file, line):
    path, started = file('a,b\n1,"' + line * 60_000), time.process_time()
    assert message(path).startswith("survey.csv, line 2: a quoted cell has no proper end")
    assert time.process_time() - started < 2.0


def test_a_quoted_cell_of_many_lines_is_one_cell(file):
    note = '"a ""word"",\n""\n, and\n""more""\n"'
    np.testing.assert_array_equal(read(file(f"a,note,b\n1,{note},2\n3,x,4\n"), ["a", "b"]), [[1, 2], [3, 4]])


@pytest.mark.parametrize("name", ["survey.csv", "survey.csv.gz"])
def test_an_endless_line_is_refused_before_it_is_read(file, name):
    data = b"1" * 50_000_000
    path = file(gzip.compress(data, 1) if name.endswith("gz") else data, name)
    tracemalloc.start()
    try:
        told = "line 1: the line has more than 1,048,576 characters; give a table with a line for each row"
        assert message(path) == f"{name}, {told}"
        assert tracemalloc.get_traced_memory()[1] < 2e7
    finally:
        tracemalloc.stop()


def test_too_many_columns_are_refused(file, npz):
    told = "has 30,000 columns, and at most 20,000 are read; save the columns that are used"
    assert message(file("1," * 29_999 + "1\n")) == f"survey.csv {told}"
    assert message(npz(Z=np.zeros((1, 30_000)))) == f"t.npz {told}"


def _archive(path, content, name="a.npy"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return str(path)


@pytest.mark.parametrize("shape", ["(1000000000,)", "(((((", "(-1, -3)", f"({10**30},)", "(2,)"])
def test_an_array_whose_header_lies_is_refused(tmp_path, shape):
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + np.ones(3).tobytes()
    assert message(_archive(tmp_path / "t.npz", content)).startswith("t.npz is damaged")


def test_an_archive_that_is_a_bomb_is_refused(tmp_path, monkeypatch):
    file = io.BytesIO()
    np.save(file, np.zeros(1_000_000))
    path = _archive(tmp_path / "t.npz", file.getvalue())
    assert len(read(path)) == 1_000_000
    monkeypatch.setattr("wgpr.io.sources._LARGE_ARCHIVE", 1_000_000)
    assert message(path).startswith("t.npz would be unpacked to 8,000,128 bytes; load it with numpy")


def test_deep_metadata_of_parquet_name_no_system(tmp_path):
    table = pa.table({"a": [1.0], "b": [2.0]}).replace_schema_metadata({"geo": "[" * 100_000})
    pq.write_table(table, tmp_path / "t.parquet")
    assert Table([str(tmp_path / "t.parquet")]).crs == ""


@pytest.mark.parametrize("dialect", ["commas", "compressed", "UTF-16"])
def test_files_are_closed(file, dialect):
    """An open file that is forgotten is a ResourceWarning, and with that an error."""
    path = file(DIALECTS[dialect])
    Table([path])
    read(path)
    chunks = Table([path]).chunks(chunk_rows=1)
    next(chunks)
    chunks.close()
    message(file("", "empty.csv"))
    gc.collect()


# Parquet


def test_parquet_numbers_of_all_kinds(parquet):
    columns = {
        "int": pa.array([1, 2**60 + 1], pa.int64()),
        "bool": [True, False],
        "decimal": [Decimal("1.25"), Decimal("-3.50")],
        "float": pa.array([0.5, 1.5], pa.float32()),
        "half": pa.array(np.array([0.5, 2], np.float16)),
        "dotted.name": pa.array([7, 8], pa.uint8()),
        "text": ["a", "b"],
    }
    path = parquet(columns)
    expected = [[1, 1, 1.25, 0.5, 0.5, 7], [2.0**60, 0, -3.5, 1.5, 2, 8]]
    np.testing.assert_array_equal(read(path, list(columns)[:-1]), expected)
    np.testing.assert_array_equal(read(path, ["int", "float", "int"]), [[1, 0.5, 1], [2.0**60, 1.5, 2.0**60]])


def test_parquet_is_streamed(parquet):
    values = np.random.default_rng(0).normal(size=(50_000, 2))
    table = Table([parquet({"a": values[:, 0], "b": values[:, 1]}, row_group_size=20_000)])
    chunks = list(table.chunks(chunk_rows=7_000))
    np.testing.assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), values)
    np.testing.assert_array_equal(np.concatenate([chunk.lines for chunk in chunks]), np.arange(1, 50_001))
    assert max(len(chunk.values) for chunk in chunks) <= 7_000


@pytest.mark.parametrize("rows_in_a_group", [20_000, 2_000_000])
def test_parquet_memory_is_flat(parquet, rows_in_a_group):
    path = parquet({"a": np.random.default_rng(0).normal(size=2_000_000)}, row_group_size=rows_in_a_group)
    most = max(pa.total_allocated_bytes() for _ in Table([path]).chunks())
    assert most < os.path.getsize(path) / 3


def test_parquet_values_that_are_no_numbers(parquet):
    columns = {"a": [1, None, 3], "b": [4.0, 5.0, float("nan")], "none": [None] * 3, "inf": [float("inf")] * 3}
    path = parquet({**columns, "text": ["x", "2", None], "time": pa.array([1, 2, 3], pa.timestamp("s"))})
    told = "t.parquet, row 2, column 'a': the value is missing; correct it or use --missing skip"
    assert message(path, ["a", "b"]) == told
    np.testing.assert_array_equal(read(path, ["a", "b"], SKIP), [[1, 4]])
    assert "each of the 3 rows lacks a number" in message(path, ["none"], SKIP)
    assert message(path, ["text"]) == f"t.parquet, row 1, column 'text': 'x' {TEXT}"
    np.testing.assert_array_equal(read(path, ["text"], SKIP), [[2]])
    assert message(path, ["inf"]).startswith("t.parquet, row 1, column 'inf': the value is infinite;")
    assert message(path, ["time"]).startswith("t.parquet, row 1, column 'time': '1970")
    assert message(path, ["z"]) == "t.parquet has no column 'z'; choose among a, b, none, inf, text, time"


def test_parquet_faults(tmp_path, file, parquet):
    with open(parquet({"a": [1]}), "rb") as stream:
        content = stream.read()
    for damaged in (content[:-20], b"", b"a,b\n1,2\n"):
        assert message(file(damaged, "bad.parquet")).startswith("bad.parquet is damaged, or not of the kind")
    path = str(tmp_path / "twice.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([k]) for k in range(3)], names=["a", "b", "b"]), path)
    assert read(path, ["a"]).tolist() == [[0]]
    assert message(path, ["a", 3]) == "twice.parquet has several columns with the same name; rename them"


def test_only_parquet_needs_pyarrow(tmp_path, file, parquet, monkeypatch):
    path = parquet({"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    np.testing.assert_array_equal(read(file(DIALECTS["commas"])), VALUES)
    assert message(path) == 'Parquet files need pyarrow; install it with pip install "wgpr[parquet]"'
    with pytest.raises(TableError, match="install it with"):
        write_table(str(tmp_path / "out.parquet"), ["a"], [])


# NPZ


def test_npz_of_vectors_and_matrices(npz):
    path = npz(lon=[1, 2], Z=np.array([[3, 4], [5, 6.5]]), text=["a", "b"], scale=2.0)
    assert Table([path]).names == ("lon", "Z:1", "Z:2")
    np.testing.assert_array_equal(read(path), [[1, 3, 4], [2, 5, 6.5]])
    np.testing.assert_array_equal(read(path, ["Z:2", "lon"]), [[4, 1], [6.5, 2]])


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_npz_of_inputs_and_target(npz, shape):
    X, y = np.arange(6.0).reshape(3, 2), np.array([True, False, True])
    path = npz(X_test=np.zeros((9, 2)), y=y.reshape(shape), X=np.asfortranarray(X))
    assert Table([path]).names == ("X1", "X2", "y")
    np.testing.assert_array_equal(read(path, chunk_rows=2), np.column_stack([X, y]))
    np.testing.assert_array_equal(read(path, ["X:2", "X1"]), X[:, ::-1])
    assert read(path, ["X_test:1"]).shape == (9, 1)


def test_npz_faults(npz, file):
    path = npz(
        a=np.arange(3),
        b=np.arange(4),
        c=[1, np.inf, np.nan],
        d=[1, np.nan, 3],
        text=["x", "y", "z"],
        z=[1j, 2, 3],
        thing=np.array([{}, None, 3], dtype=object),
    )
    assert message(path, ["a", "b"]) == (
        "t.npz: the arrays differ in length, 3 in a and 4 in b; choose arrays that belong together"
    )
    assert message(path, ["c"]).startswith("t.npz, row 2, column 'c': the value is infinite;")
    assert message(path, ["a", "d"]).startswith("t.npz, row 2, column 'd': the value is missing;")
    np.testing.assert_array_equal(read(path, ["a", "d"], SKIP), [[0, 1], [2, 3]])
    assert message(path, ["text"]) == f"t.npz, row 1, column 'text': 'x' {TEXT}"
    assert message(path, ["z"]).startswith("t.npz, row 1, column 'z': '1j' is not a number;")
    for name in ("A", "thing"):
        assert message(path, [name]) == f"t.npz has no column {name!r}; choose among a, b, c, d, text, z"


def test_npz_damaged_or_foreign(tmp_path, npz, file):
    with open(npz(a=np.random.default_rng(0).normal(size=1000)), "rb") as stream:
        content = stream.read()
    hit = bytearray(content)
    hit[len(hit) // 2] ^= 255
    np.save(tmp_path / "array.npy", np.arange(3))
    for damaged in (content[:-30], content[: len(content) // 2], bytes(hit), (tmp_path / "array.npy").read_bytes()):
        assert message(file(damaged, "bad.npz")).startswith("bad.npz is damaged, or not of the kind")
    assert "no rows" in message(npz(a=np.empty(0)))


# Writing


COLUMNS = st.integers(0, 20).flatmap(
    lambda n: st.tuples(
        st.lists(finite, min_size=n, max_size=n).map(np.array),
        st.lists(st.integers(-(2**53), 2**53), min_size=n, max_size=n).map(lambda v: np.array(v, dtype=np.int64)),
    )
)


@same_folder
@given(st.lists(COLUMNS, max_size=4), st.sampled_from([".csv", ".tsv", ".parquet", ".CSV"]))
def test_what_is_written_is_read_again(tmp_path, chunks, suffix):
    path = str(tmp_path / f"predictions{suffix}")
    write_table(path, ["mean", "count, n"], iter(chunks))
    expected = np.concatenate([np.empty((0, 2)), *(np.column_stack(chunk) for chunk in chunks)])
    if len(expected) == 0:
        assert "no rows" in message(path)
    else:
        assert read(path).tobytes() == expected.tobytes()


def test_floats_have_the_digits_they_need_and_integers_stay_integers(tmp_path, capsys):
    columns = [np.array([0.1, 1 / 3]), np.array([1, -2]), np.array(["x", 'y"z'])]
    write_table("-", ["a", "n", "text"], [columns])
    expected = 'a,n,text\n0.1,1,x\n0.3333333333333333,-2,"y""z"\n'
    assert capsys.readouterr().out == expected
    write_table(str(tmp_path / "t.csv"), ["a", "n", "text"], [columns])
    assert (tmp_path / "t.csv").read_text() == expected


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_no_half_file_is_left(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    path.write_text("old")

    def failing():
        yield [np.zeros(3)]
        assert path.read_text() == "old"
        raise KeyError("midway")

    with pytest.raises(KeyError):
        write_table(str(path), ["a"], failing())
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"


def test_chunks_are_written_as_they_arrive(tmp_path):
    path = tmp_path / "t.csv"

    def chunks():
        for _ in range(50):
            yield [np.full(1000, 1 / 3)]
        (part,) = tmp_path.glob(".*.t.csv")
        assert part.stat().st_size > 500_000
        assert not path.exists()

    write_table(str(path), ["a"], chunks())
    assert len(path.read_text().splitlines()) == 50_001


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, told in (
        ("nowhere/t.csv", "there is no folder .*; make it, or save t.csv elsewhere"),
        ("folder.csv", "is a folder; name a file in it"),
        ("t.npz", "cannot be written; the name must end with one of .csv, .tsv, .parquet"),
        ("t.csv.gz", "cannot be written; the name must end with"),
        ("n" * 300 + ".csv", "cannot be written .*; choose another place"),
    ):
        with pytest.raises(TableError, match=told):
            write_table(str(tmp_path / name), ["a"], [[np.zeros(1)]])


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    for fault, told in (
        (
            OSError(errno.ENOSPC, "No space left on device"),
            r"/a.map cannot be written \(No space left on device\); choose",
        ),
        (OSError(errno.EIO, "Input/output error", "input.csv"), r"Input/output error: 'input.csv'"),
    ):
        with pytest.raises(OSError, match=told) as raised, replace_file(tmp_path / "a.map"):
            raise fault
        assert raised.value.errno == fault.errno
    with pytest.raises(OSError, match=r"/n{250}.map cannot be written \(File name too long\)"):  # as a temporary file
        write_file(tmp_path / f"{'n' * 250}.map", b"")
    with pytest.raises(OSError, match=r"/n{250} cannot be written"), locked(lock_of(tmp_path / f"{'n' * 250}"), "busy"):
        pass
    assert not list(tmp_path.iterdir())


def test_columns_that_do_not_fit_are_a_mistake_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_table(str(tmp_path / "t.csv"), ["a", "b"], [[np.zeros(2), np.zeros(1)]])
