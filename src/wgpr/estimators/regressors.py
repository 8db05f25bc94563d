"""The five regressors: each makes a method from its settings."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state, check_scalar

from wgpr.checks import require_count, require_number
from wgpr.ensemble.evaluation import SplittingRule
from wgpr.ensemble.territories import TerritorySettings
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.estimators.methods import BatchMethod, LearnerFactory, Method, TerritoryMethod
from wgpr.estimators.units import Units
from wgpr.gp.exact import ExactLearner, calibrate
from wgpr.gp.hyperparameters import Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, Kernel, as_kernel
from wgpr.gp.linalg import Array, Indices, mean_target
from wgpr.gp.sparse import SparseLearner
from wgpr.rules.prediction import Barycenter, BestFew, Nearest, PredictionRule, RobustBCM, Weighted
from wgpr.rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein

PREDICTION_RULES: Mapping[str, Callable[[], PredictionRule]] = {
    "nearest": Nearest,
    "weighted": Weighted,
    "best_few": BestFew,
    "barycenter": Barycenter,
    "robust_bcm": RobustBCM,
}


@dataclass(eq=False, repr=False)
class WGPRegressor(OnlineRegressor):
    """Online Gaussian process regression with territories that divide, after the WGPR of Kepler et al. (2021).

    The default needs no tuning. Each territory is a small Gaussian process with hyperparameters of its own. Rows are
    known at once. A territory that is full is thinned or divided; rows of another regime start a new one. A query is
    answered by its territory and what others know near it. `WGPRegressor.published()` is the method of the paper.

    Parameters
    ----------
    threshold : "auto" for the default. A number is the largest squared Wasserstein distance that an update may move a
        model by, as in the paper: in the square of the target's unit, summed over pseudo-inputs and batch. 0 starts a
        model for every batch, infinity never starts another. With several outputs it is the sum, each in its own unit,
        `units_.target_scale`.
    max_models : the most local models; beyond it, two neighbours are merged. None for no limit.
    kernel : "se", "matern32", "matern52", "rq" or a `Kernel`.
    calibrated : whether standard deviations are scaled so that 95 % of the rows, each predicted by those before it, are
        in the 95 % interval. For `threshold="auto"`.
    forgetting : fraction of its knowledge that a territory forgets with every 100 rows that it learns, for fields that
        change. For `threshold="auto"`.
    max_cache_bytes : memory for factorised matrices that answers keep, in bytes. With less, more of them are made anew.
        For `threshold="auto"`.
    n_inducing : M, the most pseudo-inputs of a local model. This and all that follow are for the paper's method.
    n_candidates : how many of the nearest models are tried (J_hat).
    batch_size : rows that are learned together; a step takes time and memory for matrices of this size.
    splitting : "wasserstein", "evidence", "never", "always", or an object with the method `assign`
        (see `wgpr.rules.splitting`); `threshold` is for the first. A rule of your own sees rows in the ensemble's
        units (`units_.inputs(X)`), and distances and evidences in yours.
    prediction : "nearest", "weighted", "best_few", "barycenter", "robust_bcm", or an object with the method
        `combine` (see `wgpr.rules.prediction`).
    learn_hyperparameters : False to learn a model's hyperparameters from its first batch only.
    optimizer_iterations : the most iterations of L-BFGS for each fit.
    random_state : seed of the random starts of pseudo-inputs in the paper's method. The default makes no random choice:
        the same rows give the same ensemble.

    Attributes
    ----------
    models_ : the local models; n_models_ : how many.
    n_samples_seen_ : rows given so far; n_pending_ : those of them that wait for a batch to fill.
    n_outputs_ : number of outputs, columns of `y`.
    history_ : records of the steps.
    hyperparameters_ : what each local model has learned, in the units of the data; of several outputs, amplitude and
        noise are relative to `units_.target_scale`.

    Examples
    --------
    >>> import numpy as np
    >>> from wgpr import WGPRegressor
    >>> X = np.linspace(0, 10, 300)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = WGPRegressor().fit(X, y)
    >>> mean, std = model.predict([[5.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(5.0)) < 0.05)
    True
    """

    threshold: float | str = "auto"
    max_models: int | None = 10_000
    kernel: str | Kernel = "rq"
    calibrated: bool = True
    forgetting: float = 0.0
    max_cache_bytes: int = 2**28
    n_inducing: int = 50
    n_candidates: int = 5
    batch_size: int = 100
    splitting: str | SplittingRule = "wasserstein"
    prediction: str | PredictionRule = "nearest"
    learn_hyperparameters: bool = True
    optimizer_iterations: int = 40
    random_state: Any = None

    @classmethod
    def published(cls, **settings: Any) -> "WGPRegressor":
        """The method of the paper, with its settings (M = 50, batches of 100, J_hat = 5) unless others are given."""
        defaults = dict(PUBLISHED)
        if settings.get("splitting", "wasserstein") != "wasserstein":
            defaults["threshold"] = "auto"
        return cls(**{**defaults, **settings})

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn all rows in their order. If it fails or is interrupted, nothing changes.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs. Names of a frame's columns and of a series are
            kept, as `feature_names_in_` and `target_name_`.
        sample_weight : (n,) weights of the rows: the variance of their noise is divided by it. A row of an instrument
            with twice the standard deviation has the weight 1/4. For `threshold="auto"`.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn more rows, any number of them. If it fails or is interrupted, nothing changes: call it again.

        Rows are known at once, and it makes no difference how many are given at a time. (The paper's method learns
        batches: `n_pending_` rows wait, and `predict` uses them too.)

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets, or (n, k) for k outputs, the same number in every call.
        sample_weight : as for `fit`.
        """
        return self._partial_fit(X, y, sample_weight)

    def _make_method(self) -> Method:
        _check_random_state(self.random_state)
        kernel = as_kernel(self.kernel)
        if not _is_auto(self.threshold):
            require_number("threshold", self.threshold, least=0.0, otherwise='"auto"')
        if self.max_models is not None:
            require_count("max_models", self.max_models, otherwise="None")
        require_number("forgetting", self.forgetting, least=0.0, most=0.99)
        require_count("max_cache_bytes", self.max_cache_bytes, least=0)
        check_scalar(self.calibrated, "calibrated", (bool, np.bool_))
        if _is_auto(self.threshold) and isinstance(self.splitting, str) and self.splitting == "wasserstein":
            self._check_unused(_OF_THE_PAPER, "the default", "use WGPRegressor.published(...)")
            settings = TerritorySettings(kernel, self.max_models, float(self.forgetting))
            return TerritoryMethod(settings, bool(self.calibrated), int(self.max_cache_bytes))
        return self._batch_method()

    def _batch_method(self) -> Method:
        require_count("n_candidates", self.n_candidates)
        check_scalar(self.learn_hyperparameters, "learn_hyperparameters", (bool, np.bool_))
        if not _is_auto(self.threshold) and not (isinstance(self.splitting, str) and self.splitting == "wasserstein"):
            raise ValueError(
                f"threshold={self.threshold!r} has no effect with splitting={self.splitting!r}; "
                'leave out threshold, or use splitting="wasserstein"'
            )
        self._check_unused(("forgetting", "max_cache_bytes"), "the paper's method", 'use threshold="auto"')
        rules: Mapping[str, Callable[[], SplittingRule]] = {
            "wasserstein": lambda: Wasserstein(float(self.threshold)),
            "evidence": Evidence,
            "never": Never,
            "always": Always,
        }
        splitting = _rule("splitting", self.splitting, rules, "assign")
        prediction = _rule("prediction", self.prediction, PREDICTION_RULES, "combine")
        method = _online(self, _sparse_learner(self), splitting, prediction)
        return replace(method, n_candidates=self.n_candidates, max_models=self.max_models)

    def _check_unused(self, names: Sequence[str], method: str, remedy: str) -> None:
        """A setting without effect is an error."""
        for name in names:
            value, default = getattr(self, name), getattr(type(self), name)
            is_plain = isinstance(value, str | int | float | np.generic)
            if value is not default and not (is_plain and value == default):
                raise ValueError(f"{name}={value!r} has no effect with {method}; leave it out, or {remedy}")


# Settings of the paper's method alone: an error with the default.
_OF_THE_PAPER = (
    "n_inducing", "n_candidates", "batch_size", "prediction", "learn_hyperparameters", "optimizer_iterations",
)  # fmt: skip


def settings_without_effect(model: EnsembleRegressor) -> tuple[str, ...]:
    """Names of settings that are for the other method of the same class: the default, or that of the paper."""
    if not isinstance(model, WGPRegressor):
        return ()
    is_default = isinstance(model._method(), TerritoryMethod)
    return (
        (*_OF_THE_PAPER, "splitting", "random_state") if is_default else ("calibrated", "forgetting", "max_cache_bytes")
    )


# The settings of the paper, where they are not the defaults.
PUBLISHED: Mapping[str, Any] = {"threshold": 30.0, "max_models": None, "kernel": "se", "calibrated": False}


@dataclass(eq=False, repr=False)
class SolarGPRegressor(OnlineRegressor):
    """SOLAR GP (Wilcox and Yip 2020): streaming sparse local models, split by distance in input space.

    Each row goes to the closest model; rows that are far from all models start new ones. A query is answered by
    the few models that are close and certain.

    Parameters
    ----------
    w_gen : a row starts a model when its closeness `exp(-1/2 |(x - centre) / lengthscales|^2)` to every
        model is at most this; between 0 (never) and 1 (always).
    n_best : how many models answer a query.
    n_inducing : M, the most pseudo-inputs of a local model.
    batch_size, kernel, optimizer_iterations : as in `WGPRegressor`.
    random_state : seed of the random starts of pseudo-inputs.
    """

    w_gen: float = 0.1
    n_inducing: int = 50
    batch_size: int = 100
    n_best: int = 3
    kernel: str | Kernel = "se"
    optimizer_iterations: int = 40
    random_state: Any = None

    def _make_method(self) -> Method:
        require_count("n_best", self.n_best)
        return _online(self, _sparse_learner(self), KernelDistance(self.w_gen), BestFew(self.n_best))


@dataclass(eq=False, repr=False)
class LocalGPRegressor(OnlineRegressor):
    """Local Gaussian process regression (LGPR; Nguyen-Tuong, Seeger and Peters 2009).

    Exact local models with hyperparameters that are learned once and shared. `fit` learns them from rows drawn
    from all of the data; `partial_fit` from the first `n_calibration` rows, which wait until they are complete.

    Parameters
    ----------
    w_gen : as in `SolarGPRegressor`.
    hyperparameters : `Hyperparameters` to use in place of learning them; for several outputs, with amplitude and noise
        relative to `units_.target_scale`, the median deviation of each output in the first batch.
    n_calibration : rows to learn the hyperparameters from.
    max_samples : the most rows that a local model keeps, None for no limit; beyond it, those that the
        others explain best are dropped.
    n_models : how many of the closest models answer a query.
    batch_size, kernel : as in `WGPRegressor`.
    optimizer_iterations : the most iterations of L-BFGS for the hyperparameters.
    random_state : seed of the rows that `fit` draws to learn the hyperparameters from.
    """

    w_gen: float = 0.5
    hyperparameters: Hyperparameters | None = None
    n_calibration: int = 300
    max_samples: int | None = 200
    n_models: int = 10
    batch_size: int = 100
    kernel: str | Kernel = "se"
    optimizer_iterations: int = 100
    random_state: Any = None

    def _make_method(self) -> Method:
        require_count("n_calibration", self.n_calibration)
        require_count("n_models", self.n_models)
        require_count("optimizer_iterations", self.optimizer_iterations, least=0)
        if self.max_samples is not None:
            require_count("max_samples", self.max_samples)
        method = _online(self, self._learner, KernelDistance(self.w_gen), Weighted(self.n_models))
        if self.hyperparameters is not None:
            _check_hyperparameters(self.hyperparameters)
            return replace(method, n_features=len(self.hyperparameters.lengthscales))

        def drawn_rows(n_rows: int) -> Indices:
            n_drawn = min(self.n_calibration, n_rows)
            return check_random_state(self.random_state).choice(n_rows, n_drawn, replace=False)

        n_first = int(self.n_calibration)
        return replace(method, n_first=n_first, quick_learner=self._quick_learner, rows_to_begin=drawn_rows)

    def _learner(self, X: Array, y: Array, units: Units) -> ExactLearner:
        kernel = as_kernel(self.kernel)
        if self.hyperparameters is None:
            theta = calibrate(kernel, X, y, max_iter=self.optimizer_iterations)
        else:
            theta = units.hyperparameters(self.hyperparameters)
        return ExactLearner(kernel, theta, mean_target(y), self.max_samples)

    def _quick_learner(self, X: Array, y: Array, units: Units) -> ExactLearner:
        kernel, mean = as_kernel(self.kernel), mean_target(y)
        return ExactLearner(kernel, default_hyperparameters(kernel, Scales.of(X, y, mean)), mean, self.max_samples)


@dataclass(eq=False, repr=False)
class StreamingGPRegressor(OnlineRegressor):
    """One streaming sparse Gaussian process (OVFE; Bui, Nguyen and Turner 2017), updated for ever.

    Parameters
    ----------
    n_inducing, batch_size, kernel, optimizer_iterations, random_state : as in `SolarGPRegressor`.
    """

    n_inducing: int = 50
    batch_size: int = 100
    kernel: str | Kernel = "se"
    optimizer_iterations: int = 40
    random_state: Any = None

    def _make_method(self) -> Method:
        return _online(self, _sparse_learner(self), Never(), Nearest())


@dataclass(eq=False, repr=False)
class SparseGPRegressor(EnsembleRegressor):
    """One sparse Gaussian process of all the data at once (VFE; Titsias 2009).

    Parameters
    ----------
    n_inducing, kernel, random_state : as in `SolarGPRegressor`.
    optimizer_iterations : the most iterations of L-BFGS for each of its two stages.
    """

    n_inducing: int = 50
    kernel: str | Kernel = "se"
    optimizer_iterations: int = 200
    random_state: Any = None

    def _make_method(self) -> Method:
        _check_random_state(self.random_state)
        all_rows = sys.maxsize
        return BatchMethod(_sparse_learner(self), Never(), Nearest(), all_rows, n_first=all_rows)


# All of them, by the names that people call the methods.
METHODS: Mapping[str, type[EnsembleRegressor]] = {
    "wgpr": WGPRegressor,
    "solar": SolarGPRegressor,
    "lgpr": LocalGPRegressor,
    "streaming": StreamingGPRegressor,
    "sparse": SparseGPRegressor,
}


def _online(
    estimator: Any, learner: LearnerFactory, splitting: SplittingRule, prediction: PredictionRule
) -> BatchMethod:
    """A method that learns batches in the order of arrival; settings that all of them have are checked here."""
    _check_random_state(estimator.random_state)
    require_count("batch_size", estimator.batch_size)
    as_kernel(estimator.kernel)
    n = int(estimator.batch_size)
    return BatchMethod(learner, splitting, prediction, n, n_first=n)


def _sparse_learner(estimator: Any) -> LearnerFactory:
    """Makes the paper's learner by the estimator's settings, which are checked here."""
    kernel = as_kernel(estimator.kernel)
    require_count("n_inducing", estimator.n_inducing)
    require_count("optimizer_iterations", estimator.optimizer_iterations, least=0)
    learns = bool(getattr(estimator, "learn_hyperparameters", True))
    learner = SparseLearner(kernel, int(estimator.n_inducing), int(estimator.optimizer_iterations), learns)
    return lambda X, y, units: learner


def _check_random_state(random_state: Any) -> None:
    try:
        check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state must be a seed, a RandomState or None: {error}") from error


def _check_hyperparameters(given: object) -> None:
    if not isinstance(given, Hyperparameters):
        raise TypeError(f"hyperparameters must be a Hyperparameters or None, got {given!r}")
    values = given.to_vector()
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"hyperparameters must be positive and finite, got {given!r}")


def _is_auto(setting: Any) -> bool:
    return isinstance(setting, str) and setting == "auto"


def _rule(name: str, choice: Any, rules: Mapping[str, Callable[[], Any]], method: str) -> Any:
    """The rule that a user named, or gave."""
    if isinstance(choice, str) and choice in rules:
        return rules[choice]()
    if not isinstance(choice, str | type) and callable(getattr(choice, method, None)):
        return choice
    names = ", ".join(repr(rule) for rule in rules)
    raise ValueError(f"{name} must be one of {names} or an object with the method {method!r}, got {choice!r}")
