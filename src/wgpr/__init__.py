"""Online Gaussian process regression for worlds that are not the same everywhere."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wgpr.ensemble.evaluation import StepRecord
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

_MODULES = {
    "wgpr.ensemble.evaluation": ["StepRecord"],
    "wgpr.estimators.regressors": [
        "LocalGPRegressor",
        "SolarGPRegressor",
        "SparseGPRegressor",
        "StreamingGPRegressor",
        "WGPRegressor",
    ],
    "wgpr.gp.kernels": ["Hyperparameters", "Matern32", "Matern52", "RationalQuadratic", "SquaredExponential"],
    "wgpr.io.container": ["MapError"],
    "wgpr.io.maps": ["apply", "diff", "load"],
    "wgpr.rules.batching": ["InOrder", "Regional"],
    "wgpr.rules.prediction": ["Barycenter", "BestFew", "Joined", "Nearest", "RobustBCM", "Weighted"],
    "wgpr.rules.splitting": ["Always", "Evidence", "KernelDistance", "Never", "Wasserstein", "Worthwhile"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562): `import wgpr` takes milliseconds."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'wgpr' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
