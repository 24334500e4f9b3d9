"""What a subscriber gets, whatever protocol brought it."""

from msgspec import Struct

from wirelake.message import Message, Topic


class Notification(Struct, frozen=True):
    id: str  # what an ack refers to; empty where the protocol has none
    content: bytes
    type: int = 0
    at_ms: int = 0  # when it was published, milliseconds since 1970
    topic: str = ""  # empty where the protocol does not say it (comet)

    @property
    def text(self) -> str:
        """The content as UTF-8, with marks where it is none."""
        return self.content.decode("utf-8", "replace")


def notification_of(message: Message) -> Notification:
    topic = message.target.name if isinstance(message.target, Topic) else ""
    return Notification(message.id, message.payload, message.type, message.at_ms, topic)
