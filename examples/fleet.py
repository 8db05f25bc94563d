"""Three boats survey one lake, and share what they know over a slow link.

    python examples/fleet.py [picture.png] [--data FOLDER]

Each boat learns a map of its own, a row a second. When its link, 300 bytes a second, is free, it sends what has changed
in its map. The others apply that to their copy of its map, and merge all maps to answer. FOLDER has the soundings of
Lake Opinicon; without it the boats survey a part of the demo's terrain.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import KDTree

from wgpr import WGPRegressor, apply, diff, load, merge
from wgpr.survey import fly, jacksboro

BYTES_PER_SECOND = 300
STEP = 20  # seconds, and rows
N_SCORES = 12
N_GRID = 110  # nodes of the maps along each axis
COLOURS = ("#0072B2", "#E69F00", "#009E73")


@dataclass
class Boat:
    """A boat with its track `X` (n, 2), `y` (n,), its map, and copies of the maps of the others.

    copy : its own map as the others have it after the latest message. arrival : when that message is through.
    """

    X: np.ndarray
    y: np.ndarray
    model: WGPRegressor = field(default_factory=WGPRegressor)
    copy: WGPRegressor | None = None
    received: dict[int, WGPRegressor] = field(default_factory=dict)
    arrival: float = 0.0
    sent: list[tuple[float, int]] = field(default_factory=list)

    def learn(self, now: int) -> None:
        """Learn the rows of the latest seconds."""
        rows = slice(now - STEP, now)
        if len(self.y[rows]):
            self.model.partial_fit(self.X[rows], self.y[rows])

    def send(self, now: float) -> None:
        """Begin to send what has changed since the latest message; the whole map at first."""
        if self.copy is None:
            self.copy, n_bytes = as_sent(self.model)
        else:
            message = diff(self.copy, self.model)
            self.copy, n_bytes = apply(self.copy, message), len(message)
        self.arrival = now + n_bytes / BYTES_PER_SECOND
        self.sent.append((self.arrival, n_bytes))

    @property
    def has_news(self) -> bool:
        return self.copy is None or self.copy.n_samples_seen_ < self.model.n_samples_seen_

    def knowledge(self) -> WGPRegressor:
        """One map of its own and those that it has received."""
        return merge(self.model, *self.received.values()) if self.received else self.model


def as_sent(model: WGPRegressor) -> tuple[WGPRegressor, int]:
    """The map as others get it, compact, and its size in bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "boat.map"
        model.save(path, compact=True)
        return load(path), path.stat().st_size


def survey(folder: Path | None) -> tuple[list[Boat], np.ndarray, np.ndarray, tuple[str, str, str]]:
    """Three boats, places and depths to score them by, and the names of the axes and of the values."""
    if folder is None:
        flown = fly(jacksboro().part(slice(86, 258), slice(100, 302)), random_state=0, n_test=2000)
        lines = np.unique(flown.X[:, 1], return_inverse=True)[1] * 3 // len(np.unique(flown.X[:, 1]))
        return (
            boats_of(flown.X, flown.y, lines),
            flown.X_test,
            flown.y_test,
            ("east [km]", "north [km]", "elevation [m]"),
        )
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from reproduction.datasets import load as load_dataset

    lake = load_dataset("opinicon", folder).split(0, whole_groups=True)
    east = np.array([lake.X[lake.groups == each, 0].mean() for each in lake.groups])
    areas = np.searchsorted(np.quantile(east, [1 / 3, 2 / 3]), east)
    return boats_of(lake.X, lake.y, areas), lake.X_test, lake.y_test, ("east [km]", "north [km]", "depth [m]")


def boats_of(X: np.ndarray, y: np.ndarray, numbers: np.ndarray) -> list[Boat]:
    return [Boat(X[numbers == number], y[numbers == number]) for number in range(3)]


def rmse(model: WGPRegressor, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def sail(boats: list[Boat], X: np.ndarray, y: np.ndarray) -> tuple[list[int], np.ndarray, list[WGPRegressor]]:
    """Times, errors (t, 3, 2) of each boat alone and with the messages of the others, and what the first boat knows."""
    n_steps = max(len(boat.y) for boat in boats) // STEP + 1
    score_at = {round(n_steps * (number + 1) / N_SCORES) * STEP for number in range(N_SCORES)}
    times, errors, maps = [], [], []
    for now in range(STEP, n_steps * STEP + 1, STEP):
        for boat in boats:
            boat.learn(now)
        for number, boat in enumerate(boats):
            if boat.arrival > now:
                continue
            if boat.copy is not None:
                for other in boats:
                    if other is not boat:
                        other.received[number] = boat.copy
            if boat.has_news:
                boat.send(now)
        if now in score_at:
            together = [boat.knowledge() for boat in boats]
            times.append(now)
            errors.append(
                [
                    (rmse(boat.model, X, y), rmse(all_of_it, X, y))
                    for boat, all_of_it in zip(boats, together, strict=True)
                ]
            )
            maps.append(together[0])
            words = ", ".join(f"{alone:.2f} alone, {shared:.2f} with the others" for alone, shared in errors[-1])
            print(f"{now:6,} s, {together[0].n_models_} models: RMSE {words}")
    return times, np.array(errors), maps


def draw(
    boats: list[Boat], times: list[int], errors: np.ndarray, maps: list[WGPRegressor], names: tuple[str, str, str]
) -> Figure:
    """What the first boat knows at three times, the errors of all boats, and the bytes that they have sent."""
    figure = plt.figure(figsize=(10, 6.5), layout="constrained")
    top, bottom = figure.subfigures(2, height_ratios=[1.15, 1.0])
    every = np.concatenate([boat.X for boat in boats])
    low, high = every.min(axis=0), every.max(axis=0)
    east, north = (np.linspace(*ends, N_GRID) for ends in zip(low, high, strict=True))
    grid = np.stack(np.meshgrid(east, north), axis=-1).reshape(-1, 2)
    depths = np.concatenate([boat.y for boat in boats])
    limits = dict(zip(("vmin", "vmax"), np.quantile(depths, [0.02, 0.98]), strict=True))
    axes = top.subplots(1, 3, sharex=True, sharey=True)
    for ax, place in zip(axes, (1, N_SCORES // 2 - 1, N_SCORES - 1), strict=True):
        surveyed = KDTree(np.concatenate([boat.X[: times[place]] for boat in boats]))
        is_near = surveyed.query(grid)[0] < 0.04 * np.ptp(every, axis=0).mean()
        known = np.where(is_near, maps[place].predict(grid), np.nan).reshape(N_GRID, N_GRID)
        image = ax.pcolormesh(east, north, known, cmap="viridis", rasterized=True, **limits)
        for boat, colour in zip(boats, COLOURS, strict=True):
            track = boat.X[: times[place]]
            ax.plot(*track[::10].T, ".", color="white", markersize=0.3)
            ax.plot(*track[-1], "o", color=colour, markeredgecolor="black", markersize=7)
        ax.set(title=f"after {times[place] / 60:.0f} minutes", xlabel=names[0], aspect="equal")
    axes[0].set_ylabel(names[1])
    top.suptitle("What each boat knows by the messages of the others: here boat 1 (blue)", fontsize=11)
    top.colorbar(image, ax=axes, label=names[2], shrink=0.85)
    left, right = bottom.subplots(1, 2)
    minutes = np.array(times) / 60
    for number, (boat, colour) in enumerate(zip(boats, COLOURS, strict=True)):
        left.plot(minutes, errors[:, number, 0], "--", color=colour, linewidth=1)
        left.plot(minutes, errors[:, number, 1], "-", color=colour, linewidth=1.8, label=f"boat {number + 1}")
        arrivals, sizes = zip(*boat.sent, strict=True)
        right.step(np.array(arrivals) / 60, np.cumsum(sizes) / 1e3, where="post", color=colour)
    right.plot([0, minutes[-1]], [0, minutes[-1] * 60 * BYTES_PER_SECOND / 1e3], ":", color="0.5")
    right.annotate(
        "what the link carries ",
        (minutes[-1] * 0.9, minutes[-1] * 54 * BYTES_PER_SECOND / 1e3),
        ha="right",
        color="0.4",
    )
    left.plot([], [], "--", color="0.4", linewidth=1, label="alone")
    left.plot([], [], "-", color="0.4", linewidth=1.8, label="with the others")
    left.legend(frameon=False, fontsize=8, ncols=2)
    left.set(xlabel="minutes", ylabel=f"RMSE, {names[2]}", ylim=(0, None))
    left.set_title("Error in all of the area", loc="left", fontsize=10)
    right.set_title(f"Messages of each boat, at {BYTES_PER_SECOND} bytes a second", loc="left", fontsize=10)
    right.set(xlabel="minutes", ylabel="sent [kB]", ylim=(0, None))
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", nargs="?", help="where to save the picture")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    arguments = parser.parse_args()
    boats, X, y, names = survey(arguments.data)
    times, errors, maps = sail(boats, X, y)
    for number, boat in enumerate(boats):
        n_bytes = sum(size for _, size in boat.sent)
        print(f"boat {number + 1}: {boat.model.n_samples_seen_:,} rows, {n_bytes:,} bytes in {len(boat.sent)} messages")
    if arguments.picture:
        draw(boats, times, errors, maps, names).savefig(arguments.picture, dpi=130)
        print(f"picture: {arguments.picture}")


if __name__ == "__main__":
    main()
