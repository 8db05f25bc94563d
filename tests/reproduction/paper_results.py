"""Made-up results of all studies, for the tests of the figures and of the report of the paper."""

from math import inf

import numpy as np

from reproduction.figures import STREAMS
from reproduction.methods import EXACT, INTERPOLATION, METHODS, METHODS_AND_REFERENCES
from reproduction.plan import DATASETS, FULL
from reproduction.studies import ABLATION_DATASETS, ESTIMATORS, ORDERS, PREDICTION, SPLITTING, UPDATES

SEEDS, SEARCH_SEED = (0, 1, 2), 100
N_MODELS = 12
X = np.linspace(0.0, 300.0, 61)


def scored(rmse, coverage=0.9):
    return {"rmse": rmse, "coverage": coverage, "smse": rmse / 20, "nlpd": None if coverage is None else 1.5}


def add_all(results):
    for add in (add_toy, add_sweep, add_tables, add_ablation, add_stability):
        add(results)


def add_toy(results):
    model = np.arange(len(X)) * N_MODELS // len(X)
    for method, models in {"WGPR": model // 6, "SOLAR": model}.items():
        curves = {"x": X.tolist(), "mean": np.sin(X).tolist(), "std": [0.2] * len(X), "model": models.tolist()}
        data = {"X": X[::3].tolist(), "y": np.sin(X[::3]).tolist()}
        results.add("toy picture", {"method": method}, {"n_models": int(models.max()) + 1, **curves, **data})
        for number, value in enumerate((0.0, 0.1, inf) if method == "WGPR" else (0.0, 0.1, 0.5)):
            for seed in (*SEEDS, SEARCH_SEED):
                key = {"method": method, "value": value, "seed": seed}
                n_models = (20 + seed, 2, 1)[number] if method == "WGPR" else (1, 5, 30)[number]
                rmse = 0.25 + 0.01 * (seed % SEARCH_SEED) + 0.1 * number
                results.add("toy", key, {"n_models": n_models, "test": scored(rmse), "seconds": 1.0})


def add_sweep(results, errors=None, n_models=(100, 10, 1)):
    """errors : by method, those of the three thresholds on kin40k."""
    errors = errors or {"WGPR": (0.5, 0.6, 0.7), "SOLAR": (0.5, 0.6, 0.7)}
    for method, means in errors.items():
        for value, mean, n, seconds in zip((0.0, 0.3, inf), means, n_models, (20.0, 15.0, 10.0), strict=True):
            for trial in range(2):
                key = {"dataset": "kin40k", "method": method, "value": value, "trial": trial}
                values = {"n_models": n, "seconds": seconds, "n_rows": 10_000}
                results.add("sweep", key, {**values, "test": scored(mean + 0.02 * trial)})
                results.add("sweep", {**key, "dataset": "pumadyn"}, {**values, "test": scored(99.0 + mean)})


def add_tables(results, datasets=tuple(DATASETS), n_models=1):
    for dataset in datasets:
        for number, method in enumerate(METHODS_AND_REFERENCES):
            for trial in range(3):
                curve = [[batch, 2.0 - 0.1 * batch] for batch in range(1 + trial, 10 + trial)]
                rmse = (2.0 + number) * (1.0 + 0.1 * trial)
                is_learner = method in METHODS and dataset in STREAMS
                values = {
                    "test": scored(rmse, None if method == INTERPOLATION else 0.9 + 0.01 * number),
                    "near": scored(rmse / 2) if dataset in STREAMS else None,
                    "seconds": 2.0,
                    "n_rows": 1000,
                    "bytes": 5000,
                    "settings": {"kernel": "se"},
                    **({} if method == INTERPOLATION else {"n_models": 1 if method == EXACT else n_models}),
                    **({"curve": curve if is_learner else []} if method in METHODS else {}),
                }
                results.add("tables", {"dataset": dataset, "method": method, "trial": trial}, values)


def add_ablation(results, datasets=ABLATION_DATASETS):
    for dataset in datasets:
        for trial in range(2):
            for row, splitting in enumerate(SPLITTING):
                for factor, update in zip((1.0, 1.5), UPDATES, strict=True):
                    rules = {rule: scored(factor * (1 + row + column)) for column, rule in enumerate(PREDICTION)}
                    key = {"dataset": dataset, "splitting": splitting, "update": update, "trial": trial}
                    results.add("ablation", key, {"rules": rules, "n_models": 1 + row})
            for n_candidates in FULL.n_candidates:
                rules = {"nearest": scored(1.0 + trial + 1.0 / n_candidates)}
                key = {"dataset": dataset, "n_candidates": n_candidates, "trial": trial}
                results.add("candidates", key, {"rules": rules, "seconds": 1.0 + min(n_candidates, 20)})


def add_stability(results, names=(*DATASETS, "motorcycle")):
    for name in names:
        for method in ESTIMATORS:
            for order in ORDERS:
                values = {"is_finite": True, "rmse": 0.5, "worst": 1.0, "worst_around": 1.2, "dropped": 0}
                results.add("stability", {"dataset": name, "method": method, "order": order}, values)
