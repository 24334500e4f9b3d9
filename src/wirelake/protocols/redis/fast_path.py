"""Runs of PUBLISH on one topic, as one batch.

├──────────────────────┬──────────────────┬─────────────────────┤
│ *3 $7 PUBLISH        │ $n name          │ $n content          │   as it arrives
│ *3 $7 message        │ $n name          │ $n content          │   to a RESP 2 subscriber
│ >3 $7 message        │ $n name          │ $n content          │   to a RESP 3 subscriber
└──────────────────────┴──────────────────┴─────────────────────┘
"""

from collections.abc import Hashable
from operator import methodcaller
from typing import Final

from wirelake.errors import ProtocolError, StateError
from wirelake.limits import BROKER_TOPIC_CHARS_MAX
from wirelake.message import Failure, Kind, Message, Topic
from wirelake.protocols.batches import PublishBatch
from wirelake.protocols.frame import Sender
from wirelake.protocols.redis.constants import CRLF, REDIS_SKIMMED_BYTES_MAX
from wirelake.protocols.redis.frames import Command, SimpleError
from wirelake.protocols.redis.reader import decode
from wirelake.protocols.redis.translation import failure_text

_HEAD: Final = b"*3\r\n$7\r\nPUBLISH\r\n"
_SKIP: Final = len(_HEAD)
_REACH: Final = 8  # frames looked at in one go, at first
_ends: Final = methodcaller("endswith", CRLF)
_OUT: Final[dict[Hashable, bytes]] = {
    "resp 2": b"*3\r\n$7\r\nmessage\r\n",
    "resp 3": b">3\r\n$7\r\nmessage\r\n",
}


class RedisPublishBatch(PublishBatch):
    """`head_bytes` is the size of the part that all frames share: everything up to the length of the content."""

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

    def encoded(self, encoding_key: Hashable) -> bytes | None:
        head = _OUT.get(encoding_key)
        if head is None:
            return None
        joined = b"".join(self.frames)
        if joined.count(_HEAD) == len(self.frames):
            return joined.replace(_HEAD, head)
        return head + head.join([frame[_SKIP:] for frame in self.frames])  # a content looks like a command

    def messages(self) -> list[Message]:
        topic = Topic(self.topic)
        return [Message(kind=Kind.NOTIFICATION, target=topic, payload=content) for content in self.contents()]

    def reply(self, receivers: int) -> bytes:
        return b":%d\r\n" % receivers

    def refusal(self, failure: Failure) -> bytes:
        return SimpleError(failure_text(failure)).encode()


def publish_run(frames: list[bytes], start: int) -> RedisPublishBatch | None:
    """Return the run of commands from `start` on that publish on one topic; None if the first is no such command."""
    first = frames[start]
    if not first.startswith(_HEAD):
        return None
    try:
        args = _args(first)
        topic = args[1].decode()
    except (ProtocolError, UnicodeDecodeError):
        return None  # it is refused when it is decoded
    if not 0 < len(topic) <= BROKER_TOPIC_CHARS_MAX or not topic.isprintable() or len(first) > REDIS_SKIMMED_BYTES_MAX:
        return None
    head = first[: first.index(b"\r\n", _SKIP) + 2 + len(args[1]) + 2]  # up to the content's length
    end, contents = _run(frames, start, head, first[: -len(args[2]) - len(CRLF)])
    return RedisPublishBatch(topic, frames[start:end], len(head), contents)


def _run(frames: list[bytes], place: int, head: bytes, whole_head: bytes) -> tuple[int, list[bytes] | None]:
    """Return the end of the run from `place` on, and the contents of its frames if all of them have one length.

    Look at more frames at once the longer the run is.
    """
    begins, reach = methodcaller("startswith", head), _REACH
    contents: list[bytes] | None = []
    while place < len(frames):
        some = frames[place : place + reach]
        equal_contents = _contents_of_one_length(some, whole_head)
        if equal_contents is None:
            contents = None
            if not (
                all(map(begins, some)) and all(map(_ends, some)) and max(map(len, some)) <= REDIS_SKIMMED_BYTES_MAX
            ):
                bad = (not (begins(each) and _ends(each) and len(each) <= REDIS_SKIMMED_BYTES_MAX) for each in some)
                return place + list(bad).index(True), None
        elif contents is not None:
            contents += equal_contents
        place += len(some)
        reach *= 4
    return place, contents


def _contents_of_one_length(frames: list[bytes], head: bytes) -> list[bytes] | None:
    """Return the contents if every frame is this head, a content of the same length, and CRLF; else None."""
    joined = b"".join(frames)
    content_bytes = len(frames[0]) - len(head) - len(CRLF)
    if not joined.startswith(head) or not joined.endswith(CRLF):
        return None
    # Between two contents lie an end and a head, and nowhere else: a content that looks so makes one piece too many.
    contents = joined[len(head) : -len(CRLF)].split(CRLF + head)
    return contents if list(map(len, contents)) == [content_bytes] * len(frames) else None


def _args(frame: bytes) -> tuple[bytes, ...]:
    command = decode(frame, Sender.CLIENT)
    if not isinstance(command, Command):
        raise StateError("a frame that begins like a command is one")
    return command.args
