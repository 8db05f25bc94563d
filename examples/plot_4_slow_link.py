"""
Maps over a slow link
=====================

A boat learns, and the shore wants the map, over a link of a few kilobytes a second. The shore gets a compact map
once, and then only the models that have learned something.
"""

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np

from wgpr import WGPRegressor, apply, diff, load
from wgpr.survey import fly, jacksboro

folder = Path(mkdtemp())
survey = fly(jacksboro().part(slice(86, 258), slice(100, 302)), random_state=0)

# %%
# The boat saves everything to the last bit. The compact map is for the link: float32, only what prediction needs, no
# history.

boat = WGPRegressor()
boat.partial_fit(*survey.rows(slice(0, 800)))
boat.save(folder / "boat.map")
boat.save(folder / "compact.map", compact=True)
for name in ("boat.map", "compact.map"):
    print(f"{name}: {(folder / name).stat().st_size:,} bytes for {boat.n_models_} models")

# %%
# The shore predicts as the boat does, up to the rounding of float32.

shore = load(folder / "compact.map")
places = survey.named(survey.X[:800:7])
print(f"largest change of the mean: {np.abs(shore.predict(places) - boat.predict(places)).max():.1e} m")

# %%
# The boat goes on, from its file, as if it had never stopped. After every 100 rows it sends what changed. It must
# know what the shore has, so it applies each difference to its own copy too.

boat, copy = load(folder / "boat.map"), load(folder / "compact.map")
sizes = [(folder / "compact.map").stat().st_size]
for first in range(800, 1200, 100):
    boat.partial_fit(*survey.rows(slice(first, first + 100)))
    message = diff(copy, boat)
    copy, shore = apply(copy, message), apply(shore, message)
    sizes.append(len(message))
    print(f"{boat.n_samples_seen_} rows, {boat.n_models_} models: {len(message):,} bytes sent")

places = survey.named(survey.X[:1200:7])
print(f"largest change of the mean: {np.abs(shore.predict(places) - boat.predict(places)).max():.1e} m")

# %%
# What went over the link. A message costs about as much as one model, however many there are.

figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.bar(["compact map", *(f"{rows} rows" for rows in range(900, 1201, 100))], np.array(sizes) / 1e3, color="#0072B2")
ax.set_ylabel("kB sent")
