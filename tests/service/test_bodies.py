"""Tables in requests and answers: three formats, errors with line and column, and gzip."""

import gzip
import json
import tracemalloc

import numpy as np
import pytest

from journals import random_rows
from wgpr.service import bodies
from wgpr.service.bodies import COLUMNS, CSV, LINES, acceptable, decompressed, read_table, table_format, write_table
from wgpr.service.errors import ServiceError

NAMES = ["east", "north", "depth"]
ROWS = random_rows(20)
KINDS = [CSV, LINES, COLUMNS]


def encoded(kind, rows=ROWS, names=NAMES):
    return write_table(kind, names, list(np.asarray(rows).T)).encode()


def refusal(data, kind, *, most=1000):
    """The error of a body."""
    with pytest.raises(ServiceError) as refused:
        read_table(data, kind, NAMES, most)
    return refused.value


# Formats


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_to_the_bit(kind):
    rows = np.concatenate([ROWS, [[0.1 + 0.2, -0.0, 5e-324], [1e100, -1e-300, 12345678.901234567]]])
    values, lines = read_table(encoded(kind, rows), kind, NAMES, 1000)
    assert values.tobytes() == rows.tobytes()
    assert lines == [line + (kind == CSV) for line in range(1, len(rows) + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_found_by_name_and_others_are_ignored(kind):
    data = encoded(kind, np.column_stack([ROWS[:, ::-1], ROWS[:, 0]]), ["depth", "north", "east", "time"])
    np.testing.assert_array_equal(read_table(data, kind, NAMES, 1000)[0], ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_and_a_byte_order_mark_are_fine(kind):
    rows = [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_array_equal(read_table(b"\xef\xbb\xbf" + encoded(kind, rows), kind, NAMES, 1000)[0], rows)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blank_lines_count_but_are_no_rows(end):
    for kind, text in [(CSV, "east,north,depth\n1,2,3\n\n4,5,6\n\n"), (LINES, encoded(LINES, [[1, 2, 3]]).decode())]:
        text = text + '\n{"east": 4, "north": 5, "depth": 6}\n\n' if kind == LINES else text
        values, lines = read_table(text.replace("\n", end).encode(), kind, NAMES, 1000)
        np.testing.assert_array_equal(values, [[1, 2, 3], [4, 5, 6]])
        assert lines == ([2, 4] if kind == CSV else [1, 3])


def test_quoted_cells_over_several_lines_count_as_lines():
    text = 'east,note,north,depth\n1,"a\nb, c",2,3\n4,x,5,deep\n'
    problem = refusal(text.encode(), CSV)
    assert (problem.status_code, problem.more) == (422, {"line": 4, "column": "depth"})


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/csv", CSV),
        ("Text/CSV; charset=utf-8", CSV),
        ("application/x-ndjson", LINES),
        ("application/ndjson", LINES),
        ("application/jsonl", LINES),
        ("application/json;charset=UTF-8", COLUMNS),
    ],
)
def test_content_types(content_type, kind):
    assert table_format(content_type) == kind


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/xml", "multipart/form-data", "csv", ";"])
def test_other_content_types_are_refused(content_type):
    with pytest.raises(ServiceError, match=r"must be text/csv, application/x-ndjson or application/json") as refused:
        table_format(content_type)
    assert refused.value.status_code == 415


def test_answers_have_the_columns_in_their_order():
    columns = [np.array([1.5, 2.0]), np.array([3, 4])]
    assert write_table(CSV, ["mean", "model"], columns) == "mean,model\n1.5,3\n2.0,4\n"
    assert write_table(LINES, ["mean", "model"], columns) == '{"mean": 1.5, "model": 3}\n{"mean": 2.0, "model": 4}\n'
    assert json.loads(write_table(COLUMNS, ["mean", "model"], columns)) == {"mean": [1.5, 2.0], "model": [3, 4]}


@pytest.mark.parametrize("kind", [LINES, COLUMNS])
def test_an_answer_that_is_no_number_is_an_error(kind):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_table(kind, ["mean"], [np.array([np.nan])])


# Errors

HEAD = "east,north,depth\n"
BAD = {
    "text": (CSV, HEAD + "1,2,3\n1,x,3\n", 3, "north", "'x' is not a number"),
    "missing": (CSV, HEAD + "1,2,\n", 2, "depth", "the value is missing"),
    "not a number": (CSV, HEAD + "1,2,nan\n", 2, "depth", "is not a number"),
    "infinite": (CSV, HEAD + "1,2,3\n4,inf,6\n", 3, "north", "inf is not a finite number"),
    "too large": (CSV, HEAD + "1,2,1e200\n", 2, "depth", "1e+200 is not a finite number"),
    "overflow": (CSV, HEAD + "1,2,1e999\n", 2, "depth", "is not a finite number"),
    "null": (LINES, '{"east": 1, "north": 2, "depth": null}', 1, "depth", "the value is missing"),
    "left out": (LINES, '{"east": 1, "north": 2, "depth": 3}\n{"east": 1, "depth": 2}', 2, "north", "is missing"),
    "truth": (LINES, '{"east": true, "north": 2, "depth": 3}', 1, "east", "'True' is not a number"),
    "string": (LINES, '{"east": "1", "north": 2, "depth": 3}', 1, "east", "'1' is not a number"),
    "list": (LINES, '{"east": [1], "north": 2, "depth": 3}', 1, "east", "'[1]' is not a number"),
    "huge": (LINES, f'{{"east": 1, "north": 1{"0" * 400}, "depth": 3}}', 1, "north", "is not a number"),
    "in a list": (COLUMNS, '{"east": [1, 2], "north": [1, "a"], "depth": [1, 2]}', 2, "north", "'a' is not a number"),
    "nested": (COLUMNS, '{"east": [[1]], "north": [1], "depth": [1]}', 1, "east", "'[1]' is not a number"),
}


@pytest.mark.parametrize(("kind", "text", "line", "column", "fault"), BAD.values(), ids=BAD)
def test_a_bad_cell_is_named_by_line_and_column(kind, text, line, column, fault):
    problem = refusal(text.encode(), kind)
    assert (problem.status_code, problem.more) == (422, {"line": line, "column": column})
    assert problem.detail.startswith(f"line {line}, column '{column}': ")
    assert fault in problem.detail
    assert problem.detail.endswith("; correct it and send all rows again")


BAD_TABLES = {
    "no rows": (CSV, HEAD, "the body has no rows"),
    "nothing": (CSV, "", "the body is empty; send at least one row"),
    "no lines": (LINES, "\n\n", "the body is empty"),
    "empty lists": (COLUMNS, '{"east": [], "north": [], "depth": []}', "the body has no rows"),
    "no column": (CSV, "east,depth\n1,2\n", "column 'north' is not in the first line"),
    "column twice": (CSV, "east,north,depth,east\n1,2,3,4\n", "column 'east' is twice in the first line"),
    "more cells": (CSV, HEAD + "1,2,3\n1,2,3,4\n", "line 3 has 4 cells and the first line 3"),
    "fewer cells": (CSV, HEAD + "1,2\n", "line 2 has 2 cells and the first line 3"),
    "open quote": (CSV, HEAD + '1,2,"3\n', "is not CSV"),
    "no object": (LINES, "[1, 2, 3]", "line 1 must be an object"),
    "no JSON": (LINES, '{"east": 1, "north": 2, "depth": 3}\n{"east"', "line 2 is not JSON"),
    "NaN of JSON": (LINES, '{"east": NaN, "north": 2, "depth": 3}', "line 1 is not JSON (NaN is no number"),
    "columns as a list": (COLUMNS, "[]", "must be an object of lists"),
    "column is no list": (COLUMNS, '{"east": 1, "north": [1], "depth": [1]}', "column 'east' is missing or no list"),
    "unequal lists": (COLUMNS, '{"east": [1, 2], "north": [1], "depth": [1]}', "must be equally long"),
    "Infinity": (COLUMNS, '{"east": [Infinity], "north": [1], "depth": [1]}', "is not JSON (Infinity is no number"),
    "deep": (COLUMNS, "[" * 100_000, "is not JSON"),
    "long number": (COLUMNS, f'{{"east": [{"1" * 5000}], "north": [1], "depth": [1]}}', "is not JSON"),
    "NUL": (CSV, HEAD + "1,2,3\0\n", "the body has a NUL character"),
}


@pytest.mark.parametrize(("kind", "text", "fault"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_refused(kind, text, fault):
    problem = refusal(text.encode(), kind)
    assert problem.status_code == (400 if "NUL" in fault else 422)
    assert fault in problem.detail


def test_a_long_cell_is_not_repeated():
    problem = refusal(HEAD.encode() + b"1,2," + b"x" * 10_000 + b"\n", CSV)
    assert len(problem.detail) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_other_encodings_are_refused(kind):
    problem = refusal("øst".encode("latin-1"), kind)
    assert problem.status_code == 400
    assert "byte 0 of the body is not UTF-8" in problem.detail


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_rows_are_refused(kind):
    assert len(read_table(encoded(kind), kind, NAMES, 20)[0]) == 20
    problem = refusal(encoded(kind), kind, most=19)
    assert (problem.status_code, problem.detail) == (413, "the body has more than 19 rows; send it in parts")


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e-20, 1e20])
def test_a_bad_weight_is_named(weight):
    with pytest.raises(ServiceError, match=r"line 8, column 'w': .* is no weight, which is between") as refused:
        bodies.check_weights(np.array([1.0, weight]), [7, 8], "w")
    assert refused.value.more == {"line": 8, "column": "w"}


# gzip


def test_gzip_is_undone():
    data = encoded(CSV)
    assert decompressed(gzip.compress(data), "gzip", len(data)) == data
    assert decompressed(data, "", len(data)) == decompressed(data, "identity", len(data)) == data


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd", "x"])
def test_other_compressions_are_refused(encoding):
    with pytest.raises(ServiceError, match="compressed by gzip only") as refused:
        decompressed(b"", encoding, 1000)
    assert refused.value.status_code == 415


@pytest.mark.parametrize("cut", [1, 5, 9, 30, -9, -5, -1])
def test_a_cut_stream_is_refused(cut):
    with pytest.raises(ServiceError, match="gzip stream; send it again") as refused:
        decompressed(gzip.compress(encoded(CSV))[:cut], "gzip", 10**6)
    assert refused.value.status_code == 400


def test_a_damaged_stream_is_refused():
    data = bytearray(gzip.compress(encoded(CSV)))
    data[-6] ^= 1  # of the check sum
    for each in (bytes(data), b"no gzip", encoded(CSV)):
        with pytest.raises(ServiceError, match="gzip stream; send it again"):
            decompressed(each, "gzip", 10**6)


def test_a_body_that_becomes_too_large_is_refused():
    with pytest.raises(ServiceError, match="more than 999 bytes; send it in parts") as refused:
        decompressed(gzip.compress(bytes(1000)), "gzip", 999)
    assert refused.value.status_code == 413


def test_a_bomb_is_refused_before_it_fills_the_memory():
    bomb = gzip.compress(bytes(50 * 2**20), compresslevel=1)
    tracemalloc.start()
    try:
        with pytest.raises(ServiceError) as refused:
            decompressed(bomb, "gzip", 2**20)
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()
    assert refused.value.status_code == 413


# What the client likes


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "a/x"),
        ("*/*", "a/x"),
        ("b/y", "b/y"),
        ("b/*", "b/y"),
        ("a/x;q=0.5, b/y", "b/y"),
        ("c/z, b/y;q=0.1", "b/y"),
        ("B/Y", "b/y"),
        ("a/x;q=0, */*;q=0.1", "b/y"),
    ],
)
def test_the_answer_is_what_the_client_likes_best(accept, kind):
    assert acceptable(accept, ["a/x", "b/y"]) == kind


@pytest.mark.parametrize("accept", ["c/z", "a/x;q=0", "a/x;q=no"])
def test_nothing_acceptable_is_said(accept):
    with pytest.raises(ServiceError, match="the answer can be a/x, b/y; name one of them in Accept") as refused:
        acceptable(accept, ["a/x", "b/y"])
    assert refused.value.status_code == 406
