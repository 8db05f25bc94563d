"""One step of the ensemble: a batch is tried, assigned and learned, and what agrees too well is merged."""

from dataclasses import replace
from time import perf_counter
from typing import Any

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation, SplittingRule
from wgpr.ensemble.merging import within
from wgpr.ensemble.records import StepRecord
from wgpr.ensemble.workers import Workers
from wgpr.gp.linalg import Array
from wgpr.gp.model import Learner


def step(
    ensemble: Ensemble,
    X: Array,
    y: Array,
    *,
    learner: Learner[Any],
    rule: SplittingRule,
    n_candidates: int,
    seed: int,
    number: int,
    target_unit: float = 1.0,
    max_models: int | None = None,
    is_thorough: bool = True,
    workers: Workers | None = None,
) -> tuple[Ensemble, StepRecord]:
    """Learn one batch `X` (n, d), `y` (n,): the ensemble after it, and what happened. Parameters as of `BatchEvaluation`, and

    max_models : that there may be afterwards; None for no limit.
    """
    started = perf_counter()
    trial = BatchEvaluation(
        ensemble,
        learner,
        X,
        y,
        n_candidates=n_candidates,
        seed=seed,
        number=number,
        target_unit=target_unit,
        is_full=max_models is not None and len(ensemble) >= max_models,
        is_thorough=is_thorough,
        workers=workers,
    )
    ensemble, changes = trial.apply(rule.assign(trial))
    ensemble, merged = within(ensemble, learner, max_models)
    return ensemble, replace(trial.record(changes, perf_counter() - started), merged=merged)
