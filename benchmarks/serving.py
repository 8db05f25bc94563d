"""`wgpr serve` as a process, for the benchmarks of the service."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from common import ONE_THREAD, ROOT

_COMMAND = "from wgpr.cli.app import main; main()"


@dataclass(frozen=True)
class Served:
    """port : of 127.0.0.1; process_id : of the server; folder : of its maps; log : its standard error."""

    port: int
    process_id: int
    folder: Path
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, timeout: float = 60.0) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of one request on a connection of its own. A body that is no text is sent as JSON."""
        connection, headers = self.connect(), {**(headers or {})}
        if body is not None and not isinstance(body, str | bytes):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def summary(self, name: str) -> dict[str, Any]:
        return json.loads(self.ask("GET", f"/maps/{name}")[1])

    @property
    def writer_ids(self) -> list[int]:
        """The processes that learn."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
                command = (path.parent / "cmdline").read_text()
            except OSError:  # it has ended
                continue
            if int(fields[1]) == self.process_id and "spawn_main" in command:
                found.append(int(path.parent.name))
        return found


@contextmanager
def served(
    *arguments: str, environment: dict[str, str] | None = None, open_files: int | None = None
) -> Iterator[Served]:
    """A service with an empty folder on a free port, which is stopped at the end of the block.

    open_files : that it may have, unless it asks for more.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, maps = Path(folder) / "log", Path(folder) / "maps"
        paths = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        variables = {**os.environ, **ONE_THREAD, "PYTHONPATH": paths, **(environment or {})}
        command = [sys.executable, "-c", _COMMAND, "serve", str(maps), "--port", "0", "--log", *arguments]
        if open_files is not None:
            command = ["sh", "-c", f'ulimit -S -n {open_files}; exec "$@"', "sh", *command]
        with log.open("w") as file, subprocess.Popen(command, stderr=file, env=variables) as process:
            try:
                yield Served(_port(log, process), process.pid, maps, log)
            finally:
                if process.poll() is not None:
                    print(
                        f"the service has ended with {process.returncode}: {log.read_text()[-3000:]}", file=sys.stderr
                    )
                process.terminate()
                try:
                    process.wait(timeout=120.0)
                except subprocess.TimeoutExpired:
                    process.kill()


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    while process.poll() is None:
        if found := re.search(r"http://[^ ]+:(\d+)", log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise SystemExit(f"the service did not start: {log.read_text()}")


def resident_megabytes(process_id: int) -> float:
    """Memory of a process (Linux)."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process_id}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024
