# The public names. __init__.py imports each when it is first used.
from .ensemble.evaluation import StepRecord
from .estimators.regressors import (
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
)
from .fleet.merge import merge
from .fleet.offsets import Offset
from .fleet.sharded import ShardedRegressor
from .gp.kernels import Hyperparameters, Matern32, Matern52, RationalQuadratic, SquaredExponential
from .io.container import MapError
from .io.grids import predict_at
from .io.maps import apply, diff, load
from .planning.plan import Plan, plan
from .rules.prediction import Barycenter, BestFew, Nearest, RobustBCM, Weighted
from .rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein

__version__: str
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
    "Offset",
    "Plan",
    "RationalQuadratic",
    "RobustBCM",
    "ShardedRegressor",
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
    "merge",
    "plan",
    "predict_at",
]
