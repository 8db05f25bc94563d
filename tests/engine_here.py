"""An engine for tests: workers in this process, which can be ended in the middle of their work."""

from concurrent.futures import Future

from wgpr.fleet.engines import Engine, WorkerDiedError
from wgpr.fleet.worker import Worker


class EngineHere(Engine):
    """deaths : numbers of calls, over all workers, that a worker does not survive; odd ones are carried out before."""

    def __init__(self, n_workers, folder, beginning, deaths=()):
        super().__init__(n_workers, str(folder), beginning)
        self.workers = [None] * n_workers
        self.deaths, self.calls = set(deaths), []

    def call(self, worker, method, *arguments):
        self.calls.append((worker, method, arguments))
        future = Future()
        if self.workers[worker] is None:
            self.workers[worker] = Worker(self._folder, self._beginning)
        try:
            if len(self.calls) not in self.deaths or len(self.calls) % 2:
                future.set_result(getattr(self.workers[worker], method)(*arguments))
        except Exception as error:
            future.set_exception(error)
        if len(self.calls) in self.deaths:
            self.kill(worker)
            future = Future()
            future.set_exception(WorkerDiedError("killed"))
        return future

    def result(self, future):
        return future.result()

    def kill(self, worker):
        """What a process does that ends: its thread stops, and its files are closed."""
        self.workers[worker].stop()
        self.workers[worker] = None

    def process_ids(self):
        return []

    def close(self):
        for worker, each in enumerate(self.workers):
            if each is not None:
                self.kill(worker)
