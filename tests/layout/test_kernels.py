"""The generated kernel and the codec give the same rows and refusals, for every description and every input."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from gateway.installed_protocol import example
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pipeline.ingest.inputs import Sent

from layout import sampler
from layout.sampler import (
    PLAIN,
    SAMPLER,
    TURNED,
    WIDE,
    Begin,
    High,
    Lists,
    Login,
    Low,
    Marks,
    Nothing,
    Numbers,
    Parts,
    Point,
    Reply,
    Report,
    Texts,
    follows,
    frames_of,
    with_checksum,
)
from wirelake.errors import TranslationError
from wirelake.layout import (
    AtLeast,
    Attribute,
    Bit,
    Equals,
    FrameSet,
    InUnits,
    LayoutFrame,
    Listed,
    MessageRule,
    MessageRules,
    NonZero,
)
from wirelake.layout.fields import ByteOrder
from wirelake.message import Kind, Message, Op, Operation
from wirelake.protocols import kernel_columns, registry
from wirelake.protocols.columnar import decode_each
from wirelake.protocols.frame import Frame, Sender
from wirelake.protocols.guards import guard
from wirelake.protocols.kernel_columns import KernelDecoder, column_decoder, kernel_decoder
from wirelake.protocols.protocol import Protocol

CLIENT = Sender.CLIENT
ORDERS: tuple[ByteOrder, ...] = ("big", "little")
SAMPLER_RULES: dict[type[LayoutFrame], MessageRule] = {
    Numbers: MessageRule(Kind.TELEMETRY, correlation="seq"),
    Login: MessageRule(Kind.CONTROL, Op.LOGIN, credentials=("station", "token")),
    Texts: MessageRule(
        Kind.RESPONSE, correlation="seq", id="t16", type="seq", failure=("t8", ""), payload="b16", name="words"
    ),
    Lists: MessageRule(Kind.EVENT, correlation="seq"),
    Nothing: MessageRule(Kind.CONTROL, Op.PING, correlation="seq"),
}
PLAIN_RULES: dict[type[LayoutFrame], MessageRule] = {
    Report: MessageRule(
        Kind.REQUEST,
        service="weather",
        op=Attribute("station"),
        correlation="remark",
        fields={"values": "values", "remarks": Listed("remark"), "is_high": Bit("height", 0x100), "height": "height"},
        at_ms="height",
    )
}
TURNED_RULES: dict[type[LayoutFrame], MessageRule] = {
    Begin: MessageRule(Kind.CONTROL, correlation=NonZero("seq")),
    Reply: MessageRule(
        Kind.RESPONSE,
        service=Attribute("number", before="turned/"),
        op="call",
        payload="data",
        correlation=NonZero("seq"),
        fields={"own": "fixed_order", "extra": "extra"},
        when=(AtLeast("number", 1), Equals("extra", b"")),
    ),
}
WIDE_RULES: dict[type[LayoutFrame], MessageRule] = {
    Low: MessageRule(Kind.REQUEST, service=Attribute("label"), op="get", fields={}, correlation=NonZero("value")),
    High: MessageRule(
        Kind.REQUEST, service=Attribute("label", before="w/"), op="put", fields={"l": "label", "words": "words"}
    ),
}


def ruled(frames: FrameSet, rules: dict[type[LayoutFrame], MessageRule]) -> Protocol:
    """Return a protocol whose messages follow rules."""
    made = MessageRules(frames.name, rules)
    return replace(sampler.protocol(frames), layout=frames, message_rules=made, to_message=made.to_message)


def decoder_of(protocol: Protocol) -> KernelDecoder:
    decoder = kernel_decoder(protocol)
    assert decoder is not None
    return decoder


SAMPLER_PROTOCOL = ruled(SAMPLER, SAMPLER_RULES)
PROTOCOLS: list[Protocol] = [
    SAMPLER_PROTOCOL,
    ruled(PLAIN, PLAIN_RULES),
    ruled(TURNED, TURNED_RULES),
    ruled(WIDE, WIDE_RULES),
    *(each for each in (*registry.all_protocols(), example("beacon").PROTOCOL) if each.message_rules is not None),
]
DECODERS = {protocol.name: decoder_of(protocol) for protocol in PROTOCOLS}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)


def layout_of(protocol: Protocol) -> FrameSet:
    assert protocol.layout is not None
    return protocol.layout


def column(sent: list[Sent]) -> tuple[Any, Any]:
    frames = pa.array([frame for frame, _ in sent], pa.binary())
    return frames, np.array([sender is Sender.SERVER for _, sender in sent], np.bool_)


def assert_same(protocol: Protocol, frames: Any, from_server: Any) -> None:
    decoder = DECODERS[protocol.name]
    wanted, found = decode_each(protocol, frames, from_server), decoder.decode(frames, from_server)
    assert found.refused == wanted.refused
    assert found.rows.tolist() == wanted.rows.tolist()
    found.messages.validate(full=True)
    for name, ours, theirs in zip(
        found.messages.schema.names, found.messages.columns, wanted.messages.columns, strict=True
    ):
        assert ours.to_pylist() == theirs.to_pylist(), name


def sender_of(frame: Any) -> Sender:
    return frame.sender or CLIENT


def added_size(frames: FrameSet, wire: bytearray, order: ByteOrder) -> int:
    """Return the bytes of the head that the length does not count because another field does."""
    envelope, found = frames.envelope, 0
    for field in envelope.sizes:
        if field.name in envelope.added_sizes:
            start = envelope.before(field.name) or 0
            found += int.from_bytes(wire[start : start + (field.size or 0)], order)
    return found


def changed(frames: FrameSet, data: bytes, random: Random) -> bytes:
    """Return the bytes with damage, often with lengths and checksums that fit again."""
    wire = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2))):
        place = random.randrange(len(wire) + 1)
        match random.randrange(4):
            case 0 if place < len(wire):
                wire[place] = random.randrange(256)
            case 1:
                del wire[place : place + random.randrange(1, 4)]
            case 2:
                wire[place:place] = random.randbytes(random.randrange(1, 4))
            case _:
                del wire[place:]
    field = frames.envelope.length
    if field is not None and field.size and random.random() < 0.8:
        offset = frames.envelope.before(field.name) or 0
        order = random.choice(ORDERS) if frames.envelope.order_shown_by else field.order
        length = max(0, len(wire) - frames.envelope.added_to_length() - added_size(frames, wire, order))
        wire[offset : offset + field.size] = (length & (1 << 8 * field.size) - 1).to_bytes(field.size, order)
    return bytes(with_checksum(frames, wire) if random.random() < 0.9 else wire)


@every_protocol
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_kernel_and_codec_agree(protocol: Protocol, data: st.DataObject, seed: int) -> None:
    """Also on damaged frames, on those of the wrong sender, and on random bytes."""
    random, layout = Random(seed), layout_of(protocol)
    frames = data.draw(st.lists(frames_of(layout), max_size=20))
    whole = [(frame.encode(), sender_of(frame)) for frame in frames]
    assert_same(protocol, *column(whole))
    bad = [(changed(layout, frame, random), sender) for frame, sender in whole for _ in range(4)]
    bad += [(frame, sender.other) for frame, sender in whole]
    bad += [(random.randbytes(random.randrange(20)), random.choice(list(Sender))) for _ in range(5)]
    random.shuffle(bad)
    assert_same(protocol, *column(bad))


@every_protocol
@given(data=st.data())
@settings(max_examples=20)
def test_slices_and_nulls(protocol: Protocol, data: st.DataObject) -> None:
    frames = data.draw(st.lists(frames_of(layout_of(protocol)), min_size=3, max_size=6))
    values: list[bytes | None] = [frame.encode() for frame in frames]
    values[1] = None
    nulls = pa.array(values, pa.binary())
    from_server = np.array([sender_of(frame) is Sender.SERVER for frame in frames], np.bool_)
    for part in (slice(0, None), slice(1, None), slice(2, 3), slice(0, 0)):
        assert_same(protocol, nulls[part], np.ascontiguousarray(from_server[part]))


@every_protocol
@given(data=st.data())
@settings(max_examples=30)
def test_the_kernel_leaves_no_valid_frame_to_the_codec(protocol: Protocol, data: st.DataObject) -> None:
    """Or else it would be right, and slow. Frames that no rule is for are the codec's."""
    decoder, rules = DECODERS[protocol.name], protocol.message_rules
    assert rules is not None
    kinds = set(decoder.kinds)
    frames = [frame for frame in data.draw(st.lists(frames_of(layout_of(protocol)))) if type(frame) in kinds]
    frames_column, from_server = column([(frame.encode(), sender_of(frame)) for frame in frames])
    left = [row for row, frame in enumerate(frames) if not follows(frame, rules.rules[type(frame)])]
    assert decoder.kernel.run(frames_column, from_server).others.tolist() == left


def test_what_a_kernel_cannot_read_is_left_to_the_codec() -> None:
    """A number that only Python reads, and lists that may be missing."""
    rules = SAMPLER_RULES | {Marks: MessageRule(Kind.EVENT), Parts: MessageRule(Kind.EVENT)}
    decoder = decoder_of(ruled(SAMPLER, rules))
    assert set(SAMPLER.frames) - set(decoder.kinds) == {Marks, Parts}


def test_a_protocol_without_rules_or_kernel_has_no_decoder() -> None:
    assert kernel_decoder(sampler.protocol(SAMPLER)) is None
    small = {kind: MessageRule(Kind.EVENT, fields={}) for kind in sampler.SMALL.frames}
    assert kernel_decoder(ruled(sampler.SMALL, small)) is None  # its checksum is a function of its author


def test_a_protocol_with_a_codec_of_its_own_has_no_kernel() -> None:
    """A kernel knows the layout and the rules, and nothing of what else a protocol does."""

    def decode(frame: bytes, sender: Sender) -> LayoutFrame:
        return SAMPLER.decode(frame, sender)

    def to_message(frame: Frame, sender: Sender) -> Message:
        return SAMPLER_PROTOCOL.to_message(frame, sender)

    assert kernel_decoder(replace(SAMPLER_PROTOCOL, decode=decode)) is None
    assert kernel_decoder(replace(SAMPLER_PROTOCOL, to_message=to_message)) is None
    assert isinstance(kernel_decoder(guard(SAMPLER_PROTOCOL)), KernelDecoder)


def test_an_installed_protocol_without_a_working_kernel_is_decoded_by_its_codec(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = guard(replace(SAMPLER_PROTOCOL, name="broken"))
    monkeypatch.setattr(kernel_columns, "generate_kernel", lambda *_: 1 / 0)
    assert column_decoder(broken) is None
    assert "broken: no kernel can be made from its description" in caplog.text


def test_a_rule_is_for_the_frames_that_meet_its_conditions() -> None:
    rules = MessageRules(
        "turned", TURNED_RULES, others=lambda frame, _sender: Message(kind=Kind.EVENT, name=frame.name)
    )
    call = rules.to_message(Reply(16, 0, b"x", seq=3), CLIENT)
    assert (call.target, call.correlation, call.payload) == (Operation("turned/16", "call"), "3", b"x")
    assert rules.to_message(Reply(16, 0, b"x"), CLIENT).correlation == ""
    for other in (Reply(0, 0, b"x"), Reply(16, 0, b"x", extra=b"\0")):
        assert rules.to_message(other, CLIENT) == Message(kind=Kind.EVENT, name=Reply.name)
        with pytest.raises(TranslationError, match="has no message"):
            MessageRules("turned", TURNED_RULES).to_message(other, CLIENT)


def test_long_values_find_room() -> None:
    """Texts and lists take many times their bytes as JSON."""
    point = Point(-1, -1, "\x01" * 255, (b"\xff" * 255,) * 4)
    lists = Lists(
        numbers=(65_535,) * 255, wide=(-(2**63),) * 100, small=(), switches=(False,) * 255, colours=(),
        points=(point,) * 3, matrix=((2**32 - 1,) * 255,) * 3, corner=point, pixels=(),
    )  # fmt: skip
    assert_same(SAMPLER_PROTOCOL, *column([(lists.encode(), CLIENT)] * 60))


def test_floats_are_written_as_the_codec_writes_them() -> None:
    values = (0.1, -0.0, 1e300, 5e-324, float("inf"), float("nan"), 1e16, 123456789.123, 2.5)
    small = (0.5, 0.10000000149011612, 3.4e38, 1e-45, 0.0, -1.0, 7.0, float("inf"), float("nan"))
    numbers = Numbers(
        a=0, b=0, c=0, d=0, e=0, f=2**64 - 1, g=-1, h=0, i=-1, j=0, k=-(2**47), l=-(2**63), m=0.0, n=0.0, o=True,
        p=0, q=0, r=0,
    )  # fmt: skip
    sent = [(replace(numbers, m=m, n=n).encode(), CLIENT) for m, n in zip(small, values, strict=True)]
    assert_same(SAMPLER_PROTOCOL, *column([*sent, (Nothing().encode(), CLIENT), *sent]))


@pytest.mark.parametrize(
    ("kind", "rule", "text"),
    [
        (Login, MessageRule(Kind.CONTROL, fields={"token": "token"}), "token is secret"),
        (Login, MessageRule(Kind.CONTROL, topic="token"), "token is secret"),
        (Login, MessageRule(Kind.CONTROL, source="nobody"), "has no attribute 'nobody'"),
        (Lists, MessageRule(Kind.EVENT, fields={"n": InUnits("numbers")}), "numbers has no unit"),
        (Lists, MessageRule(Kind.EVENT, fields={"n": Bit("numbers", 1)}), "numbers is not a number"),
        (Lists, MessageRule(Kind.EVENT, parts="numbers"), "numbers is not a list of frames"),
        (Lists, MessageRule(Kind.EVENT, parts="points"), "its frames need a rule"),
        (Texts, MessageRule(Kind.EVENT, topic="t8", op="x"), "a topic or to a service"),
        (Texts, MessageRule(Kind.EVENT, when=(AtLeast("t8", 1),)), "t8 cannot be compared with 1"),
        (Texts, MessageRule(Kind.EVENT, when=(Equals("t8", b"1"),)), "t8 cannot be compared with b'1'"),
        (Numbers, MessageRule(Kind.EVENT, when=(Equals("m", 1),)), "m cannot be compared with 1"),
        (Texts, MessageRule(Kind.EVENT, when=(Equals("nobody", 1),)), "has no attribute 'nobody'"),
        (Texts, MessageRule(Kind.EVENT, correlation=NonZero("t8")), "t8 is not a number"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(kind: type[LayoutFrame], rule: MessageRule, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        MessageRules("sampler", {kind: rule})
