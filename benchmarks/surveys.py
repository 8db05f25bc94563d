"""The default on large and awkward surveys: the second table of docs/streams.md.

    python benchmarks/surveys.py --data FOLDER [--only "magnetic_rio;spike"] [--write]

Whole lines are held out of `magnetic_rio` (every eighth) and whole segments of `magnetic_britain` (a tenth, at random).
Other rows change a stream and compare with the unchanged one: columns in other units, a spike, rows given one by one
or in random order.
With `--write` the table replaces what is between the markers of docs/streams.md, and that of README.md follows. Ten
minutes on one core, most of them for `magnetic_britain`.
"""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import numpy as np
from rich.console import Console
from rich.progress import track

import readme
from common import Dataset, interpolated, load, put_measured, run_studies
from wgpr import WGPRegressor
from wgpr.metrics import scores
from wgpr.survey import fly, jacksboro

ROWS_AT_A_TIME = 1000

Row = tuple[str, str]  # what is measured, and the result


def learned(X: np.ndarray, y: np.ndarray, rows_at_a_time: int = ROWS_AT_A_TIME) -> tuple[WGPRegressor, float]:
    """The default after these rows, and the seconds of processor time that they took."""
    model, started = WGPRegressor(), process_time()
    for first in track(
        range(0, len(y), rows_at_a_time), f"{len(y):,} rows", transient=True, console=Console(stderr=True)
    ):
        model.partial_fit(X[first : first + rows_at_a_time], y[first : first + rows_at_a_time])
    return model, process_time() - started


def survey(name: str, is_held: Callable[[np.ndarray], np.ndarray], folder: Path) -> list[Row]:
    """Errors on the rows held out, next to linear interpolation, and speed."""
    with np.load(folder / f"{name}.npz") as file:
        used = ~file["is_tie"] if "is_tie" in file else np.ones(len(file["y"]), dtype=bool)
        X, y, held = file["X"][used].astype(float), file["y"][used].astype(float), is_held(file["line"][used])
    model, seconds = learned(X[~held], y[~held])
    started = process_time()
    mean, std = model.predict(X[held], return_std=True)
    answering = process_time() - started
    ours = scores(y[held], mean, std)
    linear = interpolated(X[~held], y[~held], X[held])
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    evidences = [abs(record.evidence[0] or 0.0) / max(1, record.n_samples) for record in model.history_]
    error, error_of_linear = (np.median(np.abs(values - y[held])) for values in (mean, linear))
    n_rows, rmse_of_linear = int((~held).sum()), _rmse(linear, y[held])
    rates = f"{n_rows / seconds:,.0f}; {held.sum() / answering:,.0f}"
    return [
        (f"{name}, {n_rows:,} rows: RMSE; of linear interpolation", f"{ours.rmse:.1f}; {rmse_of_linear:.1f}"),
        (f"{name}: median absolute error; of linear interpolation", f"{error:.2f}; {error_of_linear:.2f}"),
        (f"{name}: in the 95 % interval; models", f"{ours.coverage:.1%}; {model.n_models_:,}"),
        (f"{name}: rows learned a second; queries answered a second", rates),
        (f"{name}: largest memory of the process so far [MB]", f"{megabytes:,.0f}"),
        (f"{name}: largest absolute log evidence of a row in the history", f"{max(evidences):.1f}"),
    ]  # fmt: skip


def magnetic_rio(folder: Path) -> list[Row]:
    return survey("magnetic_rio", lambda line: np.unique(line, return_inverse=True)[1] % 8 == 4, folder)


def magnetic_britain(folder: Path) -> list[Row]:
    def tenth(line: np.ndarray) -> np.ndarray:
        segments = np.unique(line)
        return np.isin(line, np.random.default_rng(0).choice(segments, len(segments) // 10, replace=False))

    return survey("magnetic_britain", tenth, folder)


def units(folder: Path) -> list[Row]:
    """RMSE in the units of the data, and with columns in other units."""
    rows = []
    cases = [("terrain, north times 100", terrain(), np.array([1.0, 100.0]))]
    cases.append(("kin40k, columns times 0.001 to 1,000", load("kin40k", folder), 10.0 ** np.linspace(-3, 3, 8)))
    for name, data, factors in cases:
        errors = [
            _rmse(learned(data.X * scale, data.y)[0].predict(data.X_test * scale), data.y_test)
            for scale in (np.ones_like(factors), factors)
        ]
        rows.append((f"{name}: RMSE; unscaled", f"{errors[1]:.4g}; {errors[0]:.4g}"))
    return rows


def spike(folder: Path) -> list[Row]:
    """RMSE within 1 km of a spike of 100 standard deviations, over that without it; the largest of three places."""
    data, ratios = terrain(), []
    plain = learned(data.X, data.y)[0].predict(data.X_test)
    for row in (1000, 4300, 7000):
        y = data.y.copy()
        y[row] += 100 * y.std()
        near = np.hypot(*(data.X_test - data.X[row]).T) < 1.0
        mean = learned(data.X, y)[0].predict(data.X_test)
        ratios.append(_rmse(mean[near], data.y_test[near]) / _rmse(plain[near], data.y_test[near]))
    return [
        ("terrain, a spike of 100 standard deviations: RMSE within 1 km over that without it", f"{max(ratios):.2f}")
    ]


def one_by_one(folder: Path) -> list[Row]:
    """Time and answers of rows given one by one, compared with rows given by the thousand."""
    data = terrain()
    (single, seconds), (many, seconds_of_many) = (learned(data.X, data.y, n) for n in (1, 1000))
    difference = np.abs(single.predict(data.X_test) - many.predict(data.X_test)).max()
    what = "terrain, rows one by one over rows by the thousand: time; largest difference of answers"
    return [(what, f"{seconds / seconds_of_many:.2f} times; {difference:.2g} m")]


def random_order(folder: Path) -> list[Row]:
    """RMSE on a random fifth of the rows over that of linear interpolation, in survey order and twice shuffled."""
    return [(f"{name}, random fifth held out: RMSE over linear interpolation's; rows shuffled, twice", _orders(X, y))
            for name, X, y in _parts(folder)]  # fmt: skip


def _parts(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Both lakes, `magnetic_rio` and four parts of `magnetic_britain`, with their names."""
    for name in ("opinicon", "tzibana"):
        data = load(name, folder)
        yield name, data.X, data.y
    with np.load(folder / "magnetic_rio.npz") as file:
        yield "magnetic_rio", file["X"], file["y"]
    with np.load(folder / "magnetic_britain.npz") as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
    for first in range(0, 600_000, 150_000):
        rows = slice(first, first + 20_000)
        yield f"magnetic_britain from row {first:,}", X[rows], y[rows]


def _orders(X: np.ndarray, y: np.ndarray) -> str:
    rng = np.random.default_rng(0)
    held = rng.random(len(y)) < 0.2
    X_held, y_held, X, y = X[held], y[held], X[~held], y[~held]
    linear = _rmse(interpolated(X, y, X_held), y_held)
    orders = np.arange(len(y)), rng.permutation(len(y)), rng.permutation(len(y))
    return "; ".join(f"{_rmse(learned(X[rows], y[rows])[0].predict(X_held), y_held) / linear:.2f}" for rows in orders)


def terrain() -> Dataset:
    flown = fly(jacksboro(), random_state=0)
    return Dataset("terrain", flown.X, flown.y, flown.X_test, flown.y_test, np.arange(len(flown.y)), is_stream=True)


def _rmse(mean: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((mean - truth) ** 2)))


STUDIES = {study.__name__: study for study in (units, spike, one_by_one, random_order, magnetic_rio, magnetic_britain)}


def main() -> None:
    table = run_studies(__doc__, STUDIES, "docs/streams.md and README.md")
    if table is not None:
        put_measured(readme.STREAMS, *readme.SURVEY_MARKERS, table)
        readme.write()


if __name__ == "__main__":
    main()
