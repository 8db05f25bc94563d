"""Errors of the service, as problem details (RFC 9457)."""

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException


class ServiceError(HTTPException):
    """An answer that says what is wrong. The detail is one sentence with the remedy, and has no data of the map in it.

    status : of HTTP; headers : of the answer; more : further members, such as the line of a bad row.
    """

    def __init__(self, status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(status, detail, headers)
        self.more = more

    def content(self) -> dict[str, Any]:
        status = self.status_code
        title = HTTPStatus(status).phrase
        return {"type": "about:blank", "title": title, "status": status, "detail": self.detail, **self.more}


def too_busy(status: int, detail: str, seconds: float) -> ServiceError:
    """seconds : after which the client should ask again."""
    return ServiceError(status, detail, headers={"Retry-After": str(max(1, round(seconds)))})


class ProblemDetails(BaseModel):
    """What is wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    line: int | None = None
    column: str | None = None


# How OpenAPI describes all answers that are no success.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What is wrong, and the remedy.",
        "content": {"application/problem+json": {"schema": ProblemDetails.model_json_schema()}},
    }
}
