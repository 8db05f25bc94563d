"""How uncertain a map is, and how much less it would be after measurements that are not made yet.

The posterior covariance C of a Gaussian process does not depend on the values of the data, so a planned measurement at
x with noise variance s^2 changes it in a way that is known beforehand:

    C(a, b) <- C(a, b) - C(a, x) C(x, b) / (C(x, x) + s^2)

What several measurements at places P take out of the variance at the targets T, one in each cell, is their gain

    sum over T of the diagonal of C_TP (C_PP + S)^-1 C_PT

Each territory gives the covariances of its own cells with those around it. Where two territories meet they differ a
little, and the smaller is taken. Covariances fall to zero at some distance by a factor that is itself a correlation
(Wendland's), as in Kalman filters with localisation. So the whole is a matrix of covariances, but for the borders of
territories; correlations above one are limited.
"""

from copy import copy
from dataclasses import replace

import numpy as np

from wgpr.ensemble.answers import posterior_of
from wgpr.ensemble.cuts import route
from wgpr.ensemble.territories import Territories
from wgpr.estimators.base import EnsembleRegressor
from wgpr.estimators.methods import TerritoryMethod
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.pseudodata import Posterior
from wgpr.planning.ground import Ground

# Least correlation that a measurement changes others by.
_NEGLIGIBLE = 1e-3

# Cells that are measured at once.
_AT_ONCE = 16


class Uncertainty:
    """Variances and covariances of the field at the nodes and the targets of a ground, in the square of internal units.

    variance : (N,) at the targets; noise : (N,) variance of a measurement in each cell.
    """

    def __init__(self, ground: Ground, between_nodes: Array, to_targets: Array, variance: Array, noise: Array) -> None:
        """between_nodes, to_targets : (N, N) covariances of nodes with nodes and with targets."""
        self.ground, self.variance, self.noise = ground, variance, noise
        self._nodes, self._targets = between_nodes, to_targets
        self.gains = self._gains(np.arange(len(ground)))

    def copy(self) -> "Uncertainty":
        """One that can be measured without a change of this one."""
        other = copy(self)
        other.variance, other.gains = self.variance.copy(), self.gains.copy()
        other._nodes, other._targets = self._nodes.copy(), self._targets.copy()
        return other

    def gain(self, cells: Indices) -> float:
        """What measurements at these cells (n,), each once, take out of the sum of the variances."""
        return float((self._whitened(cells, self._targets[cells]) ** 2).sum())

    def measure(self, cells: Indices) -> None:
        """Note planned measurements at these cells (n,), each once."""
        for some in np.split(cells, range(_AT_ONCE, len(cells), _AT_ONCE)):
            to_nodes, to_targets = self._nodes[some], self._targets[some]
            own = self._nodes.diagonal()
            limit = _NEGLIGIBLE * np.sqrt(own[some])[:, None]
            near = np.flatnonzero((np.abs(to_nodes) > limit * np.sqrt(own)).any(axis=0))
            seen = np.flatnonzero((np.abs(to_targets) > limit * np.sqrt(self.variance)).any(axis=0))
            by_node, by_target = self._whitened(some, to_nodes[:, near]), self._whitened(some, to_targets[:, seen])
            self._nodes[np.ix_(near, near)] -= by_node.T @ by_node
            self._targets[np.ix_(near, seen)] -= by_node.T @ by_target
            self._nodes[near, near] = np.maximum(self._nodes[near, near], 0.0)
            self.variance[seen] = np.maximum(self.variance[seen] - (by_target**2).sum(axis=0), 0.0)
            self._limit(near, seen)
            self.gains[near] = self._gains(near)

    def _whitened(self, cells: Indices, covariances: Array) -> Array:
        """`(C + S)^(-1/2)` at the cells (n,) times covariances (n, m) with them."""
        q = 1.0 / np.sqrt(self.noise[cells])
        scaled = self._nodes[np.ix_(cells, cells)] * q * q[:, None]
        scaled[np.diag_indices(len(cells))] += 1.0
        eigenvalues, vectors = np.linalg.eigh(scaled)  # at least 1 but for the borders of territories
        whitened: Array = (vectors.T @ (q[:, None] * covariances)) / np.sqrt(np.maximum(eigenvalues, 1.0))[:, None]
        return whitened

    def _limit(self, near: Indices, seen: Indices) -> None:
        """Limit correlations of the nodes `near` (n,) with each other, and with the targets `seen` (m,), to one."""
        std = np.sqrt(self._nodes[near, near])
        for covariances, others, stds in (
            (self._nodes, near, std),
            (self._targets, seen, np.sqrt(self.variance[seen])),
        ):
            most = std[:, None] * stds
            covariances[np.ix_(near, others)] = covariances[np.ix_(near, others)].clip(-most, most)

    def _gains(self, cells: Indices) -> Array:
        """What one measurement at each of these cells (n,) would take out of the sum of the variances."""
        gains: Array = (self._targets[cells] ** 2).sum(axis=1) / (self._nodes[cells, cells] + self.noise[cells])
        return gains


def uncertainty_of(
    model: EnsembleRegressor, ground: Ground, nodes: Array, targets: Array, least_lengthscales: Array | None = None
) -> Uncertainty:
    """The uncertainty of a model's map.

    nodes : (N, s, d) inputs of the model where a measurement in each cell is made: their mean is what is measured, so
        that s > 1 stands for a track through the cell. targets : (N, d).
    least_lengthscales : (d,) in the units of the model; shorter ones are raised to these.
    """
    method, state = model._method(), model._state
    assert isinstance(method, TerritoryMethod)
    territories, units = method.answering(state)
    assert isinstance(territories, Territories)
    n, (n_each, d) = len(ground), nodes.shape[1:]
    nodes, targets = units.inputs(nodes.reshape(-1, d)).reshape(nodes.shape), units.inputs(targets)
    near = ground.neighbours(ground.radius)
    between_nodes, to_targets = np.zeros((2, n, n))
    variance, noise = np.zeros(n), np.zeros(n)
    owners, of_target = route(territories.cuts, nodes.mean(axis=1)), route(territories.cuts, targets)
    for number in np.unique(np.concatenate([owners, of_target])).tolist():
        posterior = posterior_of(territories, number, state.cache, method.max_cache_bytes)
        if least_lengthscales is not None:
            posterior = _smoothed(posterior, least_lengthscales / units.length)
        own = np.flatnonzero(of_target == number)
        if len(own):
            variance[own] = posterior.predict(targets[own])[1]
        own = np.flatnonzero(owners == number)
        if not len(own):
            continue
        around = np.unique(near[own])
        around = around[around >= 0]
        others = np.concatenate([nodes[around].reshape(-1, d), targets[around]])
        covariances = posterior.covariance(nodes[own].reshape(-1, d), others)
        covariances = covariances.reshape(len(own), n_each, -1).mean(axis=1)
        factor = ground.closeness(own, around)
        between = covariances[:, : n_each * len(around)].reshape(len(own), len(around), n_each).mean(axis=2)
        between_nodes[np.ix_(own, around)] = factor * between
        to_targets[np.ix_(own, around)] = factor * covariances[:, n_each * len(around) :]
        noise[own] = posterior.theta.noise**2 / n_each
    squared = method._factor(state) ** 2
    smaller = np.abs(between_nodes) <= np.abs(between_nodes.T)
    between_nodes = np.where(smaller, between_nodes, between_nodes.T)
    return Uncertainty(ground, squared * between_nodes, squared * to_targets, squared * variance, squared * noise)


def _smoothed(posterior: Posterior, least_lengthscales: Array) -> Posterior:
    """The posterior with length-scales (d,) of at least these."""
    theta = posterior.theta
    if (theta.lengthscales >= least_lengthscales).all():
        return posterior
    theta = replace(theta, lengthscales=np.maximum(theta.lengthscales, least_lengthscales))
    return Posterior(posterior.kernel, theta, posterior.mean, posterior.data)
