"""Define an installed protocol with a column decoder, records and call rules for the pipeline: a JSON object per frame.

Its modules for the pipeline are this one.
"""

from typing import Any

from wirelake.errors import ProtocolError
from wirelake.message import Kind, Message, Operation
from wirelake.protocols.calls import CallRules
from wirelake.protocols.columnar import DecodedFrames, decode_each
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Protocol
from wirelake.protocols.records import MessageFilter, WrittenRecord
from wirelake.protocols.splitter import DatagramSplitter
from wirelake.protocols.text import read_json
from wirelake.protocols.tree import Field, Tree

KIND = "record:installed"
LAYOUT = MessageFilter(Kind.CONTROL, name="layout")
WRITE = MessageFilter(Kind.REQUEST, op="write")
CREATE = MessageFilter(Kind.REQUEST, op="create")
SAMPLES = (b"{}",)
decoded_at_once: list[int] = []


class Document(Frame, frozen=True):
    name = "document"
    values: dict[str, Any]


def decode_frame(frame: bytes, _sender: Sender) -> Document:
    values = read_json(frame)
    if not isinstance(values, dict):
        raise ProtocolError("no_object", "not an object", 0)
    return Document(values)


def to_message(frame: Frame, sender: Sender) -> Message:
    assert isinstance(frame, Document)
    kind = Kind.REQUEST if sender is Sender.CLIENT else Kind.RESPONSE
    target = Operation("store", "write") if sender is Sender.CLIENT else None
    correlation = str(frame.values.get("no", ""))
    return Message(
        kind=kind, name="document", protocol="installed", correlation=correlation, target=target, fields=frame.values
    )


def from_message(message: Message, _sender: Sender) -> Frame:
    return Document(message.fields)


def decode(frames: Any, from_server: Any) -> DecodedFrames:
    decoded_at_once.append(len(frames))
    return decode_each(PROTOCOL, frames, from_server)


def layouts_of(_fields: Any) -> dict[str, Any]:
    return {}


def created_layout(_fields: Any) -> tuple[str, Any] | None:
    return None


def table_of(fields: dict[str, Any]) -> Any:
    return fields.get("table")


def read_records(fields: dict[str, Any], _payload: bytes | None, _layouts: Any, _created: Any) -> list[WrittenRecord]:
    return [WrittenRecord(fields["key"], fields["table"], None, {"value": value}) for value in fields["values"]]


PROTOCOL = Protocol(
    name="installed",
    title="installed",
    transports=(),
    decoder_version=3,
    splitter=lambda _sender, _carrier: DatagramSplitter(1000),
    decode=decode_frame,
    dissect=lambda frame, _sender: Tree(Field("document", 0, len(frame))),
    clues=lambda _frame, _sender: (),
    to_message=to_message,
    from_message=from_message,
    calls=CallRules(has_correlation=True),
    columns="pipeline.installed",
    records="pipeline.installed",
)
