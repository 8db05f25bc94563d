"""What each element contributes: who splits, who answers, what an update learns, and how many models are tried.

All with the squared exponential, M = 50 and batches of 100. The thresholds are those that the search found best, of the
finite ones, with the rule of the method that they belong to.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reproduction import toy
from reproduction.contestants import Settings, make_wgpr
from reproduction.jobs import Job
from reproduction.journal import Journal
from reproduction.learning import judge, learn
from reproduction.plan import TOY, Plan
from reproduction.protocol import prepare
from reproduction.search import chosen_value, guess
from wgpr.estimators.regressors import PREDICTION_RULES, WGPRegressor
from wgpr.rules.splitting import KernelDistance

ABLATION, CANDIDATES = "ablation", "candidates"
# Those for models that know nothing of each other, as the published ones.
RULES = tuple(rule for rule in PREDICTION_RULES if rule != "joined")
SPLITTING = ("wasserstein", "evidence", "distance", "always", "never")
UPDATES = ("learned", "frozen")
COURSES = (TOY, "tzibana", "sarcos", "kin40k")


def jobs(plan: Plan, courses: Sequence[str]) -> list[Job]:
    """A fit for each way to split and to update, read by all prediction rules; and for each number of candidates."""
    return [
        job
        for course in COURSES
        if course in (TOY, *courses)
        for trial in range(plan.n_ablation_trials)
        for job in (*_of_elements(plan, course, trial), *_of_candidates(plan, course, trial))
    ]


def _of_elements(plan: Plan, course: str, trial: int) -> list[Job]:
    return [
        Job(
            ABLATION,
            {"course": course, "splitting": splitting, "update": update, "trial": trial},
            without,
            cost=guess(course, "WGPR", plan) * (1.0 if splitting in ("wasserstein", "evidence") else 0.4),
            given=partial(_given_thresholds, course=course, trial=trial, plan=plan),
            round=1,
        )
        for splitting in SPLITTING
        for update in UPDATES
    ]


def _of_candidates(plan: Plan, course: str, trial: int) -> list[Job]:
    return [
        Job(
            CANDIDATES,
            {"course": course, "n_candidates": n_candidates, "trial": trial},
            with_candidates,
            cost=guess(course, "WGPR", plan) * (0.3 + 0.15 * min(n_candidates, 20)),
            given=partial(_given_threshold, course=course, trial=trial, plan=plan),
            round=1,
        )
        for n_candidates in plan.n_candidates
    ]


def _given_thresholds(journal: Journal, course: str, trial: int, plan: Plan) -> dict[str, Any]:
    return {
        **_given_threshold(journal, course, trial, plan),
        "w_gen": toy.chosen_value(journal, "SOLAR", plan, finite=True)
        if course == TOY
        else chosen_value(journal, course, "SOLAR", trial, "w_gen"),
    }


def _given_threshold(journal: Journal, course: str, trial: int, plan: Plan) -> dict[str, Any]:
    """The best finite threshold: of the toy, that of its own study."""
    if course == TOY:
        return {"threshold": {"threshold": toy.chosen_value(journal, "WGPR", plan, finite=True)}}
    value = chosen_value(journal, course, "WGPR", trial, "relative_threshold")
    return {"threshold": {"relative_threshold": value}}


def without(
    course: str,
    splitting: str,
    update: str,
    trial: int,
    threshold: Settings,
    w_gen: float,
    folder: Path | None,
    plan: Plan,
) -> dict[str, Any]:
    """One fit with some elements exchanged, read by every prediction rule."""
    rule = KernelDistance(w_gen) if splitting == "distance" else splitting
    elements = {"splitting": rule, "learn_hyperparameters": update == "learned"}
    settings = {"kernel": "se", **threshold}
    answer = _read_by_all(course, trial, settings | elements, folder, plan)
    return {**answer, "settings": {**settings, "w_gen": w_gen}}


def with_candidates(
    course: str, n_candidates: int, trial: int, threshold: Settings, folder: Path | None, plan: Plan
) -> dict[str, Any]:
    """One fit with another number of models asked for each batch."""
    settings = {"kernel": "se", **threshold, "n_candidates": n_candidates}
    return {**_read_by_all(course, trial, settings, folder, plan), "settings": settings}


def _read_by_all(course: str, trial: int, settings: dict[str, Any], folder: Path | None, plan: Plan) -> dict[str, Any]:
    stream = prepare(course, trial, folder, plan).stream
    model: WGPRegressor = make_wgpr(settings, stream.y, trial)
    learned = learn(model, stream)
    rules = {rule: judge(model.set_params(prediction=rule), stream.X_test, stream.y_test) for rule in RULES}
    return {**learned, "rules": rules}
