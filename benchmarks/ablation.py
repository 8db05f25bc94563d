"""What each part of the default contributes: the defaults on real streams, with one part left out at a time.

    python benchmarks/ablation.py --data FOLDER [--output ablation.jsonl] [--only "terrain;kin40k"] [--trials 2]
                                  [--write]

The streams are those of `streams.py`. A part is left out by replacing a function or a constant of the library while the
stream is learned and asked. With `--write` the table is put into docs/streams.md. Ten minutes on one core;
`--only toy --trials 1` takes half a minute.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console

import streams
from common import ROOT, Record, Results, put_measured, require_data
from wgpr.ensemble import answers, territories, territory
from wgpr.ensemble.territory import Surroundings

PAGE, BEGIN, END = ROOT / "docs/streams.md", "<!-- measured by benchmarks/ablation.py -->", "<!-- end of ablation -->"
NAMES = (
    "toy", "abalone", "pumadyn", "sarcos", "kin40k", "terrain", "tzibana", "tzibana, lines", "opinicon, lines",
)  # fmt: skip
COMPLETE = "nothing"

_surroundings, _neighbours, _thin = territories.Learning._surroundings, answers._neighbours, territories.thin


def _without_halo(learning: Any, number: int) -> Surroundings:
    return _surroundings(learning, number)._replace(halo=None)


def _without_pooling(learning: Any, number: int) -> Surroundings:
    around = _surroundings(learning, number)
    return around._replace(log_theta=around.log_theta[:0], spread=around.spread[:0])


def _without_neighbours(*arguments: Any) -> Any:
    near, fraction = _neighbours(*arguments)
    return near[:0], fraction


def _without_averages(*arguments: Any) -> Any:
    return _neighbours(*arguments)[0], answers._LEAST_FRACTION


def _without_thinning(*arguments: Any, at_any_loss: bool = False) -> Any:
    return _thin(*arguments, at_any_loss=True) if at_any_loss else None


def _without_regimes(*_: Any) -> None:
    return None


# What is replaced to leave out a part: where, which name, by what. Settings are replaced by their names.
PARTS: dict[str, tuple[Any, str, Any]] = {
    "calibration of standard deviations": ({}, "calibrated", False),
    "rational quadratic kernel (squared exponential instead)": ({}, "kernel", "se"),
    "other regimes": (territories, "find_regime", _without_regimes),
    "smooth ground left as it was": (territories, "rougher_part", _without_regimes),
    "down-weighting of outliers": (territory, "_GATE", np.inf),
    "thinning (full territories only divide)": (territories, "thin", _without_thinning),
    "halo in fits and forecasts": (territories.Learning, "_surroundings", _without_halo),
    "prior of hyperparameters from neighbours": (territories.Learning, "_surroundings", _without_pooling),
    "halo in answers": (answers, "_neighbours", _without_neighbours),
    "hyperparameters of answers averaged over neighbours": (answers, "_N_TERRITORIES", 0),
    "averages of answers near borders": (answers, "_neighbours", _without_averages),
}


@contextmanager
def without(part: str) -> Iterator[dict[str, Any]]:
    """Leave out a part during the block. Yields the settings that do so, if it is a setting."""
    with ExitStack() as stack:
        settings: dict[str, Any] = {}
        if part != COMPLETE:
            where, name, value = PARTS[part]
            if isinstance(where, dict):
                settings = {name: value}
            else:
                stack.enter_context(patch.object(where, name, value))
        yield settings


def table(records: list[Record]) -> str:
    """RMSE over that of the complete default, mean over the trials; coverage where it changes by a point or more."""
    names = [name for name in NAMES if any(record["name"] == name for record in records)]
    lines = [f"| without | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for part in (COMPLETE, *PARTS):
        cells = [_cell(records, name, part) for name in names]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(records: list[Record], name: str, part: str) -> str:
    def mean(of: str, key: str) -> float:
        return float(np.mean([r[key] for r in records if (r["name"], r["without"]) == (name, of)]))

    rmse, coverage = mean(part, "rmse"), mean(part, "coverage")
    if part == COMPLETE:
        return f"{rmse:.3g}, {coverage:.0%}"
    is_other = abs(coverage - mean(COMPLETE, "coverage")) >= 0.01
    return f"{rmse / mean(COMPLETE, 'rmse'):.2f}" + (f", {coverage:.0%}" if is_other else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the .npz files")
    parser.add_argument("--output", type=Path, help="file for the results, lines of JSON")
    parser.add_argument("--only", default=";".join(NAMES), help="names of streams, separated by semicolons")
    parser.add_argument("--trials", type=int, default=2, help="splits or seeds of each stream")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    arguments, console = parser.parse_args(), Console()
    names = [name.strip() for name in arguments.only.split(";")]
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"--only names {unknown[0]!r}; there are: {'; '.join(NAMES)}")
    require_data(parser, arguments.data, {name.partition(",")[0] for name in names} - {"toy", "terrain"})
    results = Results(arguments.output)
    for name in names:
        for trial in range(arguments.trials):
            data = streams.streams(arguments.data)[name][0](trial)
            for part in (COMPLETE, *PARTS):
                facts = {"name": name, "trial": trial, "without": part}
                if not results.matching(facts):
                    with without(part) as settings:
                        results.add(facts | streams.measured(data, trial, settings))
                    console.print(facts, {key: f"{results.records[-1][key]:.4g}" for key in ("rmse", "coverage")})
    text = table(results.records)
    console.print(text)
    if arguments.write:
        put_measured(PAGE, BEGIN, END, text)


if __name__ == "__main__":
    main()
