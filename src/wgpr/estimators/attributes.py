"""Attributes of a fitted regressor, grids and files: views of its state."""

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from wgpr.ensemble.evaluation import StepRecord
from wgpr.ensemble.territory import Territory
from wgpr.estimators.methods import Method
from wgpr.estimators.state import State
from wgpr.estimators.units import Units
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, n_outputs
from wgpr.gp.model import LocalModel

if TYPE_CHECKING:
    import xarray as xr


class FittedAttributes(ABC):
    """What a regressor has after `fit` or `partial_fit`."""

    _state: State

    @abstractmethod
    def _answering(self) -> tuple[Any, Units]:
        """The ensemble that answers, and its units."""

    @abstractmethod
    def _method(self) -> Method:
        """How it learns and answers."""

    @property
    def models_(self) -> tuple[LocalModel | Territory, ...]:
        """The local models, oldest first; in the ensemble's own units, `units_`."""
        check_is_fitted(self, "_state")
        return self._state.ensemble.models

    @property
    def units_(self) -> Units:
        """The units of the local models: those of the first rows."""
        return self._answering()[1]

    @property
    def hyperparameters_(self) -> tuple[Hyperparameters, ...]:
        """What each local model has learned, in the user's units.

        Several outputs share it: amplitude and noise are then relative, and those of output j are
        `units_.target_scale[j]` times as much.
        """
        units = self.units_
        return tuple(units.for_user(model.theta) for model in self.models_)

    @property
    def pseudo_inputs_(self) -> tuple[Array, ...]:
        """The pseudo-inputs of each local model in the user's units: (M, d) each."""
        units = self.units_
        return tuple(units.inputs_for_user(model.inputs) for model in self.models_)

    @property
    def bounds_(self) -> Array:
        """(2, d): the least and the greatest value of each input so far."""
        check_is_fitted(self, "_state")
        return self._state.bounds

    @property
    def n_models_(self) -> int:
        """Number of local models."""
        check_is_fitted(self, "_state")
        return len(self._state.ensemble)

    @property
    def n_outputs_(self) -> int:
        """Number of outputs: columns of `y`, 1 if it has none."""
        check_is_fitted(self, "_state")
        return n_outputs(self._state.pending_y)

    @property
    def n_pending_(self) -> int:
        """Number of rows that wait for a batch to fill; they count as seen. Always 0 for the default `WGPRegressor`."""
        check_is_fitted(self, "_state")
        return self._method().n_pending(self._state)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows given so far, learned or pending."""
        check_is_fitted(self, "_state")
        return self._state.n_seen

    @property
    def history_(self) -> tuple[StepRecord, ...]:
        """Records of the latest 10,000 steps, oldest first."""
        check_is_fitted(self, "_state")
        return self._state.records

    def predict_grid(
        self, region: ArrayLike | None = None, spacing: ArrayLike | None = None, *, at: Any = None
    ) -> "xr.Dataset":
        """Predict on a regular grid: an xarray Dataset with `mean`, `std`, `std_latent` and `model`.

        Parameters
        ----------
        region : (west, east, south, north) for a map, (low, high) for a line; by default, where the data are.
        spacing : distance of neighbouring nodes, one for all inputs or one for each.
        at : values of inputs that do not vary, by name or column, where there are more than two.
        """
        from wgpr.io.grids import predict_grid

        return predict_grid(cast(Any, self), region, spacing, at=at)

    def save(self, path: str | os.PathLike[str], *, compact: bool = False) -> None:
        """Write all that was learned to one file, which `wgpr.load` reads. If writing fails, an old file stays.

        Parameters
        ----------
        compact : only what prediction needs, in float32, for a slow link: no history, no pending rows. By default
            the file holds everything to the last bit, and learning goes on from it as if it had never stopped.
        """
        from wgpr.io.files import write_file

        write_file(path, self.to_bytes(compact=compact))

    def to_bytes(self, *, compact: bool = False) -> bytes:
        """The bytes that `save` writes."""
        from wgpr.io.maps import to_bytes

        return to_bytes(cast(Any, self), compact=compact)
