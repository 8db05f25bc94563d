"""Mutation testing with mutants that nobody chose: does a test fail for each of a random sample?

    python benchmarks/sampled_mutations.py [--sample 150] [--seed 0] [--jobs 1]
                                           [--output sampled.jsonl] [--longest 10] [--again] [--write]

Needs `pip install mutmut`, whose operators make the mutants of src/wgpr/gp, ensemble and rules. `mutations.py` has the
faults that were chosen by hand.

The sample is spread over the files in proportion to their lines. In a file, lines are drawn at random, and one mutant
of each. Docstrings, annotations, decorators, type aliases and `raise` statements are not mutated. A larger sample
contains a smaller one of the same seed, but for rounding of the numbers by file.

Each test first runs once under coverage.py. A mutant then runs only the tests that execute its statement: first those
of its module, then the others, quick ones first, until one fails or takes ten times its usual time. A mutant outside of
functions runs the tests that execute anything in the file. Tests of more than `--longest` seconds are left out.
`--again` repeats the mutants that have survived.
`equivalent_mutants.json` says for each mutant that no test can notice why that is so; the score does not count these.
With `--write` the tables are put into docs/measurements.md. One to two hours; `--sample 5` takes 15 minutes, most of
them for the lines of each test, which `--output` keeps too.
"""

import argparse
import ast
import hashlib
import json
import random
import signal
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from common import ROOT, Record, Results, put_measured
from mutations import (
    FOLDERS,
    PROCESSES,
    Copy,
    Mutation,
    Outcome,
    interrupt,
    require_own_package,
    run,
    run_tests,
    stages,
)

PAGE, BEGIN, END = (
    ROOT / "docs/measurements.md",
    "<!-- measured by benchmarks/sampled_mutations.py -->",
    "<!-- end of mutations -->",
)
SOURCE, TESTS = ROOT / "src" / "wgpr", ROOT / "tests"
MUTATED = ("gp", "ensemble", "rules")
TEST_FILES = [
    f"{folder}/{path.name}"
    for folder in (*FOLDERS, "planning", "fleet")
    for path in sorted((TESTS / folder).glob("test_*.py"))
]

# Why mutants cannot be noticed, by their keys.
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")

NOT_MUTATED = cst.Annotation, cst.Decorator, cst.Raise
CALLS_NOT_MUTATED = "len", "isinstance", "cast", "TypeVar"

# Plugins of pytest are not needed here, and take longer to import than the package.
WITHOUT_PLUGINS = "-p", "no:cacheprovider", "--disable-plugin-autoload", "-p", "reached_lines"
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "hypothesis",
        "pandas",
        "sklearn.utils.estimator_checks",
        "scipy.optimize",
        "libcst.metadata",
        "coverage",
    ]
)

SLOW = 1.0  # seconds: slower tests of other modules come last
SECONDS_TO_START = 120.0  # at most, until the first test runs


class Candidate(NamedTuple):
    """What an operator of mutmut makes of a node."""

    operator: str
    node: cst.CSTNode
    mutated: cst.CSTNode


class Candidates(cst.CSTVisitor):
    """The mutants of a module that may change what it does, by the line where they start."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.by_line: dict[int, list[Candidate]] = defaultdict(list)

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, NOT_MUTATED) or _is_call_not_mutated(node) or _is_type_alias(node):
            return False
        for kind, operator in mutation_operators:
            for mutated in operator(node) if isinstance(node, kind) else ():
                line = self.get_metadata(PositionProvider, node).start.line
                self.by_line[line].append(Candidate(operator.__name__.removeprefix("operator_"), node, mutated))
        return True


def _is_call_not_mutated(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in CALLS_NOT_MUTATED


def _is_type_alias(node: cst.CSTNode) -> bool:
    """Whether a name in the style of classes is assigned to."""
    if not isinstance(node, cst.Assign) or not isinstance(target := node.targets[0].target, cst.Name):
        return False
    return target.value[0].isupper() and not target.value.isupper()


def drawn(file: str, n: int, seed: int) -> list[Mutation]:
    """Mutants of n random lines of a file, one of each."""
    text, rng, sample = (SOURCE / file).read_text(), random.Random(f"{seed} {file}"), []
    wrapper, candidates = MetadataWrapper(cst.parse_module(text)), Candidates()
    wrapper.visit(candidates)
    code = ast.dump(ast.parse(text))
    lines = sorted(candidates.by_line)
    rng.shuffle(lines)
    for line in lines:
        if len(sample) == n:
            break
        of_line = candidates.by_line[line]
        rng.shuffle(of_line)
        for operator, node, mutated in of_line:
            other = wrapper.module.deep_replace(node, mutated).code
            if _has_other_code(other, code):
                sample.append(Mutation(file, *_edit(text, other), operator))
                break
    return sample


def _has_other_code(text: str, code: str) -> bool:
    """Whether a mutant compiles, and to something else than `code`."""
    try:
        return ast.dump(ast.parse(text)) != code
    except SyntaxError:
        return False


def _edit(text: str, other: str) -> tuple[str, str]:
    """Whole lines that `text` has once, and what replaces them in `other`."""
    before, after = text.splitlines(keepends=True), other.splitlines(keepends=True)
    first = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    last = next(i for i, (old, new) in enumerate(zip(before[::-1], after[::-1], strict=False)) if old != new)
    last = min(last, len(before) - first, len(after) - first)
    while text.count("".join(before[first : len(before) - last])) != 1:
        first -= 1
    return "".join(before[first : len(before) - last]), "".join(after[first : len(after) - last])


def drawn_from_all(n: int, seed: int) -> list[Mutation]:
    """Mutants of all files, as many of each as its share of the lines, in random order."""
    files = [f"{folder}/{path.name}" for folder in MUTATED for path in sorted((SOURCE / folder).glob("[!_]*.py"))]
    n_lines = [len((SOURCE / file).read_text().splitlines()) for file in files]
    sample = []
    for i, file in enumerate(files):  # cumulative sums are rounded, so that the numbers add up to n
        share = round(n * sum(n_lines[: i + 1]) / sum(n_lines)) - round(n * sum(n_lines[:i]) / sum(n_lines))
        sample += drawn(file, share, seed)
    random.Random(seed).shuffle(sample)
    return sample


class Reach:
    """Which tests execute which lines of src/wgpr, and how many seconds they take (see `reached_lines.py`)."""

    def __init__(self, results: Results, copy: Copy, console: Console, longest: float) -> None:
        """longest : seconds of a test that takes part."""
        self.seconds: dict[str, float] = {}
        self.tests: dict[tuple[str, int], set[str]] = defaultdict(set)
        source = "".join(path.read_text() for folder in MUTATED for path in sorted((SOURCE / folder).glob("*.py")))
        for file in TEST_FILES:
            digest = hashlib.sha256((source + (TESTS / file).read_text()).encode()).hexdigest()
            facts = {"tests": file, "digest": digest}
            if not results.matching(facts):
                console.print(f"lines that tests/{file} executes")
                results.add(facts | {"reached": _reached(file, copy)})
            for record in results.matching(facts)[-1]["reached"]:
                if record["seconds"] <= longest:
                    self._add(record)

    def _add(self, record: Record) -> None:
        self.seconds[record["test"]] = record["seconds"]
        for file, lines in record["lines"].items():
            for line in lines:
                self.tests[file, line].add(record["test"])

    def of(self, mutation: Mutation) -> set[str]:
        """Tests that execute the statement; that execute anything of the file if it is outside of functions."""
        statement = _statement(mutation)
        if statement is None:
            return set().union(*(tests for (file, _), tests in self.tests.items() if file == mutation.file))
        return set().union(*(self.tests[mutation.file, line] for line in statement))


def _reached(file: str, copy: Copy) -> list[Record]:
    """Records of the tests of a file that pass."""
    path = copy.root / "reached.jsonl"
    path.write_text("")
    arguments = ["-q", *WITHOUT_PLUGINS, "--reached", str(path)]
    output = copy.root / "output.txt"
    process = PROCESSES.Process(target=run_tests, args=(copy.root, [*arguments, f"tests/{file}"], output))
    process.start()
    process.join()
    return [json.loads(line) for line in path.read_text().splitlines()]


def _line(mutation: Mutation) -> int:
    """Number of the first line that differs."""
    text = (SOURCE / mutation.file).read_text()
    pairs = enumerate(zip(mutation.old.splitlines(), [*mutation.new.splitlines(), ""], strict=False))
    return 1 + text[: text.index(mutation.old)].count("\n") + next(i for i, (old, new) in pairs if old != new)


def _statement(mutation: Mutation) -> range | None:
    """Lines of the innermost statement, without the statements in it; None outside of functions.

    A mutant of the head of a function has the lines of the function.
    """
    line, tree = _line(mutation), ast.parse((SOURCE / mutation.file).read_text())
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno
    ]  # ast.walk goes from outside to inside
    if not any(isinstance(node, ast.FunctionDef) for node in around):
        return None
    innermost = around[-1]
    if isinstance(innermost, ast.FunctionDef) or not (body := getattr(innermost, "body", None)):
        return range(innermost.lineno, innermost.end_lineno + 1)
    return range(innermost.lineno, body[0].lineno)


class ReachingCopy(Copy):
    """A copy in which a mutant runs only the tests that execute its statement."""

    def __init__(self, folder: Path, killers: dict[str, str]) -> None:
        super().__init__(folder, killers)
        self.limits = self.root / "limits.json"
        self.options = ("-x", "-q", *WITHOUT_PLUGINS, "--limits", str(self.limits))

    def use(self, reach: Reach) -> None:
        self.reach, self.passing = reach, set(reach.seconds)
        limits = {test: 10.0 + 10.0 * seconds for test, seconds in reach.seconds.items()}
        self.limits.write_text(json.dumps(limits))

    def outcome(self, mutation: Mutation) -> Outcome:
        """Run the tests of the module, then the others, until one fails."""
        tests = sorted(self.reach.of(mutation), key=lambda test: (self.reach.seconds[test], test))
        own = [f"tests/{name}" for name in stages(mutation.file, self.tests)[0]]
        first = [test for test in tests if test.partition("::")[0] in own and self.reach.seconds[test] <= SLOW]
        for stage in (first, [test for test in tests if test not in first]):
            self.timeout = SECONDS_TO_START + sum(10.0 + 10.0 * self.reach.seconds[test] for test in stage)
            while stage and (killer := self._with(mutation, stage)):
                if self._passes_without_fault(killer):
                    return Outcome(mutation, killer)
                self.failing.append(killer)
        return Outcome(mutation, "")


def tables(sample: Sequence[Mutation], results: Results, reasons: dict[str, str]) -> str:
    """Scores by folder at first and after tests were added, and the mutants that no test notices, as Markdown."""
    done = [(each, found) for each in sample if (found := results.matching(each._asdict()))]
    lines = ["| folder | mutants | equivalent | killed at first | killed now |", "|---|---:|---:|---:|---:|"]
    for folder in (*MUTATED, ""):
        of_folder = [(each.key, found) for each, found in done if each.file.startswith(folder)]
        counted = [found for key, found in of_folder if found[-1]["killer"] or key not in reasons]
        killed = [sum(bool(found[i]["killer"]) for found in counted) for i in (0, -1)]
        cells = [f"{number} ({number / max(len(counted), 1):.0%})" for number in killed]
        n_equivalent = len(of_folder) - len(counted)
        lines.append(f"| {folder or 'all'} | {len(of_folder)} | {n_equivalent} | {' | '.join(cells)} |")
    survivors = [each for each, found in done if not found[-1]["killer"]]
    lines += ["", "| mutant that survives | why it cannot be noticed |", "|---|---|"]
    for each in sorted(survivors, key=lambda each: (each.file, _line(each))):
        lines.append(f"| `{each.file}`: {_shown(each)} | {reasons.get(each.key, '**it can**')} |")
    return "\n".join([*lines, ""])


def _shown(mutation: Mutation) -> str:
    """The lines that differ, before and after."""
    old, new = ([line.strip() for line in text.splitlines()] for text in (mutation.old, mutation.new))
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    return " → ".join(f"`{' '.join(lines)}`".replace("|", "\\|") for lines in (old, new))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tested at the same time")
    parser.add_argument("--output", type=Path, help="file for the outcomes; what is in it is not repeated")
    parser.add_argument("--longest", type=float, default=10.0, help="seconds; tests that take longer are left out")
    parser.add_argument("--again", action="store_true", help="repeat the mutants that have survived")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    arguments, console = parser.parse_args(), Console(soft_wrap=True, highlight=False)
    sample, results = drawn_from_all(arguments.sample, arguments.seed), Results(arguments.output)
    reasons: dict[str, str] = json.loads(EQUIVALENT.read_text())
    signal.signal(signal.SIGTERM, interrupt)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    left = [each for each in sample if _is_left(results.matching(each._asdict()), arguments.again)]
    with tempfile.TemporaryDirectory(prefix="wgpr-mutations-") as folder, Progress(*columns, console=console) as bar:
        copies = [ReachingCopy(Path(folder) / str(number), {}) for number in range(arguments.jobs if left else 0)]
        if left:
            require_own_package(copies[0])
            file = arguments.output and arguments.output.with_suffix(".reach.jsonl")
            reach = Reach(Results(file), copies[0], console, arguments.longest)
        for copy in copies:
            copy.use(reach)
        task = bar.add_task("mutants", total=len(left))
        for mutation, killer in run(left, copies) if left else ():
            results.add({**mutation._asdict(), "killer": killer})
            verdict = f"killed by {killer}" if killer else "SURVIVED" if reach.of(mutation) else "SURVIVED, not reached"
            console.print(f"{mutation.file}:{_line(mutation)}: {_shown(mutation)}\n    {verdict}", markup=False)
            bar.advance(task)
    text = tables(sample, results, reasons)
    console.print(text, markup=False)
    if arguments.write:
        put_measured(PAGE, BEGIN, END, text)


def _is_left(found: Sequence[Record], again: bool) -> bool:
    return not found or (again and not found[-1]["killer"])


if __name__ == "__main__":
    main()
