"""What the demo has to say: its table, its verdict in words, and its pictures."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wgpr import plots
from wgpr.cli.race import Result
from wgpr.estimators.base import OnlineRegressor
from wgpr.io.grids import predict_grid
from wgpr.report import Picture, Section, Table
from wgpr.survey import Survey

WGPR, ONE_GP, INTERPOLATION = "WGPR", "one streamed GP", "linear interpolation"

# A map of more nodes than this takes long to ask, and is seen as well at fewer of them.
_MANY_NODES = 50_000

_ORDER = "Every method got the samples in this order, a few at a time, and was then asked about what it had not seen."
_LEGEND = (
    "RMSE and NLPD (negative log density): less is better. In 95 %: how many of them are in the interval that should "
    "hold 95 %. Seconds: of learning. Map: what must be kept."
)


def story(survey: Survey, results: Sequence[Result]) -> list[Section]:
    """The report: what was done, what came out, and pictures of it."""
    return [
        Section("What was done", [_source(survey), _ORDER, _settings(results[0])]),
        Section("What came out", [results_table(survey, results), *verdict(survey, results)]),
        Section("Pictures", pictures(survey, results)),
    ]


def results_table(survey: Survey, results: Sequence[Result]) -> Table:
    """A row for each contestant; "-" for what it does not have."""
    unit = f" [{survey.unit}]" if survey.unit else ""
    headers = ("", f"RMSE{unit}", "NLPD", "in 95 %", "models", "seconds", "map [kB]")
    rows = [_cells(result) for result in results]
    return Table("Errors on what was held out.", headers, rows, f"Held out: {survey.held_out}. {_LEGEND}")


def _cells(result: Result) -> tuple[str, ...]:
    nlpd, coverage, n_models = result.scores.nlpd, result.scores.coverage, result.end.n_models
    return (
        result.name,
        rounded(result.scores.rmse),
        "-" if nlpd is None else f"{nlpd:.2f}",
        "-" if coverage is None else f"{coverage:.1%}",
        "-" if n_models is None else f"{n_models:,}",
        f"{result.end.seconds:.1f}",
        f"{result.kilobytes:,.0f}",
    )


def _source(survey: Survey) -> str:
    if survey.terrain is None:
        return f"The survey has {len(survey.y):,} rows to learn from, in the order of the file."
    return (
        "The ground is real: the Jacksboro fault in Tennessee, rugged mountains on one side and a flat valley on the "
        "other. A simulated aircraft flies it in parallel lines, one after the other, and measures the height of the "
        f"ground below, with a noise of a few metres: {len(survey.y):,} samples."
    )


def _settings(ours: Result) -> str:
    """How to get the same map from the command line; no setting is changed."""
    model = ours.model
    assert isinstance(model, OnlineRegressor)
    return f"WGPR has its default settings: wgpr fit DATA -s random_state={model.random_state} -o MAP"


# The verdict


def verdict(survey: Survey, results: Sequence[Result]) -> list[str]:
    """What the table says, in words; also where it speaks against WGPR."""
    by_name = {result.name: result for result in results}
    ours, interpolation = by_name[WGPR], by_name.get(INTERPOLATION)
    sentences = [_on_uncertainty(ours), _on_one_model(ours, by_name[ONE_GP], survey.unit)]
    if interpolation is None:
        return sentences
    return [_on_accuracy(ours, interpolation, survey.unit), *sentences, _on_size(ours, interpolation)]


def _on_accuracy(ours: Result, interpolation: Result, unit: str) -> str:
    error, rival = ours.scores.rmse, interpolation.scores.rmse
    errors = f"an error (RMSE) of {_measured(ours, unit)} against {_measured(interpolation, unit)}"
    if error < 0.98 * rival:
        return f"WGPR is more accurate than linear interpolation: {errors}."
    if error <= 1.02 * rival:
        return f"WGPR is as accurate as linear interpolation: {errors}."
    return (
        f"Linear interpolation is more accurate than WGPR: {errors}. It keeps every sample, and is hard to beat where "
        "samples are dense and have little noise; WGPR sees each sample once, and keeps a summary."
    )


def _on_uncertainty(ours: Result) -> str:
    coverage = ours.scores.coverage or 0.0
    return (
        "WGPR knows how far it may be wrong, and so where another line would teach it most; interpolation does not. "
        f"Of the held-out points, {coverage:.1%} are in its 95 % interval: it is {_judgement(coverage)}. And it learns "
        f"online: it can answer at any time of the survey, and takes {ours.end.rows_per_second:,.0f} samples a second."
    )


def _judgement(coverage: float) -> str:
    """Of an interval that should cover 95 %."""
    limits = {0.85: "too sure of itself", 0.93: "a little too sure of itself", 0.97: "honest"}
    return next((words for limit, words in limits.items() if coverage < limit), "more careful than it need be")


def _on_one_model(ours: Result, single: Result, unit: str) -> str:
    return (
        "One streamed Gaussian process has one length-scale for everything, and its pseudo-inputs have to do for all "
        f"of it: its error is {_measured(single, unit)}. WGPR started a model whenever that was worth its price: "
        "another kind of ground, or no room in the old ones. "
        f"It has {ours.end.n_models} now, and an error of {_measured(ours, unit)}."
    )


def _on_size(ours: Result, interpolation: Result) -> str:
    sizes = f"WGPR's map takes {ours.kilobytes:,.0f} kB, and the samples {interpolation.kilobytes:,.0f} kB"
    if ours.kilobytes < interpolation.kilobytes:
        return f"{sizes}: it can be sent instead of them."
    return f"{sizes}: it also holds all that it is uncertain about. It grows with each model, not with each sample."


def _measured(result: Result, unit: str) -> str:
    return f"{rounded(result.scores.rmse)}\u00a0{unit}".strip()


def rounded(value: float) -> str:
    """To three digits, or to a whole number.

    >>> rounded(31.04), rounded(0.012345), rounded(99.97), rounded(12345.6)
    ('31.0', '0.0123', '100', '12,346')
    """
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


# The pictures


def pictures(survey: Survey, results: Sequence[Result]) -> list[Picture]:
    """Maps, if there are two inputs; and the history of the stream."""
    model = results[0].model
    assert isinstance(model, OnlineRegressor), "WGPR is the first"
    maps = _maps(survey, model) if survey.X.shape[1] == 2 else []
    return [
        *maps,
        _picture_of_history(model),
        _picture_of_learning(results, survey.unit),
        _picture_of_calibration(survey, results[0]),
    ]


def _maps(survey: Survey, model: OnlineRegressor) -> list[Picture]:
    grid = _predicted_grid(survey, model)
    limits = _colour_limits(survey, grid)
    truth = [] if survey.terrain is None else [_picture_of_truth(survey, limits)]
    return [*truth, _picture_of_map(grid, limits), _picture_of_uncertainty(grid), _picture_of_models(grid)]


def _predicted_grid(survey: Survey, model: OnlineRegressor) -> xr.Dataset:
    """Where the samples are; over a known terrain, at every second node of it, or third if there are many."""
    if survey.terrain is None:
        return predict_grid(model)
    every = 2 if survey.terrain.elevation.size < _MANY_NODES else 3
    return predict_grid(model, survey.terrain.region, every * np.array(survey.terrain.spacing))


def _colour_limits(survey: Survey, grid: xr.Dataset) -> tuple[float, float]:
    """The same for truth and prediction."""
    values = grid["mean"].values if survey.terrain is None else survey.terrain.elevation
    return float(values.min()), float(values.max())


def _picture_of_truth(survey: Survey, limits: tuple[float, float]) -> Picture:
    terrain = survey.terrain
    assert terrain is not None
    figure, ax = _square()
    plots.plot_field(terrain.elevation, terrain.region, ax=ax, label=survey.target_name, vmin=limits[0], vmax=limits[1])
    ax.set(xlabel=survey.input_names[0], ylabel=survey.input_names[1])
    return Picture("truth", figure, "The truth.", "Map of the true elevation.")


def _picture_of_map(grid: xr.Dataset, limits: tuple[float, float]) -> Picture:
    figure, ax = _square()
    plots.plot_map(grid, ax=ax, vmin=limits[0], vmax=limits[1])
    return Picture("map", figure, "What WGPR believes.", "Map of the predicted mean.")


def _picture_of_uncertainty(grid: xr.Dataset) -> Picture:
    figure, ax = _square()
    largest = float(np.quantile(grid["std_latent"], 0.99))
    plots.plot_uncertainty(grid, ax=ax, latent=True, vmin=0.0, vmax=largest)
    caption = "How far it may be wrong: the standard deviation of the field. It is least where samples were taken."
    return Picture("uncertainty", figure, caption, "Map of the standard deviation of the prediction.")


def _picture_of_models(grid: xr.Dataset) -> Picture:
    figure, ax = _square()
    plots.plot_models(grid, ax=ax)
    return Picture("models", figure, "Which local model counts most, where.", "Map of the local models' territories.")


def _picture_of_history(model: OnlineRegressor) -> Picture:
    figure, ax = _wide()
    plots.plot_history(model, ax=ax)
    caption = (
        "The history of the stream. For every batch, how likely it is for the best of the models that were tried, and "
        "as a model of its own. It starts a model if that is worth its price: another world, or no room in old ones."
    )
    alt = "Log evidence of every step, for the best candidate and for a new model, and which steps started a new model."
    return Picture("history", figure, caption, alt, is_wide=True)


def _picture_of_learning(results: Sequence[Result], unit: str) -> Picture:
    figure, ax = _square()
    for result, colour in zip(results, plots.COLOURS, strict=False):
        _draw_learning(ax, result, colour)
    ax.set(xlabel="samples", ylabel=f"RMSE [{unit}]" if unit else "RMSE", ylim=(0, None))
    ax.legend(frameon=False)
    caption = "The error on all held-out points, also on those that the survey has not come to yet."
    return Picture("learning", figure, caption, "Error on held-out points against the number of samples.")


def _draw_learning(ax: Axes, result: Result, colour: str) -> None:
    """The error on the way; a level line for who has none."""
    known = list({moment.rmse: (moment.n_done, moment.rmse) for moment in reversed(result.moments)}.values())[::-1]
    known = [(n_done, error) for n_done, error in known if error is not None]
    if known:
        ax.plot(*zip(*known, strict=True), color=colour, label=result.name)
    else:
        ax.axhline(result.scores.rmse, color=colour, linestyle="--", label=f"{result.name}, at the end")


def _picture_of_calibration(survey: Survey, ours: Result) -> Picture:
    figure, ax = _square()
    mean, std = ours.answers
    assert std is not None
    plots.plot_calibration(survey.y_test, mean, std, ax=ax)
    caption = (
        "How many held-out points are in the interval that should hold so many. Below the line: too sure of itself."
    )
    return Picture("calibration", figure, caption, "Observed against nominal coverage of the central intervals.")


def _square() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 5.2), layout="constrained")
    return figure, figure.subplots()


def _wide() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(12.0, 4.0), layout="constrained")
    return figure, figure.subplots()
