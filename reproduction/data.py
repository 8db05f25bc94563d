"""Which rows are learned, and which are held out.

Neighbouring rows on the track of a boat are nearly copies of each other, and so are those of a recording. So whole
survey lines, stretches of a track or blocks of time are held out; and of the rest, single rows, as is usual. The same
model is scored on both, and the difference shows how optimistic the second score is.
Settings are chosen within the training stream, by holding out some of it in the same way as the test rows.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from reproduction.datasets import Dataset, load
from reproduction.plan import TOY, TOY_NOISE, Plan
from wgpr.datasets import two_regimes

Array = NDArray[np.float64]

TEST_PART, NEIGHBOUR_PART, VALIDATION_PART = 0.2, 0.1, 0.2

_TOY_ROWS = 3000

# Different draws of one trial have different seeds: the trial's own for the test rows, and these for the others.
_VALIDATION_SEED, _SUBSET_SEED = 10_000, 20_000


@dataclass(frozen=True, eq=False)
class TrialData:
    """A stream to learn, and rows to score predictions on.

    stream : rows to learn, in their order, and the test rows.
    X_near (n, d), y_near (n,) : rows held out one by one, with neighbours in the stream. There are none where the test
        rows themselves were drawn one by one.
    """

    stream: Dataset
    X_near: Array
    y_near: Array


def trial_data(name: str, trial: int, folder: str | Path | None, plan: Plan) -> TrialData:
    """The data of a trial: always the same for the same trial."""
    if name == TOY:
        return _toy(trial, plan)
    data = _shortened(load(name, folder, fetch=True), trial, plan)
    if len(data.y_test):  # an established split
        return _with_fewer_test_rows(data.shuffled(trial), trial, plan)
    if not data.is_stream:
        return _with_fewer_test_rows(data.split(trial, TEST_PART), trial, plan)
    stream = data.split(trial, TEST_PART, whole_groups=True)
    rest = stream.split(trial, NEIGHBOUR_PART)
    near = _sample(len(rest.y_test), plan.max_test_rows, trial)
    found = _with_fewer_test_rows(replace(rest, X_test=stream.X_test, y_test=stream.y_test), trial, plan)
    return replace(found, X_near=rest.X_test[near], y_near=rest.y_test[near])


def validation_split(stream: Dataset, trial: int) -> Dataset:
    """The training stream without a part of it, which is held out in the same way as the test rows were."""
    return stream.split(trial + _VALIDATION_SEED, VALIDATION_PART, whole_groups=stream.is_stream)


def all_rows(name: str, is_shuffled: bool, folder: str | Path | None, plan: Plan) -> Dataset:
    """All rows to learn from, in their own order or shuffled."""
    data = _shortened(load(name, folder, fetch=True), 0, plan)
    return data.shuffled(0) if is_shuffled else data


def _toy(seed: int, plan: Plan) -> TrialData:
    """Every other sample is learned, and the rest held out. So the regimes meet at the end of a batch."""
    n_rows = min(_TOY_ROWS, plan.max_rows or _TOY_ROWS)
    X, y, _ = two_regimes(2 * n_rows, TOY_NOISE, random_state=seed)
    data = Dataset(TOY, X[::2], y[::2], X[1::2], y[1::2], np.arange(n_rows), is_stream=True)
    return _with_fewer_test_rows(data, seed, plan)


def _with_fewer_test_rows(data: Dataset, trial: int, plan: Plan) -> TrialData:
    kept = _sample(len(data.y_test), plan.max_test_rows, trial)
    return TrialData(replace(data, X_test=data.X_test[kept], y_test=data.y_test[kept]), data.X[:0], data.y[:0])


def _shortened(data: Dataset, trial: int, plan: Plan) -> Dataset:
    """As many rows as the plan allows: of a stream the first, of others random ones."""
    return data.rows(slice(plan.max_rows) if data.is_stream else _sample(len(data.y), plan.max_rows, trial))


def _sample(n_rows: int, n_wanted: int | None, trial: int) -> NDArray[Any]:
    if n_wanted is None or n_wanted >= n_rows:
        return np.arange(n_rows)
    return np.sort(check_random_state(trial + _SUBSET_SEED).choice(n_rows, n_wanted, replace=False))
