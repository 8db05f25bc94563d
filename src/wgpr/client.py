"""A client of the service: a map behind a URL, which learns and answers like an estimator.

    from wgpr.client import Map

    with Map("http://127.0.0.1:8000/maps/lake") as lake:
        lake.create(["east", "north"], "depth")
        lake.partial_fit(X, y)
        mean, std = lake.predict(X_new, return_std=True)

It needs the extra `serve`: `pip install "wgpr[serve]"`.
"""

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any, Self
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wgpr.io.files import write_file

try:
    import httpx
except ImportError as error:
    raise ImportError('the client needs httpx; install it with pip install "wgpr[serve]"') from error

Array = NDArray[np.float64]

# Rows of a request: with 52 columns of 25 characters these are 13 MB, below the limits of the service.
_PART = 10_000
# Characters of a key that a user gives.
_LONGEST_KEY = 100
# Answers after which a request is sent again: it took too long, too many rows wait, or the service is about to stop.
_PASSING = {408, 429, 503}
# Seconds between two attempts, at first and at most; and between two looks at what is learned.
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_LOOK, _LONGEST_LOOK = 0.002, 0.2
# Seconds for which a request is repeated, and those if the service has never answered; and until a connection is there.
_PATIENCE, _FIRST_PATIENCE, _CONNECT = 300.0, 10.0, 10.0

_logger = logging.getLogger(__name__)


class MapServiceError(ValueError):
    """The service has refused a request, or does not answer.

    status : of HTTP, None without an answer; detail : what is wrong, and the remedy.
    line, column : of the first bad row, from 1 in what was given, and of its bad value; None if it is not about a row.
    """

    def __init__(
        self, detail: str, status: int | None = None, *, line: int | None = None, column: str | None = None
    ) -> None:
        super().__init__(detail)
        self.detail, self.status, self.line, self.column = detail, status, line, column
        self._retry_after = 0.0


class Map:
    """A map of a service.

    Each call of `partial_fit` has a key of its own. If the connection or the service fails, it is sent again with the
    same key, so that a row is never learned twice, and none is lost if the service is started again meanwhile.

    Parameters
    ----------
    url : of the map, such as `http://127.0.0.1:8000/maps/lake`.
    token : that the service asks for, if it does.
    timeout : seconds until an attempt is given up.
    patience : seconds for which `partial_fit` and `predict` try again while the service does not answer or is too busy.
        By default 300, and 10 if it has never answered: its address may be wrong.

    Attributes
    ----------
    offset : amount, std and n_rows (that the map had before the middle one of them) if rows were off by a constant at
        places that the map knew; None otherwise. It is what the service said of it last, when it took rows or was
        waited for.
    """

    def __init__(
        self, url: str, token: str | None = None, timeout: float = 70.0, *, patience: float | None = None
    ) -> None:
        self.url, self.patience = url.rstrip("/"), patience
        if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?/maps/[^/\s?#]+", self.url):
            raise ValueError(f"url must be that of a map, such as http://127.0.0.1:8000/maps/lake; got {url!r}")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise ValueError("token must have printable ASCII characters only")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(headers=headers, timeout=httpx.Timeout(timeout, connect=min(timeout, _CONNECT)))
        self.offset: dict[str, float] | None = None
        self._has_answered = False
        self._definition: dict[str, Any] | None = None
        self._n_accepted = self._n_learned = 0  # rows of the map up to the last that was sent, and that are learned

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hasten(self, seconds: float) -> None:
        """From now on give up an attempt after so many seconds, and try again for as long."""
        self.patience, self._client.timeout = seconds, httpx.Timeout(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    # The map

    def create(
        self,
        inputs: Sequence[str],
        target: str,
        *,
        weight: str | None = None,
        method: str = "wgpr",
        settings: Mapping[str, Any] | None = None,
        crs: str | None = None,
    ) -> Self:
        """Make the map. If it exists with the same columns and settings, nothing changes; with others it is an error.

        Parameters
        ----------
        inputs, target : names of the columns; weight : name of the weights, if rows have weights.
        method, settings : as `wgpr settings` lists them.
        crs : coordinate reference system of x and y, such as EPSG:4326; the service needs pyproj.
        """
        content = {"inputs": list(inputs), "target": target, "method": method, "settings": _plain(settings or {})}
        content |= {name: text for name, text in (("weight", weight), ("crs", crs)) if text is not None}
        self._definition = self._request("PUT", content=content).json()["definition"]
        return self

    def info(self) -> dict[str, Any]:
        """The summary of the map: its definition, rows seen, learned and saved, models, extent, scores, decisions."""
        summary: dict[str, Any] = self._request("GET").json()
        self._definition, self._n_learned = summary["definition"], summary["rows_learned"]
        return summary

    def learned_tables(self) -> list[str]:
        """What the map knows of the files and streams that it has learned, by which `wgpr stream` recognises them."""
        tables: list[str] = self._request("GET", "/learned").json()
        return tables

    def download(self, path: str | os.PathLike[str]) -> None:
        """Save the map as a file, which `wgpr.load` reads."""
        write_file(path, self._request("GET", "/file").content)

    # Rows

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        wait: bool = False,
        force: bool = False,
        stream: Sequence[str] = (),
        key: str = "",
    ) -> Self:
        """Learn more rows. They are on the disk of the service when this returns, and learned soon after.

        Many rows are sent in parts. A part is accepted as a whole or refused.

        Parameters
        ----------
        X : (n, d) inputs, y : (n,) targets. An array has the inputs in the order of the map, a frame has them by name.
        sample_weight : (n,) weights, only for a map with weights. By default ones.
        wait : return when the rows are learned.
        force : also learn values far outside of what the map knows.
        stream : fingerprints of the stream that ends with these rows, which `learned_tables` returns from now on.
        key : of this call, up to 100 characters. The same rows with the same key are not learned again, so that a call
            that was interrupted can be repeated. By default a new one.
        """
        if not (key.isascii() and key.isprintable() and len(key) <= _LONGEST_KEY and key == key.strip()):
            raise ValueError(
                f"key must have at most {_LONGEST_KEY} printable ASCII characters, and no space at its ends"
            )
        key = key or str(uuid4())
        columns = self._checked_rows(X, y, sample_weight)
        n_rows = len(columns[self._names["target"]])
        for first in range(0, n_rows, _PART):
            part = {name: values[first : first + _PART] for name, values in columns.items()}
            is_last = first + _PART >= n_rows
            try:
                noted = stream if is_last else ()
                self._send_part(part, f"{key}-{first}", wait=wait and is_last, force=force, stream=noted)
            except MapServiceError as error:
                if not first:
                    raise
                raise _after(first, error) from error
        if wait:
            self.wait_until_learned()
        return self

    def _send_part(
        self, part: Mapping[str, Array], key: str, *, wait: bool, force: bool, stream: Sequence[str]
    ) -> None:
        parameters = {"wait": "learned"} if wait else {}
        parameters |= {"force": "true"} if force else {}
        content = {name: values.tolist() for name, values in part.items()}
        headers = {"Idempotency-Key": key} | ({"Wgpr-Stream": " ".join(stream)} if stream else {})
        response = self._request("POST", "/rows", content, parameters, headers, is_patient=True)
        receipt = response.json()
        self._n_accepted, self.offset = receipt["sequence"], receipt.get("offset")
        if response.status_code == 200:
            self._n_learned = self._n_accepted

    def wait_until_learned(self, timeout: float = inf) -> None:
        """Return when all rows that were sent are learned, or after about so many seconds."""
        deadline = time.monotonic() + timeout
        for pause in _pauses(_LOOK, _LONGEST_LOOK):
            if self._n_learned >= self._n_accepted or time.monotonic() > deadline:
                return
            summary = self._request("GET", is_patient=True).json()
            self._n_learned, self.offset = summary["rows_learned"], (summary["forecasts"] or {}).get("offset")
            if summary["rows_seen"] < self._n_accepted:
                raise MapServiceError("the map was deleted meanwhile, or replaced by another one; send the rows again")
            if summary["failure"]:
                raise MapServiceError(f"the rows are safe, but the map does not learn: {summary['failure']}")
            if self._n_learned < self._n_accepted:
                time.sleep(pause)

    # Answers

    def predict(self, X: ArrayLike, return_std: bool = False, *, latent: bool = False) -> Array | tuple[Array, Array]:
        """The mean (n,) at `X` (n, d) and, with `return_std`, its standard deviation (n,).

        latent : uncertainty of the field itself; by default, of an observation of it, with its noise.
        """
        columns = self.answer(X, latent=latent)
        return (columns["mean"], columns["std"]) if return_std else columns["mean"]

    def answer(self, X: ArrayLike, *, level: float = 0.95, latent: bool = False) -> dict[str, NDArray[Any]]:
        """All that the service tells of places `X` (n, d): mean, std, lower, upper and model, (n,) each.

        level : probability of the interval from lower to upper.
        """
        inputs = self._checked_inputs(X)
        n_places = len(next(iter(inputs.values())))
        parameters = {"level": repr(float(level)), "latent": "true" if latent else "false"}
        parts = []
        for first in range(0, n_places, _PART):
            content = {name: values[first : first + _PART].tolist() for name, values in inputs.items()}
            parts.append(self._request("POST", "/predict", content, parameters, is_patient=True).json())
        return {name: np.concatenate([np.array(part[name]) for part in parts]) for name in parts[0]}

    # Columns

    @property
    def _names(self) -> dict[str, Any]:
        """Names of the columns, as the service has them."""
        if self._definition is None:
            self._definition = self._request("GET", is_patient=True).json()["definition"]
        return self._definition

    def _checked_inputs(self, X: Any) -> dict[str, Array]:
        """Inputs (n,) by name."""
        names: list[str] = self._names["inputs"]
        if hasattr(X, "columns"):
            if missing := [name for name in names if name not in list(X.columns)]:
                raise ValueError(f"X has no column {missing[0]!r}; the map has the inputs {', '.join(names)}")
            return {name: _checked(f"X, column {name!r}", X[name]) for name in names}
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(names):
            raise ValueError(f"X has shape {values.shape}; it must be (n, {len(names)}): {', '.join(names)}")
        return {name: _checked("X", column) for name, column in zip(names, values.T, strict=True)}

    def _checked_rows(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> dict[str, Array]:
        """Inputs, target and weights (n,) by name."""
        columns = self._checked_inputs(X)
        n_rows = len(next(iter(columns.values())))
        columns[self._names["target"]] = _checked("y", y, n_rows)
        if self._names["weight"] is not None:
            weights = np.ones(n_rows) if sample_weight is None else _checked("sample_weight", sample_weight, n_rows)
            columns[self._names["weight"]] = weights
        elif sample_weight is not None:
            raise ValueError("sample_weight is for a map with weights; leave it out, or create a map with weight=NAME")
        return columns

    # Requests

    def _request(
        self,
        method: str,
        path: str = "",
        content: Any = None,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_patient: bool = False,
    ) -> httpx.Response:
        """The answer of the service. Requests that may succeed later are repeated if `is_patient`."""
        body = None if content is None else json.dumps(content, allow_nan=False).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        options: dict[str, Any] = {"content": body, "params": parameters, "headers": {**kind, **(headers or {})}}
        failed_at: float | None = None
        for pause in _pauses(_PAUSE, _LONGEST_PAUSE):
            try:
                response = self._client.request(method, f"{self.url}{path}", **options)
                self._has_answered = True
                if response.is_success:
                    return response
                problem = _problem(response)
            except httpx.TransportError as error:
                reason = f"does not answer ({error or type(error).__name__})"
                problem = MapServiceError(f"{self.url} {reason}; check the address, and that wgpr serve runs there")
            now = time.monotonic()
            failed_at = now if failed_at is None else failed_at
            patience = 0.0 if not is_patient else self.patience
            if patience is None:
                patience = _PATIENCE if self._has_answered else _FIRST_PATIENCE
            deadline = failed_at + patience
            if problem.status not in {None, *_PASSING} or now >= deadline:
                raise problem
            if pause == _PAUSE:
                _logger.warning("%s; trying again for %.0f s", problem, patience)
            time.sleep(min(max(pause, problem._retry_after), deadline - now))
        raise AssertionError("pauses have no end")


def _pauses(first: float, longest: float) -> Iterator[float]:
    """Seconds between attempts: twice as many each time, up to the longest."""
    while True:
        yield first
        first = min(2.0 * first, longest)


def _problem(response: httpx.Response) -> MapServiceError:
    """What an answer says that is no success: problem details, or whatever stands between us and the service sends."""
    try:
        content = response.json()
        detail, line, column = content["detail"], content.get("line"), content.get("column")
        detail = re.sub(r"make it with PUT /maps/\S+$", "make it with Map.create(inputs, target)", detail)
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, line, column = f"{response.url} answers {response.status_code} {response.reason_phrase}", None, None
    problem = MapServiceError(detail, response.status_code, line=line, column=column)
    seconds = response.headers.get("Retry-After", "")
    problem._retry_after = float(seconds) if re.fullmatch(r"\d{1,6}", seconds) else 0.0
    return problem


def _after(first: int, error: MapServiceError) -> MapServiceError:
    """The error of a part before which the `first` rows were accepted."""
    line = None if error.line is None else first + error.line
    detail = error.detail if line is None else error.detail.replace(f"line {error.line}", f"line {line}", 1)
    detail += f" (the first {first:,} rows were accepted)"
    return MapServiceError(detail, error.status, line=line, column=error.column)


def _checked(name: str, values: Any, n_rows: int | None = None) -> Array:
    """A column (n,) of finite numbers."""
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or (n_rows is not None and len(column) != n_rows):
        expected = "(n,)" if n_rows is None else f"({n_rows},), a number for each row of X"
        raise ValueError(f"{name} has shape {column.shape}; it must be {expected}")
    if not len(column):
        raise ValueError(f"{name} has no rows; give at least one")
    if not np.isfinite(column).all():
        raise ValueError(f"{name} has a value that is not finite, in row {int(np.argmin(np.isfinite(column)))}")
    return column


def _plain(value: Any) -> Any:
    """Settings as values of JSON, which has no infinity."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return {"number": str(value)}
    return value
