"""The demo: WGPR, one streaming Gaussian process and linear interpolation on one survey, with a report."""

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from wgpr import plots
from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, format_count, inform, progress_bar, stderr, stdout
from wgpr.cli.learn import choose_columns
from wgpr.cli.query import read_all
from wgpr.cli.settings import open_table
from wgpr.estimators.base import OnlineRegressor
from wgpr.estimators.regressors import StreamingGPRegressor, WGPRegressor
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.io.files import check_folder, write_file
from wgpr.io.grids import predict_one_output
from wgpr.metrics import Scores, scores
from wgpr.survey import Survey, fly, hold_out, jacksboro

WGPR, ONE_GP, INTERPOLATION = "WGPR", "one streaming GP", "linear interpolation"
_QUICK_ROWS, _ROWS_AT_A_TIME = 2500, 100

_TERRAIN = (
    "The ground is real: the Jacksboro fault in Tennessee, with rugged mountains on one side and a flat valley on the "
    "other. A simulated aircraft flies over it in parallel lines, one after the other, and measures the height of the "
    "ground with a noise of a few metres: {n_rows:,} samples."
)
_OWN_ROWS = "The survey has {n_rows:,} rows to learn from, in the order of the file."
_PROCEDURE = (
    "Every method learned the samples in this order, a few at a time, and then predicted points that it had not seen. "
    "One streaming Gaussian process has one length-scale everywhere and a fixed number of pseudo-inputs. WGPR divides "
    "the ground into territories, each with hyperparameters of its own: a territory that is full is divided, and one "
    "starts where the field changes its character. It has its default settings: wgpr fit DATA -o MAP"
)
_LEGEND = (
    "RMSE and NLPD (negative log predictive density): less is better. In 95 %: how many points are inside the 95 % "
    "interval; with fewer than 95 % the intervals are too narrow. Seconds: of learning. Map: size of what must be kept "
    "to predict; of interpolation these are all samples."
)
_MAP = "The prediction of WGPR, its uncertainty, its local models, and the history of its decisions."

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.55 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; }}
p {{ max-width: 44rem; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
th, td {{ padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #8886; white-space: nowrap; }}
tbody th {{ text-align: left; }}
figure {{ margin: 1.5rem 0; }}
img {{ max-width: 100%; background: white; border-radius: .3rem; }}
</style></head>
<body><h1>{title}</h1>
{body}
</body></html>
"""


@dataclass(frozen=True, eq=False)
class MethodResult:
    """A method after the whole survey.

    model : None for interpolation; seconds : of learning; kilobytes : of what must be kept to predict.
    """

    method: str
    model: OnlineRegressor | None
    scores: Scores
    seconds: float
    kilobytes: float


@opt.with_table_options
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the report and the map.")
    ] = Path("wgpr-demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller survey, in about 10 seconds.")] = False,
    data: Annotated[list[str], typer.Option(metavar="FILE", help="Your own survey.")] = [],  # noqa: B006
    x: opt.X = "",
    y: opt.Y = "",
    seed: Annotated[int, typer.Option(metavar="SEED", min=0, help="Seed of all random numbers.")] = 0,
    *,
    tables: dict[str, Any],
) -> None:
    """Learn a survey of real terrain, flown in lines with a noisy altimeter.

    WGPR, one streamed Gaussian process and linear interpolation learn the same survey. A table shows how accurate each
    is at points that none has seen. A report in HTML shows the maps, their uncertainty, and the history of decisions.

    Example: `wgpr demo --data survey.csv --x east,north --y depth`
    """
    if os.path.isfile(output):
        raise UsageError(f"{output} is a file and the report needs a folder; name another with -o")
    check_folder(output, remedy="name a folder elsewhere with -o")
    if data:
        table = open_table(data, tables)
        *inputs, target = choose_columns(table, opt.split_names(x), y)
        rows = read_all(table, [*inputs, target])[: _QUICK_ROWS if quick else None]
        names: dict[str, Any] = {"input_names": tuple(inputs), "target_name": target}
        survey = hold_out(rows[:, :-1], rows[:, -1], **names, random_state=seed)
    else:
        survey = simulated_survey(seed, quick=quick)
    run_demo(output, survey, seed)


def simulated_survey(seed: int, *, quick: bool = False) -> Survey:
    """A flight over real terrain. seed : of the noise and the held-out points; quick : only over its middle quarter."""
    terrain = jacksboro()
    n_rows, n_columns = terrain.elevation.shape
    middle = slice(n_rows // 4, 3 * n_rows // 4), slice(n_columns // 4, 3 * n_columns // 4)
    return fly(terrain.part(*middle) if quick else terrain, n_test=5_000 if quick else 20_000, random_state=seed)


def run_demo(folder: Path, survey: Survey, seed: int = 0) -> tuple[MethodResult, ...]:
    """Compare the methods on a survey, print a table, and write a report and the map.

    folder : of the report and the map; it is made if it does not exist. seed : of the models.
    """
    results = compare_methods(survey, methods(seed))
    table, model = results_table(survey, results), results[0].model
    assert model is not None
    note = f"Held out: {survey.held_out}. {_LEGEND}"
    stdout.print(f"{table.to_string()}\n\n{note}", markup=False)
    source = _OWN_ROWS if survey.terrain is None else _TERRAIN
    page, map_file = folder / "report.html", folder / "wgpr.map"
    with stderr.status("drawing the report"):
        above, below = (
            f"<p>{escape(text)}</p>" for text in (f"{source.format(n_rows=len(survey.y))} {_PROCEDURE}", note)
        )
        pictures = [_html_picture(*each) for each in _pictures(survey, model)]
        body = "\n".join([above, table.to_html(border=0), below, *pictures])
        text = _PAGE.format(title=escape(survey.name), body=body)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(page, text.encode())
    model.save(map_file)
    inform(f"Report: {page}\nMap: {map_file} (try wgpr info, wgpr plot)")
    return results


def methods(seed: int) -> dict[str, OnlineRegressor]:
    """WGPR with its defaults, and a single model.

    The settings of the single model were chosen on held-out lines of the flight, not on the points of the table.
    """
    single = StreamingGPRegressor(
        n_inducing=200, batch_size=400, kernel="matern32", optimizer_iterations=20, random_state=seed
    )
    return {WGPR: WGPRegressor(), ONE_GP: single}


def compare_methods(survey: Survey, models: Mapping[str, OnlineRegressor]) -> tuple[MethodResult, ...]:
    """Stream the survey into each model and score it on the held-out points. Interpolation of 2 or 3 inputs is last."""
    with one_blas_thread():
        results = [_result(survey, name, model) for name, model in models.items()]
        return (*results, _interpolation_result(survey)) if survey.X.shape[1] in (2, 3) else tuple(results)


def _result(survey: Survey, name: str, model: OnlineRegressor) -> MethodResult:
    """Scores are of the field if the truth is known, else of observations."""
    started, n_rows = perf_counter(), len(survey.y)
    with progress_bar(name, n_rows) as show:
        for first in range(0, n_rows, _ROWS_AT_A_TIME):
            model.partial_fit(*survey.rows(slice(first, first + _ROWS_AT_A_TIME)))
            show(first, format_count(model.n_models_, "model"))
        model.flush()
    seconds, kilobytes = perf_counter() - started, len(model.to_bytes(compact=True)) / 1000
    mean, std = predict_one_output(model, survey.named(survey.X_test), latent=survey.terrain is not None)
    return MethodResult(name, model, scores(survey.y_test, mean, std), seconds, kilobytes)


def _interpolation_result(survey: Survey) -> MethodResult:
    interpolator(survey.X[:10], survey.y[:10])  # what it imports is not learning
    started = perf_counter()
    interpolate = interpolator(survey.X, survey.y)
    seconds, mean = perf_counter() - started, interpolate(survey.X_test)
    kilobytes = 4 * (survey.X.size + survey.y.size) / 1000  # all samples in float32, as in a compact map
    return MethodResult(INTERPOLATION, None, scores(survey.y_test, mean), seconds, kilobytes)


def interpolator(X: Array, y: Array) -> Callable[[Array], Array]:
    """Linear interpolation between rows `X` (n, d), `y` (n,), with d of 2 or 3: a function of places (m, d).

    The nearest row answers beyond the outermost rows, and everywhere if all rows are on one line.
    """
    nearest = NearestNDInterpolator(X, y, rescale=True)
    try:
        triangles = LinearNDInterpolator(X, y, rescale=True)
    except QhullError:
        return nearest
    triangles(X[:1])  # the first query builds the search structure

    def interpolate(places: Array) -> Array:
        values = triangles(places)
        return np.where(np.isnan(values), nearest(places), values)

    return interpolate


def results_table(survey: Survey, results: Sequence[MethodResult]) -> pd.DataFrame:
    """The scores of each method, as text."""
    unit = f" [{survey.unit}]" if survey.unit else ""
    rows = [
        {
            f"RMSE{unit}": _rounded(result.scores.rmse),
            "NLPD": _cell(result.scores.nlpd, ".2f"),
            "in 95 %": _cell(result.scores.coverage, ".1%"),
            "models": _cell(result.model and result.model.n_models_, ","),
            "seconds": f"{result.seconds:.1f}",
            "compact map [kB]": f"{result.kilobytes:,.0f}",
        }
        for result in results
    ]
    return pd.DataFrame(rows, index=[result.method for result in results])


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _rounded(value: float) -> str:
    """To three digits, or to a whole number.

    >>> _rounded(31.04), _rounded(0.012345), _rounded(99.97), _rounded(12345.6)
    ('31.0', '0.0123', '100', '12,346')
    """
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def _pictures(survey: Survey, model: OnlineRegressor) -> Iterable[tuple[Figure, str]]:
    """The map and its history, and the truth if it is known, with their captions."""
    yield plots.summary_figure(model), _MAP
    if survey.terrain is not None:
        figure = Figure(figsize=(6.0, 5.2), layout="constrained")
        terrain, (x, y) = survey.terrain, survey.input_names
        ax = plots.plot_field(terrain.elevation, terrain.region, ax=figure.subplots(), label=survey.target_name)
        ax.set(xlabel=x, ylabel=y)
        yield figure, "The truth."


def _html_picture(figure: Figure, caption: str) -> str:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110)
    image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{b64encode(file.getvalue()).decode()}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
