"""Answers of a saved map: predictions for tables, and how good they are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from wgpr.base import EnsembleRegressor
from wgpr.commands.console import ReadingProgress, counted
from wgpr.grids import input_names
from wgpr.linalg import Array
from wgpr.maps import load
from wgpr.metrics import RunningScores, Scores
from wgpr.tables import Table

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
    with ReadingProgress("predicting", table.total_bytes) as progress:
        for chunk in table.chunks(columns):
            yield [*chunk.values.T, *answer_columns(model, chunk.values, half_width, latent=latent)]
            progress.show(table.bytes_read, counted(table.n_rows, "row"))


def answer_columns(
    model: EnsembleRegressor, X: Array, half_width: float, *, latent: bool = False
) -> list[NDArray[Any]]:
    """The columns of `ANSWER` at the places `X` (n, d)."""
    queries = named(model, X)
    mean, std = model.predict(queries, return_std=True, latent=latent)
    reach = half_width * std
    return [mean, std, mean - reach, mean + reach, model.model_index(queries)]


def evaluate(model: EnsembleRegressor, table: Table, columns: Sequence[str]) -> tuple[Scores, int]:
    """How good the predictions of the table's last column are, and for how many rows."""
    running = RunningScores()
    with ReadingProgress("predicting", table.total_bytes) as progress:
        for chunk in table.chunks(columns):
            running.add(chunk.values[:, -1], *model.predict(named(model, chunk.values[:, :-1]), return_std=True))
            progress.show(table.bytes_read, counted(table.n_rows, "row"))
    return running.result(), running.n_rows


def named(model: EnsembleRegressor, X: Array) -> pd.DataFrame | Array:
    """Inputs (n, d) under the names that the model has for them, if it has any."""
    return pd.DataFrame(X, columns=input_names(model)) if hasattr(model, "feature_names_in_") else X


def all_rows(table: Table, columns: Sequence[str]) -> Array:
    """The whole table, (n, k); for data that are to be looked at."""
    return np.concatenate([chunk.values for chunk in table.chunks(columns)])
