"""The formats that WGPR reads: good files, how they are read, and the ways to make hostile files of them."""

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import file_mutants as make
import nmea_logs
import wgpr
from common import ROOT
from file_mutants import BYTES, MAPS, TEXT, Way
from streams import queries, travelling
from wgpr.cli.console import Interruptions
from wgpr.cli.lines import LineError, LineParser, format_answer, read_lines
from wgpr.cli.saving import journal_of, map_writer
from wgpr.io.coordinates import coordinates, coordinates_of
from wgpr.io.grids import predict_at
from wgpr.io.rows import learn_rows
from wgpr.io.tables import Table, TableFormat
from wgpr.planning.files import geojson, read_expectation, read_polygons
from wgpr.planning.plan import mean_std, plan

COLUMNS = ["east", "north", "depth"]
LAKE = (-76.3, 44.5)


class Format(NamedTuple):
    """originals : good files; named : what an error must call the file.

    read : reads bytes in a folder by the functions that commands use, and gives numbers that must be finite.
    ways : to make hostile files; rare : ways that take long, used once each.
    """

    originals: Callable[[], Sequence[bytes]]
    read: Callable[[bytes, Path], Iterable[Any]]
    named: str
    ways: Sequence[Way]
    rare: Sequence[Way] = ()


# Maps


@cache
def lake() -> Any:
    """A map in degrees, with its coordinate reference system."""
    X, y = travelling(150)
    model = wgpr.WGPRegressor(random_state=0)
    model.crs_ = coordinates_of("EPSG:4326", ["longitude", "latitude"])
    rows = np.column_stack([LAKE + 0.001 * X, y])
    learn_rows(model, rows, None, ["longitude", "latitude", "depth"])
    return model


@cache
def pond() -> Any:
    """A map without a coordinate reference system."""
    X, y = travelling(150)
    return wgpr.WGPRegressor(random_state=0).partial_fit(pd.DataFrame(X, columns=COLUMNS[:2]), y)


def maps() -> list[bytes]:
    old = [path.read_bytes() for path in sorted((ROOT / "tests" / "maps").glob("*.map")) if "compact" not in path.name]
    return [lake().to_bytes(), pond().to_bytes(), *old]


def compact_maps() -> list[bytes]:
    old = [path.read_bytes() for path in sorted((ROOT / "tests" / "maps").glob("*compact.map"))]
    return [lake().to_bytes(compact=True), pond().to_bytes(compact=True), *old]


def read_map(data: bytes, folder: Path) -> list[Any]:
    path = folder / "lake.map"
    path.write_bytes(data)
    return answers(wgpr.load(path))


def answers(model: Any) -> list[Any]:
    """Predictions at a few places; they also show whether names and coordinates can be used."""
    if coordinates(model) is not None:
        return list(predict_at(model, LAKE + 0.001 * queries(5), return_std=True))
    if not model.n_models_:
        return [model.n_samples_seen_]
    X = queries(5, model.n_features_in_)
    names = getattr(model, "feature_names_in_", None)
    return list(model.predict(X if names is None else pd.DataFrame(X, columns=names), return_std=True))


def differences() -> list[bytes]:
    X, y = travelling(300)
    later = wgpr.apply(pond(), wgpr.diff(pond(), pond()))
    later.partial_fit(pd.DataFrame(X[150:], columns=COLUMNS[:2]), y[150:])
    return [wgpr.diff(pond(), later)]


def read_difference(data: bytes, folder: Path) -> list[Any]:
    return answers(wgpr.apply(pond(), data))


# Journals


@cache
def _journal_files() -> tuple[bytes, bytes, bytes, bytes]:
    """A map, the database of its journal and the log of that, as a kill leaves them; and the database when closed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lake.map"
        path.write_bytes(pond().to_bytes())
        X, y = travelling(30, seed=1)
        with map_writer(path, continues=True) as writer:
            for first in range(0, 30, 10):
                writer.keep(np.column_stack([X, y])[first : first + 10], pond(), COLUMNS)
            killed = path.read_bytes(), journal_of(path).read_bytes(), _log_of(path).read_bytes()
        return *killed, journal_of(path).read_bytes()


def _log_of(path: Path) -> Path:
    return journal_of(path).with_name(f"{journal_of(path).name}-wal")


def read_journal(data: bytes, folder: Path) -> list[Any]:
    return _recovered(folder, data, None)


def read_log_of_journal(data: bytes, folder: Path) -> list[Any]:
    return _recovered(folder, _journal_files()[1], data)


def _recovered(folder: Path, database: bytes, log: bytes | None) -> list[Any]:
    """What `wgpr update` makes of a map and its journal."""
    path = folder / "lake.map"
    for file in folder.iterdir():
        file.unlink()
    path.write_bytes(_journal_files()[0])
    journal_of(path).write_bytes(database)
    if log is not None:
        _log_of(path).write_bytes(log)
    with map_writer(path, continues=True) as writer:
        return answers(writer.load())


# Tables


def _frame() -> pd.DataFrame:
    X, y = travelling(60)
    return pd.DataFrame(np.column_stack([X, y]).round(4), columns=COLUMNS)


def csv_tables() -> list[bytes]:
    quoted = _frame().assign(note='a "word", or two\nlines').to_csv(index=False)
    return [
        _frame().to_csv(index=False).encode(),
        quoted.encode(),
        _frame().to_csv(index=False, sep=";", decimal=",").encode(),
    ]


def tsv_tables() -> list[bytes]:
    return [
        _frame().to_csv(index=False, sep="\t").encode(),
        _frame().to_csv(index=False, sep=" ", header=False).encode(),
    ]


def parquet_tables() -> list[bytes]:
    return [_frame().to_parquet(index=False), _frame().to_parquet(index=False, compression="gzip")]


def npz_tables() -> list[bytes]:
    files = [io.BytesIO(), io.BytesIO()]
    X, y = travelling(60)
    np.savez(files[0], X=X, y=y, crs=np.array("EPSG:32618"))
    np.savez_compressed(files[1], east=X[:, 0], north=X[:, 1], depth=y)
    return [file.getvalue() for file in files]


def reader_of(name: str) -> Callable[[bytes, Path], list[Any]]:
    """A reader of tables with this name. Half of the files are read with `--missing skip`, by their length."""

    def read(data: bytes, folder: Path) -> list[Any]:
        path = folder / name
        path.write_bytes(data)
        table = Table([str(path)], TableFormat(missing="skip" if len(data) % 2 else "error"))
        columns = COLUMNS if {*COLUMNS} <= {*table.names} else None
        table.peek(table.names[:1])
        return [chunk.values.max() for chunk in table.chunks(columns)]

    return read


# Streams and logs


def streams() -> list[bytes]:
    rows = _frame().to_json(orient="records", lines=True).encode()
    lists = "".join(
        json.dumps({"x": row[:2], "y": row[2], "id": k}) + "\n" for k, row in enumerate(_frame().values.tolist())
    )
    return [rows, lists.encode(), _frame().to_csv(index=False).encode()]


def read_stream(data: bytes, folder: Path) -> list[Any]:
    """The rows and queries of `wgpr stream`; lines with an error are left out, as the command does."""
    path, found = folder / "stream", []
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parser = LineParser(None, None)
        for text in (text for lines in read_lines(descriptor, Interruptions()) for text in lines):
            try:
                line = parser.parse(text.decode("utf-8", errors="replace"))
            except LineError:
                continue
            if line is not None:
                format_answer(line, [0.0] * 5)
                found.append([*line.x, line.y or 0.0, line.weight])
    finally:
        os.close(descriptor)
    return [value for row in found for value in row]


def nmea_files() -> list[bytes]:
    return [b"".join(nmea_logs.sentence(text) for _, _, text in nmea_logs.whole_log(200))]


def telemetry_files() -> list[bytes]:
    sys.path.insert(0, str(ROOT / "tests" / "field"))
    from test_mavlink import whole_log

    return [b"".join(whole_log(40))]


# Plans


def polygons() -> list[bytes]:
    outline = [[-1.0, -1.0], [11.0, -1.0], [11.0, 4.0], [-1.0, 4.0], [-1.0, -1.0]]
    hole = [[4.0, 1.0], [5.0, 1.0], [5.0, 2.0], [4.0, 1.0]]
    polygon = {"type": "Polygon", "coordinates": [outline, hole]}
    feature = {"type": "Feature", "properties": {"name": "ü"}, "geometry": polygon}
    others = {"type": "GeometryCollection", "geometries": [{"type": "MultiPolygon", "coordinates": [[outline]]}]}
    return [json.dumps({"type": "FeatureCollection", "features": [feature]}).encode(), json.dumps(others).encode()]


def read_inside(data: bytes, folder: Path) -> list[Any]:
    """What `wgpr next --inside` reads; in degrees for every second file, by the length."""
    path = folder / "bay.geojson"
    path.write_bytes(data)
    if len(data) % 2:
        found = read_polygons(path, coordinates(lake()))
        return [found.corners]
    inside = read_polygons(path, None)
    try:
        made = plan(pond(), points=1, inside=inside)
    except ValueError as error:
        if "inside" not in str(error):
            raise
        return []  # refused by the name of the option
    return [made.before, made.after, *made.tracks]


@cache
def plans() -> list[bytes]:
    return [json.dumps(geojson(plan(pond(), points=2), None)).encode()]


def read_plan(data: bytes, folder: Path) -> list[Any]:
    path = folder / "next.geojson"
    path.write_bytes(data)
    expected = read_expectation(path)
    return [expected.before, expected.after, mean_std(pond(), expected.places)]


GEOJSON = [*TEXT, make.other_json, make.other_json, make.other_json]
LOGS = [*BYTES, make.damaged_end]
FORMATS = {
    "map": Format(maps, read_map, "lake.map", MAPS, [make.huge_head]),
    "compact map": Format(compact_maps, read_map, "lake.map", MAPS),
    "difference": Format(
        differences, read_difference, "the difference", [*BYTES, *[make.inside_zlib(MAPS)] * 15], [make.zlib_bomb]
    ),
    "journal": Format(
        lambda: [_journal_files()[3]], read_journal, "lake.map.journal", [*BYTES, *[make.forged_journal] * 6]
    ),
    "log of a journal": Format(lambda: [_journal_files()[2]], read_log_of_journal, "lake.map.journal", BYTES),
    "CSV": Format(csv_tables, reader_of("survey.csv"), "survey.csv", TEXT),
    "TSV": Format(tsv_tables, reader_of("survey.tsv"), "survey.tsv", TEXT),
    "CSV in gzip": Format(
        csv_tables, reader_of("survey.csv.gz"), "survey.csv.gz", [make.inside_gzip(TEXT)], [make.gzip_bomb(2000)]
    ),
    "Parquet": Format(
        parquet_tables, reader_of("survey.parquet"), "survey.parquet", [*BYTES, make.damaged_end, make.odd_columns]
    ),
    "NPZ": Format(
        npz_tables, reader_of("survey.npz"), "survey.npz", [*BYTES, make.damaged_end, *[make.other_member] * 10],
        [make.zip_bomb],
    ),
    "stream": Format(streams, read_stream, "standard input", [*TEXT, *[make.other_json_line] * 5], [make.huge_column]),
    "NMEA": Format(
        nmea_files, reader_of("boat.nmea"), "boat.nmea", [*TEXT, *[make.forged_sentence] * 5], [make.gzip_bomb(200)]
    ),
    "MAVLink": Format(
        telemetry_files, reader_of("boat.tlog"), "boat.tlog", [*BYTES, *[make.forged_packet] * 5], [make.false_starts]
    ),
    "polygons": Format(polygons, read_inside, "bay.geojson", GEOJSON, [make.many_lists]),
    "plan": Format(plans, read_plan, "next.geojson", GEOJSON),
}  # fmt: skip
