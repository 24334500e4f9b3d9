"""Decode a batch of the log: the frames of each protocol together, the rows in the order of the log."""

from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from wirelake.errors import InputError
from wirelake.lake import tables
from wirelake.lake.tables import BYTES, DAY, TEXT
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.ingest import http
from wirelake.pipeline.ingest.readings import EARLY_READINGS, NO_READINGS, admitted_readings, early
from wirelake.pipeline.time_ranges import DAY_US
from wirelake.protocols import registry
from wirelake.protocols.columnar import (
    MESSAGE_COLUMNS,
    PACKET_COLUMNS,
    DecodedFrames,
    RefusedFrame,
    message_columns,
)
from wirelake.protocols.distinct_frames import decode_distinct
from wirelake.protocols.kernel_columns import column_decoder
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.reading_columns import readings_among, shifted

MESSAGES: Final = tables.MESSAGES.schema
QUARANTINE: Final = tables.QUARANTINE.schema
PACKETS: Final = pa.schema(
    [
        ("seq", tables.INT),
        ("at", tables.TIME),
        ("node", tables.TEXT),
        ("session", tables.TEXT),
        ("identity", tables.TEXT),
        *(PACKET_COLUMNS.field(name) for name in ("serial", "device_type")),
        ("direction", tables.TEXT),  # in: from the device; out: to it
        *(field for field in PACKET_COLUMNS if field.name not in ("serial", "device_type")),
    ]
)
_NO_PACKETS: Final = pa.RecordBatch.from_pylist([], PACKETS)
_BRONZE_NAMES: Final = {"at": "received_at"}  # of columns of the log
_FRAME: Final = "frame"
_QUARANTINE: Final = "quarantine"


class DecodedBatch(Struct, frozen=True):
    """Hold what a batch decodes to. Each record with event `frame` is in either `messages` or `quarantine`.

    Rows are in the order of the log (messages on demand only within their protocol). `payload` is never null; texts are
    null if there is nothing.
    """

    messages: Any  # pa.RecordBatch of MESSAGES
    quarantine: Any  # of QUARANTINE; also bytes that the gateway refused
    packets_by_protocol: dict[str, Any] = {}  # of PACKETS: parts of commands, to be reassembled
    readings: Any = NO_READINGS  # of READINGS
    early_readings: Any = NO_READINGS  # of EARLY_READINGS: from sessions that had not logged in yet

    def packets_of(self, protocol: str) -> Any:
        return self.packets_by_protocol.get(protocol, _NO_PACKETS)

    @property
    def packets(self) -> Any:
        """Return the packets of all protocols."""
        return _concat_packets(self.packets_by_protocol.values())


class _QuarantineNote(msgspec.Struct, frozen=True):
    """Hold the note of a quarantine record."""

    code: str = "unknown"
    offset: int = 0
    text: str = ""


_note_decoder: Final = msgspec.json.Decoder(_QuarantineNote)


def decode_batch(batch: Any, *, by_protocol: bool = False) -> DecodedBatch:
    """Decode a batch with the columns of the log or of `bronze.frames`. Ignore records of other events.

    With `by_protocol`, the messages of a protocol stay together, as its files need them, in the order of the log.
    """
    decoding = _BatchDecoder(_as_logged(batch))
    readings = decoding.readings()
    return DecodedBatch(
        decoding.messages(by_protocol=by_protocol),
        decoding.quarantine(),
        decoding.packets(),
        admitted_readings(readings),
        early(readings),
    )


def decode_packets(batch: Any) -> Any:
    """Return the packets alone, as typed columns, without those that cannot be decoded. This is the cheapest view."""
    batch = _as_logged(batch)
    found = []
    for protocol in registry.all_protocols():
        if protocol.reassembly:
            rows = _rows_of(batch, _FRAME, protocol.name)
            good, columns = registry.load_module(protocol.reassembly).decode_packets(_pick(batch.column("frame"), rows))
            found.append(_packets(batch, rows[good], columns))
    return _concat_packets(found)


def find_protocol(name: str) -> Protocol | None:
    """Return the protocol, or None if it is not installed now, or its package cannot be loaded."""
    try:
        return registry.get(name)
    except InputError:
        return None


class _BatchDecoder:
    """Decode the frames of one batch, protocol by protocol."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._decoded: list[tuple[Any, Any]] = []  # rows of the batch, and their MESSAGE_COLUMNS
        self._refused: list[tuple[int, RefusedFrame, str | None]] = []  # row of the batch, and which decoder refused it
        self._packets: dict[str, Any] = {}
        self._readings: list[Any] = []  # of READING_COLUMNS, with rows of the batch
        self._decoders: dict[str, str] = {}
        names = batch.column("protocol").filter(pc.equal(batch.column("event"), _FRAME))
        for name in pc.unique(names).to_pylist():
            rows = _rows_of(batch, _FRAME, name)
            frames, version = self._decode(name, rows)
            decoder = self._decoders[name] = f"{name}/{version}"
            self._decoded.append((rows[frames.rows], frames.messages))
            self._refused += [(int(rows[refused.row]), refused, decoder) for refused in frames.refused]
        refused_rows = _rows_of(batch, _QUARANTINE)
        notes = _pick(batch.column("note"), refused_rows).to_pylist()
        self._refused += [(row, _read_note(note), None) for row, note in zip(refused_rows.tolist(), notes, strict=True)]
        self._refused.sort(key=lambda each: each[0])

    def _decode(self, name: str, rows: Any) -> tuple[DecodedFrames, int]:
        """Return the decoded frames, and the version of the decoder."""
        batch = self._batch
        frames = _pick(batch.column("frame"), rows)
        from_server = _pick(pc.equal(batch.column("direction"), "out"), rows).to_numpy(zero_copy_only=False)
        if name == http.NAME:
            notes, sessions = _pick(batch.column("note"), rows), _pick(batch.column("session"), rows)
            return http.decode_records(frames, notes, sessions, from_server), http.DECODER_VERSION
        protocol = find_protocol(name)
        if protocol is None:
            return _unknown(name, len(frames)), 0
        decoder = column_decoder(protocol)
        decode = decoder.decode if decoder is not None else partial(decode_distinct, protocol)
        decoded = decode(frames, from_server)
        readings = decoded.readings
        if readings is None and decoder is not None and not protocol.reassembly:
            readings = readings_among(protocol, frames, from_server, decoded.rows, decoded.messages)
        if readings is not None and not protocol.reassembly:  # else they are those of the assembled commands
            self._readings.append(shifted(readings, rows))
        if protocol.reassembly:
            good, columns = decoded.rows, decoded.packets
            if columns is None:
                good, columns = registry.load_module(protocol.reassembly).decode_packets(frames)
            self._packets[name] = _packets(batch, rows[good], columns)
        return decoded, protocol.decoder_version

    def messages(self, *, by_protocol: bool) -> Any:
        found = [(rows, columns) for rows, columns in self._decoded if len(rows)]
        if len(found) == 1:
            ((rows, decoded),) = found
        elif found:
            rows = np.concatenate([rows for rows, _ in found])
            decoded = pa.concat_batches([columns for _, columns in found])
            if not by_protocol:
                order = np.argsort(rows, kind="stable")
                rows, decoded = rows[order], decoded.take(pa.array(order))
        else:
            rows, decoded = np.empty(0, np.int64), message_columns([])
        columns = self._record_columns(rows)
        columns["bytes"] = _pick(pc.binary_length(self._batch.column("frame")), rows).cast(pa.int64())
        columns["decoder"] = self._decoder_column(columns["protocol"])
        columns |= {name: decoded.column(name) for name in MESSAGE_COLUMNS.names}
        return pa.record_batch([columns[name] for name in MESSAGES.names], MESSAGES)

    def quarantine(self) -> Any:
        """Return the frames that a codec refuses, and the bytes that the gateway refused."""
        rows = np.array([row for row, _, _ in self._refused], np.int64)
        columns = self._record_columns(rows)
        columns["frame"] = _pick(self._batch.column("frame"), rows)
        columns["reason"] = pa.array([refused.code for _, refused, _ in self._refused], TEXT)
        columns["text"] = pa.array([refused.text for _, refused, _ in self._refused], TEXT)
        columns["byte_offset"] = pa.array([refused.offset for _, refused, _ in self._refused], pa.int64())
        columns["decoder"] = pa.array([decoder for _, _, decoder in self._refused], TEXT)
        return pa.record_batch([columns[name] for name in QUARANTINE.names], QUARANTINE)

    def packets(self) -> dict[str, Any]:
        return self._packets

    def readings(self) -> Any:
        """Return the readings of telemetry with the columns of their records; None if there are none."""
        if not self._readings:
            return None
        found = pa.concat_batches(self._readings).sort_by("row")
        rows, place = np.unique(found["row"].to_numpy(), return_inverse=True)  # a record may have several
        columns = {name: column.take(pa.array(place)) for name, column in self._record_columns(rows).items()}
        columns["decoder"] = self._decoder_column(columns["protocol"])
        columns |= {name: found[name] for name in ("source", "device_time", "type", "name", "unit", "value")}
        return pa.record_batch([columns[field.name] for field in EARLY_READINGS], EARLY_READINGS)

    def _record_columns(self, rows: Any) -> dict[str, Any]:
        """Return the columns that the log records determine."""
        names = ("seq", "node", "protocol", "direction", "session", "identity")
        columns = {name: _pick(self._batch.column(name), rows) for name in names}
        columns["received_at"] = _pick(self._batch.column("at"), rows)
        at_us = columns["received_at"].cast(pa.int64()).to_numpy()
        columns["day"] = pa.array((at_us // DAY_US).astype(np.int32)).cast(DAY)
        return columns

    def _decoder_column(self, protocols: Any) -> Any:
        if len(self._decoders) == 1:
            return pa.repeat(pa.scalar(*self._decoders.values(), TEXT), len(protocols))
        names = pa.array(self._decoders.keys(), TEXT)
        return pa.array(self._decoders.values(), TEXT).take(pc.index_in(protocols, names))


def _as_logged(batch: Any) -> Any:
    """Return the batch with the types of the log and without nulls: a caller's own table may have other types."""
    if batch.schema.equals(SCHEMA):
        return batch
    columns = []
    for field in SCHEMA:
        name = field.name if field.name in batch.schema.names else _BRONZE_NAMES.get(field.name, field.name)
        column = batch.column(name).cast(field.type)
        if column.null_count and field.type in (TEXT, BYTES):
            column = column.fill_null("" if field.type == TEXT else b"")
        elif column.null_count:
            raise InputError(f"{field.name} is null in {column.null_count} of {len(column)} rows")
        columns.append(column)
    return pa.record_batch(columns, SCHEMA)


def _packets(batch: Any, rows: Any, packets: Any) -> Any:
    columns = {name: packets.column(name) for name in PACKET_COLUMNS.names}
    for name in ("seq", "at", "node", "session", "identity", "direction"):
        columns[name] = _pick(batch.column(name), rows)
    return pa.record_batch([columns[name] for name in PACKETS.names], PACKETS)


def _concat_packets(batches: Any) -> Any:
    found = list(batches)
    return found[0] if len(found) == 1 else pa.concat_batches([_NO_PACKETS, *found]).sort_by("seq")


def _rows_of(batch: Any, event: str, protocol: str | None = None) -> Any:
    """Return the indices of these records."""
    mask = pc.equal(batch.column("event"), event)
    if protocol is not None:
        mask = pc.and_(mask, pc.equal(batch.column("protocol"), protocol))
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _pick(column: Any, rows: Any) -> Any:
    """Return these rows. Adjacent rows, in order, are not copied."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return column.slice(int(rows[0]), len(rows))
    return column.take(pa.array(rows))


def _unknown(name: str, count: int) -> DecodedFrames:
    """Quarantine frames of a protocol that is not installed: `redecode` decodes them once it is."""
    text = f"no protocol is called '{name}' here"
    refused = [RefusedFrame(index, "unknown_protocol", text, 0) for index in range(count)]
    return DecodedFrames(np.empty(0, np.int64), message_columns([]), refused)


def _read_note(note: str) -> RefusedFrame:
    try:
        found = _note_decoder.decode(note)
    except msgspec.DecodeError:
        found = _QuarantineNote(text=note)
    return RefusedFrame(0, found.code, found.text, found.offset)
