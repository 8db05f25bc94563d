"""Run the tutorial, and write what it prints and how accurate its map is into the pages: `python docs/transcripts.py`.

A block of the page is run command by command in a temporary folder, and what stands behind a command is replaced by
what it prints. Endless commands (`tail -f`) and those that print nothing stay as they are. The scores of `evaluate` are
also a table of the page; its numbers are replaced. Answers and scores in docs/streaming.md are of the same maps. The
lakes of docs/choosing.md are the same with other noise and order.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from wgpr import WGPRegressor
from wgpr.metrics import scores

DOCS = Path(__file__).parent
sys.path += [str(DOCS.parent / "examples"), str(DOCS.parent / "benchmarks")]

import lake  # noqa: E402
from common import interpolated, put_measured  # noqa: E402
from lakes import simulated  # noqa: E402

PAGE, PICTURE = DOCS / "tutorial.md", DOCS / "tutorial_lake.png"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def run(command: str, folder: str) -> str:
    """What a command prints, on standard error and standard output."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, shell=True, cwd=folder, env=environment, text=True, check=True, **pipes).stdout


def transcript(block: str, folder: str) -> str:
    """A block with the output of its commands as it is now."""
    lines = []
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        is_endless = "tail -" in command
        output = "" if is_endless else run(command, folder)
        is_table = "wgpr evaluate" in command  # it stands below, as a table of the page
        lines.append(f"$ {command}\n{'' if is_table else output}")
    return "```console\n" + "".join(lines) + "```"


def with_scores(page: str, scores: dict[str, float]) -> str:
    """The page with other numbers in its table of scores."""
    for name, value in scores.items():
        text = f"{value:.1%}" if name == "coverage" else f"{value:#.5g}"
        row = re.compile(rf"^\| ({name.replace('_', ' ')}) \| [^|]* \|", re.MULTILINE | re.IGNORECASE)
        page = row.sub(rf"| \1 | {text} |", page)
    return re.sub(r"(as the boat does: an RMSE of) [\d.]+ m", rf"\1 {scores['rmse']:.3f} m", page)


def write_stream(folder: str) -> None:
    """The answers and the report in docs/streaming.md, of the maps of the tutorial."""
    page = DOCS / "streaming.md"
    (command,) = re.findall(r"^\$ (printf .* \| wgpr stream lake\.map)$", page.read_text(), re.MULTILINE)
    answers = run(f"({command}) 2> errors", folder)
    _replace(page, r"```text\n[^`]*\"model\": \d+\}\n```", f"```text\n{answers}```")
    columns = '--x "east [km],north [km]" --y "depth [m]"'
    run(f"wgpr stream stream.map {columns} < monday.csv 2> report", folder)
    (report,) = re.findall(r"^3,000 rows learned, .*$", (Path(folder) / "report").read_text(), re.MULTILINE)[-1:]
    _replace(page, r"3,000 rows learned, .*", report)


# The simulated lake: words, seeds of the three days, metres of noise, whether the rows come in random order.
LAKES = [
    ("as in the tutorial", (1, 2, 3), 0.15, False),
    ("another draw of the noise (seeds 11 to 13)", (11, 12, 13), 0.15, False),
    ("a third (seeds 21 to 23)", (21, 22, 23), 0.15, False),
    ("5 cm of noise", (1, 2, 3), 0.05, False),
    ("as in the tutorial, rows in random order", (1, 2, 3), 0.15, True),
]


def lake_row(words: str, seeds: tuple[int, ...], noise: float, is_shuffled: bool) -> str:
    """A row of the table: models, RMSE and coverage of the default, RMSE of linear interpolation."""
    learned, judged = simulated(seeds)
    if is_shuffled:
        learned = learned.sample(frac=1.0, random_state=0)
    (X, y), (X_test, y_test) = (_with_noise(rows.to_numpy(), noise) for rows in (learned, judged))
    model = WGPRegressor().fit(X, y)
    found = scores(y_test, *model.predict(X_test, return_std=True))
    linear = np.sqrt(np.mean((interpolated(X, y, X_test) - y_test) ** 2))
    return f"| {words} | {model.n_models_} | {found.rmse:.3f} | {100 * found.coverage:.1f} % | {linear:.3f} |\n"


def _with_noise(rows: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    X, true = rows[:, :2], lake.depth(*rows[:, :2].T)
    return X, true + noise / 0.15 * (rows[:, 2] - true)


def write_lakes() -> None:
    heading = "| Lake | models | RMSE [m] | inside 95 % | linear interpolation: RMSE [m] |\n|---|---:|---:|---:|---:|\n"
    rows = [lake_row(*case) for case in LAKES]
    begin, end = "<!-- measured by docs/transcripts.py -->", "<!-- end of lakes -->"
    put_measured(DOCS / "choosing.md", begin, end, heading + "".join(rows))


def _replace(page: Path, pattern: str, text: str) -> None:
    found, n_found = re.subn(pattern, text, page.read_text())
    if n_found != 1:
        raise SystemExit(f"{page} has {n_found} places for {text!r}; it must have one")
    page.write_text(found)


def main() -> None:
    with TemporaryDirectory() as folder:
        shutil.copy(DOCS.parent / "examples" / "lake.py", folder)
        page = BLOCK.sub(lambda match: transcript(match[1], folder), PAGE.read_text())
        scores = json.loads(run("wgpr evaluate lake.map wednesday.csv --json 2> errors", folder))
        PAGE.write_text(with_scores(page, scores))
        shutil.copy(Path(folder) / "lake.png", PICTURE)
        write_stream(folder)
    write_lakes()


if __name__ == "__main__":
    main()
