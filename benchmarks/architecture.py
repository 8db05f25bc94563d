"""Size and shape of the package: lines, files, modules that one row and one query touch, import time.

    python benchmarks/architecture.py [--source OTHER/src] [--write]

A row touches a module if `partial_fit` calls a function of it (counted with `sys.setprofile`) when a batch is learned:
the largest count of ten batches. A warm query is the second `predict` of the same place. `--write` puts the table into
CONTRIBUTING.md. Takes 20 seconds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from common import ONE_THREAD, ROOT, Record, markdown_table, put_measured

PAGE = ROOT / "CONTRIBUTING.md"
MARKERS = "<!-- measured by benchmarks/architecture.py -->", "<!-- end of architecture -->"
N_FIRST, N_BATCHES = 1400, 10
IMPORTS, N_IMPORTS = ("import wgpr", "from wgpr import WGPRegressor"), 5


def lines_by_folder(package: Path) -> Counter[str]:
    """Lines of Python in each folder of the package; "." is the package's own files."""
    lines: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        lines[path.relative_to(package).parts[0] if path.parent != package else "."] += path.read_text().count("\n")
    return lines


def touched(work: Callable[[], Any], package: Path) -> list[str]:
    """Modules of the package that have a function which `work` calls."""
    files: set[str] = set()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sorted(str(Path(file).relative_to(package)) for file in files if Path(file).is_relative_to(package))


def touched_by_row_and_query() -> Record:
    """By the defaults on a field of two inputs, of the package that is imported here."""
    import wgpr

    package, rng = Path(wgpr.__file__).parent, np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (2 * N_FIRST, 2))
    y = np.sin(X[:, 0]) + np.cos(2.0 * X[:, 1]) + 0.1 * rng.normal(size=len(X))
    model = wgpr.WGPRegressor(random_state=0).partial_fit(X[:N_FIRST], y[:N_FIRST])
    row = max(_touched_by_batches(model, X[N_FIRST:], y[N_FIRST:], package), key=len)
    model.predict(X[:1], return_std=True)
    query = touched(lambda: model.predict(X[:1], return_std=True), package)
    return {"package": str(package), "row": row, "query": query}


def _touched_by_batches(model: Any, X: np.ndarray, y: np.ndarray, package: Path) -> list[list[str]]:
    """Modules that each row touched with which a batch was learned."""
    found: list[list[str]] = []
    for x, target in zip(X[:, None], y[:, None], strict=True):
        n_steps = len(model.history_)
        modules = touched(lambda x=x, target=target: model.partial_fit(x, target), package)
        if len(model.history_) > n_steps:
            found.append(modules)
        if len(found) == N_BATCHES:
            break
    return found


def measured(source: Path) -> Record:
    """`touched_by_row_and_query` of the package in `source`, in a process of its own."""
    result: Record = json.loads(_output(source, __file__, "--worker"))
    if Path(result["package"]) != source / "wgpr":
        raise SystemExit(f"{result['package']} was imported in place of {source / 'wgpr'}")
    return result


def import_seconds(source: Path, statement: str) -> float:
    """Median processor seconds of an import statement in a new process."""
    code = f"from time import process_time as now; start = now(); {statement}; print(now() - start)"
    return float(np.median([float(_output(source, "-c", code)) for _ in range(N_IMPORTS)]))


def _output(source: Path, *arguments: str) -> str:
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(source)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def table(source: Path) -> str:
    """The figures as a table in Markdown."""
    package, result = source / "wgpr", measured(source)
    folders = lines_by_folder(package)
    rows = {
        "lines in src/wgpr": f"{folders.total():,}",
        "files directly in it": str(len([*package.glob("*.py")])),
        "lines by folder": ", ".join(f"{name} {n:,}" for name, n in sorted(folders.items())),
        "modules that a row touches": f"{len(result['row'])}: {', '.join(result['row'])}",
        "modules that a warm query touches": f"{len(result['query'])}: {', '.join(result['query'])}",
        **{f"processor seconds of `{each}`": f"{import_seconds(source, each):.2f}" for each in IMPORTS},
    }
    return markdown_table(["figure", "value"], rows.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="folder that holds wgpr/; by default, src")
    parser.add_argument("--write", action="store_true", help="put the table into CONTRIBUTING.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(touched_by_row_and_query()))
        return
    if not (arguments.source / "wgpr").is_dir():
        parser.error(f"--source must be a folder that holds wgpr/, got {arguments.source}")
    text = table(arguments.source.resolve())
    print(text, end="")
    if arguments.write:
        put_measured(PAGE, *MARKERS, text)


if __name__ == "__main__":
    main()
