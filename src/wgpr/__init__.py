"""Online Gaussian process regression for worlds that are not the same everywhere."""

from wgpr.ensemble.records import StepRecord
from wgpr.estimators.regressors import (
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)
from wgpr.gp.kernels import Hyperparameters, Matern32, Matern52, RationalQuadratic, SquaredExponential
from wgpr.io.container import MapError
from wgpr.io.maps import apply, diff, load
from wgpr.rules.batching import InOrder, Regional
from wgpr.rules.prediction import Barycenter, BestFew, Joined, Nearest, RobustBCM, Weighted
from wgpr.rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein, Worthwhile

__version__ = "0.1.0"

__all__ = [
    "Always",
    "Barycenter",
    "BestFew",
    "Evidence",
    "Hyperparameters",
    "InOrder",
    "Joined",
    "KernelDistance",
    "LocalGPRegressor",
    "MapError",
    "Matern32",
    "Matern52",
    "Nearest",
    "Never",
    "RationalQuadratic",
    "Regional",
    "RobustBCM",
    "SolarGPRegressor",
    "SparseGPRegressor",
    "SquaredExponential",
    "StepRecord",
    "StreamingGPRegressor",
    "WGPRegressor",
    "Wasserstein",
    "Weighted",
    "Worthwhile",
    "apply",
    "diff",
    "load",
]
