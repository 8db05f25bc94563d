"""How much is run: everything, or a quick look."""

from dataclasses import dataclass
from math import inf

# The paper's settings, which all methods have.
N_INDUCING, BATCH_SIZE, N_CANDIDATES = 50, 100, 5
ALL_CANDIDATES = 1_000_000  # more than there are models

# The data sets of the tables, as `reproduction.datasets` names them, with their titles.
DATASETS = {
    "opinicon": "Lake Opinicon",
    "tzibana": "Lake Tzibana",
    "sarcos": "SARCOS (subset)",
    "kin40k": "kin40k",
    "abalone": "Abalone",
    "pumadyn": "Pumadyn-8nm",
}
LAKES = ("opinicon", "tzibana")
TOY, TOY_NOISE = "toy", 0.25
TITLES = {TOY: "Two-regime toy", **DATASETS}


@dataclass(frozen=True)
class Plan:
    """What is run, and on how much data. The file of the results begins with it.

    n_trials : of the tables; n_ablation_trials, n_sweep_trials : of those studies.
    max_rows : of a stream, its first rows; None for all. max_test_rows : of the rows held out, drawn at random.
    toy_seeds : of the toys that are reported; toy_search_seeds : of other toys, on which settings are chosen.
    relative_thresholds, w_gens : settings of the sweep over the number of models.
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
    stability_sets=(*DATASETS, "tzibana-raw", "motorcycle"),
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
    stability_sets=(*DATASETS, "motorcycle"),
)
