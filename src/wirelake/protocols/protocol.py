"""What a protocol is: one object that the gateway, the pipeline, the command line and the browser all use."""

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from wirelake.message import Message
from wirelake.protocols.calls import CallRules
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.session import Session
from wirelake.protocols.splitter import Splitter
from wirelake.protocols.translation import Loss
from wirelake.protocols.tree import Tree


class Carrier(StrEnum):
    TCP = "tcp"
    UDP = "udp"
    WEBSOCKET = "websocket"


class Transport(Struct, frozen=True):
    """One way the protocol travels. `setting` is its key under [listen]."""

    carrier: Carrier
    port: int
    setting: str


class Clue(Struct, frozen=True):
    """A reason to believe that bytes are of this protocol.

    `bits` is how unlikely random bytes are to show it: a 16-bit checksum that is right is worth 16.
    """

    bits: float
    text: str


class Protocol(Struct, frozen=True):
    """`decoder_version` goes into every decoded row; raise it when `decode` or `to_message` give another result.

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
    server_session: type[Session] | None = None
    client_session: type[Session] | None = None
    calls: CallRules = CallRules()
    columns: str = ""  # module that decodes many frames at once: see `columnar.ColumnDecoder`
    reassembly: str = ""  # module that assembles commands from packets: see `reassembly.Reassembly`
    records: str = ""  # module that reads records from requests: see `records.RecordReader`
    payload_service: str = ""  # requests to this service, in any protocol, carry a frame of this one as their payload
    is_login: Callable[[bytes], bool] | None = None  # whether such a payload contains credentials
