"""The demo of the service: a terrain is surveyed while one looks, ten times as fast as an aircraft would."""

import asyncio

import numpy as np

from wgpr.service.catalogue import Catalogue
from wgpr.service.definition import Definition
from wgpr.survey import Survey, fly, jacksboro

NAME = "terrain"
# Kilometres a second of a small aircraft, times ten; seconds between two requests.
_SPEED, _PAUSE = 10 * 0.1, 0.25


async def survey(catalogue: Catalogue) -> None:
    """Survey the demo's terrain, from where an earlier demo has ended."""
    track = await asyncio.to_thread(lambda: fly(jacksboro(), random_state=0))
    await catalogue.create(NAME, Definition.of_names(list(track.input_names), track.target_name))
    live_map = catalogue[NAME]
    rows = np.column_stack([track.X, track.y])
    next_row = live_map.n_accepted
    for stop in _stops(track):
        if stop > next_row:
            await live_map.accept(rows[next_row:stop], key=f"demo-{stop}")
            next_row = stop
            await asyncio.sleep(_PAUSE)


def _stops(track: Survey) -> list[int]:
    """Numbers of rows that are taken until each request is sent."""
    seconds = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(track.X, axis=0), axis=1))]) / _SPEED
    return [
        *np.unique(np.searchsorted(seconds, np.arange(0.0, seconds[-1], _PAUSE), side="right")).tolist(),
        len(seconds),
    ]
