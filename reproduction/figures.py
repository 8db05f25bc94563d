"""The pictures of the studies. Each function reads a journal, and gives None where it has no results to draw.

Of a study that is not complete, or a data set that was missing, what there is is drawn. Faint marks are single trials,
strong ones their mean, and hollow ones were published. Methods, and data sets, have the same colour everywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reproduction import ablation, published, sweep, toy
from reproduction.contestants import CONTESTANTS
from reproduction.journal import Entry, Journal
from reproduction.learning import EXACT_ROWS
from reproduction.marks import (
    NAMES,
    OF_A_DECADE_OF_NUMBERS,
    OURS,
    STYLES,
    Dots,
    Style,
    faint,
    grid,
    hollow,
    legend,
    line,
    make_ratios,
    picture_of_dots,
    strong,
    tick,
)
from reproduction.plan import ALL_CANDIDATES, COURSES, N_CANDIDATES, TOY
from reproduction.tables import EXACT, INTERPOLATION, TABLES
from wgpr.cli.story import rounded
from wgpr.gp.linalg import Array
from wgpr.metrics import HALF_WIDTH_95
from wgpr.plots import COLOURS
from wgpr.plots.regions import colour_numbers
from wgpr.report import Picture

SPLITTING = {
    "wasserstein": "Wasserstein\n(WGPR)",
    "evidence": "evidence",
    "distance": "distance\n(SOLAR)",
    "always": "always",
    "never": "never",
}
PREDICTION = {
    "nearest": "nearest\n(WGPR)",
    "weighted": "weighted\nmean",
    "best_few": "best few\n(SOLAR)",
    "barycenter": "bary-\ncentre",
    "robust_bcm": "robust\nBCM",
}

TOY_NOISE = 0.25
STREAMS = ("opinicon", "tzibana", "sarcos")
WIDTHS = {"SOLAR": 2.8, "LGPR": 2.2, OURS: 1.6}  # of curves: those that are equal can all be seen
_SWEPT, _SWEPT_ROWS = "kin40k", 10_000

_COLOURS_OF_RATIOS, _LARGEST_RATIO = "YlGnBu", 4.0
_DARK = 0.6  # of the colours, as a part of their scale


# The toy


def toy_picture(journal: Journal) -> Picture | None:
    """The data, and what each method makes of them."""
    entries = [entry for method in toy.METHODS for entry in journal.of(toy.PICTURE, method=method)]
    if not entries:
        return None
    figure = Figure(figsize=(8.0, 2.1 * (1 + len(entries))), layout="constrained")
    above, *others = figure.subplots(1 + len(entries), 1, sharex=True, sharey=True)
    _draw_toy_data(above, entries[0], color="0.35")
    above.set_title("The data: every third sample", loc="left", fontsize="medium")
    for ax, entry in zip(others, entries, strict=True):
        _draw_toy_prediction(ax, entry)
    others[-1].set_xlabel("input")
    return _picture("toy", figure)


def _draw_toy_data(ax: Axes, entry: Entry, **style: Any) -> None:
    x, y = np.array(entry["X"]), np.array(entry["y"])
    margin = 0.12 * np.ptp(y)
    ax.plot(x, y, ".", markersize=2.5, markeredgewidth=0, **style)
    ax.set(xlim=(x.min(), x.max()), ylim=(y.min() - margin, y.max() + margin), ylabel="target")


def _draw_toy_prediction(ax: Axes, entry: Entry) -> None:
    """A piece for each stretch of the line on which the same model answers."""
    x, mean, std, owner = (np.array(entry[name]) for name in ("x", "mean", "std", "model"))
    _draw_toy_data(ax, entry, color="0.75")
    colours = colour_numbers(owner[None].astype(int), len(COLOURS) - 1)  # yellow is hard to see as a line
    starts = np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1])
    for start, stop in zip(starts, [*starts[1:], len(x)], strict=True):
        piece, colour = slice(start, stop + 1), COLOURS[colours[int(owner[start])]]
        half = HALF_WIDTH_95 * std[piece]
        ax.fill_between(x[piece], mean[piece] - half, mean[piece] + half, color=colour, alpha=0.3, linewidth=0)
        ax.plot(x[piece], mean[piece], color=colour, linewidth=1.5)
    ax.set_title(f"{entry['method']}: {_counted_models(entry['n_models'])}", loc="left", fontsize="medium")


def _counted_models(number: int) -> str:
    return "1 model" if number == 1 else f"{number:,} models"


def toy_sweep(journal: Journal, seeds: Sequence[int]) -> Picture | None:
    """The error against the number of models, over all thresholds, on the toys with these seeds."""
    found = {name: journal.of(TOY, method=name) for name in toy.METHODS}
    entries = {name: [entry for entry in found[name] if entry["seed"] in seeds] for name in found}
    if not any(entries.values()):
        return None
    figure = Figure(figsize=(8.0, 4.8), layout="constrained")
    ax = figure.subplots()
    for name in reversed(entries):  # WGPR on top
        _draw_sweep(ax, entries[name], STYLES[name], _test_rmse)
        ax.plot(*published.TOY[name], **_star(name))
    ax.axhline(TOY_NOISE, color="0.4", linewidth=1, linestyle="--")
    ax.text(1.01, TOY_NOISE, f"noise\n{TOY_NOISE}", color="0.4", va="center", transform=ax.get_yaxis_transform())
    _label_models(ax, "RMSE")
    ax.set_yscale("log")
    tick(ax.yaxis)
    _legend_with_published(figure, _star)
    return _picture("toy_sweep", figure)


def _star(method: str) -> dict[str, Any]:
    return {"marker": "*", "markersize": 14, "linestyle": "none", **hollow(STYLES[method])}


# The number of models, on kin40k


def models_sweep(journal: Journal) -> Picture | None:
    """The error and the speed against the number of models."""
    entries = {name: journal.of(sweep.SWEEP, course=_SWEPT, method=name) for name in toy.METHODS}
    if not any(entries.values()):
        return None
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    error, speed = figure.subplots(1, 2)
    for name in reversed(entries):  # WGPR on top
        _draw_sweep(error, entries[name], STYLES[name], _test_rmse)
        _draw_sweep(speed, entries[name], STYLES[name], _rows_per_second)
        cell = published.RESULTS[name][_SWEPT]
        assert cell is not None, "both have converged"
        error.axhline(cell.rmse, **_dotted(name))
        speed.axhline(_SWEPT_ROWS / cell.seconds, **_dotted(name))
    _label_models(error, "RMSE")
    speed.set_yscale("log")
    _label_models(speed, "Samples per second of processor time")
    tick(speed.yaxis, OF_A_DECADE_OF_NUMBERS)
    _legend_with_published(figure, _dotted)
    return _picture("models_sweep", figure)


def _dotted(method: str) -> dict[str, Any]:
    return {"color": STYLES[method].colour, "linestyle": ":", "linewidth": 1.5}


def _rows_per_second(entry: Entry) -> float:
    return float(entry["n_rows"]) / float(entry["seconds"])


def _draw_sweep(ax: Axes, entries: Sequence[Entry], style: Style, measure: Callable[[Entry], float]) -> None:
    """A mark for each entry, and a line through the means of each threshold, in their order."""
    ax.plot([_n_models(entry) for entry in entries], [measure(entry) for entry in entries], **faint(style))
    values = sorted({float(entry["value"]) for entry in entries})
    groups = [[entry for entry in entries if float(entry["value"]) == value] for value in values]
    x, y = ([fmean(map(part, group)) for group in groups] for part in (_n_models, measure))
    ax.plot(x, y, **strong(style))


def _legend_with_published(figure: Figure, look: Callable[[str], dict[str, Any]]) -> None:
    """Of both methods; look : of what was published."""
    lines = [line(STYLES[name], name) for name in toy.METHODS]
    legend(figure, [*lines, *(Line2D([], [], label=f"{name}, published", **look(name)) for name in toy.METHODS)])


def _n_models(entry: Entry) -> float:
    return float(entry["n_models"])


def _label_models(ax: Axes, label: str) -> None:
    ax.set_xscale("log")
    ax.set_xlabel("number of models")
    ax.set_title(label, loc="left", fontsize="medium")
    tick(ax.xaxis, OF_A_DECADE_OF_NUMBERS)
    grid(ax)


# Learning curves


def learning_curves(journal: Journal) -> Picture | None:
    """The error while the stream is learned: a panel for each data set that is one."""
    curves = {course: _curves(journal, course) for course in STREAMS}
    courses = [course for course in STREAMS if curves[course]]
    if not courses:
        return None
    figure = Figure(figsize=(max(6.5, 1.0 + 3.1 * len(courses)), 3.9), layout="constrained")
    for ax, course in zip(figure.subplots(1, len(courses), squeeze=False)[0], courses, strict=True):
        for method, runs in curves[course].items():
            _draw_curves(ax, runs, method)
        _draw_references(ax, journal, course)
        _label_batches(ax, NAMES[course])
    figure.axes[0].set_ylabel("RMSE on the rows held out")
    lines = [Line2D([], [], color=STYLES[name].colour, linewidth=WIDTHS[name], label=name) for name in reversed(WIDTHS)]
    legend(figure, [*lines, *(Line2D([], [], label=method, **_dashed(method)) for method in (EXACT, INTERPOLATION))])
    return _picture("learning_curves", figure)


def _label_batches(ax: Axes, title: str) -> None:
    ax.set(xlabel="batches of 100", ylim=(0.0, None))
    ax.set_title(title, loc="left", fontsize="medium")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    grid(ax)


def _curves(journal: Journal, course: str) -> dict[str, list[Array]]:
    """By method, the curves (n_glances, 2) of the trials."""
    found = {
        method: [np.array(entry["curve"], dtype=float) for entry in _tables(journal, course, method) if entry["curve"]]
        for method in WIDTHS
    }
    return {method: runs for method, runs in found.items() if runs}


def _draw_curves(ax: Axes, runs: Sequence[Array], method: str) -> None:
    """Trials differ in their length: where all of them are known."""
    batches = np.linspace(max(run[0, 0] for run in runs), min(run[-1, 0] for run in runs), 100)
    errors = np.array([np.interp(batches, *run.T) for run in runs])
    colour = STYLES[method].colour
    ax.fill_between(batches, errors.min(axis=0), errors.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    ax.plot(batches, errors.mean(axis=0), color=colour, linewidth=WIDTHS[method])


def _draw_references(ax: Axes, journal: Journal, course: str) -> None:
    for method in (EXACT, INTERPOLATION):
        entries = _tables(journal, course, method)
        if entries:
            ax.axhline(fmean(map(_test_rmse, entries)), **_dashed(method))


def _dashed(method: str) -> dict[str, Any]:
    return {"color": STYLES[method].colour, "linestyle": "--" if method == EXACT else "-.", "linewidth": 1.3}


# The methods


def methods_picture(journal: Journal) -> Picture | None:
    """The error of every method on every data set, over that of WGPR."""
    methods = [method for method in (*CONTESTANTS, EXACT, INTERPOLATION) if method != OURS]
    dots = {
        (course, method): found._replace(published=_published_ratio(course, method))
        for course in COURSES
        for method in methods
        if (found := _compared(_tables(journal, course, method), _tables(journal, course, OURS), _test_rmse))
    }
    if not dots:
        return None
    figure = picture_of_dots(COURSES, methods, dots)
    make_ratios(figure.axes[0], "RMSE, over that of WGPR (left of 1: better than WGPR)")
    return _picture("methods", figure)


def _published_ratio(course: str, method: str) -> float | None:
    """None if it did not converge, or was not tried."""
    name = published.stands_in_for(course)
    cell, ours = published.RESULTS.get(method, {}).get(name), published.RESULTS[OURS][name]
    return cell.rmse / ours.rmse if cell and ours else None


def coverage_picture(journal: Journal) -> Picture | None:
    """How many of the rows held out are in the intervals that should hold 95 % of them."""
    methods = [*CONTESTANTS, EXACT]
    found = {(course, method): _coverages(journal, course, method) for course in COURSES for method in methods}
    dots = {place: Dots(values, fmean(values)) for place, values in found.items() if values}
    if not dots:
        return None
    figure = picture_of_dots(COURSES, methods, dots)
    ax = figure.axes[0]
    ax.axvline(0.95, color="0.3", linewidth=1)
    ax.set_xlim(min(0.85, ax.get_xlim()[0]), 1.01)
    ax.set_xlabel("part of the rows held out that are in their 95 % interval (left of 0.95: too sure)")
    return _picture("coverage", figure)


def _coverages(journal: Journal, course: str, method: str) -> list[float]:
    values = [entry["test"]["coverage"] for entry in _tables(journal, course, method)]
    return [float(value) for value in values if value is not None]


# What each element contributes


def ablation_picture(journal: Journal) -> Picture | None:
    """The error of every splitting rule with every prediction rule: a panel for each data set."""
    tables = {course: _errors_of_rules(journal, course) for course in ablation.COURSES}
    courses = [course for course in tables if not np.isnan(tables[course]).all()]
    if not courses:
        return None
    ratios = {course: tables[course] / np.nanmin(tables[course]) for course in courses}
    largest = max(float(np.nanmax(ratio)) for ratio in ratios.values())
    scale = LogNorm(1.0, min(max(largest, 2.0), _LARGEST_RATIO))
    figure = _figure_of_tables(len(courses))
    for ax, course in zip(figure.axes, courses, strict=True):
        _draw_table(ax, tables[course], ratios[course], scale)
        ax.set_title(NAMES[course], loc="left", fontsize="medium")
    colours, extend = ScalarMappable(scale, _COLOURS_OF_RATIOS), "max" if largest > _LARGEST_RATIO else "neither"
    bar = figure.colorbar(colours, ax=figure.axes, label="RMSE, over the least of the panel", extend=extend)
    tick(bar.ax.yaxis)
    return _picture("ablation", figure)


def _figure_of_tables(n_panels: int) -> Figure:
    """In two columns; who splits is written beside the first."""
    n_columns = min(2, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = Figure(figsize=(2.1 + 3.7 * n_columns, 0.5 + 3.3 * n_rows), layout="constrained")
    for number, ax in enumerate(figure.subplots(n_rows, n_columns, squeeze=False).ravel()):
        ax.tick_params(labelleft=number % n_columns == 0)
        if number >= n_panels:
            ax.remove()
    figure.supylabel("who splits", fontsize="medium")
    figure.supxlabel("who answers", fontsize="medium")
    return figure


def _errors_of_rules(journal: Journal, course: str) -> Array:
    """Means over the trials, (splitting rules, prediction rules); not a number where there are none."""
    entries = [_ablated(journal, course, splitting, "learned") for splitting in SPLITTING]
    return np.array([[_mean_or_nan(map(_rmse_by(rule), group)) for rule in PREDICTION] for group in entries])


def _draw_table(ax: Axes, errors: Array, ratios: Array, scale: LogNorm) -> None:
    """With the numbers on the colours."""
    ax.imshow(ratios, norm=scale, cmap=_COLOURS_OF_RATIOS, aspect="auto")
    for (row, column), error in np.ndenumerate(errors):
        if not np.isnan(error):
            colour = "white" if scale(float(ratios[row, column])) > _DARK else "black"
            weight = "bold" if ratios[row, column] == 1.0 else "normal"
            ax.text(column, row, rounded(error), color=colour, weight=weight, ha="center", va="center")
    ax.set_xticks(range(len(PREDICTION)), list(PREDICTION.values()), fontsize="small")
    ax.set_yticks(range(len(SPLITTING)), list(SPLITTING.values()), fontsize="small")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def frozen_picture(journal: Journal) -> Picture | None:
    """What it costs, or gains, if updates do not learn the hyperparameters."""
    dots = {
        (splitting, course): found
        for splitting in SPLITTING
        for course in ablation.COURSES
        if (found := _frozen_over_learned(journal, course, splitting))
    }
    if not dots:
        return None
    figure = picture_of_dots(SPLITTING, ablation.COURSES, dots)
    make_ratios(figure.axes[0], "RMSE with frozen hyperparameters, over that with learned ones")
    return _picture("frozen", figure)


def _frozen_over_learned(journal: Journal, course: str, splitting: str) -> Dots | None:
    frozen, learned = (_ablated(journal, course, splitting, update) for update in ("frozen", "learned"))
    return _compared(frozen, learned, _rmse_by("nearest"))


def _ablated(journal: Journal, course: str, splitting: str, update: str) -> list[Entry]:
    return journal.of(ablation.ABLATION, course=course, splitting=splitting, update=update)


def candidates_picture(journal: Journal) -> Picture | None:
    """Error and time against the number of models that are tried for each batch."""
    entries = journal.of(ablation.CANDIDATES)
    numbers = sorted({entry["n_candidates"] for entry in entries})
    courses = [course for course in ablation.COURSES if _of_candidates(entries, course, N_CANDIDATES)]
    if not courses:
        return None
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    error, time = figure.subplots(1, 2)
    for course in courses:
        groups = [_of_candidates(entries, course, number) for number in numbers]
        _draw_candidates(error, groups, course, _rmse_by("nearest"))
        _draw_candidates(time, groups, course, _seconds)
    _label_candidates(error, numbers, "RMSE")
    _label_candidates(time, numbers, "Processor time")
    legend(figure, [line(STYLES[course], NAMES[course]) for course in courses])
    return _picture("candidates", figure)


def _label_candidates(ax: Axes, numbers: Sequence[int], what: str) -> None:
    """With at least 5 % above and below: less is noise, and should not look like more."""
    ax.axhline(1.0, color="0.3", linewidth=1)
    ax.set_xticks(range(len(numbers)), ["all" if number == ALL_CANDIDATES else str(number) for number in numbers])
    ax.set_xlabel("models tried for each batch")
    ax.set_title(f"{what}, over that with {N_CANDIDATES}", loc="left", fontsize="medium")
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0.95), max(high, 1.05))
    grid(ax)


def _of_candidates(entries: Sequence[Entry], course: str, number: int) -> list[Entry]:
    return [entry for entry in entries if entry["course"] == course and entry["n_candidates"] == number]


def _draw_candidates(
    ax: Axes, groups: Sequence[Sequence[Entry]], course: str, measure: Callable[[Entry], float]
) -> None:
    """A line over groups of entries, which differ in the number of candidates."""
    usual = [entry for group in groups for entry in group if entry["n_candidates"] == N_CANDIDATES]
    found = [_compared(group, usual, measure) for group in groups]
    known = [(place, dots) for place, dots in enumerate(found) if dots]
    for place, dots in known:
        ax.plot([place] * len(dots.trials), dots.trials, **faint(STYLES[course]))
    ax.plot([place for place, _ in known], [dots.mean for _, dots in known], **strong(STYLES[course]))


# What is measured


def _tables(journal: Journal, course: str, method: str) -> list[Entry]:
    return journal.of(TABLES, course=course, method=method)


def _test_rmse(entry: Entry) -> float:
    return float(entry["test"]["rmse"])


def _seconds(entry: Entry) -> float:
    return float(entry["seconds"])


def _rmse_by(rule: str) -> Callable[[Entry], float]:
    return lambda entry: float(entry["rules"][rule]["rmse"])


def _mean_or_nan(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else np.nan


def _compared(entries: Sequence[Entry], others: Sequence[Entry], measure: Callable[[Entry], float]) -> Dots | None:
    """BatchEvaluation by trial, and the ratio of the means of the trials that both have."""
    base = {entry["trial"]: measure(entry) for entry in others}
    pairs = [(measure(entry), base[entry["trial"]]) for entry in entries if entry["trial"] in base]
    if not pairs:
        return None
    above, below = zip(*pairs, strict=True)
    return Dots([one / other for one, other in pairs], fmean(above) / fmean(below))


# Words


class Words(NamedTuple):
    """Of a picture: what is seen and how it was measured; and what it shows, for those who cannot see it."""

    caption: str
    alt: str


WORDS = {
    "toy": Words(
        "One toy of two regimes, and what each method believes of it with the setting that was chosen on other toys: "
        "the mean, and the band that should hold 95 % of the observations, in the colour of the model that answers "
        "there. Colours repeat; they change where another model takes over.",
        "Samples of the toy, and mean and 95 % band of each method, coloured by the model that answers.",
    ),
    "toy_sweep": Words(
        "RMSE at samples between those learned, with noise, against the number of models, on several toys: a "
        "faint mark for each toy and threshold, and a line through the means of each threshold.",
        "RMSE on the toy against the number of models, for WGPR and SOLAR.",
    ),
    "models_sweep": Words(
        "kin40k, with the paper's settings and all thresholds: RMSE on the rows held out, and the speed of learning, "
        "against the number of models. A faint mark for each trial, and a line through the means of each threshold. "
        "Dotted: as published, with another machine and in MATLAB.",
        "RMSE and samples per second on kin40k against the number of models, for WGPR and SOLAR.",
    ),
    "learning_curves": Words(
        "The error on all that was held out, whole survey lines, stretches of track or blocks of time, while the "
        "stream is learned: the mean of the trials, and a band from the least to the largest. Broken lines: an exact "
        f"GP of at most {EXACT_ROWS:,} rows, and linear interpolation (on SARCOS the nearest neighbour), which have "
        "the whole stream at once.",
        "RMSE on the rows held out against the batches learned, a panel for each data set that is a stream.",
    ),
    "methods": Words(
        "RMSE of every method on the rows held out, over that of WGPR, each with the setting that was best on a part "
        "of the training stream. Faint: a trial, over the same trial of WGPR. Strong: the ratio of the means. Hollow: "
        "the ratio of the published means; beside the two lakes stands that of Claytor Lake, which is private.",
        "RMSE of every method over that of WGPR, by data set.",
    ),
    "coverage": Words(
        "How many of the rows held out are in the interval that should hold 95 % of them. Of the lakes and of SARCOS, "
        "whole survey lines, stretches of track or blocks of time were held out; of the others, random rows or the "
        "usual test set. Faint: a trial. Strong: the mean.",
        "Coverage of the 95 % interval, by data set and method.",
    ),
    "ablation": Words(
        "RMSE on the rows held out, mean of the trials, for every splitting rule with every prediction rule; updates "
        "learn the hyperparameters. Bold: the least of a data set. The colour is the ratio to it.",
        "Tables of the RMSE by splitting rule and prediction rule, a panel for each data set.",
    ),
    "frozen": Words(
        "RMSE on the rows held out when an update leaves the hyperparameters as they were when the model was started, "
        "over the RMSE when it learns them; by splitting rule, with the prediction of the nearest model. Faint: a "
        "trial. Strong: the ratio of the means.",
        "Ratio of RMSE, frozen over learned, by splitting rule and data set.",
    ),
    "candidates": Words(
        f"WGPR with other numbers of candidates, over itself with {N_CANDIDATES}: RMSE on the rows held out, by the "
        "nearest model, and processor time of learning. A faint mark for each trial, and a line through the ratios of "
        "the means.",
        "RMSE and processor time of WGPR against the number of candidates, a line for each data set.",
    ),
}


def _picture(name: str, figure: Figure) -> Picture:
    return Picture(name, figure, *WORDS[name], is_wide=True)
