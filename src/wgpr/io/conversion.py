"""Maps of format 2 with the default of that time, local sparse models that were joined, become territories."""

from typing import Any

import numpy as np

from wgpr.ensemble.cuts import built
from wgpr.ensemble.territories import Territories, TerritorySettings
from wgpr.ensemble.territory import Territory
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, columns, one_blas_thread
from wgpr.gp.pseudodata import PseudoData, from_posterior
from wgpr.gp.sparse import SparseLearner, SparseModel
from wgpr.io.arrays import Reader, Shape, read_array, unpack_models
from wgpr.io.container import Arrays, require
from wgpr.rules.calibration import Calibration

# Settings of the old default that the new one has too.
_KEPT_SETTINGS = ("kernel", "max_models", "calibrated", "forgetting", "random_state")

_LEARNERS = ("GrowingLearner", "AdaptiveSparseLearner")


def is_old_default(header: dict[str, Any], version: int) -> bool:
    """Whether a map has models with as many pseudo-inputs as they need, which only the old default had."""
    return version == 2 and header["estimator"] == "WGPRegressor" and header["settings"]["n_inducing"] == "auto"


def converted_header(header: dict[str, Any]) -> dict[str, Any]:
    """The header of a map of the old default as one of territories."""
    learner, settings = header["learner"], header["settings"]
    require(learner is None or learner["object"] in _LEARNERS, "learner")
    return {
        **header,
        "settings": {name: settings[name] for name in _KEPT_SETTINGS if name in settings},
        "learner": None,
        "kernel": None if learner is None else learner["kernel"],
    }


def converted_calibration(arrays: Arrays, outputs: Shape, std_factor: float, *, compact: bool) -> Calibration:
    """Of the errors of forecasts in a map: (n, 3) error, variance of the field and of the noise; (n, 3, k)."""
    calibration = Calibration(initial_factor=std_factor)
    if compact or not len(arrays["residuals"]):
        return calibration
    residuals = read_array(arrays, "residuals", "f", None, 3, *outputs)
    error, field, noise = residuals.swapaxes(0, 1)
    require(bool((field >= 0).all() and (noise >= 0).all()), "array residuals")
    return calibration.updated(error / np.sqrt(np.maximum(field + noise, np.finfo(float).tiny)))


def converted_territories(
    arrays: Arrays, kernel: Kernel, n_features: int, outputs: Shape, n_learned: int, *, compact: bool
) -> Territories:
    """Territories of pseudo-data that say at the pseudo-inputs of each local model what that says there."""
    learner = SparseLearner(kernel, 1, 1, True)
    models: list[SparseModel] = unpack_models(arrays, learner, n_features, outputs, compact=compact)
    thetas = Reader(arrays, n_features, outputs).thetas("neighbourhood", kernel.n_shape)
    with one_blas_thread():
        parts = [_pseudo_data(model, theta) for model, theta in zip(models, thetas, strict=True)]
    data, sizes = PseudoData.union(*parts), [len(part) for part in parts]
    log_thetas = np.repeat([theta.to_log() for theta in thetas], sizes, axis=0)
    means = np.repeat([np.atleast_1d(model.mean) for model in models], sizes, axis=0)
    rows = np.repeat([model.n_seen / size for model, size in zip(models, sizes, strict=True)], sizes)
    cuts, members = built(data.Z, TerritorySettings.sizes(n_features)[0])
    territories = [_territory(kernel, data[m], log_thetas[m], means[m], rows[m], n_learned) for m in members]
    centres = np.array([each.centre for each in territories])
    return Territories.of(territories, cuts, centres=centres, n_learned=n_learned)


def _pseudo_data(model: SparseModel, theta: Hyperparameters) -> PseudoData:
    mean, variance = model.predict(model.inputs)
    return from_posterior(
        model.kernel, theta, np.atleast_1d(model.mean), model.inputs, columns(mean), columns(variance)[:, 0]
    )


def _territory(
    kernel: Kernel, data: PseudoData, log_thetas: Array, means: Array, rows: Array, n_learned: int
) -> Territory:
    """log_thetas (m, p), means (m, k) : of the models that the points come from; rows (m,) : that each stands for."""
    theta = Hyperparameters.from_log(log_thetas.mean(axis=0), data.Z.shape[1])
    n_seen = max(len(data), round(float(rows.sum())))
    spread = data.Z.std(axis=0)
    return Territory(kernel, theta, means.mean(axis=0), data, n_seen, n_seen, len(data), spread, n_learned)
