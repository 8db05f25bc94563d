"""Calibration of the uncertainty by the stream itself (docs/territories.md, 6).

Each row is predicted by all rows before it: such errors, in standard deviations, are known when a territory is looked
at. Standard deviations are multiplied by the factor that puts 95 % of the errors into the 95 % interval.
"""

from dataclasses import dataclass, field

import numpy as np

from wgpr.gp.linalg import Array

# Sizes of errors are counted in bins. Old ones are discounted, so that a changing field is followed.
EDGES = np.geomspace(0.05, 50.0, 73)
_MEMORY = 10_000.0

# Fewer errors leave the factor as it is.
_ENOUGH = 200.0

_HALF_WIDTH, _INSIDE = 1.959964, 0.95
_LEAST, _MOST = 0.3, 5.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """How large errors of forecasts were, and the factor for standard deviations that follows.

    counts : (74,) of errors below, between and above the edges.
    initial_factor : the factor as long as there are too few errors.
    """

    counts: Array = field(default_factory=lambda: np.zeros(len(EDGES) + 1))
    initial_factor: float = 1.0
    factor: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", _factor(self.counts) or self.initial_factor)

    def updated(self, whitened: Array) -> "Calibration":
        """After these errors too: (n, k), in standard deviations; all outputs count alike."""
        sizes = np.abs(whitened).ravel()
        new = np.bincount(np.searchsorted(EDGES, sizes), minlength=len(self.counts))
        return Calibration(self.counts * (1.0 - 1.0 / _MEMORY) ** len(sizes) + new, self.initial_factor)


def _factor(counts: Array) -> float | None:
    """The factor that puts 95 % of the errors inside; None if there are too few of them."""
    total = float(counts.sum())
    if total < _ENOUGH:
        return None
    below = np.cumsum(counts[:-1]) / total  # fraction of errors below each edge
    size = np.exp(np.interp(_INSIDE, below, np.log(EDGES)))
    return float((size / _HALF_WIDTH).clip(_LEAST, _MOST))
