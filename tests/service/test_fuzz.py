"""Requests that nobody would write by hand: made from the OpenAPI, and bodies that are broken."""

import gzip

import numpy as np
import pytest

from broken_bodies import WAYS, Body, broken_body, good_body, strictly_read
from openapi_cases import Answers, operations, try_operation
from running_service import NAMES, as_csv, make_map, send, survey

OPERATIONS = [
    "PUT /maps/{name}", "GET /maps", "GET /maps/{name}", "POST /maps/{name}/rows", "POST /maps/{name}/predict",
    "GET /maps/{name}/grid", "GET /maps/{name}/file", "GET /maps/{name}/diff", "DELETE /maps/{name}", "GET /metrics",
    "GET /health/live", "GET /health/ready", "GET /maps/{name}/track", "GET /maps/{name}/next",
    "GET /maps/{name}/tiles/{layer}/{z}/{x}/{y}", "GET /maps/{name}/learned",
    "GET /conformance", "GET /collections", "GET /collections/{name}", "GET /collections/{name}/position",
    "GET /collections/{name}/trajectory", "GET /collections/{name}/area", "GET /collections/{name}/cube",
]  # fmt: skip


@pytest.fixture(scope="module")
def described(service):
    return operations(service.url)


@pytest.fixture(scope="module")
def sea(service):
    """The name of a map that the tests change as they like."""
    path = make_map(service.client, "sea", settings={"random_state": 0})
    send(service.client, f"{path}/rows", as_csv(survey(30)), params={"wait": "learned"})
    yield "sea"
    service.client.delete(path)


def test_every_operation_is_tried(described):
    assert set(described) == set(OPERATIONS)


@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_described(service, described, sea, label):
    answers = Answers()
    name = "spare" if label.startswith(("PUT", "DELETE")) else sea
    try_operation(service.url, described[label], [name], NAMES, 5, answers)
    service.client.delete("/maps/spare")
    assert not answers.failures, "\n\n".join(answers.failures.values())
    assert sum(answers.n_answers.values()) >= 1


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_broken_body_changes_nothing(service, lake, way):
    rng = np.random.default_rng(0)
    before = service.client.get(lake).json()
    for _ in range(10):
        body = broken_body(NAMES, rng, way)
        response = service.client.post(f"{lake}/rows", content=body.data, headers=body.headers)
        assert response.status_code in (400, 415, 422), body
    assert service.client.get(lake).json() == before


def test_the_strict_reader_reads_good_bodies():
    rng = np.random.default_rng(0)
    for _ in range(100):
        assert strictly_read(good_body(NAMES, rng), NAMES).shape[1] == 3
    data = as_csv(survey(4)).encode()
    for body in (Body(data, "text/csv"), Body(gzip.compress(data), "text/csv", "gzip")):
        assert (strictly_read(body, NAMES) == survey(4)).all()
