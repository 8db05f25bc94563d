"""A report as one page of HTML with its pictures inside, for a screen of any size, dark or light, and for paper.

Texts are plain words: characters that mean something in HTML are escaped.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import BytesIO
from itertools import groupby
from typing import NamedTuple

from matplotlib.figure import Figure

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.55 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; }}
h1 {{ line-height: 1.2; }}
p {{ max-width: 44rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; padding-bottom: .5rem; }}
th, td {{ padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #8886; white-space: nowrap;
  vertical-align: baseline; }}
th:first-child {{ text-align: left; padding-left: 0; }}
tbody th {{ font-weight: normal; }}
tr.bold > :is(th, td:not(.text)) {{ font-weight: bold; }}
th.text, td.text {{ text-align: left; white-space: normal; min-width: min(22rem, 60vw); }}
.pictures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1.5rem; }}
figure {{ margin: 0; break-inside: avoid; }}
figure.wide {{ grid-column: 1 / -1; }}
img {{ width: 100%; height: auto; background: white; border-radius: .3rem; }}
figcaption, .note {{ font-size: .9rem; }}
footer {{ margin-top: 2rem; font-size: .85rem; opacity: .75; }}
@media print {{ body {{ max-width: none; padding: 0; font-size: 10pt; }} h2 {{ break-after: avoid; }} }}
</style></head>
<body><main>
<h1>{title}</h1>
{body}
</main>
{footer}
</body></html>
"""


class Table(NamedTuple):
    """Cells as text. The first cell of each row is its header.

    note : an explanation below the table.
    bold_rows : numbers of the rows in bold.
    text_columns : numbers of the columns with whole sentences. They are aligned left, may have several lines, and are
        never bold, unless they are the rows' headers.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    bold_rows: Sequence[int] = (0,)
    text_columns: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its caption.

    name : of its file, without the ending; alt : what it shows, for those who cannot see it.
    """

    name: str
    figure: Figure
    caption: str
    alt: str
    is_wide: bool = False

    @cached_property
    def png(self) -> bytes:
        """The figure, drawn once. The version of matplotlib is left out: the same figure makes the same file."""
        stream = BytesIO()
        self.figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
        return stream.getvalue()


Content = str | Table | Picture  # a str is a paragraph


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and the content below it, in this order. Successive pictures stand side by side where there is room."""

    heading: str
    content: Sequence[Content]

    def __post_init__(self) -> None:
        if isinstance(self.content, str | Table):  # both are sequences too
            raise TypeError(f"the content of section {self.heading!r} must be a list of paragraphs, tables, pictures")


def html_page(title: str, sections: Iterable[Section], *, footer: str = "") -> str:
    """The text of the page, with its pictures inside."""
    body = "\n".join(map(_section, sections))
    return _PAGE.format(title=escape(title), body=body, footer=_element("footer", footer))


def _element(tag: str, text: str, attributes: str = "") -> str:
    """An element with a text; empty if there is no text."""
    return f"<{tag}{attributes}>{escape(text)}</{tag}>" if text else ""


def _class(name: str, applies: bool) -> str:
    return f' class="{name}"' if applies else ""


def _section(section: Section) -> str:
    """Successive pictures share a grid."""
    blocks = [_element("h2", section.heading)]
    for are_pictures, items in groupby(section.content, lambda item: isinstance(item, Picture)):
        block = "\n".join(map(_item, items))
        blocks.append(f'<div class="pictures">\n{block}\n</div>' if are_pictures else block)
    return "\n".join(["<section>", *blocks, "</section>"])


def _item(item: Content) -> str:
    match item:
        case Table():
            return _table(item)
        case Picture():
            image = f'<img alt="{escape(item.alt)}" src="data:image/png;base64,{b64encode(item.png).decode()}">'
            caption = _element("figcaption", item.caption)
            return f"<figure{_class('wide', item.is_wide)}>\n{image}\n{caption}\n</figure>"
        case str():
            return _element("p", item)


def _table(table: Table) -> str:
    label = f' role="region" aria-label="{escape(table.caption)}"' if table.caption else ""
    rows = [_row(table, cells, number in table.bold_rows) for number, cells in enumerate(table.rows)]
    return "\n".join([
        f'<div class="scroll" tabindex="0"{label}>\n<table>', _element("caption", table.caption),
        f"<thead>{_row(table, table.headers, False, is_header=True)}</thead>\n<tbody>", *rows,
        "</tbody>\n</table>\n</div>", _element("p", table.note, _class("note", True)),
    ])  # fmt: skip


def _row(table: Table, cells: Sequence[str], is_bold: bool, *, is_header: bool = False) -> str:
    parts = []
    for column, text in enumerate(cells):
        scope = "col" if is_header else "" if column else "row"
        tag, attribute = ("th", f' scope="{scope}"') if scope else ("td", "")
        parts.append(f"<{tag}{attribute}{_class('text', column in table.text_columns)}>{escape(text)}</{tag}>")
    return f"<tr{_class('bold', is_bold)}>{''.join(parts)}</tr>"
