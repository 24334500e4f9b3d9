"""A peer without a connection: keeps what it is told, in a form that tests can look at."""

from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import Struct

from wirelake.errors import EncodeError
from wirelake.message import Kind, Message, Op, Operation, Topic, control
from wirelake.protocols.session import Closing

UNSAYABLE = b"unsayable"


class Habits(Struct, frozen=True):
    """How a protocol's peers behave."""

    protocol: str
    sends_acks: bool
    pulls_backlog: bool
    shared: bool = True  # whether peers of the protocol get the same bytes


COMET = Habits("comet", sends_acks=True, pulls_backlog=True)
SEALED_COMET = Habits("comet", sends_acks=True, pulls_backlog=True, shared=False)
MAGLINE = Habits("magline", sends_acks=True, pulls_backlog=False, shared=False)
ESNP = Habits("esnp", sends_acks=False, pulls_backlog=False)
REDIS = Habits("redis", sends_acks=False, pulls_backlog=False)


class Told(Struct, frozen=True):
    """A notification as a peer got it."""

    topic: str
    id: str
    content: bytes
    pattern: str = ""


class FakePeer:
    """Whatever is written to it is read at once, and has left the machine unless it is `stalled`."""

    def __init__(self, id: str, habits: Habits, identity: str = "") -> None:  # noqa: A002 the field's name
        self.id = id
        self.identity = identity
        self.protocol = habits.protocol
        self.sends_acks = habits.sends_acks
        self.pulls_backlog = habits.pulls_backlog
        self.encoding_key: Hashable | None = habits.protocol if habits.shared else None
        self.is_congested = False
        self.takes_commands = True
        self.takes_broadcasts = False
        self.is_admin = False
        self.address = ""
        self.stalled = False  # what is written stays in the machine's buffers
        self.bytes_in = self.bytes_written = self.bytes_drained = 0
        self.told: list[Told] = []
        self.heard: list[Message] = []  # answers and requests
        self.writes: list[bytes] = []
        self.ended: Closing | None = None

    def encode_notification(self, message: Message) -> bytes:
        if message.payload == UNSAYABLE:
            raise EncodeError("there is no room for this")
        assert isinstance(message.target, Topic)
        told = Told(message.target.name, message.id, message.payload, message.headers.get("pattern", ""))
        return msgspec.json.encode(told) + b"\n"

    def write(self, data: bytes) -> None:
        assert not self.is_congested, "a slow reader is not written to"
        assert data, "one write, with something in it"
        self.writes.append(data)
        self.bytes_written += len(data)
        if not self.stalled:
            self.bytes_drained = self.bytes_written
        for line in data.splitlines():
            self.note(msgspec.json.decode(line, type=Told))

    def send(self, message: Message) -> None:
        if message.kind is Kind.NOTIFICATION:
            self.write(self.encode_notification(message))
            return
        if message.payload == UNSAYABLE:
            raise EncodeError("there is no room for this")
        self.heard.append(message)

    def close(self, closing: Closing) -> None:
        self.ended = self.ended or closing

    def note(self, told: Told) -> None:
        self.told.append(told)

    # For assertions

    def contents(self, topic: str | None = None) -> list[bytes]:
        return [told.content for told in self.told if topic is None or told.topic == topic]

    def answers(self, correlation: str) -> list[Message]:
        return [each for each in self.heard if each.kind is Kind.RESPONSE and each.correlation == correlation]

    def asked(self) -> list[Message]:
        return [each for each in self.heard if each.kind is Kind.REQUEST]


def notification(topic: str, content: bytes, correlation: str = "") -> Message:
    return Message(kind=Kind.NOTIFICATION, target=Topic(topic), payload=content, correlation=correlation)


def request(service: str, correlation: str, **rest: Any) -> Message:
    return Message(kind=Kind.REQUEST, target=Operation(service, "do"), correlation=correlation, **rest)


def response(to: Message, **rest: Any) -> Message:
    return Message(kind=Kind.RESPONSE, correlation=to.correlation, **rest)


def asking(op: Op, correlation: str, **fields: Any) -> Message:
    return control(op, correlation=correlation, fields=fields)
