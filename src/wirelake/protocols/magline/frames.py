"""magline frames: a head of 16 bytes, a message header, a body. Big-endian unless the first frame says otherwise.

The body of a REQ, REP or PSH is sealed on the wire. In the log it is opened: its hmac is zero, its data in clear text.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Final, cast

from wirelake.layout import (
    Body,
    Envelope,
    FrameSet,
    LayoutFrame,
    const,
    fixed,
    flags,
    length_of_body,
    limited,
    names,
    opcode,
    or_empty,
    order_shown_by,
    per_frame,
    rest_bytes,
    shown,
    sized_by,
    u8,
    u16,
    u32,
)
from wirelake.layout.splitting import LayoutSplitter
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.constants import (
    BUSINESS_NAMES,
    ERROR_NAMES,
    MAGIC_CONTROL,
    MAGIC_DATA,
    MAGLINE_HEADER_BYTES_MAX,
    MAGLINE_MESSAGE_BYTES_MAX,
    REASON_NAMES,
    RESUME_PROOF,
    USERS_FIRST,
    VERSION,
    Cmd,
)

HEAD_BYTES: Final = 16
KEY_BYTES: Final = 32
RANDOM_BYTES: Final = 32
SID_BYTES: Final = 16
SEALED_SID_BYTES: Final = 32
HMAC_BYTES: Final = 16
PROOF_BYTES: Final = 32
BUSINESS_CMD_BYTES: Final = 4
SEALED_HEAD_BYTES: Final = BUSINESS_CMD_BYTES + HMAC_BYTES  # before the data of a REQ, REP or PSH
OPENED: Final = bytes(HMAC_BYTES)  # hmac of a frame whose data is in clear text, as it is logged


class Head(
    Envelope,
    byte_order=order_shown_by("cmd"),  # 1 to 9, so the place of its zero byte shows it
    frame_bytes_max=HEAD_BYTES + MAGLINE_HEADER_BYTES_MAX + MAGLINE_MESSAGE_BYTES_MAX,
    limit_name="magline_message_bytes_max",
):
    magic: Annotated[u8, per_frame(code="bad_magic"), names({MAGIC_CONTROL: "control", MAGIC_DATA: "data"})]
    version: Annotated[u8, const(VERSION)]
    cmd: Annotated[u16, opcode()]
    head_optional: Annotated[u16, flags("in a SYN: a resume proof in the header")]
    head_length: Annotated[u16, limited(MAGLINE_HEADER_BYTES_MAX, "magline_header_bytes_max")]
    seq: u32  # the sender's count; in ACK, ERR, PON and REP that of the frame they answer
    message_length: Annotated[
        u32, length_of_body(code="length"), limited(MAGLINE_MESSAGE_BYTES_MAX, "magline_message_bytes_max")
    ]
    header: Annotated[bytes, sized_by("head_length")]
    body: Body


def business_name(number: int) -> str:
    return f"service magline/{number}" if number >= USERS_FIRST else BUSINESS_NAMES.get(number, "none")


def hmac_note(hmac: bytes) -> str:
    return "HMAC-SHA256, its first 16 bytes" if hmac != OPENED else "zero: opened, as the log keeps it"


BusinessCmd = Annotated[u32, shown(business_name)]


class MaglineFrame(LayoutFrame, frozen=True, kw_only=True, envelope=Head):
    """A frame of magline. `little` is its byte order."""

    magic: ClassVar[int] = MAGIC_CONTROL
    seq: int = 0
    head_optional: int = 0
    header: bytes = b""
    little: bool = False


class Syn(MaglineFrame, frozen=True, opcode=Cmd.SYN):
    """Request a connection. With a sid, resume that session; `header` then begins with the proof."""

    name = "SYN"
    client_random: Annotated[bytes, fixed(RANDOM_BYTES)]
    client_public: Annotated[bytes, fixed(KEY_BYTES)]
    sid: Annotated[bytes, fixed(SID_BYTES), or_empty] = b""

    @property
    def proof(self) -> bytes | None:
        """Return the resume proof, even if it is too short; None if the SYN has none."""
        return self.header[:PROOF_BYTES] if self.head_optional & RESUME_PROOF else None


class Ack(MaglineFrame, frozen=True, opcode=Cmd.ACK):
    """Accept a SYN, and name the session."""

    name = "ACK"
    server_random: Annotated[bytes, fixed(RANDOM_BYTES)]
    server_public: Annotated[bytes, fixed(KEY_BYTES)]
    sealed_sid: Annotated[bytes, fixed(SEALED_SID_BYTES)]


class Err(MaglineFrame, frozen=True, opcode=Cmd.ERR):
    """Refuse a frame."""

    name = "ERR"
    business_cmd: BusinessCmd
    error_number: Annotated[u32, names(ERROR_NAMES, "a service's own number")]


class Pin(MaglineFrame, frozen=True, opcode=Cmd.PIN):
    """Ask whether the other end is there."""

    name = "PIN"
    ping_number: u32


class Pon(MaglineFrame, frozen=True, opcode=Cmd.PON):
    """Answer a PIN."""

    name = "PON"
    ping_number: u32


class SealedFrame(MaglineFrame, frozen=True):
    """A frame with data: sealed as on the wire, or, if the hmac is zero, in clear text as it is logged."""

    magic: ClassVar[int] = MAGIC_DATA
    business_cmd: BusinessCmd
    hmac: Annotated[bytes, fixed(HMAC_BYTES), shown(hmac_note)]
    data: rest_bytes

    @property
    def sealed(self) -> bool:
        return self.hmac != OPENED

    def before_hmac(self) -> bytes:
        """Return head, message header and business_cmd: what the hmac covers besides the data."""
        return self.encode()[: HEAD_BYTES + len(self.header) + BUSINESS_CMD_BYTES]


class Req(SealedFrame, frozen=True, opcode=Cmd.REQ):
    """Call the gateway or a service."""

    name = "REQ"


class Rep(SealedFrame, frozen=True, opcode=Cmd.REP):
    """Answer a REQ."""

    name = "REP"


class Psh(SealedFrame, frozen=True, opcode=Cmd.PSH):
    """Send a notification."""

    name = "PSH"


class Fin(MaglineFrame, frozen=True, opcode=Cmd.FIN):
    """Close the connection."""

    name = "FIN"
    reason: Annotated[u32, names(REASON_NAMES, "not a known reason")]


FRAMES = FrameSet("magline", Head, [Syn, Ack, Err, Pin, Pon, Req, Rep, Psh, Fin])
decode = cast("Callable[[bytes, Sender], MaglineFrame]", FRAMES.decode)
dissect = FRAMES.dissect


def prefix(cmd: Cmd, little: bool) -> bytes:
    """Return the first four bytes of a frame."""
    kind = next(kind for kind in FRAMES.frames if kind.opcode == cmd)
    return FRAMES.envelope.in_order("little" if little else "big").prefix_of(kind)


def make_splitter(
    message_bytes_max: int = MAGLINE_MESSAGE_BYTES_MAX, header_bytes_max: int = MAGLINE_HEADER_BYTES_MAX
) -> LayoutSplitter:
    """Return a splitter with these limits for a frame's body and its message header."""
    limits = {"message_length": message_bytes_max, "head_length": header_bytes_max}
    return FRAMES.splitter(HEAD_BYTES + header_bytes_max + message_bytes_max, limits)
