"""Starts the process that learns. This module imports little, so that the process can begin before the service does."""

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple


class StartedProcess(NamedTuple):
    """A process that waits for commands at the other end of the connection."""

    process: BaseProcess
    connection: Connection


def start_process() -> StartedProcess:
    context = multiprocessing.get_context("spawn")  # it inherits no locks, sockets and journals
    connection, other_end = context.Pipe()
    process = context.Process(target=_run, args=(other_end,), name="wgpr-writer", daemon=True)
    with _without_interrupts():
        process.start()
    other_end.close()
    return StartedProcess(process, connection)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started here never sees Ctrl-C, which goes to all processes of a terminal: the service tells it to stop.

    This process gets at the end of the block what came in it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(connection: Connection) -> None:
    from wgpr.service.writer import run

    run(connection)
