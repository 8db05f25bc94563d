"""Tables: every dialect gives the same numbers, every fault is one sentence that says where and what to do."""

import csv
import gc
import gzip
import io
import os
import sys
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wgpr.io.tables import Chunk, Table, TableError, TableFormat, expand, kind_of, write_table

SKIP = TableFormat(missing="skip")
VALUES = np.array([[1.5, -2.0, 30.0], [4.25, 5e-3, -6.125]])
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
def standard_input(monkeypatch):
    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def read(paths, columns=None, format=None, chunk_rows=10_000):
    """All values at once."""
    table = Table([paths] if isinstance(paths, str) else paths, format)
    return np.concatenate([chunk.values for chunk in table.chunks(columns, chunk_rows)])


def message(paths, columns=None, format=None):
    """What the user is told, without the folder, once it is clear that it is one sentence that ends with an advice."""
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
    "comments": b"# made by hand\n\n# a,b\na,b,c\n1.5,-2.0,30\n  # well\n4.25,5e-3,-6.125\n#\n",
    "unbalanced quote in a comment": b'a,b,c\n# "so,"called\n1.5,-2.0,30\n4.25,5e-3,-6.125\n',
    "blank lines": b"\n\na,b,c\n\n1.5,-2.0,30\n  \n4.25,5e-3,-6.125\n\n",
    "byte order mark": b"\xef\xbb\xbfa,b,c\n1.5,-2.0,30\n4.25,5e-3,-6.125\n",
    "UTF-16": "a,b,c\r\n1.5,-2.0,30\r\n4.25,5e-3,-6.125\r\n".encode("utf-16"),
    "big-endian UTF-16": b"\xfe\xff" + "a;b;c\n1,5;-2,0;30\n4,25;5e-3;-6,125\n".encode("utf-16-be"),
    "compressed": gzip.compress(b"a,b,c\n1.5,-2.0,30\n4.25,5e-3,-6.125\n"),
    "plus signs and bare points": b"a,b,c\n+1.5,-2.,30\n4.25,.005,-6.125E+0\n",
}


@pytest.mark.parametrize("content", DIALECTS.values(), ids=DIALECTS.keys())
def test_every_dialect_gives_the_same_values(file, content):
    table = Table([file(content)])
    (chunk,) = table.chunks()
    assert table.names == chunk.names == ("a", "b", "c")
    np.testing.assert_array_equal(chunk.values, VALUES)


@pytest.mark.parametrize("content", DIALECTS.values(), ids=DIALECTS.keys())
def test_standard_input_is_text_of_any_dialect(standard_input, content):
    standard_input(content)
    table = Table(["-"])
    (chunk,) = table.chunks(["c", "a"])
    assert table.total_bytes is None
    assert table.bytes_read == len(content)
    assert chunk.file == "standard input"
    np.testing.assert_array_equal(chunk.values, VALUES[:, [2, 0]])


def test_standard_input_is_not_closed(standard_input):
    standard_input(DIALECTS["commas"])
    read("-")
    assert not sys.stdin.buffer.closed


def test_numbers_may_be_quoted_and_have_decimal_commas_between_commas(file):
    path = file('a,b\n"1,5","2,5"\n"3,5",4\n')
    values = read(path, format=TableFormat(separator=",", decimal=","))
    np.testing.assert_array_equal(values, [[1.5, 2.5], [3.5, 4.0]])
    path = file("a,b\n1,2\n3,4\n")
    np.testing.assert_array_equal(read(path, ["a"], TableFormat(separator=",", decimal=",")), [[1], [3]])


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


def test_names_may_be_in_latin_1_or_utf_8(file):
    assert Table([file("Höhe,b\n1,2\n".encode("latin-1"))]).names == ("Höhe", "b")
    assert Table([file("Höhe,b\n1,2\n".encode())]).names == ("Höhe", "b")


def test_a_name_may_have_a_separator_or_a_line_break(file):
    path = file('"depth, m","a\nb"\n1,2\n3,x\n')
    assert Table([path]).names == ("depth, m", "a\nb")
    assert message(path).startswith("survey.csv, line 4, column 'a\\nb': 'x' is not a number;")


def test_a_record_may_end_behind_its_block(file):
    path = file('a,note\n1,"x\ny\nz"\n2,"u\nv"\n3,w\n')
    chunks = list(Table([path]).chunks(["a"], chunk_rows=1))
    assert [chunk.values.item() for chunk in chunks] == [1, 2, 3]
    assert [chunk.first_line for chunk in chunks] == [2, 5, 7]


def test_header_is_found_out_or_told(file):
    path = file("2019,2020\n1,2\n")
    assert Table([path]).names == ("x1", "x2")
    assert Table([path], TableFormat(header=True)).names == ("2019", "2020")
    assert Table([file("1,NA,3\n4,5,6\n")]).names == ("x1", "x2", "x3")
    assert Table([file(",a,b\n0,5,6\n")]).names == ("", "a", "b")


def test_header_that_is_none(file):
    path = file("a,b\n1,2\n")
    assert message(path, format=TableFormat(header=False)).startswith("survey.csv, line 1, column 1: 'a' is not a num")


def test_separator_and_decimal_can_be_told(file):
    path = file("a:b\n1:2\n")
    np.testing.assert_array_equal(read(path, format=TableFormat(separator=":")), [[1, 2]])
    path = file("1,5 2,5\n")
    np.testing.assert_array_equal(read(path, format=TableFormat(decimal=",")), [[1.5, 2.5]])


@pytest.mark.parametrize(
    ("content", "names"),
    [
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
def test_separator_is_found_out(file, content, names):
    assert Table([file(content)]).names == names


def test_options_are_checked():
    for option in ({"separator": ",,"}, {"separator": ""}, {"decimal": ";"}, {"missing": "ignore"}):
        with pytest.raises(TableError, match=f"{next(iter(option))} must be"):
            TableFormat(**option)


def test_thousands_of_columns(file):
    values = np.arange(3 * 5000.0).reshape(3, 5000)
    path = file(pd.DataFrame(values).to_csv(index=False, header=[f"c{k}" for k in range(5000)]))
    np.testing.assert_array_equal(read(path), values)
    np.testing.assert_array_equal(read(path, ["c4999", "c1"]), values[:, [4999, 1]])


def test_many_comments_come_before_the_header(file):
    path = file("# a comment\n" * 1000 + "a,b\n1,2\n")
    (chunk,) = Table([path]).chunks()
    assert chunk.first_line == 1002


# Numbers


@pytest.mark.parametrize("cell", ["1_000", "\u0661", "0x10", "1e", "1d5", "1.2.3", "1 2", "--1", "nan0", "1.5m", "1j"])
def test_what_is_no_plain_decimal_number_is_refused(file, cell):
    told = message(file(f"a,b\n1,2\n3,{cell}\n"))
    assert told == f"survey.csv, line 3, column 'b': {cell!r} is not a number; correct it or choose another column"


@pytest.mark.parametrize("cell", ["1e400", "-1e400", "inf", "-Infinity"])
@pytest.mark.parametrize("format", [TableFormat(), SKIP])
def test_infinity_is_an_error_in_any_case(file, cell, format):
    told = message(file(f"a,b\n1,2\n3,{cell}\n"), format=format)
    assert told == "survey.csv, line 3, column 'b': the value is infinite; correct it or remove the row"


@pytest.mark.parametrize("cell", ["", "  ", '""', "NA", "n/a", "nan", "NaN", "-nan", "null", "NULL", "--"])
def test_rows_with_missing_values_are_errors_or_skipped(file, cell):
    path = file(f"a,b\n1,2\n3,{cell}\n5,6\n")
    assert message(path) == "survey.csv, line 3, column 'b': the value is missing; correct it or use --missing skip"
    table = Table([path], SKIP)
    (chunk,) = table.chunks()
    np.testing.assert_array_equal(chunk.values, [[1, 2], [5, 6]])
    assert chunk.lines.tolist() == [2, 4]
    assert (table.n_rows, table.n_skipped) == (2, 1)
    np.testing.assert_array_equal(read(path, ["a"]), [[1], [3], [5]])


def test_decimal_mark_that_was_not_found_out_is_told(file):
    path = file("a;b\n" + "1;2\n" * 300 + "1,5;2\n")
    assert message(path) == "survey.csv, line 302, column 'a': '1,5' is not a number; correct it or use --decimal ,"
    assert read(path, format=TableFormat(decimal=","))[-1, 0] == 1.5


@pytest.mark.parametrize("n_rows_between", [0, 20_000])
def test_points_are_no_decimal_marks_beside_commas(file, n_rows_between):
    path = file("a;b\n1,5;2,5\n" + "1;2\n" * n_rows_between + "1.234;2\n")
    told = "column 'a': '1.234' is not a number; correct it or use --decimal ."
    assert message(path, format=TableFormat(decimal=",")) == f"survey.csv, line {3 + n_rows_between}, {told}"


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
)


@same_folder
@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5),
    st.sampled_from("\t|;"),
    st.sampled_from(".,"),
)
def test_plain_blocks_and_records_agree(tmp_path, rows, separator, decimal):
    """The fast way and the careful way are the same function; a comment with a quote forces the careful one."""
    lines = ["a" + separator + "b", *(separator.join(row) for row in rows)]
    outcomes = []
    for name, last in (("fast.csv", ""), ("careful.csv", '# "\n')):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n" + last, encoding="utf-8")
        outcomes.append(outcome(path, TableFormat(separator=separator, decimal=decimal, header=True)))
    assert outcomes[0] == outcomes[1]


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


def test_ragged_rows(file):
    advice = "correct the line or choose another --separator"
    long, short = file("a,b\n1,2\n\n3,4,5\n"), file('a,b\n1,"2\n"\n3\n', "short.csv")
    assert message(long) == f"survey.csv, line 4: the number of cells is 3, and 2 in the first row; {advice}"
    assert message(short, ["a"]) == f"short.csv, line 4: the number of cells is 1, and 2 in the first row; {advice}"
    assert message(file("1,2\n3,4,x\n"), [1, 2]).startswith("survey.csv, line 2: the number of cells is 3,")


def test_text_in_a_column_of_numbers(file):
    told = message(file('lon,depth\n1,"2"\n# so\n"3",deep\n'), ["depth"])
    assert told == "survey.csv, line 4, column 'depth': 'deep' is not a number; correct it or choose another column"


def test_columns_without_names_have_numbers_in_messages(file):
    assert "line 2, column 2: 'x'" in message(file("1,2\n3,x\n"))


def test_long_cells_are_shown_in_part(file):
    assert len(message(file(f"a,b\n1,{'x' * 10_000}\n"))) < 150


def test_quotes_without_end(file):
    advice = "close each quote, and double those inside of quotes"
    for rest in ('3,"x\n5,y\n', '3,"x\n5,"y\n', '3,"x" y\n', '3,"' + "x" * 200_000 + "\n"):
        told = message(file('a,note\n1,"fine"\n' + rest), ["a"])
        assert told == f"survey.csv, line 3: a quoted cell has no proper end; {advice}"


def test_nul_bytes(file):
    told = "a NUL byte does not belong in a text; save the table as text in UTF-8"
    assert message(file(b"a,note\n1,x\n2,y\0\n"), ["a"]) == f"survey.csv, line 3: {told}"
    assert message(file("a,b\n1,2\n".encode("utf-16-le"))) == f"survey.csv, line 1: {told}"


def test_empty_files_and_files_without_rows(file):
    for content in ("", "\n\n", "# nothing\n", b"\xef\xbb\xbf", gzip.compress(b"")):
        assert message(file(content)) == "survey.csv is empty; give a file with at least one row"
    assert message(file("a,b\n")) == "survey.csv: there are no rows; give at least one row of numbers"
    assert message(file("a,b\n1,\n,2\n"), format=SKIP).startswith("survey.csv: all 2 rows have missing values;")


def test_damaged_files(file):
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (k, k**3) for k in range(20_000)))
    told = "survey.csv.gz is damaged, or not of the kind that its name says; check how it was made"
    assert message(file(whole[: len(whole) // 2], "survey.csv.gz")) == told
    assert message(file(whole[:4], "survey.csv.gz")) == told
    assert message(file(whole[:50] + b"\xff" * 9 + whole[59:], "survey.csv.gz")) == told
    assert message(file("a,b\n1,2\n".encode("utf-16")[:-1])) == told.replace(".gz", "")


def test_files_that_cannot_be_read(tmp_path, file, monkeypatch):
    nowhere = str(tmp_path / "nowhere.csv")
    assert message(nowhere) == "nowhere.csv does not exist; check the name and the folder"
    assert "is a folder; name the files in it" in message(str(tmp_path))
    assert message(file("", "a.xlsx")) == (
        "a.xlsx is of no known kind; the name must end with .csv, .tsv, .txt, .xyz, "
        ".csv.gz, .tsv.gz, .txt.gz, .xyz.gz, .parquet or .npz"
    )
    path = file(DIALECTS["commas"])
    monkeypatch.setattr("builtins.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert message(path) == "survey.csv may not be read; ask for permission to read it"
    with pytest.raises(TableError, match="there is no file to read"):
        Table([])


# Columns


def test_columns_by_name_and_number(file):
    path = file("a,2,b\n10,20,30\n")
    np.testing.assert_array_equal(read(path, ["b", "a"]), [[30, 10]])
    np.testing.assert_array_equal(read(path, ["3", 1]), [[30, 10]])
    np.testing.assert_array_equal(read(path, ["2"]), [[20]])
    np.testing.assert_array_equal(read(path, ["a", "a"]), [[10, 10]])
    np.testing.assert_array_equal(read(file("3,a\n10,20\n"), [3], TableFormat(header=True)), [[10]])


def test_columns_that_are_not_there(file):
    path = file("lon,lat\n1,2\n")
    for column in ("depth", "0", "3", 3, "-1", "\uff11"):
        assert message(path, [column]) == f"survey.csv has no column {str(column)!r}; choose among lon, lat"
    assert message(path, []) == "survey.csv: there is no column to use; choose among lon, lat"
    assert message(file(",".join(f"c{k}" for k in range(100)) + "\n"), ["x"]).endswith("c18, c19 and 80 more")


def test_columns_are_checked_before_anything_is_read(file):
    with pytest.raises(TableError, match="has no column 'z'"):
        Table([file("a,b\n1,2\n")]).chunks(["z"])


def test_names_that_are_there_twice_are_errors_only_if_used(file):
    path = file("a,b,b\n1,2,3\n")
    told = "survey.csv has several columns 'b'; rename them, or choose columns by number"
    assert message(path) == message(path, ["b"]) == told
    np.testing.assert_array_equal(read(path, ["a", 3]), [[1, 3]])


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


def test_messages_name_standard_input(standard_input):
    standard_input(b"a,b\n1,x\n")
    assert message("-", ["z"]) == "standard input has no column 'z'; choose among a, b"
    standard_input(b"a,b\n1,x\n")
    assert message("-").startswith("standard input, line 2, column 'b': 'x' is not a number;")
    standard_input(b"a,b\n")
    assert message("-").startswith("standard input: there are no rows;")


def test_expand_sorts_as_people_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("line10.csv", "line2.csv", "line1.csv", "a[1].csv", "b.txt"):
        (tmp_path / name).touch()
    (tmp_path / "line3.csv").mkdir()
    assert expand(["line*.csv"]) == ["line1.csv", "line2.csv", "line10.csv"]
    assert expand(["b.txt", "-", "a[1].csv"]) == ["b.txt", "-", "a[1].csv"]
    assert expand(["**/b.*"]) == ["b.txt"]
    for pattern in ("none*.csv", "nowhere.csv"):
        with pytest.raises(TableError, match="no file matches "):
            expand([pattern])


# Streaming


def test_chunks_and_progress(file):
    path = file("a,b\n" + "".join(f"{k},{k}\n" for k in range(100_000)))
    table = Table([path, path])
    assert table.total_bytes == 2 * os.path.getsize(path)
    progress = []
    for chunk in table.chunks(["b"], chunk_rows=30_000):
        assert isinstance(chunk, Chunk)
        assert chunk.values[0, 0] == chunk.first_line - 2
        progress.append((len(chunk.values), table.bytes_read))
    assert [n for n, _ in progress] == [30_000, 30_000, 30_000, 10_000] * 2
    assert sorted(set(progress), key=lambda pair: pair[1])[-1][1] == table.total_bytes == table.bytes_read
    assert table.n_rows == 200_000


@pytest.mark.parametrize("line", ["1.5,2.5,-3.5\n", '1.5,"2.5",\n'])
def test_memory_is_flat(tmp_path, line):
    assert peak_memory(tmp_path, line, 60_000) < 1.3 * peak_memory(tmp_path, line, 6_000)


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


def test_unused_columns_need_no_memory(file):
    path = file(",".join(f"c{k}" for k in range(2_000)) + "\n" + ("1.5," * 1_999 + "2\n") * 2_000)
    tracemalloc.start()
    try:
        assert read(path, ["c1"]).shape == (2_000, 1)
        assert tracemalloc.get_traced_memory()[1] < 3 * 4e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dialect", ["commas", "compressed", "UTF-16"])
def test_files_are_closed(file, dialect):
    """An open file that is forgotten is a ResourceWarning, and with that an error."""
    path = file(DIALECTS[dialect])
    Table([path])
    read(path)
    chunks = Table([path]).chunks(chunk_rows=1)
    next(chunks)
    chunks.close()
    gc.collect()


# Parquet


def write_parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_parquet_numbers_of_all_kinds(tmp_path):
    columns = {
        "int": pa.array([1, 2**60 + 1], pa.int64()),
        "bool": [True, False],
        "decimal": [Decimal("1.25"), Decimal("-3.50")],
        "float": pa.array([0.5, 1.5], pa.float32()),
        "half": pa.array(np.array([0.5, 2], np.float16)),
        "dotted.name": pa.array([7, 8], pa.uint8()),
        "text": ["a", "b"],
    }
    path = write_parquet(tmp_path / "t.parquet", columns)
    names = list(columns)[:-1]
    expected = [[1, 1, 1.25, 0.5, 0.5, 7], [2.0**60, 0, -3.5, 1.5, 2, 8]]
    np.testing.assert_array_equal(read(path, names), expected)
    np.testing.assert_array_equal(read(path, ["int", "float", "int"]), [[1, 0.5, 1], [2.0**60, 1.5, 2.0**60]])


def test_parquet_is_streamed(tmp_path):
    values = np.random.default_rng(0).normal(size=(50_000, 2))
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), path, row_group_size=20_000)
    table = Table([path])
    chunks, progress = [], []
    for chunk in table.chunks(chunk_rows=7_000):
        chunks.append(chunk)
        progress.append(table.bytes_read / table.total_bytes)
    np.testing.assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), values)
    assert max(len(chunk.values) for chunk in chunks) <= 7_000
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert chunks[1].first_line == len(chunks[0].values) + 1


@pytest.mark.parametrize("rows_in_a_group", [20_000, 2_000_000])
def test_parquet_memory_is_flat(tmp_path, rows_in_a_group):
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"a": np.random.default_rng(0).normal(size=2_000_000)}), path, rows_in_a_group)
    most = max(pa.total_allocated_bytes() for _ in Table([path]).chunks())
    assert most < os.path.getsize(path) / 3


def test_parquet_nulls_are_missing(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", {"a": [1, None, 3], "b": [4.0, 5.0, float("nan")], "c": [None] * 3})
    told = "t.parquet, row 2, column 'a': the value is missing; correct it or use --missing skip"
    assert message(path, ["a", "b"]) == told
    np.testing.assert_array_equal(read(path, ["a", "b"], SKIP), [[1, 4]])
    assert "all 3 rows have missing values" in message(path, ["c"], SKIP)


def test_parquet_faults(tmp_path, file):
    path = write_parquet(tmp_path / "t.parquet", {"a": [1], "text": ["x"], "inf": [float("inf")]})
    told = "t.parquet, column 'text': string is not a type of number; choose another column"
    assert message(path, ["text"]) == message(path) == told
    assert message(path, ["inf"]).startswith("t.parquet, row 1, column 'inf': the value is infinite;")
    assert message(path, ["z"]) == "t.parquet has no column 'z'; choose among a, text, inf"
    content = (tmp_path / "t.parquet").read_bytes()
    for damaged in (content[:-20], b"", b"a,b\n1,2\n"):
        assert message(file(damaged, "bad.parquet")).startswith("bad.parquet is damaged, or not of the kind")


def test_parquet_names_that_are_there_twice(tmp_path):
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([k]) for k in range(3)], names=["a", "b", "b"]), path)
    assert read(path, ["a"]).tolist() == [[0]]
    assert "t.parquet has several columns 'b';" in message(path, ["a", 3])


def test_only_parquet_needs_pyarrow(tmp_path, file, monkeypatch):
    path = write_parquet(tmp_path / "t.parquet", {"a": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    np.testing.assert_array_equal(read(file(DIALECTS["commas"])), VALUES)
    assert message(path) == 'Parquet files need pyarrow; install it with pip install "wgpr[parquet]"'
    with pytest.raises(TableError, match="install it with"):
        write_table(str(tmp_path / "out.parquet"), ["a"], [])


# NPZ


def write_npz(path, **arrays):
    np.savez_compressed(path, **arrays)
    return str(path)


def test_npz_of_vectors_and_matrices(tmp_path):
    path = write_npz(tmp_path / "t.npz", lon=[1, 2], Z=np.array([[3, 4], [5, 6.5]]), text=["a", "b"], scale=2.0)
    assert Table([path]).names == ("lon", "Z:1", "Z:2")
    np.testing.assert_array_equal(read(path), [[1, 3, 4], [2, 5, 6.5]])
    np.testing.assert_array_equal(read(path, ["Z:2", "lon"]), [[4, 1], [6.5, 2]])


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_npz_of_inputs_and_target(tmp_path, shape):
    X, y = np.arange(6.0).reshape(3, 2), np.array([True, False, True])
    path = write_npz(tmp_path / "t.npz", X_test=np.zeros((9, 2)), y=y.reshape(shape), X=np.asfortranarray(X))
    assert Table([path]).names == ("X1", "X2", "y")
    np.testing.assert_array_equal(read(path, chunk_rows=2), np.column_stack([X, y]))
    np.testing.assert_array_equal(read(path, ["X:2", "X1"]), X[:, ::-1])
    assert read(path, ["X_test:1"]).shape == (9, 1)


def test_npz_with_feature_names(tmp_path):
    X, y = np.ones((2, 2)), np.zeros(2)
    path = write_npz(tmp_path / "t.npz", X=X, y=y, feature_names=["lon", "lat"])
    table = Table([path])
    assert table.names == ("lon", "lat", "y")
    (chunk,) = table.chunks(["y", "lat", "X:1"])
    assert chunk.names == ("y", "lat", "X:1")
    assert table.bytes_read == table.total_bytes
    wrong = write_npz(tmp_path / "wrong.npz", X=X, y=y, feature_names=["lon"])
    assert message(wrong) == "wrong.npz: 1 feature_names for 2 columns of X; correct them"
    twice = write_npz(tmp_path / "twice.npz", X=X, y=y, feature_names=["lon", "y"])
    assert message(twice) == "twice.npz: the names lon, y, y are not distinct; change feature_names"


def test_npz_faults(tmp_path, file):
    path = write_npz(
        tmp_path / "t.npz",
        a=np.arange(3),
        b=np.arange(4),
        c=[1, np.nan, np.inf],
        d=[1, np.nan, 3],
        text=["x", "y", "z"],
        z=[1j, 2, 3],
        thing=np.array([{}, None, 3], dtype=object),
    )
    assert message(path, ["a", "b"]) == (
        "t.npz: the arrays differ in length, 3 in a and 4 in b; choose arrays that belong together"
    )
    assert message(path, ["c"]).startswith("t.npz, row 3, column 'c': the value is infinite;")
    assert message(path, ["a", "d"]).startswith("t.npz, row 2, column 'd': the value is missing;")
    np.testing.assert_array_equal(read(path, ["a", "d"], SKIP), [[0, 1], [2, 3]])
    for name, type_ in (("text", "<U1"), ("z", "complex128"), ("thing", "object")):
        assert (
            message(path, [name]) == f"t.npz, column {name!r}: {type_} is not a type of number; choose another column"
        )
    assert message(path, ["A"]).startswith("t.npz has no column 'A'; choose among a, b, c, d, text")


def test_npz_damaged_or_foreign(tmp_path, file):
    write_npz(tmp_path / "t.npz", a=np.random.default_rng(0).normal(size=1000))
    content = (tmp_path / "t.npz").read_bytes()
    hit = bytearray(content)
    hit[len(hit) // 2] ^= 255
    np.save(tmp_path / "array.npy", np.arange(3))
    for damaged in (content[:-30], content[: len(content) // 2], bytes(hit), (tmp_path / "array.npy").read_bytes()):
        assert message(file(damaged, "bad.npz")).startswith("bad.npz is damaged, or not of the kind")
    assert "no rows" in message(write_npz(tmp_path / "empty.npz", a=np.empty(0)))


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
    for name, told in (
        ("nowhere/t.csv", "cannot be written; name a file in a folder that exists"),
        ("t.npz", "cannot be written; the name must end with .csv, .tsv or .parquet"),
        ("t.csv.gz", "cannot be written; the name must end with"),
        ("n" * 300 + ".csv", "cannot be written .*; choose another place"),
    ):
        with pytest.raises(TableError, match=told):
            write_table(str(tmp_path / name), ["a"], [[np.zeros(1)]])
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="name a file in a folder"):
        write_table(str(tmp_path / "folder.csv"), ["a"], [])


def test_columns_that_do_not_fit_are_a_mistake_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_table(str(tmp_path / "t.csv"), ["a", "b"], [[np.zeros(2), np.zeros(1)]])


def test_kind_is_known_by_the_suffix():
    assert [kind_of(name) for name in ("-", "a.CSV", "b.tsv.gz", "c.parquet", "d.npz")] == [
        *("text", "text", "text", "parquet", "npz")
    ]
