"""Prediction rules: which models answer a query, and how their answers are combined.

| rule | the answer is |
|---|---|
| `Nearest()` | that of the model that owns the nearest pseudo-input, alone (WGPR) |
| `Weighted()` | a mixture weighted by closeness in input space (LGPR) |
| `BestFew(3)` | a mixture of the few best, by closeness over variance (SOLAR GP) |
| `Barycenter(3)` | the Wasserstein barycenter of the few nearest models |
| `RobustBCM(3)` | a committee of the nearest model and more certain neighbours |

Every rule averages the models' means with weights of its own, and gives a variance. Any object with the method
`combine` is a rule:

    class MostCertain:
        def combine(self, query):
            predictions = query.ask(query.nearest(3))         # members, means, variances and noise, (n, 3) each
            best = predictions.of(predictions.variances.argmin(axis=1)[:, None])
            return Mixture(best, weights=np.ones_like(best.variances), variance=best.variances[:, 0])

`query.X`, means and variances are in the ensemble's units (`units_` of an estimator), which converts the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from wgpr.checks import require_count
from wgpr.ensemble.answers import Answers
from wgpr.ensemble.ensemble import Ensemble, log_closeness
from wgpr.gp.linalg import Array, Indices, columns, expand_outputs, n_outputs

# Queries are answered in pieces, so that memory does not grow with their number.
_PIECE = 16_384


class Predictions(NamedTuple):
    """Predictions of n queries by k models each.

    members : (n, k) numbers of the models; means, variances : (n, k) of the field; noise : (n, k) its variance.
    Several outputs share all but the means, which are (n, k, outputs).
    """

    members: Indices
    means: Array
    variances: Array
    noise: Array

    def of(self, places: Indices) -> "Predictions":
        """Those at the columns `places` (n, k') of each row."""
        return Predictions._make(np.take_along_axis(part, expand_outputs(places, part), axis=1) for part in self)


class Mixture(NamedTuple):
    """A weighted average of predictions: `weights` (n, k) that sum to one over k, and the `variance` (n,) of the field.

    With several outputs the variance may be (n, outputs).
    """

    predictions: Predictions
    weights: Array
    variance: Array

    @property
    def mean(self) -> Array:
        return _averaged(self.weights, self.predictions.means)

    @property
    def noise(self) -> Array:
        """Variance (n,) of an observation around the field."""
        return _averaged(self.weights, self.predictions.noise)

    @property
    def owners(self) -> Indices:
        """(n,) the models with the largest weights."""
        largest = self.weights.argmax(axis=1, keepdims=True)
        return np.take_along_axis(self.predictions.members, largest, axis=1)[:, 0]


class PredictionRule(Protocol):
    """Chooses the models that answer a query, and combines their predictions."""

    def combine(self, query: "Query") -> Mixture: ...


class Query:
    """Queries `X` (n, d) to an ensemble."""

    def __init__(self, ensemble: Ensemble, X: Array) -> None:
        self.ensemble, self.X = ensemble, X

    def nearest(self, n_models: int) -> Indices:
        """(n, k) numbers of the models that own the nearest pseudo-inputs, nearest first; k <= n_models."""
        return self.ensemble.index.owners(self.X, min(n_models, len(self.ensemble)))

    def log_closeness(self) -> Array:
        """(n, J): `-1/2 |(x - centre) / lengthscales|^2` to every model."""
        return log_closeness(self.X, self.ensemble.centres, self.ensemble.lengthscales)

    def ask(self, members: Indices) -> Predictions:
        """Predictions of the models `members` (n, k), each of its own queries."""
        parts: list[Array] = []
        for number, own in _by_model(members):
            model = self.ensemble.models[number]
            answer = (*model.predict(self.X[own // members.shape[1]]), np.full(len(own), model.theta.noise**2))
            if not parts:
                parts = [np.empty((members.size, *part.shape[1:])) for part in answer]
            for part, values in zip(parts, answer, strict=True):
                part[own] = values
        return Predictions(members, *(part.reshape(members.shape + part.shape[1:]) for part in parts))


def _by_model(members: Indices) -> Iterator[tuple[int, Indices]]:
    """For each model in `members` (n, k): its number, and its places in `members.ravel()`."""
    flat = members.ravel()
    order = np.argsort(flat, kind="stable")
    numbers, firsts = np.unique(flat[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)


@dataclass(frozen=True)
class Nearest:
    """The model that owns the nearest pseudo-input answers alone: one search and one small solve a query."""

    def combine(self, query: Query) -> Mixture:
        predictions = query.ask(query.nearest(1))
        return Mixture(predictions, np.ones_like(predictions.variances), predictions.variances[:, 0])


@dataclass(frozen=True)
class _OfSeveral:
    """A rule that asks the given number of models."""

    n_models: int = 3

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)


@dataclass(frozen=True)
class Weighted(_OfSeveral):
    """A mixture of the closest models, weighted by closeness `w`; disagreement adds to the variance.

    n_models : the most models; the weights of those further away are negligible.
    """

    n_models: int = 10

    def combine(self, query: Query) -> Mixture:
        log_w = query.log_closeness()
        members = _largest(log_w, self.n_models)
        predictions = query.ask(members)
        return _mixture(predictions, _normalised(np.take_along_axis(log_w, members, axis=1)))


@dataclass(frozen=True)
class BestFew(_OfSeveral):
    """A mixture of the models with the largest `w / variance`, weighted by it.

    n_models : how many; they are chosen among three times as many closest models.
    """

    def combine(self, query: Query) -> Mixture:
        log_w = query.log_closeness()
        predictions = query.ask(_largest(log_w, 3 * self.n_models))
        observed = predictions.variances + predictions.noise
        log_weights = np.take_along_axis(log_w, predictions.members, axis=1) - np.log(observed)
        best = _largest(log_weights, self.n_models)
        return _mixture(predictions.of(best), _normalised(np.take_along_axis(log_weights, best, axis=1)))


@dataclass(frozen=True)
class Barycenter(_OfSeveral):
    """The Wasserstein barycenter of the nearest models: in one dimension, means and standard deviations average."""

    def combine(self, query: Query) -> Mixture:
        predictions = query.ask(query.nearest(self.n_models))
        weights = np.full(predictions.members.shape, 1.0 / predictions.members.shape[1])
        return Mixture(predictions, weights, (weights * np.sqrt(predictions.variances)).sum(axis=1) ** 2)


@dataclass(frozen=True)
class RobustBCM(_OfSeveral):
    """The robust Bayesian committee machine of the nearest models, with the nearest in the place of the prior.

    Each neighbour counts by how much less uncertain it is than the nearest model: `b = log(v_0 / v) / 2`, none if it
    knows less. The committee's precision is `(1 - sum b) / v_0 + sum b / v`. The original corrects by the prior and
    grows too sure with every member; correcting by a member (Liu et al. 2018), with `sum b` at most 1, makes it
    an average of precisions: never surer than its surest member.
    """

    def combine(self, query: Query) -> Mixture:
        predictions = query.ask(query.nearest(self.n_models))
        variances = np.maximum(predictions.variances, np.finfo(float).tiny)
        log_variances = np.log(variances)
        shares = np.maximum(0.5 * (log_variances[:, :1] - log_variances), 0.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        shares[:, 0] = 1.0 - shares[:, 1:].sum(axis=1)
        smallest = variances.min(axis=1)  # precisions are taken relative to the surest, which cannot overflow
        precisions = np.maximum(shares, 0.0) * (smallest[:, None] / variances)
        total = precisions.sum(axis=1)
        return Mixture(predictions, precisions / total[:, None], smallest / total)


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


def _mixture(predictions: Predictions, weights: Array) -> Mixture:
    means = predictions.means
    spread = expand_outputs(predictions.variances, means) + (means - _averaged(weights, means)[:, None]) ** 2
    return Mixture(predictions, weights, _averaged(weights, spread))


def _averaged(weights: Array, values: Array) -> Array:
    """Over the models, with `weights` (n, k) of `values` (n, k) or (n, k, outputs)."""
    return (expand_outputs(weights, values) * values).sum(axis=1)


def _combined(query: Query, rule: PredictionRule) -> Mixture:
    """The result of the rule, checked."""
    mixture, X = rule.combine(query), query.X
    weights, variance = np.asarray(mixture.weights), np.asarray(mixture.variance)
    members, of_all = mixture.predictions.members, X.shape[:1]
    if weights.shape != members.shape or variance.shape not in {of_all, of_all + mixture.predictions.means.shape[2:]}:
        raise ValueError(
            f"the prediction rule {rule!r} gave weights of shape {weights.shape} and a variance of shape "
            f"{variance.shape}; they must be {members.shape} and {of_all}"
        )
    if not (np.allclose(weights.sum(axis=1), 1.0) and (variance >= 0).all()):
        raise ValueError(
            f"the weights of the prediction rule {rule!r} must sum to 1, and its variance must not be negative"
        )
    return mixture


def predict(ensemble: Ensemble, rule: PredictionRule, X: Array) -> Answers:
    """Answers at `X` (n, d): mean, variance and noise in one shape, owners are the models with the largest weights."""
    pieces = [X[first : first + _PIECE] for first in range(0, len(X), _PIECE)]
    mixtures = [_combined(Query(ensemble, piece), rule) for piece in pieces]
    answers = [(mixture.mean, mixture.variance, mixture.noise, mixture.owners) for mixture in mixtures]
    mean, variance, noise, owners = map(np.concatenate, zip(*answers, strict=True))
    return Answers(mean, _of_each_output(variance, mean), _of_each_output(noise, mean), owners)


def _of_each_output(values: Array, mean: Array) -> Array:
    """Values (n,) that all outputs share, in the shape of the mean."""
    return np.broadcast_to(expand_outputs(values, mean), mean.shape)


def joint_covariance(ensemble: Ensemble, rule: PredictionRule, X: Array) -> Array:
    """The covariance of the field at all of `X` (n, d): (n, n) or (n, n, outputs).

    Models are independent, so that two queries covary through the models that they share. The correlations are those of
    the weighted average, the variances those of the rule.
    """
    mixture = _combined(Query(ensemble, X), rule)
    covariance = np.zeros((len(X), len(X)))
    for number, own in _by_model(mixture.predictions.members):
        weights, rows = mixture.weights.ravel()[own], own // mixture.weights.shape[1]
        shared = ensemble.models[number].posterior(X[rows]).covariance
        covariance[np.ix_(rows, rows)] += weights[:, None] * weights * shared
    return with_variances(covariance, _of_each_output(mixture.variance, mixture.mean))


def with_variances(covariance: Array, variances: Array) -> Array:
    """The covariance (n, n) with the same correlations and these variances (n,); (n, n, k) for variances (n, k)."""
    diagonal, scaled = covariance.diagonal(), np.empty((*covariance.shape, n_outputs(variances)))
    for place, variance in enumerate(columns(variances).T):
        scale = np.sqrt(np.divide(variance, diagonal, out=np.zeros(len(variance)), where=diagonal > 0))
        scaled[..., place] = covariance * (scale[:, None] * scale)
        np.fill_diagonal(scaled[..., place], variance)
    return scaled.reshape(covariance.shape + variances.shape[1:])
