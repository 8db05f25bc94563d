"""Stationary ARD kernels `k(x, x') = sf^2 h(q)`, `q = sum_i (x_i - x'_i)^2 / l_i^2` (docs/method.md, 1).

A kernel here is a family: it knows `h` and its derivative and holds no learned number. The numbers,
`Hyperparameters`, belong to a model, so that one kernel object serves the whole ensemble.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.distance import cdist

from wgpr.linalg import Array, frozen, inner

_NO_SHAPE = np.empty(0)


@dataclass(frozen=True)
class Hyperparameters:
    """What a model learns about its part of the world, in the units of the data.

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
            object.__setattr__(self, name, frozen(np.array(getattr(self, name), dtype=np.float64, ndmin=1)))

    def to_vector(self) -> Array:
        """`(sf, l_1, ..., l_d, shape..., s)`."""
        return np.concatenate([[self.amplitude], self.lengthscales, self.shape, [self.noise]])

    def to_log(self) -> Array:
        """The logarithm of each: the variables of the optimiser."""
        return np.log(self.to_vector())

    def scaled(self, length: Array | float, height: float) -> "Hyperparameters":
        """The same in other units: inputs are `length` (d,) times what they were, targets `height` times."""
        return Hyperparameters(self.amplitude * height, self.lengthscales * length, self.noise * height, self.shape)

    @classmethod
    def from_vector(cls, theta: Array, n_features: int) -> "Hyperparameters":
        return cls(float(theta[0]), theta[1 : n_features + 1], float(theta[-1]), theta[n_features + 1 : -1])

    @classmethod
    def from_log(cls, log_theta: Array, n_features: int) -> "Hyperparameters":
        return cls.from_vector(np.exp(log_theta), n_features)


class Kernel(ABC):
    """A family of stationary ARD kernels; subclasses say only what `h` is."""

    n_shape = 0

    @abstractmethod
    def profile(self, q: Array, shape: Array) -> tuple[Array, Array]:
        """`h(q)` and `dh/dq`, elementwise."""

    def initial_shape(self) -> Array:
        """Where learning of the shape parameters starts."""
        return _NO_SHAPE

    def profile_by_log_shape(self, q: Array, shape: Array) -> tuple[Array, ...]:
        """`dh / d log shape_i`, elementwise, one array for each shape parameter."""
        return ()

    def __call__(self, theta: Hyperparameters, X1: Array, X2: Array) -> Array:
        """The covariance matrix (n1, n2) of the field at `X1` (n1, d) and `X2` (n2, d)."""
        q = cdist(X1 / theta.lengthscales, X2 / theta.lengthscales, "sqeuclidean")
        K, _ = self.profile(q, theta.shape)
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

    def profile(self, q: Array, shape: Array) -> tuple[Array, Array]:
        h = -0.5 * q
        np.exp(h, out=h)
        return h, -0.5 * h


class Matern32(Kernel):
    """`h = (1 + u) exp(-u)`, `u = sqrt(3 q)`: rough fields, once differentiable."""

    def profile(self, q: Array, shape: Array) -> tuple[Array, Array]:
        u = np.sqrt(3.0 * q)
        decay = np.exp(-u)
        return (1.0 + u) * decay, -1.5 * decay


class Matern52(Kernel):
    """`h = (1 + u + u^2 / 3) exp(-u)`, `u = sqrt(5 q)`: between `Matern32` and `SquaredExponential`."""

    def profile(self, q: Array, shape: Array) -> tuple[Array, Array]:
        u = np.sqrt(5.0 * q)
        decay = np.exp(-u)
        return (1.0 + u + u * u / 3.0) * decay, (-5.0 / 6.0) * (1.0 + u) * decay


class RationalQuadratic(Kernel):
    """`h = (1 + q / (2 alpha))^-alpha`: a mixture of length-scales; `alpha` is learned.

    Parameters
    ----------
    alpha : where learning starts; small is a wide mixture, infinity the squared exponential.
    """

    n_shape = 1

    def __init__(self, alpha: float = 1.0) -> None:
        if not 0 < alpha < np.inf:
            raise ValueError(f"alpha must be positive and finite, got {alpha!r}; try 1.0")
        self.alpha = alpha

    def initial_shape(self) -> Array:
        return np.array([self.alpha])

    def profile(self, q: Array, shape: Array) -> tuple[Array, Array]:
        (alpha,) = shape
        base = 1.0 + q / (2.0 * alpha)
        h = base**-alpha
        return h, -0.5 * h / base

    def profile_by_log_shape(self, q: Array, shape: Array) -> tuple[Array, ...]:
        # d/d log alpha of exp(-alpha log(1 + v)), v = q / (2 alpha): alpha h (v / (1 + v) - log(1 + v)).
        (alpha,) = shape
        v = q / (2.0 * alpha)
        log_base = np.log1p(v)
        return (alpha * np.exp(-alpha * log_base) * (v / (1.0 + v) - log_base),)


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
    """The covariance of the field at `X1` with the field at `X2`, and the way back for gradients.

    Parameters
    ----------
    X1 : (n1, d), X2 : (n2, d).

    Attributes
    ----------
    K : (n1, n2) the covariance matrix, q : (n1, n2) scaled squared distances, slope : `dh/dq` at these.
    """

    def __init__(self, kernel: Kernel, theta: Hyperparameters, X1: Array, X2: Array) -> None:
        self.kernel, self.theta = kernel, theta
        origin = X2[0] if len(X2) else 0.0  # the way back expands squares, which loses digits far from zero
        self.X1 = (X1 - origin) / theta.lengthscales
        self.X2 = (X2 - origin) / theta.lengthscales
        # Differences first, then squares: |x1|^2 + |x2|^2 - 2 x1.x2 would lose the digits of points that are
        # close together, and with them the factorisation.
        self.q = cdist(self.X1, self.X2, "sqeuclidean")
        self.K, self.slope = kernel.profile(self.q, theta.shape)
        self.K *= kernel.variance(theta)

    def pull_back(self, G: Array) -> "PulledBack":
        """Carry `G = dE/dK` (n1, n2) of a scalar `E` back to what `K` was made of."""
        return PulledBack(self, G)


class PulledBack:
    """Gradients of a scalar `E`, given `G = dE/dK` of one `KernelBlock`.

    With `W = G * sf^2 h'(q)`, everything is two matrix products of `W` with the scaled inputs.
    """

    def __init__(self, block: KernelBlock, G: Array) -> None:
        self._block, self._G = block, G
        self._variance = block.kernel.variance(block.theta)
        self._W = G * block.slope  # sf^2 is left to the small results
        self._row_sums = self._W @ np.ones(len(block.X2))
        self._WX2 = self._W @ block.X2

    def log_hyperparameters(self) -> Array:
        """`dE / d (log sf, log l_1..l_d, log shape...)`; the noise is not the kernel's."""
        block = self._block
        # dq / d log l_i = -2 (x1_i - x2_i)^2 / l_i^2, and the square is expanded.
        squares = self._row_sums @ block.X1**2 + (np.ones(len(block.X1)) @ self._W) @ block.X2**2
        products = (block.X1 * self._WX2).sum(axis=0)
        gradient = np.empty(1 + len(squares) + block.kernel.n_shape)
        gradient[0] = 2.0 * inner(self._G, block.K)
        gradient[1 : len(squares) + 1] = (-2.0 * self._variance) * (squares - 2.0 * products)
        by_shape = block.kernel.profile_by_log_shape(block.q, block.theta.shape)
        gradient[len(squares) + 1 :] = [self._variance * inner(self._G, derivative) for derivative in by_shape]
        return gradient

    def first_inputs(self) -> Array:
        """`dE / dX1` (n1, d)."""
        block = self._block
        differences = self._row_sums[:, None] * block.X1 - self._WX2
        return differences * (2.0 * self._variance / block.theta.lengthscales)

    def shared_inputs(self, columns: slice) -> Array:
        """`dE / dX1` (n1, d) where the given columns of `K` are those of `X1` itself."""
        block, W = self._block, self._W[:, columns]
        sums = self._row_sums + np.ones(len(W)) @ W
        differences = sums[:, None] * block.X1 - self._WX2 - W.T @ block.X1
        return differences * (2.0 * self._variance / block.theta.lengthscales)

    def second_inputs(self) -> Array:
        """`dE / dX2` (n2, d)."""
        block = self._block
        column_sums = np.ones(len(block.X1)) @ self._W
        differences = column_sums[:, None] * block.X2 - self._W.T @ block.X1
        return differences * (2.0 * self._variance / block.theta.lengthscales)


class WeightedTrace:
    """`tr(C K(X, X))` for fixed inputs and symmetric weights, as the hyperparameters change.

    Only the distances of different points are kept, each pair once.

    Parameters
    ----------
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
        h, slope = self.kernel.profile(q, theta.shape)
        trace = variance * (self._diagonal + self._weights @ h)
        lengthscales = self._squares @ (self._weights * slope) * (-2.0 * variance * inverse_squares)
        shape = [variance * (self._weights @ d) for d in self.kernel.profile_by_log_shape(q, theta.shape)]
        return float(trace), np.concatenate([[2.0 * trace], lengthscales, shape])
