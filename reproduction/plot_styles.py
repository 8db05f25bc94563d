"""How methods and data sets look in the figures: colours, markers, rows of dots, axes and legends."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from reproduction.methods import ANY_RULE, EXACT, INTERPOLATION, OURS
from reproduction.plan import TITLES, TOY
from wgpr.plots import COLOURS


class Style(NamedTuple):
    """Of a method or a data set."""

    colour: str
    marker: str


_BLUE, _ORANGE, _GREEN, _PINK, _SKY, _RED, _YELLOW = COLOURS
STYLES = {
    OURS: Style(_BLUE, "o"),
    ANY_RULE: Style(_SKY, "P"),
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

# Ticks within a decade, the densest first.
RATIO_TICKS = ((1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
COUNT_TICKS = ((1, 2, 3, 5, 7), (1, 2, 5), (1,))
_MAX_TICKS = 10
_HOLLOW: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.5}


class Dots(NamedTuple):
    """One row of dots: the trials, their mean, and the published value."""

    trials: Any
    mean: float
    published: float = np.nan


def faint(style: Style) -> dict[str, Any]:
    """Of a trial."""
    look = {"alpha": 0.35, "markersize": 4.0, "markeredgewidth": 0.0, "linestyle": "none"}
    return {**look, "color": style.colour, "marker": style.marker}


def strong(style: Style) -> dict[str, Any]:
    """Of a mean."""
    return {"color": style.colour, "marker": style.marker, "markersize": 6, "linewidth": 2}


def hollow(style: Style) -> dict[str, Any]:
    """Of what was published."""
    return {"markeredgecolor": style.colour, **_HOLLOW, "zorder": 3}


def line(style: Style, label: str) -> Line2D:
    return Line2D([], [], label=label, **strong(style))


def legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Above the axes, where it covers nothing."""
    n_columns = len(handles) if len(handles) <= 5 else 4
    figure.legend(handles=handles, loc="outside upper center", ncols=n_columns, frameon=False)


def grid(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize="medium")
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def log_ticks(axis: Axis, choices: Sequence[Sequence[float]] = RATIO_TICKS) -> None:
    """Round numbers, written out, on a logarithmic axis: as many as there is room for."""
    low, high = axis.get_view_interval()
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [[part * 10.0**power for power in powers for part in parts] for parts in choices]
    inside = [[tick for tick in found if low <= tick <= high] for found in ticks]
    axis.set_major_locator(FixedLocator(next((found for found in inside if len(found) <= _MAX_TICKS), inside[-1])))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())


def dots_figure(blocks: Mapping[str, str], names: Sequence[str], dots: Mapping[tuple[str, str], Dots]) -> Figure:
    """A block of rows for each of `blocks` (with their titles), and in it a row of dots for each of `names`.

    dots : by block and name; blocks and names without any dots are left out.
    """
    blocks = {block: title for block, title in blocks.items() if any(block == place[0] for place in dots)}
    names = [name for name in names if any(name == place[1] for place in dots)]
    figure = Figure(figsize=(8.0, 1.3 + len(blocks) * (0.25 + 0.13 * len(names))), layout="constrained")
    ax = figure.subplots()
    for number, block in enumerate(blocks):
        for name, offset in zip(names, np.linspace(-0.36, 0.36, len(names)), strict=True):
            if (block, name) in dots:
                _draw_dots(ax, dots[block, name], number + offset, STYLES[name])
    _draw_blocks(ax, list(blocks.values()))
    styles = {TITLES.get(name, name): STYLES[name] for name in names}
    handles = [Line2D([], [], color=s.colour, marker=s.marker, linestyle="none", label=t) for t, s in styles.items()]
    if any(found.published > 0 for found in dots.values()):
        handles.append(Line2D([], [], color="0.4", marker="o", linestyle="none", label="published", **_HOLLOW))
    legend(figure, handles)
    return figure


def _draw_dots(ax: Axes, dots: Dots, height: float, style: Style) -> None:
    ax.plot(dots.trials, [height] * len(dots.trials), **faint(style))
    ax.plot(dots.mean, height, marker=style.marker, color=style.colour, markersize=7.5, markeredgewidth=0, zorder=4)
    if dots.published > 0:
        ax.plot(dots.published, height, marker=style.marker, markersize=6.5, **hollow(style))


def _draw_blocks(ax: Axes, titles: Sequence[str]) -> None:
    """Titles at the side, the first at the top, and every other block in grey."""
    for number in range(0, len(titles), 2):
        ax.axhspan(number - 0.5, number + 0.5, color="0.95", linewidth=0, zorder=0)
    ax.set_yticks(range(len(titles)), titles)
    ax.set_ylim(len(titles) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="0.85", linewidth=0.6)
    ax.set_axisbelow(True)


def ratio_figure(
    blocks: Mapping[str, str], names: Sequence[str], dots: Mapping[tuple[str, str], Dots], label: str
) -> Figure:
    """Dots on a logarithmic axis around 1, long enough for other ticks than 1."""
    figure = dots_figure(blocks, names, dots)
    ax = figure.axes[0]
    ax.axvline(1.0, color="0.3", linewidth=1)
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.set(xlim=(min(low, 0.68), max(high, 1.6)), xlabel=label)
    log_ticks(ax.xaxis)
    return figure
