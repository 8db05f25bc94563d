"""The studies of the reproduction: their jobs, what each job fits, and the settings that are chosen from the results.

The toy and the sweep vary the number of models. The tables compare methods and references on every data set, with
settings from a search on validation rows. The ablation exchanges the elements of WGPR. Stability is about defaults.
"""

from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reproduction.data import Array, all_rows, trial_data, validation_split
from reproduction.fitting import (
    Values,
    evaluate,
    fit_and_score,
    fit_exact_gp,
    fit_interpolation,
    fit_stream,
    score_held_out,
)
from reproduction.jobs import Job, cost_of
from reproduction.methods import EXACT, INTERPOLATION, ITERATIONS, KERNELS, METHODS, Settings, make_wgpr
from reproduction.plan import DATASETS, N_CANDIDATES, TOY, Plan
from reproduction.results import Results
from wgpr import KernelDistance, LocalGPRegressor, SolarGPRegressor, StreamingGPRegressor, WGPRegressor
from wgpr.metrics import scores

TOY_PICTURE, SWEEP, SEARCH, TABLES = "toy picture", "sweep", "search", "tables"
ABLATION, CANDIDATES, STABILITY = "ablation", "candidates", "stability"


def all_jobs(plan: Plan, names: Sequence[str]) -> list[Job]:
    """The fits of all studies, on the data sets that are available."""
    datasets = [name for name in DATASETS if name in names]
    return [
        *_toy_jobs(plan),
        *_sweep_jobs(plan, datasets),
        *table_jobs(plan, datasets),
        *_ablation_jobs(plan, datasets),
        *_stability_jobs(plan, names),
    ]


# The two-regime toy: number of models and error over all thresholds, and a picture of both methods

# The setting that decides on new models, and its values.
TOY_THRESHOLDS = {
    "WGPR": ("threshold", (0.0, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, inf)),
    "SOLAR": ("w_gen", (0.0, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.8)),
}

# Errors within this factor of the least count as equal; of these, the value with the fewest models is chosen.
EQUAL_ERROR = 1.02


def _toy_jobs(plan: Plan) -> list[Job]:
    fits = [
        Job(TOY, {"method": method, "value": value, "seed": seed}, fit_toy, cost=2.0)
        for method, (_, values) in TOY_THRESHOLDS.items()
        for value in values
        for seed in (*plan.toy_seeds, *plan.toy_search_seeds)
    ]
    pictures = [
        Job(
            TOY_PICTURE,
            {"method": method},
            predict_toy,
            2.0,
            {"value": partial(chosen_toy_value, method=method, plan=plan)},
        )
        for method in TOY_THRESHOLDS
    ]
    return [*fits, *pictures]


def fit_toy(method: str, value: float, seed: int, folder: Path | None, plan: Plan) -> Values:
    """One fit, scored at noisy samples between those learned."""
    settings = {"kernel": "se", TOY_THRESHOLDS[method][0]: value}
    return fit_and_score(method, settings, trial_data(TOY, seed, folder, plan), seed)[1]


def predict_toy(method: str, value: float, folder: Path | None, plan: Plan) -> Values:
    """Every third sample of the first toy, the prediction along the line, and which model it is from."""
    data = trial_data(TOY, 0, folder, plan)
    model, _ = fit_and_score(method, {"kernel": "se", TOY_THRESHOLDS[method][0]: value}, data, 0)
    x = np.linspace(data.stream.X.min(), data.stream.X.max(), 600)
    mean, std = model.predict(x[:, None], return_std=True)
    lines = {"x": x, "mean": mean, "std": std, "model": model.model_index(x[:, None])}
    arrays = {**lines, "X": data.stream.X[::3, 0], "y": data.stream.y[::3]}
    rounded = {name: np.round(values, 4).tolist() for name, values in arrays.items()}
    return {"value": value, "n_models": model.n_models_, **rounded}


def toy_fits(results: Results, method: str, seeds: tuple[int, ...]) -> pd.DataFrame:
    """The results of a method on the toys with these seeds."""
    frame = results.of(TOY, method=method)
    return frame if frame.empty else frame[frame["seed"].isin(seeds)]


def chosen_toy_fits(results: Results, method: str, plan: Plan) -> pd.DataFrame:
    """The results on the reported toys, with the value that was chosen on the others."""
    frame = toy_fits(results, method, plan.toy_seeds)
    if frame.empty or toy_fits(results, method, plan.toy_search_seeds).empty:
        return frame[:0]
    return frame[frame["value"] == chosen_toy_value(results, method, plan)]


def chosen_toy_value(results: Results, method: str, plan: Plan, *, finite: bool = False) -> float:
    """Of the values with an equal and least error on the toys for the search, the one with the fewest models.

    Several thresholds may lead to the very same fits. Then the middle one is taken: the means of their errors differ by
    rounding alone, that is, by the order in which the fits were done.

    finite : neither 0 nor infinite.
    """
    means = toy_fits(results, method, plan.toy_search_seeds).groupby("value")[["test.rmse", "n_models"]].mean()
    if finite:
        means = means[(means.index > 0) & (means.index < inf)]
    good = means[means["test.rmse"] <= EQUAL_ERROR * means["test.rmse"].min()]
    fewest = good[good["n_models"] == good["n_models"].min()]["test.rmse"]
    same = fewest.index[np.isclose(fewest, fewest.min(), rtol=1e-9, atol=0.0)]
    return float(same[len(same) // 2])


# The sweep: from one model for each batch to one for all. The paper has a figure of kin40k, and numbers of Pumadyn

SWEEP_DATASETS = ("kin40k", "pumadyn")
THRESHOLD_NAMES = {"WGPR": "relative_threshold", "SOLAR": "w_gen"}


def _sweep_jobs(plan: Plan, datasets: Sequence[str]) -> list[Job]:
    values = {"WGPR": plan.relative_thresholds, "SOLAR": plan.w_gens}
    return [
        Job(SWEEP, {"dataset": dataset, "method": method, "value": value, "trial": trial}, fit_sweep, cost)
        for dataset in SWEEP_DATASETS
        if dataset in datasets
        for method in values
        for cost in [cost_of(dataset, method, plan)]
        for value in values[method]
        for trial in range(plan.n_sweep_trials)
    ]


def fit_sweep(dataset: str, method: str, value: float, trial: int, folder: Path | None, plan: Plan) -> Values:
    """One fit with the paper's settings."""
    settings = {"kernel": "se", THRESHOLD_NAMES[method]: value}
    return fit_and_score(method, settings, trial_data(dataset, trial, folder, plan), trial)[1]


# The tables: the search for settings, the final fits, and two references

_CURVE_POINTS = 25


def table_jobs(plan: Plan, datasets: Sequence[str]) -> list[Job]:
    """The fits of the search, the references, and the final fits with the settings of the search."""
    jobs = []
    keys: list[dict[str, Any]] = [
        {"dataset": name, "trial": trial} for name in datasets for trial in range(plan.n_trials)
    ]
    for key in keys:
        for name, method in METHODS.items():
            cost, chosen = (
                cost_of(key["dataset"], name, plan),
                {"settings": partial(chosen_settings, method=name, **key)},
            )
            jobs.append(Job(TABLES, {**key, "method": name}, fit_chosen, cost, chosen))
            numbers = range(len(method.fit_settings)) if method.searched_as == name else ()
            jobs += [Job(SEARCH, {**key, "method": name, "setting": n}, try_settings, 0.8 * cost) for n in numbers]
        for name in (EXACT, INTERPOLATION):
            jobs.append(Job(TABLES, {**key, "method": name}, fit_reference, cost_of(key["dataset"], name, plan)))
    return jobs


def try_settings(dataset: str, method: str, trial: int, setting: int, folder: Path | None, plan: Plan) -> Values:
    """One fit on the training stream without its validation rows, and the error there by settings of the prediction."""
    stream = validation_split(trial_data(dataset, trial, folder, plan).stream, trial)
    settings = METHODS[method].fit_settings[setting]
    model = METHODS[method].make(cheaper(settings), stream.y, trial)
    fitted = fit_stream(model, stream)
    readings = [
        {"reading": reading, "rmse": evaluate(model.set_params(**reading), stream.X_test, stream.y_test)["rmse"]}
        for reading in METHODS[method].predict_settings
    ]
    return {"settings": settings, "readings": readings, **fitted}


def cheaper(settings: Settings) -> Settings:
    """Settings of the same ensemble with fewer fits: a threshold of 0 always splits, an infinite one never."""
    rules = {0.0: "always", inf: "never"}
    relative = settings.get("relative_threshold")
    return {**settings, "splitting": rules[relative]} if relative in rules else settings


def fit_chosen(dataset: str, method: str, trial: int, settings: Settings, folder: Path | None, plan: Plan) -> Values:
    """Fit the training stream with the chosen settings, and score."""
    data = trial_data(dataset, trial, folder, plan)
    n_points = _CURVE_POINTS if data.stream.is_stream else 0
    return {"settings": settings, **fit_and_score(method, settings, data, trial, n_curve_points=n_points)[1]}


def fit_reference(dataset: str, method: str, trial: int, folder: Path | None, plan: Plan) -> Values:
    """An exact Gaussian process, or interpolation: both have all rows at once, or as many as fit."""
    data = trial_data(dataset, trial, folder, plan)
    if method == EXACT:
        model, fitted = fit_exact_gp(data.stream, trial)
        return {**fitted, **score_held_out(data, partial(evaluate, model))}
    predict, fitted = fit_interpolation(data.stream)
    return {**fitted, **score_held_out(data, lambda X, y: scores(y, predict(X))._asdict())}


def chosen_settings(results: Results, dataset: str, method: str, trial: int) -> Settings:
    """The settings of fit and prediction with the least error on the validation rows; of equal ones, the first."""
    tried = results.of(SEARCH, dataset=dataset, method=METHODS[method].searched_as, trial=trial)
    found = [
        (reading["rmse"], fit.setting, {**fit.settings, **reading["reading"]})
        for fit in tried.itertuples()
        for reading in fit.readings
        if reading["reading"] in METHODS[method].predict_settings
    ]
    return min(found, key=lambda each: each[:2])[2]


# The ablation: one element of WGPR after the other is exchanged, with the best finite thresholds of the search

ABLATION_DATASETS = (TOY, "tzibana", "sarcos", "kin40k")

# The published choice is the first of each. The prediction rules are those that need no joint models.
SPLITTING = ("wasserstein", "evidence", "distance", "always", "never")
PREDICTION = ("nearest", "weighted", "best_few", "barycenter", "robust_bcm")
UPDATES = ("learned", "frozen")


def _ablation_jobs(plan: Plan, datasets: Sequence[str]) -> list[Job]:
    """A fit for each splitting rule and update, predicted by all rules; and for each number of candidates."""
    rules: list[tuple[str, dict[str, Any]]] = [
        (ABLATION, {"splitting": splitting, "update": update}) for splitting in SPLITTING for update in UPDATES
    ]
    numbers = [(CANDIDATES, {"n_candidates": n_candidates}) for n_candidates in plan.n_candidates]
    return [
        Job(study, {"dataset": dataset, **variant, "trial": trial}, fit_variant, cost, thresholds)
        for dataset in ABLATION_DATASETS
        if dataset in (TOY, *datasets)
        for trial in range(plan.n_ablation_trials)
        for cost in [cost_of(dataset, "WGPR", plan)]
        for chosen in [partial(finite_threshold, dataset=dataset, trial=trial, plan=plan)]
        for thresholds in [{"threshold": partial(chosen, method="WGPR"), "w_gen": partial(chosen, method="SOLAR")}]
        for study, variant in [*rules, *numbers]
    ]


def finite_threshold(results: Results, dataset: str, method: str, trial: int, plan: Plan) -> float:
    """The best threshold that is neither 0 nor infinite, with the paper's kernel and many iterations."""
    if dataset == TOY:
        return chosen_toy_value(results, method, plan, finite=True)
    name = THRESHOLD_NAMES[method]
    tried = results.of(SEARCH, dataset=dataset, method=METHODS[method].searched_as, trial=trial)
    return min(
        (fit.readings[0]["rmse"], fit.settings[name])
        for fit in tried.itertuples()
        if (fit.settings["kernel"], fit.settings["optimizer_iterations"]) == (KERNELS[0], ITERATIONS[-1])
        and 0.0 < fit.settings[name] < inf
    )[1]


def fit_variant(
    dataset: str,
    trial: int,
    threshold: float,
    w_gen: float,
    folder: Path | None,
    plan: Plan,
    splitting: str = SPLITTING[0],
    update: str = UPDATES[0],
    n_candidates: int = N_CANDIDATES,
) -> Values:
    """One fit of WGPR with some elements exchanged, scored with every prediction rule."""
    stream = trial_data(dataset, trial, folder, plan).stream
    threshold_name = "threshold" if dataset == TOY else THRESHOLD_NAMES["WGPR"]
    settings = {"kernel": "se", threshold_name: threshold, "n_candidates": n_candidates}
    rule = KernelDistance(w_gen) if splitting == "distance" else splitting
    model = make_wgpr({**settings, "splitting": rule, "learn_hyperparameters": update == "learned"}, stream.y, trial)
    fitted = fit_stream(model, stream)
    rules = {rule: evaluate(model.set_params(prediction=rule), stream.X_test, stream.y_test) for rule in PREDICTION}
    return {**fitted, "rules": rules, "settings": {**settings, "w_gen": w_gen}}


# Stability: every method with its default settings, on every data set. Are there predictions that diverge?

ORDERS = ("natural", "shuffled")
ESTIMATORS = {"WGPR": WGPRegressor, "SOLAR": SolarGPRegressor, "OVFE": StreamingGPRegressor, "LGPR": LocalGPRegressor}
N_PLACES = 2000


def _stability_jobs(plan: Plan, names: Sequence[str]) -> list[Job]:
    return [
        Job(STABILITY, {"dataset": name, "method": method, "order": order}, fit_default, cost_of(name, method, plan))
        for name in names
        for method in ESTIMATORS
        for order in ORDERS
    ]


def fit_default(dataset: str, method: str, order: str, folder: Path | None, plan: Plan) -> Values:
    """Learn all rows, and find the worst prediction: at these rows, and at random places in the box around them.

    Returns
    -------
    is_finite : whether all means and standard deviations are; rmse : at the rows, over the targets' deviation.
    worst, worst_around : the prediction furthest from the middle of the targets' range, at the rows and at the random
        places, in halves of that range: 1 is its end.
    dropped : updates that failed; the batch then started a model.
    """
    rows = all_rows(dataset, order == "shuffled", folder, plan)
    model = ESTIMATORS[method](random_state=0)
    fitted = fit_stream(model, rows)
    places = np.random.default_rng(0).uniform(rows.X.min(axis=0), rows.X.max(axis=0), (N_PLACES, rows.X.shape[1]))
    mean, std = model.predict(rows.X, return_std=True)
    around, std_around = model.predict(places, return_std=True)
    return {
        **fitted,
        "is_finite": bool(np.isfinite([*mean, *std, *around, *std_around]).all()),
        "rmse": float(np.sqrt(np.mean((mean - rows.y) ** 2)) / rows.y.std()),
        "worst": furthest(mean, rows.y),
        "worst_around": furthest(around, rows.y),
        "dropped": sum(len(record.dropped) for record in model.history_),
        "n_rows": len(rows.y),
    }


def furthest(predictions: Array, y: Array) -> float:
    """The largest distance from the middle of the targets' range, in halves of that range."""
    middle, half = 0.5 * (y.min() + y.max()), 0.5 * np.ptp(y)
    return float(np.abs(predictions - middle).max() / half)
