"""Disks that fail or are full: the service acknowledges nothing that it could lose, answers queries, and recovers.

    python benchmarks/service_faults.py [--only "NAME;NAME"] [--quick] [--write]

`strace` makes `fdatasync` and `fsync` fail with EIO; a tmpfs of 1 MB and RLIMIT_FSIZE leave no room. Rows are sent with
idempotency keys. After each fault all acknowledged rows must be there, once and in their order, and the map must equal
that of an uninterrupted run to the bit. The exit code is 1 if anything is otherwise. Faults that need strace or a mount
are left out where these are not allowed. Six minutes; `--quick` sends fewer rows.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import ROOT, put_measured
from killable_service import DEFINITION, INPUTS, Service, Stream, flight_rows
from streams import assert_same_map_files
from wgpr.cli.console import format_count
from wgpr.io.rows import learn_rows
from wgpr.io.store import JOURNAL, SNAPSHOT
from wgpr.service.definition import Definition

PAGE = ROOT / "docs" / "service_results.md"
MARKERS = "<!-- faults -->", "<!-- end of faults -->"

NAME = "terrain"
LOG = f"{JOURNAL}-wal"
NEVER = 1e6  # seconds between two snapshots


class NotAllowedError(Exception):
    """The fault cannot be made here."""


class Trial:
    """A map of a service, to which one client sends rows.

    n : requests at a time; statuses : of the answers during a fault, in their order.
    """

    def __init__(self, folder: Path, n: int, most: int = 10) -> None:
        self.folder, self.maps, self.n = folder, folder / "maps", n
        self.map_folder = self.maps / NAME
        self.stream = Stream(flight_rows(50_000), np.random.default_rng(0), most)
        self.statuses: list[int] = []
        self._service: Service | None = None

    @property
    def service(self) -> Service:
        assert self._service is not None
        return self._service

    def start(self, **options: Any) -> None:
        self._service = Service(self.maps, self.folder / "log", **options)
        self.client = self.service.wait_until_started()
        self.client.put(f"/maps/{NAME}", json=DEFINITION).raise_for_status()
        self.check_has_all()

    def stop(self) -> None:
        """By SIGTERM: it finishes what it has accepted."""
        require(self.service.stop() == 0, "the service did not stop in order")
        self.client.close()

    def kill(self) -> None:
        self.service.kill()
        self.client.close()

    def end(self) -> None:
        """End what is left of it."""
        if self._service is not None:
            self._service.end()

    def send(self, n: int) -> set[int]:
        """The statuses of the next requests; those that were not acknowledged come first."""
        sent = [self.stream.send_next(self.client, NAME) or 0 for _ in range(n)]
        self.statuses += sent
        return set(sent)

    def send_until(self, status: int) -> int:
        """Send requests until one gets this status; how many were acknowledged before."""
        for n in range(2000):
            if (got := self.send(1)) == {status}:
                return n
            require(got == {202}, f"a request got {got}, not 202 or {status}")
            time.sleep(0.02)
        raise AssertionError(f"no request got {status}")

    def summary(self) -> dict[str, Any]:
        return self.client.get(f"/maps/{NAME}").raise_for_status().json()

    def wait_until(self, condition: Callable[[dict[str, Any]], bool], what: str) -> None:
        deadline = time.monotonic() + 120.0
        while not condition(self.summary()):
            require(time.monotonic() < deadline, f"two minutes passed before {what}")
            time.sleep(0.05)

    def learn(self) -> None:
        self.wait_until(lambda summary: summary["rows_learned"] == summary["rows_seen"], "all rows were learned")

    def save(self) -> None:
        self.wait_until(lambda summary: summary["rows_saved"] == summary["rows_seen"], "all rows were saved")

    def check_answers(self) -> None:
        """Queries are answered."""
        places = dict(zip(INPUTS, self.stream.rows[:50, :2].T.tolist(), strict=True))
        answer = self.client.post(f"/maps/{NAME}/predict", json=places)
        require(answer.status_code == 200, f"a query got {answer.status_code}")
        require(bool(np.isfinite(answer.json()["mean"]).all()), "an answer is no number")

    def check_has_all(self) -> None:
        """All acknowledged rows are there; those in doubt are there once, or not at all."""
        seen, n_doubtful = self.summary()["rows_seen"], sum(map(self.stream.size, self.stream.in_doubt))
        acknowledged = self.stream.n_acknowledged
        require(acknowledged <= seen <= acknowledged + n_doubtful, f"{acknowledged} rows acknowledged, {seen} there")

    def finish(self) -> None:
        """Send more rows without a fault, stop, and compare the map with that of an uninterrupted run."""
        statuses, self.statuses = self.statuses, []
        require(self.send(self.n + len(self.stream.in_doubt)) == {202}, "rows were refused after the fault was over")
        require(self.summary()["rows_seen"] == self.stream.n_acknowledged, "rows are missing or there twice")
        self.statuses = statuses
        self.stop()
        parts = [self.stream.rows[self.stream.parts[number]] for number in self.stream.in_order()]
        model = Definition(**DEFINITION).new_estimator()
        learn_rows(model, np.concatenate(parts), None, Definition(**DEFINITION).columns)
        assert_same_map_files((self.map_folder / SNAPSHOT).read_bytes(), model.to_bytes())

    def answers(self) -> str:
        """How many requests got which status during the fault."""
        counts = Counter(self.statuses)
        return "requests got " + ", ".join(f"{status} ({counts[status]:,})" for status in sorted(counts))

    def failed_snapshots(self) -> int:
        return sum("error" in event for event in self.service.events("snapshot"))


def require(condition: bool, fault: str) -> None:
    if not condition:
        raise AssertionError(fault)


# A disk that fails


def strace(*options: str) -> list[str]:
    """The command that makes calls fail, in all processes of the service."""
    command = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", *options]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotAllowedError("strace is not here, or not allowed") from error
    return command


def failed_sync(trial: Trial, file: str, when: int, end: Callable[[], None], snapshot_seconds: float = NEVER) -> str:
    """A sync of a file of the journal fails. After that nothing is acknowledged until the service is started again."""
    trial.start()
    require(trial.send(5) == {202}, "rows were refused without a fault")
    trial.stop()
    trial.statuses.clear()
    fault = strace("-P", str(trial.map_folder / file), "-e", f"inject=fdatasync:error=EIO:when={when}")
    trial.start(around=fault, snapshot_seconds=snapshot_seconds)
    n_before = trial.send_until(503)
    require(trial.send(trial.n) == {503}, "rows were acknowledged after a failed sync")
    trial.check_answers()
    require(trial.client.get("/health/ready").status_code == 503, "the service says that it is ready")
    failure = trial.summary()["failure"] or ""
    require("repair the disk and start again" in failure, f"the map says {failure!r}")
    end()
    trial.start()
    trial.finish()
    return f"after {format_count(n_before, 'request')} with 202, all {1 + trial.n} others got 503; queries answered"


def sync_of_log(trial: Trial) -> str:
    return failed_sync(trial, LOG, 3, trial.stop)


def sync_of_log_and_kill(trial: Trial) -> str:
    return failed_sync(trial, LOG, 3, trial.kill)


def sync_of_database(trial: Trial) -> str:
    """While the log is copied into it, which happens after a snapshot."""
    return failed_sync(trial, JOURNAL, 1, trial.kill, snapshot_seconds=1.0)


def sync_of_snapshot(trial: Trial) -> str:
    """All snapshots fail. The journal keeps their rows, and takes more."""
    trial.start()
    trial.stop()
    trial.start(around=strace("-e", "inject=fsync:error=EIO"), snapshot_seconds=0.5)
    for _ in range(2):
        n_failed = trial.failed_snapshots()
        require(trial.send(trial.n) == {202}, "rows were refused because a snapshot failed")
        trial.learn()
        trial.wait_until(lambda _, n=n_failed: trial.failed_snapshots() > n, "a snapshot failed")
    check_unsaved(trial)
    n_rows = trial.stream.n_acknowledged
    trial.kill()
    trial.start()
    trial.finish()
    return f"{trial.answers()}; no snapshot was made, {n_rows:,} rows stayed in the journal; queries answered"


def check_unsaved(trial: Trial) -> None:
    """There is no snapshot, and nothing is lost."""
    require(trial.summary()["rows_saved"] == 0, "a snapshot that failed counts as saved")
    require(trial.summary()["rows_seen"] == trial.stream.n_acknowledged, "rows are lost")
    require(not list(trial.map_folder.glob(".*")), "an unfinished snapshot is left")
    require(not (trial.map_folder / SNAPSHOT).exists(), "there is a snapshot")
    trial.check_answers()


# No room


@contextmanager
def tmpfs(trial: Trial, size: str) -> Iterator[None]:
    """A disk in memory has the maps. The service is ended before it goes."""
    trial.maps.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", trial.maps]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotAllowedError("a tmpfs cannot be mounted") from error
    try:
        yield
    finally:
        trial.end()
        subprocess.run(["umount", trial.maps], check=True)


def resize(trial: Trial, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", trial.maps], check=True)


def fill(trial: Trial, n_left: int = 0) -> None:
    """Leave so many bytes of the disk."""
    n_free = shutil.disk_usage(trial.maps).free
    (trial.maps / "filler").write_bytes(bytes(max(0, n_free - n_left)))


def limit_file_size(n_bytes: int, pid: int = 0) -> None:
    """Of this process, or of another one."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (n_bytes, most))


def check_full(trial: Trial) -> None:
    """Rows are refused, queries are answered, and nothing is lost."""
    trial.send_until(507)
    require(trial.send(trial.n) == {507}, "rows were taken without room")
    require(trial.summary()["rows_seen"] == trial.stream.n_acknowledged, "refused rows are counted")
    require(trial.summary()["failure"] is None, "the map has failed")
    trial.learn()
    trial.check_answers()


def full_disk(trial: Trial) -> str:
    """Room is made while the service runs."""
    with tmpfs(trial, "1m"):
        trial.start(snapshot_seconds=NEVER)
        check_full(trial)
        status = trial.client.put("/maps/another", json=DEFINITION).status_code
        require(status == 507, f"a new map on a full disk got {status}")
        n_rows = trial.stream.n_acknowledged
        resize(trial, "64m")
        trial.finish()
    return f"{trial.answers()}, a new map too; {n_rows:,} rows kept; queries answered; took rows when there was room"


def full_disk_and_kill(trial: Trial) -> str:
    """The service is killed, and started while the disk has no byte left; then with more room."""
    with tmpfs(trial, "1m"):
        trial.start(snapshot_seconds=NEVER)
        check_full(trial)
        trial.kill()
        fill(trial)
        trial.start(snapshot_seconds=NEVER)
        check_full(trial)
        n_rows = trial.stream.n_acknowledged
        trial.kill()
        resize(trial, "64m")
        trial.start()
        trial.finish()
    return f"{trial.answers()}; {n_rows:,} rows kept, also by a kill and a start on the full disk; queries answered"


def limited_files(trial: Trial) -> str:
    """The limit is raised while the service runs."""
    trial.start(snapshot_seconds=NEVER, prepare=lambda: limit_file_size(300_000))
    check_full(trial)
    n_rows = trial.stream.n_acknowledged
    limit_file_size(resource.RLIM_INFINITY, trial.service.server_id())
    trial.finish()
    return f"{trial.answers()}; {n_rows:,} rows kept; queries answered; took rows when the limit was raised"


def limited_files_and_kill(trial: Trial) -> str:
    """The service is killed, and started while no file of the journal may grow; then without a limit."""
    trial.start(snapshot_seconds=NEVER, prepare=lambda: limit_file_size(300_000))
    check_full(trial)
    trial.kill()
    size = (trial.map_folder / JOURNAL).stat().st_size
    trial.start(snapshot_seconds=NEVER, prepare=lambda: limit_file_size(size))
    check_full(trial)
    n_rows = trial.stream.n_acknowledged
    trial.kill()
    trial.start()
    trial.finish()
    return f"{trial.answers()}; {n_rows:,} rows kept, also by a kill and a start with the limit; queries answered"


def check_no_room_for_snapshots(trial: Trial, make_room: Callable[[], None], **limit: Any) -> str:
    """The journal has rows, and there is no room for a snapshot: not after some time, and not at the end."""
    trial.start(snapshot_seconds=0.5, **limit)
    trial.learn()
    trial.wait_until(lambda _: trial.failed_snapshots() > 1, "two snapshots failed")
    check_unsaved(trial)
    trial.stop()
    require(not (trial.map_folder / SNAPSHOT).exists(), "there is a snapshot")
    trial.start(snapshot_seconds=0.5, **limit)
    trial.learn()
    check_unsaved(trial)
    n_rows = trial.stream.n_acknowledged
    make_room()
    trial.save()
    trial.finish()
    return f"{n_rows:,} rows stayed in the journal, also after SIGTERM; queries answered; saved when there was room"


def write_unsaved(trial: Trial) -> None:
    """Rows in the journal and no snapshot."""
    trial.start(snapshot_seconds=NEVER)
    require(trial.send(20) == {202}, "rows were refused without a fault")
    trial.learn()
    trial.kill()


def snapshot_on_a_full_disk(trial: Trial) -> str:
    with tmpfs(trial, "8m"):
        write_unsaved(trial)
        fill(trial, n_left=16_384)
        return check_no_room_for_snapshots(trial, lambda: (trial.maps / "filler").unlink())


def limited_snapshot(trial: Trial) -> str:
    write_unsaved(trial)

    def raise_limit() -> None:
        limit_file_size(resource.RLIM_INFINITY, trial.service.server_id())

    return check_no_room_for_snapshots(trial, raise_limit, prepare=lambda: limit_file_size(16_384))


FAULTS: dict[str, Callable[[Trial], str]] = {
    "EIO from the third fdatasync of the journal's log": sync_of_log,
    "the same, then kill -9": sync_of_log_and_kill,
    "EIO from fdatasync of the journal's database, then kill -9": sync_of_database,
    "EIO from every fsync of a snapshot, then kill -9": sync_of_snapshot,
    "tmpfs of 1 MB": full_disk,
    "the same, kill -9 and start on the full disk": full_disk_and_kill,
    "tmpfs without room for a snapshot": snapshot_on_a_full_disk,
    "RLIMIT_FSIZE": limited_files,
    "RLIMIT_FSIZE, kill -9 and start with the limit": limited_files_and_kill,
    "RLIMIT_FSIZE less than a snapshot": limited_snapshot,
}
# Rows of a request at most: snapshots must be larger than the room that is left.
MOST = {snapshot_on_a_full_disk: 300, limited_snapshot: 300}


def tried(fault: Callable[[Trial], str], n: int) -> tuple[str, bool]:
    """What happened, and whether that is right."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), n, MOST.get(fault, 10))
        try:
            return fault(trial), True
        except NotAllowedError as error:
            return f"left out: {error}", True
        except (AssertionError, OSError, RuntimeError) as error:
            log = trial.folder / "log"
            print(log.read_text()[-3000:] if log.exists() else "", file=sys.stderr)
            return f"WRONG: {type(error).__name__}: {error}", False
        finally:
            trial.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=";".join(FAULTS), help="names of faults, separated by semicolons")
    parser.add_argument("--quick", action="store_true", help="5 requests at a time in place of 50")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    names = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(FAULTS)}")
    results = {}
    for name in track(names, description="faults"):
        results[name] = tried(FAULTS[name], 5 if arguments.quick else 50)
        print(f"{name}: {results[name][0]}")
    rows = [f"| {name} | {result} |" for name, (result, _) in results.items()]
    text = "\n".join(["| fault | what happened |", "|---|---|", *rows]) + "\n"
    print(text)
    if arguments.write:
        put_measured(PAGE, *MARKERS, text)
    sys.exit(0 if all(is_right for _, is_right in results.values()) else 1)


if __name__ == "__main__":
    main()
