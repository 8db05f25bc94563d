"""Joint models: the posterior of one field given the summaries of several models (docs/joining.md).

Summaries are observations of unit noise, `r = R f(Z) + N(0, I)`, and so are rows, `y / s = f(X) / s + N(0, I)`. The
posterior given any of them together needs the factor of `S = I + R K R^T` only, whose eigenvalues are at least one.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np

from wgpr.gp.bound import LOG_2PI, Summary
from wgpr.gp.gaussian import Gaussian
from wgpr.gp.kernels import Hyperparameters, Kernel, KernelBlock
from wgpr.gp.linalg import (
    Array,
    cholesky_identity_plus,
    column_squares,
    columns,
    diagonal,
    inner,
    inverse_lower,
    log_determinant,
    n_outputs,
    read_only,
    require_finite,
    solve_lower,
    solve_lower_transposed,
)
from wgpr.gp.model import LocalModel

# Most numbers that the cache of joint models keeps: 256 MB.
_MAX_NUMBERS = 1 << 25

# Disagreement in nats for each observation from which on a neighbour is not joined.
_MAX_DISAGREEMENT = 1.0


class Summarised(LocalModel, Protocol):
    """A local model that has a summary, relative to its prior mean.

    shared : hyperparameters for use together with the neighbours; log_normaliser : log evidence of the summary.
    """

    @property
    def mean(self) -> float | Array: ...

    @property
    def summary(self) -> Summary: ...

    @property
    def shared(self) -> Hyperparameters: ...

    @property
    def log_normaliser(self) -> float: ...


@dataclass(frozen=True, eq=False, repr=False)
class JointModel:
    """A local model conditioned on several summaries, for prediction only.

    owner : the model whose place it takes; theta : hyperparameters in use, of the owner's kernel.
    parts : the summaries, relative to the owner's prior mean; R is block-diagonal.
    inputs : (M, d), all their pseudo-inputs; L : (K, K), `L L^T = I + R K R^T`; beta : (M,), `R^T S^-1 r`;
        of several outputs (M, k).
    log_normaliser : log evidence of the observations, up to a constant.
    """

    owner: Summarised
    theta: Hyperparameters
    parts: tuple[Summary, ...]
    inputs: Array
    L: Array
    beta: Array
    log_normaliser: float

    @classmethod
    def of(cls, owner: Summarised, parts: Sequence[Summary], theta: Hyperparameters) -> "JointModel":
        Z, r = np.concatenate([part.Z for part in parts]), np.concatenate([part.r for part in parts])
        L = cholesky_identity_plus(_covariance(parts, owner.kernel(theta, Z, Z)))
        alpha = solve_lower(L, columns(r))
        beta = _pulled_back(parts, solve_lower_transposed(L, alpha)).reshape(len(Z), *r.shape[1:])
        log_normaliser = -0.5 * float(n_outputs(r) * log_determinant(L) + inner(alpha, alpha))
        require_finite(L, beta, log_normaliser)
        return cls(owner, theta, tuple(parts), read_only(Z), read_only(L), read_only(beta), log_normaliser)

    @property
    def kernel(self) -> Kernel:
        return self.owner.kernel

    @property
    def mean(self) -> float | Array:
        return self.owner.mean

    @property
    def shared(self) -> Hyperparameters:
        return self.owner.shared

    @property
    def centre(self) -> Array:
        return self.owner.centre

    @property
    def n_seen(self) -> int:
        return self.owner.n_seen

    @property
    def log_evidence(self) -> float:
        return self.owner.log_evidence

    @property
    def n_evaluations(self) -> int:
        return self.owner.n_evaluations

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n,) or (n, k) and variance (n,) of the field at `X` (n, d)."""
        mean, k = self._whitened(X)
        return mean, np.maximum(self.kernel.variance(self.theta) - column_squares(k), 0.0)

    def posterior(self, X: Array) -> Gaussian:
        """The field at `X` (n, d): mean `beta^T K_Z*`, covariance `K_** - k^T k`."""
        mean, k = self._whitened(X)
        return Gaussian(mean, self.kernel(self.theta, X, X) - k.T @ k)

    def _whitened(self, X: Array) -> tuple[Array, Array]:
        """The mean (n,) or (n, k), and `k = L^-1 R K_Z*`, (K, n)."""
        K = self.kernel(self.theta, self.inputs, X)
        return self.mean + K.T @ self.beta, solve_lower(self.L, _observed(self.parts, K), overwrite=True)


def _observed(parts: Sequence[Summary], K: Array) -> Array:
    """`R K`, block by block: (K, n) of the field's covariances (M, n)."""
    pieces = np.split(K, np.cumsum([len(part.Z) for part in parts])[:-1])
    return np.concatenate([part.R @ piece for part, piece in zip(parts, pieces, strict=True)])


def _pulled_back(parts: Sequence[Summary], V: Array) -> Array:
    """`R^T V`, block by block: (M, n) of (K, n)."""
    pieces = np.split(V, np.cumsum([len(part) for part in parts])[:-1])
    return np.concatenate([part.R.T @ piece for part, piece in zip(parts, pieces, strict=True)])


def _covariance(parts: Sequence[Summary], K: Array) -> Array:
    """`I + R K R^T`, (K, K), of the field's covariance (M, M)."""
    S = _observed(parts, np.ascontiguousarray(_observed(parts, K).T))
    diagonal(S)[:] += 1.0
    return S


def parts_of(model: Summarised | JointModel) -> tuple[Summary, ...]:
    """The summaries of a model."""
    return model.parts if isinstance(model, JointModel) else (model.summary,)


def as_seen_by(owner: Summarised | JointModel, other: Summarised | JointModel) -> tuple[Summary, ...]:
    """The summaries of `other`, relative to the prior mean of `owner`."""
    return tuple(part.around(other.mean - owner.mean) for part in parts_of(other))


def n_observations_of(model: Summarised | JointModel) -> int:
    """Number of observations in all summaries."""
    return sum(len(part) for part in parts_of(model))


def with_rows(model: Summarised, X: Array, y: Array, theta: Hyperparameters | None = None) -> JointModel:
    """The model conditioned on rows `X` (n, d), `y` (n,); by default with its own hyperparameters."""
    theta = theta or model.theta
    return JointModel.of(model, (model.summary, Summary.of_rows(X, y - model.mean, theta.noise)), theta)


def disagreement(owner: Summarised | JointModel, other: Summarised | JointModel) -> float:
    """Log evidence of the summary of `other` by itself, minus that given the owner.

    In nats for each of its observations and outputs; negative if the owner predicts the observations well.
    """
    both = JointModel.of(_base(owner), (*parts_of(owner), *as_seen_by(owner, other)), owner.theta)
    n_numbers = sum(part.r.size for part in parts_of(other))
    return (other.log_normaliser - (both.log_normaliser - owner.log_normaliser)) / max(1, n_numbers)


def joined(
    owner: Summarised | JointModel, others: Sequence[Summarised | JointModel], theta: Hyperparameters
) -> JointModel:
    """The owner conditioned on all summaries of the others."""
    parts = [part for other in others for part in as_seen_by(owner, other)]
    return JointModel.of(_base(owner), (*parts_of(owner), *parts), theta)


def _base(model: Summarised | JointModel) -> Summarised:
    return model.owner if isinstance(model, JointModel) else model


def log_evidence_of_rows(model: Summarised, X: Array, y: Array, theta: Hyperparameters) -> float:
    """Log evidence of rows `X` (n, d), `y` (n,) given the model, without compression to pseudo-inputs."""
    both = with_rows(model, X, y, theta)
    return both.log_normaliser - model.log_normaliser - y.size * (float(np.log(theta.noise)) + 0.5 * LOG_2PI)


def evidence(kernel: Kernel, parts: Sequence[Summary]) -> Callable[[Hyperparameters], tuple[float, Array]]:
    """The log evidence of summaries (up to a constant) as a function of hyperparameters, with its gradient.

    The gradient is by `theta.to_log()`; the noise is part of the summaries, and its derivative is zero.
    """
    Z, r = np.concatenate([part.Z for part in parts]), np.concatenate([part.r for part in parts])

    def value_and_gradient(theta: Hyperparameters) -> tuple[float, Array]:
        block = KernelBlock(kernel, theta, Z, Z)
        L = cholesky_identity_plus(_covariance(parts, block.K))
        L_inverse = inverse_lower(L)
        alpha = L_inverse @ columns(r)
        W = _pulled_back(parts, L_inverse.T)  # R^T L^-T
        beta = W @ alpha
        # d / dK = 1/2 R^T (S^-1 r r^T S^-1 - S^-1) R
        G = 0.5 * (beta @ beta.T - n_outputs(r) * (W @ W.T))
        value = -0.5 * float(n_outputs(r) * log_determinant(L) + inner(alpha, alpha))
        return value, np.append(block.pull_back(G).log_hyperparameters(), 0.0)

    return value_and_gradient


class JointModelCache:
    """Joint models by the models that they consist of: the most recent ones, within a limit of memory.

    Models are immutable values, so that an entry stays valid as long as its models are in the ensemble. Safe for
    several threads.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._size = 0
        self._disagreements: WeakKeyDictionary[Any, WeakKeyDictionary[Any, float]] = WeakKeyDictionary()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type["JointModelCache"], tuple[()]]:
        """Copies and pickles are empty."""
        return JointModelCache, ()

    def get(self, models: tuple[Any, ...], n_observations: int) -> LocalModel:
        """The first of `models`, joined with those of the others that agree with it, in their order.

        n_observations : most observations in all.
        """
        key = (n_observations, *models)  # models are compared as objects
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return cast(LocalModel, self._known[key])
        model = _joined_or_alone(models[0], self.agreeing(models[0], models[1:], n_observations))
        with self._lock:
            if key not in self._known:
                self._known[key] = model
                self._size += model.L.size
            while self._size > _MAX_NUMBERS and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                self._size -= oldest.L.size
        return cast(LocalModel, model)

    def agreeing(self, owner: Any, others: Sequence[Any], n_observations: int) -> list[Any]:
        """Those of `others`, in their order, that agree with the owner; at most so many observations, with its own."""
        found, size = [], n_observations_of(owner)
        for other in others:
            size += n_observations_of(other)
            if size > n_observations:
                break
            if self._disagreement(owner, other) < _MAX_DISAGREEMENT:
                found.append(other)
            else:
                size -= n_observations_of(other)
        return found

    def _disagreement(self, owner: Any, other: Any) -> float:
        with self._lock:
            known = self._disagreements.setdefault(owner, WeakKeyDictionary())
            if other in known:
                return known[other]
        try:
            value = disagreement(owner, other)
        except ArithmeticError:
            value = inf
        with self._lock:
            known[other] = value
        return value


def _joined_or_alone(owner: Any, others: Sequence[Any]) -> Any:
    """The joint model, or the owner if the joint model cannot be computed."""
    try:
        return joined(owner, others, owner.shared)
    except ArithmeticError:
        return owner
