"""Damaged map files are refused, and a killed program leaves a whole map and loses nothing that it acknowledged.

    python benchmarks/durability.py [--files 10000] [--kills 50]

Files are damaged in transit (which a check sum shows) or forged. `wgpr fit` and `wgpr update` are killed at random
moments, half of them while the map is written. `wgpr stream` and `wgpr update` are killed again and again on one map,
which must then be that of a run without kills, to the bit. 20 minutes; `--files 300 --kills 3` takes a minute.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from damage import FORGED, IN_TRANSIT
from streams import ALL, assert_same_learning, assert_same_models, fitted, travelling
from wgpr import MapError, WGPRegressor, load
from wgpr.cli.saving import journal_of

SCRIPT = Path(sys.executable).with_name("wgpr")


def damaged_files(n_files: int, folder: Path) -> None:
    """Damage maps of every estimator in every way; each loads to the same values or is refused."""
    rng = np.random.default_rng(0)
    originals = []
    for regressor in ALL:
        for compact in (False, True):
            path = folder / f"{regressor.__name__}-{compact}.map"
            fitted(regressor).save(path, compact=compact)
            originals.append((path.read_bytes(), load(path)))
    outcomes = dict.fromkeys(("refused", "harmless", "forged but sound"), 0)
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
    print(f"{n_files} damaged files: {outcomes}; slowest load {slowest:.3f} s, peak memory {memory:.0f} MiB")


def _outcome(path: Path, original: object, *, is_forged: bool) -> str:
    """Anything else than these outcomes is an exception, and ends the benchmark."""
    try:
        loaded = load(path)
    except MapError:
        return "refused"
    if is_forged:  # other values with a right check sum, but a model
        return "forged but sound"
    assert_same_models(loaded.models_, original.models_)
    return "harmless"


def killed_programs(n_kills: int, folder: Path) -> None:
    """Kill fit and update at random moments; the old map or the new one is there, whole."""
    rng = np.random.default_rng(0)
    X, y = travelling(2000)
    np.savetxt(folder / "survey.csv", np.column_stack([X, y]), delimiter=",")
    path = folder / "lake.map"
    settings = ["-s", "threshold=3", "-s", "n_inducing=10", "-s", "optimizer_iterations=5", "-s", "batch_size=20"]
    fit = [SCRIPT, "fit", folder / "survey.csv", *settings, "-o", path]
    subprocess.run(fit, check=True, capture_output=True)
    commands = [[SCRIPT, "update", path, folder / "survey.csv", "--force"], fit]
    outcomes = {"old": 0, "new": 0}
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
                outcomes["old" if path.read_bytes() == before else "new"] += 1
                progress.advance(task)
            _recover(path)
    print(f"{n_kills} kills of running programs: a whole map each time; {outcomes}")


def _duration(command: list[object]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def _recover(path: Path) -> int:
    """Learn what a killed program has left in its journal; returns the rows of the map."""
    if journal_of(path).exists():
        subprocess.run([SCRIPT, "update", path], check=True, capture_output=True)
    return load(path).n_samples_seen_ if path.exists() else 0


def killed_runs(n_kills: int, folder: Path, run: Callable[..., int]) -> None:
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
    counts = f"{n_kills} kills, {n_recovered} with rows in the journal alone"
    print(f"{run.__name__.replace('_', ' ')}: {counts}; {n_seen} rows, each once, and a map that is exact to the bit")


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
        assert "learning" in program.stderr.readline()
        time.sleep(rng.uniform(0.0, 2.0))
        program.kill()
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        damaged_files(arguments.files, Path(folder))
        killed_programs(arguments.kills, Path(folder))
        killed_runs(arguments.kills, Path(folder), killed_stream)
        killed_runs(arguments.kills, Path(folder), killed_update)


if __name__ == "__main__":
    main()
