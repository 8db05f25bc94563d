"""Fit a stream batch by batch, timed, and score its predictions. The values are plain numbers, ready for JSON."""

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from sklearn.utils import check_random_state

from reproduction.data import Array, TrialData
from reproduction.datasets import Dataset
from reproduction.methods import CALIBRATION_ROWS, KERNELS, METHODS, Estimator, Settings
from reproduction.plan import BATCH_SIZE
from wgpr import LocalGPRegressor
from wgpr.metrics import HALF_WIDTH_95, scores

EXACT_ROWS = 5000

Values = dict[str, Any]


def fit_stream(model: Estimator, stream: Dataset, *, n_curve_points: int = 0) -> Values:
    """Give the stream to the model in batches.

    Parameters
    ----------
    n_curve_points : how often the error on the test rows is taken while the model learns.

    Returns
    -------
    seconds : of processor time, for learning alone; n_models, bytes : of the learned ensemble; curve : pairs of the
        number of batches seen and the RMSE then.
    """
    curve: list[tuple[int, float]] = []
    seconds = _calibrate(model, stream)
    n_batches = -(-len(stream.y) // BATCH_SIZE)
    for batch in range(1, n_batches + 1):
        rows, started = slice((batch - 1) * BATCH_SIZE, batch * BATCH_SIZE), process_time()
        model.partial_fit(stream.X[rows], stream.y[rows])
        if batch == n_batches:
            model.flush()
        seconds += process_time() - started
        if model.n_models_ and is_curve_point(batch, n_batches, n_curve_points):
            curve.append((batch, evaluate(model, stream.X_test, stream.y_test)["rmse"]))
    return {"seconds": seconds, "curve": curve, **_size(model)}


def is_curve_point(batch: int, n_batches: int, n_points: int) -> bool:
    """Whether the error is taken after this batch, of 1 to `n_batches`: evenly often, and after the last."""
    return batch * n_points // n_batches > (batch - 1) * n_points // n_batches


def evaluate(model: Estimator, X: Array, y: Array) -> Values:
    """Scores of predictions at `X` (n, d) against observations `y` (n,), and the mean width of the 95 % interval."""
    mean, std = model.predict(X, return_std=True)
    return {**scores(y, mean, std)._asdict(), "width": 2 * HALF_WIDTH_95 * float(np.mean(std))}


def fit_and_score(
    method: str, settings: Settings, data: TrialData, seed: int, *, n_curve_points: int = 0
) -> tuple[Estimator, Values]:
    """Make an estimator of a method, fit it on the stream, and score it on the rows held out."""
    model = METHODS[method].make(settings, data.stream.y, seed)
    fitted = fit_stream(model, data.stream, n_curve_points=n_curve_points)
    return model, {**fitted, **score_held_out(data, lambda X, y: evaluate(model, X, y))}


def score_held_out(data: TrialData, score: Callable[[Array, Array], Values]) -> Values:
    """Scores on the test rows and on single rows of the stream, and how many rows there are of each."""
    stream = data.stream
    return {
        "test": score(stream.X_test, stream.y_test),
        "near": score(data.X_near, data.y_near) if len(data.y_near) else None,
        "n_rows": len(stream.y),
        "n_test": len(stream.y_test),
        "n_near": len(data.y_near),
    }


def _size(model: Estimator) -> Values:
    """Number of models, and bytes of the map as it would be sent."""
    return {"n_models": model.n_models_, "bytes": len(model.to_bytes(compact=True))}


def _calibrate(model: Estimator, stream: Dataset) -> float:
    """LGPR learns its hyperparameters offline, from rows of the whole stream. Returns the seconds that this took."""
    if not isinstance(model, LocalGPRegressor):
        return 0.0
    started = process_time()
    rows = _sample(len(stream.y), model.n_calibration, model.random_state)
    offline = LocalGPRegressor(**model.get_params()).fit(stream.X[rows], stream.y[rows])
    model.set_params(hyperparameters=offline.hyperparameters_[0])
    return process_time() - started


def _sample(n_rows: int, n_wanted: int, seed: int) -> Any:
    """Random rows in their order."""
    return np.sort(check_random_state(seed).choice(n_rows, min(n_wanted, n_rows), replace=False))


# References that see all rows at once


def fit_exact_gp(stream: Dataset, seed: int) -> tuple[LocalGPRegressor, Values]:
    """One exact Gaussian process on at most 5,000 random rows of the stream.

    Of two kernels, it has the one with the larger evidence on the calibration rows; no validation is needed.
    """
    started = process_time()
    few = _sample(len(stream.y), CALIBRATION_ROWS, seed)
    # Never a second model, and no row dropped.
    single: Settings = {"w_gen": 0.0, "max_samples": None, "batch_size": EXACT_ROWS, "n_calibration": CALIBRATION_ROWS}
    calibrated = [
        LocalGPRegressor(kernel=kernel, random_state=0, **single).fit(stream.X[few], stream.y[few])
        for kernel in KERNELS
    ]
    best = max(calibrated, key=lambda model: model.models_[0].log_evidence)
    many = _sample(len(stream.y), EXACT_ROWS, seed)
    model = LocalGPRegressor(**{**best.get_params(), "hyperparameters": best.hyperparameters_[0]})
    model.fit(stream.X[many], stream.y[many])
    seconds = process_time() - started
    return model, {"seconds": seconds, "settings": {"kernel": best.kernel, "rows": len(many)}, **_size(model)}


def fit_interpolation(stream: Dataset) -> tuple[Callable[[Array], Array], Values]:
    """Linear interpolation in two or three dimensions, the nearest row elsewhere. Returns the function of `X` too."""
    started = process_time()
    nearest = NearestNDInterpolator(stream.X, stream.y, rescale=True)
    is_linear = stream.X.shape[1] in (2, 3)
    linear = LinearNDInterpolator(stream.X, stream.y, rescale=True) if is_linear else nearest
    linear(stream.X[:1])  # the first call prepares the others
    seconds = process_time() - started

    def predict(X: Array) -> Array:
        values = linear(X)
        return np.where(np.isnan(values), nearest(X), values)

    n_bytes = 4 * (stream.X.size + stream.y.size)  # of the rows in float32, as in a compact map
    kind = "linear" if is_linear else "nearest neighbour"
    return predict, {"seconds": seconds, "settings": {"kind": kind}, "bytes": n_bytes}
