"""Small streams for the tests of territories: inputs (n, d) and targets (n, k) of about unit spread."""

import numpy as np

from wgpr.ensemble.answers import PosteriorCache, predict


def wavy(n, d=2, k=1, seed=0, noise=0.1):
    """A field with many waves, that needs several territories."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d))
    field = [np.sin(5.0 * X[:, 0] + j) * np.cos(4.0 * X[:, -1]) for j in range(k)]
    return X, np.stack(field, axis=1) + noise * rng.normal(size=(n, k))


def answers_of(territories, X, cache=None, max_bytes=2**28):
    """Answers at `X` (n, d), by default without anything kept."""
    return predict(territories, X, PosteriorCache() if cache is None else cache, max_bytes)
