"""Define every table of the lake: its columns, and the columns that partition its files.

`received_at` is when the gateway saw it, in UTC; `seq` is the position in the log, unique with `node`. `day` is the day
of `received_at`: it partitions a table, so that a query about a day reads the files of that day only.

Rows that may still change (an open session, an unacked delivery) are in a table of their own, such as
`silver.open_sessions`, whose files batches replace. A row moves to `silver.sessions` when it is settled, so that the
settled tables only grow. No column has the name of an SQL keyword.
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

FORMER_NAMES: Final = {
    "received_at": "at",
    "byte_offset": "offset",
}  # in the previous version; queries still accept them
SETTLED: Final = "settled"  # a column of queries over settled and open rows together
STATISTICS: Final = (
    "seq",
    "received_at",
    "session",
    "topic",
    "service",
    "serial",
)  # their minimum and maximum is known

_PLACE: Final = (("seq", INT), ("received_at", TIME), ("node", TEXT), ("protocol", TEXT))
_COUNTS: Final = (("p50_ms", REAL), ("p95_ms", REAL), ("p99_ms", REAL))


class LakeTable(Struct, frozen=True):
    name: str  # "silver.messages"
    schema: Any  # pa.Schema
    partition_by: tuple[str, ...] = ()
    has_open_rows: bool = False  # rows that may still change are in `open_table`
    is_open: bool = False  # its rows may still change: batches replace its files

    @property
    def folder(self) -> str:
        """Return the table's folder, relative to the data folder's lake/."""
        return self.name.replace(".", "/")

    @property
    def open_table(self) -> "LakeTable":
        """Return the table of the rows that may still change. Its files are replaced, so partitions would not help."""
        schema, _, name = self.name.partition(".")
        return LakeTable(f"{schema}.open_{name}", self.schema, is_open=True)

    @property
    def is_replaced(self) -> bool:
        """Return whether files of the table are replaced all the time; batches only add files to the others."""
        return self.is_open or self.name.startswith("gold.")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the columns whose minimum and maximum in each file are part of the Delta log."""
        return tuple(name for name in STATISTICS if name in self.schema.names and name not in self.partition_by)


def _table(
    name: str, *columns: tuple[str, Any], partition_by: tuple[str, ...] = (), has_open_rows: bool = False
) -> LakeTable:
    extra = [("day", DAY)] if "day" in partition_by else []
    return LakeTable(name, pa.schema([*columns, *extra]), partition_by, has_open_rows)


FRAMES: Final = _table(
    "bronze.frames",  # a record of the event log: a frame as it was on the wire, or another event
    *_PLACE,
    ("event", TEXT),  # frame, open, login, refuse, close, quarantine, fault, publish, deliver, ack, expire, counters …
    ("direction", TEXT),  # in, out; empty if the event is no frame
    ("session", TEXT),  # of the connection, or the device
    ("identity", TEXT),  # who had logged in
    ("peer", TEXT),  # HOST:PORT
    ("frame", BYTES),  # the bytes on the wire (of an encrypted protocol: decrypted), without the secrets of logins
    ("note", TEXT),  # JSON: details of the event
    partition_by=("day",),
)
MESSAGES: Final = _table(
    "silver.messages",  # a decoded frame
    *_PLACE,
    ("direction", TEXT),
    ("session", TEXT),
    ("identity", TEXT),
    ("kind", TEXT),  # request, response, notification, telemetry, event, control
    ("name", TEXT),  # what the protocol calls it
    ("topic", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("correlation", TEXT),  # what pairs a response with its request, within a session
    ("status", TEXT),  # "ok", or the text of the failure; null if it is no response
    ("fields", TEXT),  # JSON
    ("payload", BYTES),  # bytes that are not fields
    ("more", INT),  # how many parts of the same response follow; null if it is no response
    ("bytes", INT),  # of the frame
    ("decoder", TEXT),  # protocol and version of the decoder: "NAME/1"
    partition_by=("protocol", "day"),
)
QUARANTINE: Final = _table(
    "silver.quarantine",  # bytes that could not be decoded
    *_PLACE,
    ("direction", TEXT),
    ("session", TEXT),
    ("identity", TEXT),
    ("reason", TEXT),  # the stable code of a ProtocolError
    ("text", TEXT),  # the same as text
    ("byte_offset", INT),  # of the bad byte
    ("frame", BYTES),
    ("decoder", TEXT),  # which decoder refused it
    partition_by=("protocol", "day"),
)
DEVICE_COMMANDS: Final = _table(
    "silver.device_commands",  # a command of a device or to it, assembled from its packets
    *_PLACE,  # of the packet that completed it; of the first, while open
    ("serial", TEXT),  # of a broadcast, the device that it came from or went to
    ("device_type", INT),  # 255 for a broadcast
    ("command_no", INT),
    ("direction", TEXT),
    ("answer", FLAG),  # whether it responds to a command of the other side
    ("packets", INT),
    ("repeats", INT),  # packets that arrived more than once
    ("first_at", TIME),
    ("done_at", TIME),
    ("state", TEXT),  # complete, expired, refused; open while packets are missing
    ("command_type", INT),
    ("error", INT),  # the device's error number
    ("device_time", TIME),  # by the device's own clock
    ("data", BYTES),
    ("fields", TEXT),  # JSON
    ("reason", TEXT),  # why refused
    ("decoder", TEXT),
    partition_by=("day",),
    has_open_rows=True,
)
READINGS: Final = _table(
    "silver.readings",  # one value of one reading of a device: of any client that reports
    *_PLACE,
    ("serial", TEXT),  # the device: whom the message names as its source, else who had logged in
    ("device_time", TIME),  # by the device's own clock; null if it reports none
    ("type", INT),  # which reading, in the device's numbers; null in protocols without such numbers
    ("value", REAL),
    ("decoder", TEXT),
    ("name", TEXT),  # what was measured; null in rows of earlier versions
    ("unit", TEXT),  # empty if there is none, or it is not known
    partition_by=("day",),
)
RECORDS: Final = _table(
    "silver.records",  # a record that a request wrote into a table of a service
    *_PLACE,
    ("identity", TEXT),
    ("service", TEXT),
    ("key", TEXT),
    ("sdb", TEXT),  # the table within the data set
    ("time", INT),  # as the client gave it
    ("recorded_at", TIME),  # `time`, if it can be seconds or milliseconds since 1970; else `received_at`
    ("fields", TEXT),  # JSON
    ("decoder", TEXT),
    partition_by=("day",),  # of `recorded_at`
)
NOTIFICATIONS: Final = _table(
    "silver.notifications",  # a notification of a durable topic
    *_PLACE,
    ("id", TEXT),
    ("topic", TEXT),
    ("position", INT),  # in its topic
    ("type", INT),
    ("publisher", TEXT),  # the identity that published it
    ("content", BYTES),
    partition_by=("day",),
)
DELIVERIES: Final = _table(
    "silver.deliveries",  # one notification for one identity
    *_PLACE,  # of the first send
    ("id", TEXT),
    ("topic", TEXT),
    ("position", INT),
    ("identity", TEXT),
    ("session", TEXT),  # the first session it was sent to
    ("first_sent_at", TIME),
    ("acked_at", TIME),
    ("attempts", INT),  # sends
    ("state", TEXT),  # pending, acked, expired
    ("latency_ms", REAL),  # from the first send to the ack
    partition_by=("day",),
    has_open_rows=True,
)
CALLS: Final = _table(
    "silver.calls",  # a request to a service and its response
    *_PLACE,  # of the request
    ("session", TEXT),
    ("requester", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("correlation", TEXT),
    ("asked_at", TIME),
    ("answered_at", TIME),
    ("latency_ms", REAL),
    ("answers", INT),  # parts of the response
    ("status", TEXT),  # ok, the failure's text, open, unanswered
    partition_by=("day",),
    has_open_rows=True,
)
SESSIONS: Final = _table(
    "silver.sessions",  # one connection
    *_PLACE,  # of the open
    ("session", TEXT),
    ("identity", TEXT),
    ("peer", TEXT),
    ("opened_at", TIME),
    ("closed_at", TIME),
    ("reason", TEXT),  # why it ended; null while it is open
    ("frames_in", INT),
    ("frames_out", INT),
    ("bytes_in", INT),
    ("bytes_out", INT),
    partition_by=("day",),
    has_open_rows=True,
)
AUDIT: Final = _table(
    "silver.audit",  # something that somebody did, or was refused
    *_PLACE,
    ("action", TEXT),  # login, logout, connect, disconnect, sql, command, identity.add …; of a refusal: publish, see …
    ("outcome", TEXT),  # ok, refused, failed
    ("identity", TEXT),  # who had logged in; empty if nobody had
    ("peer", TEXT),  # HOST:PORT
    ("session", TEXT),  # of the connection, the device, or the HTTP request; empty if the gateway itself did it
    ("target", TEXT),  # of the action; of a failed login, the name that was claimed
    ("detail", TEXT),  # JSON: more about it, such as the reason; empty if there is nothing
    partition_by=("day",),
)
TALLIES: Final = _table(
    "silver.tallies",  # an interval between two counters records of the log, as counted by both sides
    ("node", TEXT),
    ("from_seq", INT),
    ("until_seq", INT),
    ("hour", TIME),
    ("protocol", TEXT),
    ("counted", INT),  # frames in, as the gateway counted them; null if it was killed before it could
    ("received", INT),  # frames in, in the log, with those that the gateway quarantined
    ("decoded", INT),
    ("quarantined", INT),
    ("counted_out", INT),
    ("sent", INT),
    ("missing", INT),  # records of this interval that no task read; null if there are none
    partition_by=("day",),
    has_open_rows=True,
)
BATCHES: Final = _table(
    "silver.batches",  # an hour of one protocol in one batch of the pipeline, or what the batch dropped
    ("batch", INT),
    ("hour", TIME),
    ("protocol", TEXT),  # empty for records without one
    ("from_seq", INT),  # of the batch
    ("until_seq", INT),
    ("records", INT),  # that its tasks read and the driver committed; null in the hour in which counting began
    ("received", INT),  # of these, frames in
    ("sent", INT),  # of these, frames out
    ("what", TEXT),  # what was dropped: records_lost, records_removed, calls_given_up, acks_forgotten …; null otherwise
    ("dropped", INT),  # how many
    partition_by=("day",),
)
TRAFFIC_MINUTE: Final = _table(
    "gold.traffic_minute",  # a minute of one protocol's frames of one name in one direction
    ("minute", TIME),
    ("protocol", TEXT),
    ("name", TEXT),
    ("direction", TEXT),
    ("frames", INT),
    ("bytes", INT),
    ("errors", INT),
    partition_by=("day",),
)
DEVICE_LATEST: Final = _table(
    "gold.device_latest",  # the latest values of a device
    ("serial", TEXT),
    ("device_type", INT),
    ("received_at", TIME),
    ("device_time", TIME),
    ("status", TEXT),  # JSON of the newest status
    ("status_at", TIME),
    ("readings", TEXT),  # JSON: type, or name if it has none → newest value
    ("readings_at", TIME),
    ("protocol", TEXT),  # of the last report
    ("newest", TEXT),  # JSON: name → value, unit, at_us (microseconds since 1970) of the newest reading
)
DELIVERY_MINUTE: Final = _table(
    "gold.delivery_minute",  # a minute of one topic's deliveries, by the first send
    ("minute", TIME),
    ("topic", TEXT),
    ("deliveries", INT),
    ("acked", INT),
    ("pending", INT),
    ("expired", INT),
    ("attempts", INT),  # sends
    *_COUNTS,
    ("expired_open", INT),  # of `expired`: those that a late ack may still correct
    ("attempts_open", INT),  # of `attempts`: those of deliveries that may still change
    ("latency_sketch", BYTES),  # of the latencies: a KLL sketch of doubles, which can be merged
    partition_by=("day",),
)
CALL_MINUTE: Final = _table(
    "gold.call_minute",  # a minute of one operation's calls, by the request
    ("minute", TIME),
    ("protocol", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("calls", INT),
    ("failed", INT),
    ("open", INT),  # without a response yet
    *_COUNTS,
    ("latency_sketch", BYTES),  # of the latencies: a KLL sketch of doubles, which can be merged
    partition_by=("day",),
)
BARS_MINUTE: Final = _table(
    "gold.bars_minute",  # a minute of one key's prices, from records with a `newp`
    ("minute", TIME),
    ("key", TEXT),
    ("sdb", TEXT),
    ("open", REAL),
    ("high", REAL),
    ("low", REAL),
    ("close", REAL),
    ("count", INT),  # of prices
    ("open_time", INT),  # `time` and `seq` of the first and of the last price
    ("open_seq", INT),
    ("close_time", INT),
    ("close_seq", INT),
    partition_by=("day",),
)
COUNTS_HOUR: Final = _table(
    "gold.counts_hour",  # an hour of one protocol: what the batches so far did, from which the ledger is computed
    ("hour", TIME),
    ("protocol", TEXT),
    ("records", INT),  # rows of bronze.frames
    ("received", INT),  # of these, frames in, with those that the gateway quarantined
    ("messages", INT),  # rows of silver.messages
    ("messages_in", INT),
    ("quarantine", INT),  # rows of silver.quarantine
    ("quarantined", INT),  # of these, frames in
    ("command_rows", INT),  # settled rows of silver.device_commands, by the hour of the last packet
    ("commands", INT),  # the same by the hour of the first packet
    ("commands_complete", INT),
    ("commands_expired", INT),
    ("commands_refused", INT),
    ("commands_open", INT),
    ("waiting", INT),  # packets in of open commands
    ("delivery_rows", INT),  # settled rows of silver.deliveries
    ("deliveries", INT),
    ("deliveries_acked", INT),
    ("deliveries_pending", INT),
    ("deliveries_expired", INT),
    ("tally_rows", INT),  # settled rows of silver.tallies
    ("counted", INT),
    ("uncounted", INT),
    ("scanned", INT),
    ("missing", INT),
    ("batch_rows", INT),  # rows of silver.batches
    ("committed", INT),
    ("records_committed", INT),
    ("batches", INT),  # batches that had records of this hour
    ("batches_uncounted", INT),  # of these, batches before the driver counted them
    ("dropped_by", TEXT),  # JSON: what was lost, removed or dropped → how many
    partition_by=("day",),
)
LEDGER: Final = _table(
    "gold.ledger",  # an hour of one protocol: what was received, and what became of it
    ("hour", TIME),
    ("protocol", TEXT),
    ("counted", INT),  # by the gateway
    ("received", INT),
    ("uncounted", INT),  # received after the last counters, or before a crash that prevented them
    ("decoded", INT),
    ("quarantined", INT),
    ("waiting", INT),  # packets of open commands
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
    ("why", TEXT),  # which sums differ, and by how much
    ("scanned", INT),  # frames in that the pipeline's tasks read from the log
    ("committed", INT),  # frames in that its driver committed; null before it counted
    ("records", INT),  # of any kind, in bronze.frames
    ("records_committed", INT),  # of any kind, as the driver counted them; null before it did
    ("missing", INT),  # records that no task read
    ("lost", INT),  # records that were damaged in the log
    ("removed", INT),  # records that retention removed before they were read
    ("dropped", INT),  # what a limit made the pipeline forget or give up
    ("dropped_by", TEXT),  # the same by name: "acks_forgotten 3, calls_given_up 1"
    ("files_missing", INT),  # of the tables it is computed from, on this day
    partition_by=("day",),
)

_SETTLED: Final = (
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
    AUDIT,
    TALLIES,
    BATCHES,
    TRAFFIC_MINUTE,
    DEVICE_LATEST,
    DELIVERY_MINUTE,
    CALL_MINUTE,
    BARS_MINUTE,
    COUNTS_HOUR,
    LEDGER,
)
TABLES: Final = {
    table.name: table
    for settled in _SETTLED
    for table in ((settled, settled.open_table) if settled.has_open_rows else (settled,))
}
