"""A million samples of a stream that does not end and is not the same everywhere: memory, time, divergence.

    python benchmarks/endless.py [--rows 1000000] [--max-models 500] [--output endless.jsonl]

A boat goes up and down a channel, always further than it turns back: there is always new ground, and ground that it has
seen before. Every 40 m begins another world, smooth or rugged, calm or noisy. Default settings, but for `--max-models`.
A line for every twentieth of the stream: models, time for a batch, resident memory, and the error on rows of the next
lap before they are learned, next to their noise.
"""

import argparse
import json
from pathlib import Path
from time import process_time

import numpy as np
from rich.console import Console
from rich.progress import Progress

from wgpr import WGPRegressor

METRES_OF_A_WORLD, METRES_OF_A_ROW = 40.0, 0.1
ROWS_AHEAD, ROWS_BACK = 9_000, 3_000


def world(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The field (n,) and the noise (n,) at places `x` (n,) along the channel."""
    number = np.floor(x / METRES_OF_A_WORLD).astype(int)
    wave = 2.0 * np.pi / np.array([80.0, 8.0, 30.0, 15.0])[number % 4]
    amplitude = np.array([1.0, 3.0, 2.0])[number % 3]
    return amplitude * (np.sin(wave * x) + 0.5 * np.sin(1.7 * wave * x)), np.array([0.1, 0.3, 0.2])[number % 3]


def rows(first: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the stream, from number `first` on."""
    lap, within = np.divmod(first + np.arange(n), ROWS_AHEAD + ROWS_BACK)
    steps = lap * (ROWS_AHEAD - ROWS_BACK) + np.minimum(within, 2 * ROWS_AHEAD - within)
    x = METRES_OF_A_ROW * (steps + rng.uniform(size=n))
    field, noise = world(x)
    return x[:, None], field + noise * rng.standard_normal(n)


def resident_megabytes() -> float:
    """Memory of this process now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--max-models", type=int, default=500)
    parser.add_argument("--output", type=Path, default=Path("endless.jsonl"))
    arguments = parser.parse_args()
    rng, console = np.random.default_rng(0), Console()
    model = WGPRegressor(max_models=arguments.max_models, random_state=0)
    part = max(1000, arguments.rows // 20)
    with Progress(console=console) as progress:
        bar = progress.add_task("rows", total=arguments.rows)
        for first in range(0, arguments.rows, part):
            started, errors, scale = process_time(), [], []
            for piece in range(first, min(first + part, arguments.rows), 1000):
                X, y = rows(piece, 1000, rng)
                if piece % 10_000 == 0 and model_is_ready(model):
                    errors.append(model.predict(X[:50]) - y[:50])
                    scale.append(y[:50])
                model.partial_fit(X, y)
                progress.advance(bar, 1000)
            line = {
                "rows": first + part,
                "models": model.n_models_,
                "milliseconds_for_a_batch": 1000 * (process_time() - started) / (part / 100),
                "megabytes": resident_megabytes(),
                "rmse_ahead": float(np.sqrt(np.mean(np.square(errors)))) if errors else None,
                "std": float(np.std(scale)) if scale else None,
                "largest_prediction": float(np.abs(model.predict(X)).max()),
            }
            with arguments.output.open("a") as file:
                file.write(json.dumps(line) + "\n")
            console.print(line)


def model_is_ready(model: WGPRegressor) -> bool:
    return hasattr(model, "_state") and model.n_models_ > 0


if __name__ == "__main__":
    main()
