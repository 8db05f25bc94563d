"""Lake Opinicon with the paper's settings: errors by threshold and rule, sizes of maps, precision of compact maps.

    python benchmarks/lake.py --data FOLDER [--rows 8000]

FOLDER holds the data sets. Stretches of the track are held out. The figures of docs/choosing.md and docs/format.md.
Three minutes; `--rows 1000` takes 20 seconds.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.progress import track

from common import interpolated, require_data
from wgpr import StreamingGPRegressor, WGPRegressor, diff, load
from wgpr.datasets import load as load_dataset
from wgpr.metrics import scores
from wgpr.survey import hold_out

SETTINGS = {
    **{f"threshold {threshold}": WGPRegressor.published(threshold=threshold) for threshold in (100, 30, 10, 3, 1, 0.3)},
    "evidence": WGPRegressor.published(splitting="evidence"),
    "always": WGPRegressor.published(splitting="always"),
    "evidence, matern32": WGPRegressor.published(splitting="evidence", kernel="matern32"),
    "evidence, robust_bcm": WGPRegressor.published(splitting="evidence", prediction="robust_bcm"),
    "evidence, matern32, robust_bcm": WGPRegressor.published(
        splitting="evidence", kernel="matern32", prediction="robust_bcm"
    ),
    "one streamed GP": StreamingGPRegressor(),
}


def compare_settings(X: np.ndarray, y: np.ndarray) -> None:
    """Errors on stretches of the track that were held out (docs/choosing.md)."""
    survey = hold_out(X, y, random_state=0)
    linear = interpolated(survey.X, survey.y, survey.X_test)
    print(f"linear interpolation: RMSE {scores(survey.y_test, linear).rmse:.3f} m")
    for name, model in track(SETTINGS.items(), "settings"):
        model.set_params(random_state=0).fit(survey.X, survey.y)
        result = scores(survey.y_test, *model.predict(survey.X_test, return_std=True))
        print(
            f"{name}: {model.n_models_} models, RMSE {result.rmse:.3f} m, NLPD {result.nlpd:.2f}, "
            f"{result.coverage:.1%} inside 95 %"
        )


def measure_maps(X: np.ndarray, y: np.ndarray, next_X: np.ndarray, next_y: np.ndarray) -> None:
    """Bytes and precision of compact maps and of a difference (docs/format.md)."""
    model = WGPRegressor.published(threshold=3, random_state=0).fit(X, y)
    with TemporaryDirectory() as folder:
        model.save(Path(folder) / "lake.map", compact=True)
        small = load(Path(folder) / "lake.map")
    queries = X[::3]
    (mean, std), (small_mean, small_std) = (one.predict(queries, return_std=True) for one in (model, small))
    full_bytes, compact_bytes = len(model.to_bytes()), len(model.to_bytes(compact=True))
    print(f"{model.n_models_} models: {full_bytes:,} bytes, compact {compact_bytes:,}")
    print(f"compact: mean off by {abs(small_mean - mean).max():.1e} m")
    print(f"compact: std off by {abs(small_std / std - 1).max():.1e} of itself")
    model.partial_fit(next_X, next_y)
    print(f"difference after one batch: {len(diff(small, model)):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the data sets")
    parser.add_argument("--rows", type=int, default=8000, help="rows to learn")
    arguments = parser.parse_args()
    require_data(parser, arguments.data, ["opinicon"])
    lake, n = load_dataset("opinicon", arguments.data), arguments.rows
    measure_maps(lake.X[:n], lake.y[:n], lake.X[n : n + 100], lake.y[n : n + 100])
    compare_settings(lake.X[:n], lake.y[:n])


if __name__ == "__main__":
    main()
