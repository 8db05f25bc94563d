"""What holds of the project as a whole: layers, examples, and that the README tells the truth."""

import ast
import doctest
import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "wgpr"
LAYERS = [
    {"checks", "linalg", "kernels", "bound"},
    {"gaussian", "scales", "search", "inducing", "model", "sparse", "exact"},
    {"nearest", "ensemble", "splitting", "prediction"},
    {"units", "state", "atomic", "container", "codec", "historycodec", "values", "saving", "grids"},
    {"base", "estimators", "datasets", "metrics"},
    {"maps", "territories", "plots", "report", "survey", "race", "story", "demo"},
    {"csvtable", "tables", "settings", "summary", "live", "console", "drawing"},
    {"jobs", "options", "cli"},
    {"__init__"},
]
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}


def imported_modules(module):
    for node in ast.walk(ast.parse((SOURCES / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "wgpr":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("wgpr."):
            yield node.module.removeprefix("wgpr.")


def test_every_module_has_a_layer():
    assert {path.stem for path in SOURCES.glob("*.py")} == set(LEVEL)


@pytest.mark.parametrize("module", sorted(LEVEL))
def test_nothing_imports_upward(module):
    for imported in imported_modules(module):
        assert LEVEL[imported] <= LEVEL[module], f"{module} imports {imported}"


@pytest.mark.parametrize("module", sorted(set().union(*LAYERS[:3])))
def test_the_core_knows_no_estimators(module):
    assert "sklearn" not in (SOURCES / f"{module}.py").read_text()


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("Agg")
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


def test_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out
