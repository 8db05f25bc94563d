"""How uncertain a map is, and how much less it would be after measurements that are not made yet.

The posterior covariance C of a Gaussian process does not depend on the values of the data, so a planned measurement at
x with noise variance s^2 changes it in a way that is known beforehand:

    C(a, b) <- C(a, b) - C(a, x) C(x, b) / (C(x, x) + s^2)

What several measurements at places P take out of the variance at the targets T, one in each cell, is their gain

    sum over T of the diagonal of C_TP (C_PP + S)^-1 C_PT

Each territory gives the covariances of its own cells with those around it. Where two territories meet they differ, most
between rough and smooth ground, and the smaller is taken. Covariances fall to zero at some distance by a factor that is
itself a correlation (Wendland's), as in Kalman filters with localisation. So the whole is a matrix of covariances, but
for the borders of territories. There it may have negative eigenvalues: nothing takes out more than the variance,
correlations are limited to one, and no measurement makes a covariance larger.
"""

from copy import copy
from dataclasses import replace
from itertools import product

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
    shortest_lengthscales : (d,) that they depend on, in the units of the model.
    """

    def __init__(
        self,
        ground: Ground,
        between_nodes: Array,
        to_targets: Array,
        variance: Array,
        noise: Array,
        shortest_lengthscales: Array | float = np.inf,
    ) -> None:
        """between_nodes, to_targets : (N, N) covariances of nodes with nodes and with targets."""
        self.ground, self.variance, self.noise = ground, variance, noise
        self.shortest_lengthscales = shortest_lengthscales
        self._nodes, self._targets = between_nodes, to_targets
        self._gains, self._is_stale = np.zeros(len(ground)), np.ones(len(ground), dtype=bool)

    def copy(self) -> "Uncertainty":
        """One that can be measured without a change of this one."""
        other = copy(self)
        other.variance, other._nodes, other._targets = self.variance.copy(), self._nodes.copy(), self._targets.copy()
        other._gains, other._is_stale = self._gains.copy(), self._is_stale.copy()
        return other

    @property
    def gains(self) -> Array:
        """What one measurement at each of the cells (N,) would take out of the sum of the variances."""
        cells = np.flatnonzero(self._is_stale)
        taken = self._targets[cells] ** 2 / (self._nodes[cells, cells] + self.noise[cells])[:, None]
        self._gains[cells] = np.minimum(taken, self.variance).sum(axis=1)
        self._is_stale[:] = False
        return self._gains.copy()

    def gain(self, cells: Indices) -> float:
        """What measurements at these cells (n,), each once, take out of the sum of the variances."""
        taken = (self._whitened(cells, self._targets[cells]) ** 2).sum(axis=0)
        return float(np.minimum(taken, self.variance).sum())

    def measure(self, cells: Indices) -> None:
        """Note planned measurements at these cells (n,), each once."""
        for some in np.split(cells, range(_AT_ONCE, len(cells), _AT_ONCE)):
            to_nodes, to_targets = self._nodes[some], self._targets[some]
            own = self._nodes.diagonal().copy()
            limit = _NEGLIGIBLE * np.sqrt(own[some])[:, None]
            near = np.flatnonzero((np.abs(to_nodes) > limit * np.sqrt(own)).any(axis=0))
            seen = np.flatnonzero((np.abs(to_targets) > limit * np.sqrt(self.variance)).any(axis=0))
            by_node, by_target = self._whitened(some, to_nodes[:, near]), self._whitened(some, to_targets[:, seen])
            self.variance[seen] = np.maximum(self.variance[seen] - (by_target**2).sum(axis=0), 0.0)
            node_std = np.sqrt(np.maximum(own[near] - (by_node**2).sum(axis=0), 0.0))
            for covariances, others, by_other, std in (
                (self._nodes, near, by_node, node_std),
                (self._targets, seen, by_target, np.sqrt(self.variance[seen])),
            ):
                block = covariances[np.ix_(near, others)]
                most = np.minimum(np.abs(block), node_std[:, None] * std)
                covariances[np.ix_(near, others)] = (block - by_node.T @ by_other).clip(-most, most)
            self._is_stale[near] = True
            self._is_stale |= self._targets[:, seen].any(axis=1)

    def _whitened(self, cells: Indices, covariances: Array) -> Array:
        """`(C + S)^(-1/2)` at the cells (n,) times covariances (n, m) with them."""
        q = 1.0 / np.sqrt(self.noise[cells])
        scaled = self._nodes[np.ix_(cells, cells)] * q * q[:, None]
        scaled[np.diag_indices(len(cells))] += 1.0
        eigenvalues, vectors = np.linalg.eigh(scaled)  # at least 1 but for the borders of territories
        whitened: Array = (vectors.T @ (q[:, None] * covariances)) / np.sqrt(np.maximum(eigenvalues, 1.0))[:, None]
        return whitened


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
    between_nodes, by_node, by_target = np.zeros((3, n, n))
    variance, noise, shortest = np.zeros(n), np.zeros(n), np.full(d, np.inf)
    owners, of_target = route(territories.cuts, nodes.mean(axis=1)), route(territories.cuts, targets)
    for number in np.unique(np.concatenate([owners, of_target])).tolist():
        posterior = posterior_of(territories, number, state.cache, method.max_cache_bytes)
        if least_lengthscales is not None:
            posterior = _smoothed(posterior, least_lengthscales / units.length)
        shortest = np.minimum(shortest, posterior.theta.lengthscales * units.length)
        own = np.flatnonzero(of_target == number)
        if len(own):
            variance[own] = posterior.predict(targets[own])[1]
            around = _distinct(near[own])
            covariances = _covariances(posterior, nodes[around], targets[own, None])
            by_target[np.ix_(around, own)] = ground.closeness(around, own) * covariances
        own = np.flatnonzero(owners == number)
        if len(own):
            noise[own] = posterior.theta.noise**2 / n_each
            around = _distinct(near[own])
            factor = ground.closeness(own, around)
            for all_of_them, others in ((between_nodes, nodes[around]), (by_node, targets[around, None])):
                all_of_them[np.ix_(own, around)] = factor * _covariances(posterior, nodes[own], others)
    squared = method._factor(state) ** 2
    between_nodes, to_targets = _smaller(between_nodes, between_nodes.T), _smaller(by_node, by_target)
    return Uncertainty(
        ground, squared * between_nodes, squared * to_targets, squared * variance, squared * noise, shortest
    )


def _distinct(cells: Indices) -> Indices:
    """Of cells, -1 for none, each once."""
    cells = np.unique(cells)
    return cells[cells >= 0]


def _covariances(posterior: Posterior, nodes: Array, others: Array) -> Array:
    """(n, m) of the means over the places of nodes (n, s, d) with those over the places of others (m, t, d)."""
    nodes, others = nodes.swapaxes(0, 1), others.swapaxes(0, 1)
    prior = np.zeros((nodes.shape[1], others.shape[1]))
    for places, other_places in product(nodes, others):  # one by one, because all of them together need much memory
        prior += posterior.kernel(posterior.theta, places, other_places)
    by_node, by_other = (np.mean([posterior.explained(places) for places in each], axis=0) for each in (nodes, others))
    covariances: Array = prior / (len(nodes) * len(others)) - by_node.T @ by_other
    return covariances


def _smaller(a: Array, b: Array) -> Array:
    """Of each pair of elements that which is nearer to zero."""
    return np.where(np.abs(a) <= np.abs(b), a, b)


def _smoothed(posterior: Posterior, least_lengthscales: Array) -> Posterior:
    """The posterior with length-scales (d,) of at least these."""
    theta = posterior.theta
    if (theta.lengthscales >= least_lengthscales).all():
        return posterior
    theta = replace(theta, lengthscales=np.maximum(theta.lengthscales, least_lengthscales))
    return Posterior(posterior.kernel, theta, posterior.mean, posterior.data)
