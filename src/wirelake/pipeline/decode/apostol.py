"""apostol packets, by kernel."""

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from wirelake.lake.tables import BYTES, TEXT
from wirelake.pipeline.decode.apostol_kernels import (
    KINDS,
    ODD_READINGS,
    RECEIPT,
    describe_apostol,
    parse_apostol,
    shape_apostol,
)
from wirelake.pipeline.decode.buffers import bytes_and_offsets, column_of, flags
from wirelake.pipeline.decode.decoded import SAID, Fault, Part
from wirelake.pipeline.decode.rows import row_of
from wirelake.pipeline.decode.scalar import faults_in_words
from wirelake.protocols.apostol import opcodes
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.protocol import PROTOCOL
from wirelake.protocols.apostol.translation import failure_of, to_message
from wirelake.protocols.frame import Sender

_FIELDS: Final = SAID.get_field_index("fields")
_KINDS: Final = pa.array(KINDS, TEXT)
_NAMES: Final = pa.array(["packet", "receipt"], TEXT)
_NUMBERS: Final = pa.array([str(number) for number in range(256)], TEXT)
# As the kernel counts: none, ok, the device's errors.
_STATUSES: Final = pa.array([None, "ok", *(failure_of(error).text for error in range(256))], TEXT)


class Parsed(Struct, frozen=True):
    """`rows` of the frames are good packets, with these fields; of the others, `faults` has row, fault and offset."""

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

    def columns(self) -> dict[str, Any]:
        """The typed ones of `PACKETS`."""
        params = self.params
        return {
            "serial": column_of(TEXT, self.serial_ends, self.serials),
            "device_type": pa.array(self.device_types),
            "to_device": flags(params & opcodes.TO_DEVICE),
            "answer": flags(params & opcodes.ANSWER),
            "first": flags(params & opcodes.FIRST),
            "last": flags(params & opcodes.LAST),
            "zlib": flags(params & opcodes.ZIPPED),
            "sealed": flags(params & opcodes.SEALED),
            "receipt": flags(params & opcodes.RECEIPT),
            "command_no": pa.array(self.command_nos),
            "packet_no": pa.array(self.packet_nos),
            "data": column_of(BYTES, self.data_ends, self.data),
        }

    def packet(self, place: int) -> Packet:
        """The packet of `rows[place]`, as the codec gives it."""
        heads = (self.params, self.device_types, self.command_nos, self.packet_nos)
        params, device_type, command_no, packet_no = (int(head[place]) for head in heads)
        serial = self.serials[self.serial_ends[place] : self.serial_ends[place + 1]].tobytes().decode()
        data = self.data[self.data_ends[place] : self.data_ends[place + 1]].tobytes()
        return Packet(opcodes.VERSION, params, device_type, serial, command_no, packet_no, data)


def parse(frames: Any) -> Parsed:
    return Parsed(*parse_apostol(*bytes_and_offsets(frames)))


def words(parsed: Parsed, frames: Any) -> list[Fault]:
    nobody = np.zeros(len(frames), np.bool_)  # the direction is in the packet itself
    return faults_in_words(PROTOCOL, frames, nobody, parsed.faults[:, 0])


def said(parsed: Parsed) -> Any:
    """The packets as messages."""
    shapes, floats = shape_apostol(parsed.params, parsed.packet_nos, parsed.data_ends, parsed.data)
    hard = [_fields(parsed.packet(place)) for place in np.nonzero(shapes >= ODD_READINGS)[0].tolist()]
    kinds, statuses, text_ends, text, payload_ends, payload = describe_apostol(
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
    nothing = pa.nulls(len(parsed.rows), TEXT)
    columns = [
        _KINDS.take(pa.array(kinds)),
        _NAMES.take(pa.array((shapes == RECEIPT).astype(np.int8))),
        nothing,
        nothing,
        nothing,
        _NUMBERS.take(pa.array(parsed.command_nos)),
        _STATUSES.take(pa.array(statuses)),
        column_of(TEXT, text_ends, text),
        column_of(BYTES, payload_ends, payload),
        pa.array(np.zeros(len(statuses), np.int64), mask=statuses == 0),  # an answer is one command, whole
    ]
    return pa.record_batch(columns, SAID)


def decode_frames(frames: Any) -> tuple[Part, Parsed]:
    parsed = parse(frames)
    return Part(parsed.rows, said(parsed), words(parsed, frames)), parsed


def _fields(packet: Packet) -> bytes:
    """Made by the scalar codec, because their words or values take more than a loop."""
    text = row_of(to_message(packet, Sender.CLIENT))[_FIELDS]
    assert isinstance(text, str)  # noqa: S101 (a row's columns have different types)
    return text.encode()


def _array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)
