"""What is learned and what is held out. Nothing that a method is judged by is ever seen before.

Rows of a lake that are neighbours on a track are nearly copies of each other, and so are those of a recording. So whole
survey lines, stretches of a track or blocks of time are held out; and from what is left, single rows, as is usual. The
same model is judged by both, and the difference shows how much the second flatters.
Settings are chosen within the training stream, by holding out some of it in the same way as the test was.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.utils import check_random_state

from reproduction.plan import TOY, Plan
from wgpr.datasets import Dataset, load, two_regimes
from wgpr.gp.linalg import Array, Indices

TEST_PART, NEIGHBOUR_PART, VALIDATION_PART = 0.2, 0.1, 0.2

_TOY_ROWS = 3000

# Seeds of different draws of one trial: what is tested, what is validated, and which rows of it.
_VALIDATION, _SUBSET = 10_000, 20_000


@dataclass(frozen=True, eq=False)
class Course:
    """A stream to learn, and what to judge by.

    stream : rows to learn, in their order, and the rows held out.
    X_near, y_near : rows held out one by one, that have neighbours in the stream; none where the rows held out are
        such anyway.
    """

    stream: Dataset
    X_near: Array
    y_near: Array


def prepare(name: str, trial: int, folder: str | Path | None, plan: Plan) -> Course:
    """The course of a trial: always the same for the same trial."""
    if name == TOY:
        return _toy(trial, plan)
    data = _shortened(load(name, folder, fetch=True), trial, plan)
    if len(data.y_test):  # an established split
        return _course(data.shuffled(trial), trial, plan)
    if not data.is_stream:
        return _course(data.split(trial, TEST_PART), trial, plan)
    stream = data.split(trial, TEST_PART, whole_groups=True)
    neighbours = stream.split(trial, NEIGHBOUR_PART)
    near = _some(len(neighbours.y_test), plan.max_test_rows, trial)
    course = _course(replace(neighbours, X_test=stream.X_test, y_test=stream.y_test), trial, plan)
    return replace(course, X_near=neighbours.X_test[near], y_near=neighbours.y_test[near])


def validation(stream: Dataset, trial: int) -> Dataset:
    """The training stream without a part of it, which is held out in the same way as the test was."""
    return stream.split(trial + _VALIDATION, VALIDATION_PART, whole_groups=stream.is_stream)


def everything(name: str, is_shuffled: bool, folder: str | Path | None, plan: Plan) -> Dataset:
    """All the rows to learn from, in their own order or shuffled."""
    data = _shortened(load(name, folder, fetch=True), 0, plan)
    return data.shuffled(0) if is_shuffled else data


def _toy(seed: int, plan: Plan) -> Course:
    """Every other sample is learned, and the rest held out. The border of the regimes is that of two batches, then."""
    n_rows = min(_TOY_ROWS, plan.max_rows or _TOY_ROWS)
    X, y, _ = two_regimes(2 * n_rows, random_state=seed)
    data = Dataset(TOY, X[::2], y[::2], X[1::2], y[1::2], np.arange(n_rows), is_stream=True)
    return _course(data, seed, plan)


def _course(data: Dataset, trial: int, plan: Plan) -> Course:
    kept = _some(len(data.y_test), plan.max_test_rows, trial)
    return Course(replace(data, X_test=data.X_test[kept], y_test=data.y_test[kept]), data.X[:0], data.y[:0])


def _shortened(data: Dataset, trial: int, plan: Plan) -> Dataset:
    """As much of it as the plan wants: of a stream the beginning, of others random rows."""
    return data.rows(slice(plan.max_rows) if data.is_stream else _some(len(data.y), plan.max_rows, trial))


def _some(n_rows: int, n_wanted: int | None, trial: int) -> Indices:
    if n_wanted is None or n_wanted >= n_rows:
        return np.arange(n_rows)
    return np.sort(check_random_state(trial + _SUBSET).choice(n_rows, n_wanted, replace=False))
