"""The pictures of the studies show what the journal says, and nothing where it says nothing."""

from itertools import pairwise
from math import inf
from statistics import fmean

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from reproduction import figures, published
from reproduction.ablation import COURSES as ABLATED
from reproduction.contestants import CONTESTANTS
from reproduction.figures import PREDICTION, SPLITTING
from reproduction.journal import Journal
from reproduction.marks import NAMES, STYLES, tick
from reproduction.plan import COURSES, FULL
from reproduction.tables import EXACT, INTERPOLATION

SEEDS = (0, 1, 2)
PICTURES = {
    "toy": figures.toy_picture,
    "toy_sweep": lambda journal: figures.toy_sweep(journal, SEEDS),
    "models_sweep": figures.models_sweep,
    "learning_curves": figures.learning_curves,
    "methods": figures.methods_picture,
    "coverage": figures.coverage_picture,
    "ablation": figures.ablation_picture,
    "frozen": figures.frozen_picture,
    "candidates": figures.candidates_picture,
}
METHODS = (*CONTESTANTS, EXACT, INTERPOLATION)
X = np.linspace(0.0, 300.0, 61)
N_MODELS = 12


def scored(rmse, coverage=0.9):
    return {"rmse": rmse, "coverage": coverage}


def add_toy(journal):
    owner = np.arange(len(X)) * N_MODELS // len(X)
    for method, models in {"WGPR": owner // 6, "SOLAR": owner}.items():
        curves = {"x": X.tolist(), "mean": np.sin(X).tolist(), "std": [0.2] * len(X), "model": models.tolist()}
        data = {"X": X[::3].tolist(), "y": np.sin(X[::3]).tolist()}
        journal.add("toy picture", {"method": method}, {"n_models": int(models.max()) + 1, **curves, **data})
        for number, value in enumerate((0.0, 0.1, inf) if method == "WGPR" else (0.0, 0.1, 0.5)):
            for seed in (*SEEDS, 100):
                key = {"method": method, "value": value, "seed": seed}
                n_models = (20 + seed, 2, 1)[number] if method == "WGPR" else (1, 5, 30)[number]
                journal.add("toy", key, {"n_models": n_models, "test": scored(0.25 + 0.01 * seed + 0.1 * number)})


def add_sweep(journal):
    for method in ("WGPR", "SOLAR"):
        for number, value in enumerate((0.0, 0.3, inf)):
            for trial in range(2):
                key = {"course": "kin40k", "method": method, "value": value, "trial": trial}
                result = {"n_models": (100, 10, 1)[number], "seconds": 20.0 - 5 * number, "n_rows": 10_000}
                journal.add("sweep", key, {**result, "test": scored(0.5 + 0.1 * number + 0.02 * trial)})
                journal.add("sweep", {**key, "course": "pumadyn"}, {**result, "test": scored(99.0)})


def add_tables(journal, courses=tuple(COURSES)):
    for course in courses:
        for number, method in enumerate(METHODS):
            for trial in range(3):
                curve = [[batch, 2.0 - 0.1 * batch] for batch in range(1 + trial, 10 + trial)]
                rmse = (2.0 + number) * (1.0 + 0.1 * trial)
                test = scored(rmse, None if method == INTERPOLATION else 0.9 + 0.01 * number)
                is_learner = method in CONTESTANTS and course in figures.STREAMS
                extra = {"curve": curve if is_learner else []} if method in CONTESTANTS else {}
                journal.add("tables", {"course": course, "method": method, "trial": trial}, {"test": test, **extra})


def add_ablation(journal, courses=ABLATED):
    for course in courses:
        for trial in range(2):
            for row, splitting in enumerate(SPLITTING):
                for factor, update in ((1.0, "learned"), (1.5, "frozen")):
                    rules = {rule: scored(factor * (1 + row + column)) for column, rule in enumerate(PREDICTION)}
                    key = {"course": course, "splitting": splitting, "update": update, "trial": trial}
                    journal.add("ablation", key, {"rules": rules})
            for n_candidates in FULL.n_candidates:
                rules = {"nearest": scored(1.0 + trial + 1.0 / n_candidates)}
                key = {"course": course, "n_candidates": n_candidates, "trial": trial}
                journal.add("candidates", key, {"rules": rules, "seconds": 1.0 + min(n_candidates, 20)})


@pytest.fixture
def empty(tmp_path):
    return Journal(tmp_path / "results.jsonl", {"name": "of the tests"})


@pytest.fixture
def journal(empty):
    for add in (add_toy, add_sweep, add_tables, add_ablation):
        add(empty)
    return empty


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
def test_a_picture_says_what_it_is(journal, name):
    picture = PICTURES[name](journal)
    assert picture.name == name
    assert picture.caption.endswith(".")
    assert picture.alt.endswith(".")
    assert 6.0 <= picture.figure.get_figwidth() <= 12.0


@pytest.mark.parametrize("name", PICTURES)
def test_legends_cover_no_data_and_nothing_is_cut_off(journal, name):
    figure = PICTURES[name](journal).figure
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


@pytest.mark.parametrize("step", [2, 7, 50, 150])
def test_any_part_of_the_results_makes_pictures_or_none(journal, step):
    """As a run leaves them that was interrupted."""
    part = Journal(journal.path.with_name("part.jsonl"), {})
    for entry in list(journal)[::step]:
        part.add(entry.study, entry.key, entry.result)
    pictures = [draw(part) for draw in PICTURES.values()]
    assert any(pictures)
    for picture in filter(None, pictures):
        picture.figure.draw_without_rendering()


def test_every_rule_and_every_name_is_known():
    assert set(METHODS) | set(ABLATED) <= set(STYLES)
    assert set(ABLATED) <= set(NAMES)


# The toy


def test_the_toy_has_a_panel_for_the_data_and_one_for_each_method(journal):
    picture = figures.toy_picture(journal)
    assert titles(picture) == ["The data: every third sample", "WGPR: 2 models", f"SOLAR: {N_MODELS} models"]
    assert [len(ax.lines) for ax in picture.figure.axes] == [1, 1 + 2, 1 + N_MODELS]


def test_neighbours_on_the_toy_differ_in_colour(journal):
    _, _, solar = figures.toy_picture(journal).figure.axes
    colours = [to_hex(line.get_color()) for line in solar.lines[1:]]
    assert all(one != other for one, other in pairwise(colours))
    bands = [to_hex(band.get_facecolor()[0]) for band in solar.collections]
    assert bands == colours


def test_a_method_that_is_missing_has_no_panel(empty):
    add_toy(empty)
    entries = [entry for entry in empty.of("toy picture") if entry["method"] == "SOLAR"]
    other = Journal(empty.path.with_name("other.jsonl"), {})
    other.add("toy picture", entries[0].key, {**entries[0].result, "n_models": 1})
    assert titles(figures.toy_picture(other))[1:] == ["SOLAR: 1 model"]


def test_the_sweep_of_the_toy_has_a_mark_for_each_toy_and_a_mean_for_each_threshold(journal):
    (ax,) = figures.toy_sweep(journal, SEEDS).figure.axes
    faint, line, star = marks(ax, "WGPR")
    assert len(faint.get_xdata()) == 3 * len(SEEDS)
    np.testing.assert_allclose(line.get_xdata(), [21.0, 2.0, 1.0])
    np.testing.assert_allclose(line.get_ydata(), [0.26, 0.36, 0.46])
    assert (star.get_xdata()[0], star.get_ydata()[0]) == published.TOY["WGPR"]
    assert is_hollow(star)
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["noise\n0.25"]


# kin40k


def test_the_sweep_shows_error_and_speed_beside_what_was_published(journal):
    error, speed = figures.models_sweep(journal).figure.axes
    _, line, level = marks(error, "SOLAR")
    np.testing.assert_allclose(line.get_xdata(), [100, 10, 1])
    np.testing.assert_allclose(line.get_ydata(), [0.51, 0.61, 0.71])
    assert level.get_ydata()[0] == 0.910
    _, line, level = marks(speed, "SOLAR")
    np.testing.assert_allclose(line.get_ydata(), [10_000 / 20, 10_000 / 15, 10_000 / 10])
    assert level.get_ydata()[0] == pytest.approx(10_000 / 119.4)


# Curves


def test_learning_curves_have_a_panel_for_each_stream(journal):
    picture = figures.learning_curves(journal)
    assert titles(picture) == ["Lake Opinicon", "Lake Tzibana", "SARCOS (subset)"]
    for ax in picture.figure.axes:
        assert len(ax.lines) == 3 + 2
        assert len(ax.collections) == 3
        assert ax.get_ylim()[0] == 0.0
    (legend,) = picture.figure.legends
    assert [text.get_text() for text in legend.texts] == ["WGPR", "LGPR", "SOLAR", EXACT, INTERPOLATION]


def test_a_curve_is_the_mean_where_all_trials_are_known(journal):
    ax = figures.learning_curves(journal).figure.axes[0]
    (curve,) = marks(ax, "WGPR")
    assert curve.get_xdata()[[0, -1]].tolist() == [3, 9]
    np.testing.assert_allclose(curve.get_ydata(), 2.0 - 0.1 * curve.get_xdata())
    (level,) = marks(ax, EXACT)
    assert level.get_ydata()[0] == pytest.approx((2 + METHODS.index(EXACT)) * 1.1)


def test_a_stream_that_is_missing_has_no_panel(empty):
    add_tables(empty, ["opinicon", "kin40k"])
    assert titles(figures.learning_curves(empty)) == ["Lake Opinicon"]


# Dots


def test_errors_are_ratios_to_those_of_the_same_trial(journal):
    (ax,) = figures.methods_picture(journal).figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == list(COURSES.values())
    assert not marks(ax, "WGPR")
    for method in METHODS[1:]:
        ratio = (2 + METHODS.index(method)) / 2
        for line in marks(ax, method):
            if not is_hollow(line):
                np.testing.assert_allclose(line.get_xdata(), ratio)


def test_only_trials_that_both_have_are_compared(empty):
    for method, trials in {"WGPR": (0, 1), "LGPR": (1, 2)}.items():
        for trial in trials:
            result = {"test": scored(1.0 + trial + (method == "LGPR"))}
            empty.add("tables", {"course": "kin40k", "method": method, "trial": trial}, result)
    (ax,) = figures.methods_picture(empty).figure.axes
    faint, mean, _ = marks(ax, "LGPR")
    assert [*faint.get_xdata(), *mean.get_xdata()] == [1.5, 1.5]


def test_published_ratios_are_hollow_and_only_where_there_are_any(journal):
    (ax,) = figures.methods_picture(journal).figure.axes
    hollow = {method: [line.get_xdata()[0] for line in marks(ax, method) if is_hollow(line)] for method in METHODS[1:]}
    assert {method: len(found) for method, found in hollow.items()} == {
        "WGPR, any rule": 0,
        "SOLAR": 6,
        "OVFE": 2,
        "LGPR": 6,
        EXACT: 0,
        INTERPOLATION: 0,
    }
    np.testing.assert_allclose(hollow["SOLAR"][:3], [3.524 / 1.362, 3.524 / 1.362, 12.686 / 4.476])


def test_coverage_is_of_who_has_an_interval(journal):
    (ax,) = figures.coverage_picture(journal).figure.axes
    assert not marks(ax, INTERPOLATION)
    assert [line.get_xdata()[0] for line in strong(ax, "WGPR")] == [0.9] * len(COURSES)
    low, high = ax.get_xlim()
    assert low < 0.95 < 1.0 < high


def test_an_infinite_error_is_no_obstacle(journal):
    journal.add("tables", {"course": "kin40k", "method": "OVFE", "trial": 0}, {"test": scored(inf, 0.0), "curve": []})
    journal.add("toy", {"method": "WGPR", "value": 0.1, "seed": 0}, {"n_models": 1, "test": scored(inf)})
    for picture in (
        figures.methods_picture(journal),
        figures.coverage_picture(journal),
        PICTURES["toy_sweep"](journal),
    ):
        assert picture.png


# Elements


def test_a_table_of_errors_for_each_data_set(journal):
    picture = figures.ablation_picture(journal)
    *panels, bar = picture.figure.axes
    assert titles(picture)[:-1] == [NAMES[course] for course in ABLATED]
    for ax in panels:
        assert [text.get_text() for text in ax.texts[:3]] == ["1.00", "2.00", "3.00"]
        assert [text.get_text() for text in ax.texts if text.get_weight() == "bold"] == ["1.00"]
        assert len(ax.texts) == 25
    assert bar.get_ylim() == pytest.approx((1.0, 4.0))


def test_a_cell_without_results_is_empty(empty):
    rules = {rule: scored(2.0) for rule in PREDICTION}
    empty.add("ablation", {"course": "sarcos", "splitting": "never", "update": "learned", "trial": 0}, {"rules": rules})
    query, _ = figures.ablation_picture(empty).figure.axes
    assert [text.get_position() for text in query.texts] == [(column, 4) for column in range(5)]


def test_three_tables_leave_a_gap(empty):
    add_ablation(empty, ABLATED[:3])
    assert len(figures.ablation_picture(empty).figure.axes) == 3 + 1


def test_frozen_is_compared_with_learned(journal):
    (ax,) = figures.frozen_picture(journal).figure.axes
    for course in ABLATED:
        np.testing.assert_allclose([line.get_xdata()[0] for line in strong(ax, course)], [1.5] * len(SPLITTING))


def test_candidates_are_compared_with_five(journal):
    error, time = figures.candidates_picture(journal).figure.axes
    assert [label.get_text() for label in error.get_xticklabels()] == ["1", "2", "3", "5", "10", "all"]
    (line,) = strong(time, "sarcos")
    np.testing.assert_allclose(line.get_ydata(), np.array([2, 3, 4, 6, 11, 21]) / 6)
    (line,) = strong(error, "sarcos")
    expected = [fmean((1 + 1 / number, 2 + 1 / number)) / 1.7 for number in FULL.n_candidates]
    np.testing.assert_allclose(line.get_ydata(), expected)


def test_a_data_set_without_the_usual_number_of_candidates_has_no_line(empty):
    result = {"rules": {"nearest": scored(1.0)}, "seconds": 1.0}
    empty.add("candidates", {"course": "toy", "n_candidates": 1, "trial": 0}, result)
    assert figures.candidates_picture(empty) is None


# Axes


@pytest.mark.parametrize("limits", [(0.9, 1.1), (0.3, 5.0), (1.0, 300.0), (1e-3, 1e9), (40.0, 4000.0)])
def test_a_logarithmic_axis_has_a_few_round_numbers(limits):
    ax = Figure().subplots()
    ax.set(xscale="log", xlim=limits)
    tick(ax.xaxis)
    assert 2 <= len(ax.get_xticks()) <= 14
    assert all(limits[0] <= tick <= limits[1] for tick in ax.get_xticks())
