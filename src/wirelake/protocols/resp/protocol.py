"""RESP as one object."""

from collections.abc import Iterator

from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport
from wirelake.protocols.resp.client import ClientSession
from wirelake.protocols.resp.commands import COMMANDS
from wirelake.protocols.resp.frames import Aggregate, ClientFrame, Inline
from wirelake.protocols.resp.losses import LOSSES
from wirelake.protocols.resp.opcodes import MARKERS
from wirelake.protocols.resp.reader import decode
from wirelake.protocols.resp.server import ServerSession
from wirelake.protocols.resp.splitter import CommandSplitter, ValueSplitter
from wirelake.protocols.resp.translation import from_message, to_message
from wirelake.protocols.resp.tree import dissect


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


PROTOCOL = Protocol(
    name="resp",
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
    server_session=ServerSession,
    client_session=ClientSession,
)
