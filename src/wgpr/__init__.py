"""Online Gaussian process regression for worlds that are not the same everywhere."""

from wgpr.batching import InOrder, Regional
from wgpr.estimators import (
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)
from wgpr.kernels import Hyperparameters, Matern32, Matern52, RationalQuadratic, SquaredExponential
from wgpr.maps import apply, diff, load
from wgpr.prediction import Barycenter, BestFew, Joined, Nearest, RobustBCM, Weighted
from wgpr.records import StepRecord
from wgpr.splitting import Always, Evidence, KernelDistance, Never, Wasserstein, Worthwhile
from wgpr.storage.container import MapError

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
