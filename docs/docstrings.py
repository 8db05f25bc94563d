"""Markdown about an object of the package: its signature and its docstring.

Docstrings here are compact: `X : (n, d) inputs, y : (n,) targets.`, under a heading or without one. Every such name
becomes an item of a list.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

NAMES = r"[A-Za-z]\w*(?:, [A-Za-z]\w*)*"
BEGIN = re.compile(rf"{NAMES} : ")
EACH = re.compile(rf"(?:^|[;,.] )({NAMES}) : ")
WIDTH = 92  # fits a column of the site


def reference(line: str, level: int) -> Iterator[str]:
    """Markdown about `package.module.name: member, member`, with headings of this level."""
    path, _, members = line.partition(":")
    module, _, name = path.strip().rpartition(".")
    thing = getattr(import_module(module), name)
    yield from section(name, thing, level)
    for member in re.findall(r"\w+", members):
        yield from section(f"{name}.{member}", inspect.getattr_static(thing, member), level + 1)


def section(name: str, thing: Any, level: int) -> Iterator[str]:
    thing = getattr(thing, "__func__", thing)  # of a class method
    yield f"{'#' * level} `{name}`\n"
    if parameters := signature(thing):
        indent = " " * (len(name) + 1)
        call = textwrap.wrap(f"{name}({parameters})", WIDTH, subsequent_indent=indent, break_long_words=False)
        yield "\n".join(["```python", *call, "```\n"])
    yield markdown(inspect.getdoc(thing) or "") + "\n"


def signature(thing: Any) -> str:
    """Parameters with their defaults, without annotations; none for properties and exceptions."""
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
        return ""
    given = [each for each in inspect.signature(thing).parameters.values() if each.name not in ("self", "cls")]
    return str(inspect.Signature([each.replace(annotation=inspect.Parameter.empty) for each in given]))[1:-1]


def markdown(docstring: str) -> str:
    """A docstring in Markdown: headings are bold, names with a description are lists, examples are fenced."""
    lines = [new for block in blocks(docstring.splitlines()) for new in rewritten(block)]
    text = "\n".join(lines)
    text = re.sub(r"^(\w+)\n-{3,}$\n?", r"**\1**\n\n", text, flags=re.MULTILINE)
    return re.sub(r"((?:^>>>.*\n?(?:^(?!>>>)\S.*\n?)*)+)", r"```pycon\n\1\n```", text, flags=re.MULTILINE)


def blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Lines that belong together: a name with its description, or any other line."""
    block: list[str] = []
    for line in lines:
        if block and line.strip() and not BEGIN.match(line) and not line.startswith("---"):
            block.append(line)
            continue
        yield block
        block = [line] if BEGIN.match(line) else []
        if not block:
            yield [line]
    yield block


def rewritten(block: Sequence[str]) -> Iterator[str]:
    """The lines of a block; an item of a list for each name with a description."""
    if not block or not BEGIN.match(block[0]):
        yield from block
        return
    _, *parts = EACH.split(" ".join(line.strip() for line in block))
    for names, words in zip(parts[::2], parts[1::2], strict=True):
        item = f"- {', '.join(f'`{name}`' for name in names.split(', '))}: {words}"
        yield from textwrap.wrap(item, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
