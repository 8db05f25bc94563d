"""
A survey from the air
=====================

Real terrain (a part of the Jacksboro fault in Tennessee, which ships with matplotlib), flown in parallel lines with
an altimeter of 5 m noise. The map is learned while the aircraft flies.
"""

import matplotlib.pyplot as plt

from wgpr import WGPRegressor
from wgpr.cli.demo import interpolator
from wgpr.metrics import scores
from wgpr.plots import plot_field, plot_map, plot_models, plot_uncertainty
from wgpr.survey import fly, jacksboro

terrain = jacksboro().part(slice(86, 218), slice(100, 252))
survey = fly(terrain, n_test=2000, random_state=0)
print(f"{len(survey.y):,} samples; held out: {survey.held_out}")

# %%
# All settings are the defaults. Every row is known at once.

model = WGPRegressor(random_state=0)
for first in range(0, len(survey.y), 100):
    model.partial_fit(*survey.rows(slice(first, first + 100)))

mean, std = model.predict(survey.named(survey.X_test), return_std=True, latent=True)
result = scores(survey.y_test, mean, std)
baseline = scores(survey.y_test, interpolator(survey.X, survey.y)(survey.X_test))
print(f"WGPR, {model.n_models_} models: RMSE {result.rmse:.1f} m, {result.coverage:.1%} inside the 95 % interval")
print(f"linear interpolation of all samples: RMSE {baseline.rmse:.1f} m")

# %%
# Linear interpolation is hard to beat where lines are dense and the noise is small. It keeps every sample and has no
# uncertainty. The intervals of WGPR are calibrated on the rows of the flight, and the held-out points are between the
# lines.
#
# The truth, the prediction on the same colour scale, its standard deviation, and the model that answers.

low, high = terrain.elevation.min(), terrain.elevation.max()
grid = model.predict_grid(spacing=0.2)
figure, axes = plt.subplots(2, 2, figsize=(11, 9), layout="constrained")
plot_field(terrain.elevation, terrain.region, ax=axes[0, 0], label="elevation [m]", vmin=low, vmax=high)
axes[0, 0].set(xlabel="east [km]", ylabel="north [km]")
plot_map(grid, ax=axes[0, 1], vmin=low, vmax=high)
plot_uncertainty(grid, ax=axes[1, 0], samples=survey.X, latent=True)
plot_models(grid, ax=axes[1, 1])
