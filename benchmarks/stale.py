"""Which tables of the documentation are of other code than this checkout: what is to be measured again?

    python benchmarks/stale.py

Each table has the commit that it was measured at. It is stale if a module that its command runs has changed since;
comments, docstrings and the layout of a module do not count. `RUNS` says which modules these are; where it is hard to
say, it names the whole folder. Ends with an error if a table is stale.
"""

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from common import ROOT, markdown_table

PACKAGE = "src/wgpr"

_TERRITORIES = "ensemble/(answers|cuts|regimes|territor|unite)|gp/(evidence|pseudodata)"
PAPER = f"(?!{_TERRITORIES})(gp|rules|ensemble|estimators)/|metrics|datasets"
DEFAULT = "(gp|rules|ensemble|estimators)/|metrics|datasets|survey"
MAPS = f"{DEFAULT}|io/(arrays|codec|container|conversion|files|maps|settings|territories)"
READERS = f"{DEFAULT}|io/|cli/(instruments|lines|repetition)|planning/files"
COMMANDS = f"{DEFAULT}|io/|cli/(app|columns|console|fit|georeference|learn|lines|options|plausib|repet|sav|se[st]|str)"
SERVICE = f"{DEFAULT}|io/|service/|client|planning/|cli/serve"
EVERYTHING = ""

# Of each command, a pattern of the modules that it runs, or runs and measures.
RUNS = {
    "accuracy": PAPER,
    "scale": PAPER,
    "lakes": DEFAULT,
    "robustness": DEFAULT,
    "streams": DEFAULT,
    "ablation": DEFAULT,
    "surveys": DEFAULT,
    "many_surveys": DEFAULT,
    "endless": MAPS,
    "growth": MAPS,
    "map_sizes": MAPS,
    "compare": DEFAULT,
    "sampled_mutations": "(gp|rules|ensemble)/",
    "answers": f"{MAPS}|cli/(app|query|lines|session|stream)",
    "durability": COMMANDS,
    "million": f"{COMMANDS}|service/|client|fleet/",
    "hostile_files": READERS,
    "field": f"{READERS}|io/|cli/(query|georeference)",
    "next": f"{DEFAULT}|planning/",
    "fleet": f"{MAPS}|fleet/",
    "fleet_merge": f"{MAPS}|fleet/(merge|offsets|ground)",
    "service_crash": SERVICE,
    "service_faults": SERVICE,
    "service_load": SERVICE,
    "service_fuzz": SERVICE,
    "service_attacks": SERVICE,
    "service_live": f"{SERVICE}|cli/demo",
    "architecture": EVERYTHING,
    "transcripts": EVERYTHING,
}


class Table(NamedTuple):
    """page : that has it; command : that measured it; commit : of the code then."""

    page: Path
    command: str
    commit: str


def tables() -> Iterator[Table]:
    """The tables of the documentation, in the order of the pages."""
    for page in [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        command = ""
        for line in page.read_text().splitlines():
            if names := re.findall(r"(?:benchmarks|docs)/(\w+)\.py", line):
                command = names[-1]
            for commit in re.findall(r"[Mm]easured on \d{4}-\d\d-\d\d at commit (\w+)", line):
                yield Table(page, command, commit)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


@cache
def changed_since(commit: str) -> tuple[str, ...]:
    """Modules of the package that do something else than at a commit, and other files of it that differ."""
    files = _git("diff", "--name-only", "--no-renames", commit, "--", PACKAGE).split()
    return tuple(name.removeprefix(f"{PACKAGE}/") for name in files if _has_changed(commit, name))


def _has_changed(commit: str, name: str) -> bool:
    path, is_old = ROOT / name, bool(_git("ls-tree", commit, "--", name))
    if not (path.exists() and is_old and name.endswith(".py")):
        return True
    return meaning(_git("show", f"{commit}:{name}")) != meaning(path.read_text())


def meaning(source: str) -> str:
    """A module without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def changes(table: Table, changed: Iterable[str]) -> list[str]:
    """Those of the changed modules that the command of a table runs."""
    return [name for name in changed if re.match(RUNS[table.command], name)]


def main() -> None:
    found = [(table, changes(table, changed_since(table.commit))) for table in dict.fromkeys(tables())]
    rows = [[table.page.name, table.command, table.commit, ", ".join(names)] for table, names in found if names]
    if rows:
        raise SystemExit(markdown_table(["page", "command", "commit", "modules that have changed since"], rows))
    print("every table is of the code of this checkout")


if __name__ == "__main__":
    main()
