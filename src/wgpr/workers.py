"""Independent tasks of some milliseconds, spread over the cores.

`joblib.Parallel` asks every 10 ms whether a task is done, and its threads wait for the interpreter that the asking
thread holds: two fits of 13 ms took 28 ms with it, and 26 ms one after the other. Here the process that asks writes
tasks to the pipe of another one, does its own share, and reads the answers. What `n_jobs` means is joblib's.
"""

import atexit
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import IO, Any
from warnings import warn

from joblib import effective_n_jobs

from wgpr.linalg import one_blas_thread

Task = Callable[[], Any]

_READY = b"ready"
_SERVE = "import sys; sys.path[:] = {path!r}; from wgpr.workers import serve; serve()"


class Workers:
    """The process that asks, and some others that stand ready for it.

    n_jobs : how many tasks are done at once, as joblib understands it; None is one, unless a
        `joblib.parallel_config` says otherwise.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self._n_others = effective_n_jobs(n_jobs) - 1

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """What each task returns, to the bit the same as if they were done one after the other."""
        others = _others(min(self._n_others, len(tasks) - 1))
        n = len(others) + 1
        results: list[Any] = [None] * len(tasks)
        try:
            for first, other in enumerate(others, start=1):
                other.send(tasks[first::n])
            results[::n] = _done(tasks[::n])
            for first, other in enumerate(others, start=1):
                results[first::n] = other.receive()
        except _LostError as lost:
            warn(f"a worker was lost ({lost}), and n_jobs has no effect for this batch", RuntimeWarning, stacklevel=2)
            _dismiss(others)
            return _done(tasks)
        except BaseException:  # answers that nobody waits for must not be taken for others
            _dismiss(others)
            raise
        return results


def _done(tasks: Sequence[Task]) -> list[Any]:
    with one_blas_thread():
        return [task() for task in tasks]


class _LostError(RuntimeError):
    """A worker does not answer any more, or cannot understand."""


class _Other:
    """Another process, which does one list of tasks at a time.

    is_ready : set once it has imported what it needs, which takes a second or two; until then nobody waits for it.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SERVE.format(path=sys.path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.owner = os.getpid()
        self.is_ready = Event()
        Thread(target=self._await, daemon=True).start()

    def _await(self) -> None:
        with suppress(OSError, ValueError):  # it was dismissed
            self._stdout.read(len(_READY))
        self.is_ready.set()

    def send(self, tasks: Sequence[Task]) -> None:
        try:
            pickle.dump(tasks, self._stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self._stdin.flush()
        except OSError as error:
            raise _LostError(str(error)) from error
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _LostError(f"a task cannot be sent: {error}") from error

    def receive(self) -> list[Any]:
        try:
            is_done, answer = pickle.load(self._stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise _LostError(str(error) or "it has ended") from error
        if not is_done:
            raise answer
        return answer

    def dismiss(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with suppress(OSError):
                pipe.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout


_standing_ready: list[_Other] = []


def _others(n: int) -> list[_Other]:
    """So many others, as far as they are ready; they are started when they are first asked for, and stay."""
    if any(other.owner != os.getpid() for other in _standing_ready):
        _standing_ready.clear()  # they belong to the process that this one was forked from
    while len(_standing_ready) < n:
        _standing_ready.append(_Other())
    return [other for other in _standing_ready[: max(n, 0)] if other.is_ready.is_set()]


def _dismiss(others: Sequence[_Other]) -> None:
    for other in others:
        other.dismiss()
        _standing_ready.remove(other)


@atexit.register
def _dismiss_all() -> None:
    _dismiss([other for other in _standing_ready if other.owner == os.getpid()])


def serve() -> None:
    """Do what standard input asks for, until it ends, and answer to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a task prints is no answer
    answers.write(_READY)
    answers.flush()
    while True:
        try:
            tasks = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        except Exception as error:
            answer: tuple[bool, Any] = (False, _LostError(f"a task cannot be read: {error}"))
        else:
            answer = _attempted(tasks)
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _attempted(tasks: Sequence[Task]) -> tuple[bool, Any]:
    try:
        return True, _done(tasks)
    except Exception as error:
        return False, error
