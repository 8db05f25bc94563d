"""The state of a regressor, as one immutable value."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wgpr.ensemble.answers import PosteriorCache
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import StepRecord
from wgpr.ensemble.territories import Territories
from wgpr.estimators.units import Units
from wgpr.gp.linalg import Array
from wgpr.gp.model import Learner, PickledByFields
from wgpr.rules.calibration import Calibration


@dataclass(frozen=True, eq=False)
class State(PickledByFields):
    """All that a regressor has learned. It is replaced as a whole, so that an interruption leaves the old one.

    units, learner : None until the first rows are there.
    records : of the latest steps; n_steps : number of steps.
    pending_X, pending_y, pending_weights : (n, d), (n,) or (n, k) for several outputs, and (n,): rows that wait for a
        batch to fill, or for units. n_seen : rows given so far.
    bounds : (2, d), least and greatest value of each input so far, in the user's units.
    calibration : of the uncertainty, by forecasts of rows.
    cache : posteriors that have answered; states that follow each other share it.
    """

    ensemble: Ensemble | Territories
    seed: int
    pending_X: Array
    pending_y: Array
    pending_weights: Array
    bounds: Array
    units: Units | None = None
    learner: Learner[Any] | None = None
    records: tuple[StepRecord, ...] = ()
    n_steps: int = 0
    n_seen: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    cache: PosteriorCache = field(default_factory=PosteriorCache, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, cache=PosteriorCache())

    @cached_property
    def conditioned(self) -> Ensemble:
        """The ensemble for prediction: its models are conditioned on the pending rows near them."""
        assert isinstance(self.ensemble, Ensemble)
        if self.units is None or self.learner is None or not len(self.pending_y):
            return self.ensemble
        X, y = self.units.inputs(self.pending_X), self.units.targets(self.pending_y)
        return self.ensemble.conditioned(self.learner, X, y)
