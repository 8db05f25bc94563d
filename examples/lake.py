"""Write three days of a simulated boat survey: monday.csv, tuesday.csv and wednesday.csv.

    python lake.py

The lake is 2 km x 1.5 km. Its floor is smooth in the west and rugged in the east. On Monday the boat covers the west
and on Tuesday the east, in lines from south to north and back. On Wednesday it crosses them: these lines are for
judging the map.
"""

import numpy as np
import pandas as pd

COLUMNS = ["east [km]", "north [km]", "depth [m]"]


def depth(east, north):
    """Depth in metres at places in km."""
    rng = np.random.default_rng(1)
    waves = rng.normal(scale=12.0, size=(200, 2))
    phases = rng.uniform(0.0, 2.0 * np.pi, 200)
    rocks = np.cos(np.multiply.outer(east, waves[:, 0]) + np.multiply.outer(north, waves[:, 1]) + phases).sum(axis=-1)
    is_rugged = 1.0 / (1.0 + np.exp(-(east - 1.2) / 0.05))
    return 4.0 + 3.0 * np.sin(np.pi * east / 2.0) * np.sin(np.pi * north / 1.5) + 0.1 * is_rugged * rocks


def survey(lines, positions, *, to_north, seed):
    """Samples of the depth along parallel lines, there and back, with 15 cm of noise."""
    passes = [np.stack(np.broadcast_arrays(line, positions[:: (-1) ** n]), axis=1) for n, line in enumerate(lines)]
    places = np.concatenate(passes)[:, slice(None) if to_north else slice(None, None, -1)]
    noise = 0.15 * np.random.default_rng(seed).normal(size=len(places))
    return pd.DataFrame(np.column_stack([places, depth(*places.T) + noise]), columns=COLUMNS)


if __name__ == "__main__":
    northward = np.arange(0.0, 1.5, 0.01)
    survey(np.arange(0.0, 1.0, 0.05), northward, to_north=True, seed=1).to_csv("monday.csv", index=False)
    survey(np.arange(1.0, 2.01, 0.05), northward, to_north=True, seed=2).to_csv("tuesday.csv", index=False)
    survey(np.arange(0.1, 1.5, 0.25), np.arange(0.0, 2.0, 0.01), to_north=False, seed=3).to_csv(
        "wednesday.csv", index=False
    )
    pd.DataFrame([[0.5, 0.7], [1.5, 0.7]], columns=COLUMNS[:2]).to_csv("places.csv", index=False)
