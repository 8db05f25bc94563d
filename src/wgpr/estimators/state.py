"""What a regressor knows, as one value."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.records import StepRecord
from wgpr.estimators.units import Units
from wgpr.gp.linalg import Array
from wgpr.gp.model import Learner, PickledByFields
from wgpr.rules.calibration import Calibration


@dataclass(frozen=True, eq=False)
class State(PickledByFields):
    """All that a regressor knows. It is replaced as a whole, so that an interruption finds it as it was before.

    units, learner : None until the first rows are there.
    records : of the latest steps; n_steps : how many there were.
    pending_X, pending_y : (n, d) and (n,), or (n, k) for several outputs: rows that wait for a batch to fill;
    n_seen : rows given so far.
    bounds : (2, d), least and greatest of each input so far, in the user's units.
    calibration : how well rows were predicted before they were learned.
    """

    ensemble: Ensemble
    seed: int
    pending_X: Array
    pending_y: Array
    bounds: Array
    units: Units | None = None
    learner: Learner[Any] | None = None
    records: tuple[StepRecord, ...] = ()
    n_steps: int = 0
    n_seen: int = 0
    calibration: Calibration = field(default_factory=Calibration)

    @cached_property
    def answering(self) -> Ensemble:
        """The ensemble that also knows the rows that wait."""
        if self.units is None or self.learner is None or not len(self.pending_y):
            return self.ensemble
        X, y = self.units.inputs(self.pending_X), self.units.targets(self.pending_y)
        return self.ensemble.answering(self.learner, X, y)

    @property
    def outputs(self) -> tuple[int, ...]:
        """What a row's targets are shaped like: () for a number, (k,) for a column for each output."""
        return self.pending_y.shape[1:]

    @property
    def n_learned(self) -> int:
        """Rows that are in the models, not counting those that wait."""
        return self.ensemble.n_learned
