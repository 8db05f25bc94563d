"""The methods that are compared, and the settings that are tried for each: 16 fits for every method, on the same rows.

Every method has two kernels. WGPR and SOLAR have four thresholds, and few or many iterations of L-BFGS; LGPR has four
thresholds, and small or large models; OVFE has no threshold, and four numbers of iterations, with two seeds. Settings
of the prediction are tried on the same fits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any

from reproduction.data import Array
from reproduction.plan import BATCH_SIZE, N_CANDIDATES, N_INDUCING
from wgpr import LocalGPRegressor, SolarGPRegressor, StreamingGPRegressor, WGPRegressor

Settings = dict[str, Any]
Estimator = WGPRegressor | SolarGPRegressor | StreamingGPRegressor | LocalGPRegressor

OURS, ANY_RULE = "WGPR", "WGPR, any rule"
EXACT, INTERPOLATION = "exact GP", "interpolation"  # references that see all rows at once
KERNELS, ITERATIONS = ("se", "matern32"), (10, 40)
W_GENS = (1e-3, 0.1, 0.3, 0.5)
CALIBRATION_ROWS = 500

_RESTART_SEED = 1000  # added to the seed of a trial for another attempt


@dataclass(frozen=True)
class Method:
    """A method with the settings to try.

    make : an estimator from settings, the targets (n,) of the stream and a seed.
    fit_settings : to learn with; predict_settings : to be tried on each fit.
    searched_as : the method whose fits the settings are chosen from.
    """

    make: Callable[[Settings, Array, int], Estimator]
    searched_as: str
    fit_settings: tuple[Settings, ...]
    predict_settings: tuple[Settings, ...] = ({},)


def threshold(relative: float, y: Array, n_points: int = N_INDUCING + BATCH_SIZE) -> float:
    """The threshold at which a model may move by this part of the targets' variance at each of `n_points`."""
    return relative * float(y.var()) * n_points if relative < inf else inf


def make_wgpr(settings: Settings, y: Array, seed: int) -> WGPRegressor:
    """With `relative_threshold`, which means the same on every data set, or with `threshold`."""
    others = {"n_candidates": N_CANDIDATES, **settings}
    if "relative_threshold" in others:
        others["threshold"] = threshold(others.pop("relative_threshold"), y)
    if others.get("splitting", "wasserstein") != "wasserstein":
        others["threshold"] = "auto"  # other rules have no threshold
    return WGPRegressor.published(n_inducing=N_INDUCING, batch_size=BATCH_SIZE, random_state=seed, **others)


def make_solar(settings: Settings, y: Array, seed: int) -> SolarGPRegressor:
    return SolarGPRegressor(n_inducing=N_INDUCING, batch_size=BATCH_SIZE, random_state=seed, **settings)


def make_ovfe(settings: Settings, y: Array, seed: int) -> StreamingGPRegressor:
    """With `restart`, the number of an attempt with another seed."""
    others = {name: value for name, value in settings.items() if name != "restart"}
    seed += _RESTART_SEED * settings.get("restart", 0)
    return StreamingGPRegressor(n_inducing=N_INDUCING, batch_size=BATCH_SIZE, random_state=seed, **others)


def make_lgpr(settings: Settings, y: Array, seed: int) -> LocalGPRegressor:
    return LocalGPRegressor(n_calibration=CALIBRATION_ROWS, batch_size=BATCH_SIZE, random_state=seed, **settings)


def _grid(**values: tuple[Any, ...]) -> tuple[Settings, ...]:
    """Every combination."""
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


_WGPR_GRID = _grid(kernel=KERNELS, optimizer_iterations=ITERATIONS, relative_threshold=(0.0, 1e-2, 1e-1, inf))
_SOLAR_GRID = _grid(kernel=KERNELS, optimizer_iterations=ITERATIONS, w_gen=W_GENS)
_OVFE_GRID = _grid(kernel=KERNELS, optimizer_iterations=(5, 10, 20, 40), restart=(0, 1))
_LGPR_GRID = _grid(kernel=KERNELS, max_samples=(200, 500), w_gen=W_GENS)
_WGPR_RULES = _grid(prediction=("nearest", "barycenter", "robust_bcm", "best_few"))

METHODS = {
    OURS: Method(make_wgpr, ANY_RULE, _WGPR_GRID, _WGPR_RULES[:1]),
    ANY_RULE: Method(make_wgpr, ANY_RULE, _WGPR_GRID, _WGPR_RULES),
    "SOLAR": Method(make_solar, "SOLAR", _SOLAR_GRID, _grid(n_best=(1, 3, 5, 10))),
    "OVFE": Method(make_ovfe, "OVFE", _OVFE_GRID),
    "LGPR": Method(make_lgpr, "LGPR", _LGPR_GRID, _grid(n_models=(1, 3, 5, 10))),
}
METHODS_AND_REFERENCES = (*METHODS, EXACT, INTERPOLATION)
