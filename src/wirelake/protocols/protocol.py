"""The protocol object, which the gateway, the pipeline, the command line and the browser all use.

A protocol defines everything that is its own. The core gets the installed protocols from the registry, and from each
its listeners, its section of the settings, its sessions and its tables; it names none of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from wirelake.message import Message
from wirelake.protocols.batches import TelemetryReader
from wirelake.protocols.calls import CallRules
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Session
from wirelake.protocols.settings import ProtocolSettings, UpstreamSettings
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.state_machine import StateMachine
from wirelake.protocols.translation import Loss
from wirelake.protocols.tree import Tree

if TYPE_CHECKING:
    # These use this module: they are imported for their names only.
    from wirelake.layout import FrameSet, MessageRules


class Carrier(StrEnum):
    TCP = "tcp"
    UDP = "udp"
    WEBSOCKET = "websocket"


class Transport(Struct, frozen=True):
    """A transport of the protocol, with its default port. `setting` is its key under [listen]."""

    carrier: Carrier
    port: int
    setting: str


class Clue(Struct, frozen=True):
    """A reason to believe that bytes are of this protocol.

    `bits` is how unlikely random bytes are to show it: a 16-bit checksum that is right is worth 16.
    """

    bits: float
    text: str


class WebSocketOptions(Struct, frozen=True):
    """How a protocol uses WebSockets."""

    message_bytes_max: int
    is_text: Callable[[bytes], bool] = lambda _frame: False  # whether a frame goes out as a text message
    lenient: bool = False  # accept clients that send no Host header, or do not mask their frames
    origins: tuple[str, ...] = ()  # pages of other sites that may connect, or "*" for all
    origins_setting: str = ""  # named when a page is refused


def unredacted(frame: bytes, _sender: Sender) -> bytes:
    """Return a frame as it is: the protocol has no secrets."""
    return frame


SecondSession = Literal["allow", "replace", "refuse"]


class Refusal(StrEnum):
    """Why a login is refused."""

    INVALID = "invalid"  # unknown name or wrong token: the peer is not told which
    BUSY = "busy"  # too many logins at once
    NO_SESSION = "no_session"  # there is no session to resume, or not for this peer
    CONNECTED = "connected"  # this identity has a session, and the protocol allows one


class DeviceCodes(Struct, frozen=True):
    """The numbers of a protocol for devices, with their names."""

    types: Mapping[int, str]  # of devices
    commands: Mapping[int, str]  # as a device reports them
    request_bit: int = 0  # added to a command's number in a request to the device


class ReadingName(Struct, frozen=True):
    """What a device measures under a number, and in which unit; "" if it has none or is not known."""

    name: str
    unit: str = ""

    @property
    def title(self) -> str:
        """Return the name with the unit, if there is one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


class Protocol(Struct, frozen=True):
    """Everything that the core needs to know about a protocol.

    `decoder_version` goes into every decoded row; raise it when `decode` or `to_message` return another result.

    `settings` is the section of wirelake.toml that has the protocol's name; the callables below that take settings get
    an instance of it. A protocol without `server_session` can be decoded, but not served.
    `redact` returns the bytes of a frame as they are logged: with the secrets of a login blanked, of the same length,
    and decodable if they were; the same object if there is nothing to blank. It also gets bytes that are no frame.
    Every frame is redacted, so it begins with a cheap test; `redact_many` may have a cheaper one for whole frames.
    Both come from the `layout`, if there is one and it has fields marked secret.
    `columns`, `reassembly` and `records` are names of modules that only the pipeline imports: they may need Numba.
    """

    name: str
    title: str
    transports: tuple[Transport, ...]
    decoder_version: int
    splitter: Callable[[Sender, Carrier], Splitter]
    decode: Callable[[bytes, Sender], Frame]
    dissect: Callable[[bytes, Sender], Tree]
    clues: Callable[[bytes, Sender], Iterable[Clue]]
    to_message: Callable[[Frame, Sender], Message]
    from_message: Callable[[Message, Sender], Frame]
    losses: tuple[Loss, ...] = ()
    redact: Callable[[bytes, Sender], bytes] = unredacted
    redact_many: Callable[[Sequence[bytes], Sender], Sequence[bytes]] | None = None
    aliases: tuple[str, ...] = ()  # earlier names: in old logs and tables, and still accepted where a name is given
    settings: type[ProtocolSettings] = ProtocolSettings
    server_session: Callable[[SessionContext], Session] | None = None
    client_session: type[Session] | None = None
    state_machines: Mapping[Sender, StateMachine] = MappingProxyType({})  # of the sessions, drawn into the docs
    server_splitter: Callable[[Any, Carrier], Splitter] | None = None  # limits from the settings; else `splitter`
    refusal_codes: Mapping[Refusal, int] = MappingProxyType({})  # in the protocol's own numbers; else 0
    second_session: Callable[[Any], SecondSession] = lambda _settings: "allow"  # for an identity that has a session
    websocket: Callable[[Any], WebSocketOptions] | None = None  # of a protocol with a WebSocket transport
    upstreams: Callable[[Any], tuple[UpstreamSettings, ...]] = lambda _settings: ()  # servers the gateway connects to
    upstream_session: Callable[[float], Session] | None = None  # for a connection to one of them
    upstream_keep_s: Callable[[Any], float] = lambda _settings: 0.0  # how long their answers are stored for latecomers
    data_sets: Callable[[Any], tuple[str, ...]] = lambda _settings: ()  # services with records, made by settings
    streams_answers: bool = False  # pushes go out under the name of the request; else as notifications of a topic
    # Return which device a frame is from; None if it names none, as a broadcast. Sessions are then the devices' and
    # not the connections': `server_session` makes a `DeviceSession`, and `settings` is a `DeviceSettings`.
    device_of: Callable[[Frame], str | None] | None = None
    telemetry_reader: Callable[[], TelemetryReader] | None = None  # reads runs of devices' reports as batches
    device_codes: DeviceCodes | None = None  # of a protocol for devices
    readings: Mapping[int, ReadingName] = MappingProxyType({})  # of devices, by type: see `reading_name`
    example: bytes = b""  # a frame from a client, for the documentation of the HTTP API
    calls: CallRules = CallRules()
    columns: str = ""  # module that decodes many frames at once: see `columnar.ColumnDecoder`
    reassembly: str = ""  # module that assembles commands from packets: see `reassembly.Reassembly`
    records: str = ""  # module that reads records from requests: see `records.RecordReader`
    payload_service: str = ""  # requests to this service, in any protocol, carry a frame of this one as their payload
    is_login: Callable[[bytes], bool] | None = None  # whether such a payload contains credentials
    # The description of its frames, if they are described: kernels, exports, docs and tests are derived from it.
    layout: "FrameSet | None" = None
    # The description of the parts that its frames consist of, if only those are described, for exports. A part may have
    # an opcode that is not described.
    part_layout: "FrameSet | None" = None
    # How described frames become messages, if `to_message` follows rules: then a kernel decodes columns of frames.
    message_rules: "MessageRules | None" = None

    def __post_init__(self) -> None:
        """Take `redact` from the description, unless the protocol has its own."""
        layout = self.layout
        if layout is not None and layout.has_secrets and self.redact is unredacted:
            force_setattr(self, "redact", layout.redact)
            force_setattr(self, "redact_many", layout.redact_many)

    @property
    def listeners(self) -> dict[str, tuple[Carrier, ...]]:
        """Return the keys under [listen], with the transports behind each; none if it cannot be served."""
        if self.server_session is None:
            return {}
        keys: dict[str, tuple[Carrier, ...]] = {}
        for transport in self.transports:
            keys[transport.setting] = (*keys.get(transport.setting, ()), transport.carrier)
        return keys

    def reading_name(self, kind: int) -> ReadingName:
        """Return the name and the unit of a device's readings of this type; "reading 12" if it is not a known one."""
        return self.readings.get(kind) or ReadingName(f"reading {kind}")

    def redact_all(self, frames: Sequence[bytes], sender: Sender) -> Sequence[bytes]:
        """Return frames as they are logged."""
        redact, redact_many = self.redact, self.redact_many
        if redact_many is not None:
            return redact_many(frames, sender)
        return frames if redact is unredacted else [redact(frame, sender) for frame in frames]
