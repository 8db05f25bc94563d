"""Ensembles of any size, made at once: for `scale.py` and `speed.py`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np

from common import resident_bytes
from wgpr import SquaredExponential
from wgpr.ensemble.ensemble import Ensemble
from wgpr.gp.linalg import read_only
from wgpr.gp.sparse import SparseLearner, SparseModel

BATCH = 100  # rows

# Models that are learned; all others are these, moved elsewhere.
N_ORIGINALS = 10

# Edge of the cube that each model has, in standard deviations of its rows: neighbours touch, and hardly overlap.
EDGE = 8.4

# The memory of fewer models cannot be measured: they may use memory that the process had before.
MIN_MODELS_TO_WEIGH = 1000

FIELDS = {each.name for each in fields(SparseModel)}

Track = Callable[[Sequence[int], str], Iterable[int]]  # a progress bar: the numbers, and what they are for


@dataclass(frozen=True)
class Size:
    """J models of M pseudo-inputs in d dimensions; study : what it is measured for."""

    n_models: int = 100
    n_inducing: int = 50
    n_inputs: int = 8
    study: str = ""

    def __str__(self) -> str:
        return f"J = {self.n_models:,}, M = {self.n_inducing}, d = {self.n_inputs}"


def rows_of_field(number: int, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows `X` (n, d) around zero and noisy targets (n,) of field `number`: waves, longer in more dimensions."""
    X, phase = rng.normal(size=(n, d)), np.random.default_rng(number).uniform(0.0, 2.0 * np.pi, d)
    field = np.sqrt(2.0 / d) * np.sin(np.sqrt(8.0 / d) * X + phase).sum(axis=1)
    return X, field + 0.1 * rng.normal(size=n)


def moved(model: SparseModel, place: np.ndarray) -> SparseModel:
    """The same model around another place (d,), which a stationary kernel allows. It shares no memory."""

    def own(array: np.ndarray) -> np.ndarray:
        return read_only(array.copy(order="K"))

    summary = replace(model.summary, Z=read_only(model.inputs + place), R=own(model.summary.R), r=own(model.summary.r))
    return replace(
        model,
        theta=replace(model.theta),
        inputs=summary.Z,
        summary=summary,
        scales=replace(model.scales, inputs=own(model.scales.inputs)),
        centre=read_only(model.centre + place),
        **{name: own(getattr(model, name)) for name in ("L", "L_B", "alpha")},
    )


def _untracked(numbers: Sequence[int], words: str) -> Iterable[int]:
    return numbers


class SyntheticEnsemble:
    """Models around random places, equally dense however many there are.

    ensembles : after the batches of each kind; memory : bytes of one model.
    """

    def __init__(self, size: Size, track: Track = _untracked) -> None:
        self.size, self.learner = size, SparseLearner(SquaredExponential(), size.n_inducing)
        J, d, rng = size.n_models, size.n_inputs, np.random.default_rng(0)
        originals = [
            self.learner.start(*rows_of_field(number, 2 * size.n_inducing, d, rng), rng)
            for number in track(range(N_ORIGINALS), f"learning models, {size}")
        ]
        self.places = rng.uniform(0.0, EDGE * J ** (1.0 / d), size=(J, d))
        at_first = resident_bytes()
        models = [moved(originals[i % N_ORIGINALS], self.places[i]) for i in track(range(J), f"copying {J:,} models")]
        before_index = resident_bytes()
        self.ensemble, self.ensembles = Ensemble.of(models, d), dict[str, Ensemble]()
        self.memory = {"arrays": float(array_bytes(models[0]))}
        if J >= MIN_MODELS_TO_WEIGH:
            self.memory["models"] = (before_index - at_first) / J
            self.memory["index"] = (resident_bytes() - before_index) / J

    def after(self, kind: str) -> Ensemble:
        """The ensemble after all batches of this kind so far."""
        return self.ensembles.get(kind, self.ensemble)

    def batch(self, number: int, amplitude: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Rows around a model, of its own field, or of a field that no model knows if the amplitude is not one."""
        rng = np.random.default_rng((number, int(amplitude)))
        X, y = rows_of_field(number % N_ORIGINALS, BATCH, self.size.n_inputs, rng)
        model = number % N_ORIGINALS + N_ORIGINALS * rng.integers(self.size.n_models // N_ORIGINALS)
        return self.places[model] + X, amplitude * y

    def anywhere(self, n: int, number: int) -> np.ndarray:
        """Queries (n, d) around all models."""
        rng = np.random.default_rng((number, n))
        return self.places[rng.integers(self.size.n_models, size=n)] + rng.normal(size=(n, self.size.n_inputs))


def array_bytes(value: object) -> int:
    """Of all arrays in nested dataclasses and tuples."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if is_dataclass(value):
        value = tuple(getattr(value, each.name) for each in fields(value))
    return sum(map(array_bytes, value)) if isinstance(value, tuple) else 0


def cached_names(model: SparseModel) -> list[str]:
    """Names of what a model has computed for predictions, and could compute again."""
    return [name for name in vars(model) if name not in FIELDS]


def without_caches(ensemble: Ensemble) -> Ensemble:
    """The ensemble as it was before the first query."""
    for model in ensemble.models:
        for name in cached_names(model):
            del vars(model)[name]
    return replace(ensemble, index=replace(ensemble.index))
