"""`wgpr reproduce` in the terminal: what it says, and how it is interrupted."""

from pathlib import Path

from wgpr.commands.console import counted, interruptible, say, talk
from wgpr.paper.plan import FULL, QUICK
from wgpr.paper.reproduce import reproduce


def reproduce_paper(output: Path, *, data: Path | None, quick: bool, n_jobs: int, fresh: bool) -> bool:
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
