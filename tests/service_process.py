"""`wgpr serve` as a process of its own, which can be killed and started again."""

import multiprocessing
import os
import re
import signal
import socket
import sys
import time
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

from wgpr.cli import app as cli
from wgpr.service import process as service_processes
from wgpr.service import server  # noqa: F401 - before the fork

_SECONDS = 60.0


@contextmanager
def service_process(folder, *options, port=0, begins_with=None):
    """Yields a function that gives the address of the service when it answers, and its process.

    The process is forked, and so is its process that learns, because imports take seconds. It is stopped at the end of
    the block.

    begins_with : a path; the service begins when there is a file.
    """
    log = folder.with_name(f"{folder.name}.{time.monotonic_ns()}.log")
    log.touch()
    arguments = [folder, "--port", port, "--writers", 1, *options]
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(arguments, log, begins_with))
    process.start()
    try:
        yield lambda: _address(process, log), process
    finally:
        process.terminate()
        process.join(_SECONDS)
        process.kill()
        process.join()


def _serve(arguments, log, begins_with):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while begins_with is not None and not begins_with.exists():
        time.sleep(0.01)
    sys.stderr = open(log, "w")  # noqa: SIM115
    os.dup2(sys.stderr.fileno(), 2)
    sys.argv = ["wgpr", "serve", *map(str, arguments)]
    service_processes.multiprocessing = multiprocessing
    service_processes.start_process = _start_forked
    cli.main()


def _start_forked():
    """The process that learns. It ends with the service, so it must not hold the service's end of the connection."""
    context = multiprocessing.get_context("fork")
    connection, other_end = context.Pipe()

    def run():
        connection.close()
        service_processes._run(other_end)

    process = context.Process(target=run, daemon=True)
    process.start()
    other_end.close()
    return service_processes.StartedProcess(process, connection)


def _address(process, log):
    """The address that the service tells, when it answers there."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.is_alive():
        if told := re.search(r" at (http://\S+) ", log.read_text()):
            try:
                with urlopen(f"{told[1]}/health/live", timeout=_SECONDS):
                    return told[1]
            except URLError:  # it does not listen yet
                pass
        time.sleep(0.02)
    raise RuntimeError(f"the service did not start: {log.read_text()}")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
