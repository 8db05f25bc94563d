"""The report as Markdown: GitHub and Sphinx show its words as they are."""

import re

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
from test_html import Page, bare_table, example, picture, section_of

from reproduction.markdown import markdown_page, write_markdown
from reproduction.page import Picture, Section, Table, html_page

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
    table = Table("", ("", "bold", "longer"), rows, bold_rows=range(0, len(rows), 2))
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
    table = Table("Caption.", ("", "RMSE [m]", "reason"), rows, "Note.", bold_rows=(0,), text_columns=(2,))
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


def test_content_stands_in_its_order():
    content = ["Alpha", bare_table([("Beta", "1")]), "Gamma", "Delta", picture("x"), "Epsilon"]
    text = markdown_page("Title", [Section("Heading", content)])
    places = [text.index(word) for word in ("Heading", "Alpha", "Beta", "Gamma", "Delta", "Caption of x", "Epsilon")]
    assert places == sorted(places)


def test_what_is_empty_leaves_no_trace():
    assert "*" not in markdown_page("Title", [section_of(bare_table([("", "1")], bold_rows=()))])


def test_sphinx_has_nothing_to_complain_about():
    sections = example()
    parts = [*sections, Section("More", [bare_table(()), *TRAPS, *PLAIN_WORDS]), *sections]
    settings = {"halt_level": 2, "myst_enable_extensions": ["colon_fence", "deflist"], "myst_heading_anchors": 3}
    publish_doctree(markdown_page("Title", parts, footer="Footer."), parser=Parser(), settings_overrides=settings)


def test_the_page_and_its_pictures_are_written(tmp_path):
    sections = example()
    page = tmp_path / "new" / "mine.md"
    pictures = write_markdown(page, "Title", sections, footer="Footer.")
    assert page.read_text(encoding="utf-8") == markdown_page("Title", sections, footer="Footer.", folder="figures")
    assert pictures == tuple(tmp_path / "new" / "figures" / f"{name}.png" for name in ("first", "second"))
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in pictures)


def test_without_pictures_there_is_no_folder_of_them(tmp_path):
    assert write_markdown(tmp_path / "report.md", "Title", [section_of("Text.")]) == ()
    assert [file.name for file in tmp_path.iterdir()] == ["report.md"]


def test_pictures_need_names_of_their_own(tmp_path):
    with pytest.raises(ValueError, match="two pictures are named 'same'"):
        write_markdown(tmp_path / "report.md", "Title", [section_of(picture("same")), section_of(picture("same"))])
    assert not list(tmp_path.iterdir())


def test_each_figure_is_drawn_once_for_both_pages(tmp_path, monkeypatch):
    sections, drawn = example(), []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k)))
    html_page("Title", sections)
    files = write_markdown(tmp_path / "a.md", "Title", sections)
    assert len(drawn) == 2
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
