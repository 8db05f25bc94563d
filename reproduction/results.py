"""The results of all fits, a line of JSON each, in a file that only grows: an interrupted run continues."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from math import isfinite
from os import truncate
from pathlib import Path
from platform import python_version
from subprocess import DEVNULL, CalledProcessError, check_output
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from reproduction.plan import Plan

_LIBRARIES = ("wgpr", "numpy", "scipy", "scikit-learn")  # that the numbers depend on
_OLD_NAMES = {"course": "dataset", "data": "dataset"}  # of keys in older files

Key = Mapping[str, str | int | float]


class ResultsError(ValueError):
    """The file does not hold results of the plan."""


class Result(NamedTuple):
    """What a fit of a study gave. key : tells it from others; commit : of the code that made it."""

    study: str
    key: dict[str, Any]
    values: dict[str, Any]
    commit: str


class Results:
    """All results so far.

    path : of the file, which is begun if it is not there. Results of one plan are no results of another.
    versions : of Python and the libraries, when the file was begun; commit : of this code.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path, self.plan, self.commit = path, plan, commit()
        self.versions = {"python": python_version(), **{library: version(library) for library in _LIBRARIES}}
        self._results: dict[str, Result] = {}
        self._frames: dict[str, pd.DataFrame] = {}
        if path.exists() and path.stat().st_size:
            self._read()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_line({"plan": asdict(plan), "versions": self.versions}), encoding="utf-8")

    def __contains__(self, identity: tuple[str, Key]) -> bool:
        return _identity(*identity) in self._results

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results.values())

    @property
    def commits(self) -> list[str]:
        """Of the code that made the results, most results first."""
        return [name for name, _ in Counter(result.commit for result in self).most_common()]

    def add(self, study: str, key: Key, values: Mapping[str, Any]) -> None:
        """Append a result. It is in the file when this returns."""
        line = _line({"study": study, "key": key, "result": values, "commit": self.commit})
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
        self._keep(json.loads(line))

    def of(self, study: str, **where: Any) -> pd.DataFrame:
        """The results of a study whose keys have these values, a row each.

        Parts of scores have columns such as `test.rmse`. Without any result there are no columns.
        """
        if study not in self._frames:
            rows = [{**dict(_flat(result.values)), **result.key} for result in self if result.study == study]
            self._frames[study] = pd.DataFrame(rows)
        frame = self._frames[study]
        is_wanted = np.full(len(frame), True)
        for name, value in where.items():
            is_wanted &= frame[name].to_numpy() == value if name in frame else False
        return frame[is_wanted]

    def _keep(self, parts: Mapping[str, Any]) -> None:
        key = {_OLD_NAMES.get(name, name): _restored(value) for name, value in parts["key"].items()}
        study = parts["study"]
        self._results[_identity(study, key)] = Result(study, key, _restored(parts["result"]), parts["commit"])
        self._frames.pop(study, None)

    def _read(self) -> None:
        """All whole lines. An interruption may have left a part of the last line, which is cut off."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        header, *lines = whole.splitlines() or [b""]
        beginning = _parsed(header, self.path)
        if beginning.get("plan") != json.loads(_line(asdict(self.plan))):
            raise ResultsError(f"{self.path} has results of another plan; give another folder, or --fresh")
        self.versions = beginning["versions"]
        for number, line in enumerate(lines, start=2):
            self._keep(_parsed(line, self.path, number))
        truncate(self.path, len(whole))


def _parsed(line: bytes, path: Path, number: int = 1) -> dict[str, Any]:
    """A line of the file. The first has the plan, and cannot be removed."""
    remedy = "give --fresh to start again" if number == 1 else "remove it, or give --fresh to start again"
    try:
        parts = json.loads(line)
    except ValueError as error:
        raise ResultsError(f"line {number} of {path} is no JSON; {remedy}") from error
    if not isinstance(parts, dict) or not ({"study", "key", "result", "commit"} <= set(parts) or number == 1):
        raise ResultsError(f"line {number} of {path} is no result; {remedy}")
    return parts


def commit() -> str:
    """Of this checkout, with a plus sign if code has changed since; outside of a checkout, the package's version."""
    root = Path(__file__).parents[1]
    git = ["git", "-C", str(root)]
    try:
        name = check_output([*git, "rev-parse", "--short=10", "HEAD"], stderr=DEVNULL, text=True).strip()
        code = [folder for folder in ("src", "reproduction") if (root / folder).exists()]
        changes = check_output([*git, "status", "--porcelain", "--", *code], stderr=DEVNULL, text=True).strip()
    except (CalledProcessError, OSError):
        return f"version {version('wgpr')}"
    return name + "+" if changes else name


def _identity(study: str, key: Key) -> str:
    return study + json.dumps(_plain(key), sort_keys=True)


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(_plain(content), allow_nan=False, default=lambda scalar: _plain(scalar.item())) + "\n"


def _plain(value: Any) -> Any:
    """JSON has no infinity: it is written as a word."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _restored(value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, dict):
        return {name: _restored(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_restored(part) for part in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Parts of parts with names such as `test.rmse`; settings stay together."""
    for name, value in values.items():
        if isinstance(value, dict) and name != "settings":
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


# Numbers as text


def spread(values: Any) -> str:
    """The mean to three digits and the standard deviation over trials to as many places; "-" without any number.

    >>> spread([0.5, 0.514]), spread([1200, 1269]), spread([2.0]), spread([])
    ('0.507 ± 0.010', '1,234 ± 49', '2.00', '-')
    """
    known = pd.Series(values, dtype=float).dropna()
    if known.empty:
        return "-"
    mean = known.mean()
    places = next((places for limit, places in ((100, 0), (10, 1), (1, 2)) if abs(mean) >= limit), 3)
    return f"{mean:,.{places}f}" + (f" ± {known.std():,.{places}f}" if len(known) > 1 else "")


def column(frame: pd.DataFrame, name: str) -> "pd.Series[float]":
    """The numbers of a column that are known; none if there is no such column."""
    return frame.get(name, pd.Series(dtype=float)).dropna().astype(float)
