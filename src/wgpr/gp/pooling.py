"""A prior for the hyperparameters of a local model, from the models around it (docs/joining.md).

A batch along one line says nothing about the direction across it, and a first batch says little about anything. Its
neighbours have learned more: a model is believed to be like them, and strays only with evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wgpr.gp.hyperparameters import STD_OF_NEW, STD_OF_STEP, Prior, Scales, default_hyperparameters
from wgpr.gp.kernels import Hyperparameters, Kernel
from wgpr.gp.linalg import Array
from wgpr.gp.model import Neighbour

# Neighbours that agree to the last digit are still not sure of the next model.
_MOST_ALIKE = 0.2

# Rows that tell the noise; older ones fade, so that it can change.
_ROWS_OF_NOISE = 200


@dataclass(frozen=True, eq=False)
class Belief:
    """Independent normal distributions of the log hyperparameters. mean, std : (p,)."""

    mean: Array
    std: Array

    @classmethod
    def around(cls, theta: Hyperparameters, std: float) -> "Belief":
        """About these."""
        mean = theta.to_log()
        return cls(mean, np.full(len(mean), std))

    def combined(self, other: "Belief") -> "Belief":
        """What follows from two independent beliefs."""
        precision, others = self.std**-2, other.std**-2
        total = precision + others
        return Belief((precision * self.mean + others * other.mean) / total, total**-0.5)

    def prior(self, kernel: Kernel, scales: Scales) -> Prior:
        """As a prior, in the box that fits the scales of the data."""
        return Prior(kernel, scales, self.mean, self.std)


def of_new_model(kernel: Kernel, scales: Scales, neighbours: Sequence[Neighbour]) -> Belief:
    """Before a model has learned anything: like its neighbours, as far as they are alike; typical if it has none."""
    vague = Belief.around(default_hyperparameters(kernel, scales), STD_OF_NEW)
    if not neighbours:
        return vague
    logs = np.array([model.theta.to_log() for model in neighbours])
    std = np.sqrt(logs.var(axis=0) + vague.std**2 / (1 + len(logs)))  # few neighbours are a small sample
    return Belief(logs.mean(axis=0), std.clip(_MOST_ALIKE, vague.std))


def of_next_batch(
    kernel: Kernel, scales: Scales, theta: Hyperparameters, n_seen: int, neighbours: Sequence[Neighbour]
) -> Belief:
    """For a model that has learned `theta` from `n_seen` rows: about as it is, and like its neighbours.

    A summary remembers the field and not its noise. So the noise is believed as firmly as so many rows can tell it, up
    to some hundred, and does not follow every batch: the variance of its logarithm is 1 / 2n.
    """
    own = Belief.around(theta, STD_OF_STEP)
    own.std[-1] = min(STD_OF_STEP, (2.0 * min(n_seen, _ROWS_OF_NOISE)) ** -0.5)
    return own.combined(of_new_model(kernel, scales, neighbours))
