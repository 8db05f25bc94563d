"""Mutation testing: does a test fail for each of the faults in `mutants.py`?

    python benchmarks/mutations.py [--jobs 2] [--only gp] [--check] [--output mutations.jsonl]

Each fault is put into a temporary copy of the project, one at a time, and the tests that are likely to notice it are
run until one fails that passes without the fault: first the test that noticed it the last time (`killers.json`, which
is written anew) or those that noticed other faults of the file, then those of the module, those of its folder, and
those of the folders above it. A fault that no test notices "survives": write a test for it. Exit code 1 if any does.
`--check` only checks that each text is found, once, in the source. Half an hour with `--jobs 2` on a calm machine.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, NoReturn

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from common import ROOT, Results
from mutants import MUTANTS

FOLDERS = ("gp", "ensemble", "rules", "estimators")  # of tests, lowest layer first

# Tests of a module in other files than tests/FOLDER/test_MODULE.py.
OTHER_TESTS = {
    "gp/sparse.py": ["ensemble/test_evaluation.py"],
    "gp/model.py": ["ensemble/test_absorb_merging.py"],
    "ensemble/absorb.py": ["ensemble/test_absorb_merging.py"],
    "estimators/base.py": [
        "estimators/test_contract.py",
        "estimators/test_bad_input.py",
        "estimators/test_streaming.py",
    ],
    "estimators/methods.py": [
        "rules/test_calibration.py",
        "estimators/test_default.py",
        "estimators/test_contract.py",
        "estimators/test_streaming.py",
    ],
    "estimators/state.py": ["estimators/test_streaming.py"],
    "estimators/regressors.py": ["estimators/test_settings.py"],
    "ensemble/territories.py": ["estimators/test_default.py"],
    "ensemble/unite.py": ["fleet/test_merge.py"],
    "io/codec.py": ["test_maps.py"],
    "io/territories.py": ["test_maps.py"],
}

# The test that noticed each fault the last time, by what is replaced.
KILLERS = Path(__file__).with_name("killers.json")

IGNORED = shutil.ignore_patterns(".*", "__pycache__", "_build", "*.egg-info")
TIMEOUT = 900.0  # seconds: a fault may make a loop endless
TOO_LONG, CRASHED = "no end within the time limit", "the process crashed"
CONFTEST = "tests/conftest.py"  # which imports the package: a fault may prevent that


# Tests run in processes that are forked from one that has imported what takes long.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "pandas", "sklearn.utils.estimator_checks", "scipy.optimize"])


def run_tests(root: Path, arguments: Sequence[str], output: Path) -> None:
    """Run pytest in this process, with the package in `root`, and exit with its code."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(root)
    for name in [name for name in sys.modules if name.partition(".")[0] == "wgpr"]:
        del sys.modules[name]  # this program imports the installed package
    sys.path.insert(0, str(root / "src"))
    # Bytecode is not written: it would be taken for current if a file changes twice within a second.
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
    code = int(pytest.main(list(arguments)))
    sys.stdout.flush()
    os._exit(code)


class Mutation(NamedTuple):
    """A fault: in `file` of src/wgpr the text `old` is replaced by `new`."""

    file: str
    old: str
    new: str
    why: str

    @property
    def key(self) -> str:
        return f"{self.file}: {self.old} -> {self.new}"

    def applied(self, source: Path) -> str:
        """The text of the file with the fault; raises ValueError unless `old` is found exactly once."""
        text = (source / self.file).read_text()
        if (n := text.count(self.old)) != 1:
            raise ValueError(f"{self.file}: {self.old!r} is found {n} times ({self.why})")
        mutated = text.replace(self.old, self.new)
        compile(mutated, self.file, "exec")
        return mutated


class Outcome(NamedTuple):
    """killer : the first test that failed, "" if none did."""

    mutation: Mutation
    killer: str


def stages(file: str, tests: Path) -> list[list[str]]:
    """Test files, relative to `tests`: those of the module, others of its folder, those of the folders above it."""
    folder, module = file.split("/")
    own = [name for name in (f"{folder}/test_{module}", *OTHER_TESTS.get(file, [])) if (tests / name).exists()]
    above = FOLDERS[FOLDERS.index(folder) :] if folder in FOLDERS else ()
    others = [[f"{each}/{path.name}" for path in sorted((tests / each).glob("test_*.py"))] for each in above]
    return [own, *([name for name in names if name not in own] for names in others)]


class Copy:
    """A copy of the project that one mutation at a time is applied to.

    passing, failing : tests that are known to pass and to fail without a fault.
    killers : the test that is tried first, by the key of a mutation; what is found is added.
    timeout : seconds that a run of tests may take.
    """

    options: Sequence[str] = ("-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider")
    timeout = TIMEOUT

    def __init__(self, folder: Path, killers: dict[str, str]) -> None:
        self.killers = killers
        self.root = folder / "project"
        for name in ("src", "tests", "reproduction"):
            shutil.copytree(ROOT / name, self.root / name, ignore=IGNORED)
        shutil.copy(ROOT / "pyproject.toml", self.root)
        if (data := ROOT.parent / "shared").exists():
            (folder / "shared").symlink_to(data)  # where tests look for data sets
        self.source, self.tests = self.root / "src" / "wgpr", self.root / "tests"
        self.passing: set[str] = set()
        self.failing: list[str] = []

    def first_failure(self, tests: Sequence[str]) -> str:
        """The first of these tests (files, or names of tests) that fails; "" if none does."""
        output = self.root / "output.txt"
        deselected = [f"--deselect={test}" for test in self.failing]
        arguments = [*self.options, *deselected, *(test for test in tests if test not in self.failing)]
        process = PROCESSES.Process(target=run_tests, args=(self.root, arguments, output))
        process.start()
        process.join(self.timeout)
        if process.is_alive():
            process.kill()
            process.join()
            return TOO_LONG
        if process.exitcode < 0:
            return CRASHED
        text = output.read_text(errors="replace")
        if "while loading conftest" in text:
            return CONFTEST
        failed = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not failed and process.exitcode not in (0, 4, 5):  # 4: there is no such test; 5: no test is left
            raise RuntimeError(f"pytest ended with code {process.exitcode}:\n{text[-2000:]}")
        return failed[0].split(" ", 1)[1].split(" - ")[0] if failed else ""

    def outcome(self, mutation: Mutation) -> Outcome:
        """Run the tests, stage by stage, until one fails that passes without the fault."""
        files = [[f"tests/{name}" for name in names] for names in stages(mutation.file, self.tests)]
        for tests in (self._likely_killers(mutation), *files):
            while tests and (killer := self._with(mutation, tests)):
                if self._passes_without_fault(killer):
                    self.killers[mutation.key] = killer
                    return Outcome(mutation, killer)
                self.failing.append(killer)
        return Outcome(mutation, "")

    def _likely_killers(self, mutation: Mutation) -> list[str]:
        """The test that noticed the fault the last time, or those that noticed other faults of the file."""
        others = {killer for key, killer in list(self.killers.items()) if key.startswith(f"{mutation.file}: ")}
        known = [self.killers[mutation.key]] if mutation.key in self.killers else sorted(others)
        return [test for test in known if (self.root / test.partition("::")[0]).is_file()]

    def _with(self, mutation: Mutation, tests: Sequence[str]) -> str:
        path = self.source / mutation.file
        original = path.read_text()
        path.write_text(mutation.applied(self.source))
        try:
            return self.first_failure(tests)
        finally:
            path.write_text(original)

    def _passes_without_fault(self, test: str) -> bool:
        """Whether the test, or one that collects other tests, passes without a fault.

        Tests that do not end, a crash, and a package that cannot be imported are due to the fault.
        """
        if test not in self.passing and (test in (TOO_LONG, CRASHED) or not self.first_failure([test])):
            self.passing.add(test)
        return test in self.passing


def run(mutations: Sequence[Mutation], copies: Sequence[Copy]) -> Iterator[Outcome]:
    """Outcomes as they come, as many at a time as there are copies."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def work(mutation: Mutation) -> Outcome:
        copy = free.get()
        try:
            return copy.outcome(mutation)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        futures = [pool.submit(work, mutation) for mutation in mutations]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def require_own_package(copy: Copy) -> None:
    """End with an error unless tests in the copy import the copy."""
    where = [sys.executable, "-c", "import wgpr; print(wgpr.__file__)"]
    environment = os.environ | {"PYTHONPATH": "src"}
    found = subprocess.run(where, cwd=copy.root, env=environment, capture_output=True, text=True, check=True).stdout
    if not Path(found.strip()).resolve().is_relative_to(copy.root.resolve()):
        raise SystemExit(f"{found.strip()} is imported in place of the copy")


def chosen(only: str) -> list[Mutation]:
    """The mutations of a file, a folder, or all; ends with an error if a text is not found exactly once."""
    mutations = [Mutation(file, *parts) for file, each in MUTANTS.items() for parts in each if file.startswith(only)]
    if not mutations:
        raise SystemExit(f"--only must be a file or folder with mutations, got {only!r}: {', '.join(MUTANTS)}")
    faults = []
    for mutation in mutations:
        try:
            mutation.applied(ROOT / "src" / "wgpr")
        except (ValueError, SyntaxError, OSError) as error:
            faults.append(str(error))
    if faults:
        raise SystemExit("mutants.py does not fit the source:\n" + "\n".join(faults))
    return mutations


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="mutations that are tested at the same time")
    parser.add_argument("--only", default="", help="the mutations of one file or folder of src/wgpr")
    parser.add_argument("--check", action="store_true", help="only check that each text is found once")
    parser.add_argument(
        "--output", type=Path, help="file for the outcomes, lines of JSON; what is in it is not repeated"
    )
    arguments, console = parser.parse_args(), Console(soft_wrap=True, highlight=False)
    mutations, results = chosen(arguments.only), Results(arguments.output)
    if arguments.check:
        console.print(f"{len(mutations)} mutations, each found once")
        return
    signal.signal(signal.SIGTERM, interrupt)
    left = [each for each in mutations if not results.matching(each._asdict())]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with tempfile.TemporaryDirectory(prefix="wgpr-mutations-") as folder, Progress(*columns, console=console) as bar:
        killers = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
        copies = [Copy(Path(folder) / str(number), killers) for number in range(arguments.jobs)]
        require_own_package(copies[0])
        task = bar.add_task("mutations", total=len(left))
        for mutation, killer in run(left, copies):
            results.add({**mutation._asdict(), "killer": killer})
            console.print(f"{'killed  ' if killer else '[red]SURVIVED[/red]'} {mutation.file}: {mutation.why}", end="")
            console.print(f" | {killer}" if killer else f"\n    {mutation.old!r} -> {mutation.new!r}", markup=False)
            bar.advance(task)
        if failing := sorted({test for copy in copies for test in copy.failing}):
            console.print("These tests fail without a fault:", *failing, sep="\n    ")
    done = [results.matching(each._asdict())[-1] for each in mutations]
    killers |= {mutation.key: result["killer"] for mutation, result in zip(mutations, done, strict=True)}
    killers = {each.key: killers[each.key] for each in chosen("") if each.key in killers}
    KILLERS.write_text(json.dumps(killers, indent=0) + "\n")
    n_killed = sum(bool(each["killer"]) for each in done)
    console.print(f"{n_killed} of {len(done)} mutations are killed")
    raise SystemExit(int(n_killed < len(done)))


if __name__ == "__main__":
    main()
