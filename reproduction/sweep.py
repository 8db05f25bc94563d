"""The number of models against the error and the speed: from one model for each batch to one for all.

On kin40k, as in the figure of the paper, and on Pumadyn, of which it gives the numbers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduction.contestants import CONTESTANTS
from reproduction.jobs import Job
from reproduction.learning import judge, learn
from reproduction.plan import Plan
from reproduction.protocol import prepare
from reproduction.search import guess

SWEEP, COURSES = "sweep", ("kin40k", "pumadyn")
_NAMES = {"WGPR": "relative_threshold", "SOLAR": "w_gen"}


def jobs(plan: Plan, courses: Sequence[str]) -> list[Job]:
    """Every threshold of each method."""
    values = {"WGPR": plan.relative_thresholds, "SOLAR": plan.w_gens}
    return [
        Job(
            SWEEP,
            {"course": course, "method": method, "value": value, "trial": trial},
            try_value,
            cost=guess(course, method, plan),
        )
        for course in COURSES
        if course in courses
        for method in values
        for value in values[method]
        for trial in range(plan.n_sweep_trials)
    ]


def try_value(course: str, method: str, value: float, trial: int, folder: Path | None, plan: Plan) -> dict[str, Any]:
    """One fit at the paper's settings."""
    stream = prepare(course, trial, folder, plan).stream
    model = CONTESTANTS[method].make({"kernel": "se", _NAMES[method]: value}, stream.y, trial)
    learned = learn(model, stream)
    return {**learned, "n_rows": len(stream.y), "test": judge(model, stream.X_test, stream.y_test)}
