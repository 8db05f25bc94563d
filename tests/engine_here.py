"""An engine for tests: workers in this process, which can be ended in the middle of their work."""

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
        number = len(self.calls)
        if self.workers[worker] is None:
            self.workers[worker] = Worker(self._folder, self._beginning)
        if number not in self.deaths:
            return getattr(self.workers[worker], method)(*arguments)
        if number % 2:
            getattr(self.workers[worker], method)(*arguments)
        self.kill(worker)
        raise WorkerDiedError("killed")

    def kill(self, worker):
        """What a process does that ends: its thread stops, and its files are closed."""
        self.workers[worker].stop()
        self.workers[worker] = None

    def close(self):
        for worker, each in enumerate(self.workers):
            if each is not None:
                self.kill(worker)
