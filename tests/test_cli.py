"""The command line: what each command does, what it says when it cannot, and how it ends."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from streams import assert_same_learning, travelling
from wgpr import LocalGPRegressor, SparseGPRegressor, StreamingGPRegressor, WGPRegressor, load
from wgpr.cli import app as cli

SCRIPT = Path(sys.executable).with_name("wgpr")
SMALL = [
    "-s",
    "batching=arrival",
    "-s",
    "batch_size=20",
    "-s",
    "n_inducing=10",
    "-s",
    "optimizer_iterations=5",
    "-s",
    "random_state=0",
]
NAMES = ["east", "north", "depth"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def wgpr(monkeypatch, capsys):
    """Runs a command in this process: exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wgpr", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return (stop.value.code, *capsys.readouterr())

    return run


def script(*arguments, **options):
    """Runs a command as a user does."""
    return subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def survey(n=110, seed=0):
    X, y = travelling(n, seed=seed)
    return pd.DataFrame(np.column_stack([X, y]), columns=NAMES)


def write_survey(path, n=110, seed=0, **options):
    frame = survey(n, seed)
    frame.to_csv(path, index=False, **options)
    return frame


@pytest.fixture
def fitted_map(wgpr):
    write_survey("survey.csv")
    code, _, said = wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")
    assert code == 0, said
    return Path("a.map")


# fit and update


def test_fit_learns_what_the_estimator_learns(fitted_map):
    frame = survey()
    expected = WGPRegressor(batching="arrival", batch_size=20, n_inducing=10, optimizer_iterations=5, random_state=0)
    expected.partial_fit(frame[NAMES[:2]], frame["depth"])
    model = load(fitted_map)
    assert list(model.feature_names_in_) == NAMES[:2]
    assert model.target_name_ == "depth"
    assert model.n_samples_seen_ == 110
    np.testing.assert_array_equal(model.predict(frame[NAMES[:2]]), expected.predict(frame[NAMES[:2]]))


@pytest.mark.parametrize("method", ["wgpr", "solar", "lgpr", "streaming"])
def test_update_goes_on_as_if_it_had_never_stopped(wgpr, method):
    frame = survey(100)
    settings = ["-m", method, "-s", "batch_size=20", "-s", "optimizer_iterations=5", "-s", "random_state=3"]
    for name, rows in {"all": frame, "first": frame[:33], "second": frame[33:37], "third": frame[37:]}.items():
        rows.to_csv(f"{name}.csv", index=False)
    assert wgpr("fit", "all.csv", *settings, "-o", "once.map")[0] == 0
    assert wgpr("fit", "first.csv", *settings, "-o", "pieces.map")[0] == 0
    assert wgpr("update", "pieces.map", "second.csv")[0] == 0
    assert wgpr("update", "pieces.map", "third.csv", "-o", "other.map")[0] == 0
    once, other = load("once.map"), load("other.map")
    for model in (once, other):
        del model.feature_names_in_  # it will be asked about arrays
    assert_same_learning(other, once)
    assert load("pieces.map").n_samples_seen_ == 37


def test_all_methods_and_settings_can_be_chosen(wgpr):
    write_survey("survey.csv", 60)
    assert wgpr("fit", "survey.csv", "-m", "sparse", "-s", "n_inducing=7", "-o", "sparse.map")[0] == 0
    assert load("sparse.map").n_inducing == 7
    settings = ["-s", "threshold=inf", "-s", "kernel=matern32", "-s", "prediction=barycenter", "-s", "batch-size=20"]
    assert wgpr("fit", "survey.csv", *settings, "-s", "learn_hyperparameters=false", "-o", "a.map")[0] == 0
    model = load("a.map")
    assert (model.threshold, model.kernel, model.prediction) == (np.inf, "matern32", "barycenter")
    assert model.learn_hyperparameters is False
    assert wgpr("fit", "survey.csv", "-m", "lgpr", "-s", "max_samples=none", "-o", "l.map")[0] == 0
    assert load("l.map").max_samples is None


def test_a_configuration_file_holds_everything(wgpr):
    write_survey("survey.csv", 60, sep=";")
    text = """
        method = "lgpr"
        x = ["north", "east"]
        y = "depth"
        [table]
        separator = ";"
        [settings]
        w_gen = 0.3
        hyperparameters = {amplitude = 2.0, lengthscales = [1.0, 3.0], noise = 0.1}
    """
    Path("wgpr.toml").write_text(text)
    assert wgpr("fit", "survey.csv", "-o", "a.map")[0] == 0
    model = load("a.map")
    assert isinstance(model, LocalGPRegressor)
    assert (model.w_gen, list(model.feature_names_in_), model.hyperparameters.amplitude) == (
        0.3,
        ["north", "east"],
        2.0,
    )
    Path("other.toml").write_text('method = "streaming"\n[table]\nseparator = ";"')
    assert wgpr("fit", "survey.csv", "--config", "other.toml", "-o", "b.map")[0] == 0
    assert isinstance(load("b.map"), StreamingGPRegressor)
    assert wgpr("fit", "survey.csv", "-s", "w_gen=0.4", "-o", "c.map")[0] == 0
    assert load("c.map").w_gen == 0.4


def test_rules_with_settings_of_their_own(wgpr):
    write_survey("survey.csv", 60)
    Path("wgpr.toml").write_text('[settings]\nprediction = {object = "BestFew", n_models = 2}')
    assert wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")[0] == 0
    assert repr(load("a.map").prediction) == "BestFew(n_models=2)"


def test_columns_by_number_and_without_names(wgpr):
    frame = write_survey("plain.csv", header=False)
    assert wgpr("fit", "plain.csv", "--x", "2,1", "--y", "3", *SMALL, "-o", "a.map")[0] == 0
    model = load("a.map")
    assert list(model.feature_names_in_) == ["x2", "x1"]
    np.testing.assert_array_equal(model.bounds_[1], frame[["north", "east"]].max())
    write_survey("named.csv")
    assert wgpr("fit", "named.csv", "--x", "2,east", "--y", "3", *SMALL, "-o", "b.map")[0] == 0
    assert list(load("b.map").feature_names_in_) == ["north", "east"]
    assert load("b.map").target_name_ == "depth"


def test_several_files_and_a_glob_are_read_in_order(wgpr):
    frame = survey(90)
    for number, start in enumerate(range(0, 90, 30), start=9):
        frame[start : start + 30].to_csv(f"line{number}.csv", index=False)
    frame.to_csv("whole.csv", index=False)
    assert wgpr("fit", "line*.csv", *SMALL, "-o", "a.map")[0] == 0
    assert wgpr("fit", "whole.csv", *SMALL, "-o", "b.map")[0] == 0
    queries = survey(50, seed=5)[NAMES[:2]]
    np.testing.assert_array_equal(load("a.map").predict(queries), load("b.map").predict(queries))


@pytest.mark.parametrize("suffix", ["parquet", "npz", "tsv"])
def test_every_kind_of_file_gives_the_same_map(wgpr, suffix):
    frame = write_survey("survey.csv")
    if suffix == "parquet":
        frame.to_parquet("survey.parquet")
    elif suffix == "npz":
        np.savez("survey.npz", **{name: frame[name] for name in NAMES})
    else:
        frame.to_csv("survey.tsv", sep="\t", index=False)
    columns = ["--x", "east,north", "--y", "depth"]
    assert wgpr("fit", "survey.csv", *columns, *SMALL, "-o", "a.map")[0] == 0
    assert wgpr("fit", f"survey.{suffix}", *columns, *SMALL, "-o", "b.map")[0] == 0
    a, b = load("a.map"), load("b.map")
    np.testing.assert_array_equal(a.predict(frame[NAMES[:2]]), b.predict(frame[NAMES[:2]]))


def test_skip_leaves_out_what_is_learned(wgpr):
    write_survey("survey.csv", 100)
    survey(100)[:35].to_csv("begin.csv", index=False)
    assert wgpr("fit", "begin.csv", *SMALL, "-o", "a.map")[0] == 0
    assert wgpr("update", "a.map", "survey.csv", "--skip", 35)[0] == 0
    assert wgpr("fit", "survey.csv", *SMALL, "-o", "b.map")[0] == 0
    queries = survey(50, seed=5)[NAMES[:2]]
    np.testing.assert_array_equal(load("a.map").predict(queries), load("b.map").predict(queries))
    code, _, said = wgpr("update", "a.map", "survey.csv", "--skip", 100)
    assert (code, "--skip" in said) == (1, True)


def test_a_sparse_map_cannot_be_updated(wgpr):
    write_survey("survey.csv", 40)
    wgpr("fit", "survey.csv", "-m", "sparse", "-s", "n_inducing=5", "-o", "a.map")
    code, _, said = wgpr("update", "a.map", "survey.csv")
    assert (code, "wgpr fit" in said) == (1, True)


# Answers


def test_predict_writes_what_the_estimator_predicts(wgpr, fitted_map):
    queries = survey(30, seed=4)
    queries.to_csv("places.csv", index=False)
    code, _, said = wgpr("predict", fitted_map, "places.csv", "-o", "answers.csv")
    assert code == 0, said
    model = load(fitted_map).flush()
    mean, std = model.predict(queries[NAMES[:2]], return_std=True)
    answers = pd.read_csv("answers.csv", dtype=str).astype(float)
    assert list(answers.columns) == ["east", "north", "mean", "std", "lower", "upper", "model"]
    np.testing.assert_array_equal(answers["mean"], mean)
    np.testing.assert_array_equal(answers["std"], std)
    np.testing.assert_allclose(answers["upper"] - answers["lower"], 2 * 1.959964 * std, rtol=1e-6)
    np.testing.assert_array_equal(answers["model"], model.model_index(queries[NAMES[:2]]))


def test_predict_writes_parquet_and_standard_output(wgpr, fitted_map):
    survey(5)[["north", "east"]].to_csv("places.csv", index=False)
    assert wgpr("predict", fitted_map, "places.csv", "-o", "answers.parquet")[0] == 0
    code, text, _ = wgpr("predict", fitted_map, "places.csv", "--level", "0.5", "--latent")
    assert code == 0
    assert text.splitlines()[0] == "east,north,mean,std,lower,upper,model"
    assert len(pd.read_parquet("answers.parquet")) == len(text.splitlines()) - 1 == 5


def test_predict_without_names_goes_by_place(wgpr, fitted_map):
    survey(5)[NAMES[:2]].to_csv("places.csv", index=False, header=False)
    survey(5)[NAMES[:2]].to_csv("named.csv", index=False)
    assert wgpr("predict", fitted_map, "places.csv")[1] == wgpr("predict", fitted_map, "named.csv")[1]


def test_rows_that_wait_are_used_by_answers_and_stay_waiting(wgpr):
    write_survey("few.csv", 15)
    assert wgpr("fit", "few.csv", *SMALL, "-o", "a.map")[0] == 0
    before = Path("a.map").read_bytes()
    assert wgpr("predict", "a.map", "few.csv")[0] == 0
    assert load("a.map").n_pending_ == 15
    assert Path("a.map").read_bytes() == before


def test_grid_is_what_xarray_reads(wgpr, fitted_map):
    import xarray as xr

    code, _, said = wgpr("grid", fitted_map, "--region", "-1,4,0,2", "--spacing", "0.5", "-o", "a.nc")
    assert code == 0, said
    with xr.open_dataset("a.nc", engine="scipy") as grid:
        assert dict(grid.sizes) == {"north": 5, "east": 11}
        assert grid.attrs["Conventions"].startswith("CF")
        x = pd.DataFrame({"east": [1.5], "north": [1.0]})
        assert grid["mean"].sel(east=1.5, north=1.0).item() == pytest.approx(load(fitted_map).flush().predict(x)[0])


def test_evaluate_gives_the_scores(wgpr, fitted_map):
    frame = write_survey("other.csv", 60, seed=7)
    code, text, _ = wgpr("evaluate", fitted_map, "other.csv", "--json")
    scores = json.loads(text)
    errors = load(fitted_map).flush().predict(frame[NAMES[:2]]) - frame["depth"]
    assert (code, scores["rows"]) == (0, 60)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert scores["smse"] == pytest.approx(np.mean(errors**2) / np.var(frame["depth"]))
    code, text, _ = wgpr("evaluate", fitted_map, "other.csv")
    assert all(name in text for name in ("RMSE", "MAE", "SMSE", "NLPD", "CRPS", "coverage"))


def test_info_tells_everything(wgpr, fitted_map):
    code, text, _ = wgpr("info", fitted_map, "--json")
    content = json.loads(text)
    assert code == 0
    assert content["samples"] == 110
    assert content["waiting"] == 10
    assert content["bytes"] == fitted_map.stat().st_size
    assert content["settings"]["batch_size"] == 20
    assert sum(model["samples"] for model in content["models"]) == 100
    assert content["last_steps"][-1]["decision"] in ("new", "update")
    code, text, _ = wgpr("info", fitted_map)
    assert all(word in text for word in ("WGPRegressor", "east", "depth", "110", "Last steps"))


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_plot_draws(wgpr, fitted_map, suffix):
    survey().to_csv("survey.csv", index=False)
    code, _, said = wgpr("plot", fitted_map, "--spacing", "0.5", "--data", "survey.csv", "-o", f"a.{suffix}")
    assert code == 0, said
    beginning = {"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!DOCTYPE html>"}[suffix]
    assert Path(f"a.{suffix}").read_bytes().startswith(beginning)


def test_settings_are_explained(wgpr):
    code, text, _ = wgpr("settings")
    assert (code, all(name in text for name in cli.METHODS)) == (0, True)
    code, text, _ = wgpr("settings", "lgpr")
    assert "max_samples" in text


def test_a_slow_link(wgpr, fitted_map):
    assert wgpr("compact", fitted_map, "-o", "ashore.map")[0] == 0
    write_survey("more.csv", 50, seed=3)  # no row waits then
    assert wgpr("update", fitted_map, "more.csv", "-o", "after.map")[0] == 0
    assert wgpr("diff", fitted_map, "after.map", "-o", "news")[0] == 0
    assert wgpr("apply", "ashore.map", "news", "-o", "now.map", "--compact")[0] == 0
    assert wgpr("diff", "ashore.map", "after.map", "-o", "same")[0] == 0
    assert Path("same").read_bytes() == Path("news").read_bytes()
    assert wgpr("compact", fitted_map, "--flush", "-o", "final.map")[0] == 0
    code, _, said = wgpr("diff", "final.map", "after.map", "-o", "wrong")
    assert (code, "flushed" in said) == (1, True)
    queries = survey(20, seed=9)[NAMES[:2]]
    mean = load("after.map").predict(queries)
    np.testing.assert_allclose(load("now.map").predict(queries), mean, atol=1e-4 * np.ptp(mean))


# Errors


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "nothing.csv", "-o", "b.map"], 1, ["nothing.csv"]),
        (["fit", "bad.csv", "-o", "b.map"], 1, ["bad.csv", "line 3", "depth", "oops"]),
        (["fit", "survey.csv", "--x", "lon", "-o", "b.map"], 1, ["lon", "east"]),
        (["fit", "survey.csv", "-o", "nowhere/b.map"], 1, ["nowhere"]),
        (["fit", "survey.csv"], 2, ["--output"]),
        (["fit", "survey.csv", "-o", "b.map", "-s", "treshold=3"], 2, ["treshold", "threshold"]),
        (["fit", "survey.csv", "-o", "b.map", "-s", "threshold=-3"], 2, ["threshold", "-3"]),
        (["fit", "survey.csv", "-o", "b.map", "-s", "nonsense"], 2, ["NAME=VALUE"]),
        (["fit", "survey.csv", "-o", "b.map", "-m", "kriging"], 2, ["kriging", "solar"]),
        (["fit", "survey.csv", "-o", "b.map", "--decimal", "x"], 2, ["decimal"]),
        (["fit", "survey.csv", "-o", "b.map", "--config", "none.toml"], 2, ["none.toml"]),
        (["fit", "survey.csv", "-o", "b.map", "--config", "bad.csv"], 2, ["bad.csv", "TOML"]),
        (["predict", "survey.csv", "survey.csv"], 1, ["survey.csv", "not a map"]),
        (["predict", "none.map", "survey.csv"], 1, ["none.map"]),
        (["predict", "a.map", "survey.csv", "--level", "95"], 2, ["--level"]),
        (["predict", "a.map", "survey.csv", "-o", "answers.xls"], 1, ["answers.xls"]),
        (["predict", "a.map", "other.csv"], 1, ["lon", "east", "--x"]),
        (["grid", "a.map", "--region", "1,2,x", "-o", "a.nc"], 2, ["1,2,x"]),
        (["grid", "a.map", "--region", "1,2", "-o", "a.nc"], 2, ["region"]),
        (["grid", "a.map", "--spacing", "1e-9", "-o", "a.nc"], 2, ["spacing"]),
        (["grid", "a.map", "-o", "a.tif"], 2, [".nc"]),
        (["plot", "a.map", "-o", "a.xyz"], 2, ["a.xyz"]),
        (["update", "a.map", "other.csv"], 1, ["east"]),
        (["fit", "survey.csv", "--x", "east,depth", "--y", "depth", "-o", "b.map"], 1, ["depth", "twice"]),
        (["fit", "survey.csv", "--x", "east,1", "-o", "b.map"], 1, ["east", "twice"]),
        (["fit", "survey.csv", "--x", "1,2,3", "-o", "b.map"], 1, ["--y"]),
        (["fit", "survey.csv", "-o", "survey.csv"], 2, ["survey.csv", "overwritten"]),
        (["fit", "huge.csv", "-o", "b.map"], 1, ["huge.csv", "lines 2 to 3", "rescale"]),
        (["compact", "a.map", "-o", "a.map"], 2, ["overwritten"]),
        (["diff", "a.map", "a.map", "-o", "a.map"], 2, ["overwritten"]),
        (["apply", "a.map", "bad.csv", "-o", "b.map"], 1, ["bad.csv", "damaged"]),
        (["grid", "a.map", "--at", "east=1", "--at", "1=2", "-o", "a.nc"], 2, ["twice"]),
        (["grid", "a.map", "--at", "up=1", "-o", "a.nc"], 2, ["up", "north"]),
        (["grid", "a.map", "--at", "north=1,2", "-o", "a.nc"], 2, ["--at north", "one number"]),
        (["grid", "a.map", "--spacing", "fine", "-o", "a.nc"], 2, ["--spacing", "fine"]),
        (
            ["fit", "survey.csv", "-m", "lgpr", "-s", "hyperparameters={amplitude=1}", "-o", "b.map"],
            2,
            ["lengthscales"],
        ),
        (["fit", "survey.csv", "-s", "prediction={}", "-o", "b.map"], 2, ["prediction", "BestFew"]),
        (["fit", "survey.csv", "--config", "table.toml", "-o", "b.map"], 2, ["table.toml", "header"]),
        (["demo", "--data", "survey.csv", "-o", "survey.csv"], 2, ["folder"]),
        (["info", "none.map"], 1, ["none.map", "check the name"]),
        (["settings", "kriging"], 2, ["kriging"]),
        (["nonsense"], 2, ["nonsense"]),
    ],
)
def test_errors_are_sentences(wgpr, fitted_map, arguments, code, words):
    Path("bad.csv").write_text("east,north,depth\n1,2,3\n1,2,oops\n")
    Path("other.csv").write_text("lon,lat,z\n1,2,3\n")
    Path("huge.csv").write_text("a,b\n1,2\n1e200,3\n")
    Path("table.toml").write_text('[table]\nheader = "no"')
    before = fitted_map.read_bytes()
    exit_code, text, said = wgpr(*arguments)
    assert exit_code == code, said
    assert text == ""
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    if code == 1:
        assert said.splitlines()[-1].startswith("wgpr: ")
        assert said.count("wgpr: ") == 1
    assert fitted_map.read_bytes() == before
    assert not Path("b.map").exists()


def test_verbose_shows_the_traceback(wgpr):
    assert "Traceback" in wgpr("fit", "nothing.csv", "-o", "b.map", "--verbose")[2]


def test_version_and_help(wgpr):
    assert wgpr("--version")[:2] == (0, "0.1.0\n")
    for command in ("fit", "update", "stream", "predict", "grid", "evaluate", "info", "plot", "settings", "demo"):
        code, text, _ = wgpr(command, "--help")
        assert code == 0
        assert "Usage" in text


def test_the_target_is_never_an_input(wgpr, fitted_map):
    frame = survey(60)
    frame[["depth", "north", "east"]].to_csv("turned.csv", index=False)
    assert "learning depth from east, north" in wgpr("fit", "turned.csv", "--x", "east,north", *SMALL, "-o", "b.map")[2]
    assert "learning depth from east, north" in wgpr("fit", "survey.csv", "--y", "3", *SMALL, "-o", "b.map")[2]
    frame.rename(columns={"depth": "z"})[["z", "north", "east"]].to_csv("renamed.csv", index=False)
    assert "learning z from east, north" in wgpr("update", fitted_map, "renamed.csv", "-o", "b.map")[2]
    frame.assign(more=1.0).drop(columns="depth").assign(other=2.0).to_csv("unclear.csv", index=False)
    code, _, said = wgpr("update", fitted_map, "unclear.csv")
    assert (code, "--y" in said) == (1, True)


def test_the_configuration_tells_every_command_how_tables_are_written(wgpr, fitted_map):
    Path("gaps.csv").write_text("east,north,depth\n1,2,3\n1,,3\n2,1,0\n")
    assert wgpr("evaluate", fitted_map, "gaps.csv")[0] == 1
    Path("wgpr.toml").write_text('[table]\nmissing = "skip"')
    code, text, _ = wgpr("evaluate", fitted_map, "gaps.csv", "--json")
    assert (code, json.loads(text)["rows"]) == (0, 2)


def test_json_has_no_infinity(wgpr, fitted_map):
    Path("one.csv").write_text("east,north,depth\n1,2,3\n")
    code, text, _ = wgpr("evaluate", fitted_map, "one.csv", "--json")
    assert (code, json.loads(text)["smse"]) == (0, None)


def test_inputs_that_are_called_like_answers(wgpr):
    survey(40).rename(columns={"east": "mean"}).to_csv("odd.csv", index=False)
    assert wgpr("fit", "odd.csv", *SMALL, "-o", "a.map")[0] == 0
    assert wgpr("predict", "a.map", "odd.csv")[1].startswith("mean_,north,mean,std")


def test_places_outside_the_data_are_told(wgpr, fitted_map):
    Path("far.csv").write_text("east,north\n1,1\n1e6,1\n")
    assert "50% of the places are outside" in wgpr("predict", fitted_map, "far.csv", "-o", "answers.csv")[2]
    said = wgpr("grid", fitted_map, "--region", "2,22,1,2", "--spacing", "1", "-o", "a.nc")[2]
    assert "57% of the places are outside" in said  # 12 of 21 columns
    assert "outside" not in wgpr("grid", fitted_map, "--region", "2,4,1,2", "--spacing", "1", "-o", "a.nc")[2]


def test_a_threshold_that_has_no_effect_is_refused(wgpr):
    write_survey("survey.csv", 40)
    Path("wgpr.toml").write_text('[settings]\nsplitting = "evidence"')
    code, _, said = wgpr("fit", "survey.csv", "-s", "threshold=3", "-o", "a.map")
    assert (code, "no effect" in said, "settings from wgpr.toml" in said) == (2, True, True)
    assert wgpr("fit", "survey.csv", "-s", "threshold=3", "-s", "splitting=wasserstein", *SMALL, "-o", "a.map")[0] == 0


def test_compact_says_what_it_leaves_out(wgpr, fitted_map):
    assert "10 rows that wait" in wgpr("compact", fitted_map, "-o", "small.map")[2]
    assert load("small.map").n_samples_seen_ == 100


@pytest.mark.parametrize("width", [80, 200])
def test_info_fits_the_terminal(fitted_map, width):
    from rich.console import Console

    from wgpr.cli.show import print_summary, summary

    console = Console(width=width, file=io.StringIO())
    print_summary(summary(load(fitted_map), 1000), console)
    text = console.file.getvalue()
    assert "…" not in text
    assert ("north" in text.partition("Models")[2]) == (width > 80)


def test_an_update_does_not_undo_that_of_another(wgpr, fitted_map, monkeypatch):
    from wgpr.cli import learn as learning

    learn = learning._learn

    def slow_learning(*arguments):
        load(fitted_map).flush().save(fitted_map)
        return learn(*arguments)

    monkeypatch.setattr(learning, "_learn", slow_learning)
    code, _, said = wgpr("update", fitted_map, "survey.csv")
    assert (code, "somebody else" in said) == (1, True)
    rescued = said.split("the map is in ")[1].split(" instead")[0]
    assert load(rescued).n_samples_seen_ == 220
    assert load(fitted_map).n_samples_seen_ == 110


def test_update_first_learns_what_an_interruption_left_waiting(wgpr, monkeypatch):
    write_survey("survey.csv", 100)
    assert wgpr("fit", "survey.csv", *SMALL, "-o", "whole.map")[0] == 0
    steps = []

    def interrupted_step(self, batching, n_ready, step=WGPRegressor._step):
        if len(steps) == 2:
            raise KeyboardInterrupt
        steps.append(n_ready)
        step(self, batching, n_ready)

    with monkeypatch.context() as patch:
        patch.setattr(WGPRegressor, "_step", interrupted_step)
        code, _, said = wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")
    assert (code, "--skip 100" in said, load("a.map").n_pending_) == (1, True, 60)
    assert wgpr("update", "a.map", "survey.csv", "--skip", 100)[0] == 0
    whole, caught_up = load("whole.map"), load("a.map")
    for model in (whole, caught_up):
        del model.feature_names_in_
    assert_same_learning(caught_up, whole)


def test_an_interrupted_batch_method_leaves_nothing(wgpr, monkeypatch):
    write_survey("survey.csv", 40)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SparseGPRegressor, "_step", interrupt)
    code, _, said = wgpr("fit", "survey.csv", "-m", "sparse", "-o", "a.map")
    assert (code, "no map was written" in said, Path("a.map").exists()) == (1, True, False)


# The installed script


def test_a_week_with_the_script():
    """Every command once, as a user runs it."""
    write_survey("monday.csv")
    write_survey("tuesday.csv", seed=1)
    steps = [
        ("fit", "monday.csv", *SMALL, "-o", "lake.map"),
        ("update", "lake.map", "tuesday.csv"),
        ("predict", "lake.map", "tuesday.csv", "-o", "answers.csv"),
        ("grid", "lake.map", "--spacing", "0.5", "-o", "lake.nc"),
        ("info", "lake.map"),
        ("plot", "lake.map", "--spacing", "0.5", "-o", "lake.png"),
        ("evaluate", "lake.map", "tuesday.csv"),
        ("settings",),
        ("demo", "--data", "monday.csv", "--quick", "-o", "report"),
        ("compact", "lake.map", "-o", "small.map"),
        ("diff", "lake.map", "lake.map", "-o", "news"),
        ("apply", "lake.map", "news", "-o", "now.map"),
    ]
    for step in steps:
        done = script(*step)
        assert done.returncode == 0, done.stderr
    assert all(
        Path(name).stat().st_size for name in ("answers.csv", "lake.nc", "lake.png", "small.map", "report/report.html")
    )


def test_standard_input_and_output():
    frame = survey()
    text = frame.to_csv(index=False)
    assert script("fit", "-", *SMALL, "-o", "a.map", input=text).returncode == 0
    done = script("predict", "a.map", "-", input=text)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(frame) + 1


def test_stream_learns_as_fit_does():
    text = write_survey("survey.csv").to_csv(index=False)
    done = script("stream", "stream.map", *SMALL, input=text)
    assert done.returncode == 0, done.stderr
    assert "RMSE" in done.stderr
    assert script("fit", "survey.csv", *SMALL, "-o", "fit.map").returncode == 0
    streamed, fitted = load("stream.map"), load("fit.map")
    queries = survey(30, seed=2)[NAMES[:2]]
    np.testing.assert_array_equal(streamed.predict(queries), fitted.predict(queries))
    assert (streamed.target_name_, streamed.n_samples_seen_) == ("depth", 110)


def test_stream_answers_at_once():
    """The answer is there before the next line is sent."""
    lines = [*survey(60).to_csv(index=False).splitlines(), "", "# a comment"]
    command = [SCRIPT, "stream", "a.map", *SMALL]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as robot:
        robot.stdin.write("\n".join([*lines, "3.0,1.0"]) + "\n")
        robot.stdin.flush()
        answer = robot.stdout.readline()
        robot.stdin.write('{"east": 3.0, "north": 1.0, "id": "q1"}\n')
        robot.stdin.flush()
        named = json.loads(robot.stdout.readline())
        robot.stdin.close()
        assert robot.wait(timeout=60) == 0
    mean, std, lower, upper, model = map(float, answer.split(","))
    assert named == {"id": "q1", "mean": mean, "std": std, "lower": lower, "upper": upper, "model": int(model)}
    expected = load("a.map").predict(pd.DataFrame({"east": [3.0], "north": [1.0]}))
    assert mean == expected[0]


def test_stream_leaves_out_what_it_cannot_read():
    good = survey(30).to_csv(index=False)
    odd = ["1e200,2,3", "1e200,2", f'{{"east": {"9" * 400}, "north": 1}}', '1,"2', "1,2\r3,4", "x" * 2_000_000]
    bad = "\n".join(["1,2,three", "1,2,3,4", "{not json}", "1,nan,3", "{}", *odd]) + "\n"
    done = script("stream", "a.map", *SMALL, input=good + bad)
    assert done.returncode == 0
    assert done.stderr.count("left out") == 11
    assert "line 32" in done.stderr
    assert load("a.map").n_samples_seen_ == 30
    done = script("stream", "a.map", "--strict", input=good + bad)
    assert (done.returncode, "line 32" in done.stderr) == (1, True)
    assert load("a.map").n_samples_seen_ == 60


def test_a_question_before_anything_is_known():
    done = script("stream", "a.map", "--x", "east,north", "--y", "depth", input='1,2\n{"x": [1, 2]}\n')
    assert done.returncode == 0
    csv_answer, json_answer = done.stdout.splitlines()
    assert csv_answer == ",,,,"
    assert "error" in json.loads(json_answer)
    assert not Path("a.map").exists()


def test_a_stream_may_have_other_names():
    rows = survey(30)
    assert script("stream", "a.map", *SMALL, input=rows.to_csv(index=False)).returncode == 0
    other = rows.rename(columns={"east": "x", "north": "y", "depth": "z"})[["z", "y", "x"]].to_csv(index=False)
    done = script("stream", "a.map", "--x", "x,y", "--y", "z", input=other)
    assert done.returncode == 0, done.stderr
    model = load("a.map")
    assert (model.n_samples_seen_, list(model.feature_names_in_)) == (60, ["east", "north"])
    np.testing.assert_array_equal(model.bounds_[1], rows[["east", "north"]].max())


def test_a_line_that_is_left_out_names_nothing():
    rows = '{"status": "boot", "t": 1}\n' + survey(30).to_json(orient="records", lines=True)
    assert script("stream", "a.map", *SMALL, input=rows).returncode == 0
    assert list(load("a.map").feature_names_in_) == ["east", "north"]


def test_closed_streams_are_no_trouble(fitted_map):
    for redirection in ("<&-", ">&-", "2>&-"):
        done = subprocess.run(f"{SCRIPT} info {fitted_map} {redirection}", shell=True, capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "terminate"])
def test_an_interrupted_fit_saves_and_can_be_continued(number):
    write_survey("survey.csv", 50_000)
    settings = ["-s", "n_inducing=30", "-s", "random_state=0"]
    command = [SCRIPT, "fit", "survey.csv", *settings, "-o", "a.map"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as fit:
        assert fit.stderr.readline() == "learning depth from east, north\n"
        time.sleep(2.0)
        fit.send_signal(number)
        said = fit.stderr.read()
        assert fit.wait(timeout=60) == 1
    n_learned = load("a.map").n_samples_seen_
    assert 0 < n_learned < 50_000
    assert f"--skip {n_learned}" in said


def test_a_stream_can_be_interrupted():
    rows = survey(60).to_csv(index=False)
    command = [SCRIPT, "stream", "a.map", *SMALL]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as robot:
        robot.stdin.write(rows + "3.0,1.0\n")
        robot.stdin.flush()
        robot.stdout.readline()
        robot.send_signal(signal.SIGINT)
        assert robot.wait(timeout=60) == 0
        assert "saved" in robot.stderr.read()
    assert load("a.map").n_samples_seen_ == 60


def test_a_killed_update_leaves_a_whole_map(fitted_map):
    write_survey("more.csv", 400, seed=1)
    before = fitted_map.read_bytes()
    rng = np.random.default_rng(0)
    for delay in rng.uniform(0.3, 2.5, 4):
        with subprocess.Popen([SCRIPT, "update", fitted_map, "more.csv"], stderr=subprocess.DEVNULL) as update:
            time.sleep(delay)
            update.kill()
        after = fitted_map.read_bytes()
        assert after == before or load(fitted_map).n_samples_seen_ > 110
        before = after


def test_columns_of_a_stream_by_number():
    rows = survey(30).assign(line=7.0)[["line", "east", "north", "depth"]]
    numbered = ["--x", "2,3", "--y", "4"]
    done = script("stream", "a.map", *SMALL, *numbered, input=rows.to_csv(index=False, header=False) + "0,3.0,1.0\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    model = load("a.map")
    np.testing.assert_array_equal(model.bounds_[1], rows[["east", "north"]].max())
