"""Bytes for people: which protocols they could belong to, and each frame as a tree of fields.

The command line and the browser's inspector show the same results. Offsets count from the first byte of the input.
"""

from typing import Any

from msgspec import Struct

from wirelake.errors import ProtocolError
from wirelake.protocols.frame import Sender
from wirelake.protocols.protocol import Carrier, Clue, Protocol
from wirelake.protocols.tree import Field, Tree

# ── identify

FRAMES_LOOKED_AT_MAX = 64
INCOMPLETE_BITS = -4.0  # a capture may end inside a frame
UNREADABLE_BITS = -24.0  # malformed bytes speak against the protocol


class Guess(Struct, frozen=True):
    """A protocol and a sender that bytes could be of, with the reasons."""

    protocol: str
    sender: Sender
    carrier: Carrier
    bits: float  # the larger, the less likely to be chance
    frames: int
    reasons: tuple[str, ...]


def identify(data: bytes, protocols: tuple[Protocol, ...]) -> list[Guess]:
    """Return the protocols that the bytes could be of, most likely first."""
    guesses: dict[tuple[str, Sender], Guess] = {}
    for protocol in protocols:
        for carrier in {transport.carrier: None for transport in protocol.transports}:
            for sender in Sender:
                guess = _guess(data, protocol, carrier, sender)
                best = guesses.get((protocol.name, sender))
                if guess.bits > 0 and (best is None or guess.bits > best.bits):
                    guesses[protocol.name, sender] = guess
    # A fraction of a bit decides nothing: then the order is that of the protocols, and clients come first.
    return sorted(guesses.values(), key=lambda guess: -round(guess.bits))


class Evidence(Struct, frozen=True):
    """What speaks for bytes being of a protocol, as far as they can be read."""

    clues: tuple[Clue, ...]
    frames: int
    failure: ProtocolError | None  # why the rest cannot be read
    is_whole: bool  # the bytes end with a frame

    @property
    def bits(self) -> float:
        return sum(clue.bits for clue in self.clues) if self.frames else 0.0


def weigh(data: bytes, protocol: Protocol, carrier: Carrier, sender: Sender) -> Evidence:
    """Return the evidence in the first frames."""
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)[:FRAMES_LOOKED_AT_MAX]
    clues: list[Clue] = []
    read = 0
    failure = splitter.failure
    for frame in map(splitter.bare, frames):
        try:
            protocol.decode(frame, sender)
            clues.extend(protocol.clues(frame, sender))
        except ProtocolError as error:
            failure = error
            break
        read += 1
    return Evidence(tuple(clues), read, failure, not splitter.rest and failure is None)


def _guess(data: bytes, protocol: Protocol, carrier: Carrier, sender: Sender) -> Guess:
    found = weigh(data, protocol, carrier, sender)
    clues = [*found.clues]
    if found.failure is not None:
        clues.append(Clue(UNREADABLE_BITS, f"but: {found.failure.text}"))
    elif not found.is_whole:
        clues.append(Clue(INCOMPLETE_BITS, "but the last frame is not whole"))
    bits = sum(clue.bits for clue in clues) if found.frames else 0.0
    reasons = tuple(dict.fromkeys(clue.text for clue in clues))
    return Guess(protocol.name, sender, carrier, bits, found.frames, reasons)


# ── inspect


class Inspection(Struct):
    """The frames of some bytes, as one tree each.

    `failure` is the first error, with its offset in the input: of a frame that cannot be decoded, or of a part of one.
    """

    protocol: str
    sender: Sender
    carrier: Carrier
    trees: list[Tree]
    failure: ProtocolError | None = None
    rest: bytes = b""  # bytes after the last complete frame


def inspect(data: bytes, protocol: Protocol, sender: Sender, carrier: Carrier | None = None) -> Inspection:
    """Split bytes into frames and dissect each. The default carrier is the first of the protocol."""
    carrier = carrier or next((transport.carrier for transport in protocol.transports), Carrier.TCP)
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)
    splitter.finish()
    trees = []
    start = 0
    for frame in frames:
        bare = splitter.bare(frame)
        prefix = len(frame) - len(bare)
        tree = _dissect(protocol, bare, sender)
        _shift(tree.root, start + prefix)
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


def _dissect(protocol: Protocol, frame: bytes, sender: Sender) -> Tree:
    try:
        return protocol.dissect(frame, sender)
    except ProtocolError as error:  # an installed protocol raised: show the bytes as they are
        raw = Field("bytes", 0, len(frame), frame)
        return Tree(Field(f"{protocol.name} frame", 0, len(frame), children=[raw]), error)


def _faults(tree: Tree) -> list[ProtocolError]:
    inside = [leaf.fault for leaf in tree.root.leaves() if leaf.fault is not None]
    return inside if tree.error is None else [tree.error, *inside]


def _shift(field: Field, by: int) -> None:
    field.offset += by
    if field.fault is not None:
        field.fault = field.fault.shift(by)
    for child in field.children:
        _shift(child, by)


def as_values(found: Inspection) -> dict[str, Any]:
    """Return an inspection as plain values for JSON, with bytes as hex."""
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
