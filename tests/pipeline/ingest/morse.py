"""Define an added protocol: dots and dashes."""

from wirelake.errors import ProtocolError
from wirelake.message import Kind, Message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.splitter import DatagramSplitter
from wirelake.protocols.tree import Field, Tree


class Signs(Frame, frozen=True):
    name = "signs"
    signs: bytes


def decode(frame: bytes, _sender: Sender) -> Signs:
    for place, sign in enumerate(frame):
        if sign not in b".-":
            raise ProtocolError("no_sign", f"{sign} is no sign", place)
    return Signs(frame)


def to_message(frame: Frame, _sender: Sender) -> Message:
    assert isinstance(frame, Signs)
    return Message(kind=Kind.EVENT, name="signs", protocol="morse", payload=frame.signs, fields={"count": 3})


def from_message(message: Message, _sender: Sender) -> Frame:
    return Signs(message.payload)


PROTOCOL = Protocol(
    name="morse",
    title="morse",
    transports=(),
    decoder_version=7,
    splitter=lambda _sender, _carrier: DatagramSplitter(1000),
    decode=decode,
    dissect=lambda frame, _sender: Tree(Field("morse", 0, len(frame))),
    clues=lambda _frame, _sender: (),
    to_message=to_message,
    from_message=from_message,
)
