"""Maps that several tests of plans share."""

import numpy as np
import pytest

from wgpr import WGPRegressor
from wgpr.planning import ground


@pytest.fixture
def few_cells(monkeypatch):
    """Plans of hundreds of cells in place of thousands: time grows faster than their number."""
    monkeypatch.setattr(ground, "_CELLS", (400, 900))


@pytest.fixture
def fewest_cells(monkeypatch):
    """For what commands write and say, which does not depend on the number of cells."""
    monkeypatch.setattr(ground, "_CELLS", (400, 600))


@pytest.fixture(scope="session")
def regimes():
    """2,200 rows on lines 40 m apart, in random order: smooth ground in the west, rough ground east of 500 m."""
    random = np.random.default_rng(0)
    east, north = np.meshgrid(np.linspace(0.0, 1000.0, 105), np.arange(0.0, 801.0, 40.0))
    X = np.column_stack([east.ravel(), north.ravel()])[:2200]
    X = random.permutation(X + random.normal(size=X.shape))
    waves = random.normal(scale=0.04, size=(60, 2))
    rough = np.cos(X @ waves.T + random.uniform(0.0, 2.0 * np.pi, 60)).sum(axis=1)
    y = 3.0 * np.sin(X[:, 0] / 300.0) * np.cos(X[:, 1] / 250.0) + np.where(X[:, 0] > 500.0, rough, 0.0)
    return WGPRegressor().fit(X, y + 0.1 * random.normal(size=len(X)))
