"""Lake Opinicon with the paper's settings: errors by threshold and rule.

    python benchmarks/lake.py --data FOLDER [--rows 8000]

FOLDER holds the data sets. Stretches of the track are held out. The figures of docs/choosing.md.
Three minutes; `--rows 1000` takes 20 seconds.
"""

import argparse

import numpy as np
from rich.progress import track

from common import interpolated, require_data
from common import load as load_dataset
from wgpr import StreamingGPRegressor, WGPRegressor
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the data sets")
    parser.add_argument("--rows", type=int, default=8000, help="rows to learn")
    arguments = parser.parse_args()
    require_data(parser, arguments.data, ["opinicon"])
    lake, n = load_dataset("opinicon", arguments.data), arguments.rows
    compare_settings(lake.X[:n], lake.y[:n])


if __name__ == "__main__":
    main()
