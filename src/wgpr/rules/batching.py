"""Which of the rows that wait are learned next. Any object with `n_ready` and `choose` will do.

A rule chooses places in a queue and keeps nothing itself: rows that are learned leave the queue, all others stay, and
so nothing is lost and nothing is learned twice, in whatever order rows come.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wgpr.checks import require_count
from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.linalg import Array, Indices


class Batching(Protocol):
    """Decides when there are enough rows, and which of them make a batch."""

    def n_ready(self, n_learned: int) -> int:
        """How many rows must wait before one of them is learned, when so many are learned already."""

    def choose(self, X: Array, ensemble: Ensemble) -> Indices:
        """Places of the rows that are learned next, of all that wait: `X` (n, d), oldest first."""


@dataclass(frozen=True)
class InOrder:
    """Rows are learned in the order in which they came."""

    batch_size: int

    def n_ready(self, n_learned: int) -> int:
        return self.batch_size

    def choose(self, X: Array, ensemble: Ensemble) -> Indices:
        return np.arange(min(self.batch_size, len(X)))


@dataclass(frozen=True)
class Regional:
    """Rows wait until many are in the territory of one model: batches are local, even if the stream is not.

    A row belongs to the model with the nearest pseudo-input. The territory whose rows have waited longest, all
    together, is learned next: one that has many, or old ones. If they are too many, it is the oldest with those that
    are nearest to it. The buffer grows with what has been learned, so that the first batch need not wait.

    buffer_size : rows that wait at the most.
    """

    batch_size: int
    buffer_size: int

    def __post_init__(self) -> None:
        require_count("buffer_size", self.buffer_size, least=self.batch_size)

    def n_ready(self, n_learned: int) -> int:
        return min(self.buffer_size, n_learned + self.batch_size)

    def choose(self, X: Array, ensemble: Ensemble) -> Indices:
        members = np.arange(len(X))
        if len(ensemble):
            owners = ensemble.index.owners(X)[:, 0]
            waiting = np.arange(len(X), 0, -1, dtype=float)
            members = np.flatnonzero(owners == np.bincount(owners, waiting).argmax())
        if len(members) <= self.batch_size:
            return members
        squares = ((X[members] - X[members[0]]) ** 2).sum(axis=1)
        return np.sort(members[np.argsort(squares, kind="stable")[: self.batch_size]])
