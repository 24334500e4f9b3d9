"""Compress the contents of binary messages by snappy, if the login requests it.

Only contents are compressed: the data of a data line, and `ask`, `msg` and data of the binary form. Names, commands,
keys and JSON are not, so that a frame in the log can be decoded without knowing the login of its connection.
"""

from collections.abc import Callable

import cramjam
from msgspec.structs import replace

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.frame import Frame
from wirelake.protocols.sisnet.binary import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.constants import SISNET_INFLATED_BYTES_MAX
from wirelake.protocols.sisnet.forms import DataLine

NAME = "snappy"
_CONTENTS: dict[type[Frame], tuple[str, ...]] = {
    DataLine: ("data",),
    BinaryRequest: ("ask", "data"),
    BinaryAnswer: ("msg", "data"),
}


def pack(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def unpack(data: bytes, bytes_max: int = SISNET_INFLATED_BYTES_MAX) -> bytes:
    """Decompress a content. One that is too long is refused before, by the length in its head."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise LimitError("sisnet_inflated_bytes_max", f"content of {size} bytes is over {bytes_max}", 0)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise ProtocolError("bad_snappy", f"content is not snappy: {error}", 0) from error


def pack_frame(frame: Frame) -> Frame:
    """Return the frame with its contents compressed."""
    return _changed(frame, pack)


def unpack_frame(frame: Frame, bytes_max: int = SISNET_INFLATED_BYTES_MAX) -> Frame:
    """Return the frame with its contents decompressed. Raise ProtocolError."""
    return _changed(frame, lambda data: unpack(data, bytes_max))


def _changed(frame: Frame, change: Callable[[bytes], bytes]) -> Frame:
    contents = {name: getattr(frame, name) for name in _CONTENTS.get(type(frame), ())}
    changed = {name: change(data) for name, data in contents.items() if data is not None}
    return replace(frame, **changed) if changed else frame
