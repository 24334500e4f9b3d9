"""A command's way into packets and back, without any memory: zlib, AES, split; join, open, inflate."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from wirelake.errors import EncodeError, LimitError, ProtocolError, SealError
from wirelake.protocols.apostol import crypto
from wirelake.protocols.apostol.frames import Packet
from wirelake.protocols.apostol.limits import APOSTOL_INFLATED_BYTES_MAX
from wirelake.protocols.apostol.opcodes import FIRST, LAST, SEALED, VERSION, ZIPPED

PACKETS_MAX: Final = 256  # packet_no is one byte


def join(parts: Mapping[int, bytes]) -> bytes:
    """The data of packets 0..k, by packet_no, in order."""
    return b"".join([parts[number] for number in range(len(parts))])


def open_command(
    data: bytes,
    params: int,
    device_type: int,
    serial: str,
    command_no: int,
    key: bytes | None,
    inflated_bytes_max: int = APOSTOL_INFLATED_BYTES_MAX,
) -> bytes:
    """The command in joined packets, in clear. Offsets in errors count from the first byte of `data`."""
    if params & SEALED:
        if key is None:
            raise SealError("no_key", "the command is sealed, and no key is known for this device", 0)
        data = crypto.unseal(data, key, crypto.associated_data(device_type, serial, command_no))
    return inflate(data, inflated_bytes_max) if params & ZIPPED else data


def inflate(data: bytes, bytes_max: int) -> bytes:
    """Never makes more than `bytes_max` (and one), whatever the data promises."""
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise ProtocolError("bad_zlib", f"not zlib data: {error}", 0) from error
    if len(inflated) > bytes_max:
        raise LimitError("inflated_bytes_max", f"the command inflates to more than {bytes_max} bytes", 0)
    if not inflater.eof:
        raise ProtocolError("bad_zlib", "the zlib data is cut off", len(data))
    if inflater.unused_data:
        at = len(data) - len(inflater.unused_data)
        raise ProtocolError("trailing", f"{len(inflater.unused_data)} bytes after the zlib data", at)
    return inflated


def build_packets(
    command: bytes,
    params: int,
    device_type: int,
    serial: str,
    command_no: int,
    data_bytes: int,
    seal_with: tuple[bytes, bytes] | None = None,
) -> list[Packet]:
    """The packets of a command, each with at most `data_bytes` of it.

    ZIPPED in `params` compresses, SEALED seals with the (key, nonce) given; FIRST and LAST are set here.
    """
    if params & ZIPPED:
        command = zlib.compress(command)
    if params & SEALED:
        if seal_with is None:
            raise EncodeError("to seal a command takes a key and a nonce")
        command = crypto.seal(command, *seal_with, crypto.associated_data(device_type, serial, command_no))
    pieces = [command[start : start + data_bytes] for start in range(0, len(command), data_bytes)] or [b""]
    if len(pieces) > PACKETS_MAX:
        raise EncodeError(f"a command of {len(command)} bytes does not fit {PACKETS_MAX} packets of {data_bytes}")
    return [
        Packet(VERSION, params | _place(number, pieces), device_type, serial, command_no, number, piece)
        for number, piece in enumerate(pieces)
    ]


def _place(number: int, pieces: Sequence[bytes]) -> int:
    return (0 if number else FIRST) | (LAST if number == len(pieces) - 1 else 0)
