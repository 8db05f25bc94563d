"""Makes the fixtures of the current format: run it once for each format, never again for an old one."""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from streams import fitted, published, queries, streamed  # noqa: E402
from wgpr import (  # noqa: E402
    LocalGPRegressor,
    SolarGPRegressor,
    SparseGPRegressor,
    StreamingGPRegressor,
    WGPRegressor,
    load,
)
from wgpr.io.container import VERSION  # noqa: E402

CASES = {
    "wgpr": (streamed(WGPRegressor), False),
    "published": (streamed(published), False),
    "solar": (streamed(SolarGPRegressor), False),
    "lgpr": (streamed(LocalGPRegressor), False),
    "streaming": (streamed(StreamingGPRegressor), False),
    "sparse": (fitted(SparseGPRegressor), False),
    "waiting": (streamed(WGPRegressor, 7), False),
    "wgpr-compact": (streamed(WGPRegressor), True),
    "lgpr-compact": (streamed(LocalGPRegressor), True),
}

answers = {}
for case, (estimator, compact) in CASES.items():
    name = f"format{VERSION}-{case}.map"
    if (FOLDER / name).exists():
        raise SystemExit(f"{name} is there already; an old format's fixtures must never change")
    estimator.save(FOLDER / name, compact=compact)
    loaded = load(FOLDER / name)
    mean, std = loaded.predict(queries(), return_std=True)
    answers[name] = {"mean": mean.tolist(), "std": std.tolist(), "n_seen": loaded.n_samples_seen_,
                     "n_pending": loaded.n_pending_}  # fmt: skip
(FOLDER / f"format{VERSION}.json").write_text(json.dumps(answers))
