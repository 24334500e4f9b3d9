"""magline frames: a head of 16 bytes, a message header, a body. Big-endian unless the first frame says otherwise.

 0       1       2       3
├───────┼───────┼───────┴───────┤
│ magic │version│      cmd      │   magic: 7F control, 7E data    version: 1    cmd: 1 to 9
├───────┴───────┼───────────────┤
│ head optional │  head length  │   bit 0 of a SYN: its message header begins with a resume proof
├───────────────┴───────────────┤
│              seq              │   the sender's count; in ACK, ERR, PON and REP that of the frame they answer
├───────────────────────────────┤
│         message length        │
├───────────────────────────────┤
│ message header (head length)  │   proof[32] if bit 0 of a SYN is set; anything else is ignored
├───────────────────────────────┤
│ body (message length)         │
└───────────────────────────────┘
SYN        client_random[32] | client_public[32] | nothing, or sid[16]
ACK        server_random[32] | server_public[32] | sealed_sid[32]
ERR        u32 business_cmd | u32 error_number
PIN PON    u32 ping_number
REQ REP PSH    u32 business_cmd | hmac[16] | data
FIN        u32 reason
"""

from collections.abc import Callable
from struct import Struct as Layout
from struct import error as struct_error
from typing import Any, ClassVar, Final

from wirelake.errors import EncodeError, LimitError, ProtocolError
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.magline.constants import (
    MAGICS,
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_MESSAGE_BYTES_MAX,
    RESUME_PROOF,
    VERSION,
    Cmd,
)
from wirelake.protocols.magline.tree import dissect
from wirelake.protocols.splitter import Splitter

HEAD_BYTES: Final = 16
KEY_BYTES: Final = 32
RANDOM_BYTES: Final = 32
SID_BYTES: Final = 16
SEALED_SID_BYTES: Final = 32
HMAC_BYTES: Final = 16
PROOF_BYTES: Final = 32
SEALED_HEAD_BYTES: Final = 4 + HMAC_BYTES  # before the data of a REQ, REP or PSH
OPENED: Final = bytes(HMAC_BYTES)  # hmac of a frame whose data is in clear text, as it is logged

# By `little`.
_HEAD = (Layout(">BBHHHII"), Layout("<BBHHHII"))
_U32 = (Layout(">I"), Layout("<I"))


class MaglineFrame(Frame, frozen=True, kw_only=True):
    """A frame of magline. `little` is its byte order."""

    cmd: ClassVar[Cmd]
    seq: int = 0
    head_optional: int = 0
    header: bytes = b""
    little: bool = False

    def _body(self) -> bytes:
        raise NotImplementedError

    def encode(self) -> bytes:
        body = self._body()
        return self._head(len(body)) + body

    def _head(self, size: int) -> bytes:
        cmd, header = self.cmd, self.header
        try:
            head = _HEAD[self.little].pack(MAGICS[cmd], VERSION, cmd, self.head_optional, len(header), self.seq, size)
        except struct_error as error:
            raise EncodeError(f"{self.name}: the head has no room for it: {error}") from error
        return head + header

    def _u32(self, value: int) -> bytes:
        try:
            return _U32[self.little].pack(value)
        except struct_error as error:
            raise EncodeError(f"{self.name}: {value} does not fit four bytes") from error


class Syn(MaglineFrame, frozen=True):
    """Request a connection. With a sid, resume that session; `header` then begins with the proof."""

    name = "SYN"
    cmd = Cmd.SYN
    client_random: bytes
    client_public: bytes
    sid: bytes = b""

    @property
    def proof(self) -> bytes | None:
        """Return the resume proof, even if it is too short; None if the SYN has none."""
        return self.header[:PROOF_BYTES] if self.head_optional & RESUME_PROOF else None

    def _body(self) -> bytes:
        sid = _sized(self.sid, SID_BYTES) if self.sid else b""
        return _sized(self.client_random, RANDOM_BYTES) + _sized(self.client_public, KEY_BYTES) + sid


class Ack(MaglineFrame, frozen=True):
    name = "ACK"
    cmd = Cmd.ACK
    server_random: bytes
    server_public: bytes
    sealed_sid: bytes

    def _body(self) -> bytes:
        return (
            _sized(self.server_random, RANDOM_BYTES)
            + _sized(self.server_public, KEY_BYTES)
            + _sized(self.sealed_sid, SEALED_SID_BYTES)
        )


class Err(MaglineFrame, frozen=True):
    name = "ERR"
    cmd = Cmd.ERR
    business_cmd: int
    error_number: int

    def _body(self) -> bytes:
        return self._u32(self.business_cmd) + self._u32(self.error_number)


class Pin(MaglineFrame, frozen=True):
    name = "PIN"
    cmd = Cmd.PIN
    ping_number: int

    def _body(self) -> bytes:
        return self._u32(self.ping_number)


class Pon(MaglineFrame, frozen=True):
    name = "PON"
    cmd = Cmd.PON
    ping_number: int

    def _body(self) -> bytes:
        return self._u32(self.ping_number)


class SealedFrame(MaglineFrame, frozen=True):
    """A frame with data: sealed as on the wire, or, if the hmac is zero, in clear text as it is logged."""

    business_cmd: int
    hmac: bytes
    data: bytes

    @property
    def sealed(self) -> bool:
        return self.hmac != OPENED

    def _body(self) -> bytes:
        return self._u32(self.business_cmd) + _sized(self.hmac, HMAC_BYTES) + self.data

    def before_hmac(self) -> bytes:
        """Return head, message header and business_cmd: what the hmac covers besides the data."""
        return self._head(SEALED_HEAD_BYTES + len(self.data)) + self._u32(self.business_cmd)


class Req(SealedFrame, frozen=True):
    name = "REQ"
    cmd = Cmd.REQ


class Rep(SealedFrame, frozen=True):
    name = "REP"
    cmd = Cmd.REP


class Psh(SealedFrame, frozen=True):
    name = "PSH"
    cmd = Cmd.PSH


class Fin(MaglineFrame, frozen=True):
    name = "FIN"
    cmd = Cmd.FIN
    reason: int

    def _body(self) -> bytes:
        return self._u32(self.reason)


def decode(frame: bytes, sender: Sender) -> MaglineFrame:
    """Decode one complete frame, including its head. Raise ProtocolError if it is malformed."""
    read = _READ.get(frame[:4])
    if read is not None:
        try:
            found = read(frame)
        except struct_error:  # shorter than what it must hold
            found = None
        if found is not None:
            return found
    raise dissect(frame, sender).error or AssertionError("the tree takes what decode refuses")


# A reader takes a frame whose first four bytes are valid. If a length is wrong, it returns None or raises.
Reader = Callable[[bytes], MaglineFrame | None]


def _sealed(kind: type[SealedFrame], little: bool) -> Reader:
    order = "<" if little else ">"
    whole = Layout(order + "4xHHIII16s")  # usually there is no message header, and one read is enough
    body = Layout(order + "I16s")

    def read(frame: bytes) -> SealedFrame | None:
        optional, header_size, seq, size, business_cmd, hmac = whole.unpack_from(frame)
        if HEAD_BYTES + header_size + size != len(frame):
            return None
        if not header_size:
            return kind(business_cmd, hmac, frame[36:], seq=seq, head_optional=optional, little=little)
        if size < SEALED_HEAD_BYTES:
            return None
        start = HEAD_BYTES + header_size
        business_cmd, hmac = body.unpack_from(frame, start)
        data, header = frame[start + SEALED_HEAD_BYTES :], frame[HEAD_BYTES:start]
        return kind(business_cmd, hmac, data, seq=seq, head_optional=optional, header=header, little=little)

    return read


def _fixed(kind: Callable[..., MaglineFrame], little: bool, *bodies: str) -> Reader:
    """Return a reader for bodies of these layouts, which differ in size."""
    order = "<" if little else ">"
    head = Layout(order + "4xHHII")
    by_size = {layout.size: layout for layout in (Layout(order + body) for body in bodies)}

    def read(frame: bytes) -> MaglineFrame | None:
        optional, header_size, seq, size = head.unpack_from(frame)
        start = HEAD_BYTES + header_size
        body = by_size.get(size)
        if body is None or start + size != len(frame):
            return None
        values: tuple[Any, ...] = body.unpack_from(frame, start)
        header = frame[HEAD_BYTES:start]
        return kind(*values, seq=seq, head_optional=optional, header=header, little=little)

    return read


def _readers(little: bool) -> dict[Cmd, Reader]:
    return {
        Cmd.SYN: _fixed(Syn, little, "32s32s", "32s32s16s"),
        Cmd.ACK: _fixed(Ack, little, "32s32s32s"),
        Cmd.ERR: _fixed(Err, little, "II"),
        Cmd.PIN: _fixed(Pin, little, "I"),
        Cmd.PON: _fixed(Pon, little, "I"),
        Cmd.REQ: _sealed(Req, little),
        Cmd.REP: _sealed(Rep, little),
        Cmd.PSH: _sealed(Psh, little),
        Cmd.FIN: _fixed(Fin, little, "I"),
    }


def prefix(cmd: Cmd, little: bool) -> bytes:
    """Return the first four bytes of a frame."""
    return bytes((MAGICS[cmd], VERSION)) + cmd.to_bytes(2, "little" if little else "big")


_READ: dict[bytes, Reader] = {
    prefix(cmd, little): read for little in (False, True) for cmd, read in _readers(little).items()
}


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise EncodeError(f"{len(value)} bytes where the frame has {size}")
    return value


# ── where frames end

_PREFIX_BYTES: Final = 4
# By `little`: the first four bytes as one number, head length and message length.
_LENGTHS = (Layout(">I2xH4xI"), Layout("<I2xH4xI"))
_PREFIXES = tuple(
    frozenset(int.from_bytes(prefix(cmd, little), "little" if little else "big") for cmd in Cmd)
    for little in (False, True)
)


class MaglineSplitter(Splitter):
    """Cut a stream by the lengths in the heads. The first frame sets the byte order; a later change is refused."""

    __slots__ = ("_little", "header_bytes_max", "message_bytes_max")

    def __init__(
        self,
        message_bytes_max: int = MAGLINE_MESSAGE_BYTES_MAX,
        header_bytes_max: int = MAGLINE_HEADER_BYTES_MAX,
    ) -> None:
        super().__init__(HEAD_BYTES + header_bytes_max + message_bytes_max)
        self.message_bytes_max = message_bytes_max
        self.header_bytes_max = header_bytes_max
        self._little: bool | None = None

    def _ends(self, buffer: bytes | bytearray, ends: list[int]) -> int:
        size, start, append = len(buffer), 0, ends.append
        if self._little is None:
            if size < _PREFIX_BYTES:
                return _PREFIX_BYTES
            self._little = buffer[3] == 0
        lengths, prefixes = _LENGTHS[self._little], _PREFIXES[self._little]
        header_max, message_max, limit = self.header_bytes_max, self.message_bytes_max, self.frame_bytes_max
        while start + HEAD_BYTES <= size:
            first, header, message = lengths.unpack_from(buffer, start)
            if first not in prefixes:
                raise self._bad_prefix(buffer, start)
            whole: int = HEAD_BYTES + header + message
            if header > header_max or message > message_max or whole > limit:
                raise self._over_limit(header, message, start)
            start += whole
            if start > size:
                return whole
            append(start)
        if start + _PREFIX_BYTES > size:
            return _PREFIX_BYTES
        # Refuse bytes that are no magline now, rather than after a whole head.
        if int.from_bytes(buffer[start : start + 4], "little" if self._little else "big") not in prefixes:
            raise self._bad_prefix(buffer, start)
        return HEAD_BYTES

    def _bad_prefix(self, buffer: bytes | bytearray, start: int) -> ProtocolError:
        begins = bytes(buffer[start : start + _PREFIX_BYTES])
        error = dissect(begins, Sender.CLIENT).error
        if error is None or error.code == "short":  # the four bytes are valid by themselves
            error = ProtocolError("byte_order", "the byte order changed within the stream", 2)
        return error.shift(start)

    def _over_limit(self, header: int, message: int, start: int) -> LimitError:
        if header > self.header_bytes_max:
            text = f"a message header of {header} bytes is over the limit of {self.header_bytes_max}"
            return LimitError("magline_header_bytes_max", text, start + 6)
        most = min(self.message_bytes_max, self.frame_bytes_max - HEAD_BYTES - header)
        text = f"a body of {message} bytes is over the limit of {most}"
        return LimitError("magline_message_bytes_max", text, start + 12)
