"""Turn a command into packets and back, without any state: compress, seal and split; join, open and inflate.

The seal is AES-128-GCM with the device's own key:
sealed = nonce[12] | ciphertext and tag; associated data = u8 device_type | u8 n | serial[n] | u8 command_no
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wirelake.errors import EncodeError, LimitError, ProtocolError, SealError
from wirelake.protocols.apostol.constants import APOSTOL_INFLATED_BYTES_MAX, FIRST, LAST, SEALED, VERSION, ZIPPED
from wirelake.protocols.apostol.frames import Packet

KEY_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SERIAL_BYTES_MAX: Final = 0xFF  # its size is one byte
PACKETS_MAX: Final = 256  # packet_no is one byte


def join(parts: Mapping[int, bytes]) -> bytes:
    """Join the data of packets 0..k, given by packet_no, in order."""
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
    """Return the command in joined packets, in clear. Offsets in errors count from the first byte of `data`."""
    if params & SEALED:
        if key is None:
            raise SealError("no_key", "the command is sealed, and no key is known for this device", 0)
        data = unseal(data, key, associated_data(device_type, serial, command_no))
    return inflate(data, inflated_bytes_max) if params & ZIPPED else data


def inflate(data: bytes, bytes_max: int) -> bytes:
    """Decompress zlib data, and produce no more than `bytes_max` + 1 bytes, however much the data expands to."""
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
    """Return the packets of a command, each with at most `data_bytes` of it.

    ZIPPED in `params` compresses, SEALED seals with the (key, nonce) in `seal_with`; FIRST and LAST are set here.
    """
    if params & ZIPPED:
        command = zlib.compress(command)
    if params & SEALED:
        if seal_with is None:
            raise EncodeError("sealing a command requires a key and a nonce")
        command = seal(command, *seal_with, associated_data(device_type, serial, command_no))
    pieces = [command[start : start + data_bytes] for start in range(0, len(command), data_bytes)] or [b""]
    if len(pieces) > PACKETS_MAX:
        raise EncodeError(f"a command of {len(command)} bytes does not fit {PACKETS_MAX} packets of {data_bytes}")
    return [
        Packet(VERSION, params | _position_bits(number, pieces), device_type, serial, command_no, number, piece)
        for number, piece in enumerate(pieces)
    ]


def _position_bits(number: int, pieces: Sequence[bytes]) -> int:
    return (0 if number else FIRST) | (LAST if number == len(pieces) - 1 else 0)


# ── the seal


def associated_data(device_type: int, serial: str, command_no: int) -> bytes:
    """Return what the seal also covers: no command passes for another device's, or for one of another number."""
    name = serial.encode()
    if len(name) > SERIAL_BYTES_MAX:
        raise EncodeError(f"a serial of {len(name)} bytes exceeds the limit of {SERIAL_BYTES_MAX}")
    return bytes((device_type, len(name))) + name + bytes((command_no,))


def seal(command: bytes, key: bytes, nonce: bytes, associated: bytes) -> bytes:
    """Encrypt and authenticate a command. Use a nonce only once for each key."""
    return nonce + _cipher(key).encrypt(nonce, command, associated)


def unseal(sealed: bytes, key: bytes, associated: bytes) -> bytes:
    """Return the command in clear; raise SealError if it is not genuine."""
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise SealError("bad_seal", f"a sealed command of {len(sealed)} bytes is too short", len(sealed))
    try:
        return _cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag as error:
        raise SealError("bad_seal", "the command was changed on the way, or sealed with another key", 0) from error


def check_key(key: bytes) -> None:
    """Raise EncodeError unless this can be a device's key."""
    if len(key) != KEY_BYTES:
        raise EncodeError(f"the key of a device must have {KEY_BYTES} bytes, not {len(key)}")


def _cipher(key: bytes) -> AESGCM:
    check_key(key)
    return AESGCM(key)
