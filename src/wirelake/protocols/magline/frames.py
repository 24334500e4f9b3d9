"""magline frames: a head of 16 bytes, a message header, a body. Big-endian unless the first frame says otherwise.

 0       1       2       3
├───────┼───────┼───────┴───────┤
│ magic │version│      cmd      │   magic: 7F control, 7E data    version: 1    cmd: 1 to 9
├───────┴───────┼───────────────┤
│ head optional │  head length  │   bit 0 of a SYN: its message header begins with a resume proof
├───────────────┴───────────────┤
│              seq              │   the sender's count; in ACK, ERR, PON and REP that of what they answer
├───────────────────────────────┤
│         message length        │
├───────────────────────────────┤
│ message header (head length)  │   proof[32] where bit 0 of a SYN says so; all else is ignored
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

from wirelake.errors import EncodeError
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.magline.opcodes import MAGICS, RESUME_PROOF, VERSION, Cmd
from wirelake.protocols.magline.tree import dissect

HEAD_BYTES: Final = 16
KEY_BYTES: Final = 32
RANDOM_BYTES: Final = 32
SID_BYTES: Final = 16
SEALED_SID_BYTES: Final = 32
HMAC_BYTES: Final = 16
PROOF_BYTES: Final = 32
SEALED_HEAD_BYTES: Final = 4 + HMAC_BYTES  # what stands before the data of a REQ, REP or PSH
OPENED: Final = bytes(HMAC_BYTES)  # the hmac of a frame whose data is in clear, as the log keeps it

# By `little`.
_HEAD = (Layout(">BBHHHII"), Layout("<BBHHHII"))
_U32 = (Layout(">I"), Layout("<I"))


class MaglineFrame(Frame, frozen=True, kw_only=True):
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
    """Asks for a connection; with a sid, for the old session on it, and `header` then begins with the proof."""

    name = "SYN"
    cmd = Cmd.SYN
    client_random: bytes
    client_public: bytes
    sid: bytes = b""

    @property
    def proof(self) -> bytes | None:
        """The resume proof, or what stands in its place; None where the SYN says that it has none."""
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
    """`data` is sealed as on the wire, or in clear when the hmac is zero, as the log keeps it."""

    business_cmd: int
    hmac: bytes
    data: bytes

    @property
    def sealed(self) -> bool:
        return self.hmac != OPENED

    def _body(self) -> bytes:
        return self._u32(self.business_cmd) + _sized(self.hmac, HMAC_BYTES) + self.data

    def before_hmac(self) -> bytes:
        """Head, message header and business_cmd as on the wire: what the hmac covers beside the data."""
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
    """One whole frame, head included, as the splitter cuts it off."""
    read = _READ.get(frame[:4])
    if read is not None:
        try:
            found = read(frame)
        except struct_error:  # shorter than what it must hold
            found = None
        if found is not None:
            return found
    raise dissect(frame, sender).error or AssertionError("the tree takes what decode refuses")


# Readers take a frame whose first four bytes are known to be good; for bad lengths they answer None or raise.
Reader = Callable[[bytes], MaglineFrame | None]


def _sealed(kind: type[SealedFrame], little: bool) -> Reader:
    order = "<" if little else ">"
    whole = Layout(order + "4xHHIII16s")  # without a message header, the usual case, one read gives it all
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
    """A body of one of these layouts, told apart by their size."""
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
    """The first four bytes of such a frame."""
    return bytes((MAGICS[cmd], VERSION)) + cmd.to_bytes(2, "little" if little else "big")


_READ: dict[bytes, Reader] = {
    prefix(cmd, little): read for little in (False, True) for cmd, read in _readers(little).items()
}


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise EncodeError(f"{len(value)} bytes where the frame has {size}")
    return value
