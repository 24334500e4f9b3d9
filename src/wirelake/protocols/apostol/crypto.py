"""The seal of a command: AES-128-GCM with the device's own key.

sealed = nonce[12] | ciphertext and tag; associated data = u8 device_type | u8 n | serial[n] | u8 command_no
"""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wirelake.errors import EncodeError, SealError

KEY_BYTES: Final = 16
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SERIAL_BYTES_MAX: Final = 0xFF  # its size is one byte


def associated_data(device_type: int, serial: str, command_no: int) -> bytes:
    """What the seal also covers: a command cannot be passed off as another device's, or under another number."""
    name = serial.encode()
    if len(name) > SERIAL_BYTES_MAX:
        raise EncodeError(f"a serial of {len(name)} bytes: there is room for {SERIAL_BYTES_MAX}")
    return bytes((device_type, len(name))) + name + bytes((command_no,))


def seal(command: bytes, key: bytes, nonce: bytes, associated: bytes) -> bytes:
    """A nonce may be used once for each key."""
    return nonce + _cipher(key).encrypt(nonce, command, associated)


def unseal(sealed: bytes, key: bytes, associated: bytes) -> bytes:
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise SealError("bad_seal", f"a sealed command of {len(sealed)} bytes is too short", len(sealed))
    try:
        return _cipher(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag as error:
        raise SealError("bad_seal", "the command was changed on the way, or sealed with another key", 0) from error


def check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise EncodeError(f"a device's key has {KEY_BYTES} bytes, this has {len(key)}")


def _cipher(key: bytes) -> AESGCM:
    check_key(key)
    return AESGCM(key)
