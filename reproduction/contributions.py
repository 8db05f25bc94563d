"""What each element of the method contributes: the ablation, as tables and in plain words."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import geometric_mean, mean

from reproduction.ablation import ABLATION, CANDIDATES, COURSES, RULES, SPLITTING, UPDATES
from reproduction.journal import Entry, Journal
from reproduction.numbers import Spread, cell
from reproduction.plan import ALL_CANDIDATES, N_CANDIDATES
from reproduction.plan import COURSES as NAMES
from wgpr.report import Table

_AS_PUBLISHED = {"splitting": "wasserstein", "rule": "nearest", "update": "learned"}


def name_of(course: str) -> str:
    return NAMES.get(course, "the toy")


def courses_of(journal: Journal) -> list[str]:
    """Those that the ablation was run on."""
    return [course for course in COURSES if journal.of(ABLATION, course=course)]


def error(journal: Journal, course: str, splitting: str, rule: str, update: str) -> Spread | None:
    """RMSE over the trials, with these elements."""
    entries = journal.of(ABLATION, course=course, splitting=splitting, update=update)
    return Spread.of([entry["rules"][rule]["rmse"] for entry in entries]) if entries else None


def models(journal: Journal, course: str, splitting: str, update: str = "learned") -> float | None:
    """How many there are, in the mean over the trials."""
    entries = journal.of(ABLATION, course=course, splitting=splitting, update=update)
    return mean(entry["n_models"] for entry in entries) if entries else None


# Tables


def splitting_table(journal: Journal) -> Table:
    """RMSE and number of models by splitting rule, all else as published."""
    rows = [(rule, *(_with_models(journal, course, rule) for course in courses_of(journal))) for rule in SPLITTING]
    return _table(journal, "Who splits: RMSE (and number of models), nearest prediction.", "splitting", rows)


def _with_models(journal: Journal, course: str, splitting: str) -> str:
    n_models = models(journal, course, splitting)
    errors = error(journal, course, splitting, _AS_PUBLISHED["rule"], _AS_PUBLISHED["update"])
    return "-" if n_models is None else f"{cell(errors)} ({n_models:.0f})"


def prediction_table(journal: Journal) -> Table:
    """RMSE by prediction rule, all else as published."""
    rows = [
        (rule, *(cell(error(journal, course, "wasserstein", rule, "learned")) for course in courses_of(journal)))
        for rule in RULES
    ]
    return _table(journal, "Who answers: RMSE, models split by the Wasserstein distance.", "prediction", rows)


def update_table(journal: Journal) -> Table:
    """RMSE with hyperparameters learned from every batch, and from the first one only."""
    rows = [
        (update, *(cell(error(journal, course, "wasserstein", "nearest", update)) for course in courses_of(journal)))
        for update in UPDATES
    ]
    caption = "What an update learns: RMSE with hyperparameters learned from every batch, or frozen after the first."
    return _table(journal, caption, "update", rows)


def candidates_table(journal: Journal) -> Table:
    """RMSE and processor time by the number of models that are tried for each batch."""
    counts = sorted({entry.key["n_candidates"] for entry in journal.of(CANDIDATES)})
    rows = [
        (
            "all" if n == ALL_CANDIDATES else str(n),
            *(_with_seconds(journal.of(CANDIDATES, course=course, n_candidates=n)) for course in courses_of(journal)),
        )
        for n in counts
    ]
    main = [number for number, n in enumerate(counts) if n == N_CANDIDATES]
    caption = "How many models are tried for each batch (J_hat): RMSE, and seconds of processor time."
    return _table(journal, caption, "J_hat", rows, main)


def _with_seconds(entries: Sequence[Entry]) -> str:
    if not entries:
        return "-"
    errors = Spread.of([entry["rules"]["nearest"]["rmse"] for entry in entries])
    return f"{errors} ({mean(entry['seconds'] for entry in entries):.0f} s)"


def _table(
    journal: Journal, caption: str, header: str, rows: Sequence[Sequence[str]], main: Sequence[int] = (0,)
) -> Table:
    headers = (header, *(name_of(course) for course in courses_of(journal)))
    return Table(caption, headers, rows, main_rows=main)


# Words


def in_words(journal: Journal) -> Iterator[str]:
    """A paragraph for each element: what the error becomes if only it is exchanged."""
    yield (
        "Each element was exchanged while all others stayed as published: Wasserstein splitting, the nearest model "
        "answers, updates learn hyperparameters, five candidates, squared exponential. The threshold is the better "
        "of the two finite ones of the search (1 % and 10 % of the variance), so that it is not the WGPR of the "
        "methods table, which may choose none. Percentages are changes of the RMSE: on each data set the geometric "
        "mean over the trials' ratios, and before it that over the data sets; plus is worse."
    )
    yield f"Who splits. {_sentences(journal, 'splitting', SPLITTING[1:])}"
    yield f"Who answers. {_sentences(journal, 'rule', [rule for rule in RULES if rule != 'nearest'])}"
    yield f"What an update learns. {_sentences(journal, 'update', ['frozen'])}"
    yield f"How many are tried. {_on_candidates(journal)}"
    yield f"All together. {_best_combinations(journal)}"


def _sentences(journal: Journal, element: str, choices: Sequence[str]) -> str:
    return " ".join(_sentence(journal, element, choice) for choice in choices)


def _sentence(journal: Journal, element: str, choice: str) -> str:
    changes = {
        course: change
        for course in courses_of(journal)
        if (change := _change(journal, course, {**_AS_PUBLISHED, element: choice})) is not None
    }
    each = ", ".join(f"{name_of(course)} {change - 1:+.0%}" for course, change in changes.items())
    exchanged = f"{choice} in place of {_AS_PUBLISHED[element]}".replace("_", " ").capitalize()
    return f"{exchanged}: {_mean_change(changes.values())} ({each})."


def _change(journal: Journal, course: str, elements: dict[str, str]) -> float | None:
    """The error with these elements over that of the published ones; geometric mean over the trials."""
    before, after = (_errors(journal, course, **chosen) for chosen in (_AS_PUBLISHED, elements))
    common = before.keys() & after.keys()
    return geometric_mean(after[trial] / before[trial] for trial in common) if common else None


def _errors(journal: Journal, course: str, splitting: str, rule: str, update: str) -> dict[int, float]:
    entries = journal.of(ABLATION, course=course, splitting=splitting, update=update)
    return {entry["trial"]: entry["rules"][rule]["rmse"] for entry in entries}


def _mean_change(ratios: Iterable[float]) -> str:
    return f"{geometric_mean(ratios) - 1:+.0%}"


def _on_candidates(journal: Journal) -> str:
    parts = []
    for n in sorted({entry.key["n_candidates"] for entry in journal.of(CANDIDATES)} - {N_CANDIDATES}):
        ratios = [_candidates_ratio(journal, course, n) for course in courses_of(journal)]
        known = [ratio for ratio in ratios if ratio is not None]
        if known:
            errors, seconds = zip(*known, strict=True)
            name = "all" if n == ALL_CANDIDATES else str(n)
            time = f"in {geometric_mean(seconds):.2f} times the time"
            parts.append(f"{name} in place of {N_CANDIDATES}: {_mean_change(errors)}, {time}")
    return "; ".join(parts) + "."


def _candidates_ratio(journal: Journal, course: str, n: int) -> tuple[float, float] | None:
    """Error and time with `n` candidates over those with the published number."""
    some, usual = (journal.of(CANDIDATES, course=course, n_candidates=count) for count in (n, N_CANDIDATES))
    if not some or not usual:
        return None
    errors = [mean(entry["rules"]["nearest"]["rmse"] for entry in entries) for entries in (some, usual)]
    seconds = [mean(entry["seconds"] for entry in entries) for entries in (some, usual)]
    return errors[0] / errors[1], seconds[0] / seconds[1]


def _best_combinations(journal: Journal) -> str:
    parts = []
    for course in courses_of(journal):
        found = {
            (splitting, rule, update): spread.mean
            for splitting in SPLITTING
            for rule in RULES
            for update in UPDATES
            if (spread := error(journal, course, splitting, rule, update)) is not None
        }
        (splitting, rule, update), least = min(found.items(), key=lambda item: item[1])
        published = found["wasserstein", "nearest", "learned"]
        parts.append(
            f"on {name_of(course)} the least error of the {len(found)} combinations is {least:.3g} ({splitting}, "
            f"{rule.replace('_', ' ')}, {update}), where the published one has {published:.3g}"
        )
    words = "; ".join(parts)
    return f"{words[:1].upper()}{words[1:]}."
