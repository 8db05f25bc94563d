"""The figures on a real lake that the documentation quotes: which settings do how well, and how small a map gets.

python benchmarks/lake.py --data FOLDER
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from wgpr import StreamingGPRegressor, WGPRegressor, diff, load
from wgpr.cli.race import LinearInterpolation
from wgpr.datasets import load as load_dataset
from wgpr.metrics import scores
from wgpr.survey import hold_out
from workloads import require_data

N_ROWS = 8000

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
    linear = LinearInterpolation()
    linear.partial_fit(survey.X, survey.y)
    linear.flush()
    print(f"linear interpolation: RMSE {scores(survey.y_test, linear.at(survey.X_test)).rmse:.3f} m")
    for name, model in SETTINGS.items():
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with the data sets")
    folder = parser.parse_args().data
    require_data(parser, folder, ["opinicon"])
    lake = load_dataset("opinicon", folder)
    X, y = lake.X, lake.y
    measure_maps(X[:N_ROWS], y[:N_ROWS], X[N_ROWS : N_ROWS + 100], y[N_ROWS : N_ROWS + 100])
    compare_settings(X[:N_ROWS], y[:N_ROWS])


if __name__ == "__main__":
    main()
