"""A real service in a thread, for the tests of its HTTP side."""

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import uvicorn

from wgpr import WGPRegressor
from wgpr.service.catalogue import Catalogue
from wgpr.service.limits import Limits
from wgpr.service.server import Address, bound, new_server

NAMES = ["east", "north", "depth"]


@dataclass(frozen=True)
class Service:
    """url : such as http://127.0.0.1:12345; client : connected with it, with its token if it has one."""

    url: str
    folder: Path
    catalogue: Catalogue
    server: uvicorn.Server
    client: httpx.Client

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port


@contextmanager
def running(folder, *, limits=None, token=None, origins=(), port=0):
    """A service on a free port, which is stopped at the end of the block. Its writer is a process."""
    address = Address("127.0.0.1", port, token, origins)
    started, parts = threading.Event(), {}

    async def serve():
        listening = bound(address)
        async with Catalogue(folder, limits or Limits(), n_writers=1).opened() as catalogue:
            server = new_server(catalogue, address)
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            parts.update(url=url, folder=folder, catalogue=catalogue, server=server)
            listening.listen()
            started.set()
            await server.serve(sockets=[listening])

    def run():
        try:
            asyncio.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=run, name="service", daemon=True)
    thread.start()
    started.wait()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with new_client(parts["url"], headers=headers) as client:
            yield Service(**parts, client=client)
    finally:
        parts["server"].should_exit = True
        parts["catalogue"].hub.close()
        thread.join()


def new_client(url, **options):
    """A client that makes a connection for each request: the service may close those that are kept."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=url, timeout=120.0, limits=limits, verify=False, **options)


def survey(n, d=2, seed=0):
    """Rows (n, d + 1): places between 0 and 10, and a smooth field with noise, last."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (n, d))
    return np.column_stack([X, 5.0 + np.sin(X).sum(axis=1) + 0.05 * rng.normal(size=n)])


def rough_survey(n, seed=0):
    """Rows (n, 3) of a field that needs many local models: places between 0 and 100, in order of the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 100.0, (n, 2))
    X = X[np.argsort(X[:, 0])]
    return np.column_stack([X, 5.0 + np.sin(0.5 * X).sum(axis=1) + 0.05 * rng.normal(size=n)])


def as_csv(rows, names=NAMES):
    """A body for rows (n, k)."""
    lines = [",".join(map(repr, row)) for row in np.asarray(rows).tolist()]
    return "\n".join([",".join(names), *lines]) + "\n"


def make_map(client, name, inputs=("east", "north"), target="depth", **more):
    answer = client.put(f"/maps/{name}", json={"inputs": inputs, "target": target, **more})
    assert answer.status_code == 201, answer.text
    return f"/maps/{name}"


def send(client, path, content, kind="text/csv", **options):
    """Rows or places to a path; `options` as of httpx."""
    headers = {"Content-Type": kind, **options.pop("headers", {})}
    return client.post(path, content=content, headers=headers, **options)


def learned_here(rows, names=NAMES, **settings):
    """An estimator of this process that has learned rows (n, k)."""
    frame = pd.DataFrame(rows, columns=list(names))
    return WGPRegressor(random_state=0, **settings).partial_fit(frame[names[:-1]], frame[names[-1]])
