"""Damaged map files are refused, and a killed program leaves a whole map and loses nothing that it acknowledged.

    python benchmarks/durability.py [--files 10000] [--kills 50] [--output durability.jsonl] [--write]

Files are damaged in transit (which a check sum shows) or forged. `wgpr fit` and `wgpr update` are killed at random
moments, half of them while the map is written. `wgpr stream` and `wgpr update` are killed again and again on one map,
which must then be that of a run without kills, to the bit. `--write` puts the table into docs/measurements.md. 20
minutes; `--files 300 --kills 3` takes a minute.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rich.progress import Progress, track

from common import ROOT, Results, markdown_table, put_measured

sys.path.insert(0, str(ROOT / "tests"))

from damage import FORGED, IN_TRANSIT
from streams import ALL, assert_same_learning, assert_same_models, fitted, travelling
from wgpr import MapError, WGPRegressor, load
from wgpr.cli.saving import journal_of

PAGE = ROOT / "docs/measurements.md"
MARKERS = "<!-- measured by benchmarks/durability.py -->", "<!-- end of durability -->"
SCRIPT = Path(sys.executable).with_name("wgpr")

Row = tuple[str, str]  # what was done, and what came of it


def damaged_files(n_files: int, folder: Path) -> Row:
    """Damage maps of every estimator in every way; each loads to the same values or is refused."""
    rng = np.random.default_rng(0)
    originals = []
    for regressor in ALL:
        for compact in (False, True):
            path = folder / f"{regressor.__name__}-{compact}.map"
            fitted(regressor).save(path, compact=compact)
            originals.append((path.read_bytes(), load(path)))
    outcomes = dict.fromkeys(("refused", "the same values", "forged, and load as another model"), 0)
    slowest = 0.0
    for number in track(range(n_files), description="damaged files"):
        data, original = originals[number % len(originals)]
        ways = [*IN_TRANSIT, *FORGED]
        damage = ways[number // len(originals) % len(ways)]
        path = folder / "damaged.map"
        path.write_bytes(damage(data, rng))
        started = time.perf_counter()
        outcome = _outcome(path, original, is_forged=damage in FORGED)
        slowest = max(slowest, time.perf_counter() - started)
        outcomes[outcome] += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    limits = f"slowest load {1000 * slowest:.0f} ms, peak memory of the process {memory:.0f} MiB"
    return f"{n_files:,} damaged map files", f"{_counts(outcomes)}; {limits}"


def _counts(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.items())


def _outcome(path: Path, original: object, *, is_forged: bool) -> str:
    """Anything else than these outcomes is an exception, and ends the benchmark."""
    try:
        loaded = load(path)
    except MapError:
        return "refused"
    if is_forged:  # other values with a right check sum, but a model
        return "forged, and load as another model"
    assert_same_models(loaded.models_, original.models_)
    return "the same values"


def killed_programs(n_kills: int, folder: Path) -> Row:
    """Kill fit and update at random moments; the old map or the new one is there, whole."""
    rng = np.random.default_rng(0)
    X, y = travelling(2000)
    np.savetxt(folder / "survey.csv", np.column_stack([X, y]), delimiter=",")
    path = folder / "lake.map"
    settings = ["-s", "threshold=3", "-s", "n_inducing=10", "-s", "optimizer_iterations=5", "-s", "batch_size=20"]
    fit = [SCRIPT, "fit", folder / "survey.csv", *settings, "-o", path]
    subprocess.run(fit, check=True, capture_output=True)
    commands = [[SCRIPT, "update", path, folder / "survey.csv", "--force"], fit]
    outcomes = {"times the old map": 0, "times the new one": 0}
    with Progress() as progress:
        task = progress.add_task("kill -9", total=n_kills)
        while sum(outcomes.values()) < n_kills:
            command = commands[sum(outcomes.values()) % 2]
            duration = _duration(command)
            before = path.read_bytes()
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as program:
                # half of them around the end, where the file is written
                time.sleep(duration * (rng.uniform(0.0, 1.0) if rng.random() < 0.5 else rng.normal(0.97, 0.03)))
                was_running = program.poll() is None
                program.kill()
            load(path)
            if was_running:
                outcomes["times the old map" if path.read_bytes() == before else "times the new one"] += 1
                progress.advance(task)
            _recover(path)
    return f"{n_kills} kills of `wgpr fit` and `wgpr update`", f"a whole map each time: {_counts(outcomes)}"


def _duration(command: list[object]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def _recover(path: Path) -> int:
    """Learn what a killed program has left in its journal; returns the rows of the map."""
    if journal_of(path).exists():
        subprocess.run([SCRIPT, "update", path], check=True, capture_output=True)
    return load(path).n_samples_seen_ if path.exists() else 0


def killed_runs(n_kills: int, folder: Path, run: Callable[..., int]) -> Row:
    """Kill a program again and again on one map. Acknowledged rows are there, none twice, and the map is exact.

    run : starts the program on a map that has seen some rows, kills it, and returns how many rows it acknowledged.
    """
    rng = np.random.default_rng(0)
    X, y = travelling(3000 * n_kills)
    rows = pd.DataFrame({"east": X[:, 0], "north": X[:, 1], "depth": y})
    rows.to_csv(folder / "rows.csv", index=False)
    path, n_seen, n_recovered = folder / f"{run.__name__}.map", 0, 0
    with Progress() as progress:
        task = progress.add_task(run.__name__.replace("_", " "), total=n_kills)
        for _ in range(n_kills):
            n_acknowledged = n_seen + run(path, rows, n_seen, rng)
            n_saved = load(path).n_samples_seen_ if path.exists() else 0
            n_seen = _recover(path)
            n_recovered += n_seen > n_saved
            assert n_acknowledged <= n_seen, f"{n_acknowledged} rows were acknowledged, and {n_seen} are there"
            progress.advance(task)
    seen = rows[:n_seen]
    model = load(path)
    expected = WGPRegressor(random_state=model.random_state).partial_fit(seen[["east", "north"]], seen["depth"])
    assert_same_learning(model, expected)
    command = run.__name__.removeprefix("killed_")
    return (
        f"{n_kills} kills of `wgpr {command}` on one map, {n_recovered} of them with rows in the journal alone",
        f"{n_seen:,} rows, each once; the map is that of a run without kills, to the bit",
    )


def killed_stream(path: Path, rows: pd.DataFrame, n_seen: int, rng: np.random.Generator) -> int:
    """Rows in blocks with a query behind each; its answer acknowledges them. The map is saved every 0.2 seconds."""
    command = [SCRIPT, "stream", path, "--save-every", "0.2"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    n_acknowledged, until = 0, np.inf
    with subprocess.Popen(command, text=True, **pipes) as program:
        while time.perf_counter() < until:
            first = n_seen + n_acknowledged
            block = rows[first : first + rng.integers(1, 60)]
            program.stdin.write(block.to_csv(index=False, header=not n_acknowledged) + "3.0,1.0\n")
            program.stdin.flush()
            assert program.stdout.readline()
            if not n_acknowledged:
                until = time.perf_counter() + rng.uniform(0.0, 1.0)
            n_acknowledged += len(block)
        rest = rows[n_seen + n_acknowledged :][:40]  # it may be killed before or after it has taken these
        program.stdin.write(rest.to_csv(index=False, header=False))
        program.stdin.flush()
        time.sleep(rng.uniform(0.0, 0.05))
        program.kill()
    return n_acknowledged


def killed_update(path: Path, rows: pd.DataFrame, n_seen: int, rng: np.random.Generator) -> int:
    """Nothing is acknowledged before the end, which it does not reach; but rows that it has taken are there."""
    if not n_seen:
        rows[:100].to_csv(path.with_suffix(".csv"), index=False)
        fit = [SCRIPT, "fit", path.with_suffix(".csv"), "-s", "random_state=0", "-o", path]
        subprocess.run(fit, check=True, capture_output=True)
        n_seen = 100
    command = [SCRIPT, "update", path, path.with_name("rows.csv"), "--skip", str(n_seen), "--force"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        while not journal_of(path).exists() and program.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 1.0))
        program.kill()
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--output", type=Path, help="lines of JSON; what is in it already is not measured again")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements.md")
    arguments = parser.parse_args()
    results, n_kills = Results(arguments.output), arguments.kills
    parts: dict[str, Callable[[Path], Row]] = {
        "files": lambda folder: damaged_files(arguments.files, folder),
        "programs": lambda folder: killed_programs(n_kills, folder),
        "stream": lambda folder: killed_runs(n_kills, folder, killed_stream),
        "update": lambda folder: killed_runs(n_kills, folder, killed_update),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts.items():
            if not results.matching({"part": name}):
                results.add({"part": name, "row": part(Path(folder))})
    table = markdown_table(["what", "measured"], [record["row"] for record in results.records])
    print(table)
    if arguments.write:
        put_measured(PAGE, *MARKERS, table)


if __name__ == "__main__":
    main()
