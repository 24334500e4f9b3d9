"""The laws that hold for every protocol, as tests. This module needs Hypothesis, and `protocol_laws` also pytest.

One line in the test file of a protocol's package runs them all:

    test_laws = protocol_laws(PROTOCOL)

and another one checks known frames, from a file with one in each line: sender, name, hex, fields as JSON.

    test_captures = protocol_captures(PROTOCOL, Path(__file__).with_name("captures.hex"))

Frames are generated from the protocol's layout. For frames without a description, pass a strategy of your own. The
functions `check_…` take one input each, for tests with inputs of your own; they raise `LawError`.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from wirelake.errors import InputError, ProtocolError, StateError, TranslationError
from wirelake.message import Kind, Message
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.protocol import Carrier, Protocol
from wirelake.protocols.self_test import new_session
from wirelake.protocols.session import Session
from wirelake.protocols.splitter import CODEC_FAULT, Splitter
from wirelake.protocols.text import parse_hex, read_json, write_json
from wirelake.protocols.translation import Loss

if TYPE_CHECKING:
    from wirelake.layout import FrameSet

Sent = tuple[Frame, Sender]  # a frame, and the end of a connection that sends it

EXAMPLES: Final = 100  # of each law
BYTES_MAX: Final = 80  # of random bytes
FRAMES_MAX: Final = 4  # of a stream
CUTS_MAX: Final = 8  # of a stream
cuts: Final = st.lists(st.integers(min_value=0), max_size=CUTS_MAX)
_CAPTURE: Final = re.compile(r"(?P<sender>client|server) (?P<name>\S+) (?P<hex>[0-9a-f ]+) (?P<fields>[{\[].*)")
senders: Final = st.sampled_from(Sender)


class LawError(AssertionError):
    """A law that does not hold, and the bytes that show it."""

    def __init__(self, reason: str, data: bytes, sender: Sender) -> None:
        super().__init__(reason, data, sender)
        self.reason = reason
        self.data = data
        self.sender = sender

    def __str__(self) -> str:
        return f"{self.reason}; the {self.sender} sent {self.data.hex() or 'nothing'}"


class Law(Struct, frozen=True):
    """Something that must hold for a protocol. `run` tries that many examples, and raises LawError for the smallest."""

    name: str
    text: str
    run: Callable[[int], None]


def protocol_laws(
    protocol: Protocol, frames: st.SearchStrategy[Sent] | None = None, *, examples: int = EXAMPLES
) -> Callable[..., None]:
    """Return a test function for pytest that runs every law of a protocol, each as a test of its own."""
    import pytest  # noqa: PLC0415 (only tests need it)

    found = laws(protocol, frames)
    mark: pytest.MarkDecorator = pytest.mark.parametrize("law", found, ids=[law.name for law in found])

    @mark
    def test_law(law: Law) -> None:
        law.run(examples)

    return test_law


def protocol_captures(protocol: Protocol, file: Path) -> Callable[..., None]:
    """Return a test function for pytest that checks every captured frame of a file."""
    import pytest  # noqa: PLC0415 (only tests need it)

    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    mark: pytest.MarkDecorator = pytest.mark.parametrize("line", lines)

    @mark
    def test_capture(line: str) -> None:
        check_capture(protocol, line)

    return test_capture


def start_session(protocol: Protocol, **settings: Any) -> Session:
    """Return a new server session at time 0, for a conversation without sockets. The settings are the protocol's."""
    if protocol.server_session is None:
        raise StateError(f"{protocol.name} cannot be served")
    return new_session(protocol, protocol.server_session, **settings)


def laws(protocol: Protocol, frames: st.SearchStrategy[Sent] | None = None) -> list[Law]:
    """Return the laws of a protocol. Some need frames: from its layout, or from this strategy."""
    frames = frames if frames is not None else sent_frames(protocol)
    carriers = list(dict.fromkeys(each.carrier for each in protocol.transports)) or [Carrier.TCP]
    found = [
        Law("any bytes", "any bytes give frames, need more, or an error inside them", _any_bytes(protocol, carriers)),
        Law("one verdict", "decode and dissect agree, and the tree has every byte", _one_verdict(protocol, frames)),
    ]
    if frames is not None:
        found.insert(0, Law("round trip", "what is encoded decodes to the same", _round_trip(protocol, frames)))
        found.append(Law("translation", "what a message says comes back", _translation(protocol, frames)))
        if Carrier.TCP in carriers:
            found.insert(1, Law("any split", "any split gives the same frames", _any_split(protocol, frames)))
    if protocol.losses:
        found.append(Law("losses", "what is declared as lost is lost", _losses(protocol)))
    if protocol.layout is not None and protocol.layout.has_secrets:
        found.append(Law("secrets", "what is redacted has no secrets", _redaction(protocol)))
    has_columns = protocol.columns or (protocol.layout is not None and protocol.message_rules is not None)
    if has_columns and find_spec("numba") is not None:
        found.append(Law("columns", "columns equal decode, frame by frame", _columns(protocol, frames)))
    return found


def sent_frames(protocol: Protocol) -> st.SearchStrategy[Sent] | None:
    """Return a strategy for the frames of a protocol and who sends them; None if it has no layout."""
    if protocol.layout is None:
        return None
    sender_of = protocol.layout.sender_of
    return st.one_of(list(protocol.layout.strategies().values())).flatmap(
        lambda frame: st.tuples(st.just(frame), senders if sender_of(frame) is None else st.just(sender_of(frame)))
    )


# ── the laws, for one input


def check_round_trip(protocol: Protocol, frame: Frame, sender: Sender) -> None:
    """Check that an encoded frame decodes to the same, and that the tree agrees."""
    wire = frame.encode()
    try:
        found = protocol.decode(wire, sender)
    except ProtocolError as error:
        raise LawError(f"{frame} is refused: {error}", wire, sender) from error
    if found != frame:
        raise LawError(f"{frame} is decoded as {found}", wire, sender)
    check_verdict(protocol, wire, sender)


def check_split(
    protocol: Protocol, data: bytes, places: Sequence[int], sender: Sender, carrier: Carrier = Carrier.TCP
) -> None:
    """Check that a stream gives the same frames, and fails at the same byte, in whatever chunks it arrives."""
    whole = split_outcome(protocol.splitter(sender, carrier), [data])
    for chunks in (split_at(data, places), [bytes([byte]) for byte in data]):
        found = split_outcome(protocol.splitter(sender, carrier), chunks)
        if found != whole:
            raise LawError(
                f"chunks of {[len(chunk) for chunk in chunks]} bytes give {found}, not {whole}", data, sender
            )


def check_any_bytes(protocol: Protocol, data: bytes, sender: Sender, carrier: Carrier = Carrier.TCP) -> None:
    """Check that any bytes give frames, "need more" or a ProtocolError with an offset inside them, and nothing else."""
    splitter = protocol.splitter(sender, carrier)
    frames = splitter.receive(data)
    if splitter.failure is not None:
        _check_error(splitter.failure, data, sender)
    if b"".join(frames) + splitter.rest != data:
        raise LawError(f"the frames {frames} and the rest {splitter.rest!r} are not all bytes", data, sender)
    for frame in frames:
        if splitter.wrap(splitter.bare(frame)) != frame:
            raise LawError(f"{frame!r} is another frame without and with its prefix", data, sender)
        check_verdict(protocol, splitter.bare(frame), sender)
    check_verdict(protocol, data, sender)


def check_verdict(protocol: Protocol, frame: bytes, sender: Sender) -> None:
    """Check that decode and dissect both accept a frame, or both refuse it at the same byte for the same reason.

    A tree without an error accounts for every byte, once and in order.
    """
    error: ProtocolError | None = None
    try:
        decoded = protocol.decode(frame, sender)
    except ProtocolError as caught:
        error = caught
    tree = protocol.dissect(frame, sender)
    if error is not None:
        _check_error(error, frame, sender)
        if tree.error is None:
            raise LawError(f"decode refuses ({error}), dissect does not", frame, sender)
        if (tree.error.code, tree.error.offset) != (error.code, error.offset):
            raise LawError(f"decode refuses because of {error}, dissect because of {tree.error}", frame, sender)
        return
    if tree.error is not None:
        raise LawError(f"dissect refuses ({tree.error}), decode does not", frame, sender)
    place = 0
    for leaf in tree.root.leaves():
        if leaf.offset != place:
            raise LawError(f"{leaf.name} begins at {leaf.offset}, not {place}", frame, sender)
        place += leaf.size
    if place != len(frame):
        raise LawError(f"the tree ends at {place} of {len(frame)} bytes", frame, sender)
    list(protocol.clues(frame, sender))
    _message_of(protocol, decoded, sender)


def check_translation(protocol: Protocol, frame: Frame, sender: Sender) -> None:
    """Check that the message of a frame is refused, or says the same after another trip through a frame.

    Correlations, ids and sources are the session's to give. Left out are messages that have the kind and the name of
    the example of a declared loss, and those of frames that the protocol reads but does not understand.
    """
    message = _message_of(protocol, frame, sender)
    if message is None or (message.failure is not None and message.kind is not Kind.RESPONSE):
        return
    if (message.kind, message.name) in {(loss.example.kind, loss.example.name) for loss in protocol.losses}:
        return
    try:
        wire = protocol.from_message(message, sender).encode()
    except TranslationError:
        return
    try:
        found = _message_of(protocol, protocol.decode(wire, sender), sender)
    except ProtocolError as error:
        raise LawError(f"{message} is encoded as a frame that is refused: {error}", wire, sender) from error
    if found is None or _content(found) != _content(message):
        raise LawError(f"{message} becomes {found}", wire, sender)


def check_loss(protocol: Protocol, loss: Loss) -> None:
    """Check that a declared loss is what happens."""
    try:
        wire = protocol.from_message(loss.example, loss.sender).encode()
    except TranslationError:
        if loss.becomes is not None:
            raise
        return
    found = _message_of(protocol, protocol.decode(wire, loss.sender), loss.sender)
    if found != loss.becomes or found == loss.example:
        raise LawError(f"loss '{loss.what}': {loss.example} becomes {found}, not {loss.becomes}", wire, loss.sender)


def check_redaction(protocol: Protocol, frame: Any, sender: Sender) -> None:
    """Check that a redacted frame has the same length, decodes, and differs in its secrets only."""
    wire = frame.encode()
    blank = protocol.redact(wire, sender)
    if len(blank) != len(wire):
        raise LawError(f"{len(blank)} bytes are left of {len(wire)}", wire, sender)
    found = protocol.decode(blank, sender)
    for field in type(frame).__layout_fields__:
        before, after = getattr(frame, field.name), getattr(found, field.name)
        if not field.is_secret and after != before:
            raise LawError(f"{field.name} is no secret, but becomes {after!r}", wire, sender)
        if field.is_secret and isinstance(after, str | bytes) and set(after) - {"*", 0}:
            raise LawError(f"{field.name} is a secret, but becomes {after!r}", wire, sender)


def check_columns(protocol: Protocol, frames: Sequence[tuple[bytes, Sender]]) -> None:
    """Check that decoding columns of frames gives what decoding frame by frame gives."""
    import numpy as np  # noqa: PLC0415 (only protocols with columns need these)
    import pyarrow as pa  # noqa: PLC0415

    from wirelake.protocols.columnar import decode_each  # noqa: PLC0415
    from wirelake.protocols.kernel_columns import column_decoder  # noqa: PLC0415

    column = pa.array([frame for frame, _ in frames], pa.binary())
    from_server = np.array([sender is Sender.SERVER for _, sender in frames], np.bool_)
    wanted = decode_each(protocol, column, from_server)
    decoder = column_decoder(protocol)
    if decoder is None:
        return
    found = decoder.decode(column, from_server)
    reason = ""
    if found.rows.tolist() != wanted.rows.tolist() or found.refused != wanted.refused:
        reason = f"columns refuse {found.refused}, decode {wanted.refused}"
    elif not found.messages.equals(wanted.messages):
        reason = f"columns give {found.messages.to_pylist()}, decode {wanted.messages.to_pylist()}"
    if reason:
        raise LawError(reason, b"".join(frame for frame, _ in frames), frames[0][1])


def check_capture(protocol: Protocol, line: str) -> None:
    """Check that a captured frame decodes to the name and fields beside it, and encodes back byte for byte.

    A line is: sender, name of the frame, hex (spaces allowed), the fields as JSON with bytes as base64.
    """
    parts = _CAPTURE.fullmatch(line)
    if parts is None:
        raise InputError(f"a line is: sender, frame name, hex, fields as JSON, and not {line!r}")
    wire, sender = parse_hex(parts["hex"]), Sender(parts["sender"])
    frame = protocol.decode(wire, sender)
    found = read_json(write_json(frame))
    if frame.name != parts["name"] or found != read_json(parts["fields"].encode()):
        raise LawError(f"it decodes to {frame.name} {write_json(frame).decode()}", wire, sender)
    if frame.encode() != wire:
        raise LawError(f"it is encoded as {frame.encode().hex()}", wire, sender)


def one_order(frames: Sequence[Any]) -> list[Any]:
    """Return the frames in the byte order of the first, as a stream has them, if their order differs."""
    if not frames or "little" not in frames[0].__struct_fields__:
        return list(frames)
    return [replace(frame, little=frames[0].little) for frame in frames]


def split_at(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return `data` in chunks, cut at these places modulo its length."""
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(bounds)]


def split_outcome(splitter: Splitter, chunks: Sequence[bytes]) -> tuple[list[bytes], tuple[str, int] | None]:
    """Return all frames, and the code and offset of the failure."""
    frames = [frame for chunk in chunks for frame in splitter.receive(chunk)]
    failure = splitter.failure
    return frames, None if failure is None else (failure.code, failure.offset)


def with_checksum(layout: "FrameSet", wire: bytes) -> bytes:
    """Return changed bytes with the checksum that they need, so that more than the checksum is tested."""
    field = layout.envelope.checksum
    if field is None or field.checksum is None or field.size is None:
        return wire
    start, after = layout.envelope.covered(field)
    if len(wire) <= start + after:
        return wire
    checksum = field.checksum.compute(wire[start : len(wire) - after])
    return (
        wire[: len(wire) - after] + checksum.to_bytes(field.size, field.order) + wire[len(wire) - after + field.size :]
    )


def _check_error(error: ProtocolError, data: bytes, sender: Sender) -> None:
    if error.code == CODEC_FAULT:
        raise LawError(error.text, data, sender)
    if not 0 <= error.offset <= len(data):
        raise LawError(f"the offset of the error is not inside: {error}", data, sender)


def _message_of(protocol: Protocol, frame: Frame, sender: Sender) -> Message | None:
    """Return the message of a frame; None if the protocol has none for it."""
    try:
        return protocol.to_message(frame, sender)
    except TranslationError:
        return None


def _content(message: Message) -> tuple[Any, ...]:
    return (message.kind, message.target, message.fields, message.payload, message.failure, message.credentials)


# ── the laws, for many inputs


def _run(check: Callable[[Any], None], inputs: st.SearchStrategy[Any], examples: int) -> None:
    """Try examples. The one that fails last is the smallest."""
    tried = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )

    @tried
    @given(inputs)
    def attempt(given_input: Any) -> None:
        check(given_input)

    attempt()


def _round_trip(protocol: Protocol, frames: st.SearchStrategy[Sent]) -> Callable[[int], None]:
    return partial(_run, lambda sent: check_round_trip(protocol, *sent), frames)


def _any_split(protocol: Protocol, frames: st.SearchStrategy[Sent]) -> Callable[[int], None]:
    streams = st.tuples(st.lists(frames, max_size=FRAMES_MAX), st.binary(max_size=5), cuts, senders)

    def check(drawn: tuple[list[Sent], bytes, list[int], Sender]) -> None:
        sent, tail, places, sender = drawn
        wires = [frame.encode() for frame in one_order([frame for frame, by in sent if by is sender])]
        data = b"".join(wires) + tail
        check_split(protocol, data, places, sender)
        found = protocol.splitter(sender, Carrier.TCP).receive(data)
        if found[: len(wires)] != wires:
            raise LawError(f"the frames {wires} are split into {found}", data, sender)

    return partial(_run, check, streams)


def _any_bytes(protocol: Protocol, carriers: list[Carrier]) -> Callable[[int], None]:
    inputs = st.tuples(st.binary(max_size=BYTES_MAX), senders, st.sampled_from(carriers))
    return partial(_run, lambda drawn: check_any_bytes(protocol, *drawn), inputs)


def _one_verdict(protocol: Protocol, frames: st.SearchStrategy[Sent] | None) -> Callable[[int], None]:
    return partial(_run, lambda drawn: check_verdict(protocol, *drawn), _damaged(protocol, frames))


def _translation(protocol: Protocol, frames: st.SearchStrategy[Sent]) -> Callable[[int], None]:
    return partial(_run, lambda sent: check_translation(protocol, *sent), frames)


def _losses(protocol: Protocol) -> Callable[[int], None]:
    def check(_examples: int) -> None:
        for loss in protocol.losses:
            check_loss(protocol, loss)

    return check


def _redaction(protocol: Protocol) -> Callable[[int], None]:
    frames = sent_frames(protocol)
    assert frames is not None  # noqa: S101 (it has a layout)
    return partial(_run, lambda sent: check_redaction(protocol, *sent), frames)


def _columns(protocol: Protocol, frames: st.SearchStrategy[Sent] | None) -> Callable[[int], None]:
    inputs = st.lists(_damaged(protocol, frames), min_size=1, max_size=40)
    return partial(_run, lambda drawn: check_columns(protocol, drawn), inputs)


def _damaged(protocol: Protocol, frames: st.SearchStrategy[Sent] | None) -> st.SearchStrategy[tuple[bytes, Sender]]:
    """Return a strategy for frames, bytes that nearly are frames, and any bytes."""
    example = st.tuples(st.just(protocol.example), st.just(Sender.CLIENT))
    wires = example if frames is None else frames.map(lambda sent: (sent[0].encode(), sent[1]))
    any_bytes = st.tuples(st.binary(max_size=BYTES_MAX), senders)
    return st.one_of(any_bytes, wires, _damage(protocol, wires))


@st.composite
def _damage(
    draw: st.DrawFn, protocol: Protocol, wires: st.SearchStrategy[tuple[bytes, Sender]]
) -> tuple[bytes, Sender]:
    """Draw a frame that is cut off, has another byte, or is from the other end."""
    wire, sender = draw(wires)
    way = draw(st.sampled_from(["other end", "cut off", "too long", "changed", "changed, with a checksum"]))
    if way == "other end" or not wire:
        return wire, sender.other
    place = draw(st.integers(0, len(wire) - 1))
    if way in ("cut off", "too long"):
        return wire[:place] if way == "cut off" else wire + b"\0", sender
    wire = wire[:place] + bytes([draw(st.integers(0, 255))]) + wire[place + 1 :]
    if way == "changed" or protocol.layout is None:
        return wire, sender
    return with_checksum(protocol.layout, wire), sender
