"""Fits as jobs: run over several cores, longest first, and each result is written at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from reproduction.plan import Plan
from reproduction.results import Key, Results

Work = Callable[..., dict[str, Any]]

# Seconds for a thousand rows, and thousands of rows in a stream, roughly.
_SECONDS = {"SOLAR": 0.7, "OVFE": 0.2, "LGPR": 0.5, "exact GP": 2.0, "interpolation": 0.1}
_THOUSANDS = {"opinicon": 14.4, "tzibana": 5.1, "sarcos": 3.2, "kin40k": 10.0, "abalone": 3.3, "pumadyn": 6.6}


@dataclass(frozen=True)
class Job:
    """One fit of a study.

    key : tells it from others; with `folder` and `plan`, these are the arguments of `work`.
    cost : a guess, in seconds; only the ratios matter.
    from_results : more arguments, each computed from the results of the jobs that need none; those run first.
    """

    study: str
    key: Key
    work: Work
    cost: float
    from_results: Mapping[str, Callable[[Results], Any]] = field(default_factory=dict)


class Failure(NamedTuple):
    """A job that could not be done, and why."""

    job: Job
    reason: str


def cost_of(dataset: str, method: str, plan: Plan) -> float:
    """Seconds of a fit, roughly."""
    return min(_THOUSANDS.get(dataset, 3.0), (plan.max_rows or inf) / 1000) * _SECONDS.get(method, 1.3)


def run(
    jobs: Sequence[Job],
    results: Results,
    *,
    folder: Path | None,
    n_jobs: int,
    progress: Callable[[Job], None] = lambda job: None,
) -> list[Failure]:
    """Run the jobs that have no result yet. A job that fails does not stop the others, and is tried again next time."""
    failures = []
    for is_second in (False, True):
        in_turn = [job for job in jobs if bool(job.from_results) == is_second]
        missing = [job for job in in_turn if (job.study, job.key) not in results]
        missing.sort(key=lambda job: -job.cost)
        for job, values in _values(missing, results, folder, n_jobs):
            if isinstance(values, str):
                failures.append(Failure(job, values))
            else:
                results.add(job.study, job.key, values)
            progress(job)
    return failures


def _values(
    jobs: Sequence[Job], results: Results, folder: Path | None, n_jobs: int
) -> Iterable[tuple[Job, dict[str, Any] | str]]:
    """The values of each job as they come, in any order; a text is the reason of a failure."""
    calls, shared = [], {"folder": folder, "plan": results.plan}
    for number, job in enumerate(jobs):
        try:
            more = {name: value(results) for name, value in job.from_results.items()}
        except (LookupError, ValueError, ArithmeticError) as error:  # a job that it needs has failed
            yield job, _reason(error)
        else:
            calls.append(delayed(_call)(number, job.work, {**shared, **job.key, **more}))
    workers = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="2 * n_jobs")
    for number, values in workers(calls):
        yield jobs[number], values


def _call(number: int, work: Work, arguments: dict[str, Any]) -> tuple[int, dict[str, Any] | str]:
    """One BLAS thread: several are slower on small matrices, and jobs share the cores."""
    try:
        with threadpool_limits(1, user_api="blas"):
            return number, work(**arguments)
    except Exception as error:  # the other jobs can be done, whatever it is
        return number, _reason(error)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def progress_bar(jobs: Sequence[Job], results: Results, **settings: Any) -> Iterator[Callable[[Job], None]]:
    """A line with the time left by the cost of what is left, the fits done, and the study of the latest fit.

    settings : of `rich.progress.Progress`.
    """
    missing = [job for job in jobs if (job.study, job.key) not in results]
    n_done = count(len(jobs) - len(missing))
    columns = BarColumn(24), TimeRemainingColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, speed_estimate_period=3600, **settings) as progress:
        task = progress.add_task(f"{next(n_done):,}/{len(jobs):,} fits", total=sum(job.cost for job in missing))
        progress.advance(task, 0)  # the time of the first fit counts

        def advance(job: Job) -> None:
            progress.update(task, advance=job.cost, description=f"{next(n_done):,}/{len(jobs):,} fits  {job.study}")

        yield advance
