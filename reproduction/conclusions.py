"""What the reproduction was to show, and whether it does."""

from typing import Any, NamedTuple

import pandas as pd

from reproduction import published
from reproduction.methods import ANY_RULE, METHODS_AND_REFERENCES, OURS
from reproduction.page import Table
from reproduction.plan import DATASETS, TOY, Plan
from reproduction.results import Results, column, spread
from reproduction.studies import EQUAL_ERROR, STABILITY, TABLES, chosen_toy_fits

_WANTED_RATIO = 0.95  # of the error of WGPR over the published one
_WANTED_WINS, _WANTED_TOYS = 5, 8
_MAX_RANGES = 10.0  # as in `benchmarks/robustness.py`
_DIVERGED = 3.0  # mean squared error of a method that has diverged, in variances of the targets


class Conclusion(NamedTuple):
    """A figure to reach, what was measured, and whether it is reached; None if it was not measured."""

    what: str
    wanted: str
    measured: str = "-"
    is_reached: bool | None = None


def conclusions_table(results: Results, plan: Plan) -> Table:
    """All conclusions. A quick look has the numbers only."""
    words = {True: "yes", False: "no", None: "not run"}
    rows = [
        (each.what, words[each.is_reached] if plan.max_rows is None else "quick look", each.wanted, each.measured)
        for each in conclusions(results, plan)
    ]
    return Table("", ("", "reached", "wanted", "measured"), rows, bold_rows=(), text_columns=(0, 3))


def conclusions(results: Results, plan: Plan) -> list[Conclusion]:
    return [
        _complete(results),
        _stable(results),
        *(_better_than_published(results, dataset) for dataset in ("kin40k", "abalone", "pumadyn")),
        _better_than_baselines(results, OURS),
        _better_than_baselines(results, ANY_RULE),
        _two_models(results, plan),
        _more_models_of_solar(results, plan),
    ]


def datasets_of(results: Results) -> list[str]:
    """The data sets that the tables have results of, in their order."""
    found = set(results.of(TABLES).get("dataset", []))
    return [dataset for dataset in DATASETS if dataset in found]


def _errors(results: Results, dataset: str, method: str) -> "pd.Series[float]":
    """The RMSE of each trial."""
    frame = results.of(TABLES, dataset=dataset, method=method)
    return column(frame if frame.empty else frame.set_index("trial"), "test.rmse")


def _complete(results: Results) -> Conclusion:
    """A cell has diverged if the error of any trial is not finite, or far worse than that of the targets' mean."""
    names, missing, diverged = [], [], []
    for dataset in datasets_of(results):
        for method in METHODS_AND_REFERENCES:
            names.append(f"{method} on {DATASETS[dataset]}")
            frame = results.of(TABLES, dataset=dataset, method=method)
            if frame.empty:
                missing.append(names[-1])
            elif not (frame["test.smse"] <= _DIVERGED).all():
                diverged.append(names[-1])
    counts = f"{len(missing)} missing and {len(diverged)} diverged of {len(names)}"
    measured = ": ".join(filter(None, [counts, "; ".join(missing + diverged)]))
    is_reached = not missing + diverged if names else None
    return Conclusion("cells of the methods table that are missing or diverged", "none", measured, is_reached)


def _stable(results: Results) -> Conclusion:
    frame = results.of(STABILITY)
    what, wanted = "every method on every data set, natural and shuffled", f"finite, in {_MAX_RANGES:g} ranges"
    finite = frame if frame.empty else frame[frame["is_finite"]]
    if finite.empty:
        return Conclusion(what, wanted, is_reached=None if frame.empty else False)
    worst, around = (finite.loc[finite[name].idxmax()] for name in ("worst", "worst_around"))
    measured = (
        f"{len(finite)} of {len(frame)} finite; worst {worst['worst'] / 2:.1f} ranges from the middle at a row seen "
        f"({_run_name(worst)}), {around['worst_around'] / 2:.1f} in the box around ({_run_name(around)})"
    )
    furthest = max(worst["worst"], around["worst_around"]) / 2
    return Conclusion(what, wanted, measured, len(finite) == len(frame) and bool(furthest <= _MAX_RANGES))


def _run_name(run: Any) -> str:
    return f"{run['method']}, {DATASETS.get(run['dataset'], run['dataset'])}, {run['order']}"


def _better_than_published(results: Results, dataset: str) -> Conclusion:
    theirs, ours = published.RMSE.at[dataset, OURS], _errors(results, dataset, OURS)
    what, limit = f"RMSE of WGPR on {DATASETS[dataset]} (published {theirs:.3f})", _WANTED_RATIO * theirs
    if ours.empty:
        return Conclusion(what, f"{limit:.3f}")
    measured = f"{spread(ours)} ({ours.mean() / theirs - 1:+.0%})"
    return Conclusion(what, f"{limit:.3f}", measured, bool(ours.mean() <= limit))


def _better_than_baselines(results: Results, method: str) -> Conclusion:
    """Errors that are equal to four digits are a tie, which is enough."""
    datasets = [dataset for dataset in datasets_of(results) if len(_errors(results, dataset, method))]
    behind = {dataset: baselines for dataset in datasets if (baselines := _baselines_ahead(results, dataset, method))}
    n_won = len(datasets) - len(behind)
    losses = "; ".join(f"{DATASETS[dataset]}: {', '.join(baselines)}" for dataset, baselines in behind.items())
    measured = f"{n_won} of {len(datasets)}{'; behind on ' + losses if losses else ''}"
    is_reached = n_won >= _WANTED_WINS if len(datasets) == len(DATASETS) else None
    wanted = f"{_WANTED_WINS} of {len(DATASETS)}"
    return Conclusion(f"data sets where {method} is at or below our SOLAR and OVFE", wanted, measured, is_reached)


def _baselines_ahead(results: Results, dataset: str, method: str) -> list[str]:
    """The baselines with a smaller error, by how much of it, and in how many trials."""
    ours, texts = _errors(results, dataset, method), []
    for baseline in ("SOLAR", "OVFE"):
        theirs = _errors(results, dataset, baseline)
        if len(theirs) and ours.mean() > 1.00005 * theirs.mean():
            n_won = int((theirs.reindex(ours.index) < ours).sum())
            texts.append(f"{baseline} by {ours.mean() / theirs.mean() - 1:.1%} (in {n_won} of {len(ours)} trials)")
    return texts


def _two_models(results: Results, plan: Plan) -> Conclusion:
    what, wanted = "toys that WGPR learns with 2 models", f"{_WANTED_TOYS} of 10"
    frame, theirs = chosen_toy_fits(results, OURS, plan), published.TOY[OURS]
    if frame.empty:
        return Conclusion(what, wanted)
    n_right, error = int((frame["n_models"] == 2).sum()), spread(frame["test.rmse"])
    measured = f"{n_right} of {len(frame)}; RMSE {error} (published: {theirs.n_models} models, {theirs.rmse})"
    return Conclusion(what, wanted, measured, n_right >= _WANTED_TOYS / 10 * len(plan.toy_seeds))


def _more_models_of_solar(results: Results, plan: Plan) -> Conclusion:
    what, needed = "models that SOLAR needs for the same RMSE", models_of_solar(results, plan)
    reached = needed.dropna()
    if reached.empty:
        return Conclusion(what, "more") if needed.empty else Conclusion(what, "more", "none reaches it", True)
    measured = f"median {reached.median():g}, {reached.min():.0f} to {reached.max():.0f}"
    if len(reached) < len(needed):
        measured += f"; not reached with any setting on {len(needed) - len(reached)} of {len(needed)} toys"
    return Conclusion(what, "more", measured, bool((reached > 2).all()))


def models_of_solar(results: Results, plan: Plan) -> "pd.Series[float]":
    """For each toy the least number of models, over all settings of SOLAR, at the error of WGPR; NaN if none has it."""
    ours, solar = chosen_toy_fits(results, OURS, plan), results.of(TOY, method="SOLAR")
    if ours.empty or solar.empty:
        return pd.Series(dtype=float)
    limits = EQUAL_ERROR * ours.set_index("seed")["test.rmse"]
    good = solar[solar["test.rmse"] <= solar["seed"].map(limits)]
    return good.groupby("seed")["n_models"].min().reindex(limits.index)
