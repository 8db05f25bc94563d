"""Answers of a saved map: predictions for tables, and how good they are."""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wgpr.cli.console import ReadingProgress, counted, say
from wgpr.estimators.base import EnsembleRegressor
from wgpr.gp.linalg import Array
from wgpr.io.grids import input_names, named, predict_one_output, require_one_output, varying_columns
from wgpr.io.maps import load
from wgpr.io.tables import Table
from wgpr.metrics import RunningScores, Scores

if TYPE_CHECKING:
    import xarray as xr

ALL_INPUTS = slice(None)

ANSWER = ("mean", "std", "lower", "upper", "model")


def load_to_answer(path: Path) -> Any:
    """A saved map with the rows that wait learned too: answers use all that is known. The file stays as it is."""
    model = load(path)
    return model.flush() if model.n_pending_ else model


def answer_names(model: EnsembleRegressor) -> list[str]:
    """Of the columns of `answers`; an input that is called like an answer gets a mark."""
    return [*(f"{name}_" if name in ANSWER else name for name in input_names(model)), *ANSWER]


def answers(
    model: EnsembleRegressor, table: Table, columns: Sequence[str], *, half_width: float, latent: bool
) -> Iterator[Sequence[NDArray[Any]]]:
    """For each chunk of the table: its inputs, mean, std, lower, upper and the number of the model that answers.

    Parameters
    ----------
    half_width : of the interval from lower to upper, in standard deviations.
    """
    n_outside = 0
    with ReadingProgress("predicting", table.total_bytes) as progress:
        for chunk in table.chunks(columns):
            n_outside += int(is_outside(model, chunk.values).any(axis=1).sum())
            yield [*chunk.values.T, *answer_columns(model, chunk.values, half_width, latent=latent)]
            progress.show(table.bytes_read, counted(table.n_rows, "row"))
    say_what_is_outside(n_outside, table.n_rows)


def is_outside(model: EnsembleRegressor, X: Array, columns: Sequence[int] | slice = ALL_INPUTS) -> NDArray[np.bool_]:
    """Which numbers of `X` (n, k), of these inputs, are beyond all that the model has seen."""
    low, high = model.bounds_[:, columns]
    return (low > X) | (high < X)


def say_what_is_outside(n_outside: int, n_places: int) -> None:
    """There the answer is that of the nearest model, which may know nothing."""
    if n_outside:
        say(f"{n_outside / n_places:.0%} of the places are outside the range of the data, where little is known")


def say_how_much_is_outside(model: EnsembleRegressor, grid: "xr.Dataset", at: Mapping[int, float] | None) -> None:
    """The same of a grid."""
    mean, columns = grid["mean"], varying_columns(model, at)
    axes = [mean[name].values[:, None] for name in reversed(mean.dims)]
    n_inside = [int((~is_outside(model, X, [column])).sum()) for X, column in zip(axes, columns, strict=True)]
    say_what_is_outside(mean.size - prod(n_inside), mean.size)


def answer_columns(
    model: EnsembleRegressor, X: Array, half_width: float, *, latent: bool = False
) -> list[NDArray[Any]]:
    """The columns of `ANSWER` at the places `X` (n, d)."""
    queries = named(model, X)
    require_one_output(model)
    mean, observed, field, owners = (values.reshape(len(X)) for values in model.predict_with_owners(queries))
    std = field if latent else observed
    reach = half_width * std
    return [mean, std, mean - reach, mean + reach, owners]


def evaluate(model: EnsembleRegressor, table: Table, columns: Sequence[str]) -> tuple[Scores, int]:
    """How good the predictions of the table's last column are, and for how many rows."""
    running = RunningScores()
    with ReadingProgress("predicting", table.total_bytes) as progress:
        for chunk in table.chunks(columns):
            running.add(chunk.values[:, -1], *predict_one_output(model, named(model, chunk.values[:, :-1])))
            progress.show(table.bytes_read, counted(table.n_rows, "row"))
    return running.result(), running.n_rows


def all_rows(table: Table, columns: Sequence[str]) -> Array:
    """The whole table, (n, k); for data that are to be looked at."""
    return np.concatenate([chunk.values for chunk in table.chunks(columns)])
