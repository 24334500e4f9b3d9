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
from wirelake.limits import BROKER_TOPIC_CHARS_MAX
from wirelake.message import Kind, Message, Topic
from wirelake.protocols.frame import Sender
from wirelake.protocols.publish_batch import PublishBatch
from wirelake.protocols.redis.frames import Command
from wirelake.protocols.redis.limits import REDIS_SKIMMED_BYTES_MAX
from wirelake.protocols.redis.opcodes import CRLF
from wirelake.protocols.redis.reader import decode

_HEAD: Final = b"*3\r\n$7\r\nPUBLISH\r\n"
_SKIP: Final = len(_HEAD)
_REACH: Final = 8  # frames looked at in one go, at first
_ends: Final = methodcaller("endswith", CRLF)
_OUT: Final[dict[Hashable, bytes]] = {
    "resp 2": b"*3\r\n$7\r\nmessage\r\n",
    "resp 3": b">3\r\n$7\r\nmessage\r\n",
}


class RespBundle(PublishBatch):
    """`_head_bytes` is how long the frames are up to the content's length. `contents` may be known already."""

    __slots__ = ("_contents", "_head_bytes")

    def __init__(self, topic: str, frames: list[bytes], head_bytes: int, contents: list[bytes] | None = None) -> None:
        super().__init__(topic, frames)
        self._head_bytes = head_bytes
        self._contents = contents

    def contents(self) -> list[bytes]:
        if self._contents is not None:
            return self._contents
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
    if not 0 < len(topic) <= BROKER_TOPIC_CHARS_MAX or not topic.isprintable() or len(first) > REDIS_SKIMMED_BYTES_MAX:
        return None
    head = first[: first.index(b"\r\n", _SKIP) + 2 + len(args[1]) + 2]  # up to the content's length
    end, contents = _run(frames, start, head, first[: -len(args[2]) - len(CRLF)])
    return RespBundle(topic, frames[start:end], len(head), contents)


def _run(frames: list[bytes], place: int, head: bytes, whole_head: bytes) -> tuple[int, list[bytes] | None]:
    """Where the frames from `place` on end that publish on the same name; and their contents, if all have one length.

    Looks further the longer that goes well.
    """
    begins, reach = methodcaller("startswith", head), _REACH
    contents: list[bytes] | None = []
    while place < len(frames):
        some = frames[place : place + reach]
        alike = _alike(some, whole_head)
        if alike is None:
            contents = None
            if not (
                all(map(begins, some)) and all(map(_ends, some)) and max(map(len, some)) <= REDIS_SKIMMED_BYTES_MAX
            ):
                bad = (not (begins(each) and _ends(each) and len(each) <= REDIS_SKIMMED_BYTES_MAX) for each in some)
                return place + list(bad).index(True), None
        elif contents is not None:
            contents += alike
        place += len(some)
        reach *= 4
    return place, contents


def _alike(frames: list[bytes], head: bytes) -> list[bytes] | None:
    """The contents, if each frame is this head, up to the content, a content of one length, and an end."""
    together = b"".join(frames)
    content_bytes = len(frames[0]) - len(head) - len(CRLF)
    if not together.startswith(head) or not together.endswith(CRLF):
        return None
    # Between two contents lie an end and a head, and nowhere else: a content that looks so makes one piece too many.
    contents = together[len(head) : -len(CRLF)].split(CRLF + head)
    return contents if list(map(len, contents)) == [content_bytes] * len(frames) else None


def _args(frame: bytes) -> tuple[bytes, ...]:
    command = decode(frame, Sender.CLIENT)
    if not isinstance(command, Command):
        raise StateError("what begins like a command is one")
    return command.args
