"""A report as one file of HTML, with its pictures inside; or as Markdown, with its pictures beside it.

The page of HTML is for a screen of any size, dark or light, and for paper. The Markdown is what GitHub and Sphinx (with
MyST) read. Texts are plain words: what means something in HTML or in Markdown is escaped, and shown as it is.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from matplotlib.figure import Figure

from wgpr.io.atomic import write_whole

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; }
p { max-width: 44rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; max-width: min(44rem, calc(100vw - 2rem)); }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #8886; white-space: nowrap;
  vertical-align: baseline; }
th:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: normal; }
tr.main > :is(th, td:not(.prose)) { font-weight: bold; }
th.prose, td.prose { text-align: left; white-space: normal; min-width: min(22rem, 60vw); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; break-inside: avoid; }
figure.wide { grid-column: 1 / -1; }
img { width: 100%; height: auto; background: white; border-radius: .3rem; }
figcaption, .note { font-size: .9rem; }
footer { margin-top: 2rem; font-size: .85rem; opacity: .75; }
@media (max-width: 40rem) { tbody th { white-space: normal; min-width: 5rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } h2, h3 { break-after: avoid; } }
"""


class Table(NamedTuple):
    """Cells as text. The first of each row is its header.

    note : what stands below it, to explain it.
    main_rows : the numbers of those that it is all about: they are bold.
    wide_columns : the numbers of those with whole sentences: they are aligned left, may have several lines, and are
        never bold, unless they are the rows' headers.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    main_rows: Sequence[int] = (0,)
    wide_columns: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its words.

    name : of its file, without the ending; alt : what it shows, for those who cannot see it.
    """

    name: str
    figure: Figure
    caption: str
    alt: str
    is_wide: bool = False

    @cached_property
    def png(self) -> bytes:
        """The figure as it was when this was first asked for: it is drawn once, however many pages show it.

        Without the version of matplotlib in it: the same figure makes the same file.
        """
        stream = BytesIO()
        self.figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
        return stream.getvalue()


Content = str | Table | Picture  # a str is a paragraph


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and what stands below it, in this order. Pictures in a row stand side by side, where there is room.

    level : 2, or 3 for a part of the section before it.
    """

    heading: str
    content: Sequence[Content]
    level: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.content, str | Table):  # both are sequences too
            raise TypeError(f"the content of section {self.heading!r} must be a list of paragraphs, tables, pictures")
        if self.level not in (2, 3):
            raise ValueError(f"level must be 2 or 3, not {self.level} (section {self.heading!r})")


class Report(NamedTuple):
    """Where the files are: the page, and its pictures."""

    page: Path
    pictures: tuple[Path, ...]


def write_report(path: str | Path, title: str, sections: Sequence[Section], *, footer: str = "") -> Report:
    """Write the page of HTML, which needs no other file, and the pictures beside it as PNG.

    Parameters
    ----------
    path : a file that ends in .html, or a folder, which gets a `report.html`. Folders are made.
    """
    page = _place(path, ".html", ".htm")
    return _write(page, html_page(title, sections, footer=footer), page.parent, sections)


def write_markdown(path: str | Path, title: str, sections: Sequence[Section], *, footer: str = "") -> Report:
    """Write the page of Markdown, and its pictures as PNG in the folder `figures` beside it.

    Parameters
    ----------
    path : a file that ends in .md, or a folder, which gets a `report.md`. Folders are made.
    """
    page = _place(path, ".md")
    text = markdown_page(title, sections, footer=footer, folder="figures")
    return _write(page, text, page.with_name("figures"), sections)


def _place(path: str | Path, *endings: str) -> Path:
    """Where the page is to be."""
    return Path(path) if Path(path).suffix in endings else Path(path) / f"report{endings[0]}"


def _write(page: Path, text: str, folder: Path, sections: Iterable[Section]) -> Report:
    """The pictures first: a page that is there has its pictures."""
    page.parent.mkdir(parents=True, exist_ok=True)
    files = {folder / f"{name}.png": picture for name, picture in _pictures_by_name(sections).items()}
    for file, picture in files.items():
        file.parent.mkdir(exist_ok=True)
        write_whole(file, picture.png)
    write_whole(page, text.encode())
    return Report(page, tuple(files))


def _pictures_by_name(sections: Iterable[Section]) -> dict[str, Picture]:
    found: dict[str, Picture] = {}
    for picture in (item for section in sections for item in section.content if isinstance(item, Picture)):
        if found.setdefault(picture.name, picture) is not picture:
            raise ValueError(f"two pictures are named {picture.name!r}; their files need two names")
    return found


def _require_no_gap(sections: Sequence[Section]) -> None:
    if sections and sections[0].level > 2:
        raise ValueError(f"the first section, {sections[0].heading!r}, must have level 2: it is not part of another")


# HTML


def html_page(title: str, sections: Sequence[Section], *, footer: str = "") -> str:
    """The page alone, with its pictures in it."""
    _require_no_gap(sections)
    body = "\n".join(map(_section, sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
{_element("footer", footer)}
</body>
</html>
"""


def _element(tag: str, text: str, kind: str = "") -> str:
    """Nothing at all if there is no text."""
    return f"<{tag}{_class(kind)}>{escape(text)}</{tag}>" if text else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _section(section: Section) -> str:
    heading = _element(f"h{section.level}", section.heading)
    blocks = [_block(are_pictures, items) for are_pictures, items in groupby(section.content, _is_picture)]
    return "\n".join(["<section>", heading, *blocks, "</section>"])


def _is_picture(item: Content) -> bool:
    return isinstance(item, Picture)


def _block(are_pictures: bool, items: Iterable[Content]) -> str:
    """Neighbours of one kind; pictures share a grid."""
    block = "\n".join(map(_item, items))
    return f'<div class="pictures">\n{block}\n</div>' if are_pictures else block


def _item(item: Content) -> str:
    match item:
        case Table():
            return _table(item)
        case Picture():
            return _figure(item)
        case str():
            return _element("p", item)


def _table(table: Table) -> str:
    label = f' role="region" aria-label="{escape(table.caption)}"' if table.caption else ""
    rows = "\n".join(_row(table, number) for number in range(len(table.rows)))
    return f"""<div class="scroll" tabindex="0"{label}>
<table>
{_element("caption", table.caption)}
<thead><tr>{_headers(table)}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{_element("p", table.note, "note")}"""


def _headers(table: Table) -> str:
    return "".join(_cell(table, column, header, "col") for column, header in enumerate(table.headers))


def _row(table: Table, number: int) -> str:
    cells = (_cell(table, column, text, "" if column else "row") for column, text in enumerate(table.rows[number]))
    return f"<tr{_class('main' if number in table.main_rows else '')}>{''.join(cells)}</tr>"


def _cell(table: Table, column: int, text: str, scope: str) -> str:
    """With a scope, it is a header."""
    kind = _class("prose" if column in table.wide_columns else "")
    return f'<th scope="{scope}"{kind}>{escape(text)}</th>' if scope else f"<td{kind}>{escape(text)}</td>"


def _figure(picture: Picture) -> str:
    return f"""<figure{_class("wide" if picture.is_wide else "")}>
<img alt="{escape(picture.alt)}" src="data:image/png;base64,{b64encode(picture.png).decode()}">
{_element("figcaption", picture.caption)}
</figure>"""


# Markdown

# Only what Markdown would take for a mark gets a backslash: the source should be easy to read as well.
_MARKS = r"""
    [\\`$]
    | (?<![ ])[*~] | [*~](?![ ])       # emphasis, unless it stands alone, as in 2 * 3
    | _(?![^\W_])                      # emphasis, unless a word goes on, as in w_old
    | <(?=[A-Za-z/!?]) | &(?=\#?\w+;)  # a tag, an entity
    | \[(?=\^) | \](?=[(:])            # a footnote, a link
    | \#$                              # the end of a heading
"""
_MARKS_OF_WORDS = re.compile(_MARKS, re.VERBOSE)
_MARKS_OF_CELL = re.compile(rf"{_MARKS} | \|", re.VERBOSE)
_MARKS_OF_ALT = re.compile(rf"{_MARKS} | [\[\]]", re.VERBOSE)

_START_OF_BLOCK = re.compile(
    r"""
    ^(?: ([0-9]+)(?=[.)](?:[ ]|$))  # a numbered list: the backslash goes before the dot
    | (?=[-+\#>:%]                  # a list, a heading, a quotation; in MyST a fence, a definition, a comment
    | \(.*\)=$))                    # in MyST a name to refer to
    """,
    re.VERBOSE,
)


def markdown_page(title: str, sections: Sequence[Section], *, footer: str = "", folder: str = "") -> str:
    """The page alone.

    Parameters
    ----------
    folder : of the pictures, as seen from the page.
    """
    _require_no_gap(sections)
    blocks = [f"# {_words(title)}"]
    for section in sections:
        blocks.append(f"{'#' * section.level} {_words(section.heading)}")
        blocks += [block for item in section.content for block in _markdown_blocks(item, folder)]
    return "\n\n".join(filter(None, [*blocks, _marked("*", _words(footer))])) + "\n"


def _markdown_blocks(item: Content, folder: str) -> list[str]:
    match item:
        case Table():
            return [_marked("**", _words(item.caption)), _markdown_table(item), _paragraph(item.note)]
        case Picture():
            return [_markdown_image(item, folder), _marked("*", _words(item.caption))]
        case str():
            return [_paragraph(item)]


def _words(text: str, marks: re.Pattern[str] = _MARKS_OF_WORDS) -> str:
    """In one line, with a backslash before whatever would be a mark of Markdown. Hard spaces stay."""
    return marks.sub(r"\\\g<0>", re.sub(r"\s+", " ", text, flags=re.ASCII).strip())


def _paragraph(text: str) -> str:
    return _START_OF_BLOCK.sub(r"\1\\", _words(text))


def _marked(mark: str, words: str) -> str:
    """In bold or italics."""
    return f"{mark}{words}{mark}" if words else ""


def _markdown_image(picture: Picture, folder: str) -> str:
    file = f"{folder}/{picture.name}.png" if folder else f"{picture.name}.png"
    return f"![{_words(picture.alt, _MARKS_OF_ALT)}]({quote(file)})"


def _markdown_table(table: Table) -> str:
    left = {0, *table.wide_columns}
    alignments = [":--" if column in left else "--:" for column in range(len(table.headers))]
    rows = [_markdown_cells(table, number) for number in range(len(table.rows))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [map(_cell_words, table.headers), alignments, *rows])


def _markdown_cells(table: Table, number: int) -> list[str]:
    """Of a row."""
    plain = set(table.wide_columns) - {0} if number in table.main_rows else range(len(table.headers))
    cells = enumerate(map(_cell_words, table.rows[number]))
    return [words if column in plain else _marked("**", words) for column, words in cells]


def _cell_words(text: str) -> str:
    return _words(text, _MARKS_OF_CELL)
