"""Pieces of work, and how they are done: over several cores, longest first, each result written down at once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed

from reproduction.journal import Journal, Key
from reproduction.plan import Plan

Work = Callable[..., dict[str, Any]]


def _nothing(journal: Journal) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Job:
    """One piece of work of a study.

    key : tells it from others; with `folder` and `plan` these are the arguments of `work`.
    given : more arguments, from what the earlier rounds have found.
    round : jobs of a round need the results of those before it.
    cost : a guess, in seconds; only the ratios matter.
    """

    study: str
    key: Key
    work: Work
    cost: float
    given: Callable[[Journal], dict[str, Any]] = field(default=_nothing)
    round: int = 0


class Failure(NamedTuple):
    """A job that could not be done, and why."""

    job: Job
    reason: str


def run(
    jobs: Sequence[Job],
    journal: Journal,
    *,
    folder: Path | None,
    plan: Plan,
    n_jobs: int,
    progress: Callable[[Job], None] = lambda job: None,
) -> list[Failure]:
    """Do what is not done yet. A job that fails does not stop the others; it is tried again the next time."""
    failures = []
    for number in sorted({job.round for job in jobs}):
        todo = [job for job in jobs if job.round == number and (job.study, job.key) not in journal]
        todo.sort(key=lambda job: -job.cost)
        for job, result in _results(todo, journal, folder, plan, n_jobs):
            if isinstance(result, str):
                failures.append(Failure(job, result))
            else:
                journal.add(job.study, job.key, result)
            progress(job)
    return failures


def _results(
    jobs: Sequence[Job], journal: Journal, folder: Path | None, plan: Plan, n_jobs: int
) -> Iterable[tuple[Job, dict[str, Any] | str]]:
    """As they come, in whatever order; a text is the reason of a failure."""
    calls = []
    for number, job in enumerate(jobs):
        try:
            given = job.given(journal)
        except (LookupError, ValueError, ArithmeticError) as error:  # what it needs has failed
            yield job, _reason(error)
        else:
            calls.append(delayed(_done)(number, job.work, {**job.key, **given, "folder": folder, "plan": plan}))
    workers = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2 * n_jobs")
    for number, result in workers(calls):
        yield jobs[number], result


def _done(number: int, work: Work, arguments: dict[str, Any]) -> tuple[int, dict[str, Any] | str]:
    try:
        return number, work(**arguments)
    except Exception as error:  # whatever it is, the other jobs can be done
        return number, _reason(error)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
