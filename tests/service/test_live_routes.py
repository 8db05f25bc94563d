"""Events, tiles and the track over HTTP."""

import io
import json
import time
from threading import Thread

import httpx
import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from running_service import as_csv, make_map, new_client, rough_survey, send, survey
from wgpr import plan

OCTETS = {"Accept": "application/octet-stream"}


def tile(client, path, layer="mean", at=(6, 0, -1), headers=OCTETS, **parameters):
    z, x, y = at
    return client.get(f"{path}/tiles/{layer}/{z}/{x}/{y}", headers=headers, params=parameters)


def places(z, x, y, size, aspect=1.0):
    """Places of a tile, by the definition of the pyramid."""
    width = 256 / 2.0**z
    return [
        [width * (x + column / (size - 1)), -width * aspect * (y + row / (size - 1))]
        for row in range(size)
        for column in range(size)
    ]


def test_a_tile_has_what_the_model_predicts(client, lake, lake_here):
    answer = tile(client, lake, "all", size=9)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")
    planes = np.frombuffer(answer.content, dtype="<f4").reshape(5, 81)
    frame = dict(zip(["east", "north"], np.transpose(places(6, 0, -1, 9)), strict=True))
    *expected, owners = lake_here.predict_with_owners(pd.DataFrame(frame))
    expected += [owners, [lake_here.hyperparameters_[owner].amplitude for owner in owners]]
    for plane, values in zip(planes, expected, strict=True):
        np.testing.assert_allclose(plane, values, rtol=1e-6)


@pytest.mark.parametrize(("number", "layer"), list(enumerate(["mean", "std", "std_latent", "model"])))
def test_a_layer_is_a_plane_of_all(client, lake, number, layer):
    planes = np.frombuffer(tile(client, lake, "all", size=17).content, dtype="<f4").reshape(5, -1)
    one = np.frombuffer(tile(client, lake, layer, size=17).content, dtype="<f4")
    np.testing.assert_array_equal(one, planes[number])


def test_neighbouring_tiles_share_their_edge(client, lake):
    west, east = (np.frombuffer(tile(client, lake, at=(6, x, -1)).content, "<f4").reshape(65, 65) for x in (0, 1))
    np.testing.assert_array_equal(west[:, -1], east[:, 0])


def test_aspect_stretches_the_second_axis(client, lake):
    plain = tile(client, lake, "mean", at=(6, 0, -1), size=9).content
    assert tile(client, lake, "mean", at=(6, 0, -1), size=9, aspect=2.0).content != plain


def test_a_tile_is_a_picture_by_default(client, lake):
    answer = tile(client, lake, headers={"Accept": "*/*"}, low=3.0, high=7.0)
    assert answer.headers["content-type"] == "image/png"
    assert imread(io.BytesIO(answer.content), format="png").shape == (256, 256, 4)


def test_the_etag_stays_until_ground_near_the_tile_changes(client, pond):
    send(client, f"{pond}/rows", as_csv(rough_survey(2000)), params={"wait": "learned"})
    assert client.get(pond).json()["models"] > 10
    near, far = (4, 0, -1), (4, 5, -6)
    before = {at: tile(client, pond, at=at, size=9).headers["etag"] for at in (near, far)}
    assert tile(client, pond, at=near, headers=OCTETS | {"If-None-Match": before[near]}, size=9).status_code == 304
    send(client, f"{pond}/rows", as_csv([[3.0, 3.0, 5.0]]), params={"wait": "learned"})
    after = {at: tile(client, pond, at=at, size=9).headers["etag"] for at in (near, far)}
    assert after[near] != before[near]
    assert after[far] == before[far]


def test_a_slice_of_three_inputs_needs_a_value_for_the_third(client):
    path = make_map(client, "deep", inputs=["lon", "lat", "z"], target="t")
    names = ["lon", "lat", "z", "t"]
    send(client, f"{path}/rows", as_csv(survey(100, d=3), names), params={"wait": "learned"})
    assert tile(client, path, size=9).status_code == 422
    twice = client.get(f"{path}/tiles/mean/6/0/-1", params={"size": 9, "at": ["z=1", "z=9"]}, headers=OCTETS)
    assert (twice.status_code, twice.json()["detail"]) == (422, "at gives z twice; name each input once")
    slices = [
        client.get(f"{path}/tiles/mean/6/0/-1", params={"size": 9, "at": f"z={z}"}, headers=OCTETS) for z in (1, 9)
    ]
    assert [each.status_code for each in slices] == [200, 200]
    assert slices[0].content != slices[1].content
    client.delete("/maps/deep")


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("mean/41/0/0", 422),
        ("mean/0/x/0", 422),
        ("depth/0/0/0", 422),
        ("mean/-40/1000000000/0", 422),
        ("mean/0/0/0?size=1000", 422),
        ("mean/0/0/0?aspect=0", 422),
        ("mean/0/0/0?aspect=nan", 422),
        ("mean/0/0/0?at=depth=3", 422),
        ("mean/0/0/0?at=east=nan", 422),
        ("mean/0/0/0?at=east=1&at=north=2", 422),
    ],
)
def test_a_tile_that_makes_no_sense_is_refused(client, lake, where, status):
    answer = client.get(f"{lake}/tiles/{where}", headers=OCTETS)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("n_rows", [2, 2100])
def test_the_track_has_the_latest_rows(client, pond, n_rows):
    rows = survey(n_rows)
    send(client, f"{pond}/rows", as_csv(rows))
    deadline = time.monotonic() + 120.0  # it is told a few times a second
    while not (track := client.get(f"{pond}/track").json()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert track == rows[-2000:].tolist()


def events_until(url, kinds, found, headers=None):
    with new_client(url) as client, client.stream("GET", "/events", headers=headers or {}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                found.append(fields)
                fields = {}
                if kinds <= {each.get("event") for each in found}:
                    return


def test_rows_and_what_was_learned_are_told(service, client):
    found = []
    listener = Thread(target=events_until, args=(service.url, {"made", "rows", "learned"}, found), daemon=True)
    listener.start()
    while not found:
        pass
    path = make_map(client, "told")
    send(client, f"{path}/rows", as_csv(survey(50)), params={"wait": "learned"})
    listener.join(timeout=120.0)
    by_kind = {
        each["event"]: json.loads(each["data"]) for each in found if json.loads(each["data"]).get("map") == "told"
    }
    assert by_kind["rows"]["rows_seen"] == 50
    assert len(by_kind["rows"]["points"][0]) == 3
    assert by_kind["learned"]["rows_learned"] == 50
    assert by_kind["learned"]["models"] == 1
    assert np.shape(by_kind["learned"]["extent"]) == (2, 2)
    assert by_kind["learned"]["forecasts"]["rows"] == 49
    client.delete("/maps/told")


def test_the_page_and_its_files_name_no_other_host(service, client):
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for path in ["/", *(f"/page/{name}" for name in ("main.js", "surface.js", "service.js", "style.css", "icon.svg"))]:
        answer = client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")


def test_nothing_outside_of_the_page_is_served(client):
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/vendor/../../app.py"):
        assert httpx.get(f"{client.base_url}{path}").status_code in (400, 404)


# Where next


def test_where_next_is_geojson_in_the_coordinates_of_the_map(client, lake, lake_here):
    answer = client.get(f"{lake}/next", params={"points": 4})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [feature["geometry"]["type"] for feature in found["features"]] == ["Point"] * 4
    expected = plan(lake_here, points=4)
    np.testing.assert_allclose(found["wgpr"]["points"], np.concatenate(expected.tracks))
    assert found["wgpr"]["std_after"] < found["wgpr"]["std_before"] == pytest.approx(expected.before)
    assert client.get(f"{lake}/next", params={"points": 4}).json() == found


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"points": 0}, 422),
        ({"points": 101}, 422),
        ({"at": "up=1"}, 422),
        ({"at": ["east=1", "east=2"]}, 422),
        ({"at": ["east=1", "north=1"]}, 400),
    ],
)
def test_a_wrong_question_for_where_next_is_refused(client, lake, parameters, status):
    answer = client.get(f"{lake}/next", params=parameters)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_an_empty_map_has_no_place_to_measure_next(client):
    answer = client.get(f"{make_map(client, 'nothing-yet')}/next")
    assert answer.status_code == 409


def test_a_plan_holds_for_some_seconds_though_rows_come_in(client):
    path = make_map(client, "river")
    send(client, f"{path}/rows", as_csv(survey(60)), params={"wait": "learned"})
    first = client.get(f"{path}/next", params={"points": 2}).json()
    send(client, f"{path}/rows", as_csv(survey(80)[60:]), params={"wait": "learned"})
    assert client.get(f"{path}/next", params={"points": 2}).json() == first
    assert client.get(f"{path}/next", params={"points": 3}).json() != first
    assert client.get(f"{path}/next", params={"points": 2, "at": "east=1"}).status_code == 400
