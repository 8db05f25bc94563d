"""Climbing an objective by L-BFGS, inside a box and only as long as it pays."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from wgpr.bound import Fit, Observations
from wgpr.kernels import Hyperparameters
from wgpr.linalg import Array, NotFactorizableError
from wgpr.scales import Prior, Scales

# An iteration that gains less than this many nats is not worth its time, nor its drift: on a stationary
# stream, pseudo-inputs that wander for nothing lose more than they find.
_WORTHWHILE = 0.05

# Pseudo-inputs may leave the data by this part of its spread: further out there is nothing to know.
_MARGIN = 0.1

Objective = Callable[[Array], tuple[float, Array]]


def climb(objective: Objective, start: Array, box: Array, max_iter: int) -> Array:
    """The best point that L-BFGS visits, never worse than the start.

    Parameters
    ----------
    objective : value and gradient (n,) at a point (n,); to be maximised. A point that cannot be
        factorised, or is not finite, counts as infinitely bad.
    start : (n,), clipped into box : (2, n).
    """
    start = start.clip(*box)
    best, best_value = start, -np.inf
    previous = np.inf

    def loss(v: Array) -> tuple[float, Array]:
        nonlocal best, best_value
        try:
            value, gradient = objective(v)
        except NotFactorizableError:
            return np.inf, np.zeros_like(v)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return np.inf, np.zeros_like(v)
        if value > best_value:
            best, best_value = v.copy(), value
        return -value, -gradient

    def stop_when_not_worthwhile(intermediate_result: OptimizeResult) -> None:
        nonlocal previous
        gain, previous = previous - intermediate_result.fun, intermediate_result.fun
        if gain < _WORTHWHILE:
            raise StopIteration

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter}
    minimize(loss, start, jac=True, method="L-BFGS-B", bounds=box.T, options=options, callback=stop_when_not_worthwhile)
    return best


def likeliest(
    log_evidence: Callable[[Hyperparameters], tuple[float, Array]],
    start: Hyperparameters,
    prior: Prior,
    max_iter: int,
) -> Hyperparameters:
    """Where climbing `log_evidence` (its value and its gradient by log hyperparameters) and the prior ends."""
    n_features = len(start.lengthscales)

    def objective(log_theta: Array) -> tuple[float, Array]:
        value, gradient = log_evidence(Hyperparameters.from_log(log_theta, n_features))
        log_prior, prior_gradient = prior.log_density(log_theta)
        return value + log_prior, gradient + prior_gradient

    return Hyperparameters.from_log(climb(objective, start.to_log(), prior.box, max_iter), n_features)


def maximise_bound(
    observations: Observations,
    theta: Hyperparameters,
    Z: Array,
    scales: Scales,
    prior: Prior,
    *,
    max_iter: int,
    learn_hyperparameters: bool = True,
    learn_inputs: bool = True,
) -> Fit:
    """The fit that climbing the bound (and the prior) from `theta` and `Z` (M, d) ends at."""
    n_theta, n_features = prior.box.shape[1], Z.shape[1]
    point = np.concatenate([theta.to_log(), (Z / scales.inputs).ravel()])
    box = np.concatenate([prior.box, np.tile(_input_box(observations.inputs, scales), len(Z))], axis=1)
    is_free = np.repeat([learn_hyperparameters, learn_inputs], [n_theta, Z.size])
    if max_iter == 0 or not is_free.any():
        return observations.explained_by(theta, Z)

    def unpack(v: Array) -> tuple[Hyperparameters, Array]:
        point[is_free] = v
        return Hyperparameters.from_log(point[:n_theta], n_features), point[n_theta:].reshape(Z.shape) * scales.inputs

    def objective(v: Array) -> tuple[float, Array]:
        fit = observations.explained_by(*unpack(v))
        by_log_theta, by_Z = fit.gradient(of_inputs=learn_inputs)
        log_prior, prior_gradient = prior.log_density(point[:n_theta])
        parts = [by_log_theta + prior_gradient] if learn_hyperparameters else []
        if by_Z is not None:
            parts.append((by_Z * scales.inputs).ravel())
        return fit.value + log_prior, np.concatenate(parts)

    return observations.explained_by(*unpack(climb(objective, point[is_free], box[:, is_free], max_iter)))


def _input_box(inputs: Array, scales: Scales) -> Array:
    """Bounds of one pseudo-input in units of the scales, (2, d)."""
    scaled = inputs / scales.inputs
    return np.stack([scaled.min(axis=0) - _MARGIN, scaled.max(axis=0) + _MARGIN])
