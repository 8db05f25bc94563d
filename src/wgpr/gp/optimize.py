"""Maximisation by L-BFGS inside a box: of any objective, of the evidence over hyperparameters, and of the bound.

SciPy's L-BFGS-B finds the same maxima. It spends 3 ms on the bounds of 400 variables before its first evaluation, as
long as some evaluations take, and its first step has length one in every variable. Here every variable comes with its
scale, and the search ends when the expected gain of a step is small.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wgpr.gp.bound import Fit, Observations
from wgpr.gp.hyperparameters import HyperPrior, Scales
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, NotFactorizableError

# Steps that gain fewer nats are not taken: they cost time, and pseudo-inputs that drift without gain lose information.
MIN_GAIN = 0.05

# Pairs of steps and gradient changes that approximate the curvature.
_MEMORY = 10

# Armijo's condition, the range of the factor that shortens a step, and the most evaluations of a line search.
_SUFFICIENT = 1e-4
_SHORTENING = (0.05, 0.5)
_MAX_ATTEMPTS = 20

# Before the first step the curvature is only guessed, so that the expected gain may be this much too small.
_GUESSED_CURVATURE = 0.02

# A first step that gains this fraction of what its slope predicts is extended, by up to this factor, so many times.
_NEARLY_LINEAR = 0.8
_MAX_EXTENSION = 10.0
_MAX_EXTENSIONS = 3

# Pseudo-inputs may leave the range of the data by this fraction of its spread.
_MARGIN = 0.1

# Typical distance to the maximum: of a log hyperparameter, and of a pseudo-input in length-scales.
_SCALE_OF_LOG_THETA = 0.06
_SCALE_OF_INPUTS = 0.1

Objective = Callable[[Array], tuple[float, Array]]


class _Point(NamedTuple):
    """A point (n,), its value and gradient (n,), and whether the box changed the step that led there."""

    x: Array
    value: float
    gradient: Array
    is_clipped: bool = False


def maximize_lbfgs(
    objective: Objective, start: Array, box: Array, scale: Array, max_iter: int, min_gain: float = MIN_GAIN
) -> Array:
    """The best point that is visited, never worse than the start.

    objective : value and gradient (n,) at a point (n,). A point where it raises `NotFactorizableError`, or is not
        finite, counts as minus infinity.
    start : (n,), clipped to box : (2, n).
    scale : (n,) typical distance to the maximum in each variable.
    min_gain : the search ends when a step gains less.
    """
    point = _evaluate(objective, start.clip(*box))
    hessian = _InverseHessian(scale**2)
    for _ in range(max_iter):
        is_held = ((point.x <= box[0]) & (point.gradient < 0.0)) | ((point.x >= box[1]) & (point.gradient > 0.0))
        direction = np.where(is_held, 0.0, hessian.times(np.where(is_held, 0.0, point.gradient)))
        expected_gain = 0.5 * (point.gradient @ direction)  # of a Newton step on a parabola
        if expected_gain < (min_gain if hessian.is_known else _GUESSED_CURVATURE * min_gain):
            break
        new = _line_search(objective, point, direction, box)
        if new is not None and not hessian.is_known:
            new = _extended(objective, point, new, box)
        if new is None:
            if not hessian.is_known:
                break
            hessian.reset()
            continue
        hessian.learn(new.x - point.x, point.gradient - new.gradient)
        gain, point = new.value - point.value, new
        if gain < min_gain and not new.is_clipped:
            break
    return point.x


def _evaluate(objective: Objective, x: Array, is_clipped: bool = False) -> _Point:
    try:
        value, gradient = objective(x)
    except NotFactorizableError:
        return _Point(x, -np.inf, np.zeros_like(x))
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return _Point(x, -np.inf, np.zeros_like(x))
    return _Point(x, value, gradient, is_clipped)


def _line_search(objective: Objective, point: _Point, direction: Array, box: Array) -> _Point | None:
    """A better point along the direction, or None."""
    length = 1.0
    for _ in range(_MAX_ATTEMPTS):
        straight = point.x + length * direction
        x = straight.clip(*box)
        slope = float(point.gradient @ (x - point.x))
        new = _evaluate(objective, x, bool((x != straight).any()))
        if new.value >= point.value + _SUFFICIENT * slope and new.value > point.value:
            return new
        length *= _shortening(slope, new.value - point.value)
        if length > (limit := _distance_to_bound(point.x, direction, box)) > 0.0:
            length = limit  # stop at the first bound
    return None


def _extended(objective: Objective, point: _Point, new: _Point, box: Array) -> _Point:
    """The new point, or a better one further along the step: the scales were too short."""
    for _ in range(_MAX_EXTENSIONS):
        step = new.x - point.x
        fraction = (new.value - point.value) / float(point.gradient @ step)  # 1 - step / (2 * distance to the maximum)
        if fraction < _NEARLY_LINEAR:
            break
        straight = point.x + min(_MAX_EXTENSION, 0.5 / max(1.0 - fraction, 1e-3)) * step
        x = straight.clip(*box)
        further = _evaluate(objective, x, bool((x != straight).any()))
        if further.value <= new.value:
            break
        new = further
    return new


def _distance_to_bound(x: Array, direction: Array, box: Array) -> float:
    """Distance to the first bound along the direction, as a multiple of it."""
    ahead = np.where(direction > 0.0, box[1], box[0]) - x
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(direction != 0.0, ahead / direction, np.inf).min(initial=np.inf))


def _shortening(slope: float, gain: float) -> float:
    """Factor of the step to the top of the parabola with this slope and gain, within limits."""
    least, most = _SHORTENING
    if not np.isfinite(gain):
        return least
    return float(np.clip(0.5 * slope / (slope - gain), least, most)) if slope > gain else most


class _InverseHessian:
    """The inverse of the negative Hessian, approximated from gradients (Nocedal and Wright, algorithm 7.4)."""

    def __init__(self, initial: Array) -> None:
        self._initial = initial
        self._factor = 1.0
        self._pairs: deque[tuple[Array, Array, float]] = deque(maxlen=_MEMORY)

    def learn(self, step: Array, change: Array) -> None:
        """The gradient fell by `change` (n,) along `step` (n,). A pair with negative curvature is left out."""
        product = float(step @ change)
        scaled = float(change @ (self._initial * change))
        if product > 1e-8 * scaled:
            self._pairs.append((step, change, 1.0 / product))
            self._factor = product / scaled

    @property
    def is_known(self) -> bool:
        """Whether it has learned any curvature."""
        return bool(self._pairs)

    def reset(self) -> None:
        """Return to the initial scales."""
        self._pairs.clear()
        self._factor = 1.0

    def times(self, gradient: Array) -> Array:
        """The product with the gradient (n,): the Newton step."""
        direction = gradient.copy()
        shares = []
        for step, change, weight in reversed(self._pairs):
            share = weight * (step @ direction)
            shares.append(share)
            direction -= share * change
        direction *= self._factor * self._initial
        for (step, change, weight), share in zip(self._pairs, reversed(shares), strict=True):
            direction += (share - weight * (change @ direction)) * step
        return direction


def fit_hyperparameters(
    log_evidence: Callable[[Hyperparameters], tuple[float, Array]],
    start: Hyperparameters,
    prior: HyperPrior,
    max_iter: int,
) -> Hyperparameters:
    """Maximise the log evidence (value, and gradient by log hyperparameters) plus the log prior."""
    n_features = len(start.lengthscales)

    def objective(log_theta: Array) -> tuple[float, Array]:
        value, gradient = log_evidence(Hyperparameters.from_log(log_theta, n_features))
        log_prior, prior_gradient = prior.log_density(log_theta)
        return value + log_prior, gradient + prior_gradient

    log_theta = start.to_log()
    scale = np.full(len(log_theta), _SCALE_OF_LOG_THETA)
    return Hyperparameters.from_log(maximize_lbfgs(objective, log_theta, prior.box, scale, max_iter), n_features)


def maximize_bound(
    observations: Observations,
    theta: Hyperparameters,
    Z: Array,
    scales: Scales,
    prior: HyperPrior,
    *,
    max_iter: int,
    learn_hyperparameters: bool = True,
    learn_inputs: bool = True,
    min_gain: float = MIN_GAIN,
) -> Fit:
    """Maximise the bound plus the log prior over hyperparameters and pseudo-inputs, from `theta` and `Z` (M, d)."""
    n_theta, n_features = prior.box.shape[1], Z.shape[1]
    point = np.concatenate([theta.to_log(), (Z / scales.inputs).ravel()])
    is_free = np.repeat([learn_hyperparameters, learn_inputs], [n_theta, Z.size])
    if max_iter == 0 or not is_free.any():
        return observations.explained_by(theta, Z)
    scaled = observations.inputs / scales.inputs
    input_box = np.stack([scaled.min(axis=0) - _MARGIN, scaled.max(axis=0) + _MARGIN])
    box = np.concatenate([prior.box, np.tile(input_box, len(Z))], axis=1)
    scale_of_inputs = _SCALE_OF_INPUTS * theta.lengthscales / scales.inputs
    scale = np.concatenate([np.full(n_theta, _SCALE_OF_LOG_THETA), np.tile(scale_of_inputs, len(Z))])
    best, best_value = None, -np.inf

    def unpack(v: Array) -> tuple[Hyperparameters, Array]:
        point[is_free] = v
        return Hyperparameters.from_log(point[:n_theta], n_features), point[n_theta:].reshape(Z.shape) * scales.inputs

    def objective(v: Array) -> tuple[float, Array]:
        nonlocal best, best_value
        fit = observations.explained_by(*unpack(v))
        by_log_theta, by_Z = fit.gradient()
        log_prior, prior_gradient = prior.log_density(point[:n_theta])
        gradient = np.concatenate([by_log_theta + prior_gradient, (by_Z * scales.inputs).ravel()])
        value = fit.value + log_prior
        if value > best_value:
            best, best_value = fit, value
        return value, gradient[is_free]

    end = maximize_lbfgs(objective, point[is_free], box[:, is_free], scale[is_free], max_iter, min_gain)
    return best or observations.explained_by(*unpack(end))
