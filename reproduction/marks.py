"""How methods and data sets look in the pictures of the studies: colours, marks, dots in lines, axes and legends."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from reproduction.plan import COURSES, TOY
from reproduction.tables import EXACT, INTERPOLATION
from wgpr.plots import COLOURS


class Style(NamedTuple):
    """How a method or a data set looks."""

    colour: str
    marker: str


OURS = "WGPR"
NAMES = {TOY: "Two-regime toy", **COURSES}
_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _RED, _YELLOW = COLOURS
STYLES = {
    OURS: Style(_BLUE, "o"),
    "WGPR, any rule": Style(_SKY, "P"),
    "SOLAR": Style(_RED, "s"),
    "OVFE": Style(_PINK, "v"),
    "LGPR": Style(_GREEN, "^"),
    EXACT: Style("0.15", "D"),
    INTERPOLATION: Style("0.55", "X"),
    TOY: Style(_BLUE, "o"),
    "tzibana": Style(_ORANGE, "s"),
    "sarcos": Style(_GREEN, "^"),
    "kin40k": Style(_PINK, "D"),
}

_FAINT = {"alpha": 0.35, "markersize": 4.0, "markeredgewidth": 0.0, "linestyle": "none"}
_OF_A_DECADE = ((1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
OF_A_DECADE_OF_NUMBERS = ((1, 2, 3, 5, 7), (1, 2, 5), (1,))
_MOST_TICKS = 10
HOLLOW = {"markerfacecolor": "white", "markeredgewidth": 1.5}


class Dots(NamedTuple):
    """What stands in one line of a picture of dots: the trials, their mean, and what was published."""

    trials: Sequence[float]
    mean: float
    published: float | None = None


def faint(style: Style) -> dict[str, Any]:
    return {**_FAINT, "color": style.colour, "marker": style.marker}


def hollow(style: Style) -> dict[str, Any]:
    return {"markeredgecolor": style.colour, **HOLLOW, "zorder": 3}


def strong(style: Style) -> dict[str, Any]:
    return {"color": style.colour, "marker": style.marker, "markersize": 6, "linewidth": 2}


def line(style: Style, label: str) -> Line2D:
    return Line2D([], [], label=label, **strong(style))


def mark(style: Style, label: str, **more: Any) -> Line2D:
    return Line2D([], [], color=style.colour, marker=style.marker, linestyle="none", label=label, **more)


def legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Above everything, where it covers nothing."""
    n_columns = len(handles) if len(handles) <= 5 else 4
    figure.legend(handles=handles, loc="outside upper center", ncols=n_columns, frameon=False)


def grid(ax: Axes) -> None:
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def tick(axis: Axis, choices: Sequence[Sequence[float]] = _OF_A_DECADE) -> None:
    """Round numbers, written out, on a logarithmic axis: as many as there is room for."""
    low, high = axis.get_view_interval()
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [[part * 10.0**power for power in powers for part in parts] for parts in choices]
    inside = [[tick for tick in found if low <= tick <= high] for found in ticks]
    axis.set_major_locator(FixedLocator(next((found for found in inside if len(found) <= _MOST_TICKS), inside[-1])))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())


def picture_of_dots(rows: Mapping[str, str], columns: Sequence[str], dots: Mapping[tuple[str, str], Dots]) -> Figure:
    """A block of lines for each row that there is, a line in it for each of `columns`."""
    rows = {row: name for row, name in rows.items() if any(row == place[0] for place in dots)}
    columns = [column for column in columns if any(column == place[1] for place in dots)]
    figure = Figure(figsize=(8.0, 1.3 + len(rows) * (0.25 + 0.13 * len(columns))), layout="constrained")
    ax = figure.subplots()
    for number, row in enumerate(rows):
        for column, offset in zip(columns, np.linspace(-0.36, 0.36, len(columns)), strict=True):
            if (row, column) in dots:
                _draw_dots(ax, dots[row, column], number + offset, STYLES[column])
    _draw_blocks(ax, list(rows.values()))
    handles = [mark(STYLES[column], NAMES.get(column, column)) for column in columns]
    has_published = any(found.published for found in dots.values())
    legend(figure, [*handles, *([mark(Style("0.4", "o"), "published", **HOLLOW)] if has_published else [])])
    return figure


def _draw_dots(ax: Axes, dots: Dots, height: float, style: Style) -> None:
    ax.plot(dots.trials, [height] * len(dots.trials), **faint(style))
    ax.plot(dots.mean, height, marker=style.marker, color=style.colour, markersize=7.5, markeredgewidth=0, zorder=4)
    if dots.published:
        ax.plot(dots.published, height, marker=style.marker, markersize=6.5, **hollow(style))


def _draw_blocks(ax: Axes, names: Sequence[str]) -> None:
    """The names at the side, and every other block in grey; the first is at the top."""
    for number in range(0, len(names), 2):
        ax.axhspan(number - 0.5, number + 0.5, color="0.95", linewidth=0, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.85", linewidth=0.6)
    ax.set_axisbelow(True)


def make_ratios(ax: Axes, label: str) -> None:
    """Logarithmic, around 1; never so short that it has no other number."""
    ax.axvline(1.0, color="0.3", linewidth=1)
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.set(xlim=(min(low, 0.68), max(high, 1.6)), xlabel=label)
    tick(ax.xaxis)
