"""`ShardedRegressor`: one map that several processes, or the nodes of a Ray cluster, learn together."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import NotFittedError

from wgpr.checks import require_count
from wgpr.ensemble.territory import Territory
from wgpr.estimators.base import checked_weights
from wgpr.estimators.methods import N_FIRST_ROWS, TerritoryMethod
from wgpr.estimators.regressors import WGPRegressor
from wgpr.estimators.units import Units
from wgpr.fleet.coordinator import Coordinator
from wgpr.fleet.engines import Engine, ProcessEngine, RayEngine, require_ray
from wgpr.fleet.ground import balanced_cuts
from wgpr.gp.linalg import Array, columns, one_blas_thread

# Rows that the districts are laid out by.
N_SAMPLE = 5000

# Districts to begin with, at the most: each is a model of its own, with files of its own.
MOST_SHARDS = 256

# Rows of the sample that tell which direction is long.
_N_TO_FIT = 200

Show = Callable[[int], None]


class ShardedRegressor(RegressorMixin, BaseEstimator):
    """Cuts the ground into districts and lets workers learn them at the same time; the result is one ordinary map.

    Rows are learned in the background. `predict`, `save` and `collect` wait until all of them are learned. Use it as
    a context manager, or call `close`, so that its workers end.

    Parameters
    ----------
    estimator : a `WGPRegressor` of the default method that says how to learn; None for `WGPRegressor()`.
    n_shards : districts to begin with, at most 256. Districts that become too large are divided.
    engine : "processes" of this machine, or "ray" for actors of a Ray cluster.
    n_workers : processes or actors; None for one a shard, and no more than this machine has cores (with Ray, one a
        shard).
    address : of the Ray cluster, such as "auto"; None for one on this machine.
    folder : where districts keep journals and snapshots; None for a temporary folder. All nodes of a cluster must see
        it.

    Examples
    --------
    >>> import numpy as np
    >>> from wgpr import ShardedRegressor
    >>> X = np.random.default_rng(0).uniform(0, 10, (300, 2))
    >>> with ShardedRegressor(n_shards=2) as fleet:
    ...     model = fleet.fit(X, np.sin(X[:, 0])).collect()
    >>> model.n_samples_seen_
    300
    """

    _template: WGPRegressor  # what rows must look like, and the settings
    _coordinator: Coordinator | None  # None until the districts are laid out
    _temporary: str | None  # folder that is removed in the end
    _is_folder_new: bool  # whether `folder` was made here, and is removed in the end if it is empty
    _waiting: list[tuple[Array, Array, Array]]  # rows until then
    _sample: tuple[Array, Array] | None  # rows to lay them out by, if some were given
    _collected: WGPRegressor | None  # what was last collected, as long as it has all rows

    def __init__(
        self,
        estimator: WGPRegressor | None = None,
        n_shards: int = 2,
        engine: str = "processes",
        n_workers: int | None = None,
        address: str | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_shards = n_shards
        self.engine = engine
        self.n_workers = n_workers
        self.address = address
        self.folder = folder

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Learning

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn all rows. Districts are laid out by a sample of all of them.

        X : (n, d), y : (n,) or (n, k), sample_weight : (n,), as for `WGPRegressor`.
        """
        self.close()
        X, y, weights = self._checked(X, y, sample_weight)
        self._lay_out(X, y)
        self._send(X, y, weights)
        self.collect()
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn more rows, in the background. The first 5,000 rows wait: they tell where the districts are."""
        X, y, weights = self._checked(X, y, sample_weight)
        if self._coordinator is None:
            self._waiting.append((X, y, weights))
            self._collected = None
            if sum(len(rows) for rows, _, _ in self._waiting) < (N_SAMPLE if self._sample is None else N_FIRST_ROWS):
                return self
            X, y, weights = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
            self._lay_out(X, y)
        self._send(X, y, weights)
        return self

    def prepare(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Lay out the districts by a sample (n, d), (n,) of the rows to come. Nothing is learned.

        A survey goes from one end to the other. Its first rows alone would give districts that must be divided later.
        """
        if hasattr(self, "_template"):
            raise ValueError("prepare comes before the first rows; use fit, or another ShardedRegressor")
        X, y, _ = self._checked(X, y, None)
        self._sample = X, y
        return self

    def collect(self, show: Show | None = None) -> WGPRegressor:
        """One `WGPRegressor` that has learned all rows. show : is called with the number of learned rows meanwhile."""
        if not hasattr(self, "_template") or not self.n_samples_seen_:
            raise NotFittedError("this ShardedRegressor has learned nothing, or was closed; use fit or partial_fit")
        if self._collected is None:
            model = copy(self._template)
            with one_blas_thread():  # territories at borders are fitted here
                if self._coordinator is None:
                    for X, y, weights in self._waiting:
                        model._state = model._method().learned(model._state, X, y, weights)
                else:
                    model._state = self._coordinator.collect(show)
            self._collected = model
        return self._collected

    def close(self) -> None:
        """End the workers and remove their files, and forget what was learned. Save or collect it before."""
        if (coordinator := getattr(self, "_coordinator", None)) is not None:
            coordinator.close()
        if (temporary := getattr(self, "_temporary", None)) is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        elif coordinator is not None and self.folder is not None:
            for district in Path(self.folder).glob("district-*"):
                shutil.rmtree(district, ignore_errors=True)
            if self._is_folder_new:
                with suppress(OSError):  # others may have put something there
                    os.rmdir(self.folder)
        for name in ("_template", "_coordinator", "_temporary", "_waiting", "_sample", "_collected"):
            if hasattr(self, name):
                delattr(self, name)

    def _checked(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Array, Array, Array]:
        """The rows as arrays of its own, which may wait. Nothing changes unless all of them are good."""
        if hasattr(self, "_template"):
            rows, targets = self._template._validated(X, y, reset=False)
            return rows.copy(), targets.copy(), checked_weights(sample_weight, rows)
        self.check_settings()
        template: WGPRegressor = WGPRegressor() if self.estimator is None else clone(self.estimator)
        rows, targets = template._validated(X, y, reset=True)
        weights = checked_weights(sample_weight, rows)
        template._state = template._initial_state(rows, targets)
        self._template, self._coordinator, self._temporary = template, None, None
        self._waiting, self._sample, self._collected = [], None, None
        return rows.copy(), targets.copy(), weights

    def check_settings(self) -> None:
        """Raise an error that names the first wrong setting."""
        require_count("n_shards", self.n_shards)
        if self.n_shards > MOST_SHARDS:
            raise ValueError(
                f"n_shards must be at most {MOST_SHARDS}, got {self.n_shards:,}; one for each core is enough"
            )
        if self.n_workers is not None:
            require_count("n_workers", self.n_workers, otherwise="None")
        if self.engine not in ("processes", "ray"):
            raise ValueError(f'engine must be "processes" or "ray", got {self.engine!r}')
        if self.address is not None and self.engine != "ray":
            raise ValueError('address is for engine="ray"; leave it out, or use that engine')
        if self.address is not None and self.folder is None:
            raise ValueError("a cluster needs a folder that all of its nodes see; give folder (--folder)")
        if self.engine == "ray":
            require_ray()
        if self.folder is not None and os.path.isdir(self.folder) and os.listdir(self.folder):
            raise FileExistsError(f"folder {self.folder} is not empty; name a new one")
        estimator = self.estimator
        if estimator is not None and not (
            isinstance(estimator, WGPRegressor) and isinstance(estimator._method(), TerritoryMethod)
        ):
            raise ValueError("estimator must be a WGPRegressor of the default method; others cannot learn in shards")

    def _lay_out(self, X: Array, y: Array) -> None:
        """Cut the ground and start the workers. Units are those of the first rows `X` (n, d), `y` (n,) or (n, k)."""
        template = self._template
        units = Units.of(X[:N_FIRST_ROWS], y[:N_FIRST_ROWS], is_isotropic=False)
        X, y = self._sample or (X, y)
        order = np.random.default_rng(0).permutation(len(X))[:N_SAMPLE]
        places, targets = units.inputs(X[order]), columns(units.targets(y[order]))
        method = template._method()
        assert isinstance(method, TerritoryMethod)
        with one_blas_thread():
            few = slice(_N_TO_FIT)
            typical = Territory.begin(method.settings.kernel, places[few], targets[few], np.ones(len(places[few])))
        cuts = balanced_cuts(places, self.n_shards, typical.theta.lengthscales)
        template._state = replace(template._state, units=units)
        self._coordinator = Coordinator(self._start_engine(template), cuts, template)
        self._waiting, self._sample = [], None

    def _start_engine(self, template: WGPRegressor) -> Engine:
        beginning = WGPRegressor(**template.get_params(deep=False))
        if beginning.max_models is not None:
            beginning.max_models = -(-beginning.max_models // self.n_shards)
        beginning.n_features_in_, beginning.target_name_ = template.n_features_in_, template.target_name_
        beginning._state = template._state
        self._is_folder_new = self.folder is not None and not os.path.exists(self.folder)
        self._temporary = tempfile.mkdtemp(prefix="wgpr-fleet-") if self.folder is None else None
        folder = os.path.abspath(self._temporary or os.fspath(self.folder or ""))
        if self.engine == "ray":
            return RayEngine(self.n_workers or self.n_shards, folder, beginning, self.address)
        n_workers = self.n_workers or min(self.n_shards, os.cpu_count() or 1)
        return ProcessEngine(n_workers, folder, beginning)

    def _send(self, X: Array, y: Array, weights: Array) -> None:
        assert self._coordinator is not None
        assert self._template._state.units is not None
        places = self._template._state.units.inputs(X)
        self._coordinator.send(places, np.column_stack([X, columns(y), weights]))
        self._collected = None

    # Prediction

    def predict(self, X: ArrayLike, **options: Any) -> Any:
        """As `WGPRegressor.predict`, when all rows are learned."""
        return self.collect().predict(X, **options)

    def save(self, path: str | os.PathLike[str], *, compact: bool = False) -> None:
        """Save one map of all rows, as `WGPRegressor.save` does."""
        self.collect().save(path, compact=compact)

    @property
    def n_samples_seen_(self) -> int:
        """Rows given so far."""
        waiting = sum(len(rows) for rows, _, _ in self._waiting)
        return waiting + (0 if self._coordinator is None else self._coordinator.n_rows)

    @property
    def n_samples_learned_(self) -> int:
        """Rows that were learned when the workers were last asked."""
        return 0 if self._coordinator is None else self._coordinator.n_learned

    @property
    def n_districts_(self) -> int:
        return 0 if self._coordinator is None else self._coordinator.n_districts
