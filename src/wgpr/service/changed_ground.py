"""Which ground each local model answers for, and when it changed: so that only changed tiles are made again."""

from dataclasses import dataclass

import numpy as np

from wgpr.ensemble.territories import Territories
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array, Indices
from wgpr.io.coordinates import boxes_for_user, user_bounds

# A change of a model also changes answers near its ground, within this fraction of its size.
_MARGIN = 0.25


@dataclass(frozen=True, eq=False)
class ChangedGround:
    """The ground of J models: low, high : (J, d), in the user's units; rows : (J,), rows learned at the last change.

    A model that has no borders of its own, as those of the paper's methods, may answer everywhere.
    """

    low: Array
    high: Array
    rows: Indices

    @classmethod
    def of(
        cls, model: EnsembleRegressor, before: "ChangedGround | None", previous: EnsembleRegressor | None
    ) -> "ChangedGround":
        """The ground of a model, given that of the previous one."""
        n_rows, bounds = model.n_samples_seen_, user_bounds(model)
        ensemble = model._state.ensemble
        if not isinstance(ensemble, Territories):
            return cls(bounds[:1], bounds[1:], np.array([n_rows]))
        known = previous._state.ensemble.models if before is not None and previous is not None else ()
        rows = np.full(len(ensemble), n_rows)
        for number, (old, new) in enumerate(zip(known, ensemble.models, strict=False)):
            if old is new and before is not None:
                rows[number] = before.rows[number]
        edges = np.stack([model.units_.inputs_for_user(side) for side in ensemble.overview.grounds.swapaxes(0, 1)])
        low, high = np.clip(edges, model.bounds_[0], model.bounds_[1])
        low, high = boxes_for_user(model, low, high)
        margin = _MARGIN * (high - low)
        return cls(low - margin, high + margin, rows)

    def changed_since(self, n_rows: int) -> list[tuple[list[float], list[float]]]:
        """Low and high corner of each ground that changed after `n_rows` rows were learned."""
        is_new = self.rows > n_rows
        return list(zip(self.low[is_new].tolist(), self.high[is_new].tolist(), strict=True))

    def last_change(self, low: Array, high: Array) -> int:
        """Rows learned at the last change of what the box from `low` to `high` (d,) shows. NaN fits anything."""
        with np.errstate(invalid="ignore"):
            is_apart = ((self.low > high) | (self.high < low)).any(axis=1)
        return int(self.rows[~is_apart].max(initial=0))
