"""A report that is one file: HTML with its pictures inside, for a screen of any size, dark or light, and for paper."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from wgpr.storage.atomic import write_whole

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; }
p { max-width: 44rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { padding: .35rem .7rem; text-align: right; border-bottom: 1px solid #8886; white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; }
tbody th { font-weight: normal; }
tbody tr:first-child > * { font-weight: bold; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; break-inside: avoid; }
figure.wide { grid-column: 1 / -1; }
img { width: 100%; height: auto; background: white; border-radius: .3rem; }
figcaption, .note { font-size: .9rem; }
footer { margin-top: 2rem; font-size: .85rem; opacity: .75; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } h2 { break-after: avoid; } }
"""


class Table(NamedTuple):
    """Cells as text. The first of each row is its header; the first row is the one that it is all about.

    note : what stands below it, to explain it.
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


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


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and what stands below it: the table, then paragraphs, then the pictures."""

    heading: str
    table: Table | None = None
    paragraphs: Sequence[str] = ()
    pictures: Sequence[Picture] = ()


class Report(NamedTuple):
    """Where the files are: the page, and its pictures beside it."""

    page: Path
    pictures: tuple[Path, ...]


def write_report(path: str | Path, title: str, sections: Sequence[Section], *, footer: str = "") -> Report:
    """Write the page, which needs no other file, and the pictures beside it as PNG.

    Parameters
    ----------
    path : a file that ends in .html, or a folder, which gets a `report.html`. Folders are made.
    """
    page = Path(path) if Path(path).suffix in (".html", ".htm") else Path(path) / "report.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    images = _images(sections)
    write_whole(page, _page(title, sections, images, footer).encode())
    files = [page.with_name(f"{name}.png") for name in images]
    for file, image in zip(files, images.values(), strict=True):
        write_whole(file, image)
    return Report(page, tuple(files))


def html_page(title: str, sections: Sequence[Section], *, footer: str = "") -> str:
    """The page alone, with its pictures in it."""
    return _page(title, sections, _images(sections), footer)


def _images(sections: Iterable[Section]) -> dict[str, bytes]:
    return {picture.name: _png(picture.figure) for section in sections for picture in section.pictures}


def _png(figure: Figure) -> bytes:
    """Without the version of matplotlib in it: the same figure makes the same file."""
    stream = BytesIO()
    figure.savefig(stream, format="png", dpi=130, metadata={"Software": None})
    return stream.getvalue()


def _page(title: str, sections: Iterable[Section], images: dict[str, bytes], footer: str) -> str:
    body = "\n".join(_section(section, images) for section in sections)
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
<footer>{escape(footer)}</footer>
</body>
</html>
"""


def _section(section: Section, images: dict[str, bytes]) -> str:
    parts = [f"<h2>{escape(section.heading)}</h2>"]
    if section.table is not None:
        parts.append(_table(section.table))
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
    if section.pictures:
        figures = "\n".join(_figure(picture, images[picture.name]) for picture in section.pictures)
        parts.append(f'<div class="pictures">\n{figures}\n</div>')
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _table(table: Table) -> str:
    headers = "".join(f'<th scope="col">{escape(header)}</th>' for header in table.headers)
    rows = "\n".join(_row(row) for row in table.rows)
    caption = escape(table.caption)
    return f"""<div class="scroll" role="region" tabindex="0" aria-label="{caption}">
<table>
<caption>{caption}</caption>
<thead><tr>{headers}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<p class="note">{escape(table.note)}</p>"""


def _row(cells: Sequence[str]) -> str:
    header, *others = map(escape, cells)
    return f'<tr><th scope="row">{header}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>"


def _figure(picture: Picture, image: bytes) -> str:
    kind = ' class="wide"' if picture.is_wide else ""
    return f"""<figure{kind}>
<img alt="{escape(picture.alt)}" src="data:image/png;base64,{b64encode(image).decode()}">
<figcaption>{escape(picture.caption)}</figcaption>
</figure>"""
