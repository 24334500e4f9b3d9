"""Format numbers and times for people. The pages' JavaScript has the same functions in words.js."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final


def number(value: float | None) -> str:
    """Format as 1 234 567, with thin spaces."""
    return "–" if value is None else f"{value:,.0f}".replace(",", "\u202f")


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def time(ms: int | None) -> str:
    """Format in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if ms else "–"


def moment(us: int) -> str:
    """Format in UTC, to the millisecond."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] if us else "–"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "number": number,
    "size": size,
    "time": time,
    "moment": moment,
    "duration": duration,
}
