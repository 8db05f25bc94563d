"""The demo: a survey, learned as it is flown, by WGPR and by what people would use instead."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from wgpr import report
from wgpr.cli.race import Contestant, LinearInterpolation, Moment, Result, race
from wgpr.cli.story import INTERPOLATION, ONE_GP, WGPR, results_table, rounded, story
from wgpr.estimators.base import OnlineRegressor
from wgpr.estimators.regressors import StreamingGPRegressor, WGPRegressor
from wgpr.gp.linalg import Array
from wgpr.survey import Survey, fly, hold_out, jacksboro

_QUICK_ROWS = 2500


@dataclass(frozen=True, eq=False)
class DemoResult:
    """The survey, who took part in the order of the table, and the files that were written."""

    survey: Survey
    results: tuple[Result, ...]
    page: Path
    pictures: tuple[Path, ...]


def run_demo(
    output: str | Path,
    *,
    quick: bool = False,
    data: tuple[Array, Array, Sequence[str]] | None = None,
    seed: int = 0,
    console: Console | None = None,
    size_of: Callable[[OnlineRegressor], float],
) -> DemoResult:
    """Fly, learn, and report.

    Parameters
    ----------
    output : folder of the report and its pictures, or where the page itself is to be, if that ends in .html.
    quick : over the middle of the terrain only, a quarter of it; of the user's rows, the first 2,500.
    data : the user's own survey in place of the terrain: X (n, d), y (n,), and the names of the columns and of y.
    seed : of the noise, of what is held out and of the models.
    size_of : kilobytes of a learned map.
    """
    console = console or Console()
    survey = _simulated_survey(quick, seed) if data is None else _own_survey(data, quick, seed)
    with LiveLine(console, survey.unit) as line:
        results = race(survey, contestants(survey, seed), size_of=size_of, progress=line)
    print_table(console, results_table(survey, results))
    with console.status("drawing the report"):
        page, pictures = report.write_report(output, survey.name, story(survey, results), footer="Made by wgpr demo.")
    map_file, ours = page.with_name("wgpr.map"), results[0].model
    assert isinstance(ours, OnlineRegressor)
    ours.save(map_file)
    console.print(Text(f"Report: {page}\nMap: {map_file} (try wgpr info, wgpr plot)"), soft_wrap=True)
    return DemoResult(survey, results, page, pictures)


def _simulated_survey(quick: bool, seed: int) -> Survey:
    terrain = jacksboro()
    n_rows, n_columns = terrain.elevation.shape
    middle = slice(n_rows // 4, 3 * n_rows // 4), slice(n_columns // 4, 3 * n_columns // 4)
    return fly(terrain.part(*middle) if quick else terrain, n_test=5_000 if quick else 20_000, random_state=seed)


def _own_survey(data: tuple[Array, Array, Sequence[str]], quick: bool, seed: int) -> Survey:
    X, y, (*input_names, target_name) = data
    some = slice(_QUICK_ROWS if quick else None)
    return hold_out(X[some], y[some], input_names=tuple(input_names), target_name=target_name, random_state=seed)


def contestants(survey: Survey, seed: int) -> dict[str, Contestant]:
    """WGPR with its defaults, and its rivals. Interpolation takes part in two and three dimensions.

    The settings of the single model were chosen on lines of the flight that were left out for this, and not on the
    points that the table is about.
    """
    single = StreamingGPRegressor(
        n_inducing=200, batch_size=400, kernel="matern32", optimizer_iterations=20, random_state=seed
    )
    interpolation = {INTERPOLATION: LinearInterpolation()} if survey.X.shape[1] in (2, 3) else {}
    return {WGPR: WGPRegressor(random_state=seed), ONE_GP: single, **interpolation}


class LiveLine:
    """A line in the terminal for each contestant, with its latest moment."""

    def __init__(self, console: Console, unit: str) -> None:
        name, state = (TextColumn(text, markup=False) for text in ("{task.description:<20}", "{task.fields[state]}"))
        self._progress, self._unit = Progress(name, BarColumn(bar_width=8), state, console=console), unit
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def __call__(self, moment: Moment) -> None:
        if moment.name not in self._tasks:
            self._tasks[moment.name] = self._progress.add_task(moment.name, total=moment.n_rows, state="")
        state = in_words(moment, self._unit)
        self._progress.update(self._tasks[moment.name], completed=moment.n_done, state=state)


def in_words(moment: Moment, unit: str) -> str:
    """Samples, models, error on held-out points, samples a second, time left or taken."""
    parts = [f"{moment.n_done:,}/{moment.n_rows:,}"]
    if moment.rmse is not None:
        models = "1 model" if moment.n_models == 1 else f"{moment.n_models:,} models"
        parts += [models, f"RMSE {rounded(moment.rmse)} {unit}".rstrip()]
    is_over = moment.n_done == moment.n_rows
    time = f"{moment.seconds:.1f} s" if is_over else f"{moment.seconds_left:.0f} s left"
    return "  ".join([*parts, f"{moment.rows_per_second:,.0f}/s", time])


def print_table(console: Console, table: report.Table) -> None:
    """The table of the report, in the terminal."""
    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, header in enumerate(table.headers):
        grid.add_column(Text(header), justify="right" if number else "left", no_wrap=True)
    for cells in table.rows:
        grid.add_row(*map(Text, cells))
    console.print(grid, Text(table.note))
