"""The Protocol object of redis."""

import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

from wirelake.errors import ProtocolError
from wirelake.protocols.calls import CallRules
from wirelake.protocols.context import SessionContext
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport
from wirelake.protocols.redis.client import ClientSession
from wirelake.protocols.redis.commands import COMMANDS
from wirelake.protocols.redis.constants import MARKERS
from wirelake.protocols.redis.frames import Aggregate, ClientFrame, Inline
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.redaction import redact, redact_many
from wirelake.protocols.redis.server import ServerSession
from wirelake.protocols.redis.session import SessionSettings, Settings
from wirelake.protocols.redis.splitter import CommandSplitter, ValueSplitter
from wirelake.protocols.redis.translation import LOSSES, SERVICE, from_message, to_message
from wirelake.protocols.redis.tree import dissect

# ── how requests and responses pair up

# These get one response for each name, out of the order of the other responses.
_SUBSCRIPTIONS: Final = ("subscribe", "unsubscribe", "psubscribe", "punsubscribe")
_AS_BASE64: Final = {b64encode(verb.encode()).decode(): verb for verb in _SUBSCRIPTIONS}
_UNSOLICITED: Final = "push"


def request_key(name: str, fields: dict[str, Any]) -> tuple[str, int]:
    """Return the correlation of a subscription, and the number of its responses."""
    return name, max(1, len(fields.get("topics", fields.get("patterns", ()))))


def response_key(name: str, fields: dict[str, Any]) -> str | None:
    """Return the correlation of a response to a subscription; of another push, one that no request has."""
    value = fields.get("value")
    verb = value[0] if isinstance(value, list) and value else None
    if isinstance(verb, str):
        verb = _AS_BASE64.get(verb, verb)
    if verb in _SUBSCRIPTIONS:
        return str(verb)
    return _UNSOLICITED if name == _UNSOLICITED else None


CALL_RULES: Final = CallRules(
    blank_names=("command", "inline"),
    events_are_responses=True,  # RESP 3 pushes the response to a subscription
    keyed_requests=_SUBSCRIPTIONS,
    request_key=request_key,
    keyed_responses=("array", _UNSOLICITED),
    response_key=response_key,
)


# ── the protocol


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    """Yield what speaks for RESP in a frame that decodes."""
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
    """Return a session that knows the number of its connection."""
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
    redact=redact,
    redact_many=redact_many,
    settings=Settings,
    server_session=server_session,
    client_session=ClientSession,
    state_machines={Sender.SERVER: ServerSession.state_machine, Sender.CLIENT: ClientSession.state_machine},
    calls=CALL_RULES,
    payload_service=SERVICE,
    is_login=is_login,
)
