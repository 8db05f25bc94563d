"""Local models as a few flat arrays, and back (docs/format.md).

Models differ in size, so what belongs to pseudo-inputs stands one model after the other in one array, and `n_inputs`
tells them apart. Triangular matrices are stored without their zeros. The full form keeps every bit; the compact form
is float32 and keeps what prediction needs: the pseudo-inputs, and what was observed there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgpr.gp import exact, sparse
from wgpr.gp.adaptive import AdaptiveSparseLearner
from wgpr.gp.bound import Summary
from wgpr.gp.exact import ExactLearner, ExactModel
from wgpr.gp.hyperparameters import Scales
from wgpr.gp.kernels import Hyperparameters
from wgpr.gp.linalg import Array, Indices, read_only
from wgpr.gp.sparse import SparseLearner, SparseModel
from wgpr.io.container import Arrays, MapError

_Sparse = SparseLearner | AdaptiveSparseLearner


def pack_models(models: Sequence[Any], *, compact: bool) -> Arrays:
    """Arrays that hold these models, which are of one kind."""
    if all(isinstance(model, SparseModel) for model in models):
        return _pack_sparse_compact(models) if compact else _pack_sparse(models)
    return _pack_exact_compact(models) if compact else _pack_exact(models)


def unpack_models(
    arrays: Arrays, learner: Any, n_features: int, *, compact: bool, outputs: tuple[int, ...] = ()
) -> list[Any]:
    """The models that were packed; `learner` is the one that made them, `outputs` is (k,) if there are several."""
    columns = Columns(arrays, n_features, outputs)
    if isinstance(learner, _Sparse):
        return _unpack_sparse_compact(columns, learner) if compact else _unpack_sparse(columns, learner)
    return _unpack_exact_compact(columns, learner) if compact else _unpack_exact(columns, learner)


class Columns:
    """Arrays of a file, each checked when it is asked for: a file may say anything.

    n_features : d; outputs : () or (k,), the last axis of all that is of targets.
    n_inputs : (J,) pseudo-inputs (or rows) of each model.
    """

    def __init__(self, arrays: Arrays, n_features: int, outputs: tuple[int, ...]) -> None:
        self._arrays, self.n_features, self.outputs = arrays, n_features, outputs
        self.n_inputs = self.counts("n_inputs", least=1)
        self.pieces("inputs", self.n_inputs, n_features)

    def counts(self, name: str, *, least: int = 0) -> Indices:
        """Whole numbers (J,), none of which is less than `least`."""
        array = self._get(name)
        n = len(self.n_inputs) if name != "n_inputs" else array.size
        if array.shape != (n,) or array.dtype.kind != "i" or (array < least).any():
            raise MapError(f"its array {name} makes no sense")
        return array.astype(np.intp)

    def numbers(self, name: str, *shape: int) -> Array:
        """Finite numbers (J, *shape)."""
        return self._finite(name, (len(self.n_inputs), *shape))

    def pieces(self, name: str, sizes: Indices, *shape: int) -> list[Array]:
        """Finite numbers, one array (size, *shape) for each model."""
        if (sizes > self._get(name).size).any():  # before they are added up: that could overflow
            raise MapError(f"its array {name} is too short")
        flat = self._finite(name, (int(sizes.sum()), *shape))
        return [piece.copy() for piece in np.split(flat, np.cumsum(sizes)[:-1])]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def _finite(self, name: str, shape: tuple[int, ...]) -> Array:
        array = self._get(name)
        if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise MapError(f"its array {name} makes no sense")
        return array.astype(np.float64)

    def _get(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            raise MapError(f"it has no array {name}")
        return self._arrays[name]


# Sparse models


def _pack_sparse(models: Sequence[SparseModel]) -> Arrays:
    return {
        **_common_part(models),
        **_beliefs(models),
        "n_summary": np.array([len(model.summary) for model in models]),
        "R": _joined(model.summary.R.ravel(order="F") for model in models),
        "r": _joined(model.summary.r for model in models),
        "L": _joined(_lower_triangle(model.L) for model in models),
        "L_B": _joined(_lower_triangle(model.L_B) for model in models),
        "alpha": _joined(model.alpha for model in models),
        "log_normaliser": np.array([model.log_normaliser for model in models]),
    }


def _unpack_sparse(columns: Columns, learner: _Sparse) -> list[SparseModel]:
    M, K = columns.n_inputs, _summary_sizes(columns)
    R = [flat.reshape(m, k).T for flat, m, k in zip(columns.pieces("R", M * K), M, K, strict=True)]
    summaries = map(
        Summary, columns.pieces("inputs", M, columns.n_features), R, columns.pieces("r", K, *columns.outputs)
    )
    fields = zip(
        _thetas(columns, learner),
        _means(columns),
        summaries,
        _lower_triangles(columns, "L"),
        _lower_triangles(columns, "L_B"),
        columns.pieces("alpha", M, *columns.outputs),
        columns.numbers("log_normaliser").tolist(),
        _scales(columns),
        *_seen(columns),
        _neighbourhoods(columns, learner),
        strict=True,
    )
    return [_read_only(SparseModel(learner.kernel, *values)) for values in fields]


def _pack_sparse_compact(models: Sequence[SparseModel]) -> Arrays:
    """Hyperparameters and pseudo-inputs are rounded first, and what the model knows is then told in terms of these."""
    told = [_told_in_float32(model) for model in models]
    return _in_float32(
        {
            **_common_part(models),
            **_beliefs(models),
            "n_summary": np.array([len(r) for _, r in told]),
            "U": _joined(U[np.triu_indices(len(U), m=U.shape[1])] for U, _ in told),
            "r": _joined(r for _, r in told),
        }
    )


def _told_in_float32(model: SparseModel) -> tuple[Array, Array]:
    theta = Hyperparameters.from_vector(_rounded(model.theta.to_vector()), model.inputs.shape[1])
    return model.whitened_summary(theta, _rounded(model.inputs))


def _unpack_sparse_compact(columns: Columns, learner: _Sparse) -> list[SparseModel]:
    M, K = columns.n_inputs, _summary_sizes(columns)
    triangles = columns.pieces("U", M * K - K * (K - 1) // 2)
    U = [_upper_trapezoid(flat, k, m) for flat, k, m in zip(triangles, K, M, strict=True)]
    fields = zip(
        _thetas(columns, learner),
        _means(columns),
        columns.pieces("inputs", M, columns.n_features),
        zip(U, columns.pieces("r", K, *columns.outputs), strict=True),
        _scales(columns),
        *_seen(columns),
        strict=True,
    )
    models = [sparse.remembered(learner.kernel, *values) for values in fields]
    shared = _neighbourhoods(columns, learner)
    return [replace(model, neighbourhood=theta) for model, theta in zip(models, shared, strict=True)]


def _means(columns: Columns) -> list[float] | list[Array]:
    means = columns.numbers("mean", *columns.outputs)
    return [read_only(mean.copy()) for mean in means] if columns.outputs else means.tolist()


def _summary_sizes(columns: Columns) -> Indices:
    sizes = columns.counts("n_summary")
    if (sizes > columns.n_inputs).any():
        raise MapError("its array n_summary makes no sense")
    return sizes


def _beliefs(models: Sequence[SparseModel]) -> Arrays:
    """What each sparse model has come to believe of its part of the world."""
    return {
        "theta": np.array([model.theta.to_vector() for model in models]),
        "mean": np.array([model.mean for model in models]),
        "scales": np.array([[*model.scales.inputs, model.scales.target] for model in models]),
        "neighbourhood": np.array([model.shared.to_vector() for model in models]),
    }


def _thetas(columns: Columns, learner: _Sparse, name: str = "theta") -> list[Hyperparameters]:
    vectors = columns.numbers(name, columns.n_features + 2 + learner.kernel.n_shape)
    if (vectors <= 0).any():
        raise MapError(f"its array {name} makes no sense")
    return [Hyperparameters.from_vector(vector, columns.n_features) for vector in vectors]


def _neighbourhoods(columns: Columns, learner: _Sparse) -> list[Hyperparameters | None]:
    """None for models that learned them by themselves; format 1 knew no others."""
    if "neighbourhood" not in columns:
        return [None] * len(columns.n_inputs)
    pairs = zip(_thetas(columns, learner), _thetas(columns, learner, "neighbourhood"), strict=True)
    return [None if (own.to_vector() == shared.to_vector()).all() else shared for own, shared in pairs]


def _scales(columns: Columns) -> list[Scales]:
    return [Scales(row[:-1].copy(), float(row[-1])) for row in columns.numbers("scales", columns.n_features + 1)]


# Exact models, which share their hyperparameters with the learner


def _pack_exact(models: Sequence[ExactModel]) -> Arrays:
    return {
        **_common_part(models),
        "targets": _joined(model.targets for model in models),
        "L": _joined(_lower_triangle(model.L) for model in models),
        "alpha": _joined(model.alpha for model in models),
    }


def _unpack_exact(columns: Columns, learner: ExactLearner) -> list[ExactModel]:
    fields = zip(
        *_rows(columns),
        _lower_triangles(columns, "L"),
        columns.pieces("alpha", columns.n_inputs, *columns.outputs),
        *_seen(columns),
        strict=True,
    )
    return [_read_only(ExactModel(learner.kernel, learner.theta, learner.mean, *values)) for values in fields]


def _pack_exact_compact(models: Sequence[ExactModel]) -> Arrays:
    return _in_float32({**_common_part(models), "targets": _joined(model.targets for model in models)})


def _unpack_exact_compact(columns: Columns, learner: ExactLearner) -> list[ExactModel]:
    fields: Iterable[Any] = zip(*_rows(columns), *_seen(columns), strict=True)
    return [exact.remembered(learner.kernel, learner.theta, learner.mean, *values) for values in fields]


def _rows(columns: Columns) -> tuple[list[Array], list[Array]]:
    sizes = columns.n_inputs
    return columns.pieces("inputs", sizes, columns.n_features), columns.pieces("targets", sizes, *columns.outputs)


# What both kinds have


def _common_part(models: Sequence[Any]) -> Arrays:
    return {
        "n_inputs": np.array([len(model.inputs) for model in models]),
        "n_seen": np.array([model.n_seen for model in models]),
        "inputs": np.concatenate([model.inputs for model in models]),
        "centre": np.array([model.centre for model in models]),
        "log_evidence": np.array([model.log_evidence for model in models]),
    }


def _seen(columns: Columns) -> tuple[list[int], list[Array], list[float]]:
    """The last three fields of a model: n_seen, centre, log_evidence."""
    centres = [centre.copy() for centre in columns.numbers("centre", columns.n_features)]
    return columns.counts("n_seen", least=1).tolist(), centres, columns.numbers("log_evidence").tolist()


def _read_only(model: Any) -> Any:
    for array in [*vars(model).values(), *vars(getattr(model, "summary", model)).values()]:
        if isinstance(array, np.ndarray):
            read_only(array)
    return model


# Arrays


def _joined(arrays: Iterable[Array]) -> Array:
    return np.concatenate(list(arrays))


def _lower_triangle(L: Array) -> Array:
    return L[np.tril_indices(len(L))]


def _lower_triangles(columns: Columns, name: str) -> list[Array]:
    M = columns.n_inputs
    return [_lower_matrix(flat, m) for flat, m in zip(columns.pieces(name, M * (M + 1) // 2), M, strict=True)]


def _lower_matrix(flat: Array, size: int) -> Array:
    L = np.zeros((size, size), order="F")  # as LAPACK makes it: memory order decides the last bits of products
    L[np.tril_indices(size)] = flat
    return L


def _upper_trapezoid(flat: Array, n_rows: int, n_columns: int) -> Array:
    U = np.zeros((n_rows, n_columns))
    U[np.triu_indices(n_rows, m=n_columns)] = flat
    return U


def _rounded(array: Array) -> Array:
    """The nearest numbers that float32 can hold."""
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32).astype(np.float64)
    if not np.isfinite(rounded).all():
        raise MapError("the models have numbers that float32 cannot hold; save without compact")
    return rounded


def _in_float32(arrays: Arrays) -> Arrays:
    """Numbers as float32, counts as int32."""
    is_count = {name: array.dtype.kind == "i" for name, array in arrays.items()}
    return {
        name: array.astype(np.int32) if is_count[name] else _rounded(array).astype(np.float32)
        for name, array in arrays.items()
    }
