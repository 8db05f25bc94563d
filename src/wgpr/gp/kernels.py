"""Stationary ARD kernels `k(x, x') = sf^2 h(q)`, `q = sum_i (x_i - x'_i)^2 / l_i^2` (docs/method.md, 1).

A kernel here is a family: it knows `h` and its derivative and holds no learned number. The numbers,
`Hyperparameters`, belong to a model, so that one kernel object serves the whole ensemble.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform

from wgpr.gp.linalg import Array, diagonal, inner, read_only

_NO_SHAPE = np.empty(0)


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of a model, in the units of the data.

    amplitude : standard deviation `sf` of the field.
    lengthscales : (d,), one `l_i` for each input.
    noise : standard deviation `s` of an observation around the field.
    shape : parameters of the kernel's own, positive; `alpha` of the rational quadratic, otherwise none.
    """

    amplitude: float
    lengthscales: Array
    noise: float
    shape: Array = field(default_factory=_NO_SHAPE.copy)

    def __post_init__(self) -> None:
        for name in ("lengthscales", "shape"):
            object.__setattr__(self, name, read_only(np.array(getattr(self, name), dtype=np.float64, ndmin=1)))

    def to_vector(self) -> Array:
        """`(sf, l_1, ..., l_d, shape..., s)`."""
        return np.concatenate([[self.amplitude], self.lengthscales, self.shape, [self.noise]])

    def to_log(self) -> Array:
        """The logarithm of each: the variables of the optimiser."""
        return np.log(self.to_vector())

    def scaled(self, length: Array | float, target: float) -> "Hyperparameters":
        """The same in other units: inputs are multiplied by `length` (d,), targets by `target`."""
        return Hyperparameters(self.amplitude * target, self.lengthscales * length, self.noise * target, self.shape)

    @classmethod
    def from_vector(cls, theta: Array, n_features: int) -> "Hyperparameters":
        return cls(float(theta[0]), theta[1 : n_features + 1], float(theta[-1]), theta[n_features + 1 : -1])

    @classmethod
    def from_log(cls, log_theta: Array, n_features: int) -> "Hyperparameters":
        return cls.from_vector(np.exp(log_theta), n_features)


class Profile(NamedTuple):
    """A kernel's correlation at squared distances `q`, and how its logarithm changes.

    h : `h(q)`, elementwise; log_slope : `d log h / dq`; by_log_shape : `d log h / d log shape_i`, one for each.
    """

    h: Array
    log_slope: Array | float
    by_log_shape: tuple[Array, ...] = ()


class Kernel(ABC):
    """A family of stationary ARD kernels; subclasses say only what `h` is."""

    n_shape = 0

    @abstractmethod
    def profile(self, q: Array, shape: Array) -> Profile:
        """`h` and its derivatives at `q`, an array of any shape; it may be overwritten."""

    def correlation(self, q: Array, shape: Array) -> Array:
        """`h(q)` alone; `q` may be overwritten."""
        return self.profile(q, shape).h

    def initial_shape(self) -> Array:
        """Where learning of the shape parameters starts."""
        return _NO_SHAPE

    def __call__(self, theta: Hyperparameters, X1: Array, X2: Array) -> Array:
        """The covariance matrix (n1, n2) of the field at `X1` (n1, d) and `X2` (n2, d)."""
        K = self.correlation(cdist(X1 / theta.lengthscales, X2 / theta.lengthscales, "sqeuclidean"), theta.shape)
        K *= self.variance(theta)
        return K

    def covariance(self, theta: Hyperparameters, X: Array) -> Array:
        """The covariance matrix (n, n) of the field at `X` (n, d), each pair of places evaluated once."""
        if len(X) < 2:
            return np.full((len(X), len(X)), self.variance(theta))
        K: Array = squareform(self.correlation(pdist(X / theta.lengthscales, "sqeuclidean"), theta.shape))
        diagonal(K)[:] = 1.0
        K *= self.variance(theta)
        return K

    def variance(self, theta: Hyperparameters) -> float:
        """`k(x, x)`, the same everywhere."""
        return theta.amplitude**2

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *sorted(vars(self).items())))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


class SquaredExponential(Kernel):
    """`h = exp(-q / 2)`: smooth fields."""

    def profile(self, q: Array, shape: Array) -> Profile:
        q *= -0.5
        return Profile(np.exp(q, out=q), -0.5)


class Matern32(Kernel):
    """`h = (1 + u) exp(-u)`, `u = sqrt(3 q)`: rough fields, once differentiable."""

    def profile(self, q: Array, shape: Array) -> Profile:
        u = np.sqrt(3.0 * q)
        one_plus_u = 1.0 + u
        return Profile(one_plus_u * np.exp(-u), -1.5 / one_plus_u)


class Matern52(Kernel):
    """`h = (1 + u + u^2 / 3) exp(-u)`, `u = sqrt(5 q)`: between `Matern32` and `SquaredExponential`."""

    def profile(self, q: Array, shape: Array) -> Profile:
        u = np.sqrt(5.0 * q)
        polynomial = 1.0 + u + u * u / 3.0
        return Profile(polynomial * np.exp(-u), (-5.0 / 6.0) * (1.0 + u) / polynomial)


class RationalQuadratic(Kernel):
    """`h = (1 + q / (2 alpha))^-alpha`: a mixture of length-scales; `alpha` is learned.

    alpha : where learning starts; small is a wide mixture, infinity the squared exponential.
    """

    n_shape = 1

    def __init__(self, alpha: float = 1.0) -> None:
        if not 0 < alpha < np.inf:
            raise ValueError(f"alpha must be positive and finite, got {alpha!r}; try 1.0")
        self.alpha = alpha

    def initial_shape(self) -> Array:
        return np.array([self.alpha])

    def profile(self, q: Array, shape: Array) -> Profile:
        # d / d log alpha of -alpha log(1 + v), v = q / (2 alpha), is alpha (v / (1 + v) - log(1 + v)).
        (alpha,) = shape
        v = q * (0.5 / alpha)
        log_base, inverse_base = np.log1p(v), 1.0 / (1.0 + v)
        v *= inverse_base
        v -= log_base
        v *= alpha
        log_base *= -alpha
        inverse_base *= -0.5
        return Profile(np.exp(log_base, out=log_base), inverse_base, (v,))

    def correlation(self, q: Array, shape: Array) -> Array:
        (alpha,) = shape
        q *= 0.5 / alpha
        q += 1.0
        np.log(q, out=q)
        q *= -alpha
        return np.exp(q, out=q)


KERNELS: dict[str, type[Kernel]] = {
    "se": SquaredExponential,
    "matern32": Matern32,
    "matern52": Matern52,
    "rq": RationalQuadratic,
}


def as_kernel(kernel: "str | Kernel") -> Kernel:
    """The kernel that a user named, or gave."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel in KERNELS:
        return KERNELS[kernel]()
    names = ", ".join(repr(name) for name in KERNELS)
    raise ValueError(f"kernel must be one of {names} or a Kernel instance, got {kernel!r}")


class KernelBlock:
    """The covariance of the field at `X1` with the field at `X2`, with its reverse-mode gradient.

    X1 : (n1, d), X2 : (n2, d).

    Attributes
    ----------
    K : (n1, n2) the covariance matrix; profile : of the kernel, where `h` has become `K`.
    """

    def __init__(self, kernel: Kernel, theta: Hyperparameters, X1: Array, X2: Array) -> None:
        self.theta = theta
        origin = X2[0] if len(X2) else 0.0  # the gradient expands squares, which loses digits far from zero
        self.X1 = (X1 - origin) / theta.lengthscales
        self.X2 = (X2 - origin) / theta.lengthscales
        # Differences first, then squares: |x1|^2 + |x2|^2 - 2 x1.x2 would lose the digits of points that are
        # close together, and with them the factorisation.
        self.profile = kernel.profile(cdist(self.X1, self.X2, "sqeuclidean"), theta.shape)
        self.K = self.profile.h
        self.K *= kernel.variance(theta)

    def pull_back(self, G: Array, shared: slice) -> tuple[Array, Array, Array]:
        """Gradients of a scalar `E`, given `G = dE/dK` (n1, n2), which is overwritten.

        With `W = G * K * d log h / dq`, everything is a few products of `W` with the scaled inputs.

        shared : the columns of `K` that are those of `X1` itself.

        Returns
        -------
        `dE / d (log sf, log l_1..l_d, log shape...)` (the noise is not the kernel's), `dE / dX1` (n1, d), and the sum
        (n2,) of each column of `G * K`.
        """
        X1, X2, slope = self.X1, self.X2, self.profile.log_slope
        GK = np.multiply(G, self.K, out=G)
        column_sums = np.ones(len(GK)) @ GK
        if isinstance(slope, float):  # a constant factor, applied to the small results
            W, factor, sums2 = GK, slope, column_sums
        else:
            W, factor = GK * slope, 1.0
            sums2 = np.ones(len(W)) @ W
        sums1, WX2 = W @ np.ones(len(X2)), W @ X2
        # dq / d log l_i = -2 (x1_i - x2_i)^2 / l_i^2, and the square is expanded.
        squares = sums1 @ X1**2 + sums2 @ X2**2
        by_lengthscales = (-2.0 * factor) * (squares - 2.0 * np.einsum("ij,ij->j", X1, WX2))
        by_shape = [inner(GK, derivative) for derivative in self.profile.by_log_shape]
        # dq / dx1 = 2 (x1 - x2) / l^2, summed over all x2
        differences = (sums1 + sums2[shared])[:, None] * X1 - (WX2 + W[:, shared].T @ X1)
        by_inputs = differences * (2.0 * factor / self.theta.lengthscales)
        return np.concatenate([[2.0 * column_sums.sum()], by_lengthscales, by_shape]), by_inputs, column_sums


class WeightedTrace:
    """`tr(C K(X, X))` for fixed inputs and symmetric weights, as the hyperparameters change.

    Only the distances of different points are kept, each pair once.

    X : (n, d), C : (n, n) symmetric.
    """

    def __init__(self, kernel: Kernel, X: Array, C: Array) -> None:
        self.kernel = kernel
        i, j = np.triu_indices(len(X), 1)
        self._squares = np.ascontiguousarray(((X[i] - X[j]) ** 2).T)
        self._weights = 2.0 * C[i, j]
        self._diagonal = float(C.trace())

    def value_and_gradient(self, theta: Hyperparameters) -> tuple[float, Array]:
        """The trace, and its gradient by `(log sf, log l_1..l_d, log shape...)`."""
        variance = self.kernel.variance(theta)
        inverse_squares = 1.0 / theta.lengthscales**2
        q = inverse_squares @ self._squares
        h, log_slope, by_log_shape = self.kernel.profile(q, theta.shape)
        h *= self._weights
        trace = variance * (self._diagonal + h.sum())
        gradient = np.empty(1 + len(inverse_squares) + len(by_log_shape))
        gradient[0] = 2.0 * trace
        gradient[1 : len(inverse_squares) + 1] = (self._squares @ (h * log_slope)) * (-2.0 * variance * inverse_squares)
        gradient[len(inverse_squares) + 1 :] = [variance * (h @ derivative) for derivative in by_log_shape]
        return float(trace), gradient
