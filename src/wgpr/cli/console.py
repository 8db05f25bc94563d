"""Printing, exit codes and signals. Results go to standard output, everything else goes to standard error."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf, isfinite
from typing import Any, NoReturn

import typer
from rich import progress
from rich.console import Console

from wgpr.labels import format_count as format_count

FAILURE, WRONG_USE = 1, 2

stderr = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
stdout = Console(highlight=False, emoji=False, width=None if sys.stdout is not None and sys.stdout.isatty() else 120)

# Requests to stop. Windows has no SIGHUP.
_STOP = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
# Seconds in which another request to stop is the same one: a wrapper passes on what its processes have received too.
_SAME_REQUEST = 1.0


class UsageError(ValueError):
    """An option or a setting that does not exist or makes no sense: exit code 2."""


def run_app(app: typer.Typer) -> NoReturn:
    """Run a command line and exit with 0, 1 for a failure or 2 for wrong use. An error is printed as one sentence."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    try:
        app([argument for argument in sys.argv[1:] if argument != "--verbose"])
    except (ValueError, OSError, ArithmeticError, ImportError, MemoryError) as error:
        if "--verbose" in sys.argv:
            traceback.print_exception(error, file=sys.stderr)
        print_error(_describe(error))
        sys.exit(WRONG_USE if isinstance(error, UsageError) else FAILURE)
    sys.exit(0)


def _describe(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no {error.filename}; check the name and the folder"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def inform(text: str) -> None:
    stderr.print(text, markup=False)


def warn(text: str) -> None:
    inform(f"warning: {text}")


def print_error(text: str) -> None:
    inform(f"wgpr: {' '.join(text.split())}")


def print_json(content: dict[str, Any]) -> None:
    """Print JSON on standard output. It has no infinity: numbers that are not finite are null."""
    values = {
        key: None if isinstance(value, float) and not isfinite(value) else value for key, value in content.items()
    }
    stdout.print_json(json.dumps(values, allow_nan=False))


class Interruptions:
    """Requests to stop a command: Ctrl-C, SIGTERM and SIGHUP. While they are handled, they wait until it asks for them.

    In a block in which they are allowed they raise KeyboardInterrupt at once, and so does a second one anywhere: the
    command may be stuck. What comes within a second of a request is the same request. A request is waiting until the
    command accepts it, because a library may swallow the exception. Blocks are not nested.
    """

    def __init__(self) -> None:
        self._is_allowed = self._is_waiting = False
        self._received_at = -inf

    @contextmanager
    def handled(self) -> Iterator[None]:
        with _handled(_STOP, self._receive):
            yield

    def _receive(self, *_: object) -> None:
        now = time.monotonic()
        if now < self._received_at + _SAME_REQUEST:
            return
        self._received_at = now
        is_second, self._is_waiting = self._is_waiting, True
        if self._is_allowed or is_second:
            self._is_allowed = False
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self) -> Iterator[None]:
        self._is_allowed = True
        try:
            self.raise_waiting()
            yield
        finally:
            self._is_allowed = False

    def raise_waiting(self) -> None:
        """Raise KeyboardInterrupt if there was a request that is not accepted yet."""
        if self._is_waiting:
            raise KeyboardInterrupt

    def accept(self) -> None:
        """The command is stopping. Only another request raises KeyboardInterrupt again."""
        self._is_waiting = False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Requests to stop raise KeyboardInterrupt at the end of the block, not inside of it.

    If another handler was set before the block, that decides what they do. An error in the block comes first.
    """
    received: list[int] = []
    try:
        with _handled(_STOP, lambda number, _: received.append(number)):
            yield
    except BaseException:
        with suppress(KeyboardInterrupt):
            _pass_on(received)
        raise
    _pass_on(received)


def _pass_on(received: list[int]) -> None:
    """Handle the first of the signals that were received, if there are any."""
    if received:
        handler = signal.getsignal(received[0])
        if not callable(handler):
            raise KeyboardInterrupt
        handler(received[0], None)


@contextmanager
def _handled(signals: list[signal.Signals], handler: Any) -> Iterator[None]:
    """Signals that are ignored stay ignored: a shell ignores Ctrl-C for jobs in the background."""
    before = {each: signal.signal(each, handler) for each in signals if signal.getsignal(each) != signal.SIG_IGN}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)


@contextmanager
def progress_bar(title: str, n_rows: int = 0) -> Iterator[Callable[[int, str], None]]:
    """A line on standard error, if that is a terminal; yields a function that shows how many rows are done, and a text.

    n_rows : of all, 0 if it is not known.
    """
    known: list[Any] = [progress.BarColumn(bar_width=24), progress.TaskProgressColumn(), progress.TimeRemainingColumn()]
    columns: list[Any] = [title, *(known if n_rows else [progress.SpinnerColumn(), progress.TimeElapsedColumn()])]
    options: dict[str, Any] = {"console": stderr, "transient": True, "disable": not stderr.is_terminal}
    with progress.Progress(*columns, "{task.fields[text]}", **options) as bar:
        task = bar.add_task(title, total=n_rows or None, text="")
        yield lambda n_done, text: bar.update(task, completed=n_done, text=text)


def format_size(n_bytes: int) -> str:
    """12 bytes, 3.4 kB or 5.6 MB."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"
