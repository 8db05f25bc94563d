"""Requests that nobody would write by hand, sent to a running service.

    python benchmarks/service_fuzz.py [--examples 200] [--bodies 10000] [--quick] [--write]

Schemathesis makes requests from the OpenAPI, for maps that exist and others: no answer may be a 5xx, and all must be as
described. Then broken bodies of rows are sent, each of which a strict reader of the tests refuses: none may be
accepted, and the map must stay as it is. Ends with an error if anything is found. `--write` puts the table into
docs/service_results.md.
"""

import argparse
import json
import os
import sys
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from broken_bodies import WAYS, broken_body
from common import ROOT, put_measured
from openapi_cases import Answers, operations, try_operation
from serving import Served, served

PAGE = ROOT / "docs" / "service_results.md"
MARKERS = "<!-- fuzz -->", "<!-- end of fuzz -->"

COLUMNS = ["east", "north", "depth"]
DEFINITION = {"inputs": COLUMNS[:2], "target": COLUMNS[2], "settings": {"random_state": 0}}


def make_map(service: Served, name: str, n_rows: int) -> None:
    assert service.ask("PUT", f"/maps/{name}", DEFINITION)[0] == 201
    rows = np.random.default_rng(0).uniform(0.0, 10.0, (n_rows, 3))
    if n_rows:
        table = dict(zip(COLUMNS, rows.T.tolist(), strict=True))
        assert service.ask("POST", f"/maps/{name}/rows?wait=learned", table)[0] == 200


def generated_requests(service: Served, n_examples: int) -> list[tuple[str, str]]:
    """Rows of the table: what each operation was answered."""
    for name, n_rows in {"lake": 100, "empty": 0, "spare": 0}.items():
        make_map(service, name, n_rows)
    answers, found = Answers(), operations(service.url)
    for label in track(sorted(found, key=lambda label: label.startswith("DELETE")), description="requests"):
        names = ["spare", None] if label.startswith(("PUT", "DELETE")) else ["lake", "empty", None]
        try_operation(service.url, found[label], names, COLUMNS, n_examples, answers)
    for text in answers.failures.values():
        print(text)
    if answers.failures:
        raise SystemExit(f"{len(answers.failures)} kinds of failures")
    rows = []
    for label in found:
        counts = {status: n for (each, status), n in sorted(answers.n_answers.items()) if each == label}
        rows.append((f"`{label}`", ", ".join(f"{n:,} times {status}" for status, n in counts.items())))
    n_all = sum(answers.n_answers.values())
    n_faults = sum(n for (_, status), n in answers.n_answers.items() if status >= 500)
    return [*rows, ("all requests", f"{n_all:,}, of these {n_faults} with a 5xx, none other than described")]


def broken_bodies(service: Served, n_bodies: int) -> list[tuple[str, str]]:
    """Rows of the table: in how many ways bodies were broken, and what they were answered."""
    make_map(service, "pond", 50)
    before, rng = state(service), np.random.default_rng(0)
    connection, statuses = HTTPConnection("127.0.0.1", service.port), Counter[int]()
    for number in track(range(n_bodies), description="broken bodies"):
        body = broken_body(COLUMNS, rng, WAYS[number % len(WAYS)])
        connection.request("POST", "/maps/pond/rows", body.data, body.headers)
        response = connection.getresponse()
        text = response.read()
        statuses[response.status] += 1
        if not 400 <= response.status < 500:
            raise SystemExit(f"{body} was answered {response.status} {text!r}")
        if number % 500 == 499 and state(service) != before:
            raise SystemExit(f"one of the last 500 bodies before {number} changed the map")
    if state(service) != before:
        raise SystemExit("a broken body changed the map")
    answered = ", ".join(f"{n:,} times {status}" for status, n in sorted(statuses.items()))
    result = f"{answered}; version, rows and map file the same after each 500"
    return [(f"{n_bodies:,} broken bodies, {len(WAYS)} ways", result)]


def state(service: Served) -> tuple[object, bytes]:
    summary = json.loads(service.ask("GET", "/maps/pond")[1])
    return (summary["version"], summary["rows_seen"]), service.ask("GET", "/maps/pond/file")[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200, help="of each kind of request, for each name of a map")
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="10 examples and 500 bodies")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    n_examples, n_bodies = (10, 500) if arguments.quick else (arguments.examples, arguments.bodies)
    with served("--writers", "1") as service:
        rows = [*generated_requests(service, n_examples), *broken_bodies(service, n_bodies)]
        n_errors = service.log.read_text().count('"error"')
    rows.append(("errors in the log of the service", str(n_errors)))
    table = "\n".join(["| what | answers |", "|---|---|", *(f"| {what} | {result} |" for what, result in rows)]) + "\n"
    print(table, f"load average {os.getloadavg()[0]:.1f}")
    if arguments.write:
        put_measured(PAGE, *MARKERS, table)


if __name__ == "__main__":
    main()
