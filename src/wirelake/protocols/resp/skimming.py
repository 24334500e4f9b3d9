"""The fast way for publishers that send PUBLISH after PUBLISH on one name.

├──────────────────────┬──────────────────┬─────────────────────┤
│ *3 $7 PUBLISH        │ $n name          │ $n content          │   as it comes
│ *3 $7 message        │ $n name          │ $n content          │   as a RESP 2 subscriber gets it
│ >3 $7 message        │ $n name          │ $n content          │   in RESP 3
└──────────────────────┴──────────────────┴─────────────────────┘
"""

from collections.abc import Hashable
from operator import methodcaller
from typing import Final

from wirelake.errors import ProtocolError, StateError
from wirelake.limits import BROKER_TOPIC_CHARS_MAX, RESP_SKIMMED_BYTES_MAX
from wirelake.message import Kind, Message, Topic
from wirelake.protocols.bundle import Bundle
from wirelake.protocols.frame import Sender
from wirelake.protocols.resp.frames import Command
from wirelake.protocols.resp.opcodes import CRLF
from wirelake.protocols.resp.reader import decode

_HEAD: Final = b"*3\r\n$7\r\nPUBLISH\r\n"
_SKIP: Final = len(_HEAD)
_REACH: Final = 8  # frames looked at in one go, at first
_ends: Final = methodcaller("endswith", CRLF)
_OUT: Final[dict[Hashable, bytes]] = {
    "resp 2": b"*3\r\n$7\r\nmessage\r\n",
    "resp 3": b">3\r\n$7\r\nmessage\r\n",
}


class RespBundle(Bundle):
    """`_head_bytes` is how long the frames are up to the content's length."""

    __slots__ = ("_head_bytes",)

    def __init__(self, topic: str, frames: list[bytes], head_bytes: int) -> None:
        super().__init__(topic, frames)
        self._head_bytes = head_bytes

    def contents(self) -> list[bytes]:
        head_bytes = self._head_bytes
        return [frame[frame.index(CRLF, head_bytes) + 2 : -2] for frame in self.frames]

    def encoded(self, audience: Hashable) -> bytes | None:
        head = _OUT.get(audience)
        if head is None:
            return None
        together = b"".join(self.frames)
        if together.count(_HEAD) == len(self.frames):
            return together.replace(_HEAD, head)
        return head + head.join([frame[_SKIP:] for frame in self.frames])  # a content looks like a command

    def messages(self) -> list[Message]:
        topic = Topic(self.topic)
        return [Message(kind=Kind.NOTIFICATION, target=topic, payload=content) for content in self.contents()]


def skim(frames: list[bytes], start: int) -> RespBundle | None:
    """The run of commands from `start` on that publish on the same name; None if there is none."""
    first = frames[start]
    if not first.startswith(_HEAD):
        return None
    try:
        args = _args(first)
        topic = args[1].decode()
    except (ProtocolError, UnicodeDecodeError):
        return None  # it is refused when it is read
    if not 0 < len(topic) <= BROKER_TOPIC_CHARS_MAX or not topic.isprintable() or len(first) > RESP_SKIMMED_BYTES_MAX:
        return None
    head = first[: first.index(b"\r\n", _SKIP) + 2 + len(args[1]) + 2]  # up to the content's length
    return RespBundle(topic, frames[start : _end(frames, start + 1, head)], len(head))


def _end(frames: list[bytes], place: int, head: bytes) -> int:
    """Where the frames from `place` on end that publish on the same name. Looks further the longer that goes well."""
    begins, reach = methodcaller("startswith", head), _REACH
    while place < len(frames):
        some = frames[place : place + reach]
        if not (all(map(begins, some)) and all(map(_ends, some)) and max(map(len, some)) <= RESP_SKIMMED_BYTES_MAX):
            bad = (not (begins(each) and _ends(each) and len(each) <= RESP_SKIMMED_BYTES_MAX) for each in some)
            return place + list(bad).index(True)
        place += len(some)
        reach *= 4
    return place


def _args(frame: bytes) -> tuple[bytes, ...]:
    command = decode(frame, Sender.CLIENT)
    if not isinstance(command, Command):
        raise StateError("what begins like a command is one")
    return command.args
