"""Where next: does a planned track make a better map than others of the same length? The table of docs/field.md.

    python benchmarks/next.py --data FOLDER [--only "terrain;lake;time"] [--write]

A boat (or aircraft) has measured every fourth line of a survey. Then it drives the same length again: by `wgpr.plan`,
asked eight times on the way; as a lawn-mower between the lines; or along straight legs between random places. `terrain`
is the demo's, with errors at places drawn from it. `lake` is Lake Opinicon: real depths, interpolated linearly between
the soundings where nobody has measured, and errors at the soundings. Five trials differ in where the lines begin, and
in the noise. `time`: a plan of 20 points on a map of 500 territories. 15 minutes.
"""

import itertools
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from time import process_time

import numpy as np
from contourpy import FillType, contour_generator
from rich.progress import track
from scipy.interpolate import LinearNDInterpolator, RegularGridInterpolator
from scipy.spatial import KDTree

from common import ROOT, put_measured, run_studies
from wgpr import WGPRegressor, plan
from wgpr.planning.ground import Covered, Polygons
from wgpr.survey import jacksboro

PAGE, BEGIN, END = ROOT / "docs/field.md", "<!-- measured by benchmarks/next.py -->", "<!-- end of next -->"
N_PLANS, N_TRIALS = 8, 5  # plans on the way
Array = np.ndarray
Row = tuple[str, str]


class World:
    """Where one can measure: a field, the polygon around it, spacings in km, and places to score a map at."""

    def __init__(
        self, field: Callable[[Array], Array], outline: Polygons, spacing: float, every: float, noise: float, X: Array
    ) -> None:
        self.field, self.outline, self.spacing, self.every, self.noise = field, outline, spacing, every, noise
        self.X, self.y = X, field(X)
        self.low, self.high = outline.corners.min(axis=0), outline.corners.max(axis=0)

    def measured(self, track: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Rows along a track (k, 2); none where it leaves the world."""
        steps = np.linalg.norm(np.diff(track, axis=0), axis=1)
        at = np.concatenate([[0.0], np.cumsum(steps)])
        along = np.arange(0.0, at[-1], self.every)
        X = np.column_stack([np.interp(along, at, column) for column in track.T])
        y = self.field(X)
        is_inside = np.isfinite(y)
        return X[is_inside], y[is_inside] + self.noise * rng.standard_normal(is_inside.sum())

    def lines(self, norths: Array) -> Array:
        """A track (k, 2) of lines from west to east and back."""
        corners = []
        for number, north in enumerate(norths):
            east = np.arange(self.low[0], self.high[0], 0.25 * self.every)
            inside = east[self.outline.contains(np.column_stack([east, np.full(len(east), north)]))]
            if len(inside) > 1:
                ends = [(inside[0], north), (inside[-1], north)]
                corners += ends[:: -1 if number % 2 else 1]
        return np.array(corners)

    def random(self, start: Array, length: float, rng: np.random.Generator) -> Array:
        """A track of straight legs between random places."""
        corners = [start]
        while length_of(np.array(corners)) < length:
            place = rng.uniform(self.low, self.high)
            if self.outline.contains(place[None])[0]:
                corners.append(place)
        return shortened(np.array(corners), length)


def length_of(track: Array) -> float:
    return float(np.linalg.norm(np.diff(track, axis=0), axis=1).sum())


def shortened(track: Array, length: float) -> Array:
    """The first part of a track (k, 2), of this length."""
    at = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(track, axis=0), axis=1))])
    end = [np.interp(length, at, column) for column in track.T]
    return np.vstack([track[at < length], end])


@lru_cache
def terrain(folder: Path) -> World:
    ground = jacksboro()
    field = RegularGridInterpolator((ground.east, ground.north), ground.elevation.T, bounds_error=False)
    west, east, south, north = ground.region
    corners = np.array([[west, south], [east, south], [east, north], [west, north]])
    X = np.random.default_rng(0).uniform(corners[0], corners[2], (5000, 2))
    return World(field, Polygons(((corners,),)), 0.74, 0.15, 5.0, X)


@lru_cache
def lake(folder: Path) -> World:
    with np.load(folder / "bathymetry_opinicon.npz") as file:
        X, y = file["X_km"], file["y"]
    X, first = np.unique(X, axis=0, return_index=True)
    y = y[first]
    field = LinearNDInterpolator(X, y)
    east, north = (
        np.arange(low - 0.05, high + 0.05, 0.02) for low, high in zip(X.min(axis=0), X.max(axis=0), strict=False)
    )
    nodes = np.stack(np.meshgrid(east, north), axis=-1)
    covered = Covered(X).contains(nodes.reshape(-1, 2)).reshape(nodes.shape[:2]).astype(float)
    covered *= (KDTree(X).query(nodes.reshape(-1, 2))[0] < 0.2).reshape(covered.shape)
    points, offsets = contour_generator(east, north, covered, fill_type=FillType.OuterOffset).filled(0.5, 2.0)
    polygons = [
        tuple(corners[a:b] for a, b in itertools.pairwise(places))
        for corners, places in zip(points, offsets, strict=True)
    ]
    largest = max(polygons, key=lambda rings: len(rings[0]))  # one cannot drive to another lake
    outline = Polygons((largest,))
    places = X[outline.contains(X)]
    return World(lambda P: np.where(outline.contains(P), field(P), np.nan), outline, 0.1, 0.01, 0.05, places)


def scores(model: WGPRegressor, world: World) -> tuple[float, float]:
    errors = np.abs(model.predict(world.X) - world.y)
    return float(np.sqrt(np.mean(errors**2))), float(errors.max())


def trial(world: World, seed: int) -> dict[str, tuple[float, ...]]:
    """RMSE and greatest error of each way; for the plan also the expected and the realised uncertainty."""
    rng = np.random.default_rng(seed)
    gap = 4.0 * world.spacing
    first = world.low[1] + gap * rng.uniform(0.1, 0.9)
    norths = np.arange(first, world.high[1], gap)
    begun = world.lines(norths)
    model = WGPRegressor().fit(*world.measured(begun, rng))
    between = world.lines(np.arange(first + 0.5 * gap, world.high[1], gap)[::-1])
    between = np.vstack([begun[-1:], between])
    length = length_of(between)
    found: dict[str, tuple[float, ...]] = {"start": scores(model, world)}
    for name, way in (("lawn-mower", between), ("random", world.random(begun[-1], length, rng))):
        found[name] = scores(deepcopy(model).partial_fit(*world.measured(way, rng)), world)
    driven, rest, planned, expected = begun[-1:], length, deepcopy(model), []
    while rest > 0.02 * length:
        made = plan(planned, budget=rest, start=driven[-1], inside=world.outline)
        if not expected:
            expected = [made.before, made.after]
            first_plan = made
        part = shortened(made.tracks[0], min(rest, length / N_PLANS))
        if length_of(part) < 1e-3 * length:
            break
        rest -= length_of(part)
        planned.partial_fit(*world.measured(part, rng))
        driven = np.vstack([driven, part[1:]])
    found["next"] = scores(planned, world)
    found["gain"] = (*expected, first_plan.std_of(planned), length, length_of(driven))
    return found


def compared(name: str, world: World) -> list[Row]:
    results = [trial(world, seed) for seed in track(range(N_TRIALS), description=name)]
    means = {key: np.mean([result[key] for result in results], axis=0) for key in results[0]}
    rows = [
        (f"{name}, {way}: RMSE, greatest error [m]", f"{means[key][0]:.3g}, {means[key][1]:.3g}")
        for key, way in WAYS.items()
    ]
    ahead = [
        f"{sum(result['next'][score] < result['lawn-mower'][score] for result in results)} of {N_TRIALS}"
        for score in (0, 1)
    ]
    before, after, realised, length, driven = means["gain"]
    return [
        *rows,
        (
            f"{name}: trials in which the plan is ahead of the lawn-mower, by RMSE and by greatest error",
            ", ".join(ahead),
        ),
        (f"{name}: length of the lawn-mower's track and the plan's", f"{length:.1f}, {driven:.1f} km"),
        (
            f"{name}: std before; expected after the first plan; realised after all of them [m]",
            f"{before:.3g}; {after:.3g}; {realised:.3g}",
        ),
    ]


def on_terrain(folder: Path) -> list[Row]:
    return compared("terrain", terrain(folder))


def on_lake(folder: Path) -> list[Row]:
    return compared("lake", lake(folder))


def time(folder: Path) -> list[Row]:
    with np.load(folder / "magnetic_britain.npz") as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
    model = WGPRegressor()
    for first in range(0, len(y), 2000):
        model.partial_fit(X[first : first + 2000], y[first : first + 2000])
        if model.n_models_ >= 500:
            break
    seconds = []
    for cold in (True, False):
        if cold:
            model = deepcopy(model)
        started = process_time()
        plan(model, points=20)
        seconds.append(process_time() - started)
    told = "20 points on a map of 500 territories: first time, and again"
    return [(told, f"{seconds[0]:.1f} s, {seconds[1]:.1f} s of one core")]


WAYS = {
    "start": "every fourth line",
    "next": "then by plan",
    "lawn-mower": "then between the lines",
    "random": "then at random",
}
STUDIES = {"terrain": on_terrain, "lake": on_lake, "time": time}


if __name__ == "__main__":
    table = run_studies(__doc__, STUDIES, "docs/field.md")
    if table is not None:
        put_measured(PAGE, BEGIN, END, table)
