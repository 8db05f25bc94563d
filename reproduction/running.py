"""The studies together: which data they can have, all their jobs, and a line that says how far they are."""

from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from time import monotonic
from typing import Self
from warnings import catch_warnings
from zipfile import BadZipFile

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from reproduction import ablation, search, stability, sweep, tables, toy
from reproduction.jobs import Failure, Job, run
from reproduction.journal import Journal
from reproduction.plan import COURSES, Plan
from wgpr.datasets import DATASETS, load


def available(plan: Plan, folder: Path | None) -> tuple[list[str], list[str]]:
    """The names of the data sets that can be had, and a sentence for each that cannot: what to do about it."""
    found, missing = [], []
    for name in plan.stability_sets:
        try:
            with catch_warnings(action="ignore"):  # of attempts to reach OpenML
                load(name, folder, fetch=True)
            found.append(name)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            missing.append(_why_missing(name, folder, error))
    return found, missing


def _why_missing(name: str, folder: Path | None, error: Exception) -> str:
    """One sentence, with what to do about it."""
    file_name = DATASETS[name][0]
    if folder is not None and (folder / file_name).exists():
        return f"{name}: {file_name} cannot be read ({type(error).__name__}); get it anew"
    if isinstance(error, FileNotFoundError):
        return f"{name}: {error} (docs/paper.md says what is in it)"
    return f"{name}: {file_name} is not in the folder, and OpenML cannot be reached; connect, or add the file"


def all_jobs(plan: Plan, names: Sequence[str]) -> list[Job]:
    """The work of all studies, on the data sets that there are."""
    courses = [name for name in COURSES if name in names]
    return [
        *toy.jobs(plan),
        *sweep.jobs(plan, courses),
        *search.jobs(plan, courses),
        *tables.jobs(plan, courses),
        *ablation.jobs(plan, courses),
        *stability.jobs(plan, names),
    ]


def run_all(
    jobs: Sequence[Job], journal: Journal, *, folder: Path | None, plan: Plan, n_jobs: int, console: Console
) -> list[Failure]:
    """Do what is not done yet, with a line that says how far it is. Ctrl-C loses only what is being worked on."""
    with StudyProgress(console, jobs, journal) as progress:
        return run(jobs, journal, folder=folder, plan=plan, n_jobs=n_jobs, progress=progress)


class StudyProgress:
    """A line in the terminal: fits done, the study that was the last to get a result, and the time left."""

    def __init__(self, console: Console, jobs: Sequence[Job], journal: Journal) -> None:
        done = [job for job in jobs if (job.study, job.key) in journal]
        self._n_done, self._n_jobs = len(done), len(jobs)
        self._before = self._cost = sum(job.cost for job in done)
        self._total, self._started = sum(job.cost for job in jobs), monotonic()
        words = TextColumn("{task.fields[words]}", markup=False)
        self._progress = Progress(BarColumn(bar_width=24), words, console=console)
        self._task = self._progress.add_task("", total=self._total, words=self._words(""))

    def __enter__(self) -> Self:
        self._progress.update(self._task, completed=self._cost)
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def __call__(self, job: Job) -> None:
        self._n_done += 1
        self._cost += job.cost
        self._progress.update(self._task, completed=self._cost, words=self._words(job.study))

    def _words(self, study: str) -> str:
        left = self._seconds_left()
        time = "" if isnan(left) else f"  about {left / 60:.0f} min left" if left > 90 else f"  about {left:.0f} s left"
        return f"{self._n_done:,}/{self._n_jobs:,} fits{time}  {study}".rstrip()

    def _seconds_left(self) -> float:
        """By what the fits have taken since this run began; not a number before the first."""
        done = self._cost - self._before
        return (monotonic() - self._started) * max(self._total - self._cost, 0.0) / done if done else nan
