"""The records of an ensemble's steps as a few flat arrays, and back; what a record does not have is stored as NaN."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wgpr.ensemble.records import Change, StepRecord
from wgpr.gp.linalg import Array
from wgpr.io.container import Arrays, MapError

_OF_CANDIDATES = ("w_old", "w_new", "evidence")


def pack_history(records: Sequence[StepRecord]) -> Arrays:
    """Arrays that hold these records: (S,) of the steps, (C,) of all candidates, (H, 3) of all changes."""
    return {
        "step_samples": np.array([record.n_samples for record in records], dtype=np.int64),
        "step_seconds": np.array([record.seconds for record in records], dtype=np.float64),
        "step_evaluations": np.array([record.n_evaluations for record in records], dtype=np.int64),
        "step_evidence_new": _with_nan([record.evidence_new for record in records]),
        "step_candidates": np.array([len(record.candidates) for record in records], dtype=np.int64),
        "step_changes": np.array([len(record.changes) for record in records], dtype=np.int64),
        "candidates": _joined(records, "candidates", np.int64),
        **{name: _with_nan(_joined(records, name, object)) for name in _OF_CANDIDATES},
        "changes": _joined(records, "changes", np.int64).reshape(-1, 3),
        "step_merged": np.array([len(record.merged) for record in records], dtype=np.int64),
        "merged": _joined(records, "merged", np.int64).reshape(-1, 2),
    }


def unpack_history(arrays: Arrays, n_steps: int) -> tuple[StepRecord, ...]:
    """The records that were packed; the last is of step number `n_steps - 1`."""
    try:
        records = tuple(_records(arrays, n_steps))
    except (KeyError, ValueError, IndexError) as error:
        raise MapError(f"its history makes no sense ({error})") from error
    return records


def _records(arrays: Arrays, n_steps: int) -> Iterator[StepRecord]:
    n_candidates, n_changes = arrays["step_candidates"], arrays["step_changes"]
    candidates = _split(arrays["candidates"], n_candidates)
    of_candidates = [_split(arrays[name], n_candidates) for name in _OF_CANDIDATES]
    changes = _split(arrays["changes"], n_changes)
    merged = _merged(arrays, len(n_candidates))
    n_evaluations = arrays.get("step_evaluations", np.zeros_like(n_candidates))  # the first maps did not tell
    first = n_steps - len(n_candidates)
    for place, seconds in enumerate(arrays["step_seconds"].tolist()):
        numbers = tuple(candidates[place].tolist())
        w_old, w_new, evidence = (_with_none(column[place]) for column in of_candidates)
        yield StepRecord(
            number=first + place,
            n_samples=int(arrays["step_samples"][place]),
            candidates=numbers,
            w_old=w_old,
            w_new=w_new,
            evidence=evidence,
            evidence_new=_with_none(arrays["step_evidence_new"][place : place + 1])[0],
            dropped=tuple(number for number, known in zip(numbers, evidence, strict=True) if known is None),
            changes=tuple(
                Change(model, n_samples, bool(is_new)) for model, n_samples, is_new in changes[place].tolist()
            ),
            seconds=seconds,
            n_evaluations=int(n_evaluations[place]),
            merged=merged[place],
        )


def _merged(arrays: Arrays, n_steps: int) -> list[tuple[tuple[int, int], ...]]:
    """Pairs that were merged in each step; format 1 knew none."""
    if "merged" not in arrays:
        return [()] * n_steps
    return [tuple((a, b) for a, b in pairs.tolist()) for pairs in _split(arrays["merged"], arrays["step_merged"])]


def _joined(records: Sequence[StepRecord], name: str, dtype: Any) -> NDArray[Any]:
    return np.array([value for record in records for value in getattr(record, name)], dtype=dtype)


def _split(array: NDArray[Any], sizes: NDArray[Any]) -> list[NDArray[Any]]:
    if (sizes < 0).any() or (sizes > len(array)).any() or sizes.sum() != len(array):
        raise ValueError("sizes do not add up")
    return np.split(array, np.cumsum(sizes)[:-1]) if len(sizes) else []


def _with_nan(values: Iterable[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _with_none(values: Array) -> tuple[float | None, ...]:
    return tuple(None if value != value else value for value in values.tolist())
