"""What each element of WGPR contributes: the ablation as tables and in words."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from reproduction.page import Content, Table
from reproduction.plan import ALL_CANDIDATES, N_CANDIDATES, TITLES
from reproduction.results import Results, spread
from reproduction.studies import ABLATION, ABLATION_DATASETS, CANDIDATES, PREDICTION, SPLITTING, UPDATES

_PUBLISHED = {"splitting": SPLITTING[0], "prediction": PREDICTION[0], "update": UPDATES[0]}
_KEY = ["dataset", "trial"]


def ablation_content(results: Results) -> list[Content]:
    """Words and tables; nothing if the ablation was not run."""
    errors, candidates = _errors(results), results.of(CANDIDATES)
    if errors.empty:
        return []
    words = [_INTRODUCTION, *_words_on_elements(errors), _words_on_best(errors)]
    tables = [_element_table(errors, element, choices, caption) for element, (choices, caption) in _ELEMENTS.items()]
    if not candidates.empty:
        words.insert(-1, _words_on_candidates(candidates))
        tables.append(_candidates_table(candidates))
    return [*words, *tables]


def _errors(results: Results) -> pd.DataFrame:
    """A row for each fit and prediction rule: data set, trial, elements, n_models, rmse, and ratio to the published."""
    fits = results.of(ABLATION)
    if fits.empty:
        return fits
    columns = {f"rules.{rule}.rmse": rule for rule in PREDICTION}
    names = [*_KEY, "splitting", "update", "n_models"]
    long = fits.rename(columns=columns).melt(names, list(PREDICTION), "prediction", "rmse")
    return long.merge(_as_published(long)[[*_KEY, "rmse"]], "left", _KEY, suffixes=("", " published")).assign(
        ratio=lambda frame: frame["rmse"] / frame["rmse published"]
    )


def _as_published(frame: pd.DataFrame, **exchanged: str) -> pd.DataFrame:
    """The rows with the published elements, but for those that are exchanged."""
    wanted = {**_PUBLISHED, **exchanged}
    return frame[np.logical_and.reduce([frame[name] == value for name, value in wanted.items()])]


def _geometric_mean(ratios: "pd.Series[float]") -> float:
    return float(np.exp(np.log(ratios).mean()))


# Tables

_ELEMENTS = {
    "splitting": (SPLITTING, "Splitting rule: RMSE (and number of models), prediction of the nearest model."),
    "prediction": (PREDICTION, "Prediction rule: RMSE, models split by the Wasserstein distance."),
    "update": (UPDATES, "Updates: RMSE with hyperparameters learned from every batch, or frozen after the first."),
}


def _element_table(errors: pd.DataFrame, element: str, choices: Sequence[str], caption: str) -> Table:
    """RMSE by one element, all others as published."""
    rows = {choice: _as_published(errors, **{element: choice}).groupby("dataset") for choice in choices}
    texts = {choice: groups["rmse"].agg(spread) for choice, groups in rows.items()}
    if element == "splitting":
        texts = {choice: texts[choice] + rows[choice]["n_models"].mean().map(" ({:.0f})".format) for choice in rows}
    return _table(caption, element, pd.DataFrame(texts).T, bold_rows=(0,))


def _candidates_table(candidates: pd.DataFrame) -> Table:
    groups = candidates.groupby(["n_candidates", "dataset"])
    texts = groups["rules.nearest.rmse"].agg(spread) + groups["seconds"].mean().map(" ({:.0f} s)".format)
    frame = texts.unstack()
    bold = [number for number, count in enumerate(frame.index) if count == N_CANDIDATES]
    caption = "Models tried for each batch (J_hat): RMSE, and seconds of processor time."
    return _table(caption, "J_hat", frame.rename(index=_number), bold)


def _table(caption: str, corner: str, frame: pd.DataFrame, bold_rows: Sequence[int]) -> Table:
    datasets = [dataset for dataset in ABLATION_DATASETS if dataset in frame]
    rows = [(name, *row) for name, row in zip(frame.index, frame[datasets].fillna("-").to_numpy(), strict=True)]
    return Table(caption, (corner, *(TITLES[dataset] for dataset in datasets)), rows, bold_rows=bold_rows)


def _number(n_candidates: int) -> str:
    return "all" if n_candidates == ALL_CANDIDATES else str(n_candidates)


# Words

_INTRODUCTION = (
    "Each element was exchanged while all others stayed as published: Wasserstein splitting, prediction by the nearest "
    f"model, updates that learn hyperparameters, {N_CANDIDATES} candidates, squared exponential. The threshold is the "
    "better of the two finite ones of the search (1 % and 10 % of the variance), so that this is not the WGPR of the "
    "methods table, which may choose none. Percentages are changes of the RMSE: on each data set the geometric mean "
    "over the trials' ratios, and before it that over the data sets; plus is worse."
)


def _words_on_elements(errors: pd.DataFrame) -> Iterator[str]:
    """A paragraph for each element: the change of the error if only this element is exchanged."""
    for element, (choices, _) in _ELEMENTS.items():
        sentences = [_words_on_choice(errors, element, choice) for choice in choices[1:]]
        yield " ".join([f"{element.capitalize()}.", *filter(None, sentences)])


def _words_on_choice(errors: pd.DataFrame, element: str, choice: str) -> str:
    """The error over that of the published method: geometric means over the trials, and over the data sets."""
    ratios = _as_published(errors, **{element: choice}).groupby("dataset")["ratio"].agg(_geometric_mean).dropna()
    changes = [f"{TITLES[name]} {ratios[name] - 1:+.0%}" for name in ABLATION_DATASETS if name in ratios]
    exchanged = f"{choice} in place of {_PUBLISHED[element]}".replace("_", " ").capitalize()
    return f"{exchanged}: {_geometric_mean(ratios) - 1:+.0%} ({', '.join(changes)})." if changes else ""


def _words_on_candidates(candidates: pd.DataFrame) -> str:
    """The mean error and time of each number of candidates over those of the published number."""
    means = candidates.groupby(["n_candidates", "dataset"])[["rules.nearest.rmse", "seconds"]].mean()
    numbers = means.index.unique("n_candidates")
    parts = []
    for number in numbers.drop(N_CANDIDATES) if N_CANDIDATES in numbers else ():
        ratios = (means.loc[number] / means.loc[N_CANDIDATES]).dropna()
        error, time = (_geometric_mean(ratios[name]) for name in ratios)
        if len(ratios):
            parts.append(
                f"{_number(number)} in place of {N_CANDIDATES}: {error - 1:+.0%}, in {time:.2f} times the time"
            )
    return f"Models tried for each batch. {'; '.join(parts) or 'Not run'}."


def _words_on_best(errors: pd.DataFrame) -> str:
    """The best combination of each data set."""
    parts, published = ["All elements together."], tuple(_PUBLISHED.values())
    for dataset in ABLATION_DATASETS:
        means = errors[errors["dataset"] == dataset].groupby(list(_PUBLISHED), sort=False)["rmse"].mean()
        if len(means):
            best = ", ".join(means.idxmin()).replace("_", " ")
            theirs = f", that of the published one {means[published]:.3g}" if published in means else ""
            least = f"the least error of the {len(means)} combinations is {means.min():.3g} ({best})"
            parts.append(f"{TITLES[dataset]}: {least}{theirs}.")
    return " ".join(parts)
