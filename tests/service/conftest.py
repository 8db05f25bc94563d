"""One service for the tests of a worker, with a map that has learned."""

import pytest

from live_maps import quick_processes
from running_service import NAMES, as_csv, learned_here, make_map, running, send, survey


@pytest.fixture(scope="session", autouse=True)
def _quick_processes():
    """Imports of a new process take two seconds. `wgpr serve` as a script, in test_server.py, starts it as it is."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        quick_processes(monkeypatch)
        yield


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """A service with the default limits."""
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def client(service):
    return service.client


@pytest.fixture(scope="session")
def lake(service):
    """The path of a map of 200 rows, which no test changes."""
    path = make_map(service.client, "lake", settings={"random_state": 0})
    answer = send(service.client, f"{path}/rows", as_csv(survey(200)), params={"wait": "learned"})
    assert (answer.status_code, answer.json()) == (200, {"accepted": 200, "sequence": 200})
    return path


@pytest.fixture(scope="session")
def lake_here():
    """An estimator of this process that has learned the rows of the lake."""
    return learned_here(survey(200), NAMES)


@pytest.fixture
def pond(client, request):
    """The path of a map without rows, for one test."""
    name = f"pond-{abs(hash(request.node.nodeid)):x}"
    yield make_map(client, name, settings={"random_state": 0})
    client.delete(f"/maps/{name}")
