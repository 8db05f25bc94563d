"""The page stands alone, can be parsed, and has everything in it."""

import base64
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from reproduction.page import Picture, Section, Table, html_page

WITHOUT_END = {"meta", "img", "br", "link"}
NASTY = '<b> & "quoted"'


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self._open = [], [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in WITHOUT_END:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def picture(name, is_wide=False):
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    return Picture(name, figure, f"Caption of {name}. {NASTY}", f"What {name} shows. {NASTY}", is_wide)


def example():
    """A section with a table and a paragraph, and one with pictures."""
    table = Table(f"Caption {NASTY}", ("", "RMSE [m]"), [("ours", "1"), (NASTY, "-")], f"Note {NASTY}")
    return [
        Section("Numbers", [table, f"A paragraph. {NASTY}"]),
        Section("Pictures", [picture("first"), picture("second", is_wide=True)]),
    ]


@pytest.fixture
def sections():
    return example()


def section_of(*content):
    return Section("Heading", content)


def bare_table(rows=(("a", "1"), ("b", "2"), ("c", "3")), **settings):
    return Table("", ("", "number"), rows, **settings)


@pytest.fixture
def text(sections):
    return html_page(f"Title {NASTY}", sections, footer=NASTY)


@pytest.fixture
def page(text):
    return Page(text)


def test_the_pictures_are_in_the_page(page):
    embedded = [base64.b64decode(image["src"].partition("base64,")[2]) for image in page.all("img")]
    assert [image[:4] for image in embedded] == 2 * [b"\x89PNG"]


def test_nothing_is_loaded_from_elsewhere(page, text):
    assert not re.search(r"http|//|@import|url\(", re.sub(r"base64,[\w+/=]+", "", text))
    assert not page.all("script")
    assert not page.all("link")


def test_words_are_shown_as_they_are(page):
    words = "".join(page.words)
    for shown in (f"Title {NASTY}", f"Note {NASTY}", f"A paragraph. {NASTY}", f"Caption of first. {NASTY}"):
        assert shown in words
    assert not page.all("b")


def test_the_page_is_accessible(page):
    assert page.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert [image["alt"] for image in page.all("img")] == [
        f"What {name} shows. {NASTY}" for name in ("first", "second")
    ]
    assert [header["scope"] for header in page.all("th")] == ["col", "col", "row", "row"]
    assert len(page.all("caption")) == len(page.all("table")) == len(page.all("h1")) == 1
    assert [figure.get("class") for figure in page.all("figure")] == [None, "wide"]


def test_the_same_report_is_the_same_file(text):
    assert html_page(f"Title {NASTY}", example(), footer=NASTY) == text


# What stands where


def test_content_stands_in_its_order():
    content = ["Alpha", bare_table([("Beta", "1")]), "Gamma", "Delta", picture("x"), "Epsilon"]
    text = html_page("Title", [Section("Heading", content)])
    places = [text.index(word) for word in ("Heading", "Alpha", "Beta", "Gamma", "Delta", "Caption of x", "Epsilon")]
    assert places == sorted(places)


def test_pictures_in_a_row_share_a_grid():
    page = Page(html_page("Title", [section_of(picture("a"), picture("b"), "Between.", picture("c"))]))
    assert [tag for tag, _ in page.tags if tag in ("div", "figure", "p")] == [
        "div", "figure", "figure", "p", "div", "figure",
    ]  # fmt: skip


def test_bold_rows_and_columns_of_text_are_marked():
    page = Page(html_page("Title", [section_of(bare_table(bold_rows=(0, 2), text_columns=(1,)))]))
    assert [row.get("class") for row in page.all("tr")] == [None, "bold", None, "bold"]
    assert [header.get("class") for header in page.all("th")] == [None, "text", None, None, None]
    assert [cell.get("class") for cell in page.all("td")] == ["text"] * 3


def test_what_is_empty_leaves_no_trace():
    page = Page(html_page("Title", [section_of(bare_table(), Picture("a", Figure(), "", ""))]))
    assert not {"caption", "p", "figcaption", "footer"} & {tag for tag, _ in page.tags}
    assert "aria-label" not in page.all("div")[0]


def test_sections_that_cannot_be_shown():
    for forgotten_brackets in ("Text.", bare_table()):
        with pytest.raises(TypeError, match="must be a list"):
            Section("Heading", forgotten_brackets)


def test_a_figure_is_drawn_once(sections, monkeypatch):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k)))
    for _ in range(2):
        html_page("Title", sections)
    assert len(drawn) == 2
