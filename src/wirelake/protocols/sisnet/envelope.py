"""What surrounds a message: its names, and on TCP its size.

A size stands before a message on TCP, and before each field of the binary form:

      0 … 250       one byte
    251 … 505       FB  u8   size - 250
    506 … 65785     FC  u16  size - 250, little-endian
  65786 … 2³² - 1   FD  u32  size
      above         FE  u64  size

Each size has one encoding; any other encoding of the same number is refused, so that encoding what was decoded gives
the same bytes.

Every message begins with a name, which connects an answer to its request, and which relays read. A relay puts its own
name before a message that has one already, `oname:cname:{…}` or `oname:cname:B…`, and such a message is answered under
both names. The other forms would look like a data line there, so they are relayed under one name only. No form has more
than three names, because the bytes of a data line may begin like JSON.
"""

import re
from typing import ClassVar

from wirelake.errors import EncodeError, ProtocolError
from wirelake.layout import SizeEncoding
from wirelake.protocols.frame import Frame
from wirelake.protocols.sisnet.constants import SISNET_NAME_BYTES_MAX

# ── sizes

ONE_BYTE_MAX = 250
_FB, _FC, _FD, _FE = 0xFB, 0xFC, 0xFD, 0xFE
_FB_MAX = ONE_BYTE_MAX + 0xFF
_FC_MAX = ONE_BYTE_MAX + 0xFFFF
_FD_MAX = 0xFFFF_FFFF
_NUMBER_BYTES = {_FB: 1, _FC: 2, _FD: 4, _FE: 8}
_LEAST = {_FB: ONE_BYTE_MAX + 1, _FC: _FB_MAX + 1, _FD: _FC_MAX + 1, _FE: _FD_MAX + 1}


def size_width(first: int) -> int:
    """Return the length of a size, by its first byte; 0 for FF, which begins none."""
    return 1 if first <= ONE_BYTE_MAX else 1 + _NUMBER_BYTES.get(first, -1)


def read_size(data: bytes | bytearray, start: int) -> tuple[int, int]:
    """Read the size at `start`, and return it with its end."""
    if start >= len(data):
        raise ProtocolError("short", "a size is missing", len(data))
    first = data[start]
    if first <= ONE_BYTE_MAX:
        return first, start + 1
    end = start + size_width(first)
    if end == start:
        raise ProtocolError("size_form", "no size begins with FF", start)
    if end > len(data):
        raise ProtocolError("short", f"a size of {end - start} bytes is not whole", len(data))
    size = int.from_bytes(data[start + 1 : end], "little")
    if first <= _FC:
        size += ONE_BYTE_MAX
    if size < _LEAST[first]:
        raise ProtocolError("size_form", f"{size} is written shorter than with {first:02X}", start)
    return size, end


def write_size(size: int) -> bytes:
    if size <= ONE_BYTE_MAX:
        return bytes((size,))
    if size <= _FB_MAX:
        return bytes((_FB, size - ONE_BYTE_MAX))
    if size <= _FC_MAX:
        return bytes((_FC,)) + (size - ONE_BYTE_MAX).to_bytes(2, "little")
    if size <= _FD_MAX:
        return bytes((_FD,)) + size.to_bytes(4, "little")
    return bytes((_FE,)) + size.to_bytes(8, "little")


def sized(data: bytes) -> bytes:
    """Return data after its size."""
    return write_size(len(data)) + data


SIZE = SizeEncoding("size", lambda frame, start, _end: read_size(frame, start), write_size, ONE_BYTE_MAX)


# ── names

NAME = re.compile(rb"[^{}():]{0,%d}:" % SISNET_NAME_BYTES_MAX)
RELAYED_NAME = re.compile(
    rb"(?![BHR\[])[^{}():]{0,%d}:(?:(?!\[)[^{}():]{0,%d}:)?(?=[{\[])" % (SISNET_NAME_BYTES_MAX, SISNET_NAME_BYTES_MAX)
)
RELAYED_BINARY = re.compile(
    rb"(?:(?![BHR\[])[^{}():]{0,%d}:)(?:(?![BHR\[])[^{}():]{0,%d}:)?(?=B)"
    % (SISNET_NAME_BYTES_MAX, SISNET_NAME_BYTES_MAX)
)
SECTION = re.compile(rb"[^{}():]*:")
FORBIDDEN = re.compile(rb"[{}()]")


def own_name(message_name: str) -> str:
    """Return the relay's own name, the first of the names of an answer."""
    return message_name.partition(":")[0]


def can_name_binary(message_name: str) -> bool:
    """Return whether a binary message may follow these names."""
    first, colon, _ = message_name.partition(":")
    if not colon:
        return True
    head = message_name.encode() + b":"
    found = RELAYED_BINARY.match(head + b"B", len(first.encode()) + 1)
    return found is not None and found.end() == len(head)


def relayed(own: str, received: str) -> str:
    """Return both names for a request that was received under `received` and is relayed under `own`.

    Names beyond the third are joined with dots. The requester's name is left out if it would be ambiguous or is too
    long: the relay knows it anyway. Names that a binary message may follow, JSON may follow too.
    """
    first, colon, rest = received.partition(":")
    name = f"{own}:{first}{colon}{rest.replace(':', '.')}"
    return name if can_name_binary(name) else own


class SisnetFrame(Frame, frozen=True):
    """A message. `message_name` is the text before the first colon; in a relayed message, all of its names."""

    relayed_names: ClassVar[re.Pattern[bytes] | None] = None  # of forms that can have several names
    first_byte: ClassVar[bytes] = b""  # of what follows the names
    message_name: str

    def encode(self) -> bytes:
        return self._head() + self._rest()

    def _rest(self) -> bytes:
        raise NotImplementedError

    def _head(self) -> bytes:
        head = self.message_name.encode() + b":"
        if NAME.fullmatch(head) is not None:
            return head
        found = NAME.match(head)
        if found is not None and self.relayed_names is not None:
            found = self.relayed_names.match(head + self.first_byte, found.end())
            if found is not None and found.end() == len(head):
                return head
        raise EncodeError(f"not a message name: {self.message_name[:64]!r}")
