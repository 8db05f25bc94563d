"""The token of a service, as an option. This module imports little, so that `wgpr serve` starts soon."""

import os
from pathlib import Path
from typing import Annotated

import typer

from wgpr.cli.console import UsageError

TOKEN_VARIABLE = "WGPR_TOKEN"
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"Has the token that clients of a service send; or set {TOKEN_VARIABLE}."),
]


def read_token(path: Path | None) -> str | None:
    """The token of a service: in a file or, without one, in the environment; None if there is none."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {path} cannot be read; check the name and its contents") from error
