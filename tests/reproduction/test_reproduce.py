"""`python -m reproduction` from end to end, on a small plan; and the sentences of its report depend on the numbers."""

import json
import re
import runpy
import sys
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
from paper_results import SEARCH_SEED, SEEDS, add_ablation, add_all, add_stability, add_sweep, add_tables
from typer.testing import CliRunner

from reproduction import __main__ as command
from reproduction import figures, methods, published, report, studies
from reproduction import results as results_module
from reproduction.ablation_report import ablation_content
from reproduction.comparison import comparison_tables
from reproduction.conclusions import conclusions
from reproduction.methods import METHODS
from reproduction.page import Table
from reproduction.plan import FULL, QUICK
from reproduction.results import Results, ResultsError

TINY = replace(
    QUICK,
    name="tiny",
    n_trials=1,
    max_rows=150,
    max_test_rows=100,
    toy_seeds=(0,),
    toy_search_seeds=(100,),
    stability_sets=("tzibana", "abalone", "kin40k"),
)
FEW_SETTINGS = {"WGPR": slice(4, 8), "WGPR, any rule": slice(4, 8), "SOLAR": slice(4, 8)}
FEW_THRESHOLDS = {"WGPR": ("threshold", (0.0, 1.0, inf)), "SOLAR": ("w_gen", (0.0, 0.3))}


@pytest.fixture(scope="module", autouse=True)
def _fewer_and_smaller_fits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "N_INDUCING", 8)
        for name, method in METHODS.items():
            some = method.fit_settings[FEW_SETTINGS.get(name, slice(2))]
            patch.setitem(METHODS, name, replace(method, fit_settings=some))
        for name, few in FEW_THRESHOLDS.items():
            patch.setitem(studies.TOY_THRESHOLDS, name, few)
        patch.setattr(command, "QUICK", TINY)
        yield


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


def invoke(*arguments, **environment):
    return CliRunner().invoke(command.app, [*map(str, arguments), "-j", "1"], env=environment)


@pytest.fixture(scope="module")
def done(folder, output):
    return invoke("--quick", "-o", output, WGPR_DATA=str(folder))


@pytest.fixture
def markdown(done, output):
    return (output / "report.md").read_text()


# The command


def test_the_command_says_what_is_missing_and_where_the_report_is(done, output):
    assert done.exit_code == 0, done.output
    assert "missing: kin40k" in done.stderr
    assert f"report: {output / 'report.html'}, {output / 'report.md'}" in done.stderr
    assert not done.stdout


def test_every_result_is_a_line_with_its_settings_and_its_commit(done, output):
    header, *lines = map(json.loads, (output / "results.jsonl").read_text().splitlines())
    assert header["plan"]["name"] == "tiny"
    assert set(header["versions"]) >= {"python", "numpy", "scipy", "wgpr"}
    assert all(line["commit"] for line in lines)
    finals = [line["result"] for line in lines if line["study"] == "tables"]
    assert len(finals) == 2 * 7
    assert all(final["settings"] for final in finals)


def test_both_reports_have_every_section_and_their_pictures(output, markdown):
    page = (output / "report.html").read_text()
    headings = re.findall(r"^## (.*)$", markdown, flags=re.MULTILINE)
    assert len(headings) == 10
    assert all(heading in page for heading in headings)
    pictures = re.findall(r"\]\((figures/\w+\.png)\)", markdown)
    assert len(pictures) >= 7
    assert all((output / picture).stat().st_size > 5000 for picture in pictures)
    assert page.count("data:image/png") == len(pictures)


def test_the_report_names_the_missing_set_and_how_to_get_it(markdown):
    assert "kin40k.npz is not in" in markdown
    assert "name the folder that holds it" in markdown


def test_every_published_error_of_the_sets_that_are_there_stands_beside_ours(markdown):
    rows = markdown.splitlines()
    for method in published.RMSE:
        for dataset, name in {"abalone": "Abalone", "tzibana": "Lake Tzibana"}.items():
            (row, *_) = [row for row in rows if row.replace("*", "").startswith(f"| {method}, {name} |")]
            known = published.RMSE.at[dataset, method]
            assert ("did not converge" if np.isnan(known) else f"{known:.3f}") in row


def test_results_that_are_there_are_not_computed_again(done, output, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "sections", lambda *_: [])
    before = (output / "results.jsonl").read_bytes()
    (tmp_path / "results.jsonl").write_bytes(before)
    again = invoke("--quick", "-o", tmp_path, "--data", folder)
    assert again.exit_code == 0
    assert "results are there already" in again.stderr
    assert (tmp_path / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_on_record_give_the_number_again(done, output, folder, method):
    (found,) = [
        found
        for found in Results(output / "results.jsonl", TINY)
        if found.study == "tables" and (found.key["dataset"], found.key["method"]) == ("abalone", method)
    ]
    again = studies.fit_chosen("abalone", method, 0, found.values["settings"], folder, TINY)
    assert again["test"] == found.values["test"]


def test_fresh_starts_again(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "sections", lambda *_: [])
    monkeypatch.setattr(command, "all_jobs", lambda *_: [])
    monkeypatch.setattr(command, "available", lambda *_: ([], []))
    path = tmp_path / "results.jsonl"
    path.write_text("no results\n")
    refused = invoke("--quick", "-o", tmp_path)
    assert refused.exit_code == 1
    assert "--fresh" in refused.stderr
    assert path.read_text() == "no results\n"
    assert invoke("--quick", "-o", tmp_path, "--fresh").exit_code == 0
    assert "no results" not in path.read_text()


def test_a_fit_that_fails_is_named_and_the_command_fails(tmp_path, monkeypatch):
    def broken(folder, plan):
        raise ValueError("no such luck")

    monkeypatch.setattr(command, "all_jobs", lambda *_: [studies.Job("study", {}, broken, cost=1.0)])
    monkeypatch.setattr(command, "available", lambda *_: ([], []))
    failed = invoke("--quick", "-o", tmp_path)
    assert failed.exit_code == 1
    assert "fits that failed: 1" in failed.stderr
    assert "no such luck" in (tmp_path / "report.md").read_text()


def test_ctrl_c_says_how_to_continue(folder, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "reproduce", interrupted)
    stopped = invoke("--quick", "--data", folder, "-o", tmp_path)
    assert stopped.exit_code == 1
    assert "the same command continues" in stopped.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "nowhere"], ("'--data'", "'nowhere' does not exist")),
        (["-o", __file__], ("'-o'", f"'{__file__}' is a file")),
    ],
)
def test_wrong_use_is_refused_before_any_work(arguments, words, monkeypatch):
    monkeypatch.setattr(command, "reproduce", None)
    refused = invoke(*arguments, COLUMNS="400")
    assert refused.exit_code == 2
    assert all(part in refused.stderr for part in words)


def test_it_runs_as_a_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduction", "--data", "nowhere"])
    monkeypatch.delitem(sys.modules, "reproduction.__main__")
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("reproduction", run_name="__main__")
    assert stop.value.code == 2
    assert "nowhere" in capsys.readouterr().err


# The report


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(results_module, "commit", lambda: "c0ffee")
    return Results(tmp_path / "results.jsonl", FULL)


PLAN = replace(FULL, toy_seeds=SEEDS, toy_search_seeds=(SEARCH_SEED,))


@pytest.fixture
def _without_figures(monkeypatch):
    """They have tests of their own."""
    monkeypatch.setattr(report, "figures", SimpleNamespace(**dict.fromkeys(dir(figures), lambda *_: None)))


def words_of(results, plan=PLAN):
    """All texts of the report, its tables row by row."""
    texts = []
    for section in report.sections(results, plan, [], []):
        texts.append(section.heading)
        for item in section.content:
            texts += [" | ".join(row) for row in item.rows] + [item.note] if isinstance(item, Table) else [str(item)]
    return "\n".join(texts)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Complete results; not to be changed."""
    results = Results(tmp_path_factory.mktemp("whole") / "results.jsonl", FULL)
    add_all(results)
    return results


@pytest.mark.usefixtures("_without_figures")
@pytest.mark.parametrize("step", [1, 7, 150, 10_000])
def test_any_part_of_the_results_makes_a_report(results, whole, step):
    """As a run leaves them in which fits have failed."""
    for found in list(whole)[::step] if step < 10_000 else []:
        results.add(found.study, found.key, found.values)
    text = words_of(results)
    assert not re.search(r"\bnan\b", text)
    n_empty = text.count("There are no results.")
    assert n_empty == 2 if step == 1 else n_empty >= 2  # two sections have nothing but a figure


def row_of(results, start):
    """The first row with this title, in the tables of published numbers and ours."""
    return next(row for table in comparison_tables(results, PLAN) for row in table.rows if row[0].startswith(start))


@pytest.mark.parametrize(
    ("wgpr", "solar", "ours", "words", "others"),
    [
        ((0.5, 0.6, 0.9), (0.8, 0.8, 0.9), "10 (SOLAR: 0.810 with 100)", "WGPR is ahead", "SOLAR is ahead"),
        ((0.7, 0.6, 0.5), (0.4, 0.8, 0.8), "none (0.510 with 1; SOLAR: 0.410 with 100)", "SOLAR is ahead", "WGPR is"),
        ((0.7, 0.6, 0.5), (0.8, 0.8, 0.5), "none (0.510 with 1; SOLAR: 0.510 with 1)", "the same least", "is ahead"),
        ((0.7, 0.6, 0.5), (0.8, 0.8, 0.4), "none (0.510 with 1; SOLAR: 0.410 with 1)", "SOLAR is ahead", "row by row"),
    ],
)
def test_who_is_ahead_on_kin40k_depends_on_the_errors(results, wgpr, solar, ours, words, others):
    add_sweep(results, {"WGPR": wgpr, "SOLAR": solar})
    *_, found, reason = row_of(results, "WGPR, kin40k: models")
    assert found == ours
    assert words in reason
    assert others not in reason
    assert f"best with {'100 models' if wgpr[0] == 0.5 else '1 model'}." in reason


@pytest.mark.parametrize(("errors", "is_explained"), [((0.7, 0.6, 0.5), True), ((0.5, 0.6, 0.7), False)])
def test_which_number_of_models_is_best_on_pumadyn_depends_on_the_errors(results, errors, is_explained):
    add_sweep(results, {"WGPR": errors, "SOLAR": errors})
    reason = row_of(results, "WGPR, Pumadyn")[-1]
    least, most = ("1 model", "100 models") if is_explained else ("100 models", "1 model")
    assert f"The least with {least}, the most with {most}." in reason
    assert ("eight length-scales" in reason) == is_explained


@pytest.mark.parametrize(("n_models", "n_single"), [(1, 3), (7, 0)])
def test_what_one_model_can_do_is_said_only_of_one_model(results, n_models, n_single):
    add_tables(results, n_models=n_models)
    reason = row_of(results, "WGPR, Abalone")[-1]
    assert f"Models in the mean: {n_models}. The validation chose one model in {n_single} of 3 trials." in reason
    assert ("is enough" in reason) == (n_models == 1)
    assert ("whole input space" in row_of(results, "WGPR, kin40k")[-1]) == (n_models == 1)


@pytest.mark.parametrize(("exact", "is_noise"), [(2.1, True), (1.0, False)])
def test_the_rest_is_noise_only_near_the_error_of_an_exact_gp(results, exact, is_noise):
    add_tables(results)
    for trial in range(3):
        results.add("tables", {"dataset": "pumadyn", "method": "exact GP", "trial": trial}, {"test": {"rmse": exact}})
    assert ("the rest is noise" in row_of(results, "WGPR, Pumadyn-8nm")[-1]) == is_noise


def test_the_ablation_is_told_in_words(results):
    add_ablation(results)
    *words, splitting, prediction, update, candidates = ablation_content(results)
    _, on_splitting, on_prediction, on_update, on_candidates, best = words
    each = "(Two-regime toy {0}, Lake Tzibana {0}, SARCOS (subset) {0}, kin40k {0})."
    assert on_update == f"Update. Frozen in place of learned: +50% {each.format('+50%')}"
    assert f"Evidence in place of wasserstein: +100% {each.format('+100%')}" in on_splitting
    assert f"Robust bcm in place of nearest: +400% {each.format('+400%')}" in on_prediction
    assert "1 in place of 5: +47%, in 0.33 times the time" in on_candidates
    assert "all in place of 5: -12%, in 3.50 times the time" in on_candidates
    assert "kin40k: the least error of the 50 combinations is 1 (wasserstein, nearest, learned), that of" in best
    assert splitting.rows[:2] == [("wasserstein", *["1.00 ± 0.00 (1)"] * 4), ("evidence", *["2.00 ± 0.00 (2)"] * 4)]
    assert update.rows == [("learned", *["1.00 ± 0.00"] * 4), ("frozen", *["1.50 ± 0.00"] * 4)]
    assert [row[0] for row in prediction.rows] == list(studies.PREDICTION)
    assert candidates.rows[3] == ("5", *["1.70 ± 0.71 (6 s)"] * 4)
    assert candidates.bold_rows == [3]


@pytest.mark.usefixtures("_without_figures")
@pytest.mark.parametrize("names", [("motorcycle",), ("motorcycle", "tzibana-raw")])
def test_raw_fixes_are_mentioned_only_if_they_were_run(results, names):
    add_stability(results, names)
    assert ("suspect fixes too" in words_of(results)) == ("tzibana-raw" in names)


def conclusion(results, start):
    (found,) = [found for found in conclusions(results, PLAN) if found.what.startswith(start)]
    return found


@pytest.mark.parametrize(("rmse", "is_reached"), [(0.75, True), (0.76, False)])
def test_a_conclusion_depends_on_the_error(results, rmse, is_reached):
    for trial in range(3):
        key = {"dataset": "kin40k", "method": "WGPR", "trial": trial}
        results.add("tables", key, {"test": {"rmse": rmse, "smse": 0.1}})
    found = conclusion(results, "RMSE of WGPR on kin40k")
    assert (found.wanted, found.is_reached) == ("0.757", is_reached)
    assert found.measured.startswith(f"{rmse:.3f}")
    assert conclusion(results, "RMSE of WGPR on Abalone").is_reached is None


def test_baselines_are_compared_trial_by_trial(results):
    add_tables(results)
    assert conclusion(results, "data sets where WGPR is").measured == "6 of 6"
    for trial, rmse in enumerate((1.0, 1.0, 10.0)):
        values = {"test": {"rmse": rmse / 4, "smse": 0.1}}
        results.add("tables", {"dataset": "abalone", "method": "OVFE", "trial": trial}, values)
    found = conclusion(results, "data sets where WGPR is")
    assert found.measured == "5 of 6; behind on Abalone: OVFE by 120.0% (in 2 of 3 trials)"
    assert found.is_reached


def test_cells_that_are_missing_or_diverged_are_named(results):
    add_tables(results, ["kin40k"])
    results.add("tables", {"dataset": "kin40k", "method": "OVFE", "trial": 0}, {"test": {"rmse": inf, "smse": inf}})
    results.add("tables", {"dataset": "abalone", "method": "WGPR", "trial": 0}, {"test": {"rmse": 1.0, "smse": 0.1}})
    found = conclusion(results, "cells of the methods table")
    assert found.measured.startswith("6 missing and 1 diverged of 14: WGPR, any rule on Abalone; ")
    assert found.measured.endswith("; OVFE on kin40k")
    assert found.is_reached is False


@pytest.mark.parametrize(("worst", "is_reached"), [(19.0, True), (21.0, False)])
def test_stability_has_a_limit(results, worst, is_reached):
    add_stability(results, ["motorcycle"])
    values = {"is_finite": True, "rmse": 0.5, "worst": 1.0, "worst_around": worst, "dropped": 0}
    results.add("stability", {"dataset": "motorcycle", "method": "OVFE", "order": "natural"}, values)
    found = conclusion(results, "every method on every data set")
    assert found.is_reached is is_reached
    assert f"{worst / 2:.1f} in the box around (OVFE, motorcycle, natural)" in found.measured


def test_results_of_another_plan_are_refused(results):
    with pytest.raises(ResultsError, match="another plan"):
        Results(results.path, QUICK)
