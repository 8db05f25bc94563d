"""Settings of Hypothesis, of BLAS and of the garbage collector, where files are, and how a command is run."""

import gc
import os
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from threads import set_blas_threads
from wgpr.cli import app as cli

# Files of tests are in memory where there is room: most are written and synchronised with a disk many times a second.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2e9:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# The parameters of a command, which are made anew whenever it is called, are the same in each test.
cli.LazyCommand.imported = cache(cli.LazyCommand.imported)

settings.register_profile("wgpr", deadline=None, max_examples=50, derandomize="CI" in os.environ)
settings.load_profile("wgpr")

# Modules and collected tests live until the end: the garbage collector need not look at them again and again.
gc.disable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """`pytest -n auto` has one worker more than processors: some wait for a disk, a browser or another process."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers of `pytest -n` get as many tests one after the other as possible: those of a file share its fixtures."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.option.dist == "load" else None


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread():
    """As inside the estimators: the matrices of the tests are small too."""
    set_blas_threads(1)


@pytest.fixture
def two_blas_threads():
    """BLAS has two threads during the test, unless the code under test limits it."""
    set_blas_threads(2)
    yield
    set_blas_threads(1)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The data sets, which are not part of the project: `../shared/data`, seen from its root."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the data sets are not here: there is no folder {folder}")
    return folder


@pytest.fixture
def wgpr(monkeypatch, capsys, tmp_path_factory):
    """Runs a command in this process: exit code, standard output and standard error."""
    standard_input = tmp_path_factory.mktemp("standard_input") / "lines"

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["wgpr", *map(str, arguments)])
        standard_input.write_text(stdin)
        with open(standard_input) as file:
            monkeypatch.setattr(sys, "stdin", file)
            with pytest.raises(SystemExit) as stop:
                cli.main()
        return (stop.value.code, *capsys.readouterr())

    return run
