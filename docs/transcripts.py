"""Run the commands of the tutorial, and write what they print into its page: `python docs/transcripts.py`.

A block of the page is run command by command in a temporary folder, and what stands behind a command is replaced by
what it prints. Endless commands (`tail -f`) and those that print nothing stay as they are. The scores of `evaluate` are
also a table of the page; its numbers are replaced.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent
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
        page = re.sub(rf"^\| ({name}) \| [^|]* \|", rf"| \1 | {text} |", page, flags=re.MULTILINE | re.IGNORECASE)
    return re.sub(r"(as the boat does: an RMSE of) [\d.]+ m", rf"\1 {scores['rmse']:.3f} m", page)


def main() -> None:
    with TemporaryDirectory() as folder:
        shutil.copy(DOCS.parent / "examples" / "lake.py", folder)
        page = BLOCK.sub(lambda match: transcript(match[1], folder), PAGE.read_text())
        scores = json.loads(run("wgpr evaluate lake.map wednesday.csv --json 2> errors", folder))
        PAGE.write_text(with_scores(page, scores))
        shutil.copy(Path(folder) / "lake.png", PICTURE)


if __name__ == "__main__":
    main()
