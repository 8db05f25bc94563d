"""What a batch, a query and a model of the paper's method cost as ensembles, models and inputs grow.

    python benchmarks/scale.py [--output scale.jsonl] [--plot docs/] [--only models] [--rounds 40] [--quick] [--write]

Ensembles of 10 to 100,000 models of 20 to 400 pseudo-inputs in 1 to 50 dimensions, at the settings of the paper:
batches of 100, five candidates, a threshold of 30. Time is that of the processor, on one thread, and is measured in
rounds, all sizes in turn. With `--output`, a run that was interrupted continues where it stopped. `--write` puts the
table into docs/scale.md. 100,000 models take 8 GB and a minute to make; all of it takes half an hour, `--quick` two
minutes.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import Progress

from common import ROOT, Record, Results, markdown_table, put_measured
from synthetic_ensembles import (
    BATCH,
    Size,
    SyntheticEnsemble,
    Track,
    array_bytes,
    cached_names,
    moved,
    rows_of_field,
    without_caches,
)
from wgpr import WGPRegressor
from wgpr.ensemble.absorb import absorb
from wgpr.ensemble.ensemble import Ensemble
from wgpr.ensemble.evaluation import BatchEvaluation
from wgpr.gp.linalg import one_blas_thread
from wgpr.plots import COLOURS
from wgpr.rules.prediction import Nearest, PredictionRule, predict
from wgpr.rules.splitting import Wasserstein

PAGE, MARKERS = ROOT / "docs/scale.md", ("<!-- measured by benchmarks/scale.py -->", "<!-- end of scale -->")
N_GROWN = 10_000  # the mean time of a join grows with the number of models, so that more take long
BASE, N_CANDIDATES, RULE = Size(), 5, Wasserstein(30.0)

Measurement = Callable[[SyntheticEnsemble, int], Record]


@dataclass(frozen=True)
class Study:
    """Sizes that differ in one thing, measured in so many rounds."""

    varied: str
    values: tuple[int, ...]
    n_rounds: int
    base: Size = BASE

    @property
    def sizes(self) -> list[Size]:
        return [replace(self.base, study=self.varied, **{self.varied: value}) for value in self.values]


STUDIES = {
    "models": Study("n_models", (10, 100, 1_000, 10_000, 100_000), 40),
    "pseudo-inputs": Study("n_inducing", (20, 50, 100, 200, 400), 12),
    "inputs": Study("n_inputs", (1, 2, 4, 8, 16, 32, 50), 20),
    "models-with-many-inputs": Study("n_models", (10, 100, 1_000, 10_000), 5, base=Size(n_inputs=21)),
}
QUICK_STUDIES = {
    "models": Study("n_models", (10, 100, 1_000), 4),
    "pseudo-inputs": Study("n_inducing", (20, 50, 100), 2),
    "inputs": Study("n_inputs", (1, 8, 32), 2),
}


# What is measured. Every measurement takes an ensemble and the number of the round.


def milliseconds(work: Callable[[], object]) -> float:
    started = process_time()
    work()
    return 1000.0 * (process_time() - started)


@contextmanager
def parts_timed() -> Iterator[Counter[str]]:
    """Counts, within it, the milliseconds that it takes to find models, and to change the ensemble."""
    spent: Counter[str] = Counter()

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            started = process_time()
            result = function(*arguments)
            spent[part] += 1000.0 * (process_time() - started)
            return result

        return wrapper

    with ExitStack() as stack:
        for name, part in {"nearest_by_mean": "search", "with_model": "change"}.items():
            stack.enter_context(patch.object(Ensemble, name, timed(getattr(Ensemble, name), part)))
        yield spent


def learned(synthetic: SyntheticEnsemble, number: int, *, kind: str, amplitude: float = 1.0) -> Record:
    """A batch, after all batches of this kind before it."""
    ensemble, (X, y) = synthetic.after(kind), synthetic.batch(number, amplitude)
    with parts_timed() as parts:
        started = process_time()
        evaluation = BatchEvaluation(ensemble, synthetic.learner, X, y, N_CANDIDATES, seed=0, number=number)
        synthetic.ensembles[kind], record = absorb(evaluation, RULE)
        spent = 1000.0 * (process_time() - started)
    bounds = {"evaluations": record.n_evaluations, "bound": spent / record.n_evaluations}
    return {"milliseconds": spent, **parts, **bounds, "is_new": record.changes[0].is_new}


def queried(synthetic: SyntheticEnsemble, number: int, *, rule: PredictionRule, n: int) -> Record:
    """Queries anywhere with variance, all at once; for the first time and again."""
    ensemble, X = without_caches(synthetic.after("learned")), synthetic.anywhere(n, number)
    first, again = (milliseconds(lambda: predict(ensemble, rule, X)) / n for _ in range(2))
    return {"milliseconds": again, "first": first}


def queried_one_by_one(synthetic: SyntheticEnsemble, number: int, *, rule: PredictionRule, n: int) -> Record:
    """Queries with variance around one model that has answered before."""
    ensemble, (X, _) = synthetic.after("learned"), synthetic.batch(number)
    predict(ensemble, rule, X)
    return {"milliseconds": milliseconds(lambda: [predict(ensemble, rule, x[None]) for x in X[:n]]) / n}


BATCHES: dict[str, Measurement] = {
    "learned": partial(learned, kind="learned"),
    "new": partial(learned, kind="new", amplitude=5.0),
}
QUERIES: dict[str, Measurement] = {
    "nearest, 10,000 anywhere": partial(queried, rule=Nearest(), n=10_000),
    "nearest, one by one": partial(queried_one_by_one, rule=Nearest(), n=50),
}


def memory(synthetic: SyntheticEnsemble, number: int) -> Record:
    """Bytes of a model: its arrays, what it makes to answer, in memory, and in a map."""
    model = moved(synthetic.ensemble.models[0], np.zeros(synthetic.size.n_inputs))
    model.predict(model.inputs)
    made = array_bytes(tuple(vars(model)[name] for name in cached_names(model)))
    return {**synthetic.memory, "with caches": synthetic.memory["arrays"] + made, **saved_bytes(synthetic.size)}


def saved_bytes(size: Size) -> Record:
    """Of a model in a map, full and compact: what ten more of them add to it."""
    rng, n_rows = np.random.default_rng(0), max(BATCH, size.n_inducing)
    settings = {"n_inducing": size.n_inducing, "batch_size": n_rows, "splitting": "always", "optimizer_iterations": 0}
    X, y = rows_of_field(0, 11 * n_rows, size.n_inputs, rng)
    few, many = (WGPRegressor.published(**settings, random_state=0).fit(X[:n], y[:n]) for n in (n_rows, 11 * n_rows))
    return {
        name: (len(many.to_bytes(compact=is_compact)) - len(few.to_bytes(compact=is_compact))) / 10
        for name, is_compact in {"saved": False, "compact": True}.items()
    }


def growing(synthetic: SyntheticEnsemble, sizes: Iterable[Size], track: Track) -> Iterator[Record]:
    """What it takes to join a model to the ensemble, new trees included, from none to at most `N_GROWN` models."""
    n_models = min(synthetic.size.n_models, N_GROWN)
    ensemble, spent = Ensemble.of([], synthetic.size.n_inputs), np.empty(n_models)
    for number in track(range(n_models), "growing model by model"):
        started = process_time()
        ensemble = ensemble.with_model(synthetic.ensemble.models[number])
        spent[number] = 1000.0 * (process_time() - started)
    for size in (size for size in sizes if size.n_models <= n_models):
        latest = spent[size.n_models // 10 : size.n_models]
        about = {"milliseconds": latest.mean(), "median": np.median(latest), "largest": latest.max()}
        yield {**asdict(size), "round": 0, "work": "growing", **about}


# Rounds


class Store(Results):
    """Results by size and kind of work."""

    def of(self, size: Size, work: str) -> list[Record]:
        return self.matching({**asdict(size), "work": work})

    def values(self, size: Size, work: str, quantity: str = "milliseconds") -> np.ndarray:
        return np.array([record[quantity] for record in self.of(size, work) if quantity in record])

    def median(self, size: Size, work: str, quantity: str = "milliseconds") -> float:
        values = self.values(size, work, quantity)
        return float(np.median(values)) if len(values) else np.nan


def measure(study: Study, store: Store, progress: Progress) -> None:
    """In rounds, all sizes in turn: what disturbs the machine for a while disturbs all of them."""
    n_done, track = min(len(store.of(size, "learned")) for size in study.sizes), partial(tracked, progress)
    if n_done >= study.n_rounds:
        return
    ensembles = [SyntheticEnsemble(size, track) for size in study.sizes]
    if not n_done:
        store.add(*measured({"memory": memory}, ensembles, 0))
        if study.varied == "n_models":
            store.add(*growing(ensembles[-1], study.sizes, track))
    for number in track(range(n_done, study.n_rounds), "measuring"):
        store.add(*measured({**BATCHES, **QUERIES}, ensembles, number))


def measured(
    measurements: dict[str, Measurement], ensembles: Sequence[SyntheticEnsemble], number: int
) -> Iterator[Record]:
    for (name, measurement), synthetic in product(measurements.items(), ensembles):
        yield {**asdict(synthetic.size), "round": number, "work": name, **measurement(synthetic, number)}


def tracked(progress: Progress, numbers: Sequence[int], description: str) -> Iterator[int]:
    """The numbers, with a bar that goes when they are done."""
    task = progress.add_task(description, total=len(numbers))
    for number in numbers:
        yield number
        progress.advance(task)
    progress.remove_task(task)


# The table

# Headings, and what stands below them: kind of work, quantities, factor to the unit.
COLUMNS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "batch that a model learns [ms]": ("learned", ("milliseconds",), 1.0),
    "batch that starts a model [ms]": ("new", ("milliseconds",), 1.0),
    "finding the candidates [ms]": ("learned", ("search",), 1.0),
    "changing the ensemble [ms]": ("learned", ("change",), 1.0),
    "one bound with its gradient [ms]": ("learned", ("bound",), 1.0),
    "query of 10,000, first; again [us]": ("nearest, 10,000 anywhere", ("first", "milliseconds"), 1e3),
    "query alone [us]": ("nearest, one by one", ("milliseconds",), 1e3),
    "a model in memory; after a query [kB]": ("memory", ("arrays", "with caches"), 1e-3),
    "in a map; in a compact map [kB]": ("memory", ("saved", "compact"), 1e-3),
}


def table(studies: Iterable[Study], store: Store) -> str:
    """Medians by size, a row for each."""
    sizes = [size for study in studies for size in study.sizes if store.of(size, "learned")]
    rows = []
    for size in sizes:
        cells = [
            "; ".join(number(factor * store.median(size, work, each)) for each in quantities)
            for work, quantities, factor in COLUMNS.values()
        ]
        rows.append([f"{size.n_models:,}", str(size.n_inducing), str(size.n_inputs), *cells])
    return markdown_table(["J", "M", "d", *COLUMNS], rows)


def number(value: float) -> str:
    """With two digits that say something, or all before the point."""
    return f"{value:,.{max(0, 1 - int(np.floor(np.log10(abs(value) or 1.0))))}f}"


def ratios(study: Study, store: Store) -> str:
    """Sentences on batches of the largest ensemble over those at 100 models, and on how models join an ensemble."""
    few, many = (size for size in study.sizes if size.n_models in {100, study.values[-1]})
    learned, new = (store.median(many, kind) / store.median(few, kind) for kind in BATCHES)
    grown = max((size for size in study.sizes if store.of(size, "growing")), key=lambda size: size.n_models)
    mean, largest = (number(store.median(grown, "growing", each)) for each in ("milliseconds", "largest"))
    return (
        f"With {many.n_inputs} inputs, a batch at {many.n_models:,} models takes {learned:.2f} times as long as at 100 "
        f"if a model learns it, and {new:.2f} times if it starts one. A model joins an ensemble that grows to "
        f"{grown.n_models:,} in {mean} ms in the mean, and in {largest} ms at most, when the tree is built again.\n"
    )


def text(studies: Sequence[Study], store: Store) -> str:
    """The table, and sentences on each study of the number of models."""
    grown = [study for study in studies if study.varied == "n_models" and store.of(study.sizes[-1], "learned")]
    return "\n".join([table(studies, store), *(ratios(study, store) for study in grown)])


# Pictures


@dataclass(frozen=True)
class Curve:
    """A quantity of a measurement, and how it is drawn."""

    label: str
    work: str
    quantity: str = "milliseconds"
    colour: int = 0
    style: str = "o-"
    unit: float = 1.0


@dataclass(frozen=True)
class Picture:
    """slopes : by what varies, the power and the height of a line to compare with, and what it says."""

    name: str
    label: str
    curves: tuple[Curve, ...]
    slopes: dict[str, tuple[float, float, str]]


PICTURES = (
    Picture(
        "scale_batch",
        "a batch of 100 [ms]",
        (
            Curve("of another field (a new model)", "new", colour=5),
            Curve("learned by an old model", "learned", colour=0),
            Curve("of that: finding models", "learned", "search", colour=2, style="^:"),
            Curve("of that: changing the ensemble", "learned", "change", colour=3, style="v:"),
            Curve("one bound with its gradient", "learned", "bound", colour=1, style="d-."),
        ),
        {"n_inducing": (3.0, 2.5e-6, "$M^3$"), "n_inputs": (1.0, 0.1, "$d$")},
    ),
    Picture(
        "scale_query",
        "a query with variance [ms]",
        (
            Curve("nearest, one by one", "nearest, one by one", colour=4, style="^-"),
            Curve("nearest, 10,000 anywhere, first time", "nearest, 10,000 anywhere", "first", style="s--"),
            Curve("nearest, 10,000 anywhere, again", "nearest, 10,000 anywhere"),
        ),
        {"n_inducing": (2.0, 4e-8, "$M^2$"), "n_inputs": (1.0, 2e-4, "$d$")},
    ),
    Picture(
        "scale_memory",
        "a model [kB]",
        (
            Curve("in memory, after a query", "memory", "with caches", colour=1, unit=1e-3),
            Curve("in memory", "memory", "arrays", colour=0, unit=1e-3),
            Curve("in a map", "memory", "saved", colour=5, unit=1e-3),
            Curve("in a compact map", "memory", "compact", colour=2, unit=1e-3),
        ),
        {"n_inducing": (2.0, 0.1, "$M^2$"), "n_inputs": (1.0, 0.08, "$d$")},
    ),
)
AXES = {"n_models": "models, J", "n_inducing": "pseudo-inputs of a model, M", "n_inputs": "inputs, d"}


def draw(picture: Picture, studies: Sequence[Study], store: Store, folder: Path) -> None:
    figure, axes = plt.subplots(1, len(studies), figsize=(11.0, 4.4), sharey=True, squeeze=False, layout="constrained")
    for ax, study in zip(axes[0], studies, strict=True):
        for curve in picture.curves:
            heights = [curve.unit * store.median(size, curve.work, curve.quantity) for size in study.sizes]
            ax.plot(study.values, heights, curve.style, color=COLOURS[curve.colour], markersize=4, label=curve.label)
        draw_slope(ax, study, *picture.slopes.get(study.varied, (0.0, np.nan, "")))
        ax.set(xscale="log", yscale="log", xlabel=AXES[study.varied], xticks=study.values)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.minorticks_off()
        ax.grid(color="0.9")
    axes[0, 0].set_ylabel(picture.label)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(folder / f"{picture.name}.png", dpi=110)
    plt.close(figure)


def draw_slope(ax: plt.Axes, study: Study, power: float, height: float, words: str) -> None:
    """A line to compare with, on the right."""
    values = np.array(study.values[len(study.values) // 2 :], dtype=float)
    line = height * values**power
    ax.plot(values, line, color="0.6", linewidth=1.0)
    ax.annotate(words, (values[-1], line[-1]), (-8, -12), textcoords="offset points", color="0.4", ha="right")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="lines of JSON; what is in it already is not measured again")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="where to draw the curves")
    parser.add_argument("--only", choices=STUDIES, help="one of the studies")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--quick", action="store_true", help="up to 1,000 models, a few rounds")
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[Study]:
    studies = QUICK_STUDIES if arguments.quick else STUDIES
    names = [arguments.only] if arguments.only else list(studies)
    return [replace(studies[name], n_rounds=arguments.rounds or studies[name].n_rounds) for name in names]


def main() -> None:
    arguments, console = parsed(), Console(width=150)
    studies, store = chosen(arguments), Store(arguments.output)
    try:
        with one_blas_thread(), Progress(console=console, transient=True) as progress:
            for study in studies:
                measure(study, store, progress)
    except KeyboardInterrupt:
        console.print("interrupted; these were done:")
    print(text(studies, store))
    if arguments.plot:
        for picture in PICTURES:
            draw(picture, [study for study in studies if study.base == BASE], store, arguments.plot)
    if arguments.write:
        put_measured(PAGE, *MARKERS, text(studies, store))


if __name__ == "__main__":
    main()
