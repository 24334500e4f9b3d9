"""Bytes taken apart for people: every frame as a tree, with offsets counted from the first byte of the input.

The command line's `decode` and the browser's inspector show the same thing.
"""

from msgspec import Struct

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.tree import Field, Tree


class Inspection(Struct):
    """`trees` holds one tree a frame. `failure` is the first fault, with its place in the input."""

    protocol: str
    sender: Sender
    carrier: Carrier
    trees: list[Tree]
    failure: ProtocolError | None = None
    rest: bytes = b""  # bytes that could not be cut into a frame


def inspect(data: bytes, protocol: Protocol, sender: Sender, carrier: Carrier | None = None) -> Inspection:
    carrier = carrier or protocol.transports[0].carrier
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)
    splitter.finish()
    trees = []
    start = 0
    for frame in frames:
        bare = splitter.bare(frame)
        prefix = len(frame) - len(bare)
        tree = protocol.dissect(bare, sender)
        _move(tree.root, start + prefix)
        if prefix:
            tree.root.children.insert(0, Field("size", start, prefix, len(bare), "of the message that follows"))
            tree.root.offset, tree.root.size = start, len(frame)
        if tree.error is not None:
            tree.error = tree.error.moved(start + prefix)
        trees.append(tree)
        start += len(frame)
    faults = [tree.error for tree in trees if tree.error is not None]
    failure = faults[0] if faults else splitter.failure
    return Inspection(protocol.name, sender, carrier, trees, failure, splitter.rest)


def _move(field: Field, by: int) -> None:
    field.offset += by
    for child in field.children:
        _move(child, by)
