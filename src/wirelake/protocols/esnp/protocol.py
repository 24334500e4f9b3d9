"""The Protocol object of esnp."""

from collections.abc import Iterator

from wirelake.protocols.calls import CallRules
from wirelake.protocols.context import SessionContext
from wirelake.protocols.esnp.client import ClientSession
from wirelake.protocols.esnp.constants import LINE_NAMES, LineType, line_name
from wirelake.protocols.esnp.contents import read_contents
from wirelake.protocols.esnp.frames import EsnpSplitter, decode
from wirelake.protocols.esnp.lines import LINES
from wirelake.protocols.esnp.redaction import redact
from wirelake.protocols.esnp.server import ServerSession
from wirelake.protocols.esnp.session import SessionSettings, Settings
from wirelake.protocols.esnp.translation import LOSSES, is_one_way, to_message
from wirelake.protocols.esnp.tree import dissect
from wirelake.protocols.esnp.writing import from_message
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport

_LINES_COUNTED_MAX = 8


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    """Yield what speaks for esnp in a message that decodes."""
    message = decode(frame, sender)
    if not message.lines:
        return  # four zero bytes are in any file
    yield Clue(20, "the lines' sizes lead to four zero bytes, and the message ends there")
    for line in message.lines[:_LINES_COUNTED_MAX]:
        if line.type in LINE_NAMES:
            yield Clue(4, f"a line {line_name(line.type)}")
    contents = read_contents(message)
    if contents.malformed is not None:
        yield Clue(-12, f"but: {contents.malformed.text}")
    elif any(line.type in (LineType.DATA, LineType.HEADER, LineType.ADDRESS) for line in message.lines):
        yield Clue(10, "names and values fill their lines exactly")


def server_session(context: SessionContext) -> ServerSession:
    """Return a session that knows the names of this node."""
    settings = context.session_settings(SessionSettings, open=context.is_open, node_names=_node_names(context))
    return ServerSession(context.now_s, settings)


def _node_names(context: SessionContext) -> frozenset[str]:
    """Return the names by which peers may address this node: alone, and with the listener's port."""
    names = {*context.node_names, context.address.host, *context.settings.hosts}
    names |= {f"{name}:{context.address.port}" for name in names}
    return frozenset(name.lower() for name in names)


def is_one_way_frame(frame: bytes) -> bool:
    """Return whether a frame of a client is a request to the gateway that expects no response, by its flags."""
    return is_one_way(read_contents(decode(frame, Sender.CLIENT)))


PROTOCOL = Protocol(
    name="esnp",
    title="esnp: requests to services",
    transports=(Transport(Carrier.TCP, 1080, "esnp"),),
    decoder_version=1,
    splitter=lambda _sender, _carrier: EsnpSplitter(),
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
    calls=CallRules(has_correlation=True, events_are_requests=False, is_one_way=is_one_way_frame),
    part_layout=LINES,
)
