"""The default over linear interpolation on many surveys: which is ahead, how often, by how much (docs/streams.md).

    python benchmarks/many_surveys.py --data FOLDER [--only "turned lines;lakes"] [--write]

A few rows have most of the squared error of a real survey, so that one choice of held-out lines says little. `windows`:
parts of 10,000 rows, evenly spread over `magnetic_britain`, and `100,000 rows` its beginning, each with a tenth of the
segments held out, five times for the latter. `rio`: each eighth of the lines of `magnetic_rio` held out once. `lakes`:
a fifth of the lines or stretches of each lake, five times. `terrain`: the demo's, flown with lines of three distances.
`turned lines`: synthetic lakes with one or two regimes, whose lines are turned against the axes by several angles.
With `--write` the table replaces what is between the markers of the page. 15 minutes on one core.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from common import ROOT, interpolated, load, put_measured, run_studies
from wgpr import WGPRegressor
from wgpr.metrics import scores
from wgpr.survey import fly, jacksboro

PAGE = ROOT / "docs/streams.md"
BEGIN, END = "<!-- measured by benchmarks/many_surveys.py -->", "<!-- end of many surveys -->"
ROWS_AT_A_TIME = 1000
ANGLES = (0.0, 0.5, 2.0, 4.0, 20.0, 45.0, 86.0, 88.0)  # degrees between the lines and an axis


class Case(NamedTuple):
    """Rows `X` (n, 2), `y` (n,) in the order of a survey, and those held out, which have noise or are the truth."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    is_truth: bool = False


class Result(NamedTuple):
    """RMSE and median absolute error over those of linear interpolation; fraction in the 95 % interval."""

    rmse: float
    median: float
    coverage: float


# Surveys


def split(X: np.ndarray, y: np.ndarray, line: np.ndarray, seed: int, fraction: float = 0.1) -> Case:
    """A fraction of the lines, drawn at random, is held out."""
    lines = np.unique(line)
    drawn = np.random.default_rng(seed).choice(lines, max(1, round(fraction * len(lines))), replace=False)
    return held_out(X, y, np.isin(line, drawn))


def held_out(X: np.ndarray, y: np.ndarray, is_held: np.ndarray) -> Case:
    return Case(X[~is_held], y[~is_held], X[is_held], y[is_held])


def recorded(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, values and lines of a magnetic survey, without its tie lines."""
    with np.load(folder / f"{name}.npz") as file:
        used = ~file["is_tie"] if "is_tie" in file else np.ones(len(file["y"]), dtype=bool)
        return file["X"][used].astype(float), file["y"][used].astype(float), file["line"][used]


def windows(folder: Path) -> Iterator[Case]:
    X, y, line = recorded("magnetic_britain", folder)
    for seed, first in enumerate(np.linspace(0, len(y) - 10_000, 24).astype(int)):
        part = slice(first, first + 10_000)
        yield split(X[part], y[part], line[part], seed)


def first_rows(folder: Path) -> Iterator[Case]:
    X, y, line = (values[:110_000] for values in recorded("magnetic_britain", folder))
    yield from (split(X, y, line, seed) for seed in range(5))


def rio(folder: Path) -> Iterator[Case]:
    X, y, line = recorded("magnetic_rio", folder)
    eighth = np.unique(line, return_inverse=True)[1] % 8
    yield from (held_out(X, y, eighth == each) for each in range(8))


def lakes(folder: Path) -> Iterator[Case]:
    for name in ("opinicon", "tzibana"):
        for seed in range(5):
            data = load(name, folder).split(seed, 0.2, whole_groups=True)
            yield Case(data.X, data.y, data.X_test, data.y_test)


def terrain(folder: Path) -> Iterator[Case]:
    for spacing in (0.37, 0.74, 1.48):
        flown = fly(jacksboro(), line_spacing=spacing, random_state=0)
        yield Case(flown.X, flown.y, flown.X_test, flown.y_test, is_truth=True)


def turned_lines(folder: Path) -> Iterator[Case]:
    """Lakes of 1,000 x 1,000 m, lines 40 m apart, soundings every 4 m with 5 cm of noise, 200 m and 60 m of detail."""
    for number, angle in enumerate(ANGLES):
        for has_regimes in (False, True):
            rng = np.random.default_rng(number)
            east, north = np.meshgrid(np.arange(0.0, 1000.0, 4.0), np.arange(0.0, 1000.0, 40.0))
            east[1::2] = east[1::2, ::-1]  # back and forth
            places = np.column_stack([east.ravel(), north.ravel()])
            tests = rng.uniform(0.0, 1000.0, (3000, 2))
            depth = synthetic_depth(rng, has_regimes)
            y = depth(places) + 0.05 * rng.standard_normal(len(places))
            turn = np.deg2rad(angle)
            rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
            yield Case(places @ rotation, y, tests @ rotation, depth(tests), is_truth=True)


def synthetic_depth(rng: np.random.Generator, has_regimes: bool):
    """A random field of 60 waves with 200 m of detail; with regimes, ground of 60 m of detail lies in the east."""
    fields = []
    for lengthscale in (200.0, 60.0):
        waves = rng.standard_normal((60, 2)) / lengthscale
        fields.append((waves, rng.uniform(0.0, 2 * np.pi, 60)))

    def depth(places: np.ndarray) -> np.ndarray:
        smooth, rough = (np.sqrt(2 / 60) * np.cos(places @ waves.T + phase).sum(axis=1) for waves, phase in fields)
        in_east = 1.0 / (1.0 + np.exp(-(places[:, 0] - 550.0) / 15.0))
        return 10.0 + 2.0 * smooth + (in_east * rough if has_regimes else 0.0)

    return depth


# The comparison


def compared(case: Case) -> Result:
    model = WGPRegressor()
    for first in range(0, len(case.y), ROWS_AT_A_TIME):
        model.partial_fit(case.X[first : first + ROWS_AT_A_TIME], case.y[first : first + ROWS_AT_A_TIME])
    mean, std = model.predict(case.X_test, return_std=True, latent=case.is_truth)
    errors = np.abs(mean - case.y_test)
    errors_of_linear = np.abs(interpolated(case.X, case.y, case.X_test) - case.y_test)
    return Result(
        float(np.sqrt((errors**2).mean() / (errors_of_linear**2).mean())),
        float(np.median(errors) / np.median(errors_of_linear)),
        scores(case.y_test, mean, std).coverage,
    )


SURVEYS = {
    "turned lines": turned_lines,
    "windows": windows,
    "100,000 rows": first_rows,
    "rio": rio,
    "lakes": lakes,
    "terrain": terrain,
}
TITLES = {
    "turned lines": "synthetic lakes, lines turned by 0 to 88 degrees",
    "windows": "parts of `magnetic_britain`, 10,000 rows each",
    "100,000 rows": "first 110,000 rows of `magnetic_britain`, splits",
    "rio": "`magnetic_rio`, splits",
    "lakes": "Lakes Opinicon and Tzibana, splits",
    "terrain": "the demo's terrain, distances of lines",
}


def study(name: str):
    """A function of the data folder with the one row of the table for some surveys."""

    def rows(folder: Path) -> list[tuple[str, str]]:
        cases = [*SURVEYS[name](folder)]
        console = Console(stderr=True)
        results = [compared(case) for case in track(cases, name, transient=True, console=console)]
        for result in results:
            console.print(f"{name}: " + ", ".join(f"{value:.3f}" for value in result), highlight=False)
        rmse, median, coverage = (np.array(values) for values in zip(*results, strict=True))
        means = [f"{np.exp(np.log(each).mean()):.2f} ({each.min():.2f} to {each.max():.2f})" for each in (rmse, median)]
        ahead = f"{(rmse < 1.0).sum()} of {len(rmse)}"
        return [(TITLES[name], " | ".join([ahead, *means, f"{coverage.mean():.1%} ({coverage.min():.1%})"]))]

    return rows


HEADINGS = (
    "ahead in RMSE",
    "RMSE over linear interpolation's (least to greatest)",
    "median error, likewise",
    "in 95 % (least)",
)


def main() -> None:
    table = run_studies(__doc__, {name: study(name) for name in SURVEYS}, "docs/streams.md", HEADINGS)
    if table is not None:
        put_measured(PAGE, BEGIN, END, table)


if __name__ == "__main__":
    main()
