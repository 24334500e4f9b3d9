"""Dissect apostol packets: a tree with offsets. `dissect` also defines the error of a bad packet.

A wrong CRC takes precedence over any other error, but the fields are still shown as far as they can be read.
A command in one packet, not zipped and not sealed, is shown field by field; a malformed one stays raw, with a note,
because the packet around it is valid.
"""

from contextlib import suppress
from typing import Final

from fastcrc.crc16 import modbus

from wirelake.errors import ProtocolError
from wirelake.protocols.apostol.commands import (
    INTEGER_SIZES,
    Command,
    DeviceCommand,
    Reading,
    Status,
    parse_command,
    time_in_words,
)
from wirelake.protocols.apostol.constants import (
    COMMAND_NAMES,
    DEVICE_TYPE_NAMES,
    ERROR_NAMES,
    FIRST,
    LAST,
    RECEIPT,
    REQUEST_BIT,
    RESERVED,
    SEALED,
    TIME_SYNC_NAMES,
    TO_DEVICE,
    VERSION,
    ZIPPED,
    params_in_words,
)
from wirelake.protocols.frame import Sender
from wirelake.protocols.tree import Dissector, Tree

LENGTH_MIN: Final = 8  # version, params, device_type, n, command_no, packet_no, crc
LENGTH_MAX: Final = 0x7FFF
_WHOLE = FIRST | LAST


def dissect(frame: bytes, _sender: Sender) -> Tree:
    """Return the tree of a packet. The direction is in the packet itself."""
    dissector = Dissector(frame, "apostol packet", big_endian=False)
    try:
        _walk(dissector)
    except ProtocolError as error:
        return Tree(dissector.root, error)
    return Tree(dissector.root)


def _walk(d: Dissector) -> None:
    _length(d)
    stored = int.from_bytes(d.data[-2:], "little")
    computed = modbus(d.data[:-2])
    if computed == stored:
        _body(d)
        d.u16("crc", "right")
        return
    with suppress(ProtocolError):
        _body(d)
        d.u16("crc", f"should be {computed:#06x}")
    raise ProtocolError("crc", f"crc is {stored:#06x}, the bytes before it give {computed:#06x}", len(d.data) - 2)


def _length(d: Dissector) -> None:
    d.need(1, "length")
    low = d.data[0]
    if low < 0x80:
        size, length = 1, low
        if length < LENGTH_MIN:
            text = f"length {length}: the shortest packet has {LENGTH_MIN} bytes after it"
            raise ProtocolError("length_min", text, 0)
    else:
        d.need(2, "length")
        size, length = 2, low & 0x7F | d.data[1] << 7
        if length < 0x80:
            raise ProtocolError("length_form", f"length {length} in two bytes: one is enough", 0)
    d.add("length", size, length, "all bytes after it")
    if length != d.left:
        raise ProtocolError("length", f"length says {length}, the packet has {d.left}", 0)


def _body(d: Dissector) -> None:
    with d.window(d.left - 2):
        version = d.u8("version")
        if version != VERSION:
            raise ProtocolError("version", f"version {version}: there is only {VERSION}", d.position - 1)
        params = d.u8("params")
        if params & RESERVED:
            raise ProtocolError("params", "bit 7 of params is not zero", d.position - 1)
        d.note(params_in_words(params))
        device_type = d.u8("device_type")
        d.note(DEVICE_TYPE_NAMES.get(device_type, "not a known type"))
        d.text("serial", d.u8("serial size"))
        d.u8("command_no")
        packet_no = d.u8("packet_no")
        if params & RECEIPT:
            d.root.name = "apostol receipt"
            d.finish()
        else:
            _data(d, params, packet_no)


def _data(d: Dissector, params: int, packet_no: int) -> None:
    if params & (_WHOLE | ZIPPED | SEALED) != _WHOLE or packet_no:
        is_piece = params & _WHOLE != _WHOLE or packet_no != 0
        d.raw("data", d.left, "a piece of a command" if is_piece else "a command, zipped or sealed")
        return
    try:
        command = parse_command(d.data[d.position : d.end], to_device=bool(params & TO_DEVICE))
    except ProtocolError as error:
        d.malformed("data", d.left, f"not readable as a command: {error.text}", error)
        return
    with d.group("command"):
        _command(d, command)


def _command(d: Dissector, command: Command) -> None:
    name = COMMAND_NAMES.get(command.command_type & ~REQUEST_BIT, "not a known type")
    if not isinstance(command, DeviceCommand):
        d.u8("command_type", f"asks for {name}" if command.command_type & ~REQUEST_BIT in COMMAND_NAMES else name)
        d.raw("data", d.left)
        return
    d.u32("time", time_in_words(command.time))
    d.u8("command_type", name)
    d.u8("error", ERROR_NAMES.get(command.error, "not a known code"))
    match command.data:
        case Status() as status:
            _status(d, status)
        case tuple() as readings:
            _readings(d, readings)
        case _:
            d.raw("data", d.left)


def _status(d: Dissector, status: Status) -> None:
    d.u16("state")
    d.u8("tariff")
    d.u32("configured_at", "never" if status.configured_at == 0 else time_in_words(status.configured_at))
    d.u8("time_sync", TIME_SYNC_NAMES.get(status.time_sync, "not a known way"))
    d.u32("synced_at", time_in_words(status.synced_at))


def _readings(d: Dissector, readings: tuple[Reading, ...]) -> None:
    d.u8("count")
    for index, reading in enumerate(readings):
        with d.group(f"reading {index}"):
            d.u8("type")
            d.u8("size")
            if reading.size == 8:
                d.number("value", "d")
            elif reading.size in INTEGER_SIZES:
                d.add("value", reading.size, reading.value)
            else:
                d.raw("value", reading.size, "of no known size, kept as bytes")
