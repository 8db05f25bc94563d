"""`python -m reproduction`: run the studies of the paper and write the report."""

import os
import signal
from pathlib import Path
from typing import Annotated, NoReturn
from warnings import catch_warnings
from zipfile import BadZipFile

import typer
from rich.console import Console
from typer import Option

from reproduction.datasets import DATASETS as FILES
from reproduction.datasets import load
from reproduction.jobs import Failure, progress_bar, run
from reproduction.markdown import write_markdown
from reproduction.page import html_page
from reproduction.plan import FULL, QUICK, Plan
from reproduction.report import TITLE, sections
from reproduction.results import Results, ResultsError
from reproduction.studies import all_jobs
from wgpr.io.files import write_file

OUTPUT, RESULTS = Path("wgpr-paper"), "results.jsonl"

console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def main(
    output: Annotated[Path, Option("--output", "-o", file_okay=False, help="Folder of results and report.")] = OUTPUT,
    data: Annotated[
        Path | None, Option(envvar="WGPR_DATA", exists=True, file_okay=False, help="Folder of the data sets (.npz).")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Two trials on short streams: 5 minutes, not over an hour.")] = False,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", min=1, help="Fits at a time. Default: one for each core.")
    ] = None,
    fresh: Annotated[bool, Option("--fresh", help="Delete the results that are there, and start again.")] = False,
) -> None:
    """Reproduce the paper: its figures and tables beside the published numbers, and further studies.

    Every fit is written at once, as a line of results.jsonl. After Ctrl-C, the same command continues where it
    stopped. A data set that is missing is named, and the rest runs. The report is written as HTML and as Markdown.

    Example: `python -m reproduction --data data --quick -o look`
    """
    if data is None:
        console.print("no folder of data sets is given (--data or WGPR_DATA): only what needs none, or can be fetched")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a request to terminate is treated like Ctrl-C
    try:
        plan, n_jobs = QUICK if quick else FULL, jobs or os.cpu_count() or 1
        failures = reproduce(output, plan, folder=data, n_jobs=n_jobs, fresh=fresh)
    except KeyboardInterrupt:
        _stop(f"stopped; the results so far are in {output}, and the same command continues from there")
    except ResultsError as error:
        _stop(str(error))
    console.print(f"report: {output / 'report.html'}, {output / 'report.md'}\nresults: {output / RESULTS}")
    if failures:
        _stop(f"fits that failed: {len(failures)}; the report names them, and the same command tries again")


def _stop(message: str) -> NoReturn:
    console.print(message)
    raise typer.Exit(1)


def reproduce(output: Path, plan: Plan, *, folder: Path | None, n_jobs: int, fresh: bool = False) -> list[Failure]:
    """Run the studies of the plan, and write the report. Returns the fits that failed.

    Parameters
    ----------
    output : folder of the results and of the report. Results that are there already are not computed again.
    folder : of the data sets; those that are not in it are fetched from OpenML, if they are there, or left out.
    n_jobs : fits at a time.
    fresh : delete the results that are there.
    """
    if fresh:
        (output / RESULTS).unlink(missing_ok=True)
    results = Results(output / RESULTS, plan)
    names, missing = available(plan, folder)
    for sentence in missing:
        console.print(f"missing: {sentence}")
    if len(results):
        console.print(f"{len(results):,} results are there already ({results.path})")
    jobs = all_jobs(plan, names)
    with progress_bar(jobs, results, console=console) as progress:
        failures = run(jobs, results, folder=folder, n_jobs=n_jobs, progress=progress)
    with console.status("drawing the report"):
        content, footer = (
            sections(results, plan, missing, failures),
            f"Made by python -m reproduction. Plan: {plan.name}.",
        )
        write_file(output / "report.html", html_page(TITLE, content, footer=footer).encode())
        write_markdown(output / "report.md", TITLE, content, footer=footer)
    return failures


def available(plan: Plan, folder: Path | None) -> tuple[list[str], list[str]]:
    """The names of the data sets that can be loaded, and for each of the others a sentence with the remedy."""
    found, missing = [], []
    for name in plan.stability_sets:
        try:
            with catch_warnings(action="ignore"):  # of attempts to reach OpenML
                load(name, folder, fetch=True)
            found.append(name)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            missing.append(_why_missing(name, folder, error))
    return found, missing


def _why_missing(name: str, folder: Path | None, error: Exception) -> str:
    file_name = FILES[name][0]
    if folder is not None and (folder / file_name).exists():
        return f"{name}: {file_name} cannot be read ({type(error).__name__}); get it again"
    if isinstance(error, FileNotFoundError):
        return f"{name}: {error} (docs/paper.md describes it)"
    return f"{name}: {file_name} is not in the folder, and OpenML cannot be reached; connect, or add the file"


if __name__ == "__main__":
    app(prog_name="python -m reproduction")
