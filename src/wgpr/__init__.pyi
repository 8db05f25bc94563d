# The public names. __init__.py imports each when it is first used.
from .ensemble.evaluation import StepRecord
from .estimators.regressors import (
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)
from .gp.kernels import Hyperparameters, Matern32, Matern52, RationalQuadratic, SquaredExponential
from .io.container import MapError
from .io.maps import apply, diff, load
from .rules.batching import InOrder, Regional
from .rules.prediction import Barycenter, BestFew, Joined, Nearest, RobustBCM, Weighted
from .rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein, Worthwhile

__version__: str
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
