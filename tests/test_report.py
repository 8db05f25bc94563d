"""The page stands alone, can be parsed, and has everything in it; the Markdown says the same."""

import base64
import re
from html.parser import HTMLParser

import pytest
from docutils.core import publish_doctree
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from matplotlib.figure import Figure
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.docutils_ import Parser
from myst_parser.parsers.mdit import create_md_parser

from wgpr.report import Picture, Section, Table, html_page, markdown_page, write_markdown, write_report

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


@pytest.fixture
def sections():
    table = Table(f"Caption {NASTY}", ("", "RMSE [m]"), [("ours", "1"), (NASTY, "-")], f"Note {NASTY}")
    return [
        Section("Numbers", [table, f"A paragraph. {NASTY}"]),
        Section("Pictures", [picture("first"), picture("second", is_wide=True)]),
    ]


def section_of(*content):
    return Section("Heading", content)


def bare_table(rows=(("a", "1"), ("b", "2"), ("c", "3")), **settings):
    return Table("", ("", "number"), rows, **settings)


@pytest.fixture
def report(tmp_path, sections):
    return write_report(tmp_path / "a" / "new folder", f"Title {NASTY}", sections, footer=NASTY)


@pytest.fixture
def page(report):
    return Page(report.page.read_text(encoding="utf-8"))


def test_a_folder_gets_a_page_and_its_pictures(report, tmp_path):
    assert report.page == tmp_path / "a" / "new folder" / "report.html"
    assert [file.name for file in report.pictures] == ["first.png", "second.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in report.pictures)


def test_a_page_may_be_named(tmp_path, sections):
    report = write_report(str(tmp_path / "mine.html"), "Title", sections)
    assert report.page == tmp_path / "mine.html"
    assert report.pictures[0] == tmp_path / "first.png"


def test_the_pictures_are_in_the_page(page, report):
    embedded = [base64.b64decode(image["src"].partition("base64,")[2]) for image in page.all("img")]
    assert embedded == [file.read_bytes() for file in report.pictures]


def test_nothing_is_loaded_from_elsewhere(page, report):
    text = re.sub(r"base64,[\w+/=]+", "", report.page.read_text(encoding="utf-8"))
    assert not re.search(r"http|//|@import|url\(", text)
    assert not page.all("script")
    assert not page.all("link")


def test_words_are_shown_as_they_are(page):
    text = "".join(page.words)
    assert f"Title {NASTY}" in text
    assert f"Note {NASTY}" in text
    assert f"A paragraph. {NASTY}" in text
    assert f"Caption of first. {NASTY}" in text
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


def test_the_same_report_is_the_same_file(tmp_path, sections, report):
    again = write_report(tmp_path / "b", f"Title {NASTY}", sections, footer=NASTY)
    assert again.page.read_bytes() == report.page.read_bytes()


# What stands where


@pytest.mark.parametrize("make_page", [html_page, markdown_page])
def test_content_stands_in_its_order(make_page):
    content = ["Alpha", bare_table([("Beta", "1")]), "Gamma", "Delta", picture("x"), "Epsilon"]
    text = make_page("Title", [Section("Heading", content)])
    places = [text.index(word) for word in ("Heading", "Alpha", "Beta", "Gamma", "Delta", "Caption of x", "Epsilon")]
    assert places == sorted(places)


def test_pictures_in_a_row_share_a_grid():
    page = Page(html_page("Title", [section_of(picture("a"), picture("b"), "Between.", picture("c"))]))
    assert [tag for tag, _ in page.tags if tag in ("div", "figure", "p")] == [
        "div", "figure", "figure", "p", "div", "figure",
    ]  # fmt: skip


def test_main_rows_and_wide_columns_are_marked():
    page = Page(html_page("Title", [section_of(bare_table(main_rows=(0, 2), wide_columns=(1,)))]))
    assert [row.get("class") for row in page.all("tr")] == [None, "main", None, "main"]
    assert [header.get("class") for header in page.all("th")] == [None, "prose", None, None, None]
    assert [cell.get("class") for cell in page.all("td")] == ["prose"] * 3


def test_what_is_empty_leaves_no_trace():
    page = Page(html_page("Title", [section_of(bare_table(), Picture("a", Figure(), "", ""))]))
    assert not {"caption", "p", "figcaption", "footer"} & {tag for tag, _ in page.tags}
    assert "aria-label" not in page.all("div")[0]
    assert "**" not in markdown_page("Title", [section_of(bare_table([("", "1")], main_rows=()))])


@pytest.mark.parametrize("make_page", [html_page, markdown_page])
def test_subsections(make_page):
    sections = [Section("Whole", ["Text."]), Section("Part", ["Text."], level=3)]
    text = make_page("Title", sections)
    assert re.search("<h2>Whole</h2>|^## Whole$", text, re.MULTILINE)
    assert re.search("<h3>Part</h3>|^### Part$", text, re.MULTILINE)
    with pytest.raises(ValueError, match="'Part', must have level 2"):
        make_page("Title", sections[1:])


def test_sections_that_cannot_be_shown():
    with pytest.raises(ValueError, match="level must be 2 or 3, not 1"):
        Section("Heading", ["Text."], level=1)
    for forgotten_brackets in ("Text.", bare_table()):
        with pytest.raises(TypeError, match="must be a list"):
            Section("Heading", forgotten_brackets)


@pytest.mark.parametrize("write", [write_report, write_markdown])
def test_pictures_need_names_of_their_own(tmp_path, write):
    with pytest.raises(ValueError, match="two pictures are named 'same'"):
        write(tmp_path, "Title", [section_of(picture("same")), section_of(picture("same"))])
    assert not list(tmp_path.iterdir())


# Markdown

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])
MYST_EXTENSIONS = ["colon_fence", "deflist", "dollarmath", "fieldlist", "strikethrough"]
MYST = create_md_parser(MdParserConfig(enable_extensions=set(MYST_EXTENSIONS)), RendererHTML)

PLAIN_WORDS = [
    "w_old and w_new", "2 * 3 < 7", "RMSE [m]", "-1.5 of 95 %", "R&D", "a (b)", "1.5 m", "x > y", "#", "C#",
]  # fmt: skip
TRAPS = [
    "# no heading", "- no list", "+ no list", "* no list", "1. no list", "12) no list", "1.", "> no quotation", "---",
    "+++", "***", "===", "```", "~~~", ":::{note}", "::: note", ": no definition", ":field: none", "% no comment",
    "(name)=", "[x]: /none", "[^1]: none", "[^1]", "[a](b)", "![a](b)", "[a][b]", "a] b", "[a", "<b>", "</b>",
    "<!-- x -->", "<https://a.b>", "<a@b.c>", "&lt;", "&#60;", "`code`", "{math}`x`", "*a*", "**a**", "_a_", "__a__",
    "~a~", "~~a~~", "a*b*c", "$x$ and $y$", "$$x$$", "a | b", "| a |", "\\", "a\\", "\\|", "\\*a\\*", "C:\\_new",
    "ends #", "ends ##", "{{x}}", "a\nb", "a\n\n# b", "a  \nb", "\ta", "31.0\u00a0m",
]  # fmt: skip
nasty_texts = st.one_of(
    st.text("ab1 \n\t#-+*_~`|<>[](){}!&;:=%$^.\\\"'", max_size=12),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
)


def in_one_line(text):
    return re.sub(r"\s+", " ", text, flags=re.ASCII).strip()


def texts_in(html, tag):
    """What is shown in each of these elements, which may hold nothing but bold and italic words."""
    found = re.findall(f"<{tag}(?: [^>]*)?>(.*?)</{tag}>", html, re.DOTALL)
    pages = [Page(text) for text in found]
    assert not {tag for page in pages for tag, _ in page.tags} - {"strong", "em"}
    return ["".join(page.words) for page in pages]


def assert_shown_as_they_are(texts):
    rows = [("", text, f"{text} and more") for text in texts]
    table = Table("", ("", "bold", "longer"), rows, main_rows=range(0, len(rows), 2))
    markdown = markdown_page("Title", [Section("Heading", [*texts, table])])
    for parser in (GITHUB, MYST):
        html = parser.render(markdown)
        assert texts_in(html, "p") == [in_one_line(text) for text in texts if in_one_line(text)]
        assert texts_in(html, "td") == [in_one_line(cell) for row in rows for cell in row]


@pytest.mark.parametrize("text", TRAPS + PLAIN_WORDS)
def test_markdown_shows_words_as_they_are(text):
    assert_shown_as_they_are([text])


@given(st.lists(nasty_texts, min_size=1, max_size=5))
def test_markdown_shows_any_words_as_they_are(texts):
    assert_shown_as_they_are(texts)


@given(nasty_texts.filter(in_one_line))
def test_titles_headings_captions_and_notes_are_shown_as_they_are(text):
    table = Table(text, (text,), [(text,)], note=text)
    markdown = markdown_page(text, [Section(text, [table])], footer=text)
    html = GITHUB.render(markdown)
    for tag, count in {"h1": 1, "h2": 1, "th": 1, "td": 1, "p": 3}.items():
        assert texts_in(html, tag) == [in_one_line(text)] * count


@given(nasty_texts)
def test_markdown_has_pictures_with_their_words(text):
    image = Picture("a name", Figure(), f"Caption {text}", text)
    (section,) = GITHUB.render(markdown_page("T", [section_of(image)], folder="figures")).partition("</h2>")[2:]
    page = Page(section)
    assert page.all("img") == [{"src": "figures/a%20name.png", "alt": in_one_line(text)}]
    assert texts_in(section, "em") == [in_one_line(f"Caption {text}")]


@pytest.mark.parametrize("text", ["w_old, 2 * 3 < 7: RMSE [m] > 1.5 (see #7)", "-1.5", "1. a", "R&D | x"])
def test_plain_words_need_few_backslashes(text):
    assert markdown_page("T", [section_of(text)]).count("\\") == (text in ("-1.5", "1. a"))


def test_markdown_of_a_table():
    rows = [("ours", "1 | 2", "why"), ("theirs", "", "so")]
    table = Table("Caption.", ("", "RMSE [m]", "reason"), rows, "Note.", main_rows=(0,), wide_columns=(2,))
    assert (
        markdown_page("Title", [Section("Heading", [table])], footer="Footer.")
        == r"""# Title

## Heading

**Caption.**

|  | RMSE [m] | reason |
| :-- | --: | :-- |
| **ours** | **1 \| 2** | why |
| theirs |  | so |

Note.

*Footer.*
"""
    )


def test_sphinx_has_nothing_to_complain_about(sections):
    parts = [*sections, Section("Part", [bare_table(()), *TRAPS, *PLAIN_WORDS], level=3), *sections]
    settings = {"halt_level": 2, "myst_enable_extensions": ["colon_fence", "deflist"], "myst_heading_anchors": 3}
    publish_doctree(markdown_page("Title", parts, footer="Footer."), parser=Parser(), settings_overrides=settings)


def test_markdown_and_its_pictures_are_written(tmp_path, sections):
    report = write_markdown(tmp_path / "new" / "mine.md", "Title", sections, footer="Footer.")
    assert report.page == tmp_path / "new" / "mine.md"
    assert report.page.read_text(encoding="utf-8") == markdown_page(
        "Title", sections, footer="Footer.", folder="figures"
    )
    assert report.pictures == tuple(tmp_path / "new" / "figures" / f"{name}.png" for name in ("first", "second"))
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in report.pictures)


def test_markdown_without_pictures_makes_no_folder(tmp_path):
    assert write_markdown(tmp_path, "Title", [section_of("Text.")]) == (tmp_path / "report.md", ())
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


def test_each_figure_is_drawn_once(tmp_path, sections, monkeypatch):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k)))
    html, markdown = write_report(tmp_path, "Title", sections), write_markdown(tmp_path, "Title", sections)
    assert len(drawn) == 2
    assert [a.read_bytes() for a in html.pictures] == [b.read_bytes() for b in markdown.pictures]
