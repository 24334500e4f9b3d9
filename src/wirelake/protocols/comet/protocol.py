"""comet as one object."""

from collections.abc import Iterator

from wirelake.protocols.comet.client import ClientSession
from wirelake.protocols.comet.frames import CometSplitter, decode
from wirelake.protocols.comet.server import ServerSession
from wirelake.protocols.comet.translation import LOSSES, from_message, to_message
from wirelake.protocols.comet.tree import dissect
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol, Transport


def clues(frame: bytes, sender: Sender) -> Iterator[Clue]:
    name = decode(frame, sender).name
    yield Clue(14, "the two-byte length fits to the byte")
    yield Clue(5, f"type {frame[2]} is {name} from a {sender}")
    if len(frame) > 3:
        yield Clue(6, "the strings inside fill the body exactly")
    if b"\x00\x02@" in frame or b"@" in frame[5:8]:
        yield Clue(6, "a topic name with its @")


PROTOCOL = Protocol(
    name="comet",
    title="comet: notifications for phones",
    transports=(Transport(Carrier.TCP, 7334, "comet"),),
    decoder_version=1,
    splitter=lambda _sender, _carrier: CometSplitter(),
    decode=decode,
    dissect=dissect,
    clues=clues,
    to_message=to_message,
    from_message=from_message,
    losses=LOSSES,
    server_session=ServerSession,
    client_session=ClientSession,
    columns="wirelake.protocols.comet.columns",
)
