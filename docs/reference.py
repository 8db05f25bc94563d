"""The reference in docs/cli.md and docs/api, made from the command line and the docstrings.

    python docs/reference.py            # names the pages that are out of date; exit code 1 if there are any
    python docs/reference.py --write    # brings them up to date

Generated is what stands between `<!-- commands -->`, or `<!-- api` with a line for each object and `-->`, and
`<!-- end -->`. All else on these pages is written by hand.
"""

import re
import sys
from pathlib import Path

import commands
import docstrings

DOCS = Path(__file__).parent
PAGES = [DOCS / "cli.md", *sorted((DOCS / "api").glob("*.md"))]
PART = re.compile(r"(<!-- (commands|api)\s(.*?)-->\n).*?(?=<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The page with its parts made anew."""

    def part(match: re.Match[str]) -> str:
        level = len(re.findall(r"^(#+) ", text[: match.start()], flags=re.MULTILINE)[-1]) + 1
        if match[2] == "commands":
            lines = list(commands.reference(level))
        else:
            lines = [
                line for name in match[3].split("\n") if name.strip() for line in docstrings.reference(name, level)
            ]
        return f"{match[1]}\n" + "\n".join(lines) + "\n"

    return PART.sub(part, text)


def stale() -> dict[Path, str]:
    """The pages that are out of date, and what they should be."""
    pages = {page: (page.read_text(), filled(page.read_text())) for page in PAGES}
    return {page: new for page, (old, new) in pages.items() if old != new}


def main() -> int:
    pages, is_writing = stale(), "--write" in sys.argv[1:]
    for page, text in pages.items():
        if is_writing:
            page.write_text(text)
        print(f"{page}: {'written' if is_writing else 'out of date; python docs/reference.py --write'}")
    return int(bool(pages) and not is_writing)


if __name__ == "__main__":
    sys.exit(main())
