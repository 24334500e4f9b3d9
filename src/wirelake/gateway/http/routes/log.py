"""Read records of the event log. It contains the frames of all identities."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from wirelake.gateway.http.bodies import EXAMPLE_FRAME, EXAMPLE_NAME
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.gateway.http.route import BoundRoute, Parameter, Route
from wirelake.limits import HTTP_LOG_FRAME_BYTES_MAX, HTTP_LOG_ROWS, HTTP_LOG_ROWS_MAX, HTTP_LOG_SEARCHED_MAX
from wirelake.log.segments.reader import LogReader
from wirelake.protocols.redaction import redact_stored
from wirelake.roles import LOG


class LogRow(Struct):
    """`hex` is the frame, truncated if it is very long; `bytes` is its full length."""

    seq: int
    at_ms: int
    protocol: str
    event: str
    direction: str
    session: str
    identity: str
    peer: str
    bytes: int
    hex: str
    note: str


class LogRows(Struct):
    records: list[LogRow]
    next_seq: int  # the number of the next record of the log


class LogRoutes:
    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder

    def routes(self) -> tuple[BoundRoute, ...]:
        return (LIST.bind(self.list_records), SHOW.bind(self.show))

    async def list_records(self, context: RequestContext, _: None) -> LogRows:
        reader = LogReader(self._log_folder)
        end = context.number("before", reader.next_seq)
        limit = context.number("limit", HTTP_LOG_ROWS)
        wanted = {name: context.query(name) for name in ("protocol", "event", "session") if context.query(name)}
        found = await asyncio.to_thread(lambda: list(_newest(reader, min(end, reader.next_seq), limit, wanted)))
        return LogRows([_record(row) for row in reversed(found)], reader.next_seq)

    async def show(self, context: RequestContext, _: None) -> LogRow:
        text = context.path("seq")
        reader = LogReader(self._log_folder)
        is_stored = text.isascii() and text.isdecimal() and reader.oldest_seq <= int(text[:19]) < reader.next_seq
        rows = await asyncio.to_thread(_rows, reader, int(text), int(text) + 1) if is_stored else []
        if not rows:
            held = f"it holds {reader.oldest_seq} to {reader.next_seq - 1}"
            raise ApiError(404, f"the log has no record {text[:32]}: {held}")
        return _record(rows[0])


def _rows(reader: LogReader, start: int, end: int) -> list[dict[str, Any]]:
    return [row for batch in reader.read(start, end) for row in batch.to_pylist()]


def _newest(reader: LogReader, end: int, limit: int, wanted: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield matching records from the end backwards, up to the limit on how many are searched."""
    oldest = max(reader.oldest_seq, end - HTTP_LOG_SEARCHED_MAX)
    step = limit if not wanted else max(limit, 4096)
    while end > oldest and limit > 0:
        start = max(oldest, end - step)
        for row in reversed(_rows(reader, start, end)):
            if all(row[name] == value for name, value in wanted.items()):
                yield row
                limit -= 1
                if not limit:
                    return
        end = start


def _record(row: dict[str, Any]) -> LogRow:
    frame = redact_stored(row["protocol"], row["direction"], row["frame"])
    return LogRow(
        seq=row["seq"],
        at_ms=int(row["at"].timestamp() * 1000),
        protocol=row["protocol"],
        event=row["event"],
        direction=row["direction"],
        session=row["session"],
        identity=row["identity"],
        peer=row["peer"],
        bytes=len(frame),
        hex=frame[:HTTP_LOG_FRAME_BYTES_MAX].hex(),
        note=row["note"],
    )


_EXAMPLE: Final = {
    "seq": 7,
    "at_ms": 1_700_000_000_000,
    "protocol": EXAMPLE_NAME,
    "event": "frame",
    "direction": "in",
    "session": "a1b2c3-4",
    "identity": "phone-1",
    "peer": "127.0.0.1:50000",
    "bytes": len(EXAMPLE_FRAME),
    "hex": EXAMPLE_FRAME.hex(),
    "note": "",
}

LIST: Final = Route(
    method="GET",
    path="/api/log",
    operation_id="log.list_records",
    summary="Get the latest records of the event log, in log order.",
    see=LOG,
    gives=LogRows,
    parameters=(
        Parameter("protocol", "Only records of this protocol."),
        Parameter("event", "Only records of this event: frame, open, publish …"),
        Parameter("session", "Only records of this session."),
        Parameter("before", "Only records before this number.", "integer", most=1 << 53),
        Parameter("limit", "Maximum number of records.", "integer", most=HTTP_LOG_ROWS_MAX),
    ),
    example_answer={"records": [_EXAMPLE], "next_seq": 8},
)

SHOW: Final = Route(
    method="GET",
    path="/api/log/{seq}",
    operation_id="log.one_record",
    summary="Get one record of the event log.",
    see=LOG,
    gives=LogRow,
    parameters=(Parameter("seq", "Number of the record.", "integer", least=0),),
    example_answer=_EXAMPLE,
)

ROUTES: Final = (LIST, SHOW)
