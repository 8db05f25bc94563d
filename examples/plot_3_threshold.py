"""
The published method: how to choose its threshold
=================================================

``WGPRegressor()`` needs no threshold. In the method of the paper, ``WGPRegressor.published()``, it is the largest
squared Wasserstein distance that an update may move a model by, in the square of the target's unit, summed over the
pseudo-inputs and the batch. No value suits every survey; this example shows how to find one.
"""

import matplotlib.pyplot as plt
import numpy as np

from wgpr import WGPRegressor
from wgpr.metrics import scores
from wgpr.plots import plot_history
from wgpr.survey import hold_out

# %%
# A boat on a small lake, smooth in the west and rugged in the east, with 10 cm of noise. Whole stretches of the track
# are held out: single rows would be too easy to predict, because neighbours on a track are nearly equal.

rng = np.random.default_rng(0)
lines, positions = np.arange(0.0, 2.0, 0.1), np.arange(0.0, 1.5, 0.02)
X = np.concatenate([np.column_stack([np.full(75, x), positions[:: (-1) ** n]]) for n, x in enumerate(lines)])
rugged = 1.0 / (1.0 + np.exp(-(X[:, 0] - 1.0) / 0.05))
depth = 4.0 + 2.0 * np.sin(np.pi * X[:, 0] / 2) + rugged * np.sin(11 * X[:, 0]) * np.cos(13 * X[:, 1])
survey = hold_out(X, depth + 0.1 * rng.normal(size=len(X)), n_segments=60, random_state=0)

# %%
# A threshold of infinity never splits, so the history shows the distances of one growing model. They are small while
# the boat is in the west and rise when it comes to the east.

never = WGPRegressor.published(threshold=np.inf, random_state=0).fit(survey.X, survey.y)
distances = np.array([record.distance for record in never.history_[1:]])
print("distances, quartiles:", np.percentile(distances, (25, 50, 75)).round(2), "largest:", distances.max().round(1))

figure, ax = plt.subplots(figsize=(9, 3.5), layout="constrained")
plot_history(never, ax=ax)

# %%
# The distances have two levels, with 1 between them. Values from 0.1 to 10 are compared on the held-out rows. The rule
# ``evidence`` and the defaults need no threshold.

models = {f"threshold {value:g}": WGPRegressor.published(threshold=value) for value in (0.1, 1.0, 10.0)}
models |= {"evidence": WGPRegressor.published(splitting="evidence"), "the defaults": WGPRegressor()}
for name, model in models.items():
    model.set_params(random_state=0).fit(survey.X, survey.y)
    result = scores(survey.y_test, *model.predict(survey.X_test, return_std=True))
    print(f"{name:>13}: {model.n_models_:2} models, RMSE {result.rmse:.3f} m, {result.coverage:.0%} inside 95 %")

# %%
# These scores are optimistic, because the threshold is chosen on the rows that are reported. To know how good the map
# will be, choose on some stretches and score on others.
