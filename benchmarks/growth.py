"""What a row, a query and a map cost the default as rows, territories and inputs grow. The picture of docs/scale.md.

    python benchmarks/growth.py [--output growth.jsonl] [--plot docs/scale_default.png] [--quick] [--write]

Random fields with noise of a tenth of their deviation. Rows of two inputs arrive in survey lines, and the area grows
with their number, so that the number of territories does. With more inputs, rows are at random places, and the field
varies along four of them. Times are of the processor, on one thread. Five minutes; `--quick` one.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console

from common import ROOT, Record, Results, put_measured
from wgpr import WGPRegressor
from wgpr.plots import COLOURS

PAGE, BEGIN, END = ROOT / "docs/scale.md", "<!-- measured by benchmarks/growth.py -->", "<!-- end of growth -->"
ROWS, INPUTS, N_WITH_INPUTS = (1000, 3000, 10_000, 30_000, 100_000), (1, 2, 4, 8, 16, 32), 5000
N_QUERIES, N_SINGLE = 2000, 100


def field(X: np.ndarray, seed: int = 0) -> np.ndarray:
    """A random field (n,) of unit deviation and a length-scale of about one, along the first four inputs at most."""
    rng, X = np.random.default_rng(seed), X[:, :4]
    waves, phases = rng.standard_t(4, size=(60, X.shape[1])), rng.uniform(0.0, 2.0 * np.pi, 60)
    values: np.ndarray = np.cos(X @ waves.T + phases).sum(axis=1) / np.sqrt(30.0)
    return values


def survey(n: int) -> np.ndarray:
    """Places (n, 2) along lines that are half a length-scale apart, ten to a length-scale along them."""
    n_along = int(np.sqrt(5.0 * n))
    line, along = np.divmod(np.arange(n), n_along)
    return np.column_stack([0.1 * np.where(line % 2, n_along - 1 - along, along), 0.5 * line])


def measure(X: np.ndarray, rng: np.random.Generator) -> Record:
    """Milliseconds of a row (the last fifth of them), of a query at once and alone; bytes of a map for each row."""
    y, n = field(X) + 0.1 * rng.normal(size=len(X)), 4 * len(X) // 5
    model = WGPRegressor().fit(X[:n], y[:n])
    started = process_time()
    for first in range(n, len(X), 1000):
        model.partial_fit(X[first : first + 1000], y[first : first + 1000])
    learning = process_time() - started
    queries = X[rng.integers(len(X), size=N_QUERIES)] + 0.2 * rng.normal(size=(N_QUERIES, X.shape[1]))
    times = []
    for _ in range(2):
        started = process_time()
        mean = model.predict(queries, return_std=True)[0]
        times.append(process_time() - started)
    started = process_time()
    for i in range(N_SINGLE):
        model.predict(queries[i : i + 1], return_std=True)
    alone = process_time() - started
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "compact.map", compact=True)
        n_bytes = (Path(folder) / "compact.map").stat().st_size
    return {
        "models": model.n_models_,
        "row": 1e3 * learning / (len(X) - n),
        "first": 1e3 * times[0] / N_QUERIES,
        "again": 1e3 * times[1] / N_QUERIES,
        "alone": 1e3 * alone / N_SINGLE,
        "bytes": n_bytes / len(X),
        "rmse": float(np.sqrt(np.mean((mean - field(queries)) ** 2))),
    }


def run(results: Results, is_quick: bool) -> None:
    console = Console(stderr=True)
    cases = [{"inputs": 2, "rows": n, "places": "lines"} for n in (ROWS[:3] if is_quick else ROWS)]
    cases += [{"inputs": d, "rows": N_WITH_INPUTS, "places": "random"} for d in (INPUTS[:4] if is_quick else INPUTS)]
    for case in cases:
        if results.matching(case):
            continue
        console.print(f"{case['rows']:,} rows of {case['inputs']} inputs")
        rng = np.random.default_rng(1)
        width = min(4.0, 60.0 ** (2.0 / case["inputs"]))
        places = rng.uniform(0.0, width, (case["rows"], case["inputs"]))
        results.add(case | measure(survey(case["rows"]) if case["places"] == "lines" else places, rng))


def table(results: Results) -> str:
    heading = (
        "| rows | inputs | places | territories | us a row | us a query at once, first; again | ms a query alone | "
        "bytes a row, compact map | RMSE |\n|---:|---:|---|---:|---:|---:|---:|---:|---:|\n"
    )
    return heading + "".join(
        f"| {one['rows']:,} | {one['inputs']} | {one['places']} | {one['models']:,} | {1e3 * one['row']:.0f} | "
        f"{1e3 * one['first']:.0f}; {1e3 * one['again']:.0f} | {one['alone']:.2f} | {one['bytes']:.0f} | "
        f"{one['rmse']:.3f} |\n"
        for one in results.matching({})
    )


def plot(results: Results, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained", sharey=True)
    quantities = {
        "row": "a row", "first": "a query, 2,000 at once, first", "again": "the same again", "alone": "a query alone",
    }  # fmt: skip
    panels = {
        "lines": ("models", "territories (survey lines, 2 inputs)"),
        "random": ("inputs", "inputs (5,000 random places)"),
    }
    for ax, (places, (x, words)) in zip(axes, panels.items(), strict=True):
        some = results.matching({"places": places})
        for colour, (name, label) in zip(COLOURS, quantities.items(), strict=False):
            ax.plot([one[x] for one in some], [one[name] for one in some], "o-", color=colour, label=label)
        ax.set(xscale="log", yscale="log", xlabel=words)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("processor time [ms]")
    axes[1].legend(fontsize="small")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="lines of JSON; what is in it already is not measured again")
    parser.add_argument("--plot", type=Path, help="a picture of the results")
    parser.add_argument("--quick", action="store_true", help="up to 10,000 rows and 8 inputs")
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    arguments = parser.parse_args()
    results = Results(arguments.output)
    run(results, arguments.quick)
    print(table(results))
    if arguments.plot:
        plot(results, arguments.plot)
    if arguments.write:
        put_measured(PAGE, BEGIN, END, table(results))


if __name__ == "__main__":
    main()
