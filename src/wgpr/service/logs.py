"""The log: one line of JSON for each event, without data of the maps."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_logger = logging.getLogger("wgpr.service")


def log(event: str, **values: Any) -> None:
    """Write a line, such as `{"time": ..., "event": "snapshot", "map": "lake", "rows": 1000}`."""
    _logger.log(logging.WARNING if "error" in values else logging.INFO, event, extra={"values": values})


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values = getattr(record, "values", None)
        content = {"event": record.getMessage(), **values} if values is not None else {"event": record.name}
        if values is None:
            content["message"] = record.getMessage()
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        when = datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")
        return json.dumps({"time": when, "level": record.levelname.lower(), **content}, default=str)


def log_to_standard_error(level: str) -> None:
    """Send the log of the service from this level on, and errors of the server, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    for name, least in {"wgpr.service": level, "uvicorn": "WARNING", "asyncio": "WARNING"}.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
