"""The search for settings: sixteen fits for each method, judged on a part of the training stream, never on the test."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from reproduction.contestants import CONTESTANTS, ITERATIONS, KERNELS, Settings
from reproduction.jobs import Job
from reproduction.journal import Entry, Journal
from reproduction.learning import judge, learn
from reproduction.plan import Plan
from reproduction.protocol import prepare, validation

SEARCH = "search"

# Seconds that a thousand rows take, roughly.
COSTS = {"WGPR": 1.3, "WGPR, any rule": 1.3, "SOLAR": 0.7, "OVFE": 0.2, "LGPR": 0.5}
THOUSANDS = {"opinicon": 14.4, "tzibana": 5.1, "sarcos": 3.2, "kin40k": 10.0, "abalone": 3.3, "pumadyn": 6.6}


def jobs(plan: Plan, courses: Sequence[str]) -> list[Job]:
    """A job for every fit."""
    return [
        Job(
            SEARCH,
            {"course": course, "method": name, "trial": trial, "setting": number},
            try_setting,
            cost=0.8 * guess(course, name, plan),
        )
        for course in courses
        for name, contestant in CONTESTANTS.items()
        if contestant.searched == name
        for trial in range(plan.n_trials)
        for number in range(len(contestant.learning))
    ]


def guess(course: str, method: str, plan: Plan) -> float:
    """Seconds of a fit, roughly."""
    thousands = min(THOUSANDS.get(course, 3.0), (plan.max_rows or inf) / 1000)
    return thousands * COSTS.get(method, 1.0)


def try_setting(course: str, method: str, trial: int, setting: int, folder: Path | None, plan: Plan) -> dict[str, Any]:
    """One fit on the training stream without its validation part, and its error there, read in several ways."""
    contestant = CONTESTANTS[method]
    stream = validation(prepare(course, trial, folder, plan).stream, trial)
    settings = contestant.learning[setting]
    model = contestant.make(_cheapest(settings), stream.y, trial)
    learned = learn(model, stream)
    readings = [
        {"reading": reading, "rmse": judge(model.set_params(**reading), stream.X_test, stream.y_test)["rmse"]}
        for reading in contestant.reading
    ]
    return {"settings": settings, "readings": readings, **learned}


def _cheapest(settings: Settings) -> Settings:
    """The same ensemble with fewer fits: the two ends of the threshold are rules of their own."""
    ends = {0.0: "always", inf: "never"}
    relative = settings.get("relative_threshold")
    return {**settings, "splitting": ends[relative]} if relative in ends else settings


def chosen(journal: Journal, course: str, method: str, trial: int) -> Settings:
    """The settings with the least error on the validation part, of learning and of reading."""
    contestant = CONTESTANTS[method]
    return min(
        (
            (float(reading["rmse"]), number, {**_restored(entry["settings"]), **reading["reading"]})
            for number, entry in enumerate(tried(journal, course, contestant.searched, trial))
            for reading in entry["readings"]
            if reading["reading"] in contestant.reading
        ),
        key=lambda found: found[:2],
    )[2]


def chosen_value(journal: Journal, course: str, method: str, trial: int, name: str) -> float:
    """The best threshold that is neither 0 nor infinite, with the kernel and the long climb of the paper."""
    finite = [
        (float(entry["readings"][0]["rmse"]), value)
        for entry in tried(journal, course, CONTESTANTS[method].searched, trial)
        if _is_as_in_the_paper(entry["settings"]) and 0.0 < (value := float(entry["settings"][name])) < inf
    ]
    return min(finite)[1]


def _is_as_in_the_paper(settings: Settings) -> bool:
    return settings["kernel"] == KERNELS[0] and settings["optimizer_iterations"] == ITERATIONS[-1]


def tried(journal: Journal, course: str, method: str, trial: int) -> list[Entry]:
    """All fits of a search, in their order."""
    entries = journal.of(SEARCH, course=course, method=method, trial=trial)
    return sorted(entries, key=lambda entry: entry.key["setting"])


def _restored(settings: Settings) -> Settings:
    """Infinity is a word in JSON."""
    return {name: inf if value == "inf" else value for name, value in settings.items()}


def given_settings(journal: Journal, course: str, method: str, trial: int) -> dict[str, Any]:
    """What a final fit is given."""
    return {"settings": chosen(journal, course, method, trial)}
