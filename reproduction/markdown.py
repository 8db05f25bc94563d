"""The report as Markdown, as GitHub and Sphinx (with MyST) read it, with its pictures in files.

Texts are plain words: what means something in Markdown is escaped.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from reproduction.page import Content, Picture, Section, Table
from wgpr.io.files import write_file

# Characters get a backslash only where Markdown would give them a meaning: the source should be easy to read as well.
_SPECIAL = r"""
    [\\`$]
    | (?<![ ])[*~] | [*~](?![ ])       # emphasis, unless it stands alone, as in 2 * 3
    | _(?![^\W_])                      # emphasis, unless a word goes on, as in w_old
    | <(?=[A-Za-z/!?]) | &(?=\#?\w+;)  # a tag, an entity
    | \[(?=\^) | \](?=[(:])            # a footnote, a link
    | \#$                              # the end of a heading
"""
_SPECIAL_IN_TEXT = re.compile(_SPECIAL, re.VERBOSE)
_SPECIAL_IN_CELL = re.compile(rf"{_SPECIAL} | \|", re.VERBOSE)
_SPECIAL_IN_ALT = re.compile(rf"{_SPECIAL} | [\[\]]", re.VERBOSE)

_START_OF_BLOCK = re.compile(
    r"""
    ^(?: ([0-9]+)(?=[.)](?:[ ]|$))  # a numbered list: the backslash goes before the dot
    | (?=[-+\#>:%]                  # a list, a heading, a quotation; in MyST a fence, a definition, a comment
    | \(.*\)=$))                    # in MyST a name to refer to
    """,
    re.VERBOSE,
)


def write_markdown(path: Path, title: str, sections: Sequence[Section], *, footer: str = "") -> tuple[Path, ...]:
    """Write the page, and its pictures as PNG into the folder `figures` beside it. Missing folders are made.

    Returns the files of the pictures.
    """
    pictures = _write_pictures(path.with_name("figures"), sections)
    write_file(path, markdown_page(title, sections, footer=footer, folder="figures").encode())
    return pictures


def _write_pictures(folder: Path, sections: Iterable[Section]) -> tuple[Path, ...]:
    files: dict[Path, Picture] = {}
    for picture in (item for section in sections for item in section.content if isinstance(item, Picture)):
        if files.setdefault(folder / f"{picture.name}.png", picture) is not picture:
            raise ValueError(f"two pictures are named {picture.name!r}; their files need two names")
    for file, picture in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_file(file, picture.png)
    return tuple(files)


def markdown_page(title: str, sections: Iterable[Section], *, footer: str = "", folder: str = "") -> str:
    """The text of the page. folder : of the pictures, as seen from the page."""
    blocks = [f"# {_escaped(title)}"]
    for section in sections:
        blocks.append(f"## {_escaped(section.heading)}")
        blocks += [block for item in section.content for block in _blocks(item, folder)]
    return "\n\n".join(filter(None, [*blocks, _wrapped("*", _escaped(footer))])) + "\n"


def _blocks(item: Content, folder: str) -> list[str]:
    match item:
        case Table():
            return [_wrapped("**", _escaped(item.caption)), _table(item), _paragraph(item.note)]
        case Picture():
            file = quote(f"{folder}/{item.name}.png" if folder else f"{item.name}.png")
            return [f"![{_escaped(item.alt, _SPECIAL_IN_ALT)}]({file})", _wrapped("*", _escaped(item.caption))]
        case str():
            return [_paragraph(item)]


def _escaped(text: str, special: re.Pattern[str] = _SPECIAL_IN_TEXT) -> str:
    """The text in one line, with a backslash before special characters. Hard spaces stay."""
    return special.sub(r"\\\g<0>", re.sub(r"\s+", " ", text, flags=re.ASCII).strip())


def _paragraph(text: str) -> str:
    return _START_OF_BLOCK.sub(r"\1\\", _escaped(text))


def _wrapped(mark: str, text: str) -> str:
    """In bold or italics."""
    return f"{mark}{text}{mark}" if text else ""


def _table(table: Table) -> str:
    left = {0, *table.text_columns}
    headers = [_escaped(header, _SPECIAL_IN_CELL) for header in table.headers]
    alignments = [":--" if column in left else "--:" for column in range(len(headers))]
    rows = [_row(table, number) for number in range(len(table.rows))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [headers, alignments, *rows])


def _row(table: Table, number: int) -> list[str]:
    """In bold, but for columns of whole sentences."""
    bold = set(range(len(table.headers))) - (set(table.text_columns) - {0}) if number in table.bold_rows else set()
    cells = [_escaped(text, _SPECIAL_IN_CELL) for text in table.rows[number]]
    return [_wrapped("**", text) if column in bold else text for column, text in enumerate(cells)]
