"""Errors of the paper's method by threshold, kernel and rule, and of other regressors, on two lakes (docs/choosing.md).

    python benchmarks/lakes.py --data FOLDER [--rows 8000] [--write]

"Lake" is the simulated lake of the tutorial, judged on its third day. Of Lake Opinicon, whose file is in FOLDER,
stretches of the track are held out. `--write` puts the tables into docs/choosing.md. Four minutes; `--rows 1000` takes
one.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from sklearn.base import RegressorMixin, clone
from sklearn.metrics import root_mean_squared_error

from common import ROOT, interpolated, load, markdown_table, put_measured, require_data
from wgpr import LocalGPRegressor, SolarGPRegressor, SparseGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes
from wgpr.metrics import Scores, scores
from wgpr.survey import hold_out

sys.path.append(str(ROOT / "examples"))

import lake

PAGE = ROOT / "docs/choosing.md"
published = WGPRegressor.published

THRESHOLDS = {
    **{f"threshold {threshold:g}": published(threshold=threshold) for threshold in (100, 30, 10, 3, 1, 0.3)},
    '`splitting="evidence"`': published(splitting="evidence"),
    '`splitting="always"` (a model for every batch)': published(splitting="always"),
    "one model (`StreamingGPRegressor`)": StreamingGPRegressor(),
}
RULES = {
    "as published": published(splitting="evidence"),
    '`prediction="robust_bcm"`': published(splitting="evidence", prediction="robust_bcm"),
    '`kernel="matern32"`': published(splitting="evidence", kernel="matern32"),
    "both": published(splitting="evidence", kernel="matern32", prediction="robust_bcm"),
}
REGRESSORS = {
    "`WGPRegressor()`": WGPRegressor(),
    "`SolarGPRegressor()`": SolarGPRegressor(),
    "`LocalGPRegressor()`": LocalGPRegressor(),
    "`StreamingGPRegressor()`": StreamingGPRegressor(),
    "`SparseGPRegressor(n_inducing=300)`": SparseGPRegressor(n_inducing=300),
}


class Rows(NamedTuple):
    """Rows `X` (n, d), `y` (n,) to learn, and those to judge by."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def simulated(seeds: Sequence[int] = (1, 2, 3)) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the first two days of the tutorial's lake, and those of the third, with the noise of these seeds."""
    northward, lines = np.arange(0.0, 1.5, 0.01), (np.arange(0.0, 1.0, 0.05), np.arange(1.0, 2.01, 0.05))
    days = [lake.survey(some, northward, to_north=True, seed=seed) for some, seed in zip(lines, seeds, strict=False)]
    judged = lake.survey(np.arange(0.1, 1.5, 0.25), np.arange(0.0, 2.0, 0.01), to_north=False, seed=seeds[2])
    return pd.concat(days, ignore_index=True), judged


def simulated_survey() -> Rows:
    (X, y), (X_test, y_test) = ((rows.to_numpy()[:, :2], rows.to_numpy()[:, 2]) for rows in simulated())
    return Rows(X, y, X_test, y_test)


def judged(model: RegressorMixin, survey: Rows) -> tuple[int, Scores]:
    """Number of models after the survey, and scores on what was held out."""
    model = clone(model).set_params(random_state=0).fit(survey.X, survey.y)
    return getattr(model, "n_models_", 1), scores(survey.y_test, *model.predict(survey.X_test, return_std=True))


def cells(model: RegressorMixin, survey: Rows, *, with_nlpd: bool = False) -> list[str]:
    n_models, found = judged(model, survey)
    nlpd = [f"{found.nlpd:.2f}"] if with_nlpd else []
    return [str(n_models), f"{found.rmse:.3f}", *nlpd, f"{found.coverage:.1%}"]


def linear_rmse(survey: Rows) -> str:
    return f"{root_mean_squared_error(survey.y_test, interpolated(survey.X, survey.y, survey.X_test)):.3f}"


def tracked(models: dict[str, RegressorMixin], words: str) -> Iterable[tuple[str, RegressorMixin]]:
    return track(models.items(), words, console=Console(stderr=True))


def thresholds(simulation: Rows, opinicon: Rows) -> str:
    rows = [
        [name, *cells(model, simulation), *cells(model, opinicon)] for name, model in tracked(THRESHOLDS, "thresholds")
    ]
    rows.append(["linear interpolation of all rows", "", linear_rmse(simulation), "", "", linear_rmse(opinicon), ""])
    headings = ["models", "RMSE [m]", "inside 95 %"]
    first = ["`WGPRegressor.published(...)`", f"Lake: {headings[0]}", *headings[1:]]
    return f"{markdown_table([*first, f'Opinicon: {headings[0]}', *headings[1:]], rows)}\n{on_the_toy()}\n"


def on_the_toy() -> str:
    """A sentence on the toy with two regimes, judged against the field without noise."""
    X, y, field = two_regimes(random_state=0)
    toy = Rows(X, y, X, field)
    (n_evidence, evidence), (n_threshold, threshold) = (
        judged(model, toy) for model in (published(splitting="evidence"), published(threshold=3.0))
    )
    return (
        f'On the toy with two regimes, `"evidence"` starts {n_evidence} models (RMSE {evidence.rmse:.3f} against the '
        f"field), and threshold 3 starts {n_threshold} ({threshold.rmse:.3f})."
    )


def rules(simulation: Rows, opinicon: Rows) -> str:
    rows = [[name, *cells(model, opinicon, with_nlpd=True)] for name, model in tracked(RULES, "rules")]
    rows.append(["linear interpolation", "", linear_rmse(opinicon), "", ""])
    title = 'Opinicon, `WGPRegressor.published(splitting="evidence", ...)`'
    return markdown_table([title, "models", "RMSE [m]", "NLPD", "inside 95 %"], rows)


def regressors(simulation: Rows, opinicon: Rows) -> str:
    rows = [[name, *cells(model, simulation)] for name, model in tracked(REGRESSORS, "regressors")]
    return markdown_table(["default settings", "Lake: models", "RMSE [m]", "inside 95 %"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the data sets")
    parser.add_argument("--rows", type=int, default=8000, help="rows of Lake Opinicon")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/choosing.md")
    arguments = parser.parse_args()
    require_data(parser, arguments.data, ["opinicon"])
    data, n = load("opinicon", arguments.data), arguments.rows
    held = hold_out(data.X[:n], data.y[:n], random_state=0)
    surveys = simulated_survey(), Rows(held.X, held.y, held.X_test, held.y_test)
    for tables in (thresholds, rules, regressors):
        text = tables(*surveys)
        print(text)
        if arguments.write:
            name = tables.__name__
            put_measured(PAGE, f"<!-- measured by benchmarks/lakes.py: {name} -->", f"<!-- end of {name} -->", text)


if __name__ == "__main__":
    main()
