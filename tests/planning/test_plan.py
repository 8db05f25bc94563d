"""`wgpr.plan` and its files."""

import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest

from wgpr import LocalGPRegressor, WGPRegressor, plan
from wgpr.io.coordinates import coordinates_of
from wgpr.io.rows import learn_rows
from wgpr.planning.files import read_expectation, read_polygons, write_plan
from wgpr.planning.ground import Polygons
from wgpr.planning.plan import gains_of

pytestmark = pytest.mark.usefixtures("few_cells")
NAMES = ["east [m]", "north [m]"]


def field(X):
    return np.sin(X[:, 0] / 12.0) * np.cos(X[:, 1] / 10.0)


def survey(gap=False, step=4.0):
    """Lines along x every 20 m, with a row every few metres, without the middle if there is a gap."""
    x = np.arange(0.0, 200.1, step)
    X = np.concatenate([np.column_stack([x, np.full(len(x), y)]) for y in np.arange(0.0, 200.1, 20.0)])
    is_left = ~((np.abs(X[:, 0] - 100.0) < 50.0) & (np.abs(X[:, 1] - 100.0) < 50.0)) if gap else np.full(len(X), True)
    return X[is_left]


def lake_with_gap(step):
    X = survey(gap=True, step=step)
    y = field(X) + 0.02 * np.random.default_rng(0).normal(size=len(X))
    return WGPRegressor().fit(pd.DataFrame(X, columns=NAMES), pd.Series(y, name="depth [m]"))


@pytest.fixture(scope="module")
def lake():
    return lake_with_gap(4.0)


@pytest.fixture(scope="module")
def georeferenced():
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    X = survey()
    degrees = np.column_stack([-76.3 + X[:, 0] / 79_000, 44.5 + X[:, 1] / 111_000])
    model = WGPRegressor()
    model.crs_ = coordinates_of("EPSG:4326", ["lon", "lat"])
    learn_rows(model, np.column_stack([degrees, field(X)]), None, ["lon", "lat", "depth [m]"])
    return model


def test_points_lie_in_the_gap_and_are_told_the_best_first(lake):
    made = plan(lake, points=5)
    places = np.concatenate(made.tracks)
    assert places.shape == (5, 2)
    assert (np.abs(places - 100.0) < 55.0).all()
    assert made.gains[0] == pytest.approx(made.gains.max(), rel=0.2)
    assert made.after < made.before == pytest.approx(made.std_of(lake), rel=0.05)


def test_no_place_is_proposed_twice():
    """Where noise is large, to measure again at the best place gains most."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 100.0, (80, 2))
    made = plan(WGPRegressor().fit(X, X[:, 0] / 50.0 + rng.normal(size=80)), points=20)
    assert len(np.unique(np.concatenate(made.tracks), axis=0)) == 20


def test_points_are_in_the_order_of_the_gains_that_are_reported(strip):
    made = plan(strip, points=12)
    assert (np.diff(made.gains) <= 1e-9).all()
    assert made.gains[0] > 2.0 * made.gains[-1]


def test_places_between_smooth_and_rough_ground_have_the_best_first(regimes):
    made = plan(regimes, points=20)
    assert (np.diff(made.gains) <= 1e-6).all()
    for n_points in (1, 3):
        fewer = plan(regimes, points=n_points)
        np.testing.assert_array_equal(np.concatenate(fewer.tracks), np.concatenate(made.tracks[:n_points]))
        np.testing.assert_array_equal(fewer.gains, made.gains[:n_points])


def test_places_are_chosen_by_the_gains_that_are_reported():
    """Also of a map whose length-scales are shorter than the distance of its lines."""
    east, north = np.meshgrid(np.delete(np.arange(0.0, 100.0, 1.1), range(44, 48)), np.arange(0.0, 80.0, 15.0))
    X = np.column_stack([east.ravel(), north.ravel()])
    y = np.sin(X[:, 0] / 1.35) * np.cos(X[:, 1] / 3.0) + 0.02 * np.random.default_rng(0).normal(size=len(X))
    model = WGPRegressor().fit(pd.DataFrame(X, columns=NAMES), y)
    assert plan(model, points=1).gains[0] == plan(model, points=12).gains.max()


@pytest.mark.parametrize("after", [2.0, np.nextafter(2.0, 3.0)])
def test_gains_are_never_below_zero(after):
    """What takes nothing out, but for rounding, has the gain 0, and not -0."""
    gains = gains_of(np.array([2.0, after, 1.0]))
    assert gains[0] == 0.0
    assert not np.signbit(gains).any()
    assert gains[1] == pytest.approx(0.5)


def test_the_expected_uncertainty_comes_true(lake):
    made = plan(lake, points=12)
    X = np.concatenate(made.tracks)
    y = field(X) + 0.02 * np.random.default_rng(1).normal(size=12)
    realised = made.std_of(deepcopy(lake).partial_fit(pd.DataFrame(X, columns=NAMES), y))
    assert realised < made.before
    assert realised == pytest.approx(made.after, rel=0.25)


def test_greedy_points_are_better_than_random_ones():
    """No territory of this lake is so full that the next rows change its hyperparameters."""
    lake = lake_with_gap(5.0)
    made = plan(lake, points=8)
    random = np.random.default_rng(1)
    after = []
    for X in (np.concatenate(made.tracks), *(random.uniform(0.0, 200.0, (8, 2)) for _ in range(3))):
        y = field(X) + 0.02 * random.normal(size=8)
        after.append(made.std_of(deepcopy(lake).partial_fit(pd.DataFrame(X, columns=NAMES), y)))
    assert after[0] < min(after[1:])


def test_lines_are_parallel_and_apart(lake):
    made = plan(lake, lines=3, spacing=15.0)
    directions = np.array([track[1] - track[0] for track in made.tracks])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    assert (np.abs(directions @ directions[0]) > 1.0 - 1e-9).all()
    normal = np.array([-directions[0, 1], directions[0, 0]])
    offsets = np.sort([track[0] @ normal for track in made.tracks])
    assert (np.diff(offsets) >= 15.0 - 1e-6).all()
    assert made.length == pytest.approx(sum(np.linalg.norm(track[1] - track[0]) for track in made.tracks))


@pytest.fixture(scope="module")
def strip():
    """Lines along x, 15 m apart, of a field that changes fast along them, without a strip of 5 m across them."""
    x = np.arange(0.0, 100.0, 1.1)
    x = x[np.abs(x - 50.0) > 2.5]
    X = np.concatenate([np.column_stack([x, np.full(len(x), y)]) for y in np.arange(0.0, 80.0, 15.0)])
    y = np.sin(X[:, 0] / 1.35) * np.cos(X[:, 1] / 40.0) + 0.02 * np.random.default_rng(0).normal(size=len(X))
    return WGPRegressor().fit(pd.DataFrame(X, columns=NAMES), y)


def test_more_lines_are_expected_to_gain_more(strip):
    one, three = plan(strip, lines=1), plan(strip, lines=3)
    assert one.gains.sum() < three.gains.sum()
    assert three.after < one.after < one.before


@pytest.mark.parametrize("returns", [False, True])
def test_a_path_keeps_its_budget_and_goes_into_the_gap(lake, returns):
    made = plan(lake, budget=400.0, start=(10.0, 10.0), returns=returns)
    (track,) = made.tracks
    assert made.length <= 400.0
    assert made.length == pytest.approx(np.linalg.norm(np.diff(track, axis=0), axis=1).sum())
    np.testing.assert_allclose(track[0], [10.0, 10.0])
    assert np.allclose(track[-1], [10.0, 10.0]) == returns
    assert (np.abs(track - 100.0).max(axis=1) < 50.0).any()
    assert made.after < made.before


def test_a_budget_that_reaches_nothing_is_no_path(lake):
    with pytest.raises(
        ValueError, match=r"start is 70\d.* m from the nearest ground, .* the budget of 5 m; begin near"
    ):
        plan(lake, budget=5.0, start=(-500.0, -500.0))
    with pytest.raises(ValueError, match="too far there and back for the budget of 900 m"):
        plan(lake, budget=900.0, start=(-500.0, -500.0), returns=True)


def test_the_order_of_a_start_that_is_too_far_is_told(georeferenced):
    with pytest.raises(ValueError, match=r"start.*lon,lat in this order; perhaps they are swapped: -76.299,44.501 is"):
        plan(georeferenced, budget=500.0, start=(44.501, -76.299))
    with pytest.raises(ValueError, match=r"lon,lat in this order$"):
        plan(georeferenced, budget=500.0, start=(40.0, -70.0))


def test_a_start_beyond_the_pole_is_told_to_be_swapped():
    """A longitude beyond 90 degrees is no latitude."""
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    X, model = survey(), WGPRegressor()
    degrees = np.column_stack([-123.0 + X[:, 0] / 79_000, 44.5 + X[:, 1] / 111_000])
    model.crs_ = coordinates_of("EPSG:4326", ["lon", "lat"])
    learn_rows(model, np.column_stack([degrees, field(X)]), None, ["lon", "lat", "depth [m]"])
    with pytest.raises(
        ValueError, match=r"start \(lon,lat\): .* is no place .*; perhaps .* swapped: -122.999,44.501 is"
    ):
        plan(model, budget=500.0, start=(44.501, -122.999))


def test_lengths_are_in_the_unit_of_the_inputs_also_if_one_range_is_far_longer():
    X = np.random.default_rng(0).uniform([0.0, 0.0], [100.0, 10.0], (100, 2))
    made = plan(WGPRegressor().fit(X, np.sin(X[:, 0])), budget=50.0, start=(50.0, 5.0))
    assert 25.0 < np.linalg.norm(np.diff(made.tracks[0], axis=0), axis=1).sum() <= 50.0


def test_inputs_of_different_units_have_points_but_no_lines():
    X = np.random.default_rng(0).uniform([0.0, 0.0], [100.0, 1.0], (300, 2))
    frame = pd.DataFrame(X, columns=["east [m]", "time [h]"])
    model = WGPRegressor().fit(frame, np.sin(X[:, 0]))
    assert len(plan(model, points=3).tracks) == 3
    with pytest.raises(ValueError, match="two inputs of the same unit"):
        plan(model, lines=2)


@pytest.mark.parametrize("column", [0, 1])
def test_data_on_one_line_need_a_polygon(column):
    X = np.random.default_rng(0).uniform(0.0, 10.0, (100, 2))
    X[:, column] = 3.0
    model = WGPRegressor().fit(X, np.sin(X.sum(axis=1)))
    with pytest.raises(ValueError, match="give inside"):
        plan(model, points=2)
    made = plan(model, points=2, inside=[[0, 0], [10, 0], [10, 10], [0, 10]])
    assert all(((track >= 0.0) & (track <= 10.0)).all() for track in made.tracks)


@pytest.mark.parametrize("length", [1e6, 1e90])
def test_data_nearly_on_one_line_need_a_polygon(length):
    X = np.random.default_rng(0).uniform(0.0, 10.0, (100, 2)) * [length, 1.0]
    model = WGPRegressor().fit(pd.DataFrame(X, columns=NAMES), X[:, 1])
    with pytest.raises(ValueError, match="give inside"):
        plan(model, lines=2)
    with pytest.raises(ValueError, match=r"wider polygon|no area"):
        plan(model, lines=2, inside=X[:3])


@pytest.mark.parametrize("arguments", [{"points": 5}, {"lines": 2}, {"budget": 100.0, "start": (1.0, 100.0)}])
def test_a_corridor_has_a_plan(lake, arguments):
    made = plan(lake, **arguments, inside=[[0.0, 99.5], [200.0, 99.5], [200.0, 100.5], [0.0, 100.5]])
    places = np.concatenate(made.tracks)
    assert (np.abs(places[:, 1] - 100.0) <= 0.51).all()


def test_a_winding_corridor_does_not_have_more_cells_than_others(lake):
    corridor = [[0.0, 0.0], [6400.0, 0.0], [6400.0, 6400.0], [6355.0, 6400.0], [6355.0, 45.0], [0.0, 45.0]]
    assert 100 <= len(plan(lake, points=1, inside=corridor).places) <= 3000


def test_a_polygon_limits_the_plan(lake):
    corners = np.array([[0.0, 0.0], [80.0, 0.0], [80.0, 80.0], [0.0, 80.0]])
    for made in (plan(lake, points=4, inside=corners), plan(lake, lines=2, inside=corners)):
        assert (np.concatenate(made.tracks) <= 80.0).all()
        assert (made.places <= 80.0).all()


def test_one_input_has_points():
    x = np.concatenate([np.linspace(0, 4, 60), np.linspace(6, 10, 60)])
    model = WGPRegressor().fit(x[:, None], np.sin(3 * x))
    assert all(4.0 < track[0, 0] < 6.0 for track in plan(model, points=2).tracks)
    with pytest.raises(ValueError, match="two inputs that vary"):
        plan(model, lines=2)


def test_a_third_input_needs_a_value():
    X = np.random.default_rng(0).uniform(size=(200, 3))
    model = WGPRegressor().fit(X, X.sum(axis=1))
    with pytest.raises(ValueError, match="give a value for x3"):
        plan(model, points=2)
    made = plan(model, points=2, at={"x3": 0.25})
    assert all(track[0, 2] == 0.25 for track in made.tracks)


def test_the_model_stays_as_it_was(lake):
    before = lake.to_bytes()
    plan(lake, points=3)
    assert lake.to_bytes() == before


def test_few_rows_are_enough():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert len(plan(WGPRegressor().fit(X, X[:, 0]), points=3).tracks) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of points, lines and budget"),
        ({"points": 2, "lines": 2}, "one of points, lines and budget"),
        ({"points": 0}, "points must"),
        ({"points": 10**9}, "points must be at most"),
        ({"lines": 2, "spacing": -1.0}, "spacing must"),
        ({"lines": 2, "spacing": np.nan}, "spacing must"),
        ({"budget": 5.0}, "needs a start"),
        ({"budget": np.inf, "start": (0, 0)}, "budget must"),
        ({"budget": -1.0, "start": (0, 0)}, "budget must"),
        ({"points": 2, "start": (0, 0)}, "start and returns are for a path"),
        ({"points": 2, "returns": True}, "start and returns are for a path"),
        ({"points": 2, "spacing": 3.0}, "spacing is for lines"),
        ({"points": 2, "inside": Polygons(((),))}, "at least three corners"),
        ({"points": 1000}, "points must be at most"),
        ({"budget": 5.0, "start": (0, np.nan)}, "start must be finite"),
        ({"budget": 5.0, "start": "home"}, "start must be"),
        ({"points": 2, "inside": [[0, 0], [1, 1]]}, "at least three corners"),
        ({"points": 2, "inside": [[0, 0], [1, 1], [2, 2]]}, "no ground|no area"),
        ({"points": 2, "at": {"up": 1.0}}, "no input 'up'"),
    ],
)
def test_bad_arguments_say_what_is_wrong(lake, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        plan(lake, **arguments)


def test_other_methods_say_that_they_cannot():
    X = survey()[:60]
    with pytest.raises(ValueError, match="default method"):
        plan(LocalGPRegressor(batch_size=20).fit(X, field(X)), points=1)


# Files


RING = [[-76.2995, 44.5], [-76.298, 44.5], [-76.298, 44.5015], [-76.2995, 44.5]]


def test_geojson_is_in_degrees_and_tells_what_is_expected(georeferenced, tmp_path):
    made, path = plan(georeferenced, points=3), tmp_path / "next.geojson"
    write_plan(path, made, georeferenced.crs_)
    found = json.loads(path.read_text())
    places = [feature["geometry"]["coordinates"] for feature in found["features"]]
    np.testing.assert_allclose(places, np.concatenate(made.tracks), atol=1e-8)
    assert all(-76.31 < longitude < -76.29 and 44.49 < latitude < 44.51 for longitude, latitude in places)
    expectation = read_expectation(path)
    assert (expectation.before, expectation.after) == (made.before, made.after)
    assert len(expectation.places) <= 1000


def test_csv_has_the_inputs(lake, tmp_path):
    write_plan(tmp_path / "next.csv", plan(lake, lines=2, inside=[[0, 0], [80, 0], [80, 80], [0, 80]]), None)
    frame = pd.read_csv(tmp_path / "next.csv")
    assert frame.columns.tolist() == ["number", *NAMES, "gain"]
    assert frame["number"].tolist() == [1, 1, 2, 2]


def test_a_mission_is_read_by_pymavlink(georeferenced, tmp_path):
    mavwp = pytest.importorskip("pymavlink.mavwp", reason='needs pip install "wgpr[mavlink]"')
    made, path = plan(georeferenced, budget=300.0, start=(-76.2999, 44.5001), inside=RING), tmp_path / "next.waypoints"
    assert len(made.tracks[0]) > 3
    write_plan(path, made, georeferenced.crs_)
    loader = mavwp.MAVWPLoader()
    loader.load(str(path))
    points = [loader.wp(number) for number in range(1, loader.count())]
    np.testing.assert_allclose([(point.y, point.x) for point in points], made.tracks[0], atol=2e-7)
    assert {(point.command, point.frame, point.z) for point in points} == {(16, 3, 0.0)}


def test_a_plan_of_qgroundcontrol_has_its_members(georeferenced, tmp_path):
    made, path = plan(georeferenced, points=4), tmp_path / "next.plan"
    write_plan(path, made, georeferenced.crs_)
    found = json.loads(path.read_text())
    assert (found["fileType"], found["version"], found["mission"]["version"]) == ("Plan", 1, 2)
    places = [item["params"][4:6] for item in found["mission"]["items"]]
    expected = np.concatenate(made.tracks)[:, ::-1]
    np.testing.assert_allclose(np.sort(places, axis=0), np.sort(expected, axis=0), atol=1e-8)


def test_a_mission_needs_degrees(lake, tmp_path):
    with pytest.raises(ValueError, match="--crs"):
        write_plan(tmp_path / "next.plan", plan(lake, points=2), None)
    with pytest.raises(ValueError, match="must end with"):
        write_plan(tmp_path / "next.kml", plan(lake, points=2), None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "found",
    [
        {"type": "Polygon", "coordinates": [RING]},
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [RING]}},
        {"type": "FeatureCollection", "features": [
            {"type": "Feature", "geometry": {"type": "MultiPolygon", "coordinates": [[RING]]}},
            {"type": "Feature", "geometry": None},
        ]},
        {"type": "GeometryCollection", "geometries": [{"type": "Polygon", "coordinates": [RING]}]},
    ],
)  # fmt: skip
def test_polygons_of_geojson(georeferenced, tmp_path, found):
    (tmp_path / "lake.geojson").write_text(json.dumps(found))
    polygons = read_polygons(tmp_path / "lake.geojson", georeferenced.crs_)
    np.testing.assert_allclose(polygons.polygons[0][0], RING, atol=1e-9)
    made = plan(georeferenced, points=3, inside=polygons)
    assert all(-76.2995 <= track[0, 0] <= -76.298 for track in made.tracks)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "{}",
        '{"type": "Point", "coordinates": [0, 0]}',
        '{"type": "Polygon"}',
        '{"type": "Polygon", "coordinates": []}',
        '{"type": "Polygon", "coordinates": [[[0, 0], [1, "a"], [1, 1]]]}',
        '{"type": "Polygon", "coordinates": [[[0, 0], [1, 1]]]}',
        '{"type": "Polygon", "coordinates": [[[0], [1], [2]]]}',
        '{"type": "Polygon", "coordinates": [[[0, 0], [1, 1e999], [1, 1]]]}',
        '{"type": "MultiPolygon", "coordinates": 7}',
        '{"type": "FeatureCollection", "features": [3]}',
    ],
)
def test_a_file_without_a_polygon_says_so(tmp_path, text):
    (tmp_path / "x.geojson").write_text(text)
    with pytest.raises(ValueError, match=r"x\.geojson"):
        read_polygons(tmp_path / "x.geojson", None)
