"""Damaged map files are refused, and a killed program leaves a whole map.

    python benchmarks/durability.py [--files 10000] [--kills 50]

Files are damaged in transit (which a check sum shows) or forged; `wgpr fit` and `wgpr update` are killed at random
moments, half of them while the map is written. Seven minutes; `--files 300 --kills 3` takes half a minute.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.progress import Progress, track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from damage import FORGED, IN_TRANSIT
from streams import ALL, assert_same_models, fitted, travelling
from wgpr import MapError, load

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
    settings = ["-s", "n_inducing=10", "-s", "optimizer_iterations=5", "-s", "batch_size=20"]
    fit = [SCRIPT, "fit", folder / "survey.csv", *settings, "-o", path]
    subprocess.run(fit, check=True, capture_output=True)
    commands = [[SCRIPT, "update", path, folder / "survey.csv"], fit]
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
    print(f"{n_kills} kills of running programs: a whole map each time; {outcomes}")


def _duration(command: list[object]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        damaged_files(arguments.files, Path(folder))
        killed_programs(arguments.kills, Path(folder))


if __name__ == "__main__":
    main()
