"""Two models that agree become one, so that an endless stream has an end in memory.

Merging costs what it makes the two forget: the squared Wasserstein distance that their predictions move by, each at its
own pseudo-inputs. It is the distance that decides whether a batch starts a model, asked the other way round.
"""

from contextlib import suppress
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.gaussian import squared_wasserstein
from wgpr.gp.model import Learner, LocalModel

# Pairs of models that are tried, those that are closest together for their length-scales.
_N_PAIRS = 6

Pair = tuple[int, int]


def within(ensemble: Ensemble, learner: Learner[Any], max_models: int | None) -> tuple[Ensemble, tuple[Pair, ...]]:
    """The ensemble with at most `max_models`, and the pairs that were merged, by the numbers they had then."""
    merged: list[Pair] = []
    while max_models is not None and len(ensemble) > max_models:
        found = _cheapest(ensemble, learner)
        if found is None:
            break  # nothing that was learned is thrown away; perhaps after the next batch
        ensemble = ensemble.merged(*found)
        merged.append(found[0])
    return ensemble, tuple(merged)


def _cheapest(ensemble: Ensemble, learner: Learner[Any]) -> tuple[Pair, LocalModel] | None:
    """The pair whose predictions would move least, and the model that it would be; None if no pair can be merged."""
    costs: dict[Pair, float] = {}
    models: dict[Pair, LocalModel] = {}
    for pair in _close_pairs(ensemble):
        first, second = (ensemble.models[number] for number in pair)
        with suppress(ArithmeticError):
            # the one that has seen less is data for the other
            model = learner.merged(first, second) if first.n_seen >= second.n_seen else learner.merged(second, first)
            costs[pair] = sum(
                squared_wasserstein(old.posterior(old.inputs), model.posterior(old.inputs)) for old in (first, second)
            )
            models[pair] = model
    best = min(models, key=lambda pair: costs[pair], default=None)
    return None if best is None else (best, models[best])


def _close_pairs(ensemble: Ensemble) -> list[Pair]:
    scaled = ensemble.input_means / np.exp(np.log(ensemble.lengthscales).mean(axis=0))
    distances, others = KDTree(scaled).query(scaled, k=2)
    is_self = others[:, 0] == np.arange(len(scaled))  # not so where two are at the same place
    distances = np.where(is_self, distances[:, 1], distances[:, 0])
    others = np.where(is_self, others[:, 1], others[:, 0])
    order = np.argsort(distances, kind="stable")
    pairs = dict.fromkeys((min(a, b), max(a, b)) for a, b in zip(order.tolist(), others[order].tolist(), strict=True))
    return list(pairs)[:_N_PAIRS]
