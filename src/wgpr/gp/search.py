"""Where climbing ends: the fit_hyperparameters hyperparameters, and the fit with the best bound."""

from collections.abc import Callable

import numpy as np

from wgpr.gp.bound import Fit, Observations
from wgpr.gp.hyperparameters import Prior, Scales
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array
from wgpr.gp.optimize import MIN_GAIN, maximize_lbfgs

# Pseudo-inputs may leave the data by this part of its spread: further out there is nothing to know.
_MARGIN = 0.1

# How far it is to the top, about: in the logarithm of a hyperparameter, and of a pseudo-input in its length-scales.
_FAR_IN_LOG_THETA = 0.06
_FAR_IN_LENGTHSCALES = 0.1


def fit_hyperparameters(
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

    log_theta = start.to_log()
    far = np.full(len(log_theta), _FAR_IN_LOG_THETA)
    return Hyperparameters.from_log(maximize_lbfgs(objective, log_theta, prior.box, far, max_iter), n_features)


def maximize_bound(
    observations: Observations,
    theta: Hyperparameters,
    Z: Array,
    scales: Scales,
    prior: Prior,
    *,
    max_iter: int,
    learn_hyperparameters: bool = True,
    learn_inputs: bool = True,
    worthwhile: float = MIN_GAIN,
) -> Fit:
    """The fit that climbing the bound (and the prior) from `theta` and `Z` (M, d) ends at."""
    n_theta, n_features = prior.box.shape[1], Z.shape[1]
    point = np.concatenate([theta.to_log(), (Z / scales.inputs).ravel()])
    is_free = np.repeat([learn_hyperparameters, learn_inputs], [n_theta, Z.size])
    if max_iter == 0 or not is_free.any():
        return observations.explained_by(theta, Z)
    box = np.concatenate([prior.box, np.tile(_input_box(observations.inputs, scales), len(Z))], axis=1)
    far_in_inputs = _FAR_IN_LENGTHSCALES * theta.lengthscales / scales.inputs
    far = np.concatenate([np.full(n_theta, _FAR_IN_LOG_THETA), np.tile(far_in_inputs, len(Z))])
    best, best_value = None, -np.inf

    def unpack(v: Array) -> tuple[Hyperparameters, Array]:
        point[is_free] = v
        return Hyperparameters.from_log(point[:n_theta], n_features), point[n_theta:].reshape(Z.shape) * scales.inputs

    def objective(v: Array) -> tuple[float, Array]:
        nonlocal best, best_value
        fit = observations.explained_by(*unpack(v))
        by_log_theta, by_Z = fit.gradient(of_inputs=learn_inputs)
        log_prior, prior_gradient = prior.log_density(point[:n_theta])
        parts = [by_log_theta + prior_gradient] if learn_hyperparameters else []
        if by_Z is not None:
            parts.append((by_Z * scales.inputs).ravel())
        value = fit.value + log_prior
        if value > best_value:
            best, best_value = fit, value
        return value, np.concatenate(parts)

    top = maximize_lbfgs(objective, point[is_free], box[:, is_free], far[is_free], max_iter, worthwhile)
    return best or observations.explained_by(*unpack(top))


def _input_box(inputs: Array, scales: Scales) -> Array:
    """Bounds of one pseudo-input in units of the scales, (2, d)."""
    scaled = inputs / scales.inputs
    return np.stack([scaled.min(axis=0) - _MARGIN, scaled.max(axis=0) + _MARGIN])
