"""What happened in a step of the ensemble."""

from dataclasses import dataclass
from typing import NamedTuple


class Change(NamedTuple):
    """Model number `model` learned `n_samples` rows, and was new or not."""

    model: int
    n_samples: int
    is_new: bool


@dataclass(frozen=True)
class StepRecord:
    """What happened in one step.

    number : of the step, from 0; n_samples : rows in the batch; seconds : that it took.
    candidates : numbers of the models whose update was tried, without those that a sketch ruled out. For each of them:
    w_old, w_new : squared Wasserstein distances, None where the rule did not ask for them;
    evidence : log evidence of the batch given the model's past, None for an update that failed.
    evidence_new : of the batch as a model of its own, if that was tried.
    dropped : candidates whose update failed or was not finite.
    changes : the models that learned, and how many rows each.
    n_evaluations : how often the bound was computed, for all models that were tried.
    merged : pairs of models that became one afterwards, because there were too many. Numbers are those of that moment;
        the new model has the smaller one, and numbers above the larger one count one less from then on.
    """

    number: int
    n_samples: int
    candidates: tuple[int, ...]
    w_old: tuple[float | None, ...]
    w_new: tuple[float | None, ...]
    evidence: tuple[float | None, ...]
    evidence_new: float | None
    dropped: tuple[int, ...]
    changes: tuple[Change, ...]
    seconds: float
    n_evaluations: int = 0
    merged: tuple[tuple[int, int], ...] = ()

    @property
    def distance(self) -> float | None:
        """The smallest `w_old + w_new` of the candidates: what a threshold is compared with. None if not asked for."""
        pairs = zip(self.w_old, self.w_new, strict=True)
        return min((old + new for old, new in pairs if old is not None and new is not None), default=None)

    @property
    def decision(self) -> str:
        """ "new", "update", or "both" when rows of one batch went different ways."""
        is_new = {change.is_new for change in self.changes}
        return "both" if len(is_new) == 2 else "new" if True in is_new else "update"
