"""What holds of the project as a whole: layers, examples, and that the README tells the truth."""

import ast
import doctest
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "wgpr"
LAYERS = [
    "checks linalg climbing shelf workers kernels bound",
    "gaussian scales search inducing model joint sparse exact pooling growing",
    "nearest neighbourhood ensemble records trial splitting merging stepping prediction batching calibration",
    "units state grids storage.atomic storage.container storage.models storage.history storage.values storage.checking"
    " storage.saving storage.differences",
    "base estimators datasets metrics",
    "maps territories plots report survey csvtable tables",
    "showcase.race showcase.story showcase.demo",
    "paper.published paper.plan paper.protocol paper.contestants paper.learning paper.journal paper.jobs",
    "paper.search paper.tables paper.toy paper.sweep paper.ablation paper.stability paper.running",
    "paper.numbers paper.verdicts paper.contributions paper.comparison paper.marks paper.figures paper.sections"
    " paper.reproduce",
    "commands.settings commands.console commands.summary commands.drawing commands.answering commands.columns",
    "commands.options commands.parsing commands.learning commands.live commands.conversing commands.reproducing",
    "commands.cli __init__",
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules.split()}
CORE = sorted(module for module in LEVEL if LEVEL[module] < 3)


def source(module):
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py").read_text()


def imported_modules(module):
    """Modules of the package that this one imports, at its top or later."""
    for node in ast.walk(ast.parse(source(module))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "wgpr":
            package = node.module.removeprefix("wgpr").removeprefix(".")
            names = [f"{package}.{alias.name}".removeprefix(".") for alias in node.names]
            yield from (name if name in LEVEL else package for name in names)


def test_every_module_has_a_layer():
    found = {".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in SOURCES.rglob("*.py")}
    assert found - {"storage.__init__", "commands.__init__", "showcase.__init__", "paper.__init__"} == set(LEVEL)


@pytest.mark.parametrize("module", sorted(LEVEL))
def test_nothing_imports_upward(module):
    for imported in imported_modules(module):
        assert LEVEL[imported] <= LEVEL[module], f"{module} imports {imported}"


@pytest.mark.parametrize("module", CORE)
def test_the_core_knows_no_estimators_and_no_files(module):
    assert not {"sklearn", "pandas", "matplotlib", "xarray", "rich", "typer"} & set(re.findall(r"\w+", source(module)))


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    matplotlib.use("Agg")
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", ["two_regimes.py", str(picture)])
    runpy.run_path(str(ROOT / "examples" / "two_regimes.py"), run_name="__main__")
    assert "WGPRegressor" in capsys.readouterr().out
    assert picture.stat().st_size > 10_000


def test_examples_in_docstrings_are_true():
    results = [
        doctest.testmod(importlib.import_module(f"wgpr.{module}")) for module in sorted(set(LEVEL) - {"__init__"})
    ]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


def test_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_links_of_the_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http|#|mailto|gallery)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_documentation_builds_without_warnings(tmp_path):
    """With the gallery's examples executed."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", tmp_path / "html"]
    done = subprocess.run([*command, "-d", tmp_path / "doctrees"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "index.html").exists()
