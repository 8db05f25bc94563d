"""
Compare methods and their calibration
=====================================

All methods have the same interface. The RMSE measures the mean, and the calibration measures the intervals.
"""

import matplotlib.pyplot as plt

from wgpr import LocalGPRegressor, SolarGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes
from wgpr.metrics import scores
from wgpr.plots import plot_calibration
from wgpr.survey import hold_out

# %%
# The line with two regimes, with one fifth of it held out in 60 stretches of 50 rows, chosen at random.

X, y, _ = two_regimes(random_state=1)
survey = hold_out(X, y, test_part=0.2, n_segments=60, random_state=0)

methods = (
    WGPRegressor(random_state=0),
    SolarGPRegressor(random_state=0),
    LocalGPRegressor(random_state=0),
    StreamingGPRegressor(random_state=0),
)

# %%
# The standard deviation is that of an observation, because the held-out rows have noise.

figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True, layout="constrained")
for model, ax in zip(methods, axes, strict=True):
    mean, std = model.fit(survey.X, survey.y).predict(survey.X_test, return_std=True)
    result = scores(survey.y_test, mean, std)
    name = type(model).__name__
    print(f"{name:>20}: {model.n_models_:3} models, RMSE {result.rmse:.3f}, NLPD {result.nlpd:5.2f}")
    plot_calibration(survey.y_test, mean, std, ax=ax)
    ax.set_title(name, fontsize="medium")

# %%
# Above the diagonal the intervals are too wide, below it they are too narrow. The curve of ``LocalGPRegressor`` has a
# flat part: its intervals are too wide for most of the rows and too narrow for the others. One number, such as the
# coverage of the 95 % interval, would not show this.
