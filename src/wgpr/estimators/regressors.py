"""The five regressors: each is a learner, a splitting rule and a prediction rule on the one skeleton."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state, check_scalar

from wgpr.checks import require_count, require_number
from wgpr.ensemble.evaluation import SplittingRule
from wgpr.estimators.base import EnsembleRegressor, OnlineRegressor
from wgpr.estimators.units import Units
from wgpr.gp.adaptive import AdaptiveSparseLearner
from wgpr.gp.exact import ExactLearner, calibrate
from wgpr.gp.hyperparameters import Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, Kernel, as_kernel
from wgpr.gp.linalg import Array
from wgpr.gp.model import mean_target
from wgpr.gp.sparse import SparseLearner
from wgpr.rules.batching import Batching, InOrder, Regional
from wgpr.rules.prediction import Barycenter, BestFew, Joined, Nearest, PredictionRule, RobustBCM, Weighted
from wgpr.rules.splitting import Always, Evidence, KernelDistance, Never, Wasserstein, Worthwhile

PREDICTION_RULES: Mapping[str, Callable[[], PredictionRule]] = {
    "nearest": Nearest,
    "weighted": Weighted,
    "best_few": BestFew,
    "barycenter": Barycenter,
    "robust_bcm": RobustBCM,
    "joined": Joined,
}


class _SparseSettings(EnsembleRegressor):
    """Settings of the regressors whose local models are sparse."""

    kernel: str | Kernel
    n_inducing: Any
    optimizer_iterations: int

    def _check_settings(self) -> None:
        super()._check_settings()
        as_kernel(self.kernel)
        self._check_n_inducing()
        require_count("optimizer_iterations", self.optimizer_iterations, least=0)

    def _check_n_inducing(self) -> None:
        require_count("n_inducing", self.n_inducing)

    def _make_learner(self, X: Array, y: Array, units: Units) -> SparseLearner | AdaptiveSparseLearner:
        return SparseLearner(as_kernel(self.kernel), self.n_inducing, self.optimizer_iterations)


class WGPRegressor(_SparseSettings, OnlineRegressor):
    """Wasserstein-splitting Gaussian process regression (Kepler, Koppel, Bedi and Stilwell 2021), without its knobs.

    Every batch is tried on the closest local models. The one that explains it best learns it, unless a model of its own
    is worth its price. A query is answered by the nearest models, each together with what its neighbours know. The
    defaults need no tuning; `WGPRegressor.published()` is the method of the paper.

    Parameters
    ----------
    threshold : "auto" to start a new model when it is worth its price (see `wgpr.rules.splitting.Worthwhile`). A number is
        the largest squared Wasserstein distance that an update may move a model by, as in the paper: in the square
        of the target's unit, summed over pseudo-inputs and batch. 0 starts a model for every batch, infinity never
        starts another. Of several outputs it is the sum, each in its own unit, `units_.target_scale`.
    n_inducing : "auto" for as many pseudo-inputs as a local model needs, up to `max_inducing`, and for hyperparameters
        that lean on those of the neighbours. A number is how many it may have (M), moved by the optimiser, each model
        for itself, as in the paper.
    max_inducing : the most pseudo-inputs that "auto" may give to a local model.
    max_models : how many local models there may be; beyond it, two that agree are merged. None for no limit.
    n_candidates : how many of the nearest models are tried (J_hat).
    thorough : whether all candidates learn the batch in full before the decision, as in the paper. By default only
        those do that can still win after an update in closed form, without any optimisation.
    batch_size : rows that are learned together; a step takes time and memory for matrices of this size.
    batching : "regional" to learn rows together that are close together, "arrival" to learn them as they come.
    buffer_size : rows that wait for their region's turn, at the most; `predict` knows them too.
    kernel : "se", "matern32", "matern52", "rq" or a `Kernel`.
    splitting : "wasserstein", "evidence", "never", "always", or an object with the method `assign`
        (see `wgpr.rules.splitting`); `threshold` is for the first. A rule of your own sees rows in the ensemble's
        units (`units_.inputs(X)`), and distances and evidences in yours.
    prediction : "joined", "nearest", "weighted", "best_few", "barycenter", "robust_bcm", or an object with the method
        `combine` (see `wgpr.rules.prediction`).
    calibrated : whether the uncertainty of the field is stretched until 95 % of the rows, predicted before they are
        learned, are in the 95 % interval.
    forgetting : part of what a local model knows that it forgets with every batch that it learns, for fields that
        change; 0.01 lets rows fade over some hundred batches. For `n_inducing="auto"`.
    learn_hyperparameters : False to learn a model's hyperparameters from its first batch only.
    optimizer_iterations : iterations of L-BFGS for each fit, at the most.
    history_size : steps that `history_` remembers, at the most.
    n_jobs : fits that are done at once, in processes of their own, as joblib understands it; -1 for all cores. The
        result is the same to the bit. It pays where fits are large or many; the processes take seconds to start.
    random_state : seed of the random choices; the same seed and rows give the same ensemble.

    Attributes
    ----------
    models_ : the local models; n_models_ : how many.
    n_samples_seen_ : rows given so far; n_pending_ : those of them that wait for a batch to fill.
    n_outputs_ : how many outputs there are, columns of `y`.
    history_ : what happened in each step.
    hyperparameters_ : what each local model has learned, in the units of the data; of several outputs, amplitude and
        noise are relative to `units_.target_scale`.

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
        threshold: float | str = "auto",
        n_inducing: int | str = "auto",
        max_inducing: int = 200,
        max_models: int | None = 500,
        n_candidates: int = 2,
        thorough: bool = False,
        batch_size: int = 100,
        batching: str = "regional",
        buffer_size: int = 1000,
        kernel: str | Kernel = "rq",
        splitting: "str | SplittingRule" = "wasserstein",
        prediction: "str | PredictionRule" = "joined",
        calibrated: bool = True,
        forgetting: float = 0.0,
        learn_hyperparameters: bool = True,
        optimizer_iterations: int = 40,
        history_size: int = 10_000,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.threshold = threshold
        self.n_inducing = n_inducing
        self.max_inducing = max_inducing
        self.max_models = max_models
        self.n_candidates = n_candidates
        self.thorough = thorough
        self.batch_size = batch_size
        self.batching = batching
        self.buffer_size = buffer_size
        self.kernel = kernel
        self.splitting = splitting
        self.prediction = prediction
        self.calibrated = calibrated
        self.forgetting = forgetting
        self.learn_hyperparameters = learn_hyperparameters
        self.optimizer_iterations = optimizer_iterations
        self.history_size = history_size
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def published(cls, **settings: Any) -> "WGPRegressor":
        """The method of the paper, with its settings (M = 50, batches of 100, J_hat = 5) unless others are given."""
        return cls(**{**PUBLISHED, **settings})

    def _check_settings(self) -> None:
        super()._check_settings()
        if not _is_auto(self.threshold):
            require_number("threshold", self.threshold, least=0.0, otherwise='"auto"')
        require_count("max_inducing", self.max_inducing)
        if self.max_models is not None:
            require_count("max_models", self.max_models, otherwise="None")
        require_count("n_candidates", self.n_candidates)
        _check_n_jobs(self.n_jobs)
        require_number("forgetting", self.forgetting, least=0.0, most=0.99)
        for name in ("thorough", "calibrated", "learn_hyperparameters"):
            check_scalar(getattr(self, name), name, (bool, np.bool_))
        require_count("buffer_size", self.buffer_size)
        self._make_batching()
        self._make_splitting_rule()
        self._make_prediction_rule()

    def _check_n_inducing(self) -> None:
        if not _is_auto(self.n_inducing):
            require_count("n_inducing", self.n_inducing, otherwise='"auto"')

    def _make_learner(self, X: Array, y: Array, units: Units) -> SparseLearner | AdaptiveSparseLearner:
        kernel, max_iter, learns = as_kernel(self.kernel), self.optimizer_iterations, bool(self.learn_hyperparameters)
        if _is_auto(self.n_inducing):
            return AdaptiveSparseLearner(kernel, self.max_inducing, max_iter, learns, float(self.forgetting))
        return SparseLearner(kernel, int(self.n_inducing), max_iter, learns)

    def _make_batching(self) -> Batching:
        rules: Mapping[str, Callable[[], Batching]] = {
            "regional": lambda: Regional(self._batch_rows(), self.buffer_size),
            "arrival": lambda: InOrder(self._batch_rows()),
        }
        return _chosen("batching", self.batching, rules, "choose")

    def _make_splitting_rule(self) -> SplittingRule:
        rules: Mapping[str, Callable[[], SplittingRule]] = {
            "wasserstein": lambda: Worthwhile() if _is_auto(self.threshold) else Wasserstein(float(self.threshold)),
            "evidence": Evidence,
            "never": Never,
            "always": Always,
        }
        return _chosen("splitting", self.splitting, rules, "assign")

    def _make_prediction_rule(self) -> PredictionRule:
        return _chosen("prediction", self.prediction, PREDICTION_RULES, "combine")

    def _make_calibration_rule(self) -> PredictionRule:
        """A batch is in one territory: one joined model answers for all of it, without those beyond the border."""
        rule = self._make_prediction_rule()
        return replace(rule, n_models=1) if isinstance(rule, Joined) else rule

    def _max_models(self) -> int | None:
        return self.max_models

    def _is_calibrated(self) -> bool:
        return bool(self.calibrated)


# The settings of the paper, where they are not the defaults.
PUBLISHED: Mapping[str, Any] = {
    "threshold": 30.0,
    "n_inducing": 50,
    "max_models": None,
    "n_candidates": 5,
    "thorough": True,
    "batching": "arrival",
    "kernel": "se",
    "prediction": "nearest",
    "calibrated": False,
}


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
    hyperparameters : `Hyperparameters` to use in place of learning them; for several outputs, with amplitude and noise
        relative to `units_.target_scale`, the median deviation of each output in the first batch.
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
        return ExactLearner(as_kernel(self.kernel), theta, mean_target(y), self.max_samples)

    def _make_quick_learner(self, X: Array, y: Array, units: Units) -> ExactLearner:
        mean = mean_target(y)
        theta = self._given_theta(units) or default_hyperparameters(as_kernel(self.kernel), Scales.of(X, y, mean))
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


def _is_auto(setting: Any) -> bool:
    return isinstance(setting, str) and setting == "auto"


def _check_n_jobs(n_jobs: object) -> None:
    is_count = isinstance(n_jobs, int | np.integer) and n_jobs != 0 and n_jobs is not True
    if n_jobs is not None and not is_count:
        raise ValueError(f"n_jobs must be a number of processes, -1 for all cores, or None, got {n_jobs!r}; try 1")


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
