"""Whether new rows of a territory belong to another regime, with other hyperparameters (docs/territories.md, 4).

Rows of another regime must lie on the other side of an axis-parallel cut. They are compared by log evidence:

- as an update: all of the territory with the hyperparameters that fit it now, minus what was known, with those before;
- as another regime: rows before the cut given what was known, rows behind it alone with hyperparameters of their own,
  minus half the logarithm of their number for each hyperparameter and the mean (Schwarz 1978).

A thinned territory is also divided where an update would make it rougher: its few pseudo-data tell the field between
them by the length-scales that they were thinned with.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wgpr.ensemble.territory import Territory, forecast, is_dense, with_halo
from wgpr.gp.evidence import Evidence
from wgpr.gp.hyperparameters import HyperPrior, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, NotFactorizableError
from wgpr.gp.optimize import fit_hyperparameters
from wgpr.gp.pseudodata import PseudoData

# Fewest rows that can be another regime, and fewest that tell the hyperparameters of the old one.
FEWEST_ROWS, _FEWEST_KNOWN = 15, 30

# Largest part of the new rows that may lie among the old. It is larger if the old regime was thinned: if it were fitted
# together with a rougher one, its few pseudo-data would no longer tell what lies between them.
_MOST_OVERLAP, _MOST_OVERLAP_WITH_THINNED = 0.05, 0.75

# Fractions of the new rows, in order along the axis, that may still belong to the old regime, and how the best of them
# is refined.
_FRACTIONS = (0.0, 0.25, 0.5, 0.75)
_REFINEMENTS = (1 / 8, 1 / 16, 1 / 32, 1 / 64)

# An update makes a territory rougher if a length-scale shrinks below 0.8 of what it was. The part that takes the new
# length-scales begins half a length-scale before the new rows, because the field may have become rougher before them.
# The rest keeps its own if its nearest neighbours are more than 0.3 new length-scales apart in the median: closer ones
# tell the field between them by the new ones too.
_ROUGHER, _BEGINS_BEFORE, _KNOWN_BETWEEN = 0.8, 0.5, 0.3

# Nats by which a later cut must be better than one before.
_CLEARLY = 3.0

# A fit is tried if the evidence at one of these hyperparameters is near enough: it gains hardly more nats for each row.
_STRETCHES = (0.15, 0.5, 2.0)
_GAIN_PER_ROW = 0.15

_MAX_ITER = 20


class Regime(NamedTuple):
    """Another regime: what lies beyond `position` along `axis`, above it or below.

    theta, mean : hyperparameters and prior mean (k,) there; log_evidence : of the comparison, minus the penalty.
    fraction : of the new rows, in order along the axis, that belong to the old regime.
    """

    axis: int
    position: float
    is_above: bool
    theta: Hyperparameters
    mean: Array
    log_evidence: float
    fraction: float


def find_regime(territory: Territory, updated: Territory, halo: PseudoData | None) -> Regime | None:
    """The regime of the new rows, if the evidence favours one over the updated territory."""
    side = separating_axis(territory)
    if side is None:
        return None
    axis, sign = side
    order = np.argsort(sign * territory.new_rows.Z[:, axis], kind="stable")
    rows = territory.new_rows[order]
    as_update = updated.log_evidence_of(with_halo(updated.data, halo))
    as_update -= territory.log_evidence_of(with_halo(territory.known, halo))
    _, given_known = forecast(territory, halo, order)
    farthest_old = float((sign * territory.known.Z[:, axis]).max())
    n_among_old = int((sign * rows.Z[:, axis] <= farthest_old).sum())

    def better(best: Regime | None, fraction: float) -> Regime | None:
        """The regime of the rows behind this fraction of them, if it is better than the best so far."""
        n_before = max(n_among_old, round(fraction * len(rows)))
        if n_before > len(rows) - FEWEST_ROWS:
            return best
        last = max(farthest_old, float(sign * rows.Z[n_before - 1, axis])) if n_before else farthest_old
        position = 0.5 * sign * (last + sign * float(rows.Z[n_before, axis]))
        if not last < sign * position < sign * rows.Z[n_before, axis]:  # equal values: no cut separates them
            return best
        needed = (as_update if best is None else best.log_evidence + _CLEARLY) - given_known[n_before]
        found = _fit_alone(territory, rows[n_before:], needed)
        if found is None:
            return best
        theta, mean, log_evidence = found
        return Regime(axis, position, sign > 0, theta, mean, given_known[n_before] + log_evidence, fraction)

    best: Regime | None = None
    for fraction in _FRACTIONS:
        best = better(best, fraction)
    for step in (side * width for width in _REFINEMENTS for side in (-1.0, 1.0)):
        best = None if best is None else better(best, best.fraction + step)
    return best


def rougher_part(territory: Territory, updated: Territory) -> Regime | None:
    """The part around the new rows, with the updated hyperparameters, if these are rougher; what is left keeps its own.

    It is cut off along the axis that leaves most pseudo-data. None if each axis leaves too few on one side of the cut,
    or pseudo-data that are close enough for the updated length-scales.
    """
    if (updated.theta.lengthscales > _ROUGHER * territory.theta.lengthscales).all():
        return None
    n_data, most, best = len(territory.data), 0, None
    for axis, width in enumerate(_BEGINS_BEFORE * updated.theta.lengthscales):
        for sign in (1.0, -1.0):
            places = sign * territory.data.Z[:, axis]
            is_left = places <= (sign * territory.new_rows.Z[:, axis]).min() - width
            n_left = int(is_left.sum())
            if n_left <= most or not FEWEST_ROWS <= n_left <= n_data - FEWEST_ROWS:
                continue
            last, first = float(places[is_left].max()), float(places[~is_left].min())
            left = replace(updated, data=territory.data[is_left])
            if last < 0.5 * (last + first) < first and not is_dense(left, _KNOWN_BETWEEN):
                most, best = n_left, (axis, sign, 0.5 * (last + first))
    if best is None:
        return None
    axis, sign, position = best
    rows = territory.data[sign * territory.data.Z[:, axis] > position]
    mean = np.average(rows.t, axis=0, weights=rows.precision)
    return Regime(axis, sign * position, sign > 0, updated.theta, mean, updated.log_evidence, 0.0)


def separating_axis(territory: Territory) -> tuple[int, float] | None:
    """The axis, and its direction, along which the new rows lie beyond what was known; None if there is none."""
    old, new = territory.known.Z, territory.new_rows.Z
    if len(new) < FEWEST_ROWS or territory.n_fitted < _FEWEST_KNOWN:
        return None
    overlap = {
        (axis, sign): float((sign * new[:, axis] <= (sign * old[:, axis]).max()).mean())
        for axis in range(old.shape[1])
        for sign in (1.0, -1.0)
    }
    best = min(overlap, key=lambda side: overlap[side])
    most = _MOST_OVERLAP_WITH_THINNED if territory.n_lost else _MOST_OVERLAP
    return best if overlap[best] < most else None


def _fit_alone(territory: Territory, rows: PseudoData, needed: float) -> tuple[Hyperparameters, Array, float] | None:
    """Hyperparameters and mean (k,) of the rows alone, and their log evidence with its penalty, if that is enough."""
    kernel, mean = territory.kernel, rows.t.mean(axis=0)
    scales = Scales.of_track(rows.Z, rows.t, mean)
    variance = 1.0 / (rows.precision * territory.theta.noise**2)
    evidence = Evidence(kernel, rows.Z, rows.t - mean, variance, np.ones(len(rows), dtype=np.bool_))
    prior = HyperPrior.of_new_model(kernel, scales)
    penalty = 0.5 * (len(prior.mean) + 1) * float(np.log1p(rows.t.size))
    start, value = _best_start(kernel, scales, prior, territory.theta, evidence)
    if value + _GAIN_PER_ROW * rows.t.size < needed + penalty:
        return None
    theta = fit_hyperparameters(evidence.value_and_gradient, start, prior, _MAX_ITER)
    log_evidence = evidence.value_and_gradient(theta)[0] - penalty
    return (theta, mean, log_evidence) if log_evidence > needed else None


def _best_start(
    kernel: Kernel, scales: Scales, prior: HyperPrior, theta: Hyperparameters, evidence: Evidence
) -> tuple[Hyperparameters, float]:
    """The best of a handful of fixed hyperparameters, and the log evidence with it."""
    defaults = [default_hyperparameters(kernel, scales, stretch) for stretch in _STRETCHES]
    low_noise = [replace(default, noise=default.noise / 3.0) for default in defaults]
    best, best_value = theta, -np.inf
    for start in (prior.clip(each) for each in (theta, *defaults, *low_noise)):
        try:
            value = evidence.value_and_gradient(start)[0]
        except NotFactorizableError:
            continue
        if value > best_value:
            best, best_value = start, value
    return best, best_value
