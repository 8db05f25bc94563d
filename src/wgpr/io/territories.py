"""Territories as flat arrays, and back (docs/format.md).

Points of all territories stand one territory after the other, and `n_inputs` says how many belong to each. The full
form keeps every bit. The compact form is float32 and holds what prediction needs; learning can go on from it too.
The tree of cuts is a list of its nodes, each before its children: a territory is its number, a cut is -1 - axis.
"""

import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgpr.ensemble.cuts import Cuts, Node
from wgpr.ensemble.territories import Territories
from wgpr.ensemble.territory import Territory
from wgpr.gp.kernels import Kernel
from wgpr.gp.linalg import Array, Indices
from wgpr.gp.pseudodata import PseudoData
from wgpr.io.arrays import Reader, Shape, read_array, rounded, split, to_32_bits
from wgpr.io.container import Arrays, MapError, require

# Larger hyperparameters, or smaller than the inverse, and such precisions would leave the range of float64 in products.
# Inputs are at most 1e60 (`Units`), and length-scales a hundred times as long.
_LARGEST_THETA, _LARGEST_PRECISION, _LARGEST_INPUT = 1e63, 1e130, 1e61

# Precisions below this mean nothing, and float32 holds them.
_LEAST_COMPACT_PRECISION = 1e-30

# Trees are this deep at the most, so that no function that recurs into them fails.
_DEEPEST = 300


# Territories to arrays


def pack_territories(territories: Territories, *, compact: bool) -> Arrays:
    """Arrays that hold these territories."""
    models = pack_models(territories.models, territories.overview.centres, compact=compact)
    return {**models, **pack_cuts(territories.cuts, compact=compact)}


def pack_models(models: Sequence[Territory], centres: Array, *, compact: bool) -> Arrays:
    """Arrays that hold some territories; centres (J, d) : as they were when these were looked at."""
    data = PseudoData.union(*(model.data for model in models))
    arrays: Arrays = {
        "n_inputs": np.array([len(model.data) for model in models]),
        "n_seen": np.array([model.n_seen for model in models]),
        "visited": np.array([model.visited for model in models]),
        "theta": np.array([model.theta.to_vector() for model in models]),
        "mean": np.array([model.mean for model in models]),
        "centre": centres,
        "inputs": data.Z,
        "values": data.t,
        "precision": data.precision,
    }
    is_row = np.packbits(data.is_row)
    if compact:
        arrays["precision"] = np.maximum(data.precision, _LEAST_COMPACT_PRECISION)
        return {**{name: to_32_bits(array) for name, array in arrays.items()}, "is_row": is_row}
    return {
        **arrays,
        "is_row": is_row,
        "n_fitted": np.array([model.n_fitted for model in models]),
        "n_known": np.array([model.n_known for model in models]),
        "spread": np.array([model.spread for model in models]),
        "log_evidence": np.array([model.log_evidence for model in models]),
    }


def pack_cuts(cuts: Node, *, compact: bool) -> Arrays:
    """Arrays that hold a tree of cuts."""
    nodes = list(_in_order(cuts))
    positions = [node.positions for node in nodes if isinstance(node, Cuts)]
    arrays: Arrays = {
        "cut_nodes": np.array([-1 - node.axis if isinstance(node, Cuts) else node for node in nodes], dtype=np.int64),
        "cut_counts": np.array([len(some) for some in positions], dtype=np.int64),
        "cut_positions": np.array([position for some in positions for position in some], dtype=np.float64),
    }
    return {name: to_32_bits(array) for name, array in arrays.items()} if compact else arrays


def _in_order(node: Node) -> Iterator[Node]:
    """All nodes of a tree, each before its children."""
    yield node
    for child in node.children if isinstance(node, Cuts) else ():
        yield from _in_order(child)


# Arrays to territories


def unpack_territories(
    arrays: Arrays, kernel: Kernel, n_features: int, outputs: Shape, n_learned: int, *, compact: bool
) -> Territories:
    """The territories that were packed. outputs : () or (k,), shape of a target; n_learned : rows learned so far."""
    models, centres = unpack_models(arrays, kernel, n_features, outputs, n_learned, compact=compact)
    cuts = unpack_cuts(arrays, n_features, len(models))
    return Territories.of(models, cuts, centres=centres, n_learned=n_learned)


def unpack_models(
    arrays: Arrays, kernel: Kernel, n_features: int, outputs: Shape, n_learned: int, *, compact: bool
) -> tuple[list[Territory], Array]:
    """The territories that were packed, and their centres (J, d)."""
    reader, k = Reader(arrays, n_features, outputs), outputs[0] if outputs else 1
    data = _unpack_points(reader, k)
    n_seen, visited = reader.counts("n_seen"), reader.counts("visited")
    require(bool((visited <= n_learned).all()), "array visited")
    thetas = reader.thetas("theta", kernel.n_shape)
    for theta in thetas:
        vector = theta.to_vector()
        require(bool(((vector < _LARGEST_THETA) & (vector > 1.0 / _LARGEST_THETA)).all()), "array theta")
    if compact:
        n_fitted, n_known, log_evidence = n_seen, reader.n_inputs, [0.0] * len(thetas)
        spread = [points.Z.std(axis=0) for points in data]
    else:
        n_fitted, n_known = reader.counts("n_fitted"), reader.counts("n_known")
        require(bool((n_known <= reader.n_inputs).all()), "array n_known")
        spread, log_evidence = reader.per_model("spread", n_features), reader.per_model("log_evidence")
        require(all((each >= 0).all() for each in spread), "array spread")
    counts = (n_seen.tolist(), n_fitted.tolist(), n_known.tolist())
    fields = zip(
        thetas, reader.per_model("mean", k), data, *counts, spread, visited.tolist(), log_evidence, strict=True
    )
    models = [Territory(kernel, *each) for each in fields]
    return models, read_array(arrays, "centre", "f", len(models), n_features)


def _unpack_points(reader: Reader, n_outputs: int) -> list[PseudoData]:
    """The pseudo-data of each territory."""
    n_inputs, n_points = reader.n_inputs, int(reader.n_inputs.sum())
    precision = reader.rows("precision", n_inputs)
    in_range = all(((part >= 1.0 / 1e300) & (part < _LARGEST_PRECISION)).all() for part in precision)
    require(in_range, "array precision")
    require(all(np.abs(Z).max() < _LARGEST_INPUT for Z in reader.inputs), "array inputs")
    bits = reader.arrays.get("is_row")
    require(bits is not None and bits.dtype == np.uint8 and bits.shape == (-(-n_points // 8),), "array is_row")
    assert bits is not None
    is_row = split(np.unpackbits(bits, count=n_points).astype(np.bool_), n_inputs, "is_row")
    parts = zip(reader.inputs, reader.rows("values", n_inputs, n_outputs), precision, is_row, strict=True)
    return [PseudoData(*part) for part in parts]


def unpack_cuts(arrays: Arrays, n_features: int, n_models: int) -> Node:
    """The tree that was packed: it has each of the territories once."""
    nodes = read_array(arrays, "cut_nodes", "i", None).tolist()
    counts = read_array(arrays, "cut_counts", "i", None)
    positions = split(read_array(arrays, "cut_positions", "f", None), counts, "cut_positions")
    is_tree = len(nodes) == n_models + len(counts) and len(nodes) - 1 == int((counts + 1).sum())
    require(is_tree and sorted(node for node in nodes if node >= 0) == list(range(n_models)), "array cut_nodes")
    require(min(nodes) >= -n_features and bool((counts > 0).all()), "array cut_nodes")
    require(all((np.diff(part) >= 0).all() for part in positions), "array cut_positions")
    codes, cuts = iter(nodes), (tuple(part.tolist()) for part in positions)

    def tree(depth: int) -> Node:
        require(depth <= _DEEPEST, "array cut_nodes")
        code: int = next(codes)  # there is one: the counts add up to the number of nodes
        if code >= 0:
            return code
        at = next(cuts)
        return Cuts(-1 - code, at, tuple([tree(depth + 1) for _ in range(len(at) + 1)]))

    root = tree(0)
    require(next(codes, None) is None, "array cut_nodes")
    return root


# What changed between two states of the same stream


def fingerprints(territories: Territories) -> list[tuple[int, str]]:
    """Of each territory, rows seen and a hash of all that a compact map holds of it: full and compact form agree."""
    marks = []
    for territory, centre in zip(territories.models, territories.overview.centres, strict=True):
        arrays = pack_models([territory], centre[None], compact=True)
        data = b"".join(arrays[name].tobytes() for name in sorted(arrays))
        marks.append((territory.n_seen, blake2b(data, digest_size=8).hexdigest()))
    return marks


def pack_difference(before: Territories, after: Territories) -> Arrays:
    """What `after` has and `before` has not: changed territories without points that are known, and changed cuts.

    numbers : of the changed territories; shifts : of the others, their number before minus that after.
    known : of each point of a changed territory, its place among all points before, or -1; as differences.
    """
    old = {mark: number for number, mark in enumerate(fingerprints(before))}
    sources = np.array([old.get(mark, -1) for mark in fingerprints(after)], dtype=np.int64)
    changed = np.flatnonzero(sources < 0)
    shifts = (sources - np.arange(len(sources)))[sources >= 0]
    arrays: Arrays = {"numbers": changed.astype(np.int32)}
    arrays |= {"shifts": shifts.astype(np.int32)} if shifts.any() else {}
    if len(changed):
        models = pack_models(
            [after.models[number] for number in changed], after.overview.centres[changed], compact=True
        )
        known = _known_points(before, models["inputs"], models["values"])
        is_new = known < 0
        models |= {"inputs": models["inputs"][is_new], "values": models["values"][is_new]}
        arrays |= models | {"known": np.diff(known, prepend=0).astype(np.int32)}
    return arrays | _changed_cuts(before, after)


def apply_difference(
    before: Territories, arrays: Arrays, n_features: int, outputs: Shape, n_models: int, n_learned: int
) -> Territories:
    """The territories after a difference."""
    numbers = read_array(arrays, "numbers", "i", None)
    is_order = bool((np.diff(numbers) > 0).all() and (numbers >= 0).all() and (numbers < n_models).all())
    require(is_order and n_models - len(numbers) <= len(before), "numbers")
    others = np.setdiff1d(np.arange(n_models), numbers)
    sources = others + (read_array(arrays, "shifts", "i", len(others)) if "shifts" in arrays else 0)
    require(bool(((sources >= 0) & (sources < len(before))).all()), "shifts")
    models: dict[int, Territory] = {n: before.models[s] for n, s in zip(others.tolist(), sources.tolist(), strict=True)}
    centres = np.empty((n_models, n_features))
    centres[others] = before.overview.centres[sources]
    if len(numbers):
        arrays = {**arrays, **_all_points(before, arrays, n_features, outputs)}
        kernel = before.models[0].kernel
        changed, centres[numbers] = unpack_models(arrays, kernel, n_features, outputs, n_learned, compact=True)
        models |= dict(zip(numbers.tolist(), changed, strict=True))
    arrays = {**arrays, **_all_cuts(before, arrays, n_models)}
    cuts = unpack_cuts(arrays, n_features, n_models) if "cut_nodes" in arrays else before.cuts
    require("cut_nodes" in arrays or n_models == len(before), "array cut_nodes")
    in_order = [models[number] for number in range(n_models)]
    return Territories.of(in_order, cuts, centres=centres, n_learned=n_learned)


def _changed_cuts(before: Territories, after: Territories) -> Arrays:
    """The cuts, if they have changed, compressed by what they have in common with those before."""
    old, new = (pack_cuts(each.cuts, compact=True) for each in (before, after))
    if all(np.array_equal(old[name], new[name]) for name in new):
        return {}
    changed: Arrays = {}
    for name, array in new.items():
        compressor = zlib.compressobj(9, zdict=old[name].tobytes())
        changed[f"{name}_change"] = np.frombuffer(
            compressor.compress(array.tobytes()) + compressor.flush(), dtype=np.uint8
        )
    return changed


def _all_cuts(before: Territories, arrays: Arrays, n_models: int) -> Arrays:
    """The arrays of cuts that a difference has compressed; none if they did not change."""
    old = pack_cuts(before.cuts, compact=True)
    changed = [name for name in old if f"{name}_change" in arrays]
    require(len(changed) in (0, len(old)), "arrays of cuts")
    return {name: _decompressed(arrays[f"{name}_change"], old[name], 2 * n_models, name) for name in changed}


def _decompressed(change: NDArray[Any], old: NDArray[Any], n_most: int, name: str) -> NDArray[Any]:
    """An array of at most `n_most` numbers, compressed with an old one as dictionary."""
    decompressor = zlib.decompressobj(zdict=old.tobytes())
    try:
        data = decompressor.decompress(change.tobytes(), n_most * old.itemsize + 1)
    except zlib.error as error:
        raise MapError(f"array {name} is damaged") from error
    require(decompressor.eof and not decompressor.unused_data and len(data) % old.itemsize == 0, f"array {name}")
    return np.frombuffer(data, dtype=old.dtype)


def _points(territories: Territories) -> PseudoData:
    return PseudoData.union(*(model.data for model in territories.models))


def _known_points(before: Territories, Z: Array, t: Array) -> Indices:
    """Which of all points before has this place and these values in float32, -1 for none: (m,)."""
    points = _points(before)
    rows = np.concatenate([rounded(points.Z), rounded(points.t)], axis=1).astype(np.float32)
    number_of = {row.tobytes(): number for number, row in enumerate(rows)}
    wanted = np.concatenate([Z, t], axis=1)
    return np.array([number_of.get(row.tobytes(), -1) for row in wanted], dtype=np.int64)


def _all_points(before: Territories, arrays: Arrays, n_features: int, outputs: Shape) -> Arrays:
    """Places and values of all points of the changed territories, known and new."""
    points, k = _points(before), outputs[0] if outputs else 1
    known = np.cumsum(read_array(arrays, "known", "i", None))
    require(bool(((known >= -1) & (known < len(points))).all()), "array known")
    is_new = known < 0
    parts: Arrays = {"inputs": points.Z[known], "values": points.t[known]}
    for name, size in (("inputs", n_features), ("values", k)):
        parts[name][is_new] = read_array(arrays, name, "f", int(is_new.sum()), size)
    return parts
