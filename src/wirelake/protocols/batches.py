"""Runs of like frames that are handled together, without decoding each of them.

Decoding, translating and encoding a frame costs far more than passing it on. Both kinds of batch have the outcome that
their frames would have one by one.

- `PublishBatch`: notifications for one topic that arrived in one read (`Session.receive_many`). Where the frame that
  publishes and the frame that delivers have the same body (redis: `PUBLISH name content`, `message name content`), the
  bytes are cut and joined, and a message is made only for a subscriber that speaks another protocol.
- `TelemetryBatch`: reports of many devices that arrived together (`Protocol.telemetry_reader`).
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from wirelake.message import Failure, Message
from wirelake.protocols.frame import Frame


class PublishBatch:
    """Frames that publish on `topic`, in their order. A session returns it in `Step.batch`: see `receive_many`."""

    __slots__ = ("correlation", "frames", "topic")

    def __init__(self, topic: str, frames: list[bytes], correlation: str = "") -> None:
        """`correlation` is that of the request for all frames of the batch, if `topic` is durable."""
        self.topic = topic
        self.frames = frames
        self.correlation = correlation

    @property
    def is_durable(self) -> bool:
        return self.topic.startswith("@")

    def contents(self) -> list[bytes]:
        """Return the content of each frame."""
        raise NotImplementedError

    def encoded(self, encoding_key: Hashable) -> bytes | None:
        """Return the bytes for subscribers with this encoding key; None if messages have to be encoded."""
        raise NotImplementedError

    def messages(self) -> list[Message]:
        """Return a notification for each frame."""
        raise NotImplementedError

    def reply(self, receivers: int) -> bytes:
        """Return the reply to each frame of a live topic that reached so many subscribers."""
        raise NotImplementedError

    def refusal(self, failure: Failure) -> bytes:
        """Return the reply to each frame of a live topic if it is refused."""
        raise NotImplementedError


class ReportStream:
    """The reports of one device that can be read in batches. `source` is whatever the gateway gave to `add`."""

    __slots__ = ("source",)

    def __init__(self, source: Any) -> None:
        self.source = source


class TelemetryBatch:
    """Consecutive frames of one size: `joined` has them one after the other, `streams` has the stream of each.

    Call `accept` once, after the frames are logged; then `messages`; and `withdraw` if those could not be published.
    """

    __slots__ = ("counts", "frame_bytes", "joined", "reply_bytes", "streams")

    def __init__(self, joined: bytes, frame_bytes: int, streams: Sequence[ReportStream], reply_bytes: int) -> None:
        self.joined = joined
        self.frame_bytes = frame_bytes
        self.streams = streams
        self.counts = Counter(streams)
        self.reply_bytes = reply_bytes  # of each reply

    def accept(self, now_s: float) -> list[int]:
        """Remember the reports, to recognise those that are sent again. Return the indexes of repeats."""
        raise NotImplementedError

    def messages(self, now_s: float) -> Iterator[tuple[ReportStream, Message]]:
        """Yield the messages of the reports that are no repeats."""
        raise NotImplementedError

    def replies(self) -> bytes:
        """Return the acknowledgements of all frames, one after the other."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Forget the reports that are no repeats: they were not published, and must be accepted when sent again."""
        raise NotImplementedError


class TelemetryReader:
    """Finds runs of reports. There is one for all sessions of a protocol."""

    def can_add(self, source: Any, frame: Frame) -> bool:
        """Return whether reports like this one could be read in batches, and are not yet."""
        raise NotImplementedError

    def add(self, source: Any, session: Any, frame: Frame) -> None:
        """Read reports like this one, of this session, in batches from now on."""
        raise NotImplementedError

    def remove(self, source: Any) -> None:
        """Decode the reports of this source one by one from now on."""
        raise NotImplementedError

    def read(self, frames: Sequence[bytes], start: int, frames_max: int) -> TelemetryBatch | None:
        """Return the run of reports that begins at `start`; None if the frame there has to be decoded."""
        raise NotImplementedError
