"""What holds of the project as a whole: layers, examples, and that the pages tell the truth."""

import ast
import doctest
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

import wgpr
from engine_here import EngineHere
from service_process import ForkedPython
from wgpr.fleet import sharded

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "wgpr"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/api").glob("*.md")]

# Folders (and modules in the root) of the package, lowest first. A layer imports from itself and from layers below it.
LAYERS = [
    "checks labels",
    "gp",
    "ensemble",
    "rules",
    "estimators",
    "metrics datasets survey",
    "io",
    "plots client planning",
    "service fleet",
    "cli",
    "__init__",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
MODULES = sorted(".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in SOURCES.rglob("*.py"))
CORE = [module for module in MODULES if LEVEL.get(module.split(".")[0], 0) <= LEVEL["rules"]]

# The only imports from a layer above, each inside a function: module, function, layer.
UPWARD_WHEN_CALLED = {
    ("estimators.attributes", "predict_grid", "io"),
    ("estimators.attributes", "save", "io"),
    ("estimators.attributes", "to_bytes", "io"),
}


# Layers


def source(module):
    return SOURCES.joinpath(*module.split(".")).with_suffix(".py").read_text()


def imports(node, function=None):
    """Layers of the package that a piece of code imports from, each with the function around it, None at the top."""
    paths = []
    if isinstance(node, ast.FunctionDef):
        function = node.name
    elif isinstance(node, ast.Import):
        paths = [alias.name.split(".") for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        paths = [[*node.module.split("."), alias.name] for alias in node.names]
    for package, *inner in paths:
        if package == "wgpr":  # a name that is no folder comes from __init__
            yield function, inner[0] if inner and inner[0] in LEVEL else "__init__"
    for child in ast.iter_child_nodes(node):
        yield from imports(child, function)


@pytest.fixture(scope="module")
def upward_imports():
    return [
        (module, function, layer)
        for module in MODULES
        for function, layer in imports(ast.parse(source(module)))
        if LEVEL[layer] > LEVEL[module.split(".")[0]]
    ]


def test_every_folder_has_a_layer():
    assert {module.split(".")[0] for module in MODULES} == set(LEVEL)


def test_nothing_imports_upward(upward_imports):
    assert not [each for each in upward_imports if each[1] is None]


def test_three_methods_import_upward_when_they_are_called(upward_imports):
    assert {each for each in upward_imports if each[1] is not None} == UPWARD_WHEN_CALLED


def test_an_upward_import_is_found():
    code = "import wgpr.cli.app\ndef f():\n    from wgpr import io, load\n    from wgpr.plots.maps import plot_map"
    assert list(imports(ast.parse(code))) == [(None, "cli"), ("f", "io"), ("f", "__init__"), ("f", "plots")]


def test_contributing_shows_these_layers():
    _, _, text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Layers")
    picture = re.search(r"```\n(.*?)```", text, flags=re.DOTALL)[1]
    names = [re.split(r"  +", line)[0].split(", ") for line in picture.splitlines()]
    assert names[::-1] == [layer.split() for layer in LAYERS]


@pytest.mark.parametrize("module", CORE)
def test_the_core_knows_no_estimators_and_no_files(module):
    assert not {"sklearn", "pandas", "matplotlib", "xarray", "rich", "typer"} & set(re.findall(r"\w+", source(module)))


# Examples: each is executed once


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [example.name, "picture.png"])
    monkeypatch.setattr(subprocess, "Popen", ForkedPython)
    runpy.run_path(str(example), run_name="__main__")
    plt.close("all")
    if example.stem == "lake":
        assert {"monday.csv", "tuesday.csv", "wednesday.csv", "places.csv"} <= {
            path.name for path in tmp_path.iterdir()
        }
    else:
        assert "model" in capsys.readouterr().out
    if example.stem == "two_regimes":
        assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_examples_in_docstrings_are_true(monkeypatch):
    """Workers of a fleet are in this process; tests/fleet has real ones."""
    monkeypatch.setattr(sharded, "ProcessEngine", EngineHere)
    results = [doctest.testmod(importlib.import_module(f"wgpr.{module}")) for module in MODULES if module != "__init__"]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


def code_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/first_steps.md"])
def test_the_page_runs(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in code_blocks(ROOT / page):
        exec(compile(code, page, "exec"), names)
    assert capsys.readouterr().out


def test_rules_of_the_pages_can_be_used():
    """The rules that docs/api/rules.md shows how to write."""
    blocks = [code for code in code_blocks(ROOT / "docs/api/rules.md") if "class" in code]
    assert len(blocks) == 2
    for code in blocks:
        names = {}
        exec(compile(code, "rules.md", "exec"), names)
        names["model"].set_params(batch_size=20, n_inducing=10).fit([[i / 20] for i in range(60)], range(60))
        assert abs(names["model"].predict([[1.5]])[0] - 30) < 3


# Pages


def test_the_reference_is_up_to_date(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / "docs/reference.py"), run_name="__main__")
    assert stop.value.code == 0, capsys.readouterr().out


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    assert set(wgpr.__all__) <= set(re.findall(r"^#+ `(\w+)`$", text, flags=re.MULTILINE))


def test_the_readme_has_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    readme = importlib.import_module("readme")
    assert readme.between(readme.README.read_text(), *readme.MARKERS) == f"\n{readme.text()}"


def test_each_table_has_a_command_whose_modules_are_known(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    stale = importlib.import_module("stale")
    commands = {table.command for table in stale.tables()}
    assert len(commands) > 20
    assert commands <= stale.RUNS.keys()
    for command in commands:
        assert any(re.match(stale.RUNS[command], module.replace(".", "/")) for module in MODULES)


def test_a_table_is_stale_if_a_module_of_its_command_does_something_else(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    stale = importlib.import_module("stale")
    before = '"""A module."""\n\n\ndef one():  # of them\n    """Return one."""\n    return 1\n'
    assert stale.meaning(before) == stale.meaning('def one():\n    """Return 1."""\n    return 1')
    assert stale.meaning(before) != stale.meaning(before.replace("return 1\n", "return 2\n"))
    table = stale.Table(ROOT / "docs" / "page.md", "next", "abc")
    assert stale.changes(table, ["io/maps.py", "cli/next.py"]) == []
    assert stale.changes(table, ["io/maps.py", "planning/plan.py"]) == ["planning/plan.py"]


def test_results_of_another_commit_are_refused(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    common, file = importlib.import_module("common"), tmp_path / "results.jsonl"
    monkeypatch.setattr(common, "present_code", lambda: "abc")
    common.Results(file).add({"rows": 1})
    assert common.Results(file).records == [{"rows": 1}]
    monkeypatch.setattr(common, "present_code", lambda: "def")
    with pytest.raises(SystemExit, match="another commit than def"):
        common.Results(file)
    dated = tmp_path / "dated.jsonl"
    common.Results(dated, are_dated=True).add({"measured": "Measured at commit abc."})
    assert len(common.Results(dated, are_dated=True).records) == 1


def test_each_mutation_is_found_in_the_source(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    mutations = importlib.import_module("mutations").chosen("")
    assert len({mutation.key for mutation in mutations}) == len(mutations) > 250


def test_links_of_the_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\((?!http|#|mailto)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_that_grows_is_followed_from_its_first_line(page):
    assert set(re.findall(r"tail -.*? (?=\w+\.csv)", page.read_text())) <= {"tail -n +1 -f "}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_on_the_page_exist(page):
    """Dotted names of the package, files of the repository, and what code imports."""
    text = page.read_text()
    for path in set(re.findall(r"`(wgpr(?:\.\w+)+)", text)):
        assert has_path(path), path
    for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text):
        assert any((folder / path).exists() for folder in (ROOT, SOURCES)), path
    for statement in re.findall(r"^(?:from|import) wgpr\b.*", "\n".join(code_blocks(page)), flags=re.MULTILINE):
        exec(statement, {})


def has_path(path):
    """Whether a dotted path is a module, or a name in one."""
    try:
        importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return hasattr(importlib.import_module(module), name)
    return True


def test_notation_names_what_is_in_the_code():
    rows = re.findall(r"^\|.*\|(.*)\|(.*)\|$", (ROOT / "docs/notation.md").read_text(), flags=re.MULTILINE)
    for names, modules in [row for row in rows if "`" in row[1]]:
        files = [ROOT / "tests/reference.py" if m.startswith("tests") else SOURCES / f"{m}.py" for m in quoted(modules)]
        words = set(re.findall(r"\w+", "".join(file.read_text() for file in files)))
        assert set(re.findall(r"[A-Za-z_]\w*", " ".join(quoted(names)))) <= words, f"{names} is not in {modules}"


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


def test_types_are_right():
    """Here and not before the tests, so that it runs beside others."""
    command = [sys.executable, "-m", "mypy"]
    if not (ROOT / ".mypy_cache").exists():  # to write one takes longer than it is worth here
        command += ["--cache-dir", os.devnull]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


# As `python -m sphinx`, in two thirds of the time: the garbage of one build need not be collected, and the index for
# searches, which is made of pages that are finished, gives no warnings.
BUILD = """
import gc, sys
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.cmd.build import main
gc.disable()
StandaloneHTMLBuilder.search = False
sys.exit(main(sys.argv[1:]))
"""


def test_the_documentation_builds_without_warnings(tmp_path):
    """The gallery's examples are not executed here: each is a test of its own."""
    for name in ("docs", "examples", "CHANGELOG.md"):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tmp_path)
        else:
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("_build", "gallery"))
    command = [sys.executable, "-c", BUILD, "-W", "--keep-going", "-q", "-D", "plot_gallery=0", "docs", "html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "index.html").exists()
