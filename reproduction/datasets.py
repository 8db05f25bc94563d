"""Data sets: files of a folder, or of OpenML where they are public."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from wgpr.gp.linalg import Array, Indices

_ROWS_OF_A_STRETCH = 250  # of a boat's track: two kilometres on Lake Opinicon
_ROWS_OF_A_BLOCK = 100  # of a recording: ten seconds of SARCOS


@dataclass(frozen=True)
class Dataset:
    """Rows in the order in which they were recorded.

    X : (n, d), y : (n,); X_test, y_test : the established test rows, empty where there is no such split.
    groups : (n,) numbers of survey lines, stretches of a track or blocks of time; independent rows have one each.
    is_stream : whether the order means something (a track, a recording), or may be shuffled.
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    groups: Indices
    is_stream: bool

    def split(self, random_state: Any, test_part: float = 0.2, *, whole_groups: bool = False) -> "Dataset":
        """Hold out random rows, or whole groups. A stream keeps its order, other rows are shuffled."""
        rng = check_random_state(random_state)
        order = rng.permutation(len(self.y))
        if whole_groups:
            is_held = np.isin(self.groups[order], _groups_to_hold(self.groups, test_part * len(order), rng))
            test, train = order[is_held], order[~is_held]
        else:
            test, train = np.split(order, [round(test_part * len(order))])
        if self.is_stream:
            train = np.sort(train)
        return replace(self.rows(train), X_test=self.X[test], y_test=self.y[test])

    def rows(self, rows: slice | Indices) -> "Dataset":
        """Keep only these training rows, in this order."""
        return replace(self, X=self.X[rows], y=self.y[rows], groups=self.groups[rows])

    def shuffled(self, random_state: Any) -> "Dataset":
        """The same rows in random order."""
        return self.rows(check_random_state(random_state).permutation(len(self.y)))


def _groups_to_hold(groups: Indices, n_rows: float, rng: np.random.RandomState) -> Indices:
    """Random groups with at most `n_rows` rows together; at least one group, and not all."""
    labels, counts = np.unique(groups, return_counts=True)
    if len(labels) < 2:
        raise ValueError("groups must be at least 2, to learn from one and to hold out another")
    order = rng.permutation(len(labels))
    n_held = int((np.cumsum(counts[order]) <= n_rows).sum())
    return labels[order[: min(max(1, n_held), len(labels) - 1)]]


def load(name: str, folder: str | Path | None = None, *, fetch: bool = False) -> Dataset:
    """Load one of `DATASETS` from a folder of `.npz` files.

    fetch : if the file is not in the folder, download the data from OpenML, where they are public; scikit-learn keeps
        a copy.
    """
    if name not in DATASETS:
        raise ValueError(f"name must be one of {', '.join(DATASETS)}, got {name!r}")
    file_name, read, is_stream = DATASETS[name]
    path = None if folder is None else Path(folder) / file_name
    if path is not None and path.exists():
        with path.open("rb") as stream, np.load(stream) as file:
            X, y, groups = read(file)
            X_test, y_test = (file["X_test"], file["y_test"].ravel()) if "X_test" in file else (X[:0], y[:0])
            return Dataset(name, X, y, X_test, y_test, groups, is_stream)
    if fetch and name in ON_OPENML:
        X, y, groups = ON_OPENML[name]()
        return Dataset(name, X, y, X[:0], y[:0], groups, is_stream)
    where = "not given" if folder is None else f"not in {folder}"
    openml = ", or fetch it from OpenML" if name in ON_OPENML else ""
    raise FileNotFoundError(f"{file_name} is {where}; name the folder that holds it{openml}")


# Readers of files: inputs (n, d), target (n,) and groups (n,)

Rows = tuple[Array, Array, Indices]


def _independent(file: Any, inputs: str = "X", target: str = "y") -> Rows:
    y = file[target].ravel()
    return file[inputs].reshape(len(y), -1), y, np.arange(len(y))


def _first_torque(file: Any) -> Rows:
    y = file["y"][:, 0]
    return file["X"], y, np.arange(len(y)) // _ROWS_OF_A_BLOCK


def _soundings(file: Any) -> Rows:
    """A segment may cross a lake many times, so long ones are cut into stretches."""
    return file["X_km"], file["y"], _stretches(file["segment"], _ROWS_OF_A_STRETCH)


def _fixes(file: Any, with_suspect: bool = False) -> Rows:
    good = np.ones(len(file["y"]), dtype=bool) if with_suspect else ~file["suspect"]
    return file["X_km"][good], file["y"][good], file["line"].astype(np.intp)[good]


def _stretches(segments: Array, n_rows: int) -> Indices:
    """(n,) numbers of stretches: segments, or equal parts of those that have more than `n_rows` rows."""
    _, starts, number, lengths = np.unique(segments, return_index=True, return_inverse=True, return_counts=True)
    n_parts = -(-lengths // n_rows)
    part = (np.arange(len(segments)) - starts[number]) * n_parts[number] // lengths[number]
    return (np.cumsum(n_parts) - n_parts)[number] + part


# Name: file, reader, and whether the order of the rows means something.
DATASETS: dict[str, tuple[str, Callable[[Any], Rows], bool]] = {
    "kin40k": ("kin40k.npz", partial(_independent, inputs="X_train", target="y_train"), False),
    "sarcos": ("sarcos_4449.npz", _first_torque, True),
    "abalone": ("abalone.npz", _independent, False),
    "pumadyn": ("pumadyn8nm.npz", _independent, False),
    "opinicon": ("bathymetry_opinicon.npz", _soundings, True),
    "tzibana": ("bathymetry_tzibana.npz", _fixes, True),
    "tzibana-raw": ("bathymetry_tzibana.npz", partial(_fixes, with_suspect=True), True),
    "motorcycle": ("motorcycle.npz", _independent, True),
}


# Readers of OpenML


def _openml_abalone() -> Rows:
    """The sex as in the file of the folder: male 1, infant 0, female -1."""
    frame, y = _fetched(44956)
    sex = frame.iloc[:, 0].astype(str).map({"M": 1.0, "I": 0.0, "F": -1.0})
    return np.column_stack([sex, frame.iloc[:, 1:].to_numpy(dtype=float)]), y, np.arange(len(y))


def _openml_sarcos() -> Rows:
    """Every tenth row of the whole recording without repeated rows, like the subset of the folder."""
    frame, y = _fetched(44976)
    rows = np.column_stack([frame.iloc[:, :21].to_numpy(dtype=float), y])
    _, first = np.unique(rows, axis=0, return_index=True)
    rows = rows[np.sort(first)][::10]
    return rows[:, :-1], rows[:, -1], np.arange(len(rows)) // _ROWS_OF_A_BLOCK


def _fetched(number: int) -> tuple[Any, Array]:
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(data_id=number, as_frame=True, parser="auto")
    return bunch.data, bunch.target.to_numpy(dtype=float)


ON_OPENML: dict[str, Callable[[], Rows]] = {"abalone": _openml_abalone, "sarcos": _openml_sarcos}
