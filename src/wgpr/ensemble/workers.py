"""Independent tasks of some milliseconds, spread over the cores.

`joblib.Parallel` asks every 10 ms whether a task is done, and its threads wait for the interpreter that the asking
thread holds: two fits of 13 ms took 28 ms with it, and 26 ms one after the other. Here the process that asks writes
tasks to the pipe of another one, does its own share, and reads the answers. What `n_jobs` means is joblib's.
"""

import atexit
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import IO, Any
from warnings import warn

from joblib import effective_n_jobs

from wgpr.gp.linalg import one_blas_thread

Task = Callable[[], Any]

_READY = b"ready"

# A task needs the mathematics alone. To import all of the package, and scikit-learn with it, would take three times as
# long; it is done if a task asks for one of its names after all.
_SERVE = """
import sys, types
sys.path[:] = {path!r}
package = sys.modules["wgpr"] = types.ModuleType("wgpr")
package.__path__ = {folder!r}

def load(name):
    from importlib.util import find_spec, spec_from_file_location
    if name.startswith("__") or find_spec("wgpr." + name):
        raise AttributeError(name)
    del package.__getattr__
    init = package.__path__[0] + "/__init__.py"
    spec_from_file_location("wgpr", init, submodule_search_locations=package.__path__).loader.exec_module(package)
    return getattr(package, name)

package.__getattr__ = load
from wgpr.ensemble.workers import serve
serve()
"""


class Workers:
    """The process that asks, and some others that stand ready for it.

    n_jobs : how many tasks are done at once, as joblib understands it; None is one, unless a
        `joblib.parallel_config` says otherwise.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self._n_others = effective_n_jobs(n_jobs) - 1

    def run(self, tasks: Sequence[Task]) -> list[Any]:
        """What each task returns, to the bit the same as if they were done one after the other.

        Others do their share if they are ready, and if nobody else (another thread, or a task of this one) asks them.
        """
        if self._n_others < 1 or len(tasks) < 2 or not _is_asked.acquire(blocking=False):
            return _done(tasks)
        try:
            return _shared(tasks, _others(min(self._n_others, len(tasks) - 1)))
        finally:
            _is_asked.release()


def _shared(tasks: Sequence[Task], others: "Sequence[_Other]") -> list[Any]:
    n, results = len(others) + 1, [None] * len(tasks)
    try:
        for first, other in enumerate(others, start=1):
            other.send(tasks[first::n])
        results[::n] = _done(tasks[::n])
        for first, other in enumerate(others, start=1):
            results[first::n] = other.receive()
    except _LostError as lost:
        _dismiss(others)
        warn(f"a worker was lost ({lost}), and n_jobs has no effect for this batch", RuntimeWarning, stacklevel=2)
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

    is_ready : set once it has imported what it needs, which takes half a second; until then nobody waits for it.
    """

    def __init__(self) -> None:
        folder = [os.path.dirname(__file__)]
        command = [sys.executable, "-c", _SERVE.format(path=sys.path, folder=folder)]
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
            message = pickle.dumps(tasks, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise _LostError(f"a task cannot be sent: {error}") from error
        try:
            _write(self._stdin, message)
        except OSError as error:
            raise _LostError(str(error)) from error

    def receive(self) -> list[Any]:
        try:
            is_done, answer = pickle.loads(_read(self._stdout))
        except Exception as error:
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


def _write(pipe: IO[bytes], message: bytes) -> None:
    """A message with its length before it: what cannot be understood can still be read to its end."""
    pipe.write(struct.pack("<Q", len(message)))
    pipe.write(message)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError("it has ended")
    return pipe.read(*struct.unpack("<Q", head))


_standing_ready: list[_Other] = []
_is_asked = Lock()


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
            message = _read(sys.stdin.buffer)
        except EOFError:
            return
        _write(answers, _answer(message))


def _answer(message: bytes) -> bytes:
    """What the tasks return, or the exception that one of them raises; if that cannot be sent, they are done there."""
    try:
        tasks = pickle.loads(message)
    except Exception as error:
        return pickle.dumps((False, _LostError(f"a task cannot be read: {error}")))
    try:
        answer: tuple[bool, Any] = True, _done(tasks)
    except Exception as error:
        answer = False, error
    try:
        message = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
        if not answer[0]:
            pickle.loads(message)  # some exceptions cannot be read again
    except Exception as error:
        return pickle.dumps((False, _LostError(f"an answer cannot be sent: {error}")))
    return message
