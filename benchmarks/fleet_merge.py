"""Maps of several boats, merged: the table of docs/fleet.md.

    python benchmarks/fleet_merge.py --data FOLDER [--only "area;interleaved"] [--write]

Three boats survey Lake Opinicon: each stretch of the track (250 rows) belongs to one of them, by area with overlaps or
one after the other. A fifth of the stretches is held out. Their maps are merged and compared with that of one boat that
has all rows in their order; all figures are of five splits. `offsets` adds constants to the depths of two boats.
`time` merges two maps of 250 territories of `magnetic_britain`, from the same lines and from neighbouring areas.
With `--write` the table replaces what is between the markers of docs/fleet.md. Five minutes on one core.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from time import process_time

import numpy as np

from common import ROOT, Dataset, load, put_measured, run_studies
from wgpr import WGPRegressor, merge
from wgpr.metrics import Scores, scores

MARKERS = "<!-- merge -->", "<!-- end of merge -->"
TRIALS = range(5)

# Half the width of the strip that two neighbouring boats share, in km.
OVERLAP = 0.4

OFFSETS = np.array([0.0, 0.3, -0.2])

N_TERRITORIES = 250

Row = tuple[str, str]  # what is measured, and the result


def survey(folder: Path, trial: int) -> Dataset:
    return load("opinicon", folder).split(trial, 0.2, whole_groups=True)


def by_area(lake: Dataset) -> np.ndarray:
    """(n,) which boat takes each row: three areas from west to east; stretches near a border alternate."""
    stretches = np.unique(lake.groups)
    east = np.array([lake.X[lake.groups == each, 0].mean() for each in stretches])
    borders = np.quantile(lake.X[:, 0], [1 / 3, 2 / 3])
    boats = np.searchsorted(borders, east)
    for number, border in enumerate(borders):
        near = np.flatnonzero(np.abs(east - border) < OVERLAP)
        boats[near[np.argsort(east[near])]] = number + np.arange(len(near)) % 2
    return boats[np.searchsorted(stretches, lake.groups)]


def interleaved(lake: Dataset) -> np.ndarray:
    """(n,) which boat takes each row: stretches one after the other."""
    return np.unique(lake.groups, return_inverse=True)[1] % 3


WAYS = {"area": by_area, "interleaved": interleaved}


@cache
def boats_of(folder: Path, trial: int, way: str) -> list[WGPRegressor]:
    lake, boat = survey(folder, trial), WAYS[way](survey(folder, trial))
    return [WGPRegressor().fit(lake.X[boat == each], lake.y[boat == each]) for each in range(3)]


@cache
def one_boat(folder: Path, trial: int) -> Scores:
    lake = survey(folder, trial)
    return evaluated(WGPRegressor().fit(lake.X, lake.y), lake)


def evaluated(model: WGPRegressor, lake: Dataset) -> Scores:
    return scores(lake.y_test, *model.predict(lake.X_test, return_std=True))


def accuracy(way: str) -> Callable[[Path], list[Row]]:
    def study(folder: Path) -> list[Row]:
        merged = [evaluated(merge(*boats_of(folder, trial, way)), survey(folder, trial)) for trial in TRIALS]
        single = [one_boat(folder, trial) for trial in TRIALS]
        ratios = [ours.rmse / alone.rmse for ours, alone in zip(merged, single, strict=True)]
        rmse, rmse_alone = (np.mean([each.rmse for each in some]) for some in (merged, single))
        inside, inside_alone = (np.mean([each.coverage for each in some]) for some in (merged, single))
        name = f"three boats, {way}"
        return [
            (f"{name}: RMSE merged; of one boat [m]", f"{rmse:.3f}; {rmse_alone:.3f}"),
            (f"{name}: RMSE over that of one boat, mean (least to greatest)", f"{_range(ratios, '.3f')}"),
            (f"{name}: in the 95 % interval; of one boat", f"{inside:.1%}; {inside_alone:.1%}"),
        ]

    return study


def orders(folder: Path) -> list[Row]:
    """How much the order of merging changes the RMSE: all six at once, and two at a time."""
    rows = []
    for way in WAYS:
        at_once, by_two = [], []
        for trial in TRIALS:
            lake, boats = survey(folder, trial), boats_of(folder, trial, way)
            errors = [evaluated(merge(*order), lake).rmse for order in permutations(boats)]
            at_once.append(max(errors) / min(errors))
            by_two += [evaluated(model, lake).rmse / errors[0] for model in _two_at_a_time(boats)]
        rows += [
            (f"{way}: RMSE of the six orders of three maps, greatest over least", _range(at_once, ".3f")),
            (f"{way}: RMSE of two maps merged, then the third, over that of all at once", _range(by_two, ".3f")),
        ]
    return rows


def _two_at_a_time(boats: list[WGPRegressor]) -> Iterator[WGPRegressor]:
    for last in range(3):
        first, second = (boat for place, boat in enumerate(boats) if place != last)
        yield merge(merge(first, second), boats[last])


def offsets(folder: Path) -> list[Row]:
    """Constants on the depths of two boats, found again."""
    rows = []
    for way in WAYS:
        errors, deviations = [], []
        for trial in TRIALS:
            lake, boat = survey(folder, trial), WAYS[way](survey(folder, trial))
            maps = [
                WGPRegressor().fit(lake.X[boat == each], lake.y[boat == each] + offset)
                for each, offset in enumerate(OFFSETS)
            ]
            found = merge(*maps, align=True).offsets_
            errors += [each.offset - offset for each, offset in zip(found[1:], OFFSETS[1:], strict=True)]
            deviations += [each.std for each in found[1:]]
        sizes = np.abs(errors)
        rows += [
            (
                f"{way}, offsets of 0.3 and -0.2 m: error, root mean square; largest [m]",
                f"{np.sqrt(np.mean(sizes**2)):.3f}; {sizes.max():.3f}",
            ),
            (
                f"{way}, offsets: standard deviation, mean [m]; within two of them",
                f"{np.mean(deviations):.3f}; {(sizes < 2.0 * np.array(deviations)).sum()} of {len(sizes)}",
            ),
        ]
    return rows


def time(folder: Path) -> list[Row]:
    """Processor time of merging two maps of 250 territories."""
    with np.load(folder / "magnetic_britain.npz") as file:
        X, y, line = file["X"].astype(float), file["y"].astype(float), file["line"]
    number = np.unique(line, return_inverse=True)[1]
    order = np.argsort(X[:, 1], kind="stable")
    places = np.arange(len(y))
    ways = {
        "from alternate lines": [places[number % 2 == 0], places[number % 2 == 1]],
        "from neighbouring areas": [order[: len(y) // 2][::-1], order[len(y) // 2 :]],
    }
    rows = []
    for name, parts in ways.items():
        maps = [_with_territories(X[part], y[part], N_TERRITORIES) for part in parts]
        started = process_time()
        both = merge(*maps)
        seconds = process_time() - started
        counts = f"{maps[0].n_models_} and {maps[1].n_models_} territories become {both.n_models_}"
        rows.append((f"merging two maps {name} [s]", f"{seconds:.1f} ({counts})"))
    return rows


def _with_territories(X: np.ndarray, y: np.ndarray, n: int) -> WGPRegressor:
    """A map of the first rows, as many as make `n` territories."""
    model, start = WGPRegressor(), 0
    while not start or model.n_models_ < n:
        model.partial_fit(X[start : start + 500], y[start : start + 500])
        start += 500
    return model


def _range(values: list[float], form: str) -> str:
    mean, least, greatest = (format(each, form) for each in (np.mean(values), min(values), max(values)))
    return f"**{mean}** ({least} to {greatest})"


STUDIES = {
    "area": accuracy("area"),
    "interleaved": accuracy("interleaved"),
    "orders": orders,
    "offsets": offsets,
    "time": time,
}


def main() -> None:
    table = run_studies(__doc__, STUDIES, "docs/fleet.md")
    if table is not None:
        put_measured(ROOT / "docs" / "fleet.md", *MARKERS, table)


if __name__ == "__main__":
    main()
