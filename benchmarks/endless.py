"""A long stream that always reaches new ground: memory, time, number of models and errors as it goes on.

    python benchmarks/endless.py [--rows 1000000] [--max-models 500] [--output endless.jsonl]

A boat goes up and down a channel, each time further. Every 40 m the field has another length-scale and amplitude, and
other noise. Default settings, but for `--max-models`. A line for every twentieth of the stream: models, time for a
batch of 100 rows, resident memory, and the RMSE of rows that are predicted before they are learned. A million rows take
some 20 minutes on one core; `--rows 20000` half a minute.
"""

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from rich.console import Console
from rich.progress import Progress

from common import Record, Results, resident_bytes
from wgpr import WGPRegressor

METRES_OF_A_REGIME, METRES_OF_A_ROW = 40.0, 0.1
ROWS_AHEAD, ROWS_BACK = 9_000, 3_000
ROWS_AT_A_TIME, ROWS_TO_PREDICT = 1000, 50


def channel(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The field (n,) and the standard deviation of its noise (n,) at places `x` (n,)."""
    number = np.floor(x / METRES_OF_A_REGIME).astype(int)
    wave = 2.0 * np.pi / np.array([80.0, 8.0, 30.0, 15.0])[number % 4]
    amplitude = np.array([1.0, 3.0, 2.0])[number % 3]
    return amplitude * (np.sin(wave * x) + 0.5 * np.sin(1.7 * wave * x)), np.array([0.1, 0.3, 0.2])[number % 3]


def rows(first: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 1) and targets (n,) of the stream, from number `first` on."""
    lap, within = np.divmod(first + np.arange(n), ROWS_AHEAD + ROWS_BACK)
    steps = lap * (ROWS_AHEAD - ROWS_BACK) + np.minimum(within, 2 * ROWS_AHEAD - within)
    x = METRES_OF_A_ROW * (steps + rng.uniform(size=n))
    field, noise = channel(x)
    return x[:, None], field + noise * rng.standard_normal(n)


def learned(model: WGPRegressor, first: int, last: int, rng: np.random.Generator, progress: Progress) -> Record:
    """Learn rows `first` to `last`: what that took, and how well every tenth piece was predicted before."""
    started, errors, targets = process_time(), [], []
    for number, piece in enumerate(range(first, last, ROWS_AT_A_TIME)):
        X, y = rows(piece, ROWS_AT_A_TIME, rng)
        if piece and number % 10 == 0:
            errors.append(model.predict(X[:ROWS_TO_PREDICT]) - y[:ROWS_TO_PREDICT])
            targets.append(y[:ROWS_TO_PREDICT])
        model.partial_fit(X, y)
        progress.advance(progress.task_ids[0], ROWS_AT_A_TIME)
    return {
        "rows": last,
        "models": model.n_models_,
        "milliseconds_for_a_batch": 1000 * (process_time() - started) / ((last - first) / 100),
        "megabytes": resident_bytes() / 2**20,
        "rmse_before_learning": float(np.sqrt(np.mean(np.square(errors)))) if errors else None,
        "std_of_targets": float(np.std(targets)) if targets else None,
        "largest_prediction": float(np.abs(model.predict(X)).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to learn, in thousands")
    parser.add_argument("--max-models", type=int, default=500)
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    arguments = parser.parse_args()
    rng, console, results = np.random.default_rng(0), Console(), Results(arguments.output)
    model = WGPRegressor(max_models=arguments.max_models, random_state=0)
    part = ROWS_AT_A_TIME * max(1, arguments.rows // (20 * ROWS_AT_A_TIME))
    with Progress(console=console) as progress:
        progress.add_task("rows", total=arguments.rows)
        for first in range(0, arguments.rows, part):
            results.add(learned(model, first, min(first + part, arguments.rows), rng, progress))
            console.print(results.records[-1])


if __name__ == "__main__":
    main()
