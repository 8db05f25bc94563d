"""The live page: how soon it shows rows, how soon it opens, and what a hundred listeners cost.

    python benchmarks/service_live.py [--only latency;opening;listeners;start] [--minutes 10] [--write]

latency : from the answer to a request with rows until pixels change on an open page, 30 times.
opening : of a page on a map of 500 territories, until all of its tiles are drawn, 5 times.
listeners : rows learned in a second with 100 open event streams over those without, in turn, and resident memory of the
    service while rows come in with 100 streams, over so many minutes.
start : of `wgpr serve --demo`, until the first row is learned, 3 times.

It needs Debian's chromium-headless-shell. A quarter of an hour; `--only latency` takes a minute. `--write` puts the
table into docs/service_results.md.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Thread

import httpx
import numpy as np
from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.progress import track

from common import ONE_THREAD, ROOT, markdown_table, put_measured
from wgpr.survey import fly, jacksboro

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
PAGE = ROOT / "docs" / "service_results.md"
MARKERS = "<!-- live -->", "<!-- end of live -->"
NAMES = ["east", "north", "height"]
N_STREAMS = 100
console = Console(highlight=False)


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service of its own, and its address. It is stopped at the end of the block."""
    command = [
        sys.executable,
        "-c",
        "from wgpr.cli.app import main; main()",
        "serve",
        str(folder),
        "--port",
        "0",
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD)
    assert process.stderr is not None
    try:
        url = re.search(r"http://[\d.:]+", process.stderr.readline())[0]  # type: ignore[index]
        Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()  # so that it can go on logging
        yield process, url
    finally:
        process.terminate()
        process.wait(120)


def terrain_rows() -> np.ndarray:
    survey = fly(jacksboro(), random_state=0)
    return np.column_stack([survey.X, survey.y])


def rough_rows(n: int) -> np.ndarray:
    """Rows (n, 3) of a field that needs a local model for about 100 rows, line by line."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 100.0, (n, 2))
    X = X[np.lexsort((X[:, 1], X[:, 0] // 2))]
    return np.column_stack([X, np.sin(3.0 * X).sum(axis=1) + 0.05 * rng.normal(size=n)])


def make(client: httpx.Client, name: str, rows: np.ndarray) -> None:
    client.put(f"/maps/{name}", json={"inputs": NAMES[:-1], "target": NAMES[-1]}).raise_for_status()
    for start in range(0, len(rows), 2000):
        send(client, name, rows[start : start + 2000], wait="learned")


def send(client: httpx.Client, name: str, rows: np.ndarray, wait: str = "disk") -> None:
    body = dict(zip(NAMES, rows.T.tolist(), strict=True))
    client.post(f"/maps/{name}/rows", json=body, params={"wait": wait, "force": True}).raise_for_status()


def wait_for_tiles(page: Page) -> None:
    page.wait_for_function("""() => {
        const tiles = [...document.querySelectorAll("canvas.leaflet-tile")];
        return tiles.length && tiles.every((tile) => tile.classList.contains("leaflet-tile-loaded")) && window.drawn;
    }""")


RECORD_DRAWING = """
const draw = CanvasRenderingContext2D.prototype.drawImage;
CanvasRenderingContext2D.prototype.drawImage = function (...all) {
    window.drawn = Date.now();
    return draw.apply(this, all);
};
"""


@contextmanager
def browser_page(url: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        page.add_init_script(RECORD_DRAWING)
        page.goto(url)
        yield page
        browser.close()


def latency(folder: Path) -> Iterator[tuple[str, str, str]]:
    rows, seconds = terrain_rows(), []
    with serving(folder) as (_, url), httpx.Client(base_url=url, timeout=120.0) as client:
        make(client, "terrain", rows[:3000])
        with browser_page(f"{url}/#terrain") as page:
            wait_for_tiles(page)
            for number in track(range(30), "latency", console=console):
                page.wait_for_timeout(700)
                send(client, "terrain", rows[3000 + 20 * number : 3020 + 20 * number])
                answered = time.time()
                page.wait_for_function("(time) => window.drawn > time", arg=1000 * answered, polling=10)
                seconds.append(page.evaluate("window.drawn") / 1000 - answered)
    yield "acknowledged rows to changed pixels, median and most [s]", "1", f"{median(seconds):.2f}, {max(seconds):.2f}"


def opening(folder: Path) -> Iterator[tuple[str, str, str]]:
    seconds = []
    with serving(folder) as (_, url), httpx.Client(base_url=url, timeout=120.0) as client:
        rows, n_rows = rough_rows(100_000), 0
        client.put("/maps/rough", json={"inputs": NAMES[:-1], "target": NAMES[-1]}).raise_for_status()
        while (n_models := client.get("/maps/rough").json()["models"]) < 500:
            send(client, "rough", rows[n_rows : n_rows + 1000], wait="learned")
            n_rows += 1000
        for _ in track(range(5), "opening", console=console):
            send(client, "rough", rows[n_rows : n_rows + 1], wait="learned")
            started = time.time()
            with browser_page(f"{url}/#rough") as page:
                opened = time.time()
                wait_for_tiles(page)
                seconds.append((time.time() - opened, opened - started))
    shown = ", ".join(f"{after:.2f}" for after, _ in seconds)
    yield f"a page on {n_models} territories opens, all tiles drawn [s], 5 times", "2", shown


def memory(process_id: int) -> float:
    """Resident memory of a process and of those that it has started, in MB."""
    tree, total = [process_id], 0
    while tree:
        each = tree.pop()
        total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for task in Path(f"/proc/{each}/task").iterdir():
            tree += map(int, (task / "children").read_text().split())
    return total / 1e6


async def listen(url: str, stop: asyncio.Event) -> int:
    """Read an event stream until told to stop; the number of bytes."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    n_bytes, stopped = 0, asyncio.create_task(stop.wait())
    while not stopped.done():
        reading = asyncio.create_task(reader.read(1 << 16))
        await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            n_bytes += len(reading.result())
        else:
            reading.cancel()
    writer.close()
    return n_bytes


@contextmanager
def listeners(url: str, number: int) -> Iterator[None]:
    """So many open event streams, in a thread with an event loop of its own."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def all_of_them() -> None:
        await asyncio.gather(*(listen(url, stop) for _ in range(number)))

    thread = Thread(target=lambda: loop.run_until_complete(all_of_them()), daemon=True)
    thread.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def rate(client: httpx.Client, name: str, rows: np.ndarray) -> float:
    """Rows learned in a second of a new map."""
    client.put(f"/maps/{name}", json={"inputs": NAMES[:-1], "target": NAMES[-1]}).raise_for_status()
    started = time.perf_counter()
    for start in range(0, len(rows), 100):
        send(client, name, rows[start : start + 100])
    send(client, name, rows[-1:], wait="learned")
    return len(rows) / (time.perf_counter() - started)


def listening(folder: Path, minutes: float) -> Iterator[tuple[str, str, str]]:
    rows, ratios = terrain_rows()[:6000], []
    with serving(folder) as (process, url), httpx.Client(base_url=url, timeout=120.0) as client:
        rate(client, "warm", rows[:1000])
        for number in track(range(4), "listeners", console=console):
            alone = rate(client, f"alone-{number}", rows)
            with listeners(url, N_STREAMS):
                ratios.append(rate(client, f"heard-{number}", rows) / alone)
        yield f"rows/s with {N_STREAMS} event streams over those without", "0.9", f"{median(ratios):.2f}"
        client.put("/maps/steady", json={"inputs": NAMES[:-1], "target": NAMES[-1]}).raise_for_status()
        used, survey = [], terrain_rows()
        with listeners(url, N_STREAMS):
            for number in track(range(int(60 * minutes)), "memory", console=console):
                send(client, "steady", survey[(np.arange(50) + 50 * number) % len(survey)])
                used.append(memory(process.pid))
                time.sleep(0.95)
        fifth = len(used) // 5
        first, last = median(used[fifth : 2 * fifth]), median(used[-fifth:])
        yield (
            f"memory over {minutes:g} min with {N_STREAMS} streams, second and last fifth [MB]",
            "flat",
            f"{first:.0f}, {last:.0f}",
        )


def start() -> Iterator[tuple[str, str, str]]:
    seconds = []
    for _ in track(range(3), "start", console=console):
        with tempfile.TemporaryDirectory() as folder:
            started = time.time()
            with serving(Path(folder), "--demo") as (_, url), httpx.Client(base_url=url) as client:
                while not client.get("/maps/terrain").json().get("rows_learned"):
                    time.sleep(0.02)
                seconds.append(time.time() - started)
    yield "`wgpr serve --demo` until the map grows [s], 3 times", "5", ", ".join(f"{each:.1f}" for each in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="latency;opening;listeners;start", help="parts, separated by semicolons")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the measurement of memory")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments = parser.parse_args()
    parts = arguments.only.split(";")
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            "latency": lambda: latency(Path(folder) / "latency"),
            "opening": lambda: opening(Path(folder) / "opening"),
            "listeners": lambda: listening(Path(folder) / "listeners", arguments.minutes),
            "start": start,
        }
        if unknown := set(parts) - runs.keys():
            parser.error(f"--only has no part {', '.join(unknown)}; there are {', '.join(runs)}")
        for part in parts:
            for row in runs[part]():
                console.print(" | ".join(row), markup=False)
                rows.append(row)
    if arguments.write:
        put_measured(PAGE, *MARKERS, markdown_table(["figure", "to reach", "measured"], rows))


if __name__ == "__main__":
    main()
