"""Starts the process that learns. This module imports little, so that the process can begin before the service does."""

import multiprocessing
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
    process.start()
    other_end.close()
    return StartedProcess(process, connection)


def _run(connection: Connection) -> None:
    from wgpr.service.writer import run

    run(connection)
