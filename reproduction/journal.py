"""The results, a line of JSON each, in a file that only grows: an interrupted run goes on where it stopped."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from platform import python_version
from subprocess import DEVNULL, CalledProcessError, check_output
from typing import Any

from wgpr.io.atomic import write_whole

_LIBRARIES = ("wgpr", "numpy", "scipy", "scikit-learn")

Key = Mapping[str, str | int | float]


class JournalError(ValueError):
    """A file that is not a journal of the plan."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One result: of which study, of what in it, and what came out; commit : of the code that made it."""

    study: str
    key: dict[str, Any]
    result: dict[str, Any]
    commit: str

    def __getitem__(self, name: str) -> Any:
        """A part of the key, or of the result."""
        return self.key[name] if name in self.key else self.result[name]


class Journal:
    """All results so far.

    Parameters
    ----------
    path : of the file; it is begun if it is not there.
    plan : what is run, as JSON. Results of one plan are no results of another.

    Attributes
    ----------
    versions : of Python and the libraries, when the file was begun; commit : of this code.
    """

    def __init__(self, path: Path, plan: Mapping[str, Any]) -> None:
        self.path, self.commit = path, commit()
        self._entries: dict[str, Entry] = {}
        self.versions = versions()
        if path.exists() and path.stat().st_size:
            self._read(plan)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _line({"plan": dict(plan), "versions": self.versions}).encode())

    def __contains__(self, identity: tuple[str, Key]) -> bool:
        return _identity(*identity) in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def commits(self) -> list[str]:
        """Of the code that made the results, most results first."""
        counts: dict[str, int] = {}
        for entry in self:
            counts[entry.commit] = counts.get(entry.commit, 0) + 1
        return sorted(counts, key=lambda name: -counts[name])

    def add(self, study: str, key: Key, result: Mapping[str, Any]) -> None:
        """Write a result down. It is in the file when this returns."""
        entry = Entry(study, _plain(key), json.loads(_line(result)), self.commit)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line({"study": study, "key": entry.key, "result": entry.result, "commit": entry.commit}))
        self._entries[_identity(study, key)] = entry

    def of(self, study: str, **where: Any) -> list[Entry]:
        """The results of a study whose key has these values."""
        wanted = _plain(where).items()
        return [entry for entry in self if entry.study == study and wanted <= entry.key.items()]

    def _read(self, plan: Mapping[str, Any]) -> None:
        """All whole lines. What an interruption has left of the last one is cut off."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        header, *lines = whole.splitlines() or [b""]
        beginning = _parsed(header, self.path)
        if beginning.get("plan") != json.loads(_line(plan)):
            raise JournalError(
                f"{self.path} has results of another plan; give another folder, or --fresh to begin anew"
            )
        self.versions = beginning["versions"]
        for number, line in enumerate(lines, start=2):
            parts = _parsed(line, self.path, number)
            entry = Entry(parts["study"], parts["key"], parts["result"], parts["commit"])
            self._entries[_identity(entry.study, entry.key)] = entry
        if whole != content:
            write_whole(self.path, whole)


def versions() -> dict[str, str]:
    """Of Python and of the libraries that the numbers depend on."""
    return {"python": python_version(), **{library: version(library) for library in _LIBRARIES}}


def commit() -> str:
    """Of this code, if it is a checkout; with a plus sign if it has changed since. Else its version."""
    git = ["git", "-C", str(Path(__file__).parents[1])]  # of the whole package
    try:
        name = check_output([*git, "rev-parse", "--short=10", "HEAD"], stderr=DEVNULL, text=True).strip()
        is_changed = check_output([*git, "status", "--porcelain", "--", "."], stderr=DEVNULL, text=True).strip()
    except (CalledProcessError, OSError):
        return f"version {version('wgpr')}"
    return name + "+" if is_changed else name


def _identity(study: str, key: Key) -> str:
    return study + json.dumps(_plain(key), sort_keys=True)


def _parsed(line: bytes, path: Path, number: int = 1) -> dict[str, Any]:
    try:
        parts = json.loads(line)
    except ValueError as error:
        raise JournalError(f"line {number} of {path} is no JSON; {_remedy(number)}") from error
    if not isinstance(parts, dict) or not ({"study", "key", "result", "commit"} <= set(parts) or number == 1):
        raise JournalError(f"line {number} of {path} is no result; {_remedy(number)}")
    return parts


def _remedy(number: int) -> str:
    """The first line has the plan, and cannot be done without."""
    return "give --fresh to begin anew" if number == 1 else "remove it, or give --fresh to begin anew"


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(_plain(content), allow_nan=False, default=_number) + "\n"


def _plain(value: Any) -> Any:
    """JSON knows no infinity: it becomes a word."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value


def _number(value: Any) -> Any:
    """A NumPy scalar as a number of Python."""
    return _plain(value.item())
