"""Data to try things on: a synthetic world with a known answer, and the files of a folder that the user names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline
from sklearn.utils import check_random_state

from wgpr.kernels import Hyperparameters, SquaredExponential
from wgpr.linalg import Array, cholesky_with_jitter


@dataclass(frozen=True)
class Dataset:
    """Rows in the order in which they were recorded.

    X : (n, d), y : (n,); X_test, y_test : the established test rows, empty where there is no such split.
    is_stream : whether that order means anything (a track, a recording), or may be shuffled.
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    is_stream: bool

    def split(self, random_state: Any, test_part: float = 0.2) -> "Dataset":
        """Hold out random rows. A stream keeps its order, other rows are shuffled."""
        rng = check_random_state(random_state)
        order = rng.permutation(len(self.y))
        test, train = np.split(order, [round(test_part * len(order))])
        if self.is_stream:
            train = np.sort(train)
        return replace(self, X=self.X[train], y=self.y[train], X_test=self.X[test], y_test=self.y[test])

    def shuffled(self, random_state: Any) -> "Dataset":
        """The same rows in random order."""
        order = check_random_state(random_state).permutation(len(self.y))
        return replace(self, X=self.X[order], y=self.y[order])


def two_regimes(n_samples: int = 3000, noise: float = 0.25, random_state: Any = None) -> tuple[Array, Array, Array]:
    """A line from 0 to 300 that is smooth on its left half and rugged on its right half.

    Two Gaussian processes: length-scale 40 and amplitude 1, then length-scale 5 and amplitude 3.

    Returns
    -------
    X : (n, 1) in spatial order, y : (n,) with noise, f : (n,) without.
    """
    rng = check_random_state(random_state)
    x = np.linspace(0.0, 300.0, n_samples)
    halves = np.split(x, [int(np.searchsorted(x, 150.0))])
    f = np.concatenate([
        _draw(half, lengthscale, amplitude, rng)
        for half, lengthscale, amplitude in zip(halves, (40.0, 5.0), (1.0, 3.0), strict=True)
    ])  # fmt: skip
    return x[:, None], f + noise * rng.standard_normal(n_samples), f


def _draw(x: Array, lengthscale: float, amplitude: float, rng: np.random.RandomState) -> Array:
    """A function from a Gaussian process, drawn on a grid that is fine for its length-scale."""
    grid = np.linspace(x[0], x[-1], 2 + int(8 * (x[-1] - x[0]) / lengthscale))[:, None]
    theta = Hyperparameters(amplitude, np.array([lengthscale]), noise=1.0)
    L, _ = cholesky_with_jitter(SquaredExponential()(theta, grid, grid))
    return CubicSpline(grid[:, 0], L @ rng.standard_normal(len(grid)))(x)


def load(name: str, folder: str | Path) -> Dataset:
    """One of `DATASETS` from a folder of `.npz` files."""
    if name not in DATASETS:
        raise ValueError(f"name must be one of {', '.join(DATASETS)}, got {name!r}")
    file_name, columns, is_stream = DATASETS[name]
    path = Path(folder) / file_name
    if not path.exists():
        raise FileNotFoundError(f"{file_name} is not in {folder}; name the folder that holds it")
    with np.load(path) as file:
        X, y = columns(file)
        nothing = X[:0], y[:0]
        X_test, y_test = (file["X_test"], file["y_test"].ravel()) if "X_test" in file else nothing
    return Dataset(name, X, y, X_test, y_test, is_stream)


Columns = Callable[[Any], tuple[Array, Array]]


def _trustworthy_fixes(file: Any) -> tuple[Array, Array]:
    good = ~file["suspect"]
    return file["X_km"][good], file["y"][good]


# Name: file, inputs and target, whether the rows are in an order that means something.
DATASETS: dict[str, tuple[str, Columns, bool]] = {
    "kin40k": ("kin40k.npz", lambda file: (file["X_train"], file["y_train"].ravel()), False),
    "sarcos": ("sarcos_4449.npz", lambda file: (file["X"], file["y"][:, 0]), True),
    "abalone": ("abalone.npz", lambda file: (file["X"], file["y"].ravel()), False),
    "pumadyn": ("pumadyn8nm.npz", lambda file: (file["X"], file["y"].ravel()), False),
    "opinicon": ("bathymetry_opinicon.npz", lambda file: (file["X_km"], file["y"]), True),
    "tzibana": ("bathymetry_tzibana.npz", _trustworthy_fixes, True),
    "tzibana-raw": ("bathymetry_tzibana.npz", lambda file: (file["X_km"], file["y"]), True),
    "motorcycle": ("motorcycle.npz", lambda file: (file["X"].reshape(-1, 1), file["y"].ravel()), True),
}
