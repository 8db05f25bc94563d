"""What a batch, a query and a model cost as ensembles, models and inputs grow.

    python benchmarks/scale.py [--output scale.jsonl] [--plot docs/] [--only models] [--rounds 40] [--quick]

Ensembles of 10 to 100,000 models of 20 to 400 pseudo-inputs in 1 to 50 dimensions, at the settings of the paper: batches
of 100, five candidates, a threshold of 30. Time is that of the processor, on one thread, and everything is measured in
rounds, all sizes in turn. Results are lines of JSON; a run that was interrupted goes on where it stopped. 100,000 models
take 8 GB and a minute to make; all of it takes half an hour, `--quick` less than a minute.
"""

import argparse
import gc
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from wgpr import SquaredExponential, WGPRegressor
from wgpr.ensemble import Ensemble
from wgpr.linalg import frozen, one_blas_thread
from wgpr.neighbourhood import Neighbourhoods
from wgpr.prediction import Joined, Nearest, PredictionRule, predict
from wgpr.sparse import SparseLearner, SparseModel
from wgpr.splitting import Wasserstein
from wgpr.stepping import step

BATCH, N_CANDIDATES, RULE = 100, 5, Wasserstein(30.0)

# Models that are learned; all others are these, moved elsewhere.
N_ORIGINALS = 10

# Edge of the cube that a model has for itself, in standard deviations of its rows: they touch, and hardly overlap.
ROOM = 8.4

Record = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """J models of M pseudo-inputs in d dimensions."""

    n_models: int = 100
    n_inducing: int = 50
    n_inputs: int = 8


@dataclass(frozen=True)
class Study:
    """Sizes that differ in one thing, measured so many times."""

    varied: str
    sizes: tuple[Size, ...]
    n_rounds: int

    @classmethod
    def of(cls, varied: str, values: Iterable[int], n_rounds: int) -> "Study":
        return cls(varied, tuple(Size(**{varied: value}) for value in values), n_rounds)


STUDIES = {
    "models": Study.of("n_models", (10, 100, 1_000, 10_000, 100_000), 40),
    "pseudo-inputs": Study.of("n_inducing", (20, 50, 100, 200, 400), 12),
    "inputs": Study.of("n_inputs", (1, 2, 4, 8, 16, 32, 50), 20),
}
QUICK_STUDIES = {
    "models": Study.of("n_models", (10, 100, 1_000), 4),
    "pseudo-inputs": Study.of("n_inducing", (20, 50, 100), 3),
    "inputs": Study.of("n_inputs", (1, 8, 32), 3),
}


# The ensembles


def rows_of_world(number: int, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows `X` (n, d) around zero, and targets: waves that are longer the more inputs there are, as distances are."""
    X, phase = rng.normal(size=(n, d)), np.random.default_rng(number).uniform(0.0, 2.0 * np.pi, d)
    field = np.sqrt(2.0 / d) * np.sin(np.sqrt(8.0 / d) * X + phase).sum(axis=1)
    return X, field + 0.1 * rng.normal(size=n)


def moved(model: SparseModel, place: np.ndarray) -> SparseModel:
    """The same model at another place (d,): a stationary kernel knows only differences. It shares no memory."""

    def own(array: np.ndarray) -> np.ndarray:
        return frozen(array.copy(order="K"))

    summary = replace(model.summary, Z=frozen(model.inputs + place), R=own(model.summary.R), r=own(model.summary.r))
    scales = replace(model.scales, inputs=own(model.scales.inputs))
    arrays = {name: own(getattr(model, name)) for name in ("L", "L_B", "alpha")}
    return replace(
        model, theta=replace(model.theta), summary=summary, scales=scales, centre=frozen(model.centre + place), **arrays
    )


class World:
    """Models around random places, as a travelling robot leaves them behind, equally dense however many there are.

    ensembles : what became of it, for each kind of batch.
    """

    def __init__(self, size: Size, track: Callable[[Sequence[int], str], Iterable[int]]) -> None:
        self.size, rng = size, np.random.default_rng(0)
        self.learner = SparseLearner(SquaredExponential(), size.n_inducing)
        J, d = size.n_models, size.n_inputs
        originals = [
            self.learner.start(*rows_of_world(number, 2 * size.n_inducing, d, rng), rng)
            for number in track(range(N_ORIGINALS), f"learning models, {described(size)}")
        ]
        self.places = rng.uniform(0.0, ROOM * J ** (1.0 / d), size=(J, d))
        before = resident_bytes()
        models = [moved(originals[i % N_ORIGINALS], self.places[i]) for i in track(range(J), f"copying {J:,} models")]
        between = resident_bytes()
        self.ensemble = Ensemble.of(models, d)
        self.memory = {
            "arrays": array_bytes(models[0]),
            "resident": (between - before) / J,
            "index": (resident_bytes() - between) / J,
        }
        self.ensembles: dict[str, Ensemble] = {}

    def batch(self, number: int, amplitude: float) -> tuple[np.ndarray, np.ndarray]:
        """Rows around a model, of its own world, or of one that no model knows if the amplitude is not one."""
        rng = np.random.default_rng((number, int(amplitude)))
        X, y = rows_of_world(number % N_ORIGINALS, BATCH, self.size.n_inputs, rng)
        model = number % N_ORIGINALS + N_ORIGINALS * rng.integers(self.size.n_models // N_ORIGINALS)
        return self.places[model] + X, amplitude * y

    def scattered(self, n: int, number: int) -> np.ndarray:
        """Queries (n, d) all over the world."""
        rng = np.random.default_rng((number, n))
        return self.places[rng.integers(self.size.n_models, size=n)] + rng.normal(size=(n, self.size.n_inputs))


def resident_bytes() -> int:
    """Memory of this process now."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmRSS"].split()[0])


def array_bytes(value: object) -> int:
    """Of all arrays in nested dataclasses."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(array_bytes(getattr(value, each.name)) for each in fields(value)) if is_dataclass(value) else 0


def described(size: Size) -> str:
    return f"J = {size.n_models:,}, M = {size.n_inducing}, d = {size.n_inputs}"


# What is measured. Every measurement takes a world and the number of the round.


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
        for name, part in {"around": "search", "closest": "search", "with_model": "change"}.items():
            stack.enter_context(patch.object(Ensemble, name, timed(getattr(Ensemble, name), part)))
        yield spent


def learned(world: World, number: int, *, amplitude: float, is_thorough: bool) -> Record:
    """A batch, in what became of the ensemble by the batches of this kind before it."""
    kind = f"{amplitude}, {is_thorough}"
    before = world.ensembles.get(kind, world.ensemble)
    X, y = world.batch(number, amplitude)
    settings = {"rule": RULE, "n_candidates": N_CANDIDATES, "seed": 0, "number": number, "is_thorough": is_thorough}
    with parts_timed() as parts:
        started = process_time()
        world.ensembles[kind], record = step(before, X, y, learner=world.learner, **settings)
        spent = 1000.0 * (process_time() - started)
    is_new = record.changes[0].is_new
    return {"milliseconds": spent, **parts, "evaluations": record.n_evaluations, "is_new": is_new}


def asked(world: World, number: int, *, rule: PredictionRule, n: int, is_around: bool) -> Record:
    """Queries with variance, `n` at once, all over the world or around one model; for the first time, and again."""
    ensemble = forgetful(world.ensembles.get("1.0, False", world.ensemble))
    X = world.batch(number, 1.0)[0][:n] if is_around else world.scattered(n, number)
    first, again = (milliseconds(lambda: predict(ensemble, rule, X)) for _ in range(2))
    return {"milliseconds": again, "first": first, "queries": n}


def asked_one_by_one(world: World, number: int, *, rule: PredictionRule, n: int) -> Record:
    """Queries with variance around one model that was asked before."""
    ensemble = world.ensembles.get("1.0, False", world.ensemble)
    X = world.batch(number, 1.0)[0]
    predict(ensemble, rule, X)
    spent = milliseconds(lambda: [predict(ensemble, rule, x[None]) for x in X[:n]])
    return {"milliseconds": spent / n, "queries": 1}


def forgetful(ensemble: Ensemble) -> Ensemble:
    """The ensemble before it was asked anything: nothing that was made for answers is left."""
    for model in ensemble.models:
        for made in vars(model).keys() - {each.name for each in fields(model)}:
            del vars(model)[made]
    return replace(ensemble, neighbourhoods=Neighbourhoods())


MEASUREMENTS: dict[str, Callable[[World, int], Record]] = {
    "learned": partial(learned, amplitude=1.0, is_thorough=False),
    "learned, thorough": partial(learned, amplitude=1.0, is_thorough=True),
    "new": partial(learned, amplitude=5.0, is_thorough=False),
    "new, thorough": partial(learned, amplitude=5.0, is_thorough=True),
    "nearest, 10,000 anywhere": partial(asked, rule=Nearest(), n=10_000, is_around=False),
    "nearest, 100 together": partial(asked, rule=Nearest(), n=100, is_around=True),
    "nearest, one by one": partial(asked_one_by_one, rule=Nearest(), n=50),
    "joined, 100 together": partial(asked, rule=Joined(), n=100, is_around=True),
    "joined, one by one": partial(asked_one_by_one, rule=Joined(), n=10),
    "joined, 100 anywhere": partial(asked, rule=Joined(), n=100, is_around=False),
    "joined, 10,000 anywhere": partial(asked, rule=Joined(), n=10_000, is_around=False),
}

# These take seconds: in the first rounds only, and 10,000 queries of few models only.
N_ROUNDS_OF_MANY_JOINED, MOST_MODELS_OF_MANY_JOINED = 3, 100


def is_due(name: str, size: Size, number: int) -> bool:
    if not name.startswith("joined") or not name.endswith("anywhere"):
        return True
    is_small = size.n_models <= MOST_MODELS_OF_MANY_JOINED and size.n_inducing <= 50
    return number < N_ROUNDS_OF_MANY_JOINED and (is_small or "10,000" not in name)


def saved_bytes(size: Size) -> Record:
    """Of a model in a map, full and compact: what ten more of them add to it."""
    rng, n_rows = np.random.default_rng(0), max(BATCH, size.n_inducing)
    settings = {"n_inducing": size.n_inducing, "batch_size": n_rows, "splitting": "always", "optimizer_iterations": 0}
    X, y = rows_of_world(0, 11 * n_rows, size.n_inputs, rng)
    few, many = (WGPRegressor.published(**settings, random_state=0).fit(X[:n], y[:n]) for n in (n_rows, 11 * n_rows))
    return {
        name: (len(many.to_bytes(compact=is_compact)) - len(few.to_bytes(compact=is_compact))) / 10
        for name, is_compact in {"saved": False, "saved compact": True}.items()
    }


def growing(world: World, sizes: Iterable[Size], track: Callable[[Sequence[int], str], Iterable[int]]) -> Iterator[Record]:
    """What it takes to join a model to the ensemble, mergers of trees and all, from none to as many as there are."""
    ensemble, spent = Ensemble.empty(world.size.n_inputs), np.empty(world.size.n_models)
    for number in track(range(world.size.n_models), "growing model by model"):
        started = process_time()
        ensemble = ensemble.with_model(world.ensemble.models[number])
        spent[number] = 1000.0 * (process_time() - started)
    for size in sizes:
        latest = spent[size.n_models // 10 : size.n_models]
        about = {"milliseconds": latest.mean(), "median": np.median(latest), "largest": latest.max()}
        yield {**asdict(size), "round": 0, "work": "growing", **about}


# Rounds


class Store:
    """Results as lines of JSON: what an interrupted run has found out is not lost."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]

    def add(self, records: Sequence[Record]) -> None:
        self.records.extend(records)
        with self.path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def of(self, size: Size, work: str) -> list[Record]:
        facts = {**asdict(size), "work": work}
        return [record for record in self.records if facts.items() <= record.items()]

    def median(self, size: Size, work: str, quantity: str = "milliseconds") -> float:
        values = [record[quantity] for record in self.of(size, work) if quantity in record]
        return float(np.median(values)) if values else np.nan


def measure(study: Study, store: Store, progress: Progress) -> None:
    """All sizes in turn, so that what disturbs the machine for a while disturbs all of them."""
    n_done = min(len(store.of(size, "learned")) for size in study.sizes)
    if n_done >= study.n_rounds:
        return
    worlds = [World(size, partial(tracked, progress)) for size in study.sizes]
    if not n_done:
        store.add([about_memory(world) for world in worlds])
        if study.varied == "n_models":
            store.add(list(growing(worlds[-1], study.sizes, partial(tracked, progress))))
    for number in tracked(progress, range(n_done, study.n_rounds), "measuring"):
        store.add(list(measured(worlds, number)))


def measured(worlds: Sequence[World], number: int) -> Iterator[Record]:
    for name, measurement in MEASUREMENTS.items():
        for world in worlds:
            if is_due(name, world.size, number):
                yield {**asdict(world.size), "round": number, "work": name, **measurement(world, number)}


def about_memory(world: World) -> Record:
    return {**asdict(world.size), "round": 0, "work": "memory", **world.memory, **saved_bytes(world.size)}


def tracked(progress: Progress, numbers: Sequence[int], description: str) -> Iterator[int]:
    """The numbers, with a bar that goes when they are done."""
    task = progress.add_task(description, total=len(numbers))
    for number in numbers:
        yield number
        progress.advance(task)
    progress.remove_task(task)


# Tables


def batch_table(study: Study, store: Store) -> Table:
    table = Table(title="A batch of 100, milliseconds: median; mean; largest")
    kinds = [name for name in MEASUREMENTS if name.startswith(("learned", "new"))]
    for heading in ("", *kinds, "search", "change"):
        table.add_column(heading, justify="right")
    for size in study.sizes:
        cells = [spread([each["milliseconds"] for each in store.of(size, kind)]) for kind in kinds]
        parts = [f"{store.median(size, 'learned', part):.2f}" for part in ("search", "change")]
        table.add_row(described(size), *cells, *parts)
    return table


def spread(values: Sequence[float]) -> str:
    return f"{np.median(values):.1f}; {np.mean(values):.1f}; {max(values):.0f}" if values else "-"


def query_table(study: Study, store: Store) -> Table:
    table = Table(title="Queries with variance, milliseconds a query: again (for the first time)")
    names = [name for name in MEASUREMENTS if name.startswith(("nearest", "joined"))]
    for heading in ("", *names):
        table.add_column(heading, justify="right")
    for size in study.sizes:
        table.add_row(described(size), *(query_cell(size, name, store) for name in names))
    return table


def query_cell(size: Size, name: str, store: Store) -> str:
    n = store.median(size, name, "queries")
    again, first = (store.median(size, name, quantity) / n for quantity in ("milliseconds", "first"))
    if np.isnan(again):
        return "-"
    return f"{again:.3g}" if np.isnan(first) else f"{again:.3g} ({first:.3g})"


def memory_table(study: Study, store: Store) -> Table:
    table = Table(title="A model, kB")
    quantities = ("arrays", "resident", "index", "saved", "saved compact")
    for heading in ("", *quantities):
        table.add_column(heading, justify="right")
    for size in study.sizes:
        table.add_row(described(size), *(f"{store.median(size, 'memory', each) / 1000:.1f}" for each in quantities))
    return table


def ratio_table(study: Study, store: Store) -> Table:
    """The largest ensemble over that of 100 models; limit 1.5."""
    few, many = Size(), study.sizes[-1]
    table = Table(title=f"A batch at {many.n_models:,} models over that at 100")
    for heading in ("", "mean", "median", "largest", "mean for each evaluation of the bound"):
        table.add_column(heading, justify="right")
    for kind in (name for name in MEASUREMENTS if name.startswith(("learned", "new"))):
        ours, theirs = ([each["milliseconds"] for each in store.of(size, kind)] for size in (many, few))
        evaluations = [sum(each["evaluations"] for each in store.of(size, kind)) for size in (many, few)]
        ratios = [statistic(ours) / statistic(theirs) for statistic in (np.mean, np.median, np.max)]
        each = sum(ours) / evaluations[0] / (sum(theirs) / evaluations[1])
        table.add_row(kind, *(f"{value:.2f}" for value in (*ratios, each)))
    return table


def growth_table(study: Study, store: Store) -> Table:
    table = Table("models, the latest nine tenths", title="Joining a model to the ensemble, milliseconds")
    for heading in ("mean", "median", "largest"):
        table.add_column(heading, justify="right")
    for size in study.sizes:
        values = [store.median(size, "growing", each) for each in ("milliseconds", "median", "largest")]
        table.add_row(f"{size.n_models:,}", *(f"{value:.2f}" for value in values))
    return table


def tables(studies: dict[str, Study], store: Store) -> Iterator[Table]:
    for study in studies.values():
        if all(store.of(size, "learned") for size in study.sizes):
            yield from (make(study, store) for make in (batch_table, query_table, memory_table))
            if study.varied == "n_models":
                yield from (make(study, store) for make in (ratio_table, growth_table))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("scale.jsonl"), help="file for the results, lines of JSON")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="where to draw the curves")
    parser.add_argument("--only", choices=STUDIES, help="one of the three studies")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--quick", action="store_true", help="up to 1,000 models, a few rounds")
    return parser.parse_args()


def main() -> None:
    arguments, console = parsed(), Console(width=150)
    studies, store = QUICK_STUDIES if arguments.quick else STUDIES, Store(arguments.output)
    if arguments.only:
        studies = {arguments.only: studies[arguments.only]}
    if arguments.rounds:
        studies = {name: replace(study, n_rounds=arguments.rounds) for name, study in studies.items()}
    try:
        with one_blas_thread(), Progress(console=console, transient=True) as progress:
            for study in studies.values():
                measure(study, store, progress)
    except KeyboardInterrupt:
        console.print("interrupted; these were done:")
    for table in tables(studies, store):
        console.print(table)


if __name__ == "__main__":
    main()
