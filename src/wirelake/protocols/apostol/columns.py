"""Decode apostol packets by kernel: see `columnar.ColumnDecoder`."""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from wirelake.protocols.apostol import constants
from wirelake.protocols.apostol.commands import DeviceCommand, Reading
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.kernels import (
    KINDS,
    ODD_READINGS,
    RECEIPT,
    classify_packets,
    describe_packets,
    parse_packets,
)
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.translation import failure_of, to_message
from wirelake.protocols.columnar import (
    MESSAGE_COLUMNS,
    PACKET_COLUMNS,
    DecodedFrames,
    bytes_and_offsets,
    column_of,
    explain_refusals,
    flags,
    row_of,
)
from wirelake.protocols.frame import Sender

_ONE_READING: Final = DeviceCommand(0, 4, 0, (Reading(1, 1.5),)).encode()
SAMPLES: Final = (Packet(constants.VERSION, constants.FIRST | constants.LAST, 0, "0", 0, 0, _ONE_READING).encode(), b"")
_TEXT: Final = pa.string()
_BYTES: Final = pa.binary()
_FIELDS: Final = MESSAGE_COLUMNS.get_field_index("fields")
_KINDS: Final = pa.array(KINDS, _TEXT)
_NAMES: Final = pa.array(["packet", "receipt"], _TEXT)
_NUMBERS: Final = pa.array([str(number) for number in range(256)], _TEXT)
# By the kernel's number of a status: none, ok, the device's errors.
_STATUSES: Final = pa.array([None, "ok", *(failure_of(error).text for error in range(256))], _TEXT)


class ParsedPackets(Struct, frozen=True):
    """The fields of the good packets, which are `rows` of the frames; `faults` has row, fault and offset of others."""

    rows: Any
    params: Any
    device_types: Any
    command_nos: Any
    packet_nos: Any
    serial_ends: Any
    serials: Any
    data_ends: Any
    data: Any
    faults: Any

    def columns(self) -> Any:
        """Return the packets as PACKET_COLUMNS."""
        params = self.params
        columns = [
            column_of(_TEXT, self.serial_ends, self.serials),
            pa.array(self.device_types),
            flags(params & constants.TO_DEVICE),
            flags(params & constants.ANSWER),
            flags(params & constants.FIRST),
            flags(params & constants.LAST),
            flags(params & constants.ZIPPED),
            flags(params & constants.SEALED),
            flags(params & constants.RECEIPT),
            pa.array(self.command_nos),
            pa.array(self.packet_nos),
            column_of(_BYTES, self.data_ends, self.data),
        ]
        return pa.record_batch(columns, PACKET_COLUMNS)

    def packet(self, index: int) -> Packet:
        """Return the packet of `rows[index]`, as the codec gives it."""
        heads = (self.params, self.device_types, self.command_nos, self.packet_nos)
        params, device_type, command_no, packet_no = (int(head[index]) for head in heads)
        serial = self.serials[self.serial_ends[index] : self.serial_ends[index + 1]].tobytes().decode()
        data = self.data[self.data_ends[index] : self.data_ends[index + 1]].tobytes()
        return Packet(constants.VERSION, params, device_type, serial, command_no, packet_no, data)


def parse(frames: Any) -> ParsedPackets:
    """Check and parse a binary column."""
    return ParsedPackets(*parse_packets(*bytes_and_offsets(frames)))


def decode(frames: Any, _from_server: Any = None) -> DecodedFrames:
    """Decode a binary column. The direction is in the packets themselves."""
    parsed = parse(frames)
    refused = explain_refusals(PROTOCOL, frames, np.zeros(len(frames), np.bool_), parsed.faults[:, 0])
    return DecodedFrames(parsed.rows, _messages(parsed), refused, parsed.columns())


def _messages(parsed: ParsedPackets) -> Any:
    shapes, floats = classify_packets(parsed.params, parsed.packet_nos, parsed.data_ends, parsed.data)
    hard = [_fields(parsed.packet(index)) for index in np.nonzero(shapes >= ODD_READINGS)[0].tolist()]
    kinds, statuses, text_ends, text, payload_ends, payload = describe_packets(
        parsed.params,
        parsed.device_types,
        parsed.packet_nos,
        shapes,
        parsed.serial_ends,
        parsed.data_ends,
        parsed.data,
        _array(msgspec.json.encode(floats.view(np.float64).tolist())[1:-1]),
        np.cumsum([0, *map(len, hard)]),
        _array(b"".join(hard)),
    )
    nulls = pa.nulls(len(parsed.rows), _TEXT)
    columns = [
        _KINDS.take(pa.array(kinds)),
        _NAMES.take(pa.array((shapes == RECEIPT).astype(np.int8))),
        nulls,
        nulls,
        nulls,
        _NUMBERS.take(pa.array(parsed.command_nos)),
        _STATUSES.take(pa.array(statuses)),
        column_of(_TEXT, text_ends, text),
        column_of(_BYTES, payload_ends, payload),
        pa.array(np.zeros(len(statuses), np.int64), mask=statuses == 0),  # a response is one command, complete
    ]
    return pa.record_batch(columns, MESSAGE_COLUMNS)


def _fields(packet: Packet) -> bytes:
    """Return the fields that only the codec can write."""
    text = row_of(to_message(packet, Sender.CLIENT))[_FIELDS]
    assert isinstance(text, str)  # noqa: S101 (the columns of a row have different types)
    return text.encode()


def _array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)
