"""`wgpr next`: from a map to a file of where to measure, and whether its gain came true."""

import json
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wgpr import WGPRegressor, load, plan
from wgpr.cli import next as next_command
from wgpr.planning.files import read_expectation, read_polygons

pytestmark = pytest.mark.usefixtures("fewest_cells")
NAMES = ["east [km]", "north [km]"]


@pytest.fixture(scope="module")
def lake_bytes():
    """Lines 0.4 km apart over 4 x 4 km."""
    x = np.arange(0.0, 4.01, 0.1)
    X = np.concatenate([np.column_stack([x, np.full(len(x), y)]) for y in np.arange(0.0, 4.1, 0.4)])
    y = np.sin(4.0 * X[:, 0]) * np.cos(3.0 * X[:, 1]) + 0.02 * np.random.default_rng(0).normal(size=len(X))
    return WGPRegressor().fit(pd.DataFrame(X, columns=NAMES), pd.Series(y, name="depth [m]")).to_bytes()


@pytest.fixture
def lake(lake_bytes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lake.map").write_bytes(lake_bytes)


def test_points_and_whether_their_gain_came_true(wgpr, lake):
    code, _, told = wgpr("next", "lake.map", "--points", "10", "-o", "next.geojson")
    assert code == 0
    assert "10 places: next.geojson" in told
    assert "expected: standard deviation of depth over the ground" in told
    found = json.loads(Path("next.geojson").read_text())
    places = np.array([feature["geometry"]["coordinates"] for feature in found["features"]])
    model = load("lake.map")
    model.partial_fit(pd.DataFrame(places, columns=NAMES), np.sin(4.0 * places[:, 0]) * np.cos(3.0 * places[:, 1]))
    model.save("lake.map")
    code, _, told = wgpr("next", "lake.map", "--check", "next.geojson")
    assert code == 0
    expected, realised = (line.rsplit("->", 1)[1].split()[0] for line in told.splitlines()[-2:])
    assert float(realised) == pytest.approx(float(expected), rel=0.15)


def test_a_plan_of_another_map_is_refused(wgpr, lake):
    assert wgpr("next", "lake.map", "--points", "1", "-o", "next.geojson")[0] == 0
    found = json.loads(Path("next.geojson").read_text())
    for key, value, message in (
        (
            "inputs",
            ["lon", "lat"],
            "its inputs are lon, lat in no reference system, and those of the map east",
        ),
        ("crs", "EPSG:4326", "in EPSG:4326, and those of the map east [km], north [km] in no reference system"),
    ):
        about = {**found["wgpr"], "rows": 7, key: value}
        Path("other.geojson").write_text(json.dumps({**found, "wgpr": about}))
        code, _, told = wgpr("next", "lake.map", "--check", "other.geojson")
        assert code == 2
        assert message in " ".join(told.split())


def test_a_check_says_if_nothing_was_learned_since_the_plan(wgpr, lake):
    assert wgpr("next", "lake.map", "--points", "1", "-o", "next.geojson")[0] == 0
    code, _, told = wgpr("next", "lake.map", "--check", "next.geojson")
    assert code == 0
    assert "nothing was learned since the plan" in told
    assert "realised" not in told


def test_a_check_needs_geojson(wgpr, lake):
    assert wgpr("next", "lake.map", "--points", "1", "-o", "next.csv")[0] == 0
    code, _, told = wgpr("next", "lake.map", "--check", "next.csv")
    assert code == 2
    assert "--check needs the .geojson that wgpr next wrote" in " ".join(told.split())


def test_a_path_has_the_length_of_its_budget(wgpr, lake):
    code, _, told = wgpr("next", "lake.map", "--budget", "1nmi", "--from", "0,0", "--return", "-o", "next.csv")
    assert code == 0, told
    path = pd.read_csv("next.csv")[NAMES].to_numpy()
    assert 0.5 * 1.852 < np.linalg.norm(np.diff(path, axis=0), axis=1).sum() <= 1.852
    np.testing.assert_allclose(path[[0, -1]], 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("budget", "length"),
    [("2km", 2.0), ("2e3 M ", 2.0), ("1nmi", 1.852), ("1.5", 1.5)],
)
def test_a_budget_has_a_unit(wgpr, lake, monkeypatch, budget, length):
    """What the planner is asked for, with a plan of one place in its stead: a path takes seconds."""
    asked = {}

    def plan_one_place(model, **arguments):
        asked.update(arguments)
        return plan(model, points=1, inside=[[0, 0], [1, 0], [1, 1], [0, 1]])

    monkeypatch.setattr(next_command, "plan", plan_one_place)
    code, _, told = wgpr("next", "lake.map", "--budget", budget, "--from", "0,0", "--return", "-o", "next.csv")
    assert code == 0, told
    assert asked["budget"] == pytest.approx(length, rel=1e-12)
    assert (asked["start"], asked["returns"]) == ([0.0, 0.0], True)


@pytest.fixture
def west(lake):
    """A file with a polygon."""
    ring = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]
    Path("west.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    return "west.geojson"


def test_lines_inside_of_a_polygon(wgpr, west):
    code, _, told = wgpr("next", "lake.map", "--lines", "2", "--spacing", "300m", "--inside", west, "-o", "a.csv")
    assert code == 0, told
    assert (pd.read_csv("a.csv")[NAMES].to_numpy() <= 2.0).all()
    assert re.search(r"2 lines of \S+ km together: a\.csv", told)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "a.csv"], "--points, --lines, --budget and --check"),
        (["--points", "3", "--lines", "2"], "one of --points, --lines, --budget and --check"),
        (["--points", "3", "--return"], "--return is for a path"),
        (["--points", "3", "--spacing", "5m"], "--spacing is for --lines"),
        (["--points", "3"], "name an output"),
        (["--points", "3", "-o", "a.kml"], "must end with"),
        (["--points", "3", "-o", "a.plan"], "say it with wgpr update MAP --crs, or"),
        (["--points", "2000", "-o", "a.csv"], "--points must be at most 1,000"),
        (["--lines", "3", "--spacing", "-5", "-o", "a.csv"], "--spacing must be a number above 0, or a length with"),
        (["--budget", "5km", "-o", "a.csv"], "--budget and --from belong together"),
        (["--budget", "5 parsecs", "--from", "0,0", "-o", "a.csv"], "one of the units m, km, nmi"),
        (["--budget", "far", "--from", "0,0", "-o", "a.csv"], "such as 500m"),
        (["--budget", "5km", "--from", "0"], "--from must be two numbers"),
        (["--budget", "5km", "--from", "nan,0"], "--from must be two numbers"),
        (["--budget", "5km", "--from", "here"], "--from must be numbers"),
        (["--budget", "5km", "--from", "90,0", "-o", "a.csv"], "--from is 86 km from the nearest ground"),
        (["--budget", "0", "--from", "0,0", "-o", "a.csv"], "--budget must be a length above 0"),
        (["--budget", "0.001", "--from", "2,2", "-o", "a.csv"], "--budget 0.001 (in km) is too short: the path would"),
        (["--budget", "1m", "--from", "2,2", "-o", "a.csv"], "--budget 1m is too short: the path would have no length"),
        (["--budget", "1.2.3km", "--from", "0,0", "-o", "a.csv"], "such as 500m"),
        (["--points", "3", "--inside", "lake.map", "-o", "a.csv"], "no GeoJSON"),
        (["--points", "3", "--inside", "none.geojson"], "none.geojson"),
        (["--points", "3", "--at", "east [km]=1", "--at", "north [km]=1", "-o", "a.csv"], "leave at least one"),
        (["--check", "lake.map"], "--check needs the .geojson that wgpr next wrote: lake.map is no GeoJSON"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(wgpr, lake, tmp_path, arguments, message):
    before = {path.name for path in tmp_path.iterdir()}
    code, _, told = wgpr("next", "lake.map", *arguments)
    assert code not in (0, None)
    assert message in " ".join(told.split())
    assert "Traceback" not in told
    assert {path.name for path in tmp_path.iterdir()} == before


def test_the_help_says_what_a_gain_is(wgpr, lake):
    _, told, _ = wgpr("next", "--help")
    assert "fraction of the summed variance of the field" in " ".join(told.replace("│", " ").split())


def test_a_missing_map_is_told_before_a_missing_output(wgpr, lake):
    code, _, told = wgpr("next", "none.map", "--points", "3")
    assert code == 1
    assert "there is no none.map" in told


def test_fewer_lines_than_asked_for_are_explained(wgpr, west):
    code, _, told = wgpr("next", "lake.map", "--lines", "9", "--spacing", "700m", "--inside", west, "-o", "a.csv")
    assert code == 0
    n_lines = pd.read_csv("a.csv")["number"].max()
    assert n_lines < 9
    assert f"room for no more than {n_lines} lines so far apart" in " ".join(told.split())


def _nested(depth):
    return '{"features": [' * depth + "]}" * depth


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'{{"type": "Polygon", "coordinates": [[[0, 0], [{10**400}, 0], [1, 1]]]}}', "or without numbers"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [1e200, 0], [1, 1]]]}', "or without numbers"),
        (f'{{"type": {"9" * 5000}}}', "has no polygon"),
        (_nested(400), "more than 20 deep"),
        (_nested(100_000), "is no GeoJSON"),
        ("[" + "[]," * 12_000_000 + "0]", "at most 33,554,432 are read"),
    ],
    ids=["huge integer", "huge number", "many digits", "deep", "deeper", "large"],
)
def test_hostile_polygons_are_refused(tmp_path, text, told):
    path = tmp_path / "bay.geojson"
    path.write_text(text)
    with pytest.raises(ValueError, match=told) as error:
        read_polygons(path, None)
    assert "bay.geojson" in str(error.value)


@pytest.mark.parametrize("places", [[], [[1e200, 0.0]], [[10**400, 0.0]], [[None, 0.0]]])
@pytest.mark.parametrize("std", [1.0, -1.0, 10**400, float("nan")])
def test_hostile_plans_are_refused(tmp_path, places, std):
    path = tmp_path / "next.geojson"
    for about in (
        {"places": places, "std_after": 1.0},
        {"places": [[0.0, 0.0]], "std_after": std},
        {"places": [[0.0, 0.0]], "std_after": 1.0, "rows": float("inf")},
    ):
        others = {"std_before": 1.0, "inputs": ["x", "y"], "crs": "", "rows": 5}
        path.write_text(json.dumps({"wgpr": others | about}))
        if about == {"places": [[0.0, 0.0]], "std_after": 1.0}:
            assert read_expectation(path).after == 1.0
            continue
        with pytest.raises(ValueError, match=r"next\.geojson .*; "):
            read_expectation(path)


def test_a_path_shows_how_far_its_plan_is(wgpr, lake, monkeypatch):
    shown = []

    @contextmanager
    def bar(title, n_rows):
        assert (title, n_rows) == ("planning", 100)
        yield lambda n_done, _: shown.append(n_done)

    monkeypatch.setattr(next_command, "progress_bar", bar)
    assert wgpr("next", "lake.map", "--budget", "2km", "--from", "1,1", "-o", "path.csv")[0] == 0
    assert shown == sorted(set(shown))
    assert len(shown) > 10
    assert (shown[0], shown[-1] < 100) == (0, True)
