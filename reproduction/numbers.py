"""From results to numbers: means over trials with their spread, and how they are written."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reproduction.contestants import CONTESTANTS
from reproduction.journal import Entry, Journal
from reproduction.plan import COURSES
from reproduction.tables import EXACT, INTERPOLATION, TABLES

METHODS = (*CONTESTANTS, EXACT, INTERPOLATION)


class Spread(NamedTuple):
    """Of one quantity over trials: its mean, and its standard deviation (0 for a single one)."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, len(values))

    def __str__(self) -> str:
        """The mean to three digits, and the deviation to as many places.

        >>> str(Spread(0.50712, 0.0123, 5)), str(Spread(1234.5, 67.0, 5)), str(Spread(2.0, 0.0, 1))
        ('0.507 ± 0.012', '1,234 ± 67', '2.00')
        """
        places = _places(self.mean)
        spread = f" ± {self.std:,.{places}f}" if self.n > 1 else ""
        return f"{self.mean:,.{places}f}{spread}"


def _places(value: float) -> int:
    """Decimals that make three digits, of numbers from a thousandth to a thousand."""
    size = abs(value)
    return next((places for limit, places in ((100, 0), (10, 1), (1, 2)) if size >= limit), 3)


def field(entry: Entry, path: str) -> Any:
    """A part of a result, such as `test.rmse`; None if the result has no such part."""
    value: Any = entry.result
    for name in path.split("."):
        value = None if value is None else value.get(name)
    return value


def over_trials(journal: Journal, course: str, method: str, path: str = "test.rmse") -> Spread | None:
    """A quantity of a cell of the methods table; None if there is none."""
    values = [field(entry, path) for entry in journal.of(TABLES, course=course, method=method)]
    known = [float(value) for value in values if value is not None]
    return Spread.of(known) if known else None


def courses_of(journal: Journal) -> list[str]:
    """The data sets that the methods table has results of, in its order."""
    found = {entry.key["course"] for entry in journal.of(TABLES)}
    return [course for course in COURSES if course in found]


def cell(spread: Spread | None) -> str:
    return "-" if spread is None else str(spread)
