"""Surveys: samples in the order of a track, and held-out points to score a map on.

`fly` simulates an aircraft over real terrain, in parallel lines; `hold_out` makes a survey of the user's own rows.
"""

from dataclasses import dataclass
from math import cos, pi, radians
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from wgpr.checks import require_count, require_number
from wgpr.gp.linalg import Array, Indices
from wgpr.labels import Label

KM_PER_DEGREE = 2 * pi * 6371.0088 / 360  # along a meridian, on the mean sphere


@dataclass(frozen=True, eq=False)
class Terrain:
    """Heights above the sea on a regular grid.

    elevation : (rows, columns) in metres, the first row southernmost; east : (columns,), north : (rows,) in km.
    """

    elevation: Array
    east: Array
    north: Array

    @property
    def spacing(self) -> tuple[float, float]:
        """Distance of neighbouring nodes in km, to the east and to the north."""
        return float(self.east[1] - self.east[0]), float(self.north[1] - self.north[0])

    @property
    def region(self) -> tuple[float, float, float, float]:
        """West, east, south and north end, in km."""
        return float(self.east[0]), float(self.east[-1]), float(self.north[0]), float(self.north[-1])

    def part(self, rows: slice, columns: slice) -> "Terrain":
        """A rectangle of the terrain."""
        return Terrain(self.elevation[rows, columns], self.east[columns], self.north[rows])

    def points(self, rows: Indices, columns: Indices) -> Array:
        """(n, 2): the places in km of n nodes, given by their rows (n,) and columns (n,)."""
        return np.stack([self.east[columns], self.north[rows]], axis=1)


@dataclass(frozen=True, eq=False)
class Survey:
    """A stream of samples, and held-out targets at other places to score predictions on.

    X : (n, d), y : (n,) in the order in which they were taken; X_test : (m, d), y_test : (m,) held out.
    input_names : of the d columns; target_name : of y. With units in brackets, where they are known.
    held_out : a description of the test rows.
    terrain : the truth, where it is known. Then `y_test` has no noise; otherwise it has that of the samples.
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    input_names: tuple[str, ...]
    target_name: str
    held_out: str
    terrain: Terrain | None = None

    @property
    def unit(self) -> str:
        """The unit of the targets; empty if it is not known."""
        return Label.parsed(self.target_name).unit or ""

    def rows(self, part: slice) -> tuple[pd.DataFrame, "pd.Series[float]"]:
        """A part of the stream as a frame and a series with names."""
        return self.named(self.X[part]), pd.Series(self.y[part], name=self.target_name)

    def named(self, X: Array) -> pd.DataFrame:
        """Places (n, d) as a frame."""
        return pd.DataFrame(X, columns=list(self.input_names))


def jacksboro() -> Terrain:
    """The Jacksboro fault in Tennessee, mountains beside a valley. The data come with matplotlib."""
    from matplotlib.cbook import get_sample_data

    sample: Any = get_sample_data("jacksboro_fault_dem.npz")
    with sample as file:
        from_north = file["elevation"].astype(float)
        latitude = 0.5 * float(file["ymin"] + file["ymax"])
        width = float(file["dx"]) * KM_PER_DEGREE * cos(radians(latitude))
        height = float(file["dy"]) * KM_PER_DEGREE
    n_rows, n_columns = from_north.shape
    return Terrain(from_north[::-1], width * np.arange(n_columns), height * np.arange(n_rows))


def fly(
    terrain: Terrain,
    *,
    line_spacing: float = 0.74,
    along_spacing: float = 0.15,
    noise: float = 5.0,
    n_test: int | None = 20_000,
    random_state: Any = None,
) -> Survey:
    """Survey a terrain in lines from west to east and back, from south to north.

    Samples are taken at nodes of the terrain: spacings are rounded to whole cells, and the lines are centred.

    Parameters
    ----------
    line_spacing : distance of neighbouring lines in km; along_spacing : of the samples on a line.
    noise : standard deviation of the altimeter in metres.
    n_test : number of held-out nodes, drawn from all that are not on a line; None for all of them.
    random_state : seed of the noise and of this draw.
    """
    rng = check_random_state(random_state)
    east_step, north_step = terrain.spacing
    lines = _centred(len(terrain.north), line_spacing / north_step)
    passes = np.tile(_centred(len(terrain.east), along_spacing / east_step), (len(lines), 1))
    passes[1::2] = passes[1::2, ::-1]
    rows, columns = np.repeat(lines, passes.shape[1]), passes.ravel()
    is_off = np.ones(terrain.elevation.shape, dtype=bool)
    is_off[lines] = False
    between = np.argwhere(is_off)
    if n_test is not None and n_test < len(between):
        between = between[np.sort(rng.choice(len(between), n_test, replace=False))]
    off_rows, off_columns = between.T
    return Survey(
        name="The Jacksboro fault, from the air",
        X=terrain.points(rows, columns),
        y=terrain.elevation[rows, columns] + noise * rng.standard_normal(len(rows)),
        X_test=terrain.points(off_rows, off_columns),
        y_test=terrain.elevation[off_rows, off_columns],
        input_names=("east [km]", "north [km]"),
        target_name="elevation [m]",
        held_out=f"the true elevation at {len(off_rows):,} grid nodes between the lines, where no sample was taken",
        terrain=terrain,
    )


def hold_out(
    X: Array,
    y: Array,
    *,
    name: str = "Your survey",
    input_names: tuple[str, ...] | None = None,
    target_name: str = "y",
    test_part: float = 0.1,
    n_segments: int = 200,
    random_state: Any = None,
) -> Survey:
    """A survey of rows `X` (n, d), `y` (n,) in the order of a track, with whole stretches of it held out.

    Single rows would be too easy to predict, because neighbours on a track are nearly equal.

    Parameters
    ----------
    test_part : fraction of the track that is held out, at least one stretch; n_segments : number of all stretches.
    random_state : seed of the choice among them.
    """
    require_number("test_part", test_part, least=0.0, most=0.9)
    require_count("n_segments", n_segments, least=2)
    if len(y) < 2:
        raise ValueError(f"a survey needs at least 2 rows, got {len(y)}")
    n_segments = min(n_segments, len(y))
    n_held = min(max(1, round(test_part * n_segments)), n_segments - 1)
    held = check_random_state(random_state).choice(n_segments, n_held, replace=False)
    is_held = np.isin(np.arange(len(y)) * n_segments // len(y), held)
    return Survey(
        name=name,
        X=X[~is_held],
        y=y[~is_held],
        X_test=X[is_held],
        y_test=y[is_held],
        input_names=input_names or tuple(f"x{column + 1}" for column in range(X.shape[1])),
        target_name=target_name,
        held_out=f"{is_held.sum():,} of {len(y):,} rows: {n_held} whole stretches of the track, chosen at random",
    )


def _centred(n_nodes: int, cells: float) -> Indices:
    """Indices of nodes that are `cells` apart, equally far from both ends."""
    step = max(1, round(cells))
    return np.arange((n_nodes - 1) % step // 2, n_nodes, step)
