"""What a regressor knows, as one value."""

from dataclasses import dataclass
from typing import Any

from wgpr.ensemble import Ensemble, StepRecord
from wgpr.linalg import Array
from wgpr.model import Learner
from wgpr.units import Units


@dataclass(frozen=True, eq=False)
class State:
    """All that a regressor knows. It is replaced as a whole, so that an interruption finds it as it was before.

    units, learner : None until the first rows are there.
    records : of the latest steps; n_steps : how many there were.
    waiting_X, waiting_y : (n, d) and (n,), rows that wait for a batch to fill; n_seen : rows given so far.
    bounds : (2, d), least and greatest of each input so far, in the user's units.
    """

    ensemble: Ensemble
    seed: int
    waiting_X: Array
    waiting_y: Array
    bounds: Array
    units: Units | None = None
    learner: Learner[Any] | None = None
    records: tuple[StepRecord, ...] = ()
    n_steps: int = 0
    n_seen: int = 0

    @property
    def n_learned(self) -> int:
        """Rows that are in the models, not counting those that wait."""
        return int(self.ensemble.n_seen.sum())
