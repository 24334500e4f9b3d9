"""Format log lines, times and counts for people and programs.

Log lines go to standard error, as text or as one JSON object each. Context (`session`, `id`, `topic` …) is passed with
`extra=` and becomes separate fields. Tokens and contents are never logged.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from wirelake.protocols.text import write_json

FORMATS: Final = ("console", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
_STANDARD_ATTRIBUTES: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def start_logging(form: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class JsonFormatter(logging.Formatter):
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


class ConsoleFormatter(logging.Formatter):
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
    given = {name: value for name, value in record.__dict__.items() if name not in _STANDARD_ATTRIBUTES}
    return {name: value if isinstance(value, str | int | float) else str(value) for name, value in given.items()}


def format_time(at_ms: int) -> str:
    """Return the time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(count: int, noun: str, plural: str = "", spec: str = "") -> str:
    """Return the count with its noun: 1 frame, 2 frames. `spec` formats the count: "," for 3,000 frames."""
    return f"{count:{spec}} {noun if count == 1 else plural or f'{noun}s'}"
