"""A line that is smooth on its left half and rugged on its right half, learned as it streams by.

    python examples/two_regimes.py [picture.png]

One Gaussian process has one length-scale, and the field has two. WGPR starts a second model where the field changes.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from sklearn.metrics import root_mean_squared_error

from wgpr import SolarGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes
from wgpr.estimators.base import OnlineRegressor

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")


def learn(model: OnlineRegressor, X: np.ndarray, y: np.ndarray) -> OnlineRegressor:
    """Feed the rows piece by piece, as they would come from an instrument."""
    for first in range(0, len(y), 70):
        model.partial_fit(X[first : first + 70], y[first : first + 70])
    return model.flush()


def counted(model: OnlineRegressor) -> str:
    return "1 model" if model.n_models_ == 1 else f"{model.n_models_} models"


def draw(model: OnlineRegressor, X: np.ndarray, y: np.ndarray, ax: Axes, error: float) -> None:
    """Data, 95 % band, and the mean in the colour of the model that answers."""
    mean, std = model.predict(X, return_std=True)
    owner = model.model_index(X)
    ax.plot(X, y, ".", color="0.75", markersize=2)
    ax.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, color="0.88", linewidth=0)
    for number in np.unique(owner):
        own = np.where(owner == number, mean, np.nan)
        ax.plot(X, own, color=COLOURS[number % len(COLOURS)], linewidth=1.5)
    ax.set_title(f"{type(model).__name__}: {counted(model)}, RMSE {error:.3f}", loc="left", fontsize=10)
    ax.set_ylabel("y")


def main() -> None:
    X, y, f = two_regimes(random_state=0)
    candidates = (WGPRegressor(), SolarGPRegressor(), StreamingGPRegressor())
    figure, axes = plt.subplots(len(candidates), sharex=True, sharey=True, figsize=(9, 7), layout="constrained")
    print(f"{len(y)} samples with noise 0.25; the error is that of the mean against the field without noise")
    for model, ax in zip(candidates, axes, strict=True):
        learn(model.set_params(random_state=0), X, y)
        error = root_mean_squared_error(f, model.predict(X))
        print(f"{type(model).__name__:>22}: RMSE {error:.3f} with {counted(model)}")
        draw(model, X, y, ax, error)
    axes[-1].set_xlabel("x")
    if len(sys.argv) > 1:
        figure.savefig(sys.argv[1], dpi=150)
        print(f"picture: {sys.argv[1]}")


if __name__ == "__main__":
    main()
