"""Prediction rules: who answers a query, and how several answers become one. Any object with `combine` will do.

| rule | the answer is |
|---|---|
| `Nearest()` | that of the model that owns the nearest pseudo-input, alone (WGPR) |
| `Weighted()` | a mixture weighted by closeness in input space (LGPR) |
| `BestFew(3)` | a mixture of the few best, by closeness over variance (SOLAR GP) |
| `Barycenter(3)` | the Wasserstein barycenter of the few nearest models |
| `RobustBCM(3)` | the nearest model, sharpened by neighbours that know more |

Every rule is an average of the models' means, with weights of its own and a variance that goes with them. One of
your own:

    class MostCertain:
        def combine(self, panel):
            experts = panel.ask(panel.nearest(3))         # members, means, variances and noise, (n, 3) each
            best = experts.of(experts.variances.argmin(axis=1)[:, None])
            return Blend(best, weights=np.ones_like(best.means), variance=best.variances[:, 0])

`panel.X`, means and variances are in the ensemble's units (an estimator's `units_`); the answer is turned into the
user's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from wgpr.checks import require_count
from wgpr.ensemble import Ensemble, log_closeness
from wgpr.gaussian import Gaussian
from wgpr.linalg import Array, Indices

# Queries are answered in pieces, so that memory does not grow with their number.
_PIECE = 16_384


class Experts(NamedTuple):
    """The answers of some models to n queries, k models each.

    members : (n, k) numbers of the models; means, variances : (n, k) of the field; noise : (n, k) its variance.
    """

    members: Indices
    means: Array
    variances: Array
    noise: Array

    def of(self, places: Indices) -> "Experts":
        """Only those at `places` (n, k') of each row."""
        return Experts._make(np.take_along_axis(part, places, axis=1) for part in self)


class Blend(NamedTuple):
    """Experts made one: `weights` (n, k) that sum to one over k, and the `variance` (n,) of the field."""

    experts: Experts
    weights: Array
    variance: Array

    @property
    def mean(self) -> Array:
        return (self.weights * self.experts.means).sum(axis=1)

    @property
    def noise(self) -> Array:
        """Variance (n,) of an observation around the field."""
        return (self.weights * self.experts.noise).sum(axis=1)


class PredictionRule(Protocol):
    """Decides who answers, and makes one answer of several."""

    def combine(self, panel: "Panel") -> Blend: ...


class Panel:
    """The ensemble, ready to be asked about the queries `X` (n, d)."""

    def __init__(self, ensemble: Ensemble, X: Array) -> None:
        self.ensemble, self.X = ensemble, X

    def nearest(self, n_models: int) -> Indices:
        """(n, k) numbers of the models that own the nearest pseudo-inputs, nearest first; k <= n_models."""
        return self.ensemble.index.owners(self.X, min(n_models, len(self.ensemble)))

    def log_closeness(self) -> Array:
        """(n, J): `-1/2 |(x - centre) / lengthscales|^2` to every model."""
        return log_closeness(self.X, self.ensemble.centres, self.ensemble.lengthscales)

    def ask(self, members: Indices) -> Experts:
        """What models `members` (n, k) answer, each to its own queries."""
        places, answers, noise = [], [], []
        for number, own in _by_model(members):
            model = self.ensemble.models[number]
            places.append(own)
            answers.append(model.predict(self.X[own // members.shape[1]]))
            noise.append(np.full(len(own), model.theta.noise**2))
        means, variances = zip(*answers, strict=True)
        parts = np.empty((3, members.size))
        parts[:, np.concatenate(places)] = [np.concatenate(part) for part in (means, variances, noise)]
        return Experts(members, *parts.reshape(3, *members.shape))


def _by_model(members: Indices) -> Iterator[tuple[int, Indices]]:
    """For each model in `members` (n, k): its number, and where it stands in `members.ravel()`."""
    order = np.argsort(members, axis=None, kind="stable")
    numbers, firsts = np.unique(members.ravel()[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)


@dataclass(frozen=True)
class Nearest:
    """The model that owns the nearest pseudo-input answers alone: one search and one small solve a query."""

    def combine(self, panel: Panel) -> Blend:
        experts = panel.ask(panel.nearest(1))
        return Blend(experts, np.ones_like(experts.means), experts.variances[:, 0])


@dataclass(frozen=True)
class Weighted:
    """The closest models, weighted by `w`, as a mixture: where they disagree, the variance says so.

    n_models : how many at the most; the weights of those further away are next to nothing.
    """

    n_models: int = 10

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, panel: Panel) -> Blend:
        log_w = panel.log_closeness()
        members = _largest(log_w, self.n_models)
        experts = panel.ask(members)
        return _mixture(experts, _normalised(np.take_along_axis(log_w, members, axis=1)))


@dataclass(frozen=True)
class BestFew:
    """The models with the largest `w / variance`, weighted by it, as a mixture.

    n_models : how many; they are found among the three times as many that are closest.
    """

    n_models: int = 3

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, panel: Panel) -> Blend:
        log_w = panel.log_closeness()
        experts = panel.ask(_largest(log_w, 3 * self.n_models))
        observed = experts.variances + experts.noise
        log_weights = np.take_along_axis(log_w, experts.members, axis=1) - np.log(observed)
        best = _largest(log_weights, self.n_models)
        return _mixture(experts.of(best), _normalised(np.take_along_axis(log_weights, best, axis=1)))


@dataclass(frozen=True)
class Barycenter:
    """The Wasserstein barycenter of the nearest models: in one dimension, means and standard deviations average."""

    n_models: int = 3

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, panel: Panel) -> Blend:
        experts = panel.ask(panel.nearest(self.n_models))
        weights = np.full(experts.means.shape, 1.0 / experts.means.shape[1])
        return Blend(experts, weights, (weights * np.sqrt(experts.variances)).sum(axis=1) ** 2)


@dataclass(frozen=True)
class RobustBCM:
    """The robust Bayesian committee machine of the nearest models, with the nearest in the place of the prior.

    Each neighbour counts by how much less uncertain it is than the nearest model: `b = log(v_0 / v) / 2`, none if it
    knows less. The committee's precision is `(1 - sum b) / v_0 + sum b / v`. The original corrects by the prior and
    grows too sure with every member; correcting by a member (Liu et al. 2018), with `sum b` at most 1, makes it
    an average of precisions: never surer than its surest member.
    """

    n_models: int = 3

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, panel: Panel) -> Blend:
        experts = panel.ask(panel.nearest(self.n_models))
        variances = np.maximum(experts.variances, np.finfo(float).tiny)
        log_variances = np.log(variances)
        shares = np.maximum(0.5 * (log_variances[:, :1] - log_variances), 0.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        shares[:, 0] = 1.0 - shares[:, 1:].sum(axis=1)
        smallest = variances.min(axis=1)  # precisions are taken relative to the surest, which cannot overflow
        precisions = np.maximum(shares, 0.0) * (smallest[:, None] / variances)
        total = precisions.sum(axis=1)
        return Blend(experts, precisions / total[:, None], smallest / total)


def _largest(scores: Array, n: int) -> Indices:
    """Columns of the `n` largest scores of each row, largest first."""
    n = min(n, scores.shape[1])
    some = np.argpartition(-scores, n - 1, axis=1)[:, :n]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def _normalised(log_weights: Array) -> Array:
    """Weights that sum to one, even where all of them would underflow."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _mixture(experts: Experts, weights: Array) -> Blend:
    mean = (weights * experts.means).sum(axis=1, keepdims=True)
    spread = experts.variances + (experts.means - mean) ** 2
    return Blend(experts, weights, (weights * spread).sum(axis=1))


def _combined(ensemble: Ensemble, rule: PredictionRule, X: Array) -> Blend:
    """What the rule makes of the queries `X` (n, d), if it makes sense."""
    blend = rule.combine(Panel(ensemble, X))
    weights, variance = np.asarray(blend.weights), np.asarray(blend.variance)
    if weights.shape != blend.experts.means.shape or variance.shape != (len(X),):
        raise ValueError(
            f"the prediction rule {rule!r} gave weights of shape {weights.shape} and a variance of shape "
            f"{variance.shape}; they must be {blend.experts.means.shape} and {(len(X),)}"
        )
    if not (np.allclose(weights.sum(axis=1), 1.0) and (variance >= 0).all()):
        raise ValueError(
            f"the weights of the prediction rule {rule!r} must sum to 1, and its variance must not be negative"
        )
    return blend


def predict(ensemble: Ensemble, rule: PredictionRule, X: Array) -> tuple[Array, Array, Array]:
    """Mean, variance of the field and variance of the noise, (n,) each, at `X` (n, d)."""
    pieces = [X[first : first + _PIECE] for first in range(0, len(X), _PIECE)]
    blends = [_combined(ensemble, rule, piece) for piece in pieces]
    mean, variance, noise = (
        np.concatenate(parts)
        for parts in zip(*((blend.mean, blend.variance, blend.noise) for blend in blends), strict=True)
    )
    return mean, variance, noise


def predict_jointly(ensemble: Ensemble, rule: PredictionRule, X: Array) -> tuple[Gaussian, Array]:
    """The field at all of `X` (n, d) with its full covariance, and the variance (n,) of the noise.

    Models know nothing of each other: they are independent, and two queries covary through the models that they share.
    The correlations are those of the weighted average, the variances are the rule's own.
    """
    blend = _combined(ensemble, rule, X)
    covariance = np.zeros((len(X), len(X)))
    for number, own in _by_model(blend.experts.members):
        weights, query = blend.weights.ravel()[own], own // blend.weights.shape[1]
        shared = ensemble.models[number].posterior(X[query]).covariance
        covariance[np.ix_(query, query)] += weights[:, None] * weights * shared
    diagonal = covariance.diagonal()
    scale = np.sqrt(np.divide(blend.variance, diagonal, out=np.zeros(len(X)), where=diagonal > 0))
    covariance *= scale[:, None] * scale
    np.fill_diagonal(covariance, blend.variance)
    return Gaussian(blend.mean, covariance), blend.noise


def answering_model(ensemble: Ensemble, rule: PredictionRule, X: Array) -> Indices:
    """The model with the largest weight in the answer at each row of `X` (n, d)."""
    blend = _combined(ensemble, rule, X)
    largest = blend.weights.argmax(axis=1, keepdims=True)
    return np.take_along_axis(blend.experts.members, largest, axis=1)[:, 0]
