"""The demo: WGPR, one streaming Gaussian process and linear interpolation on one survey, with a report.

The report has a table, conclusions in words, and pictures.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from wgpr import plots, report
from wgpr.cli.comparison import INTERPOLATION, MethodResult, Status, compare_methods
from wgpr.estimators.base import OnlineRegressor
from wgpr.estimators.regressors import StreamingGPRegressor, WGPRegressor
from wgpr.gp.linalg import Array
from wgpr.io.grids import predict_grid
from wgpr.plots.maps import height_over_width, horizontal_and_vertical
from wgpr.report import Picture, Section
from wgpr.survey import Survey, fly, hold_out, jacksboro

WGPR, ONE_GP = "WGPR", "one streaming GP"
_QUICK_ROWS = 2500
# Over a terrain of more nodes than this, only every third node is predicted.
_MANY_NODES = 50_000

_TERRAIN = (
    "The ground is real: the Jacksboro fault in Tennessee, with rugged mountains on one side and a flat valley on the "
    "other. A simulated aircraft flies over it in parallel lines, one after the other, and measures the height of the "
    "ground with a noise of a few metres: {n_rows:,} samples."
)
_OWN_ROWS = "The survey has {n_rows:,} rows to learn from, in the order of the file."
_PROCEDURE = (
    "Every method learned the samples in this order, a few at a time, and then predicted points that it had not seen. "
    "WGPR has its default settings: wgpr fit DATA -s random_state={seed} -o MAP"
)
_LEGEND = (
    "RMSE and NLPD (negative log predictive density): less is better. In 95 %: how many points are inside the 95 % "
    "interval. Seconds: of learning. Map: size of what must be kept to predict."
)


class DemoResult(NamedTuple):
    """The survey, the results in the order of the table, and the files that were written."""

    survey: Survey
    results: tuple[MethodResult, ...]
    page: Path
    pictures: tuple[Path, ...]


def run_demo(
    output: str | Path,
    *,
    quick: bool = False,
    data: tuple[Array, Array, Sequence[str]] | None = None,
    seed: int = 0,
    console: Console | None = None,
) -> DemoResult:
    """Compare the methods on a survey, print a table, and write a report and the map.

    Parameters
    ----------
    output : folder of the report, its pictures and the map; or the file of the report, if it ends in .html.
    quick : a smaller survey: the middle quarter of the terrain, or the first 2,500 of the user's rows.
    data : the user's own survey: X (n, d), y (n,), and the names of the columns of X and of y.
    seed : of the noise, the held-out points and the models.
    """
    console = console or Console()
    survey = _simulated_survey(quick, seed) if data is None else _own_survey(data, quick, seed)
    with status_lines(console, survey.unit) as show:
        results = compare_methods(survey, methods(seed), progress=show)
    print_table(console, results_table(survey, results))
    with console.status("drawing the report"):
        sections = report_sections(survey, results)
        page, pictures = report.write_report(output, survey.name, sections, footer="Made by wgpr demo.")
    map_file, model = page.with_name("wgpr.map"), results[0].model
    assert model is not None
    model.save(map_file)
    console.print(Text(f"Report: {page}\nMap: {map_file} (try wgpr info, wgpr plot)"), soft_wrap=True)
    return DemoResult(survey, results, page, pictures)


def methods(seed: int) -> dict[str, OnlineRegressor]:
    """WGPR with its defaults, and a single model.

    The settings of the single model were chosen on held-out lines of the flight, not on the points of the table.
    """
    single = StreamingGPRegressor(
        n_inducing=200, batch_size=400, kernel="matern32", optimizer_iterations=20, random_state=seed
    )
    return {WGPR: WGPRegressor(random_state=seed), ONE_GP: single}


def _simulated_survey(quick: bool, seed: int) -> Survey:
    terrain = jacksboro()
    n_rows, n_columns = terrain.elevation.shape
    middle = slice(n_rows // 4, 3 * n_rows // 4), slice(n_columns // 4, 3 * n_columns // 4)
    return fly(terrain.part(*middle) if quick else terrain, n_test=5_000 if quick else 20_000, random_state=seed)


def _own_survey(data: tuple[Array, Array, Sequence[str]], quick: bool, seed: int) -> Survey:
    X, y, (*input_names, target_name) = data
    some = slice(_QUICK_ROWS if quick else None)
    return hold_out(X[some], y[some], input_names=tuple(input_names), target_name=target_name, random_state=seed)


# In the terminal


@contextmanager
def status_lines(console: Console, unit: str) -> Iterator[Callable[[Status], None]]:
    """A function that shows a status in the terminal, in one line for each method."""
    name, words = (TextColumn(text, markup=False) for text in ("{task.description:<20}", "{task.fields[words]}"))
    tasks: dict[str, TaskID] = {}
    with Progress(name, BarColumn(bar_width=8), words, console=console) as bars:

        def show(status: Status) -> None:
            if status.method not in tasks:
                tasks[status.method] = bars.add_task(status.method, total=status.n_rows, words="")
            bars.update(tasks[status.method], completed=status.n_done, words=in_words(status, unit))

        yield show


def in_words(status: Status, unit: str) -> str:
    """Samples, models, RMSE, samples per second, and the time left or taken."""
    parts = [f"{status.n_done:,}/{status.n_rows:,}"]
    if status.errors:
        models = "1 model" if status.n_models == 1 else f"{status.n_models:,} models"
        parts += [models, f"RMSE {rounded(status.errors[-1][1])} {unit}".rstrip()]
    seconds_left = (status.n_rows - status.n_done) / status.rows_per_second
    time = f"{seconds_left:.0f} s left" if seconds_left else f"{status.seconds:.1f} s"
    return "  ".join([*parts, f"{status.rows_per_second:,.0f}/s", time])


def print_table(console: Console, table: report.Table) -> None:
    """Print the table of the report in the terminal."""
    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, header in enumerate(table.headers):
        grid.add_column(Text(header), justify="right" if number else "left", no_wrap=True)
    for cells in table.rows:
        grid.add_row(*map(Text, cells))
    console.print(grid, Text(table.note))


# The report


def report_sections(survey: Survey, results: Sequence[MethodResult]) -> list[Section]:
    """The whole report; the first result is that of WGPR."""
    model = results[0].model
    assert model is not None
    source = _OWN_ROWS if survey.terrain is None else _TERRAIN
    done = [source.format(n_rows=len(survey.y)), _PROCEDURE.format(seed=model.random_state)]
    return [
        Section("Survey and methods", done),
        Section("Results", [results_table(survey, results), *conclusions(survey, results)]),
        Section("Pictures", pictures(survey, results, model)),
    ]


def results_table(survey: Survey, results: Sequence[MethodResult]) -> report.Table:
    """A row for each method."""
    unit = f" [{survey.unit}]" if survey.unit else ""
    headers = ("", f"RMSE{unit}", "NLPD", "in 95 %", "models", "seconds", "map [kB]")
    rows = [
        (
            result.end.method,
            rounded(result.scores.rmse),
            _cell(result.scores.nlpd, ".2f"),
            _cell(result.scores.coverage, ".1%"),
            _cell(result.end.n_models, ","),
            f"{result.end.seconds:.1f}",
            f"{result.kilobytes:,.0f}",
        )
        for result in results
    ]
    return report.Table("Errors at the held-out points.", headers, rows, f"Held out: {survey.held_out}. {_LEGEND}")


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def rounded(value: float) -> str:
    """To three digits, or to a whole number.

    >>> rounded(31.04), rounded(0.012345), rounded(99.97), rounded(12345.6)
    ('31.0', '0.0123', '100', '12,346')
    """
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


# Conclusions


def conclusions(survey: Survey, results: Sequence[MethodResult]) -> list[str]:
    """What the table shows, in words, whichever method is ahead."""
    by_name = {result.end.method: result for result in results}
    wgpr, interpolation = by_name[WGPR], by_name.get(INTERPOLATION)
    sentences = [_on_uncertainty(wgpr), _on_one_gp(wgpr, by_name[ONE_GP], survey.unit)]
    if interpolation is None:
        return sentences
    return [_on_accuracy(wgpr, interpolation, survey.unit), *sentences, _on_size(wgpr, interpolation)]


def _on_accuracy(wgpr: MethodResult, interpolation: MethodResult, unit: str) -> str:
    error, other = wgpr.scores.rmse, interpolation.scores.rmse
    errors = f"an RMSE of {_with_unit(error, unit)} against {_with_unit(other, unit)}"
    if error < 0.98 * other:
        return f"WGPR is more accurate than linear interpolation: {errors}."
    if error <= 1.02 * other:
        return f"WGPR is as accurate as linear interpolation: {errors}."
    return (
        f"Linear interpolation is more accurate than WGPR: {errors}. It keeps every sample, which is hard to beat "
        "where samples are dense and have little noise. WGPR sees each sample once and keeps a summary."
    )


def _on_uncertainty(wgpr: MethodResult) -> str:
    coverage = wgpr.scores.coverage or 0.0
    limits = {0.85: "far too narrow", 0.93: "a little too narrow", 0.97: "about right"}
    judgement = next((words for limit, words in limits.items() if coverage < limit), "too wide")
    return (
        "WGPR predicts its own error, and so where another survey line would help most; interpolation does not. "
        f"Of the held-out points, {coverage:.1%} are inside the 95 % interval: the intervals are {judgement}. WGPR "
        f"learns online: it can predict at any time, and learns {wgpr.end.rows_per_second:,.0f} samples per second."
    )


def _on_one_gp(wgpr: MethodResult, single: MethodResult, unit: str) -> str:
    return (
        "One streaming Gaussian process has one length-scale everywhere and a fixed number of pseudo-inputs: its RMSE "
        f"is {_with_unit(single.scores.rmse, unit)}. WGPR starts a model where the field changes its character, or "
        f"where the old models are full: it has {wgpr.end.n_models} now, and an RMSE of "
        f"{_with_unit(wgpr.scores.rmse, unit)}."
    )


def _on_size(wgpr: MethodResult, interpolation: MethodResult) -> str:
    sizes = f"The map of WGPR takes {wgpr.kilobytes:,.0f} kB, and the samples {interpolation.kilobytes:,.0f} kB"
    if wgpr.kilobytes < interpolation.kilobytes:
        return f"{sizes}: it can be sent instead of them."
    return f"{sizes}. The map also holds the uncertainty. It grows with each model, not with each sample."


def _with_unit(value: float, unit: str) -> str:
    return f"{rounded(value)}\u00a0{unit}".strip()


# Pictures


def pictures(survey: Survey, results: Sequence[MethodResult], model: OnlineRegressor) -> list[Picture]:
    """Maps if there are two inputs, the history, the errors while learning, and the calibration."""
    history = (
        "The history of the stream: the log evidence of each batch, for the best of the candidate models and for a "
        "model of the batch alone. A new model starts if it gains more evidence than it costs."
    )
    calibration = "How many held-out points are inside central intervals. Below the line, intervals are too narrow."
    errors = "RMSE while learning, at held-out points of the whole area, also where the survey has not been yet."
    mean, std = results[0].mean, results[0].std
    assert std is not None
    return [
        *(_maps(survey, model) if survey.X.shape[1] == 2 else []),
        _picture("history", partial(plots.plot_history, model), history, "Log evidence of every step.", (12.0, 4.0)),
        _picture("learning", partial(_draw_errors, results, survey.unit), errors, "RMSE against samples learned."),
        _picture(
            "calibration",
            partial(plots.plot_calibration, survey.y_test, mean, std),
            calibration,
            "Observed against nominal coverage of the central intervals.",
        ),
    ]


def _picture(
    name: str, draw: Callable[..., object], caption: str, alt: str, size: tuple[float, float] = (6.0, 5.2)
) -> Picture:
    """A picture with one axes of this size in inches, drawn by `draw(ax=...)`."""
    figure = Figure(figsize=size, layout="constrained")
    draw(ax=figure.subplots())
    return Picture(name, figure, caption, alt, is_wide=size[0] > 6.0)


def _maps(survey: Survey, model: OnlineRegressor) -> list[Picture]:
    """The truth if it is known and the mean, on one colour scale; the uncertainty, and the local models."""
    terrain = survey.terrain
    if terrain is None:
        grid = predict_grid(model)
        field = grid["mean"].values
    else:
        every, field = 2 if terrain.elevation.size < _MANY_NODES else 3, terrain.elevation
        grid = predict_grid(model, terrain.region, every * np.array(terrain.spacing))
    ratio = height_over_width(*horizontal_and_vertical(grid["mean"])) or 0.75
    size = 6.0, float(np.clip(0.8 + 4.4 * ratio, 2.4, 9.0))
    limits: dict[str, Any] = {"vmin": float(field.min()), "vmax": float(field.max())}
    uncertainty: dict[str, Any] = {"latent": True, "vmin": 0.0, "vmax": float(np.quantile(grid["std_latent"], 0.99))}
    std_caption = "The standard deviation of the field. It is least where samples were taken."
    maps: list[tuple[str, Callable[..., object], str, str]] = [
        ("map", partial(plots.plot_map, grid, **limits), "The prediction of WGPR.", "Map of the predicted mean."),
        ("uncertainty", partial(plots.plot_uncertainty, grid, **uncertainty), std_caption, "Map of the uncertainty."),
        ("models", partial(plots.plot_models, grid), "The local model that counts most.", "Map of the local models."),
    ]
    if terrain is not None:
        maps.insert(0, ("truth", partial(_draw_truth, survey, **limits), "The truth.", "Map of the true elevation."))
    return [_picture(*each, size) for each in maps]


def _draw_truth(survey: Survey, *, ax: Axes, **limits: Any) -> None:
    assert survey.terrain is not None
    plots.plot_field(survey.terrain.elevation, survey.terrain.region, ax=ax, label=survey.target_name, **limits)
    ax.set(xlabel=survey.input_names[0], ylabel=survey.input_names[1])


def _draw_errors(results: Sequence[MethodResult], unit: str, *, ax: Axes) -> None:
    """The RMSE while learning; for interpolation, a level line at its final RMSE."""
    for result, colour in zip(results, plots.COLOURS, strict=False):
        if result.end.errors:
            ax.plot(*zip(*result.end.errors, strict=True), color=colour, label=result.end.method)
        else:
            ax.axhline(result.scores.rmse, color=colour, linestyle="--", label=f"{result.end.method}, at the end")
    ax.set(xlabel="samples", ylabel=f"RMSE [{unit}]" if unit else "RMSE", ylim=(0, None))
    ax.legend(frameon=False)
