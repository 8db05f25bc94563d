"""The competitors of `compare.py`, each with the same few methods. Run as a program: one of them on one stream.

A worker imports only what its competitor needs, so that time and memory of the import are those of its package.
"""

import argparse
import json
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from operator import attrgetter
from pathlib import Path
from time import process_time
from typing import Any, Protocol

import numpy as np

BATCH = 100  # rows of a batch
M = 50  # pseudo-inputs, as in the paper
M_SURVEY = 500  # of one model for a survey, which 50 cannot follow
CALIBRATION = 1000  # rows to learn hyperparameters from, where that is done once
MOST_DENSE = 5000  # rows of methods with a dense matrix of all rows
NEIGHBOURS = 20  # of kriging
_MEASURABLE = 0.2  # seconds of processor time that are measured to some per cent
DAMPINGS = (1e-10, 1e-6, 1e-2)  # of the spline, which are tried by cross-validation

# How a regressor of ours is made, its settings, and whether its memory is bounded: not with the paper's settings, which
# do not limit the number of models.
OURS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "WGPR, the paper's method": ("WGPRegressor.published", {}, False),
    "WGPR, one model per batch": ("WGPRegressor.published", {"splitting": "always"}, False),
    "WGPR, defaults": ("WGPRegressor", {}, True),
    "one streamed model": ("StreamingGPRegressor", {}, True),
}

# Chosen on training rows of kin40k only (8,000 to learn, 2,000 to evaluate): see docs/scale.md.
STREAMING = {"n_steps": 5, "n_first_steps": 50, "learning_rate": 0.03, "keeps_momentum": True}
STREAMING_FAST = {"n_steps": 2, "n_first_steps": 50, "learning_rate": 0.03, "keeps_momentum": False}
STREAMING_LBFGS = {"n_iterations": 40}  # as many as ours, and as in ports of the authors' code
CONDITIONED = {"n_first_steps": 400, "learning_rate": 0.1}
STOCHASTIC = {"n_steps": 2, "n_first_steps": 100, "learning_rate": 0.03, "natural_rate": 0.05}

Prediction = tuple[np.ndarray, np.ndarray | None]


class Learner(Protocol):
    """Methods of every competitor; standard deviations are those of observations, None where there are none."""

    def learn(self, X: np.ndarray, y: np.ndarray) -> None: ...

    def predict(self, X: np.ndarray) -> Prediction: ...


@dataclass(frozen=True)
class Competitor:
    """How a learner is made, and its properties.

    modules : imported before the clock of learning starts; packages : to be installed for it.
    is_bounded : whether memory is.
    first_rows : rows of the first batch, where hyperparameters are learned once; None for all rows at once.
    max_rows : rows that it can learn, drawn at random from all; max_inputs : that it can have.
    make : gets the number of inputs, and returns the learner.
    """

    make: Callable[[int], Learner]
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    is_bounded: bool
    first_rows: int | None = BATCH
    max_rows: int | None = None
    max_inputs: int | None = None


class Ours:
    """A regressor of WGPR."""

    def __init__(self, maker: str, settings: dict[str, Any]) -> None:
        self.model = attrgetter(maker)(import_module("wgpr"))(**settings, random_state=0)

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        self.model.partial_fit(X, y)

    def finish(self) -> None:
        """Learn the rows that wait for a batch."""
        self.model.flush()

    def predict(self, X: np.ndarray) -> Prediction:
        return self.model.predict(X, return_std=True)

    @property
    def n_models(self) -> int:
        return self.model.n_models_

    @property
    def n_bytes(self) -> int:
        """Of the map file."""
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder) / "a.map")
            return (Path(folder) / "a.map").stat().st_size


class ExactGP:
    """scikit-learn's exact Gaussian process: hyperparameters from the first rows, then all rows at once."""

    rows_at_a_time = 1000

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        kernel = ConstantKernel() * RBF(np.full(X.shape[1], np.sqrt(X.shape[1]))) + WhiteKernel(0.1)
        calibrated = GaussianProcessRegressor(kernel).fit(X[:CALIBRATION], y[:CALIBRATION])
        self.model = GaussianProcessRegressor(calibrated.kernel_, optimizer=None).fit(X, y)

    def predict(self, X: np.ndarray) -> Prediction:
        """In parts, because the covariances with all rows take much memory."""
        parts = np.split(X, range(self.rows_at_a_time, len(X), self.rows_at_a_time))
        means, stds = zip(*(self.model.predict(part, return_std=True) for part in parts), strict=True)
        return np.concatenate(means), np.concatenate(stds)


class River:
    """A regressor of river, which learns and predicts row by row, after a running standardisation."""

    def __init__(self, regressor: Any) -> None:
        self.model = import_module("river.preprocessing").StandardScaler() | regressor

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        for row, target in zip(X.tolist(), y.tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), target)

    def predict(self, X: np.ndarray) -> Prediction:
        return np.array([self.model.predict_one(dict(enumerate(row))) for row in X.tolist()]), None


class Interpolation:
    """SciPy's linear interpolation between all rows."""

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        self.values = import_module("common").LinearInterpolation(X, y)

    def predict(self, X: np.ndarray) -> Prediction:
        return self.values(X), None


class Kriging:
    """Ordinary kriging by the nearest neighbours of each query, with an exponential variogram and a nugget.

    Range and nugget are those of a grid that predict 1,000 rows best from their neighbours; the sill is such that the
    standardised errors of these have the variance 1.
    """

    queries_at_a_time = 2000
    ranges, nuggets = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0), (0.001, 0.01, 0.1, 1.0)

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        from scipy.spatial import cKDTree

        self.tree, self.y = cKDTree(X), y
        rows = np.random.default_rng(0).permutation(len(y))[:1000]
        distances, nearest = (found[:, 1:] for found in self.tree.query(X[rows], NEIGHBOURS + 1))
        width, least = float(np.median(distances[:, -1])), np.inf
        for length, nugget in product(self.ranges, self.nuggets):
            mean, variance = self._kriged(distances, nearest, width * length, nugget)
            errors = (y[rows] - mean) ** 2
            if errors.mean() < least:
                least, self.range, self.nugget = errors.mean(), width * length, nugget
                self.sill = float((errors / variance).mean())

    def predict(self, X: np.ndarray) -> Prediction:
        parts = np.split(X, range(self.queries_at_a_time, len(X), self.queries_at_a_time))
        found = [self._kriged(*self.tree.query(part, NEIGHBOURS), self.range, self.nugget) for part in parts]
        means, variances = zip(*found, strict=True)
        return np.concatenate(means), np.sqrt(self.sill * np.concatenate(variances))

    def _kriged(
        self, distances: np.ndarray, nearest: np.ndarray, length: float, nugget: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve `[gamma, 1; 1, 0] [weights; mu] = [gamma_0; 1]` for each query; variances are of a sill of 1."""

        def semivariance(h: np.ndarray) -> np.ndarray:
            return nugget - np.expm1(-h / length)

        points, diagonal = self.tree.data[nearest], np.arange(NEIGHBOURS)
        system = np.ones((len(nearest), NEIGHBOURS + 1, NEIGHBOURS + 1))
        system[:, :-1, :-1] = semivariance(np.linalg.norm(points[:, :, None] - points[:, None], axis=-1))
        system[:, diagonal, diagonal] = 0.0
        system[:, -1, -1] = 0.0
        right = np.ones((len(nearest), NEIGHBOURS + 1))
        right[:, :-1] = semivariance(distances)
        weights = np.linalg.solve(system, right[:, :, None])[:, :, 0]
        return (weights[:, :-1] * self.y[nearest]).sum(axis=1), np.maximum((weights * right).sum(axis=1), 1e-12)


class VerdeSpline:
    """verde's biharmonic spline on medians of blocks, with the damping that cross-validation prefers."""

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        import verde

        spacing = float(np.sqrt(np.prod(np.ptp(X, axis=0)) / MOST_DENSE))
        coordinates, values = verde.BlockReduce(np.median, spacing).filter(tuple(X.T), y)
        self.model = verde.SplineCV(dampings=DAMPINGS).fit(coordinates, values)

    def predict(self, X: np.ndarray) -> Prediction:
        return self.model.predict(tuple(X.T)), None


class Standardised:
    """Another learner in units in which all rows have mean 0 and deviation 1.

    A stream does not know these, nor where to put pseudo-inputs: the first rows of a survey are a short line. Here both
    are given away.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def know_rows(self, X: np.ndarray, y: np.ndarray) -> None:
        self.centre, self.spread, self.mean, self.scale = X.mean(axis=0), X.std(axis=0), y.mean(), y.std()
        self.learner.places = (X - self.centre) / self.spread

    def learn(self, X: np.ndarray, y: np.ndarray) -> None:
        self.learner.learn((X - self.centre) / self.spread, (y - self.mean) / self.scale)

    def predict(self, X: np.ndarray) -> Prediction:
        mean, std = self.learner.predict((X - self.centre) / self.spread)
        return self.mean + self.scale * mean, None if std is None else self.scale * std


def ours(maker: str, settings: dict[str, Any], is_bounded: bool) -> Competitor:
    return Competitor(
        lambda _: Ours(maker, settings),
        modules=("wgpr.estimators.regressors",),  # `import wgpr` alone imports nothing else
        packages=(),
        is_bounded=is_bounded,
    )


def gaussian_process(module: str, name: str, settings: dict[str, Any], **facts: Any) -> Competitor:
    """One of the modules beside this one, with PyTorch on one thread.

    PyTorch puts off a half of its import until an optimiser is made; here it is done with the rest of the import.
    """

    def make(n_inputs: int) -> Learner:
        import_module("torch").set_num_threads(1)
        n_inducing = M_SURVEY if n_inputs == 2 else M
        return Standardised(getattr(import_module(module), name)(n_inducing=n_inducing, **settings))

    packages = ("torch",) if module == "streaming_torch" else ("torch", "gpytorch")
    return Competitor(make, (module, "torch._dynamo"), packages, is_bounded=True, **facts)


def river(module: str, make: Callable[[Any], Any], is_bounded: bool) -> Competitor:
    """`make` gets the module and returns a regressor; none of them has hyperparameters that it learns."""
    return Competitor(
        lambda _: River(make(import_module(module))),
        modules=(module, "river.preprocessing"),
        packages=("river",),
        is_bounded=is_bounded,
    )


def offline(make: Callable[[], Learner], module: str, package: str, **limits: int) -> Competitor:
    """A method that needs all rows at once."""
    return Competitor(lambda _: make(), (module,), (package,), is_bounded=False, first_rows=None, **limits)


COMPETITORS: dict[str, Competitor] = {
    **{name: ours(*settings) for name, settings in OURS.items()},
    "PyTorch, streaming bound": gaussian_process("streaming_torch", "StreamingGP", STREAMING),
    "PyTorch, streaming bound, few steps": gaussian_process("streaming_torch", "StreamingGP", STREAMING_FAST),
    "PyTorch, streaming bound, L-BFGS": gaussian_process("streaming_torch", "ThoroughStreamingGP", STREAMING_LBFGS),
    "GPyTorch, SVGP by natural gradients": gaussian_process("variational_gpytorch", "StochasticGP", STOCHASTIC),
    "GPyTorch, variational conditioning": gaussian_process(
        "variational_gpytorch", "ConditionedGP", CONDITIONED, first_rows=CALIBRATION
    ),
    "scikit-learn, exact GP of 5,000 rows": offline(
        lambda: Standardised(ExactGP()), "sklearn.gaussian_process", "scikit-learn", max_rows=MOST_DENSE
    ),
    "linear interpolation": offline(Interpolation, "common", "scipy", max_inputs=2),
    "kriging by 20 neighbours": offline(Kriging, "scipy.spatial", "scipy"),
    "verde, spline of 5,000 blocks": offline(VerdeSpline, "verde", "verde", max_inputs=2),
    "river, nearest neighbours": river(
        "river.neighbors", lambda it: it.KNNRegressor(engine=it.LazySearch(window_size=10_000)), is_bounded=True
    ),
    "river, Mondrian forest": river(
        "river.forest", lambda it: it.AMFRegressor(use_aggregation=False, seed=0), is_bounded=False
    ),
    "river, adaptive random forest": river("river.forest", lambda it: it.ARFRegressor(seed=0), is_bounded=True),
}


# One competitor on one stream


def peak_megabytes() -> float:
    """The largest memory that this process had. `getrusage` would count that of the parent process, too."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def learn(learner: Learner, X: np.ndarray, y: np.ndarray, first_rows: int) -> float:
    """Seconds of the processor, which other processes disturb little."""
    getattr(learner, "know_rows", lambda *_: None)(X, y)
    started = process_time()
    learner.learn(X[:first_rows], y[:first_rows])
    for start in range(first_rows, len(y), BATCH):
        learner.learn(X[start : start + BATCH], y[start : start + BATCH])
    getattr(learner, "finish", lambda: None)()
    return process_time() - started


def answer(learner: Learner, X: np.ndarray, patience: float = 60.0) -> tuple[Prediction, float]:
    """Predictions and seconds, the best of three; of fewer, if these take more than a minute.

    The clock of processor time goes in steps of some milliseconds: each of the three is asked until it has many steps.
    """
    times: list[float] = []
    while len(times) < 3 and sum(times) < patience:
        started, n_asked = process_time(), 0
        while (seconds := process_time() - started) < _MEASURABLE:
            prediction, n_asked = learner.predict(X), n_asked + 1
        times.append(seconds / n_asked)
    return prediction, min(times)


def measured(competitor: Competitor, path: Path) -> tuple[dict[str, Any], Prediction]:
    """Rates and memory, and predictions of the test rows."""
    for module in competitor.modules:
        import_module(module)
    imported_megabytes = peak_megabytes()
    with np.load(path) as file:
        data = dict(file)
    X, y = data["X"], data["y"]
    if competitor.max_rows is not None:
        rows = np.random.default_rng(0).permutation(len(y))[: competitor.max_rows]
        X, y = X[rows], y[rows]
    learner, first_rows = competitor.make(X.shape[1]), min(competitor.first_rows or len(y), len(y))
    seconds = learn(learner, X, y, first_rows)
    prediction, answer_seconds = answer(learner, data["X_test"])
    megabytes = peak_megabytes()
    return {
        "rows": len(y),
        "rows_per_second": len(y) / seconds,
        "queries_per_second": len(data["X_test"]) / answer_seconds,
        "megabytes": megabytes,
        "megabytes_above_import": megabytes - imported_megabytes,
        "models": getattr(learner, "n_models", None),
        "bytes": learner.n_bytes if isinstance(learner, Ours) else len(pickle.dumps(learner)),
    }, prediction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of a competitor")
    parser.add_argument("folder", type=Path, help="has data.npz; result.json and predictions.npz are written to it")
    arguments = parser.parse_args()
    result, (mean, std) = measured(COMPETITORS[arguments.name], arguments.folder / "data.npz")
    (arguments.folder / "result.json").write_text(json.dumps(result))
    np.savez(arguments.folder / "predictions.npz", mean=mean, **({} if std is None else {"std": std}))


if __name__ == "__main__":
    main()
