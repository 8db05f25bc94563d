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
    """Gaussian process regression with the noise variances `1 / precision`; mean : None to estimate it."""
    C, K_x = kernel(theta, Z, Z) + np.diag(1.0 / precision), kernel(theta, Z, X)
    if mean is None:
        ones = np.ones(len(Z))
        mean = ones @ inv(C) @ t / (ones @ inv(C) @ ones)
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


def answer(territories, x):
    """Mean (k,), variance and noise variance at the place `x` (d,), literally as in docs/territories.md, 5."""
    d, n_models = len(x), len(territories.models)
    logs, grounds = territories.overview.log_thetas, territories.overview.grounds
    short = np.exp(np.quantile(logs[:, 1 : d + 1], 0.1, axis=0))
    width = np.sqrt(12.0) * np.median(territories.overview.spreads, axis=0)
    reach = 0.25 * min(1.0, 2.0 / d) * np.minimum(short, width)

    def gap(ground, place):
        return np.maximum(np.maximum(ground[0] - place, place - ground[1]), 0.0)

    def between(ground, other):
        return np.maximum(np.maximum(other[0] - ground[1], ground[0] - other[1]), 0.0)

    total, mean, noise, weights = 0.0, 0.0, 0.0, 0.0
    for j in range(n_models):
        near_in_reach = [
            i for i in range(n_models) if i != j and (between(grounds[j], grounds[i]) <= reach).all()
        ]  # fmt: skip
        fraction = max([min([agreement(logs[i], logs[j]) for i in near_in_reach], default=1.0), 0.01])
        rest = 1.0 - np.linalg.norm(gap(grounds[j], x) / reach) / fraction
        if rest <= 0.0:
            continue
        predicted, theta = local_posterior(territories, j, gap, between, x)
        variance = predicted.covariance[0, 0]
        weight = rest**2 * (3.0 - 2.0 * rest)
        mean = mean + weight / variance * predicted.mean[0]
        noise += weight / variance * theta.noise**2
        total += weight / variance
        weights += weight
    return mean / total, weights / total, noise / total


def local_posterior(territories, j, gap, between, x):
    """The field at `x` (d,) by the pseudo-data of territory j and its halo; and the hyperparameters."""
    d, models, logs, grounds = len(x), territories.models, territories.overview.log_thetas, territories.overview.grounds
    scale, n_halo, n_sources = np.exp(np.median(logs[:, 1 : d + 1], axis=0)), *((100, 24) if d < 4 else (200, 64))
    distances = np.linalg.norm((territories.overview.centres - territories.overview.centres[j]) / scale, axis=1)
    order = np.argsort(distances, kind="stable")[:9]
    last = distances[order[-1]] * (1.0 if len(models) > 9 else 1.1)
    weights = np.array([
        (1.0 - (distances[i] / last if last else 0.0)) ** 2 * agreement(logs[i], logs[j]) for i in order
    ])  # fmt: skip
    weights /= weights.sum()
    theta = Hyperparameters.from_log(weights @ logs[order], d)

    def nearness(i):
        apart = (territories.overview.centres[i] - territories.overview.centres[j]) / theta.lengthscales
        return np.linalg.norm(between(grounds[j], grounds[i]) / theta.lengthscales), np.linalg.norm(apart)

    sources = sorted((i for i in range(len(models)) if i != j), key=nearness)[:n_sources]
    halo = [
        point
        for i in sources
        if agreement(logs[i], logs[j]) > 0
        for point in zip(models[i].data.Z, models[i].data.t, models[i].data.precision, strict=True)
    ]
    halo.sort(key=lambda point: np.linalg.norm(gap(grounds[j], point[0]) / theta.lengthscales))
    near = list(range(min(n_halo, len(halo))))
    if d < 4 and len(halo) > n_halo:
        for place in even_places(grounds[j], np.array([point[0] for point in halo]), theta.lengthscales):
            apart = [np.linalg.norm((point[0] - place) / theta.lengthscales) for point in halo]
            near += np.argsort(apart)[:12].tolist()
    own = list(zip(models[j].data.Z, models[j].data.t, models[j].data.precision, strict=True))
    Z, t, precision = (np.array(column) for column in zip(*own, *(halo[i] for i in sorted(set(near))), strict=True))
    return posterior(models[0].kernel, theta, None, Z, t, precision, x[None]), theta


def even_places(ground, Z, lengthscales):
    """The centres of at most 16 cells of a ground, as far as there are points `Z` (n, d) of a halo."""
    low, high = ground.clip(Z.min(axis=0), Z.max(axis=0))
    widths = np.maximum((high - low) / lengthscales, 1e-6)
    counts = np.round(widths / (np.prod(widths) / 16) ** (1 / len(widths))).clip(1, 16).astype(int)
    while np.prod(counts) > 16:
        counts[np.argmax(counts)] -= 1
    return [low + (np.array(cell) + 0.5) / counts * (high - low) for cell in np.ndindex(*counts)]


def inducing_grid(kernel, theta, Z, X, y, queries):
    """Near-exact inference of many rows: the projected process on a fine grid `Z`. Mean and variance at the queries."""
    K, K_x, K_q = kernel(theta, Z, Z), kernel(theta, Z, X), kernel(theta, Z, queries)
    nearly = K + 1e-9 * np.eye(len(Z))
    S = K_x @ K_x.T / theta.noise**2 + nearly
    mean = K_q.T @ np.linalg.solve(S, K_x @ y) / theta.noise**2
    return mean, np.einsum("ij,ij->j", K_q, np.linalg.solve(S, K_q))
