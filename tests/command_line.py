"""Commands in tests: surveys for them, and processes of their own that can be killed."""

import multiprocessing
import os
import signal
import sys
from contextlib import contextmanager

import numpy as np
import pandas as pd

from streams import travelling
from wgpr.cli import app as cli

SETTINGS = {"threshold": 1.0, "batch_size": 20, "n_inducing": 10, "optimizer_iterations": 5, "random_state": 0}
SMALL = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={value}")]
NAMES = ["east", "north", "depth"]


def _run_child(arguments, descriptors, others, is_ignoring_interrupts):
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for other in others:
        os.close(other)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    # A shell may have told pytest, as a job in the background, to ignore Ctrl-C; nohup ignores the end of a session.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignoring_interrupts else signal.default_int_handler)
    sys.argv = ["wgpr", *map(str, arguments)]
    cli.main()


@contextmanager
def child(*arguments, is_ignoring_interrupts=False):
    """A command in a process of its own, with pipes `stdin`, `stdout` and `stderr`; it is killed in the end.

    It is forked, so that it is there at once: imports take seconds.
    """
    (input_, stdin), (stdout, output), (stderr, errors) = os.pipe(), os.pipe(), os.pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_run_child, args=(arguments, (input_, output, errors), (stdin, stdout, stderr), is_ignoring_interrupts)
    )
    process.start()
    for descriptor in (input_, output, errors):
        os.close(descriptor)
    with open(stdin, "w") as process.stdin, open(stdout) as process.stdout, open(stderr) as process.stderr:
        try:
            yield process
        finally:
            process.kill()
            process.join()


class Unsaved:
    """The writer of a map that is not saved, for sessions of streams."""

    def keep(self, *_, **options):
        pass


def exit_code(process):
    process.join(120)
    return process.exitcode


def survey(n=110, seed=0):
    X, y = travelling(n, seed=seed)
    return pd.DataFrame(np.column_stack([X, y]), columns=NAMES)


def write_survey(path, n=110, seed=0, **options):
    frame = survey(n, seed)
    frame.to_csv(path, index=False, **options)
    return frame
