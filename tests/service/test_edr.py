"""OGC API - Environmental Data Retrieval, checked by models of the standard and by a client of others."""

import numpy as np
import pandas as pd
import pytest
from covjson_pydantic.coverage import Coverage
from edr_pydantic.capabilities import ConformanceModel, LandingPageModel
from edr_pydantic.collections import Collection, Collections
from owslib.ogcapi.edr import EnvironmentalDataRetrieval

from running_service import as_csv, make_map, send, survey
from wgpr.service.edr import along, parse_wkt
from wgpr.service.errors import ServiceError


@pytest.fixture(scope="module")
def ocean(service):
    """A map of longitude, latitude and depth."""
    names = ["lon", "lat", "depth", "t [°C]"]
    path = make_map(service.client, "edr-ocean", inputs=names[:-1], target=names[-1], settings={"random_state": 0})
    send(service.client, f"{path}/rows", as_csv(survey(100, d=3), names), params={"wait": "learned"})
    yield "edr-ocean"
    service.client.delete(path)


def coverage(client, collection, query, **parameters):
    answer = client.get(f"/collections/{collection}/{query}", params=parameters)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/prs.coverage+json"
    Coverage.model_validate(answer.json())
    return answer.json()


def predicted(model, places):
    return model.predict(pd.DataFrame(places, columns=["east", "north"]), return_std=True)


def test_landing_page_conformance_and_collections_follow_the_standard(client, lake, ocean):
    landing = client.get("/", headers={"Accept": "application/json"}).json()
    LandingPageModel.model_validate(landing)
    assert {link["rel"] for link in landing["links"]} >= {"service-desc", "conformance", "data"}
    ConformanceModel.model_validate(client.get("/conformance").json())
    collections = client.get("/collections").json()
    Collections.model_validate(collections)
    assert {each["id"] for each in collections["collections"]} >= {"lake", ocean}
    Collection.model_validate(client.get(f"/collections/{ocean}").json())


def crs_details(client, collection):
    """The coordinate reference system of each query of a collection."""
    queries = client.get(f"/collections/{collection}").json()["data_queries"].values()
    return [details for query in queries for details in query["link"]["variables"]["crs_details"]]


def test_queries_are_described_with_the_coordinate_reference_system_of_the_map(client, lake, ocean):
    crs = pytest.importorskip("pyproj", reason='needs pip install "wgpr[geo]"').CRS
    path = make_map(client, "edr-projected", crs="EPSG:32633", settings={"random_state": 0})
    rows = survey(20) + np.array([500_000.0, 5_800_000.0, 0.0])
    send(client, f"{path}/rows", as_csv(rows), params={"wait": "learned"})
    for details in crs_details(client, "edr-projected"):
        assert details["crs"] == "EPSG:32633"
        assert crs.from_wkt(details["wkt"]) == crs.from_epsg(32633)
    assert all(details["wkt"] == details["crs"] for details in crs_details(client, "lake"))
    for details in crs_details(client, ocean):
        assert details["crs"] == "CRS84"
        assert crs.from_wkt(details["wkt"]).is_geographic
    client.delete(path)


def test_every_link_leads_somewhere(client, lake):
    links = client.get("/", headers={"Accept": "application/json"}).json()["links"]
    links += client.get("/collections/lake").json()["links"][:1]
    for link in links:
        assert client.get(link["href"]).status_code == 200


def test_a_position_is_that_of_predict(client, lake, lake_here):
    answer = coverage(client, "lake", "position", coords="POINT(2.5 7)")
    mean, std = predicted(lake_here, [[2.5, 7.0]])
    assert answer["ranges"]["mean"]["values"] == mean.tolist()
    assert answer["ranges"]["std"]["values"] == std.tolist()
    assert answer["domain"]["domainType"] == "Point"


@pytest.mark.parametrize("text", ["MULTIPOINT((1 2), (3 4))", "MULTIPOINT(1 2,3 4)", "multipoint ((1 2),(3 4))"])
def test_several_positions(client, lake, lake_here, text):
    answer = coverage(client, "lake", "position", coords=text)
    assert answer["ranges"]["mean"]["values"] == predicted(lake_here, [[1.0, 2.0], [3.0, 4.0]])[0].tolist()


def test_a_trajectory_goes_along_its_line(client, lake, lake_here):
    answer = coverage(client, "lake", "trajectory", coords="LINESTRING(1 1, 5 1, 5 4)")
    places = answer["domain"]["axes"]["composite"]["values"]
    assert places[0] == [1.0, 1.0]
    assert [5.0, 1.0] in places
    assert places[-1] == [5.0, 4.0]
    assert len(places) > 100
    np.testing.assert_allclose(answer["ranges"]["mean"]["values"], predicted(lake_here, places)[0], rtol=1e-12)


def test_a_cube_is_a_grid(client, lake, lake_here):
    query = {"bbox": "1,2,3,5", "resolution-x": 3, "resolution-y": 4}
    answer = coverage(client, "lake", "cube", **query)
    places = [[x, y] for y in np.linspace(2, 5, 4) for x in np.linspace(1, 3, 3)]
    assert answer["ranges"]["mean"]["shape"] == [4, 3]
    np.testing.assert_allclose(answer["ranges"]["mean"]["values"], predicted(lake_here, places)[0], rtol=1e-12)


def test_an_area_is_empty_outside_of_its_polygon(client, lake):
    query = {"coords": "POLYGON((0 0, 4 0, 0 4, 0 0))", "resolution-x": 5, "resolution-y": 5}
    values = np.array(coverage(client, "lake", "area", **query)["ranges"]["mean"]["values"], dtype=object)
    is_inside = np.add.outer(np.arange(5), np.arange(5)).ravel() < 4
    assert all(value is not None for value in values[is_inside])
    assert all(value is None for value in values[np.add.outer(np.arange(5), np.arange(5)).ravel() > 4])


def test_one_parameter_of_two(client, lake):
    answer = coverage(client, "lake", "position", coords="POINT(1 2)", **{"parameter-name": "std"})
    assert list(answer["ranges"]) == list(answer["parameters"]) == ["std"]


def test_z_is_the_third_input(client, ocean):
    low, high = (coverage(client, ocean, "position", coords="POINT(1 2)", z=z)["ranges"] for z in (1, 9))
    assert low["mean"] != high["mean"]
    assert coverage(client, ocean, "position", coords="POINT Z(1 2 9)")["ranges"] == high
    reference = coverage(client, ocean, "position", coords="POINT(1 2)")["domain"]["referencing"][0]["system"]
    assert reference["type"] == "GeographicCRS"


@pytest.mark.parametrize(
    "query",
    [
        "position?coords=POINT(1)",
        "position?coords=POINT(1 2, 3 4)",
        "position?coords=POINT(a b)",
        "position?coords=LINESTRING(1 2, 3 4)",
        "position?coords=POINT(1 1e400)",
        "position?coords=",
        "position?coords=POINT(1 2)&z=3",
        "position?coords=POINT(1 2)&parameter-name=depth",
        "trajectory?coords=LINESTRING(1 2)",
        "area?coords=POLYGON((0 0, 1 1, 0 0))",
        "area?coords=POLYGON((0 0, 4 0, 0 4, 0 0), (1 1, 2 1, 1 2, 1 1))",
        "cube?bbox=3,2,1,5",
        "cube?bbox=1,2,3",
        "cube?bbox=1,2,3,nan",
    ],
)
def test_a_query_that_makes_no_sense_is_refused(client, lake, query):
    answer = client.get(f"/collections/lake/{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_map_of_one_input_is_no_collection(client):
    path = make_map(client, "edr-line", inputs=["x"], target="y")
    send(client, f"{path}/rows", "x,y\n1,2\n2,3\n", params={"wait": "learned"})
    assert "edr-line" not in {each["id"] for each in client.get("/collections").json()["collections"]}
    assert client.get("/collections/edr-line").status_code == 404
    client.delete(path)


def test_a_client_of_others_can_ask(service, lake, lake_here):
    client = EnvironmentalDataRetrieval(f"{service.url}/")
    assert "lake" in client.data()
    answer = client.query_data("lake", "position", coords="POINT(2.5 7)")
    assert answer["ranges"]["mean"]["values"] == predicted(lake_here, [[2.5, 7.0]])[0].tolist()
    assert client.query_data("lake", "cube", bbox=[1, 2, 3, 5])["domain"]["domainType"] == "Grid"


def test_places_along_a_line_are_evenly_spread():
    places = along(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0]]))
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert steps.max() <= 4.0 / 100 + 1e-12
    np.testing.assert_allclose(along(np.zeros((3, 2))), np.zeros((3, 2)))


def test_a_line_of_too_many_places_is_refused():
    with pytest.raises(ServiceError, match=r"10,000"):
        parse_wkt(f"MULTIPOINT({','.join(['1 2'] * 10_001)})", ["MULTIPOINT"])
