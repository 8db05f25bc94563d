"""`wgpr serve` as a process of its own, which can be killed and started again."""

import multiprocessing
import os
import re
import runpy
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

_SECONDS = 120.0


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
    fork_the_process_that_learns()
    cli.main()


def fork_the_process_that_learns():
    """In a service of this process."""
    service_processes.multiprocessing = multiprocessing
    service_processes.start_process = _start_forked


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


class ForkedPython:
    """As `subprocess.Popen` of a Python program in a file or after `-c`, but forked: imports take seconds."""

    def __init__(self, command, stdin=None, stdout=None, stderr=None, text=False):
        assert (command[0], text) == (sys.executable, True)
        ends, self._opened = {}, []
        for number, (name, kind) in enumerate({"stdin": stdin, "stdout": stdout, "stderr": stderr}.items()):
            if kind is None:
                continue
            reading, writing = os.pipe()
            ends[number], own = (reading, writing) if name == "stdin" else (writing, reading)
            self._opened.append(open(own, "w" if name == "stdin" else "r"))  # noqa: SIM115
            setattr(self, name, self._opened[-1])
        others = [file.fileno() for file in self._opened]
        self._process = multiprocessing.get_context("fork").Process(
            target=_run_python, args=(command[1:], ends, others)
        )
        self._process.start()
        for end in ends.values():
            os.close(end)
        self.terminate = self._process.terminate

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self._opened:
            file.close()
        self._process.join(_SECONDS)
        self._process.kill()
        self._process.join()
        assert self._process.exitcode == 0


def _run_python(words, ends, others):
    for number, end in ends.items():
        os.dup2(end, number)
        os.close(end)
    for other in others:
        os.close(other)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    fork_the_process_that_learns()
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")
    sys.stdout.flush()


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
