"""The figures of the report. Each function takes the results, and returns None if there are none to draw.

Of a study that is not complete, or of a data set that was missing, the results that exist are drawn. Faint marks are
single trials, strong ones their mean, and hollow ones were published. A method or a data set has one colour everywhere.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reproduction import plot_styles as look
from reproduction import published, studies
from reproduction.data import Array
from reproduction.fitting import EXACT_ROWS
from reproduction.methods import EXACT, INTERPOLATION, METHODS, METHODS_AND_REFERENCES, OURS
from reproduction.page import Picture
from reproduction.plan import ALL_CANDIDATES, BATCH_SIZE, DATASETS, N_CANDIDATES, TITLES, TOY_NOISE
from reproduction.plot_styles import STYLES, Dots, Style
from reproduction.results import Results, column
from reproduction.studies import ABLATION, ABLATION_DATASETS, CANDIDATES, SWEEP, TABLES, TOY_THRESHOLDS
from wgpr.metrics import HALF_WIDTH_95
from wgpr.plots import COLOURS
from wgpr.plots.maps import colour_numbers

_SPLITTING_LABELS = ("Wasserstein\n(WGPR)", "evidence", "distance\n(SOLAR)", "always", "never")
_PREDICTION_LABELS = ("nearest\n(WGPR)", "weighted\nmean", "best few\n(SOLAR)", "bary-\ncentre", "robust\nBCM")
SPLITTING = dict(zip(studies.SPLITTING, _SPLITTING_LABELS, strict=True))
PREDICTION = dict(zip(studies.PREDICTION, _PREDICTION_LABELS, strict=True))

STREAMS = ("opinicon", "tzibana", "sarcos")
LINE_WIDTHS = {"SOLAR": 2.8, "LGPR": 2.2, OURS: 1.6}  # equal curves can all be seen
_KIN40K_ROWS = 10_000
_RATIO_COLOURS, _MAX_RATIO = "YlGnBu", 4.0
_DARK = 0.6  # part of the colour scale above which text is white
_RMSE, _NEAREST_RMSE = "test.rmse", "rules.nearest.rmse"


# The toy


def toy_figure(results: Results) -> Picture | None:
    """The data, and the prediction of each method."""
    frame = results.of(studies.TOY_PICTURE)
    if frame.empty:
        return None
    lines = [row for method in TOY_THRESHOLDS for row in frame[frame["method"] == method].itertuples()]
    figure = Figure(figsize=(8.0, 2.1 * (1 + len(lines))), layout="constrained")
    top, *others = figure.subplots(1 + len(lines), 1, sharex=True, sharey=True)
    _draw_toy_data(top, lines[0], color="0.35")
    top.set_title("The data: every third sample", loc="left", fontsize="medium")
    for ax, row in zip(others, lines, strict=True):
        _draw_toy_prediction(ax, row)
    others[-1].set_xlabel("input")
    return _picture("toy", figure)


def _draw_toy_data(ax: Axes, row: Any, **style: Any) -> None:
    x, y = np.array(row.X), np.array(row.y)
    margin = 0.12 * np.ptp(y)
    ax.plot(x, y, ".", markersize=2.5, markeredgewidth=0, **style)
    ax.set(xlim=(x.min(), x.max()), ylim=(y.min() - margin, y.max() + margin), ylabel="target")


def _draw_toy_prediction(ax: Axes, row: Any) -> None:
    """A piece for each stretch of the line that one model predicts."""
    x, mean, std, model = (np.array(values) for values in (row.x, row.mean, row.std, row.model))
    _draw_toy_data(ax, row, color="0.75")
    colours = colour_numbers(model[None].astype(int), len(COLOURS) - 1)  # yellow is hard to see as a line
    starts = np.concatenate([[0], np.flatnonzero(np.diff(model)) + 1])
    for start, stop in zip(starts, [*starts[1:], len(x)], strict=True):
        piece, colour = slice(start, stop + 1), COLOURS[colours[int(model[start])]]
        half = HALF_WIDTH_95 * std[piece]
        ax.fill_between(x[piece], mean[piece] - half, mean[piece] + half, color=colour, alpha=0.3, linewidth=0)
        ax.plot(x[piece], mean[piece], color=colour, linewidth=1.5)
    number = f"{row.n_models:,} model{'s' if row.n_models > 1 else ''}"
    ax.set_title(f"{row.method}: {number}", loc="left", fontsize="medium")


def toy_sweep_figure(results: Results, seeds: tuple[int, ...]) -> Picture | None:
    """The error against the number of models, over all thresholds, on the toys with these seeds."""
    frames = {method: studies.toy_fits(results, method, seeds) for method in TOY_THRESHOLDS}
    if all(frame.empty for frame in frames.values()):
        return None
    figure = Figure(figsize=(8.0, 4.8), layout="constrained")
    ax = figure.subplots()
    for method in reversed(frames):  # WGPR on top
        _draw_sweep(ax, frames[method], _RMSE, STYLES[method])
        ax.plot(*published.TOY[method], **_star(method))
    ax.axhline(TOY_NOISE, color="0.4", linewidth=1, linestyle="--")
    ax.text(1.01, TOY_NOISE, f"noise\n{TOY_NOISE}", color="0.4", va="center", transform=ax.get_yaxis_transform())
    _label_models(ax, "RMSE")
    ax.set_yscale("log")
    look.log_ticks(ax.yaxis)
    _legend_with_published(figure, _star)
    return _picture("toy_sweep", figure)


def _star(method: str) -> dict[str, Any]:
    return {"marker": "*", "markersize": 14, "linestyle": "none", **look.hollow(STYLES[method])}


# The number of models, on kin40k


def sweep_figure(results: Results) -> Picture | None:
    """The error and the speed against the number of models."""
    frame = results.of(SWEEP, dataset="kin40k")
    if frame.empty:
        return None
    frame = frame.assign(speed=frame["n_rows"] / frame["seconds"])
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    error, speed = figure.subplots(1, 2)
    for method in reversed(TOY_THRESHOLDS):  # WGPR on top
        found = frame[frame["method"] == method]
        _draw_sweep(error, found, _RMSE, STYLES[method])
        _draw_sweep(speed, found, "speed", STYLES[method])
        error.axhline(published.RMSE.at["kin40k", method], **_dotted(method))
        speed.axhline(_KIN40K_ROWS / published.SECONDS.at["kin40k", method], **_dotted(method))
    _label_models(error, "RMSE")
    speed.set_yscale("log")
    _label_models(speed, "Samples per second of processor time")
    look.log_ticks(speed.yaxis, look.COUNT_TICKS)
    _legend_with_published(figure, _dotted)
    return _picture("models_sweep", figure)


def _dotted(method: str) -> dict[str, Any]:
    return {"color": STYLES[method].colour, "linestyle": ":", "linewidth": 1.5}


def _draw_sweep(ax: Axes, frame: pd.DataFrame, name: str, style: Style) -> None:
    """A mark for each fit, and a line through the means of each threshold, in their order."""
    if not frame.empty:
        ax.plot(frame["n_models"], frame[name], **look.faint(style))
        means = frame.groupby("value")[["n_models", name]].mean()
        ax.plot(means["n_models"], means[name], **look.strong(style))


def _legend_with_published(figure: Figure, style_of: Callable[[str], dict[str, Any]]) -> None:
    """Both methods, and what was published of them, drawn in this style."""
    lines = [look.line(STYLES[method], method) for method in TOY_THRESHOLDS]
    theirs = [Line2D([], [], label=f"{method}, published", **style_of(method)) for method in TOY_THRESHOLDS]
    look.legend(figure, [*lines, *theirs])


def _label_models(ax: Axes, title: str) -> None:
    ax.set_xscale("log")
    ax.set_xlabel("number of models")
    look.log_ticks(ax.xaxis, look.COUNT_TICKS)
    look.grid(ax, title)


# Learning curves


def learning_curves(results: Results) -> Picture | None:
    """The error while the stream is learned: a panel for each data set that is a stream."""
    curves = {dataset: _curves(results, dataset) for dataset in STREAMS}
    datasets = [dataset for dataset in STREAMS if curves[dataset]]
    if not datasets:
        return None
    figure = Figure(figsize=(max(6.5, 1.0 + 3.1 * len(datasets)), 3.9), layout="constrained")
    for ax, dataset in zip(figure.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        for method, trials in curves[dataset].items():
            _draw_curves(ax, trials, method)
        for method in (EXACT, INTERPOLATION):
            errors = column(results.of(TABLES, dataset=dataset, method=method), _RMSE)
            if len(errors):
                ax.axhline(errors.mean(), **_dashed(method))
        ax.set(xlabel=f"batches of {BATCH_SIZE}", ylim=(0.0, None))
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        look.grid(ax, TITLES[dataset])
    figure.axes[0].set_ylabel("RMSE on the rows held out")
    lines = [Line2D([], [], color=STYLES[m].colour, linewidth=LINE_WIDTHS[m], label=m) for m in reversed(LINE_WIDTHS)]
    look.legend(
        figure, [*lines, *(Line2D([], [], label=method, **_dashed(method)) for method in (EXACT, INTERPOLATION))]
    )
    return _picture("learning_curves", figure)


def _curves(results: Results, dataset: str) -> dict[str, list[Array]]:
    """By method, the curves (n_points, 2) of the trials."""
    frames = {method: results.of(TABLES, dataset=dataset, method=method) for method in LINE_WIDTHS}
    found = {method: [np.array(curve, float) for curve in frame.get("curve", []) if curve]
             for method, frame in frames.items()}  # fmt: skip
    return {method: trials for method, trials in found.items() if trials}


def _draw_curves(ax: Axes, trials: Sequence[Array], method: str) -> None:
    """Trials differ in their length: over the batches that all of them have."""
    batches = np.linspace(max(curve[0, 0] for curve in trials), min(curve[-1, 0] for curve in trials), 100)
    errors = np.array([np.interp(batches, *curve.T) for curve in trials])
    colour = STYLES[method].colour
    ax.fill_between(batches, errors.min(axis=0), errors.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    ax.plot(batches, errors.mean(axis=0), color=colour, linewidth=LINE_WIDTHS[method])


def _dashed(method: str) -> dict[str, Any]:
    return {"color": STYLES[method].colour, "linestyle": "--" if method == EXACT else "-.", "linewidth": 1.3}


# The methods


def methods_figure(results: Results) -> Picture | None:
    """The error of every method on every data set, over that of WGPR."""
    methods = [method for method in METHODS_AND_REFERENCES if method != OURS]
    theirs = published.RMSE.div(published.RMSE[OURS], axis=0).reindex(columns=methods)
    dots = {
        (dataset, method): found._replace(published=theirs.at[dataset, method])
        for dataset in DATASETS
        for method in methods
        if (found := _ratios(results, TABLES, _RMSE, {"dataset": dataset, "method": method}, method=OURS))
    }
    label = "RMSE, over that of WGPR (left of 1: better than WGPR)"
    return _picture("methods", look.ratio_figure(DATASETS, methods, dots, label)) if dots else None


def coverage_figure(results: Results) -> Picture | None:
    """The part of the rows held out that is in the 95 % interval."""
    methods = [*METHODS, EXACT]
    dots = {
        (dataset, method): Dots(found.tolist(), found.mean())
        for dataset in DATASETS
        for method in methods
        if len(found := column(results.of(TABLES, dataset=dataset, method=method), "test.coverage"))
    }
    if not dots:
        return None
    figure = look.dots_figure(DATASETS, methods, dots)
    ax = figure.axes[0]
    ax.axvline(0.95, color="0.3", linewidth=1)
    ax.set_xlim(min(0.85, ax.get_xlim()[0]), 1.01)
    ax.set_xlabel("part of the rows held out that are in their 95 % interval (left of 0.95: too narrow)")
    return _picture("coverage", figure)


def _ratios(results: Results, study: str, name: str, key: dict[str, Any], **base: Any) -> Dots | None:
    """A quantity over that of the same trial with `base` in the key, and the ratio of the means of these trials."""
    frames = [results.of(study, **key), results.of(study, **{**key, **base})]
    if any(frame.empty for frame in frames):
        return None
    pairs = pd.concat([frame.set_index("trial")[name] for frame in frames], axis=1, join="inner").to_numpy().T
    return Dots(pairs[0] / pairs[1], pairs[0].mean() / pairs[1].mean()) if pairs.size else None


# The elements of WGPR


def ablation_figure(results: Results) -> Picture | None:
    """The error of every splitting rule with every prediction rule: a panel for each data set."""
    errors = {dataset: _rule_errors(results, dataset) for dataset in ABLATION_DATASETS}
    datasets = [dataset for dataset in errors if not np.isnan(errors[dataset]).all()]
    if not datasets:
        return None
    ratios = {dataset: errors[dataset] / np.nanmin(errors[dataset]) for dataset in datasets}
    largest = max(float(np.nanmax(ratio)) for ratio in ratios.values())
    scale = LogNorm(1.0, min(max(largest, 2.0), _MAX_RATIO))
    figure = _figure_of_panels(len(datasets))
    for ax, dataset in zip(figure.axes, datasets, strict=True):
        _draw_errors(ax, errors[dataset], ratios[dataset], scale)
        ax.set_title(TITLES[dataset], loc="left", fontsize="medium")
    colours, extend = ScalarMappable(scale, _RATIO_COLOURS), "max" if largest > _MAX_RATIO else "neither"
    bar = figure.colorbar(colours, ax=figure.axes, label="RMSE, over the least of the panel", extend=extend)
    look.log_ticks(bar.ax.yaxis)
    return _picture("ablation", figure)


def _rule_errors(results: Results, dataset: str) -> Array:
    """Means over the trials, (splitting rules, prediction rules); not a number without any."""
    frame = results.of(ABLATION, dataset=dataset, update="learned")
    if frame.empty:
        return np.full((len(SPLITTING), len(PREDICTION)), np.nan)
    names = [f"rules.{rule}.rmse" for rule in PREDICTION]
    return frame.groupby("splitting")[names].mean().reindex(list(SPLITTING)).to_numpy()


def _figure_of_panels(n_panels: int) -> Figure:
    """In two columns; the splitting rules are named beside the first."""
    n_columns = min(2, n_panels)
    n_rows = -(-n_panels // n_columns)
    figure = Figure(figsize=(2.1 + 3.7 * n_columns, 0.5 + 3.3 * n_rows), layout="constrained")
    for number, ax in enumerate(figure.subplots(n_rows, n_columns, squeeze=False).ravel()):
        ax.tick_params(labelleft=number % n_columns == 0)
        if number >= n_panels:
            ax.remove()
    figure.supylabel("splitting rule", fontsize="medium")
    figure.supxlabel("prediction rule", fontsize="medium")
    return figure


def _draw_errors(ax: Axes, errors: Array, ratios: Array, scale: LogNorm) -> None:
    """Colours with the numbers on them."""
    ax.imshow(ratios, norm=scale, cmap=_RATIO_COLOURS, aspect="auto")
    for (row, place), error in np.ndenumerate(errors):
        if not np.isnan(error):
            colour = "white" if scale(float(ratios[row, place])) > _DARK else "black"
            weight = "bold" if ratios[row, place] == 1.0 else "normal"
            text = f"{error:,.0f}" if error >= 99.95 else f"{error:#.3g}"
            ax.text(place, row, text, color=colour, weight=weight, ha="center", va="center")
    ax.set_xticks(range(len(PREDICTION)), list(PREDICTION.values()), fontsize="small")
    ax.set_yticks(range(len(SPLITTING)), list(SPLITTING.values()), fontsize="small")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def frozen_figure(results: Results) -> Picture | None:
    """The error without learning hyperparameters in updates, over that with it."""
    keys = [{"splitting": splitting, "dataset": name} for splitting in SPLITTING for name in ABLATION_DATASETS]
    dots = {
        (key["splitting"], key["dataset"]): found
        for key in keys
        if (found := _ratios(results, ABLATION, _NEAREST_RMSE, {**key, "update": "frozen"}, update="learned"))
    }
    label = "RMSE with frozen hyperparameters, over that with learned ones"
    return _picture("frozen", look.ratio_figure(SPLITTING, ABLATION_DATASETS, dots, label)) if dots else None


def candidates_figure(results: Results) -> Picture | None:
    """Error and time against the number of models that are tried for each batch."""
    usual = results.of(CANDIDATES, n_candidates=N_CANDIDATES)
    if usual.empty:
        return None
    numbers = sorted(results.of(CANDIDATES)["n_candidates"].unique())
    datasets = [dataset for dataset in ABLATION_DATASETS if dataset in usual["dataset"].values]
    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    panels = {_NEAREST_RMSE: "RMSE", "seconds": "Processor time"}
    for ax, (name, title) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        for dataset in datasets:
            _draw_candidates(ax, results, dataset, name, numbers)
        _label_candidates(ax, numbers, f"{title}, over that with {N_CANDIDATES}")
    look.legend(figure, [look.line(STYLES[dataset], TITLES[dataset]) for dataset in datasets])
    return _picture("candidates", figure)


def _draw_candidates(ax: Axes, results: Results, dataset: str, name: str, numbers: Sequence[int]) -> None:
    """A faint mark for each trial, and a line through the ratios of the means."""
    keys = [{"dataset": dataset, "n_candidates": number} for number in numbers]
    ratios = [_ratios(results, CANDIDATES, name, key, n_candidates=N_CANDIDATES) for key in keys]
    known = [(place, dots) for place, dots in enumerate(ratios) if dots]
    for place, dots in known:
        ax.plot([place] * len(dots.trials), dots.trials, **look.faint(STYLES[dataset]))
    ax.plot([place for place, _ in known], [dots.mean for _, dots in known], **look.strong(STYLES[dataset]))


def _label_candidates(ax: Axes, numbers: Sequence[int], title: str) -> None:
    """With at least 5 % above and below: smaller differences are noise, and should look small."""
    ax.axhline(1.0, color="0.3", linewidth=1)
    ax.set_xticks(range(len(numbers)), ["all" if number == ALL_CANDIDATES else str(number) for number in numbers])
    ax.set_xlabel("models tried for each batch")
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0.95), max(high, 1.05))
    look.grid(ax, title)


# Captions, and what a figure shows for those who cannot see it

_CAPTIONS = {
    "toy": (
        "One toy of two regimes, and the prediction of each method with the setting that was chosen on other toys: "
        "the mean, and the band that should hold 95 % of the observations, in the colour of the model that predicts "
        "there. Colours repeat; they change where another model takes over.",
        "Samples of the toy, and mean and 95 % band of each method, coloured by the model that predicts.",
    ),
    "toy_sweep": (
        "RMSE at noisy samples between those learned, against the number of models, on several toys. Lines are through "
        "the means of each threshold.",
        "RMSE on the toy against the number of models, for WGPR and SOLAR.",
    ),
    "models_sweep": (
        "kin40k, with the paper's settings and all thresholds: RMSE on the rows held out, and the speed of learning, "
        "against the number of models. Lines are through the means of each threshold. Dotted: as published, with "
        "another machine and in MATLAB.",
        "RMSE and samples per second on kin40k against the number of models, for WGPR and SOLAR.",
    ),
    "learning_curves": (
        "The error on all rows held out, while the stream is learned: the mean of the trials, and a band from the "
        f"least to the largest. Broken lines: an exact GP on at most {EXACT_ROWS:,} rows, and linear interpolation (on "
        "SARCOS the nearest neighbour), which have the whole stream at once.",
        "RMSE on the rows held out against the batches learned, a panel for each data set that is a stream.",
    ),
    "methods": (
        "RMSE of every method on the rows held out, over that of WGPR in the same trial. Strong: the ratio of the "
        "means. Hollow: that of the published means, on the two lakes that of Claytor Lake, which is private.",
        "RMSE of every method over that of WGPR, by data set.",
    ),
    "coverage": (
        "The part of the rows held out that is in the 95 % interval.",
        "Coverage of the 95 % interval, by data set and method.",
    ),
    "ablation": (
        "RMSE on the rows held out, mean of the trials, for every splitting rule with every prediction rule; updates "
        "learn the hyperparameters. Bold: the least of a data set. The colour is the ratio to it.",
        "Tables of the RMSE by splitting rule and prediction rule, a panel for each data set.",
    ),
    "frozen": (
        "RMSE on the rows held out when updates leave the hyperparameters as they were when the model was started, "
        "over the RMSE when updates learn them; by splitting rule, with the prediction of the nearest model.",
        "Ratio of RMSE, frozen over learned, by splitting rule and data set.",
    ),
    "candidates": (
        f"WGPR with other numbers of candidates, over itself with {N_CANDIDATES}: RMSE on the rows held out, by the "
        "nearest model, and processor time of learning. Lines are through the ratios of the means.",
        "RMSE and processor time of WGPR against the number of candidates, a line for each data set.",
    ),
}


def _picture(name: str, figure: Figure) -> Picture:
    return Picture(name, figure, *_CAPTIONS[name], is_wide=True)
