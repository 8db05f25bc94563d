"""How much is run: the whole, or a quick look."""

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

# The paper's settings, and the budget of every method.
N_INDUCING, BATCH_SIZE, N_CANDIDATES = 50, 100, 5
ALL_CANDIDATES = 1_000_000  # more than there are models

# The data sets of the tables, as `wgpr.datasets` calls them, and as people do.
COURSES = {
    "opinicon": "Lake Opinicon",
    "tzibana": "Lake Tzibana",
    "sarcos": "SARCOS (subset)",
    "kin40k": "kin40k",
    "abalone": "Abalone",
    "pumadyn": "Pumadyn-8nm",
}
TOY = "toy"


@dataclass(frozen=True)
class Plan:
    """What is run, and on how much data.

    n_trials : of the tables; n_ablation_trials, n_sweep_trials : of those studies.
    max_rows : of a stream, the first of them; None for all. max_test_rows : of what was held out, drawn at random.
    toy_seeds : the toys that count; toy_search_seeds : others, to choose settings on.
    relative_thresholds, w_gens : of the number of models against the error.
    """

    name: str
    n_trials: int
    n_ablation_trials: int
    n_sweep_trials: int
    max_rows: int | None
    max_test_rows: int | None
    toy_seeds: tuple[int, ...]
    toy_search_seeds: tuple[int, ...]
    relative_thresholds: tuple[float, ...]
    w_gens: tuple[float, ...]
    n_candidates: tuple[int, ...]
    stability_sets: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file of the results."""
        return asdict(self)


FULL = Plan(
    name="full",
    n_trials=5,
    n_ablation_trials=3,
    n_sweep_trials=3,
    max_rows=None,
    max_test_rows=None,
    toy_seeds=tuple(range(10)),
    toy_search_seeds=tuple(range(100, 105)),
    relative_thresholds=(0.0, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 1.0, inf),
    w_gens=(0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.55),
    n_candidates=(1, 2, 3, 5, 10, ALL_CANDIDATES),
    stability_sets=(*COURSES, "tzibana-raw", "motorcycle"),
)

QUICK = Plan(
    name="quick",
    n_trials=2,
    n_ablation_trials=1,
    n_sweep_trials=1,
    max_rows=1200,
    max_test_rows=2000,
    toy_seeds=(0, 1),
    toy_search_seeds=(100, 101, 102),
    relative_thresholds=(0.0, 0.1, 0.3, inf),
    w_gens=(0.0, 0.1, 0.3, 0.5),
    n_candidates=(1, 5),
    stability_sets=(*COURSES, "motorcycle"),
)
