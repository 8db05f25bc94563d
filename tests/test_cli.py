"""The command line: what each command does, what it says when it cannot, and how it ends."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.main import get_command

from command_line import NAMES, SETTINGS, SMALL, Unsaved, child, exit_code, survey, write_survey
from streams import assert_same_learning
from wgpr import LocalGPRegressor, WGPRegressor, __version__, load
from wgpr.cli import app as cli
from wgpr.cli import console, learn
from wgpr.cli.columns import are_other_places, column_of_log
from wgpr.cli.console import Interruptions, uninterrupted
from wgpr.cli.lengths import parse_spacing, steps_of
from wgpr.cli.lines import LineError
from wgpr.cli.options import METHOD_NAMES
from wgpr.cli.saving import MapWriter
from wgpr.cli.show import print_summary, summarize
from wgpr.cli.stream import LineParser, StreamSession, read_lines
from wgpr.estimators.methods import BatchMethod
from wgpr.estimators.regressors import METHODS
from wgpr.io.grids import MOST_NODES, plan_grid
from wgpr.io.store import SNAPSHOT
from wgpr.io.tables import Table

SCRIPT = Path(sys.executable).with_name("wgpr")
JSON_LINES = {"orient": "records", "lines": True}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def fitted_bytes():
    frame = survey()
    return WGPRegressor(**SETTINGS).partial_fit(frame[NAMES[:2]], frame["depth"]).to_bytes()


@pytest.fixture
def fitted_map(fitted_bytes):
    """A map of `survey.csv`, the first 110 rows."""
    write_survey("survey.csv")
    Path("a.map").write_bytes(fitted_bytes)
    return Path("a.map")


# fit and update


def test_fit_learns_what_the_estimator_learns(wgpr):
    frame = write_survey("survey.csv")
    assert wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")[0] == 0
    expected = WGPRegressor(**SETTINGS).partial_fit(frame[NAMES[:2]], frame["depth"])
    model = load("a.map")
    assert list(model.feature_names_in_) == NAMES[:2]
    assert model.target_name_ == "depth"
    assert model.n_samples_seen_ == 110
    np.testing.assert_array_equal(model.predict(frame[NAMES[:2]]), expected.predict(frame[NAMES[:2]]))


@pytest.mark.parametrize("method", ["wgpr", "solar", "lgpr", "streaming"])
def test_update_goes_on_as_if_it_had_never_stopped(wgpr, method):
    frame = survey(100)
    batches = ["-s", "batch_size=20", "-s", "optimizer_iterations=5"] if method != "wgpr" else []
    settings = ["-m", method, *batches, "-s", "random_state=3"]
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


def test_weights_of_a_column(wgpr):
    frame = survey(100)
    frame["quality"] = np.random.default_rng(0).uniform(0.1, 4.0, 100)
    frame[:60].to_csv("first.csv", index=False)
    frame[60:].to_csv("second.csv", index=False)
    assert wgpr("fit", "first.csv", "--weight", "quality", "-o", "a.map")[0] == 0
    assert wgpr("update", "a.map", "second.csv", "--weight", "4", "-o", "b.map")[0] == 0
    lines = frame[60:].to_csv(index=False)
    assert wgpr("stream", "a.map", "--weight", "quality", stdin=lines)[0] == 0
    expected = WGPRegressor().partial_fit(frame[NAMES[:2]], frame["depth"], frame["quality"])
    for name in ("a.map", "b.map"):
        np.testing.assert_array_equal(load(name).predict(frame[NAMES[:2]]), expected.predict(frame[NAMES[:2]]))
    code, _, said = wgpr("fit", "first.csv", *SMALL, "--weight", "quality", "-o", "c.map")
    assert (code, "leave out --weight" in said) == (2, True)
    frame.loc[5, "quality"] = 0.0
    frame.to_csv("wrong.csv", index=False)
    code, _, said = wgpr("fit", "wrong.csv", "--weight", "quality", "-o", "c.map")
    assert (code, "line 7, column 'quality': 0 is no weight" in " ".join(said.split())) == (1, True)


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


def test_settings_are_values_of_toml(wgpr):
    write_survey("survey.csv", 60)
    theta = "hyperparameters={amplitude = 2.0, lengthscales = [1.0, 3.0], noise = 0.1}"
    assert wgpr("fit", "survey.csv", "-m", "lgpr", "-s", "w_gen=0.3", "-s", theta, "-o", "a.map")[0] == 0
    model = load("a.map")
    assert isinstance(model, LocalGPRegressor)
    assert (model.w_gen, model.hyperparameters.amplitude) == (0.3, 2.0)


def test_rules_with_settings_of_their_own(wgpr):
    write_survey("survey.csv", 60)
    rule = 'prediction={object = "BestFew", n_models = 2}'
    assert wgpr("fit", "survey.csv", *SMALL, "-s", rule, "-o", "a.map")[0] == 0
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
    assert scores["mean_error"] == pytest.approx(-np.mean(errors))
    code, text, _ = wgpr("evaluate", fitted_map, "other.csv")
    assert all(name in text for name in ("RMSE", "MAE", "mean error", "SMSE", "NLPD", "CRPS", "coverage"))


def test_evaluate_tells_a_target_that_cannot_be_right(wgpr, fitted_map):
    frame = write_survey("other.csv", 60, seed=7)
    assert "far outside" not in wgpr("evaluate", fitted_map, "other.csv")[2]
    frame.loc[[10, 20], "depth"] = -99999
    frame.to_csv("bad.csv", index=False)
    code, _, said = wgpr("evaluate", fitted_map, "bad.csv", "bad.csv")
    assert (code, said.count("bad.csv, line 12, column 'depth': -99999 is far outside")) == (0, 1), said
    assert (said.count("far outside"), "(--nodata -99999)" in said) == (1, True), said
    assert "far outside" not in wgpr("evaluate", fitted_map, "bad.csv", "--nodata", "-99999")[2]


def test_evaluate_tells_rows_that_were_learned(wgpr):
    write_survey("monday.csv", 60)
    write_survey("tuesday.csv", 60, seed=1)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    assert "learned" not in wgpr("evaluate", "a.map", "tuesday.csv")[2]
    for files in (["monday.csv"], ["tuesday.csv", "monday.csv"]):
        code, _, said = wgpr("evaluate", "a.map", *files)
        assert (code, said.count("monday.csv begins with rows that the map has learned")) == (0, 1), said
    assert wgpr("update", "a.map", "tuesday.csv")[0] == 0
    assert wgpr("evaluate", "a.map", "tuesday.csv", "monday.csv")[2].count("begins with rows") == 2


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


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_plot_draws(wgpr, fitted_map, suffix):
    survey().to_csv("survey.csv", index=False)
    code, _, said = wgpr("plot", fitted_map, "--spacing", "0.5", "--data", "survey.csv", "-o", f"a.{suffix}")
    assert code == 0, said
    beginning = {"svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert Path(f"a.{suffix}").read_bytes().startswith(beginning)


def test_plot_of_a_map_needs_only_places_and_that_of_a_line_needs_values(wgpr, fitted_map):
    survey()[["east", "north"]].to_csv("places.csv", index=False)
    code, _, said = wgpr("plot", fitted_map, "--spacing", "0.5", "--data", "places.csv", "-o", "a.png")
    assert code == 0, said
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    survey().to_csv("survey.csv", index=False)
    wgpr("fit", "survey.csv", "--x", "east", "--y", "depth", *SMALL, "-o", "line.map")
    code, _, said = wgpr("plot", "line.map", "--data", "places.csv", "-o", "b.png")
    assert (code, "no column depth; it may be north; name the target with --y" in said) == (1, True), said


def test_predict_without_rows_prints_only_the_error(wgpr, fitted_map):
    Path("empty.csv").write_text("east,north\n")
    code, out, said = wgpr("predict", fitted_map, "empty.csv")
    assert (code, out, "there are no rows" in said) == (1, "", True)


def test_settings_are_explained(wgpr):
    code, text, _ = wgpr("settings")
    assert (code, all(name in text for name in METHODS)) == (0, True)
    code, text, _ = wgpr("settings", "lgpr")
    assert "max_samples" in text


def test_settings_without_effect_stand_apart(wgpr, fitted_map):
    def names(text):
        return set(re.findall(r"(\w+)=", text))

    of_the_paper = {"n_inducing", "n_candidates", "batch_size", "prediction", "learn_hyperparameters"}
    of_the_paper |= {"optimizer_iterations", "splitting", "random_state"}
    of_the_default, of_both = {"calibrated", "forgetting", "max_cache_bytes"}, {"threshold", "max_models", "kernel"}
    default, _, paper = wgpr("settings", "wgpr")[1].rpartition("  threshold=")[2].partition("only for the method of")
    assert names("threshold=" + default) == of_both | of_the_default
    assert names(paper) == of_the_paper

    def shown(path):
        text = " ".join(wgpr("info", path)[1].partition("inputs ")[0].split())
        used, _, unused = text.partition("without effect ")
        return names(used), unused, set(json.loads(wgpr("info", path, "--json")[1])["without_effect"])

    used, text, unused = shown(fitted_map)
    assert (used, unused) == (of_both | of_the_paper, of_the_default)
    assert text.strip() == "calibrated, forgetting, max_cache_bytes (only for the default)"
    assert wgpr("fit", "survey.csv", "-o", "b.map")[0] == 0
    used, text, unused = shown("b.map")
    assert (used, unused) == (of_both | of_the_default, of_the_paper)
    assert text.strip().endswith("(only for the method of the paper)")
    assert wgpr("fit", "survey.csv", "-m", "sparse", "-o", "c.map")[0] == 0
    assert shown("c.map")[1:] == ("", set())


def test_a_slow_link(wgpr, fitted_map):
    assert wgpr("compact", fitted_map, "-o", "ashore.map")[0] == 0
    write_survey("more.csv", 50, seed=3)  # no row waits then
    assert wgpr("update", fitted_map, "more.csv", "-o", "after.map")[0] == 0
    assert wgpr("diff", fitted_map, "after.map", "-o", "news")[0] == 0
    assert wgpr("apply", "ashore.map", "news", "-o", "now.map")[0] == 0
    assert wgpr("diff", "ashore.map", "after.map", "-o", "same")[0] == 0
    assert Path("same").read_bytes() == Path("news").read_bytes()
    load(fitted_map).flush().save("final.map", compact=True)
    code, _, said = wgpr("diff", "final.map", "after.map", "-o", "wrong")
    assert (code, "final.map, after.map: old is not an earlier state of new" in said) == (1, True)
    queries = survey(20, seed=9)[NAMES[:2]]
    mean = load("after.map").predict(queries)
    np.testing.assert_allclose(load("now.map").predict(queries), mean, atol=1e-4 * np.ptp(mean))
    assert wgpr("compact", "after.map", "-o", "small.map")[0] == 0
    for path in ("now.map", "small.map"):
        code, _, said = wgpr("update", path, "more.csv")
        assert (code, "learned before" in said) == (1, True)


def test_maps_of_several_robots_become_one(wgpr):
    for name, seed, offset in (("east", 0, 0.0), ("west", 1, 2.0)):
        frame = survey(150, seed=seed)
        frame["depth"] += offset
        frame.to_csv(f"{name}.csv", index=False)
        assert wgpr("fit", f"{name}.csv", "-o", f"{name}.map")[0] == 0
    code, text, said = wgpr("merge", "east.map", "west.map", "-o", "both.map", "--align")
    assert (code, text) == (0, "")
    offset, std = re.search(r"west.map reads (\S+) \+- (\S+) more than east.map", said).groups()
    assert abs(float(offset) - 2.0) < max(0.1, 3.0 * float(std))
    assert "merged 2 maps: 300 rows" in said
    assert "saved: both.map" in said
    code, _, said = wgpr("merge", "west.map", "east.map", "-o", "both.map")
    assert (code, "east.map and west.map differ by a constant offset; --align" in said) == (0, True)
    assert Path("both.map~").exists()
    for table in ("east.csv", "west.csv"):
        code, _, said = wgpr("update", "both.map", table)
        assert (code, "learned before" in said) == (1, True)
    assert wgpr("update", "both.map", "east.csv", "--force")[0] == 0


def test_merge_warns_of_no_offset_without_one(wgpr):
    for name, seed, east in (("a", 0, 0.0), ("b", 1, 0.0), ("far", 2, 1e4)):
        survey(150, seed=seed).assign(east=lambda f, east=east: f["east"] + east).to_csv(f"{name}.csv", index=False)
        assert wgpr("fit", f"{name}.csv", "-o", f"{name}.map")[0] == 0
    Path("copy.map").write_bytes(Path("a.map").read_bytes())
    for other in ("b", "far", "copy"):
        code, _, said = wgpr("merge", "a.map", f"{other}.map", "-o", f"a_and_{other}.map")
        assert (code, "offset" in said) == (0, False), said
    code, _, said = wgpr("merge", "a.map", "copy.map", "--align", "-o", "aligned.map")
    assert (code, "copy.map reads +0 +- 0 more than a.map" in said) == (0, True), said


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
        (["fit", "survey.csv", "-o", "b.map", "-s", "threshold=-3"], 2, ["--set threshold must be", "-3"]),
        (["fit", "survey.csv", "-o", "b.map", "-s", "nonsense"], 2, ["NAME=VALUE"]),
        (["fit", "survey.csv", "-o", "b.map", "-s", r"prefix\1(=3"], 2, ["prefix"]),
        (["fit", "survey.csv", "-o", "b.map", "-s", "batch_size=9"], 2, ["batch_size=9", "-s threshold=1"]),
        (["fit", "survey.csv", "-o", "b.map", "-m", "kriging"], 2, ["kriging", "solar"]),
        (["fit", "survey.csv", "-o", "b.map", "-m", "solar", "--shards", "2"], 2, ["--shards is for the default"]),
        (["fit", "survey.csv", "-o", "b.map", "--decimal", "x"], 2, ["--decimal must be"]),
        (["predict", "survey.csv", "survey.csv"], 1, ["survey.csv", "not a map"]),
        (["predict", "none.map", "survey.csv"], 1, ["there is no none.map; check the name and the folder"]),
        (["predict", "a.map", "none.csv"], 1, ["no file matches none.csv; check the name and the folder"]),
        (["predict", "a.map", "survey.csv", "--level", "95"], 2, ["--level"]),
        (["predict", "a.map", "survey.csv", "-o", "answers.xls"], 2, ["answers.xls", ".csv"]),
        (["predict", "a.map", "other.csv"], 1, ["lon", "east", "--x"]),
        (["grid", "a.map", "--region", "1,2,x", "-o", "a.nc"], 2, ["1,2,x"]),
        (["grid", "a.map", "--region", "1,2", "-o", "a.nc"], 2, ["--region must be"]),
        (["grid", "a.map", "--region", "5,1,0,1", "-o", "a.nc"], 2, ["--region must be least east, greatest east"]),
        (["grid", "a.map", "--spacing", "-5", "-o", "a.nc"], 2, ["--spacing must be a number above 0", "500m"]),
        (["grid", "a.map", "--spacing", "1e-9", "-o", "a.nc"], 2, ["spacing"]),
        (["grid", "a.map", "-o", "a.png"], 2, [".nc"]),
        (["plot", "a.map", "-o", "a.xyz"], 2, ["a.xyz"]),
        (["update", "a.map", "other.csv"], 1, ["east"]),
        (["fit", "survey.csv", "--x", "east,depth", "--y", "depth", "-o", "b.map"], 1, ["depth", "twice"]),
        (["fit", "survey.csv", "--x", "east,1", "--y", "depth", "-o", "b.map"], 1, ["east", "twice"]),
        (["fit", "survey.csv", "--x", "1,2,3", "-o", "b.map"], 1, ["--y"]),
        (["fit", "survey.csv", "-o", "places.csv"], 2, ["places.csv", "name of a table", "places.map"]),
        (["merge", "a.map", "a.map", "-o", "both.csv.gz"], 2, ["both.csv.gz", "name of a table"]),
        (["stream", "new.csv"], 2, ["new.csv", "name of a table", "new.map"]),
        (["fit", "huge.csv", "-o", "b.map"], 1, ["huge.csv", "line 3", "'a'", "rescale"]),
        (["compact", "a.map", "-o", "a.map"], 2, ["overwritten"]),
        (["diff", "a.map", "a.map", "-o", "a.map"], 2, ["overwritten"]),
        (["apply", "a.map", "bad.csv", "-o", "b.map"], 1, ["bad.csv is no difference", "wgpr diff"]),
        (["apply", "a.map", "a.map", "-o", "b.map"], 1, ["a.map is no difference", "wgpr diff"]),
        (["evaluate", "folder", "survey.csv"], 1, ["folder is a folder", "MAP", "map file"]),
        (["serve", "a.map"], 2, ["a.map is a file", "FOLDER"]),
        (["serve", "maps", "--host", "0.0.0.0"], 2, ["--host 0.0.0.0 can be reached", "--token-file"]),
        (["merge", "a.map", "-o", "b.map"], 2, ["MAP", "twice"]),
        (["merge", "a.map", "none.map", "-o", "b.map"], 1, ["none.map"]),
        (["merge", "a.map", "a.map", "-o", "a.map"], 2, ["overwritten"]),
        (["merge", "a.map", "a.map", "-o", "b.map"], 1, ["a.map", "only maps of the default method"]),
        (["grid", "a.map", "--at", "east=1", "--at", "1=2", "-o", "a.nc"], 2, ["--at gives 1 twice", "once"]),
        (["grid", "a.map", "--at", "up=1", "-o", "a.nc"], 2, ["up", "north"]),
        (["grid", "a.map", "--at", "north=1,2", "-o", "a.nc"], 2, ["--at must be", "one number"]),
        (["grid", "a.map", "--spacing", "0", "-o", "a.nc"], 2, ["--spacing must be above 0"]),
        (["plot", "a.map", "--spacing", "0", "-o", "a.png"], 2, ["--spacing must be above 0"]),
        (["fit", "survey.csv", "--nodata", "none", "-o", "b.map"], 2, ["--nodata"]),
        (["fit", "survey.csv", "--missing", "maybe", "-o", "b.map"], 2, ["--missing must be", "skip"]),
        (["stream", "a.map", "--level", "0"], 2, ["--level"]),
        (["stream", "a.map", "--x", "east"], 2, ["--x", "2 inputs"]),
        (["stream", "a.map", "--x", "lon,lat"], 2, ["--x lon, lat", "east, north", "--force"]),
        (["stream", "a.map", "--x", "north,east"], 2, ["--x north, east", "east, north", "order"]),
        (["stream", "a.map", "-m", "solar"], 2, ["--method"]),
        (["stream", "b.map", "-m", "sparse"], 1, ["wgpr fit"]),
        (["grid", "a.map", "--spacing", "fine", "-o", "a.nc"], 2, ["--spacing", "fine"]),
        (
            ["fit", "survey.csv", "-m", "lgpr", "-s", "hyperparameters={amplitude=1}", "-o", "b.map"],
            2,
            ["lengthscales"],
        ),
        (["fit", "survey.csv", "-s", "prediction={}", "-o", "b.map"], 2, ["prediction", "BestFew"]),
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
    Path("folder").mkdir()
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


def test_a_folder_of_the_service_has_its_map_in_a_file(wgpr, fitted_map):
    folder = Path("maps/lake")
    folder.mkdir(parents=True)
    fitted_map.rename(folder / SNAPSHOT)
    code, _, said = wgpr("info", folder)
    assert (code, f"{folder} is a folder" in said, f"{folder / SNAPSHOT}" in said) == (1, True, True), said


@pytest.mark.parametrize("command", [["info"], ["update", "survey.csv"], ["stream"]], ids=lambda command: command[0])
def test_a_damaged_map_is_told_with_its_backup(wgpr, fitted_map, command):
    data = fitted_map.read_bytes()
    for damaged in (data[:-100], data[:100], data[:-4] + b"oops", data.replace(b'"F64"', b'"F6X"')):
        fitted_map.write_bytes(damaged)
        for has_backup in (False, True):
            if has_backup:
                Path("a.map~").write_bytes(data)
            code, _, said = wgpr(command[0], fitted_map, *command[1:])
            assert (code, "a.map is " in said, "a.map~" in said) == (1, True, has_backup)
            assert not re.search("rror|serializ", said), said
        Path("a.map~").unlink()


def test_a_damaged_difference_is_told(wgpr, fitted_map):
    Path("news").write_bytes(zlib.compress(fitted_map.read_bytes()[:-100], level=9))
    code, _, said = wgpr("apply", fitted_map, "news", "-o", "b.map")
    assert (code, "news: the difference is truncated" in said, "rror" in said) == (1, True, False), said


def test_verbose_shows_the_traceback(wgpr):
    assert "Traceback" in wgpr("fit", "nothing.csv", "-o", "b.map", "--verbose")[2]


def test_version_and_help(wgpr):
    assert wgpr("--version")[:2] == (0, f"{__version__}\n")
    commands = ("demo", "fit", "update", "stream", "predict", "grid", "evaluate", "info", "plot", "settings")
    listed = wgpr("--help")[1]
    for command in (*commands, "compact", "diff", "apply", "merge"):
        code, text, _ = wgpr(command, "--help")
        assert (code, "Usage" in text, f" {command} " in listed) == (0, True, True)


def test_the_list_of_commands_says_how_each_begins():
    for name, command in get_command(cli.app).commands.items():
        assert command.imported().help.partition("\n\n")[0].replace("\n", " ") == cli.COMMANDS[name][1]


def test_the_help_lists_all_methods():
    assert ", ".join(METHODS) == METHOD_NAMES


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["fit", "--help"], ["update", "--help"]])
def test_help_imports_nothing_that_takes_long(arguments):
    code = f"import sys; from wgpr.cli.app import app; app({arguments}, standalone_mode=False); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(result.stdout.splitlines()[-1].split())
    assert not modules & {"numpy", "scipy", "pandas", "sklearn", "matplotlib", "xarray"}
    assert "wgpr.cli.app" in modules


def test_the_target_is_never_an_input(wgpr, fitted_map):
    frame = survey(60)
    frame[["depth", "north", "east"]].to_csv("turned.csv", index=False)
    assert "learning depth from east, north" in wgpr("fit", "turned.csv", "--x", "east,north", *SMALL, "-o", "b.map")[2]
    assert "learning depth from east, north" in wgpr("fit", "survey.csv", "--y", "3", *SMALL, "-o", "b.map")[2]
    frame.rename(columns={"depth": "z"})[["z", "north", "east"]].to_csv("renamed.csv", index=False)
    assert "learning z from east, north" in wgpr("update", fitted_map, "renamed.csv", "--y", "z", "-o", "b.map")[2]
    frame.assign(more=1.0).drop(columns="depth").assign(other=2.0).to_csv("unclear.csv", index=False)
    code, _, said = wgpr("update", fitted_map, "unclear.csv")
    assert (code, "--y" in said) == (1, True)


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
    Path("far.csv").write_text("east,north,depth\n1e6,1,3\n2e6,1,4\n")
    for command in ("predict", "evaluate"):
        assert "all of the places are outside" in wgpr(command, fitted_map, "far.csv")[2]
    said = wgpr("grid", fitted_map, "--region", "2,22,1,2", "--spacing", "1", "-o", "a.nc")[2]
    assert "57% of the places are outside" in said  # 12 of 21 columns
    assert "outside" not in wgpr("grid", fitted_map, "--region", "2,4,1,2", "--spacing", "1", "-o", "a.nc")[2]


def test_a_threshold_that_has_no_effect_is_refused(wgpr):
    write_survey("survey.csv", 40)
    code, _, said = wgpr("fit", "survey.csv", "-s", "splitting=evidence", "-s", "threshold=3", "-o", "a.map")
    assert (code, "no effect" in said) == (2, True)
    assert wgpr("fit", "survey.csv", "-s", "threshold=3", "-s", "splitting=wasserstein", *SMALL, "-o", "a.map")[0] == 0


def test_compact_says_what_it_leaves_out(wgpr, fitted_map):
    assert "10 rows that wait" in wgpr("compact", fitted_map, "-o", "small.map")[2]
    assert load("small.map").n_samples_seen_ == 100


@pytest.mark.parametrize("width", [80, 200])
def test_info_fits_the_terminal(fitted_map, width):
    console = Console(width=width, file=io.StringIO())
    print_summary(summarize(load(fitted_map), 1000), console)
    text = console.file.getvalue()
    assert "…" not in text
    assert "lengthscales" in text.partition("Models")[2]


def test_a_spacing_that_is_too_fine_names_one_that_is_not(wgpr, fitted_map):
    for command, spacing, count in [
        (["plot", fitted_map, "-o", "a.png"], "0.0001,0.001", r"\d{3},\d{3},\d{3} nodes"),
        (["contours", fitted_map, "--interval", "1", "-o", "a.geojson"], "1e-300", "inf nodes"),
        (["grid", fitted_map, "--region", "0,10,0,10", "-o", "a.nc"], "0.0001", "10,000,200,001 nodes, and 50,000,000"),
    ]:
        code, _, said = wgpr(*command, "--spacing", spacing)
        assert (code, bool(re.search(f"the grid has {count}", said))) == (2, True), said
    (enough,) = re.findall(r"a spacing of (\S+), \S+ would do", said)
    model = load(fitted_map)
    plan = plan_grid(model, (0.0, 10.0) * 2, steps_of(parse_spacing(enough), model))
    assert 0.5 * MOST_NODES < plan.size <= MOST_NODES


def test_arguments_are_checked_before_anything_is_learned(wgpr, fitted_map, monkeypatch):
    def learn_too_early(self):
        raise AssertionError("rows were learned before the arguments were checked")

    monkeypatch.setattr(WGPRegressor, "flush", learn_too_early)
    Path("other.csv").write_text("lon,lat\n1,2\n")
    wrong = [
        ("grid", "a.map", "--spacing", "0", "-o", "a.nc"),
        ("grid", "a.map", "--region", "2,1,0,1", "-o", "a.nc"),
        ("grid", "a.map", "-o", "nowhere/a.nc"),
        ("plot", "a.map", "--spacing", "0", "-o", "a.png"),
        ("plot", "a.map", "-o", "a.xyz"),
        ("plot", "a.map", "--data", "other.csv", "-o", "a.png"),
        ("predict", "a.map", "survey.csv", "-o", "answers.xls"),
        ("predict", "a.map", "other.csv"),
        ("evaluate", "a.map", "other.csv"),
        ("compact", "a.map", "-o", "nowhere/b.map"),
    ]
    for arguments in wrong:
        assert wgpr(*arguments)[0] in (1, 2)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["predict", "none.map", "survey.csv", "--level", "95"], "--level"),
        (["predict", "none.map", "survey.csv", "-o", "answers.xls"], "answers.xls"),
        (["predict", "none.map", "none.csv"], "none.csv"),
        (["evaluate", "none.map", "none.csv"], "none.csv"),
        (["grid", "none.map", "--spacing", "x", "-o", "a.nc"], "--spacing"),
        (["grid", "none.map", "-o", "a.png"], "a.png"),
        (["plot", "none.map", "-o", "a.xyz"], "a.xyz"),
        (["update", "none.map", "none.csv"], "none.csv"),
        (["compact", "none.map", "-o", "nowhere/a.map"], "nowhere"),
        (["diff", "none.map", "none.map", "-o", "nowhere/news"], "nowhere"),
        (["apply", "none.map", "news", "-o", "nowhere/a.map"], "nowhere"),
        (["merge", "none.map", "other.map", "-o", "nowhere/a.map"], "nowhere"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said_before_a_map_is_read(wgpr, arguments, word):
    write_survey("survey.csv", 5)
    code, _, said = wgpr(*arguments)
    assert code in (1, 2)
    assert word in said


# What is doubtful


def test_a_value_far_outside_of_its_column_is_told_by_fit(wgpr):
    frame = survey(60)
    frame.loc[10, "depth"] = frame.loc[12, "depth"] = -99999.0
    frame.loc[20, "east"] = 1e38
    frame.to_csv("bad.csv", index=False)
    code, _, said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")
    assert (code, said.count("warning: bad.csv")) == (0, 2)
    assert "bad.csv, line 12, column 'depth': -99999 is far outside" in said
    assert "(and 1 more)" in said
    assert "--nodata -99999" in said
    assert "line 22, column 'east': 1e+38" in said
    code, _, said = wgpr("fit", "bad.csv", "--nodata", "-99999", "--nodata", "1e38", *SMALL, "-o", "a.map")
    assert (code, "warning: bad.csv" in said, "left out 3 rows" in said) == (0, False, True)
    assert load("a.map").n_samples_seen_ == 57


def test_an_input_far_from_the_middle_of_its_column_is_told_by_fit(wgpr):
    frame = survey(60).assign(east=lambda f: f["east"] + 5e5, north=lambda f: f["north"] + 5e6)
    frame.to_csv("good.csv", index=False)
    frame.loc[20, "north"] = 0.0
    frame.to_csv("bad.csv", index=False)
    assert "warning: good.csv" not in wgpr("fit", "good.csv", *SMALL, "-o", "a.map")[2]
    code, _, said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")
    assert (code, said.count("warning: bad.csv")) == (0, 1)
    assert "bad.csv, line 22, column 'north': 0 is far outside of the middle half of the rows, 5e+06 to " in said


def test_fit_says_what_it_did_with_doubtful_values_and_counts_them(wgpr):
    frame = survey(60).assign(east=lambda f: f["east"] + 5e5, north=lambda f: f["north"] + 5e6)
    frame.loc[[20, 30, 31, 40], "east"] = frame.loc[[21, 32, 33, 41], "north"] = 0.0
    frame.loc[10, "depth"] = -99999.0
    frame.to_csv("bad.csv", index=False)
    code, _, said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")
    assert (code, said.count("warning: bad.csv"), "--force" in said, "--nodata 0" in said) == (0, 3, False, False), said
    learned = "it is learned as it is; if it is wrong, check the units, correct it"
    assert said.count(f" (and 3 more); {learned}, and fit again") == 2
    assert f"; {learned} or leave it out (--nodata -99999), and fit again" in said


def test_fit_does_not_learn_a_row_of_a_receiver_without_a_fix(wgpr):
    frame = survey(60).assign(east=lambda f: f["east"] + 5e5, north=lambda f: f["north"] + 5e6)
    frame.loc[20, ["east", "north"]] = 0.0
    frame.to_csv("bad.csv", index=False)
    code, _, said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")
    assert (code, "bad.csv, line 22: all inputs are 0" in said, "--force" in said) == (1, True, True), said
    frame.loc[10, ["east", "north"]] = 9e9  # another far row comes first
    frame.to_csv("bad.csv", index=False)
    code, _, said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")
    assert (code, "bad.csv, line 22: all inputs are 0" in said) == (1, True), said
    assert not Path("a.map").exists()
    assert wgpr("fit", "bad.csv", "--force", *SMALL, "-o", "a.map")[0] == 0
    assert load("a.map").n_samples_seen_ == 60


def test_zero_may_be_the_value_of_one_input(wgpr):
    frame = survey(60)[["east", "depth"]].assign(east=lambda f: f["east"] + 5e5)
    frame.loc[20, "east"] = 0.0
    frame.to_csv("line.csv", index=False)
    assert wgpr("fit", "line.csv", "--x", "east", "--y", "depth", *SMALL, "-o", "a.map")[0] == 0


@pytest.mark.parametrize(
    "depth",
    [
        np.r_[12.0 + 0.01 * np.random.default_rng(0).normal(size=500), np.full(5, 8.0)],  # a pile in a flat harbour
        np.r_[np.full(500, 0.1 + 0.2), np.full(200, 0.3), np.full(5, 0.31)],  # rounding
        np.random.default_rng(0).lognormal(0.0, 2.0, 3000),
        np.r_[np.zeros(1440), np.random.default_rng(0).gamma(1.0, 3.0, 560)],  # rain
        np.r_[1.0, 1.001, 1.002, 1.003, 1.004, 2.0],
    ],
    ids=["pile", "rounding", "heavy tails", "rain", "few rows"],
)
def test_these_are_no_spikes(wgpr, depth):
    survey(len(depth)).assign(depth=depth).to_csv("a.csv", index=False)
    assert "far outside" not in wgpr("fit", "a.csv", *SMALL, "-o", "a.map")[2]


def test_fit_tells_a_spike(wgpr):
    """A lake of up to 20 m with one echo of 980 m."""
    frame = survey(60).assign(depth=np.linspace(4.0, 20.0, 60))
    frame.to_csv("good.csv", index=False)
    frame.loc[10, "depth"] = 980.0
    frame.to_csv("bad.csv", index=False)
    assert "warning: good.csv" not in wgpr("fit", "good.csv", *SMALL, "-o", "a.map")[2]
    code, _, said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")
    assert (code, "warning: bad.csv, line 12, column 'depth': 980 is far outside" in said) == (0, True), said


def test_a_map_with_the_name_of_a_table_can_be_updated(wgpr, fitted_map):
    write_survey("more.csv", 20, seed=3)
    fitted_map.rename("lake.log")
    assert wgpr("update", "lake.log", "more.csv")[0] == 0


def test_update_tells_a_spike(wgpr):
    frame = survey(120).assign(depth=np.tile(np.linspace(4.0, 20.0, 60), 2))
    frame[:60].to_csv("monday.csv", index=False)
    frame[60:].to_csv("tuesday.csv", index=False)
    frame.loc[70, "depth"] = 980.0
    frame[60:].to_csv("wednesday.csv", index=False)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    code, _, said = wgpr("update", "a.map", "wednesday.csv", "-o", "b.map")
    assert (code, "wednesday.csv, line 12, column 'depth': 980 is far outside of the middle half" in said) == (0, True)
    assert "update the map as it was before" in said
    assert "warning" not in wgpr("update", "a.map", "tuesday.csv")[2]


def test_fit_tells_a_spike_among_more_rows_than_are_looked_at_together(wgpr, monkeypatch):
    monkeypatch.setattr("wgpr.cli.learn._MOST_IN_SAMPLE", 100)
    frame = survey(3000).assign(depth=np.linspace(4.0, 20.0, 3000))
    frame.loc[[555, 1000, 2000], "depth"] = 980.0, 970.0, 990.0
    frame.to_csv("bad.csv", index=False)
    said = wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")[2]
    assert "line 557, column 'depth': 980 is far outside" in said
    frame.loc[2500, "depth"] = 960.0  # more than 0.1 % are not spikes
    frame.to_csv("bad.csv", index=False)
    assert "far outside" not in wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")[2]


def test_one_value_beyond_what_a_map_knows_is_a_spike_of_an_update(wgpr):
    survey(80).assign(depth=np.linspace(0.0, 10.0, 80)).to_csv("monday.csv", index=False)
    frame = survey(60, seed=2).assign(depth=5.0 + 0.001 * np.arange(60))
    frame.loc[40, "depth"] = 50.0
    frame.to_csv("tuesday.csv", index=False)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    code, _, said = wgpr("update", "a.map", "tuesday.csv")
    assert (code, "tuesday.csv, line 42, column 'depth': 50 is far outside" in said) == (0, True), said


@pytest.mark.parametrize("n_quiet", [4, 60])
def test_a_value_that_a_map_knows_is_no_spike_of_an_update(wgpr, n_quiet):
    """Values of a quiet line, and one anomaly as large as those that the map has learned."""
    survey(80).assign(depth=np.linspace(-10.0, 10.0, 80)).to_csv("monday.csv", index=False)
    quiet = 1e-4 * np.arange(n_quiet)
    survey(n_quiet + 1, seed=2).assign(depth=[*quiet, 9.0]).to_csv("tuesday.csv", index=False)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    assert "warning" not in wgpr("update", "a.map", "tuesday.csv", "-o", "b.map")[2]
    survey(n_quiet + 1, seed=2).assign(depth=[*quiet, 9e6]).to_csv("tuesday.csv", index=False)
    assert wgpr("update", "a.map", "tuesday.csv", "--force")[2].count("warning") == 1


@pytest.mark.parametrize("value", [-9999.0, 32767.0])
def test_usual_numbers_for_no_data_are_told_in_large_values_too(wgpr, value):
    frame = survey(60)
    frame["depth"] = 500.0 + 100.0 * frame["depth"]
    frame.loc[10, "depth"] = value
    frame.to_csv("bad.csv", index=False)
    assert f"{value:.0f} is far outside" in wgpr("fit", "bad.csv", *SMALL, "-o", "a.map")[2]


def test_ordinary_data_raise_no_doubts(wgpr):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": 23.5 + 1e-4 * rng.normal(size=200), "y": 0.0, "rain": rng.lognormal(size=200)})
    frame.loc[:160, "rain"] = 0.0
    frame.to_csv("a.csv", index=False)
    columns = ["--x", "x,y", "--y", "rain"]
    assert "warning" not in wgpr("fit", "a.csv", *columns, *SMALL, "-o", "a.map")[2]
    frame.assign(x=frame["x"] + 20.0, y=1.0, rain=100.0 * frame["rain"]).to_csv("b.csv", index=False)
    assert wgpr("update", "a.map", "b.csv")[0] == 0


def test_no_data_and_missing_values(wgpr):
    frame = survey(60)
    frame.loc[10, "depth"] = -99999.0
    frame.to_csv("bad.csv", index=False)
    with open("bad.csv", "a") as file:
        file.write("1,,3\n1,none,3\n")
    options = ["--missing", "skip", "--nodata", "-99999"]
    assert "left out 3 rows" in wgpr("fit", "bad.csv", *options, *SMALL, "-o", "a.map")[2]
    assert load("a.map").n_samples_seen_ == 59
    assert json.loads(wgpr("evaluate", "a.map", "bad.csv", *options, "--json")[1])["rows"] == 59


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"east": lambda f: 1000 * f["east"], "north": lambda f: 1000 * f["north"]}, ["line ", "'east'", "units"]),
        ({"depth": lambda f: f["depth"].where(f.index != 7, -99999)}, ["line 9", "'depth'", "--nodata -99999"]),
        ({"north": lambda f: f["north"].where(f.index != 7, 1e38)}, ["line 9", "'north'", "--nodata 1e+38"]),
    ],
    ids=["metres", "no data", "huge"],
)
def test_update_refuses_what_is_far_outside_of_the_map(wgpr, fitted_map, change, words):
    survey(60, seed=1).assign(**change).to_csv("bad.csv", index=False)
    before = fitted_map.read_bytes()
    code, _, said = wgpr("update", fitted_map, "bad.csv")
    assert (code, all(word in said for word in ["bad.csv", *words])) == (1, True), said
    assert fitted_map.read_bytes() == before
    code, _, said = wgpr("update", fitted_map, "bad.csv", "--force")
    assert (code, "warning: bad.csv" in said) == (0, True)
    assert load(fitted_map).n_samples_seen_ == 170


def test_places_far_outside_of_a_map_in_metres(wgpr):
    """Large coordinates without a reference system: rows at 1, 2 or in degrees are far, a lake nearby is not."""
    frame = survey(60)
    frame[["east", "north"]] = [385_000, 4_900_000] + 100 * frame[["east", "north"]]
    frame.to_csv("lake.csv", index=False)
    assert wgpr("fit", "lake.csv", *SMALL, "-o", "a.map")[0] == 0
    for row in ("1,2,3", "-76.5,44.2,3", "385001,2,3", "4900100,385100,3"):
        Path("far.csv").write_text(f"east,north,depth\n{row}\n")
        code, _, said = wgpr("update", "a.map", "far.csv")
        assert (code, "far outside of the known range" in said, "--force" in said) == (1, True, True), said
        assert "it is left out" in wgpr("stream", "a.map", stdin=f"{row}\n")[2]
    Path("near.csv").write_text("east,north,depth\n395000,4890000,3\n")
    assert wgpr("update", "a.map", "near.csv")[0] == 0
    assert load("a.map").n_samples_seen_ == 61
    assert wgpr("update", "a.map", "far.csv", "--force")[0] == 0
    assert wgpr("stream", "a.map", "--force", stdin="1,2,3\n")[0] == 0
    assert load("a.map").n_samples_seen_ == 63


@pytest.mark.parametrize("anchor", [(0.0, 0.0), (3.0, 2.0), (385_000.0, 4_900_000.0)])
def test_a_boat_at_anchor_may_sail_off(wgpr, anchor):
    moves = [0.01 * (row % 3) for row in range(40)] + [0.9 * row for row in range(40)]
    text = "\n".join(f"{anchor[0] + move},{anchor[1] + move},1.0" for move in moves)
    assert "left out" not in wgpr("stream", "a.map", *SMALL, stdin=text)[2]


def test_degrees_that_their_names_do_not_tell_are_told_by_fit(wgpr):
    rows = survey(200)
    degrees = rows.assign(east=-76.3 + 1e-2 * rows["east"], north=44.5 + 1e-2 * rows["north"])
    degrees.to_csv("degrees.csv", index=False)
    code, _, said = wgpr("fit", "degrees.csv", "-o", "a.map")
    assert (code, said.count("--crs EPSG:4326")) == (0, 1), said
    assert "warning: east, north look like degrees" in said
    assert "look like" not in wgpr("fit", "degrees.csv", "--crs", "none", "-o", "a.map")[2]
    for scale, offset in ((1.0, 0.0), (100.0, 50.0), (0.05, 0.0), (0.3, 3.0)):  # metres or kilometres of a local grid
        local = rows.assign(east=offset + scale * rows["east"], north=offset + scale * rows["north"])
        local.to_csv("local.csv", index=False)
        code, _, said = wgpr("fit", "local.csv", "-o", "a.map")
        assert (code, "look like" in said) == (0, False), said
    degrees.rename(columns={"east": "east [km]", "north": "north [km]"}).to_csv("units.csv", index=False)
    assert "look like" not in wgpr("fit", "units.csv", "-o", "a.map")[2]


@pytest.mark.parametrize(
    ("names", "others"),
    [
        ("lon,lat", "east_m,north_m"),
        ("Long.,lat deg", "utm_east,NORTHING_UTM"),
        ("lon_wgs84,lat_wgs84", "East [m],NorthM"),
    ],
)
def test_degrees_and_metres_are_told_apart_by_their_names(names, others):
    names, others = names.split(","), others.split(",")
    assert are_other_places(names, others)
    assert are_other_places(others, names)
    assert not are_other_places(names, names)
    assert not are_other_places(others, others)


@pytest.mark.parametrize("name", ["depth", "depth_m", "DepthM", "Depth [m]", "depth_ft"])
def test_a_target_of_logs_may_have_a_unit(name):
    assert column_of_log(name) == "depth"


def test_a_wrong_name_of_the_target_is_an_error_of_stream(wgpr):
    code, out, said = wgpr("stream", "a.map", "--y", "depht", stdin=survey(30).to_csv(index=False))
    assert (code, out) == (1, "")
    assert "is a header without depht: it has east, north, depth; correct --y" in said
    assert not Path("a.map").exists()


def smooth_survey(east, seed):
    """Lines of a smooth field with noise 0.1, between 0 and 10 north."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.repeat(east, 40), np.tile(np.linspace(0.0, 10.0, 40), len(east))])
    y = 20.0 + np.sin(0.5 * X[:, 0]) + np.cos(0.5 * X[:, 1]) + 0.1 * rng.normal(size=len(X))
    return pd.DataFrame(np.column_stack([X, y]), columns=NAMES)


@pytest.mark.parametrize(
    ("east", "offset", "told"),
    [
        (np.arange(0.5, 10.0), 0.5, "more than the map says"),
        (np.arange(0.5, 10.0), -3.0, "less than the map says"),
        (np.arange(0.5, 10.0), 0.0, ""),
        (np.arange(20.0, 30.0), 3.0, ""),
    ],
    ids=["higher", "lower", "level", "elsewhere"],
)
def test_update_tells_rows_that_are_off_by_a_constant(wgpr, east, offset, told):
    smooth_survey(np.arange(0.0, 10.5), 0).to_csv("monday.csv", index=False)
    assert wgpr("fit", "monday.csv", "-o", "a.map", "--x", "east,north", "--y", "depth")[0] == 0
    smooth_survey(east, 1).assign(depth=lambda rows: rows["depth"] + offset).to_csv("tuesday.csv", index=False)
    code, _, said = wgpr("update", "a.map", "tuesday.csv")
    assert (code, "than the map says where it knows" in said) == (0, bool(told))
    assert told in said


def test_the_file_that_is_off_by_a_constant_is_named(wgpr):
    """Also if it is one of several, or only the end of it is, or it comes by a pipe, or all are learned at once."""
    smooth_survey(np.arange(0.0, 10.1, 0.5), 0).to_csv("monday.csv", index=False)
    tuesday, level = smooth_survey(np.arange(0.25, 10.0, 0.5), 1), smooth_survey(np.arange(0.3, 10.0, 0.5), 2)
    higher = tuesday.assign(depth=tuesday["depth"] + 0.5)
    later = pd.concat([tuesday[:400], higher[400:]])
    elsewhere = smooth_survey(np.arange(20.0, 220.0), 3)  # 30 rows for each at known places
    mixed = pd.concat([elsewhere, higher.iloc[::3]]).sort_values("north", kind="stable")
    tables = {"tuesday": tuesday, "level": level, "higher": higher, "later": later, "mixed": mixed}
    for name, rows in tables.items():
        rows.to_csv(f"{name}.csv", index=False)
    assert wgpr("fit", "monday.csv", "-o", "a.map", "--x", "east,north", "--y", "depth")[0] == 0
    for files, stdin, told in [
        (["level.csv", "higher.csv"], "", "higher.csv: depth is"),
        (["later.csv"], "", "later.csv: depth is"),
        (["mixed.csv"], "", "mixed.csv: depth is"),
        (["-"], higher.to_csv(index=False), "standard input: depth is"),
        (["level.csv", "tuesday.csv"], "", ""),
    ]:
        code, _, said = wgpr("update", "a.map", *files, "-o", "b.map", stdin=stdin)
        assert (code, said.count("more than the map says")) == (0, bool(told)), said
        assert told in said
    files = "monday.csv", "level.csv", "higher.csv"
    code, _, said = wgpr("fit", *files, "-o", "c.map", "--x", "east,north", "--y", "depth")
    assert (code, said.count("higher.csv: depth is"), said.count("more than")) == (0, 1, 1), said


def test_rows_that_are_off_are_told_though_a_later_one_is_bad(wgpr):
    smooth_survey(np.arange(0.0, 10.1, 0.5), 0).to_csv("monday.csv", index=False)
    assert wgpr("fit", "monday.csv", "-o", "a.map", "--x", "east,north", "--y", "depth")[0] == 0
    rows = smooth_survey(np.arange(0.25, 10.0, 0.5), 1)
    rows["depth"] += 0.5
    code, _, said = wgpr("update", "a.map", "-", stdin=rows.to_csv(index=False) + "1,2,deep\n")
    assert (code, said.count("more than the map says where it knows the field")) == (1, 1), said
    assert "what is learned is saved" in said


@pytest.mark.parametrize(("offset", "told"), [(0.5, "at least "), (0.0, "")])
def test_a_stream_tells_once_that_rows_are_off_by_a_constant(wgpr, offset, told):
    monday = smooth_survey(np.arange(0.0, 10.1, 0.25), 0)
    code, _, said = wgpr("stream", "a.map", stdin=monday.to_csv(index=False))
    assert (code, "than the map says" in said) == (0, False), said
    tuesday = smooth_survey(np.arange(0.1, 10.0, 0.25), 1)
    tuesday["depth"] += offset
    code, _, said = wgpr("stream", "a.map", stdin=tuesday.to_csv(index=False))
    assert (code, said.count("more than the map says where it knows the field")) == (0, bool(told)), said
    assert told in said


def test_a_flipped_sign_is_told_by_update(wgpr):
    rows, more = survey(110).assign(depth=lambda rows: 20.0 + rows["depth"]), survey(60, seed=1)
    rows.to_csv("monday.csv", index=False)
    assert wgpr("fit", "monday.csv", "-o", "a.map")[0] == 0
    for sign, is_told in ((1.0, False), (-1.0, True)):
        more.assign(depth=sign * (20.0 + more["depth"])).to_csv("more.csv", index=False)
        code, _, said = wgpr("update", "a.map", "more.csv", "-o", "b.map")
        assert (code, "values of 'depth' have another sign" in said) == (0, is_told), said
    many = more.sample(2000, replace=True, random_state=0)
    many["depth"] = -20.0 - many["depth"]
    assert wgpr("update", "a.map", "-", "-o", "b.map", stdin=many.to_csv(index=False))[2].count("another sign") == 1
    more.assign(depth=-0.1).to_csv("more.csv", index=False)  # no value of the map is like these with another sign
    assert "another sign" not in wgpr("update", "a.map", "more.csv", "-o", "b.map")[2]


def test_update_refuses_rows_that_it_has_learned(wgpr):
    write_survey("monday.csv", 60)
    write_survey("tuesday.csv", 40, seed=1)
    pd.concat([survey(60), survey(30, seed=2)]).to_csv("grown.csv", index=False)
    survey(60).to_parquet("same.parquet")
    survey(5).to_csv("short.csv", index=False)
    assert wgpr("fit", "monday.csv", *SMALL, "-o", "a.map")[0] == 0
    assert wgpr("update", "a.map", "tuesday.csv")[0] == 0
    for again in ("monday.csv", "tuesday.csv", "same.parquet", "grown.csv"):
        code, _, said = wgpr("update", "a.map", again)
        assert (code, f"{again} begins with rows" in said, "--force" in said) == (1, True, True)
    assert "--skip 60" in said
    write_survey("new.csv", 40, seed=3)
    code, _, said = wgpr("update", "a.map", "new.csv", "monday.csv")
    assert (code, "monday.csv begins with rows" in said, "leave out this file" in said) == (1, True, True)
    assert load("a.map").n_samples_seen_ == 100
    assert wgpr("update", "a.map", "grown.csv", "--skip", 60)[0] == 0
    assert wgpr("update", "a.map", "short.csv")[0] == 0  # too few rows to tell
    assert wgpr("update", "a.map", "monday.csv", "--force")[0] == 0
    assert load("a.map").n_samples_seen_ == 195


@pytest.mark.parametrize("command", ["fit", "update"])
def test_a_file_that_repeats_another_is_refused(wgpr, command):
    write_survey("first.csv", 60, seed=4)
    assert wgpr("fit", "first.csv", *SMALL, "-o", "a.map")[0] == 0
    n_before, options = {"fit": (0, [*SMALL, "-o", "b.map"]), "update": (60, ["-o", "b.map"])}[command]
    start = [command, *(["a.map"] if command == "update" else [])]
    write_survey("monday.csv", 60)
    write_survey("tuesday.csv", 40, seed=1)
    write_survey("backup.csv", 60)
    for names, fault in (
        (["monday.csv", "monday.csv"], "monday.csv is named twice"),
        (["monday.csv", "tuesday.csv", "monday.csv"], "monday.csv is named twice"),
        (["monday.csv", "tuesday.csv", "backup.csv"], "backup.csv begins with rows that are in monday.csv too"),
    ):
        code, _, said = wgpr(*start, *names, *options)
        assert (code, f"{fault}; leave out one of the two" in said, "nothing was learned" in said) == (1, True, True)
        assert not Path("b.map").exists()
        code, _, said = wgpr(*start, *names, *options, "--force")
        assert (code, f"{fault}; the rows are learned twice (--force)" in said) == (0, True), said
        assert load("b.map").n_samples_seen_ == n_before + sum(len(pd.read_csv(name)) for name in names)
        code, _, said = wgpr("update", "b.map", "monday.csv")
        assert (code, "--skip 60" in said) == (1, True), said
        Path("b.map").unlink()


def test_only_files_that_begin_alike_repeat_another(wgpr):
    rows = survey(60)
    rows.to_csv("monday.csv", index=False)
    rows[1:].to_csv("other_beginning.csv", index=False)
    rows[:9].to_csv("short.csv", index=False)
    rows[:9].to_csv("short_too.csv", index=False)
    names = ["monday.csv", "other_beginning.csv", "short.csv", "short_too.csv"]
    code, _, said = wgpr("fit", *names, *SMALL, "-o", "a.map")
    assert (code, load("a.map").n_samples_seen_) == (0, 60 + 59 + 9 + 9), said


def test_the_first_rows_of_a_file_may_come_in_several_chunks(wgpr, monkeypatch):
    read = Table.chunks
    monkeypatch.setattr(Table, "chunks", lambda self, columns, chunk_rows=7: read(self, columns, min(chunk_rows, 7)))
    write_survey("monday.csv", 60)
    write_survey("backup.csv", 60)
    code, _, said = wgpr("fit", "monday.csv", "backup.csv", *SMALL, "-o", "a.map")
    assert (code, "backup.csv begins with rows that are in monday.csv too" in said) == (1, True), said


@pytest.mark.parametrize("n_before", [2, 12_000])
def test_a_line_with_too_many_cells_says_that_nothing_was_learned(wgpr, n_before):
    write_survey("ragged.csv", n_before)
    with open("ragged.csv", "a") as file:
        file.write("1,2,3,4\n")
    code, _, said = wgpr("fit", "ragged.csv", *SMALL, "-o", "b.map")
    assert code == 1
    assert f"ragged.csv, line {n_before + 2}: the number of cells is 4" in said
    assert said.count("; nothing was learned") == 1


def test_an_error_in_the_last_row_costs_nothing(wgpr, fitted_map):
    """All rows of a file are checked before the first is learned; of a pipe, what is learned is saved."""
    write_survey("long.csv", 1200, seed=1)
    with open("long.csv", "a") as file:
        file.write("1,2,oops\n")
    before = fitted_map.read_bytes()
    code, _, said = wgpr("update", fitted_map, "long.csv")
    assert (code, "line 1202" in said) == (1, True)
    assert fitted_map.read_bytes() == before


def test_a_pipe_that_breaks_off_loses_nothing(wgpr, fitted_map, monkeypatch):
    monkeypatch.setattr(learn, "_PIECE", 20)
    text = survey(60, seed=1).to_csv(index=False)
    code, _, said = wgpr("update", fitted_map, "-", stdin=text + "1,2,oops\n")
    assert (code, "oops" in said, "--skip 60" in said) == (1, True, True)
    assert load(fitted_map).n_samples_seen_ == 170


def test_what_was_guessed_is_said(wgpr):
    write_survey("survey.csv", 40)
    said = wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")[2]
    assert "warning: guessed: inputs east, north; target depth; use --x and --y to choose others\n" in said
    said = wgpr("fit", "survey.csv", "--x", "1,2", *SMALL, "-o", "a.map")[2]
    assert "warning: guessed: target depth; use --y to choose others\n" in said
    assert "guessed" not in wgpr("fit", "survey.csv", "--x", "east,north", "--y", "depth", *SMALL, "-o", "a.map")[2]
    survey(40).rename(columns={"depth": "a"}).assign(b=survey(40, seed=1)["depth"]).to_csv("unclear.csv", index=False)
    code, _, said = wgpr("fit", "unclear.csv", *SMALL, "-o", "b.map")
    assert (code, "--y" in said, Path("b.map").exists()) == (1, True, False)
    assert "warning: guessed" in wgpr("stream", "c.map", *SMALL, stdin=survey(30).to_csv(index=False))[2]
    code, _, said = wgpr("stream", "d.map", *SMALL, stdin=Path("unclear.csv").read_text())
    assert (code, "--y" in said, Path("d.map").exists()) == (2, True, False)


def test_a_target_of_another_name_is_not_guessed(wgpr, fitted_map):
    before = fitted_map.read_bytes()
    survey(40, seed=1).rename(columns={"depth": "elev"}).to_csv("other.csv", index=False)
    for command in ("update", "evaluate"):
        code, out, said = wgpr(command, fitted_map, "other.csv")
        told = "wgpr: the data have no column depth; it may be elev; name the target with --y\n"
        assert (code, out, said) == (1, "", told)
    assert fitted_map.read_bytes() == before
    survey(40, seed=1)[["east", "north"]].to_csv("places.csv", index=False)
    assert wgpr("update", fitted_map, "places.csv")[2].endswith("no column depth; name the target with --y\n")
    assert wgpr("update", fitted_map, "other.csv", "--y", "elev")[0] == 0
    assert load(fitted_map).n_samples_seen_ == 150


def test_the_target_of_a_table_without_names_is_found_by_place(wgpr, fitted_map):
    survey(40, seed=1).to_csv("plain.csv", index=False, header=False)
    assert wgpr("update", fitted_map, "plain.csv")[0] == 0
    assert load(fitted_map).n_samples_seen_ == 150


def test_a_stream_without_the_target_says_that_its_lines_are_queries(wgpr, fitted_map):
    frame = survey(5, seed=1).rename(columns={"depth": "elev"})
    for stdin in (frame.to_csv(index=False), frame[["east", "north"]].to_csv(index=False), frame.to_json(**JSON_LINES)):
        code, out, said = wgpr("stream", fitted_map, stdin=stdin)
        assert (code, len(out.splitlines()), said.count("warning: standard input has no column depth")) == (0, 5, 1)
        assert "--y" in said
    assert wgpr("stream", fitted_map, "--y", "elev", stdin=frame.to_csv(index=False))[1] == ""


def test_queries_of_a_stream_are_answered_without_a_warning(wgpr, fitted_map):
    rows = survey(5, seed=1)
    blank = rows.assign(depth="").to_csv(index=False)
    places = rows[["east", "north"]].assign(id=1)
    for stdin in (blank, places[["east", "north"]].to_csv(index=False, header=False), places.to_json(**JSON_LINES)):
        code, out, said = wgpr("stream", fitted_map, stdin=stdin)
        assert (code, len(out.splitlines()), "warning" in said) == (0, 5, False)


def test_a_stream_takes_the_one_column_that_is_no_input_as_its_target(wgpr):
    said = wgpr("stream", "a.map", "--x", "east,north", *SMALL, stdin=survey(30).to_csv(index=False))[2]
    assert "learning depth from east, north\nwarning: guessed: target depth; use --y" in said
    assert load("a.map").n_samples_seen_ == 30


def test_the_column_of_weights_is_named(wgpr):
    survey(30).assign(w=0.5).to_csv("weighted.csv", index=False)
    columns = ["--x", "east,north", "--y", "depth", "--weight", "w"]
    told = "learning depth from east, north, with weights w\n"
    assert told in wgpr("fit", "weighted.csv", *columns, "-o", "a.map")[2]
    assert told in wgpr("update", "a.map", "weighted.csv", "--weight", "w", "--force")[2]
    assert told in wgpr("stream", "b.map", *columns, stdin=Path("weighted.csv").read_text())[2]


def test_the_demo_asks_which_of_many_columns_are_meant(wgpr):
    survey(40).assign(line=np.arange(40)).to_csv("lines.csv", index=False)
    code, _, said = wgpr("demo", "--data", "lines.csv")
    assert (code, "say which to learn with --x and --y" in said) == (1, True)


# Two programs, one map


def test_the_old_map_is_kept_once(wgpr, fitted_map):
    first = fitted_map.read_bytes()
    write_survey("more.csv", 50, seed=3)
    assert "a.map~" in wgpr("update", fitted_map, "more.csv")[2]
    second = fitted_map.read_bytes()
    assert Path("a.map~").read_bytes() == first
    assert wgpr("fit", "more.csv", *SMALL, "-o", "a.map")[0] == 0
    assert Path("a.map~").read_bytes() == second
    third = fitted_map.read_bytes()
    rows = survey(30, seed=4).to_csv(index=False)
    assert wgpr("stream", "a.map", "--save-every", "0", stdin=rows)[0] == 0
    assert Path("a.map~").read_bytes() == third
    assert sorted(path.name for path in Path().iterdir() if "map" in path.name) == ["a.map", "a.map~"]


def test_a_map_that_another_program_changed_is_not_overwritten(wgpr, fitted_map, monkeypatch):
    write_survey("more.csv", 50, seed=3)
    learn_rows = learn._learn

    def slow_learning(*arguments):
        load(fitted_map).flush().save(fitted_map)
        return learn_rows(*arguments)

    monkeypatch.setattr(learn, "_learn", slow_learning)
    code, _, said = wgpr("update", fitted_map, "more.csv")
    assert (code, "changed by another program" in said) == (1, True)
    rescued = re.search(r"the map is in (\S+) instead", said)[1]
    assert (load(rescued).n_samples_seen_, load(rescued).n_pending_) == (160, 0)
    assert (load(fitted_map).n_samples_seen_, load(fitted_map).n_pending_) == (110, 0)


def test_a_stream_does_not_overwrite_what_another_program_saved(fitted_map):
    rows = survey(60, seed=1).to_csv(index=False)
    with child("stream", fitted_map, "--save-every", "0") as stream:
        stream.stdin.write(rows + "3.0,1.0\n")
        stream.stdin.flush()
        stream.stdout.readline()
        load(fitted_map).flush().save(fitted_map)
        expected = fitted_map.read_bytes()
        stream.stdin.write(survey(30, seed=2).to_csv(index=False, header=False) + "3.0,1.0\n")
        stream.stdin.flush()
        assert stream.stdout.readline()  # it still answers
        stream.stdin.close()
        said = stream.stderr.read()
        assert exit_code(stream) == 1
    assert "changed by another program" in said
    assert load(re.search(r"the map is in (\S+) instead", said)[1]).n_samples_seen_ == 200
    assert fitted_map.read_bytes() == expected


def test_one_process_writes_a_map_at_a_time(wgpr, fitted_map):
    write_survey("more.csv", 50, seed=3)
    with child("stream", fitted_map) as stream:
        stream.stdin.write("3.0,1.0\n")
        stream.stdin.flush()
        assert stream.stdout.readline()
        before = fitted_map.read_bytes()
        for arguments in (("update", "a.map", "more.csv"), ("fit", "more.csv", "-o", "a.map"), ("stream", "a.map")):
            code, _, said = wgpr(*arguments)
            assert (code, "another wgpr is writing a.map" in said) == (1, True)
        assert wgpr("predict", "a.map", "more.csv")[0] == 0
        assert wgpr("update", "a.map", "more.csv", "-o", "b.map")[0] == 0
        assert fitted_map.read_bytes() == before
    assert wgpr("update", "a.map", "more.csv")[0] == 0  # the lock ended with its process, which was killed
    assert not list(Path().glob(".*.lock"))


# Interruption


def test_an_interrupted_fit_can_be_continued_exactly(wgpr, monkeypatch):
    monkeypatch.setattr(learn, "_PIECE", 30)
    write_survey("survey.csv", 100)
    assert wgpr("fit", "survey.csv", *SMALL, "-o", "whole.map")[0] == 0
    steps = []

    def interrupted_step(*arguments, step=BatchMethod._stepped):
        if len(steps) == 2:
            raise KeyboardInterrupt
        steps.append(arguments)
        return step(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(BatchMethod, "_stepped", interrupted_step)
        code, _, said = wgpr("fit", "survey.csv", *SMALL, "-o", "a.map")
    assert (code, "interrupted" in said, "--skip 30" in said, load("a.map").n_samples_seen_) == (1, True, True, 30)
    code, _, said = wgpr("update", "a.map", "survey.csv")
    assert (code, "--skip 30" in said) == (1, True)
    assert wgpr("update", "a.map", "survey.csv", "--skip", 30)[0] == 0
    whole, continued = load("whole.map"), load("a.map")
    for model in (whole, continued):
        del model.feature_names_in_
    assert_same_learning(continued, whole)


def test_an_interrupted_batch_method_leaves_nothing(wgpr, monkeypatch):
    write_survey("survey.csv", 40)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchMethod, "_stepped", interrupt)
    code, _, said = wgpr("fit", "survey.csv", "-m", "sparse", "-o", "a.map")
    assert (code, "nothing was learned" in said, Path("a.map").exists()) == (1, True, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_fit_that_is_asked_to_stop_saves(monkeypatch, number):
    write_survey("survey.csv", 2_000)
    monkeypatch.setattr(learn, "_PIECE", 40)

    def partial_fit(self, X, y, original=WGPRegressor.partial_fit):
        original(self, X, y)
        Path("learning").touch()
        time.sleep(0.05)  # the signal comes before the end, however fast the machine is

    monkeypatch.setattr(WGPRegressor, "partial_fit", partial_fit)
    with child("fit", "survey.csv", *SMALL, "-o", "a.map") as fit:
        while not Path("learning").exists():
            time.sleep(0.001)
        os.kill(fit.pid, number)
        said = fit.stderr.read()
        assert exit_code(fit) == 1
    n_learned = load("a.map").n_samples_seen_
    assert 0 < n_learned < 2_000
    assert f"--skip {n_learned}" in said


def test_a_job_in_the_background_ignores_ctrl_c():
    write_survey("survey.csv", 100)
    with child("fit", "survey.csv", *SMALL, "-o", "a.map", is_ignoring_interrupts=True) as fit:
        assert fit.stderr.readline()
        while fit.is_alive():
            os.kill(fit.pid, signal.SIGINT)
            time.sleep(0.001)
        assert exit_code(fit) == 0
    assert load("a.map").n_samples_seen_ == 100


def test_a_killed_update_leaves_a_whole_map(fitted_map):
    write_survey("more.csv", 400, seed=1)
    before = fitted_map.read_bytes()
    for delay in np.random.default_rng(0).uniform(0.05, 0.8, 4):
        with child("update", fitted_map, "more.csv", "--force") as update:
            update.join(delay)
        after = fitted_map.read_bytes()
        assert after == before or load(fitted_map).n_samples_seen_ > 110
        before = after


# Streams


def test_stream_learns_as_fit_does(wgpr):
    text = write_survey("survey.csv").to_csv(index=False)
    code, _, said = wgpr("stream", "stream.map", *SMALL, stdin=text)
    assert (code, "RMSE" in said) == (0, True)
    assert wgpr("fit", "survey.csv", *SMALL, "-o", "fit.map")[0] == 0
    streamed, fitted = load("stream.map"), load("fit.map")
    queries = survey(30, seed=2)[NAMES[:2]]
    np.testing.assert_array_equal(streamed.predict(queries), fitted.predict(queries))
    assert (streamed.target_name_, streamed.n_samples_seen_) == ("depth", 110)


def test_a_column_with_a_huge_number_is_refused():
    parser = LineParser(None, None)
    parser.parse('{"1": 0, "2": 1, "99999999999": 2}')
    with pytest.raises(LineError, match="has no column 99999999999; at most 20,000 are read"):
        parser.parse("1,2,3")


@pytest.mark.parametrize("settings", [SETTINGS, {}], ids=["batches", "default"])
def test_scores_of_a_stream_do_not_depend_on_arrival(capsys, settings):
    parser = LineParser(None, None)
    lines = [line for line in map(parser.parse, survey(90).to_csv(index=False).splitlines()) if line]
    results = []
    for n_lines in (1, 7, 90):
        session = StreamSession(WGPRegressor(**settings), parser, 2.0, 25, Unsaved())
        for start in range(0, len(lines), n_lines):
            assert not [*session.process(lines[start : start + n_lines])]
        session.report()
        results.append((session.scores.result(), session.scores.n_rows, capsys.readouterr().err))
    for found, n_rows, told in results[1:]:
        assert found == pytest.approx(results[0][0], rel=1e-9)
        assert (n_rows, told) == results[0][1:]
    assert results[0][1] == 89  # the first row is not forecast
    assert results[0][2].count("rows learned") == 4


def test_forecasts_of_a_stream_are_honest():
    """Each row is predicted by a model that does not know it."""
    parser = LineParser(["x"], "y")
    session = StreamSession(WGPRegressor(**SETTINGS), parser, 2.0, 1000, Unsaved())
    rng = np.random.default_rng(0)
    texts = [f"{x},{y}" for x, y in zip(rng.uniform(0, 1, 200), rng.normal(size=200), strict=True)]
    assert not [*session.process([parser.parse(text) for text in texts])]
    assert session.scores.result().rmse > 0.9  # pure noise cannot be predicted


def test_stream_answers_at_once():
    """The answer is there before the next line is sent."""
    lines = [*survey(60).to_csv(index=False).splitlines(), "", "# a comment"]
    with child("stream", "a.map", *SMALL) as robot:
        robot.stdin.write("\n".join([*lines, "3.0,1.0"]) + "\n")
        robot.stdin.flush()
        answer = robot.stdout.readline()
        robot.stdin.write('{"east": 3.0, "north": 1.0, "id": "q1"}\n')
        robot.stdin.flush()
        named = json.loads(robot.stdout.readline())
        robot.stdin.close()
        assert exit_code(robot) == 0
    mean, std, lower, upper, model = map(float, answer.split(","))
    assert named == {"id": "q1", "mean": mean, "std": std, "lower": lower, "upper": upper, "model": int(model)}
    expected = load("a.map").predict(pd.DataFrame({"east": [3.0], "north": [1.0]}))
    assert mean == expected[0]


def test_stream_leaves_out_what_it_cannot_read(wgpr):
    good = survey(30).to_csv(index=False)
    odd = ["1e200,2,3", "1e200,2", f'{{"east": {"9" * 400}, "north": 1}}', '1,"2', "1,2\r3,4", "x" * 2_000_000]
    bad = "\n".join(["1,2,three", "1,2,3,4", "{not json}", "1,nan,3", "{}", *odd]) + "\n"
    code, _, said = wgpr("stream", "a.map", *SMALL, stdin=good + bad)
    assert (code, said.count("it is left out"), said.count("further such lines are only counted")) == (0, 5, 1)
    assert "standard input: 11 lines were left out" in said
    assert "line 32" in said
    assert "line 35 has no north: nan is not a number; it is left out" in said
    assert load("a.map").n_samples_seen_ == 30
    for line in odd:
        assert "line 1 " in wgpr("stream", "a.map", stdin=f"{line}\n")[2]
    assert "counted" not in wgpr("stream", "a.map", stdin=f"{odd[0]}\n" * 5)[2]


def test_a_stream_that_is_no_utf8_says_how_to_convert_it(wgpr, fitted_map):
    code, _, said = wgpr("stream", fitted_map, stdin="e\0a\0s\0t\0,\0\n\0" * 3)
    assert (code, "standard input, line 1 has a NUL byte, which is no text; send UTF-8" in said) == (1, True), said
    code, _, said = wgpr("stream", fitted_map, stdin="1,1,2\n1,\0,2\n")
    assert (code, "line 2 has a NUL byte, which is no text; it is left out" in said) == (0, True), said
    code, _, said = wgpr("stream", fitted_map, stdin="east;north;depth\n1,5;1,0;2,0\n")
    assert (code, "'1,5' as east, which is not a number (the decimal mark must be a point" in said) == (1, True), said
    assert "because 1 line was left out; correct them" in said


def test_values_that_are_too_large_are_told_with_their_place(wgpr, fitted_map):
    rows = survey(30, seed=3)
    for column, commands in (("depth", ["evaluate"]), ("north", ["predict", "evaluate"])):
        rows.assign(**{column: 1e300}).to_csv("huge.csv", index=False)
        for command in commands:
            code, _, said = wgpr(command, fitted_map, "huge.csv")
            assert (code, f"huge.csv, line 2, column '{column}': 1e+300 is beyond" in said) == (1, True), said


@pytest.mark.parametrize(
    "command", [("fit", "survey.csv"), ("predict", "a.map", "survey.csv"), ("grid", "a.map"), ("plot", "a.map")]
)
def test_a_folder_that_cannot_be_written_is_named(wgpr, fitted_map, monkeypatch, command):
    (folder := Path("safe").resolve()).mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode, access=os.access: path != folder and access(path, mode))
    ending = {"fit": "map", "predict": "csv", "grid": "nc", "plot": "png"}[command[0]]
    code, _, said = wgpr(*command, "-o", f"safe/out.{ending}")
    assert (code, said) == (1, f"wgpr: nothing can be written to {folder}; save out.{ending} elsewhere (-o)\n")


@pytest.mark.parametrize("command", [("demo", "--quick", "-o"), ("serve",)])
@pytest.mark.parametrize("name", ["safe", "safe/a/b"])
def test_a_command_that_needs_a_folder_says_at_once_where_it_cannot_write(wgpr, monkeypatch, command, name):
    (folder := Path("safe").resolve()).mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode, access=os.access: path != folder and access(path, mode))
    for work in ("wgpr.cli.demo.run_demo", "wgpr.service.process.start_process"):
        monkeypatch.setattr(work, lambda *_, work=work: pytest.fail(f"{work} was called"))
    code, _, said = wgpr(*command, name)
    assert (code, f"nothing can be written to {folder}; name a " in said) == (1, True), said
    Path("file").touch()
    code, _, said = wgpr(*command, "file/a")
    assert (code, "file is no folder, so that there can be none at" in said) == (1, True), said


@pytest.mark.parametrize("is_new", [True, False], ids=["new map", "old map"])
def test_stream_leaves_out_what_is_far_outside(wgpr, fitted_map, is_new):
    name, n_before = ("b.map", 0) if is_new else ("a.map", 110)
    rows = survey(30, seed=1).to_csv(index=False) + "3000,1000,1\n1,1,-99999\n1e38,1,1\n50,20,30\n"
    code, _, said = wgpr("stream", name, *(SMALL if is_new else []), stdin=rows)
    assert (code, said.count("far outside"), said.count("left out")) == (0, 3, 3)
    assert "line 33 has -99999 as depth" in said
    assert load(name).n_samples_seen_ == n_before + 31
    assert wgpr("stream", name, "--force", stdin=rows)[0] == 0
    assert load(name).n_samples_seen_ == n_before + 65
    code, _, said = wgpr("stream", name, "--nodata", "-99999", stdin="1,1,-99999\n-99999,1\n")
    assert (code, "left out" in said) == (0, False)


def test_a_survey_that_begins_along_a_line_is_not_far_outside(wgpr):
    rows = [(0.1 * step, 0.001, 1.0) for step in range(40)] + [(4.0, 0.1 * step, 2.0) for step in range(40)]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    assert "left out" not in wgpr("stream", "a.map", *SMALL, stdin=text)[2]
    assert load("a.map").n_samples_seen_ == 80


def test_a_question_before_anything_is_known(wgpr):
    code, text, _ = wgpr("stream", "a.map", "--x", "east,north", "--y", "depth", stdin='1,2\n{"x": [1, 2]}\n')
    assert code == 0
    csv_answer, json_answer = text.splitlines()
    assert csv_answer == ",,,,"
    assert "error" in json.loads(json_answer)
    assert not Path("a.map").exists()


def test_a_stream_may_have_other_names(wgpr):
    rows = survey(30)
    assert wgpr("stream", "a.map", *SMALL, stdin=rows.to_csv(index=False))[0] == 0
    other = rows.rename(columns={"east": "x", "north": "y", "depth": "z"})[["z", "y", "x"]].to_csv(index=False)
    code, _, said = wgpr("stream", "a.map", "--x", "x,y", "--y", "z", "--force", stdin=other)
    assert code == 0, said
    model = load("a.map")
    assert (model.n_samples_seen_, list(model.feature_names_in_)) == (60, ["east", "north"])
    np.testing.assert_array_equal(model.bounds_[1], rows[["east", "north"]].max())


@pytest.mark.parametrize("options", [[], ["--x", "east,nrth", "--y", "depth"]], ids=["of the map", "of --x"])
def test_a_header_without_the_columns_ends_a_stream(wgpr, fitted_map, options):
    before, missing = fitted_map.read_bytes(), "nrth" if options else "east, north"
    header = "east,north,depth" if options else "n,e,depth"
    for rows in (f"{header}\n1,2,3\n", f"# sonar\n\n{header}\n"):
        code, _, said = wgpr("stream", fitted_map, *options, stdin=rows)
        assert (code, f"is a header without {missing}: it has {', '.join(header.split(','))}; " in said) == (1, True)
        assert "--x 1,2" in said
    assert fitted_map.read_bytes() == before
    assert wgpr("stream", "new.map", "--x", "east,nrth", "--y", "depth", stdin="east,north,depth\n1,2,3\n")[0] == 1
    assert not Path("new.map").exists()


def test_rows_that_are_held_are_learned_before_a_wrong_header_ends_a_stream(wgpr):
    """Rows that may be known are held until others show that they are not."""
    rows = survey(40).to_csv(index=False).splitlines(keepends=True)
    assert wgpr("stream", "a.map", *SMALL, stdin="".join(rows))[0] == 0
    code, _, said = wgpr("stream", "a.map", stdin="".join(rows[:4]) + "n,e,depth\n")
    assert (code, "is a header without east, north" in said) == (1, True), said
    assert load("a.map").n_samples_seen_ == 43
    code, _, said = wgpr("stream", "a.map", stdin="".join(rows[:36]) + "n,e,depth\n")  # 3 rows behind a fingerprint
    assert (code, "is a header without east, north" in said) == (1, True)
    assert "3 rows at the end may be known" in said


def test_columns_of_a_stream_by_number_below_a_header(wgpr, fitted_map):
    rows = survey(30, seed=1).rename(columns={"east": "e", "north": "n", "depth": "z"})[["z", "n", "e"]]
    code, _, said = wgpr("stream", "b.map", *SMALL, "--x", "3,2", "--y", "1", stdin=rows.to_csv(index=False))
    assert (code, "learning z from e, n" in said, "left out" in said) == (0, True, False), said
    np.testing.assert_array_equal(load("b.map").bounds_[1], rows[["e", "n"]].max())
    assert wgpr("stream", fitted_map, "--x", "3,2", "--y", "1", stdin=rows.to_csv(index=False))[0] == 0
    assert load(fitted_map).n_samples_seen_ == 140


def test_a_stream_of_several_tables(wgpr, fitted_map):
    """Each header says the order of the columns below it. One without the columns ends the stream."""
    table, turned = survey(5, seed=1), survey(5, seed=2)[["depth", "north", "east"]]
    text = table.to_csv(index=False) * 2 + turned.to_csv(index=False)
    code, _, said = wgpr("stream", fitted_map, stdin=text)
    assert (code, load(fitted_map).n_samples_seen_, "left out" in said) == (0, 125, False), said
    code, _, said = wgpr("stream", fitted_map, "--force", stdin=text + "n,e,depth\n1,2,3\n")
    assert (code, "line 19 is a header without east, north" in said) == (1, True), said
    assert load(fitted_map).n_samples_seen_ == 140  # the rows before it
    code, _, said = wgpr("stream", fitted_map, stdin="booting\n1,2,3\nlost,the,satellites\n1,2,3\n")
    assert (code, said.count("it is left out")) == (0, 2), said


def test_a_line_that_is_left_out_names_nothing(wgpr):
    rows = '{"status": "boot", "t": 1}\n' + survey(30).to_json(orient="records", lines=True)
    assert wgpr("stream", "a.map", *SMALL, stdin=rows)[0] == 0
    assert list(load("a.map").feature_names_in_) == ["east", "north"]


def test_columns_of_a_stream_by_number(wgpr):
    rows = survey(30).assign(line=7.0)[["line", "east", "north", "depth"]]
    text = rows.to_csv(index=False, header=False) + "0,3.0,1.0\n"
    code, answers, said = wgpr("stream", "a.map", *SMALL, "--x", "2,3", "--y", "4", stdin=text)
    assert code == 0, said
    assert len(answers.splitlines()) == 1
    np.testing.assert_array_equal(load("a.map").bounds_[1], rows[["east", "north"]].max())


def test_lines_come_as_they_arrive():
    reading, writing = os.pipe()
    lines = read_lines(reading, Interruptions())
    os.write(writing, b"1,2\n3,")
    assert next(lines) == [b"1,2"]
    os.write(writing, b"4\n5")
    assert next(lines) == [b"3,4"]
    os.close(writing)
    assert [*lines] == [[b"5"]]
    os.close(reading)


def fail_when_interrupted(steps):
    with uninterrupted():
        signal.raise_signal(signal.SIGTERM)
        steps.append("in a block that is not interrupted")
        raise OSError("full")


def test_a_request_to_stop_waits_until_it_is_allowed_and_is_not_forgotten_until_it_is_accepted(monkeypatch):
    monkeypatch.setattr(console, "_SAME_REQUEST", 0.0)
    interruptions, steps = Interruptions(), []
    with interruptions.handled():
        with pytest.raises(OSError, match="full"):
            fail_when_interrupted(steps)
        with pytest.raises(KeyboardInterrupt):
            interruptions.raise_waiting()
        interruptions.accept()
        signal.raise_signal(signal.SIGTERM)
        steps.append("a request waits, and a second one does not")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), interruptions.allowed():
            steps.append("never")
        interruptions.accept()
        with interruptions.allowed():
            steps.append("allowed")
            with suppress(KeyboardInterrupt):  # as a library may do
                signal.raise_signal(signal.SIGTERM)
                steps.append("never")
            steps.append("swallowed")
        with pytest.raises(KeyboardInterrupt):
            interruptions.raise_waiting()
        interruptions.accept()
        interruptions.raise_waiting()
        signal.raise_signal(signal.SIGTERM)
        steps.append("no longer allowed")
    assert "never" not in steps
    assert len(steps) == 5


def interrupts(number):
    """Whether a signal raises KeyboardInterrupt, which would end pytest."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        return True
    return False


def test_requests_to_stop_within_a_moment_are_one(monkeypatch):
    interruptions = Interruptions()
    with interruptions.handled():
        assert not interrupts(signal.SIGTERM)
        assert not interrupts(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            interruptions.raise_waiting()
        interruptions.accept()
        with interruptions.allowed():
            assert not interrupts(signal.SIGINT)
            monkeypatch.setattr(console, "_SAME_REQUEST", 0.0)
            assert interrupts(signal.SIGINT)


def test_a_save_that_is_interrupted_is_told(monkeypatch):
    write_survey("survey.csv", 50)

    def write(*arguments, original=MapWriter._write):
        original(*arguments)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(MapWriter, "_write", write)
    with child("fit", "survey.csv", *SMALL, "-o", "a.map") as fit:
        said = fit.stderr.read()
        assert exit_code(fit) == 130
    assert said.count("saved: a.map (") == 1, said
    assert load("a.map").n_samples_seen_ == 50


def test_a_stream_can_be_interrupted():
    with child("stream", "a.map", *SMALL) as robot:
        robot.stdin.write(survey(60).to_csv(index=False) + "3.0,1.0\n")
        robot.stdin.flush()
        robot.stdout.readline()
        os.kill(robot.pid, signal.SIGINT)
        assert exit_code(robot) == 0
        assert "saved" in robot.stderr.read()
    assert load("a.map").n_samples_seen_ == 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("arguments", [["fit", "survey.csv", "-o", "a.map"], ["stream", "a.map"]])
def test_a_request_to_stop_is_heeded_though_a_library_swallows_it(monkeypatch, arguments, number):
    text = write_survey("survey.csv", 100).to_csv(index=False)
    monkeypatch.setattr(learn, "_PIECE", 40)

    def partial_fit(self, X, y, original=WGPRegressor.partial_fit):
        original(self, X, y)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)

    monkeypatch.setattr(WGPRegressor, "partial_fit", partial_fit)
    with child(*arguments, *SMALL) as process:
        process.stdin.write(text)
        process.stdin.flush()  # and it stays open
        assert "saved" in process.stderr.read()
        assert exit_code(process) == (arguments[0] == "fit")
    assert 0 < load("a.map").n_samples_seen_ <= 100


# The installed script


def test_a_week(wgpr):
    """Every command once."""
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
        ("fit", "monday.csv", "-o", "one.map"),
        ("fit", "tuesday.csv", "-o", "other.map"),
        ("merge", "one.map", "other.map", "-o", "both.map"),
    ]
    for step in steps:
        code, _, said = wgpr(*step)
        assert code == 0, said
    assert all(
        Path(name).stat().st_size for name in ("answers.csv", "lake.nc", "lake.png", "small.map", "report/report.html")
    )


def test_standard_input_and_output(wgpr):
    text = survey().to_csv(index=False)
    assert wgpr("fit", "-", *SMALL, "-o", "a.map", stdin=text)[0] == 0
    code, answers, _ = wgpr("predict", "a.map", "-", stdin=text)
    assert (code, len(answers.splitlines())) == (0, 111)


def test_the_script_shows_progress_and_is_interrupted_by_ctrl_c():
    """As a user runs it in a terminal, also where the shell ignores Ctrl-C because pytest runs in the background."""
    write_survey("survey.csv", 8_000)
    terminal, stderr = os.openpty()
    command = [SCRIPT, "fit", "survey.csv", *SMALL, "-o", "a.map"]
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(command, stderr=stderr, env={**os.environ, "TERM": "xterm"}, **heeding) as fit:
        os.close(stderr)
        said = ""
        while not re.search(r"learning.*%.*rows, .*models?, .*rows/s", said):
            said += os.read(terminal, 10_000).decode()
        fit.send_signal(signal.SIGINT)
        with suppress(OSError):  # at its end
            while text := os.read(terminal, 10_000).decode():
                said += text
        assert fit.wait(timeout=120) == 1
    os.close(terminal)
    n_learned = load("a.map").n_samples_seen_
    assert 0 < n_learned < 8_000
    assert f"--skip {n_learned}" in said


def test_closed_streams_are_no_trouble(fitted_map):
    assert subprocess.run(f"{SCRIPT} info {fitted_map} <&- >&- 2>&-", shell=True).returncode == 0


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_replaced(monkeypatch, fitted_map, name):
    monkeypatch.setattr(sys, "argv", ["wgpr", "info", str(fitted_map)])
    monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    getattr(sys, name).close()
