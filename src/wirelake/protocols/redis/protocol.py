"""RESP as one object."""

import re
from collections.abc import Iterator
from typing import Final

from wirelake.errors import ProtocolError
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport
from wirelake.protocols.redis.calls import CALL_RULES
from wirelake.protocols.redis.client import ClientSession
from wirelake.protocols.redis.commands import COMMANDS
from wirelake.protocols.redis.frames import Aggregate, ClientFrame, Inline
from wirelake.protocols.redis.losses import LOSSES
from wirelake.protocols.redis.opcodes import MARKERS
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.redis.session import SessionSettings, Settings
from wirelake.protocols.redis.splitter import CommandSplitter, ValueSplitter
from wirelake.protocols.redis.translation import SERVICE, from_message, to_message
from wirelake.protocols.redis.tree import dissect


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    found = decode(frame, sender)
    if isinstance(found, ClientFrame) and found.verb in COMMANDS:
        yield Clue(16, f"the command {found.verb.decode()}")
    if isinstance(found, Inline):
        yield Clue(1, "a line of words")
        return
    yield Clue(4, f"{MARKERS[frame[0]].name.lower()} begins with its sign")
    yield Clue(16, "lines that end in CR LF")
    if isinstance(found, Aggregate | ClientFrame) or frame[0] in b"$!=":
        yield Clue(16, "decimal lengths that fit to the byte")


def server_session(context: SessionContext) -> ServerSession:
    settings = context.session_settings(SessionSettings, open=context.is_open)
    return ServerSession(context.now_s, context.number, settings)


_LOGIN_BYTES: Final = re.compile(rb"auth|hello", re.IGNORECASE)


def is_login(command: bytes) -> bool:
    """Return whether a command, or bytes that resemble one, contains a password."""
    try:
        found = decode(command, Sender.CLIENT)
    except ProtocolError:
        return _LOGIN_BYTES.search(command) is not None
    return isinstance(found, ClientFrame) and found.verb in {b"auth", b"hello"}


PROTOCOL = Protocol(
    name="redis",
    aliases=("resp",),
    title="RESP: the protocol of redis",
    transports=(Transport(Carrier.TCP, 6380, "redis"),),
    decoder_version=1,
    splitter=lambda sender, _carrier: CommandSplitter() if sender is Sender.CLIENT else ValueSplitter(),
    decode=decode,
    dissect=dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    losses=LOSSES,
    settings=Settings,
    server_session=server_session,
    client_session=ClientSession,
    state_machines={Sender.SERVER: ServerSession.state_machine, Sender.CLIENT: ClientSession.state_machine},
    calls=CALL_RULES,
    payload_service=SERVICE,
    is_login=is_login,
)
