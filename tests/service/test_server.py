"""`wgpr serve`: how it starts, how it refuses to, and how it stops."""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import wgpr
from running_service import as_csv, make_map, new_client, send, survey
from service_process import service_process
from wgpr.cli import app as cli
from wgpr.io.files import locked
from wgpr.io.journal import Journal
from wgpr.service import server
from wgpr.service.catalogue import Catalogue

SCRIPT = Path(sys.executable).with_name("wgpr")
TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def _same_loggers(monkeypatch):
    """`wgpr serve` sends the log to standard error, which other tests do not want."""
    for name in ("wgpr.service", "uvicorn", "asyncio"):
        for attribute in ("handlers", "propagate", "level"):
            monkeypatch.setattr(logging.getLogger(name), attribute, getattr(logging.getLogger(name), attribute))


@pytest.fixture
def serve(monkeypatch, capsys, _same_loggers):
    """Runs `wgpr serve` in this process until it refuses: exit code and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wgpr", "serve", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "boat.example"])
def test_other_machines_need_a_token(serve, tmp_path, monkeypatch, host):
    monkeypatch.delenv("WGPR_TOKEN", raising=False)
    code, text = serve(tmp_path / "maps", "--host", host)
    assert code == 2
    assert text == (
        f"wgpr: --host {host} can be reached from other machines; give a token by --token-file or WGPR_TOKEN, "
        "or use 127.0.0.1\n"
    )
    assert not (tmp_path / "maps").exists()


def test_a_token_that_is_no_token_is_refused(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("WGPR_TOKEN", "short")
    assert serve(tmp_path, "--host", "0.0.0.0") == (2, "wgpr: the token must have at least 16 ASCII characters\n")
    code, text = serve(tmp_path, "--token-file", tmp_path / "absent")
    assert code == 2
    assert "absent cannot be read" in text
    (tmp_path / "empty").write_text("\n")
    assert serve(tmp_path, "--token-file", tmp_path / "empty")[0] == 2


def test_a_folder_in_use_is_named(serve, service):
    code, text = serve(service.folder, "--port", 0)
    assert code == 1
    assert text == f"wgpr: another wgpr serve uses {service.folder}; stop it, or name another folder\n"
    assert service.client.get("/health/live").status_code == 200


def test_a_port_in_use_is_named(serve, service, tmp_path):
    code, text = serve(tmp_path, "--port", service.port)
    assert code == 1
    assert f"cannot listen at 127.0.0.1, port {service.port}" in text
    assert "choose another --port" in text


@pytest.mark.parametrize("module", ["uvicorn", "fastapi", "prometheus_client"])
def test_without_the_extra_it_says_what_to_install(serve, tmp_path, monkeypatch, module):
    for name in [name for name in sys.modules if name.startswith("wgpr.service")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    code, text = serve(tmp_path)
    assert code == 1
    assert text == f'wgpr: the service needs {module}; install it with pip install "wgpr[serve]"\n'


@contextmanager
def serving(folder, *arguments, **environment):
    """`wgpr serve` as a process, and its address."""
    command = [SCRIPT, "serve", folder, "--port", "0", *arguments]
    options = {"stderr": subprocess.PIPE, "text": True, "env": {**os.environ, **environment}}
    with subprocess.Popen(command, **options) as process:
        try:
            url = None
            while url is None:
                line = process.stderr.readline()
                assert line, "it has ended"
                url = re.search(r"http://[\d.]+:\d+", line)
            yield process, url[0]
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
def test_a_signal_that_comes_while_maps_are_opened_stops_the_service(tmp_path, monkeypatch):
    opened = Catalogue.opened

    @asynccontextmanager
    async def interrupted(self):
        async with opened(self) as catalogue:
            signal.raise_signal(signal.SIGINT)
            yield catalogue

    monkeypatch.setattr(Catalogue, "opened", interrupted)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    server.serve(tmp_path, server.Address(port=0))  # it returns
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_sigterm_learns_and_saves_what_was_accepted(tmp_path):
    served = serving(tmp_path / "maps", "--log", WGPR_TOKEN=TOKEN)
    with served as (process, url), new_client(url, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        path = make_map(client, "lake", settings={"random_state": 0})
        answer = send(client, f"{path}/rows", as_csv(survey(40)))
        assert (answer.status_code, answer.json()) == (202, {"accepted": 40, "sequence": 40})
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate()
    assert process.returncode == 0
    assert wgpr.load(tmp_path / "maps" / "lake" / "snapshot.map").n_samples_seen_ == 40
    journal = Journal.open(tmp_path / "maps" / "lake" / "journal.sqlite")
    assert (journal.n_rows, list(journal.records())) == (40, [])
    journal.close()
    assert '"event": "stop"' in log
    assert '"event": "request"' in log
    assert TOKEN not in log
    assert {path.name for path in (tmp_path / "maps").iterdir()} == {"lake"}


def test_answers_are_sent_at_once(service):
    """Without TCP_NODELAY an answer waits 40 ms for the client to confirm its headers."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=120.0) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.recv(1)
        sockets = [each.transport.get_extra_info("socket") for each in service.server.server_state.connections]
        assert sockets
        assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)


def test_a_second_service_of_a_folder_says_so_and_ends(tmp_path):
    folder = tmp_path / "maps"
    folder.mkdir()
    with locked(folder / ".lock", "taken"), service_process(folder) as (address, second):
        with pytest.raises(RuntimeError, match="another wgpr serve uses"):
            address()
        assert second.exitcode == 1


def test_map_files_that_are_not_served_are_named(tmp_path):
    folder = tmp_path / "surveys"
    folder.mkdir()
    wgpr.WGPRegressor(random_state=0).fit([[0.0], [1.0]], [1.0, 2.0]).save(folder / "lake.map")
    (folder / "two words.map").write_text("no map")
    with service_process(folder) as (address, _):
        address()
    said = next(tmp_path.glob("surveys.*.log")).read_text()
    assert len(said.splitlines()) == 3  # the address and two warnings; requests only with --log
    commands = re.findall("run (mkdir .*), and start again", said)
    assert f"{folder / 'two words.map'} is not served" in said
    assert commands[0] == f"mkdir {folder / 'lake'} && cp {folder / 'lake.map'} {folder / 'lake' / 'snapshot.map'}"
    assert "NAME/snapshot.map" in commands[1]
    subprocess.run(commands[0], shell=True, check=True)
    with service_process(folder) as (address, _), new_client(address()) as client:
        assert client.get("/maps/lake").json()["rows_seen"] == 2


def test_the_demo_surveys_its_terrain_once(tmp_path, monkeypatch):
    rows = survey(50)
    track = SimpleNamespace(X=rows[:, :2], y=rows[:, 2], input_names=("east", "north"), target_name="depth")
    monkeypatch.setattr(server, "fly", lambda terrain, random_state: track)
    monkeypatch.setattr(server, "_PAUSE", 0.001)
    monkeypatch.setattr(server, "_SECONDS", 0.01)  # 5 rows at once

    async def scenario():
        for _ in range(2):
            async with Catalogue(tmp_path, n_writers=1).opened() as catalogue:
                await server._survey(catalogue)
        return catalogue["terrain"].n_accepted, catalogue["terrain"].n_learned

    assert asyncio.run(scenario()) == (50, 50)
