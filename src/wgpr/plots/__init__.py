"""Pictures of maps, histories and calibration. Every function draws into `ax`, or into a new figure, and returns it."""

from wgpr.plots.plots import (
    COLOURS,
    plot_1d,
    plot_calibration,
    plot_field,
    plot_history,
    plot_lengthscales,
    plot_map,
    plot_models,
    plot_slices,
    plot_uncertainty,
    summary_figure,
)

__all__ = [
    "COLOURS",
    "plot_1d",
    "plot_calibration",
    "plot_field",
    "plot_history",
    "plot_lengthscales",
    "plot_map",
    "plot_models",
    "plot_slices",
    "plot_uncertainty",
    "summary_figure",
]
