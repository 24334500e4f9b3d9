"""A batch of the log, decoded: each protocol's frames together, the rows in the order of the log again."""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import InputError
from wirelake.lake.tables import BYTES, DAY, TEXT
from wirelake.log.interface import SCHEMA
from wirelake.pipeline.decode import apostol, comet, http
from wirelake.pipeline.decode.apostol import Parsed
from wirelake.pipeline.decode.decoded import MESSAGES, PACKETS, QUARANTINE, SAID, Decoded, Fault, Part
from wirelake.pipeline.decode.rows import batch_of
from wirelake.pipeline.decode.scalar import decode_frames, protocol_of
from wirelake.protocols.apostol.protocol import PROTOCOL as APOSTOL
from wirelake.protocols.comet.protocol import PROTOCOL as COMET

_DAY_US: Final = 86_400_000_000
_FRAME: Final = "frame"
_QUARANTINE: Final = "quarantine"


class _Note(msgspec.Struct, frozen=True):
    """Of a quarantine record."""

    code: str = "unknown"
    offset: int = 0
    text: str = ""


_note_decoder: Final = msgspec.json.Decoder(_Note)


def decode_batch(batch: Any) -> Decoded:
    """`batch` has the columns of the log, or of `bronze.frames`; what is no frame and no quarantine is passed by."""
    decoding = _Decoding(_as_logged(batch))
    return Decoded(decoding.messages(), decoding.quarantine(), decoding.packets())


def decode_packets(batch: Any) -> Any:
    """The apostol packets alone, as typed columns: what the bulk costs least as. Bad ones are left out."""
    batch = _as_logged(batch)
    rows = _rows_of(batch, _FRAME, APOSTOL.name)
    frames = _picked(batch.column("frame"), rows)
    return _packets(batch, rows, apostol.parse(frames))


class _Decoding:
    """One batch's frames, by protocol."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._parts: list[tuple[Any, Any]] = []  # rows of the batch, and what they say
        self._faults: list[tuple[int, Fault, str | None]] = []  # row of the batch, and who found it
        self._decoders: dict[str, str] = {}
        self._apostol: tuple[Any, Parsed] | None = None
        names = batch.column("protocol").filter(pc.equal(batch.column("event"), _FRAME))
        for name in pc.unique(names).to_pylist():
            rows = _rows_of(batch, _FRAME, name)
            part, version = self._decoded(name, rows)
            decoder = self._decoders[name] = f"{name}/{version}"
            self._parts.append((rows[part.rows], part.said))
            self._faults += [(int(rows[fault.row]), fault, decoder) for fault in part.faults]
        refused = _rows_of(batch, _QUARANTINE)
        notes = _picked(batch.column("note"), refused).to_pylist()
        self._faults += [(row, _refused(note), None) for row, note in zip(refused.tolist(), notes, strict=True)]
        self._faults.sort(key=lambda fault: fault[0])

    def _decoded(self, name: str, rows: Any) -> tuple[Part, int]:
        """And the version of what decoded them."""
        batch = self._batch
        frames = _picked(batch.column("frame"), rows)
        if name == APOSTOL.name:
            part, parsed = apostol.decode_frames(frames)
            self._apostol = rows, parsed
            return part, APOSTOL.decoder_version
        from_server = _picked(pc.equal(batch.column("direction"), "out"), rows).to_numpy(zero_copy_only=False)
        if name == COMET.name:
            return comet.decode_frames(frames, from_server), COMET.decoder_version
        if name == http.NAME:
            notes, sessions = _picked(batch.column("note"), rows), _picked(batch.column("session"), rows)
            return http.decode_records(frames, notes, sessions, from_server), http.DECODER_VERSION
        protocol = protocol_of(name)
        if protocol is None:
            return _unknown(name, len(frames)), 0
        return decode_frames(protocol, frames, from_server), protocol.decoder_version

    def messages(self) -> Any:
        found = [(places, said) for places, said in self._parts if len(places)]
        if len(found) == 1:
            ((places, said),) = found
        elif found:
            places = np.concatenate([places for places, _ in found])
            order = np.argsort(places, kind="stable")
            places = places[order]
            said = pa.concat_batches([said for _, said in found]).take(pa.array(order))
        else:
            places, said = np.empty(0, np.int64), batch_of([])
        record = self._record(places)
        record["bytes"] = pc.binary_length(_picked(self._batch.column("frame"), places)).cast(pa.int64())
        record["decoder"] = self._decoder(record["protocol"])
        columns = {**record, **{name: said.column(name) for name in SAID.names}}
        return pa.record_batch([columns[name] for name in MESSAGES.names], MESSAGES)

    def quarantine(self) -> Any:
        """Frames that the codec refuses, and bytes that were refused at the door."""
        places = np.array([place for place, _, _ in self._faults], np.int64)
        columns = self._record(places)
        columns["frame"] = _picked(self._batch.column("frame"), places)
        columns["reason"] = pa.array([fault.code for _, fault, _ in self._faults], TEXT)
        columns["text"] = pa.array([fault.text for _, fault, _ in self._faults], TEXT)
        columns["offset"] = pa.array([fault.offset for _, fault, _ in self._faults], pa.int64())
        columns["decoder"] = pa.array([decoder for _, _, decoder in self._faults], TEXT)
        return pa.record_batch([columns[name] for name in QUARANTINE.names], QUARANTINE)

    def packets(self) -> Any:
        if self._apostol is None:
            return pa.record_batch([pa.array([], field.type) for field in PACKETS], PACKETS)
        return _packets(self._batch, *self._apostol)

    def _record(self, places: Any) -> dict[str, Any]:
        """The columns that a row has from its record."""
        names = ("seq", "at", "node", "protocol", "direction", "session", "identity")
        record = {name: _picked(self._batch.column(name), places) for name in names}
        at_us = record["at"].cast(pa.int64()).to_numpy()
        record["day"] = pa.array((at_us // _DAY_US).astype(np.int32)).cast(DAY)
        return record

    def _decoder(self, protocols: Any) -> Any:
        if len(self._decoders) == 1:
            return pa.repeat(pa.scalar(*self._decoders.values(), TEXT), len(protocols))
        names = pa.array(self._decoders.keys(), TEXT)
        return pa.array(self._decoders.values(), TEXT).take(pc.index_in(protocols, names))


def _as_logged(batch: Any) -> Any:
    """With the types of the log, and no nulls: other people's tables may have wider ones, and some."""
    if batch.schema.equals(SCHEMA):
        return batch
    columns = []
    for field in SCHEMA:
        column = batch.column(field.name).cast(field.type)
        if column.null_count and field.type in (TEXT, BYTES):
            column = column.fill_null("" if field.type == TEXT else b"")
        elif column.null_count:
            raise InputError(f"{column.null_count} rows have no {field.name}")
        columns.append(column)
    return pa.record_batch(columns, SCHEMA)


def _packets(batch: Any, rows: Any, parsed: Parsed) -> Any:
    places = rows[parsed.rows]
    columns = parsed.columns()
    for name in ("seq", "at", "node", "session", "identity", "direction"):
        columns[name] = _picked(batch.column(name), places)
    return pa.record_batch([columns[name] for name in PACKETS.names], PACKETS)


def _rows_of(batch: Any, event: str, protocol: str | None = None) -> Any:
    """Which rows are such records."""
    mask = pc.equal(batch.column("event"), event)
    if protocol is not None:
        mask = pc.and_(mask, pc.equal(batch.column("protocol"), protocol))
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _picked(column: Any, rows: Any) -> Any:
    """These rows, which stand in order. Where they lie together, nothing is copied."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return column.slice(int(rows[0]), len(rows))
    return column.take(pa.array(rows))


def _unknown(name: str, count: int) -> Part:
    """All is kept for the day when the protocol is there again: see `redecode`."""
    text = f"no protocol is called '{name}' here"
    faults = [Fault(place, "unknown_protocol", text, 0) for place in range(count)]
    return Part(np.empty(0, np.int64), batch_of([]), faults)


def _refused(note: str) -> Fault:
    try:
        found = _note_decoder.decode(note)
    except msgspec.DecodeError:
        found = _Note(text=note)
    return Fault(0, found.code, found.text, found.offset)
