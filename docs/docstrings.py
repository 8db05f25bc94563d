"""The compact docstrings of this project, told to numpydoc.

A docstring says `X : (n, d) inputs, y : (n,) targets.`, under a heading or without one. Numpydoc takes what is behind
a colon for a type. Here every such name gets a line of its own, and what is said of it becomes its description.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sphinx.application import Sphinx

NAMES = r"[A-Za-z]\w*(?:, [A-Za-z]\w*)*"
BEGIN = re.compile(rf"{NAMES} : ")
EACH = re.compile(rf"(?:^|[;,.] )({NAMES}) : ")
BEFORE_NUMPYDOC = 400


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite, priority=BEFORE_NUMPYDOC)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def rewrite(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [new for block in blocks(lines) for new in rewritten(block)]


def blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Lines that belong together: a name with all that is said of it, or any other line."""
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
    if not block or not BEGIN.match(block[0]):
        yield from block
        return
    _, *parts = EACH.split(" ".join(line.strip() for line in block))
    for names, words in zip(parts[::2], parts[1::2], strict=True):
        yield from (names, f"    {words}")
