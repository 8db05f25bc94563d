"""Pictures of a model. Functions draw into `ax`, by default pyplot's current axes, and return it; nothing is shown."""

from wgpr.plots.diagnostics import plot_calibration, plot_history
from wgpr.plots.lines import plot_1d, plot_slices
from wgpr.plots.maps import plot_field, plot_map, plot_models, plot_uncertainty
from wgpr.plots.style import COLOURS
from wgpr.plots.summary import summary_figure

__all__ = [
    "COLOURS",
    "plot_1d",
    "plot_calibration",
    "plot_field",
    "plot_history",
    "plot_map",
    "plot_models",
    "plot_slices",
    "plot_uncertainty",
    "summary_figure",
]
