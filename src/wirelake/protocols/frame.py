"""What all frames have in common, and who sent them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct


class Sender(StrEnum):
    """Which end of a connection the bytes came from. Devices, phones and terminals are clients."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> "Sender":
        return Sender.SERVER if self is Sender.CLIENT else Sender.CLIENT


class Frame(Struct, frozen=True, gc=False):  # frames hold no cycles, so the collector need not follow them
    """One unit of the wire, with every field that is on it and nothing that is not."""

    name: ClassVar[str]  # what the protocol's own document calls it

    def encode(self) -> bytes:
        """The bytes of the wire. Raises EncodeError for a value that they have no room for."""
        raise NotImplementedError


def encode_all(frames: Sequence[Frame]) -> list[bytes]:
    """Encode each; an answer that is given many times over, once."""
    encoded: list[bytes] = []
    last: Frame | None = None
    for frame in frames:
        encoded.append(frame.encode() if frame is not last else encoded[-1])
        last = frame
    return encoded
