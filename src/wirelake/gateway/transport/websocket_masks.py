"""WebSocket frames of clients that do not mask theirs, made readable for a library that insists on it.

A mask of zeros changes nothing, so it is enough to set the bit that says there is one and to put four zeros behind the
length. Frames that are masked, and the handshake before them, pass as they are.

├───────┼───────┬───────────┬──────────
│ flags │ M len │ more len  │ mask[4] if M, then the payload
└───────┴───────┴───────────┴──────────
           126: u16, 127: u64
"""

from typing import Final

_END_OF_HANDSHAKE: Final = b"\r\n\r\n"
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_NO_MASK: Final = bytes(_MASK_BYTES)
_LENGTH_BYTES: Final = {126: 2, 127: 8}


class Masking:
    """Give it what comes; it answers what to read instead. Holds back no more than a frame's head."""

    __slots__ = ("_head", "_payload_left", "_shaken", "_tail")

    def __init__(self) -> None:
        self._shaken = False
        self._tail = b""  # the last bytes of the handshake, where its end may be cut in two
        self._head = b""  # of a frame, not whole yet
        self._payload_left = 0

    def receive(self, data: bytes) -> bytes:
        if not self._shaken:
            return self._shake(data)
        parts: list[bytes] = []
        position = 0
        while position < len(data):
            if self._payload_left:
                piece = data[position : position + self._payload_left]
                self._payload_left -= len(piece)
                position += len(piece)
                parts.append(piece)
                continue
            self._head += data[position : position + 1]
            position += 1
            if len(self._head) >= 2 and len(self._head) == 2 + _LENGTH_BYTES.get(self._head[1] & ~_MASKED, 0):
                parts.append(self._begin(self._head))
                self._head = b""
        return b"".join(parts)

    def _shake(self, data: bytes) -> bytes:
        seen = self._tail + data
        end = seen.find(_END_OF_HANDSHAKE)
        if end < 0:
            self._tail = seen[-len(_END_OF_HANDSHAKE) + 1 :]
            return data
        self._shaken = True
        first = end + len(_END_OF_HANDSHAKE) - len(self._tail)
        return data[:first] + self.receive(data[first:])

    def _begin(self, head: bytes) -> bytes:
        """The head as it is to be read; what follows it is passed on uncounted up to the frame's end."""
        length = int.from_bytes(head[2:]) if len(head) > 2 else head[1] & ~_MASKED
        if head[1] & _MASKED:
            self._payload_left = _MASK_BYTES + length
            return head
        self._payload_left = length
        return head[:1] + bytes((head[1] | _MASKED,)) + head[2:] + _NO_MASK
