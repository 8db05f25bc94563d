"""WGPR with its defaults on real streams, next to linear interpolation and LGPR. The figures of docs/streams.md.

    python benchmarks/streams.py --data FOLDER [--output streams.jsonl] [--only "kin40k;toy"] [--trials 5]
                                 [--without calibration] [--rows 1000] [--write]

FOLDER holds the data sets. All data sets are learned with the same settings; `--without` replaces one part of the
method by the paper's, to see what it does. Results are lines of JSON; those that are in the file already are not
measured again. An hour on one core; `--only toy --trials 1 --rows 500` takes some seconds.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console

import readme
from common import Dataset, Record, Results, interpolated, load, put_measured, require_data
from wgpr import LocalGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes
from wgpr.metrics import scores
from wgpr.survey import fly, jacksboro

ROWS_AT_A_TIME = 100

# Parts of the method that may be replaced, and the settings that do so.
PARTS: dict[str, dict[str, Any]] = {
    "calibration": {"calibrated": False},
    "rational quadratic": {"kernel": "se"},
    "everything": dict(WGPRegressor.published().get_params(), random_state=None),
}

Stream = Callable[[int], Dataset]


def streams(folder: Path) -> dict[str, tuple[Stream, dict[str, Any]]]:
    """Of each name, the stream of a trial and the settings that are not defaults, if a figure asks for some."""

    def kin40k(trial: int) -> Dataset:
        data = load("kin40k", folder)
        return data if trial == 0 else data.shuffled(trial)

    def first_rows(trial: int) -> Dataset:
        return kin40k(trial).rows(slice(2000))

    def raw_units(trial: int) -> Dataset:
        data = kin40k(trial)
        X, X_test = (100 * inputs + 1000 for inputs in (data.X, data.X_test))
        return replace(data, X=X, y=50 * data.y + 500, X_test=X_test, y_test=50 * data.y_test + 500)

    def random_rows(name: str) -> Stream:
        return lambda trial: load(name, folder).split(trial, 0.2)

    def whole_lines(name: str) -> Stream:
        return lambda trial: load(name, folder).split(trial, 0.2, whole_groups=True)

    return {
        "toy": (toy, {}),
        "abalone": (random_rows("abalone"), {}),
        "pumadyn": (random_rows("pumadyn"), {}),
        "tzibana": (random_rows("tzibana"), {}),
        "tzibana, lines": (whole_lines("tzibana"), {}),
        "sarcos": (random_rows("sarcos"), {}),
        "kin40k, 2,000 rows": (first_rows, {}),
        "terrain": (terrain, {}),
        "opinicon, lines": (whole_lines("opinicon"), {}),
        "kin40k": (kin40k, {}),
        "kin40k, 10 models": (kin40k, {"max_models": 10}),
        "kin40k, raw units": (raw_units, {}),
    }


def toy(trial: int) -> Dataset:
    """Two regimes; every other sample is learned, and the rest held out."""
    X, y, _ = two_regimes(6000, random_state=trial)
    return Dataset("toy", X[::2], y[::2], X[1::2], y[1::2], np.arange(3000), is_stream=True)


def terrain(trial: int) -> Dataset:
    """The survey of the demo, and the true elevation between its lines."""
    survey = fly(jacksboro(), random_state=trial)
    return Dataset(
        "terrain", survey.X, survey.y, survey.X_test, survey.y_test, np.arange(len(survey.y)), is_stream=True
    )


def measured(data: Dataset, trial: int, settings: dict[str, Any]) -> Record:
    """Scores and speed of WGPR on the stream."""
    model = WGPRegressor(**{**settings, "random_state": trial})
    started = process_time()
    for first in range(0, len(data.y), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        model.partial_fit(data.X[rows], data.y[rows])
    seconds = process_time() - started
    model.flush()
    started = process_time()
    result = evaluated(model, data)
    return {
        **result,
        "models": model.n_models_,
        "pseudo_inputs": float(np.mean([len(Z) for Z in model.pseudo_inputs_])),
        "calibration_factor": model._state.calibration.factor,
        "rows_per_second": len(data.y) / seconds,
        "queries_per_second": len(data.y_test) / (process_time() - started),
    }


def evaluated(model: WGPRegressor, data: Dataset) -> dict[str, float]:
    """Scores on the rows held out: noisy observations, or the true elevation of the terrain."""
    mean, std = model.predict(data.X_test, return_std=True, latent=data.name == "terrain")
    return scores(data.y_test, mean, std)._asdict()


def others(data: Dataset, trial: int) -> dict[str, float]:
    """Errors of linear interpolation and of LGPR on the same stream."""
    lgpr = LocalGPRegressor(w_gen=0.1, n_calibration=500, max_samples=500, kernel="matern32", random_state=trial)
    lgpr.fit(data.X, data.y)
    return {
        "interpolation": scores(data.y_test, interpolated(data.X, data.y, data.X_test)).rmse,
        "lgpr": scores(data.y_test, lgpr.predict(data.X_test)).rmse,
    }


def jobs(arguments: argparse.Namespace) -> Iterator[tuple[str, int, Stream, dict[str, Any]]]:
    everything = streams(arguments.data)
    for name in arguments.only or everything:
        stream, settings = everything[name]
        n_trials = 2 * arguments.trials if name == "toy" else arguments.trials
        settings = {**settings, **PARTS.get(arguments.without, {})}
        for trial in range(n_trials):
            yield name, trial, stream, settings


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .npz files")
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    parser.add_argument("--only", default="", help="names of streams, separated by semicolons")
    parser.add_argument(
        "--trials", type=int, default=5, help="splits or seeds of each stream; twice as many of the toy"
    )
    parser.add_argument("--without", default="", choices=["", *PARTS], help="a part that is replaced by the paper's")
    parser.add_argument("--write", action="store_true", help="put the means into docs/streams.md and README.md")
    parser.add_argument("--rows", type=int, help="learn only the first so many rows")
    arguments = parser.parse_args()
    arguments.only = [name.strip() for name in arguments.only.split(";") if name.strip()]
    if unknown := [name for name in arguments.only if name not in streams(arguments.data)]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(streams(arguments.data))}")
    names = {name.partition(",")[0] for name in arguments.only or streams(arguments.data)}
    require_data(parser, arguments.data, names - {"toy", "terrain"})
    return arguments


def main() -> None:
    arguments, console = parsed(), Console()
    results = Results(arguments.output)
    for name, trial, stream, settings in jobs(arguments):
        facts = {"name": name, "trial": trial, "without": arguments.without, "rows": arguments.rows}
        if results.matching(facts):
            continue
        data = stream(trial).rows(slice(arguments.rows))
        result = measured(data, trial, settings)
        if (name.endswith("lines") or name == "terrain") and not arguments.without:
            result |= others(data, trial)
        results.add(facts | result)
        console.print(name, trial, arguments.without, {key: f"{value:.4g}" for key, value in result.items()})
    if arguments.write:
        write(results.matching({"without": "", "rows": None}))


def write(records: list[Record]) -> None:
    """Put a table of the means into docs/streams.md, and the README's table of it."""
    columns = (
        "stream (trials)",
        "RMSE (least to greatest)",
        "in 95 % (least to greatest)",
        "NLPD",
        "models",
        "rows a second",
        "queries a second",
    )
    lines = [f"| {' | '.join((*columns, 'for comparison'))} |", "|---|---:|---|---:|---:|---:|---:|---|"]
    for name in dict.fromkeys(record["name"] for record in records):
        rows = [record for record in records if record["name"] == name]
        rmse, coverage = ([row[key] for row in rows] for key in ("rmse", "coverage"))
        speeds = ("rows_per_second", "queries_per_second")
        nlpd, models, *rates = (np.mean([row[key] for row in rows]) for key in ("nlpd", "models", *speeds))
        rivals = {"interpolation": "linear interpolation", "lgpr": "LGPR"}
        compared = [
            f"{word} {np.mean([row[key] for row in rows]):.3g}" for key, word in rivals.items() if key in rows[0]
        ]
        cells = (
            f"{name} ({len(rows)})",
            f"**{np.mean(rmse):.3g}** ({min(rmse):.3g} to {max(rmse):.3g})",
            f"{np.mean(coverage):.1%} ({min(coverage):.0%} to {max(coverage):.0%})",
            f"{nlpd:.2f}",
            f"{models:.0f}",
            *(f"{rate:,.0f}" for rate in rates),
            ", ".join(compared),
        )
        lines.append(f"| {' | '.join(cells)} |")
    put_measured(readme.STREAMS, *readme.STREAM_MARKERS, "\n".join(lines) + "\n")
    readme.write()


if __name__ == "__main__":
    main()
