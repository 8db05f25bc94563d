"""The five regressors: each is a learner, a splitting rule and a prediction rule on the one skeleton."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from wgpr.base import EnsembleRegressor, OnlineRegressor
from wgpr.checks import require_count, require_number
from wgpr.ensemble import SplittingRule
from wgpr.exact import ExactLearner, calibrate
from wgpr.kernels import Hyperparameters, Kernel, as_kernel
from wgpr.linalg import Array
from wgpr.prediction import Barycenter, BestFew, Nearest, PredictionRule, RobustBCM, Weighted
from wgpr.scales import Scales, typical
from wgpr.sparse import SparseLearner
from wgpr.splitting import Always, Evidence, KernelDistance, Never, Wasserstein
from wgpr.units import Units

PREDICTION_RULES: Mapping[str, Callable[[], PredictionRule]] = {
    "nearest": Nearest,
    "weighted": Weighted,
    "best_few": BestFew,
    "barycenter": Barycenter,
    "robust_bcm": RobustBCM,
}


class _SparseSettings(EnsembleRegressor):
    """Settings of the regressors whose local models are sparse."""

    kernel: str | Kernel
    n_inducing: int
    optimizer_iterations: int

    def _check_settings(self) -> None:
        super()._check_settings()
        as_kernel(self.kernel)
        require_count("n_inducing", self.n_inducing)
        require_count("optimizer_iterations", self.optimizer_iterations, least=0)

    def _make_learner(self, X: Array, y: Array, units: Units) -> SparseLearner:
        return SparseLearner(as_kernel(self.kernel), self.n_inducing, self.optimizer_iterations)


class WGPRegressor(_SparseSettings, OnlineRegressor):
    """Wasserstein-splitting Gaussian process regression (Kepler, Koppel, Bedi and Stilwell 2021).

    Every batch is tried on the nearest local models. The one whose predictions would move least learns it; if even that
    one would move too far, the batch starts a new model. A query is answered by the nearest model.

    Parameters
    ----------
    threshold : the largest squared Wasserstein distance that an update may move a model by. It is in the square
        of the target's unit, summed over pseudo-inputs and batch: double the targets, and it takes four times as much.
        0 starts a model for every batch, infinity never starts another.
    n_inducing : pseudo-inputs a local model may have (M).
    n_candidates : how many of the nearest models are tried (J_hat).
    batch_size : rows that are learned together; a step takes time and memory for matrices of this size.
    kernel : "se", "matern32", "matern52", "rq" or a `Kernel`.
    splitting : "wasserstein", "evidence", "never", "always", or an object with the method `assign`
        (see `wgpr.splitting`); `threshold` is for the first. A rule of your own sees rows in the ensemble's
        units (`units_.inputs(X)`), and distances and evidences in yours.
    prediction : "nearest", "weighted", "best_few", "barycenter", "robust_bcm", or an object with the method
        `combine` (see `wgpr.prediction`).
    learn_hyperparameters : False to learn a model's hyperparameters from its first batch only.
    optimizer_iterations : iterations of L-BFGS for each fit, at the most.
    history_size : steps that `history_` remembers, at the most.
    random_state : seed of the random choices; the same seed and rows give the same ensemble.

    Attributes
    ----------
    models_ : the local models; n_models_ : how many.
    n_samples_seen_ : rows given so far; n_pending_ : those of them that wait for a batch to fill.
    history_ : what happened in each step.
    hyperparameters_ : what each local model has learned, in the units of the data.

    Examples
    --------
    >>> import numpy as np
    >>> from wgpr import WGPRegressor
    >>> X = np.linspace(0, 10, 300)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = WGPRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[5.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(5.0)) < 0.05)
    True
    """

    def __init__(
        self,
        threshold: float = 30.0,
        n_inducing: int = 50,
        n_candidates: int = 5,
        batch_size: int = 100,
        kernel: str | Kernel = "se",
        splitting: "str | SplittingRule" = "wasserstein",
        prediction: "str | PredictionRule" = "nearest",
        learn_hyperparameters: bool = True,
        optimizer_iterations: int = 40,
        history_size: int = 10_000,
        random_state: Any = None,
    ) -> None:
        self.threshold = threshold
        self.n_inducing = n_inducing
        self.n_candidates = n_candidates
        self.batch_size = batch_size
        self.kernel = kernel
        self.splitting = splitting
        self.prediction = prediction
        self.learn_hyperparameters = learn_hyperparameters
        self.optimizer_iterations = optimizer_iterations
        self.history_size = history_size
        self.random_state = random_state

    def _check_settings(self) -> None:
        super()._check_settings()
        require_number("threshold", self.threshold, least=0.0)
        require_count("n_candidates", self.n_candidates)
        check_scalar(self.learn_hyperparameters, "learn_hyperparameters", (bool, np.bool_))
        self._make_splitting_rule()
        self._make_prediction_rule()

    def _make_learner(self, X: Array, y: Array, units: Units) -> SparseLearner:
        return SparseLearner(
            as_kernel(self.kernel), self.n_inducing, self.optimizer_iterations, self.learn_hyperparameters
        )

    def _make_splitting_rule(self) -> SplittingRule:
        rules: Mapping[str, Callable[[], SplittingRule]] = {
            "wasserstein": lambda: Wasserstein(self.threshold),
            "evidence": Evidence,
            "never": Never,
            "always": Always,
        }
        return _chosen("splitting", self.splitting, rules, "assign")

    def _make_prediction_rule(self) -> PredictionRule:
        return _chosen("prediction", self.prediction, PREDICTION_RULES, "combine")


class SolarGPRegressor(_SparseSettings, OnlineRegressor):
    """SOLAR GP (Wilcox and Yip 2020): streaming sparse local models, split by distance in input space.

    Each row goes to the closest model; rows that are far from all models start new ones. A query is answered by
    the few models that are close and certain.

    Parameters
    ----------
    w_gen : a row starts a model when its closeness `exp(-1/2 |(x - centre) / lengthscales|^2)` to every
        model is at most this; between 0 (never) and 1 (always).
    n_best : how many models answer a query.
    n_inducing, batch_size, kernel, optimizer_iterations, history_size, random_state : as in `WGPRegressor`.
    """

    def __init__(
        self,
        w_gen: float = 0.1,
        n_inducing: int = 50,
        batch_size: int = 100,
        n_best: int = 3,
        kernel: str | Kernel = "se",
        optimizer_iterations: int = 40,
        history_size: int = 10_000,
        random_state: Any = None,
    ) -> None:
        self.w_gen = w_gen
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.n_best = n_best
        self.kernel = kernel
        self.optimizer_iterations = optimizer_iterations
        self.history_size = history_size
        self.random_state = random_state

    def _check_settings(self) -> None:
        super()._check_settings()
        require_number("w_gen", self.w_gen, least=0.0, most=1.0)
        require_count("n_best", self.n_best)

    def _make_splitting_rule(self) -> SplittingRule:
        return KernelDistance(self.w_gen)

    def _make_prediction_rule(self) -> PredictionRule:
        return BestFew(self.n_best)


class LocalGPRegressor(OnlineRegressor):
    """Local Gaussian process regression (LGPR; Nguyen-Tuong, Seeger and Peters 2009).

    Exact local models with hyperparameters that are learned once and shared. `fit` learns them from rows drawn
    from all of the data; `partial_fit` from the first `n_calibration` rows, which wait until they are complete.

    Parameters
    ----------
    w_gen : as in `SolarGPRegressor`.
    hyperparameters : `Hyperparameters` to use in place of learning them.
    n_calibration : rows to learn the hyperparameters from.
    max_samples : rows that a local model keeps at the most, None for no limit; beyond it, those that the
        others explain best are dropped.
    n_models : how many of the closest models answer a query.
    batch_size, kernel, history_size, random_state : as in `WGPRegressor`.
    optimizer_iterations : iterations of L-BFGS for the hyperparameters, at the most.
    """

    def __init__(
        self,
        w_gen: float = 0.5,
        hyperparameters: Hyperparameters | None = None,
        n_calibration: int = 300,
        max_samples: int | None = 200,
        n_models: int = 10,
        batch_size: int = 100,
        kernel: str | Kernel = "se",
        optimizer_iterations: int = 100,
        history_size: int = 10_000,
        random_state: Any = None,
    ) -> None:
        self.w_gen = w_gen
        self.hyperparameters = hyperparameters
        self.n_calibration = n_calibration
        self.max_samples = max_samples
        self.n_models = n_models
        self.batch_size = batch_size
        self.kernel = kernel
        self.optimizer_iterations = optimizer_iterations
        self.history_size = history_size
        self.random_state = random_state

    def _check_settings(self) -> None:
        super()._check_settings()
        as_kernel(self.kernel)
        require_number("w_gen", self.w_gen, least=0.0, most=1.0)
        require_count("n_calibration", self.n_calibration)
        require_count("n_models", self.n_models)
        require_count("optimizer_iterations", self.optimizer_iterations, least=0)
        if self.max_samples is not None:
            require_count("max_samples", self.max_samples)
        _check_hyperparameters(self.hyperparameters)

    def _check_columns(self, n_features: int) -> None:
        if self.hyperparameters is not None and len(self.hyperparameters.lengthscales) != n_features:
            raise ValueError(
                f"hyperparameters has {len(self.hyperparameters.lengthscales)} length-scales and X has {n_features} "
                "columns; give one length-scale for each column"
            )

    def _representative_rows(self, X: Array, y: Array) -> tuple[Array, Array]:
        if self.hyperparameters is not None:
            return super()._representative_rows(X, y)
        n_drawn = min(self.n_calibration, len(y))
        rows = check_random_state(self.random_state).choice(len(y), n_drawn, replace=False)
        return X[rows], y[rows]

    def _n_before_learning(self) -> int:
        return self._batch_rows() if self.hyperparameters is not None else int(self.n_calibration)

    def _make_learner(self, X: Array, y: Array, units: Units) -> ExactLearner:
        theta = self._given_theta(units) or calibrate(as_kernel(self.kernel), X, y, max_iter=self.optimizer_iterations)
        return ExactLearner(as_kernel(self.kernel), theta, float(y.mean()), self.max_samples)

    def _make_quick_learner(self, X: Array, y: Array, units: Units) -> ExactLearner:
        mean = float(y.mean())
        theta = self._given_theta(units) or typical(as_kernel(self.kernel), Scales.of(X, y, mean))
        return ExactLearner(as_kernel(self.kernel), theta, mean, self.max_samples)

    def _given_theta(self, units: Units) -> Hyperparameters | None:
        return None if self.hyperparameters is None else units.hyperparameters(self.hyperparameters)

    def _make_splitting_rule(self) -> SplittingRule:
        return KernelDistance(self.w_gen)

    def _make_prediction_rule(self) -> PredictionRule:
        return Weighted(self.n_models)


class StreamingGPRegressor(_SparseSettings, OnlineRegressor):
    """One streaming sparse Gaussian process (OVFE; Bui, Nguyen and Turner 2017), updated for ever.

    Parameters
    ----------
    n_inducing, batch_size, kernel, optimizer_iterations, history_size, random_state : as in `WGPRegressor`.
    """

    def __init__(
        self,
        n_inducing: int = 50,
        batch_size: int = 100,
        kernel: str | Kernel = "se",
        optimizer_iterations: int = 40,
        history_size: int = 10_000,
        random_state: Any = None,
    ) -> None:
        self.n_inducing = n_inducing
        self.batch_size = batch_size
        self.kernel = kernel
        self.optimizer_iterations = optimizer_iterations
        self.history_size = history_size
        self.random_state = random_state

    def _make_splitting_rule(self) -> SplittingRule:
        return Never()

    def _make_prediction_rule(self) -> PredictionRule:
        return Nearest()


class SparseGPRegressor(_SparseSettings, EnsembleRegressor):
    """One sparse Gaussian process of all the data at once (VFE; Titsias 2009).

    Parameters
    ----------
    n_inducing, kernel, random_state : as in `WGPRegressor`.
    optimizer_iterations : iterations of L-BFGS for each of its two stages, at the most.
    """

    def __init__(
        self,
        n_inducing: int = 50,
        kernel: str | Kernel = "se",
        optimizer_iterations: int = 200,
        random_state: Any = None,
    ) -> None:
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.optimizer_iterations = optimizer_iterations
        self.random_state = random_state

    def _representative_rows(self, X: Array, y: Array) -> tuple[Array, Array]:
        return X, y

    def _batch_rows(self) -> int:
        return max(1, self.n_pending_)

    def _make_splitting_rule(self) -> SplittingRule:
        return Never()

    def _make_prediction_rule(self) -> PredictionRule:
        return Nearest()


# All of them, by the names that people call the methods.
METHODS: Mapping[str, type[EnsembleRegressor]] = {
    "wgpr": WGPRegressor,
    "solar": SolarGPRegressor,
    "lgpr": LocalGPRegressor,
    "streaming": StreamingGPRegressor,
    "sparse": SparseGPRegressor,
}


def _check_hyperparameters(given: object) -> None:
    if given is None:
        return
    if not isinstance(given, Hyperparameters):
        raise TypeError(f"hyperparameters must be a Hyperparameters or None, got {given!r}")
    values = given.to_vector()
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"hyperparameters must be positive and finite, got {given!r}")


def _chosen(name: str, choice: Any, rules: Mapping[str, Callable[[], Any]], method: str) -> Any:
    """The rule that a user named, or gave."""
    if isinstance(choice, str) and choice in rules:
        return rules[choice]()
    if not isinstance(choice, str | type) and callable(getattr(choice, method, None)):
        return choice
    names = ", ".join(repr(rule) for rule in rules)
    raise ValueError(f"{name} must be one of {names} or an object with the method {method!r}, got {choice!r}")
