"""Format log lines of `wirelake serve` on standard error, as text or as one JSON object each.

Context (`session`, `id`, `topic` …) is passed with `extra=` and becomes separate fields. Tokens and contents are never
logged.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from wirelake.protocols.jsontext import write_json

FORMATS: Final = ("console", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def start_logging(form: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Console())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": _at(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "text": record.getMessage(),
        }
        line |= _fields(record)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return write_json(line).decode()


class Console(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = _at(record).strftime("%H:%M:%S.%f")[:-3]
        words = [at, record.levelname.lower().ljust(7), record.getMessage()]
        words += [f"{name}={value}" for name, value in _fields(record).items()]
        text = " ".join(words)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _at(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields(record: logging.LogRecord) -> dict[str, str | int | float]:
    """Return what was passed with `extra=`."""
    given = {name: value for name, value in record.__dict__.items() if name not in _OWN}
    return {name: value if isinstance(value, str | int | float) else str(value) for name, value in given.items()}
