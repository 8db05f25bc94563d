"""A stream without end: time, memory and errors as a long survey is learned again and again (docs/scale.md).

    python benchmarks/endless.py --data FOLDER [--passes 2] [--rows 487000] [--max-models 10000] [--write]

The rows of `magnetic_britain` but for a tenth of the segments, which are held out, are learned in batches of 1,000, in
the order of the survey: twice, which is a million rows. Default settings, but for `--max-models`. A line for every
50,000 rows: models, pseudo-data, processor time for a batch in them, and resident memory. The segments held out are
predicted after each pass. With `--write` the table replaces what is between the markers of docs/scale.md. A million
rows take some 10 minutes on one core; `--rows 20000` twenty seconds.
"""

import argparse
from pathlib import Path
from time import process_time

import numpy as np
from rich.console import Console
from rich.progress import Progress

from common import ROOT, Record, Results, put_measured, resident_bytes
from wgpr import WGPRegressor
from wgpr.metrics import scores

PAGE, BEGIN, END = ROOT / "docs/scale.md", "<!-- measured by benchmarks/endless.py -->", "<!-- end of endless -->"
ROWS_AT_A_TIME, ROWS_OF_A_PART = 1000, 50_000
FIRST_ROWS = 100_000  # what the end is compared with

Rows = tuple[np.ndarray, np.ndarray]


def survey(folder: Path, n_rows: int | None) -> tuple[Rows, Rows]:
    """Rows to learn, the first `n_rows` of them, and the rows of the tenth of the segments that is held out."""
    with np.load(folder / "magnetic_britain.npz") as file:
        X, y, line = file["X"].astype(float), file["y"].astype(float), file["line"]
    segments = np.unique(line)
    held = np.isin(line, np.random.default_rng(0).choice(segments, len(segments) // 10, replace=False))
    return (X[~held][:n_rows], y[~held][:n_rows]), (X[held], y[held])


def learned(model: WGPRegressor, X: np.ndarray, y: np.ndarray, progress: Progress) -> Record:
    """What learning these rows took, and what is there then."""
    started = process_time()
    for first in range(0, len(y), ROWS_AT_A_TIME):
        model.partial_fit(X[first : first + ROWS_AT_A_TIME], y[first : first + ROWS_AT_A_TIME])
        progress.advance(progress.task_ids[0], ROWS_AT_A_TIME)
    seconds = process_time() - started
    return {
        "rows": model.n_samples_seen_,
        "models": model.n_models_,
        "pseudo_data": sum(len(each.inputs) for each in model.models_),
        "milliseconds_for_a_batch": 1000 * seconds / (len(y) / ROWS_AT_A_TIME),
        "megabytes": resident_bytes() / 2**20,
    }


def errors(model: WGPRegressor, X: np.ndarray, y: np.ndarray) -> Record:
    """RMSE and coverage of the rows held out."""
    measured = scores(y, *model.predict(X, return_std=True))
    return {"rmse": measured.rmse, "coverage": measured.coverage}


def table(records: list[Record]) -> str:
    """A row for the part that ends at 100,000 rows and for the end of each pass, and the last over the first."""
    begin = next((record for record in records if record["rows"] >= FIRST_ROWS), records[0])
    chosen = [begin, *(record for record in records if "rmse" in record and record is not begin)]
    names = ("models", "pseudo_data", "milliseconds_for_a_batch", "megabytes", "rmse", "coverage")
    formats = ("{:,}", "{:,}", "{:.0f}", "{:.0f}", "{:.2f}", "{:.1%}")
    lines = ["| rows | models | pseudo-data | ms a batch | resident [MB] | RMSE [nT] | in the 95 % interval |"]
    lines.append("|---:|---:|---:|---:|---:|---:|---:|")
    for record in chosen:
        cells = [each.format(record[name]) if name in record else "" for name, each in zip(names, formats, strict=True)]
        lines.append(f"| {record['rows']:,} | {' | '.join(cells)} |")
    ratios = [records[-1][name] / begin[name] for name in names[:4]]
    passes = [record["rmse"] for record in records if "rmse" in record]
    cells = " | ".join(f"{ratio:.2f}" for ratio in (*ratios, passes[-1] / passes[0]))
    return "\n".join([*lines, f"| end over beginning; RMSE over that of the first pass | {cells} | |", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with magnetic_britain.npz")
    parser.add_argument("--rows", type=int, help="rows of a pass, by default all")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--max-models", type=int, default=WGPRegressor().max_models)
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    arguments = parser.parse_args()
    (X, y), held = survey(arguments.data, arguments.rows)
    console, results = Console(), Results(arguments.output)
    model = WGPRegressor(max_models=arguments.max_models)
    with Progress(console=console) as progress:
        progress.add_task("rows", total=arguments.passes * len(y))
        for _ in range(arguments.passes):
            for first in range(0, len(y), ROWS_OF_A_PART):
                part = slice(first, first + ROWS_OF_A_PART)
                record = learned(model, X[part], y[part], progress)
                if first + ROWS_OF_A_PART >= len(y):
                    record |= errors(model, *held)
                results.add(record)
                console.print(record)
    print(table(results.records))
    if arguments.write:
        put_measured(PAGE, BEGIN, END, table(results.records))


if __name__ == "__main__":
    main()
