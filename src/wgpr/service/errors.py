"""Errors of the service, as problem details (RFC 9457)."""

from http import HTTPStatus
from typing import Any


class ServiceError(Exception):
    """An answer that says what is wrong. The detail is one sentence with the remedy, and has no data of the map in it.

    status : of HTTP; headers : of the answer; more : further members, such as the line of a bad row.
    """

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.more = status, detail, headers or {}, more

    def content(self) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        return {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail, **self.more}


def too_busy(detail: str, seconds: float) -> ServiceError:
    return ServiceError(429, detail, headers={"Retry-After": str(max(1, round(seconds)))})
