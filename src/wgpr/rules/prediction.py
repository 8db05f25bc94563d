"""Prediction rules: who answers a query, and how several answers become one. Any object with `combine` will do.

| rule | the answer is |
|---|---|
| `Nearest()` | that of the model that owns the nearest pseudo-input, alone (WGPR) |
| `Weighted()` | a mixture weighted by closeness in input space (LGPR) |
| `BestFew(3)` | a mixture of the few best, by closeness over variance (SOLAR GP) |
| `Barycenter(3)` | the Wasserstein barycenter of the few nearest models |
| `RobustBCM(3)` | the nearest model, sharpened by neighbours that know more |
| `Joined(3)` | that of the nearest models, each joined with its neighbours, without a jump in between (WGPR's own) |

Every rule is an average of the models' means, with weights of its own and a variance that goes with them. One of
your own:

    class MostCertain:
        def combine(self, query):
            predictions = query.ask(query.nearest(3))         # members, means, variances and noise, (n, 3) each
            best = predictions.of(predictions.variances.argmin(axis=1)[:, None])
            return Mixture(best, weights=np.ones_like(best.variances), variance=best.variances[:, 0])

`query.X`, means and variances are in the ensemble's units (an estimator's `units_`); the answer is turned into the
user's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from wgpr.checks import require_count
from wgpr.ensemble.ensemble import Ensemble, log_closeness
from wgpr.gp.gaussian import Gaussian
from wgpr.gp.linalg import Array, Indices, columns, expand_outputs
from wgpr.gp.model import LocalModel

# Queries are answered in pieces, so that memory does not grow with their number.
_PIECE = 16_384

# How fast the weight of a model fades with its distance, and what part of the largest weight is next to nothing.
_STEEPNESS = 8
_NEGLIGIBLE = 1e-3


class Predictions(NamedTuple):
    """The answers of some models to n queries, k models each.

    members : (n, k) numbers of the models; means, variances : (n, k) of the field; noise : (n, k) its variance.
    Several outputs share all but the means, which are (n, k, outputs).
    """

    members: Indices
    means: Array
    variances: Array
    noise: Array

    def of(self, places: Indices) -> "Predictions":
        """Only those at `places` (n, k') of each row."""
        return Predictions._make(np.take_along_axis(part, expand_outputs(places, part), axis=1) for part in self)


class Mixture(NamedTuple):
    """Predictions made one: `weights` (n, k) that sum to one over k, and the `variance` (n,) of the field.

    Of several outputs the variance may be (n, outputs).
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
    """Decides who answers, and makes one answer of several."""

    def combine(self, query: "Query") -> Mixture: ...


class Query:
    """The ensemble, ready to be asked about the queries `X` (n, d)."""

    def __init__(self, ensemble: Ensemble, X: Array) -> None:
        self.ensemble, self.X = ensemble, X
        self.answering: Callable[[int], LocalModel] = ensemble.models.__getitem__  # who answers for model number ...

    def nearest(self, n_models: int) -> Indices:
        """(n, k) numbers of the models that own the nearest pseudo-inputs, nearest first; k <= n_models."""
        return self.ensemble.index.owners(self.X, min(n_models, len(self.ensemble)))

    def nearest_with_distances(self, n_models: int) -> tuple[Indices, Array]:
        """As `nearest`, and (n, k) how far away their nearest pseudo-inputs are."""
        return self.ensemble.index.nearest(self.X, min(n_models, len(self.ensemble)))

    def log_closeness(self) -> Array:
        """(n, J): `-1/2 |(x - centre) / lengthscales|^2` to every model."""
        return log_closeness(self.X, self.ensemble.centres, self.ensemble.lengthscales)

    def ask(self, members: Indices, is_asked: NDArray[np.bool_] | None = None) -> Predictions:
        """What models `members` (n, k) answer, each to its own queries.

        is_asked : (n, k), at least one of each row; by default all. Those that are not say zero, with variance and
            noise of one, and must not be listened to.
        """
        parts: list[Array] = []
        for number, own in _by_model(members, is_asked):
            model = self.answering(number)
            answer = (*model.predict(self.X[own // members.shape[1]]), np.full(len(own), model.theta.noise**2))
            if not parts:
                n_outputs = answer[0].shape[1:]
                parts = [np.zeros((members.size, *n_outputs)), np.ones(members.size), np.ones(members.size)]
            for part, values in zip(parts, answer, strict=True):
                part[own] = values
        return Predictions(members, *(part.reshape(members.shape + part.shape[1:]) for part in parts))


def _by_model(members: Indices, is_asked: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, Indices]]:
    """For each model in `members` (n, k) that is asked: its number, and where it stands in `members.ravel()`."""
    flat = members.ravel()
    places = np.arange(len(flat)) if is_asked is None else np.flatnonzero(is_asked)
    order = places[np.argsort(flat[places], kind="stable")]
    numbers, firsts = np.unique(flat[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)


@dataclass(frozen=True)
class Nearest:
    """The model that owns the nearest pseudo-input answers alone: one search and one small solve a query."""

    def combine(self, query: Query) -> Mixture:
        predictions = query.ask(query.nearest(1))
        return Mixture(predictions, np.ones_like(predictions.variances), predictions.variances[:, 0])


@dataclass(frozen=True)
class Weighted:
    """The closest models, weighted by `w`, as a mixture: where they disagree, the variance says so.

    n_models : how many at the most; the weights of those further away are next to nothing.
    """

    n_models: int = 10

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, query: Query) -> Mixture:
        log_w = query.log_closeness()
        members = _largest(log_w, self.n_models)
        predictions = query.ask(members)
        return _mixture(predictions, _normalised(np.take_along_axis(log_w, members, axis=1)))


@dataclass(frozen=True)
class BestFew:
    """The models with the largest `w / variance`, weighted by it, as a mixture.

    n_models : how many; they are found among the three times as many that are closest.
    """

    n_models: int = 3

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, query: Query) -> Mixture:
        log_w = query.log_closeness()
        predictions = query.ask(_largest(log_w, 3 * self.n_models))
        observed = predictions.variances + predictions.noise
        log_weights = np.take_along_axis(log_w, predictions.members, axis=1) - np.log(observed)
        best = _largest(log_weights, self.n_models)
        return _mixture(predictions.of(best), _normalised(np.take_along_axis(log_weights, best, axis=1)))


@dataclass(frozen=True)
class Barycenter:
    """The Wasserstein barycenter of the nearest models: in one dimension, means and standard deviations average."""

    n_models: int = 3

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)

    def combine(self, query: Query) -> Mixture:
        predictions = query.ask(query.nearest(self.n_models))
        weights = np.full(predictions.members.shape, 1.0 / predictions.members.shape[1])
        return Mixture(predictions, weights, (weights * np.sqrt(predictions.variances)).sum(axis=1) ** 2)


@dataclass(frozen=True)
class Joined:
    """The nearest models, each joined with what its neighbours know, as a mixture without jumps.

    A model and those neighbours that agree with it are one Gaussian process with all their observations, so that there
    is next to no border between them. What border is left is crossed continuously, and quickly, because models that do
    not agree know nothing of each other's worlds; who is less certain counts less. Where they disagree, the variance
    says so.

    n_models : that answer, at the most; n_observations : that a joined model may have, which is what it costs.
    """

    n_models: int = 3
    n_observations: int = 1000

    def __post_init__(self) -> None:
        require_count("n_models", self.n_models)
        require_count("n_observations", self.n_observations)

    def combine(self, query: Query) -> Mixture:
        members, distances = query.nearest_with_distances(self.n_models + 1)
        is_last_one_out = members.shape[1] > self.n_models
        reach = distances[:, -1:] if is_last_one_out else 2.0 * distances[:, -1:]
        query.answering = lambda number: query.ensemble.joint_model(number, self.n_observations)
        closeness = _without_negligible(_fading(distances[:, : self.n_models], reach))
        predictions = query.ask(members[:, : self.n_models], closeness > 0.0)
        weights = closeness / (predictions.variances + predictions.noise)
        return _mixture(predictions, weights / weights.sum(axis=1, keepdims=True))


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


def _without_negligible(weights: Array) -> Array:
    """Weights (n, k), those that are next to nothing beside the largest of their row made nothing, without a jump."""
    return np.maximum(weights - _NEGLIGIBLE * weights.max(axis=1, keepdims=True), 0.0)


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


def _fading(distances: Array, reach: Array) -> Array:
    """Weights (n, k) of models by `distances` (n, k), nearest first: `(1 - D / R)^2 / D^8`, so that they sum to one.

    They are continuous, none from the `reach` R (n, 1) on, which is the distance of the first that has none.
    """
    room = np.divide(distances, reach, out=np.zeros_like(distances), where=reach > 0)
    room = np.maximum(1.0 - room, 0.0) ** 2
    ratio = np.divide(distances[:, :1], distances, out=np.ones_like(distances), where=distances > 0)
    weights = room * ratio**_STEEPNESS
    total = weights.sum(axis=1, keepdims=True)
    weights[total[:, 0] == 0, 0] = 1.0  # all are equally far away, with the first that has no weight
    return weights / weights.sum(axis=1, keepdims=True)


def _mixture(predictions: Predictions, weights: Array) -> Mixture:
    means = predictions.means
    spread = expand_outputs(predictions.variances, means) + (means - _averaged(weights, means)[:, None]) ** 2
    return Mixture(predictions, weights, _averaged(weights, spread))


def _averaged(weights: Array, values: Array) -> Array:
    """Over the models, with `weights` (n, k) of `values` (n, k) or (n, k, outputs)."""
    return (expand_outputs(weights, values) * values).sum(axis=1)


def _combined(query: Query, rule: PredictionRule) -> Mixture:
    """What the rule makes of the query's queries, if it makes sense."""
    mixture, X = rule.combine(query), query.X
    weights, variance = np.asarray(mixture.weights), np.asarray(mixture.variance)
    members, of_all, of_each = (
        mixture.predictions.members,
        X.shape[:1],
        X.shape[:1] + mixture.predictions.means.shape[2:],
    )
    if weights.shape != members.shape or variance.shape not in {of_all, of_each}:
        raise ValueError(
            f"the prediction rule {rule!r} gave weights of shape {weights.shape} and a variance of shape "
            f"{variance.shape}; they must be {members.shape} and {of_all}"
        )
    if not (np.allclose(weights.sum(axis=1), 1.0) and (variance >= 0).all()):
        raise ValueError(
            f"the weights of the prediction rule {rule!r} must sum to 1, and its variance must not be negative"
        )
    return mixture


def predict(ensemble: Ensemble, rule: PredictionRule, X: Array) -> tuple[Array, Array, Array]:
    """Mean, variance of the field and variance of the noise, (n,) or (n, outputs) each, at `X` (n, d)."""
    mean, variance, noise, _ = predict_with_owners(ensemble, rule, X)
    return mean, variance, noise


def predict_with_owners(ensemble: Ensemble, rule: PredictionRule, X: Array) -> tuple[Array, Array, Array, Indices]:
    """As `predict`, and the model (n,) with the largest weight in each answer."""
    pieces = [X[first : first + _PIECE] for first in range(0, len(X), _PIECE)]
    mixtures = [_combined(Query(ensemble, piece), rule) for piece in pieces]
    mean, variance, noise, owners = (
        np.concatenate(parts)
        for parts in zip(
            *((mixture.mean, mixture.variance, mixture.noise, mixture.owners) for mixture in mixtures), strict=True
        )
    )
    return mean, _of_each_output(variance, mean), _of_each_output(noise, mean), owners


def _of_each_output(values: Array, mean: Array) -> Array:
    """What all outputs may share, (n,), in the shape of the mean."""
    return np.broadcast_to(expand_outputs(values, mean), mean.shape)


def predict_jointly(ensemble: Ensemble, rule: PredictionRule, X: Array) -> tuple[Gaussian, Array]:
    """The field at all of `X` (n, d) with its covariance, (n, n) or (n, n, outputs), and the noise's variance (n,).

    Models know nothing of each other: they are independent, and two queries covary through the models that they share.
    The correlations are those of the weighted average, the variances are the rule's own.
    """
    query = Query(ensemble, X)
    mixture = _combined(query, rule)
    covariance = np.zeros((len(X), len(X)))
    for number, own in _by_model(mixture.predictions.members):
        weights, rows = mixture.weights.ravel()[own], own // mixture.weights.shape[1]
        shared = query.answering(number).posterior(X[rows]).covariance
        covariance[np.ix_(rows, rows)] += weights[:, None] * weights * shared
    mean = mixture.mean
    variances = columns(_of_each_output(mixture.variance, mean)).T
    covariances = np.stack([_with_variance(covariance, variance) for variance in variances], axis=-1)
    return Gaussian(mean, covariances.reshape(covariance.shape + mean.shape[1:])), mixture.noise


def _with_variance(covariance: Array, variance: Array) -> Array:
    """The covariance (n, n) with the same correlations and these variances (n,)."""
    diagonal = covariance.diagonal()
    scale = np.sqrt(np.divide(variance, diagonal, out=np.zeros(len(variance)), where=diagonal > 0))
    scaled = covariance * (scale[:, None] * scale)
    np.fill_diagonal(scaled, variance)
    return scaled


def answering_model(ensemble: Ensemble, rule: PredictionRule, X: Array) -> Indices:
    """The model with the largest weight in the answer at each row of `X` (n, d)."""
    return predict_with_owners(ensemble, rule, X)[-1]
