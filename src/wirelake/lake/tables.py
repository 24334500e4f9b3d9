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
    "bronze.frames",  # a record of the event log: a frame as it was on the wire, or something that happened
    *_PLACE,
    ("event", TEXT),  # frame, open, login, refuse, close, quarantine, fault, publish, deliver, ack, expire, counters …
    ("direction", TEXT),  # in, out; empty where nothing travelled
    ("session", TEXT),  # of the connection, or the device
    ("identity", TEXT),  # who had logged in
    ("peer", TEXT),  # HOST:PORT
    ("frame", BYTES),  # the bytes of the wire (magline: data opened, sids zero)
    ("note", TEXT),  # JSON: what else there is to say
    grouped_by=("day",),
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
    ("correlation", TEXT),  # what the answer is found by, within a session
    ("status", TEXT),  # "ok", or the failure's text; null where there is no such thing
    ("fields", TEXT),  # JSON
    ("payload", BYTES),  # bytes that are no fields
    ("more", INT),  # how many parts of the same answer still follow; null where it is no answer
    ("bytes", INT),  # of the frame
    ("decoder", TEXT),  # "comet/1"
    grouped_by=("protocol", "day"),
)
QUARANTINE: Final = _table(
    "silver.quarantine",  # bytes that could not be decoded
    *_PLACE,
    ("direction", TEXT),
    ("session", TEXT),
    ("identity", TEXT),
    ("reason", TEXT),  # the stable code of a ProtocolError
    ("text", TEXT),  # the same in words
    ("offset", INT),  # of the bad byte
    ("frame", BYTES),
    ("decoder", TEXT),  # who refused it
    grouped_by=("protocol", "day"),
)
DEVICE_COMMANDS: Final = _table(
    "silver.device_commands",  # an apostol command, put together from its packets
    *_PLACE,  # of the packet that settled it; of the first, while open
    ("serial", TEXT),  # of a broadcast, the device that it came from or went to
    ("device_type", INT),  # 255 for a broadcast
    ("command_no", INT),
    ("direction", TEXT),
    ("answer", FLAG),  # whether it answers one of the other side
    ("packets", INT),
    ("repeats", INT),  # packets that came more than once
    ("first_at", TIME),
    ("done_at", TIME),
    ("state", TEXT),  # complete, expired, refused; open while packets are missing
    ("command_type", INT),
    ("error", INT),  # the device's error number
    ("device_time", TIME),  # what the device's own clock said
    ("data", BYTES),
    ("fields", TEXT),  # JSON
    ("reason", TEXT),  # why refused
    ("decoder", TEXT),
    grouped_by=("settled", "day"),
)
READINGS: Final = _table(
    "silver.readings",  # one value of one reading of a device
    *_PLACE,
    ("serial", TEXT),
    ("device_time", TIME),
    ("type", INT),  # which reading, in the device's numbers
    ("value", REAL),
    ("decoder", TEXT),
    grouped_by=("day",),
)
RECORDS: Final = _table(
    "silver.records",  # one sisdb record
    *_PLACE,
    ("identity", TEXT),
    ("service", TEXT),
    ("key", TEXT),
    ("sdb", TEXT),  # the table within the data set
    ("time", INT),  # as it was given
    ("recorded_at", TIME),  # what `time` says, where that can be seconds or milliseconds since 1970; else `at`
    ("fields", TEXT),  # JSON
    ("decoder", TEXT),
    grouped_by=("day",),  # of `recorded_at`
)
NOTIFICATIONS: Final = _table(
    "silver.notifications",  # a notification of a durable topic
    *_PLACE,
    ("id", TEXT),
    ("topic", TEXT),
    ("position", INT),  # in its topic
    ("type", INT),
    ("publisher", TEXT),  # whose publish it was
    ("content", BYTES),
    grouped_by=("day",),
)
DELIVERIES: Final = _table(
    "silver.deliveries",  # one notification for one identity
    *_PLACE,  # of the first sending
    ("id", TEXT),
    ("topic", TEXT),
    ("position", INT),
    ("identity", TEXT),
    ("session", TEXT),  # the first it was sent on
    ("first_sent_at", TIME),
    ("acked_at", TIME),
    ("attempts", INT),  # sendings
    ("state", TEXT),  # pending, acked, expired
    ("latency_ms", REAL),  # from the first sending to the ack
    grouped_by=("settled", "day"),
)
CALLS: Final = _table(
    "silver.calls",  # a request to a service and its answer
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
    "silver.sessions",  # one connection
    *_PLACE,  # of the opening
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
    grouped_by=("settled", "day"),
)
TALLIES: Final = _table(
    "silver.tallies",  # a stretch between two counters records of the log, as counted by both sides
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
    ("missing", INT),  # records that the log numbered in this stretch and that no task read; null where there are none
    grouped_by=("settled", "day"),
)
BATCHES: Final = _table(
    "silver.batches",  # an hour of one protocol in one batch of the pipeline, or something that the batch dropped
    ("batch", INT),
    ("hour", TIME),
    ("protocol", TEXT),  # empty for records of none
    ("from_seq", INT),  # of the batch
    ("until_seq", INT),
    ("records", INT),  # that its tasks read and the driver committed; null in the hour in which it began to count
    ("received", INT),  # of these, frames in
    ("sent", INT),  # of these, frames out
    ("what", TEXT),  # was dropped: records_lost, records_removed, calls_given_up, acks_forgotten …; null otherwise
    ("dropped", INT),  # how many
    grouped_by=("day",),
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
    grouped_by=("day",),
)
DEVICE_LATEST: Final = _table(
    "gold.device_latest",  # a device as it was last heard
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
    "gold.delivery_minute",  # a minute of one topic's deliveries, by the first sending
    ("minute", TIME),
    ("topic", TEXT),
    ("deliveries", INT),
    ("acked", INT),
    ("pending", INT),
    ("expired", INT),
    ("attempts", INT),  # sendings
    *_COUNTS,
    grouped_by=("day",),
)
CALL_MINUTE: Final = _table(
    "gold.call_minute",  # a minute of one operation's calls, by the asking
    ("minute", TIME),
    ("protocol", TEXT),
    ("service", TEXT),
    ("op", TEXT),
    ("calls", INT),
    ("failed", INT),
    ("open", INT),  # without an answer yet
    *_COUNTS,
    grouped_by=("day",),
)
BARS_MINUTE: Final = _table(
    "gold.bars_minute",  # a minute of one key's prices, from sisdb records with a `newp`
    ("minute", TIME),
    ("key", TEXT),
    ("sdb", TEXT),
    ("open", REAL),
    ("high", REAL),
    ("low", REAL),
    ("close", REAL),
    ("count", INT),  # of prices
    grouped_by=("day",),
)
LEDGER: Final = _table(
    "gold.ledger",  # an hour of one protocol: what came in, and what became of it
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
    ("scanned", INT),  # frames in that the pipeline's tasks read from the log
    ("committed", INT),  # frames in that its driver committed; null before it kept an account
    ("records", INT),  # of any kind, in bronze.frames
    ("records_committed", INT),  # of any kind, by the driver's account; null before it kept one
    ("missing", INT),  # records that the log numbered and no task read
    ("lost", INT),  # records that were damaged in the log
    ("removed", INT),  # records that retention removed before they were read
    ("dropped", INT),  # what a limit made the pipeline forget or give up
    ("dropped_by", TEXT),  # the same by name: "acks_forgotten 3, calls_given_up 1"
    ("files_missing", INT),  # of the tables it is made of, on this day
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
        BATCHES,
        TRAFFIC_MINUTE,
        DEVICE_LATEST,
        DELIVERY_MINUTE,
        CALL_MINUTE,
        BARS_MINUTE,
        LEDGER,
    )
}
