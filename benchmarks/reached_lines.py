"""Plugin of pytest for `sampled_mutations.py`: the lines that each test executes, and a time limit for each test.

`-p reached_lines --reached FILE` writes one line of JSON for each test that passes: its name, its seconds, and the
lines that it executes, by file of src/wgpr. `-p reached_lines --limits FILE` (JSON, seconds by name of a test) makes a
test fail that takes longer, or more memory than any test needs.
"""

import json
import resource
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from coverage import Coverage

MOST_BYTES = 4 * 2**30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reached", type=Path, help="file for the lines that each test executes")
    parser.addoption("--limits", type=Path, help="file with the seconds that each test may take")


def pytest_configure(config: pytest.Config) -> None:
    """Before conftest.py is read, so that lines that run when a module is imported belong to no test."""
    if (output := config.getoption("--reached")) is not None:
        config.pluginmanager.register(ReachedLines(output, config.rootpath / "src" / "wgpr"))
    if (limits := config.getoption("--limits")) is not None:
        config.pluginmanager.register(TimeLimits(json.loads(limits.read_text())))


class ReachedLines:
    """Lines of files below `source` that each test executes, in this process."""

    def __init__(self, output: Path, source: Path) -> None:
        self.output, self.source = output, source
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.coverage = Coverage(data_file=None, include=[f"{source}/*"], config_file=False)
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for path in sorted(data.measured_files()):
            for line, tests in sorted(data.contexts_by_lineno(path).items()):
                for test in tests:
                    lines[test][str(Path(path).relative_to(self.source))].append(line)
        with self.output.open("w") as file:
            for test in self.seconds.keys() - self.failed:
                record = {"test": test, "seconds": round(self.seconds[test], 3), "lines": lines[test]}
                file.write(json.dumps(record) + "\n")


class TimeLimits:
    """Seconds of wall time by name of a test; a test that is not named has no limit."""

    def __init__(self, limits: dict[str, float]) -> None:
        self.limits = limits
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        signal.signal(signal.SIGALRM, self._too_long)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_REAL, self.limits.get(item.nodeid, 0.0))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _too_long(self, *_: object) -> NoReturn:
        pytest.fail("no end within ten times the usual time")
