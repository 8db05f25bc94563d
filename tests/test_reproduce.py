"""`wgpr reproduce` from end to end, on a small plan: results, report, what is missing, and going on."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from reproduction import __main__ as reproducing
from reproduction import published, running, tables
from reproduction import reproduce as reproduction
from reproduction.contestants import CONTESTANTS
from reproduction.jobs import Job
from reproduction.journal import Journal, JournalError
from reproduction.plan import QUICK
from reproduction.reproduce import reproduce
from reproduction.running import StudyProgress, available
from wgpr.cli.app import app

TINY = replace(
    QUICK,
    name="tiny",
    n_trials=1,
    max_rows=240,
    max_test_rows=100,
    toy_seeds=(0, 1),
    relative_thresholds=(0.0, float("inf")),
    w_gens=(0.0,),
    n_candidates=(1, 5),
    stability_sets=("tzibana", "abalone", "kin40k"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small data sets; the third is missing."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    X = np.column_stack([np.linspace(0, 4, 240) % 1, np.repeat(np.arange(4.0), 60)])
    y = 10 + np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=240)
    line = np.repeat(np.arange(12), 20)
    np.savez(folder / "bathymetry_tzibana.npz", X_km=X, y=y, line=line, suspect=np.zeros(240, dtype=bool))
    np.savez(folder / "abalone.npz", X=rng.normal(size=(240, 8)), y=rng.normal(size=240))
    return folder


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="module")
def done(folder, output):
    return reproduce(output, TINY, folder=folder, n_jobs=1, console=Console(quiet=True))


def test_nothing_fails(done):
    assert done.n_failures == 0


def test_every_result_is_a_line_with_its_settings_and_its_commit(done):
    header, *lines = map(json.loads, done.results.read_text().splitlines())
    assert header["plan"]["name"] == "tiny"
    assert set(header["versions"]) >= {"python", "numpy", "scipy", "wgpr"}
    assert all(line["commit"] for line in lines)
    finals = [line["result"] for line in lines if line["study"] == "tables"]
    assert len(finals) == 2 * 7
    assert all(final["settings"] for final in finals)


def test_both_reports_have_every_section_and_their_pictures(done):
    page, text = done.page.read_text(), done.markdown.read_text()
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert len(headings) == 10
    assert all(heading in page for heading in headings)
    pictures = re.findall(r"\]\((figures/\w+\.png)\)", text)
    assert len(pictures) >= 7
    assert all((done.markdown.parent / picture).stat().st_size > 5000 for picture in pictures)
    assert page.count("data:image/png") == len(pictures)


def test_the_report_names_the_missing_set_and_how_to_get_it(done):
    assert "kin40k.npz is not in" in done.markdown.read_text()
    assert "name the folder that holds it" in done.markdown.read_text()


def test_every_published_error_of_the_sets_that_are_there_stands_beside_ours(done):
    rows = done.markdown.read_text().splitlines()
    for method, cells in published.RESULTS.items():
        for course, name in {"abalone": "Abalone", "claytor": "Lake Tzibana"}.items():
            (row, *_) = [row for row in rows if row.replace("*", "").startswith(f"| {method}, {name} |")]
            known = cells[course]
            assert ("did not converge" if known is None else f"{known.rmse:.3f}") in row


@pytest.fixture
def without_drawing(monkeypatch):
    monkeypatch.setattr(reproduction, "sections", lambda *_: [])


@pytest.mark.usefixtures("without_drawing")
def test_what_is_done_is_not_done_again(done, folder, tmp_path):
    path = tmp_path / "results.jsonl"
    before = done.results.read_bytes()
    path.write_bytes(before)
    again = reproduce(tmp_path, TINY, folder=folder, n_jobs=1, console=Console(quiet=True))
    assert again.n_failures == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("method", CONTESTANTS)
def test_the_settings_on_record_give_the_number_again(done, folder, method):
    (entry,) = Journal(done.results, TINY.to_json()).of("tables", course="abalone", method=method)
    settings = {name: float("inf") if value == "inf" else value for name, value in entry["settings"].items()}
    again = tables.final("abalone", method, 0, settings, folder, TINY)
    assert again["test"] == entry["test"]


@pytest.mark.usefixtures("without_drawing")
def test_fresh_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "run_all", lambda *_, **__: [])
    path = tmp_path / "results.jsonl"
    path.write_text("no results\n")
    plan = replace(TINY, stability_sets=())
    with pytest.raises(JournalError, match="--fresh"):
        reproduce(tmp_path, plan, folder=None, n_jobs=1, console=Console(quiet=True))
    reproduce(tmp_path, plan, folder=None, n_jobs=1, console=Console(quiet=True), fresh=True)
    assert "no results" not in path.read_text()


# The command


def test_the_command_writes_the_report(done, folder, output, monkeypatch):
    monkeypatch.setattr(reproducing, "QUICK", TINY)
    result = CliRunner().invoke(
        app, ["reproduce", "--quick", "-o", str(output), "-j", "1"], env={"WGPR_DATA": str(folder)}
    )
    assert result.exit_code == 0, result.output
    assert "report.html" in result.stderr
    assert "missing: kin40k" in result.stderr
    assert "results are there already" in result.stderr


def test_ctrl_c_says_how_to_go_on(folder, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(reproducing, "reproduce", interrupted)
    result = CliRunner().invoke(app, ["reproduce", "--quick", "--data", str(folder), "-o", str(tmp_path)])
    assert result.exit_code == 1
    assert "the same command goes on" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere"], "nowhere is no folder; name the one with the data sets with --data or WGPR_DATA"),
        (["-o", __file__], "is a file, and the results need a folder"),
    ],
)
def test_wrong_use_is_told_in_one_sentence(arguments, words):
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert words in str(result.exception)


# Parts


def test_a_missing_set_does_not_hide_the_others(folder):
    found, missing = available(TINY, folder)
    assert found == ["tzibana", "abalone"]
    assert len(missing) == 1
    assert missing[0].startswith("kin40k:")


def test_progress_tells_the_time_left_by_the_cost_of_what_is_left(tmp_path, monkeypatch):
    times = iter([100.0, 130.0, 160.0])
    monkeypatch.setattr(running, "monotonic", lambda: next(times))
    jobs = [Job("s", {"n": number}, dict, cost=cost) for number, cost in enumerate((10.0, 10.0, 100.0))]
    progress = StudyProgress(Console(quiet=True), jobs, Journal(Path(tmp_path / "results.jsonl"), {}))
    progress(jobs[0])
    assert progress._seconds_left() == pytest.approx(60.0 * 110 / 10)
