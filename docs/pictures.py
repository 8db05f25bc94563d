"""Writes docs/terrain.png, the picture of the README, from the map that the demo saves.

wgpr demo -o wgpr-demo
python docs/pictures.py wgpr-demo/wgpr.map
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import wgpr
from wgpr.plots import plot_field, plot_map, plot_models, plot_uncertainty
from wgpr.survey import fly, jacksboro


def terrain_figure(model: wgpr.WGPRegressor) -> Figure:
    """Truth, prediction, uncertainty and local models of the demo's terrain."""
    terrain = jacksboro()
    n_lines = len(np.unique(fly(terrain, random_state=0).X[:, 1]))
    grid = model.predict_grid(terrain.region, 3 * np.array(terrain.spacing))
    colours = {"vmin": float(terrain.elevation.min()), "vmax": float(terrain.elevation.max())}
    figure = Figure(figsize=(9.4, 7.8), layout="constrained")
    figure.get_layout_engine().set(wspace=0.05, hspace=0.04)  # so that no label seems to belong to the next panel
    axes = figure.subplots(2, 2).ravel()
    plot_field(terrain.elevation, terrain.region, ax=axes[0], label="elevation [m]", **colours)
    plot_map(grid, ax=axes[1], **colours)
    plot_uncertainty(grid, ax=axes[2], latent=True, vmin=0.0, vmax=float(np.quantile(grid["std_latent"], 0.99)))
    plot_models(grid, ax=axes[3])
    titles = "truth", f"learned from {n_lines} flight lines", "uncertainty", f"{model.n_models_} local models"
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xlabel="east [km]", ylabel="north [km]")
        ax.set_title("", loc="left")
        ax.set_title(title)
    return figure


if __name__ == "__main__":
    picture = Path(__file__).with_name("terrain.png")
    terrain_figure(wgpr.load(sys.argv[1])).savefig(picture, dpi=80, metadata={"Software": None})
    print(f"written: {picture}")
