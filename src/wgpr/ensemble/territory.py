"""One territory: a local model of pseudo-data, how it forecasts new rows and fits its hyperparameters.

The halo of a territory are the pseudo-data of its neighbours that are nearest to it. It takes part in forecasts and in
the fit, and is never learned: what it says is the neighbours' knowledge.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from wgpr.gp.evidence import Evidence
from wgpr.gp.gaussian import LOG_2PI, log_density
from wgpr.gp.hyperparameters import (
    LENGTHSCALE_FACTORS,
    STD_OF_NEW,
    STD_OF_STEP,
    HyperPrior,
    Scales,
    default_hyperparameters,
    unexplained,
)
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import (
    Array,
    Indices,
    NotFactorizableError,
    cholesky,
    cholesky_with_jitter,
    columns,
    diagonal,
    solve_lower,
    solve_lower_transposed,
)
from wgpr.gp.model import PickledByFields
from wgpr.gp.optimize import fit_hyperparameters
from wgpr.gp.pseudodata import LEAST_PRECISION, Mask, Posterior, PseudoData

# Most points of one factorisation in a fit; more are fitted as independent blocks.
_BLOCK_SIZE = 250

# Most iterations of L-BFGS: for the first hyperparameters of a territory, and later.
_MAX_ITER_FIRST, _MAX_ITER = 20, 6

# As long as a territory without neighbours has all its rows, it also starts from these short length-scales, as factors
# of the default: few rows of a rough field look like noise, and what is thinned as noise is lost.
_SHORT = (0.1, 0.3)

# Nats by which they must be better.
_CLEARLY = 10.0

# A length-scale that was fitted to data of a smaller spread, by this factor, says nothing about the data of now.
_SPREAD_GROWTH = 4.0

# A territory that was thinned, and is surprised, also starts from so many times its length-scales: near the present
# ones there is often a maximum that explains a rougher field as noise.
_SHORTENED = 0.3

# Least prior standard deviation of log hyperparameters around those of the neighbours.
_LEAST_STD = 0.2

# Rows that determine the noise at the most; older ones are discounted, so that it can change.
_ROWS_OF_NOISE = 200

# A row is down-weighted if its error, given all other rows, exceeds `_GATE` standard deviations. If too many rows do,
# by number and by fraction, or too many one after the other, the model is wrong, and no row is down-weighted.
_GATE = 16.0
_LEAST_WEIGHT = 1e-120
_MOST_OUTLIERS, _MOST_OUTLYING, _MOST_IN_A_ROW = 2, 0.2, 5

# Rows are surprising if their squared whitened errors, each up to a limit, exceed expectation by so many deviations.
_SURPRISE, _MOST_SURPRISING = 4.0, 25.0

# Rows with a smaller fraction of the typical weight say nothing about the scale of the values.
_LEAST_TRUSTED = 0.01

# Rounding of posterior covariances, relative to the prior variance.
_ROUNDING = 1e-8

# Root mean square difference of log hyperparameters at which territories begin to disagree, and disagree wholly.
_AGREE, _DISAGREE = 0.6, 1.0


def agreement(log_theta: Array, other: Array) -> Array:
    """Between 0 for another regime and 1, of log hyperparameters (..., p)."""
    difference = np.sqrt(((log_theta - other) ** 2).mean(axis=-1))
    agreeing: Array = ((_DISAGREE - difference) / (_DISAGREE - _AGREE)).clip(0.0, 1.0)
    return agreeing


@dataclass(frozen=True, eq=False)
class Territory(PickledByFields):
    """A local model: pseudo-data, and the hyperparameters that they are read with. An immutable value.

    mean : (k,) prior mean. n_seen : rows that it has learned; n_fitted : those of them at the latest fit.
    n_known : the first so many of its data were there at the latest look; those behind them are new rows.
    spread : (d,) of the inputs at the latest fit (`spread_of`). visited : number of its latest row in the stream.
    log_evidence : of the latest rows that were looked at, given those before; n_evaluations : of the evidence then.
    """

    kernel: Kernel
    theta: Hyperparameters
    mean: Array
    data: PseudoData
    n_seen: int
    n_fitted: int
    n_known: int
    spread: Array
    visited: int
    log_evidence: float = 0.0
    n_evaluations: int = 0

    @classmethod
    def begin(cls, kernel: Kernel, X: Array, y: Array, weights: Array) -> "Territory":
        """The first territory: rows `X` (n, d), `y` (n, k) with weights (n,), and hyperparameters fitted to them.

        Spikes among them are learned when the others are known, so that they can be down-weighted.
        """
        is_spike = _spikes(y)
        first = ~is_spike
        mean = np.average(y[first], axis=0, weights=weights[first])
        theta = default_hyperparameters(kernel, Scales.of_track(X[first], y[first], mean))
        data = PseudoData.of_rows(X[first], y[first], weights[first], theta.noise)
        n, unknown = len(data), np.zeros(X.shape[1])
        territory = fitted(cls(kernel, theta, mean, data, n, 0, 0, unknown, visited=len(y)), ALONE)
        if first.all():
            return territory
        territory = territory.with_rows(X[is_spike], y[is_spike], weights[is_spike], len(y))
        territory = territory.down_weighted(forecast(territory, None)[0].weights)
        return replace(territory, n_known=len(y))

    @property
    def inputs(self) -> Array:
        """(m, d): places of the pseudo-data."""
        return self.data.Z

    @property
    def known(self) -> PseudoData:
        """What was there at the latest look: outliers among it are down-weighted."""
        return self.data[: self.n_known]

    @cached_property
    def plausible(self) -> PseudoData:
        """What is known, and new rows that deviate no more from the mean. No look has judged these yet."""
        deviation = np.abs(self.data.t - self.mean).max(axis=1)
        is_known = np.arange(len(self.data)) < self.n_known
        reach = deviation[is_known & _are_trusted(self.data)].max(initial=0.0)
        return self.data[is_known | (deviation <= reach)]

    @property
    def new_rows(self) -> PseudoData:
        return self.data[self.n_known :]

    @property
    def n_lost(self) -> int:
        """Number of rows that are no longer there one by one."""
        return self.n_seen - int(self.data.is_row.sum())

    @cached_property
    def centre(self) -> Array:
        """(d,): mean place of the pseudo-data."""
        mean: Array = self.data.Z.mean(axis=0)
        return mean

    @cached_property
    def distinct(self) -> PseudoData:
        """The pseudo-data with one for each place: many rows of one place must not be all the nearest of a query."""
        return self.data.united()

    @cached_property
    def least_trusted(self) -> float:
        """Least precision of a row that says how large the field is; it stays the same until the next look."""
        precision = self.known.precision[self.known.is_row]
        typical = np.median(precision) if len(precision) else self.theta.noise**-2
        return _LEAST_TRUSTED * float(typical)

    @cached_property
    def largest_deviation(self) -> float:
        """Largest deviation of a value from the prior mean, outliers and rows of next to no weight left out."""
        is_trusted = ~self.data.is_row | (self.data.precision >= self.least_trusted)
        return float(np.abs(self.data.t[is_trusted] - self.mean).max(initial=0.0))

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean (n, k) and variance (n,) of the field at `X` (n, d), by its own pseudo-data alone."""
        return Posterior(self.kernel, self.theta, self.mean, self.data).predict(X)

    def log_evidence_of(self, data: PseudoData) -> float:
        """Log density of pseudo-data, with their precisions as they are, by its hyperparameters and its mean."""
        C = self.kernel.covariance(self.theta, data.Z)
        diagonal(C)[:] += 1.0 / data.precision
        return log_density(data.t - self.mean, C)

    def with_rows(self, X: Array, y: Array, weights: Array, visited: int) -> "Territory":
        """After rows `X` (n, d), `y` (n, k) with weights (n,): they are known at once, without approximation."""
        data = PseudoData.union(self.data, PseudoData.of_rows(X, y, weights, self.theta.noise))
        return replace(self, data=data, n_seen=self.n_seen + len(y), visited=visited)

    def down_weighted(self, weights: Array) -> "Territory":
        """After the weights of the new rows were multiplied by these (n,)."""
        precision = self.data.precision.copy()
        precision[self.n_known :] *= weights
        np.maximum(precision, LEAST_PRECISION, out=precision)
        return replace(self, data=replace(self.data, precision=precision))

    def with_theta(self, theta: Hyperparameters) -> "Territory":
        return replace(self, theta=theta, data=self.data.with_noise(self.theta.noise, theta.noise))

    def part(self, rows: Mask, n_seen: int, n_fitted: int) -> "Territory":
        """The part with some of the pseudo-data (m,), and the prior mean that suits them."""
        data = self.data[rows]
        mean = np.average(data.t, axis=0, weights=data.precision)
        n_known = int(rows[: self.n_known].sum())
        return replace(self, data=data, mean=mean, n_seen=n_seen, n_fitted=n_fitted, n_known=n_known)

    def halves(self, axis: int, position: float) -> tuple["Territory | None", "Territory | None"]:
        """The parts below and above a cut; None for a part without pseudo-data."""
        is_below = self.data.Z[:, axis] <= position
        share = float(is_below.mean())
        if share in (0.0, 1.0):
            return (self, None) if share else (None, self)
        n_seen, n_fitted = round(share * self.n_seen), round(share * self.n_fitted)
        above = self.part(~is_below, self.n_seen - n_seen, self.n_fitted - n_fitted)
        return self.part(is_below, n_seen, n_fitted), above


def _spikes(y: Array) -> Mask:
    """Which of the first rows `y` (n, k) are far beyond all others: (n,)."""
    deviation = np.abs(y - np.median(y, axis=0)).max(axis=1)
    ordered = np.sort(deviation)
    for n in range(1, int(_MOST_OUTLYING * len(y)) + 1):
        if 0.0 < _GATE * ordered[-n - 1] < ordered[-n]:
            return deviation >= ordered[-n]
    return np.zeros(len(y), dtype=np.bool_)


class Surroundings(NamedTuple):
    """What a territory uses of its neighbours.

    halo : pseudo-data near it; log_theta : (j, p) hyperparameters of the neighbours; spread : (j, d) of their inputs.
    """

    halo: PseudoData | None
    log_theta: Array
    spread: Array


ALONE = Surroundings(None, np.empty((0, 0)), np.empty((0, 0)))


# Forecasts


class Forecast(NamedTuple):
    """New rows, predicted by what was known before them.

    log_density : of all n rows together. whitened : (n, k) errors of each row given those before it, in deviations.
    weights : (n,), below one for rows that all other data contradict.
    """

    log_density: float
    whitened: Array
    weights: Array

    @property
    def is_surprising(self) -> bool:
        squares = np.minimum(self.whitened**2, _MOST_SURPRISING)
        return bool(squares.sum() > squares.size + _SURPRISE * np.sqrt(2.0 * squares.size))


def with_halo(data: PseudoData, halo: PseudoData | None) -> PseudoData:
    return data if halo is None else PseudoData.union(data, halo)


def forecast(territory: Territory, halo: PseudoData | None, order: Indices | None = None) -> tuple[Forecast, Array]:
    """The new rows, predicted; and (n + 1,) the log density of the first i of them.

    With `C = L L^T` the covariance of the n observations and e their errors, `L^-1 e` are the whitened errors.

    order : (n,) of the rows; by default that of their arrival.
    """
    rows = territory.new_rows if order is None else territory.new_rows[order]
    known = with_halo(territory.known, halo)
    mean, C = Posterior(territory.kernel, territory.theta, territory.mean, known).joint(rows.Z)
    C[np.diag_indices_from(C)] += 1.0 / rows.precision
    L = _factor(C, territory.kernel.variance(territory.theta))
    whitened = solve_lower(L, columns(rows.t - mean))
    weights = _outlier_weights(L, solve_lower_transposed(L, whitened))
    steps = -0.5 * (whitened**2).sum(axis=1) - whitened.shape[1] * (np.log(L.diagonal()) + 0.5 * LOG_2PI)
    return Forecast(float(steps.sum()), whitened, weights), np.concatenate([[0.0], np.cumsum(steps)])


def _factor(C: Array, prior_variance: float) -> Array:
    """Lower factor of the covariance `C` (n, n) of rows.

    Where rows of very large weight repeat known places, it is rounding, of the size of the prior variance.
    """
    try:
        return cholesky(C)
    except NotFactorizableError:
        return cholesky_with_jitter(C + _ROUNDING * prior_variance * np.eye(len(C)))[0]


def _outlier_weights(L: Array, a: Array) -> Array:
    """Weights (n,) of rows with the covariance `C = L L^T` (n, n), where `a = C^-1 e` (n, k) of their errors e.

    With `P = C^-1`, `a_i / sqrt(P_ii)` is the error of row i given all others, in standard deviations. An outlier makes
    the rows around it look wrong too. So the worst row is left out, and the errors given all that remain are next.
    """
    weights, inverse_L = np.ones(len(L)), solve_lower(L, np.eye(len(L)))
    precision = (inverse_L**2).sum(axis=0)
    if ((a**2).mean(axis=1) <= _GATE**2 * precision).all():
        return weights
    P, a, rounding = inverse_L.T @ inverse_L, a.copy(), 0.0
    for _ in range(max(_MOST_OUTLIERS, int(_MOST_OUTLYING * len(L))) + 1):
        size = np.sqrt((a**2).mean(axis=1) / P.diagonal())
        worst = int(np.argmax(size))
        rounding = max(rounding, 1e-10 * size[worst])
        if size[worst] <= max(_GATE, rounding):
            return weights if _are_apart(weights < 1.0) else np.ones(len(L))
        weights[worst] = max((_GATE / size[worst]) ** 4, _LEAST_WEIGHT)
        column = P[:, worst] / P[worst, worst]
        a -= np.outer(column, a[worst])
        P -= np.outer(column, P[worst])
        a[worst], P[worst, worst] = 0.0, 1.0
    return np.ones(len(L))


def _are_apart(is_outlier: Mask) -> bool:
    """Whether no more than a few outliers (n,) follow each other: more of them are a part of the field."""
    others = np.flatnonzero(~is_outlier)
    return bool(np.diff(others, prepend=-1, append=len(is_outlier)).max() <= _MOST_IN_A_ROW + 1)


# Hyperparameters


def fitted(territory: Territory, surroundings: Surroundings, *, is_surprised: bool = False) -> Territory:
    """The territory after its hyperparameters were fitted to its own pseudo-data and its halo.

    is_surprised : whether the new rows contradict its present hyperparameters.
    """
    kernel, own = territory.kernel, territory.data
    scales, spread = _scales(territory), spread_of(own.Z)
    by_spread, is_new_axis = scales, territory.spread < spread / _SPREAD_GROWTH
    if territory.n_fitted:
        scales = _with_new_axes(scales, spread, is_new_axis)
    prior = _prior(territory, scales, spread, is_new_axis, surroundings, is_surprised=is_surprised)
    posterior = _LogPosterior(_evidences(territory, surroundings.halo), prior)

    def defaults(factors: tuple[float, ...]) -> list[Hyperparameters]:
        return [default_hyperparameters(kernel, scales, factor) for factor in factors]

    def with_new_axes(default: Hyperparameters) -> Hyperparameters:
        lengthscales = np.where(is_new_axis, default.lengthscales, territory.theta.lengthscales)
        return replace(territory.theta, lengthscales=lengthscales)

    is_lonely = not len(surroundings.log_theta) and not territory.n_lost
    starts = []
    if territory.n_fitted or not is_lonely:
        starts.append(with_new_axes(*defaults((1.0,))))
        if territory.n_fitted and is_new_axis.any():
            starts += [territory.theta, with_new_axes(default_hyperparameters(kernel, by_spread))]
    if is_surprised and territory.n_lost:
        starts.append(replace(starts[0], lengthscales=_SHORTENED * starts[0].lengthscales))
    if not is_lonely:
        theta = posterior.best(starts, _MAX_ITER)
        if len(starts) > 2:  # it may still be far from a maximum
            theta = posterior.best([theta], _MAX_ITER_FIRST)
    else:  # nobody else knows: the present hyperparameters may be those of another maximum
        theta = posterior.best([*starts, *defaults(LENGTHSCALE_FACTORS)], _MAX_ITER_FIRST)
        if territory.n_fitted:
            short = posterior.best(defaults(_SHORT), _MAX_ITER_FIRST)
            theta = short if posterior(short) > posterior(theta) + _CLEARLY else theta
    fitted_now = replace(territory, n_fitted=territory.n_seen, n_known=len(own), spread=spread)
    return replace(fitted_now, n_evaluations=posterior.n_evaluations).with_theta(theta)


def rougher(territory: Territory) -> Territory | None:
    """The territory with shorter length-scales and less noise, if these explain its data clearly better; else None.

    The neighbours do not count: they may have taken the same roughness for noise.
    """
    theta, prior = territory.theta, HyperPrior.of_new_model(territory.kernel, _scales(territory))
    posterior = _LogPosterior(_evidences(territory, None), prior)
    starts = [
        replace(theta, lengthscales=factor * theta.lengthscales, noise=_SHORTENED * theta.noise) for factor in _SHORT
    ]
    rough, smooth = posterior.best(starts, _MAX_ITER_FIRST), posterior.best([theta], _MAX_ITER)
    return territory.with_theta(rough) if posterior(rough) > posterior(smooth) + _CLEARLY else None


def is_dense(territory: Territory, distance: float) -> bool:
    """Whether half of the data have a neighbour within a distance, in length-scales."""
    Z = territory.data.Z / territory.theta.lengthscales
    nearest = KDTree(Z).query(Z, k=2)[0][:, 1]
    return bool(np.median(nearest) <= distance)


def _scales(territory: Territory) -> Scales:
    """Of its pseudo-data; those of next to no weight say nothing of the target's."""
    own = territory.data
    return Scales.of_track(own.Z, own.t[_are_trusted(own)], territory.mean)


def _with_new_axes(scales: Scales, spread: Array, is_new_axis: Mask) -> Scales:
    """Scales for the first rows of another survey line. Along new axes (d,) they are not below the mean of all axes.

    Such rows say how far apart lines are, and next to nothing of the field between them. A length-scale below the
    distance of lines would explain them as well as any, and make the lines unrelated. One that is too long is soon
    contradicted.
    """
    least = np.maximum(spread, scales.inputs.mean())
    return replace(scales, inputs=np.where(is_new_axis, np.maximum(scales.inputs, least), scales.inputs))


class _LogPosterior:
    """Log posterior density of hyperparameters, up to a constant: the evidence of independent blocks, and the prior."""

    def __init__(self, evidences: list[Evidence], prior: HyperPrior) -> None:
        self._evidences, self._prior = evidences, prior

    def __call__(self, theta: Hyperparameters) -> float:
        try:
            return self._log_evidence(theta)[0] + self._prior.log_density(theta.to_log())[0]
        except NotFactorizableError:
            return -np.inf

    def best(self, starts: list[Hyperparameters], max_iter: int) -> Hyperparameters:
        """The best of the maxima that are reached from these starts."""
        prior = self._prior
        found = [fit_hyperparameters(self._log_evidence, prior.clip(start), prior, max_iter) for start in starts]
        return found[0] if len(found) == 1 else max(found, key=self)

    @property
    def n_evaluations(self) -> int:
        return sum(evidence.n_evaluations for evidence in self._evidences)

    def _log_evidence(self, theta: Hyperparameters) -> tuple[float, Array]:
        parts = [evidence.value_and_gradient(theta) for evidence in self._evidences]
        return sum(value for value, _ in parts), np.sum([gradient for _, gradient in parts], axis=0)


def _are_trusted(data: PseudoData) -> Mask:
    """Which values (m,) say how large the field is: not those of rows with next to no weight, such as outliers."""
    if not data.is_row.any():
        return ~data.is_row
    typical = np.median(data.precision[data.is_row])
    return ~data.is_row | (data.precision >= _LEAST_TRUSTED * typical)


def spread_of(Z: Array) -> Array:
    """(d,): how far places `Z` (n, d) vary in each input independently of the others.

    It is the standard deviation of even places in the range of what the other inputs do not explain. On a survey line
    it is next to nothing, however the line is directed; one row of the next line shows the distance of lines.
    """
    spread: Array = np.ptp(unexplained(Z), axis=0) / np.sqrt(12.0)
    return spread


def _evidences(territory: Territory, halo: PseudoData | None) -> list[Evidence]:
    """Log evidence of own pseudo-data and halo, in compact blocks; the noise of own rows is learned."""
    every = territory.data if halo is None else PseudoData.union(territory.data, halo)
    is_row = every.is_row & (np.arange(len(every)) < len(territory.data))
    variance = 1.0 / every.precision
    variance[is_row] /= territory.theta.noise**2
    t = every.t - territory.mean
    return [
        Evidence(territory.kernel, every.Z[block], t[block], variance[block], is_row[block])
        for block in _blocks(every.Z / territory.theta.lengthscales)
    ]


def _blocks(Z: Array) -> list[Indices]:
    """The points `Z` (n, d) in compact blocks of at most `_BLOCK_SIZE`: (m,) each."""
    stack, blocks = [np.arange(len(Z))], []
    while stack:
        rows = stack.pop()
        if len(rows) <= _BLOCK_SIZE:
            blocks.append(rows)
            continue
        axis = int(np.argmax(np.ptp(Z[rows], axis=0)))
        order = rows[np.argsort(Z[rows, axis], kind="stable")]
        stack += [order[: len(rows) // 2], order[len(rows) // 2 :]]
    return blocks


def _prior(
    territory: Territory,
    scales: Scales,
    spread: Array,
    is_new_axis: Mask,
    surroundings: Surroundings,
    *,
    is_surprised: bool,
) -> HyperPrior:
    """Around the neighbours' hyperparameters, as far as these agree; around default values where nothing is known.

    Pseudo-data hold no information on the noise, and little on hyperparameters other than those that they were made
    with. A territory that was thinned therefore stays close to its own. If new rows contradict these, it does so in the
    noise only: the field may have become rougher, but the instrument is the same.
    """
    kernel = territory.kernel
    prior = default = HyperPrior.of_new_model(kernel, scales)
    if len(surroundings.log_theta):
        is_known = np.ones(surroundings.log_theta.shape, dtype=np.bool_)
        is_known[:, 1 : len(spread) + 1] = surroundings.spread >= spread / _SPREAD_GROWTH
        prior = _pooled(surroundings.log_theta, is_known, default)
    n_lost = territory.n_lost
    if n_lost > 0:
        own = HyperPrior.around(kernel, scales, territory.theta, STD_OF_NEW if is_surprised else STD_OF_STEP)
        own.std[1 : len(spread) + 1][is_new_axis] = 1e3
        own.std[-1] = min(STD_OF_STEP, (2.0 * min(n_lost, _ROWS_OF_NOISE)) ** -0.5)
        prior = own.combined(prior)
    return prior


def _pooled(log_theta: Array, is_known: Mask, default: HyperPrior) -> HyperPrior:
    """Mean and deviation of what the neighbours know: (j, p) values, (j, p) which of them count."""
    n = is_known.sum(axis=0)
    mean = np.where(n > 0, (log_theta * is_known).sum(axis=0) / np.maximum(n, 1), default.mean)
    variance = ((log_theta - mean) ** 2 * is_known).sum(axis=0) / np.maximum(n, 1)
    std = np.sqrt(variance + default.std**2 / (1 + n))  # few neighbours are a small sample
    return HyperPrior(mean, std.clip(_LEAST_STD, default.std), default.box)
