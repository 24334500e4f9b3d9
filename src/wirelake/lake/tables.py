"""Every table of the lake, in one place: its columns, and what its files are grouped by.

`at` is when the gateway saw it, UTC; `seq` is the position in the log, unique with `node`. `day` is the day of `at`:
it groups a table's files, so that a query about a day reads that day. Where a row may still change (an open session, an
unacked delivery), `settled` says whether it can: such rows lie in files of their own, which every batch replaces.
"""

from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

TIME: Final = pa.timestamp("us", "UTC")
TEXT: Final = pa.string()
INT: Final = pa.int64()
BYTES: Final = pa.binary()
REAL: Final = pa.float64()
FLAG: Final = pa.bool_()
DAY: Final = pa.date32()

_PLACE: Final = (("seq", INT), ("at", TIME), ("node", TEXT), ("protocol", TEXT))
_COUNTS: Final = (("p50_ms", REAL), ("p95_ms", REAL), ("p99_ms", REAL))


class Table(Struct, frozen=True):
    name: str  # "silver.messages"
    schema: Any  # pa.Schema
    grouped_by: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Below the data folder's lake/."""
        return self.name.replace(".", "/")

    @property
    def settles(self) -> bool:
        """Whether rows of it may still change."""
        return "settled" in self.grouped_by


def _table(name: str, *columns: tuple[str, Any], grouped_by: tuple[str, ...] = ()) -> Table:
    grouping = {"day": DAY, "settled": FLAG}
    extra = [(column, grouping[column]) for column in grouped_by if column in grouping]
    return Table(name, pa.schema([*columns, *extra]), grouped_by)


FRAMES: Final = _table(
    "bronze.frames",
    *_PLACE,
    ("event", TEXT),
    ("direction", TEXT),
    ("session", TEXT),
    ("identity", TEXT),
    ("peer", TEXT),
    ("frame", BYTES),
    ("note", TEXT),
    grouped_by=("day",),
)
MESSAGES: Final = _table(
    "silver.messages",
    *_PLACE,
    ("direction", TEXT),
    ("session", TEXT),
    ("identity", TEXT),
    ("kind", TEXT),
    ("name", TEXT),
    ("topic", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("correlation", TEXT),
    ("status", TEXT),  # "ok", or the failure's text; null where there is no such thing
    ("fields", TEXT),  # JSON
    ("payload", BYTES),
    ("more", INT),  # how many parts of the same answer still follow; null where it is no answer
    ("bytes", INT),  # of the frame
    ("decoder", TEXT),  # "comet/1"
    grouped_by=("protocol", "day"),
)
QUARANTINE: Final = _table(
    "silver.quarantine",
    *_PLACE,
    ("direction", TEXT),
    ("session", TEXT),
    ("identity", TEXT),
    ("reason", TEXT),  # the stable code of a ProtocolError
    ("text", TEXT),
    ("offset", INT),
    ("frame", BYTES),
    ("decoder", TEXT),
    grouped_by=("protocol", "day"),
)
DEVICE_COMMANDS: Final = _table(
    "silver.device_commands",
    *_PLACE,  # of the packet that settled it; of the first, while open
    ("serial", TEXT),
    ("device_type", INT),
    ("command_no", INT),
    ("direction", TEXT),
    ("answer", FLAG),
    ("packets", INT),
    ("repeats", INT),  # packets that came more than once
    ("first_at", TIME),
    ("done_at", TIME),
    ("state", TEXT),  # complete, expired, refused; open while packets are missing
    ("command_type", INT),
    ("error", INT),
    ("device_time", TIME),
    ("data", BYTES),
    ("fields", TEXT),  # JSON
    ("reason", TEXT),  # why refused
    ("decoder", TEXT),
    grouped_by=("settled", "day"),
)
READINGS: Final = _table(
    "silver.readings",
    *_PLACE,
    ("serial", TEXT),
    ("device_time", TIME),
    ("type", INT),
    ("value", REAL),
    ("decoder", TEXT),
    grouped_by=("day",),
)
RECORDS: Final = _table(
    "silver.records",
    *_PLACE,
    ("identity", TEXT),
    ("service", TEXT),
    ("key", TEXT),
    ("sdb", TEXT),
    ("time", INT),
    ("recorded_at", TIME),  # what `time` says, where that can be seconds or milliseconds since 1970; else `at`
    ("fields", TEXT),  # JSON
    ("decoder", TEXT),
    grouped_by=("day",),  # of `recorded_at`
)
NOTIFICATIONS: Final = _table(
    "silver.notifications",
    *_PLACE,
    ("id", TEXT),
    ("topic", TEXT),
    ("position", INT),
    ("type", INT),
    ("publisher", TEXT),
    ("content", BYTES),
    grouped_by=("day",),
)
DELIVERIES: Final = _table(
    "silver.deliveries",
    *_PLACE,  # of the first sending
    ("id", TEXT),
    ("topic", TEXT),
    ("position", INT),
    ("identity", TEXT),
    ("session", TEXT),  # the first it was sent on
    ("first_sent_at", TIME),
    ("acked_at", TIME),
    ("attempts", INT),
    ("state", TEXT),  # pending, acked, expired
    ("latency_ms", REAL),
    grouped_by=("settled", "day"),
)
CALLS: Final = _table(
    "silver.calls",
    *_PLACE,  # of the request
    ("session", TEXT),
    ("requester", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("correlation", TEXT),
    ("asked_at", TIME),
    ("answered_at", TIME),
    ("latency_ms", REAL),
    ("answers", INT),  # packets of the answer
    ("status", TEXT),  # ok, the failure's text, open, unanswered
    grouped_by=("settled", "day"),
)
SESSIONS: Final = _table(
    "silver.sessions",
    *_PLACE,  # of the opening
    ("session", TEXT),
    ("identity", TEXT),
    ("peer", TEXT),
    ("opened_at", TIME),
    ("closed_at", TIME),
    ("reason", TEXT),
    ("frames_in", INT),
    ("frames_out", INT),
    ("bytes_in", INT),
    ("bytes_out", INT),
    grouped_by=("settled", "day"),
)
TALLIES: Final = _table(
    "silver.tallies",  # what lies between two counters records of the log, as counted by both sides
    ("node", TEXT),
    ("from_seq", INT),
    ("until_seq", INT),
    ("hour", TIME),
    ("protocol", TEXT),
    ("counted", INT),  # frames in, by the gateway's word; null where it could not say: it was killed
    ("received", INT),  # frames in, in the log, with those that were quarantined at the door
    ("decoded", INT),
    ("quarantined", INT),
    ("counted_out", INT),
    ("sent", INT),
    grouped_by=("settled", "day"),
)
TRAFFIC_MINUTE: Final = _table(
    "gold.traffic_minute",
    ("minute", TIME),
    ("protocol", TEXT),
    ("name", TEXT),
    ("direction", TEXT),
    ("frames", INT),
    ("bytes", INT),
    ("errors", INT),
    grouped_by=("day",),
)
DEVICE_LATEST: Final = _table(
    "gold.device_latest",
    ("serial", TEXT),
    ("device_type", INT),
    ("at", TIME),
    ("device_time", TIME),
    ("status", TEXT),  # JSON of the newest status
    ("status_at", TIME),
    ("readings", TEXT),  # JSON: type → newest value
    ("readings_at", TIME),
)
DELIVERY_MINUTE: Final = _table(
    "gold.delivery_minute",
    ("minute", TIME),
    ("topic", TEXT),
    ("deliveries", INT),
    ("acked", INT),
    ("pending", INT),
    ("expired", INT),
    ("attempts", INT),
    *_COUNTS,
    grouped_by=("day",),
)
CALL_MINUTE: Final = _table(
    "gold.call_minute",
    ("minute", TIME),
    ("protocol", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("calls", INT),
    ("failed", INT),
    ("open", INT),
    *_COUNTS,
    grouped_by=("day",),
)
BARS_MINUTE: Final = _table(
    "gold.bars_minute",
    ("minute", TIME),
    ("key", TEXT),
    ("sdb", TEXT),
    ("open", REAL),
    ("high", REAL),
    ("low", REAL),
    ("close", REAL),
    ("count", INT),
    grouped_by=("day",),
)
LEDGER: Final = _table(
    "gold.ledger",
    ("hour", TIME),
    ("protocol", TEXT),
    ("counted", INT),  # by the gateway
    ("received", INT),
    ("uncounted", INT),  # received after the last counters, or before a crash that kept them from being written
    ("decoded", INT),
    ("quarantined", INT),
    ("waiting", INT),  # apostol packets of commands that are open
    ("commands", INT),
    ("commands_complete", INT),
    ("commands_expired", INT),
    ("commands_refused", INT),
    ("commands_open", INT),
    ("deliveries", INT),
    ("deliveries_acked", INT),
    ("deliveries_pending", INT),
    ("deliveries_expired", INT),
    ("balanced", FLAG),
    ("why", TEXT),  # which sum does not add up, and by how much
    grouped_by=("day",),
)

TABLES: Final = {
    table.name: table
    for table in (
        FRAMES,
        MESSAGES,
        QUARANTINE,
        DEVICE_COMMANDS,
        READINGS,
        RECORDS,
        NOTIFICATIONS,
        DELIVERIES,
        CALLS,
        SESSIONS,
        TALLIES,
        TRAFFIC_MINUTE,
        DEVICE_LATEST,
        DELIVERY_MINUTE,
        CALL_MINUTE,
        BARS_MINUTE,
        LEDGER,
    )
}
