"""The Protocol object of magline."""

from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wirelake.errors import InputError
from wirelake.layout.splitting import LayoutSplitter
from wirelake.protocols.calls import CallRules
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.constants import RESUME_PROOF, Cmd, ErrorNumber
from wirelake.protocols.magline.frames import FRAMES, decode, make_splitter
from wirelake.protocols.magline.redaction import redact
from wirelake.protocols.magline.server import ServerSession
from wirelake.protocols.magline.session import SessionSettings, Settings
from wirelake.protocols.magline.translation import LOSSES, RULES, from_message, to_message
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Refusal, Transport

_SENT_BY = {
    Sender.CLIENT: frozenset((Cmd.SYN, Cmd.PIN, Cmd.REQ)),
    Sender.SERVER: frozenset((Cmd.ACK, Cmd.PON, Cmd.REP, Cmd.PSH)),
}


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    """Yield what speaks for magline in a frame that decodes."""
    yield from FRAMES.clues(frame, sender)
    found = decode(frame, sender)
    if not found.head_optional & ~(RESUME_PROOF if found.opcode == Cmd.SYN else 0):
        yield Clue(8, "no unknown optional bit is set")
    if found.opcode in _SENT_BY[sender]:
        yield Clue(2, f"{found.name} is what a {sender} sends")
    elif found.opcode in _SENT_BY[sender.other]:
        yield Clue(-8, f"but {found.name} is not what a {sender} sends")


def server_session(context: SessionContext) -> ServerSession:
    """Return a session with the gateway's stored X25519 key."""
    private = context.keys.private_key("magline", X25519PrivateKey.generate)
    if not isinstance(private, X25519PrivateKey):
        raise InputError("keys/magline.pem is not an X25519 key")
    settings = context.session_settings(SessionSettings, open=context.is_open, is_secure=context.is_secure)
    return ServerSession(context.now_s, private, context.random, settings)


def server_splitter(settings: Settings, _carrier: Carrier) -> LayoutSplitter:
    """Return a splitter with the limits of the settings."""
    return make_splitter(settings.message_bytes_max, settings.header_bytes_max)


PROTOCOL = Protocol(
    name="magline",
    title="magline: sealed requests, answers and pushes",
    transports=(Transport(Carrier.TCP, 9757, "magline"),),
    decoder_version=3,
    splitter=lambda _sender, _carrier: make_splitter(),
    decode=decode,
    dissect=FRAMES.dissect,
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
    refusal_codes={Refusal.NO_SESSION: ErrorNumber.UNKNOWN_SESSION},
    calls=CallRules(has_correlation=True, request_names=("SYN", "PIN", "REQ")),
    layout=FRAMES,
    message_rules=RULES,
)
