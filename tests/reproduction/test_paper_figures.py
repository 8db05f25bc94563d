"""The figures of the studies show the results, and nothing where there are none."""

from itertools import pairwise
from math import inf
from statistics import fmean

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from paper_results import N_MODELS, SEEDS, add_ablation, add_all, add_tables, add_toy, scored

from reproduction import figures, published
from reproduction import results as results_module
from reproduction.figures import PREDICTION, SPLITTING
from reproduction.methods import EXACT, INTERPOLATION
from reproduction.methods import METHODS_AND_REFERENCES as ALL_METHODS
from reproduction.plan import DATASETS, FULL, TITLES
from reproduction.plot_styles import STYLES, log_ticks
from reproduction.results import Results
from reproduction.studies import ABLATION_DATASETS

PICTURES = {
    "toy": figures.toy_figure,
    "toy_sweep": lambda results: figures.toy_sweep_figure(results, SEEDS),
    "models_sweep": figures.sweep_figure,
    "learning_curves": figures.learning_curves,
    "methods": figures.methods_figure,
    "coverage": figures.coverage_figure,
    "ablation": figures.ablation_figure,
    "frozen": figures.frozen_figure,
    "candidates": figures.candidates_figure,
}


@pytest.fixture(autouse=True, scope="module")
def _known_commit():
    """Every file of results would ask git."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_module, "commit", lambda: "c0ffee")
        yield


@pytest.fixture
def empty(tmp_path):
    return Results(tmp_path / "results.jsonl", FULL)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Complete; not to be changed."""
    results = Results(tmp_path_factory.mktemp("paper") / "results.jsonl", FULL)
    add_all(results)
    return results


@pytest.fixture(scope="module")
def pictures(results):
    """Of the complete results; not to be changed."""
    return {name: draw(results) for name, draw in PICTURES.items()}


def part_of(results, other, step):
    """Every so many results, as in a run that was interrupted."""
    for found in list(results)[::step]:
        other.add(found.study, found.key, found.values)
    return other


def marks(ax, method):
    """Of a method or a data set: the lines that have its colour."""
    return [line for line in ax.lines if STYLES[method].colour in (line.get_color(), line.get_markeredgecolor())]


def is_faint(line):
    return line.get_alpha() is not None


def is_hollow(line):
    return line.get_markerfacecolor() == "white"


def strong(ax, method):
    return [line for line in marks(ax, method) if not is_faint(line) and not is_hollow(line)]


def titles(picture):
    return [ax.get_title(loc="left") for ax in picture.figure.axes]


# All of them


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_words_and_its_legend_covers_no_data_and_nothing_is_cut_off(pictures, name):
    picture = pictures[name]
    assert picture.name == name
    assert picture.caption.endswith(".")
    assert picture.alt.endswith(".")
    figure = picture.figure
    assert 6.0 <= figure.get_figwidth() <= 12.0
    figure.draw_without_rendering()
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(ax.get_window_extent()) for ax in figure.axes)
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0) >= 0.0
    assert box.x1 <= width
    assert box.y1 <= height


@pytest.mark.parametrize("name", PICTURES)
def test_no_results_no_picture(empty, name):
    assert PICTURES[name](empty) is None


@pytest.mark.parametrize("step", [7, 150])
def test_any_part_of_the_results_makes_pictures_or_none(results, empty, step):
    part = part_of(results, empty, step)
    drawn = [draw(part) for draw in PICTURES.values()]
    assert any(drawn)
    for picture in filter(None, drawn):
        picture.figure.set_layout_engine("none")  # the layout takes most of the time
        picture.figure.draw_without_rendering()


def test_every_rule_and_every_name_is_known():
    assert set(ALL_METHODS) | set(ABLATION_DATASETS) <= set(STYLES)
    assert set(ABLATION_DATASETS) <= set(TITLES)


# The toy


def test_the_toy_has_a_panel_for_the_data_and_one_for_each_method(pictures):
    picture = pictures["toy"]
    assert titles(picture) == ["The data: every third sample", "WGPR: 2 models", f"SOLAR: {N_MODELS} models"]
    assert [len(ax.lines) for ax in picture.figure.axes] == [1, 1 + 2, 1 + N_MODELS]


def test_neighbours_on_the_toy_differ_in_colour(pictures):
    _, _, solar = pictures["toy"].figure.axes
    colours = [to_hex(line.get_color()) for line in solar.lines[1:]]
    assert all(one != other for one, other in pairwise(colours))
    bands = [to_hex(band.get_facecolor()[0]) for band in solar.collections]
    assert bands == colours


def test_a_method_that_is_missing_has_no_panel(results, empty):
    (solar,) = [found for found in results if found.study == "toy picture" and found.key["method"] == "SOLAR"]
    empty.add("toy picture", solar.key, {**solar.values, "n_models": 1})
    assert titles(figures.toy_figure(empty))[1:] == ["SOLAR: 1 model"]


def test_the_sweep_of_the_toy_has_a_mark_for_each_toy_and_a_mean_for_each_threshold(pictures):
    (ax,) = pictures["toy_sweep"].figure.axes
    faint, line, star = marks(ax, "WGPR")
    assert len(faint.get_xdata()) == 3 * len(SEEDS)
    np.testing.assert_allclose(line.get_xdata(), [21.0, 2.0, 1.0])
    np.testing.assert_allclose(line.get_ydata(), [0.26, 0.36, 0.46])
    assert (star.get_xdata()[0], star.get_ydata()[0]) == published.TOY["WGPR"]
    assert is_hollow(star)
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["noise\n0.25"]


# kin40k


def test_the_sweep_shows_error_and_speed_beside_what_was_published(pictures):
    error, speed = pictures["models_sweep"].figure.axes
    _, line, level = marks(error, "SOLAR")
    np.testing.assert_allclose(line.get_xdata(), [100, 10, 1])
    np.testing.assert_allclose(line.get_ydata(), [0.51, 0.61, 0.71])
    assert level.get_ydata()[0] == 0.910
    _, line, level = marks(speed, "SOLAR")
    np.testing.assert_allclose(line.get_ydata(), [10_000 / 20, 10_000 / 15, 10_000 / 10])
    assert level.get_ydata()[0] == pytest.approx(10_000 / 119.4)


# Curves


def test_learning_curves_have_a_panel_for_each_stream(pictures):
    picture = pictures["learning_curves"]
    assert titles(picture) == ["Lake Opinicon", "Lake Tzibana", "SARCOS (subset)"]
    for ax in picture.figure.axes:
        assert len(ax.lines) == 3 + 2
        assert len(ax.collections) == 3
        assert ax.get_ylim()[0] == 0.0
    (legend,) = picture.figure.legends
    assert [text.get_text() for text in legend.texts] == ["WGPR", "LGPR", "SOLAR", EXACT, INTERPOLATION]


def test_a_curve_is_the_mean_where_all_trials_are_known(pictures):
    ax = pictures["learning_curves"].figure.axes[0]
    (curve,) = marks(ax, "WGPR")
    assert curve.get_xdata()[[0, -1]].tolist() == [3, 9]
    np.testing.assert_allclose(curve.get_ydata(), 2.0 - 0.1 * curve.get_xdata())
    (level,) = marks(ax, EXACT)
    assert level.get_ydata()[0] == pytest.approx((2 + ALL_METHODS.index(EXACT)) * 1.1)


def test_a_stream_that_is_missing_has_no_panel(empty):
    add_tables(empty, ["opinicon", "kin40k"])
    assert titles(figures.learning_curves(empty)) == ["Lake Opinicon"]


# Dots


def test_errors_are_ratios_to_those_of_the_same_trial(pictures):
    (ax,) = pictures["methods"].figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == list(DATASETS.values())
    assert not marks(ax, "WGPR")
    for method in ALL_METHODS[1:]:
        ratio = (2 + ALL_METHODS.index(method)) / 2
        for line in marks(ax, method):
            if not is_hollow(line):
                np.testing.assert_allclose(line.get_xdata(), ratio)


def test_only_trials_that_both_have_are_compared(empty):
    for method, trials in {"WGPR": (0, 1), "LGPR": (1, 2)}.items():
        for trial in trials:
            result = {"test": scored(1.0 + trial + (method == "LGPR"))}
            empty.add("tables", {"dataset": "kin40k", "method": method, "trial": trial}, result)
    (ax,) = figures.methods_figure(empty).figure.axes
    faint, mean, _ = marks(ax, "LGPR")
    assert [*faint.get_xdata(), *mean.get_xdata()] == [1.5, 1.5]


def test_published_ratios_are_hollow_and_only_where_there_are_any(pictures):
    (ax,) = pictures["methods"].figure.axes
    hollow = {name: [line.get_xdata()[0] for line in marks(ax, name) if is_hollow(line)] for name in ALL_METHODS[1:]}
    assert {method: len(found) for method, found in hollow.items()} == {
        "WGPR, any rule": 0,
        "SOLAR": 6,
        "OVFE": 2,
        "LGPR": 6,
        EXACT: 0,
        INTERPOLATION: 0,
    }
    np.testing.assert_allclose(hollow["SOLAR"][:3], [3.524 / 1.362, 3.524 / 1.362, 12.686 / 4.476])


def test_coverage_is_of_who_has_an_interval(pictures):
    (ax,) = pictures["coverage"].figure.axes
    assert not marks(ax, INTERPOLATION)
    assert [line.get_xdata()[0] for line in strong(ax, "WGPR")] == [0.9] * len(DATASETS)
    low, high = ax.get_xlim()
    assert low < 0.95 < 1.0 < high


def test_an_infinite_error_is_no_obstacle(empty):
    add_tables(empty, ["kin40k"])
    add_toy(empty)
    empty.add("tables", {"dataset": "kin40k", "method": "OVFE", "trial": 0}, {"test": scored(inf, 0.0), "curve": []})
    empty.add("toy", {"method": "WGPR", "value": 0.1, "seed": 0}, {"n_models": 1, "test": scored(inf)})
    for name in ("methods", "coverage", "toy_sweep"):
        assert PICTURES[name](empty).png


# Elements


def test_a_table_of_errors_for_each_data_set(pictures):
    picture = pictures["ablation"]
    *panels, bar = picture.figure.axes
    assert titles(picture)[:-1] == [TITLES[dataset] for dataset in ABLATION_DATASETS]
    for ax in panels:
        assert [text.get_text() for text in ax.texts[:3]] == ["1.00", "2.00", "3.00"]
        assert [text.get_text() for text in ax.texts if text.get_weight() == "bold"] == ["1.00"]
        assert len(ax.texts) == 25
    assert bar.get_ylim() == pytest.approx((1.0, 4.0))


def test_a_cell_without_results_is_empty(empty):
    rules = {rule: scored(2.0) for rule in PREDICTION}
    empty.add(
        "ablation", {"dataset": "sarcos", "splitting": "never", "update": "learned", "trial": 0}, {"rules": rules}
    )
    panel, _ = figures.ablation_figure(empty).figure.axes
    assert [text.get_position() for text in panel.texts] == [(column, 4) for column in range(5)]


def test_three_tables_leave_a_gap(empty):
    add_ablation(empty, ABLATION_DATASETS[:3])
    assert len(figures.ablation_figure(empty).figure.axes) == 3 + 1


def test_frozen_is_compared_with_learned(pictures):
    (ax,) = pictures["frozen"].figure.axes
    for dataset in ABLATION_DATASETS:
        np.testing.assert_allclose([line.get_xdata()[0] for line in strong(ax, dataset)], [1.5] * len(SPLITTING))


def test_candidates_are_compared_with_five(pictures):
    error, time = pictures["candidates"].figure.axes
    assert [label.get_text() for label in error.get_xticklabels()] == ["1", "2", "3", "5", "10", "all"]
    (line,) = strong(time, "sarcos")
    np.testing.assert_allclose(line.get_ydata(), np.array([2, 3, 4, 6, 11, 21]) / 6)
    (line,) = strong(error, "sarcos")
    expected = [fmean((1 + 1 / number, 2 + 1 / number)) / 1.7 for number in FULL.n_candidates]
    np.testing.assert_allclose(line.get_ydata(), expected)


def test_a_data_set_without_the_usual_number_of_candidates_has_no_line(empty):
    result = {"rules": {"nearest": scored(1.0)}, "seconds": 1.0}
    empty.add("candidates", {"dataset": "toy", "n_candidates": 1, "trial": 0}, result)
    assert figures.candidates_figure(empty) is None


# Axes


@pytest.mark.parametrize("limits", [(0.9, 1.1), (0.3, 5.0), (1.0, 300.0), (1e-3, 1e9), (40.0, 4000.0)])
def test_a_logarithmic_axis_has_a_few_round_numbers(limits):
    ax = Figure().subplots()
    ax.set(xscale="log", xlim=limits)
    log_ticks(ax.xaxis)
    assert 2 <= len(ax.get_xticks()) <= 14
    assert all(limits[0] <= tick <= limits[1] for tick in ax.get_xticks())
