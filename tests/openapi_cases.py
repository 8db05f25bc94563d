"""Requests that schemathesis makes from the OpenAPI of a running service, and what is wrong with the answers."""

from collections import Counter
from contextlib import suppress

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks

from wgpr.estimators.regressors import METHODS
from wgpr.io.settings import settings_of
from wgpr.service.limits import ENDLESS

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]

_PUT = "PUT /maps/{name}"
_TABLES = ("POST /maps/{name}/rows", "POST /maps/{name}/predict")


class Answers:
    """n_answers : by operation and status; failures : the first of each kind, as text."""

    def __init__(self):
        self.n_answers: Counter[tuple[str, int]] = Counter()
        self.failures: dict[tuple[str, str], str] = {}

    def add(self, case, response):
        label = case.operation.label
        self.n_answers[label, response.status_code] += 1
        try:
            case.validate_response(response, checks=CHECKS)
        except BaseExceptionGroup as group:
            for failure in group.exceptions:
                self.failures.setdefault((label, type(failure).__name__), f"{label}: {failure}\n{group}")


def operations(url):
    """The operations of the service by label, such as `GET /maps`; without the stream of events, which has no end."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    found = {result.ok().label: result.ok() for result in schema.get_all_operations()}
    return {label: operation for label, operation in found.items() if operation.path not in ENDLESS}


def try_operation(url, operation, names, columns, n_examples, answers, a_seed=0):
    """Send generated requests to maps of these names, None for generated ones, and judge the answers.

    columns : of the maps, for bodies that fit. The others are half requests that fit the description, and half that do
    not. n_examples : of each kind, for each name.
    """
    session = requests.Session()

    def send(case):
        answers.add(case, case.call(base_url=url, session=session))

    def send_body(case, body):
        case.body = body
        send(case)
        if operation.label == _PUT:
            session.delete(f"{url}{case.formatted_path}")

    for name in names if "{name}" in operation.path else [None]:
        fixed = {} if name is None else {"path_parameters": {"name": name}}
        for mode in GenerationMode:
            _run(send, n_examples, a_seed, case=operation.as_strategy(generation_mode=mode, **fixed))
        if name is not None and operation.label in (_PUT, *_TABLES):
            case = operation.as_strategy(media_type="application/json", body={}, **fixed)
            body = definitions() if operation.label == _PUT else tables(columns)
            _run(send_body, n_examples, a_seed, case=case, body=body)


def definitions():
    """Maps of every method, with settings that exist and values that may make no sense."""
    values = st.sampled_from(
        ["auto", "nearest", "never", "se", "x", [], [1], {}, {"object": "BestFew"}, {"number": "inf"}]
    )
    values |= st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)

    def of_method(method):
        settings = st.dictionaries(st.sampled_from([*settings_of(method)]), values, max_size=2)
        return st.fixed_dictionaries(
            {"inputs": st.just(["a"]), "target": st.just("y"), "method": st.just(method), "settings": settings}
        )

    return st.sampled_from([*METHODS]).flatmap(of_method)


def tables(columns):
    """Columns of a table that a map takes, unless the values are far outside."""
    numbers = st.floats(-1e99, 1e99, allow_nan=False) | st.integers(-10, 10)
    rows = st.lists(st.tuples(*[numbers] * len(columns)), min_size=1, max_size=30)
    return rows.map(lambda rows: dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def _run(function, n_examples, a_seed, **strategies):
    options = {"max_examples": n_examples, "deadline": None, "database": None, "phases": [Phase.generate]}
    test = given(**strategies)(function)
    with suppress(Unsatisfiable):  # there is nothing that does not fit
        settings(**options, suppress_health_check=list(HealthCheck))(seed(a_seed)(test))()
