"""The Protocol object of comet."""

from collections.abc import Iterator

from cryptography.hazmat.primitives.asymmetric import rsa

from wirelake.errors import InputError
from wirelake.protocols.comet.client import ClientSession
from wirelake.protocols.comet.constants import ErrorCode
from wirelake.protocols.comet.crypto import RSA_BITS, RSA_EXPONENT
from wirelake.protocols.comet.frames import FRAMES
from wirelake.protocols.comet.server import ServerSession
from wirelake.protocols.comet.session import SessionSettings, Settings
from wirelake.protocols.comet.translation import LOSSES, RULES, from_message, to_message
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Refusal, Transport


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    """Yield what speaks for comet in a frame that decodes."""
    yield from FRAMES.clues(frame, sender)
    if b"\x00\x02@" in frame or b"@" in frame[5:8]:
        yield Clue(6, "a topic name with its @")


def server_session(context: SessionContext) -> ServerSession:
    """Return a session with the gateway's stored RSA key."""
    private = context.keys.private_key("comet", lambda: rsa.generate_private_key(RSA_EXPONENT, RSA_BITS))
    if not isinstance(private, rsa.RSAPrivateKey):
        raise InputError("keys/comet.pem is not an RSA key")
    return ServerSession(context.now_s, private, context.random, context.session_settings(SessionSettings))


PROTOCOL = Protocol(
    name="comet",
    title="comet: notifications for phones",
    transports=(Transport(Carrier.TCP, 7334, "comet"),),
    decoder_version=1,
    splitter=lambda _sender, _carrier: FRAMES.splitter(),
    decode=FRAMES.decode,
    dissect=FRAMES.dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    losses=LOSSES,
    settings=Settings,
    server_session=server_session,
    client_session=ClientSession,
    state_machines={Sender.SERVER: ServerSession.state_machine, Sender.CLIENT: ClientSession.state_machine},
    refusal_codes={
        Refusal.INVALID: ErrorCode.TOKEN_WRONG,
        Refusal.BUSY: ErrorCode.SERVER_ERROR,
        Refusal.CONNECTED: ErrorCode.CONNECTED_ELSEWHERE,
    },
    second_session=lambda settings: settings.second,
    example=bytes.fromhex("000106"),  # a heartbeat
    layout=FRAMES,
    message_rules=RULES,
)
