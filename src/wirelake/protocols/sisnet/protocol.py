"""The Protocol object of sisnet."""

import re
from collections.abc import Iterator
from functools import partial

from wirelake.protocols.calls import CallRules
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport, WebSocketOptions
from wirelake.protocols.sisnet.binary import BinaryFrame
from wirelake.protocols.sisnet.client import ClientSession
from wirelake.protocols.sisnet.forms import DataLine, Json, Redis
from wirelake.protocols.sisnet.frames import SisnetMessageSplitter, SisnetTcpSplitter, decode
from wirelake.protocols.sisnet.redaction import redact
from wirelake.protocols.sisnet.server import ServerSession
from wirelake.protocols.sisnet.session import TCP_PORT, SessionSettings, Settings
from wirelake.protocols.sisnet.translation import LOSSES, from_message, is_request, to_message
from wirelake.protocols.sisnet.tree import dissect
from wirelake.protocols.splitter import Splitter

_KNOWN_KEYS = frozenset({"ask", "command", "service", "cmd", "argv", "ans", "msg", "fuc", "login", "logout"})
# JSON after one name, or after several if the gateway added its own
_AS_TEXT = re.compile(rb"(?:[^{}():]*:)(?:(?![BHR])[^{}():]*:){0,2}[{\[]")
_RESP = re.compile(rb"[*+\-:$_#,(!=%~>].*\r\n", re.DOTALL)


def splitter(_sender: Sender, carrier: Carrier) -> Splitter:
    return SisnetTcpSplitter() if carrier is Carrier.TCP else SisnetMessageSplitter()


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    """Yield what speaks for sisnet in a message that decodes."""
    found = decode(frame, sender)
    if found.message_name.isprintable():
        yield Clue(4, "a printable name and a colon")
    if isinstance(found, Json | BinaryFrame) and is_request(found, sender) is (sender is Sender.CLIENT):
        yield Clue(1, f"{'a request' if sender is Sender.CLIENT else 'an answer'} from a {sender}")
    match found:
        case Json():
            yield Clue(24, "JSON follows the name to the last byte")
            if isinstance(found.values, dict) and not _KNOWN_KEYS.isdisjoint(found.values):
                yield Clue(8, "with keys that sisnet has")
        case BinaryFrame():
            yield Clue(12, "the sizes of the binary form fit to the byte")
        case DataLine():
            if found.command.isalpha():
                yield Clue(6, "a data line's command, key and table")
        case Redis():
            if _RESP.fullmatch(found.content):
                yield Clue(16, "RESP after the letter R")


def server_session(context: SessionContext) -> ServerSession:
    return ServerSession(context.now_s, context.session_settings(SessionSettings, open=context.is_open))


def server_splitter(settings: Settings, carrier: Carrier) -> Splitter:
    bytes_max = settings.message_bytes_max
    return SisnetTcpSplitter(bytes_max) if carrier is Carrier.TCP else SisnetMessageSplitter(bytes_max)


def is_text(message: bytes) -> bool:
    """Return whether a message is sent as a WebSocket text message."""
    return _AS_TEXT.match(message) is not None


def websocket(settings: Settings) -> WebSocketOptions:
    return WebSocketOptions(
        settings.message_bytes_max, is_text, settings.lenient, settings.origins, origins_setting="sisnet.origins"
    )


PROTOCOL = Protocol(
    name="sisnet",
    title="sisnet: named requests, subscriptions and packed records for market data",
    transports=(Transport(Carrier.WEBSOCKET, 7329, "sisnet"), Transport(Carrier.TCP, TCP_PORT, "sisnet_tcp")),
    decoder_version=3,
    splitter=splitter,
    decode=decode,
    dissect=dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    losses=LOSSES,
    redact=redact,
    settings=Settings,
    server_session=server_session,
    client_session=ClientSession,
    state_machines={Sender.SERVER: ServerSession.state_machine, Sender.CLIENT: ClientSession.state_machine},
    server_splitter=server_splitter,
    websocket=websocket,
    upstreams=lambda settings: settings.upstreams,
    upstream_session=partial(ClientSession, relays=True),
    upstream_keep_s=lambda settings: settings.keep_s,
    streams_answers=True,
    data_sets=lambda settings: settings.data_sets,
    calls=CallRules(has_correlation=True, events_are_requests=False),
    records="wirelake.protocols.sisnet.record_reader",
)
