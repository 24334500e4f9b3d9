"""Frames of one length, one behind the other: whoever has them so need not cut them for the log."""

from msgspec import Struct


class Alike(Struct, frozen=True, gc=False):
    joined: bytes
    frame_bytes: int

    def __len__(self) -> int:
        return len(self.joined) // self.frame_bytes

    def cut(self) -> list[bytes]:
        return [self.joined[at : at + self.frame_bytes] for at in range(0, len(self.joined), self.frame_bytes)]
