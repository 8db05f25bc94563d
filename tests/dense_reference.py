"""Territories of pseudo-data, as the formulas have it: dense matrices, explicit inverses, one query at a time.

Of the package, only values of kernels are used. Each fast path is compared with something here.
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import inv, slogdet

from wgpr.gp.kernels import Hyperparameters


class Dense(NamedTuple):
    """Posterior of the field: mean (n, k), covariance (n, n)."""

    mean: np.ndarray
    covariance: np.ndarray


def log_normal(y, S):
    """`sum_j log N(y_j; 0, S)` of the columns of `y` (n, k)."""
    return sum(-0.5 * (len(S) * np.log(2 * np.pi) + slogdet(S)[1] + column @ inv(S) @ column) for column in y.T)


def log_evidence(kernel, theta, Z, t, variance, is_row):
    """Of values `t` (n, k) minus the prior mean; the noise multiplies the variances of rows."""
    D = [s * (theta.noise**2 if row else 1.0) for s, row in zip(variance, is_row, strict=True)]
    return log_normal(t, kernel(theta, Z, Z) + np.diag(D))


def posterior(kernel, theta, mean, Z, t, precision, X):
    """Gaussian process regression with the noise variances `1 / precision`."""
    C, K_x = kernel(theta, Z, Z) + np.diag(1.0 / precision), kernel(theta, Z, X)
    return Dense(mean + K_x.T @ inv(C) @ (t - mean), kernel(theta, X, X) - K_x.T @ inv(C) @ K_x)


def information(kernel, theta, Z, precision):
    """Of observations about the field, in nats."""
    return 0.5 * slogdet(np.eye(len(Z)) + np.diag(precision) @ kernel(theta, Z, Z))[1]


def information_lost(kernel, theta, Z, precision, kept, kept_precision):
    """Bound on the loss by thinning: the trace that the kept places miss, and correlations between these."""
    K, K_z = kernel(theta, kept, kept), kernel(theta, kept, Z)
    missed = precision @ np.diag(kernel(theta, Z, Z) - K_z.T @ inv(K) @ K_z)
    C = K - K_z @ inv(kernel(theta, Z, Z) + np.diag(1.0 / precision)) @ K_z.T
    C_thinned = inv(inv(K) + np.diag(kept_precision))
    return missed + 0.5 * (slogdet(C_thinned)[1] - slogdet(C)[1])


def forecast(kernel, theta, mean, known, X, y, precision):
    """Log density of rows `y` (n, k) at `X` given what is known, (Z, t, precision); errors of each given all others."""
    predicted = posterior(kernel, theta, mean, *known, X)
    C = predicted.covariance + np.diag(1.0 / precision)
    error = y - predicted.mean
    given_others = np.empty_like(error)
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        weights = C[i, others] @ inv(C[np.ix_(others, others)])
        variance = C[i, i] - weights @ C[others, i]
        given_others[i] = (error[i] - weights @ error[others]) / np.sqrt(variance)
    return log_normal(error, C), given_others


def agreement(log_theta, other):
    difference = np.sqrt(np.mean((log_theta - other) ** 2))
    return min(1.0, max(0.0, (1.0 - difference) / 0.4))


def answer(territories, owner, x, n_nearest):
    """Mean (k,), variance and noise variance at the place `x` (d,), which the territory `owner` holds.

    Literal: all pseudo-data sorted by distance, those of other regimes left out, the last quarter of the nearest
    tapered, hyperparameters averaged over the eight nearest territories that agree.
    """
    models, d = territories.models, len(x)
    logs = np.array([model.theta.to_log() for model in models])
    scale = np.exp(np.median(logs[:, 1 : d + 1], axis=0))

    distances = [np.linalg.norm((centre - x) / scale) for centre in territories.centres]
    order = np.argsort(distances, kind="stable")
    n = min(8, len(models))
    last = distances[order[n]] if n < len(models) else 1.1 * distances[order[-1]]
    weights = np.array([
        max(0.0, 1.0 - distances[j] / last) ** 2 * agreement(logs[j], logs[owner]) for j in order[:n]
    ])  # fmt: skip
    if weights.sum() > 0:
        weights /= weights.sum()
        log_theta, mean = weights @ logs[order[:n]], weights @ np.array([models[j].mean for j in order[:n]])
    else:
        log_theta, mean = logs[owner], models[owner].mean
    theta = Hyperparameters.from_log(log_theta, d)

    points = [
        (np.linalg.norm((z - x) / scale), z, t, precision * agreement(logs[j], logs[owner]))
        for j, model in enumerate(models)
        for z, t, precision in zip(model.data.Z, model.data.t, model.data.precision, strict=True)
        if agreement(logs[j], logs[owner]) > 0
    ]
    points.sort(key=lambda point: point[0])
    if len(points) > n_nearest:
        last, full = points[n_nearest][0], points[int(0.75 * n_nearest)][0]
        points = points[:n_nearest]
        points = [(r, z, t, p * min(1.0, (last - r) / (last - full))) for r, z, t, p in points]
    _, Z, t, precision = (np.array(column) for column in zip(*points, strict=True))
    kept = precision > 0
    predicted = posterior(models[0].kernel, theta, mean, Z[kept], t[kept], precision[kept], x[None])
    return predicted.mean[0], predicted.covariance[0, 0], theta.noise**2


def inducing_grid(kernel, theta, Z, X, y, queries):
    """Near-exact inference of many rows: the projected process on a fine grid `Z`. Mean and variance at the queries."""
    K, K_x, K_q = kernel(theta, Z, Z), kernel(theta, Z, X), kernel(theta, Z, queries)
    nearly = K + 1e-9 * np.eye(len(Z))
    S = K_x @ K_x.T / theta.noise**2 + nearly
    mean = K_q.T @ np.linalg.solve(S, K_x @ y) / theta.noise**2
    return mean, np.einsum("ij,ij->j", K_q, np.linalg.solve(S, K_q))
