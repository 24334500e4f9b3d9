"""Define an installed protocol whose codec fails: on some frames it raises, on others the process exits."""

import os
from typing import Any

from wirelake.message import Kind, Message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Protocol

RAISES, DIES = b"raise", b"die"


class Plain(Frame, frozen=True):
    name = "plain"
    data: bytes = b""


def decode(data: bytes, _sender: Sender) -> Plain:
    if data.startswith(RAISES):
        raise ZeroDivisionError(data)
    if data.startswith(DIES):
        os._exit(1)
    return Plain(data)


def to_message(frame: Any, _sender: Sender) -> Message:
    return Message(kind=Kind.EVENT, name="plain", payload=frame.data)


def unused(*_: Any) -> Any:
    raise NotImplementedError


PROTOCOL = Protocol(
    name="brittle",
    title="Brittle",
    transports=(),
    decoder_version=1,
    splitter=unused,
    decode=decode,
    dissect=unused,
    clues=unused,
    to_message=to_message,
    from_message=unused,
)
