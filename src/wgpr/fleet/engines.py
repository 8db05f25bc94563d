"""Where workers run: in processes of this machine, or as actors of a Ray cluster.

An engine starts workers and takes calls to them. A worker that died is started again, with the same folder, where it
finds what it had taken. The call during which it died raises `WorkerDiedError`.
"""

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from wgpr.checks import require_module
from wgpr.estimators.regressors import WGPRegressor
from wgpr.fleet.worker import Worker


class WorkerDiedError(RuntimeError):
    """A worker has died. Its rows are in its journals, and it can be called again."""


class Engine(ABC):
    """Workers 0, 1, ..., n_workers - 1."""

    def __init__(self, n_workers: int, folder: str, beginning: WGPRegressor) -> None:
        self.n_workers, self._folder, self._beginning = n_workers, folder, beginning

    @abstractmethod
    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        """Call a method of `Worker`. Raises `WorkerDiedError` if the worker has died; it is started again then."""

    @abstractmethod
    def close(self) -> None:
        """End the workers."""


class ProcessEngine(Engine):
    """A process of this machine for each worker: a pool of one process each, so that it keeps its districts."""

    def __init__(self, n_workers: int, folder: str, beginning: WGPRegressor) -> None:
        super().__init__(n_workers, folder, beginning)
        self._pools = [self._start() for _ in range(n_workers)]

    def _start(self) -> Any:
        from loky import ProcessPoolExecutor

        arguments = (self._folder, self._beginning, os.getpid())
        options = {"env": {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"}}  # a worker that has learned much is not replaced
        return ProcessPoolExecutor(max_workers=1, initializer=_start_worker, initargs=arguments, **options)

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        from loky.process_executor import BrokenProcessPool

        try:
            return self._pools[worker].submit(_call_worker, method, *arguments).result()
        except BrokenProcessPool as error:
            self._pools[worker] = self._start()
            raise WorkerDiedError("a process of the fleet has died") from error

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown(wait=True, kill_workers=True)


_worker: Worker | None = None


def _start_worker(folder: str, beginning: WGPRegressor, parent: int) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started the fleet
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _worker = Worker(folder, beginning)


def _end_with(parent: int) -> None:
    """End this process soon after the one that started it, which may be killed. What was taken is in the journals."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _call_worker(method: str, *arguments: Any) -> Any:
    return getattr(_worker, method)(*arguments)


class RayEngine(Engine):
    """An actor of a Ray cluster for each worker. Ray restarts actors that die, also on another node.

    folder : all nodes must see it. address : of the cluster, None for one of this machine.
    """

    def __init__(self, n_workers: int, folder: str, beginning: WGPRegressor, address: str | None = None) -> None:
        super().__init__(n_workers, folder, beginning)
        ray = require_ray()
        self._started_ray = not ray.is_initialized()
        if self._started_ray:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        self.n_workers = min(n_workers, max(1, int(ray.cluster_resources().get("CPU", 1))))
        actor = ray.remote(max_restarts=-1, num_cpus=1, scheduling_strategy="SPREAD")(_Actor)
        self._actors = [actor.remote(folder, beginning) for _ in range(self.n_workers)]

    def call(self, worker: int, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayActorError, RayTaskError

        try:
            return self._actors[worker].call.remote(method, *arguments).future().result()
        except RayTaskError as error:
            raise error.cause from None
        except RayActorError as error:
            raise WorkerDiedError("an actor of the fleet has died") from error

    def close(self) -> None:
        import ray

        for actor in self._actors:
            ray.kill(actor)
        if self._started_ray:
            ray.shutdown()


class _Actor:
    def __init__(self, folder: str, beginning: WGPRegressor) -> None:
        self._worker = Worker(folder, beginning)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._worker, method)(*arguments)


def require_ray() -> Any:
    return require_module("ray", 'engine="ray" needs Ray', "ray")
