"""A batch of the log, decoded: each protocol's frames together, the rows in the order of the log again."""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.errors import InputError
from wirelake.lake.tables import BYTES, DAY, TEXT
from wirelake.log.schema import SCHEMA
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
        self._parts: list[tuple[Any, Part]] = []  # which rows of the batch they are made of
        self._decoders: dict[str, str] = {}
        self._apostol: tuple[Any, Parsed] | None = None
        is_frame = pc.equal(batch.column("event"), _FRAME)
        names = batch.column("protocol")
        for name in pc.unique(names.filter(is_frame)).to_pylist():
            self._decode(name, _rows_of(batch, _FRAME, name))

    def _decode(self, name: str, rows: Any) -> None:
        batch = self._batch
        frames = _picked(batch.column("frame"), rows)
        from_server = _picked(pc.equal(batch.column("direction"), "out"), rows).to_numpy(zero_copy_only=False)
        version = http.DECODER_VERSION
        match name:
            case "apostol":
                part, parsed = apostol.decode_frames(frames)
                self._apostol = rows, parsed
                version = APOSTOL.decoder_version
            case "comet":
                part = comet.decode_frames(frames, from_server)
                version = COMET.decoder_version
            case http.NAME:
                notes, sessions = _picked(batch.column("note"), rows), _picked(batch.column("session"), rows)
                part = http.decode_records(frames, notes, sessions, from_server)
            case _:
                protocol = protocol_of(name)
                version = 0 if protocol is None else protocol.decoder_version
                part = _unknown(name, len(frames)) if protocol is None else decode_frames(protocol, frames, from_server)
        self._decoders[name] = f"{name}/{version}"
        self._parts.append((rows, part))

    def messages(self) -> Any:
        found = [(_rows(rows, part.rows), part.said) for rows, part in self._parts if part.said.num_rows]
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
        """Frames that the codec refuses, and bytes that were refused at the door; those were never of a frame."""
        batch = self._batch
        faults: list[tuple[int, Fault, bool]] = []
        for rows, part in self._parts:
            faults += [(int(_rows(rows, fault.row)), fault, True) for fault in part.faults]
        at_the_door = _rows_of(batch, _QUARANTINE)
        notes = _picked(batch.column("note"), at_the_door).to_pylist()
        places = np.arange(batch.num_rows)[at_the_door] if isinstance(at_the_door, slice) else at_the_door
        faults += [(place, _refused(note), False) for place, note in zip(places.tolist(), notes, strict=True)]
        faults.sort(key=lambda fault: fault[0])
        record = self._record(np.array([place for place, _, _ in faults], np.int64))
        decoders = [self._decoders.get(name) for name in record["protocol"].to_pylist()]
        columns = {
            **record,
            "reason": [fault.code for _, fault, _ in faults],
            "text": [fault.text for _, fault, _ in faults],
            "offset": [fault.offset for _, fault, _ in faults],
            "frame": _picked(batch.column("frame"), np.array([place for place, _, _ in faults], np.int64)),
            "decoder": [decoder if ours else None for decoder, (_, _, ours) in zip(decoders, faults, strict=True)],
        }
        arrays = [_array(columns[field.name], field.type) for field in QUARANTINE]
        return pa.record_batch(arrays, QUARANTINE)

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
    places = _rows(rows, parsed.rows)
    columns = parsed.columns()
    for name in ("seq", "at", "node", "session", "identity", "direction"):
        columns[name] = _picked(batch.column(name), places)
    return pa.record_batch([columns[name] for name in PACKETS.names], PACKETS)


def _rows_of(batch: Any, event: str, protocol: str | None = None) -> Any:
    """Which rows are such records; a slice where they lie together, so that nothing needs to be copied."""
    mask = pc.equal(batch.column("event"), event)
    if protocol is not None:
        mask = pc.and_(mask, pc.equal(batch.column("protocol"), protocol))
    rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows if len(rows) else slice(0, 0)


def _rows(of: Any, rows: Any) -> Any:
    """Rows of a part, as rows of the batch."""
    return rows + of.start if isinstance(of, slice) else of[rows]


def _picked(column: Any, rows: Any) -> Any:
    if isinstance(rows, slice):
        return column.slice(rows.start, rows.stop - rows.start)
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):  # they stand in order
        return column.slice(int(rows[0]), len(rows))
    return column.take(pa.array(rows))


def _array(values: Any, kind: Any) -> Any:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


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
