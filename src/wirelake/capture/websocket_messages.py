"""Take the messages out of a captured WebSocket connection: the handshake, then frames of both sides.

├───────┼───────┬───────────┬─────────┬─────────
│ flags │ M len │ more len  │ mask[4] │ payload
└───────┴───────┴───────────┴─────────┴─────────
          126: u16, 127: u64   if M
"""

import zlib
from typing import Final

from wirelake.errors import ProtocolError
from wirelake.limits import CAPTURE_HANDSHAKE_BYTES_MAX, CAPTURE_MESSAGE_BYTES_MAX
from wirelake.protocols.frame import Sender

_END: Final = b"\r\n\r\n"
_DATA: Final = {0, 1, 2}  # continuation, text, binary
_FIN, _COMPRESSED, _OPCODE, _MASKED = 0x80, 0x40, 0x0F, 0x80
_LENGTHS: Final = {126: 2, 127: 8}
_DEFLATE: Final = b"permessage-deflate"
_FLUSHED: Final = b"\x00\x00\xff\xff"


class WebSocketMessages:
    """Read one direction. `is_accepted` says of the server's whether it answered the handshake with 101."""

    def __init__(self, sender: Sender) -> None:
        self.is_open = False
        self.is_accepted = False
        self.position = 0  # of the first byte that is not part of a whole frame
        self._sender = sender
        self._held = bytearray()
        self._parts: list[bytes] = []  # of a message in several frames
        self._is_compressed = False
        self._inflater: zlib._Decompress | None = None
        self._forgets = False  # each message is compressed by itself

    @property
    def rest(self) -> bytes:
        return bytes(self._held)

    def receive(self, data: bytes) -> list[bytes]:
        """Return the messages that are complete now. Raise ProtocolError if this is no WebSocket."""
        self._held += data
        if not self.is_open and not self._handshake():
            return []
        messages: list[bytes] = []
        while (found := self._frame()) is not None:
            opcode_and_flags, payload = found
            if opcode_and_flags & _OPCODE not in _DATA:
                continue
            if opcode_and_flags & _OPCODE:
                self._is_compressed = bool(opcode_and_flags & _COMPRESSED)
            self._parts.append(payload)
            if sum(map(len, self._parts)) > CAPTURE_MESSAGE_BYTES_MAX:
                raise ProtocolError("message_bytes_max", "a WebSocket message is too long", self.position)
            if opcode_and_flags & _FIN:
                message, self._parts = b"".join(self._parts), []
                messages.append(self._inflate(message) if self._is_compressed else message)
        return messages

    def _handshake(self) -> bool:
        end = self._held.find(_END)
        if end < 0:
            if len(self._held) > CAPTURE_HANDSHAKE_BYTES_MAX:
                raise ProtocolError("websocket", "a WebSocket handshake without an end", self.position)
            return False
        head = bytes(self._held[:end])
        line, _, fields = head.partition(b"\r\n")
        if self._sender is Sender.SERVER:
            if b" 101 " not in line + b" ":
                raise ProtocolError("websocket", f"the server answered {line.decode('latin-1')!r}", self.position)
            self.is_accepted = True
        elif b"websocket" not in fields.lower():
            raise ProtocolError("websocket", f"no WebSocket, but {line.decode('latin-1')!r}", self.position)
        extensions = [each for each in fields.lower().split(b"\r\n") if each.startswith(b"sec-websocket-extensions:")]
        self._forgets = any(f"{self._sender}_no_context_takeover".encode() in each for each in extensions)
        self._take(end + len(_END))
        self.is_open = True
        return True

    def _frame(self) -> tuple[int, bytes] | None:
        held = self._held
        if len(held) < 2:
            return None
        size, start = held[1] & ~_MASKED, 2
        if more := _LENGTHS.get(size, 0):
            if len(held) < 2 + more:
                return None
            size, start = int.from_bytes(held[2 : 2 + more]), 2 + more
        if size > CAPTURE_MESSAGE_BYTES_MAX:
            raise ProtocolError("message_bytes_max", f"a WebSocket frame of {size} bytes", self.position)
        mask = b""
        if held[1] & _MASKED:
            mask, start = bytes(held[start : start + 4]), start + 4
        if len(held) < start + size:
            return None
        payload = bytes(held[start : start + size])
        if mask and size:
            repeated = mask * (size // 4 + 1)
            payload = (int.from_bytes(payload) ^ int.from_bytes(repeated[:size])).to_bytes(size)
        flags = held[0]
        self._take(start + size)
        return flags, payload

    def _inflate(self, message: bytes) -> bytes:
        if self._inflater is None or self._forgets:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            found = self._inflater.decompress(message + _FLUSHED, CAPTURE_MESSAGE_BYTES_MAX)
        except zlib.error as error:
            raise ProtocolError("websocket", f"a compressed WebSocket message: {error}", self.position) from error
        if self._inflater.unconsumed_tail:
            raise ProtocolError("message_bytes_max", "a compressed WebSocket message is too long", self.position)
        return found

    def _take(self, count: int) -> None:
        del self._held[:count]
        self.position += count
