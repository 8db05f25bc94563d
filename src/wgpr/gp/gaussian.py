"""Multivariate Gaussians: log density, and the Wasserstein distance between two (docs/method.md, 3)."""

from typing import NamedTuple

import numpy as np

from wgpr.gp.linalg import (
    Array,
    cholesky_jittered_if_needed,
    inner,
    log_determinant,
    n_outputs,
    solve_lower,
    square_root,
)

LOG_2PI = float(np.log(2.0 * np.pi))


class Gaussian(NamedTuple):
    """mean : (n,), covariance : (n, n). Several outputs have a mean of (n, k) and, as a rule, one covariance."""

    mean: Array
    covariance: Array


def squared_wasserstein(p: Gaussian, q: Gaussian) -> float:
    """The squared 2-Wasserstein distance, `|m1 - m2|^2 + tr S1 + tr S2 - 2 |S1^(1/2) S2^(1/2)|_*`.

    The nuclear norm may be taken with any factors `S = H H^T`: it is the sum of the singular values of
    `H1^T H2`. No root of a product is needed, and rounding cannot make the result meaningless. Several outputs of one
    covariance are independent: their distances add up.
    """
    shift = p.mean - q.mean
    overlap = np.linalg.svd(square_root(p.covariance).T @ square_root(q.covariance), compute_uv=False).sum()
    traces = p.covariance.trace() + q.covariance.trace()
    return float(inner(shift, shift) + n_outputs(shift) * max(traces - 2.0 * overlap, 0.0))


def log_density(errors: Array, covariance: Array) -> float:
    """Log density of errors (n, k) with mean zero and a covariance (n, n), with jitter if that is ill-conditioned."""
    L = cholesky_jittered_if_needed(covariance)
    whitened = solve_lower(L, errors)
    return -0.5 * float(inner(whitened, whitened) + errors.shape[1] * log_determinant(L) + errors.size * LOG_2PI)
