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
# Folders (and modules in the root) of the package, lowest first. A layer imports from itself and from layers below it.
LAYERS = [
    "checks labels",
    "gp",
    "ensemble",
    "rules",
    "estimators",
    "metrics datasets survey",
    "io",
    "plots report",
    "cli",
    "__init__",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
MODULES = sorted(".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in SOURCES.rglob("*.py"))
CORE = [module for module in MODULES if LEVEL[module.split(".")[0]] <= LEVEL["rules"]]


def source(module):
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py").read_text()


def imported_layers(module):
    """Layers of the package that a module imports from, at its top or later."""
    for node in ast.walk(ast.parse(source(module))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "wgpr":
            path = node.module.split(".")[1:]
            yield from path[:1] or [alias.name for alias in node.names]


def test_every_folder_has_a_layer():
    assert {module.split(".")[0] for module in MODULES} == set(LEVEL)


@pytest.mark.parametrize("module", MODULES)
def test_nothing_imports_upward(module):
    level = LEVEL[module.split(".")[0]]
    for layer in imported_layers(module):
        assert LEVEL[layer] <= level, f"{module} imports from {layer}"


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
    results = [doctest.testmod(importlib.import_module(f"wgpr.{module}")) for module in MODULES if module != "__init__"]
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
