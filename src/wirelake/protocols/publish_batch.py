"""Many notifications for one name that came in one read, kept as they came.

Reading, translating and encoding each one costs far more than passing it on. Where the frame that publishes and the one
that delivers have the same body (redis: `PUBLISH name content`, `message name content`), the bytes are cut and joined,
and a message is made only for a subscriber that speaks something else.
"""

from collections.abc import Hashable

from wirelake.message import Message


class PublishBatch:
    """`frames` are the leading frames of a read, all publishing on `topic`."""

    __slots__ = ("frames", "topic")

    def __init__(self, topic: str, frames: list[bytes]) -> None:
        self.topic = topic
        self.frames = frames

    @property
    def durable(self) -> bool:
        return self.topic.startswith("@")

    def contents(self) -> list[bytes]:
        raise NotImplementedError

    def encoded(self, audience: Hashable) -> bytes | None:
        """The bytes for this audience; None if they have to be made from messages."""
        raise NotImplementedError

    def messages(self) -> list[Message]:
        raise NotImplementedError
