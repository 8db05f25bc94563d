"""The table of real streams in the README, from the pages that hold what was measured. Nothing is measured here.

    python benchmarks/readme.py

The figures of WGPR and of linear interpolation are those of docs/streams.md, which `streams.py --write` and
`surveys.py --write` write; both then write the README too. Those of the paper's method and of the exact Gaussian
process are of docs/results/report.md, which `python -m reproduction` writes. The sentences on other methods are made of
docs/scale.md (`compare.py`) and of docs/streams.md (`many_surveys.py`). A test says when the README differs.
"""

import re
from typing import NamedTuple

from common import ROOT, between, put_between

README, MARKERS = ROOT / "README.md", ("<!-- written by benchmarks/readme.py -->", "<!-- end of real streams -->")
STREAMS = ROOT / "docs/streams.md"
STREAM_MARKERS = "<!-- measured by benchmarks/streams.py -->", "<!-- end of streams -->"
SURVEY_MARKERS = "<!-- measured by benchmarks/surveys.py -->", "<!-- end of surveys -->"
MANY_MARKERS = "<!-- measured by benchmarks/many_surveys.py -->", "<!-- end of many surveys -->"
COMPARISON = ROOT / "docs/scale.md"
COMPARISON_MARKERS = "<!-- measured by benchmarks/compare.py -->", "<!-- end of compare -->"
REPORT, REPORT_MARKERS = ROOT / "docs/results/report.md", ("**RMSE on the rows held out", "**RMSE on single rows")

HEADER = "| | WGPR | in its 95 % interval | linear interpolation | the paper's method, tuned | exact GP, offline |"

Table = dict[str, dict[str, str]]  # cells by row and column


class Row(NamedTuple):
    """label : in the README; name : of the stream or survey; unit : of the errors; reported : name in the report.

    Without a name in the report, its way of holding out rows is another.
    """

    label: str
    name: str
    unit: str = ""
    reported: str = ""


ROWS = [
    Row("Lake Tzibana, whole survey lines held out", "tzibana, lines", " m", "Lake Tzibana"),
    Row("Lake Opinicon, whole stretches held out", "opinicon, lines", " m", "Lake Opinicon"),
    Row("the demo's terrain, between the flight lines", "terrain", " m"),
    Row("`magnetic_rio`, every eighth line held out", "magnetic_rio", " nT"),
    Row("`magnetic_britain`, a tenth of the segments held out", "magnetic_britain", " nT"),
    Row("SARCOS subset, torque 1 (random rows)", "sarcos"),
    Row("kin40k", "kin40k", reported="kin40k"),
    Row("Pumadyn-8nm", "pumadyn", reported="Pumadyn-8nm"),
    Row("Abalone", "abalone", reported="Abalone"),
]


class Measured(NamedTuple):
    """RMSE of WGPR and of linear interpolation ("" if it was not measured), coverage, rows and queries a second."""

    rmse: str
    interpolation: str
    coverage: str
    rows_per_second: str
    queries_per_second: str


def table_of(text: str) -> Table:
    """The first table in a text of Markdown, without bold type."""
    rows = [line.replace("**", "").split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    columns, _, *rows = [[cell.strip() for cell in row] for row in rows]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


def measured() -> dict[str, Measured]:
    """What docs/streams.md has of each stream and survey."""
    page = STREAMS.read_text()
    found = {}
    for title, cells in table_of(between(page, *STREAM_MARKERS)).items():
        name, _, _ = title.rpartition(" (")
        rmse, coverage = (cells[f"{column} (least to greatest)"].split()[0] for column in ("RMSE", "in 95 %"))
        compared = dict(each.rsplit(" ", 1) for each in filter(None, cells["for comparison"].split(", ")))
        speeds = cells["rows a second"], cells.get("queries a second", "")
        found[name] = Measured(_three_digits(rmse), compared.get("linear interpolation", ""), coverage, *speeds)
    facts = {what: cells["measured"].split("; ") for what, cells in table_of(between(page, *SURVEY_MARKERS)).items()}
    for what, (rmse, interpolation) in [(what, cells) for what, cells in facts.items() if "rows: RMSE" in what]:
        name = what.split(",")[0]
        coverage = facts[f"{name}: in the 95 % interval; models"][0]
        speeds = facts[f"{name}: rows learned a second; queries answered a second"]
        found[name] = Measured(rmse, interpolation, coverage, *speeds)
    return found


def _three_digits(number: str) -> str:
    return f"{float(number):#.3g}".rstrip(".")


def text() -> str:
    """The table, and a sentence on speed."""
    found, report = measured(), table_of(between(REPORT.read_text(), *REPORT_MARKERS))
    exact = next(name for name in report if name.startswith("exact GP"))
    lines = [HEADER, "|---|---:|---:|---:|---:|---:|"]
    rows = [row for row in ROWS if row.name in found]
    for label, name, unit, reported in rows:
        result = found[name]
        tuned, offline = (report[method][reported].split()[0] if reported else "" for method in ("WGPR", exact))
        online = [result.rmse, result.interpolation, tuned]
        best = min(filter(None, online), key=float)
        ours, linear, paper = (f"**{each}{unit}**" if each == best else f"{each}{unit}" * bool(each) for each in online)
        coverage = f"{float(result.coverage.rstrip('%')):.0f} %"
        lines.append(
            f"| {label} | {ours} | {coverage} | {linear} | {paper} | {f'{offline}{unit}' if offline else ''} |"
        )
    return "\n".join([*lines, "", *_speed([found[row.name] for row in rows]), *_others(), ""])


def _others() -> list[str]:
    """Where other methods have smaller errors on the same rows, and how often linear interpolation has."""
    tables = re.split(r"\n\n(?=\|)", between(COMPARISON.read_text(), *COMPARISON_MARKERS).strip())
    ahead = []
    for table in tables:
        data, n_rows = re.match(r"\| (\w+), ([\d,]+) rows", table).groups()
        better = re.search(r"Errors smaller than the default's: (.*?) of it\.", table)
        if better:
            names = [re.sub(r" ([\d.]+)$", r" (\1 of the error of WGPR)", each) for each in better[1].split(" of it; ")]
            ahead.append(f"{', '.join(names)} on {n_rows} rows of `{data}`")
    counts = [cells["ahead in RMSE"] for cells in table_of(between(STREAMS.read_text(), *MANY_MARKERS)).values()]
    n_ahead, n_all = (sum(int(count.split()[place]) for count in counts) for place in (0, 2))
    return [
        f"On {n_ahead} of {n_all} surveys of six kinds the RMSE of WGPR is below that of linear interpolation "
        "([table](docs/streams.md#many-surveys)). Other packages learned the same rows "
        f"([tables](docs/scale.md#against-others)). Ahead of WGPR are {'; '.join(ahead) or 'none'}."
    ]


def _speed(results: list[Measured]) -> list[str]:
    rows, queries = (
        sorted((each for each in speeds if each), key=lambda each: int(each.replace(",", "")))
        for speeds in ([each.rows_per_second for each in results], [each.queries_per_second for each in results])
    )
    return [
        f"The defaults learn {rows[0]} to {rows[-1]} of these rows in a second of processor time on a shared machine, "
        f"and answer {queries[0]} to {queries[-1]} queries."
    ]


def write() -> None:
    """Put the table into the README."""
    put_between(README, *MARKERS, text())


if __name__ == "__main__":
    write()
