"""Online Gaussian process regression for worlds that are not the same everywhere."""

from wgpr.ensemble import StepRecord
from wgpr.estimators import (
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)
from wgpr.kernels import Hyperparameters, Matern32, Matern52, RationalQuadratic, SquaredExponential
from wgpr.maps import apply, diff, load
from wgpr.prediction import Barycenter, BestFew, Nearest, RobustBCM, Weighted
from wgpr.splitting import Always, Evidence, KernelDistance, Never, Wasserstein
from wgpr.storage.container import MapError

__version__ = "0.1.0"

__all__ = [
    "Always",
    "Barycenter",
    "BestFew",
    "Evidence",
    "Hyperparameters",
    "KernelDistance",
    "LocalGPRegressor",
    "MapError",
    "Matern32",
    "Matern52",
    "Nearest",
    "Never",
    "RationalQuadratic",
    "RobustBCM",
    "SolarGPRegressor",
    "SparseGPRegressor",
    "SquaredExponential",
    "StepRecord",
    "StreamingGPRegressor",
    "WGPRegressor",
    "Wasserstein",
    "Weighted",
    "apply",
    "diff",
    "load",
]
