"""The methods table: every method at its best setting, on every data set, and two references beside them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from reproduction.contestants import CONTESTANTS, Settings
from reproduction.jobs import Job
from reproduction.learning import Answer, exact_gp, interpolated, judge, learn
from reproduction.plan import Plan
from reproduction.protocol import Course, prepare
from reproduction.search import given_settings, guess
from wgpr.gp.linalg import Array
from wgpr.metrics import scores

TABLES = "tables"
EXACT, INTERPOLATION = "exact GP", "interpolation"
_GLANCES = 25


def jobs(plan: Plan, courses: Sequence[str]) -> list[Job]:
    """The final fits, once the search is over, and the references."""
    return [
        job
        for course in courses
        for trial in range(plan.n_trials)
        for job in (*_finals(plan, course, trial), *_references(plan, course, trial))
    ]


def _finals(plan: Plan, course: str, trial: int) -> list[Job]:
    return [
        Job(
            TABLES,
            {"course": course, "method": method, "trial": trial},
            final,
            cost=guess(course, method, plan),
            given=partial(given_settings, course=course, method=method, trial=trial),
            round=1,
        )
        for method in CONTESTANTS
    ]


def _references(plan: Plan, course: str, trial: int) -> list[Job]:
    works = {EXACT: with_exact_gp, INTERPOLATION: with_interpolation}
    costs = {EXACT: 2 * guess(course, EXACT, plan), INTERPOLATION: 0.5}
    return [
        Job(TABLES, {"course": course, "method": method, "trial": trial}, work, cost=costs[method])
        for method, work in works.items()
    ]


def final(course: str, method: str, trial: int, settings: Settings, folder: Path | None, plan: Plan) -> Answer:
    """Learn the training stream with the chosen settings, then judge."""
    prepared = prepare(course, trial, folder, plan)
    stream = prepared.stream
    model = CONTESTANTS[method].make(settings, stream.y, trial)
    learned = learn(model, stream, n_glances=_GLANCES if stream.is_stream else 0)
    return {"settings": settings, **learned, **_judged(prepared, partial(judge, model))}


def with_exact_gp(course: str, method: str, trial: int, folder: Path | None, plan: Plan) -> Answer:
    """An exact Gaussian process that has all rows at once, or as many as fit."""
    prepared = prepare(course, trial, folder, plan)
    model, learned = exact_gp(prepared.stream, trial)
    return {**learned, **_judged(prepared, partial(judge, model))}


def with_interpolation(course: str, method: str, trial: int, folder: Path | None, plan: Plan) -> Answer:
    """What needs no model."""
    prepared = prepare(course, trial, folder, plan)
    model, learned = interpolated(prepared.stream)
    return {**learned, **_judged(prepared, lambda X, y: scores(y, model.at(X))._asdict())}


def _judged(course: Course, judgement: Callable[[Array, Array], Answer]) -> Answer:
    """On what was held out as a whole, and on single rows; and how many rows there were of each."""
    stream = course.stream
    return {
        "test": judgement(stream.X_test, stream.y_test),
        "near": judgement(course.X_near, course.y_near) if len(course.y_near) else None,
        "n_rows": len(stream.y),
        "n_test": len(stream.y_test),
        "n_near": len(course.y_near),
    }
