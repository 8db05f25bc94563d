"""Methods are compared fairly, the numbers are true, and the demo reports them, whichever method is ahead."""

import numpy as np
import pytest

from threads import n_blas_threads, set_blas_threads
from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.cli import demo
from wgpr.cli.demo import (
    INTERPOLATION,
    ONE_GP,
    WGPR,
    compare_methods,
    interpolator,
    results_table,
    run_demo,
    simulated_survey,
)
from wgpr.metrics import scores
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


# The comparison


def test_results_are_those_of_fitting_by_hand(survey, results):
    alone = small().fit(*survey.rows(slice(None)))
    mean, std = alone.predict(survey.named(survey.X_test), return_std=True, latent=True)
    assert results[0].scores == pytest.approx(scores(survey.y_test, mean, std))
    assert results[0].model.n_models_ == alone.n_models_
    assert results[0].seconds > 0
    assert results[0].kilobytes == len(alone.to_bytes(compact=True)) / 1000


def test_all_methods_are_timed_with_one_blas_thread(survey, monkeypatch):
    """Several of them, on busy cores, took a hundred times as long to interpolate."""
    seen = []
    monkeypatch.setattr(demo, "interpolator", lambda X, y: seen.append(n_blas_threads()) or interpolator(X, y))
    before = n_blas_threads()
    set_blas_threads(2)
    try:
        compare_methods(survey, {})
    finally:
        set_blas_threads(max(before))
    assert seen == [{1}, {1}]


def test_every_method_learns_every_row(survey, results):
    for result in results[:2]:
        assert result.model.n_samples_seen_ == len(survey.y)
        assert result.model.n_pending_ == 0


def test_noise_counts_where_targets_have_it(survey):
    track = hold_out(survey.X, survey.y, random_state=0)
    result, _ = compare_methods(track, {"a": small()})
    mean, std = result.model.predict(track.named(track.X_test), return_std=True)
    assert result.scores == pytest.approx(scores(track.y_test, mean, std))


def test_interpolation_has_no_uncertainty_and_keeps_all_samples(survey, results):
    found = results[2]
    assert found.scores.nlpd is found.scores.coverage is found.model is None
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
    assert list(table.index) == [WGPR, ONE_GP, INTERPOLATION]
    assert float(table.at[WGPR, "RMSE [m]"]) == pytest.approx(results[0].scores.rmse, rel=0.01)
    assert list(table.loc[INTERPOLATION, ["NLPD", "in 95 %", "models"]]) == ["-", "-", "-"]


# The whole


def quick_methods(seed):
    settings = {"n_inducing": 10, "batch_size": 200, "optimizer_iterations": 2, "random_state": seed}
    return {WGPR: WGPRegressor.published(splitting="always", **settings), ONE_GP: StreamingGPRegressor(**settings)}


@pytest.fixture
def _no_rendering(monkeypatch):
    """Figures are made but not rendered, which takes most of the time; other tests render them."""
    monkeypatch.setattr("wgpr.cli.demo._html_picture", lambda figure, caption: "<img >")


@pytest.mark.usefixtures("_no_rendering")
def test_a_survey_of_the_users_own(tmp_path, survey, monkeypatch, capsys):
    monkeypatch.setattr("wgpr.cli.demo.methods", quick_methods)
    names = {"input_names": ("lon", "lat"), "target_name": "depth [ft]"}
    own = hold_out(survey.X, survey.y, name="A <b> survey", **names, random_state=1)
    results, page = run_demo(tmp_path, own, seed=1), tmp_path / "report.html"
    assert "<h1>A &lt;b&gt; survey</h1>" in page.read_text()
    assert f"<th>{INTERPOLATION}</th>" in page.read_text()
    assert own.held_out in page.read_text()
    assert [result.method for result in results] == [WGPR, ONE_GP, INTERPOLATION]
    assert page.read_text().count("<img ") == 1
    shown, told = capsys.readouterr()
    assert "RMSE [ft]" in shown
    assert "whole stretches of the track" in " ".join(shown.split())
    assert str(page) in told
    assert (tmp_path / "wgpr.map").exists()


def test_a_survey_where_nothing_varies(tmp_path):
    run_demo(tmp_path, hold_out(np.ones((60, 2)), np.ones(60), random_state=0))
    assert (tmp_path / "report.html").exists()


@pytest.mark.usefixtures("_no_rendering")
def test_rows_with_one_input_are_not_interpolated(tmp_path):
    x = np.linspace(0.0, 20.0, 300)
    results = run_demo(tmp_path, hold_out(x[:, None], np.sin(x), random_state=0))
    assert [result.method for result in results] == [WGPR, ONE_GP]
    assert (tmp_path / "report.html").read_text().count("<img ") == 1


def test_the_quick_demo_flies_over_mountains_and_valley(tmp_path, monkeypatch):
    monkeypatch.setattr("wgpr.cli.demo.methods", quick_methods)
    flight = simulated_survey(0, quick=True)
    run_demo(tmp_path / "a" / "new folder", flight)
    assert "The truth." in (tmp_path / "a" / "new folder" / "report.html").read_text()
    assert 2000 < len(flight.y) < 2500
    assert flight.y.min() < 350
    assert flight.y.max() > 900
