"""The mathematics as the books and papers print it: explicit inverses, no care for speed. And data to try it on.

Every fast path of the package is compared with something here, or with another library. Of the package, the formulas
use nothing but the values of a kernel, and those are compared with scikit-learn's.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.linalg import inv, slogdet
from scipy.linalg import sqrtm
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from wgpr.gp.bound import Summary
from wgpr.gp.gaussian import Gaussian
from wgpr.gp.hyperparameters import Scales
from wgpr.gp.kernels import Hyperparameters, Kernel, Matern32, Matern52, RationalQuadratic, SquaredExponential
from wgpr.gp.linalg import Array
from wgpr.gp.sparse import SparseModel

ALL_KERNELS = (SquaredExponential(), Matern32(), Matern52(), RationalQuadratic(0.7))


class Posterior(NamedTuple):
    """Of a sparse Gaussian process: what it believes of the field at its pseudo-inputs, and how well it does.

    evidence : the lower bound on the log evidence of the batch, given all before it.
    """

    Z: Array
    theta: Hyperparameters
    mean: Array
    covariance: Array
    evidence: float


def titsias(kernel: Kernel, theta: Hyperparameters, X: Array, y: Array, Z: Array) -> Posterior:
    """Titsias (2009), equations 9 and 10."""
    K_mm, K_mn, K_nn = kernel(theta, Z, Z), kernel(theta, Z, X), kernel(theta, X, X)
    Q_nn = K_mn.T @ inv(K_mm) @ K_mn
    noise = theta.noise**2 * np.eye(len(X))
    evidence = log_normal(y, Q_nn + noise) - np.trace(K_nn - Q_nn) / (2 * theta.noise**2)
    Sigma = inv(K_mm + K_mn @ K_mn.T / theta.noise**2)
    return Posterior(Z, theta, K_mm @ Sigma @ K_mn @ y / theta.noise**2, K_mm @ Sigma @ K_mm, evidence)


def bui(kernel: Kernel, theta: Hyperparameters, X: Array, y: Array, Z: Array, old: Posterior) -> Posterior:
    """Bui, Nguyen and Turner (2017), section 3.2: a and b are the field at the old and at the new pseudo-inputs.

    The old posterior divided by the old prior is a likelihood of a, and that is all that is kept of the past:

        q(a) / p_old(a) = c N(y_a; a, D_a),     D_a = (S_a^-1 - K_old^-1)^-1,     y_a = D_a S_a^-1 m_a
    """
    m_a, S_a = old.mean, old.covariance
    K_old = kernel(old.theta, old.Z, old.Z)
    D_a = inv(inv(S_a) - inv(K_old))
    y_a = D_a @ inv(S_a) @ m_a
    log_c = 0.5 * (
        len(m_a) * np.log(2 * np.pi) + slogdet(D_a)[1] - slogdet(S_a)[1] + slogdet(K_old)[1]
        - m_a @ inv(S_a) @ m_a + y_a @ inv(D_a) @ y_a
    )  # fmt: skip

    K_bb, K_bf, K_ba = kernel(theta, Z, Z), kernel(theta, Z, X), kernel(theta, Z, old.Z)
    K_bg = np.hstack([K_bf, K_ba])  # g: the field at the batch and at the old pseudo-inputs
    Q_gg = K_bg.T @ inv(K_bb) @ K_bg
    Sigma = np.block([
        [theta.noise**2 * np.eye(len(y)), np.zeros((len(y), len(m_a)))],
        [np.zeros((len(m_a), len(y))), D_a],
    ])  # fmt: skip
    everything = np.concatenate([y, y_a])
    K_ff, K_aa = kernel(theta, X, X), kernel(theta, old.Z, old.Z)
    Q_ff, Q_aa = Q_gg[: len(y), : len(y)], Q_gg[len(y) :, len(y) :]
    unexplained = np.trace(K_ff - Q_ff) / theta.noise**2 + np.trace(inv(D_a) @ (K_aa - Q_aa))
    evidence = log_normal(everything, Q_gg + Sigma) + log_c - 0.5 * unexplained
    S_b = inv(inv(K_bb) + inv(K_bb) @ K_bg @ inv(Sigma) @ K_bg.T @ inv(K_bb))
    return Posterior(Z, theta, S_b @ inv(K_bb) @ K_bg @ inv(Sigma) @ everything, S_b, evidence)


def field_at(kernel: Kernel, posterior: Posterior, X: Array) -> Gaussian:
    """What a sparse posterior says of the field elsewhere."""
    theta, Z = posterior.theta, posterior.Z
    weights = kernel(theta, X, Z) @ inv(kernel(theta, Z, Z))
    prior = kernel(theta, X, X) - weights @ kernel(theta, Z, X)
    return Gaussian(weights @ posterior.mean, prior + weights @ posterior.covariance @ weights.T)


def exact_field_at(kernel: Kernel, theta: Hyperparameters, X: Array, y: Array, at: Array) -> Gaussian:
    """Rasmussen and Williams (2006), equations 2.25 and 2.26."""
    weights = kernel(theta, at, X) @ inv(kernel(theta, X, X) + theta.noise**2 * np.eye(len(y)))
    return Gaussian(weights @ y, kernel(theta, at, at) - weights @ kernel(theta, X, at))


def exact_log_evidence(kernel: Kernel, theta: Hyperparameters, X: Array, y: Array) -> float:
    return log_normal(y, kernel(theta, X, X) + theta.noise**2 * np.eye(len(y)))


def log_normal(y: Array, S: Array) -> float:
    """`log N(y; 0, S)`."""
    return float(-0.5 * (len(y) * np.log(2 * np.pi) + slogdet(S)[1] + y @ inv(S) @ y))


def conditional_variance(kernel: Kernel, theta: Hyperparameters, X: Array, given: list[int]) -> Array:
    """(n,): of the field at each row of `X`, when it is known at the rows `given`."""
    K = kernel(theta, X, X)
    nearly = 1e-10 * kernel.variance(theta) * np.eye(len(given))  # or the inverse is all rounding
    return np.diag(K - K[:, given] @ inv(K[np.ix_(given, given)] + nearly) @ K[given])


def textbook_wasserstein(p: Gaussian, q: Gaussian) -> float:
    """Squared: `|m1 - m2|^2 + tr(S1 + S2 - 2 (S1^(1/2) S2 S1^(1/2))^(1/2))`."""
    root = sqrtm(p.covariance)
    cross = sqrtm(root @ q.covariance @ root)
    shift = p.mean - q.mean
    return float(shift @ shift + np.trace(p.covariance + q.covariance - 2 * cross).real)


def sklearn_kernel(kernel: Kernel, theta: Hyperparameters) -> kernels.Kernel:
    """The same kernel in scikit-learn. Its rational quadratic has one length-scale only, so inputs are to be scaled."""
    ones = np.ones(len(theta.lengthscales))
    match kernel:
        case SquaredExponential():
            unit = kernels.RBF(ones)
        case Matern32():
            unit = kernels.Matern(ones, nu=1.5)
        case Matern52():
            unit = kernels.Matern(ones, nu=2.5)
        case RationalQuadratic():
            unit = kernels.RationalQuadratic(1.0, alpha=theta.shape[0])
    return kernels.ConstantKernel(theta.amplitude**2) * unit


class SklearnGP:
    """scikit-learn's exact Gaussian process, with hyperparameters that stay."""

    def __init__(self, kernel: Kernel, theta: Hyperparameters, X: Array, y: Array) -> None:
        self._theta = theta
        gp = GaussianProcessRegressor(sklearn_kernel(kernel, theta), alpha=theta.noise**2, optimizer=None)
        self._gp = gp.fit(X / theta.lengthscales, y)

    @property
    def log_evidence(self) -> float:
        return self._gp.log_marginal_likelihood()

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the field."""
        return self._gp.predict(X / self._theta.lengthscales, return_std=True)

    def posterior(self, X: Array) -> Gaussian:
        return Gaussian(*self._gp.predict(X / self._theta.lengthscales, return_cov=True))


def unlearned(kernel: Kernel, theta: Hyperparameters, mean: float = 0.0) -> SparseModel:
    """A sparse model that has seen nothing: `updated` by a fit, it knows exactly that fit."""
    d = len(theta.lengthscales)
    nothing = np.empty((0, 0))
    return SparseModel(
        kernel, theta, mean, np.empty((0, d)), 0, np.zeros(d), 0.0, Summary.empty(d), nothing, nothing, np.empty(0),
        log_normaliser=0.0, scales=Scales(np.ones(d), 1.0),
    )  # fmt: skip


def learned(model: SparseModel, X: Array, y: Array, theta: Hyperparameters, Z: Array) -> SparseModel:
    """The model with these rows learned too, at hyperparameters and pseudo-inputs that are given."""
    return model.updated(model.observations(X, y).explained_by(theta, Z), model.scales)


def central_differences(f: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """The gradient of `f`, in the shape of `at`."""
    gradient = np.empty(at.size)
    for i in range(at.size):
        nudge = np.zeros(at.size)
        nudge[i] = step
        nudge = nudge.reshape(at.shape)
        gradient[i] = (f(at + nudge) - f(at - nudge)) / (2 * step)
    return gradient.reshape(at.shape)


def relative_error(actual: Array | float, expected: Array | float) -> float:
    """Of a whole array, by its norm."""
    return float(np.linalg.norm(np.subtract(actual, expected)) / np.linalg.norm(expected))


def hyperparameters(kernel: Kernel, d: int, *, reach: float = 1.0, noise: float = 0.2) -> Hyperparameters:
    """No two length-scales alike; distances grow with the root of the dimension, and so do they."""
    lengthscales = reach * np.sqrt(d) * np.linspace(0.8, 1.3, d)
    return Hyperparameters(1.4, lengthscales, noise, kernel.initial_shape())


def separated_points(n: int, d: int, rng: np.random.Generator) -> Array:
    """Points (n, d) that keep their distance, so that kernel matrices are well-conditioned."""
    if d == 1:
        return np.linspace(-5, 5, n)[:, None] + rng.uniform(-2, 2, (n, 1)) / n
    return rng.uniform(-2, 2, (n, d))


def waves(X: Array, rng: np.random.Generator, noise: float = 0.2) -> Array:
    """Targets (n,) of a field that is neither linear nor separable."""
    return np.sin(X @ np.linspace(0.5, 1.5, X.shape[1])) + 0.3 * X[:, 0] + noise * rng.normal(size=len(X))
