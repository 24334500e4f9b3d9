"""Define an installed protocol whose codec can be fixed while everything runs: the file that MENDED_CODEC names has the
number of its version, 1 if there is none.

    topic=payload    an event; version 1 takes it for `topic` with a capital letter, by mistake
    topic:payload    the same in another form, which version 1 does not know
    topic!payload    the same, which only version 1 takes
    device#tenths    telemetry; version 1 takes the tenths of a degree for degrees, and knows no unit
"""

import os
from pathlib import Path
from typing import Any

from wirelake.errors import ProtocolError
from wirelake.message import UNITS, Kind, Message, Topic
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Protocol


def version() -> int:
    file = Path(os.environ.get("MENDED_CODEC", "/nowhere"))
    return int(file.read_text()) if file.exists() else 1


class Version(int):
    """Format as the current version."""

    def __format__(self, _spec: str) -> str:
        return str(version())


class Said(Frame, frozen=True):
    name = "said"
    topic: str = ""
    payload: bytes = b""


class Measured(Frame, frozen=True):
    name = "measured"
    device: str = ""
    tenths: int = 0


def decode(data: bytes, _sender: Sender) -> Said | Measured:
    device, is_measured, tenths = data.partition(b"#")
    if is_measured:
        return Measured(device.decode(), int(tenths))
    for mark in (b"=", b"!") if version() == 1 else (b"=", b":"):
        topic, found, payload = data.partition(mark)
        if found:
            return Said(topic.decode().title() if version() == 1 else topic.decode(), payload)
    raise ProtocolError("no_topic", "nothing says what it is about", len(data))


def to_message(frame: Any, _sender: Sender) -> Message:
    if isinstance(frame, Measured):
        fields = {"celsius": frame.tenths / (1 if version() == 1 else 10)}
        headers = {} if version() == 1 else {UNITS: {"celsius": "°C"}}
        return Message(kind=Kind.TELEMETRY, name="measured", source=frame.device, fields=fields, headers=headers)
    return Message(kind=Kind.EVENT, name="said", target=Topic(frame.topic), payload=frame.payload)


def unused(*_: Any) -> Any:
    raise NotImplementedError


PROTOCOL = Protocol(
    name="mended",
    title="Mended",
    transports=(),
    decoder_version=Version(1),
    splitter=unused,
    decode=decode,
    dissect=unused,
    clues=unused,
    to_message=to_message,
    from_message=unused,
)
