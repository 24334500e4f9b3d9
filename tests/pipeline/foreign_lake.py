"""Write a small lake with the pipeline's own writer, and define queries that every reader of it understands."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from wirelake.lake.store import Store
from wirelake.lake.tables import TABLES, LakeTable
from wirelake.pipeline.commit.delta import DeltaWriter
from wirelake.pipeline.commit.files import write_rows
from wirelake.pipeline.gold.sketches import sketch_of

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAYS = 2
_MEASURED = (("voltage", 230.0, "V"), ("hertz", 49.0, "Hz"))
LATENCIES_MS = [float(value) for value in range(1, 101)]

Commits = list[list[dict[str, Any]]]  # the rows of each commit

# The queries of docs/tables.md, in SQL that all readers have. A table is called SCHEMA_NAME.
QUERIES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "readings of a device": (
        "SELECT name, value, unit FROM silver_readings WHERE serial = '1234' AND day = DATE '2030-01-02' ORDER BY name",
        [("hertz", 50.0, "Hz"), ("voltage", 231.0, "V")],
    ),
    "unacknowledged notifications": (
        (
            "SELECT identity, topic, count(*) AS pending, max(attempts) AS attempts FROM silver_open_deliveries "
            "WHERE state = 'pending' GROUP BY identity, topic ORDER BY identity"
        ),
        [("phone-1", "@news", 2, 3)],
    ),
    "services": (
        (
            "SELECT service, count(*) AS calls, sum(CASE WHEN status <> 'ok' THEN 1 ELSE 0 END) AS failed FROM "
            "(SELECT service, status FROM silver_calls UNION ALL SELECT service, status FROM silver_open_calls) AS c "
            "GROUP BY service ORDER BY service"
        ),
        [("adder", 3, 1), ("clock", 2, 0)],
    ),
    "undecoded frames": (
        (
            "SELECT protocol, reason, byte_offset, count(*) AS frames, count(DISTINCT session) AS sessions "
            "FROM silver_quarantine GROUP BY protocol, reason, byte_offset ORDER BY protocol"
        ),
        [("comet", "bad_length", 3, 2, 1)],
    ),
    "a session": (
        "SELECT seq, event, direction FROM bronze_frames WHERE session = 's-1' ORDER BY seq",
        [(10, "frame", "in"), (11, "frame", "out")],
    ),
    "by a statistic": ("SELECT seq FROM silver_messages WHERE seq > 10 AND topic = '@1' ORDER BY seq", [(11,)]),
}


def fill_lake(lake: Store) -> None:
    """Write every table, in several files and commits, with rows that QUERIES find and others."""
    commits = DeltaWriter(lake, "test")
    for table in TABLES.values():
        for number, rows in enumerate(_COMMITS.get(table.name) or _other_commits(table)):
            commits.commit(table.name, number, write_rows(table, _typed(table, rows), lake), [])


def _other_commits(table: LakeTable) -> Commits:
    return [[_row(0, 7)]] if table.is_open else [[_row(day, day)] for day in range(DAYS)]


def _minute(number: int, latencies_ms: list[float]) -> dict[str, Any]:
    minute = AT + timedelta(minutes=number)
    sketch = sketch_of(np.array(latencies_ms))
    return {"minute": minute, "service": "adder", "op": "op", "calls": 50, "latency_sketch": sketch, "day": AT.date()}


def _row(day: int, seq: int, **values: Any) -> dict[str, Any]:
    at = AT + timedelta(days=day)
    common = {"seq": seq, "received_at": at, "node": "n1", "protocol": "comet", "session": f"s-{day}"}
    common |= {"minute": at, "hour": at, "key": "k", "serial": "1234", "day": date(at.year, at.month, at.day)}
    return common | values


def _typed(table: LakeTable, rows: list[dict[str, Any]]) -> Any:
    known = [{name: value for name, value in row.items() if name in table.schema.names} for row in rows]
    return pa.Table.from_pylist(known, table.schema)


_COMMITS: dict[str, Commits] = {
    "bronze.frames": [
        [_row(day, 10 * day + n, event="frame", direction=way) for n, way in enumerate(("in", "out"))]
        for day in range(DAYS)
    ],
    "silver.messages": [[_row(day, 10 * day + n, topic=f"@{day}") for n in range(2)] for day in range(DAYS)],
    "silver.readings": [
        [_row(day, n, serial=serial, name=name, value=value + day, unit=unit) for name, value, unit in _MEASURED]
        for day in range(DAYS)
        for n, serial in enumerate(("1234", "5678"))
    ],
    "silver.quarantine": [[_row(1, n, reason="bad_length", byte_offset=3, text="too long") for n in range(2)]],
    "silver.calls": [
        [_row(0, 1, service="adder", status="ok"), _row(0, 2, service="adder", status="no such sum")],
        [_row(1, 3, service="clock", status="ok")],
    ],
    "silver.open_calls": [[_row(0, 8, service="adder", status="ok"), _row(1, 9, service="clock", status="ok")]],
    "silver.open_deliveries": [
        [_row(n, n, identity="phone-1", topic="@news", attempts=2 + n, state="pending") for n in range(2)]
    ],
    "gold.call_minute": [[_minute(0, LATENCIES_MS[:50]), _minute(1, LATENCIES_MS[50:])]],
}
