"""Learning a stream batch by batch, timed, and judging what came of it. Answers are plain numbers, ready for JSON."""

from time import process_time
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from reproduction.plan import BATCH_SIZE
from wgpr.cli.race import LinearInterpolation
from wgpr.datasets import Dataset
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.estimators.regressors import LocalGPRegressor
from wgpr.gp.linalg import Array, one_blas_thread
from wgpr.metrics import HALF_WIDTH_95, scores

EXACT_ROWS, EXACT_CALIBRATION_ROWS = 5000, 500

Answer = dict[str, Any]


def learn(model: OnlineRegressor, stream: Dataset, *, n_glances: int = 0) -> Answer:
    """Give the stream to the model in batches, and say what that took.

    Parameters
    ----------
    n_glances : how often, about, to take the error on the rows held out while it learns.

    Returns
    -------
    seconds : of processor time, for learning alone; n_models, bytes : of what was learned; curve : pairs of the number
        of batches seen and the RMSE then.
    """
    curve: list[tuple[int, float]] = []
    with one_blas_thread():
        seconds = _learn_beforehand(model, stream)
        n_batches = -(-len(stream.y) // BATCH_SIZE)
        for batch in range(n_batches):
            rows, started = slice(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE), process_time()
            model.partial_fit(stream.X[rows], stream.y[rows])
            if batch + 1 == n_batches:
                model.flush()
            seconds += process_time() - started
            if n_glances and model.n_models_ and _is_time_for_a_glance(batch + 1, n_batches, n_glances):
                curve.append((batch + 1, judge(model, stream.X_test, stream.y_test)["rmse"]))
    return {"seconds": seconds, "curve": curve, **described(model)}


def described(model: EnsembleRegressor) -> Answer:
    """Number of models, and bytes of the map as it would be sent."""
    return {"n_models": model.n_models_, "bytes": len(model.to_bytes(compact=True))}


def judge(model: EnsembleRegressor, X: Array, y: Array) -> Answer:
    """Scores of predictions at `X` (n, d) against observations `y` (n,), and the mean width of the 95 % interval."""
    mean, std = model.predict(X, return_std=True)
    return {**scores(y, mean, std)._asdict(), "width": 2 * HALF_WIDTH_95 * float(np.mean(std))}


def _learn_beforehand(model: OnlineRegressor, stream: Dataset) -> float:
    """What is learned offline, from rows of all of the stream: the hyperparameters of LGPR. Seconds that it took."""
    if not isinstance(model, LocalGPRegressor):
        return 0.0
    started = process_time()
    rows = _drawn(len(stream.y), model.n_calibration, model.random_state)
    beforehand = LocalGPRegressor(**model.get_params()).fit(stream.X[rows], stream.y[rows])
    model.set_params(hyperparameters=beforehand.hyperparameters_[0])
    return process_time() - started


def _is_time_for_a_glance(batch: int, n_batches: int, n_glances: int) -> bool:
    return batch == n_batches or batch * n_glances // n_batches > (batch - 1) * n_glances // n_batches


def _drawn(n_rows: int, n_wanted: int, seed: int) -> Any:
    """Rows, at random and in their order."""
    return np.sort(check_random_state(seed).choice(n_rows, min(n_wanted, n_rows), replace=False))


# References that see all the data at once


def exact_gp(stream: Dataset, seed: int) -> tuple[EnsembleRegressor, Answer]:
    """One exact Gaussian process of at most 5,000 rows of the stream, drawn at random.

    The kernel, of two, is the one that makes the calibration rows likelier; no validation is needed.
    """
    started = process_time()
    few = _drawn(len(stream.y), EXACT_CALIBRATION_ROWS, seed)
    calibrated = [_one_exact_model(kernel, None).fit(stream.X[few], stream.y[few]) for kernel in ("se", "matern32")]
    best = max(calibrated, key=lambda model: model.models_[0].log_evidence)
    many = _drawn(len(stream.y), EXACT_ROWS, seed)
    model = _one_exact_model(best.kernel, best.hyperparameters_[0]).fit(stream.X[many], stream.y[many])
    seconds = process_time() - started
    return model, {"seconds": seconds, "settings": {"kernel": best.kernel, "rows": len(many)}, **described(model)}


def _one_exact_model(kernel: Any, hyperparameters: Any) -> LocalGPRegressor:
    """Never another model, and no row dropped."""
    return LocalGPRegressor(
        w_gen=0.0,
        hyperparameters=hyperparameters,
        n_calibration=EXACT_CALIBRATION_ROWS,
        max_samples=None,
        batch_size=EXACT_ROWS,
        kernel=kernel,
        random_state=0,
    )


def interpolated(stream: Dataset) -> tuple[LinearInterpolation, Answer]:
    """Linear interpolation in two or three dimensions, and the nearest neighbour in more."""
    model = LinearInterpolation()
    started = process_time()
    model.partial_fit(stream.X, stream.y)
    model.flush()
    seconds = process_time() - started
    kind = "linear" if stream.X.shape[1] in (2, 3) else "nearest neighbour"
    return model, {"seconds": seconds, "settings": {"kind": kind}, "bytes": round(1000 * model.kilobytes)}
