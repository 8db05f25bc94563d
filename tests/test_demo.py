"""Methods are compared fairly, the numbers are true, and the demo reports them, whichever method is ahead."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.cli.comparison import INTERPOLATION, Status, compare_methods, interpolator
from wgpr.cli.demo import ONE_GP, WGPR, conclusions, in_words, results_table, run_demo
from wgpr.metrics import scores
from wgpr.report import Picture
from wgpr.survey import fly, hold_out, jacksboro


@pytest.fixture(scope="module")
def survey():
    return fly(jacksboro().part(slice(0, 40), slice(0, 80)), n_test=300, random_state=0)


def small(random_state=0):
    return WGPRegressor.published(
        threshold=2e3, n_inducing=15, batch_size=20, optimizer_iterations=5, random_state=random_state
    )


@pytest.fixture(scope="module")
def results(survey):
    return compare_methods(survey, {WGPR: small(), ONE_GP: StreamingGPRegressor(15, 20, random_state=0)})


def console():
    return Console(file=io.StringIO(), width=100)


def with_error(result, rmse):
    return replace(result, scores=result.scores._replace(rmse=rmse))


# The comparison


def test_results_are_those_of_fitting_by_hand(survey, results):
    alone = small().fit(*survey.rows(slice(None)))
    mean, std = alone.predict(survey.named(survey.X_test), return_std=True, latent=True)
    assert results[0].scores == pytest.approx(scores(survey.y_test, mean, std))
    assert results[0].end.n_models == alone.n_models_
    assert results[0].kilobytes == len(alone.to_bytes(compact=True)) / 1000


def test_every_method_learns_every_row(survey, results):
    assert [result.end.n_done for result in results] == 3 * [len(survey.y)]
    assert results[0].model.n_samples_seen_ == len(survey.y)
    assert results[0].model.n_pending_ == 0


def test_progress_is_told_as_it_happens(survey):
    told = []
    result, interpolation = compare_methods(survey, {"a": small()}, progress=told.append)
    assert told.pop() is interpolation.end
    assert told[-1] is result.end
    assert [status.n_done for status in told] == [*range(100, len(survey.y), 100), len(survey.y)]
    assert all(status.errors and status.errors == result.end.errors[: len(status.errors)] for status in told)
    assert all(error > 0 for _, error in result.end.errors)
    assert [n_done for n_done, _ in result.end.errors] == sorted({n_done for n_done, _ in result.end.errors})
    assert result.end.errors[-1] == (len(survey.y), pytest.approx(result.scores.rmse))
    assert [status.seconds for status in told] == sorted(status.seconds for status in told)


def test_noise_counts_where_targets_have_it(survey):
    track = hold_out(survey.X, survey.y, random_state=0)
    result, _ = compare_methods(track, {"a": small()})
    mean, std = result.model.predict(track.named(track.X_test), return_std=True)
    assert result.scores == pytest.approx(scores(track.y_test, mean, std))


def test_interpolation_has_no_uncertainty_and_keeps_all_samples(survey, results):
    found = results[2]
    assert found.scores.nlpd is found.scores.coverage is found.end.n_models is found.std is found.model is None
    assert found.end.errors == ()
    assert found.kilobytes == pytest.approx(len(survey.y) * 3 * 4 / 1000)


def test_interpolation_of_a_plane_is_exact_and_the_nearest_sample_answers_outside():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    interpolate = interpolator(corners, corners @ [1.0, 2.0])
    np.testing.assert_allclose(interpolate(np.array([[0.25, 0.5], [0.9, 0.1], [2.0, 3.0]])), [1.25, 1.1, 3.0])


def test_interpolation_of_a_straight_track_is_the_nearest_sample():
    interpolate = interpolator(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(interpolate(np.array([[0.9, 1.2], [5.0, 5.0]])), [2.0, 3.0])


# What is said


def test_the_table_says_what_was_found(survey, results):
    table = results_table(survey, results)
    assert [row[0] for row in table.rows] == [WGPR, ONE_GP, INTERPOLATION]
    assert table.headers[1] == "RMSE [m]"
    assert float(table.rows[0][1]) == pytest.approx(results[0].scores.rmse, rel=0.01)
    assert table.rows[2][2:5] == ("-", "-", "-")
    assert survey.held_out in table.note


@pytest.mark.parametrize(
    ("error", "words"),
    [(50.0, "WGPR is more accurate"), (99.0, "as accurate as"), (110.0, "interpolation is more accurate")],
)
def test_the_conclusions_name_the_more_accurate_method(survey, results, error, words):
    found = [with_error(results[0], error), results[1], with_error(results[2], 100.0)]
    assert words in conclusions(survey, found)[0]


def test_the_conclusions_tell_sizes_as_they_are(survey, results):
    large, small_one = (replace(results[0], kilobytes=kilobytes) for kilobytes in (1e6, 1.0))
    assert "1,000,000 kB" in conclusions(survey, [large, *results[1:]])[-1]
    assert "instead of them" not in conclusions(survey, [large, *results[1:]])[-1]
    assert "instead of them" in conclusions(survey, [small_one, *results[1:]])[-1]


def test_a_status_in_words():
    status = Status("WGPR", 2000, 8000, 12, 4.0, ((100, 90.0), (1900, 41.26)))
    assert in_words(status, "m") == "2,000/8,000  12 models  RMSE 41.3 m  500/s  12 s left"
    assert in_words(status._replace(n_done=8000, n_models=1), "") == "8,000/8,000  1 model  RMSE 41.3  2,000/s  4.0 s"


# The whole


def quick_methods(seed):
    settings = {"n_inducing": 10, "batch_size": 200, "optimizer_iterations": 2, "random_state": seed}
    return {WGPR: WGPRegressor.published(splitting="always", **settings), ONE_GP: StreamingGPRegressor(**settings)}


@pytest.fixture
def _no_rendering(monkeypatch):
    """Figures are made but not rendered, which takes most of the time; other tests render them."""
    monkeypatch.setattr(Picture, "png", b"")


@pytest.mark.usefixtures("_no_rendering")
def test_a_survey_of_the_users_own(tmp_path, survey, monkeypatch):
    monkeypatch.setattr("wgpr.cli.demo.methods", quick_methods)
    screen = console()
    names = ("lon", "lat", "depth [ft]")
    demo = run_demo(tmp_path, data=(survey.X, survey.y, names), seed=1, console=screen)
    assert demo.page == tmp_path / "report.html"
    assert [result.end.method for result in demo.results] == [WGPR, ONE_GP, INTERPOLATION]
    assert {file.stem for file in demo.pictures} == {
        "map", "uncertainty", "models", "history", "learning", "calibration",
    }  # fmt: skip
    shown = screen.file.getvalue()
    assert re.search(r"WGPR .*RMSE [\d.]+ ft", shown)
    assert "RMSE [ft]" in shown
    assert "whole stretches of the track" in " ".join(shown.split())
    assert str(demo.page) in shown


def test_a_survey_where_nothing_varies(tmp_path):
    nothing = np.ones((60, 2)), np.ones(60), ["x", "y", "z"]
    assert run_demo(tmp_path, data=nothing, console=console()).page.exists()


@pytest.mark.usefixtures("_no_rendering")
def test_rows_with_one_input_have_no_map(tmp_path):
    x = np.linspace(0.0, 20.0, 300)
    demo = run_demo(tmp_path, data=(x[:, None], np.sin(x), ("x", "y")), console=console())
    assert [result.end.method for result in demo.results] == [WGPR, ONE_GP]
    assert {file.stem for file in demo.pictures} == {"history", "learning", "calibration"}


def test_the_quick_demo_flies_over_mountains_and_valley(tmp_path, monkeypatch):
    monkeypatch.setattr("wgpr.cli.demo.methods", quick_methods)
    demo = run_demo(tmp_path / "demo.html", quick=True, console=console())
    assert demo.page.name == "demo.html"
    assert "truth" in {file.stem for file in demo.pictures}
    assert 2000 < len(demo.survey.y) < 2500
    assert demo.survey.y.min() < 350
    assert demo.survey.y.max() > 900
