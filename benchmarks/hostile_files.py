"""Files that are damaged or forged, of each format that WGPR reads: each is refused, or read to finite numbers.

    python benchmarks/hostile_files.py [--files 10000] [--only "map;CSV"] [--quick] [--write] [--repeat "CSV" 123]
                                       [--output hostile.jsonl]

A good file of each format is changed in many ways (`file_mutants.py`), and read by the functions that commands use
(`file_formats.py`) in a process with limits: 5 s of processor time for a file, and 1 GB of memory more than at the
start. A refusal is a ValueError or an OSError whose message names the file. Anything else is a fault: another
exception, an end of the process, a limit that is reached, or a number that is not finite. The number of a file and its
format make it again: `--repeat` does, with the traceback. Ends with an error if there is a fault. `--write` puts the
table into docs/hostile_files.md. A format that is in the output file is not read again.
"""

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import ONE_THREAD, ROOT, Record, Results, measured_now, put_between, when_measured
from file_formats import FORMATS, Format

PAGE = ROOT / "docs" / "hostile_files.md"
MARKERS = "<!-- files -->", "<!-- end of files -->"
SECONDS, MOST_BYTES = 5, 10**9
PATIENCE = 60.0  # seconds for a file, also if the process waits and does not compute


class Outcome(NamedTuple):
    """kind : "refused", "accepted", or what the fault is; text : more about it; seconds : of processor time."""

    kind: str
    text: str = ""
    seconds: float = 0.0


# In the process that reads


@cache
def good_files(originals: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    """Those that hostile ones are made of."""
    return originals()


def hostile_file(format: Format, number: int) -> bytes:
    """The file with this number, always the same. The first ones are of the ways that take long."""
    rng, originals = np.random.default_rng(number), good_files(format.originals)
    way = format.rare[number] if number < len(format.rare) else format.ways[number % len(format.ways)]
    return way(originals[rng.integers(len(originals))], rng)


def outcome(format: Format, data: bytes, folder: Path) -> Outcome:
    try:
        values = list(format.read(data, folder))
    except Exception as error:
        return Outcome(*_told(error, format.named))
    is_finite = all(np.isfinite(np.asarray(value, dtype=np.float64)).all() for value in values)
    return Outcome("accepted" if is_finite else "a number that is not finite")


def _told(error: BaseException, named: str) -> tuple[str, str]:
    """What an exception counts as. A lack of memory is a fault also if it is told as something else."""
    causes, text = [error], f"{error}"
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if any(isinstance(cause, MemoryError) for cause in causes):
        return "memory", text
    if not isinstance(error, ValueError | OSError):
        return type(error).__name__, text
    return ("refused" if named in text else f"{type(error).__name__} without the name of the file"), text


def read_files(name: str, connection: Connection) -> None:
    """Read the files whose numbers come, and send their outcomes."""
    from wgpr.cli.console import stderr

    warnings.simplefilter("ignore")
    stderr.quiet = True
    with tempfile.TemporaryDirectory() as folder:
        format = FORMATS[name]
        for data in format.originals():
            good = outcome(format, data, Path(folder))
            assert good.kind == "accepted", f"a good {name} is refused: {good}"
        connection.send("ready")
        while (number := connection.recv()) is not None:
            connection.send(_measured(format, number, Path(folder)))


def _measured(format: Format, number: int, folder: Path) -> Outcome:
    _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
    data = hostile_file(format, number)
    _limit(resource.RLIMIT_AS, _used_bytes() + MOST_BYTES)
    started = time.process_time()
    _limit(resource.RLIMIT_CPU, int(started) + SECONDS + 1)
    found = outcome(format, data, folder)
    _limit(resource.RLIMIT_CPU, resource.RLIM_INFINITY)
    return found._replace(seconds=time.process_time() - started)


def _limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _used_bytes() -> int:
    """Address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


# In the process that counts


class Reader:
    """A process that reads files of a format, started again when it has ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=read_files, args=(self._name, other), daemon=True)
        self._process.start()
        other.close()
        try:
            self._connection.recv()  # it is ready
        except EOFError:
            raise SystemExit(f"good files of {self._name} cannot be read") from None

    def read(self, number: int) -> Outcome:
        self._connection.send(number)
        started = time.monotonic()
        try:
            if self._connection.poll(PATIENCE):
                return self._connection.recv()
            self._process.kill()
        except (EOFError, ConnectionError):
            pass
        self._process.join()
        code, seconds = self._process.exitcode, time.monotonic() - started
        self._start()
        is_hang = code in (-signal.SIGKILL, -signal.SIGXCPU)
        return Outcome("hang" if is_hang else "crash", f"exit code {code}", seconds)

    def close(self) -> None:
        self._connection.send(None)
        self._process.join()


def outcomes(name: str, n_files: int) -> Iterator[tuple[int, Outcome]]:
    reader = Reader(name)
    for number in track(range(n_files), description=name):
        yield number, reader.read(number)
    reader.close()


def counted(name: str, n_files: int) -> Record:
    """How many files of a format had which outcome. Faults are printed with the numbers of files."""
    counts, slowest = Counter[str](), 0.0
    for number, found in outcomes(name, n_files):
        counts[found.kind] += 1
        slowest = max(slowest, found.seconds)
        if found.kind not in ("refused", "accepted") and counts[found.kind] <= 10:
            print(f"{name} {number}: {found.kind}: {' '.join(found.text.split())[:200]}")
    facts = {"format": name, "files": n_files, "measured": measured_now()}
    return facts | {"counts": dict(counts), "slowest": slowest}


def faults(record: Record) -> dict[str, int]:
    return {kind: n for kind, n in record["counts"].items() if kind not in ("refused", "accepted")}


def row(record: Record) -> str:
    """The row of a format in the table."""
    told = ", ".join(f"{n:,} {kind}" for kind, n in faults(record).items()) or "0"
    refused, accepted = (record["counts"].get(kind, 0) for kind in ("refused", "accepted"))
    columns = (record["format"], f"{record['files']:,}", f"{refused:,}", f"{accepted:,}", told)
    return f"| {' | '.join(columns)} | {record['slowest']:.2f} s |"


def repeat(name: str, number: int) -> None:
    """Read one file without limits, and print what it is and how that ends."""
    data = hostile_file(FORMATS[name], number)
    print(f"{len(data):,} bytes: {data[:300]!r}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(list(FORMATS[name].read(data, Path(folder))))
        except Exception:
            traceback.print_exc()


def parsed_arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="of each format")
    parser.add_argument("--only", default=";".join(FORMATS), help="names of formats, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="300 files of each format")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    parser.add_argument("--output", type=Path, help="lines of JSON; a format that is in it is not read again")
    parser.add_argument("--repeat", nargs=2, metavar=("FORMAT", "NUMBER"), help="read one file and print what happens")
    arguments = parser.parse_args()
    arguments.names = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in arguments.names if name not in FORMATS]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(FORMATS)}")
    return arguments


def main() -> None:
    arguments = parsed_arguments()
    if arguments.repeat:
        repeat(arguments.repeat[0], int(arguments.repeat[1]))
        return
    os.environ |= {**ONE_THREAD, "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    n_files, results = 300 if arguments.quick else arguments.files, Results(arguments.output, are_dated=True)
    for name in arguments.names:
        if not results.matching({"format": name, "files": n_files}):
            results.add(counted(name, n_files))
    records = [results.matching({"format": name, "files": n_files})[0] for name in arguments.names]
    head = ["| format | files | refused | accepted | faults | longest |", "|---|---|---|---|---|---|"]
    table = "\n".join([*head, *map(row, records)]) + "\n"
    print(table)
    if arguments.write:
        put_between(PAGE, *MARKERS, f"{table}\n{when_measured(records, 'format')}\n")
    if n_faults := sum(sum(faults(record).values()) for record in records):
        raise SystemExit(f"{n_faults} faults")


if __name__ == "__main__":
    main()
