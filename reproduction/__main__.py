"""`python -m reproduction`: run the studies of the paper and write the report."""

import os
from pathlib import Path
from typing import Annotated

import typer

from reproduction.plan import FULL, QUICK
from reproduction.reproduce import reproduce
from wgpr.cli.app import run_app
from wgpr.cli.console import FAILURE, counted, interruptible, say, talk
from wgpr.cli.settings import SettingsError

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def main(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the results and the report go.")
    ] = Path("wgpr-paper"),
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", envvar="WGPR_DATA", help="Where the data sets are, as .npz files."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two trials on short streams, in 5 minutes; in full it takes over an hour.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Fits at a time; by default, one for each core.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the results that are there, and begin anew.")] = False,
) -> None:
    """Reproduce the paper: its figures and tables beside the published numbers, and the studies that it left open.

    Every fit is written at once, as a line of results.jsonl. After Ctrl-C, the same command goes on where it
    stopped. A data set that is missing is named, and the rest runs. The report is written as HTML and as Markdown.

    Example: `python -m reproduction --data data --quick -o look`
    """
    if output.is_file():
        raise SettingsError(f"{output} is a file, and the results need a folder; name another with -o")
    if data is not None and not data.is_dir():
        raise SettingsError(f"{data} is no folder; name the one with the data sets with --data or WGPR_DATA")
    if not _run(output, data=data, quick=quick, n_jobs=jobs or os.cpu_count() or 1, fresh=fresh):
        raise typer.Exit(FAILURE)


def _run(output: Path, *, data: Path | None, quick: bool, n_jobs: int, fresh: bool) -> bool:
    """Run and report; whether all of it could be done."""
    if data is None:
        say("no folder of data sets is given (--data or WGPR_DATA): only what needs none, or can be fetched, is run")
    try:
        with interruptible():
            done = reproduce(output, QUICK if quick else FULL, folder=data, n_jobs=n_jobs, console=talk, fresh=fresh)
    except KeyboardInterrupt:
        say(f"stopped; what is done is in {output}, and the same command goes on from there")
        return False
    say(f"report: {done.page}, {done.markdown}\nresults: {done.results}")
    if done.n_failures:
        say(f"{counted(done.n_failures, 'fit')} failed; the report names them, and the same command tries again")
    return not done.n_failures


if __name__ == "__main__":
    run_app(app)
