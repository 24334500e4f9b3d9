"""Format times for people."""

from datetime import UTC, datetime


def shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
