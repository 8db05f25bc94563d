"""WGPR with its defaults on real streams, next to what else one could use. The figures of docs/streams.md.

    python benchmarks/streams.py FOLDER results.jsonl [--only kin40k,toy] [--trials 5] [--without regional]

FOLDER holds the data sets. No setting differs from one data set to another; `--without` leaves one part out, to see
what it does. Every result is a line of JSON; those that are in the file already are not done again.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console

from reproduction.contestants import make_lgpr
from reproduction.learning import judge, learn
from wgpr import WGPRegressor
from wgpr.cli.race import LinearInterpolation
from wgpr.datasets import Dataset, load, two_regimes
from wgpr.metrics import scores
from wgpr.survey import fly, jacksboro

ROWS_AT_A_TIME = 100

# What may be left out, and the settings that do so.
PARTS: dict[str, dict[str, Any]] = {
    "regional": {"batching": "arrival"},
    "joining": {"prediction": "nearest"},
    "calibration": {"calibrated": False},
    "price": {"splitting": "evidence"},
    "growing": {"n_inducing": 50},
    "rq": {"kernel": "se"},
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
        "kin40k, 100 models": (kin40k, {"max_inducing": 50, "max_models": 100}),
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


def measured(data: Dataset, trial: int, settings: dict[str, Any]) -> dict[str, Any]:
    """What WGPR makes of the stream: once while rows still wait, and once after they are learned."""
    model = WGPRegressor(**{**settings, "random_state": trial})
    started = process_time()
    for first in range(0, len(data.y), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        model.partial_fit(data.X[rows], data.y[rows])
    seconds = process_time() - started
    with_waiting = judged(model, data)
    model.flush()
    started = process_time()
    result = judged(model, data)
    return {
        **result,
        "rmse_with_waiting_rows": with_waiting["rmse"],
        "coverage_with_waiting_rows": with_waiting["coverage"],
        "models": model.n_models_,
        "pseudo_inputs": float(np.mean([len(Z) for Z in model.pseudo_inputs_])),
        "stretch": model._stretch(),
        "rows_per_second": len(data.y) / seconds,
        "queries_per_second": len(data.y_test) / (process_time() - started),
    }


def judged(model: WGPRegressor, data: Dataset) -> dict[str, float]:
    """Scores on the rows held out: observations, but for the terrain, which is known itself."""
    mean, std = model.predict(data.X_test, return_std=True, latent=data.name == "terrain")
    return scores(data.y_test, mean, std)._asdict()


def others(data: Dataset, trial: int) -> dict[str, float]:
    """Errors of linear interpolation and of LGPR on the same stream."""
    interpolation = LinearInterpolation()
    interpolation.partial_fit(data.X, data.y)
    interpolation.flush()
    lgpr = make_lgpr({"kernel": "matern32", "w_gen": 0.1, "max_samples": 500}, data.y, trial)
    learn(lgpr, data)
    return {
        "interpolation": scores(data.y_test, interpolation.at(data.X_test)).rmse,
        "lgpr": judge(lgpr, data.X_test, data.y_test)["rmse"],
    }


def jobs(arguments: argparse.Namespace) -> Iterator[tuple[str, int, Stream, dict[str, Any]]]:
    everything = streams(arguments.folder)
    names = arguments.only.split(";") if arguments.only else list(everything)
    for name in names:
        stream, settings = everything[name]
        for trial in range(10 if name == "toy" else arguments.trials):
            yield name, trial, stream, {**settings, **PARTS.get(arguments.without, {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--only", default="", help="names of streams, separated by semicolons")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--without", default="", choices=["", *PARTS])
    arguments = parser.parse_args()
    console = Console()
    lines = arguments.output.read_text().splitlines() if arguments.output.exists() else []
    done = {(line["name"], line["trial"], line["without"]) for line in map(json.loads, lines)}
    for name, trial, stream, settings in jobs(arguments):
        if (name, trial, arguments.without) in done:
            continue
        data = stream(trial)
        result = measured(data, trial, settings)
        if name.endswith("lines") or name == "terrain":
            result |= others(data, trial) if not arguments.without else {}
        with arguments.output.open("a") as file:
            file.write(json.dumps({"name": name, "trial": trial, "without": arguments.without, **result}) + "\n")
        shown = {key: f"{value:.4g}" for key, value in result.items()}
        console.print(name, trial, arguments.without, shown)


if __name__ == "__main__":
    main()
