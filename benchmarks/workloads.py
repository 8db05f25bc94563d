"""What is measured: the pieces of work that the benchmarks time."""

from argparse import ArgumentParser
from collections.abc import Iterable

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from wgpr import LocalGPRegressor, SolarGPRegressor, SquaredExponential, StreamingGPRegressor, WGPRegressor
from wgpr.datasets import load
from wgpr.ensemble.ensemble import Ensemble
from wgpr.estimators.base import OnlineRegressor
from wgpr.gp.bound import Observations
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.sparse import SparseLearner

M, N, D = 50, 100, 8  # the paper's settings, and the inputs of kin40k


def require_data(parser: ArgumentParser, folder: str, names: Iterable[str]) -> None:
    """Complain in one sentence, and before the work begins."""
    for name in names:
        try:
            load(name, folder)
        except FileNotFoundError as error:
            parser.error(str(error))


def robot_arm(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of eight inputs, where kin40k itself is not at hand."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    angles = np.cumsum(X[:, :5], axis=1)
    return X, np.sin(angles).sum(axis=1) / 2 + 0.01 * rng.normal(size=n)


class Bound:
    """One bound with its gradient, with a summary of the past."""

    def __init__(self) -> None:
        X, y = robot_arm(2 * N)
        kernel = SquaredExponential()
        self.theta = Hyperparameters(1.0, np.full(D, 2.0), 0.3)
        past = Observations(kernel, X[:N], y[:N]).explained_by(self.theta, X[:M]).summary()
        self.observations = Observations(kernel, X[N:], y[N:], past)
        self.Z = X[N : N + M]

    def __call__(self) -> None:
        fit = self.observations.explained_by(self.theta, self.Z)
        _ = fit.value, fit.gradient()


class UnavoidableWork:
    """The dense work in one bound, as bare calls."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        A = rng.normal(size=(M, 2 * M))
        self.K = np.asfortranarray(A @ A.T)
        self.L = np.asfortranarray(np.linalg.cholesky(self.K))
        self.wide = np.asfortranarray(rng.normal(size=(M, N + M)))
        self.square = np.asfortranarray(rng.normal(size=(M, M)))
        self.exponents = -rng.random(10_000)

    def __call__(self) -> None:
        for _ in range(2):
            dtrsm(1.0, self.L, self.wide, lower=1)
            dtrsm(1.0, self.L, self.square, lower=1)
            _ = self.square @ self.wide
            dpotrf(self.K, lower=1)
        for _ in range(3):
            _ = self.square @ self.square
        np.exp(self.exponents)


def learners() -> dict[str, OnlineRegressor]:
    """Every streaming method at the paper's settings."""
    return {
        "WGPR": WGPRegressor.published(random_state=0),
        "WGPR, not thorough": WGPRegressor.published(thorough=False, random_state=0),
        "WGPR, one model per batch": WGPRegressor.published(splitting="always", random_state=0),
        "SOLAR GP": SolarGPRegressor(random_state=0),
        "LGPR": LocalGPRegressor(random_state=0),
        "one streamed model": StreamingGPRegressor(random_state=0),
    }


def ensemble_of(n_models: int, spread: float = 20.0) -> tuple[Ensemble, np.ndarray]:
    """Local models around random centres, as a travelling robot leaves them behind, and 10,000 queries among them."""
    rng = np.random.default_rng(0)
    learner = SparseLearner(SquaredExponential(), M, max_iter=0)
    centres = rng.uniform(0.0, spread, size=(n_models, D))
    ensemble = Ensemble.of([], D)
    for centre in centres:
        X = centre + rng.normal(size=(M, D))
        ensemble = ensemble.with_model(learner.quick_fit(X, np.sin(X).sum(axis=1)))
    return ensemble, centres[rng.integers(n_models, size=10_000)] + rng.normal(size=(10_000, D))
