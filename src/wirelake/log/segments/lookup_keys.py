"""Derive the keys by which records are looked up: what a lookup index holds, and what a search asks it for.

A record has a key for its session, for its identity and for its event. Records about a notification are found by its
topic's number and its position, "<topic>-<position>" in hex as in its id: every such text in a frame or a note is a
key. The epoch in front of it is left out, because nothing marks where it begins in a binary frame.

A record about a range of positions (a delivery, an expiry, a cumulative ack) would need a key for each of them. It has
keys for the largest aligned intervals of 2^level positions that the range consists of instead, and a search asks for
the intervals of each level that contain its position. A cumulative ack covers what its identity had not acked before.
The first one of an identity in a segment has a key of its own, because what was acked before is not known there.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wirelake.log.interface import BYTES_TYPE

Hashes = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8
_LENGTH_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_END_FACTOR: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFTS: Final = (np.uint64(32), np.uint64(29))
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)  # by bytes that count

_POSITIONS: Final = re.compile(rb"-(?=([0-9a-f]{1,16}-[0-9a-f]{1,16})(?![0-9a-f]))")
_EVENTS_WITH_RANGE: Final = pa.array(["deliver", "unsayable", "ack", "expire"])
_POSITION_MAX: Final = 2**63


class KeyKind(IntEnum):
    """Keep keys of different kinds apart. The numbers are part of the hash: do not change them."""

    SESSION = 1
    IDENTITY = 2
    EVENT = 3
    NOTIFICATION = 4  # "<topic's number>-<position>"
    ACK = 5  # the prefix of a topic's ids, and an identity
    EXPIRY = 6  # a topic's name, and a position


_SEEDS: Final = {kind: np.uint64(int(_END_FACTOR) * kind % 2**64) for kind in KeyKind}


class LookupKey(msgspec.Struct, frozen=True):
    """Name what a search looks for. With a position, every interval that contains it matches."""

    kind: KeyKind
    name: str
    position: int | None = None

    def hashes(self, levels: int) -> list[int]:
        """Return the hashes to look for. `levels` has a bit for each level that an index uses."""
        if self.position is None:
            names = [self.name]
        else:
            used = [level for level in range(levels.bit_length()) if levels >> level & 1]
            names = [_interval(self.name, level, self.position >> level) for level in used]
        return [int(value) for value in hash_texts(self.kind, pa.array([name.encode() for name in names], BYTES_TYPE))]


def session_key(session: str) -> LookupKey:
    return LookupKey(KeyKind.SESSION, session)


def identity_key(identity: str) -> LookupKey:
    return LookupKey(KeyKind.IDENTITY, identity)


def event_key(event: str) -> LookupKey:
    return LookupKey(KeyKind.EVENT, event)


def notification_key(ids: str, position: int) -> LookupKey:
    """Return the key of a notification; `ids` is the prefix of the ids of its topic, "<epoch>-<topic's number>-"."""
    return LookupKey(KeyKind.NOTIFICATION, _topic_number(ids), position)


def ack_key(ids: str, identity: str) -> LookupKey:
    return LookupKey(KeyKind.ACK, f"{ids}\n{identity}")


def expiry_key(topic: str, position: int) -> LookupKey:
    return LookupKey(KeyKind.EXPIRY, f"{topic}\n", position)


def _topic_number(ids: str) -> str:
    return f"{ids[:-1].rpartition('-')[2]}-"


def _interval(name: str, level: int, number: int) -> str:
    return f"{name}{number:x}" if level == 0 else f"{name}{number:x}/{level}"


def hash_texts(kind: KeyKind, texts: Any) -> Hashes:
    """Return a hash of 64 bits for each text or bytes of an Arrow array without nulls, the same on every machine."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    size = int(offsets[-1])
    padded = np.zeros(size + _WORD_BYTES, np.uint8)
    if size:
        padded[:size] = np.frombuffer(texts.buffers()[2], np.uint8, size)
    words = np.ndarray((size + 1,), "<u8", padded, strides=(1,))  # the word that starts at each byte
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = lengths.astype(np.uint64) * _LENGTH_FACTOR + _SEEDS[kind]
    done = 0
    while True:
        longer = lengths > done
        if not longer.any():
            break
        rows: Any = slice(None) if longer.all() else np.flatnonzero(longer)
        remaining = np.minimum(lengths[rows] - done, _WORD_BYTES)
        mixed = (hashes[rows] ^ (words[starts[rows] + done] & _MASKS[remaining])) * _WORD_FACTOR
        hashes[rows] = mixed ^ (mixed >> _SHIFTS[0])
        done += _WORD_BYTES
    hashes *= _END_FACTOR
    return hashes ^ (hashes >> _SHIFTS[1])


def distinct(values: Hashes) -> Hashes:
    """Return the values in order, each once. NumPy's `unique` takes several times as long."""
    values.sort()
    is_new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    return values[is_new]


class KeyCollector:
    """Collect the keys of a segment's records, in their order. `levels` has a bit for each level used so far."""

    def __init__(self) -> None:
        self.levels = 1
        self._acked: dict[tuple[str, str], int] = {}  # (prefix of ids, identity) → position up to which all are acked

    def collect(self, records: Any) -> Hashes:
        """Return the hashes of all keys of a table of records, sorted, each once."""
        found = [
            _hash_column(KeyKind.SESSION, records["session"]),
            _hash_column(KeyKind.IDENTITY, records["identity"]),
            _hash_column(KeyKind.EVENT, records["event"]),
        ]
        names: dict[KeyKind, list[bytes]] = {
            KeyKind.NOTIFICATION: _find_positions(records["frame"]) + _find_positions(records["note"]),
            KeyKind.ACK: [],
            KeyKind.EXPIRY: [],
        }
        has_range = pc.is_in(records["event"], value_set=_EVENTS_WITH_RANGE)
        for note in _read_notes(records["note"].filter(has_range).to_pylist()):
            for kind, name in self._range_keys(note):
                names[kind].append(name.encode())
        found += [hash_texts(kind, pa.array(texts, BYTES_TYPE)) for kind, texts in names.items() if texts]
        return distinct(np.concatenate(found))

    def _range_keys(self, note: "_RangeNote") -> Iterator[tuple[KeyKind, str]]:
        if note.ids and note.through is not None:
            covered = (note.ids, note.identity)
            before = self._acked.get(covered)
            if before is None:
                yield KeyKind.ACK, f"{note.ids}\n{note.identity}"
            self._acked[covered] = max(note.through, before or 0)
            first, last = note.through + 1 if before is None else before + 1, note.through
        elif note.last is None:  # an ack that names its ids
            return
        else:
            first, last = note.first, note.last
        if note.ids:
            kind, name = KeyKind.NOTIFICATION, _topic_number(note.ids)
        else:
            kind, name = KeyKind.EXPIRY, f"{note.topic}\n"
        for level, number in _intervals(max(0, first), min(last, _POSITION_MAX) + 1):
            self.levels |= 1 << level
            yield kind, _interval(name, level, number)


def _intervals(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield level and number of the largest aligned intervals that the positions from `start` to before `end` fill."""
    level = 0
    while start < end:
        if start & 1:
            yield level, start
            start += 1
        if end & 1:
            end -= 1
            yield level, end
        start, end, level = start >> 1, end >> 1, level + 1


def _hash_column(kind: KeyKind, column: Any) -> Hashes:
    texts = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return hash_texts(kind, texts.filter(pc.not_equal(texts, "")))


def _find_positions(column: Any) -> list[bytes]:
    """Return all "<topic's number>-<position>" in the values."""
    values = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(BYTES_TYPE)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0]  # no text spans two values
    return _POSITIONS.findall(memoryview(joined.as_buffer()))


class _RangeNote(msgspec.Struct):
    """Hold what matters of the note of a delivery, an ack or an expiry."""

    ids: str = ""
    topic: str = ""
    identity: str = ""
    first: int = 0
    last: int | None = None
    through: int | None = None


_decode_notes: Final = msgspec.json.Decoder(list[_RangeNote]).decode
_decode_note: Final = msgspec.json.Decoder(_RangeNote).decode


def _read_notes(notes: list[str]) -> list[_RangeNote]:
    try:
        return _decode_notes(f"[{','.join(notes)}]")
    except (msgspec.DecodeError, msgspec.ValidationError):  # at least one is not the gateway's: leave out those alone
        return [note for text in notes if (note := _read_note(text)) is not None]


def _read_note(text: str) -> _RangeNote | None:
    try:
        return _decode_note(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
