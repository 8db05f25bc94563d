"""A synthetic field with a known truth."""

from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline
from sklearn.utils import check_random_state

from wgpr.gp.kernels import Hyperparameters, SquaredExponential
from wgpr.gp.linalg import Array, cholesky_with_jitter


def two_regimes(n_samples: int = 3000, noise: float = 0.25, random_state: Any = None) -> tuple[Array, Array, Array]:
    """A line from 0 to 300 that is smooth on its left half and rugged on its right half.

    The halves are drawn from Gaussian processes with length-scales 40 and 5, and amplitudes 1 and 3.

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
