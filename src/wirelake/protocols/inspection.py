"""Bytes taken apart for people: every frame as a tree, with offsets counted from the first byte of the input.

The command line's `decode` and the browser's inspector show the same thing.
"""

from typing import Any

from msgspec import Struct

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.tree import Field, Tree


class Inspection(Struct):
    """`trees` holds one tree a frame. `failure` is the first fault, with its place in the input: a frame that cannot be
    read, or a part of one that cannot.
    """

    protocol: str
    sender: Sender
    carrier: Carrier
    trees: list[Tree]
    failure: ProtocolError | None = None
    rest: bytes = b""  # bytes that could not be cut into a frame


def inspect(data: bytes, protocol: Protocol, sender: Sender, carrier: Carrier | None = None) -> Inspection:
    carrier = carrier or next((transport.carrier for transport in protocol.transports), Carrier.TCP)
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)
    splitter.finish()
    trees = []
    start = 0
    for frame in frames:
        bare = splitter.bare(frame)
        prefix = len(frame) - len(bare)
        tree = _dissected(protocol, bare, sender)
        _move(tree.root, start + prefix)
        if prefix:
            tree.root.children.insert(0, Field("size", start, prefix, len(bare), "of the message that follows"))
            tree.root.offset, tree.root.size = start, len(frame)
        if tree.error is not None:
            tree.error = tree.error.shift(start + prefix)
        trees.append(tree)
        start += len(frame)
    faults = [fault for tree in trees for fault in _faults(tree)]
    failure = faults[0] if faults else splitter.failure
    return Inspection(protocol.name, sender, carrier, trees, failure, splitter.rest)


def _dissected(protocol: Protocol, frame: bytes, sender: Sender) -> Tree:
    try:
        return protocol.dissect(frame, sender)
    except ProtocolError as error:  # an added protocol's own fault: the bytes are shown as they are
        raw = Field("bytes", 0, len(frame), frame)
        return Tree(Field(f"{protocol.name} frame", 0, len(frame), children=[raw]), error)


def _faults(tree: Tree) -> list[ProtocolError]:
    inside = [leaf.fault for leaf in tree.root.leaves() if leaf.fault is not None]
    return inside if tree.error is None else [tree.error, *inside]


def _move(field: Field, by: int) -> None:
    field.offset += by
    if field.fault is not None:
        field.fault = field.fault.shift(by)
    for child in field.children:
        _move(child, by)


def as_values(found: Inspection) -> dict[str, Any]:
    """The same as plain values, for JSON; bytes as hex."""
    return {
        "protocol": found.protocol,
        "from": found.sender,
        "transport": found.carrier,
        "frames": [_field_values(tree.root) for tree in found.trees],
        "rest": found.rest.hex(),
        "error": _error_values(found.failure),
    }


def _field_values(field: Field) -> dict[str, Any]:
    values: dict[str, Any] = {"name": field.name, "offset": field.offset, "size": field.size}
    if field.value is not None:
        values["value"] = _plain(field.value)
    if field.note:
        values["note"] = field.note
    if field.children:
        values["children"] = [_field_values(child) for child in field.children]
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _error_values(error: ProtocolError | None) -> dict[str, Any] | None:
    return None if error is None else {"code": error.code, "message": error.text, "offset": error.offset}
