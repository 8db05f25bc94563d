"""Helpers for tests with several threads: of Python, and of BLAS."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits


def n_blas_threads() -> set[int]:
    """Numbers of threads that the BLAS libraries of this process may use now."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def set_blas_threads(n: int) -> None:
    """Limit BLAS for the whole process.

    By a thread that ends: threadpoolctl lets no other thread change the limit while the one that set it is alive.
    """
    thread = Thread(target=threadpool_limits, args=(n,), kwargs={"user_api": "blas"})
    thread.start()
    thread.join()


def at_once(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of the tasks, each in a thread of its own; all start at the same moment and take turns very often."""
    barrier, interval = Barrier(len(tasks)), sys.getswitchinterval()

    def run(task: Callable[[], Any]) -> Any:
        barrier.wait(timeout=120)
        return task()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(tasks)) as pool:
            return list(pool.map(run, tasks))
    finally:
        sys.setswitchinterval(interval)
