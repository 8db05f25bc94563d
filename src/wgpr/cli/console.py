"""What the command line says and how: progress on standard error, errors as one sentence, orderly interruption."""

import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

FAILURE = 1
WRONG_USE = 2

# Answers go to standard output, everything that is said about them to standard error.
talk = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
out = Console(highlight=False, emoji=False, width=None if sys.stdout is not None and sys.stdout.isatty() else 120)


def say(words: str) -> None:
    """A sentence for the person at the terminal."""
    talk.print(words, markup=False)


def complain(error: BaseException, *, verbose: bool) -> None:
    """One sentence; the traceback only for who asks for it."""
    if verbose:
        traceback.print_exception(error, file=sys.stderr)
    say(f"wgpr: {' '.join(_words_of(error).split())}")


def _words_of(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no {error.filename}; check the name and the folder"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


@contextmanager
def interruptible() -> Iterator[None]:
    """A request to terminate is treated like Ctrl-C: as a KeyboardInterrupt, so that what is learned can be saved."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the file is written."""
    asked: list[int] = []
    before = {number: signal.signal(number, lambda n, _: asked.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise KeyboardInterrupt


class ReadingProgress:
    """A live line: how far the reading is, and what has become of it. Silent where nobody watches."""

    def __init__(self, what: str, total_bytes: int | None) -> None:
        known_end: list[Any] = [BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn()]
        unknown_end: list[Any] = [SpinnerColumn(), TimeElapsedColumn()]
        self._progress = Progress(
            TextColumn("{task.description}"),
            *(known_end if total_bytes else unknown_end),
            TextColumn("{task.fields[words]}"),
            console=talk,
            transient=True,
            disable=not talk.is_terminal,
        )
        self._task = self._progress.add_task(what, total=total_bytes, words="")

    def __enter__(self) -> "ReadingProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, bytes_read: int, words: str) -> None:
        self._progress.update(self._task, completed=bytes_read, words=words)


def in_bytes(n_bytes: int) -> str:
    """A size as people say it."""
    if n_bytes < 1000:
        return f"{n_bytes} bytes"
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes < 1e6 else f"{n_bytes / 1e6:.1f} MB"


def counted(number: int, what: str) -> str:
    """A number and what it counts: 1 row, 2 rows."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
