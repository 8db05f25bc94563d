"""Every route of the service, with every status that it can give."""

import csv
import gzip
import io
import json
import re
import tracemalloc

import httpx
import jsonschema_rs
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.image import imread
from prometheus_client.parser import text_string_to_metric_families

import wgpr
from running_service import NAMES, as_csv, learned_here, make_map, rough_survey, send, survey
from wgpr.io.coordinates import coordinates_of
from wgpr.io.grids import TooManyNodesError, plan_grid
from wgpr.io.rows import ANSWER, answer, interval_half_width, learn_rows
from wgpr.io.settings import new_estimator

CSV, LINES, COLUMNS = "text/csv", "application/x-ndjson", "application/json"
NETCDF, COVERAGE_JSON, PNG = "application/x-netcdf", "application/prs.coverage+json", "image/png"
MAP_FILE, DIFFERENCE = "application/vnd.wgpr.map", "application/vnd.wgpr.diff"


def as_lines(rows, names=NAMES):
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in np.asarray(rows).tolist())


def as_columns(rows, names=NAMES):
    return json.dumps(dict(zip(names, np.asarray(rows).T.tolist(), strict=True)))


BODIES = {CSV: as_csv, LINES: as_lines, COLUMNS: as_columns}


def assert_problem(response, status, *parts):
    """A problem of RFC 9457 whose detail has these parts; returns it."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["title"]
    for part in parts:
        assert part in problem["detail"]
    return problem


def n_rows(client, path):
    """Accepted rows and the version of the state."""
    summary = client.get(path).json()
    return summary["rows_seen"], summary["version"]


# Maps


def test_a_map_is_made_once(client, pond):
    same = {"inputs": ["east", "north"], "target": "depth", "settings": {"random_state": 0}}
    again = client.put(pond, json=same)
    assert again.status_code == 200
    assert again.json()["definition"] == {**same, "weight": None, "method": "wgpr", "crs": None}
    for other in ({"target": "height"}, {"settings": {"random_state": 1}}, {"inputs": ["north", "east"]}):
        assert_problem(client.put(pond, json=same | other), 409, "exists with other columns or settings")


def test_a_map_speaks_the_coordinates_of_its_rows(client):
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    east, north, depth = np.array(survey(120)).T
    longitude, latitude = -76.33 + 1e-3 * east, 44.56 + 1e-3 * north
    rows, names = np.column_stack([longitude, latitude, depth]), ("lon", "lat", "depth")
    path = make_map(client, "degrees", inputs=("lon", "lat"), crs="EPSG:4326", settings={"random_state": 0})
    assert send(client, f"{path}/rows?wait=learned", as_csv(rows, names)).status_code == 200
    here = new_estimator("wgpr", {"random_state": 0})
    here.crs_ = coordinates_of("EPSG:4326", ["lon", "lat"])
    learn_rows(here, rows, None, names)
    answers = send(client, f"{path}/predict", as_csv(rows[:5, :2], names[:2]))
    expected = answer(here, rows[:5, :2], interval_half_width(0.95))
    np.testing.assert_allclose(pd.read_csv(io.StringIO(answers.text))["mean"], expected[0], rtol=1e-6)
    extent = client.get(path).json()["extent"]
    np.testing.assert_allclose(extent["lon"], [longitude.min(), longitude.max()], atol=2e-3)
    collection = client.get("/collections/degrees").json()
    assert collection["crs"] == ["CRS84"]
    grid = client.get(f"{path}/grid", headers={"Accept": NETCDF}, params={"width": 5, "height": 4})
    assert set(xr.load_dataset(io.BytesIO(grid.content), engine="scipy").dims) == {"lon", "lat"}
    assert_problem(send(client, f"{path}/rows", "lon,lat,depth\n-76,95,3\n"), 422, "no place near the map")
    for place, part in (("0,0", "0, 0 is far outside of the known range"), ("44.56,-76.33", "latitude are swapped")):
        body = f"lon,lat,depth\n-76.33,44.56,3\n{place},3\n"
        problem = assert_problem(send(client, f"{path}/rows", body), 422, part, "correct it, or use force=true")
        assert (problem["line"], problem["column"] in names[:2]) == (3, True)
    assert send(client, f"{path}/rows?force=true", "lon,lat,depth\n0,0,3\n").status_code == 202
    assert_problem(send(client, f"{path}/predict", "lon,lat\n-76,95\n"), 422, "no place near the map")
    assert_problem(client.get(f"{path}/tiles/mean/0/0/1"), 422, "no place near the map")
    assert client.delete(path).status_code == 204
    assert_problem(client.put("/maps/other", json={"inputs": ["a", "b"], "target": "c", "crs": "/etc/passwd"}), 422)


def test_places_far_from_where_the_system_is_used_are_refused(client):
    pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"')
    rows = np.array(survey(30)) + np.array([450_000.0, 4_900_000.0, 0.0])
    path = make_map(client, "projected", crs="EPSG:32618")
    swapped, degrees = as_csv(rows[:, [1, 0, 2]]), "east,north,depth\n-76.3,44.5,3\n"
    for body, part in ((swapped, "easting and northing are swapped"), (degrees, "use the crs EPSG:4326")):
        problem = assert_problem(send(client, f"{path}/rows", body), 422, part, "correct it, or use force=true")
        assert (problem["line"], problem["column"]) == (2, "east")
    assert n_rows(client, path)[0] == 0
    assert send(client, f"{path}/rows", as_csv(rows)).status_code == 202
    assert_problem(send(client, f"{path}/rows", swapped), 422, "easting and northing are swapped")
    assert client.delete(path).status_code == 204
    path = make_map(client, "projected", crs="EPSG:32618")
    assert send(client, f"{path}/rows?force=true", swapped).status_code == 202
    assert client.delete(path).status_code == 204


@pytest.mark.parametrize("settings", [{}, {"random_state": None}])
def test_a_map_without_a_seed_gets_one_and_is_the_same_without(client, settings):
    path = make_map(client, "no-seed", settings=settings)
    definition = client.get(path).json()["definition"]
    assert isinstance(definition["settings"]["random_state"], int)
    same = {"inputs": ["east", "north"], "target": "depth"}
    for again in ({}, {"random_state": None}, definition["settings"]):
        assert client.put(path, json={**same, "settings": again}).status_code == 200
    assert client.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("definition", "part"),
    [
        ({"inputs": ["a"]}, "target"),
        ({"inputs": [], "target": "y"}, "inputs"),
        ({"inputs": ["a", "a"], "target": "y"}, "different names"),
        ({"inputs": ["a", "y"], "target": "y"}, "different names"),
        ({"inputs": ["a"], "target": "y", "weight": "a"}, "different names"),
        ({"inputs": ["a"], "target": "y\n"}, "target"),
        ({"inputs": [" a"], "target": "y"}, "inputs"),
        ({"inputs": [f"x{i}" for i in range(51)], "target": "y"}, "inputs"),
        ({"inputs": ["a"], "target": "y", "more": 1}, "more"),
        ({"inputs": ["a"], "target": "y", "settings": {"no_such": 1}}, "no_such"),
        ({"inputs": ["a"], "target": "y", "settings": {"random_state": "x"}}, "random_state"),
        ({"inputs": ["a"], "target": "y", "settings": {"max_models": 10**9}}, "at most 100,000"),
        ({"inputs": ["a"], "target": "y", "method": "solar", "settings": {"n_inducing": 10**6}}, "at most 1,000"),
        ({"inputs": ["a"], "target": "y", "method": "no-such"}, "no-such"),
        ({"inputs": ["a"], "target": "y", "method": "sparse"}, "learn from a stream"),
        ({"inputs": ["a"], "target": "y", "method": "solar", "weight": "w"}, "weight"),
        ([], "body"),
        ('{"inputs": ["a"], "target": "y", "settings": {"threshold": 1e999}}', "settings"),
        ('{"inputs": ["a"], "target": "y", "settings": {"threshold": NaN}}', "settings"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(client, definition, part):
    text = definition if isinstance(definition, str) else json.dumps(definition)
    assert_problem(client.put("/maps/never", content=text, headers={"Content-Type": COLUMNS}), 422, part)
    assert_problem(client.get("/maps/never"), 404)


@pytest.mark.parametrize("name", [".hidden", "-x", "a b", "a%0ab", "x" * 65, "%c3%a9", "a%00"])
def test_a_name_that_is_no_folder_is_refused(client, name):
    definition = {"inputs": ["a"], "target": "y"}
    assert_problem(client.put(f"/maps/{name}", json=definition), 422, "name")


def test_maps_are_listed_by_name(client, lake, pond):
    names = [summary["name"] for summary in client.get("/maps").json()]
    assert {lake[6:], pond[6:]} <= set(names)
    assert names == sorted(names)


def test_the_summary_says_what_was_learned(client, lake):
    summary = client.get(lake).json()
    rows = survey(200)
    assert (summary["rows_seen"], summary["rows_learned"]) == (200, 200)
    assert summary["models"] >= 1
    assert summary["extent"] == {
        name: [low, high]
        for name, low, high in zip(NAMES[:2], rows[:, :2].min(axis=0), rows[:, :2].max(axis=0), strict=True)
    }
    assert summary["forecasts"]["rows"] == 199  # the first row has no forecast
    assert 0.0 < summary["forecasts"]["rmse"] < 2.0
    assert [decision["rows"] for decision in summary["decisions"]] == [71] * (summary["models"] - 1)
    assert summary["failure"] is None


def test_the_summary_has_the_last_decisions(client):
    settings = {"batch_size": 5, "n_inducing": 4, "optimizer_iterations": 2, "w_gen": 0.9, "random_state": 0}
    path = make_map(client, "decisions", method="solar", settings=settings)
    send(client, f"{path}/rows", as_csv(survey(60)), params={"wait": "learned"})
    decisions = client.get(path).json()["decisions"]
    assert len(decisions) == 10
    steps = [decision["step"] for decision in decisions]
    assert steps == sorted(steps, reverse=True)
    assert decisions[0]["rows"] == 5
    texts = [decision["text"] for decision in decisions]
    assert all(re.fullmatch(r"new model [\d, ]+", text) for text in texts)  # the record does not tell why
    client.delete(path)


def test_the_summary_says_why_the_default_method_has_a_new_model(client):
    path = make_map(client, "divided", settings={"random_state": 0})
    send(client, f"{path}/rows", as_csv(rough_survey(600)), params={"wait": "learned"})
    decisions = client.get(path).json()["decisions"]
    pattern = r"new model [\d, ]+: (another kind of ground|model \d+ was full and is divided)"
    assert decisions
    assert all(re.fullmatch(pattern, decision["text"]) for decision in decisions)
    client.delete(path)


def test_a_deleted_map_is_gone_with_its_folder(client, service):
    path = make_map(client, "short-lived")
    assert send(client, f"{path}/rows", as_csv(survey(5))).status_code == 202
    assert client.delete(path).status_code == 204
    assert not [each for each in service.folder.iterdir() if "short-lived" in each.name or "deleted" in each.name]
    assert_problem(client.delete(path), 404, "PUT /maps/short-lived")
    make_map(client, "short-lived")
    assert n_rows(client, path) == (0, "0")
    client.delete(path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", "/rows"),
        ("POST", "/predict"),
        ("GET", "/grid"),
        ("GET", "/file"),
        ("GET", "/diff?since=x"),
    ],
)
def test_an_unknown_map_is_a_404(client, method, path):
    assert_problem(client.request(method, f"/maps/atlantis{path}"), 404, "there is no map atlantis")


def test_an_unknown_path_and_method_are_problems(client):
    assert_problem(client.get("/no/such"), 404)
    assert_problem(client.patch("/maps"), 405)


# Rows


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", BODIES)
def test_rows_come_in_three_formats(client, pond, kind, is_compressed):
    rows = survey(12)
    body = BODIES[kind](rows).encode()
    headers = {"Content-Encoding": "gzip"} if is_compressed else {}
    first = send(client, f"{pond}/rows", gzip.compress(body) if is_compressed else body, kind, headers=headers)
    assert (first.status_code, first.json()) == (202, {"accepted": 12, "sequence": 12})
    second = send(client, f"{pond}/rows", BODIES[kind](survey(3, seed=1)), kind, params={"wait": "learned"})
    assert (second.status_code, second.json()) == (200, {"accepted": 3, "sequence": 15})
    here = learned_here(np.concatenate([rows, survey(3, seed=1)]))
    there = send(client, f"{pond}/predict", as_columns(rows[:3, :2], NAMES[:2]), COLUMNS).json()
    assert there["mean"] == here.predict(pd.DataFrame(rows[:3, :2], columns=NAMES[:2])).tolist()


def test_columns_may_come_in_any_order_and_others_are_ignored(client, pond):
    body = "note,depth, east ,north\na,5.0,1.0,2.0\nb,6.0,3.0,4.0\n"
    assert send(client, f"{pond}/rows", body, params={"wait": "learned"}).status_code == 200
    assert client.get(pond).json()["extent"] == {"east": [1.0, 3.0], "north": [2.0, 4.0]}


def test_a_key_is_learned_once(client, pond):
    body, key = as_csv(survey(10)), {"Idempotency-Key": "line 7"}
    first = send(client, f"{pond}/rows", body, headers=key, params={"wait": "learned"})
    again = send(client, f"{pond}/rows", body, headers=key)
    assert (first.json(), again.status_code) == (again.json(), 202)
    assert n_rows(client, pond)[0] == 10
    other = send(client, f"{pond}/rows", as_csv(survey(10, seed=1)), headers=key)
    assert_problem(other, 422, "this key was used before with other rows")
    assert n_rows(client, pond)[0] == 10
    without = send(client, f"{pond}/rows", body, params={"wait": "learned"})
    assert without.json()["sequence"] == 20


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_has_a_length(client, pond, key):
    answer = send(client, f"{pond}/rows", as_csv(survey(1)), headers={"Idempotency-Key": key})
    assert_problem(answer, 422, "idempotency-key")


BAD_ROWS = [
    # body, kind, line, column, part of the detail
    ("east,north,depth\n1,2,3\n1,x,3\n", CSV, 3, "north", "'x' is not a number"),
    ("east,north,depth\n1,2,3\n\n1,,3\n", CSV, 4, "north", "missing"),
    ("east,north,depth\n1,2,nan\n", CSV, 2, "depth", "not a number"),
    ("east,north,depth\n1,2,inf\n", CSV, 2, "depth", "inf"),
    ("east,north,depth\n1,2,-1e308\n", CSV, 2, "depth", "-1e+308"),
    ("east,north,depth\n1,2,3,4\n", CSV, 2, None, "4 cells"),
    ("east,north,depth\n1,2\n", CSV, 2, None, "2 cells"),
    ('east,north,depth\n1,2,"3\n', CSV, 2, None, "not CSV"),
    ("east,depth\n1,2\n", CSV, 1, None, "'north' is not in the first line"),
    ("east,north,east,depth\n1,2,3,4\n", CSV, 1, None, "'east' is twice in the first line"),
    ("1,2,3\n", CSV, 1, None, "'east' is not in the first line"),
    ('{"east": 1, "north": 2, "depth": 3}\n{"east": 1, "north": 2}\n', LINES, 2, "depth", "missing"),
    ('{"east": 1, "north": 2, "depth": "3"}\n', LINES, 1, "depth", "'3' is not a number"),
    ('{"east": 1, "north": true, "depth": 3}\n', LINES, 1, "north", "'True' is not a number"),
    ('{"east": 1, "north": null, "depth": 3}\n', LINES, 1, "north", "missing"),
    ('{"east": 1, "north": NaN, "depth": 3}\n', LINES, 1, None, "not JSON"),
    ('{"east": 1, "north": 1e999, "depth": 3}\n', LINES, 1, "north", "inf"),
    ("[1, 2, 3]\n", LINES, 1, None, "must be an object"),
    ('{"east": 1, "north": 2, "depth": 3, "east": 4}\n', LINES, 1, None, "a name is there twice"),
    ('{"east": [1], "north": [2], "depth": [3], "east": [4]}', COLUMNS, None, None, "a name is there twice"),
    ('{"east": 1, "north": 2, "depth": 3\n', LINES, 1, None, "not JSON"),
    ('{"east": [1], "north": [2, 3], "depth": [3]}', COLUMNS, None, None, "equally long"),
    ('{"east": [1], "depth": [3]}', COLUMNS, None, None, "'north' is missing"),
    ('{"east": [1, 2], "north": [3, [4]], "depth": [5, 6]}', COLUMNS, 2, "north", "'[4]' is not a number"),
    ('{"east": 1, "north": 2, "depth": 3}', COLUMNS, None, None, "no list"),
    ("[1]", COLUMNS, None, None, "object of lists"),
    ("", CSV, None, None, "the body is empty"),
    ("", LINES, None, None, "the body is empty"),
    ('{"east": [], "north": [], "depth": []}', COLUMNS, None, None, "no rows"),
]


@pytest.mark.parametrize(("body", "kind", "line", "column", "part"), BAD_ROWS)
def test_a_bad_row_refuses_the_whole_request(client, lake, body, kind, line, column, part):
    before = n_rows(client, lake)
    problem = assert_problem(send(client, f"{lake}/rows", body, kind), 422, part)
    assert (problem.get("line"), problem.get("column")) == (line, column)
    assert n_rows(client, lake) == before


def test_bodies_that_are_no_text_are_refused(client, lake):
    before = n_rows(client, lake)
    text = as_csv(survey(2))
    assert_problem(send(client, f"{lake}/rows", text.encode("utf-16")), 400, "UTF-8")
    assert_problem(send(client, f"{lake}/rows", text.replace("east", "e\0ast")), 400, "NUL")
    assert_problem(send(client, f"{lake}/rows", text, "text/html"), 415, "content type must be")
    assert_problem(client.post(f"{lake}/rows", content=text), 415)
    gzipped = gzip.compress(text.encode())
    for body in (gzipped[:-9], text.encode(), gzipped + b"rest", gzipped + gzip.compress(b""), b""):
        assert_problem(send(client, f"{lake}/rows", body, headers={"Content-Encoding": "gzip"}), 400, "gzip")
    assert_problem(send(client, f"{lake}/rows", text, headers={"Content-Encoding": "br"}), 415, "gzip only")
    assert n_rows(client, lake) == before


def test_a_value_far_outside_is_refused_unless_forced(client, pond):
    send(client, f"{pond}/rows", as_csv(survey(30)), params={"wait": "learned"})
    body = as_csv([[5.0, 5.0, 6.0], [5e6, 5.0, 6.0]])
    problem = assert_problem(send(client, f"{pond}/rows", body), 422, "far outside of the known range", "force=true")
    assert (problem["line"], problem["column"]) == (3, "east")
    assert n_rows(client, pond)[0] == 30
    answer = send(client, f"{pond}/rows", body, params={"force": "true", "wait": "learned"})
    assert (answer.status_code, answer.json()["sequence"]) == (200, 32)
    assert client.get(pond).json()["extent"]["east"][1] == 5e6


def test_weights_are_learned_and_checked(client):
    names = [*NAMES, "w"]
    path = make_map(client, "weighted", weight="w", settings={"random_state": 0})
    rows = np.column_stack([survey(15), np.linspace(0.5, 2.0, 15)])
    assert send(client, f"{path}/rows", as_csv(rows, names), params={"wait": "learned"}).status_code == 200
    frame = pd.DataFrame(rows, columns=names)
    here = wgpr.WGPRegressor(random_state=0)
    here.partial_fit(frame[NAMES[:2]], frame["depth"], sample_weight=rows[:, 3])
    there = send(client, f"{path}/predict", as_csv([[4.0, 6.0]], NAMES[:2]), CSV)
    mean = here.predict(pd.DataFrame([[4.0, 6.0]], columns=NAMES[:2]))[0]
    assert there.text.splitlines()[1].split(",")[0] == repr(float(mean))
    assert_problem(send(client, f"{path}/rows", as_csv(rows[:, :3])), 422, "column 'w' is not in the first line")
    for bad in (0.0, -1.0, 1e90):
        rows[1, 3] = bad
        problem = assert_problem(send(client, f"{path}/rows", as_csv(rows, names)), 422, "is no weight")
        assert (problem["line"], problem["column"]) == (3, "w")
    assert n_rows(client, path)[0] == 15
    client.delete(path)


def test_too_many_rows_are_a_413(client, lake, service, monkeypatch):
    monkeypatch.setattr(service.catalogue, "limits", service.catalogue.limits.__class__(rows=5, places=4))
    for kind, write in BODIES.items():
        assert_problem(send(client, f"{lake}/rows", write(survey(6)), kind), 413, "more than 5 rows")
        places = write(survey(5)[:, :2], NAMES[:2])
        assert_problem(send(client, f"{lake}/predict", places, kind), 413, "more than 4 rows")


def test_a_long_queue_is_a_429(client, pond, service, monkeypatch):
    monkeypatch.setattr(service.catalogue[pond[6:]], "_max_waiting", 10)
    monkeypatch.setattr(service.catalogue[pond[6:]], "n_accepted", 9)
    answer = send(client, f"{pond}/rows", as_csv(survey(2)))
    assert_problem(answer, 429, "9 rows wait")
    assert int(answer.headers["Retry-After"]) >= 1


# Queries


def expected_answer(model, X, level=0.95, *, latent=False):
    columns = answer(model, X, interval_half_width(level), latent=latent)
    return {name: column.tolist() for name, column in zip(ANSWER, columns, strict=True)}


PARSERS = {
    CSV: lambda text: {
        name: [*map(json.loads, column)] for name, *column in zip(*csv.reader(io.StringIO(text)), strict=True)
    },
    LINES: lambda text: pd.DataFrame([json.loads(line) for line in text.splitlines()]).to_dict("list"),
    COLUMNS: json.loads,
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("n_places", [1, 50], ids=["few", "many"])
def test_predictions_are_those_of_the_estimator(client, lake, lake_here, kind, n_places):
    X = survey(n_places, seed=2)[:, :2]
    response = send(client, f"{lake}/predict", BODIES[kind](X, NAMES[:2]), kind)
    assert response.status_code == 200
    assert response.headers["Content-Type"].partition(";")[0] == kind
    assert PARSERS[kind](response.text) == expected_answer(lake_here, X)


def test_predictions_have_a_level_and_may_be_latent(client, lake, lake_here):
    X = survey(3, seed=3)[:, :2]
    body = as_columns(X, NAMES[:2])
    for level, latent in ((0.5, False), (0.999, True), (1.0 - 2.0**-53, False), (5e-324, False)):
        response = send(client, f"{lake}/predict", body, COLUMNS, params={"level": level, "latent": latent})
        assert response.json() == expected_answer(lake_here, X, level, latent=latent)
    for level in ("0", "1", "nan", "inf", "-0.5", "x"):
        assert_problem(send(client, f"{lake}/predict", body, COLUMNS, params={"level": level}), 422, "level")


def test_a_bad_place_is_refused(client, lake):
    problem = assert_problem(send(client, f"{lake}/predict", "east,north\n1,2\n1,\n"), 422, "missing")
    assert (problem["line"], problem["column"]) == (3, "north")


@pytest.mark.parametrize(("method", "path"), [("POST", "predict"), ("GET", "grid"), ("GET", "file")])
def test_a_map_without_rows_answers_409(client, pond, method, path):
    assert_problem(client.request(method, f"{pond}/{path}"), 409, "send rows first")


SMALL = {"batch_size": 10, "n_inducing": 5, "optimizer_iterations": 2, "random_state": 0}
LOCAL = {"batch_size": 10, "n_calibration": 10, "max_samples": 10, "optimizer_iterations": 2, "random_state": 0}


@pytest.mark.parametrize(
    ("method", "settings"),
    [("wgpr", {"threshold": 1.0, **SMALL}), ("solar", SMALL), ("streaming", SMALL), ("lgpr", LOCAL)],
)
def test_every_method_learns_and_answers(client, method, settings):
    path = make_map(client, f"by-{method}", method=method, settings=settings)
    rows = survey(35)
    assert send(client, f"{path}/rows", as_csv(rows), params={"wait": "learned"}).status_code == 200
    frame = pd.DataFrame(rows, columns=NAMES)
    here = new_estimator(method, settings).partial_fit(frame[NAMES[:2]], frame["depth"])
    there = send(client, f"{path}/predict", as_csv(rows[:3, :2], NAMES[:2]), CSV)
    assert PARSERS[CSV](there.text) == expected_answer(here, rows[:3, :2])
    assert get_grid(client, path, NETCDF, width=3, height=3).status_code == 200
    client.delete(path)


# Grids


def get_grid(client, path, accept, **parameters):
    return client.get(f"{path}/grid", params=parameters, headers={"Accept": accept})


def as_dataset(response):
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == NETCDF
    return xr.open_dataset(io.BytesIO(response.content), engine="scipy")


@pytest.mark.parametrize(
    ("parameters", "region", "spacing"),
    [
        ({"bbox": "1,2,9,6", "width": 9, "height": 5}, (1, 9, 2, 6), (1.0, 1.0)),
        ({"bbox": "1,2,9,6", "spacing": 0.5}, (1, 9, 2, 6), 0.5),
        ({"spacing": 0.5}, None, 0.5),
    ],
)
def test_a_grid_is_that_of_the_estimator(client, lake, lake_here, parameters, region, spacing):
    expected = lake_here.predict_grid(region, spacing)
    with as_dataset(get_grid(client, lake, NETCDF, **parameters)) as grid:
        xr.testing.assert_equal(grid, expected)
        assert grid.attrs == expected.attrs


def test_a_grid_has_the_size_that_is_asked_for(client, lake):
    with as_dataset(get_grid(client, lake, NETCDF, width=7, height=4)) as grid:
        assert grid.sizes == {"north": 4, "east": 7}
    with as_dataset(get_grid(client, lake, NETCDF)) as grid:
        assert grid["mean"].size > 10_000


def test_a_grid_as_coverage_json(client, lake, lake_here):
    response = get_grid(client, lake, COVERAGE_JSON, bbox="1,2,9,6", width=9, height=5)
    assert response.headers["Content-Type"] == COVERAGE_JSON
    coverage = response.json()
    expected = lake_here.predict_grid((1, 9, 2, 6), (1.0, 1.0))
    assert (coverage["type"], coverage["domain"]["type"], coverage["domain"]["domainType"]) == (
        "Coverage", "Domain", "Grid",
    )  # fmt: skip
    axes = coverage["domain"]["axes"]
    assert {name: axis["values"] for name, axis in axes.items()} == {
        name: expected[name].to_numpy().tolist() for name in ("east", "north")
    }
    assert set(coverage["ranges"]) == set(coverage["parameters"]) == {"mean", "std", "std_latent", "model"}
    for name, values in coverage["ranges"].items():
        assert (values["type"], values["axisNames"], values["shape"]) == ("NdArray", ["north", "east"], [5, 9])
        assert values["values"] == expected[name].to_numpy().ravel().tolist()
        assert values["dataType"] == ("integer" if name == "model" else "float")


@pytest.mark.parametrize("layer", ["mean", "std", "std_latent", "model"])
def test_a_grid_as_a_picture(client, lake, layer):
    response = get_grid(client, lake, PNG, width=30, height=20, layer=layer)
    assert response.headers["Content-Type"] == PNG
    assert imread(io.BytesIO(response.content)).shape == (20, 30, 4)


def test_north_is_up_in_a_picture(client):
    path = make_map(client, "slope", settings={"random_state": 0})
    rows = survey(30)
    rows[:, 2] = rows[:, 1]  # depth grows to the north
    send(client, f"{path}/rows", as_csv(rows), params={"wait": "learned"})
    pixels = imread(io.BytesIO(get_grid(client, path, PNG, width=5, height=9).content))
    assert pixels[0, 2, :3].sum() > pixels[-1, 2, :3].sum()  # viridis: from dark to bright
    client.delete(path)


def test_the_best_of_what_the_client_accepts(client, lake):
    wishes = f"text/html, {PNG};q=0.5, {COVERAGE_JSON};q=0.8"
    assert get_grid(client, lake, wishes, width=2, height=2).headers["Content-Type"] == COVERAGE_JSON
    assert get_grid(client, lake, "*/*", width=2, height=2).headers["Content-Type"] == NETCDF
    assert get_grid(client, lake, "image/*", width=2, height=2).headers["Content-Type"] == PNG
    assert_problem(get_grid(client, lake, "text/html", width=2, height=2), 406, NETCDF)


def test_a_map_of_one_input_is_a_line(client):
    path = make_map(client, "line", inputs=["time"], target="level", settings={"random_state": 0})
    send(client, f"{path}/rows", as_csv(survey(20, d=1), ["time", "level"]), params={"wait": "learned"})
    with as_dataset(get_grid(client, path, NETCDF, bbox="0,10", width=11)) as grid:
        assert grid["time"].to_numpy().tolist() == list(range(11))
    with as_dataset(get_grid(client, path, NETCDF)) as grid:
        assert grid.sizes == {"time": 1000}
    assert imread(io.BytesIO(get_grid(client, path, PNG, bbox="0,10", width=11).content)).shape == (1, 11, 4)
    assert_problem(get_grid(client, path, NETCDF, width=11, height=2), 422, "width for a line")
    client.delete(path)


def test_a_map_of_three_inputs_is_cut_at_a_value(client):
    names = ["east", "north", "height", "wind"]
    path = make_map(client, "wind", inputs=names[:3], target="wind", settings={"random_state": 0})
    rows = survey(30, d=3)
    send(client, f"{path}/rows", as_csv(rows, names), params={"wait": "learned"})
    expected = learned_here(rows, names).predict_grid((1, 9, 2, 6), 1.0, at={"height": 2.5})
    with as_dataset(get_grid(client, path, NETCDF, bbox="1,2,9,6", spacing=1.0, at="height=2.5")) as grid:
        xr.testing.assert_equal(grid, expected)
    response = get_grid(client, path, COVERAGE_JSON, bbox="1,2,9,6", spacing=1.0, at="height=2.5")
    assert response.json()["domain"]["axes"]["height"] == {"values": [2.5]}
    assert_problem(get_grid(client, path, NETCDF), 422, "at")
    client.delete(path)


@pytest.mark.parametrize(
    ("parameters", "part"),
    [
        ({"bbox": "1,2,3"}, "two numbers for each input"),
        ({"bbox": "1,2"}, "2 numbers for each input"),
        ({"bbox": "9,2,1,6"}, "least east, greatest east, least north, greatest north; got 9 to 1 for east"),
        ({"bbox": "1,2,nan,6"}, "finite"),
        ({"bbox": "1,2,1e300,6"}, "finite numbers below 1e+100"),
        ({"at": "east=1e300", "width": 5}, "finite numbers below 1e+100"),
        ({"at": ["east=1", "east=2"], "width": 5}, "twice"),
        ({"bbox": "1,2,x,6"}, "numbers separated by commas"),
        ({"bbox": "1,2,9,6", "width": 5}, "width and height"),
        ({"width": 5, "height": 5, "spacing": 1.0}, "exclude each other"),
        ({"width": 1, "height": 5}, "width"),
        ({"spacing": 0}, "spacing"),
        ({"spacing": "nan"}, "spacing"),
        ({"at": "depth=1"}, "one of the names east, north"),
        ({"at": "east"}, "NAME=VALUE"),
        ({"at": ["east=1", "north=1"]}, "fixes every input"),
        ({"layer": "x"}, "layer"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(client, lake, parameters, part):
    assert_problem(get_grid(client, lake, NETCDF, **parameters), 422, part)


def test_a_grid_of_too_many_nodes_is_a_413(client, lake):
    assert_problem(get_grid(client, lake, NETCDF, width=1001, height=1000), 413, "1,001,000 nodes")
    assert_problem(get_grid(client, lake, NETCDF, width=10_000, height=10_000), 413, "nodes")
    assert_problem(get_grid(client, lake, NETCDF, spacing=1e-300), 413, "are the most")


def test_a_grid_of_too_many_nodes_takes_no_memory(lake_here):
    tracemalloc.start()
    with pytest.raises(TooManyNodesError, match="40,000,002 nodes"):
        plan_grid(lake_here, [0, 2e7, 0, 1], 1.0, max_nodes=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


# Files


def saved(content, folder, name="there.map"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compact", [False, True])
def test_the_file_is_a_map(client, lake, lake_here, tmp_path, compact):
    response = client.get(f"{lake}/file", params={"compact": compact})
    assert response.headers["Content-Type"] == MAP_FILE
    assert "lake.map" in response.headers["Content-Disposition"]
    there = wgpr.load(saved(response.content, tmp_path))
    X = pd.DataFrame(survey(20, seed=4)[:, :2], columns=NAMES[:2])
    for ours, theirs in zip(lake_here.predict(X, return_std=True), there.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4 if compact else 0.0)


def test_a_map_that_has_no_compact_form_says_so(client, pond):
    rows = np.concatenate([survey(5), [[1e90, 0.0, -1e90]]])
    send(client, f"{pond}/rows", as_csv(rows), params={"wait": "learned"})
    assert_problem(client.get(f"{pond}/file", params={"compact": True}), 409, "float32 cannot hold")
    assert client.get(f"{pond}/file").status_code == 200


def test_a_file_that_is_known_is_a_304(client, lake):
    tag = client.get(f"{lake}/file").headers["ETag"]
    assert tag == f'W/"{client.get(lake).json()["version"]}"'
    for known in (tag, f'"other", {tag}'):
        response = client.get(f"{lake}/file", headers={"If-None-Match": known})
        assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", tag)
    assert client.get(f"{lake}/file", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_difference_makes_the_new_map_of_the_old(client, pond, tmp_path):
    send(client, f"{pond}/rows", as_csv(survey(40)), params={"wait": "learned"})
    first = client.get(f"{pond}/file")
    send(client, f"{pond}/rows", as_csv(survey(30, seed=1)), params={"wait": "learned"})
    response = client.get(f"{pond}/diff", params={"since": first.headers["ETag"]})
    assert (response.status_code, response.headers["Content-Type"]) == (200, DIFFERENCE)
    assert response.headers["ETag"] != first.headers["ETag"]
    applied = wgpr.apply(wgpr.load(saved(first.content, tmp_path)), response.content)
    new = wgpr.load(saved(client.get(f"{pond}/file").content, tmp_path))
    X = pd.DataFrame(survey(20, seed=4)[:, :2], columns=NAMES[:2])
    for ours, theirs in zip(applied.predict(X, return_std=True), new.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert applied.n_samples_seen_ == new.n_samples_seen_ == 70
    after = client.get(f"{pond}/diff", params={"since": response.headers["ETag"]})
    assert after.status_code == 200


def test_a_difference_since_an_unknown_state_is_a_410(client, lake):
    assert_problem(client.get(f"{lake}/diff", params={"since": '"0-1"'}), 410, "get the whole file")
    assert_problem(client.get(f"{lake}/diff"), 422, "since")


# Operations


def test_metrics_can_be_parsed(client, lake):
    response = client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert {
        "wgpr_rows_accepted", "wgpr_rows_learned", "wgpr_rows_waiting", "wgpr_models", "wgpr_commit_seconds",
        "wgpr_request_seconds", "wgpr_writer_starts",
    } <= set(families)  # fmt: skip
    accepted = {sample.labels["map"]: sample.value for sample in families["wgpr_rows_accepted"].samples}
    assert accepted["lake"] == 200
    routes = {sample.labels["route"] for sample in families["wgpr_request_seconds"].samples}
    assert "/maps/{name}/rows" in routes


def test_metrics_of_a_deleted_map_are_gone(client):
    path = make_map(client, "forgotten")
    assert 'map="forgotten"' in client.get("/metrics").text
    client.delete(path)
    assert 'map="forgotten"' not in client.get("/metrics").text


def test_health(client, lake, service, monkeypatch):
    assert client.get("/health/live").json() == {"status": "live"}
    assert client.get("/health/ready").json() == {"status": "ready"}
    monkeypatch.setattr(service.catalogue["lake"], "failure", "the disk has failed")
    assert_problem(client.get("/health/ready"), 503, "see GET /maps")
    assert_problem(send(client, f"{lake}/rows", as_csv(survey(1))), 503, "the disk has failed")
    assert client.get("/health/live").status_code == 200


def test_the_page_of_the_routes_needs_no_other_host(client):
    page = client.get("/docs")
    assert page.headers["Content-Type"].startswith("text/html")
    assert not re.search(r"(?i)(https?:)?//|src=|@import|url\(", page.text)
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page.text


def test_the_description_is_openapi_31(client):
    description = client.get("/openapi.json").json()
    assert description["openapi"].startswith("3.1")
    assert description["info"]["version"] == wgpr.__version__
    operations = [(path, method) for path, item in description["paths"].items() for method in item]
    assert len(operations) == len(set(operations)) == 24
    text = json.dumps(description)
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text):
        assert reference in description["components"]["schemas"]
    for schema in description["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    identifiers = [operation["operationId"] for item in description["paths"].values() for operation in item.values()]
    assert len(identifiers) == len(set(identifiers))


def test_connections_are_kept(service):
    with httpx.Client(base_url=service.url) as client:
        ports = {client.get("/health/live").extensions["network_stream"].get_extra_info("client_addr") for _ in "abc"}
        assert len(ports) == 1
