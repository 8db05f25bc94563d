"""`wgpr reproduce`: run what is not done yet, then write the report of all there is."""

from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from reproduction.journal import Journal
from reproduction.plan import Plan
from reproduction.running import all_jobs, available, run_all
from reproduction.sections import TITLE, sections
from wgpr.io.atomic import write_whole
from wgpr.report import html_page, write_markdown

RESULTS = "results.jsonl"


class Reproduction(NamedTuple):
    """The files that were written, and how many jobs failed."""

    page: Path
    markdown: Path
    results: Path
    n_failures: int


def reproduce(
    output: Path, plan: Plan, *, folder: Path | None, n_jobs: int, console: Console, fresh: bool = False
) -> Reproduction:
    """Run the studies of the plan and report on them.

    Parameters
    ----------
    output : folder of the results and of the report. Results that are there already are not computed again.
    folder : of the data sets; what is not in it is fetched from OpenML, if it is there, or left out.
    n_jobs : how many fits at a time.
    fresh : forget the results that are there.
    """
    path = output / RESULTS
    if fresh:
        path.unlink(missing_ok=True)
    journal = Journal(path, plan.to_json())
    names, missing = available(plan, folder)
    for sentence in missing:
        console.print(Text(f"missing: {sentence}"), soft_wrap=True)
    if len(journal):
        console.print(Text(f"{len(journal):,} results are there already ({path})"), soft_wrap=True)
    jobs = all_jobs(plan, names)
    failures = run_all(jobs, journal, folder=folder, plan=plan, n_jobs=n_jobs, console=console)
    with console.status("drawing the report"):
        content, footer = sections(journal, plan, missing, failures), f"Made by wgpr reproduce. Plan: {plan.name}."
        page, markdown = output / "report.html", output / "report.md"
        write_whole(page, html_page(TITLE, content, footer=footer).encode())
        write_markdown(markdown, TITLE, content, footer=footer)
    return Reproduction(page, markdown, path, len(failures))
