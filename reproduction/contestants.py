"""Who takes part, and which settings are tried for each: sixteen fits each, on the same rows.

All have two kernels. WGPR and SOLAR have four thresholds, and short or long climbs of L-BFGS; LGPR has four thresholds,
and small or large models; OVFE has no threshold, and four lengths of the climb, with two seeds. An ensemble can be read
in four ways, for which nothing is learned anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any

from reproduction.plan import BATCH_SIZE, N_CANDIDATES, N_INDUCING
from wgpr.estimators.base import OnlineRegressor
from wgpr.estimators.regressors import LocalGPRegressor, SolarGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.gp.linalg import Array

Settings = dict[str, Any]

KERNELS = ("se", "matern32")
ITERATIONS = (10, 40)
W_GENS = (1e-3, 0.1, 0.3, 0.5)
CALIBRATION_ROWS = 500

# Seeds of further attempts are so far from those of the trials.
_RESTART = 1000


@dataclass(frozen=True)
class Contestant:
    """A method with the settings to try.

    make : an estimator from settings, the targets (n,) of the stream and a seed.
    learning : settings to learn with; reading : settings of the prediction, to be tried on each that has learned.
    fits_of : the contestant whose fits are searched, if it is not this one.
    """

    name: str
    make: Callable[[Settings, Array, int], OnlineRegressor]
    learning: tuple[Settings, ...]
    reading: tuple[Settings, ...] = ({},)
    fits_of: str = ""

    @property
    def searched(self) -> str:
        """Whose search the setting is chosen from."""
        return self.fits_of or self.name


def threshold(relative: float, y: Array, n_points: int = N_INDUCING + BATCH_SIZE) -> float:
    """The threshold that lets a model move by this part of the targets' variance at each of `n_points`."""
    return relative * float(y.var()) * n_points if relative < inf else inf


def make_wgpr(settings: Settings, y: Array, seed: int) -> WGPRegressor:
    """With `relative_threshold`, which means the same on every data set, or `threshold`."""
    others = dict(settings)
    if "relative_threshold" in others:
        others["threshold"] = threshold(others.pop("relative_threshold"), y)
    return WGPRegressor.published(
        n_inducing=N_INDUCING,
        n_candidates=others.pop("n_candidates", N_CANDIDATES),
        batch_size=BATCH_SIZE,
        random_state=seed,
        **others,
    )


def make_solar(settings: Settings, y: Array, seed: int) -> SolarGPRegressor:
    return SolarGPRegressor(n_inducing=N_INDUCING, batch_size=BATCH_SIZE, random_state=seed, **settings)


def make_ovfe(settings: Settings, y: Array, seed: int) -> StreamingGPRegressor:
    """With `restart`, the number of an attempt with another seed."""
    others = {name: value for name, value in settings.items() if name != "restart"}
    seed += _RESTART * settings.get("restart", 0)
    return StreamingGPRegressor(n_inducing=N_INDUCING, batch_size=BATCH_SIZE, random_state=seed, **others)


def make_lgpr(settings: Settings, y: Array, seed: int) -> LocalGPRegressor:
    return LocalGPRegressor(n_calibration=CALIBRATION_ROWS, batch_size=BATCH_SIZE, random_state=seed, **settings)


def _all(**values: tuple[Any, ...]) -> tuple[Settings, ...]:
    """Every combination."""
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


_WGPR_LEARNING = _all(kernel=KERNELS, optimizer_iterations=ITERATIONS, relative_threshold=(0.0, 1e-2, 1e-1, inf))

CONTESTANTS: Mapping[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("WGPR", make_wgpr, _WGPR_LEARNING, ({"prediction": "nearest"},), fits_of="WGPR, any rule"),
        Contestant(
            "WGPR, any rule",
            make_wgpr,
            _WGPR_LEARNING,
            _all(prediction=("nearest", "barycenter", "robust_bcm", "best_few")),
        ),
        Contestant(
            "SOLAR",
            make_solar,
            _all(kernel=KERNELS, optimizer_iterations=ITERATIONS, w_gen=W_GENS),
            _all(n_best=(1, 3, 5, 10)),
        ),
        Contestant("OVFE", make_ovfe, _all(kernel=KERNELS, optimizer_iterations=(5, 10, 20, 40), restart=(0, 1))),
        Contestant(
            "LGPR",
            make_lgpr,
            _all(kernel=KERNELS, max_samples=(200, 500), w_gen=W_GENS),
            _all(n_models=(1, 3, 5, 10)),
        ),
    )
}
