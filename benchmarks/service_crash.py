"""A service that is killed loses nothing that it has acknowledged, and a damaged folder gives no other rows.

    python benchmarks/service_crash.py [--kills 200] [--damages 10000] [--quick] [--write]

Four clients stream rows with idempotency keys to `wgpr serve`, whose snapshots are frequent. It is killed (-9) again
and again: all its processes, the one that answers, or the one that learns; at random moments, while a snapshot is
written, right after one, or while it starts. After each kill the folder is checked, the service is started again, and
requests without an answer are sent again. In the end the map must equal that of an uninterrupted run to the bit.

Then the folder that a kill has left is cut, flipped or overwritten at random places, and opened. 30 minutes; `--quick`
takes two.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
from rich.progress import Progress, track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import ROOT, put_measured
from damage import flipped_bit, overwritten, truncated
from journals import outcome_of_damage
from killable_service import DEFINITION, Service, Stream, flight_rows
from streams import assert_same_map_files
from wgpr.io.journal import Journal, Record
from wgpr.io.rows import learn_rows
from wgpr.io.store import JOURNAL, SNAPSHOT
from wgpr.service.definition import Definition
from wgpr.service.livemap import open_folder

PAGE = ROOT / "docs" / "service_results.md"
MARKERS = "<!-- crash -->", "<!-- end of crash -->"

NAME = "terrain"
SNAPSHOT_SECONDS = 0.3
N_CLIENTS, PAUSE, LONGEST = 4, 0.02, 1.5  # of the stream before a kill, in seconds
MOMENTS = ["soon after a start", "while it learns", "during a snapshot", "right after a snapshot", "while it starts"]
VICTIMS = ["all", "all", "all", "server", "writer"]
WAYS = {"cut": truncated, "flipped": flipped_bit, "overwritten": overwritten}


# Kills


class Crashes:
    """Kills of one service whose clients stream rows. counts : by victim and moment."""

    def __init__(self, folder: Path, n_rows: int, seed: int = 0) -> None:
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.stream = Stream(flight_rows(n_rows), self.rng, most=8)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.n_in_doubt = self.n_kept_in_doubt = 0
        self.snapshots_checked = set[int]()  # by their number of rows
        self._reference, self._n_reference = Definition(**DEFINITION).new_estimator(), 0
        self._requests = {self.stream.rows[part][0].tobytes(): i for i, part in enumerate(self.stream.parts)}
        self._service, self._client = self._started()
        self._client.put(f"/maps/{NAME}", json=DEFINITION).raise_for_status()

    @property
    def n_kills(self) -> int:
        return self.counts.total()

    def _started(self, *, is_waited_for: bool = True) -> tuple[Service, httpx.Client]:
        service = Service(self.folder / "maps", self.folder / "log", snapshot_seconds=SNAPSHOT_SECONDS)
        return service, service.wait_until_started() if is_waited_for else httpx.Client()

    def kill_once(self) -> None:
        """Stream rows, kill, check what is there, start again and send what was not acknowledged."""
        moment, victim = (str(self.rng.choice(options)) for options in (MOMENTS, VICTIMS))
        if moment == "while it starts":
            victim = "all"
        elif moment != "soon after a start":
            self._stream_until(self._is_snapshot_new(), 1, 0.2)
        stop, threads = self.stream.send_with(self._client, NAME, N_CLIENTS, pause=PAUSE)
        self._wait_for(moment)
        kill = {"all": self._service.kill, "server": self._service.kill_server, "writer": self._service.kill_writer}
        kill[victim]()
        if victim == "writer":
            time.sleep(self.rng.uniform(0.0, 0.5))
        stop.set()
        for thread in threads:
            thread.join()
        if victim != "writer":
            self._restart(moment == "while it starts")
        self.counts[victim, moment] += 1
        self._send_again()

    def _wait_for(self, moment: str) -> None:
        """Wait for a random time, or for an event of the map's folder."""
        folder = self.folder / "maps" / NAME
        if moment == "during a snapshot":
            _wait_until(lambda: any(folder.glob(f".*.{SNAPSHOT}")))
        elif moment == "right after a snapshot":
            _wait_until(self._is_snapshot_new())
            time.sleep(self.rng.uniform(0.0, 0.01))
        else:
            time.sleep(self.rng.uniform(0.0, LONGEST))

    def _stream_until(self, condition: Callable[[], bool], n_clients: int, pause: float) -> None:
        stop, threads = self.stream.send_with(self._client, NAME, n_clients, pause=pause)
        try:
            _wait_until(condition)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _is_snapshot_new(self) -> Callable[[], bool]:
        """Whether there is another snapshot than now."""
        path = self.folder / "maps" / NAME / SNAPSHOT
        before = _inode(path)
        return lambda: _inode(path) != before

    def _restart(self, is_killed_while_starting: bool) -> None:
        self._client.close()
        snapshot = self._checked_folder()
        if is_killed_while_starting:
            service, _ = self._started(is_waited_for=False)
            time.sleep(self.rng.uniform(0.0, 4.0))
            service.kill()
            snapshot = self._checked_folder()
        self._service, self._client = self._started()
        assert not any((self.folder / "maps" / NAME).glob(".*")), "unfinished files are left"
        seen = self._seen()
        in_doubt = sum(map(self.stream.size, self.stream.in_doubt))
        assert self.stream.n_acknowledged <= seen <= self.stream.n_acknowledged + in_doubt, "rows are lost, or too many"
        self.n_in_doubt += in_doubt
        self.n_kept_in_doubt += seen - self.stream.n_acknowledged
        self._send_again()
        if snapshot is not None:
            self._check_snapshot(*snapshot)

    def _send_again(self) -> None:
        """Send requests without an answer again, with their keys. Then no row is missing or there twice."""
        _, threads = self.stream.send_with(self._client, NAME, 1, only_again=True)
        threads[0].join()
        assert not self.stream.in_doubt, "the service did not take rows that were sent again"
        self.stream.in_order()
        assert self._seen() == self.stream.n_acknowledged, "rows are missing or there twice"

    def _seen(self) -> int:
        return int(self._client.get(f"/maps/{NAME}").raise_for_status().json()["rows_seen"])

    def _checked_folder(self) -> tuple[int, bytes] | None:
        """Check the files that a kill has left; the number of rows in the snapshot, and its bytes."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "maps" / NAME, copy)
        data = (copy / SNAPSHOT).read_bytes() if (copy / SNAPSHOT).exists() else None
        opened = open_folder(copy)
        self._check_records(opened.store.journal)
        opened.store.journal.close()
        return None if data is None or opened.model is None else (opened.model.n_samples_seen_, data)

    def _check_records(self, journal: Journal) -> None:
        """Each record is a request as it was sent, where it was acknowledged; and none of these is missing."""
        records = list(journal.records())
        found = {self._request_of(record): record.last for record in records}
        assert len(found) == len(records), "rows are there twice"
        first = records[0].first if records else journal.n_rows
        sequences = self.stream.sequences
        expected = {number for number, sequence in sequences.items() if sequence > first}
        assert expected <= found.keys(), "acknowledged rows are lost"
        assert all(sequences.get(number, last) == last for number, last in found.items()), "rows are at another place"
        assert max(sequences.values(), default=0) <= journal.n_rows, "acknowledged rows are lost"

    def _request_of(self, record: Record) -> int:
        number = self._requests[record.rows[0].tobytes()]
        assert np.array_equal(record.rows, self.stream.rows[self.stream.parts[number]]), "other rows"
        return number

    def _check_snapshot(self, n_rows: int, data: bytes) -> None:
        """The snapshot equals the map of an uninterrupted run to the bit."""
        order = np.concatenate([self.stream.rows[self.stream.parts[number]] for number in self.stream.in_order()])
        if n_rows > self._n_reference:
            learn_rows(self._reference, order[self._n_reference : n_rows], None, Definition(**DEFINITION).columns)
            self._n_reference = n_rows
        assert_same_map_files(data, self._reference.to_bytes())
        self.snapshots_checked.add(n_rows)

    def finish(self) -> None:
        """Stop the service, and compare its map with that of an uninterrupted run."""
        assert self._service.stop() == 0, "the service did not stop in order"
        self._client.close()
        opened = open_folder(self.folder / "maps" / NAME)
        opened.store.journal.close()
        assert opened.model is not None
        assert opened.model.n_samples_seen_ == opened.store.journal.n_rows == self.stream.n_acknowledged
        self._check_snapshot(self.stream.n_acknowledged, (self.folder / "maps" / NAME / SNAPSHOT).read_bytes())

    def end(self) -> None:
        self._service.end()


def _inode(path: Path) -> int:
    return path.stat().st_ino if path.exists() else 0


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, "there was no snapshot for two minutes"
        time.sleep(0.0005)


def killed_services(n_kills: int, folder: Path) -> list[tuple[str, str]]:
    """Rows of the table about kills. Anything that is not as it must be is an AssertionError."""
    crashes = Crashes(folder, n_rows=20_000 + 1500 * n_kills)
    try:
        with Progress() as progress:
            task = progress.add_task("kill -9", total=n_kills)
            while crashes.n_kills < n_kills:
                assert not crashes.stream.is_at_end, "all rows were sent before the last kill"
                crashes.kill_once()
                progress.advance(task)
        crashes.finish()
    finally:
        crashes.end()
    by_victim, by_moment = Counter[str](), Counter[str]()
    for (victim, moment), count in crashes.counts.items():
        by_victim[victim] += count
        by_moment[moment] += count
    names = {"all": "all processes", "server": "the server alone", "writer": "the process that learns alone"}
    return [
        ("kills (-9)", f"{crashes.n_kills}: {', '.join(f'{by_victim[each]} of {names[each]}' for each in names)}"),
        ("their moments", ", ".join(f"{by_moment[each]} {each}" for each in MOMENTS)),
        ("rows acknowledged", f"{crashes.stream.n_acknowledged:,} in {len(crashes.stream.sequences):,} requests"),
        ("acknowledged rows that were lost, or there twice", "0, 0"),
        (
            "rows whose answer a kill had cut off",
            f"{crashes.n_in_doubt:,}; {crashes.n_kept_in_doubt:,} were on the disk; sent again, each is there once",
        ),
        (
            "the map against an uninterrupted run",
            f"equal to the bit in the end, and in {len(crashes.snapshots_checked) - 1} snapshots that kills had left",
        ),
    ]


# Damage


def left_by_a_kill(folder: Path, n_rows: int) -> tuple[Path, np.ndarray]:
    """The folder of a map after a kill, with a snapshot, a database and a log; and its rows (n, 3)."""
    stream = Stream(flight_rows(n_rows), np.random.default_rng(0))
    service = Service(folder / "maps", folder / "log", snapshot_seconds=2.0)
    try:
        with closing(service.wait_until_started()) as client:
            client.put(f"/maps/{NAME}", json=DEFINITION).raise_for_status()
            while not _is_worth_damaging(folder / "maps" / NAME):
                stop, threads = stream.send_with(client, NAME, 1)
                time.sleep(0.1)
                stop.set()
                threads[0].join()
                assert not stream.is_at_end, "all rows were sent, and there was no snapshot with a log after it"
        service.kill()
    finally:
        service.end()
    return folder / "maps" / NAME, stream.rows[: stream.n_acknowledged]


def _is_worth_damaging(folder: Path) -> bool:
    """There is a snapshot, and a log with some hundred thousand bytes of later commits."""
    log = folder / f"{JOURNAL}-wal"
    return (folder / SNAPSHOT).exists() and log.exists() and 200_000 < log.stat().st_size < 600_000


def damaged_folders(n_damages: int, folder: Path) -> list[tuple[str, str]]:
    """Rows of the table about damage."""
    original, rows = left_by_a_kill(folder, 20_000)
    snapshot = (original / SNAPSHOT).read_bytes()
    names = {JOURNAL: "database of the journal", f"{JOURNAL}-wal": "log of the journal", SNAPSHOT: "snapshot"}
    rng, outcomes = np.random.default_rng(1), Counter[tuple[str, str]]()
    copy = folder / "damaged"
    for number in track(range(n_damages), description="damaged folders"):
        name, way = list(names)[number % 3], list(WAYS.values())[number // 3 % 3]
        shutil.copytree(original, copy)
        (copy / name).write_bytes(way((copy / name).read_bytes(), rng))
        outcomes[name, outcome_of_damage(copy, rows, snapshot)] += 1
        shutil.rmtree(copy)
    sizes = {name: (original / name).stat().st_size for name in names}
    table = [("damaged folders", f"{n_damages:,}, a third of them each cut, flipped (one bit) and overwritten")]
    for name, text in names.items():
        counts = ", ".join(f"{outcomes[name, outcome]:,} {text}" for outcome, text in OUTCOMES.items())
        table.append((f"{text}, {sizes[name]:,} bytes", counts))
    return [*table, ("other rows than those acknowledged", "0")]


OUTCOMES = {"refused": "refused", "prefix": "an exact prefix", "whole": "all rows"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--damages", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="5 kills and 200 damages")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    n_kills, n_damages = (5, 200) if arguments.quick else (arguments.kills, arguments.damages)
    table = []
    for function, n in ((killed_services, n_kills), (damaged_folders, n_damages)):
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            table += function(n, Path(folder)) if n else []
        print(f"{function.__name__}: {time.monotonic() - started:.0f} s")
    text = "\n".join(["| | |", "|---|---|", *(f"| {what} | {result} |" for what, result in table)]) + "\n"
    print(text)
    if arguments.write:
        put_measured(PAGE, *MARKERS, text)


if __name__ == "__main__":
    main()
