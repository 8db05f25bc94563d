"""Markdown about the commands, made from the command line itself."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

from typer.main import get_command

from wgpr.cli.app import app


def reference(level: int) -> Iterator[str]:
    """Markdown about every command, with headings of this level."""
    for name, lazy in get_command(app).commands.items():
        command = lazy.imported()
        yield f"{'#' * level} wgpr {name}\n"
        yield f"```console\n$ {usage(name, command)}\n```\n"
        yield cleandoc(command.help or "") + "\n"
        if rows := [row_of(parameter) for parameter in command.params if parameter.name != "help"]:
            yield "| | |\n|---|---|"
            yield from rows
            yield ""


def usage(name: str, command: Any) -> str:
    parts = [f"wgpr {name}"]
    for parameter in command.params:
        if is_argument(parameter):
            word = metavar(parameter)
            parts.append(f"{word if parameter.required else f'[{word}]'}{'...' if parameter.nargs == -1 else ''}")
        elif parameter.required:
            parts.append(f"{parameter.opts[-1]} {metavar(parameter)}")
    return " ".join([*parts, "[OPTIONS]"])


def row_of(parameter: Any) -> str:
    if is_argument(parameter):
        return f"| `{metavar(parameter)}` | {in_a_cell(parameter.help)} |"
    words = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" `{metavar(parameter)}`"
    return f"| {words}{in_a_cell(value)} | {in_a_cell(parameter.help)}{default(parameter)} |"


def is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def metavar(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def default(parameter: Any) -> str:
    is_told = parameter.required or parameter.is_flag or parameter.default in (None, "", [], ())
    return "" if is_told else f" Default: `{parameter.default}`."


def in_a_cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("*", "\\*")
