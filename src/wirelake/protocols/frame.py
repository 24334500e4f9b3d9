"""The base of all frames, and who sent them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct


class Sender(StrEnum):
    """The end of a connection that sent the bytes. Devices, phones and terminals are clients."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> "Sender":
        """Return the opposite end."""
        return Sender.SERVER if self is Sender.CLIENT else Sender.CLIENT


class Frame(Struct, frozen=True, gc=False):  # frames hold no cycles, so the collector need not follow them
    """One unit of the wire, with exactly the fields that are on it."""

    name: ClassVar[str]  # as in the specification of the protocol
    is_reply: ClassVar[bool] = False  # of a `DeviceSession`: goes to where the frame came from that it answers

    def encode(self) -> bytes:
        """Return the bytes of the wire. Raise EncodeError for a value that does not fit."""
        raise NotImplementedError


def encode_all(frames: Sequence[Frame]) -> list[bytes]:
    """Encode the frames. One that repeats is encoded once."""
    encoded: list[bytes] = []
    last: Frame | None = None
    for frame in frames:
        encoded.append(frame.encode() if frame is not last else encoded[-1])
        last = frame
    return encoded
