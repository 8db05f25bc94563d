"""One step of the algorithm (docs/method.md, 4): an ensemble absorbs a batch.

1. Evaluate: each candidate model is updated by the batch, and a new model is fitted to the batch alone.
2. Decide: the splitting rule assigns the rows to updated models, or to a new one.
3. Apply: the ensemble with those models.
4. Merge: while there are too many models, the two that agree best become one.
"""

from contextlib import suppress
from operator import itemgetter
from time import perf_counter
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation, SplittingRule, StepRecord
from wgpr.gp.gaussian import squared_wasserstein
from wgpr.gp.model import Learner, LocalModel

# Pairs of models whose merging is tried: those that are closest together in length-scales.
_N_PAIRS = 6

Pair = tuple[int, int]


def absorb(
    evaluation: BatchEvaluation, rule: SplittingRule, max_models: int | None = None
) -> tuple[Ensemble, StepRecord]:
    """Learn the batch of an evaluation: the ensemble after it, and the record of the step.

    max_models : limit on the number of models, None for no limit.
    """
    started = perf_counter()
    ensemble, changes = evaluation.apply(rule.assign(evaluation))
    ensemble, merged = merge_down(ensemble, evaluation.learner, max_models)
    return ensemble, evaluation.record(changes, perf_counter() - started, merged)


def merge_down(ensemble: Ensemble, learner: Learner[Any], max_models: int | None) -> tuple[Ensemble, tuple[Pair, ...]]:
    """The ensemble with at most `max_models`, and the pairs that were merged, by the numbers they had then."""
    merged: list[Pair] = []
    while max_models is not None and len(ensemble) > max_models:
        found = _best_merger(ensemble, learner)
        if found is None:
            break  # no pair can be merged: keep all, and try again after the next batch
        ensemble = ensemble.with_merged(*found)
        merged.append(found[0])
    return ensemble, tuple(merged)


def _best_merger(ensemble: Ensemble, learner: Learner[Any]) -> tuple[Pair, LocalModel] | None:
    """The pair that agrees best, and its merged model; None if no pair can be merged.

    The cost of a merger is the squared Wasserstein distance by which predictions move, of each of the two at its own
    pseudo-inputs: the distance of the splitting rule.
    """
    found: list[tuple[float, Pair, LocalModel]] = []
    for pair in _close_pairs(ensemble):
        first, second = (ensemble.models[number] for number in pair)
        with suppress(ArithmeticError):
            # The hyperparameters are those of the model that has seen more.
            model = learner.merge(first, second) if first.n_seen >= second.n_seen else learner.merge(second, first)
            cost = sum(
                squared_wasserstein(old.posterior(old.inputs), model.posterior(old.inputs)) for old in (first, second)
            )
            found.append((cost, pair, model))
    return min(found, key=itemgetter(0))[1:] if found else None


def _close_pairs(ensemble: Ensemble) -> list[Pair]:
    scaled = ensemble.input_means / np.exp(np.log(ensemble.lengthscales).mean(axis=0))
    distances, others = KDTree(scaled).query(scaled, k=2)
    is_self = others[:, 0] == np.arange(len(scaled))  # not so where two are at the same place
    distances = np.where(is_self, distances[:, 1], distances[:, 0])
    others = np.where(is_self, others[:, 1], others[:, 0])
    order = np.argsort(distances, kind="stable")
    pairs = dict.fromkeys((min(a, b), max(a, b)) for a, b in zip(order.tolist(), others[order].tolist(), strict=True))
    return list(pairs)[:_N_PAIRS]
