"""Coordinates: projections, maps in degrees, metres and kilometres, files, commands, the service."""

import json
import os
import signal
from copy import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import nmea_logs as logs
from command_line import Unsaved, child, exit_code
from wgpr import WGPRegressor, apply, checks, diff, load, predict_at
from wgpr.cli import learn
from wgpr.cli.lengths import parse_spacing, steps_of
from wgpr.cli.lines import Line, LineParser
from wgpr.cli.session import StreamSession
from wgpr.io import container, coordinates
from wgpr.io.container import MapError
from wgpr.io.coordinates import Coordinates, CrsError, coordinates_of, recognised, user_bounds
from wgpr.io.grids import named, predict_grid
from wgpr.io.known_range import KnownRange, first_out_of_area
from wgpr.io.rows import Forecasts, learn_rows
from wgpr.io.tables import Table
from wgpr.plots import summary_figure

pyproj = pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')

UTM = "EPSG:32618"
KILOMETRES = "+proj=utm +zone=18 +datum=WGS84 +units=km"
QUICK = ["-s", "random_state=0"]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def survey(n=300):
    """Longitude, latitude and depth along survey lines, (n, 3)."""
    longitude, latitude = logs.position(np.arange(0.0, 4.0 * n, 4.0))
    return np.column_stack([longitude, latitude, logs.floor(longitude, latitude)])


def in_metres(rows):
    """Rows with easting and northing in whole millimetres."""
    x, y = pyproj.Transformer.from_crs(4326, 32618, always_xy=True).transform(rows[:, 0], rows[:, 1])
    return np.column_stack([np.round(x, 3), np.round(y, 3), rows[:, 2]])


def in_degrees(rows):
    x, y = pyproj.Transformer.from_crs(32618, 4326, always_xy=True).transform(rows[:, 0], rows[:, 1])
    return np.column_stack([x, y, rows[:, 2]])


def write(name, rows, columns=("longitude", "latitude", "depth")):
    pd.DataFrame(rows, columns=list(columns)).to_csv(name, index=False)


def learned(rows, crs="EPSG:4326", names=("longitude", "latitude"), n_at_once=50):
    model = WGPRegressor(random_state=0)
    model.crs_ = coordinates_of(crs, names) if crs else None
    for first in range(0, len(rows), n_at_once):
        learn_rows(model, rows[first : first + n_at_once], None, [*names, "depth"])
    return model


# Systems


@pytest.mark.parametrize(
    ("longitude", "latitude", "name"),
    [
        (-76.33, 44.56, "WGS 84 / UTM zone 18N"),
        (283.67, 44.56, "WGS 84 / UTM zone 18N"),
        (174.8, -41.3, "WGS 84 / UTM zone 60S"),
        (180.0, 10.0, "WGS 84 / UTM zone 1N"),
        (15.0, 86.0, "WGS 84 / UPS North"),
        (15.0, -86.0, "WGS 84 / UPS South"),
    ],
)
def test_places_come_back(longitude, latitude, name):
    known = coordinates_of("EPSG:4326", ["lon", "lat"]).settled([longitude, latitude])
    assert str(known) == f"EPSG:4326, learned in metres of {name}"
    X = np.array([longitude, latitude]) + np.array([[0.0, 0.0], [0.02, 0.01], [-0.01, -0.02]])
    metres = known.to_model(X)
    np.testing.assert_allclose(metres[0], 0.0, atol=1e-4)
    np.testing.assert_allclose(known.to_user(metres), X, rtol=0, atol=2e-8 if abs(latitude) > 80 else 2e-9)
    apart = np.hypot(*(metres[1] - metres[0]))
    _, _, true = pyproj.Geod(ellps="WGS84").inv(*X[0], *X[1])
    assert apart == pytest.approx(true, rel=7e-3)  # the scale of UPS at a pole is 0.994


def test_the_antimeridian_does_not_divide_a_map():
    known = coordinates_of("EPSG:4326", ["lon", "lat"]).settled([179.99, -17.0])
    metres = known.to_model(np.array([[179.99, -17.0], [-179.99, -17.0]]))
    assert np.ptp(metres[:, 0]) == pytest.approx(2130, rel=0.01)
    np.testing.assert_allclose(known.to_user(metres)[:, 0], [179.99, 180.01])


def test_other_inputs_stay_as_they_are_and_names_say_which_is_x():
    known = coordinates_of("EPSG:4326", ["time", "lat", "lon"]).settled([1e9, 44.56, -76.33])
    assert known.columns == (2, 1)
    X = np.array([[1e9 + 0.123456, 44.57, -76.33]])
    metres = known.to_model(X)
    assert metres[0, 0] == X[0, 0]
    assert metres[0, 1] == pytest.approx(1111, rel=0.01)
    assert known.model_names == ["time", "north_of_origin", "east_of_origin"]
    assert coordinates_of("EPSG:4326", ["a", "b"]).columns == (0, 1)


def test_another_datum_is_kept():
    known = coordinates_of("EPSG:4269", ["lon", "lat"]).settled([-76.33, 44.56])
    assert "NAD83 / UTM zone 18N" in str(known)


def test_feet_and_kilometres_become_metres():
    for crs, metres in (("EPSG:2263", 0.3048006096), (KILOMETRES, 1000.0)):
        known = coordinates_of(crs, ["x", "y"]).settled([1000.0, 2000.0])
        np.testing.assert_allclose(known.to_model(np.array([[1001.0, 1998.0]])), [[metres, -2 * metres]], atol=1e-4)
        np.testing.assert_allclose(known.to_user(known.to_model(np.array([[1001.0, 1998.0]]))), [[1001.0, 1998.0]])


@pytest.mark.parametrize(
    ("crs", "names", "message"),
    [
        ("EPSG:99999", ["x", "y"], "EPSG:99999 is no coordinate reference system; use an EPSG code"),
        ("nonsense", ["x", "y"], "nonsense is no coordinate reference system"),
        ("EPSG:4978", ["x", "y"], "has no x and y of a map"),
        ("EPSG:5703", ["x", "y"], "has no x and y of a map"),
        ("EPSG:4326", ["x"], "needs two inputs"),
    ],
)
def test_wrong_systems(crs, names, message):
    with pytest.raises(CrsError, match=message):
        coordinates_of(crs, names)


def test_a_system_from_a_file_of_wkt():
    with open("survey.prj", "w") as file:
        file.write(pyproj.CRS(32618).to_wkt("WKT1_ESRI"))
    assert coordinates_of("survey.prj", ["x", "y"]).name in (UTM, "WGS_1984_UTM_Zone_18N")


def test_places_outside_of_a_system_are_named():
    known = coordinates_of("EPSG:4326", ["lon", "lat"]).settled([-76.33, 44.56])
    X = np.array([[-76.33, 44.56], [-76.0, 91.0], [400.0, 0.0]])
    assert known.is_outside(X).tolist() == [False, True, True]
    with pytest.raises(CrsError, match=r"-76, 91 is no place near the map in EPSG:4326"):
        known.to_model(X)
    with pytest.raises(CrsError, match=r"the first row is at 500, 44\.56"):
        coordinates_of("EPSG:4326", ["lon", "lat"]).settled([500.0, 44.56])


@pytest.mark.parametrize(
    ("names", "is_geographic"),
    [
        (["lon", "lat"], True), (["Longitude", "Latitude"], True), (["LAT", "LNG"], True), (["t", "lon", "lat"], True),
        (["longitude_deg", "latitude_deg"], True), (["lon [deg]", "lat [°]"], True), (["lon [km]", "lat [km]"], False),
        (["x", "y"], False), (["east", "north"], False), (["lon"], False), (["lon", "depth"], False),
    ],
)  # fmt: skip
def test_names_of_longitude_and_latitude(names, is_geographic):
    assert recognised(names, np.full((5, len(names)), 45.0)) is is_geographic


def test_names_alone_are_not_enough():
    assert not recognised(["lon", "lat"], np.array([[394_000.0, 4_934_000.0]]))
    assert not recognised(["lon", "lat"], np.empty((0, 2)))


# Maps


def test_degrees_metres_and_kilometres_are_the_same_map():
    metres = in_metres(survey())
    kilometres = metres * [1e-3, 1e-3, 1.0]
    models = [
        learned(in_degrees(metres)),
        learned(metres, UTM, ["easting", "northing"]),
        learned(kilometres, KILOMETRES, ["x", "y"], n_at_once=7),
    ]
    first, *others = models
    for other in others:
        assert other.n_models_ == first.n_models_
        assert [record.changes for record in other.history_] == [record.changes for record in first.history_]
    places = metres[::7, :2] + [3.0, -2.0]
    answers = [
        predict_at(first, in_degrees(np.column_stack([places, places[:, 0]]))[:, :2], return_std=True),
        predict_at(models[1], places, return_std=True),
        predict_at(models[2], 1e-3 * places, return_std=True),
    ]
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=0, atol=1e-6)


def test_a_saved_map_keeps_its_coordinates():
    rows = survey()
    model = learned(rows)
    model.save("lake.map")
    model.save("small.map", compact=True)
    for name, tolerance in (("lake.map", 0.0), ("small.map", 1e-3)):
        loaded = load(name)
        assert loaded.crs_ == model.crs_
        np.testing.assert_allclose(predict_at(loaded, rows[:, :2]), predict_at(model, rows[:, :2]), atol=tolerance)
    assert load("lake.map").to_bytes() == model.to_bytes()
    assert learned(in_metres(rows), crs="").crs_ is None


def test_differences_keep_coordinates():
    rows = survey()
    model = learned(rows[:200])
    later = copy(model)
    learn_rows(later, rows[200:], None, ["longitude", "latitude", "depth"])
    assert apply(model, diff(model, later)).crs_ == model.crs_


def test_a_map_loads_without_pyproj(monkeypatch):
    learned(survey()).save("lake.map")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(checks, "import_module", missing)
    coordinates._transformer.cache_clear()
    coordinates._crs.cache_clear()
    model = load("lake.map")
    assert np.isfinite(model.predict(pd.DataFrame({"east_of_origin": [0.0], "north_of_origin": [0.0]}))).all()
    with pytest.raises(ImportError, match=r'install it with pip install "wgpr\[geo\]"'):
        predict_at(model, [[logs.LONGITUDE, logs.LATITUDE]])


def test_degrees_are_not_taken_for_metres():
    model = learned(survey())
    for call in (model.predict, model.model_index, lambda X: model.partial_fit(X, [1.0])):
        with pytest.raises(ValueError, match=r"east_of_origin, north_of_origin: name the columns so"):
            call([[logs.LONGITUDE, logs.LATITUDE]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame({"longitude": [logs.LONGITUDE], "latitude": [logs.LATITUDE]}))
    frame = pd.DataFrame({"latitude": [logs.LATITUDE], "longitude": [logs.LONGITUDE]})
    assert predict_at(model, frame)[0] == pytest.approx(logs.floor(logs.LONGITUDE, logs.LATITUDE), abs=0.1)
    with pytest.raises(ValueError, match=r"places must be finite numbers \(n, 2\): longitude, latitude"):
        predict_at(model, [[1.0]])


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a"]}, {"names": ["a", "b", "c"]}, {"columns": [0, 0]}, {"columns": [0, 7]}, {"user": 3},
        {"origin": [1.0]}, {"origin": [1.0, "2"]}, {"centre": "x"}, {"model": None},
    ],
)  # fmt: skip
def test_wrong_coordinates_in_a_file_are_refused(change):
    learned(survey()).save("lake.map")
    contents = container.read("lake.map")
    contents.header["crs"] |= change
    with open("lake.map", "wb") as file:
        file.write(container.encode(contents))
    with pytest.raises(MapError):
        load("lake.map")


def test_bounds_hold_all_rows():
    rows = survey()
    low, high = user_bounds(learned(rows))
    assert (low <= rows[:, :2] + 1e-8).all()
    assert (high >= rows[:, :2] - 1e-8).all()
    np.testing.assert_allclose([low, high], [rows[:, :2].min(axis=0), rows[:, :2].max(axis=0)], atol=2e-4)


def test_grids_and_pictures_are_in_degrees():
    model = learned(survey())
    grid = predict_grid(model, spacing=0.001)
    assert list(grid.dims) == ["latitude", "longitude"]
    node = grid.isel(longitude=3, latitude=1)
    place = [[float(node.longitude), float(node.latitude)]]
    assert float(node["mean"]) == pytest.approx(predict_at(model, place)[0])
    figure = summary_figure(model)
    west, east = figure.axes[0].get_xlim()
    assert west < logs.LONGITUDE < east < west + 0.1


# Commands


def test_a_grid_has_a_spacing_in_metres(wgpr):
    model = learned(survey())
    model.save("lake.map")
    assert wgpr("grid", "lake.map", "--spacing", "50m", "-o", "lake.nc")[0] == 0
    with xr.open_dataset("lake.nc") as grid:
        nodes = np.array([(x, y) for x in grid.longitude[:2].values for y in grid.latitude[:2].values])
    metres = model.crs_.to_model(nodes)
    np.testing.assert_allclose(np.hypot(*(metres[1] - metres[0])), 50.0, rtol=1e-3)
    np.testing.assert_allclose(np.hypot(*(metres[2] - metres[0])), 50.0, rtol=1e-3)
    assert wgpr("grid", "lake.map", "--spacing", "0.05 km,50 m", "-o", "two.nc")[0] == 0
    with xr.open_dataset("lake.nc") as one, xr.open_dataset("two.nc") as two:
        assert one["mean"].shape == two["mean"].shape
    for wrong, told in (
        ("-50m", "above 0"),
        ("5", "write 5m"),
        ("50 cubits", "one of the units m, km, nmi"),
        ("50m,50m,50m", "one for each of 2"),
        ("m", "such as 500m"),
        ("0.01m", "704,499,264 nodes, and 50,000,000 are the most"),
    ):
        code, _, said = wgpr("grid", "lake.map", "--spacing", wrong, "-o", "wrong.nc")
        assert code == 2
        assert told in said


@pytest.mark.parametrize(("longitude", "latitude"), [(0.0, 86.0), (90.0, 86.0), (150.0, -85.0), (179.0, 60.0)])
def test_a_spacing_in_metres_everywhere(longitude, latitude):
    """Near the poles the axes of the metric system are not those of longitude and latitude."""
    model = learned(survey() + np.array([longitude - logs.LONGITUDE, latitude - logs.LATITUDE, 0.0]))
    east, north = steps_of(parse_spacing("50m"), model)
    middle = user_bounds(model).mean(axis=0)
    places = model.crs_.places(middle + np.array([[0.0, 0.0], [east, 0.0], [0.0, north]]))
    np.testing.assert_allclose(np.linalg.norm(places[1:] - places[0], axis=1), 50.0, rtol=1e-3)


def test_a_spacing_in_a_metric_system_is_exact(wgpr):
    write("a.csv", in_metres(survey(200)), ["east", "north", "depth"])
    assert wgpr("fit", "a.csv", "-o", "a.map", "--crs", "EPSG:32618", *QUICK)[0] == 0
    assert steps_of(parse_spacing("20m,0.02km"), load("a.map")) == [20.0, 20.0]


def test_fit_recognises_longitude_and_latitude(wgpr):
    write("a.csv", survey())
    code, _, told = wgpr("fit", "a.csv", "-o", "lake.map", *QUICK)
    assert code == 0
    assert "coordinates longitude, latitude: EPSG:4326, learned in metres of WGS 84 / UTM zone 18N" in told
    assert load("lake.map").crs_.name == "EPSG:4326"
    code, _, told = wgpr("fit", "a.csv", "--crs", "none", "-o", "degrees.map", *QUICK)
    assert code == 0
    assert "coordinates" not in told
    assert load("degrees.map").crs_ is None


def test_without_pyproj_degrees_are_learned_and_the_extra_is_named(wgpr, monkeypatch):
    monkeypatch.setattr("wgpr.cli.georeference.has_pyproj", lambda: False)
    write("a.csv", survey())
    code, _, told = wgpr("fit", "a.csv", "-o", "lake.map", *QUICK)
    assert code == 0
    assert 'learning longitude, latitude in degrees; pip install "wgpr[geo]"' in told
    assert load("lake.map").crs_ is None


def test_all_commands_speak_degrees(wgpr):
    rows = survey(320)
    write("a.csv", rows[:250])
    write("b.csv", rows[250:])
    write("places.csv", rows[250:, :2], ["longitude", "latitude"])
    assert wgpr("fit", "a.csv", "--crs", "EPSG:4326", "-o", "lake.map", *QUICK)[0] == 0
    assert wgpr("update", "lake.map", "b.csv")[0] == 0
    write("all.csv", rows)
    wgpr("fit", "all.csv", "-o", "all.map", *QUICK)
    one, other = (predict_at(load(name), rows[:, :2], return_std=True) for name in ("lake.map", "all.map"))
    np.testing.assert_array_equal(one, other)
    _, out, _ = wgpr("predict", "lake.map", "places.csv")
    answers = np.array([line.split(",") for line in out.splitlines()[1:]], dtype=float)
    np.testing.assert_allclose(answers[:, :2], rows[250:, :2])
    np.testing.assert_allclose(answers[:, 2], rows[250:, 2], atol=0.5)
    _, out, _ = wgpr("evaluate", "lake.map", "b.csv", "--json")
    assert json.loads(out)["rmse"] < 0.2
    content = json.loads(wgpr("info", "lake.map", "--json")[1])
    assert content["inputs"] == ["longitude", "latitude"]
    assert content["crs"] == "EPSG:4326, learned in metres of WGS 84 / UTM zone 18N"
    np.testing.assert_allclose(content["extent"][0], [rows[:, 0].min(), rows[:, 0].max()], atol=2e-4)
    np.testing.assert_allclose(content["models"][0]["extent"][1], [rows[:, 1].min(), rows[:, 1].max()], atol=2e-3)
    assert wgpr("plot", "lake.map", "--data", "b.csv", "-o", "lake.png")[0] == 0
    _, out, told = wgpr("stream", "lake.map", stdin=f"{rows[0, 0]},{rows[0, 1]}\n0,95\n")
    assert float(out.split(",")[0]) == pytest.approx(rows[0, 2], abs=0.2)
    assert "line 2 has 0, 95, which is no place near the map in EPSG:4326; it is left out" in told


def test_info_says_whether_extents_are_those_of_the_data(wgpr):
    """Bounds are kept in metres. In degrees, at the edge of a UTM zone, the box around them is larger than the data."""
    degrees = survey(60) + np.array([-72.1 - logs.LONGITUDE, 60.0 - logs.LATITUDE, 0.0])
    metres = in_metres(degrees)
    for rows, model in ((degrees, learned(degrees)), (metres, learned(metres, UTM, ["east", "north"]))):
        model.save("lake.map")
        content, text = json.loads(wgpr("info", "lake.map", "--json")[1]), wgpr("info", "lake.map")[1]
        bounds = rows[:, :2].min(axis=0), rows[:, :2].max(axis=0)
        is_exact = bool(np.allclose(np.transpose(content["extent"]), bounds, rtol=0.0, atol=1e-5))
        assert (is_exact, content["extent_is_exact"]) == (rows is metres, rows is metres)
        assert ("(a box around the data, which are learned in metres)" in " ".join(text.split())) is (rows is degrees)


def test_a_stream_in_degrees_is_the_same_map_as_a_fit(wgpr):
    rows = survey(200)
    write("a.csv", rows)
    with open("a.csv") as file:
        code, _, told = wgpr("stream", "lake.map", *QUICK, stdin=file.read())
    assert code == 0
    assert "coordinates longitude, latitude: EPSG:4326, learned in metres of WGS 84 / UTM zone 18N" in told
    wgpr("fit", "a.csv", "-o", "other.map", *QUICK)
    one, other = load("lake.map"), load("other.map")
    assert one.crs_ == other.crs_
    np.testing.assert_array_equal(predict_at(one, rows[:, :2]), predict_at(other, rows[:, :2]))
    assert wgpr("stream", "lake.map", "--crs", UTM)[0] == 2


def test_an_input_with_the_name_of_the_grid_mapping_keeps_its_values():
    rows = np.insert(survey(60), 2, np.arange(60.0), axis=1)
    grid = predict_grid(learned(rows, names=["lon", "lat", "crs"]), at={"crs": 3.0})
    assert (float(grid["crs_"]), grid["mean"].attrs["grid_mapping"], int(grid["crs"])) == (3.0, "crs", 0)


def test_a_row_is_projected_once_to_be_forecast_and_learned(monkeypatch):
    model = learned(survey(200))
    project, n_projected = Coordinates.places, []
    monkeypatch.setattr(Coordinates, "places", lambda self, X: n_projected.append(len(X)) or project(self, X))
    forecasts = Forecasts()
    for row in survey(30):
        forecasts.learn(model, row[np.newaxis], None, ["longitude", "latitude", "depth"])
    assert n_projected == [1] * 30
    assert forecasts.scores.n_rows == 30


def test_which_lines_are_left_out_does_not_depend_on_how_they_arrive(capsys):
    rows = survey(300)
    rows[[25, 120, 121, 299], [0, 2, 1, 0]] = 200.0, 1e9, 95.0, -120.0
    rows[40] = 0.0, 99.0, 0.0  # a query
    lines = [Line([*row[:2]], None if row[2] == 0 else row[2], number=k) for k, row in enumerate(rows, start=1)]
    good, told = [], []
    for n_at_once in (1, 7, len(lines)):
        parser = LineParser(["longitude", "latitude"], "depth")
        session = StreamSession(WGPRegressor(random_state=0), parser, 2.0, 1000, Unsaved(), crs="EPSG:4326")
        starts = range(0, len(lines), n_at_once)
        parts = [session.good_lines(lines[start : start + n_at_once]) for start in starts]
        good.append([line.number for part in parts for line in part])
        told.append(capsys.readouterr().err)
    assert good[0] == good[1] == good[2] == [n for n in range(1, 301) if n not in (26, 41, 121, 122, 300)]
    assert told[0] == told[1] == told[2]
    assert told[0].count("it is left out") == 5


def test_the_first_value_other_than_zero_tells_the_scale_of_those_that_arrive_with_it():
    targets = [*np.zeros(40), 5.0, 1e7, 6.0]
    lines = [Line([float(number)], target, number=number) for number, target in enumerate(targets, start=1)]
    session = StreamSession(WGPRegressor(), LineParser(["x"], "y"), 2.0, 1000, Unsaved())
    good = session.good_lines(lines)
    assert [line.y for line in good[40:]] == [5.0, 6.0]


def test_rows_behind_many_queries_are_judged_one_by_one_at_first():
    queries = [Line([0.0], None, number=number) for number in range(1, 64)]
    targets = [*np.zeros(30), 1e9, *np.zeros(33)]
    rows = [Line([float(number)], target, number=64 + number) for number, target in enumerate(targets)]
    rows[0] = Line([1.0], 5.0, number=64)
    session = StreamSession(WGPRegressor(), LineParser(["x"], "y"), 2.0, 1000, Unsaved())
    good = session.good_lines([*queries, *rows])
    assert 1e9 not in [line.y for line in good]
    assert len(good) == len(queries) + len(rows) - 1


def test_any_target_of_few_rows_is_plausible_if_most_are_zero():
    rows = np.array([[float(x), 0.0, 0.0] for x in range(7)])
    rows[3, 2] = 0.3
    assert not KnownRange.of_sample(rows, ["x", "y"], None).is_far(rows).any()


def test_a_stream_that_is_killed_keeps_its_coordinates(wgpr):
    rows = survey(150)
    with child("stream", "lake.map", "--report-every", "100", *QUICK) as process:
        process.stdin.write("longitude,latitude,depth\n" + "".join(f"{x},{y},{z}\n" for x, y, z in rows.tolist()))
        process.stdin.flush()
        while not process.stderr.readline().startswith("100 rows learned"):
            pass
    assert wgpr("update", "lake.map")[0] == 0
    model, expected = load("lake.map"), learned(rows)
    assert model.crs_ == expected.crs_
    assert model.n_samples_seen_ >= 100
    n_rows = model.n_samples_seen_
    np.testing.assert_array_equal(predict_at(model, rows[:, :2]), predict_at(learned(rows[:n_rows]), rows[:, :2]))


@pytest.mark.parametrize("line", ["-76.33,95.0,5", "-500,44.5,5"])
def test_rows_at_no_place_are_refused(wgpr, line):
    write("a.csv", survey(50))
    with open("a.csv", "a") as file:
        file.write(f"{line}\n")
    code, _, told = wgpr("fit", "a.csv", "-o", "lake.map", *QUICK)
    assert code == 1
    assert "a.csv, line 52: " in told
    assert "is no place near the map in EPSG:4326; correct it; all rows must be in the system of the map" in told


SWAPPED = "perhaps longitude and latitude are swapped"
IMPLAUSIBLE = [
    ((0.0, 0.0), ""),
    ((logs.LATITUDE, logs.LONGITUDE), SWAPPED),
    ((151.2, -33.9), ""),
    ((logs.LONGITUDE, logs.LATITUDE + 1.0), ""),
]


@pytest.mark.parametrize(("place", "hint"), IMPLAUSIBLE, ids=["dropout", "swapped", "continent", "100 km"])
def test_update_and_stream_refuse_places_far_from_the_map(wgpr, place, hint):
    rows = survey(80)
    write("a.csv", rows[:60])
    write("b.csv", [*rows[60:65], (*place, 10.0), *rows[65:]])
    wgpr("fit", "a.csv", "-o", "lake.map", *QUICK)
    code, _, told = wgpr("update", "lake.map", "b.csv")
    shown = f"{place[0]:.15g}, {place[1]:.15g} is far outside of the known range, -76."
    assert (code, "b.csv, line 7, column " in told, shown in told, SWAPPED in told) == (1, True, True, bool(hint))
    assert "correct it, or learn it as it is (--force)" in told
    assert load("lake.map").n_samples_seen_ == 60
    with open("b.csv") as file:
        text = file.read()
    for name, n_rows in (("lake.map", 80), ("new.map", 20)):
        lines = text if name == "lake.map" else text.replace("\n", "\n" + _lines(rows[:20]), 1)
        _, _, told = wgpr("stream", name, *(QUICK if name == "new.map" else []), stdin=lines)
        assert (told.count("left out"), told.count("(--force learns it)"), SWAPPED in told) == (1, 1, bool(hint))
        assert load(name).n_samples_seen_ == n_rows + 20 * (name == "new.map")
    write("c.csv", [*rows[:5] + 1e-5, (*place, 10.0)])
    code, _, told = wgpr("update", "lake.map", "c.csv", "--force")
    assert (code, "warning: c.csv, line 7" in told, load("lake.map").n_samples_seen_) == (0, True, 86)


def _lines(rows):
    return "".join(f"{x},{y},{z}\n" for x, y, z in np.asarray(rows).tolist())


@pytest.mark.parametrize(("place", "hint"), IMPLAUSIBLE, ids=["dropout", "swapped", "continent", "100 km"])
@pytest.mark.parametrize("line", [2, 40], ids=["first", "later"])
def test_fit_refuses_places_far_from_all_others(wgpr, place, hint, line):
    rows = survey(80)
    write("a.csv", [*rows[: line - 2], (*place, 10.0), *rows[line - 2 :]])
    code, _, told = wgpr("fit", "a.csv", "--crs", "EPSG:4326", "-o", "lake.map", *QUICK)
    assert (code, f"a.csv, line {line}, column " in told) == (1, True), told
    assert f"{place[0]:.15g}, {place[1]:.15g} is far outside of the middle half of the rows, " in told
    assert "correct it, or learn it as it is (--force); nothing was learned" in told
    assert (SWAPPED in told) is bool(hint)
    code, _, told = wgpr("fit", "a.csv", "--force", "-o", "lake.map", *QUICK)
    assert (code, f"warning: a.csv, line {line}" in told, load("lake.map").n_samples_seen_) == (0, True, 81)


def test_a_pipe_is_checked_for_places_too(wgpr, monkeypatch):
    rows = _lines([*survey(60), (0.0, 0.0, 10.0)])
    code, _, told = wgpr("fit", "-", "-o", "lake.map", *QUICK, stdin=f"longitude,latitude,depth\n{rows}")
    assert (code, "standard input, line 62, column 'longitude': 0, 0 is far outside" in told) == (1, True), told


def test_a_track_that_moves_on_raises_no_doubts(wgpr):
    """At anchor, then far away: the middle half of all rows counts, not the first rows."""
    rows = np.concatenate([np.repeat(survey(1), 210, axis=0), survey(290)])
    rows[210:, 0] += np.linspace(0.0, 0.5, 290)
    write("a.csv", rows)
    code, _, told = wgpr("fit", "a.csv", "--y", "depth", "-o", "lake.map", *QUICK)
    assert (code, "far outside" in told) == (0, False), told


def test_places_near_a_map_are_plausible():
    rows = survey(60)
    known = KnownRange.of_map(learned(rows))
    near = rows + np.array([0.05, 0.05, 0.0])  # 7 km
    assert not known.is_far(np.concatenate([rows, near, rows + np.array([360.0, 0.0, 0.0])])).any()
    assert known.is_far(rows + np.array([0.0, 1.0, 0.0])).sum(axis=0).tolist() == [0, 60, 0]
    metres = in_metres(rows)
    known = KnownRange.of_map(learned(metres, UTM, ["east", "north"]))
    assert not known.is_far(metres + np.array([5000.0, -5000.0, 0.0])).any()
    assert known.is_far(np.array([[0.0, 0.0, 10.0]])).any()
    assert "perhaps easting and northing are swapped" in known.far(metres[:, [1, 0, 2]], 0, 0).text


@pytest.mark.parametrize("crs", ["EPSG:32618", "EPSG:2056"])
def test_places_far_from_where_a_projected_system_is_used_are_refused(wgpr, crs):
    """Easting and northing are swapped in the whole file, so that no row is far from the others."""
    longitude, latitude = (-76.3, 44.5) if crs == UTM else (8.2, 46.8)
    degrees = survey(60) + np.array([longitude - logs.LONGITUDE, latitude - logs.LATITUDE, 0.0])
    x, y = pyproj.Transformer.from_crs(4326, crs, always_xy=True).transform(*degrees[:, :2].T)
    write("swapped.csv", np.column_stack([y, x, degrees[:, 2]]), ["easting", "northing", "depth"])
    write("right.csv", np.column_stack([x, y, degrees[:, 2]]), ["easting", "northing", "depth"])
    code, _, told = wgpr("fit", "swapped.csv", "--crs", crs, "-o", "lake.map", *QUICK)
    assert (code, f"is far from where {crs} is used, longitude " in told) == (1, True), told
    assert "swapped.csv, line " in told
    assert "; perhaps easting and northing are swapped; correct it, or learn it as it is (--force); nothing was" in told
    code, _, told = wgpr("fit", "swapped.csv", "--force", "--crs", crs, "-o", "lake.map", *QUICK)
    assert (code, told.count("warning: swapped.csv, line "), load("lake.map").n_samples_seen_) == (0, 1, 60), told
    code, _, told = wgpr("fit", "right.csv", "--crs", crs, "-o", "lake.map", *QUICK)
    assert (code, "is used" in told) == (0, False), told
    for name, n_rows in (("swapped.csv", 0), ("right.csv", 60)):
        with open(name) as file:
            _, _, told = wgpr("stream", f"{name}.map", "--crs", crs, *QUICK, stdin=file.read())
        assert (f"{n_rows} rows learned" in told, "60 lines were left out" in told) == (True, n_rows == 0), told


def test_areas_of_use_have_margins_and_may_cross_the_antimeridian():
    def fault(crs, longitude, latitude):
        places = pyproj.Transformer.from_crs(4326, crs, always_xy=True).transform(longitude, latitude)
        return first_out_of_area(np.array([places]), coordinates_of(crs, ["x", "y"]))

    assert fault(UTM, -83.0, 44.0) is None  # UTM zone 17
    assert fault(UTM, -60.0, 44.0) is not None
    assert fault("EPSG:2193", 179.0, -44.0) is None  # New Zealand, with islands east of the antimeridian
    assert fault("EPSG:2193", -177.0, -44.0) is None
    assert fault("EPSG:2193", 120.0, -30.0) is not None
    assert fault("EPSG:3857", 170.0, -80.0) is None
    assert fault("EPSG:4326", 170.0, -80.0) is None
    assert first_out_of_area(np.array([[1e9, 1e9]]), coordinates_of(KILOMETRES, ["x", "y"])) is None  # no area is known


def test_degrees_are_no_places_of_a_projected_system(wgpr):
    write("a.csv", survey(60), ["east", "north", "depth"])
    code, _, told = wgpr("fit", "a.csv", "--x", "east,north", "--y", "depth", "--crs", UTM, "-o", "a.map", *QUICK)
    assert code == 1
    assert "is longitude and latitude, it seems, and EPSG:32618 is in other units; use --crs EPSG:4326" in told
    assert not os.path.exists("a.map")


def test_one_place_in_degrees_is_told_whatever_comes_with_it():
    rows = in_metres(survey(3))[:, :2]
    known = coordinates_of(UTM, ["x", "y"])
    for places in ([rows[0], (-76.3, 44.5), rows[1]], [(-76.3, 44.5)]):
        fault = first_out_of_area(np.array(places), known)
        assert (fault.row, "longitude and latitude, it seems" in fault.text) == (len(places) // 2, True)


def write_degrees(name, rows):
    write(name, rows, ["lon", "lat", "depth"])


@pytest.mark.parametrize(("place", "hint"), IMPLAUSIBLE, ids=["dropout", "swapped", "continent", "100 km"])
def test_degrees_without_a_system_are_guarded_too(wgpr, place, hint):
    rows = survey(80)
    write_degrees("a.csv", rows[:60])
    write_degrees("b.csv", [*rows[60:65], (*place, 10.0), *rows[65:], (*place, 11.0)])
    write_degrees("c.csv", [*rows, (*place, 10.0), (*place, 11.0)])
    settings = ["--crs", "none", "-o", "lake.map", *QUICK]
    assert (wgpr("fit", "a.csv", *settings)[0], load("lake.map").crs_) == (0, None)
    shown = f"{place[0]:.15g}, {place[1]:.15g} is far outside of the "
    for line, command in ((7, ["update", "lake.map", "b.csv"]), (82, ["fit", "c.csv", *settings])):
        code, _, told = wgpr(*command)
        assert (code, f", line {line}, column " in told, shown in told, SWAPPED in told) == (1, True, True, bool(hint))
        assert (f"{shown}known range, -76." in told) == (command[0] == "update")
        assert "(and 1 more); correct it, or learn it as it is (--force); nothing was learned" in told
    _, _, told = wgpr("stream", "lake.map", stdin=_lines([(*place, 10.0), *rows[60:]]))
    assert (told.count("left out"), load("lake.map").n_samples_seen_) == (1, 80)
    text = "lon,lat,depth\n" + _lines([*rows[:20], (*place, 10.0)])
    _, _, told = wgpr("stream", "new.map", "--crs", "none", *QUICK, stdin=text)
    assert (told.count("left out"), load("new.map").n_samples_seen_) == (1, 20)
    code, _, told = wgpr("fit", "c.csv", "--force", *settings)
    assert (code, "(and 1 more); it is learned as it is (--force)" in told) == (0, True), told


def test_swapped_degrees_without_a_system_are_refused(wgpr):
    rows = survey(80)
    write_degrees("a.csv", rows[:60])
    write_degrees("b.csv", rows[60:, [1, 0, 2]])
    wgpr("fit", "a.csv", "--crs", "none", "-o", "lake.map", *QUICK)
    code, _, told = wgpr("update", "lake.map", "b.csv")
    assert (code, SWAPPED in told, "(and 19 more)" in told) == (1, True, True), told


def test_honest_surveys_in_degrees_without_a_system_raise_no_doubts(wgpr):
    """A track that leaves its anchor, a few rows far from one another, and names of degrees with metres."""
    at_anchor, away = np.repeat(survey(1), 40, axis=0), survey(40) + np.array([0.1, 0.1, 0.0])
    track = np.concatenate([at_anchor, away, survey(60) + np.array([0.4, 0.3, 0.0])])
    text = "lon,lat,depth\n" + _lines(track)
    assert "left out" not in wgpr("stream", "a.map", "--crs", "none", *QUICK, stdin=text)[2]
    write_degrees("few.csv", survey(3) + np.array([[0.0], [20.0], [40.0]]))
    metres = in_metres(np.concatenate([survey(60), survey(60) + np.array([0.01, 0.01, 0.0])]))
    write_degrees("metres.csv", metres[:60])
    write_degrees("more.csv", metres[60:])
    for command in (
        ["fit", "few.csv", "--crs", "none", "-o", "few.map", *QUICK],
        ["fit", "metres.csv", "-o", "metres.map", *QUICK],
        ["update", "metres.map", "more.csv"],
    ):
        code, _, told = wgpr(*command)
        assert (code, "far outside" in told) == (0, False), told


def test_a_latitude_beyond_the_pole_may_be_a_longitude(wgpr):
    rows = survey(60) + np.array([151.2 - logs.LONGITUDE, -33.9 - logs.LATITUDE, 0.0])
    write("a.csv", rows[:50])
    write("b.csv", rows[50:, [1, 0, 2]])
    wgpr("fit", "a.csv", "-o", "bay.map", *QUICK)
    code, _, told = wgpr("update", "bay.map", "b.csv")
    assert (code, f"is no place near the map in EPSG:4326; {SWAPPED}; correct it" in told) == (1, True)


@pytest.mark.parametrize("line", [2, 4])
def test_an_impossible_row_does_not_hide_degrees(wgpr, line):
    rows = survey(8)
    rows[line - 2, 1] = 144.56
    write("a.csv", rows)
    for crs in ([], ["--crs", "EPSG:4326"]):
        code, _, told = wgpr("fit", "a.csv", *crs, "-o", "lake.map", *QUICK)
        assert (code, f"a.csv, line {line}: " in told, "144.56 is no place near the map" in told) == (1, True, True)


def test_names_of_degrees_with_other_values_are_told(wgpr):
    write("a.csv", in_metres(survey(50)), ["lon", "lat", "depth"])
    code, _, told = wgpr("fit", "a.csv", "-o", "lake.map", *QUICK)
    assert (code, "lon, lat do not look like degrees; learned as they are\n" in told) == (0, True)
    assert load("lake.map").crs_ is None
    assert "do not look like" not in wgpr("fit", "a.csv", "--crs", "none", "-o", "lake.map", *QUICK)[2]


def test_degrees_that_are_declared_as_projected_are_told(wgpr):
    write("a.csv", survey(50), ["lon", "lat", "depth"])
    code, _, told = wgpr("fit", "a.csv", "--crs", UTM, "-o", "lake.map", "--force", *QUICK)
    warning = (
        "warning: --crs EPSG:32618 says that lon, lat are projected (EPSG:32618), but their names and values are of"
    )
    assert (code, told.count(warning), "use --crs EPSG:4326 if they are" in told) == (0, 1, True)
    write("b.csv", in_metres(survey(50)), ["x", "y", "depth"])
    assert "are projected" not in wgpr("fit", "b.csv", "--crs", UTM, "-o", "lake.map", *QUICK)[2]
    assert "are projected" not in wgpr("fit", "a.csv", "--crs", "EPSG:4269", "-o", "lake.map", *QUICK)[2]


def test_the_system_of_a_file_is_used_and_must_be_that_of_the_map(wgpr):
    rows = in_metres(survey(80))
    write("a.csv", rows, ["x", "y", "depth"])
    with open("a.prj", "w") as file:
        file.write(pyproj.CRS(32618).to_wkt())
    code, _, told = wgpr("fit", "a.csv", "-o", "lake.map", *QUICK)
    assert code == 0
    assert "coordinates x, y: EPSG:32618; --crs names another system" in told
    np.savez("b.npz", x=rows[:, 0], y=rows[:, 1], depth=rows[:, 2], crs="EPSG:3857")
    code, _, told = wgpr("update", "lake.map", "b.npz")
    assert code == 1
    assert "the data are in EPSG:3857, and the map is in EPSG:32618" in told


def test_parquet_files_name_their_system():
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    geo = {"primary_column": "geometry", "columns": {"geometry": {"crs": pyproj.CRS(32618).to_json_dict()}}}
    table = pyarrow.table({"x": [1.0, 2.0], "y": [1.0, 2.0], "z": [1.0, 2.0]})
    parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), "a.parquet")
    assert coordinates.short_name(Table(["a.parquet"]).crs) == UTM
    parquet.write_table(table.replace_schema_metadata({"geo": "nonsense"}), "b.parquet")
    assert Table(["b.parquet"]).crs == ""


@pytest.mark.parametrize(("crs", "message"), [("EPSG:1", "--crs: EPSG:1 is no"), ("EPSG:4978", "has no x and y")])
def test_wrong_use_of_crs(wgpr, crs, message):
    write("a.csv", survey(50))
    code, _, told = wgpr("fit", "a.csv", "-o", "lake.map", "--crs", crs)
    assert code == 2
    assert message in told


# Systems of maps that were learned without one


def test_a_map_gets_the_system_that_it_was_learned_in(wgpr):
    rows = in_metres(survey(200))
    write("a.csv", rows[:150], ["east", "north", "depth"])
    write("b.csv", rows[150:], ["east", "north", "depth"])
    assert wgpr("fit", "a.csv", "-o", "a.map", *QUICK)[0] == 0
    before = Path("a.map").read_bytes()
    for crs, fault in (
        ("EPSG:2056", "far from where EPSG:2056 is used"),
        ("EPSG:4326", "EPSG:4326 is not in metres"),
        ("EPSG:2263", "is not in metres"),
        ("EPSG:0", "is no coordinate reference system"),
    ):
        code, _, told = wgpr("update", "a.map", "--crs", crs)
        assert (code, fault in told, Path("a.map").read_bytes() == before) == (2, True, True), told
    code, _, told = wgpr("update", "a.map", "--crs", UTM)
    assert (code, "coordinates east, north: EPSG:32618" in told, "saved: a.map" in told) == (0, True, True)
    assert Path("a.map~").read_bytes() == before
    assert wgpr("update", "a.map", "--crs", UTM)[0] == 0  # a command can be repeated
    code, _, told = wgpr("update", "a.map", "--crs", "EPSG:32617")
    assert (code, "has a system, EPSG:32618, and keeps it" in told) == (2, True)
    model = load("a.map")
    Path("old.map").write_bytes(before)
    old = load("old.map")
    means = [each.predict(named(each, rows[:, :2])) for each in (model, old)]
    np.testing.assert_allclose(*means, rtol=1e-6)
    assert wgpr("update", "a.map", "b.csv")[0] == 0
    assert wgpr("update", "old.map", "b.csv", "--crs", UTM)[0] == 0
    assert load("a.map").crs_ == load("old.map").crs_
    assert load("old.map").n_samples_seen_ == 200
    assert wgpr("fit", "b.csv", "--crs", UTM, "-o", "b.map", *QUICK)[0] == 0
    code, _, told = wgpr("merge", "a.map", "b.map", "-o", "both.map")
    assert code == 0, told
    middle = rows[100:101, :2]
    mean = [predict_at(load(path), middle)[0] for path in ("a.map", "both.map")]
    np.testing.assert_allclose(*mean, rtol=0.05)


def test_a_killed_update_with_a_system_goes_on_with_it(wgpr, monkeypatch):
    rows = in_metres(survey(200))
    write("a.csv", rows[:150], ["east", "north", "depth"])
    write("b.csv", rows[150:], ["east", "north", "depth"])
    assert wgpr("fit", "a.csv", "-o", "a.map", *QUICK)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(learn, "learn_rows", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        with child("update", "a.map", "b.csv", "--crs", UTM) as update:
            assert exit_code(update) == -signal.SIGKILL
    assert wgpr("update", "a.map")[0] == 0
    assert (load("a.map").n_samples_seen_, load("a.map").crs_.name) == (200, UTM)


@pytest.mark.parametrize("crs", ["none", "EPSG:4326", UTM])
def test_swapped_places_of_a_prediction_are_told(wgpr, crs):
    rows = in_metres(survey(100)) if crs == UTM else survey(100)
    names = ["easting", "northing", "depth"] if crs == UTM else ["longitude", "latitude", "depth"]
    write("a.csv", rows, names)
    write("swapped.csv", rows[:, [1, 0, 2]], names)
    assert wgpr("fit", "a.csv", "-o", "a.map", "--crs", crs, *QUICK)[0] == 0
    code, table, told = wgpr("predict", "a.map", "swapped.csv")
    assert (code, len(table.splitlines()), told.count("warning: swapped.csv, line 2: ")) == (0, 101, 1), told
    assert "are swapped; check the units, and name the columns of the inputs in the order of the map with --x" in told
    assert "warning" in wgpr("evaluate", "a.map", "swapped.csv")[2]
    assert "warning" not in wgpr("predict", "a.map", "a.csv")[2]
    code, _, told = wgpr("predict", "a.map", "swapped.csv", "--x", f"{names[1]},{names[0]}")
    assert "are swapped" not in told


def test_swapped_places_of_a_map_without_a_system_are_told(wgpr):
    rows = in_metres(survey(100))
    write("a.csv", rows, ["east", "north", "depth"])
    write("swapped.csv", rows[:, [1, 0, 2]], ["east", "north", "depth"])
    assert wgpr("fit", "a.csv", "-o", "a.map", *QUICK)[0] == 0
    assert "; perhaps east and north are swapped; " in wgpr("predict", "a.map", "swapped.csv")[2]
    code, _, told = wgpr("update", "a.map", "swapped.csv")
    assert (code, "; perhaps east and north are swapped (and 99 more)" in told) == (1, True), told


def test_a_place_that_does_not_exist_is_told_with_its_line(wgpr):
    write("a.csv", survey(60))
    assert wgpr("fit", "a.csv", "-o", "a.map", *QUICK)[0] == 0
    write("q.csv", [[-76.3, 44.5], [-76.3, 95.0]], ["longitude", "latitude"])
    code, _, told = wgpr("predict", "a.map", "q.csv")
    assert (code, "q.csv, line 3: -76.3, 95 is no place near the map in EPSG:4326" in told) == (1, True), told
