"""Colours, labels, ticks and legends that all pictures share."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import AutoLocator

from wgpr.gp.linalg import Array

# Okabe and Ito's colours, which the colour-blind can tell apart, without black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")

_SIGNS = {"degrees_east": "°E", "degrees_north": "°N"}


class CoordinateLocator(AutoLocator):
    """Fewer ticks than matplotlib sets by default, because the labels of coordinates are long."""

    def __call__(self) -> Any:
        n_bins = int(np.clip(round(0.6 * self.axis.get_tick_space()), 1, 7))  # type: ignore[union-attr]
        self.set_params(nbins=n_bins, min_n_ticks=min(2, n_bins))
        return super().__call__()


def label(quantity: xr.DataArray, words: str = "") -> str:
    """The long name of a quantity or `words`, with its unit."""
    unit = quantity.attrs.get("units")
    words = words or str(quantity.attrs.get("long_name", quantity.name))
    return f"{words} [{_SIGNS.get(unit, unit)}]" if unit else words


def write_in_middle(ax: Axes, words: str) -> None:
    """Write a message into axes that have nothing to show."""
    ax.text(0.5, 0.5, words, ha="center", va="center", transform=ax.transAxes, color="0.4")
    ax.set(xticks=[], yticks=[])


def draw_ticks(ax: Axes, positions: Array, colour: str) -> None:
    """Short vertical marks at the bottom of the axes, at positions (n,)."""
    height = np.full(len(positions), 0.02)
    ax.plot(positions, height, "|", color=colour, transform=ax.get_xaxis_transform(), scalex=False, scaley=False)


def legend_above(ax: Axes) -> None:
    """A legend in one row above the axes, where it hides no data."""
    spaces = {"borderpad": 0.2, "borderaxespad": 0.2, "columnspacing": 1.0, "handletextpad": 0.4, "handlelength": 1.5}
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, frameon=False, fontsize="small", **spaces)
