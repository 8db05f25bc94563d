"""
A line with two regimes
=======================

A field that is smooth on its left half and rugged on its right half, in the order in which an instrument would
measure it. One Gaussian process has one length-scale, and the field has two.
"""

import matplotlib.pyplot as plt
from sklearn.metrics import root_mean_squared_error

from wgpr import StreamingGPRegressor, WGPRegressor
from wgpr.datasets import two_regimes
from wgpr.plots import plot_1d, plot_history

X, y, f = two_regimes(random_state=0)

# %%
# WGPR with its default settings, and one streaming Gaussian process. Both get 70 rows at a time. WGPR
# knows every row at once. In the other, rows wait until a batch is full, and ``flush`` learns them at the end.

ensemble = WGPRegressor(random_state=0)
single = StreamingGPRegressor(random_state=0)
for first in range(0, len(y), 70):
    rows = slice(first, first + 70)
    ensemble.partial_fit(X[rows], y[rows])
    single.partial_fit(X[rows], y[rows])

for model in (ensemble, single.flush()):
    error = root_mean_squared_error(f, model.predict(X))
    print(f"{type(model).__name__}: {model.n_models_} model(s), RMSE against the field without noise {error:.3f}")

# %%
# The ticks at the bottom are the pseudo-inputs. WGPR takes as many as each model needs: few on the smooth half, many on
# the rugged one. The single model spreads its 50 over the whole line, and uses the length-scale of the rugged half for
# both: on the left its mean fits the noise, and its band is wider.

figure, axes = plt.subplots(2, sharex=True, figsize=(9, 6), layout="constrained")
plot_1d(ensemble, X, y, ax=axes[0])
plot_1d(single, X, y, ax=axes[1])

# %%
# The steps of WGPR, and the number of models: at the change of regime a second one starts. The length-scale and the
# noise of both are printed.

figure, ax = plt.subplots(figsize=(9, 3.5), layout="constrained")
plot_history(ensemble, ax=ax)
print([(model.lengthscales.round(1).tolist(), round(model.noise, 2)) for model in ensemble.hyperparameters_])
