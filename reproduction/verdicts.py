"""What the reproduction must show, and whether it does."""

from statistics import median
from typing import NamedTuple

from reproduction import published, toy
from reproduction.journal import Entry, Journal
from reproduction.numbers import METHODS, Spread, courses_of, over_trials
from reproduction.plan import COURSES, TOY, Plan
from reproduction.stability import STABILITY
from reproduction.tables import TABLES
from wgpr.report import Table

# WGPR must be at or below its published error by this part of it.
_BETTER_BY = 0.05
_PUBLISHED_COURSES = ("kin40k", "abalone", "pumadyn")
_RIVALS = ("SOLAR", "OVFE")
_WANTED_WINS, _WANTED_TOYS = 5, 8

# A mean squared error of so many variances of the targets is no error of a method that has converged.
_DIVERGED = 3.0

# As in `benchmarks/robustness.py`.
_MOST_RANGES = 10.0


class Verdict(NamedTuple):
    """A figure to reach, what was measured, and whether that is enough; None if it was not measured."""

    what: str
    wanted: str
    measured: str
    is_reached: bool | None


def verdicts(journal: Journal, plan: Plan) -> list[Verdict]:
    """All of them."""
    return [
        _complete(journal),
        _stable(journal),
        *(_better_than_published(journal, course) for course in _PUBLISHED_COURSES),
        _better_than_rivals(journal, "WGPR"),
        _better_than_rivals(journal, "WGPR, any rule"),
        _two_models(journal, plan),
        _more_models_of_solar(journal, plan),
    ]


def verdicts_table(journal: Journal, plan: Plan) -> Table:
    """As a table."""
    words = {True: "yes", False: "no", None: "not run"}
    rows = [
        (
            verdict.what,
            words[verdict.is_reached] if plan.max_rows is None else "quick look",
            verdict.wanted,
            verdict.measured,
        )
        for verdict in verdicts(journal, plan)
    ]
    return Table("", ("", "reached", "wanted", "measured"), rows, main_rows=(), wide_columns=(0, 3))


def _complete(journal: Journal) -> Verdict:
    cells = [(course, method) for course in courses_of(journal) for method in METHODS]
    missing = [place for place in cells if over_trials(journal, *place) is None]
    diverged = [place for place in cells if place not in missing and _has_diverged(journal, *place)]
    listed = "; ".join(f"{method} on {COURSES[course]}" for course, method in missing + diverged)
    return Verdict(
        "cells of the methods table that are missing or diverged",
        "none",
        f"{len(missing)} missing and {len(diverged)} diverged of {len(cells)}{': ' + listed if listed else ''}",
        not missing + diverged if cells else None,
    )


def _has_diverged(journal: Journal, course: str, method: str) -> bool:
    """Whether the error is not finite, or far worse than that of the targets' mean, in any trial."""
    entries = journal.of(TABLES, course=course, method=method)
    return not all(float(entry["test"]["smse"]) <= _DIVERGED for entry in entries)


def _stable(journal: Journal) -> Verdict:
    entries = journal.of(STABILITY)
    finite = [entry for entry in entries if entry["is_finite"]]
    what, wanted = "every method on every data set, natural and shuffled", f"finite, in {_MOST_RANGES:g} ranges"
    if not finite:
        return Verdict(what, wanted, "-", False if entries else None)
    worst = max(finite, key=lambda entry: entry["worst"])
    around = max(finite, key=lambda entry: entry["worst_around"])
    measured = (
        f"{len(finite)} of {len(entries)} finite; worst {worst['worst'] / 2:.1f} ranges from the middle at a row seen "
        f"({_named(worst)}), {around['worst_around'] / 2:.1f} in the box around ({_named(around)})"
    )
    furthest = max(worst["worst"], around["worst_around"]) / 2
    return Verdict(what, wanted, measured, len(finite) == len(entries) and furthest <= _MOST_RANGES)


def _named(entry: Entry) -> str:
    return f"{entry['method']}, {COURSES.get(entry['data'], entry['data'])}, {entry['order']}"


def _better_than_published(journal: Journal, course: str) -> Verdict:
    known, ours = published.RESULTS["WGPR"][course], over_trials(journal, course, "WGPR")
    assert known is not None
    limit = (1 - _BETTER_BY) * known.rmse
    what = f"RMSE of WGPR on {COURSES[course]} (published {known.rmse:.3f})"
    measured = "-" if ours is None else f"{ours} ({ours.mean / known.rmse - 1:+.0%})"
    return Verdict(what, f"{limit:.3f}", measured, None if ours is None else ours.mean <= limit)


def _better_than_rivals(journal: Journal, method: str) -> Verdict:
    """An error that is the same to four digits is a tie, which is enough."""
    courses = courses_of(journal)
    behind = {course: rivals for course in courses if (rivals := _ahead_of(journal, course, method))}
    won = len(courses) - len(behind)
    losses = "; ".join(f"{COURSES[course]}: {', '.join(rivals)}" for course, rivals in behind.items())
    return Verdict(
        f"data sets where {method} is at or below our SOLAR and OVFE",
        f"{_WANTED_WINS} of {len(COURSES)}",
        f"{won} of {len(courses)}{'; behind on ' + losses if losses else ''}",
        won >= _WANTED_WINS if len(courses) == len(COURSES) else None,
    )


def _ahead_of(journal: Journal, course: str, method: str) -> list[str]:
    """The rivals with a smaller error, with by how much of it, and how sure that is."""
    ours = over_trials(journal, course, method)
    assert ours is not None
    return [
        f"{rival} by {ours.mean / theirs.mean - 1:.1%} ({_wins(journal, course, method, rival)})"
        for rival in _RIVALS
        if (theirs := over_trials(journal, course, rival)) is not None and ours.mean > 1.00005 * theirs.mean
    ]


def _wins(journal: Journal, course: str, method: str, rival: str) -> str:
    """In how many trials the rival is better."""
    ours, theirs = (_errors_of(journal, course, name) for name in (method, rival))
    return f"in {sum(theirs[trial] < ours[trial] for trial in ours)} of {len(ours)} trials"


def _errors_of(journal: Journal, course: str, method: str) -> dict[int, float]:
    """The RMSE of each trial."""
    return {entry["trial"]: entry["test"]["rmse"] for entry in journal.of(TABLES, course=course, method=method)}


def _two_models(journal: Journal, plan: Plan) -> Verdict:
    entries = toy.with_chosen_value(journal, "WGPR", plan)
    counts = [entry["n_models"] for entry in entries]
    right, enough = counts.count(2), _WANTED_TOYS * len(plan.toy_seeds) / 10
    error = Spread.of([entry["test"]["rmse"] for entry in entries])
    measured = f"{right} of {len(counts)}; RMSE {error} (published: 2 models, {published.TOY['WGPR'].rmse})"
    return Verdict("toys that WGPR learns with 2 models", f"{_WANTED_TOYS} of 10", measured, right >= enough)


def _more_models_of_solar(journal: Journal, plan: Plan) -> Verdict:
    needed = models_of_solar_at_equal_error(journal, plan)
    reached = [n for n in needed.values() if n is not None]
    never = len(needed) - len(reached)
    measured = f"median {median(reached):g}, {min(reached)} to {max(reached)}" if reached else "none reaches it"
    if never and reached:
        measured += f"; not reached with any setting on {never} of {len(needed)} toys"
    return Verdict(
        "models that SOLAR needs for the same RMSE", "more", measured, all(n is None or n > 2 for n in needed.values())
    )


def models_of_solar_at_equal_error(journal: Journal, plan: Plan) -> dict[int, int | None]:
    """For each toy the least number of models, over all settings of SOLAR, that is as good as WGPR; None if none is."""
    ours = {entry["seed"]: entry["test"]["rmse"] for entry in toy.with_chosen_value(journal, "WGPR", plan)}
    return {
        seed: min(
            (
                entry["n_models"]
                for entry in journal.of(TOY, method="SOLAR", seed=seed)
                if entry["test"]["rmse"] <= toy.AS_GOOD * error
            ),
            default=None,
        )
        for seed, error in ours.items()
    }
