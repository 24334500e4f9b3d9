"""Snappy for the contents of binary messages, once a login asked for it.

Compressed is what a message carries, never what it is routed by: the data of a data line, `ask` and `msg` of the
binary form, and its data without a name. Names, commands and keys stay as they are, and so does JSON, so that any
frame in the log can still be told from any other without knowing how its connection began.
"""

from collections.abc import Callable

import cramjam
from msgspec.structs import replace

from wirelake.errors import LimitError, ProtocolError
from wirelake.protocols.frame import Frame
from wirelake.protocols.sisnet.binary_form import BinaryAnswer, BinaryRequest
from wirelake.protocols.sisnet.data_line import DataLine
from wirelake.protocols.sisnet.limits import SISNET_INFLATED_BYTES_MAX

NAME = "snappy"
_CONTENTS: dict[type[Frame], tuple[str, ...]] = {
    DataLine: ("data",),
    BinaryRequest: ("ask", "data"),
    BinaryAnswer: ("msg", "data"),
}


def pack(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def unpack(data: bytes, bytes_max: int = SISNET_INFLATED_BYTES_MAX) -> bytes:
    """The head says how long the content is, so one that is too long is refused before it is unpacked."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > bytes_max:
            raise LimitError("sisnet_inflated_bytes_max", f"content of {size} bytes is over {bytes_max}", 0)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise ProtocolError("bad_snappy", f"content is not snappy: {error}", 0) from error


def pack_frame(frame: Frame) -> Frame:
    """The frame with its contents compressed; one that carries none stays as it is."""
    return _changed(frame, pack)


def unpack_frame(frame: Frame, bytes_max: int = SISNET_INFLATED_BYTES_MAX) -> Frame:
    return _changed(frame, lambda data: unpack(data, bytes_max))


def _changed(frame: Frame, change: Callable[[bytes], bytes]) -> Frame:
    contents = {name: getattr(frame, name) for name in _CONTENTS.get(type(frame), ())}
    changed = {name: change(data) for name, data in contents.items() if data is not None}
    return replace(frame, **changed) if changed else frame
