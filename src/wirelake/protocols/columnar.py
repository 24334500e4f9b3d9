"""Decode many frames at once, into columns.

`decode_each` is the definition: it calls the protocol's own codec frame by frame. A protocol can offer a faster decoder
(`Protocol.columns`) that gives the same columns; its module has the functions and constants of `ColumnDecoder`.
"""

from functools import cache
from typing import Any, Final
from typing import Protocol as Interface

import numpy as np
import pyarrow as pa
from msgspec import Struct

from wirelake.errors import ProtocolError, StorageError, TranslationError, UnknownProtocolError
from wirelake.message import Kind, Message, Op, Operation, Topic
from wirelake.protocols import registry
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.reading_columns import ReadingColumns
from wirelake.protocols.redaction import BLANK_TEXT, LOGIN_OPS, SECRET_FIELDS, is_login_payload
from wirelake.protocols.text import write_json

_TEXT: Final = pa.string()
# The lookup of an enum member takes longer than the comparison.
_RESPONSE: Final = Kind.RESPONSE
_CONTROL: Final = Kind.CONTROL
_LOGIN: Final = Op.LOGIN.value
_KIND_TEXTS: Final = {kind: kind.value for kind in Kind}
_OFFSET_MAX: Final = 2**31 - 1
# The columns of silver.messages that a frame determines. The log record determines all others.
MESSAGE_COLUMNS: Final = pa.schema(
    [
        ("kind", _TEXT),
        ("name", _TEXT),
        ("topic", _TEXT),
        ("service", _TEXT),
        ("op", _TEXT),
        ("correlation", _TEXT),
        ("status", _TEXT),
        ("fields", _TEXT),
        ("payload", pa.binary()),
        ("more", pa.int64()),
    ]
)
# The columns of the view `packets` that a frame determines.
PACKET_COLUMNS: Final = pa.schema(
    [
        ("serial", _TEXT),
        ("device_type", pa.uint8()),
        *((flag, pa.bool_()) for flag in ("to_device", "answer", "first", "last", "zlib", "sealed", "receipt")),
        ("command_no", pa.uint8()),
        ("packet_no", pa.uint8()),
        ("data", pa.binary()),
    ]
)

Row = tuple[str, str | None, str | None, str | None, str | None, str | None, str | None, str, bytes, int | None]


class RefusedFrame(Struct, frozen=True):
    """A frame that cannot be decoded. `row` is its index among the frames."""

    row: int
    code: str
    text: str
    offset: int


class DecodedFrames(Struct, frozen=True):
    """The frames of one protocol, decoded. `rows` (int64) are the indices of those that could be."""

    rows: Any
    messages: Any  # pa.RecordBatch of MESSAGE_COLUMNS, one row for each of `rows`
    refused: list[RefusedFrame]
    packets: Any = None  # pa.RecordBatch of PACKET_COLUMNS, of a decoder that has them anyway
    readings: Any = None  # pa.RecordBatch of READING_COLUMNS, if there are readings, of a decoder that has them anyway


class ColumnDecoder(Interface):
    """The module that `Protocol.columns` names."""

    SAMPLES: tuple[bytes, ...]  # frames that run every kernel once

    def decode(self, frames: Any, from_server: Any) -> DecodedFrames:
        """Decode a binary column. `from_server` (bool) says who sent each frame."""


def decode_each(protocol: Protocol, frames: Any, from_server: Any) -> DecodedFrames:
    """Decode a binary column frame by frame. `from_server` (bool) says who sent each frame."""
    decode, to_message = protocol.decode, protocol.to_message
    rows: list[Row] = []
    good: list[int] = []
    refused: list[RefusedFrame] = []
    readings, telemetry = ReadingColumns(protocol), Kind.TELEMETRY
    senders = (Sender.CLIENT, Sender.SERVER)
    for index, (frame, is_server) in enumerate(zip(frames.to_pylist(), from_server.tolist(), strict=True)):
        sender = senders[is_server]
        try:
            message = to_message(decode(frame or b"", sender), sender)
            row = row_of(message)
            if message.kind is telemetry and not is_server:
                readings.add(index, message)
        except ProtocolError as error:
            refused.append(RefusedFrame(index, error.code, error.text, error.offset))
            continue
        except TranslationError as error:  # a good frame that its protocol has no message for
            refused.append(RefusedFrame(index, "no_message", str(error), 0))
            continue
        rows.append(row)
        good.append(index)
    return DecodedFrames(np.array(good, np.int64), message_columns(rows), refused, readings=readings.batch())


def row_of(message: Message) -> Row:
    """Return the MESSAGE_COLUMNS of a message."""
    kind, target, fields, payload = message.kind, message.target, message.fields, message.payload
    is_response = kind is _RESPONSE
    if not is_response:  # nobody logs in with a response
        fields, payload = without_secrets(message)
    topic = service = op = None
    if isinstance(target, Operation):
        service, op = target.service or None, target.op or None
    elif isinstance(target, Topic):
        topic = target.name or None
    failure = message.failure
    status = _status(message) if is_response or failure is not None else None
    if message.id or message.type or message.at_ms or failure is not None or message.parts:
        fields = {**_extra_fields(message), **fields}
    return (
        _KIND_TEXTS[kind],
        message.name or None,
        topic,
        service,
        op,
        message.correlation or None,
        status,
        write_json(fields).decode() if fields else "{}",
        payload,
        message.more if is_response and status is not None else None,
    )


def message_columns(rows: list[Row]) -> Any:
    """Return rows as a record batch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(MESSAGE_COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, MESSAGE_COLUMNS, strict=True)]
    return pa.record_batch(arrays, MESSAGE_COLUMNS)


def _extra_fields(message: Message) -> dict[str, Any]:
    """Return what a message has outside its fields. A field of the same name takes precedence."""
    extra: dict[str, Any] = {}
    if message.id:
        extra["id"] = message.id
    if message.type:
        extra["type"] = message.type
    if message.at_ms:
        extra["ts"] = message.at_ms
    if message.failure is not None and message.failure.code:
        extra["code"] = message.failure.code
    if message.parts:
        extra["parts"] = [{"id": part.id, "type": part.type, "ts": part.at_ms} for part in message.parts]
    return extra


def _status(message: Message) -> str | None:
    """Return whether a response is a success; a single packet of one does not say."""
    if message.failure is not None:
        return message.failure.text or "failed"
    if message.kind is not _RESPONSE:
        return None
    return None if "packet_no" in message.fields and _sends_packets(message.protocol) else "ok"


@cache
def _sends_packets(name: str) -> bool:
    try:
        return bool(registry.get(name).reassembly)
    except UnknownProtocolError:
        return False


def bytes_and_offsets(column: Any) -> tuple[Any, Any]:
    """Return the bytes of a binary column and the offset of each value, without copying. A slice starts at its offset.

    The arrays are always of the same kind, aligned and read-only: for another kind Numba would compile again.
    """
    if column.null_count:  # the log has none, but a caller's own table may
        column = column.fill_null(b"")
    _, offset_buffer, data = column.buffers()
    if len(column):
        offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, 4 * column.offset)
        offsets = offsets if offsets.flags.aligned else offsets.copy()
    else:
        offsets = np.zeros(1, np.int32)
    values = np.frombuffer(b"" if data is None else data, np.uint8)
    offsets.flags.writeable = values.flags.writeable = False
    return values, offsets


def column_of(kind: Any, ends: Any, data: Any) -> Any:
    """Return a column of text or bytes from contiguous values that start at 0, without copying."""
    if ends[-1] > _OFFSET_MAX:
        raise StorageError(f"{ends[-1]} bytes in one column of one batch: decode fewer rows at once")
    offsets = pa.py_buffer(np.ascontiguousarray(ends, np.int32))
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, offsets, pa.py_buffer(data)])


def flags(values: Any) -> Any:
    """Return a column of booleans: which of the values are not zero."""
    bits = np.packbits(values != 0, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


# ── secrets
#
# Translation separates the credentials of a login from its fields. The functions below cover what translation cannot
# know: frames that resemble a login, and logins inside a request to a service.

LOGIN_FIELDS: Final = frozenset({"version", "compress", "format", "client_name"})  # what else a login may contain


def without_secrets(message: Message) -> tuple[dict[str, Any], bytes]:
    """Return the fields and the payload of a message without what nobody may see."""
    kind, fields, payload, target = message.kind, message.fields, message.payload, message.target
    op = target.op if isinstance(target, Operation) else ""
    if kind is _RESPONSE:
        return fields, payload
    if op == _LOGIN and kind is _CONTROL:
        return {name: value for name, value in fields.items() if name in LOGIN_FIELDS}, b""
    if fields and (kind is _CONTROL or op.lower() in LOGIN_OPS):
        fields = {name: BLANK_TEXT if name.lower() in SECRET_FIELDS else value for name, value in fields.items()}
    if payload and isinstance(target, Operation) and is_login_payload(target.service, payload):
        payload = b""
    return fields, payload
