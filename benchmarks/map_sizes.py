"""Lake Opinicon as saved maps: sizes, rounding of compact maps, differences. Writes the table of docs/format.md.

    python benchmarks/map_sizes.py --data FOLDER

FOLDER holds the data sets. One minute.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common import ROOT, markdown_table, put_measured, require_data
from common import load as load_dataset
from wgpr import WGPRegressor, diff, load

PAGE = ROOT / "docs" / "format.md"
BEGIN, END = "<!-- measured by benchmarks/map_sizes.py -->", "<!-- end of the measurements -->"

N_ROWS, N_MORE = 8000, 100
METHODS = {
    "`WGPRegressor()`": WGPRegressor(random_state=0),
    "`WGPRegressor.published(threshold=3)`": WGPRegressor.published(threshold=3.0, random_state=0),
}


def compact_model_bytes(M: int, d: int = 2, n_shape: int = 1) -> int:
    """Bytes of a model of one output and full rank in a compact map, as the page derives them."""
    p = d + 2 + n_shape
    return 4 * (M * d + M * (M + 1) // 2 + M + p + 1 + (d + 1) + d + 1) + 12


def measure(model: WGPRegressor, X: np.ndarray, y: np.ndarray, folder: Path) -> list[str]:
    """The cells of a column: sizes and rounding after `N_ROWS` rows, then the difference after `N_MORE` more."""
    model.fit(X[:N_ROWS], y[:N_ROWS])
    model.save(folder / "small.map", compact=True)
    small, queries = load(folder / "small.map"), X[:N_ROWS:3]
    (mean, *stds), (small_mean, *small_stds) = (one.predict_with_owners(queries)[:3] for one in (model, small))
    observed, field = (np.abs(b / a - 1.0).max() for a, b in zip(stds, small_stds, strict=True))
    moved = np.abs(small_mean - mean)
    n_models, full, compact = model.n_models_, len(model.to_bytes()), len(model.to_bytes(compact=True))
    n_inputs = np.median([len(Z) for Z in model.pseudo_inputs_])
    known = {id(local): local for local in model.models_}
    model.partial_fit(X[N_ROWS : N_ROWS + N_MORE], y[N_ROWS : N_ROWS + N_MORE]).flush()
    n_changed = sum(id(local) not in known for local in model.models_)
    return [
        f"{n_models}, {n_inputs:.0f}",
        f"{full:,} bytes, {full / n_models / 1000:.1f} kB a model",
        f"{compact:,} bytes, {compact / n_models / 1000:.1f} kB a model",
        f"{np.median(moved):.1e} m, {moved.max():.1e} m",
        f"{np.mean(moved > 1e-4):.1%}",
        f"{observed:.1e}",
        f"{field:.1e}",
        f"{len(diff(small, model)):,} bytes, models changed: {n_changed}",
    ]


def table(X: np.ndarray, y: np.ndarray) -> str:
    with TemporaryDirectory() as folder:
        columns = [measure(model, X, y, Path(folder)) for model in METHODS.values()]
    names = [
        "models, median of their pseudo-inputs",
        "full map",
        "compact map",
        "change of the mean by the compact map: median, largest",
        "rows where it is more than 0.1 mm",
        "largest relative change of the standard deviation of an observation",
        "largest relative change of the standard deviation of the field",
        f"a difference after {N_MORE} rows more",
    ]
    return markdown_table(["", *METHODS], zip(names, *columns, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the data sets")
    folder = parser.parse_args().data
    require_data(parser, folder, ["opinicon"])
    lake = load_dataset("opinicon", folder)
    measured = (
        'In a compact map, a sparse model with d = 2 and the kernel "rq" (p = 5) takes '
        f"{compact_model_bytes(50):,} bytes for M = 50.\n\n"
        f"Measured on the first {N_ROWS:,} rows of Lake Opinicon (depths to {lake.y[:N_ROWS].max():.0f} m):\n\n"
        f"{table(lake.X, lake.y)}"
    )
    put_measured(PAGE, BEGIN, END, f"\n{measured}")
    print(measured)


if __name__ == "__main__":
    main()
