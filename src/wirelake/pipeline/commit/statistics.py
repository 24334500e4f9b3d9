"""Take the minimum and maximum of columns from the footer of a written Parquet file, for the Delta log.

Readers skip files by them: a look-up of a session opens the files that may have it. The footer has them anyway, so they
cost nothing but reading a few values.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, json

from wirelake.limits import LAKE_STATISTICS_CHARS_MAX

_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class ColumnStatistics(Struct, frozen=True, array_like=True):
    """Hold the bounds of a column in one file, as Delta writes them: numbers, or text. None: all values are null."""

    nulls: int
    minimum: int | str | None = None
    maximum: int | str | None = None


def footer_statistics(metadata: Any, columns: Mapping[str, int]) -> dict[str, ColumnStatistics]:
    """Return the statistics of these columns, given with their indices; none at all, if those of one are not known.

    The footer has none of very long texts. Some readers (pyarrow datasets of deltalake) take a column without bounds
    among others with bounds for one without values; of a file without any statistics, they read all rows.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    found = {}
    for name, index in columns.items():
        parts = [group.column(index).statistics for group in groups]
        known = _column_statistics(parts) if all(part is not None and part.has_null_count for part in parts) else None
        if known is None:
            return {}
        found[name] = known
    return found


def _column_statistics(parts: list[Any]) -> ColumnStatistics | None:
    nulls = sum(part.null_count for part in parts)
    filled = [part for part in parts if part.num_values]  # those that are not null
    if not filled:
        return ColumnStatistics(nulls)
    if not all(part.has_min_max for part in filled):
        return None
    minimum, maximum = min(part.min for part in filled), max(part.max for part in filled)
    if isinstance(minimum, str):
        rounded = round_up(maximum)
        return None if rounded is None else ColumnStatistics(nulls, minimum[:LAKE_STATISTICS_CHARS_MAX], rounded)
    return ColumnStatistics(nulls, _value(minimum), _value(maximum))


def round_up(text: str) -> str | None:
    """Return a text that is not less than this one, and not too long; None if there is none."""
    if len(text) <= LAKE_STATISTICS_CHARS_MAX:
        return text
    start = text[:LAKE_STATISTICS_CHARS_MAX]
    for place in reversed(range(len(start))):
        code = ord(start[place]) + 1
        code = _SURROGATES.stop if code in _SURROGATES else code
        if code <= _MAX_CODE_POINT:
            return start[:place] + chr(code)
    return None


def _value(value: Any) -> int | str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else int(value)


def delta_statistics(rows: int, columns: dict[str, ColumnStatistics]) -> str:
    """Return statistics as Delta has them in an add action."""
    known = {name: found for name, found in columns.items() if found.minimum is not None and found.maximum is not None}
    stats: dict[str, Any] = {"numRecords": rows}
    if columns:
        stats["minValues"] = {name: found.minimum for name, found in known.items()}
        stats["maxValues"] = {name: found.maximum for name, found in known.items()}
        stats["nullCount"] = {name: found.nulls for name, found in columns.items()}
    return json.encode(stats).decode()
