"""Batching rules: which of the pending rows are learned next.

Any object with the methods `n_ready` and `choose` is a rule. A rule chooses rows of a queue and has no state: rows that
are learned leave the queue, all others stay, so that every row is learned once.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wgpr.checks import require_count
from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.linalg import Array, Indices


class Batching(Protocol):
    """Decides when enough rows are pending, and which of them are the next batch."""

    def n_ready(self, n_learned: int) -> int:
        """How many rows must be pending before a batch is learned, after so many were learned."""

    def choose(self, X: Array, ensemble: Ensemble) -> Indices:
        """Indices of the rows that are learned next, of all pending rows `X` (n, d), oldest first."""


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
    """Rows are learned together that are close together: batches are local, even if the stream is not.

    A row belongs to the model with the nearest pseudo-input. The model whose pending rows have the largest total
    waiting time is next. If they are more than a batch, it is the oldest with those nearest to it. The buffer grows
    with the number of rows learned, so that the first batch need not wait.

    buffer_size : the most pending rows.
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
