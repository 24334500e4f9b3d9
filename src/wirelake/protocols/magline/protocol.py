"""magline as one object."""

from collections.abc import Iterator

from wirelake.protocols.calls import CallRules
from wirelake.protocols.frame import Sender
from wirelake.protocols.magline.client import ClientSession
from wirelake.protocols.magline.frames import SealedFrame, decode
from wirelake.protocols.magline.opcodes import RESUME_PROOF, Cmd
from wirelake.protocols.magline.server import ServerSession
from wirelake.protocols.magline.splitter import MaglineSplitter
from wirelake.protocols.magline.translation import LOSSES, from_message, to_message
from wirelake.protocols.magline.tree import dissect
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport

_SAID_BY = {
    Sender.CLIENT: frozenset((Cmd.SYN, Cmd.PIN, Cmd.REQ)),
    Sender.SERVER: frozenset((Cmd.ACK, Cmd.PON, Cmd.REP, Cmd.PSH)),
}


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    found = decode(frame, sender)
    yield Clue(27, "magic, version and cmd fit together")
    yield Clue(20, "the message length fits to the byte")
    if not isinstance(found, SealedFrame):
        yield Clue(8, f"a body as long as that of a {found.name}")
    if not found.head_optional & ~(RESUME_PROOF if found.cmd is Cmd.SYN else 0):
        yield Clue(8, "no unknown optional bit is set")
    if found.cmd in _SAID_BY[sender]:
        yield Clue(2, f"{found.name} is what a {sender} says")
    elif found.cmd in _SAID_BY[sender.other]:
        yield Clue(-8, f"but {found.name} is not what a {sender} says")


PROTOCOL = Protocol(
    name="magline",
    title="magline: sealed requests, answers and pushes",
    transports=(Transport(Carrier.TCP, 9757, "magline"),),
    decoder_version=3,
    splitter=lambda _sender, _carrier: MaglineSplitter(),
    decode=decode,
    dissect=dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    losses=LOSSES,
    server_session=ServerSession,
    client_session=ClientSession,
    calls=CallRules(has_correlation=True, request_names=("SYN", "PIN", "REQ")),
)
