"""Local models and step records as flat arrays, and back (docs/format.md).

Models differ in size, so rows of all models stand one model after the other in one array, and `n_inputs` says how many
belong to each. Triangular matrices are stored without their zeros. The full form keeps every bit. The compact form is
float32 and holds what prediction needs: pseudo-inputs and whitened summary, or the rows of an exact model.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgpr.ensemble.evaluation import Change, StepRecord
from wgpr.gp.bound import Fit, Observations, Summary
from wgpr.gp.exact import ExactLearner, ExactModel, factor, whitened
from wgpr.gp.hyperparameters import Scales
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array, Indices, read_only
from wgpr.gp.sparse import SparseModel
from wgpr.io.container import Arrays, MapError, require

Shape = tuple[int, ...]

# Larger numbers would leave the range of float64 when they are squared or converted to the user's units.
LARGEST_OF_MODEL, _LARGEST_OF_ROW = 1e101, 1e150

# These arrays have the rows of all models. All others have an entry for each model.
_ROWS = {"inputs", "targets", "R", "r", "U", "L", "L_B", "alpha"}

# Arrays of the history by fields of `StepRecord`: one number for each step, or a list of them with its length.
_OF_STEPS = {
    "n_samples": ("step_samples", "i"),
    "seconds": ("step_seconds", "f"),
    "n_evaluations": ("step_evaluations", "i"),
    "evidence_new": ("step_evidence_new", "f"),
}
_LISTS = {
    "candidates": ("step_candidates", "i", ()),
    "w_old": ("step_candidates", "f", ()),
    "w_new": ("step_candidates", "f", ()),
    "evidence": ("step_candidates", "f", ()),
    "changes": ("step_changes", "i", (3,)),
    "merged": ("step_merged", "i", (2,)),
}
_DTYPES: Mapping[str, type] = {"i": np.int64, "f": np.float64}


def read_array(arrays: Arrays, name: str, kind: str, *shape: int | None, finite: bool = True) -> NDArray[Any]:
    """A checked copy of an array of a file, as int64 or float64.

    kind : "i" for integers, "f" for floating point; shape : None for any length; finite : False to allow NaN.
    """
    if name not in arrays:
        raise MapError(f"it has no array {name}")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(n in (None, given) for n, given in zip(shape, array.shape, strict=True))
    require(fits and array.dtype.kind == kind and (not finite or bool(np.isfinite(array).all())), f"array {name}")
    return array.astype(_DTYPES[kind])


# Models to arrays


def pack_models(models: Sequence[Any], *, compact: bool) -> Arrays:
    """Arrays that hold these models, at least one, all of one class."""
    parts = [_model_arrays(model, compact) for model in models]
    joins = {name: np.concatenate if name in _ROWS else np.stack for name in parts[0]}
    arrays = {name: join([part[name] for part in parts]) for name, join in joins.items()}
    return {name: to_32_bits(array) for name, array in arrays.items()} if compact else arrays


def _model_arrays(model: Any, compact: bool) -> dict[str, Any]:
    arrays = {
        "n_inputs": len(model.inputs),
        "n_seen": model.n_seen,
        "inputs": model.inputs,
        "centre": model.centre,
        "log_evidence": model.log_evidence,
    }
    factors = {} if compact else {"L": model.L[np.tril_indices(len(model.L))], "alpha": model.alpha}
    if isinstance(model, ExactModel):
        return {**arrays, **factors, "targets": model.targets}
    prior = {
        "theta": model.theta.to_vector(),
        "mean": model.mean,
        "scales": np.append(model.scales.inputs, model.scales.target),
    }
    if compact:
        return {**arrays, **prior, **_whitened(model)}
    summary = {
        "n_summary": len(model.summary),
        "R": model.summary.R.ravel(order="F"),
        "r": model.summary.r,
        "L_B": model.L_B[np.tril_indices(len(model.L_B))],
        "log_normaliser": model.log_normaliser,
    }
    return {**arrays, **factors, **prior, **summary}


def _whitened(model: SparseModel) -> dict[str, Any]:
    """The whitened summary for hyperparameters and pseudo-inputs that are rounded already, as they will be loaded."""
    theta = Hyperparameters.from_vector(rounded(model.theta.to_vector()), model.inputs.shape[1])
    U, r = model.whitened_summary(theta, rounded(model.inputs))
    return {"n_summary": len(r), "U": U[np.triu_indices(len(U), m=U.shape[1])], "r": r}


def rounded(array: Array) -> Array:
    """The nearest numbers that float32 can hold."""
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32).astype(np.float64)
    if not np.isfinite(rounded).all():
        raise MapError("the models have numbers that float32 cannot hold; save without compact")
    return rounded


def to_32_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Of integers, 64 bits where 32 do not hold them."""
    if array.dtype.kind == "i":
        return array if np.abs(array).max(initial=0) >= 2**31 else array.astype(np.int32)
    return rounded(array).astype(np.float32)


# Arrays to models


def unpack_models(arrays: Arrays, learner: Any, n_features: int, outputs: Shape, *, compact: bool) -> list[Any]:
    """The models that were packed. learner : the one that made them; outputs : () or (k,), shape of a target."""
    reader = Reader(arrays, n_features, outputs)
    fields: dict[str, Sequence[Any]] = {
        "n_seen": reader.counts("n_seen", least=1).tolist(),
        "centre": reader.per_model("centre", n_features),
        "log_evidence": reader.per_model("log_evidence"),
    }
    if not compact:
        fields |= {"L": reader.triangles("L"), "alpha": reader.rows("alpha", reader.n_inputs, *outputs)}
    if not isinstance(learner, ExactLearner):
        return _sparse_models(reader, learner.kernel, fields, compact)
    targets = reader.rows("targets", reader.n_inputs, *outputs)
    fields |= {"inputs": reader.inputs, "targets": targets}
    if compact:
        L = [factor(learner.kernel, learner.theta, X) for X in reader.inputs]
        fields |= {"L": L, "alpha": list(map(whitened, L, (y - learner.mean for y in targets)))}
    return [ExactModel(learner.kernel, learner.theta, learner.mean, **model) for model in _each(fields)]


class Reader:
    """Checks each array of a file when it is read, and splits it by models. The parts are read-only.

    n_inputs : (J,) pseudo-inputs (or rows) of each model; inputs : (M, d) of each; outputs : () or (k,).
    """

    def __init__(self, arrays: Arrays, n_features: int, outputs: Shape) -> None:
        self.arrays, self.n_features, self.outputs = arrays, n_features, outputs
        self.n_inputs = read_array(arrays, "n_inputs", "i", None)
        require(bool((self.n_inputs > 0).all()), "array n_inputs")
        # Checked before other sizes: products of numbers that are no larger than an array do not overflow.
        self.inputs = self.rows("inputs", self.n_inputs, n_features)
        require(all(np.abs(Z).max() < 1e100 for Z in self.inputs), "array inputs")  # distances must be finite

    def counts(self, name: str, *, least: int = 0) -> Indices:
        counts = read_array(self.arrays, name, "i", len(self.n_inputs))
        require(bool((counts >= least).all()), f"array {name}")
        return counts

    def per_model(self, name: str, *shape: int) -> list[Any]:
        """A number, or an array of this shape, for each model."""
        array = read_array(self.arrays, name, "f", len(self.n_inputs), *shape)
        require(bool((np.abs(array) < LARGEST_OF_MODEL).all()), f"array {name}")
        return list(map(read_only, array)) if shape else array.tolist()

    def rows(self, name: str, sizes: Indices, *shape: int) -> list[Array]:
        """An array (size, *shape) for each model."""
        array = read_array(self.arrays, name, "f", None, *shape)
        require(bool((np.abs(array) < _LARGEST_OF_ROW).all()), f"array {name}")
        return [read_only(part.copy()) for part in split(array, sizes, name)]

    def triangles(self, name: str) -> list[Array]:
        """A Cholesky factor (M, M) for each model."""
        M = self.n_inputs
        parts = zip(self.rows(name, M * (M + 1) // 2), M, strict=True)
        matrices = [_filled((m, m), np.tril_indices(m), flat) for flat, m in parts]
        require(all((np.diagonal(L) > 1.0 / LARGEST_OF_MODEL).all() for L in matrices), f"array {name}")
        return matrices

    def thetas(self, name: str, n_shape: int) -> list[Hyperparameters]:
        vectors = self.per_model(name, self.n_features + 2 + n_shape)
        require(all((vector > 0).all() for vector in vectors), f"array {name}")
        return [Hyperparameters.from_vector(vector, self.n_features) for vector in vectors]


def _sparse_models(
    reader: Reader, kernel: Kernel, fields: dict[str, Sequence[Any]], compact: bool
) -> list[SparseModel]:
    M, K = reader.n_inputs, reader.counts("n_summary")
    require(bool((K <= M).all()), "array n_summary")
    r = reader.rows("r", K, *reader.outputs)
    thetas, scales = reader.thetas("theta", kernel.n_shape), reader.per_model("scales", reader.n_features + 1)
    fields = fields | {
        "mean": reader.per_model("mean", *reader.outputs),
        "scales": [Scales(row[:-1], float(row[-1])) for row in scales],
    }
    if compact:
        trapezoids = zip(reader.rows("U", M * K - K * (K - 1) // 2), K, M, strict=True)
        U = [_filled((k, m), np.triu_indices(k, m=m), flat) for flat, k, m in trapezoids]
        fits = [_fit(kernel, *known) for known in zip(thetas, reader.inputs, U, r, strict=True)]
        return [SparseModel.from_fit(**model) for model in _each(fields | {"fit": fits})]
    R = [flat.reshape(m, k).T for flat, m, k in zip(reader.rows("R", M * K), M, K, strict=True)]
    fields |= {"theta": thetas, "inputs": reader.inputs, "summary": list(map(Summary, reader.inputs, R, r))}
    fields |= {"L_B": reader.triangles("L_B"), "log_normaliser": reader.per_model("log_normaliser")}
    return [SparseModel(kernel, **model) for model in _each(fields)]


def _fit(kernel: Kernel, theta: Hyperparameters, Z: Array, U: Array, r: Array) -> Fit:
    """The posterior of a whitened summary at `Z` (M, d)."""
    summary = Summary.from_whitened(kernel, theta, Z, U, r)
    return Observations.of_summary(kernel, summary).explained_by(theta, Z)


def _each(fields: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """The fields of each model or record, from the values of each field."""
    return [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]


def split(array: NDArray[Any], sizes: Indices, name: str) -> list[NDArray[Any]]:
    """Parts of these sizes, which must add up to the length of the array."""
    is_sum = bool((sizes >= 0).all() and (sizes <= len(array)).all()) and int(sizes.sum()) == len(array)
    require(is_sum, f"array {name}")
    return np.split(array, np.cumsum(sizes)[:-1])[: len(sizes)]


def _filled(size: tuple[int, int], indices: tuple[Indices, Indices], flat: Array) -> Array:
    matrix = np.zeros(size, order="F")  # as LAPACK makes it: memory order decides the last bits of products
    matrix[indices] = flat
    return read_only(matrix)


# History


def pack_history(records: Sequence[StepRecord]) -> Arrays:
    """Arrays that hold these records. NaN stands for None."""
    arrays: Arrays = {}
    for field, (name, kind) in _OF_STEPS.items():
        arrays[name] = np.array([getattr(record, field) for record in records], dtype=_DTYPES[kind])
    for field, (sizes, kind, shape) in _LISTS.items():
        lists = [getattr(record, field) for record in records]
        arrays[sizes] = np.array(list(map(len, lists)), dtype=np.int64)
        values = [value for values in lists for value in values]
        arrays[field] = np.array(values, dtype=_DTYPES[kind]).reshape(-1, *shape)
    return arrays


def unpack_history(arrays: Arrays, n_steps: int) -> tuple[StepRecord, ...]:
    """The records that were packed; the last is of step number `n_steps - 1`."""
    n_records = len(read_array(arrays, "step_candidates", "i", None))
    none = np.zeros(n_records, dtype=np.int64)  # format 1 and the first maps of format 2 lack these arrays
    arrays = {"step_evaluations": none, "step_merged": none, "merged": np.zeros((0, 2), dtype=np.int64), **arrays}
    fields: dict[str, Iterable[Any]] = {"number": range(n_steps - n_records, n_steps)}
    for field, (name, kind) in _OF_STEPS.items():
        fields[field] = _with_none(read_array(arrays, name, kind, n_records, finite=field != "evidence_new"))
    for field, (name, kind, shape) in _LISTS.items():
        values = read_array(arrays, field, kind, None, *shape, finite=False)
        fields[field] = map(_with_none, split(values, read_array(arrays, name, "i", n_records), field))
    return tuple(map(_record, _each(fields)))


def _record(fields: dict[str, Any]) -> StepRecord:
    failed = zip(fields["candidates"], fields["evidence"], strict=True)
    changes = tuple(Change(model, n_samples, bool(is_new)) for model, n_samples, is_new in fields["changes"])
    merged = tuple((first, second) for first, second in fields["merged"])
    dropped = tuple(number for number, evidence in failed if evidence is None)
    return StepRecord(**fields | {"dropped": dropped, "changes": changes, "merged": merged})


def _with_none(values: NDArray[Any]) -> tuple[Any, ...]:
    return tuple(None if value != value else value for value in values.tolist())
